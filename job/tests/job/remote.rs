//! Jobs over ssh, with a script in its place that runs the command on this machine.

use super::harness::{Test, fake_ssh, kill, start, start_with_input};
use rustix::process::Signal;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;
use vgas_testing::at_most;

pub const TESTS: &[Test] = &[
    ("hosts_run_a_job", hosts_run_a_job),
    ("remote_streams_are_forwarded", remote_streams_are_forwarded),
    ("a_failing_host_is_named", a_failing_host_is_named),
    ("a_remote_rank_that_dies_ends_the_job", a_remote_rank_that_dies_ends_the_job),
    ("a_lost_connection_ends_both_sides", a_lost_connection_ends_both_sides),
];

/// A job on two hosts.
fn line(ssh: &std::path::Path, hosts: &str, rest: &str) -> String {
    format!("conduit=tcp nodes=2 hosts={hosts} ssh={} {rest}", ssh.display())
}

fn hosts_run_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = fake_ssh(&folder);
    let ended = start(&line(&ssh, "a,b", "ranks=4 -- @ rank hello")).end();
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    assert_eq!(ended.stdout.lines().count(), 4);
}

fn remote_streams_are_forwarded() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = fake_ssh(&folder);
    let ended = start(&line(&ssh, "a,b", "ranks=2 label=yes -- @ rank chatter 500")).end();
    assert_eq!((ended.code, ended.stdout.lines().count(), ended.stderr.lines().count()), (0, 1000, 1000));
    // More input than is ever on its way at once.
    let mut job = start_with_input(&line(&ssh, "a,b", "ranks=2 input=yes -- @ rank read"), Stdio::piped());
    let mut input = job.input();
    for number in 0..20_000 {
        writeln!(input, "{number} {}", "x".repeat(number % 90)).unwrap();
    }
    drop(input);
    let ended = job.end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().filter(|line| line.starts_with("read 0 ")).count(), 20_000);
    assert!(ended.stdout.contains("eof 0") && ended.stdout.contains("eof 1"));
}

fn a_failing_host_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = fake_ssh(&folder);
    for (host, words) in [
        ("down", "node 1 (host down): ssh: connect to host down port 22: Connection refused"),
        ("silent", "node 1 (host silent): no answer within 1.5 s"),
        ("chatty", "Welcome to chatty!"),
    ] {
        let ended = start(&line(&ssh, &format!("a,{host}"), "ranks=2 seconds=1.5 -- true")).end();
        assert!(ended.code == 1 && ended.stderr.contains(words), "{host}: {ended:?}");
        assert!(
            ended.time < at_most(Duration::from_secs(5)) && ended.stderr.lines().count() == 1,
            "{ended:?}"
        );
    }
    // What the start waits for is told before it is given up.
    let ended = start(&line(&ssh, "a,silent", "ranks=2 seconds=5.5 -- true")).end();
    let told = ended.stderr.contains("the start has waited 5 s for node 1 (host silent)");
    assert!(ended.code == 1 && told && ended.stderr.lines().count() == 2, "{ended:?}");
    // A folder, because there is no such command there.
    let ended = start("conduit=tcp nodes=2 hosts=a,b ssh=/no/such/ssh ranks=2 -- true").end();
    assert!(ended.code == 1 && ended.stderr.contains("cannot start /no/such/ssh"), "{ended:?}");
}

fn a_remote_rank_that_dies_ends_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let job = start(&line(&fake_ssh(&folder), "a,b", "ranks=4 -- @ rank hang"));
    let victim = job.numbers("pid ", 4)[3];
    kill(victim, Signal::KILL);
    let ended = job.end();
    assert!(ended.code == 137 && ended.stderr.contains(&format!("(pid {victim}, host ")), "{ended:?}");
}

/// The daemon is killed, and in another job the launcher: over ssh nothing but the channel connects them.
fn a_lost_connection_ends_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = fake_ssh(&folder);
    let job = start(&line(&ssh, "a,b", "ranks=4 -- @ rank hang"));
    job.numbers("pid ", 4);
    kill(job.daemons()[0], Signal::KILL);
    let ended = job.end();
    assert!(ended.code == 137 && ended.stderr.contains("the daemon of node "), "{ended:?}");
    let job = start(&line(&ssh, "a,b", "ranks=4 -- @ rank deaf"));
    job.numbers("pid ", 4);
    job.signal(Signal::KILL);
    assert_eq!(job.end().code, 137);
}
