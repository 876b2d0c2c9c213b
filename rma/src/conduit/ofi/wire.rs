//! The port that requests are made of. Tests put a network of their own behind it, which does what a bad one might (`shim`).

#![forbid(unsafe_code)]

use super::fabric::{Event, Local, Offer, Port, Posted, RemoteMemory};
#[cfg(test)]
use super::shim::{Faults, Shim};
use crate::error::Result;
use std::ops::Deref;

pub(super) struct Wire {
    port: Port,
    #[cfg(test)]
    shim: Option<Shim>,
}

/// Sizes of a [`Wire`].
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) requests: u32,
    pub(super) slots: u32,
    pub(super) slot_bytes: usize,
    pub(super) peers: u32,
}

impl Deref for Wire {
    type Target = Port;

    fn deref(&self) -> &Port {
        &self.port
    }
}

impl Wire {
    pub(super) fn open(
        offer: &'static Offer,
        sizes: Sizes,
        #[cfg(test)] faults: Option<&Faults>,
    ) -> Result<Self> {
        let Sizes { requests, slots, slot_bytes, peers } = sizes;
        let port = Port::open(offer, requests, slots, slot_bytes, peers)?;
        Ok(Self {
            #[cfg(test)]
            shim: faults.map(|faults| Shim::new(&port, faults)).transpose()?,
            port,
        })
    }

    /// Most bytes that are sent without a completion.
    pub(super) fn inject_max(&self) -> usize {
        #[cfg(test)]
        if let Some(shim) = &self.shim {
            return shim.inject_max(self.port.inject_max);
        }
        self.port.inject_max
    }

    #[inline]
    pub(super) fn inject(&self, peer: u64, bytes: &[u8]) -> Result<Posted> {
        #[cfg(test)]
        if let Some(shim) = &self.shim
            && shim.refuses()
        {
            return Ok(Posted::Again);
        }
        self.port.inject(peer, bytes)
    }

    #[inline]
    pub(super) fn send(&self, peer: u64, from: Local<'_>, number: u32) -> Result<Posted> {
        #[cfg(test)]
        if let Some(shim) = &self.shim
            && shim.refuses()
        {
            return Ok(Posted::Again);
        }
        self.port.send(peer, from, number)
    }

    #[inline]
    pub(super) fn read(&self, there: RemoteMemory, to: Local<'_>, number: u32) -> Result<Posted> {
        #[cfg(test)]
        if let Some(shim) = &self.shim
            && shim.refuses()
        {
            return Ok(Posted::Again);
        }
        self.port.read(there, to, number)
    }

    #[inline]
    pub(super) fn write(&self, there: RemoteMemory, from: Local<'_>, number: u32) -> Result<Posted> {
        #[cfg(test)]
        if let Some(shim) = &self.shim {
            return shim.write(&self.port, there, from, number);
        }
        self.port.write(there, from, number)
    }

    #[inline]
    pub(super) fn poll(&self, events: &mut Vec<Event>) -> Result<()> {
        #[cfg(test)]
        if let Some(shim) = &self.shim {
            return shim.poll(&self.port, events);
        }
        self.port.poll(events)
    }

    /// Returns true if nothing is here that the descriptor would not report.
    pub(super) fn may_sleep(&self) -> bool {
        #[cfg(test)]
        if let Some(shim) = &self.shim
            && shim.holds_some()
        {
            return false;
        }
        self.port.may_sleep()
    }
}
