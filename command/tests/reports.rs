//! Goal: the benchmarks of a report measure what they say, in sizes that take seconds; a report is a folder of a page, rows and pictures,
//! or nothing at all; two of them are compared. Figures of time are not looked at.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn vgas(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vgas"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("VGAS_") {
            command.env_remove(name);
        }
    }
    command.args(line.split(' ')).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn done(line: &str) -> Output {
    let output = vgas(line).output().expect("the command can be started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    output
}

fn rows(line: &str) -> Vec<Value> {
    let output = done(&format!("{line} --json -"));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Values of the rows of a case, by a parameter that is a number.
fn values(rows: &[Value], case: &str, metric: &str, by: &str) -> Vec<(u64, f64)> {
    let rows = rows.iter().filter(|row| row["case"] == case && row["metric"] == metric);
    rows.map(|row| (row["params"][by].as_u64().unwrap_or(0), row["value"].as_f64().expect("a number")))
        .collect()
}

#[test]
fn one_byte_puts_are_measured_in_every_way() {
    let rows = rows(
        "bench false-sharing --param nodes=2 --param puts=40 --param migrating=4 --param samples=1 --link none --nvm none",
    );
    for way in [
        "all that vgas does",
        "without cooperation",
        "without service in place",
        "without both",
        "pinned segment",
    ] {
        for what in ["put of each rank", "put and barrier"] {
            let found = values(&rows, &format!("{what}, {way}"), "time", "nodes");
            assert!(
                found.len() == 2 && found.iter().all(|(_, time)| *time > 0.0),
                "{what}, {way}: {found:?}"
            );
        }
    }
    let served = values(&rows, "served in place for each put, without both", "count", "nodes");
    assert_eq!(served, [(1, 0.0), (2, 0.0)]);
}

/// Goal: every update of random words is made once, in tables that caches hold and do not hold, and in pinned ones.
#[test]
fn random_updates_are_verified() {
    let rows = rows(
        "bench gups --param mebibytes=64 --param updates=3000 --param samples=1 --cache 8MiB -n 3 --nodes 2",
    );
    for table in ["tiered, in the caches", "tiered, larger than the caches", "pinned"] {
        assert_eq!(values(&rows, &format!("wrong words, {table}"), "count", "nodes"), [(2, 0.0)]);
        assert!(values(&rows, table, "rate", "nodes")[0].1 > 0.0);
    }
}

#[test]
fn accesses_and_collectives_are_measured_by_size_and_conduit() {
    let rows = rows("bench rma --param samples=1 --param ranks=2");
    for conduit in ["smp", "tcp"] {
        let of: Vec<Value> = rows.iter().filter(|row| row["params"]["conduit"] == conduit).cloned().collect();
        let sizes = |case, metric| {
            values(&of, case, metric, "bytes").into_iter().map(|(bytes, _)| bytes).collect::<Vec<_>>()
        };
        assert_eq!(sizes("put", "latency"), [8, 64, 512, 4096, 32_768, 262_144, 2_097_152]);
        assert_eq!(sizes("message and back", "latency"), [8, 64, 512, 4096, 32_768]);
        assert_eq!(sizes("puts of both, 16 in flight each", "rate").len(), 5);
        assert_eq!(values(&of, "barrier", "time", "ranks").len(), 1);
    }
}

#[test]
fn products_are_measured_by_nodes_and_kind() {
    let rows = rows("bench gemm --param order=192 --param nodes=2 --param samples=1 --link none --nvm none");
    for case in
        ["in memory", "out of core", "out of core, without cooperation", "pinned", "the library, in memory"]
    {
        let found = values(&rows, case, "rate", "nodes");
        assert_eq!(found.iter().map(|(nodes, _)| *nodes).collect::<Vec<_>>(), [1, 2, 1, 2], "{case}");
    }
}

/// Goal: pointers are measured for every working set, beside a mapped file where control groups can be made, and no group is left, also by
/// a job that is stopped.
#[test]
fn pointers_are_measured_beside_a_mapped_file() {
    let line = "bench local --cache 8MiB --page 4KiB --param samples=1 --param round=5";
    let output = done(&format!("{line} --json -"));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let error = String::from_utf8_lossy(&output.stderr);
    let is_limited = !error.contains("the rows of mmap are skipped");
    let times = |case: &str| {
        let found = values(&rows, case, "time", "threads");
        assert!(found.iter().all(|(_, time)| *time > 0.0), "{case}: {found:?}");
        found.into_iter().map(|(threads, _)| threads).collect::<Vec<_>>()
    };
    for (case, threads) in [
        ("first load in DRAM, apart", &[1][..]),
        ("fill of a new segment, in order", &[1]),
        ("load apart, 1/8 of the cache", &[1, 2]),
        ("store in order, 0.95 of the cache", &[1, 2]),
        ("scan, 4 times the cache", &[1, 2]),
        ("load and store apart, 4 times the cache", &[1, 2]),
    ] {
        assert_eq!(times(case), threads, "{case}");
        assert_eq!(times(&format!("{case}, mmap")), if is_limited { threads } else { &[] }, "{case}");
    }
    if !is_limited {
        return eprintln!("skipped: {error}");
    }
    // The rank that has made a group is in the group's name.
    let mark = format!("seed={}", std::process::id());
    let group = || {
        let folders = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"].map(std::fs::read_dir);
        folders.into_iter().flatten().flatten().flatten().map(|folder| folder.path()).find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let rank = name.strip_prefix("vgas-").and_then(|name| name.strip_suffix("-0-mmap"));
            let line = rank.and_then(|rank| std::fs::read_to_string(format!("/proc/{rank}/cmdline")).ok());
            line.is_some_and(|line| line.contains(&mark))
        })
    };
    // However the launcher ends, and with it the rank.
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        let mut job =
            vgas(&format!("{line} --param {mark} --param samples=1000")).spawn().expect("it starts");
        let mut made = None;
        comes_true(|| {
            made = group();
            let members = made.as_ref().map(|path| std::fs::read_to_string(path.join("cgroup.procs")));
            members.is_some_and(|members| members.is_ok_and(|members| !members.is_empty()))
        });
        let launcher = rustix::process::Pid::from_child(&job);
        rustix::process::kill_process(launcher, signal).expect("it runs");
        assert!(!job.wait().expect("it ends").success());
        let made = made.expect("a group");
        comes_true(|| !made.exists());
    }
}

