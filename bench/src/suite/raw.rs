//! The least that reads and writes a file with io_uring and O_DIRECT: the device's own rate.
//!
//! # Rule for the unsafe code in this file
//!
//! The buffers belong to the reader, stay where they are, and are given back only when nothing is in flight: after a
//! complete [`RawReader::read`] or [`RawReader::write`]. An error leaves some in flight; then the buffers are leaked.

use super::job::Result;
use crate::registry::CannotRun;
use io_uring::{IoUring, opcode, squeue, types::Fd, types::Fixed};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Alignment that O_DIRECT may require of addresses and lengths.
const ALIGNMENT: usize = 4096;

/// Interface to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingMode {
    /// As it comes.
    Plainly,
    /// With the file and the memory registered, which spares looking them up each time.
    Registered,
    /// As that, and with a thread of the kernel that takes what is asked for, so that no system call is needed.
    Polled,
}

/// Reads and writes blocks of one size with a fixed number in flight.
pub(super) struct RawReader {
    ring: IoUring,
    /// Held open for the ring.
    file: File,
    asked: RingMode,
    memory: ManuallyDrop<Vec<u8>>,
    in_flight: usize,
    /// Offset of the first buffer in `memory`.
    first: usize,
    block_bytes: usize,
    depth: usize,
}

impl RawReader {
    /// Opens a file, whose memory and itself are registered; names the reason where direct I/O or io_uring is refused.
    pub fn open(path: &Path, block_bytes: usize, depth: usize) -> Result<Self> {
        Self::asked(RingMode::Registered, path, block_bytes, depth)
    }

    /// As [`RawReader::open`], otherwise.
    pub fn asked(asked: RingMode, path: &Path, block_bytes: usize, depth: usize) -> Result<Self> {
        let file = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).map_err(
            |error| CannotRun(format!("{} cannot be read with O_DIRECT: {error}", path.display())),
        )?;
        let mut builder = IoUring::builder();
        if asked == RingMode::Polled {
            builder.setup_sqpoll(50);
        }
        let ring = builder
            .build(depth.next_power_of_two() as u32)
            .map_err(|error| CannotRun(format!("no io_uring: {error}")))?;
        // Written once, so that no page fault is measured.
        let memory = ManuallyDrop::new(vec![1u8; block_bytes * depth + ALIGNMENT]);
        let first = memory.as_ptr().align_offset(ALIGNMENT);
        let reader = Self { ring, file, asked, memory, in_flight: 0, first, block_bytes, depth };
        if asked == RingMode::Plainly {
            return Ok(reader);
        }
        reader.ring.submitter().register_files(&[reader.file.as_raw_fd()])?;
        let vector = libc::iovec {
            iov_base: reader.memory.as_ptr().wrapping_add(reader.first).cast_mut().cast(),
            iov_len: block_bytes * depth,
        };
        // SAFETY: this file's rule.
        unsafe { reader.ring.submitter().register_buffers(&[vector])? };
        Ok(reader)
    }

    /// Reads the blocks at these offsets; the time for all.
    pub fn read(&mut self, offsets: &[u64]) -> Result<Duration> {
        self.transfer(offsets, false)
    }

    /// Writes the blocks at these offsets; the time for all.
    pub fn write(&mut self, offsets: &[u64]) -> Result<Duration> {
        self.transfer(offsets, true)
    }

    /// Builds the kernel's request for one block.
    fn entry(&self, at: *mut u8, offset: u64, write: bool) -> squeue::Entry {
        let (bytes, file) = (self.block_bytes as u32, Fd(self.file.as_raw_fd()));
        match (self.asked, write) {
            (RingMode::Plainly, false) => opcode::Read::new(file, at, bytes).offset(offset).build(),
            (RingMode::Plainly, true) => opcode::Write::new(file, at, bytes).offset(offset).build(),
            (_, false) => opcode::ReadFixed::new(Fixed(0), at, bytes, 0).offset(offset).build(),
            (_, true) => opcode::WriteFixed::new(Fixed(0), at, bytes, 0).offset(offset).build(),
        }
    }

    fn transfer(&mut self, offsets: &[u64], write: bool) -> Result<Duration> {
        let start = Instant::now();
        let (mut next, mut left) = (0, offsets.len());
        let mut free: Vec<usize> = (0..self.depth).collect();
        while left > 0 {
            while let (Some(&offset), Some(buffer)) = (offsets.get(next), free.pop()) {
                let at = self.memory.as_mut_ptr().wrapping_add(self.first + buffer * self.block_bytes);
                let entry = self.entry(at, offset, write).user_data(buffer as u64);
                // SAFETY: this file's rule; a buffer is in `free` or in one transfer.
                while let Err(full) = unsafe { self.ring.submission().push(&entry) } {
                    // The kernel's thread may have done a transfer before it says that it has taken it.
                    if self.asked != RingMode::Polled {
                        return Err(full.into());
                    }
                    self.ring.submitter().squeue_wait()?;
                }
                self.in_flight += 1;
                next += 1;
            }
            self.ring.submit_and_wait(1)?;
            for answer in self.ring.completion() {
                self.in_flight -= 1;
                if answer.result() != self.block_bytes as i32 {
                    return Err(format!("a raw transfer answered {}", answer.result()).into());
                }
                free.push(answer.user_data() as usize);
                left -= 1;
            }
        }
        Ok(start.elapsed())
    }
}

impl Drop for RawReader {
    fn drop(&mut self) {
        if self.in_flight == 0 {
            // SAFETY: this file's rule; the memory is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}
