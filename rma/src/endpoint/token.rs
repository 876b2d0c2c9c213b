//! A handler's access to the message that it handles.

use super::{Endpoint, handler_index};
use crate::address::Peer;
use crate::conduit::Sent;
use crate::error::{Result, RmaError};
use crate::message::{Direction, Payload, Source};
use std::cell::Cell;

/// A message that is being handled: its sender, and the right to answer once.
pub struct Token<'a> {
    endpoint: &'a Endpoint,
    from: Peer,
    direction: Direction,
    /// The handler runs inside a request of this peer to itself ([`Endpoint::request_inline`]); so does that of the reply.
    is_inline: bool,
    replied: Cell<bool>,
}

impl<'a> Token<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, from: Peer, direction: Direction) -> Self {
        Self { endpoint, from, direction, is_inline: false, replied: Cell::new(false) }
    }

    /// The token of a message of this peer to itself that is handled inside the call that sends it.
    pub(super) fn inline(endpoint: &'a Endpoint, direction: Direction) -> Self {
        Self { endpoint, from: endpoint.me, direction, is_inline: true, replied: Cell::new(false) }
    }

    pub(crate) fn endpoint(&self) -> &'a Endpoint {
        self.endpoint
    }

    /// Returns the endpoint that delivers.
    ///
    /// # Safety
    /// It reaches whatever the job has. The caller sends no message to a handler, and writes into no pinned segment, that belong
    /// to a library other than its own or to the cache.
    pub unsafe fn raw_endpoint(&self) -> &'a Endpoint {
        self.endpoint
    }

    /// Returns the sender of the message.
    pub fn from(&self) -> Peer {
        self.from
    }

    /// Returns its direction.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Answers the request. Never waits; the source is reusable when it returns, and may lie anywhere (see
    /// [`Endpoint::set_absent`]). In a job that continues without lost nodes, an answer to one is dropped.
    ///
    /// # Errors
    /// [`RmaError::Usage`] for a second reply, in the handler of a reply, and for an index below [`handler_index::USER`].
    pub fn reply(&self, handler: u8, arguments: &[u32], payload: Payload<'_>) -> Result<()> {
        if handler < handler_index::USER {
            return Err(RmaError::Usage(format!("handler index {handler}: programs have 128 to 255")));
        }
        self.answer(handler, arguments, payload)
    }

    /// [`Token::reply`] to a handler of any index.
    ///
    /// # Safety
    /// The handler is one of the caller's library, and takes these bytes.
    #[inline]
    pub unsafe fn reply_library(&self, handler: u8, arguments: &[u32], payload: &Payload<'_>) -> Result<()> {
        self.answer_with(handler, arguments, payload)
    }

    /// [`Token::reply`] to any handler.
    #[inline]
    pub(crate) fn answer(&self, handler: u8, arguments: &[u32], payload: Payload<'_>) -> Result<()> {
        self.answer_with(handler, arguments, &payload)
    }

    /// A payload that was just written and is copied as a whole makes the processor wait.
    fn answer_with(&self, handler: u8, arguments: &[u32], payload: &Payload<'_>) -> Result<()> {
        if self.direction == Direction::Reply {
            return Err(RmaError::Usage("a reply can't be replied to".into()));
        }
        if self.replied.get() {
            return Err(RmaError::Usage("a request is replied to once".into()));
        }
        if self.is_inline {
            // Before the handler runs: it may have the token, too.
            self.replied.set(true);
            return self.endpoint.reply_inline(handler, arguments, payload);
        }
        self.send_answer(handler, arguments, payload)
    }

    #[inline(never)]
    fn send_answer(&self, handler: u8, arguments: &[u32], payload: &Payload<'_>) -> Result<()> {
        let payload = *payload;
        let sent = match payload {
            Payload::Short => {
                self.endpoint.send(self.from, Direction::Reply, handler, arguments, Payload::Short)
            }
            payload => {
                let own = self.endpoint.present(payload);
                let payload = match (&own, payload) {
                    (None, payload) => payload,
                    (Some(own), Payload::Long(_, to)) => Payload::Long(Source::of(own), to),
                    (Some(own), _) => Payload::Medium(Source::of(own)),
                };
                self.endpoint.send(self.from, Direction::Reply, handler, arguments, payload)
            }
        };
        let sent = match sent {
            // It has no waiters any more.
            Ok(Sent::Busy) | Err(RmaError::PeerLost { .. }) if self.endpoint.is_broken(self.from) => {
                Sent::Accepted
            }
            sent => sent?,
        };
        match sent {
            Sent::Accepted => {
                self.replied.set(true);
                Ok(())
            }
            Sent::Busy => Err(RmaError::Usage("the conduit broke its promise: no room for a reply".into())),
        }
    }

    /// [`Token::reply`] without bytes.
    pub fn reply_short(&self, handler: u8, arguments: &[u32]) -> Result<()> {
        self.reply(handler, arguments, Payload::Short)
    }

    /// [`Token::reply`] with bytes, at most [`Endpoint::medium_bytes_max`], which are copied before it returns.
    pub fn reply_medium(&self, handler: u8, arguments: &[u32], bytes: &[u8]) -> Result<()> {
        self.reply(handler, arguments, Payload::Medium(Source::of(bytes)))
    }

    /// Declares the message to be against the protocol: the endpoint fails with an error that names its sender.
    pub fn refuse(&self, what: impl Into<String>) {
        self.endpoint.fail(RmaError::Protocol { peer: Some(self.from), what: what.into() });
    }

    /// Fails the endpoint if `result` is an error: for what goes wrong while a handler answers.
    pub fn check(&self, result: Result<()>) {
        if let Err(error) = result {
            self.endpoint.fail(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::RmaError;
    use crate::address::{Layout, Peer};
    use crate::conduit::Sent;
    use crate::endpoint::{Endpoint, EndpointSpec, handler_index::USER};
    use crate::message::Payload;
    use std::sync::{Arc, Mutex};

    /// Goal: a program's handler answers once, and to handlers of programs alone.
    #[test]
    fn answers_go_to_handlers_of_programs() {
        let layout = Layout::blocks(1, 1);
        let spec = EndpointSpec { layout, me: Peer(0), domain: None, network: None };
        let endpoint = Endpoint::new(spec).expect("an endpoint");
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let (asked, answered) = (said.clone(), said.clone());
        let note = |to: &Mutex<Vec<String>>, result: Result<(), RmaError>| {
            to.lock().unwrap().push(result.map_or_else(|why| why.to_string(), |()| "sent".into()));
        };
        let ask = move |token: &super::Token<'_>, _: &[u32], _: crate::message::Arrived<'_>| {
            for index in [0, 15, 33, 64, 127, USER + 1, USER + 1] {
                note(&asked, token.reply_short(index, &[]));
            }
        };
        let answer = move |token: &super::Token<'_>, _: &[u32], _: crate::message::Arrived<'_>| {
            note(&answered, token.reply_short(USER, &[]));
        };
        endpoint.register(USER, ask).expect("a free index");
        endpoint.register(USER + 1, answer).expect("a free index");
        endpoint.open();
        assert_eq!(endpoint.try_request(Peer(0), USER, &[], Payload::Short).expect("a way"), Sent::Accepted);
        for _ in 0..10 {
            endpoint.poll().expect("it works");
        }
        let said = said.lock().unwrap().clone();
        assert!(said[..5].iter().all(|what| what.contains("programs have 128 to 255")), "{said:?}");
        let rest: Vec<_> = said[5..].iter().map(|what| what.trim_start_matches("wrong use: ")).collect();
        assert_eq!(rest, ["sent", "a request is replied to once", "a reply can't be replied to"]);
    }
}
