//! The agent's view of the pool: it owns every transition of a page, and all frames that nobody else holds. No unsafe
//! code; it reaches the table by checked offsets.

use super::PoolError;
use super::counters::{Counter, CounterSnapshot};
use super::entry::{Entry, PageState};
use super::fence::{self, Fences};
use super::layout::{PoolSpec, TableLayout};
use super::queue::FilledStack;
use super::row;
use super::shared::{FrameUse, IN_USE, Pins, Shared, UNKNOWN, slot};
use super::size::{FrameId, PageSize};
use super::wait::{self, Completed, WaitId};
use crate::page::PageIndex;
use crate::partition::{PartitionId, SegmentId};
use crate::protocol::claim::{self, Act, Event};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use vgas_nvm::{StoredPage, Whereabouts};
use vgas_rma::address::Rank;
use vgas_shm::{Mapping, Span};

/// Why the agent wants a page to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// The protocol takes rights away (invalidation, downgrade). Read pins don't delay it; write pins do, for as long
    /// as they last, without keeping the node's users out.
    Revoke,
    /// The frame is wanted for another page. Any pin ends the attempt.
    Evict,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody uses the page, and HOLD keeps it so: the transition may be made ([`PoolAgent::settle`],
    /// [`PoolAgent::detach`], or [`PoolAgent::unhold`]).
    Quiet,
    /// Only for [`Intent::Evict`]: the page is pinned. HOLD has been taken back.
    Pinned,
}

/// A page that is being taken from its users.
struct Revocation {
    page: PageIndex,
    intent: Intent,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// HOLD is set, the barrier has not been run since.
    Held,
    /// HOLD is set and every user that got in before stands in its slot.
    Fenced,
    /// A write pin was found; HOLD is not set. Tried again when the pin is gone.
    AwaitingUnpin,
}

/// The view of a node's agent, or of one of its threads; used by one thread.
pub struct PoolAgent {
    pub(super) shared: Arc<Shared>,
    shard: u32,
    asymmetric: bool,
    revocations: Vec<Revocation>,
    /// How many of them are at [`Stage::AwaitingUnpin`].
    awaiting_unpin: usize,
    /// Pages in hazard slots at the last look, sorted; kept for its allocation.
    in_use: Vec<PageIndex>,
    /// Frames that can't be freed yet because somebody still reads them through a pin.
    limbo: Vec<FrameId>,
}

impl std::fmt::Debug for PoolAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (spec, revoking) = (&self.shared.layout.spec, self.revocations.len());
        let free = self.free_frames(self.shared.layout.size);
        write!(f, "PoolAgent({spec:?}, {free} free, {revoking} being revoked)")
    }
}

impl PoolAgent {
    /// Makes a pool in two fresh (zeroed) mappings of at least the sizes that [`TableLayout`] names. All frames are free,
    /// all pages invalid. Ranks may attach when it has returned.
    pub fn create(
        spec: &PoolSpec,
        table: Arc<Mapping>,
        frames: Arc<Mapping>,
        fences: Fences,
    ) -> Result<Self, PoolError> {
        let shared = Shared::new(spec, table, frames)?;
        let asymmetric = fences == Fences::Detect && fence::asymmetric_available();
        shared.initialise_blocks();
        shared.publish(asymmetric);
        Ok(Self::of(Arc::new(shared), asymmetric, 0))
    }

    /// The view of another thread of the agent. Each makes the transitions of its own pages ([`TableLayout::shard_of`]) only;
    /// frames are anybody's who has them.
    pub fn another(&self, shard: u32) -> Self {
        Self::of(self.shared.clone(), self.asymmetric, shard)
    }

    fn of(shared: Arc<Shared>, asymmetric: bool, shard: u32) -> Self {
        let (revocations, in_use, limbo) = (Vec::new(), Vec::new(), Vec::new());
        Self { shared, shard, asymmetric, revocations, awaiting_unpin: 0, in_use, limbo }
    }

    /// Whose pages it has.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// The layout, with the numbering of pages.
    #[inline]
    pub fn layout(&self) -> &TableLayout {
        &self.shared.layout
    }

