//! Relaxed segments (docs/PROMISES.md, "Visibility"; vGASNet §II.C): ranks agree on their content at barriers, and under
//! locks, only.
//!
//! What that buys is *combining*: a put into a relaxed segment is complete when its bytes are copied here, and what is
//! put before the next [`Client::flush_relaxed`] travels together, one put for each run of neighbouring bytes. So
//! several writers of a page exchange it, or its bytes, once a barrier and not once a put, and only bytes that were
//! written travel: writers of different bytes of one page never undo each other's work. A rank sees its own puts at
//! once. Gets of bytes that are not combined here read the cluster's memory as always.
//!
//! Puts of at least a page are not combined: nothing would be saved.

use super::own::IoMode;
use super::{Client, Piece, Way};
use crate::error::CacheError;
use crate::partition::{Partition, PartitionId};
use crate::pool::Counter;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Combined bytes after which a put does not wait for the barrier: they are memory beyond the cache.
const COMBINED_BYTES_MAX: usize = 1 << 20;

/// Runs in flight at the same time while flushing.
const IN_FLIGHT_MAX: usize = 64;

/// The relaxed segments of a client, and what waits for the next barrier.
#[derive(Default)]
pub(super) struct RelaxedSegments {
    /// Whether anything is combined: gets look here first.
    any: AtomicBool,
    combined: Mutex<Combined>,
    /// Held while flushing, so that newer bytes never overtake older ones.
    flushing: Mutex<()>,
}

#[derive(Default)]
struct Combined {
    waiting: Runs,
    /// On their way: visible to this rank's gets until they are visible to all.
    flushed: Arc<Runs>,
}

/// Bytes of segments that were put, by their place: runs that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Runs {
    runs: BTreeMap<(PartitionId, u64), Vec<u8>>,
    bytes: usize,
}

impl Runs {
    /// The runs that overlap or touch `start..end` of a segment, by their starts.
    fn near(&self, owner: PartitionId, start: u64, end: u64) -> Vec<u64> {
        let upto = self.runs.range((owner, 0)..=(owner, end)).rev();
        let near = upto.take_while(|((_, at), run)| at + run.len() as u64 >= start);
        let mut starts: Vec<u64> = near.map(|((_, at), _)| *at).collect();
        starts.reverse();
        starts
    }

    /// Adds bytes, over what is there.
    fn put(&mut self, owner: PartitionId, start: u64, bytes: &[u8]) {
        let end = start + bytes.len() as u64;
        let near = self.near(owner, start, end);
        // The usual cases: inside of a run, or behind its end.
        if let [first] = near[..]
            && first <= start
            && let Some(run) = self.runs.get_mut(&(owner, first))
        {
            let at = (start - first) as usize;
            let inside = bytes.len().min(run.len() - at);
            run[at..at + inside].copy_from_slice(&bytes[..inside]);
            run.extend_from_slice(&bytes[inside..]);
            self.bytes += bytes.len() - inside;
            return;
        }
        let mut whole = (start, bytes.to_vec());
        for first in near {
            let Some(run) = self.runs.remove(&(owner, first)) else { continue };
            self.bytes -= run.len();
            if first < start {
                let mut longer = run[..(start - first) as usize].to_vec();
                longer.append(&mut whole.1);
                whole = (first, longer);
            }
            let whole_end = whole.0 + whole.1.len() as u64;
            if first + run.len() as u64 > whole_end {
                whole.1.extend_from_slice(&run[(whole_end - first) as usize..]);
            }
        }
        self.bytes += whole.1.len();
        self.runs.insert((owner, whole.0), whole.1);
    }

    /// Whether any byte of `start..end` is here.
    fn overlaps(&self, owner: PartitionId, start: u64, end: u64) -> bool {
        self.near(owner, start, end).iter().any(|&first| {
            let length = self.runs.get(&(owner, first)).map_or(0, Vec::len) as u64;
            first < end && first + length > start
        })
    }

    /// Calls `copy` with the place and the bytes of each piece that lies in `start..end`.
    fn pieces(&self, owner: PartitionId, start: u64, end: u64, mut copy: impl FnMut(u64, &[u8])) {
        for first in self.near(owner, start, end) {
            let Some(run) = self.runs.get(&(owner, first)) else { continue };
            let from = start.max(first);
            let upto = end.min(first + run.len() as u64);
            if from < upto {
                copy(from, &run[(from - first) as usize..(upto - first) as usize]);
            }
        }
    }
}

impl RelaxedSegments {
    fn combined(&self) -> MutexGuard<'_, Combined> {
        // No code that holds it can leave it half changed.
        self.combined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// Makes this rank's puts into relaxed segments visible everywhere; to be called before every barrier. Nothing to do
    /// without relaxed segments.
    ///
    /// # Errors
    /// The first error of a put; all have ended then.
    pub fn flush_relaxed(&self) -> Result<(), CacheError> {
        if !self.relaxed.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let _turn = self.relaxed.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        self.flush_now()
    }

