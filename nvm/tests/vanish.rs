//! Scratch segments vanish with the process, also when it is killed in the middle of its work.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use vgas_nvm::{Volume, VolumeSpec};
use vgas_shm::Mapping;

const CHILD: &str = "VGAS_NVM_TEST_CHILD_FOLDER";

/// Bytes in use on the filesystem of the folder, by files with and without a name.
fn names(folder: &std::path::Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_killed_process_leaves_no_scratch_file() {
    if let Ok(folder) = std::env::var(CHILD) {
        return child(&folder);
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_killed_process_leaves_no_scratch_file", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let working = lines.map_while(Result::ok).any(|line| line.contains("working"));
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(working, "the child has started its work");
    assert_eq!(names(folder.path()), 0, "a file was left behind");
}

/// Writes for ever.
fn child(folder: &str) {
    let mut volume = Volume::open(VolumeSpec::new(folder, 4096)).unwrap();
    let frames = Mapping::anonymous("frames", 4096).unwrap();
    volume.create_scratch(0, 1000).unwrap();
    let mut done = Vec::new();
    for number in 0u64.. {
        volume.write(0, number % 1000, frames.span(0, 4096), number).unwrap();
        let mut naps = 0;
        while volume.poll(&mut done).unwrap() == 0 {
            vgas_shm::cores::nap(&mut naps);
        }
        if number == 100 {
            println!("working");
        }
    }
}
