//! Further pinned segments: attached together and by one rank, used in every way, given up, and refused afterwards.

use super::super::sim::SplitMix;
use super::{Case, Fabric, Job, SEGMENT_BYTES, pattern};
use crate::address::{PinnedPart, Rank, RegionId};
use crate::endpoint::{Endpoint, SegmentPiece};
use crate::error::RmaError;
use vgas_shm::Change;

pub(super) const CASES: &[Case] = &[
    ("further segments come and go", come_and_go),
    ("a part of one rank is learnt of", alone),
    ("parts take the room that there is", rooms),
];

/// Bytes of the first segment; the rest of the region is for further ones.
const FIRST_BYTES: u64 = 64 << 10;

/// The first segment keeps what it has, whatever happens to others.
fn attach_first(endpoint: &Endpoint, rank: Rank) {
    endpoint.attach_segment(FIRST_BYTES).unwrap();
    endpoint.put(rank, 0, &pattern(99, FIRST_BYTES as usize)).unwrap();
}

fn check_first(endpoint: &Endpoint, rank: Rank) {
    let mut bytes = vec![0; FIRST_BYTES as usize];
    endpoint.get(rank, 0, &mut bytes).unwrap();
    assert!(bytes == pattern(99, FIRST_BYTES as usize), "the first segment of {rank}");
}

/// Attaches a segment together; yields the sizes of its parts.
fn attach(endpoint: &Endpoint, region: RegionId, bytes: u64) -> Vec<u64> {
    endpoint.attach_part(region, bytes).unwrap();
    let sizes = endpoint.barrier_with(&bytes.to_le_bytes()).unwrap();
    let sizes: Vec<u64> =
        sizes.iter().map(|size| u64::from_le_bytes(size.as_slice().try_into().unwrap())).collect();
    for (owner, &bytes) in (0..).map(Rank).zip(&sizes) {
        endpoint.know_part(PinnedPart { region, owner }, bytes);
    }
    sizes
}

/// Gives it up together.
fn detach(endpoint: &Endpoint, region: RegionId) {
    endpoint.barrier().unwrap();
    endpoint.detach_part(region).unwrap();
    (0..endpoint.layout().ranks()).for_each(|owner| endpoint.forget_part((region, Rank(owner)).into()));
    endpoint.barrier().unwrap();
}

/// Bytes of memory that the domain's file of this rank's segments has.
fn memory(endpoint: &Endpoint) -> u64 {
    let file = endpoint.domain().unwrap().region_file(endpoint.me(), RegionId::SEGMENT).unwrap();
    rustix::fs::fstat(file).unwrap().st_blocks as u64 * 512
}

fn is_gone(endpoint: &Endpoint, part: PinnedPart) {
    let mut byte = [0];
    let refused = [
        endpoint.put(part, 0, &byte),
        endpoint.get(part, 0, &mut byte),
        endpoint.memset(part, 0, 1, 1),
        endpoint.update(part, 0, Change::Add(1u64)).map(drop),
    ];
    for refused in refused {
        assert!(
            matches!(&refused, Err(RmaError::NoSuchRegion { owner, region })
                if owner.0 == part.owner.0 && *region == part.region),
            "{part:?} is used though it is none: {refused:?}"
        );
    }
}

/// Goal: a part is like the first segment in every form of access, has zeros at first whatever was there before, and leaves neither
/// memory nor a way to it. Method: several segments at a time, of sizes that differ by rank; each rank writes its stripe of all parts.
fn come_and_go(fabric: &dyn Fabric) {
    const RANKS: u32 = 3;
    const STRIPE: u64 = 40_960;
    Job::new(fabric, RANKS, |_| ()).run(|endpoint, rank| {
        attach_first(endpoint, rank);
        let mut random = SplitMix(u64::from(rank.0) + 1);
        let all = || (0..RANKS).map(Rank);
        for round in 0..4u16 {
            let before = memory(endpoint);
            let regions =
                [round % 2, 7, RegionId::FURTHER_MAX - 1].map(|index| RegionId(RegionId::FURTHER.0 + index));
            // The last rank has no part of the second.
            let bytes = |which: usize, owner: Rank| match (which, owner.0) {
                (1, 2) => 0,
                _ => u64::from(RANKS) * STRIPE + 100 * (u64::from(owner.0) + which as u64),
            };
            for (which, &region) in regions.iter().enumerate() {
                let sizes = attach(endpoint, region, bytes(which, rank));
                assert!(
                    sizes.iter().zip(all()).all(|(&size, owner)| size == bytes(which, owner)),
                    "{sizes:?}"
                );
            }
            for (which, &region) in regions.iter().enumerate() {
                for owner in all() {
                    let (part, limit) = (PinnedPart { region, owner }, bytes(which, owner));
                    assert_eq!(endpoint.part_bytes(part), Some(limit));
                    check_ends(endpoint, part, limit);
                    if limit > 0 {
                        use_stripe(endpoint, part, u64::from(rank.0) * STRIPE, STRIPE, random.next_number());
                    }
                }
            }
            between_parts(endpoint, regions[0], rank, STRIPE);
            endpoint.barrier().unwrap();
            check_first(endpoint, rank);
            let others =
                [RegionId(RegionId::FURTHER.0 + 3), RegionId::BLOCKS, RegionId(RegionId::FURTHER.0 - 1)];
            for region in others {
                let used = endpoint.put((region, Rank(0)), 0, &[1]);
                assert!(used.is_err(), "{region:?} is no segment");
            }
            let own = endpoint.part_address((regions[0], rank), 0).expect("the own part");
            assert_ne!(endpoint.part_address(rank, 0), Some(own));
            assert_eq!(endpoint.part_address((regions[0], rank), bytes(0, rank)), None, "behind the end");
            regions.iter().for_each(|&region| detach(endpoint, region));
            for owner in all() {
                is_gone(endpoint, PinnedPart { region: regions[0], owner });
            }
            assert!(endpoint.detach_part(regions[0]).is_err());
            assert!(memory(endpoint) <= before.max(FIRST_BYTES), "memory of detached parts is left");
        }
        check_first(endpoint, rank);
    });
}

