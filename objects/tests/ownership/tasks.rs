//! Tasks: where they run, what they are lent, and how they end.

use crate::scenarios::{ensure, nothing_is_left, sent};
use crate::{HEAP, JOBS, Outcome, Scenario};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Signal, getpid, kill_process};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use vgas::{NodeId, Rank};
use vgas_objects::sync::{DArc, DMutex};
use vgas_objects::{
    DBox, DMap, DString, DVec, Objects, Portable, RunOptions, Shareable, TaskError, TaskPlace, rank, scope,
    spawn, spawn_to, task, task_counts,
};

pub const ALL: &[Scenario] = &[
    Scenario { name: "task_places", jobs: JOBS, heap: HEAP, rank: |o, s| all(o, s, places), ends_with: None },
    Scenario {
        name: "task_default_place",
        jobs: &[(2, 1), (2, 2), (3, 3)],
        heap: HEAP,
        rank: |o, s| all(o, s, default_place),
        ends_with: None,
    },
    Scenario {
        name: OTHER_PROGRAM,
        jobs: &[(2, 1), (2, 2)],
        heap: HEAP,
        rank: |_, _| Err("it has attached".into()),
        ends_with: Some("rank 0 and rank 1 do not run the same program"),
    },
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
        name: "task_many",
        jobs: &[(1, 1), (2, 1), (2, 2)],
        heap: HEAP,
        rank: |o, s| all(o, s, many),
        ends_with: None,
    },
    Scenario {
        name: "task_spread",
        jobs: &[(2, 2), (2, 1), (3, 3)],
        heap: HEAP,
        rank: |o, s| all(o, s, spread),
        ends_with: None,
    },
    Scenario {
        name: "task_awaited",
        jobs: JOBS,
        heap: HEAP,
        rank: |o, s| all(o, s, awaited),
        ends_with: None,
    },
    Scenario {
        name: "task_awaited_within",
        jobs: &[(1, 1), (2, 1), (2, 2)],
        heap: HEAP,
        rank: |o, s| all(o, s, awaited_within),
        ends_with: None,
    },
    Scenario { name: "task_main_panics", jobs: JOBS, heap: HEAP, rank: main_panics, ends_with: None },
    Scenario { name: "task_forgotten", jobs: JOBS, heap: HEAP, rank: forgotten, ends_with: None },
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
    nobody(objects)?;
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

/// What is of all ranks is refused where they do not meet, and where one is named that there is not.
fn together(objects: &Objects) -> Outcome {
    let nested = objects.run(&RunOptions::default(), || ()).map(drop);
    let mut refused = vec![("run", nested)];
    if objects.ranks() > 1 {
        refused.extend([
            ("barrier", objects.barrier()),
            ("report", objects.report().map(drop)),
            ("hand", objects.hand(Rank(0), Rank(1), Some(DBox::new(1u64))).map(drop)),
            ("lend", objects.lend(Rank(0), Some(&DBox::new(1u64)), |_| ())),
            ("lend_mut", objects.lend_mut(Rank(0), Rank(1), Some(&mut DBox::new(1u64)), |_| ()).map(drop)),
        ]);
    }
    for (call, ended) in refused {
        let is_refused = matches!(&ended, Err(why) if why.to_string().contains("Objects::run"));
        ensure(is_refused, || format!("{call} within a run: {ended:?}"))?;
    }
    Ok(())
}

/// Without such a rank, nothing is given.
fn nobody(objects: &Objects) -> Outcome {
    let nobody = Rank(objects.ranks());
    let given = (objects.rank() == Rank(0)).then(|| DBox::new(1u64));
    let ended = [
        objects.hand(Rank(0), nobody, given).map(drop),
        objects.lend::<u64, _>(nobody, None, |_| ()),
        objects.lend_mut::<u64, _>(Rank(0), nobody, None, |_| ()).map(drop),
    ];
    let is_refused = |ended: &Result<(), vgas_objects::ObjectError>| matches!(ended, Err(why) if why.to_string().contains("there is no rank"));
    ensure(ended.iter().all(is_refused), || format!("{ended:?}"))
}

/// With panics that say nothing by themselves, on whatever rank.
fn quiet(objects: &Objects, seed: u64) -> Outcome {
    std::panic::set_hook(Box::new(|_| {}));
    all(objects, seed, panics)
}

