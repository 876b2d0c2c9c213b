//! Sweeps: several neighbouring pages with one fault.
//!
//! Who goes through a segment in order faults on each page, and each fault costs a signal and some changes of mappings. So
//! when faults come in order, the pages that follow are mapped with the one that faulted, more of them each time: as long as
//! they are in this node's DRAM alone and the agent knows nothing of them, so that nobody is asked. Neighbours are hidden, and
//! frames that are neighbours shown, in one change of mappings.
//!
//! A page is mapped for storing only when stores come in order, too: the last pages of a sweep may be stored back unchanged, a
//! page that is only read is not.

use super::Trouble;
use super::window::{ABSENT, BUSY, READABLE, Seat, WRITABLE, Window};
use crate::pool::{FrameId, Own};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Most pages of a run.
const RUN_PAGES_MAX: usize = 16;
/// Most bytes of one: larger pages are touched for longer than a fault takes.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Stores that have come in order before a run is mapped for storing.
const STORES_IN_ORDER: u32 = 3;

/// What the last faults say about the next.
#[derive(Default)]
pub(super) struct Sweep {
    /// The page that would go on with it.
    next: AtomicU64,
    /// How many faults have come in order.
    in_order: AtomicU32,
}

impl Sweep {
    /// How many faults have come in order, with this one. Several threads at a time make it a guess.
    fn faulted(&self, page: u64) -> u32 {
        let before = if self.next.load(Relaxed) == page { self.in_order.load(Relaxed) } else { 0 };
        let now = before.saturating_add(1);
        self.in_order.store(now, Relaxed);
        self.next.store(page + 1, Relaxed);
        now
    }

    /// So many pages were mapped.
    fn mapped(&self, page: u64, count: usize) {
        self.next.store(page + count as u64, Relaxed);
    }
}

/// A page of a run, which this thread has made busy.
struct Member<'w> {
    page: u64,
    frame: FrameId,
    seat: Seat<'w>,
    /// Nobody else is in the seat any more.
    is_free: bool,
}

/// Without memory from elsewhere: this runs in a handler of a signal.
struct Few<T> {
    items: [Option<T>; RUN_PAGES_MAX],
    count: usize,
}

impl<T> Few<T> {
    fn new() -> Self {
        Self { items: [const { None }; RUN_PAGES_MAX], count: 0 }
    }

    fn push(&mut self, item: T) {
        self.items[self.count] = Some(item);
        self.count += 1;
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items[..self.count].iter_mut().flatten()
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.items[..self.count].iter().flatten()
    }
}

/// The lengths of the groups of neighbours among some numbers, where each follows its left one.
fn neighbours<const MAX: usize>(numbers: &[u64]) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    debug_assert!(numbers.len() <= MAX);
    let mut start = 0;
    std::iter::from_fn(move || {
        if start == numbers.len() {
            return None;
        }
        let mut end = start + 1;
        while end < numbers.len() && numbers[end] == numbers[end - 1] + 1 {
            end += 1;
        }
        let group = start..end;
        start = end;
        Some(group)
    })
}

impl Window {
    /// How many pages are to be mapped because of a fault on this one, which nobody has mapped.
    pub(super) fn run_wanted(&self, page: u64, write: bool) -> usize {
        let in_order = self.sweep.faulted(page);
        let needed = if write { STORES_IN_ORDER } else { 2 };
        if in_order < needed {
            return 1;
        }
        let growing = 1usize << (in_order - needed + 1).min(10);
        let bytes = RUN_BYTES_MAX >> self.page_shift();
        growing.min(RUN_PAGES_MAX).min(bytes.max(1)).min(self.seat_count() / 4).max(1)
    }

    /// Maps a page, which this thread has made busy, with what follows. None: it is not one of those that need nobody, and
    /// nothing was done.
    pub(super) fn fetch_run(&self, page: u64, write: bool, wanted: usize) -> Option<Result<(), Trouble>> {
        let frame = self.map_in_dram(page, write)?;
        let mut run = Few::new();
        run.push(Member { page, frame, seat: self.take_seat(page), is_free: false });
        let end = self.page_count().min(page + wanted as u64);
        for next in page + 1..end {
            if !self.begin(next, ABSENT) {
                break;
            }
            let Some(frame) = self.map_in_dram(next, write) else {
                self.settle(next, ABSENT);
                break;
            };
            // Whoever waits for a seat with one in hand may wait for somebody who does the same.
            let Some(seat) = self.try_seat(next) else {
                self.give_back(next);
                self.settle(next, ABSENT);
                break;
            };
            run.push(Member { page: next, frame, seat, is_free: false });
        }
        self.sweep.mapped(page, run.count);
        self.swept_to(page + run.count as u64 - 1);
        Some(self.show_run(run, write))
    }

