//! The bytes of a named segment's file: where things are, and how superblocks and page-map blocks are read and
//! written. Pure: no I/O. The picture and the recovery argument are in `nvm/DESIGN.md`.
//!
//! Nothing read from a file is trusted: every function here accepts any bytes and answers with a value or a reason.

use crate::checksum;
use crate::error::Unusable;

/// Bytes of a superblock's place and of a page-map block: the unit of every metadata transfer.
pub const BLOCK_BYTES: usize = 4096;
/// Entries of a page-map block.
pub const BLOCK_ENTRIES: usize = BLOCK_BYTES / ENTRY_BYTES;
/// Version of the format that this program writes. It reads format 2 as well, whose superblocks name no companions. Format 1 had
/// no mark and no identities: its files cannot say whether the other ranks have the same checkpoint, and are refused.
pub const FORMAT: u32 = 3;
/// The oldest format that this program reads.
const FORMAT_MIN: u32 = 2;
/// Most companions of a checkpoint: the rest of the superblock's block has room for them.
pub const COMPANIONS_MAX: usize = (BLOCK_BYTES - SUPERBLOCK_BYTES) / Companion::BYTES;
/// Blocks before the page map: two superblocks and the mark.
const HEADER_BLOCKS: u64 = 3;

const ENTRY_BYTES: usize = 8;
const MAGIC: &[u8; 8] = b"vgas seg";
const MARK_MAGIC: &[u8; 8] = b"vgas com";
/// The part of a superblock's place that is used: one sector, which a disk writes atomically.
const SUPERBLOCK_BYTES: usize = 512;
/// Offset of the superblock's own checksum, in every version of the format.
const SUPERBLOCK_SUM_AT: usize = SUPERBLOCK_BYTES - 4;

/// One of the two places of a page, a map block or the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The first.
    A,
    /// The second.
    B,
}

impl Place {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    pub(crate) fn index(self) -> u64 {
        self as u64
    }
}

/// The page map's entry for one page, or for one block of the level below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Entry {
    /// Never written: a page of zeros, or a block of such entries.
    #[default]
    Zeros,
    /// Stored at a place, with this CRC32C.
    Stored {
        /// The place.
        place: Place,
        /// The checksum of its bytes.
        checksum: u32,
    },
    /// Something was here, but what describes it was damaged.
    Lost,
}

impl Entry {
    /// Four bytes checksum, four bytes state, little-endian.
    pub fn encode(self) -> [u8; ENTRY_BYTES] {
        let (checksum, state) = match self {
            Self::Zeros => (0u32, 0u32),
            Self::Stored { place: Place::A, checksum } => (checksum, 1),
            Self::Stored { place: Place::B, checksum } => (checksum, 2),
            Self::Lost => (0, 3),
        };
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes[4..].copy_from_slice(&state.to_le_bytes());
        bytes
    }

    /// Unknown states are [`Entry::Lost`].
    pub fn decode(bytes: [u8; ENTRY_BYTES]) -> Self {
        let checksum = u32_at(&bytes, 0);
        match u32_at(&bytes, 4) {
            0 => Self::Zeros,
            1 => Self::Stored { place: Place::A, checksum },
            2 => Self::Stored { place: Place::B, checksum },
            _ => Self::Lost,
        }
    }
}

/// The bytes of a map block; missing entries are [`Entry::Zeros`].
pub fn encode_block(entries: impl Iterator<Item = Entry>) -> Box<[u8; BLOCK_BYTES]> {
    let mut block = Box::new([0; BLOCK_BYTES]);
    for (bytes, entry) in block.chunks_exact_mut(ENTRY_BYTES).zip(entries) {
        bytes.copy_from_slice(&entry.encode());
    }
    block
}

/// The entries of a map block.
pub fn decode_block(block: &[u8; BLOCK_BYTES]) -> impl Iterator<Item = Entry> {
    block.as_chunks::<ENTRY_BYTES>().0.iter().map(|bytes| Entry::decode(*bytes))
}

/// Layout of a segment's file.
///
/// ```text
/// superblock A | superblock B | mark | map level 0: block 0 A, block 0 B, block 1 A … | level 1 … | pages A | pages B
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    page_bytes: u64,
    pages: u64,
    /// Per level of the page map: offset of its first block, number of blocks. The last level has one block.
    levels: Vec<(u64, u64)>,
    data_at: u64,
    file_bytes: u64,
}

