//! Many objects read at once.

use crate::scenarios::{ensure, nothing_is_left, sent};
use crate::{HEAP, JOBS, Outcome, Scenario};
use vgas::{Counter, Rank};
use vgas_objects::{DBox, DMap, DVec, HeapOptions, ObjectError, Objects, Report};

pub const ALL: &[Scenario] = &[
    Scenario { name: "read_all", jobs: JOBS, heap: MANY, rank: read_all, ends_with: None },
    Scenario { name: "read_all_rows", jobs: JOBS, heap: MANY, rank: rows, ends_with: None },
    Scenario {
        name: "read_all_few_copies",
        jobs: &[(2, 2), (4, 2)],
        heap: HeapOptions { copies: 3, last_colour: 1, ..HEAP },
        rank: again,
        ends_with: None,
    },
    Scenario {
        name: "read_all_one_fetch",
        jobs: &[(4, 2), (6, 2)],
        heap: MANY,
        rank: one_fetch,
        ends_with: None,
    },
    Scenario { name: "read_all_cold", jobs: &[(2, 2), (3, 3)], heap: MANY, rank: cold, ends_with: None },
    Scenario {
        name: "read_all_full",
        jobs: &[(2, 2)],
        heap: HeapOptions { bytes: 1 << 20, copy_bytes: 64 << 10, ..MANY },
        rank: full,
        ends_with: None,
    },
    Scenario { name: "bring_all", jobs: JOBS, heap: MANY, rank: bring_all, ends_with: None },
    Scenario {
        name: "read_of_new_objects_writes_nothing",
        jobs: &[(2, 2), (3, 3)],
        heap: HEAP,
        rank: writes_nothing,
        ends_with: None,
    },
];

const MANY: HeapOptions = HeapOptions { copies: 4000, copy_bytes: 4 << 20, ..HEAP };

type Object = [u64; 64];
type Boxes = DVec<DBox<Object>>;

fn object(rank: u32, at: u64, seed: u64) -> Object {
    [seed ^ at << 8 ^ u64::from(rank); 64]
}

fn made(rank: Rank, count: u64, seed: u64) -> Boxes {
    (0..count).map(|at| DBox::new(object(rank.0, at, seed))).collect()
}

/// What every rank has made comes to the first: only the boxes move.
fn to_first(objects: &Objects, count: u64, seed: u64) -> Result<Vec<Boxes>, ObjectError> {
    let mut all = Vec::new();
    for from in (0..objects.ranks()).map(Rank) {
        let given = (objects.rank() == from).then(|| DBox::new(made(from, count, seed)));
        all.extend(objects.hand(from, Rank(0), given)?.map(DBox::into_inner));
    }
    for boxes in &mut all {
        boxes.as_mut_slice();
    }
    Ok(all)
}

/// Messages that carry so many objects of a node.
fn messages_for(objects: &Objects, count: u64) -> u64 {
    let most = crate::job(objects).medium_bytes_max();
    count.div_ceil(((most - 64) / (size_of::<Object>() + 8)) as u64)
}

/// Goal: boxes on all ranks are read at once with one message to each other node, and as many more as their bytes need; again, and what is here,
/// with none; each is what it was, also where a box is asked for twice.
fn read_all(objects: &Objects, seed: u64) -> Outcome {
    for count in [1, 40, 300] {
        let boxes = to_first(objects, count, seed)?;
        // Nobody has copies of what the others are about to read.
        objects.barrier()?;
        if objects.rank() == Rank(0) {
            let others = u64::from(crate::job(objects).nodes()) - 1;
            let each = u64::from(objects.ranks() / crate::job(objects).nodes()) * count;
            for expected in [others * messages_for(objects, each), 0] {
                let before = sent(objects);
                let all = DBox::read_all(boxes.iter().flat_map(|of| of.iter()));
                let asked = sent(objects) - before;
                ensure(others == 0 || asked == expected, || {
                    format!("{asked} messages instead of {expected} for {count} objects of each rank")
                })?;
                let right =
                    (0..).zip(&boxes).flat_map(|(rank, _)| (0..count).map(move |at| object(rank, at, seed)));
                ensure(all.iter().map(|one| **one).eq(right), || "another object".into())?;
                let twice = DBox::try_read_all(boxes.iter().flat_map(|of| [&of[0], &of[0]]))?;
                ensure(twice.chunks(2).all(|two| *two[0] == *two[1]), || "a box is two".into())?;
            }
            let none = DBox::read_all(std::iter::empty::<&DBox<Object>>());
            ensure(none.is_empty(), || "there were none".into())?;
        }
        drop(boxes);
        nothing_is_left(objects)?;
    }
    Ok(())
}

