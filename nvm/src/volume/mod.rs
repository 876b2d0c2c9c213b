//! All segment files of one node, over one device: pages in, pages out, checkpoints.
//!
//! A [`Volume`] belongs to one thread, an agent's event loop; several threads have a handle each. Calls never
//! wait: they take an operation, and [`Volume::poll`] later hands out its key. Calls that do wait (opening
//! segments, closing) say so.
//!
//! # What completion means
//!
//! * *read*: the page's bytes are in memory and match the checksum of the last write. Visible to every
//!   process that maps the memory once the reader announces it (rule 4 of [`vgas_shm`]).
//! * *part*: the same of some blocks of a page.
//! * *write*: the device has taken the bytes; the source may be reused, and a later read returns them. Not durable.
//! * *flush*: the segment's file holds a checkpoint of everything whose write had been issued before; it survives a
//!   crash. Means nothing for scratch segments, which have no later life.
//! * *prepare*: the same, beside the checkpoint before, which stays as long as the new one is not concluded.
//! * *conclude*: the prepared checkpoint is the last one for good, or was given up as if it had never been made.
//!
//! Requests beyond the device's capacity queue here, first in, first out; none is refused or lost. A page never
//! written reads as zeros without touching the device; its read is done at the next poll.

mod flush;
mod flush_state;
mod io;
mod locked;
mod named;

use crate::checksum;
use crate::device::Whereabouts;
use crate::device::choice::{self, DeviceChoice};
use crate::device::memory::{MemoryDevice, MemoryDisk};
use crate::device::paced::{Pace, PacedDevice};
use crate::device::{self, Completion, Device, FileId, Kind, Lent, Naming, Spans};
use crate::error::{DeviceError, PageOperation, Result, Unusable, VolumeError};
use crate::few::SmallList;
use crate::format::{COMPANIONS_MAX, CheckpointId, Companion, Entry, Place};
use crate::page_table::{PAGES_MAX, PageTable};
use crate::shared::StoredPage;
use flush_state::FlushRequest;
use io::{Gather, Io, Job, Pages};
use locked::Sums;
use named::Named;
pub use named::{
    FileState, NAME_BYTES_MAX, OpenReport, Opened, is_segment_name, segment_file_name, segment_file_state,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vgas_shm::{Mapping, Span};

/// Smallest page: the unit of every direct-I/O device.
pub const PAGE_BYTES_MIN: u32 = 4 << 10;
/// Largest page.
pub const PAGE_BYTES_MAX: u32 = 4 << 20;
/// Bytes after which a poll leaves the other arrivals to the next one: about 15 µs of checksums.
const COMPLETED_BYTES_MAX: u64 = 128 << 10;
/// Longest sleep before looking at the device again, in milliseconds. A guard, not a timeout.
const LOOK_AGAIN_MS: i64 = 100;

/// Options for opening a volume.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// The folder for the segment files; it must exist.
    pub directory: PathBuf,
    /// Bytes of a page, for segments that say nothing else: a power of two from [`PAGE_BYTES_MIN`] to [`PAGE_BYTES_MAX`].
    pub page_bytes: u32,
    /// The device.
    pub device: DeviceChoice,
    /// The node's frames, to be registered with the kernel if that is allowed. Pages may be read into and
    /// written from other memory too.
    pub frames: Option<Arc<Mapping>>,
    /// Operations in flight at the device.
    pub queue_depth: u32,
    /// The node's simulated drive, if that is slower than the machine's; shared by all handles of the volume.
    pub pace: Option<Arc<Pace>>,
    /// True if scratch segments carry page checksums. Named segments always do.
    pub checksums: bool,
    /// True to keep a checksum of each 4 KiB of every page that is read or written (in memory: 1/1024 of
    /// those pages), so that parts of it can be read by themselves.
    pub parts: bool,
    /// True to open the folder only when the first segment is made: for nodes that may never have one.
    pub on_demand: bool,
}

impl VolumeSpec {
    /// 32 operations in flight (enough to fill an NVMe device), with checksums of pages but not of their parts, on the best
    /// device the folder allows.
    pub fn new(directory: impl Into<PathBuf>, page_bytes: u32) -> Self {
        Self {
            directory: directory.into(),
            page_bytes,
            device: DeviceChoice::Auto,
            frames: None,
            queue_depth: 32,
            pace: None,
            checksums: true,
            parts: false,
            on_demand: false,
        }
    }

