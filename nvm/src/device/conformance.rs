//! The promises of [`super`], tested over any device. A new device is done when this passes.
//!
//! `cargo test -p vgas-nvm --test devices` runs it over all of them.

#![allow(clippy::print_stderr)] // Of a test.

use super::{Completion, Device, FileId, Kind, Naming, Operation, Spans, Submitted, wait};
use crate::error::{DeviceError, FileError};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vgas_shm::{Mapping, Span};

const BLOCK: usize = 4096;
/// A device that has not answered by then is taken for broken.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs every test, each on a device of its own over the same, initially empty, storage.
///
/// # Panics
/// If the device breaks a promise; the message names it.
pub fn check(mut open: impl FnMut() -> Box<dyn Device>) {
    for test in [
        whole_and_once,
        runs_scatter_and_gather,
        holes_read_as_zeros,
        errors_are_completions,
        reading_beyond_the_end_is_short,
        busy_is_an_answer,
        names,
        dropped_in_flight,
    ] {
        test(&mut open);
    }
}

type Open<'a> = &'a mut dyn FnMut() -> Box<dyn Device>;

fn memory(blocks: usize) -> Arc<Mapping> {
    Mapping::anonymous("conformance", (blocks * BLOCK) as u64).expect("test memory")
}

fn operation(key: u64, file: FileId, kind: Kind, offset: u64, spans: impl Into<Spans>) -> Operation {
    Operation { key, file, kind, offset, spans: spans.into() }
}

fn fill(span: &Span, seed: u64) {
    let bytes: Vec<u8> = (0..span.bytes() as u64).map(|at| (at * 31 + seed * 131 + at / 251) as u8).collect();
    span.write(&bytes);
}

fn content(span: &Span) -> Vec<u8> {
    let mut bytes = vec![0; span.bytes()];
    span.read(&mut bytes);
    bytes
}

fn accept(device: &mut dyn Device, operation: Operation) {
    assert!(
        matches!(device.submit(operation), Submitted::Accepted),
        "{}: busy below its capacity",
        device.name()
    );
}

/// Waits for the completion of everything in flight, asleep in between.
fn finish(device: &mut dyn Device) -> Vec<Completion> {
    let (mut completions, start) = (Vec::new(), Instant::now());
    let expected = device.in_flight();
    while completions.len() < expected {
        let count = device.poll(&mut completions).expect("poll");
        assert_eq!(device.in_flight() + completions.len(), expected, "in_flight counts what was not taken");
        if count == 0 {
            wait(device, 100).expect("wait");
        }
        assert!(start.elapsed() < TIMEOUT, "{}: no completion", device.name());
    }
    assert_eq!(device.poll(&mut completions), Ok(0), "nothing completes twice");
    completions
}

fn one(device: &mut dyn Device, operation: Operation) -> Result<u64, DeviceError> {
    accept(device, operation);
    finish(device).pop().expect("one completion").result
}

/// Many writes, then many reads: each completes once with its own key and memory, and the bytes are right.
fn whole_and_once(open: Open<'_>) {
    let mut device = open();
    let count = device.capacity().min(16) as u64;
    let file = device.create(64 * BLOCK as u64, Naming::Never).expect("create");
    let memory = memory(2 * count as usize);
    let span = |index: u64| memory.span(index as usize * BLOCK, BLOCK);
    for (base, kind) in [(0, Kind::Write), (count, Kind::Read)] {
        for index in 0..count {
            if kind == Kind::Write {
                fill(&span(index), index);
            }
            accept(
                &mut *device,
                operation(100 + index, file, kind, index * 3 * BLOCK as u64, span(base + index)),
            );
        }
        let mut keys = HashSet::new();
        for Completion { key, spans, result } in finish(&mut *device) {
            assert_eq!(result, Ok(BLOCK as u64));
            assert!(keys.insert(key), "key {key} completed twice");
            assert_eq!(
                spans.as_slice()[0].offset() as u64,
                (base + key - 100) * BLOCK as u64,
                "its own memory"
            );
        }
        assert_eq!(keys.len() as u64, count);
    }
    for index in 0..count {
        assert!(content(&span(index)) == content(&span(count + index)), "block {index} differs");
    }
}

