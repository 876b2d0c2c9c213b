//! A rank's view of the job.

use crate::address::{GlobalAddress, Kind};
use crate::addresses::Addresses;
use crate::attach::in_short;
use crate::config::{Auto, Settings, StatisticsChoice};
use crate::error::{Error, Result};
use crate::local::Local;
use crate::network::Network;
use crate::segments::Segments;
use crate::started::Starting;
use crate::statistics::Statistics;
use bytemuck::Pod;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vgas_cache::client::{Client, ClientOptions, SegmentUpdate};
use vgas_cache::partition::SegmentId;
use vgas_cache::pool::{Counter, CounterSnapshot, PoolClient, TableLayout};
use vgas_cache::service::{Service, ServiceCounts};
use vgas_cache::{CacheError, region};
use vgas_job::Bootstrap;
use vgas_job::bootstrap::Place;
use vgas_rma::collective::{self, Collectives};
use vgas_rma::endpoint::{BarrierName, BarrierOutcome, Endpoint, EndpointSpec, Token, handler_index};
use vgas_rma::message::{Arrived, Payload, Source};
use vgas_rma::{Layout, NodeId, Peer, Rank, say};
use vgas_shm::{AtomicWord, Change};

/// What a rank is started with.
#[derive(Default)]
pub struct Builder {
    handlers: Vec<(u8, vgas_rma::endpoint::Handler)>,
    library_handlers: Vec<(u8, vgas_rma::endpoint::Handler)>,
    starting: Option<Starting>,
}

/// A rank of a job. Any thread may call anything; one exists per process.
///
/// Dropped without [`Runtime::finalize`], a rank that exits is missed by the others, and the job ends with an error.
pub struct Runtime {
    layout: Layout,
    rank: Rank,
    settings: Settings,
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    endpoint: Arc<Endpoint>,
    client: Client,
    /// All ranks, for the program, and for the runtime's own collectives.
    world: Arc<collective::Team>,
    internal_world: Arc<collective::Team>,
    network: Network,
    shares_machine: bool,
    local: Local,
    /// After `local`, which lies in it.
    pub(crate) addresses: Addresses,
    pub(crate) segments: Segments,
    has_met_survivors: Mutex<bool>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runtime of {} of {}", self.rank, self.layout.ranks())
    }
}

