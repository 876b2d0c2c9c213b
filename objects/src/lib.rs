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
//! [`first_steps`] goes through a longer one, from an empty folder to a table that is larger than memory.
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
//! | `layout.rs` | how values lie in memory, in words |
//! | `tie.rs` | where in them other objects are tied to them |
//! | `glue.rs` | whether dropping a value runs something that the program has written |
//! | `portable.rs` | which types may be in the heap, and be read through copies |
//! | `service/` | work at the home of objects, in the daemons of nodes |
//! | `linked.rs` | tables of functions that the linker makes |
//! | `planted.rs` | mistakes that tests make on purpose |
//! | `task/` | tasks: beginning them, what they are lent, the queues and the workers, and their messages |
//! | [`prelude`] | std's names for all of this, under which a program is changed by its imports |
//! | `heap/` | boxes, rows and text, and borrows of them, copies and how ranks of a node share them, what ranks free of each other's, passing objects on, what outlives a job, and reports |
//! | [`sync`] | what several owners share: atomics, counted values, locks, channels |
//!
//! The first seven need nothing of vgas, and build without it: `cargo test -p vgas-objects --no-default-features --lib`.
//!
//! # Types
//!
//! | instead of | | |
//! |---|---|---|
//! | `Box<T>` | [`DBox<T>`](DBox) | an object, read through copies and written where its owner is |
//! | | [`TBox<T>`](TBox) | the same, of an object that comes with the one that it is in: lists and trees at once |
//! | `Vec<T>` | [`DVec<T>`](DVec) | a row; parts of one that is elsewhere are read without the rest |
//! | `String` | [`DString`] | text |
//! | `HashMap<K, V>` | [`DMap<K, V>`](DMap) | a map; one that is elsewhere is looked into without bringing it |
//! | `Arc<T>` | [`sync::DArc<T>`](sync::DArc) | a value with several owners, who clone it without messages |
//! | `Weak<T>` | [`sync::DWeak<T>`](sync::DWeak) | who knows of such a value, and does not keep it |
//! | `Mutex<T>`, `RwLock<T>` | [`sync::DMutex<T>`](sync::DMutex), [`sync::DRwLock<T>`](sync::DRwLock) | a value that travels with its lock |
//! | `Condvar`, `Barrier` | [`sync::DCondvar`], [`sync::DBarrier`] | waiting for what others do; `DMutex::with` has it done where the value is |
//! | `mpsc::sync_channel` | [`sync::channel`] | values go to one rank as they are; both ends travel |
//! | `AtomicU64` and others | [`sync::DAtomicU64`] and others | a number that all update where it is |
//! | `thread::spawn`, `thread::scope` | [`spawn`], [`scope`] | tasks, on any rank |
//! | raw pointers | [`dalloc`], [`dread`], [`dwrite`], [`dfree`] | values that stay where they are, by their words; nothing checks who uses them when |
//!
//! A program that has std's names already begins with the [`prelude`]. Other libraries see objects by features: `serde` writes and reads
//! them as std's types, `arrow` has rows as buffers of its arrays, `rkyv` has values with std's types in them in the heap (`views`).
//!
//! # What an operation costs
//!
//! | operation | own object | another rank's |
//! |---|---|---|
//! | read, `Deref` | two comparisons | the copy is known: one comparison more; a copy is in this node: a look into a table; else a message to its home, and the answer; one more where the home has it on NVMe and another node has a copy |
//! | [`DBox::read_all`], [`DVec::read_all`], [`DString::read_all`], [`sync::DArc::read_all`] | as each of them | of each other node: a message and its answer for all that is not here, or as many as the bytes need |
//! | [`DBox::bring_all`], [`DVec::bring_all`] | as each of them | of each other node: a message and its answer, or as many as the bytes need; all are this rank's then |
//! | what has a [`TBox`] in it, read or written | as each of them | a message and its answer for all that is tied to it, or as many as the bytes need |
//! | write, `DerefMut` | one word is looked at; where others have read, the colour changes | a message and its answer, and a 64th of the message that frees 64 objects together |
//! | new | a slot | a message and its answer, and a put, where this rank has no room |
//! | drop | | a 64th of a message; a message and its answer before, if a drop of the program's own is in it |
//!
//! Of a rank of this node nothing needs a message where its page is in memory. What is larger than a message comes by a get of [`vgas::Runtime`].
//! Nobody's ranks have to do anything for it: the node's daemon does ([`services`]).
//!
//! Who is about to follow many boxes asks for them at once:
//!
//! ```no_run
//! # use vgas_objects::{DBox, DVec, NotRead, Portable, Shareable};
//! #[derive(Portable, Shareable)]
//! struct Post { likes: u64, text: [u8; 200] }
//!
//! fn likes(page: &DVec<DBox<Post>>) -> Result<u64, NotRead> {
//!     Ok(DBox::try_read_all(page.iter())?.iter().map(|post| post.likes).sum())
//! }
//! ```
//!
//! Who knows, when making them, that objects are used together ties them ([`TBox`]). And who is about to use a large object of its own, which may be
//! on NVMe, asks for it before ([`prefetch`]).
//!
//! # Tasks
//!
//! [`Objects::run`] runs a program on the first rank, and its tasks on all: [`spawn`] and [`spawn_to`] begin one, [`JoinHandle::join`] waits for
//! its result, and [`scope`] lends. A [`task!`] is a closure that captures nothing: it gets its arguments, and what it is lent, from where
//! they are. One that stays on its rank costs as much as a task of threads; one on another rank a message and its answer. A task is given and lent 2 KiB
//! at most, and returns as much: what is larger is in a box.
//!
//! `main` is on one rank: what is of all ranks ([`Objects::barrier`], [`Objects::lend`], [`Objects::report`]) is called before a run or after it.
//!
//! A task that has begun stays where it is. The paper moves the stacks of threads between servers (drust-osdi24.txt §4.2.1); in Rust
//! that is not sound. The compiler may keep the address of a thread-local variable across a call, so that a stack which goes on in another
//! thread uses the first thread's; locks and guards on it belong to the thread that has taken them; and in another process
//! nothing is left of what it has references to, from `Vec` to files. So load is balanced by tasks that have *not* begun: ranks
//! with nothing to do ask others, which give them the oldest. Divide work into more tasks than there are threads.
//!
//! # Waiting without a thread
//!
//! [`DBox::get`] and a [`JoinHandle`] are futures, for an executor of the program's choice. They keep none of its threads waiting.
//!
//! # Programs
//!
//! Each is written twice, on objects and on std, and says with `--verify` whether both have the same results: `vgas run -n 4 --nodes 2 --
//! target/release/examples/kv --verify`. `diff` of its `plain.rs` and `objects.rs` shows what becomes of a program.
//!
//! | in `objects/examples` | shows |
//! |---|---|
//! | `kv` | shards of a store that tasks change where they are; requests and answers as rows that others read |
//! | `dataframe` | tables larger than memory, tasks at their chunks, results that are brought together by parts |
//! | `socialnet` | shared references, pages that all read through copies, a load with latencies |
//! | `matrix` | tasks that read copies of others' tiles; matrices cut and joined by moving names |
//! | `tree` | what outlives its job |
//!
//! # What outlives a job
//!
//! A heap with a name ([`Objects::attach_named`]) is found again by later jobs of as many ranks, as its last [`Objects::checkpoint`] has
//! left it: objects that were [kept](Objects::keep) under names, and what they lead to. Pointers mean the same as before; nothing is
//! read, walked or decoded before it is used, and what was kept as one type is not read as another ([`Layout`]).
//! `objects/examples/tree.rs` is such a program.
//!
//! # Seeing where objects are
//!
//! [`Objects::report`] tells, of each rank, how many objects and copies it has, of which types, how much they are used, and what it has fetched; of each
//! node, what its home has served and handed on. `vgas run --stats` prints it at the end. [`heaps_running`], and the command
//! `vgas objects --running`, ask the ranks of jobs that run, from outside; [`heaps_at_rest`], and `vgas objects NAME`, look at a heap with a
//! name that no job uses. What cannot be had is [`Lost`], which says what it is, who has it, and which call wanted it.
//!
//! # What outlives a node
//!
//! With [`HeapOptions::replicas`] = 1, in a job that is started with `run.survive = on` and `conduit = tcp`, one node may be lost:
//! its daemon or a rank on it is killed, or nobody reaches it. All that was ever passed on is still there, as it was then,
//! and is used as before; `heap/replica.rs` says what exactly, and how. With the first node, what it has begun is lost: an [`Objects::run`], and the
//! job with it, since `main` runs there; a program that begins its part on each rank goes on. A loss while the heap is being attached ends the job. A heap with a name
//! may have replicas, too: a later job finds the last checkpoint, whatever was lost after it.
//!
//! * Objects of the lost ranks are read where their backups are, and move to who writes them.
//! * Tasks that the node had are [`TaskError::Lost`]; what was lent to them is as before. Tasks go on elsewhere, except on ranks that
//!   were beginning or ending a [`Objects::run`] and heard of the loss there: tasks sent to those are [`TaskError::Abandoned`].
//! * No object has two owners: if a rank of the node had passed on objects (by a channel, a lock, a task or [`Objects::hand`]) while it had a lock alone, or
//!   something that was lent to it to change, these may have come from there. Then the lock's value is gone ([`sync::LockError::Given`]), and boxes, rows
//!   and counted values in what was lent are [`ObjectError::Lost`]; dropping them does nothing. What the rank had only dropped is dropped again by its
//!   owner: a `Drop` with an effect outside of the heap may have it twice.
//! * Locks that its ranks had alone are poisoned ([`sync::LockError::Left`]) otherwise, with the value that they had before. What of [`sync`] has its place
//!   there is [`ObjectError::Lost`], by its type, place and the call; so is waiting at a barrier or for a condition when the node is lost.
//! * Whoever receives from a channel hears of the loss once, after all that had come ([`sync::Receiver::recv_checked`]): senders may have been there. Who
//!   sends hears of it where whoever receives was there, and no room is left ([`sync::Sender::send_checked`]).
//! * What all ranks do together ([`Objects::barrier`], [`Objects::hand`], [`Objects::lend`]) ends with an error from then on, except
//!   [`Objects::finalize`].
//!
//! It costs: who passes something on looks at all values of its partition for what has changed, and sends that; who writes what was passed on since, copies
//! it; and within [`Objects::run`], where ranks do not meet, what was passed on once keeps its place until the end.
//!
//! # What must be known
//!
//! * Copies that nobody uses go when a rank's take more than [`HeapOptions::copy_bytes`]. Those in use stay at their addresses, on NVMe if memory
//!   has no room.
//!
//! * A value is placed on its rank as long as there is room, then, within [`Objects::run`], on the rank that has most ([`DBox::new`]). Rows, text and
//!   maps are where they are written: their room is that of the rank that writes, and so is that of what [`DBox::get_mut`] brings.
//! * Ranks run one program. Types are compared where objects are passed on; what bytes mean, nobody can check.
//! * The files of a heap take room as they are written. A file system that is full before the heap is ends the job: a line says of which node
//!   its folder is full, and that `nvm.directory` names another. Where it is found at a plain load or store of an object, the process ends after
//!   that line by SIGBUS, since no error can be returned there.
//! * A slot has 65,535 colours. One goes each time that what others have read is written or freed; when they are used up, the object goes on in
//!   another slot, and this one is *retired* until all ranks have said that they have no copies from there. They are asked when their rank places
//!   something, also within an [`Objects::run`], and at each [`Objects::barrier`]. What keeps a slot retired is a use that others have of it
//!   (also a forgotten borrow's, and that of a link in a copy that nobody has used lately, until that goes), a rank that neither places anything nor is within a
//!   run, and replicas, until the next barrier. [`Objects::counts`] says how many there are.
//! * `mem::forget` of a box or of a borrow leaks the object, or the copy, and is safe.
//! * A copy never runs `Drop`; an object does, once, where its owner drops it. What is another rank's comes there before, as for writing.
//! * What owns other objects and has no drop that the program has written, itself or in what it owns, is dropped by the rank that has it: when that places
//!   something, has nothing to do within [`Objects::run`], or at the next [`Objects::barrier`], after which all is gone that was let go of before. Until then it takes room, and what it
//!   owns of a [`sync::DArc`] counts. Where the heap has replicas, it comes as well.
//! * Ranks of one node fetch an object once. Large ones without boxes in them they read where they are, of each other; of others, each has a
//!   copy of its own, because it notes in it what it has found.
//! * When a rank is lost, the job ends, as with everything else in vgas; unless the heap has replicas.

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
mod planted;
mod portable;
#[cfg(feature = "runtime")]
pub mod prelude;
#[cfg(feature = "runtime")]
mod service;
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
    CopiesRunning, DBox, DMap, DMapEntries, DMapEntriesMut, DMapIter, DString, DVec, Entry, Found, Get,
    HeapAtRest, HeapCounts, HeapOptions, HeapRunning, HomeRunning, LookError, Lost, MutRef, NodeReport,
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
    Arguments, Call, JoinHandle, Lent, Place, RunOptions, Scope, Task, TaskCounts, TaskError, rank, scope,
    spawn, spawn_to, task_counts,
};
#[doc(hidden)]
#[cfg(feature = "runtime")]
pub use task::{a_task_gets_what_it_uses_as_arguments, called, task_of};
#[doc(hidden)]
pub use tie::Ties;
pub use vgas_objects_derive::{Portable, Shareable};
pub use word::{ADDRESS_BITS, Colour, Link, Word};
