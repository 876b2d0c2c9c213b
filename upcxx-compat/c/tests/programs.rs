//! C programs as whole jobs, each over the conduits, thread modes and numbers of ranks that matter to it.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, Conduit, Mode, tiered};

/// Goal: the smallest client works in every configuration: it starts itself, attaches, puts, and is answered.
#[test]
fn ring() {
    let bench = Bench::new();
    for conduit in [Conduit::Smp, Conduit::Tcp] {
        for mode in Mode::ALL {
            let program = bench.program("ring", conduit, mode);
            program.pass(1, &[], &[]);
            program.pass(3, &[], &[]);
        }
    }
    let program = bench.program("ring", Conduit::Tcp, Mode::Par);
    program.pass(4, &[("VGASNET_NODES", "2")], &[]);
    program.pass(4, &[("VGASNET_NODES", "3"), ("VGAS_CONDUIT", "smp")], &[]);
}

/// Goal: whoever ends the job, and how: it ends soon, with that status, silently, with nothing printed lost and no
/// process left.
#[test]
fn exit() {
    let bench = Bench::new();
    let ways = ["call", "stdlib", "return", "handler", "remote", "thread", "signal", "unattached"];
    let everybody = ways.iter().map(|way| (*way, "3", "-1", "compute"));
    let somebody =
        [("call", "4", "0", "compute"), ("return", "0", "1", "poll"), ("handler", "5", "2", "barrier")];
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        let program = bench.program("exit", conduit, Mode::Par);
        for (how, status, who, others) in everybody.clone().chain(somebody) {
            let began = std::time::Instant::now();
            let output = program.run(3, &[("VGASNET_NODES", nodes)], &[how, status, who, others]);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let what = format!("{how} {status} {who} {others}: {output:?}");
            assert_eq!(output.status.code(), status.parse().ok(), "{what}");
            assert!(output.stderr.is_empty(), "{what}");
            assert!(began.elapsed().as_secs() < 20, "{what}");
            if who == "-1" && how != "unattached" {
                assert_eq!(text.matches("printed this").count(), 3, "{what}");
            }
        }
        let output = program.run(3, &[("VGASNET_NODES", nodes)], &["call", "6", "1", "catch"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            (output.status.code(), text.matches("caught SIGQUIT").count()),
            (Some(6), 3),
            "{output:?}"
        );
    }
}

/// Goal: ranks that others end keep what they have printed, also when a shell has started the job in the background: it lets
/// programs ignore SIGQUIT then, by which the job asks ranks to end.
#[test]
fn exit_in_the_background() {
    let bench = Bench::new();
    let program = bench.program("exit", Conduit::Smp, Mode::Par);
    let command = program.command(3, &["call", "4", "0", "compute"]);
    let output = std::process::Command::new("sh")
        .args(["-c", "trap '' INT QUIT; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args())
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((output.status.code(), text.matches("printed this").count()), (Some(4), 3), "{output:?}");
}

/// Goal: what a rank has printed comes once, also when it is told to end (SIGQUIT) while it writes. Its pipe is full until then,
/// so that the signal ends the write half-way. (The job may kill it before all has come.)
#[test]
fn exit_while_writing() {
    let bench = Bench::new();
    let program = bench.program("flush", Conduit::Smp, Mode::Seq);
    let printed: String = (0..10000).map(|number| format!("{number}\n")).collect();
    let mut command = program.command(1, &[]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut rank = String::new();
    let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
    said.read_line(&mut rank).expect("standard error is readable");
    let (deadline, mut naps) = (Instant::now() + Duration::from_secs(60), 0);
    while rustix::io::ioctl_fionread(child.stdout.as_ref().expect("it is piped")).expect("a pipe") < 4096 {
        assert!(Instant::now() < deadline, "{rank} does not write");
        vgas_shm::cores::nap(&mut naps);
    }
    // It may be gone already.
    let _ = Command::new("sh").args(["-c", "kill -QUIT $0", rank.trim()]).stderr(Stdio::null()).status();
    let output = support::finish(child, "a client that is ended while it writes");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.starts_with(&text), "{} bytes of {}", text.len(), printed.len());
}

/// Goal: the core interface does what it promises, call by call, to oneself, to co-located ranks and over the network.
#[test]
fn core() {
    let bench = Bench::new();
    for mode in Mode::ALL {
        let program = bench.program("core", Conduit::Tcp, mode);
        program.pass(1, &[], &["null"]);
        program.pass(2, &[("VGASNET_NODES", "2")], &[]);
    }
    let program = bench.program("core", Conduit::Tcp, Mode::Par);
    program.pass(4, &[("VGASNET_NODES", "2")], &[]);
    let program = bench.program("core", Conduit::Smp, Mode::Seq);
    program.pass(3, &[], &[]);
    // All that is offered may be attached, by everybody at once.
    program.pass(4, &[], &["all"]);
    program.pass(2, &tiered("1"), &["all"]);
    program.pass(3, &tiered("1"), &[]);
    program.pass(4, &tiered("2"), &[]);
    bench.program("core", Conduit::Tcp, Mode::Par).pass(3, &tiered("2"), &[]);
    program.pass(2, &[("GASNET_MAX_SEGSIZE", "24MB")], &["all"]);
}

fn seed() -> String {
    std::env::var("VGAS_TEST_SEED").unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.subsec_nanos()).to_string()
    })
}

