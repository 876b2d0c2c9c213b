//! Atomic updates of single words of segments, by the processor.

use super::Mapping;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// An atomic update that network cards offer: of an aligned word of eight bytes, in the machine's byte order.
/// It yields what the word was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Adds, and wraps around.
    FetchAdd(u64),
    /// Replaces the word if it equals the expected value.
    CompareSwap {
        /// Required old value.
        expected: u64,
        /// New value then.
        desired: u64,
    },
}

/// Interpretation of a word's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordKind {
    /// Four bytes without sign.
    U32,
    /// Four bytes with sign.
    I32,
    /// Eight bytes without sign.
    U64,
    /// Eight bytes with sign.
    I64,
}

/// Change of a word. Sums wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change<T> {
    /// The sum with this.
    Add(T),
    /// The bits that are set in both.
    And(T),
    /// The bits that are set in either.
    Or(T),
    /// The bits that are set in one of both.
    Xor(T),
    /// The lesser of both.
    Min(T),
    /// The greater of both.
    Max(T),
    /// This.
    Swap(T),
    /// `desired`, if the word is `expected`.
    CompareSwap {
        /// Required old value.
        expected: T,
        /// New value then.
        desired: T,
    },
}

/// An atomic update of an aligned word, in the order of bytes of the machine. It yields what the word was.
///
/// The numbers are the word's bits; of a word of four bytes, the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Update {
    /// The word.
    pub word: WordKind,
    /// The change.
    pub change: Change<u64>,
}

/// A number that can be updated atomically: `u32`, `i32`, `u64`, `i64`.
pub trait AtomicWord: Copy + Ord + private::Sealed {
    /// Its kind.
    const WORD: WordKind;
    /// Its bits, the upper ones zero.
    fn bits(self) -> u64;
    /// From its bits; upper ones are dropped.
    fn of_bits(bits: u64) -> Self;
}

mod private {
    pub trait Sealed {}
}

macro_rules! words {
    ($($number:ty, $bits:ty, $word:ident;)*) => { $(
        impl private::Sealed for $number {}
        impl AtomicWord for $number {
            const WORD: WordKind = WordKind::$word;
            fn bits(self) -> u64 {
                u64::from(self as $bits)
            }
            fn of_bits(bits: u64) -> Self {
                bits as Self
            }
        }
    )* };
}

words! {
    u32, u32, U32;
    i32, u32, I32;
    u64, u64, U64;
    i64, u64, I64;
}

impl WordKind {
    /// Its length in bytes; its offset is a multiple of it.
    #[inline]
    pub fn bytes(self) -> u32 {
        match self {
            WordKind::U32 | WordKind::I32 => 4,
            WordKind::U64 | WordKind::I64 => 8,
        }
    }

    /// Reads a word of shared memory, sequentially consistent with [`Update::apply`]: as an update that leaves the word as it is.
    ///
    /// # Safety
    /// `at` is a multiple of the word's length, and valid for reads of as many bytes during the call.
    #[inline]
    pub unsafe fn load(self, at: *mut u8) -> u64 {
        debug_assert!(at.addr().is_multiple_of(self.bytes() as usize), "a word at {at:p}");
        // An update is a barrier for what its thread has written before, a load is none.
        std::sync::atomic::fence(Ordering::SeqCst);
        match self {
            WordKind::U32 | WordKind::I32 => {
                // SAFETY: the caller's promise; an atomic tolerates other writers (rule 1 of `shm`).
                unsafe { AtomicU32::from_ptr(at.cast()) }.load(Ordering::SeqCst).into()
            }
            WordKind::U64 | WordKind::I64 => {
                // SAFETY: as above.
                unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::SeqCst)
            }
        }
    }
}

impl<T> Change<T> {
    /// The same with other numbers.
    #[inline]
    pub fn map<U>(self, mut to: impl FnMut(T) -> U) -> Change<U> {
        match self {
            Change::Add(value) => Change::Add(to(value)),
            Change::And(value) => Change::And(to(value)),
            Change::Or(value) => Change::Or(to(value)),
            Change::Xor(value) => Change::Xor(to(value)),
            Change::Min(value) => Change::Min(to(value)),
            Change::Max(value) => Change::Max(to(value)),
            Change::Swap(value) => Change::Swap(to(value)),
            Change::CompareSwap { expected, desired } => {
                let expected = to(expected);
                Change::CompareSwap { expected, desired: to(desired) }
            }
        }
    }
}

impl<T: AtomicWord> From<Change<T>> for Update {
    #[inline]
    fn from(change: Change<T>) -> Self {
        Self { word: T::WORD, change: change.map(AtomicWord::bits) }
    }
}

impl From<Atomic> for Update {
    fn from(atomic: Atomic) -> Self {
        match atomic {
            Atomic::FetchAdd(value) => Change::Add(value).into(),
            Atomic::CompareSwap { expected, desired } => Change::CompareSwap { expected, desired }.into(),
        }
    }
}

