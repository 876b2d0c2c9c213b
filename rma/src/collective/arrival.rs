//! Strings on their way in: each by its sender and tag, from whichever comes first, its first message or its receiver.

use super::call::{Call, Calls};
use super::post::Tag;
use super::view::View;
use crate::Peer;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Destination of a string.
#[derive(Debug, PartialEq, Eq)]
pub enum Landing {
    /// Into memory of the engine's own, of as many bytes as have come.
    Own(Vec<u8>),
    /// The caller's memory: as many bytes as the string has.
    View(View),
}

impl Landing {
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        match self {
            Self::Own(own) => own.extend_from_slice(bytes),
            Self::View(view) => view.part(offset, bytes.len()).write(bytes),
        }
    }
}

/// One string.
#[derive(Debug)]
enum Arrival {
    /// It came unasked, and was not expected yet.
    Whole(Vec<u8>),
    /// It was offered, and was not expected yet.
    Offered(usize),
    /// Its receiver waits for it, of this length or any, at this offset of its segment if others can write
    /// there.
    Expected { at: Landing, total: Option<usize>, place: Option<u64> },
    /// It was asked for, and comes in pieces.
    Coming { at: Landing, total: usize, come: usize },
    /// It is in its receiver's place.
    There(Landing),
}

/// A part of a string that was asked for.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// To be put into the string's place.
    Bytes(&'a [u8]),
    /// There already: its address and length.
    Placed(*mut u8, usize),
}

/// The next step after an arrival or an expectation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing.
    Nothing,
    /// A string that had come unasked was taken: this credit is free again.
    Taken(usize),
    /// The sender is to be asked for it, at this offset of the segment or in messages.
    Ask(Option<u64>),
    /// Its sender gives another number of bytes than this rank expects.
    Differs(usize, usize),
    /// Its sender calls the first, and this rank the other.
    Calls(Call, Call),
    /// A violation of the protocol.
    Refuse,
}

/// The strings of one operation on this rank.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    strings: HashMap<(Peer, Tag), Arrival>,
    /// The collectives that the members call.
    pub(super) calls: Calls,
}

impl Arrivals {
    /// Notes a member's call. Some: it differs from this rank's. Some: that is not what this rank does.
    pub(super) fn hear(&mut self, from: Peer, call: Call) -> Option<Next> {
        self.calls.hear(from, call).map(|own| Next::Calls(call, own))
    }

