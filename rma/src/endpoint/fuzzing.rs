//! Any bytes as the lists that endpoints send each other. See [`crate::fuzzing`].

#![forbid(unsafe_code)]

use super::barrier::{pack, unpack};
use super::pieces::{List, write_entry};
use crate::collective::algorithm::{flatten, unflatten};
use crate::fuzzing::words;
use std::collections::BTreeMap;
use vgas_shm::Update;

/// Ranks of the job that the lists belong to.
const RANKS: u32 = 8;

/// The first byte selects the list in the others, the second its number of entries.
pub fn endpoint_lists(bytes: &[u8]) {
    let &[which, count, ref rest @ ..] = bytes else { return };
    match which {
        0 => pieces(rest, count),
        1 => carried(rest),
        2 => gathered(rest, count),
        _ => update(rest),
    }
}

/// A put or a get of pieces.
fn pieces(bytes: &[u8], count: u8) {
    let Some(List { entries, total, rest }) = List::read(bytes, count.into()) else { return };
    assert_eq!(entries.len(), usize::from(count));
    assert_eq!(entries.iter().map(|(_, bytes)| bytes).sum::<usize>(), total);
    let mut again = Vec::new();
    entries.iter().for_each(|&(offset, bytes)| write_entry(&mut again, offset, bytes));
    again.extend_from_slice(rest);
    assert_eq!(again, bytes);
}

/// Decodes the payload of a barrier.
fn carried(bytes: &[u8]) {
    let mut brought = BTreeMap::new();
    if unpack(bytes, RANKS, &mut brought).is_none() {
        return;
    }
    assert!(brought.keys().all(|&rank| rank < RANKS));
    let mut again = BTreeMap::new();
    unpack(&pack(&brought), RANKS, &mut again).expect("what was packed");
    assert_eq!(again, brought);
}

/// Decodes the result of an allgather.
fn gathered(bytes: &[u8], count: u8) {
    let Some(strings) = unflatten(bytes, count.into()) else { return };
    assert_eq!(flatten(&strings), bytes);
}

/// An atomic update: a decoded one has a meaning for every word.
fn update(bytes: &[u8]) {
    let Some(words) = words(bytes).first_chunk().copied() else { return };
    let Some(update) = Update::decode(words) else { return };
    assert_eq!(update.encode(), words);
    for was in [0, 1, u64::MAX, 1 << 63, words[1].into()] {
        let _ = update.of(was);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_shm::Change;
    use vgas_testing::replay;

    fn of(which: u8, count: u8, bytes: &[u8]) -> Vec<u8> {
        [&[which, count], bytes].concat()
    }

    fn update_of(update: impl Into<Update>) -> Vec<u8> {
        of(3, 0, &update.into().encode().map(u32::to_le_bytes).concat())
    }

    #[test]
    fn any_bytes_are_a_list_or_refused() {
        let mut list = Vec::new();
        write_entry(&mut list, 8, 3);
        write_entry(&mut list, 4096, 2);
        let brought = BTreeMap::from([(0, b"zero".to_vec()), (7, Vec::new())]);
        let strings = [b"one".to_vec(), Vec::new(), b"three".to_vec()];
        replay(
            "endpoint_lists",
            endpoint_lists,
            &[
                ("get-of-pieces", of(0, 2, &list)),
                ("put-of-pieces", of(0, 2, &[&list[..], b"bytes"].concat())),
                ("carried", of(1, 0, &pack(&brought))),
                ("gathered", of(2, 3, &flatten(&strings))),
                ("add", update_of(Change::Add(-1i64))),
                ("compare-swap", update_of(Change::CompareSwap { expected: 1u32, desired: 2 })),
                ("min", update_of(Change::Min(-7i32))),
            ],
        );
    }
}
