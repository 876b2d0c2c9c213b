//! The table of segments: each rank's partition of each segment, and which pages it has. Pure.
//!
//! A *segment* is an address space of the job: for each rank that owns part of it a *partition*, some bytes in pages of the
//! segment's size, stored on the NVMe of the rank's node. Pages are numbered through the job ([`crate::pool::TableLayout`]); a
//! partition has neighbouring numbers out of those that its owner can have for pages of that size, which the owner's agent
//! chooses. Everybody else is told.

#![forbid(unsafe_code)]

pub use crate::page::SEGMENTS_MAX;
use crate::page::{PageInSegment, PageIndex};
use crate::pool::{PageSize, TableLayout};
use std::fmt;
use std::ops::Range;
use vgas_rma::address::Rank;

/// Which segment: below [`SEGMENTS_MAX`] for tiered ones, the only ones that this crate knows. Numbers above are those of pinned ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u16);

impl SegmentId {
    /// The segment that GASNet clients see.
    pub const FIRST: Self = Self(0);
}

/// A rank's partition of a segment, by name. A rank alone means its partition of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// Of which segment.
    pub segment: SegmentId,
    /// Whose.
    pub owner: Rank,
}

impl From<Rank> for PartitionId {
    #[inline(always)]
    fn from(owner: Rank) -> Self {
        Self { segment: SegmentId::FIRST, owner }
    }
}

impl From<(SegmentId, Rank)> for PartitionId {
    #[inline(always)]
    fn from((segment, owner): (SegmentId, Rank)) -> Self {
        Self { segment, owner }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.segment {
            SegmentId::FIRST => self.owner.fmt(f),
            SegmentId(segment) => write!(f, "{}, segment {segment}", self.owner),
        }
    }
}

/// All partitions of a segment, or one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    /// Of which segment.
    pub segment: SegmentId,
    /// Whose; everybody's if none.
    pub owner: Option<Rank>,
}

impl Which {
    /// Whether a partition is among them.
    pub fn covers(self, found: &Partition) -> bool {
        found.segment == self.segment && self.owner.is_none_or(|owner| found.owner == owner)
    }
}

/// How the pages of a segment are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Only the owner's node ever has copies; others put and get at the home, in messages of the bytes that they name.
    pub home_only: bool,
    /// The home serves small operations in place as soon as a second node puts, without waiting for the page to bounce.
    pub in_place: bool,
    /// Scans are recognised, and run ahead.
    pub read_ahead: bool,
    /// Its pages leave a full cache before others, in the order in which they came, as long as they are more than a small part of
    /// it: what is read once does not flush what is read again.
    pub streamed: bool,
    /// It belongs to a library whose safety depends on its bytes: of services, only that library's read and write it.
    pub owned: bool,
    /// How much longer than others the segment's pages are kept when others want their memory: twice as long for 2. At least 1.
    pub weight: u8,
}

impl Default for Policy {
    fn default() -> Self {
        Self { home_only: false, in_place: false, read_ahead: true, streamed: false, owned: false, weight: 1 }
    }
}

impl Policy {
    const FLAGS: u32 = 0x1f;

    /// Whether pages leave a full cache in another order than by their use.
    fn is_kept_otherwise(self) -> bool {
        self.streamed || self.weight != 1
    }

    /// As a word.
    pub fn encode(self) -> u32 {
        let flags = [self.home_only, self.in_place, self.read_ahead, self.streamed, self.owned];
        let flags = flags.into_iter().zip(0..).fold(0, |word, (flag, bit)| word | u32::from(flag) << bit);
        flags | u32::from(self.weight) << 8
    }

    /// From a word; none when it is none.
    pub fn decode(word: u32) -> Option<Self> {
        let flag = |bit: u32| word >> bit & 1 != 0;
        let weight = u8::try_from(word >> 8).ok().filter(|&weight| weight > 0)?;
        let (home_only, in_place, read_ahead) = (flag(0), flag(1), flag(2));
        let (streamed, owned) = (flag(3), flag(4));
        let known = word & 0xff & !Self::FLAGS == 0;
        known.then_some(Self { home_only, in_place, read_ahead, streamed, owned, weight })
    }
}

/// A rank's part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Of which.
    pub segment: SegmentId,
    /// Whose; its node is the home of the pages.
    pub owner: Rank,
    /// How large its pages are.
    pub size: PageSize,
    /// The number of its first page.
    pub first: PageIndex,
    /// Number of pages, at least 1.
    pub pages: u64,
    /// How they are treated.
    pub policy: Policy,
    /// On its own node: ranks may read its file by themselves.
    pub shared: bool,
}

