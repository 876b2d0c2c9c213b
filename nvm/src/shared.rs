//! Reading pages of a segment in other processes of its node, without asking the process whose volume it is.
//!
//! The volume gives the location of a segment's file ([`Whereabouts`]) and the stored state of a page
//! ([`StoredPage`]); a process that holds a promise that a page does not change meanwhile reads it with a
//! [`Reader`]. A reader opens the file for reading only: it finds it among the open files of the volume's
//! process, because a scratch file has no name. If the system forbids that, or lacks io_uring, there is no
//! reader, and pages are requested from the agent.
//!
//! A read has the volume's meaning: the bytes are in memory and match their checksum. If a read fails, the
//! volume reads again and reports why it cannot.

use crate::checksum;
use crate::device::uring::UringDevice;
use crate::device::{Completion, Device, FileId, Kind, Operation, Spans, Submitted, Whereabouts};
use crate::error::DeviceError;
use crate::format::Place;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use vgas_shm::{Mapping, Span};

/// The stored state of a page on NVMe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredPage {
    /// Nothing: the page is zeros.
    Zeros,
    /// Its bytes.
    At {
        /// Its current place.
        place: Place,
        /// Checksum of the bytes; none if checksums are switched off.
        checksum: Option<u32>,
    },
}

impl StoredPage {
    /// Returns true if these are the bytes of the page. A page of zeros is not checked.
    pub fn matches(&self, page: &Span) -> bool {
        match self {
            StoredPage::At { checksum: Some(checksum), .. } => checksum::of_span(page) == *checksum,
            StoredPage::At { checksum: None, .. } | StoredPage::Zeros => true,
        }
    }

    /// Returns true if one operation may read this page and its neighbour.
    pub fn is_beside(self, neighbour: Self) -> bool {
        match (self, neighbour) {
            (StoredPage::Zeros, StoredPage::Zeros) => true,
            (StoredPage::At { place: one, .. }, StoredPage::At { place: other, .. }) => one == other,
            _ => false,
        }
    }

    /// Brings a page of zeros into memory.
    pub fn zeros(page: &Span) {
        checksum::fill_zero(page);
    }
}

/// A segment's file, opened for reading.
#[derive(Clone, Debug)]
pub struct SharedFile {
    descriptor: Option<Arc<OwnedFd>>,
    places: [u64; 2],
    file: FileId,
}

impl SharedFile {
    /// Brings in one page of these bytes (or zeros), in the calling thread; signal handlers may call it:
    /// nothing is allocated or locked.
    ///
    /// # Errors
    /// Whatever the device says; nothing of bytes that are not what they should be (`Ok(false)`).
    pub fn read_page(&self, page: u64, stored: StoredPage, into: &Span) -> Result<bool, DeviceError> {
        let StoredPage::At { place, checksum } = stored else {
            StoredPage::zeros(into);
            return Ok(true);
        };
        self.fill(page, place, into)?;
        Ok(checksum.is_none_or(|checksum| checksum::of_span_in_handler(into) == checksum))
    }

    /// Reads one page in the calling thread, without verifying it; signal handlers may call it.
    ///
    /// # Errors
    /// Whatever the device says.
    pub fn fill(&self, page: u64, place: Place, into: &Span) -> Result<(), DeviceError> {
        let Some(descriptor) = &self.descriptor else { return Err(DeviceError::Closed) };
        crate::device::fill(into, descriptor, self.offset(page, place, into.bytes() as u64))
    }

    /// Returns true if [`read_now`] can read it.
    pub fn is_readable_now(&self) -> bool {
        self.descriptor.is_some()
    }

    /// Offset of a page in the file.
    fn offset(&self, page: u64, place: Place, page_bytes: u64) -> u64 {
        self.places[place.index() as usize] + page * page_bytes
    }
}

/// Neighbouring pages to be read.
#[derive(Clone, Debug)]
pub struct Run {
    /// The first of them, in its segment.
    pub first_page: u64,
    /// At which place all of them are.
    pub place: Place,
    /// Destination: one span a page, at multiples of 4096 bytes in memory.
    pub into: Spans,
}

impl Run {
    fn operation(self, key: u64, file: &SharedFile) -> Operation {
        let page_bytes = self.into.as_slice().first().map_or(0, |span| span.bytes() as u64);
        let offset = file.offset(self.first_page, self.place, page_bytes);
        Operation { key, file: file.file, kind: Kind::Read, offset, spans: self.into }
    }
}

/// Reads pages of other processes' segments, many at a time or one in the calling thread.
pub struct Reader {
    device: Box<dyn Device>,
}

impl Reader {
    /// Opens a reader with this many operations in flight, mostly into these frames, which are registered
    /// with the kernel as far as it allows.
    ///
    /// # Errors
    /// As [`UringDevice::open`].
    pub fn new(queue_depth: u32, frames: Arc<Mapping>) -> io::Result<Self> {
        Ok(Self::over(Box::new(UringDevice::reading(queue_depth, Some(frames))?)))
    }

    /// Over a device made by the caller: for simulations.
    pub fn over(device: Box<dyn Device>) -> Self {
        Self { device }
    }

    /// Opens a segment's file.
    ///
    /// # Errors
    /// The system does not show other processes' files, or another file is there.
    pub fn open(&mut self, at: &Whereabouts) -> io::Result<SharedFile> {
        let (file, descriptor) = self.device.adopt(at)?;
        Ok(SharedFile { descriptor, places: at.places, file })
    }

    /// Closes a segment's file without reads in flight.
    pub fn close(&mut self, file: &SharedFile) {
        self.device.close(file.file);
    }

    /// Starts to read; nothing happens before [`Reader::submit`] or [`Reader::poll`]. `Err`: too many reads are in flight.
    ///
    /// # Errors
    /// The run, when too many reads are in flight: poll, then try again.
    pub fn start(&mut self, key: u64, file: &SharedFile, run: Run) -> Result<(), Spans> {
        match self.device.submit(run.operation(key, file)) {
            Submitted::Accepted => Ok(()),
            Submitted::Busy(operation) => Err(operation.spans),
        }
    }

    /// Starts what was batched. Does not wait.
    ///
    /// # Errors
    /// If the device as a whole fails.
    pub fn submit(&mut self) -> Result<(), DeviceError> {
        self.device.flush_submissions()
    }

    /// Appends completed reads, successful or not, and returns their number. Does not wait. The bytes are not
    /// verified.
    ///
    /// # Errors
    /// If the device as a whole fails.
    pub fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.device.poll(done)
    }

    /// Reads in flight.
    pub fn in_flight(&self) -> usize {
        self.device.in_flight()
    }

    /// Most pages of a run of pages of this size.
    pub fn run_pages_max(&self, page_bytes: u32) -> usize {
        let limits = self.device.limits();
        ((limits.run_bytes_max / u64::from(page_bytes)).max(1) as usize).min(limits.spans_max)
    }

    /// Readable while completions wait.
    pub fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.device.wait_descriptor()
    }
}

/// Reads in the calling thread, and returns when it has. The bytes are not verified.
///
/// # Errors
/// Whatever the device says.
pub fn read_now(file: &SharedFile, run: Run) -> Result<(), DeviceError> {
    match &file.descriptor {
        Some(descriptor) => crate::device::read_now(run.operation(0, file), descriptor.clone()).map(drop),
        None => Err(DeviceError::Closed),
    }
}
