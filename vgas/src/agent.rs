//! The agent of a node as the daemon runs it.

use crate::address::Kind;
use crate::config::{Auto, DeviceChoice, OrNone, Settings};
use crate::error::{Error, Result};
use crate::network::Network;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use vgas_cache::agent::driver;
use vgas_cache::agent::{Agent, AgentOptions};
use vgas_cache::parts::Limits;
use vgas_cache::pool::{Fences, PoolAgent};
use vgas_cache::protocol::{InPlaceService, home};
use vgas_cache::read_ahead::ReadAheadSettings;
use vgas_cache::service::Services;
use vgas_cache::{CacheError, region, replacement};
use vgas_job::bootstrap::Identity;
use vgas_job::{Membership, NodeService, ServiceError, Stop};
use vgas_nvm::device::paced::Pace;
use vgas_nvm::{Volume, VolumeSpec};
use vgas_rma::Layout;
use vgas_rma::domain::RegionSpec;
use vgas_rma::endpoint::{Endpoint, EndpointSpec};

/// Delay after another node's end within which this node's agent is told that the job has ended. Meanwhile it
/// serves nothing; an agent leaves only when all ranks of the job have finished.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// Gets that are longer are worth a page: at 16 KiB, reading costs a device little less than reading four times as much.
const PART_BYTES_MAX: u64 = 16 << 10;

/// Serves the tiered segments of a node, and the pinned segments of its ranks to other nodes.
#[derive(Default)]
pub struct AgentService {
    services: Services,
    running: Option<Running>,
}

struct Running {
    shards: Vec<Agent>,
    endpoint: Arc<Endpoint>,
    network: Network,
}

impl AgentService {
    /// With services of libraries.
    pub fn with(services: Services) -> Self {
        Self { services, running: None }
    }

    fn open(mut membership: Membership, services: Services) -> Result<Running> {
        let settings = Settings::from_map(&membership.settings)?;
        let network = Network::open(&mut membership, &settings)?;
        let Identity { layout, me } = membership.place().clone();
        let domain = membership.domain;
        let node = layout.node_of_peer(me);
        let spec = crate::layout::pool_spec(&settings, &layout, node)?;
        let table = domain.map(me, region::TABLE)?;
        let frames = domain.map(me, region::FRAMES)?;
        let pool =
            PoolAgent::create(&spec, table, frames.clone(), Fences::Detect).map_err(CacheError::from)?;
        if settings.cache.prefault {
            // No rank computes yet: all cores may do it.
            frames.prepare_all();
        }
        let mut volume = VolumeSpec::new(settings.nvm.directory_path(), spec.page_bytes);
        volume.device = match settings.nvm.device {
            DeviceChoice::Auto => vgas_nvm::DeviceChoice::Auto,
            DeviceChoice::Uring => vgas_nvm::DeviceChoice::Uring,
            DeviceChoice::Blocking => vgas_nvm::DeviceChoice::Blocking,
            DeviceChoice::Memory => {
                vgas_nvm::DeviceChoice::Memory(vgas_nvm::device::memory::MemoryDisk::new())
            }
        };
        // A job of pinned segments needs no NVMe, unless a rank attaches a tiered one all the same.
        volume.on_demand = settings.segment.kind == Auto::Is(Kind::Pinned);
        volume.frames = Some(frames);
        volume.queue_depth = settings.nvm.queue_depth;
        if let OrNone::Some(rates) = settings.cluster.nvm {
            volume.pace = Some(Pace::new(rates));
        }
        volume.checksums = settings.ablation.checksums;
        volume.parts = parts(&settings).bytes_max > 0;
        // Once a job, and only if pages go there.
        let is_first = node.0 == 0 && !volume.on_demand && settings.nvm.device != DeviceChoice::Memory;
        if is_first && crate::info::is_in_memory(&volume.directory) {
            tracing::warn!(
                "nvm.directory {} is memory, not a disk: what leaves the cache stays in memory; set nvm.directory to a folder on \
                 ext4 or XFS on an NVMe drive",
                volume.directory.display()
            );
        }
        let volume = Volume::open(volume).map_err(CacheError::from)?;
        let mut volumes = vec![volume];
        for _ in 1..spec.agent_threads {
            volumes.push(volumes[0].another().map_err(CacheError::from)?);
        }
        // An invalid first segment is refused here.
        let mut first = Some(options(&settings, &spec, node)?);
        let options = || first.take().or_else(|| options(&settings, &spec, node).ok());
        let mut shards = Agent::in_shards(layout.clone(), node, pool, volumes, options)?;
        if let Some(first) = shards.first_mut() {
            first.set_services(services);
        }
        let endpoint =
            Endpoint::new(EndpointSpec { layout, me, domain: Some(domain), network: network.conduit() })?;
        shards.first().map_or(Ok(()), |agent| driver::register(agent, &endpoint))?;
        if settings.run.survive {
            let reports = membership.bootstrap.clone();
            // A launcher that is gone ends the daemon anyway.
            endpoint.survive(move |peer| drop(reports.report_broken(peer)))?;
            let hears = Arc::downgrade(&endpoint);
            membership.bootstrap.on_lost(Box::new(move |node| {
                if let Some(endpoint) = hears.upgrade() {
                    endpoint.lose_node(node);
                }
            }));
        }
        endpoint.serve_segments()?;
        endpoint.open();
        Ok(Running { shards, endpoint, network })
    }
}

