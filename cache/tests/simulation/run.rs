//! One run, from its plan to its findings.

use super::cluster::{Cluster, Member};
use super::model::{Model, Place};
use super::plan::{PAGE, Plan};
use super::traffic::{Ask, Traffic};
use super::{Finding, invariant};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas_cache::CacheError;
use vgas_cache::pool::CounterSnapshot;
use vgas_cache::protocol::trace;
use vgas_cache::request::{Named, Request};
use vgas_nvm::Volume;
use vgas_nvm::device::memory::{Crash, MemoryDevice};
use vgas_rma::address::{NodeId, Rank};
use vgas_rma::shm::Mapping;

/// What a run without findings was like.
#[derive(Debug)]
pub struct Summary {
    pub turns: u64,
    pub operations: u32,
    /// Rows of the tables that were taken, one a line, and how many.
    pub log: String,
    pub rows: usize,
    pub counters: CounterSnapshot,
    /// How operations failed.
    pub failures: Vec<CacheError>,
}

/// Runs a plan in which nothing goes wrong, to its end.
pub fn run(plan: &Plan) -> Result<Summary, Finding> {
    let summary = run_with_failures(plan)?;
    match summary.failures.first() {
        Some(error) => Err(Finding::new("an operation has failed", error.to_string())),
        None => Ok(summary),
    }
}

/// Runs a plan to its end. Operations may fail: what they should have written may then be there or not.
pub fn run_with_failures(plan: &Plan) -> Result<Summary, Finding> {
    let (mut cluster, members) = Cluster::new(plan);
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x72756e);
    attach(plan, &mut cluster, &members, &mut random)?;
    let mut traffic = Traffic::new(plan, &members);
    drive(plan, &mut cluster, &mut traffic, &mut random)?;
    cluster.settle(&members, plan.turns_max)?;
    invariant::check_at_rest(&cluster)?;
    // Everything is where it should be, seen from every node.
    for rank in 0..plan.ranks {
        for owner in 0..plan.ranks {
            let limit = traffic.model.segment_bytes(owner);
            let at = (u64::from(rank) * 5 * PAGE as u64).min(limit);
            for bytes in [at..limit, 0..at].into_iter().filter(|bytes| !bytes.is_empty()) {
                traffic.get(rank as usize, Place { owner, bytes })?;
                drive(plan, &mut cluster, &mut traffic, &mut random)?;
            }
        }
    }
    if plan.named && traffic.failures.is_empty() {
        let save = |rank| Ask::new(rank, |slot| Request::Checkpoint { slot }, Vec::new());
        ask(plan, &mut cluster, &members, (0..members.len()).map(save).collect(), &mut random)?;
        for owner in 0..plan.ranks {
            let saved = traffic.model.begin_save(owner);
            check_disk(plan, &cluster, &mut traffic.model, owner, &saved, Crash::Random(plan.seed))?;
        }
    }
    cluster.settle(&members, plan.turns_max)?;
    invariant::check_at_rest(&cluster)?;
    let log = std::mem::take(&mut *cluster.rows.lock().expect("one thread"));
    let rows =
        trace::replay(&log).map_err(|e| Finding::new("the tables do not explain the log", e.to_string()))?;
    let mut counters = CounterSnapshot::default();
    cluster.nodes.iter().flat_map(|node| &node.agents).for_each(|agent| counters.add(&agent.counters()));
    let failures = std::mem::take(&mut traffic.failures);
    Ok(Summary { turns: cluster.turns, operations: traffic.completed, log, rows, counters, failures })
}

/// What a run whose network lost a node was like.
#[derive(Debug, Default)]
pub struct Loss {
    /// Operations that ended well before or after, with the right bytes.
    pub completed: u32,
    /// How the others ended.
    pub failures: Vec<CacheError>,
}

/// Runs a plan until, after some turns, a node is cut off, and from there until everybody has noticed: every agent has
/// ended with an error that names that node, and nobody waits for an operation any more.
pub fn run_and_lose(plan: &Plan) -> Result<Loss, Finding> {
    let (mut cluster, members) = Cluster::new(plan);
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x6c_6f_73_73);
    attach(plan, &mut cluster, &members, &mut random)?;
    let mut traffic = Traffic::new(plan, &members);
    for _ in 0..random.random_range(0..3000) {
        cluster.turn(&mut random)?;
        traffic.turn(&mut random)?;
    }
    cluster.lose(NodeId(random.random_range(0..plan.nodes)));
    traffic.is_cut_off();
    let end = cluster.turns + plan.turns_max;
    while !traffic.is_over() || cluster.failed.iter().any(Option::is_none) {
        cluster.turn(&mut random)?;
        traffic.turn(&mut random)?;
        if cluster.turns > end {
            let what = format!("{:?}\n{}\n{}", cluster.failed, traffic.describe(), cluster.describe());
            return Err(Finding::new("the loss of a node does not end everything", what));
        }
    }
    let failures = std::mem::take(&mut traffic.failures);
    match failures.iter().find(|error| !cluster.is_the_loss(error)) {
        Some(error) => Err(Finding::new("an operation names something else", error.to_string())),
        None => Ok(Loss { completed: traffic.completed - failures.len() as u32, failures }),
    }
}

