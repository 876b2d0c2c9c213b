//! The count of a value, walked through in every order: three ranks clone, watch, drop, give back, become owners, write and take the value
//! out, each step of them by itself. Rank 0 is the home, and keeps nothing.
//!
//! Every state that can be reached is looked at, and each of the mistakes below must be found.

use super::count::{FIRST, OWNER, Over, WATCHER, is_alone, over, owners, upgraded, watchers};
use std::collections::{HashSet, VecDeque};

const RANKS: usize = 3;
/// Units that are drawn at once here.
const DRAWN: u64 = 2;
/// Units of owners, and of watchers, that all have together.
const UNITS: u64 = 2;
/// Number of operations in flight at a time.
const DEEDS: usize = 2;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// The owners have no watcher of their own.
    NoWatcherOfOwners,
    /// It is not given back.
    KeptWatcherOfOwners,
    /// An upgrade adds first, and looks afterwards.
    AddsFirst,
    /// A writer looks at the owners only.
    LooksAtOwnersOnly,
    /// And at the watchers, in a second look.
    LooksTwice,
    /// A unit of those that are drawn is not kept.
    LosesUnit,
    /// A thread that takes the value out does not compare the count.
    TakesWithoutComparing,
    /// A writer does not give back the units that its rank keeps.
    ForgetsKept,
}

const MISTAKES: [Mistake; 8] = [
    Mistake::NoWatcherOfOwners,
    Mistake::KeptWatcherOfOwners,
    Mistake::AddsFirst,
    Mistake::LooksAtOwnersOnly,
    Mistake::LooksTwice,
    Mistake::LosesUnit,
    Mistake::TakesWithoutComparing,
    Mistake::ForgetsKept,
];

/// An operation that a thread is about to do, or is within.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Operation {
    /// These units are on their way to the count.
    Give(u64),
    /// The value is dropped, and the owners' watcher given back.
    EndValue,
    EndPlace,
    EndAll,
    /// A watcher has seen this count.
    Upgrade(u64),
    /// A watcher has added an owner to no owners, by mistake.
    Undo,
    /// An owner, which is borrowed mutably, has seen that it is alone: it writes.
    Write,
    /// By mistake: it has seen the owners only.
    LookAgain,
    /// The only owner has seen this count, and takes the value out.
    TakeOut(u64),
}

/// State of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Has {
    handles: u64,
    kept: u64,
    deeds: Vec<Operation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    count: u64,
    has_value: bool,
    has_place: bool,
    ranks: [Has; RANKS],
}

struct Walk {
    mistake: Option<Mistake>,
    found: Option<String>,
}

type Next = Result<State, String>;

impl State {
    fn first(mistake: Option<Mistake>) -> Self {
        let mut ranks: [Has; RANKS] = Default::default();
        ranks[0].handles = OWNER;
        let count = if mistake == Some(Mistake::NoWatcherOfOwners) { OWNER } else { FIRST };
        Self { count, has_value: true, has_place: true, ranks }
    }

    /// Units that anybody has.
    fn units(&self) -> u64 {
        let given = |deed: &Operation| match deed {
            Operation::Give(units) => *units,
            _ => 0,
        };
        let of = |has: &Has| has.handles + has.kept + has.deeds.iter().map(given).sum::<u64>();
        self.ranks.iter().map(of).sum()
    }

    fn in_flight(&self) -> usize {
        self.ranks.iter().map(|has| has.deeds.len()).sum()
    }

    fn sorted(mut self) -> Self {
        self.ranks.iter_mut().for_each(|has| has.deeds.sort_unstable());
        // Ranks that are not the home are alike.
        self.ranks[1..].sort_unstable();
        self
    }

    /// Checks the invariants of a state.
    fn check(&self) -> Result<(), String> {
        let units = self.units();
        if owners(units) > 0 && !self.has_value {
            return Err("somebody owns a value that is dropped".into());
        }
        if units > 0 && !self.has_place {
            return Err("somebody has the word of a place that is free".into());
        }
        let writers = self.ranks.iter().flat_map(|has| &has.deeds).filter(|deed| **deed == Operation::Write);
        if writers.count() > 0 && units != OWNER {
            return Err(format!("somebody writes beside {units:#x}"));
        }
        if units == 0 && self.in_flight() == 0 && (self.has_value || self.has_place) {
            return Err("the value, or its place, is never free".into());
        }
        Ok(())
    }

    fn touch(&self) -> Result<(), String> {
        if self.has_place { Ok(()) } else { Err("the count of a place that is free is changed".into()) }
    }
}

impl Walk {
    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Returns the parts that are over, by the product's code, or by a planted mistake.
    fn over(&self, was: u64, given: u64) -> Over {
        if !self.is(Mistake::NoWatcherOfOwners) {
            return over(was, given);
        }
        let left = was - given;
        match (owners(given) > 0 && owners(left) == 0, left) {
            (true, 0) => Over::All,
            (true, _) => Over::Value,
            (false, 0) => Over::Place,
            _ => Over::Nothing,
        }
    }

