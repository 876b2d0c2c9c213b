//! The store without ownership, for comparison: in a tiered segment whose pages are kept coherent, under a lock for each record; and in
//! hash maps of the ranks, with a message for each access. Clients and requests are the same.

use super::common::Outcome;
use super::common::random::{Zipf, mix};
use super::workload::{Client, Kind, Plan, Report, Request, key_of, value_of};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use vgas::{Arrived, GlobalAddress, Rank, Runtime, SegmentOptions};

/// Requests that a client has in flight at a time: more would wait in queues anyway.
const WINDOW: usize = 256;

/// The handlers of a request and of its answer; programs have the indices from 128 on.
const ASK: u8 = 128;
const ANSWER: u8 = 129;

/// The records of this rank.
static RECORDS: Mutex<Option<HashMap<u64, Vec<u8>>>> = Mutex::new(None);
/// Answers that have come, by the place of the request in its batch.
static ANSWERS: Mutex<Vec<(u32, Vec<u8>)>> = Mutex::new(Vec::new());

fn own<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // No thread panics while holding it.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a record, or writes it if there is something to write.
fn access(key: u64, write: &[u8]) -> Vec<u8> {
    let mut records = own(&RECORDS);
    match records.get_or_insert_default().get_mut(&key) {
        Some(record) if write.len() == record.len() => {
            record.copy_from_slice(write);
            Vec::new()
        }
        Some(record) => record.clone(),
        None => Vec::new(),
    }
}

/// The bytes of a message of at most so many as fit into one.
fn bytes_of(payload: Arrived<'_>) -> Option<&[u8]> {
    match payload {
        Arrived::Short => Some(&[]),
        Arrived::Medium(bytes) => Some(bytes.as_slice()),
        _ => None,
    }
}

/// Joins the job, with the handlers of a store that is asked by messages, if that is wanted.
pub fn join(is_delegated: bool) -> vgas::Result<Runtime> {
    if !is_delegated {
        return Runtime::init();
    }
    let ask = Runtime::builder().handler(ASK, |token, arguments, payload| {
        let (&[at, low, high], Some(write)) = (arguments, bytes_of(payload)) else {
            return token.refuse("a request of another form");
        };
        let found = access(u64::from(low) | u64::from(high) << 32, write);
        token.check(token.reply_medium(ANSWER, &[at], &found));
    });
    let answer = ask.handler(ANSWER, |token, arguments, payload| match (arguments, bytes_of(payload)) {
        (&[at], Some(found)) => own(&ANSWERS).push((at, found.to_vec())),
        _ => token.refuse("an answer of another form"),
    });
    answer.init()
}

/// Lets each rank's client ask, and adds up what they have seen; the report is the first rank's.
fn ask_all<const N: usize>(
    runtime: &Runtime,
    plan: &Plan,
    zipf: Zipf,
    mut serve: impl FnMut(&[(usize, Request, u64)]) -> Outcome<Vec<Option<[u8; N]>>>,
) -> Outcome<Option<Report>> {
    let mut client = Client::new(plan, u64::from(runtime.rank().0), zipf);
    let mut report = Report::default();
    runtime.barrier()?;
    for _ in 0..plan.rounds() {
        let began = Instant::now();
        let mut asked = Vec::new();
        client.ask(plan, |shard, request, version| asked.push((shard, request, version)));
        let answers = serve(&asked)?;
        for ((_, request, _), answer) in asked.iter().zip(&answers) {
            client.hear::<N>(plan, request, answer.as_slice());
        }
        runtime.barrier()?;
        report.seconds.push(began.elapsed().as_secs_f64());
    }
    report.add(&client);
    report.answered = runtime.all_reduce(client.answered, |a, b| a + b)?;
    report.wrong = runtime.all_reduce(client.wrong, |a, b| a + b)?;
    Ok((runtime.rank() == Rank(0)).then_some(report))
}

/// A value from its words.
fn value<const N: usize>(words: &[u64]) -> [u8; N] {
    let mut value = [0; N];
    value.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    value
}

