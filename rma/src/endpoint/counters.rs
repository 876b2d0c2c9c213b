//! Counts of messages and payload bytes by path.

use crate::conduit::Sent;
use crate::message::{Arrived, Delivery, Direction, Message, Payload};
use std::sync::atomic::{AtomicU64, Ordering};
use vgas_shm::striped::{STRIPES, add, stripe};

/// Path of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The queue to oneself, or none ([`Endpoint::request_inline`](super::Endpoint::request_inline)).
    Loopback,
    /// Shared memory.
    Smp,
    /// The network conduit.
    Network,
}

/// Counts of one carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierCounts {
    /// Requests accepted.
    pub requests: u64,
    /// Replies accepted.
    pub replies: u64,
    /// Payload bytes of both.
    pub payload_bytes: u64,
    /// Attempts that found no room.
    pub busy: u64,
}

/// Counts of an endpoint since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Sent to oneself.
    pub loopback: CarrierCounts,
    /// Sent through shared memory.
    pub smp: CarrierCounts,
    /// Sent through the network.
    pub network: CarrierCounts,
    /// Requests delivered here.
    pub requests_delivered: u64,
    /// Replies delivered here.
    pub replies_delivered: u64,
    /// Payload bytes of both.
    pub payload_bytes_delivered: u64,
}

#[derive(Default)]
struct CarrierCounters {
    requests: AtomicU64,
    replies: AtomicU64,
    payload_bytes: AtomicU64,
    busy: AtomicU64,
    // A carrier is delivered from by one thread at a time: plain additions.
    requests_delivered: AtomicU64,
    replies_delivered: AtomicU64,
    payload_bytes_delivered: AtomicU64,
    /// Handled inside the call that has sent them: sent and delivered at once.
    inline: InlineCounters,
}

#[derive(Default)]
struct InlineCounters {
    requests: AtomicU64,
    replies: AtomicU64,
    payload_bytes: AtomicU64,
}

/// By [`Carrier`]. Messages through shared memory are counted by their conduit.
#[derive(Default)]
#[repr(align(128))]
struct Stripe([CarrierCounters; 3]);

/// Threads that send at the same time count apart.
#[derive(Default)]
pub(super) struct Counters([Stripe; STRIPES]);

fn add_alone(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

impl Counters {
    #[inline]
    pub(super) fn sent(&self, carrier: Carrier, sent: Sent, message: &Message<'_>) {
        let stripe = stripe();
        let counters = &self.0[stripe].0[carrier as usize];
        if sent == Sent::Busy {
            add(stripe, &counters.busy, 1);
            return;
        }
        let messages = match message.direction {
            Direction::Request => &counters.requests,
            Direction::Reply => &counters.replies,
        };
        add(stripe, messages, 1);
        if let Payload::Medium(source) | Payload::Long(source, _) = message.payload {
            add(stripe, &counters.payload_bytes, source.bytes() as u64);
        }
    }

    /// Counts a message of this peer to itself that is handled inside the call.
    #[inline]
    pub(super) fn handled_inline(&self, direction: Direction, payload_bytes: usize) {
        let stripe = stripe();
        let counters = &self.0[stripe].0[Carrier::Loopback as usize].inline;
        let messages = match direction {
            Direction::Request => &counters.requests,
            Direction::Reply => &counters.replies,
        };
        add(stripe, messages, 1);
        if payload_bytes > 0 {
            add(stripe, &counters.payload_bytes, payload_bytes as u64);
        }
    }

    #[inline]
    pub(super) fn delivered(&self, carrier: Carrier, delivery: &Delivery<'_>) {
        // Whichever thread delivers.
        let counters = &self.0[0].0[carrier as usize];
        let messages = match delivery.direction {
            Direction::Request => &counters.requests_delivered,
            Direction::Reply => &counters.replies_delivered,
        };
        add_alone(messages, 1);
        match delivery.payload {
            Arrived::Short => {}
            Arrived::Medium(bytes) => add_alone(&counters.payload_bytes_delivered, bytes.len() as u64),
            Arrived::Long(_, bytes) => add_alone(&counters.payload_bytes_delivered, bytes as u64),
        }
    }

    pub(super) fn read(&self) -> EndpointCounts {
        let sum = |carrier: usize, counter: fn(&CarrierCounters) -> &AtomicU64| {
            let all = self.0.iter().map(|stripe| counter(&stripe.0[carrier]).load(Ordering::Relaxed));
            all.sum::<u64>()
        };
        let carrier = |carrier: Carrier| CarrierCounts {
            requests: sum(carrier as usize, |counters| &counters.requests),
            replies: sum(carrier as usize, |counters| &counters.replies),
            payload_bytes: sum(carrier as usize, |counters| &counters.payload_bytes),
            busy: sum(carrier as usize, |counters| &counters.busy),
        };
        let total =
            |counter: fn(&CarrierCounters) -> &AtomicU64| (0..3).map(|one| sum(one, counter)).sum::<u64>();
        let loopback = carrier(Carrier::Loopback);
        let inline = |counter: fn(&InlineCounters) -> &AtomicU64| {
            let all = self.0.iter().map(|stripe| counter(&stripe.0[Carrier::Loopback as usize].inline));
            all.map(|counter| counter.load(Ordering::Relaxed)).sum::<u64>()
        };
        let (requests, replies) = (inline(|counts| &counts.requests), inline(|counts| &counts.replies));
        let payload_bytes = inline(|counts| &counts.payload_bytes);
        EndpointCounts {
            loopback: CarrierCounts {
                requests: loopback.requests + requests,
                replies: loopback.replies + replies,
                payload_bytes: loopback.payload_bytes + payload_bytes,
                busy: loopback.busy,
            },
            smp: carrier(Carrier::Smp),
            network: carrier(Carrier::Network),
            requests_delivered: total(|counters| &counters.requests_delivered) + requests,
            replies_delivered: total(|counters| &counters.replies_delivered) + replies,
            payload_bytes_delivered: total(|counters| &counters.payload_bytes_delivered) + payload_bytes,
        }
    }
}
