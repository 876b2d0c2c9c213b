//! The store on std: sorted leaves in vectors, a shard for each thread.

use super::common::random::{Zipf, mix};
use super::common::{Outcome, Progress};
use super::workload::{Client, Kind, Plan, Report, Request, key_of, value_of};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

/// Most records of a leaf.
const LEAF: usize = 32;

/// A record.
#[derive(Clone, Copy)]
struct Record<const N: usize> {
    key: u64,
    value: [u8; N],
}

/// The records of a range of keys, in order.
struct Shard<const N: usize> {
    leaves: Vec<Leaf<N>>,
}

/// Some records that follow each other.
struct Leaf<const N: usize> {
    /// The first key that may be in it.
    first: u64,
    records: Vec<Record<N>>,
}

/// A client's requests to one shard, with the values to write.
struct Batch<const N: usize> {
    requests: Vec<Request>,
    values: Vec<[u8; N]>,
}

/// The values that answer a batch, and how many each request has.
struct Answers<const N: usize> {
    counts: Vec<u32>,
    values: Vec<[u8; N]>,
}

impl<const N: usize> Shard<N> {
    /// The records that a shard begins with.
    fn load(plan: &Plan, shard: usize) -> Self {
        let mut keys: Vec<u64> =
            (0..plan.records).map(key_of).filter(|key| plan.shard_of(*key) == shard).collect();
        keys.sort_unstable();
        let record = |key: &u64| Record { key: *key, value: value_of(*key, 0) };
        let leaf = |keys: &[u64]| Leaf { first: keys[0], records: keys.iter().map(record).collect() };
        let mut leaves: Vec<Leaf<N>> = keys.chunks(LEAF * 3 / 4).map(leaf).collect();
        if keys.is_empty() {
            leaves.push(Leaf { first: 0, records: Vec::new() });
        }
        Self { leaves }
    }

    /// The leaf in which a key is, or would be.
    fn leaf_of(leaves: &[Leaf<N>], key: u64) -> usize {
        leaves.partition_point(|leaf| leaf.first <= key).saturating_sub(1)
    }

    /// Writes a record that is there, or a new one: whether its leaf has too many then.
    fn put(leaf: &mut Vec<Record<N>>, key: u64, value: &[u8; N]) -> bool {
        let records = &mut leaf[..];
        match records.binary_search_by_key(&key, |record| record.key) {
            Ok(at) => records[at].value = *value,
            Err(at) => {
                leaf.push(Record { key, value: *value });
                leaf[at..].rotate_right(1);
            }
        }
        leaf.len() > LEAF
    }

    /// Makes two leaves of one.
    fn split(&mut self, at: usize) {
        let leaf = &mut self.leaves[at].records;
        let upper = leaf.split_off(LEAF / 2);
        self.leaves.push(Leaf { first: upper[0].key, records: upper });
        self.leaves[at + 1..].rotate_right(1);
    }

    /// Answers what a client has asked.
    fn serve(&mut self, asked: &Batch<N>) -> Answers<N> {
        let mut written = asked.values.iter().peekable();
        let (mut counts, mut values) = (Vec::new(), Vec::new());
        let mut leaves = &mut self.leaves[..];
        for request in asked.requests.iter() {
            let (key, before) = (request.key, values.len());
            let at = Self::leaf_of(leaves, key);
            match request.kind {
                Kind::Read | Kind::Modify => {
                    let records = &leaves[at].records[..];
                    let found = records.binary_search_by_key(&key, |record| record.key);
                    values.extend(found.map(|at| records[at].value));
                }
                Kind::Scan | Kind::Rest => {
                    let records = leaves[at..].iter().flat_map(|leaf| leaf.records.iter());
                    let from = records.skip_while(|record| record.key < key);
                    values.extend(from.take(request.count as usize).map(|record| record.value));
                }
                Kind::Update | Kind::Insert => {}
            }
            if let Some(value) = written.next_if(|_| request.kind.writes())
                && Self::put(&mut leaves[at].records, key, value)
            {
                self.split(at);
                leaves = &mut self.leaves[..];
            }
            counts.push((values.len() - before) as u32);
        }
        Answers { counts, values }
    }

