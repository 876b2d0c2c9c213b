//! Strings of bytes between the members of a team.

use crate::fatal::fail;
use crate::job;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vgas_rma::Peer;
use vgas_rma::conduit::Sent;
use vgas_rma::endpoint::Token;
use vgas_rma::message::{Arrived, Payload, Source};

/// The handler of strings.
pub(crate) const HANDLER: u8 = 111;

/// Which operation: of which team and sequence, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Number of the team (see `team`).
    pub team: u64,
    /// Operations of all images, of one image a rank, and barriers are counted apart.
    pub sequence: u32,
    /// Wraps around.
    pub number: u32,
}

/// Which string of an operation, between two members.
pub(super) type Tag = u32;

/// A string of which pieces have arrived, in order.
struct Arriving {
    bytes: Vec<u8>,
    total: usize,
}

/// What has arrived for one operation and was not taken, and what has not been sent.
#[derive(Default)]
pub(super) struct Box {
    arrived: Mutex<HashMap<(Peer, Tag), Arriving>>,
    leaving: Mutex<VecDeque<Leaving>>,
}

/// A string of which pieces are left to be sent.
struct Leaving {
    to: Peer,
    key: Key,
    tag: Tag,
    bytes: Arc<[u8]>,
    sent: usize,
}

/// Locks, also after a panic elsewhere (which ends the job).
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Box {
    /// The string of a sender, once it is whole.
    pub(super) fn take(&self, from: Peer, tag: Tag) -> Option<Vec<u8>> {
        let mut arrived = lock(&self.arrived);
        let is_whole = arrived.get(&(from, tag)).is_some_and(|string| string.bytes.len() == string.total);
        is_whole.then(|| arrived.remove(&(from, tag)).map(|string| string.bytes)).flatten()
    }

    /// Adds a piece. False: it does not fit what came before.
    fn add(&self, from: Peer, tag: Tag, total: usize, piece: &[u8]) -> bool {
        let mut arrived = lock(&self.arrived);
        let string = arrived.entry((from, tag)).or_insert_with(|| Arriving { bytes: Vec::new(), total });
        let fits = string.total == total && piece.len() <= total - string.bytes.len();
        if fits {
            string.bytes.extend_from_slice(piece);
        }
        fits
    }

    /// Sends a string, now or when there is room.
    pub(super) fn send(&self, to: Peer, key: Key, tag: Tag, bytes: Arc<[u8]>) {
        lock(&self.leaving).push_back(Leaving { to, key, tag, bytes, sent: 0 });
        self.flush();
    }

    /// Sends what there is room for. True: nothing is left.
    pub(super) fn flush(&self) -> bool {
        let mut leaving = lock(&self.leaving);
        let endpoint = job::joined().runtime.endpoint();
        while let Some(string) = leaving.front_mut() {
            let piece_max = endpoint.medium_bytes_max();
            let rest = &string.bytes[string.sent..];
            let piece = &rest[..rest.len().min(piece_max)];
            let total = string.bytes.len() as u64;
            let Key { team, sequence, number } = string.key;
            let words = [
                team as u32,
                (team >> 32) as u32,
                sequence,
                number,
                string.tag,
                total as u32,
                (total >> 32) as u32,
            ];
            match endpoint.try_request(string.to, HANDLER, &words, Payload::Medium(Source::of(piece))) {
                Ok(Sent::Accepted) => {
                    string.sent += piece.len();
                    if string.sent == string.bytes.len() {
                        leaving.pop_front();
                    }
                }
                Ok(Sent::Busy) => return false,
                Err(error) => fail(error),
            }
        }
        true
    }
}

/// A piece of a string has arrived.
pub(crate) fn on_string(token: &Token<'_>, words: &[u32], arrived: Arrived<'_>) {
    let (&[team_low, team_high, sequence, number, tag, total_low, total_high], Arrived::Medium(piece)) =
        (words, arrived)
    else {
        return token.refuse("a malformed string of a collective");
    };
    let wide = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let key = Key { team: wide(team_low, team_high), sequence, number };
    let operation = super::operation::find(key);
    if !operation.mail().add(token.from(), tag, wide(total_low, total_high) as usize, piece) {
        return token.refuse("pieces of a collective that do not fit together");
    }
    operation.step(super::operation::Where::Handler);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_taken_when_it_is_whole() {
        let mail = Box::default();
        let (one, other) = (Peer(1), Peer(2));
        assert!(mail.add(one, 7, 5, b"abc"));
        assert_eq!(mail.take(one, 7), None);
        assert!(mail.add(other, 7, 0, b""));
        assert!(mail.add(one, 7, 5, b"de"));
        assert_eq!(mail.take(one, 8), None);
        assert_eq!(mail.take(one, 7).as_deref(), Some(&b"abcde"[..]));
        assert_eq!(mail.take(one, 7), None);
        assert_eq!(mail.take(other, 7).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn pieces_that_disagree_or_are_too_long_are_refused() {
        let mail = Box::default();
        assert!(mail.add(Peer(0), 1, 4, b"ab"));
        assert!(!mail.add(Peer(0), 1, 5, b"c"));
        assert!(!mail.add(Peer(0), 1, 4, b"cde"));
        assert!(mail.add(Peer(0), 1, 4, b"cd"));
        assert!(!mail.add(Peer(0), 1, 4, b"e"));
    }
}
