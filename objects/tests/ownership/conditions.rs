//! Conditions, barriers, and work that goes to a lock.

use crate::scenarios::{ensure, nothing_is_left, reaches, sent};
use crate::{HEAP, JOBS, Outcome, Scenario};
use rustix::process::{Signal, getpid, kill_process};
use std::time::Duration;
use vgas::Rank;
use vgas_objects::sync::{DAtomicU64, DBarrier, DCondvar, DMutex, DRwLock, LockError};
use vgas_objects::{DBox, DVec, Objects, Portable, RunOptions, Shareable, rank, scope, spawn_to, task};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "condition_queue",
        jobs: JOBS,
        heap: HEAP,
        rank: |o, s| all(o, s, queue),
        ends_with: None,
    },
    Scenario {
        name: "condition_times",
        jobs: JOBS,
        heap: HEAP,
        rank: |o, s| all(o, s, times),
        ends_with: None,
    },
    Scenario {
        name: "barrier_rounds",
        jobs: JOBS,
        heap: HEAP,
        rank: |o, s| all(o, s, rounds),
        ends_with: None,
    },
    Scenario { name: "lock_with", jobs: JOBS, heap: HEAP, rank: with, ends_with: None },
    Scenario {
        name: "lock_messages",
        jobs: &[(2, 2)],
        heap: HEAP,
        rank: |o, s| all(o, s, messages),
        ends_with: None,
    },
    Scenario { name: "lock_nested", jobs: JOBS, heap: HEAP, rank: |o, s| all(o, s, nested), ends_with: None },
    Scenario { name: "lock_fairness", jobs: &[(4, 2)], heap: HEAP, rank: fairness, ends_with: None },
    Scenario {
        name: "condition_killed",
        jobs: &[(2, 1), (2, 2)],
        heap: HEAP,
        rank: |o, s| all(o, s, killed),
        ends_with: Some("killed by signal 9"),
    },
];

/// Runs a program on all ranks with one worker each, and sees to it that nothing is left of it.
fn all(objects: &Objects, seed: u64, main: fn(&Objects, u64) -> Outcome) -> Outcome {
    let ended = objects.run(&RunOptions::default(), || main(objects, seed))?;
    ended.unwrap_or(Ok(()))?;
    objects.barrier()?;
    nothing_is_left(objects)
}

/// Goal: a task that has a lock, and waits for another task, is in nobody's way: what waits in its rank and wants the lock is not run above it.
/// Method: the lock's holder waits for a task elsewhere, which lasts until one of its own that wants the lock, the next in its queue, has
/// begun.
fn nested(objects: &Objects, _seed: u64) -> Outcome {
    let lock = DMutex::new(0u64);
    for to in (0..objects.ranks()).map(Rank) {
        let next = (to.0 + 1) % objects.ranks();
        let before = *lock.lock()?;
        let found = scope(|scope| {
            let hold = task!(|lock: &DMutex<u64>, next: u32| -> u64 {
                scope_of_holder(lock, next).unwrap_or_else(|why| panic!("{why}"))
            });
            scope.spawn_to(to, hold, &lock, next).join()
        })?;
        ensure(found == before + 1, || format!("{found} after {before} on {to}"))?;
        let is = *lock.lock()?;
        ensure(is == before + 11, || format!("{is} after {before} on {to}"))?;
    }
    Ok(())
}

fn scope_of_holder(lock: &DMutex<u64>, next: u32) -> Result<u64, Box<dyn std::error::Error>> {
    let begun = DAtomicU64::new(0);
    scope(|scope| {
        let slow = task!(|begun: &DAtomicU64, is_elsewhere: u32| -> () {
            // On the same rank it is in the other's way itself.
            let waited = if is_elsewhere == 0 { Ok(()) } else { reaches(begun, 1) };
            waited.unwrap_or_else(|why| panic!("{why}"))
        });
        let mut held = lock.lock()?;
        let add = task!(|(lock, begun): (&DMutex<u64>, &DAtomicU64), _n: ()| -> () {
            let _ = begun.fetch_add(1);
            *lock.lock().unwrap_or_else(|why| panic!("{why}")) += 10;
        });
        let me = vgas_objects::rank().unwrap_or(Rank(0));
        let other = scope.spawn_to(me, add, (lock, &begun), ());
        scope.spawn_to(Rank(next), slow, &begun, u32::from(me != Rank(next))).join()?;
        *held += 1;
        let found = *held;
        drop(held);
        other.join()?;
        Ok(found)
    })
}