impl Geometry {
    /// The layout of a segment; `None` when it has no pages or no file could be that large.
    pub fn new(page_bytes: u32, pages: u64) -> Option<Self> {
        let page_bytes = u64::from(page_bytes);
        let mut at = HEADER_BLOCKS * BLOCK_BYTES as u64;
        let mut levels = Vec::new();
        let mut below = (pages > 0 && page_bytes > 0).then_some(pages)?;
        loop {
            let blocks = below.div_ceil(BLOCK_ENTRIES as u64);
            levels.push((at, blocks));
            at = blocks.checked_mul(2 * BLOCK_BYTES as u64)?.checked_add(at)?;
            below = blocks;
            if blocks == 1 {
                break;
            }
        }
        let data_at = at.checked_next_multiple_of(page_bytes)?;
        let file_bytes = page_bytes.checked_mul(pages)?.checked_mul(2)?.checked_add(data_at)?;
        (file_bytes <= i64::MAX as u64).then_some(Self { page_bytes, pages, levels, data_at, file_bytes })
    }

    /// Length of the file. Most of it is a hole.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Number of levels of the page map.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Number of blocks of a level.
    pub fn blocks(&self, level: usize) -> u64 {
        self.levels[level].1
    }

    /// Offset of a page's place.
    pub fn page_at(&self, page: u64, place: Place) -> u64 {
        debug_assert!(page < self.pages);
        self.data_at + (place.index() * self.pages + page) * self.page_bytes
    }

    /// Offset of a map block's place.
    pub fn block_at(&self, level: usize, block: u64, place: Place) -> u64 {
        let (at, blocks) = self.levels[level];
        debug_assert!(block < blocks);
        at + (2 * block + place.index()) * BLOCK_BYTES as u64
    }
}

/// Offset of a superblock's place.
pub fn superblock_at(place: Place) -> u64 {
    place.index() * BLOCK_BYTES as u64
}

/// The place of a generation's superblock: they alternate, so that writing one leaves the one before untouched.
pub fn superblock_place(generation: u64) -> Place {
    if generation.is_multiple_of(2) { Place::A } else { Place::B }
}

/// Offset of the mark.
pub const MARK_AT: u64 = 2 * BLOCK_BYTES as u64;

/// Identity of a checkpoint: a checkpoint of all ranks' segments has the same name in every file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckpointId {
    /// 0 when the segment is created, one more with every checkpoint.
    pub generation: u64,
    /// Drawn again for every attempt to make one, and the same on all ranks: checkpoints of different jobs, or one that was
    /// given up and the one made in its place, share a generation but not this. 0: of one segment alone.
    pub identity: u64,
}

/// Another named segment that took part in a checkpoint, as a file remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Companion {
    /// The hash of its name ([`name_hash`]).
    pub name_hash: u64,
    /// The generation that this checkpoint has in its files.
    pub generation: u64,
}

impl Companion {
    /// Bytes of the encoding.
    pub const BYTES: usize = 16;

    /// The bytes of a list, one behind the other.
    pub fn encode_all(companions: &[Self]) -> Vec<u8> {
        companions
            .iter()
            .flat_map(|one| [one.name_hash.to_le_bytes(), one.generation.to_le_bytes()].concat())
            .collect()
    }

    /// A list from its bytes; `None` if they are no list, or one of more than [`COMPANIONS_MAX`].
    pub fn decode_all(bytes: &[u8]) -> Option<Vec<Self>> {
        let (all, rest) = bytes.as_chunks::<{ Self::BYTES }>();
        let decode = |one: &[u8; Self::BYTES]| Self { name_hash: u64_at(one, 0), generation: u64_at(one, 8) };
        (rest.is_empty() && all.len() <= COMPANIONS_MAX).then(|| all.iter().map(decode).collect())
    }
}

/// The hash of a segment's name (FNV-1a, 64 bits), by which checkpoints name their companions.
pub fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns the newest checkpoint that all files have, each given as the checkpoints that it offers; none if
/// they have none in common.
pub fn newest_common<'a>(files: impl Iterator<Item = &'a [CheckpointId]> + Clone) -> Option<CheckpointId> {
    let first = files.clone().next()?;
    let common = |one: &&CheckpointId| files.clone().all(|file| file.contains(one));
    first.iter().filter(common).max_by_key(|one| one.generation).copied()
}

/// The start of everything: names one checkpoint that is whole in this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Number of the segment.
    pub segment: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Number of pages.
    pub pages: u64,
    /// The checkpoint's identity.
    pub checkpoint: CheckpointId,
    /// The top block of the page map.
    pub root: Entry,
    /// The other named segments that the job had when it made the checkpoint.
    pub companions: Vec<Companion>,
}

/// The checkpoints that the two superblocks and the mark offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The newest checkpoint in the file.
    pub newest: Superblock,
    /// The one before, as long as the newest is not marked as that of all ranks: until then, nothing of it is
    /// overwritten.
    pub before: Option<Superblock>,
    /// The damage of the other superblock, if any.
    pub damage: Option<NoSuperblock>,
    /// The mark cannot be read, so that the one before may have been overwritten after all.
    pub doubtful: bool,
}