    /// Hides the victims, gives them back, and shows the pages. The error is the first page's: what follows it may come later.
    fn show_run(&self, mut run: Few<Member<'_>>, write: bool) -> Result<(), Trouble> {
        let (mut victims, mut hidden) = ([0; RUN_PAGES_MAX], [false; RUN_PAGES_MAX]);
        let mut count = 0;
        for (old, _) in run.iter().filter_map(|member| member.seat.victim) {
            victims[count] = old;
            count += 1;
        }
        let victims = &mut victims[..count];
        victims.sort_unstable();
        let mut trouble = None;
        for group in neighbours::<RUN_PAGES_MAX>(victims) {
            match self.space().hide(victims[group.start], group.len()) {
                Ok(()) => hidden[group].fill(true),
                Err(error) => trouble = Some(error),
            }
        }
        for member in run.iter_mut() {
            member.is_free = match member.seat.victim {
                None => true,
                Some((old, _)) if victims.binary_search(&old).is_ok_and(|at| hidden[at]) => {
                    self.give_back(old);
                    self.settle(old, ABSENT);
                    true
                }
                Some(_) => false,
            };
        }
        // What has a seat now, up to the first that has none.
        let shown = run.iter().take_while(|member| member.is_free).count();
        let mut frames = [0; RUN_PAGES_MAX];
        for (at, member) in frames.iter_mut().zip(run.iter()) {
            *at = u64::from(member.frame.0);
        }
        let mut done = 0;
        let first = run.iter().next().map_or(0, |member| member.page);
        for group in neighbours::<RUN_PAGES_MAX>(&frames[..shown]) {
            let (page, frame) = (first + group.start as u64, FrameId(frames[group.start] as u32));
            if let Err(error) = self.space().show(page, frame, group.len(), write) {
                trouble = Some(error);
                break;
            }
            done = group.end;
        }
        for (index, member) in run.items.into_iter().flatten().enumerate() {
            let Member { page, seat, is_free, .. } = member;
            if index < done {
                self.settle(page, if write { WRITABLE } else { READABLE });
                continue;
            }
            self.give_back(page);
            match is_free {
                true => seat.place.store(0, Release),
                false => self.leave(seat),
            }
            self.settle(page, ABSENT);
        }
        match trouble {
            Some(trouble) if done == 0 => Err(trouble),
            _ => Ok(()),
        }
    }

    /// Keeps a page where it is that needs nobody and is in DRAM.
    fn map_in_dram(&self, page: u64, write: bool) -> Option<FrameId> {
        let Own::Mapped(frame) = self.map_known_to_nobody(page) else { return None };
        if write && !self.mark_modified(page) {
            self.give_back(page);
            return None;
        }
        Some(frame)
    }

    /// Lets a page that is mapped for reading, and that this thread has made busy, be written, and what follows it, if stores
    /// come in order.
    pub(super) fn make_writable(&self, page: u64) -> Result<(), Trouble> {
        let in_order = self.stores.faulted(page);
        let mut count = 0;
        let made = loop {
            let next = page + count as u64;
            if !self.mark_modified(next) {
                if count == 0 {
                    break Err(Self::refused_write());
                }
                self.settle(next, READABLE);
                break Ok(());
            }
            count += 1;
            let next = page + count as u64;
            let may_go_on = in_order >= STORES_IN_ORDER && count < RUN_PAGES_MAX && next < self.page_count();
            if !may_go_on || !self.begin(next, READABLE) {
                break Ok(());
            }
        };
        let made = made.and_then(|()| self.space().allow_writing(page, count));
        self.stores.mapped(page, count);
        for index in 0..count.max(1) as u64 {
            self.settle(page + index, if made.is_ok() { WRITABLE } else { READABLE });
        }
        made
    }

    /// Makes a page busy that is in this state.
    fn begin(&self, page: u64, state: u32) -> bool {
        self.word(page).compare_exchange(state, BUSY, AcqRel, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_of_neighbours() {
        let groups = |numbers: &[u64]| neighbours::<16>(numbers).collect::<Vec<_>>();
        assert_eq!(groups(&[]), []);
        assert_eq!(groups(&[7, 7]), [0..1, 1..2]);
        assert_eq!(groups(&[1, 2, 3, 9, 11, 12, 5]), [0..3, 3..4, 4..6, 6..7]);
    }

    #[test]
    fn a_sweep_is_faults_in_order() {
        let sweep = Sweep::default();
        assert_eq!([5, 6, 7, 9, 10, 4].map(|page| sweep.faulted(page)), [1, 2, 3, 1, 2, 1]);
        sweep.faulted(100);
        sweep.mapped(100, 8);
        assert_eq!(sweep.faulted(108), 2);
    }
}
