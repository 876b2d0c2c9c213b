//! The shards of a node's agent: threads that each serve a share of the pages, by themselves.
//!
//! A page belongs to one shard ([`TableLayout::shard_of`](crate::pool::TableLayout::shard_of)): its line, its directory entry, its claims, its operations at the
//! NVMe and what is said about it are that shard's alone, so that none of the protocol knows of shards. What arrives is
//! handed to the shard that it is about ([`Shards::route`]), requests for several pages in pieces. Pages stay in their order:
//! one thread at a time takes in messages, and what it finds goes into the inboxes in that order.
//!
//! What shards share they reach by atomic words or not at all:
//!
//! | shared | how |
//! |---|---|
//! | free frames, answers to ranks | the node's table ([`crate::pool`]) |
//! | room: evictions in flight, and how many were refused | counted for all; who finds nothing to evict asks the others |
//! | which frames wait for a peer | [`Expected`], whose words have one writer each |
//! | files and their page maps | handles of one [`vgas_nvm::Volume`] |
//! | segments: attaching, checkpoints | the first shard, which asks the others for their part ([`ShardMessage`]) |
//! | what ranks give back of their mapped pages | whoever takes the fault tells the page's shard before it answers |

use super::expected::Expected;
use super::items::{READ_PAGES_MAX, ShardMessage};
use super::wire::{Beside, Coherence, Content};
use crate::error::Failure;
use crate::page::PageIndex;
use crate::partition::Partitions;
use crate::pool::{PageSize, TableLayout};
use crate::protocol::Message;
use crate::request::{InPlace, InPlaceAnswer, Request};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vgas_rma::RmaError;
use vgas_rma::address::{Layout, Peer};

/// Something that has arrived.
#[derive(Debug)]
pub(super) enum Incoming {
    Request(Peer, Request, Box<[u8]>),
    Message(Peer, Coherence),
    Content(Peer, Content),
    Several(Peer, Message, Vec<(PageIndex, Beside)>),
    InPlace(Peer, InPlace, Box<[u8]>),
    Answer(Peer, u32, InPlaceAnswer),
    Service(Peer, [u32; 3], Box<[u8]>),
    ServiceAnswer(Peer, [u32; 2], Box<[u8]>),
    Shard(ShardMessage),
}

/// What a shard has not looked at yet.
#[derive(Debug, Default)]
struct Inbox {
    arrived: Mutex<Vec<Incoming>>,
    /// Empty; kept for its allocation.
    spare: Mutex<Vec<Incoming>>,
    /// The shard sleeps, or is about to.
    asleep: AtomicBool,
    /// Of an agent with several shards: readable when the shard is to wake up.
    bell: Option<OwnedFd>,
}

