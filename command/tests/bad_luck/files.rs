//! Files that are missing, wrong, in the way, or half written.

use super::harness::{Job, Place, kill, matrix, npy, until};
use rustix::process::Signal;
use std::fs;
use std::path::Path;

/// A place with A and B, both 300 by 300.
fn with_matrices() -> Place {
    let place = Place::new();
    matrix(&place.path("a.npy"), 300, 300);
    matrix(&place.path("b.npy"), 300, 300);
    place
}

/// Each wrong input is named, before any process is started.
#[test]
fn wrong_inputs_are_named() {
    let place = with_matrices();
    let bytes = 300 * 300 * 8;
    npy(&place.path("short.npy"), "<f8", "(300, 300)", bytes - 1);
    npy(&place.path("integers.npy"), "<i8", "(300, 300)", bytes);
    npy(&place.path("big-endian.npy"), ">f8", "(300, 300)", bytes);
    npy(&place.path("single.npy"), "<f4", "(300, 300)", bytes / 2);
    npy(&place.path("cube.npy"), "<f8", "(30, 30, 100)", bytes);
    npy(&place.path("wide.npy"), "<f8", "(100, 900)", bytes);
    npy(&place.path("huge.npy"), "<f8", "(300, 99999999999999999999)", bytes);
    fs::write(place.path("text.npy"), "no matrix").unwrap();
    let names = place.names();
    for (file, words) in [
        ("missing.npy", &["missing.npy: no such file"][..]),
        ("short.npy", &["short.npy is truncated", "720128 bytes", "720127", "write it again"]),
        ("integers.npy", &["integers.npy holds integers", "astype"]),
        ("big-endian.npy", &["big-endian.npy holds big-endian numbers", "astype"]),
        ("single.npy", &["float32", "float64", "astype"]),
        ("cube.npy", &["cube.npy has 3 dimensions", "reshape"]),
        ("wide.npy", &["the shapes do not multiply", "100×900", "300×300"]),
        ("huge.npy", &["huge.npy is not a usable .npy file"]),
        ("text.npy", &["text.npy is not a usable .npy file"]),
        (".", &[". is not a usable .npy file"]),
    ] {
        place.refused(&format!("gemm {file} b.npy -o c.npy"), 1, words);
    }
    assert_eq!(place.names(), names, "no output appeared");
}

/// A pipe is not waited for, a device is not read for ever: neither as a matrix nor as settings or hosts.
#[test]
fn what_is_no_file_is_refused_in_time() {
    let place = with_matrices();
    let made = place.shell(Path::new("mkfifo"), "pipe").status().unwrap();
    assert!(made.success());
    place.refused("gemm a.npy pipe -o c.npy", 1, &["pipe is not a usable .npy file", "not a regular file"]);
    place.refused("gemm /dev/zero b.npy -o c.npy", 1, &["/dev/zero is not a usable .npy file"]);
    for (file, why) in [("pipe", "within 2 s"), ("/dev/zero", "more than 1MiB")] {
        place.refused(&format!("config --config {file}"), 2, &["cannot read", file, why]);
        place.refused(&format!("run -n 2 --hosts {file} -- true"), 2, &["cannot read", file, why]);
    }
}

/// `<(…)`: what a pipe gives is taken, by commands that need it more than once, too.
#[test]
fn settings_and_hosts_may_come_from_a_pipe() {
    let place = with_matrices();
    let line = format!(
        "{} demo --order 64 --config <(echo 'cache.size = \"20MiB\"') --hosts <(echo 'a b')",
        env!("CARGO_BIN_EXE_vgas")
    );
    if !Path::new("/bin/bash").exists() {
        eprintln!("skipped: no /bin/bash, which has <(…)");
        return;
    }
    let bash = |line: &str| {
        let mut command = place.shell(Path::new("/bin/bash"), "-c");
        command.arg(line);
        Job::of(command, place.path("nvm")).end()
    };
    bash(&line).refused(2, &["`a b`", ":1) is not a host"]);
    bash(&line.replace("a b", "a,b")).refused(2, &["`a,b`", ":1) is not a host"]);
    let starter = format!("{} --set run.ssh=/bin/false", line.replace("a b", "localhost"));
    bash(&starter).refused(1, &["localhost"]);
}

/// What is there stays as it is unless `--force` is given, and then until the product is complete.
#[test]
fn an_output_that_exists_is_kept() {
    let place = with_matrices();
    fs::write(place.path("c.npy"), "precious").unwrap();
    place.refused("gemm a.npy b.npy -o c.npy", 1, &["c.npy exists", "--force"]);
    // The job itself fails: the old file survives even with --force.
    place.refused(
        "gemm a.npy b.npy -o c.npy --force --cache 2MiB --set nvm.directory=/no/such/folder",
        1,
        &["/no/such/folder", "create the folder first"],
    );
    assert_eq!(fs::read(place.path("c.npy")).unwrap(), b"precious");
    let ended = place.start("gemm a.npy b.npy -o c.npy --force --cache 2MiB").end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(fs::read(place.path("c.npy")).unwrap().len(), 128 + 300 * 300 * 8);
}

