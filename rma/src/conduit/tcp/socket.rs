//! The system calls on established sockets that take raw addresses: payloads lie in shared memory, to which
//! Rust references must not exist. All `unsafe` of the TCP conduit is in this file.
//!
//! # Rules
//!
//! 1. *Sources.* A [`Source`] is readable for the duration of the call it is passed to: that is the contract
//!    of [`Source`], kept by the callers of `try_send`.
//! 2. *Destinations.* A [`Target`] comes from `Sink::destination` for `bytes` bytes and is writable until the message
//!    has been delivered; every write stays within these bytes (checked here, not by callers).
//! 3. *No references.* Neither is ever turned into a slice: other processes may access the same bytes.
//! 4. *Words.* The system copies bytes as it likes. Bytes that other threads or processes may write or read
//!    meanwhile pass through private memory, from and to which they are [copied](vgas_shm::copy) in whole
//!    words. The source of a put is not written meanwhile, nor is the destination of a get used: GASNet
//!    requires that.

use crate::address::Peer;
use crate::error::Result;
use crate::message::{Destination, Sink, Source};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use vgas_shm::copy::copy;

/// Result of a read from a non-blocking socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing at the moment.
    Nothing,
    /// The other side has closed.
    End,
}

/// Memory that a long payload is received into, and its filled length.
#[derive(Debug)]
pub(super) struct Target {
    base: *mut u8,
    bytes: usize,
    filled: usize,
    /// Bytes that have come and are not copied yet, if the memory may be in use elsewhere (rule 4).
    staged: Option<Vec<u8>>,
}

/// Most that is received at once: it is still in a processor's cache when it is copied on, and the system has room for more sooner.
/// (Measured with 1 MiB at a time, pinned puts and gets: up to half as fast again as with whatever has come.)
const RECEIVED_BYTES: usize = 64 << 10;

/// Most that is copied for the system at once. (Half as much is sent more slowly, and as much again leaves the cache meanwhile.)
const COPIED_BYTES: usize = 512 << 10;

/// Alignment of the copy: processors that copy by one instruction, which the system then uses, take
/// up to thirty times as long if the destination lies a few bytes behind the source within these.
const PAGE_BYTES: usize = 4 << 10;

// SAFETY: the address is valid in the whole process (rule 2), whichever thread completes the message.
unsafe impl Send for Target {}

