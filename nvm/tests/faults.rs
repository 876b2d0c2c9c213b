//! Bad luck with a device that goes on: each fault ends in an error that names it, and what was flushed stays.

mod common;

use common::{Bench, PAGE, page};
use rustix::io::Errno;
use vgas_nvm::device::faulty::{Fault, FaultyDevice, Script, When};
use vgas_nvm::device::memory::{Crash, MemoryDevice, MemoryDisk};
use vgas_nvm::{DeviceError, PageOperation, VolumeError};

fn bench(disk: &MemoryDisk, script: &Script) -> Bench {
    let device = Box::new(MemoryDevice::new(disk, 8).unwrap());
    Bench::over(Box::new(FaultyDevice::new(device, script)))
}

fn reopen(disk: &MemoryDisk) -> Bench {
    disk.crash(Crash::LoseUnsynced);
    bench(disk, &Script::new())
}

#[test]
fn an_io_error_names_file_segment_page_and_bytes() {
    let (disk, script) = (MemoryDisk::new(), Script::new());
    let mut bench = bench(&disk, &script);
    bench.volume.create_or_open_named(3, "data", 100).unwrap();
    bench.write(3, 9, 1).unwrap();
    script.plan(When::Read(1), Fault::Error(Errno::IO));
    script.plan(When::Read(2), Fault::ShortTransfer(2048));
    let error = bench.read(3, 9).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read page 9 of segment 3 in data.3.vgas: Input/output error (os error 5) (0 bytes done); check the \
         device (dmesg)"
    );
    let short = DeviceError::Short { bytes_done: 2048, bytes_asked: PAGE as u64 };
    match *bench.read(3, 9).unwrap_err() {
        VolumeError::Page { page: 9, operation: PageOperation::Read, source, .. } => {
            assert_eq!(source, short)
        }
        error => panic!("{error}"),
    }
    assert_eq!(bench.read(3, 9).unwrap(), 1, "a later attempt succeeds");
}

/// A torn write that the device reports as done, and single bits that change on the way in, on the way out and on the
/// medium: the checksum finds each, and says which page.
#[test]
fn what_is_not_what_was_written_is_found() {
    for (when, fault) in [
        (When::Write(1), Fault::Torn(1024)),
        (When::Write(1), Fault::FlipBit(5)),
        (When::Read(1), Fault::FlipBit(8 * PAGE as u64 - 1)),
    ] {
        let (disk, script) = (MemoryDisk::new(), Script::new());
        let mut bench = bench(&disk, &script);
        bench.volume.create_scratch(0, 100).unwrap();
        script.plan(when, fault);
        bench.write(0, 4, 8).unwrap();
        match *bench.read(0, 4).unwrap_err() {
            VolumeError::Corrupt { segment: 0, page: 4, expected, found, .. } => assert_ne!(expected, found),
            error => panic!("{error}"),
        }
        bench.write(0, 4, 9).unwrap();
        assert_eq!(bench.read(0, 4).unwrap(), 9, "writing the page heals it");
    }
}

#[test]
fn without_checksums_a_failed_write_in_place_is_remembered() {
    let (disk, script) = (MemoryDisk::new(), Script::new());
    let device = Box::new(FaultyDevice::new(Box::new(MemoryDevice::new(&disk, 8).unwrap()), &script));
    let mut bench = Bench::with(vgas_nvm::Volume::over(device, PAGE as u32, false).unwrap());
    bench.volume.create_scratch(0, 10).unwrap();
    bench.write(0, 1, 5).unwrap();
    script.plan(When::Write(2), Fault::ShortTransfer(512));
    script.plan(When::Write(3), Fault::Error(Errno::IO));
    bench.write(0, 1, 6).unwrap_err();
    assert!(matches!(*bench.read(0, 1).unwrap_err(), VolumeError::Lost { page: 1, .. }));
    // A first write that fails leaves the zeros.
    bench.write(0, 2, 6).unwrap_err();
    assert_eq!(bench.read(0, 2).unwrap(), 0);
}