fn here() -> u32 {
    rank().map_or(u32::MAX, |rank| rank.0)
}

/// What tasks are lent and given: some of it is on other ranks than the rest.
#[derive(Portable, Shareable)]
struct Parts {
    small: [DBox<u64>; 2],
    rest: Rest,
}

#[derive(Portable, Shareable)]
enum Rest {
    Box(DBox<[u64; 500]>),
    Row { row: DVec<u64> },
}

/// Goal: a task that is begun anywhere runs where most bytes of its arguments are: at a large row beside small boxes, and at two small boxes
/// beside one that is hardly larger; without boxes, here.
fn default_place(objects: &Objects, _seed: u64) -> Outcome {
    let last = Rank(objects.ranks() - 1);
    let make = task!(|count: u64| -> [DBox<u64>; 2] { [DBox::new(count), DBox::new(count)] });
    let make_row = task!(|count: u64| -> DVec<u64> { (0..count).collect() });
    const ROUNDS: usize = 20;
    let (mut at_boxes, mut at_row, mut at_lent_row, mut here_too) = (0, 0, 0, 0);
    let at = task!(|_all: Parts| -> u32 { here() });
    for _ in 0..ROUNDS {
        let parts = Parts { small: spawn_to(last, make, 2).join()?, rest: Rest::Box(DBox::new([7; 500])) };
        at_boxes += usize::from(spawn(at, parts).join()? == last.0);
        let row = spawn_to(last, make_row, 2000).join()?;
        let parts = Parts { small: [DBox::new(1), DBox::new(2)], rest: Rest::Row { row } };
        let found =
            scope(|scope| scope.spawn(task!(|_all: &Parts, _n: ()| -> u32 { here() }), &parts, ()).join())?;
        at_lent_row += usize::from(found == last.0);
        at_row += usize::from(spawn(at, parts).join()? == last.0);
        here_too += usize::from(spawn(task!(|_n: ()| -> u32 { here() }), ()).join()? == here());
    }
    // One that has nothing to do may take a task now and then.
    ensure([at_boxes, at_row, at_lent_row, here_too].iter().all(|count| *count > ROUNDS / 2), || {
        format!(
            "of {ROUNDS}, {at_boxes} ran at their boxes, {at_row} and {at_lent_row} at their rows, and {here_too} here"
        )
    })
}

/// Goal: ranks that run different programs, though of one size and with the same tasks, are given no heap, and the job's end says why.
/// Method: of two processes the first becomes a copy of its program in which one byte of a constant is another.
pub const OTHER_PROGRAM: &str = "task_other_program";

/// What is another in the other program.
static CONSTANT: &[u8] = b"one byte of this is another in a copy: a";

pub fn other_folder(seed: u64) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("vgas-other-program-{seed}"))
}

/// Whoever comes first in a job of [`OTHER_PROGRAM`] becomes another program.
pub fn become_another(seed: u64) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let folder = other_folder(seed);
    if std::hint::black_box(CONSTANT).ends_with(b"b") || std::fs::create_dir(&folder).is_err() {
        return Ok(());
    }
    let mut program = std::fs::read(std::env::current_exe()?)?;
    let at = program.windows(CONSTANT.len()).position(|bytes| bytes == CONSTANT).ok_or("no constant")?;
    program[at + CONSTANT.len() - 1] = b'b';
    let other = folder.join("other");
    std::fs::write(&other, program)?;
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755))?;
    Err(std::process::Command::new(other).args(std::env::args_os().skip(1)).exec().into())
}

/// Values whose places tasks are begun at.
type OfAllKinds = (DVec<u64>, DArc<u64>, DMutex<Range<u64>>, DMap<u64, u64>);

