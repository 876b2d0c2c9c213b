//! What the agent has said but not yet sent: one queue per peer, so that the order per peer survives back-pressure.
//!
//! Sending never blocks the agent. The same said about several pages in a row is joined into one message while it waits here:
//! requests for them (promise 8), what follows from these, such as a home that hands a run of them on, and copies that
//! make room.

use crate::agent::wire::{self, Beside, Coherence, Content};
use crate::page::PageIndex;
use crate::pool::{FrameId, PageSize};
use crate::protocol::Message;
use crate::region;
use crate::request::handler;
use std::collections::VecDeque;
use vgas_rma::address::{NodeId, Peer};
use vgas_rma::conduit::{Loan, Sent};
use vgas_rma::endpoint::Endpoint;
use vgas_rma::error::Result;
use vgas_rma::message::{Destination, Payload, Source};
use vgas_shm::Span;

/// One thing to send.
#[derive(Debug)]
pub enum Outgoing {
    /// A coherence message without page content.
    Coherence(Coherence),
    /// A coherence message after the content of its page.
    Data {
        /// The message.
        coherence: Coherence,
        /// The page; kept mapped, and kept unchanged by the agent until it has left.
        from: Span,
        /// The frame `from` lies in, to be reported when its content has left.
        frame: FrameId,
        /// The receiver's frame.
        into: FrameId,
    },
    /// The same coherence message, without page content, about several pages.
    Several {
        /// The message.
        message: Message,
        /// The pages, and what it names beside each.
        pages: Vec<(PageIndex, Beside)>,
    },
    /// A put of this agent's that travels to the page.
    InPlace {
        /// Arguments.
        words: crate::request::Words,
        /// The bytes.
        data: Box<[u8]>,
    },
    /// The answer to a rank's in-place operation.
    Answer {
        /// Arguments.
        words: [u32; 2],
        /// Bytes of a get.
        bytes: Vec<u8>,
    },
    /// The same with many bytes, which go straight to where the rank wants them.
    Landing {
        /// Arguments.
        words: [u32; 2],
        /// The bytes; kept as they are until they have left.
        from: Span,
        /// The number of the rank's landing.
        landing: u64,
    },
    /// A question of a service to its like on another node.
    Service {
        /// Arguments.
        words: [u32; 3],
        /// The question.
        bytes: Vec<u8>,
    },
    /// The answer of a service.
    ServiceAnswer {
        /// Arguments.
        words: [u32; 2],
        /// The answer.
        bytes: Vec<u8>,
    },
    /// To a rank of this node: that node is lost.
    NodeLost(NodeId),
}

impl Outgoing {
    /// Bytes of arguments and small payloads.
    fn control_bytes(&self) -> u64 {
        match self {
            Outgoing::Data { coherence, from, .. } if content(coherence, from).is_some() => 8,
            Outgoing::Coherence(_) | Outgoing::Data { .. } => 28,
            Outgoing::Several { pages, .. } => 12 + 12 * pages.len() as u64,
            Outgoing::InPlace { data, .. } => 24 + data.len() as u64,
            Outgoing::Answer { bytes, .. } | Outgoing::ServiceAnswer { bytes, .. } => 8 + bytes.len() as u64,
            Outgoing::Landing { from, .. } => 8 + from.bytes() as u64,
            Outgoing::Service { bytes, .. } => 12 + bytes.len() as u64,
            Outgoing::NodeLost(_) => 4,
        }
    }
}

/// The queues.
#[derive(Debug)]
pub struct Outbox {
    queues: Vec<VecDeque<Outgoing>>,
    /// What was sent, and the conduit still reads from, in the order of sending.
    lent: VecDeque<(Peer, Loan, Lent)>,
    waiting: usize,
    batch: bool,
    several_max: usize,
}

/// Memory that a conduit may read from after it has taken a message.
#[derive(Debug)]
enum Lent {
    /// A page, kept mapped.
    Frame(FrameId, #[expect(dead_code, reason = "keeps it mapped")] Span),
    /// Of an answer.
    Staged(Span),
}

/// What was handed to the conduits.
#[derive(Debug, Default)]
pub struct Flushed {
    /// How many messages.
    pub messages: usize,
    /// Bytes of page content.
    pub data_bytes: u64,
    /// Bytes of everything else, without the conduit's own.
    pub control_bytes: u64,
    /// Frames whose content has left.
    pub frames: Vec<FrameId>,
    /// Memory of answers that have left.
    pub staged: Vec<(Peer, Span)>,
    /// By kind: those that ask for a page, that carry one, that invalidate or acknowledge it, others.
    pub kinds: [u64; 4],
}

impl Flushed {
    fn has_left(&mut self, to: Peer, lent: Lent) {
        match lent {
            Lent::Frame(frame, _) => self.frames.push(frame),
            Lent::Staged(span) => self.staged.push((to, span)),
        }
    }
}

impl Outbox {
    /// Queues for all peers. `several_max` is the most pages that one message may name.
    pub fn new(peers: u32, batch: bool, several_max: usize) -> Self {
        let queues = (0..peers).map(|_| VecDeque::new()).collect();
        Self { queues, lent: VecDeque::new(), waiting: 0, batch, several_max }
    }