/// Goal: the same of rows of several lengths, empty ones and large ones among them: each row knows where its values are afterwards.
fn rows(objects: &Objects, seed: u64) -> Outcome {
    let lengths = [3u64, 0, 70, 9000, 1, 20_000, 12_345, 9001];
    let row =
        |rank: u32, at: usize| (0..lengths[at]).map(move |number| number ^ seed ^ u64::from(rank) << 32);
    let mut all: Vec<DVec<DVec<u64>>> = Vec::new();
    for from in (0..objects.ranks()).map(Rank) {
        let given = (objects.rank() == from).then(|| {
            DBox::new((0..lengths.len()).map(|at| row(from.0, at).collect()).collect::<DVec<DVec<u64>>>())
        });
        all.extend(objects.hand(from, Rank(0), given)?.map(DBox::into_inner));
    }
    for rows in &mut all {
        rows.as_mut_slice();
    }
    for _ in 0..2 {
        let before = sent(objects);
        let found = DVec::read_all(all.iter().flat_map(|rows| rows.iter().take(3)));
        let asked = sent(objects) - before;
        let others = u64::from(crate::job(objects).nodes()) - 1;
        ensure(others == 0 || asked <= others, || format!("{asked} messages for rows of {others} nodes"))?;
        for (number, found) in found.into_iter().enumerate() {
            let expected = row((number / 3) as u32, number % 3);
            ensure(found.iter().copied().eq(expected), || format!("row {number} is another"))?;
        }
        let found = DVec::try_read_all(all.iter().flat_map(|rows| rows.iter()))?;
        for (number, found) in found.into_iter().enumerate() {
            let (rank, at) = (number / lengths.len(), number % lengths.len());
            ensure(found.iter().copied().eq(row(rank as u32, at)), || format!("row {number} is another"))?;
        }
        let before = sent(objects);
        let last: u64 = all.iter().flat_map(|rows| rows.iter()).filter_map(|row| row.last()).sum();
        std::hint::black_box(last);
        ensure(others == 0 || sent(objects) == before, || "a row that was read is asked for".into())?;
    }
    drop(all);
    nothing_is_left(objects)
}

/// Goal: boxes and rows of all ranks are brought to the first at once, with one message to each other node, and as many more as their bytes
/// need; then they are its own, what they were, and written without a message.
fn bring_all(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: u64 = 300;
    let mut boxes = to_first(objects, COUNT, seed)?;
    objects.barrier()?;
    if objects.rank() == Rank(0) {
        let others = u64::from(crate::job(objects).nodes()) - 1;
        let each = u64::from(objects.ranks() / crate::job(objects).nodes()) * COUNT;
        let before = sent(objects);
        DBox::bring_all(boxes.iter_mut().flat_map(|of| of.iter_mut()));
        let asked = sent(objects) - before;
        // What is freed of others is told, too, many at a time.
        let expected = others * (messages_for(objects, each) + each / 32 + 1);
        ensure(others == 0 || asked <= expected, || format!("{asked} messages instead of {expected}"))?;
        let before = sent(objects);
        for (rank, of) in (0..).zip(&mut boxes) {
            for (at, one) in (0..).zip(of.iter_mut()) {
                ensure(**one == object(rank, at, seed), || format!("another object {at} of {rank}"))?;
                ensure(DBox::rank(one) == Some(Rank(0)), || format!("{at} of {rank} is elsewhere"))?;
                one[0] += 1;
            }
        }
        ensure(sent(objects) == before, || "messages for what is here".into())?;
        DBox::bring_all(boxes.iter_mut().flat_map(|of| of.iter_mut()));
        ensure(sent(objects) == before, || "messages for nothing".into())?;
    }
    drop(boxes);
    nothing_is_left(objects)?;
    // Rows with links in them, of several lengths, in a map.
    let made = (objects.rank().0 + 1 == objects.ranks()).then(|| {
        let row = |length: u64| (0..length).map(|at| DBox::new(at ^ seed)).collect::<DVec<_>>();
        DBox::new(
            [0, 1, 70, 700, 3000].map(|length| (length, row(length))).into_iter().collect::<DMap<_, _>>(),
        )
    });
    if let Some(mut map) = objects.hand(Rank(objects.ranks() - 1), Rank(0), made)? {
        DVec::try_bring_all(map.values_mut())?;
        let before = sent(objects);
        ensure(map.iter().all(|(length, row)| row.len() as u64 == *length), || "other lengths".into())?;
        let words = map.values_mut().map(|row| row.iter_mut().count()).sum::<usize>();
        ensure(words == 3771 && sent(objects) == before, || format!("{words} boxes, or messages"))?;
        for (_, mut row) in DBox::into_inner(map) {
            DBox::bring_all(row.iter_mut());
            ensure((0..).zip(row.iter()).all(|(at, one)| **one == at ^ seed), || "another number".into())?;
        }
    }
    nothing_is_left(objects)
}