/// Goal: a task runs where it is to run, gets what it is given, and its result comes back.
fn places(objects: &Objects, _seed: u64) -> Outcome {
    let job = crate::job(objects);
    together(objects)?;
    for to in (0..objects.ranks()).map(Rank) {
        let ran = spawn_to(to, task!(|number: u64| -> (u32, u64) { (here(), number * 2) }), 21).join()?;
        ensure(ran == (to.0, 42), || format!("{ran:?} on {to}"))?;
        let made =
            spawn_to(to, task!(|text: DString| -> DBox<DString> { DBox::new(text) }), DString::from("given"))
                .join()?;
        ensure(**made == *"given" && DBox::rank(&made) == Some(to), || format!("{made:?}"))?;
        let mut moved = DBox::new_on(to, [7u64; 100])?;
        ensure(DBox::rank(&moved) == Some(to) && moved[99] == 7, || format!("{moved:?} instead of on {to}"))?;
        DBox::move_to(&mut moved, Rank(0))?;
        let raw = DBox::into_raw(moved);
        // SAFETY: the word of this box, of which none was made since.
        let again: DBox<[u64; 100]> = unsafe { DBox::from_raw(raw) };
        ensure(DBox::rank(&again) == Some(Rank(0)) && again[0] == 7, || format!("{again:?}"))?;
        // Where its object is.
        let found = scope(|scope| {
            scope.spawn_to(&made, task!(|_text: &DBox<DString>, _n: ()| -> u32 { here() }), &made, ()).join()
        })?;
        ensure(found == to.0, || format!("{found} instead of {to}"))?;
        let make = task!(|n: u64| -> OfAllKinds {
            ((0..n).collect(), DArc::new(n), DMutex::new(0..n), (0..n).map(|at| (at, at)).collect())
        });
        let (row, counted, lock, map) = spawn_to(to, make, 9).join()?;
        let of_all =
            [TaskPlace::from(&row), TaskPlace::from(&counted), TaskPlace::from(&lock), TaskPlace::from(&map)];
        ensure(of_all == [TaskPlace::Rank(to); 4], || format!("{of_all:?} instead of {to}"))?;
        ensure(*lock.lock()? == (0..9), || "a range went through a lock".into())?;
    }
    ensure(TaskPlace::from(&DVec::<u64>::new()) == TaskPlace::Anywhere, || "an empty row is nowhere".into())?;
    for node in (0..job.nodes()).map(NodeId) {
        let ran = spawn_to(node, task!(|_n: ()| -> u32 { here() }), ()).join()?;
        ensure(job.layout().node_of(Rank(ran)) == node, || format!("{ran} is not of {node}"))?;
    }
    let nowhere = spawn_to(Rank(99), task!(|_n: ()| -> () {}), ()).join();
    ensure(nowhere.is_err(), || "there is no rank 99".into())?;
    // Not waited for: it is over when its handle is gone.
    drop(spawn(task!(|_text: DString| -> DVec<u8> { DVec::new() }), DString::from("dropped")));
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
            drop(scope.spawn_to(
                to,
                task!(|(list, count, text): (&mut DVec<u64>, &mut u64, &DString), round: u64| -> () {
                    assert_eq!(**text, *format!("round {round}"));
                    list.push(round);
                    *count += list.len() as u64;
                }),
                (&mut list, &mut count, &text),
                round,
            ));
            drop(scope.spawn_to(
                Rank(ranks - 1),
                task!(|object: &mut DBox<[u64; 10]>, round: u64| -> () {
                    object[round as usize % 10] += 1;
                }),
                &mut object,
                round,
            ));
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
    // And a scope that ends by itself says what nobody was told; also of a task that was refused. Who was told of one is not told of those
    // that were dropped because of it.
    for (to, joins) in [(to, false), (Rank(objects.ranks()), false), (to, true)] {
        let mut joined = DBox::new(1u64);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scope(|scope| {
                let fail = task!(|number: &mut DBox<u64>, by: u64| -> () {
                    **number += by;
                    panic!("at {}", **number);
                });
                let all =
                    [scope.spawn_to(to, fail, &mut joined, 4), scope.spawn_to(to, fail, &mut number, 4)];
                match joins {
                    true => all.into_iter().try_for_each(|one| one.join()),
                    false => Ok(()),
                }
            })
        }));
        if joins {
            ensure(matches!(ended, Ok(Err(TaskError::Panicked { .. }))), || {
                "a failure was not returned".into()
            })?;
            continue;
        }
        let said = ended.err().and_then(|said| said.downcast::<String>().ok()).unwrap_or_default();
        let why = if to.0 < objects.ranks() { "panicked" } else { "there is no rank" };
        ensure(said.starts_with("a task that nobody has joined has failed: ") && said.contains(why), || {
            format!("{said:?} of a task on {to}")
        })?;
    }
    ensure(*number == 17, || format!("{}", *number))?;
    // A payload that panics when it is dropped, with another one.
    for at in [Rank(0), to] {
        let ended = spawn_to(at, task!(|_n: ()| -> () { std::panic::panic_any(Bomb(2)) }), ()).join();
        let is_told = matches!(&ended, Err(TaskError::Panicked { rank, .. }) if *rank == at);
        ensure(is_told, || format!("a task on {at} with such a payload: {ended:?}"))?;
    }
    let fine = spawn_to(to, task!(|_n: ()| -> u64 { 7 }), ()).join()?;
    ensure(fine == 7, || "a worker was lost".into())
}

