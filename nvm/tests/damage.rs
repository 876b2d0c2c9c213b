//! Files that are not what they should be: strangers', truncated, renamed, of another job's sizes, damaged at rest.
//! Each is a typed error of one line or a report that names the pages; nothing on disk can make the reader panic.

mod common;

use common::{Bench, PAGE};
use proptest::prelude::*;
use vgas_nvm::device::memory::{Crash, MemoryDevice, MemoryDisk};
use vgas_nvm::format::{BLOCK_BYTES, Geometry, Place, superblock_at};
use vgas_nvm::{OpenReport, Opened, Unusable, Volume, VolumeError};

const PAGES: u64 = 1200;
const NAME: &str = "data.0.vgas";

/// Three checkpoints: every seventh page, then every eleventh, then page 5.
fn disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut bench = open(&disk);
    bench.volume.create_or_open_named(0, "data", PAGES).unwrap();
    for (generation, step) in [(1, 7), (2, 11)] {
        for index in (0..PAGES).step_by(step) {
            bench.write(0, index, generation * 10_000 + index).unwrap();
        }
        bench.flush(0).unwrap();
    }
    bench.write(0, 5, 30_005).unwrap();
    bench.flush(0).unwrap();
    drop(bench);
    disk.crash(Crash::LoseUnsynced);
    disk
}

/// What page `index` held at checkpoint 2 or 3.
fn expected(index: u64, generation: u64) -> u64 {
    match index {
        5 if generation == 3 => 30_005,
        index if index % 11 == 0 => 20_000 + index,
        index if index % 7 == 0 => 10_000 + index,
        _ => 0,
    }
}

fn open(disk: &MemoryDisk) -> Bench {
    Bench::over(Box::new(MemoryDevice::new(disk, 8).unwrap()))
}

fn unusable(error: VolumeError) -> Unusable {
    assert!(!error.to_string().contains('\n'), "{error}");
    match error {
        VolumeError::Unusable { reason, .. } => reason,
        error => panic!("{error}"),
    }
}

#[test]
fn sizes_of_another_job_are_refused() {
    let disk = disk();
    let error = open(&disk).volume.create_or_open_named(0, "data", PAGES + 1).unwrap_err();
    assert_eq!(unusable(error), Unusable::Pages { found: PAGES, expected: PAGES + 1, page_bytes: 4096 });
    let device = Box::new(MemoryDevice::new(&disk, 8).unwrap());
    let error = Volume::over(device, 8192, true).unwrap().create_or_open_named(0, "data", PAGES).unwrap_err();
    assert_eq!(unusable(error), Unusable::PageBytes { found: 4096, expected: 8192 });
    // The refused file was closed again.
    assert!(open(&disk).volume.create_or_open_named(0, "data", PAGES).is_ok());
}

#[test]
fn strangers_and_stumps_are_refused() {
    let disk = disk();
    for (segment, bytes) in
        [(1, vec![]), (2, b"hello".to_vec()), (3, vec![0; 100_000]), (4, vec![0xff; 8192])]
    {
        disk.plant(&format!("data.{segment}.vgas"), &bytes);
        let error = open(&disk).volume.create_or_open_named(segment, "data", PAGES).unwrap_err();
        assert_eq!(unusable(error), Unusable::NotASegment, "segment {segment}");
    }
    let file_bytes = Geometry::new(PAGE as u32, PAGES).unwrap().file_bytes();
    for found in [2 * BLOCK_BYTES as u64, file_bytes / 2, file_bytes - 1] {
        let disk = disk.fork();
        disk.set_file_bytes(NAME, found);
        let error = open(&disk).volume.create_or_open_named(0, "data", PAGES).unwrap_err();
        assert_eq!(unusable(error), Unusable::Truncated { found, expected: file_bytes });
    }
}

/// The newest superblock is gone: the flush before it is read, and the report says so.
#[test]
fn a_damaged_superblock_falls_back_to_the_flush_before() {
    // Three flushes: generation 3 is in place B, generation 2 in place A.
    let places = [(Place::B, 2), (Place::A, 3)];
    // In the content, and in what tells a segment file from others.
    for ((place, generation), byte) in
        places.into_iter().flat_map(|place| [100, 0, 7].map(|byte| (place, byte)))
    {
        let disk = disk();
        disk.tamper(NAME, superblock_at(place), |sector| sector[byte] ^= 1);
        let mut bench = open(&disk);
        let report = bench.volume.create_or_open_named(0, "data", PAGES).unwrap();
        assert_eq!(report.opened, Opened::Reopened { generation });
        assert!(report.fallback.is_some_and(|line| line.contains("damaged") && !line.contains('\n')));
        assert_eq!(report.damaged_pages, []);
        for index in 0..PAGES {
            assert_eq!(bench.read(0, index).unwrap(), expected(index, generation), "page {index}");
        }
    }
    let disk = disk();
    disk.tamper(NAME, superblock_at(Place::A), |sector| sector[100] ^= 1);
    disk.tamper(NAME, superblock_at(Place::B), |sector| sector[100] ^= 1);
    let error = open(&disk).volume.create_or_open_named(0, "data", PAGES).unwrap_err();
    assert!(matches!(unusable(error), Unusable::Superblocks(_)));
}

