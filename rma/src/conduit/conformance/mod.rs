//! One suite for every conduit: tests the promises of [`super`] through endpoints, as all users see them.
//!
//! Peers are threads of one process, each with its endpoint. A [`Fabric`] connects them: implement it for a new conduit
//! and call [`run`] from a test. Every case prints its name first and ends within [`CASE_TIME_MAX`], by failing if need
//! be: a lost wake-up shows as a failure, not as a test that hangs.

#![allow(clippy::print_stdout)] // Of a test.

mod access;
mod atomics;
mod fabric;
mod further;
mod meeting;
mod messages;
mod trouble;

pub use access::{DIVIDED_WORDS, WHOLE_WORDS};
pub use fabric::{Fabric, HookedFabric, SimFabric, SmpFabric, SmpNetworkFabric, node_domains};

use crate::address::{Layout, Rank};
use crate::endpoint::Endpoint;
use crate::error::RmaError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A case that takes longer has lost something. Generous: machines are shared, and for ibv they may be emulated.
pub const CASE_TIME_MAX: Duration = Duration::from_secs(240);

/// Bytes of every rank's pinned segment.
pub const SEGMENT_BYTES: u64 = 8 << 20;

/// A named case.
pub type Case = (&'static str, fn(&dyn Fabric));

/// All cases.
pub fn cases() -> Vec<Case> {
    [messages::CASES, access::CASES, further::CASES, atomics::CASES, meeting::CASES, trouble::CASES].concat()
}

/// Runs every case.
///
/// # Panics
/// If a case fails.
pub fn run(fabric: &dyn Fabric) {
    run_those(fabric, cases());
}

/// Runs some of the [`cases`], but for those that a fabric leaves out.
///
/// # Panics
/// If a case fails.
pub fn run_those(fabric: &dyn Fabric, cases: impl IntoIterator<Item = Case>) {
    for (name, case) in cases {
        match fabric.excluded(name) {
            Some(reason) => println!("{}: {name}: left out: {reason}", fabric.name()),
            None => {
                println!("{}: {name}", fabric.name());
                case(fabric);
            }
        }
    }
}

/// A job of threads: one endpoint a peer.
struct Job {
    endpoints: Vec<Arc<Endpoint>>,
}

/// Fails all endpoints when a thread of the job panics, so that the others end, too.
struct EndAll<'a>(&'a [Arc<Endpoint>]);

impl Drop for EndAll<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for endpoint in self.0 {
                endpoint.fail(RmaError::JobAborted("another thread of the test panicked".into()));
            }
        }
    }
}

impl Job {
    /// Connects the peers and lets `register` add handlers to each endpoint; agents serve segments.
    fn new(fabric: &dyn Fabric, ranks: u32, register: impl Fn(&Arc<Endpoint>)) -> Self {
        let layout = fabric.layout(ranks);
        let endpoints: Vec<_> = fabric
            .connect(&layout, SEGMENT_BYTES)
            .into_iter()
            .map(|spec| Endpoint::new(spec).expect("an endpoint"))
            .collect();
        for endpoint in &endpoints {
            register(endpoint);
            if endpoint.rank().is_none() {
                endpoint.serve_segments().expect("an agent with a domain");
            }
            endpoint.open();
        }
        Self { endpoints }
    }

    fn layout(&self) -> &Layout {
        self.endpoints[0].layout()
    }

    /// Runs `main` as every rank, and agents beside them. Ranks meet at the end, so that each serves until all are done.
    fn run(&self, main: impl Fn(&Arc<Endpoint>, Rank) + Sync) {
        self.run_until_done(|endpoint, rank| {
            main(endpoint, rank);
            endpoint.barrier().expect("the last barrier");
        });
    }

    /// [`Job::run`] without the meeting: for cases after which an endpoint is of no more use.
    fn run_until_done(&self, main: impl Fn(&Arc<Endpoint>, Rank) + Sync) {
        let (ranks, agents) = self.endpoints.split_at(self.layout().ranks() as usize);
        let done = AtomicBool::new(false);
        let watched = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            for agent in agents {
                scope.spawn(|| {
                    let _end_all = EndAll(&self.endpoints);
                    // An agent whose endpoint fails is judged by the case.
                    let _ = agent.wait_until(None, || done.load(Ordering::SeqCst));
                });
            }
            scope.spawn(|| self.watch(&watched));
            let mains: Vec<_> = (0..)
                .map(Rank)
                .zip(ranks)
                .map(|(rank, endpoint)| {
                    let main = &main;
                    scope.spawn(move || {
                        let _end_all = EndAll(&self.endpoints);
                        main(endpoint, rank);
                    })
                })
                .collect();
            let results: Vec<_> = mains.into_iter().map(|main| main.join()).collect();
            done.store(true, Ordering::SeqCst);
            agents.iter().for_each(|agent| agent.notify_local());
            *watched.0.lock().expect("no panic under it") = true;
            watched.1.notify_all();
            if let Some(panic) = results.into_iter().find_map(Result::err) {
                std::panic::resume_unwind(panic);
            }
        });
    }

    fn watch(&self, (done, changed): &(Mutex<bool>, Condvar)) {
        let guard = done.lock().expect("no panic under it");
        let waited = changed.wait_timeout_while(guard, CASE_TIME_MAX, |done| !*done);
        if waited.expect("no panic under it").1.timed_out() {
            for endpoint in &self.endpoints {
                let what = format!("the case takes longer than {} s", CASE_TIME_MAX.as_secs());
                endpoint.fail(RmaError::JobAborted(what));
            }
        }
    }
}

/// Returns bytes that identify their place: every position and every salt gives others.
fn pattern(salt: u64, bytes: usize) -> Vec<u8> {
    let at = |index: usize| {
        ((index as u64).wrapping_mul(0x9E37_79B9).wrapping_add(salt.wrapping_mul(31)) >> 3) as u8
    };
    (0..bytes).map(at).collect()
}
