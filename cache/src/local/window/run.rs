//! Sweeps: several neighbouring pages with one fault.
//!
//! Who goes through a segment in order faults on each page, and each fault costs a signal and some changes of mappings. So
//! when faults come in order, the pages that follow are mapped with the one that faulted, more of them each time: as long as
//! they are in this node's DRAM alone and the agent knows nothing of them, so that nobody is asked. Neighbours are hidden, and
//! frames that are neighbours shown, in one change of mappings.
//!
//! All of it runs in a handler of a signal. Where that has a small stack, of which the kernel and the dynamic linker take most
//! because they save a processor's registers there, faults are served one at a time ([`signal::has_room`]). Functions here are
//! not inlined, so that no frame lies below that of another way, and nothing large is copied.
//!
//! A page is mapped for storing only when stores come in order, too: the last pages of a sweep may be stored back unchanged, a
//! page that is only read is not.

use super::{ABSENT, BUSY, READABLE, Seat, WRITABLE, Window};
use crate::local::{Trouble, signal};
use crate::page::PageInSegment;
use crate::pool::{FrameId, Own};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Most pages of a run.
const RUN_PAGES_MAX: usize = 16;
/// Most bytes of one: larger pages are touched for longer than a fault takes.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Stores that have come in order before a run is mapped for storing.
const STORES_IN_ORDER: u32 = 3;

/// Sequences of faults that are told from each other: who fills the columns of a table goes through as many at a time.
const STREAMS: usize = 16;

/// What the last faults say about the next.
#[derive(Default)]
pub(super) struct Sweep {
    streams: [Stream; STREAMS],
    /// Faults so far.
    now: AtomicU32,
}

/// One sequence of faults in order.
#[derive(Default)]
struct Stream {
    /// The page that would go on with it.
    next: AtomicU64,
    /// How many faults have come in order; 0: none yet.
    in_order: AtomicU32,
    /// [`Sweep::now`] of the last one.
    at: AtomicU32,
}

impl Sweep {
    /// How many faults have come in order, with this one. Several threads at a time make it a guess.
    fn faulted(&self, page: PageInSegment) -> u32 {
        let now = self.now.fetch_add(1, Relaxed);
        let (stream, before) = match self.stream_to(page) {
            Some(stream) => (stream, stream.in_order.load(Relaxed)),
            // In place of the one that has been silent for longest.
            None => {
                let silence = |stream: &&Stream| match stream.in_order.load(Relaxed) {
                    0 => u32::MAX,
                    _ => now.wrapping_sub(stream.at.load(Relaxed)),
                };
                (self.streams.iter().max_by_key(silence).expect("some"), 0)
            }
        };
        let in_order = before.saturating_add(1);
        stream.in_order.store(in_order, Relaxed);
        stream.at.store(now, Relaxed);
        stream.next.store(page.0 + 1, Relaxed);
        in_order
    }

    /// So many pages were mapped, of which the first was the last that has faulted.
    fn mapped(&self, page: PageInSegment, count: usize) {
        if let Some(stream) = self.stream_to(page + 1) {
            stream.next.store(page.0 + count as u64, Relaxed);
        }
    }

    /// Whether the last fault, on this page, has come in order.
    pub(super) fn is_in_order(&self, page: PageInSegment) -> bool {
        self.stream_to(page + 1).is_some_and(|stream| stream.in_order.load(Relaxed) > 1)
    }

    /// The sequence that this page goes on with.
    fn stream_to(&self, page: PageInSegment) -> Option<&Stream> {
        let is_next =
            |stream: &&Stream| stream.next.load(Relaxed) == page.0 && stream.in_order.load(Relaxed) != 0;
        self.streams.iter().find(is_next)
    }
}

/// Neighbouring pages that this thread has made busy. Small, and never copied: it lies on the stack of a handler of a signal,
/// which may be no larger than 8 KiB.
struct Run {
    first: PageInSegment,
    count: usize,
    frames: [u32; RUN_PAGES_MAX],
    seats: [u32; RUN_PAGES_MAX],
    /// Who has to leave each seat, as [`Run::push`] packs it; 0: nobody, or nobody any more.
    victims: [u64; RUN_PAGES_MAX],
}

