//! The free frames: a bounded queue for many producers and consumers, in shared memory.
//!
//! Vyukov's array queue: cell `i` carries a turn number next to its value; a producer may fill the cell when its turn
//! equals the push position, a consumer may empty it when it equals the pop position plus one. Turn and value share one
//! word, so a cell is handed over by a single store. It is lock-free except that an operation cut in two by the death
//! of its process leaves one cell unusable; then the job ends anyway.

use super::layout::{FrameId, header};
use super::shared::Shared;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The queue in the table. Values are checked by whoever pops them.
pub(super) struct FreeQueue<'a>(pub &'a Shared);

fn word(turn: u32, frame: u32) -> u64 {
    u64::from(turn) << 32 | u64::from(frame)
}

impl FreeQueue<'_> {
    /// Prepares the cells; by the creator, before anybody else uses the queue.
    pub fn initialise(&self) {
        for index in 0..self.0.layout.free_capacity {
            self.0.free_cell(index).store(word(index, 0), Relaxed);
        }
        self.0.table.atomic_u32(header::FREE_PUSH).store(0, Relaxed);
        self.0.table.atomic_u32(header::FREE_POP).store(0, Release);
    }

    /// Adds a frame. False when the queue is full, which says that some frame is in it twice.
    pub fn push(&self, frame: FrameId) -> bool {
        let position = self.0.table.atomic_u32(header::FREE_PUSH);
        let mut at = position.load(Relaxed);
        loop {
            let cell = self.0.free_cell(at & (self.0.layout.free_capacity - 1));
            let turn = (cell.load(Acquire) >> 32) as u32;
            match turn.wrapping_sub(at) as i32 {
                0 => match position.compare_exchange_weak(at, at.wrapping_add(1), Relaxed, Relaxed) {
                    Ok(_) => {
                        cell.store(word(at.wrapping_add(1), frame.0), Release);
                        return true;
                    }
                    Err(now) => at = now,
                },
                behind if behind < 0 => return false,
                _ => at = position.load(Relaxed),
            }
        }
    }

    /// Takes a frame out. None when there is none, or when the next one is just being added.
    pub fn pop(&self) -> Option<FrameId> {
        let position = self.0.table.atomic_u32(header::FREE_POP);
        let mut at = position.load(Relaxed);
        loop {
            let cell = self.0.free_cell(at & (self.0.layout.free_capacity - 1));
            let content = cell.load(Acquire);
            match ((content >> 32) as u32).wrapping_sub(at.wrapping_add(1)) as i32 {
                0 => match position.compare_exchange_weak(at, at.wrapping_add(1), Relaxed, Relaxed) {
                    Ok(_) => {
                        let next_turn = at.wrapping_add(self.0.layout.free_capacity);
                        cell.store(word(next_turn, 0), Release);
                        return Some(FrameId(content as u32));
                    }
                    Err(now) => at = now,
                },
                behind if behind < 0 => return None,
                _ => at = position.load(Relaxed),
            }
        }
    }

    /// About how many are free; exact while nobody pushes or pops.
    pub fn len(&self) -> u32 {
        let popped = self.0.table.atomic_u32(header::FREE_POP).load(Relaxed);
        let pushed = self.0.table.atomic_u32(header::FREE_PUSH).load(Relaxed);
        pushed.wrapping_sub(popped).min(self.0.layout.free_capacity)
    }
}
