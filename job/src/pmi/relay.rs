//! A second user of a session of PMI-1, for process managers that take only one beginning from a process.
//!
//! Slurm answers `cmd=init` once, and closes the line at the first `cmd=finalize`. An MPI that begins after
//! vgas would wait for ever for its answer, and one that ends before vgas would end the session for both. So
//! a thread stands between: `PMI_FD` of the program is a line to it. It answers both commands itself, and
//! hands on all else as it is.

#![forbid(unsafe_code)]

use super::wire::{LINE_BYTES_MAX, Wire, Wrong};
use crate::system;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Time that the process manager may take to end its session with this process.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

const INIT: &[u8] = b"cmd=init ";
const INIT_ANSWER: &[u8] = b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
const FINALIZE: &[u8] = b"cmd=finalize";
const FINALIZE_ANSWER: &[u8] = b"cmd=finalize_ack rc=0\n";

/// The thread, as the session sees it.
pub(super) struct Relay {
    manager: OwnedFd,
    /// Says when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

/// Stands between the process manager and users of the inherited number from now on. The session must be
/// idle.
pub(super) fn start(wire: &Wire, number: u32) -> Result<Relay, Wrong> {
    let refused = |error: std::io::Error| format!("cannot share the line to the process manager: {error}");
    let (ours, programs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| refused(errno.into()))?;
    let (manager, kept) = (wire.copy_of_socket()?, wire.copy_of_socket()?);
    let (tell, ended) = channel();
    std::thread::Builder::new()
        .name("vgas-pmi".into())
        .spawn(move || {
            serve(&ours, &manager);
            // There may be no waiter.
            let _ = tell.send(());
        })
        .map_err(refused)?;
    system::replace_inherited(number, programs.as_fd()).map_err(refused)?;
    Ok(Relay { manager: kept, ended: Mutex::new(ended) })
}

impl Relay {
    /// Says that this process needs the process manager no more, and waits until it has heard.
    pub(super) fn leave(&self) {
        if send_all(&self.manager, b"cmd=finalize\n").is_ok() {
            let ended = crate::lock::lock(&self.ended);
            let _ = ended.recv_timeout(LEAVE_TIMEOUT);
        }
    }
}

/// Hands lines on until the process manager closes its end.
fn serve(program: &OwnedFd, manager: &OwnedFd) {
    let (mut line, mut program_is_there) = (Vec::new(), true);
    loop {
        let mut files = vec![PollFd::new(manager, PollFlags::IN)];
        if program_is_there {
            files.push(PollFd::new(program, PollFlags::IN));
        }
        match poll(&mut files, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let is_ready = |index: usize| files.get(index).is_some_and(|file| !file.revents().is_empty());
        let (of_manager, of_program) = (is_ready(0), is_ready(1));
        if of_manager {
            match receive(manager) {
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => drop(send_all(program, &bytes)),
                None => {
                    let _ = rustix::net::shutdown(program, Shutdown::Both);
                    return;
                }
            }
        }
        if of_program {
            match receive(program) {
                Some(bytes) => line.extend_from_slice(&bytes),
                None => program_is_there = false,
            }
            program_is_there &= hand_on(&mut line, program, manager).is_ok() && line.len() <= LINE_BYTES_MAX;
        }
    }
}

/// Takes the whole lines out of the program's bytes.
fn hand_on(said: &mut Vec<u8>, program: &OwnedFd, manager: &OwnedFd) -> Result<(), Errno> {
    while let Some(end) = said.iter().position(|&byte| byte == b'\n') {
        let line: Vec<u8> = said.drain(..=end).collect();
        if line.starts_with(INIT) {
            send_all(program, INIT_ANSWER)?;
        } else if line.trim_ascii_end() == FINALIZE {
            send_all(program, FINALIZE_ANSWER)?;
        } else {
            send_all(manager, &line)?;
        }
    }
    Ok(())
}

/// Receives a message; none at the end.
fn receive(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => None,
        Ok((count, _)) => {
            bytes.truncate(count);
            Some(bytes)
        }
        Err(Errno::AGAIN | Errno::INTR) => Some(Vec::new()),
        Err(_) => None,
    }
}

fn send_all(socket: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // The other user of the socket may have made it non-blocking.
                let _ = poll(&mut [PollFd::new(socket, PollFlags::OUT)], None);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// Goal: an MPI that begins after vgas, and ends before it, has a session as if it were alone, on a process manager that takes one
    /// beginning and one end. Method: the test is the process manager, and the MPI.
    #[test]
    fn a_second_user_begins_and_ends() {
        let (manager, ours) = UnixStream::pair().unwrap();
        let (stands_for_inherited, _other) = UnixStream::pair().unwrap();
        let number = stands_for_inherited.as_raw_fd() as u32;
        let thread = std::thread::spawn(move || {
            let mut writer = manager.try_clone().unwrap();
            let mut heard = Vec::new();
            for line in BufReader::new(manager).lines().map_while(Result::ok) {
                let answer = match line.as_str() {
                    _ if line.starts_with("cmd=init ") => {
                        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
                    }
                    "cmd=get_maxes" => "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
                    "cmd=get_my_kvsname" => "cmd=my_kvsname rc=0 kvsname=7.0",
                    _ => "cmd=finalize_ack rc=0",
                };
                writer.write_all(format!("{answer}\n").as_bytes()).unwrap();
                heard.push(line);
                if heard.last().unwrap() == "cmd=finalize" {
                    break;
                }
            }
            heard
        });
        let wire = Wire::open(ours.into(), Duration::from_secs(30)).unwrap();
        let relay = start(&wire, number).unwrap();
        let mut mpi = stands_for_inherited;
        mpi.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut answers = BufReader::new(mpi.try_clone().unwrap()).lines();
        for (ask, wanted) in [
            ("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init"),
            ("cmd=get_maxes", "cmd=maxes"),
            ("cmd=finalize", "cmd=finalize_ack"),
        ] {
            mpi.write_all(format!("{ask}\n").as_bytes()).unwrap();
            let answer = answers.next().unwrap().unwrap();
            assert!(answer.starts_with(wanted), "{ask}: {answer}");
        }
        relay.leave();
        let heard = thread.join().unwrap();
        let count = |begin: &str| heard.iter().filter(|line| line.starts_with(begin)).count();
        assert_eq!(
            (count("cmd=init"), count("cmd=get_maxes"), count("cmd=finalize")),
            (1, 2, 1),
            "{heard:?}"
        );
    }
}
