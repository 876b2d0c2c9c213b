//! The system calls on established sockets that take raw addresses: payloads lie in shared memory, of which Rust
//! references must not exist. All `unsafe` of the TCP conduit is in this file.
//!
//! # Rules
//!
//! 1. *Sources.* A [`Source`] is readable for the duration of the call it is passed to: that is the contract of
//!    [`Source`], kept by whoever calls `try_send`.
//! 2. *Destinations.* A [`Target`] comes from `Sink::destination` for `bytes` bytes and is writable until the message
//!    has been delivered; every write stays within these bytes (checked here, not by callers).
//! 3. *No references.* Neither is ever turned into a slice: other processes may access the same bytes.

use crate::address::Peer;
use crate::error::Result;
use crate::message::{Destination, Sink, Source};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use vgas_shm::copy::copy;

/// What a read from a non-blocking socket found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing at the moment.
    Nothing,
    /// The other side has closed.
    End,
}

/// Memory that a long payload is received into, and how much of it is filled.
#[derive(Debug)]
pub(super) struct Target {
    base: *mut u8,
    bytes: usize,
    filled: usize,
}

// SAFETY: the address is valid in the whole process (rule 2), whichever thread completes the message.
unsafe impl Send for Target {}

impl Target {
    /// Asks the sink where the payload of a message belongs.
    pub(super) fn of(sink: &dyn Sink, from: Peer, destination: Destination, bytes: usize) -> Result<Self> {
        let base = sink.destination(from, destination, bytes)?;
        Ok(Self { base, bytes, filled: 0 })
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that have not come yet.
    pub(super) fn missing(&self) -> usize {
        self.bytes - self.filled
    }

    /// Copies as much of `from` as still fits; returns how much.
    pub(super) fn fill_from(&mut self, from: &[u8]) -> usize {
        let bytes = from.len().min(self.missing());
        // SAFETY: rule 2; `bytes` does not pass the end. `from` is private memory, so the two do not overlap.
        unsafe { copy(from.as_ptr(), self.base.add(self.filled), bytes) };
        self.filled += bytes;
        bytes
    }

    /// Reads from the socket straight into the memory, and what follows it in the stream into `after`, with one
    /// system call. Returns the number of bytes of `after` that were filled.
    pub(super) fn fill_from_socket(
        &mut self,
        socket: BorrowedFd<'_>,
        after: &mut [u8],
    ) -> io::Result<(Received, usize)> {
        let room = self.missing();
        let mut parts = [
            // SAFETY: rule 2: `filled` is at most `bytes`.
            libc::iovec { iov_base: unsafe { self.base.add(self.filled) }.cast(), iov_len: room },
            libc::iovec { iov_base: after.as_mut_ptr().cast(), iov_len: after.len() },
        ];
        // SAFETY: an all-zero header is a valid one: no name, no control data, no flags.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = parts.len();
        let received = retry(|| {
            // SAFETY: both parts are writable for their lengths: rule 2, and an exclusive borrow.
            unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_DONTWAIT) }
        })?;
        let received = match received {
            None => return Ok((Received::Nothing, 0)),
            Some(0) => return Ok((Received::End, 0)),
            Some(bytes) => bytes,
        };
        let here = received.min(room);
        self.filled += here;
        Ok((Received::Bytes(received), received - here))
    }
}

/// Sends `head` and then what `payload` has from `skip` on, in one call; `None` when the socket takes nothing now.
#[inline]
pub(super) fn send(
    socket: BorrowedFd<'_>,
    head: &[u8],
    payload: Source<'_>,
    skip: usize,
) -> io::Result<Option<usize>> {
    debug_assert!(skip <= payload.bytes());
    if payload.bytes() == skip {
        return retry(|| {
            // SAFETY: `head` is a live slice.
            unsafe { libc::send(socket.as_raw_fd(), head.as_ptr().cast(), head.len(), FLAGS) }
        });
    }
    let mut parts = [
        libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
        libc::iovec {
            iov_base: payload.address().wrapping_add(skip).cast_mut().cast(),
            iov_len: payload.bytes() - skip,
        },
    ];
    // SAFETY: an all-zero header is a valid one.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = parts.len();
    // SAFETY: the kernel only reads both parts: a live slice, and rule 1.
    retry(|| unsafe { libc::sendmsg(socket.as_raw_fd(), &header, FLAGS) })
}

const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Whether it takes a good part of its buffer, or has failed, which a send reports.
pub(super) fn has_room(socket: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    // An interruption is no answer: ask again later.
    poll(&mut descriptors, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Appends what `source` has from `skip` on to private memory.
pub(super) fn append(to: &mut Vec<u8>, source: Source<'_>, skip: usize) {
    debug_assert!(skip <= source.bytes());
    let bytes = source.bytes().saturating_sub(skip);
    if bytes == 0 {
        return;
    }
    to.reserve(bytes);
    // SAFETY: rule 1 for the source; the room was just reserved, and is initialised by the copy before it counts.
    unsafe {
        copy(source.address().add(skip), to.as_mut_ptr().add(to.len()), bytes);
        to.set_len(to.len() + bytes);
    }
}

/// What the system knows about a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    /// For how long the other side has left probes or retransmissions unanswered, if it has. Unlike
    /// `TCP_USER_TIMEOUT` this does not count the time during which it answers but has no room, because its program
    /// computes.
    pub(super) silent_for: Option<Duration>,
    /// Whether sent bytes may not have arrived.
    pub(super) unacknowledged: bool,
}

/// Asks the system about a connection.
pub(super) fn state(socket: BorrowedFd<'_>) -> io::Result<State> {
    // SAFETY: `tcp_info` consists of integers, for which zero is valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` is writable for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // Both fall to zero with any answer; `tcpi_backoff` does not.
    let waiting = info.tcpi_retransmits > 0 || info.tcpi_probes > 0;
    Ok(State {
        silent_for: waiting.then(|| Duration::from_millis(u64::from(info.tcpi_last_ack_recv))),
        unacknowledged: info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0,
    })
}

/// Repeats a call that a signal interrupted; `None` when it would block.
#[inline]
fn retry(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<Option<usize>> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(Some(result as usize));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(None),
            _ => return Err(error),
        }
    }
}
