//! Which frames expect a page, and from whom: what the agent's endpoint asks before the bytes of a peer land in one.
//!
//! The content of a page is on its way into a frame before any message about it is looked at. So the frame itself says
//! whether it waits for content: from the moment in which the agent names it to somebody until its page is there, or the
//! frame is used for something else. Anything else that a peer sends there is refused, and ends the job with the peer's
//! name, before a byte of it is written. (Peers that share this node's memory need no message to spoil it.)

use crate::page::PageIndex;
use crate::pool::{FrameId, PAGE_BYTES_MIN, TableLayout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vgas_rma::RmaError;
use vgas_rma::address::{Layout, Peer};
use vgas_shm::Mapping;

/// Nothing is expected.
const NOBODY: u32 = 0;
/// From whichever agent has the page: its home or whom it forwards to.
const ANY_AGENT: u32 = u32::MAX;

/// For each frame of a pool, the peer whose bytes it waits for. Written by the agent, read where messages arrive.
#[derive(Debug)]
pub struct Expected {
    /// For each place where a frame may begin, [`NOBODY`], [`ANY_AGENT`], or a peer's number plus one, beside which page it waits
    /// for, or waited for last. Mapped, because most of it is never touched.
    frames: Arc<Mapping>,
    count: u32,
    pages: TableLayout,
    layout: Layout,
}

/// Bytes of what is kept of a frame.
const FRAME_BYTES: usize = 16;

impl Expected {
    pub(super) fn new(pages: &TableLayout, layout: Layout) -> Result<Self, RmaError> {
        let count = (pages.frames_bytes() / u64::from(PAGE_BYTES_MIN)) as u32;
        let bytes = u64::from(count) * FRAME_BYTES as u64;
        let frames = Mapping::anonymous("vgas-expected", bytes)?;
        Ok(Self { frames, count, pages: pages.clone(), layout })
    }

    fn peer_of(&self, frame: FrameId) -> Option<&AtomicU32> {
        (frame.0 < self.count).then(|| self.frames.atomic_u32(frame.0 as usize * FRAME_BYTES))
    }

    fn page_of(&self, frame: FrameId) -> Option<&AtomicU64> {
        (frame.0 < self.count).then(|| self.frames.atomic_u64(frame.0 as usize * FRAME_BYTES + 8))
    }

    /// Whether these bytes of the frames' region are a whole frame that waits for this peer.
    pub fn allows(&self, from: Peer, offset: u64, bytes: usize) -> bool {
        let Some(frame) = FrameId::at(offset) else { return false };
        let (Some(peer), Some(page)) = (self.peer_of(frame), self.page_of(frame)) else { return false };
        let whole = bytes == self.pages.size_of(PageIndex(page.load(Ordering::Relaxed))).bytes() as usize;
        let is_agent = self.layout.contains(from) && self.layout.rank_of_peer(from).is_none();
        match peer.load(Ordering::Relaxed) {
            NOBODY => false,
            ANY_AGENT => whole && is_agent,
            peer => whole && peer == from.0 + 1,
        }
    }

    /// The page that a frame waits for, if it does. For the agent itself.
    pub(super) fn page(&self, frame: FrameId) -> Option<PageIndex> {
        let waits = self.peer_of(frame)?.load(Ordering::Relaxed) != NOBODY;
        waits.then(|| self.page_of(frame).map(|page| PageIndex(page.load(Ordering::Relaxed)))).flatten()
    }

    /// An agent that this one does not know will fill the frame with this page.
    pub(super) fn expect_any_agent(&self, frame: FrameId, page: PageIndex) {
        self.set(frame, ANY_AGENT, page);
    }

    /// This peer will fill the frame with this page.
    pub(super) fn expect(&self, frame: FrameId, page: PageIndex, peer: Peer) {
        self.set(frame, peer.0 + 1, page);
    }

    /// The frame waits for nobody any more.
    pub(super) fn settled(&self, frame: FrameId) {
        if let Some(word) = self.peer_of(frame) {
            word.store(NOBODY, Ordering::Relaxed);
        }
    }

    fn set(&self, frame: FrameId, value: u32, page: PageIndex) {
        if let (Some(word), Some(waits_for)) = (self.peer_of(frame), self.page_of(frame)) {
            waits_for.store(page.0, Ordering::Relaxed);
            word.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolSpec;
    use vgas_rma::address::{NodeId, Rank};

    #[test]
    fn a_frame_takes_a_whole_page_from_whom_it_waits_for_and_nothing_else() {
        let layout = Layout::blocks(3, 3);
        let agents: Vec<Peer> = (0..3).map(|node| layout.agent_of(NodeId(node))).collect();
        let rank = layout.peer_of_rank(Rank(1));
        let pages = TableLayout::new(&PoolSpec {
            page_bytes: 4096,
            frames: 4,
            page_bytes_max: 4 << 20,
            segment_pages_max: vec![100; 3],
            local_ranks: 1,
            wait_slots_per_rank: 1,
            hazard_slots_per_rank: 1,
            mapped_pages_per_rank: 0,
            agent_threads: 1,
            block_pages: 512,
        });
        let expected = Expected::new(&pages.unwrap(), layout).unwrap();
        assert!(!expected.allows(agents[1], 4096, 4096), "nobody was asked");
        expected.expect_any_agent(FrameId(1), PageIndex(77));
        assert_eq!((expected.page(FrameId(1)), expected.page(FrameId(2))), (Some(PageIndex(77)), None));
        assert!(expected.allows(agents[1], 4096, 4096) && expected.allows(agents[2], 4096, 4096));
        assert!(!expected.allows(rank, 4096, 4096), "ranks have no pages to send");
        for (offset, bytes) in
            [(0, 4096), (8192, 4096), (4096, 4095), (4097, 4096), (4096, 8192), (1 << 60, 4096)]
        {
            assert!(!expected.allows(agents[1], offset, bytes), "{bytes} bytes at {offset}");
        }
        expected.expect(FrameId(3), PageIndex(78), agents[2]);
        assert!(expected.allows(agents[2], 3 * 4096, 4096) && !expected.allows(agents[1], 3 * 4096, 4096));
        expected.settled(FrameId(3));
        assert_eq!((expected.page(FrameId(3)), expected.page(FrameId(4))), (None, None));
        assert!(!expected.allows(agents[2], 3 * 4096, 4096));
    }
}
