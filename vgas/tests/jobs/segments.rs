//! Several segments in one job: pages of different sizes, policies, coming and going, and what is refused.
//!
//! # Rules for the unsafe code in this file
//!
//! Words are used as atomics, inside of a segment of the rank's own, which lives as long as the pointer.

use crate::Setting;
use crate::scenarios::Outcome;
use rustix::process::{Resource, Rlimit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vgas::{Change, GlobalAddress, PinMode, Rank, Runtime, Segment, SegmentOptions};

const SETTINGS: [(&str, &str); 3] =
    [("cache.size", "32MiB"), ("cache.page", "64KiB"), ("segment.tiered_max", "256MiB")];

pub fn settings() -> Vec<Setting> {
    let threads = SETTINGS.iter().chain(&[("agent.threads", "2")]).copied().collect::<Vec<_>>();
    vec![
        Setting::new(1, 1, &SETTINGS),
        Setting::new(2, 1, &SETTINGS),
        Setting::new(3, 3, &SETTINGS),
        Setting::new(4, 2, &threads),
    ]
}

/// Small caches, whose every part has pages that pointers use.
pub fn settings_of_leaving() -> Vec<Setting> {
    const SMALL: [(&str, &str); 3] =
        [("cache.size", "4MiB"), ("cache.page", "4KiB"), ("segment.tiered_max", "16MiB")];
    let threads = SMALL.iter().chain(&[("agent.threads", "2")]).copied().collect::<Vec<_>>();
    vec![
        Setting::new(1, 1, &SMALL),
        Setting::new(3, 1, &SMALL),
        Setting::new(4, 1, &SMALL),
        Setting::new(4, 2, &threads),
    ]
}

const RECORDS: u64 = 1 << 20;
const MATRIX: u64 = 24 << 20;
const SHARED: u64 = 256 << 10;

pub fn rank(runtime: &Runtime, seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(1 << 20))?;
    refuse(runtime)?;
    let records = runtime.attach(&SegmentOptions::tiered(RECORDS).page_size(4 << 10))?;
    let matrix = runtime.attach(&SegmentOptions::tiered(MATRIX).page_size(1 << 20).weight(2))?;
    let shared =
        runtime.attach(&SegmentOptions::tiered(SHARED).page_size(16 << 10).home_only(true).weight(4))?;
    if [&records, &matrix, &shared].map(|segment| segment.id().0) != [1, 2, 3] {
        return Err(format!("{records:?}, {matrix:?}, {shared:?}").into());
    }
    for round in 0..2 {
        fill(runtime, &[&crate::scenarios::first(runtime), &records, &matrix, &shared], seed + round)?;
    }
    count(runtime, &[&records, &matrix, &shared])?;
    stay_at_home(runtime, &shared)?;
    point(runtime, &records)?;
    come_and_go(runtime, &matrix, &records)?;
    alone(runtime)?;
    leave_room(runtime)?;
    runtime.checkpoint()?;
    Ok(())
}

fn same_everywhere(runtime: &Runtime, what: &str, result: vgas::Result<Segment>) -> Outcome {
    let said = result.err().map(|error| error.to_string()).unwrap_or_default();
    let all = runtime.all_gatherv(&said.as_bytes()[..said.len().min(100)])?;
    if all.iter().any(Vec::is_empty) {
        return Err(format!("{what} was not refused everywhere: {said}").into());
    }
    Ok(())
}

/// What cannot be is an error on all ranks, and nothing is left of it.
fn refuse(runtime: &Runtime) -> Outcome {
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    let with_pages = |page_bytes| SegmentOptions::tiered(0).page_size(page_bytes);
    same_everywhere(runtime, "a page of 5000 bytes", runtime.attach(&with_pages(5000).sized(1)))?;
    same_everywhere(runtime, "a page of 8 MiB", runtime.attach(&(with_pages(8 << 20)).sized(1)))?;
    same_everywhere(runtime, "a page beyond a sixteenth", runtime.attach(&(with_pages(4 << 20)).sized(1)))?;
    let none = SegmentOptions::tiered(0).weight(0);
    same_everywhere(runtime, "no weight", runtime.attach(&none.sized(1)))?;
    let most = runtime.attach(&SegmentOptions::tiered(256 << 20));
    same_everywhere(runtime, "more than there may be", most)?;
    if ranks > 1 {
        let one = if me == ranks - 1 { 1 << 40 } else { 4096 };
        let refused = runtime.attach(&SegmentOptions::tiered(one));
        same_everywhere(runtime, "a rank's petabyte", refused)?;
        let different = SegmentOptions::tiered(0).relaxed(me == 0);
        same_everywhere(runtime, "different options", runtime.attach(&different.sized(4096)))?;
    }
    Ok(())
}

