//! Loans: values of other nodes that this rank may change until it gives them back: those lent to its tasks
//! or by [`Objects::lend_mut`](super::Objects::lend_mut), and locks.
//!
//! If a node may be lost, the lender keeps the value as it was before, and the lock's home the value released
//! last. Both are used again when the borrower is lost. Objects that the borrower took out of it and passed
//! on would then have two owners. So a borrower tells the lender before it passes on anything with boxes in
//! it (a message and its answer, once a loan), and the lender of a lost borrower does not use what may be
//! elsewhere:
//!
//! * in a lent value, the links become *dead*: their objects are
//!   [`ObjectError::Lost`](super::ObjectError::Lost) from then on, and dropping them is a no-op;
//! * a lock is [`LockError::Given`](crate::sync::LockError::Given), and its value is never had again.
//!
//! A borrower that has passed on nothing leaves all as it was. Objects passed on are not tracked: they may
//! lie anywhere in the loan, or have come from there through another thread.

use super::{ObjectError, heap};
use crate::shape::Links;
use crate::slab::HEAD_BYTES;
use crate::word::{Colour, Link, Word};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vgas::{NodeId, Rank};

/// Tells a lender that its borrower is about to pass on objects. Returns when the lender has noted that, or is lost.
type Notify = Arc<dyn Fn() -> Result<(), ObjectError> + Send + Sync>;

/// An open loan from another node: it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenLoan(u64);

#[derive(Default)]
struct Loans {
    /// By number: how to notify the lender; none once that is done.
    open: FxHashMap<u64, Option<Notify>>,
    /// Words of lent objects whose borrower has passed something on.
    given: FxHashSet<Word>,
}

static LOANS: Mutex<Option<Loans>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Number of lenders not yet told.
static UNTOLD: AtomicUsize = AtomicUsize::new(0);
/// One thread tells at a time; another one waits until it has.
static TELLING: Mutex<()> = Mutex::new(());

fn loans<R>(work: impl FnOnce(&mut Loans) -> R) -> R {
    let mut loans: MutexGuard<'_, Option<Loans>> = LOANS.lock().unwrap_or_else(PoisonError::into_inner);
    work(loans.get_or_insert_default())
}

/// Opens a loan from a node; none without replicas, and from the own node, which is lost together with this rank.
pub(crate) fn borrow(
    lender: NodeId,
    notify: impl Fn() -> Result<(), ObjectError> + Send + Sync + 'static,
) -> Option<OpenLoan> {
    let heap = heap().ok().filter(|heap| heap.has_replicas())?;
    (lender != heap.runtime.node()).then(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        loans(|loans| loans.open.insert(number, Some(Arc::new(notify))));
        UNTOLD.fetch_add(1, Ordering::SeqCst);
        OpenLoan(number)
    })
}

/// Opens a loan from a rank, as [`borrow`].
pub(crate) fn borrow_from(
    lender: Rank,
    notify: impl Fn() -> Result<(), ObjectError> + Send + Sync + 'static,
) -> Option<OpenLoan> {
    borrow(heap().ok()?.runtime.layout().node_of(lender), notify)
}

impl Drop for OpenLoan {
    fn drop(&mut self) {
        if let Some(Some(_)) = loans(|loans| loans.open.remove(&self.0)) {
            UNTOLD.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Something with links is about to leave this rank: all lenders hear of it before.
pub(super) fn tell_lenders() -> Result<(), ObjectError> {
    if UNTOLD.load(Ordering::SeqCst) == 0 {
        return Ok(());
    }
    let _alone = TELLING.lock().unwrap_or_else(PoisonError::into_inner);
    let untold: Vec<(u64, Notify)> = loans(|loans| {
        loans.open.iter().filter_map(|(number, notify)| Some((*number, notify.clone()?))).collect()
    });
    for (number, notify) in untold {
        notify()?;
        loans(|loans| {
            if let Some(Some(_)) = loans.open.get_mut(&number).map(Option::take) {
                UNTOLD.fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
    Ok(())
}

/// The borrower of an object that this rank has lent passes something on. In handlers.
pub(crate) fn note_given(word: Word) {
    loans(|loans| loans.given.insert(word));
}

/// Returns true if the borrower of an object has passed something on; called once, when the borrow is over.
pub(super) fn take_given(word: Word) -> bool {
    loans(|loans| loans.given.remove(&word))
}

/// Returns a word that no object ever has, of a rank of a node: its object is lost with that.
pub(super) fn dead_word(node: NodeId) -> Result<Word, ObjectError> {
    let heap = heap()?;
    let rank = heap.runtime.layout().ranks_of(node).start;
    let address = heap.base + u64::from(rank) * heap.stride + HEAD_BYTES / 2;
    Word::new(address, Colour(0)).ok_or(ObjectError::NoHeap)
}

/// Returns true if a place in a partition is that of dead words.
pub(super) fn is_dead(offset: u64) -> bool {
    offset < HEAD_BYTES
}

/// Makes all links of values dead, because a lost node may have passed on their objects.
///
/// # Safety
/// There are values of this size, with these links, and the caller has them mutably borrowed.
pub(crate) unsafe fn make_dead(
    at: usize,
    bytes: usize,
    links: Links,
    node: NodeId,
) -> Result<(), ObjectError> {
    let dead = dead_word(node)?;
    let mut places = Vec::new();
    links(at as u64, bytes, &mut |link| {
        link.extension.store(0, Ordering::Relaxed);
        places.push(std::ptr::from_ref(link).addr());
    });
    for place in places {
        // SAFETY: rule 2, by the caller's promise: a link in these values, of which no reference is left.
        unsafe { (*with_exposed_provenance_mut::<Link>(place)).word = dead };
    }
    Ok(())
}
