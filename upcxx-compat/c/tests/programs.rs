//! C programs as whole jobs, each over the conduits, thread modes and numbers of ranks that matter to it.

mod support;

use support::{Bench, Conduit, Mode};

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