#[test]
fn the_drive_is_read_and_written() {
    let rows = rows("bench device --param mebibytes=256 --param samples=1 --param sample=1");
    for case in ["random read", "sequential read", "random write", "sequential write"] {
        let found = values(&rows, case, "rate", "bytes");
        assert!(found.len() == 18 && found.iter().all(|(_, rate)| *rate > 0.0), "{case}: {found:?}");
    }
    assert_eq!(values(&rows, "plain", "operations", "depth").len(), 3);
}

/// Goal: a report has a page with pictures inline, the rows, and the pictures as files; it is compared with itself and with one that counts
/// more; pictures can be drawn again from its rows.
#[test]
fn a_report_is_one_folder_that_can_be_compared() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path().join("report");
    let path = folder.to_str().expect("a path in UTF-8");
    done(&format!("bench all --out {path} --only messages,replacement --busy 1"));
    let page = std::fs::read_to_string(folder.join("index.html")).expect("a page");
    for words in [
        "vgas bench messages --busy=1",
        "How often does an access read NVMe",
        "<svg ",
        "<b>Measured:</b>",
        "kernel",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(folder.join("replacement-nvm.svg").exists() && folder.join("replacement-nvm-busy.svg").exists());
    let rows = std::fs::read_to_string(folder.join("rows.json")).expect("rows");
    let mut all: Vec<Value> = serde_json::from_str(&rows).expect("JSON");
    assert!(all.iter().any(|row| row["params"]["busy"] == 1));

    // A report that was stopped after its first benchmark: the rest is run, the first is not.
    let runs = std::fs::read_to_string(folder.join("runs.json")).expect("runs");
    let runs: Vec<Value> = serde_json::from_str(&runs).expect("JSON");
    let first = serde_json::to_string(&runs[..1]).expect("JSON");
    std::fs::write(folder.join("runs.json"), first).expect("it can be written");
    let resumed = done(&format!("bench all --out {path} --only messages,replacement --busy 1 --resume"));
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert_eq!(said.matches("measured before").count(), 1, "{said}");
    let again = std::fs::read_to_string(folder.join("rows.json")).expect("rows");
    assert_eq!(serde_json::from_str::<Vec<Value>>(&again).expect("JSON").len(), all.len());

    let same = done(&format!("bench compare {path} {path} --fail"));
    let said = String::from_utf8_lossy(&same.stdout).into_owned();
    assert!(said.contains("0 slower, 0 faster") && said.contains("counts: 0 more, 0 fewer"), "{said}");
    let messages = all.iter_mut().find(|row| row["metric"] == "messages").expect("a count");
    let case = messages["case"].as_str().expect("a text").to_owned();
    messages["value"] = 99.into();
    messages["samples"] = vec![99].into();
    let worse = place.path().join("worse.json");
    std::fs::write(&worse, serde_json::to_string(&all).expect("JSON")).expect("it can be written");
    let worse = worse.to_str().expect("a path in UTF-8");
    done(&format!("bench compare {path} {worse}"));
    let output = vgas(&format!("bench compare {path} {worse} --fail")).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with(&format!("more    messages: {case}")), "{said}");

    let again = place.path().join("again.svg");
    done(&format!("bench replacement --rows {path}/rows.json --plot {}", again.display()));
    assert!(
        std::fs::read_to_string(again).expect("a picture").contains("How often does an access read NVMe")
    );
}