impl Partition {
    /// Its name.
    pub fn id(&self) -> PartitionId {
        PartitionId { segment: self.segment, owner: self.owner }
    }

    /// Its pages.
    pub fn range(&self) -> Range<PageIndex> {
        self.first..self.first + self.pages
    }

    /// The same, one after the other.
    pub fn each_page(&self) -> impl DoubleEndedIterator<Item = PageIndex> + use<> {
        PageIndex::each(self.range())
    }

    /// Bytes in its pages.
    pub fn bytes(&self) -> u64 {
        self.pages << self.size.shift()
    }

    /// Its number in its node's volume: the owner's rank for the first segment.
    pub fn file_number(&self) -> u32 {
        file_number(self.segment, self.owner)
    }

    /// The page of one of its bytes.
    #[inline]
    pub fn page_at(&self, offset: u64) -> PageIndex {
        self.first + PageInSegment(offset >> self.size.shift())
    }

    /// The number that one of its pages has in it.
    #[inline]
    pub fn number_of(&self, page: PageIndex) -> PageInSegment {
        page.within(self.first)
    }

    /// Where one of its pages is in its node's volume: the file's number, and the page in it.
    pub fn stored_in(&self, page: PageIndex) -> (u32, PageInSegment) {
        (self.file_number(), self.number_of(page))
    }

    /// Whether its pages are pages that its owner can have.
    pub fn fits(&self, layout: &TableLayout) -> bool {
        let numbers = layout.numbers_of(self.owner, self.size);
        let end = self.first.checked_add(self.pages);
        self.pages > 0
            && self.segment.0 < SEGMENTS_MAX
            && numbers
                .zip(end)
                .is_some_and(|(numbers, end)| numbers.start <= self.first && end <= numbers.end)
    }
}

/// What a partition is called in its node's volume.
pub fn file_number(segment: SegmentId, owner: Rank) -> u32 {
    // Ranks have at most 20 bits (`vgas_rma::address`).
    u32::from(segment.0) << 20 | owner.0
}

/// All partitions that are known, by their pages.
#[derive(Clone, Debug, Default)]
pub struct Partitions {
    /// Ascending, none overlapping another.
    by_page: Vec<Partition>,
    /// Whether pages of some are kept otherwise than those of most: nearly never.
    has_kept_otherwise: bool,
}

impl Partitions {
    /// The partition that a page is of.
    #[inline]
    pub fn find(&self, page: PageIndex) -> Option<&Partition> {
        let behind = self.by_page.partition_point(|partition| partition.first <= page);
        self.by_page.get(behind.checked_sub(1)?).filter(|found| page - found.first < found.pages)
    }

    /// How a page is to be kept: its segment's policy, of which only [`Policy::streamed`] and [`Policy::weight`] count here.
    pub fn kept_by(&self, page: PageIndex) -> Policy {
        let found = self.find(page).filter(|_| self.has_kept_otherwise);
        found.map(|found| found.policy).unwrap_or_default()
    }