/// One operation over several pieces of memory moves neighbouring bytes of the file.
fn runs_scatter_and_gather(open: Open<'_>) {
    let mut device = open();
    let file = device.create(16 * BLOCK as u64, Naming::Never).expect("create");
    let memory = memory(16);
    let pieces = device.limits().spans_max.min(4);
    let from = memory.span(0, pieces * BLOCK);
    fill(&from, 5);
    assert_eq!(
        one(&mut *device, operation(1, file, Kind::Write, BLOCK as u64, from.clone())),
        Ok(from.bytes() as u64)
    );
    let into: Spans = (0..pieces).rev().map(|piece| memory.span((8 + piece) * BLOCK, BLOCK)).collect();
    assert_eq!(
        one(&mut *device, operation(2, file, Kind::Read, BLOCK as u64, into.clone())),
        Ok(from.bytes() as u64)
    );
    let found: Vec<u8> = into.as_slice().iter().flat_map(content).collect();
    assert!(found == content(&from), "scattered bytes differ");
    assert_eq!(
        one(&mut *device, operation(3, file, Kind::Write, 8 * BLOCK as u64, into)),
        Ok(from.bytes() as u64)
    );
    let again = memory.span(0, pieces * BLOCK);
    assert_eq!(
        one(&mut *device, operation(4, file, Kind::Read, 8 * BLOCK as u64, again.clone())),
        Ok(from.bytes() as u64)
    );
    assert!(content(&again) == found, "gathered bytes differ");
}

fn holes_read_as_zeros(open: Open<'_>) {
    let mut device = open();
    let file = device.create(8 * BLOCK as u64, Naming::Never).expect("create");
    let memory = memory(2);
    let (from, into) = (memory.span(0, BLOCK), memory.span(BLOCK, BLOCK));
    fill(&from, 1);
    fill(&into, 2);
    assert_eq!(one(&mut *device, operation(1, file, Kind::Read, 0, into.clone())), Ok(BLOCK as u64));
    assert!(content(&into).iter().all(|&byte| byte == 0), "a hole is not zero");
    assert_eq!(one(&mut *device, operation(2, file, Kind::Write, 0, from)), Ok(BLOCK as u64));
    assert_eq!(one(&mut *device, operation(3, file, Kind::SyncData, 0, Spans::None)), Ok(0));
    match one(&mut *device, operation(4, file, Kind::PunchHole { bytes: BLOCK as u64 }, 0, Spans::None)) {
        Err(error) if error == DeviceError::of(rustix::io::Errno::OPNOTSUPP, 0) => {
            eprintln!("skipped on {}: its filesystem has no holes", device.name());
        }
        punched => {
            punched.expect("punch");
            fill(&into, 2);
            assert_eq!(one(&mut *device, operation(5, file, Kind::Read, 0, into.clone())), Ok(BLOCK as u64));
            assert!(content(&into).iter().all(|&byte| byte == 0), "a punched hole is not zero");
        }
    }
    assert_eq!(device.file_bytes(file).expect("size"), 8 * BLOCK as u64, "a hole keeps the size");
}

fn errors_are_completions(open: Open<'_>) {
    let mut device = open();
    let memory = memory(2);
    let unknown = operation(9, FileId(77), Kind::Read, 0, memory.span(0, BLOCK));
    assert_eq!(one(&mut *device, unknown), Err(DeviceError::Closed));
    let alignment = device.limits().alignment;
    if alignment > 1 {
        let file = device.create(8 * BLOCK as u64, Naming::Never).expect("create");
        for (offset, start, bytes) in [(1, 0, BLOCK), (0, 1, BLOCK), (0, 0, BLOCK - 1)] {
            let crooked = operation(9, file, Kind::Write, offset, memory.span(start, bytes));
            assert_eq!(one(&mut *device, crooked), Err(DeviceError::Misaligned { alignment }));
        }
    } else {
        eprintln!("skipped on {}: nothing is misaligned", device.name());
    }
    let file = device.create(BLOCK as u64, Naming::Never).expect("create");
    device.close(file);
    let closed = operation(9, file, Kind::Read, 0, memory.span(0, BLOCK));
    assert_eq!(one(&mut *device, closed), Err(DeviceError::Closed));
}

