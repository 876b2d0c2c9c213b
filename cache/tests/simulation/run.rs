//! One run, from its plan to its findings.

use super::cluster::{Cluster, Member};
use super::model::{Model, Place};
use super::plan::{PAGE, Plan};
use super::traffic::{Ask, FIRST, Traffic};
use super::{Finding, invariant};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas_cache::CacheError;
use vgas_cache::client::{Created, SegmentPages};
use vgas_cache::page::PageIndex;
use vgas_cache::partition::SegmentId;
use vgas_cache::pool::{Counter, CounterSnapshot, INLINE_BYTES};
use vgas_cache::protocol::trace;
use vgas_cache::request::{Attached, Detach, Named, Request};
use vgas_nvm::Volume;
use vgas_nvm::device::memory::{Crash, MemoryDevice};
use vgas_rma::address::{NodeId, Rank};
use vgas_shm::Mapping;

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
    /// The number of each partition's first page.
    pub first_pages: Vec<PageIndex>,
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
    let first_pages = attach(plan, &mut cluster, &members, &mut random)?;
    let mut traffic = Traffic::new(plan, &members);
    drive(plan, &mut cluster, &mut traffic, &mut random)?;
    cluster.settle(&members, plan.turns_max)?;
    invariant::check_at_rest(&cluster)?;
    // Everything is where it should be, seen from every node.
    for rank in 0..plan.ranks {
        for owner in 0..plan.partitions.len() as u32 {
            let limit = traffic.model.segment_bytes(owner);
            let at = (u64::from(rank) * 5 * PAGE as u64).min(limit);
            for bytes in [at..limit, 0..at].into_iter().filter(|bytes| !bytes.is_empty()) {
                traffic.get(rank as usize, Place { owner, bytes })?;
                drive(plan, &mut cluster, &mut traffic, &mut random)?;
            }
        }
    }
    if plan.named && traffic.failures.is_empty() {
        let save = |rank| Ask::new(rank, |wait| Request::Checkpoint { segment: FIRST, wait }, Vec::new());
        ask(plan, &mut cluster, &members, (0..members.len()).map(save).collect(), &mut random)?;
        for owner in 0..plan.ranks {
            let saved = traffic.model.begin_save(owner);
            check_disk(plan, &cluster, &mut traffic.model, owner, &saved, Crash::Random(plan.seed))?;
        }
    }
    cluster.settle(&members, plan.turns_max)?;
    invariant::check_at_rest(&cluster)?;
    // On a disk of limited size it may fail, and need not have before.
    if traffic.failures.is_empty() && plan.disk_bytes_max.is_none() {
        come_and_go(plan, &mut cluster, &members, &mut random)?;
    }
    let log = std::mem::take(&mut *cluster.rows.lock().expect("one thread"));
    let rows =
        trace::replay(&log).map_err(|e| Finding::new("the tables do not explain the log", e.to_string()))?;
    let mut counters = CounterSnapshot::default();
    cluster.nodes.iter().flat_map(|node| &node.agents).for_each(|agent| counters.add(&agent.counters()));
    let failures = std::mem::take(&mut traffic.failures);
    Ok(Summary {
        turns: cluster.turns,
        operations: traffic.completed,
        log,
        rows,
        counters,
        failures,
        first_pages,
    })
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

