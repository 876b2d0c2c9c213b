//! One ring: records from one producer process to one consumer process, in shared memory.
//!
//! A ring is a power of two of 64-byte slots. A record occupies whole slots and never wraps; the first word of its
//! first slot is its header, written last, so that publishing is one release store and noticing is one acquire load of
//! the very line that carries the message. A header carries the tag of the lap in which it was written. The consumer
//! writes nothing into the slots: each such line would have to come back before it is filled again. The producer
//! remembers which slots begin with bytes of a payload, and zeroes such a word before the record in front of it is
//! published: so the consumer, whose position moves from record to record, finds a header of this lap, an older one, or
//! zero, never a payload that looks like a header. Positions count bytes and never decrease.
//!
//! A medium payload is handed to its handler in place, so it begins at a multiple of [`PAYLOAD_ALIGN`], and
//! at a cache line if it does not fit into the first one. Its slots are given back when the handler has
//! returned, which may write there like into memory of its own.
//!
//! # Unsafe rules
//!
//! 1. *Place.* Every access is inside the ring's span: positions are reduced by the mask, and record sizes
//!    are checked against the end of the ring before they are used, whichever process wrote them. The span
//!    keeps the mapping.
//! 2. *No reference.* Bodies are copied in and out by raw copies, or passed on as addresses; headers and
//!    indices are atomics. A misbehaving peer can spoil the bytes that we read, but only as values, which are
//!    checked after the copy.
//! 3. *Sources.* The payload of a message is readable for the duration of the call (contract of `Message`).

use super::layout::LINE_BYTES;
use crate::address::{Peer, RegionId};
use crate::message::{ARGUMENTS_MAX, Destination, PrivateCopy, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use vgas_shm::copy::copy;
use vgas_shm::prefetch::prefetch_for_write;
use vgas_shm::{Mapping, Span, Word};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Short = 1,
    Medium = 2,
    Long = 3,
    /// The rest of the ring is unused: the next record begins at its start.
    Pad = 4,
}

/// Tag of a lap: 1 to 0xFFFF, in turn. Zero is the tag of no lap.
#[derive(Clone, Copy)]
struct Lap(u64);

impl Lap {
    const FIRST: Lap = Lap(1);

    /// The lap of a position after an advance that may have ended the last lap.
    #[inline]
    fn at(self, position: u64, mask: u64) -> Lap {
        if position & mask != 0 { self } else { Lap(if self.0 == 0xFFFF { 1 } else { self.0 + 1 }) }
    }

    /// Length in bits 0..32, handler in 32..40, argument count in 40..45, kind in 45..48, tag in 48..64.
    #[inline]
    fn header(self, kind: Kind, bytes: u32, handler: u8, arguments: u8) -> u64 {
        let kind_and_count = u64::from(arguments) << 40 | (kind as u64) << 45;
        u64::from(bytes) | u64::from(handler) << 32 | kind_and_count | self.0 << 48
    }

    #[inline]
    fn wrote(self, header: u64) -> bool {
        header >> 48 == self.0
    }
}

/// Bytes of a record besides its payload, at most: header, arguments, target.
pub(super) const OVERHEAD_MAX: usize = 8 + 4 * ARGUMENTS_MAX + 16;

/// A medium payload begins at a multiple of this.
const PAYLOAD_ALIGN: usize = 16;

/// Offset of a medium payload in its record, behind the arguments: in the first line if all of it fits there,
/// so that the line which announces the message carries it, otherwise at the beginning of a line, for the
/// widest copies.
#[inline]
fn medium_offset(arguments: usize, bytes: usize) -> usize {
    let packed = (8 + 4 * arguments).next_multiple_of(PAYLOAD_ALIGN);
    if packed + bytes <= LINE_BYTES { packed } else { packed.next_multiple_of(LINE_BYTES) }
}

/// Distance beyond the tail at which a slot is prefetched: with two slots, one-way messages went fastest, and
/// were twice as fast as without on a slow processor; with eight or more it did not help.
const PREFETCHED_BYTES: u64 = 2 * LINE_BYTES as u64;

/// The consumer gives space back a quarter of the ring at a time, a record takes a quarter at most, and skipping the
/// end of the ring wastes less than another: so a record always fits into a ring whose consumer has taken everything.
fn share_of(ring_bytes: usize) -> usize {
    ring_bytes / 4
}

