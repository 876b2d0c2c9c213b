//! Replacement policies for [`super::replacement`]: those that ship, and two that others use.

use std::collections::{HashSet, VecDeque};
use vgas_cache::replacement::{FrameId, FrameView, Replacement, by_name};

/// Choice of the frame to evict. Frames have numbers from 0 on; an eviction is of a frame that was filled.
pub(super) trait Policy {
    /// A frame has been given a page, at this time.
    fn filled(&mut self, frame: u32, page: u32, now: u32);
    /// A frame that has one was used.
    fn used(&mut self, frame: u32, now: u32);
    /// The frame to give up, which is forgotten.
    fn victim(&mut self, view: &dyn FrameView) -> Option<u32>;
}

/// The policy of a name, for so many frames.
pub(super) fn named(name: &str, frames: u32) -> Option<Box<dyn Policy>> {
    match name {
        "s3-fifo" => Some(Box::new(S3Fifo::new(frames))),
        "clock" => Some(Box::new(Clock::default())),
        name => by_name(name, frames).map(|shipped| Box::new(Shipped(shipped)) as Box<dyn Policy>),
    }
}

struct Shipped(Box<dyn Replacement>);

impl Policy for Shipped {
    fn filled(&mut self, frame: u32, _: u32, now: u32) {
        self.0.insert(FrameId(frame), now);
    }

    fn used(&mut self, frame: u32, now: u32) {
        self.0.accessed(FrameId(frame), now);
    }

    fn victim(&mut self, view: &dyn FrameView) -> Option<u32> {
        self.0.victim(view).map(|(frame, _)| frame.0)
    }
}

/// One circle and a bit for each frame: used since the hand was there.
#[derive(Default)]
struct Clock {
    circle: VecDeque<u32>,
    used: Vec<bool>,
}

impl Policy for Clock {
    fn filled(&mut self, frame: u32, _: u32, _: u32) {
        self.circle.push_back(frame);
        let needed = frame as usize + 1;
        self.used.resize(self.used.len().max(needed), false);
        self.used[frame as usize] = false;
    }

    fn used(&mut self, frame: u32, _: u32) {
        self.used[frame as usize] = true;
    }

    fn victim(&mut self, _: &dyn FrameView) -> Option<u32> {
        loop {
            let frame = self.circle.pop_front()?;
            if !std::mem::take(&mut self.used[frame as usize]) {
                return Some(frame);
            }
            self.circle.push_back(frame);
        }
    }
}

/// Three queues (Yang and others, SOSP 2023): new pages wait in a small one, of a tenth; those that are used there go to the main one,
/// others leave, and are remembered for a while, so that they go to the main one when they come back soon.
struct S3Fifo {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Pages that have left the small queue, oldest first, and the same as a set.
    gone: VecDeque<u32>,
    gone_set: HashSet<u32>,
    /// By frame: its page, and how often it was used, at most 3.
    pages: Vec<u32>,
    uses: Vec<u8>,
    frames: usize,
}

impl S3Fifo {
    fn new(frames: u32) -> Self {
        let frames = frames as usize;
        let (pages, uses) = (vec![0; frames], vec![0; frames]);
        let (small, main, gone) = Default::default();
        Self { small, main, gone, gone_set: HashSet::new(), pages, uses, frames }
    }

    fn remember(&mut self, page: u32) {
        if self.gone_set.insert(page) {
            self.gone.push_back(page);
        }
        if self.gone.len() > self.frames
            && let Some(oldest) = self.gone.pop_front()
        {
            self.gone_set.remove(&oldest);
        }
    }
}

impl Policy for S3Fifo {
    fn filled(&mut self, frame: u32, page: u32, _: u32) {
        self.pages[frame as usize] = page;
        self.uses[frame as usize] = 0;
        // It stays among the remembered ones until its turn comes: a page there twice would be none the wiser.
        if self.gone_set.contains(&page) { self.main.push_back(frame) } else { self.small.push_back(frame) }
    }

    fn used(&mut self, frame: u32, _: u32) {
        let uses = &mut self.uses[frame as usize];
        *uses = (*uses + 1).min(3);
    }

    fn victim(&mut self, _: &dyn FrameView) -> Option<u32> {
        loop {
            if self.small.len() > self.frames / 10 || self.main.is_empty() {
                let frame = self.small.pop_front()?;
                if self.uses[frame as usize] > 1 {
                    self.uses[frame as usize] = 0;
                    self.main.push_back(frame);
                    continue;
                }
                self.remember(self.pages[frame as usize]);
                return Some(frame);
            }
            let frame = self.main.pop_front()?;
            match &mut self.uses[frame as usize] {
                0 => return Some(frame),
                uses => *uses -= 1,
            }
            self.main.push_back(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_cache::replacement::Class;

    struct Alone;

    impl FrameView for Alone {
        fn clock(&self) -> u32 {
            0
        }

        fn stamp(&self, _: FrameId) -> u32 {
            0
        }

        fn class(&self, _: FrameId) -> Class {
            Class::Other
        }

        fn evictable(&self, _: FrameId) -> bool {
            true
        }

        // Asked for by none of these policies.
        fn frames(&self) -> usize {
            0
        }
    }

    /// Goal: CLOCK spares what was used once round; S3-FIFO lets what a scan brings pass by what is used, and takes what comes back soon
    /// into its main queue.
    #[test]
    fn what_is_used_stays() {
        let mut clock = named("clock", 3).unwrap();
        (0..3).for_each(|frame| clock.filled(frame, frame, 0));
        clock.used(0, 1);
        assert_eq!([clock.victim(&Alone), clock.victim(&Alone), clock.victim(&Alone)], [1, 2, 0].map(Some));
        assert_eq!(clock.victim(&Alone), None);

        let mut s3 = named("s3-fifo", 10).unwrap();
        (0..10).for_each(|frame| s3.filled(frame, frame, 0));
        (0..2).for_each(|_| s3.used(0, 1));
        let mut victims = Vec::new();
        for page in 100..130 {
            let frame = s3.victim(&Alone).unwrap();
            s3.filled(frame, page, 0);
            victims.push(frame);
        }
        assert!(!victims.contains(&0), "{victims:?}");
        // The page that left last comes back, and a scan does not move it any more.
        let back = s3.victim(&Alone).unwrap();
        s3.filled(back, 129 - 8, 0);
        for page in 200..220 {
            let frame = s3.victim(&Alone).unwrap();
            assert_ne!(frame, back);
            s3.filled(frame, page, 0);
        }
    }
}
