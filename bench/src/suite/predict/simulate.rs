//! One simulation, from its plan to what was seen.

use super::cluster::{Cluster, Member, Plan, give_up};
use super::machine::Used;
use super::programs::{self, Product};
use super::rank::{self, Range, Runner, Steps};
use crate::suite::job::Result;
use vgas_cache::pool::{Counter, CounterSnapshot};

/// Pages beside the data that rank 0 writes so that the data is on NVMe: twice what its cache holds.
const SPARE: u64 = 2;

/// Puts of each rank, in step, by which the home finds out that a page is shared.
const WARM_PUTS: u64 = 8;

/// Result of a simulation.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Nanoseconds of virtual time.
    pub ns: u64,
    /// Counters of all nodes.
    pub counters: CounterSnapshot,
    /// Messages from one node to another.
    pub messages: u64,
    /// Use of each node's parts.
    pub used: Vec<Used>,
    /// Entries of the directory of node 0, and their bytes.
    pub directory: (usize, usize),
}

impl Seen {
    /// Pages that came to a node, waited for or read ahead.
    pub fn misses(&self) -> u64 {
        let from = [Counter::FromHome, Counter::FromPeer, Counter::FromNvm, Counter::WithoutData];
        from.map(|counter| self.counters.get(counter)).iter().sum()
    }

    /// The share of the time for which something of node 0 was taken.
    pub fn share_of_home(&self, of: fn(&Used) -> u64) -> f64 {
        of(&self.used[0]) as f64 / self.ns.max(1) as f64
    }

    /// Bytes of an entry of node 0's directory.
    pub fn entry_bytes(&self) -> f64 {
        self.directory.1 as f64 / self.directory.0.max(1) as f64
    }
}

/// Attaches, lets the ranks do what comes before, and then what is measured.
fn run(
    plan: &Plan,
    expect: Option<fn(Range, &[u8]) -> bool>,
    before: &dyn Fn(usize) -> Steps<'static>,
    measured: &dyn Fn(usize) -> Steps<'static>,
) -> Result<Seen> {
    let (mut cluster, members) = Cluster::new(plan)?;
    let seen = rank::attach(&mut cluster, &members, plan.owners, plan.pages).and_then(|()| {
        act(&mut cluster, &members, None, before)?;
        cluster.machine.reset();
        let counted = cluster.counters();
        let ns = act(&mut cluster, &members, expect, measured)?;
        Ok(Seen {
            ns,
            counters: cluster.counters().since(&counted),
            messages: cluster.machine.messages(),
            used: cluster.machine.used(),
            directory: cluster.directory(0),
        })
    });
    if seen.is_err() {
        give_up(&members);
    }
    seen
}

fn act(
    cluster: &mut Cluster,
    members: &[Member],
    expect: Option<fn(Range, &[u8]) -> bool>,
    steps: &dyn Fn(usize) -> Steps<'static>,
) -> Result<u64> {
    let machine = cluster.machine.clone();
    let runner = |(rank, member)| Runner::new(member, &machine, steps(rank), expect);
    let mut runners: Vec<Runner<'_>> = members.iter().enumerate().map(runner).collect();
    let ended = cluster.run(members, &mut |rank| runners[rank].act());
    if ended.is_err() {
        give_up(members);
    }
    ended
}

/// All ranks read `data` pages of rank 0's, which are in no cache.
///
/// # Errors
/// Those of the cluster.
pub fn scan(plan: &Plan, data: u64, passes: u64, at_random: bool) -> Result<Seen> {
    scan_of(plan, data + SPARE * u64::from(plan.frames), data, passes, at_random)
}

/// All ranks read `data` pages that rank 0 has just written: its cache holds them, and NVMe has none.
///
/// # Errors
/// Those of the cluster.
#[cfg(test)]
pub fn scan_written(plan: &Plan, data: u64, at_random: bool) -> Result<Seen> {
    scan_of(plan, data, data, 1, at_random)
}

fn scan_of(plan: &Plan, pages: u64, data: u64, passes: u64, at_random: bool) -> Result<Seen> {
    let plan = Plan { pages, owners: 1, ..*plan };
    let before = |rank| programs::write(rank, pages);
    run(&plan, Some(rank::begins_with_its_place), &before, &|rank| {
        programs::scan(rank, data, passes, at_random)
    })
}

/// All ranks put `puts` bytes each into one page, which all have put into in turn before.
///
/// # Errors
/// Those of the cluster.
pub fn share(plan: &Plan, puts: u64) -> Result<Seen> {
    let plan = Plan { pages: 1, owners: 1, ..*plan };
    run(&plan, None, &|rank| programs::share(rank, WARM_PUTS, true), &|rank| {
        programs::share(rank, puts, false)
    })
}

/// All ranks meet so often.
///
/// # Errors
/// Those of the cluster.
pub fn meet(plan: &Plan, times: usize) -> Result<Seen> {
    let plan = Plan { pages: 1, owners: 1, ..*plan };
    run(&plan, None, &|_| programs::meet(1), &|_| programs::meet(times))
}

/// All ranks multiply, having put their parts of the factors.
///
/// # Errors
/// Those of the cluster.
pub fn multiply(plan: &Plan, product: &Product<'_>) -> Result<Seen> {
    let plan = Plan { pages: product.pages(), owners: plan.nodes, ..*plan };
    run(&plan, None, &|rank| product.load(rank), &|rank| product.multiply(rank))
}
