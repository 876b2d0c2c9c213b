//! Specification of a job, as its starter gives it, and its outcome.

#![forbid(unsafe_code)]

use super::cluster::{self, Own};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;
use vgas_rma::address::{Layout, NodeId, Peer};
use vgas_rma::conduit::factory::{self, Provider};
use vgas_rma::conduit::{smp, tcp};
use vgas_rma::domain::{DomainSpec, RegionSpec};
use vgas_rma::error::{Result, RmaError};

/// Most ranks of a job: beyond it the tables that every process holds, and the memory for them, make no sense.
pub const RANKS_MAX: u32 = 4096;

/// Most ranks per core of a machine. Ranks that wait sleep, so several per core work; this many do not.
pub const RANKS_PER_CORE_MAX: u32 = 64;

/// Program, placement, and the description for every process of the job.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The program of every rank: a path, or a name that is looked for in `PATH`.
    pub program: OsString,
    /// Name of the program (its first word, `argv[0]`); the same as `program` if none.
    pub name: Option<OsString>,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of nodes. Ranks are spread over them by `placement`, or [`Layout::blocks`]. With `hosts`: their number.
    pub nodes: u32,
    /// The conduit between nodes, by its name in the [table of conduits](factory::PROVIDERS).
    pub conduit: String,
    /// Handed to every process of the job as they are.
    pub settings: BTreeMap<String, String>,
    /// Variables that every rank gets in addition to the environment its daemon has.
    pub environment: Vec<(OsString, OsString)>,
    /// The shared regions of all peers of the job (see [`RunSpec::layout`] for the peers). Each domain gets
    /// those of its members.
    pub regions: Vec<RegionSpec>,
    /// Bytes of one ring of the `smp` conduit.
    pub ring_bytes: u64,
    /// Bytes that virtual nodes have in common ([`DomainSpec::common_bytes`]); 0 when there are hosts.
    pub common_bytes: u64,
    /// Resources of virtual nodes; the default if there are hosts.
    pub own: Own,
    /// One host a node. Empty: all nodes are virtual nodes of this machine.
    pub hosts: Vec<String>,
    /// Number of ranks of each node; empty: as many on each, or one more on the first.
    pub placement: Vec<u32>,
    /// Command that starts a daemon on a host.
    pub starter: Starter,
    /// The command that runs [`super::node_main`], on this machine and on every host.
    pub daemon: Vec<OsString>,
    /// Ports to listen on; any when absent.
    pub ports: Option<RangeInclusive<u16>>,
    /// The address, or the interface whose address, the processes of a host listen on. Absent: loopback for virtual
    /// nodes, otherwise the address under which ssh reached the host, or that of its name.
    pub interface: Option<String>,
    /// Begin every line of output with the rank that wrote it.
    pub label: bool,
    /// True if rank 0 reads the launcher's standard input.
    pub input: bool,
    /// True if ranks are served PMI-1, so that MPICH programs among them are ranks of one MPI.
    pub pmi: bool,
    /// Within what time every node must be ready to start its ranks.
    pub connect_timeout: Duration,
    /// True if the job continues when a node is lost: every process is told of it, and operations on that
    /// node fail. Needs the `tcp` conduit. A second loss ends the job, and so does the first one if the ranks
    /// were started externally ([`join_started`](crate::join_started)).
    pub survive: bool,
}

/// Command that starts another on a remote host. The standard input and output of these words must reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Starter {
    /// As ssh does: these words, the host, and the command quoted for a shell.
    Ssh(Vec<OsString>),
    /// As srun does, within the allocation that this process is in: these words, options that name the host, and the command word by
    /// word.
    Srun(Vec<OsString>),
    /// Others have started it.
    Others,
}

impl Starter {
    /// The program that it starts, and whether there is such a file.
    pub fn program(&self) -> Option<(&OsStr, bool)> {
        let word = self.words().first()?;
        Some((word, super::program::find(word, Path::new("")).is_some()))
    }

    /// The command's words, before those that name host and command.
    pub(crate) fn words(&self) -> &[OsString] {
        match self {
            Self::Ssh(words) | Self::Srun(words) => words,
            Self::Others => &[],
        }
    }

    /// Returns its name, for users.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ssh(_) => "ssh",
            Self::Srun(_) => "srun",
            Self::Others => "the starter",
        }
    }
}

