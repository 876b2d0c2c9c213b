//! Hosts that do not answer, ports that are taken, strangers that call.

use super::harness::{Job, Place};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_host_that_does_not_answer_is_named() {
    let place = Place::new();
    let ssh = place.path("ssh");
    let script = "#!/bin/sh\n\
        case $1 in\n\
        refuses) echo 'ssh: connect to host refuses port 22: Connection refused' >&2; exit 255;;\n\
        *) exec sleep 1000;;\n\
        esac\n";
    std::fs::write(&ssh, script).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o700)).unwrap();
    for (host, words) in [("silent", "no answer within"), ("refuses", "Connection refused")] {
        let set = format!("--set run.ssh={} --set run.start_timeout_ms=2000", ssh.display());
        let line = format!("run -n 2 --host quiet,{host} {set} -- true");
        place.refused(&line, 1, &["node ", "(host ", words]);
    }
    place.refused(
        "run -n 2 --host a,b --set run.ssh=/no/such/ssh -- true",
        1,
        &["cannot start /no/such/ssh"],
    );
}

#[test]
fn a_port_in_use_is_reported() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let line = format!("run -n 2 --nodes 2 --set tcp.port_range={port}-{port} -- true");
    place.refused(&line, 1, &["cannot listen on 127.0.0.1", "in use", "choose"]);
}

/// Where the processes of the job listen.
fn listeners(job: &Job) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for pid in job.daemons().into_iter().chain(job.ranks()) {
        let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .flatten()
            .filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
            .collect();
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // Local address, state (0A: listening), inode.
            let listening = fields[3] == "0A" && sockets.contains(&format!("socket:[{}]", fields[9]));
            if let (true, Some((_, port))) = (listening, fields[1].split_once(':')) {
                found.push(SocketAddr::from(([127, 0, 0, 1], u16::from_str_radix(port, 16).unwrap())));
            }
        }
    }
    found
}

/// Goal: nobody who does not know the key disturbs a job. Method: while ranks exchange pages over tcp, strangers call
/// every one of its ports: with an HTTP request, with the right beginning and then nonsense, one byte at a time, with
/// thousands of connections that say nothing. The job has to finish well, and every stranger to be turned away.
#[test]
fn strangers_are_turned_away_and_disturb_nobody() {
    let place = Place::new();
    let job = place.start_ranks("rounds", 4, "--nodes 2 --conduit tcp");
    let ports = listeners(&job);
    assert!(ports.len() >= 4, "ranks and agents listen: {ports:?}");
    let mut idle = Vec::new();
    for &port in &ports {
        let call = || {
            let stream = TcpStream::connect_timeout(&port, Duration::from_secs(5)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
            stream
        };
        let mut slow = call();
        for garbage in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"vgas\x01\0\0\0", &[0xff; 65536]] {
            let mut stranger = call();
            // Turned away while still writing is well, too.
            let _ = stranger.write_all(garbage);
            let _ = stranger.shutdown(std::net::Shutdown::Write);
            drain(&mut stranger);
        }
        // A byte whenever nothing was said for a while, until he is turned away.
        slow.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        for byte in b"vgas is slow" {
            if slow.write_all(&[*byte]).is_err() || matches!(slow.peek(&mut [0]), Ok(0)) {
                break;
            }
        }
        idle.push(slow);
        idle.extend((0..500).map(|_| call()));
    }
    std::fs::write(place.path("enough"), "").unwrap();
    let ended = job.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stderr.lines().count() <= 101 * ports.len(), "a flood: {}", ended.stderr.lines().count());
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

/// Reads until the other side has closed. What it says before (a challenge that anybody gets) is short.
fn drain(stranger: &mut TcpStream) {
    let (mut bytes, mut piece) = (0, [0; 256]);
    while let Ok(count @ 1..) = stranger.read(&mut piece) {
        bytes += count;
        assert!(bytes < 256, "a stranger is told something");
    }
}

/// Goal: who waits for a conduit that takes long to open is told what takes long, once and not by each process; then the job ends as it would
/// without. Method: a libfabric that sleeps when it is loaded, and has nothing.
#[test]
fn a_slow_conduit_is_told_of() {
    let place = Place::new();
    let (source, library) = (place.path("slow.c"), place.path("libfabric.so.1"));
    std::fs::write(
        &source,
        "#include <unistd.h>\n__attribute__((constructor)) static void slow(void) { sleep(3); }\n",
    )
    .unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.unwrap().success());
    let mut command = place.command(&Place::line_of_ranks(4, "--nodes 2 --conduit ofi"));
    command.env("LD_LIBRARY_PATH", library.parent().unwrap()).env(super::rank::MODE, "rounds");
    let ended = Job::of(command, place.path("nvm")).end();
    let told = ended.stderr.lines().filter(|line| line.contains("libfabric looks for network cards")).count();
    assert!(ended.code != 0 && told == 1, "{ended:?}");
    assert!(ended.stderr.contains("the conduit ofi for 2 s"), "{ended:?}");
    assert!(ended.stderr.contains("the ofi conduit cannot be used"), "{ended:?}");
}
