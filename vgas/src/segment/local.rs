//! Plain loads and stores on tiered segments (vGASNet §III.D).

use super::table::OpenPart;
use super::{Segment, SegmentTable};
use crate::address::Kind;
use crate::config::{LocalMechanism, Settings, Value};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use vgas_cache::client::LocalRange;
use vgas_cache::local::{Announcing, Everywhere, LocalSegment, LocalSpec, Mechanism};
use vgas_cache::partition::PartitionId;
use vgas_cache::pool::{MAPPED_PAGES_MIN, TableLayout};
use vgas_cache::region;
use vgas_rma::Rank;

/// A rank's part of a tiered segment as memory, until it is dropped: [`Segment::local`], [`Segment::local_of_peer`].
///
/// [`LocalSegment::base`] is good for plain loads, and for stores into the rank's own part, over the whole size, which may be far
/// larger than DRAM, from any thread, while other ranks put and get the same bytes.
///
/// What the pointers show is what this rank's gets would show. Races between them and other ranks' puts are the program's to
/// exclude; aligned words are never torn. [`vgas_cache::local`] tells what system calls, signals and children do with such memory.
///
/// A part that is opened again while it is open is the same memory.
#[derive(Clone, Debug)]
pub struct LocalPart(Arc<dyn OpenPart>);

/// A part that is open, and what it has taken.
#[derive(Debug)]
struct MappedPart {
    runtime: Runtime,
    memory: LocalSegment,
    of: PartitionId,
    /// Pages taken of the rank's budget.
    counted: u32,
    /// After `memory`, which lies in it.
    _everywhere: Option<Arc<Everywhere>>,
}

impl Deref for LocalPart {
    type Target = LocalSegment;

    fn deref(&self) -> &LocalSegment {
        self.0.memory()
    }
}

impl OpenPart for MappedPart {
    fn memory(&self) -> &LocalSegment {
        &self.memory
    }
}

impl Drop for MappedPart {
    fn drop(&mut self) {
        // The agent is gone with the job, and its pages with it.
        let _ = self.memory.close();
        let segments = self.runtime.segments();
        segments.end_local(self.memory.base().addr());
        self.runtime.tell_absent();
        segments.mapped.fetch_sub(self.counted, Relaxed);
        segments.end_open(self.of);
    }
}

/// Pages that a rank may map of all its segments together, in pages of `cache.page`.
fn pages_max(layout: &TableLayout) -> u32 {
    layout.spec().mapped_pages_per_rank + layout.mapped_beside_first()
}

impl Segment {
    /// Makes this rank's own part of a tiered segment addressable by plain pointers until the result is dropped. At most
    /// `local.mapped` pages of it are mapped at a time, or as many as the rank's other parts leave: all parts together have a quarter
    /// more than that. (A pinned segment always has pointers: [`Runtime::pointer_to`].)
    ///
    /// # Errors
    /// If this rank has no part, or has it open, or can only read it; if addresses for it cannot be had, or the machine does not
    /// allow what `local.mechanism` asks for; and if the rank's other parts have taken all pages.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(runtime: &vgas::Runtime) -> vgas::Result<()> {
    /// let store = runtime.attach(&vgas::SegmentOptions::tiered(1 << 30))?;
    /// let local = store.local()?;
    /// // SAFETY: no other rank writes the word meanwhile.
    /// unsafe { local.base().cast::<u64>().write(7) };
    /// assert_eq!(store.get_value::<u64>(runtime.rank(), 0)?, 7);
    /// # Ok(()) }
    /// ```
    pub fn local(&self) -> Result<LocalPart> {
        self.open_local(self.runtime().rank(), None)
    }

    /// [`Segment::local`] with at most `pages` pages of the segment mapped at a time.
    ///
    /// # Errors
    /// As [`Segment::local`]; and for fewer pages than an instruction may need.
    pub fn local_pages(&self, pages: u32) -> Result<LocalPart> {
        self.open_local(self.runtime().rank(), Some(pages))
    }

    /// Makes the part of another rank of this node addressable by plain pointers, to be read, until the result is dropped: of a
    /// segment at one address, where [`Runtime::pointer_to`] says. The owner's pointers use the same pages; each is in DRAM only
    /// while it is used so. At most `pages` of them are mapped. A store ends the process with a line that says so.
    ///
    /// # Errors
    /// As [`Segment::local`], and for a rank of another node.
    pub fn local_of_peer(&self, owner: Rank, pages: u32) -> Result<LocalPart> {
        let runtime = self.runtime();
        let is_there = owner.0 < runtime.ranks() && runtime.layout().node_of(owner) == runtime.node();
        if !is_there || owner == runtime.rank() {
            return Err(Error::Usage(format!(
                "{owner} is no other rank of the node of {}: its memory is not here; get what it has",
                runtime.rank()
            )));
        }
        self.open_local(owner, Some(pages))
    }

    fn open_local(&self, owner: Rank, pages: Option<u32>) -> Result<LocalPart> {
        if self.kind() == Kind::Pinned {
            return Err(Error::Usage(
                "a pinned segment is not opened: Runtime::pointer_to says where it is".into(),
            ));
        }
        let runtime = self.runtime();
        let segments = runtime.segments();
        let of = PartitionId { segment: self.id(), owner };
        let _turn = segments.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = segments.local_part(of) {
            return Ok(LocalPart(open));
        }
        if !segments.begin_open(of) {
            return Err(Error::Usage(format!("the part of {of} is being closed or detached")));
        }
        let everywhere = runtime.addresses().of(of.segment);
        let opened = take_pages(runtime, of, pages).and_then(|(pages, counted)| {
            let opened = runtime.open_partition(of, pages, everywhere.as_deref());
            if opened.is_err() {
                segments.mapped.fetch_sub(counted, Relaxed);
            }
            Ok((opened?, counted))
        });
        match opened {
            Ok((memory, counted)) => {
                let runtime = runtime.clone();
                let open: Arc<dyn OpenPart> =
                    Arc::new(MappedPart { runtime, memory, of, counted, _everywhere: everywhere });
                let range = LocalRange {
                    base: open.memory().base().addr(),
                    bytes: open.memory().bytes() as usize,
                    of,
                };
                segments.begin_local(range, Arc::downgrade(&open));
                self.runtime().tell_absent();
                Ok(LocalPart(open))
            }
            Err(error) => {
                segments.end_open(of);
                Err(error)
            }
        }
    }
}

