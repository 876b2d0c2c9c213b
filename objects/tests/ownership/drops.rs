//! Objects that own others, dropped by ranks that do not have them.

use crate::scenarios::{ensure, nothing_is_left, sent};
use crate::{HEAP, JOBS, Outcome, Scenario};
use std::mem::transmute;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use vgas::Rank;
use vgas_objects::sync::{DArc, DMutex, DWeak};
use vgas_objects::{
    DBox, DMap, DString, DVec, HeapOptions, Objects, Portable, RunOptions, Shareable, TBox, spawn_to, task,
};

pub const ALL: &[Scenario] = &[
    Scenario { name: "drop_messages", jobs: &[(2, 2)], heap: HEAP, rank: messages, ends_with: None },
    Scenario { name: "drop_kinds", jobs: JOBS, heap: MANY, rank: kinds, ends_with: None },
    Scenario {
        name: "drop_kinds_few",
        jobs: &[(2, 1), (2, 2), (4, 2)],
        heap: HeapOptions { copies: 3, last_colour: 1, ..HEAP },
        rank: kinds,
        ends_with: None,
    },
    Scenario { name: "drop_long_lists", jobs: &[(2, 1), (2, 2)], heap: HEAP, rank: long, ends_with: None },
    Scenario {
        name: "drop_deep",
        jobs: &[(1, 1), (2, 1), (2, 2)],
        heap: HEAP,
        rank: deep_own,
        ends_with: None,
    },
    Scenario {
        name: "drop_there_and_back",
        jobs: &[(2, 1), (2, 2), (4, 2)],
        heap: HEAP,
        rank: there_and_back,
        ends_with: None,
    },
    Scenario { name: "drop_own", jobs: JOBS, heap: HEAP, rank: own, ends_with: None },
    Scenario {
        name: "drop_makes_room",
        jobs: &[(2, 1), (2, 2)],
        heap: HeapOptions { bytes: 1 << 20, ..HEAP },
        rank: room,
        ends_with: None,
    },
    Scenario {
        name: "drop_of_reads_given_up",
        jobs: &[(2, 2), (4, 2)],
        heap: HEAP,
        rank: given_up,
        ends_with: None,
    },
    Scenario {
        name: "drop_of_another_program",
        jobs: &[(2, 1)],
        heap: HEAP,
        rank: |objects, _| says(objects, &[1 << 20, 1 << 32 | 1_000_000], OTHER),
        ends_with: Some(REFUSED),
    },
    Scenario {
        name: "drop_twice",
        jobs: &[(2, 1)],
        heap: HEAP,
        rank: |objects, _| {
            wrongly(
                objects,
                |one| {
                    // SAFETY: none: this is the mistake.
                    drop(unsafe { std::ptr::read(&one) });
                    drop(one);
                },
                "which is no object",
            )
        },
        ends_with: Some(REFUSED),
    },
    Scenario {
        name: "drop_of_too_much",
        jobs: &[(2, 1)],
        heap: HEAP,
        rank: |objects, _| {
            // SAFETY: none: this is the mistake. All boxes are of one size.
            wrongly(
                objects,
                |one| drop(unsafe { transmute::<Owns, DBox<[Owns; 1000]>>(one) }),
                "where no room is",
            )
        },
        ends_with: Some(REFUSED),
    },
];

const MANY: HeapOptions = HeapOptions { copies: 4000, copy_bytes: 4 << 20, ..HEAP };

/// What owns something, and nothing else.
type Owns = DBox<DBox<u64>>;

#[derive(Portable, Shareable)]
struct Node {
    key: u64,
    next: Option<DBox<Node>>,
    other: Option<DBox<Node>>,
}

fn tree(depth: u32) -> DBox<Node> {
    let below = || (depth > 1).then(|| tree(depth - 1));
    DBox::new(Node { key: depth.into(), next: below(), other: below() })
}