/// Most bytes of a medium payload that a ring takes.
pub(super) fn medium_bytes_max(ring_bytes: usize) -> usize {
    share_of(ring_bytes) - OVERHEAD_MAX.next_multiple_of(LINE_BYTES)
}

/// State common to both ends of a ring.
struct Ring {
    slots: Span,
    mask: u64,
    head: Word<AtomicU64>,
    want_room: Word<AtomicU32>,
}

impl Ring {
    fn new(control: &Arc<Mapping>, offset: usize, ring_bytes: usize) -> Self {
        debug_assert!(ring_bytes.is_power_of_two());
        Self {
            slots: control.span(offset + LINE_BYTES, ring_bytes),
            mask: ring_bytes as u64 - 1,
            head: control.word_u64(offset),
            want_room: control.word_u32(offset + 8),
        }
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// The first word of the slot at a position.
    #[inline]
    fn header(&self, position: u64) -> &AtomicU64 {
        let at = (position & self.mask) as usize & !(LINE_BYTES - 1);
        // SAFETY: rule 1: masked, and slots are aligned as the control mapping is laid out in lines.
        unsafe { AtomicU64::from_ptr(self.slots.address().add(at).cast()) }
    }
}

/// Content of a record beside its payload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body<'a> {
    Short,
    Medium(Source<'a>),
    Long { bytes: u32, region: RegionId, owner: Peer, offset: u64 },
}

/// The sending end; one a process, behind a lock.
pub(super) struct Producer {
    ring: Ring,
    tail: u64,
    lap: Lap,
    /// Checksum of these and the place of the ring, which shows that they were not overwritten: a message
    /// sent where the consumer does not look would be waited for for ever.
    guard: u64,
    /// The last head that was read: room is checked against it first, so that the consumer's line is rarely touched.
    head_seen: u64,
    /// A bit for each slot: whether its first word may belong to a payload.
    payload: Box<[u64]>,
}

/// Sets the bits from `first` up to `end`.
fn set_bits(words: &mut [u64], first: usize, end: usize) {
    let mut at = first;
    while at < end {
        let count = (64 - at % 64).min(end - at);
        words[at / 64] |= (u64::MAX >> (64 - count)) << (at % 64);
        at += count;
    }
}

/// Ends this process, as the C library does when its heap is corrupted: vgas's records there cannot be
/// trusted any more.
#[cold]
#[inline(never)]
fn overwritten() -> ! {
    crate::say::line(
        "vgas: memory that vgas keeps in this process was overwritten: the program writes outside of what is its own",
    );
    std::process::abort()
}

/// The consumer's index makes no sense: it runs ahead of the producer, or backwards.
#[derive(Debug)]
pub(super) struct BadIndex;

impl Producer {
    pub(super) fn new(control: &Arc<Mapping>, offset: usize, ring_bytes: usize) -> Self {
        let payload = vec![0; (ring_bytes / LINE_BYTES).div_ceil(64)].into_boxed_slice();
        let ring = Ring::new(control, offset, ring_bytes);
        let mut producer = Self { ring, tail: 0, lap: Lap::FIRST, guard: 0, head_seen: 0, payload };
        producer.guard = producer.sum();
        producer
    }

    #[inline]
    fn sum(&self) -> u64 {
        let ring = self.ring.slots.address() as u64 ^ self.ring.mask.rotate_left(17);
        self.tail ^ ring.rotate_left(7) ^ self.lap.0.rotate_left(48) ^ 0x9e37_79b9_7f4a_7c15
    }

    /// The slot in which the next record begins, padding aside; counts without end.
    #[inline]
    pub(super) fn slot(&self) -> u32 {
        (self.tail / LINE_BYTES as u64) as u32
    }

