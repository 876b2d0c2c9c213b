//! The process's own parts of segments, sources of puts and destinations of gets without a copy.
//!
//! Each is registered at first use, once, and for peers that are given access later as well.

use super::Name;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use vgas_shm::Span;

pub(in crate::conduit) struct OfferedRegions<R>(RwLock<Vec<Offered<R>>>);

struct Offered<R> {
    name: Name,
    memory: Span,
    /// None: it was refused; bytes are copied.
    registered: OnceLock<Option<Arc<R>>>,
}

impl<R> Default for OfferedRegions<R> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<R> OfferedRegions<R> {
    /// This memory is one of the parts.
    pub(in crate::conduit) fn offer(&self, name: Name, memory: Span) {
        let offered = Offered { name, memory, registered: OnceLock::new() };
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(offered);
    }

    /// It is none any more.
    pub(in crate::conduit) fn forget(&self, name: Name) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|one| one.name != name);
    }

    /// Returns the place of bytes in one of them, registered, if they are in one. The first time, `register`
    /// is asked for all of it, and may refuse for ever.
    pub(in crate::conduit) fn find(
        &self,
        address: *const u8,
        bytes: usize,
        register: impl FnOnce(Name, &Span) -> Option<Arc<R>>,
    ) -> Option<(Arc<R>, usize)> {
        let offered = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (one, offset) = offered.iter().find_map(|one| {
            let offset = address.addr().checked_sub(one.memory.address().addr())?;
            (offset.checked_add(bytes)? <= one.memory.bytes()).then_some((one, offset))
        })?;
        let registered = one.registered.get_or_init(|| register(one.name, &one.memory));
        Some((registered.clone()?, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Peer, RegionId};
    use vgas_shm::Mapping;

    /// Goal: only bytes inside of offered memory are found, a refused registration is not repeated, and
    /// forgotten memory is released.
    #[test]
    fn what_lies_inside_is_found() {
        let memory = Mapping::anonymous("vgas-own-test", 4096).unwrap();
        let base = memory.base().cast_const();
        for granted in [Some(Arc::new(7)), None] {
            let own = OfferedRegions::default();
            assert!(own.find(base, 1, |_, _| unreachable!()).is_none(), "nothing was offered");
            let name = |index| (Peer(0), RegionId(RegionId::FURTHER.0 + index));
            own.offer(name(0), memory.span(100, 100));
            own.offer(name(1), memory.span(0, 100));
            assert!(own.find(base.wrapping_add(99), 2, |_, _| unreachable!()).is_none());
            let mut asked = 0;
            for _ in 0..2 {
                let found = own.find(base.wrapping_add(99), 1, |of, part| {
                    (asked, _) = (asked + 1, assert_eq!((of, part.bytes()), (name(1), 100)));
                    granted.clone()
                });
                assert_eq!(found, granted.clone().map(|granted| (granted, 99)));
            }
            assert_eq!(asked, 1);
            own.forget(name(1));
            assert!(own.find(base.wrapping_add(99), 1, |_, _| unreachable!()).is_none());
            assert!(granted.is_none_or(|granted| Arc::strong_count(&granted) == 1));
        }
    }
}
