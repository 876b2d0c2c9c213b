//! Handling of completions: the ends of own requests, and packets, which are checked and delivered or parked.

#![forbid(unsafe_code)]

use super::connection::{CREDITS, Connection, How, lock, sent_by};
use super::packet::{self, Number, Order};
use super::verbs::Slot;
use super::verbs::types::Completion;
use super::verbs::types::number::{IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS};
use super::{IbvConduit, REPLIES_WAITING_MAX};
use crate::address::RegionId;
use crate::conduit::Traffic;
use crate::conduit::oneside::AccessNotice;
use crate::conduit::wire::frame::{self, Body, Frame, Head, Kind};
use crate::error::Result;
use crate::message::{Arrived, Delivery, Destination, Direction, Sink};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl IbvConduit {
    /// Handles one completion; returns the number of messages delivered and one-sided operations ended.
    pub(super) fn handle(&self, completion: &Completion, sink: &dyn Sink, traffic: Traffic) -> Result<usize> {
        let counts = &self.shared.counts;
        if let Some((peer, low)) = sent_by(completion.wr_id) {
            counts.completions.fetch_add(1, Ordering::Relaxed);
            let Some(connection) = self.connection(peer) else { return Ok(0) };
            if completion.status != IBV_WC_SUCCESS {
                return self.broken(connection, completion.status, connection.purpose(low)).map(|()| 0);
            }
            let mut operations = 0;
            connection.completed(&self.shared, low, |ended, at| {
                operations += 1;
                if let How::Staged(offset, bytes) = ended.how {
                    let place = Destination::Operation { id: ended.operation, offset };
                    let to = sink.destination(peer, place, bytes)?;
                    self.shared.staging.memory.empty(at, to, bytes);
                }
                sink.completed(peer, ended.operation)
            })?;
            return Ok(operations);
        }
        counts.receives.fetch_add(1, Ordering::Relaxed);
        let slot = self.shared.queues.filled(completion.wr_id)?;
        let delivered = self.arrived(completion, &slot, sink, traffic);
        slot.post()?;
        delivered
    }

    /// Handles a completed receive.
    fn arrived(
        &self,
        completion: &Completion,
        slot: &Slot<'_>,
        sink: &dyn Sink,
        traffic: Traffic,
    ) -> Result<usize> {
        let peer =
            self.by_number.read().unwrap_or_else(PoisonError::into_inner).get(&completion.qp_num).copied();
        let connection = peer.and_then(|peer| self.connection(peer)).filter(|c| c.lost().is_none());
        let Some(connection) = connection else { return Ok(0) };
        if completion.status != IBV_WC_SUCCESS {
            return self.broken(connection, completion.status, "receiving").map(|()| 0);
        }
        let (head, head_bytes);
        let numbered = match completion.opcode {
            IBV_WC_RECV => Number::split(slot.bytes(completion.byte_len as usize)),
            // Nothing is in the slot: the bytes are where the peer has written them.
            IBV_WC_RECV_RDMA_WITH_IMM => {
                let immediate = u32::from_be(completion.imm_data);
                (head, head_bytes) = packet::expand(immediate, completion.byte_len, self.me);
                Some((Number::of_immediate(immediate), &head[..head_bytes]))
            }
            _ => None,
        };
        let Some((number, packet)) = numbered else {
            return self.violation(connection, "a message without a number").map(|()| 0);
        };
        match connection.order(number) {
            Order::Next => self.receive(connection, packet, sink, traffic),
            Order::Again => {
                self.shared.counts.repeated.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(peer = %connection.peer, "a message came twice");
                Ok(0)
            }
            Order::Gap => self.violation(connection, "messages before this one are missing").map(|()| 0),
        }
    }

    /// One packet.
    fn receive(
        &self,
        connection: &Connection,
        packet: &[u8],
        sink: &dyn Sink,
        traffic: Traffic,
    ) -> Result<usize> {
        if AccessNotice::is(packet) {
            match AccessNotice::decode(packet) {
                Some(AccessNotice::Want(name)) => {
                    connection.tell(&self.shared, self.shared.answer(sink, connection.peer, name)?)?
                }
                Some(AccessNotice::Grant(_, access)) if u32::try_from(access.key).is_err() => {
                    self.violation(connection, format!("a key of more than 32 bits: {access:?}"))?
                }
                Some(AccessNotice::Grant(name, access)) if connection.answered(name, Some(access)) => {
                    if name.1 == RegionId::BLOCKS {
                        self.shared.register_own_blocks(sink, self.me)?;
                    }
                }
                Some(AccessNotice::Refusal(name)) if connection.answered(name, None) => {}
                Some(other) => {
                    self.violation(connection, format!("{other:?}, which it was not asked for"))?
                }
                None => self.violation(connection, "a malformed packet about regions")?,
            }
            return Ok(0);
        }
        let (frame, head) = match frame::decode(packet) {
            Ok(Some(frame)) => match frame.body {
                Body::Message(head) => (frame, Some(head)),
                Body::Credits | Body::Goodbye => (frame, None),
            },
            Ok(None) => return self.violation(connection, "half a packet").map(|()| 0),
            Err(error) => return self.violation(connection, error.to_string()).map(|()| 0),
        };
        let medium = match head {
            Some(Head { kind: Kind::Medium, payload_bytes, .. }) => payload_bytes as usize,
            _ => 0,
        };
        if packet.len() != frame.head_bytes + medium {
            let what =
                format!("a packet of {} bytes that claims {}", packet.len(), frame.head_bytes + medium);
            return self.violation(connection, what).map(|()| 0);
        }
        if frame.credits > 0 && !connection.take_credits(frame.credits) {
            return self
                .violation(connection, format!("{} credits that nobody is owed", frame.credits))
                .map(|()| 0);
        }
        let Some(head) = head else { return Ok(0) };
        let mut parked = lock(&connection.parked);
        let is_admitted = traffic.admits(head.handler);
        if head.direction == Direction::Request
            && (!is_admitted
                || !traffic.has_requests()
                || !parked.is_empty()
                || self.is_backlogged(connection))
        {
            if parked.len() >= CREDITS as usize {
                return self.violation(connection, "more requests than it has credits for").map(|()| 0);
            }
            parked.push_back(packet.to_vec());
            self.parked.fetch_add(1, Ordering::AcqRel);
            return Ok(0);
        }
        drop(parked);
        if !is_admitted {
            let mut held = lock(&connection.held);
            // As many as it can have been asked for.
            if held.len() >= 2 * CREDITS as usize {
                return self.violation(connection, "more replies than it was asked for").map(|()| 0);
            }
            held.push_back(packet.to_vec());
            self.held.fetch_add(1, Ordering::AcqRel);
            return Ok(0);
        }
        self.deliver(connection, packet, &head, frame.head_bytes, sink)
    }

    fn is_backlogged(&self, connection: &Connection) -> bool {
        connection.waiting_replies() > REPLIES_WAITING_MAX
    }

    /// Hands a checked message to the sink.
    fn deliver(
        &self,
        connection: &Connection,
        packet: &[u8],
        head: &Head,
        head_bytes: usize,
        sink: &dyn Sink,
    ) -> Result<usize> {
        let from = connection.peer;
        let payload = match head.kind {
            Kind::Short => Arrived::Short,
            Kind::Medium => Arrived::Medium(packet[head_bytes..].into()),
            Kind::Long(destination) => {
                let bytes = head.payload_bytes as usize;
                match sink.destination(from, destination, bytes) {
                    Ok(to) => Arrived::Long(to, bytes),
                    Err(error) => return self.refuse(connection, error).map(|()| 0),
                }
            }
        };
        if head.direction == Direction::Request {
            // Before the handler runs, so that its reply carries the credit back.
            connection.owe_credit();
        }
        let delivery = Delivery {
            from,
            direction: head.direction,
            handler: head.handler,
            arguments: head.arguments(),
            payload,
        };
        if let Err(error) = sink.deliver(delivery) {
            return self.refuse(connection, error).map(|()| 0);
        }
        if connection.lost().is_none() {
            self.posted(connection, connection.return_credits(&self.shared), "returning credits")?;
        }
        Ok(1)
    }

    /// Delivers parked requests, oldest first, up to one that `traffic` leaves in place.
    pub(super) fn deliver_parked(&self, sink: &dyn Sink, traffic: Traffic, room: usize) -> Result<usize> {
        let mut count = 0;
        for connection in self.known_connections() {
            while count < room && !self.is_backlogged(connection) {
                let next = {
                    let mut parked = lock(&connection.parked);
                    let is_admitted = parked.front().is_some_and(|packet| traffic.admits(handler_of(packet)));
                    if is_admitted { parked.pop_front() } else { None }
                };
                let Some(packet) = next else { break };
                self.parked.fetch_sub(1, Ordering::AcqRel);
                count += self.deliver_kept(connection, &packet, sink)?;
            }
        }
        Ok(count)
    }

    /// Delivers the replies that earlier polls were not to deliver, before newer ones.
    pub(super) fn deliver_held(&self, sink: &dyn Sink) -> Result<usize> {
        let mut count = 0;
        for connection in self.known_connections() {
            while let Some(packet) = { lock(&connection.held).pop_front() } {
                self.held.fetch_sub(1, Ordering::AcqRel);
                count += self.deliver_kept(connection, &packet, sink)?;
            }
        }
        Ok(count)
    }

    /// Delivers a packet that was checked when it came.
    fn deliver_kept(&self, connection: &Connection, packet: &[u8], sink: &dyn Sink) -> Result<usize> {
        match frame::decode(packet) {
            Ok(Some(frame)) if connection.lost().is_none() => match frame.body {
                Body::Message(head) => self.deliver(connection, packet, &head, frame.head_bytes, sink),
                Body::Credits | Body::Goodbye => Ok(0),
            },
            _ => Ok(0),
        }
    }

    /// The next completion, in the order of the device; none at the moment. The device is asked if `look` is
    /// true, which tells afterwards if it may have more.
    pub(super) fn next_completion(&self, look: &mut bool) -> Result<Option<Completion>> {
        let inbox = &mut *lock(&self.inbox);
        if inbox.is_empty() && *look {
            *look = inbox.fill(&self.shared.queues)?;
        }
        Ok(inbox.take())
    }
}

/// Returns the handler of a checked packet.
fn handler_of(packet: &[u8]) -> u8 {
    match frame::decode(packet) {
        Ok(Some(Frame { body: Body::Message(head), .. })) => head.handler,
        _ => 0,
    }
}
