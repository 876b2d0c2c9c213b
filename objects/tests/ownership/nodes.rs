//! Copies that ranks of a node share, and readers that homes hand on.

use crate::scenarios::{agent_sent, ensure, nothing_is_left, sent};
use crate::{HEAP, Outcome, Scenario};
use vgas::{Counter, Rank};
use vgas_objects::{DBox, DVec, HeapOptions, Objects, Portable, Report, Shareable};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "one_fetch",
        jobs: &[(4, 2), (6, 2), (8, 2)],
        heap: HeapOptions { copies: 1000, copy_bytes: 4 << 20, ..HEAP },
        rank: one_fetch,
        ends_with: None,
    },
    Scenario {
        name: "evicted_together",
        jobs: &[(4, 2), (6, 2)],
        heap: HeapOptions { copies: 20, ..HEAP },
        rank: evicted_together,
        ends_with: None,
    },
    Scenario { name: "in_place", jobs: &[(2, 1), (4, 1)], heap: HEAP, rank: in_place, ends_with: None },
    Scenario { name: "unread_row", jobs: &[(1, 1), (2, 2)], heap: HEAP, rank: unread_row, ends_with: None },
    Scenario {
        name: "handed_on",
        jobs: &[(3, 3), (6, 3)],
        heap: HeapOptions { copies: 4000, copy_bytes: 4 << 20, ..HEAP },
        rank: handed_on,
        ends_with: None,
    },
    Scenario {
        name: "spilled",
        jobs: &[(2, 2)],
        heap: HeapOptions { bytes: 32 << 20, copies: 4000, copy_bytes: 8 << 20, ..HEAP },
        rank: spilled,
        ends_with: None,
    },
];

const SMALL: usize = 200;
const LARGE: usize = 6;

/// Small objects, with and without boxes in them, and large ones.
#[derive(Portable, Shareable)]
struct All {
    small: DVec<DBox<[u64; 20]>>,
    nested: DVec<DBox<Option<DBox<u64>>>>,
    large: DVec<DBox<[u64; 5000]>>,
}

impl All {
    fn made(seed: u64) -> Self {
        let some = |count: usize| 0..count as u64;
        Self {
            small: some(SMALL).map(|at| DBox::new([at ^ seed; 20])).collect(),
            nested: some(SMALL).map(|at| DBox::new(Some(DBox::new(at ^ seed)))).collect(),
            large: some(LARGE).map(|at| DBox::new([at ^ seed; 5000])).collect(),
        }
    }

    fn is_right(&self, seed: u64) -> bool {
        (0..).zip(self.small.iter()).all(|(at, one)| **one == [at ^ seed; 20])
            && (0..).zip(self.nested.iter()).all(|(at, one)| one.as_deref() == Some(&(at ^ seed)))
            && (0..).zip(self.large.iter()).all(|(at, one)| **one == [at ^ seed; 5000])
    }

    /// Objects that are fetched to read it: itself, its rows, and what they lead to.
    const OBJECTS: u64 = (1 + 3 + 3 * SMALL + LARGE) as u64;
}

fn sum(report: &Report, of: impl Fn(&vgas_objects::RankReport) -> u64) -> u64 {
    report.ranks.iter().map(of).sum()
}

/// Goal: all ranks of a node that read the same objects at the same time fetch each once; large ones have one copy in the node. Method:
/// counts, with several rounds of writing and reading; the last is that nothing is left.
fn one_fetch(objects: &Objects, seed: u64) -> Outcome {
    let (me, ranks) = (objects.rank(), objects.ranks());
    let owner = Rank(0);
    let mut all = (me == owner).then(|| DBox::new(All::made(seed)));
    let mut before = objects.report()?;
    // All ranks of the other node, and as many of the owner's as there are beside it.
    let readers = u64::from(ranks) / 2;
    for round in 0..4 {
        let is_right = objects.lend(owner, all.as_ref(), |all| all.is_right(seed + round))?;
        ensure(is_right, || format!("other values in round {round}"))?;
        let after = objects.report()?;
        let since = |of: fn(&vgas_objects::RankReport) -> u64| sum(&after, of) - sum(&before, of);
        let far: u64 = (ranks / 2..ranks)
            .map(|rank| after.ranks[rank as usize].fetched - before.ranks[rank as usize].fetched)
            .sum();
        ensure(far == All::OBJECTS, || {
            format!(
                "{readers} ranks of a node have fetched {far} objects instead of {} in round {round}",
                All::OBJECTS
            )
        })?;
        // What has boxes, or is small, each of the others has copied within the node.
        let copied = (readers - 1) * (All::OBJECTS - LARGE as u64);
        let (found, in_place) = (since(|of| of.from_mates), since(|of| of.in_place));
        // With more, a rank has not enough pages to map those of all others, and copies large ones, too.
        ensure(found == copied || readers > 3, || format!("{found} copies of copies instead of {copied}"))?;
        ensure(found >= copied && in_place >= (readers.min(2) - 1) * LARGE as u64, || {
            format!("{found} copies of copies, {in_place} in place")
        })?;
        if let Some(all) = &mut all {
            **all = All::made(seed + round + 1);
        }
        objects.barrier()?;
        before = objects.report()?;
    }
    drop(all);
    nothing_is_left(objects)
}