    /// Whether nothing waits to be sent. What is lent needs no attention: its return wakes a sleeper.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether something waits to be sent, or to be given back by a conduit.
    pub fn has_unsent(&self) -> bool {
        self.waiting > 0 || !self.lent.is_empty()
    }

    /// How much waits for a peer.
    pub fn waiting_for(&self, to: Peer) -> usize {
        self.queues.get(to.0 as usize).map_or(0, VecDeque::len)
    }

    /// Adds something for a peer.
    pub fn push(&mut self, to: Peer, outgoing: Outgoing) {
        let queue = &mut self.queues[to.0 as usize];
        if self.batch
            && let Outgoing::Coherence(next) = &outgoing
            && !next.message.carries_page()
        {
            match queue.back_mut() {
                Some(Outgoing::Several { message, pages })
                    if *message == next.message && pages.len() < self.several_max =>
                {
                    pages.push((next.page, next.beside));
                    return;
                }
                Some(last) => {
                    if let &mut Outgoing::Coherence(first) = last
                        && first.message == next.message
                    {
                        let pages = vec![(first.page, first.beside), (next.page, next.beside)];
                        *last = Outgoing::Several { message: first.message, pages };
                        return;
                    }
                }
                None => {}
            }
        }
        queue.push_back(outgoing);
        self.waiting += 1;
    }

