//! Jobs that are killed while they make checkpoints, again and again over the same files.
//!
//! Goal: a named segment is reopened as one checkpoint left it, on all ranks the same one, and never an older one than the
//! job before was told is complete. Method: each rank fills its part with the number of the checkpoint that it makes next;
//! the next job looks whether there is one number everywhere, and goes on from it. Processes are killed at random moments,
//! all or some. With checkpoints that each rank makes for itself, every thirtieth reopened job found two numbers.

use super::harness::{Ended, Job, Place, kill, until};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What a job said.
#[derive(Debug, Default)]
struct Said {
    /// The number that it found everywhere.
    found: u64,
    /// The newest checkpoint that was complete.
    complete: u64,
    /// A newer one was given up.
    went_back: bool,
}

fn said(ended: &Ended) -> Said {
    let mut said = Said::default();
    for line in ended.stdout.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next().and_then(|word| word.parse().ok())) {
            (Some("found"), Some(number)) => (said.found, said.complete) = (number, number),
            (Some("complete"), Some(number)) => said.complete = number,
            (Some("mixed"), _) => panic!("a state that never was: {ended:?}"),
            _ => {}
        }
    }
    said.went_back = ended.stderr.contains("was not complete on all ranks");
    said
}

fn kills(count: u32, seed: u64) {
    let place = Place::new();
    std::fs::create_dir(place.path("named")).unwrap();
    let words = format!("--nodes 2 --set nvm.directory={}", place.path("named").display());
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut before, mut went_back, mut made) = (Said::default(), 0, 0);
    for moment in 0..count {
        let job = place.ranks("checkpoints", 2, &words);
        let begun = until(|| {
            let text = job.stdout();
            text.lines().any(|line| line.starts_with("found") || line.starts_with("mixed")).then_some(())
        });
        let mut victims = match moment % 4 {
            0 => job.processes(),
            1 => job.daemons().into_iter().take(1).collect(),
            2 => job.daemons().into_iter().skip(1).collect(),
            _ => job.ranks().into_iter().take(1).collect(),
        };
        if random.random() {
            victims.reverse();
        }
        let moment_us = random.random_range(0..40_000);
        let start = Instant::now();
        while begun.is_some() && start.elapsed() < Duration::from_micros(moment_us) {
            std::hint::spin_loop();
        }
        for victim in victims {
            kill(victim, Signal::KILL);
            if random.random() {
                let start = Instant::now();
                let pause = Duration::from_micros(random.random_range(0..500));
                while start.elapsed() < pause {
                    std::hint::spin_loop();
                }
            }
        }
        let ended = job.end();
        assert!(begun.is_some(), "the segment cannot be reopened, kill {moment}, seed {seed}: {ended:?}");
        let said = said(&ended);
        assert!(
            said.found >= before.complete,
            "lost, kill {moment}, seed {seed}: {before:?}, then {ended:?}"
        );
        went_back += u32::from(said.went_back);
        made += said.complete - said.found;
        before = said;
    }
    println!("{count} kills, seed {seed}: {made} checkpoints, {went_back} times not reopened at the newest");
    assert!(made > 0, "every job was killed before its first checkpoint");
}

#[test]
fn a_job_that_is_killed_leaves_one_checkpoint() {
    kills(12, 1);
}

#[test]
#[ignore = "takes minutes; .ci/run runs it among the slower tests"]
fn a_job_that_is_killed_a_thousand_times_leaves_one_checkpoint_each_time() {
    kills(1000, 2);
}

/// Goal: why an attach was refused is told whoever ends first: the rank that was refused, or those that were told so. Before,
/// the others said only that some rank could not attach, and the job was ended before that rank had said why.
#[test]
fn the_reason_of_a_refused_attach_is_told_whoever_ends_first() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for round in 0..12 {
        let place = Place::new();
        std::fs::create_dir(place.path("named")).unwrap();
        let kind = ["large", "stranger"][round % 2];
        let words =
            format!("--nodes {} --set nvm.directory={}", 1 + round / 6, place.path("named").display());
        if kind == "stranger" {
            assert_eq!(place.ranks("named", 2, &words).end().code, 0);
            std::fs::write(place.path("named").join("kept.1.1.vgas"), [7; 20_000]).unwrap();
        }
        // Now the one and now the other is far later, or both are about equally late.
        let late = random.random_range(0..3000);
        let delays = [[0, 200_000], [200_000, 0], [late, 3000 - late]][round / 2 % 3];
        let mode = format!("refused {} {} {kind}", delays[0], delays[1]);
        let ended = place.ranks(&mode, 2, &words).end();
        assert_eq!(ended.code, 1, "{ended:?}");
        let why = match kind {
            "large" => "a tiered segment of 1099511627776 bytes: at most",
            _ => "it is no segment file",
        };
        let told = ended.stderr.lines().any(|line| line.starts_with("Error: ") && line.contains(why));
        assert!(told, "{mode}: {ended:?}");
    }
}