    /// Publishes a header over `size` bytes at the tail, and moves on. The word in which the consumer will then look for
    /// the next header is made one first. Its slot is free: otherwise the ring is full, and a record begins there.
    #[inline]
    fn publish(&mut self, header: u64, size: usize) {
        let first = (self.tail & self.ring.mask) as usize / LINE_BYTES;
        self.payload[first / 64] &= !(1 << (first % 64));
        if size > LINE_BYTES {
            set_bits(&mut self.payload, first + 1, first + size / LINE_BYTES);
        }
        let after = self.tail + size as u64;
        let next = (after & self.ring.mask) as usize / LINE_BYTES;
        if self.payload[next / 64] & 1 << (next % 64) != 0 {
            self.payload[next / 64] &= !(1 << (next % 64));
            self.ring.header(after).store(0, Ordering::Relaxed);
        }
        self.ring.header(self.tail).store(header, Ordering::Release);
        prefetch_for_write(self.ring.header(after + PREFETCHED_BYTES));
        self.tail = after;
        self.lap = self.lap.at(after, self.ring.mask);
        self.guard = self.sum();
    }

    /// Bytes of the record, and of the padding before it.
    fn size(&self, arguments: usize, body: &Body<'_>) -> (usize, usize) {
        let after = 8 + (4 * arguments).next_multiple_of(8);
        let bytes = match body {
            Body::Short => after,
            Body::Medium(source) => medium_offset(arguments, source.bytes()) + source.bytes(),
            Body::Long { .. } => after + 16,
        };
        let size = bytes.next_multiple_of(LINE_BYTES);
        let to_end = self.ring.bytes() - (self.tail & self.ring.mask) as usize;
        (size, if size > to_end { to_end } else { 0 })
    }

    /// Returns true if a record fits now. False leaves a note for the consumer, which then rings the doorbell
    /// of this process once it has given back space.
    #[inline]
    pub(super) fn has_room(&mut self, arguments: usize, body: &Body<'_>) -> Result<bool, BadIndex> {
        if self.guard != self.sum() {
            overwritten();
        }
        let (size, pad) = self.size(arguments, body);
        let need = (size + pad) as u64;
        if self.tail + need <= self.head_seen + self.ring.bytes() as u64 {
            return Ok(true);
        }
        self.refresh(need)
    }

    #[cold]
    fn refresh(&mut self, need: u64) -> Result<bool, BadIndex> {
        self.read_head()?;
        if self.tail + need > self.head_seen + self.ring.bytes() as u64 {
            self.ring.want_room.store(1, Ordering::Relaxed);
            // Pairs with the fence in `Consumer::give_back`: either we see the new head, or it sees our wish.
            fence(Ordering::SeqCst);
            self.read_head()?;
        }
        Ok(self.tail + need <= self.head_seen + self.ring.bytes() as u64)
    }

    fn read_head(&mut self) -> Result<(), BadIndex> {
        let head = self.ring.head.load(Ordering::Acquire);
        if head < self.head_seen || head > self.tail {
            return Err(BadIndex);
        }
        self.head_seen = head;
        Ok(())
    }

