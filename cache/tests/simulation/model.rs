//! What every byte may be at every moment.
//!
//! The segments are divided into *cells*: aligned 8-byte words, and in the last 64 bytes of each page single bytes. Each
//! cell is written by one rank only, which counts up its *version*. A get that begins after a put has ended, or after
//! another get has seen a version, sees at least that version, whoever asks (docs/PROMISES.md, "Visibility"); and
//! nobody sees a version before its put has begun. A word carries its own position, so that a page in the wrong place
//! shows. A *tally* is a word that all ranks add 1 to atomically, any of them several times at once: its version is its value,
//! and no two additions may have seen the same.

use super::Finding;
use super::plan::{PAGE, Plan};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::ops::Range;

/// Words of a page; the bytes behind them are cells of their own.
const WORDS: usize = (PAGE - BYTE_CELLS) / 8;
const BYTE_CELLS: usize = 64;
const CELLS: usize = WORDS + BYTE_CELLS;

/// What is known of a cell.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    writer: u32,
    /// The newest version whose put has begun.
    begun: u32,
    /// The newest version that nobody may miss any more.
    settled: u32,
    /// A put of it is in flight.
    busy: bool,
    /// Counted in, not put.
    tally: bool,
}

/// A range of bytes of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub owner: u32,
    pub bytes: Range<u64>,
}

#[derive(Debug)]
pub struct Model {
    /// By number of the partition ([`Plan::partition`]), the *owner* of everything here.
    segments: Vec<Vec<Cell>>,
    /// What additions have seen: owner, page, value.
    seen: BTreeSet<(u32, u64, u64)>,
}

/// Whether a page begins with a tally.
fn has_tally(plan: &Plan, owner: usize, page: usize) -> bool {
    plan.tallies && page % 4 == owner % 4
}

