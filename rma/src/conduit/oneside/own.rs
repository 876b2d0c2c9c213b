//! The process's own segment, out of which puts and into which gets go without a copy.
//!
//! It is registered when that first happens, once and also for peers that are given access later.

use super::Name;
use std::sync::{Arc, OnceLock};
use vgas_shm::Mapping;

pub(in crate::conduit) struct Own<R> {
    offered: OnceLock<(Name, Arc<Mapping>, usize)>,
    /// None: it was refused; bytes are copied.
    registered: OnceLock<Option<Arc<R>>>,
}

impl<R> Default for Own<R> {
    fn default() -> Self {
        Self { offered: OnceLock::new(), registered: OnceLock::new() }
    }
}

impl<R> Own<R> {
    /// The first bytes of this memory are the segment.
    pub(in crate::conduit) fn offer(&self, name: Name, memory: Arc<Mapping>, bytes: u64) {
        let _ = self.offered.set((name, memory, bytes as usize));
    }

    /// Where so many bytes lie in it, registered, if they do. The first time, `register` is asked for all of it, and may
    /// refuse for ever.
    pub(in crate::conduit) fn find(
        &self,
        address: *const u8,
        bytes: usize,
        register: impl FnOnce(Name, &Arc<Mapping>, usize) -> Option<Arc<R>>,
    ) -> Option<(&R, usize)> {
        let (name, memory, length) = self.offered.get()?;
        let offset = address.addr().checked_sub(memory.base().addr())?;
        if offset.checked_add(bytes)? > *length {
            return None;
        }
        let registered = self.registered.get_or_init(|| register(*name, memory, *length));
        Some((registered.as_deref()?, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Peer, RegionId};

    /// Goal: only bytes inside of what was offered are found, and a refusal is asked for once.
    #[test]
    fn what_lies_inside_is_found() {
        let memory = Mapping::anonymous("vgas-own-test", 4096).unwrap();
        let base = memory.base().cast_const();
        for granted in [Some(Arc::new(7)), None] {
            let own = Own::default();
            assert!(own.find(base, 1, |_, _, _| unreachable!()).is_none(), "nothing was offered");
            own.offer((Peer(0), RegionId::SEGMENT), memory.clone(), 100);
            assert!(own.find(base.wrapping_add(99), 2, |_, _, _| unreachable!()).is_none());
            let mut asked = 0;
            for _ in 0..2 {
                let found = own.find(base.wrapping_add(99), 1, |_, _, bytes| {
                    (asked, _) = (asked + 1, assert_eq!(bytes, 100));
                    granted.clone()
                });
                assert_eq!(found, granted.as_ref().map(|_| (&7, 99)));
            }
            assert_eq!(asked, 1);
        }
    }
}
