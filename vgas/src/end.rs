//! The end of a rank's part of the job.

use crate::error::Result;
use crate::runtime::Runtime;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use vgas_rma::{NodeId, Rank, RmaError};

impl Runtime {
    /// Ends this rank's part of the job. Collective; returns when all ranks have called it. Prints the job's counters on rank 0 as
    /// `stats.print` says. No-op the second time.
    ///
    /// The memory of segments stays readable in this process as long as handles exist, but nothing travels any more: calls that
    /// need another process fail, and parts that were open by pointers are closed.
    ///
    /// # Errors
    /// If a peer is lost; not in a job that continues without it (setting `run.survive`).
    pub fn finalize(&self) -> Result<()> {
        let mut ending = self.ending().lock().unwrap_or_else(PoisonError::into_inner);
        if ending.has_ended {
            return Ok(());
        }
        // The last library stands on those before.
        while let Some(finalizer) = ending.finalizers.pop() {
            finalizer()?;
        }
        match self.barrier().and_then(|()| self.print_statistics()) {
            Err(_) if self.endpoint().has_lost() => self.meet_survivors()?,
            met => met?,
        }
        // Operations whose handles the program has forgotten may be about its segments.
        self.endpoint().end_background();
        let have_met = *self.meeting().lock().unwrap_or_else(PoisonError::into_inner);
        match self.segments().close_local() {
            // In jobs that other starters have started, agents may have gone when all ranks have met.
            Err(_) if have_met => {}
            closed => closed?,
        }
        self.client().set_local(Vec::new());
        self.endpoint().set_absent(std::ptr::null(), 0);
        if !have_met {
            self.bootstrap().declare_end()?;
        }
        self.bootstrap().depart();
        self.network().close();
        self.endpoint()
            .fail(RmaError::Usage("the runtime was finalized: this process has left its job".into()));
        ending.has_ended = true;
        Ok(())
    }

    /// Has [`Runtime::finalize`] call a library's work first, before work that was registered earlier. Collective like the work.
    pub fn on_finalize(&self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        self.ending().lock().unwrap_or_else(PoisonError::into_inner).finalizers.push(Box::new(work));
    }

    /// Announces that this rank is about to leave a job that has lost a node, and answers messages until all ranks that are left have
    /// done so: a loss does not end all ranks' waits at the same moment, and a rank that has not heard of it may still ask this one.
    /// All of this rank works meanwhile, and, except for its agent, when this returns. No-op the second time.
    /// [`Runtime::finalize`] calls it; a library that ends something of its own before calls it first.
    ///
    /// # Errors
    /// If the job is being ended, and if this rank cannot wait for messages any more.
    pub fn meet_survivors(&self) -> Result<()> {
        let mut has_met_survivors = self.meeting().lock().unwrap_or_else(PoisonError::into_inner);
        if *has_met_survivors {
            return Ok(());
        }
        let have_met = AtomicBool::new(false);
        let meet = || {
            let met = self.bootstrap().declare_end();
            have_met.store(true, Ordering::Release);
            self.endpoint().notify_local();
            met
        };
        let serve = || self.endpoint().wait_until(None, || have_met.load(Ordering::Acquire));
        std::thread::scope(|scope| {
            let meeting = std::thread::Builder::new().name("vgas-leaves".into()).spawn_scoped(scope, meet);
            // Without a thread, requests are not answered meanwhile.
            let Ok(meeting) = meeting else { return meet() };
            let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
            // Ranks with a request to this one would wait for ever, and it for them.
            let complaint = match &served {
                Ok(Ok(_)) => None,
                Ok(Err(why)) => Some(why.to_string()),
                Err(_) => Some("a handler has panicked while this rank was leaving".to_owned()),
            };
            complaint.into_iter().for_each(|why| drop(self.bootstrap().complain(&why, 1)));
            let met = meeting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            served.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(drop).and(met)
        })?;
        *has_met_survivors = true;
        Ok(())
    }

    /// The nodes that are lost, in the order in which they were, if the job continues without them (setting
    /// `run.survive`). Operations on a lost node end with
    /// [`RmaError::PeerLost`](vgas_rma::RmaError::PeerLost), and so do barriers and collectives of all ranks,
    /// from then on.
    pub fn lost_nodes(&self) -> Vec<NodeId> {
        self.endpoint().lost_nodes()
    }

    /// Returns true if a rank is of a lost node.
    #[inline]
    pub fn is_lost(&self, rank: Rank) -> bool {
        self.endpoint().is_gone(self.layout().peer_of_rank(rank))
    }

    /// Ends the whole job with this line and exit status.
    pub fn abort(&self, message: &str, code: u8) -> Result<()> {
        Ok(self.bootstrap().abort(message, code)?)
    }

    /// Like [`Runtime::abort`], for an observation of other processes: see
    /// [`Bootstrap::complain`](vgas_job::Bootstrap::complain).
    pub fn complain(&self, message: &str, code: u8) -> Result<()> {
        Ok(self.bootstrap().complain(message, code)?)
    }

    /// Ends the whole job with this exit status, whatever the other ranks do: see [`Bootstrap::exit`](vgas_job::Bootstrap::exit). The caller exits
    /// with the same status when it returns, an error or not.
    pub fn exit(&self, code: u8) -> Result<()> {
        self.bootstrap().exit(code)?;
        self.network().close();
        Ok(())
    }
}
