//! Rows of values: random programs held against the same ones on `Vec`, and what they cost.

use crate::scenarios::{ensure, nothing_is_left};
use crate::{HEAP, JOBS, Outcome, Scenario};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::Rank;
use vgas_objects::{DBox, DMap, DString, DVec, HeapOptions, ObjectError, Objects, Portable, Shareable};

pub const ALL: &[Scenario] = &[
    Scenario { name: "rows", jobs: JOBS, heap: HEAP, rank: rows, ends_with: None },
    Scenario {
        name: "rows_few_colours",
        jobs: &[(2, 2), (4, 2)],
        heap: HeapOptions { last_colour: 1, copies: 2, ..HEAP },
        rank: rows,
        ends_with: None,
    },
    Scenario { name: "large_row", jobs: &[(1, 1), (2, 1), (2, 2)], heap: HEAP, rank: large, ends_with: None },
    Scenario { name: "text", jobs: JOBS, heap: HEAP, rank: text, ends_with: None },
    Scenario { name: "map", jobs: JOBS, heap: HEAP, rank: map, ends_with: None },
    Scenario {
        name: "map_of_other_hashes",
        jobs: &[(1, 1)],
        heap: HEAP,
        rank: other_hashes,
        ends_with: None,
    },
    Scenario { name: "full_map", jobs: &[(1, 1), (2, 2)], heap: SMALL, rank: full_map, ends_with: None },
    Scenario { name: "sizes", jobs: &[(1, 1), (2, 1), (2, 2)], heap: HEAP, rank: sizes, ends_with: None },
    Scenario { name: "held_row", jobs: &[(2, 2), (3, 3)], heap: HEAP, rank: held, ends_with: None },
    Scenario { name: "full_row", jobs: &[(1, 1)], heap: HEAP, rank: full, ends_with: None },
];

const SMALL: HeapOptions = HeapOptions { bytes: 1 << 20, ..HEAP };

/// By what keys hash, as in one build or another.
static BUILD: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Portable, Shareable)]
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0 ^ BUILD.load(Ordering::Relaxed)).hash(state);
    }
}

/// Goal: where keys of a map hash differently than when they were inserted, as in a later build, they may not be found, but nothing else goes
/// wrong: each call returns, all are iterated, and a map that is made of them finds them.
fn other_hashes(objects: &Objects, seed: u64) -> Outcome {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut map: DMap<Key, DBox<u64>> = (0..100).map(|key| (Key(key), DBox::new(key))).collect();
    let mut expected = 100;
    for _ in 0..500 {
        BUILD.store(random.random_range(0..4), Ordering::Relaxed);
        let key = Key(random.random_range(0..100));
        match random.random_range(0..3) {
            0 => expected += usize::from(map.insert(key, DBox::new(key.0)).is_none()),
            1 => expected -= usize::from(map.remove(&key).is_some()),
            _ => ensure(map.get(&key).is_none_or(|found| **found == key.0), || {
                format!("another is at {key:?}")
            })?,
        }
        ensure((map.len(), map.iter().count()) == (expected, expected), || format!("{} keys", map.len()))?;
    }
    let keys: HashSet<u64> = map.iter().map(|(key, _)| key.0).collect();
    let again: DMap<Key, DBox<u64>> = map.drain().collect();
    let is_found = |key: u64| again.get(&Key(key)).is_some_and(|found| **found == key);
    ensure(again.len() == keys.len() && keys.into_iter().all(is_found), || "not all are found".into())?;
    drop((map, again));
    BUILD.store(0, Ordering::Relaxed);
    objects.barrier()?;
    nothing_is_left(objects)
}

/// What has rows of numbers, of boxes, and of rows.
#[derive(Default, Portable, Shareable)]
struct Rows {
    numbers: DVec<u64>,
    boxes: DVec<DBox<u32>>,
    rows: DVec<DVec<u16>>,
}

/// The same in one process.
#[derive(Clone, Debug, Default, PartialEq)]
struct Plain {
    numbers: Vec<u64>,
    boxes: Vec<u32>,
    rows: Vec<Vec<u16>>,
}

