//! Random programs of ownership, held against the same program on plain values.
//!
//! All ranks draw the same actions. What a box should hold, all know; which rank owns it, too.

use crate::scenarios::nothing_is_left;
use crate::{HEAP, JOBS, Outcome, Scenario};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas::Rank;
use vgas_objects::{DBox, HeapOptions, MutRef, Objects, Portable, Ref, Shareable};

pub const ALL: &[Scenario] = &[
    Scenario { name: "random", jobs: JOBS, heap: HEAP, rank, ends_with: None },
    Scenario {
        name: "random_few_colours",
        jobs: &[(2, 2), (4, 2)],
        heap: HeapOptions { last_colour: 1, copies: 2, ..HEAP },
        rank,
        ends_with: None,
    },
];

/// A value with a part that may be on another rank.
#[derive(Portable, Shareable)]
struct Value {
    numbers: [u64; 20],
    part: Option<DBox<(u64, [u32; 40])>>,
}

/// The same, in one process.
#[derive(Clone, Debug, PartialEq)]
struct Plain {
    numbers: [u64; 20],
    part: Option<(u64, [u32; 40])>,
}

impl Value {
    fn plain(&self) -> Plain {
        Plain { numbers: self.numbers, part: self.part.as_deref().copied() }
    }
}

struct Known {
    owner: Rank,
    plain: Plain,
    /// Only its owner has it.
    own: Option<DBox<Value>>,
}

const STEPS: u32 = 150;

pub fn rank(objects: &Objects, seed: u64) -> Outcome {
    let (me, ranks) = (objects.rank(), objects.ranks());
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut all: Vec<Known> = Vec::new();
    for step in 0..STEPS {
        let rank = Rank(random.random_range(0..ranks));
        let number: u64 = random.random();
        let at = number as usize % 20;
        let action = random.random_range(0..10);
        if all.is_empty() || (action == 0 && all.len() < 12) {
            let own = (rank == me).then(|| DBox::new(Value { numbers: [number; 20], part: None }));
            all.push(Known { owner: rank, plain: Plain { numbers: [number; 20], part: None }, own });
            continue;
        }
        let which = random.random_range(0..all.len());
        let known = &mut all[which];
        match action {
            1 => {
                known.own = objects.hand(known.owner, rank, known.own.take())?;
                known.owner = rank;
            }
            2 => drop(all.swap_remove(which)),
            3 => {
                known.plain.numbers[at] = number;
                if let Some(own) = &mut known.own {
                    own.numbers[at] = number;
                }
            }
            4 => {
                // Out of the heap, and in again.
                let again = known.own.take().map(|own| DBox::new(own.into_inner()));
                known.own = again;
            }
            5 | 6 => {
                let part = (number, [step; 40]);
                let change = |mut value: MutRef<'_, Value>| {
                    value.numbers[at] ^= number;
                    if action == 6 {
                        value.part = Some(DBox::new(part));
                    } else if let Some(part) = &mut value.part {
                        part.1[at] += 1;
                    }
                };
                objects.lend_mut(known.owner, rank, known.own.as_mut(), change)?;
                known.plain.numbers[at] ^= number;
                match &mut known.plain.part {
                    other if action == 6 => *other = Some(part),
                    Some(part) => part.1[at] += 1,
                    None => {}
                }
            }
            7 => objects.barrier()?,
            _ => {
                let read = |value: &Ref<'_, Value>| value.plain();
                // Through the box itself, which then counts the copies.
                if let Some(own) = &known.own
                    && own.plain() != known.plain
                {
                    return Err(format!("step {step}: its owner finds {:?}", own.plain()).into());
                }
                let found = objects.lend(known.owner, known.own.as_ref(), read)?;
                if found != known.plain {
                    return Err(format!("step {step}: {found:?} instead of {:?}", known.plain).into());
                }
            }
        }
    }
    drop(all);
    nothing_is_left(objects)
}
