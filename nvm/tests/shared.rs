//! Reading another process's pages: what the volume says of them is where they are, also after checkpoints, and what is not
//! what it should be is noticed.

mod common;

use common::{Bench, PAGE};
use vgas_nvm::{
    DeviceChoice, Place, Reader, Run, SharedFile, StoredPage, Volume, VolumeSpec, Whereabouts, read_now,
};
use vgas_shm::Mapping;

fn bench(folder: &tempfile::TempDir) -> Bench {
    let spec = VolumeSpec { device: DeviceChoice::Auto, ..VolumeSpec::new(folder.path(), PAGE as u32) };
    Bench::with(Volume::open(spec).unwrap())
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A reader, unless the machine has no io_uring.
fn reader(frames: &std::sync::Arc<Mapping>) -> Option<Reader> {
    Reader::new(8, frames.clone()).inspect_err(|error| println!("skipped: {error}")).ok()
}

/// A byte of a page that tells the pages apart, read in each way there is; none when it is not what it should be.
fn read(reader: &mut Reader, file: &SharedFile, page: u64, stored: StoredPage) -> Option<u8> {
    let memory = Mapping::anonymous("shared", 2 * PAGE as u64).unwrap();
    let span = memory.span(0, PAGE);
    let first = |span: &vgas_shm::Span| {
        let mut byte = [0];
        span.mapping().read(span.offset() + 4, &mut byte);
        byte[0]
    };
    let alone = file.read_page(page, stored, &span).unwrap().then(|| first(&span));
    if let StoredPage::At { place, .. } = stored {
        span.write(&[0xee; PAGE]);
        let run = Run { first_page: page, place, into: span.clone().into() };
        read_now(file, run.clone()).unwrap();
        assert_eq!(stored.matches(&span).then(|| first(&span)), alone);
        span.write(&[0xee; PAGE]);
        reader.start(1, file, run).unwrap();
        let mut done = Vec::new();
        while done.is_empty() {
            reader.poll(&mut done).unwrap();
        }
        assert!(done[0].result.is_ok() && done[0].key == 1);
        assert_eq!(stored.matches(&span).then(|| first(&span)), alone);
    }
    alone
}

#[test]
fn pages_are_where_the_volume_says() {
    let folder = folder();
    let frames = Mapping::anonymous("frames", 16 * PAGE as u64).unwrap();
    let Some(mut reader) = reader(&frames) else { return };
    let mut bench = bench(&folder);
    bench.volume.create_scratch(0, 8).unwrap();
    bench.volume.create_or_open_named(1, "named", 8).unwrap();
    for segment in [0, 1] {
        for page in 1..8 {
            bench.write(segment, page, page).unwrap();
        }
        let at = bench.volume.whereabouts(segment).unwrap();
        assert_eq!(Whereabouts::decode(at.encode_volume(), at.encode_file()), Some(at));
        let file = reader.open(&at).unwrap();
        for page in 0..8u64 {
            let stored = bench.volume.stored(segment, page).unwrap();
            assert_eq!(stored == StoredPage::Zeros, page == 0);
            assert_eq!(read(&mut reader, &file, page, stored), Some(page as u8), "page {page} of {segment}");
        }
        assert_eq!(bench.volume.stored(segment, 8), None);
    }
    // Behind a checkpoint a page goes to its other place.
    bench.flush(1).unwrap();
    bench.write(1, 3, 33).unwrap();
    let file = reader.open(&bench.volume.whereabouts(1).unwrap()).unwrap();
    let stored = bench.volume.stored(1, 3).unwrap();
    assert!(matches!(stored, StoredPage::At { place: Place::B, .. }), "{stored:?}");
    assert_eq!(read(&mut reader, &file, 3, stored), Some(33));
}

#[test]
fn what_is_not_what_it_should_be_is_noticed() {
    let folder = folder();
    let frames = Mapping::anonymous("frames", 16 * PAGE as u64).unwrap();
    let Some(mut reader) = reader(&frames) else { return };
    let mut bench = bench(&folder);
    bench.volume.create_scratch(0, 8).unwrap();
    bench.write(0, 2, 2).unwrap();
    let at = bench.volume.whereabouts(0).unwrap();
    let file = reader.open(&at).unwrap();
    let stored = bench.volume.stored(0, 2).unwrap();
    bench.write(0, 2, 3).unwrap();
    assert_eq!(read(&mut reader, &file, 2, stored), None, "it was written since");
    assert!(file.read_page(9, stored, &frames.span(0, PAGE)).is_err(), "behind the end of the file");
    // Another file under that number, or none.
    assert!(reader.open(&Whereabouts { inode: at.inode + 1, ..at }).is_err());
    assert!(reader.open(&Whereabouts { descriptor: 1 << 20, ..at }).is_err());
    assert!(reader.open(&Whereabouts { process: u32::MAX, ..at }).is_err());
    assert_eq!(Whereabouts::decode([0; Whereabouts::VOLUME_WORDS], [0; Whereabouts::FILE_WORDS]), None);
}

/// Goal: who reads cannot write, whatever it does with the file.
#[test]
fn a_file_is_opened_for_reading_only() {
    let folder = folder();
    let frames = Mapping::anonymous("frames", 16 * PAGE as u64).unwrap();
    let Some(mut reader) = reader(&frames) else { return };
    let mut bench = bench(&folder);
    bench.volume.create_scratch(0, 8).unwrap();
    let file = reader.open(&bench.volume.whereabouts(0).unwrap()).unwrap();
    let inode = bench.volume.whereabouts(0).unwrap().inode;
    let mut flags = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        if text.contains(&format!("ino:\t{inode}")) {
            let line = text.lines().find_map(|line| line.strip_prefix("flags:\t")).unwrap_or("0").to_owned();
            flags.push(u32::from_str_radix(&line, 8).unwrap() & 3);
        }
    }
    flags.sort_unstable();
    assert_eq!(flags, [0, 2], "the reader's for reading, the volume's for both");
    drop(file);
}
