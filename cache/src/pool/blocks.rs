//! Blocks of frames: cutting one into frames of a size when such frames are wanted, and making one whole again so that it can
//! be cut again.
//!
//! A block without frames may be cut by whoever finds no free frame of the size it needs, rank or agent. The other way takes an
//! agent, one block at a time: it marks the block, evicts what its frames hold, and waits until every frame of the block has
//! been given back. A frame that is given back while its block is marked is *vacated*: no stack has it, so that nobody is handed it
//! out again.

use super::PoolError;
use super::client::PoolClient;
use super::entry::Entry;
use super::layout::header;
use super::queue::{BlockStack, FreeStack, LISTED};
use super::shared::{FrameUse, Shared};
use super::size::FrameId;
use super::size::PageSize;
use crate::page::PageIndex;
use rustix::thread::futex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

/// In a block's word: the number of its frames' size plus one, or 0 while it has none.
const SIZE_MASK: u64 = 0xff;
/// The block is being emptied.
const VACATING: u64 = 1 << 8;

/// What the table says of the block that is being emptied, and that it may have changed since: [`PoolClient::leaving`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving(u32);

impl Leaving {
    /// The block, whose frames ranks are to give back; none if none is.
    pub fn block(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}

impl PoolClient {
    /// Which block is being emptied now.
    pub fn leaving(&self) -> Leaving {
        Leaving(self.shared.leaving().load(Acquire))
    }

    /// Sleeps while the table says this; may wake early.
    pub fn sleep_while_leaving(&self, known: Leaving) {
        let _ = futex::wait(self.shared.leaving(), futex::Flags::empty(), known.0, None);
    }

    /// Has the threads look again that sleep so.
    pub fn wake_leaving(&self) {
        self.shared.wake_leaving();
    }

    /// The block that a page of this node's is in; none when the node has no copy. The answer may be old already.
    pub fn block_of_page(&self, page: PageIndex) -> Option<u32> {
        let entry = Entry::from_word(self.shared.entry(page).ok()?.load(Acquire));
        entry.state().readable().then(|| self.shared.layout.frame_blocks.of_frame(entry.frame()))
    }
}

impl Shared {
    /// Makes all blocks whole; by the creator, before anybody else uses them. The first block is cut first.
    pub fn initialise_blocks(&self) {
        (0..self.layout.block_count).rev().for_each(|block| BlockStack(self).push(block));
    }

    /// The size of a block's frames; none while it has none.
    pub fn size_of_block(&self, block: u32) -> Option<PageSize> {
        let word = self.block_state(block)?.load(Acquire);
        PageSize::of_index((word & SIZE_MASK).checked_sub(1)? as usize)
    }

    fn leaving(&self) -> &AtomicU32 {
        self.table.atomic_u32(header::LEAVING)
    }

    pub fn wake_leaving(&self) {
        // It cannot fail in a way that matters: a block that is not emptied is tried again.
        let _ = futex::wake(self.leaving(), futex::Flags::empty(), i32::MAX as u32);
    }

    /// Cuts a block into frames of a size, which are free then. False: no block is left that has room for one.
    pub fn cut(&self, size: PageSize) -> bool {
        let blocks = BlockStack(self);
        let Some(mut block) = blocks.pop() else { return false };
        if size.frames_in(self.layout.bytes_of_block(block)) == 0 {
            // The last one, which is small.
            let other = blocks.pop();
            blocks.push(block);
            match other {
                Some(other) if size.frames_in(self.layout.bytes_of_block(other)) > 0 => block = other,
                other => {
                    other.into_iter().for_each(|other| blocks.push(other));
                    return false;
                }
            }
        }
        if let Some(word) = self.block_state(block) {
            word.store(size.index() as u64 + 1, SeqCst);
        }
        let stack = FreeStack::of(self, size);
        stack.blocks().fetch_add(1, Relaxed);
        stack.push_many(self.frames_of_block(block, size));
        true
    }

