//! Ranks of one node read each other's segments through pointers.
//!
//! # Rules for the unsafe code in this file
//!
//! Words are used as atomics, inside of segments of the own rank, or of another one of the node that is open, and which live as long as
//! the pointer.

use crate::Setting;
use crate::scenarios::{Outcome, small, with};
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::{GlobalAddress, LocalPart, Rank, Runtime, SegmentOptions};

pub fn settings() -> Vec<Setting> {
    vec![
        Setting::new(1, 1, &small()),
        Setting::new(3, 1, &with(&[("agent.threads", "2")])),
        Setting::new(4, 2, &small()),
        Setting::new(4, 1, &with(&[("local.mechanism", "sigsegv")])),
    ]
}

const BYTES: u64 = 512 << 10;
const PAGE: u64 = 4096;
/// As many as may be mapped beside the own segment.
const PAGES: u32 = 6;

/// The first words of some page.
fn words(base: *mut u8, page: u64) -> [&'static AtomicU64; 3] {
    // SAFETY: the rule of this file.
    [0, 8, 16].map(|at| unsafe { AtomicU64::from_ptr(base.wrapping_add((page * PAGE + at) as usize).cast()) })
}

fn pattern(owner: Rank, page: u64) -> u64 {
    ((u64::from(owner.0) + 1) << 40) | page
}

pub fn rank(runtime: &Runtime, seed: u64) -> Outcome {
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    runtime.attach(&SegmentOptions::tiered(BYTES).one_address(true))?;
    let further = runtime.attach(&SegmentOptions::tiered(BYTES).page_size(16 << 10))?;
    let own = crate::scenarios::local(runtime)?.base();
    for page in 0..BYTES / PAGE {
        words(own, page)[0].store(pattern(me, page), Ordering::Release);
        runtime.put_value(further.address(me, page * PAGE), pattern(me, page))?;
    }
    refuse(runtime)?;
    runtime.barrier()?;
    let mates = || {
        (0..ranks).map(Rank).filter(|&rank| rank != me && runtime.layout().node_of(rank) == runtime.node())
    };
    for mate in mates() {
        let part = crate::scenarios::first(runtime).local_of_peer(mate, PAGES)?;
        if runtime.pointer_to(GlobalAddress::tiered(mate, 0)) != Some(part.base()) {
            return Err(format!("the segment of {mate} is elsewhere").into());
        }
        let pages = (0..BYTES / PAGE).map(|page| (page * 37 + seed) % (BYTES / PAGE));
        for page in (0..BYTES / PAGE).chain(pages) {
            let found = words(part.base(), page)[0].load(Ordering::Acquire);
            if found != pattern(mate, page) {
                return Err(format!("page {page} of {mate} is {found:#x}").into());
            }
        }
        look_on(runtime, &part, mate)?;
        if crate::scenarios::first(runtime).local_of_peer(mate, 5)?.base() != part.base() {
            return Err("a part is open in two places".into());
        }
        let pin = part.pin(5 * PAGE, 8)?;
        drop((pin, part));
    }
    // Each rank has looked on as often as it has mates, which the last of other nodes may not have.
    runtime.barrier()?;
    for mate in mates() {
        let part = further.local_of_peer(mate, 5);
        // Pages of 16 KiB count as four, and so many are not granted here.
        if part.is_ok() {
            return Err("more is mapped than the rank's share".into());
        }
    }
    let sum: u64 = (0..BYTES / PAGE).map(|page| words(own, page)[1].load(Ordering::Acquire)).sum();
    let added = runtime.all_reduce(sum, |a, b| a + b)?;
    let looks: u64 = (0..ranks)
        .map(|rank| runtime.layout().ranks_of(runtime.layout().node_of(Rank(rank))).len() as u64 - 1)
        .sum();
    if added != looks * ROUNDS {
        return Err(format!("{added} additions instead of {}", looks * ROUNDS).into());
    }
    Ok(())
}

const ROUNDS: u64 = 300;

/// Everybody counts in the segment that somebody reads: its owner by pointers, the others by puts and updates.
fn look_on(runtime: &Runtime, part: &LocalPart, mate: Rank) -> Outcome {
    let own = crate::scenarios::local(runtime)?.base();
    let mut before = vec![0; (BYTES / PAGE) as usize];
    for round in 0..ROUNDS {
        let page = round * 11 % (BYTES / PAGE);
        words(own, page)[1].fetch_add(1, Ordering::AcqRel);
        let other = Rank((mate.0 + 1) % runtime.ranks());
        runtime.put_value(
            GlobalAddress::tiered(other, page * PAGE + 64 + 8 * u64::from(runtime.rank().0)),
            round,
        )?;
        let seen = words(part.base(), page)[1].load(Ordering::Acquire);
        let last = &mut before[page as usize];
        if seen < *last {
            return Err(format!("page {page} of {mate} has gone back from {last} to {seen}").into());
        }
        *last = seen;
        let got: u64 = runtime.get_value(GlobalAddress::tiered(mate, page * PAGE + 8))?;
        if got < seen {
            return Err(format!("a pointer sees {seen} where a get has found {got}").into());
        }
    }
    Ok(())
}

fn refuse(runtime: &Runtime) -> Outcome {
    let me = runtime.rank();
    let of = |rank: u32, pages: u32| crate::scenarios::first(runtime).local_of_peer(Rank(rank), pages);
    let elsewhere = (0..runtime.ranks()).find(|&rank| runtime.layout().node_of(Rank(rank)) != runtime.node());
    let mate = (0..runtime.ranks()).find(|&rank| rank != me.0 && Some(rank) != elsewhere).unwrap_or(me.0);
    let open = [
        of(me.0, PAGES).is_ok(),
        of(runtime.ranks(), PAGES).is_ok(),
        elsewhere.is_some_and(|rank| of(rank, PAGES).is_ok()),
        of(mate, 4).is_ok(),
        of(mate, 1 << 20).is_ok(),
    ];
    if open != [false; 5] {
        return Err(format!("what cannot be read is opened: {open:?}").into());
    }
    Ok(())
}

/// A store to what a mate owns: a line, and the end.
pub fn store(runtime: &Runtime, _seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(BYTES))?;
    let mate = Rank(1 - runtime.rank().0);
    let part = crate::scenarios::first(runtime).local_of_peer(mate, PAGES)?;
    let [word, ..] = words(part.base(), 3);
    if word.load(Ordering::Acquire) != 0 {
        return Err("a new page is not zeros".into());
    }
    runtime.barrier()?;
    if runtime.rank().0 == 1 {
        word.store(1, Ordering::Release);
        return Err("a mate's segment was written".into());
    }
    runtime.barrier()?;
    Err("nobody was ended".into())
}
