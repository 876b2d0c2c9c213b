//! Std's names for owned objects: a program of boxes, vectors, text, maps, shared values, locks, threads and channels becomes one of many nodes
//! by other imports, and a derive on its types (DRust §5).
//!
//! ```no_run
//! use vgas_objects::{dvec as vec, prelude::*};
//!
//! #[derive(Clone, Portable, Shareable)]
//! struct Word {
//!     text: String,
//!     seen: u64,
//! }
//!
//! fn main() -> Result<(), Failed> {
//!     run(|| {
//!         let counts: Arc<Mutex<HashMap<String, u64>>> = Arc::new(Mutex::new(HashMap::new()));
//!         let (sender, receiver) = mpsc::sync_channel(16);
//!         let texts: Vec<String> = vec!["to be or not".into(), "to be".into()];
//!         thread::scope(|scope| {
//!             let mut all = std::vec![];
//!             for text in &texts {
//!                 let (counts, sender) = (counts.clone(), sender.clone());
//!                 all.push(scope.spawn(call!(|text, counts, sender| {
//!                     for word in text.split(' ') {
//!                         *counts.lock().unwrap().entry(word.into()).or_default() += 1;
//!                     }
//!                     let _ = sender.send(Word { text: text.clone(), seen: text.len() as u64 });
//!                 })));
//!             }
//!         });
//!         drop(sender);
//!         assert_eq!(receiver.iter().map(|word| word.seen).sum::<u64>(), 17);
//!         assert_eq!(counts.lock().unwrap().get("be").as_deref(), Some(&2));
//!     })
//! }
//! ```
//!
//! | of std | here |
//! |---|---|
//! | `Box`, `Vec`, `vec!`, `String` | [`DBox`](crate::DBox), [`DVec`](crate::DVec), [`dvec!`](crate::dvec), [`DString`](crate::DString) |
//! | `collections::HashMap` | [`DMap`](crate::DMap), also in [`collections`] |
//! | `sync::{Arc, Weak, Mutex, RwLock, Condvar, Barrier}` | [`DArc`](crate::sync::DArc), [`DWeak`](crate::sync::DWeak) and the others of [`crate::sync`], also in [`sync`] |
//! | `sync::atomic`, `sync::mpsc`, `thread` | [`atomic`], [`mpsc`], [`thread`] |
//!
//! # What differs, and why
//!
//! | | |
//! |---|---|
//! | `thread::spawn(move \|\| …)` | is `thread::spawn(call!(\|what, it, uses\| …))`: what a closure has captured, nobody can look into, and so not take to another process. [`call!`](crate::call) takes the same variables by name, and checks each |
//! | types | derive [`Portable`], and [`Shareable`] if others may read them. `&str`, references, `Rc`, files and functions of this process cannot be in them; `Cell` and std's locks and atomics cannot be shared |
//! | `Box<dyn Trait>`, `Box<[T]>` | do not exist: a table of functions means nothing elsewhere. An `enum`; a `Vec` |
//! | moving out of a box, `*boxed` | `boxed.into_inner()`: only std's `Box` can have the other |
//! | `vec!` | is `dvec!`, which an import may rename, as above: a glob may not hide std's macro |
//! | `format!`, `to_string`, `to_vec`, `to_owned` | make std's `String` and `Vec`, for use in one process; `.into()` makes them these |
//! | a `Vec` of what is not portable, as of `JoinHandle`s | is `std::vec::Vec`. So is best what one thread builds step by step: it grows where it need not be found by others, and `.into()` moves it at once |
//! | `HashMap::get` | yields something that derefs to the value, which may have been brought for it. Keys hash alike everywhere, without a secret |
//! | `Arc::get_mut`, `make_mut`, `try_unwrap`, `strong_count` | yield a `Result`, as the count may be on another node; what ranks keep counts |
//! | `Weak::upgrade` | may yield a value whose last owner on another rank is gone, until what that rank keeps is given back |
//! | `Mutex::lock` and the like | have the error [`LockError`](crate::sync::LockError): poison does not give the guard; `clear_poison` does |
//! | `RwLock<T>` | needs `T: Shareable`, as readers have copies |
//! | `mpsc::channel` | has room for 65,536 values; who sends more waits |
//! | `{:?}` of a `Box` or a `HashMap` | says where it is, or how many it has: to print what is in it would bring it. `{:?}` of `&*boxed`, or of the entries, prints them |
//! | methods of what is in a `Box` | are hidden by those of the box that have its name, as `get` of a map, or `read` of a lock: `(*boxed).get(&key)` |
//! | `vec![…]` for rows of values without bytes | as `Vec<()>`, does not exist |
//! | a panic of a thread | is [`TaskError::Panicked`](crate::TaskError) of `join`, with what it has said, in place of `Box<dyn Any>` |
//! | a `JoinHandle` that is dropped | waits: what a program has begun is over with it. So a loop keeps its handles |
//! | who has no room, or misses a lost node | panics, as std ends where there is no memory; methods that begin with `try_` say so instead |
//! | `main` | calls [`run`], or [`run_with`] options |

pub mod atomic;
pub mod mpsc;
pub mod thread;

#[doc(no_inline)]
pub use crate::sync::{
    DArc as Arc, DBarrier as Barrier, DCondvar as Condvar, DMutex as Mutex, DRwLock as RwLock, DWeak as Weak,
};
#[doc(no_inline)]
pub use crate::{DBox as Box, DMap as HashMap, DString as String, DVec as Vec, Portable, Shareable, call};

use crate::Objects;
#[doc(no_inline)]
pub use crate::{HeapOptions, RunOptions};
use vgas::Runtime;

/// Std's `collections`.
pub mod collections {
    #[doc(no_inline)]
    pub use crate::DMap as HashMap;
}

/// Std's `sync`.
pub mod sync {
    #[doc(no_inline)]
    pub use super::{Arc, Barrier, Condvar, Mutex, RwLock, Weak, atomic, mpsc};
}

/// Why a program has ended that was [run].
pub type Failed = std::boxed::Box<dyn std::error::Error>;

/// Runs a program in a job: on the first rank, its threads on all ranks. Options are the default ones; [`run_with`] takes others.
///
/// # Errors
/// If the job cannot be joined, or a peer is lost.
pub fn run(program: impl FnOnce()) -> Result<(), Failed> {
    run_with(&HeapOptions::default(), &RunOptions::default(), program)
}

/// Runs a program as [`run`] does, with a heap and with workers of these options, which are the same on all ranks.
///
/// ```no_run
/// use vgas_objects::prelude::*;
///
/// fn main() -> Result<(), Failed> {
///     let heap = HeapOptions { bytes: 4 << 30, ..HeapOptions::default() };
///     let workers = RunOptions { workers: 8, ..RunOptions::default() };
///     run_with(&heap, &workers, || println!("{}", Box::new(1)))
/// }
/// ```
///
/// # Errors
/// If the job cannot be joined, the heap or the workers are refused, or a peer is lost.
pub fn run_with(heap: &HeapOptions, workers: &RunOptions, program: impl FnOnce()) -> Result<(), Failed> {
    let objects = Objects::attach(&Runtime::init()?, heap)?;
    objects.run(workers, program)?;
    Ok(objects.finalize()?)
}