    /// Units are subtracted from the count; the parts that are over are to be ended.
    fn give(&self, state: &State, rank: usize, units: u64) -> Next {
        state.touch()?;
        let mut next = state.clone();
        let what = self.over(state.count, units);
        next.count = state.count.checked_sub(units).ok_or("the count is less than what is given back")?;
        next.ranks[rank].deeds.extend(match what {
            Over::Nothing => None,
            Over::Value => Some(Operation::EndValue),
            Over::Place => Some(Operation::EndPlace),
            Over::All => Some(Operation::EndAll),
        });
        Ok(next)
    }

    /// A handle more of a rank that may draw.
    fn one_more(&self, state: &State, rank: usize, unit: u64) -> Next {
        let mut next = state.clone();
        let has = &mut next.ranks[rank];
        has.handles += unit;
        let is_kept = if unit == OWNER { owners(has.kept) } else { watchers(has.kept) } > 0;
        if rank == 0 {
            state.touch()?;
            next.count += unit;
        } else if is_kept {
            has.kept -= unit;
        } else {
            state.touch()?;
            let lost = if self.is(Mistake::LosesUnit) { unit } else { 0 };
            has.kept += unit * (DRAWN - 1) - lost;
            next.count += unit * DRAWN;
        }
        Ok(next)
    }

    /// A handle less.
    fn one_less(&self, state: &State, rank: usize, unit: u64) -> Next {
        let mut next = state.clone();
        next.ranks[rank].handles -= unit;
        if rank == 0 {
            // One update: nothing is on its way.
            return self.give(&next, rank, unit);
        }
        next.ranks[rank].kept += unit;
        Ok(next)
    }

    fn is_alone(&self, count: u64) -> bool {
        match self.mistake {
            Some(Mistake::NoWatcherOfOwners) => count == OWNER,
            Some(Mistake::LooksAtOwnersOnly | Mistake::LooksTwice) => owners(count) == 1,
            _ => is_alone(count),
        }
    }

    /// Returns the operations that a rank may begin: on its handles that are not in use.
    fn begin(&self, state: &State, rank: usize) -> Vec<Next> {
        let has = &state.ranks[rank];
        let of = |deed: &dyn Fn(&Operation) -> bool| has.deeds.iter().filter(|one| deed(one)).count() as u64;
        let is_borrowed = |deed: &Operation| {
            matches!(deed, Operation::Write | Operation::LookAgain | Operation::TakeOut(_))
        };
        let own = owners(has.handles) - of(&is_borrowed);
        let watching =
            watchers(has.handles) - of(&|deed| matches!(deed, Operation::Upgrade(_) | Operation::Undo));
        let mut all = Vec::new();
        let (some, few) = (state.units(), state.in_flight() < DEEDS);
        let (may_own, may_watch) = (owners(some) < UNITS, watchers(some) < UNITS);
        for other in (0..RANKS).filter(|other| *other != rank) {
            for (unit, _) in [(OWNER, own), (WATCHER, watching)].iter().filter(|(_, there)| *there > 0) {
                let mut next = state.clone();
                next.ranks[rank].handles -= unit;
                next.ranks[other].handles += unit;
                all.push(Ok(next));
            }
        }
        if own > 0 && may_own {
            all.push(self.one_more(state, rank, OWNER));
        }
        if (own > 0 || watching > 0) && may_watch {
            all.push(self.one_more(state, rank, WATCHER));
        }
        if !few {
            return all;
        }
        if own > 0 {
            all.push(self.one_less(state, rank, OWNER));
            all.push(self.look(state, rank, false));
            all.push(self.look(state, rank, true));
        }
        if watching > 0 {
            all.push(self.one_less(state, rank, WATCHER));
            if may_own {
                all.push(self.upgrade(state, rank));
            }
        }
        if has.kept > 0 {
            let mut next = state.clone();
            let units = std::mem::take(&mut next.ranks[rank].kept);
            next.ranks[rank].deeds.push(Operation::Give(units));
            all.push(Ok(next));
        }
        all
    }

    /// An owner gives back what its rank keeps, and looks whether it is alone: to write, or to take the value out.
    fn look(&self, state: &State, rank: usize, takes_out: bool) -> Next {
        state.touch()?;
        let mut next = state.clone();
        let kept = if self.is(Mistake::ForgetsKept) { 0 } else { std::mem::take(&mut next.ranks[rank].kept) };
        next.count -= kept;
        // As if the kept units did not exist.
        let seen = next.count - if self.is(Mistake::ForgetsKept) { state.ranks[rank].kept } else { 0 };
        let deeds = &mut next.ranks[rank].deeds;
        if !takes_out {
            let looks_again = self.is(Mistake::LooksTwice);
            let deed = if looks_again { Operation::LookAgain } else { Operation::Write };
            deeds.extend(self.is_alone(seen).then_some(deed));
        } else if seen == State::first(self.mistake).count {
            // It owns all, as a box does.
            next.ranks[rank].handles -= OWNER;
            next.ranks[rank].deeds.push(Operation::EndAll);
        } else if owners(seen) == 1 {
            deeds.push(Operation::TakeOut(seen));
        }
        Ok(next)
    }

