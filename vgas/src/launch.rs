//! Starting a job, and being the daemon of one of its nodes: the settings turned into what the job layer needs.

use crate::config::{Auto, Cable, OrNone, Settings, Size, Value};
use crate::error::{Error, Result};
use crate::service::Services;
use std::ffi::OsString;
use std::time::Duration;
pub use vgas_job::allocation::{Allocation, Around};
pub use vgas_job::cluster::{Group, holds_back};
use vgas_job::{JobStatus, RunSpec, Starter, cluster};
use vgas_rma::RmaError;
use vgas_rma::conduit::hook::Switch;
use vgas_rma::conduit::ofi;

/// A job to be started.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// The program of every rank.
    pub program: OsString,
    /// Name of the program (its first word, `argv[0]`); the same as `program` if none.
    pub name: Option<OsString>,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of (virtual) nodes; with hosts, their number.
    pub nodes: u32,
    /// One host a node; empty for this machine.
    pub hosts: Vec<String>,
    /// The hosts of a batch system's, in the place of `nodes` and `hosts`.
    pub allocation: Option<Allocation>,
    /// Variables for the ranks, in addition to the environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The command that is to call [`node_main`] or [`crate::service::serve_node`], on this machine and on every host; this program with the argument
    /// `node` when empty.
    pub daemon: Vec<OsString>,
    /// The effective settings, with `cache.size` resolved.
    pub settings: Settings,
}

/// Runs a job to its end. Blocks; signals are forwarded to the ranks.
///
/// The node daemons are started with [`JobRequest::daemon`].
///
/// # Errors
/// If the job could not be started. A job that failed later is a status, not an error.
pub fn run(request: JobRequest) -> Result<JobStatus> {
    let mut settings = request.settings;
    let mut spec = RunSpec::new(request.program, request.ranks);
    spec.name = request.name;
    spec.arguments = request.arguments;
    spec.nodes = request.nodes;
    spec.hosts = request.hosts;
    spec.environment = request.environment;
    spec.conduit = settings.conduit.provider().name.into();
    spec.ring_bytes = settings.smp.ring.bytes();
    spec.label = settings.run.label;
    spec.survive = settings.run.survive;
    spec.connect_timeout = Duration::from_millis(settings.run.start_timeout_ms.into());
    spec.starter = Starter::Ssh((&settings.run.ssh).into());
    if let Some(allocation) = &request.allocation
        && let Some(placement) = allocation.place(request.ranks)
    {
        spec.starter = allocation.starter((&settings.run.ssh).into(), (&settings.run.srun).into());
        spec.nodes = placement.hosts.len() as u32;
        (spec.hosts, spec.placement) = (placement.hosts, placement.ranks);
    }
    spec.pmi = settings.run.serve_pmi;
    if let Auto::Is(range) = &settings.tcp.port_range {
        spec.ports = Some(range.0.clone());
    }
    if let Auto::Is(interface) = &settings.tcp.interface {
        spec.interface = Some(interface.text());
    }
    if request.daemon.is_empty() && std::env::current_exe().is_err() {
        return Err(RmaError::Refused(
            "this program cannot be found without /proc: `mount -t proc proc /proc`".into(),
        )
        .into());
    }
    if !request.daemon.is_empty() {
        spec.daemon = request.daemon;
    }
    let layout = spec.layout()?;
    if spec.conduit == ofi::NAME && layout.nodes() > 1 {
        spec.environment.extend(without_registration_cache(&spec.environment, std::env::vars_os()));
    }
    own_parts(&mut spec, &mut settings)?;
    if settings.cluster.link != OrNone::None {
        spec.common_bytes = Switch::common_bytes(layout.nodes());
    }
    spec.regions = crate::layout::regions(&settings, &layout)?;
    spec.settings = settings.to_map();
    Ok(vgas_job::run(&spec)?)
}

/// Moves the resources of virtual nodes into the specification. The part of a configured link that the kernel
/// does not emulate stays in the settings.
fn own_parts(spec: &mut RunSpec, settings: &mut Settings) -> Result<()> {
    let cluster = &mut settings.cluster;
    if let (false, Some((name, what))) = (spec.hosts.is_empty(), cluster.of_virtual_nodes()) {
        return Err(Error::Usage(format!("{name} is for virtual nodes: hosts have {what} of their own")));
    }
    spec.own.memory_bytes = cluster.memory.value().map(Size::bytes);
    if cluster.netns {
        let mut held_back = cluster::Cable::default();
        if let Some(link) = cluster.link.value()
            && holds_back()?
        {
            held_back.bits_per_second = link.bits_per_second;
            cluster.link = match link.delay_micros {
                0 => OrNone::None,
                _ => OrNone::Some(Cable { bits_per_second: None, ..link }),
            };
        }
        spec.own.network = Some(held_back);
    }
    Ok(())
}

/// Returns the environment that turns libfabric's cache of registered memory off in ranks, unless the user
/// has set it. An MPI in the same process has none then, either.
fn without_registration_cache(
    given: &[(OsString, OsString)],
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Option<(OsString, OsString)> {
    let is_about_it = |name: &OsString| name.as_encoded_bytes().starts_with(b"FI_MR_CACHE_");
    let said = given.iter().any(|(name, _)| is_about_it(name)) || { environment }
        .any(|(name, _)| is_about_it(&name));
    (!said).then(|| ("FI_MR_CACHE_MONITOR".into(), "disabled".into()))
}

/// Is the daemon of a node until the job ends; returns its exit status.
pub fn node_main() -> Result<u8> {
    crate::service::node_main_with(Services::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a user's setting of the cache is left alone.
    #[test]
    fn the_registration_cache_is_off_where_nobody_says_anything() {
        let with = |name: &str| vec![(OsString::from(name), OsString::from("1"))];
        let off = |given: &str, around: &str| {
            without_registration_cache(&with(given), with(around).into_iter()).is_some()
        };
        assert!(off("FI_PROVIDER", "PATH"));
        assert!(!off("FI_MR_CACHE_MAX_SIZE", "PATH") && !off("PATH", "FI_MR_CACHE_MONITOR"));
    }
}
