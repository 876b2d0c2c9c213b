//! State of the polling thread: the receiving ends, and the members whose rings and hot lines it looks at.

use super::hotline::Header;
use super::layout::ControlLayout;
use super::link::Link;
use super::ring::{Consumer, Record, RecordBody, Scratch};
use crate::conduit::Traffic;
use crate::message::Direction;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas_shm::{Mapping, Word, fence};

/// The bitmap of the members that may have sent something.
pub(super) type Marks = Vec<Word<AtomicU64>>;

/// State of the polling thread.
pub(super) struct Inbox {
    pub(super) sources: Vec<Option<Source>>,
    /// Members whose rings are looked at.
    pub(super) marked: Vec<usize>,
    /// The bitmap from which `marked` was made.
    marks_seen: Vec<u64>,
    pub(super) scratch: Scratch,
}

/// Receiving ends from another member.
pub(super) struct Source {
    requests: Consumer,
    replies: Consumer,
    pub(super) silent_polls: u32,
    /// It has sent nonsense, and is not listened to any more.
    pub(super) is_broken: bool,
}

impl Source {
    /// The next message of one direction. An error describes the fault.
    #[inline]
    pub(super) fn next(
        &mut self,
        link: &Link,
        direction: Direction,
        scratch: &mut Scratch,
    ) -> Result<Option<Record>, String> {
        let ring = match direction {
            Direction::Reply => &mut self.replies,
            Direction::Request => &mut self.requests,
        };
        // In this order: a message on the hot line that is older than this record is seen, too.
        let record_waits = ring.has_record();
        match hot(link, direction)? {
            Some(header) if header.slot() == ring.slot() => {
                let number = link.hotline.take(header, &mut scratch.arguments);
                link.taken.store(number, Ordering::Release);
                let (handler, argument_count) = (header.handler(), header.argument_count());
                Ok(Some(Record { handler, argument_count, body: RecordBody::Short }))
            }
            Some(header) if !record_waits && !ring.has_record() => {
                Err(format!("a message on a hot line behind records that are not there ({header:?})"))
            }
            None if !record_waits => Ok(None),
            _ => ring.read(scratch),
        }
    }

    /// Takes the message on the hot line, if it is the next of its direction and may be delivered now, with no reply before
    /// it: nearly all that a pair which asks and answers sends. None: [`Source::next`] finds what there is.
    #[inline]
    pub(super) fn next_hot(
        &mut self,
        link: &Link,
        scratch: &mut Scratch,
        traffic: Traffic,
    ) -> Option<Header> {
        let Ok(Some(header)) = link.hotline.peek(link.taken.load(Ordering::Relaxed)) else { return None };
        let (slot, is_turn) = match header.direction() {
            Direction::Reply => (self.replies.slot(), true),
            Direction::Request => {
                let has_replies = link.has_waiting_replies() || self.replies.has_record();
                (self.requests.slot(), traffic.has_requests() && !has_replies)
            }
        };
        if slot != header.slot() || !is_turn || self.is_broken || !traffic.admits(header.handler()) {
            return None;
        }
        let number = link.hotline.take(header, &mut scratch.arguments);
        link.taken.store(number, Ordering::Release);
        Some(header)
    }

    /// Returns true if the next message of one direction may be delivered now; also if there is none, or a
    /// malformed one.
    pub(super) fn is_next_admitted(&self, link: &Link, direction: Direction, traffic: Traffic) -> bool {
        let ring = match direction {
            Direction::Reply => &self.replies,
            Direction::Request => &self.requests,
        };
        // In this order, as in `next`.
        let in_ring = ring.next_handler();
        match hot(link, direction) {
            Ok(Some(header)) if header.slot() == ring.slot() => traffic.admits(header.handler()),
            _ => in_ring.is_none_or(|handler| traffic.admits(handler)),
        }
    }

    /// Returns true if nothing has come: the common case of polls.
    #[inline]
    pub(super) fn is_quiet(&self, link: &Link) -> bool {
        link.hotline.is_quiet(link.taken.load(Ordering::Relaxed))
            && !self.replies.has_record()
            && !self.requests.has_record()
    }

