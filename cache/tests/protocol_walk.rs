//! The protocol, walked exhaustively.
//!
//! Goal: whatever the order in which messages arrive, NVMe completes and ranks ask, the invariants of
//! `protocol_model::invariant` hold, and every request can finish. Method: breadth first through all states of small
//! worlds that run the shipped step functions. The state counts are pinned: a change of the protocol shows, and so does a
//! walk that no longer looks everywhere. The planted faults show that it would find something if there were something.

mod protocol_model;

use protocol_model::fault::Fault;
use protocol_model::walk::{Seen, Taken, walk, walk_observed};
use protocol_model::world::{Move, Setup, Unwatched, World};
use stateright::{Checker, Model, Property};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use vgas_cache::protocol::{InPlaceService, home, line};

const IN_PLACE: Option<InPlaceService> = Some(InPlaceService { enter_after: 1, leave_after: 2 });

/// What is walked, and how many states it has.
const WALKS: &[(&str, Setup, usize)] = &[
    ("two nodes", Setup { reads: 2, writes: 2, wholes: 1, evictions: 2, ..Setup::quiet(2, 1) }, 44_449),
    (
        "two nodes, checkpoints, an NVMe that fails once",
        Setup { reads: 1, writes: 2, evictions: 1, cleans: 1, failures: 1, ..Setup::quiet(2, 1) },
        10_149,
    ),
    ("three nodes", Setup { reads: 2, writes: 2, evictions: 1, ..Setup::quiet(3, 1) }, 24_870),
    (
        "three nodes, whole-page puts",
        Setup { reads: 2, writes: 1, wholes: 1, evictions: 1, ..Setup::quiet(3, 1) },
        49_989,
    ),
    ("three nodes, evictions", Setup { reads: 3, writes: 1, evictions: 2, ..Setup::quiet(3, 1) }, 32_206),
    (
        "two nodes without cooperative caching, an NVMe that fails once",
        Setup {
            cooperative: false,
            reads: 2,
            writes: 2,
            wholes: 1,
            evictions: 1,
            failures: 1,
            ..Setup::quiet(2, 1)
        },
        43_027,
    ),
    (
        "three nodes without cooperative caching",
        Setup { cooperative: false, reads: 2, writes: 2, evictions: 1, ..Setup::quiet(3, 1) },
        30_409,
    ),
    (
        "two nodes, in place, stale hints",
        Setup { in_place: IN_PLACE, reads: 1, writes: 4, evictions: 1, hinted: 1, ..Setup::quiet(2, 1) },
        38_259,
    ),
    (
        "two nodes, in place, whole-page puts",
        Setup { in_place: IN_PLACE, writes: 3, wholes: 2, evictions: 1, ..Setup::quiet(2, 1) },
        6_633,
    ),
    (
        "three nodes, in place",
        Setup { in_place: IN_PLACE, reads: 1, writes: 3, evictions: 1, ..Setup::quiet(3, 1) },
        27_000,
    ),
    (
        "two nodes, a page that its owner uses through pointers",
        Setup { mapped: true, reads: 2, writes: 2, wholes: 1, evictions: 1, hinted: 1, ..Setup::quiet(2, 1) },
        46_802,
    ),
    (
        "two nodes with one frame each for two pages",
        Setup { frames: 1, reads: 2, writes: 2, evictions: 3, ..Setup::quiet(2, 2) },
        57_984,
    ),
    (
        "three nodes with one frame each for two pages",
        Setup { frames: 1, reads: 2, writes: 1, evictions: 2, ..Setup::quiet(3, 2) },
        37_565,
    ),
    (
        "two nodes, pages that ranks bring in, an NVMe that fails once",
        Setup { claims: 2, reads: 2, writes: 2, evictions: 2, failures: 1, ..Setup::quiet(2, 1) },
        150_286,
    ),
    (
        "three nodes, pages that ranks bring in, deaths",
        Setup { claims: 2, deaths: true, reads: 2, writes: 1, evictions: 1, ..Setup::quiet(3, 1) },
        39_300,
    ),
    (
        "two nodes, in place, pages that ranks bring in, checkpoints",
        Setup {
            in_place: IN_PLACE,
            claims: 1,
            writes: 3,
            wholes: 1,
            evictions: 1,
            hinted: 1,
            cleans: 1,
            ..Setup::quiet(2, 1)
        },
        355_620,
    ),
    // Two readers are supplied side by side, and then four.
    ("four nodes, readers", Setup { reads: 4, evictions: 1, ..Setup::quiet(4, 1) }, 9_112),
    ("four nodes, readers and a writer", Setup { reads: 4, writes: 1, ..Setup::quiet(4, 1) }, 32_878),
    (
        "four nodes, readers in turn",
        Setup { in_turn: true, reads: 4, writes: 1, ..Setup::quiet(4, 1) },
        22_108,
    ),
    (
        "three nodes, whose readers ask for NVMe",
        Setup { nvm: true, reads: 3, writes: 1, evictions: 1, failures: 1, ..Setup::quiet(3, 1) },
        26_618,
    ),
    ("three nodes, stale hints", Setup { reads: 2, writes: 1, hinted: 1, ..Setup::quiet(3, 1) }, 6_160),
    (
        "three nodes without cooperative caching, stale hints",
        Setup { cooperative: false, reads: 2, writes: 1, evictions: 1, hinted: 1, ..Setup::quiet(3, 1) },
        42_676,
    ),
];

