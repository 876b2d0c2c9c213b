//! What a wrong conduit would do: a hook that breaks one promise. The simulation must notice.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use vgas_cache::request::handler;
use vgas_rma::address::Peer;
use vgas_rma::conduit::hook::{Hook, Hooked, Kept};
use vgas_rma::conduit::{Conduit, Loan, Sent};
use vgas_rma::error::Result;
use vgas_rma::message::{Destination, Direction, Message, Payload, Source};
use vgas_shm::Span;

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

/// Does it to what an agent tells others.
pub struct Saboteur {
    sabotage: Sabotage,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: u32,
    /// By receiver, what was accepted and not passed on, for so many polls.
    held: Vec<VecDeque<(u32, Held)>>,
}

enum Held {
    Copy(Kept),
    /// A page that is read when the message is passed on at last.
    Late {
        direction: Direction,
        handler: u8,
        arguments: Vec<u32>,
        page: Span,
        to: Destination,
    },
}

impl Held {
    fn late(message: &Message<'_>, lent: Option<&Span>) -> Self {
        match (message.payload, lent) {
            (Payload::Long(_, to), Some(page)) => Held::Late {
                direction: message.direction,
                handler: message.handler,
                arguments: message.arguments.to_vec(),
                page: page.clone(),
                to,
            },
            _ => Held::Copy(Kept::of(message)),
        }
    }

    fn send(&self, inner: &dyn Conduit, to: Peer) -> Result<Sent> {
        match self {
            Held::Copy(kept) => inner.try_send(to, &kept.message()),
            Held::Late { direction, handler, arguments, page, to: place } => {
                let payload = Payload::Long(Source::of_span(page), *place);
                let (direction, handler) = (*direction, *handler);
                inner.try_send(to, &Message { direction, handler, arguments, payload })
            }
        }
    }
}

/// Passes on what was held long enough, or all, in its order.
fn pass_on(queue: &mut VecDeque<(u32, Held)>, inner: &dyn Conduit, to: Peer, all: bool) -> Result<()> {
    while let Some((polls_left, first)) = queue.front()
        && (all || *polls_left == 0)
        && first.send(inner, to)? == Sent::Accepted
    {
        queue.pop_front();
    }
    Ok(())
}

impl Saboteur {
    /// A conduit that is sabotaged.
    pub fn wrap(inner: Arc<dyn Conduit>, peers: u32, sabotage: Sabotage) -> Arc<dyn Conduit> {
        let held = (0..peers).map(|_| VecDeque::new()).collect();
        let saboteur = Self { sabotage, state: Mutex::new(State { seen: 0, held }) };
        Arc::new(Hooked::new(inner, Arc::new(saboteur)).expect("it has no descriptor"))
    }
}

impl Hook for Saboteur {
    fn send(
        &self,
        inner: &dyn Conduit,
        to: Peer,
        message: &Message<'_>,
        lent: Option<&Span>,
    ) -> Result<Option<Loan>> {
        let honestly = || match lent {
            Some(lent) => inner.try_send_lent(to, message, lent),
            None => Ok((inner.try_send(to, message)? == Sent::Accepted).then_some(Loan::NONE)),
        };
        if !(handler::COHERENCE..=handler::SEVERAL).contains(&message.handler) {
            return honestly();
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        state.seen += 1;
        let queue = &mut state.held[to.0 as usize];
        match self.sabotage {
            Sabotage::Lose { after } if state.seen == after => Ok(Some(Loan::NONE)),
            Sabotage::Lose { .. } => honestly(),
            Sabotage::Overtake { after } => {
                if queue.is_empty() && state.seen > after {
                    queue.push_back((4, Held::Copy(Kept::of(message))));
                    return Ok(Some(Loan::NONE));
                }
                let loan = honestly()?;
                if loan.is_some() {
                    pass_on(queue, inner, to, true)?;
                }
                Ok(loan)
            }
            Sabotage::ReadLate { polls } => {
                if queue.is_empty() && lent.is_none() {
                    return honestly();
                }
                queue.push_back((polls, Held::late(message, lent)));
                Ok(Some(Loan::NONE))
            }
        }
    }

    fn polls(&self, inner: &dyn Conduit) -> Result<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (to, queue) in (0..).map(Peer).zip(&mut state.held) {
            for (polls_left, _) in queue.iter_mut() {
                *polls_left = polls_left.saturating_sub(1);
            }
            pass_on(queue, inner, to, false)?;
        }
        Ok(0)
    }
}
