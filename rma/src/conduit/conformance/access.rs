//! Put and get into pinned segments, in all forms, against a model.

use super::super::sim::SplitMix;
use super::{Case, Fabric, Job, SEGMENT_BYTES, pattern};
use crate::address::{Rank, RegionId};
use crate::endpoint::{Handle, Implicit};
use crate::error::RmaError;
use vgas_shm::cores;

/// A promise that other movers of bytes, such as providers of libfabric and cards, do not make.
pub const WHOLE_WORDS: &str = "words that are written while they are read are whole";

/// Why libfabric leaves [`WHOLE_WORDS`] out.
pub const DIVIDED_WORDS: &str =
    "providers that move bytes with the processor copy them with means that divide words";

pub(super) const CASES: &[Case] = &[
    ("random puts and gets agree with a model", random_accesses),
    ("large transfers arrive whole", large),
    ("bytes go from segment to segment", between_segments),
    ("non-blocking forms complete", non_blocking),
    (WHOLE_WORDS, whole_words),
    ("segments are described, and their ends are guarded", bounds),
];

/// Every rank owns a stripe in every segment, and checks it against its own model: no two ranks write one byte.
fn random_accesses(fabric: &dyn Fabric) {
    const RANKS: u32 = 3;
    const STRIPE: u64 = 64 << 10;
    Job::new(fabric, RANKS, |_| ()).run(|endpoint, rank| {
        endpoint.attach_segment(u64::from(RANKS) * STRIPE).unwrap();
        let mut random = SplitMix(u64::from(rank.0) + 1);
        let mut models = vec![vec![0u8; STRIPE as usize]; RANKS as usize];
        for round in 0..600 {
            let target = random.below(u64::from(RANKS));
            let model = &mut models[target as usize];
            let (target, base) = (Rank(target as u32), u64::from(rank.0) * STRIPE);
            let longest = if round % 10 == 0 { 20_000 } else { 40 };
            let bytes = random.below(longest) as usize;
            let at = random.below(STRIPE - bytes as u64) as usize;
            let offset = base + at as u64;
            match random.below(6) {
                0 | 1 => {
                    let from = pattern(round, bytes);
                    endpoint.put(target, offset, &from).unwrap();
                    model[at..at + bytes].copy_from_slice(&from);
                }
                2 => {
                    endpoint.memset(target, offset, round as u8, bytes as u64).unwrap();
                    model[at..at + bytes].fill(round as u8);
                }
                3 => {
                    let bytes = 1 + bytes.min(7);
                    let at = at.min(STRIPE as usize - bytes);
                    let value = random.next_number();
                    endpoint.put_value(target, base + at as u64, value, bytes).unwrap();
                    model[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
                    let mask = u64::MAX >> (64 - 8 * bytes);
                    assert_eq!(endpoint.get_value(target, base + at as u64, bytes).unwrap(), value & mask);
                    let handle = endpoint.get_value_nb(target, base + at as u64, bytes).unwrap();
                    assert_eq!(endpoint.wait_value(handle).unwrap(), value & mask);
                }
                _ => {
                    let mut to = vec![0xEE; bytes];
                    endpoint.get(target, offset, &mut to).unwrap();
                    assert_eq!(to, model[at..at + bytes], "{bytes} bytes at {at} of {target}");
                }
            }
        }
        for (target, model) in (0..).map(Rank).zip(&models) {
            let mut stripe = vec![0; STRIPE as usize];
            endpoint.get(target, u64::from(rank.0) * STRIPE, &mut stripe).unwrap();
            assert!(stripe == *model, "the stripe in {target} at the end");
        }
    });
}

fn large(fabric: &dyn Fabric) {
    Job::new(fabric, 2, |_| ()).run(|endpoint, rank| {
        endpoint.attach_segment(SEGMENT_BYTES).unwrap();
        let other = Rank(1 - rank.0);
        let bytes = SEGMENT_BYTES as usize - 13;
        let from = pattern(u64::from(rank.0), bytes);
        endpoint.put(other, 13, &from).unwrap();
        let mut to = vec![0; bytes];
        endpoint.get(other, 13, &mut to).unwrap();
        assert!(to == from, "what was put comes back");
        endpoint.barrier().unwrap();
        // The other rank's bytes are in the own segment now.
        endpoint.get(rank, 13, &mut to).unwrap();
        assert!(to == pattern(u64::from(other.0), bytes), "what the other rank put is visible here");
    });
}

/// Aligned words that one rank writes as a whole, and its owner and another read as a whole: whatever lies
/// before and behind them.
fn whole_words(fabric: &dyn Fabric) {
    const LENGTHS: [usize; 5] = [16, 3200, 24_000, 100_000, 1_200_000];
    Job::new(fabric, 3, |_| ()).run(|endpoint, rank| {
        endpoint.attach_segment(SEGMENT_BYTES).unwrap();
        let owner = Rank(1);
        for (words, beside) in LENGTHS.into_iter().flat_map(|words| [0, 3].map(|beside| (words, beside))) {
            let (offset, bytes) = (8 - beside as u64, words + 2 * beside);
            if rank == Rank(0) {
                endpoint.memset(owner, offset, 0, bytes as u64).unwrap();
            }
            endpoint.barrier().unwrap();
            let mut found = vec![0; bytes];
            for round in 1..=20 {
                match (rank, round % 8) {
                    (Rank(0), 0) => endpoint.memset(owner, offset, round, bytes as u64).unwrap(),
                    (Rank(0), _) => endpoint.put(owner, offset, &vec![round; bytes]).unwrap(),
                    _ => endpoint.get(owner, offset, &mut found).unwrap(),
                }
                for word in found[beside..beside + words].chunks_exact(8) {
                    assert!(
                        word.iter().all(|byte| *byte == word[0]),
                        "{word:?}, of {words} bytes at {offset}"
                    );
                }
            }
            endpoint.barrier().unwrap();
        }
    });
}

/// Between two segments a conduit may have nothing to copy: transfers small and large, at odd offsets, two in
/// flight, one of them with a source that is reused at once.
fn between_segments(fabric: &dyn Fabric) {
    const LENGTHS: [usize; 6] = [1, 8, 513, 4096, 70_001, 1_200_000];
    const PART: u64 = SEGMENT_BYTES / 4;
    Job::new(fabric, 2, |_| ()).run(|endpoint, rank| {
        endpoint.attach_segment(SEGMENT_BYTES).unwrap();
        let other = Rank(1 - rank.0);
        let own = endpoint.segment_info()[rank.0 as usize].address.unwrap();
        let check = |offset: u64, seed: u64, bytes: usize| {
            let mut to = vec![0; bytes];
            endpoint.get(rank, offset, &mut to).unwrap();
            assert!(to == pattern(seed, bytes), "{bytes} bytes at {offset}");
        };
        for (round, bytes) in (0..).zip(LENGTHS) {
            let seed = |rank: Rank, which: u64| round * 10 + u64::from(rank.0) * 5 + which;
            for which in 0..2 {
                endpoint.put(rank, which * PART + 1, &pattern(seed(rank, which), bytes)).unwrap();
            }
            let source = |which: u64| own.wrapping_add((which * PART) as usize + 1);
            endpoint.barrier().unwrap();
            // SAFETY: the sources lie in the attached segment; the first stays until it has been waited for.
            let puts = unsafe {
                let bulk = endpoint.put_nb_bulk(other, 2 * PART + 3, source(0), bytes).unwrap();
                let other_put = endpoint.put_nb_raw(other, 3 * PART + 5, source(1), bytes).unwrap();
                [bulk, other_put]
            };
            endpoint.put(rank, PART + 1, &vec![0xEE; bytes]).unwrap();
            endpoint.wait_sync_all(puts).unwrap();
            endpoint.barrier().unwrap();
            check(2 * PART + 3, seed(other, 0), bytes);
            check(3 * PART + 5, seed(other, 1), bytes);
            // And back, over the bytes that were the source. SAFETY: the destination lies in the attached
            // segment, and is not used otherwise until the get has ended.
            let get = unsafe { endpoint.get_nb(other, 3 * PART + 5, source(1), bytes) }.unwrap();
            endpoint.wait_sync(get).unwrap();
            check(PART + 1, seed(rank, 1), bytes);
            endpoint.barrier().unwrap();
        }
    });
}

fn non_blocking(fabric: &dyn Fabric) {
    const BLOCK: usize = 3000;
    const BLOCKS: u64 = 40;
    Job::new(fabric, 2, |_| ()).run(|endpoint, rank| {
        endpoint.attach_segment(SEGMENT_BYTES).unwrap();
        let other = Rank(1 - rank.0);
        let offset = |block: u64| block * BLOCK as u64;

        // Explicit handles; the source is overwritten at once, as non-bulk puts allow.
        let mut source = vec![0; BLOCK];
        let mut handles: Vec<Handle> = Vec::new();
        for block in 0..BLOCKS {
            source.copy_from_slice(&pattern(block, BLOCK));
            handles.push(endpoint.put_nb(other, offset(block), &source).unwrap());
        }
        source.fill(0);
        let mut naps = 0;
        while !endpoint.try_sync_all(&mut handles).unwrap() {
            cores::nap(&mut naps);
        }
        let mut blocks = vec![vec![0u8; BLOCK]; BLOCKS as usize];
        let mut gets: Vec<Handle> = Vec::new();
        for (block, to) in (0..BLOCKS).zip(&mut blocks) {
            // SAFETY: the blocks outlive the handles, which are all waited for below.
            gets.push(unsafe { endpoint.get_nb(other, offset(block), to.as_mut_ptr(), BLOCK) }.unwrap());
        }
        while endpoint.wait_sync_some(&mut gets).unwrap() > 0 {}
        endpoint.wait_sync_all(gets).unwrap();
        for (block, bytes) in (0..).zip(&blocks) {
            assert!(*bytes == pattern(block, BLOCK), "block {block}");
        }

        // Implicit handles, and an access region beside them.
        for block in 0..BLOCKS {
            endpoint.put_nbi(other, offset(block), &pattern(block + 100, BLOCK)).unwrap();
        }
        endpoint.begin_access_region().unwrap();
        assert!(endpoint.begin_access_region().is_err(), "regions do not nest");
        endpoint.memset_nbi(other, offset(BLOCKS), 0xAB, BLOCK as u64).unwrap();
        endpoint.put_value_nbi(other, offset(BLOCKS) + 8, 7, 8).unwrap();
        let region = endpoint.end_access_region().unwrap();
        assert!(endpoint.end_access_region().is_err());
        endpoint.wait_sync_nbi(Implicit::Puts).unwrap();
        for (block, to) in (0..BLOCKS).zip(&mut blocks) {
            // SAFETY: the blocks live until the wait below has returned.
            unsafe { endpoint.get_nbi(other, offset(block), to.as_mut_ptr(), BLOCK) }.unwrap();
        }
        let mut naps = 0;
        while !endpoint.try_sync_nbi(Implicit::All).unwrap() {
            cores::nap(&mut naps);
        }
        for (block, bytes) in (0..).zip(&blocks) {
            assert!(*bytes == pattern(block + 100, BLOCK), "block {block}");
        }
        endpoint.wait_sync(region).unwrap();
        assert_eq!(endpoint.get_value(other, offset(BLOCKS), 8).unwrap(), 0xABAB_ABAB_ABAB_ABAB);
    });
}

fn bounds(fabric: &dyn Fabric) {
    Job::new(fabric, 2, |_| ()).run(|endpoint, rank| {
        let bytes = 4096 + u64::from(rank.0) * 100;
        let early = endpoint.put(rank, 0, &[1]);
        assert!(early.is_err(), "nothing is attached: {early:?}");
        let too_large = endpoint.attach_segment(SEGMENT_BYTES + 1);
        assert!(matches!(too_large, Err(RmaError::OutOfRange { limit: SEGMENT_BYTES, .. })), "{too_large:?}");
        endpoint.attach_segment(bytes).unwrap();
        let other = Rank(1 - rank.0);
        let other_bytes = 4096 + u64::from(other.0) * 100;
        let info = endpoint.segment_info();
        assert_eq!((info[rank.0 as usize].bytes, info[other.0 as usize].bytes), (bytes, other_bytes));
        assert!(info[rank.0 as usize].address.is_some(), "the own segment can be reached by loads");

        endpoint.put(other, other_bytes - 3, &[1, 2, 3]).unwrap();
        endpoint.put(other, other_bytes, &[]).unwrap();
        let owner = endpoint.layout().peer_of_rank(other);
        for (offset, length) in [(other_bytes - 2, 3), (other_bytes + 1, 0), (u64::MAX, 2), (u64::MAX - 1, 1)] {
            let mut to = vec![0; length as usize];
            let results = [
                endpoint.put(other, offset, &to),
                endpoint.get(other, offset, &mut to),
                endpoint.memset(other, offset, 1, length),
            ];
            for result in results {
                assert!(
                    matches!(result, Err(RmaError::OutOfRange { owner: o, region: RegionId::SEGMENT, .. }) if o == owner),
                    "{length} bytes at {offset}: {result:?}"
                );
            }
        }
        assert!(endpoint.put(Rank(2), 0, &[1]).is_err(), "there is no third rank");
        assert!(endpoint.put_value(other, 0, 1, 9).is_err() && endpoint.get_value(other, 0, 0).is_err());
        endpoint.barrier().unwrap();
        let mut end = [0; 3];
        endpoint.get(rank, bytes - 3, &mut end).unwrap();
        assert_eq!(end, [1, 2, 3]);
    });
}
