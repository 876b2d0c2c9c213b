//! The global address space inside one process: ranks are threads, segments are plain memory. It is what the tests
//! and comparisons run on; it caches nothing and stores nothing.

use super::memory::{GlobalMemory, MemoryResult};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};

/// Properties of a job of threads.
#[derive(Clone, Copy, Debug)]
pub struct ThreadsSpec {
    /// Ranks, each a thread.
    pub ranks: usize,
    /// Bytes of every rank's segment.
    pub segment_bytes: u64,
    /// Page size to report.
    pub page_bytes: u64,
    /// Cache size to report; no cache exists.
    pub cache_bytes: u64,
    /// Threads each rank may compute with.
    pub threads: usize,
}

/// Runs `program` once a rank and returns the ranks' results in order. A rank that panics fails the others' next
/// barrier, and then the call.
///
/// # Panics
/// If a rank panicked.
pub fn run<T: Send>(spec: ThreadsSpec, program: impl Fn(&ThreadMemory<'_>) -> T + Sync) -> Vec<T> {
    let job = Job {
        spec,
        segments: (0..spec.ranks).map(|_| RwLock::new(vec![0; spec.segment_bytes as usize])).collect(),
        meeting: Mutex::new(Meeting::default()),
        met: Condvar::new(),
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..spec.ranks)
            .map(|rank| {
                let memory = ThreadMemory { rank, job: &job };
                let program = &program;
                scope.spawn(move || {
                    let _leaves = Leaves(memory.job);
                    program(&memory)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank panicked")).collect()
    })
}

struct Job {
    spec: ThreadsSpec,
    segments: Vec<RwLock<Vec<u8>>>,
    meeting: Mutex<Meeting>,
    met: Condvar,
}

/// The barrier: how many have come to the current round, and what the last round resulted in.
#[derive(Default)]
struct Meeting {
    round: u64,
    come: usize,
    left: usize,
    max: f64,
    sum: f64,
    result: (f64, f64),
}

/// A rank that has returned comes to no more barriers: the waiting ones are told.
struct Leaves<'job>(&'job Job);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.meeting.lock().unwrap_or_else(PoisonError::into_inner).left += 1;
        self.0.met.notify_all();
    }
}

/// One rank's view of a job of threads.
pub struct ThreadMemory<'job> {
    rank: usize,
    job: &'job Job,
}

impl ThreadMemory<'_> {
    /// A barrier that carries a number: the maximum and the sum over all ranks.
    fn meet(&self, value: f64) -> MemoryResult<(f64, f64)> {
        let mut meeting = self.job.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        (meeting.max, meeting.sum) = match meeting.come {
            0 => (value, value),
            _ => (meeting.max.max(value), meeting.sum + value),
        };
        meeting.come += 1;
        let round = meeting.round;
        if meeting.come == self.job.spec.ranks {
            meeting.result = (meeting.max, meeting.sum);
            meeting.round += 1;
            meeting.come = 0;
            self.job.met.notify_all();
        }
        while meeting.round == round {
            if meeting.left > 0 {
                return Err("another rank has left the job".into());
            }
            meeting = self.job.met.wait(meeting).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(meeting.result)
    }

    /// Returns the range of bytes in a segment, if it is inside.
    fn range(&self, rank: usize, offset: u64, bytes: usize) -> MemoryResult<std::ops::Range<usize>> {
        let end = offset.checked_add(bytes as u64).filter(|&end| end <= self.job.spec.segment_bytes);
        match end {
            Some(end) if rank < self.job.spec.ranks => Ok(offset as usize..end as usize),
            _ => Err(format!("{bytes} bytes at {offset} are outside of the segment of rank {rank}").into()),
        }
    }
}

impl GlobalMemory for ThreadMemory<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.job.spec.ranks
    }

    fn ranks_on_node(&self) -> usize {
        self.job.spec.ranks
    }

    fn threads(&self) -> usize {
        self.job.spec.threads
    }

    fn page_bytes(&self) -> u64 {
        self.job.spec.page_bytes
    }

    fn cache_bytes(&self) -> u64 {
        self.job.spec.cache_bytes
    }

    fn put(&self, rank: usize, offset: u64, bytes: &[u8]) -> MemoryResult<()> {
        let range = self.range(rank, offset, bytes.len())?;
        let mut segment = self.job.segments[rank].write().unwrap_or_else(PoisonError::into_inner);
        segment[range].copy_from_slice(bytes);
        Ok(())
    }

    fn get(&self, rank: usize, offset: u64, into: &mut [u8]) -> MemoryResult<()> {
        let range = self.range(rank, offset, into.len())?;
        let segment = self.job.segments[rank].read().unwrap_or_else(PoisonError::into_inner);
        into.copy_from_slice(&segment[range]);
        Ok(())
    }

    fn barrier(&self) -> MemoryResult<()> {
        self.meet(0.0).map(drop)
    }

    fn all_reduce_max(&self, value: f64) -> MemoryResult<f64> {
        self.meet(value).map(|(max, _)| max)
    }

    fn all_reduce_sum(&self, value: f64) -> MemoryResult<f64> {
        self.meet(value).map(|(_, sum)| sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: ThreadsSpec =
        ThreadsSpec { ranks: 3, segment_bytes: 64, page_bytes: 4096, cache_bytes: 1 << 20, threads: 1 };

    #[test]
    fn values_meet_and_bytes_arrive() {
        let results = run(SPEC, |memory| {
            let me = memory.rank();
            memory.put((me + 1) % 3, 8, &[me as u8; 4]).unwrap();
            let max = memory.all_reduce_max(me as f64).unwrap();
            let sum = memory.all_reduce_sum(me as f64 + 1.0).unwrap();
            let mut got = [9; 6];
            memory.get(me, 7, &mut got).unwrap();
            (max, sum, got)
        });
        let before = |rank: u8| (rank + 2) % 3;
        for (rank, result) in (0u8..).zip(results) {
            let b = before(rank);
            assert_eq!(result, (2.0, 6.0, [0, b, b, b, b, 0]));
        }
    }

    #[test]
    fn outside_of_a_segment_is_an_error_and_so_is_a_barrier_with_a_rank_that_left() {
        let results = run(SPEC, |memory| match memory.rank() {
            0 => memory.put(1, 61, &[0; 4]).unwrap_err().to_string(),
            _ => memory.barrier().unwrap_err().to_string(),
        });
        assert_eq!(results[0], "4 bytes at 61 are outside of the segment of rank 1");
        assert_eq!(results[1], "another rank has left the job");
    }
}