fn check_ends(endpoint: &Endpoint, part: PinnedPart, limit: u64) {
    for (offset, bytes) in [(limit, 1), (limit.saturating_sub(1), 2), (limit + 1, 0), (u64::MAX, 2)] {
        let mut to = vec![0; bytes];
        for refused in [endpoint.put(part, offset, &to), endpoint.get(part, offset, &mut to)] {
            assert!(
                matches!(&refused, Err(RmaError::OutOfRange { region, limit: l, .. }) if *region == part.region && *l == limit),
                "{bytes} bytes at {offset} of {part:?}: {refused:?}"
            );
        }
    }
}

/// Accesses the bytes of a stripe in every way; no other thread uses them.
fn use_stripe(endpoint: &Endpoint, part: PinnedPart, first: u64, bytes: u64, seed: u64) {
    let mut found = vec![1; bytes as usize];
    endpoint.get(part, first, &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == 0), "{part:?} is not zeros at first");
    let content = pattern(seed, bytes as usize);
    let (one, other) = content.split_at(bytes as usize / 3);
    endpoint.put(part, first, one).unwrap();
    let put = endpoint.put_nb(part, first + one.len() as u64, other).unwrap();
    endpoint.wait_sync(put).unwrap();
    endpoint.get(part, first, &mut found).unwrap();
    assert!(found == content, "{part:?} has not what was put");
    endpoint.memset(part, first, 0xAB, 16).unwrap();
    assert_eq!(endpoint.get_value(part, first + 8, 8).unwrap(), 0xABAB_ABAB_ABAB_ABAB);
    endpoint.put_value(part, first + 8, 5, 8).unwrap();
    assert_eq!(endpoint.update(part, first + 8, Change::Add(7u64)).unwrap(), 5);
    assert_eq!(endpoint.fetch_add(part, first + 8, 1).unwrap(), 12);
    assert_eq!(endpoint.compare_swap(part, first + 8, 13, 1 << 40).unwrap(), 13);
    assert_eq!(endpoint.get_value(part, first + 8, 8).unwrap(), 1 << 40);
    let piece = |offset: u64, here: &[u8]| SegmentPiece {
        offset: first + offset,
        here: here.as_ptr().cast_mut(),
        bytes: here.len(),
    };
    let pieces = [piece(32, b"three"), piece(100, b"small"), piece(4096, b"pieces")];
    let mut packed = [0; 16];
    // SAFETY: the sources live as long as the program, the destination until the get has been waited for.
    unsafe {
        let put = endpoint.put_pieces_nb(part, &pieces).unwrap();
        endpoint.wait_sync(put).unwrap();
        let get = endpoint.get_pieces_nb(part, &pieces, packed.as_mut_ptr()).unwrap();
        endpoint.wait_sync(get).unwrap();
    }
    assert_eq!(packed, *b"threesmallpieces");
}

