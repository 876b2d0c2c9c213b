//! The process's own segment, out of which puts and into which gets go without a copy. It is registered when that first
//! happens, for this side only: who of the other side may reach it is another registration, of the agent that serves it.

#![forbid(unsafe_code)]

use super::INLINE_MAX;
use super::verbs::{Context, Peers, Registration};
use crate::shm::Mapping;
use std::sync::{Arc, OnceLock};

#[derive(Default)]
pub(super) struct Own {
    offered: OnceLock<(Arc<Mapping>, usize)>,
    /// None: the device, or the limit of locked memory, has refused; bytes are copied.
    registered: OnceLock<Option<Registration>>,
}

impl Own {
    /// The memory, once.
    pub(super) fn offer(&self, memory: Arc<Mapping>, bytes: u64) {
        let _ = self.offered.set((memory, bytes as usize));
    }

    /// Where so many bytes lie in it, registered, if they do. Few bytes are copied sooner than looked for.
    pub(super) fn find(
        &self,
        context: &Arc<Context>,
        address: *const u8,
        bytes: usize,
    ) -> Option<(&Registration, usize)> {
        let (memory, length) = self.offered.get().filter(|_| bytes > INLINE_MAX)?;
        let offset = address.addr().checked_sub(memory.base().addr())?;
        if offset.checked_add(bytes)? > *length {
            return None;
        }
        let registered = self.registered.get_or_init(|| {
            let registration = context.register(memory.clone(), *length, Peers::Nothing);
            registration
                .inspect_err(|error| tracing::info!("puts and gets of the own segment are copied: {error}"))
                .ok()
        });
        Some((registered.as_ref()?, offset))
    }
}
