//! The seam between segments and whatever stores their bytes.
//!
//! A device owns a few files and moves bytes between them and shared memory, many operations at a time. It knows
//! nothing of pages, checksums or checkpoints; those are [`crate::Volume`]'s.
//!
//! | device | is for |
//! |---|---|
//! | [`uring`] | the real thing: io_uring with direct I/O |
//! | [`blocking`] | machines without io_uring or filesystems without direct I/O: plain calls in a few threads |
//! | [`paced`] | virtual nodes: any of the others, slowed down to the rates of some drive |
//! | [`memory`] | tests and simulation: a live and a durable image, crashes on demand |
//! | [`faulty`] | tests: any of the above, with scripted misfortune |
//!
//! # Promises of every device (each has a test in [`conformance`])
//!
//! * *Buffers are owned.* An accepted operation keeps its memory mapped until its completion has been taken by
//!   [`Device::poll`]; the completion gives the memory back.
//! * *Once.* Every accepted operation completes exactly once, in any order.
//! * *Whole or error.* A transfer is reported as done only when every byte was moved. A short transfer of the kernel
//!   is continued, and if it cannot be, reported as [`DeviceError::Short`].
//! * *Errors are completions.* An operation that cannot even be started (unknown file, misaligned) is accepted and
//!   completes with its error, so that its owner has one place to look.
//! * *Sync means durable.* When [`Kind::SyncData`] completes, every write to that file whose completion had been taken
//!   before the sync was submitted survives a crash. It promises nothing about writes still in flight.
//! * *Holes read as zeros.* Bytes inside the file that were never written, or were punched, are zeros.
//! * *Busy is an answer.* A device that has [`Device::capacity`] operations in flight returns the operation.
//! * *Files are private.* Created files have no name, mode 0600, and vanish with the process however it ends, until
//!   they are published. A published file is locked against other processes while it is open.

pub mod blocking;
pub mod choice;
pub mod conformance;
pub mod faulty;
mod files;
mod folder;
pub mod memory;
pub mod paced;
mod transfer;
pub mod uring;
mod whereabouts;

pub(crate) use files::lock;
pub(crate) use folder::Folder;

use crate::error::{DeviceError, FileError};
use crate::few::SmallList;
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use vgas_shm::Span;
pub use whereabouts::Whereabouts;

/// A file of a device. Numbers are reused after [`Device::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Alignment of direct I/O: the block size of common filesystems, a multiple of every common sector size.
pub(crate) const DIRECT_ALIGNMENT: u64 = 4096;

/// Tells if a created file will be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// It never gets a name.
    Never,
    /// It may be published.
    Later,
}

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the file into the spans, in order.
    Read,
    /// From the spans, in order, into the file. The bytes must not change until the completion.
    Write,
    /// Make completed writes durable. Offset and spans are ignored.
    SyncData,
    /// Turn this many bytes at the offset into a hole. Has no spans.
    PunchHole {
        /// Length of the hole.
        bytes: u64,
    },
}

/// The memory of one operation; several pieces stand next to each other in the file.
pub type Spans = SmallList<Span>;

/// Something to do. It owns its memory.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Returned with the completion; the device does not look at it.
    pub key: u64,
    /// On which file.
    pub file: FileId,
    /// The operation's kind.
    pub kind: Kind,
    /// First byte in the file.
    pub offset: u64,
    /// The memory; at most [`Limits::spans_max`] pieces.
    pub spans: Spans,
}

impl Operation {
    /// Bytes that a read or write moves.
    pub fn bytes(&self) -> u64 {
        self.spans.as_slice().iter().map(|span| span.bytes() as u64).sum()
    }

    /// Returns true if offset, memory and lengths are multiples of `alignment`.
    pub(crate) fn aligned_to(&self, alignment: u64) -> bool {
        let aligned = |number: u64| number.is_multiple_of(alignment);
        let span = |span: &Span| aligned(span.address() as u64) && aligned(span.bytes() as u64);
        match self.kind {
            Kind::SyncData => true,
            Kind::PunchHole { bytes } => aligned(self.offset) && aligned(bytes),
            Kind::Read | Kind::Write => aligned(self.offset) && self.spans.as_slice().iter().all(span),
        }
    }
}

/// Something done, or failed.
#[derive(Debug)]
pub struct Completion {
    /// The key of the operation.
    pub key: u64,
    /// The memory of the operation, free to be used again.
    pub spans: Spans,
    /// The bytes moved, which are all requested ones, or the error.
    pub result: Result<u64, DeviceError>,
}

/// The answer to [`Device::submit`].
#[derive(Debug)]
#[must_use]
pub enum Submitted {
    /// Taken; it will complete.
    Accepted,
    /// Too many operations are in flight. Poll, then try again.
    Busy(Operation),
}

/// A device's requirements on its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Offsets, lengths and memory addresses are multiples of this many bytes (a power of two).
    pub alignment: u64,
    /// Most pieces of one operation.
    pub spans_max: usize,
    /// Bytes beyond which a longer operation brings nothing, so that runs are better cut.
    pub run_bytes_max: u64,
}

