//! Values that are watched: by many ranks, which become owners while there is one.

use crate::scenarios::{ensure, nothing_is_left, sent};
use crate::{HEAP, JOBS, Outcome, Scenario};
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::Rank;
use vgas_objects::sync::{DArc, DAtomicU64, DMutex, DWeak, LockError};
use vgas_objects::{DBox, DVec, Objects, Portable, RunOptions, Shareable, spawn_to, task};

pub const ALL: &[Scenario] = &[
    Scenario { name: "watched_values", jobs: JOBS, heap: HEAP, rank: values, ends_with: None },
    Scenario { name: "watched_alone", jobs: JOBS, heap: HEAP, rank: alone, ends_with: None },
    Scenario { name: "watched_by_threads", jobs: JOBS, heap: HEAP, rank: by_threads, ends_with: None },
    Scenario { name: "watched_parents", jobs: JOBS, heap: HEAP, rank: parents, ends_with: None },
    Scenario { name: "watched_messages", jobs: &[(2, 2)], heap: HEAP, rank: messages, ends_with: None },
];

static ENDED: AtomicU64 = AtomicU64::new(0);

/// Of which all ranks have copies, and which itself leads elsewhere.
#[derive(Portable, Shareable)]
struct Value {
    number: u64,
    part: DBox<[u64; 30]>,
    itself: DMutex<DWeak<Value>>,
}

