//! Compares a volume's throughput with the device's own: raw io_uring in a minimal loop of its own, against
//! [`Volume`] with checksums, on the same file.
//!
//! ```text
//! cargo run --release -p vgas-nvm --example device_rates -- /folder/on/nvme [GIGABYTES] [ROUNDS]
//! ```
//!
//! The three ways of reading (raw, raw with registered memory and file, volume) take turns. Each reads a
//! region that has not been read before, because recently read data may come from a cache below. Printed are
//! medians over the rounds, the ratio of the volume to the better raw median, and the processor time of a
//! read, which depends less on what else the machine does. The data file is removed afterwards.

use io_uring::types::Fixed;
use io_uring::{IoUring, opcode, types::Fd};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::error::Error;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vgas_nvm::format::{Geometry, Place};
use vgas_nvm::{DeviceChoice, Volume, VolumeSpec};
use vgas_shm::Mapping;

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Case {
    name: &'static str,
    page_bytes: u32,
    depth: usize,
    random: bool,
}

const CASES: [Case; 6] = [
    Case { name: "random 4 KiB", page_bytes: 4 << 10, depth: 32, random: true },
    Case { name: "sequential 64 KiB", page_bytes: 64 << 10, depth: 16, random: false },
    Case { name: "random 64 KiB", page_bytes: 64 << 10, depth: 8, random: true },
    Case { name: "sequential 256 KiB", page_bytes: 256 << 10, depth: 8, random: false },
    Case { name: "sequential 1 MiB", page_bytes: 1 << 20, depth: 8, random: false },
    Case { name: "sequential 4 MiB", page_bytes: 4 << 20, depth: 4, random: false },
];

/// Most bytes that one way reads in one round of random 4 KiB reads: about a third of a second.
const RANDOM_BYTES_MAX: u64 = 96 << 20;

/// Time that the volume's reader spins before it sleeps: about the distance of two random 4 KiB reads at full
/// rate.
const SPIN: Duration = Duration::from_micros(20);
/// Sequential reads that wait in the volume while the device has its depth of them, as an agent's read-ahead leaves
/// them there: the device goes on while checksums are taken.
const READ_AHEAD: usize = 2;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: device_rates FOLDER [GIGABYTES] [ROUNDS]";
    let folder = PathBuf::from(arguments.next().ok_or(usage)?);
    let bytes = arguments.next().map_or(Ok(2), |text| text.parse::<u64>())? << 30;
    let rounds = arguments.next().map_or(Ok(9), |text| text.parse::<u64>())?;
    println!(
        "{:<20} {:>6} {:>12} {:>12} {:>12} {:>8}",
        "case", "depth", "raw", "registered", "volume", "ratio"
    );
    for case in &CASES {
        let file = folder.join("rates.0.vgas");
        let measured = measure(&folder, &file, case, bytes, rounds);
        let removed = std::fs::remove_file(&file);
        let ([raw, registered, volume], cpu) = measured?;
        removed?;
        let show = |rate: f64| match case.random && case.page_bytes == 4096 {
            true => format!("{:.1} kIOPS", rate / f64::from(case.page_bytes) / 1e3),
            false => format!("{:.2} GB/s", rate / 1e9),
        };
        println!(
            "{:<20} {:>6} {:>12} {:>12} {:>12} {:>8.3}   {:.1} {:.1} {:.1}",
            case.name,
            case.depth,
            show(raw),
            show(registered),
            show(volume),
            volume / raw.max(registered),
            cpu[0],
            cpu[1],
            cpu[2],
        );
    }
    Ok(())
}

/// Medians of raw, raw and registered, volume: rates in bytes a second, and processor time in µs a read.
fn measure(
    folder: &Path,
    file: &Path,
    case: &Case,
    bytes: u64,
    rounds: u64,
) -> Outcome<([f64; 3], [f64; 3])> {
    let page_bytes = u64::from(case.page_bytes);
    let pages = bytes / page_bytes;
    let geometry = Geometry::new(case.page_bytes, pages).ok_or("too large")?;
    let frames = Mapping::anonymous("frames", ((case.depth + READ_AHEAD) as u64 * page_bytes).max(4 << 20))?;
    let mut volume = Volume::open(VolumeSpec {
        device: DeviceChoice::Uring,
        frames: Some(frames.clone()),
        queue_depth: case.depth as u32,
        ..VolumeSpec::new(folder, case.page_bytes)
    })?;
    volume.create_or_open_named(0, "rates", pages)?;
    fill(&mut volume, &frames, case, pages)?;
    let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(file)?;

    let mut random = ChaCha8Rng::seed_from_u64(page_bytes);
    let region = pages / (3 * rounds);
    let (mut rates, mut cpu) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for round in 0..rounds {
        for turn in 0..3 {
            // The first way changes with the round.
            let way = (turn + round) % 3;
            let first = (round * 3 + turn) * region;
            let mut order: Vec<u64> = (first..first + region).collect();
            if case.random {
                order.shuffle(&mut random);
                order.truncate((RANDOM_BYTES_MAX / page_bytes) as usize);
            }
            let before = processor_time();
            let time = match way {
                2 => through_volume(&mut volume, &frames, case, &order)?,
                way => {
                    let offsets: Vec<u64> =
                        order.iter().map(|&page| geometry.page_at(page, Place::A)).collect();
                    raw(&direct, &frames, case, &offsets, way == 1)?
                }
            };
            rates[way as usize].push(order.len() as f64 * page_bytes as f64 / time.as_secs_f64());
            cpu[way as usize].push((processor_time() - before).as_secs_f64() * 1e6 / order.len() as f64);
        }
    }
    Ok((rates.map(median), cpu.map(median)))
}