    /// The frames of a block, whatever their size.
    pub fn frames_in_block(&self, block: u32) -> impl DoubleEndedIterator<Item = FrameId> + use<> {
        let size = self.size_of_block(block);
        size.into_iter().flat_map({
            let bytes = self.layout.bytes_of_block(block);
            let blocks = self.layout.frame_blocks;
            move |size| (0..size.frames_in(bytes)).map(move |index| blocks.frame(block, size, index))
        })
    }

    fn frames_of_block(
        &self,
        block: u32,
        size: PageSize,
    ) -> impl DoubleEndedIterator<Item = FrameId> + use<> {
        let count = size.frames_in(self.layout.bytes_of_block(block));
        let blocks = self.layout.frame_blocks;
        (0..count).map(move |index| blocks.frame(block, size, index))
    }

    /// Pops a free frame for somebody, mapped and ready to be filled; passes over numbers that are not free frames.
    pub fn take_free(&self, size: PageSize, used: FrameUse) -> Option<FrameId> {
        // Bounded, whatever a broken process has made of the stack.
        for _ in 0..=self.layout.frames_of(size) {
            match FreeStack::of(self, size).pop() {
                Some(frame) if self.claim(frame, size, used) => return Some(frame),
                Some(_) => {}
                None if self.cut(size) => {}
                None => return None,
            }
        }
        None
    }

    /// Takes several free frames at once, as many as there are, and appends them.
    pub fn take_free_many(&self, size: PageSize, count: usize, used: FrameUse, into: &mut Vec<FrameId>) {
        let start = into.len();
        while into.len() - start < count {
            let popped = into.len();
            FreeStack::of(self, size).pop_many(count - (popped - start), into);
            let none = into.len() == popped;
            let mut claimed = popped;
            for index in popped..into.len() {
                if self.claim(into[index], size, used) {
                    into[claimed] = into[index];
                    claimed += 1;
                }
            }
            into.truncate(claimed);
            if none && !self.cut(size) {
                return;
            }
        }
    }

    /// Takes a frame over that was popped; false when it was not free, which only a broken process can have caused, or when its
    /// block is being emptied.
    fn claim(&self, frame: FrameId, size: PageSize, used: FrameUse) -> bool {
        if self.is_vacating(self.block_of(frame)) {
            self.vacate(frame);
            return false;
        }
        let Ok(word) = self.frame_use(frame) else { return false };
        let free = word.compare_exchange(FrameUse::Free.word(), used.word(), AcqRel, Relaxed).is_ok();
        if free {
            self.frames.prepare(frame.offset() as usize, size.bytes() as usize);
        }
        free
    }

    /// Makes a frame free. The caller had it.
    pub fn put_free(&self, frame: FrameId) {
        if self.is_vacating(self.block_of(frame)) {
            return self.vacate(frame);
        }
        if let (Ok(word), Ok(size)) = (self.frame_use(frame), self.size_of_frame(frame)) {
            word.store(FrameUse::Free.word(), std::sync::atomic::Ordering::Release);
            FreeStack::of(self, size).push(frame);
        }
    }

    /// About how many frames of a size are free, or could be at once.
    pub fn free_frames(&self, size: PageSize) -> u32 {
        FreeStack::of(self, size).len() + BlockStack(self).frames_of(size)
    }

    /// About how many frames of a size there are, or could be at once.
    pub fn frames_now(&self, size: PageSize) -> u32 {
        let each = size.frames_in(self.layout.frame_blocks.bytes());
        let cut = self.blocks_of(size).saturating_mul(each);
        cut.saturating_add(BlockStack(self).frames_of(size)).min(self.layout.frames_of(size))
    }

    /// How many of them are to be free ([`TableLayout::free_target`](super::TableLayout)).
    pub fn free_target(&self, size: PageSize) -> u32 {
        self.layout.free_target(size, self.frames_now(size))
    }

    /// How many blocks have frames of a size.
    pub fn blocks_of(&self, size: PageSize) -> u32 {
        FreeStack::of(self, size).blocks().load(Relaxed).min(self.layout.block_count)
    }