/// Goal: values that are written between reads are read as they are, with hardly any room for copies and colours, and by several threads
/// of a rank in orders of their own, none of which waits for the other for ever.
fn again(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: u64 = 40;
    let owner = Rank(0);
    let mut boxes = (objects.rank() == owner).then(|| DBox::new(made(owner, COUNT, seed)));
    for round in 0..8 {
        let is_right = objects.lend(owner, boxes.as_ref(), |boxes| {
            let read = |order: &mut dyn Iterator<Item = usize>| {
                let order = Vec::from_iter(order);
                let all = DBox::read_all(order.iter().map(|at| &boxes[*at]));
                order.iter().zip(all).all(|(at, one)| *one == object(0, *at as u64, seed + round))
            };
            std::thread::scope(|scope| {
                let there = scope.spawn(|| read(&mut (0..COUNT as usize)));
                let back = scope.spawn(|| read(&mut (0..COUNT as usize).rev()));
                let odd = read(&mut (0..COUNT as usize).map(|at| at * 7 % COUNT as usize));
                odd && [there, back].into_iter().all(|read| read.join().unwrap_or(false))
            })
        })?;
        ensure(is_right, || format!("other values in round {round}"))?;
        if let Some(boxes) = &mut boxes {
            (0..).zip(boxes.iter_mut()).for_each(|(at, one)| **one = object(0, at, seed + round + 1));
        }
    }
    drop(boxes);
    nothing_is_left(objects)
}

/// Goal: all ranks of a node that read the same objects at once, each in another order, fetch each once together.
fn one_fetch(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: u64 = 200;
    let (me, ranks, owner) = (objects.rank(), objects.ranks(), Rank(0));
    let mut boxes = (me == owner).then(|| DBox::new(made(owner, COUNT, seed)));
    for round in 0..3 {
        let before = objects.report()?;
        let is_right = objects.lend(owner, boxes.as_ref(), |boxes| {
            let step = [1, 3, 7, 9, 11, 13][me.0 as usize % 6];
            let order = (0..COUNT).map(|at| (at * step + u64::from(me.0) * 50) % COUNT);
            let all = DBox::read_all(order.clone().map(|at| &boxes[at as usize]));
            order.zip(all).all(|(at, one)| *one == object(0, at, seed + round))
        })?;
        ensure(is_right, || format!("other values in round {round}"))?;
        let after = objects.report()?;
        let fetched =
            |report: &Report| report.ranks[ranks as usize / 2..].iter().map(|of| of.fetched).sum::<u64>();
        // With the row of boxes, and the box that it is in.
        let far = fetched(&after) - fetched(&before);
        ensure(far == COUNT + 2, || format!("the other node has fetched {far} objects in round {round}"))?;
        if let Some(boxes) = &mut boxes {
            (0..).zip(boxes.iter_mut()).for_each(|(at, one)| **one = object(0, at, seed + round + 1));
        }
    }
    drop(boxes);
    nothing_is_left(objects)
}

