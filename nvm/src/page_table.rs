//! A node's table of the pages of one segment: the place of each, its checksum, and the changes since the
//! last checkpoint. In memory only; sparse, about 5 bytes for every page in a written neighbourhood of 512,
//! and 4 for each block of a page whose blocks are known.

use crate::format::{BLOCK_ENTRIES, Entry, Place};
use std::collections::{BTreeSet, HashMap};

/// Pages of a chunk: as many as one block of the page map describes, so that a changed chunk is a changed block.
pub const CHUNK_PAGES: usize = BLOCK_ENTRIES;

/// Most pages of a segment: 32 TiB of the smallest pages, and a bound on the memory that describes them.
pub const PAGES_MAX: u64 = 1 << 33;

/// The pages of one segment. There may be thousands of never-written segments: the table takes memory only
/// for written pages.
#[derive(Debug)]
pub struct PageTable {
    pages: u64,
    /// `None`: all pages are zeros, and not shadowed.
    known: Option<Box<StoredPages>>,
}

/// Table of a segment that has stored or lost pages.
#[derive(Debug)]
struct StoredPages {
    /// `None`: no page of it was ever written, unless it is lost.
    chunks: Vec<Option<Box<Chunk>>>,
    /// Chunks whose map block is damaged, without a page written since.
    lost: BTreeSet<usize>,
    /// Chunks with fresh pages: the map blocks that the next checkpoint writes.
    changed: BTreeSet<usize>,
    /// True if each page has two places, one of which a checkpoint keeps.
    shadowed: bool,
    /// Checksums of the blocks of pages of several blocks, as far as the pages were read or written since the opening.
    blocks: HashMap<u64, Box<[u32]>>,
}

#[derive(Clone, Debug)]
struct Chunk {
    checksums: [u32; CHUNK_PAGES],
    stored: Bits,
    lost: Bits,
    /// The page is at place B, or, of a fresh page without content, would be.
    second: Bits,
    /// Changed since the last checkpoint began: its place is named by no checkpoint and may be overwritten.
    fresh: Bits,
    /// Named by the checkpoint being written, while the other place is named by the one before: neither may be
    /// overwritten now.
    flushing: Bits,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bits([u64; CHUNK_PAGES / 64]);

impl Bits {
    fn get(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn set(&mut self, index: usize, value: bool) {
        let bit = 1 << (index % 64);
        if value {
            self.0[index / 64] |= bit;
        } else {
            self.0[index / 64] &= !bit;
        }
    }
}

impl Chunk {
    fn new(lost: bool) -> Box<Self> {
        let bits = Bits::default();
        let lost = if lost { Bits([u64::MAX; CHUNK_PAGES / 64]) } else { bits };
        Box::new(Self { checksums: [0; _], stored: bits, lost, second: bits, fresh: bits, flushing: bits })
    }

    fn entry(&self, index: usize) -> Entry {
        if self.lost.get(index) {
            Entry::Lost
        } else if self.stored.get(index) {
            Entry::Stored { place: self.place(index), checksum: self.checksums[index] }
        } else {
            Entry::Zeros
        }
    }

    fn place(&self, index: usize) -> Place {
        if self.second.get(index) { Place::B } else { Place::A }
    }