    fn open_device(&self) -> Result<Box<dyn Device>> {
        let device = choice::open(&self.directory, &self.device, self.queue_depth, self.frames.clone())?;
        let Some(pace) = &self.pace else { return Ok(device) };
        let device = PacedDevice::new(device, pace).map_err(|error| {
            let file = self.directory.display().to_string();
            VolumeError::Unusable { file, reason: Unusable::Refused(error.to_string()) }
        })?;
        Ok(Box::new(device))
    }
}

/// Size of a segment: a number of pages of a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of pages.
    pub pages: u64,
    /// Bytes of each: a power of two from [`PAGE_BYTES_MIN`] to [`PAGE_BYTES_MAX`]. None: as the volume has been opened with.
    pub page_bytes: Option<u32>,
}

impl From<u64> for Extent {
    /// So many pages of the volume's size.
    fn from(pages: u64) -> Self {
        Self { pages, page_bytes: None }
    }
}

/// A named segment's file, and how to open it.
#[derive(Clone, Copy, Debug)]
pub struct NamedFile<'a> {
    /// The segment's name ([`is_segment_name`]).
    pub name: &'a str,
    /// Number in the file's name ([`segment_file_name`]), also stored in the file.
    pub number: u32,
    /// One of those that [`segment_file_state`] has listed: the newest one that all files of a job have. A newer one is given
    /// up for good. Generation 0 may be created. None: the file's newest.
    pub checkpoint: Option<CheckpointId>,
}

/// A finished request.
#[derive(Debug)]
pub struct PageDone {
    /// The key that the request came with.
    pub key: u64,
    /// The operation's outcome.
    pub result: Result<(), Box<VolumeError>>,
}

/// The segment files of one node, as one thread uses them. Several threads each have a handle of their own
/// ([`Volume::another`]), with its own device over the same files.
pub struct Volume {
    io: Io,
    page_bytes: u32,
    checksums: bool,
    /// Keep the checksums of the blocks of pages that have several.
    parts: bool,
    /// Taken from the device, not yet looked at; oldest first.
    arrived: VecDeque<Completion>,
    /// Reused between polls.
    completions: Vec<Completion>,
    /// Options for opening this handle's device, if the volume opens it.
    spec: Option<VolumeSpec>,
    /// The device is to be opened before the first segment is made or used.
    is_unopened: bool,
    /// The files that this handle's device knows beside the first's, by segment.
    files: BTreeMap<u32, (u64, FileId)>,
    common: Arc<Mutex<Common>>,
    /// Another handle has something for this one.
    mail: Arc<AtomicBool>,
}

/// State shared by all handles of a volume.
struct Common {
    segments: Segments,
    busy: Busy,
    handles: Vec<Handle>,
    /// The files of segments for other handles than the first, if there are some, each with a unique number.
    lent: BTreeMap<u32, (u64, Option<Lent>)>,
    serial: u64,
}

impl Common {
    fn lend(&mut self, segment: u32, lent: Option<Lent>) {
        self.serial += 1;
        self.lent.insert(segment, (self.serial, lent));
    }
}

/// A handle as other handles see it.
struct Handle {
    /// Requests of this handle that have ended in another one.
    done: Vec<PageDone>,
    mail: Arc<AtomicBool>,
    bell: Option<Bell>,
}

/// Wakes the thread of a handle.
pub type Bell = Arc<dyn Fn() + Send + Sync>;

/// A handle while it has what all share.
struct Locked<'a> {
    io: &'a mut Io,
    segments: &'a mut Segments,
    busy: &'a mut Busy,
    checksums: bool,
}

/// The segments, by number: each in a place of its own, so that thousands of them cost no more than they need.
#[derive(Default)]
struct Segments(BTreeMap<u32, Box<Segment>>);

impl Segments {
    fn get(&self, segment: &u32) -> Option<&Segment> {
        self.0.get(segment).map(|found| &**found)
    }

    fn get_mut(&mut self, segment: &u32) -> Option<&mut Segment> {
        self.0.get_mut(segment).map(|found| &mut **found)
    }
}

