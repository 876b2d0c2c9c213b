//! Typed global addresses.

use crate::address::GlobalAddress;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::segment::Segment;
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;
use vgas_rma::Rank;

/// A pointer to a `T` in a segment, the same on every rank: UPC's pointer to shared, `global_ptr` of UPC++.
///
/// It is a plain value: copying and arithmetic touch no memory, and its target is checked when it is used.
/// Values are plain old data ([`Pod`]), which any bytes are.
///
/// # Examples
/// ```no_run
/// # fn example(runtime: &vgas::Runtime) -> vgas::Result<()> {
/// use vgas::{Rank, SegmentOptions};
/// let table = runtime.attach(&SegmentOptions::tiered(1 << 20))?;
/// let first = table.pointer::<f64>(Rank(0), 0)?;
/// let tenth = first.checked_add(10)?;
/// tenth.put(runtime, 0.5)?;
/// let mut row = [0.0; 16];
/// first.get_slice(runtime, &mut row)?;
/// assert_eq!((tenth.get(runtime)?, row[10]), (0.5, 0.5));
/// assert_eq!(tenth.distance_from(first), Some(10));
/// # Ok(()) }
/// ```
pub struct GlobalPtr<T> {
    address: GlobalAddress,
    values: PhantomData<fn() -> T>,
}

impl<T> Clone for GlobalPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for GlobalPtr<T> {}

impl<T> PartialEq for GlobalPtr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl<T> Eq for GlobalPtr<T> {}

impl<T> std::hash::Hash for GlobalPtr<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.address.hash(state);
    }
}

impl<T> fmt::Debug for GlobalPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GlobalAddress { rank, kind, segment, offset } = self.address;
        write!(
            f,
            "GlobalPtr<{}>({rank}, {kind:?} segment {}, {offset:#x})",
            std::any::type_name::<T>(),
            segment.0
        )
    }
}

impl Segment {
    /// Returns a pointer to the value that begins at `offset` bytes of a rank's part.
    ///
    /// # Errors
    /// For an offset that is not a multiple of `T`'s alignment.
    pub fn pointer<T: Pod>(&self, rank: Rank, offset: u64) -> Result<GlobalPtr<T>> {
        GlobalPtr::new(self.address(rank, offset))
    }
}

impl<T: Pod> GlobalPtr<T> {
    /// Returns a pointer to the value that begins at an address.
    ///
    /// # Errors
    /// For an offset that is not a multiple of `T`'s alignment: a value that straddles words could be torn.
    pub fn new(address: GlobalAddress) -> Result<Self> {
        match address.offset.is_multiple_of(align_of::<T>() as u64) {
            true => Ok(Self { address, values: PhantomData }),
            false => Err(Error::Usage(format!(
                "offset {} of {} is no place for a {}, whose alignment is {}",
                address.offset,
                address.partition(),
                std::any::type_name::<T>(),
                align_of::<T>()
            ))),
        }
    }

    /// Returns the address of the value's first byte.
    pub fn address(self) -> GlobalAddress {
        self.address
    }

    /// Returns the rank that owns the value.
    pub fn rank(self) -> Rank {
        self.address.rank
    }

    /// Returns whether the value is in the calling rank's part.
    pub fn is_local(self, runtime: &Runtime) -> bool {
        self.address.rank == runtime.rank()
    }

    /// Returns a pointer to another type at the same address.
    ///
    /// # Errors
    /// If the address is no place for one.
    pub fn cast<U: Pod>(self) -> Result<GlobalPtr<U>> {
        GlobalPtr::new(self.address)
    }

    /// Returns a pointer to the value `count` values further on in the same part.
    ///
    /// # Errors
    /// If the offset cannot be represented. The end of the part is checked when the pointer is used.
    pub fn checked_add(self, count: u64) -> Result<Self> {
        let offset =
            count.checked_mul(size_of::<T>() as u64).and_then(|bytes| self.address.offset.checked_add(bytes));
        self.at(offset, count)
    }