    fn set_entry(&mut self, index: usize, entry: Entry) {
        self.lost.set(index, entry == Entry::Lost);
        self.stored.set(index, matches!(entry, Entry::Stored { .. }));
        if let Entry::Stored { place, checksum } = entry {
            self.checksums[index] = checksum;
            self.second.set(index, place == Place::B);
        }
    }
}

impl PageTable {
    /// A table of `pages` pages of zeros. `shadowed`: the last checkpoint's copies are to be left alone.
    pub fn new(pages: u64, shadowed: bool) -> Self {
        debug_assert!(pages <= PAGES_MAX);
        Self { pages, known: shadowed.then(|| StoredPages::new(pages, true)) }
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    fn known(&mut self) -> &mut StoredPages {
        self.known.get_or_insert_with(|| StoredPages::new(self.pages, false))
    }

    /// Returns the entry of a page.
    pub fn entry(&self, page: u64) -> Entry {
        let (chunk, index) = split(page);
        let Some(known) = &self.known else { return Entry::Zeros };
        match &known.chunks[chunk] {
            Some(chunk) => chunk.entry(index),
            None if known.lost.contains(&chunk) => Entry::Lost,
            None => Entry::Zeros,
        }
    }

    /// Returns the place for the next content of a page; `None` while a checkpoint needs both of its places.
    pub fn target(&self, page: u64) -> Option<Place> {
        let (chunk, index) = split(page);
        let Some(known) = &self.known else { return Some(Place::A) };
        let Some(chunk) = &known.chunks[chunk] else { return Some(Place::A) };
        if !known.shadowed {
            Some(Place::A)
        } else if chunk.flushing.get(index) {
            None
        } else if chunk.fresh.get(index) {
            Some(chunk.place(index))
        } else if chunk.stored.get(index) {
            Some(chunk.place(index).other())
        } else {
            Some(Place::A)
        }
    }

    /// Records that a page has been written, and the checksums of its blocks if they were taken.
    pub fn store(&mut self, page: u64, place: Place, checksum: u32, blocks: Option<Box<[u32]>>) {
        self.change(page, Entry::Stored { place, checksum });
        self.known().blocks.extend(blocks.map(|blocks| (page, blocks)));
    }

    /// Records the checksums of the blocks of a page that has been read and matches its entry.
    pub fn learn(&mut self, page: u64, blocks: Box<[u32]>) {
        self.known().blocks.insert(page, blocks);
    }

    /// The checksums of a page's blocks, if they are known.
    pub fn blocks(&self, page: u64) -> Option<&[u32]> {
        self.known.as_ref()?.blocks.get(&page).map(|blocks| &blocks[..])
    }

    /// Records that a page holds zeros again.
    pub fn discard(&mut self, page: u64) {
        // Its next content must not go where the last checkpoint has the page.
        let target = self.target(page);
        self.change(page, Entry::Zeros);
        let (chunk, index) = split(page);
        if let Some(chunk) = &mut self.known().chunks[chunk] {
            chunk.second.set(index, target == Some(Place::B));
        }
    }

    fn change(&mut self, page: u64, entry: Entry) {
        let known = self.known();
        known.blocks.remove(&page);
        let (chunk, index) = split(page);
        let present = known.present(chunk);
        present.set_entry(index, entry);
        present.fresh.set(index, true);
        if known.shadowed {
            known.changed.insert(chunk);
        }
    }

    /// Records that the content of a page is lost.
    pub fn lose(&mut self, page: u64) {
        let known = self.known();
        known.blocks.remove(&page);
        let (chunk, index) = split(page);
        known.present(chunk).set_entry(index, Entry::Lost);
    }

    /// The pages below `pages` that may hold anything but zeros, ascending; chunks that are lost as a whole are left
    /// out.
    pub fn written_pages(&self, pages: u64) -> impl Iterator<Item = u64> {
        let present = self.known.iter().flat_map(|known| known.chunks.iter().enumerate());
        let present = present.filter_map(|(index, chunk)| Some((index, chunk.as_ref()?)));
        let written = present.flat_map(|(index, chunk)| {
            let pages = (0..CHUNK_PAGES).filter(|&page| chunk.entry(page) != Entry::Zeros);
            pages.map(move |page| (index * CHUNK_PAGES + page) as u64)
        });
        written.take_while(move |&page| page < pages)
    }

    /// Returns true if a checkpoint would write anything.
    pub fn has_changed(&self) -> bool {
        self.known.as_ref().is_some_and(|known| !known.changed.is_empty())
    }

    /// Begins a checkpoint: fresh pages now belong to it. Returns the changed chunks, ascending.
    pub fn begin_flush(&mut self) -> BTreeSet<usize> {
        let known = self.known();
        let changed = std::mem::take(&mut known.changed);
        for &chunk in &changed {
            let chunk = known.present(chunk);
            chunk.flushing = std::mem::take(&mut chunk.fresh);
        }
        changed
    }

    /// Ends a checkpoint of these chunks. When it was abandoned, its pages are fresh again.
    pub fn end_flush(&mut self, chunks: &BTreeSet<usize>, abandoned: bool) {
        let known = self.known();
        for &index in chunks {
            let chunk = known.present(index);
            let flushing = std::mem::take(&mut chunk.flushing);
            if abandoned {
                chunk.fresh.0.iter_mut().zip(flushing.0).for_each(|(fresh, flushing)| *fresh |= flushing);
                known.changed.insert(index);
            }
        }
    }

    /// The entries of a chunk, as its map block stores them.
    pub fn chunk_entries(&self, chunk: usize) -> impl Iterator<Item = Entry> {
        let first = (chunk * CHUNK_PAGES) as u64;
        (first..first + CHUNK_PAGES as u64).map(|page| self.entry(page))
    }

    /// Takes over what a map block says, at opening.
    pub fn load_chunk(&mut self, chunk: usize, entries: impl Iterator<Item = Entry>) {
        let present = self.known().present(chunk);
        for (index, entry) in entries.enumerate().take(CHUNK_PAGES) {
            present.set_entry(index, entry);
        }
    }

    /// Records that a chunk's map block cannot be read.
    pub fn lose_chunk(&mut self, chunk: usize) {
        let known = self.known();
        known.chunks[chunk] = None;
        known.lost.insert(chunk);
    }
}

impl StoredPages {
    fn new(pages: u64, shadowed: bool) -> Box<Self> {
        // Zeroed by the system when touched: a large table costs nothing before it is used.
        let chunks = vec![None; pages.div_ceil(CHUNK_PAGES as u64) as usize];
        let (lost, changed) = (BTreeSet::new(), BTreeSet::new());
        Box::new(Self { chunks, lost, changed, shadowed, blocks: HashMap::new() })
    }

