//! The five joins of the h2oai benchmark.

use super::common::random::mix;
use super::queries::{Groups, hash_of, part_of};
use super::rows::{JoinColumns, Text};
use std::hash::Hash;
use vgas_objects::{Portable, Shareable};

/// Two tables with a common column.
pub trait Join: 'static {
    type Key: Copy + Eq + Hash + Send + Sync + Portable + Shareable;
    /// The right table, from 1 on: small, medium, big.
    const RIGHT: usize;
    /// True if the right table is as large as the left one.
    const IS_BIG: bool = Self::RIGHT == 3;
    /// True if rows without a partner stay.
    const IS_LEFT: bool = false;

    fn key(columns: &JoinColumns<'_>, row: usize) -> Self::Key;
}

macro_rules! joins {
    ($($name:ident: $key:ty, $column:ident, $right:literal, $is_left:literal;)*) => { $(
        pub struct $name;
        impl Join for $name {
            type Key = $key;
            const RIGHT: usize = $right;
            const IS_LEFT: bool = $is_left;
            fn key(columns: &JoinColumns<'_>, row: usize) -> $key {
                columns.$column[row]
            }
        }
    )* };
}

joins! {
    J1: i32, id1, 1, false;
    J2: i32, id2, 2, false;
    J3: i32, id2, 2, true;
    J4: Text, id5, 2, false;
    J5: i32, id3, 3, false;
}

/// A row of a join: the values of both sides; not a number, where there is no partner.
pub type Pair = [f64; 2];

/// Keys and values, cut into parts by key.
pub fn spread<J: Join>(columns: JoinColumns<'_>, parts: usize) -> Vec<Vec<(J::Key, f64)>> {
    let mut cut: Vec<Vec<(J::Key, f64)>> = (0..parts).map(|_| Vec::new()).collect();
    keyed::<J>(columns).for_each(|(key, value)| cut[part_of(&key, parts)].push((key, value)));
    cut
}

/// The right side of a join, by its keys.
pub fn index<K: Copy + Eq + Hash>(right: impl Iterator<Item = (K, f64)>) -> Groups<K, f64> {
    let mut table = Groups::new();
    right.for_each(|(key, value)| table.add(key, value, |_, _| {}));
    table
}

/// The rows of the left side with their partners.
pub fn probe<J: Join>(table: &Groups<J::Key, f64>, left: impl Iterator<Item = (J::Key, f64)>) -> Vec<Pair> {
    left.filter_map(|(key, value)| match table.get(&key) {
        Some(other) => Some([value, *other]),
        None => J::IS_LEFT.then_some([value, f64::NAN]),
    })
    .collect()
}

/// Keys and values of some rows.
pub fn keyed<'c, J: Join>(columns: JoinColumns<'c>) -> impl Iterator<Item = (J::Key, f64)> + 'c {
    columns.value.iter().enumerate().map(move |(row, value)| (J::key(&columns, row), *value))
}

/// Result of a join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Portable, Shareable)]
pub struct Paired {
    pub rows: u64,
    pub digest: u64,
    pub sums: [f64; 2],
}

impl Paired {
    pub fn of(pairs: &[Pair]) -> Self {
        let mut all = Self { rows: pairs.len() as u64, ..Self::default() };
        for [left, right] in pairs {
            all.digest = mix(all.digest ^ hash_of(&left.to_bits()) ^ right.to_bits());
            all.sums[0] += left;
            all.sums[1] += if right.is_nan() { 0.0 } else { *right };
        }
        all
    }

    pub fn and(self, other: &Self) -> Self {
        let sums = [self.sums[0] + other.sums[0], self.sums[1] + other.sums[1]];
        Self { rows: self.rows + other.rows, digest: mix(self.digest) ^ other.digest, sums }
    }
}
