//! The price of a miss in messages between nodes, exactly. Other tests see when a miss goes wrong; none of them would see
//! that it takes a message more.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, with};
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentOptions, Statistics};

pub const ALL: &[Scenario] = &[Scenario {
    name: "misses",
    // Nothing runs ahead, and nothing is served in place: each page is asked for when it is wanted.
    settings: || {
        let settings = with(&[("ablation.read_ahead", "off"), ("ablation.in_place", "off")]);
        let smp = with(&[("ablation.read_ahead", "off"), ("ablation.in_place", "off"), ("conduit", "smp")]);
        vec![Setting::new(4, 4, &settings), Setting::new(4, 4, &smp)]
    },
    rank: misses,
}];

/// Looks at the counters of all nodes before a message is given up; each takes some microseconds at least.
const LOOKS_MAX: u32 = 10_000;

const KINDS: [Counter; 4] =
    [Counter::RequestMessages, Counter::ReplyMessages, Counter::DataMessages, Counter::InvalidationMessages];

/// Who does what to a page of rank 0's, one after the other, and the messages of each.
struct Case {
    name: &'static str,
    steps: &'static [(Step, u64)],
}

/// A rank puts a word, or gets one.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u32),
    Get(u32),
}
use Step::{Get, Put};

const CASES: &[Case] = &[
    Case {
        name: "a get answered by the home, then hits",
        steps: &[(Put(0), 0), (Get(1), 2), (Get(1), 0), (Get(0), 0)],
    },
    Case {
        name: "a put to a page that nobody has, then hits",
        steps: &[(Put(1), 2), (Put(1), 0), (Get(1), 0)],
    },
    Case { name: "a get answered by a forwarder", steps: &[(Put(1), 2), (Get(2), 4)] },
    Case { name: "a put, one more has it besides the home", steps: &[(Put(0), 0), (Get(2), 2), (Put(1), 5)] },
    Case {
        // The second reader has it from the first: the owner's link is spared.
        name: "a put, two more have it besides the home",
        steps: &[(Put(0), 0), (Get(2), 2), (Get(3), 4), (Put(1), 7)],
    },
];

fn misses(runtime: &Runtime, _: u64) -> Outcome {
    let page = runtime.page_bytes() as u64;
    let me = runtime.rank().0;
    let tiered_bytes = if me == 0 { CASES.len() as u64 * page } else { 0 };
    runtime.attach(&SegmentOptions::tiered(tiered_bytes))?;
    let messages = || -> vgas::Result<u64> {
        let counted = runtime.statistics()?;
        Ok(KINDS.iter().map(|&kind| counted.get(kind)).sum())
    };
    let mut expected = messages()?;
    for (index, case) in (0..).zip(CASES) {
        let place = GlobalAddress::tiered(Rank(0), index * page);
        for &(step, cost) in case.steps {
            match step {
                Put(rank) if rank == me => runtime.put_value(place, rank)?,
                Get(rank) if rank == me => drop(runtime.get_value::<u32>(place)?),
                _ => {}
            }
            runtime.barrier()?;
            expected += cost;
            // The last message of an operation may come after its end. One too many is seen in the next step. All ranks see
            // the same counts, so they look equally often.
            let mut counted = messages()?;
            for _ in 0..LOOKS_MAX {
                if counted >= expected {
                    break;
                }
                counted = messages()?;
            }
            if counted != expected {
                let too = counted as i64 - expected as i64;
                return Err(format!("{}: {step:?} took {too} messages more than {cost}", case.name).into());
            }
        }
    }
    runtime.barrier()?;
    if messages()? != expected {
        return Err("messages without an operation".into());
    }
    // What each rank and each agent says of itself is what the job says.
    let of = |counted: Statistics| KINDS.iter().map(|&kind| counted.get(kind)).sum::<u64>();
    let speaks = runtime.layout().ranks_of(runtime.node()).start == me;
    let of_node = if speaks { of(runtime.node_statistics()) } else { 0 };
    let own = of(runtime.rank_statistics()) + of_node;
    let all = runtime.all_gatherv(&own.to_le_bytes())?;
    let sum: u64 = all.iter().filter_map(|own| own.first_chunk()).map(|own| u64::from_le_bytes(*own)).sum();
    if sum != expected {
        Err(format!("{sum} messages of ranks and agents, not {expected}").into())
    } else {
        Ok(())
    }
}
