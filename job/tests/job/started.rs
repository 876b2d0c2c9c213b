//! Jobs whose ranks others have started, by PMI-1: the test is the starter.

use super::harness::Test;
use rustix::process::Signal;
use std::process::Command;
use std::time::Duration;
use vgas_job::JobStatus;
use vgas_job::bootstrap::conformance;
use vgas_testing::pmi::{Manners, RankEnded, Started, start};
use vgas_testing::{at_most, kill};

pub const TESTS: &[Test] = &[
    ("started_ranks_find_each_other", started_ranks_find_each_other),
    ("started_ranks_conform", started_ranks_conform),
    ("placement_may_be_uneven_and_cyclic", placement_may_be_uneven_and_cyclic),
    ("a_started_rank_that_dies_ends_all", a_started_rank_that_dies_ends_all),
    ("a_helper_that_dies_ends_all", a_helper_that_dies_ends_all),
    ("a_started_rank_aborts", a_started_rank_aborts),
    ("a_starter_that_misbehaves_is_told", a_starter_that_misbehaves_is_told),
    ("never_a_job_of_one", never_a_job_of_one),
    ("a_rank_that_does_not_come_is_missed", a_rank_that_does_not_come_is_missed),
    ("another_build_is_refused", another_build_is_refused),
];

/// How long helpers may outlive a job that failed.
const SOON: Duration = Duration::from_secs(3);

/// A rank that does what the words say, on the node of this name.
fn rank(words: &str, node: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("rank").args(words.split(' ')).env("SLURMD_NODENAME", node).env_remove("SSH_CONNECTION");
    command
}

fn started(ranks: u32, words: &str) -> Started {
    start(ranks, Manners::Good, |_| rank(words, "one"))
}

fn codes(ended: &[RankEnded]) -> Vec<i32> {
    ended.iter().map(|rank| rank.code).collect()
}

/// Goal: ranks join, share memory, and leave; nothing is left when they have ended; and the starter's process manager is asked
/// for little: one value put, one got by each other rank.
fn started_ranks_find_each_other() {
    for ranks in [1, 4, 16] {
        let job = started(ranks, "hello");
        let counts = job.counts();
        // At their end, not after it: a starter may look.
        let ended = job.end(at_most(Duration::from_millis(100)));
        for (number, rank) in ended.iter().enumerate() {
            assert_eq!((rank.code, rank.stderr.as_str()), (0, ""), "{ended:?}");
            assert_eq!(rank.stdout, format!("hello rank {number} of {ranks} on node 0 Some(\"pmi\")\n"));
        }
        let asked = ["init", "put", "barrier_in", "get", "finalize"].map(|command| counts.of(command));
        assert_eq!(asked, [ranks, 1, ranks, ranks - 1, ranks]);
    }
}

/// The same suite as for ranks that are threads, or that a launcher has started.
fn started_ranks_conform() {
    for (ranks, nodes) in [(1, 1), (3, 1), (3, 2)] {
        for case in conformance::CASES.iter().filter(|case| case.ranks_min <= ranks) {
            let node = |number: u32| format!("n{}", number * nodes / ranks);
            let job =
                start(ranks, Manners::Good, |number| rank(&format!("conform {}", case.name), &node(number)));
            let ended = job.end(SOON);
            // Who is told before it is welcomed ends as it likes: with 1.
            let code = ended.iter().map(|rank| rank.code).max().unwrap_or(0);
            // Each rank says it.
            let said = ended.iter().flat_map(|rank| rank.stderr.lines());
            let message = said.filter_map(|line| line.strip_prefix("vgas: ")).next();
            case.check(&JobStatus { code: code as u8, message: message.map(Into::into) });
        }
    }
}

/// Goal: nodes with different numbers of ranks, and ranks dealt out in turn, make a job: numbered node by node.
fn placement_may_be_uneven_and_cyclic() {
    let on = |ended: &[RankEnded]| {
        let mut all: Vec<String> = ended.iter().map(|rank| rank.stdout.trim().to_owned()).collect();
        all.sort();
        all
    };
    let line = |rank: u32, node: u32| format!("hello rank {rank} of 4 on node {node} Some(\"pmi\")");
    let uneven = start(4, Manners::Good, |number| rank("hello", if number < 3 { "a" } else { "b" }));
    assert_eq!(on(&uneven.end(SOON)), [line(0, 0), line(1, 0), line(2, 0), line(3, 1)]);
    let cyclic = start(4, Manners::Good, |number| rank("hello", if number % 2 == 0 { "a" } else { "b" }));
    let ended = cyclic.end(SOON);
    // The starter's 2 is the second on the first node.
    assert_eq!(ended[2].stdout.trim(), line(1, 0));
    assert_eq!(on(&ended), [line(0, 0), line(1, 0), line(2, 1), line(3, 1)]);
}

