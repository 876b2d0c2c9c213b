//! Rows of the h2oai benchmark's tables, as both versions have them: columns, and what they are generated from.

use super::common::random::Random;

/// Text of up to 16 bytes without zeros.
pub type Text = u128;

/// The text of some bytes; none if they are too many, or have zeros.
pub fn text(bytes: &[u8]) -> Option<Text> {
    let mut text = [0; 16];
    text.get_mut(..bytes.len())?.copy_from_slice(bytes);
    (!bytes.contains(&0)).then(|| Text::from_le_bytes(text))
}

/// The bytes of a text.
pub fn bytes_of(text: Text) -> Vec<u8> {
    text.to_le_bytes().into_iter().take_while(|byte| *byte != 0).collect()
}

/// `id001`, with at least so many digits.
fn identifier(number: u64, digits: usize) -> Text {
    let mut text = *b"id\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = digits.max(number.max(1).ilog10() as usize + 1).min(14);
    let mut left = number;
    while digits > 0 {
        text[1 + digits] = b'0' + (left % 10) as u8;
        left /= 10;
        digits -= 1;
    }
    Text::from_le_bytes(text)
}

/// The table of the group-by queries, in memory of this process (the layout G1).
#[derive(Debug, Default)]
pub struct Rows {
    pub id1: Vec<Text>,
    pub id2: Vec<Text>,
    pub id3: Vec<Text>,
    pub id4: Vec<i32>,
    pub id5: Vec<i32>,
    pub id6: Vec<i32>,
    pub v1: Vec<i32>,
    pub v2: Vec<i32>,
    pub v3: Vec<f64>,
}

/// The same, borrowed from wherever it is.
#[derive(Clone, Copy)]
pub struct Columns<'c> {
    pub id1: &'c [Text],
    pub id2: &'c [Text],
    pub id3: &'c [Text],
    pub id4: &'c [i32],
    pub id5: &'c [i32],
    pub id6: &'c [i32],
    pub v1: &'c [i32],
    pub v2: &'c [i32],
    pub v3: &'c [f64],
}

impl Rows {
    /// Rows `from..to` of a table of so many rows and groups: the same, however they are cut.
    pub fn generate(seed: u64, from: u64, to: u64, rows: u64, groups: u64) -> Self {
        let mut all = Self::default();
        let many = (rows / groups).max(1);
        for number in from..to {
            let mut random = Random::new(seed, number);
            let mut pick = |count: u64| 1 + random.below(count);
            all.id1.push(identifier(pick(groups), 3));
            all.id2.push(identifier(pick(groups), 3));
            all.id3.push(identifier(pick(many), 10));
            all.id4.push(pick(groups) as i32);
            all.id5.push(pick(groups) as i32);
            all.id6.push(pick(many) as i32);
            all.v1.push(pick(5) as i32);
            all.v2.push(pick(15) as i32);
            all.v3.push((pick(100_000_000) - 1) as f64 / 1e6);
        }
        all
    }
}

/// The left table of the joins; of the right ones, each has the columns that it is joined by.
#[derive(Debug, Default)]
pub struct Joined {
    /// Key into the small table.
    pub id1: Vec<i32>,
    /// Key into the medium one, as a number and as text.
    pub id2: Vec<i32>,
    pub id5: Vec<Text>,
    /// Key into the big one.
    pub id3: Vec<i32>,
    pub value: Vec<f64>,
}

/// The same, borrowed from wherever it is.
#[derive(Clone, Copy)]
pub struct JoinColumns<'c> {
    pub id1: &'c [i32],
    pub id2: &'c [i32],
    pub id5: &'c [Text],
    pub id3: &'c [i32],
    pub value: &'c [f64],
}

/// Returns the number of rows of the right tables of the joins, for `rows` on the left.
pub fn right_rows(rows: u64) -> [u64; 3] {
    [(rows / 1_000_000).max(10), (rows / 1_000).max(100), rows]
}

impl Joined {
    /// Rows `from..to` of the left table: of ten, nine have a partner in each right table.
    pub fn generate(seed: u64, from: u64, to: u64, rows: u64) -> Self {
        let mut all = Self::default();
        let [small, medium, big] = right_rows(rows).map(|count| count + count / 9);
        for number in from..to {
            let mut random = Random::new(seed ^ 0x6a6f_696e, number);
            let mut pick = |count: u64| 1 + random.below(count);
            let of_medium = pick(medium);
            all.id1.push(pick(small) as i32);
            all.id2.push(of_medium as i32);
            all.id5.push(identifier(of_medium, 1));
            all.id3.push(pick(big) as i32);
            all.value.push((pick(100_000_000) - 1) as f64 / 1e6);
        }
        all
    }

    /// Rows `from..to` of a right table: its keys are 1 and so on, in no order that matters.
    pub fn generate_right(seed: u64, from: u64, to: u64) -> Self {
        let mut all = Self::default();
        for number in from..to {
            let mut random = Random::new(seed ^ 0x7269_6768, number);
            let key = number + 1;
            all.id1.push(key as i32);
            all.id2.push(key as i32);
            all.id5.push(identifier(key, 1));
            all.id3.push(key as i32);
            all.value.push(random.below(100_000_000) as f64 / 1e6);
        }
        all
    }
}
