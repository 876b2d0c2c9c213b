//! Trial of a provider's delivery promise for writes.
//!
//! A write that is asked for with `FI_DELIVERY_COMPLETE` completes when its bytes are visible at the target.
//! Some providers say so and complete when the bytes have left: `net` of libfabric 1.17 does. So each process
//! tries it once, before it relies on it: one endpoint writes to another one, which takes no part; when the
//! write has completed, the bytes must be there. If they are not, payloads and puts travel in packets that
//! the receiver acknowledges ([`packet`](super::packet)).

#![forbid(unsafe_code)]

use super::fabric::{Event, Local, Offer, Peers, Posted, RemoteMemory};
#[cfg(test)]
use super::shim::Faults;
use super::wire::{Sizes, Wire};
use crate::error::Result;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use vgas_shm::{Mapping, cores};

/// Bytes of the writes: sizes that a provider may copy at once, may queue, and needs several packets for.
const BYTES: [usize; 3] = [8, 4096, 128 << 10];

/// Time that the target stays away: much longer than a delivered write takes to become visible.
const ABSENCE: Duration = Duration::from_micros(500);

/// A write that has not completed by then never does.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Results for the providers of this process.
static FOUND: Mutex<Vec<(String, bool)>> = Mutex::new(Vec::new());

/// Returns true if writes through this offer complete when their bytes are visible. Tried once a process and
/// provider.
///
/// # Errors
/// If no two endpoints can be opened, or a write fails.
pub(super) fn delivers(offer: &'static Offer, #[cfg(test)] faults: Option<&Faults>) -> Result<bool> {
    #[cfg(test)]
    if faults.is_some() {
        return attempt(offer, faults);
    }
    // Held meanwhile: threads of one process that open conduits at once need not all try it.
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, delivers)) = found.iter().find(|(provider, _)| *provider == offer.provider) {
        return Ok(*delivers);
    }
    let delivers = attempt(
        offer,
        #[cfg(test)]
        faults,
    )?;
    tracing::info!(provider = offer.provider, delivers, "whether writes complete when they are visible");
    found.push((offer.provider.clone(), delivers));
    Ok(delivers)
}

fn attempt(offer: &'static Offer, #[cfg(test)] faults: Option<&Faults>) -> Result<bool> {
    let most = BYTES.into_iter().max().unwrap_or_default();
    let sizes = Sizes { requests: 8, slots: 8, slot_bytes: 64, peers: 2 };
    let open = || {
        Wire::open(
            offer,
            sizes,
            #[cfg(test)]
            faults,
        )
    };
    let (origin, target) = (open()?, open()?);
    let there = Mapping::anonymous("vgas-ofi-there", most as u64)?;
    let here = Mapping::anonymous("vgas-ofi-here", most as u64)?;
    let remote = target.register(there.span(0, most), Peers::ReadWrite)?;
    let memory = origin.register(here.span(0, most), Peers::Nothing)?;
    let peer = origin.insert(&target.name)?;
    // Both know each other, as they will.
    target.insert(&origin.name)?;
    let (address, key) = remote.remote();
    let mut pattern = 0;
    let mut write = |bytes: usize, absence: Duration| -> Result<bool> {
        pattern += 1;
        here.write(0, &vec![pattern; bytes]);
        let local = Local { memory: &memory, at: 0, bytes };
        let begun = Instant::now();
        let mut naps = 0;
        while origin.write(RemoteMemory { peer, address, key }, local, 0)? == Posted::Again {
            // The first request connects the two, which needs both.
            progress(&[&origin, &target])?;
            if begun.elapsed() > TIMEOUT {
                return Ok(false);
            }
            cores::nap(&mut naps);
        }
        let posted = Instant::now();
        let completed = loop {
            let waited = posted.elapsed();
            if let Some(end) = progress(&[&origin])?.first() {
                break end.error == 0;
            }
            if waited > absence {
                progress(&[&target])?;
            }
            if waited > TIMEOUT {
                break false;
            }
        };
        let mut found = vec![0; bytes];
        there.read(0, &mut found);
        Ok(completed && found.iter().all(|&byte| byte == pattern))
    };
    // The first connects, for which the target is needed.
    Ok(write(8, Duration::ZERO)?
        && BYTES.into_iter().try_fold(true, |so_far, bytes| {
            Ok::<_, crate::error::RmaError>(so_far && write(bytes, ABSENCE)?)
        })?)
}

fn progress(wires: &[&Wire]) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for wire in wires {
        wire.poll(&mut events)?;
    }
    Ok(events)
}
