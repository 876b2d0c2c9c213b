//! Reference counts of a value, in one word at the value: *owners*, which keep the value
//! ([`DArc`](super::DArc)), and *watchers*, which keep only its place ([`DWeak`](super::DWeak)).
//!
//! Each handle is a unit of its half of the word, and so are the units that ranks keep for handles to come
//! ([`super::units`]). All owners together are one watcher more, which goes last.
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
//! * *A writer is alone.* [`is_alone`] looks at both halves at one moment. At that moment there is no unit
//!   but the caller's own, and units come only from units: from an owner, whose only handle the caller has
//!   mutably borrowed, or from a watcher, and there is none. With two words there is a moment between the
//!   looks, in which a watcher becomes an owner and is gone.
//! * *A value ends once.* The rank that brings the owners to 0 drops the value. The owners' watcher is still
//!   there, so that the place is not freed meanwhile, however many watchers go; the rank that then brings the
//!   watchers to 0 frees it. For a value without watchers, one update shows both: dropping it costs what it
//!   did without watchers.
//! * *An ended value stays ended.* A watcher becomes an owner by a compare-and-swap ([`upgraded`]), never
//!   from 0 owners. Adding first and looking afterwards would show an owner to the next watcher, although
//!   there is none.
//! * *A half does not run into the other one*: units are drawn only while it has less than half of its room ([`has_room`]).
//!
//! `walk.rs` tries all of this in every order, with mistakes that must be found.

/// A unit of an owner.
pub(super) const OWNER: u64 = 1;
/// A unit of a watcher.
pub(super) const WATCHER: u64 = 1 << 32;
/// Count of a value with one owner and no watchers.
pub(super) const FIRST: u64 = OWNER + WATCHER;
/// Units that a rank draws at once of a value of another one.
pub(super) const DRAWN: u64 = 1 << 12;

/// Limit of either half above which no units are drawn: as many are left for concurrent draws.
const MOST: u64 = 1 << 31;

pub(super) const fn owners(count: u64) -> u64 {
    count & (WATCHER - 1)
}

/// With that of all owners together, if there is one.
pub(super) const fn watchers(count: u64) -> u64 {
    count / WATCHER
}

/// Parts of a value that are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Over {
    Nothing,
    /// The value is dropped, and then the owners' watcher given back.
    Value,
    /// The place of a value that was dropped is freed.
    Place,
    /// Both, and no other unit is left.
    All,
}

/// Returns the parts that are over after these units are given back from this count.
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

/// Returns true if an owner's unit is all there is of a count.
pub(super) const fn is_alone(count: u64) -> bool {
    count == FIRST
}

/// Returns true if units may be drawn of a count.
pub(super) const fn has_room(count: u64) -> bool {
    owners(count) < MOST && watchers(count) < MOST
}

/// Returns the count after a watcher draws units of owners; none: the value is over.
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
