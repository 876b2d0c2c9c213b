//! Units of others' counted values that this rank keeps beyond its handles, so that clones and drops need no
//! message.
//!
//! Each handle is one unit, of an owner or of a watcher ([`super::count`]). A value's home counts all units:
//! of handles, and those that ranks keep here. A clone takes one from here, or draws many at once; a drop
//! puts one here. Units kept here are given back in batches, and the rank that gives back a value's last
//! drops it. So no unit is lost or doubled, wherever handles travel meanwhile.

use super::count::{Over, owners, watchers};
use crate::word::Word;
use rustc_hash::FxHashMap;

/// Values with kept units, beyond which all are given back.
const KEPT: usize = 64;

/// Does what is over for a value.
pub(super) type End = fn(Word, Over);

/// The units that a rank keeps, by value.
#[derive(Debug, Default)]
pub(super) struct Units {
    kept: FxHashMap<Word, (u64, End)>,
}

impl Units {
    /// For one more handle, a unit of this half; false: many are to be drawn, and all but one kept.
    pub fn take(&mut self, word: Word, unit: u64) -> bool {
        let Some((units, _)) = self.kept.get_mut(&word) else { return false };
        let is_here = owners(*units) >= owners(unit) && watchers(*units) >= watchers(unit);
        if is_here {
            *units -= unit;
        }
        is_here
    }

    /// Keeps units; returns true if it is time to give back.
    pub fn keep(&mut self, word: Word, units: u64, end: End) -> bool {
        self.kept.entry(word).or_insert((0, end)).0 += units;
        self.kept.len() >= KEPT
    }

    /// Returns the units to give back of one value.
    pub fn give(&mut self, word: Word) -> u64 {
        self.kept.remove(&word).map_or(0, |(units, _)| units)
    }

    /// Returns the units to give back of all.
    pub fn give_all(&mut self) -> Vec<(Word, u64, End)> {
        let all = self.kept.drain().map(|(word, (units, end))| (word, units, end));
        all.filter(|(_, units, _)| *units > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::count::{DRAWN, FIRST, OWNER, WATCHER, over};
    use super::*;
    use crate::word::Colour;
    use proptest::prelude::*;

    const RANKS: usize = 3;

    /// Model of a home: its count, and the parts that are over.
    struct Home {
        count: u64,
        values: u32,
        places: u32,
    }

    impl Home {
        fn give(&mut self, units: u64) {
            let what = over(self.count, units);
            self.count -= units;
            self.values += u32::from(matches!(what, Over::Value | Over::All));
            self.places += u32::from(matches!(what, Over::Place | Over::All));
            match what {
                Over::Value => self.give(WATCHER),
                Over::All => self.count -= WATCHER,
                _ => {}
            }
        }
    }

    proptest! {
        /// Goal: whatever ranks clone, watch, pass on, drop and give back, the home's count is exact; the
        /// value ends once, when and only when it has no owners, and its place, when it has no watchers
        /// either, and everything was given back. Rank 0 is the home, which keeps nothing.
        #[test]
        fn no_unit_is_lost_or_doubled(acts in proptest::collection::vec((0..7u8, 0..RANKS, 0..RANKS), 0..200)) {
            let word = Word::new(64, Colour(0)).unwrap();
            let mut kept: [Units; RANKS] = Default::default();
            let mut handles = [FIRST - WATCHER, 0, 0];
            let mut home = Home { count: FIRST, values: 0, places: 0 };
            let rest = (0..RANKS).flat_map(|rank| [(2, rank, 0), (5, rank, 0)].into_iter().cycle().take(400));
            let rest = rest.chain((0..RANKS).map(|rank| (6, rank, 0)));
            for (act, rank, other) in acts.into_iter().chain(rest) {
                // A unit of an owner, or of a watcher.
                let unit = if act < 3 { OWNER } else { WATCHER };
                let has = |handles: &[u64; RANKS], unit| match unit {
                    OWNER => owners(handles[rank]) > 0,
                    _ => watchers(handles[rank]) > 0,
                };
                match act {
                    0 | 3 if has(&handles, OWNER) => {
                        handles[rank] += unit;
                        if rank == 0 {
                            home.count += unit;
                        } else if !kept[rank].take(word, unit) {
                            home.count += unit * DRAWN;
                            kept[rank].keep(word, unit * (DRAWN - 1), |_, _| {});
                        }
                    }
                    1 | 4 if has(&handles, unit) => {
                        handles[rank] -= unit;
                        handles[other] += unit;
                    }
                    2 | 5 if has(&handles, unit) => {
                        handles[rank] -= unit;
                        match rank {
                            0 => home.give(unit),
                            _ => drop(kept[rank].keep(word, unit, |_, _| {})),
                        }
                    }
                    6 => kept[rank].give_all().into_iter().for_each(|(_, units, _)| home.give(units)),
                    _ => {}
                }
                let units: u64 = kept.iter().flat_map(|units| units.kept.values()).map(|(units, _)| units).sum();
                let all = handles.iter().sum::<u64>() + units;
                let of_owners = if owners(all) > 0 { WATCHER } else { 0 };
                prop_assert_eq!(home.count, all + of_owners);
                prop_assert_eq!(home.values, u32::from(owners(all) == 0));
                prop_assert_eq!(home.places, u32::from(all == 0));
            }
            prop_assert_eq!((home.count, home.values, home.places), (0, 1, 1));
        }
    }
}
