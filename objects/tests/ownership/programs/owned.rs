//! The same program on objects: on the first rank, with tasks on all.

use super::draw::{BOXES, FEW, Kind, ROOM, Step};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use vgas::Rank;
use vgas_objects::sync::{DArc, DMutex, DWeak, LockError, Receiver, Sender, TryRecvError, channel};
use vgas_objects::{DBox, DVec, TaskError, scope, spawn_to, task};

mod values {
    use vgas_objects::sync::DArc;
    use vgas_objects::{DBox, DVec, Portable, Shareable, TBox};
    crate::values!(DBox, TBox, DArc, DVec, #[derive(Portable, Shareable)]);
}

pub use values::{Item, dropped};
use values::{Leaf, change, change_leaf, digest, item, leaf, leaf_digest};

type Channel = (Sender<Item>, Receiver<Item>, usize);

/// What the program has, and has found.
#[derive(Default)]
pub struct World {
    ranks: u32,
    pub found: Vec<u64>,
    pub boxes: [Option<DBox<Item>>; BOXES],
    arcs: [Option<DArc<Leaf>>; BOXES],
    weaks: [Option<DWeak<Leaf>>; BOXES],
    locks: [Option<DMutex<Item>>; FEW],
    rows: [DVec<Item>; FEW],
    channels: [Option<Channel>; FEW],
}

type Found<T> = Result<T, Box<dyn Error>>;

/// As a panic, without its line.
fn panic_on_purpose() -> ! {
    resume_unwind(Box::new("on purpose"))
}

/// 1 for a task that has panicked on purpose, with those words.
fn panicked<R>(ended: Result<R, TaskError>) -> Found<u64> {
    match ended {
        Err(TaskError::Panicked { message, .. }) if message == "on purpose" => Ok(1),
        Err(other) => Err(other.into()),
        Ok(_) => Err("it has not panicked".into()),
    }
}

impl World {
    pub fn new(ranks: u32) -> Self {
        Self { ranks, ..Self::default() }
    }

    fn some(&mut self, at: usize, step: &Step) -> DBox<Item> {
        self.boxes[at].take().unwrap_or_else(|| DBox::new(item(step.number, step.mark + 32)))
    }

    fn here(&mut self, at: usize, step: &Step) -> &mut DBox<Item> {
        self.boxes[at].get_or_insert_with(|| DBox::new(item(step.number, step.mark + 32)))
    }

    /// One step.
    ///
    /// # Errors
    /// What went wrong with a peer, or is not as it should be.
    pub fn step(&mut self, step: &Step) -> Found<()> {
        let few = step.few();
        let found = match step.kind {
            Kind::New
            | Kind::NewThere
            | Kind::Ship
            | Kind::ShipOn
            | Kind::ShipDrop
            | Kind::ShipPanic
            | Kind::Change
            | Kind::Graft
            | Kind::Unbox
            | Kind::Drop => self.step_of_boxes(step)?,
            Kind::Lend
            | Kind::LendAll
            | Kind::LendMut
            | Kind::LendTwo
            | Kind::ReadAll
            | Kind::LendPanic
            | Kind::ScopePanic => Some(self.step_of_borrows(step)?),
            Kind::Send | Kind::SendThere | Kind::Receive | Kind::ReceiveThere | Kind::Close => {
                self.step_of_channels(step)?
            }
            Kind::ArcNew
            | Kind::ArcClone
            | Kind::ArcDrop
            | Kind::ArcShip
            | Kind::ArcInto
            | Kind::ArcMake
            | Kind::ArcTake => self.step_of_arcs(step)?,
            Kind::WeakNew | Kind::WeakClone | Kind::WeakDrop | Kind::WeakRead | Kind::WeakShip => {
                self.step_of_weaks(step)?
            }
            Kind::LockNew => {
                self.locks[few] = Some(DMutex::new(item(step.number, step.mark)));
                None
            }
            Kind::LockChange
            | Kind::LockThere
            | Kind::LockWith
            | Kind::LockAll
            | Kind::LockPanic
            | Kind::LockInto => Some(self.step_of_locks(step)?),
            Kind::RowPush | Kind::RowPop | Kind::RowShip | Kind::RowLend | Kind::RowCut => {
                Some(self.step_of_rows(step)?)
            }
        };
        self.found.extend(found);
        Ok(())
    }