    /// Whether users are spared their fence.
    pub fn asymmetric(&self) -> bool {
        self.asymmetric
    }

    /// Makes sure that the barriers reach a process that has just attached; it must not use a page before. Takes some
    /// ten microseconds a processor. Does nothing for a client in the agent's own process: there, use
    /// [`Fences::Symmetric`].
    pub fn reach_new_client(&self) -> Result<(), PoolError> {
        if self.asymmetric { fence::visit_processors() } else { Ok(()) }
    }

    /// The page's entry now. Behind the agent's back, [`PageState::Exclusive`] may become [`PageState::Modified`] and AHEAD may
    /// vanish, neither while HOLD is set; and [`PageState::Stored`] may become anything, by way of [`PageState::Claimed`].
    #[inline]
    pub fn entry(&self, page: PageIndex) -> Result<Entry, PoolError> {
        Ok(Entry::from_word(self.shared.entry(page)?.load(Acquire)))
    }

    /// Says that nobody has a copy of a page without one, that nothing is in flight for it, and what NVMe has: any rank of the
    /// node may bring it in from now on.
    pub fn publish(&self, page: PageIndex, stored: StoredPage) -> Result<(), PoolError> {
        let entry = self.entry(page)?;
        debug_assert_eq!(entry.state(), PageState::Invalid, "page {page}");
        if claim::cell(entry.claim_state(), Event::Publish).is_some() {
            self.shared.entry(page)?.store(Entry::of_stored(stored).word(), Release);
        }
        Ok(())
    }

    /// Takes a page back that was published. False: a rank has claimed it. It is held then, and the rank rings when the claim
    /// ends.
    pub fn withdraw(&self, page: PageIndex) -> Result<bool, PoolError> {
        let word = self.shared.entry(page)?;
        let mut act = Act::Nothing;
        let _ = word.fetch_update(AcqRel, Acquire, |now| {
            let entry = Entry::from_word(now);
            let (next, follows) = claim::cell(entry.claim_state(), Event::Withdraw)?;
            act = follows;
            match next {
                claim::State::Awaited => Some(entry.with_hold(true).word()),
                // Not published: it stays what it is.
                _ => (entry.state() == PageState::Stored).then(|| Entry::INVALID.word()),
            }
        });
        Ok(act == Act::Nothing)
    }

    /// Whether a rank has claimed a page.
    pub fn is_claimed(&self, page: PageIndex) -> Result<bool, PoolError> {
        Ok(self.entry(page)?.state() == PageState::Claimed)
    }

    /// Says that nothing is known of a page that this node alone has: its owner may map it by itself.
    pub fn know_nothing(&self, frame: FrameId) -> Result<(), PoolError> {
        self.shared.frame_use(frame)?.fetch_or(UNKNOWN, AcqRel);
        Ok(())
    }

    /// Ends that, before anything is known of the page. Its frame, if its owner has mapped it: with a pin, which is the
    /// caller's to take back now.
    pub fn know(&self, page: PageIndex) -> Result<Option<FrameId>, PoolError> {
        let entry = self.entry(page)?;
        if !entry.state().writable() {
            return Ok(None);
        }
        let used = self.shared.frame_use(entry.frame())?;
        if used.load(Acquire) & UNKNOWN == 0 {
            return Ok(None);
        }
        let before = used.fetch_and(!(UNKNOWN | IN_USE), AcqRel);
        Ok((before & IN_USE != 0).then(|| entry.frame()))
    }

    /// The frames that ranks have filled since the last call, each with its page, in the order in which that was.
    pub fn take_filled(&self, into: &mut Vec<(FrameId, PageIndex)>) -> Result<(), PoolError> {
        let mut frames = Vec::new();
        FilledStack::of(&self.shared, self.shard).take_all(&mut frames);
        for frame in frames {
            if let Some(page) = self.page_in(frame)? {
                into.push((frame, page));
            }
        }
        Ok(())
    }

