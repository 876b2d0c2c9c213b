//! A global address space larger than the cluster's memory.
//!
//! Each rank owns a *tiered* segment that lives in a file on its node's NVMe and may exceed DRAM; the DRAM of all nodes
//! is one cooperative cache over these files. Puts, gets and active messages work on it as on GASNet. A *pinned*
//! segment beside it is plain shared and remotely accessible memory.
//!
//! A rank is a process started by `vgas run`, or by `srun`, `mpirun` or `mpiexec` ([`started`]); its program calls [`Runtime::init`]:
//!
//! ```no_run
//! use vgas::{Rank, Runtime, SegmentOptions};
//!
//! fn main() -> vgas::Result<()> {
//!     let runtime = Runtime::init()?;
//!     let store = runtime.attach(&SegmentOptions::tiered(1 << 30))?;
//!     // Each rank writes to its right neighbour, then reads its own part.
//!     let right = Rank((runtime.rank().0 + 1) % runtime.ranks());
//!     store.put_value(right, 0, u64::from(runtime.rank().0))?;
//!     runtime.barrier()?;
//!     let left: u64 = store.get_value(runtime.rank(), 0)?;
//!     vgas::print(format_args!("my left neighbour is {left}\n"))?;
//!     runtime.finalize()
//! }
//! ```
//!
//! Ordering of puts and gets: a blocking put returns when its bytes are visible to every later get anywhere;
//! per page there are many readers or one writer, so properly synchronised programs are sequentially
//! consistent. Bytes of one aligned 8-byte word are never torn (over libfabric, if its provider ensures that;
//! over ibv, if a transfer begins at a word). A segment may be attached as
//! [`relaxed`](SegmentOptions::relaxed): then ranks agree on its content at barriers and under locks only,
//! and small puts travel together.
//!
//! Forms of put and get: blocking, non-blocking with a handle ([`Runtime::put_nb`], [`Runtime::get_nb`]), many at once
//! ([`Runtime::batch`]), values, atomic updates ([`Runtime::update`]), [`Runtime::memset`], and through pinned pages
//! ([`Runtime::pin`]). Segments come and go while the job runs, tiered with pages of their own size or pinned
//! ([`Runtime::attach`], [`SegmentOptions`]).
//!
//! Collective operations, of all ranks or some, such as broadcasts and reductions, are functions of a
//! [`Team`] ([`Runtime::world`]). Operations in flight progress by themselves, whether the rank polls, waits
//! for something else, or computes.

#![deny(clippy::print_stdout, clippy::print_stderr)] // See `vgas_rma::say`.

mod address;
mod agent;
mod batch;
mod builder;
mod checkpoint;
pub mod config;
mod end;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod info;
pub mod launch;
pub mod layout;
mod lock;
mod memory;
mod messages;
mod network;
mod nonblocking;
mod pin;
mod pointer;
mod runtime;
mod segment;
pub mod service;
pub mod started;
mod statistics;
mod team;

pub use address::{GlobalAddress, Kind};
pub use batch::{Batch, BatchKind};
pub use builder::Builder;
pub use error::{Error, Result};
pub use lock::{LockError, LockOwner, ReadGuard, WriteGuard};
pub use nonblocking::{GetHandle, PutHandle};
pub use pin::PinnedPage;
pub use pointer::GlobalPtr;
pub use runtime::Runtime;
pub use segment::{LocalPart, Reopened, Segment, SegmentOptions, SegmentOwner, library_segment};
pub use statistics::Statistics;
pub use team::{CollectiveHandle, Combine, Number, Operator, Team};
pub use vgas_cache::local::{Announcing, LocalPin, LocalSegment, Mechanism, prepare_thread};
pub use vgas_cache::partition::SegmentId;
pub use vgas_cache::pool::{Counter, PinMode};
pub use vgas_nvm::{
    AtRest, CopyTarget, RestError, StoredPart, StoredSegment, copy_segment, name_hash, remove_segments,
    segment_of_file, stored_segments,
};
pub use vgas_rma::endpoint::{BarrierName, BarrierOutcome, Endpoint, Token};
pub use vgas_rma::message::{Arrived, Direction, MediumPayload, Payload, Source};
pub use vgas_rma::{Layout, NodeId, Peer, Rank, say};
pub use vgas_shm::{AtomicWord, Change};

/// Writes to standard output, in one write, so that lines of several ranks stay whole. A reader that has gone away
/// (`vgas run … | head`) is no failure, where `println!` would end the rank by a panic, and the job with it.
///
/// # Errors
/// The system's error, such as of a full disk.
pub fn print(text: impl std::fmt::Display) -> Result<()> {
    say::print(text).map_err(|error| vgas_rma::RmaError::io("write to standard output", error).into())
}
