//! What several owners share: by many ranks, each with several threads.

use crate::scenarios::{ensure, nothing_is_left};
use crate::{HEAP, JOBS, Outcome, Scenario};
use rustix::process::{Signal, getpid, kill_process};
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::Rank;
use vgas_objects::sync::{DArc, DAtomicBool, DAtomicI64, DAtomicU32, DAtomicU64, DMutex, DRwLock, LockError};
use vgas_objects::{DBox, DVec, Objects, Portable, Shareable, task};

pub const ALL: &[Scenario] = &[
    Scenario { name: "shared_numbers", jobs: JOBS, heap: HEAP, rank: numbers, ends_with: None },
    Scenario { name: "counted_values", jobs: JOBS, heap: HEAP, rank: values, ends_with: None },
    Scenario { name: "locked_values", jobs: JOBS, heap: HEAP, rank: locked, ends_with: None },
    Scenario { name: "read_locked", jobs: JOBS, heap: HEAP, rank: read_locked, ends_with: None },
    Scenario { name: "tried_locks", jobs: JOBS, heap: HEAP, rank: tried, ends_with: None },
    Scenario { name: "poisoned_lock", jobs: &[(1, 1), (2, 2)], heap: HEAP, rank: poisoned, ends_with: None },
    Scenario {
        name: "killed_in_lock",
        jobs: &[(2, 1), (2, 2), (3, 3)],
        heap: HEAP,
        rank: killed,
        ends_with: Some("killed by signal 9"),
    },
];

const THREADS: u64 = 3;

/// The same in several threads of this rank.
fn in_threads(work: impl Fn(u64) -> Outcome + Sync) -> Outcome {
    let failed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let work = &work;
                scope.spawn(move || work(thread).err().map(|why| why.to_string()))
            })
            .collect();
        threads
            .into_iter()
            .find_map(|thread| thread.join().unwrap_or_else(|_| Some("a thread has panicked".into())))
    });
    failed.map_or(Ok(()), |why| Err(why.into()))
}

#[derive(Portable, Shareable)]
struct Numbers {
    sum: DAtomicU64,
    least: DAtomicI64,
    drawn: DAtomicU32,
    is_first: DAtomicBool,
    firsts: DAtomicU64,
}

/// Goal: what ranks and threads add is all there, each number is drawn once, and one is the first.
fn numbers(objects: &Objects, _seed: u64) -> Outcome {
    const EACH: u64 = 200;
    let (me, all) = (u64::from(objects.rank().0), u64::from(objects.ranks()) * THREADS);
    for owner in (0..objects.ranks()).map(Rank) {
        let own = (owner == objects.rank()).then(|| {
            DBox::new(Numbers {
                sum: DAtomicU64::new(0),
                least: DAtomicI64::new(i64::MAX),
                drawn: DAtomicU32::new(0),
                is_first: DAtomicBool::new(false),
                firsts: DAtomicU64::new(0),
            })
        });
        objects.lend(owner, own.as_ref(), |numbers| {
            in_threads(|thread| {
                for at in 0..EACH {
                    numbers.sum.fetch_add(at)?;
                    numbers.sum.fetch_sub(1)?;
                    let number = (me * THREADS + thread) as i64;
                    numbers.least.fetch_min(-number)?;
                    // As many times as it takes, each of which is another's.
                    let mut seen = numbers.drawn.load()?;
                    while let Err(other) = numbers.drawn.compare_exchange(seen, seen + 1)? {
                        seen = other;
                    }
                }
                if !numbers.is_first.swap(true)? {
                    numbers.firsts.fetch_add(1)?;
                }
                Ok(())
            })
        })??;
        let sums =
            objects.lend(owner, own.as_ref(), |numbers| -> Result<_, Box<dyn std::error::Error>> {
                Ok((
                    numbers.sum.load()?,
                    numbers.least.load()?,
                    numbers.drawn.load()?,
                    numbers.firsts.load()?,
                ))
            })??;
        let expected = (all * (EACH * (EACH - 1) / 2 - EACH), 1 - all as i64, (all * EACH) as u32, 1);
        ensure(sums == expected, || format!("{sums:?} instead of {expected:?}"))?;
    }
    nothing_is_left(objects)
}

static ENDED: AtomicU64 = AtomicU64::new(0);

#[derive(Portable, Shareable)]
struct Value {
    number: u64,
    part: DBox<[u64; 30]>,
    inner: Option<DArc<Value>>,
}

