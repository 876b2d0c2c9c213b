//! A whole job within one process: a thread a rank, for tests; and the job of one rank.
//!
//! Results depend on the ranks' calls, not on which thread comes first. Only which of several ranks that end
//! the job in the same way is named does: the first.

#![forbid(unsafe_code)]

use super::{Bootstrap, End, Identity, check_share, for_ranks_only, out_of_step};
use crate::lock::lock;
use crate::membership::Membership;
use crate::message::{Exit, RankExit};
use crate::verdict::{Cause, Verdict};
use crate::{EXIT_GRACE, JobStatus, OUT_OF_STEP, RunSpec, listen};
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use vgas_rma::address::{Layout, NodeId, Peer, Rank};
use vgas_rma::domain::Domain;
use vgas_rma::error::{Result, RmaError};
use vgas_rma::key::JobKey;

/// A job of threads of this process.
#[derive(Debug)]
pub struct Simulated {
    /// Membership of each rank, by rank. Dropped before the rank has finalised, it ends the job, as a process
    /// that exits does.
    pub ranks: Vec<Membership>,
    /// Membership of each node's agent, by node.
    pub agents: Vec<Membership>,
    job: Arc<Job>,
}

/// The job of one rank that this process is by itself, of `spec` whatever is not about processes. It has a
/// pinned segment if `spec` asks for one, and no agent, which tiered ones need.
///
/// # Errors
/// [`RmaError::Refused`] when `spec` makes no sense or has several ranks; when the system refuses shared memory.
pub fn alone(spec: &RunSpec) -> Result<Membership> {
    let mut job = Simulated::new(spec)?;
    let one = job.ranks.pop().filter(|_| job.ranks.is_empty());
    let one = one.ok_or_else(|| RmaError::Refused("who is alone is one rank".into()))?;
    one.layout().name_peers();
    Ok(one)
}

impl Simulated {
    /// Makes a job of `spec`, without its parts about processes (programs, hosts, output).
    ///
    /// # Errors
    /// [`RmaError::Refused`] when `spec` makes no sense; when the system refuses shared memory or a listener.
    pub fn new(spec: &RunSpec) -> Result<Self> {
        let layout = spec.check()?;
        let key = JobKey::generate()?;
        let job = Arc::new(Job::new(layout.clone()));
        let nodes = || (0..layout.nodes()).map(NodeId);
        let domains: Vec<Arc<Domain>> = if spec.one_domain() {
            let shared = Arc::new(Domain::create(spec.domain(&layout, None))?);
            nodes().map(|_| shared.clone()).collect()
        } else {
            let domain = |node| Ok(Arc::new(Domain::create(spec.domain(&layout, Some(node)))?));
            nodes().map(domain).collect::<Result<_>>()?
        };
        let listeners = spec.listen().map(|listen| listen::bind(&listen, layout.peers() as usize));
        let listeners = listeners.transpose()?.unwrap_or_default();
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>();
        let addresses = addresses.map_err(|e| RmaError::io("learn the address of a listener", e))?;
        let mut listeners = listeners.into_iter();
        let mut members: Vec<Membership> = (0..layout.peers())
            .map(Peer)
            .map(|me| Membership {
                bootstrap: Arc::new(InProcess {
                    place: Identity { layout: layout.clone(), me },
                    job: job.clone(),
                    turn: Mutex::default(),
                }),
                key: key.clone(),
                conduit: spec.conduit.clone(),
                settings: spec.settings.clone(),
                domain: domains[layout.node_of_peer(me).0 as usize].clone(),
                listener: listeners.next(),
                addresses: addresses.clone(),
            })
            .collect();
        let agents = members.split_off(layout.ranks() as usize);
        Ok(Self { ranks: members, agents, job })
    }

    /// Returns the status that a launcher would report if the job ended now.
    pub fn status(&self) -> JobStatus {
        let state = lock(&self.job.state);
        match state.exit_code() {
            Some(code) if !state.verdict.failed() => JobStatus { code, message: None },
            _ => state.verdict.status(),
        }
    }
}

/// State shared by the ranks of a job.
#[derive(Debug)]
struct Job {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// By rank.
    ranks: Vec<Progress>,
    /// Completed all-gathers, and the result of the last.
    rounds: u64,
    gathered: Arc<Vec<Vec<u8>>>,
    verdict: Verdict,
}

/// Progress of a rank.
#[derive(Clone, Debug, Default)]
struct Progress {
    contribution: Option<Vec<u8>>,
    finalised: bool,
    exits: Option<u8>,
    gone: bool,
}

