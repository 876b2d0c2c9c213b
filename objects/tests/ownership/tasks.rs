//! Tasks: where they run, what they are lent, and how they end.

use crate::scenarios::{ensure, nothing_is_left, sent};
use crate::{HEAP, JOBS, Outcome, Scenario};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Signal, getpid, kill_process};
use vgas::{NodeId, Rank};
use vgas_objects::{
    DBox, DString, DVec, Objects, Place, Portable, RunOptions, Shareable, TaskError, rank, scope, spawn,
    spawn_to, task,
};

pub const ALL: &[Scenario] = &[
    Scenario { name: "task_places", jobs: JOBS, heap: HEAP, rank: |o, s| all(o, s, places), ends_with: None },
    Scenario { name: "task_tree", jobs: JOBS, heap: HEAP, rank: |o, s| all(o, s, tree), ends_with: None },
    Scenario { name: "task_lent", jobs: JOBS, heap: HEAP, rank: |o, s| all(o, s, lent), ends_with: None },
    Scenario { name: "task_panics", jobs: JOBS, heap: HEAP, rank: quiet, ends_with: None },
    Scenario { name: "task_random", jobs: JOBS, heap: HEAP, rank: |o, s| all(o, s, random), ends_with: None },
    Scenario {
        name: "task_leaves",
        jobs: &[(2, 2), (4, 2), (3, 3)],
        heap: HEAP,
        rank: |o, s| all(o, s, leaves),
        ends_with: None,
    },
    Scenario {
        name: "task_messages",
        jobs: &[(2, 2)],
        heap: HEAP,
        rank: |o, s| all(o, s, messages),
        ends_with: None,
    },
    Scenario {
        name: "task_killed",
        jobs: &[(2, 1), (2, 2), (3, 3)],
        heap: HEAP,
        rank: |o, s| all(o, s, killed),
        ends_with: Some("killed by signal 9"),
    },
];

/// Runs a program on all ranks, twice, and sees to it that nothing is left of it.
fn all(objects: &Objects, seed: u64, main: fn(&Objects, u64) -> Outcome) -> Outcome {
    for (workers, seed) in [(1, seed), (3, seed + 1)] {
        let options = RunOptions { workers, ..RunOptions::default() };
        let ended = objects.run(&options, || main(objects, seed))?;
        ensure(ended.is_some() == (objects.rank() == Rank(0)), || "the first rank runs it".into())?;
        ended.unwrap_or(Ok(()))?;
        objects.barrier()?;
        nothing_is_left(objects)?;
    }
    Ok(())
}

/// With panics that say nothing by themselves, on whatever rank.
fn quiet(objects: &Objects, seed: u64) -> Outcome {
    std::panic::set_hook(Box::new(|_| {}));
    all(objects, seed, panics)
}

fn here() -> u32 {
    rank().map_or(u32::MAX, |rank| rank.0)
}

/// Goal: a task runs where it is to run, gets what it is given, and its result comes back.
fn places(objects: &Objects, _seed: u64) -> Outcome {
    let job = crate::job(objects);
    for to in (0..objects.ranks()).map(Rank) {
        let ran = spawn_to(to, task!(|number: u64| -> (u32, u64) { (here(), number * 2) }), 21).join()?;
        ensure(ran == (to.0, 42), || format!("{ran:?} on {to}"))?;
        let made =
            spawn_to(to, task!(|text: DString| -> DBox<DString> { DBox::new(text) }), DString::from("given"))
                .join()?;
        ensure(**made == *"given" && DBox::rank(&made) == Some(to), || format!("{made:?}"))?;
        // Where its object is.
        let found = scope(|scope| {
            scope.spawn_to(&made, task!(|_text: &DBox<DString>, _n: ()| -> u32 { here() }), &made, ()).join()
        })?;
        ensure(found == to.0, || format!("{found} instead of {to}"))?;
    }
    for node in (0..job.nodes()).map(NodeId) {
        let ran = spawn_to(node, task!(|_n: ()| -> u32 { here() }), ()).join()?;
        ensure(job.layout().node_of(Rank(ran)) == node, || format!("{ran} is not of {node}"))?;
    }
    let nowhere = spawn_to(Rank(99), task!(|_n: ()| -> () {}), ()).join();
    ensure(nowhere.is_err(), || "there is no rank 99".into())?;
    // Not waited for: it is over when its handle is gone.
    let _ = spawn(task!(|_text: DString| -> DVec<u8> { DVec::new() }), DString::from("dropped"));
    Ok(())
}

