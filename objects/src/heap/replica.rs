//! A second place for every rank's objects, and how they are used again from there when a node is lost (DRust §4.2.3).
//!
//! With [`HeapOptions::replicas`](super::HeapOptions) a rank's partition has a *backup*: as many bytes in a segment of a rank of the next node, at the
//! same offsets. It is tiered memory, so it takes NVMe, and DRAM only while it is written or read.
//!
//! # What is promised
//!
//! A rank's objects are *replicated* as they are when it passes an object on: when [`Objects::hand`],
//! [`Objects::lend`] or [`Objects::lend_mut`] begins on the giving rank, when a borrow by `lend_mut` ends on
//! the writing rank, when a task is spawned or has ended, at [`Objects::barrier`], and on request, by
//! [`Objects::replicate`]. The message that tells other ranks of an object leaves after the backup has it. So
//! nothing that another rank could have seen is lost with one node. Only state known to that node's ranks
//! alone is lost: their writes since, and objects that only they owned.
//!
//! If a loss cuts a borrow off, its owner finds the object as it was when the borrow began, whole, with all
//! that it leads to; the same holds if `lend_mut` reports a lost peer although the object was elsewhere.
//!
//! # How
//!
//! *A value that was replicated is never written again.* Its slot is marked as if it had been served, and its
//! next writer moves it to a new slot instead of changing its colour. So the backup needs no order of writing
//! and no versions: while it is brought up to date, a slot is either unknown to other ranks, or has the bytes
//! that it had. A freed slot of this kind waits ([`Passed`]) until every possible holder of the old word has
//! the new one.
//!
//! Changes are found by comparison: a number for each 4 KiB of values identifies the backup's content. That
//! takes time for all values of the partition, even on NVMe, some GB a second from memory; it is correct for
//! a long-lived `&mut`, too, whose end is not observable.
//!
//! # When a node is lost
//!
//! The launcher announces it to all ([`vgas::Runtime::lost_nodes`]). Addresses stay the same; the lost ranks'
//! partitions are read at their backups from then on, which is the whole of the fail-over: there is nothing
//! to be prepared or agreed upon. A write moves the object to the writer, as always; so the lost partition is
//! never written, its colours stand still, and slots freed there are forgotten. A word is looked up in the
//! backup's note of its slot: one that never came there is [`ObjectError::Lost`], by type and place.
//!
//! Operations that the lost ranks had begun end as follows:
//!
//! * borrows for reading and copies simply end: homes do not count copies;
//! * [`Objects::hand`], [`Objects::lend`] and [`Objects::lend_mut`] are of all ranks: they end with an error,
//!   now and later, as barriers do. A box given to a `hand` that fails so is leaked: the other side may have
//!   received it;
//! * tasks are [`TaskError::Lost`](crate::TaskError); locks held exclusively there are poisoned, and have
//!   their previous value;
//! * unless a rank there has passed on something with links meanwhile, which may have come out of its loans
//!   or locks: then boxes in the loan are [`ObjectError::Lost`], and the lock's value is gone
//!   ([`super::loans`]). No object has two owners. An object dropped by a lost rank may be dropped again by
//!   its owner: a `Drop` with an effect outside of the heap may have it twice;
//! * objects of `sync` at the lost ranks, numbers, counts and locks, are an error: they are changed in place,
//!   without being passed on;
//! * slots freed after the loss that were passed on before stay allocated: no more meetings announce that old
//!   words are gone. The same holds within [`Objects::run`](super::Objects::run), whose workers do not meet.
//!
//! One node can be lost. Nodes whose backup was there continue without one; a second loss ends the job.

use super::BACKUP_SLOT;
use super::error::ObjectError;
use super::loans::is_dead;
use super::period::PERIOD;
use super::{Freed, Heap, Mapped};
use crate::shape::Shape;
use crate::slab::{Geometry, has_object};
use crate::word::Word;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vgas::{GlobalAddress, Layout, NodeId, Rank, Runtime, Segment, SegmentOptions, SegmentOwner};

/// Why an object of a lost node cannot be reached.
const NOT_REPLICATED: &str = "it was not replicated when its node was lost: no rank had passed it on";
/// Why a dead link means nothing.
pub(super) const PASSED_ON: &str =
    "it was lent to a rank that is lost, which has passed objects on: another rank may own it";

