//! What the agent relies on: pages come back as written, zeros are free, nothing is lost when the device is full, runs
//! fail page by page, checkpoints include what was written before them and nothing else.

mod common;

use common::{Bench, PAGE, page, stamp};
use std::collections::HashSet;
use std::path::Path;
use vgas_nvm::device::faulty::{Fault, FaultyDevice, Script, When};
use vgas_nvm::device::memory::{Crash, MemoryDevice, MemoryDisk};
use vgas_nvm::{
    CheckpointId, DeviceChoice, Extent, FileState, NamedFile, Opened, Unusable, Volume, VolumeError,
    VolumeSpec,
};

fn memory(disk: &MemoryDisk, capacity: usize) -> Bench {
    Bench::over(Box::new(MemoryDevice::new(disk, capacity).unwrap()))
}

fn faulty(disk: &MemoryDisk, script: &Script) -> Bench {
    let device = Box::new(MemoryDevice::new(disk, 8).unwrap());
    Bench::over(Box::new(FaultyDevice::new(device, script)))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn data(checkpoint: Option<CheckpointId>) -> NamedFile<'static> {
    NamedFile { name: "data", number: 2, checkpoint }
}

fn on_disk(directory: &Path, device: DeviceChoice) -> Bench {
    Bench::with(Volume::open(VolumeSpec { device, ..VolumeSpec::new(directory, PAGE as u32) }).unwrap())
}

/// Goal: a folder that may never be needed is not looked at before the first segment, whose error it then is.
#[test]
fn a_folder_on_demand_is_opened_by_the_first_segment() {
    let folder = folder();
    let missing = folder.path().join("missing");
    let spec = VolumeSpec { on_demand: true, ..VolumeSpec::new(&missing, PAGE as u32) };
    let mut bench = Bench::with(Volume::open(spec).unwrap());
    assert!(bench.finish().is_empty());
    let refused = bench.volume.create_scratch(0, 4).unwrap_err().to_string();
    assert!(refused.contains("missing"), "{refused}");
    std::fs::create_dir(&missing).unwrap();
    bench.volume.create_scratch(0, 4).unwrap();
    bench.write(0, 3, 7).unwrap();
    assert_eq!(bench.read(0, 3).unwrap(), 7);
}

#[test]
fn pages_never_written_are_zeros_and_cost_nothing() {
    let (disk, script) = (MemoryDisk::new(), Script::new());
    let mut bench = faulty(&disk, &script);
    bench.volume.create_scratch(0, 1 << 33).unwrap();
    for index in [0, 1, 511, 512, (1 << 33) - 1] {
        assert_eq!(bench.read(0, index).unwrap(), 0);
        assert!(!bench.volume.is_written(0, index));
    }
    assert_eq!(script.counts().operations, 0, "the device was asked");
    bench.write(0, (1 << 33) - 1, 7).unwrap();
    assert!(bench.volume.is_written(0, (1 << 33) - 1));
    assert_eq!(bench.read(0, (1 << 33) - 1).unwrap(), 7);
    assert_eq!(disk.used_bytes(), PAGE as u64);
}

/// Far more requests than the device takes at once, completing late and out of order.
#[test]
fn a_full_device_loses_nothing() {
    for seed in 0..20 {
        let disk = MemoryDisk::new();
        let mut bench = Bench::over(Box::new(MemoryDevice::disordered(&disk, 3, seed).unwrap()));
        bench.volume.create_scratch(4, 100).unwrap();
        for index in 0..30 {
            bench.span(index).write(&page(100 + index));
            let (span, key) = (bench.span(index), 1000 + index);
            bench.volume.write(4, index * 3, span, key).unwrap();
        }
        let done = bench.finish();
        assert_eq!(done.keys().copied().collect::<Vec<_>>(), (1000..1030).collect::<Vec<_>>());
        assert!(done.values().all(Result::is_ok));
        for index in 0..30 {
            let span = bench.span(30 + index);
            bench.volume.read(4, index * 3, span, 2000 + index).unwrap();
        }
        assert_eq!(bench.finish().len(), 30);
        for index in 0..30 {
            assert_eq!(stamp(&bench.span(30 + index)), 100 + index);
        }
    }
}

