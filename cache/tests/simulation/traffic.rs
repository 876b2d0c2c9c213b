//! What the ranks do: gets, puts, prefetches and checkpoints drawn at random, several at a time, advanced without
//! waiting.

use super::Finding;
use super::cluster::Member;
use super::model::{Model, Place};
use super::plan::{PAGE, Plan};
use super::pointers::Pointers;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use vgas_cache::client::{Pending, PendingUpdates, SegmentUpdate};
use vgas_cache::page::PageInSegment;
use vgas_cache::partition::{PartitionId, SegmentId};
use vgas_cache::pool::{INLINE_BYTES, WaitId, WaitStatus};
use vgas_cache::request::{Request, handler};
use vgas_cache::{CacheError, Failure};
use vgas_rma::address::Rank;
use vgas_rma::conduit::Sent;
use vgas_rma::message::{Payload, Source};
use vgas_shm::Change;

/// The segment that has a name, if one has.
pub const FIRST: SegmentId = SegmentId::FIRST;

/// A get or put in flight.
struct Op {
    rank: usize,
    // Before the bytes it uses: dropped first.
    pending: Pending,
    place: Place,
    content: Box<[u8]>,
    /// Of a get.
    least: Option<Vec<u32>>,
}

/// Additions to tallies in flight.
struct Additions<'c> {
    rank: usize,
    pending: PendingUpdates<'c>,
    /// Owners and pages.
    to: Vec<(u32, u64)>,
}

/// A request to the agent that moves no bytes, as `Client::attach` and others make it, without their waiting.
pub struct Ask {
    rank: usize,
    request: Box<dyn Fn(WaitId) -> Request>,
    data: Vec<u8>,
    wait: Option<WaitId>,
    sent: bool,
    /// What came with the end.
    pub answer: [u8; INLINE_BYTES],
}

impl Ask {
    pub fn new(rank: usize, request: impl Fn(WaitId) -> Request + 'static, data: Vec<u8>) -> Self {
        Self { rank, request: Box::new(request), data, wait: None, sent: false, answer: [0; INLINE_BYTES] }
    }

    /// How it ended, if it has.
    pub fn test(&mut self, members: &[Member]) -> Result<Option<Result<(), Failure>>, CacheError> {
        let member = &members[self.rank];
        if self.wait.is_none() {
            self.wait = member.pool.begin_wait(1);
        }
        let Some(wait) = self.wait else { return Ok(None) };
        if !self.sent {
            let payload =
                if self.data.is_empty() { Payload::Short } else { Payload::Medium(Source::of(&self.data)) };
            let words = (self.request)(wait).encode();
            let sent = member.endpoint.try_request(member.agent, handler::REQUEST, &words, payload)?;
            self.sent = sent == Sent::Accepted;
        }
        let outcome = match member.pool.wait_status(wait) {
            WaitStatus::Pending(_) => return Ok(None),
            WaitStatus::Done => Ok(()),
            WaitStatus::Failed { code, .. } => Err(Failure::from_code(code)),
        };
        member.pool.read_answer(wait, &mut self.answer);
        member.pool.end_wait(wait);
        Ok(Some(outcome))
    }
}

/// A checkpoint of a rank's segment in progress.
struct Saving {
    ask: Ask,
    step: Step,
    /// What it must save at least.
    least: Vec<Vec<u32>>,
    /// In steps: whether it will be kept.
    commit: bool,
    /// The first failure.
    failed: Option<Failure>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// In one request, of this segment by itself.
    Alone,
    /// As one of the job's: cached pages are brought to NVMe, it is prepared, concluded.
    Clean,
    Prepare,
    Conclude,
}

/// What the ranks do and have done.
pub struct Traffic<'c> {
    members: &'c [Member],
    pub model: Model,
    ops: Vec<Op>,
    additions: Vec<Additions<'c>>,
    /// Checkpoints in progress, maybe several of one rank.
    checkpoints: Vec<Saving>,
    /// The next identity of a checkpoint in steps.
    identity: u64,
    /// Checkpoints that have ended well: whose, and what it must have saved, by page.
    pub saved: Vec<(u32, Vec<Vec<u32>>)>,
    /// What owners do by pointers.
    pointers: Option<Pointers>,
    left: u32,
    at_once: usize,
    /// Partitions that are used.
    used: std::ops::Range<u32>,
    named: bool,
    /// A node was cut off: ranks may fail.
    is_cut_off: bool,
    /// Ends of operations in failure, which the plan's misfortune must explain.
    pub failures: Vec<CacheError>,
    pub completed: u32,
}