/// Panics when it is dropped, so often within each other.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if let Some(left) = self.0.checked_sub(1) {
            std::panic::panic_any(Bomb(left));
        }
    }
}

/// Goal: a program that catches a panic of `main` goes on with all ranks at the same place, and its tasks have ended.
fn main_panics(objects: &Objects, _seed: u64) -> Outcome {
    std::panic::set_hook(Box::new(|_| {}));
    let is_first = objects.rank() == Rank(0);
    let last = Rank(objects.ranks() - 1);
    for round in 0..3u64 {
        let run = || {
            objects.run(&RunOptions::default(), || {
                std::mem::forget(spawn_to(last, task!(|number: u64| -> u64 { number }), round));
                std::panic::panic_any(round)
            })
        };
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Err(payload) => {
                let is_its_own = payload.downcast_ref() == Some(&round);
                ensure(is_first && is_its_own, || "another panic".into())?;
            }
            Ok(ended) => ensure(!is_first && ended?.is_none(), || "no panic".into())?,
        }
        objects.barrier()?;
    }
    let ran =
        objects.run(&RunOptions::default(), || spawn_to(last, task!(|_n: ()| -> u64 { 7 }), ()).join())?;
    ensure(ran.transpose()? == is_first.then_some(7), || "tasks do not run any more".into())?;
    nothing_is_left(objects)
}

/// Waits within a task for another one of its rank, as the program's executor does, or by looking again and again.
fn waits(depth: u64) -> u64 {
    let Some(less) = depth.checked_sub(1) else { return 0 };
    let here = TaskPlace::Rank(rank().unwrap_or(Rank(0)));
    let inner = spawn_to(here, task!(|depth: u64| -> u64 { waits(depth) }), less);
    let found = match depth % 2 {
        0 => block_on(inner),
        _ => {
            let _ = vgas_testing::until(crate::NOTICED_WITHIN, || inner.is_over().then_some(()));
            if inner.is_over() { inner.join() } else { Err(TaskError::Stopped) }
        }
    };
    found.map_or(u64::MAX, |found| found.saturating_add(1))
}

/// Goal: a task that keeps its thread until another one has ended does not keep that from beginning, though its rank has one worker.
fn awaited_within(objects: &Objects, _seed: u64) -> Outcome {
    for at in (0..objects.ranks()).map(Rank) {
        for depth in [1, 2, 5] {
            let found = spawn_to(at, task!(|depth: u64| -> u64 { waits(depth) }), depth).join()?;
            ensure(found == depth, || {
                format!("{found} of {depth} tasks within each other have ended on {at}")
            })?;
        }
    }
    Ok(())
}

