//! The kernel does much of io_uring's work in threads that count against their user's limit of processes, and cancels the
//! operation where it may make none. Without what is tested here, that is a failed write, or a failed checkpoint, on a disk
//! that is fine.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use vgas_nvm::device::blocking::BlockingDevice;
use vgas_nvm::device::uring::UringDevice;
use vgas_nvm::device::{Completion, Device, Kind, Naming, Operation, Spans, wait};
use vgas_shm::Mapping;

const CHILD: &str = "VGAS_NVM_TEST_LIMITED_FOLDER";

/// The limit does not hold for root, and counts all processes of a user: so this runs again as a user that has no others.
#[test]
fn without_more_processes_everything_is_done_nevertheless() {
    if let Ok(folder) = std::env::var(CHILD) {
        return limited(Path::new(&folder));
    }
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can become a user without other processes");
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let user = 100_000 + std::process::id() % 100_000;
    std::os::unix::fs::chown(folder.path(), Some(user), Some(user)).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["without_more_processes_everything_is_done_nevertheless", "--exact", "--nocapture"])
        .env(CHILD, folder.path())
        .uid(user)
        .gid(user)
        .output();
    match child {
        Ok(child) => assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout)),
        Err(error) => eprintln!("skipped: other users may not run this test ({error})"),
    }
}

/// With a device whose user gets no threads of the kernel, and one that gets none of its own.
fn limited(folder: &Path) {
    let open = || UringDevice::open(folder, 8, None);
    let before = match open() {
        Ok(device) => device,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let (give, take) = std::sync::mpsc::channel::<UringDevice>();
    // The threads that the kernel makes belong to the thread that uses the ring: this one has none yet.
    let user = std::thread::spawn(move || use_device(&mut take.recv().unwrap()));
    let maximum = getrlimit(Resource::Nproc).maximum;
    setrlimit(Resource::Nproc, Rlimit { current: Some(1), maximum }).unwrap();
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "the limit holds");
    give.send(before).unwrap();
    user.join().unwrap();

    use_device(&mut BlockingDevice::open(folder, 8).unwrap());
}

/// Writes, makes durable, and reads.
fn use_device(device: &mut dyn Device) {
    let frames = Mapping::anonymous("frames", 8192).unwrap();
    let bytes: Vec<u8> = (0..4096u32).map(|at| (at / 3) as u8).collect();
    frames.write(0, &bytes);
    let file = device.create(1 << 20, Naming::Never).unwrap();
    let steps = [
        (Kind::Write, Spans::from(frames.span(0, 4096))),
        (Kind::SyncData, Spans::None),
        (Kind::Read, Spans::from(frames.span(4096, 4096))),
    ];
    for (kind, spans) in steps {
        let _ = device.submit(Operation { key: 1, file, kind, offset: 8192, spans });
        let mut done: Vec<Completion> = Vec::new();
        while device.poll(&mut done).unwrap() == 0 {
            wait(device, 100).unwrap();
        }
        assert!(done[0].result.is_ok(), "{kind:?} by {}: {:?}", device.name(), done[0]);
    }
    let mut found = vec![0; 4096];
    frames.read(4096, &mut found);
    assert!(found == bytes);
}
