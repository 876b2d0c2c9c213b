//! A rank's view of the job.

use crate::address::Kind;
use crate::config::{Auto, Settings};
use crate::error::Result;
use crate::network::Network;
use crate::segment::{Addresses, SegmentTable};
use std::sync::{Arc, Mutex};
use vgas_cache::client::Client;
use vgas_cache::pool::TableLayout;
use vgas_job::Bootstrap;
use vgas_rma::collective::{self, Collectives};
use vgas_rma::endpoint::Endpoint;
use vgas_rma::{Layout, NodeId, Rank};

/// A rank of a job: a handle, whose clones are the same. One rank exists per process.
///
/// Any thread may call anything. Teams, segments and operations keep a clone. A rank that exits without [`Runtime::finalize`] is
/// missed by the other ranks, and the job ends with an error.
///
/// | what | where |
/// |---|---|
/// | memory | [`Runtime::attach`], which returns a [`Segment`](crate::Segment); by address [`Runtime::put`], [`Runtime::get`], [`Runtime::update`], [`Runtime::batch`], [`Runtime::pin`] |
/// | all ranks together | [`Runtime::barrier`], [`Runtime::world`] |
/// | messages and services | [`Runtime::request`], [`Runtime::call`] |
/// | locks | [`Runtime::lock`] |
/// | what survives the job | [`Runtime::checkpoint`] |
#[derive(Clone)]
pub struct Runtime(Arc<RankState>);

pub(crate) struct RankState {
    pub layout: Layout,
    pub rank: Rank,
    pub settings: Settings,
    pub bootstrap: Arc<dyn Bootstrap>,
    pub endpoint: Arc<Endpoint>,
    pub client: Client,
    /// All ranks, for the program, and for the runtime's own collectives.
    pub world: Arc<collective::Team>,
    pub internal_world: Arc<collective::Team>,
    pub network: Network,
    pub shares_machine: bool,
    pub segments: SegmentTable,
    pub addresses: Addresses,
    pub ending: Mutex<Ending>,
    /// True if this rank has met the survivors of a loss.
    pub meeting: Mutex<bool>,
}

/// Work of a library at the end of the job.
pub(crate) type Finalizer = Box<dyn FnOnce() -> Result<()> + Send>;

/// Progress of this rank's end.
#[derive(Default)]
pub(crate) struct Ending {
    pub finalizers: Vec<Finalizer>,
    pub has_ended: bool,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runtime of {} of {}", self.rank(), self.ranks())
    }
}

impl From<Arc<RankState>> for Runtime {
    fn from(state: Arc<RankState>) -> Self {
        Self(state)
    }
}

impl Runtime {
    pub(crate) fn state(&self) -> &Arc<RankState> {
        &self.0
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.0.rank
    }

    /// Number of ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.0.layout.ranks()
    }

    /// The node this rank runs on.
    pub fn node(&self) -> NodeId {
        self.0.layout.node_of(self.0.rank)
    }

    /// Number of nodes of the job.
    pub fn nodes(&self) -> u32 {
        self.0.layout.nodes()
    }

    /// Returns true if all nodes are virtual nodes of this machine, so that they share its cores.
    pub fn shares_machine(&self) -> bool {
        self.0.shares_machine
    }

    /// Returns the assignment of ranks to nodes.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// The effective settings of the job.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    #[inline(always)]
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.0.endpoint
    }

    /// Returns the endpoint, for functions that this type does not wrap.
    ///
    /// # Safety
    /// It reaches all of the job, even after this runtime was given to a library. The caller sends no message
    /// to a handler, and writes into no pinned segment, that belong to a library other than its own or to the
    /// cache.
    pub unsafe fn raw_endpoint(&self) -> &Arc<Endpoint> {
        &self.0.endpoint
    }

    pub(crate) fn bootstrap(&self) -> &Arc<dyn Bootstrap> {
        &self.0.bootstrap
    }

    pub(crate) fn network(&self) -> &Network {
        &self.0.network
    }

    pub(crate) fn segments(&self) -> &SegmentTable {
        &self.0.segments
    }

    pub(crate) fn addresses(&self) -> &Addresses {
        &self.0.addresses
    }

    pub(crate) fn ending(&self) -> &Mutex<Ending> {
        &self.0.ending
    }

    pub(crate) fn meeting(&self) -> &Mutex<bool> {
        &self.0.meeting
    }

    #[inline(always)]
    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Returns the cache client, for functions that this type does not wrap.
    ///
    /// # Safety
    /// The caller writes into no segment of a library other than its own, and changes neither the pool nor what the client
    /// knows of segments ([`Client::know`] and its like).
    pub unsafe fn raw_client(&self) -> &Client {
        &self.0.client
    }

    /// Returns the layout of the node's cache: its sizes of pages, and its frames.
    pub fn cache_layout(&self) -> &TableLayout {
        self.client().pool().layout()
    }

    /// Returns the most bytes that a message to any rank carries, and a request or answer of a service.
    pub fn medium_bytes_max(&self) -> usize {
        self.endpoint().medium_bytes_max()
    }

    /// Returns the bytes of a page of the first tiered segment.
    pub fn page_bytes(&self) -> usize {
        self.client().page_bytes()
    }

    pub(crate) fn world_team(&self) -> &Arc<collective::Team> {
        &self.0.world
    }

    pub(crate) fn internal_world(&self) -> &Arc<collective::Team> {
        &self.0.internal_world
    }

    /// Returns the engine of collectives, for functions that [`Team`](crate::Team) does not wrap.
    ///
    /// # Safety
    /// As of [`Runtime::raw_endpoint`], which it has.
    pub unsafe fn raw_collectives(&self) -> &Arc<Collectives> {
        self.0.world.collectives()
    }

    /// Returns the kind of segment that the user wants (`segment.kind`), for programs that leave it to their
    /// users. Tiered if the user leaves it to vgas.
    pub fn segment_kind(&self) -> Kind {
        match self.settings().segment.kind {
            Auto::Is(kind) => kind,
            Auto::Auto => Kind::Tiered,
        }
    }
}
