//! The first words of a partition, for a later job. The first of all is the list of slots freed by others.

use super::Heap;
use super::error::ObjectError;
use crate::slab::HEAD_BYTES;
use crate::word::Word;
use std::sync::atomic::Ordering;

/// The first word of a heap. Its last byte is the number of the format: 3 since layouts describe variants, tuples and options.
const KIND: u64 = u64::from_le_bytes(*b"objects3");
/// Common prefix of all formats.
const ANY_KIND: [u8; 7] = *b"objects";

/// Offsets of the fields.
mod at {
    pub const KIND: u64 = 8;
    pub const BASE: u64 = 16;
    pub const STRIDE: u64 = 24;
    /// Number of jobs that have had it before, and its last colour.
    pub const JOBS: u64 = 32;
    pub const ROOTS: u64 = 40;
    pub const LIVE: u64 = 48;
    /// Bytes by which the partition is smaller than the next multiple of [`super::SLACK_OF`].
    pub const USED: u64 = 56;
}

/// As large as a page can be: with the slack, the size of a partition follows from that of its pages.
const SLACK_OF: u64 = 4 << 20;

const _: () = assert!(at::USED + 8 <= HEAD_BYTES);

/// A partition's header, as stored by a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The address of the first rank's partition, and from one to the next: pointers in it mean these.
    pub base: u64,
    pub stride: u64,
    /// Number of earlier jobs.
    pub jobs: u32,
    pub last_colour: u16,
    /// The first of the objects that are found by name.
    pub roots: Option<Word>,
    /// Values in it.
    pub live: u64,
    /// Slabs that were ever used.
    pub used: u32,
    /// Bytes that it is short of a multiple of the largest page.
    pub slack: u32,
}

impl Head {
    /// Reads it through `word`, which gets offsets.
    ///
    /// # Errors
    /// If the segment is something else.
    pub fn read(word: impl Fn(u64) -> u64) -> Result<Self, ObjectError> {
        let kind = word(at::KIND);
        if kind != KIND {
            let is_other = kind.to_le_bytes().starts_with(&ANY_KIND);
            return Err(ObjectError::Usage(match is_other {
                true => "the heap of this name was made by another version of this library, which divides it or describes its types otherwise".into(),
                false => "the segment of this name is not a heap of objects".into(),
            }));
        }
        let jobs = word(at::JOBS);
        Ok(Self {
            base: word(at::BASE),
            stride: word(at::STRIDE),
            jobs: (jobs >> 32) as u32,
            last_colour: jobs as u16,
            roots: Word::from_bits(word(at::ROOTS)),
            live: word(at::LIVE),
            used: word(at::USED) as u32,
            slack: (word(at::USED) >> 32) as u32,
        })
    }

    /// Returns the bytes that a partition is short of a multiple of the largest page.
    pub fn slack_of(bytes: u64) -> u32 {
        (bytes.next_multiple_of(SLACK_OF) - bytes) as u32
    }

    /// Returns the size of the partition, from that of its pages; none if it is impossible.
    pub fn bytes_of(&self, of_pages: u64) -> Option<u64> {
        let slack = u64::from(self.slack);
        let bytes = (of_pages.checked_add(slack)? / SLACK_OF * SLACK_OF).checked_sub(slack)?;
        (bytes > 0 && of_pages - bytes < SLACK_OF).then_some(bytes)
    }

    /// Offsets of its words, and the words.
    pub fn words(&self) -> [(u64, u64); 7] {
        [
            (at::KIND, KIND),
            (at::BASE, self.base),
            (at::STRIDE, self.stride),
            (at::JOBS, u64::from(self.jobs) << 32 | u64::from(self.last_colour)),
            (at::ROOTS, self.roots.map_or(0, Word::bits)),
            (at::LIVE, self.live),
            (at::USED, u64::from(self.slack) << 32 | u64::from(self.used)),
        ]
    }

    /// Writes it into the partition.
    pub fn write(&self, heap: &Heap) {
        self.words().into_iter().for_each(|(at, word)| heap.list_word(at).store(word, Ordering::Relaxed));
    }
}

/// Returns the tag of a rank's extensions: it differs by rank, and tags of earlier jobs mean nothing.
///
/// # Errors
/// If the heap has had so many jobs that the numbers are used up.
pub(super) fn tag_of(rank: u32, ranks: u32, jobs: u32) -> Result<u64, ObjectError> {
    let first = u64::from(jobs) * u64::from(ranks);
    if first + u64::from(ranks) >= u64::from(u16::MAX) {
        return Err(ObjectError::Usage(format!(
            "{jobs} jobs of {ranks} ranks have had this heap, and it has numbers for no more: copy its objects into a new one"
        )));
    }
    Ok(first + u64::from(rank) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a heap of another format is refused by one line, and so are bytes that are no heap.
    #[test]
    fn other_formats_are_refused() {
        for (kind, words) in [(*b"objects2", "another version of this library"), (*b"a letter", "not a heap")]
        {
            let why = Head::read(|at| if at == at::KIND { u64::from_le_bytes(kind) } else { 0 }).unwrap_err();
            let why = why.to_string();
            assert!(why.contains(words) && !why.contains('\n'), "{why}");
        }
        assert!(Head::read(|at| if at == at::KIND { KIND } else { 0 }).is_ok());
    }

    /// Goal: the size of a partition is known from that of its pages, for every page size.
    #[test]
    fn the_size_follows_from_the_pages() {
        for bytes in [1, 4096, 1 << 20, (4 << 20) - 8, 4 << 20, (4 << 20) + 64, (7 << 30) + 12_344] {
            let slack = Head::slack_of(bytes);
            let head =
                Head { base: 0, stride: 0, jobs: 0, last_colour: 0, roots: None, live: 0, used: 0, slack };
            for page in (12..=22).map(|bits| 1u64 << bits) {
                assert_eq!(head.bytes_of(bytes.next_multiple_of(page)), Some(bytes), "{page}");
            }
            assert_eq!(head.bytes_of(0).filter(|_| slack == 0), None, "a partition has bytes");
        }
    }
}