impl Run {
    fn push(&mut self, frame: FrameId, seat: &Seat<'_>) {
        self.frames[self.count] = frame.0;
        self.seats[self.count] = seat.index;
        // The state of a page that is mapped is not 0.
        self.victims[self.count] = seat.victim.map_or(0, |(old, kind)| old.0 << KIND_BITS | u64::from(kind));
        self.count += 1;
    }
}

/// Bits of a victim's state in [`Run::victims`].
const KIND_BITS: u32 = 2;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

fn victim_of(packed: u64) -> PageInSegment {
    PageInSegment(packed >> KIND_BITS)
}

/// The end of the numbers from `start` on that each follow the one before by `step`.
fn end_of_group<T: Copy + PartialEq + std::ops::Add<Output = T>>(
    numbers: &[T],
    start: usize,
    step: T,
) -> usize {
    let mut end = start + 1;
    while end < numbers.len() && numbers[end] == numbers[end - 1] + step {
        end += 1;
    }
    end
}

impl Window {
    /// How many pages are to be mapped because of a fault on this one, which nobody has mapped.
    #[inline(never)]
    pub(super) fn run_wanted(&self, page: PageInSegment, write: bool) -> usize {
        let in_order = self.sweep.faulted(page);
        let needed = if write { STORES_IN_ORDER } else { 2 };
        if in_order < needed || !signal::has_room() {
            return 1;
        }
        let growing = 1usize << (in_order - needed + 1).min(10);
        let bytes = RUN_BYTES_MAX >> self.page_shift();
        growing.min(RUN_PAGES_MAX).min(bytes.max(1)).min(self.seat_count() / 4).max(1)
    }

    /// Maps a page, which this thread has made busy, with what follows. None: it is not one of those that need nobody, and
    /// nothing was done.
    #[inline(never)]
    pub(super) fn fetch_run(
        &self,
        page: PageInSegment,
        write: bool,
        wanted: usize,
    ) -> Option<Result<(), Trouble>> {
        let frame = self.map_in_dram(page, write)?;
        let mut run = Run {
            first: page,
            count: 0,
            frames: [0; RUN_PAGES_MAX],
            seats: [0; RUN_PAGES_MAX],
            victims: [0; RUN_PAGES_MAX],
        };
        run.push(frame, &self.take_seat(page));
        let end = PageInSegment(self.page_count()).min(page + wanted as u64);
        for next in PageInSegment::each(page + 1..end) {
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
            run.push(frame, &seat);
        }
        self.sweep.mapped(page, run.count);
        let mut trouble = self.empty_seats(&mut run);
        let done = self.show_run(&run, write, &mut trouble);
        self.end_run(&run, done, if write { WRITABLE } else { READABLE });
        // What follows the first page may come later.
        Some(trouble.filter(|_| done == 0).map_or(Ok(()), Err))
    }

    /// Hides the victims and gives them back. What stays stays in [`Run::victims`].
    #[inline(never)]
    fn empty_seats(&self, run: &mut Run) -> Option<Trouble> {
        let (mut trouble, mut start) = (None, 0);
        while start < run.count {
            // Neighbours in the same state: those of a sweep are.
            let end = end_of_group(&run.victims[..run.count], start, 1 << KIND_BITS);
            let old = victim_of(run.victims[start]);
            match run.victims[start] {
                0 => {}
                _ => match self.space().hide(old, end - start) {
                    Ok(()) => self.give_back_hidden(run, start, end),
                    Err(error) => trouble = Some(error),
                },
            }
            start = end;
        }
        trouble
    }

    #[inline(never)]
    fn give_back_hidden(&self, run: &mut Run, start: usize, end: usize) {
        for victim in &mut run.victims[start..end] {
            let old = victim_of(*victim);
            self.give_back(old);
            self.settle(old, ABSENT);
            *victim = 0;
        }
    }