/// Goal: what owns objects is dropped where it is, for the message that also tells of what is only free: a 64th of one each, and one for a
/// tree, however large. Method: what the rank that drops has sent until all are met.
fn messages(objects: &Objects, _seed: u64) -> Outcome {
    const COUNT: u64 = 640;
    let (here, there) = (Rank(0), Rank(1));
    let job = crate::job(objects);
    let made =
        (objects.rank() == there).then(|| DBox::new((0..COUNT).map(|at| DBox::new(DBox::new(at))).collect()));
    let mut many: Option<DVec<Owns>> = objects.hand(there, here, made)?.map(DBox::into_inner);
    let trees = objects.hand(there, here, (objects.rank() == there).then(|| tree(12)))?;
    // The row's own values come here, and not what they mean.
    let boxes = many.take().map(DVec::into_vec).transpose()?;
    job.barrier()?;
    let before = sent(objects);
    let is_here = boxes.is_some();
    drop(boxes);
    let of_boxes = sent(objects) - before;
    ensure(!is_here || of_boxes == COUNT / 64, || format!("{of_boxes} messages for {COUNT} boxes"))?;
    // A barrier of two nodes is a message and its answer or two; what this one had let go of and not told is one.
    drop(trees);
    objects.barrier()?;
    let of_all = sent(objects) - before;
    ensure(!is_here || of_all <= COUNT / 64 + 12, || format!("{of_all} messages for all and barriers"))?;
    nothing_is_left(objects)
}

#[derive(Portable, Shareable)]
enum Part<T: Portable> {
    Nothing,
    Value(T),
    Both { one: DBox<T>, row: DVec<DBox<T>> },
}

/// Of all that owns objects, and is dropped by who has it.
#[derive(Portable, Shareable)]
struct Zoo {
    number: u64,
    text: DString,
    rows: DVec<DVec<DString>>,
    map: DMap<DString, DBox<u64>>,
    tied: Option<TBox<Zoo>>,
    parts: [Part<DBox<u64>>; 3],
    pair: (Option<DBox<Zoo>>, Result<DBox<u8>, DString>),
    shared: DArc<DBox<u64>>,
    weak: DWeak<DBox<u64>>,
    empty: DVec<DBox<u64>>,
}

fn zoo(number: u64, depth: u32) -> Zoo {
    let text = |at: u64| DString::from(format!("{number} {at}"));
    let shared = DArc::new(DBox::new(number));
    let boxed = |at: u64| DBox::new(DBox::new(number + at));
    Zoo {
        number,
        text: text(0),
        rows: (0..number % 5).map(|row| (0..row).map(text).collect()).collect(),
        map: (0..number % 9).map(|at| (text(at), DBox::new(at))).collect(),
        tied: (depth > 1).then(|| TBox::new(zoo(number + 1, depth - 1))),
        parts: [
            Part::Nothing,
            Part::Value(DBox::new(number)),
            Part::Both { one: boxed(0), row: (0..3).map(boxed).collect() },
        ],
        pair: ((depth > 1).then(|| DBox::new(zoo(number + 7, depth - 1))), Err(text(9))),
        weak: DArc::downgrade(&shared),
        shared,
        empty: DVec::new(),
    }
}

fn sum(zoo: &Zoo) -> u64 {
    let both = |part: &Part<DBox<u64>>| match part {
        Part::Nothing => 1,
        Part::Value(one) => **one,
        Part::Both { one, row } => ***one + row.iter().map(|one| ***one).sum::<u64>(),
    };
    let texts: usize = zoo.rows.iter().flat_map(|row| row.iter()).map(|text| text.len()).sum();
    zoo.number
        + zoo.text.len() as u64
        + texts as u64
        + zoo.map.iter().map(|(_, one)| **one).sum::<u64>()
        + zoo.tied.as_deref().map_or(0, sum)
        + zoo.parts.iter().map(both).sum::<u64>()
        + zoo.pair.0.as_deref().map_or(0, sum)
        + **zoo.shared
        + zoo.weak.upgrade().map_or(0, |one| **one)
}

