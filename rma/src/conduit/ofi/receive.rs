//! Handling of completions: the ends of own requests, and packets, which are put in order, checked and
//! delivered or parked.

#![forbid(unsafe_code)]

use super::connection::{Assembly, CREDITS, Connection};
use super::fabric::{Event, Posted, Slot, scatter};
use super::packet::{Body, Head as PacketHead};
use super::shared::{Flight, RequestPurpose, count, lock};
use super::window::Order;
use super::{COMPLETIONS, OfiConduit, REPLIES_WAITING_MAX};
use crate::address::{Peer, RegionId};
use crate::conduit::Traffic;
use crate::conduit::oneside::{AccessNotice, Slots};
use crate::conduit::wire::frame::{self, Frame, Head, Kind};
use crate::error::{HAS_LEFT, Result};
use crate::message::{Arrived, Delivery, Destination, Direction, Sink};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Completions taken from the port and not yet handled; only the thread whose turn it is uses it.
#[derive(Default)]
pub(super) struct Inbox {
    /// Oldest first.
    events: VecDeque<Event>,
    batch: Vec<Event>,
    /// Bodies of packets, in order, with their senders and numbers. They go before all events.
    kept: VecDeque<(Peer, u32, Vec<u8>)>,
    /// Ends of operations that arrived when they could not be reported.
    operations: VecDeque<Event>,
    /// Receive slots that the port did not take.
    unposted: Vec<u32>,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.kept.is_empty()
            && self.operations.is_empty()
            && self.unposted.is_empty()
    }
}

impl OfiConduit {
    /// Takes what has come, in the order in which it is to be delivered, up to `room` messages.
    pub(super) fn take_in(&self, sink: &dyn Sink, traffic: Traffic, room: usize) -> Result<usize> {
        self.post_slots()?;
        {
            let inbox = &mut *lock(&self.inbox);
            inbox.events.extend(inbox.operations.drain(..));
        }
        let (mut count, mut look, mut came) = (0, true, false);
        while count < room {
            let kept = { lock(&self.inbox).kept.pop_front() };
            if let Some((peer, number, body)) = kept {
                if let Some(connection) = self.connection(peer).filter(|c| c.lost().is_none()) {
                    count += self.process(connection, number, &body, sink, traffic)?;
                }
                continue;
            }
            let Some(event) = self.next_event(&mut look)? else { break };
            count += self.handle(&event, Some((sink, traffic)))?;
            came = true;
        }
        if came
            && self.shared.refused.load(Ordering::Relaxed)
            && self.shared.refused.swap(false, Ordering::AcqRel)
        {
            self.opened.store(true, Ordering::Release);
        }
        Ok(count)
    }

    /// While closing: ends of packets are noted, and arrivals are acknowledged and kept for later polls.
    pub(super) fn take_while_closing(&self) -> Result<()> {
        self.post_slots()?;
        let mut look = true;
        while let Some(event) = self.next_event(&mut look)? {
            match event.number {
                Some(number) if number < self.shared.wire.requests && self.shared.is_operation(number) => {
                    lock(&self.inbox).operations.push_back(event);
                }
                _ => self.handle(&event, None).map(drop)?,
            }
        }
        self.acknowledge()
    }

    /// The next completion; none at the moment. The port is asked if `look` is true, which tells afterwards
    /// if it may have more.
    fn next_event(&self, look: &mut bool) -> Result<Option<Event>> {
        let inbox = &mut *lock(&self.inbox);
        if inbox.events.is_empty() && *look {
            self.shared.wire.poll(&mut inbox.batch)?;
            *look = inbox.batch.len() >= COMPLETIONS;
            inbox.events.extend(inbox.batch.drain(..));
        }
        Ok(inbox.events.pop_front())
    }

    /// Posts the receive slots that the port did not take.
    fn post_slots(&self) -> Result<()> {
        while let Some(index) = { lock(&self.inbox).unposted.pop() } {
            let number = self.shared.wire.requests + index;
            if let Some(slot) = self.shared.wire.slot(number)
                && slot.post()? == Posted::Again
            {
                lock(&self.inbox).unposted.push(index);
                break;
            }
        }
        Ok(())
    }