    /// The part of an operation on a relaxed segment that is special. True: that was all of it.
    ///
    /// # Safety
    /// Rule 1 for the address in `way`.
    pub(super) unsafe fn relaxed_part(
        &self,
        partition: &Partition,
        piece: Piece,
    ) -> Result<bool, CacheError> {
        let (owner, Piece { offset, bytes, way }) = (partition.id(), piece);
        let end = offset + bytes as u64;
        match way {
            _ if bytes == 0 => Ok(true),
            Way::Put(from) if bytes < partition.size.bytes() as usize => {
                // SAFETY: rule 1, by the caller's promise; the source is private memory or, at worst, raced on by the
                // program, for which `shm::copy` is meant: so copied once, never looked at twice.
                let copy = unsafe { private_copy(from, bytes) };
                let full = {
                    let mut combined = self.relaxed.combined();
                    combined.waiting.put(owner, offset, &copy);
                    self.relaxed.any.store(true, Ordering::Release);
                    combined.waiting.bytes >= COMBINED_BYTES_MAX
                };
                self.pool.count(Counter::CombinedPuts, 1);
                // Somebody else's turn, or this thread's own below us (a handler put these bytes): it stays for later.
                if full && let Ok(_turn) = self.relaxed.flushing.try_lock() {
                    self.flush_now()?;
                }
                Ok(true)
            }
            // Older bytes must not come over these later.
            Way::Put(_) => {
                if self.overlaps(owner, offset, end) {
                    self.flush_relaxed()?;
                }
                Ok(false)
            }
            Way::Get(to) => {
                if !self.overlaps(owner, offset, end) {
                    return Ok(false);
                }
                // What is combined here is taken first: if it is flushed meanwhile, the get finds the same, or newer.
                let mut own = Vec::new();
                {
                    let combined = self.relaxed.combined();
                    for runs in [&*combined.flushed, &combined.waiting] {
                        runs.pieces(owner, offset, end, |at, piece| own.push((at, piece.to_vec())));
                    }
                }
                self.start_anywhere(*partition, piece, IoMode::Blocking)?.wait()?;
                for (at, piece) in own {
                    // SAFETY: rule 1; the piece lies inside of what was asked for.
                    unsafe {
                        to.add((at - offset) as usize).copy_from_nonoverlapping(piece.as_ptr(), piece.len())
                    };
                }
                Ok(true)
            }
        }
    }

    fn overlaps(&self, owner: PartitionId, start: u64, end: u64) -> bool {
        if !self.relaxed.any.load(Ordering::Acquire) {
            return false;
        }
        let combined = self.relaxed.combined();
        combined.waiting.overlaps(owner, start, end) || combined.flushed.overlaps(owner, start, end)
    }

    /// With the turn in hand.
    fn flush_now(&self) -> Result<(), CacheError> {
        let flushed = {
            let mut combined = self.relaxed.combined();
            combined.flushed = Arc::new(std::mem::take(&mut combined.waiting));
            combined.flushed.clone()
        };
        let result = self.put_runs(&flushed);
        let mut combined = self.relaxed.combined();
        combined.flushed = Arc::default();
        self.relaxed.any.store(!combined.waiting.runs.is_empty(), Ordering::Release);
        result
    }

    fn put_runs(&self, flushed: &Runs) -> Result<(), CacheError> {
        let mut result = Ok(());
        let mut runs = flushed.runs.iter().peekable();
        while runs.peek().is_some() {
            let mut in_flight = Vec::with_capacity(IN_FLIGHT_MAX);
            for ((owner, start), run) in runs.by_ref().take(IN_FLIGHT_MAX) {
                let Some(known) = self.check(*owner, *start, run.len() as u64)? else { continue };
                let piece = Piece { offset: *start, bytes: run.len(), way: Way::Put(run.as_ptr()) };
                match self.start_anywhere(known.partition, piece, IoMode::NonBlocking) {
                    Ok(put) => in_flight.push(put),
                    Err(error) => result = result.and(Err(error)),
                }
            }
            for put in in_flight {
                result = result.and(put.wait());
            }
        }
        self.pool.count(Counter::CombinedRuns, flushed.runs.len() as u64);
        result
    }
}

/// Bytes of the caller, in memory of our own.
///
/// # Safety
/// `from` is valid for reading `bytes` bytes.
unsafe fn private_copy(from: *const u8, bytes: usize) -> Vec<u8> {
    let mut copy = Vec::with_capacity(bytes);
    // SAFETY: the caller's promise; the capacity was just made, and exactly it is filled before it counts.
    unsafe {
        from.copy_to_nonoverlapping(copy.as_mut_ptr(), bytes);
        copy.set_len(bytes);
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_rma::address::Rank;

    fn of(rank: u32) -> PartitionId {
        Rank(rank).into()
    }

    /// Random puts into runs and into a plain array agree; runs never touch, and count their bytes.
    #[test]
    fn runs_behave_like_memory() {
        const BYTES: usize = 64;
        // A small congruential generator: any sequence will do.
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut model = [None; BYTES];
            let mut runs = Runs::default();
            for value in 1..=20u8 {
                let start = random(BYTES as u64);
                let length = 1 + random(12.min(BYTES as u64 - start));
                runs.put(of(1), start, &vec![value; length as usize]);
                model[start as usize..(start + length) as usize].fill(Some(value));
                runs.put(of(0), start, &[0xff]);
                check(&runs, &model);
            }
            let (from, upto) = (random(BYTES as u64), BYTES as u64);
            let mut seen = [None; BYTES];
            runs.pieces(of(1), from, upto, |at, piece| {
                piece.iter().zip(at as usize..).for_each(|(&byte, at)| seen[at] = Some(byte));
            });
            model[..from as usize].fill(None);
            assert_eq!(seen, model);
            assert_eq!(runs.overlaps(of(1), from, upto), model.iter().any(Option::is_some));
        }
    }

    fn check(runs: &Runs, model: &[Option<u8>]) {
        let mut seen = vec![None; model.len()];
        let mut last_end = None;
        for ((_, start), run) in runs.runs.range((of(1), 0)..) {
            assert!(last_end.is_none_or(|end| end < *start), "runs that touch: {runs:?}");
            last_end = Some(start + run.len() as u64);
            run.iter().zip(*start as usize..).for_each(|(&byte, at)| seen[at] = Some(byte));
        }
        assert_eq!(seen, model);
        assert_eq!(runs.bytes, runs.runs.values().map(Vec::len).sum::<usize>());
    }
}
