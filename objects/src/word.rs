//! A pointer of the heap (DRust §4.1.1, Figure 4): 48 bits of address, 16 bits of colour, and one extra word
//! with the object's address in this process.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;

/// Bits of an address. The range in which the heap lies ends below.
pub const ADDRESS_BITS: u32 = 48;

pub(crate) const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;

/// Generation of a value: tells the successive values at an address apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Colour(pub u16);

impl Colour {
    /// The last that a slot has, unless a test asks for fewer.
    pub const LAST: Self = Self(u16::MAX);

    /// The one after this, if there is one up to `last`.
    pub fn next(self, last: Self) -> Option<Self> {
        (self < last).then(|| Self(self.0 + 1))
    }
}

/// An address and its colour: the name of a value of an object. Two words that are equal mean equal bytes, as
/// long as they may be used: a copy cached under a word need never be invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Word(NonZeroU64);

impl Word {
    /// The word of an address; none for address 0 and for one of more than [`ADDRESS_BITS`] bits.
    pub fn new(address: u64, colour: Colour) -> Option<Self> {
        let word = address | (u64::from(colour.0) << ADDRESS_BITS);
        (address != 0 && address <= ADDRESS_MASK).then(|| NonZeroU64::new(word).map(Self))?
    }

    /// From its bits, as another process has sent them; none if the address is 0.
    pub fn from_bits(bits: u64) -> Option<Self> {
        Self::new(bits & ADDRESS_MASK, Colour((bits >> ADDRESS_BITS) as u16))
    }

    /// Its bits: never 0.
    pub fn bits(self) -> u64 {
        self.0.get()
    }

    /// Returns the object's address.
    #[inline]
    pub fn address(self) -> u64 {
        self.0.get() & ADDRESS_MASK
    }

    /// Returns the value's generation.
    #[inline]
    pub fn colour(self) -> Colour {
        Colour((self.0.get() >> ADDRESS_BITS) as u16)
    }

    /// The same address in another colour.
    #[must_use]
    pub fn coloured(self, colour: Colour) -> Self {
        // The address is not 0, so that neither is the word.
        Self::new(self.address(), colour).unwrap_or(self)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} in colour {}", self.address(), self.colour().0)
    }
}

/// Representation of a box: 16 bytes, even in an `Option`.
///
/// The extension is 0, or one rank's note: its number plus 1 in the upper 16 bits, and the address of its
/// copy. Others take it for 0, and it is made 0 where bytes arrive.
#[derive(Debug)]
#[repr(C)]
pub struct Link {
    pub(crate) word: Word,
    pub(crate) extension: AtomicU64,
}

impl Link {
    #[cfg(feature = "runtime")]
    pub(crate) fn new(word: Word) -> Self {
        Self { word, extension: AtomicU64::new(0) }
    }

    /// The object that it means.
    pub fn word(&self) -> Word {
        self.word
    }
}

const _: () = assert!(size_of::<Link>() == 16 && size_of::<Option<Link>>() == 16);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Miri does not allow file access.
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 16 } else { 256 }, ..ProptestConfig::default() })]
        #[test]
        fn words_hold_what_they_are_made_of(address in 1..=ADDRESS_MASK, colour: u16) {
            let word = Word::new(address, Colour(colour)).unwrap();
            prop_assert_eq!((word.address(), word.colour()), (address, Colour(colour)));
            prop_assert_eq!(Word::from_bits(word.bits()), Some(word));
            prop_assert_eq!(word.coloured(Colour(7)).address(), address);
        }
    }

    #[test]
    fn no_word_is_zero_or_too_long() {
        for bits in [0, 1 << ADDRESS_BITS, 0xffff << ADDRESS_BITS] {
            assert_eq!(Word::from_bits(bits), None);
        }
        assert_eq!(Word::new(1 << ADDRESS_BITS, Colour(0)), None);
        assert_eq!(Colour(2).next(Colour(2)), None);
    }
}
