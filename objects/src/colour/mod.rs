//! The colour protocol, as a table: the transitions of a slot of the heap, and of the word that means it.
//!
//! The heap asks [`step`], and the walk in `walk.rs` asks the same function in every order that two objects,
//! three nodes and their messages can come to. The walk showed these rules necessary, beyond DRust §4.1.1:
//!
//! * **The colours of a slot continue** when it is freed and used again. Unused copies stay findable until
//!   they are evicted, so a new object at an old address must not begin at an old colour.
//! * **A slot whose colours are used up retires** until no node has a copy from it.
//! * **Writing changes the colour only if the value was served** to another rank since the colour was taken: otherwise a loop that writes
//!   would move its object every 65,536 times. It changes when the mutable borrow *begins*, since plain `&mut` has no end that could be seen.
//! * **A copy is published only by a live borrow**: a later arrival may have been torn by the next write.
//! * **A part is written under its whole**: a thread that changes a child has borrowed the parent mutably, so
//!   the parent's word changes as well.
//!
//! | slot | event | becomes | and the word |
//! |---|---|---|---|
//! | free, next colour c | allocate | live | takes colour c |
//! | live | serve | live, served | stays |
//! | live | begin to write | live | stays |
//! | live, served | begin to write, colour c < last | live | takes colour c + 1 |
//! | live, served | begin to write, last colour | unchanged | the object must move, and this be freed |
//! | live | free, colour c | free, next colour c | ends |
//! | live, served | free, colour c < last | free, next colour c + 1 | ends |
//! | live, served | free, last colour | retired | ends |
//! | retired | no node has a copy | free, next colour 0 | |
//!
//! Everything else is refused.

use crate::word::Colour;

/// A place for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Unowned; its next object begins with this colour.
    Free(Colour),
    /// An object's.
    Live {
        /// Some other rank has been given its value in the present colour.
        served: bool,
    },
    /// Unowned and unusable: its colours are used up, and copies may be left.
    Retired,
}

/// Event at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A new object, or one that moves here.
    Allocate,
    /// Its bytes are about to be given to another rank.
    Serve,
    /// A mutable borrow begins, of the word in this colour.
    Write(Colour),
    /// The object is dropped, or has moved away, and its word had this colour.
    Free(Colour),
    /// No node has a copy from here, nor a request for one in flight.
    Confirmed,
}

/// The new word of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing changes about it.
    Stays,
    /// It has this colour.
    Takes(Colour),
    /// It can only be written elsewhere.
    Move,
}

/// One row of the table; none if the event is refused: a peer's mistake, or the caller's.
pub fn step(slot: Slot, event: Event, last: Colour) -> Option<(Slot, Outcome)> {
    use Outcome::{Move, Stays, Takes};
    Some(match (slot, event) {
        (Slot::Free(next), Event::Allocate) => (Slot::Live { served: false }, Takes(next)),
        (Slot::Live { .. }, Event::Serve) => (Slot::Live { served: true }, Stays),
        (Slot::Live { served: false }, Event::Write(_)) => (slot, Stays),
        (Slot::Live { served: true }, Event::Write(colour)) => match colour.next(last) {
            Some(next) => (Slot::Live { served: false }, Takes(next)),
            None => (slot, Move),
        },
        (Slot::Live { served: false }, Event::Free(colour)) => (Slot::Free(colour), Stays),
        (Slot::Live { served: true }, Event::Free(colour)) => {
            (colour.next(last).map_or(Slot::Retired, Slot::Free), Stays)
        }
        (Slot::Retired, Event::Confirmed) => (Slot::Free(Colour::default()), Stays),
        _ => return None,
    })
}

/// Returns true if an arrived copy may be kept under its word: only if the borrow that requested it still
/// lives.
pub fn may_publish(borrow_lives: bool) -> bool {
    borrow_lives
}

#[cfg(test)]
mod walk;
#[cfg(test)]
mod walk_of_backups;