struct Segment {
    /// The same in the devices of all handles.
    file: FileId,
    page_bytes: u32,
    /// Writes and discards at the device.
    changes_in_flight: u32,
    table: PageTable,
    /// State of named segments only: there may be thousands of unnamed ones.
    named: Option<Box<Named>>,
}

/// Pages with an operation in flight; the caller promises at most one each. Checked in debug builds only.
#[derive(Default)]
struct Busy {
    #[cfg(debug_assertions)]
    pages: std::collections::HashSet<(u32, u64)>,
}

#[cfg(debug_assertions)]
impl Busy {
    fn begin(&mut self, segment: u32, page: u64) {
        assert!(
            self.pages.insert((segment, page)),
            "two operations at once on page {page} of segment {segment}"
        );
    }

    fn end(&mut self, segment: u32, page: u64) {
        self.pages.remove(&(segment, page));
    }
}

#[cfg(not(debug_assertions))]
impl Busy {
    fn begin(&mut self, _segment: u32, _page: u64) {}
    fn end(&mut self, _segment: u32, _page: u64) {}
}

/// A write or a discard of one page.
struct Change {
    page: u64,
    /// `None`: a discard.
    from: Option<(Span, Sums)>,
    key: u64,
}

impl Volume {
    /// Opens the folder with the device that `spec` asks for, or the best one the folder allows. No segments yet. With
    /// [`VolumeSpec::on_demand`] the errors of the folder are those of the first segment.
    ///
    /// # Errors
    /// A page size out of range, a folder that is missing or not writable, a device that was asked for by name and is
    /// not available here.
    pub fn open(spec: VolumeSpec) -> Result<Self> {
        check_page_bytes(spec.page_bytes)?;
        let device = match spec.on_demand {
            true => no_device()?,
            false => spec.open_device()?,
        };
        let mut volume = Self::over(device, spec.page_bytes, spec.checksums)?;
        volume.parts &= spec.parts;
        volume.is_unopened = spec.on_demand;
        volume.spec = Some(spec);
        Ok(volume)
    }

    /// A volume over a device made by the caller: for tests and simulation. Parts of pages can be read.
    pub fn over(device: Box<dyn Device>, page_bytes: u32, checksums: bool) -> Result<Self> {
        check_page_bytes(page_bytes)?;
        let (segments, busy, mail) = (Segments::default(), Busy::default(), Arc::new(AtomicBool::new(false)));
        let handles = vec![Handle { done: Vec::new(), mail: mail.clone(), bell: None }];
        Ok(Self {
            io: Io::new(device, 0),
            page_bytes,
            checksums,
            parts: true,
            arrived: VecDeque::new(),
            completions: Vec::new(),
            spec: None,
            is_unopened: false,
            files: BTreeMap::new(),
            common: Arc::new(Mutex::new(Common {
                segments,
                busy,
                handles,
                lent: BTreeMap::new(),
                serial: 0,
            })),
            mail,
        })
    }

    /// Another handle of this volume, for another thread: with a device of its own, which is opened when it is first used.
    /// A page has operations by one handle at a time. Every handle is polled, or slept on, as long as any of them has something
    /// in flight: a step of a checkpoint is done by whichever device has made it possible. Segments are opened and closed, and checkpoints asked for, by the
    /// first handle alone.
    ///
    /// # Errors
    /// A volume over a device of the caller's: see [`Volume::another_over`].
    pub fn another(&self) -> Result<Self> {
        let Some(spec) = &self.spec else {
            return Err(VolumeError::Usage("a volume over somebody's device has no other".into()));
        };
        let mut other = self.another_over(no_device()?);
        (other.spec, other.is_unopened) = (Some(spec.clone()), true);
        Ok(other)
    }

    /// The same over a device made by the caller, which stands on the same files.
    pub fn another_over(&self, device: Box<dyn Device>) -> Self {
        let common = &mut *lock(&self.common);
        let known: Vec<_> = common.segments.0.iter().map(|(&segment, found)| (segment, found.file)).collect();
        for (segment, file) in known {
            if !common.lent.contains_key(&segment) {
                common.lend(segment, self.io.device.lend(file));
            }
        }
        let mail = Arc::new(AtomicBool::new(false));
        let me = common.handles.len();
        common.handles.push(Handle { done: Vec::new(), mail: mail.clone(), bell: None });
        Self {
            io: Io::new(device, me),
            page_bytes: self.page_bytes,
            checksums: self.checksums,
            parts: self.parts,
            arrived: VecDeque::new(),
            completions: Vec::new(),
            spec: None,
            is_unopened: false,
            files: BTreeMap::new(),
            common: self.common.clone(),
            mail,
        }
    }

