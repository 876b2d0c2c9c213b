//! Mutual proof of the key between two processes of an externally started job, before a message is read:
//! between a rank and the daemon of its node, and between a daemon and the leader of the job.
//!
//! | from | bytes | meaning |
//! |---|---|---|
//! | who comes | 12 | `vgasjoin` and the version |
//! | | 4, 4 | its number, and how many ranks it takes the job to have |
//! | | 32 | a fresh number |
//! | who listens | 12 | `vgasjoin` and the version |
//! | | 32, 32 | a fresh number, and the proof over all before it |
//! | who comes | 32 | the proof over the same |
//!
//! The key does not travel here. After that, the stream is one of [`crate::control`]'s.

#![forbid(unsafe_code)]

use crate::control::timespec;
use crate::control::{VERSION, wait_for};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;
use vgas_rma::error::{Result, RmaError};
use vgas_rma::key::{JobKey, KEY_BYTES, fresh_random};

const MAGIC: [u8; 8] = *b"vgasjoin";
const BEGIN_BYTES: usize = 12;
const HELLO_BYTES: usize = BEGIN_BYTES + 8 + KEY_BYTES;
const ANSWER_BYTES: usize = BEGIN_BYTES + 2 * KEY_BYTES;

/// Text that each side proves, so that a proof is worth nothing as the other side's.
const COMES: &str = "vgas 2026 comes to a job that others have started";
const LISTENS: &str = "vgas 2026 listens for a job that others have started";

/// An admitted visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdmittedPeer {
    /// Its rank, or that of the daemon's starter.
    pub(super) number: u32,
    /// Its number of ranks of the job.
    pub(super) ranks: u32,
}

fn begin() -> [u8; BEGIN_BYTES] {
    let mut bytes = [0; BEGIN_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Checks that the other side is of this version.
fn check_begin(bytes: &[u8]) -> std::result::Result<(), String> {
    if bytes[..8] != MAGIC {
        return Err("something else than vgas answers there".into());
    }
    let theirs = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    match theirs == VERSION {
        true => Ok(()),
        false => Err(other_version(theirs)),
    }
}

/// Returns the remedy for different builds in a job.
pub(super) fn other_version(theirs: impl std::fmt::Display) -> String {
    format!("start-up protocol {theirs} instead of {VERSION}: use the same vgas in all ranks")
}

/// Comes to a listener, and waits for its proof until a moment.
pub(super) fn come(socket: &OwnedFd, key: &JobKey, who: AdmittedPeer, until: Instant) -> Result<()> {
    let refused = |what: String| RmaError::Refused(format!("cannot join the job: {what}"));
    let mut statement = Vec::with_capacity(HELLO_BYTES + KEY_BYTES);
    statement.extend(begin());
    statement.extend(who.number.to_le_bytes());
    statement.extend(who.ranks.to_le_bytes());
    statement.extend(fresh_random()?);
    write(socket, &statement, until).map_err(refused)?;
    let mut answer = [0; ANSWER_BYTES];
    let (first, rest) = answer.split_at_mut(BEGIN_BYTES);
    read(socket, first, until).map_err(refused)?;
    check_begin(first).map_err(refused)?;
    read(socket, rest, until).map_err(refused)?;
    let (nonce, proof) = rest.split_at(KEY_BYTES);
    statement.extend_from_slice(nonce);
    let proof = proof.try_into().map_err(|_| refused("half a proof".into()))?;
    if !key.prove(LISTENS, &statement).matches(proof) {
        return Err(refused("who listens for it does not know its key".into()));
    }
    write(socket, key.prove(COMES, &statement).as_bytes(), until).map_err(refused)
}

fn write(socket: &OwnedFd, mut bytes: &[u8], until: Instant) -> std::result::Result<(), String> {
    while !bytes.is_empty() {
        match send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::AGAIN) => wait(socket, PollFlags::OUT, until)?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(std::io::Error::from(errno).to_string()),
        }
    }
    Ok(())
}

fn read(socket: &OwnedFd, mut bytes: &mut [u8], until: Instant) -> std::result::Result<(), String> {
    while !bytes.is_empty() {
        match recv(socket, &mut *bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err("who listens for it has closed".into()),
            Ok((count, _)) => bytes = &mut bytes[count..],
            Err(Errno::AGAIN) => wait(socket, PollFlags::IN, until)?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(std::io::Error::from(errno).to_string()),
        }
    }
    Ok(())
}

fn wait(socket: &OwnedFd, flags: PollFlags, until: Instant) -> std::result::Result<(), String> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err("no answer from who listens for it".into());
    }
    wait_for(socket.as_fd(), flags, Some(&timespec(left))).map_err(|error| error.to_string())
}

