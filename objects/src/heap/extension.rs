//! A rank's note in the extension of a link: that it has found the object, and its place
//! ([`crate::word::Link`]).
//!
//! The extension stands for one use of a copy from when it is noted until it is taken. Threads that read
//! through the same link note it at the same time; the thread that takes the note has exclusive access to the
//! link, or gives up a note that no thread reads through.

use super::copies::Copies;
use crate::word::{ADDRESS_MASK, Word};
#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Notes the place of the copy that was held for this link. Another thread may have come first: one of both
/// uses ends.
pub(super) fn note(copies: &Copies, extension: &AtomicU64, word: Word, tag: u64, address: u64) {
    let noted = tag << 48 | address;
    // Anything else is from an earlier job.
    if extension.swap(noted, Ordering::AcqRel) == noted {
        copies.release(word);
    }
}

/// Takes back the note, and ends the use that it stands for: none if it is the object itself.
pub(super) fn take(copies: &Copies, extension: &AtomicU64, word: Word, tag: u64, may_release: bool) {
    let noted = extension.swap(0, Ordering::AcqRel);
    let is_in_place = noted & ADDRESS_MASK == word.address();
    if noted >> 48 == tag && noted != 0 && !is_in_place && may_release {
        copies.release(word);
    }
}
