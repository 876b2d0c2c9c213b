//! Every device keeps the promises of `device/mod.rs`: one suite, run over all of them.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas_nvm::device::blocking::BlockingDevice;
use vgas_nvm::device::conformance;
use vgas_nvm::device::faulty::{FaultyDevice, Script};
use vgas_nvm::device::memory::{MemoryDevice, MemoryDisk};
use vgas_nvm::device::paced::{Pace, PacedDevice};
use vgas_nvm::device::uring::UringDevice;
use vgas_nvm::{DeviceChoice, Volume, VolumeSpec};
use vgas_shm::Mapping;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Prints why a test has nothing to test here.
fn uring_is_offered(directory: &Path) -> bool {
    match vgas_nvm::device::choice::why_not_fast(directory).unwrap() {
        None => true,
        Some(reason) => {
            eprintln!("skipped: {reason}");
            false
        }
    }
}

#[test]
fn memory_keeps_the_promises() {
    let disk = MemoryDisk::new();
    conformance::check(|| Box::new(MemoryDevice::new(&disk, 8).unwrap()));
}

#[test]
fn disordered_memory_keeps_the_promises() {
    for first_seed in 0..10 {
        let (disk, seed) = (MemoryDisk::new(), AtomicU64::new(first_seed * 1000));
        let next = || seed.fetch_add(1, Ordering::Relaxed);
        conformance::check(|| Box::new(MemoryDevice::disordered(&disk, 8, next()).unwrap()));
    }
}

#[test]
fn a_faulty_device_without_faults_keeps_the_promises() {
    let disk = MemoryDisk::new();
    conformance::check(|| {
        let inner = Box::new(MemoryDevice::new(&disk, 8).unwrap());
        Box::new(FaultyDevice::new(inner, &Script::new()))
    });
}

/// A pace that is felt, so that completions are held, and one that is not.
#[test]
fn a_paced_device_keeps_the_promises() {
    for rates in ["64MiB,2k", "1024GiB"] {
        let (disk, pace) = (MemoryDisk::new(), Pace::new(rates.parse().unwrap()));
        conformance::check(|| {
            let inner = Box::new(MemoryDevice::new(&disk, 8).unwrap());
            Box::new(PacedDevice::new(inner, &pace).unwrap())
        });
    }
}

#[test]
fn plain_calls_keep_the_promises() {
    let folder = folder();
    conformance::check(|| Box::new(BlockingDevice::open(folder.path(), 20).unwrap()));
}

#[test]
fn plain_buffered_calls_keep_the_promises() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: no tmpfs at /dev/shm");
    };
    conformance::check(|| Box::new(BlockingDevice::open(folder.path(), 4).unwrap()));
}

#[test]
fn io_uring_keeps_the_promises() {
    let folder = folder();
    if uring_is_offered(folder.path()) {
        conformance::check(|| Box::new(UringDevice::open(folder.path(), 32, None).unwrap()));
    }
}

/// Frames are registered when first used, and the bytes are the same with registered memory and without.
#[test]
fn io_uring_registers_frames() {
    use vgas_nvm::device::{Completion, Device, Kind, Naming, Operation, wait};
    let folder = folder();
    if !uring_is_offered(folder.path()) {
        return;
    }
    let frames = Mapping::anonymous("frames", 10 << 20).unwrap();
    let mut device = UringDevice::open(folder.path(), 8, Some(frames.clone())).unwrap();
    assert_eq!(device.registered_bytes(), 0, "nothing is pinned before it is used");
    let file = device.create(1 << 20, Naming::Never).unwrap();
    let mut run = |kind, span: vgas_shm::Span| {
        let operation = Operation { key: 1, file, kind, offset: 4096, spans: span.into() };
        let _ = device.submit(operation);
        let mut done: Vec<Completion> = Vec::new();
        while device.poll(&mut done).unwrap() == 0 {
            wait(&mut device, 100).unwrap();
        }
        assert!(done[0].result.is_ok(), "{:?}", done[0]);
        device.registered_bytes()
    };
    let bytes: Vec<u8> = (0..8192u32).map(|at| (at / 3) as u8).collect();
    frames.write(5 << 20, &bytes);
    // Piece 1 of three, the last frame of the short piece 2, and a border between two pieces.
    let after_one = run(Kind::Write, frames.span(5 << 20, 8192));
    let after_two = run(Kind::Read, frames.span((10 << 20) - 8192, 8192));
    let after_border = run(Kind::Read, frames.span((4 << 20) - 4096, 8192));
    let other = Mapping::anonymous("other", 8192).unwrap();
    let after_other = run(Kind::Read, other.span(0, 8192));
    assert!(after_one == 0 || after_one == 4 << 20, "registered, or refused by the limit of locked memory");
    assert!(after_one == 0 || after_two == 6 << 20);
    assert_eq!((after_border, after_other), (after_two, after_two));
    for (mapping, at) in [(&frames, (10 << 20) - 8192), (&frames, (4 << 20) - 4096), (&other, 0)] {
        let mut found = vec![0; 8192];
        mapping.read(at, &mut found);
        assert!(found == bytes, "bytes at {at} differ");
    }
}

/// A folder in memory takes no direct I/O: the automatic choice falls back, a wish is refused in one line.
#[test]
fn tmpfs_gets_the_fallback() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: no tmpfs at /dev/shm");
    };
    let volume = Volume::open(VolumeSpec::new(folder.path(), 4096)).unwrap();
    assert!(volume.device_name().starts_with("plain calls") || volume.device_name() == "io_uring, direct");
    if volume.device_name() == "plain calls, buffered" {
        let spec = VolumeSpec { device: DeviceChoice::Uring, ..VolumeSpec::new(folder.path(), 4096) };
        let error = Volume::open(spec).err().unwrap().to_string();
        assert!(error.contains("takes no direct I/O") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_said_in_one_line() {
    for (path, what) in
        [("/nonexistent/vgas", "create the folder"), ("/dev/null", "choose a folder"), ("/proc", "")]
    {
        let error = Volume::open(VolumeSpec::new(path, 4096)).err().unwrap().to_string();
        assert!(error.contains(path) && error.contains(what) && !error.contains('\n'), "{error}");
    }
}