/// A cluster at rest whose pages have been used.
pub fn prepare(plan: &Plan) -> Result<(Cluster, Vec<Member>), Finding> {
    let (mut cluster, members) = Cluster::new(plan);
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
    attach(plan, &mut cluster, &members, &mut random)?;
    let mut traffic = Traffic::new(plan, &members);
    drive(plan, &mut cluster, &mut traffic, &mut random)?;
    drop(traffic);
    cluster.settle(&members, plan.turns_max)?;
    Ok((cluster, members))
}

fn drive(
    plan: &Plan,
    cluster: &mut Cluster,
    traffic: &mut Traffic<'_>,
    random: &mut ChaCha8Rng,
) -> Result<(), Finding> {
    let end = cluster.turns + plan.turns_max;
    while !traffic.is_over() {
        cluster.turn(random)?;
        traffic.turn(random)?;
        for (owner, saved) in std::mem::take(&mut traffic.saved) {
            check_disk(plan, cluster, &mut traffic.model, owner, &saved, Crash::LoseUnsynced)?;
        }
        if cluster.turns > end {
            return Err(Finding::new(
                "operations do not end",
                format!("{}\n{}", traffic.describe(), cluster.describe()),
            ));
        }
    }
    Ok(())
}

fn ask(
    plan: &Plan,
    cluster: &mut Cluster,
    members: &[Member],
    asks: Vec<Ask>,
    random: &mut ChaCha8Rng,
) -> Result<(), Finding> {
    let end = cluster.turns + plan.turns_max;
    for mut ask in asks {
        loop {
            match ask.test(members).map_err(|e| Finding::new("a rank has failed", e.to_string()))? {
                None => cluster.turn(random)?,
                Some(Ok(())) => break,
                Some(Err(failure)) => return Err(Finding::new("a request has failed", failure.to_string())),
            }
            if cluster.turns > end {
                return Err(Finding::new("a request does not end", ""));
            }
        }
    }
    Ok(())
}

/// The collective attachment of the segments.
fn attach(
    plan: &Plan,
    cluster: &mut Cluster,
    members: &[Member],
    random: &mut ChaCha8Rng,
) -> Result<(), Finding> {
    let named = Named { name: "simulated".into(), checkpoint: None, tells: false };
    let data = if plan.named { named.encode() } else { Vec::new() };
    let attach = plan
        .segments
        .iter()
        .enumerate()
        .map(|(rank, &pages)| Ask::new(rank, move |slot| Request::Attach { pages, slot }, data.clone()));
    ask(plan, cluster, members, attach.collect(), random)?;
    let sizes: Vec<u8> = plan.segments.iter().flat_map(|pages| pages.to_le_bytes()).collect();
    let tell = (0..members.len())
        .map(|rank| Ask::new(rank, |slot| Request::Segments { first_rank: 0, slot }, sizes.clone()));
    ask(plan, cluster, members, tell.collect(), random)?;
    for member in members {
        let bytes = plan.segments.iter().map(|pages| pages * PAGE as u64).collect();
        member.client.know_segments(bytes).expect("once");
    }
    Ok(())
}

/// After a checkpoint and a crash, a fresh volume finds on the disk what had been put before the checkpoint began.
fn check_disk(
    plan: &Plan,
    cluster: &Cluster,
    model: &mut Model,
    owner: u32,
    saved: &[Vec<u32>],
    crash: Crash,
) -> Result<(), Finding> {
    if saved.is_empty() {
        return Ok(());
    }
    let lost =
        |e: vgas_nvm::VolumeError| Finding::new("a checkpoint is lost", format!("segment {owner}: {e}"));
    let disk = cluster.nodes[cluster.layout.node_of(Rank(owner)).0 as usize].disk.fork();
    disk.crash(crash);
    let device = Box::new(MemoryDevice::new(&disk, 8).expect("a device"));
    let mut volume = Volume::over(device, PAGE as u32, true).expect("a volume");
    let pages = plan.segments[owner as usize];
    volume.create_or_open_named(owner, &format!("simulated.{owner}"), pages).map_err(lost)?;
    let memory = Mapping::anonymous("read back", PAGE as u64).expect("memory");
    for (page, least) in (0..pages).zip(saved) {
        volume.read(owner, page, memory.span(0, PAGE), 0).map_err(lost)?;
        let mut done = Vec::new();
        while done.is_empty() {
            volume.submit().map_err(lost)?;
            volume.poll(&mut done).map_err(lost)?;
        }
        for one in done {
            one.result.map_err(|e| lost(*e))?;
        }
        let mut content = vec![0; PAGE];
        memory.read(0, &mut content);
        model.check_saved(owner, page, least, &content)?;
    }
    Ok(())
}