    /// Handles one completion; returns the number of messages delivered and operations ended.
    fn handle(&self, event: &Event, receiver: Option<(&dyn Sink, Traffic)>) -> Result<usize> {
        match event.number {
            Some(number) if number < self.shared.wire.requests => match self.shared.end(number) {
                Some(flight) => self.ended(event, flight, receiver.map(|(sink, _)| sink)),
                None => Ok(0),
            },
            Some(number) => {
                let Some(slot) = self.shared.wire.slot(number) else { return Ok(0) };
                let arrived = if event.error == 0 {
                    self.arrived(&slot, event.bytes, receiver)
                } else {
                    tracing::debug!("a receive has failed: {}", self.shared.wire.explain(event.error));
                    Ok(0)
                };
                let index = slot.index;
                if slot.post()? == Posted::Again {
                    lock(&self.inbox).unposted.push(index);
                }
                arrived
            }
            None => self.nameless(event.error).map(|()| 0),
        }
    }

    /// A request of ours has ended.
    fn ended(&self, event: &Event, flight: Flight, sink: Option<&dyn Sink>) -> Result<usize> {
        let at = flight.slots.as_ref().map_or(0, Slots::offset);
        let connection = self.connection(flight.peer);
        if let Some(connection) = connection
            && !matches!(flight.what, RequestPurpose::Sent)
        {
            connection.landed();
        }
        if event.error != 0 {
            let during = match flight.what {
                RequestPurpose::Sent | RequestPurpose::Payload(..) => "sending",
                RequestPurpose::Put(_) => "writing its memory",
                RequestPurpose::Got(_) | RequestPurpose::Staged(..) => "reading its memory",
            };
            self.shared.staging.free(flight.slots);
            let reason = self.shared.wire.explain(event.error);
            return connection
                .map_or(Ok(()), |connection| self.broken(connection, reason, during))
                .map(|()| 0);
        }
        let ended = match (flight.what, sink) {
            (RequestPurpose::Sent, _) => Ok(0),
            (RequestPurpose::Payload(packet, loan), _) => match connection {
                Some(connection) => {
                    let sent = connection.payload_landed(&self.shared, packet, loan);
                    self.posted(connection, sent, "sending").map(|()| 0)
                }
                None => Ok(0),
            },
            (RequestPurpose::Put(operation) | RequestPurpose::Got(operation), Some(sink)) => {
                sink.completed(flight.peer, operation).map(|()| 1)
            }
            (RequestPurpose::Staged(operation, offset, bytes), Some(sink)) => {
                let place = Destination::Operation { id: operation, offset };
                sink.destination(flight.peer, place, bytes).and_then(|to| {
                    self.shared.staging.memory.empty(at, to, bytes);
                    sink.completed(flight.peer, operation).map(|()| 1)
                })
            }
            (_, None) => Ok(0),
        };
        self.shared.staging.free(flight.slots);
        ended
    }

    /// Handles a failed request without a number: its target is unknown.
    fn nameless(&self, error: i32) -> Result<()> {
        self.poll_connecting()?;
        let reason = self.shared.wire.explain(error);
        let unsure: Vec<_> =
            self.known_connections().filter(|c| c.lost().is_none() && c.is_unsure()).collect();
        // For a peer that has ended that is to be expected.
        if unsure.is_empty() || unsure.iter().any(|c| self.notices.tcp.has_left(c.peer)) {
            tracing::debug!("a packet has failed: {reason}");
            return Ok(());
        }
        let mut result = Ok(());
        for connection in unsure {
            if connection.lose(reason.clone()) {
                result = Err(self.lost(connection, "sending"));
            }
        }
        result
    }

