//! Objects without a box, for those who keep their names in ways of their own.

use super::DBox;
use crate::portable::Portable;
use crate::word::Word;

impl<T: Portable> DBox<T> {
    /// Gives the object up to whoever has its word, as [`Box::into_raw`]: it is dropped when [`DBox::from_raw`] makes it a box again, and
    /// else never.
    pub fn into_raw(this: Self) -> Word {
        this.into_word()
    }

    /// Makes an object a box again, on any rank.
    ///
    /// # Safety
    /// The word is what [`DBox::into_raw`] of a box of the same type has said, in this job, and no box was made of it since.
    pub unsafe fn from_raw(word: Word) -> Self {
        Self::of(word)
    }
}
