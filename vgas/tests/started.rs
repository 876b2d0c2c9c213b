//! Programs that others have started, by PMI-1: this test is the starter, and its ranks are whole ones, with agents, NVMe and a service
//! of their own.
//!
//! Goal: a program needs nothing but [`Runtime::init`] to be started by `mpiexec` or `srun`: its helpers are the program itself, by a
//! constructor, or by its own `main` when that serves nodes; no `vgas` command is there.

use std::process::{Command, ExitCode};
use std::time::Duration;
use vgas::service::{Call, Home, Service, Services};
use vgas::{GlobalAddress, NodeId, Rank, Runtime, SegmentOptions};
use vgas_testing::pmi::{Manners, start};

/// How long helpers may be seen after a job that ended well.
const SOON: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    match std::env::var("TEST_PROGRAM").as_deref() {
        Ok("ring") => rank(|runtime| ring(&runtime).and_then(|()| runtime.finalize())),
        // For `starters/run`, which kills somebody meanwhile.
        Ok("wait") => rank(|runtime| {
            vgas::print(format_args!("waits {}\n", std::process::id()))?;
            if runtime.rank().0 == 0 {
                std::thread::park_timeout(Duration::from_secs(600));
            }
            runtime.barrier()
        }),
        Ok("served") => {
            vgas::service::serve_node(|| Services::default().with(Twice));
            rank(|runtime| served(&runtime).and_then(|()| runtime.finalize()))
        }
        _ => {
            neighbours_on_any_nodes();
            programs_serve_themselves();
            settings_come_from_rank_0();
            wrong_settings_are_a_line();
            println!("test result: ok. 4 passed");
            ExitCode::SUCCESS
        }
    }
}

fn rank(body: impl FnOnce(Runtime) -> vgas::Result<()>) -> ExitCode {
    match Runtime::init().and_then(body) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn program(name: &str, node: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("TEST_PROGRAM", name).env("SLURMD_NODENAME", node).env("VGAS_CACHE_SIZE", "16MiB");
    command.env("VGAS_TCP_INTERFACE", "lo").env("VGAS_SEGMENT_TIERED_MAX", "64MiB");
    command
}

/// Writes to the right neighbour, reads what the left one has written.
fn ring(runtime: &Runtime) -> vgas::Result<()> {
    runtime.attach(&SegmentOptions::tiered(1 << 20))?;
    let right = Rank((runtime.rank().0 + 1) % runtime.ranks());
    runtime.put_value(GlobalAddress::tiered(right, 0), u64::from(runtime.rank().0) + 1)?;
    runtime.barrier()?;
    let left: u64 = runtime.get_value(GlobalAddress::tiered(runtime.rank(), 0))?;
    vgas::print(format_args!("{} nodes, my left neighbour is {}\n", runtime.nodes(), left - 1))
}

/// Doubles numbers at a home.
struct Twice;

impl Service for Twice {
    type Request = u32;
    type Answer = u32;
    const NAME: &'static str = "test.twice";

    fn called(&mut self, call: Call, number: u32, home: &mut Home<'_, Self>) {
        home.answer(call, &(2 * number));
    }
}

fn served(runtime: &Runtime) -> vgas::Result<()> {
    runtime.attach(&SegmentOptions::tiered(0))?;
    let node = NodeId((runtime.node().0 + 1) % runtime.nodes());
    let answer = runtime.call::<Twice>(node, &(21 + runtime.rank().0))?;
    vgas::print(format_args!("{answer}\n"))
}

/// One rank, several of a node, several nodes, uneven ones: all meet.
fn neighbours_on_any_nodes() {
    for (nodes, ranks) in [(1, 1), (1, 4), (2, 4), (3, 4)] {
        let node = |rank: u32| format!("n{}", rank.min(nodes - 1));
        let ended = start(ranks, Manners::Good, |rank| program("ring", &node(rank))).end(SOON);
        for (rank, said) in (0..ranks).zip(&ended) {
            let left = (rank + ranks - 1) % ranks;
            assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{ended:?}");
            assert_eq!(said.stdout, format!("{nodes} nodes, my left neighbour is {left}\n"), "{ended:?}");
        }
    }
}

/// A service of the program is at every node, without a word in its command line.
fn programs_serve_themselves() {
    let ended = start(3, Manners::Good, |rank| program("served", &format!("n{}", rank / 2))).end(SOON);
    for (rank, said) in (0..).zip(&ended) {
        assert_eq!((said.code, said.stdout.clone()), (0, format!("{}\n", 2 * (21 + rank))), "{ended:?}");
    }
}

/// One rank's settings are the job's: ranks cannot disagree about the size of the cache.
fn settings_come_from_rank_0() {
    let ended = start(2, Manners::Good, |rank| {
        let mut command = program("ring", "n");
        command.env("VGAS_CACHE_SIZE", format!("{}MiB", 16 << rank));
        command
    });
    assert!(ended.end(SOON).iter().all(|rank| rank.code == 0));
}

/// What is wrong with them is said by the ranks that see it, and nobody waits for ever.
fn wrong_settings_are_a_line() {
    let cases = [
        ("VGAS_CACHE_SIZE", "much", "cache.size"),
        ("VGAS_CLUSTER_LINK", "1gbit,2us", "virtual nodes"),
        ("VGAS_RUN_PMI", "none", "not part of a job"),
    ];
    for (name, text, wanted) in cases {
        let job = start(2, Manners::Good, |_| {
            let mut command = program("ring", "n");
            command.env(name, text);
            command
        });
        for rank in job.end(SOON) {
            assert!(rank.code == 1 && rank.stderr.contains(wanted), "{name}: {rank:?}");
            assert_eq!(rank.stderr.lines().count(), 1, "{rank:?}");
        }
    }
}