impl Offer {
    /// The checkpoints, the newest first.
    pub fn checkpoints(&self) -> impl Iterator<Item = &Superblock> {
        std::iter::once(&self.newest).chain(&self.before)
    }
}

/// Why a superblock's place holds none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuperblock {
    /// There are only zeros.
    #[error("not written")]
    Absent,
    /// It does not start with the magic bytes.
    #[error("damaged at its beginning")]
    Foreign,
    /// The device or the file's end does not let it be read.
    #[error("unreadable")]
    Unreadable,
    /// Its checksum or its content is wrong.
    #[error("damaged")]
    Damaged,
    /// It is intact but of another version.
    #[error("format {0}")]
    Format(u32),
    /// It named a checkpoint that was given up.
    #[error("given up")]
    Void,
}

impl Superblock {
    /// The bytes for its place: one sector of content, its companions behind it.
    ///
    /// # Panics
    /// With more than [`COMPANIONS_MAX`] companions.
    pub fn encode(&self) -> Box<[u8; BLOCK_BYTES]> {
        let mut block = Box::new([0; BLOCK_BYTES]);
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        block[12..16].copy_from_slice(&self.page_bytes.to_le_bytes());
        block[16..24].copy_from_slice(&self.pages.to_le_bytes());
        block[24..32].copy_from_slice(&self.checkpoint.generation.to_le_bytes());
        block[32..40].copy_from_slice(&self.root.encode());
        block[40..44].copy_from_slice(&self.segment.to_le_bytes());
        block[48..56].copy_from_slice(&self.checkpoint.identity.to_le_bytes());
        let companions = Companion::encode_all(&self.companions);
        block[56..60].copy_from_slice(&(self.companions.len() as u32).to_le_bytes());
        block[60..64].copy_from_slice(&checksum::of_bytes(&companions).to_le_bytes());
        block[SUPERBLOCK_BYTES..][..companions.len()].copy_from_slice(&companions);
        seal(&mut block);
        block
    }

    /// The same, for a checkpoint that was given up: [`NoSuperblock::Void`] when read.
    pub fn encode_void(&self) -> Box<[u8; BLOCK_BYTES]> {
        let mut block = self.encode();
        block[44..48].copy_from_slice(&1u32.to_le_bytes());
        seal(&mut block);
        block
    }

    /// Reads one place.
    pub fn decode(block: &[u8; BLOCK_BYTES], place: Place) -> Result<Self, NoSuperblock> {
        if &block[..8] != MAGIC {
            let empty = block.iter().all(|&byte| byte == 0);
            return Err(if empty { NoSuperblock::Absent } else { NoSuperblock::Foreign });
        }
        if !is_sealed(block) {
            return Err(NoSuperblock::Damaged);
        }
        let format = u32_at(block, 8);
        if !(FORMAT_MIN..=FORMAT).contains(&format) {
            return Err(NoSuperblock::Format(format));
        }
        if u32_at(block, 44) != 0 {
            return Err(NoSuperblock::Void);
        }
        let companions = match format {
            FORMAT_MIN => Vec::new(),
            // A write that was torn between sectors has none that match.
            _ => Self::decode_companions(block).ok_or(NoSuperblock::Damaged)?,
        };
        let mut root = [0; ENTRY_BYTES];
        root.copy_from_slice(&block[32..40]);
        let superblock = Self {
            page_bytes: u32_at(block, 12),
            pages: u64_at(block, 16),
            checkpoint: CheckpointId { generation: u64_at(block, 24), identity: u64_at(block, 48) },
            root: Entry::decode(root),
            segment: u32_at(block, 40),
            companions,
        };
        // A superblock in the other one's place was not written by this program.
        let generation = superblock.checkpoint.generation;
        let at_home = superblock_place(generation) == place && generation < u64::MAX;
        at_home.then_some(superblock).ok_or(NoSuperblock::Damaged)
    }

    fn decode_companions(block: &[u8; BLOCK_BYTES]) -> Option<Vec<Companion>> {
        let bytes = (u32_at(block, 56) as usize).checked_mul(Companion::BYTES)?;
        let bytes = block[SUPERBLOCK_BYTES..].get(..bytes)?;
        if checksum::of_bytes(bytes) != u32_at(block, 60) {
            return None;
        }
        Companion::decode_all(bytes)
    }

