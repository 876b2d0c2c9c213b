//! How many messages and payload bytes went which way.

use crate::conduit::Sent;
use crate::message::{Arrived, Delivery, Direction, Message, Payload};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What carried a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The queue to oneself.
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
}

/// By [`Carrier`]. What is sent through shared memory is counted by its conduit.
#[derive(Default)]
#[repr(align(128))]
struct Stripe([CarrierCounters; 3]);

/// Threads that send at the same time count apart; two that share a stripe are right, too.
#[derive(Default)]
pub(super) struct Counters([Stripe; STRIPES]);

const STRIPES: usize = 4;

/// Which stripe this thread counts in.
#[inline]
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
    MINE.with(|mine| *mine)
}

fn add_alone(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

impl Counters {
    #[inline]
    pub(super) fn sent(&self, carrier: Carrier, sent: Sent, message: &Message<'_>) {
        let counters = &self.0[stripe()].0[carrier as usize];
        if sent == Sent::Busy {
            counters.busy.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let messages = match message.direction {
            Direction::Request => &counters.requests,
            Direction::Reply => &counters.replies,
        };
        messages.fetch_add(1, Ordering::Relaxed);
        if let Payload::Medium(source) | Payload::Long(source, _) = message.payload {
            counters.payload_bytes.fetch_add(source.bytes() as u64, Ordering::Relaxed);
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
        let total = |counter: fn(&CarrierCounters) -> &AtomicU64| (0..3).map(|one| sum(one, counter)).sum();
        EndpointCounts {
            loopback: carrier(Carrier::Loopback),
            smp: carrier(Carrier::Smp),
            network: carrier(Carrier::Network),
            requests_delivered: total(|counters| &counters.requests_delivered),
            replies_delivered: total(|counters| &counters.replies_delivered),
            payload_bytes_delivered: total(|counters| &counters.payload_bytes_delivered),
        }
    }
}
