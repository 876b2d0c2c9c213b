//! A warehouse in three segments, each with pages and a policy that suit it: small records that are read and written at random, locks
//! and counters that never leave their homes, and a journal that is written once, from one end to the other. Orders are taken under
//! a record's lock and counted by atomic updates; how much is left is counted by a service at the homes, where the records are.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run --own-nodes -n 4 --nodes 2 -- target/release/examples/warehouse`

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use vgas::service::{Call, Failure, Home, Service, Services};
use vgas::{NodeId, Operator, Rank, Runtime, Segment, SegmentId, SegmentOptions};

/// Articles of each rank, and how many of each there are at first.
const ARTICLES: u64 = 4096;
const STOCK: u64 = 3;

/// Orders of each rank, and bytes of a line of its journal.
const ORDERS: u64 = 4000;
const LINE: usize = 32;

/// Counts what the homes of a node have in stock.
#[derive(Default)]
struct Count {
    next: u64,
    in_flight: HashMap<u64, (Call, Counted)>,
    /// By ticket: for which of them a rank's records are read.
    reads: HashMap<u64, u64>,
}

/// Number of the segment of records.
#[derive(Serialize, Deserialize)]
struct Records(u16);

/// Articles left in all parts of the node; none if one could not be read.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Counted {
    left: Option<u64>,
    unread: usize,
}

impl Service for Count {
    type Request = Records;
    type Answer = Counted;
    const NAME: &'static str = "example.count";

    fn called(&mut self, call: Call, Records(segment): Records, home: &mut Home<'_, Self>) {
        let ranks = home.layout().ranks_of(home.node());
        let number = self.next;
        self.in_flight.insert(number, (call, Counted { left: Some(0), unread: ranks.len() }));
        for rank in ranks.map(Rank) {
            self.next += 1;
            self.reads.insert(self.next, number);
            home.read((SegmentId(segment), rank), 0, (ARTICLES * 8) as u32, self.next);
        }
    }

    fn done(&mut self, ticket: u64, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        let Some(number) = self.reads.remove(&ticket) else { return };
        let Some((_, counted)) = self.in_flight.get_mut(&number) else { return };
        let words = result
            .ok()
            .map(|bytes| bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).sum::<u64>());
        counted.left = counted.left.zip(words).map(|(left, here)| left + here);
        counted.unread -= 1;
        if counted.unread == 0
            && let Some((call, counted)) = self.in_flight.remove(&number)
        {
            home.answer(call, &counted);
        }
    }
}

fn main() -> vgas::Result<()> {
    vgas::service::serve_node(|| Services::default().with(Count::default()));
    let runtime = Runtime::init()?;
    // A page is what travels: small ones for records at random. All ranks may have copies.
    let records = runtime.attach(&SegmentOptions::tiered(ARTICLES * 8).page_size(4 << 10))?;
    // All ranks change them in turn, so they stay at home. A lock for each article; behind them, how many
    // orders were taken.
    let counts = SegmentOptions::tiered(0).page_size(4 << 10).home_only(true).weight(4);
    let counts = runtime.attach(&counts.sized(ARTICLES * 8 + 8))?;
    // Written once, in order: it leaves the cache first, and others hear of it at the next barrier.
    let journal = SegmentOptions::tiered(0).page_size(64 << 10).relaxed(true).streamed(true);
    let journal = runtime.attach(&journal.sized(ORDERS * LINE as u64))?;

    let own: Vec<u8> = (0..ARTICLES).flat_map(|_| STOCK.to_le_bytes()).collect();
    runtime.put(records.address(runtime.rank(), 0), &own)?;
    runtime.barrier()?;
    let taken = take_orders(&runtime, &records, &counts, &journal)?;
    runtime.barrier()?;
    tell(&runtime, &records, &counts, &journal, taken)?;

    for segment in [journal, counts, records] {
        segment.detach()?;
    }
    runtime.finalize()
}

/// Takes orders of articles at random, as long as there are some; how many.
fn take_orders(
    runtime: &Runtime,
    records: &Segment,
    counts: &Segment,
    journal: &Segment,
) -> vgas::Result<u64> {
    let me = runtime.rank();
    let (mut random, mut taken) = (0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(me.0) + 1), 0);
    for _ in 0..ORDERS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (owner, article) = (Rank((random >> 32) as u32 % runtime.ranks()), random % ARTICLES);
        let record = records.address(owner, article * 8);
        let guard = runtime.lock(counts.address(owner, article * 8))?;
        let left: u64 = runtime.get_value(record)?;
        if left > 0 {
            runtime.put_value(record, left - 1)?;
        }
        drop(guard);
        if left > 0 {
            runtime.fetch_add(counts.address(owner, ARTICLES * 8), 1)?;
            let line = format!("{owner} {article:>10}\n");
            runtime.put(journal.address(me, taken * LINE as u64), line.as_bytes())?;
            taken += 1;
        }
    }
    Ok(taken)
}

/// Looks whether everything fits together, from everywhere: what is left, what was counted, and what the journals say.
fn tell(
    runtime: &Runtime,
    records: &Segment,
    counts: &Segment,
    journal: &Segment,
    taken: u64,
) -> vgas::Result<()> {
    let mut sums = [taken];
    runtime.world()?.all_reduce(&mut sums, Operator::Sum)?;
    if runtime.rank() == Rank(0) {
        let count = |node| runtime.call::<Count>(node, &Records(records.id().0));
        let nodes = (0..runtime.layout().nodes()).map(NodeId);
        let left = nodes.map(count).collect::<vgas::Result<Vec<_>>>()?;
        let left: Option<u64> = left.into_iter().map(|counted| counted.left).sum();
        let (mut counted, mut lines) = (0, 0);
        let mut text = vec![0; (ORDERS * LINE as u64) as usize];
        for rank in (0..runtime.ranks()).map(Rank) {
            counted += runtime.get_value::<u64>(counts.address(rank, ARTICLES * 8))?;
            runtime.get(journal.address(rank, 0), &mut text)?;
            lines += text.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        let all = u64::from(runtime.ranks()) * ARTICLES * STOCK;
        let fits = left.is_some_and(|left| left + counted == all) && [counted, lines] == [sums[0]; 2];
        let verdict = if fits { "and it fits together" } else { "WHICH DOES NOT FIT TOGETHER" };
        let left = left.unwrap_or_default();
        vgas::print(format_args!(
            "{counted} of {all} articles ordered, {left} left, {lines} lines, {verdict}\n"
        ))?;
    }
    runtime.barrier()
}