    /// Sets the bell that other handles ring after doing work for this one; its owner then polls it soon.
    pub fn set_bell(&mut self, bell: Bell) {
        if let Some(handle) = lock(&self.common).handles.get_mut(self.io.number()) {
            handle.bell = Some(bell);
        }
    }

    /// Opens the device if that was left until it is needed, which is now.
    fn need_device(&mut self) -> Result<()> {
        if let Some(spec) = self.spec.as_ref().filter(|_| self.is_unopened) {
            self.io = Io::new(spec.open_device()?, self.io.number());
            self.is_unopened = false;
        }
        Ok(())
    }

    /// Does something with the shared state of all handles.
    fn locked<T>(&mut self, work: impl FnOnce(&mut Locked<'_>) -> T) -> T {
        let Self { io, checksums, .. } = self;
        let checksums = *checksums;
        let Common { segments, busy, handles, .. } = &mut *lock(&self.common);
        let result = work(&mut Locked { io, segments, busy, checksums });
        for (number, done) in self.io.elsewhere.drain(..) {
            if let Some(handle) = handles.get_mut(number) {
                handle.done.push(done);
                handle.mail.store(true, Ordering::Release);
                if let Some(bell) = &handle.bell {
                    bell();
                }
            }
        }
        result
    }

    /// The same with a segment whose file this handle's device knows from then on.
    fn with_segment<T>(
        &mut self,
        segment: u32,
        work: impl FnOnce(&mut Locked<'_>) -> Result<T>,
    ) -> Result<T> {
        if self.io.number() > 0 {
            self.join(segment)?;
        }
        self.locked(work)
    }

    /// Has the device of another handle than the first know a segment's file.
    fn join(&mut self, segment: u32) -> Result<()> {
        let (file, serial, lent) = {
            let common = lock(&self.common);
            let found = common.segments.get(&segment).zip(common.lent.get(&segment));
            let Some((found, (serial, lent))) = found else { return Ok(()) };
            if self.files.get(&segment).is_some_and(|(known, _)| known == serial) {
                return Ok(());
            }
            (found.file, *serial, lent.clone())
        };
        // A segment closed by the first handle may have had the same number.
        self.leave_closed();
        self.need_device()?;
        if let Some(lent) = lent {
            self.io.device.join(file, lent)?;
        }
        self.files.insert(segment, (serial, file));
        Ok(())
    }

    fn insert(&mut self, segment: u32, found: Segment) {
        let common = &mut *lock(&self.common);
        if common.handles.len() > 1 {
            common.lend(segment, self.io.device.lend(found.file));
        }
        common.segments.0.insert(segment, Box::new(found));
    }

    /// Name of the underlying device for messages: "io_uring, direct".
    pub fn device_name(&self) -> &str {
        self.io.device.name()
    }

    /// Bytes of a page of segments that say nothing else.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Creates a segment whose file has no name and vanishes with this process, however it ends. Blocks briefly.
    ///
    /// # Errors
    /// A number in use, an extent that no file can have, and whatever the folder says.
    pub fn create_scratch(&mut self, segment: u32, extent: impl Into<Extent>) -> Result<()> {
        let (pages, page_bytes) = self.check_new(segment, extent.into())?;
        let bytes = pages.checked_mul(u64::from(page_bytes)).filter(|&bytes| bytes <= i64::MAX as u64);
        let too_large =
            || VolumeError::Usage(format!("no file can hold the {pages} pages of segment {segment}"));
        let bytes = bytes.ok_or_else(too_large)?;
        self.need_device()?;
        let file = self.io.device.create(bytes, Naming::Never)?;
        let table = PageTable::new(pages, false);
        self.insert(segment, Segment::new(file, page_bytes, table, None));
        Ok(())
    }

    /// Opens the named segment `<directory>/<name>.<segment>.vgas` as its last flush left it, or creates it. Waits
    /// for the device while it reads the page map.
    ///
    /// # Errors
    /// A file that is no segment, has another page size or number of pages, was truncated, or is open elsewhere. Damage
    /// that leaves part of the segment readable is not an error but listed in the report.
    pub fn create_or_open_named(&mut self, segment: u32, name: &str, pages: u64) -> Result<OpenReport> {
        self.open_named(segment, NamedFile { name, number: segment, checkpoint: None }, pages)
    }

    /// The same with everything said: another number than the segment's, a certain checkpoint, pages of another size.
    ///
    /// # Errors
    /// The same, and [`Unusable::Checkpoint`](crate::Unusable::Checkpoint) when the file does not hold it.
    pub fn open_named(
        &mut self,
        segment: u32,
        named: NamedFile<'_>,
        extent: impl Into<Extent>,
    ) -> Result<OpenReport> {
        let (pages, page_bytes) = self.check_new(segment, extent.into())?;
        self.need_device()?;
        self.open_or_create(segment, named, pages, page_bytes)
    }

    /// Closes a segment; a scratch segment's data are gone, a named one's since its last flush too.
    ///
    /// # Errors
    /// [`VolumeError::Usage`] while it has operations in flight.
    pub fn close(&mut self, segment: u32) -> Result<()> {
        let file = self.locked(|volume| {
            let found = volume.segment(segment)?;
            let file = found.file;
            if volume.io.is_busy_with(segment) || found.named.as_deref().is_some_and(Named::is_busy) {
                return Err(VolumeError::Usage(format!(
                    "segment {segment} was closed with operations in flight"
                )));
            }
            volume.segments.0.remove(&segment);
            Ok(file)
        })?;
        lock(&self.common).lent.remove(&segment);
        self.io.device.close(file);
        Ok(())
    }

    /// Has the device of another handle than the first forget the files of segments that the first has closed. None of them has
    /// operations in flight.
    pub fn leave_closed(&mut self) {
        let Self { files, common, io, .. } = self;
        let common = lock(common);
        files.retain(|segment, (serial, file)| {
            let is_open = common.lent.get(segment).is_some_and(|(found, _)| found == serial);
            if !is_open {
                io.device.close(*file);
            }
            is_open
        });
    }

    /// Number of pages of a segment.
    pub fn pages(&self, segment: u32) -> Option<u64> {
        lock(&self.common).segments.get(&segment).map(|segment| segment.table.pages())
    }

    /// Returns true if a page may hold anything but zeros: reading it would then access the device.
    pub fn is_written(&self, segment: u32, page: u64) -> bool {
        let common = lock(&self.common);
        let found = common.segments.get(&segment).filter(|segment| page < segment.table.pages());
        found.is_some_and(|segment| segment.table.entry(page) != Entry::Zeros)
    }

    /// Returns the location of a segment's file, for other processes of the node to read; none if it is not a
    /// file.
    pub fn whereabouts(&self, segment: u32) -> Option<Whereabouts> {
        let common = lock(&self.common);
        let found = common.segments.get(&segment)?;
        let places = [Place::A, Place::B].map(|place| match &found.named {
            Some(named) => named.geometry.page_at(0, place),
            None => 0,
        });
        Some(Whereabouts { places, ..self.io.device.share(found.file)? })
    }

    /// Returns the stored state of a page, for other processes of the node to read until the page is next
    /// written or discarded. None if it cannot be read.
    pub fn stored(&self, segment: u32, page: u64) -> Option<StoredPage> {
        let common = lock(&self.common);
        let found = common.segments.get(&segment).filter(|segment| page < segment.table.pages())?;
        match found.table.entry(page) {
            Entry::Zeros => Some(StoredPage::Zeros),
            Entry::Lost => None,
            Entry::Stored { place, checksum } => {
                let checksum = (self.checksums || found.named.is_some()).then_some(checksum);
                Some(StoredPage::At { place, checksum })
            }
        }
    }

    /// Reads one page. `into` has the size of a page and starts at a multiple of [`PAGE_BYTES_MIN`] in
    /// memory; the volume keeps it mapped. Only the read may write it until it is done.
    ///
    /// # Errors
    /// Only for wrong use (no such segment or page, wrong span); everything else comes with the completion.
    pub fn read(&mut self, segment: u32, page: u64, into: Span, key: u64) -> Result<()> {
        self.read_run(segment, page, std::iter::once((into, key)))
    }

    /// Reads neighbouring pages, the first into the first span and so on, in as few device operations as
    /// possible. Each page completes with its own key. If one page of a run cannot be read, only that page
    /// fails.
    ///
    /// # Errors
    /// As [`Volume::read`]; then nothing has been started.
    pub fn read_run(
        &mut self,
        segment: u32,
        first_page: u64,
        into: impl IntoIterator<Item = (Span, u64)>,
    ) -> Result<()> {
        let into: SmallList<(Span, u64)> =
            into.into_iter().map(|(span, key)| (span, self.io.key(key))).collect();
        self.with_segment(segment, |volume| volume.read_run(segment, first_page, into))
    }

    /// Reads a part of a page: as many bytes as `into` has, from byte `from` of the page on, both multiples
    /// of [`PAGE_BYTES_MIN`], and so is the address of `into`. False: the page was not read or written since
    /// its segment was opened, so that the checksums of its parts are unknown; nothing has been started, and
    /// it has to be read whole.
    ///
    /// Unlike other reads this one may meet a write of the same page, whose completion it does not wait for.
    /// It then returns the old or the new content, or ends as [`VolumeError::Corrupt`] because it saw a mix:
    /// a caller that allows such a race ignores that error.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_part(&mut self, segment: u32, page: u64, from: u32, into: Span, key: u64) -> Result<bool> {
        let key = self.io.key(key);
        self.with_segment(segment, |volume| volume.read_part(segment, page, from, into, key))
    }

    /// Writes one page. The bytes of `from` must not change until the write is done, or the page's checksum will not
    /// match. In a named segment the last checkpoint's copy stays untouched.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn write(&mut self, segment: u32, page: u64, from: Span, key: u64) -> Result<()> {
        self.write_run(segment, page, std::iter::once((from, key)))
    }