/// Goal: random tasks do what the same functions do.
fn random(objects: &Objects, seed: u64) -> Outcome {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut rows: Vec<(DVec<u64>, Vec<u64>)> = (0..4).map(|_| Default::default()).collect();
    for _ in 0..20 {
        let mut plans: Vec<(TaskPlace, u64)> = Vec::new();
        for (_, plain) in &mut rows {
            let number: u64 = random.random_range(0..1000);
            let to = Rank(random.random_range(0..objects.ranks()));
            plans.push((
                if number.is_multiple_of(3) { TaskPlace::Anywhere } else { TaskPlace::Rank(to) },
                number,
            ));
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

/// Goal: a task on another node costs two messages, one there and one back, whatever it is lent.
fn messages(objects: &Objects, _seed: u64) -> Outcome {
    const ROUNDS: u64 = 100;
    let said = task!(|_n: ()| -> u64 { task_counts().sent });
    let mut list: DVec<u64> = DVec::new();
    let there = spawn_to(Rank(1), said, ()).join()?;
    let here = sent(objects);
    for number in 0..ROUNDS {
        let length = scope(|scope| {
            let add = task!(|list: &mut DVec<u64>, number: u64| -> u64 {
                list.push(number);
                list.len() as u64
            });
            scope.spawn_to(Rank(1), add, &mut list, number).join()
        })?;
        ensure(length == number + 1, || format!("{length} values after {number}"))?;
    }
    let here = sent(objects) - here;
    let there = spawn_to(Rank(1), said, ()).join()? - there;
    // Over shared memory, all that ranks and agents say to each other is counted elsewhere. Beyond them: the answer to the first
    // question, and that a rank has nothing to do, which it says once until it is given something.
    let is_counted = crate::endpoint(objects).counts().network.requests > 0;
    let as_few = ROUNDS..=ROUNDS + 2;
    ensure(!is_counted || as_few.contains(&here) && as_few.contains(&there), || {
        format!("{here} messages there and {there} back, for {ROUNDS} tasks")
    })
}

/// Goal: more tasks than may wait are begun before any is waited for; each runs once; those that stay in their process need no messages.
fn many(_objects: &Objects, _seed: u64) -> Outcome {
    const COUNT: u64 = 150_000;
    static RAN: AtomicU64 = AtomicU64::new(0);
    RAN.store(0, Ordering::Relaxed);
    let before = task_counts();
    let add = task!(|number: u64| -> u64 {
        RAN.fetch_add(1, Ordering::Relaxed);
        number
    });
    let all: Vec<_> = (0..COUNT).map(|number| spawn_to(Rank(0), add, number)).collect();
    let sum = all.into_iter().try_fold(0, |sum, one| Ok::<_, TaskError>(sum + one.join()?))?;
    let (ran, after) = (RAN.load(Ordering::Relaxed), task_counts());
    ensure((sum, ran) == (COUNT * (COUNT - 1) / 2, COUNT), || format!("{sum}, {ran} have run"))?;
    ensure(after.left == before.left, || format!("{after:?} after {before:?}: they may not leave"))?;
    // One after the other, and each within the one before.
    let each = task!(|depth: u64| -> u64 { nested(depth) });
    let found = spawn_to(Rank(0), each, 100).join()?;
    ensure(found == 100, || format!("{found} levels"))
}

fn nested(depth: u64) -> u64 {
    match depth {
        0 => 0,
        _ => {
            let inner =
                spawn_to(rank().unwrap_or(Rank(0)), task!(|depth: u64| -> u64 { nested(depth) }), depth - 1);
            inner.join().map_or(u64::MAX / 2, |inner| inner + 1)
        }
    }
}

/// Goal: what is begun on one rank is done by all within the time that they need together, and taking a task costs two messages.
fn spread(objects: &Objects, _seed: u64) -> Outcome {
    const COUNT: usize = 64;
    let compute = task!(|steps: u64| -> u32 {
        std::hint::black_box((0..steps).fold(1u64, |number, step| {
            std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) ^ step)
        }));
        here()
    });
    let counts = task!(|_n: ()| -> (u64, u64) { (task_counts().asked, task_counts().came) });
    let ranks = objects.ranks();
    let of = |rank| spawn_to(Rank(rank), counts, ()).join();
    let before: Vec<_> = (1..ranks).map(of).collect::<Result<_, _>>()?;
    // Some milliseconds each, on whatever machine. Beside programs that compute, a rank may be late by more than a whole round.
    let (mut ran, mut is_fair) = (Vec::new(), false);
    for _ in 0..10 {
        let all: Vec<_> = (0..COUNT).map(|_| spawn(compute, 4_000_000)).collect();
        ran = all.into_iter().map(|one| one.join()).collect::<Result<Vec<_>, _>>()?;
        let count = |rank| ran.iter().filter(|of| **of == rank).count();
        is_fair = (0..ranks).all(|rank| count(rank) >= COUNT / 10);
        if is_fair {
            break;
        }
    }
    ensure(is_fair, || format!("in no round have all ranks run a tenth; where the last has: {ran:?}"))?;
    for (rank, before) in (1..ranks).zip(before) {
        let after = of(rank)?;
        // A rank asks each other rank once until that has answered, and the answer is a task.
        let (asked, came) = (after.0 - before.0, after.1 - before.1);
        ensure(asked <= came + u64::from(ranks), || {
            format!("rank {rank} has asked {asked} times for {came} tasks")
        })?;
    }
    Ok(())
}

/// An executor: polls one future in this thread, which sleeps meanwhile.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Sleeper(std::thread::Thread, AtomicBool);
    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::Release);
            self.0.unpark();
        }
    }
    let sleeper = Arc::new(Sleeper(std::thread::current(), AtomicBool::new(false)));
    let waker = Waker::from(sleeper.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !sleeper.1.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

/// All of some futures, at the same time.
async fn all_of<F: Future + Unpin>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut left: Vec<_> = futures.map(|future| (Some(future), None)).collect();
    std::future::poll_fn(move |context| {
        for (future, output) in &mut left {
            if let Some(Poll::Ready(found)) = future.as_mut().map(|future| Pin::new(future).poll(context)) {
                (*future, *output) = (None, Some(found));
            }
        }
        match left.iter().all(|(future, _)| future.is_none()) {
            true => Poll::Ready(left.iter_mut().filter_map(|(_, output)| output.take()).collect()),
            false => Poll::Pending,
        }
    })
    .await
}