    /// Sends what the conduits take.
    pub fn flush(&mut self, endpoint: &Endpoint) -> Result<Flushed> {
        let mut flushed = Flushed::default();
        // Those of one peer come back in their order, those of several may not.
        let mut at = 0;
        while let Some(&(to, loan, _)) = self.lent.get(at) {
            match endpoint.is_returned(to, loan).then(|| self.lent.remove(at)).flatten() {
                Some((to, _, lent)) => flushed.has_left(to, lent),
                None => at += 1,
            }
        }
        if self.waiting == 0 {
            return Ok(flushed);
        }
        for (peer, queue) in self.queues.iter_mut().enumerate() {
            if !queue.is_empty() && endpoint.is_gone(Peer(peer as u32)) {
                self.waiting -= queue.len();
                flushed.frames.extend(queue.drain(..).filter_map(|outgoing| match outgoing {
                    Outgoing::Data { frame, .. } => Some(frame),
                    _ => None,
                }));
            }
            while let Some(outgoing) = queue.front() {
                let to = Peer(peer as u32);
                let sent = match send(endpoint, to, outgoing) {
                    // Declared lost meanwhile, by another thread: the next time, nothing is sent.
                    Err(_) if endpoint.is_gone(to) => None,
                    sent => sent?,
                };
                let Some(loan) = sent else { break };
                self.waiting -= 1;
                flushed.messages += 1;
                flushed.control_bytes += outgoing.control_bytes();
                match queue.pop_front() {
                    Some(Outgoing::Data { from, frame, .. }) => {
                        flushed.data_bytes += from.bytes() as u64;
                        flushed.kinds[1] += 1;
                        lend(&mut self.lent, (to, loan, Lent::Frame(frame, from)), &mut flushed);
                    }
                    Some(Outgoing::Landing { from, .. }) => {
                        flushed.kinds[3] += 1;
                        lend(&mut self.lent, (to, loan, Lent::Staged(from)), &mut flushed);
                    }
                    Some(Outgoing::Coherence(coherence)) => flushed.kinds[kind(coherence.message)] += 1,
                    Some(Outgoing::Several { message, .. }) => flushed.kinds[kind(message)] += 1,
                    Some(_) | None => flushed.kinds[3] += 1,
                }
            }
        }
        Ok(flushed)
    }
}

/// Keeps what a conduit still reads from, if it does.
fn lend(all: &mut VecDeque<(Peer, Loan, Lent)>, lent: (Peer, Loan, Lent), flushed: &mut Flushed) {
    match lent.1 {
        Loan::NONE => flushed.has_left(lent.0, lent.2),
        _ => all.push_back(lent),
    }
}

fn kind(message: Message) -> usize {
    match message {
        Message::GetShared { .. }
        | Message::GetModified { .. }
        | Message::ForwardShared { .. }
        | Message::ForwardModified { .. } => 0,
        Message::Invalidate { .. } | Message::InvalidateAck => 2,
        _ => 3,
    }
}

/// What is said with a page, if two words are enough.
fn content(coherence: &Coherence, from: &Span) -> Option<[u32; 2]> {
    let &Coherence { message, beside, origin, .. } = coherence;
    Content { frame: beside.frame()?, message, origin }
        .encode(PageSize::of_bytes(u32::try_from(from.bytes()).ok()?)?)
}

/// None: no room. What was lent is a page, in its frame.
fn send(endpoint: &Endpoint, to: Peer, outgoing: &Outgoing) -> Result<Option<Loan>> {
    let sent = match outgoing {
        Outgoing::Coherence(coherence) => {
            endpoint.try_request(to, handler::COHERENCE, &coherence.encode(), Payload::Short)
        }
        Outgoing::Data { coherence, from, into, .. } => {
            let destination =
                Destination::Region { region: region::FRAMES, owner: to, offset: into.offset() };
            return match content(coherence, from) {
                Some(words) => endpoint.try_request_lent(to, handler::DATA, &words, from, destination),
                None => endpoint.try_request_lent(to, handler::DATA, &coherence.encode(), from, destination),
            };
        }
        Outgoing::Landing { words, from, landing } => {
            let destination = Destination::Operation { id: *landing, offset: 0 };
            return endpoint.try_request_lent(to, handler::IN_PLACE_ANSWER, words, from, destination);
        }
        Outgoing::Several { message, pages } => {
            let bytes = wire::encode_pages(pages);
            endpoint.try_request(to, handler::SEVERAL, &message.encode(), Payload::Medium(Source::of(&bytes)))
        }
        Outgoing::InPlace { words, data } => {
            endpoint.try_request(to, handler::IN_PLACE, words, Payload::Medium(Source::of(data)))
        }
        Outgoing::Service { words, bytes } => {
            endpoint.try_request(to, handler::SERVICE, words, Payload::Medium(Source::of(bytes)))
        }
        Outgoing::ServiceAnswer { words, bytes } => {
            endpoint.try_request(to, handler::SERVICE_ANSWER, words, Payload::Medium(Source::of(bytes)))
        }
        Outgoing::NodeLost(node) => endpoint.try_tell_lost(to, *node),
        Outgoing::Answer { words, bytes } if bytes.is_empty() => {
            endpoint.try_request(to, handler::IN_PLACE_ANSWER, words, Payload::Short)
        }
        Outgoing::Answer { words, bytes } => {
            endpoint.try_request(to, handler::IN_PLACE_ANSWER, words, Payload::Medium(Source::of(bytes)))
        }
    };
    Ok((sent? == Sent::Accepted).then_some(Loan::NONE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Confirm, Right};
    use vgas_shm::Mapping;

    /// What one peer is told, as numbers of pages, in order: only the same is joined, and nothing overtakes.
    #[test]
    fn the_same_about_several_pages_is_one_message() {
        let forward = |node| Message::ForwardShared { requester: NodeId(node), confirm: Confirm::Requester };
        let said = [
            (4, Message::GetShared { nvm: false }),
            (5, Message::GetShared { nvm: false }),
            (6, Message::GetShared { nvm: false }),
            (7, forward(1)),
            (8, forward(1)),
            (9, forward(2)),
            (11, forward(2)),
            (12, Message::Done { dirty: false }),
            (13, Message::Done { dirty: false }),
            (14, Message::Done { dirty: false }),
            (15, Message::Done { dirty: false }),
        ]
        .map(|(page, message)| (PageIndex(page), message));
        let lengths = |batch| {
            let mut outbox = Outbox::new(2, batch, 3);
            for (page, message) in said {
                let coherence = Coherence::new(page, message, Beside::Frame(FrameId(page.0 as u32 + 100)));
                outbox.push(Peer(1), Outgoing::Coherence(coherence));
            }
            assert_eq!(outbox.waiting, outbox.waiting_for(Peer(1)));
            let told = outbox.queues[1].iter().flat_map(|outgoing| match outgoing {
                Outgoing::Coherence(one) => vec![(one.page, one.message, one.beside)],
                Outgoing::Several { message, pages } => {
                    pages.iter().map(|&(page, frame)| (page, *message, frame)).collect()
                }
                other => panic!("{other:?}"),
            });
            assert!(told.eq(said.map(|(page, message)| (
                page,
                message,
                Beside::Frame(FrameId(page.0 as u32 + 100))
            ))));
            let length = |outgoing: &Outgoing| match outgoing {
                Outgoing::Several { pages, .. } => pages.len(),
                _ => 1,
            };
            outbox.queues[1].iter().map(length).collect::<Vec<_>>()
        };
        assert_eq!(lengths(true), [3, 2, 2, 3, 1]);
        assert_eq!(lengths(false), [1; 11]);
    }

    /// Pages travel by themselves, also those whose zeros do not travel.
    #[test]
    fn content_is_not_joined() {
        let mut outbox = Outbox::new(1, true, 3);
        let message = Message::Data { right: Right::Shared, dirty: false, acks: 0, confirm: true };
        let page = Mapping::anonymous("outbox-test", 4096).expect("a page of memory").span(0, 4096);
        for number in 0..2 {
            let beside = Beside::Frame(FrameId(0));
            let coherence =
                Coherence { page: PageIndex(number), message, beside, origin: wire::Origin::Zeros };
            outbox.push(Peer(0), Outgoing::Coherence(coherence));
            let data = Outgoing::Data { coherence, from: page.clone(), frame: FrameId(0), into: FrameId(0) };
            outbox.push(Peer(0), data);
        }
        assert_eq!(outbox.waiting_for(Peer(0)), 4);
    }
}
