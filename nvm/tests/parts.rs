//! Parts of pages: read by themselves they are what was written, and damage is found in the part that has it and in no
//! other.

mod common;

use common::{Bench, Outcome};
use std::ops::Range;
use vgas_nvm::device::faulty::{Fault, FaultyDevice, Script, When};
use vgas_nvm::device::memory::{Crash, MemoryDevice, MemoryDisk};
use vgas_nvm::{Volume, VolumeError};

const PAGE: usize = 64 << 10;
const BLOCK: usize = 4 << 10;

fn bench(disk: &MemoryDisk, script: &Script, checksums: bool) -> Bench {
    let device = FaultyDevice::new(Box::new(MemoryDevice::new(disk, 8).unwrap()), script);
    Bench::with(Volume::over(Box::new(device), PAGE as u32, checksums).unwrap())
}

/// What a page that was written as `stamp` holds in these bytes.
fn content(stamp: u64, bytes: Range<usize>) -> Vec<u8> {
    bytes
        .map(|at| (stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ (at as u64 / 8)) >> (at % 8 * 8)) as u8)
        .collect()
}

fn one(bench: &mut Bench, key: u64) -> Outcome {
    bench.finish().remove(&key).expect("the request was reported")
}

fn write(bench: &mut Bench, page: u64, stamp: u64) {
    let (key, span) = (bench.key(), bench.frames.span(0, PAGE));
    span.write(&content(stamp, 0..PAGE));
    bench.volume.write(0, page, span, key).unwrap();
    one(bench, key).unwrap();
}

fn read(bench: &mut Bench, page: u64) -> Outcome {
    let (key, span) = (bench.key(), bench.frames.span(PAGE, PAGE));
    bench.volume.read(0, page, span, key).unwrap();
    one(bench, key)
}

/// The bytes of some blocks, or `None` when they cannot be read by themselves.
fn part(bench: &mut Bench, page: u64, blocks: Range<usize>) -> Option<Result<Vec<u8>, Box<VolumeError>>> {
    let (key, span) = (bench.key(), bench.frames.span(3 * PAGE, blocks.len() * BLOCK));
    span.write(&vec![0xee; span.bytes()]);
    if !bench.volume.read_part(0, page, (blocks.start * BLOCK) as u32, span.clone(), key).unwrap() {
        assert_eq!(bench.volume.in_flight(), 0, "something was started");
        return None;
    }
    Some(one(bench, key).map(|()| {
        let mut bytes = vec![0; span.bytes()];
        span.read(&mut bytes);
        bytes
    }))
}

#[track_caller]
fn holds(bench: &mut Bench, page: u64, blocks: Range<usize>, stamp: u64) {
    let expected = content(stamp, blocks.start * BLOCK..blocks.end * BLOCK);
    assert!(part(bench, page, blocks.clone()).unwrap().unwrap() == expected, "blocks {blocks:?}");
}

#[test]
fn a_part_is_what_was_written_last() {
    let (disk, script) = (MemoryDisk::new(), Script::new());
    let mut bench = bench(&disk, &script, true);
    bench.volume.create_scratch(0, 10).unwrap();
    for stamp in [7, 8] {
        write(&mut bench, 3, stamp);
        for blocks in [0..1, 5..6, 15..16, 2..9, 0..16] {
            holds(&mut bench, 3, blocks, stamp);
        }
    }
    assert_eq!(script.counts().reads, 10);
    let key = bench.key();
    bench.volume.discard(0, 3, key).unwrap();
    one(&mut bench, key).unwrap();
    for page in [3, 4] {
        assert_eq!(part(&mut bench, page, 2..4).unwrap().unwrap(), vec![0; 2 * BLOCK]);
    }
    assert_eq!(script.counts().reads, 10, "zeros cost nothing");
}

/// The block that is damaged is named, by a read of the page, too; the others can be read.
#[test]
fn damage_is_found_in_its_block_alone() {
    let (disk, script) = (MemoryDisk::new(), Script::new());
    let mut bench = bench(&disk, &script, true);
    bench.volume.create_scratch(0, 10).unwrap();
    script.plan(When::Write(1), Fault::FlipBit(8 * (5 * BLOCK as u64 + 77)));
    write(&mut bench, 3, 1);
    for block in (0..16).filter(|&block| block != 5) {
        holds(&mut bench, 3, block..block + 1, 1);
    }
    for outcome in [
        part(&mut bench, 3, 5..6).unwrap().map(drop),
        part(&mut bench, 3, 2..9).unwrap().map(drop),
        read(&mut bench, 3),
    ] {
        match *outcome.unwrap_err() {
            VolumeError::Corrupt { segment: 0, page: 3, bytes, expected, found, .. } => {
                assert_eq!(bytes, 5 * BLOCK as u32..6 * BLOCK as u32);
                assert_ne!(expected, found);
            }
            error => panic!("{error}"),
        }
    }
    script.plan(When::Read(script.counts().reads + 1), Fault::Error(rustix::io::Errno::IO));
    assert!(matches!(*part(&mut bench, 3, 0..1).unwrap().unwrap_err(), VolumeError::Page { page: 3, .. }));
    write(&mut bench, 3, 2);
    holds(&mut bench, 3, 5..6, 2);
}

