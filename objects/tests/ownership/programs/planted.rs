//! Mistakes that are made on purpose: programs must find each.

use super::{COUNT_MAX, How, Part, job, whole};
use crate::{HEAP, scenarios};
use vgas::Runtime;
use vgas_objects::{Fault, HeapOptions, Objects, plant};

pub const NAME: &str = "planted";

/// Most programs for a mistake. Of two hundred, the rarest two hid from one in ten runs on a busy machine.
const PROGRAMS: u64 = 3000;
const _: () = assert!(PROGRAMS < COUNT_MAX);

fn with(fault: Fault, runtime: Runtime, what: u64) -> crate::Outcome {
    plant(fault);
    whole(Objects::attach(&runtime, &HEAP)?, what, How::Plain)
}

/// Between programs all copies go, so that what is wrong with slots that are used again shows within a run only.
fn within_a_run(fault: Fault, runtime: Runtime) -> crate::Outcome {
    plant(fault);
    // Small enough that copies are still there when their slots begin again.
    let objects = Objects::attach(&runtime, &HeapOptions { copies: 4096, ..scenarios::FEW_COLOURS })?;
    scenarios::colours_within_a_run::<8>(&objects)?;
    Ok(objects.finalize()?)
}

pub const PARTS: &[(&str, Part)] = &[
    ("planted_kept_colour", |runtime, what| with(Fault::KeptColour, runtime, what)),
    ("planted_forgotten_use", |runtime, what| with(Fault::ForgottenUse, runtime, what)),
    ("planted_forgotten_free", |runtime, what| with(Fault::ForgottenFree, runtime, what)),
    ("planted_forgotten_value", |runtime, what| with(Fault::ForgottenValue, runtime, what)),
    ("planted_lost_unit", |runtime, what| with(Fault::LostUnit, runtime, what)),
    ("planted_kept_watcher", |runtime, what| with(Fault::KeptWatcher, runtime, what)),
    ("planted_unmarked_list", |runtime, what| with(Fault::UnmarkedList, runtime, what)),
    ("planted_unmarked_ties", |runtime, what| with(Fault::UnmarkedTies, runtime, what)),
    ("planted_lost_poison", |runtime, what| with(Fault::LostPoison, runtime, what)),
    ("planted_forgotten_drop", |runtime, what| with(Fault::ForgottenDrop, runtime, what)),
    ("planted_confirmed_with_copies", |runtime, _| within_a_run(Fault::ConfirmedWithCopies, runtime)),
    ("planted_endless_period", |runtime, what| with(Fault::EndlessPeriod, runtime, what)),
];

/// Goal: each mistake is found by three thousand programs; by far fewer, mostly: the rarest needs some hundred.
pub fn sequence(first: u64) -> Result<(), String> {
    let first = first % (1 << 40);
    for (name, _) in PARTS {
        match job(name, first * COUNT_MAX + PROGRAMS, 2, 2, "none")? {
            (Err(_), took) => println!("        {name} is found in {took:.1?}"),
            (Ok(()), took) => return Err(format!("{name} is not found in {took:.1?}")),
        }
    }
    Ok(())
}