/// Runs rounds in which the first rank puts all of its partition of the last segment, while each other rank gets it twice. How many
/// pages its node has written to its disk.
pub fn run_beside_a_writer(plan: &Plan, rounds: u32) -> Result<u64, Finding> {
    let (mut cluster, members) = Cluster::new(plan);
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x6265_7369_6465);
    attach(plan, &mut cluster, &members, &mut random)?;
    let mut traffic = Traffic::new(plan, &members);
    let owner = plan.ranks * (plan.kinds.len() as u32 - 1);
    let place = Place { owner, bytes: 0..traffic.model.segment_bytes(owner) };
    for _ in 0..rounds {
        traffic.put(0, place.clone())?;
        for rank in (1..members.len()).chain(1..members.len()) {
            traffic.get(rank, place.clone())?;
        }
        drive(plan, &mut cluster, &mut traffic, &mut random)?;
    }
    if let Some(error) = traffic.failures.first() {
        return Err(Finding::new("an operation has failed", error.to_string()));
    }
    cluster.settle(&members, plan.turns_max)?;
    invariant::check_at_rest(&cluster)?;
    let log = std::mem::take(&mut *cluster.rows.lock().expect("one thread"));
    trace::replay(&log).map_err(|e| Finding::new("the tables do not explain the log", e.to_string()))?;
    Ok(cluster.nodes[0].agents.iter().map(|agent| agent.counters().get(Counter::NvmWrites)).sum())
}

/// Runs rounds of gets of everything by every rank, once owners have put it, checkpoints have stored it, and all disks are full. How
/// many pages have been read from disks.
pub fn run_reads(plan: &Plan, rounds: u32) -> Result<u64, Finding> {
    let (mut cluster, members) = Cluster::new(plan);
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x7265_6164);
    attach(plan, &mut cluster, &members, &mut random)?;
    let mut traffic = Traffic::new(plan, &members);
    let all: Vec<Place> = (0..plan.ranks)
        .map(|owner| Place { owner, bytes: 0..traffic.model.segment_bytes(owner) })
        .filter(|place| !place.bytes.is_empty())
        .collect();
    for place in &all {
        traffic.put(place.owner as usize, place.clone())?;
    }
    drive(plan, &mut cluster, &mut traffic, &mut random)?;
    let save = |rank| Ask::new(rank, |wait| Request::Checkpoint { segment: FIRST, wait }, Vec::new());
    ask(plan, &mut cluster, &members, (0..members.len()).map(save).collect(), &mut random)?;
    cluster.settle(&members, plan.turns_max)?;
    let count = |cluster: &Cluster, counter| -> u64 {
        let agents = cluster.nodes.iter().flat_map(|node| &node.agents);
        agents.map(|agent| agent.counters().get(counter)).sum()
    };
    let (written, read) = (count(&cluster, Counter::NvmWrites), count(&cluster, Counter::NvmReads));
    cluster.nodes.iter().for_each(|node| node.disk.limit_space(0));
    for _ in 0..rounds {
        for rank in 0..members.len() {
            for place in &all {
                traffic.get(rank, place.clone())?;
            }
        }
        drive(plan, &mut cluster, &mut traffic, &mut random)?;
    }
    cluster.settle(&members, plan.turns_max)?;
    let now = count(&cluster, Counter::NvmWrites);
    match traffic.failures.first() {
        Some(error) => Err(Finding::new("a get has failed on a full disk", error.to_string())),
        None if now != written => {
            Err(Finding::new("gets have written pages", format!("{} of them", now - written)))
        }
        None => Ok(count(&cluster, Counter::NvmReads) - read),
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
    mut asks: Vec<Ask>,
    random: &mut ChaCha8Rng,
) -> Result<Vec<[u8; INLINE_BYTES]>, Finding> {
    let end = cluster.turns + plan.turns_max;
    // All of them begin, so that what each of them waits for can be another.
    let mut open: Vec<usize> = (0..asks.len()).collect();
    while !open.is_empty() {
        let mut still = Vec::new();
        for index in open {
            let ended = asks[index].test(members);
            match ended.map_err(|e| Finding::new("a rank has failed", e.to_string()))? {
                None => still.push(index),
                Some(Ok(())) => {}
                Some(Err(failure)) => return Err(Finding::new("a request has failed", failure.to_string())),
            }
            cluster.turn(random)?;
        }
        open = still;
        if cluster.turns > end {
            return Err(Finding::new("a request does not end", cluster.describe()));
        }
    }
    Ok(asks.into_iter().map(|ask| ask.answer).collect())
}

