//! State shared by the connections of a conduit: the port, its requests in flight, staging memory, registered
//! regions, counts.

#![forbid(unsafe_code)]

use super::fabric::{Local, Peers, Posted, Registration, RemoteMemory};
use super::packet::HEAD_BYTES;
use super::wire::Wire;
use super::{INJECT_MAX, LONG_BYTES_MAX, PACKET_BYTES_MAX};
use crate::address::{Peer, RegionId};
use crate::conduit::oneside::{Access, AccessNotice, Name, OfferedRegions, Regions, Slots, Staging};
use crate::error::Result;
use crate::message::{Sink, Source};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vgas_shm::{Mapping, Span};

/// Locks; the guarded state is consistent at every step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts and gets of fewer bytes are copied sooner than their memory is looked for.
const DIRECT_MIN: usize = 512;

/// Counts of a conduit's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfiCounts {
    /// Packets sent, acknowledgements among them.
    pub packets: u64,
    /// Number of these that are acknowledgements alone.
    pub acknowledgements: u64,
    /// Memory written and read at peers, by one request each.
    pub writes: u64,
    /// See above.
    pub reads: u64,
    /// Packets that came before an earlier one.
    pub early: u64,
    /// Packets that came again.
    pub repeated: u64,
    /// Packets that did not begin as they should.
    pub strangers: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) packets: AtomicU64,
    pub(super) acknowledgements: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) early: AtomicU64,
    pub(super) repeated: AtomicU64,
    pub(super) strangers: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
    pub(super) fn read(&self) -> OfiCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        OfiCounts {
            packets: of(&self.packets),
            acknowledgements: of(&self.acknowledgements),
            writes: of(&self.writes),
            reads: of(&self.reads),
            early: of(&self.early),
            repeated: of(&self.repeated),
            strangers: of(&self.strangers),
        }
    }
}

/// A request in flight, and its resources.
pub(super) struct Flight {
    pub(super) peer: Peer,
    pub(super) slots: Option<Slots>,
    /// Memory of the caller's that the request uses.
    pub(super) held: Option<Arc<Registration>>,
    pub(super) what: RequestPurpose,
}

/// Purpose of a request.
pub(super) enum RequestPurpose {
    /// A packet: its memory is free.
    Sent,
    /// A put is complete.
    Put(u64),
    /// A get: its bytes are in place.
    Got(u64),
    /// Or in the slots, for the operation's memory from this byte on.
    Staged(u64, u64, usize),
    /// The payload of a long message is in place, and its packet may go; the loan is returned.
    Payload(Vec<u8>, u64),
}

#[derive(Default)]
struct Flights {
    table: Vec<Option<Flight>>,
    free: Vec<u32>,
}

/// Its fields end in their order: the port before the memory that its requests use (rule 3 of `fabric`).
pub(super) struct Shared {
    pub(super) wire: Wire,
    pub(super) staging: Staging<Registration>,
    own: OfferedRegions<Registration>,
    regions: Regions<Registration>,
    flights: Mutex<Flights>,
    /// True if a write's completion means that the bytes are visible; otherwise payloads travel in packets.
    pub(super) delivers: bool,
    pub(super) me: Peer,
    /// Puts that the other side has taken in, and that are not reported yet.
    pub(super) ended: Mutex<Vec<(Peer, u64)>>,
    pub(super) ended_count: AtomicUsize,
    /// Something was refused since anything has come.
    pub(super) refused: AtomicBool,
    /// Packets in the queues of connections.
    pub(super) waiting: AtomicUsize,
    /// A connection has something to acknowledge.
    pub(super) acknowledge: AtomicBool,
    pub(super) counts: Counts,
}

