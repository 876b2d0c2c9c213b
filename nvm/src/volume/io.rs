//! The volume's side of the device: the table of operations in flight, the queue of waiting ones, and runs of
//! neighbouring pages that travel as one operation.

use super::PageDone;
use crate::device::{Device, FileId, Kind, Operation, Spans, Submitted};
use crate::error::{DeviceError, PageOperation, Result, VolumeError};
use crate::few::SmallList;
use crate::format::Place;
use std::collections::VecDeque;
use vgas_shm::Span;

/// Purpose of an operation in flight.
pub(super) enum Job {
    Read(Pages),
    Write(Pages),
    Part(Part),
    Discard {
        segment: u32,
        page: u64,
        key: u64,
    },
    Flush {
        segment: u32,
    },
    /// A caller in this crate waits for it (opening).
    Direct,
}

/// Neighbouring pages in one operation.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) segment: u32,
    pub(super) first_page: u64,
    /// True if the pages have checksums.
    pub(super) summed: bool,
    pub(super) each: SmallList<PageAt>,
}

/// A page of an operation: its request, its memory, its checksum.
#[derive(Clone, Debug)]
pub(super) struct PageAt {
    pub(super) key: u64,
    pub(super) place: Place,
    pub(super) checksum: u32,
    /// For a write: the new checksums of the blocks.
    pub(super) blocks: Option<Box<[u32]>>,
}

/// Some blocks of a page that are being read.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) segment: u32,
    pub(super) page: u64,
    pub(super) key: u64,
    /// First byte in the page.
    pub(super) from: u32,
    /// Expected checksums of the blocks; none if they are unknown and not wanted.
    pub(super) expected: Box<[u32]>,
}

/// Bits of a key that are the caller's; above them stands by which handle of the volume it came.
const KEY_BITS: u32 = 56;

/// The device with its operations in flight.
pub(super) struct Io {
    pub(super) device: Box<dyn Device>,
    /// The number of the handle.
    me: u64,
    /// By operation key; `None` is free.
    jobs: Vec<Option<Job>>,
    free_jobs: Vec<u32>,
    /// Operations that found the device busy, oldest first.
    waiting: VecDeque<Operation>,
    /// Finished, not handed out.
    pub(super) ready: Vec<PageDone>,
    /// Finished operations of other handles: their numbers, and the reports for them.
    pub(super) elsewhere: Vec<(usize, PageDone)>,
    /// Results of [`Job::Direct`].
    pub(super) direct: Vec<(u64, Spans, Result<u64, DeviceError>)>,
    /// Most bytes, and most pages, of one operation.
    run_bytes_max: u64,
    run_pages_max: usize,
}

impl Io {
    pub(super) fn new(device: Box<dyn Device>, me: usize) -> Self {
        let limits = device.limits();
        Self {
            run_bytes_max: limits.run_bytes_max,
            run_pages_max: limits.spans_max,
            device,
            me: me as u64,
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            waiting: VecDeque::new(),
            ready: Vec::new(),
            elsewhere: Vec::new(),
            direct: Vec::new(),
        }
    }

    /// Starts an operation, or queues it behind those that wait already. Returns its key.
    pub(super) fn issue(&mut self, job: Job, file: FileId, kind: Kind, offset: u64, spans: Spans) -> u64 {
        let key = match self.free_jobs.pop() {
            Some(key) => {
                self.jobs[key as usize] = Some(job);
                u64::from(key)
            }
            None => {
                self.jobs.push(Some(job));
                self.jobs.len() as u64 - 1
            }
        };
        let operation = Operation { key, file, kind, offset, spans };
        if !self.waiting.is_empty() {
            self.waiting.push_back(operation);
        } else if let Submitted::Busy(operation) = self.device.submit(operation) {
            self.waiting.push_back(operation);
        }
        key
    }

    /// Gives the device what waits, as far as it has room.
    pub(super) fn refill(&mut self) {
        while let Some(operation) = self.waiting.pop_front() {
            if let Submitted::Busy(operation) = self.device.submit(operation) {
                return self.waiting.push_front(operation);
            }
        }
    }

    /// The job of a completed operation.
    pub(super) fn take(&mut self, key: u64) -> Option<Job> {
        let job = self.jobs.get_mut(key as usize)?.take()?;
        self.free_jobs.push(key as u32);
        Some(job)
    }