    /// Returns a pointer to the value `count` values before this one.
    ///
    /// # Errors
    /// If that is before the beginning of the part.
    pub fn checked_sub(self, count: u64) -> Result<Self> {
        let offset =
            count.checked_mul(size_of::<T>() as u64).and_then(|bytes| self.address.offset.checked_sub(bytes));
        self.at(offset, count)
    }

    fn at(self, offset: Option<u64>, count: u64) -> Result<Self> {
        let outside = || Error::Usage(format!("{self:?} and {count} values from there: no such offset"));
        Ok(Self { address: GlobalAddress { offset: offset.ok_or_else(outside)?, ..self.address }, ..self })
    }

    /// Returns the number of values from `first` to this pointer; none for another part, and between two
    /// values.
    pub fn distance_from(self, first: Self) -> Option<i64> {
        let part = |at: GlobalAddress| (at.rank, at.kind, at.segment);
        if part(self.address) != part(first.address) || size_of::<T>() == 0 {
            return None;
        }
        let bytes = i128::from(self.address.offset) - i128::from(first.address.offset);
        let values = bytes / size_of::<T>() as i128;
        (values * size_of::<T>() as i128 == bytes).then_some(i64::try_from(values).ok()?)
    }

    /// Reads the value.
    ///
    /// # Errors
    /// As [`Runtime::get`].
    #[inline]
    pub fn get(self, runtime: &Runtime) -> Result<T> {
        runtime.get_value(self.address)
    }

    /// Writes the value. When it returns, every later get anywhere sees it.
    ///
    /// # Errors
    /// As [`Runtime::put`].
    #[inline]
    pub fn put(self, runtime: &Runtime, value: T) -> Result<()> {
        runtime.put_value(self.address, value)
    }

    /// Reads as many values as the slice has, from here on.
    ///
    /// # Errors
    /// As [`Runtime::get`].
    #[inline]
    pub fn get_slice(self, runtime: &Runtime, to: &mut [T]) -> Result<()> {
        runtime.get(self.address, to)
    }

    /// Writes values from here on.
    ///
    /// # Errors
    /// As [`Runtime::put`].
    #[inline]
    pub fn put_slice(self, runtime: &Runtime, from: &[T]) -> Result<()> {
        runtime.put(self.address, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Kind;
    use vgas_cache::partition::SegmentId;

    fn at(offset: u64) -> GlobalAddress {
        GlobalAddress { rank: Rank(3), kind: Kind::Tiered, segment: SegmentId(7), offset }
    }

    /// Goal: arithmetic stays in one part, counts values, and fails instead of wrapping around.
    #[test]
    fn arithmetic_counts_values() {
        let first = GlobalPtr::<u64>::new(at(16)).unwrap();
        let tenth = first.checked_add(10).unwrap();
        assert_eq!((tenth.address().offset, tenth.rank()), (96, Rank(3)));
        assert_eq!((tenth.distance_from(first), first.distance_from(tenth)), (Some(10), Some(-10)));
        assert_eq!(tenth.checked_sub(12).unwrap().address().offset, 0);
        assert!(tenth.checked_sub(13).is_err() && first.checked_add(u64::MAX / 8).is_err());
        assert!(first.checked_add(u64::MAX).is_err());
        let elsewhere = GlobalPtr::<u64>::new(GlobalAddress { rank: Rank(4), ..at(16) }).unwrap();
        assert_eq!(elsewhere.distance_from(first), None);
    }

    /// Goal: a pointer is aligned for its type, even after a cast.
    #[test]
    fn pointers_are_aligned() {
        assert!(GlobalPtr::<u64>::new(at(12)).is_err());
        let half = GlobalPtr::<u32>::new(at(12)).unwrap();
        assert!(half.cast::<u64>().is_err() && half.cast::<[u8; 8]>().is_ok());
        assert!(half.checked_add(1).unwrap().cast::<u64>().is_ok());
        // A byte between two words is no whole distance.
        let bytes = [GlobalPtr::<[u8; 8]>::new(at(12)).unwrap(), GlobalPtr::new(at(17)).unwrap()];
        assert_eq!(bytes[1].distance_from(bytes[0]), None);
        let text = format!("{half:?}");
        assert!(text.contains("u32") && text.contains("segment 7") && text.contains("0xc"), "{text}");
    }
}
