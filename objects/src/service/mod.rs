//! Services of owned objects in the daemons of nodes.

pub(crate) mod barriers;
mod bytes;
pub(crate) mod channels;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod handed;
mod heap;
mod hints;
pub(crate) mod locks;

pub(crate) use bytes::Bytes;
pub(crate) use heap::{
    Answer, CopyAt, Freed, HeapService, Kind, LIST_READS_MAX, NOTE_WORDS_MAX, Read, Request,
};

use vgas::service::Services;

/// The services of owned objects ([`vgas::service`]). The daemons that `vgas run` starts have them; a program that is the daemon of its
/// nodes begins with `vgas::service::serve_node(vgas_objects::services)`, and adds its own.
pub fn services() -> Services {
    Services::default()
        .with(HeapService::default())
        .with(locks::LockService::default())
        .with(channels::ChannelService::default())
        .with(barriers::BarrierService::default())
}