    /// A rank's partition of a segment.
    pub fn of(&self, segment: SegmentId, owner: Rank) -> Option<&Partition> {
        self.by_page.iter().find(|found| found.segment == segment && found.owner == owner)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Partition> {
        self.by_page.iter()
    }

    /// Adds a partition. False, and nothing has changed: it overlaps another, or its owner has another one of that segment. One
    /// that is known already is fine.
    #[must_use]
    pub fn insert(&mut self, partition: Partition) -> bool {
        let at = self.by_page.partition_point(|known| known.first < partition.first);
        let known = self.by_page.get(at);
        if known.is_some_and(|&known| known == Partition { shared: known.shared, ..partition }) {
            return true;
        }
        let range = partition.range();
        let is_apart = |known: &Partition| known.range().end <= range.start || range.end <= known.first;
        let before = at.checked_sub(1).and_then(|before| self.by_page.get(before));
        let neighbours = before.into_iter().chain(self.by_page.get(at));
        if !neighbours.into_iter().all(is_apart) || self.of(partition.segment, partition.owner).is_some() {
            return false;
        }
        self.has_kept_otherwise |= partition.policy.is_kept_otherwise();
        if self.by_page.len() == self.by_page.capacity() {
            // There may be thousands.
            self.by_page.reserve_exact(self.by_page.len() / 8 + 4);
        }
        self.by_page.insert(at, partition);
        true
    }

    /// Forgets partitions.
    pub fn remove(&mut self, which: Which) {
        self.by_page.retain(|known| !which.covers(known));
        self.has_kept_otherwise = self.by_page.iter().any(|known| known.policy.is_kept_otherwise());
    }

    /// Numbers for so many pages of a size of this owner's that no partition has: the first that are free.
    pub fn vacant(&self, layout: &TableLayout, owner: Rank, size: PageSize, pages: u64) -> Option<PageIndex> {
        let numbers = layout.numbers_of(owner, size)?;
        let taken = self.by_page.iter().filter(|known| known.owner == owner && known.size == size);
        let mut first = numbers.start;
        for known in taken {
            if known.first - first >= pages {
                break;
            }
            first = known.range().end;
        }
        (numbers.end - first >= pages).then_some(first)
    }

    /// Bytes that an owner has attached in all.
    pub fn bytes_of(&self, owner: Rank) -> u64 {
        self.by_page.iter().filter(|known| known.owner == owner).map(Partition::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolSpec;

    fn layout() -> TableLayout {
        TableLayout::new(&PoolSpec::small(vec![100, 100])).unwrap()
    }

    fn partition(segment: u16, owner: u32, first: u64, pages: u64) -> Partition {
        let size = PageSize::of_bytes(4096).unwrap();
        Partition {
            segment: SegmentId(segment),
            owner: Rank(owner),
            size,
            first: PageIndex(first),
            pages,
            policy: Policy::default(),
            shared: false,
        }
    }

    #[test]
    fn policies_survive_their_word() {
        for bits in 0..32 {
            let flag = |bit: u32| bits >> bit & 1 != 0;
            let policy = Policy {
                home_only: flag(0),
                in_place: flag(1),
                read_ahead: flag(2),
                streamed: flag(3),
                owned: flag(4),
                weight: bits as u8 + 1,
            };
            assert_eq!(Policy::decode(policy.encode()), Some(policy));
        }
        for word in [0, 0x0f, 0x120, 0x1_0001] {
            assert_eq!(Policy::decode(word), None, "{word:#x}");
        }
    }

    /// Goal: pages are found in the partition that has them and in no other, numbers are used again, and nothing overlaps.
    #[test]
    fn pages_belong_to_one_partition() {
        let layout = layout();
        let mut known = Partitions::default();
        let size = layout.page_size();
        assert!(known.insert(partition(0, 0, 0, 10)) && known.insert(partition(0, 0, 0, 10)));
        assert!(known.insert(partition(0, 1, 100, 10)) && known.insert(partition(1, 0, 10, 20)));
        for wrong in
            [partition(2, 0, 29, 5), partition(2, 0, 0, 1), partition(1, 0, 40, 2), partition(2, 0, 5, 50)]
        {
            assert!(!known.insert(wrong), "{wrong:?}");
        }
        let segment = |page| known.find(PageIndex(page)).map(|found| (found.segment.0, found.owner.0));
        assert_eq!([0, 9, 10, 29].map(segment), [Some((0, 0)), Some((0, 0)), Some((1, 0)), Some((1, 0))]);
        assert_eq!([30, 99, 100, 110, u64::MAX].map(segment), [None, None, Some((0, 1)), None, None]);
        assert_eq!(known.vacant(&layout, Rank(0), size, 70), Some(PageIndex(30)));
        assert_eq!(known.vacant(&layout, Rank(0), size, 71), None);
        assert_eq!(known.bytes_of(Rank(0)), 30 * 4096);
        known.remove(Which { segment: SegmentId(0), owner: None });
        assert_eq!(known.all().count(), 1);
        assert_eq!(known.vacant(&layout, Rank(0), size, 10), Some(PageIndex(0)));
        assert_eq!(known.vacant(&layout, Rank(0), size, 11), Some(PageIndex(30)));
        assert!(!known.insert(partition(1, 0, 50, 2)), "a second one of the segment");
        let large = PageSize::of_bytes(1 << 20).unwrap();
        let first = known.vacant(&layout, Rank(1), large, 1).unwrap();
        let one = Partition { size: large, ..partition(3, 1, first.0, 1) };
        assert!(one.fits(&layout) && known.insert(one) && known.find(first) == Some(&one));
        assert!(
            !Partition { owner: Rank(0), ..one }.fits(&layout)
                && !Partition { pages: 99, ..one }.fits(&layout)
        );
        assert!(!Partition { pages: u64::MAX, ..one }.fits(&layout));
    }
}
