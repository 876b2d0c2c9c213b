//! Fault slots: how a thread asks the agent to have a page mapped, from inside a signal handler.
//!
//! A thread that faulted may have been interrupted anywhere, also while it held a lock or was about to send a message.
//! So it asks through words in the table alone: it claims a slot, writes what it wants, and waits on the slot's state,
//! which the agent changes when it has taken the request and when it has answered. Nothing here takes a lock or
//! allocates, and every system call is one that a signal handler may do.
//!
//! ```text
//! Free ─claim→ Claimed ─post→ Posted ─agent→ Taken ─agent→ Done ─give_back→ Free
//! ```

use super::PoolError;
use super::agent::PoolAgent;
use super::client::PoolClient;
use super::entry::{Entry, PageState};
use super::layout::{FAULT_SLOTS, header};
use super::shared::{Pins, Shared};
use super::size::FrameId;
use crate::page::PageIndex;
use rustix::thread::futex;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;
use vgas_shm::cores;

/// Offsets in a slot.
mod word {
    /// State of the request (32 bits), on which its thread sleeps.
    pub const STATE: usize = 0;
    /// 0, or why the agent refused (32 bits).
    pub const REASON: usize = 4;
    /// The wanted page plus one, 0 for none; WRITE in the highest bit.
    pub const WANTED: usize = 8;
    /// The page given back plus one, 0 for none; all ones for all of the rank's.
    pub const RETURNED: usize = 16;
    /// The frame to map (32 bits).
    pub const FRAME: usize = 24;
}

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const TAKEN: u32 = 3;
const DONE: u32 = 4;
/// Added to POSTED or TAKEN: the thread sleeps on the word, or is about to.
const SLEEPING: u32 = 1 << 8;

const WRITE: u64 = 1 << 63;
const ALL: u64 = 1 << 63;

/// Pages that are not mapped any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// None.
    Nothing,
    /// One.
    Page(PageIndex),
    /// All that the rank had mapped of the partition of this page.
    All(PageIndex),
}

/// A request of a thread that faulted: first it gives pages back, then it wants one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The page to be mapped.
    pub wanted: Option<PageIndex>,
    /// It is to be written; otherwise the only copy is enough, and may stay clean.
    pub write: bool,
    /// What was unmapped before.
    pub returned: Returned,
}

/// Whose request it is, and where it is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId {
    /// Number of the rank on this node.
    pub local_rank: u32,
    slot: u32,
}

/// The fault slots of one rank, as that rank uses them. Safe to use in a signal handler.
pub struct FaultSlots {
    shared: Arc<Shared>,
    local_rank: u32,
}

impl std::fmt::Debug for FaultSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultSlots(rank {} of the node)", self.local_rank)
    }
}

/// A claimed slot. Given back with [`FaultSlots::give_back`] when its request has been answered; one that is forgotten
/// stays claimed.
#[derive(Debug)]
pub struct ClaimedSlot(u32);

impl PoolClient {
    /// This rank's fault slots.
    pub fn fault_slots(&self) -> FaultSlots {
        FaultSlots { shared: self.shared.clone(), local_rank: self.local_rank() }
    }

    /// Makes a page that this rank has mapped, and that this node alone has, a changed one: what a first store needs.
    /// False when it is not the only copy, which the mapping excludes.
    pub fn mark_modified(&self, page: PageIndex) -> bool {
        let Ok(word) = self.shared.entry(page) else { return false };
        let mut entry = Entry::from_word(word.load(Acquire));
        let mut naps = 0;
        while entry.state() == PageState::Exclusive {
            if entry.held() {
                // The agent looks whether the page can be evicted: it is mapped, so HOLD goes at once.
                cores::nap(&mut naps);
                entry = Entry::from_word(word.load(Acquire));
                continue;
            }
            let next = entry.with_state(PageState::Modified);
            match word.compare_exchange(entry.word(), next.word(), AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => entry = Entry::from_word(now),
            }
        }
        entry.state() == PageState::Modified
    }
}

impl FaultSlots {
    fn at(&self, slot: u32) -> usize {
        self.shared.fault_slot(self.local_rank, slot).expect("own slots are in range")
    }

