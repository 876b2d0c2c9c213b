//! Strings of bytes between the members of a team: the box of one operation, and the messages that move between boxes.
//!
//! A *string* is what one member gives another in an operation under a *tag*. Short ones are sent unasked, within the
//! receiver's [credit](super::credit); others are offered, and asked for by their receiver when it knows where they go. Then
//! they are written there: by the sender itself if it is a pinned segment, otherwise by the receiver as the pieces come.

use super::arrival::{Arrivals, Landing, Next, Piece};
use super::credit::Credit;
use super::departure::{Departures, Text, place_of};
use crate::fatal::{fail, fatal};
use crate::job;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use vgas_rma::Peer;
use vgas_rma::conduit::Sent;
use vgas_rma::endpoint::Token;
use vgas_rma::message::{Arrived, Payload};

/// The handler of all messages of collectives.
pub(crate) const HANDLER: u8 = 111;

/// Which operation: of which team and sequence, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Number of the team (see `team`).
    pub team: u64,
    /// Operations of all images, of one image a rank, and the library's own are counted apart.
    pub sequence: u32,
    /// Wraps around.
    pub number: u32,
}

/// Which string of an operation, between two members.
pub(super) type Tag = u32;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum What {
    /// A string, unasked. Number: its length.
    Whole = 0,
    /// There is a string. Number: its length.
    Offer = 1,
    /// The answer to an offer. Number: 0, or one more than the offset in the asker's segment at which to write it.
    Ask = 2,
    /// A piece of what was asked for.
    Piece = 3,
    /// Strings that came unasked were taken. Number: their bytes of credit.
    Credit = 4,
    /// Not about a string: an arrival at a barrier of the team (see `barrier`).
    Barrier = 5,
}

impl What {
    fn of(word: u32) -> Option<Self> {
        [Self::Whole, Self::Offer, Self::Ask, Self::Piece, Self::Credit, Self::Barrier]
            .into_iter()
            .find(|what| *what as u32 == word)
    }
}

impl Key {
    /// The arguments of a message.
    pub(super) fn words(self, tag: Tag, what: What, number: u64) -> [u32; 8] {
        let Key { team, sequence, number: operation } = self;
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let ((team_low, team_high), (low, high)) = (halves(team), halves(number));
        [team_low, team_high, sequence, operation, tag, what as u32, low, high]
    }
}

static CREDIT: LazyLock<Credit> = LazyLock::new(Credit::default);

/// What has come for one operation and was not taken, and what has not been sent.
#[derive(Default)]
pub(super) struct Box {
    arrivals: Mutex<Arrivals>,
    departures: Mutex<Departures>,
}

/// Locks, also after a panic elsewhere (which ends the job).
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Box {
    /// Says where a string goes that a sender gives, has given, or will give.
    pub(super) fn expect(&self, key: Key, from: Peer, tag: Tag, at: Landing, bytes: usize) {
        let place = match &at {
            Landing::Client(memory) => place_of(*memory, bytes),
            Landing::Own(_) => None,
        };
        let mut arrivals = lock(&self.arrivals);
        let next = arrivals.expect(from, tag, at, bytes, place);
        drop(arrivals);
        if let Err(what) = self.go_on(key, from, tag, next) {
            fatal(what);
        }
    }

    /// The string of a sender, once it is there.
    pub(super) fn take(&self, from: Peer, tag: Tag) -> Option<Landing> {
        lock(&self.arrivals).take(from, tag)
    }

    /// Does what follows from something that has come, or was asked for. An error is the sender's fault.
    fn go_on(&self, key: Key, from: Peer, tag: Tag, next: Next) -> Result<(), &'static str> {
        match next {
            Next::Nothing => {}
            Next::Taken(bytes) => {
                if let Some(amount) = CREDIT.taken(from, bytes) {
                    let words = key.words(tag, What::Credit, amount as u64);
                    let endpoint = job::joined().runtime.endpoint();
                    match endpoint.try_request(from, HANDLER, &words, Payload::Short) {
                        Ok(Sent::Accepted) => {}
                        Ok(Sent::Busy) => CREDIT.not_told(from, amount),
                        Err(error) => fail(error),
                    }
                }
            }
            Next::Ask(place) => {
                lock(&self.departures).ask(from, tag, place);
                self.flush(key);
            }
            Next::Differs(got, expected) => fatal(format_args!(
                "a collective for which another member gave {got} bytes and this one {expected}"
            )),
            Next::Refuse => return Err("a string of a collective that does not fit what came before"),
        }
        Ok(())
    }

    /// Sends a string, now or when there is room.
    pub(super) fn send(&self, to: Peer, key: Key, tag: Tag, text: Text) {
        lock(&self.departures).add(to, tag, text);
        self.flush(key);
    }

    /// Sends what there is room for. True: nothing is left.
    pub(super) fn flush(&self, key: Key) -> bool {
        lock(&self.departures).flush(key, &CREDIT)
    }
}

/// A message of a collective has come.
pub(crate) fn on_message(token: &Token<'_>, words: &[u32], arrived: Arrived<'_>) {
    let &[team_low, team_high, sequence, operation, tag, what, low, high] = words else {
        return token.refuse("a malformed message of a collective");
    };
    let wide = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let key = Key { team: wide(team_low, team_high), sequence, number: operation };
    let (from, number) = (token.from(), wide(low, high));
    if what == What::Barrier as u32 {
        return super::barrier::on_arrived(token, key.team, tag, number);
    }
    if what == What::Credit as u32 {
        if !CREDIT.returned(from, number as usize) {
            token.refuse("more credit than strings were sent");
        }
        return;
    }
    let operation = super::operation::find(key);
    let mail = operation.mail();
    let arrivals = || lock(&mail.arrivals);
    let next = match (What::of(what), arrived) {
        (Some(What::Whole), Arrived::Medium(bytes)) => {
            if !CREDIT.arrived(from, bytes.len()) {
                return token.refuse("more strings of collectives than there is credit for");
            }
            arrivals().whole(from, tag, bytes)
        }
        (Some(What::Offer), Arrived::Short) => arrivals().offered(from, tag, number as usize),
        (Some(What::Piece), Arrived::Medium(bytes)) => arrivals().piece(from, tag, Piece::Bytes(bytes)),
        (Some(What::Piece), Arrived::Long(address, bytes)) => {
            arrivals().piece(from, tag, Piece::Placed(address, bytes))
        }
        (Some(What::Ask), Arrived::Short) => {
            match lock(&mail.departures).asked(from, tag, number.checked_sub(1)) {
                true => Next::Nothing,
                false => Next::Refuse,
            }
        }
        _ => return token.refuse("a malformed message of a collective"),
    };
    if let Err(what) = mail.go_on(key, from, tag, next) {
        return token.refuse(what);
    }
    operation.step(super::operation::Where::Handler);
}