impl Builder {
    /// Adds a handler for active messages, at an index from 128 to 255, the same on all ranks. It runs while some thread
    /// of the rank polls or waits in the library, and must not block. It may answer a request, once, by its token.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use vgas::{Arrived, Rank, Runtime};
    ///
    /// const MEASURE: u8 = 128;
    /// const LENGTH: u8 = 129;
    ///
    /// fn main() -> vgas::Result<()> {
    ///     let (answers, sum) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    ///     let (counts, sums) = (answers.clone(), sum.clone());
    ///     let runtime = Runtime::builder()
    ///         .handler(MEASURE, |token, _, payload| {
    ///             if let Arrived::Medium(text) = payload {
    ///                 token.check(token.reply_short(LENGTH, &[text.len() as u32]));
    ///             }
    ///         })
    ///         .handler(LENGTH, move |_, arguments, _| {
    ///             sums.fetch_add(arguments.iter().sum::<u32>() as usize, Ordering::Relaxed);
    ///             counts.fetch_add(1, Ordering::Release);
    ///         })
    ///         .init()?;
    ///     let ranks = runtime.ranks();
    ///     for rank in (0..ranks).map(Rank) {
    ///         runtime.request(rank, MEASURE, &[], b"as long as this")?;
    ///     }
    ///     runtime.wait_until(|| answers.load(Ordering::Acquire) == ranks as usize)?;
    ///     assert_eq!(sum.load(Ordering::Relaxed), 15 * ranks as usize);
    ///     runtime.finalize()
    /// }
    /// ```
    ///
    /// The token, the arguments and the payload are those of one message: none of them outlives the call of its handler.
    ///
    /// ```compile_fail,E0521
    /// thread_local! { static KEPT: std::cell::RefCell<Vec<&'static vgas::Token<'static>>> = Default::default(); }
    /// let _ = vgas::Runtime::builder().handler(128, |token, _, _| KEPT.with_borrow_mut(|kept| kept.push(token)));
    /// ```
    /// ```compile_fail,E0521
    /// static KEPT: std::sync::Mutex<Vec<&'static [u8]>> = std::sync::Mutex::new(Vec::new());
    /// let _ = vgas::Runtime::builder().handler(128, |_, _, payload| KEPT.lock().unwrap().push(payload.medium_bytes()));
    /// ```
    pub fn handler(
        mut self,
        index: u8,
        handler: impl Fn(&Token<'_>, &[u32], Arrived<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.handlers.push((index, Box::new(handler)));
        self
    }

    /// Adds a handler of a library over this crate, at an index from 64 to 127, the same on all ranks. As [`Builder::handler`]
    /// otherwise.
    pub fn library_handler(
        mut self,
        index: u8,
        handler: impl Fn(&Token<'_>, &[u32], Arrived<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.library_handlers.push((index, Box::new(handler)));
        self
    }

    /// What a library over this crate says of a job whose ranks others have started, in place of the configuration.
    pub fn starting(mut self, starting: Starting) -> Self {
        self.starting = Some(starting);
        self
    }

    /// Joins the job that this process was started in. Collective.
    ///
    /// # Errors
    /// As [`Runtime::init`]; and, before the job is joined, for a handler's index that is not among those that its kind may have.
    pub fn init(self) -> Result<Runtime> {
        if let Some((index, _)) = self.handlers.iter().find(|(index, _)| *index < handler_index::USER) {
            return Err(Error::Usage(format!("handler index {index}: programs have 128 to 255")));
        }
        let of_libraries = handler_index::LIBRARY..handler_index::USER;
        if let Some((index, _)) =
            self.library_handlers.iter().find(|(index, _)| !of_libraries.contains(index))
        {
            return Err(Error::Usage(format!("handler index {index}: libraries have 64 to 127")));
        }
        let mut membership = crate::started::join(self.starting)?;
        let settings = Settings::from_map(&membership.settings)?;
        let rank = membership.rank().ok_or_else(|| Error::Usage("an agent is not a rank".into()))?;
        let shares_machine = membership.addresses.iter().all(|address| address.ip().is_loopback());
        let network = Network::open(&mut membership, &settings)?;
        let Place { layout, me } = membership.place().clone();
        let domain = membership.domain;
        let node = layout.node_of(rank);
        let agent = layout.agent_of(node);
        let spec = crate::layout::pool_spec(&settings, &layout, node)?;
        let table = domain.map(agent, region::TABLE)?;
        let frames = domain.map(agent, region::FRAMES)?;
        let local_rank = rank.0 - layout.ranks_of(node).start;
        let pool = PoolClient::attach(&spec, table, frames, local_rank).map_err(CacheError::from)?;
        let endpoint = Endpoint::new(EndpointSpec {
            layout: layout.clone(),
            me,
            domain: Some(domain),
            network: network.conduit(),
        })?;
        let handlers = Client::register(&endpoint)?;
        let collectives = Collectives::register(&endpoint)?;
        for (index, handler) in self.handlers.into_iter().chain(self.library_handlers) {
            endpoint.register_boxed(index, handler)?;
        }
        if settings.run.survive {
            let reports = membership.bootstrap.clone();
            // A daemon that is gone ends this process anyway.
            endpoint.survive(move |peer| drop(reports.report_broken(peer)))?;
        }
        endpoint.open();
        let options = ClientOptions {
            whole_page_put: settings.ablation.whole_page_put,
            // Two windows of each rank are to fit into half of the pool.
            window_pages_max: match settings.ablation.batch {
                true => u64::from(spec.frames / (4 * spec.local_ranks.max(1))).max(1),
                false => 1,
            },
            parts: crate::agent::parts(&settings),
            self_service: crate::agent::self_service(&settings),
            read_ahead: crate::agent::read_ahead(&settings, &spec),
        };
        let client = Client::new(endpoint.clone(), handlers, Arc::new(pool), layout.clone(), options);
        client.announce()?;
        let bootstrap = membership.bootstrap;
        Ok(Runtime {
            layout,
            rank,
            settings,
            bootstrap,
            endpoint,
            client,
            world: collectives.world()?,
            internal_world: collectives.internal_world()?,
            network,
            shares_machine,
            local: Local::default(),
            addresses: Addresses::default(),
            segments: Segments::default(),
            has_met_survivors: Mutex::new(false),
        })
    }
}

impl Runtime {
    /// Joins the job that this process was started in, by `vgas run` or by a starter of the site's: `srun`, `mpirun`, `mpiexec.hydra`,
    /// Flux (docs/STARTING.md). Collective. Use [`Runtime::builder`] to register
    /// active-message handlers.
    ///
    /// # Errors
    /// When the process was not started in a job, or twice.
    pub fn init() -> Result<Self> {
        Self::builder().init()
    }

    /// To register handlers before joining.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.layout.ranks()
    }

    /// The node this rank runs on.
    pub fn node(&self) -> NodeId {
        self.layout.node_of(self.rank)
    }

    /// Number of nodes of the job.
    pub fn nodes(&self) -> u32 {
        self.layout.nodes()
    }

    /// Whether all nodes are virtual nodes of this machine, so that they share its cores.
    pub fn shares_machine(&self) -> bool {
        self.shares_machine
    }

    /// Who runs where.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The effective settings of the job.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Returns the endpoint, for what this type does not wrap.
    ///
    /// # Safety
    /// It reaches whatever the job has, also after this runtime was given to a library. The caller sends no message to a
    /// handler, and writes into no pinned segment, that belong to a library other than its own or to the cache.
    pub unsafe fn raw_endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    pub(crate) fn local_state(&self) -> &Local {
        &self.local
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the cache client, for what this type does not wrap.
    ///
    /// # Safety
    /// The caller writes into no segment of a library other than its own, and changes neither the pool nor what the client
    /// knows of segments ([`Client::know`] and its like).
    pub unsafe fn raw_client(&self) -> &Client {
        &self.client
    }

    /// Returns the layout of the node's cache: its sizes of pages, and its frames.
    pub fn cache_layout(&self) -> &TableLayout {
        self.client.pool().layout()
    }

    /// Returns the most bytes that a message to any rank carries, and a request or answer of a service.
    pub fn medium_bytes_max(&self) -> usize {
        self.endpoint.medium_bytes_max()
    }

    /// Returns the bytes of a page of the first tiered segment.
    pub fn page_bytes(&self) -> usize {
        self.client.page_bytes()
    }

    pub(crate) fn world_team(&self) -> &Arc<collective::Team> {
        &self.world
    }

    /// Returns the engine of collectives, for what [`Team`](crate::Team) does not wrap.
    ///
    /// # Safety
    /// As of [`Runtime::raw_endpoint`], which it has.
    pub unsafe fn raw_collectives(&self) -> &Arc<Collectives> {
        self.world.collectives()
    }

    /// Returns the kind of segment that the user wants (`segment.kind`), for programs that leave it to their users. Tiered where
    /// the user leaves it to vgas.
    pub fn segment_kind(&self) -> Kind {
        match self.settings.segment.kind {
            Auto::Is(kind) => kind,
            Auto::Auto => Kind::Tiered,
        }
    }

    /// Bytes of a rank's tiered segment.
    pub fn tiered_bytes(&self, rank: Rank) -> u64 {
        self.client.bytes_of(rank)
    }

    /// Reads plain values. Complete when it returns.
    #[inline(always)]
    pub fn get<T: Pod>(&self, from: GlobalAddress, to: &mut [T]) -> Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(to);
        let (address, length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the slice is exclusively borrowed for the call.
        let done = unsafe {
            match from.kind {
                Kind::Tiered => self.client.get_cached(from.partition(), from.offset, address, length),
                Kind::Pinned => {
                    !self.client.is_local(address)
                        && self.endpoint.get_here(from.pinned_part(), from.offset, address, length)
                }
            }
        };
        if done { Ok(()) } else { self.get_slow(from, bytes) }
    }

    /// What is not a plain copy, out of the way of what is.
    #[cold]
    #[inline(never)]
    fn get_slow(&self, from: GlobalAddress, to: &mut [u8]) -> Result<()> {
        match from.kind {
            Kind::Tiered => {
                // SAFETY: the slice is exclusively borrowed for the call.
                unsafe { self.client.get_slow(from.partition(), from.offset, to.as_mut_ptr(), to.len()) }?;
            }
            Kind::Pinned if self.client.is_local(to.as_ptr()) => {
                let mut private = vec![0; to.len()];
                self.endpoint.get(from.pinned_part(), from.offset, &mut private)?;
                to.copy_from_slice(&private);
            }
            Kind::Pinned => self.endpoint.get(from.pinned_part(), from.offset, to)?,
        }
        Ok(())
    }

    /// Reads one plain value.
    #[inline]
    pub fn get_value<T: Pod>(&self, from: GlobalAddress) -> Result<T> {
        let mut value = [T::zeroed()];
        self.get(from, &mut value)?;
        Ok(value[0])
    }

    /// Writes plain values. When it returns, `from` is reusable and every later get anywhere sees them.
    #[inline(always)]
    pub fn put<T: Pod>(&self, to: GlobalAddress, from: &[T]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(from);
        let (address, length) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the slice is borrowed for the call.
        let done = unsafe {
            match to.kind {
                Kind::Tiered => self.client.put_cached(to.partition(), to.offset, address, length),
                Kind::Pinned => {
                    !self.client.is_local(address)
                        && self.endpoint.put_here(to.pinned_part(), to.offset, address, length)
                }
            }
        };
        if done { Ok(()) } else { self.put_slow(to, bytes) }
    }

    /// As [`Runtime::get_slow`].
    #[cold]
    #[inline(never)]
    fn put_slow(&self, to: GlobalAddress, from: &[u8]) -> Result<()> {
        match to.kind {
            Kind::Tiered => {
                // SAFETY: the slice is borrowed for the call.
                unsafe { self.client.put_slow(to.partition(), to.offset, from.as_ptr(), from.len()) }?;
            }
            Kind::Pinned => self.endpoint.put(to.pinned_part(), to.offset, &self.private(from))?,
        }
        Ok(())
    }

    /// Writes one plain value.
    #[inline]
    pub fn put_value<T: Pod>(&self, to: GlobalAddress, value: T) -> Result<()> {
        self.put(to, &[value])
    }

    /// Updates a word atomically, and yields what it was; the word is an `u32`, `i32`, `u64` or `i64`, in the order of bytes of
    /// the machine, and the offset a multiple of its length. When it returns every rank sees the change. Any thread may call it;
    /// no rank need do anything for it.
    ///
    /// A word of a *tiered* segment is updated where its page is: in this node's DRAM if this node has the page to write,
    /// otherwise by the agent of its home, in one message there and one back. It is atomic with every other update of the word,
    /// with puts and gets of the whole word by whatever rank, and with atomic instructions of its owner through pointers. Of a
    /// relaxed segment, the puts of this rank that wait for its barrier travel first.
    ///
    /// A word of a *pinned* segment is changed in no other way between two barriers (see `vgas_rma::endpoint`, "Atomic
    /// updates").
    ///
    /// # Errors
    /// For an offset that is not a multiple of the word's length or lies behind the end, for a page that cannot be read or a
    /// segment that can only be read, and when a peer is lost.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(runtime: &vgas::Runtime, best: vgas::GlobalAddress) -> vgas::Result<()> {
    /// use vgas::Change;
    /// let before: i64 = runtime.update(best, Change::Max(42))?;
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn update<T: AtomicWord>(&self, at: GlobalAddress, change: Change<T>) -> Result<T> {
        let was = match at.kind {
            Kind::Tiered => self.client.update(at.partition(), at.offset, change.into())?,
            Kind::Pinned => self.endpoint.update(at.pinned_part(), at.offset, change)?,
        };
        Ok(T::of_bits(was))
    }

    /// Makes many updates, each atomic by itself, and yields what the words were, in the same order. Those of tiered words
    /// travel together, one message for each home; those of one word are made in this order. Otherwise as
    /// [`Runtime::update`].
    ///
    /// # Errors
    /// As [`Runtime::update`], of one that failed; others may have been made.
    pub fn update_many<T: AtomicWord>(&self, updates: &[(GlobalAddress, Change<T>)]) -> Result<Vec<T>> {
        let mut found = Vec::with_capacity(updates.len());
        // Hits are made here; nothing is made of a list with a wrong offset.
        let is_plain = |at: &GlobalAddress| {
            at.kind == Kind::Tiered && self.client.has_plain_word(at.partition(), at.offset, T::WORD)
        };
        if updates.iter().all(|(at, _)| is_plain(at)) {
            for (at, change) in updates {
                match self.client.update_cached(at.partition(), at.offset, (*change).into()) {
                    Some(was) => found.push(T::of_bits(was)),
                    None => break,
                }
            }
        }
        if found.len() < updates.len() {
            found.extend(self.update_others(&updates[found.len()..])?);
        }
        Ok(found)
    }

    /// [`Runtime::update_many`], of any words.
    #[cold]
    #[inline(never)]
    fn update_others<T: AtomicWord>(&self, updates: &[(GlobalAddress, Change<T>)]) -> Result<Vec<T>> {
        let tiered = |(at, _): &&(GlobalAddress, _)| at.kind == Kind::Tiered;
        let to_home = |&(at, change): &(GlobalAddress, Change<T>)| SegmentUpdate {
            of: at.partition(),
            offset: at.offset,
            update: change.into(),
        };
        let segments: Vec<SegmentUpdate> = updates.iter().filter(tiered).map(to_home).collect();
        let mut were = vec![0; segments.len()];
        self.client.update_many(&segments, &mut were)?;
        let mut were = were.into_iter();
        updates
            .iter()
            .map(|&(at, change)| match at.kind {
                Kind::Tiered => Ok(T::of_bits(were.next().unwrap_or_default())),
                Kind::Pinned => self.update(at, change),
            })
            .collect()
    }

    /// [`Runtime::update`] that adds to a word of eight bytes; sums wrap around.
    ///
    /// # Errors
    /// As [`Runtime::update`].
    #[inline]
    pub fn fetch_add(&self, at: GlobalAddress, value: u64) -> Result<u64> {
        self.update(at, Change::Add(value))
    }

    /// [`Runtime::update`] that replaces a word of eight bytes if it is `expected`: that it was says so.
    ///
    /// # Errors
    /// As [`Runtime::update`].
    #[inline]
    pub fn compare_swap(&self, at: GlobalAddress, expected: u64, desired: u64) -> Result<u64> {
        self.update(at, Change::CompareSwap { expected, desired })
    }

    /// Calls a service of a node and waits for its answer; active messages are served meanwhile. It runs in the node's agent,
    /// whatever the ranks there do ([`crate::service`]).
    ///
    /// # Errors
    /// When the daemons do not have the service, or have another version of it, when request or answer do not fit a message
    /// ([`Runtime::medium_bytes_max`]: some 64 KiB, less over ibv), and when a peer is lost.
    pub fn call<S: Service>(&self, node: NodeId, request: &S::Request) -> Result<S::Answer> {
        Ok(self.client.call::<S>(node, request)?)
    }

    /// Starts a call of a service, for who has something else to do meanwhile: [`PendingCall::test`](crate::service::PendingCall::test)
    /// lets it go on.
    ///
    /// # Errors
    /// As [`Runtime::call`].
    pub fn start_call<S: Service>(
        &self,
        node: NodeId,
        request: &S::Request,
    ) -> Result<crate::service::PendingCall<'_, S::Answer>> {
        Ok(self.client.start_call::<S>(node, request)?)
    }

    /// Tells a service of a node something, without waiting; in the order of this rank's calls of that node. What it answers goes nowhere.
    ///
    /// # Errors
    /// When it does not fit a message, and when a peer is lost.
    pub fn tell<S: Service>(&self, node: NodeId, request: &S::Request) -> Result<()> {
        Ok(self.client.tell::<S>(node, request)?)
    }

    /// What a node's service was asked and has done. Not collective.
    ///
    /// # Errors
    /// As [`Runtime::call`].
    pub fn service_counts<S: Service>(&self, node: NodeId) -> Result<ServiceCounts> {
        Ok(self.client.service_counts::<S>(node)?)
    }

    /// Asks for tiered bytes to be brought to this node when convenient: a hint.
    pub fn prefetch(&self, from: GlobalAddress, bytes: u64) -> Result<()> {
        match from.kind {
            Kind::Tiered => Ok(self.client.prefetch(from.partition(), from.offset, bytes)?),
            Kind::Pinned => Ok(()),
        }
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
        Ok(self.endpoint.request(self.peer(to)?, handler, arguments, payload)?)
    }

    /// Runs the handlers of messages that have arrived.
    pub fn poll(&self) -> Result<()> {
        self.endpoint.poll()?;
        Ok(())
    }

    /// Waits for a condition that handlers bring about, serving messages meanwhile; sleeps when nothing arrives.
    pub fn wait_until(&self, condition: impl FnMut() -> bool) -> Result<()> {
        self.endpoint.wait_until(None, condition)?;
        Ok(())
    }

    /// Waits until all ranks have come here. Puts that have returned before are visible after, also those into relaxed
    /// segments. Collective.
    pub fn barrier(&self) -> Result<()> {
        self.client.flush_relaxed()?;
        Ok(self.endpoint.barrier()?)
    }

    /// A barrier to which every rank brings up to [`CARRIED_BYTES_MAX`](vgas_rma::conduit::smp::CARRIED_BYTES_MAX) (1024) bytes, and
    /// from which all take what all have brought, by rank; for little more than a barrier costs. Collective, like
    /// [`Runtime::barrier`], with what that says of puts.
    ///
    /// # Errors
    /// For more bytes, and when other ranks are at another kind of barrier.
    pub fn barrier_with(&self, brought: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.client.flush_relaxed()?;
        Ok(self.endpoint.barrier_with(&self.private(brought))?)
    }

    /// First half of a split-phase barrier.
    pub fn barrier_notify(&self, name: BarrierName) -> Result<()> {
        self.client.flush_relaxed()?;
        Ok(self.endpoint.barrier_notify(name)?)
    }

    /// Second half; says whether the names agreed.
    pub fn barrier_wait(&self, name: BarrierName) -> Result<BarrierOutcome> {
        Ok(self.endpoint.barrier_wait(name)?)
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

    /// Makes all named segments durable, as one: everything put before is found by a later job when it returns. Collective.
    ///
    /// A job that is killed meanwhile, in whole or in part, is reopened at this checkpoint on all ranks, or at the one before
    /// on all ranks ([`Runtime::reopened`] says which): each rank first makes its part durable beside the checkpoint before,
    /// and only when all have is that one given up. Other threads may put meanwhile; a put to a page that has changed since
    /// the checkpoint before may then wait for the end of this one.
    ///
    /// # Errors
    /// The same on all ranks, with the cause of the first that has one. The segments then go on from the checkpoint before,
    /// unless the error says that one of them takes no more writes.
    pub fn checkpoint(&self) -> Result<()> {
        self.barrier()?;
        // Pages first, on all ranks: later steps may make a write wait for the last one, so that no page may have to
        // move for a checkpoint any more.
        let all = self.segments.tiered();
        let each = |all: &[SegmentId], step: &dyn Fn(SegmentId) -> std::result::Result<(), CacheError>| {
            // All of them, also after one has failed.
            let results: Vec<_> = all.iter().map(|&segment| step(segment)).collect();
            results.into_iter().collect()
        };
        let identity = self.agreed(each(&all, &|segment| self.client.clean(segment)))?;
        // The one that is opened first comes last: if it has this checkpoint everywhere, then all others have.
        let (last, others): (Vec<_>, Vec<_>) =
            all.iter().partition(|&&segment| self.segments.opened_first() == Some(segment));
        let prepare = |some: &[SegmentId]| {
            self.agreed(each(some, &|segment| {
                self.client.prepare(segment, identity, &self.segments.companions_of(segment))
            }))
        };
        let prepared = match self.segments.named_count() {
            0 | 1 => prepare(&all),
            _ => prepare(&others).and_then(|_| prepare(&last)),
        };
        if let Err(error) = prepared {
            // Whoever could prepare must not keep what not everybody has.
            self.agreed(each(&all, &|segment| self.client.conclude(segment, false)))?;
            return Err(error);
        }
        self.agreed(each(&all, &|segment| self.client.conclude(segment, true)))?;
        self.segments.are_at(identity);
        Ok(())
    }

    /// Ends a step that each rank has taken by itself: an error when it has failed anywhere, otherwise a number that rank 0
    /// has drawn. Collective.
    fn agreed(&self, own: Result<(), CacheError>) -> Result<u64> {
        let drawn = vgas_rma::key::fresh_random()?;
        let said = own.as_ref().err().map(in_short).unwrap_or_default();
        let mut bytes = drawn[..8].to_vec();
        bytes.extend(said.as_bytes());
        let all = self.internal_world.all_gatherv(&bytes)?;
        own?;
        let failed = all.iter().position(|said| said.len() != 8);
        if let Some((rank, said)) = failed.and_then(|rank| Some((rank, all[rank].get(8..)?))) {
            return Err(Error::Usage(format!("{}: {}", Rank(rank as u32), String::from_utf8_lossy(said))));
        }
        let number = all.first().and_then(|said| said.first_chunk::<8>());
        // 0 is the identity of checkpoints of one segment alone.
        Ok(number.map_or(1, |bytes| u64::from_le_bytes(*bytes).max(1)))
    }

    /// What has been counted since the start, on the whole job. Collective.
    pub fn statistics(&self) -> Result<Statistics> {
        let mut sum = CounterSnapshot::default();
        for (rank, agent) in self.all_counters()? {
            sum.add(&rank);
            agent.iter().for_each(|agent| sum.add(agent));
        }
        Ok(sum.into())
    }

    /// What this rank has counted since the start: hits, what it asked for, and what it has read from its node's NVMe by itself.
    /// Any thread may call it at any time.
    pub fn rank_statistics(&self) -> Statistics {
        self.client.counters().into()
    }

    /// What the agent of this rank's node has counted since the start: how misses were answered that needed it, messages, NVMe.
    /// Any thread may call it at any time.
    pub fn node_statistics(&self) -> Statistics {
        self.client.node_counters().into()
    }

    /// Of every rank, and, from the first rank of a node, of its agent. Collective.
    fn all_counters(&self) -> Result<Vec<(CounterSnapshot, Option<CounterSnapshot>)>> {
        let words = |counters: CounterSnapshot| counters.iter().map(|(_, value)| value).collect::<Vec<_>>();
        let mut own = words(self.client.counters());
        if self.layout.ranks_of(self.node()).start == self.rank.0 {
            own.extend(words(self.client.node_counters()));
        }
        let bytes: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
        let counters = |words: &[[u8; 8]]| {
            (words.len() == Counter::COUNT)
                .then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect::<CounterSnapshot>())
        };
        let all = self.internal_world.all_gatherv(&bytes)?.into_iter().map(|bytes| {
            let (words, _) = bytes.as_chunks::<8>();
            let (rank, agent) = words.split_at(words.len().min(Counter::COUNT));
            (counters(rank).unwrap_or_default(), counters(agent))
        });
        Ok(all.collect())
    }

    /// Prints the job's counters on rank 0 as the settings say. Collective.
    fn print_statistics(&self) -> Result<()> {
        if self.settings.stats.print == StatisticsChoice::Off {
            return Ok(());
        }
        let all = self.all_counters()?;
        if self.rank.0 != 0 {
            return Ok(());
        }
        let mut sum = CounterSnapshot::default();
        let mut text = String::new();
        let is_each = self.settings.stats.print == StatisticsChoice::Each;
        let mut count = |who: String, counters: &CounterSnapshot| {
            sum.add(counters);
            if is_each {
                text += &format!("{who}:\n{}", Statistics::from(counters.clone()));
            }
        };
        for (rank, (own, agent)) in (0..).map(Rank).zip(&all) {
            count(rank.to_string(), own);
            if let Some(agent) = agent {
                count(format!("the agent of {}", self.layout.node_of(rank)), agent);
            }
        }
        if is_each {
            text += "all:\n";
        }
        say::text(format_args!("{text}{}", Statistics::from(sum)));
        Ok(())
    }

    /// Ends this rank's part of the job. Collective; blocks until all ranks have called it. Prints the job's counters on
    /// rank 0 as `stats.print` says.
    pub fn finalize(self) -> Result<()> {
        self.leave()
    }

    /// [`Runtime::finalize`] for those who cannot give the runtime up, because it lives as long as the process (the C
    /// interface): afterwards nothing of it may be used.
    pub fn leave(&self) -> Result<()> {
        match self.barrier().and_then(|()| self.print_statistics()) {
            Err(_) if self.endpoint.has_lost() => self.meet_survivors()?,
            met => met?,
        }
        // What handles stood for that the program has forgotten may be about its segment.
        self.endpoint.end_background();
        let have_met = *self.has_met_survivors.lock().unwrap_or_else(PoisonError::into_inner);
        match self.local.close() {
            // In jobs that others have started, agents may have gone when all ranks have met.
            Err(_) if have_met => {}
            closed => closed?,
        }
        self.client.set_local(Vec::new());
        self.endpoint.set_absent(std::ptr::null(), 0);
        if !have_met {
            self.bootstrap.declare_end()?;
        }
        self.bootstrap.depart();
        self.network.close();
        Ok(())
    }

    /// Says that this rank is about to [leave](Runtime::leave) a job that has lost a node, and answers messages until all that are left
    /// have said so: a loss does not end all ranks' waits at the same moment, and who has not heard of it yet may want something of this
    /// rank. All of this rank still works meanwhile, and, except for its agent, when this returns; nothing happens the second time.
    /// [`Runtime::leave`] calls it; a library that ends something of its own before calls it first.
    ///
    /// # Errors
    /// When the job is being ended, and when this rank cannot wait for messages any more.
    pub fn meet_survivors(&self) -> Result<()> {
        let mut has_met_survivors = self.has_met_survivors.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_met_survivors {
            return Ok(());
        }
        let have_met = AtomicBool::new(false);
        let meet = || {
            let met = self.bootstrap.declare_end();
            have_met.store(true, Ordering::Release);
            self.endpoint.notify_local();
            met
        };
        let serve = || self.endpoint.wait_until(None, || have_met.load(Ordering::Acquire));
        std::thread::scope(|scope| {
            let meeting = std::thread::Builder::new().name("vgas-leaves".into()).spawn_scoped(scope, meet);
            // Without a thread, nobody is answered meanwhile.
            let Ok(meeting) = meeting else { return meet() };
            let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
            // Who asks this rank for something would wait for ever, and it for them.
            let complaint = match &served {
                Ok(Ok(_)) => None,
                Ok(Err(why)) => Some(why.to_string()),
                Err(_) => Some("a handler has panicked while this rank was leaving".to_owned()),
            };
            complaint.into_iter().for_each(|why| drop(self.bootstrap.complain(&why, 1)));
            let met = meeting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            served.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(drop).and(met)
        })?;
        *has_met_survivors = true;
        Ok(())
    }

    /// The nodes that are lost, in the order in which they were, where the job goes on without them (setting `run.survive`).
    /// What is wanted of one ends with [`RmaError::PeerLost`](vgas_rma::RmaError::PeerLost), and so do barriers and collectives of all
    /// ranks, from then on.
    pub fn lost_nodes(&self) -> Vec<NodeId> {
        self.endpoint.lost_nodes()
    }

    /// Whether a rank is of a node that is lost.
    #[inline]
    pub fn is_lost(&self, rank: Rank) -> bool {
        self.endpoint.is_gone(self.layout.peer_of_rank(rank))
    }

    /// Ends the whole job with this line and exit status.
    pub fn abort(&self, message: &str, code: u8) -> Result<()> {
        Ok(self.bootstrap.abort(message, code)?)
    }

    /// Like [`Runtime::abort`], for what was only seen of others: see [`Bootstrap::complain`].
    pub fn complain(&self, message: &str, code: u8) -> Result<()> {
        Ok(self.bootstrap.complain(message, code)?)
    }

    /// Ends the whole job with this exit status, whatever the other ranks do: see [`Bootstrap::exit`]. The caller exits
    /// with the same status when it returns, an error or not.
    pub fn exit(&self, code: u8) -> Result<()> {
        self.bootstrap.exit(code)?;
        self.network.close();
        Ok(())
    }

    fn peer(&self, rank: Rank) -> Result<Peer> {
        if rank.0 < self.ranks() {
            Ok(self.layout.peer_of_rank(rank))
        } else {
            Err(Error::Usage(format!("{rank} of {} ranks", self.ranks())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a handler's index that belongs to somebody else is refused, before anything else happens.
    #[test]
    fn handlers_have_indices_of_their_own() {
        let handler = |_: &Token<'_>, _: &[u32], _: Arrived<'_>| {};
        let refused = |builder: Builder| match builder.init() {
            Err(Error::Usage(what)) => what,
            other => panic!("{other:?}"),
        };
        for index in [0, 15, 31, 32, 63, 64, 112, 127] {
            let what = refused(Runtime::builder().handler(index, handler));
            assert_eq!(what, format!("handler index {index}: programs have 128 to 255"));
        }
        for index in [0, 15, 31, 32, 63, 128, 255] {
            let what = refused(Runtime::builder().library_handler(index, handler));
            assert_eq!(what, format!("handler index {index}: libraries have 64 to 127"));
        }
    }
}
