//! Goal: the policies evict what their definitions say. Method: random operations, applied to a policy and to a model of
//! plain vectors that is written down from the text of vgasnet III.F. With every access reported, both must name the same
//! victims; with accesses learned from stamps only, what III.F promises must still hold, and little may be lost.

use super::lru_by_cost::DEARER;
use super::*;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const FRAMES: usize = 12;

#[derive(Default)]
struct View {
    stamps: Vec<u32>,
    classes: Vec<Class>,
    pinned: Vec<bool>,
    frames: usize,
    clock: u32,
}

impl View {
    fn new(frames: usize) -> Self {
        Self::beyond(frames, 0)
    }

    /// Of a pool, and of so many frames that it does not have.
    fn beyond(frames: usize, more: usize) -> Self {
        let all = frames + more;
        Self {
            stamps: vec![0; all],
            classes: vec![Class::Other; all],
            pinned: vec![false; all],
            frames,
            clock: 0,
        }
    }
}

impl FrameView for View {
    fn stamp(&self, frame: FrameId) -> u32 {
        self.stamps[frame.0 as usize]
    }
    fn clock(&self) -> u32 {
        self.clock
    }
    fn class(&self, frame: FrameId) -> Class {
        self.classes[frame.0 as usize]
    }
    fn evictable(&self, frame: FrameId) -> bool {
        !self.pinned[frame.0 as usize]
    }
    fn frames(&self) -> usize {
        self.frames
    }
}

/// vgasnet III.F, sentence by sentence; the last element is the top.
#[derive(Default)]
struct Paper {
    lru: Vec<u32>,
    fifo: Vec<u32>,
    frames: usize,
}

impl Paper {
    fn insert(&mut self, frame: u32) {
        if !self.lru.contains(&frame) && !self.fifo.contains(&frame) {
            self.lru.push(frame);
        }
    }

    fn remove(&mut self, frame: u32) {
        self.lru.retain(|&other| other != frame);
        self.fifo.retain(|&other| other != frame);
    }

    fn access(&mut self, frame: u32) {
        if self.lru.contains(&frame) || self.fifo.contains(&frame) {
            self.remove(frame);
            self.lru.push(frame);
        }
    }

