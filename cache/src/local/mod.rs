//! Plain loads and stores on a rank's own tiered segment (vGASNet §III.D, promise 9), and plain loads on those of the other
//! ranks of its node.
//!
//! A [`LocalSegment`] is a range of addresses as large as the segment, which may be far larger than memory. A load or
//! store to a page that is not mapped faults; the fault is served in the thread that took it, in a signal handler:
//!
//! 1. it takes one of a bounded number of seats from the page that has had it longest;
//! 2. it keeps the new page where it is, by itself, if this node alone has it and the agent knows nothing of it, brought in
//!    first if nobody has it; else it asks the node's agent, through words in shared memory, for the page as the only copy, in
//!    a frame that stays, and hides the other page while the agent works;
//! 3. it maps that frame at the new page's address, and the access is made again.
//!
//! Faults that come in order bring the pages that follow with them, as far as they are in DRAM and nobody has to be asked.
//!
//! While it is mapped, the page is *served in place*: remote puts and gets travel to its frame, those of the node's ranks
//! hit the same frame, and pointers, puts and gets see the same bytes. Nothing is revoked: the rank itself gives a
//! hidden page back with its next fault, and others may then have it again; and it gives pages back by itself whose part of
//! the cache is wanted for pages of another size.
//!
//! | file | holds |
//! |---|---|
//! | `window.rs` | which pages are mapped; bringing one in |
//! | `run.rs` | sweeps: several pages with one fault |
//! | `space.rs` | the reserved addresses; hiding a page and showing a frame |
//! | `everywhere.rs` | one range of addresses for all ranks' parts of a segment, in every process |
//! | `signal.rs` | the handlers, what they leave to others, and children |
//! | `leaver.rs` | giving pages back whose memory is wanted for pages of another size |
//! | `uffd.rs`, `server.rs` | the kernel's userfaultfd, and threads that serve what it announces |
//!
//! # What programs must know
//!
//! * Any thread may use the pointers, also in signal handlers. During a fault all signals wait, except SIGKILL and SIGSTOP.
//!   A handler that runs on an alternate stack and touches the segment needs some 8 KiB there for the fault's own frame, and
//!   faults that come in order bring nothing with them where such a stack has less than 32 KiB. The thread that attaches gets
//!   one of that size if it has a smaller one; others get it by [`prepare_thread`].
//! * System calls that are given an address of the segment: see [`Mechanism`]. [`LocalSegment::pin`] makes them work with
//!   each.
//! * A fault anywhere else, and one that cannot be a page of the segment, goes to whatever handled the signal before, or ends
//!   the program as it would without this. A handler that a program installs later must do the same with ours.
//! * A page that cannot be had (its device fails, its bytes are damaged) ends the process by SIGBUS, after one line on
//!   standard error. Those who prefer an error pin the range first.
//! * A child of `fork` has no access: a load or store there ends it by SIGSEGV, after one line on standard error. A child that
//!   executes another program, or touches no segment, is not concerned.
//! * Aligned words that two threads race on are not torn; everything else about races is as with other shared memory.
//!
//! # Rules for the unsafe code in this folder
//!
//! 1. *Addresses.* Mappings are replaced, and watched, only inside of the range that a `space::Space` has reserved, which
//!    nothing else of this process uses, until it is dropped.
//! 2. *One changes a page.* A page's mapping is changed only by the thread that has made its word busy, or before and after
//!    anybody uses the segment. A frame is shown only between its grant (or this rank's own pin) and the page's being given
//!    back, and hidden before it is given back.
//! 3. *Frames stay.* A granted frame holds the page, and nothing else, until it is given back: the agent, or this rank by
//!    itself, has it pinned.
//! 4. *System calls* are given structures of the type that they take.
//! 5. *In a signal handler* nothing allocates, locks, or makes a system call that is not async-signal-safe, and `errno` is
//!    as it was. What a handler reaches is found through `signal`'s table, and freed only when no handler runs.

mod everywhere;
mod leaver;
mod range;
mod server;
mod signal;
mod space;
mod uffd;
mod window;

use crate::error::{CacheError, Failure};
use crate::page::PageInSegment;
use crate::partition::Partition;
use crate::pool::{Claim, PoolClient};
use leaver::Leaver;
use rustix::io::Errno;
use server::Server;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use window::Window;

