//! A program on `Box`, `Arc`, `Vec`, `Mutex` and channels of std: tasks are calls.

use super::draw::{BOXES, FEW, Kind, ROOM, Step};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};

/// Derives nothing.
mod values {
    use std::sync::Arc;
    crate::values!(Box, Box, Arc, Vec, #[derive(Debug)]);
}

pub use values::dropped;
use values::{Item, Leaf, change, change_leaf, digest, item, leaf, leaf_digest};

type Channel = (SyncSender<Item>, Receiver<Item>, usize);

#[derive(Default)]
pub struct World {
    ranks: u64,
    pub found: Vec<u64>,
    /// Places in `found` where objects may find this instead: a value that nobody has, and which a rank still keeps.
    pub or_late: Vec<(usize, u64)>,
    boxes: [Option<Box<Item>>; BOXES],
    arcs: [Option<Arc<Leaf>>; BOXES],
    /// With what their values are found to be.
    weaks: [Option<(Weak<Leaf>, u64)>; BOXES],
    locks: [Option<Mutex<Item>>; FEW],
    rows: [Vec<Item>; FEW],
    channels: [Option<Channel>; FEW],
}

/// Whether it panics.
fn panics(work: impl FnOnce()) -> u64 {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        work();
        // As a panic, without its line.
        resume_unwind(Box::new("on purpose"))
    }));
    let ended: Result<(), _> = ended;
    u64::from(ended.is_err())
}

impl World {
    pub fn new(ranks: u32) -> Self {
        Self { ranks: ranks.into(), ..Self::default() }
    }

    /// What is in a variable of items, or a new one.
    fn some(&mut self, at: usize, step: &Step) -> Box<Item> {
        self.boxes[at].take().unwrap_or_else(|| Box::new(item(step.number, step.mark + 32)))
    }

