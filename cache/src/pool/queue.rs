//! The free frames of each size, and those that ranks have filled: stacks for many producers and consumers, in shared memory.
//!
//! The frame freed last is handed out first: its memory is mapped everywhere and often still in a processor's cache, while
//! a frame that nobody has touched costs a page fault for each 4 KiB. So a node that needs few frames uses few.
//!
//! Treiber's stack: the head names the top frame, each frame's cell the one below. The head also counts its changes, in
//! the same word, so that a pop that was overtaken by a pop and a push of the same frame notices. Lock-free; a process that
//! dies in the middle of an operation loses at most the frame it had.

use super::layout::header;
use super::shared::Shared;
use super::size::{FrameId, PageSize};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The free frames of a size. Values are checked by whoever pops them.
pub(super) struct FreeStack<'a> {
    shared: &'a Shared,
    size: PageSize,
    /// Offset of its head in the table.
    head: usize,
}

/// In place of a frame's number plus one: the end.
const NONE: u32 = 0;

fn head(changes: u32, top: u32) -> u64 {
    u64::from(changes) << 32 | u64::from(top)
}

impl<'a> FreeStack<'a> {
    /// Of the frames of this size.
    pub fn of(shared: &'a Shared, size: PageSize) -> Self {
        Self { shared, size, head: header::FREE_HEADS + size.index() * header::FREE_HEAD_BYTES }
    }

    fn top(&self) -> &AtomicU64 {
        self.shared.table.atomic_u64(self.head)
    }

    fn count(&self) -> &AtomicU32 {
        self.shared.table.atomic_u32(self.head + header::FREE_COUNT)
    }

    /// Adds a frame of the size, which nobody else has. Numbers beyond the pool are ignored.
    pub fn push(&self, frame: FrameId) {
        self.push_many(std::iter::once(frame));
    }

    /// Adds several, the first of them on top, with one change of the stack.
    pub fn push_many(&self, frames: impl DoubleEndedIterator<Item = FrameId>) {
        let (mut top, mut last, mut pushed) = (NONE, None, 0);
        for frame in frames.rev() {
            let Some(cell) = self.shared.free_cell(frame, self.size) else { continue };
            cell.store(u64::from(top), Relaxed);
            last = last.or(Some(cell));
            (top, pushed) = (frame.0 + 1, pushed + 1);
        }
        let Some(last) = last else { return };
        // Before, so that it is never less than what can be popped.
        self.count().fetch_add(pushed, Relaxed);
        let _ = self.top().fetch_update(AcqRel, Acquire, |now| {
            last.store(u64::from(now as u32), Relaxed);
            Some(head(((now >> 32) as u32).wrapping_add(1), top))
        });
    }

    /// Takes the frame out that was added last. None when there is none.
    pub fn pop(&self) -> Option<FrameId> {
        let popped = self.top().fetch_update(AcqRel, Acquire, |now| {
            let top = FrameId((now as u32).checked_sub(1)?);
            // None: not a frame's number, which only a broken process can have written.
            let below = self.shared.free_cell(top, self.size)?.load(Relaxed);
            Some(head(((now >> 32) as u32).wrapping_add(1), below as u32))
        });
        let frame = popped.ok().map(|before| FrameId(before as u32 - 1))?;
        self.count().fetch_sub(1, Relaxed);
        Some(frame)
    }

    /// Takes several out, as [`FreeStack::pop`] would one after the other, and appends them; as many as there are.
    pub fn pop_many(&self, count: usize, into: &mut Vec<FrameId>) {
        let start = into.len();
        let popped = self.top().fetch_update(AcqRel, Acquire, |now| {
            // Whoever changes the stack during this walk changes the head, too.
            into.truncate(start);
            let mut next = now as u32;
            while into.len() - start < count
                && let Some(frame) = next.checked_sub(1).map(FrameId)
                && let Some(cell) = self.shared.free_cell(frame, self.size)
            {
                into.push(frame);
                next = cell.load(Relaxed) as u32;
            }
            (into.len() > start).then(|| head(((now >> 32) as u32).wrapping_add(1), next))
        });
        if popped.is_ok() {
            self.count().fetch_sub((into.len() - start) as u32, Relaxed);
        }
    }

    /// About how many there are; exact while nobody pushes or pops.
    pub fn len(&self) -> u32 {
        self.count().load(Relaxed).min(self.shared.layout.frames_of(self.size))
    }

    /// How many blocks have frames of the size.
    pub fn blocks(&self) -> &AtomicU32 {
        self.shared.table.atomic_u32(self.head + header::BLOCKS_OF_SIZE)
    }
}

/// The blocks without frames.
pub(super) struct BlockStack<'a>(pub &'a Shared);

impl BlockStack<'_> {
    /// Adds a block, which nobody else has.
    pub fn push(&self, block: u32) {
        let Some(below) = self.0.block_cell(block) else { return };
        self.0.table.atomic_u32(header::BLOCKS_COUNT).fetch_add(1, Relaxed);
        let _ = self.0.table.atomic_u64(header::BLOCKS_HEAD).fetch_update(AcqRel, Acquire, |now| {
            below.store(u64::from(now as u32), Relaxed);
            Some(head(((now >> 32) as u32).wrapping_add(1), block + 1))
        });
    }

    /// Takes the block out that was added last. None when there is none.
    pub fn pop(&self) -> Option<u32> {
        let top = self.0.table.atomic_u64(header::BLOCKS_HEAD);
        let popped = top.fetch_update(AcqRel, Acquire, |now| {
            let below = self.0.block_cell((now as u32).checked_sub(1)?)?.load(Relaxed);
            Some(head(((now >> 32) as u32).wrapping_add(1), below as u32))
        });
        let block = popped.ok().map(|before| before as u32 - 1)?;
        self.0.table.atomic_u32(header::BLOCKS_COUNT).fetch_sub(1, Relaxed);
        Some(block)
    }

    /// About how many there are.
    pub fn len(&self) -> u32 {
        self.0.table.atomic_u32(header::BLOCKS_COUNT).load(Relaxed).min(self.0.layout.block_count)
    }

    /// About how many frames of a size they have room for.
    pub fn frames_of(&self, size: PageSize) -> u32 {
        let (blocks, last) = (self.len(), self.0.layout.block_count - 1);
        let block_bytes = self.0.layout.frame_blocks.bytes();
        let last_bytes = self.0.layout.bytes_of_block(last);
        // The last block may be smaller.
        let has_last = blocks > 0 && last_bytes < block_bytes && self.0.size_of_block(last).is_none();
        let in_last = if has_last { size.frames_in(last_bytes) } else { 0 };
        (blocks - u32::from(has_last)) * size.frames_in(block_bytes) + in_last
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
pub(super) const LISTED: u64 = 1 << 32;

impl<'a> FilledStack<'a> {
    /// That of a thread of the agent.
    pub fn of(shared: &'a Shared, shard: u32) -> Self {
        debug_assert!(shard < shared.layout.spec.agent_threads);
        Self { shared, head: header::FILLED_HEADS + shard as usize * 128 }
    }

    /// Adds a frame. Numbers beyond the pool are ignored.
    pub fn push(&self, frame: FrameId) {
        let Some(cell) = self.shared.filled_cell(frame) else { return };
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
        for _ in 0..self.shared.layout.block_count * self.shared.layout.frame_blocks.units() {
            let Some(frame) = next.checked_sub(1).map(FrameId) else { break };
            let Some(cell) = self.shared.filled_cell(frame) else { break };
            next = cell.swap(0, AcqRel) as u32;
            into.push(frame);
        }
        into[start..].reverse();
    }
}
