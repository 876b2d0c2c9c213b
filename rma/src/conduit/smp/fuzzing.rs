//! Any bytes as the contents of a ring or a hot line, left by another process. See [`crate::fuzzing`].

#![forbid(unsafe_code)]

use super::hotline::{ARGUMENTS_HOT_MAX, Hotline};
use super::layout::LINE_BYTES;
use super::ring::{Body, Consumer, Producer, Record, RecordBody, Scratch};
use crate::message::{ARGUMENTS_MAX, Destination, Source};
use std::sync::Arc;
use vgas_shm::Mapping;

/// Bytes of the ring.
const BYTES: usize = 4096;

fn memory(bytes: usize) -> Arc<Mapping> {
    Mapping::anonymous("fuzzing", bytes as u64).expect("a little shared memory")
}

/// The slots of a ring: each record that is taken, written and taken again, is the same.
pub fn smp_ring(bytes: &[u8]) {
    let control = memory(LINE_BYTES + BYTES);
    control.write(LINE_BYTES, &bytes[..bytes.len().min(BYTES)]);
    let mut consumer = Consumer::new(&control, 0, BYTES);
    let mut scratch = Scratch::new(BYTES);
    for _ in 0..=BYTES / LINE_BYTES {
        let before = consumer.slot();
        let next = consumer.next_handler();
        let Ok(Some(record)) = consumer.read(&mut scratch) else { return };
        assert_eq!(next, Some(record.handler));
        assert!(consumer.slot() > before && consumer.slot() as usize <= BYTES / LINE_BYTES);
        travel(&record, &consumer.medium_of(&record, &scratch), &scratch);
        consumer.give_back();
    }
    panic!("more records than slots");
}

/// `bytes`: of a medium payload.
fn travel(record: &Record, bytes: &[u8], was: &Scratch) {
    let body = match (record.body, was.destination) {
        (RecordBody::Short, _) => Body::Short,
        (RecordBody::Medium(..), _) => Body::Medium(Source::of(bytes)),
        (RecordBody::Long(bytes), Destination::Region { region, owner, offset }) => {
            Body::Long { bytes: bytes as u32, region, owner, offset }
        }
        (RecordBody::Long(_), Destination::Operation { .. }) => panic!("operations do not travel in rings"),
    };
    let control = memory(LINE_BYTES + BYTES);
    let mut producer = Producer::new(&control, 0, BYTES);
    let arguments = &was.arguments[..record.argument_count];
    assert!(producer.has_room(arguments.len(), &body).expect("a new ring"));
    producer.write(record.handler, arguments, &body);
    let mut scratch = Scratch::new(BYTES);
    let mut consumer = Consumer::new(&control, 0, BYTES);
    let again = consumer.read(&mut scratch).expect("what was written").expect("one");
    assert_eq!((again.handler, &scratch.arguments[..again.argument_count]), (record.handler, arguments));
    match (record.body, again.body) {
        (RecordBody::Short, RecordBody::Short) => {}
        (RecordBody::Medium(..), RecordBody::Medium(..)) => {
            assert_eq!(bytes, consumer.medium_of(&again, &scratch))
        }
        (RecordBody::Long(a), RecordBody::Long(b)) => {
            assert_eq!((a, was.destination), (b, scratch.destination));
        }
        (one, other) => panic!("{one:?} became {other:?}"),
    }
}

/// A hot line: the number of the last message taken, and the line.
pub fn smp_hotline(bytes: &[u8]) {
    let Some((&taken, line)) = bytes.split_first() else { return };
    let control = memory(LINE_BYTES);
    control.write(0, &line[..line.len().min(LINE_BYTES)]);
    let here = Hotline::new(&control, 0, true);
    let Ok(Some(header)) = here.peek(taken) else { return };
    assert!(header.argument_count() <= ARGUMENTS_HOT_MAX && !here.is_quiet(taken));
    let mut arguments = [0; ARGUMENTS_MAX];
    assert_eq!(here.take(header, &mut arguments), taken.wrapping_add(1));
    let arguments = &arguments[..header.argument_count()];
    // A line on which nothing was ever said.
    let control = memory(LINE_BYTES);
    let (there, here) = (Hotline::new(&control, 0, true), Hotline::new(&control, 0, false));
    assert!(there.try_write(header.direction(), header.slot(), header.handler(), arguments, 0));
    let again = here.peek(0).expect("what was written").expect("one");
    assert_eq!((again.slot(), again.handler()), (header.slot(), header.handler()));
    assert_eq!(again.direction(), header.direction());
    let mut arrived = [0; ARGUMENTS_MAX];
    here.take(again, &mut arrived);
    assert_eq!(arrived[..again.argument_count()], *arguments);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Peer, RegionId};
    use crate::conduit::smp::ring::medium_bytes_max;
    use crate::message::Direction;
    use vgas_testing::replay;

    fn slots(bodies: &[(&[u32], Body<'_>)]) -> Vec<u8> {
        let control = memory(LINE_BYTES + BYTES);
        let mut producer = Producer::new(&control, 0, BYTES);
        for (arguments, body) in bodies {
            assert!(producer.has_room(arguments.len(), body).unwrap());
            producer.write(130, arguments, body);
        }
        let mut bytes = vec![0; producer.slot() as usize * LINE_BYTES];
        control.read(LINE_BYTES, &mut bytes);
        bytes
    }

    #[test]
    fn any_slots_are_records_or_refused() {
        let long = Body::Long { bytes: 4096, region: RegionId::SEGMENT, owner: Peer(3), offset: 1 << 33 };
        let medium = Body::Medium(Source::of(&[0x55; 200]));
        let longest = [0x77; BYTES];
        let longest = Body::Medium(Source::of(&longest[..medium_bytes_max(BYTES)]));
        let most: Vec<u32> = (0..16).collect();
        let many: Vec<(&[u32], Body<'_>)> = vec![(&[7], Body::Short); BYTES / LINE_BYTES];
        replay(
            "smp_ring",
            smp_ring,
            &[
                ("short", slots(&[(&[1, 2, 3], Body::Short)])),
                ("medium", slots(&[(&[], medium)])),
                ("longest-medium", slots(&[(&most, longest)])),
                ("long", slots(&[(&most, long)])),
                ("three", slots(&[(&[1], Body::Short), (&[2], medium), (&[3], long)])),
                ("a-full-ring", slots(&many)),
            ],
        );
    }

    #[test]
    fn any_hot_line_is_a_message_or_refused() {
        let line = |direction, arguments: &[u32]| {
            let control = memory(LINE_BYTES);
            // The half of the other one is the second.
            assert!(Hotline::new(&control, 0, false).try_write(direction, 5, 130, arguments, 0));
            let mut bytes = vec![0; 1 + LINE_BYTES];
            control.read(0, &mut bytes[1..]);
            bytes
        };
        replay(
            "smp_hotline",
            smp_hotline,
            &[
                ("request", line(Direction::Request, &[1, 2, 3, 4, 5, 6])),
                ("reply", line(Direction::Reply, &[7])),
                ("nothing", vec![0; 1 + LINE_BYTES]),
            ],
        );
    }
}
