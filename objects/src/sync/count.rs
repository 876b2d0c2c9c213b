//! How many have a value, in one word where the value is: *owners*, for whom it is kept ([`DArc`](super::DArc)), and *watchers*, for whom only its place
//! is ([`DWeak`](super::DWeak)).
//!
//! Each handle is a unit of its half of the word, and so is what ranks keep for handles to come ([`super::units`]). All owners together
//! are one watcher more, which goes last.
//!
//! ```text
//!   owners, watchers
//!     1,1 ──── clone, draw ───▶ n,1 ──── downgrade ────▶ n,m
//!      ▲                                                  │ the last owner gives its unit back, and drops the value
//!      │ the only owner may write                         ▼
//!      └── `get_mut` sees exactly this                   0,m ── then the owners' watcher ──▶ 0,m-1 … the last watcher ──▶ free
//! ```
//!
//! # Why one word
//!
//! * *Who writes is alone.* [`is_alone`] looks at both halves at one moment. At that moment there is no unit but the caller's own, and units come
//!   only from units: of an owner, whose only handle the caller has mutably borrowed, or of a watcher, of whom there is none. With two words there is a moment
//!   between the looks, in which a watcher becomes an owner and is gone.
//! * *What is over is over once.* Whoever gives back what brings the owners to 0 drops the value. The owners' watcher is still there, so that nobody frees the place
//!   meanwhile, however many watchers go; who then brings the watchers to 0 frees it. Of a value that nobody watches both are seen by the one
//!   update: dropping it costs what it did without watchers.
//! * *What is over stays over.* A watcher becomes an owner by comparing the word and replacing it ([`upgraded`]), never from 0 owners.
//!   Adding first and looking afterwards would show an owner to the next watcher, where there is none.
//! * *A half does not run into the other one*: units are drawn only while it has less than half of its room ([`has_room`]).
//!
//! `walk.rs` tries all of this in every order, with mistakes that must be found.

/// A unit of an owner.
pub(super) const OWNER: u64 = 1;
/// A unit of a watcher.
pub(super) const WATCHER: u64 = 1 << 32;
/// A value with one owner, which nobody watches.
pub(super) const FIRST: u64 = OWNER + WATCHER;
/// Units that a rank draws at once of a value of another one.
pub(super) const DRAWN: u64 = 1 << 12;

/// Units of either half from which on none are drawn: as many are left for those who draw at the same time.
const MOST: u64 = 1 << 31;

pub(super) const fn owners(count: u64) -> u64 {
    count & (WATCHER - 1)
}

/// With that of all owners together, if there is one.
pub(super) const fn watchers(count: u64) -> u64 {
    count / WATCHER
}

/// What is over for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Over {
    Nothing,
    /// The value is dropped, and then the owners' watcher given back.
    Value,
    /// The place of a value that was dropped is freed.
    Place,
    /// Both, and nobody else has anything of it.
    All,
}

/// What is over when these units are given back of a count that was this.
pub(super) const fn over(was: u64, given: u64) -> Over {
    let left = was.wrapping_sub(given);
    let was_last = owners(given) > 0 && owners(left) == 0;
    match (was_last, watchers(left)) {
        (true, 1) => Over::All,
        (true, _) => Over::Value,
        (false, 0) => Over::Place,
        (false, _) => Over::Nothing,
    }
}

/// Whether an owner's unit is all there is of a count.
pub(super) const fn is_alone(count: u64) -> bool {
    count == FIRST
}

/// Whether units may be drawn of a count.
pub(super) const fn has_room(count: u64) -> bool {
    owners(count) < MOST && watchers(count) < MOST
}

/// What a count becomes where a watcher draws so many units of owners; none: the value is over.
pub(super) const fn upgraded(count: u64, drawn: u64) -> Option<u64> {
    match owners(count) {
        0 => None,
        _ => Some(count + drawn * OWNER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: at each end, exactly what is over is seen to be.
    #[test]
    fn what_is_over_is_seen() {
        let of = |owners: u64, watchers: u64| owners * OWNER + watchers * WATCHER;
        for (was, given, what) in [
            (of(1, 1), of(1, 0), Over::All),
            (of(7, 1), of(7, 0), Over::All),
            (of(7, 9), of(7, 8), Over::All),
            (of(7, 9), of(6, 8), Over::Nothing),
            (of(1, 2), of(1, 0), Over::Value),
            (of(3, 4), of(3, 2), Over::Value),
            (of(0, 2), of(0, 1), Over::Nothing),
            (of(0, 2), of(0, 2), Over::Place),
            (of(2, 2), of(0, 1), Over::Nothing),
            (of(2, 2), of(0, 0), Over::Nothing),
        ] {
            assert_eq!(over(was, given), what, "{was:#x} {given:#x}");
        }
        assert!(has_room(of(MOST - 1, MOST - 1)) && !has_room(of(MOST, 1)) && !has_room(of(1, MOST)));
        assert_eq!((upgraded(of(0, 2), 5), upgraded(of(1, 2), 5)), (None, Some(of(6, 2))));
    }
}
