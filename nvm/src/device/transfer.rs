//! A transfer's progress and its memory in the kernel's form, for both real devices.
//!
//! # Who keeps what alive (the rules of this crate's unsafe code)
//!
//! 1. *Owned.* A [`Transfer`] owns the spans that its vectors point into, and its descriptor. The device that
//!    gave its vectors to the kernel keeps the transfer until it has seen the kernel's answer. A span keeps
//!    its mapping mapped.
//! 2. *In range.* Vectors cover only bytes of the transfer's spans, from `bytes_done` on.
//! 3. *Stable.* Vectors handed to the kernel for an asynchronous call live in an allocation of their own, which is
//!    neither changed nor freed until the answer has been seen.
//! 4. *Shared bytes.* The kernel reads and writes through raw addresses; no Rust reference to the bytes ever exists.

use super::{Completion, Kind, Operation};
use crate::error::DeviceError;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use vgas_shm::Span;

/// Number of restarts of an interrupted transfer before it counts as failed.
const RETRIES_MAX: u32 = 1000;

/// An operation in flight, with its progress.
pub(super) struct Transfer {
    pub(super) operation: Operation,
    pub(super) descriptor: Arc<OwnedFd>,
    bytes: u64,
    bytes_done: u64,
    retries: u32,
}

/// Memory as the kernel wants it.
#[derive(Default)]
pub(super) struct Vectors(pub(super) Vec<libc::iovec>);

// SAFETY: the addresses stay valid in every thread as long as the spans live (rule 1); nothing here dereferences them.
unsafe impl Send for Vectors {}

/// The next step after an answer of the kernel.
pub(super) enum Next {
    /// Go on with the rest.
    Continue,
    /// The operation is over.
    Done(Result<u64, DeviceError>),
}

impl Transfer {
    pub(super) fn new(operation: Operation, descriptor: Arc<OwnedFd>) -> Self {
        Self { bytes: operation.bytes(), bytes_done: 0, retries: 0, operation, descriptor }
    }

    /// Offset in the file of the bytes still to transfer.
    pub(super) fn offset(&self) -> u64 {
        self.operation.offset + self.bytes_done
    }

    /// The memory of the rest if the operation has one span; spares most operations the vectors.
    pub(super) fn one_piece(&self) -> Option<(*mut u8, usize)> {
        let [span] = self.operation.spans.as_slice() else { return None };
        let done = self.bytes_done as usize;
        Some((span.address().wrapping_add(done), span.bytes() - done))
    }

    /// The memory of the rest, with neighbouring pieces joined.
    pub(super) fn vectors(&self) -> Vectors {
        let mut vectors: Vec<libc::iovec> = Vec::with_capacity(self.operation.spans.as_slice().len());
        let mut skip = self.bytes_done as usize;
        for span in self.operation.spans.as_slice() {
            if skip >= span.bytes() {
                skip -= span.bytes();
                continue;
            }
            let (address, bytes) = (span.address().wrapping_add(skip), span.bytes() - skip);
            skip = 0;
            match vectors.last_mut() {
                Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == address => {
                    last.iov_len += bytes
                }
                _ => vectors.push(libc::iovec { iov_base: address.cast(), iov_len: bytes }),
            }
        }
        Vectors(vectors)
    }

    /// Takes the kernel's answer into account.
    pub(super) fn advance(&mut self, answer: Result<u64, Errno>) -> Next {
        let is_transfer = matches!(self.operation.kind, Kind::Read | Kind::Write);
        let (bytes_done, bytes_asked) = (self.bytes_done, self.bytes);
        match answer {
            Ok(_) if !is_transfer => Next::Done(Ok(0)),
            Ok(moved) if moved > 0 && bytes_done + moved < bytes_asked => {
                self.bytes_done += moved;
                Next::Continue
            }
            Ok(moved) if bytes_done + moved >= bytes_asked => Next::Done(Ok(bytes_asked)),
            Ok(_) => Next::Done(Err(DeviceError::Short { bytes_done, bytes_asked })),
            Err(Errno::INTR | Errno::AGAIN) if self.retries < RETRIES_MAX => {
                self.retries += 1;
                Next::Continue
            }
            // The rest after a short transfer need not be aligned as direct I/O wants it.
            Err(Errno::INVAL) if bytes_done > 0 => {
                Next::Done(Err(DeviceError::Short { bytes_done, bytes_asked }))
            }
            Err(errno) => Next::Done(Err(DeviceError::of(errno, bytes_done))),
        }
    }

    /// The completion of the operation, which gives its memory back.
    pub(super) fn complete(self, result: Result<u64, DeviceError>) -> Completion {
        Completion { key: self.operation.key, spans: self.operation.spans, result }
    }

    /// Does the whole operation in this thread.
    pub(super) fn run(mut self) -> Completion {
        loop {
            let answer = self.call();
            if let Next::Done(result) = self.advance(answer) {
                return self.complete(result);
            }
        }
    }

