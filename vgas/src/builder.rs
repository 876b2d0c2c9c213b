//! Joining a job.

use crate::config::Settings;
use crate::error::{Error, Result};
use crate::network::Network;
use crate::runtime::{RankState, Runtime};
use crate::segment::{Addresses, SegmentTable};
use crate::started::Starting;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use vgas_cache::client::{Client, ClientOptions};
use vgas_cache::pool::PoolClient;
use vgas_cache::{CacheError, region};
use vgas_job::bootstrap::Identity;
use vgas_rma::collective::Collectives;
use vgas_rma::endpoint::{Endpoint, EndpointSpec, Handler, Token, handler_index};
use vgas_rma::message::Arrived;

/// Options of a rank's start.
#[derive(Default)]
pub struct Builder {
    handlers: Vec<(u8, Handler)>,
    library_handlers: Vec<(u8, Handler)>,
    starting: Option<Starting>,
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

    /// Sets a library's options for joining an externally started job, in place of the configuration.
    pub fn starting(mut self, starting: Starting) -> Self {
        self.starting = Some(starting);
        self
    }

    /// Joins the job that this process was started in. Collective.
    ///
    /// # Errors
    /// As [`Runtime::init`]; and, before the job is joined, for a handler's index that is not among those that its kind may have.
    pub fn init(self) -> Result<Runtime> {
        static JOINED: Mutex<Weak<RankState>> = Mutex::new(Weak::new());
        let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = joined.upgrade() {
            return match self.handlers.is_empty() && self.library_handlers.is_empty() {
                true => Ok(state.into()),
                false => Err(Error::Usage(
                    "this process has joined its job already: give handlers to the first Builder::init"
                        .into(),
                )),
            };
        }
        let runtime = self.join()?;
        *joined = Arc::downgrade(runtime.state());
        Ok(runtime)
    }

    fn join(self) -> Result<Runtime> {
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
        let Identity { layout, me } = membership.place().clone();
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
        let state = RankState {
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
            segments: SegmentTable::default(),
            addresses: Addresses::default(),
            ending: Mutex::default(),
            meeting: Mutex::default(),
        };
        Ok(Arc::new(state).into())
    }
}

impl Runtime {
    /// Joins the job that this process was started in, by `vgas run` or by a starter of the site's: `srun`, `mpirun`, `mpiexec.hydra`,
    /// Flux (docs/STARTING.md). Collective. Called again while the process has a handle, it returns the same runtime. Use
    /// [`Runtime::builder`] to register active-message handlers.
    ///
    /// # Errors
    /// If the process was not started in a job, or has left it.
    pub fn init() -> Result<Self> {
        Self::builder().init()
    }

    /// Prepares to join with handlers of active messages.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a handler's index that is already taken is refused, before anything else happens.
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