/// Goal: objects whose home has them on NVMe come as whole, and with as few messages, for one reader after the other.
fn cold(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: u64 = 300;
    let (me, ranks, owner) = (objects.rank(), objects.ranks(), Rank(0));
    let boxes = (me == owner).then(|| DBox::new(made(owner, COUNT, seed)));
    objects.lend(owner, boxes.as_ref(), |boxes| -> Outcome {
        for who in (1..ranks).map(Rank) {
            if me == owner {
                // What its owner uses instead drives them out: four times the cache.
                let mut other: DVec<u64> = DVec::try_with_capacity(512 << 10)?;
                other.extend(0..512 << 10);
            }
            crate::job(objects).barrier()?;
            if me == who {
                let all = &boxes[..];
                let before = sent(objects);
                let read = DBox::read_all(all);
                let (asked, expected) = (sent(objects) - before, messages_for(objects, COUNT));
                ensure(asked == expected, || format!("{asked} messages instead of {expected}"))?;
                let is_right = (0..).zip(&read).all(|(at, one)| **one == object(0, at, seed));
                ensure(is_right, || format!("{who} has read other values"))?;
            }
            crate::job(objects).barrier()?;
        }
        Ok(())
    })??;
    drop(boxes);
    nothing_is_left(objects)
}

/// Goal: where not all have room, the error says which has none, and nothing stays borrowed.
fn full(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: u64 = 1200;
    let (me, owner) = (objects.rank(), Rank(0));
    let boxes = (me == owner).then(|| DBox::new(made(owner, COUNT, seed)));
    objects.lend(owner, boxes.as_ref(), |boxes| -> Outcome {
        if me == owner {
            return Ok(());
        }
        // Half of its partition has no room for copies, and only some have any beside it.
        let taken: Vec<DBox<Object>> = (0..1000).map(|_| DBox::new([1; 64])).collect();
        let Err(why) = DBox::try_read_all(boxes.iter()) else { return Err("all have had room".into()) };
        ensure(matches!(*why.why, ObjectError::Full(_)) && (1..COUNT as usize).contains(&why.at), || {
            format!("it ends with: {why}")
        })?;
        let uses = objects.own_report()?.uses;
        ensure(uses <= 2, || format!("{uses} uses of copies are left"))?;
        drop(taken);
        let all = DBox::read_all(boxes.iter().take(100));
        ensure((0..).zip(&all).all(|(at, one)| **one == object(0, at, seed)), || "other values".into())
    })??;
    drop(boxes);
    nothing_is_left(objects)
}

/// Goal: objects that nobody has read before, of pages that are on NVMe, are read by another node without a write of these pages. Method: the
/// count of writes while a rank reads four times the cache; what it keeps of them, as copies, may be written, a page for each.
fn writes_nothing(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: u64 = 8 << 10;
    let job = crate::job(objects);
    let (me, reader) = (objects.rank(), Rank(objects.ranks() - 1));
    let made = (me == Rank(0)).then(|| DBox::new(made(me, COUNT, seed)));
    let read = |who: Rank, boxes: &Boxes| -> Outcome {
        let is_right =
            me != who || (0..).zip(boxes.iter()).all(|(at, one)| *one.read() == object(0, at, seed));
        ensure(is_right, || format!("{who} has read other values"))
    };
    let written = || -> Result<u64, Box<dyn std::error::Error>> {
        objects.barrier()?;
        let written = job.statistics()?.get(Counter::NvmWrites);
        objects.barrier()?;
        Ok(written)
    };
    objects.lend(Rank(0), made.as_ref(), |boxes| -> Outcome {
        // What was written last leaves the cache.
        read(Rank(0), boxes)?;
        read(Rank(0), boxes)?;
        let before = written()?;
        read(reader, boxes)?;
        read(Rank(0), boxes)?;
        let by_reading = written()? - before;
        // 128 slabs hold the objects; each was written once before.
        ensure(by_reading <= 16, || format!("{by_reading} writes by reading {COUNT} objects"))
    })??;
    drop(made);
    nothing_is_left(objects)
}