impl Shared {
    pub(super) fn new(wire: Wire, delivers: bool, me: Peer) -> Result<Self> {
        // Room for two payloads, and for packets beside them.
        let bytes = 2 * LONG_BYTES_MAX + (1 << 20);
        let memory = Mapping::anonymous("vgas-ofi-staging", bytes as u64)?;
        let memory = wire.register(memory.span(0, bytes), Peers::Nothing)?;
        let requests = wire.requests;
        let flights =
            Flights { table: (0..requests).map(|_| None).collect(), free: (0..requests).rev().collect() };
        Ok(Self {
            wire,
            staging: Staging::new(memory, bytes),
            own: OfferedRegions::default(),
            regions: Regions::default(),
            flights: Mutex::new(flights),
            delivers,
            me,
            ended: Mutex::default(),
            ended_count: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            acknowledge: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    /// Takes room for `bytes` bytes in registered memory.
    pub(super) fn slots(&self, bytes: usize) -> Option<Slots> {
        self.staging.take(bytes)
    }

    /// Makes a request, which is in flight afterwards; false: there is no room, and its resources are free.
    /// The thread that takes its completion waits until it is noted.
    fn begin(&self, flight: Flight, post: impl FnOnce(u32, &Flight) -> Result<Posted>) -> Result<bool> {
        let mut flights = lock(&self.flights);
        let posted = match flights.free.pop() {
            Some(number) => match post(number, &flight) {
                Ok(Posted::Taken) => {
                    flights.table[number as usize] = Some(flight);
                    return Ok(true);
                }
                refused => {
                    flights.free.push(number);
                    refused
                }
            },
            None => Ok(Posted::Again),
        };
        drop(flights);
        self.staging.free(flight.slots);
        posted.map(|_| false)
    }

    /// The request with this number has ended.
    pub(super) fn end(&self, number: u32) -> Option<Flight> {
        let mut flights = lock(&self.flights);
        let flight = flights.table.get_mut(number as usize)?.take()?;
        flights.free.push(number);
        Some(flight)
    }

    /// Returns true if the end of the request with this number concerns an operation.
    pub(super) fn is_operation(&self, number: u32) -> bool {
        let flights = lock(&self.flights);
        let flight = flights.table.get(number as usize).and_then(Option::as_ref);
        flight
            .is_some_and(|flight| !matches!(flight.what, RequestPurpose::Sent | RequestPurpose::Payload(..)))
    }

    /// Returns true if nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        let flights = lock(&self.flights);
        flights.free.len() == flights.table.len()
    }

    /// Sends a packet; false: there is no room.
    pub(super) fn send(&self, peer: Peer, address: u64, packet: &[u8]) -> Result<bool> {
        debug_assert!((HEAD_BYTES + 1..=PACKET_BYTES_MAX).contains(&packet.len()));
        let sent = if packet.len() <= self.wire.inject_max().min(INJECT_MAX) {
            self.wire.inject(address, packet)? == Posted::Taken
        } else {
            let Some(slots) = self.slots(packet.len()) else { return Ok(false) };
            let at = slots.offset();
            self.staging.memory.fill(at, packet);
            let flight = Flight { peer, slots: Some(slots), held: None, what: RequestPurpose::Sent };
            let local = Local { memory: &self.staging.memory, at, bytes: packet.len() };
            self.begin(flight, |number, _| self.wire.send(address, local, number))?
        };
        if sent {
            count(&self.counts.packets);
        }
        Ok(sent)
    }

    /// Writes memory of a peer's out of `held`, if that is given, or of the flight's slots, from an offset on.
    pub(super) fn write(&self, there: RemoteMemory, at: usize, bytes: usize, flight: Flight) -> Result<bool> {
        let begun = self
            .begin(flight, |number, flight| self.wire.write(there, self.local(flight, at, bytes), number))?;
        if begun {
            count(&self.counts.writes);
        }
        Ok(begun)
    }

    /// Reads it, as [`Shared::write`].
    pub(super) fn read(&self, there: RemoteMemory, at: usize, bytes: usize, flight: Flight) -> Result<bool> {
        let begun = self
            .begin(flight, |number, flight| self.wire.read(there, self.local(flight, at, bytes), number))?;
        if begun {
            count(&self.counts.reads);
        }
        Ok(begun)
    }

    fn local<'a>(&'a self, flight: &'a Flight, at: usize, bytes: usize) -> Local<'a> {
        Local { memory: flight.held.as_deref().unwrap_or(&self.staging.memory), at, bytes }
    }

    /// The answer to a peer that wants access to a region: registers it the first time.
    ///
    /// # Errors
    /// If the registration is refused: this process cannot do what it is there for.
    pub(super) fn answer(&self, sink: &dyn Sink, from: Peer, name: Name) -> Result<AccessNotice> {
        let Some(memory) = sink.region(from, name.0, name.1) else { return Ok(AccessNotice::Refusal(name)) };
        let registration = self.register(name, memory)?;
        let (address, key) = registration.remote();
        let bytes = registration.bytes() as u64;
        Ok(AccessNotice::Grant(name, Access { address, bytes, key, atomics: false }))
    }

    /// Registers this side's own blocks, if it has some: a side with access to the other's blocks sends out
    /// of its own.
    ///
    /// # Errors
    /// As [`Shared::answer`].
    pub(super) fn register_own_blocks(&self, sink: &dyn Sink) -> Result<()> {
        let name = (self.me, RegionId::BLOCKS);
        sink.region(self.me, name.0, name.1).map_or(Ok(()), |memory| self.register(name, memory).map(drop))
    }

    fn register(&self, name: Name, memory: Span) -> Result<Arc<Registration>> {
        self.regions.get(name, || self.wire.register(memory, Peers::ReadWrite))
    }

    /// A part of a segment of this process, the source of puts and destination of gets.
    pub(super) fn offer(&self, name: Name, memory: Span) {
        self.own.offer(name, memory);
    }

    /// Gives the registration of a region back.
    pub(super) fn forget(&self, name: Name) {
        self.own.forget(name);
        self.regions.forget(name);
    }

    /// Returns the place of a source in a registered region, if any.
    pub(super) fn registered(&self, source: Source<'_>) -> Option<(Arc<Registration>, usize)> {
        self.regions.find(source)
    }

    /// Returns the place of bytes in an own segment, registered, if they are in one.
    pub(super) fn in_own_segment(
        &self,
        address: *const u8,
        bytes: usize,
    ) -> Option<(Arc<Registration>, usize)> {
        let register = |name, memory: &Span| {
            self.register(name, memory.clone())
                .inspect_err(|error| tracing::warn!("puts and gets of the own segment are copied: {error}"))
                .ok()
        };
        if bytes > DIRECT_MIN { self.own.find(address, bytes, register) } else { None }
    }
}
