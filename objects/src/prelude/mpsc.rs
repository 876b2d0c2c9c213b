//! Std's `sync::mpsc`: [channels](crate::sync::channel), whose ends go to other ranks.

use crate::Portable;
#[doc(no_inline)]
pub use crate::sync::{
    IntoIter, Receiver, RecvError, RecvTimeoutError, SendError, Sender, Sender as SyncSender, TryRecvError,
    TrySendError, channel as sync_channel,
};

/// Default room of a channel, in values.
const ROOM: usize = 1 << 16;

/// A channel with room for 65,536 values: a sender waits while it is full.
///
/// # Panics
/// As [`sync_channel`].
#[track_caller]
pub fn channel<T: Portable>() -> (Sender<T>, Receiver<T>) {
    sync_channel(ROOM)
}
