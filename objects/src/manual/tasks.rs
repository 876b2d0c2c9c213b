//! Tasks: closures that run on any rank.
//!
//! [`Objects::run`] runs your program on the first rank and its tasks on all ranks. [`spawn`] and [`spawn_to`] start a task,
//! [`JoinHandle::join`] waits for its result, and [`scope`] lends references to tasks. A [`task!`] is a closure that captures nothing: it
//! gets its arguments, and what it is lent, wherever it runs.
//!
//! A task that stays on its rank costs as much as a task of a thread pool; one on another rank costs a message and its reply. Arguments,
//! loans and result have at most 2 KiB each: put what is larger into a box.
//!
//! `main` runs on one rank only. Call collective functions ([`Objects::barrier`], [`Objects::lend`], [`Objects::report`]) before a run or
//! after it.
//!
//! # Running tasks do not migrate
//!
//! DRust moves the stacks of threads between servers (§4.2.1). In Rust that is unsound. The compiler may keep the address of a
//! thread-local variable across a call, so that a stack which continues on another thread uses the first thread's variable. Locks and
//! guards on the stack belong to the thread that took them. In another process, nothing is left of what the stack refers to, from `Vec` to
//! files. So vgas balances load with tasks that have *not* begun: a rank without work asks another rank, which gives away its oldest tasks.
//! Divide your work into more tasks than there are threads.
//!
//! # Programs to read
//!
//! Each of these exists twice, on objects and on std. `--verify` compares the results, and `diff` of its `plain.rs` and `objects.rs` shows
//! what becomes of a program: `vgas run -n 4 --nodes 2 -- target/release/examples/kv --verify`.
//!
//! | in `objects/examples` | shows |
//! |---|---|
//! | `kv` | shards of a store that tasks change where they are; requests and replies as rows that other ranks read |
//! | `dataframe` | tables larger than memory, tasks at their chunks, results merged by parts |
//! | `socialnet` | shared references, pages read through copies, a load generator with latencies |
//! | `matrix` | tasks that read copies of remote tiles; matrices cut and joined by moving names |
//! | `tree` | objects that outlive their job |
//!
//! [`task!`]: crate::task!

#[cfg(doc)]
use crate::{JoinHandle, Objects, scope, spawn, spawn_to};