    /// Reads the checkpoints that both places and the mark offer.
    pub fn offer(
        a: Result<Self, NoSuperblock>,
        b: Result<Self, NoSuperblock>,
        mark: Result<CheckpointId, NoSuperblock>,
    ) -> Result<Offer, Unusable> {
        let alone = |newest, damage| Ok(Offer { newest, before: None, damage, doubtful: false });
        match (a, b) {
            (Ok(a), Ok(b)) => {
                let a_is_newer = a.checkpoint.generation > b.checkpoint.generation;
                let (newest, before) = if a_is_newer { (a, b) } else { (b, a) };
                let follows = newest.checkpoint.generation - before.checkpoint.generation == 1;
                let overwritten = mark == Ok(newest.checkpoint) || !follows;
                let doubtful = matches!(mark, Err(NoSuperblock::Damaged | NoSuperblock::Unreadable));
                Ok(Offer { newest, before: (!overwritten).then_some(before), damage: None, doubtful })
            }
            // Only generation 0 has had no predecessor in the other place.
            (Ok(one), Err(NoSuperblock::Absent)) if one.checkpoint.generation == 0 => alone(one, None),
            (Ok(one), Err(NoSuperblock::Void)) | (Err(NoSuperblock::Void), Ok(one)) => alone(one, None),
            (Ok(one), Err(other)) | (Err(other), Ok(one)) => alone(one, Some(other)),
            (
                Err(NoSuperblock::Absent | NoSuperblock::Foreign),
                Err(NoSuperblock::Absent | NoSuperblock::Foreign),
            ) => Err(Unusable::NotASegment),
            (Err(NoSuperblock::Format(found)), _) | (_, Err(NoSuperblock::Format(found))) => {
                Err(Unusable::Format { found, expected: FORMAT })
            }
            (Err(a), Err(b)) => Err(Unusable::Superblocks(format!("first: {a}, second: {b}"))),
        }
    }
}

/// The bytes of the mark: every rank's file has this checkpoint, so that the one before is not needed any more.
pub fn encode_mark(checkpoint: CheckpointId) -> Box<[u8; BLOCK_BYTES]> {
    let mut block = Box::new([0; BLOCK_BYTES]);
    block[..8].copy_from_slice(MARK_MAGIC);
    block[8..16].copy_from_slice(&checkpoint.generation.to_le_bytes());
    block[16..24].copy_from_slice(&checkpoint.identity.to_le_bytes());
    seal(&mut block);
    block
}

/// Reads the mark.
pub fn decode_mark(block: &[u8; BLOCK_BYTES]) -> Result<CheckpointId, NoSuperblock> {
    if block.iter().all(|&byte| byte == 0) {
        return Err(NoSuperblock::Absent);
    }
    if &block[..8] != MARK_MAGIC || !is_sealed(block) {
        return Err(NoSuperblock::Damaged);
    }
    Ok(CheckpointId { generation: u64_at(block, 8), identity: u64_at(block, 16) })
}

/// Writes the checksum of a block's sector at its end.
fn seal(block: &mut [u8; BLOCK_BYTES]) {
    let sum = checksum::of_bytes(&block[..SUPERBLOCK_SUM_AT]);
    block[SUPERBLOCK_SUM_AT..SUPERBLOCK_BYTES].copy_from_slice(&sum.to_le_bytes());
}

fn is_sealed(block: &[u8; BLOCK_BYTES]) -> bool {
    u32_at(block, SUPERBLOCK_SUM_AT) == checksum::of_bytes(&block[..SUPERBLOCK_SUM_AT])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(companions: usize) -> Superblock {
        let companion =
            |at: usize| Companion { name_hash: name_hash(&at.to_string()), generation: at as u64 };
        Superblock {
            segment: 3,
            page_bytes: 4096,
            pages: 7,
            checkpoint: CheckpointId { generation: 4, identity: 9 },
            root: Entry::Zeros,
            companions: (0..companions).map(companion).collect(),
        }
    }

    /// Goal: a checkpoint names as many companions as there is room for, and a write that only partly reached
    /// the disk is none.
    #[test]
    fn companions_are_whole_or_the_superblock_is_none() {
        for count in [0, 1, 40, COMPANIONS_MAX] {
            let whole = superblock(count);
            let mut block = whole.encode();
            assert_eq!(Superblock::decode(&block, Place::A).as_ref(), Ok(&whole));
            if count > 0 {
                block[SUPERBLOCK_BYTES..].fill(0);
                assert_eq!(Superblock::decode(&block, Place::A), Err(NoSuperblock::Damaged), "{count}");
            }
        }
        assert_eq!(name_hash("left"), name_hash("left"));
        assert_ne!(name_hash("left"), name_hash("right"));
    }

    /// Goal: files of the format before are read: their checkpoints name no companions.
    #[test]
    fn the_format_before_is_read() {
        let mut block = superblock(0).encode();
        block[8..12].copy_from_slice(&FORMAT_MIN.to_le_bytes());
        seal(&mut block);
        assert_eq!(Superblock::decode(&block, Place::A), Ok(superblock(0)));
        for other in [FORMAT_MIN - 1, FORMAT + 1] {
            block[8..12].copy_from_slice(&other.to_le_bytes());
            seal(&mut block);
            assert_eq!(Superblock::decode(&block, Place::A), Err(NoSuperblock::Format(other)));
        }
    }
}