/// Goal: segments of one volume have pages of sizes of their own, each read and written, in runs too, as it was written; a
/// named one is found again under its own number, with its size, and not with another.
#[test]
fn segments_have_pages_of_their_own_size() {
    let folder = folder();
    let large = 4 * PAGE;
    let extent = |page_bytes: usize| Extent { pages: 10, page_bytes: Some(page_bytes as u32) };
    let file = NamedFile { name: "large", number: 3, checkpoint: None };
    let mut bench = on_disk(folder.path(), DeviceChoice::Blocking);
    bench.volume.create_scratch(0, 10).unwrap();
    bench.volume.create_scratch(1, extent(large)).unwrap();
    bench.volume.open_named(70_003, file, extent(large)).unwrap();
    assert!(bench.volume.create_scratch(2, extent(PAGE / 2)).is_err());
    for segment in [1, 70_003] {
        // Two neighbours of the large size, beside one of the small.
        let spans = [0, 1].map(|at| bench.frames.span(at * large, large));
        spans.iter().zip(1..).for_each(|(span, stamp)| span.write(&page(stamp).repeat(4)));
        let run = spans.clone().into_iter().zip([501, 502]);
        bench.volume.write_run(segment, 4, run).unwrap();
        assert!(bench.write(0, 4, 9).is_ok());
        assert!(bench.finish().into_values().all(|outcome| outcome.is_ok()));
        assert!(bench.volume.write(segment, 0, bench.span(0), 1).is_err(), "a span of the other size");
        spans.iter().for_each(|span| span.write(&vec![0xee; large]));
        let run = spans.clone().into_iter().zip([503, 504]);
        bench.volume.read_run(segment, 4, run).unwrap();
        assert_eq!(bench.read(0, 4).unwrap(), 9);
        assert!(bench.finish().into_values().all(|outcome| outcome.is_ok()));
        for (span, stamp) in spans.iter().zip(1..) {
            let mut bytes = vec![0; large];
            span.read(&mut bytes);
            assert!(bytes == page(stamp).repeat(4), "page {stamp} of segment {segment}");
        }
    }
    bench.flush(70_003).unwrap();
    drop(bench);
    let mut bench = on_disk(folder.path(), DeviceChoice::Blocking);
    let wrong = bench.volume.open_named(5, file, extent(2 * PAGE)).unwrap_err();
    let expected = Unusable::PageBytes { found: large as u32, expected: 2 * PAGE as u32 };
    assert!(matches!(wrong, VolumeError::Unusable { reason, .. } if reason == expected));
    let report = bench.volume.open_named(5, file, extent(large)).unwrap();
    assert_eq!(report.opened, Opened::Reopened { generation: 1 });
    assert!(bench.volume.is_written(5, 5) && !bench.volume.is_written(5, 6));
}

/// One poll takes a bounded number of checksums; the volume does not go to sleep on the rest.
#[test]
fn a_poll_is_bounded_and_sleep_waits_for_the_rest() {
    let disk = MemoryDisk::new();
    let mut bench = memory(&disk, 64);
    bench.volume.create_scratch(0, 64).unwrap();
    for index in 0..60 {
        let span = bench.span(index);
        bench.volume.write(0, index, span, index).unwrap();
    }
    let mut done = Vec::new();
    let first = bench.volume.poll(&mut done).unwrap();
    assert!((1..60).contains(&first), "one poll handed out {first}");
    assert!(!bench.volume.arm(), "there is more to do");
    assert_eq!(bench.finish().len() + first, 60);
    assert!(bench.volume.arm(), "there is nothing to do");
    bench.volume.disarm();
}