/// Processor time of this thread so far, its system calls included.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Writes every page with bytes that no device can compress.
fn fill(volume: &mut Volume, frames: &Arc<Mapping>, case: &Case, pages: u64) -> Outcome<()> {
    let page_bytes = case.page_bytes as usize;
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut bytes = vec![0u8; page_bytes * case.depth];
    rand::Rng::fill_bytes(&mut random, &mut bytes);
    frames.write(0, &bytes);
    let (mut done, mut next) = (Vec::new(), 0);
    while next < pages {
        let some = (pages - next).min(case.depth as u64);
        let run = (0..some).map(|frame| (frames.span(frame as usize * page_bytes, page_bytes), frame));
        volume.write_run(0, next, run.collect::<Vec<_>>())?;
        next += some;
        while volume.in_flight() > 0 {
            wait(volume, &mut done)?;
            for done in done.drain(..) {
                done.result?;
            }
        }
    }
    volume.flush(0, 0)?;
    while volume.in_flight() > 0 {
        wait(volume, &mut done)?;
    }
    Ok(())
}

/// Polls, spins briefly, and sleeps when there is nothing: what the agent's event loop does.
fn wait(volume: &mut Volume, done: &mut Vec<vgas_nvm::PageDone>) -> Outcome<()> {
    let start = Instant::now();
    while volume.poll(done)? == 0 {
        if start.elapsed() >= SPIN && volume.arm() {
            let descriptor = volume.wait_descriptor();
            let mut descriptors =
                [rustix::event::PollFd::from_borrowed_fd(descriptor, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut descriptors, None)?;
            volume.disarm();
        }
    }
    Ok(())
}

fn through_volume(
    volume: &mut Volume,
    frames: &Arc<Mapping>,
    case: &Case,
    order: &[u64],
) -> Outcome<Duration> {
    let page_bytes = case.page_bytes as usize;
    let start = Instant::now();
    let (mut pages, mut left) = (order.iter(), order.len());
    let mut read = |volume: &mut Volume, frame: u64| -> Outcome<()> {
        if let Some(&page) = pages.next() {
            volume.read(0, page, frames.span(frame as usize * page_bytes, page_bytes), frame)?;
        }
        Ok(())
    };
    let ahead = if case.random { 0 } else { READ_AHEAD };
    for frame in 0..(case.depth + ahead) as u64 {
        read(volume, frame)?;
    }
    volume.submit()?;
    let mut done = Vec::new();
    while left > 0 {
        wait(volume, &mut done)?;
        for done in done.drain(..) {
            done.result?;
            left -= 1;
            read(volume, done.key)?;
        }
        volume.submit()?;
    }
    Ok(start.elapsed())
}

/// The least that reads these places with io_uring.
fn raw(
    file: &File,
    frames: &Arc<Mapping>,
    case: &Case,
    offsets: &[u64],
    registered: bool,
) -> Outcome<Duration> {
    let page_bytes = case.page_bytes as usize;
    let mut ring = IoUring::new(case.depth.next_power_of_two() as u32)?;
    if registered {
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let vector = libc::iovec { iov_base: frames.base().cast(), iov_len: frames.bytes() };
        // SAFETY: `frames` outlives the ring.
        unsafe { ring.submitter().register_buffers(&[vector])? };
    }
    let entry = |offset: u64, frame: usize| {
        let at = frames.span(frame * page_bytes, page_bytes).address();
        let entry = match registered {
            true => opcode::ReadFixed::new(Fixed(0), at, page_bytes as u32, 0).offset(offset).build(),
            false => opcode::Read::new(Fd(file.as_raw_fd()), at, page_bytes as u32).offset(offset).build(),
        };
        entry.user_data(frame as u64)
    };
    let start = Instant::now();
    let (mut offsets_left, mut left) = (offsets.iter(), offsets.len());
    for (frame, &offset) in offsets_left.by_ref().take(case.depth).enumerate() {
        // SAFETY: `frames` outlives the ring; each frame is in one read at a time.
        unsafe { ring.submission().push(&entry(offset, frame))? };
    }
    let mut free = Vec::new();
    while left > 0 {
        ring.submit_and_wait(1)?;
        for answer in ring.completion() {
            if answer.result() != page_bytes as i32 {
                return Err(format!("a raw read answered {}", answer.result()).into());
            }
            free.push(answer.user_data() as usize);
        }
        for frame in free.drain(..) {
            left -= 1;
            if let Some(&offset) = offsets_left.next() {
                // SAFETY: as above.
                unsafe { ring.submission().push(&entry(offset, frame))? };
            }
        }
    }
    Ok(start.elapsed())
}