impl Drop for Value {
    fn drop(&mut self) {
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
}

fn value(number: u64, part: DBox<[u64; 30]>) -> Value {
    Value { number, part, itself: DMutex::new(DWeak::new()) }
}

fn ended(objects: &Objects, expected: u64) -> Outcome {
    let all = crate::job(objects).all_reduce(ENDED.load(Ordering::Relaxed), |a, b| a + b)?;
    ensure(all == expected, || format!("{all} of {expected} values were dropped"))
}

/// Goal: who watches a value becomes an owner while there is one, wherever the value is, and afterwards never; the value is dropped once, with its last
/// owner, and its place stays for who watches. Method: each rank in turn makes one, whose part is the next rank's and which watches itself; the last owner is on
/// the last rank, and the last watcher on the first; all have read it, so that copies count in what was dropped.
fn values(objects: &Objects, _seed: u64) -> Outcome {
    let (me, ranks) = (objects.rank(), objects.ranks());
    for owner in (0..ranks).map(Rank) {
        let next = Rank((owner.0 + 1) % ranks);
        let number = u64::from(owner.0) + 7;
        let part = objects.hand(next, owner, (me == next).then(|| DBox::new([number; 30])))?;
        let own = part.map(|part| {
            let new = DArc::new(value(number, part));
            let watcher = DArc::downgrade(&new);
            DBox::new((new, watcher))
        });
        let (kept, weak) =
            objects.lend(owner, own.as_ref(), |both| -> Result<_, Box<dyn std::error::Error>> {
                let weak = DWeak::clone(&both.1);
                let found = weak.upgrade().map(|value| value.number + value.part[29]);
                ensure(found == Some(2 * number), || format!("{found:?} instead of {number}"))?;
                if me == owner {
                    *both.0.itself.lock()? = DArc::downgrade(&both.0);
                }
                ensure(DWeak::is_same(&weak, &DArc::downgrade(&both.0)), || "it watches another".into())?;
                Ok(((me.0 == ranks - 1).then(|| DArc::clone(&both.0)), weak))
            })??;
        drop(own);
        objects.barrier()?;
        ended(objects, u64::from(owner.0))?;
        // All but the last rank have none.
        let upgraded = weak.upgrade();
        ensure(upgraded.as_ref().is_some_and(|value| value.part[7] == number), || {
            "it ended too early".into()
        })?;
        drop(upgraded);
        objects.barrier()?;
        drop(kept);
        objects.barrier()?;
        ended(objects, u64::from(owner.0) + 1)?;
        ensure(weak.upgrade().is_none(), || "an owner of what was dropped".into())?;
        ensure(weak.strong_count()? == 0 && weak.weak_count()? == 0, || "it has owners".into())?;
        let counts = objects.counts()?;
        let placed = counts.placed - counts.copies;
        ensure(placed == u64::from(me == owner), || format!("{me} has {placed} objects for who watches"))?;
        let first = (me == Rank(0)).then(|| DWeak::clone(&weak));
        drop(weak);
        objects.barrier()?;
        drop(first);
        nothing_is_left(objects)?;
    }
    Ok(())
}

/// Goal: a value that is watched is not written where it is; it is where nobody watches any more. Taken out, it is gone for who watches.
fn alone(objects: &Objects, _seed: u64) -> Outcome {
    let (me, first, last) = (objects.rank(), Rank(0), Rank(objects.ranks() - 1));
    let own = (me == first).then(|| DBox::new(DArc::new(value(1, DBox::new([1; 30])))));
    let weak = objects.lend(first, own.as_ref(), |shared| (me == last).then(|| DArc::downgrade(shared)))?;
    let mut own = own.map(DBox::into_inner);
    if let Some(own) = &mut own {
        ensure(DArc::get_mut(own)?.is_none(), || "somebody watches it".into())?;
        ensure(DArc::weak_count(own)? > 0 && DArc::strong_count(own)? == 1, || "other counts".into())?;
    }
    objects.barrier()?;
    let of_weak = objects.lend(last, weak.map(DBox::new).as_ref(), |weak| DWeak::clone(weak))?;
    objects.barrier()?;
    if let Some(own) = &mut own {
        let count = DArc::weak_count(own)?;
        ensure(count == objects.ranks() as usize, || format!("{count} watch it"))?;
    }
    objects.barrier()?;
    drop(of_weak);
    objects.barrier()?;
    if let Some(own) = &mut own {
        match DArc::get_mut(own)? {
            Some(value) => value.number = 2,
            None => return Err("nobody watches it any more".into()),
        }
    }
    // Taken out by another rank than its own, while all watch it.
    let own = own.map(DBox::new);
    let all = objects
        .lend(first, own.as_ref(), |shared| (DArc::downgrade(shared), me == last && shared.part[3] == 1))?;
    let own = objects.hand(first, last, own)?.map(DBox::into_inner);
    objects.barrier()?;
    ensure(all.1 == (me == last), || "another part".into())?;
    if let Some(own) = own {
        let taken = DArc::try_unwrap(own)?.map_err(|_| "it is the only owner")?;
        ensure(taken.number == 2 && taken.part[29] == 1, || format!("{} was taken out", taken.number))?;
        ended(objects, 0)?;
        drop(taken);
    } else {
        ended(objects, 0)?;
    }
    ensure(all.0.upgrade().is_none(), || "an owner of what was taken out".into())?;
    drop(all);
    ended(objects, 1)?;
    nothing_is_left(objects)
}

/// Goal: threads of all ranks become owners and cease to be while the last owners go: none finds what is dropped, and each value is dropped once.
fn by_threads(objects: &Objects, _seed: u64) -> Outcome {
    const ROUNDS: u64 = 12;
    let (me, ranks) = (objects.rank(), objects.ranks());
    for round in 0..ROUNDS {
        let owner = Rank((round % u64::from(ranks)) as u32);
        let own = (me == owner).then(|| DBox::new(DArc::new(value(round, DBox::new([round; 30])))));
        let (kept, weak) =
            objects.lend(owner, own.as_ref(), |shared| (DArc::clone(shared), DArc::downgrade(shared)))?;
        drop(own);
        let is_right = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|thread| {
                    let (weak, mine) = (weak.clone(), (thread == 0).then(|| DArc::clone(&kept)));
                    scope.spawn(move || {
                        let reads = (0..40).map(|at| {
                            let one = weak.upgrade();
                            let other = weak.clone().upgrade().filter(|_| at % 3 == 0);
                            drop((thread == 1).then(|| DWeak::strong_count(&weak)));
                            one.iter()
                                .chain(&other)
                                .all(|value| value.number == round && value.part[9] == round)
                        });
                        let is_right = reads.filter(|is_right| !is_right).count() == 0;
                        drop(mine);
                        is_right
                    })
                })
                .collect();
            drop(kept);
            threads.into_iter().all(|thread| thread.join().unwrap_or(false))
        });
        ensure(is_right, || format!("somebody has read another value in round {round}"))?;
        objects.barrier()?;
        ensure(weak.upgrade().is_none(), || "it has an owner still".into())?;
        ended(objects, round + 1)?;
        drop(weak);
        objects.barrier()?;
    }
    nothing_is_left(objects)
}