    /// Writes neighbouring pages in as few device operations as possible; each completes with its own key.
    ///
    /// # Errors
    /// As [`Volume::read`]; then nothing has been started.
    pub fn write_run(
        &mut self,
        segment: u32,
        first_page: u64,
        from: impl IntoIterator<Item = (Span, u64)>,
    ) -> Result<()> {
        let from: SmallList<(Span, u64)> =
            from.into_iter().map(|(span, key)| (span, self.io.key(key))).collect();
        let summed = self.with_segment(segment, |volume| {
            volume.check_run(segment, first_page, &from)?;
            Ok(volume.is_summed(segment))
        })?;
        let parts = self.parts;
        // Before the lock: checksums take time.
        let sums = |span: &Span| if summed { Sums::of(span, parts) } else { Sums::default() };
        let mut page = first_page;
        let changes: SmallList<Change> = from
            .as_slice()
            .iter()
            .map(|(span, key)| {
                let change = Change { page, from: Some((span.clone(), sums(span))), key: *key };
                page += 1;
                change
            })
            .collect();
        self.locked(|volume| volume.write_run(segment, changes));
        Ok(())
    }

    /// Makes a page zeros again and gives its space back: at once in a scratch segment; in a named one the last
    /// checkpoint keeps its copy, and the space is used again when the page is written again.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn discard(&mut self, segment: u32, page: u64, key: u64) -> Result<()> {
        let key = self.io.key(key);
        self.with_segment(segment, |volume| {
            let found = volume.segment(segment)?;
            if page >= found.table.pages() {
                return Err(VolumeError::Usage(format!("segment {segment} has no page {page}")));
            }
            let mut gather = Gather::new(segment, found.file, Kind::Write, true);
            volume.busy.begin(segment, page);
            volume.change(segment, Change { page, from: None, key }, &mut gather);
            Ok(())
        })
    }

    /// Makes a checkpoint of a named segment: everything written before this call, and nothing after it.
    /// Reads and writes continue meanwhile; only a second write to a page of the checkpoint waits for its
    /// end.
    ///
    /// It is a checkpoint of this segment alone. One of several segments that belong together is made in two phases: each is
    /// prepared ([`Volume::prepare`]), and when all are, each is concluded ([`Volume::conclude`]).
    ///
    /// # Errors
    /// No such segment.
    pub fn flush(&mut self, segment: u32, key: u64) -> Result<()> {
        let key = self.io.key(key);
        self.with_segment(segment, |volume| {
            volume.segment(segment)?;
            volume.start_flush(segment, FlushRequest { key, identity: None, companions: Vec::new() });
            Ok(())
        })
    }

    /// Makes a checkpoint durable beside the last one, under an identity that has never been used and is the
    /// same for all segments of the job. Both can be opened until it is concluded, and a second write to one
    /// of its pages waits until then: let nothing that leads to the conclusion wait for such a write. Also of
    /// a segment without changes, so that the generations of all segments stay the same. The file remembers
    /// the `companions`: the other named segments of the job, each with the generation that it prepares.
    ///
    /// # Errors
    /// No such segment, more than [`COMPANIONS_MAX`] companions. A checkpoint that could not be prepared needs no conclusion.
    pub fn prepare(
        &mut self,
        segment: u32,
        identity: u64,
        companions: Vec<Companion>,
        key: u64,
    ) -> Result<()> {
        if companions.len() > COMPANIONS_MAX {
            let many = companions.len();
            return Err(VolumeError::Usage(format!(
                "a checkpoint of {many} named segments beside the own: {COMPANIONS_MAX} are the most"
            )));
        }
        let key = self.io.key(key);
        self.with_segment(segment, |volume| {
            volume.segment(segment)?;
            volume.start_flush(segment, FlushRequest { key, identity: Some(identity), companions });
            Ok(())
        })
    }

    /// Concludes the prepared checkpoint: it takes the place of the one before (`commit`: all segments of the job were
    /// prepared), or is given up, which needs no prepared checkpoint. When it fails, the segment takes no more writes, and
    /// its file can be opened at both.
    ///
    /// # Errors
    /// No such segment.
    pub fn conclude(&mut self, segment: u32, commit: bool, key: u64) -> Result<()> {
        let key = self.io.key(key);
        self.with_segment(segment, |volume| {
            volume.segment(segment)?;
            volume.end_prepared(segment, commit, key);
            Ok(())
        })
    }

    /// Starts what the calls before have batched. Does not wait.
    pub fn submit(&mut self) -> Result<()> {
        Ok(self.io.device.flush_submissions()?)
    }

    /// Appends finished operations and returns their number. Does not wait. Everything that follows from it
    /// (queued requests, the next step of a checkpoint) is started.
    ///
    /// # Errors
    /// Only when the device as a whole fails; failures of single requests are in `done`.
    pub fn poll(&mut self, done: &mut Vec<PageDone>) -> Result<usize> {
        self.advance()?;
        let before = done.len();
        done.append(&mut self.io.ready);
        if self.mail.swap(false, Ordering::Acquire)
            && let Some(handle) = lock(&self.common).handles.get_mut(self.io.number())
        {
            done.append(&mut handle.done);
        }
        Ok(done.len() - before)
    }

    /// Requests not handed out by [`Volume::poll`] yet, in whatever stage.
    pub fn in_flight(&self) -> usize {
        let common = lock(&self.common);
        let named = common.segments.0.values().filter_map(|segment| segment.named.as_deref());
        let routed = common.handles.get(self.io.number()).map_or(0, |handle| handle.done.len());
        self.io.requests() + named.map(Named::requests_held).sum::<usize>() + routed
    }

    /// A descriptor that becomes readable when a poll would find something, provided that [`Volume::arm`] was called
    /// after the last poll and returned true.
    pub fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.io.device.wait_descriptor()
    }

    /// Prepares to sleep (and starts what has been batched). False: something is done already; poll instead.
    pub fn arm(&mut self) -> bool {
        // A device that fails here will say so at the poll that is asked for.
        self.io.ready.is_empty()
            && self.arrived.is_empty()
            && !self.mail.load(Ordering::Acquire)
            && self.io.device.flush_submissions().is_ok()
            && self.io.device.arm()
    }

    /// Ends the preparation; called after every successful [`Volume::arm`], slept or not.
    pub fn disarm(&mut self) {
        self.io.device.disarm();
    }

    /// Takes completions from the device and does everything that follows, without handing anything out.
    ///
    /// Checksums take time in which the device must not run dry: it gets what waits before they are taken, and they
    /// are taken of a bounded number of bytes, so that the caller can issue more in between.
    fn advance(&mut self) -> Result<()> {
        let polled = self.io.device.poll(&mut self.completions);
        self.arrived.extend(self.completions.drain(..));
        self.io.refill();
        self.io.device.flush_submissions()?;
        let mut bytes_done = 0;
        let mut verified: SmallList<(Completion, SmallList<Sums>)> = SmallList::None;
        while bytes_done < COMPLETED_BYTES_MAX
            && let Some(completion) = self.arrived.pop_front()
        {
            bytes_done += *completion.result.as_ref().unwrap_or(&0);
            let sums = self.sums(&completion);
            verified.push((completion, sums));
        }
        if !verified.as_slice().is_empty() {
            self.locked(|volume| verified.for_each(|(completion, sums)| volume.complete(completion, sums)));
        }
        polled?;
        Ok(self.io.device.flush_submissions()?)
    }

    /// Sleeps until [`Volume::advance`] would find something; for the calls that wait.
    fn sleep(&mut self) -> Result<(), DeviceError> {
        if self.arrived.is_empty() { device::wait(&mut *self.io.device, LOOK_AGAIN_MS) } else { Ok(()) }
    }

    /// Checks that such a segment may exist; returns its number of pages and their size.
    fn check_new(&self, segment: u32, Extent { pages, page_bytes }: Extent) -> Result<(u64, u32)> {
        let page_bytes = page_bytes.unwrap_or(self.page_bytes);
        check_page_bytes(page_bytes)?;
        if lock(&self.common).segments.0.contains_key(&segment) {
            return Err(VolumeError::Usage(format!("segment {segment} is open already")));
        }
        if pages == 0 {
            return Err(VolumeError::Usage(format!("segment {segment} must have at least one page")));
        }
        if pages > PAGES_MAX {
            return Err(VolumeError::Usage(format!(
                "segment {segment} of {pages} pages exceeds {PAGES_MAX}: use larger pages or more ranks"
            )));
        }
        Ok((pages, page_bytes))
    }

    /// Returns the checksums of the pages of a finished read, or of the blocks of a part. Takes no lock.
    fn sums(&self, completion: &Completion) -> SmallList<Sums> {
        let spans = completion.spans.as_slice();
        match self.io.job(completion.key) {
            Some(Job::Read(Pages { summed: true, .. })) if completion.result.is_ok() => {
                spans.iter().map(|span| Sums::of(span, self.parts)).collect()
            }
            Some(Job::Part(part)) if completion.result.is_ok() && !part.expected.is_empty() => {
                spans.iter().map(|span| Sums { whole: 0, blocks: Some(checksum::of_blocks(span)) }).collect()
            }
            _ => SmallList::None,
        }
    }
}