pub use everywhere::Everywhere;
pub use range::{BASES, BYTES_MAX, RANGES_MAX, Range};
pub use signal::{WINDOWS_MAX, prepare_thread};
pub use uffd::Announcing;

/// How faults on absent pages reach the thread that serves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Absent pages are not accessible; SIGSEGV in the thread that faults. Works everywhere. System calls that are given an
    /// absent page fail with EFAULT.
    Sigsegv,
    /// Absent pages are watched by a userfaultfd. Linux 4.14 or later, where the machine allows it. A system call on a page
    /// that is just being hidden may fail with EFAULT even if faults are announced to threads; [`LocalSegment::pin`] excludes
    /// that.
    Userfaultfd(Announcing),
}

impl Mechanism {
    /// Whether this machine lets this process use it, or why not.
    ///
    /// # Errors
    /// The kernel's.
    pub fn available(self) -> Result<(), Errno> {
        match self {
            Mechanism::Sigsegv => Ok(()),
            Mechanism::Userfaultfd(announcing) => uffd::available(announcing),
        }
    }
}

/// Why a page of one's own segment cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The agent cannot get it.
    #[error("{0}")]
    Refused(Failure),
    /// The agent is gone, and the job with it.
    #[error("the agent of this node has ended")]
    AgentEnded,
    /// More pages pinned than can be kept.
    #[error("{limit} of its pages can be pinned at a time; unpin some, or raise local.mapped")]
    TooManyPinned {
        /// How many.
        limit: u32,
    },
    /// More segments than a process can have.
    #[error("a process can have {max} local segments", max = signal::WINDOWS_MAX)]
    TooManySegments,
    /// More ranges of addresses for segments of all ranks than a process can have.
    #[error("a process can have {max} segments at one address", max = RANGES_MAX)]
    TooManyRanges,
    /// A store to what another rank owns.
    #[error("only its owner may store there; put it")]
    NotTheOwner,
    /// The pool was made without room for mapped pages.
    #[error("local access is switched off")]
    SwitchedOff,
    /// The kernel refuses to map memory.
    #[error("the kernel refuses to map it ({0}); with ENOMEM, raise vm.max_map_count or lower local.mapped")]
    System(Errno),
}

/// What a local segment is made of.
pub struct LocalSpec {
    /// The node's pool, attached as the rank.
    pub pool: Arc<PoolClient>,
    /// The file behind the pool's frames.
    pub frames: OwnedFd,
    /// The partition, of this rank or of another one of its node, which is attached at the agent.
    pub partition: Partition,
    /// It is this rank's own. Another's can only be read.
    pub is_own: bool,
    /// How large it is: its last page may have more bytes.
    pub bytes: u64,
    /// Most pages that are to be mapped at the same time. The segments of a rank share what the pool grants.
    pub pages_max: u32,
    /// Where it is to be, inside of what an [`Everywhere`] has reserved that lives longer; anywhere if none.
    pub at: Option<usize>,
    /// How faults are noticed.
    pub mechanism: Mechanism,
    /// Wakes the node's agent if it sleeps. Called in signal handlers: must neither lock nor allocate.
    pub ring: Box<dyn Fn() + Send + Sync>,
    /// Brings in a page that this rank has claimed, or not ([`crate::client::Client::page_reader`]). Called in signal handlers.
    pub read: Box<dyn Fn(&Claim) -> bool + Send + Sync>,
}

impl std::fmt::Debug for LocalSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalSpec({} bytes of {}, {:?})", self.bytes, self.partition.id(), self.mechanism)
    }
}

/// What serves the faults of a segment. Ended in this order.
struct Live {
    _leaver: Option<Leaver>,
    _server: Option<Server>,
    _registered: signal::Registered,
}

/// A tiered segment of a rank of this node as memory.
///
/// [`LocalSegment::base`] is good for plain loads of [`LocalSegment::bytes`] bytes as long as this lives, and for stores if the
/// segment is this rank's own.
pub struct LocalSegment {
    window: Arc<Window>,
    /// None when it was closed.
    live: Mutex<Option<Live>>,
    bytes: u64,
    mechanism: Mechanism,
}

impl std::fmt::Debug for LocalSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalSegment({} bytes at {:p}, {:?})", self.bytes, self.base(), self.mechanism)
    }
}