fn options(
    settings: &Settings,
    spec: &vgas_cache::pool::PoolSpec,
    node: vgas_rma::NodeId,
) -> Result<AgentOptions> {
    let ablation = &settings.ablation;
    let name = crate::config::Value::text(&ablation.replacement);
    let replacement = replacement::NAMES.into_iter().find(|known| *known == name);
    let replacement =
        replacement.ok_or_else(|| Error::Usage(format!("no replacement policy is called {name}")))?;
    Ok(AgentOptions {
        home: home::Parameters {
            cooperative: ablation.cooperative,
            in_place: ablation.in_place.then_some(InPlaceService::USUAL),
            ..home::Parameters::of(node)
        },
        replacement,
        read_ahead: read_ahead(settings, spec),
        batch: ablation.batch,
        parts: parts(settings),
        self_service: self_service(settings),
        read_nearest: ablation.read_nearest,
    })
}

/// Returns the options of recognising scans, if they are recognised; for ranks and agents alike.
pub(crate) fn read_ahead(
    settings: &Settings,
    spec: &vgas_cache::pool::PoolSpec,
) -> Option<ReadAheadSettings> {
    settings.ablation.read_ahead.then_some(ReadAheadSettings {
        page_bytes: spec.page_bytes,
        pool_frames: spec.frames,
        window_bytes_max: ReadAheadSettings::WINDOW_BYTES_MAX,
    })
}

/// Returns the largest gets that read parts of pages; for ranks and agents alike.
pub(crate) fn parts(settings: &Settings) -> Limits {
    Limits::new(if settings.ablation.parts { PART_BYTES_MAX } else { 0 })
}

/// Decides for the job whether ranks read pages without copies from NVMe themselves, which they do by
/// io_uring. Not for a paced drive, whose pace is the agent's, and not if the settings name a device without
/// io_uring: a sandbox may end every process that tries to set up a ring.
pub(crate) fn self_service(settings: &Settings) -> bool {
    settings.ablation.self_service
        && settings.cluster.nvm == OrNone::None
        && settings.nvm.device.may_use_uring()
}

impl NodeService for AgentService {
    fn start(&mut self, membership: Membership) -> Result<(), ServiceError> {
        self.running = Some(Self::open(membership, std::mem::take(&mut self.services))?);
        Ok(())
    }

    fn regions(
        &self,
        settings: &BTreeMap<String, String>,
        layout: &Layout,
    ) -> Result<Vec<RegionSpec>, ServiceError> {
        Ok(crate::layout::regions(&Settings::from_map(settings)?, layout)?)
    }

    fn run(&mut self, stop: &Stop) -> Result<(), ServiceError> {
        let Some(Running { shards, endpoint, network }) = &mut self.running else { return Ok(()) };
        match driver::run(shards, endpoint, stop.descriptor(), || stop.requested()) {
            Ok(()) => {}
            // Another agent was told of the job's end before: pending messages to it, pages that were read
            // ahead, are not waited for.
            Err(CacheError::Rma(error)) if error.peer_has_left() && stop.requested_within(TOLD_WITHIN)? => {}
            Err(CacheError::Rma(error)) => return Err(error.into()),
            Err(error) => return Err(error.into()),
        }
        network.close();
        Ok(())
    }
}
