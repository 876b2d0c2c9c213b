//! A program's options for attaching a segment.

use crate::address::Kind;
use vgas_cache::partition::Policy;

/// The options of a segment, the same on all ranks but for its size. [`Runtime::attach`](crate::Runtime::attach) takes them.
///
/// ```
/// use vgas::SegmentOptions;
///
/// let store = SegmentOptions::tiered(1 << 30).name("store").page_size(64 << 10);
/// assert_eq!(store.bytes(), 1 << 30);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    pub(super) is_independent: bool,
    pub(super) name: Option<String>,
    pub(super) page_bytes: u32,
    pub(super) is_relaxed: bool,
    pub(super) has_one_address: bool,
    policy: Policy,
}

impl SegmentOptions {
    /// A tiered segment with `bytes` bytes of this rank: a file on its node's NVMe behind the cache of all
    /// nodes. The size is rounded up to pages, and may be 0.
    pub fn tiered(bytes: u64) -> Self {
        Self::of_kind(Kind::Tiered, bytes)
    }

    /// A pinned segment with `bytes` bytes of this rank: plain memory, out of the `segment.pinned_max` bytes
    /// of each rank. Every rank reaches it by puts and gets, ranks of the same node by pointers as well
    /// ([`Runtime::pointer_to`](crate::Runtime::pointer_to)). It has neither a name nor pages, so the options
    /// below are for tiered segments, except [`SegmentOptions::independent`].
    pub fn pinned(bytes: u64) -> Self {
        Self::of_kind(Kind::Pinned, bytes)
    }

    /// A segment of either kind.
    pub fn of_kind(kind: Kind, bytes: u64) -> Self {
        Self {
            kind,
            bytes,
            is_independent: false,
            name: None,
            page_bytes: 0,
            is_relaxed: false,
            has_one_address: false,
            policy: Policy::default(),
        }
    }

    /// The same options for another size of this rank's part.
    pub fn sized(&self, bytes: u64) -> Self {
        Self { bytes, ..self.clone() }
    }

    /// Keeps the segment after the job. A later job that attaches the same name and size finds the data of the last
    /// [`Runtime::checkpoint`](crate::Runtime::checkpoint). 1 to 189 letters, digits, `_`, `-` and `.`, not starting with `.`; no two
    /// segments of a job have the same.
    ///
    /// Rank 3's part of `store` is the file `store.3.3.vgas` in its node's `nvm.directory`. A segment belongs
    /// to as many ranks as created it, and each rank finds its file where it left it: a job with another
    /// number of ranks, or one that lacks the files of some ranks but not of all, is refused. To begin again,
    /// remove the files of all ranks. If nothing can be written there (a read-only mount, a full disk), the
    /// data can still be read: [`Segment::reopened`](crate::Segment::reopened) reports that.
    ///
    /// A checkpoint makes all named segments durable as one, and notes in each which others took part. If one of them was removed
    /// since, or replaced by an older copy, attaching it is refused unless `segment.mixed_checkpoints` is on
    /// ([`Reopened::is_together`](crate::Reopened::is_together)).
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// [`SegmentOptions::name`], for programs whose users choose whether the segment has one.
    pub fn maybe_name(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    /// Bytes of a page: a power of two from 4 KiB to 4 MiB, and at most a sixteenth of a node's cache; 0, the
    /// default, takes `cache.page`. A page is the unit of transfer, caching and eviction: small pages suit
    /// small records at random, large ones scans.
    pub fn page_size(self, bytes: u32) -> Self {
        Self { page_bytes: bytes, ..self }
    }

    /// Promises agreement on the content at barriers and under locks only. Puts smaller than a page then wait in the rank that made
    /// them, and travel together at its next [`Runtime::barrier`](crate::Runtime::barrier) or
    /// [`Runtime::barrier_notify`](crate::Runtime::barrier_notify), or when there are too many: several nodes may write different
    /// bytes of one page without taking it from each other. A rank sees its own puts at once. *Operation complete* of such a put
    /// means that its source is reusable; it is *visible* after the barrier.
    pub fn relaxed(self, on: bool) -> Self {
        Self { is_relaxed: on, ..self }
    }

    /// Keeps copies on the owner's node only: puts and gets of other nodes travel there and back with the bytes that they name. For
    /// memory that several nodes write, or whose owner must not wait for other nodes.
    pub fn home_only(self, on: bool) -> Self {
        Self { policy: Policy { home_only: on, ..self.policy }, ..self }
    }

    /// Serves small puts and gets of other nodes at the page's home, from the second node that puts on, instead of moving the page.
    /// Other nodes cannot pin such a page.
    pub fn in_place(self, on: bool) -> Self {
        Self { policy: Policy { in_place: on, ..self.policy }, ..self }
    }

    /// Recognises scans and reads ahead of them. On by default.
    pub fn read_ahead(self, on: bool) -> Self {
        Self { policy: Policy { read_ahead: on, ..self.policy }, ..self }
    }

    /// Evicts the segment's pages first, the oldest before others, while the cache is full and more than an eighth of it holds pages
    /// of such segments: for data that is read once, from one end to the other, so that a scan does not evict what is read again.
    /// Each of `agent.threads` chooses among the pages that it has; with several, a scan may evict more.
    pub fn streamed(self, on: bool) -> Self {
        Self { policy: Policy { streamed: on, ..self.policy }, ..self }
    }

    /// Multiplies the time for which the segment's pages are kept when other pages need memory: 1 to 255, 1 by default. Each of
    /// `agent.threads` chooses among the pages that it has.
    pub fn weight(self, weight: u8) -> Self {
        Self { policy: Policy { weight, ..self.policy }, ..self }
    }

    /// Places the segment at addresses that are the same in every process of the job, so that pointers into
    /// it mean the same everywhere ([`Runtime::pointer_to`](crate::Runtime::pointer_to),
    /// [`Runtime::address_of`](crate::Runtime::address_of)). The owner's pointers reach memory while it has
    /// [`Segment::local`](crate::Segment::local), those of ranks of its node while they have
    /// [`Segment::local_of_peer`](crate::Segment::local_of_peer); an access by another rank ends its process
    /// with a line that reports it. All such segments together have at most 64 TiB of addresses, each rank as
    /// much as the largest.
    pub fn one_address(self, on: bool) -> Self {
        Self { has_one_address: on, ..self }
    }

    /// Attaches the segment on this rank alone, zeros at first; the other ranks need not do anything. A rank that was told an
    /// address in it can use it after [`Runtime::open_remote`](crate::Runtime::open_remote). A rank can have 240 such segments of
    /// each kind. They have neither a name nor one address.
    pub fn independent(self) -> Self {
        Self { is_independent: true, ..self }
    }

    /// Bytes of this rank's part.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Tiered or pinned.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns true if one rank attaches it alone.
    pub fn is_independent(&self) -> bool {
        self.is_independent
    }

    pub(super) fn policy(&self, is_owned: bool) -> Policy {
        Policy { owned: is_owned, ..self.policy }
    }

    /// Returns true if all of it applies to a pinned segment.
    pub(super) fn suits_pinned(&self) -> bool {
        let &Self { kind, bytes, is_independent, .. } = self;
        *self == Self { is_independent, ..Self::of_kind(kind, bytes) }
    }
}