impl Drop for Value {
    fn drop(&mut self) {
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Goal: owners on all ranks read a value while any of them has it, whoever has made it; the last drops it, once, with what it owns.
/// Method: each rank in turn makes one, all clone it through copies, by several threads; its maker goes first.
fn values(objects: &Objects, _seed: u64) -> Outcome {
    let ranks = objects.ranks();
    let value = |number| Value { number, part: DBox::new([number; 30]), inner: None };
    let read =
        |value: &Value| (value.number, value.part[29], value.inner.as_ref().map(|inner| inner.part[0]));
    for owner in (0..ranks).map(Rank) {
        let number = u64::from(owner.0) + 7;
        let expected = (number, number, Some(number + 1));
        let own = (owner == objects.rank()).then(|| {
            let mut outer = value(number);
            outer.inner = Some(DArc::new(value(number + 1)));
            DBox::new(DArc::new(outer))
        });
        let kept = objects.lend(owner, own.as_ref(), |shared| -> Result<_, String> {
            in_threads(|_| {
                for _ in 0..100 {
                    let clones = [DArc::clone(shared), DArc::clone(shared)];
                    ensure(read(&clones[1]) == expected, || "a clone is another".into())?;
                }
                Ok(())
            })
            .map_err(|why| why.to_string())?;
            Ok((DArc::clone(shared), shared.inner.clone()))
        })??;
        drop(own);
        objects.barrier()?;
        ensure(read(&kept.0) == expected, || "it ended before its owners".into())?;
        ensure(kept.1.as_ref().is_some_and(|inner| inner.number == number + 1), || "so did its part".into())?;
        drop(kept.0);
        objects.barrier()?;
        ensure(kept.1.as_ref().is_some_and(|inner| inner.part[7] == number + 1), || "its part ended".into())?;
        drop(kept.1);
        objects.barrier()?;
        let ended = crate::job(objects).all_reduce(ENDED.load(Ordering::Relaxed), |a, b| a + b)?;
        let made = 2 * (u64::from(owner.0) + 1);
        ensure(ended == made, || format!("{ended} of {made} values were dropped"))?;
    }
    alone(objects)?;
    nothing_is_left(objects)
}

/// Goal: a value is changed, and taken out, by its only owner, wherever that is, and what others have read of it is not found again.
fn alone(objects: &Objects) -> Outcome {
    let (me, first, last) = (objects.rank(), Rank(0), Rank(objects.ranks() - 1));
    let own = (me == first).then(|| DBox::new(DArc::new([1u64; 20])));
    let kept = objects.lend(first, own.as_ref(), |shared| (me == last).then(|| DArc::clone(shared)))?;
    if let Some(own) = own {
        let mut own = own.into_inner();
        ensure(DArc::get_mut(&mut own)?.is_none(), || "there is another owner".into())?;
        ensure(DArc::try_unwrap(own)?.is_err(), || "there was another owner".into())?;
    }
    objects.barrier()?;
    if let Some(mut kept) = kept {
        ensure(kept[0] == 1, || "it is another".into())?;
        match DArc::get_mut(&mut kept)? {
            Some(value) => value[0] = 2,
            None => return Err("it is the only owner".into()),
        }
        ensure(kept[0] == 2, || "what was read is found again".into())?;
        let other = DArc::clone(&kept);
        ensure(DArc::is_same(&kept, &other) && other[0] == 2, || "a clone is another".into())?;
        drop(other);
        let value = DArc::try_unwrap(kept)?.map_err(|_| "it is the only owner again")?;
        ensure(value[0] == 2 && value[19] == 1, || format!("{value:?}"))?;
    }
    Ok(())
}

#[derive(Default, Portable, Shareable)]
struct Tally {
    count: u64,
    /// It comes to whoever has the lock.
    by: DVec<u32>,
}

/// Goal: a value behind a lock is changed by one at a time, of all ranks and threads, and none of it is lost; then nothing is left.
fn locked(objects: &Objects, _seed: u64) -> Outcome {
    const EACH: u64 = 20;
    let (me, ranks) = (objects.rank().0, objects.ranks());
    for owner in (0..ranks).map(Rank) {
        let own = (owner == objects.rank()).then(|| DBox::new(DMutex::new(Tally::default())));
        objects.lend(owner, own.as_ref(), |lock| {
            in_threads(|thread| {
                for round in 0..EACH {
                    let mut tally = match lock.try_lock()? {
                        Some(tally) => tally,
                        None => lock.lock()?,
                    };
                    tally.count += 1;
                    tally.by.push(me);
                    let is_so = tally.by.len() as u64 == tally.count;
                    ensure(is_so, || format!("thread {thread} of {me} in round {round}: {}", tally.count))?;
                }
                Ok(())
            })
        })??;
        if let Some(own) = own {
            let tally = own.into_inner().into_inner()?;
            let each = (0..ranks).map(|rank| tally.by.iter().filter(|by| **by == rank).count() as u64);
            ensure(each.into_iter().all(|each| each == EACH * THREADS), || format!("{:?}", tally.by))?;
        }
    }
    // Dropped with what it has.
    drop(DMutex::new(DBox::new(1u64)));
    nothing_is_left(objects)
}

/// Goal: who panics with a lock poisons it for all, until somebody says that it is well.
fn poisoned(objects: &Objects, _seed: u64) -> Outcome {
    std::panic::set_hook(Box::new(|_| {}));
    let last = Rank(objects.ranks() - 1);
    let own = (objects.rank() == Rank(0)).then(|| DBox::new(DMutex::new(1u64)));
    objects.lend(Rank(0), own.as_ref(), |lock| {
        if objects.rank() == last {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut guard = lock.lock().unwrap();
                *guard = 2;
                panic!("with it");
            }));
            ensure(ended.is_err(), || "it did not panic".into())?;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })??;
    objects.lend(Rank(0), own.as_ref(), |lock| {
        let refused = [lock.lock().map(drop), lock.try_lock().map(drop)];
        let is_so = |one: &Result<(), LockError>| matches!(one, Err(LockError::Poisoned(_)) | Ok(()));
        ensure(matches!(refused[0], Err(LockError::Poisoned(_))) && refused.iter().all(is_so), || {
            format!("{refused:?}")
        })
    })??;
    if let Some(own) = own {
        own.clear_poison()?;
        ensure(*own.lock()? == 2, || "another value".into())?;
    }
    nothing_is_left(objects)
}

