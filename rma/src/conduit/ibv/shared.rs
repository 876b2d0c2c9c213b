//! State shared by the connections of a conduit: the device, its queues, staging memory, registered regions,
//! counts.

#![forbid(unsafe_code)]

use super::device::{Chosen, choose};
use super::verbs::{Peers, Queues, Registration, Verb, locked_memory_limit};
use super::{INLINE_MAX, IbvOptions, PACKET_BYTES_MAX};
use crate::address::{Peer, RegionId};
use crate::conduit::oneside::{
    Access, AccessNotice, Name, OfferedRegions, Regions, Registered, SLOT_BYTES, Staging,
};
use crate::error::Result;
use crate::message::{Sink, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use vgas_shm::{Mapping, Span};

/// Requests and completions of a conduit so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IbvCounts {
    /// SENDs posted.
    pub sends: u64,
    /// WRITEs posted, with immediate data and without.
    pub writes: u64,
    /// READs posted.
    pub reads: u64,
    /// Atomic updates posted.
    pub atomics: u64,
    /// Number of these that asked for a completion.
    pub signalled: u64,
    /// Completions of them that were polled.
    pub completions: u64,
    /// Receives that were polled.
    pub receives: u64,
    /// Messages that came twice and were dropped: of Soft-RoCE, where packets are lost.
    pub repeated: u64,
    /// Events of the device: about ports, queue pairs, itself.
    pub events: u64,
    /// Payloads, and puts and gets of more than 512 bytes, that were copied to or from staging memory, because they lie in
    /// no registered region, or may change before they have left.
    pub copied: u64,
}

impl std::ops::Sub for IbvCounts {
    type Output = Self;

    /// Returns the counts since `before`.
    fn sub(self, before: Self) -> Self {
        Self {
            sends: self.sends - before.sends,
            writes: self.writes - before.writes,
            reads: self.reads - before.reads,
            atomics: self.atomics - before.atomics,
            signalled: self.signalled - before.signalled,
            completions: self.completions - before.completions,
            receives: self.receives - before.receives,
            repeated: self.repeated - before.repeated,
            events: self.events - before.events,
            copied: self.copied - before.copied,
        }
    }
}

#[derive(Default)]
pub(super) struct Counts {
    sends: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
    atomics: AtomicU64,
    signalled: AtomicU64,
    pub(super) completions: AtomicU64,
    pub(super) receives: AtomicU64,
    pub(super) repeated: AtomicU64,
    pub(super) events: AtomicU64,
    pub(super) copied: AtomicU64,
}

