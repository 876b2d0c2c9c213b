//! The thread that opens connections and lets others in. It runs the handshakes of [`super::handshake`] on sockets of
//! its own, so that pollers never see a byte of a stranger, strangers never delay traffic, and a rank that computes
//! is still reachable. Proven sockets go to the [`Table`]; afterwards the thread only watches them for a peer that
//! does not answer any more. It sleeps whenever there is nothing to do.

#![forbid(unsafe_code)]

use super::TcpLimits;
use super::socket;
use super::table::Table;
use crate::address::Peer;
use crate::conduit::wire::handshake::{
    CHALLENGE_BYTES, HELLO_BYTES, Nonce, Refusal, STEP_BYTES_MAX, Session, VERDICT_BYTES, Verdict, challenge,
    hello, judge, read_challenge, read_hello,
};
use crate::error::{Result, RmaError};
use crate::key::{JobId, JobKey, KEY_BYTES, fresh_random};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Warnings about strangers, after which no more are logged.
const WARNINGS_MAX: u32 = 100;

/// Pause of accepting when the system has no more descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Door {
    table: Arc<Table>,
    key: JobKey,
    job: JobId,
    listener: TcpListener,
    addresses: Vec<SocketAddr>,
    limits: TcpLimits,
    /// Incoming connections that have not proved anything yet, oldest first.
    visitors: VecDeque<PendingPeer>,
    /// Own attempts.
    attempts: Vec<Attempt>,
    accept_after: Option<Instant>,
    /// Connections have been refused since the last that was accepted, which has been said.
    refuses: bool,
    next_watch: Instant,
    warnings: u32,
}

struct PendingPeer {
    socket: OwnedFd,
    address: String,
    deadline: Instant,
    input: Input,
    /// Session with the opener, once it has said hello.
    session: Option<Session>,
}

struct Attempt {
    to: Peer,
    socket: OwnedFd,
    deadline: Instant,
    input: Input,
    stage: Stage,
}

enum Stage {
    Connecting(Nonce),
    AwaitChallenge(Nonce),
    AwaitVerdict(Session),
    /// The other side prefers the connection that it is opening.
    Yielded,
}

/// Result of an event.
enum Outcome {
    /// More has to come.
    Wait,
    /// Proven, and welcome.
    Open(Peer),
    /// Not needed any more, without a fault.
    Done,
}

/// Why a handshake ended.
enum Failure {
    Refused(Refusal),
    Closed,
    Io(std::io::Error),
    Rma(RmaError),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Refused(refusal) => refusal.fmt(f),
            Failure::Closed => f.write_str("it closed the connection before it had proved anything"),
            Failure::Io(error) => error.fmt(f),
            Failure::Rma(error) => error.fmt(f),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Refused(refusal)
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        match error {
            // Closed with bytes from here that it has not read.
            Errno::CONNRESET | Errno::PIPE => Failure::Closed,
            _ => Failure::Io(error.into()),
        }
    }
}

/// One message of the handshake, as far as it has come. Reads exactly its bytes, never what follows.
struct Input {
    bytes: [u8; STEP_BYTES_MAX],
    have: usize,
}

impl Input {
    fn new() -> Self {
        Self { bytes: [0; STEP_BYTES_MAX], have: 0 }
    }