/// Goal: what is evicted all the time by its keepers stays right for ranks that use it, and comes again for the others.
fn evicted_together(objects: &Objects, seed: u64) -> Outcome {
    let me = objects.rank();
    let all = (me == Rank(0)).then(|| DBox::new(All::made(seed)));
    let numbers = objects.lend(Rank(0), all.as_ref(), |all| -> Outcome {
        for round in 0..6u64 {
            // Each in an order of its own, holding some.
            let mut held = Vec::new();
            for step in 0..SMALL as u64 {
                let at = (step * (7 + 4 * u64::from(me.0)) + round) % SMALL as u64;
                let one = all.small[at as usize].read();
                ensure(*one == [at ^ seed; 20], || format!("object {at} is another"))?;
                let large = all.large[at as usize % LARGE].read();
                ensure(large[4999] == (at % LARGE as u64) ^ seed, || {
                    format!("large object {at} is another")
                })?;
                held.push((at, one, large));
                if held.len() > 9 {
                    let (at, one, large) = held.swap_remove(step as usize % 10);
                    let is_same = *one == [at ^ seed; 20] && large[17] == (at % LARGE as u64) ^ seed;
                    ensure(is_same, || format!("object {at} has become another while it was held"))?;
                }
            }
        }
        Ok(())
    })?;
    numbers?;
    let evicted = sum(&objects.report()?, |of| of.evicted);
    ensure(evicted > 100, || format!("{evicted} evictions"))?;
    drop(all);
    nothing_is_left(objects)
}

/// Goal: large objects of a rank of the node are read where they are: no copy of them exists, and writing them afterwards leaves their
/// colour.
fn in_place(objects: &Objects, seed: u64) -> Outcome {
    let me = objects.rank();
    let mut large = (me == Rank(0)).then(|| DBox::new([seed; 50_000]));
    for round in 0..5 {
        let word = large.as_ref().map(DBox::word);
        let messages = sent(objects);
        let found =
            objects.lend(Rank(0), large.as_ref(), |large| (large[0] + large[49_999], objects.counts()))?;
        let (found, copies) = (found.0, found.1?.copies);
        ensure(found == 2 * (seed + round), || format!("{found} in round {round}"))?;
        ensure(copies == 0, || {
            format!("{me} has {copies} copies of what is here, {}", sent(objects) - messages)
        })?;
        if let Some(large) = &mut large {
            large.iter_mut().for_each(|number| *number += 1);
            ensure(Some(DBox::word(large)) == word, || {
                "nobody had a copy, and its colour has changed".into()
            })?;
        }
    }
    let in_place = sum(&objects.report()?, |of| of.in_place);
    ensure(in_place >= 5, || format!("{in_place} in place"))?;
    drop(large);
    nothing_is_left(objects)
}