impl Rows {
    fn plain(&self) -> Plain {
        Plain {
            numbers: self.numbers.to_vec(),
            boxes: self.boxes.iter().map(|one| **one).collect(),
            rows: self.rows.iter().map(|row| row.to_vec()).collect(),
        }
    }
}

/// What is done by a number; yields what was taken out.
fn change(rows: &mut Rows, number: u64) -> Plain {
    let some = (number >> 8) as usize % 70;
    let mut taken = Plain::default();
    match number % 12 {
        0 => rows.numbers.extend((0..some as u64).map(|at| at.wrapping_mul(number))),
        1 => rows.boxes.extend((0..some as u32).map(DBox::new)),
        2 => rows.rows.push((0..some as u16).collect()),
        3 => rows.numbers.truncate(some),
        4 => rows.boxes.truncate(some),
        5 => taken.rows.extend(rows.rows.pop().map(|row| row.into_iter().collect())),
        6 => rows.numbers.iter_mut().for_each(|one| *one ^= number),
        7 => rows.boxes.iter_mut().for_each(|one| **one += 1),
        8 => rows.rows.first_mut().into_iter().for_each(|row| row.push(some as u16)),
        9 => rows.numbers.sort_unstable(),
        10 => rows.rows.clear(),
        _ => taken.boxes.extend(std::mem::take(&mut rows.boxes).into_iter().map(DBox::into_inner)),
    }
    taken
}

/// All ranks draw the same actions, and know what the rows hold and who has them.
fn rows(objects: &Objects, seed: u64) -> Outcome {
    let (me, ranks) = (objects.rank(), objects.ranks());
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut owner, mut plain) = (Rank(0), Plain::default());
    let mut own = (me == owner).then(|| DBox::new(Rows::default()));
    for step in 0..150 {
        let (to, number): (u32, u64) = (random.random_range(0..ranks), random.random::<u32>().into());
        let to = Rank(to);
        match random.random_range(0..6) {
            0 => {
                own = objects.hand(owner, to, own)?;
                owner = to;
            }
            1 | 2 => {
                let expected = plain.clone();
                objects.lend(owner, own.as_ref(), |rows| {
                    ensure(rows.plain() == expected, || format!("{me} has read {:?}", rows.plain()))?;
                    let count = rows.numbers.len();
                    let from = if count == 0 { 0 } else { number as usize % count };
                    let part = rows.numbers.range(from..)?;
                    ensure(part[..] == expected.numbers[from..], || format!("part from {from}: {part:?}"))?;
                    let chunks: Result<Vec<_>, _> = rows.boxes.chunks_of(7).collect();
                    let all = chunks?
                        .iter()
                        .flat_map(|part| part.iter().map(|one| **one).collect::<Vec<_>>())
                        .collect::<Vec<_>>();
                    ensure(all == expected.boxes, || format!("in parts {all:?}"))?;
                    ensure(rows.rows.range(count + 1..count).is_err(), || "no such part".into())
                })??;
            }
            3 => {
                let taken = change_plain(&mut plain, number);
                let found = objects.lend_mut(owner, to, own.as_mut(), |mut rows| {
                    change(&mut rows, number) == taken && rows.plain() == plain
                })?;
                ensure(found.unwrap_or(true), || format!("{me} has written something else in step {step}"))?;
            }
            _ => {
                let taken = change_plain(&mut plain, number);
                let is_so = own.as_mut().is_none_or(|own| change(own, number) == taken);
                ensure(is_so, || format!("{me} has taken something else in step {step}"))?;
            }
        }
    }
    drop(own);
    nothing_is_left(objects)
}

/// The same to the plain ones.
fn change_plain(plain: &mut Plain, number: u64) -> Plain {
    let some = (number >> 8) as usize % 70;
    let mut taken = Plain::default();
    match number % 12 {
        0 => plain.numbers.extend((0..some as u64).map(|at| at.wrapping_mul(number))),
        1 => plain.boxes.extend(0..some as u32),
        2 => plain.rows.push((0..some as u16).collect()),
        3 => plain.numbers.truncate(some),
        4 => plain.boxes.truncate(some),
        5 => taken.rows.extend(plain.rows.pop()),
        6 => plain.numbers.iter_mut().for_each(|one| *one ^= number),
        7 => plain.boxes.iter_mut().for_each(|one| *one += 1),
        8 => plain.rows.first_mut().into_iter().for_each(|row| row.push(some as u16)),
        9 => plain.numbers.sort_unstable(),
        10 => plain.rows.clear(),
        _ => taken.boxes = std::mem::take(&mut plain.boxes),
    }
    taken
}