impl LocalSegment {
    /// Reserves the addresses and begins to serve faults on them. A process may have [`WINDOWS_MAX`] such segments.
    ///
    /// # Safety
    /// An address in [`LocalSpec::at`] begins room for the whole segment in an [`Everywhere`] that lives longer, and no other
    /// segment is there. [`LocalSpec::frames`] is the file of the frames of [`LocalSpec::pool`]. [`LocalSpec::ring`] and
    /// [`LocalSpec::read`] do nothing that a signal handler must not do.
    ///
    /// # Errors
    /// When the segment is empty or not the pool's, when addresses or handlers cannot be had, or when the mechanism is not
    /// allowed here.
    pub unsafe fn open(spec: LocalSpec) -> Result<Self, CacheError> {
        let (owner, bytes, mechanism) = (spec.partition.id(), spec.bytes, spec.mechanism);
        let trouble = |trouble| CacheError::Local { owner, page: PageInSegment(0), trouble };
        prepare_thread();
        // SAFETY: passed on.
        let window = Arc::new(unsafe { Window::new(spec) }.map_err(trouble)?);
        let registered = signal::register(&window, mechanism).map_err(trouble)?;
        let server = Server::start(&window).map_err(trouble)?;
        let live = Mutex::new(Some(Live {
            _leaver: Leaver::start(&window),
            _server: server,
            _registered: registered,
        }));
        Ok(Self { window, live, bytes, mechanism })
    }

    /// First address of the segment; a multiple of the page size.
    pub fn base(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.window.space().base())
    }

    /// Size in bytes, as attached.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How faults are noticed.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The address of a byte of the segment; none outside of it.
    pub fn address_of(&self, offset: u64) -> Option<*mut u8> {
        (offset < self.bytes).then(|| self.base().wrapping_add(offset as usize))
    }

    /// The offset in the segment of an address; none outside of it.
    pub fn offset_of(&self, address: *const u8) -> Option<u64> {
        let offset = address.addr().wrapping_sub(self.window.space().base()) as u64;
        (offset < self.bytes).then_some(offset)
    }

    /// Brings a range in and keeps it mapped, for reading and, if it is this rank's own, for writing, until the returned pin is dropped: for system calls,
    /// and for those who want an error instead of a signal when a page cannot be had.
    ///
    /// Pinned pages count toward what a rank may have mapped (`local.mapped`).
    ///
    /// # Errors
    /// When the range is not inside, when more would be pinned than possible, or when a page cannot be had. Then nothing is
    /// pinned.
    pub fn pin(&self, offset: u64, bytes: u64) -> Result<LocalPin, CacheError> {
        let owner = self.window.owner();
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(CacheError::OutOfRange { owner, offset, bytes, limit: self.bytes });
        }
        let at = |offset: u64| {
            self.window.page_at(self.window.space().base() + offset as usize).unwrap_or_default()
        };
        let none = PageInSegment(0)..PageInSegment(0);
        let pages = if bytes == 0 { none } else { at(offset)..at(offset + bytes - 1) + 1 };
        let mut pin = LocalPin { window: self.window.clone(), pages: pages.start..pages.start };
        for page in PageInSegment::each(pages) {
            // Other signals wait: their handlers may touch the segment and must not find this thread half-way.
            signal::undisturbed(|| self.window.pin(page)).map_err(|trouble| CacheError::Local {
                owner,
                page,
                trouble,
            })?;
            pin.pages.end = page + 1;
        }
        Ok(pin)
    }

    /// Ends the segment and gives its mapped pages back to the agent, which must still be running. After that, its addresses
    /// are no memory any more. Nothing happens the second time.
    ///
    /// # Errors
    /// When the agent is gone.
    pub fn close(&self) -> Result<(), CacheError> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).take();
        if live.is_none() {
            return Ok(());
        }
        drop(live);
        self.window.space().seal();
        let owner = self.window.owner();
        self.window.give_back_all().map_err(|trouble| CacheError::Local {
            owner,
            page: PageInSegment(0),
            trouble,
        })
    }
}

/// A range of a [`LocalSegment`] that stays mapped until this is dropped.
#[must_use = "dropped at once, it keeps nothing"]
pub struct LocalPin {
    window: Arc<Window>,
    pages: std::ops::Range<PageInSegment>,
}

impl std::fmt::Debug for LocalPin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalPin(pages {:?} of {})", self.pages, self.window.owner())
    }
}

impl Drop for LocalPin {
    fn drop(&mut self) {
        for page in PageInSegment::each(self.pages.clone()) {
            self.window.unpin(page);
        }
    }
}
