//! Goal: the command as users meet it. Every mistake is one line that says what is wrong and one that says what to do,
//! on standard error, with the agreed exit status; what machines read is valid JSON on standard output and nothing else.
//! Jobs themselves are tested where they are made (vgas-rma, vgas).

use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

/// The command in an environment without settings.
fn vgas(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vgas"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("VGAS_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn output(mut command: Command) -> Output {
    output_of(&mut command)
}

fn output_of(command: &mut Command) -> Output {
    let child = command.stderr(Stdio::piped()).spawn().expect("the command can be started");
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// Expects a refusal with this status, message and hint; nothing may appear on standard output.
fn refused(command: Command, status: i32, message: &str, hint: &str) {
    let output = output(command);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert_eq!(text(&output.stdout), "");
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(lines[0].starts_with("vgas: ") && lines[0].contains(message), "{error}");
    assert!(lines[1].starts_with("hint: ") && lines[1].contains(hint), "{error}");
}

#[test]
fn mistakes_are_one_line_and_a_hint() {
    refused(vgas(&[]), 2, "no command", "vgas --help");
    refused(vgas(&["rum"]), 2, "unrecognized subcommand 'rum'", "'run'");
    refused(vgas(&["run", "-n", "2"]), 2, "were not provided: <PROGRAM>", "usage: vgas run");
    refused(
        vgas(&["run", "-n", "2", "--nodes", "3", "--", "true"]),
        2,
        "2 ranks cannot be spread",
        "every node",
    );
    refused(vgas(&["config", "--set", "cache.sise=1GiB"]), 2, "unknown setting `cache.sise`", "`cache.size`");
    refused(vgas(&["config", "--page", "48KiB"]), 2, "it is not a power of two", "`64KiB`");
    refused(vgas(&["config", "--cache", "1GB"]), 2, "which could mean powers of ten or of two", "`4MiB`");
    refused(
        vgas(&["run", "-n", "1", "--conduit", "udp", "true"]),
        2,
        "is none of the choices",
        "`smp`, `tcp`",
    );
    refused(
        vgas(&["run", "-n", "2", "--cach", "1GiB", "--", "true"]),
        2,
        "unexpected argument '--cach' found",
        "a similar argument exists: '--cache'",
    );
    refused(vgas(&["run", "-n", "2", "-x", "true"]), 2, "unexpected argument '-x' found", "");
    refused(vgas(&["bench", "no-such"]), 2, "no benchmark is named `no-such`", "vgas bench --list");
}

#[test]
fn a_misspelt_variable_is_refused() {
    let mut command = vgas(&["config"]);
    command.env("VGAS_CACHE_PAGES", "4KiB");
    refused(command, 2, "unknown environment variable `VGAS_CACHE_PAGES`", "`VGAS_CACHE_PAGE`");
    let mut command = vgas(&["config"]);
    command.env("VGAS_LOG", "vgas=loud");
    refused(command, 2, "`VGAS_LOG=vgas=loud` is refused", "`vgas_cache=debug`");
}

#[test]
fn effective_settings_show_where_they_come_from() {
    let mut command = vgas(&["config", "--json", "--cache", "1GiB"]);
    command.env("VGAS_CACHE_PAGE", "4096");
    let output = output(command);
    assert!(output.status.success());
    let settings: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let find = |name: &str| settings.iter().find(|setting| setting["name"] == name).expect("listed");
    assert_eq!(
        (&find("cache.size")["value"], &find("cache.size")["origin"]),
        (&"1GiB".into(), &"--cache".into())
    );
    assert_eq!(find("cache.page")["value"], "4KiB");
    assert_eq!(find("cache.page")["source"], "environment");
    assert_eq!(find("ablation.checksums")["source"], "default");
}

#[test]
fn info_is_for_people_and_machines() {
    let people = output(vgas(&["info"]));
    assert!(people.status.success());
    let has_ofi = text(&people.stdout)
        .lines()
        .any(|line| line.trim_start().starts_with("ofi ") && line.contains("libfabric"));
    assert!(has_ofi, "{}", text(&people.stdout));
    let machines = output(vgas(&["info", "--json"]));
    let report: Value = serde_json::from_slice(&machines.stdout).expect("JSON");
    assert!(report["facts"].as_array().is_some_and(|facts| facts.len() > 10));
}

/// Goal: who looks for a heap where none is, or where files are damaged, is told so in a line, and what to do.
#[test]
fn heaps_at_rest_are_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("text");
    let hint = "`Objects::attach_named`";
    refused(vgas(&["objects", place]), 1, "holds no heap of objects", hint);
    let settings = format!("nvm.directory={place}");
    refused(vgas(&["objects", "store", "--set", &settings]), 1, "\"store\" in ", hint);
    for bytes in [&b""[..], b"vgas seg", &[0xff; 9000]] {
        std::fs::write(folder.path().join("store.0.0.vgas"), bytes).expect("it is written");
        refused(vgas(&["objects", "store", "--set", &settings]), 1, "store.0.0.vgas: ", hint);
    }
}

/// Goal: who looks for a job that does not run is told so in a line, whatever else runs here.
#[test]
fn heaps_of_no_job_are_looked_for() {
    let hint = "`Objects::finalize`";
    let none = "process 4294967295 is of no job that runs on this machine";
    refused(vgas(&["objects", "--running=4294967295"]), 1, none, hint);
    refused(vgas(&["objects", "--running=4294967295", "--json"]), 1, none, hint);
    let no_number = output(vgas(&["objects", "--running=kv"]));
    assert_eq!(no_number.status.code(), Some(2));
    assert!(
        text(&no_number.stderr).contains("'kv'")
            && text(&no_number.stderr).contains("the number of a process")
    );
    refused(vgas(&["objects", "store", "--running"]), 2, "cannot be used with '--running[=<PID>]'", "");
    refused(vgas(&["objects"]), 2, "were not provided: <NAME|FOLDER>", "usage: vgas objects");
}

#[test]
fn version_help_completions_and_manual_are_printed() {
    for (arguments, expected) in [
        (&["--version"][..], concat!("vgas ", env!("CARGO_PKG_VERSION"), "\n")),
        (&["--help"], "Examples:"),
        (&["gemm", "--help"], "vgas gemm A.npy B.npy -o C.npy"),
        (&["completions", "bash"], "complete -F _vgas"),
        (&["man"], ".SH SYNOPSIS"),
        (&["config", "--template"], "# size = \"auto\""),
    ] {
        let output = output(vgas(arguments));
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains(expected), "{arguments:?}");
    }
}

