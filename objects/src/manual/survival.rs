//! State that outlives a job, and state that outlives a node.
//!
//! # Named heaps outlive the job
//!
//! A heap with a name ([`Objects::attach_named`]) is opened again by a later job of as many ranks, as its last [`Objects::checkpoint`] left
//! it. The job finds the objects that were [kept](Objects::keep) under names, and everything they lead to. Pointers mean the same as
//! before; nothing is read, walked or decoded until it is used. A job cannot read an object as another type than it was kept as
//! ([`Layout`]). `objects/examples/tree.rs` is such a program.
//!
//! # Replicas outlive a node
//!
//! With [`HeapOptions::replicas`] = 1, in a job started with `run.survive = on` and `conduit = tcp`, the job may lose one node: its daemon
//! or one of its ranks is killed, or no other node reaches it. Every object that was ever passed on is still there, with the value it had
//! then, and is used as before. `heap/replica.rs` has the details.
//!
//! A job cannot survive a loss while it attaches the heap. If the first node is lost, an [`Objects::run`] ends with it, and so does the
//! job, because `main` runs there; a program that starts its part on each rank continues. A named heap may have replicas as well: a later
//! job finds the last checkpoint, whatever was lost after it.
//!
//! After the loss:
//!
//! * **Objects** of the lost ranks are read from their backups, and move to the rank that writes them.
//! * **Tasks** of the lost node are [`TaskError::Lost`]; what was lent to them is unchanged. Tasks continue on the other ranks, except on
//!   a rank that was entering or leaving [`Objects::run`] and heard of the loss there: tasks sent to it are [`TaskError::Abandoned`].
//! * **No object has two owners.** If a lost rank had passed objects on (by a channel, a lock, a task or
//!   [`Objects::hand`]) while it held a lock or a mutable loan, these objects may have come from there. Then
//!   the value of the lock is gone ([`LockError::Given`]), and boxes, rows and counted values in the loan are
//!   [`ObjectError::Lost`]; to drop them is a no-op. Values that a lost rank had only dropped are dropped
//!   again by their owners: a `Drop` with an effect outside of the heap may run twice.
//! * **Locks** that a lost rank held are poisoned otherwise ([`LockError::Left`]), with the value that they had before.
//! * **Channels, barriers and conditions** whose place was on the lost node are [`ObjectError::Lost`]; the error names type, place and
//!   call. A receiver is told of the loss once, after all values that had arrived ([`Receiver::recv_checked`]), because a sender may have
//!   been there. A sender is told if the receiver was there and no room is left ([`Sender::send_checked`]).
//! * **Collective calls** ([`Objects::barrier`], [`Objects::hand`], [`Objects::lend`]) fail from then on, except [`Objects::finalize`].
//!
//! Cost: to pass an object on, a rank scans its partition for dirty objects and ships them; the first write to an object that was passed on
//! copies it; and within [`Objects::run`], where ranks do not meet, an object that was passed on keeps its place until the end.
//!
//! [`LockError::Given`]: crate::sync::LockError::Given
//! [`LockError::Left`]: crate::sync::LockError::Left
//! [`Receiver::recv_checked`]: crate::sync::Receiver::recv_checked
//! [`Sender::send_checked`]: crate::sync::Sender::send_checked

#[cfg(doc)]
use crate::{HeapOptions, Layout, ObjectError, Objects, TaskError};