/// A full disk: the write fails and says what to do; what was there before is still there, flushed data included.
#[test]
fn a_full_disk_harms_nothing_that_is_stored() {
    let disk = MemoryDisk::new();
    let mut bench = bench(&disk, &Script::new());
    bench.volume.create_or_open_named(0, "data", 100).unwrap();
    for index in 0..10 {
        bench.write(0, index, 100 + index).unwrap();
    }
    bench.flush(0).unwrap();
    disk.limit_space(disk.used_bytes() + 3 * PAGE as u64);
    let results: Vec<_> = (0..10).map(|index| bench.write(0, index, 200 + index)).collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 3);
    let error = results[9].as_ref().unwrap_err();
    assert!(matches!(**error, VolumeError::NoSpace { .. } if error.to_string().contains("free space")));
    for index in 0..10 {
        let expected = if index < 3 { 200 + index } else { 100 + index };
        assert_eq!(bench.read(0, index).unwrap(), expected);
    }
    // No room for the page map either: the flush fails, is said to be a matter of space, and works when there is some.
    let error = bench.flush(0).unwrap_err();
    assert!(matches!(*error, VolumeError::NoSpace { operation: PageOperation::Flush, .. }), "{error}");
    assert_eq!(bench.write(0, 0, 300).map_err(|error| error.to_string()), Ok(()), "writing goes on");
    let crashed = disk.fork();
    disk.limit_space(u64::MAX);
    bench.flush(0).unwrap();
    for (disk, expected) in [(crashed, [100, 101, 105]), (disk, [300, 201, 105])] {
        let mut bench = reopen(&disk);
        bench.volume.create_or_open_named(0, "data", 100).unwrap();
        for (index, expected) in [0, 1, 5].into_iter().zip(expected) {
            assert_eq!(bench.read(0, index).unwrap(), expected);
        }
    }
}

/// A sync that fails may have lost any write, and trying again would report success all the same. So the segment stops
/// taking writes, can still be read, and the last complete flush stays in the file.
#[test]
fn a_failed_sync_is_never_papered_over() {
    // Sync 1 is the file's creation; 2 to 4 belong to the first flush, 5 to 7 to the second, which is complete before 7.
    for (failing, found) in [(5, 1), (6, 1), (7, 2)] {
        let (disk, script) = (MemoryDisk::new(), Script::new());
        let mut bench = bench(&disk, &script);
        bench.volume.create_or_open_named(0, "data", 100).unwrap();
        bench.write(0, 1, 1).unwrap();
        bench.flush(0).unwrap();
        bench.write(0, 1, 2).unwrap();
        script.plan(When::Sync(failing), Fault::Error(Errno::IO));
        // Requests that wait for the flush are answered, not forgotten.
        let (flush, later, write) = (bench.key(), bench.key(), bench.key());
        bench.volume.flush(0, flush).unwrap();
        bench.volume.flush(0, later).unwrap();
        let span = bench.span(0);
        span.write(&page(3));
        bench.volume.write(0, 1, span, write).unwrap();
        let done = bench.finish();
        let error = done[&flush].as_ref().unwrap_err();
        assert!(matches!(**error, VolumeError::Flush { .. }), "{error}");
        for key in [later, write] {
            let error = done[&key].as_ref().unwrap_err();
            assert!(matches!(**error, VolumeError::WritesStopped { .. }), "{error}");
        }
        assert_eq!(bench.read(0, 1).unwrap(), 2, "reading goes on");
        drop(bench);
        let mut bench = reopen(&disk);
        bench.volume.create_or_open_named(0, "data", 100).unwrap();
        assert_eq!(bench.read(0, 1).unwrap(), found);
    }
}