/// Unit of comparing and sending.
const PAGE_BYTES: u64 = 4096;
const PAGE_WORDS: usize = PAGE_BYTES as usize / 8;

/// Most words that are sent at once.
const RUN_WORDS: usize = 32 * PAGE_WORDS;

/// Meetings after which no rank has a word that was replaced before the first of them: at the first, the
/// owner is told of the new one, and a rank that has left the second knows that all have left the first.
pub(super) const MEETINGS: u64 = 2;

/// The backups of a heap.
#[derive(Debug)]
pub(super) struct Replicas {
    segment: Segment,
    /// Size of each partition.
    bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By page: number of the backup's content; 0 if it has none.
    there: Vec<u64>,
    parked: Passed,
}

/// Slots to be freed after enough meetings.
#[derive(Debug, Default)]
struct Passed {
    /// Number of meetings of all ranks.
    met: u64,
    /// In the order in which it was parked, with `met` then.
    parked: VecDeque<(u64, Parked)>,
}

#[derive(Debug)]
enum Parked {
    Own(Word),
    There(Freed),
}

/// Counts of a rank's replication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replicated {
    /// Bytes that were looked at.
    pub looked_at: u64,
    /// Bytes that had changed, and were sent.
    pub sent: u64,
}

/// The rank that has the backup of another one's partition, and which part of its bytes.
fn backup_of(layout: &Layout, rank: Rank) -> (Rank, u64) {
    let NodeId(node) = layout.node_of(rank);
    let next = layout.ranks_of(NodeId((node + 1) % layout.nodes()));
    let index = rank.0 - layout.ranks_of(NodeId(node)).start;
    let count = next.len().max(1) as u32;
    (Rank(next.start + index % count), u64::from(index / count))
}

/// As different as can be for different words: one that differs makes another number of any state of its lane.
fn number_of(words: &[u64]) -> u64 {
    let mut lanes =
        [0x9e37_79b9_7f4a_7c15_u64, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x27d4_eb2f_1656_67c5];
    for four in words.as_chunks::<4>().0 {
        for (lane, word) in lanes.iter_mut().zip(four) {
            *lane = (*lane ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
        }
    }
    let [a, b, c, d] = lanes;
    let mixed = a ^ b.rotate_left(17) ^ c.rotate_left(31) ^ d.rotate_left(47);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53) | 1
}

