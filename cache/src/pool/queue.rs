//! The free frames, and those that ranks have filled: two stacks for many producers and consumers, in shared memory.
//!
//! The frame freed last is handed out first: its memory is mapped everywhere and often still in a processor's cache, while
//! a frame that nobody has touched costs a page fault for each 4 KiB. So a node that needs few frames uses few.
//!
//! Treiber's stack: the head names the top frame, each frame's cell the one below. The head also counts its changes, in
//! the same word, so that a pop that was overtaken by a pop and a push of the same frame notices. Lock-free; a process that
//! dies in the middle of an operation loses at most the frame it had.

use super::layout::{FrameId, header};
use super::shared::Shared;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The stack in the table. Values are checked by whoever pops them.
pub(super) struct FreeStack<'a>(pub &'a Shared);

/// In place of a frame's number plus one: the end.
const NONE: u32 = 0;

fn head(changes: u32, top: u32) -> u64 {
    u64::from(changes) << 32 | u64::from(top)
}

impl FreeStack<'_> {
    /// Empties it; by the creator, before anybody else uses it.
    pub fn initialise(&self) {
        self.0.table.atomic_u32(header::FREE_COUNT).store(0, Relaxed);
        self.0.table.atomic_u64(header::FREE_HEAD).store(head(0, NONE), Release);
    }

    /// Adds a frame, which nobody else has. Numbers beyond the pool are ignored.
    pub fn push(&self, frame: FrameId) {
        let Some(below) = self.0.free_cell(frame.0) else { return };
        let top = self.0.table.atomic_u64(header::FREE_HEAD);
        // Before, so that it is never less than what can be popped.
        self.0.table.atomic_u32(header::FREE_COUNT).fetch_add(1, Relaxed);
        let _ = top.fetch_update(AcqRel, Acquire, |now| {
            below.store(u64::from(now as u32), Relaxed);
            Some(head(((now >> 32) as u32).wrapping_add(1), frame.0 + 1))
        });
    }

    /// Takes the frame out that was added last. None when there is none.
    pub fn pop(&self) -> Option<FrameId> {
        let top = self.0.table.atomic_u64(header::FREE_HEAD);
        let popped = top.fetch_update(AcqRel, Acquire, |now| {
            // None: empty, or not a frame's number, which only a broken process can have written.
            let below = self.0.free_cell((now as u32).checked_sub(1)?)?.load(Relaxed);
            Some(head(((now >> 32) as u32).wrapping_add(1), below as u32))
        });
        let frame = popped.ok().map(|before| FrameId(before as u32 - 1))?;
        self.0.table.atomic_u32(header::FREE_COUNT).fetch_sub(1, Relaxed);
        Some(frame)
    }

    /// Takes several out, as [`FreeStack::pop`] would one after the other, and appends them; as many as there are.
    pub fn pop_many(&self, count: usize, into: &mut Vec<FrameId>) {
        let (start, top) = (into.len(), self.0.table.atomic_u64(header::FREE_HEAD));
        let popped = top.fetch_update(AcqRel, Acquire, |now| {
            // Whoever changes the stack during this walk changes the head, too.
            into.truncate(start);
            let mut next = now as u32;
            while into.len() - start < count
                && let Some(frame) = next.checked_sub(1)
                && let Some(cell) = self.0.free_cell(frame)
            {
                into.push(FrameId(frame));
                next = cell.load(Relaxed) as u32;
            }
            (into.len() > start).then(|| head(((now >> 32) as u32).wrapping_add(1), next))
        });
        if popped.is_ok() {
            self.0.table.atomic_u32(header::FREE_COUNT).fetch_sub((into.len() - start) as u32, Relaxed);
        }
    }

    /// About how many are free; exact while nobody pushes or pops.
    pub fn len(&self) -> u32 {
        self.0.table.atomic_u32(header::FREE_COUNT).load(Relaxed).min(self.0.layout.spec.frames)
    }
}

/// The frames that ranks have filled with pages by themselves, until the agent hears of it. A frame is in it once at most,
/// however often it is filled meanwhile.
pub(super) struct FilledStack<'a> {
    shared: &'a Shared,
    /// Offset of its head in the table.
    head: usize,
}

/// In a cell: the frame is in the stack.
const LISTED: u64 = 1 << 32;

impl<'a> FilledStack<'a> {
    /// That of a thread of the agent.
    pub fn of(shared: &'a Shared, shard: u32) -> Self {
        debug_assert!(shard < shared.layout.spec.agent_threads);
        Self { shared, head: header::FILLED_HEADS + shard as usize * 128 }
    }

    /// Adds a frame. Numbers beyond the pool are ignored.
    pub fn push(&self, frame: FrameId) {
        let Some(cell) = self.shared.filled_cell(frame.0) else { return };
        // Who finds it listed leaves it to the agent, which looks at the frame after it has taken that back.
        if cell.fetch_or(LISTED, AcqRel) & LISTED != 0 {
            return;
        }
        let top = self.shared.table.atomic_u64(self.head);
        let _ = top.fetch_update(AcqRel, Acquire, |now| {
            cell.store(LISTED | u64::from(now as u32), Relaxed);
            Some(head(((now >> 32) as u32).wrapping_add(1), frame.0 + 1))
        });
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.shared.table.atomic_u64(self.head).load(Relaxed) as u32 == NONE
    }

    /// Takes all out, and appends them in the order in which they were added.
    pub fn take_all(&self, into: &mut Vec<FrameId>) {
        if self.is_empty() {
            return;
        }
        let (start, top) = (into.len(), self.shared.table.atomic_u64(self.head));
        let taken =
            top.fetch_update(AcqRel, Acquire, |now| Some(head(((now >> 32) as u32).wrapping_add(1), NONE)));
        let mut next = taken.unwrap_or_default() as u32;
        // Bounded, whatever a broken process has made of the cells.
        for _ in 0..self.shared.layout.spec.frames {
            let Some(frame) = next.checked_sub(1) else { break };
            let Some(cell) = self.shared.filled_cell(frame) else { break };
            next = cell.swap(0, AcqRel) as u32;
            into.push(FrameId(frame));
        }
        into[start..].reverse();
    }
}