    /// A number that tells other contents.
    fn digest(&self) -> u64 {
        self.leaves.iter().flat_map(|leaf| leaf.records.iter()).fold(0, |sum, record| {
            record.value.as_chunks::<8>().0.iter().fold(sum, |sum, word| mix(sum ^ u64::from_le_bytes(*word)))
        })
    }
}

/// A client hears its answers, and asks again: what it asks of each shard, and how much that is in all.
fn turn<const N: usize>(
    client: &mut Client,
    asked: &[Batch<N>],
    answers: &[Vec<Answers<N>>],
    plan: &Plan,
    number: usize,
) -> (Vec<Batch<N>>, u64) {
    let mut requests = vec![Vec::new(); plan.shards as usize];
    let mut values = vec![Vec::new(); plan.shards as usize];
    for (batch, answers) in asked.iter().zip(answers) {
        let Answers { counts, values } = &answers[number];
        let mut values = &values[..];
        for (request, count) in batch.requests.iter().zip(counts) {
            let (own, others) = values.split_at(*count as usize);
            values = others;
            if let Some((shard, rest)) = client.hear(plan, request, own) {
                requests[shard].push(rest);
            }
        }
    }
    client.ask(plan, |shard, request, version| {
        requests[shard].push(request);
        if request.kind.writes() {
            values[shard].push(value_of(request.key, version));
        }
    });
    let count = requests.iter().map(|requests| requests.len() as u64).sum();
    let all = requests.into_iter().zip(values);
    (all.map(|(requests, values)| Batch { requests, values }).collect(), count)
}

/// Joins all threads and returns their results.
fn joined<'scope, R>(all: impl Iterator<Item = ScopedJoinHandle<'scope, R>>) -> Outcome<Vec<R>> {
    let all: Vec<_> = all.collect();
    all.into_iter().map(|one| one.join().map_err(|_| "a thread has panicked".into())).collect()
}

/// Runs the plan, with a thread for each client, and for each shard.
pub fn run<const N: usize>(plan: &Plan, zipf: Zipf) -> Outcome<Report> {
    let shards = 0..plan.shards as usize;
    let mut clients: Vec<Client> = (0..plan.shards).map(|number| Client::new(plan, number, zipf)).collect();
    let mut store: Vec<Shard<N>> = thread::scope(|scope| {
        joined(shards.clone().map(|shard| scope.spawn(move || Shard::load(plan, shard))))
    })?;
    let mut asked: Vec<Vec<Batch<N>>> = shards.clone().map(|_| Vec::new()).collect();
    let mut answers: Vec<Vec<Answers<N>>> = Vec::new();
    let mut report = Report::default();
    let mut progress = Progress::new("requests", plan.rounds());
    loop {
        let began = Instant::now();
        let turns: Vec<(Vec<Batch<N>>, u64)> = thread::scope(|scope| {
            let answers = &answers;
            joined(clients.iter_mut().zip(&asked).enumerate().map(|(number, (client, asked))| {
                scope.spawn(move || turn(client, asked, answers, plan, number))
            }))
        })?;
        let count: u64 = turns.iter().map(|(_, count)| count).sum();
        asked = turns.into_iter().map(|(batches, _)| batches).collect();
        if count == 0 {
            break;
        }
        answers = thread::scope(|scope| {
            let asked = &asked;
            joined(store.iter_mut().enumerate().map(|(number, shard)| {
                scope.spawn(move || asked.iter().map(|batches| shard.serve(&batches[number])).collect())
            }))
        })?;
        report.seconds.push(began.elapsed().as_secs_f64());
        progress.step();
    }
    clients.iter().for_each(|client| report.add(client));
    let digests =
        thread::scope(|scope| joined(store.iter().map(|shard| scope.spawn(move || shard.digest()))))?;
    report.contents = digests.iter().fold(0, |sum, digest| mix(sum) ^ digest);
    Ok(report)
}