/// Moves this rank's stripe of its own part to the next rank's part and back, elsewhere: between two
/// segments, a conduit may have nothing to copy.
fn between_parts(endpoint: &Endpoint, region: RegionId, rank: Rank, stripe: u64) {
    let next = Rank((rank.0 + 1) % endpoint.layout().ranks());
    let (first, half) = (u64::from(rank.0) * stripe, stripe as usize / 2);
    let own = |offset| endpoint.part_address((region, rank), offset).expect("the own part");
    let mut content = vec![0; half];
    endpoint.get((region, rank), first, &mut content).unwrap();
    // SAFETY: both halves lie in the attached part, and this stripe has no other users.
    unsafe {
        let put = endpoint.put_nb_bulk((region, next), first, own(first), half).unwrap();
        endpoint.wait_sync(put).unwrap();
        let back = own(first + half as u64);
        let get = endpoint.get_nb((region, next), first, back, half).unwrap();
        endpoint.wait_sync(get).unwrap();
    }
    for (part, offset) in [(next, first), (rank, first + half as u64)] {
        let mut found = vec![0; half];
        endpoint.get((region, part), offset, &mut found).unwrap();
        assert!(found == content, "what went from {rank} to {next} and back");
    }
}

/// Goal: a part that one rank attaches is usable by every rank that learns of it, and a rank that learns of
/// its successor sees that one.
fn alone(fabric: &dyn Fabric) {
    const RANKS: u32 = 3;
    let region = RegionId(RegionId::FURTHER.0 + 300);
    Job::new(fabric, RANKS, |_| ()).run(|endpoint, rank| {
        attach_first(endpoint, rank);
        let (next, before) = (Rank((rank.0 + 1) % RANKS), Rank((rank.0 + RANKS - 1) % RANKS));
        let bytes = |owner: Rank, round: u64| 4096 + 8 * (u64::from(owner.0) + 10 * round);
        let there = PinnedPart { region, owner: next };
        endpoint.barrier().unwrap();
        for round in 0..5 {
            is_gone(endpoint, there);
            let unknown = endpoint.learn_part(there);
            assert!(matches!(unknown, Err(RmaError::NoSuchRegion { .. })), "{unknown:?}");
            endpoint.barrier().unwrap();
            endpoint.attach_part(region, bytes(rank, round)).unwrap();
            assert!(endpoint.attach_part(region, 8).is_err(), "a name is used twice");
            endpoint.barrier().unwrap();
            assert_eq!(endpoint.learn_part(there).unwrap(), bytes(next, round));
            check_ends(endpoint, there, bytes(next, round));
            assert_eq!(endpoint.get_value(there, bytes(next, round) - 8, 8).unwrap(), 0);
            endpoint.put_value(there, bytes(next, round) - 8, u64::from(rank.0) + 1, 8).unwrap();
            endpoint.barrier().unwrap();
            let own = PinnedPart { region, owner: rank };
            let found = endpoint.get_value(own, bytes(rank, round) - 8, 8).unwrap();
            assert_eq!(found, u64::from(before.0) + 1);
            endpoint.barrier().unwrap();
            endpoint.detach_part(region).unwrap();
            endpoint.forget_part(there);
            endpoint.barrier().unwrap();
        }
        assert!(endpoint.learn_part((region, Rank(RANKS)).into()).is_err(), "there is no such rank");
        assert!(endpoint.learn_part(rank.into()).is_err(), "the first segment is no further one");
        check_first(endpoint, rank);
    });
}

/// Goal: a part without room is refused, with the numbers, and the room of a detached one is reused.
fn rooms(fabric: &dyn Fabric) {
    const PART: u64 = SEGMENT_BYTES / 4;
    let region = |index: u16| RegionId(RegionId::FURTHER.0 + index);
    Job::new(fabric, 2, |_| ()).run(|endpoint, rank| {
        // A part that comes before the first segment leaves room for it.
        endpoint.attach_part(region(0), PART).unwrap();
        attach_first(endpoint, rank);
        check_first(endpoint, rank);
        endpoint.detach_part(region(0)).unwrap();
        for no_segment in [RegionId::SEGMENT, RegionId::BLOCKS, region(RegionId::FURTHER_MAX)] {
            assert!(endpoint.attach_part(no_segment, 1).is_err(), "{no_segment:?}");
        }
        for bytes in [SEGMENT_BYTES, u64::MAX, u64::MAX - 4095] {
            let refused = endpoint.attach_part(region(0), bytes);
            assert!(matches!(refused, Err(RmaError::OutOfRange { limit: SEGMENT_BYTES, .. })), "{refused:?}");
        }
        (0..3).for_each(|index| endpoint.attach_part(region(index), PART).unwrap());
        assert!(endpoint.attach_part(region(3), PART).is_err(), "four and the first are too many");
        endpoint.put((region(1), rank), PART - 1, &[1]).unwrap();
        endpoint.detach_part(region(1)).unwrap();
        endpoint.attach_part(region(3), PART / 2).unwrap();
        endpoint.attach_part(region(4), PART / 2).unwrap();
        assert_eq!(
            endpoint.get_value((region(4), rank), PART / 2 - 1, 1).unwrap(),
            0,
            "what was there before"
        );
        check_first(endpoint, rank);
    });
}