/// `vgas man | head -1`: a reader that goes away early is no failure and no panic.
#[test]
fn a_reader_may_go_away() {
    let mut command = vgas(&["completions", "zsh"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let mut error = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut error).expect("UTF-8");
    assert_eq!(error, "");
    assert!(child.wait().expect("it ends").success());
}

/// Nothing that a user writes is silently without effect, and nothing wrong is found out after processes were started.
#[test]
fn what_a_benchmark_cannot_heed_is_refused_before_it_starts() {
    let words = |line: &'static str| vgas(&line.split(' ').collect::<Vec<_>>());
    for (line, message) in [
        ("bench start -n 4", "start takes no -n: it starts jobs of its own"),
        ("bench cooperative --nodes 2", "cooperative takes no --nodes: "),
        ("bench start --host a,b", "start takes no --host: "),
        ("bench start --cache 64MiB", "start takes no cache.size (--cache): "),
        ("bench cooperative --set ablation.cooperative=on", "cooperative takes no ablation.cooperative"),
        ("bench device --page 4KiB", "device takes no cache.page (--page): it runs in no job"),
    ] {
        refused(words(line), 2, message, "vgas bench --list");
    }
    for (line, message, hint) in [
        ("bench all", "`vgas bench all` needs a folder", "--out FOLDER"),
        ("bench all --out x --only no-such", "no benchmark is named `no-such`", "--list"),
        ("bench all --out x --json y", "all takes no --json", "vgas bench NAME"),
        ("bench hit --out x", "hit takes no --out", "vgas bench all"),
        ("bench hit old new", "hit takes no files", "vgas bench compare OLD NEW"),
        ("bench compare", "`vgas bench compare` needs two files", "OLD NEW"),
        ("bench compare --param a=b old new", "compare takes no --param", "vgas bench NAME"),
    ] {
        refused(words(line), 2, message, hint);
    }
    for (line, message) in [
        ("bench product --param dtype=i8", "product: parameter `dtype` is `f64` or `f32`, not `i8`"),
        ("bench product --param order=4294967296", "product: parameter `order` is at most 1000000"),
        ("bench gemm --param order=4294967296", "gemm: parameter `order` is at most 100000"),
        ("bench gemm --param nodes=3", "gemm: `nodes` is a power of two, at most 64"),
        ("bench false-sharing --param nodes=3", "false-sharing: `nodes` is a power of two, at most 64"),
        ("bench gups --param mebibytes=3", "gups: `mebibytes` is a power of two"),
        ("bench replacement --param frames=1", "replacement: at most 1024 nodes, 16 to"),
        ("bench rma --param conduits=smp,udp", "rma: no conduit is named `udp`: smp, tcp, ibv, ofi"),
        ("bench pair --param cores=zz", "pair: parameter `cores` is `apart`, `together` or `any`, not `zz`"),
        ("bench cold-random --param depth=1000000", "cold-random: parameter `depth` is at most 4096"),
        ("bench cold-random --param samples=1000", "blocks are too few for 1000 samples"),
        (
            "bench cold-seq --param mebibytes=99999999999999",
            "parameter `mebibytes` is more than any disk has",
        ),
        (
            "bench start --param cache=zz",
            "start: a job of its own failed: `cache.size = zz` (--cache) is refused",
        ),
        ("bench protocol --param least=5000", "protocol: `least` and `most` are powers of two from 4096"),
        ("bench seq-nodes --param nodes=3", "seq: `nodes` is a power of two, at most 64"),
        ("bench device --param mebibytes=8796093022207", "device: needs 8796093022207 MiB in "),
        ("bench device --param mebibytes=99999999999999", "parameter `mebibytes` is more than any disk has"),
        ("bench cold-seq --param mebibytes=999999999", "needs "),
    ] {
        let output = output(words(line));
        let error = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{line}: {error}");
        assert!(error.starts_with("vgas: ") && error.contains(message), "{line}: {error}");
        assert_eq!(error.lines().count(), 1, "{line}: {error}");
    }
}

/// What the benchmark does not decide reaches the jobs that it starts: here, a setting that they refuse.
#[test]
fn jobs_of_a_benchmark_have_the_users_settings() {
    for flags in [&["--page", "4MiB"][..], &["--set", "cache.page=4MiB"]] {
        let line = [&["bench", "start", "--param", "cache=1MiB", "--param", "samples=1"], flags].concat();
        let output = output(vgas(&line));
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("a job of its own failed: ") && error.contains("4MiB"), "{error}");
    }
}