fn words<const N: usize>(value: &[u8; N]) -> Vec<u64> {
    value.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// In pages that are kept coherent. A slot is a lock, a key, and the value.
pub fn coherent<const N: usize>(runtime: &Runtime, plan: &Plan, zipf: Zipf) -> Outcome<Option<Report>> {
    let me = runtime.rank().0 as usize;
    let slots = (plan.records * 2 / plan.shards).max(16).next_power_of_two();
    let slot_words = 2 + N / 8;
    let slot_of = |key: u64| mix(key) & (slots - 1);
    runtime.attach(&SegmentOptions::tiered(slots * slot_words as u64 * 8))?;
    let mut table = vec![0u64; slots as usize * slot_words];
    for key in (0..plan.records).map(key_of).filter(|key| plan.shard_of(*key) == me) {
        let mut slot = slot_of(key);
        while table[slot as usize * slot_words + 1] != 0 {
            slot = (slot + 1) & (slots - 1);
        }
        let at = slot as usize * slot_words;
        table[at + 1] = key;
        table[at + 2..at + slot_words].copy_from_slice(&words::<N>(&value_of(key, 0)));
    }
    runtime.put(GlobalAddress::tiered(Rank(me as u32), 0), &table)?;
    drop(table);
    let access = |shard: usize, request: &Request, version: u64| -> Outcome<Option<[u8; N]>> {
        let mut slot = slot_of(request.key);
        let mut found = vec![0u64; slot_words - 1];
        loop {
            let at =
                |word: u64| GlobalAddress::tiered(Rank(shard as u32), (slot * slot_words as u64 + word) * 8);
            let (write, read) = match request.kind.writes() {
                true => (Some(runtime.lock(at(0))?), None),
                false => (None, Some(runtime.lock_shared(at(0))?)),
            };
            runtime.get(at(1), &mut found)?;
            match found[0] == request.key {
                true if write.is_some() => {
                    runtime.put(at(2), &words::<N>(&value_of(request.key, version)))?
                }
                false if found[0] != 0 => {
                    slot = (slot + 1) & (slots - 1);
                    continue;
                }
                _ => {}
            }
            drop((write, read));
            let is_read = found[0] == request.key && request.kind != Kind::Update;
            return Ok(is_read.then(|| value(&found[1..])));
        }
    };
    ask_all(runtime, plan, zipf, |asked| {
        asked.iter().map(|(shard, request, version)| access(*shard, request, *version)).collect()
    })
}

/// With a message for each access of another rank's record, many of them in flight.
pub fn delegated<const N: usize>(runtime: &Runtime, plan: &Plan, zipf: Zipf) -> Outcome<Option<Report>> {
    let me = runtime.rank().0 as usize;
    let keys = (0..plan.records).map(key_of).filter(|key| plan.shard_of(*key) == me);
    *own(&RECORDS) = Some(keys.map(|key| (key, value_of::<N>(key, 0).to_vec())).collect());
    runtime.attach(&SegmentOptions::tiered(1 << 20))?;
    ask_all(runtime, plan, zipf, |asked| {
        let mut found: Vec<Option<[u8; N]>> = vec![None; asked.len()];
        let mut in_flight = 0;
        let hear = |found: &mut Vec<Option<[u8; N]>>, in_flight: &mut usize| {
            for (at, bytes) in own(&ANSWERS).drain(..) {
                *in_flight -= 1;
                if let (Some(place), Ok(value)) =
                    (found.get_mut(at as usize), <[u8; N]>::try_from(&bytes[..]))
                {
                    *place = Some(value);
                }
            }
        };
        for (at, (shard, request, version)) in asked.iter().enumerate() {
            let write = value_of::<N>(request.key, *version);
            let accesses: &[&[u8]] = match request.kind {
                Kind::Modify => &[&[], &write],
                Kind::Update => &[&write],
                _ => &[&[]],
            };
            for write in accesses {
                if *shard == me {
                    let value = access(request.key, write);
                    found[at] = value[..].try_into().ok().or(found[at]);
                    continue;
                }
                let key = [request.key as u32, (request.key >> 32) as u32];
                runtime.request(Rank(*shard as u32), ASK, &[at as u32, key[0], key[1]], write)?;
                in_flight += 1;
                if in_flight >= WINDOW {
                    runtime.wait_until(|| own(&ANSWERS).len() >= WINDOW / 2)?;
                    hear(&mut found, &mut in_flight);
                }
            }
        }
        runtime.wait_until(|| own(&ANSWERS).len() >= in_flight)?;
        hear(&mut found, &mut in_flight);
        Ok(found)
    })
}
