//! The conduits and sinks of this crate keep the promises on which the memory of programs depends: the
//! addresses to which a sink has bytes written, and the end of all writes that a conduit reports.

/// A [`Conduit`](super::Conduit) or a [`Sink`](crate::message::Sink) that memory safety may depend on. Programs need none of their own;
/// tests have some.
///
/// ```compile_fail,E0200
/// struct Mine;
/// impl vgas_rma::conduit::Trusted for Mine {}
/// ```
///
/// # Safety
/// *A conduit* writes a long payload to the address for which it has asked the sink, within its length, and
/// nowhere else; not after [`Sink::is_gone`](crate::message::Sink::is_gone) has returned true for the peer.
/// It tells the sink that a part is completed, or delivers a message, only when that has happened, and wraps
/// only conduits that do the same.
///
/// *A sink* returns an address that is valid for writes of the requested number of bytes, until it has been
/// given the message, or has reported that the peer is gone.
pub unsafe trait Trusted {}

#[cfg(not(test))]
mod impls;

// SAFETY: the conduits and sinks of unit tests, beside those above, write where their tests keep memory.
#[cfg(test)]
unsafe impl<T: ?Sized> Trusted for T {}