    /// Writes and publishes a record. [`Producer::has_room`] has returned true for the same arguments and
    /// body, and the payload of a medium is at most [`medium_bytes_max`].
    #[inline]
    pub(super) fn write(&mut self, handler: u8, arguments: &[u32], body: &Body<'_>) {
        let (size, pad) = self.size(arguments.len(), body);
        assert!(size <= share_of(self.ring.bytes()) && arguments.len() <= ARGUMENTS_MAX, "record too large");
        if pad > 0 {
            self.publish(self.lap.header(Kind::Pad, 0, 0, 0), pad);
        }
        let at = (self.tail & self.ring.mask) as usize;
        debug_assert!(at + size <= self.ring.bytes());
        // SAFETY: rule 1: `at + size` is inside, as `size` above chose the padding so.
        let start = unsafe { self.ring.slots.address().add(at) };
        let after = 8 + (4 * arguments.len()).next_multiple_of(8);
        for (index, argument) in arguments.iter().enumerate() {
            // SAFETY: rule 1: arguments lie in 8..after, and after <= size.
            unsafe { start.add(8 + 4 * index).cast::<u32>().write_volatile(*argument) };
        }
        let (kind, bytes) = match *body {
            Body::Short => (Kind::Short, 0),
            Body::Medium(source) => {
                let offset = medium_offset(arguments.len(), source.bytes());
                // SAFETY: rules 1 (offset + bytes <= size) and 3.
                unsafe { copy(source.address(), start.add(offset), source.bytes()) };
                (Kind::Medium, source.bytes() as u32)
            }
            Body::Long { bytes, region, owner, offset } => {
                let place = u64::from(region.0) << 32 | u64::from(owner.0);
                // SAFETY: rule 1: after + 16 <= size; `after` is a multiple of 8.
                unsafe {
                    start.add(after).cast::<u64>().write_volatile(place);
                    start.add(after + 8).cast::<u64>().write_volatile(offset);
                }
                (Kind::Long, bytes)
            }
        };
        self.publish(self.lap.header(kind, bytes, handler, arguments.len() as u8), size);
    }
}

/// The receiving end; one a process, used by the thread that polls.
pub(super) struct Consumer {
    ring: Ring,
    position: u64,
    lap: Lap,
    given_back: u64,
}

/// Destination of the copied parts of a record.
pub(super) struct Scratch {
    pub(super) arguments: [u32; ARGUMENTS_MAX],
    /// For a medium payload, if its handler asks for it in private memory.
    pub(super) medium: PrivateCopy,
    /// Destination of a long payload.
    pub(super) destination: Destination,
}

impl Scratch {
    /// For rings of `ring_bytes` bytes.
    pub(super) fn new(ring_bytes: usize) -> Self {
        let medium = PrivateCopy::new(medium_bytes_max(ring_bytes));
        let destination = Destination::Region { region: RegionId(0), owner: Peer(0), offset: 0 };
        Self { arguments: [0; ARGUMENTS_MAX], medium, destination }
    }
}

/// A record whose arguments and destination were copied to a [`Scratch`]: the rest fits into registers.
pub(super) struct Record {
    pub(super) handler: u8,
    pub(super) argument_count: usize,
    pub(super) body: RecordBody,
}

/// The payload of a [`Record`].
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordBody {
    Short,
    /// The address in the ring, good until the record is given back, and the length.
    Medium(*mut u8, usize),
    Long(usize),
}

impl Consumer {
    pub(super) fn new(control: &Arc<Mapping>, offset: usize, ring_bytes: usize) -> Self {
        Self { ring: Ring::new(control, offset, ring_bytes), position: 0, lap: Lap::FIRST, given_back: 0 }
    }

    /// Returns true if a record is waiting.
    #[inline]
    pub(super) fn has_record(&self) -> bool {
        self.lap.wrote(self.ring.header(self.position).load(Ordering::Acquire))
    }

    /// Returns the handler of the next record; none if there is none yet.
    pub(super) fn next_handler(&self) -> Option<u8> {
        let word = self.ring.header(self.position).load(Ordering::Acquire);
        if word != self.lap.header(Kind::Pad, 0, 0, 0) {
            return self.lap.wrote(word).then_some((word >> 32) as u8);
        }
        let start = (self.position | self.ring.mask) + 1;
        let word = self.ring.header(start).load(Ordering::Acquire);
        self.lap.at(start, self.ring.mask).wrote(word).then_some((word >> 32) as u8)
    }

    /// The slot in which the next record begins, padding aside; counts as [`Producer::slot`].
    #[inline]
    pub(super) fn slot(&self) -> u32 {
        (self.position / LINE_BYTES as u64) as u32
    }