impl Drop for Traffic<'_> {
    fn drop(&mut self) {
        // Dropping an operation waits for it, and nobody else runs: let the waiting end at once.
        if !self.ops.is_empty() {
            for member in self.members {
                member.endpoint.fail(vgas_rma::RmaError::Usage("the simulation has ended".into()));
            }
        }
    }
}

impl<'c> Traffic<'c> {
    pub fn new(plan: &Plan, members: &'c [Member]) -> Self {
        Self {
            members,
            model: Model::new(plan),
            ops: Vec::new(),
            additions: Vec::new(),
            checkpoints: Vec::new(),
            identity: 1,
            saved: Vec::new(),
            pointers: plan.pointers.then(|| Pointers::new(plan, members)),
            left: plan.operations,
            at_once: plan.operations_at_once,
            used: 0..plan.partitions.len() as u32,
            named: plan.named,
            is_cut_off: false,
            failures: Vec::new(),
            completed: 0,
        }
    }

    /// From now on uses one segment only.
    pub fn keep_to(&mut self, segment: SegmentId) {
        let ranks = self.members.len() as u32;
        let first = u32::from(segment.0) * ranks;
        self.used = first..first + ranks;
        self.pointers = None;
    }

    /// Whether everything has been done and has ended.
    pub fn is_over(&self) -> bool {
        let pointers = self.pointers.as_ref().is_none_or(Pointers::is_over);
        self.left == 0
            && self.ops.is_empty()
            && self.additions.is_empty()
            && self.checkpoints.is_empty()
            && pointers
    }

    /// A node was cut off: nothing new begins, and what is in flight may fail.
    pub fn is_cut_off(&mut self) {
        (self.left, self.is_cut_off) = (0, true);
    }

    /// A rank does something, or an operation goes on.
    pub fn turn(&mut self, random: &mut ChaCha8Rng) -> Result<(), Finding> {
        let rank = random.random_range(0..self.members.len());
        match random.random_range(0..8) {
            0 => match self.members[rank].poll() {
                Err(error) if !self.is_cut_off => Err(Finding::new("a rank has failed", error.to_string())),
                _ => Ok(()),
            },
            1 => self.begin(rank, random),
            2 if !self.checkpoints.is_empty() => {
                let index = random.random_range(0..self.checkpoints.len());
                self.go_on_with_checkpoint(index)
            }
            5 if !self.additions.is_empty() => {
                let index = random.random_range(0..self.additions.len());
                self.go_on_with_additions(index)
            }
            3 | 4 if self.pointers.is_some() => {
                let Some(pointers) = &mut self.pointers else { return Ok(()) };
                let failed = pointers.turn(rank, &self.members[rank], &mut self.model, random)?;
                self.failures.extend(failed);
                Ok(())
            }
            _ if self.ops.is_empty() => Ok(()),
            _ => {
                let index = random.random_range(0..self.ops.len());
                self.go_on(index)
            }
        }
    }