/// Goal: whatever owns objects, and wherever they are, is dropped as a whole by whoever has it last, after any rank has read and written it:
/// no object, copy or use of one is left. Method: each rank has some, which go around, are read by all and changed where they are.
fn kinds(objects: &Objects, seed: u64) -> Outcome {
    let ranks = objects.ranks();
    for round in 0..6u64 {
        for owner in (0..ranks).map(Rank) {
            let mut made = (objects.rank() == owner).then(|| DBox::new(zoo(seed % 100 + round, 3)));
            for step in 1..=2 {
                objects.lend(owner, made.as_ref(), |zoo| sum(zoo))?;
                let writer = Rank((owner.0 + step + round as u32) % ranks);
                objects.lend_mut(owner, writer, made.as_mut(), |mut zoo| {
                    zoo.pair.0 = Some(DBox::new(self::zoo(round, 2)));
                    if let Some(tied) = zoo.tied.as_mut() {
                        tied.text.push_str(" more");
                        tied.rows.push((0..3).map(|at| DString::from(format!("{at}"))).collect());
                    }
                    zoo.parts[0] = Part::Both { one: DBox::new(DBox::new(5)), row: DVec::new() };
                })?;
                objects.lend(owner, made.as_ref(), |zoo| sum(zoo))?;
            }
            let last = Rank((owner.0 + 1) % ranks);
            let mut given = objects.hand(owner, last, made)?;
            if round % 2 == 0
                && let Some(given) = &mut given
            {
                given.tied = None;
            }
            drop(given);
        }
    }
    nothing_is_left(objects)
}

/// Goal: a list takes no more stack where it is dropped than one object does. Method: one that would take all of a thread's.
fn long(objects: &Objects, _seed: u64) -> Outcome {
    const NODES: u64 = 200_000;
    let list = |nodes| {
        let add = |next, key| Some(DBox::new(Node { key, next, other: None }));
        (0..nodes).fold(None, add)
    };
    let made = (objects.rank() == Rank(1)).then(|| list(NODES)).flatten();
    let given = objects.hand(Rank(1), Rank(0), made)?;
    drop(given);
    nothing_is_left(objects)
}

/// Runs on a stack of so many bytes.
fn on_stack<R: Send>(bytes: usize, work: impl FnOnce() -> R + Send) -> Result<R, Box<dyn std::error::Error>> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(bytes).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| "it has panicked".into())
    })
}

#[derive(Portable, Shareable)]
struct Nested {
    rows: DVec<Nested>,
    shared: Option<DArc<Nested>>,
}

const LARGE: usize = 1 << 20;

#[derive(Portable)]
struct Large {
    bytes: [u8; LARGE],
    _own: Own,
}

/// Goal: an owner's drop takes no more stack for a long list than for a short one, of boxes, rows and counted values. Large values are placed, taken
/// and dropped with little stack, wherever they are. Method: stacks that hold a hundredth of the list, or few of the large values.
fn deep_own(objects: &Objects, _seed: u64) -> Outcome {
    const NODES: u64 = 100_000;
    let me = objects.rank();
    let list = (0..NODES).fold(None, |next, key| Some(DBox::new(Node { key, next, other: None })));
    on_stack(512 << 10, || drop(list))?;
    let last = || Nested { rows: DVec::new(), shared: None };
    let rows = (0..NODES / 4).fold(last(), |nested, _| Nested { rows: [nested].into(), shared: None });
    on_stack(512 << 10, || drop(rows))?;
    let add = |nested, _| Nested { rows: DVec::new(), shared: Some(DArc::new(nested)) };
    let shared = (0..NODES / 4).fold(last(), add);
    on_stack(512 << 10, || drop(shared))?;
    nothing_is_left(objects)?;
    on_stack(7 * LARGE / 2, || {
        let one = DBox::new(std::hint::black_box([7u8; LARGE]));
        let one = std::hint::black_box(one.into_inner());
        one[LARGE - 1]
    })?;
    let owner = Rank(objects.ranks() - 1);
    let made = || DBox::from(Box::new(Large { bytes: [me.0 as u8 + 1; LARGE], _own: Own(1) }));
    for taken in [false, true] {
        let given = objects.hand(owner, Rank(0), (me == owner).then(made))?;
        let before = DROPPED.load(Ordering::Relaxed);
        let found = on_stack(LARGE / 2, || match given {
            Some(large) if taken => large.into_std_box().bytes[LARGE - 1],
            Some(large) => {
                drop(large);
                owner.0 as u8 + 1
            }
            None => owner.0 as u8 + 1,
        })?;
        let dropped = DROPPED.load(Ordering::Relaxed) - before;
        let is_right = found == owner.0 as u8 + 1 && dropped == u64::from(me == Rank(0));
        ensure(is_right, || format!("{me} has found {found}, and dropped {dropped}"))?;
    }
    nothing_is_left(objects)
}

