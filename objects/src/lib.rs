//! Owned objects in a global heap that is larger than memory (DRust, OSDI 2024).
//!
//! A [`DBox<T>`](DBox) is a `Box<T>` whose object may live on any rank, in a tiered segment that may exceed DRAM. To read a box fetches a
//! copy; to write it moves the object here. The compiler has already checked that nothing reads while something writes, so no message ever
//! invalidates a copy: the pointer carries a *colour*, a write changes the colour, and a copy of an older colour is not found again.
//!
//! # Examples
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
//!     let objects = Objects::attach(&Runtime::init()?, &HeapOptions::default())?;
//!     let (me, last) = (objects.rank(), Rank(objects.ranks() - 1));
//!     let mut list = (me == Rank(0)).then(|| DBox::new(Node { key: 1, next: None }));
//!     // The last rank adds a node: the head of the list moves there, and the new node is made there.
//!     objects.lend_mut(Rank(0), last, list.as_mut(), |mut head| {
//!         head.next = Some(DBox::new(Node { key: 2, next: None }));
//!     })?;
//!     // Every rank reads the list through copies of its own.
//!     let found = objects.lend(Rank(0), list.as_ref(), |head| sum(head))?;
//!     assert_eq!(found, 3);
//!     objects.finalize()
//! }
//! ```
//!
//! Start it as any program of a job: `vgas run -n 4 --nodes 2 -- target/release/list`.
//!
//! # Where to read on
//!
//! | you want to | read |
//! |---|---|
//! | write your first program, from an empty folder to a table that is larger than memory | [`first_steps`] |
//! | turn a program on std into one on objects | [`prelude`] |
//! | run tasks on other ranks | [`manual::tasks`] |
//! | know what each operation costs | [`manual::costs`] |
//! | keep objects after the job, or survive the loss of a node | [`manual::survival`] |
//! | know the limits, and when memory is reclaimed | [`manual::limits`] |
//! | see where objects are | [`Objects::report`], [`heaps_running`], [`heaps_at_rest`] |
//!
//! # Types
//!
//! | instead of | use | which is |
//! |---|---|---|
//! | `Box<T>` | [`DBox<T>`](DBox) | an object, read through copies and written where its owner is |
//! | | [`TBox<T>`](TBox) | an object that is fetched together with the object that owns it: lists and trees in one message |
//! | `Vec<T>` | [`DVec<T>`](DVec) | a row; a reader on another rank fetches only the parts that it reads |
//! | `String` | [`DString`] | text |
//! | `HashMap<K, V>` | [`DMap<K, V>`](DMap) | a map; a lookup on another rank fetches only the entry |
//! | `Arc<T>` | [`sync::DArc<T>`](sync::DArc) | a counted value, which its owners clone without messages |
//! | `Weak<T>` | [`sync::DWeak<T>`](sync::DWeak) | a reference to a counted value that does not keep it alive |
//! | `Mutex<T>`, `RwLock<T>` | [`sync::DMutex<T>`](sync::DMutex), [`sync::DRwLock<T>`](sync::DRwLock) | a value that travels with its lock |
//! | `Condvar`, `Barrier` | [`sync::DCondvar`], [`sync::DBarrier`] | waits for other tasks; `DMutex::with` runs a task where the value is instead |
//! | `mpsc::sync_channel` | [`sync::channel`] | a bounded channel to one rank; both ends may move |
//! | `AtomicU64` and others | [`sync::DAtomicU64`] and others | a number that every rank updates where it is |
//! | `thread::spawn`, `thread::scope` | [`spawn`], [`scope`] | tasks, on any rank |
//! | raw pointers | [`dalloc`], [`dread`], [`dwrite`], [`dfree`] | values that stay where they are; nothing checks their use |
//!
//! Features connect other libraries: `serde` serialises objects as std's types, `arrow` shows rows as buffers of its arrays, `rkyv` stores
//! values that contain std's types (see `views`).
//!
//! # Inside
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
//! | module | holds |
//! |---|---|
//! | `word.rs` | pointers: 48 bits of address, 16 of colour, and an extension that names this rank's copy |
//! | [`colour`] | the protocol, as a table that tests walk through |
//! | [`slab`] | the allocator of a partition |
//! | `layout.rs` | descriptors of types, by which ranks and jobs compare them |
//! | `shape.rs` | properties of a type by which its values move as bytes |
//! | `tie.rs` | fields of a type that are tied objects |
//! | `glue.rs` | whether dropping a type runs code of the program |
//! | `portable.rs` | the types that may lie in the heap, and those that may be read through copies |
//! | `bytes.rs` | values as bytes |
//! | `service/` | services at the homes of objects, in the daemons of nodes |
//! | `linked.rs` | tables of functions that the linker collects |
//! | `planted.rs` | faults that tests plant |
//! | `task/` | tasks: arguments, queues, workers, messages |
//! | [`prelude`] | std's names for all of this |
//! | `heap/` | boxes, rows, text and maps; borrows and copies; freeing across ranks; persistence, replicas and reports |
//! | [`sync`] | atomics, counted values, locks, channels |
//! | [`manual`] | the manual |
//!
//! The modules up to `portable.rs` need nothing of vgas and build without it: `cargo test -p vgas-objects --no-default-features --lib`.