/// A queue of at most three, by hand.
#[derive(Portable, Shareable)]
struct Queue {
    waiting: DMutex<DVec<u64>>,
    has_room: DCondvar,
    has_some: DCondvar,
}

impl Queue {
    fn put(&self, number: u64) -> Result<(), LockError> {
        let mut waiting = self.has_room.wait_while(self.waiting.lock()?, |waiting| waiting.len() >= 3)?;
        waiting.push(number);
        drop(waiting);
        self.has_some.notify_one();
        Ok(())
    }

    fn take(&self) -> Result<u64, LockError> {
        let mut waiting = self.has_some.wait_while(self.waiting.lock()?, |waiting| waiting.is_empty())?;
        let number = waiting.pop().unwrap_or(u64::MAX);
        drop(waiting);
        self.has_room.notify_one();
        Ok(number)
    }
}

/// Goal: no notification is lost, whoever waits where: all that is put into a small queue is taken, once. Method: as many that put as take,
/// on all ranks, with one worker each.
fn queue(objects: &Objects, _seed: u64) -> Outcome {
    const EACH: u64 = 40;
    let queue =
        Queue { waiting: DMutex::new(DVec::new()), has_room: DCondvar::new(), has_some: DCondvar::new() };
    let sum = scope(|scope| -> Result<u64, Box<dyn std::error::Error>> {
        let mut takers = Vec::new();
        for to in (0..objects.ranks()).map(Rank) {
            let put = task!(|queue: &Queue, from: u64| -> () {
                (0..EACH).for_each(|number| queue.put(from * EACH + number).unwrap());
            });
            let take =
                task!(|queue: &Queue, _n: ()| -> u64 { (0..EACH).map(|_| queue.take().unwrap()).sum() });
            takers.push(scope.spawn_to(to, take, &queue, ()));
            let _detached = std::mem::ManuallyDrop::new(scope.spawn_to(to, put, &queue, to.0.into()));
        }
        takers.into_iter().try_fold(0, |sum, taker| Ok(sum + taker.join()?))
    })?;
    let all = u64::from(objects.ranks()) * EACH;
    ensure(sum == all * (all - 1) / 2, || format!("{sum} of {all} numbers"))
}

/// Goal: who waits for a time has the lock again then, with what others have left in it; who is notified in time is told so.
fn times(objects: &Objects, _seed: u64) -> Outcome {
    let last = Rank(objects.ranks() - 1);
    let shared = (DMutex::new(1u64), DCondvar::new());
    let (guard, waited) = shared.1.wait_timeout(shared.0.lock()?, Duration::from_millis(20))?;
    ensure(waited.timed_out() && *guard == 1, || format!("{waited:?}, {}", *guard))?;
    let mut changed = false;
    let mut guard = guard;
    scope(|scope| -> Outcome {
        let change = task!(|shared: &(DMutex<u64>, DCondvar), _n: ()| -> () {
            *shared.0.lock().unwrap() += 1;
            shared.1.notify_all();
        });
        let running = scope.spawn_to(last, change, &shared, ());
        while !changed {
            let waited = shared.1.wait_timeout(guard, Duration::from_secs(8))?;
            ensure(!waited.1.timed_out(), || "it was notified".into())?;
            guard = waited.0;
            changed = *guard == 2;
        }
        drop(guard);
        Ok(running.join()?)
    })?;
    ensure(changed, || "it is changed".into())?;
    // Nobody waits.
    shared.1.notify_one();
    Ok(())
}