    /// Takes the next record. An error describes the fault; the ring is of no use afterwards.
    #[inline]
    pub(super) fn read(&mut self, scratch: &mut Scratch) -> Result<Option<Record>, String> {
        let mut word = self.ring.header(self.position).load(Ordering::Acquire);
        if !self.lap.wrote(word) {
            return Ok(None);
        }
        if word == self.lap.header(Kind::Pad, 0, 0, 0) {
            let to_end = self.ring.bytes() - (self.position & self.ring.mask) as usize;
            self.advance(to_end);
            word = self.ring.header(self.position).load(Ordering::Acquire);
            if !self.lap.wrote(word) {
                return Ok(None);
            }
        }
        let bytes = word as u32 as usize;
        let argument_count = (word >> 40) as usize & 0x1F;
        let kind = (word >> 45) as u8 & 7;
        if argument_count > ARGUMENTS_MAX {
            return Err(format!("a record with header {word:#x} in a shared-memory ring"));
        }
        let after = 8 + (4 * argument_count).next_multiple_of(8);
        let end = match kind {
            k if k == Kind::Short as u8 && bytes == 0 => after,
            k if k == Kind::Medium as u8 && bytes <= scratch.medium.bytes_max() => {
                medium_offset(argument_count, bytes) + bytes
            }
            k if k == Kind::Long as u8 => after + 16,
            _ => return Err(format!("a record of kind {kind} with {bytes} bytes in a shared-memory ring")),
        };
        let at = (self.position & self.ring.mask) as usize;
        let size = end.next_multiple_of(LINE_BYTES);
        if size > self.ring.bytes() - at {
            return Err(format!("a record of {size} bytes that passes the end of its ring"));
        }
        // SAFETY: rule 1: `at` is masked, and everything below stays under `at + size`, just checked.
        let start = unsafe { self.ring.slots.address().add(at) };
        for (index, argument) in scratch.arguments.iter_mut().enumerate().take(argument_count) {
            // SAFETY: rules 1 and 2.
            *argument = unsafe { start.add(8 + 4 * index).cast::<u32>().read_volatile() };
        }
        let body = match kind {
            k if k == Kind::Medium as u8 => {
                scratch.medium.clear();
                // SAFETY: rule 1.
                RecordBody::Medium(unsafe { start.add(end - bytes) }, bytes)
            }
            k if k == Kind::Long as u8 => {
                // SAFETY: rules 1 and 2; `after` is a multiple of 8.
                let (place, offset) = unsafe {
                    let place = start.add(after).cast::<u64>();
                    (place.read_volatile(), place.add(1).read_volatile())
                };
                let region = RegionId((place >> 32) as u16);
                scratch.destination = Destination::Region { region, owner: Peer(place as u32), offset };
                RecordBody::Long(bytes)
            }
            _ => RecordBody::Short,
        };
        self.advance(size);
        Ok(Some(Record { handler: (word >> 32) as u8, argument_count, body }))
    }

    /// The payload of a medium that [`Consumer::read`] has read last, to this scratch, before it is given back; nothing of others.
    #[cfg(any(test, fuzzing))]
    pub(super) fn medium_of(&self, record: &Record, scratch: &Scratch) -> Vec<u8> {
        let RecordBody::Medium(address, bytes) = record.body else { return Vec::new() };
        // SAFETY: rule 1: checked when it was read; this keeps the mapping.
        unsafe { crate::message::MediumPayload::shared(address, bytes, &scratch.medium) }.to_vec()
    }

    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.position += bytes as u64;
        self.lap = self.lap.at(self.position, self.ring.mask);
    }