impl Update {
    /// Bytes of [`Update::encode`].
    pub const ENCODED_BYTES: usize = 20;

    /// As words of a message.
    pub fn encode(self) -> [u32; 5] {
        let (kind, first, second) = match self.change {
            Change::Add(value) => (0, value, 0),
            Change::CompareSwap { expected, desired } => (1, expected, desired),
            Change::And(value) => (2, value, 0),
            Change::Or(value) => (3, value, 0),
            Change::Xor(value) => (4, value, 0),
            Change::Min(value) => (5, value, 0),
            Change::Max(value) => (6, value, 0),
            Change::Swap(value) => (7, value, 0),
        };
        let halves = |number: u64| [number as u32, (number >> 32) as u32];
        let ([a, b], [c, d]) = (halves(first), halves(second));
        [kind | (self.word as u32) << 8, a, b, c, d]
    }

    /// From words that a peer sent; `None` when they are no update, or not as [`Update::encode`] spells it.
    pub fn decode(words: [u32; 5]) -> Option<Self> {
        let [kind, a, b, c, d] = words;
        let (first, second) = (u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32);
        let word = match kind >> 8 {
            0 => WordKind::U32,
            1 => WordKind::I32,
            2 => WordKind::U64,
            3 => WordKind::I64,
            _ => return None,
        };
        let change = match kind & 0xff {
            0 => Change::Add(first),
            1 => Change::CompareSwap { expected: first, desired: second },
            2 => Change::And(first),
            3 => Change::Or(first),
            4 => Change::Xor(first),
            5 => Change::Min(first),
            6 => Change::Max(first),
            7 => Change::Swap(first),
            _ => return None,
        };
        let update = Self { word, change };
        let fits = word.bytes() == 8 || (b == 0 && d == 0);
        (fits && update.encode() == words).then_some(update)
    }

    /// The same as a card does it, if one can.
    pub fn as_atomic(self) -> Option<Atomic> {
        match (self.word.bytes(), self.change) {
            (8, Change::Add(value)) => Some(Atomic::FetchAdd(value)),
            (8, Change::CompareSwap { expected, desired }) => Some(Atomic::CompareSwap { expected, desired }),
            _ => None,
        }
    }

    /// Returns the new value of a word that was `was`.
    pub fn of(self, was: u64) -> u64 {
        fn of<T: AtomicWord>(change: Change<u64>, was: u64, sum: impl FnOnce(T, T) -> T) -> u64 {
            let was = T::of_bits(was);
            let now = match change.map(T::of_bits) {
                Change::Add(value) => sum(was, value),
                Change::Min(value) => was.min(value),
                Change::Max(value) => was.max(value),
                Change::Swap(value) => value,
                Change::And(value) => T::of_bits(was.bits() & value.bits()),
                Change::Or(value) => T::of_bits(was.bits() | value.bits()),
                Change::Xor(value) => T::of_bits(was.bits() ^ value.bits()),
                Change::CompareSwap { expected, desired } if was == expected => desired,
                Change::CompareSwap { .. } => was,
            };
            now.bits()
        }
        match self.word {
            WordKind::U32 => of(self.change, was, u32::wrapping_add),
            WordKind::I32 => of(self.change, was, i32::wrapping_add),
            WordKind::U64 => of(self.change, was, u64::wrapping_add),
            WordKind::I64 => of(self.change, was, i64::wrapping_add),
        }
    }

    /// Updates a word of shared memory, sequentially consistent; yields what it was.
    ///
    /// # Safety
    /// `at` is a multiple of the word's length, and valid for reads and writes of as many bytes during the call.
    #[inline]
    pub unsafe fn apply(self, at: *mut u8) -> u64 {
        const ORDER: Ordering = Ordering::SeqCst;
        debug_assert!(at.addr().is_multiple_of(self.word.bytes() as usize), "a word at {at:p}");
        macro_rules! apply {
            ($atomic:ty, $number:ty) => {{
                // SAFETY: the caller's promise; an atomic tolerates other writers (rule 1 of `shm`).
                let word = unsafe { <$atomic>::from_ptr(at.cast()) };
                let was = match self.change.map(<$number>::of_bits) {
                    Change::Add(value) => word.fetch_add(value, ORDER),
                    Change::And(value) => word.fetch_and(value, ORDER),
                    Change::Or(value) => word.fetch_or(value, ORDER),
                    Change::Xor(value) => word.fetch_xor(value, ORDER),
                    Change::Min(value) => word.fetch_min(value, ORDER),
                    Change::Max(value) => word.fetch_max(value, ORDER),
                    Change::Swap(value) => word.swap(value, ORDER),
                    Change::CompareSwap { expected, desired } => {
                        word.compare_exchange(expected, desired, ORDER, ORDER).unwrap_or_else(|was| was)
                    }
                };
                was.bits()
            }};
        }
        match self.word {
            WordKind::U32 => apply!(AtomicU32, u32),
            WordKind::I32 => apply!(AtomicI32, i32),
            WordKind::U64 => apply!(AtomicU64, u64),
            WordKind::I64 => apply!(AtomicI64, i64),
        }
    }
}