    fn victim(&mut self, class: impl Fn(u32) -> Class) -> Option<(u32, Queue)> {
        while !self.lru.is_empty() {
            let bottom = self.lru.remove(0);
            if class(bottom) == Class::Other {
                return Some((bottom, Queue::Common));
            }
            self.fifo.push(bottom);
            if self.fifo.len() > self.frames / 2 {
                return Some((self.fifo.remove(0), Queue::Last));
            }
        }
        // The paper leaves open what happens when only second chances are left; something must be evicted.
        (!self.fifo.is_empty()).then(|| (self.fifo.remove(0), Queue::Last))
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Insert(u32),
    Remove(u32),
    Access(u32),
    Class(u32, u8),
    Victim,
}

fn operation() -> impl Strategy<Value = Operation> {
    // Also frames that the pool doesn't have: they must be ignored.
    let frame = 0..FRAMES as u32 + 2;
    prop_oneof![
        4 => frame.clone().prop_map(Operation::Insert),
        1 => frame.clone().prop_map(Operation::Remove),
        4 => frame.clone().prop_map(Operation::Access),
        3 => (frame, 0..3u8).prop_map(|(frame, class)| Operation::Class(frame, class)),
        3 => Just(Operation::Victim),
    ]
}

fn class(number: u8) -> Class {
    [Class::Other, Class::Exclusive, Class::Modified][usize::from(number) % 3]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn with_all_accesses_reported_the_second_chance_is_the_paper(
        operations in prop::collection::vec(operation(), 1..200)
    ) {
        let mut view = View::beyond(FRAMES, 2);
        let mut policy = LruSecondChance::new(FRAMES as u32);
        let mut paper = Paper { frames: FRAMES, ..Paper::default() };
        for operation in operations {
            match operation {
                Operation::Insert(frame) => {
                    policy.insert(FrameId(frame), 0);
                    if (frame as usize) < FRAMES {
                        paper.insert(frame);
                    }
                }
                Operation::Remove(frame) => {
                    policy.remove(FrameId(frame));
                    paper.remove(frame);
                }
                Operation::Access(frame) => {
                    policy.accessed(FrameId(frame), 0);
                    paper.access(frame);
                }
                Operation::Class(frame, number) => view.classes[frame as usize] = class(number),
                Operation::Victim => {
                    let asked = (0..policy.len() % 3).map(|_| policy.next(&view)).collect::<Vec<_>>();
                    let expected = paper.victim(|frame| view.classes[frame as usize]);
                    let expected = expected.map(|(frame, queue)| (FrameId(frame), queue));
                    prop_assert!(asked.iter().all(|&next| next == expected));
                    prop_assert_eq!(policy.victim(&view), expected);
                }
            }
            let (lru, fifo) = policy.queues();
            prop_assert!(lru.iter().map(|frame| frame.0).eq(paper.lru.iter().copied()));
            prop_assert!(fifo.iter().map(|frame| frame.0).eq(paper.fifo.iter().copied()));
            prop_assert_eq!(policy.len(), paper.lru.len() + paper.fifo.len());
        }
    }

    #[test]
    fn with_all_accesses_reported_lru_evicts_the_least_recently_used(
        operations in prop::collection::vec(operation(), 1..200)
    ) {
        let view = View::beyond(FRAMES, 2);
        let mut policy = Lru::new(FRAMES as u32);
        let mut order: Vec<u32> = Vec::new();
        for operation in operations {
            match operation {
                Operation::Insert(frame) => {
                    policy.insert(FrameId(frame), 0);
                    if (frame as usize) < FRAMES && !order.contains(&frame) {
                        order.push(frame);
                    }
                }
                Operation::Remove(frame) => {
                    policy.remove(FrameId(frame));
                    order.retain(|&other| other != frame);
                }
                Operation::Access(frame) => {
                    policy.accessed(FrameId(frame), 0);
                    if let Some(at) = order.iter().position(|&other| other == frame) {
                        order.remove(at);
                        order.push(frame);
                    }
                }
                Operation::Class(..) => {}
                Operation::Victim => {
                    let expected = (!order.is_empty()).then(|| order.remove(0));
                    prop_assert_eq!(policy.victim(&view).map(|(frame, _)| frame.0), expected);
                }
            }
        }
    }

    /// Goal: the oldest goes, where the time of last copies counts a sixteenth. Method: a model that looks at all frames.
    #[test]
    fn with_all_accesses_reported_by_cost_evicts_what_costs_least(
        operations in prop::collection::vec(operation(), 1..200)
    ) {
        let mut view = View::beyond(FRAMES, 2);
        let mut policy = LruByCost::new(FRAMES as u32);
        let mut known = [false; FRAMES];
        for operation in operations {
            view.clock += 1;
            match operation {
                Operation::Insert(frame) => {
                    if let Some(known) = known.get_mut(frame as usize)
                        && !std::mem::replace(known, true)
                    {
                        view.stamps[frame as usize] = view.clock;
                    }
                    policy.insert(FrameId(frame), view.clock);
                }
                Operation::Remove(frame) => {
                    let was_known = known.get_mut(frame as usize).is_some_and(std::mem::take);
                    prop_assert_eq!(policy.remove(FrameId(frame)), was_known);
                }
                Operation::Access(frame) => {
                    view.stamps[frame as usize] = view.clock;
                    policy.accessed(FrameId(frame), view.clock);
                }
                Operation::Class(frame, number) => {
                    view.classes[frame as usize] = class(number);
                    // As agents say where another node gets a copy.
                    if view.classes[frame as usize] == Class::Other {
                        policy.shared(FrameId(frame), view.stamps[frame as usize]);
                    }
                }
                Operation::Victim => {
                    let age = |frame: usize| {
                        let ticks = u64::from(view.clock - view.stamps[frame]);
                        if view.classes[frame] == Class::Other { DEARER * ticks } else { ticks }
                    };
                    let oldest = (0..FRAMES).filter(|&frame| known[frame]).map(age).max();
                    let next = policy.next(&view).map(|(frame, _)| frame.0 as usize);
                    prop_assert_eq!(next.map(age), oldest);
                    prop_assert_eq!(policy.victim(&view).map(|(frame, _)| frame.0 as usize), next);
                    if let Some(frame) = next {
                        prop_assert_eq!(policy.age(FrameId(frame as u32), &view), age(frame));
                        known[frame] = false;
                    }
                }
            }
            prop_assert_eq!(policy.len(), known.iter().filter(|known| **known).count());
        }
    }

    /// What must hold for every policy whatever the stamps say: a victim is known, unpinned, and forgotten afterwards;
    /// none means that there is no unpinned frame.
    #[test]
    fn a_victim_is_found_whenever_there_is_one(
        operations in prop::collection::vec((operation(), 0..FRAMES, any::<bool>()), 1..300),
        which in 0..NAMES.len(),
    ) {
        let mut view = View::beyond(FRAMES, 2);
        let mut policy = by_name(NAMES[which], FRAMES as u32).unwrap();
        let mut known = [false; FRAMES];
        let mut clock = 0;
        for (operation, frame_to_pin, pin) in operations {
            view.pinned[frame_to_pin] = pin;
            clock += 1;
            view.clock = clock;
            match operation {
                Operation::Insert(frame) if (frame as usize) < FRAMES => {
                    view.stamps[frame as usize] = clock;
                    policy.insert(FrameId(frame), clock);
                    known[frame as usize] = true;
                }
                Operation::Insert(frame) => policy.insert(FrameId(frame), clock),
                Operation::Remove(frame) => {
                    policy.remove(FrameId(frame));
                    if let Some(known) = known.get_mut(frame as usize) {
                        *known = false;
                    }
                }
                Operation::Access(frame) => view.stamps[frame as usize] = clock,
                Operation::Class(frame, number) => view.classes[frame as usize] = class(number),
                Operation::Victim => {
                    let candidates: Vec<usize> =
                        (0..FRAMES).filter(|&frame| known[frame] && !view.pinned[frame]).collect();
                    if clock % 2 == 0 {
                        let next = policy.next(&view).map(|(frame, _)| frame.0 as usize);
                        prop_assert_eq!(next.is_some(), !candidates.is_empty());
                        prop_assert!(next.is_none_or(|frame| candidates.contains(&frame)));
                    }
                    match policy.victim(&view) {
                        None => prop_assert!(candidates.is_empty(), "{candidates:?} could go"),
                        Some((frame, _)) => {
                            let frame = frame.0 as usize;
                            prop_assert!(candidates.contains(&frame));
                            known[frame] = false;
                        }
                    }
                }
            }
            prop_assert_eq!(policy.len(), known.iter().filter(|known| **known).count());
        }
    }
}

/// Hits of a policy over a trace, with all accesses reported or learned from stamps; evictions cost the page.
fn hits(policy: &mut dyn Replacement, trace: &[(u32, bool)], frames: usize, report: bool) -> usize {
    let mut view = View::new(frames);
    let mut page_of = vec![None; frames];
    let mut frame_of = rustc_hash::FxHashMap::default();
    let mut hits = 0;
    for (clock, &(page, last_copy)) in trace.iter().enumerate() {
        let clock = clock as u32;
        view.clock = clock;
        if let Some(&frame) = frame_of.get(&page) {
            hits += 1;
            view.stamps[frame as usize] = clock;
            if report {
                policy.accessed(FrameId(frame), clock);
            }
            continue;
        }
        let frame = match frame_of.len() {
            known if known < frames => known as u32,
            _ => policy.victim(&view).expect("nothing is pinned").0.0,
        };
        if let Some(old) = page_of[frame as usize].replace(page) {
            frame_of.remove(&old);
        }
        frame_of.insert(page, frame);
        view.stamps[frame as usize] = clock;
        view.classes[frame as usize] = if last_copy { Class::Exclusive } else { Class::Other };
        policy.insert(FrameId(frame), clock);
    }
    hits
}

#[test]
fn learning_accesses_lazily_loses_few_hits() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    const FRAMES: usize = 256;
    // Pages drawn with a strong preference for small numbers, now and then a scan; even pages are last copies.
    let mut trace = Vec::new();
    while trace.len() < 60_000 {
        if random.random_range(0..400) == 0 {
            let start = random.random_range(0..3000);
            trace.extend((start..start + 300).map(|page| (page, page % 2 == 0)));
        }
        let skewed = random.random::<f64>().powi(4) * 2000.0;
        trace.push((skewed as u32, (skewed as u32).is_multiple_of(2)));
    }
    for name in [LruByCost::NAME, LruSecondChance::NAME, Lru::NAME] {
        let exact = hits(by_name(name, FRAMES as u32).unwrap().as_mut(), &trace, FRAMES, true) as f64;
        let lazy = hits(by_name(name, FRAMES as u32).unwrap().as_mut(), &trace, FRAMES, false) as f64;
        assert!(lazy >= 0.97 * exact, "{name}: {lazy} hits instead of {exact}");
    }
}