impl Inbox {
    fn ring(&self) {
        if self.asleep.load(Ordering::SeqCst)
            && let Some(bell) = &self.bell
        {
            // It refuses only when it is full: then it is readable anyway.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }
}

/// What the shards of one agent share.
#[derive(Debug)]
pub struct Shards {
    pages: TableLayout,
    inboxes: Box<[Inbox]>,
    /// Who takes in messages.
    polling: Mutex<()>,
    expected: Arc<Expected>,
    /// Evictions in flight, of all, by the size of the pages.
    evicting: [AtomicU32; PageSize::COUNT],
    /// Evictions that were refused, ever, and how many it were when one was not, or when somebody got a frame: a long row of
    /// them means that the NVMe is full, here or elsewhere.
    refused: AtomicU32,
    refused_before: AtomicU32,
    /// How the last of them was refused.
    refusal: Mutex<Option<Failure>>,
    /// The segments that are attached (on this node) or made known (on others), and how often that has changed.
    partitions: Mutex<Arc<Partitions>>,
    changes: AtomicU64,
    /// Sizes of pages that some segment has had.
    sizes: AtomicU32,
    /// The same for those that some segment has now.
    used: AtomicU32,
    /// One of them has failed: all end.
    failed: AtomicBool,
}

/// Returns how many pages of a prefetch are brought in: more than a quarter of the pool would only push itself out.
pub(super) fn prefetched(first: PageIndex, count: u32, pages: &TableLayout) -> u32 {
    count.min(pages.frames_of(pages.size_of(first)) / 4)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shards {
    pub(super) fn new(pages: &TableLayout, layout: &Layout) -> Result<Self, RmaError> {
        let spec = pages.spec();
        let bell = || match spec.agent_threads {
            1 => Ok(None),
            _ => eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map(Some)
                .map_err(|e| RmaError::system("create an eventfd", e)),
        };
        let inbox = |_| Ok(Inbox { bell: bell()?, ..Inbox::default() });
        Ok(Self {
            inboxes: (0..spec.agent_threads).map(inbox).collect::<Result<_, RmaError>>()?,
            polling: Mutex::new(()),
            expected: Arc::new(Expected::new(pages, layout.clone())?),
            evicting: Default::default(),
            refused: AtomicU32::new(0),
            refused_before: AtomicU32::new(0),
            refusal: Mutex::new(None),
            partitions: Mutex::default(),
            changes: AtomicU64::new(0),
            sizes: AtomicU32::new(1 << pages.page_size().index()),
            used: AtomicU32::new(1 << pages.page_size().index()),
            failed: AtomicBool::new(false),
            pages: pages.clone(),
        })
    }

    /// Evictions of pages of a size that are in flight, by all shards.
    pub(super) fn evicting(&self, size: PageSize) -> u32 {
        self.evicting[size.index()].load(Ordering::Relaxed)
    }

    pub(super) fn eviction_begins(&self, size: PageSize) {
        self.evicting[size.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn eviction_ended(&self, size: PageSize) {
        let one_less = |evicting: u32| evicting.checked_sub(1);
        let _ = self.evicting[size.index()].fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }

    /// The sizes of pages that some segment has had.
    pub(super) fn sizes(&self) -> impl Iterator<Item = PageSize> + use<> {
        let sizes = self.sizes.load(Ordering::Relaxed);
        PageSize::all().filter(move |size| sizes >> size.index() & 1 != 0)
    }

    /// The sizes of pages that some segment has.
    pub(super) fn used_sizes(&self) -> impl Iterator<Item = PageSize> + use<> {
        let used = self.used.load(Ordering::Relaxed);
        self.sizes().filter(move |size| used >> size.index() & 1 != 0)
    }

    /// Some segment will have pages of this size.
    pub(super) fn expect_size(&self, size: PageSize) {
        self.sizes.fetch_or(1 << size.index(), Ordering::Relaxed);
    }

    /// How many evictions have been refused, ever.
    pub(super) fn refused(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many of them in a row, since there were so many.
    pub(super) fn refused_since(&self, before: u32) -> u32 {
        let all = self.refused();
        all.wrapping_sub(self.refused_before.load(Ordering::Relaxed)).min(all.wrapping_sub(before))
    }

    /// How the last one was.
    pub(super) fn refusal(&self) -> Option<Failure> {
        *lock(&self.refusal)
    }

    pub(super) fn eviction_refused(&self, failure: Failure) {
        *lock(&self.refusal) = Some(failure);
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the row.
    pub(super) fn somebody_got_a_frame(&self) {
        let all = self.refused();
        if self.refused_before.load(Ordering::Relaxed) != all {
            self.refused_before.store(all, Ordering::Relaxed);
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.inboxes.len() as u32
    }

    /// Which frames wait for the bytes of a peer.
    pub(super) fn expected(&self) -> &Arc<Expected> {
        &self.expected
    }

    /// Changes the table of segments.
    pub(super) fn with_partitions<T>(&self, change: impl FnOnce(&mut Partitions) -> T) -> T {
        let mut partitions = lock(&self.partitions);
        let result = change(Arc::make_mut(&mut partitions));
        let sizes = partitions.all().fold(0, |sizes, one| sizes | 1 << one.size.index());
        self.used.store(sizes, Ordering::Relaxed);
        self.sizes.fetch_or(sizes, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
        result
    }

    /// The table of segments, if it has changed since it had changed so often.
    pub(super) fn partitions_since(&self, changes: u64) -> Option<(Arc<Partitions>, u64)> {
        let now = self.changes.load(Ordering::Acquire);
        (now != changes).then(|| (lock(&self.partitions).clone(), now))
    }

    /// Hands over what has arrived to the shards that it is about. By one thread at a time, in the order of arrival.
    pub(super) fn route(&self, incoming: Incoming) {
        if self.count() == 1 {
            return self.push(0, incoming);
        }
        match incoming {
            // More is refused by the first one's shard.
            Incoming::Request(from, Request::Read { page, count, more, wait }, data)
                if count <= READ_PAGES_MAX =>
            {
                let end = page.saturating_add(u64::from(count));
                self.in_blocks(page, count, |shard, page, count| {
                    // What follows in other blocks is of the same operation as well.
                    let behind = end.0.saturating_sub(page.0).saturating_sub(u64::from(count)) as u32;
                    let request = Request::Read { page, count, more: more.saturating_add(behind), wait };
                    self.push(shard, Incoming::Request(from, request, data.clone()));
                });
            }
            Incoming::Request(from, Request::Prefetch { page, count }, data) => {
                let count = prefetched(page, count, &self.pages);
                self.in_blocks(page, count, |shard, page, count| {
                    let request = Request::Prefetch { page, count };
                    self.push(shard, Incoming::Request(from, request, data.clone()));
                });
            }
            Incoming::Several(from, message, pages) => {
                for shard in 0..self.count() {
                    let is_its = |&&(page, _): &&(PageIndex, Beside)| self.pages.shard_of(page) == shard;
                    let some: Vec<_> = pages.iter().filter(is_its).copied().collect();
                    if !some.is_empty() {
                        self.push(shard, Incoming::Several(from, message, some));
                    }
                }
            }
            other => {
                let shard = self.shard_of(&other);
                self.push(shard, other);
            }
        }
    }

    /// The shard of what needs no division.
    fn shard_of(&self, incoming: &Incoming) -> u32 {
        let page = match incoming {
            Incoming::Request(_, request, _) => match *request {
                Request::Put { page, .. }
                | Request::PutFrame { page, .. }
                | Request::Own { page, .. }
                | Request::Ahead { page }
                | Request::Read { page, .. } => page,
                // Any of them; what is left is about segments, which are the first one's.
                Request::MakeRoom { wait, .. } => return wait.0 % self.count(),
                _ => return 0,
            },
            Incoming::Message(_, Coherence { page, .. }) => *page,
            // What nobody waits for is refused by any.
            Incoming::Content(_, content) => match self.expected.page(content.frame) {
                Some(page) => page,
                None => return 0,
            },
            // Segments are the first one's.
            Incoming::InPlace(_, InPlace::Partition { .. }, _) => return 0,
            Incoming::InPlace(_, operation, _) => operation.page(),
            // As the cache controller numbers its puts.
            Incoming::Answer(_, number, _) => return number % self.count(),
            Incoming::Service(..) | Incoming::ServiceAnswer(..) | Incoming::Shard(_) => return 0,
            // Divided before.
            Incoming::Several(..) => return 0,
        };
        self.pages.shard_of(page)
    }

    /// Calls for each shard's part of some neighbouring pages, in order; once at least, so that nonsense is refused.
    fn in_blocks(&self, page: PageIndex, count: u32, mut each: impl FnMut(u32, PageIndex, u32)) {
        let (mut page, mut left) = (page, count);
        loop {
            // The last number of all is no page: nonsense goes on, to be refused.
            let here = (self.pages.block_end(page) - page).clamp(1, u64::from(left).max(1)) as u32;
            each(self.pages.shard_of(page), page, here.min(left));
            left = left.saturating_sub(here);
            if left == 0 {
                return;
            }
            page = page.saturating_add(u64::from(here));
        }
    }

    /// Hands something to a shard, which it wakes.
    fn push(&self, shard: u32, incoming: Incoming) {
        let Some(inbox) = self.inboxes.get(shard as usize) else { return };
        lock(&inbox.arrived).push(incoming);
        inbox.ring();
    }

    /// Tells a shard something, another one or this one.
    pub(super) fn tell(&self, shard: u32, message: ShardMessage) {
        self.push(shard, Incoming::Shard(message));
    }

    /// What has arrived for a shard, to be given back empty.
    pub(super) fn take(&self, shard: u32) -> Vec<Incoming> {
        let inbox = &self.inboxes[shard as usize];
        let mut arrived = lock(&inbox.arrived);
        if arrived.is_empty() {
            return Vec::new();
        }
        let spare = std::mem::take(&mut *lock(&inbox.spare));
        std::mem::replace(&mut arrived, spare)
    }

    pub(super) fn give_back(&self, shard: u32, empty: Vec<Incoming>) {
        *lock(&self.inboxes[shard as usize].spare) = empty;
    }

    /// The right to take in messages, unless another shard has it.
    pub(super) fn try_poll(&self) -> Option<MutexGuard<'_, ()>> {
        match self.polling.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Prepares a shard to sleep on its bell. False: something has arrived.
    pub(super) fn arm(&self, shard: u32) -> bool {
        let inbox = &self.inboxes[shard as usize];
        inbox.asleep.store(true, Ordering::SeqCst);
        lock(&inbox.arrived).is_empty() && !self.has_failed()
    }

    /// Ends that.
    pub(super) fn disarm(&self, shard: u32) {
        let inbox = &self.inboxes[shard as usize];
        inbox.asleep.store(false, Ordering::SeqCst);
        if let Some(bell) = &inbox.bell {
            // Not readable: nobody has rung.
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
    }

    /// What a sleeping shard waits for beside its NVMe.
    pub(super) fn bell(&self, shard: u32) -> Option<BorrowedFd<'_>> {
        self.inboxes[shard as usize].bell.as_ref().map(AsFd::as_fd)
    }

    /// Wakes a shard, if it sleeps.
    pub(super) fn ring(&self, shard: u32) {
        self.inboxes[shard as usize].ring();
    }

    /// Wakes all shards but this one.
    pub(super) fn ring_others(&self, shard: u32) {
        (0..self.count()).filter(|&other| other != shard).for_each(|other| self.ring(other));
    }

    /// All shards are to end.
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
        (0..self.count()).for_each(|shard| self.ring(shard));
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }
}
