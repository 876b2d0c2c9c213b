//! Values of types that are not [`Portable`], in the heap: archived by rkyv, and read in place, without
//! deserialising.

use crate::glue::Glue;
use crate::layout::Layout;
use crate::word::Link;
use crate::{DVec, ObjectError, Portable, Shareable};
use rkyv::api::high::{HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::Error;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// A value of any type that rkyv can archive, std's `String`, `Vec` and `HashMap` in it too, as one object of the heap: it moves, is read
/// by others and goes to NVMe as a row of bytes. 32 bytes.
///
/// ```no_run
/// use rkyv::{Archive, Serialize};
/// use vgas_objects::views::rkyv::{ArchiveError, DArchive};
///
/// #[derive(Archive, Serialize)]
/// struct Page {
///     title: String,
///     links: Vec<String>,
/// }
///
/// fn longest(page: &DArchive<Page>) -> Result<usize, ArchiveError> {
///     Ok(page.view()?.links.iter().map(|link| link.len()).max().unwrap_or(0))
/// }
/// ```
pub struct DArchive<T> {
    /// The bytes that rkyv wrote: it looks for the value from their end.
    bytes: DVec<u8>,
    of: PhantomData<fn() -> T>,
}

/// Why a value cannot be archived, or not be seen.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// No room, or it cannot be reached.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The value cannot be archived, as rkyv says.
    #[error("cannot archive a {of}: {why}")]
    Refused {
        /// Its type.
        of: &'static str,
        /// rkyv's error.
        why: Error,
    },
    /// The bytes are no archived value of this type: they are of another program, or of another version of
    /// it.
    #[error("what lies there is no archived {of}: {why}")]
    Invalid {
        /// The type that was asked for.
        of: &'static str,
        /// rkyv's error.
        why: Error,
    },
}

// SAFETY: its only field that has bytes is portable. The archive's targets lie in it, by distances. It is
// `Send` and `Sync`, as they are: an archived type has no interior mutability (`rkyv::Portable`), and a view
// needs one that threads may share.
unsafe impl<T: 'static> Portable for DArchive<T> {
    const HAS_LINKS: bool = true;

    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        self.bytes.links(visit);
    }

    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        self.bytes.weigh(visit);
    }

    fn glue(glue: &mut Glue) {
        // An archive has nothing to drop.
        glue.part::<DVec<u8>>();
    }

    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
    }
}

// SAFETY: as its only field that has bytes.
unsafe impl<T: 'static> Shareable for DArchive<T> {}

impl<T: Archive> DArchive<T> {
    /// Archives a value, in this rank's partition.
    ///
    /// # Errors
    /// When rkyv cannot, or there is no room.
    pub fn new(value: &T) -> Result<Self, ArchiveError>
    where
        T: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, Error>>,
    {
        let of = std::any::type_name::<T>();
        let written = rkyv::to_bytes::<Error>(value).map_err(|why| ArchiveError::Refused { of, why })?;
        let mut bytes = DVec::new();
        bytes.try_extend_from(&written)?;
        Ok(Self { bytes, of: PhantomData })
    }

    /// Returns the archived value, in place, or in a copy that is brought, as [`DVec::try_as_slice`] does.
    /// All of it is checked each time: keep the view for repeated access.
    ///
    /// # Errors
    /// If it cannot be reached, or is no such value.
    #[track_caller]
    pub fn view(&self) -> Result<&T::Archived, ArchiveError>
    where
        T::Archived: Sync + for<'a> CheckBytes<HighValidator<'a, Error>>,
    {
        let bytes = self.bytes.try_as_slice()?;
        rkyv::access::<T::Archived, Error>(bytes)
            .map_err(|why| ArchiveError::Invalid { of: std::any::type_name::<T>(), why })
    }

    /// Bytes of the archive; no message is needed to know.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<T> fmt::Debug for DArchive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DArchive({}, {} bytes)", std::any::type_name::<T>(), self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Goal: an archive is as shareable as its bytes, whatever it is of: a view of it is lent only if threads may share that.
    #[test]
    fn archives_are_shared_as_bytes_are() {
        fn is_shared<T: Send + Sync + Shareable>() {}
        is_shared::<DArchive<Cell<*mut u8>>>();
        is_shared::<DVec<u8>>();
        assert_eq!(size_of::<DArchive<Cell<*mut u8>>>(), size_of::<DVec<u8>>());
    }
}
