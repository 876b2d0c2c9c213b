//! Many objects read at once: one message to each home, where reading them one after the other would send one for each.
//!
//! Whatever is not here yet is claimed first, without waiting for anybody: another thread, or another rank of
//! the node, may fetch some of the same objects, and wait for those of this one. Then all that was claimed is
//! asked for, and becomes copies as by a single read. Objects that other threads fetch are waited for last;
//! so are those that a home did not give in this way: each is requested by itself, and its error says why it
//! cannot be reached. Objects larger than a message come by gets, many of which are in flight at a time,
//! after all of them were marked as served together.

use super::borrow::Ref;
use super::boxes::DBox;
use super::copies::{Claim, Copy, Filling};
use super::error::ObjectError;
use super::fetch::Target;
use super::mates::{Begun, CopySlot, Unshown};
use super::vec::DVec;
use super::{Heap, OWN, heap};
use crate::planted::{Fault, is_planted};
use crate::portable::Shareable;
use crate::shape::Shape;
use crate::slab::SERVED;
use crate::word::Word;
use std::panic::Location;
use vgas::{Change, NodeId};

/// Bytes of large objects that are in flight at a time, but for the last of them.
const BYTES_IN_FLIGHT: usize = 16 << 20;

/// One of many objects could not be read.
#[derive(Debug, thiserror::Error)]
#[error("number {at} of what was to be read: {why}")]
#[non_exhaustive]
pub struct NotRead {
    /// Its index, from 0 on; others may not be had either.
    pub at: usize,
    /// Why not.
    #[source]
    pub why: Box<ObjectError>,
}

impl NotRead {
    pub(super) fn of(at: usize, why: ObjectError, here: &'static Location<'static>) -> Self {
        Self { at, why: Box::new(why.for_call(here)) }
    }
}

/// Address of an object that is read: for a copy, one use of it, until it is released or passed on.
struct HeldObject {
    heap: &'static Heap,
    address: u64,
    copy_of: Option<Word>,
}

impl HeldObject {
    /// The caller then releases the copy.
    fn into_parts(self) -> (u64, Option<Word>) {
        let parts = (self.address, self.copy_of);
        std::mem::forget(self);
        parts
    }
}

impl Drop for HeldObject {
    fn drop(&mut self) {
        self.copy_of.into_iter().for_each(|word| self.heap.copies.release(word));
    }
}

/// A copy that is to come.
struct PendingCopy {
    filling: Filling<'static>,
    unshown: Option<Unshown<'static>>,
    room: CopySlot<'static>,
}

impl PendingCopy {
    /// Its bytes are here: makes a copy of them, shows it to the other ranks of the node, and holds it.
    fn has_come(
        self,
        heap: &'static Heap,
        target: &Target,
        copy: impl FnOnce(CopySlot<'static>, Word, &Shape) -> Copy,
    ) -> HeldObject {
        let copy = copy(self.room, target.word, &target.shape);
        let held = HeldObject { heap, address: self.filling.fill(copy), copy_of: Some(target.word) };
        self.unshown.into_iter().for_each(|unshown| unshown.show(&copy));
        held
    }
}

impl<T: Shareable> DBox<T> {
    /// Borrows many objects for reading, as [`DBox::read`] does each. Those of another node that are not here
    /// come by one message to that node and its answer, or as many as their bytes need, instead of one for
    /// each. So does what several nodes have, at the same time.
    ///
    /// ```no_run
    /// # use vgas_objects::{DBox, DVec};
    /// fn sum(numbers: &DVec<DBox<u64>>) -> u64 {
    ///     DBox::read_all(numbers.iter()).iter().map(|number| **number).sum()
    /// }
    /// ```
    ///
    /// All are borrowed at the same time: their copies have room in this rank's partition, beyond
    /// [`HeapOptions::copies`](crate::HeapOptions::copies) if they must. Objects that are larger than a message come side by side; one whose
    /// home is behind with reads comes by itself, from another node that has a copy.
    ///
    /// # Panics
    /// If one of them cannot be reached, or there is no room for the copies; [`DBox::try_read_all`] returns
    /// the error instead.
    #[track_caller]
    pub fn read_all<'b>(boxes: impl IntoIterator<Item = &'b Self>) -> Vec<Ref<'b, T>> {
        match Self::try_read_all(boxes) {
            Ok(all) => all,
            Err(why) => panic!("{why}"),
        }
    }

    /// [`DBox::read_all`].
    ///
    /// # Errors
    /// If one of them cannot be reached, or there is no room for its copy: the error names it, and the cause.
    /// Then none is borrowed.
    #[track_caller]
    pub fn try_read_all<'b>(boxes: impl IntoIterator<Item = &'b Self>) -> Result<Vec<Ref<'b, T>>, NotRead> {
        let here = Location::caller();
        let heap = heap().map_err(|why| NotRead::of(0, why, here))?;
        let wanted: Vec<(Word, Shape)> =
            boxes.into_iter().map(|one| (one.link.word, const { Shape::of::<T>() })).collect();
        let held = heap.hold_all(&wanted).map_err(|(at, why)| NotRead::of(at, why, here))?;
        let borrow = |(at, one): (usize, HeldObject)| {
            let (address, copy_of) = one.into_parts();
            Ref::at(address, copy_of).map_err(|why| NotRead::of(at, why, here))
        };
        held.into_iter().enumerate().map(borrow).collect()
    }
}