/// Neighbours travel together, holes between them cost nothing, and one bad page fails alone.
#[test]
fn a_run_is_one_operation_and_fails_page_by_page() {
    let (disk, script) = (MemoryDisk::new(), Script::new());
    let mut bench = faulty(&disk, &script);
    bench.volume.create_scratch(0, 64).unwrap();
    let spans: Vec<_> = (0..8).map(|frame| (bench.span(frame), frame)).collect();
    for (span, frame) in &spans {
        span.write(&page(50 + frame));
    }
    bench.volume.write_run(0, 10, spans.iter().cloned()).unwrap();
    assert!(bench.finish().values().all(Result::is_ok));
    assert_eq!(script.counts().writes, 1);

    let into = |bench: &Bench| (0..12).map(|frame| (bench.span(20 + frame), frame)).collect::<Vec<_>>();
    let run = into(&bench);
    bench.volume.read_run(0, 8, run).unwrap();
    assert!(bench.finish().values().all(Result::is_ok));
    assert_eq!(script.counts().reads, 1);
    for page in 8..20 {
        let expected = if (10..18).contains(&page) { 40 + page } else { 0 };
        assert_eq!(stamp(&bench.span(20 + page - 8)), expected, "page {page}");
    }

    // The run fails, and then the third of the pages alone.
    script.plan(When::Read(2), Fault::Error(rustix::io::Errno::IO));
    script.plan(When::Read(5), Fault::Error(rustix::io::Errno::IO));
    let run = into(&bench);
    bench.volume.read_run(0, 8, run).unwrap();
    let done = bench.finish();
    let failed: Vec<_> = done.iter().filter(|(_, result)| result.is_err()).collect();
    assert_eq!(failed.len(), 1);
    let (&key, error) = failed[0];
    assert_eq!(key, 4);
    assert!(matches!(**error.as_ref().unwrap_err(), VolumeError::Page { segment: 0, page: 12, .. }));
}

#[test]
fn wrong_use_is_refused_and_starts_nothing() {
    let disk = MemoryDisk::new();
    let mut bench = memory(&disk, 8);
    bench.volume.create_scratch(1, 10).unwrap();
    let span = bench.span(0);
    let usage =
        |result: Result<(), VolumeError>| assert!(matches!(result, Err(VolumeError::Usage(_))), "{result:?}");
    usage(bench.volume.read(2, 0, span.clone(), 1));
    usage(bench.volume.read(1, 10, span.clone(), 1));
    usage(bench.volume.write(1, u64::MAX, span.clone(), 1));
    usage(bench.volume.read(1, 0, bench.frames.span(0, PAGE - 512), 1));
    usage(bench.volume.read(1, 0, bench.frames.span(512, PAGE), 1));
    usage(bench.volume.create_scratch(1, 10));
    usage(bench.volume.create_scratch(2, 0));
    usage(bench.volume.create_scratch(2, u64::MAX));
    usage(bench.volume.flush(9, 1));
    for name in ["", ".x", "a/b", "a b", &"x".repeat(300)] {
        usage(bench.volume.create_or_open_named(3, name, 10).map(drop));
    }
    for page_bytes in [0, 512, 6000, 8 << 20] {
        let device = Box::new(MemoryDevice::new(&disk, 8).unwrap());
        assert!(matches!(Volume::over(device, page_bytes, true), Err(VolumeError::Usage(_))));
    }
    assert_eq!(bench.volume.in_flight(), 0);
    // The last page is fine.
    bench.volume.read(1, 9, span, 1).unwrap();
    assert_eq!(bench.finish().len(), 1);
}

#[test]
fn a_discarded_page_is_zeros_and_gives_its_space_back() {
    let disk = MemoryDisk::new();
    let mut bench = memory(&disk, 8);
    bench.volume.create_scratch(0, 10).unwrap();
    bench.write(0, 3, 5).unwrap();
    assert_eq!(disk.used_bytes(), PAGE as u64);
    bench.volume.discard(0, 3, 1).unwrap();
    assert!(bench.finish()[&1].is_ok());
    assert_eq!((bench.read(0, 3).unwrap(), disk.used_bytes()), (0, 0));
    bench.write(0, 3, 6).unwrap();
    assert_eq!(bench.read(0, 3).unwrap(), 6);
}

