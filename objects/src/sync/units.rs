//! What this rank has of others' counted values beyond its handles: units, so that clones and drops need no message.
//!
//! Each handle is one unit. A value's home counts all units: of handles, and of what ranks keep here. A clone takes one from here, or
//! draws many at once; a drop puts one here. What is here is given back in batches, and whoever gives back the last of a value drops
//! it. So no unit is lost or doubled, wherever handles travel meanwhile.

use crate::word::Word;
use rustc_hash::FxHashMap;

/// Units that are drawn at once.
pub(super) const DRAWN: u64 = 1 << 20;
/// Values of which units are kept, beyond which all are given back.
const KEPT: usize = 64;

/// Drops a value that has no owner any more.
pub(super) type End = fn(Word);

/// The units that a rank keeps, by value.
#[derive(Debug, Default)]
pub(super) struct Units {
    kept: FxHashMap<Word, (u64, End)>,
}

impl Units {
    /// For one more handle; false: [`DRAWN`] are to be drawn, and all but one kept.
    pub fn take(&mut self, word: Word) -> bool {
        match self.kept.get_mut(&word) {
            Some((units @ 1.., _)) => {
                *units -= 1;
                true
            }
            _ => false,
        }
    }

    /// Keeps so many; whether it is time to give back.
    pub fn keep(&mut self, word: Word, units: u64, end: End) -> bool {
        self.kept.entry(word).or_insert((0, end)).0 += units;
        self.kept.len() >= KEPT
    }

    /// What is given back of one value.
    pub fn give(&mut self, word: Word) -> u64 {
        self.kept.remove(&word).map_or(0, |(units, _)| units)
    }

    /// What is given back of all.
    pub fn give_all(&mut self) -> Vec<(Word, u64, End)> {
        let all = self.kept.drain().map(|(word, (units, end))| (word, units, end));
        all.filter(|(_, units, _)| *units > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::Colour;
    use proptest::prelude::*;

    const RANKS: usize = 3;

    proptest! {
        /// Goal: whatever ranks clone, pass on, drop and give back, the home counts what there is, and the value ends once, when and
        /// only when nobody has a handle, and everything was given back. Rank 0 is the home, which keeps nothing.
        #[test]
        fn no_unit_is_lost_or_doubled(acts in proptest::collection::vec((0..4u8, 0..RANKS, 0..RANKS), 0..200)) {
            let word = Word::new(64, Colour(0)).unwrap();
            let mut kept: [Units; RANKS] = Default::default();
            let (mut handles, mut home, mut ended) = ([1u64, 0, 0], 1u64, 0);
            let give = |units: &mut Units, home: &mut u64, ended: &mut u32| {
                for (_, units, _) in units.give_all() {
                    *home -= units;
                    *ended += u32::from(*home == 0);
                }
            };
            let rest = (0..RANKS).flat_map(|rank| [(2, rank, 0); 200]).chain((0..RANKS).map(|rank| (3, rank, 0)));
            for (act, rank, other) in acts.into_iter().chain(rest) {
                match act {
                    0 if handles[rank] > 0 => {
                        handles[rank] += 1;
                        if rank == 0 {
                            home += 1;
                        } else if !kept[rank].take(word) {
                            home += DRAWN;
                            kept[rank].keep(word, DRAWN - 1, |_| {});
                        }
                    }
                    1 if handles[rank] > 0 => {
                        handles[rank] -= 1;
                        handles[other] += 1;
                    }
                    2 if handles[rank] > 0 => {
                        handles[rank] -= 1;
                        kept[rank].keep(word, 1, |_| {});
                        if rank == 0 {
                            give(&mut kept[0], &mut home, &mut ended);
                        }
                    }
                    3 => give(&mut kept[rank], &mut home, &mut ended),
                    _ => {}
                }
                let units: u64 = kept.iter().map(|units| units.kept.values().map(|(units, _)| units).sum::<u64>()).sum();
                prop_assert_eq!(home, handles.iter().sum::<u64>() + units);
                prop_assert_eq!(ended, u32::from(home == 0));
            }
            prop_assert_eq!((home, ended), (0, 1));
        }
    }
}
