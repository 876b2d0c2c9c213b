//! Rounds of loads and stores over memory whose blocks carry their numbers: the same code for a segment and for a mapped file.
//!
//! # Rule for the unsafe code in this file
//!
//! Words are loaded and stored, as volatile, inside of the range that [`BlockMemory::new`] was given.

use crate::suite::job::Result;
use rand::SeedableRng;
use rand::seq::index;
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Bytes of a block: a page of the kernel's, whatever pages the segment has.
pub(super) const BLOCK_BYTES: usize = 4096;

/// Words of a block.
const WORDS: usize = BLOCK_BYTES / 8;

/// Most accesses between two looks at the clock; fewer where these take longer than [`LOOK`].
const CHUNK_MAX: usize = 512;
const CHUNK_MIN: usize = 8;
const LOOK: Duration = Duration::from_micros(50);

/// Most blocks in the order of one thread; it goes through them again until the round is over.
const ORDER_MAX: u32 = 1 << 20;

/// One access to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AccessKind {
    /// Loads a word.
    Load,
    /// Stores a word.
    Store,
    /// Loads a word and stores it.
    LoadStore,
    /// Loads all words.
    LoadAll,
    /// Stores all words.
    StoreAll,
}

/// The order of a round's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AccessOrder {
    /// By their numbers, from this access of each thread on.
    From(u64),
    /// A random permutation with this seed.
    Apart(u64),
}

/// A round of accesses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Round {
    pub access: AccessKind,
    pub order: AccessOrder,
    /// Blocks in use, from the memory's first on.
    pub blocks: u32,
    /// Distance between two accessed blocks, in blocks.
    pub stride: u32,
    /// Threads, each on a part of its own.
    pub threads: u32,
    /// Most accesses of all threads.
    pub accesses: u64,
    /// Time after which the round ends.
    pub time: Duration,
    /// Upper half of stored words.
    pub stamp: u32,
}

/// Accesses of a round, of all its threads, and the time that it took.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct RoundTime {
    pub accesses: u64,
    pub time: Duration,
}

impl RoundTime {
    /// Returns the time over the accesses of all threads, in nanoseconds.
    pub fn nanoseconds(&self) -> f64 {
        self.time.as_secs_f64() * 1e9 / self.accesses.max(1) as f64
    }
}

/// MeasuredMemory in blocks of [`BLOCK_BYTES`] whose words hold the block's number in their lower halves.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockMemory {
    base: *mut u8,
    blocks: u32,
    /// Called by each further thread before it begins.
    prepare: fn(),
}

// SAFETY: `new` asks for memory that all threads may use.
unsafe impl Sync for BlockMemory {}

impl BlockMemory {
    /// Takes the memory from `base` on.
    ///
    /// # Safety
    /// It is `blocks` blocks long, aligned to words, stays mapped as long as the result is used, and every thread may load and store
    /// words there. Nothing else of this process uses it meanwhile.
    pub unsafe fn new(base: *mut u8, blocks: u32, prepare: fn()) -> Self {
        Self { base, blocks, prepare }
    }

    /// Makes the accesses of a round.
    ///
    /// # Errors
    /// If a word does not hold its block's number, or one of the last stores is not there.
    pub fn run(&self, round: &Round) -> Result<RoundTime> {
        if round.blocks > self.blocks || round.threads == 0 || round.stride == 0 {
            return Err(format!("a round over {} blocks of {}", round.blocks, self.blocks).into());
        }
        let orders: Vec<Vec<u32>> = (0..round.threads).map(|thread| order(round, thread)).collect();
        if orders.iter().any(Vec::is_empty) {
            return Err("a round without blocks: take a larger cache".into());
        }
        let ready = Barrier::new(orders.len());
        let parts: Vec<Result<ThreadShare>> = std::thread::scope(|scope| {
            let [first, others @ ..] = &orders[..] else { return Vec::new() };
            let ready = &ready;
            let begin = others.iter().map(|order| {
                scope.spawn(move || {
                    (self.prepare)();
                    self.part(round, order, ready)
                })
            });
            let others: Vec<_> = begin.collect();
            let mut parts = vec![self.part(round, first, ready)];
            let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<ThreadShare>>| {
                thread.join().unwrap_or_else(|_| Err("a thread of a round panicked".into()))
            };
            parts.extend(others.into_iter().map(ended));
            parts
        });
        let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
        let start = parts.iter().map(|part| part.start).min();
        let end = parts.iter().map(|part| part.end).max();
        let time = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
        Ok(RoundTime { accesses: parts.iter().map(|part| part.accesses).sum(), time })
    }

