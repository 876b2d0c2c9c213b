//! What a wrong conduit would do: a wrapper that breaks one promise. The simulation must notice.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use vgas_cache::request::handler;
use vgas_rma::address::Peer;
use vgas_rma::conduit::{Capabilities, Conduit, Sent, Traffic};
use vgas_rma::error::Result;
use vgas_rma::message::{Destination, Direction, Message, Payload, Sink, Source};

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// One message between agents, this many after the beginning, is lost.
    Lose { after: u32 },
    /// From then on, every other message between two agents is overtaken by the next one.
    Overtake { after: u32 },
    /// The content of a page is read out of its frame some polls after the conduit said that the frame may be reused.
    ReadLate { polls: u32 },
}

/// The conduit of an agent, sabotaged.
pub struct Saboteur {
    inner: Arc<dyn Conduit>,
    sabotage: Sabotage,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: u32,
    held: Vec<VecDeque<Held>>,
}

/// A message that was accepted and not passed on.
struct Held {
    direction: Direction,
    handler: u8,
    arguments: Vec<u32>,
    payload: HeldPayload,
    polls_left: u32,
}

enum HeldPayload {
    Short,
    Medium(Box<[u8]>),
    Long(Box<[u8]>, Destination),
    /// Bytes that are read when the message is passed on at last.
    Late(Source<'static>, Destination),
}

// SAFETY: the addresses in held payloads point into the pool's mapping, which the simulated node keeps for the whole run.
unsafe impl Send for Held {}

impl Held {
    fn new(message: &Message<'_>, polls_left: u32, late: bool) -> Self {
        let copied = |source: Source<'_>| -> Box<[u8]> {
            if source.bytes() == 0 {
                return Box::default();
            }
            // SAFETY: a source is valid as long as it lives, and nobody writes the pages that a simulated node sends.
            unsafe { std::slice::from_raw_parts(source.address(), source.bytes()) }.into()
        };
        let payload = match message.payload {
            Payload::Short => HeldPayload::Short,
            Payload::Medium(source) => HeldPayload::Medium(copied(source)),
            Payload::Long(source, to) if late => {
                // SAFETY: it lies in the pool's mapping, which the simulated node keeps for the whole run.
                HeldPayload::Late(unsafe { Source::raw(source.address(), source.bytes()) }, to)
            }
            Payload::Long(source, to) => HeldPayload::Long(copied(source), to),
        };
        Self {
            direction: message.direction,
            handler: message.handler,
            arguments: message.arguments.to_vec(),
            payload,
            polls_left,
        }
    }

    fn send(&self, conduit: &dyn Conduit, to: Peer) -> Result<Sent> {
        let payload = match &self.payload {
            HeldPayload::Short => Payload::Short,
            HeldPayload::Medium(bytes) => Payload::Medium(Source::of(bytes)),
            HeldPayload::Long(bytes, to) => Payload::Long(Source::of(bytes), *to),
            HeldPayload::Late(source, to) => Payload::Long(*source, *to),
        };
        let (direction, handler, arguments) = (self.direction, self.handler, &self.arguments[..]);
        conduit.try_send(to, &Message { direction, handler, arguments, payload })
    }
}

impl Saboteur {
    pub fn wrap(inner: Arc<dyn Conduit>, peers: u32, sabotage: Sabotage) -> Arc<dyn Conduit> {
        let held = (0..peers).map(|_| VecDeque::new()).collect();
        Arc::new(Self { inner, sabotage, state: Mutex::new(State { seen: 0, held }) })
    }

    fn pass_on(&self, queue: &mut VecDeque<Held>, to: Peer, all: bool) -> Result<()> {
        while let Some(first) = queue.front()
            && (all || first.polls_left == 0)
            && first.send(&*self.inner, to)? == Sent::Accepted
        {
            queue.pop_front();
        }
        Ok(())
    }
}

impl Conduit for Saboteur {
    fn name(&self) -> &'static str {
        "sabotaged"
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn reaches(&self, to: Peer) -> bool {
        self.inner.reaches(to)
    }

    fn try_send(&self, to: Peer, message: &Message<'_>) -> Result<Sent> {
        if !(handler::COHERENCE..=handler::RUN).contains(&message.handler) {
            return self.inner.try_send(to, message);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        state.seen += 1;
        let queue = &mut state.held[to.0 as usize];
        match self.sabotage {
            Sabotage::Lose { after } if state.seen == after => Ok(Sent::Accepted),
            Sabotage::Lose { .. } => self.inner.try_send(to, message),
            Sabotage::Overtake { after } => {
                if queue.is_empty() && state.seen > after {
                    queue.push_back(Held::new(message, 4, false));
                    return Ok(Sent::Accepted);
                }
                if self.inner.try_send(to, message)? == Sent::Busy {
                    return Ok(Sent::Busy);
                }
                self.pass_on(queue, to, true)?;
                Ok(Sent::Accepted)
            }
            Sabotage::ReadLate { polls } => {
                let late = matches!(message.payload, Payload::Long(..));
                if queue.is_empty() && !late {
                    return self.inner.try_send(to, message);
                }
                queue.push_back(Held::new(message, polls, true));
                Ok(Sent::Accepted)
            }
        }
    }

    fn poll(&self, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (to, queue) in (0..).map(Peer).zip(&mut state.held) {
            for held in queue.iter_mut() {
                held.polls_left = held.polls_left.saturating_sub(1);
            }
            self.pass_on(queue, to, false)?;
        }
        drop(state);
        self.inner.poll(sink, traffic)
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.inner.wait_descriptor()
    }

    fn arm(&self) -> bool {
        self.inner.arm()
    }

    fn disarm(&self) {
        self.inner.disarm();
    }
}