    /// Gives consumed slots back when there are enough of them. True: the producer waits for room and must be woken.
    #[inline]
    pub(super) fn give_back(&mut self) -> bool {
        if self.position - self.given_back < share_of(self.ring.bytes()) as u64 {
            return false;
        }
        self.given_back = self.position;
        self.ring.head.store(self.position, Ordering::Release);
        // Pairs with the fence in `Producer::refresh`.
        fence(Ordering::SeqCst);
        self.ring.want_room.load(Ordering::Relaxed) != 0
            && self.ring.want_room.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conduit::sim::SplitMix;
    use std::collections::VecDeque;

    const BYTES: usize = 4096;

    fn pair() -> (Arc<Mapping>, Producer, Consumer) {
        let control = Mapping::anonymous("ring-test", (LINE_BYTES + BYTES) as u64).unwrap();
        let (producer, consumer) = (Producer::new(&control, 0, BYTES), Consumer::new(&control, 0, BYTES));
        (control, producer, consumer)
    }

    /// Payloads are made of words that look like headers of every lap, so a word of them that is not zeroed in time is taken
    /// for a record; many laps, so that tags repeat their low bits.
    #[test]
    fn agrees_with_a_queue_over_many_laps() {
        let (_control, mut producer, mut consumer) = pair();
        let mut random = SplitMix(7);
        let mut queue = VecDeque::new();
        let mut scratch = Scratch::new(BYTES);
        let (mut sent, mut full) = (0u32, 0);
        while sent < 200_000 {
            if random.below(2) == 0 {
                let bytes = if random.below(4) == 0 {
                    random.below(scratch.medium.bytes_max() as u64 + 1) as usize
                } else {
                    0
                };
                let lap = producer.lap.at(0, 1);
                let payload: Vec<u8> =
                    lap.header(Kind::Short, 0, 9, 0).to_le_bytes().into_iter().cycle().take(bytes).collect();
                let arguments: Vec<u32> = (0..random.below(17) as u32).map(|index| index ^ sent).collect();
                let body = match bytes {
                    0 if sent % 3 == 0 => Body::Long {
                        bytes: sent,
                        region: RegionId(3),
                        owner: Peer(8),
                        offset: u64::from(sent) << 20,
                    },
                    0 => Body::Short,
                    _ => Body::Medium(Source::of(&payload)),
                };
                if !producer.has_room(arguments.len(), &body).unwrap() {
                    full += 1;
                    continue;
                }
                producer.write(sent as u8, &arguments, &body);
                queue.push_back((sent, arguments, payload));
                sent += 1;
            } else {
                let next = consumer.next_handler();
                let record = consumer.read(&mut scratch).unwrap();
                assert_eq!(record.is_some(), !queue.is_empty());
                assert_eq!(next, record.as_ref().map(|record| record.handler));
                let (Some(record), Some((number, arguments, payload))) = (record, queue.pop_front()) else {
                    continue;
                };
                assert_eq!(record.handler, number as u8);
                assert_eq!(scratch.arguments[..record.argument_count], arguments);
                match record.body {
                    RecordBody::Short => assert!(payload.is_empty() && number % 3 != 0),
                    RecordBody::Medium(address, bytes) => {
                        assert_eq!(address.addr() % PAYLOAD_ALIGN, 0);
                        assert_eq!(consumer.medium_of(&record, &scratch), payload);
                        // As a handler may. SAFETY: the record was not given back, and has no other readers.
                        unsafe { std::ptr::write_bytes(address, random.below(256) as u8, bytes) };
                    }
                    RecordBody::Long(bytes) => {
                        let (region, owner, offset) = (RegionId(3), Peer(8), u64::from(number) << 20);
                        assert_eq!(
                            (bytes, scratch.destination),
                            (number as usize, Destination::Region { region, owner, offset })
                        );
                    }
                }
                consumer.give_back();
            }
        }
        assert!(full > 100, "the ring was full {full} times");
    }

    /// A peer that writes anything into the ring or its index causes an error, no panic and no access outside.
    /// Goal: whatever of a producer is overwritten, by a byte, it is noticed before the next record.
    #[test]
    fn an_overwritten_producer_is_noticed() {
        let (_control, mut producer, _consumer) = pair();
        assert!(producer.has_room(0, &Body::Short).unwrap());
        producer.write(1, &[], &Body::Short);
        assert_eq!(producer.guard, producer.sum());
        for bit in [0, 9, 31, 63] {
            for spoil in [
                (|it: &mut Producer, by: u64| it.tail ^= by) as fn(&mut Producer, u64),
                |it, by| it.ring.mask ^= by,
                |it, by| it.lap.0 ^= by,
                |it, by| it.guard ^= by,
            ] {
                spoil(&mut producer, 1 << bit);
                assert_ne!(producer.guard, producer.sum());
                spoil(&mut producer, 1 << bit);
            }
        }
        assert_eq!(producer.guard, producer.sum());
    }

    #[test]
    fn any_header_and_any_index_is_survived() {
        let mut random = SplitMix(11);
        let mut scratch = Scratch::new(BYTES);
        let mut errors = 0;
        for _ in 0..20_000 {
            let (control, mut producer, mut consumer) = pair();
            let start = random.below(60);
            for _ in 0..start {
                producer.write(0, &[], &Body::Short);
                consumer.read(&mut scratch).unwrap();
            }
            let header = random.next_number() & !(0xFFFF << 48) | 1 << 48;
            let at = LINE_BYTES + (consumer.position & consumer.ring.mask) as usize;
            control.atomic_u64(at).store(header, Ordering::Relaxed);
            errors += usize::from(consumer.read(&mut scratch).is_err());
            control.atomic_u64(0).store(random.next_number(), Ordering::Relaxed);
            producer.head_seen = 0;
            producer.tail += BYTES as u64;
            producer.guard = producer.sum();
            assert!(producer.has_room(16, &Body::Short).is_err());
        }
        assert!(errors > 10_000, "{errors} of 20000 headers were refused");
    }
}
