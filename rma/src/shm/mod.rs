//! Memory shared between processes: mappings, and the copies and atomics by which bytes that another process may write are
//! touched. Whoever touches them elsewhere (the rings of `conduit/smp`, the sockets of `conduit/tcp`, the verbs of `conduit/ibv`, the
//! endpoint, the cache, the C interface) does it with these, under these rules.
//!
//! # Who may touch what, when
//!
//! 1. *No reference.* Shared bytes are never a `&[u8]` or `&mut [u8]`, because another process may write them at any
//!    moment. They are copied in and out through [`Mapping`], or reached as atomics, which tolerate concurrent writers.
//! 2. *Bounds first.* Every access names an offset and a length and is checked against the mapping; an offset that a
//!    peer chose is additionally checked where it arrives, with an error instead of a panic.
//! 3. *Life.* A mapping lives as long as its `Arc`. Whoever hands its address to the kernel (io_uring, registered
//!    memory) holds an `Arc` until the completion has been seen.
//! 4. *Order.* Copies order nothing. A protocol that hands bytes from one process to another does so with an atomic
//!    word (release by the writer, acquire by the reader); races outside such a protocol yield old, new or mixed
//!    bytes, never anything else, and never a torn aligned 8-byte word (see [`copy`]).

mod atomic;
pub mod bell;
pub mod biased;
pub mod copy;
mod domain;
pub mod fence;
mod mapping;
pub(crate) mod prefetch;
pub mod spin;
pub(crate) mod stream;
mod word;

pub use atomic::{Atomic, AtomicWord, Change, Update, WordKind};
pub use domain::{Domain, DomainSpec, RegionSpec};
pub use mapping::{Mapping, Span};
pub use word::Word;
