//! Objects with several owners (DRust §4.1.2 and §4.1.3): each type here is a name, of at most 32 bytes, of
//! an object at a fixed place. The name is portable and shareable: it travels in boxes and in hand-overs and
//! loans, and is used by reference from any place where it can be read, even through a copy.
//!
//! | file | what | messages, when the place is another node's and nobody is in the way |
//! |---|---|---|
//! | `atomic.rs` | [`DAtomic`]: a number that all update | 2 |
//! | `mutex.rs`, `rwlock.rs` | [`DMutex`]: a value that one at a time has; [`DRwLock`]: or several, to read | 3, with the value |
//! | `with.rs` | [`DMutex::with`]: a task that goes to the value | 2 |
//! | `condvar.rs`, `barrier.rs` | [`DCondvar`], [`DBarrier`]: waiting for others | 2, when it is over |
//! | `channel.rs`, `outlet.rs` | [`channel`]: values that go to one rank as they come | 2 for up to 8 KiB of values, on each side |
//! | `arc.rs`, `count.rs`, `units.rs` | [`DArc`]: a value with several owners | reading as of a box; a rank's first clone 2, others none; drop a 64th |
//! | `weak.rs` | [`DWeak`]: who knows of such a value, and does not keep it | a rank's first 2, its first upgrade 4, others none; drop a 64th |

mod arc;
mod atomic;
mod barrier;
mod channel;
mod condvar;
mod count;
mod mutex;
mod outlet;
mod rwlock;
mod units;
mod wait;
#[cfg(test)]
mod walk;
mod weak;
mod with;

pub use arc::DArc;
pub(crate) use arc::flush;
pub use atomic::{DAtomic, DAtomicBool, DAtomicI32, DAtomicI64, DAtomicU32, DAtomicU64};
pub use barrier::{DBarrier, DBarrierWaitResult};
pub use channel::{
    IntoIter, Receiver, RecvError, RecvTimeoutError, SendError, Sender, TryRecvError, TrySendError, channel,
    try_channel,
};
pub use condvar::{DCondvar, WaitTimeoutResult};
pub(crate) use mutex::settle_locks;
pub use mutex::{DMutex, Guard, LockError};
pub(crate) use outlet::{look, settle};
pub use rwlock::{DRwLock, ReadGuard};
pub(crate) use wait::until;
pub use weak::DWeak;
