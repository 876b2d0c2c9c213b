//! Files to hold tiered segments against: written once, without a name, read directly or through a mapping.
//!
//! # Rule for the unsafe code in this file
//!
//! A mapped file is never written or shortened while it is mapped: no other process can find it.

use super::job::{Result, noise};
use crate::gemm::output::scratch;
use rustix::fs::{Advice, fadvise};
use rustix::mm::{self, MapFlags, ProtFlags};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Refuses to fill a disk: so many bytes must be free in a folder.
pub(super) fn check_space(folder: &Path, bytes: u64) -> Result<()> {
    let disk = rustix::fs::statvfs(folder)
        .map_err(|error| format!("cannot look at the folder {}: {error}", folder.display()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if bytes > free {
        let (needed, free, folder) = (bytes >> 20, free >> 20, folder.display());
        return Err(format!("needs {needed} MiB in {folder}, which has {free} MiB: measure less").into());
    }
    Ok(())
}

/// A file of noise in a folder. It has no name, so that it vanishes with the process however that ends.
pub(super) struct NoiseFile {
    file: File,
    bytes: u64,
}

impl NoiseFile {
    /// Writes it, to the device.
    pub fn create(folder: &Path, bytes: u64) -> Result<Self> {
        let failed = |error| format!("cannot write {bytes} bytes in {}: {error}", folder.display());
        check_space(folder, bytes)?;
        let mut file = scratch(folder)?;
        let chunk = noise(CHUNK_BYTES, bytes);
        for done in (0..bytes).step_by(CHUNK_BYTES) {
            file.write_all(&chunk[..CHUNK_BYTES.min((bytes - done) as usize)]).map_err(failed)?;
        }
        file.sync_all().map_err(failed)?;
        let file = Self { file, bytes };
        file.forget()?;
        Ok(file)
    }

    /// A path by which this process, and only while it holds the file, can open it again.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Drops its pages from the kernel's cache.
    pub fn forget(&self) -> Result<()> {
        Ok(fadvise(&self.file, 0, std::num::NonZeroU64::new(self.bytes), Advice::DontNeed)?)
    }

    /// Maps it afresh, not cached.
    pub fn map(&self, advice: mm::Advice) -> Result<MappedFile<'_>> {
        self.forget()?;
        let bytes = self.bytes as usize;
        // SAFETY: a new place; this file's rule.
        let base = unsafe {
            mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, &self.file, 0)?
        };
        // SAFETY: the range was just mapped.
        unsafe { mm::madvise(base, bytes, advice)? };
        Ok(MappedFile { file: self, base: base.cast() })
    }
}

/// A mapping of a whole file.
pub(super) struct MappedFile<'f> {
    file: &'f NoiseFile,
    base: *const u8,
}

impl MappedFile<'_> {
    /// Copies the blocks at these offsets out; the time for all.
    pub fn read(&self, offsets: &[u64], buffer: &mut [u8]) -> Duration {
        let start = Instant::now();
        for &offset in offsets {
            assert!(offset + buffer.len() as u64 <= self.file.bytes, "a read past the end of the file");
            // SAFETY: inside the mapping, as just checked; this file's rule.
            unsafe {
                self.base.add(offset as usize).copy_to_nonoverlapping(buffer.as_mut_ptr(), buffer.len());
            }
            // An unused copy would be optimised away.
            std::hint::black_box(&mut *buffer);
        }
        start.elapsed()
    }
}

impl Drop for MappedFile<'_> {
    fn drop(&mut self) {
        // SAFETY: mapped in `NoiseFile::map`, and no reference into it was given out.
        let _ = unsafe { mm::munmap(self.base.cast_mut().cast(), self.file.bytes as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::raw::RawReader;

    #[test]
    fn both_ways_read_what_was_written_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = NoiseFile::create(folder.path(), 2 << 20).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut block = vec![0; 4096];
        file.map(mm::Advice::Random).unwrap().read(&[4096, (1 << 20) + 4096], &mut block);
        assert_eq!(block, noise(CHUNK_BYTES, 2 << 20)[4096..8192]);
        let too_much = NoiseFile::create(folder.path(), 1 << 60).err().unwrap().to_string();
        assert!(too_much.starts_with("needs 1099511627776 MiB in "), "{too_much}");
        // A file system without O_DIRECT says so.
        match RawReader::open(&file.path(), 4096, 4) {
            Ok(mut reader) => assert!(reader.read(&[0, 8192, 4096]).is_ok()),
            Err(error) => {
                assert!(error.to_string().contains("O_DIRECT") || error.to_string().contains("io_uring"))
            }
        }
    }
}