/// The values of rows whose case and parameters contain these words.
fn values(rows: &Value, case: &str, parameter: (&str, u64)) -> Vec<f64> {
    let rows = rows.as_array().expect("rows").iter();
    let wanted = rows.filter(|row| row["case"] == case && row["params"][parameter.0] == parameter.1);
    wanted.map(|row| row["value"].as_f64().expect("a number")).collect()
}

/// Goal: in a virtual cluster pages come from where a figure says, no faster than the link takes them, and cooperation spares the
/// drive what it says. Figures of time are not looked at beyond that.
#[test]
fn a_virtual_cluster_shows_what_it_has() {
    let json = |line: &str| -> Value {
        let output = output(vgas(&line.split(' ').collect::<Vec<_>>()));
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let rows = json(
        "bench protocol --param pages=2 --param samples=2 --param least=65536 --param most=65536 --json -",
    );
    for source in ["the home's NVMe", "the home's DRAM", "a third node's DRAM"] {
        let page = ("page_bytes", 65536);
        assert_eq!(values(&rows, &format!("share that came from {source}"), page), [1.0], "{source}");
        let [rate] = values(&rows, &format!("from {source}"), page)[..] else {
            panic!("one rate from {source}")
        };
        assert!(rate > 0.0 && rate < 125.0, "{rate} MB/s from {source} over 1 Gbit/s");
    }
    let rows = json(
        "bench random --param nodes=2 --param cache=2 --param small=1 --param large=3 --param samples=1 \
         --link 4gbit --nvm 1GiB --json -",
    );
    for (data, most) in [(1, 1.5), (3, 2.5)] {
        let data = ("data_bytes", data << 20);
        for (case, most) in [("", most), (", without cooperation", 2.5)] {
            let found = values(&rows, &format!("pages from NVMe for each page{case}"), data);
            assert!(
                found.len() == 2 && found.iter().all(|pages| (0.9..most).contains(pages)),
                "{case}: {found:?}"
            );
        }
    }
}

/// A disk that is full is a failure, of one line, whoever prints: the command itself, or a rank of it.
#[test]
fn output_that_cannot_be_written_is_reported_once() {
    for line in ["--help", "--version", "info", "gemm --help", "demo --order 64 --cache 16MiB"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("every Linux has it");
        let mut command = vgas(&line.split(' ').collect::<Vec<_>>());
        let output = output_of(command.stdout(full));
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {error}");
        let expected = "cannot write to standard output: No space left";
        assert!(error.starts_with("vgas: ") && error.contains(expected), "{line}: {error}");
        assert_eq!(error.lines().count(), 1, "{line}: {error}");
    }
}

/// Goal: a program with three segments of different pages and policies, locks, counters and a service of its own at the homes finds
/// everything as it should be, on one node and on several.
#[test]
fn the_warehouse_fits_together() {
    let program =
        std::path::Path::new(env!("CARGO_BIN_EXE_vgas")).with_file_name("examples").join("warehouse");
    if !program.exists() {
        return eprintln!("skipped: {} is not built (cargo build --examples)", program.display());
    }
    let program = program.to_str().expect("a path in UTF-8");
    for (ranks, nodes) in [("2", "1"), ("4", "2"), ("3", "3")] {
        let words = ["run", "--own-nodes", "-n", ranks, "--nodes", nodes, "--cache", "16MiB", "--", program];
        let output = output(vgas(&words));
        let (said, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(
            (output.status.code(), error.as_str()),
            (Some(0), ""),
            "{ranks} ranks, {nodes} nodes: {said}"
        );
        assert!(said.ends_with(" lines, and it fits together\n"), "{said}");
    }
}

/// The job's status is the command's, and a job needs no program of ours.
#[test]
fn a_job_ends_with_the_status_of_its_ranks() {
    for (script, status) in [("exit 0", 0), ("exit 7", 7)] {
        let output =
            output(vgas(&["run", "-n", "2", "--nodes", "2", "--cache", "16MiB", "--", "sh", "-c", script]));
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
    }
    let output = output(vgas(&["run", "-n", "2", "--cache", "16MiB", "--label", "--", "echo", "here"]));
    let mut lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["[rank 0] here", "[rank 1] here"], "{}", text(&output.stderr));
}

/// Goal: the counters of a job, and of each rank and agent, whose sums they are.
#[test]
fn counters_are_printed_at_the_end() {
    let output = output(vgas(&[
        "demo",
        "--order",
        "256",
        "--cache",
        "1MiB",
        "--set",
        "stats.print=each",
        "--set",
        "cache.page=4KiB",
    ]));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let mut sums = std::collections::BTreeMap::<(bool, &str), u64>::new();
    let mut owners = Vec::new();
    for line in said.lines() {
        match line.strip_suffix(':') {
            Some(owner) => owners.push(owner),
            None => {
                let mut words = line.split_whitespace();
                if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse::<u64>)) {
                    *sums.entry((owners.last() == Some(&"all"), name)).or_default() += value;
                }
            }
        }
    }
    assert_eq!(owners, ["rank 0", "the agent of node 0", "rank 1", "the agent of node 1", "all"], "{said}");
    let side =
        |all| sums.iter().filter(move |((of, _), _)| *of == all).map(|((_, name), value)| (*name, *value));
    assert!(side(true).eq(side(false)) && sums[&(true, "get_hits")] > 0, "{said}");
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let output = output(vgas(&["run", "-n", "2", "--cache", "16MiB", "--", "/no/such/program"]));
    assert_eq!(output.status.code(), Some(127));
    let error = text(&output.stderr);
    assert!(error.starts_with("vgas: ") && error.contains("/no/such/program"), "{error}");
}