fn reading_beyond_the_end_is_short(open: Open<'_>) {
    let mut device = open();
    let file = device.create(BLOCK as u64, Naming::Never).expect("create");
    let memory = memory(2);
    let short = |bytes_done| Err(DeviceError::Short { bytes_done, bytes_asked: 2 * BLOCK as u64 });
    let half = operation(1, file, Kind::Read, 0, memory.span(0, 2 * BLOCK));
    assert_eq!(one(&mut *device, half), short(BLOCK as u64));
    let beyond = operation(2, file, Kind::Read, 4 * BLOCK as u64, memory.span(0, 2 * BLOCK));
    assert_eq!(one(&mut *device, beyond), short(0));
}

fn busy_is_an_answer(open: Open<'_>) {
    let mut device = open();
    let capacity = device.capacity();
    let file = device.create((capacity + 1) as u64 * BLOCK as u64, Naming::Never).expect("create");
    let memory = memory(1);
    for key in 0..capacity as u64 {
        accept(&mut *device, operation(key, file, Kind::Write, key * BLOCK as u64, memory.span(0, BLOCK)));
    }
    match device.submit(operation(4711, file, Kind::Write, 0, memory.span(0, BLOCK))) {
        Submitted::Busy(returned) => assert_eq!(returned.key, 4711),
        Submitted::Accepted => panic!("{} took more than its capacity", device.name()),
    }
    assert_eq!(finish(&mut *device).len(), capacity);
    assert_eq!(
        one(&mut *device, operation(4711, file, Kind::Write, 0, memory.span(0, BLOCK))),
        Ok(BLOCK as u64)
    );
}

/// Created, published, refused twice, closed, opened again, with the same bytes.
fn names(open: Open<'_>) {
    const NAME: &str = "conformance.0.vgas";
    let memory = memory(2);
    let (from, into) = (memory.span(0, BLOCK), memory.span(BLOCK, BLOCK));
    fill(&from, 3);
    {
        let mut device = open();
        assert_eq!(device.open(NAME).expect("open"), None, "the storage is empty at first");
        let file = device.create(4 * BLOCK as u64, Naming::Later).expect("create");
        assert_eq!(one(&mut *device, operation(1, file, Kind::Write, 0, from.clone())), Ok(BLOCK as u64));
        assert_eq!(one(&mut *device, operation(2, file, Kind::SyncData, 0, Spans::None)), Ok(0));
        device.publish(file, NAME).expect("publish");
        assert!(device.describe(file).contains(NAME), "messages name the file");
        let other = device.create(4 * BLOCK as u64, Naming::Later).expect("create");
        assert!(matches!(device.publish(other, NAME), Err(FileError::Exists { .. })), "a name is given once");
        assert!(matches!(open().open(NAME), Err(FileError::InUse { .. })), "an open file is locked");
        device.close(file);
    }
    let mut device = open();
    let file = device.open(NAME).expect("open").expect("it exists");
    assert_eq!(device.file_bytes(file).expect("size"), 4 * BLOCK as u64);
    assert_eq!(one(&mut *device, operation(3, file, Kind::Read, 0, into.clone())), Ok(BLOCK as u64));
    assert!(content(&into) == content(&from), "the bytes are still there");
}

/// A device dropped with operations in flight lets go of their memory only when the kernel has.
fn dropped_in_flight(open: Open<'_>) {
    let mut device = open();
    let file = device.create(64 * BLOCK as u64, Naming::Never).expect("create");
    let memory = memory(8);
    for key in 0..device.capacity().min(8) as u64 {
        let span = memory.span(key as usize * BLOCK, BLOCK);
        accept(&mut *device, operation(key, file, Kind::Write, key * BLOCK as u64, span));
    }
    device.flush_submissions().expect("submit");
    drop(device);
    assert_eq!(Arc::strong_count(&memory), 1, "the memory is free after the drop");
}
