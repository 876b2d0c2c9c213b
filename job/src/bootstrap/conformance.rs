//! One suite for every [`Bootstrap`](super::Bootstrap): its promises, as the ranks of a job see them, and its
//! starter's report afterwards.
//!
//! Every rank of a job runs [`Case::rank`] with its membership; the starter of the job then checks its status
//! against [`Case::check`]. Each rank needs a segment ([`RegionId::SEGMENT`]) of [`SEGMENT_BYTES`].

#![forbid(unsafe_code)]

use crate::Membership;
use crate::{JobStatus, OUT_OF_STEP};
use vgas_rma::address::{Peer, Rank, RegionId};
use vgas_rma::error::RmaError;

/// Bytes of every rank's segment.
pub const SEGMENT_BYTES: u64 = 4096;

/// One promise.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Least number of ranks.
    pub ranks_min: u32,
    /// Body of each rank. It panics when the promise is not kept, and returns when the rank is to end with 0.
    pub rank: fn(&Membership),
    /// The exit status of the job, and the content of its line; none: the job prints nothing.
    status: (u8, Option<&'static str>),
}

/// All of them.
pub const CASES: &[Case] = &[
    Case { name: "everybody_has_a_place", ranks_min: 1, rank: everybody_has_a_place, status: (0, None) },
    Case { name: "gathers_are_by_rank", ranks_min: 1, rank: gathers_are_by_rank, status: (0, None) },
    Case { name: "barriers_order", ranks_min: 1, rank: barriers_order, status: (0, None) },
    Case { name: "too_much_is_refused", ranks_min: 1, rank: too_much_is_refused, status: (0, None) },
    Case {
        name: "several_threads_may_call",
        ranks_min: 1,
        rank: several_threads_may_call,
        status: (0, None),
    },
    Case { name: "an_abort_ends_all", ranks_min: 1, rank: an_abort_ends_all, status: (9, Some(ROTTEN)) },
    Case {
        name: "who_knows_is_believed",
        ranks_min: 2,
        rank: who_knows_is_believed,
        status: (9, Some(ROTTEN)),
    },
    Case { name: "all_exit_with_a_status", ranks_min: 1, rank: all_exit_with_a_status, status: (7, None) },
    Case {
        name: "who_is_missed_is_named",
        ranks_min: 2,
        rank: who_is_missed_is_named,
        status: (1, Some(LEFT)),
    },
    Case {
        name: "out_of_step_is_told",
        ranks_min: 2,
        rank: out_of_step_is_told,
        status: (1, Some(OUT_OF_STEP)),
    },
];

const ROTTEN: &str = "something is rotten";
const LEFT: &str = "rank 0 ";

impl Case {
    /// Holds how the job ended against what was promised.
    ///
    /// # Panics
    /// If they differ.
    pub fn check(&self, status: &JobStatus) {
        let (code, said) = self.status;
        let message = status.message.as_deref();
        let is_said = said.is_none_or(|said| message.is_some_and(|message| message.contains(said)));
        assert!(
            status.code == code && is_said && said.is_some() == message.is_some(),
            "{}: {status:?}",
            self.name
        );
    }
}