/// Goal: what was refused can be tried again at once: nothing that is left of it, on whichever rank, meets its successor, which has the
/// same number. Many times, because ranks that share a node must get in each other's way.
pub fn again(runtime: &Runtime, _seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(4096))?;
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    for round in 0..300 {
        let bytes = if me == round % ranks { 1 << 40 } else { 4096 };
        if runtime.attach(&SegmentOptions::tiered(bytes)).is_ok() {
            return Err("a petabyte was attached".into());
        }
        let segment = runtime.attach(&SegmentOptions::tiered(4096))?;
        if segment.id().0 != 1 {
            return Err(format!("{segment:?} is not the first beside the first").into());
        }
        let right = Rank((me + 1) % ranks);
        runtime.put_value(segment.address(right, 8), u64::from(me))?;
        runtime.barrier()?;
        let found: u64 = runtime.get_value(segment.address(Rank(me), 8))?;
        if found != u64::from((me + ranks - 1) % ranks) {
            return Err(format!("round {round}: found {found}").into());
        }
        runtime.barrier()?;
        segment.detach()?;
    }
    Ok(())
}

/// So many threads of the agent that the least that sizes keep is soon all there is: the pool has 16 blocks.
pub fn settings_of_too_many_sizes() -> Vec<Setting> {
    let settings = [
        ("cache.size", "4MiB"),
        ("cache.page", "4KiB"),
        ("segment.tiered_max", "16MiB"),
        ("agent.threads", "8"),
    ];
    vec![Setting::new(1, 1, &settings), Setting::new(2, 1, &settings)]
}

/// Goal: a size that can never have room beside the others is refused at once, with the numbers, and the others go on.
pub fn too_many_sizes(runtime: &Runtime, seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(64 << 10))?;
    let mut segments = vec![crate::scenarios::first(runtime)];
    let mut refused = None;
    for bytes in [256 << 10, 128 << 10, 64 << 10, 32 << 10] {
        let began = Instant::now();
        match runtime.attach(&SegmentOptions::tiered(1 << 20).page_size(bytes)) {
            Ok(segment) => segments.push(segment),
            Err(error) => {
                refused = Some((error.to_string(), began.elapsed()));
                break;
            }
        }
    }
    let Some((said, took)) = refused else { return Err("all sizes have found room".into()) };
    if !said.contains("blocks") || took.as_secs() >= 5 {
        return Err(format!("refused after {took:?}: {said}").into());
    }
    fill(runtime, &segments.iter().collect::<Vec<_>>(), seed)
}

pub fn settings_of_a_full_disk() -> Vec<Setting> {
    let settings = [("cache.size", "16MiB"), ("cache.page", "4KiB"), ("segment.tiered_max", "64MiB")];
    vec![Setting::new(1, 1, &settings)]
}