/// Named segments over several checkpoints, reopened after each: the last checkpoint, without what came after it.
#[test]
fn a_named_segment_comes_back_as_its_last_flush() {
    let disk = MemoryDisk::new();
    let pages = 1500;
    let mut expected = vec![0; pages as usize];
    for generation in 0..6 {
        let mut bench = memory(&disk, 8);
        let report = bench.volume.create_or_open_named(2, "data", pages).unwrap();
        let opened = if generation == 0 { Opened::Fresh } else { Opened::Reopened { generation } };
        assert_eq!((report.opened, report.damaged_pages, report.fallback), (opened, vec![], None));
        for (index, &stamp) in expected.iter().enumerate() {
            assert_eq!(bench.read(2, index as u64).unwrap(), stamp, "page {index} after flush {generation}");
        }
        for index in (generation..pages).step_by(7 + generation as usize) {
            let stamp = 10_000 * (generation + 1) + index;
            bench.write(2, index, stamp).unwrap();
            expected[index as usize] = stamp;
        }
        if generation > 2 {
            let (index, key) = (generation * 3, bench.key());
            bench.volume.discard(2, index, key).unwrap();
            bench.finish();
            expected[index as usize] = 0;
        }
        bench.flush(2).unwrap();
        bench.write(2, generation, 99).unwrap();
        assert_eq!(bench.read(2, generation).unwrap(), 99);
        disk.crash(if generation % 2 == 0 { Crash::LoseUnsynced } else { Crash::KeepUnsynced });
    }
}

/// What a file holds can be told without opening it; anything that is not surely fresh counts as kept.
#[test]
fn a_file_tells_whether_it_was_flushed() {
    let folder = folder();
    let path = folder.path().join(vgas_nvm::segment_file_name("data", 2));
    let state = || vgas_nvm::segment_file_state(&path).unwrap();
    assert_eq!(state(), FileState::Missing);
    let holds = |generations: &[u64]| {
        let checkpoint = |&generation: &u64| CheckpointId { generation, identity: 0 };
        FileState::Holds(generations.iter().map(|one| (checkpoint(one), Vec::new())).collect())
    };
    let mut bench = on_disk(folder.path(), DeviceChoice::Blocking);
    bench.volume.create_or_open_named(2, "data", 100).unwrap();
    assert_eq!(state(), holds(&[0]));
    bench.write(2, 1, 1).unwrap();
    assert_eq!(state(), holds(&[0]));
    for generation in 1..=3 {
        bench.flush(2).unwrap();
        assert_eq!(state(), holds(&[generation]));
        assert!(state().is_kept());
        bench.write(2, generation, 1).unwrap();
    }
    std::fs::write(&path, "no segment").unwrap();
    assert_eq!(state(), FileState::Unclear);
    assert!(state().is_kept());
}

/// Goal: a file without a checkpoint does not keep the space that its job has used, whether the job ended or was killed; one with a
/// checkpoint keeps its pages. Method: the file of a killed job is a copy, made while the job ran.
#[test]
fn files_without_a_checkpoint_take_no_space() {
    use std::os::unix::fs::MetadataExt;
    const PAGES: u64 = 256;
    let folder = folder();
    let path = folder.path().join(vgas_nvm::segment_file_name("data", 2));
    let stored = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let written = |flushes: bool| {
        let mut bench = on_disk(folder.path(), DeviceChoice::Blocking);
        bench.volume.create_or_open_named(2, "data", PAGES).unwrap();
        (0..PAGES).for_each(|page| bench.write(2, page, 1).unwrap());
        if flushes {
            bench.flush(2).unwrap();
        }
        bench
    };
    let bench = written(false);
    assert!(stored() >= PAGES * PAGE as u64);
    let copy = folder.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    drop(bench);
    assert!(stored() <= 64 << 10, "{} bytes after a job that ended", stored());
    std::fs::rename(&copy, &path).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(stored() >= PAGES * PAGE as u64);
    // Whoever opens anything there.
    drop(on_disk(folder.path(), DeviceChoice::Blocking));
    assert!(stored() <= 64 << 10, "{} bytes after a job that was killed", stored());
    let bench = written(true);
    drop(bench);
    drop(on_disk(folder.path(), DeviceChoice::Blocking));
    assert!(stored() >= PAGES * PAGE as u64);
    let mut bench = on_disk(folder.path(), DeviceChoice::Blocking);
    bench.volume.create_or_open_named(2, "data", PAGES).unwrap();
    assert_eq!(bench.read(2, PAGES - 1).unwrap(), 1);
}

