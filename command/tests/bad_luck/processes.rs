//! Processes that are killed, stopped or interrupted while the job is at work.

use super::harness::{Job, Place, kill, until};
use rustix::process::Signal;

/// The shapes of a job that matter: one node, several over shared memory, several over tcp.
const SHAPES: [&str; 3] = ["", "--nodes 2 --conduit smp", "--nodes 2 --conduit tcp"];

fn each_shape(mut test: impl FnMut(&Place, Job)) {
    for shape in SHAPES {
        let place = Place::new();
        let job = place.start_ranks("traffic", 4, shape);
        test(&place, job);
    }
}

#[test]
fn a_killed_rank_ends_the_job() {
    each_shape(|_, mut job| {
        let victim = job.ranks()[2];
        job.mishap(|_| kill(victim, Signal::KILL));
        job.end().refused(137, &[&format!("(pid {victim}, "), "was killed by signal 9"]);
    });
}

/// The daemon is the node's agent, too.
#[test]
fn a_killed_daemon_ends_the_job() {
    each_shape(|_, mut job| {
        let victim = *job.daemons().last().unwrap();
        job.mishap(|_| kill(victim, Signal::KILL));
        job.end()
            .refused(137, &["the daemon of node ", &format!("(pid {victim}, "), "was killed by signal 9"]);
    });
}

/// Nobody is left to say anything; `end` checks that nothing else is left either.
#[test]
fn a_killed_launcher_takes_everything_with_it() {
    each_shape(|_, mut job| {
        job.mishap(|job| kill(job.launcher(), Signal::KILL));
        assert_eq!(job.end().code, 137);
    });
}

#[test]
fn everything_killed_at_once_leaves_nothing() {
    each_shape(|_, mut job| {
        job.mishap(|job| job.processes().into_iter().for_each(|pid| kill(pid, Signal::KILL)));
        assert_eq!(job.end().code, 137);
    });
}

#[test]
fn an_interrupt_ends_the_job() {
    each_shape(|_, mut job| {
        job.mishap(|job| kill(job.launcher(), Signal::INT));
        job.end().refused(130, &["ended by signal 2 (SIGINT)"]);
    });
}

/// The second may come while the first is being dealt with.
#[test]
fn two_interrupts_end_the_job() {
    each_shape(|_, mut job| {
        job.interrupt_until_it_ends();
        job.end().refused(130, &["ended by signal 2 (SIGINT)"]);
    });
}

/// A stopped process is no dead one: the job waits for it, and goes on when it does. While it is stopped, Ctrl-C ends
/// the job, whoever it is that is stopped: at the second time, because programs may catch the first.
#[test]
fn a_stopped_process_is_waited_for_and_does_not_keep_the_job_from_ending() {
    for of_job in [Job::ranks as fn(&Job) -> Vec<i32>, Job::daemons] {
        each_shape(|_, mut job| {
            let victim = of_job(&job)[0];
            kill(victim, Signal::STOP);
            until(|| is_stopped(victim).then_some(())).unwrap();
            job.interrupt_until_it_ends();
            job.end().refused(130, &["ended by signal 2 (SIGINT)"]);
        });
        let place = Place::new();
        let job = place.start_ranks("rounds", 4, SHAPES[2]);
        let victim = of_job(&job)[0];
        kill(victim, Signal::STOP);
        until(|| is_stopped(victim).then_some(())).unwrap();
        std::fs::write(place.path("enough"), "").unwrap();
        kill(victim, Signal::CONT);
        let ended = job.end();
        assert_eq!(ended.code, 0, "{ended:?}");
    }
}

/// Said once, with who it is and what to do, while the job goes on waiting: somebody may look at it with a debugger.
#[test]
fn who_is_stopped_for_long_is_named() {
    // Both at the same time: it takes fifteen seconds to be long.
    let stopped: Vec<_> =
        [("rank ", Job::ranks as fn(&Job) -> Vec<i32>), ("the daemon of node ", Job::daemons)]
            .into_iter()
            .map(|(who, of_job)| {
                let place = Place::new();
                let job = place.start_ranks("rounds", 4, SHAPES[2]);
                let victim = of_job(&job)[0];
                kill(victim, Signal::STOP);
                (who, place, job, victim)
            })
            .collect();
    for (who, place, job, victim) in stopped {
        until(|| job.said().contains("warning: ").then_some(())).unwrap_or_else(|| {
            let state = std::fs::read_to_string(format!("/proc/{victim}/stat"));
            let waits = std::fs::read_to_string(format!("/proc/{victim}/wchan"));
            panic!("nobody says that {who}{victim} is stopped: {:?} {state:?} {waits:?}", job.said())
        });
        std::fs::write(place.path("enough"), "").unwrap();
        kill(victim, Signal::CONT);
        let ended = job.end();
        assert_eq!(ended.code, 0, "{ended:?}");
        let lines: Vec<_> = ended.stderr.lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with(&format!("warning: {who}")), "{ended:?}");
        for words in [format!("(pid {victim}, host "), format!("kill -CONT {victim};"), "Ctrl-C twice".into()]
        {
            assert!(lines[0].contains(&words), "{words} in {ended:?}");
        }
    }
}

fn is_stopped(pid: i32) -> bool {
    vgas_testing::state(pid) == Some('T')
}