/// Addresses at which the processes of a node listen for connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Listen {
    /// All nodes are on one machine: loopback serves.
    pub(crate) loopback: bool,
    /// ssh's view of its connection is about this host: not if the daemon has come otherwise.
    pub(crate) by_ssh: bool,
    /// An address or the name of an interface, chosen by the user.
    pub(crate) interface: Option<String>,
    /// First and last port, or any.
    pub(crate) ports: Option<(u16, u16)>,
}

/// Rank 0's description of an externally launched job: [`RunSpec`] without the launch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// As [`RunSpec::conduit`].
    pub conduit: String,
    /// As [`RunSpec::settings`].
    pub settings: BTreeMap<String, String>,
    /// As [`RunSpec::ring_bytes`].
    pub ring_bytes: u64,
    /// As [`RunSpec::ports`].
    pub ports: Option<RangeInclusive<u16>>,
    /// As [`RunSpec::interface`].
    pub interface: Option<String>,
    /// As [`RunSpec::connect_timeout`].
    pub connect_timeout: Duration,
    /// As [`RunSpec::survive`].
    pub survive: bool,
}

impl Plan {
    /// With the defaults of [`RunSpec`].
    pub fn new() -> Self {
        let spec = RunSpec::new("", 1);
        Self {
            conduit: tcp::NAME.into(),
            settings: spec.settings,
            ring_bytes: spec.ring_bytes,
            ports: spec.ports,
            interface: spec.interface,
            connect_timeout: spec.connect_timeout,
            survive: spec.survive,
        }
    }

    /// Returns the job's specification for this number of ranks on these hosts.
    pub(crate) fn spec(self, ranks: u32, hosts: Vec<String>) -> RunSpec {
        RunSpec {
            conduit: self.conduit,
            settings: self.settings,
            ring_bytes: self.ring_bytes,
            ports: self.ports,
            interface: self.interface,
            connect_timeout: self.connect_timeout,
            survive: self.survive,
            nodes: hosts.len() as u32,
            hosts,
            starter: Starter::Others,
            ..RunSpec::new("", ranks)
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::new()
    }
}

/// Outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// The exit status for the launcher: 0 when every rank ended with 0; the code of the first rank that failed;
    /// 128 + signal when a process was killed; 127 or 126 when the program could not be started.
    pub code: u8,
    /// The one line that describes a failure, if there was one.
    pub message: Option<String>,
}

impl RunSpec {
    /// A job of `ranks` ranks on one node of this machine, with the defaults for everything else.
    pub fn new(program: impl Into<OsString>, ranks: u32) -> Self {
        let ssh =
            ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=4", "-o", "ServerAliveInterval=5"];
        let this_program = std::env::current_exe().map_or_else(|_| "vgas".into(), Into::into);
        Self {
            program: program.into(),
            name: None,
            arguments: Vec::new(),
            ranks,
            nodes: 1,
            conduit: smp::NAME.into(),
            settings: BTreeMap::new(),
            environment: Vec::new(),
            regions: Vec::new(),
            ring_bytes: smp::RING_BYTES_DEFAULT,
            common_bytes: 0,
            own: Own::default(),
            hosts: Vec::new(),
            placement: Vec::new(),
            starter: Starter::Ssh(ssh.map(OsString::from).into()),
            daemon: vec![this_program, "node".into()],
            ports: None,
            interface: None,
            label: false,
            input: true,
            pmi: true,
            connect_timeout: Duration::from_secs(60),
            survive: false,
        }
    }

    /// Returns the assignment of ranks to nodes.
    ///
    /// # Errors
    /// If the numbers of ranks, nodes and hosts make no sense.
    pub fn layout(&self) -> Result<Layout> {
        let wrong = |what: String| Err(RmaError::Refused(what));
        if self.ranks == 0 || self.nodes == 0 {
            return wrong("a job has at least one rank and one node".into());
        }
        if self.nodes > self.ranks {
            return wrong(format!("{} nodes need at least as many ranks, not {}", self.nodes, self.ranks));
        }
        if self.ranks > RANKS_MAX {
            return wrong(format!("{} ranks are more than the {RANKS_MAX} that a job may have", self.ranks));
        }
        if !self.hosts.is_empty() && self.hosts.len() != self.nodes as usize {
            return wrong(format!(
                "{} hosts cannot make {} nodes: one node a host",
                self.hosts.len(),
                self.nodes
            ));
        }
        if self.placement.is_empty() {
            return Ok(Layout::blocks(self.ranks, self.nodes));
        }
        let layout = Layout::of_nodes(self.placement.iter().copied());
        match layout.filter(|layout| (layout.ranks(), layout.nodes()) == (self.ranks, self.nodes)) {
            Some(layout) => Ok(layout),
            None => wrong(format!(
                "{} ranks on {} nodes are placed as {:?}",
                self.ranks, self.nodes, self.placement
            )),
        }
    }

