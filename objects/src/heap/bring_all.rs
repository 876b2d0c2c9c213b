//! Many objects brought to this rank at once: one message to each home, where bringing them one after the other would send one for each.

use super::boxes::DBox;
use super::error::ObjectError;
use super::fetch::Target;
use super::read_all::NotRead;
use super::vec::DVec;
use super::{Freed, Heap, OWN, heap};
use crate::portable::Portable;
use crate::shape::Shape;
use crate::slab::Use;
use crate::word::{Link, Word};
use std::panic::Location;
use std::ptr::with_exposed_provenance_mut;
use vgas::NodeId;

/// An object that is to be brought: its number among those that are wanted, and the link of its owner.
struct BringRequest<'b> {
    at: usize,
    link: &'b mut Link,
    shape: Shape,
}

impl<T: Portable> DBox<T> {
    /// Brings many objects to this rank, as a first [`DBox::get_mut`] does each. Those of another node come by one message to that node and its
    /// answer, or as many as their bytes need: not by one for each of them.
    ///
    /// ```no_run
    /// # use vgas_objects::{DBox, DVec};
    /// fn taken(mut numbers: DVec<DBox<u64>>) -> u64 {
    ///     DBox::bring_all(numbers.iter_mut());
    ///     // No message any more.
    ///     numbers.into_iter().map(DBox::into_inner).sum()
    /// }
    /// ```
    ///
    /// # Panics
    /// If one of them cannot be reached, or there is no room; [`DBox::try_bring_all`] returns the error
    /// instead.
    #[track_caller]
    pub fn bring_all<'b>(boxes: impl IntoIterator<Item = &'b mut Self>) {
        if let Err(why) = Self::try_bring_all(boxes) {
            panic!("{why}");
        }
    }

    /// [`DBox::bring_all`].
    ///
    /// # Errors
    /// If one of them cannot be reached, or there is no room for it: the error names it, and the cause.
    /// Others may have been brought; all stay owned by their boxes.
    #[track_caller]
    pub fn try_bring_all<'b>(boxes: impl IntoIterator<Item = &'b mut Self>) -> Result<(), NotRead> {
        let wanted = boxes
            .into_iter()
            .enumerate()
            .filter(|(_, one)| !one.is_mine())
            .map(|(at, one)| BringRequest { at, link: &mut one.link, shape: const { Shape::of::<T>() } });
        bring(wanted.collect(), Location::caller())
    }
}

impl<T: Portable> DVec<T> {
    /// Brings many rows to this rank, as a first write does each: of another node, by one message to it, as [`DBox::bring_all`] does. So a map
    /// of rows that another rank has made is merged without a message for each row:
    ///
    /// ```no_run
    /// # use vgas_objects::{DMap, DVec};
    /// fn merge(all: &mut DMap<u64, DVec<u64>>, mut other: DMap<u64, DVec<u64>>) {
    ///     DVec::bring_all(other.values_mut());
    ///     for (key, row) in other {
    ///         all.entry(key).or_default().extend(row);
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// If one of them cannot be reached, or there is no room; [`DVec::try_bring_all`] returns the error
    /// instead.
    #[track_caller]
    pub fn bring_all<'v>(rows: impl IntoIterator<Item = &'v mut Self>) {
        if let Err(why) = Self::try_bring_all(rows) {
            panic!("{why}");
        }
    }

    /// [`DVec::bring_all`].
    ///
    /// # Errors
    /// If one of them cannot be reached, or there is no room for it: the error names it, and the cause.
    /// Others may have been brought; all stay as they were otherwise.
    #[track_caller]
    pub fn try_bring_all<'v>(rows: impl IntoIterator<Item = &'v mut Self>) -> Result<(), NotRead> {
        let wanted = rows.into_iter().enumerate().filter_map(|(at, row)| {
            let shape = row.shape();
            let link = row.link_mut().filter(|link| OWN.offset_of(link.word.address()).is_none());
            Some(BringRequest { at, link: link.filter(|_| shape.bytes > 0)?, shape })
        });
        bring(wanted.collect(), Location::caller())
    }
}

fn bring(wanted: Vec<BringRequest<'_>>, here: &'static Location<'static>) -> Result<(), NotRead> {
    let first = wanted.first().map_or(0, |one| one.at);
    let brought = heap().map_err(|why| (first, why)).and_then(|heap| heap.own_all(wanted));
    brought.map_err(|(at, why)| NotRead::of(at, why, here))
}

impl Heap {
    /// As [`Heap::own`] of each.
    fn own_all(&'static self, wanted: Vec<BringRequest<'_>>) -> Result<(), (usize, ObjectError)> {
        let mut listed = Vec::new();
        for BringRequest { at, link, shape } in wanted {
            match self.is_listed(link.word, &shape) {
                Some(node) => {
                    // It is not read afterwards: it becomes no copy, and its slot is freed.
                    let (word, read) = (link.word, self.read_of(link.word, &shape, None, None));
                    listed.push((node, Target { at, word, shape, read }, link));
                }
                None => self.own(link, &shape).map_err(|why| (at, why))?,
            }
        }
        self.fetch_all(listed, |target, link, bytes| {
            let ended = match bytes {
                Some(bytes) => self.own_bytes(link, &target.shape, &bytes),
                None => self.own(link, &target.shape),
            };
            ended.map_err(|why| (target.at, why))
        })
    }

    /// Returns the node to ask for an object together with others of it; none for one that is brought by itself.
    fn is_listed(&self, word: Word, shape: &Shape) -> Option<NodeId> {
        let rank = self.locate(word.address()).rank;
        let node = self.far(rank).filter(|_| shape.bytes > 0 && shape.tied.is_none())?;
        (self.fits_list(shape) && !self.is_backed_up(rank)).then_some(node)
    }

    /// Makes an object this rank's whose bytes have come.
    fn own_bytes(&self, link: &mut Link, shape: &Shape, bytes: &[u8]) -> Result<(), ObjectError> {
        let (address, colour) = self.allocate(shape.class, Use::Values)?;
        let new = Word::new(address, colour).ok_or(ObjectError::NoHeap)?;
        let to = with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: rule 1: a slot for these bytes, which only this code uses.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), shape.bytes.min(bytes.len())) };
        self.release(link);
        let word = std::mem::replace(&mut link.word, new);
        let holds = shape.scrub(address, self.tag_of(word));
        self.free_there(Freed::of(word, holds, shape))
    }
}