/// A script that is there is not said to be missing: what it wants to be run by is.
#[test]
fn a_missing_interpreter_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#! /no/such/python3 -u\nprint()\n").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o700)).unwrap();
    for (program, path) in [(script.to_str().unwrap(), None), ("script", Some(folder.path()))] {
        let mut command = vgas(&["run", "-n", "2", "--cache", "16MiB", "--", program]);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = output(command);
        assert_eq!(output.status.code(), Some(127));
        let error = text(&output.stderr);
        let expected = format!("vgas: cannot start {program}: its interpreter /no/such/python3 is missing");
        assert!(error.starts_with(&expected) && error.lines().count() == 1, "{error}");
    }
}

/// The neighbours that a process has started and that still run.
fn neighbours_of(parent: u32) -> usize {
    let of_it = format!("neighbour\0{parent}\0");
    let processes = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).ends_with(&of_it)).count()
}

fn comes_true(mut condition: impl FnMut() -> bool) {
    let within = std::time::Duration::from_secs(60);
    assert!(vgas_testing::until(within, || condition().then_some(())).is_some(), "not within a minute");
}

/// Goal: a figure can be taken beside processes that compute, says so, and leaves none of them, however it ends.
#[test]
fn busy_neighbours_are_there_while_it_measures_and_gone_afterwards() {
    let arguments =
        ["bench", "device", "--busy", "2", "--param", "mebibytes=256", "--param", "samples=1", "--json", "-"];
    let mut child = vgas(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    let of = child.id();
    comes_true(|| neighbours_of(of) == 2 || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["params"]["busy"] == 2), "{rows:?}");
    assert_eq!(neighbours_of(of), 0);

    let arguments = ["bench", "device", "--busy", "1", "--param", "mebibytes=1024"];
    let mut child = vgas(&arguments).stderr(Stdio::null()).spawn().unwrap();
    let of = child.id();
    comes_true(|| neighbours_of(of) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    comes_true(|| neighbours_of(of) == 0);
}
