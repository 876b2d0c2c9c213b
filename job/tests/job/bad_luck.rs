//! Jobs in which something dies, fails, or was asked for that cannot be.

use super::harness::{Ended, Test, kill, run, start};
use rustix::process::Signal;
use std::net::TcpListener;
use std::time::Duration;
use vgas_testing::at_most;

pub const TESTS: &[Test] = &[
    ("the_first_exit_status_counts", the_first_exit_status_counts),
    ("a_killed_rank_ends_the_job", a_killed_rank_ends_the_job),
    ("a_killed_daemon_takes_everything_with_it", a_killed_daemon_takes_everything_with_it),
    ("a_killed_launcher_takes_everything_with_it", a_killed_launcher_takes_everything_with_it),
    ("launcher_and_daemons_killed_at_once", launcher_and_daemons_killed_at_once),
    ("children_of_ranks_end_with_the_job", children_of_ranks_end_with_the_job),
    ("an_interrupt_ends_the_job", an_interrupt_ends_the_job),
    ("the_second_interrupt_ends_it_at_once", the_second_interrupt_ends_it_at_once),
    ("an_abort_is_reported", an_abort_is_reported),
    ("an_announced_exit_ends_the_job", an_announced_exit_ends_the_job),
    ("a_failing_service_ends_the_job", a_failing_service_ends_the_job),
    ("leaving_without_finalising_is_reported", leaving_without_finalising_is_reported),
    ("allgather_against_finalize_is_reported", allgather_against_finalize_is_reported),
    ("what_cannot_be_started_is_refused_in_one_line", what_cannot_be_started_is_refused_in_one_line),
    ("a_port_in_use_is_reported", a_port_in_use_is_reported),
    ("a_rank_of_another_build_is_refused", a_rank_of_another_build_is_refused),
    ("without_a_launcher_join_says_how_to_start", without_a_launcher_join_says_how_to_start),
];

/// Every failure: the expected exit status, one line that contains these words, and in time.
fn check(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, code, "{ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("launcher: ")).collect();
    assert_eq!(lines.len(), 1, "{ended:?}");
    assert!(words.iter().all(|word| lines[0].contains(word)), "{words:?} in {ended:?}");
    assert!(ended.time < at_most(Duration::from_secs(5)), "{ended:?}");
}

fn the_first_exit_status_counts() {
    for shape in ["ranks=3", "ranks=3 nodes=2 conduit=tcp", "ranks=3 nodes=3 conduit=smp label=yes"] {
        let ended = run(&format!("{shape} -- @ rank exit 7 1"));
        check(&ended, 7, &["rank 1 (pid ", "ended with exit status 7"]);
        assert!(ended.time < at_most(Duration::from_secs(2)), "{ended:?}");
    }
    // Programs that never join count as well.
    check(&run("ranks=2 -- false"), 1, &["ended with exit status 1"]);
}

/// Exits that all ranks announce end the job at once and silently; those of some take the others with them. Among
/// different statuses one that is not 0 counts.
fn an_announced_exit_ends_the_job() {
    for shape in ["ranks=3", "ranks=3 nodes=2 conduit=tcp", "ranks=3 nodes=3 conduit=smp"] {
        for (announced, code) in [("3 0", 0), ("3 6", 6), ("3 0 7", 7), ("1 5", 5), ("2 0", 0)] {
            let ended = run(&format!("{shape} -- @ rank announce {announced}"));
            assert_eq!((ended.code, ended.stderr.as_str()), (code, ""), "{shape} {announced}: {ended:?}");
            let limit = if announced.starts_with('3') { 1 } else { 4 };
            assert!(ended.time < at_most(Duration::from_secs(limit)), "{shape} {announced}: {ended:?}");
        }
    }
}

fn a_killed_rank_ends_the_job() {
    for shape in ["ranks=4", "ranks=4 nodes=2 conduit=smp", "ranks=4 nodes=2 conduit=tcp"] {
        let job = start(&format!("{shape} -- @ rank hang"));
        let victim = job.numbers("pid ", 4)[2];
        kill(victim, Signal::KILL);
        let killed = std::time::Instant::now();
        let ended = job.end();
        assert!(killed.elapsed() < at_most(Duration::from_secs(2)));
        check(&ended, 137, &[&format!("(pid {victim}, host "), "was killed by signal 9 (SIGKILL)"]);
    }
}

/// What lies in shared memory is as the sources say: a program of others does not get there.
fn a_rank_of_another_build_is_refused() {
    let ended = run("ranks=2 -- @ rank foreign");
    check(&ended, 1, &["vgas of other sources (0000000000000001 instead of", "build vgas and all programs"]);
}

fn a_killed_daemon_takes_everything_with_it() {
    let job = start("ranks=4 nodes=2 conduit=smp -- @ rank hang");
    job.numbers("pid ", 4);
    let daemons = job.daemons();
    assert_eq!(daemons.len(), 2);
    kill(daemons[1], Signal::KILL);
    check(
        &job.end(),
        137,
        &["the daemon of node ", &format!("(pid {}, host ", daemons[1]), "was killed by signal 9"],
    );
}

