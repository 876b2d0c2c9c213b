//! Messages, calls of services, and collective operations of all ranks.

use crate::error::{Error, Result};
use crate::runtime::Runtime;
use bytemuck::Pod;
use vgas_cache::service::{Service, ServiceCounts};
use vgas_rma::endpoint::{BarrierName, BarrierOutcome, handler_index};
use vgas_rma::message::{Payload, Source};
use vgas_rma::{NodeId, Peer, Rank};

impl Runtime {
    /// Calls a service of a node and waits for its answer; active messages are served meanwhile. It runs in the node's agent,
    /// whatever the ranks there do ([`crate::service`]).
    ///
    /// # Errors
    /// If the daemons do not have the service, or have another version of it, when request or answer do not
    /// fit a message ([`Runtime::medium_bytes_max`]: some 64 KiB, less over ibv), and when a peer is lost.
    pub fn call<S: Service>(&self, node: NodeId, request: &S::Request) -> Result<S::Answer> {
        Ok(self.client().call::<S>(node, request)?)
    }

    /// Starts a call of a service, for callers with other work meanwhile:
    /// [`PendingCall::test`](crate::service::PendingCall::test) makes progress.
    ///
    /// # Errors
    /// As [`Runtime::call`].
    pub fn start_call<S: Service>(
        &self,
        node: NodeId,
        request: &S::Request,
    ) -> Result<crate::service::PendingCall<S::Answer>> {
        Ok(self.client().start_call::<S>(node, request)?)
    }

    /// Tells a service of a node something, without waiting; in the order of this rank's calls of that node.
    /// Its answer is discarded.
    ///
    /// # Errors
    /// If it does not fit a message, and when a peer is lost.
    pub fn tell<S: Service>(&self, node: NodeId, request: &S::Request) -> Result<()> {
        Ok(self.client().tell::<S>(node, request)?)
    }

    /// Returns the counts of a node's service. Not collective.
    ///
    /// # Errors
    /// As [`Runtime::call`].
    pub fn service_counts<S: Service>(&self, node: NodeId) -> Result<ServiceCounts> {
        Ok(self.client().service_counts::<S>(node)?)
    }

    /// Sends an active message to a rank: runs the handler of that index there, when that rank polls or waits in the
    /// library. The source is reusable when it returns. Not from handlers, which may reply by their token.
    ///
    /// # Errors
    /// For an index below 128, and when a peer is lost.
    pub fn request(&self, to: Rank, handler: u8, arguments: &[u32], payload: &[u8]) -> Result<()> {
        if handler < handler_index::USER {
            return Err(Error::Usage(format!("handler index {handler}: programs have 128 to 255")));
        }
        // SAFETY: no library's.
        unsafe { self.request_library(to, handler, arguments, payload) }
    }

    /// [`Runtime::request`] to a handler of any index.
    ///
    /// # Safety
    /// The handler is one of the caller's library, and takes these bytes.
    pub unsafe fn request_library(
        &self,
        to: Rank,
        handler: u8,
        arguments: &[u32],
        payload: &[u8],
    ) -> Result<()> {
        let payload = self.private(payload);
        let payload = if payload.is_empty() { Payload::Short } else { Payload::Medium(Source::of(&payload)) };
        Ok(self.endpoint().request(self.peer(to)?, handler, arguments, payload)?)
    }

    /// Runs the handlers of messages that have arrived.
    pub fn poll(&self) -> Result<()> {
        self.endpoint().poll()?;
        Ok(())
    }

    /// Waits for a condition that handlers bring about, serving messages meanwhile; sleeps when nothing arrives.
    pub fn wait_until(&self, condition: impl FnMut() -> bool) -> Result<()> {
        self.endpoint().wait_until(None, condition)?;
        Ok(())
    }

    /// Waits until all ranks have come here. Puts that have returned before are visible after, also those into relaxed
    /// segments. Collective.
    pub fn barrier(&self) -> Result<()> {
        self.client().flush_relaxed()?;
        Ok(self.endpoint().barrier()?)
    }

    /// A barrier to which every rank brings up to
    /// [`CARRIED_BYTES_MAX`](vgas_rma::conduit::smp::CARRIED_BYTES_MAX) (1024) bytes, and from which all take
    /// what all have brought, by rank; for little more than a barrier costs. Collective, like
    /// [`Runtime::barrier`], with its ordering of puts.
    ///
    /// # Errors
    /// For more bytes, and when other ranks are at another kind of barrier.
    pub fn barrier_with(&self, brought: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.client().flush_relaxed()?;
        Ok(self.endpoint().barrier_with(&self.private(brought))?)
    }

    /// [`Runtime::barrier_with`] among the calls of one library, by the index of its first message handler: ranks that are at
    /// another barrier are refused, so that no rank takes a program's bytes for the library's.
    ///
    /// # Safety
    /// The number is the caller's library's.
    ///
    /// # Errors
    /// As [`Runtime::barrier_with`].
    pub unsafe fn barrier_of_library(&self, library: u8, brought: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.barrier_for(library.into(), brought)
    }

    /// Flushes relaxed puts, then meets the ranks at the barrier of a caller.
    pub(crate) fn barrier_for(&self, caller: u32, brought: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.client().flush_relaxed()?;
        Ok(self.endpoint().barrier_for(caller, &self.private(brought))?)
    }

    /// First half of a split-phase barrier.
    pub fn barrier_notify(&self, name: BarrierName) -> Result<()> {
        self.client().flush_relaxed()?;
        Ok(self.endpoint().barrier_notify(name)?)
    }

    /// Second half; says whether the names agreed.
    pub fn barrier_wait(&self, name: BarrierName) -> Result<BarrierOutcome> {
        Ok(self.endpoint().barrier_wait(name)?)
    }

    /// [`Team::all_gatherv`](crate::Team::all_gatherv) of the world, of bytes.
    ///
    /// # Errors
    /// As of the team.
    pub fn all_gatherv(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.world()?.all_gatherv(bytes)
    }

    /// [`Team::all_reduce`](crate::Team::all_reduce) of the world, of one value.
    ///
    /// # Errors
    /// As of the team.
    pub fn all_reduce<T: Pod>(&self, mut value: T, combine: impl Fn(T, T) -> T) -> Result<T> {
        self.world()?.all_reduce(std::slice::from_mut(&mut value), combine).map(|()| value)
    }

    fn peer(&self, rank: Rank) -> Result<Peer> {
        if rank.0 < self.ranks() {
            Ok(self.layout().peer_of_rank(rank))
        } else {
            Err(Error::Usage(format!("{rank} of {} ranks", self.ranks())))
        }
    }
}
