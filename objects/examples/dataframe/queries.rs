//! The ten questions of the h2oai group-by benchmark, and the table in which groups are gathered.

use super::common::random::mix;
use super::rows::{Columns, Text};
use std::hash::{Hash, Hasher};
use vgas_objects::{Portable, Shareable, prefetch};

/// A question: what is gathered of the rows that have the same key.
pub trait Query: 'static {
    type Key: Copy + Eq + Ord + Hash + Send + Sync + Portable + Shareable;
    type Sum: Copy + Digest + Send + Sync + Portable + Shareable;
    /// True if all values of a group are needed at once.
    const IS_WHOLE: bool = false;

    /// Says which columns of these rows will be looked at, before they are.
    fn expect(columns: &Columns<'_>);

    fn key(columns: &Columns<'_>, row: usize) -> Self::Key;

    /// Returns the sum of a single row.
    fn of(columns: &Columns<'_>, row: usize) -> Self::Sum;

    /// Adds others of the same group.
    fn add(sum: &mut Self::Sum, other: &Self::Sum);

    /// Combines all values of a group, if all are needed at once.
    fn whole(all: &mut [Self::Sum]) -> Self::Sum {
        all[0]
    }

    /// The columns of the answer, of which the sums are shown.
    fn answer(sum: &Self::Sum) -> Vec<f64>;
}

/// A number that tells other contents.
pub trait Digest {
    fn digest(&self, so_far: u64) -> u64;
}

impl<const N: usize> Digest for [f64; N] {
    fn digest(&self, so_far: u64) -> u64 {
        self.iter().fold(so_far, |so_far, number| mix(so_far ^ number.to_bits()))
    }
}

impl<const N: usize> Digest for [i64; N] {
    fn digest(&self, so_far: u64) -> u64 {
        self.iter().fold(so_far, |so_far, number| mix(so_far ^ *number as u64))
    }
}

/// The hash of a key: the same everywhere.
pub fn hash_of(key: &impl Hash) -> u64 {
    struct Mixed(u64);
    impl Hasher for Mixed {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
        }
        fn write_u64(&mut self, number: u64) {
            self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        fn write_i32(&mut self, number: i32) {
            self.write_u64(number as u64);
        }
        fn write_u128(&mut self, number: u128) {
            self.write_u64(number as u64);
            self.write_u64((number >> 64) as u64);
        }
    }
    let mut hasher = Mixed(0);
    key.hash(&mut hasher);
    mix(hasher.finish())
}

/// Groups in the order in which they were seen first.
pub struct Groups<K, S> {
    /// Places in `all`, plus 1; as many as a power of two.
    places: Vec<u32>,
    all: Vec<(K, S)>,
}

impl<K: Copy + Eq + Hash, S: Copy> Groups<K, S> {
    pub fn new() -> Self {
        Self { places: vec![0; 64], all: Vec::new() }
    }

    /// Adds something to the group of a key.
    pub fn add(&mut self, key: K, sum: S, add: impl FnOnce(&mut S, &S)) {
        let mask = self.places.len() - 1;
        let mut at = hash_of(&key) as usize & mask;
        loop {
            match self.places[at] {
                0 => break,
                place => {
                    let (other, so_far) = &mut self.all[place as usize - 1];
                    if *other == key {
                        return add(so_far, &sum);
                    }
                }
            }
            at = (at + 1) & mask;
        }
        self.all.push((key, sum));
        self.places[at] = self.all.len() as u32;
        if self.all.len() * 2 > self.places.len() {
            self.grow();
        }
    }

    fn grow(&mut self) {
        let count = self.places.len() * 4;
        self.places = vec![0; count];
        for ((key, _), place) in self.all.iter().zip(1..) {
            let mut at = hash_of(key) as usize & (count - 1);
            while self.places[at] != 0 {
                at = (at + 1) & (count - 1);
            }
            self.places[at] = place;
        }
    }

    /// Returns the sum at a key.
    pub fn get(&self, key: &K) -> Option<&S> {
        let mask = self.places.len() - 1;
        let mut at = hash_of(key) as usize & mask;
        loop {
            let place = self.places[at] as usize;
            let (other, sum) = self.all.get(place.checked_sub(1)?)?;
            if other == key {
                return Some(sum);
            }
            at = (at + 1) & mask;
        }
    }

    pub fn into_all(self) -> Vec<(K, S)> {
        self.all
    }
}

/// Returns the part of a key, by other bits of its hash than tables use.
pub fn part_of(key: &impl Hash, parts: usize) -> usize {
    ((u128::from(hash_of(key)) * parts as u128) >> 64) as usize
}

/// Each of these, after the one behind it was expected.
pub fn expecting<I: Iterator>(all: I, expect: impl Fn(&I::Item)) -> impl Iterator<Item = I::Item> {
    let mut all = all.peekable();
    std::iter::from_fn(move || {
        let one = all.next();
        all.peek().into_iter().for_each(&expect);
        one
    })
}

/// The groups of some rows, cut into parts.
pub fn gather<Q: Query>(columns: &Columns<'_>, parts: usize) -> Vec<Vec<(Q::Key, Q::Sum)>> {
    let mut cut: Vec<Vec<(Q::Key, Q::Sum)>> = (0..parts).map(|_| Vec::new()).collect();
    let rows = (0..columns.v3.len()).map(|row| (Q::key(columns, row), Q::of(columns, row)));
    if Q::IS_WHOLE {
        rows.for_each(|(key, sum)| cut[part_of(&key, parts)].push((key, sum)));
    } else {
        let mut groups = Groups::new();
        rows.for_each(|(key, sum)| groups.add(key, sum, Q::add));
        groups.into_all().into_iter().for_each(|(key, sum)| cut[part_of(&key, parts)].push((key, sum)));
    }
    cut
}

/// The groups of a part, of all chunks one after the other.
pub fn merge<'p, Q: Query>(pieces: impl Iterator<Item = &'p [(Q::Key, Q::Sum)]>) -> Vec<(Q::Key, Q::Sum)> {
    if !Q::IS_WHOLE {
        let mut groups = Groups::new();
        pieces.flatten().for_each(|(key, sum)| groups.add(*key, *sum, Q::add));
        return groups.into_all();
    }
    let mut all: Vec<(Q::Key, Q::Sum)> = pieces.flatten().copied().collect();
    all.sort_by_key(|(key, _)| *key);
    all.chunk_by(|(a, _), (b, _)| a == b)
        .map(|group| {
            let mut sums: Vec<Q::Sum> = group.iter().map(|(_, sum)| *sum).collect();
            (group[0].0, Q::whole(&mut sums))
        })
        .collect()
}

/// Summary of an answer: groups, a digest that tells other answers, and the sums of its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Portable, Shareable)]
pub struct Answered {
    pub groups: u64,
    pub digest: u64,
    pub sums: [f64; 3],
}

impl Answered {
    pub fn of<Q: Query>(groups: &[(Q::Key, Q::Sum)]) -> Self {
        let mut all = Self { groups: groups.len() as u64, ..Self::default() };
        for (key, sum) in groups {
            all.digest = sum.digest(all.digest ^ hash_of(key));
            all.sums.iter_mut().zip(Q::answer(sum)).for_each(|(so_far, number)| *so_far += number);
        }
        all
    }

    pub fn and(self, other: &Self) -> Self {
        let mut sums = self.sums;
        sums.iter_mut().zip(other.sums).for_each(|(sum, other)| *sum += other);
        Self { groups: self.groups + other.groups, digest: mix(self.digest) ^ other.digest, sums }
    }
}

macro_rules! queries {
    ($($name:ident($($used:ident)*): $key:ty, $sum:ty; |$columns:ident, $row:ident| $by:expr, $of:expr; |$to:ident, $from:ident| $add:expr; |$got:ident| $answer:expr;)*) => { $(
        pub struct $name;
        impl Query for $name {
            type Key = $key;
            type Sum = $sum;
            fn expect(columns: &Columns<'_>) {
                $(prefetch(columns.$used);)*
            }
            fn key($columns: &Columns<'_>, $row: usize) -> $key {
                $by
            }
            fn of($columns: &Columns<'_>, $row: usize) -> $sum {
                $of
            }
            fn add($to: &mut $sum, $from: &$sum) {
                $add
            }
            fn answer($got: &$sum) -> Vec<f64> {
                $answer.to_vec()
            }
        }
    )* };
}

/// Adds number by number.
fn each<T: Copy + std::ops::AddAssign, const N: usize>(to: &mut [T; N], from: &[T; N]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
}

queries! {
    // sum v1 by id1
    Q1(id1 v1): Text, [i64; 1]; |c, row| c.id1[row], [i64::from(c.v1[row])]; |to, from| each(to, from); |s| [s[0] as f64];
    // sum v1 by id1 and id2
    Q2(id1 id2 v1): (Text, Text), [i64; 1]; |c, row| (c.id1[row], c.id2[row]), [i64::from(c.v1[row])]; |to, from| each(to, from);
        |s| [s[0] as f64];
    // sum v1, mean v3 by id3
    Q3(id3 v1 v3): Text, [f64; 3]; |c, row| c.id3[row], [f64::from(c.v1[row]), c.v3[row], 1.0]; |to, from| each(to, from);
        |s| [s[0], s[1] / s[2]];
    // means of v1, v2 and v3 by id4
    Q4(id4 v1 v2 v3): i32, [f64; 4]; |c, row| c.id4[row], [f64::from(c.v1[row]), f64::from(c.v2[row]), c.v3[row], 1.0];
        |to, from| each(to, from); |s| [s[0] / s[3], s[1] / s[3], s[2] / s[3]];
    // sums of v1, v2 and v3 by id6
    Q5(id6 v1 v2 v3): i32, [f64; 3]; |c, row| c.id6[row], [f64::from(c.v1[row]), f64::from(c.v2[row]), c.v3[row]];
        |to, from| each(to, from); |s| *s;
    // max v1 - min v2 by id3
    Q7(id3 v1 v2): Text, [i64; 2]; |c, row| c.id3[row], [i64::from(c.v1[row]), i64::from(c.v2[row])];
        |to, from| *to = [to[0].max(from[0]), to[1].min(from[1])]; |s| [(s[0] - s[1]) as f64];
    // the two largest v3 by id6
    Q8(id6 v3): i32, [f64; 2]; |c, row| c.id6[row], [c.v3[row], f64::NEG_INFINITY];
        |to, from| from.iter().for_each(|number| largest(to, *number)); |s| [s[0], s[1].max(0.0)];
    // r squared of v1 and v2 by id2 and id4
    Q9(id2 id4 v1 v2): (Text, i32), [f64; 6]; |c, row| (c.id2[row], c.id4[row]), moments(f64::from(c.v1[row]), f64::from(c.v2[row]));
        |to, from| each(to, from); |s| [r_squared(s)];
    // sum v3 and count by all six
    Q10(id1 id2 id3 id4 id5 id6 v3): (Text, Text, Text, i32, i32, i32), [f64; 2];
        |c, row| (c.id1[row], c.id2[row], c.id3[row], c.id4[row], c.id5[row], c.id6[row]), [c.v3[row], 1.0];
        |to, from| each(to, from); |s| *s;
}

fn largest(two: &mut [f64; 2], number: f64) {
    if number > two[0] {
        *two = [number, two[0]];
    } else if number > two[1] {
        two[1] = number;
    }
}

fn moments(x: f64, y: f64) -> [f64; 6] {
    [1.0, x, y, x * y, x * x, y * y]
}

fn r_squared([n, x, y, xy, xx, yy]: &[f64; 6]) -> f64 {
    let spread = (n * xx - x * x) * (n * yy - y * y);
    if spread > 0.0 { (n * xy - x * y).powi(2) / spread } else { 0.0 }
}

/// Median and standard deviation of v3 by id4 and id5: all values of a group are needed at once.
pub struct Q6;

impl Query for Q6 {
    type Key = (i32, i32);
    type Sum = [f64; 2];
    const IS_WHOLE: bool = true;

    fn expect(columns: &Columns<'_>) {
        prefetch(columns.id4);
        prefetch(columns.id5);
        prefetch(columns.v3);
    }

    fn key(columns: &Columns<'_>, row: usize) -> (i32, i32) {
        (columns.id4[row], columns.id5[row])
    }

    fn of(columns: &Columns<'_>, row: usize) -> [f64; 2] {
        [columns.v3[row], 0.0]
    }

    fn add(_: &mut [f64; 2], _: &[f64; 2]) {}

    fn whole(all: &mut [[f64; 2]]) -> [f64; 2] {
        all.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let count = all.len();
        let median = (all[(count - 1) / 2][0] + all[count / 2][0]) / 2.0;
        let mean = all.iter().map(|one| one[0]).sum::<f64>() / count as f64;
        let squares = all.iter().map(|one| (one[0] - mean).powi(2)).sum::<f64>();
        [median, if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 }]
    }

    fn answer(sum: &[f64; 2]) -> Vec<f64> {
        sum.to_vec()
    }
}