/// Goal: a rank that is killed, or ends without finalising, ends the job on all nodes, with the line that names it on each other
/// rank, although nobody is its parent.
fn a_started_rank_that_dies_ends_all() {
    for victim in [0, 3] {
        let job = start(4, Manners::Good, |number| rank("hang", if number < 2 { "a" } else { "b" }));
        let pids = job.lines("pid ", 0..4);
        kill(pids[victim].parse().unwrap(), Signal::KILL);
        let ended = job.end(SOON);
        for (number, rank) in ended.iter().enumerate() {
            if number == victim {
                assert_eq!(rank.code, 137);
            } else {
                let line = format!("vgas: rank {victim} (pid {}, host ", pids[victim]);
                assert!(rank.code == 1 && rank.stderr.starts_with(&line), "{ended:?}");
                assert_eq!(rank.stderr.lines().count(), 1, "{ended:?}");
            }
        }
    }
    let ended = started(3, "leave").end(SOON);
    assert!(ended.iter().all(|rank| !rank.stderr.contains("panicked")), "{ended:?}");
}

/// Goal: the end of a daemon, or of the process that leads the job, is the end of all, with a line on each rank.
fn a_helper_that_dies_ends_all() {
    for index in 0..3 {
        let job = start(4, Manners::Good, |number| rank("hang", if number < 2 { "a" } else { "b" }));
        job.lines("pid ", 0..4);
        let helpers = job.helpers();
        assert_eq!(helpers.len(), 3, "a leader and two daemons");
        kill(helpers[index], Signal::KILL);
        let ended = job.end(SOON);
        for rank in &ended {
            assert!(rank.code == 1 && rank.stderr.starts_with("vgas: "), "{ended:?}");
            assert_eq!(rank.stderr.lines().count(), 1, "{ended:?}");
        }
    }
}

/// Goal: what a rank says before it ends the job is said by all, itself included.
fn a_started_rank_aborts() {
    let ended = started(3, "abort 1").end(SOON);
    assert_eq!(codes(&ended), [9, 9, 9], "{ended:?}");
    for rank in &ended {
        assert_eq!(rank.stderr, "vgas: rank 1: something is rotten\n");
    }
}

/// Goal: whatever the other end of `PMI_FD` does, each rank says so in a line, and ends in bounded time.
fn a_starter_that_misbehaves_is_told() {
    let cases = [
        (Manners::StopsAfter(0), "no answer within 2 s"),
        (Manners::StopsAfter(2), "no answer within 2 s"),
        (Manners::Floods, "a line of more than"),
        (Manners::TalksNonsense, "no line of the protocol"),
        (Manners::Closed, "which is no open socket"),
    ];
    for (manners, wanted) in cases {
        let job = start(2, manners, |_| rank("hello", "one"));
        let ended = job.end(SOON);
        for rank in &ended {
            assert!(rank.code == 1 && rank.stderr.contains(wanted), "{manners:?}: {ended:?}");
            assert_eq!(rank.stderr.lines().count(), 1, "{ended:?}");
        }
    }
}

/// Goal: several processes that reach no process manager are not several jobs.
fn never_a_job_of_one() {
    let mut command = rank("hello", "one");
    command.env("SLURM_STEP_ID", "0").env("SLURM_NTASKS", "4");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("`srun --mpi=pmix`"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

/// Goal: a rank that ends before it comes does not keep the others for ever, and they know which one it is.
fn a_rank_that_does_not_come_is_missed() {
    let job =
        start(3, Manners::Good, |number| rank(if number == 2 { "fake absent" } else { "hello" }, "one"));
    let ended = job.end(SOON);
    for rank in &ended[..2] {
        assert!(rank.code == 1 && rank.stderr.contains("rank 2 has not come"), "{ended:?}");
        assert_eq!(rank.stderr.lines().count(), 1, "{ended:?}");
    }
}

/// Goal: a rank of another build than rank 0 says so. What rank 0 tells stands for the build.
fn another_build_is_refused() {
    for (fake, wanted) in [
        ("fake old", "start-up protocol 3 instead of 8: use the same vgas in all ranks"),
        ("fake other", "rank 0 has vgas of other sources (0000000000000001 instead of"),
    ] {
        let job = start(2, Manners::Good, |number| rank(if number == 0 { fake } else { "hello" }, "one"));
        let ended = job.end(at_most(Duration::from_secs(5)));
        assert!(ended[1].stderr.contains(wanted), "{ended:?}");
    }
}
