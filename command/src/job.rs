//! From flags to a job: settings, number of ranks, hosts.

use crate::cli::{ConfigFlags, PlacementFlags};
use crate::failure::Failure;
use crate::hosts;
use std::ffi::OsString;
use vgas::config::{AllocationChoice, Config, FlagValue, Sources};
use vgas::launch::{Allocation, Around};

/// A job to start.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program of every rank.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of nodes: the number of hosts, or virtual nodes of this machine.
    pub nodes: u32,
    /// One host a node; empty: this machine.
    pub hosts: Vec<String>,
    /// The allocation that the hosts are of, if they are of one.
    pub allocation: Option<Allocation>,
    /// The effective settings.
    pub config: Config,
    /// The command of the nodes' daemons; empty: this one.
    pub daemon: Vec<OsString>,
}

impl Job {
    /// A job of this very command: every rank reads the same command line and finds itself in a job.
    pub fn of_this_command(ranks: u32, place: &PlacementFlags, config: Config) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(format!("cannot find the vgas program itself: {error}")))?;
        let arguments = std::env::args_os().skip(1).collect();
        Self::new(program.into(), arguments, ranks, place, config)
    }

    /// Checks that the numbers make sense together. The place is one of [`place`].
    pub fn new(
        program: OsString,
        arguments: Vec<OsString>,
        ranks: u32,
        place: &PlacementFlags,
        config: Config,
    ) -> Result<Self, Failure> {
        let mut hosts = hosts::from_list(&place.host)?;
        if let Some(placement) = place.allocation.as_ref().and_then(|allocation| allocation.place(ranks)) {
            hosts = placement.hosts;
        }
        let nodes = nodes_of(place, &hosts)?;
        if ranks < nodes || ranks == 0 {
            return Err(Failure::usage(format!("{ranks} ranks cannot be spread over {nodes} nodes"))
                .hint("every node needs a rank: give at least as many ranks as nodes"));
        }
        let conduit = config.settings().conduit.provider();
        if hosts.len() > 1 && !conduit.reaches_hosts() {
            return Err(Failure::usage(format!("the conduit {conduit} does not reach other machines"))
                .hint("use tcp, or leave out the conduit"));
        }
        let allocation = place.allocation.clone();
        Ok(Self { program, arguments, ranks, nodes, hosts, allocation, config, daemon: Vec::new() })
    }
}

/// The flags with the hosts that their file names in place of the file, which may be a pipe and read only once.
pub fn place(flags: &PlacementFlags) -> Result<PlacementFlags, Failure> {
    let mut place = flags.clone();
    if let Some(path) = place.hosts.take() {
        place.host = hosts::from_file(&path)?;
    }
    Ok(place)
}

/// As [`place`]; without flags, the hosts are those of the allocation around this process, if there is one.
pub fn place_or_allocation(flags: &PlacementFlags, config: &ConfigFlags) -> Result<PlacementFlags, Failure> {
    let mut place = place(flags)?;
    if place.host.is_empty()
        && place.nodes.is_none()
        && self::config(config)?.settings().run.allocation == AllocationChoice::Auto
        && let Around::Allocation(around) = Allocation::around().map_err(|why| {
            Failure::usage(why.to_string()).hint("--set run.allocation=none starts ranks on this machine")
        })?
    {
        place.allocation = Some(around);
    }
    Ok(place)
}

/// Returns the requested number of nodes, before the ranks are known.
pub fn nodes(place: &PlacementFlags) -> Result<u32, Failure> {
    match &place.allocation {
        Some(allocation) => Ok(allocation.hosts.len() as u32),
        None => nodes_of(place, &hosts::from_list(&place.host)?),
    }
}

fn nodes_of(place: &PlacementFlags, hosts: &[String]) -> Result<u32, Failure> {
    match (place.nodes, hosts.len()) {
        (Some(0), _) => Err(Failure::usage("a job needs at least one node")),
        (nodes, 0) => Ok(nodes.unwrap_or(1)),
        (Some(nodes), hosts) if nodes as usize != hosts => {
            Err(Failure::usage(format!("--nodes {nodes} does not fit {hosts} hosts"))
                .hint("leave out --nodes: every host is one node"))
        }
        (_, hosts) => Ok(hosts as u32),
    }
}