    /// Handles a completed receive.
    fn arrived(
        &self,
        slot: &Slot<'_>,
        bytes: usize,
        receiver: Option<(&dyn Sink, Traffic)>,
    ) -> Result<usize> {
        let packet = PacketHead::split(slot.bytes(bytes));
        let known = packet.and_then(|(head, body)| {
            let connection = self.connection(head.from).filter(|c| c.token == head.token)?;
            Some((connection, head, body))
        });
        let Some((connection, head, body)) = known else {
            count(&self.shared.counts.strangers);
            return Ok(0);
        };
        if connection.lost().is_some() {
            return Ok(0);
        }
        let acknowledged = connection.acknowledged(&self.shared, head.taken);
        if !self.posted(connection, acknowledged, "sending")? {
            return self.violation(connection, "an acknowledgement of what was not sent").map(|()| 0);
        }
        if Body::decode(body) == Some(Body::Acknowledgement) {
            return Ok(0);
        }
        match self.order(connection, head.number, body) {
            Order::Next => {}
            Order::Early => {
                count(&self.shared.counts.early);
                return Ok(0);
            }
            Order::Again => {
                count(&self.shared.counts.repeated);
                return Ok(0);
            }
            Order::Beyond => {
                return self.violation(connection, "more packets than were acknowledged").map(|()| 0);
            }
        }
        // Later packets are delivered after it, even if a handler of this one polls.
        let mut inbox = lock(&self.inbox);
        if receiver.is_none() {
            inbox.kept.push_back((connection.peer, head.number, body.to_vec()));
        }
        while let Some((number, body)) = { lock(&connection.incoming).window.following() } {
            inbox.kept.push_back((connection.peer, number, body));
        }
        if let Some((sink, traffic)) = receiver {
            drop(inbox);
            return self.process(connection, head.number, body, sink, traffic);
        }
        // The peer may be told that these have come, but for what writes memory, which is not there yet.
        for (_, number, body) in inbox.kept.iter().filter(|(peer, ..)| *peer == connection.peer) {
            if matches!(Body::decode(body), Some(Body::Put(..) | Body::Long(_) | Body::Part(_))) {
                break;
            }
            connection.took(&self.shared, *number, true);
        }
        Ok(0)
    }

    fn order(&self, connection: &Connection, number: u32, body: &[u8]) -> Order {
        #[cfg(test)]
        if self.numbering_is_off {
            return Order::Next;
        }
        lock(&connection.incoming).window.arrive(number, body)
    }

    /// One packet, when it is its turn.
    fn process(
        &self,
        connection: &Connection,
        number: u32,
        body: &[u8],
        sink: &dyn Sink,
        traffic: Traffic,
    ) -> Result<usize> {
        let shared = &self.shared;
        let assembly = { lock(&connection.incoming).assembly.take() };
        match (Body::decode(body), assembly) {
            (Some(Body::Part(bytes)), Some(assembly)) => {
                self.more(connection, number, assembly, bytes, sink, traffic)
            }
            (Some(Body::Part(_)), None) => self.violation(connection, "a part of no message").map(|()| 0),
            (_, Some(_)) => self.violation(connection, "a message inside of another").map(|()| 0),
            (Some(Body::Long(bytes)), None) => self.long(connection, number, bytes, sink, traffic),
            (Some(Body::Put((owner, region), offset, bytes)), None) => {
                let place = Destination::Region { region, owner, offset };
                match sink.destination(connection.peer, place, bytes.len()) {
                    Ok(to) => scatter(bytes, to),
                    Err(error) => return self.refuse(connection, error).map(|()| 0),
                }
                connection.took(shared, number, true);
                Ok(0)
            }
            (Some(Body::Access(packet)), None) => {
                connection.took(shared, number, false);
                self.access(connection, packet, sink).map(|()| 0)
            }
            (Some(Body::Frame(packet)), None) => self.receive(connection, number, packet, sink, traffic),
            (Some(Body::Acknowledgement) | None, None) => {
                self.violation(connection, "a malformed packet").map(|()| 0)
            }
        }
    }

    /// The first packet of a long message.
    fn long(
        &self,
        connection: &Connection,
        number: u32,
        bytes: &[u8],
        sink: &dyn Sink,
        traffic: Traffic,
    ) -> Result<usize> {
        let Ok(Some(Frame { body: frame::Body::Message(head), head_bytes, .. })) = frame::decode(bytes)
        else {
            return self.violation(connection, "a long message without a frame").map(|()| 0);
        };
        let Kind::Long(to) = head.kind else {
            return self.violation(connection, "a message in parts that is not long").map(|()| 0);
        };
        let (frame, payload) = bytes.split_at(head_bytes);
        let assembly = Assembly { frame: frame.to_vec(), to, bytes: head.payload_bytes as usize, filled: 0 };
        self.more(connection, number, assembly, payload, sink, traffic)
    }