/// Not even with `--force`, and by whatever name: a slip of the hand would cost the data.
#[test]
fn an_input_is_not_replaced_by_the_product() {
    let place = with_matrices();
    fs::hard_link(place.path("a.npy"), place.path("link.npy")).unwrap();
    std::os::unix::fs::symlink("b.npy", place.path("soft.npy")).unwrap();
    let before = fs::read(place.path("a.npy")).unwrap();
    for (inputs, output) in [
        ("a.npy b.npy", "a.npy"),
        ("b.npy a.npy", "./nvm/../a.npy"),
        ("a.npy b.npy", "link.npy"),
        ("link.npy b.npy", "a.npy"),
        ("a.npy soft.npy", "b.npy"),
    ] {
        let line = format!("gemm {inputs} -o {output} --force");
        place.refused(&line, 1, &[&format!("{output} is the input "), "name another output"]);
    }
    assert_eq!(fs::read(place.path("a.npy")).unwrap(), before);
}

/// Before the work, not after it.
#[test]
fn an_output_name_that_is_too_long_is_refused_at_once() {
    let place = with_matrices();
    let (longest, too_long) = ("n".repeat(255), "n".repeat(256));
    let names = place.names();
    for force in ["", "--force"] {
        let line = format!("gemm a.npy b.npy {force} --set nvm.directory=/no/such/folder -o");
        place.refused(&format!("{line} {too_long}"), 1, &["cannot write nnn", "File name too long"]);
        // This one is good: what comes next fails.
        place.refused(&format!("{line} {longest}"), 1, &["/no/such/folder"]);
    }
    assert_eq!(place.names(), names);
}