    /// Checks everything that can be known before a process is started.
    pub(crate) fn check(&self) -> Result<Layout> {
        let layout = self.layout()?;
        self.check_against(&layout)?;
        Ok(layout)
    }

    /// As [`RunSpec::check`], for a layout that is not of its own making.
    pub(crate) fn check_against(&self, layout: &Layout) -> Result<()> {
        let wrong = |what: String| Err(RmaError::Refused(what));
        if self.hosts.is_empty() {
            check_cores(self.ranks)?;
        }
        let provider = factory::find(&self.conduit)?;
        if self.survive && self.nodes > 1 && self.conduit != tcp::NAME {
            return wrong(format!(
                "a job over {provider} cannot survive the loss of a node; use the conduit tcp"
            ));
        }
        if self.hosts.len() > 1 && !provider.reaches_hosts() {
            let others = factory::names_that_reach_hosts();
            return wrong(format!("conduit {provider} does not reach other hosts; use {others}"));
        }
        if self.common_bytes > 0 && !self.hosts.is_empty() {
            return wrong("memory in common to nodes on several hosts".into());
        }
        if self.own != Own::default() && !self.hosts.is_empty() {
            return wrong("nodes on hosts have networks and memory of their own".into());
        }
        if self.own.network.is_some() && self.nodes > 1 && self.conduit != tcp::NAME {
            return wrong(format!("{provider} does not cross network namespaces; use the conduit tcp"));
        }
        if self.daemon.is_empty() || self.has_no_starter() {
            return wrong("the command that starts a node is empty".into());
        }
        if let Some(host) = self.hosts.iter().find(|host| host.is_empty() || host.starts_with('-')) {
            return wrong(format!("{host:?} is no host name"));
        }
        if let Some(ports) = &self.ports
            && (ports.is_empty() || *ports.start() == 0)
        {
            return wrong(format!("{}-{} is no range of ports", ports.start(), ports.end()));
        }
        if let Some(region) = self.regions.iter().find(|region| !layout.contains(region.owner)) {
            return wrong(format!("a region for {}, which the job does not have", region.owner));
        }
        Ok(())
    }

    fn has_no_starter(&self) -> bool {
        !self.hosts.is_empty() && self.starter != Starter::Others && self.starter.words().is_empty()
    }

    /// Returns true if one domain holds all processes of the job.
    pub(crate) fn one_domain(&self) -> bool {
        self.nodes == 1 || factory::find(&self.conduit).is_ok_and(Provider::is_domain)
    }

    /// Returns the addresses at which the processes of a job listen: none if all share one domain.
    pub(crate) fn listen(&self) -> Option<Listen> {
        (!self.one_domain()).then(|| Listen {
            loopback: self.hosts.is_empty() && self.own.network.is_none(),
            by_ssh: matches!(self.starter, Starter::Ssh(_)) && self.own.network.is_none(),
            interface: match self.own.network {
                Some(_) => Some(cluster::INTERFACE.into()),
                None => self.interface.clone(),
            },
            ports: self.ports.as_ref().map(|ports| (*ports.start(), *ports.end())),
        })
    }

    /// The domain of one node, or of the whole job.
    pub(crate) fn domain(&self, layout: &Layout, node: Option<NodeId>) -> DomainSpec {
        let members: Vec<Peer> = (0..layout.peers())
            .map(Peer)
            .filter(|&peer| node.is_none_or(|node| layout.node_of_peer(peer) == node))
            .collect();
        let regions = self
            .regions
            .iter()
            .filter(|region| members.binary_search(&region.owner).is_ok())
            .cloned()
            .collect();
        let control_bytes = smp::control_bytes(members.len(), self.ring_bytes);
        let (ring_bytes, common_bytes) = (self.ring_bytes, self.common_bytes);
        DomainSpec { members, control_bytes, ring_bytes, regions, common_bytes }
    }
}

impl JobStatus {
    /// Every rank ended with 0.
    pub const SUCCESS: JobStatus = JobStatus { code: 0, message: None };