    /// The number of the handle.
    pub(super) fn number(&self) -> usize {
        self.me as usize
    }

    /// The volume's key for a key of this handle's caller.
    pub(super) fn key(&self, key: u64) -> u64 {
        debug_assert!(key < 1 << KEY_BITS, "keys have {KEY_BITS} bits");
        key | self.me << KEY_BITS
    }

    /// Records that a request is done, of this handle or another.
    pub(super) fn finish(&mut self, key: u64, result: Result<()>) {
        let owner = key >> KEY_BITS;
        let done = PageDone { key: key & ((1 << KEY_BITS) - 1), result: result.map_err(Box::new) };
        match owner == self.me {
            true => self.ready.push(done),
            false => self.elsewhere.push((owner as usize, done)),
        }
    }

    /// Returns the purpose of an operation that has not been [taken](Io::take).
    pub(super) fn job(&self, key: u64) -> Option<&Job> {
        self.jobs.get(key as usize)?.as_ref()
    }

    /// Returns true if any operation concerns this segment.
    pub(super) fn is_busy_with(&self, segment: u32) -> bool {
        self.jobs.iter().flatten().any(|job| match job {
            Job::Read(pages) | Job::Write(pages) => pages.segment == segment,
            Job::Part(part) => part.segment == segment,
            Job::Discard { segment: of, .. } | Job::Flush { segment: of } => *of == segment,
            Job::Direct => false,
        })
    }

    /// Requests (not operations) on their way.
    pub(super) fn requests(&self) -> usize {
        let requests = self.jobs.iter().flatten().map(|job| match job {
            Job::Read(pages) | Job::Write(pages) => pages.each.as_slice().len(),
            Job::Discard { .. } | Job::Part(_) => 1,
            Job::Flush { .. } | Job::Direct => 0,
        });
        self.ready.len() + requests.sum::<usize>()
    }

    /// Builds the error of a failed operation on one page.
    pub(super) fn page_error(
        &self,
        file: FileId,
        segment: u32,
        page: u64,
        operation: PageOperation,
        source: DeviceError,
    ) -> VolumeError {
        let file = self.device.describe(file);
        match source {
            DeviceError::NoSpace { .. } => {
                VolumeError::NoSpace { file, segment, what: format!("page {page}"), operation, source }
            }
            source => VolumeError::Page { file, segment, page, operation, source },
        }
    }
}

/// Gathers neighbouring pages that stand next to each other in the file, too, and issues them as one operation when the next one does
/// not, when the operation is long enough, or at the end.
pub(super) struct Gather {
    file: FileId,
    kind: Kind,
    /// Offset in the file of the first page gathered, and behind the last one.
    from: u64,
    to: u64,
    pages: Pages,
    spans: Spans,
}

impl Gather {
    /// For reads ([`Kind::Read`]) or writes ([`Kind::Write`]) of one segment, whose pages have checksums or not.
    pub(super) fn new(segment: u32, file: FileId, kind: Kind, summed: bool) -> Self {
        let pages = Pages { segment, first_page: 0, summed, each: SmallList::None };
        Self { file, kind, from: 0, to: 0, pages, spans: SmallList::None }
    }

    /// Adds the page stored at `offset`.
    pub(super) fn add(&mut self, io: &mut Io, page: u64, offset: u64, span: Span, at: PageAt) {
        let gathered = self.pages.each.as_slice().len();
        // One page's first place may stand before another one's second.
        let follows = offset == self.to && page == self.pages.first_page + gathered as u64;
        let is_full =
            self.to + span.bytes() as u64 - self.from > io.run_bytes_max || gathered >= io.run_pages_max;
        if gathered > 0 && (!follows || is_full) {
            self.issue(io);
        }
        if self.spans.as_slice().is_empty() {
            (self.from, self.pages.first_page) = (offset, page);
        }
        self.to = offset + span.bytes() as u64;
        self.pages.each.push(at);
        self.spans.push(span);
    }

    /// Issues what has been gathered, if anything.
    pub(super) fn issue(&mut self, io: &mut Io) {
        let spans = std::mem::take(&mut self.spans);
        if spans.as_slice().is_empty() {
            return;
        }
        let each = std::mem::take(&mut self.pages.each);
        let pages = Pages { each, ..self.pages };
        let job = if self.kind == Kind::Read { Job::Read(pages) } else { Job::Write(pages) };
        io.issue(job, self.file, self.kind, self.from, spans);
    }
}
