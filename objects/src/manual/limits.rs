//! Limits, and when memory is reclaimed.
//!
//! # Room
//!
//! * A new value is placed on its own rank while there is room, then, within [`Objects::run`], on the rank with the most room
//!   ([`DBox::new`]). Rows, text and maps, and what [`DBox::get_mut`] brings, need room on the rank that writes them.
//! * Unused copies are evicted when a rank's copies exceed [`HeapOptions::copy_bytes`]. Copies in use keep their addresses, on NVMe if
//!   memory has no room.
//! * Ranks of one node fetch an object once. They read a large object without boxes from each other's memory; of other objects each rank has
//!   a copy of its own, because it notes in the copy what it has found.
//! * The files of a heap grow as they are written. If the file system becomes full, the job ends with a line that names the node and its
//!   folder; set `nvm.directory` to another one. If a plain load or store of an object finds it full, the process prints that line and dies
//!   of SIGBUS, because no error can be returned there.
//!
//! # Colours
//!
//! A slot has 65,535 colours. Each write or free of an object that another rank has read uses one. When they are used up, the object
//! moves to another slot, and the old slot is *retired* until every rank has confirmed that it has no copy from there. A rank asks for
//! this when it allocates, also within [`Objects::run`], and at each [`Objects::barrier`]. A slot stays retired while
//!
//! * another rank uses a copy from it (a forgotten borrow counts, and so does a link in a copy until that copy is evicted),
//! * a rank neither allocates nor is within a run, or
//! * the heap has replicas: then until the next barrier.
//!
//! [`Objects::counts`] returns the number of retired slots.
//!
//! # Drops
//!
//! * A copy never runs `Drop`. An object runs it once, where its owner drops it; an object of another rank moves there first, as for a
//!   write.
//! * An object that owns others is dropped by the rank that stores it, if neither it nor what it owns has a `Drop` of the program: when
//!   that rank allocates, when it is idle within [`Objects::run`], or at the next [`Objects::barrier`] at the latest. Until then it takes
//!   room, and its [`DArc`](crate::sync::DArc)s count. With replicas, the object moves to its owner instead.
//! * `mem::forget` of a box or borrow leaks the object or the copy, and is safe.
//!
//! # Programs
//!
//! Every rank runs the same program. Types are compared where objects are passed on; nothing can check the meaning of bytes. If a rank is
//! lost, the job ends, unless the heap has replicas ([`survival`](super::survival)).

#[cfg(doc)]
use crate::{DBox, HeapOptions, Objects};