/// The collective attachment of all segments.
fn attach(
    plan: &Plan,
    cluster: &mut Cluster,
    members: &[Member],
    random: &mut ChaCha8Rng,
) -> Result<Vec<PageIndex>, Finding> {
    let mut first_pages = Vec::new();
    for kind in &plan.kinds {
        first_pages.extend(attach_one(plan, *kind, cluster, members, random)?);
    }
    Ok(first_pages)
}

fn attach_one(
    plan: &Plan,
    kind: SegmentPages,
    cluster: &mut Cluster,
    members: &[Member],
    random: &mut ChaCha8Rng,
) -> Result<Vec<PageIndex>, Finding> {
    let SegmentPages { segment, size, policy } = kind;
    let named = Named { name: "simulated".into(), checkpoint: None, tells: false };
    let data = if plan.named && segment == FIRST { named.encode() } else { Vec::new() };
    let bytes = plan.partitions.iter().skip(usize::from(segment.0) * members.len());
    let bytes: Vec<u64> = bytes.take(members.len()).map(|pages| pages * PAGE as u64).collect();
    let pages: Vec<u64> = bytes.iter().map(|bytes| bytes.div_ceil(size.bytes().into())).collect();
    let attach = pages.iter().enumerate().map(|(rank, &pages)| {
        Ask::new(rank, move |wait| Request::Attach { pages, segment, size, policy, wait }, data.clone())
    });
    let answers = ask(plan, cluster, members, attach.collect(), random)?;
    let created: Vec<Created> = bytes
        .iter()
        .zip(&answers)
        .map(|(&bytes, answer)| Created {
            first: Attached::decode(answer).first,
            bytes,
            ..Created::default()
        })
        .collect();
    let words = created.iter().zip(&pages).flat_map(|(one, &pages)| [one.first.0, pages]);
    let words: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let tell = (0..members.len()).map(|rank| {
        let request = move |wait| Request::Partitions { segment, size, policy, first_rank: Rank(0), wait };
        Ask::new(rank, request, words.clone())
    });
    ask(plan, cluster, members, tell.collect(), random)?;
    for member in members {
        member.client.know_here(kind, Rank(0), &created).expect("a segment");
    }
    Ok(created.iter().map(|one| one.first).collect())
}

/// The collective end of a segment that nobody uses any more.
fn detach(
    plan: &Plan,
    segment: SegmentId,
    cluster: &mut Cluster,
    members: &[Member],
    random: &mut ChaCha8Rng,
) -> Result<(), Finding> {
    for member in members {
        member.client.leave(segment).map_err(|e| Finding::new("a rank cannot leave", e.to_string()))?;
    }
    for step in [Detach::Withdraw, Detach::Forget] {
        let asks = (0..members.len())
            .map(|rank| Ask::new(rank, move |wait| Request::Detach { segment, step, wait }, Vec::new()));
        ask(plan, cluster, members, asks.collect(), random)?;
    }
    Ok(())
}

/// Segments come and go: those behind the first are given up, nothing of them is left, and others in their place are zeros.
fn come_and_go(
    plan: &Plan,
    cluster: &mut Cluster,
    members: &[Member],
    random: &mut ChaCha8Rng,
) -> Result<(), Finding> {
    for kind in plan.kinds.iter().skip(1).rev() {
        detach(plan, kind.segment, cluster, members, random)?;
        // Or its number is used again at once.
        if plan.seed.is_multiple_of(2) {
            cluster.settle(members, plan.turns_max)?;
            invariant::check_at_rest(cluster)?;
            invariant::check_gone(cluster, kind)?;
        }
        attach_one(plan, *kind, cluster, members, random)?;
        let mut traffic = Traffic::new(&Plan { operations: 10, named: false, ..plan.clone() }, members);
        traffic.keep_to(kind.segment);
        drive(plan, cluster, &mut traffic, random)?;
        if let Some(error) = traffic.failures.first() {
            return Err(Finding::new("a segment that came again has failed", error.to_string()));
        }
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
    let pages = plan.partitions[owner as usize];
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
