//! Several queues over the same frames, as links in flat arrays: every operation is O(1) and none allocates. (The `lru`
//! crate keeps a hash map and a heap node per entry; frames are small numbers already, and need two queues to move
//! between.)

use super::FrameId;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    /// Towards the top.
    above: u32,
    /// Towards the bottom.
    below: u32,
    /// The queue it stands in, or `OUT`.
    queue: u8,
    /// The frame's stamp when it was filed.
    stamp: u32,
}

const OUT: u8 = u8::MAX;

#[derive(Clone, Copy, Debug)]
struct Ends {
    top: u32,
    bottom: u32,
    len: u32,
}

/// `Q` queues; a frame stands in at most one of them.
#[derive(Debug)]
pub(super) struct Queues<const Q: usize> {
    links: Vec<Link>,
    ends: [Ends; Q],
}

impl<const Q: usize> Queues<Q> {
    pub fn new(frames: u32) -> Self {
        let link = Link { above: NONE, below: NONE, queue: OUT, stamp: 0 };
        let ends = Ends { top: NONE, bottom: NONE, len: 0 };
        Self { links: vec![link; frames as usize], ends: [ends; Q] }
    }

    pub fn len(&self, queue: usize) -> usize {
        self.ends[queue].len as usize
    }

    /// The queue a frame stands in; none for frames that are out or beyond the pool.
    pub fn queue_of(&self, frame: FrameId) -> Option<usize> {
        let queue = self.links.get(frame.0 as usize)?.queue;
        (queue != OUT).then_some(usize::from(queue))
    }

    /// Whether the frame exists and stands nowhere.
    pub fn is_out(&self, frame: FrameId) -> bool {
        self.links.get(frame.0 as usize).is_some_and(|link| link.queue == OUT)
    }

    /// The stamp under which a frame was filed.
    pub fn stamp(&self, frame: FrameId) -> u32 {
        self.links[frame.0 as usize].stamp
    }

    pub fn bottom(&self, queue: usize) -> Option<FrameId> {
        let bottom = self.ends[queue].bottom;
        (bottom != NONE).then_some(FrameId(bottom))
    }

    /// Files a frame that is out at the top of a queue.
    pub fn push_top(&mut self, queue: usize, frame: FrameId, stamp: u32) {
        debug_assert!(self.is_out(frame));
        let below = self.ends[queue].top;
        self.links[frame.0 as usize] = Link { above: NONE, below, queue: queue as u8, stamp };
        match below {
            NONE => self.ends[queue].bottom = frame.0,
            below => self.links[below as usize].above = frame.0,
        }
        self.ends[queue].top = frame.0;
        self.ends[queue].len += 1;
    }

    /// Takes a frame out of the queue it stands in, and says which it was.
    pub fn take_out(&mut self, frame: FrameId) -> Option<usize> {
        let queue = self.queue_of(frame)?;
        let Link { above, below, .. } = self.links[frame.0 as usize];
        match above {
            NONE => self.ends[queue].top = below,
            above => self.links[above as usize].below = below,
        }
        match below {
            NONE => self.ends[queue].bottom = above,
            below => self.links[below as usize].above = above,
        }
        self.links[frame.0 as usize].queue = OUT;
        self.ends[queue].len -= 1;
        Some(queue)
    }

    /// Moves a frame to the top of a queue, wherever it stands.
    pub fn move_top(&mut self, queue: usize, frame: FrameId, stamp: u32) {
        if self.take_out(frame).is_some() {
            self.push_top(queue, frame, stamp);
        }
    }

    /// The frames of a queue from the bottom up.
    #[cfg(test)]
    pub fn bottom_up(&self, queue: usize) -> Vec<FrameId> {
        let mut frames = Vec::new();
        let mut at = self.ends[queue].bottom;
        while at != NONE {
            frames.push(FrameId(at));
            at = self.links[at as usize].above;
        }
        frames
    }
}
