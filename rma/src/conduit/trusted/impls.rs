//! The conduits and sinks of this crate that are trusted.

use super::Trusted;
use crate::conduit::hook::delay::{Delay, Holding};
use crate::conduit::hook::{Hook, Hooked, Watching};
use crate::conduit::ibv::IbvConduit;
use crate::conduit::ofi::OfiConduit;
use crate::conduit::oneside::notices::{Ears, Notice};
use crate::conduit::sim::SimConduit;
use crate::conduit::smp::SmpConduit;
use crate::conduit::tcp::TcpConduit;
use crate::endpoint::EndpointSink;

// SAFETY: rule 2 of `tcp/socket.rs`.
unsafe impl Trusted for TcpConduit {}
// SAFETY: its folder's rules; payloads are copied from the ring to where the sink says.
unsafe impl Trusted for SmpConduit {}
// SAFETY: the card writes into registered memory alone, and payloads are copied to where the sink says.
unsafe impl Trusted for IbvConduit {}
// SAFETY: as above.
unsafe impl Trusted for OfiConduit {}
// SAFETY: it delivers copies of messages (`owned.rs`).
unsafe impl Trusted for SimConduit {}
// SAFETY: as above; what it does not delay, the conduit within does.
unsafe impl Trusted for Delay {}
// SAFETY: it hands everything on to the conduit within, or drops it.
unsafe impl<H: Hook> Trusted for Hooked<H> {}

// SAFETY: `Operations::destination` and `region_destination` check the range; a failed endpoint takes nothing.
unsafe impl Trusted for EndpointSink<'_> {}
// SAFETY: it hands everything on to the sink within.
unsafe impl Trusted for Watching<'_> {}
// SAFETY: as above.
unsafe impl Trusted for Holding<'_> {}
// SAFETY: it refuses all payloads.
unsafe impl<N: Notice> Trusted for Ears<'_, N> {}