#[test]
fn every_walk_holds_and_every_row_is_taken() {
    let next = AtomicUsize::new(0);
    let results = Mutex::new((Taken::default(), vec![None; WALKS.len()]));
    // One walk per core at a time.
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((name, setup, _)) = WALKS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut taken = Taken::default();
                    let seen = match walk_observed(setup, &mut taken) {
                        Ok(seen) => seen,
                        Err(broken) => panic!("{name}: {}", broken.story()),
                    };
                    let mut results = results.lock().unwrap();
                    results.0.join(&taken);
                    let position = WALKS.iter().position(|(other, ..)| other == name).unwrap();
                    results.1[position] = Some(seen);
                }
            });
        }
    });
    let (taken, seen) = results.into_inner().unwrap();
    let seen: Vec<Seen> = seen.into_iter().flatten().collect();
    for ((name, ..), seen) in WALKS.iter().zip(&seen) {
        println!("{name}: {seen:?}");
    }
    let counted: Vec<(&str, usize)> =
        WALKS.iter().zip(&seen).map(|((name, ..), seen)| (*name, seen.states)).collect();
    let pinned: Vec<(&str, usize)> = WALKS.iter().map(|(name, _, states)| (*name, *states)).collect();
    assert_eq!(taken.missing(), NEVER_WALKED, "rows that no walk has taken");
    assert_eq!(counted, pinned, "if the protocol was meant to change, pin the new counts");
}

/// Rows that exist although no walk takes them: a read of a readable copy is a hit, changes nothing, and is no move.
const NEVER_WALKED: &[&str] =
    &["line S Read", "line O Read", "line SmG Read", "line OmG Read", "line SwG Read", "line OwG Read"];

/// The second opinion: `stateright` counts the states of a walk itself.
struct SecondOpinion(Setup);

impl Model for SecondOpinion {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        world.moves(&self.0, moves);
    }

    fn next_state(&self, world: &World, step: Move) -> Option<World> {
        let mut next = world.clone();
        next.go(&self.0, step, &mut Unwatched).unwrap();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("every invariant", |model: &Self, world: &World| {
            protocol_model::invariant::check(&model.0, world).is_ok()
        })]
    }
}