#[derive(Portable, Shareable)]
struct Node {
    number: u64,
    children: DVec<DBox<Node>>,
}

fn grow(number: u64, depth: u64) -> DBox<Node> {
    let children = (0..if depth == 0 { 0 } else { 3 }).map(|child| grow(number * 3 + child, depth - 1));
    DBox::new(Node { number, children: children.collect() })
}

fn sum(node: &DBox<Node>) -> Result<u64, TaskError> {
    scope(|scope| {
        let each: Vec<_> = node
            .children
            .iter()
            .map(|child| {
                let sum = task!(|node: &DBox<Node>, _n: ()| -> Option<u64> { sum(node).ok() });
                scope.spawn(sum, child, ())
            })
            .collect();
        let mut found = node.number;
        for one in each {
            found += one.join()?.unwrap_or(u64::MAX / 1_000_000);
        }
        Ok(found)
    })
}

/// Goal: tasks begin tasks and wait for them, with as few workers as there are.
fn tree(objects: &Objects, _seed: u64) -> Outcome {
    let to = Rank(objects.ranks() - 1);
    let tree = spawn_to(to, task!(|depth: u64| -> DBox<Node> { grow(1, depth) }), 4).join()?;
    fn plain(number: u64, depth: u64) -> u64 {
        number + if depth == 0 { 0 } else { (0..3).map(|child| plain(number * 3 + child, depth - 1)).sum() }
    }
    let found = sum(&tree)?;
    ensure(found == plain(1, 4), || format!("{found} instead of {}", plain(1, 4)))
}

/// Goal: what is lent is read and changed where a task runs, and is the lender's again, changed, when the scope ends.
fn lent(objects: &Objects, _seed: u64) -> Outcome {
    let ranks = objects.ranks();
    let mut list: DVec<u64> = DVec::new();
    let mut count = 0u64;
    let mut object = DBox::new([0u64; 10]);
    for round in 0..20u64 {
        let to = Rank((round % u64::from(ranks)) as u32);
        let text = DString::from(format!("round {round}").as_str());
        scope(|scope| {
            let _ = scope.spawn_to(
                to,
                task!(|(list, count, text): (&mut DVec<u64>, &mut u64, &DString), round: u64| -> () {
                    assert_eq!(**text, *format!("round {round}"));
                    list.push(round);
                    *count += list.len() as u64;
                }),
                (&mut list, &mut count, &text),
                round,
            );
            let _ = scope.spawn_to(
                Rank(ranks - 1),
                task!(|object: &mut DBox<[u64; 10]>, round: u64| -> () {
                    object[round as usize % 10] += 1;
                }),
                &mut object,
                round,
            );
        });
        ensure(list.iter().copied().eq(0..=round), || format!("{list:?} in round {round}"))?;
        let read = scope(|scope| {
            let read = task!(|(list, object): (&DVec<u64>, &DBox<[u64; 10]>), _n: ()| -> u64 {
                list.iter().sum::<u64>() + object.iter().sum::<u64>()
            });
            let all: Vec<_> =
                (0..ranks).map(|to| scope.spawn_to(Rank(to), read, (&list, &object), ())).collect();
            all.into_iter().map(|one| one.join()).collect::<Result<Vec<_>, _>>()
        })?;
        let expected = round * (round + 1) / 2 + round + 1;
        ensure(read.iter().all(|one| *one == expected), || format!("{read:?} instead of {expected}"))?;
    }
    ensure(count == 210 && *object == [2; 10], || format!("{count} {object:?}"))
}

/// Goal: a panic is an error that says where and what, of that task only; what it was lent is back.
fn panics(objects: &Objects, _seed: u64) -> Outcome {
    let to = Rank(objects.ranks() - 1);
    let mut number = DBox::new(1u64);
    let ended = scope(|scope| {
        let task = task!(|number: &mut DBox<u64>, by: u64| -> () {
            **number += by;
            panic!("at {}", **number);
        });
        scope.spawn_to(to, task, &mut number, 4).join()
    });
    let why = ended.map_err(|error| error.to_string());
    ensure(why == Err(format!("a task has panicked on {to}: at 5")), || format!("{why:?}"))?;
    ensure(*number == 5, || format!("{}", *number))?;
    // Also when what has lent it unwinds, and nobody joins.
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        scope(|scope| {
            let add = task!(|number: &mut DBox<u64>, by: u64| -> () {
                **number += by;
            });
            let handle = scope.spawn_to(to, add, &mut number, 4);
            std::mem::forget(handle);
            panic!("here");
        })
    }));
    ensure(unwound.is_err() && *number == 9, || format!("{}", *number))?;
    let fine = spawn_to(to, task!(|_n: ()| -> u64 { 7 }), ()).join()?;
    ensure(fine == 7, || "a worker was lost".into())
}

