//! The heap's interface for the sharing types ([`crate::sync`]).

use super::error::LostObject;
use super::{DBox, Freed, OWN, ObjectError, heap, job};
use crate::portable::Portable;
use crate::shape::Shape;
use crate::word::Word;
use std::panic::Location;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::{AtomicWord, Change, GlobalAddress, NodeId, Rank};

/// Returns the place of an object.
pub(crate) fn place_of(word: Word) -> Result<GlobalAddress, ObjectError> {
    Ok(heap()?.locate(word.address()))
}

/// Updates the number that an object of this type is, or begins with, in place: returns the old value.
#[inline]
#[track_caller]
pub(crate) fn update<T, N: AtomicWord>(word: Word, change: Change<N>) -> Result<N, ObjectError> {
    let (at, here) = (place_of(word)?, Location::caller());
    heap()?.segment.update(at.rank, at.offset, change).map_err(|why| cannot_be_had::<T>(why.into(), at, here))
}

/// Makes the error for an object of a type that the job cannot reach in place: type, place, and call.
#[cold]
pub(crate) fn cannot_be_had<T>(
    error: ObjectError,
    at: GlobalAddress,
    here: &'static Location<'static>,
) -> ObjectError {
    let why = match error {
        ObjectError::Job(why) => why,
        other => return other,
    };
    let Ok(heap) = heap() else { return why.into() };
    let (type_name, node) = (std::any::type_name::<T>(), heap.runtime.layout().node_of(at.rank));
    let address = heap.base + u64::from(at.rank.0) * heap.stride + at.offset;
    ObjectError::Lost(Box::new(LostObject { type_name, address, rank: at.rank, node, at: Some(here), why }))
}

/// As [`cannot_be_had`], of an object with a number on a node instead of an address.
#[cold]
pub(crate) fn is_lost<T>(
    error: ObjectError,
    number: u64,
    node: NodeId,
    here: &'static Location<'static>,
) -> ObjectError {
    let why = match error {
        ObjectError::Job(why) => why,
        other => return other,
    };
    let layout = job().ok().map(vgas::Runtime::layout).filter(|layout| node.0 < layout.nodes());
    let rank = layout.map_or(Rank(u32::MAX), |layout| Rank(layout.ranks_of(node).start));
    let type_name = std::any::type_name::<T>();
    ObjectError::Lost(Box::new(LostObject { type_name, address: number, rank, node, at: Some(here), why }))
}

/// That a node is lost, as an error of the job.
pub(crate) fn lost_node(node: NodeId) -> ObjectError {
    vgas::Error::Usage(format!("{node} is lost")).into()
}

/// Adds to the 64-bit number that an object of this type begins with, as [`update`] by [`Change::Add`] does: of an own one by the instruction alone, which is
/// atomic with others' updates.
#[inline]
#[track_caller]
pub(crate) fn add<T>(word: Word, number: u64) -> Result<u64, ObjectError> {
    match own_number(word) {
        Some(own) => Ok(own.fetch_add(number, Ordering::SeqCst)),
        None => update::<T, u64>(word, Change::Add(number)),
    }
}

/// Replaces the number that [`add`] adds to, if it is `expected`: yields what it was.
#[track_caller]
pub(crate) fn replace<T>(word: Word, expected: u64, desired: u64) -> Result<u64, ObjectError> {
    match own_number(word) {
        Some(own) => {
            let was = own.compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst);
            Ok(was.unwrap_or_else(|other| other))
        }
        None => update::<T, u64>(word, Change::CompareSwap { expected, desired }),
    }
}

/// The number that an object of this rank begins with.
#[inline]
fn own_number(word: Word) -> Option<&'static AtomicU64> {
    // SAFETY: rule 1: a number of an object in the own partition, which all users access as an atomic.
    is_own(word).then(|| unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(word.address() as usize)) })
}

/// Returns true if an object lies in this rank's partition.
#[inline]
pub(crate) fn is_own(word: Word) -> bool {
    OWN.offset_of(word.address()).is_some()
}

/// Frees an object's slot, whose value is not there any more.
pub(crate) fn discard<T: Portable>(of: DBox<T>) -> Result<(), ObjectError> {
    let (heap, word) = (heap()?, of.into_word());
    match is_own(word) {
        true => heap.free_own(word),
        false => heap.free_there(Freed::of(word, Vec::new(), const { &Shape::of::<T>() })),
    }
}
