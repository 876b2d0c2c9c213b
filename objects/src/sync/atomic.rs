//! Numbers that all ranks update in place (DRust §4.1.3).

use crate::heap::{DBox, ObjectError, Refused, update};
use crate::{Portable, Shareable};
use vgas::{AtomicWord, Change};

/// A number in the heap, of a type that is a [`vgas::AtomicWord`], that ranks and threads update at the same
/// time, by a [`vgas::Change`] as with [`vgas::Runtime::update`]: each update is atomic, all updates of one
/// number have an order, and effects of a thread before its update are visible to readers of the update. 16
/// bytes, on any rank; the number stays where it was made, and is freed with the name.
///
/// An update costs an instruction if the number is in memory and of a rank of this node; else two messages.
/// Sums wrap around.
///
/// ```no_run
/// use vgas_objects::sync::DAtomicU64;
/// # fn example(objects: &vgas_objects::Objects) -> Result<(), vgas_objects::ObjectError> {
/// use vgas_objects::DBox;
/// let count = (objects.rank().0 == 0).then(|| DBox::new(DAtomicU64::new(0)));
/// objects.lend(vgas::Rank(0), count.as_ref(), |count| count.fetch_add(1))??;
/// # Ok(()) }
/// ```
#[derive(Debug, Portable, Shareable)]
pub struct DAtomic<N: AtomicWord + Shareable> {
    number: DBox<N>,
}

/// A [`DAtomic`] of eight bytes.
pub type DAtomicU64 = DAtomic<u64>;
/// A [`DAtomic`] of eight bytes, with a sign.
pub type DAtomicI64 = DAtomic<i64>;
/// A [`DAtomic`] of four bytes.
pub type DAtomicU32 = DAtomic<u32>;
/// A [`DAtomic`] of four bytes, with a sign.
pub type DAtomicI32 = DAtomic<i32>;

impl<N: AtomicWord + Shareable> DAtomic<N> {
    /// Places a number as [`DBox::new`](crate::DBox::new) does.
    ///
    /// # Panics
    /// As [`DBox::new`].
    #[track_caller]
    pub fn new(number: N) -> Self {
        Self { number: DBox::new(number) }
    }

    /// Places a number as [`DBox::new`](crate::DBox::new) does.
    ///
    /// # Errors
    /// As [`DBox::try_new`].
    pub fn try_new(number: N) -> Result<Self, Refused<N>> {
        Ok(Self { number: DBox::try_new(number)? })
    }

    pub(super) fn word(&self) -> crate::Word {
        DBox::word(&self.number)
    }

    /// Updates the number; returns the old value.
    ///
    /// # Errors
    /// If a peer is lost, and if there is no heap.
    #[inline]
    #[track_caller]
    pub fn update(&self, change: Change<N>) -> Result<N, ObjectError> {
        update::<Self, N>(DBox::word(&self.number), change)
    }

    /// The number.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn load(&self) -> Result<N, ObjectError> {
        // In place, in the order of all updates.
        self.update(Change::Or(N::of_bits(0)))
    }

    /// Replaces the number.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn store(&self, number: N) -> Result<(), ObjectError> {
        self.swap(number).map(drop)
    }

    /// Replaces the number; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn swap(&self, number: N) -> Result<N, ObjectError> {
        self.update(Change::Swap(number))
    }

    /// Replaces the number if it is `expected`; returns the old value, as `Err` if it was another.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn compare_exchange(&self, expected: N, desired: N) -> Result<Result<N, N>, ObjectError> {
        let was = self.update(Change::CompareSwap { expected, desired })?;
        Ok(if was == expected { Ok(was) } else { Err(was) })
    }

    /// Adds; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[inline]
    #[track_caller]
    pub fn fetch_add(&self, number: N) -> Result<N, ObjectError> {
        self.update(Change::Add(number))
    }

    /// Subtracts; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn fetch_sub(&self, number: N) -> Result<N, ObjectError> {
        self.update(Change::Add(N::of_bits(number.bits().wrapping_neg())))
    }

    /// Keeps the bits that are set in both; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn fetch_and(&self, number: N) -> Result<N, ObjectError> {
        self.update(Change::And(number))
    }

    /// Sets the bits that are set in either; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn fetch_or(&self, number: N) -> Result<N, ObjectError> {
        self.update(Change::Or(number))
    }

    /// Sets the bits that are set in one of both; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn fetch_xor(&self, number: N) -> Result<N, ObjectError> {
        self.update(Change::Xor(number))
    }

    /// Keeps the lesser; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn fetch_min(&self, number: N) -> Result<N, ObjectError> {
        self.update(Change::Min(number))
    }

    /// Keeps the greater; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn fetch_max(&self, number: N) -> Result<N, ObjectError> {
        self.update(Change::Max(number))
    }

    /// Takes the number out of the heap.
    ///
    /// # Panics
    /// As [`DBox::into_inner`].
    #[track_caller]
    pub fn into_inner(self) -> N {
        self.number.into_inner()
    }
}

/// As [`DAtomic`], of a truth.
#[derive(Debug, Portable, Shareable)]
pub struct DAtomicBool {
    is: DAtomicU32,
}

impl DAtomicBool {
    /// Places it in this rank's partition.
    ///
    /// # Panics
    /// As [`DBox::new`].
    #[track_caller]
    pub fn new(is: bool) -> Self {
        Self { is: DAtomicU32::new(is.into()) }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn load(&self) -> Result<bool, ObjectError> {
        Ok(self.is.load()? != 0)
    }

    /// Replaces it.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn store(&self, is: bool) -> Result<(), ObjectError> {
        self.is.store(is.into())
    }

    /// Replaces it; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn swap(&self, is: bool) -> Result<bool, ObjectError> {
        Ok(self.is.swap(is.into())? != 0)
    }

    /// Replaces it if it is `expected`; returns the old value, as `Err` if it was the other.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn compare_exchange(&self, expected: bool, desired: bool) -> Result<Result<bool, bool>, ObjectError> {
        let was = self.is.compare_exchange(expected.into(), desired.into())?;
        Ok(was.map(|was| was != 0).map_err(|was| was != 0))
    }

    /// True if it is and `other` is; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn fetch_and(&self, other: bool) -> Result<bool, ObjectError> {
        Ok(self.is.fetch_and(other.into())? != 0)
    }

    /// True if it is or `other` is; returns the old value.
    ///
    /// # Errors
    /// As [`DAtomic::update`].
    #[track_caller]
    pub fn fetch_or(&self, other: bool) -> Result<bool, ObjectError> {
        Ok(self.is.fetch_or(other.into())? != 0)
    }
}