    fn present(&mut self, chunk: usize) -> &mut Chunk {
        let lost = &mut self.lost;
        self.chunks[chunk].get_or_insert_with(|| Chunk::new(lost.remove(&chunk)))
    }
}

fn split(page: u64) -> (usize, usize) {
    ((page / CHUNK_PAGES as u64) as usize, (page % CHUNK_PAGES as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(place: Place, checksum: u32) -> Entry {
        Entry::Stored { place, checksum }
    }

    /// The life of one page: each checkpoint's place is left alone until the next one is complete.
    #[test]
    fn a_page_alternates_between_its_places() {
        let mut table = PageTable::new(600, true);
        assert_eq!((table.entry(513), table.target(513)), (Entry::Zeros, Some(Place::A)));
        table.store(513, Place::A, 1, None);
        assert_eq!(table.target(513), Some(Place::A), "no checkpoint names it yet");
        let chunks = table.begin_flush();
        assert_eq!(chunks, BTreeSet::from([1]));
        assert_eq!(table.target(513), None, "the checkpoint being made needs it");
        table.end_flush(&chunks, false);
        assert_eq!(table.target(513), Some(Place::B));
        assert!(!table.has_changed());
        table.store(513, Place::B, 2, None);
        assert_eq!(table.entry(513), stored(Place::B, 2));

        // An abandoned checkpoint changes nothing.
        let chunks = table.begin_flush();
        table.end_flush(&chunks, true);
        assert_eq!((table.target(513), table.has_changed()), (Some(Place::B), true));
        let chunks = table.begin_flush();
        table.end_flush(&chunks, false);
        assert_eq!(table.target(513), Some(Place::A));

        // Discarded and written again before the next checkpoint: still not where the last one has it.
        table.learn(513, [4].into());
        table.discard(513);
        assert_eq!((table.entry(513), table.target(513)), (Entry::Zeros, Some(Place::A)));
        assert_eq!(table.blocks(513), None, "they were of what the page held before");
        table.store(513, Place::A, 3, None);
        assert_eq!(table.entry(513), stored(Place::A, 3));
    }

    #[test]
    fn a_lost_chunk_heals_page_by_page() {
        let mut table = PageTable::new(1024, true);
        table.lose_chunk(1);
        assert_eq!((table.entry(511), table.entry(512)), (Entry::Zeros, Entry::Lost));
        table.store(600, Place::A, 1, None);
        assert_eq!((table.entry(600), table.entry(601)), (stored(Place::A, 1), Entry::Lost));
        assert_eq!(table.written_pages(1024).count(), 512);
    }

    #[test]
    fn a_page_without_shadow_stays_in_place() {
        let mut table = PageTable::new(10, false);
        table.store(3, Place::A, 1, None);
        assert_eq!((table.target(3), table.has_changed()), (Some(Place::A), false));
    }
}