impl Mapping {
    /// Reads the word at an offset, as [`WordKind::load`] does. Panics when the word is misaligned or outside.
    pub fn word(&self, offset: usize, word: WordKind) -> u64 {
        let bytes = word.bytes();
        let is_word = offset.is_multiple_of(bytes as usize) && self.contains(offset as u64, u64::from(bytes));
        assert!(is_word, "no word of {bytes} bytes at {offset} of {self:?}");
        // SAFETY: just checked; mappings begin at pages, and the borrow keeps this one (rules 2 and 3).
        unsafe { word.load(self.base().add(offset)) }
    }

    /// Updates the word at an offset, sequentially consistent; yields what it was. Panics when the word is misaligned or outside.
    pub fn update(&self, offset: usize, update: Update) -> u64 {
        let bytes = update.word.bytes();
        let is_word = offset.is_multiple_of(bytes as usize) && self.contains(offset as u64, u64::from(bytes));
        assert!(is_word, "no word of {bytes} bytes at {offset} of {self:?}");
        // SAFETY: just checked; mappings begin at pages, and the borrow keeps this one (rules 2 and 3).
        unsafe { update.apply(self.base().add(offset)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_there_is_told() {
        let memory = Mapping::anonymous("words", 4096).unwrap();
        let steps: [(Update, u64, u64); 8] = [
            (Change::Add(5u64).into(), 0, 5),
            (Change::Add(u64::MAX).into(), 5, 4),
            (Change::CompareSwap { expected: 5u64, desired: 9 }.into(), 4, 4),
            (Change::CompareSwap { expected: 4u64, desired: 9 }.into(), 4, 9),
            (Change::Min(-1i64).into(), 9, u64::MAX),
            (Change::Max(-3i64).into(), u64::MAX, u64::MAX),
            (Change::Min(7u64).into(), u64::MAX, 7),
            (Change::Add(-8i32).into(), 7, 0xffff_ffff),
        ];
        for (update, was, is) in steps {
            assert_eq!(memory.word(16, update.word), was & (u64::MAX >> (64 - 8 * update.word.bytes())));
            assert_eq!(memory.update(16, update), was, "{update:?}");
            let mut bytes = [0; 24];
            memory.read(8, &mut bytes);
            assert_eq!(bytes[..8], [0; 8]);
            assert_eq!(bytes[8..16], u64::to_ne_bytes(is), "{update:?}");
            assert_eq!(bytes[16..], [0; 8]);
        }
    }

    fn any_update() -> impl Strategy<Value = Update> {
        let word =
            prop_oneof![Just(WordKind::U32), Just(WordKind::I32), Just(WordKind::U64), Just(WordKind::I64)];
        // Small numbers meet each other.
        let number = || prop_oneof![0u64..3, any::<u64>(), Just(u64::MAX)];
        (word, 0..8, number(), number()).prop_map(|(word, kind, value, other)| {
            let mask = u64::MAX >> (64 - 8 * word.bytes());
            let (value, other) = (value & mask, other & mask);
            let change = match kind {
                0 => Change::Add(value),
                1 => Change::And(value),
                2 => Change::Or(value),
                3 => Change::Xor(value),
                4 => Change::Min(value),
                5 => Change::Max(value),
                6 => Change::Swap(value),
                _ => Change::CompareSwap { expected: value, desired: other },
            };
            Update { word, change }
        })
    }

    proptest! {
        /// The processor does what [`Update::of`] says, and nothing to its neighbours.
        #[test]
        fn the_processor_agrees(update in any_update(), was in prop_oneof![0u64..3, any::<u64>()]) {
            let memory = Mapping::anonymous("words", 4096).unwrap();
            let bytes = update.word.bytes() as usize;
            let was = was & u64::MAX >> (64 - 8 * bytes);
            memory.write(8, &was.to_ne_bytes()[..bytes]);
            prop_assert_eq!(memory.update(8, update), was);
            let mut now = [0; 24];
            memory.read(0, &mut now);
            prop_assert_eq!(u128::from_ne_bytes(now[8..].try_into().unwrap()), u128::from(update.of(was)));
            prop_assert_eq!(&now[..8], &[0; 8]);
        }

        #[test]
        fn updates_survive_the_wire(update in any_update()) {
            prop_assert_eq!(Update::decode(update.encode()), Some(update));
        }

        /// A decoded value is one that could have been sent.
        #[test]
        fn words_from_a_stranger_decode_to_themselves_or_nothing(
            kind in 0u32..10, word in 0u32..6, a: u32, b in prop_oneof![Just(0), any::<u32>()], c: u32, d: u32,
        ) {
            let words = [kind | word << 8, a, b, c, d];
            if let Some(update) = Update::decode(words) {
                prop_assert_eq!(update.encode(), words);
            }
        }
    }
}
