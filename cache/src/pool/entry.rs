//! The word of a page in the node's table.

use super::size::FrameId;
use crate::protocol::claim;
use std::fmt;
use vgas_nvm::{Place, StoredPage};

/// What the node may do with a page without asking anybody (vgasnet III.E, seen from a rank).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PageState {
    /// No copy here.
    Invalid = 0,
    /// A clean copy among others: may be read.
    Shared = 1,
    /// A dirty copy among others: may be read.
    Owned = 2,
    /// The only copy, clean: may be read; the first write makes it [`PageState::Modified`] without asking.
    Exclusive = 3,
    /// The only copy, dirty: may be read and written.
    Modified = 4,
    /// No copy here, and none to be had for now: the home serves the page in place, operations travel there.
    InPlace = 5,
    /// No copy anywhere, and nothing in flight: NVMe of this node has the page, as [`Entry::stored`] says. A rank may claim it.
    Stored = 6,
    /// A rank has claimed it, and brings it in.
    Claimed = 7,
}

impl PageState {
    /// Whether a frame holds the page, so that it may be read.
    pub fn readable(self) -> bool {
        (PageState::Shared..=PageState::Modified).contains(&self)
    }

    /// Whether it may be written (perhaps after E became M).
    pub fn writable(self) -> bool {
        matches!(self, PageState::Exclusive | PageState::Modified)
    }

    /// Whether a rank of the home's node may bring the page in by itself, once a claim that there may be has ended.
    pub fn is_claimable(self) -> bool {
        matches!(self, PageState::Stored | PageState::Claimed)
    }

    fn from_bits(bits: u32) -> Self {
        match bits {
            1 => PageState::Shared,
            2 => PageState::Owned,
            3 => PageState::Exclusive,
            4 => PageState::Modified,
            5 => PageState::InPlace,
            6 => PageState::Stored,
            7 => PageState::Claimed,
            // Anything else can only come from a broken process; the harmless reading is "ask the agent".
            _ => PageState::Invalid,
        }
    }
}

/// One page of the table, as loaded: state, flags, frame.
///
/// The agent of the node makes every transition but these: a rank that uses a page may turn E into M (its first write)
/// and clear AHEAD, neither while HOLD is set; it may forget that a page is served in place; and it may claim a stored page,
/// which then is its own until it has made it E or M, or has given it back. All by compare-and-swap, so that a quicker agent
/// wins. An agent that needs a claimed page sets HOLD on it, and hears of the claim's end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entry(u64);

pub(super) const STATE_SHIFT: u32 = 32;
const STATE_MASK: u64 = 0xff << STATE_SHIFT;
const HOLD: u64 = 1 << 40;
const AHEAD: u64 = 1 << 41;
/// Of a stored page: at its second place; nowhere, because it is zeros; without a checksum.
const SECOND: u64 = 1 << 42;
const ZEROS: u64 = 1 << 43;
const UNCHECKED: u64 = 1 << 44;

impl Entry {
    /// No copy.
    pub const INVALID: Entry = Entry(0);

    /// An entry without flags.
    #[inline]
    pub const fn new(state: PageState, frame: FrameId) -> Self {
        Entry((state as u64) << STATE_SHIFT | frame.0 as u64)
    }

    /// Whose the page is, as [`claim`] has it.
    #[inline]
    pub fn claim_state(self) -> claim::State {
        match self.state() {
            PageState::Stored => claim::State::Stored,
            PageState::Claimed if self.held() => claim::State::Awaited,
            PageState::Claimed => claim::State::Claimed,
            _ => claim::State::Agents,
        }
    }

    /// Of a page of which there is no copy, but what NVMe has.
    pub fn of_stored(stored: StoredPage) -> Self {
        let state = (PageState::Stored as u64) << STATE_SHIFT;
        Entry(match stored {
            StoredPage::Zeros => state | ZEROS,
            StoredPage::At { place, checksum } => {
                let second = if place == Place::B { SECOND } else { 0 };
                state | second | checksum.map_or(UNCHECKED, u64::from)
            }
        })
    }

    /// What NVMe has of the page; of a page that is stored, none of others.
    pub fn stored(self) -> Option<StoredPage> {
        if self.state() != PageState::Stored {
            return None;
        }
        if self.0 & ZEROS != 0 {
            return Some(StoredPage::Zeros);
        }
        let place = if self.0 & SECOND != 0 { Place::B } else { Place::A };
        let checksum = (self.0 & UNCHECKED == 0).then_some(self.0 as u32);
        Some(StoredPage::At { place, checksum })
    }

    /// The word as it lies in the table.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Entry(word)
    }

    /// The word as it lies in the table.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// What may be done.
    #[inline]
    pub fn state(self) -> PageState {
        PageState::from_bits(((self.0 & STATE_MASK) >> STATE_SHIFT) as u32)
    }

    /// The frame; meaningful when the state is readable. Not yet checked against the pool's size.
    #[inline]
    pub const fn frame(self) -> FrameId {
        FrameId(self.0 as u32)
    }

    /// The agent wants the page to itself: no new users.
    #[inline]
    pub const fn held(self) -> bool {
        self.0 & HOLD != 0
    }

    /// The first user tells the agent: the reader has reached what was read ahead.
    #[inline]
    pub const fn ahead(self) -> bool {
        self.0 & AHEAD != 0
    }

    /// The same with HOLD set or cleared.
    #[inline]
    pub const fn with_hold(self, on: bool) -> Self {
        Entry(if on { self.0 | HOLD } else { self.0 & !HOLD })
    }

    /// The same with AHEAD set or cleared.
    #[inline]
    pub const fn with_ahead(self, on: bool) -> Self {
        Entry(if on { self.0 | AHEAD } else { self.0 & !AHEAD })
    }

    /// The same page in another state; flags and frame stay.
    #[inline]
    pub const fn with_state(self, state: PageState) -> Self {
        Entry(self.0 & !STATE_MASK | (state as u64) << STATE_SHIFT)
    }

    /// State and flags as one small number: 1 to 4 mean "read at once", 4 means "write at once".
    #[inline(always)]
    pub(super) const fn rights(self) -> u32 {
        (self.0 >> STATE_SHIFT) as u32
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.state())?;
        if self.state().readable() {
            write!(f, "@{}", self.frame().0)?;
        }
        write!(f, "{}{}", if self.held() { "+HOLD" } else { "" }, if self.ahead() { "+AHEAD" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_word_do_not_touch_each_other() {
        use PageState::*;
        for state in [Invalid, Shared, Owned, Exclusive, Modified, InPlace, Stored, Claimed] {
            let entry = Entry::new(state, FrameId(u32::MAX)).with_hold(true).with_ahead(true);
            assert_eq!(entry.state(), state);
            assert_eq!(entry.frame(), FrameId(u32::MAX));
            assert!(entry.held() && entry.ahead());
            assert!(entry.rights() > Modified as u32, "a flag must keep users off the fast path");
            let plain = entry.with_hold(false).with_ahead(false).with_state(Exclusive);
            assert_eq!(plain, Entry::new(Exclusive, FrameId(u32::MAX)));
        }
        assert_eq!(Entry::from_word(77 << STATE_SHIFT).state(), Invalid);
    }
}