impl Drop for Volume {
    /// Frees the space of segments without a checkpoint: the next job reads them as zeros and should not find
    /// the disk full of dead data.
    fn drop(&mut self) {
        if self.io.number() > 0 {
            return;
        }
        let common = &mut *lock(&self.common);
        for found in common.segments.0.values() {
            if let Some(named) = found.named.as_deref().filter(|named| named.has_no_checkpoint()) {
                self.io.device.clear(found.file, named.geometry.page_at(0, Place::A));
            }
        }
    }
}

impl Segment {
    fn new(file: FileId, page_bytes: u32, table: PageTable, named: Option<Named>) -> Self {
        let named = named.map(Box::new);
        Self { file, page_bytes, changes_in_flight: 0, table, named }
    }

    fn offset(&self, page: u64, place: Place) -> u64 {
        match &self.named {
            Some(named) => named.geometry.page_at(page, place),
            None => page * u64::from(self.page_bytes),
        }
    }
}

/// Stands for a device that is never used.
fn no_device() -> Result<Box<dyn Device>> {
    Ok(Box::new(MemoryDevice::new(&MemoryDisk::new(), 1)?))
}

/// Locks shared state, which is consistent wherever a panic could leave it.
fn lock(common: &Mutex<Common>) -> MutexGuard<'_, Common> {
    common.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_page_bytes(page_bytes: u32) -> Result<()> {
    if page_bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes) {
        return Ok(());
    }
    Err(VolumeError::Usage(format!(
        "a page must have a power of two of bytes from {PAGE_BYTES_MIN} to {PAGE_BYTES_MAX}, not {page_bytes}"
    )))
}
