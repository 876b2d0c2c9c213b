//! The clients' requests and the checks of the answers: the same for all stores. The workloads are YCSB's A
//! to F (Cooper et al., *Benchmarking cloud serving systems with YCSB*).

use super::common::random::{Random, Zipf, mix};
use clap::ValueEnum;
use vgas_objects::{Portable, Shareable};

/// Most records of a scan.
const SCAN_MAX: u64 = 100;

/// Shares of the kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Portable, Shareable)]
pub enum Mix {
    /// Half reads, half updates
    A,
    /// 95 of 100 reads, the others updates
    B,
    /// Reads
    C,
    /// 95 of 100 reads of what was inserted last, the others inserts
    D,
    /// 95 of 100 scans of up to 100 records, the others inserts
    E,
    /// Half reads, half read-modify-writes
    F,
}

impl Mix {
    /// Number of read-only requests among 100.
    fn looks(self) -> u64 {
        match self {
            Mix::A | Mix::F => 50,
            Mix::B | Mix::D | Mix::E => 95,
            Mix::C => 100,
        }
    }
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Portable, Shareable)]
pub enum Kind {
    Read,
    Update,
    Insert,
    Scan,
    /// The rest of a scan that reached the end of a shard.
    Rest,
    Modify,
}

impl Kind {
    pub fn writes(self) -> bool {
        matches!(self, Self::Update | Self::Insert | Self::Modify)
    }
}

/// A request to a shard. The value to write travels beside it.
#[derive(Clone, Copy, Debug, Portable, Shareable)]
pub struct Request {
    pub kind: Kind,
    /// Length of a scan in records.
    pub count: u32,
    pub key: u64,
}

/// Size of a run.
#[derive(Clone, Copy, Debug, Portable, Shareable)]
pub struct Plan {
    pub mix: Mix,
    pub records: u64,
    pub operations: u64,
    /// Requests that a client has in flight at a time.
    pub batch: u64,
    /// As many as clients.
    pub shards: u64,
    pub seed: u64,
}

impl Plan {
    /// As many batches of each client as there are, without those for rests of scans.
    pub fn rounds(&self) -> u64 {
        self.operations.div_ceil(self.batch * self.shards)
    }

    /// Returns the shard of a key: each has a range of keys.
    pub fn shard_of(&self, key: u64) -> usize {
        ((u128::from(key) * u128::from(self.shards)) >> 64) as usize
    }

    /// The first key of a shard.
    fn first_of(&self, shard: usize) -> u64 {
        ((shard as u128) << 64).div_ceil(u128::from(self.shards)) as u64
    }
}

/// The key of a record's number: in no order.
pub fn key_of(number: u64) -> u64 {
    mix(number)
}

/// A record's value: its key, a version, and what these mean.
pub fn value_of<const N: usize>(key: u64, version: u64) -> [u8; N] {
    let mut value = [0; N];
    let words = value.as_chunks_mut::<8>().0;
    words.iter_mut().zip(0u64..).for_each(|(word, at)| {
        let number = match at {
            0 => key,
            1 => version,
            _ => (key ^ version.rotate_left(at as u32)).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        *word = number.to_le_bytes();
    });
    value
}

/// The version of a value that is one of this key; none if it is not.
pub fn version_in<const N: usize>(key: u64, value: &[u8; N]) -> Option<u64> {
    let version = u64::from_le_bytes(*value.as_chunks::<8>().0.get(1)?);
    (*value == value_of(key, version)).then_some(version)
}

/// A client, which asks for any key.
#[derive(Clone, Copy, Debug, Portable, Shareable)]
pub struct Client {
    number: u64,
    random: Random,
    zipf: Zipf,
    inserted: u64,
    /// Requests still to send.
    left: u64,
    /// Answers that it has had.
    pub answered: u64,
    /// Those that were wrong.
    pub wrong: u64,
    /// Digest of all versions read, in their order.
    pub read: u64,
}

impl Client {
    pub fn new(plan: &Plan, number: u64, zipf: Zipf) -> Self {
        let left = plan.operations / plan.shards + u64::from(number < plan.operations % plan.shards);
        let random = Random::new(plan.seed, number);
        Self { number, random, zipf, inserted: 0, left, answered: 0, wrong: 0, read: 0 }
    }

    /// Asks as much as it may at a time: the shard, the request, and the version of what is to be written.
    pub fn ask(&mut self, plan: &Plan, mut ask: impl FnMut(usize, Request, u64)) {
        for _ in 0..plan.batch.min(self.left) {
            self.left -= 1;
            let is_look = self.random.below(100) < plan.mix.looks();
            let kind = match plan.mix {
                _ if is_look && plan.mix == Mix::E => Kind::Scan,
                _ if is_look => Kind::Read,
                Mix::D | Mix::E => Kind::Insert,
                Mix::F => Kind::Modify,
                _ => Kind::Update,
            };
            let key = key_of(self.number_for(plan, kind));
            let count = if kind == Kind::Scan { 1 + self.random.below(SCAN_MAX) as u32 } else { 1 };
            ask(plan.shard_of(key), Request { kind, count, key }, self.random.bits());
        }
    }

    /// Draws the record for a request.
    fn number_for(&mut self, plan: &Plan, kind: Kind) -> u64 {
        let own = |nth: u64| plan.records + nth * plan.shards + self.number;
        if kind == Kind::Insert {
            self.inserted += 1;
            return own(self.inserted - 1);
        }
        let rank = self.zipf.draw(&mut self.random);
        match plan.mix {
            // The last that it has inserted, or that were there, are the likeliest.
            Mix::D if rank < self.inserted => own(self.inserted - 1 - rank),
            Mix::D => plan.records - 1 - (rank - self.inserted).min(plan.records - 1),
            // Popular ones are spread over all.
            _ => mix(rank) % plan.records,
        }
    }

    /// Looks at the values that have answered a request: yields what is still to be asked, of which shard.
    pub fn hear<const N: usize>(
        &mut self,
        plan: &Plan,
        asked: &Request,
        values: &[[u8; N]],
    ) -> Option<(usize, Request)> {
        let is_scan = matches!(asked.kind, Kind::Scan | Kind::Rest);
        let mut least = asked.key;
        let mut is_right =
            is_scan || values.len() == usize::from(matches!(asked.kind, Kind::Read | Kind::Modify));
        for value in values {
            let key =
                if is_scan { u64::from_le_bytes(*value.first_chunk().unwrap_or(&[0; 8])) } else { asked.key };
            let version = version_in(key, value);
            is_right &= version.is_some() && key >= least;
            least = key;
            self.read =
                (self.read ^ version.unwrap_or(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
        self.answered += u64::from(asked.kind != Kind::Rest);
        self.wrong += u64::from(!is_right);
        let next = plan.shard_of(asked.key) + 1;
        let missing = (asked.count as usize).saturating_sub(values.len());
        (is_scan && missing > 0 && next < plan.shards as usize)
            .then(|| (next, Request { kind: Kind::Rest, count: missing as u32, key: plan.first_of(next) }))
    }
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Seconds of each batch.
    pub seconds: Vec<f64>,
    pub answered: u64,
    pub wrong: u64,
    /// Digest of all clients' reads, in their order.
    pub read: u64,
    /// Digest of the store's final content.
    pub contents: u64,
}

impl Report {
    /// Adds what a client has seen.
    pub fn add(&mut self, client: &Client) {
        self.answered += client.answered;
        self.wrong += client.wrong;
        self.read = mix(self.read) ^ client.read;
    }

    pub fn total_seconds(&self) -> f64 {
        self.seconds.iter().sum()
    }
}