    fn step_of_boxes(&mut self, step: &Step) -> Found<Option<u64>> {
        let Step { kind, a, b, number, mark, .. } = *step;
        let to = Rank(step.to);
        let given = (number, mark);
        match kind {
            Kind::New => self.boxes[a] = Some(DBox::new(item(number, mark))),
            Kind::NewThere => self.boxes[a] = Some(DBox::new_on(to, item(number, mark))?),
            Kind::Drop => self.boxes[a] = None,
            Kind::ShipDrop => {
                let of = self.some(a, step);
                return Ok(Some(spawn_to(to, task!(|of: DBox<Item>| -> u64 { digest(&of) }), of).join()?));
            }
            Kind::ShipPanic => {
                let task = task!(|(mut of, (number, mark)): (DBox<Item>, (u64, u16))| -> () {
                    change(&mut of, number, mark);
                    panic_on_purpose()
                });
                return panicked(spawn_to(to, task, (self.some(a, step), given)).join()).map(Some);
            }
            Kind::Graft => {
                let mut of = self.some(a, step);
                let before = std::mem::replace(&mut of.part, self.boxes[b].take());
                self.boxes[b] = before;
                let found = digest(&of);
                self.boxes[a] = Some(of);
                return Ok(Some(found));
            }
            _ => {
                let of = self.some(a, step);
                let (of, found) = match kind {
                    Kind::Ship => spawn_to(
                        to,
                        task!(|given: (DBox<Item>, (u64, u16))| -> (DBox<Item>, u64) { shipped(given) }),
                        (of, given),
                    )
                    .join()?,
                    Kind::ShipOn => {
                        let next = Rank((to.0 + 1) % self.ranks);
                        let on =
                            task!(|(next, given): (u32, (DBox<Item>, (u64, u16)))| -> (DBox<Item>, u64) {
                                let task = task!(|given: (DBox<Item>, (u64, u16))| -> (DBox<Item>, u64) {
                                    shipped(given)
                                });
                                spawn_to(Rank(next), task, given).join().unwrap_or_else(|why| panic!("{why}"))
                            });
                        spawn_to(to, on, (next.0, (of, given))).join()?
                    }
                    Kind::Unbox => {
                        let mut of = of.into_inner();
                        change(&mut of, number, mark);
                        let found = digest(&of);
                        (DBox::new(of), found)
                    }
                    _ => {
                        let mut of = of;
                        change(&mut of, number, mark);
                        let found = digest(&of);
                        (of, found)
                    }
                };
                self.boxes[a] = Some(of);
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn step_of_borrows(&mut self, step: &Step) -> Found<u64> {
        let Step { kind, a, b, number, mark, .. } = *step;
        let (to, ranks, given) = (Rank(step.to), self.ranks, (number, mark));
        // Of what lives as long as the scope in which it stands.
        macro_rules! read {
            () => {
                task!(|of: &DBox<Item>, _n: ()| -> u64 { digest(of) })
            };
        }
        macro_rules! write {
            () => {
                task!(|of: &mut DBox<Item>, (number, mark): (u64, u16)| -> u64 {
                    change(of, number, mark);
                    digest(of)
                })
            };
        }
        match kind {
            Kind::Lend => {
                let of = self.here(a, step);
                Ok(scope(|scope| scope.spawn_to(to, read!(), &*of, ()).join())?)
            }
            Kind::LendAll => {
                let of = &*self.here(a, step);
                let all: Result<Vec<u64>, _> = scope(|scope| {
                    let all: Vec<_> = (0..2 * ranks)
                        .map(|rank| scope.spawn_to(Rank(rank % ranks), read!(), of, ()))
                        .collect();
                    all.into_iter().map(|one| one.join()).collect()
                });
                let (all, here) = (all?, digest(of));
                match all.iter().all(|one| *one == here) {
                    true => Ok(here),
                    false => Err(format!("ranks read {all:x?}, and {here:x} here").into()),
                }
            }
            Kind::LendMut => {
                let of = self.here(a, step);
                Ok(scope(|scope| scope.spawn_to(to, write!(), of, given).join())?)
            }
            Kind::LendTwo => {
                let mut one = self.some(a, step);
                let other = self.boxes[b].take();
                let next = Rank((to.0 + 1) % ranks);
                let both = scope(|scope| {
                    let first = scope.spawn_to(to, write!(), &mut one, given);
                    let second = other.as_ref().map(|other| scope.spawn_to(next, read!(), other, ()));
                    Ok::<_, TaskError>((first.join()?, second.map(|second| second.join()).transpose()?))
                });
                if other.is_some() {
                    self.boxes[b] = other;
                }
                self.boxes[a] = Some(one);
                let (first, second) = both?;
                Ok(first ^ second.unwrap_or(0))
            }
            Kind::ReadAll => {
                let boxes: Vec<usize> = (0..BOXES).filter(|at| self.boxes[*at].is_some()).collect();
                let of: DVec<DBox<Item>> = self.boxes.iter_mut().filter_map(Option::take).collect();
                let rows: DVec<DVec<Item>> = self.rows.iter_mut().map(std::mem::take).collect();
                let lent = DBox::new((of, rows));
                let ended = scope(|scope| {
                    let read = task!(|of: &DBox<(DVec<DBox<Item>>, DVec<DVec<Item>>)>, _n: ()| -> u64 {
                        let all = DBox::read_all(of.0.iter());
                        let sum = all.iter().fold(1, |sum: u64, of| sum.rotate_left(1) ^ digest(of));
                        let rows = DVec::read_all(of.1.iter());
                        rows.into_iter().flatten().fold(sum, |sum, of| sum.rotate_left(1) ^ digest(of))
                    });
                    scope.spawn_to(to, read, &lent, ()).join()
                });
                let (of, rows) = lent.into_inner();
                boxes.into_iter().zip(of).for_each(|(at, of)| self.boxes[at] = Some(of));
                self.rows.iter_mut().zip(rows).for_each(|(row, of)| *row = of);
                Ok(ended?)
            }
            Kind::LendPanic => {
                let of = self.here(a, step);
                panicked(scope(|scope| {
                    let task = task!(|of: &mut DBox<Item>, (number, mark): (u64, u16)| -> () {
                        change(of, number, mark);
                        panic_on_purpose()
                    });
                    scope.spawn_to(to, task, of, given).join()
                }))
            }
            _ => {
                let of = self.here(a, step);
                // It unwinds before the task has ended, or begun.
                let ended = catch_unwind(AssertUnwindSafe(|| {
                    scope(|scope| -> () {
                        drop(scope.spawn_to(to, write!(), of, given));
                        panic_on_purpose()
                    });
                }));
                let said = ended.err().and_then(|said| said.downcast_ref::<&str>().copied());
                // Who unwinds is not told that its task was lost; who asks again is.
                spawn_to(to, task!(|_n: ()| -> () {}), ()).join()?;
                match said {
                    Some("on purpose") => Ok(1),
                    _ => Err("another panic than its own".into()),
                }
            }
        }
    }

    fn step_of_channels(&mut self, step: &Step) -> Found<Option<u64>> {
        let (few, to) = (step.few(), Rank(step.to));
        match step.kind {
            Kind::Send | Kind::SendThere => {
                let of = self.some(step.a, step);
                let (sender, _, waiting) = self.channels[few].get_or_insert_with(|| {
                    let (sender, receiver) = channel(ROOM);
                    (sender, receiver, 0)
                });
                if *waiting == ROOM {
                    return Ok(None);
                }
                *waiting += 1;
                if step.kind == Kind::Send {
                    sender.send(of.into_inner())?;
                } else {
                    let task = task!(|(sender, of): (Sender<Item>, DBox<Item>)| -> () {
                        sender.send(of.into_inner()).unwrap_or_else(|why| panic!("{why}"));
                    });
                    spawn_to(to, task, (sender.try_clone()?, of)).join()?;
                }
                Ok(None)
            }
            Kind::Receive => Ok(Some(match &mut self.channels[few] {
                Some((_, receiver, waiting)) if *waiting > 0 => {
                    *waiting -= 1;
                    let of = receiver.recv()?;
                    let found = digest(&of);
                    self.boxes[step.a] = Some(DBox::new(of));
                    found
                }
                Some((sender, receiver, _)) => {
                    sender.flush()?;
                    u64::from(matches!(receiver.try_recv(), Err(TryRecvError::Empty)))
                }
                None => 0,
            })),
            Kind::ReceiveThere => {
                let Some((sender, receiver, waiting)) = self.channels[few].take() else { return Ok(Some(0)) };
                let count = waiting - waiting / 2;
                let task = task!(|(receiver, count): (Receiver<Item>, u64)| -> (Receiver<Item>, u64) {
                    let sum = (0..count).fold(7, |sum: u64, _| {
                        sum.rotate_left(1) ^ digest(&receiver.recv().unwrap_or_else(|why| panic!("{why}")))
                    });
                    (receiver, sum)
                });
                let (receiver, sum) = spawn_to(to, task, (receiver, count as u64)).join()?;
                self.channels[few] = Some((sender, receiver, waiting - count));
                Ok(Some(if count > 0 { sum } else { 7 }))
            }
            _ => {
                if let Some((sender, receiver, _)) = self.channels[few].take() {
                    match step.number % 2 {
                        0 => drop((sender, receiver)),
                        _ => drop((receiver, sender)),
                    }
                }
                Ok(None)
            }
        }
    }

    fn step_of_arcs(&mut self, step: &Step) -> Found<Option<u64>> {
        let Step { kind, a, b, number, mark, .. } = *step;
        Ok(match kind {
            Kind::ArcNew => {
                self.arcs[a] = Some(DArc::new(leaf(number, mark)));
                None
            }
            Kind::ArcClone => {
                self.arcs[b] = self.arcs[a].as_ref().map(DArc::try_clone).transpose()?;
                Some(u64::from(self.arcs[b].is_some()))
            }
            Kind::ArcDrop => {
                self.arcs[a] = None;
                None
            }
            Kind::ArcShip => {
                let Some(of) = &self.arcs[a] else { return Ok(Some(0)) };
                let task = task!(|of: DArc<Leaf>| -> u64 {
                    let (one, other) = (of.clone(), of.clone());
                    drop(of);
                    leaf_digest(&one) | leaf_digest(&other)
                });
                Some(spawn_to(Rank(step.to), task, DArc::try_clone(of)?).join()?)
            }
            Kind::ArcMake => {
                let Some(of) = &mut self.arcs[a] else { return Ok(Some(0)) };
                change_leaf(DArc::make_mut(of)?, number);
                Some(leaf_digest(of))
            }
            Kind::ArcTake => {
                let Some(of) = self.arcs[a].take() else { return Ok(Some(0)) };
                let found = leaf_digest(&of);
                // Alone or not: a rank may still keep units.
                drop(DArc::try_unwrap(of)?);
                Some(found)
            }
            _ => {
                let shared = self.arcs[a].as_ref().map(DArc::try_clone).transpose()?;
                let of = self.here(b, step);
                of.shared = shared;
                Some(digest(of))
            }
        })
    }

    fn step_of_weaks(&mut self, step: &Step) -> Found<Option<u64>> {
        let Step { kind, a, b, .. } = *step;
        Ok(match kind {
            Kind::WeakNew => {
                self.weaks[b] = self.arcs[a].as_ref().map(DArc::try_downgrade).transpose()?;
                Some(u64::from(self.weaks[b].is_some()))
            }
            Kind::WeakClone => {
                self.weaks[b] = self.weaks[a].as_ref().map(DWeak::try_clone).transpose()?;
                Some(u64::from(self.weaks[b].is_some()))
            }
            Kind::WeakDrop => {
                self.weaks[a] = None;
                None
            }
            Kind::WeakRead => {
                let owner = self.weaks[a].as_ref().map(DWeak::try_upgrade).transpose()?.flatten();
                Some(owner.map_or(0, |of| leaf_digest(&of)))
            }
            _ => {
                let Some(of) = &self.weaks[a] else { return Ok(Some(0)) };
                let task = task!(|of: DWeak<Leaf>| -> u64 {
                    let other = of.clone();
                    drop(of);
                    other.upgrade().map_or(0, |owner| leaf_digest(&owner))
                });
                Some(spawn_to(Rank(step.to), task, DWeak::try_clone(of)?).join()?)
            }
        })
    }

    fn step_of_locks(&mut self, step: &Step) -> Found<u64> {
        let Step { kind, b, number, mark, .. } = *step;
        let (few, to, ranks, given) = (step.few(), Rank(step.to), self.ranks, (number, mark));
        if kind == Kind::LockInto {
            let Some(lock) = self.locks[few].take() else { return Ok(0) };
            let of = lock.into_inner()?;
            let found = digest(&of);
            self.boxes[b] = Some(DBox::new(of));
            return Ok(found);
        }
        let Some(lock) = &self.locks[few] else { return Ok(0) };
        let ended = match kind {
            Kind::LockChange => locked(lock, given),
            Kind::LockThere => {
                let found = scope(|scope| {
                    // None: it is poisoned.
                    let task = task!(|lock: &DMutex<Item>, given: (u64, u16)| -> Option<u64> {
                        match locked(lock, given) {
                            Err(LockError::Poisoned(_)) => None,
                            found => Some(found.unwrap_or_else(|why| panic!("{why}"))),
                        }
                    });
                    scope.spawn_to(to, task, lock, given).join()
                })?;
                found.ok_or(LockError::Poisoned(0))
            }
            Kind::LockWith => lock.with(
                given,
                task!(|of: &mut Item, (number, mark): (u64, u16)| -> u64 {
                    change(of, number, mark);
                    digest(of)
                }),
            ),
            Kind::LockPanic => {
                lock.clear_poison()?;
                let ended = lock.with(
                    given,
                    task!(|of: &mut Item, (number, mark): (u64, u16)| -> () {
                        change(of, number, mark);
                        panic_on_purpose()
                    }),
                );
                match ended {
                    Err(LockError::Panicked { message, .. }) if message == "on purpose" => Ok(1),
                    Err(other) => return Err(other.into()),
                    Ok(()) => return Err("it has not panicked".into()),
                }
            }
            _ => {
                lock.clear_poison()?;
                let all: Result<(), TaskError> = scope(|scope| {
                    let add = task!(|lock: &DMutex<Item>, number: u64| -> () {
                        let mut of = lock.lock().unwrap_or_else(|why| panic!("{why}"));
                        of.number = of.number.wrapping_add(number);
                    });
                    let all: Vec<_> =
                        (0..ranks).map(|rank| scope.spawn_to(Rank(rank), add, lock, number)).collect();
                    all.into_iter().try_for_each(|one| one.join())
                });
                all?;
                Ok(digest(&*lock.lock()?))
            }
        };
        match ended {
            Err(LockError::Poisoned(_)) => {
                lock.clear_poison()?;
                Ok(1)
            }
            ended => Ok(ended?),
        }
    }

    fn step_of_rows(&mut self, step: &Step) -> Found<u64> {
        let Step { kind, a, b, number, mark, .. } = *step;
        let (few, to) = (step.few(), Rank(step.to));
        Ok(match kind {
            Kind::RowPush => {
                let of = self.some(a, step).into_inner();
                self.rows[few].push(of);
                self.rows[few].len() as u64
            }
            Kind::RowPop => {
                self.boxes[b] = self.rows[few].pop().map(DBox::new);
                self.rows[few].len() as u64
            }
            Kind::RowShip => {
                let task =
                    task!(|(mut row, (number, mark)): (DVec<Item>, (u64, u16))| -> (DVec<Item>, u64) {
                        row.push(item(number, mark + 32));
                        row.as_mut_slice().iter_mut().for_each(|of| of.number ^= number);
                        let sum = row.iter().fold(0, |sum, of| sum ^ digest(of));
                        (row, sum)
                    });
                let row = std::mem::take(&mut self.rows[few]);
                let (row, sum) = spawn_to(to, task, (row, (number, mark))).join()?;
                self.rows[few] = row;
                sum
            }
            Kind::RowLend => {
                let row = &self.rows[few];
                scope(|scope| {
                    let task = task!(|row: &DVec<Item>, _n: ()| -> u64 {
                        row.iter().fold(0, |sum, of| sum ^ digest(of))
                    });
                    scope.spawn_to(to, task, row, ()).join()
                })?
            }
            _ => {
                self.rows[few].truncate(b);
                self.rows[few].len() as u64
            }
        })
    }
}

fn shipped((mut of, (number, mark)): (DBox<Item>, (u64, u16))) -> (DBox<Item>, u64) {
    change(&mut of, number, mark);
    let found = digest(&of);
    (of, found)
}

fn locked(lock: &DMutex<Item>, (number, mark): (u64, u16)) -> Result<u64, LockError> {
    let mut of = lock.lock()?;
    change(&mut of, number, mark);
    Ok(digest(&of))
}