    fn begin(&mut self, rank: usize, random: &mut ChaCha8Rng) -> Result<(), Finding> {
        let adds = self.additions.iter().filter(|additions| additions.rank == rank).count();
        let busy = self.ops.iter().filter(|op| op.rank == rank).count() + adds;
        if self.left == 0 || busy >= self.at_once {
            return Ok(());
        }
        self.left -= 1;
        match random.random_range(0..16) {
            0 => {
                if let Some(place) = self.draw_get(random) {
                    let bytes = place.bytes.end - place.bytes.start;
                    let client = &self.members[rank].client;
                    client
                        .prefetch(self.partition(place.owner), place.bytes.start, bytes)
                        .map_err(|e| Finding::new("a prefetch has failed", e.to_string()))?;
                }
                Ok(())
            }
            1 if self.named => {
                // Two of one rank meet more often than chance would have it.
                let rank = self.checkpoints.first().map_or(rank, |saving| saving.ask.rank);
                // The job makes one in steps at a time.
                let in_steps = |saving: &Saving| saving.ask.rank == rank && saving.step != Step::Alone;
                let step = if self.checkpoints.iter().any(in_steps) || random.random() {
                    Step::Alone
                } else {
                    Step::Clean
                };
                if self.checkpoints.len() < 3 {
                    let least = self.model.begin_save(rank as u32);
                    let ask = match step {
                        Step::Alone => {
                            Ask::new(rank, |wait| Request::Checkpoint { segment: FIRST, wait }, Vec::new())
                        }
                        _ => Ask::new(rank, |wait| Request::Clean { segment: FIRST, wait }, Vec::new()),
                    };
                    let commit = random.random_range(0..4) > 0;
                    self.checkpoints.push(Saving { ask, step, least, commit, failed: None });
                }
                Ok(())
            }
            2..5 if self.model.draw_tally(&self.used, random).is_some() => self.add(rank, random),
            2..9 => match self.draw_get(random) {
                Some(place) => self.get(rank, place),
                None => Ok(()),
            },
            _ => match self.model.draw_put(rank as u32, &self.used, random) {
                Some(place) => self.put(rank, place),
                None => Ok(()),
            },
        }
    }

    fn partition(&self, number: u32) -> PartitionId {
        let ranks = self.members.len() as u32;
        (SegmentId((number / ranks) as u16), Rank(number % ranks)).into()
    }

    fn draw_get(&self, random: &mut ChaCha8Rng) -> Option<Place> {
        let owner = random.random_range(self.used.clone());
        let limit = self.model.segment_bytes(owner);
        if limit == 0 {
            return None;
        }
        let start = random.random_range(0..limit);
        let (start, most) = match random.random_range(0..4) {
            0 => (start, 1),
            1 => (start / 8 * 8, 64),
            2 => (start, 2 * PAGE as u64),
            _ => (start / PAGE as u64 * PAGE as u64, [1, 2, 4, 6][random.random_range(0..4)] * PAGE as u64),
        };
        Some(Place { owner, bytes: start..(start + most).min(limit) })
    }

    /// Starts a get.
    pub fn get(&mut self, rank: usize, place: Place) -> Result<(), Finding> {
        let mut content = vec![0; (place.bytes.end - place.bytes.start) as usize].into_boxed_slice();
        let least = Some(self.model.begin_get(&place));
        let (to, bytes) = (content.as_mut_ptr(), content.len());
        // SAFETY: the bytes stay where they are in `Op`, untouched, until the operation has ended.
        let pending = unsafe {
            self.members[rank].client.get_nb(self.partition(place.owner), place.bytes.start, to, bytes)
        };
        self.started(rank, pending, place, content, least)
    }

    /// Starts one or a few additions, some of them to the same word.
    fn add(&mut self, rank: usize, random: &mut ChaCha8Rng) -> Result<(), Finding> {
        let count = [1, 1, 2, 12][random.random_range(0..4)];
        let to: Vec<(u32, u64)> =
            (0..count).filter_map(|_| self.model.draw_tally(&self.used, random)).collect();
        let updates: Vec<SegmentUpdate> = to
            .iter()
            .map(|&(owner, page)| SegmentUpdate {
                of: self.partition(owner),
                offset: page * PAGE as u64,
                update: Change::Add(1u64).into(),
            })
            .collect();
        to.iter().for_each(|&(owner, page)| self.model.begin_addition(owner, page));
        match self.members[rank].client.start_updates(&updates) {
            Ok(pending) => self.additions.push(Additions { rank, pending, to }),
            Err(error) => self.failures.push(error),
        }
        Ok(())
    }