    pub fn step(&mut self, step: &Step) {
        let Step { kind, a, b, number, mark, .. } = *step;
        let few = step.few();
        let put = match kind {
            Kind::New | Kind::NewThere => {
                self.boxes[a] = Some(Box::new(item(number, mark)));
                return;
            }
            Kind::Ship | Kind::ShipOn | Kind::LendMut | Kind::Change => {
                let mut of = self.some(a, step);
                change(&mut of, number, mark);
                self.found.push(digest(&of));
                self.boxes[a] = Some(of);
                return;
            }
            Kind::ShipDrop => digest(&self.some(a, step)),
            Kind::ShipPanic => {
                let mut of = self.some(a, step);
                panics(move || change(&mut of, number, mark))
            }
            Kind::Lend | Kind::LendAll => {
                let of = self.some(a, step);
                let found = digest(&of);
                self.boxes[a] = Some(of);
                found
            }
            Kind::LendTwo => {
                let (mut one, other) = (self.some(a, step), self.boxes[b].take());
                change(&mut one, number, mark);
                let found = digest(&one) ^ other.as_deref().map_or(0, digest);
                if other.is_some() {
                    self.boxes[b] = other;
                }
                self.boxes[a] = Some(one);
                found
            }
            Kind::ReadAll => {
                let boxes =
                    self.boxes.iter().flatten().fold(1, |sum: u64, of| sum.rotate_left(1) ^ digest(of));
                let rows = self.rows.iter().flatten();
                rows.fold(boxes, |sum, of| sum.rotate_left(1) ^ digest(of))
            }
            Kind::LendPanic => {
                let of = self.boxes[a].get_or_insert_with(|| Box::new(item(number, mark + 32)));
                panics(|| change(of, number, mark))
            }
            Kind::ScopePanic => {
                let of = self.boxes[a].get_or_insert_with(|| Box::new(item(number, mark + 32)));
                panics(|| change(of, number, mark))
            }
            Kind::Graft => {
                let mut of = self.some(a, step);
                let before = std::mem::replace(&mut of.part, self.boxes[b].take());
                self.boxes[b] = before;
                let found = digest(&of);
                self.boxes[a] = Some(of);
                found
            }
            Kind::Unbox => {
                let mut of = *self.some(a, step);
                change(&mut of, number, mark);
                let found = digest(&of);
                self.boxes[a] = Some(Box::new(of));
                found
            }
            Kind::Drop => {
                self.boxes[a] = None;
                return;
            }
            Kind::Send | Kind::SendThere => {
                let of = self.some(a, step);
                let (sender, _, waiting) = self.channels[few].get_or_insert_with(|| {
                    let (sender, receiver) = sync_channel(ROOM);
                    (sender, receiver, 0)
                });
                if *waiting == ROOM {
                    return;
                }
                *waiting += 1;
                sender.send(*of).expect("it is there");
                return;
            }
            Kind::Receive => match &mut self.channels[few] {
                Some((_, receiver, waiting)) if *waiting > 0 => {
                    *waiting -= 1;
                    let of = receiver.recv().expect("it was sent");
                    let found = digest(&of);
                    self.boxes[a] = Some(Box::new(of));
                    found
                }
                Some((_, receiver, _)) => u64::from(receiver.try_recv().is_err()),
                None => 0,
            },
            Kind::ReceiveThere => match &mut self.channels[few] {
                Some((_, receiver, waiting)) => {
                    let count = *waiting - *waiting / 2;
                    *waiting -= count;
                    (0..count)
                        .fold(7, |sum: u64, _| sum.rotate_left(1) ^ digest(&receiver.recv().expect("sent")))
                }
                None => 0,
            },
            Kind::Close => {
                if let Some((sender, receiver, _)) = self.channels[few].take() {
                    match number % 2 {
                        0 => drop((sender, receiver)),
                        _ => drop((receiver, sender)),
                    }
                }
                return;
            }
            Kind::ArcNew => {
                self.arcs[a] = Some(Arc::new(leaf(number, mark)));
                return;
            }
            Kind::ArcClone => {
                self.arcs[b] = self.arcs[a].clone();
                u64::from(self.arcs[b].is_some())
            }
            Kind::ArcDrop => {
                self.arcs[a] = None;
                return;
            }
            Kind::ArcShip => self.arcs[a].as_deref().map_or(0, leaf_digest),
            Kind::ArcInto => {
                let shared = self.arcs[a].clone();
                let mut of = self.some(b, step);
                of.shared = shared;
                let found = digest(&of);
                self.boxes[b] = Some(of);
                found
            }
            Kind::ArcMake => match &mut self.arcs[a] {
                Some(of) => {
                    change_leaf(Arc::make_mut(of), number);
                    leaf_digest(of)
                }
                None => 0,
            },
            Kind::ArcTake => match self.arcs[a].take() {
                Some(of) => {
                    let found = leaf_digest(&of);
                    drop(Arc::try_unwrap(of));
                    found
                }
                None => 0,
            },
            Kind::WeakNew => {
                self.weaks[b] = self.arcs[a].as_ref().map(|of| (Arc::downgrade(of), leaf_digest(of)));
                u64::from(self.weaks[b].is_some())
            }
            Kind::WeakClone => {
                self.weaks[b] = self.weaks[a].clone();
                u64::from(self.weaks[b].is_some())
            }
            Kind::WeakDrop => {
                self.weaks[a] = None;
                return;
            }
            Kind::WeakRead | Kind::WeakShip => match &self.weaks[a] {
                Some((weak, late)) => {
                    let found = weak.upgrade().map(|of| leaf_digest(&of));
                    if found.is_none() {
                        self.or_late.push((self.found.len(), *late));
                    }
                    found.unwrap_or(0)
                }
                None => 0,
            },
            Kind::LockNew => {
                self.locks[few] = Some(Mutex::new(item(number, mark)));
                return;
            }
            Kind::LockChange | Kind::LockThere | Kind::LockWith => match &self.locks[few] {
                Some(lock) => match lock.lock() {
                    Ok(mut of) => {
                        change(&mut of, number, mark);
                        digest(&of)
                    }
                    Err(_) => {
                        lock.clear_poison();
                        1
                    }
                },
                None => 0,
            },
            Kind::LockAll => match &mut self.locks[few] {
                Some(lock) => {
                    lock.clear_poison();
                    let of = lock.get_mut().expect("it is not poisoned");
                    of.number = of.number.wrapping_add(number.wrapping_mul(self.ranks));
                    digest(of)
                }
                None => 0,
            },
            Kind::LockPanic => match &self.locks[few] {
                Some(lock) => {
                    lock.clear_poison();
                    panics(|| {
                        let mut of = lock.lock().expect("it is not poisoned");
                        change(&mut of, number, mark);
                        resume_unwind(Box::new("on purpose"))
                    })
                }
                None => 0,
            },
            Kind::LockInto => match self.locks[few].take() {
                Some(lock) => {
                    let of = lock.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
                    let found = digest(&of);
                    self.boxes[b] = Some(Box::new(of));
                    found
                }
                None => 0,
            },
            Kind::RowPush => {
                let of = self.some(a, step);
                self.rows[few].push(*of);
                self.rows[few].len() as u64
            }
            Kind::RowPop => {
                self.boxes[b] = self.rows[few].pop().map(Box::new);
                self.rows[few].len() as u64
            }
            Kind::RowShip => {
                let row = &mut self.rows[few];
                row.push(item(number, mark + 32));
                row.iter_mut().for_each(|of| of.number ^= number);
                row.iter().fold(0, |sum, of| sum ^ digest(of))
            }
            Kind::RowLend => self.rows[few].iter().fold(0, |sum, of| sum ^ digest(of)),
            Kind::RowCut => {
                self.rows[few].truncate(b);
                self.rows[few].len() as u64
            }
        };
        self.found.push(put);
    }
}