/// The listening side's part, which never waits.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    /// Received bytes of the expected part.
    came: Vec<u8>,
    /// Statement of both sides, once the visitor has said hello.
    statement: Option<Vec<u8>>,
}

/// Progress of a visitor.
#[derive(Debug)]
pub(super) enum Progress {
    /// More has to come.
    Waits,
    /// It knows the key.
    Proven(AdmittedPeer),
    /// It does not, or has gone. The answer gave it the reason.
    Refused,
}

impl Doorkeeper {
    pub(super) fn new() -> Self {
        Self { came: Vec::new(), statement: None }
    }

    /// Handles the received bytes.
    pub(super) fn advance(&mut self, socket: &OwnedFd, key: &JobKey) -> Progress {
        self.step(socket, key).unwrap_or(Progress::Refused)
    }

    fn step(&mut self, socket: &OwnedFd, key: &JobKey) -> std::result::Result<Progress, String> {
        loop {
            let wanted = if self.statement.is_none() { HELLO_BYTES } else { KEY_BYTES };
            let mut piece = [0u8; HELLO_BYTES];
            match recv(socket, &mut piece[..wanted - self.came.len()], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err("has gone before it had proven to belong to the job".into()),
                Ok((count, _)) => self.came.extend_from_slice(&piece[..count]),
                Err(Errno::AGAIN) => return Ok(Progress::Waits),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(std::io::Error::from(errno).to_string()),
            }
            if self.came.len() < wanted {
                continue;
            }
            let came = std::mem::take(&mut self.came);
            match &self.statement {
                None => self.statement = Some(answer(socket, key, came)?),
                Some(statement) => {
                    let proof: [u8; KEY_BYTES] = came.try_into().map_err(|_| "half a proof".to_owned())?;
                    if !key.prove(COMES, statement).matches(&proof) {
                        return Err("does not know the key of the job".into());
                    }
                    let number = |at: usize| {
                        u32::from_le_bytes([
                            statement[at],
                            statement[at + 1],
                            statement[at + 2],
                            statement[at + 3],
                        ])
                    };
                    let (number, ranks) = (number(BEGIN_BYTES), number(BEGIN_BYTES + 4));
                    return Ok(Progress::Proven(AdmittedPeer { number, ranks }));
                }
            }
        }
    }
}

/// Answers a hello; returns what both have said.
fn answer(socket: &OwnedFd, key: &JobKey, hello: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
    let nonce = fresh_random().map_err(|error| error.to_string())?;
    let mut statement = hello;
    let checked = check_begin(&statement);
    statement.extend(nonce);
    let mut bytes = begin().to_vec();
    bytes.extend(nonce);
    bytes.extend(key.prove(LISTENS, &statement).as_bytes());
    // Into an empty buffer of a fresh socket: there is room. The version is told in any case.
    match send(socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(count) if count == bytes.len() => checked.map(|()| statement),
        _ => Err("takes no answer".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    const WHO: AdmittedPeer = AdmittedPeer { number: 3, ranks: 4 };

    fn meet(theirs: JobKey, ours: JobKey) -> (Result<()>, Progress) {
        let (here, there) = UnixStream::pair().unwrap();
        let comes = std::thread::spawn(move || {
            come(&there.into(), &theirs, WHO, Instant::now() + Duration::from_secs(5))
        });
        let (here, mut keeper) = (OwnedFd::from(here), Doorkeeper::new());
        let progress = loop {
            match keeper.advance(&here, &ours) {
                Progress::Waits => wait_for(here.as_fd(), PollFlags::IN, None).unwrap(),
                done => break done,
            }
        };
        drop(here);
        (comes.join().unwrap(), progress)
    }

    /// Goal: a visitor with the key is admitted and known by its number; one without it learns nothing, on
    /// either side.
    #[test]
    fn the_key_opens_the_door() {
        let key = |byte| JobKey::from_bytes([byte; KEY_BYTES]);
        let (came, progress) = meet(key(1), key(1));
        assert!(came.is_ok() && matches!(progress, Progress::Proven(WHO)), "{progress:?}");
        let (came, progress) = meet(key(1), key(2));
        assert!(came.unwrap_err().to_string().contains("does not know its key"));
        assert!(matches!(progress, Progress::Refused), "{progress:?}");
    }

    /// Goal: another version is told apart from another program, by both.
    #[test]
    fn versions_are_told() {
        let mut other = begin();
        other[8] = 99;
        assert!(check_begin(&other).unwrap_err().contains("start-up protocol 99"));
        assert!(check_begin(b"SSH-2.0-OpenSSH").unwrap_err().contains("something else"));
    }
}