    /// A string has come unasked.
    pub(super) fn whole(&mut self, from: Peer, tag: Tag, bytes: &[u8]) -> Next {
        match self.strings.entry((from, tag)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Arrival::Whole(bytes.to_vec()));
                Next::Nothing
            }
            Entry::Occupied(mut occupied) => {
                let Arrival::Expected { at, total, .. } = occupied.get_mut() else { return Next::Refuse };
                if let Some(total) = total.filter(|total| *total != bytes.len()) {
                    return Next::Differs(bytes.len(), total);
                }
                at.put(0, bytes);
                let at = std::mem::replace(at, Landing::Own(Vec::new()));
                occupied.insert(Arrival::There(at));
                Next::Taken(bytes.len())
            }
        }
    }

    /// A string was offered.
    pub(super) fn offered(&mut self, from: Peer, tag: Tag, bytes: usize) -> Next {
        match self.strings.entry((from, tag)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Arrival::Offered(bytes));
                Next::Nothing
            }
            Entry::Occupied(mut occupied) => {
                let Arrival::Expected { at, total, place } = occupied.get_mut() else {
                    return Next::Refuse;
                };
                if let Some(total) = total.filter(|total| *total != bytes) {
                    return Next::Differs(bytes, total);
                }
                let place = *place;
                let at = std::mem::replace(at, Landing::Own(Vec::new()));
                occupied.insert(Arrival::Coming { at, total: bytes, come: 0 });
                Next::Ask(place)
            }
        }
    }

    /// A piece of a string that was asked for; they come in order.
    pub(super) fn piece(&mut self, from: Peer, tag: Tag, piece: Piece<'_>) -> Next {
        let Some(arrival) = self.strings.get_mut(&(from, tag)) else { return Next::Refuse };
        let Arrival::Coming { at, total, come } = arrival else { return Next::Refuse };
        let bytes = match &piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Placed(_, bytes) => *bytes,
        };
        if bytes > *total - *come {
            return Next::Refuse;
        }
        match (piece, &mut *at) {
            (Piece::Bytes(bytes), at) => at.put(*come, bytes),
            (Piece::Placed(address, _), Landing::View(view))
                if view.part(*come, bytes).address() == address => {}
            (Piece::Placed(..), _) => return Next::Refuse,
        }
        *come += bytes;
        if come == total {
            let at = std::mem::replace(at, Landing::Own(Vec::new()));
            *arrival = Arrival::There(at);
        }
        Next::Nothing
    }

    /// Expects a string of this length, or of any, at an offset of its segment if others can write there.
    /// Once for each.
    pub(super) fn expect(
        &mut self,
        from: Peer,
        tag: Tag,
        mut at: Landing,
        bytes: Option<usize>,
        place: Option<u64>,
    ) -> Next {
        let (arrival, next) = match self.strings.remove(&(from, tag)) {
            None => (Arrival::Expected { at, total: bytes, place }, Next::Nothing),
            Some(Arrival::Whole(string)) if bytes.is_none_or(|bytes| string.len() == bytes) => {
                let bytes = string.len();
                let at = match at {
                    Landing::Own(_) => Landing::Own(string),
                    Landing::View(_) => {
                        at.put(0, &string);
                        at
                    }
                };
                (Arrival::There(at), Next::Taken(bytes))
            }
            Some(Arrival::Offered(total)) if bytes.is_none_or(|bytes| total == bytes) => {
                (Arrival::Coming { at, total, come: 0 }, Next::Ask(place))
            }
            Some(Arrival::Whole(string)) => return Next::Differs(string.len(), bytes.unwrap_or(0)),
            Some(Arrival::Offered(total)) => return Next::Differs(total, bytes.unwrap_or(0)),
            Some(_) => return Next::Refuse,
        };
        self.strings.insert((from, tag), arrival);
        next
    }

    /// A string that was expected, once it is there.
    pub(super) fn take(&mut self, from: Peer, tag: Tag) -> Option<Landing> {
        match self.strings.entry((from, tag)) {
            Entry::Occupied(occupied) if matches!(occupied.get(), Arrival::There(_)) => {
                match occupied.remove() {
                    Arrival::There(at) => Some(at),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Peer = Peer(1);
    const OTHER: Peer = Peer(2);

    fn own() -> Landing {
        Landing::Own(Vec::new())
    }

    #[test]
    fn a_short_string_may_come_before_or_after_its_receiver() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.whole(ONE, 7, b"abc"), Next::Nothing);
        assert_eq!(arrivals.take(ONE, 7), None);
        assert_eq!(arrivals.expect(ONE, 7, own(), Some(3), None), Next::Taken(3));
        assert_eq!(arrivals.take(ONE, 7), Some(Landing::Own(b"abc".to_vec())));
        let mut place = [0u8; 3];
        let view = View::of_test(&mut place);
        assert_eq!(arrivals.expect(OTHER, 7, Landing::View(view), Some(3), None), Next::Nothing);
        assert_eq!(arrivals.take(OTHER, 7), None);
        assert_eq!(arrivals.whole(OTHER, 7, b"def"), Next::Taken(3));
        assert_eq!(arrivals.take(OTHER, 7), Some(Landing::View(view)));
        assert_eq!(view.read(), b"def");
        assert_eq!(arrivals.take(OTHER, 7), None);
    }

    #[test]
    fn a_long_string_is_asked_for_once_and_comes_in_pieces() {
        for receiver_is_first in [true, false] {
            let mut arrivals = Arrivals::default();
            let steps = if receiver_is_first {
                [arrivals.expect(ONE, 1, own(), Some(5), None), arrivals.offered(ONE, 1, 5)]
            } else {
                [arrivals.offered(ONE, 1, 5), arrivals.expect(ONE, 1, own(), Some(5), None)]
            };
            assert_eq!(steps, [Next::Nothing, Next::Ask(None)]);
            assert_eq!(arrivals.piece(ONE, 1, Piece::Bytes(b"ab")), Next::Nothing);
            assert_eq!(arrivals.take(ONE, 1), None);
            assert_eq!(arrivals.piece(ONE, 1, Piece::Bytes(b"cde")), Next::Nothing);
            assert_eq!(arrivals.take(ONE, 1), Some(Landing::Own(b"abcde".to_vec())));
        }
    }

    #[test]
    fn a_placed_piece_lies_where_the_string_goes() {
        let mut place = [0u8; 4];
        let view = View::of_test(&mut place);
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.expect(ONE, 1, Landing::View(view), Some(4), None), Next::Nothing);
        assert_eq!(arrivals.offered(ONE, 1, 4), Next::Ask(None));
        assert_eq!(arrivals.piece(ONE, 1, Piece::Placed(view.part(1, 1).address(), 2)), Next::Refuse);
        assert_eq!(arrivals.piece(ONE, 1, Piece::Placed(view.address(), 2)), Next::Nothing);
        assert_eq!(arrivals.piece(ONE, 1, Piece::Placed(view.part(2, 1).address(), 3)), Next::Refuse);
        assert_eq!(arrivals.piece(ONE, 1, Piece::Placed(view.part(2, 1).address(), 2)), Next::Nothing);
        assert_eq!(arrivals.take(ONE, 1), Some(Landing::View(view)));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.piece(ONE, 1, Piece::Bytes(b"a")), Next::Refuse);
        assert_eq!(arrivals.offered(ONE, 1, 4), Next::Nothing);
        assert_eq!(arrivals.offered(ONE, 1, 4), Next::Refuse);
        assert_eq!(arrivals.whole(ONE, 1, b"abcd"), Next::Refuse);
        assert_eq!(arrivals.piece(ONE, 1, Piece::Bytes(b"a")), Next::Refuse);
        assert_eq!(arrivals.expect(ONE, 1, own(), Some(4), None), Next::Ask(None));
        assert_eq!(arrivals.piece(ONE, 1, Piece::Bytes(b"abcde")), Next::Refuse);
        assert_eq!(arrivals.expect(ONE, 2, own(), Some(4), None), Next::Nothing);
        assert_eq!(arrivals.whole(ONE, 2, b"abc"), Next::Differs(3, 4));
        assert_eq!(arrivals.offered(OTHER, 2, 9), Next::Nothing);
        assert_eq!(arrivals.expect(OTHER, 2, own(), Some(4), None), Next::Differs(9, 4));
    }

    /// An empty string that is offered, for want of credit, is there when its one piece has come.
    #[test]
    fn an_empty_string_has_one_piece() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.offered(ONE, 1, 0), Next::Nothing);
        assert_eq!(arrivals.expect(ONE, 1, own(), Some(0), None), Next::Ask(None));
        assert_eq!(arrivals.take(ONE, 1), None);
        assert_eq!(arrivals.piece(ONE, 1, Piece::Bytes(b"")), Next::Nothing);
        assert_eq!(arrivals.take(ONE, 1), Some(own()));
    }
}