    fn upgrade(&self, state: &State, rank: usize) -> Next {
        let mut next = state.clone();
        let has = &mut next.ranks[rank];
        if owners(has.kept) > 0 {
            (has.kept, has.handles) = (has.kept - OWNER, has.handles + OWNER);
            return Ok(next);
        }
        state.touch()?;
        if self.is(Mistake::AddsFirst) {
            next.count += OWNER;
            match owners(state.count) {
                0 => has.deeds.push(Operation::Undo),
                _ => has.handles += OWNER,
            }
        } else {
            has.deeds.push(Operation::Upgrade(state.count));
        }
        Ok(next)
    }

    /// Returns the next step of the operation in flight.
    fn go_on(&self, state: &State, rank: usize, at: usize) -> Next {
        let mut next = state.clone();
        let deed = next.ranks[rank].deeds.swap_remove(at);
        match deed {
            Operation::Give(units) => return self.give(&next, rank, units),
            Operation::EndValue => {
                state.touch()?;
                if !std::mem::replace(&mut next.has_value, false) {
                    return Err("a value is dropped twice".into());
                }
                if !self.is(Mistake::NoWatcherOfOwners) && !self.is(Mistake::KeptWatcherOfOwners) {
                    next.ranks[rank].deeds.push(Operation::Give(WATCHER));
                }
            }
            Operation::EndPlace => {
                if !std::mem::replace(&mut next.has_place, false) {
                    return Err("a place is freed twice".into());
                }
            }
            Operation::EndAll => {
                let both = (std::mem::replace(&mut next.has_value, false), next.has_place);
                next.has_place = false;
                if both != (true, true) {
                    return Err("a value is dropped twice, with its place".into());
                }
            }
            Operation::Upgrade(seen) => {
                state.touch()?;
                let drawn = if rank == 0 { 1 } else { DRAWN };
                match upgraded(seen, drawn) {
                    None => {}
                    Some(count) if state.count == seen => {
                        next.count = count;
                        next.ranks[rank].handles += OWNER;
                        next.ranks[rank].kept += (drawn - 1) * OWNER;
                    }
                    Some(_) => next.ranks[rank].deeds.push(Operation::Upgrade(state.count)),
                }
            }
            Operation::Undo => next.count -= OWNER,
            Operation::Write => {}
            Operation::LookAgain => {
                next.ranks[rank].deeds.extend((watchers(state.count) == 1).then_some(Operation::Write));
            }
            Operation::TakeOut(seen) => {
                state.touch()?;
                if state.count == seen || self.is(Mistake::TakesWithoutComparing) {
                    next.count = seen - OWNER;
                    next.ranks[rank].handles -= OWNER;
                    next.ranks[rank].deeds.push(Operation::EndValue);
                } else if owners(state.count) == 1 && !is_alone(state.count) {
                    next.ranks[rank].deeds.push(Operation::TakeOut(state.count));
                }
            }
        }
        Ok(next)
    }

    /// Walks through all states; returns their number.
    fn walk(&mut self) -> usize {
        let first = State::first(self.mistake);
        let (mut seen, mut open) = (HashSet::from([first.clone()]), VecDeque::from([first]));
        while let Some(state) = open.pop_front() {
            for rank in 0..RANKS {
                let deeds = 0..state.ranks[rank].deeds.len();
                let steps = deeds.map(|at| self.go_on(&state, rank, at)).chain(self.begin(&state, rank));
                for next in steps {
                    let next = next.map(State::sorted).and_then(|next| next.check().map(|()| next));
                    match next {
                        Ok(next) if seen.insert(next.clone()) => open.push_back(next),
                        Ok(_) => {}
                        Err(why) => {
                            self.found = Some(format!("{why}, after {state:?}"));
                            return seen.len();
                        }
                    }
                }
            }
        }
        seen.len()
    }
}

/// Goal: in whatever order ranks act, a dropped value is never owned, a freed one never used, a writer is
/// alone, and nothing is left.
#[test]
fn nobody_has_what_is_over() {
    let mut walk = Walk { mistake: None, found: None };
    let states = walk.walk();
    assert_eq!(walk.found, None);
    assert!(states > 10_000, "{states} states: too few to say anything");
    println!("{states} states");
}

/// Goal: each mistake leads to a state that must not be.
#[test]
fn each_mistake_is_found() {
    for mistake in MISTAKES {
        let mut walk = Walk { mistake: Some(mistake), found: None };
        let states = walk.walk();
        assert!(walk.found.is_some(), "{mistake:?} is not found in {states} states");
        println!("{mistake:?} in {states} states: {}", walk.found.unwrap_or_default());
    }
}