/// A damaged block of the page map: its pages are named, the others are fine, and whole-page writes heal.
#[test]
fn a_damaged_map_block_names_its_pages() {
    let disk = disk();
    let geometry = Geometry::new(PAGE as u32, PAGES).unwrap();
    for place in [Place::A, Place::B] {
        disk.tamper(NAME, geometry.block_at(0, 1, place), |sector| sector[17] ^= 0x40);
    }
    let mut bench = open(&disk);
    let report = bench.volume.create_or_open_named(0, "data", PAGES).unwrap();
    assert_eq!(report.damaged_pages, std::slice::from_ref(&(512..1024)));
    assert!(matches!(*bench.read(0, 512).unwrap_err(), VolumeError::Lost { page: 512, .. }));
    assert_eq!(bench.read(0, 511).unwrap(), expected(511, 3));
    assert_eq!(bench.read(0, 1100).unwrap(), expected(1100, 3));
    bench.write(0, 600, 9).unwrap();
    bench.flush(0).unwrap();
    drop(bench);
    let mut bench = open(&disk);
    let report = bench.volume.create_or_open_named(0, "data", PAGES).unwrap();
    assert_eq!(
        report.damaged_pages,
        [512..600, 601..1024],
        "the healed page is found, the others stay named"
    );
    assert_eq!(bench.read(0, 600).unwrap(), 9);
}

#[test]
fn a_damaged_page_is_found_when_read() {
    let disk = disk();
    let geometry = Geometry::new(PAGE as u32, PAGES).unwrap();
    for place in [Place::A, Place::B] {
        disk.tamper(NAME, geometry.page_at(77, place) + 1024, |sector| sector[0] ^= 1);
    }
    let mut bench = open(&disk);
    bench.volume.create_or_open_named(0, "data", PAGES).unwrap();
    match *bench.read(0, 77).unwrap_err() {
        VolumeError::Corrupt { segment: 0, page: 77, ref file, .. } => assert_eq!(file, NAME),
        error => panic!("{error}"),
    }
    assert_eq!(bench.read(0, 14).unwrap(), expected(14, 3));
}

/// Opens, and reads everything; each page is right, or of the flush before with the fallback said, or named as bad.
fn is_honest(disk: &MemoryDisk) {
    let mut bench = open(disk);
    let Ok(OpenReport { opened, damaged_pages, fallback, .. }) =
        bench.volume.create_or_open_named(0, "data", PAGES)
    else {
        return;
    };
    let generation = match opened {
        Opened::Fresh => panic!("a damaged segment must not become a new one"),
        Opened::Reopened { generation } => generation,
    };
    assert!(generation == 3 || fallback.is_some());
    for index in 0..PAGES {
        match bench.read(0, index) {
            Ok(stamp) => assert_eq!(stamp, expected(index, generation), "page {index}"),
            Err(error) => match *error {
                VolumeError::Lost { page, .. } => {
                    assert!(damaged_pages.iter().any(|range| range.contains(&page)))
                }
                VolumeError::Corrupt { .. } | VolumeError::Page { .. } => {}
                error => panic!("{error}"),
            },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random bytes changed anywhere in the metadata: never a panic, never wrong data.
    #[test]
    fn flipped_metadata_is_never_believed(
        changes in prop::collection::vec((0u64..20, 0usize..512, 1u8..), 1..6),
    ) {
        let disk = disk();
        for (block, at, flip) in changes {
            // Superblocks, and the map blocks behind them; mostly the first sector of each.
            let offset = block * BLOCK_BYTES as u64 / 2;
            disk.tamper(NAME, offset, |sector| sector[at] ^= flip);
        }
        is_honest(&disk);
    }

    #[test]
    fn truncated_files_are_never_believed(bytes in 0u64..12_000_000) {
        let disk = disk();
        disk.set_file_bytes(NAME, bytes);
        is_honest(&disk);
    }
}