/// Goal: a row that nobody reads is written without moving; of a large one, a part is read without the rest, and it moves as a whole.
fn large(objects: &Objects, _seed: u64) -> Outcome {
    let (first, last) = (Rank(0), Rank(objects.ranks() - 1));
    let count = 400_000u64;
    let mut row = (objects.rank() == first).then(|| DBox::new((0..count).collect::<DVec<u64>>()));
    if let Some(row) = &mut row {
        let before = row.as_ptr();
        for _ in 0..3 {
            (0..count as usize).for_each(|at| row[at] += 1);
        }
        ensure(before == row.as_ptr() && row[7] == 10, || "a row moved that nobody has read".into())?;
    }
    objects.lend(first, row.as_ref(), |row| {
        let copies = objects.counts()?.copies;
        let part = row.range(1000..1010)?;
        ensure(part.iter().copied().eq(1003..1013), || format!("{part:?}"))?;
        ensure(objects.counts()?.copies == copies, || "a part has left a copy".into())?;
        ensure(row.iter().sum::<u64>() == count * (count + 5) / 2, || "another sum".into())
    })??;
    objects.lend_mut(first, last, row.as_mut(), |mut row| row.push(1))?;
    objects.lend(first, row.as_ref(), |row| {
        ensure(row.len() == count as usize + 1 && row[count as usize] == 1, || {
            format!("{} values", row.len())
        })
    })??;
    drop(row);
    nothing_is_left(objects)
}

/// Goal: a row without room says so, keeps what it has, and gives back what did not fit.
fn full(objects: &Objects, _seed: u64) -> Outcome {
    let mut row = DVec::new();
    let refused = loop {
        if let Err(refused) = row.try_push([row.len() as u64; 8]) {
            break refused;
        }
    };
    let length = row.len();
    ensure(refused.value == [length as u64; 8], || "another value".into())?;
    // Half of it, at least: a row that grows lies in two places.
    ensure(length as u64 * 64 * 3 > HEAP.bytes, || format!("{length} values"))?;
    ensure((0..length).all(|at| row[at] == [at as u64; 8]), || "something was lost".into())?;
    drop(row);
    let none = DVec::<u64>::try_with_capacity(usize::MAX / 16);
    ensure(none.is_err(), || "more than there is".into())?;
    nothing_is_left(objects)
}

/// Goal: text is what a `String` would be, on whatever rank it is read and written.
fn text(objects: &Objects, _seed: u64) -> Outcome {
    let mut expected = String::new();
    let mut text = (objects.rank() == Rank(0)).then(|| DBox::new(DString::new()));
    for round in 0..20 {
        let to = Rank(round % objects.ranks());
        let more = format!("{round} größer, ");
        expected.push_str(&more);
        objects.lend_mut(Rank(0), to, text.as_mut(), |mut text| text.push_str(&more))?;
        objects.lend(Rank(0), text.as_ref(), |text| {
            ensure(***text == *expected && text.len() == expected.len(), || format!("{:?}", **text))?;
            ensure(text.chars().rev().eq(expected.chars().rev()) && text.to_string() == expected, || {
                format!("{:?}", **text)
            })
        })??;
    }
    let mut names: DVec<DString> = ["c", "a", "", "b"].map(DString::from).into_iter().collect();
    names.sort();
    ensure(names.iter().map(|name| &**name).eq(["", "a", "b", "c"]), || format!("{names:?}"))?;
    drop((text, names));
    nothing_is_left(objects)
}

