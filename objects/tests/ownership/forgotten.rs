//! Borrows and boxes whose end nobody hears of: `mem::forget` is safe.

use crate::scenarios::ensure;
use crate::{HEAP, JOBS, Outcome, Scenario};
use std::mem::forget;
use vgas::Rank;
use vgas_objects::{DBox, DVec, HeapOptions, MutRef, Objects, Word};

pub const ALL: &[Scenario] = &[Scenario {
    name: "forgotten",
    jobs: JOBS,
    // So few that slots retire, and begin again where nobody has copies.
    heap: HeapOptions { last_colour: 2, ..HEAP },
    rank: forgotten,
    ends_with: None,
}];

const COUNT: usize = 6;

type Values = [u64; 8];

fn value(seed: u64, round: u64, at: usize) -> Values {
    [seed ^ (round << 8) ^ at as u64; 8]
}

/// Goal: whoever forgets a borrow, for reading or writing, or a box, takes room and nothing else: all read what was written last, slots
/// that are used again show nothing of what they had, what is forgotten stays as it is and where it is, and all else is dropped. Method:
/// in each round, each rank forgets some of its borrows, a rank in turn writes through borrows that it forgets, and a box is replaced, and
/// dropped or forgotten.
#[expect(
    clippy::forget_non_drop,
    reason = "a borrow for writing has nothing to do at its end: that it may be forgotten is tested"
)]
fn forgotten(objects: &Objects, seed: u64) -> Outcome {
    let (me, ranks, owner) = (objects.rank(), objects.ranks(), Rank(0));
    let new = |at| DBox::new(value(seed, 0, at));
    let mut boxes = (me == owner).then(|| DBox::new((0..COUNT).map(new).collect::<DVec<_>>()));
    let kept: &DBox<Values> = Box::leak(Box::new(DBox::new(value(seed, 99, 0))));
    let (mut left, mut retired) = (Vec::<Word>::new(), 0);
    for round in 1..=48 {
        let is_right = objects.lend(owner, boxes.as_ref(), |boxes| {
            (0..).zip(boxes.iter()).all(|(at, one)| {
                let found = one.read();
                let is_right = *found == value(seed, round - 1, at);
                match (at as u64 + round + u64::from(me.0)) % 4 {
                    0 => forget(found),
                    1 => forget(found.clone()),
                    _ => {}
                }
                is_right
            })
        })?;
        ensure(is_right, || format!("{me} has read other values in round {round}"))?;
        let writer = Rank((round % u64::from(ranks)) as u32);
        objects.lend_mut(owner, writer, boxes.as_mut(), |mut boxes: MutRef<'_, DVec<DBox<Values>>>| {
            for (at, one) in boxes.iter_mut().enumerate() {
                let mut written = one.write();
                *written = value(seed, round, at);
                if at % 2 == 0 {
                    forget(written);
                }
            }
            if round % 5 == 0 {
                forget(boxes);
            }
        })?;
        if let Some(boxes) = &mut boxes {
            let at = round as usize % COUNT;
            let old = std::mem::replace(&mut boxes[at], DBox::new(value(seed, round, at)));
            if round % 8 == 0 {
                left.push(DBox::word(&old));
                forget(old);
            }
            let is_used_again =
                |one: &DBox<Values>| left.iter().any(|left| left.address() == DBox::word(one).address());
            ensure(!boxes.iter().any(is_used_again), || {
                format!("an object of round {round} is where one was forgotten")
            })?;
        }
        if round % 6 == 0 {
            objects.drop_copies()?;
            objects.barrier()?;
            retired = objects.counts()?.retired;
        }
        ensure(**kept == value(seed, 99, 0), || {
            format!("what {me} has forgotten has changed in round {round}")
        })?;
    }
    drop(boxes);
    objects.barrier()?;
    objects.drop_copies()?;
    objects.barrier()?;
    let counts = objects.counts()?;
    let sum = |number: u64| crate::job(objects).all_reduce(number, |a, b| a + b);
    let (values, copies) = (sum(counts.placed - counts.copies)?, sum(counts.copies)?);
    let (expected, retired) = (sum(left.len() as u64)? + u64::from(ranks), sum(retired)?);
    ensure(values == expected, || format!("{values} objects are left, and {expected} were forgotten"))?;
    ensure((copies > 0 && retired > 0) == (ranks > 1), || {
        format!("{copies} copies are kept for ever, {retired} slots did not come back")
    })
}