/// Stores bytes. One thread uses a device at a time; it may move between threads.
pub trait Device: Send {
    /// Its name, for people: "io_uring, direct".
    fn name(&self) -> &str;

    /// Returns the requirements on operations.
    fn limits(&self) -> Limits;

    /// Most operations in flight.
    fn capacity(&self) -> usize;

    /// Operations accepted whose completions have not been taken.
    fn in_flight(&self) -> usize;

    /// Creates an unnamed file of this many zero bytes that takes no space yet. Blocks briefly.
    fn create(&mut self, bytes: u64, naming: Naming) -> Result<FileId, FileError>;

    /// Gives an unnamed file a name, atomically and durably, and locks it. Data synced before is in the file
    /// after a crash. [`FileError::Exists`] when the name is taken. Blocks until the folder is durable.
    fn publish(&mut self, file: FileId, name: &str) -> Result<(), FileError>;

    /// Opens and locks the file of that name, if there is one, for reading only if the system allows no more;
    /// [`FileError::InUse`] if another process, or this one, has it open, unless all of them only read it.
    /// Blocks briefly.
    fn open(&mut self, name: &str) -> Result<Option<FileId>, FileError>;

    /// Length of a file.
    fn file_bytes(&self, file: FileId) -> Result<u64, FileError>;

    /// Why a file that was opened can only be read: the system allows no more. Its writes fail.
    fn read_only(&self, _file: FileId) -> Option<Errno> {
        None
    }

    /// Why the folder took no bytes when the device was opened: its disk, or the user's quota, was full.
    fn full(&self) -> Option<Errno> {
        None
    }

    /// Gives the space of a file back from this byte on; its length stays. Best effort.
    fn clear(&mut self, _file: FileId, _from: u64) {}

    /// Returns the name of a file for messages: its path, or its folder if it has no name.
    fn describe(&self, file: FileId) -> String;

    /// Returns the location by which other processes of the machine find the file, if they can read it; the
    /// volume says where in it a page lies.
    fn share(&self, _file: FileId) -> Option<Whereabouts> {
        None
    }

    /// A file, for other devices of this process.
    fn lend(&self, _file: FileId) -> Option<Lent> {
        None
    }

    /// Makes a file of another device of this process known under the same number. This device creates and opens none.
    fn join(&mut self, _file: FileId, _lent: Lent) -> Result<(), FileError> {
        Ok(())
    }

    /// Opens a file that a device of another process shares, for reading only. Also returns its descriptor,
    /// if it has one.
    ///
    /// # Errors
    /// The system does not show other processes' files, another file is there, or the device reads none.
    fn adopt(&mut self, _at: &Whereabouts) -> io::Result<(FileId, Option<Arc<OwnedFd>>)> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Closes a file and drops its lock. Operations still in flight on it complete first or with
    /// [`DeviceError::Closed`]; the caller should wait for them.
    fn close(&mut self, file: FileId);

    /// Takes an operation. It may wait in a batch until [`Device::flush_submissions`] or [`Device::poll`].
    fn submit(&mut self, operation: Operation) -> Submitted;

    /// Starts everything that `submit` has batched. Does not wait.
    fn flush_submissions(&mut self) -> Result<(), DeviceError>;

    /// Appends completed operations and returns their number. Does not wait. Starts what has been batched.
    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize, DeviceError>;

    /// A descriptor that becomes readable when a poll would find something, provided that [`Device::arm`] was called
    /// after the last poll and returned true.
    fn wait_descriptor(&self) -> BorrowedFd<'_>;

    /// Prepares to sleep. False: something has completed already; poll instead.
    fn arm(&mut self) -> bool;

    /// Ends the preparation; called after every successful [`Device::arm`], slept or not.
    fn disarm(&mut self);
}

/// A file of a device, for others of the process.
#[derive(Clone, Debug)]
pub struct Lent(files::OpenFile);

/// Reads one piece in the calling thread; signal handlers may call it.
pub(crate) fn fill(span: &Span, descriptor: &OwnedFd, offset: u64) -> Result<(), DeviceError> {
    transfer::fill(span, descriptor, offset)
}

/// Does a read in the calling thread.
pub(crate) fn read_now(operation: Operation, descriptor: Arc<OwnedFd>) -> Result<u64, DeviceError> {
    transfer::Transfer::new(operation, descriptor).run().result
}

/// Sleeps until a poll would find something, or for at most `milliseconds`. For start-up, shutdown and tests; an event
/// loop waits on [`Device::wait_descriptor`] together with its other descriptors.
pub fn wait(device: &mut dyn Device, milliseconds: i64) -> Result<(), DeviceError> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    if !device.arm() {
        return Ok(());
    }
    let timeout = Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
    let waited =
        poll(&mut [PollFd::from_borrowed_fd(device.wait_descriptor(), PollFlags::IN)], Some(&timeout));
    device.disarm();
    match waited {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(DeviceError::of(errno, 0)),
    }
}
