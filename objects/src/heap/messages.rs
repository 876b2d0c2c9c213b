//! The messages of this library to itself on other ranks.

use std::sync::Arc;
use vgas::service::Library;
use vgas::{Endpoint, Rank, Runtime};

/// Memory and peers that the services of this library may reach.
// SAFETY: it is given to the services of `service/` alone, which write what that folder's rules say.
pub(crate) const LIBRARY: Library = unsafe { Library::owner() };

/// A job's messages, as this library uses them.
pub(crate) trait Messages {
    /// Returns the endpoint. It is used to wait, and to learn what a message may hold.
    fn messages(&self) -> &Arc<Endpoint>;

    /// Sends bytes to a handler of this library.
    fn send(&self, to: Rank, handler: u8, arguments: &[u32], bytes: &[u8]) -> vgas::Result<()>;

    /// Meets the heaps of all ranks, which bring bytes and take what all have brought, by rank.
    fn meet(&self, brought: &[u8]) -> vgas::Result<Vec<Vec<u8>>>;
}

impl Messages for Runtime {
    #[inline]
    fn messages(&self) -> &Arc<Endpoint> {
        // SAFETY: nothing is sent or written through it but what is this library's.
        unsafe { self.raw_endpoint() }
    }

    fn send(&self, to: Rank, handler: u8, arguments: &[u32], bytes: &[u8]) -> vgas::Result<()> {
        // SAFETY: the callers name handlers of this library, each with what its own file encodes.
        unsafe { self.request_library(to, handler, arguments, bytes) }
    }

    fn meet(&self, brought: &[u8]) -> vgas::Result<Vec<Vec<u8>>> {
        // SAFETY: the index is that of this library's first handler.
        unsafe { self.barrier_of_library(112, brought) }
    }
}
