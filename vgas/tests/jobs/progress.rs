//! What was started goes on by itself, while its rank polls, waits for something else, or computes without a call that waits.

use crate::scenarios::{Outcome, answered, ask};
use vgas::{GlobalAddress, Kind, Rank, Runtime, SegmentOptions};

const BYTES: u64 = 1 << 20;
/// Of a rank's pinned segment: what others tell it.
const TOLD_AT: u64 = BYTES - 8;

/// What a rank does after it has started something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Polls,
    Waits,
    Computes,
}

/// Goal: every form of put reaches its target, in segments of both kinds, although nobody tests it or waits for it. Method: the first half of the ranks starts it and leaves it alone; the other half looks for its bytes, and
/// answers as the first half can see it: by a message, or by a word in its pinned memory.
pub fn goes_on(runtime: &Runtime, _seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(BYTES))?;
    runtime.attach(&SegmentOptions::pinned(BYTES))?;
    let me = runtime.rank().0;
    let half = runtime.ranks() / 2;
    let partner = Rank((me + half) % runtime.ranks());
    let mut round = 0;
    for kind in [Kind::Tiered, Kind::Pinned] {
        for meanwhile in [Meanwhile::Polls, Meanwhile::Waits, Meanwhile::Computes] {
            for form in 0..FORMS {
                round += 1;
                runtime.barrier()?;
                if me < half {
                    starts(runtime, (kind, form, meanwhile), partner, round)?;
                } else {
                    sees(runtime, (kind, form), partner, round)?;
                }
            }
        }
    }
    Ok(())
}

/// Forms of put. (What a get has brought shows before its end in C alone, where its buffer can be looked at.)
const FORMS: u32 = 5;

/// The words that a form puts, by round.
fn words(form: u32, round: u64) -> Vec<u64> {
    let count = if form == 2 { 1 } else { 20_000 };
    (0..count).map(|word| round << 32 | word).collect()
}

fn starts(
    runtime: &Runtime,
    (kind, form, meanwhile): (Kind, u32, Meanwhile),
    to: Rank,
    round: u64,
) -> Outcome {
    let at = GlobalAddress::of_kind(kind, to, 24);
    let values = words(form, round);
    match form {
        0 => {
            let put = runtime.put_nb(at, values)?;
            left_alone(runtime, meanwhile, to, round)?;
            put.wait()?;
        }
        1 => {
            let put = runtime.put_nb_copy(at, &values)?;
            left_alone(runtime, meanwhile, to, round)?;
            put.wait()?;
        }
        2 => {
            let put = runtime.put_value_nb(at, values[0])?;
            left_alone(runtime, meanwhile, to, round)?;
            put.wait()?;
        }
        3 => runtime.batch(|batch| {
            batch.put(at, &values)?;
            left_alone(runtime, meanwhile, to, round)
        })?,
        4 => runtime.batch(|batch| {
            for (index, part) in values.chunks(50).enumerate() {
                batch.put_copy(GlobalAddress { offset: at.offset + 400 * index as u64, ..at }, part)?;
            }
            left_alone(runtime, meanwhile, to, round)
        })?,
        _ => unreachable!("there are {FORMS} forms"),
    }
    Ok(())
}

/// Waits for the partner to have seen the bytes, in a way that does nothing for the operation.
fn left_alone(runtime: &Runtime, meanwhile: Meanwhile, partner: Rank, round: u64) -> vgas::Result<()> {
    let told = GlobalAddress::pinned(runtime.rank(), TOLD_AT);
    match meanwhile {
        Meanwhile::Polls => loop {
            runtime.poll()?;
            if runtime.get_value::<u64>(told)? >= round {
                return Ok(());
            }
        },
        // A message that is answered at any time, and one that is sent only then.
        Meanwhile::Waits => loop {
            let before = answered();
            ask(runtime, partner)?;
            runtime.wait_until(|| answered() > before)?;
            if runtime.get_value::<u64>(told)? >= round {
                return Ok(());
            }
        },
        // A load of own memory, and nothing else.
        Meanwhile::Computes => {
            let mut count = 0u64;
            while runtime.get_value::<u64>(told)? < round {
                count = std::hint::black_box(count + 1);
            }
            Ok(())
        }
    }
}

fn sees(runtime: &Runtime, (kind, form): (Kind, u32), partner: Rank, round: u64) -> Outcome {
    let wanted = words(form, round);
    let mut found = vec![0u64; wanted.len()];
    while found != wanted {
        runtime.poll()?;
        runtime.get(GlobalAddress::of_kind(kind, runtime.rank(), 24), &mut found)?;
    }
    Ok(runtime.put_value(GlobalAddress::pinned(partner, TOLD_AT), round)?)
}