impl Target {
    /// Asks the sink for the destination of a message's payload.
    pub(super) fn of(sink: &dyn Sink, from: Peer, destination: Destination, bytes: usize) -> Result<Self> {
        let base = sink.destination(from, destination, bytes)?;
        let is_shared = matches!(destination, Destination::Region { region, .. } if region.is_segment());
        Ok(Self { base, bytes, filled: 0, staged: is_shared.then(Vec::new) })
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that have not come yet.
    pub(super) fn missing(&self) -> usize {
        self.bytes - self.filled - self.staged.as_ref().map_or(0, Vec::len)
    }

    /// Copies as much of `from` as still fits; returns the number of bytes.
    pub(super) fn fill_from(&mut self, from: &[u8]) -> usize {
        let missing = self.missing();
        let bytes = from.len().min(missing);
        match &mut self.staged {
            Some(staged) if bytes < missing || !staged.is_empty() => {
                staged.extend_from_slice(&from[..bytes]);
                self.place_staged();
            }
            _ => {
                // SAFETY: rule 2; `bytes` does not pass the end. `from` is private memory, so the two do not overlap.
                unsafe { copy(from.as_ptr(), self.base.add(self.filled), bytes) };
                self.filled += bytes;
            }
        }
        bytes
    }

    /// Copies the staged bytes, but for an incomplete last word.
    fn place_staged(&mut self) {
        let is_last = self.missing() == 0;
        let Some(staged) = &mut self.staged else { return };
        let end = self.base.addr() + self.filled + staged.len();
        let bytes = if is_last { staged.len() } else { staged.len().saturating_sub(end % size_of::<u64>()) };
        // SAFETY: rule 2: no more is staged than was missing. Private memory overlaps nothing.
        unsafe { copy(staged.as_ptr(), self.base.add(self.filled), bytes) };
        self.filled += bytes;
        if is_last {
            self.staged = None;
        } else {
            staged.drain(..bytes);
        }
    }

    /// Reads from the socket, with one system call, straight into the memory if it has no other users; and if
    /// the rest has come then, the following bytes of the stream into `after`. Returns the number of bytes of
    /// `after` that were filled as well, and the number requested in all.
    pub(super) fn fill_from_socket(
        &mut self,
        socket: BorrowedFd<'_>,
        after: &mut [u8],
    ) -> io::Result<(Received, usize, usize)> {
        let missing = self.missing();
        let room = missing.min(RECEIVED_BYTES);
        let to = match &mut self.staged {
            Some(staged) => {
                staged.reserve(room);
                staged.spare_capacity_mut().as_mut_ptr().cast()
            }
            // SAFETY: rule 2: `filled` is at most `bytes`.
            None => unsafe { self.base.add(self.filled) },
        };
        let behind = if room == missing { after.len() } else { 0 };
        let mut parts = [
            libc::iovec { iov_base: to.cast(), iov_len: room },
            libc::iovec { iov_base: after.as_mut_ptr().cast(), iov_len: behind },
        ];
        // SAFETY: an all-zero header is a valid one: no name, no control data, no flags.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = parts.len();
        let wanted = room + behind;
        let received = retry(|| {
            // SAFETY: both parts are writable for their lengths: rule 2 or reserved room, and an exclusive borrow.
            unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_DONTWAIT) }
        })?;
        let received = match received {
            None => return Ok((Received::Nothing, 0, wanted)),
            Some(0) => return Ok((Received::End, 0, wanted)),
            Some(bytes) => bytes,
        };
        let here = received.min(room);
        match &mut self.staged {
            // SAFETY: the system has written so much of the room.
            Some(staged) => unsafe { staged.set_len(staged.len() + here) },
            None => self.filled += here,
        }
        self.place_staged();
        Ok((Received::Bytes(received), received - here, wanted))
    }
}

thread_local! {
    /// Buffer for payloads before the system reads them; one at a time.
    static COPIED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Splits a payload into the part to send at once and the rest.
pub(super) fn split(payload: Source<'_>) -> (Source<'_>, Source<'_>) {
    let at = match payload.is_contended() {
        // The end of a word.
        true => payload.bytes().min(COPIED_BYTES - payload.address().addr() % size_of::<u64>()),
        false => payload.bytes(),
    };
    (payload.part(0, at), payload.part(at, payload.bytes() - at))
}

/// Hands a payload to `send` as the system may read it (rule 4).
pub(super) fn with_whole_words<R>(payload: Source<'_>, send: impl FnOnce(Source<'_>) -> R) -> R {
    if !payload.is_contended() {
        return send(payload);
    }
    COPIED.with_borrow_mut(|copied| {
        copied.clear();
        let mut skip = 0;
        if payload.bytes() >= PAGE_BYTES {
            copied.reserve(PAGE_BYTES + payload.bytes());
            skip = copied.as_ptr().addr().wrapping_neg() % PAGE_BYTES;
            copied.resize(skip, 0);
        }
        append(copied, payload, 0);
        send(Source::of(&copied[skip..]))
    })
}

/// Sends `head` and then `payload` from `skip` on, in one call; `None` if the socket takes nothing now.
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

/// Returns true if it takes a good part of its buffer, or has failed, which a send reports.
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

/// The system's view of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    /// Time that the other side has left probes or retransmissions unanswered, if it has. Unlike
    /// `TCP_USER_TIMEOUT` this does not count the time during which it answers but has no room, because its
    /// program computes.
    pub(super) silent_for: Option<Duration>,
    /// True if sent bytes may not have arrived.
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