    fn block_of(&self, frame: FrameId) -> u32 {
        self.layout.frame_blocks.of_frame(frame)
    }

    pub fn is_vacating(&self, block: u32) -> bool {
        self.block_state(block).is_some_and(|word| word.load(SeqCst) & VACATING != 0)
    }

    /// A frame that nobody has, of a block that is being emptied.
    fn vacate(&self, frame: FrameId) {
        let Ok(word) = self.frame_use(frame) else { return };
        word.store(FrameUse::Vacated.word(), SeqCst);
        // Given up meanwhile: either this one sees that, or who has given it up sees the frame.
        if !self.is_vacating(self.block_of(frame)) {
            self.unvacate(frame);
        }
    }

    fn unvacate(&self, frame: FrameId) {
        let (Ok(word), Ok(size)) = (self.frame_use(frame), self.size_of_frame(frame)) else { return };
        let (vacated, free) = (FrameUse::Vacated.word(), FrameUse::Free.word());
        if word.compare_exchange(vacated, free, SeqCst, Relaxed).is_ok() {
            FreeStack::of(self, size).push(frame);
        }
    }

    /// Begins to empty a block: its frames are not handed out any more. False: it has none.
    pub fn begin_to_vacate(&self, block: u32) -> bool {
        let Some(word) = self.block_state(block) else { return false };
        let mark = |now: u64| (now & SIZE_MASK != 0).then_some(now | VACATING);
        if word.fetch_update(SeqCst, Acquire, mark).is_err() {
            return false;
        }
        self.leaving().store(block + 1, SeqCst);
        true
    }

    /// Gives that up: the block's frames are as before.
    pub fn stop_vacating(&self, block: u32) {
        let (Some(word), Some(size)) = (self.block_state(block), self.size_of_block(block)) else { return };
        self.leaving().store(0, SeqCst);
        word.fetch_and(!VACATING, SeqCst);
        self.frames_of_block(block, size).for_each(|frame| self.unvacate(frame));
    }

    /// Looks whether a block that is being emptied is empty: then it has no frames any more, and may be cut again.
    ///
    /// # Errors
    /// None but those of a broken table.
    pub fn end_vacating(&self, block: u32) -> Result<bool, PoolError> {
        let (Some(word), Some(size)) = (self.block_state(block), self.size_of_block(block)) else {
            return Ok(true);
        };
        self.pull_free(block, size);
        for frame in self.frames_of_block(block, size) {
            let is_listed = self.filled_cell(frame).is_some_and(|cell| cell.load(Acquire) & LISTED != 0);
            if is_listed || self.frame_use(frame)?.load(SeqCst) != FrameUse::Vacated.word() {
                return Ok(false);
            }
        }
        for frame in self.frames_of_block(block, size) {
            self.frame_use(frame)?.store(FrameUse::Free.word(), Relaxed);
        }
        self.leaving().store(0, SeqCst);
        word.store(0, SeqCst);
        let _ = FreeStack::of(self, size).blocks().fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
        BlockStack(self).push(block);
        Ok(true)
    }

    /// Takes the free frames of a block that is being emptied out of their stack. For a moment nobody finds the others there,
    /// and may cut another block.
    fn pull_free(&self, block: u32, size: PageSize) {
        let stack = FreeStack::of(self, size);
        let is_free = |frame: FrameId| {
            self.frame_use(frame).is_ok_and(|word| word.load(Relaxed) == FrameUse::Free.word())
        };
        if !self.frames_of_block(block, size).any(is_free) {
            return;
        }
        let mut frames = Vec::new();
        stack.pop_many(self.layout.frames_of(size) as usize, &mut frames);
        let (here, others): (Vec<_>, Vec<_>) =
            frames.into_iter().partition(|frame| self.block_of(*frame) == block);
        stack.push_many(others.into_iter());
        here.into_iter().for_each(|frame| self.vacate(frame));
    }
}