#[test]
fn last_copies_outlive_copies_that_others_have_too() {
    // Without the second chance the oldest page goes first, whoever else has it.
    let mut view = View::new(8);
    let mut policy = LruSecondChance::new(8);
    for frame in 0..8 {
        view.classes[frame as usize] = if frame < 4 { Class::Modified } else { Class::Other };
        policy.insert(FrameId(frame), 0);
    }
    let victims: Vec<_> =
        std::iter::from_fn(|| policy.victim(&view)).map(|(frame, queue)| (frame.0, queue)).collect();
    use Queue::{Common, Last};
    let expected =
        [(4, Common), (5, Common), (6, Common), (7, Common), (0, Last), (1, Last), (2, Last), (3, Last)];
    assert_eq!(victims, expected);
}

#[test]
fn a_fifo_longer_than_half_of_the_pool_gives_its_oldest() {
    let mut view = View::new(8);
    let mut policy = LruSecondChance::new(8);
    for frame in 0..8 {
        view.classes[frame as usize] = Class::Exclusive;
        policy.insert(FrameId(frame), 0);
    }
    // Four fit; the fifth pushes the first out.
    assert_eq!(policy.victim(&view), Some((FrameId(0), Queue::Last)));
    assert_eq!(policy.queues().1.len(), 4);
    // A used one returns to the LRU queue, the next goes.
    view.stamps[1] = 9;
    assert_eq!(policy.victim(&view), Some((FrameId(2), Queue::Last)));
    assert_eq!(policy.queues().0.last(), Some(&FrameId(1)));
}

