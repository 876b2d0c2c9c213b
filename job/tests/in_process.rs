//! Jobs whose ranks are threads of this process.
//!
//! Goal: what `vgas_job::bootstrap` promises holds for them as for processes, by the suite that those pass, too
//! (`tests/job/good_jobs.rs`), and endpoints speak over what they are given.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use vgas_job::bootstrap::conformance::{CASES, Case, SEGMENT_BYTES};
use vgas_job::bootstrap::{Simulated, alone};
use vgas_job::{Membership, RunSpec};
use vgas_rma::conduit::tcp;
use vgas_rma::domain::RegionSpec;
use vgas_rma::endpoint::{Endpoint, EndpointSpec, Token};
use vgas_rma::message::{Arrived, Payload};
use vgas_rma::{Peer, Rank, RegionId, RmaError};

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(20);

fn spec(ranks: u32, nodes: u32, conduit: &str) -> RunSpec {
    let mut spec = RunSpec { nodes, conduit: conduit.into(), ..RunSpec::new("", ranks) };
    let segment = |rank| RegionSpec { owner: Peer(rank), region: RegionId::SEGMENT, bytes: SEGMENT_BYTES };
    spec.regions = (0..ranks).map(segment).collect();
    spec
}

/// Each rank in a thread of its own, which drops its membership at its end.
fn run(job: &mut Simulated, rank: impl Fn(Membership) + Sync) {
    let members: Vec<_> = job.ranks.drain(..).collect();
    std::thread::scope(|scope| members.into_iter().for_each(|member| drop(scope.spawn(|| rank(member)))));
}

fn conforms(case: &Case, spec: &RunSpec) {
    let mut job = Simulated::new(spec).unwrap();
    run(&mut job, |member| (case.rank)(&member));
    case.check(&job.status());
}

#[test]
fn simulated_ranks_conform() {
    for (ranks, nodes, conduit) in [(1, 1, "smp"), (4, 2, "smp"), (5, 3, tcp::NAME), (16, 4, "smp")] {
        for case in CASES.iter().filter(|case| case.ranks_min <= ranks) {
            println!("{ranks} ranks on {nodes} nodes over {conduit}: {}", case.name);
            conforms(case, &spec(ranks, nodes, conduit));
        }
    }
}

#[test]
fn one_alone_conforms() {
    for case in CASES.iter().filter(|case| case.ranks_min <= 1) {
        (case.rank)(&alone(&spec(1, 1, "smp")).unwrap());
    }
    assert!(matches!(alone(&spec(2, 1, "smp")), Err(RmaError::Refused(_))));
}

/// Who knows more is believed, also when heard later.
#[test]
fn a_reason_replaces_a_complaint() {
    let job = Simulated::new(&spec(2, 1, "smp")).unwrap();
    job.ranks[0].bootstrap.complain("lost rank 1", 3).unwrap();
    assert_eq!(job.status().message.unwrap(), "rank 0: lost rank 1");
    job.ranks[1].bootstrap.abort("the disk is full", 4).unwrap();
    assert_eq!((job.status().code, job.status().message.unwrap().as_str()), (4, "rank 1: the disk is full"));
}

/// A thread that panics is a rank that is gone: the others hear of it instead of waiting.
#[test]
fn a_rank_that_panics_ends_the_job() {
    let mut job = Simulated::new(&spec(3, 1, "smp")).unwrap();
    run(&mut job, |member| {
        if member.rank() == Some(Rank(1)) {
            let unwound = catch_unwind(AssertUnwindSafe(|| drop_in_panic(member)));
            assert!(unwound.is_err());
            return;
        }
        let waited = member.bootstrap.all_gather(b"");
        assert!(matches!(&waited, Err(RmaError::JobAborted(why)) if why.contains("rank 1 ")), "{waited:?}");
    });
    assert_eq!(job.status().code, 1);
}

fn drop_in_panic(_member: Membership) {
    std::panic::resume_unwind(Box::new(()))
}

/// An agent may end the job, and takes no part in what ranks do together.
#[test]
fn agents_only_end_jobs() {
    let job = Simulated::new(&spec(2, 2, "smp")).unwrap();
    let agent = &job.agents[1];
    assert_eq!(agent.place().layout.agent_of(agent.node()), agent.me());
    assert!(matches!(agent.bootstrap.all_gather(b""), Err(RmaError::Usage(_))));
    agent.bootstrap.finalize().unwrap();
    agent.bootstrap.abort("no disk", 5).unwrap();
    assert!(matches!(job.ranks[0].bootstrap.barrier(), Err(RmaError::JobAborted(_))));
    let status = job.status();
    assert_eq!((status.code, status.message.unwrap().as_str()), (5, "the agent of node 1: no disk"));
}

/// Every rank tells the next one its number, over shared memory and over sockets.
#[test]
fn endpoints_speak_over_what_threads_are_given() {
    const TELL: u8 = 128;
    const ANSWER: u8 = 129;
    for (nodes, conduit) in [(1, "smp"), (2, "smp"), (3, tcp::NAME)] {
        let mut job = Simulated::new(&spec(3, nodes, conduit)).unwrap();
        run(&mut job, |mut member| {
            let network = member.open_network(&()).unwrap();
            let (layout, me) = (member.layout().clone(), member.me());
            let ranks = layout.ranks();
            let domain = Some(member.domain.clone());
            let spec = EndpointSpec { layout, me, domain, network: network.clone() };
            let endpoint: Arc<Endpoint> = Endpoint::new(spec).unwrap();
            let (told, answers) = (Arc::new(AtomicU32::new(u32::MAX)), Arc::new(AtomicU32::new(0)));
            let (heard, counted) = (told.clone(), answers.clone());
            let hear = move |token: &Token<'_>, words: &[u32], _: Arrived<'_>| {
                heard.store(words[0], Ordering::Release);
                token.check(token.reply_short(ANSWER, &[]));
            };
            let count = move |_: &Token<'_>, _: &[u32], _: Arrived<'_>| counted.store(1, Ordering::Release);
            endpoint.register(TELL, hear).unwrap();
            endpoint.register(ANSWER, count).unwrap();
            endpoint.open();
            endpoint.request(Peer((me.0 + 1) % ranks), TELL, &[me.0], Payload::Short).unwrap();
            let done = || told.load(Ordering::Acquire) != u32::MAX && answers.load(Ordering::Acquire) == 1;
            assert!(endpoint.wait_until(Some(Instant::now() + TIMEOUT), done).unwrap());
            assert_eq!(told.load(Ordering::Acquire), (me.0 + ranks - 1) % ranks);
            member.bootstrap.finalize().unwrap();
            if let Some(network) = network {
                network.close(TIMEOUT);
            }
        });
        assert!(job.status().success());
    }
}
