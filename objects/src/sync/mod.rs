//! What several owners share (drust-osdi24.txt §4.1.2 and §4.1.3): each type here is a name of at most 32 bytes, of something that
//! lies at one place. The name is portable and shareable: it travels in boxes and in what is handed and lent, and is used by reference
//! from wherever it can be read, also through a copy.
//!
//! | file | what | messages, when the place is another node's and nobody is in the way |
//! |---|---|---|
//! | `atomic.rs` | [`DAtomic`]: a number that all update | 2 |
//! | `mutex.rs`, `rwlock.rs` | [`DMutex`]: a value that one at a time has; [`DRwLock`]: or several, to read | 3, with the value |
//! | `arc.rs`, `units.rs` | [`DArc`]: a value with several owners | reading as of a box; a rank's first clone 2, others none; drop a 64th |

mod arc;
mod atomic;
mod mutex;
mod rwlock;
mod units;

pub use arc::DArc;
pub(crate) use arc::flush;
pub use atomic::{DAtomic, DAtomicBool, DAtomicI32, DAtomicI64, DAtomicU32, DAtomicU64};
pub use mutex::{DMutex, Guard, LockError};
pub use rwlock::{DRwLock, ReadGuard};
