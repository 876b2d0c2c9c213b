//! Frames in the order of their last use, as far as stamps tell it.
//!
//! A list would put a frame whose use is noticed late at the top, above pages that were fetched after it: a scan that is
//! read ahead would then push out what it has not read yet, and keep what it has. So the frame is filed by the time of
//! its use instead: nearly always behind all others, in a plain queue. Those that are older than its end go to a second
//! one, because what a scan has used long ago comes up in the order of its use, and the few that fit neither to a heap.
//! Frames that were filed again or removed are dropped when they come up.

use super::FrameId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

#[derive(Clone, Copy, Debug)]
struct Filed {
    /// Distinguishes the entry in force from older ones of the same frame; later is newer.
    sequence: u64,
    /// The stamp as the frame had it.
    stamp: u32,
}

/// Time of use, order of filing, frame.
type Entry = (u64, u64, u32);

/// A queue by last use; a frame stands in it at most once.
#[derive(Debug)]
pub(super) struct ByUse {
    /// Those that were filed in the order of their use.
    in_order: VecDeque<Entry>,
    /// Those that were used before the last one of `in_order` when they were filed, but not before the last one of these.
    late_in_order: VecDeque<Entry>,
    /// All others.
    late: BinaryHeap<Reverse<Entry>>,
    filed: Vec<Option<Filed>>,
    len: usize,
    latest: u64,
    sequence: u64,
}

impl ByUse {
    pub fn new(frames: u32) -> Self {
        let filed = vec![None; frames as usize];
        let (in_order, late_in_order, late) = (VecDeque::new(), VecDeque::new(), BinaryHeap::new());
        Self { in_order, late_in_order, late, filed, len: 0, latest: 1 << 32, sequence: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The stamp under which a frame is filed; none when it is not.
    pub fn stamp(&self, frame: FrameId) -> Option<u32> {
        self.filed.get(frame.0 as usize)?.map(|filed| filed.stamp)
    }

    /// Files a frame of the pool by this time of use; among equal times, above those filed before.
    pub fn file(&mut self, frame: FrameId, stamp: u32) {
        let time = self.extend(stamp);
        self.file_at(frame, time, stamp);
    }

    /// Files a frame above all others.
    pub fn file_top(&mut self, frame: FrameId, stamp: u32) {
        let time = self.extend(stamp).max(self.latest);
        self.file_at(frame, time, stamp);
    }

    fn file_at(&mut self, frame: FrameId, time: u64, stamp: u32) {
        let Some(place) = self.filed.get_mut(frame.0 as usize) else { return };
        self.sequence += 1;
        if place.replace(Filed { sequence: self.sequence, stamp }).is_none() {
            self.len += 1;
        }
        self.latest = self.latest.max(time);
        let entry = (time, self.sequence, frame.0);
        let fits = |queue: &VecDeque<Entry>| queue.back().is_none_or(|&(last, ..)| last <= time);
        if fits(&self.in_order) {
            self.in_order.push_back(entry);
        } else if fits(&self.late_in_order) {
            self.late_in_order.push_back(entry);
        } else {
            self.late.push(Reverse(entry));
        }
        // Entries out of force are dropped at the latest when they outnumber the others by far.
        if self.in_order.len() + self.late_in_order.len() + self.late.len() > 4 * self.filed.len() + 64 {
            let filed = &self.filed;
            self.in_order.retain(|entry| in_force(filed, entry));
            self.late_in_order.retain(|entry| in_force(filed, entry));
            self.late.retain(|Reverse(entry)| in_force(filed, entry));
        }
    }

    /// Takes a frame out; false when it was not in.
    pub fn remove(&mut self, frame: FrameId) -> bool {
        let found = self.filed.get_mut(frame.0 as usize).and_then(Option::take).is_some();
        self.len -= usize::from(found);
        found
    }

    /// The frame used least recently.
    pub fn oldest(&mut self) -> Option<FrameId> {
        for queue in [&mut self.in_order, &mut self.late_in_order] {
            while queue.front().is_some_and(|entry| !in_force(&self.filed, entry)) {
                queue.pop_front();
            }
        }
        while self.late.peek().is_some_and(|Reverse(entry)| !in_force(&self.filed, entry)) {
            self.late.pop();
        }
        let late = self.late.peek().map(|Reverse(entry)| entry);
        let oldest = self.in_order.front().into_iter().chain(self.late_in_order.front()).chain(late).min();
        oldest.map(|&(.., frame)| FrameId(frame))
    }

    /// The clock is 32 bits and wraps; a stamp means the time with these low bits that is nearest to the latest one.
    fn extend(&self, stamp: u32) -> u64 {
        let difference = stamp.wrapping_sub(self.latest as u32) as i32;
        self.latest.saturating_add_signed(i64::from(difference))
    }

    /// The frames from the least to the most recently used.
    #[cfg(test)]
    pub fn oldest_first(&self) -> Vec<FrameId> {
        let late = self.late.iter().map(|Reverse(entry)| entry);
        let mut all: Vec<_> = self.in_order.iter().chain(&self.late_in_order).chain(late).copied().collect();
        all.retain(|entry| in_force(&self.filed, entry));
        all.sort_unstable();
        all.into_iter().map(|(_, _, frame)| FrameId(frame)).collect()
    }
}

/// Whether the frame has not been removed or filed again since.
fn in_force(filed: &[Option<Filed>], &(_, sequence, frame): &Entry) -> bool {
    filed[frame as usize].is_some_and(|filed| filed.sequence == sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_in_the_order_of_their_use_not_of_their_filing() {
        let mut queue = ByUse::new(4);
        for (frame, stamp) in [(0, 5), (1, 7), (2, 6)] {
            queue.file(FrameId(frame), stamp);
        }
        queue.file(FrameId(3), 4);
        assert_eq!(queue.oldest_first(), [3, 0, 2, 1].map(FrameId));
        queue.file(FrameId(3), 6);
        assert_eq!(queue.oldest_first(), [0, 2, 3, 1].map(FrameId));
        assert!(queue.remove(FrameId(0)) && !queue.remove(FrameId(0)));
        assert_eq!((queue.oldest(), queue.len()), (Some(FrameId(2)), 3));
        queue.file(FrameId(9), 1);
        assert_eq!(queue.len(), 3, "a frame that the pool does not have is ignored");
    }

    #[test]
    fn the_order_survives_the_wrap_of_the_clock_and_many_filings() {
        let mut queue = ByUse::new(2);
        queue.file(FrameId(0), u32::MAX);
        queue.file(FrameId(1), 3);
        assert_eq!(queue.oldest(), Some(FrameId(0)));
        for stamp in 4..1000 {
            queue.file(FrameId(0), stamp);
        }
        assert_eq!(queue.oldest(), Some(FrameId(1)));
        assert!(queue.in_order.len() + queue.late_in_order.len() + queue.late.len() < 100);
    }
}