/// Goal: nobody is a round ahead of another, and each round has one leader.
fn rounds(objects: &Objects, _seed: u64) -> Outcome {
    const ROUNDS: u64 = 10;
    let barrier = DBarrier::new(2 * objects.ranks() as usize);
    let (count, leaders) = (DMutex::new(0u64), DMutex::new(0u64));
    scope(|scope| -> Outcome {
        let parties = 2 * u64::from(objects.ranks());
        let mut running = Vec::new();
        for party in 0..parties {
            let party_of = task!(|(barrier, count, leaders): (&DBarrier, &DMutex<u64>, &DMutex<u64>),
                                  parties: u64|
             -> bool {
                (1..=ROUNDS).all(|round| {
                    *count.lock().unwrap() += 1;
                    *leaders.lock().unwrap() += u64::from(barrier.wait().is_leader());
                    let is_so = *count.lock().unwrap() == round * parties;
                    barrier.wait();
                    is_so
                })
            });
            let to = Rank((party % u64::from(objects.ranks())) as u32);
            running.push(scope.spawn_to(to, party_of, (&barrier, &count, &leaders), parties));
        }
        running.into_iter().try_for_each(|one| ensure(one.join()?, || "somebody was ahead".into()))
    })?;
    let leaders = leaders.into_inner()?;
    ensure(leaders == ROUNDS, || format!("{leaders} leaders"))
}

/// Goal: work goes to a lock wherever it is, one at a time, and comes back with what it says; a panic poisons it. Also where no tasks run.
fn with(objects: &Objects, seed: u64) -> Outcome {
    std::panic::set_hook(Box::new(|_| {}));
    all(objects, seed, |objects, _| {
        for owner in (0..objects.ranks()).map(Rank) {
            let lock = spawn_to(
                owner,
                task!(|_n: ()| -> DMutex<(u64, DVec<u32>)> { DMutex::new((0, DVec::new())) }),
                (),
            )
            .join()?;
            let where_it_runs = lock.with(
                (),
                task!(|_v: &mut (u64, DVec<u32>), _n: ()| -> u32 { rank().map_or(u32::MAX, |rank| rank.0) }),
            )?;
            let layout = crate::job(objects).layout();
            let is_near = layout.node_of(Rank(where_it_runs)) == layout.node_of(owner);
            ensure(is_near, || format!("{where_it_runs} instead of {owner}"))?;
            scope(|scope| -> Outcome {
                let add = task!(|lock: &DMutex<(u64, DVec<u32>)>, times: u64| -> u64 {
                    (0..times)
                        .map(|time| {
                            lock.with(
                                DBox::new(time),
                                task!(|value: &mut (u64, DVec<u32>), by: DBox<u64>| -> u64 {
                                    value.0 += *by;
                                    value.1.push(1);
                                    value.1.len() as u64
                                }),
                            )
                            .unwrap()
                        })
                        .max()
                        .unwrap_or(0)
                });
                let all: Vec<_> =
                    (0..objects.ranks()).map(|to| scope.spawn_to(Rank(to), add, &lock, 20)).collect();
                let mut most = 0;
                for one in all {
                    most = most.max(one.join()?);
                }
                ensure(most == 20 * u64::from(objects.ranks()), || format!("{most}"))
            })?;
            let panics = task!(|value: &mut (u64, DVec<u32>), _n: ()| -> () {
                value.0 = 1;
                panic!("within");
            });
            let ended = lock.with((), panics);
            let is_so = matches!(&ended, Err(LockError::Panicked { message, .. }) if message == "within");
            ensure(is_so, || format!("{ended:?}"))?;
            let ended = lock.with((), panics);
            ensure(matches!(ended, Err(LockError::Poisoned(_))), || format!("{ended:?}"))?;
            lock.clear_poison()?;
            let (sum, row) = lock.into_inner()?;
            let is_so = sum == 1 && row.len() as u64 == 20 * u64::from(objects.ranks());
            ensure(is_so, || format!("{sum} {row:?}"))?;
        }
        Ok(())
    })?;
    // Without tasks.
    let own = (objects.rank() == Rank(0)).then(|| DBox::new((DMutex::new(0u64), DRwLock::new(7u64))));
    objects.lend(Rank(0), own.as_ref(), |both| -> Result<(), LockError> {
        both.0.with(
            2,
            task!(|count: &mut u64, by: u64| -> () {
                *count += by;
            }),
        )?;
        assert_eq!(both.1.get()?, 7);
        Ok(())
    })??;
    if let Some(own) = own {
        let count = own.into_inner().0.into_inner()?;
        ensure(count == 2 * u64::from(objects.ranks()), || format!("{count}"))?;
    }
    nothing_is_left(objects)
}

