//! Memory shared between processes: mappings, and the copies and atomics by which bytes that another process
//! may write are touched. All other code that touches them (conduits, the endpoint, segment files, the cache,
//! the C interface) does it with these, under these rules. The meaning of the bytes, and the assignment of
//! mappings, are the matter of the layers above.
//!
//! | module | is |
//! |---|---|
//! | [`Mapping`], [`Span`], [`Word`] | a mapped file, a checked piece of it, an atomic word of it |
//! | [`Atomic`], [`Update`] and their parts | atomic updates of words, as network cards and programs ask for them |
//! | [`copy`], [`stream`], [`prefetch`] | moving bytes that others may write meanwhile |
//! | [`fence`], [`bell`] | the order between processes, and waking one that sleeps |
//! | [`spin`], [`biased`] | locks for a few instructions |
//! | [`striped`] | counters of many threads |
//! | [`alarm`] | waking at a moment |
//! | [`cores`] | whether who waits may look around, or has to sleep |
//! | [`error`] | what the system refuses |
//!
//! # Who may touch what, when
//!
//! 1. *No reference.* Shared bytes are never a `&[u8]` or `&mut [u8]`, because another process may write them at any
//!    moment. They are copied in and out through [`Mapping`], or reached as atomics, which tolerate concurrent writers.
//! 2. *Bounds first.* Every access names an offset and a length and is checked against the mapping; an offset
//!    from a peer is additionally checked on arrival, with an error instead of a panic.
//! 3. *Life.* A mapping lives as long as its `Arc`. Code that hands its address to the kernel (io_uring,
//!    registered memory) holds an `Arc` until the completion has been seen.
//! 4. *Order.* Copies order nothing. A protocol that hands bytes from one process to another does so with an atomic
//!    word (release by the writer, acquire by the reader); races outside such a protocol yield old, new or mixed
//!    bytes, never anything else, and never a torn aligned 8-byte word (see [`copy`]).

#![deny(clippy::print_stdout, clippy::print_stderr)] // What people read is written by the layers above.

pub mod alarm;
mod atomic;
pub mod bell;
pub mod biased;
pub mod copy;
pub mod cores;
pub mod error;
pub mod fence;
mod mapping;
pub mod prefetch;
pub mod spin;
pub mod stream;
pub mod striped;
mod word;

pub use atomic::{Atomic, AtomicWord, Change, Update, WordKind};
pub use mapping::{Mapping, Span, anonymous_file};
pub use word::Word;