/// Goal: lists of which each object is on another rank than the one before are gone after a barrier. Method: two ranks add to them in turn.
fn there_and_back(objects: &Objects, _seed: u64) -> Outcome {
    const LISTS: u64 = 16;
    const EACH: u64 = 100_000 / LISTS;
    let last = Rank(objects.ranks() - 1);
    fn longer(lists: DVec<DBox<Node>>) -> DVec<DBox<Node>> {
        let add = |(next, key)| DBox::new(Node { key, next: Some(next), other: None });
        lists.into_iter().zip(0..).map(add).collect()
    }
    let ended = objects.run(&RunOptions { workers: 1, ..RunOptions::default() }, || {
        let one = |key| DBox::new(Node { key, next: None, other: None });
        let mut lists: DVec<DBox<Node>> = (0..LISTS).map(one).collect();
        for _ in 0..EACH / 2 {
            let task = task!(|lists: DVec<DBox<Node>>| -> DVec<DBox<Node>> { longer(lists) });
            lists = longer(spawn_to(last, task, lists).join()?);
        }
        Ok::<_, vgas_objects::TaskError>(lists)
    })?;
    let lists = ended.transpose()?;
    drop(lists);
    let began = std::time::Instant::now();
    objects.barrier()?;
    println!("        {} has waited {:.1?} for the end of lists", objects.rank(), began.elapsed());
    nothing_is_left(objects)
}

/// How many of [`Own`] this process has dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

#[derive(Portable, Shareable)]
struct Own(u64);

impl Drop for Own {
    fn drop(&mut self) {
        DROPPED.fetch_add(self.0, Ordering::Relaxed);
    }
}

/// What owns such values: directly, behind objects, and where no drop can be told.
#[derive(Portable, Shareable)]
struct Deep {
    boxes: DVec<DBox<Option<DBox<Own>>>>,
    map: DMap<u64, DVec<Own>>,
    lock: DMutex<Own>,
    shared: DArc<DVec<Own>>,
    next: Option<DBox<Deep>>,
}

fn deep(depth: u32) -> Deep {
    Deep {
        boxes: (0..10).map(|_| DBox::new(Some(DBox::new(Own(1))))).collect(),
        map: (0..5).map(|key| (key, (0..2).map(|_| Own(1)).collect())).collect(),
        lock: DMutex::new(Own(1)),
        shared: DArc::new((0..3).map(|_| Own(1)).collect()),
        next: (depth > 1).then(|| DBox::new(deep(depth - 1))),
    }
}

/// Goal: a drop that the program has written runs once, on the rank of the owner who dies, however deep the value is in what only owns it.
fn own(objects: &Objects, _seed: u64) -> Outcome {
    const DEPTH: u32 = 4;
    const EACH: u64 = 10 + 10 + 1 + 3;
    let (ranks, me) = (objects.ranks(), objects.rank());
    for owner in (0..ranks).map(Rank) {
        let made = (me == owner).then(|| DBox::new(deep(DEPTH)));
        let last = Rank((owner.0 + 1) % ranks);
        let before = DROPPED.load(Ordering::Relaxed);
        drop(objects.hand(owner, last, made)?);
        objects.barrier()?;
        let dropped = DROPPED.load(Ordering::Relaxed) - before;
        let expected = if me == last { EACH * u64::from(DEPTH) } else { 0 };
        ensure(dropped == expected, || format!("{me} has dropped {dropped} of {expected} of {owner}"))?;
    }
    let all = crate::job(objects).all_reduce(DROPPED.load(Ordering::Relaxed), |a, b| a + b)?;
    let expected = EACH * u64::from(DEPTH * ranks);
    ensure(all == expected, || format!("{all} of {expected} were dropped"))?;
    nothing_is_left(objects)
}