/// Goal: a size for which pages would have to leave that cannot be stored is refused with that reason, before the time for which
/// room is waited; when they can be stored again, it gets its room. The file system is full as far as the node's daemon can tell,
/// which started this rank: its files are not to grow.
pub fn full_disk(runtime: &Runtime, seed: u64) -> Outcome {
    // More than the cache has: what was put last has not been stored. The few frames that the home keeps free are less than a block of 1 MiB,
    // so that none is empty.
    const BYTES: u64 = 32 << 20;
    runtime.attach(&SegmentOptions::tiered(BYTES))?;
    let content: Vec<u8> = (0..BYTES / 8).flat_map(|word| (seed ^ word).to_le_bytes()).collect();
    runtime.put(GlobalAddress::tiered(Rank(0), 0), &content)?;
    let daemon = rustix::process::getppid();
    let before = rustix::process::getrlimit(Resource::Fsize);
    rustix::process::prlimit(daemon, Resource::Fsize, Rlimit { current: Some(4096), ..before })?;
    let attach = || runtime.attach(&SegmentOptions::tiered(1 << 20).page_size(1 << 20));
    let began = Instant::now();
    let refused = attach();
    let took = began.elapsed();
    rustix::process::prlimit(daemon, Resource::Fsize, before)?;
    let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
    if !said.contains("which others cannot leave: ") || took >= Duration::from_secs(9) {
        return Err(format!("refused after {took:?}: {said}").into());
    }
    let began = Instant::now();
    let mut naps = 0;
    let further = loop {
        match attach() {
            Ok(segment) => break segment,
            Err(error) if began.elapsed() > Duration::from_secs(60) => return Err(error.into()),
            Err(_) => vgas_shm::cores::nap(&mut naps),
        }
    };
    runtime.put(further.address(Rank(0), 0), &content[..1 << 20])?;
    let mut found = vec![0; content.len()];
    runtime.get(GlobalAddress::tiered(Rank(0), 0), &mut found)?;
    if found == content { Ok(()) } else { Err("what could not be stored for a while is lost".into()) }
}