/// A torn write: the blocks that came are there, the others are found.
#[test]
fn a_torn_write_is_found_behind_the_tear() {
    let (disk, script) = (MemoryDisk::new(), Script::new());
    let mut bench = bench(&disk, &script, true);
    bench.volume.create_scratch(0, 10).unwrap();
    write(&mut bench, 0, 1);
    script.plan(When::Write(2), Fault::Torn(6 * BLOCK as u64));
    write(&mut bench, 0, 2);
    holds(&mut bench, 0, 0..6, 2);
    let torn = part(&mut bench, 0, 6..7).unwrap().unwrap_err();
    assert!(matches!(*torn, VolumeError::Corrupt { .. }), "{torn}");
}

/// The file of a named segment has checksums of pages only: a page has to be read once before its parts can be.
#[test]
fn a_reopened_page_is_read_whole_once() {
    let (disk, script) = (MemoryDisk::new(), Script::new());
    let mut before = bench(&disk, &script, true);
    before.volume.create_or_open_named(0, "data", 10).unwrap();
    for stamp in [1, 2, 3] {
        write(&mut before, 4, stamp);
        let key = before.key();
        before.volume.flush(0, key).unwrap();
        one(&mut before, key).unwrap();
        holds(&mut before, 4, 9..11, stamp);
    }
    drop(before);
    disk.crash(Crash::LoseUnsynced);
    let mut bench = bench(&disk, &script, true);
    bench.volume.create_or_open_named(0, "data", 10).unwrap();
    assert!(part(&mut bench, 4, 9..11).is_none());
    assert_eq!(part(&mut bench, 5, 9..11).unwrap().unwrap(), vec![0; 2 * BLOCK], "zeros need no checksum");
    read(&mut bench, 4).unwrap();
    holds(&mut bench, 4, 9..11, 3);
}

/// A part that is read while its page is written is of before, of after, or refused; never anything else.
#[test]
fn a_part_beside_a_write_is_old_or_new_or_refused() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..200 {
        let disk = MemoryDisk::new();
        let device = MemoryDevice::disordered(&disk, 8, seed).unwrap();
        let mut bench = Bench::with(Volume::over(Box::new(device), PAGE as u32, true).unwrap());
        bench.volume.create_scratch(0, 10).unwrap();
        write(&mut bench, 1, 1);
        let (from, into) = (bench.frames.span(0, PAGE), bench.frames.span(PAGE, BLOCK));
        from.write(&content(2, 0..PAGE));
        assert!(bench.volume.read_part(0, 1, 8 << 10, into.clone(), 1).unwrap());
        bench.volume.write(0, 1, from, 2).unwrap();
        let mut done = bench.finish();
        done.remove(&2).unwrap().unwrap();
        let mut bytes = vec![0; BLOCK];
        into.read(&mut bytes);
        match done.remove(&1).unwrap() {
            Ok(()) if bytes == content(1, 2 * BLOCK..3 * BLOCK) => old += 1,
            Err(error) if matches!(*error, VolumeError::Corrupt { .. }) => new += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
        holds(&mut bench, 1, 2..3, 2);
    }
    assert!(old > 0 && new > 0, "{old} before, {new} after the write");
}

#[test]
fn without_checksums_parts_are_read_unchecked() {
    let (disk, script) = (MemoryDisk::new(), Script::new());
    let mut bench = bench(&disk, &script, false);
    bench.volume.create_scratch(0, 10).unwrap();
    script.plan(When::Write(1), Fault::FlipBit(0));
    write(&mut bench, 3, 1);
    holds(&mut bench, 3, 5..6, 1);
    part(&mut bench, 3, 0..1).unwrap().unwrap();
}

#[test]
fn wrong_use_is_refused_and_starts_nothing() {
    let (disk, script) = (MemoryDisk::new(), Script::new());
    let mut bench = bench(&disk, &script, true);
    bench.volume.create_scratch(0, 10).unwrap();
    write(&mut bench, 9, 1);
    let span = |at: usize, bytes: usize| bench.frames.span(at, bytes);
    for (segment, page, from, into) in [
        (1, 0, 0, span(0, BLOCK)),
        (0, 10, 0, span(0, BLOCK)),
        (0, 9, 512, span(0, BLOCK)),
        (0, 9, 0, span(0, 512)),
        (0, 9, 0, span(512, BLOCK)),
        (0, 9, 0, span(0, 0)),
        (0, 9, PAGE as u32, span(0, BLOCK)),
        (0, 9, u32::MAX - 4095, span(0, BLOCK)),
        (0, 9, 15 * BLOCK as u32, span(0, 2 * BLOCK)),
    ] {
        let refused = bench.volume.read_part(segment, page, from, into, 1);
        assert!(matches!(refused, Err(VolumeError::Usage(_))), "{segment} {page} {from}: {refused:?}");
    }
    assert_eq!(bench.volume.in_flight(), 0);
}
