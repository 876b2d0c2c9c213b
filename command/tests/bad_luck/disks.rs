//! Disks that do not answer any more.

use super::harness::{Job, Place, until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system that can be frozen: whoever writes to it then waits within the kernel, where nothing ends it.
struct Disk(PathBuf);

impl Disk {
    /// Makes one below `place`, or says why that cannot be.
    fn new(place: &Place) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can freeze a file system");
            return None;
        }
        let (image, folder) = (place.path("image"), place.path("disk"));
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        std::fs::create_dir(&folder).unwrap();
        let made = succeeds(Command::new("mkfs.ext4").arg("-qF").arg(&image))
            && succeeds(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&folder));
        if !made {
            eprintln!(
                "skipped: no file system can be made in a file and mounted here (mkfs.ext4, mount -o loop)"
            );
            return None;
        }
        Some(Self(folder))
    }

    fn freeze(&self) {
        assert!(succeeds(Command::new("fsfreeze").arg("--freeze").arg(&self.0)));
    }

    fn thaw(&self) {
        succeeds(Command::new("fsfreeze").arg("--unfreeze").arg(&self.0));
    }
}

impl Drop for Disk {
    /// Whatever has happened: what waits for it could not be ended.
    fn drop(&mut self) {
        self.thaw();
        succeeds(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// Ctrl-C as often as it takes while the disk hangs; then the disk answers, and nothing is left.
fn ends_by_interrupts(mut job: Job, disk: &Disk, who: &str) {
    job.interrupt_until_it_ends();
    // Named before the disk answers.
    let named = until(|| job.said().contains(who).then_some(()));
    disk.thaw();
    named.expect("what is left behind is named");
    job.end().refused(130, &["ended by signal 2 (SIGINT)", "left behind: ", who, "(pid ", ", host "]);
}

#[test]
fn a_node_whose_disk_hangs_does_not_keep_the_launcher() {
    let place = Place::new();
    let Some(disk) = Disk::new(&place) else { return };
    let job = place.start_ranks("traffic", 2, &format!("--set nvm.directory={}", disk.0.display()));
    disk.freeze();
    until(|| job.daemons().into_iter().any(waits_in_kernel).then_some(())).expect("a write waits");
    ends_by_interrupts(job, &disk, "the daemon of node 0");
}

#[test]
fn a_rank_that_waits_for_a_disk_does_not_keep_the_launcher() {
    let place = Place::new();
    let Some(disk) = Disk::new(&place) else { return };
    let mut command = place.command("");
    let script = format!("while echo x; do :; done > {}/file", disk.0.display());
    command.args(["run", "-n", "1", "--", "sh", "-c", &script]);
    let job = Job::of(command, place.path("nvm"));
    until(|| disk.0.join("file").exists().then_some(())).expect("the rank writes");
    disk.freeze();
    until(|| job.processes().into_iter().any(waits_in_kernel).then_some(())).expect("the rank waits");
    ends_by_interrupts(job, &disk, "rank 0");
}

/// Whether a thread of the process can be interrupted by nothing.
fn waits_in_kernel(pid: i32) -> bool {
    let threads = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"));
    let threads = threads.into_iter().flatten().flatten();
    let state = |stat: String| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok())
        .any(|s| state(s) == Some('D'))
}
