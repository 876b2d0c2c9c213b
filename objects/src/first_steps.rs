//! A first program, step by step: from an empty folder to a table that is larger than memory, on several nodes.
//!
//! # 1. A package
//!
//! ```toml
//! [dependencies]
//! vgas = { path = "../vgas/vgas" }          # or { git = "URL" }, both
//! vgas-objects = { path = "../vgas/objects" }
//! ```
//!
//! `vgas info` shows the machine's conduits and devices; none of them is required.
//!
//! # 2. What lies in the heap
//!
//! A type for other ranks derives [`Portable`](crate::Portable), so that it may lie in the heap, and
//! [`Shareable`](crate::Shareable), so that they may read it through copies. Its parts must be such types,
//! too: numbers, arrays, tuples, enums, [`DBox`](crate::DBox), [`DVec`](crate::DVec),
//! [`DString`](crate::DString), [`DMap`](crate::DMap). A `String`, a reference or a file means nothing in
//! another process: the compiler rejects it, and names the replacement.
//!
//! # 3. How large it may become
//!
//! [`Objects::attach`](crate::Objects::attach) makes the heap: each rank has a part of it, of
//! [`HeapOptions::bytes`](crate::HeapOptions::bytes), in a file of the folder `nvm.directory` that takes room
//! as it is written. Memory is only a cache of it, of `--cache` for each node. So give as many bytes as there
//! is NVMe for; a full part overflows into that of another rank, and when all are full
//! [`DBox::try_new`](crate::DBox::try_new) returns an error with the value.
//!
//! A value takes a slot: up to 32 KiB, one of 37 sizes, mostly at most a quarter larger (half, below 64 bytes
//! and from 8 KiB on); beyond, whole pieces of 64 KiB. A row that grows by [`push`](crate::DVec::push)
//! doubles its slot, and leaves the old one for others; one whose length is known is made
//! [`with_capacity`](crate::DVec::with_capacity). Copies of remote objects take room in the same part, a
//! quarter of the cache at most.
//!
//! # 4. The program, and its tasks
//!
//! [`Objects::run`](crate::Objects::run) runs a program on the first rank; the other ranks wait for tasks. A
//! [`task!`](crate::task) is a closure that captures nothing: it works on its arguments, which move, or on
//! its loans from a [`scope`](crate::scope), which stay. A task with loans runs where they are, unless
//! [`spawn_to`](crate::spawn_to) names a rank. Divide work into several times as many tasks as there are
//! cores, of some milliseconds each: ranks with nothing to do take those that have not begun.
//!
//! A task returns what may lie in the heap. An error of std or of this crate may not, so a failing task
//! simply panics: the thread that joins it receives the message, and decides. Errors that a program tells
//! apart are an enum of its own.
//!
//! ```no_run
//! use vgas_objects::{DBox, DVec, Portable, TaskError, spawn, task};
//!
//! #[derive(Portable)]
//! enum Why { Full, Odd(u64) }
//!
//! fn place(number: u64) -> Result<DBox<u64>, Why> {
//!     if number % 2 == 1 { return Err(Why::Odd(number)) }
//!     DBox::try_new(number).map_err(|_| Why::Full)
//! }
//!
//! let placed = spawn(task!(|number: u64| place(number)), 6).join();
//! match placed {
//!     Ok(Ok(_)) => {}
//!     Ok(Err(Why::Full)) => eprintln!("no room is left on any rank"),
//!     Ok(Err(Why::Odd(number))) => eprintln!("{number} is odd"),
//!     Err(TaskError::Panicked { rank, message }) => eprintln!("on {rank}: {message}"),
//!     Err(other) => eprintln!("{other}"),
//! }
//! ```
//!
//! # 5. Reading and writing
//!
//! `&` reads: a remote object arrives as a copy, which stays while it is used and there is room. `&mut`
//! writes: a remote object moves to the writing rank, and no rank can read an old copy afterwards. A value
//! with many writers goes into a [`DMutex`](crate::sync::DMutex) or a
//! [`DAtomicU64`](crate::sync::DAtomicU64).
//!
//! `*object` and `object.field` do both, and panic where an object cannot be reached; what begins with `try_`
//! returns the error instead. Functions on the box rather than on its object are called with its type, as on
//! an `Arc`:
//!
//! ```no_run
//! # use vgas::Rank;
//! # use vgas_objects::DBox;
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut number = DBox::new_on(Rank(1), 7u64)?;
//! assert_eq!(DBox::rank(&number), Some(Rank(1)));
//! assert_eq!(*number.try_read()?, 7);
//! DBox::move_to(&mut number, Rank(0))?;
//! let word = DBox::into_raw(number);
//! // SAFETY: the word of a box that was made into it, once.
//! let number: DBox<u64> = unsafe { DBox::from_raw(word) };
//! # drop(number); Ok(()) }
//! ```
//!
//! # 6. All of it
//!
//! This is `objects/examples/first.rs`:
//!
//! ```no_run
#![doc = include_str!("../examples/first.rs")]
//! ```
//!
//! ```sh
//! cargo build --release --examples
//! target/release/vgas run -n 4 --nodes 2 --cache 64MiB -- target/release/examples/first          # fits
//! target/release/vgas run -n 4 --nodes 2 --cache 64MiB -- target/release/examples/first 20000    # 1.3 GB, ten times the caches
//! target/release/vgas run -n 16 --hosts hosts.txt --cache 8GiB -- /shared/first 200000           # on other machines
//! ```
//!
//! # 7. What is to be there tomorrow
//!
//! A heap with a name is found again by a later job of as many ranks, as its last checkpoint has left it. A kept object has a name on its rank;
//! [`root`](crate::Objects::root) takes it out of the heap's hands, so what a next job is to find is kept again before the next checkpoint. All
//! ranks make a checkpoint together, so not within [`run`](crate::Objects::run).
//!
//! ```no_run
//! use vgas::{Rank, Runtime};
//! use vgas_objects::{DBox, DMap, HeapOptions, ObjectError, Objects};
//!
//! fn main() -> Result<(), ObjectError> {
//!     // SAFETY: the files of this name are what checkpoints of this program have left, and nobody else has changed them.
//!     let objects = unsafe { Objects::attach_named(&Runtime::init()?, &HeapOptions::default(), "visits") }?;
//!     if objects.rank() == Rank(0) {
//!         let mut visits: DBox<DMap<u64, u64>> =
//!             objects.root("by day")?.unwrap_or_else(|| DBox::new(DMap::new()));
//!         *visits.entry(20_000).or_default() += 1;
//!         objects.keep("by day", visits)?;
//!     }
//!     objects.checkpoint()?;
//!     objects.finalize()
//! }
//! ```
//!
//! The names of types are kept with them, with their crate's: programs that read each other's heaps have these types from a library. Files are
//! `NAME.*.vgas` in the folder `nvm.directory`; who removes them has removed the heap. `vgas objects` shows what is
//! in them.
//!
//! # 8. Futures
//!
//! [`DBox::get`](crate::DBox::get) and a [`JoinHandle`](crate::JoinHandle) are futures of no executor in particular. A program without one has this:
//!
//! ```no_run
//! use std::{future::Future, pin::pin, sync::Arc, task::{Context, Poll, Wake, Waker}, thread::{self, Thread}};
//!
//! struct Unpark(Thread);
//!
//! impl Wake for Unpark {
//!     fn wake(self: Arc<Self>) { self.0.unpark() }
//! }
//!
//! fn block_on<F: Future>(future: F) -> F::Output {
//!     let (waker, mut future) = (Waker::from(Arc::new(Unpark(thread::current()))), pin!(future));
//!     loop {
//!         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
//!             Poll::Ready(output) => return output,
//!             Poll::Pending => thread::park(),
//!         }
//!     }
//! }
//! # let number = vgas_objects::DBox::new(7u64);
//! let number = block_on(number.get()).map(|number| *number);
//! ```
//!
//! # 9. When it is slow, or does not go on
//!
//! * `vgas run --stats` prints what each rank has, what it has fetched, and what its node has handed on. Many fetches of small objects: read them
//!   together ([`DBox::read_all`](crate::DBox::read_all)), or tie them ([`TBox`](crate::TBox)).
//! * A scan of more than the cache waits for NVMe unless the next part is asked for before ([`prefetch`](crate::prefetch)).
//! * Small objects at random, many times more than the cache: each brings a page of `--page` bytes. Place what is used together at the same time, which lies
//!   together then, tie it, or work through it in the order in which it lies; if that cannot be, try 16 KiB. Smaller ones cost a fault for each.
//! * Memory that is used for the first time costs the system milliseconds for 2 MiB: `--set cache.prefault=on` has that happen at the start.
//! * A rank that is killed ends the job with a line that names it. To go on without a node: [`HeapOptions::replicas`](crate::HeapOptions::replicas).