/// Goal: what other ranks have let go of is room, as soon as it is needed. Method: a partition that has room for one of what is
/// made again and again, and is dropped elsewhere.
fn room(objects: &Objects, _seed: u64) -> Outcome {
    let last = Rank(objects.ranks() - 1);
    let ended = objects.run(&RunOptions::default(), || {
        for _ in 0..40 {
            let task = task!(|_: ()| -> DBox<DVec<u64>> { DBox::new((0..40_000).collect()) });
            let made = spawn_to(last, task, ()).join()?;
            spawn_to(Rank(0), task!(|row: DBox<DVec<u64>>| -> () { drop(row) }), made).join()?;
        }
        Ok::<_, vgas_objects::TaskError>(())
    })?;
    ended.unwrap_or(Ok(()))?;
    nothing_is_left(objects)
}

/// Goal: what somebody has asked for, and does not wait for, is dropped at once, and what is placed there then is not written by who was asked.
/// Method: a rank drops what it has just asked for; the home places values of other sizes.
fn given_up(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: u64 = 500;
    let (last, me) = (Rank(objects.ranks() - 1), objects.rank());
    for round in 0..8u64 {
        let made = || DBox::new((0..COUNT).map(|at| DBox::new(DBox::new(at))).collect::<DVec<Owns>>());
        let given = objects.hand(last, Rank(0), (me == last).then(made))?;
        for one in given.into_iter().flat_map(|given| given.into_inner()) {
            let mut asked = Box::pin(one.get());
            let _ = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            drop(asked);
            drop(one);
        }
        objects.barrier()?;
        let number = seed ^ round;
        let placed: Vec<_> = (0..60).map(|_| DBox::new([number; 1000])).collect();
        crate::job(objects).barrier()?;
        let is_right = placed.iter().all(|one| one.iter().all(|of| *of == number));
        ensure(is_right, || format!("{me} finds another value than it wrote in round {round}"))?;
    }
    nothing_is_left(objects)
}

/// How a rank ends that has named who has said something wrong.
const REFUSED: &str = "exit status 77";
const OTHER: &str = "has numbers of another program";

/// Goal: the first rank ends with these words about the second.
fn refused(objects: &Objects, ended: Outcome, words: &str) -> Outcome {
    if objects.rank() == Rank(0)
        && let Err(why) = &ended
        && why.to_string().contains("rank 1")
        && why.to_string().contains(words)
    {
        std::process::exit(77);
    }
    // The others end with the first, whose end says why.
    while objects.rank() != Rank(0) {
        std::thread::park();
    }
    ended
}

/// The second rank says what no rank says.
fn says(objects: &Objects, said: &[u64], words: &str) -> Outcome {
    const HANDLER: u8 = 113;
    let bytes: Vec<u8> = said.iter().flat_map(|word| word.to_le_bytes()).collect();
    let ended = match objects.rank() {
        Rank(0) => crate::job(objects).wait_until(|| false),
        // SAFETY: the handler refuses them.
        _ => unsafe { crate::job(objects).request_library(Rank(0), HANDLER, &[], &bytes) },
    };
    refused(objects, ended.map_err(Into::into), words)
}

/// The second rank drops an object of the first in a way in which none is dropped.
fn wrongly(objects: &Objects, how: fn(Owns), words: &str) -> Outcome {
    let made = (objects.rank() == Rank(0)).then(|| DBox::new(DBox::new(1)));
    objects.hand(Rank(0), Rank(1), made)?.into_iter().for_each(how);
    refused(objects, nothing_is_left(objects), words)
}
