//! Read-only view of a named segment's file as of its last checkpoint: locks, creates and changes nothing,
//! and trusts nothing that it reads.

use crate::checksum;
use crate::error::{Untrusted, Unusable};
use crate::format::{
    self, BLOCK_BYTES, BLOCK_ENTRIES, CheckpointId, Companion, Entry, Geometry, MARK_AT, NoSuperblock, Place,
    Superblock, superblock_at,
};
use crate::volume::{PAGE_BYTES_MAX, PAGE_BYTES_MIN};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Reason why a file cannot be inspected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestError {
    /// The system refuses.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The stored bytes are not those written.
    #[error("page {page} is damaged, or being written; restore the file from a copy if no job uses it")]
    Damaged {
        /// The page.
        page: u64,
    },
    /// Outside of it.
    #[error("{bytes} bytes at {offset} are not in it")]
    Outside {
        /// The first byte.
        offset: u64,
        /// Number of bytes.
        bytes: usize,
    },
}

/// A segment at rest.
#[derive(Debug)]
pub struct AtRest {
    file: File,
    superblock: Superblock,
    geometry: Geometry,
    /// The page that was read last.
    page: Option<(u64, Box<[u8]>)>,
}

fn block(file: &File, offset: u64) -> Result<Box<[u8; BLOCK_BYTES]>, NoSuperblock> {
    let mut block = Box::new([0; BLOCK_BYTES]);
    file.read_exact_at(&mut block[..], offset).map(|()| block).map_err(|_| NoSuperblock::Unreadable)
}

impl AtRest {
    /// Opens it at its newest checkpoint. Blocks briefly, as everything here.
    ///
    /// # Errors
    /// If there is no such file, or it is none of a segment.
    pub fn open(path: &Path) -> Result<Self, RestError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
            rustix::io::Errno::LOOP => io::Error::other(Untrusted::IsLink),
            errno => errno.into(),
        });
        let file = File::from(opened?);
        let superblock =
            |place| block(&file, superblock_at(place)).and_then(|block| Superblock::decode(&block, place));
        let mark = block(&file, MARK_AT).and_then(|block| format::decode_mark(&block));
        let superblock = Superblock::offer(superblock(Place::A), superblock(Place::B), mark)?.newest;
        let sizes = PAGE_BYTES_MIN..=PAGE_BYTES_MAX;
        let is_size = sizes.contains(&superblock.page_bytes) && superblock.page_bytes.is_power_of_two();
        let geometry = Geometry::new(superblock.page_bytes, superblock.pages).filter(|_| is_size);
        let geometry = geometry.ok_or(Unusable::NotASegment)?;
        let (found, expected) = (file.metadata()?.len(), geometry.file_bytes());
        if found < expected {
            return Err(Unusable::Truncated { found, expected }.into());
        }
        Ok(Self { file, superblock, geometry, page: None })
    }

    /// Bytes of the segment, in whole pages.
    pub fn bytes(&self) -> u64 {
        self.superblock.pages * u64::from(self.superblock.page_bytes)
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.superblock.page_bytes
    }

    /// Returns the checkpoint's identity.
    pub fn checkpoint(&self) -> CheckpointId {
        self.superblock.checkpoint
    }

    /// Returns true if a job has the file open, or a tool copies or removes it. Tries the lock, so a process
    /// that opens the file at the same moment waits briefly.
    pub fn is_in_use(&self) -> bool {
        use rustix::fs::{FlockOperation, flock};
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => flock(&self.file, FlockOperation::Unlock).is_err(),
            Err(errno) => errno == rustix::io::Errno::WOULDBLOCK,
        }
    }

    /// The segment's number, which is its rank's.
    pub fn number(&self) -> u32 {
        self.superblock.segment
    }

    /// The other named segments that took part in the checkpoint.
    pub fn companions(&self) -> &[Companion] {
        &self.superblock.companions
    }

    /// Bytes that the file takes on its device.
    ///
    /// # Errors
    /// The system's.
    pub fn stored_bytes(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.file.metadata()?.blocks() * 512)
    }

    /// Reads some bytes. Those of pages that were never written are zeros.
    ///
    /// # Errors
    /// If they are outside, or damaged.
    pub fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), RestError> {
        let bytes = to.len();
        if offset.checked_add(bytes as u64).is_none_or(|end| end > self.bytes()) {
            return Err(RestError::Outside { offset, bytes });
        }
        let page_bytes = u64::from(self.superblock.page_bytes);
        let mut done = 0;
        while done < bytes {
            let at = offset + done as u64;
            let (page, inside) = (at / page_bytes, (at % page_bytes) as usize);
            let here = (page_bytes as usize - inside).min(bytes - done);
            let found = self.load(page)?;
            to[done..done + here].copy_from_slice(&found[inside..inside + here]);
            done += here;
        }
        Ok(())
    }

    fn load(&mut self, page: u64) -> Result<&[u8], RestError> {
        if self.page.as_ref().is_none_or(|(known, _)| *known != page) {
            let mut bytes = vec![0; self.superblock.page_bytes as usize].into_boxed_slice();
            match self.entry(page)? {
                Entry::Zeros => {}
                Entry::Stored { place, checksum } => {
                    self.file.read_exact_at(&mut bytes, self.geometry.page_at(page, place))?;
                    if checksum::of_bytes(&bytes) != checksum {
                        return Err(RestError::Damaged { page });
                    }
                }
                Entry::Lost => return Err(RestError::Damaged { page }),
            }
            self.page = Some((page, bytes));
        }
        self.page.as_ref().map(|(_, bytes)| &bytes[..]).ok_or(RestError::Damaged { page })
    }

    /// Returns the page map's entry of a page: reads a block of each level, from the top.
    fn entry(&self, page: u64) -> Result<Entry, RestError> {
        let mut entry = self.superblock.root;
        for level in (0..self.geometry.levels()).rev() {
            let entries = (BLOCK_ENTRIES as u64).pow(level as u32);
            let (place, checksum) = match entry {
                Entry::Stored { place, checksum } => (place, checksum),
                other => return Ok(other),
            };
            let number = page / entries / BLOCK_ENTRIES as u64;
            let block = block(&self.file, self.geometry.block_at(level, number, place))
                .map_err(|_| RestError::Damaged { page })?;
            if checksum::of_bytes(&block[..]) != checksum {
                return Err(RestError::Damaged { page });
            }
            let at = (page / entries) as usize % BLOCK_ENTRIES;
            entry = format::decode_block(&block).nth(at).unwrap_or(Entry::Lost);
        }
        Ok(entry)
    }
}
