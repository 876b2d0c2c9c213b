//! A named heap at rest, in its files: its size, its content by size, and its named objects. Only the
//! beginnings of partitions are read, their records, and the objects that hold names: no value is walked, and
//! nothing is changed. Any bytes in the files are answered with numbers or an error.

use super::head::Head;
use super::roots::{RootAt, root_at};
use crate::slab::{Census, Geometry};
use crate::word::Word;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vgas::{AtRest, RestError, segment_of_file};

/// Names that are read of a partition at most.
const NAMES_MAX: usize = 10_000;

/// Why a heap at rest cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// Nothing has this name, or the folder cannot be read.
    #[error("{place} holds no heap of objects{}", why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Nothing {
        /// The place.
        place: String,
        /// The system's reason, if there is one.
        why: Option<std::io::Error>,
    },
    /// One of its files cannot be read.
    #[error("{}: {why}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        why: RestError,
    },
    /// One of its files is no partition of a heap.
    #[error("{}: {why}", file.display())]
    Heap {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
}

/// A name under which an object is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RootAtRest {
    /// The name.
    pub name: String,
    /// Its layout, as far as kept: a line for each type that it is made of or leads to, sorted by name; the
    /// last may be cut.
    pub layout: Vec<String>,
    /// The rank that has it.
    pub rank: u32,
    /// Its offset in that rank's partition.
    pub offset: u64,
}

/// Objects of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SizeAtRest {
    /// Bytes of each slot; of large objects, of each.
    pub bytes: u64,
    /// Slabs of such slots, or such objects.
    pub count: u64,
    /// Bytes that they take together.
    pub total_bytes: u64,
    /// They have slabs of their own.
    pub is_large: bool,
}

/// A rank's partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartitionAtRest {
    /// Its file.
    pub file: PathBuf,
    /// The partition's rank.
    pub rank: u32,
    /// The checkpoint in the file.
    pub checkpoint: u64,
    /// Bytes of the partition.
    pub bytes: u64,
    /// Bytes of it that were ever used.
    pub used_bytes: u64,
    /// Bytes that the file takes on its device.
    pub stored_bytes: u64,
    /// Its address in the address space of its jobs.
    pub address: u64,
    /// Number of jobs that have had it.
    pub jobs: u32,
    /// Objects in it.
    pub objects: u64,
    /// Bytes of slabs that are free again, or hold what were copies.
    pub free_bytes: u64,
    /// Large slots whose colours are used up.
    pub retired: u64,
    /// Bytes of objects, by size.
    pub sizes: Vec<SizeAtRest>,
    /// The named objects.
    pub roots: Vec<RootAtRest>,
}

/// A heap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeapAtRest {
    /// Its name.
    pub name: String,
    /// The partitions of the ranks whose files are here.
    pub partitions: Vec<PartitionAtRest>,
}

/// All heaps whose files lie in a folder, or the one of this name. Files of other segments are passed over if no name is given.
///
/// # Errors
/// If there is none, or a file of one cannot be read, or is damaged.
pub fn heaps_at_rest(folder: &Path, name: Option<&str>) -> Result<Vec<HeapAtRest>, LookError> {
    let place = || match name {
        Some(name) => format!("{name:?} in {}", folder.display()),
        None => folder.display().to_string(),
    };
    let nothing = |why| LookError::Nothing { place: place(), why };
    let mut heaps: BTreeMap<String, BTreeMap<u32, PathBuf>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(|why| nothing(Some(why)))? {
        let path = entry.map_err(|why| nothing(Some(why)))?.path();
        let Some((of, rank)) = path.file_name().and_then(|file| segment_of_file(file.to_str()?)) else {
            continue;
        };
        if name.is_none_or(|name| name == of) {
            heaps.entry(of.to_owned()).or_default().insert(rank, path.clone());
        }
    }
    let mut all = Vec::new();
    for (of, files) in heaps {
        let looked: Result<Vec<_>, _> = files.into_iter().map(|(rank, file)| look(rank, &file)).collect();
        match looked {
            Ok(partitions) => all.push(HeapAtRest { name: of, partitions }),
            // Another segment with a name.
            Err(LookError::Heap { .. }) if name.is_none() => {}
            Err(error) => return Err(error),
        }
    }
    if all.is_empty() { Err(nothing(None)) } else { Ok(all) }
}

/// A partition's description of itself.
struct StoredHeader {
    head: Head,
    /// Address and size of the partition.
    address: u64,
    bytes: u64,
    census: Census,
    roots: Vec<RootAtRest>,
}

/// Why it says nothing.
#[derive(Debug)]
enum HeaderError<E> {
    /// It cannot be read.
    Unread(E),
    /// It is none.
    Other(String),
}

impl<E> From<E> for HeaderError<E> {
    fn from(why: E) -> Self {
        Self::Unread(why)
    }
}