/// Takes pages of the rank's budget for a part: how many of the part's size, and how many they count as.
fn take_pages(runtime: &Runtime, of: PartitionId, wanted: Option<u32>) -> Result<(u32, u32)> {
    let layout = runtime.client().pool().layout();
    let size = runtime.client().partition(of).map_or(layout.page_size(), |found| found.size);
    // Larger pages count as several.
    let each = size.bytes().div_ceil(layout.page_size().bytes());
    let most = pages_max(layout);
    let usual = layout.spec().mapped_pages_per_rank;
    let mut taken = runtime.segments().mapped.load(Relaxed);
    loop {
        let pages = wanted.unwrap_or(usual.min(most - taken.min(most)) / each);
        let counted = pages.saturating_mul(each);
        let after = taken.checked_add(counted).filter(|&after| after <= most && pages >= MAPPED_PAGES_MIN);
        let Some(after) = after else {
            return Err(Error::Usage(format!(
                "{pages} pages of a segment to be mapped: {MAPPED_PAGES_MIN} at least, and of all segments together {}, of which {} \
                 are taken; raise local.mapped",
                most / each,
                taken.div_ceil(each)
            )));
        };
        match runtime.segments().mapped.compare_exchange(taken, after, Relaxed, Relaxed) {
            Ok(_) => return Ok((pages, counted)),
            Err(now) => taken = now,
        }
    }
}

impl SegmentTable {
    /// Closes what is open by pointers, while the agent still runs.
    pub(crate) fn close_local(&self) -> Result<()> {
        let closed: Vec<_> = self.open_parts().iter().map(|part| part.memory().close()).collect();
        Ok(closed.into_iter().collect::<std::result::Result<(), _>>()?)
    }
}

impl Runtime {
    /// Opens a partition in what is reserved for its segment, which the caller keeps longer.
    fn open_partition(
        &self,
        of: PartitionId,
        pages_max: u32,
        everywhere: Option<&Everywhere>,
    ) -> Result<LocalSegment> {
        let is_own = of.owner == self.rank();
        let (bytes, partition) = (self.client().bytes_of(of), self.client().partition(of));
        let Some(partition) = partition.filter(|_| bytes > 0) else {
            return Err(Error::Usage(format!("{} has no part of this tiered segment", of.owner)));
        };
        if is_own {
            self.client().check_writable(of)?;
        }
        let endpoint = self.endpoint().clone();
        let agent = self.layout().agent_of(self.node());
        let frames = endpoint
            .domain()
            .and_then(|domain| domain.region_file(agent, region::FRAMES))
            .ok_or_else(|| Error::Usage("this rank does not share its node's memory".into()))?
            .try_clone_to_owned()
            .map_err(|error| Error::Usage(format!("cannot duplicate a descriptor: {error}")))?;
        let spec = LocalSpec {
            pool: self.client().pool().clone(),
            frames,
            partition,
            is_own,
            bytes,
            pages_max,
            at: everywhere.map(|everywhere| everywhere.range().base_of(of.owner.0)),
            mechanism: mechanism(self.settings())?,
            ring: Box::new(move || endpoint.ring(agent)),
            read: match is_own {
                true => self.client().page_reader(of),
                false => Box::new(|_| false),
            },
        };
        // SAFETY: the place is this partition's own in a range that the caller keeps longer; the file is that of the pool's frames; the
        // endpoint's ring and the client's reader are made for signal handlers.
        Ok(unsafe { LocalSegment::open(spec) }?)
    }

    /// Tells where buffers of puts, gets and messages may be absent pages.
    pub(crate) fn tell_absent(&self) {
        self.client().set_local(self.segments().local_ranges());
        let (base, bytes) = self.client().local();
        self.endpoint().set_absent(std::ptr::without_provenance(base), bytes);
    }

    /// Bytes to be sent, as private memory: a conduit may hand them to a system call, which cannot wait for a page of a local part.
    pub(crate) fn private<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        if self.client().is_local(bytes.as_ptr()) { Cow::Owned(bytes.to_vec()) } else { Cow::Borrowed(bytes) }
    }
}

/// What the settings ask for, if the machine allows it.
fn mechanism(settings: &Settings) -> Result<Mechanism> {
    let signalled = Mechanism::Userfaultfd(Announcing::BySignal);
    let wanted = match settings.local.mechanism {
        LocalMechanism::Auto if signalled.available().is_ok() => signalled,
        LocalMechanism::Auto | LocalMechanism::Sigsegv => Mechanism::Sigsegv,
        LocalMechanism::Userfaultfd => signalled,
        LocalMechanism::SystemCalls => Mechanism::Userfaultfd(Announcing::ToThread),
    };
    wanted.available().map(|()| wanted).map_err(|error| {
        Error::Usage(format!(
            "local.mechanism = {} needs userfaultfd, which the kernel refuses ({error}); see `vgas info`, or leave it at its default",
            settings.local.mechanism.text()
        ))
    })
}