/// Files that do not belong together are refused on every rank, in one line that names two of them, and stay as they are.
#[test]
fn files_of_different_checkpoints_are_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("named")).unwrap();
    let words = format!("--nodes 2 --set nvm.directory={}", place.path("named").display());
    let run = || place.ranks("named", 2, &words).end();
    let file = place.path("named").join("kept.1.1.vgas");
    let mut kept = Vec::new();
    for _ in 0..2 {
        let ended = run();
        assert_eq!(ended.code, 0, "{ended:?}");
        kept.push(std::fs::read(&file).unwrap());
    }
    let newest = std::fs::read(&file).unwrap();
    std::fs::write(&file, &kept[0]).unwrap();
    let ended = run();
    assert_ne!(ended.code, 0, "{ended:?}");
    let said = [
        "kept.0.0.vgas of rank 0 holds checkpoint 2",
        "kept.1.1.vgas of rank 1 holds checkpoint 1",
        "restore",
    ];
    assert!(said.iter().all(|words| ended.stderr.contains(words)), "{ended:?}");
    assert_eq!(std::fs::read(&file).unwrap(), kept[0]);
    std::fs::write(&file, newest).unwrap();
    assert_eq!(run().code, 0);
}

/// What a checkpoint has left can be read where nothing can be written: a read-only mount, and a disk that is full. Puts, or
/// what stores them, fail with the reason, the host and the folder.
#[test]
fn checkpoints_can_be_read_where_nothing_can_be_written() {
    let place = Place::new();
    std::fs::create_dir(place.path("named")).unwrap();
    let named = place.path("named").display().to_string();
    let words = format!("--nodes 2 --set nvm.directory={named}");
    assert_eq!(place.ranks("named", 2, &words).end().code, 0);
    let may = |line: &str| {
        let mut command = place.shell(Path::new("unshare"), "-rm sh -c");
        command.arg(line).output().is_ok_and(|output| output.status.success())
    };
    let read_only = format!("mount --bind {named} {named} && mount -o remount,ro,bind {named}");
    let full = format!(
        "cp --sparse=always {named}/* . && mount -t tmpfs -o size=1m none {named} && mv kept.* {named} && \
         {{ cat /dev/zero > {named}/filler 2>/dev/null || true; }}"
    );
    for (disk, line, expected) in
        [("read-only", &read_only, "can only be read: the NVMe of node 0"), ("full", &full, "is full")]
    {
        if !may(line) {
            eprintln!("skipped: no file system may be mounted here (unshare -rm, {line})");
            continue;
        }
        let run = Place::line_of_ranks(2, &words);
        let mut command: Command = place.shell(Path::new("unshare"), "-rm sh -c");
        command.arg(format!("{line} && exec {} {run}", env!("CARGO_BIN_EXE_vgas")));
        command.env(super::rank::MODE, format!("named on a disk that is {disk}"));
        let ended = Job::of(command, place.path("nvm")).end();
        assert_eq!(ended.stdout.lines().filter(|line| *line == "read").count(), 2, "{ended:?}");
        let told = ended.stderr.lines().find(|line| line.starts_with("Error: "));
        let told = told.unwrap_or_else(|| panic!("{ended:?}"));
        assert!(told.contains(expected) && told.contains("(host ") && told.contains(&named), "{ended:?}");
        assert!(disk == "full" || told.contains("Read-only file system"), "{ended:?}");
    }
}