/// Goal: each checkpoint remembers its companions, beside the one before with its own.
#[test]
fn checkpoints_remember_their_companions() {
    let folder = folder();
    let path = folder.path().join(vgas_nvm::segment_file_name("data", 2));
    let companions = |generation: u64| {
        let one = |name| vgas_nvm::Companion { name_hash: vgas_nvm::name_hash(name), generation };
        vec![one("left"), one("right")]
    };
    let id = |generation: u64| CheckpointId { generation, identity: 10 + generation };
    let mut bench = on_disk(folder.path(), DeviceChoice::Blocking);
    bench.volume.create_or_open_named(2, "data", 100).unwrap();
    for generation in 1..=2 {
        bench.write(2, 1, generation).unwrap();
        let key = bench.key();
        bench.volume.prepare(2, 10 + generation, companions(generation), key).unwrap();
        bench.finish().remove(&key).unwrap().unwrap();
        if generation == 1 {
            bench.conclude(2, true).unwrap();
        }
    }
    let expected = vec![(id(2), companions(2)), (id(1), companions(1))];
    assert_eq!(vgas_nvm::segment_file_state(&path).unwrap(), FileState::Holds(expected));
    let many = vec![companions(1)[0]; vgas_nvm::COMPANIONS_MAX + 1];
    let key = bench.key();
    assert!(matches!(bench.volume.prepare(2, 77, many, key), Err(VolumeError::Usage(_))));
}

/// Of a job's checkpoint, each file holds the one before as well until it is concluded, and only one of them for good when it
/// was opened again at either.
#[test]
fn a_prepared_checkpoint_stands_beside_the_one_before() {
    let one = CheckpointId { generation: 1, identity: 11 };
    let two = CheckpointId { generation: 2, identity: 22 };
    for (chosen, content) in [(one, 1), (two, 2)] {
        let folder = folder();
        let path = folder.path().join(vgas_nvm::segment_file_name("data", 2));
        let state = || vgas_nvm::segment_file_state(&path).unwrap();
        let mut bench = on_disk(folder.path(), DeviceChoice::Blocking);
        bench.volume.create_or_open_named(2, "data", 100).unwrap();
        for (checkpoint, stamp) in [(one, 1), (two, 2)] {
            bench.write(2, 1, stamp).unwrap();
            bench.prepare(2, checkpoint.identity).unwrap();
            let before = if stamp == 1 { CheckpointId::default() } else { one };
            assert_eq!(state(), FileState::Holds(vec![(checkpoint, Vec::new()), (before, Vec::new())]));
            if checkpoint == one {
                bench.conclude(2, true).unwrap();
                assert_eq!(state(), FileState::Holds(vec![(checkpoint, Vec::new())]));
            }
        }
        drop(bench);
        let mut bench = on_disk(folder.path(), DeviceChoice::Blocking);
        let report = bench.volume.open_named(2, data(Some(chosen)), 100).unwrap();
        assert_eq!(report.opened, Opened::Reopened { generation: chosen.generation });
        assert_eq!((report.given_up, report.fallback), ((chosen == one).then_some(2), None));
        assert_eq!(state(), FileState::Holds(vec![(chosen, Vec::new())]));
        assert_eq!(bench.read(2, 1).unwrap(), content);
        // Without changes, and given up, and made in its place.
        bench.prepare(2, 33).unwrap();
        bench.conclude(2, false).unwrap();
        bench.prepare(2, 44).unwrap();
        bench.conclude(2, true).unwrap();
        let next = CheckpointId { generation: chosen.generation + 1, identity: 44 };
        assert_eq!(state(), FileState::Holds(vec![(next, Vec::new())]));
        let wrong = CheckpointId { generation: next.generation, identity: 33 };
        drop(bench);
        let error =
            on_disk(folder.path(), DeviceChoice::Blocking).volume.open_named(2, data(Some(wrong)), 100);
        let reason = match error.unwrap_err() {
            VolumeError::Unusable { reason, .. } => reason,
            error => panic!("{error}"),
        };
        assert_eq!(reason, Unusable::Checkpoint { asked: next.generation, found: vec![next.generation] });
    }
}

