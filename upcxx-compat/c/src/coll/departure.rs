//! Strings on their way out: sent unasked, or offered, asked for, and sent in pieces.

use super::credit::{Credit, UNASKED_MAX};
use super::memory::Memory;
use super::post::{Key, Tag, What};
use crate::am::Private;
use crate::fatal::fail;
use crate::job;
use crate::segment;
use libc::c_void;
use std::sync::Arc;
use vgas_rma::conduit::Sent;
use vgas_rma::message::{Destination, Payload, Source};
use vgas_rma::{Peer, RegionId};

/// Bytes of a piece that is written straight to its place: large enough to hide what a message costs, small enough that
/// others get their turn.
const PLACED_BYTES_MAX: usize = 256 << 10;

/// The bytes of a string.
#[derive(Clone, Debug)]
pub(super) enum Text {
    /// The library's.
    Own(Arc<[u8]>),
    /// The client's, which stay as they are until the operation is done.
    Client(Memory, usize),
}

impl Text {
    fn bytes(&self) -> usize {
        match self {
            Self::Own(own) => own.len(),
            Self::Client(_, bytes) => *bytes,
        }
    }

    /// The address of a part.
    fn address(&self, offset: usize) -> *const u8 {
        match self {
            Self::Own(own) => own.as_ptr().wrapping_add(offset),
            Self::Client(memory, _) => memory.at(offset).address(),
        }
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Own(bytes.into())
    }
}

#[derive(Debug)]
enum Stage {
    /// Nothing was said of it.
    New(Text),
    /// It waits for being asked for.
    Offered(Text),
    /// It was asked for: into this place of the receiver's segment, or into messages.
    Asked { text: Text, place: Option<u64>, sent: usize },
    /// Not a string: this rank asks for one.
    Question { place: Option<u64> },
}

#[derive(Debug)]
struct Departure {
    to: Peer,
    tag: Tag,
    stage: Stage,
}

/// What became of an attempt.
enum Attempt {
    Done,
    /// It can go on at once.
    Goes,
    /// It needs an answer first.
    Waits,
    /// There is no room now.
    Busy,
}

/// The strings of one operation that this rank has not sent.
#[derive(Debug, Default)]
pub(super) struct Departures(Vec<Departure>);

impl Departures {
    /// Adds a string.
    pub(super) fn add(&mut self, to: Peer, tag: Tag, text: Text) {
        self.0.push(Departure { to, tag, stage: Stage::New(text) });
    }

    /// Asks a sender for what it has offered: to write it to an offset of this rank's segment, or in messages.
    pub(super) fn ask(&mut self, to: Peer, tag: Tag, place: Option<u64>) {
        self.0.push(Departure { to, tag, stage: Stage::Question { place } });
    }

    /// A receiver asks for a string. False: it was not offered to it.
    pub(super) fn asked(&mut self, by: Peer, tag: Tag, place: Option<u64>) -> bool {
        let offered = self.0.iter_mut().find(|departure| {
            departure.to == by && departure.tag == tag && matches!(departure.stage, Stage::Offered(_))
        });
        let Some(Departure { stage, .. }) = offered else { return false };
        if let Stage::Offered(text) = stage {
            let text = text.clone();
            *stage = Stage::Asked { text, place, sent: 0 };
        }
        true
    }

    /// Sends what there is room for. True: nothing is left.
    pub(super) fn flush(&mut self, key: Key, credit: &Credit) -> bool {
        let mut busy: Vec<Peer> = Vec::new();
        self.0.retain_mut(|departure| {
            if busy.contains(&departure.to) {
                return true;
            }
            loop {
                match departure.step(key, credit) {
                    Attempt::Done => return false,
                    Attempt::Goes => {}
                    Attempt::Waits => return true,
                    Attempt::Busy => {
                        busy.push(departure.to);
                        return true;
                    }
                }
            }
        });
        self.0.is_empty()
    }
}

impl Departure {
    fn step(&mut self, key: Key, credit: &Credit) -> Attempt {
        let (to, tag) = (self.to, self.tag);
        let send = |what: What, number: u64, payload: Payload<'_>| {
            let words = key.words(tag, what, number);
            match job::joined().runtime.endpoint().try_request(to, super::HANDLER, &words, payload) {
                Ok(sent) => sent == Sent::Accepted,
                Err(error) => fail(error),
            }
        };
        match &mut self.stage {
            Stage::New(text) => {
                let bytes = text.bytes();
                if credit.spend(to, bytes) {
                    let private = private(text, 0, bytes);
                    if send(What::Whole, bytes as u64, Payload::Medium(private.source())) {
                        return Attempt::Done;
                    }
                    credit.not_sent(to, bytes);
                    return Attempt::Busy;
                }
                if !send(What::Offer, bytes as u64, Payload::Short) {
                    return Attempt::Busy;
                }
                self.stage = Stage::Offered(text.clone());
                Attempt::Waits
            }
            Stage::Offered(_) => Attempt::Waits,
            Stage::Asked { text, place, sent } => {
                let rest = text.bytes() - *sent;
                let endpoint = job::joined().runtime.endpoint();
                let (bytes, is_sent) = match *place {
                    Some(offset) => {
                        let bytes = rest.min(PLACED_BYTES_MAX).min(endpoint.long_bytes_max());
                        // SAFETY: rule 1: the operation is not done, so the client's bytes are valid; others are the
                        // library's.
                        let source = unsafe { Source::raw(text.address(*sent), bytes) };
                        let offset = offset + *sent as u64;
                        let destination =
                            Destination::Region { region: RegionId::SEGMENT, owner: to, offset };
                        (bytes, send(What::Piece, 0, Payload::Long(source, destination)))
                    }
                    None => {
                        let bytes = rest.min(endpoint.medium_bytes_max());
                        let private = private(text, *sent, bytes);
                        (bytes, send(What::Piece, 0, Payload::Medium(private.source())))
                    }
                };
                if !is_sent {
                    return Attempt::Busy;
                }
                *sent += bytes;
                if *sent == text.bytes() { Attempt::Done } else { Attempt::Goes }
            }
            Stage::Question { place } => {
                // 0 is no place.
                let number = place.map_or(0, |offset| offset + 1);
                if send(What::Ask, number, Payload::Short) { Attempt::Done } else { Attempt::Busy }
            }
        }
    }
}

/// A part of a string where a conduit may read it.
fn private(text: &Text, offset: usize, bytes: usize) -> Private {
    // SAFETY: rule 1: the operation is not done, so the client's bytes are valid; others are the library's.
    unsafe { Private::of(text.address(offset).cast::<c_void>(), bytes) }
}

/// The offset in this rank's segment of memory into which others can write by themselves.
pub(super) fn place_of(memory: Memory, bytes: usize) -> Option<u64> {
    if segment::is_tiered() || bytes <= UNASKED_MAX {
        return None;
    }
    let own = job::joined().runtime.rank().0;
    segment::offset_of(own, memory.address().cast(), bytes)
}