/// Without filing by the time of use, the read pages, noticed late, went above those fetched ahead, which then were
/// evicted unread: a scan read everything twice.
#[test]
fn a_scan_that_is_read_ahead_does_not_push_out_what_it_has_not_read() {
    const FRAMES: u32 = 64;
    const AHEAD: u32 = 16;
    for name in [LruByCost::NAME, LruSecondChance::NAME, Lru::NAME] {
        let mut view = View::new(FRAMES as usize);
        view.classes.fill(Class::Exclusive);
        let mut policy = by_name(name, FRAMES).unwrap();
        let mut page_of = vec![u32::MAX; FRAMES as usize];
        for clock in 0..1000u32 {
            view.clock = clock;
            // Fetch one page ahead ...
            let frame = match policy.len() as u32 {
                known if known < FRAMES => known,
                _ => policy.victim(&view).expect("nothing is pinned").0.0,
            };
            let gone = page_of[frame as usize];
            assert!(gone == u32::MAX || gone + AHEAD < clock, "{name}: page {gone} went unread at {clock}");
            page_of[frame as usize] = clock;
            view.stamps[frame as usize] = clock;
            policy.insert(FrameId(frame), clock);
            // ... and read the one that was fetched a while ago.
            if let Some(read) = clock.checked_sub(AHEAD) {
                let frame = page_of.iter().position(|&page| page == read).expect("just checked");
                view.stamps[frame] = clock;
            }
        }
    }
}