/// A page of a prepared checkpoint is not overwritten before the conclusion; others are written meanwhile. Steps out of
/// their order are refused.
#[test]
fn writes_wait_for_the_conclusion_where_they_must() {
    for commit in [true, false] {
        let disk = MemoryDisk::new();
        let mut bench = Bench::over(Box::new(MemoryDevice::new(&disk, 8).unwrap()));
        bench.volume.create_or_open_named(0, "data", 100).unwrap();
        assert!(bench.conclude(0, true).is_err());
        bench.conclude(0, false).unwrap();
        bench.write(0, 1, 1).unwrap();
        bench.prepare(0, 5).unwrap();
        bench.write(0, 2, 7).unwrap();
        let key = bench.key();
        let span = bench.span(0);
        span.write(&page(2));
        bench.volume.write(0, 1, span, key).unwrap();
        let mut done = Vec::new();
        for _ in 0..100 {
            bench.volume.poll(&mut done).unwrap();
        }
        assert!(done.is_empty(), "both places of the page are needed");
        bench.conclude(0, commit).unwrap();
        assert_eq!((bench.read(0, 1).unwrap(), bench.read(0, 2).unwrap()), (2, 7));
        drop(bench);
        disk.crash(Crash::LoseUnsynced);
        let mut bench = Bench::over(Box::new(MemoryDevice::new(&disk, 8).unwrap()));
        bench.volume.create_or_open_named(0, "data", 100).unwrap();
        let found = (bench.read(0, 1).unwrap(), bench.read(0, 2).unwrap());
        assert_eq!(found, (u64::from(commit), 0));
    }
}

/// Goal: pages keep their names, wherever they are stored. The last page's first place and the first page's second one stand next to
/// each other in the file. Method: writes of both wait for a conclusion, after which they go just there, one after the other, and
/// are one operation of the device unless somebody looks at the pages' numbers.
#[test]
fn neighbours_in_the_file_are_not_always_neighbours() {
    const LAST: u64 = 9;
    let disk = MemoryDisk::new();
    let mut bench = memory(&disk, 8);
    bench.volume.create_or_open_named(0, "data", LAST + 1).unwrap();
    bench.write(0, 0, 1).unwrap();
    bench.flush(0).unwrap();
    bench.write(0, 0, 2).unwrap();
    bench.write(0, LAST, 3).unwrap();
    bench.flush(0).unwrap();
    bench.write(0, 0, 4).unwrap();
    bench.write(0, LAST, 5).unwrap();
    bench.prepare(0, 77).unwrap();
    for (frame, (index, stamp)) in [(LAST, 6), (0, 7)].into_iter().enumerate() {
        let span = bench.span(frame as u64);
        span.write(&page(stamp));
        let key = bench.key();
        bench.volume.write(0, index, span, key).unwrap();
    }
    let key = bench.key();
    bench.volume.conclude(0, true, key).unwrap();
    assert!(bench.finish().values().all(Result::is_ok));
    assert_eq!((bench.read(0, LAST).unwrap(), bench.read(0, 0).unwrap()), (6, 7));
    bench.flush(0).unwrap();
    drop(bench);
    let mut again = memory(&disk, 8);
    again.volume.create_or_open_named(0, "data", LAST + 1).unwrap();
    assert_eq!((again.read(0, LAST).unwrap(), again.read(0, 0).unwrap()), (6, 7));
}

