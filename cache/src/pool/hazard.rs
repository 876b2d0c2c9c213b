//! Hazard slots: each thread's announcement of the page it uses. A thread claims its slot at the first use, keeps its
//! address in thread-local storage, and gives it back when it ends. When slots run out, threads take turns on one.

use super::PoolError;
use super::layout::SLOT_BYTES;
use super::shared::{Shared, slot};
use std::cell::{Cell, RefCell};
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// A slot as the hot path sees it; the same words as [`slot`] names.
#[repr(C, align(128))]
pub(super) struct ThreadSlot {
    pub hazard: AtomicU64,
    pub get_hits: AtomicU64,
    pub put_hits: AtomicU64,
    rest: [AtomicU64; 13],
}

const _: () = {
    assert!(size_of::<ThreadSlot>() == SLOT_BYTES as usize);
    assert!(offset_of!(ThreadSlot, hazard) == slot::HAZARD * 8);
    assert!(offset_of!(ThreadSlot, get_hits) == slot::GET_HITS * 8);
    assert!(offset_of!(ThreadSlot, put_hits) == slot::PUT_HITS * 8);
    assert!(offset_of!(ThreadSlot, rest) == slot::USED * 8);
};

/// The slot this thread used last, and whose it is. Client numbers start at 1 and are never used again, so a stale
/// address is never followed.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Recent {
    pub client: u64,
    pub slot: *const ThreadSlot,
}

const NOBODY: Recent = Recent { client: 0, slot: std::ptr::null() };

thread_local! {
    // Constant and without a destructor: one load from the thread's block, no check whether it was made.
    pub(super) static RECENT: Cell<Recent> = const { Cell::new(NOBODY) };
    static CLAIMS: RefCell<Claims> = const { RefCell::new(Claims(Vec::new())) };
}

/// What a thread has claimed, per client; its destructor runs when the thread ends.
struct Claims(Vec<(Weak<SlotRange>, u32)>);

impl Drop for Claims {
    fn drop(&mut self) {
        RECENT.set(NOBODY);
        for (range, index) in self.0.drain(..) {
            if let Some(range) = range.upgrade() {
                range.shared.slot_word(range.local_rank, index, slot::HAZARD).store(0, Release);
                range.lock_free().push(index);
            }
        }
    }
}

/// The slots of one rank, which one process at a time owns.
pub(super) struct SlotRange {
    client: u64,
    shared: Arc<Shared>,
    local_rank: u32,
    /// Slots that no thread has, the next one to give last. The first slot is never in it.
    free: Mutex<Vec<u32>>,
    /// Whose turn it is on the first slot.
    turn: Mutex<()>,
}

static NEXT_CLIENT: AtomicU64 = AtomicU64::new(1);

impl SlotRange {
    /// Takes the slots of a rank for this process.
    pub fn attach(shared: Arc<Shared>, local_rank: u32) -> Result<Arc<Self>, PoolError> {
        let limit = u64::from(shared.layout.spec.local_ranks);
        if u64::from(local_rank) >= limit {
            let value = u64::from(local_rank);
            return Err(PoolError::OutOfRange { what: "rank of this node", value, limit });
        }
        let attached = shared.slot_word(local_rank, 0, slot::ATTACHED);
        if attached.compare_exchange(0, 1, AcqRel, Relaxed).is_err() {
            return Err(PoolError::Mismatch(format!("rank {local_rank} of this node is attached already")));
        }
        shared.slot_word(local_rank, 0, slot::USED).fetch_max(1, SeqCst);
        let free = (1..shared.layout.spec.hazard_slots_per_rank).rev().collect();
        let client = NEXT_CLIENT.fetch_add(1, Relaxed);
        Ok(Arc::new(Self { client, shared, local_rank, free: Mutex::new(free), turn: Mutex::new(()) }))
    }

    /// The number under which [`RECENT`] knows it.
    pub fn client(&self) -> u64 {
        self.client
    }

    fn lock_free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// This thread's own slot, claimed if it has none; it becomes [`RECENT`]. None when all are taken or the thread is
    /// ending.
    pub fn own_slot(self: &Arc<Self>) -> Option<*const ThreadSlot> {
        let found = CLAIMS.try_with(|claims| {
            let mut claims = claims.try_borrow_mut().ok()?;
            let mine = |(range, _): &&(Weak<SlotRange>, u32)| range.as_ptr() == Arc::as_ptr(self);
            if let Some(&(_, index)) = claims.0.iter().find(mine) {
                return Some(index);
            }
            claims.0.retain(|(range, _)| range.strong_count() > 0);
            let index = self.lock_free().pop()?;
            // Before the slot's first use, so that whoever must see the use also sees that the slot counts.
            self.shared.slot_word(self.local_rank, 0, slot::USED).fetch_max(u64::from(index) + 1, SeqCst);
            claims.0.push((Arc::downgrade(self), index));
            Some(index)
        });
        let slot = self.address(found.ok()??);
        RECENT.set(Recent { client: self.client, slot });
        Some(slot)
    }

    /// The slot that threads without an own one share, for as long as the guard lives.
    pub fn shared_slot(&self) -> (MutexGuard<'_, ()>, *const ThreadSlot) {
        let turn = self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        (turn, self.address(0))
    }

    fn address(&self, index: u32) -> *const ThreadSlot {
        let offset = self.shared.slot_offset(self.local_rank, index);
        assert!(self.shared.table.contains(offset as u64, SLOT_BYTES));
        self.shared.table.base().wrapping_add(offset).cast_const().cast()
    }
}

impl Drop for SlotRange {
    fn drop(&mut self) {
        self.shared.slot_word(self.local_rank, 0, slot::ATTACHED).store(0, Release);
    }
}