impl<T: Shareable> DBox<T> {
    /// As [`DBox::try_read_all`], of boxes that know afterwards where what they mean is: it stays as long as they are.
    #[track_caller]
    pub(crate) fn find_all<'b>(boxes: impl IntoIterator<Item = &'b Self>) -> Result<Vec<&'b T>, NotRead> {
        let (here, boxes) = (Location::caller(), Vec::from_iter(boxes));
        let heap = heap().map_err(|why| NotRead::of(0, why, here))?;
        let sought = |(at, one): (usize, &&Self)| {
            let wanted = (one.link.word, const { Shape::of::<T>() });
            OWN.known(&one.link).is_none().then_some((at, wanted))
        };
        let (places, wanted): (Vec<_>, Vec<_>) = boxes.iter().enumerate().filter_map(sought).unzip();
        let held = heap.hold_all(&wanted).map_err(|(at, why)| NotRead::of(places[at], why, here))?;
        for (at, one) in places.into_iter().zip(held) {
            let (address, copy_of) = one.into_parts();
            heap.note(&boxes[at].link, address, copy_of.is_some());
        }
        Ok(boxes.into_iter().map(|one| &**one).collect())
    }
}

impl<T: Shareable> DVec<T> {
    /// All values of many rows, to read, as [`DVec::try_as_slice`] of each: of another node, by one message to it, as of
    /// [`DBox::read_all`].
    ///
    /// ```no_run
    /// # use vgas_objects::DVec;
    /// fn sums(rows: &DVec<DVec<u64>>) -> Vec<u64> {
    ///     DVec::read_all(rows.iter()).into_iter().map(|row| row.iter().sum()).collect()
    /// }
    /// ```
    ///
    /// # Panics
    /// If one of them cannot be reached, or there is no room for the copies; [`DVec::try_read_all`] returns
    /// the error instead.
    #[track_caller]
    pub fn read_all<'v>(rows: impl IntoIterator<Item = &'v Self>) -> Vec<&'v [T]> {
        match Self::try_read_all(rows) {
            Ok(all) => all,
            Err(why) => panic!("{why}"),
        }
    }

    /// [`DVec::read_all`].
    ///
    /// # Errors
    /// If one of them cannot be reached, or there is no room for its copy: the error names it, and the cause.
    #[track_caller]
    pub fn try_read_all<'v>(rows: impl IntoIterator<Item = &'v Self>) -> Result<Vec<&'v [T]>, NotRead> {
        let (here, rows) = (Location::caller(), Vec::from_iter(rows));
        let heap = heap().map_err(|why| NotRead::of(0, why, here))?;
        let (places, wanted): (Vec<_>, Vec<_>) =
            rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.sought()?))).unzip();
        let held = heap.hold_all(&wanted).map_err(|(at, why)| NotRead::of(places[at], why, here))?;
        for (at, one) in places.into_iter().zip(held) {
            rows[at].note(heap, one.into_parts());
        }
        // All addresses are known now.
        let slice =
            |(at, row): (usize, &'v Self)| row.try_as_slice().map_err(|why| NotRead::of(at, why, here));
        rows.iter().copied().enumerate().map(slice).collect()
    }
}