/// A checkpoint holds what was written before it was asked for, although later writes go on while it is made; they
/// are in the next one.
#[test]
fn writes_during_a_flush_belong_to_the_next_one() {
    for seed in 0..60 {
        let disk = MemoryDisk::new();
        let mut bench = Bench::over(Box::new(MemoryDevice::disordered(&disk, 4, seed).unwrap()));
        bench.volume.create_or_open_named(0, "data", 2000).unwrap();
        let write = |bench: &mut Bench, index: u64, stamp: u64| {
            let (span, key) = (bench.span(stamp), bench.key());
            span.write(&page(stamp));
            bench.volume.write(0, index, span, key).unwrap();
        };
        for index in 0..10 {
            write(&mut bench, index * 190, 1 + index);
        }
        let flush = bench.key();
        bench.volume.flush(0, flush).unwrap();
        // Other pages of the same and of other map blocks; then, when the first flush is done, a crash on a copy.
        for index in 0..10 {
            write(&mut bench, index * 190 + 1, 11 + index);
        }
        let mut done = Vec::new();
        while !done.iter().any(|done: &vgas_nvm::PageDone| done.key == flush) {
            bench.volume.poll(&mut done).unwrap();
        }
        assert!(done.iter().all(|done| done.result.is_ok()));
        let after_first = disk.fork();
        after_first.crash(Crash::Random(seed));
        // Second writes of pages of the first checkpoint.
        bench.finish();
        for index in 0..10 {
            write(&mut bench, index * 190, 21 + index);
        }
        bench.flush(0).unwrap();
        disk.crash(Crash::Random(seed));
        for (disk, own, neighbour) in [(after_first, 1, 0), (disk.clone(), 21, 11)] {
            let mut bench = memory(&disk, 8);
            let report = bench.volume.create_or_open_named(0, "data", 2000);
            let report = report.unwrap();
            assert!(report.damaged_pages.is_empty() && report.fallback.is_none(), "{report:?}");
            for index in 0..10 {
                assert_eq!(bench.read(0, index * 190).unwrap(), own + index);
                let expected = if neighbour == 0 { 0 } else { neighbour + index };
                assert_eq!(bench.read(0, index * 190 + 1).unwrap(), expected);
            }
        }
    }
}

/// The same pages, written again and again while checkpoints are made, as fast as the volume takes them: every
/// request completes, and what is read is what was written last.
#[test]
fn writing_and_flushing_at_once_makes_progress() {
    for seed in 0..30 {
        let disk = MemoryDisk::new();
        let mut bench = Bench::over(Box::new(MemoryDevice::disordered(&disk, 5, seed).unwrap()));
        bench.volume.create_or_open_named(0, "data", 1200).unwrap();
        let mut last = [0u64; 8];
        for round in 1..=12u64 {
            let mut writes = HashSet::new();
            for index in 0..8 {
                let (span, key) = (bench.span(index), bench.key());
                let stamp = round * 10 + index;
                writes.insert(key);
                span.write(&page(stamp));
                bench.volume.write(0, index * 150, span, key).unwrap();
                last[index as usize] = stamp;
            }
            for _ in 0..round % 3 {
                let key = bench.key();
                bench.volume.flush(0, key).unwrap();
            }
            // Writes are done before the next round; flushes may still be on their way.
            let mut done = Vec::new();
            while !writes.is_empty() {
                bench.volume.poll(&mut done).unwrap();
                for done in done.drain(..) {
                    done.result.unwrap();
                    writes.remove(&done.key);
                }
            }
        }
        bench.finish().values().for_each(|result| assert!(result.is_ok()));
        for index in 0..8 {
            assert_eq!(bench.read(0, index * 150).unwrap(), last[index as usize]);
        }
    }
}

#[test]
fn real_files_keep_pages_and_checkpoints() {
    for device in [DeviceChoice::Auto, DeviceChoice::Blocking] {
        let folder = folder();
        let mut bench = on_disk(folder.path(), device.clone());
        bench.volume.create_scratch(0, 1 << 20).unwrap();
        bench.volume.create_or_open_named(1, "kept", 5000).unwrap();
        for index in 0..40 {
            bench.write(0, index * 1000, 1 + index).unwrap();
            bench.write(1, index * 100, 101 + index).unwrap();
        }
        bench.flush(1).unwrap();
        bench.write(1, 0, 77).unwrap();
        for index in 0..40 {
            assert_eq!(bench.read(0, index * 1000).unwrap(), 1 + index);
        }
        let other =
            on_disk(folder.path(), device.clone()).volume.create_or_open_named(1, "kept", 5000).unwrap_err();
        assert!(other.to_string().contains("in use by another job"), "{other}");
        drop(bench);
        let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(files.len(), 1, "only the named segment is left: {files:?}");
        let metadata = files[0].metadata().unwrap();
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert!(metadata.blocks() * 512 < metadata.len() / 10, "sparse: {} blocks", metadata.blocks());
        let mut bench = on_disk(folder.path(), device);
        let report = bench.volume.create_or_open_named(1, "kept", 5000).unwrap();
        assert_eq!(report.opened, Opened::Reopened { generation: 1 });
        for index in 0..40 {
            assert_eq!(bench.read(1, index * 100).unwrap(), 101 + index);
        }
    }
}
