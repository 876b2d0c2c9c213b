//! Entry points for fuzz targets: the readers of stored formats, on arbitrary bytes. They panic if a reader
//! does, or if the decoded value does not round-trip. Built only for tests and fuzzing (`fuzz/README.md`);
//! not a public interface.

#![forbid(unsafe_code)]

use crate::checksum;
use crate::device::Whereabouts;
use crate::format::{
    self, BLOCK_BYTES, CheckpointId, Companion, Entry, Geometry, NoSuperblock, Place, Superblock,
    decode_block, decode_mark, encode_block, encode_mark,
};

/// The sector of a superblock, and the part of it that its checksum covers. Companions follow in the rest of
/// its block.
const SECTOR_BYTES: usize = 512;
/// Bytes of the input for one superblock: its sector, and room for two companions.
const HEAD_BYTES: usize = SECTOR_BYTES + 2 * Companion::BYTES;
const SUMMED_BYTES: usize = SECTOR_BYTES - 4;

type Block = [u8; BLOCK_BYTES];

/// A file's beginning: the first byte says in its bits which of the three heads that follow, two superblocks and a mark, get the
/// checksum that their sectors should have, since no other bytes get far.
pub fn nvm_superblocks(bytes: &[u8]) {
    let Some((&sealed, rest)) = bytes.split_first() else { return };
    let mut heads = rest.chunks(HEAD_BYTES).zip(0..);
    let [a, b, mark] = std::array::from_fn(|_| {
        let (head, number) = heads.next().unwrap_or((&[], 7));
        block(head, sealed >> number & 1 != 0)
    });
    let (a, b) = (superblock(&a, Place::A), superblock(&b, Place::B));
    let found: Vec<Superblock> = a.iter().chain(&b).cloned().collect();
    let Ok(offer) = Superblock::offer(a, b, mark_of(&mark)) else { return };
    assert!(offer.checkpoints().all(|checkpoint| found.contains(checkpoint)), "{offer:?}");
    let before = offer.before.as_ref();
    let later = before.map(|before| offer.newest.checkpoint.generation - before.checkpoint.generation);
    assert!(later.is_none_or(|later| later == 1), "{offer:?}");
}

/// A block that begins with these bytes.
fn block(head: &[u8], sealed: bool) -> Box<Block> {
    let mut block = Box::new([0; BLOCK_BYTES]);
    block[..head.len()].copy_from_slice(head);
    if sealed {
        let sum = checksum::of_bytes(&block[..SUMMED_BYTES]);
        block[SUMMED_BYTES..SECTOR_BYTES].copy_from_slice(&sum.to_le_bytes());
    }
    block
}

fn superblock(block: &Block, place: Place) -> Result<Superblock, NoSuperblock> {
    let found = Superblock::decode(block, place)?;
    assert_eq!(Superblock::decode(&found.encode(), place), Ok(found.clone()));
    assert_eq!(Superblock::decode(&found.encode_void(), place), Err(NoSuperblock::Void));
    assert_eq!(format::superblock_place(found.checkpoint.generation), place);
    if let Some(geometry) = Geometry::new(found.page_bytes, found.pages) {
        holds_together(&geometry, &found);
    }
    Ok(found)
}

/// Every part of the file is inside of it, and behind the one before.
fn holds_together(geometry: &Geometry, superblock: &Superblock) {
    let mut end = format::MARK_AT + BLOCK_BYTES as u64;
    for level in 0..geometry.levels() {
        assert!(geometry.block_at(level, 0, Place::A) >= end);
        end = geometry.block_at(level, geometry.blocks(level) - 1, Place::B) + BLOCK_BYTES as u64;
    }
    assert!(geometry.page_at(0, Place::A) >= end);
    let last = geometry.page_at(superblock.pages - 1, Place::B);
    assert_eq!(last + u64::from(superblock.page_bytes), geometry.file_bytes());
}

fn mark_of(block: &Block) -> Result<CheckpointId, NoSuperblock> {
    let found = decode_mark(block)?;
    assert_eq!(decode_mark(&encode_mark(found)), Ok(found));
    Ok(found)
}

/// A block of the page map, repeated to its length.
pub fn nvm_map_block(bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let mut block = [0; BLOCK_BYTES];
    block.iter_mut().zip(bytes.iter().cycle()).for_each(|(to, byte)| *to = *byte);
    let entries: Vec<Entry> = decode_block(&block).collect();
    assert_eq!(entries.len(), format::BLOCK_ENTRIES);
    let again = encode_block(entries.iter().copied());
    assert!(decode_block(&again).eq(entries));
}

/// Decodes the location of a segment's file, as a process reads it in memory that others write.
pub fn nvm_whereabouts(bytes: &[u8]) {
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let Some((&volume, rest)) = words.split_first_chunk() else { return };
    let Some(&file) = rest.first_chunk() else { return };
    if let Some(found) = Whereabouts::decode(volume, file) {
        assert_eq!((found.encode_volume(), found.encode_file()), (volume, file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_testing::replay;

    fn of(generation: u64) -> Superblock {
        let checkpoint = CheckpointId { generation, identity: 0x1234_5678 };
        let root = Entry::Stored { place: Place::B, checksum: 99 };
        let companions =
            (1..generation.min(3)).map(|name_hash| Companion { name_hash, generation }).collect();
        Superblock { segment: 3, page_bytes: 65536, pages: 100_000, checkpoint, root, companions }
    }

    /// Any other checksum would do: the target makes those that are asked for.
    fn start(sealed: u8, blocks: &[&Block]) -> Vec<u8> {
        let heads = blocks.iter().flat_map(|block| &block[..HEAD_BYTES]);
        std::iter::once(sealed).chain(heads.copied()).collect()
    }

    #[test]
    fn any_beginning_of_a_file_is_an_offer_or_refused() {
        let (a, b) = (of(6), of(7));
        let nothing = [0; BLOCK_BYTES];
        replay(
            "nvm_superblocks",
            nvm_superblocks,
            &[
                ("two-checkpoints", start(7, &[&a.encode(), &b.encode(), &encode_mark(a.checkpoint)])),
                ("as-written", start(0, &[&a.encode(), &b.encode(), &encode_mark(b.checkpoint)])),
                ("given-up", start(0, &[&a.encode(), &b.encode_void(), &nothing])),
                ("new", start(7, &[&of(0).encode()])),
                ("empty", start(0, &[&nothing, &nothing, &nothing])),
            ],
        );
    }

    #[test]
    fn any_block_is_a_part_of_a_map() {
        let entries = [
            Entry::Zeros,
            Entry::Stored { place: Place::A, checksum: 1 },
            Entry::Stored { place: Place::B, checksum: u32::MAX },
            Entry::Lost,
        ];
        let bytes = entries.map(Entry::encode).concat();
        replay("nvm_map_block", nvm_map_block, &[("all-kinds", bytes)]);
    }

    #[test]
    fn any_words_are_whereabouts_or_refused() {
        let found = Whereabouts { process: 77, descriptor: 9, device: 1, inode: 2, places: [4096, 1 << 40] };
        let words = [&found.encode_volume()[..], &found.encode_file()[..]].concat();
        let bytes = words.into_iter().flat_map(u64::to_le_bytes).collect();
        replay("nvm_whereabouts", nvm_whereabouts, &[("a-file", bytes)]);
    }
}
