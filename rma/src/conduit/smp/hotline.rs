//! The hot line of two members: one cache line that holds one short message each way.
//!
//! Two processes that ask and answer through a line of their own each pay for two transfers of a cache line
//! each way: the writer has to take the line from a reader that looks at it all the time, then the reader has
//! to fetch it. If both write to the same line, the reader of a message gets with it the line that the answer
//! goes into: half of the transfers. (Measured: 0.20 against 0.40 µs a round trip, a bare ping-pong in one
//! word being 0.18.)
//!
//! Each message carries its writer's count of messages taken in the other direction, in a header that is
//! written last. A member may write again when the other has taken what it wrote before; otherwise, and for
//! all that is not short, there are the rings. A message also carries the slot that the next record of its
//! ring would have had: it is delivered when all records before that slot are, and before the record in that
//! slot. So the order is that of one channel.
//!
//! A member that has taken a message and has nothing to say says only that it took it, once it has nothing else to do.

use super::layout::LINE_BYTES;
use crate::message::{ARGUMENTS_MAX, Direction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas_shm::{Mapping, Word};

/// Words of a half: the header, and two arguments in each of the others.
const WORDS: usize = LINE_BYTES / 8 / 2;

/// Most arguments of a message that fits.
pub(super) const ARGUMENTS_HOT_MAX: usize = 2 * (WORDS - 1);

/// Words that one member writes and the other reads.
type Half = [Word<AtomicU64>; WORDS];

/// One end of a hot line: the written side, and the read one.
pub(super) struct Hotline {
    mine: Half,
    theirs: Half,
}

/// A header: slot in bits 0..32, handler in 32..40, argument count in 40..43, a bit for a reply, number of this message in
/// 48..56, number of the last message taken in 56..64. A word, because it stays in a register all its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header(u64);

const REPLY: u64 = 1 << 43;
const TAKEN: u64 = 0xFF << 56;

impl Header {
    #[inline]
    fn new(direction: Direction, slot: u32, handler: u8, arguments: usize, number: u8, taken: u8) -> Self {
        let reply = if direction == Direction::Reply { REPLY } else { 0 };
        let counts = (arguments as u64) << 40 | u64::from(number) << 48 | u64::from(taken) << 56;
        Self(u64::from(slot) | u64::from(handler) << 32 | reply | counts)
    }

    /// The slot of the next record in the ring of the same direction.
    #[inline]
    pub(super) fn slot(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(super) fn handler(self) -> u8 {
        (self.0 >> 32) as u8
    }

    #[inline]
    pub(super) fn argument_count(self) -> usize {
        (self.0 >> 40) as usize & 7
    }

    #[inline]
    pub(super) fn direction(self) -> Direction {
        if self.0 & REPLY == 0 { Direction::Request } else { Direction::Reply }
    }

    #[inline]
    fn number(self) -> u8 {
        (self.0 >> 48) as u8
    }

    #[inline]
    fn taken(self) -> u8 {
        (self.0 >> 56) as u8
    }
}

impl Hotline {
    /// The end of the member that writes the first half, or the second.
    pub(super) fn new(control: &Arc<Mapping>, offset: usize, first: bool) -> Self {
        let half =
            |index: usize| std::array::from_fn(|word| control.word_u64(offset + (index * WORDS + word) * 8));
        let (mine, theirs) = if first { (0, 1) } else { (1, 0) };
        Self { mine: half(mine), theirs: half(theirs) }
    }

    /// Writes and publishes a message, if the last one was taken; `taken` is the number of the last one taken here. For
    /// the one thread that writes.
    #[inline]
    pub(super) fn try_write(
        &self,
        direction: Direction,
        slot: u32,
        handler: u8,
        arguments: &[u32],
        taken: u8,
    ) -> bool {
        debug_assert!(arguments.len() <= ARGUMENTS_HOT_MAX);
        let last = Header(self.mine[0].load(Ordering::Relaxed)).number();
        if Header(self.theirs[0].load(Ordering::Acquire)).taken() != last {
            return false;
        }
        for (word, pair) in self.mine[1..].iter().zip(arguments.chunks(2)) {
            let high = pair.get(1).copied().unwrap_or(0);
            word.store(u64::from(pair[0]) | u64::from(high) << 32, Ordering::Relaxed);
        }
        let header = Header::new(direction, slot, handler, arguments.len(), last.wrapping_add(1), taken);
        self.mine[0].store(header.0, Ordering::Release);
        true
    }

    /// Says which message was taken last, if that was not said yet. For the one thread that writes. True: it was said now.
    pub(super) fn acknowledge(&self, taken: u8) -> bool {
        let header = Header(self.mine[0].load(Ordering::Relaxed));
        if header.taken() == taken {
            return false;
        }
        self.mine[0].store(header.0 & !TAKEN | u64::from(taken) << 56, Ordering::Release);
        true
    }

    /// Returns true if the message written last was not taken yet, as far as the other member has
    /// acknowledged.
    #[inline]
    pub(super) fn awaits_answer(&self) -> bool {
        let last = Header(self.mine[0].load(Ordering::Relaxed)).number();
        Header(self.theirs[0].load(Ordering::Relaxed)).taken() != last
    }

    /// Returns true if nothing has come after number `taken`.
    #[inline]
    pub(super) fn is_quiet(&self, taken: u8) -> bool {
        Header(self.theirs[0].load(Ordering::Acquire)).number() == taken
    }

    /// The message after number `taken`, if it has come. An error: the other member has spoiled the line.
    #[inline]
    pub(super) fn peek(&self, taken: u8) -> Result<Option<Header>, String> {
        let header = Header(self.theirs[0].load(Ordering::Acquire));
        if header.number() == taken {
            return Ok(None);
        }
        if header.number() != taken.wrapping_add(1) || header.argument_count() > ARGUMENTS_HOT_MAX {
            return Err(format!("a header {:#x} after message {taken} of a hot line", header.0));
        }
        Ok(Some(header))
    }

    /// Copies out the arguments of the message with this header, and returns its number: it is taken.
    #[inline]
    pub(super) fn take(&self, header: Header, arguments: &mut [u32; ARGUMENTS_MAX]) -> u8 {
        for (index, word) in self.theirs[1..].iter().enumerate() {
            if 2 * index >= header.argument_count() {
                break;
            }
            let both = word.load(Ordering::Relaxed);
            (arguments[2 * index], arguments[2 * index + 1]) = (both as u32, (both >> 32) as u32);
        }
        header.number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conduit::sim::SplitMix;

    fn pair() -> (Arc<Mapping>, Hotline, Hotline) {
        let control = Mapping::anonymous("hotline-test", LINE_BYTES as u64).unwrap();
        let (a, b) = (Hotline::new(&control, 0, true), Hotline::new(&control, 0, false));
        (control, a, b)
    }

    #[test]
    fn headers_keep_everything() {
        let mut random = SplitMix(3);
        for round in 0..1000 {
            let (slot, [handler, number, taken]) =
                (random.next_number() as u32, [(); 3].map(|()| random.next_number() as u8));
            let direction = if round % 2 == 0 { Direction::Request } else { Direction::Reply };
            let header = Header::new(direction, slot, handler, round % 7, number, taken);
            assert_eq!((header.slot(), header.handler(), header.direction()), (slot, handler, direction));
            assert_eq!(
                (header.argument_count(), header.number(), header.taken()),
                (round % 7, number, taken)
            );
        }
    }

    /// A word for each way of talking, for more messages than numbers have values.
    #[test]
    fn one_message_each_way_at_a_time() {
        let (_control, a, b) = pair();
        let (mut a_taken, mut b_taken) = (0, 0);
        let mut arguments = [0; ARGUMENTS_MAX];
        for round in 0..1000u32 {
            let count = round as usize % (ARGUMENTS_HOT_MAX + 1);
            let said: Vec<u32> = (0..count as u32).map(|index| round << 8 | index).collect();
            assert!(a.try_write(Direction::Request, round, 7, &said, a_taken));
            assert!(!a.try_write(Direction::Request, round, 8, &[], a_taken), "not taken yet");
            let header = b.peek(b_taken).unwrap().unwrap();
            assert_eq!((header.slot(), header.handler(), header.direction()), (round, 7, Direction::Request));
            b_taken = b.take(header, &mut arguments);
            assert_eq!(arguments[..count], said);
            assert!(b.peek(b_taken).unwrap().is_none(), "taken once");
            assert!(!a.try_write(Direction::Request, round, 8, &[], a_taken), "taken, but not said so");
            // By an answer, or by itself.
            if round % 3 == 0 {
                assert!(b.acknowledge(b_taken) && !b.acknowledge(b_taken));
                assert!(a.peek(a_taken).unwrap().is_none(), "that is no message");
            } else {
                assert!(b.try_write(Direction::Reply, 9, 1, &[round], b_taken));
                let header = a.peek(a_taken).unwrap().unwrap();
                assert_eq!(header.direction(), Direction::Reply);
                a_taken = a.take(header, &mut arguments);
                assert_eq!(arguments[0], round);
            }
        }
    }

    /// Any header is an error or a message of bounded size.
    #[test]
    fn any_header_is_survived() {
        let mut random = SplitMix(5);
        let (control, a, _b) = pair();
        let mut arguments = [0; ARGUMENTS_MAX];
        let (mut errors, mut messages) = (0, 0);
        for _ in 0..20_000 {
            control.atomic_u64(8 * WORDS).store(random.next_number(), Ordering::Relaxed);
            match a.peek(random.next_number() as u8) {
                Ok(Some(header)) => {
                    a.take(header, &mut arguments);
                    messages += 1;
                }
                Ok(None) => {}
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 10_000 && messages > 10, "{errors} errors, {messages} messages");
    }
}