/// Goal: objects and tasks are awaited under an executor of the program's own, many at a time; those that are dropped or forgotten half
/// way leave nothing behind that others find.
fn awaited(objects: &Objects, seed: u64) -> Outcome {
    type Large = [u64; 20_000];
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let to = Rank(objects.ranks() - 1);
    let make = task!(|number: u64| -> DBox<[u64; 64]> { DBox::new([number; 64]) });
    let boxes = block_on(all_of((0..100).map(|number| spawn_to(to, make, number))));
    let mut boxes = boxes.into_iter().collect::<Result<Vec<_>, _>>()?;
    let large = task!(|number: u64| -> DBox<Large> { DBox::new([number; 20_000]) });
    let mut large = block_on(spawn_to(to, large, 5))?;
    for round in 0..10 {
        let read = block_on(all_of(boxes.iter().map(DBox::get)));
        for (number, one) in (0..).zip(read) {
            let one = one?;
            ensure(one.iter().all(|word| *word == number + round), || format!("{one:?} in round {round}"))?;
        }
        let whole = block_on(large.get())?;
        ensure(whole.iter().all(|word| *word == 5 + round), || {
            format!("{} in round {round}", whole[19_999])
        })?;
        drop(whole);
        // They are written where they are, so that what is here is of no use any more.
        scope(|scope| {
            let add = task!(|one: &mut DBox<[u64; 64]>, _n: ()| -> () {
                one.iter_mut().for_each(|word| *word += 1)
            });
            boxes.iter_mut().for_each(|one| drop(scope.spawn_to(to, add, one, ())));
            let add =
                task!(|one: &mut DBox<Large>, _n: ()| -> () { one.iter_mut().for_each(|word| *word += 1) });
            drop(scope.spawn_to(to, add, &mut large, ()));
        });
        // Begun, and not waited for.
        for one in &boxes {
            let mut get = one.get();
            match Pin::new(&mut get).poll(&mut Context::from_waker(Waker::noop())) {
                // It was here.
                Poll::Ready(found) => ensure(found?[63] == one[0], || "another object was borrowed".into())?,
                Poll::Pending => match random.random_range(0..3) {
                    0 => drop(get),
                    1 => std::mem::forget(get),
                    _ => ensure(block_on(get)?[63] == one[0], || "another object was borrowed".into())?,
                },
            }
        }
        let mut get = large.get();
        let _ = Pin::new(&mut get).poll(&mut Context::from_waker(Waker::noop()));
    }
    Ok(())
}

/// Goal: a program ends although it has forgotten what it has begun, wherever that is.
fn forgotten(objects: &Objects, _seed: u64) -> Outcome {
    for workers in [1, 3] {
        let options = RunOptions { workers, ..RunOptions::default() };
        let ended = objects.run(&options, || {
            let nap = task!(|depth: u64| -> u64 { nested(depth) });
            for number in 0..200u32 {
                let place = match number % 3 {
                    0 => TaskPlace::Anywhere,
                    _ => TaskPlace::Rank(Rank(number % objects.ranks())),
                };
                std::mem::forget(spawn_to(place, nap, 3));
            }
        })?;
        ensure(ended.is_some() == (objects.rank() == Rank(0)), || "the first rank runs it".into())?;
    }
    let late = spawn(task!(|_n: ()| -> () {}), ()).join();
    ensure(matches!(late, Err(TaskError::Stopped)), || format!("{late:?} after the run"))
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