/// A folder of the crate's example, whose folders are on all ranks.
#[derive(Portable, Shareable)]
struct Folder {
    name: u64,
    parent: DWeak<Folder>,
    children: DMutex<DVec<DArc<Folder>>>,
    ended: DArc<DAtomicU64>,
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = self.ended.fetch_add(1);
    }
}

fn add(parent: &DArc<Folder>, name: u64) -> Result<DArc<Folder>, LockError> {
    let (children, ended) = (DMutex::new(DVec::new()), parent.ended.clone());
    let child = DArc::new(Folder { name, parent: DArc::downgrade(parent), children, ended });
    parent.children.lock()?.push(child.clone());
    Ok(child)
}

fn path(folder: &Folder) -> Vec<u64> {
    let mut path = folder.parent.upgrade().map_or(Vec::new(), |parent| path(&parent));
    path.push(folder.name);
    path
}

/// Goal: a tree whose nodes know their parents, made by tasks on all ranks, is gone with its root.
fn parents(objects: &Objects, _seed: u64) -> Outcome {
    let ranks = objects.ranks();
    let mut ended = None;
    objects.run(&RunOptions::default(), || -> Outcome {
        let count = DArc::new(DAtomicU64::new(0));
        let children = DMutex::new(DVec::new());
        let root = DArc::new(Folder { name: 0, parent: DWeak::new(), children, ended: count.clone() });
        ended = Some(count);
        let mut last = root.clone();
        for name in 1..=3 * u64::from(ranks) {
            let grow = task!(|(parent, name): (DArc<Folder>, u64)| -> DArc<Folder> {
                let child = add(&parent, name).unwrap_or_else(|why| panic!("{why}"));
                let found = path(&child);
                assert_eq!(found, (0..=name).collect::<Vec<_>>());
                child
            });
            last = spawn_to(Rank((name % u64::from(ranks)) as u32), grow, (last, name)).join()?;
        }
        let found = path(&last);
        ensure(found.len() as u32 == 3 * ranks + 1, || format!("{found:?}"))
    })?;
    objects.barrier()?;
    // What a folder drops may be given back by one barrier, and be the last of its parent at the next.
    (0..3 * ranks).try_for_each(|_| objects.barrier())?;
    if let Some(ended) = ended {
        let count = ended.load()?;
        ensure(count == 3 * u64::from(ranks) + 1, || format!("{count} folders were dropped"))?;
    }
    nothing_is_left(objects)
}

/// Goal: a rank's first watcher of another node's value takes a message and its answer, its first owner from a watcher two, and the others nothing.
fn messages(objects: &Objects, _seed: u64) -> Outcome {
    let (me, here, there) = (objects.rank(), Rank(0), Rank(1));
    let own = (me == there).then(|| {
        let new = DArc::new(7u64);
        let watcher = DArc::downgrade(&new);
        DBox::new((new, watcher))
    });
    let expect = |what: &str, wanted: u64, deed: &mut dyn FnMut() -> usize| -> Outcome {
        let before = sent(objects);
        let found = deed();
        let messages = sent(objects) - before;
        ensure(messages == wanted && found == 100, || {
            format!("{what}: {messages} requests instead of {wanted}, {found} times")
        })
    };
    let mut kept = objects.lend(there, own.as_ref(), |both| -> Result<_, Box<dyn std::error::Error>> {
        let mut weak = Vec::new();
        if me == here {
            expect("watch", 1, &mut || {
                weak.extend((0..100).map(|_| DWeak::clone(&both.1)));
                weak.len()
            })?;
        }
        Ok(weak)
    })??;
    objects.barrier()?;
    // By one rank: who changes a count at the same time lets another look again.
    if me == here {
        let mut owners = Vec::new();
        expect("become owners", 2, &mut || {
            owners.extend(kept.iter().filter_map(DWeak::upgrade));
            owners.len()
        })?;
        expect("drop", 0, &mut || {
            owners.clear();
            std::mem::take(&mut kept).len()
        })?;
    }
    drop(kept);
    objects.barrier()?;
    drop(own);
    nothing_is_left(objects)
}
