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
//! `cargo build --release` in the tree of vgas makes `target/release/vgas`, the command that starts jobs. `vgas info` says what the
//! machine offers; nothing of it must be there.
//!
//! # 2. What lies in the heap
//!
//! A type that others are to see derives [`Portable`](crate::Portable), so that it may lie in the heap, and
//! [`Shareable`](crate::Shareable), so that others may read it through copies. Its parts must be such types, too: numbers, arrays, tuples,
//! enums, [`DBox`](crate::DBox), [`DVec`](crate::DVec), [`DString`](crate::DString), [`DMap`](crate::DMap). A `String`, a reference or a file means
//! nothing in another process: the compiler says so, and what to use instead.
//!
//! # 3. How large it may become
//!
//! [`Objects::attach`](crate::Objects::attach) makes the heap: each rank has a part of it, of [`HeapOptions::bytes`](crate::HeapOptions::bytes), in a
//! file of the folder `nvm.directory` that takes room as it is written. Memory is only a cache of it, of `--cache` for each node. So
//! give as many bytes as there is NVMe for; a part that is full goes on in that of another rank, and when all are full
//! [`DBox::try_new`](crate::DBox::try_new) says so and gives the value back.
//!
//! # 4. The program, and its tasks
//!
//! [`Objects::run`](crate::Objects::run) runs a program on the first rank; the other ranks wait for tasks. A [`task!`](crate::task) is a closure that
//! captures nothing: what it is to work on are its arguments, which move, or what it is lent in a [`scope`](crate::scope), which stays. A task that is
//! lent something runs where that is, unless [`spawn_to`](crate::spawn_to) names a rank. Divide work into several times as many tasks as
//! there are cores, of some milliseconds each: ranks with nothing to do take those that have not begun.
//!
//! # 5. Reading and writing
//!
//! The rules are Rust's own. `&` reads: what is elsewhere comes as a copy, which stays as long as it is used and there is room. `&mut` writes: what is
//! elsewhere moves to the rank that writes, and nobody can look at an old copy afterwards. What many write goes into a
//! [`DMutex`](crate::sync::DMutex) or a [`DAtomicU64`](crate::sync::DAtomicU64).
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
//! # 7. When it is slow, or does not go on
//!
//! * `vgas run --stats` prints what each rank has, what it has fetched, and what its node has handed on. Many fetches of small objects: read them
//!   together ([`DBox::read_all`](crate::DBox::read_all)), or tie them ([`TBox`](crate::TBox)).
//! * A scan of more than the cache waits for NVMe unless the next part is asked for before ([`prefetch`](crate::prefetch)).
//! * A rank that is killed ends the job with a line that names it. To go on without a node: [`HeapOptions::replicas`](crate::HeapOptions::replicas).
//! * What is to be there tomorrow has a name: [`Objects::attach_named`](crate::Objects::attach_named), [`keep`](crate::Objects::keep),
//!   [`checkpoint`](crate::Objects::checkpoint).