impl Counts {
    pub(super) fn posted(&self, verb: Verb, signalled: bool) {
        let count = match verb {
            Verb::Send => &self.sends,
            Verb::Write(..) | Verb::WriteImmediate(..) => &self.writes,
            Verb::Read(..) => &self.reads,
            Verb::Atomic(..) => &self.atomics,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if signalled {
            self.signalled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Completions that were asked for and not polled. (A connection that is lost may bring more than were asked for.)
    fn in_flight(&self) -> u64 {
        let completions = self.completions.load(Ordering::Relaxed);
        self.signalled.load(Ordering::Relaxed).saturating_sub(completions)
    }

    pub(super) fn read(&self) -> IbvCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        IbvCounts {
            sends: of(&self.sends),
            writes: of(&self.writes),
            reads: of(&self.reads),
            atomics: of(&self.atomics),
            signalled: of(&self.signalled),
            completions: of(&self.completions),
            receives: of(&self.receives),
            repeated: of(&self.repeated),
            events: of(&self.events),
            copied: of(&self.copied),
        }
    }
}

/// Connections for whose requests all the completion queue has room at once.
const CONNECTIONS_FULL: u32 = 64;

/// Returns the entries of the completion queue, which must never overflow, and the number of completions of
/// requests that may be in flight in it. Beside these, every receive slot may complete, and every connection
/// has some packets that are no messages.
fn queue_sizes(slots: u32, depth: u32, peers: u32, completions_max: u32) -> (u32, u64) {
    let others = u64::from(slots) + 2 * u64::from(peers);
    let wanted = others + u64::from(depth) * u64::from(peers.min(CONNECTIONS_FULL));
    let completions = wanted.min(u64::from(completions_max));
    (completions as u32, completions.saturating_sub(others).max(4))
}

pub(super) struct Shared {
    pub(super) options: IbvOptions,
    pub(super) chosen: Chosen,
    pub(super) queues: Arc<Queues>,
    pub(super) staging: Staging<Registration>,
    pub(super) own: OfferedRegions<Registration>,
    pub(super) counts: Counts,
    /// Packets and replies that wait for room, on all connections together.
    pub(super) waiting: AtomicUsize,
    /// The device has reported its port as down.
    pub(super) port_is_down: AtomicBool,
    /// Most requests in flight on one connection.
    pub(super) depth: u32,
    /// Most completions that are asked for and not polled, on all connections together.
    signalled_max: u64,
    pub(super) signal_interval: u32,
    /// True if words of segments are updated by the device.
    pub(super) atomics: bool,
    /// Regions that were granted to a peer, and this side's own blocks and segment.
    regions: Regions<Registration>,
}

impl Shared {
    /// Opens the device and makes everything that does not belong to one peer.
    pub(super) fn new(options: IbvOptions, index: usize, peers: u32) -> Result<Self> {
        let chosen = choose(&options, index)?;
        // A queue pair needs room for a payload and its message, and a control packet beside them.
        let depth = options.depth.clamp(8, chosen.depth_max.max(8));
        let slots = options.receive_slots.min(chosen.slots_max);
        let (completions, signalled_max) = queue_sizes(slots, depth, peers, chosen.completions_max);
        let queues = Queues::new(&chosen.context, completions, slots, PACKET_BYTES_MAX)?;
        let bytes = options.staging_bytes.next_multiple_of(SLOT_BYTES);
        let memory = Mapping::anonymous("vgas-ibv-staging", bytes as u64)?;
        let staging = Staging::new(chosen.context.register(memory.span(0, bytes), Peers::Nothing)?, bytes);
        let signal_interval = options.signal_interval.clamp(1, depth / 2);
        let atomics = options.atomics && chosen.atomics;
        let (counts, regions) = (Counts::default(), Regions::default());
        Ok(Self {
            options,
            chosen,
            queues,
            staging,
            own: OfferedRegions::default(),
            counts,
            waiting: AtomicUsize::new(0),
            port_is_down: AtomicBool::new(false),
            depth,
            signalled_max,
            signal_interval,
            atomics,
            regions,
        })
    }

    /// Describes why a request has failed: the library's text, and the device's last report about the port.
    pub(super) fn explain(&self, status: i32) -> String {
        let said = self.queues.explain(status);
        if self.port_is_down.load(Ordering::Acquire) {
            let (port, device) = (self.chosen.route.port, &self.chosen.context.name);
            return format!("{said}; port {port} of the RDMA device {device} is down");
        }
        said
    }

    /// Returns true if the completion queue has room for the completions of two more requests.
    pub(super) fn has_room(&self) -> bool {
        self.counts.in_flight() + 2 <= self.signalled_max
    }

    /// The answer to a peer that wants access to a region: registers it the first time.
    ///
    /// # Errors
    /// If the device or the locked-memory limit refuses the registration: this process cannot do what it is
    /// there for.
    pub(super) fn answer(&self, sink: &dyn Sink, from: Peer, name: Name) -> Result<AccessNotice> {
        let Some(registration) = self.registration(sink, from, name)? else {
            return Ok(AccessNotice::Refusal(name));
        };
        let (address, key) = registration.remote();
        let key = key.into();
        let (bytes, atomics) = (registration.bytes() as u64, self.updates(name));
        Ok(AccessNotice::Grant(name, Access { address, bytes, key, atomics }))
    }

    /// Registers this side's own blocks, if it has some: a side with access to the other's blocks sends out
    /// of its own, without a copy, even if access to these is never requested.
    ///
    /// # Errors
    /// As [`Shared::answer`].
    pub(super) fn register_own_blocks(&self, sink: &dyn Sink, me: Peer) -> Result<()> {
        self.registration(sink, me, (me, RegionId::BLOCKS)).map(|_| ())
    }

    /// The registration of a region of this side's, made the first time; none when there is no such region for `from`.
    fn registration(&self, sink: &dyn Sink, from: Peer, name: Name) -> Result<Option<Arc<Registration>>> {
        let Some(memory) = sink.region(from, name.0, name.1) else { return Ok(None) };
        self.register(name, memory).map(Some)
    }

    /// The registration of this region, which is this memory; made the first time.
    pub(super) fn register(&self, name: Name, memory: Span) -> Result<Arc<Registration>> {
        self.regions.get(name, || {
            let peers = if self.updates(name) { Peers::Atomics } else { Peers::ReadWrite };
            self.chosen.context.register(memory, peers)
        })
    }

    /// Gives the registration of a region back: the device refuses its keys from now on.
    pub(super) fn forget(&self, name: Name) {
        self.own.forget(name);
        self.regions.forget(name);
    }

    /// Returns true if the device updates words of this region: of segments only.
    fn updates(&self, (_, region): Name) -> bool {
        self.atomics && region.is_segment()
    }

    /// Returns the place of a source in registered memory, if any.
    pub(super) fn registered(&self, source: Source<'_>) -> Option<(Arc<Registration>, usize)> {
        self.regions.find(source)
    }

    /// Returns the place of bytes in an own segment, registered, if they are in one. Few bytes are copied
    /// sooner than looked for. Locked memory that peers need comes first: if the limit would leave less than
    /// was taken, bytes are copied.
    pub(super) fn in_own_segment(
        &self,
        address: *const u8,
        bytes: usize,
    ) -> Option<(Arc<Registration>, usize)> {
        let register = |name, memory: &Span| {
            if locked_memory_limit().is_some_and(|limit| memory.bytes() as u64 > limit / 2) {
                tracing::info!(
                    "puts and gets of the own segment are copied: `ulimit -l` is too small to lock it"
                );
                return None;
            }
            self.register(name, memory.clone())
                .inspect_err(|error| tracing::warn!("puts and gets of the own segment are copied: {error}"))
                .ok()
        };
        if bytes > INLINE_MAX { self.own.find(address, bytes, register) } else { None }
    }
}

impl Registered for Registration {
    fn offset_of(&self, address: *const u8, bytes: usize) -> Option<usize> {
        Registration::offset_of(self, address, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_connections_may_all_be_full_and_many_may_not() {
        let (slots, depth) = (256, 128);
        for peers in [2, 4, 64] {
            let (completions, in_flight) = queue_sizes(slots, depth, peers, 1 << 22);
            assert_eq!(in_flight, u64::from(peers * depth));
            assert_eq!(u64::from(completions), u64::from(slots + 2 * peers) + in_flight);
        }
        assert_eq!(queue_sizes(slots, depth, 5000, 1 << 22).1, 64 * 128);
        assert_eq!(queue_sizes(slots, depth, 5000, 16_384), (16_384, 16_384 - 256 - 10_000));
    }

    proptest! {
        #[test]
        fn the_queue_never_overflows(
            slots in 16u32..65_536, depth in 8u32..16_384, peers in 2u32..100_000, most in 300_000u32..1 << 23,
        ) {
            let (completions, in_flight) = queue_sizes(slots, depth, peers, most);
            prop_assert!(completions <= most);
            prop_assert!(in_flight >= 4);
            prop_assert!(in_flight + u64::from(slots) + 2 * u64::from(peers) <= u64::from(completions));
        }
    }
}