/// Minutes, not seconds: for changes of the protocol itself.
#[test]
#[ignore = "takes minutes without optimisation; .ci/run runs it among the slower tests (cargo test -- --ignored)"]
fn larger_walks_hold() {
    let quiet = Setup::quiet(3, 1);
    for setup in [
        Setup { reads: 2, writes: 2, wholes: 1, evictions: 2, ..quiet },
        Setup { reads: 1, writes: 2, evictions: 2, cleans: 1, failures: 1, ..quiet },
        Setup { cooperative: false, reads: 2, writes: 2, wholes: 1, evictions: 1, failures: 1, ..quiet },
        Setup { in_place: IN_PLACE, reads: 1, writes: 3, wholes: 1, evictions: 1, hinted: 1, ..quiet },
        Setup { reads: 4, writes: 1, evictions: 1, ..Setup::quiet(4, 1) },
    ] {
        match walk(&setup) {
            Ok(seen) => println!("{setup:?}: {seen:?}"),
            Err(broken) => panic!("{setup:?}: {}", broken.story()),
        }
    }
}

#[test]
fn stateright_counts_the_same_states() {
    let setup = Setup { reads: 2, writes: 1, evictions: 1, ..Setup::quiet(3, 1) };
    let checker = SecondOpinion(setup).checker().spawn_bfs().join();
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), walk(&setup).unwrap().states);
}

/// Each planted fault, where it is planted, and the invariant by which the walk finds it.
#[test]
fn every_planted_fault_is_found() {
    let world = Setup { reads: 2, writes: 2, evictions: 2, ..Setup::quiet(3, 1) };
    let claims = Setup { claims: 2, reads: 2, writes: 1, evictions: 1, ..Setup::quiet(2, 1) };
    let faults = [
        (Fault::ForgottenInvalidation, world, "single_writer_or_many_readers"),
        (Fault::LostWriteBack, world, "nothing_dirty_dropped"),
        (
            Fault::WrongAckCount,
            Setup { reads: 3, writes: 1, evictions: 0, ..world },
            "single_writer_or_many_readers",
        ),
        (Fault::UnorderedChannel, world, "no_forward_to_nobody"),
        (Fault::StaleDirectory, Setup { reads: 3, evictions: 1, ..world }, "one_answerer"),
        (Fault::UnreportedWrite, world, "nothing_dirty_dropped"),
        (Fault::LostOwn, world, "one_answerer"),
        (Fault::InPlaceBesideCopies, Setup { hinted: 1, ..world }, "read_returns_latest_write"),
        (Fault::LeavesSilently, world, "one_answerer"),
        (Fault::LostDone, world, "every_request_can_finish"),
        (Fault::ImpatientHome, world, "no_forward_to_nobody"),
        (Fault::ImpatientForReaders, Setup { reads: 4, ..Setup::quiet(4, 1) }, "no_forward_to_nobody"),
        (Fault::ExclusiveBesideCopies, world, "single_writer_or_many_readers"),
        (Fault::ClaimUnseen, claims, "no_wrong_message"),
        (Fault::PublishedWithEntry, claims, "published_means_nobody_has_it"),
        (Fault::ClaimOfWhatIsNotStored, claims, "published_means_nobody_has_it"),
        (Fault::ClaimsEndUnheard, claims, "every_request_can_finish"),
    ];
    assert!(walk(&claims).is_ok(), "nor does this one");
    assert!(walk(&world).is_ok(), "without a fault, the same walk finds nothing");
    for (fault, setup, invariant) in faults {
        match walk(&Setup { fault: Some(fault), ..setup }) {
            Ok(seen) => panic!("{fault:?} was not found in {} states", seen.states),
            Err(broken) => assert_eq!(broken.finding.invariant, invariant, "{fault:?}: {}", broken.story()),
        }
    }
}

#[test]
fn the_tables_are_as_large_as_they_are_printed() {
    assert_eq!((line::State::ALL.len(), line::Event::ALL.len()), (19, 26));
    assert_eq!((home::State::ALL.len(), home::Event::ALL.len()), (13, 29));
}
