//! Segment files on NVMe: the place of the pages of tiered segments that are in no memory.
//!
//! * [`Volume`]: all segment files of one node. Reads and writes whole pages, many at a time, and reads parts of them,
//!   verified by checksums; keeps never-written pages free; makes checkpoints of named segments.
//! * [`device`]: storage of the bytes: io_uring with direct I/O, a fallback, and two devices for tests.
//! * [`mod@format`]: the bytes of a named segment's file. `nvm/DESIGN.md` argues why a crash never loses a checkpoint.
//!
//! Not here: caching, write permission and write-back of pages (the cache layer); sizes and names of segments
//! (the runtime).

#![deny(clippy::print_stdout, clippy::print_stderr)] // What people read is written by the layers above.

mod checksum;
pub mod device;
mod error;
pub mod few;
pub mod format;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod page_table;
mod rest;
mod shared;
mod stored;
mod volume;

pub use device::Whereabouts;
pub use device::choice::DeviceChoice;
pub use error::{DeviceError, FileError, PageOperation, Result, Untrusted, Unusable, VolumeError};
pub use format::{COMPANIONS_MAX, CheckpointId, Companion, Place, name_hash, newest_common};
pub use rest::{AtRest, RestError};
pub use shared::{Reader, Run, SharedFile, StoredPage, read_now};
pub use stored::{
    CopyTarget, StoredPart, StoredSegment, copy_segment, remove_segments, segment_of_file, stored_segments,
};
pub use volume::{
    Extent, FileState, NAME_BYTES_MAX, NamedFile, OpenReport, Opened, PAGE_BYTES_MAX, PAGE_BYTES_MIN,
    PageDone, Volume, VolumeSpec, is_segment_name, segment_file_name, segment_file_state,
};
