//! The registrations of regions: of those that were granted to a peer, and of those that payloads are sent out of.

use crate::address::{Peer, RegionId};
use crate::error::Result;
use crate::message::Source;
use std::sync::{Arc, PoisonError, RwLock};

/// A region, by its owner and number.
pub(in crate::conduit) type Name = (Peer, RegionId);

/// Memory that a device knows.
pub(in crate::conduit) trait Registered {
    /// The offset of an address range in it, if it lies inside.
    fn offset_of(&self, address: *const u8, bytes: usize) -> Option<usize>;
}

/// Registered regions. One is released only when it is unused: requests of peers may be in flight.
pub(in crate::conduit) struct Regions<R>(RwLock<Vec<(Name, Arc<R>)>>);

impl<R> Default for Regions<R> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<R: Registered> Regions<R> {
    /// The registration of this region; made the first time.
    ///
    /// # Errors
    /// Those of `register`.
    pub(in crate::conduit) fn get(&self, name: Name, register: impl FnOnce() -> Result<R>) -> Result<Arc<R>> {
        let mut regions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, registration)) = regions.iter().find(|(known, _)| *known == name) {
            return Ok(registration.clone());
        }
        let registration = Arc::new(register()?);
        regions.push((name, registration.clone()));
        Ok(registration)
    }

    /// Gives the registration of a region back, if there is one.
    pub(in crate::conduit) fn forget(&self, name: Name) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != name);
    }

    /// Returns the place of a source in registered memory, if any.
    pub(in crate::conduit) fn find(&self, source: Source<'_>) -> Option<(Arc<R>, usize)> {
        let regions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        regions.iter().find_map(|(_, region)| {
            region.offset_of(source.address(), source.bytes()).map(|offset| (region.clone(), offset))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RmaError;

    struct Range(usize, usize);

    impl Registered for Range {
        fn offset_of(&self, address: *const u8, bytes: usize) -> Option<usize> {
            let offset = address.addr().checked_sub(self.0)?;
            (offset + bytes <= self.1).then_some(offset)
        }
    }

    /// Goal: a region is registered once, found by the bytes inside, tried again after a failure, and given
    /// back.
    #[test]
    fn a_region_is_registered_once_and_found_by_its_bytes() {
        let bytes = [0u8; 64];
        let regions = Regions::default();
        let name = (Peer(1), RegionId::SEGMENT);
        assert!(regions.get(name, || Err(RmaError::Usage("no".into()))).is_err());
        let first = regions.get(name, || Ok(Range(bytes.as_ptr().addr(), 32))).unwrap();
        let again = regions.get(name, || unreachable!()).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let offset = |source| regions.find(source).map(|(_, offset)| offset);
        assert_eq!(offset(Source::of(&bytes[8..32])), Some(8));
        assert_eq!(offset(Source::of(&bytes[8..33])), None);
        regions.forget((Peer(2), RegionId::SEGMENT));
        assert_eq!(offset(Source::of(&bytes[8..32])), Some(8));
        regions.forget(name);
        assert_eq!(offset(Source::of(&bytes[8..32])), None);
        drop(again);
        assert_eq!(Arc::strong_count(&first), 1, "nobody keeps the registration");
    }
}