    /// Shows the pages that have a seat, up to the first that has none; how many.
    #[inline(never)]
    fn show_run(&self, run: &Run, write: bool, trouble: &mut Option<Trouble>) -> usize {
        let free = run.victims[..run.count].iter().position(|&victim| victim != 0).unwrap_or(run.count);
        let mut start = 0;
        while start < free {
            let end = end_of_group(&run.frames[..free], start, self.units_of_page());
            let (page, frame) = (run.first + start as u64, FrameId(run.frames[start]));
            if let Err(error) = self.space().show(page, frame, end - start, write) {
                *trouble = Some(error);
                return start;
            }
            start = end;
        }
        free
    }

    /// The pages that are shown may be used; the others, and their seats, are as they were.
    #[inline(never)]
    fn end_run(&self, run: &Run, done: usize, kind: u32) {
        for index in 0..run.count {
            let page = run.first + index as u64;
            if index < done {
                self.settle(page, kind);
                continue;
            }
            self.give_back(page);
            let victim = run.victims[index];
            let victim = (victim != 0).then_some((victim_of(victim), (victim & KIND_MASK) as u32));
            self.leave(self.seat_of(run.seats[index], victim));
            self.settle(page, ABSENT);
        }
    }

    /// Keeps a page where it is that needs nobody and is in DRAM.
    #[inline(never)]
    fn map_in_dram(&self, page: PageInSegment, write: bool) -> Option<FrameId> {
        let Own::Mapped(frame) = self.map_known_to_nobody(page) else { return None };
        if write && !self.mark_modified(page) {
            self.give_back(page);
            return None;
        }
        Some(frame)
    }

    /// Lets a page that is mapped for reading, and that this thread has made busy, be written, and what follows it, if stores
    /// come in order.
    #[inline(never)]
    pub(super) fn make_writable(&self, page: PageInSegment) -> Result<(), Trouble> {
        let may_run = self.stores.faulted(page) >= STORES_IN_ORDER && signal::has_room();
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
            let may_go_on = may_run && count < RUN_PAGES_MAX && next.0 < self.page_count();
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
    fn begin(&self, page: PageInSegment, state: u32) -> bool {
        self.word(page).compare_exchange(state, BUSY, AcqRel, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_of_neighbours() {
        let numbers = [1u32, 2, 3, 9, 11, 12, 5];
        let ends: Vec<usize> = (0..numbers.len()).map(|start| end_of_group(&numbers, start, 1)).collect();
        assert_eq!(ends, [3, 3, 3, 4, 6, 6, 7]);
        assert_eq!(end_of_group(&[0u64, 0], 0, 4), 1, "seats that nobody has to leave");
    }

    #[test]
    fn a_sweep_is_faults_in_order() {
        let sweep = Sweep::default();
        assert_eq!([5, 6, 7, 9, 10, 4].map(|page| sweep.faulted(PageInSegment(page))), [1, 2, 3, 1, 2, 1]);
        assert!(!sweep.is_in_order(PageInSegment(4)));
        sweep.faulted(PageInSegment(100));
        sweep.mapped(PageInSegment(100), 8);
        assert_eq!(sweep.faulted(PageInSegment(108)), 2);
        assert!(sweep.is_in_order(PageInSegment(108)));
    }

    /// Beside faults that belong to none of them, which take the place of what has been silent for longest.
    #[test]
    fn several_sweeps_go_on_at_a_time() {
        let sweep = Sweep::default();
        let columns = STREAMS as u64 - 1;
        for step in 0..10 {
            for column in 0..columns {
                assert_eq!(sweep.faulted(PageInSegment(column * 1000 + step)), step as u32 + 1);
            }
            assert_eq!(sweep.faulted(PageInSegment(1_000_000 - 7 * step)), 1);
        }
        for column in 0..=columns {
            sweep.faulted(PageInSegment(2_000_000 + 7 * column));
        }
        assert_eq!(sweep.faulted(PageInSegment(10)), 1, "it was silent for longest");
    }
}