fn a_killed_launcher_takes_everything_with_it() {
    for program in ["hang", "deaf"] {
        let job = start(&format!("ranks=4 nodes=2 conduit=tcp -- @ rank {program}"));
        job.numbers("pid ", 4);
        job.signal(Signal::KILL);
        assert_eq!(job.end().code, 137);
    }
}

/// Only the kernel is left to end the ranks, and what they started.
fn launcher_and_daemons_killed_at_once() {
    let job = start("ranks=2 -- sh -c sleep${IFS}1000&sleep${IFS}1000");
    // Launcher, daemon, and two a rank: some shells become the last command they run.
    super::harness::until("the processes", || (job.processes().len() >= 6).then_some(())).unwrap();
    // Stopped, so that neither can do anything when the other dies.
    let daemon = job.daemons()[0];
    kill(job.pid(), Signal::STOP);
    kill(daemon, Signal::STOP);
    kill(daemon, Signal::KILL);
    kill(job.pid(), Signal::KILL);
    assert_eq!(job.end().code, 137);
}

fn children_of_ranks_end_with_the_job() {
    let job = start("ranks=2 -- @ rank parent");
    let ranks = job.numbers("pid ", 2);
    let (near, far) = (job.numbers("near ", 2), job.numbers("far ", 2));
    // Their numbers are known before they have their environment, by which they are found.
    super::harness::until("the children", || {
        let processes = job.processes();
        near.iter().chain(&far).all(|pid| processes.contains_key(pid)).then_some(())
    })
    .unwrap();
    kill(ranks[0], Signal::KILL);
    check(&job.end(), 137, &["was killed by signal 9"]);
}

fn an_interrupt_ends_the_job() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let job = start("ranks=2 nodes=2 conduit=smp -- @ rank hang");
        job.numbers("pid ", 2);
        job.signal(signal);
        check(&job.end(), code, &["ended by signal "]);
    }
}

fn the_second_interrupt_ends_it_at_once() {
    let job = start("ranks=2 -- @ rank deaf");
    job.numbers("pid ", 2);
    job.signal(Signal::INT);
    // Wait until the ranks have it: two signals that are pending at once are one.
    let ranks = job.numbers("pid ", 2);
    super::harness::until("the first to be passed on", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", ranks[0])).unwrap();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        (field("ShdPnd:").unwrap().trim() == "0000000000000000" && job.processes().len() == 4).then_some(())
    });
    let second = std::time::Instant::now();
    super::harness::until("the end", || {
        job.signal(Signal::INT);
        (job.processes().len() < 4).then_some(())
    });
    let ended = job.end();
    check(&ended, 130, &["ended by signal 2 (SIGINT)"]);
    assert!(second.elapsed() < at_most(Duration::from_secs(1)), "{:?}", second.elapsed());
}

fn an_abort_is_reported() {
    check(&run("ranks=3 nodes=2 conduit=smp -- @ rank abort 2"), 9, &["rank 2: something is rotten"]);
}

fn a_failing_service_ends_the_job() {
    let run = |service: &str| run(&format!("ranks=2 nodes=2 conduit=smp service={service} -- @ rank hang"));
    check(&run("fails"), 1, &["the agent of node 0: the disk is on fire"]);
    check(&run("panics"), 1, &["the agent of node 0: panicked: an impossible state"]);
    check(&run("fails-to-start"), 1, &["the agent of node ", ": no space on the device"]);
}

fn leaving_without_finalising_is_reported() {
    check(&run("ranks=2 -- @ rank exit 0 1"), 1, &["rank 1 (pid ", "exited without finalising the job"]);
    // When all leave, nobody waits.
    let ended = run("ranks=2 -- @ rank leave");
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
}

fn allgather_against_finalize_is_reported() {
    for shape in ["ranks=2", "ranks=2 nodes=2 conduit=smp"] {
        check(&run(&format!("{shape} -- @ rank mixed")), 1, &["allgather and finalize in different orders"]);
    }
}

fn what_cannot_be_started_is_refused_in_one_line() {
    check(&run("ranks=2 -- ./no/such/program"), 127, &["cannot start ./no/such/program: no such program"]);
    check(&run("ranks=2 -- /etc/passwd"), 126, &["cannot start /etc/passwd", "not an executable file"]);
    check(&run("ranks=100000 -- true"), 2, &["100000 ranks"]);
    check(&run("ranks=4096 -- true"), 2, &["4096 ranks are too many for one machine"]);
    check(&run("ranks=2 nodes=3 -- true"), 2, &["3 nodes need at least as many ranks"]);
    check(
        &run("ranks=2 nodes=2 conduit=carrier-pigeon -- true"),
        2,
        &["carrier-pigeon", "smp, tcp, ibv and ofi"],
    );
}

fn a_port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ended = run(&format!("ranks=2 nodes=2 conduit=tcp port={port} -- true"));
    check(&ended, 1, &["cannot listen on 127.0.0.1", "in use", "choose"]);
}

fn without_a_launcher_join_says_how_to_start() {
    let this = std::env::current_exe().unwrap();
    let output = std::process::Command::new(this).args(["rank", "hello"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("vgas run -n 2 -- "), "{text}");
}
