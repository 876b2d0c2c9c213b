//! Which frames expect a page, and from whom: what the agent's endpoint asks before the bytes of a peer land in one.
//!
//! The content of a page is on its way into a frame before any message about it is looked at. So the frame itself says
//! whether it waits for content: from the moment in which the agent names it to somebody until its page is there, or the
//! frame is used for something else. Anything else that a peer sends there is refused, and ends the job with the peer's
//! name, before a byte of it is written. (Peers that share this node's memory need no message to spoil it.)

use crate::pool::FrameId;
use crate::request::PageIndex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vgas_rma::address::{Layout, Peer};

/// Nothing is expected.
const NOBODY: u32 = 0;
/// From whichever agent has the page: its home or whom it forwards to.
const ANY_AGENT: u32 = u32::MAX;

/// For each frame of a pool, the peer whose bytes it waits for. Written by the agent, read where messages arrive.
#[derive(Debug)]
pub struct Expected {
    /// [`NOBODY`], [`ANY_AGENT`], or a peer's number plus one.
    frames: Box<[AtomicU32]>,
    /// Which page each waits for, or waited for last.
    pages: Box<[AtomicU64]>,
    page_bytes: usize,
    layout: Layout,
}

impl Expected {
    pub(super) fn new(frames: u32, page_bytes: u32, layout: Layout) -> Self {
        let pages = (0..frames).map(|_| AtomicU64::default()).collect();
        let frames = (0..frames).map(|_| AtomicU32::new(NOBODY)).collect();
        Self { frames, pages, page_bytes: page_bytes as usize, layout }
    }

    /// Whether these bytes of the frames' region are a whole frame that waits for this peer.
    pub fn allows(&self, from: Peer, offset: u64, bytes: usize) -> bool {
        let page_bytes = self.page_bytes as u64;
        let frame = usize::try_from(offset / page_bytes).ok().and_then(|frame| self.frames.get(frame));
        let whole = bytes == self.page_bytes && offset.is_multiple_of(page_bytes);
        let is_agent = self.layout.contains(from) && self.layout.rank_of_peer(from).is_none();
        frame.is_some_and(|word| match word.load(Ordering::Relaxed) {
            NOBODY => false,
            ANY_AGENT => whole && is_agent,
            peer => whole && peer == from.0 + 1,
        })
    }

    /// The page that a frame waits for, if it does. For the agent itself.
    pub(super) fn page(&self, frame: FrameId) -> Option<PageIndex> {
        let frame = frame.0 as usize;
        let waits = self.frames.get(frame)?.load(Ordering::Relaxed) != NOBODY;
        waits.then(|| self.pages[frame].load(Ordering::Relaxed))
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
        if let Some(word) = self.frames.get(frame.0 as usize) {
            word.store(NOBODY, Ordering::Relaxed);
        }
    }

    fn set(&self, frame: FrameId, value: u32, page: PageIndex) {
        let frame = frame.0 as usize;
        if let (Some(word), Some(pages)) = (self.frames.get(frame), self.pages.get(frame)) {
            pages.store(page, Ordering::Relaxed);
            word.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_rma::address::{NodeId, Rank};

    #[test]
    fn a_frame_takes_a_whole_page_from_whom_it_waits_for_and_nothing_else() {
        let layout = Layout::blocks(3, 3);
        let agents: Vec<Peer> = (0..3).map(|node| layout.agent_of(NodeId(node))).collect();
        let rank = layout.peer_of_rank(Rank(1));
        let expected = Expected::new(4, 4096, layout);
        assert!(!expected.allows(agents[1], 4096, 4096), "nobody was asked");
        expected.expect_any_agent(FrameId(1), 77);
        assert_eq!((expected.page(FrameId(1)), expected.page(FrameId(2))), (Some(77), None));
        assert!(expected.allows(agents[1], 4096, 4096) && expected.allows(agents[2], 4096, 4096));
        assert!(!expected.allows(rank, 4096, 4096), "ranks have no pages to send");
        for (offset, bytes) in
            [(0, 4096), (8192, 4096), (4096, 4095), (4097, 4096), (4096, 8192), (1 << 60, 4096)]
        {
            assert!(!expected.allows(agents[1], offset, bytes), "{bytes} bytes at {offset}");
        }
        expected.expect(FrameId(3), 78, agents[2]);
        assert!(expected.allows(agents[2], 3 * 4096, 4096) && !expected.allows(agents[1], 3 * 4096, 4096));
        expected.settled(FrameId(3));
        assert_eq!((expected.page(FrameId(3)), expected.page(FrameId(4))), (None, None));
        assert!(!expected.allows(agents[2], 3 * 4096, 4096));
    }
}
