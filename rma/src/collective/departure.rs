//! Strings on their way out: sent unasked, or offered, asked for, and sent in pieces.

use super::call::Call;
use super::post::{Key, PostKind, Tag};
use super::view::View;
use super::{Collectives, HANDLER};
use crate::Peer;
use crate::conduit::Sent;
use crate::message::{Destination, Payload, Source};
use crate::{RegionId, Result};
use std::sync::Arc;

/// Bytes of a piece that is written straight to its place: large enough to hide what a message costs, small enough that
/// others get their turn.
const PLACED_BYTES_MAX: usize = 256 << 10;

/// The bytes of a string that is sent.
#[derive(Clone, Debug)]
pub enum Text {
    /// The engine's.
    Own(Arc<Vec<u8>>),
    /// The caller's, which stay as they are until the operation is done.
    View(View),
}

impl Text {
    /// Returns their number.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Own(own) => own.len(),
            Self::View(view) => view.bytes(),
        }
    }

    /// Returns a copy of them, or the bytes themselves if there are no other users.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Own(own) => Arc::unwrap_or_clone(own),
            Self::View(view) => view.read(),
        }
    }

    fn part(&self, offset: usize, bytes: usize) -> Source<'_> {
        match self {
            Self::Own(own) => Source::of(&own[offset..offset + bytes]),
            Self::View(view) => view.part(offset, bytes).source(),
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

/// Outcome of an attempt.
enum Attempt {
    Done,
    /// It can proceed at once.
    Goes,
    /// It needs an answer first.
    Waits,
    /// There is no room now.
    Busy,
}

/// The outcome of sending what there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Nothing is left.
    All,
    /// The rest is sent when its receivers ask for it.
    Waits,
    /// The rest waits for room, which no message announces.
    Busy,
}

/// The strings of one operation that this rank has not sent.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// This rank's call, once it has begun: before, it sends nothing.
    pub(super) call: Option<Call>,
    strings: Vec<Departure>,
}

impl Departures {
    /// Adds a string.
    pub(super) fn add(&mut self, to: Peer, tag: Tag, text: Text) {
        self.strings.push(Departure { to, tag, stage: Stage::New(text) });
    }

    /// Requests an offered string from its sender: to write it to an offset of this rank's segment, or in
    /// messages.
    pub(super) fn ask(&mut self, to: Peer, tag: Tag, place: Option<u64>) {
        self.strings.push(Departure { to, tag, stage: Stage::Question { place } });
    }

    /// A receiver asks for a string. False: it was not offered to it, or no segment has room for it at that place.
    pub(super) fn asked(&mut self, by: Peer, tag: Tag, place: Option<u64>) -> bool {
        let offered = self.strings.iter_mut().find(|departure| {
            departure.to == by && departure.tag == tag && matches!(departure.stage, Stage::Offered(_))
        });
        let Some(Departure { stage, .. }) = offered else { return false };
        if let Stage::Offered(text) = stage {
            if place.is_some_and(|place| place.checked_add(text.bytes() as u64).is_none()) {
                return false;
            }
            let text = text.clone();
            *stage = Stage::Asked { text, place, sent: 0 };
        }
        true
    }

    /// Sends what there is room for. An error of a conduit fails the endpoint, unless it is about a lost node: the operation ends by
    /// that.
    pub(super) fn flush(&mut self, key: Key, engine: &Collectives) -> Flushed {
        let Some(call) = self.call else { return Flushed::All };
        let mut busy: Vec<Peer> = Vec::new();
        self.strings.retain_mut(|departure| {
            if busy.contains(&departure.to) {
                return true;
            }
            loop {
                match departure.step(key, call, engine) {
                    Ok(Attempt::Done) => return false,
                    Ok(Attempt::Goes) => {}
                    Ok(Attempt::Waits) => return true,
                    Ok(Attempt::Busy) => {
                        busy.push(departure.to);
                        return true;
                    }
                    Err(error) => {
                        engine.endpoint.fail_of(departure.to, error);
                        return true;
                    }
                }
            }
        });
        match (self.strings.is_empty(), busy.is_empty()) {
            (true, _) => Flushed::All,
            (false, true) => Flushed::Waits,
            (false, false) => Flushed::Busy,
        }
    }
}

impl Departure {
    fn step(&mut self, key: Key, call: Call, engine: &Collectives) -> Result<Attempt> {
        let (to, tag) = (self.to, self.tag);
        let (endpoint, credit) = (&engine.endpoint, &engine.credit);
        let send = |what: PostKind, number: u64, payload: Payload<'_>| -> Result<bool> {
            let words = key.words(call, tag, what, number);
            let present = endpoint.present(payload);
            let payload = match (&present, payload) {
                (Some(copy), Payload::Long(_, destination)) => Payload::Long(Source::of(copy), destination),
                (Some(copy), _) => Payload::Medium(Source::of(copy)),
                (None, payload) => payload,
            };
            Ok(endpoint.try_request(to, HANDLER, &words, payload)? == Sent::Accepted)
        };
        Ok(match &mut self.stage {
            Stage::New(text) => {
                let bytes = text.bytes();
                // Some conduits have smaller messages.
                if bytes <= endpoint.medium_bytes_max() && credit.spend(to, bytes) {
                    if send(PostKind::Whole, bytes as u64, Payload::Medium(text.part(0, bytes)))? {
                        return Ok(Attempt::Done);
                    }
                    credit.not_sent(to, bytes);
                    return Ok(Attempt::Busy);
                }
                if !send(PostKind::Offer, bytes as u64, Payload::Short)? {
                    return Ok(Attempt::Busy);
                }
                self.stage = Stage::Offered(text.clone());
                Attempt::Waits
            }
            Stage::Offered(_) => Attempt::Waits,
            Stage::Asked { text, place, sent } => {
                let rest = text.bytes() - *sent;
                let (bytes, is_sent) = match *place {
                    Some(offset) => {
                        let bytes = rest.min(PLACED_BYTES_MAX).min(endpoint.long_bytes_max());
                        let offset = offset + *sent as u64;
                        let destination =
                            Destination::Region { region: RegionId::SEGMENT, owner: to, offset };
                        let payload = Payload::Long(text.part(*sent, bytes), destination);
                        (bytes, send(PostKind::Piece, 0, payload)?)
                    }
                    None => {
                        let bytes = rest.min(endpoint.medium_bytes_max());
                        (bytes, send(PostKind::Piece, 0, Payload::Medium(text.part(*sent, bytes)))?)
                    }
                };
                if !is_sent {
                    return Ok(Attempt::Busy);
                }
                *sent += bytes;
                if *sent == text.bytes() { Attempt::Done } else { Attempt::Goes }
            }
            Stage::Question { place } => {
                // 0 is no place.
                let number = place.map_or(0, |offset| offset + 1);
                if send(PostKind::Ask, number, Payload::Short)? { Attempt::Done } else { Attempt::Busy }
            }
        })
    }
}