    /// Returns the status unchanged, but a failure also names the nodes that have had too little memory.
    pub(crate) fn with_exhausted(mut self, nodes: impl Iterator<Item = NodeId>) -> Self {
        let nodes: Vec<String> = nodes.map(|node| node.to_string()).collect();
        if let (Some(message), false) = (&mut self.message, nodes.is_empty()) {
            let nodes = nodes.join(", ");
            message
                .push_str(&format!("; {nodes} had used up its memory, and the system killed what it could"));
        }
        self
    }

    /// As it is; where something was killed, it also says in which of the control groups around the job the memory was used up.
    pub(crate) fn with_exhausted_surroundings(mut self, group: Option<&Path>) -> Self {
        const KILLED: u8 = 128 + rustix::process::Signal::KILL.as_raw() as u8;
        if let (Some(message), KILLED, Some(group)) = (&mut self.message, self.code, group) {
            message.push_str(&format!(
                "; its control group, {}, had used up its memory: ask for more memory, or set cache.size (--cache) to less",
                group.display()
            ));
        }
        self
    }

    /// Returns true if every rank ended with 0.
    pub fn success(&self) -> bool {
        self.code == 0
    }
}

/// Refuses more ranks than this machine can run in a useful way.
pub(crate) fn check_cores(ranks: u32) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let ranks_max = cores.saturating_mul(RANKS_PER_CORE_MAX);
    if ranks > ranks_max {
        let what = format!(
            "{ranks} ranks are too many for one machine with {cores} cores; at most {ranks_max} \
             ({RANKS_PER_CORE_MAX} a core) make sense"
        );
        return Err(RmaError::Refused(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_rma::address::RegionId;
    use vgas_rma::conduit::tcp;

    /// Boundaries in pairs: the largest job passes, one more rank is refused, in one line.
    #[test]
    fn ranks_beyond_reason_are_refused() {
        assert!(RunSpec::new("prog", RANKS_MAX).layout().is_ok());
        assert!(RunSpec::new("prog", RANKS_MAX + 1).layout().is_err());
        assert!(RunSpec::new("prog", 0).layout().is_err());
        let cores = std::thread::available_parallelism().unwrap().get() as u32;
        let most = cores * RANKS_PER_CORE_MAX;
        assert!(check_cores(most).is_ok());
        let error = check_cores(most + 1).unwrap_err().to_string();
        assert!(error.contains("too many") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn wrong_combinations_are_refused() {
        let good = RunSpec::new("prog", 4);
        assert!(good.check().is_ok());
        let hosts = vec!["a".to_string(), "b".to_string()];
        for wrong in [
            RunSpec { nodes: 5, ..good.clone() },
            RunSpec { conduit: "pigeon".into(), ..good.clone() },
            RunSpec { hosts: hosts.clone(), ..good.clone() },
            RunSpec { hosts: hosts.clone(), nodes: 2, ..good.clone() },
            RunSpec {
                hosts: vec!["a".into(), "-oProxyCommand=x".into()],
                nodes: 2,
                conduit: tcp::NAME.into(),
                ..good.clone()
            },
            RunSpec { ports: Some(RangeInclusive::new(2, 1)), ..good.clone() },
            RunSpec { nodes: 2, conduit: tcp::NAME.into(), placement: vec![3, 2], ..good.clone() },
            RunSpec { nodes: 2, conduit: tcp::NAME.into(), placement: vec![4], ..good.clone() },
            RunSpec { nodes: 2, conduit: tcp::NAME.into(), placement: vec![4, 0], ..good.clone() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        let placed = RunSpec { hosts, nodes: 2, conduit: tcp::NAME.into(), placement: vec![3, 1], ..good };
        assert_eq!(placed.check().unwrap().ranks_of(NodeId(1)), 3..4);
        assert!(RunSpec { placement: Vec::new(), ..placed }.check().is_ok());
    }

    #[test]
    fn a_domain_holds_a_node_or_the_whole_job() {
        let mut spec = RunSpec { nodes: 2, conduit: tcp::NAME.into(), ..RunSpec::new("prog", 3) };
        let layout = spec.layout().unwrap();
        spec.regions = (0..layout.peers())
            .map(|peer| RegionSpec { owner: Peer(peer), region: RegionId::SEGMENT, bytes: 4096 })
            .collect();
        let domain = spec.domain(&layout, Some(NodeId(0)));
        assert_eq!(domain.members, [Peer(0), Peer(1), Peer(3)]);
        assert_eq!(domain.regions.iter().map(|region| region.owner.0).collect::<Vec<_>>(), [0, 1, 3]);
        assert_eq!(spec.domain(&layout, None).members.len(), 5);
    }
}