fn everybody_has_a_place(member: &Membership) {
    let place = member.place();
    let rank = place.rank().expect("a rank");
    assert_eq!(place.layout.peer_of_rank(rank), place.me);
    assert!(place.layout.contains(place.me) && place.mates().contains(&rank.0));
    assert_eq!(place.is_first_of_node(), place.layout.ranks_of(place.node()).start == rank.0);
    assert!(member.domain.member_index(place.me).is_some(), "a member of its domain");
    // All see the same job.
    let own = [rank.0, place.node().0, place.layout.ranks(), place.layout.nodes()];
    let own: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
    let all = member.bootstrap.all_gather(&own).expect("an exchange");
    for (other, said) in (0..).map(Rank).zip(all) {
        let seen = [other.0, place.layout.node_of(other).0, place.layout.ranks(), place.layout.nodes()];
        assert_eq!(said, seen.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    }
    // And have one key.
    let proof = *member.key.prove("conformance", b"").as_bytes();
    let all = member.bootstrap.all_gather(&proof).expect("an exchange");
    assert!(all.iter().all(|other| *other == proof), "another key");
    member.bootstrap.finalize().expect("the end");
}

/// Rounds of different lengths, nothing among them, do not mix.
fn gathers_are_by_rank(member: &Membership) {
    let rank = member.rank().expect("a rank").0;
    for round in 0..20u8 {
        let said = |rank: u32| vec![round; (rank as usize * usize::from(round)) % 7000];
        let all = member.bootstrap.all_gather(&said(rank)).expect("an exchange");
        assert_eq!(all.len(), member.layout().ranks() as usize);
        for (other, contribution) in (0..).zip(all) {
            assert_eq!(contribution, said(other), "of rank {other} in round {round}");
        }
    }
    member.bootstrap.finalize().expect("the end");
}

/// Writes of mates before a barrier are visible after it.
fn barriers_order(member: &Membership) {
    let segment = |rank| member.domain.map(Peer(rank), RegionId::SEGMENT).expect("a segment");
    let own = segment(member.rank().expect("a rank").0);
    for round in 1..10u32 {
        own.write(0, &round.to_le_bytes());
        member.bootstrap.barrier().expect("a barrier");
        for mate in member.place().mates() {
            let mut seen = [0; 4];
            segment(mate).read(0, &mut seen);
            assert_eq!(u32::from_le_bytes(seen), round, "of rank {mate}");
        }
        // No rank goes on before all have looked.
        member.bootstrap.barrier().expect("a barrier");
    }
    member.bootstrap.finalize().expect("the end");
}

/// A call that is refused is none: the others need not refuse it, too.
fn too_much_is_refused(member: &Membership) {
    let much = vec![0; (16 << 20) / member.layout().ranks() as usize + 1];
    if member.place().is_first_of_node() {
        let refused = member.bootstrap.all_gather(&much);
        assert!(matches!(refused, Err(RmaError::Usage(_))), "{refused:?}");
    }
    assert!(member.bootstrap.all_gather(b"little").is_ok_and(|all| all.iter().all(|one| one == b"little")));
    member.bootstrap.finalize().expect("the end");
}

/// Threads of a rank take turns, in whatever order.
fn several_threads_may_call(member: &Membership) {
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..5).for_each(|_| member.bootstrap.barrier().expect("a barrier")));
        }
    });
    member.bootstrap.finalize().expect("the end");
}

/// Waits for an event that never comes: the process is ended, or the call fails.
fn never(member: &Membership) {
    let all = member.bootstrap.all_gather(b"");
    assert!(matches!(all, Err(RmaError::JobAborted(_))), "{all:?}");
}

fn is_last(member: &Membership) -> bool {
    member.rank().is_some_and(|rank| rank.0 + 1 == member.layout().ranks())
}

fn an_abort_ends_all(member: &Membership) {
    if is_last(member) {
        member.bootstrap.abort(ROTTEN, 9).expect("a word to the starter");
    }
    never(member);
}

/// A complaint that comes after a reason changes nothing. (In a job of processes, a reason replaces a
/// complaint only if the process with the reason lives long enough.)
fn who_knows_is_believed(member: &Membership) {
    if is_last(member) {
        member.bootstrap.abort(ROTTEN, 9).expect("a word to the starter");
        // The process may be ended already.
        let _ = member.bootstrap.complain("lost a rank", 3);
    }
    never(member);
}

fn all_exit_with_a_status(member: &Membership) {
    // A late rank is ended.
    member.bootstrap.barrier().expect("a barrier");
    let code = if is_last(member) { 7 } else { 0 };
    member.bootstrap.exit(code).expect("the others do, too");
}

/// Rank 0 ends without a word.
fn who_is_missed_is_named(member: &Membership) {
    if member.rank() != Some(Rank(0)) {
        never(member);
    }
}

fn out_of_step_is_told(member: &Membership) {
    let done = match member.rank() {
        Some(Rank(0)) => member.bootstrap.barrier(),
        _ => member.bootstrap.finalize(),
    };
    assert!(matches!(done, Err(RmaError::Usage(_) | RmaError::JobAborted(_))), "{done:?}");
}
