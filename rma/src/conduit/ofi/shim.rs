//! A bad network, of tests: it has no room at random, delivers and completes in any order, takes nothing over
//! at once, and reports a write as done before it has begun. Its behaviour replays from a seed, as far as
//! threads let it.

use super::fabric::{Event, Local, Peers, Port, Posted, Registration, RemoteMemory};
use super::shared::lock;
use crate::error::Result;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::sync::Mutex;
use vgas_shm::Mapping;

/// Faults to simulate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::conduit::ofi) struct Faults {
    pub(in crate::conduit::ofi) seed: u64,
    /// Share of requests without room, in a hundred.
    pub(in crate::conduit::ofi) refused: u32,
    /// True if completions, and so packets, come in any order.
    pub(in crate::conduit::ofi) reorders: bool,
    /// True if writes complete early.
    pub(in crate::conduit::ofi) lies: bool,
    /// Not the network's: whether the receiver ignores the numbers of packets.
    pub(in crate::conduit::ofi) numbering_is_off: bool,
}

/// Most bytes of a delayed write: one of the trial's, since only the trial writes over a network that lies.
const LATE_BYTES_MAX: usize = 128 << 10;

struct Late {
    there: RemoteMemory,
    bytes: Vec<u8>,
}

struct State {
    random: ChaCha8Rng,
    /// Completions that were taken and not told.
    held: Vec<Event>,
    late: VecDeque<Late>,
    /// One is in flight, with the last number.
    is_late_in_flight: bool,
}

pub(in crate::conduit::ofi) struct Shim {
    faults: Faults,
    state: Mutex<State>,
    memory: Registration,
    last_number: u32,
}

impl Shim {
    pub(in crate::conduit::ofi) fn new(port: &Port, faults: &Faults) -> Result<Self> {
        let memory = Mapping::anonymous("vgas-ofi-late", LATE_BYTES_MAX as u64)?;
        let state = State {
            random: ChaCha8Rng::seed_from_u64(faults.seed),
            held: Vec::new(),
            late: VecDeque::new(),
            is_late_in_flight: false,
        };
        Ok(Self {
            faults: faults.clone(),
            state: Mutex::new(state),
            memory: port.register(memory.span(0, LATE_BYTES_MAX), Peers::Nothing)?,
            last_number: port.requests - 1,
        })
    }

    /// A network that completes in any order takes nothing over at once: every packet has a completion.
    pub(in crate::conduit::ofi) fn inject_max(&self, offered: usize) -> usize {
        if self.faults.reorders { 0 } else { offered }
    }

    pub(in crate::conduit::ofi) fn refuses(&self) -> bool {
        self.faults.refused > 0 && lock(&self.state).random.random_range(0..100) < self.faults.refused
    }

    pub(in crate::conduit::ofi) fn write(
        &self,
        port: &Port,
        there: RemoteMemory,
        from: Local<'_>,
        number: u32,
    ) -> Result<Posted> {
        if self.refuses() {
            return Ok(Posted::Again);
        }
        if !self.faults.lies {
            return port.write(there, from, number);
        }
        let mut bytes = vec![0; from.bytes];
        from.memory.empty(from.at, bytes.as_mut_ptr(), from.bytes);
        let state = &mut *lock(&self.state);
        state.late.push_back(Late { there, bytes });
        state.held.push(Event { number: Some(number), bytes: 0, error: 0 });
        Ok(Posted::Taken)
    }

    pub(in crate::conduit::ofi) fn poll(&self, port: &Port, events: &mut Vec<Event>) -> Result<()> {
        let state = &mut *lock(&self.state);
        let mut taken = Vec::new();
        port.poll(&mut taken)?;
        state.is_late_in_flight &= !taken.iter().any(|event| self.is_own(event));
        state.held.extend(taken.into_iter().filter(|event| !self.is_own(event)));
        if !self.faults.reorders {
            events.append(&mut state.held);
        } else {
            // Any of them, in any order; none stays for long.
            let count = state.random.random_range(0..=state.held.len());
            for _ in 0..count {
                let index = state.random.random_range(0..state.held.len());
                events.push(state.held.swap_remove(index));
            }
        }
        if !state.is_late_in_flight
            && state.random.random_ratio(1, 4)
            && let Some(late) = state.late.pop_front()
        {
            self.memory.fill(0, &late.bytes);
            let local = Local { memory: &self.memory, at: 0, bytes: late.bytes.len() };
            match port.write(late.there, local, self.last_number)? {
                Posted::Taken => state.is_late_in_flight = true,
                Posted::Again => state.late.push_front(late),
            }
        }
        Ok(())
    }

    fn is_own(&self, event: &Event) -> bool {
        self.faults.lies && event.number == Some(self.last_number)
    }

    pub(in crate::conduit::ofi) fn holds_some(&self) -> bool {
        let state = lock(&self.state);
        !state.held.is_empty() || !state.late.is_empty()
    }
}