    /// Gives room in the ring of one direction back. True: the other member waits for it and must be woken.
    #[inline]
    pub(super) fn give_back(&mut self, direction: Direction) -> bool {
        match direction {
            Direction::Reply => self.replies.give_back(),
            Direction::Request => self.requests.give_back(),
        }
    }

    /// Returns true if there is a message.
    fn has_message(&self, link: &Link) -> bool {
        self.has(link, Direction::Reply) || self.has(link, Direction::Request)
    }

    /// Returns true if there is one that a poll would deliver. Requests behind waiting replies are not: the
    /// peer rings when it has made room for those.
    pub(super) fn has_deliverable(&self, link: &Link) -> bool {
        let request = || self.has(link, Direction::Request) && !link.has_waiting_replies();
        !self.is_broken && (self.has(link, Direction::Reply) || request())
    }

    /// Returns true if there is a message of one direction, or a malformed one.
    fn has(&self, link: &Link, direction: Direction) -> bool {
        let ring = match direction {
            Direction::Reply => &self.replies,
            Direction::Request => &self.requests,
        };
        ring.has_record() || !matches!(hot(link, direction), Ok(None))
    }
}

/// The message on the hot line, if there is one of this direction.
#[inline]
fn hot(link: &Link, direction: Direction) -> Result<Option<Header>, String> {
    let header = link.hotline.peek(link.taken.load(Ordering::Relaxed))?;
    Ok(header.filter(|header| header.direction() == direction))
}

impl Inbox {
    pub(super) fn new(
        control: &Arc<Mapping>,
        layout: &ControlLayout,
        me: usize,
        members: usize,
        ring_bytes: usize,
    ) -> Self {
        let ring = |from, direction| Consumer::new(control, layout.ring(me, from, direction), ring_bytes);
        let source = |from| Source {
            requests: ring(from, Direction::Request),
            replies: ring(from, Direction::Reply),
            silent_polls: 0,
            is_broken: false,
        };
        Self {
            sources: (0..members).map(|from| (from != me).then(|| source(from))).collect(),
            marked: Vec::new(),
            marks_seen: vec![0; layout.bitmap_words()],
            scratch: Scratch::new(ring_bytes),
        }
    }

    /// Takes in the marks that producers have set since the last look.
    #[inline]
    pub(super) fn take_marks(&mut self, marks: &Marks) {
        for (word, seen) in marks.iter().zip(&self.marks_seen) {
            if word.load(Ordering::Acquire) != *seen {
                self.rebuild_marks(marks);
                return;
            }
        }
    }

    /// Takes in all marks.
    #[cold]
    pub(super) fn rebuild_marks(&mut self, marks: &Marks) {
        self.marked.clear();
        for (index, word) in marks.iter().enumerate() {
            let bits = word.load(Ordering::Acquire);
            self.marks_seen[index] = bits;
            let mut rest = bits;
            while rest != 0 {
                let member = index * 64 + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                // A bit without a member, or for this process, was not set by a producer and means nothing.
                if let Some(Some(source)) = self.sources.get_mut(member) {
                    source.silent_polls = 0;
                    self.marked.push(member);
                }
            }
        }
    }

    /// Takes a producer's mark away, unless a message came in the same moment.
    #[cold]
    pub(super) fn forget_silent(&mut self, member: usize, link: &Link, marks: &Marks) {
        let (word, bit) = (&marks[member / 64], 1 << (member % 64));
        word.fetch_and(!bit, Ordering::SeqCst);
        // Pairs with the light half in `Link::is_heard`: a producer that still saw the mark has published before we look.
        fence::heavy();
        let Some(source) = &mut self.sources[member] else { return };
        source.silent_polls = 0;
        if source.has_message(link) {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            self.marked.retain(|&marked| marked != member);
            self.marks_seen[member / 64] &= !bit;
        }
    }
}