    /// Makes the accesses of one thread.
    fn part(&self, round: &Round, order: &[u32], ready: &Barrier) -> Result<ThreadShare> {
        let share = round.accesses.div_ceil(u64::from(round.threads));
        let (mut accesses, mut at, mut lap, mut length) = (0, 0, 0, CHUNK_MIN);
        ready.wait();
        let start = Instant::now();
        let mut looked = start;
        let (end, last, salt) = loop {
            // Another word of each block with each lap.
            let salt = round.stamp.wrapping_add(lap).wrapping_mul(0x85eb_ca6b);
            let chunk = &order[at..order.len().min(at + length.min((share - accesses) as usize))];
            self.chunk(round, chunk, salt)?;
            accesses += chunk.len() as u64;
            at += chunk.len();
            if at == order.len() {
                (at, lap) = (0, lap + 1);
            }
            let now = Instant::now();
            if accesses >= share || now - start >= round.time {
                break (now, chunk, salt);
            }
            if now - looked < LOOK {
                length = CHUNK_MAX.min(2 * length);
            }
            looked = now;
        };
        if matches!(round.access, AccessKind::Store | AccessKind::LoadStore | AccessKind::StoreAll) {
            for &block in last {
                let (word, stored) = (word_of(block, salt), stamped(block, round.stamp));
                let found = self.load(block, word);
                if found != stored {
                    return Err(format!("word {word} of block {block} is {found:#x}, not {stored:#x}").into());
                }
            }
        }
        Ok(ThreadShare { accesses, start, end })
    }

    /// Makes one access to each block of a chunk.
    fn chunk(&self, round: &Round, chunk: &[u32], salt: u32) -> Result<()> {
        let stamp = round.stamp;
        let has_number = |block: u32, value: u64| value as u32 == block;
        let wrong = match round.access {
            AccessKind::Load => {
                chunk.iter().find(|&&block| !has_number(block, self.load(block, word_of(block, salt))))
            }
            AccessKind::Store => {
                for &block in chunk {
                    self.store(block, word_of(block, salt), stamped(block, stamp));
                }
                None
            }
            AccessKind::LoadStore => chunk.iter().find(|&&block| {
                let word = word_of(block, salt);
                let is_right = has_number(block, self.load(block, word));
                self.store(block, word, stamped(block, stamp));
                !is_right
            }),
            AccessKind::LoadAll => chunk.iter().find(|&&block| {
                let sum: u64 = (0..WORDS).map(|word| self.load(block, word) & u64::from(u32::MAX)).sum();
                sum != u64::from(block) * WORDS as u64
            }),
            AccessKind::StoreAll => {
                for &block in chunk {
                    (0..WORDS).for_each(|word| self.store(block, word, stamped(block, stamp)));
                }
                None
            }
        };
        match wrong {
            Some(block) => Err(format!("block {block} does not hold its number").into()),
            None => Ok(()),
        }
    }

    fn word(&self, block: u32, word: usize) -> *mut u64 {
        debug_assert!(block < self.blocks && word < WORDS);
        self.base.wrapping_add(block as usize * BLOCK_BYTES).cast::<u64>().wrapping_add(word)
    }

    fn load(&self, block: u32, word: usize) -> u64 {
        // SAFETY: the rule of this file: `order` has blocks of the round only, which `run` holds against the memory's.
        unsafe { self.word(block, word).read_volatile() }
    }

    fn store(&self, block: u32, word: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.word(block, word).write_volatile(value) }
    }
}

/// One thread's share of a round.
struct ThreadShare {
    accesses: u64,
    start: Instant,
    end: Instant,
}

/// Returns the value of a stored word.
pub(super) fn stamped(block: u32, stamp: u32) -> u64 {
    u64::from(stamp) << 32 | u64::from(block)
}

/// Chooses the word of a block to access. It differs from block to block, so that all sets of the processor's caches are used.
fn word_of(block: u32, salt: u32) -> usize {
    ((block ^ salt).wrapping_mul(0x9e37_79b1) >> (32 - WORDS.ilog2())) as usize
}

