//! The process's own segment, out of which puts and into which gets go without a copy.
//!
//! It is registered when that first happens, once and also for peers that are given access later. Locked memory that peers
//! need goes before: where the limit would leave less than was taken, bytes are copied.

#![forbid(unsafe_code)]

use super::INLINE_MAX;
use super::packet::Name;
use super::shared::Shared;
use super::verbs::{Registration, locked_memory_limit};
use crate::shm::Mapping;
use std::sync::{Arc, OnceLock};

#[derive(Default)]
pub(super) struct Own {
    offered: OnceLock<(Name, Arc<Mapping>, usize)>,
    /// None: the device, or the limit of locked memory, has refused; bytes are copied.
    registered: OnceLock<Option<Arc<Registration>>>,
}

impl Own {
    /// The first bytes of this memory are the segment.
    pub(super) fn offer(&self, name: Name, memory: Arc<Mapping>, bytes: u64) {
        let _ = self.offered.set((name, memory, bytes as usize));
    }
}

impl Shared {
    /// Where so many bytes lie in the own segment, registered, if they do. Few bytes are copied sooner than looked for.
    pub(super) fn in_own_segment(&self, address: *const u8, bytes: usize) -> Option<(&Registration, usize)> {
        let (name, memory, length) = self.own.offered.get().filter(|_| bytes > INLINE_MAX)?;
        let offset = address.addr().checked_sub(memory.base().addr())?;
        if offset.checked_add(bytes)? > *length {
            return None;
        }
        let register = || {
            if locked_memory_limit().is_some_and(|limit| *length as u64 > limit / 2) {
                tracing::info!(
                    "puts and gets of the own segment are copied: `ulimit -l` is too small to lock it"
                );
                return None;
            }
            self.register(*name, memory.clone(), *length)
                .inspect_err(|error| tracing::warn!("puts and gets of the own segment are copied: {error}"))
                .ok()
        };
        Some((self.own.registered.get_or_init(register).as_deref()?, offset))
    }
}