/// Files that another user could have planted, or can change, are refused in one line; so is a link in the place of a file.
#[test]
fn planted_files_are_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = Place::new();
    let folder = place.path("named");
    std::fs::create_dir(&folder).unwrap();
    let words = format!("--nodes 2 --set nvm.directory={}", folder.display());
    let run = || place.ranks("named", 2, &words).end();
    assert_eq!(run().code, 0);
    let file = folder.join("kept.1.1.vgas");
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |said: &str| {
        let ended = run();
        assert!(ended.code != 0 && ended.stderr.contains(said), "{said}: {ended:?}");
    };
    mode(&file, 0o666);
    refused("kept.1.1.vgas: other users may write it (mode 666)");
    mode(&file, 0o600);
    mode(&folder, 0o777);
    refused("every user may rename and remove files in it (mode 0777)");
    mode(&folder, 0o1777);
    assert_eq!(run().code, 0);
    let real = folder.join("real");
    std::fs::rename(&file, &real).unwrap();
    symlink(&real, &file).unwrap();
    refused("kept.1.1.vgas: it is a symbolic link");
    std::fs::rename(&real, &file).unwrap();
    assert_eq!(run().code, 0);
}

/// What is stored under a name can be listed, shown, copied and removed, but not while a job has it open.
#[test]
fn stored_segments_are_listed_copied_and_removed() {
    use rustix::fs::{FlockOperation, flock};
    let place = Place::new();
    let (folder, backup) = (place.path("named"), place.path("backup"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::create_dir(&backup).unwrap();
    let setting = format!("nvm.directory={}", folder.display());
    let words = format!("--nodes 2 --set {setting}");
    let run = || assert_eq!(place.ranks("named", 2, &words).end().code, 0);
    let segments = |words: &[&str]| {
        let mut command = place.command("");
        command.arg("segments").args(words).args(["--set", &setting]);
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let listed = || {
        let (code, out, error) = segments(&["list", "--json"]);
        assert_eq!(code, Some(0), "{error}");
        let found: serde_json::Value = serde_json::from_str(&out).unwrap();
        let names: Vec<String> =
            found.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        (names, found)
    };
    assert!(listed().0.is_empty());
    run();
    // The kernel may take a moment to close the files of a job that has ended.
    let ended = super::harness::until(|| Some(listed()).filter(|(_, found)| found[0]["in_use"] == false));
    let (names, found) = ended.expect("files of a job that has ended");
    assert_eq!(names, ["kept"]);
    assert_eq!((&found[0]["checkpoint"], &found[0]["in_use"]), (&1.into(), &false.into()), "{found}");
    assert_eq!(found[0]["parts"].as_array().unwrap().len(), 2, "{found}");
    let (_, shown, _) = segments(&["show", "kept"]);
    assert!(shown.contains("kept.1.1.vgas") && shown.contains("checkpoint 1"), "{shown}");
    let to = backup.to_str().unwrap();
    assert_eq!(segments(&["copy", "kept", to]).0, Some(0));
    assert_eq!(segments(&["copy", "kept", "before"]).0, Some(0));
    let (code, _, error) = segments(&["copy", "kept", to]);
    assert!(code == Some(1) && error.contains("kept.0.0.vgas exists already"), "{error}");
    run();
    assert_eq!(
        listed().1.as_array().unwrap().iter().find(|one| one["name"] == "kept").unwrap()["checkpoint"],
        2
    );
    // What a job does with its files.
    let open = std::fs::File::options().read(true).write(true).open(folder.join("kept.1.1.vgas")).unwrap();
    flock(&open, FlockOperation::LockExclusive).unwrap();
    // Both wait a while first.
    std::thread::scope(|scope| {
        for action in [&["remove", "before", "kept"][..], &["copy", "kept", "other"]] {
            let segments = &segments;
            scope.spawn(move || {
                let (code, _, error) = segments(action);
                assert!(code == Some(1) && error.contains("in use by"), "{error}");
            });
        }
    });
    assert_eq!(listed().0, ["before", "kept"]);
    drop(open);
    assert_eq!(segments(&["remove", "kept", "before"]).0, Some(0));
    assert!(listed().0.is_empty());
    let (code, _, error) = segments(&["remove", "kept"]);
    assert!(code == Some(1) && error.contains("no segment \"kept\" is stored in"), "{error}");
    // The copy is where the job was at its first checkpoint.
    for rank in 0..2 {
        let file = format!("kept.{rank}.{rank}.vgas");
        std::fs::rename(backup.join(&file), folder.join(&file)).unwrap();
    }
    run();
    assert_eq!(listed().1[0]["checkpoint"], 2);
}