// The derives name this crate as programs do.
extern crate self as vgas_objects;

#[cfg(feature = "runtime")]
mod bytes;
pub mod colour;
#[cfg(feature = "runtime")]
pub mod first_steps;
#[cfg(all(feature = "runtime", any(test, fuzzing)))]
#[doc(hidden)]
pub mod fuzzing;
mod glue;
#[cfg(feature = "runtime")]
mod heap;
mod layout;
#[cfg(feature = "runtime")]
mod linked;
#[cfg(feature = "runtime")]
pub mod manual;
#[cfg(feature = "runtime")]
mod planted;
mod portable;
#[cfg(feature = "runtime")]
pub mod prelude;
#[cfg(feature = "runtime")]
mod service;
mod shape;
pub mod slab;
#[cfg(feature = "runtime")]
pub mod sync;
#[cfg(feature = "runtime")]
mod task;
mod tie;
#[cfg(any(feature = "arrow", feature = "rkyv", feature = "serde"))]
pub mod views;
mod word;

pub use glue::Glue;
#[doc(hidden)]
pub use glue::{DropOf, NoDrop};
#[cfg(feature = "runtime")]
pub use heap::{
    CopiesRunning, DBox, DMap, DMapEntries, DMapEntriesMut, DMapIter, DString, DVec, Entry, Get, HeapAtRest,
    HeapCounts, HeapOptions, HeapRunning, HomeRunning, LookError, LostObject, MapRef, MutRef, NodeReport,
    NotRead, ObjectError, Objects, OccupiedEntry, OtherLayout, Part, PartitionAtRest, PartitionRunning,
    RankReport, Ref, Refused, Replicated, Report, RootAtRest, RunningError, SilentRank, SizeAtRest,
    SizeRunning, TBox, TypeReport, VacantEntry, dalloc, dfree, dread, dwrite, heaps_at_rest, heaps_running,
    prefetch,
};
pub use layout::Layout;
#[doc(hidden)]
#[cfg(feature = "faults")]
pub use planted::{Fault, plant};
pub use portable::{Portable, Shareable};
#[cfg(feature = "runtime")]
pub use service::services;
#[cfg(feature = "runtime")]
pub use task::{
    Arguments, Call, JoinHandle, Lent, RunOptions, Scope, Task, TaskCounts, TaskError, TaskPlace, rank,
    scope, spawn, spawn_to, task_counts,
};
#[doc(hidden)]
#[cfg(feature = "runtime")]
pub use task::{a_task_gets_what_it_uses_as_arguments, called, task_of};
#[doc(hidden)]
pub use tie::Ties;
pub use vgas_objects_derive::{Portable, Shareable};
pub use word::{ADDRESS_BITS, Colour, Link, Word};