/// Goal: random operations in all forms against a model, each checked; barriers with all kinds of names. A failure shows
/// the seed; VGAS_TEST_SEED replays it.
#[test]
fn extended() {
    let (bench, seed) = (Bench::new(), seed());
    for mode in Mode::ALL {
        let program = bench.program("extended", Conduit::Tcp, mode);
        program.pass(2, &[("VGASNET_NODES", "2")], &["300", &seed]);
    }
    let program = bench.program("extended", Conduit::Tcp, Mode::Par);
    program.pass(1, &[], &["2000", &seed]);
    program.pass(5, &[("VGASNET_NODES", "3")], &["150", &seed]);
    program.pass(8, &[], &["300", &seed]);
    let program = bench.program("extended", Conduit::Smp, Mode::Seq);
    program.pass(4, &[("VGASNET_NODES", "2")], &["2000", &seed]);
    program.pass(1, &tiered("1"), &["300", &seed]);
    program.pass(3, &tiered("1"), &["300", &seed]);
    // Threads that do all of it at once, next to each other in pages that are evicted all the time.
    let smp = bench.program("extended", Conduit::Smp, Mode::Par);
    smp.pass(2, &[], &["500", &seed, "4"]);
    smp.pass(2, &tiered("1"), &["100", &seed, "4"]);
    smp.pass(3, &tiered("2"), &["60", &seed, "3"]);
    let tcp = bench.program("extended", Conduit::Tcp, Mode::Par);
    tcp.pass(4, &tiered("2"), &["100", &seed]);
    tcp.pass(2, &[("VGASNET_NODES", "2")], &["100", &seed, "4"]);
    tcp.pass(2, &tiered("2"), &["60", &seed, "4"]);
    for mode in [Mode::Seq, Mode::Parsync] {
        bench.program("extended", Conduit::Tcp, mode).pass(2, &tiered("2"), &["60", &seed]);
        bench.program("extended", Conduit::Smp, mode).pass(2, &tiered("1"), &["60", &seed]);
    }
}

/// Goal: threads that all request, wait and poll neither lose a message nor block each other.
#[test]
fn threads() {
    let bench = Bench::new();
    for (conduit, nodes) in [(Conduit::Smp, "1"), (Conduit::Tcp, "2")] {
        let program = bench.program("threads", conduit, Mode::Par);
        program.pass(1, &[], &["4", "500"]);
        program.pass(2, &[("VGASNET_NODES", nodes)], &["3", "500"]);
        program.pass(4, &[("VGASNET_NODES", nodes)], &["2", "100"]);
        program.pass(2, &tiered(nodes), &["3", "200"]);
    }
}

/// Goal: the headers compile without a warning in every language that they are for, on every compiler that is here, in
/// little time.
#[test]
fn headers() {
    let bench = Bench::new();
    for (language, standards) in [("c", ["-std=c99", "-std=c11"]), ("c++", ["-std=c++11", "-std=c++17"])] {
        for compiler in support::compilers(language) {
            for standard in standards {
                for mode in Mode::ALL {
                    let source = support::crate_folder().join("tests/c/ring.c");
                    let flags = [standard, "-pedantic", "-x", language, "-fsyntax-only"];
                    bench.check(compiler, &flags, &source, mode);
                }
            }
        }
    }
}

/// Goal: clients may include the interface's headers in any order, each of them first.
#[test]
fn headers_stand_alone() {
    let bench = Bench::new();
    let headers = ["gasnet", "gasnet_core", "gasnet_extended", "gasnet_coll", "gasnet_vis", "gasnet_handler"];
    for header in headers.into_iter().chain(["gasnet_config", "portable_platform", "vgasnet"]) {
        let source = bench.path().join(format!("{header}.c"));
        let text = format!(
            "#include <{header}.h>\n#include <gasnet.h>\nint is_one(void) {{ return gasnet_nodes() == 1; }}\n"
        );
        std::fs::write(&source, text).expect("the folder is writable");
        bench.check(&support::cc(), &["-std=gnu11", "-fsyntax-only"], &source, Mode::Par);
    }
}