/// Whether a process has this word among its arguments.
fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    let mut lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).split('\0').any(|argument| argument.contains(word)))
}

fn comes_true(mut condition: impl FnMut() -> bool) {
    let within = std::time::Duration::from_secs(60);
    assert!(vgas_testing::until(within, || condition().then_some(())).is_some(), "not within a minute");
}

/// Goal: who stops a report finds no folder, no job and no neighbour afterwards.
#[test]
fn a_report_that_is_stopped_leaves_nothing() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path().join("report");
    // A word that is in all of its processes' arguments, and in nobody else's.
    let mark = place.path().join("nvm");
    std::fs::create_dir(&mark).expect("a folder");
    let mark = mark.to_str().expect("a path in UTF-8").to_owned();
    let line = format!("bench all --only seq --out {} --set nvm.directory={mark}", folder.display());
    let child = vgas(&line).spawn().expect("it starts");
    let of_a_rank = |line: &str| runs(line) && is_busy(Path::new(&mark));
    comes_true(|| of_a_rank(&mark));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!folder.exists());
    comes_true(|| !runs(&mark));
    assert_eq!(std::fs::read_dir(&mark).expect("a folder").count(), 0);
}

/// Whether a job has its segments in this folder: files without a name, which some process holds open.
fn is_busy(folder: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    let files =
        processes.filter_map(|process| std::fs::read_dir(process.path().join("fd")).ok()).flatten().flatten();
    let mut paths = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    paths.any(|path| path.starts_with(folder))
}

/// Goal: a limit of memory holds for all of a benchmark, says so in its rows, and is gone with it, also when it is stopped. What needs
/// something that is not there ends with 77 and one line.
#[test]
fn a_limit_of_memory_is_there_while_it_measures() {
    let groups = || -> Vec<String> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"].map(std::fs::read_dir);
        let entries = roots.into_iter().flatten().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let line = "bench cold-seq --memory 160MiB --param samples=1 --param mebibytes=16 --cache 16MiB --json -";
    let output = vgas(line).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        assert!(
            error.starts_with("vgas: cold-seq: cannot run here: ") && error.lines().count() == 1,
            "{error}"
        );
        return eprintln!("skipped: {error}");
    }
    assert!(output.status.success(), "{error}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(rows.iter().all(|row| row["params"]["memory_bytes"] == 160 << 20));
    // A job sees the limit, and refuses what does not fit.
    let output = vgas("bench cold-seq --memory 32MiB --cache 64MiB").output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("into the 32MiB of memory"), "{error}");

    let child = vgas("bench cold-seq --memory 256MiB --param samples=1000 --param mebibytes=1")
        .spawn()
        .expect("it starts");
    let group = format!("vgas-{}-0-bench", child.id());
    let joined = || {
        let paths = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"]
            .map(|root| Path::new(root).join(&group).join("cgroup.procs"));
        paths
            .iter()
            .any(|path| std::fs::read_to_string(path).is_ok_and(|members| members.lines().count() > 2))
    };
    comes_true(joined);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!groups().contains(&group));
}

/// Goal: a benchmark that lacks something here says what in one line, and ends with a status of its own; so does a report go on.
#[test]
fn what_cannot_run_here_is_skipped_and_says_why() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let mut command = vgas("bench gemm-files");
    // Without any python3.
    let output = command.env("PATH", place.path()).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error, "vgas: gemm-files: cannot run here: there is no python3 with numpy\n");
    assert_eq!(output.status.code(), Some(77));
    let folder = place.path().join("report");
    let mut command = vgas(&format!("bench all --only gemm-files,messages --out {}", folder.display()));
    let output = command.env("PATH", place.path()).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(folder.join("index.html")).expect("a page");
    assert!(page.contains("skipped: gemm-files: cannot run here: there is no python3 with numpy"));
}
