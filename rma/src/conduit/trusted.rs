//! The conduits and sinks of this crate keep the promises on which the memory of programs depends: where a sink has bytes written, and when
//! a conduit tells that none are written any more.

/// A [`Conduit`](super::Conduit) or a [`Sink`](crate::message::Sink) that memory safety may depend on. Programs need none of their own;
/// tests have some.
///
/// ```compile_fail,E0200
/// struct Mine;
/// impl vgas_rma::conduit::Trusted for Mine {}
/// ```
///
/// # Safety
/// *A conduit* writes a long payload to the address for which it has asked the sink, within its length, and nowhere else; not after
/// [`Sink::is_gone`](crate::message::Sink::is_gone) has said that nothing of the peer is wanted. It tells the sink that a part is
/// completed, or delivers a message, only when that has happened, and wraps only conduits that do the same.
///
/// *A sink* returns an address that is valid for writes of as many bytes as it was asked for, until it has been given the message, or has
/// said that the peer is gone.
pub unsafe trait Trusted {}

#[cfg(not(test))]
mod impls {
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
}

// SAFETY: the conduits and sinks of unit tests, beside those above, write where their tests keep memory.
#[cfg(test)]
unsafe impl<T: ?Sized> Trusted for T {}