    /// The message of `N` bytes once it is complete.
    fn read<const N: usize>(&mut self, socket: &OwnedFd) -> Result<Option<[u8; N]>, Failure> {
        while self.have < N {
            match rustix::net::recv(socket, &mut self.bytes[self.have..N], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(Failure::Closed),
                Ok((_, bytes)) => self.have += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        self.have = 0;
        let mut message = [0; N];
        message.copy_from_slice(&self.bytes[..N]);
        Ok(Some(message))
    }
}

/// A message of the handshake always fits into the empty buffer of a fresh socket; a socket where it does not is
/// broken.
fn say(socket: &OwnedFd, message: &[u8]) -> Result<(), Failure> {
    let sent = rustix::net::send(socket, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    if sent == message.len() { Ok(()) } else { Err(Failure::Closed) }
}

impl Door {
    pub(super) fn new(
        table: Arc<Table>,
        key: JobKey,
        listener: TcpListener,
        addresses: Vec<SocketAddr>,
        limits: TcpLimits,
    ) -> Result<Self> {
        listener.set_nonblocking(true).map_err(|e| RmaError::io("set up the listening socket", e))?;
        Ok(Self {
            job: key.job_id(),
            table,
            key,
            listener,
            addresses,
            limits,
            visitors: VecDeque::new(),
            attempts: Vec::new(),
            accept_after: None,
            refuses: false,
            next_watch: Instant::now(),
            warnings: 0,
        })
    }

    /// Works until [`Table::stop`].
    pub(super) fn run(mut self) {
        while !self.table.stopping() {
            let now = Instant::now();
            for peer in self.table.take_wanted() {
                self.start(peer, now);
            }
            let ready = match self.sleep(now) {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!("the tcp conduit can no longer open connections: poll failed: {error}");
                    return;
                }
            };
            let now = Instant::now();
            if ready.bell {
                self.table.clear_door_bell();
            }
            // Visitors first: what they prove decides about own attempts. Highest index first, so that removing one
            // leaves the others where they are.
            for index in ready.visitors.into_iter().rev() {
                self.serve_visitor(index);
            }
            for to in ready.attempts {
                self.advance(to);
            }
            if ready.listener {
                self.accept(now);
            }
            self.expire(now);
            if now >= self.next_watch {
                self.watch();
                self.next_watch = now + self.limits.watch_interval;
            }
        }
    }

    /// Waits for something to do.
    fn sleep(&self, now: Instant) -> Result<Ready, Errno> {
        let accepting = self.accept_after.is_none_or(|after| after <= now);
        let listening = if accepting { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.table.door_bell(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), listening),
        ];
        fds.extend(self.visitors.iter().map(|v| PollFd::new(&v.socket, PollFlags::IN)));
        let first_attempt = fds.len();
        let mut attempts = Vec::with_capacity(self.attempts.len());
        for attempt in &self.attempts {
            let flags = match attempt.stage {
                Stage::Connecting(_) => PollFlags::OUT,
                Stage::AwaitChallenge(_) | Stage::AwaitVerdict(_) => PollFlags::IN,
                // The other side has closed this one, which poll would report for ever.
                Stage::Yielded => continue,
            };
            fds.push(PollFd::new(&attempt.socket, flags));
            attempts.push(attempt.to);
        }
        let watch = (self.table.open_count() > 0).then_some(self.next_watch);
        let deadline = (self.visitors.iter().map(|v| v.deadline))
            .chain(self.attempts.iter().map(|a| a.deadline))
            .chain(self.accept_after.filter(|_| !accepting))
            .chain(watch)
            .min();
        let timeout = deadline.map(|deadline| {
            // Rounded up: a timeout of 0 just before the deadline would spin.
            let rest = deadline.saturating_duration_since(now) + Duration::from_millis(1);
            Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: i64::from(rest.subsec_nanos()) }
        });
        poll(&mut fds, timeout.as_ref())?;
        let is_ready = |index: usize| !fds[index].revents().is_empty();
        let visitors = (0..self.visitors.len()).filter(|i| is_ready(2 + i)).collect();
        let mut index = first_attempt;
        attempts.retain(|_| {
            index += 1;
            is_ready(index - 1)
        });
        Ok(Ready { bell: is_ready(0), listener: is_ready(1), visitors, attempts })
    }