    fn state(&self, slot: u32) -> &AtomicU32 {
        self.shared.table.atomic_u32(self.at(slot) + word::STATE)
    }

    /// Takes a free slot; none when all are in use.
    pub fn claim(&self) -> Option<ClaimedSlot> {
        let claim = |&slot: &u32| self.state(slot).compare_exchange(FREE, CLAIMED, Acquire, Relaxed).is_ok();
        (0..FAULT_SLOTS).find(claim).map(ClaimedSlot)
    }

    /// Posts a request; afterwards ring the agent's bell. Once a claim.
    pub fn post(&self, slot: &ClaimedSlot, fault: Fault) {
        let at = self.at(slot.0);
        let table = &self.shared.table;
        let write = if fault.write { WRITE } else { 0 };
        table
            .atomic_u64(at + word::WANTED)
            .store(fault.wanted.map_or(0, |page| (page.0 + 1) | write), Relaxed);
        let returned = match fault.returned {
            Returned::Nothing => 0,
            Returned::Page(page) => page.0 + 1,
            Returned::All(page) => ALL | (page.0 + 1),
        };
        table.atomic_u64(at + word::RETURNED).store(returned, Relaxed);
        self.state(slot.0).store(POSTED, Release);
        // Before the bell is rung: an agent that is about to sleep looks at it.
        table.atomic_u32(header::FAULTS).fetch_add(1, SeqCst);
    }

    /// The answer, once there is one: the frame to map, or why there is none (numbers of [`crate::Failure`]). A request
    /// that wanted nothing is answered with a frame that means nothing.
    pub fn answer(&self, slot: &ClaimedSlot) -> Option<Result<FrameId, u32>> {
        if self.state(slot.0).load(Acquire) != DONE {
            return None;
        }
        let (at, table) = (self.at(slot.0), &self.shared.table);
        Some(match table.atomic_u32(at + word::REASON).load(Relaxed) {
            0 => Ok(FrameId(table.atomic_u32(at + word::FRAME).load(Relaxed))),
            reason => Err(reason),
        })
    }

    /// Sleeps until the answer has come, or for so long; may wake early.
    pub fn sleep(&self, slot: &ClaimedSlot, at_most: Duration) {
        let state = self.state(slot.0);
        let now = state.load(Acquire);
        let asleep = now | SLEEPING;
        if !matches!(now & !SLEEPING, POSTED | TAKEN)
            || (now != asleep && state.compare_exchange(now, asleep, AcqRel, Relaxed).is_err())
        {
            return;
        }
        let timeout =
            futex::Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
        // Whatever ends it, the caller looks again.
        let _ = futex::wait(state, futex::Flags::empty(), asleep, Some(&timeout));
    }

    /// Frees an answered slot.
    pub fn give_back(&self, slot: ClaimedSlot) {
        self.state(slot.0).store(FREE, Release);
    }

    /// Whether the agent has ended: it answers nothing any more.
    pub fn agent_has_ended(&self) -> bool {
        self.shared.table.atomic_u32(header::CLOSED).load(Acquire) != 0
    }
}

impl PoolAgent {
    /// A number that changes with every fault that is posted.
    pub fn faults_posted(&self) -> u32 {
        self.shared.table.atomic_u32(header::FAULTS).load(SeqCst)
    }

    /// Takes all posted faults that are this thread's: that want one of its pages, or, wanting none, give one back. Their content
    /// comes from ranks and is not checked yet.
    pub fn take_faults(&self, into: &mut Vec<(FaultId, Fault)>) -> Result<(), PoolError> {
        let table = &self.shared.table;
        for local_rank in 0..self.shared.layout.spec.local_ranks {
            for slot in 0..FAULT_SLOTS {
                let at = self.shared.fault_slot(local_rank, slot)?;
                let state = table.atomic_u32(at + word::STATE);
                let is_own = |fault: &Fault| self.shard_of_fault(fault) == self.shard();
                if state.load(Acquire) & !SLEEPING != POSTED || !is_own(&self.read_fault(at)) {
                    continue;
                }
                let take = |now: u32| (now & !SLEEPING == POSTED).then_some(TAKEN | now & SLEEPING);
                if state.fetch_update(AcqRel, Relaxed, take).is_err() {
                    continue;
                }
                // Another thread of the agent may have answered what was there, and another fault may be in its place.
                let fault = self.read_fault(at);
                if is_own(&fault) {
                    into.push((FaultId { local_rank, slot }, fault));
                } else {
                    let give_back = |now: u32| Some(POSTED | now & SLEEPING);
                    let _ = state.fetch_update(AcqRel, Relaxed, give_back);
                    table.atomic_u32(header::FAULTS).fetch_add(1, SeqCst);
                }
            }
        }
        Ok(())
    }