/// Goal: a lock of another node is taken and given back by two messages of this rank, work goes there by one, and so does a look at a value.
fn messages(objects: &Objects, _seed: u64) -> Outcome {
    type Both = (DMutex<u64>, DRwLock<u64>);
    let make = task!(|_n: ()| -> Both { (DMutex::new(0), DRwLock::new(7)) });
    let both = spawn_to(Rank(1), make, ()).join()?;
    let expect = |what: &str, wanted: u64, deed: &mut dyn FnMut() -> Result<u64, LockError>| -> Outcome {
        let mut least = u64::MAX;
        // Workers with nothing to do ask others for tasks once in a while.
        for _ in 0..4 {
            let before = sent(objects);
            deed()?;
            least = least.min(sent(objects) - before);
        }
        ensure(least == wanted, || format!("{what}: {least} messages instead of {wanted}"))
    };
    let add = task!(|count: &mut u64, by: u64| -> u64 {
        *count += by;
        *count
    });
    expect("lock", 20, &mut || (0..10).try_fold(0, |sum, _| Ok(sum + *both.0.lock()?)))?;
    expect("with", 10, &mut || (0..10).try_fold(0, |sum, _| Ok(sum + both.0.with(1, add)?)))?;
    expect("get", 10, &mut || (0..10).try_fold(0, |sum, _| Ok(sum + both.1.get()?)))
}

/// Goal: all ranks that want a lock all the time have it about as often: of a number of turns, none has twice those of another.
fn fairness(objects: &Objects, _seed: u64) -> Outcome {
    const TURNS: u64 = 400;
    let own = (objects.rank() == Rank(0)).then(|| DBox::new(DMutex::new([0u64; 4])));
    let job = crate::job(objects);
    objects.lend(Rank(0), own.as_ref(), |turns| -> Result<(), LockError> {
        let me = objects.rank().0 as usize;
        // All begin when all are there: the first turn of each is not counted.
        turns.lock()?[me] += 0;
        loop {
            let mut turns = turns.lock()?;
            if turns.iter().sum::<u64>() == TURNS {
                return Ok(());
            }
            // Before all have had a turn, whoever is there first has them.
            let all_are_there = turns.iter().all(|turns| *turns > 0);
            if all_are_there || turns[me] == 0 {
                turns[me] += 1;
            }
        }
    })??;
    if let Some(own) = own {
        let turns = own.into_inner().into_inner()?;
        let (least, most) = (turns.iter().min(), turns.iter().max());
        ensure(most <= least.map(|least| 2 * least).as_ref(), || format!("{turns:?}"))?;
    }
    job.barrier()?;
    nothing_is_left(objects)
}

/// A rank ends while others wait for what it was to do.
fn killed(objects: &Objects, _seed: u64) -> Outcome {
    let last = Rank(objects.ranks() - 1);
    let shared = (DMutex::new(false), DCondvar::new());
    scope(|scope| -> Outcome {
        let _running = scope.spawn_to(
            last,
            task!(|shared: &(DMutex<bool>, DCondvar), _n: ()| -> () {
                let guard = shared.0.lock().unwrap();
                let _ = kill_process(getpid(), Signal::KILL);
                drop(guard);
            }),
            &shared,
            (),
        );
        let guard = shared.1.wait_while(shared.0.lock()?, |is_done| !*is_done)?;
        drop(guard);
        Ok(())
    })
}