/// Goal: where no room is left, whoever asks for it in words that begin with `try_` is told so, has what it had, and goes on when there is some.
fn full_map(objects: &Objects, _seed: u64) -> Outcome {
    let mut map: DMap<u64, [u64; 8]> = DMap::try_with_capacity(90)?;
    for key in 0..90 {
        ensure(map.try_insert(key, [key; 8])?.is_none(), || format!("{key} was there"))?;
    }
    let no_map = DMap::<u64, [u64; 8]>::try_with_capacity(1 << 20);
    ensure(no_map.is_err_and(|why| why.to_string().contains("rank")), || "a map of 100 MB".into())?;
    let no_room = [map.try_reserve(1 << 20), map.try_reserve(usize::MAX)];
    ensure(no_room.iter().all(Result::is_err) && map.len() == 90, || format!("{no_room:?}"))?;
    let mut rows = Vec::new();
    let why = loop {
        match DVec::try_from_slice(&[7u64; 2000]) {
            Ok(row) => rows.push(row),
            Err(why) => break why,
        }
    };
    ensure(matches!(why, ObjectError::Full(_)) && format!("{why:?}") == why.to_string(), || {
        format!("{why:?}")
    })?;
    // 16,000 bytes take no more than 16,384, nearly all of them.
    ensure(rows.len() > 50, || format!("{} rows", rows.len()))?;
    let mut row = DVec::new();
    let refused = row.try_extend(0..1u64 << 20).err().ok_or("a row of 8 MB")?;
    ensure(row.len() as u64 == refused.value && row.iter().copied().eq(0..refused.value), || {
        format!("{refused}")
    })?;
    let why = ObjectError::from(refused);
    ensure(matches!(why, ObjectError::Full(_)), || format!("{why}"))?;
    ensure(DString::try_from_str(&"long".repeat(1 << 18)).is_err(), || "a text of 1 MB".into())?;
    drop((rows, row));
    let text = DString::try_from_str("short")?;
    ensure(text == "short", || format!("{text:?}"))?;
    for key in 0..90 {
        if let Some(value) = map.try_get_mut(&key)? {
            value[0] += 1;
        }
        ensure(map.try_get(&key)?.is_some_and(|found| found[0] == key + 1 && found[7] == key), || {
            format!("{key}")
        })?;
        ensure(map.try_remove(&key)?.is_some() && map.try_get(&key)?.is_none(), || format!("{key} stays"))?;
    }
    ensure(map.try_get_mut(&7)?.is_none() && map.try_remove_entry(&7)?.is_none(), || "it is empty".into())?;
    drop((map, text));
    nothing_is_left(objects)
}

/// Goal: values of all sizes about those of slots, and texts that are read together, are on another rank what they were on theirs.
fn sizes(objects: &Objects, _seed: u64) -> Outcome {
    let ranks = objects.ranks();
    let sizes: Vec<u64> = [8192u64, 10_912, 13_088, 16_368, 21_824, 32_752, 65_536]
        .into_iter()
        .flat_map(|bytes| [bytes / 8 - 3, bytes / 8 - 2, bytes / 8, bytes / 8 + 1])
        .collect();
    for from in (0..ranks).map(Rank) {
        let to = Rank((from.0 + 1) % ranks);
        let made = (objects.rank() == from).then(|| {
            let rows: DVec<DVec<u64>> = sizes.iter().map(|size| (0..*size).collect()).collect();
            let texts: DVec<DString> = (0..40).map(|at| DString::from("text ".repeat(at).as_str())).collect();
            DBox::new((rows, texts))
        });
        let check = |both: &(DVec<DVec<u64>>, DVec<DString>)| -> Outcome {
            for (row, size) in both.0.iter().zip(&sizes) {
                ensure(row.iter().copied().eq(0..*size), || format!("a row of {size}"))?;
            }
            let texts = DString::try_read_all(both.1.iter())?;
            ensure((0..).zip(&texts).all(|(at, text)| *text == "text ".repeat(at)), || format!("{texts:?}"))
        };
        objects.lend(from, made.as_ref(), |both| check(both).map_err(|why| why.to_string()))??;
        // There it moves, as it is written.
        let mut given = objects.hand(from, to, made)?;
        if let Some(both) = &mut given {
            for row in both.0.as_mut_slice() {
                row[0] += 1;
                row[0] -= 1;
            }
            check(both)?;
        }
    }
    nothing_is_left(objects)
}