    fn read_fault(&self, at: usize) -> Fault {
        let table = &self.shared.table;
        let wanted = table.atomic_u64(at + word::WANTED).load(Relaxed);
        let returned = match table.atomic_u64(at + word::RETURNED).load(Relaxed) {
            0 => Returned::Nothing,
            word if word & ALL != 0 => Returned::All(PageIndex((word & !ALL).wrapping_sub(1))),
            page => Returned::Page(PageIndex(page - 1)),
        };
        let number = (wanted & !WRITE).checked_sub(1);
        Fault { wanted: number.map(PageIndex), write: wanted & WRITE != 0, returned }
    }

    fn shard_of_fault(&self, fault: &Fault) -> u32 {
        let page = fault.wanted.or(match fault.returned {
            Returned::Page(page) => Some(page),
            Returned::Nothing | Returned::All(_) => None,
        });
        page.map_or(0, |page| self.shared.layout.shard_of(page))
    }

    /// Answers a fault that was taken, and wakes its thread.
    pub fn answer_fault(&self, id: FaultId, answer: Result<FrameId, u32>) -> Result<(), PoolError> {
        let (at, table) = (self.shared.fault_slot(id.local_rank, id.slot)?, &self.shared.table);
        table.atomic_u32(at + word::FRAME).store(answer.map_or(0, |frame| frame.0), Relaxed);
        table.atomic_u32(at + word::REASON).store(answer.err().map_or(0, |reason| reason.max(1)), Relaxed);
        let state = table.atomic_u32(at + word::STATE);
        if state.swap(DONE, AcqRel) & SLEEPING != 0 {
            wake(state);
        }
        Ok(())
    }

    /// Keeps the frame of a page where it is while a rank has it mapped (or while it is copied for that rank).
    pub fn keep_mapped(&self, frame: FrameId) -> Result<(), PoolError> {
        self.shared.pins(frame)?.fetch_add(Pins::WRITER, AcqRel);
        Ok(())
    }

    /// Ends [`PoolAgent::keep_mapped`]. The page counts as used just now: nobody sees the uses through pointers.
    pub fn unkeep_mapped(&self, frame: FrameId) -> Result<(), PoolError> {
        self.shared.stamp(frame)?.store(self.clock(), Relaxed);
        self.shared.pins(frame)?.fetch_sub(Pins::WRITER, AcqRel);
        Ok(())
    }

    /// Clears the mark of a page read ahead; whether it was there.
    pub fn clear_ahead(&self, page: PageIndex) -> Result<bool, PoolError> {
        let word = self.shared.entry(page)?;
        let clear =
            |now| Entry::from_word(now).ahead().then(|| Entry::from_word(now).with_ahead(false).word());
        Ok(word.fetch_update(AcqRel, Relaxed, clear).is_ok())
    }

    /// Says that no fault will be answered any more, and wakes all threads that wait for one.
    pub fn close(&self) {
        self.shared.table.atomic_u32(header::CLOSED).store(1, SeqCst);
        for local_rank in 0..self.shared.layout.spec.local_ranks {
            for slot in 0..FAULT_SLOTS {
                if let Ok(at) = self.shared.fault_slot(local_rank, slot) {
                    wake(self.shared.table.atomic_u32(at + word::STATE));
                }
            }
        }
    }
}

impl Drop for PoolAgent {
    fn drop(&mut self) {
        self.close();
    }
}

fn wake(state: &AtomicU32) {
    // It cannot fail in a way that matters: who is not woken looks again after a while.
    let _ = futex::wake(state, futex::Flags::empty(), i32::MAX as u32);
}