/// The effective settings: flags over environment over file over defaults.
pub fn config(flags: &ConfigFlags) -> Result<Config, Failure> {
    Ok(Config::load(&sources(flags)?)?)
}

/// As [`config`], with a command's own defaults for some settings, which give way to whatever the user has written.
pub fn config_with_defaults(flags: &ConfigFlags, defaults: &[FlagValue]) -> Result<Config, Failure> {
    Ok(config(flags)?.with_defaults(defaults)?)
}

fn sources(flags: &ConfigFlags) -> Result<Sources, Failure> {
    let mut values: Vec<FlagValue> =
        flags.assignments.iter().map(|text| FlagValue::assignment(text)).collect::<Result<_, _>>()?;
    let on = |given: bool| given.then(|| "on".to_owned());
    for (flag, name, text) in [
        ("--conduit", "conduit", flags.conduit.clone()),
        ("--cache", "cache.size", flags.cache.clone()),
        ("--page", "cache.page", flags.page.clone()),
        ("--link", "cluster.link", flags.link.clone()),
        ("--nvm", "cluster.nvm", flags.nvm.clone()),
        ("--netns", "cluster.netns", on(flags.netns)),
        ("--node-memory", "cluster.memory", flags.node_memory.clone()),
        ("--label", "run.label", on(flags.label)),
        ("--stats", "stats.print", on(flags.stats)),
    ] {
        values.extend(text.map(|text| FlagValue { flag: flag.into(), name: name.into(), text }));
    }
    Ok(Sources { file: flags.config.clone(), environment: std::env::vars_os().collect(), flags: values })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(ranks: u32, place: PlacementFlags) -> Result<Job, Failure> {
        Job::new("prog".into(), Vec::new(), ranks, &place, Config::defaults())
    }

    #[test]
    fn nodes_are_hosts_or_virtual() {
        let two = || vec!["a".to_owned(), "b".to_owned()];
        let nodes = |place| job(4, place).unwrap().nodes;
        assert_eq!(nodes(PlacementFlags::default()), 1);
        assert_eq!(nodes(PlacementFlags { nodes: Some(3), ..PlacementFlags::default() }), 3);
        assert_eq!(nodes(PlacementFlags { host: two(), ..PlacementFlags::default() }), 2);
        assert_eq!(nodes(PlacementFlags { host: two(), nodes: Some(2), ..PlacementFlags::default() }), 2);
        let error = job(4, PlacementFlags { host: two(), nodes: Some(3), ..PlacementFlags::default() })
            .unwrap_err()
            .text();
        assert!(error.starts_with("--nodes 3 does not fit 2 hosts | leave out --nodes"), "{error}");
    }

    /// As many ranks as nodes pass, one less is refused.
    #[test]
    fn every_node_needs_a_rank() {
        let place = || PlacementFlags { nodes: Some(3), ..PlacementFlags::default() };
        assert!(job(3, place()).is_ok());
        assert!(job(2, place()).unwrap_err().text().starts_with("2 ranks cannot be spread over 3 nodes"));
        assert!(job(0, PlacementFlags::default()).is_err());
        assert!(job(1, PlacementFlags { nodes: Some(0), ..PlacementFlags::default() }).is_err());
    }

    #[test]
    fn short_flags_are_settings_and_a_commands_defaults_give_way() {
        let flags = ConfigFlags { cache: Some("1GiB".into()), label: true, ..ConfigFlags::default() };
        let own = |name: &str, text: &str| FlagValue {
            flag: "vgas demo".into(),
            name: name.into(),
            text: text.into(),
        };
        let config =
            config_with_defaults(&flags, &[own("cache.size", "2GiB"), own("cache.page", "1MiB")]).unwrap();
        let shown = |name: &str| {
            let value = config.values().iter().find(|value| value.setting.name == name).unwrap();
            format!("{} {}", value.text, value.origin)
        };
        assert_eq!(shown("cache.size"), "1GiB --cache");
        assert_eq!(shown("cache.page"), "1MiB vgas demo");
        assert_eq!(shown("run.label"), "on --label");
    }
}