fn pattern(seed: u64, segment: &Segment, owner: u32, offset: u64) -> u64 {
    let mixed = seed ^ u64::from(segment.id().0) << 48 ^ u64::from(owner) << 40 ^ offset;
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

/// Each rank writes its neighbour's parts, in pieces that cross pages, and reads everybody's: more than the caches hold.
fn fill(runtime: &Runtime, segments: &[&Segment], seed: u64) -> Outcome {
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    let neighbour = (me + 1) % ranks;
    const STEP: u64 = 40_960;
    let words = |segment: &Segment, owner: u32, offset: u64, bytes: u64| -> Vec<u8> {
        let words = (offset..offset + bytes).step_by(8);
        words.flat_map(|at| pattern(seed, segment, owner, at).to_le_bytes()).collect()
    };
    let pieces = |segment: &Segment| {
        let bytes = segment.bytes_of(Rank(neighbour));
        (0..bytes).step_by(STEP as usize).map(move |offset| (offset, STEP.min(bytes - offset)))
    };
    for segment in segments {
        for (offset, bytes) in pieces(segment) {
            let content = words(segment, neighbour, offset, bytes);
            runtime.put(segment.address(Rank(neighbour), offset), &content)?;
        }
    }
    runtime.barrier()?;
    for segment in segments {
        let bytes = segment.bytes_of(Rank(neighbour));
        runtime.prefetch(segment.address(Rank(neighbour), 0), bytes.min(1 << 20))?;
        for owner in 0..ranks {
            for (offset, bytes) in pieces(segment) {
                let mut found = vec![0; bytes as usize];
                runtime.get(segment.address(Rank(owner), offset), &mut found)?;
                if found != words(segment, owner, offset, bytes) {
                    return Err(format!("{segment:?} of rank {owner} is wrong behind {offset}").into());
                }
            }
        }
    }
    runtime.barrier()?;
    let outside = segments[1].address(Rank(neighbour), RECORDS);
    if runtime.get(outside, &mut [0; 1]).is_ok() || runtime.put(outside, &[1]).is_ok() {
        return Err("something is behind the end".into());
    }
    Ok(())
}

/// Atomics, locks and pins do not care which segment it is.
fn count(runtime: &Runtime, segments: &[&Segment]) -> Outcome {
    let ranks = runtime.ranks();
    for segment in segments {
        let word = segment.address(Rank(ranks - 1), 8192);
        if runtime.rank().0 == 0 {
            runtime.put(segment.address(Rank(ranks - 1), 8192), &[0; 64])?;
        }
        runtime.barrier()?;
        for _ in 0..20 {
            runtime.update(word, Change::Add(1u64))?;
            let lock = segment.address(Rank(ranks - 1), 8192 + 16);
            let sum = segment.address(Rank(ranks - 1), 8192 + 32);
            let guard = runtime.lock(lock)?;
            let found: u64 = runtime.get_value(sum)?;
            runtime.put_value(sum, found + 1)?;
            drop(guard);
        }
        runtime.barrier()?;
        let sums: [u64; 2] =
            [runtime.get_value(word)?, runtime.get_value(segment.address(Rank(ranks - 1), 8192 + 32))?];
        if sums != [u64::from(20 * ranks); 2] {
            return Err(format!("{segment:?} has counted {sums:?}").into());
        }
        if *segment != segments[2] {
            let pin = runtime.pin(word, PinMode::Read)?;
            let size = crate::client(runtime).page_size_of((segment.id(), Rank(0))).bytes();
            if pin.range().end - pin.range().start != u64::from(size) {
                return Err(format!("a page of {segment:?} is {:?}", pin.range()).into());
            }
        }
        runtime.barrier()?;
    }
    Ok(())
}

/// Of a segment whose pages stay at home, other nodes have no copies, whatever they do.
fn stay_at_home(runtime: &Runtime, segment: &Segment) -> Outcome {
    let (pool, layout) = (crate::client(runtime).pool(), runtime.layout());
    for owner in (0..runtime.ranks()).map(Rank) {
        let Some(partition) = crate::client(runtime).partition((segment.id(), owner)) else {
            return Err(format!("{segment:?} has no part of {owner}").into());
        };
        let is_home = layout.node_of(owner) == runtime.node();
        let copies = partition.each_page().filter(|&page| pool.peek(page).state().readable()).count();
        if !is_home && copies > 0 {
            return Err(format!("{copies} pages of {owner} are at {}", runtime.node()).into());
        }
        if !is_home && runtime.pin(segment.address(owner, 0), PinMode::Read).is_ok() {
            return Err("a page that stays at home was pinned elsewhere".into());
        }
    }
    Ok(())
}

/// An owner uses its part by pointers; others see it.
fn point(runtime: &Runtime, segment: &Segment) -> Outcome {
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    if segment.local_pages(u32::MAX).is_ok() {
        return Err("more pages are mapped than there may be".into());
    }
    {
        let local = segment.local_pages(8)?;
        // More pages than may be mapped, and one that the other side is to see.
        for at in (0..RECORDS).step_by(64 << 10) {
            let word = local.address_of(at).ok_or("no address")?.cast::<u64>();
            // SAFETY: the rule of this file.
            unsafe { AtomicU64::from_ptr(word) }.store(u64::from(me) << 32 | at, Ordering::Release);
        }
        // A buffer in the segment itself.
        let from = local.address_of(64 << 10).ok_or("no address")?;
        // SAFETY: the rule of this file: nobody writes the word meanwhile.
        let own = unsafe { std::slice::from_raw_parts(from, 8) };
        runtime.put(crate::scenarios::first(runtime).address(Rank((me + 1) % ranks), 512), own)?;
        runtime.barrier()?;
        for owner in 0..ranks {
            let found: u64 = runtime.get_value(segment.address(Rank(owner), 128 << 10))?;
            if found != u64::from(owner) << 32 | 128 << 10 {
                return Err(format!("rank {owner} has stored {found:#x}").into());
            }
        }
        let found: u64 = runtime.get_value(crate::scenarios::first(runtime).address(runtime.rank(), 512))?;
        let before = (me + ranks - 1) % ranks;
        if found != u64::from(before) << 32 | 64 << 10 {
            return Err(format!("rank {before} has put {found:#x}").into());
        }
        match segment.detach() {
            Err(why) if why.to_string().contains("is open by pointers in rank 0") => {}
            other => return Err(format!("detached while it is open: {other:?}").into()),
        }
        runtime.barrier()?;
    }
    let found: u64 = runtime.get_value(segment.address(Rank((me + 1) % ranks), 192 << 10))?;
    if found != u64::from((me + 1) % ranks) << 32 | 192 << 10 {
        return Err(format!("{found:#x} is left of a store").into());
    }
    runtime.barrier()?;
    Ok(())
}

/// Ranks attach segments by themselves, of different kinds; whoever learns of them uses them, and gets errors when they are gone.
fn alone(runtime: &Runtime) -> Outcome {
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    let next = Rank((me.0 + 1) % ranks);
    for round in 0..4u64 {
        let page_bytes = [4 << 10, 64 << 10, 256 << 10][(round as usize + me.0 as usize) % 3];
        let own = runtime.attach(&SegmentOptions::tiered(1 << 20).page_size(page_bytes).independent())?;
        let numbers = runtime.all_gatherv(&own.id().0.to_le_bytes())?;
        let number = u16::from_le_bytes(numbers[next.0 as usize].as_slice().try_into()?);
        let there =
            GlobalAddress { segment: vgas::SegmentId(number), ..GlobalAddress::tiered(next, 300_000) };
        // The ranks of a node know what one of them does.
        let is_elsewhere = runtime.layout().node_of(next) != runtime.node();
        if is_elsewhere && round == 0 && runtime.put(there, &[1]).is_ok() {
            return Err("an own segment of another rank was used before it was learnt of".into());
        }
        // Ranks number them alike: the neighbour's is not detached here, nor this rank's of that number in its place.
        if ranks > 1 && runtime.open_remote(there)?.detach().is_ok() {
            return Err("a segment of another rank was detached".into());
        }
        runtime.open_remote(there)?;
        runtime.put_value(there, round << 32 | u64::from(me.0))?;
        runtime.update(GlobalAddress { offset: 300_008, ..there }, Change::Add(7u64))?;
        runtime.barrier()?;
        let before = (me.0 + ranks - 1) % ranks;
        let found = [0, 8].map(|offset| runtime.get_value::<u64>(own.address(me, 300_000 + offset)));
        let [put, added] = found;
        if (put?, added?) != (round << 32 | u64::from(before), 7) {
            return Err(format!("round {round}: an own segment is wrong").into());
        }
        runtime.barrier()?;
        own.detach()?;
        runtime.barrier()?;
        let gone = [
            runtime.get(there, &mut [0; 8]).is_err(),
            runtime.put(there, &[0; 8]).is_err(),
            runtime.update(there, Change::Add(1u64)).is_err(),
            runtime.get(own.address(me, 0), &mut [0; 8]).is_err(),
            own.detach().is_err(),
        ];
        if gone != [true; 5] {
            return Err(format!("a segment that was given up is used: {gone:?}").into());
        }
        runtime.barrier()?;
    }
    let nowhere = GlobalAddress { segment: vgas::SegmentId(1000), ..GlobalAddress::tiered(next, 0) };
    if ranks > 1 && runtime.open_remote(nowhere).is_ok() {
        return Err("a segment that is none was learnt of".into());
    }
    Ok(())
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The cache that a segment has filled is there for pages of other sizes when it has gone, though nothing is left to evict.
fn leave_room(runtime: &Runtime) -> Outcome {
    const BYTES: u64 = 40 << 20;
    let me = runtime.rank();
    let mut piece = vec![0_u8; 1 << 20];
    let mut read = |segment: &Segment| -> vgas::Result<()> {
        (0..BYTES)
            .step_by(1 << 20)
            .try_for_each(|offset| runtime.get(segment.address(me, offset), &mut piece))
    };
    let filling = runtime.attach(&SegmentOptions::tiered(BYTES))?;
    read(&filling)?;
    runtime.barrier()?;
    filling.detach()?;
    for page_bytes in [4 << 10, 256 << 10] {
        let other = runtime.attach(&SegmentOptions::tiered(BYTES).page_size(page_bytes))?;
        read(&other)?;
        runtime.barrier()?;
        other.detach()?;
    }
    Ok(())
}

/// A segment that is given up is gone, its number and its memory are used again, and the new one is zeros.
fn come_and_go(runtime: &Runtime, segment: &Segment, other: &Segment) -> Outcome {
    let me = runtime.rank();
    let kept: u64 = runtime.get_value(other.address(me, 4096))?;
    runtime.barrier()?;
    segment.detach()?;
    if runtime.get(segment.address(me, 0), &mut [0; 8]).is_ok() || segment.detach().is_ok() {
        return Err("a segment that was given up is used".into());
    }
    let before = descriptors();
    for round in 0..30u64 {
        let page_bytes = [4 << 10, 64 << 10, 256 << 10, 1 << 20][round as usize % 4];
        let options =
            SegmentOptions::tiered(0).page_size(page_bytes).relaxed(round % 3 == 0).in_place(round % 2 == 0);
        let again = runtime.attach(&options.sized(2 << 20))?;
        if again != *segment {
            return Err(format!("{again:?} instead of {segment:?}").into());
        }
        let next = Rank((me.0 + 1) % runtime.ranks());
        let at = |rank: Rank| GlobalAddress { offset: 8 * round, ..again.address(rank, 0) };
        let found: u64 = runtime.get_value(at(next))?;
        runtime.barrier()?;
        runtime.put_value(at(next), round + 1)?;
        runtime.barrier()?;
        let put: u64 = runtime.get_value(at(me))?;
        if (found, put) != (0, round + 1) {
            return Err(format!("round {round} of {options:?} found {found} and {put}").into());
        }
        runtime.barrier()?;
        again.detach()?;
    }
    if descriptors() > before + 2 {
        return Err(format!("{} descriptors after {before}", descriptors()).into());
    }
    if runtime.get_value::<u64>(other.address(me, 4096))? != kept {
        return Err("another segment has changed".into());
    }
    Ok(())
}

/// Pages that pointers use, in every part of the cache, leave room for those of another size, whatever their ranks are doing.
pub fn leave(runtime: &Runtime, seed: u64) -> Outcome {
    const PAGES: u64 = 1 << 10;
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    runtime.attach(&SegmentOptions::tiered(PAGES << 12))?;
    let local = crate::scenarios::local(runtime)?;
    let word = |page: u64| -> Result<&AtomicU64, &str> {
        let address = local.address_of(page << 12).ok_or("no address")?.cast::<u64>();
        // SAFETY: the rule of this file.
        Ok(unsafe { AtomicU64::from_ptr(address) })
    };
    for (round, page_bytes) in [8 << 10, 64 << 10, 256 << 10].into_iter().enumerate() {
        // In an order in which neighbours are far from each other.
        let order = |index: u64| (index * 619 + seed) % (PAGES - 1) + 1;
        let value = |page: u64| page << 8 | round as u64;
        for page in (0..PAGES - 1).map(order) {
            word(page)?.store(value(page), Ordering::Release);
        }
        runtime.barrier()?;
        if me.0 == 0 {
            let own = runtime.attach(&SegmentOptions::tiered(2 << 20).page_size(page_bytes).independent())?;
            runtime.put(own.address(me, 0), &vec![7_u8; 2 << 20])?;
            let mut found = vec![0_u8; 2 << 20];
            runtime.get(own.address(me, 0), &mut found)?;
            if found.iter().any(|&byte| byte != 7) {
                return Err(format!("pages of {page_bytes} bytes are wrong").into());
            }
            for other in (1..ranks).map(Rank) {
                runtime.put_value(GlobalAddress::tiered(other, 0), round as u64 + 1)?;
            }
            own.detach()?;
        } else if me.0 % 2 == 0 {
            // Without a call, and on one page: nothing that it does itself gives the others back.
            while word(0)?.load(Ordering::Acquire) != round as u64 + 1 {
                std::hint::spin_loop();
            }
        } else if me.0 % 4 == 3 {
            // The same while it uses pages in all parts of the cache again and again.
            while word(0)?.load(Ordering::Acquire) != round as u64 + 1 {
                for page in (PAGES - 40..PAGES - 1).map(order) {
                    if word(page)?.load(Ordering::Acquire) != value(page) {
                        return Err(format!("page {page} is wrong while it is used").into());
                    }
                }
            }
        }
        runtime.barrier()?;
        for page in (0..PAGES - 1).map(order) {
            if word(page)?.load(Ordering::Acquire) != value(page) {
                return Err(format!("what a pointer has stored in page {page} is gone").into());
            }
        }
    }
    Ok(())
}