fn tag(owner: u32, cell: usize) -> u64 {
    let mixed = (u64::from(owner) << 32 | cell as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed >> 32 << 32
}

/// First byte of a cell, and how many it has.
fn span(cell: usize) -> (u64, usize) {
    let (page, index) = (cell / CELLS, cell % CELLS);
    let (at, bytes) = if index < WORDS { (index * 8, 8) } else { (WORDS * 8 + index - WORDS, 1) };
    ((page * PAGE + at) as u64, bytes)
}

/// The cells that lie in a range of bytes as a whole.
fn cells(bytes: &Range<u64>) -> Range<usize> {
    let cell_at_or_after = |at: u64| {
        let (page, at) = ((at / PAGE as u64) as usize, at as usize % PAGE);
        page * CELLS + if at <= WORDS * 8 { at.div_ceil(8) } else { WORDS + at - WORDS * 8 }
    };
    let first = cell_at_or_after(bytes.start);
    let mut end = cell_at_or_after(bytes.end);
    if end > first && end > 0 && span(end - 1).0 + span(end - 1).1 as u64 > bytes.end {
        end -= 1;
    }
    first..end.max(first)
}

impl Model {
    pub fn new(plan: &Plan) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x006d_6f64_656c);
        let segments = plan.partitions.iter().enumerate().map(|(owner, &pages)| {
            let mut cells = Vec::new();
            while cells.len() < pages as usize * CELLS {
                let group = random.random_range(1..=4) * CELLS;
                let writer = random.random_range(0..plan.ranks);
                // One writer for some pages, or several in each, in stripes.
                let stripe = if random.random() { usize::MAX } else { random.random_range(1..=64) };
                let (writer, stripe) = match plan.owners_write {
                    true => (owner as u32 % plan.ranks, usize::MAX),
                    false => (writer, stripe),
                };
                cells.extend((0..group).map(|index| Cell {
                    writer: (writer + (index / stripe) as u32) % plan.ranks,
                    ..Cell::default()
                }));
            }
            cells.truncate(pages as usize * CELLS);
            for page in (0..pages as usize).filter(|&page| has_tally(plan, owner, page)) {
                cells[page * CELLS].tally = true;
            }
            cells
        });
        Self { segments: segments.collect(), seen: BTreeSet::new() }
    }

    pub fn segment_bytes(&self, owner: u32) -> u64 {
        (self.segments[owner as usize].len() / CELLS * PAGE) as u64
    }

    /// Draws a range that a rank may put now.
    pub fn draw_put(&self, writer: u32, of: &Range<u32>, random: &mut ChaCha8Rng) -> Option<Place> {
        let owner = random.random_range(of.clone());
        let cells = &self.segments[owner as usize];
        let may = |cell: &Cell| cell.writer == writer && !cell.tally && !cell.busy && cell.begun < 255;
        let start = (0..8).filter(|_| !cells.is_empty()).map(|_| random.random_range(0..cells.len()));
        let mut first = start.into_iter().find(|&cell| may(&cells[cell]))?;
        let most = match random.random_range(0..5) {
            0 => 1,
            1 => random.random_range(1..=16),
            2 => random.random_range(1..=CELLS),
            // Whole pages.
            whole => {
                if cells[first / CELLS * CELLS..][..CELLS].iter().all(may) {
                    first = first / CELLS * CELLS;
                }
                CELLS * if whole == 3 { 1 } else { random.random_range(1..=4) }
            }
        };
        let end = first + cells[first..].iter().take(most).take_while(|cell| may(cell)).count();
        let (last, bytes) = span(end - 1);
        Some(Place { owner, bytes: span(first).0..last + bytes as u64 })
    }

    /// Draws a range of a page that a rank may store to now.
    pub fn draw_store(&self, writer: u32, page: u64, random: &mut ChaCha8Rng) -> Option<Place> {
        let cells = &self.segments[writer as usize];
        let may = |cell: &Cell| cell.writer == writer && !cell.tally && !cell.busy && cell.begun < 255;
        let of_page = page as usize * CELLS..(page as usize + 1) * CELLS;
        let first = (0..8).map(|_| random.random_range(of_page.clone())).find(|&cell| may(&cells[cell]))?;
        let most = random.random_range(1..=16);
        let mine = cells[first..of_page.end].iter().take(most).take_while(|cell| may(cell)).count();
        let (last, bytes) = span(first + mine - 1);
        Some(Place { owner: writer, bytes: span(first).0..last + bytes as u64 })
    }

    /// Draws the page of a tally of somebody's.
    pub fn draw_tally(&self, of: &Range<u32>, random: &mut ChaCha8Rng) -> Option<(u32, u64)> {
        let owner = random.random_range(of.clone());
        let cells = &self.segments[owner as usize];
        let tallies = (0..cells.len() / CELLS).filter(|page| cells[page * CELLS].tally);
        let tallies: Vec<usize> = tallies.collect();
        let page = *tallies.get(random.random_range(0..tallies.len().max(1)))?;
        Some((owner, page as u64))
    }

    /// Whether a page begins with a tally.
    pub fn is_tally(&self, owner: u32, page: u64) -> bool {
        self.segments[owner as usize][page as usize * CELLS].tally
    }

    /// An addition begins.
    pub fn begin_addition(&mut self, owner: u32, page: u64) {
        self.segments[owner as usize][page as usize * CELLS].begun += 1;
    }

    /// An addition has ended, and has seen this value before.
    pub fn end_addition(&mut self, owner: u32, page: u64, was: u64) -> Result<(), Finding> {
        let cell = &mut self.segments[owner as usize][page as usize * CELLS];
        let what = || format!("page {page} of segment {owner} was {was}, {} additions", cell.begun);
        if was >= u64::from(cell.begun) {
            return Err(Finding::new("a sum that nobody made", what()));
        }
        if !self.seen.insert((owner, page, was)) {
            return Err(Finding::new("an addition was lost", what()));
        }
        cell.settled = cell.settled.max(was as u32 + 1);
        Ok(())
    }

    /// Begins a put: what it writes.
    pub fn begin_put(&mut self, place: &Place) -> Box<[u8]> {
        let mut content = Vec::new();
        for cell in cells(&place.bytes) {
            let state = &mut self.segments[place.owner as usize][cell];
            state.begun += 1;
            state.busy = true;
            match span(cell).1 {
                1 => content.push(state.begun as u8),
                _ => content.extend((tag(place.owner, cell) | u64::from(state.begun)).to_le_bytes()),
            }
        }
        assert_eq!(content.len() as u64, place.bytes.end - place.bytes.start, "{place:?}");
        content.into()
    }

    /// A put has ended: well, or so that its content may be there or not.
    pub fn end_put(&mut self, place: &Place, well: bool) {
        for cell in cells(&place.bytes) {
            let state = &mut self.segments[place.owner as usize][cell];
            state.busy = false;
            if well {
                state.settled = state.settled.max(state.begun);
            }
        }
    }

    /// Begins a get: what it must see at least.
    pub fn begin_get(&self, place: &Place) -> Vec<u32> {
        cells(&place.bytes).map(|cell| self.segments[place.owner as usize][cell].settled).collect()
    }

    /// A get has ended with these bytes.
    pub fn end_get(&mut self, place: &Place, least: &[u32], content: &[u8]) -> Result<(), Finding> {
        for (cell, &least) in cells(&place.bytes).zip(least) {
            let (at, bytes) = span(cell);
            let found = &content[(at - place.bytes.start) as usize..][..bytes];
            let state = &mut self.segments[place.owner as usize][cell];
            let version = match *found {
                [byte] => u32::from(byte),
                _ => {
                    let word = u64::from_le_bytes(found.try_into().expect("8 bytes"));
                    let version = word as u32;
                    let untagged = version == 0 || state.tally;
                    let expected = if untagged { 0 } else { tag(place.owner, cell) };
                    if word >> 32 << 32 != expected {
                        let what = format!("byte {at} of segment {} holds {word:#x}", place.owner);
                        return Err(Finding::new("a word that nobody wrote there", what));
                    }
                    version
                }
            };
            if version < least || version > state.begun {
                let what = format!(
                    "byte {at} of segment {} (page {}) shows version {version}, {least}..={} are allowed",
                    place.owner,
                    at / PAGE as u64,
                    state.begun
                );
                let kind = if version < least { "an old value" } else { "a value from the future" };
                return Err(Finding::new(kind, what));
            }
            state.settled = state.settled.max(version);
        }
        Ok(())
    }

    /// Begins a checkpoint: what it must save of each page of a segment at least.
    pub fn begin_save(&self, owner: u32) -> Vec<Vec<u32>> {
        let pages = self.segment_bytes(owner) / PAGE as u64;
        (0..pages).map(|page| self.begin_get(&Self::page(owner, page))).collect()
    }

    /// A crash after a checkpoint has left a page with this content.
    pub fn check_saved(
        &mut self,
        owner: u32,
        page: u64,
        least: &[u32],
        content: &[u8],
    ) -> Result<(), Finding> {
        self.end_get(&Self::page(owner, page), least, content)
            .map_err(|finding| Finding::new("a checkpoint has lost something", finding.to_string()))
    }

    fn page(owner: u32, page: u64) -> Place {
        Place { owner, bytes: page * PAGE as u64..(page + 1) * PAGE as u64 }
    }
}