/// Reads the description in a partition with pages of this size, through a function that reads bytes at
/// offsets.
fn said<E>(
    rank: u32,
    of_pages: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<StoredHeader, HeaderError<E>> {
    let mut beginning = [0; crate::slab::HEAD_BYTES as usize];
    read(0, &mut beginning)?;
    let word = |at: u64| {
        beginning.as_chunks::<8>().0.get(at as usize / 8).map_or(0, |word| u64::from_le_bytes(*word))
    };
    let head = Head::read(word).map_err(|why| HeaderError::Other(why.to_string()))?;
    let is_odd = || HeaderError::Other("it says of itself what no heap does".into());
    let bytes = head.bytes_of(of_pages).ok_or_else(is_odd)?;
    let address = u64::from(rank).checked_mul(head.stride).and_then(|at| at.checked_add(head.base));
    let address = address.filter(|address| address.checked_add(bytes).is_some_and(|end| end >> 48 == 0));
    let address = address.filter(|_| head.stride >= bytes).ok_or_else(is_odd)?;
    let mut failed = None;
    let census = Census::of(Geometry::new(address, bytes), head.used, |at| {
        let mut word = [0; 4];
        if let Err(why) = read(at, &mut word) {
            failed.get_or_insert(why);
        }
        u32::from_le_bytes(word)
    });
    failed.map_or(Ok(()), Err)?;
    let roots = roots(read, address, bytes, &head)?;
    Ok(StoredHeader { head, address, bytes, census, roots })
}

fn look(rank: u32, file: &Path) -> Result<PartitionAtRest, LookError> {
    let cannot = |why| LookError::File { file: file.into(), why };
    let mut segment = AtRest::open(file).map_err(cannot)?;
    let of_pages = segment.bytes();
    let said = said(rank, of_pages, |at, to| segment.read(at, to)).map_err(|why| match why {
        HeaderError::Unread(why) => cannot(why),
        HeaderError::Other(why) => LookError::Heap { file: file.into(), why },
    })?;
    let StoredHeader { head, address, bytes, census, roots } = said;
    let sizes = census.sizes.iter().map(|(&(is_large, bytes), &(count, total_bytes))| SizeAtRest {
        bytes,
        count,
        total_bytes,
        is_large,
    });
    Ok(PartitionAtRest {
        file: file.into(),
        rank,
        checkpoint: segment.checkpoint().generation,
        bytes,
        used_bytes: census.used_bytes,
        stored_bytes: segment.stored_bytes().map_err(|why| cannot(why.into()))?,
        address,
        jobs: head.jobs.saturating_add(1),
        objects: head.live,
        free_bytes: census.free_bytes,
        retired: census.retired,
        sizes: sizes.collect(),
        roots,
    })
}

/// The names of a partition.
fn roots<E>(
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    address: u64,
    bytes: u64,
    head: &Head,
) -> Result<Vec<RootAtRest>, HeaderError<E>> {
    let nowhere = || HeaderError::Other("its list of names leads nowhere".into());
    let mut roots = Vec::new();
    let mut next = head.roots;
    while let Some(word) = next {
        let offset = word.address().checked_sub(address).filter(|offset| *offset < bytes);
        let offset = offset.ok_or_else(nowhere)?;
        // An offset in a partition, and in a name: far from what a number has room for.
        let RootAt { name, layout, word, after } = root_at(|at, to| read(offset + at, to))?;
        let place = Word::from_bits(word).and_then(|word| word.address().checked_sub(head.base));
        let place = place.filter(|_| head.stride > 0);
        roots.push(RootAtRest {
            name,
            layout: layout.lines().map(str::to_owned).collect(),
            rank: place.map_or(u32::MAX, |place| (place / head.stride) as u32),
            offset: place.map_or(u64::MAX, |place| place % head.stride),
        });
        next = Word::from_bits(after);
        if roots.len() > NAMES_MAX {
            return Err(nowhere());
        }
    }
    Ok(roots)
}

/// Any bytes as a partition's, with zeros behind them: four of them select its rank, and its number of pages
/// of 64 KiB.
#[cfg(any(test, fuzzing))]
pub(crate) fn any_partition(bytes: &[u8]) {
    let &[rank, low, high, _, ref rest @ ..] = bytes else { return };
    let pages = u16::from_le_bytes([low, high]) % 1024;
    let of_pages = u64::from(pages) << 16;
    let read = |at: u64, to: &mut [u8]| {
        let end = at.checked_add(to.len() as u64).filter(|end| *end <= of_pages).ok_or("behind its end")?;
        let found = rest.get(at as usize..rest.len().min(end as usize)).unwrap_or_default();
        to.fill(0);
        to[..found.len()].copy_from_slice(found);
        Ok(())
    };
    if let Ok(StoredHeader { head, address, bytes, census, roots }) =
        said::<&str>(rank.into(), of_pages, read)
    {
        assert!(bytes <= of_pages && roots.len() <= NAMES_MAX);
        assert!(bytes <= head.stride && address + bytes < 1 << 48, "no partition: {head:?}");
        let taken: u64 = census.sizes.values().map(|(_, bytes)| bytes).sum();
        assert!(taken + census.free_bytes == census.used_bytes && census.used_bytes <= bytes, "{census:?}");
    }
}

/// The beginning of one with a name or without, a slab of small objects and a large object, for [`any_partition`].
#[cfg(test)]
pub(super) fn some_partition(has_name: bool) -> Vec<u8> {
    const NAME: u64 = 1024;
    let (bytes, base) = (16u64 << 16, 1u64 << 40);
    let mut partition = vec![0; 2 * NAME as usize];
    let mut put = |at: u64, bytes: &[u8]| partition[at as usize..][..bytes.len()].copy_from_slice(bytes);
    let stride = 1 << 30;
    let roots = Word::new(base + stride + NAME, crate::Colour(3)).filter(|_| has_name);
    let slack = Head::slack_of(bytes);
    let head = Head { base, stride, jobs: 2, last_colour: 9, roots, live: 5, used: 4, slack };
    head.words().into_iter().for_each(|(at, word)| put(at, &word.to_le_bytes()));
    let mut record = crate::slab::HEAD_BYTES;
    for words in [[3, 0, 0, 0], [0x00ff_fffe, 0, 0x8000, 2]] {
        put(record, &words.map(u32::to_le_bytes).concat());
        record += 16;
    }
    [vec![1, 16, 0, 0], partition].concat()
}
