//! Owned objects in a global heap larger than memory: Rust's ownership in the place of coherence messages (drust-osdi24.txt).
//!
//! A [`DBox`] is a `Box` whose object may be on any rank, in a tiered segment that may exceed memory. Reading brings a copy, writing
//! brings the object. Nobody is ever told to drop a copy: a box's pointer has a *colour*, which changes when what others have
//! read is written, and an old copy is never looked for again. That nobody reads while somebody writes, the compiler has checked.
//!
//! ```no_run
//! use vgas::{Rank, Runtime};
//! use vgas_objects::{DBox, HeapOptions, ObjectError, Objects, Portable, Shareable};
//!
//! #[derive(Portable, Shareable)]
//! struct Node { key: u64, next: Option<DBox<Node>> }
//!
//! fn sum(node: &Node) -> u64 {
//!     node.key + node.next.as_deref().map_or(0, sum)
//! }
//!
//! fn main() -> Result<(), ObjectError> {
//!     let objects = Objects::attach(Runtime::init()?, &HeapOptions::default())?;
//!     let (me, last) = (objects.rank(), Rank(objects.ranks() - 1));
//!     let mut list = (me == Rank(0)).then(|| DBox::new(Node { key: 1, next: None }));
//!     // The last rank adds a node: the list's head moves there, and the new node is there anyway.
//!     objects.lend_mut(Rank(0), last, list.as_mut(), |mut head| {
//!         head.next = Some(DBox::new(Node { key: 2, next: None }));
//!     })?;
//!     // All read it, each through copies of its own.
//!     let found = objects.lend(Rank(0), list.as_ref(), |head| sum(head))?;
//!     assert_eq!(found, 3);
//!     objects.finalize()
//! }
//! ```
//!
//! It runs as any program of a job: `vgas run -n 4 --nodes 2 -- target/release/list`.
//!
//! # What is where
//!
//! ```text
//!   rank 0                                   rank 1
//!  ┌──────────────────────────┐             ┌──────────────────────────┐
//!  │ DBox  colour · address ──┼──────────┐  │                          │
//!  │       extension ─────┐   │          │  │                          │   private memory
//!  ├──────────────────────┼───┤          │  ├──────────────────────────┤
//!  │ values   copies ◀────┘   │          └──┼─▶ values   copies        │   the heap: one tiered segment a rank,
//!  │ head · records · slabs   │             │ head · records · slabs   │   at one address in all processes
//!  └──────────────────────────┘             └──────────────────────────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | `word.rs` | pointers: 48 bits of address, 16 of colour, and an extension that says where this rank's copy is |
//! | [`colour`] | the protocol, as a table that tests walk through |
//! | [`slab`] | the allocator of a partition |
//! | `portable.rs` | which types may be in the heap, and be read through copies |
//! | `heap/` | boxes and borrows, copies, what ranks free of each other's, passing objects on |
//!
//! The first four need nothing of vgas, and build without it: `cargo test -p vgas-objects --no-default-features --lib`.
//!
//! # What an operation costs
//!
//! | operation | own object | another rank's |
//! |---|---|---|
//! | read, `Deref` | two comparisons | the copy is known: one comparison more; a copy is here: a look into a table; else an update of a word and a get at its owner's |
//! | write, `DerefMut` | one word is looked at; where others have read, the colour changes | a get, and a 64th of what 64 objects freed together take |
//! | drop | | a 64th; with the value, if its type has something to drop |
//!
//! Gets and updates are those of [`vgas::Runtime`]: of a rank of this node they need no message where its page is in memory.
//!
//! # What must be known
//!
//! * Ranks run one program. Types are compared where objects are passed on; what bytes mean, nobody can check.
//! * `mem::forget` of a box or of a borrow leaks the object, or the copy, and is safe.
//! * A copy never runs `Drop`; an object does, once, where its owner drops it.
//! * Copies are a rank's. Ranks of one node share the pages that these come from, not the copies.
//! * When a rank is lost, the job ends, as with everything else in vgas.

// The derives name this crate as programs do.
extern crate self as vgas_objects;

pub mod colour;
#[cfg(feature = "runtime")]
mod heap;
mod portable;
pub mod slab;
mod word;

#[cfg(feature = "runtime")]
pub use heap::{DBox, HeapCounts, HeapOptions, MutRef, ObjectError, Objects, Ref, Refused};
pub use portable::{Portable, Shareable};
pub use vgas_objects_derive::{Portable, Shareable};
pub use word::{ADDRESS_BITS, Colour, Link, Word};