/// Goal: a map is what a `HashMap` would be, on whatever rank it is read and written; all ranks draw the same actions.
fn map(objects: &Objects, seed: u64) -> Outcome {
    let ranks = objects.ranks();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut plain: HashMap<String, Vec<u64>> = HashMap::new();
    let mut own = (objects.rank() == Rank(0)).then(|| DBox::new(DMap::<DString, DVec<u64>>::new()));
    for step in 0..300 {
        let (to, number): (u32, u64) = (random.random_range(0..ranks), random.random_range(0..60));
        let (to, key, action) = (Rank(to), format!("key {number}"), random.random_range(0..8));
        if action < 6 {
            let found = objects.lend_mut(Rank(0), to, own.as_mut(), |mut map| match action {
                0..3 => map.insert(key.as_str().into(), (0..step).collect()).map(|old| old.len()),
                3 => map.remove(key.as_str()).map(|old| old.len()),
                _ => {
                    map.get_or_insert_with(key.as_str().into(), DVec::new).push(step);
                    map.get_mut(key.as_str()).map(|row| row.len())
                }
            })?;
            let expected = match action {
                0..3 => plain.insert(key, (0..step).collect()).map(|old| old.len()),
                3 => plain.remove(&key).map(|old| old.len()),
                _ => {
                    let row = plain.entry(key).or_default();
                    row.push(step);
                    Some(row.len())
                }
            };
            ensure(found.is_none_or(|found| found == expected), || format!("{found:?} in step {step}"))?;
            continue;
        }
        objects.lend(Rank(0), own.as_ref(), |map| {
            ensure(map.len() == plain.len(), || format!("{} keys", map.len()))?;
            let found = map.get(key.as_str()).map(|row| row.to_vec());
            ensure(found.as_ref() == plain.get(&key), || format!("{key}: {found:?}"))?;
            if action == 7 {
                let mut all: HashMap<String, Vec<u64>> = HashMap::new();
                for (key, row) in &**map {
                    all.insert(key.to_string(), row.to_vec());
                }
                ensure(all == plain, || format!("{all:?}"))?;
            }
            ensure(!map.contains_key("none"), || "nothing was there".into())
        })??;
    }
    if let Some(own) = own {
        let mut own = own.into_inner();
        for (_, row) in &mut own {
            row.reverse();
        }
        plain.values_mut().for_each(|row| row.reverse());
        let all: HashMap<String, Vec<u64>> =
            own.into_iter().map(|(key, row)| (key.to_string(), row.into_iter().collect())).collect();
        ensure(all == plain, || format!("{all:?}"))?;
    }
    nothing_is_left(objects)
}

/// Goal: a row whose boxes its rank has followed to copies is freed with all of them when another rank takes it, however many they are, and so
/// is what goes with it. Method: more than a message about a freed slot has, in a list that is full with what comes after it.
fn held(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: u64 = 5000;
    const MORE: u64 = 200;
    let (owner, reader) = (Rank(0), Rank(objects.ranks() - 1));
    let sum = |row: &DVec<DBox<u64>>| row.iter().map(|one| **one ^ seed).sum::<u64>();
    let mut row = (objects.rank() == owner)
        .then(|| DBox::new((0..COUNT).map(|at| DBox::new(at ^ seed)).collect::<DVec<_>>()));
    let found = objects.lend_mut(owner, reader, row.as_mut(), |mut row| {
        row.extend((COUNT..COUNT + MORE).map(|at| DBox::new(at ^ seed)));
        sum(&row)
    })?;
    let numbers = |count: u64| count * (count - 1) / 2;
    ensure(found.is_none_or(|found| found == numbers(COUNT + MORE)), || format!("{found:?}"))?;
    if let Some(row) = &mut row {
        // The row comes back, and what was added is dropped.
        (0..MORE).for_each(|_| drop(row.pop()));
        ensure(sum(row) == numbers(COUNT), || "other numbers".into())?;
    }
    drop(row);
    nothing_is_left(objects)
}