    /// The page of which a frame is the copy. Who took it away meanwhile, for another page or none, has seen to it.
    #[inline]
    pub fn page_in(&self, frame: FrameId) -> Result<Option<PageIndex>, PoolError> {
        let FrameUse::Page(page) = self.frame_use(frame)? else { return Ok(None) };
        let entry = self.entry(page)?;
        Ok((entry.state().readable() && entry.frame() == frame).then_some(page))
    }

    /// Whether ranks have filled frames since the last [`PoolAgent::take_filled`].
    pub fn has_filled(&self) -> bool {
        !FilledStack::of(&self.shared, self.shard).is_empty()
    }

    /// Says where the file of a rank's partition of a segment is, for the node's ranks to read; none: nowhere any more.
    pub fn show_file(
        &self,
        segment: SegmentId,
        local_rank: u32,
        at: Option<&Whereabouts>,
    ) -> Result<(), PoolError> {
        if let Some(at) = at {
            for (index, word) in at.encode_volume().into_iter().enumerate() {
                self.shared.volume_word(index).store(word, Relaxed);
            }
        }
        let words = at.map_or([0; Whereabouts::FILE_WORDS], Whereabouts::encode_file);
        for (index, word) in words.into_iter().enumerate().rev() {
            // The first comes last: without it the others mean nothing.
            self.shared.file_word(segment, local_rank, index)?.store(word, Release);
        }
        Ok(())
    }

    /// Ends what ranks of the node have said of the partitions of a segment ([`PoolClient::row`](super::PoolClient::row)): of all, or of
    /// one owner's. Nobody uses them any more.
    pub fn end_rows(&self, segment: SegmentId, owner: Option<Rank>) {
        let owners = owner.map_or(0..self.shared.layout.ranks(), |owner| owner.0..owner.0 + 1);
        for owner in owners.map(Rank) {
            if let Some(offset) = self.shared.row_offset(PartitionId { segment, owner }) {
                row::END
                    .into_iter()
                    .for_each(|at| self.shared.table.atomic_u64(offset + at).store(0, Release));
            }
        }
    }

    /// Takes a free frame for a page of this size.
    pub fn take_frame(&self, size: PageSize) -> Option<FrameId> {
        self.shared.take_free(size, FrameUse::Agent)
    }

    /// Takes several free frames, as many as there are, and appends them.
    pub fn take_frames(&self, size: PageSize, count: usize, into: &mut Vec<FrameId>) {
        self.shared.take_free_many(size, count, FrameUse::Agent, into);
    }

    /// How many blocks of the pool have frames of a size.
    pub fn blocks_of(&self, size: PageSize) -> u32 {
        self.shared.blocks_of(size)
    }

    /// Cuts one more block into frames of a size. False: none is without frames.
    pub fn cut(&self, size: PageSize) -> bool {
        self.shared.cut(size)
    }

    /// Begins to empty a block, so that its memory may be used for frames of another size: what it holds is to be evicted, and
    /// its frames, once free, are not handed out any more. False: it has none. By one thread of the agent at a time.
    pub fn begin_to_vacate(&self, block: u32) -> bool {
        self.shared.begin_to_vacate(block)
    }

    /// Asks ranks once more to give back what they have mapped of it.
    pub fn ask_to_leave(&self) {
        self.shared.wake_leaving();
    }

    /// Whether a block that is being emptied is empty; then it has no frames any more.
    pub fn end_vacating(&self, block: u32) -> Result<bool, PoolError> {
        self.shared.end_vacating(block)
    }

    /// Gives it up: the block keeps what it holds.
    pub fn stop_vacating(&self, block: u32) {
        self.shared.stop_vacating(block);
    }

    /// The block that a frame is in.
    pub fn block_of(&self, frame: FrameId) -> u32 {
        self.shared.layout.frame_blocks.of_frame(frame)
    }

    /// Some block with frames of a size, other than `except`; none when no other has such frames.
    pub fn some_block_of(&self, size: PageSize, except: &[u32]) -> Option<u32> {
        let is_one =
            |&block: &u32| !except.contains(&block) && self.shared.size_of_block(block) == Some(size);
        (0..self.shared.layout.block_count).find(is_one)
    }