impl Heap {
    /// Finds the local addresses of all of these, each as [`Ref::of`] does, with one message to each home for
    /// the missing ones.
    fn hold_all(&'static self, wanted: &[(Word, Shape)]) -> Result<Vec<HeldObject>, (usize, ObjectError)> {
        let mut found: Vec<Option<HeldObject>> = wanted.iter().map(|_| None).collect();
        let mut coming = Vec::new();
        for (at, (word, shape)) in wanted.iter().enumerate() {
            found[at] = self.begin(at, *word, shape, &mut coming).map_err(|why| (at, why))?;
        }
        let is_large = |(_, target, _): &mut (NodeId, Target, PendingCopy)| !self.fits_list(&target.shape);
        let large: Vec<_> = coming.extract_if(.., is_large).map(|(_, target, one)| (target, one)).collect();
        self.fetch_all(coming, |target, one, bytes| {
            let keep = |bytes: Vec<u8>| {
                one.has_come(self, &target, |room, word, shape| self.keep_in(room, word, shape, &bytes))
            };
            found[target.at] = bytes.map(keep);
            Ok(())
        })?;
        self.get_large(large, &mut found);
        let rest = |(at, one): (usize, Option<HeldObject>)| match one {
            Some(one) => Ok(one),
            None => self.hold_one(wanted[at].0, &wanted[at].1).map_err(|why| (at, why)),
        };
        found.into_iter().enumerate().map(rest).collect()
    }

    fn hold_one(&'static self, word: Word, shape: &Shape) -> Result<HeldObject, ObjectError> {
        let (address, copy_of) = match self.in_place(word, shape) {
            Some(address) => (address, None),
            None => (self.hold(word, shape)?, Some(word)),
        };
        Ok(HeldObject { heap: self, address, copy_of })
    }

    /// Returns the address of a local object; others are added to those in flight, or left for later.
    fn begin(
        &'static self,
        at: usize,
        word: Word,
        shape: &Shape,
        coming: &mut Vec<(NodeId, Target, PendingCopy)>,
    ) -> Result<Option<HeldObject>, ObjectError> {
        if OWN.offset_of(word.address()).is_some() {
            return Ok(Some(HeldObject { heap: self, address: word.address(), copy_of: None }));
        }
        let place = self.locate(word.address());
        let Some(node) = self.far(place.rank).filter(|_| shape.bytes > 0) else { return Ok(None) };
        if self.is_backed_up(place.rank) || (shape.tied.is_some() && !self.fits_list(shape)) {
            return Ok(None);
        }
        let held = |address| HeldObject { heap: self, address, copy_of: Some(word) };
        let filling = match self.copies.claim(word) {
            Claim::Held(address) => return Ok(Some(held(address))),
            Claim::Others => return Ok(None),
            Claim::Mine(filling) => filling,
        };
        let (unshown, room) = match self.begin_copy(word, shape)? {
            Begun::Others => return Ok(None),
            Begun::Copied(copy) => return Ok(Some(held(filling.fill(copy)))),
            Begun::Fetch(unshown, room) => (unshown, room),
        };
        let served = Some(self.served_word(word, shape)?).filter(|_| !is_planted(Fault::UnmarkedList));
        let read = self.read_of(word, shape, served, self.copy_at(word, room.address()));
        coming.push((node, Target { at, word, shape: *shape, read }, PendingCopy { filling, unshown, room }));
        Ok(None)
    }

    /// Gets what is larger than a message. Objects that cannot be reached in this way stay unfound.
    fn get_large(&'static self, coming: Vec<(Target, PendingCopy)>, found: &mut [Option<HeldObject>]) {
        let mut coming = coming.into_iter().peekable();
        while coming.peek().is_some() {
            let mut bytes = 0;
            let next = std::iter::from_fn(|| {
                let one = coming.next_if(|_| bytes < BYTES_IN_FLIGHT)?;
                bytes += one.0.shape.bytes;
                Some(one)
            });
            self.get_side_by_side(next.collect(), found);
        }
    }

    fn get_side_by_side(&'static self, all: Vec<(Target, PendingCopy)>, found: &mut [Option<HeldObject>]) {
        let mark = |(target, _): &(Target, PendingCopy)| {
            let offset = target.read.served?;
            Some((self.locate(target.word.address()).rank, offset, Change::Or(SERVED)))
        };
        let marks: Vec<_> = all.iter().filter_map(mark).collect();
        // Before the bytes are read: the next writer must see it.
        let got = self.segment.update_many(&marks).and_then(|_| {
            self.runtime.batch(|batch| {
                all.iter().try_for_each(|(target, one)| {
                    // SAFETY: rule 1: a slot for these bytes, which only this code uses.
                    let bytes = unsafe { super::room(one.room.address(), target.shape.bytes) };
                    batch.get(self.locate(target.word.address()), bytes)
                })
            })
        });
        if got.is_ok() {
            for (target, one) in all {
                let held =
                    one.has_come(self, &target, |room, word, shape| self.is_copied(room, word, shape, false));
                found[target.at] = Some(held);
            }
        }
    }
}