    /// Bytes of a long message's payload; the message itself when they are the last.
    fn more(
        &self,
        connection: &Connection,
        number: u32,
        mut assembly: Assembly,
        bytes: &[u8],
        sink: &dyn Sink,
        traffic: Traffic,
    ) -> Result<usize> {
        let Assembly { to, bytes: all, filled, .. } = assembly;
        if bytes.len() > all - filled {
            return self.violation(connection, "more of a payload than there is").map(|()| 0);
        }
        // Asked each time: the region may be gone by now.
        match sink.destination(connection.peer, to, all) {
            Ok(to) => scatter(bytes, to.wrapping_add(filled)),
            Err(error) => return self.refuse(connection, error).map(|()| 0),
        }
        assembly.filled += bytes.len();
        if assembly.filled == all {
            return self.receive(connection, number, &assembly.frame, sink, traffic);
        }
        lock(&connection.incoming).assembly = Some(assembly);
        connection.took(&self.shared, number, false);
        Ok(0)
    }

    /// Handles the peer's notice about regions.
    fn access(&self, connection: &Connection, packet: &[u8], sink: &dyn Sink) -> Result<()> {
        let shared = &self.shared;
        match AccessNotice::decode(packet) {
            Some(AccessNotice::Want(name)) => {
                let told = connection.tell(shared, shared.answer(sink, connection.peer, name)?);
                self.posted(connection, told, "sending")
            }
            Some(AccessNotice::Grant(name, access)) if connection.answered(name, Some(access)) => {
                self.opened.store(true, Ordering::Release);
                if name.1 == RegionId::BLOCKS { shared.register_own_blocks(sink) } else { Ok(()) }
            }
            Some(AccessNotice::Refusal(name)) if connection.answered(name, None) => {
                self.opened.store(true, Ordering::Release);
                Ok(())
            }
            Some(other) => self.violation(connection, format!("{other:?}, which it was not asked for")),
            None => self.violation(connection, "a malformed packet about regions"),
        }
    }

    /// A frame, with the payload of a medium message; that of a long one is in its place.
    fn receive(
        &self,
        connection: &Connection,
        number: u32,
        packet: &[u8],
        sink: &dyn Sink,
        traffic: Traffic,
    ) -> Result<usize> {
        let (frame, head) = match frame::decode(packet) {
            Ok(Some(frame)) => match frame.body {
                frame::Body::Message(head) => (frame, Some(head)),
                frame::Body::Credits | frame::Body::Goodbye => (frame, None),
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
        connection.took(&self.shared, number, frame.body == frame::Body::Goodbye);
        if frame.credits > 0 && !connection.take_credits(frame.credits) {
            let what = format!("{} credits that nobody is owed", frame.credits);
            return self.violation(connection, what).map(|()| 0);
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
        connection.waiting() > REPLIES_WAITING_MAX
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
            Ok(Some(Frame { body: frame::Body::Message(head), head_bytes, .. }))
                if connection.lost().is_none() =>
            {
                self.deliver(connection, packet, &head, head_bytes, sink)
            }
            _ => Ok(0),
        }
    }

    /// Tells of puts that peers have taken in.
    pub(super) fn tell_ended(&self, sink: &dyn Sink) -> Result<usize> {
        if self.shared.ended_count.load(Ordering::Acquire) == 0 {
            return Ok(0);
        }
        let ended = std::mem::take(&mut *lock(&self.shared.ended));
        self.shared.ended_count.fetch_sub(ended.len(), Ordering::AcqRel);
        let count = ended.len();
        for (peer, operation) in ended {
            sink.completed(peer, operation)?;
        }
        Ok(count)
    }

    /// Acknowledges what peers wait to hear of.
    pub(super) fn acknowledge(&self) -> Result<()> {
        let due = &self.shared.acknowledge;
        if !due.load(Ordering::Relaxed) || !due.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        for connection in self.known_connections() {
            let sent = connection.acknowledge(&self.shared);
            if !self.posted(connection, sent, "sending")? {
                due.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    /// A request of ours has failed.
    fn broken(&self, connection: &Connection, reason: String, during: &str) -> Result<()> {
        // A peer that ends says so before its endpoint goes.
        let heard = self.poll_connecting();
        let left = self.notices.tcp.has_left(connection.peer) || self.closing.load(Ordering::Acquire);
        let reason = if left { HAS_LEFT.into() } else { reason };
        if connection.lose(reason) && !left { Err(self.lost(connection, during)) } else { heard }
    }
}

/// Returns the handler of a checked packet.
fn handler_of(packet: &[u8]) -> u8 {
    match frame::decode(packet) {
        Ok(Some(Frame { body: frame::Body::Message(head), .. })) => head.handler,
        _ => 0,
    }
}