impl Replicas {
    /// Attaches the backups. Collective.
    pub(super) fn attach(runtime: &Runtime, bytes: u64, owner: &SegmentOwner) -> Result<Self, ObjectError> {
        let layout = runtime.layout();
        if layout.nodes() < 2 {
            return Err(ObjectError::Usage("replicas need another node: the job has one".into()));
        }
        if !runtime.settings().run.survive {
            return Err(ObjectError::Usage(
                "replicas are of use only where the job survives: start it with run.survive = on".into(),
            ));
        }
        let parts = (0..runtime.ranks()).map(|rank| backup_of(layout, Rank(rank)).1 + 1).max().unwrap_or(1);
        let options = SegmentOptions::tiered(0).home_only(true).read_ahead(false);
        let owner = SegmentOwner { slot: BACKUP_SLOT, ..owner.clone() };
        // SAFETY: only the heap has the segment.
        let segment = unsafe { runtime.attach_owned(&options.sized(bytes * parts), &owner) }?;
        let there = vec![0; bytes.div_ceil(PAGE_BYTES) as usize];
        Ok(Self { segment, bytes, state: Mutex::new(State { there, parked: Passed::default() }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic would be a mistake of this crate; what was noted as sent was sent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the backup's place of a place in a partition.
    fn place(&self, layout: &Layout, at: GlobalAddress) -> GlobalAddress {
        let (rank, part) = backup_of(layout, at.rank);
        self.segment.address(rank, part * self.bytes + at.offset)
    }
}

impl Heap {
    /// Returns true if replicated values must not be written again.
    pub(super) fn has_replicas(&self) -> bool {
        self.replicas.is_some()
    }

    /// Returns true if a home may forward readers to the holder of a copy: a rank that waits for a node it
    /// did not ask does not hear of that node's loss.
    pub(super) fn may_hand_on(&self) -> bool {
        !self.runtime.settings().run.survive
    }

    /// Returns true if a loss ends collective operations, but not the job.
    pub(super) fn goes_on(&self) -> bool {
        self.has_replicas() && !self.runtime.lost_nodes().is_empty()
    }

    /// Returns the place of something that is not written any more: at its backup, if its rank is lost.
    pub(super) fn now_at(&self, at: GlobalAddress) -> GlobalAddress {
        match &self.replicas {
            Some(replicas) if self.runtime.is_lost(at.rank) => replicas.place(self.runtime.layout(), at),
            _ => at,
        }
    }

    /// Returns true if a rank is lost, and there are backups.
    pub(super) fn is_backed_up(&self, rank: Rank) -> bool {
        self.has_replicas() && self.runtime.is_lost(rank)
    }

    /// Brings the backup up to date: other ranks may be told of the objects in this rank's partition. Does
    /// nothing without replicas.
    pub(crate) fn replicate(&self) -> Result<Replicated, ObjectError> {
        let Some(replicas) = &self.replicas else {
            PERIOD.next();
            return Ok(Replicated::default());
        };
        let me = self.runtime.rank();
        let to = replicas.place(self.runtime.layout(), super::place(me, 0));
        let mut state = replicas.state();
        let ranges = self.slabs().serve_all();
        let own = Mapped { base: self.address_of(0), bytes: self.bytes };
        let mut sending = Sending { to, run: Vec::new(), pages: Vec::new(), first: 0 };
        let mut done = Replicated::default();
        let mut page = [0; PAGE_WORDS];
        let mut next = 0;
        for range in ranges {
            for number in next.max(range.start / PAGE_BYTES)..range.end.div_ceil(PAGE_BYTES) {
                if self.runtime.is_lost(to.rank) {
                    return Ok(done);
                }
                next = number + 1;
                let words = ((self.bytes - number * PAGE_BYTES) / 8).min(PAGE_WORDS as u64) as usize;
                own.read(number * PAGE_BYTES, &mut page[..words]);
                page[words..].fill(0);
                done.looked_at += PAGE_BYTES;
                let is = number_of(&page);
                if state.there[number as usize] != is {
                    sending.add(number, is, &page[..words], &mut state.there, &replicas.segment)?;
                    done.sent += PAGE_BYTES;
                }
            }
        }
        sending.flush(&mut state.there, &replicas.segment)?;
        Ok(done)
    }

    /// All ranks have met: slots replaced long ago are free.
    pub(crate) fn has_met(&self) -> Result<(), ObjectError> {
        let Some(replicas) = &self.replicas else { return Ok(()) };
        let freed: Vec<Parked> = {
            let Passed { met, parked } = &mut replicas.state().parked;
            *met += 1;
            let count = parked.iter().take_while(|(since, _)| since + MEETINGS <= *met).count();
            parked.drain(..count).map(|(_, parked)| parked).collect()
        };
        freed.into_iter().try_for_each(|parked| match parked {
            Parked::Own(word) => self.free_own_now(word),
            Parked::There(freed) => self.free_there_now(freed),
        })
    }

    /// Returns true if an object of this rank's must stay for now; it is then freed later.
    pub(super) fn park_own(&self, word: Word, offset: u64) -> bool {
        let Some(replicas) = &self.replicas else { return false };
        if !self.slabs().is_served(offset) {
            return false;
        }
        replicas.state().parked.park(Parked::Own(word));
        true
    }

    /// As [`Heap::park_own`], of another rank's object: returns it if it need not stay.
    pub(super) fn park_there(&self, freed: Freed) -> Option<Freed> {
        let Some(replicas) = &self.replicas else { return Some(freed) };
        // A lost rank's slot is never used again.
        if !self.runtime.is_lost(self.locate(freed.word.address()).rank) {
            replicas.state().parked.park(Parked::There(freed));
        }
        None
    }

    /// Reads the bytes of a lost rank's object at its backup.
    pub(super) fn read_backup(&self, word: Word, shape: &Shape, to: &mut [u8]) -> Result<(), ObjectError> {
        let at = self.locate(word.address());
        let found = self.is_in_backup(word, at).and_then(|is_there| {
            if !is_there {
                let why = if is_dead(at.offset) { PASSED_ON } else { NOT_REPLICATED };
                return Err(vgas::Error::Usage(why.into()));
            }
            self.runtime.get(self.now_at(at), to)
        });
        found.map_err(|why| self.lost(word, shape, why))
    }

    /// Returns true if the backup has an object in its colour, judged by its first address: parts of rows are
    /// not found.
    fn is_in_backup(&self, word: Word, at: GlobalAddress) -> Result<bool, vgas::Error> {
        let theirs = Geometry::new(word.address() - at.offset, self.bytes);
        let Some(kind) = theirs.kind_of(at.offset) else { return Ok(false) };
        let kind: u32 = self.runtime.get_value(self.now_at(GlobalAddress { offset: kind, ..at }))?;
        if kind == 0 {
            return Ok(false);
        }
        let Some(noted) = theirs.word_at(at.offset, kind) else { return Ok(true) };
        let noted: u32 = self.runtime.get_value(self.now_at(GlobalAddress { offset: noted, ..at }))?;
        Ok(has_object(noted, word.colour()))
    }
}

impl Passed {
    fn park(&mut self, parked: Parked) {
        self.parked.push_back((self.met, parked));
    }
}

/// Pages on their way to the backup, one after the other.
struct Sending {
    to: GlobalAddress,
    /// Their words.
    run: Vec<u64>,
    /// The pages.
    pages: Vec<u64>,
    /// Number of the first.
    first: u64,
}

impl Sending {
    fn add(
        &mut self,
        number: u64,
        is: u64,
        words: &[u64],
        there: &mut [u64],
        backups: &Segment,
    ) -> Result<(), ObjectError> {
        if number != self.first + self.pages.len() as u64 || self.run.len() >= RUN_WORDS {
            self.flush(there, backups)?;
            self.first = number;
        }
        self.run.extend_from_slice(words);
        self.pages.push(is);
        Ok(())
    }

    /// When it returns, the backup has them, or is lost itself.
    fn flush(&mut self, there: &mut [u64], backups: &Segment) -> Result<(), ObjectError> {
        let to = self.to.rank;
        match backups.put(to, self.to.offset + self.first * PAGE_BYTES, &self.run) {
            Err(why) if !backups.runtime().is_lost(to) => return Err(why.into()),
            _ => {}
        }
        let numbers = &mut there[self.first as usize..][..self.pages.len()];
        numbers.copy_from_slice(&self.pages);
        self.run.clear();
        self.pages.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every partition's backup is on the next node, and no two are at one place.
    #[test]
    fn backups_are_elsewhere_and_apart() {
        for (ranks, nodes) in [(2, 2), (3, 3), (4, 2), (5, 2), (7, 3), (9, 4)] {
            let layout = Layout::blocks(ranks, nodes);
            let all: Vec<_> = (0..ranks).map(|rank| backup_of(&layout, Rank(rank))).collect();
            for (rank, (backup, part)) in all.iter().enumerate() {
                let node = layout.node_of(Rank(rank as u32)).0;
                assert_eq!(layout.node_of(*backup).0, (node + 1) % nodes, "{rank} of {ranks} on {nodes}");
                assert_eq!(all.iter().filter(|other| **other == (*backup, *part)).count(), 1);
            }
        }
    }

    /// Goal: any word that differs, and the order of words, make another number. Method: each bit of some words, and swaps.
    #[test]
    fn what_differs_has_another_number() {
        let zeros = [0; PAGE_WORDS];
        let is = number_of(&zeros);
        for at in [0, 1, 2, 3, 4, 77, PAGE_WORDS - 1] {
            for bit in 0..64 {
                let mut page = zeros;
                page[at] = 1 << bit;
                assert_ne!(number_of(&page), is, "bit {bit} of word {at}");
            }
        }
        let mut page = zeros;
        (page[3], page[7]) = (1, 2);
        let before = number_of(&page);
        page.swap(3, 7);
        assert_ne!(number_of(&page), before);
    }

    #[test]
    fn what_is_parked_waits_for_two_meetings() {
        let mut passed = Passed::default();
        let word = Word::new(64, crate::word::Colour(1)).unwrap();
        passed.park(Parked::Own(word));
        passed.met += 1;
        passed.park(Parked::Own(word));
        let due = |passed: &Passed| {
            passed.parked.iter().filter(|(since, _)| since + MEETINGS <= passed.met).count()
        };
        assert_eq!(due(&passed), 0);
        passed.met += 1;
        assert_eq!(due(&passed), 1);
    }
}