/// Returns the blocks of one thread in the order of a round, at most as many as it may access.
fn order(round: &Round, thread: u32) -> Vec<u32> {
    let units = round.blocks / round.stride / round.threads;
    let most = round.accesses.div_ceil(u64::from(round.threads)).min(u64::from(units.min(ORDER_MAX))) as u32;
    let block = |unit: u32| (thread * units + unit) * round.stride;
    match round.order {
        AccessOrder::From(_) if units == 0 => Vec::new(),
        AccessOrder::From(first) => {
            (0..u64::from(most)).map(|unit| block(((first + unit) % u64::from(units)) as u32)).collect()
        }
        AccessOrder::Apart(seed) => {
            let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed ^ u64::from(thread) << 48);
            index::sample(&mut random, units as usize, most as usize)
                .into_iter()
                .map(|unit| block(unit as u32))
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u32 = 64;

    fn filled() -> Vec<u64> {
        (0..BLOCKS).flat_map(|block| [stamped(block, 7); WORDS]).collect()
    }

    fn memory(words: &mut [u64]) -> BlockMemory {
        // SAFETY: the words outlive what the tests do with it, which use them by nothing else meanwhile.
        unsafe { BlockMemory::new(words.as_mut_ptr().cast(), BLOCKS, || ()) }
    }

    fn round(access: AccessKind, order: AccessOrder, threads: u32) -> Round {
        let time = Duration::from_secs(60);
        Round { access, order, blocks: BLOCKS, stride: 1, threads, accesses: 3 * 64, time, stamp: 9 }
    }

    /// Goal: threads go through all of their own parts, each block as often as the others, in both orders.
    #[test]
    fn orders_are_of_all_blocks_of_a_part() {
        for how in [AccessOrder::From(5), AccessOrder::Apart(1)] {
            let mut all: Vec<u32> =
                (0..2).flat_map(|thread| order(&round(AccessKind::Load, how, 2), thread)).collect();
            assert_ne!(all, (0..BLOCKS).collect::<Vec<_>>());
            all.sort_unstable();
            assert_eq!(all, (0..BLOCKS).collect::<Vec<_>>());
        }
        let pages = Round { stride: 16, ..round(AccessKind::Load, AccessOrder::From(0), 2) };
        assert_eq!([order(&pages, 0), order(&pages, 1)], [[0, 16], [32, 48]]);
        assert_eq!(order(&round(AccessKind::Load, AccessOrder::Apart(1), 1), 0).len(), 64);
        assert_ne!(
            order(&round(AccessKind::Load, AccessOrder::Apart(1), 1), 0),
            order(&round(AccessKind::Load, AccessOrder::Apart(2), 1), 0)
        );
    }

    /// Goal: every kind of access is made as often as asked for, and what is stored is there.
    #[test]
    fn rounds_load_and_store() {
        use AccessKind::{Load, LoadAll, LoadStore, Store, StoreAll};
        let mut words = filled();
        for access in [Load, LoadAll, Store, LoadStore, StoreAll] {
            for threads in [1, 2] {
                let taken = memory(&mut words).run(&round(access, AccessOrder::Apart(3), threads)).unwrap();
                assert_eq!(taken.accesses, 3 * 64, "{access:?}");
            }
        }
        assert!(words.iter().all(|word| word >> 32 == 9));
        let short = Round { time: Duration::ZERO, accesses: 1 << 20, ..round(Load, AccessOrder::From(0), 1) };
        assert_eq!(memory(&mut words).run(&short).unwrap().accesses, CHUNK_MIN as u64);
    }

    /// Goal: a value that is wrong is found, whichever access meets it.
    #[test]
    fn wrong_values_are_errors() {
        for access in [AccessKind::Load, AccessKind::LoadStore, AccessKind::LoadAll] {
            let mut words = filled();
            words[40 * WORDS..41 * WORDS].fill(stamped(39, 7));
            let error = memory(&mut words).run(&round(access, AccessOrder::Apart(3), 1)).unwrap_err();
            assert_eq!(error.to_string(), "block 40 does not hold its number");
        }
        let mut words = filled();
        let too_many = Round { blocks: BLOCKS + 1, ..round(AccessKind::Load, AccessOrder::From(0), 1) };
        assert!(memory(&mut words).run(&too_many).is_err());
    }
}