impl Job {
    fn new(layout: Layout) -> Self {
        let ranks = vec![Progress::default(); layout.ranks() as usize];
        let nodes = layout.nodes();
        let mut verdict = Verdict::new(layout);
        (0..nodes).for_each(|node| verdict.set_host(NodeId(node), listen::host()));
        let state = State { ranks, rounds: 0, gathered: Arc::default(), verdict };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits for a condition, which the end of the job is, too.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        mut until: impl FnMut(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>> {
        let waits = |state: &mut State| state.why_ended().is_none() && !until(state);
        Ok(self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&self, state: &mut State, cause: Cause) {
        state.verdict.add(cause);
        self.changed.notify_all();
    }
}

impl State {
    /// Returns the reason why no rank continues, once the job is being ended.
    fn why_ended(&self) -> Option<RmaError> {
        if self.verdict.failed() {
            return Some(RmaError::JobAborted(self.verdict.status().message.unwrap_or_default()));
        }
        self.exit_code().map(|code| RmaError::JobAborted(format!("a rank exits with {code}")))
    }

    /// The status of the ranks that exit, if some do: one that is not 0 counts.
    fn exit_code(&self) -> Option<u8> {
        let codes = || self.ranks.iter().filter_map(|rank| rank.exits);
        codes().find(|&code| code != 0).or_else(|| codes().next())
    }
}

/// One rank or agent.
#[derive(Debug)]
struct InProcess {
    place: Identity,
    job: Arc<Job>,
    /// Keeps collective calls of several threads apart.
    turn: Mutex<()>,
}

impl InProcess {
    fn index(&self) -> Option<usize> {
        self.place.rank().map(|rank| rank.0 as usize)
    }

    /// Ends the job because this rank and another do different things.
    fn out_of_step(&self, state: &mut State) -> RmaError {
        let (from, message) = (self.place.me, OUT_OF_STEP.to_owned());
        self.job.end(state, Cause::Abort { from, message, code: 1, is_complaint: false });
        out_of_step()
    }
}

impl Bootstrap for InProcess {
    fn place(&self) -> &Identity {
        &self.place
    }

    fn all_gather(&self, contribution: &[u8]) -> Result<Vec<Vec<u8>>> {
        let index = self.index().ok_or_else(for_ranks_only)?;
        check_share(contribution, self.place.layout.ranks())?;
        let _turn = lock(&self.turn);
        let mut state = lock(&self.job.state);
        if let Some(error) = state.why_ended() {
            return Err(error);
        }
        if state.ranks.iter().any(|rank| rank.finalised) {
            return Err(self.out_of_step(&mut state));
        }
        let round = state.rounds;
        state.ranks[index].contribution = Some(contribution.to_vec());
        if state.ranks.iter().all(|rank| rank.contribution.is_some()) {
            let all = state.ranks.iter_mut().filter_map(|rank| rank.contribution.take()).collect();
            state.gathered = Arc::new(all);
            state.rounds += 1;
            self.job.changed.notify_all();
        }
        let state = self.job.wait(state, |state| state.rounds > round)?;
        // The next round is complete only when this rank has taken part in it, too.
        match state.rounds > round {
            true => Ok(state.gathered.to_vec()),
            false => Err(state.why_ended().unwrap_or_else(out_of_step)),
        }
    }

    fn declare_end(&self) -> Result<()> {
        let Some(index) = self.index() else { return Ok(()) };
        let _turn = lock(&self.turn);
        let mut state = lock(&self.job.state);
        if let Some(error) = state.why_ended() {
            return Err(error);
        }
        if state.ranks.iter().any(|rank| rank.contribution.is_some()) {
            return Err(self.out_of_step(&mut state));
        }
        state.ranks[index].finalised = true;
        self.job.changed.notify_all();
        let all = |state: &State| state.ranks.iter().all(|rank| rank.finalised);
        let state = self.job.wait(state, all)?;
        match all(&state) {
            true => Ok(()),
            false => Err(state.why_ended().unwrap_or_else(out_of_step)),
        }
    }

    fn exit(&self, code: u8) -> Result<()> {
        let Some(index) = self.index() else { return Ok(()) };
        let mut state = lock(&self.job.state);
        state.ranks[index].exits.get_or_insert(code);
        self.job.changed.notify_all();
        if self.turn.try_lock().is_err() {
            return Err(out_of_step());
        }
        // Threads cannot be ended: ranks that have not followed until then are left behind.
        let until = Instant::now() + EXIT_GRACE;
        while !state.verdict.failed() && state.ranks.iter().any(|rank| rank.exits.is_none() && !rank.gone) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.job.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        match state.verdict.failed() {
            true => Err(state.why_ended().unwrap_or_else(out_of_step)),
            false => Ok(()),
        }
    }

    fn end(&self, End { message, code, is_complaint }: End) -> Result<()> {
        let mut state = lock(&self.job.state);
        // As of processes: a job that exits is not ended for what its ranks see of each other then.
        if state.exit_code().is_none() {
            self.job.end(&mut state, Cause::Abort { from: self.place.me, message, code, is_complaint });
        }
        Ok(())
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let Some(index) = self.index() else { return };
        let mut state = lock(&self.job.state);
        state.ranks[index].gone = true;
        let is_missed = !state.ranks[index].finalised && state.why_ended().is_none();
        if is_missed {
            let (rank, pid) = (Rank(index as u32), std::process::id());
            let exit =
                RankExit { rank, pid, exit: Exit::Code(0), joined: true, finalised: false, by_itself: true };
            state.verdict.add(Cause::Left(exit));
        }
        self.job.changed.notify_all();
    }
}