    fn call(&self) -> Result<u64, Errno> {
        match self.operation.kind {
            Kind::SyncData => rustix::fs::fdatasync(&self.descriptor).map(|()| 0),
            Kind::PunchHole { bytes } => {
                rustix::fs::fallocate(&self.descriptor, punch_mode(), self.operation.offset, bytes)
                    .map(|()| 0)
            }
            kind => {
                let vectors = self.vectors().0;
                let (at, count) = (vectors.as_ptr(), vectors.len() as libc::c_int);
                let (descriptor, offset) = (self.descriptor.as_raw_fd(), self.offset() as libc::off64_t);
                // SAFETY: the vectors are in range (rule 2); they, the spans and the descriptor outlive this blocking
                // call (rule 1).
                let moved = unsafe {
                    match kind {
                        Kind::Read => libc::preadv64(descriptor, at, count, offset),
                        _ => libc::pwritev64(descriptor, at, count, offset),
                    }
                };
                u64::try_from(moved).map_err(|_| {
                    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
                    Errno::from_raw_os_error(errno)
                })
            }
        }
    }
}

/// Fills a span from a place in a file, in this thread. Neither allocates nor locks.
pub(super) fn fill(span: &Span, descriptor: &OwnedFd, offset: u64) -> Result<(), DeviceError> {
    let (mut done, mut retries) = (0, 0);
    while done < span.bytes() {
        let (at, bytes) = (span.address().wrapping_add(done), span.bytes() - done);
        let from = (offset + done as u64) as libc::off64_t;
        // SAFETY: the bytes are in range (rule 2); the span and the descriptor outlive this blocking call (rule 1).
        let moved = unsafe { libc::pread64(descriptor.as_raw_fd(), at.cast(), bytes, from) };
        match usize::try_from(moved) {
            Ok(0) => {
                return Err(DeviceError::Short { bytes_done: done as u64, bytes_asked: span.bytes() as u64 });
            }
            Ok(moved) => done += moved,
            Err(_) => {
                let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
                let errno = Errno::from_raw_os_error(errno);
                retries += 1;
                if !matches!(errno, Errno::INTR | Errno::AGAIN) || retries > RETRIES_MAX {
                    return Err(DeviceError::of(errno, done as u64));
                }
            }
        }
    }
    Ok(())
}

/// The mode for punching holes: the file keeps its size.
pub(super) fn punch_mode() -> FallocateFlags {
    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
}

#[cfg(test)]
mod tests {
    //! Goal: a short transfer of the kernel is continued where it stopped, and never taken as whole. Kernels
    //! are short rarely, so the decision is tested without one.

    use super::*;
    use crate::device::FileId;
    use vgas_shm::Mapping;

    fn transfer() -> (Transfer, *mut u8) {
        let mapping = Mapping::anonymous("transfer", 5 * 4096).unwrap();
        let base = mapping.base();
        // Two neighbours, then one apart.
        let spans = [0, 1, 3].map(|page| mapping.span(page * 4096, 4096)).into_iter().collect();
        let operation = Operation { key: 7, file: FileId(0), kind: Kind::Read, offset: 8192, spans };
        let descriptor = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
        (Transfer::new(operation, Arc::new(descriptor.unwrap())), base)
    }

    fn parts(transfer: &Transfer, base: *mut u8) -> Vec<(usize, usize)> {
        let part = |vector: &libc::iovec| (vector.iov_base as usize - base as usize, vector.iov_len);
        transfer.vectors().0.iter().map(part).collect()
    }

    #[test]
    fn a_short_transfer_goes_on_where_it_stopped() {
        let (mut transfer, base) = transfer();
        assert_eq!(parts(&transfer, base), [(0, 8192), (3 * 4096, 4096)]);
        assert!(matches!(transfer.advance(Ok(4096 + 512)), Next::Continue));
        assert_eq!(transfer.offset(), 8192 + 4096 + 512);
        assert_eq!(parts(&transfer, base), [(4096 + 512, 4096 - 512), (3 * 4096, 4096)]);
        assert!(matches!(transfer.advance(Err(Errno::INTR)), Next::Continue));
        assert!(matches!(transfer.advance(Ok(4096 - 512)), Next::Continue));
        assert_eq!(parts(&transfer, base), [(3 * 4096, 4096)]);
        assert!(matches!(transfer.advance(Ok(4096)), Next::Done(Ok(12288))));
    }

    #[test]
    fn a_transfer_that_stops_moving_is_reported_short() {
        for stop in [Ok(0), Err(Errno::INVAL)] {
            let (mut transfer, _) = transfer();
            assert!(matches!(transfer.advance(Ok(512)), Next::Continue));
            let short = DeviceError::Short { bytes_done: 512, bytes_asked: 12288 };
            assert!(matches!(transfer.advance(stop), Next::Done(Err(error)) if error == short));
        }
        let (mut transfer, _) = transfer();
        let nothing = DeviceError::Short { bytes_done: 0, bytes_asked: 12288 };
        assert!(matches!(transfer.advance(Ok(0)), Next::Done(Err(error)) if error == nothing));
    }

    #[test]
    fn a_disk_full_in_the_middle_says_how_far_it_came() {
        let (mut transfer, _) = transfer();
        assert!(matches!(transfer.advance(Ok(4096)), Next::Continue));
        let full = DeviceError::of(Errno::NOSPC, 4096);
        assert!(matches!(transfer.advance(Err(Errno::NOSPC)), Next::Done(Err(error)) if error == full));
    }
}