    /// The block of a size with the most free frames, other than `except`, when the size can do without one: when it would still have
    /// so many free ones if the block had been full.
    pub fn spare_block_of(&self, size: PageSize, kept: u32, except: &[u32]) -> Option<u32> {
        let shared = &self.shared;
        let each = size.frames_in(shared.layout.frame_blocks.bytes());
        if self.free_frames(size) < each.saturating_add(kept) {
            return None;
        }
        let free_in = |block: u32| {
            let frames = shared.frames_in_block(block);
            frames.filter(|&frame| matches!(self.frame_use(frame), Ok(FrameUse::Free))).count()
        };
        let blocks = (0..shared.layout.block_count)
            .filter(|&block| !except.contains(&block) && shared.size_of_block(block) == Some(size));
        blocks.map(|block| (free_in(block), block)).max().map(|(_, block)| block)
    }

    /// Whether the frame is in a block that is being emptied.
    #[inline]
    pub fn is_vacating(&self, frame: FrameId) -> bool {
        self.shared.is_vacating(self.block_of(frame))
    }

    /// The frames of a block.
    pub fn frames_in_block(&self, block: u32) -> impl Iterator<Item = FrameId> + use<> {
        self.shared.frames_in_block(block)
    }

    /// All frames, in whose hands they may be.
    pub fn frames(&self) -> impl Iterator<Item = FrameId> + '_ {
        (0..self.shared.layout.block_count).flat_map(|block| self.shared.frames_in_block(block))
    }

    /// How many frames for pages of a size ranks have wished for since the last call; half of the pool at most.
    pub fn take_wish(&self, size: PageSize) -> u32 {
        let wish = self.shared.wish(size);
        let most = (self.shared.layout.frames_of(size) / 2).max(1);
        if wish.load(Relaxed) == 0 { 0 } else { wish.swap(0, Relaxed).min(most) }
    }

    /// How many frames for pages of a size are to be free: so many that a miss or a staged put finds one at once.
    #[inline]
    pub fn free_target(&self, size: PageSize) -> u32 {
        self.shared.free_target(size)
    }

    /// About how many frames for pages of a size there are, or could be at once.
    #[inline]
    pub fn frames_now(&self, size: PageSize) -> u32 {
        self.shared.frames_now(size)
    }

    /// About how many frames for pages of a size are free.
    #[inline]
    pub fn free_frames(&self, size: PageSize) -> u32 {
        self.shared.free_frames(size)
    }

    /// The size of the pages that a frame is for.
    #[inline]
    pub fn size_of_frame(&self, frame: FrameId) -> Result<PageSize, PoolError> {
        self.shared.size_of_frame(frame)
    }

    /// Takes over a frame that a rank has staged. An error when that rank does not have it.
    pub fn adopt(&self, frame: FrameId, local_rank: u32) -> Result<(), PoolError> {
        let (from, to) = (FrameUse::Staged { local_rank }, FrameUse::Agent);
        let word = self.shared.frame_use(frame)?;
        match word.compare_exchange(from.word(), to.word(), AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(found) => {
                let found = FrameUse::from_word(found);
                Err(PoolError::FrameUse { frame, found, expected: "staged by the rank that sends it" })
            }
        }
    }

    /// In whose hands a frame is.
    #[inline]
    pub fn frame_use(&self, frame: FrameId) -> Result<FrameUse, PoolError> {
        Ok(FrameUse::from_word(self.shared.frame_use(frame)?.load(Acquire)))
    }

    /// The bytes of a frame, for NVMe and network.
    #[inline]
    pub fn frame_span(&self, frame: FrameId) -> Result<Span, PoolError> {
        self.shared.frame_span(frame)
    }

    /// Frees a frame of the agent's: at once, or, when readers have it pinned, in a later [`PoolAgent::reclaim`].
    pub fn release(&mut self, frame: FrameId) -> Result<(), PoolError> {
        self.expect_own(frame)?;
        self.shared.reservation(frame)?.store(0, Relaxed);
        if self.pins(frame)?.none() {
            self.shared.put_free(frame);
        } else {
            self.limbo.push(frame);
        }
        Ok(())
    }

    /// Frees the released frames that have been unpinned since; returns how many are still pinned.
    pub fn reclaim(&mut self) -> usize {
        let shared = &self.shared;
        self.limbo.retain(|&frame| {
            let pinned = shared.pins(frame).is_ok_and(|word| word.load(Acquire) != 0);
            if !pinned {
                shared.put_free(frame);
            }
            pinned
        });
        self.limbo.len()
    }

    fn expect_own(&self, frame: FrameId) -> Result<(), PoolError> {
        match self.frame_use(frame)? {
            FrameUse::Agent => Ok(()),
            found => Err(PoolError::FrameUse { frame, found, expected: "the agent's" }),
        }
    }

    /// Makes a filled frame of the agent's the copy of a page that has none, for everybody to use. With `ahead`, the
    /// first user reports.
    pub fn install(
        &self,
        page: PageIndex,
        frame: FrameId,
        state: PageState,
        ahead: bool,
    ) -> Result<(), PoolError> {
        let word = self.shared.entry(page)?;
        self.expect_own(frame)?;
        debug_assert!(state.readable() && !self.entry(page)?.state().readable(), "page {page} to {state:?}");
        self.shared.frame_use(frame)?.store(FrameUse::Page(page).word(), Relaxed);
        self.shared.stamp(frame)?.store(self.clock(), Relaxed);
        word.store(Entry::new(state, frame).with_ahead(ahead).word(), Release);
        Ok(())
    }

    /// Gives more rights to a page that has a copy (S or O to M, E to M): users need not be stopped for that.
    pub fn upgrade(&self, page: PageIndex, state: PageState) -> Result<(), PoolError> {
        debug_assert!(state.readable());
        let word = self.shared.entry(page)?;
        let _ =
            word.fetch_update(AcqRel, Acquire, |now| Some(Entry::from_word(now).with_state(state).word()));
        Ok(())
    }

    /// Says of a page without a copy whether the home serves it in place.
    pub fn mark_in_place(&self, page: PageIndex, on: bool) -> Result<(), PoolError> {
        let state = if on { PageState::InPlace } else { PageState::Invalid };
        debug_assert!(!self.entry(page)?.state().readable());
        self.shared.entry(page)?.store(Entry::new(state, FrameId(0)).word(), Release);
        Ok(())
    }

    /// Begins to take a page from its users: no new ones from now on. [`PoolAgent::poll_revocations`] says, once, when
    /// the present ones are done. A page that is being evicted already may be revoked: it then is revoked, not evicted.
    pub fn revoke(&mut self, page: PageIndex, intent: Intent) -> Result<(), PoolError> {
        // A page that is being revoked is held, unless it waits for an unpin.
        if (self.entry(page)?.held() || self.awaiting_unpin > 0)
            && let Some(earlier) = self.revocations.iter_mut().find(|earlier| earlier.page == page)
        {
            if intent == Intent::Revoke {
                earlier.intent = intent;
            }
            return Ok(());
        }
        self.hold(page)?;
        self.revocations.push(Revocation { page, intent, stage: Stage::Held });
        Ok(())
    }

    /// Whether revocations are in flight: then poll again soon. Uses last as long as a copy, or as long as a thread
    /// in the middle of one does not run.
    pub fn revoking(&self) -> bool {
        !self.revocations.is_empty()
    }

    /// Looks which pages have been left by their users; appends them with what came of it. Never waits: one barrier if
    /// there are fresh revocations, then one look at each used slot.
    pub fn poll_revocations(&mut self, done: &mut Vec<(PageIndex, Outcome)>) -> Result<(), PoolError> {
        if self.revocations.is_empty() {
            return Ok(());
        }
        for index in 0..self.revocations.len() {
            let Revocation { page, stage, .. } = self.revocations[index];
            if stage == Stage::AwaitingUnpin && self.page_pins(page)?.writers == 0 {
                self.hold(page)?;
                self.awaiting_unpin -= 1;
                self.revocations[index].stage = Stage::Held;
            }
        }
        if self.revocations.iter().any(|revocation| revocation.stage == Stage::Held) {
            fence::agent_barrier(self.asymmetric)?;
            for revocation in &mut self.revocations {
                if revocation.stage == Stage::Held {
                    revocation.stage = Stage::Fenced;
                }
            }
        }
        self.look_at_slots();
        // Those that are left keep their order: what was asked for first is sent first.
        let mut left = 0;
        for index in 0..self.revocations.len() {
            let Revocation { page, intent, stage } = self.revocations[index];
            if stage != Stage::Fenced || self.in_use.binary_search(&page).is_ok() {
                self.revocations.swap(left, index);
                left += 1;
                continue;
            }
            // The slots were empty, so a pin taken through one of them is counted by now.
            let pins = self.page_pins(page)?;
            let outcome = match intent {
                Intent::Evict if !pins.none() => {
                    self.unhold(page)?;
                    Outcome::Pinned
                }
                Intent::Revoke if pins.writers > 0 => {
                    self.unhold(page)?;
                    self.awaiting_unpin += 1;
                    self.revocations[index].stage = Stage::AwaitingUnpin;
                    self.revocations.swap(left, index);
                    left += 1;
                    continue;
                }
                _ => Outcome::Quiet,
            };
            done.push((page, outcome));
        }
        self.revocations.truncate(left);
        Ok(())
    }

    fn look_at_slots(&mut self) {
        self.in_use.clear();
        for rank in 0..self.shared.layout.spec.local_ranks {
            for index in 0..self.shared.slots_used(rank) {
                let hazard = self.shared.slot_word(rank, index, slot::HAZARD).load(Acquire);
                if hazard != 0 {
                    self.in_use.push(PageIndex(hazard - 1));
                }
            }
        }
        self.in_use.sort_unstable();
    }

    fn hold(&self, page: PageIndex) -> Result<(), PoolError> {
        let word = self.shared.entry(page)?;
        let _ = word.fetch_update(SeqCst, Acquire, |now| Some(Entry::from_word(now).with_hold(true).word()));
        Ok(())
    }

    /// Lets users in again without a transition.
    pub fn unhold(&self, page: PageIndex) -> Result<(), PoolError> {
        let word = self.shared.entry(page)?;
        let _ = word.fetch_update(AcqRel, Acquire, |now| Some(Entry::from_word(now).with_hold(false).word()));
        Ok(())
    }

    /// Ends a quiet revocation with fewer rights (M or E to O or S), and lets users in again.
    pub fn settle(&self, page: PageIndex, state: PageState) -> Result<(), PoolError> {
        let entry = self.entry(page)?;
        debug_assert!(entry.held() && state.readable() && entry.state().readable(), "{page} is {entry:?}");
        self.shared.entry(page)?.store(entry.with_state(state).with_hold(false).word(), Release);
        Ok(())
    }

    /// Ends a quiet revocation by giving up the copy. The frame, if there was one, is the agent's: to be sent or written
    /// back, then [`PoolAgent::release`]d. Also right for a page that nobody can have used yet.
    pub fn detach(&self, page: PageIndex) -> Result<Option<FrameId>, PoolError> {
        let entry = self.entry(page)?;
        self.shared.entry(page)?.store(Entry::INVALID.word(), Release);
        if !entry.state().readable() {
            return Ok(None);
        }
        self.shared.frame_use(entry.frame())?.store(FrameUse::Agent.word(), Relaxed);
        Ok(Some(entry.frame()))
    }

    /// How often a frame is pinned now.
    #[inline]
    pub fn pins(&self, frame: FrameId) -> Result<Pins, PoolError> {
        Ok(Pins::from_word(self.shared.pins(frame)?.load(Acquire)))
    }

    fn page_pins(&self, page: PageIndex) -> Result<Pins, PoolError> {
        let entry = self.entry(page)?;
        if entry.state().readable() { self.pins(entry.frame()) } else { Ok(Pins::default()) }
    }

    /// Notes that a waiter has been told of the page in this frame and has not copied it yet, until `deadline_ms` of
    /// the agent's clock of milliseconds.
    pub fn reserve(&self, frame: FrameId, deadline_ms: u64) -> Result<(), PoolError> {
        let word = self.shared.reservation(frame)?;
        let _ = word.fetch_update(AcqRel, Relaxed, |now| {
            let count = (now & 0xffff) + 1;
            let deadline = (now >> 16).max(deadline_ms);
            Some(deadline << 16 | count.min(0xffff))
        });
        Ok(())
    }

    /// Whether a waiter still has to copy the page, or has let the deadline pass without doing so.
    #[inline]
    pub fn reserved(&self, frame: FrameId, now_ms: u64) -> Result<bool, PoolError> {
        let word = self.shared.reservation(frame)?.load(Acquire);
        Ok(word & 0xffff != 0 && word >> 16 > now_ms)
    }

    /// Whether replacement may choose the frame: it holds a page, nobody has it pinned or reserved. A hint: the revocation
    /// decides.
    #[inline]
    pub fn evictable(&self, frame: FrameId, now_ms: u64) -> bool {
        let check = || -> Result<bool, PoolError> {
            let FrameUse::Page(page) = self.frame_use(frame)? else { return Ok(false) };
            Ok(!self.entry(page)?.held() && self.pins(frame)?.none() && !self.reserved(frame, now_ms)?)
        };
        check().unwrap_or(false)
    }

    /// Advances the coarse clock: accesses before and after can be told apart by replacement. Each tick costs every
    /// rank one cache miss: some hundred a second, or one per so many evictions, are enough.
    pub fn tick(&self) {
        self.shared.clock().fetch_add(1, Relaxed);
    }

    /// The coarse clock.
    #[inline]
    pub fn clock(&self) -> u32 {
        self.shared.clock().load(Relaxed)
    }

    /// The clock at the last use of a frame (or at its installation).
    #[inline]
    pub fn stamp(&self, frame: FrameId) -> Result<u32, PoolError> {
        Ok(self.shared.stamp(frame)?.load(Relaxed))
    }

    /// Says that a frame has been used now.
    pub fn touch(&self, frame: FrameId) -> Result<(), PoolError> {
        self.shared.stamp(frame)?.store(self.clock(), Relaxed);
        Ok(())
    }

    /// Finishes `parts` parts of a rank's operation. The rank and the number come from the rank's request.
    pub fn complete(&self, local_rank: u32, id: WaitId, parts: u32) -> Result<Completed, PoolError> {
        wait::complete(&self.shared, local_rank, id, parts, None)
    }

    /// Makes one pending part of a rank's operation into several, each to be finished by itself.
    pub fn split_part(&self, local_rank: u32, id: WaitId, into: u32) -> Result<(), PoolError> {
        wait::split_part(&self.shared, local_rank, id, into)
    }

    /// Finishes `parts` parts in failure; of several failures the first is reported.
    pub fn fail(
        &self,
        local_rank: u32,
        id: WaitId,
        parts: u32,
        code: u32,
        detail: u32,
    ) -> Result<Completed, PoolError> {
        wait::complete(&self.shared, local_rank, id, parts, Some((code, detail)))
    }

    /// Puts a small answer (at most [`super::INLINE_BYTES`] bytes) into the rank's wait slot; then complete it.
    pub fn answer(&self, local_rank: u32, id: WaitId, bytes: &[u8]) -> Result<(), PoolError> {
        wait::answer(&self.shared, local_rank, id, bytes)
    }

    /// Adds to one of the agent's counters.
    #[inline]
    pub fn count(&self, counter: Counter, n: u64) {
        // Nobody else writes them, so that no locked instruction is needed.
        let word = self.shared.counter(self.counters_block(), counter);
        word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// What this thread of the agent has counted.
    pub fn counters(&self) -> CounterSnapshot {
        self.shared.counters(self.counters_block())
    }

    fn counters_block(&self) -> u32 {
        self.shared.layout.spec.local_ranks + self.shard
    }

    /// What a rank of the node has counted.
    pub fn rank_counters(&self, local_rank: u32) -> Result<CounterSnapshot, PoolError> {
        let (value, limit) = (u64::from(local_rank), u64::from(self.shared.layout.spec.local_ranks));
        if value >= limit {
            return Err(PoolError::OutOfRange { what: "rank of this node", value, limit });
        }
        Ok(self.shared.counters(local_rank))
    }
}