/// A rank ends with a lock that others wait for: all end, with a sentence that names it.
fn killed(objects: &Objects, _seed: u64) -> Outcome {
    let own = (objects.rank() == Rank(0)).then(|| DBox::new(DMutex::new(1u64)));
    objects.lend(Rank(0), own.as_ref(), |lock| -> Result<(), LockError> {
        let guard = lock.lock()?;
        if objects.rank() == Rank(1) {
            let _ = kill_process(getpid(), Signal::KILL);
        }
        drop(guard);
        // Until the other has it.
        loop {
            lock.lock().map(drop)?;
        }
    })??;
    Ok(())
}

/// Goal: who tries for a lock that nobody has gets it, also at once after it was given back, or used by `with`; and not while somebody has it.
fn tried(objects: &Objects, _seed: u64) -> Outcome {
    const TIMES: u64 = 200;
    let (me, ranks) = (objects.rank(), objects.ranks());
    for owner in (0..ranks).map(Rank) {
        let own = (owner == me).then(|| DBox::new((DMutex::new(0u64), DRwLock::new(0u64))));
        objects.lend(owner, own.as_ref(), |locks| -> Outcome {
            let (lock, other) = &**locks;
            for turn in (0..ranks).map(Rank) {
                for time in (0..TIMES).filter(|_| turn == me) {
                    match time % 3 {
                        0 => *lock.lock()? += 1,
                        1 => *lock.try_lock()?.ok_or("nobody has it")? += 1,
                        _ => lock.with((), task!(|of: &mut u64, _n: ()| -> () { *of += 1 }))?,
                    }
                    let held = lock.try_lock()?.ok_or_else(|| format!("nobody has it, at {time}"))?;
                    ensure(lock.try_lock()?.is_none(), || "it was given twice".into())?;
                    drop(held);
                }
                if turn == me {
                    let none = |what| move || format!("{what} was refused");
                    let read = other.try_read()?.ok_or_else(none("to read"))?;
                    let again = other.try_read()?.ok_or_else(none("to read, too"))?;
                    ensure(other.try_write()?.is_none(), || "it is read".into())?;
                    drop((read, again));
                    let written = other.try_write()?.ok_or_else(none("to write"))?;
                    ensure(other.try_read()?.is_none(), || "it is written".into())?;
                    drop(written);
                }
                crate::job(objects).barrier()?;
            }
            Ok(())
        })??;
        if let Some(own) = own {
            let count = own.into_inner().0.into_inner()?;
            ensure(count == TIMES * u64::from(ranks), || format!("{count}"))?;
        }
    }
    nothing_is_left(objects)
}

/// Goal: who reads sees what a writer has left as a whole; several read at once.
fn read_locked(objects: &Objects, _seed: u64) -> Outcome {
    const EACH: u64 = 15;
    for owner in (0..objects.ranks()).map(Rank) {
        let own = (owner == objects.rank()).then(|| DBox::new(DRwLock::new((0u64, DVec::<u64>::new()))));
        objects.lend(owner, own.as_ref(), |lock| {
            in_threads(|thread| {
                for _ in 0..EACH {
                    if thread == 0 {
                        let mut both = lock.write()?;
                        both.0 += 1;
                        let next = both.0;
                        both.1.push(next);
                    }
                    let both = lock.read()?;
                    let is_so =
                        both.0 == both.1.len() as u64 && both.1.last().is_none_or(|last| *last == both.0);
                    ensure(is_so, || format!("{both:?}"))?;
                }
                Ok(())
            })
        })??;
        if let Some(own) = own {
            let (count, _) = own.into_inner().into_inner()?;
            ensure(count == EACH * u64::from(objects.ranks()), || format!("{count}"))?;
        }
    }
    nothing_is_left(objects)
}