/// Goal: random tasks do what the same functions do.
fn random(objects: &Objects, seed: u64) -> Outcome {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut rows: Vec<(DVec<u64>, Vec<u64>)> = (0..4).map(|_| Default::default()).collect();
    for _ in 0..20 {
        let mut plans: Vec<(Place, u64)> = Vec::new();
        for (_, plain) in &mut rows {
            let number: u64 = random.random_range(0..1000);
            let to = Rank(random.random_range(0..objects.ranks()));
            plans.push((if number.is_multiple_of(3) { Place::Anywhere } else { Place::Rank(to) }, number));
            step(plain, number);
        }
        scope(|scope| {
            for ((row, _), (place, number)) in rows.iter_mut().zip(plans) {
                let change = task!(|row: &mut DVec<u64>, number: u64| -> () {
                    let mut plain = std::mem::take(row).into_vec().unwrap_or_default();
                    step(&mut plain, number);
                    *row = plain.into_iter().collect();
                });
                let handle = scope.spawn_to(place, change, row, number);
                if number.is_multiple_of(2) {
                    drop(handle);
                } else {
                    std::mem::forget(handle);
                }
            }
        });
        let differs = rows.iter().position(|(row, plain)| row[..] != plain[..]);
        ensure(differs.is_none(), || format!("{:?}", differs.map(|at| &rows[at])))?;
    }
    Ok(())
}

fn step(row: &mut Vec<u64>, number: u64) {
    match number % 4 {
        0 => row.extend(0..number % 50),
        1 => row.truncate(number as usize % 50),
        2 => row.iter_mut().for_each(|one| *one = one.wrapping_mul(number)),
        _ => row.reverse(),
    }
}

/// Goal: tasks that may run anywhere go where nothing is done.
fn leaves(objects: &Objects, _seed: u64) -> Outcome {
    let busy = task!(|number: u64| -> u32 {
        let began = std::time::Instant::now();
        while began.elapsed() < std::time::Duration::from_millis(2) {
            std::hint::black_box(number);
        }
        here()
    });
    let job = crate::job(objects);
    // Workers elsewhere may begin late.
    for _ in 0..500 {
        let all: Vec<_> = (0..20).map(|number| spawn(busy, number)).collect();
        let ran: Vec<u32> = all.into_iter().map(|one| one.join()).collect::<Result<_, _>>()?;
        if ran.iter().any(|rank| job.layout().node_of(Rank(*rank)) != job.node()) {
            return Ok(());
        }
    }
    Err("all tasks have stayed where they were begun".into())
}

/// Goal: a task on another node costs a message and its answer, whatever it is lent.
fn messages(objects: &Objects, _seed: u64) -> Outcome {
    let mut list: DVec<u64> = DVec::new();
    for number in 0..100 {
        let before = sent(objects);
        let length = scope(|scope| {
            let add = task!(|list: &mut DVec<u64>, number: u64| -> u64 {
                list.push(number);
                list.len() as u64
            });
            scope.spawn_to(Rank(1), add, &mut list, number).join()
        })?;
        let messages = sent(objects) - before;
        // Over shared memory, what workers and agents say to each other is counted, too.
        let is_counted = crate::job(objects).endpoint().counts().network.requests > 0;
        ensure(length == number + 1 && (messages == 1 || !is_counted), || {
            format!("{length} values, {messages} messages")
        })?;
    }
    Ok(())
}

/// A rank ends within a task: all end, with a sentence that names it.
fn killed(objects: &Objects, _seed: u64) -> Outcome {
    let to = Rank(objects.ranks() - 1);
    let mut number = DBox::new(1u64);
    scope(|scope| {
        let task = task!(|number: &mut DBox<u64>, _n: ()| -> () {
            **number += 1;
            let _ = kill_process(getpid(), Signal::KILL);
        });
        scope.spawn_to(to, task, &mut number, ()).join()
    })?;
    Ok(())
}