/// Goal: a home whose objects are on NVMe hands readers on to a node that has copies, and what they get is right; when those copies
/// are gone, they come back, and get it from the home. Who is handed on takes three messages, and who is not, two. Method: counts of the homes, and
/// of what the reader and all agents have sent, with a cache far smaller than what its rank uses meanwhile.
fn handed_on(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: u64 = 300;
    let (me, ranks) = (objects.rank(), objects.ranks());
    let (owner, first, last) = (Rank(0), Rank(ranks / 3), Rank(ranks - 1));
    let boxes = (me == owner)
        .then(|| DBox::new((0..COUNT).map(|at| DBox::new([at ^ seed; 64])).collect::<DVec<_>>()));
    let read = |who: Rank, boxes: &DVec<DBox<[u64; 64]>>| -> Outcome {
        let is_right = me != who || (0..).zip(boxes.iter()).all(|(at, one)| *one.read() == [at ^ seed; 64]);
        ensure(is_right, || format!("{who} has read other values"))
    };
    // What its owner uses instead drives them out: four times the cache.
    let cool = || -> Outcome {
        if me == owner {
            let mut other: DVec<u64> = DVec::try_with_capacity(512 << 10)?;
            other.extend(0..512 << 10);
            ensure(other.iter().sum::<u64>() == (512 << 10) * ((512 << 10) - 1) / 2, || {
                "other numbers".into()
            })?;
        }
        Ok(crate::job(objects).barrier()?)
    };
    let before = objects.report()?;
    let messages =
        objects.lend(owner, boxes.as_ref(), |boxes| -> Result<u64, Box<dyn std::error::Error>> {
            read(first, boxes)?;
            crate::job(objects).barrier()?;
            cool()?;
            let of_agents = agent_sent(objects);
            crate::job(objects).barrier()?;
            let messages = sent(objects);
            read(last, boxes)?;
            // The others only wait.
            let messages = if me == last { sent(objects) - messages } else { 0 };
            ensure(messages <= COUNT + 10, || format!("{messages} requests for {COUNT} objects"))?;
            crate::job(objects).barrier()?;
            Ok(messages + agent_sent(objects) - of_agents)
        })??;
    let messages = crate::job(objects).all_reduce(messages, |a, b| a + b)?;
    let after = objects.report()?;
    let since = |of: fn(&vgas_objects::NodeReport) -> u64| {
        let all = |report: &Report| report.nodes.iter().map(of).sum::<u64>();
        all(&after) - all(&before)
    };
    let (handed, back, served) =
        (since(|of| of.handed_on), since(|of| of.came_back), since(|of| of.from_copies));
    ensure(handed > COUNT / 2 && back == 0 && served == handed, || {
        format!("{handed} of {COUNT} were handed on, {back} came back, {served} were served:\n{after}")
    })?;
    // The row itself comes by pages.
    ensure(messages.abs_diff(2 * COUNT + handed) <= 16, || {
        format!("{messages} messages for {COUNT} objects, of which {handed} were handed on")
    })?;
    // Nobody has copies now, which the home does not know.
    objects.drop_copies()?;
    objects.barrier()?;
    objects.lend(owner, boxes.as_ref(), |boxes| -> Outcome {
        cool()?;
        read(last, boxes)?;
        crate::job(objects).barrier()?;
        read(first, boxes)?;
        Ok(crate::job(objects).barrier()?)
    })??;
    let report = objects.report()?;
    let back: u64 = report.nodes.iter().map(|of| of.came_back).sum();
    ensure(back > 0, || format!("nobody came back:\n{report}"))?;
    drop(boxes);
    nothing_is_left(objects)
}

/// Goal: copies that are borrowed are many times what the cache has room for, stay at their addresses, and come back from NVMe as they were.
fn spilled(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: usize = 3000;
    let (me, owner) = (objects.rank(), Rank(0));
    let boxes = (me == owner)
        .then(|| DBox::new((0..COUNT as u64).map(|at| DBox::new([at ^ seed; 250])).collect::<DVec<_>>()));
    objects.lend(owner, boxes.as_ref(), |boxes| -> Outcome {
        let held: Vec<_> = boxes.iter().map(DBox::read).collect();
        let places: Vec<*const [u64; 250]> = held.iter().map(|one| &raw const **one).collect();
        for round in 0..2 {
            for (at, (one, place)) in held.iter().zip(&places).enumerate() {
                let is_same = **one == [at as u64 ^ seed; 250] && std::ptr::eq(&raw const **one, *place);
                ensure(is_same, || format!("object {at} is another in round {round}"))?;
            }
        }
        let kept = objects.counts()?.copies;
        ensure(me == owner || kept > COUNT as u64, || format!("{kept} copies for {COUNT} borrows"))
    })??;
    let faults = crate::job(objects).rank_statistics().get(Counter::Faults);
    ensure(faults > 500, || format!("{faults} faults: all of it was in memory"))?;
    drop(boxes);
    nothing_is_left(objects)
}

/// Goal: a row that nobody reads is written through its pointer alone, however often: it stays where it is, and asks nobody.
fn unread_row(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: usize = 1 << 16;
    let mut row: DVec<u64> = std::iter::repeat_n(seed, COUNT).collect();
    let (place, messages) = (row.as_ptr(), sent(objects));
    for round in 0..40 {
        for at in 0..COUNT {
            row[at] += round;
        }
    }
    let asked = sent(objects) - messages;
    ensure(std::ptr::eq(place, row.as_ptr()) && asked == 0, || {
        format!("it has moved, or asked {asked} times")
    })?;
    ensure(row.iter().all(|number| *number == seed + 39 * 40 / 2), || "other numbers".into())?;
    drop(row);
    nothing_is_left(objects)
}