    fn go_on_with_additions(&mut self, index: usize) -> Result<(), Finding> {
        let outcome = match self.additions[index].pending.test() {
            Ok(false) => return Ok(()),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        let Additions { pending, to, .. } = self.additions.swap_remove(index);
        self.completed += 1;
        if let Err(error) = outcome {
            self.failures.push(error);
            return Ok(());
        }
        for (number, (&(owner, page), &was)) in to.iter().zip(pending.were()).enumerate() {
            self.model.end_addition(owner, page, was)?;
            let later = to.iter().zip(pending.were()).skip(number + 1);
            if later.clone().any(|(to, &later)| *to == (owner, page) && later <= was) {
                return Err(Finding::new(
                    "additions of one list took turns",
                    format!("page {page} of segment {owner}"),
                ));
            }
        }
        Ok(())
    }

    /// Starts a put.
    pub fn put(&mut self, rank: usize, place: Place) -> Result<(), Finding> {
        let content = self.model.begin_put(&place);
        let (from, bytes) = (content.as_ptr(), content.len());
        // SAFETY: as for a get.
        let pending = unsafe {
            self.members[rank].client.put_nb(self.partition(place.owner), place.bytes.start, from, bytes)
        };
        self.started(rank, pending, place, content, None)
    }

    fn started(
        &mut self,
        rank: usize,
        pending: Result<Pending, CacheError>,
        place: Place,
        content: Box<[u8]>,
        least: Option<Vec<u32>>,
    ) -> Result<(), Finding> {
        match pending {
            Ok(pending) => self.ops.push(Op { rank, pending, place, content, least }),
            Err(error) => {
                if least.is_none() {
                    self.model.end_put(&place, false);
                }
                self.failures.push(error);
            }
        }
        Ok(())
    }

    fn go_on(&mut self, index: usize) -> Result<(), Finding> {
        let outcome = match self.ops[index].pending.test() {
            Ok(false) => return Ok(()),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        let Op { place, content, least, .. } = self.ops.swap_remove(index);
        self.completed += 1;
        match (least, outcome) {
            (Some(least), Ok(())) => self.model.end_get(&place, &least, &content)?,
            (None, outcome) => {
                self.model.end_put(&place, outcome.is_ok());
                self.failures.extend(outcome.err());
            }
            (Some(_), Err(error)) => self.failures.push(error),
        }
        Ok(())
    }

    fn go_on_with_checkpoint(&mut self, index: usize) -> Result<(), Finding> {
        let saving = &mut self.checkpoints[index];
        let rank = saving.ask.rank;
        let ended = match saving.ask.test(self.members) {
            Err(error) if self.is_cut_off => {
                self.checkpoints.swap_remove(index);
                self.failures.push(error);
                return Ok(());
            }
            other => other.map_err(|e| Finding::new("a rank has failed", e.to_string()))?,
        };
        let Some(outcome) = ended else { return Ok(()) };
        saving.failed = saving.failed.or(outcome.err());
        match saving.step {
            Step::Clean if saving.failed.is_none() => {
                let identity = self.identity;
                self.identity += 1;
                saving.step = Step::Prepare;
                saving.ask = Ask::new(
                    rank,
                    move |wait| Request::Prepare { segment: FIRST, identity, wait },
                    Vec::new(),
                );
                return Ok(());
            }
            // Also one that could not be prepared.
            Step::Prepare => {
                let commit = saving.commit && saving.failed.is_none();
                saving.commit = commit;
                saving.step = Step::Conclude;
                saving.ask = Ask::new(
                    rank,
                    move |wait| Request::Conclude { segment: FIRST, commit, wait },
                    Vec::new(),
                );
                return Ok(());
            }
            _ => {}
        }
        let Saving { step, least, commit, failed, .. } = self.checkpoints.swap_remove(index);
        let owner = rank as u32;
        match failed {
            None if step == Step::Alone || commit => self.saved.push((owner, least)),
            None => {}
            Some(reason) => self.failures.push(CacheError::Page {
                owner: Rank(owner).into(),
                page: PageInSegment(0),
                reason,
                place: String::new(),
            }),
        }
        Ok(())
    }

    /// For people: what is in flight.
    pub fn describe(&self) -> String {
        let ops = self.ops.iter().map(|op| {
            let what = if op.least.is_some() { "get" } else { "put" };
            format!("rank {}: {what} of {:?}", op.rank, op.place)
        });
        let additions =
            self.additions.iter().map(|one| format!("rank {}: additions to {:?}", one.rank, one.to));
        let pointers = self.pointers.as_ref().map_or_else(String::new, Pointers::describe);
        let checkpoints = self.checkpoints.iter().map(|saving| {
            let Saving { ask, step, commit, failed, .. } = saving;
            format!("rank {}: checkpoint, {step:?} (commit {commit}, {failed:?})", ask.rank)
        });
        ops.chain(additions).chain(checkpoints).chain([pointers]).collect::<Vec<_>>().join("; ")
    }
}