    /// Lets callers in, as far as the door: they have to prove themselves before anything else.
    fn accept(&mut self, now: Instant) {
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::WOULDBLOCK) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => {
                    if !std::mem::replace(&mut self.refuses, true) {
                        self.warn(format_args!("cannot accept connections: {error}; trying again"));
                    }
                    self.visitors.pop_front();
                    self.accept_after = Some(now + ACCEPT_PAUSE);
                    return;
                }
            };
            (self.accept_after, self.refuses) = (None, false);
            // The newest is served, the oldest goes: an honest peer needs milliseconds, one that hopes to fill the
            // places stays.
            if self.visitors.len() >= self.limits.unproved_max
                && let Some(oldest) = self.visitors.pop_front()
            {
                self.warn(format_args!("dropped {}: too many connections without a proof", oldest.address));
            }
            let address = match rustix::net::getpeername(&socket) {
                Ok(Some(address)) => match SocketAddr::try_from(address) {
                    Ok(address) => address.to_string(),
                    Err(_) => "an unknown address".into(),
                },
                _ => "an unknown address".into(),
            };
            self.visitors.push_back(PendingPeer {
                socket,
                address,
                deadline: now + self.limits.proof_timeout,
                input: Input::new(),
                session: None,
            });
        }
    }

    fn serve_visitor(&mut self, index: usize) {
        match self.hear_visitor(index) {
            Ok(Outcome::Wait) => {}
            Ok(Outcome::Done) => drop(self.visitors.remove(index)),
            Ok(Outcome::Open(peer)) => {
                // The lower peer's attempt was welcomed: an own one has become needless.
                self.attempts.retain(|attempt| attempt.to != peer);
                if let Some(visitor) = self.visitors.remove(index) {
                    self.open(peer, visitor.socket);
                }
            }
            Err(failure) => {
                let Some(visitor) = self.visitors.remove(index) else { return };
                match failure {
                    // So do peers whose attempt crossed ours, scanners, and probes of the port.
                    Failure::Closed => tracing::debug!("{} has left: {failure}", visitor.address),
                    _ => self.warn(format_args!("dropped a connection from {}: {failure}", visitor.address)),
                }
            }
        }
    }

    fn hear_visitor(&mut self, index: usize) -> Result<Outcome, Failure> {
        let visitor = &mut self.visitors[index];
        let session = match visitor.session {
            Some(session) => session,
            None => {
                let Some(bytes) = visitor.input.read::<HELLO_BYTES>(&visitor.socket)? else {
                    return Ok(Outcome::Wait);
                };
                let read = read_hello(self.job, self.table.me, self.table.layout.peers(), &bytes);
                let nonce = fresh_random().map_err(Failure::Rma)?;
                if let Err(Refusal::Version(_)) = read {
                    // So that he can say which version to use; no more than any stranger gets.
                    let _ = say(&visitor.socket, &challenge(&nonce));
                }
                let (from, opener_nonce) = read?;
                say(&visitor.socket, &challenge(&nonce))?;
                let session = Session { from, to: self.table.me, opener_nonce, acceptor_nonce: nonce };
                *visitor.session.insert(session)
            }
        };
        let Some(proof) = visitor.input.read::<KEY_BYTES>(&visitor.socket)? else { return Ok(Outcome::Wait) };
        if !session.opener_proof(&self.key).matches(&proof) {
            return Err(Refusal::WrongKey.into());
        }
        let from = session.from;
        let opening = self.attempts.iter().any(|a| a.to == from && !matches!(a.stage, Stage::Yielded));
        let verdict = judge(self.table.me, from, opening, self.table.connection(from).is_some());
        say(&visitor.socket, &session.verdict(&self.key, verdict))?;
        Ok(match verdict {
            Verdict::Welcome => Outcome::Open(from),
            Verdict::Redundant => Outcome::Done,
        })
    }

    /// Begins an own attempt, unless the pair is connected by now.
    fn start(&mut self, to: Peer, now: Instant) {
        if self.table.connection(to).is_some() {
            return;
        }
        match self.call(to) {
            Ok((socket, stage)) => self.attempts.push(Attempt {
                to,
                socket,
                deadline: now + self.limits.connect_timeout,
                input: Input::new(),
                stage,
            }),
            Err(failure) => self.fail(to, &failure),
        }
    }

    fn call(&self, to: Peer) -> Result<(OwnedFd, Stage), Failure> {
        let address = &self.addresses[to.0 as usize];
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok((socket, Stage::Connecting(fresh_random().map_err(Failure::Rma)?)))
    }

    fn advance(&mut self, to: Peer) {
        let Some(index) = self.attempts.iter().position(|attempt| attempt.to == to) else { return };
        match self.hear_attempt(index) {
            Ok(Outcome::Wait) => {}
            Ok(Outcome::Done) => drop(self.attempts.swap_remove(index)),
            Ok(Outcome::Open(peer)) => {
                let attempt = self.attempts.swap_remove(index);
                self.open(peer, attempt.socket);
            }
            Err(failure) => {
                self.attempts.swap_remove(index);
                self.fail(to, &failure);
            }
        }
    }

    fn hear_attempt(&mut self, index: usize) -> Result<Outcome, Failure> {
        let attempt = &mut self.attempts[index];
        if let Stage::Connecting(nonce) = attempt.stage {
            sockopt::socket_error(&attempt.socket)??;
            say(&attempt.socket, &hello(self.job, self.table.me, attempt.to, &nonce))?;
            attempt.stage = Stage::AwaitChallenge(nonce);
        }
        if let Stage::AwaitChallenge(opener_nonce) = attempt.stage {
            let Some(bytes) = attempt.input.read::<CHALLENGE_BYTES>(&attempt.socket)? else {
                return Ok(Outcome::Wait);
            };
            let acceptor_nonce = read_challenge(&bytes)?;
            let session = Session { from: self.table.me, to: attempt.to, opener_nonce, acceptor_nonce };
            say(&attempt.socket, session.opener_proof(&self.key).as_bytes())?;
            attempt.stage = Stage::AwaitVerdict(session);
        }
        if let Stage::AwaitVerdict(session) = attempt.stage {
            let Some(bytes) = attempt.input.read::<VERDICT_BYTES>(&attempt.socket)? else {
                return Ok(Outcome::Wait);
            };
            match session.read_verdict(&self.key, &bytes)? {
                Verdict::Welcome => return Ok(Outcome::Open(attempt.to)),
                Verdict::Redundant if self.table.connection(attempt.to).is_some() => {
                    return Ok(Outcome::Done);
                }
                Verdict::Redundant => attempt.stage = Stage::Yielded,
            }
        }
        Ok(Outcome::Wait)
    }

    fn open(&mut self, peer: Peer, socket: OwnedFd) {
        let opened = prepare(&socket, &self.limits)
            .map_err(|e| RmaError::system("set up a connection", e))
            .and_then(|()| self.table.open(peer, socket));
        match opened {
            Ok(true) => {}
            Ok(false) => {
                let who = self.table.layout.describe(peer);
                self.warn(format_args!("{who} opened a second connection; it was closed"));
            }
            Err(error) => self.table.fail(peer, error.to_string()),
        }
    }

    fn fail(&mut self, to: Peer, failure: &Failure) {
        let address = self.addresses[to.0 as usize];
        self.table.fail(to, format!("{address}: {failure}"));
    }

    /// Drops connections that have taken too long.
    fn expire(&mut self, now: Instant) {
        while let Some(index) = self.visitors.iter().position(|visitor| visitor.deadline <= now) {
            if let Some(visitor) = self.visitors.remove(index) {
                let seconds = self.limits.proof_timeout.as_secs_f32();
                self.warn(format_args!(
                    "dropped a connection from {}: it did not prove that it knows the job's key within {seconds} s",
                    visitor.address
                ));
            }
        }
        while let Some(index) = self.attempts.iter().position(|attempt| attempt.deadline <= now) {
            let attempt = self.attempts.swap_remove(index);
            let seconds = self.limits.connect_timeout.as_secs_f32();
            let address = self.addresses[attempt.to.0 as usize];
            self.table.fail(attempt.to, format!("{address} did not answer within {seconds} s"));
        }
    }

    /// Gives up connections whose other end is silent although it was asked.
    fn watch(&self) {
        for connection in self.table.open_from(0).filter(|c| c.lost().is_none()) {
            let Ok(state) = socket::state(connection.socket()) else { continue };
            let silence = state.silent_for.unwrap_or_default();
            if connection.note_silence(silence > self.limits.silence_max) {
                let seconds = silence.as_secs_f32();
                connection.lose(format!("its machine has not answered for {seconds:.0} s"));
            }
        }
    }

    fn warn(&mut self, what: std::fmt::Arguments<'_>) {
        self.warnings += 1;
        match self.warnings {
            ..WARNINGS_MAX => tracing::warn!("{what}"),
            WARNINGS_MAX => tracing::warn!("{what} (further ones are not reported)"),
            _ => {}
        }
    }
}

/// Result of [`Door::sleep`].
struct Ready {
    bell: bool,
    listener: bool,
    /// Positions, ascending.
    visitors: Vec<usize>,
    attempts: Vec<Peer>,
}

/// The options of a socket that carries traffic.
fn prepare(socket: &OwnedFd, limits: &TcpLimits) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)?;
    // For the idle; `Door::watch` sees to those with something in flight, which keep-alive leaves alone.
    let interval = (limits.silence_max / 4).max(Duration::from_secs(1));
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, interval)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, 3)
}