/// Random EIO and short transfers under random work: every request is answered, and a page holds the last write that
/// succeeded, or says that it is corrupt after one that did not.
#[test]
fn random_faults_are_all_reported() {
    for seed in 0..40 {
        let (disk, script) = (MemoryDisk::new(), Script::new());
        let inner = Box::new(MemoryDevice::disordered(&disk, 5, seed).unwrap());
        let mut bench = Bench::over(Box::new(FaultyDevice::new(inner, &script)));
        bench.volume.create_scratch(0, 40).unwrap();
        script.random(seed, 150);
        let (mut expected, mut failed) = ([0u64; 40], 0);
        for step in 1..=200u64 {
            let index = step * 7919 % 40;
            match (step % 3, expected[index as usize]) {
                (0, before) => match bench.read(0, index) {
                    Ok(stamp) => assert_eq!(stamp, before, "seed {seed}"),
                    Err(error) => {
                        failed += 1;
                        let torn = matches!(*error, VolumeError::Corrupt { .. });
                        assert!(!torn || before == u64::MAX, "seed {seed}: {error}");
                    }
                },
                (_, before) => match bench.write(0, index, step) {
                    Ok(()) => expected[index as usize] = step,
                    // Nothing was moved, or the page does not match its checksum; the stamp is not legal any more
                    // unless it is still whole, so write it again until it is known.
                    Err(_) => {
                        failed += 1;
                        let mut again = 0;
                        while bench.write(0, index, before.max(1)).is_err() {
                            again += 1;
                            assert!(again < 100);
                        }
                        expected[index as usize] = before.max(1);
                    }
                },
            }
        }
        assert!(failed > 5, "seed {seed}: the script did nothing");
    }
}

/// The system's reason is kept, whatever was being done, and only a full disk or quota is a matter of space.
#[test]
fn every_write_error_keeps_its_cause() {
    for errno in [Errno::IO, Errno::ROFS, Errno::NOSPC, Errno::CANCELED, Errno::DQUOT, Errno::FBIG] {
        let is_space = matches!(errno, Errno::NOSPC | Errno::DQUOT);
        let check = |error: &VolumeError| {
            assert_eq!(error.errno(), Some(errno), "{error}");
            assert_eq!(matches!(error, VolumeError::NoSpace { .. }), is_space, "{error}");
            assert_eq!(error.to_string().contains("free space"), is_space, "{error}");
        };
        let (disk, script) = (MemoryDisk::new(), Script::new());
        let mut bench = bench(&disk, &script);
        bench.volume.create_or_open_named(0, "data", 100).unwrap();
        // The superblock was the first write.
        script.plan(When::Write(2), Fault::Error(errno));
        check(&bench.write(0, 1, 1).unwrap_err());
        bench.write(0, 1, 1).unwrap();
        script.plan(When::Write(4), Fault::Error(errno));
        check(&bench.flush(0).unwrap_err());
        // In the superblock's place: nothing is certain any more, and everybody is told why.
        script.plan(When::Write(6), Fault::Error(errno));
        let error = bench.flush(0).unwrap_err();
        assert_eq!(error.errno(), Some(errno), "{error}");
        let error = bench.write(0, 2, 1).unwrap_err();
        assert!(
            matches!(*error, VolumeError::WritesStopped { .. }) && error.errno() == Some(errno),
            "{error}"
        );
    }
}

/// A file that has to be settled at opening, on a disk that takes no writes, is read all the same.
#[test]
fn a_disk_that_takes_no_writes_can_be_read() {
    for errno in [Errno::ROFS, Errno::NOSPC] {
        let (disk, script) = (MemoryDisk::new(), Script::new());
        let mut bench = bench(&disk, &script);
        bench.volume.create_or_open_named(0, "data", 100).unwrap();
        bench.write(0, 1, 7).unwrap();
        bench.prepare(0, 3).unwrap();
        drop(bench);
        disk.crash(Crash::LoseUnsynced);
        let script = Script::new();
        script.plan(When::Write(1), Fault::Error(errno));
        let mut bench = self::bench(&disk, &script);
        let report = bench.volume.create_or_open_named(0, "data", 100).unwrap();
        assert_eq!(report.read_only.and_then(|refused| refused.errno()), Some(errno));
        assert_eq!(bench.read(0, 1).unwrap(), 7);
        for error in
            [bench.write(0, 1, 8).unwrap_err(), bench.flush(0).unwrap_err(), bench.prepare(0, 4).unwrap_err()]
        {
            assert!(
                matches!(*error, VolumeError::ReadOnly { .. }) && error.errno() == Some(errno),
                "{error}"
            );
        }
        bench.conclude(0, false).unwrap();
        assert_eq!(bench.read(0, 1).unwrap(), 7);
    }
}