/// Whatever a file or a command line holds: a terminal shows it, and a person can read it.
#[test]
fn words_of_strangers_are_shown_and_short() {
    let place = with_matrices();
    let long = "x".repeat(50_000);
    let header = |name: &str, descr: &str, key: &str| {
        let text = format!("{{'descr': '{descr}', '{key}': False, 'shape': (300, 300), }}");
        let mut file = b"\x93NUMPY\x02\x00".to_vec();
        file.extend((text.len() as u32).to_le_bytes());
        file.extend(text.bytes());
        file.resize(file.len() + 300 * 300 * 8, 0);
        fs::write(place.path(name), file).unwrap();
    };
    header("long.npy", &long, "fortran_order");
    header("red.npy", "\x1b[31m<f8\u{9b}2J", "fortran_order");
    header("key.npy", "<f8", &format!("\x1b]0;{long}\x07"));
    header("\x1b[31m.npy", "<i8", "fortran_order");
    fs::write(place.path("\x1b.toml"), format!("\"\x1b[31m{long}\" = 1\n")).unwrap();
    for words in [
        vec!["gemm", "long.npy", "b.npy", "-o", "c.npy"],
        vec!["gemm", "red.npy", "b.npy", "-o", "c.npy"],
        vec!["gemm", "key.npy", "b.npy", "-o", "c.npy"],
        vec!["gemm", "\x1b[31m.npy", "b.npy", "-o", "c.npy"],
        vec!["gemm", "a.npy", "b.npy", "-o", "no-such-\x1b[31m/c.npy"],
        vec!["config", "--config", "\x1b.toml"],
        vec!["config", "--set", "\x1b[31m=1"],
        vec!["config", "--set", &long],
        vec!["config", "--cache", &long],
        vec!["run", "-n", "\x1b[31m", "--", "true"],
        vec!["run", "-n", "1", "--host", "\x1b[31m", "--", "true"],
        vec!["run", "-n", "1", "--", "./no-such-\x1b[31m"],
        vec!["bench", "\x1b[31m"],
        vec!["\x1b[31m"],
    ] {
        let output = place.command("").args(&words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let first: Vec<String> = words.iter().map(|word| word.chars().take(20).collect()).collect();
        assert_ne!(output.status.code(), Some(0), "{first:?}");
        assert!(said.starts_with("vgas: ") && said.lines().count() <= 2, "{first:?}: {said:?}");
        assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{first:?}: {said:?}");
        assert!(said.lines().all(|line| line.chars().count() < 1200), "{first:?}: {said:?}");
    }
    // What to do about it is still there.
    place.refused("gemm long.npy b.npy -o c.npy", 1, &["holds an unknown type (xxx", "a.astype('<f8')"]);
}

#[test]
fn folders_that_cannot_take_files_are_named() {
    let place = with_matrices();
    for (output, words) in [
        ("no-such-folder/c.npy", &["cannot write in the folder no-such-folder", "No such file"][..]),
        ("/proc/c.npy", &["cannot write in the folder /proc"]),
        ("a.npy/c.npy", &["cannot write in the folder a.npy", "Not a directory"]),
    ] {
        place.refused(&format!("gemm a.npy b.npy -o {output}"), 1, words);
    }
    for (folder, words) in [
        ("/no/such/folder", &["agent of node ", "create the folder first"][..]),
        ("/proc", &["agent of node ", "/proc"]),
        ("/etc/passwd", &["agent of node ", "choose a folder"]),
    ] {
        let line =
            format!("gemm a.npy b.npy -o c.npy -n 2 --nodes 2 --cache 2MiB --set nvm.directory={folder}");
        place.refused(&line, 1, words);
        place.refused(&format!("demo --order 64 --set nvm.directory={folder}"), 1, &[folder]);
    }
    assert_eq!(place.names(), ["a.npy", "b.npy"]);
}

/// A later job that finds an older flush than the last one of a named segment goes on with it, and says so.
#[test]
fn a_lost_flush_of_a_named_segment_is_reported() {
    let place = Place::new();
    fs::create_dir(place.path("named")).unwrap();
    let flush = || {
        let folder = format!("--set nvm.directory={}", place.path("named").display());
        let ended = place.ranks("named", 1, &folder).end();
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stderr
    };
    assert!(!flush().contains("WARN"));
    assert!(!flush().contains("WARN"));
    // The second flush is in the first superblock: one byte of it, as a disk would damage it.
    let file = fs::read_dir(place.path("named")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();
    let said = flush();
    assert!(said.contains("went back to flush 1, a later one may be lost"), "{said}");
}

/// At whatever moment everything is killed, the output is whole or not there. The moments are spread over the run: first by
/// the processes that have begun, then by what they have read and written.
#[test]
fn a_killed_product_is_never_half_written() {
    let place = with_matrices();
    let mut unfinished = 0;
    for moment in 0..6 {
        let job = place.start("gemm a.npy b.npy -o c.npy -n 2 --cache 1MiB --page 4KiB");
        let all_begun = until(|| (job.processes().len() > moment.min(3)).then_some(()));
        all_begun.expect("the processes of the job begin");
        let far_enough = (moment as u64).saturating_sub(3) * 250_000;
        let came_there = until(|| {
            let processes = job.processes();
            let moved: u64 = processes.iter().map(|&pid| bytes_moved(pid)).sum();
            (moved >= far_enough || processes.is_empty()).then_some(())
        });
        came_there.expect("the job reads and writes, or ends");
        job.processes().into_iter().for_each(|pid| kill(pid, Signal::KILL));
        job.end();
        match fs::metadata(place.path("c.npy")) {
            Ok(found) => assert_eq!(found.len(), 128 + 300 * 300 * 8),
            Err(_) => unfinished += 1,
        }
        let _ = fs::remove_file(place.path("c.npy"));
        assert_eq!(place.names(), ["a.npy", "b.npy"]);
    }
    assert!(unfinished > 0, "every product was finished before it could be killed");
}

/// What a benchmark and the demo make for themselves is gone with them, whoever is killed, and however. Without this, each
/// leaves its matrices on the disk that the segments need. ([`Job::end`] looks.)
#[test]
fn matrices_made_for_a_run_are_gone_with_it() {
    for line in ["bench product --param order=256 --param samples=100000", "demo --order 1024 --cache 16MiB"]
    {
        let everybody: fn(&Job) -> Vec<i32> = Job::processes;
        let launcher = |job: &Job| vec![job.launcher()];
        let rank = |job: &Job| {
            let others = [vec![job.launcher()], job.daemons()].concat();
            job.processes().into_iter().find(|pid| !others.contains(pid)).into_iter().collect()
        };
        let victims = [
            (everybody, Signal::KILL),
            (launcher as fn(&Job) -> _, Signal::KILL),
            (launcher, Signal::TERM),
            (rank, Signal::KILL),
        ];
        let mut unfinished = 0;
        for (victims, signal) in victims {
            let place = Place::new();
            let mut job = place.start(line);
            // Both inputs are there, and are being read.
            let at_work = until(|| {
                let moved: u64 = job.processes().into_iter().map(bytes_moved).sum();
                (job.processes().len() >= 5 && moved > 2_000_000).then_some(())
            });
            at_work.expect("the job makes its matrices");
            job.mishap(|job| victims(job).into_iter().for_each(|pid| kill(pid, signal)));
            unfinished += usize::from(job.end().code != 0);
        }
        assert!(unfinished > 0, "every run of {line} was finished before anybody could be killed");
    }
}

/// Bytes that a process has read and written so far; 0 for one that is gone.
fn bytes_moved(pid: i32) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let of = |name: &str| counts.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    of("rchar:").unwrap_or(0) + of("wchar:").unwrap_or(0)
}
