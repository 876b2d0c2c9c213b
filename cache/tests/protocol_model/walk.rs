//! The exhaustive walk, breadth first: every state that the moves reach, every invariant in each, and afterwards
//! whether rest can be reached from all of them.
//!
//! It is written by hand rather than on `stateright`, because "from every state, rest can be reached" is not among
//! that crate's properties: it needs the edges, backwards. `stateright` counts the same states in a test of its
//! own, as a check of this walk.

use super::invariant::{Finding, at_rest, check};
use super::world::{Move, Row, Setup, Unwatched, Watch, World};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use vgas_cache::protocol::{claim, home, line};

/// What a walk has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub states: usize,
    pub moves: usize,
    /// States in which nothing is outstanding.
    pub at_rest: usize,
}

/// A broken invariant and a shortest way to it.
#[derive(Debug)]
pub struct Broken {
    pub finding: Finding,
    pub way: Vec<Move>,
    pub states: usize,
}

impl Broken {
    /// For people: the moves, one a line.
    pub fn story(&self) -> String {
        let moves: Vec<String> = self.way.iter().map(|step| format!("  {step:?}")).collect();
        format!("{} after {} states:\n{}", self.finding, self.states, moves.join("\n"))
    }
}

/// Fingerprints are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are u64");
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// 64 bits tell a million states apart but for a chance of 3 in 10^8.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Which rows of the tables have been taken.
#[derive(Default)]
pub struct Taken {
    lines: [[bool; line::Event::ALL.len()]; line::State::ALL.len()],
    homes: [[bool; home::Event::ALL.len()]; home::State::ALL.len()],
    claims: [[bool; claim::Event::ALL.len()]; claim::State::ALL.len()],
}

impl Watch for Taken {
    fn row(&mut self, row: Row) {
        match row {
            Row::Line { state, event, .. } => self.lines[state as usize][event as usize] = true,
            Row::Home { state, event, .. } => self.homes[state as usize][event as usize] = true,
            Row::Claim { state, event } => self.claims[state as usize][event as usize] = true,
        }
    }
}

impl Taken {
    pub fn join(&mut self, other: &Taken) {
        let lines = self.lines.as_flattened_mut().iter_mut().zip(other.lines.as_flattened());
        let homes = self.homes.as_flattened_mut().iter_mut().zip(other.homes.as_flattened());
        let claims = self.claims.as_flattened_mut().iter_mut().zip(other.claims.as_flattened());
        lines.chain(homes).chain(claims).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Rows of the tables that are missing, as "state event".
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for &state in line::State::ALL {
            for &event in line::Event::ALL {
                let taken = self.lines[state as usize][event as usize];
                if line::table::cell(state, event).is_some() && !taken {
                    missing.push(format!("line {} {}", state.name(), event.name()));
                }
            }
        }
        for &state in home::State::ALL {
            for &event in home::Event::ALL {
                let taken = self.homes[state as usize][event as usize];
                if home::table::cell(state, event).is_some() && !taken {
                    missing.push(format!("home {} {}", state.name(), event.name()));
                }
            }
        }
        for &state in claim::State::ALL {
            for &event in claim::Event::ALL {
                let taken = self.claims[state as usize][event as usize];
                if claim::cell(state, event).is_some() && !taken {
                    missing.push(format!("claim {} {}", state.name(), event.name()));
                }
            }
        }
        missing
    }
}

/// Walks everything.
pub fn walk(setup: &Setup) -> Result<Seen, Broken> {
    walk_observed(setup, &mut Unwatched)
}

/// Walks everything and shows every row that is taken.
pub fn walk_observed(setup: &Setup, watch: &mut dyn Watch) -> Result<Seen, Broken> {
    let mut numbers: HashMap<u64, u32, BuildHasherDefault<AsIs>> = HashMap::default();
    // How each state was reached first.
    let mut parents: Vec<(u32, Option<Move>)> = vec![(0, None)];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut rests: Vec<u32> = Vec::new();
    let mut frontier = VecDeque::new();

    let start = World::new(setup);
    numbers.insert(fingerprint(&start), 0);
    rests.push(0);
    frontier.push_back((0u32, start));
    let mut moves = Vec::new();
    while let Some((number, world)) = frontier.pop_front() {
        world.moves(setup, &mut moves);
        for &step in &moves {
            let mut next = world.clone();
            let gone = next.go(setup, step, watch).and_then(|()| check(setup, &next));
            if let Err(finding) = gone {
                let mut way = way_to(&parents, number);
                way.push(step);
                return Err(Broken { finding, way, states: parents.len() });
            }
            let fresh = parents.len() as u32;
            let reached = *numbers.entry(fingerprint(&next)).or_insert(fresh);
            edges.push((reached, number));
            if reached == fresh {
                parents.push((number, Some(step)));
                if at_rest(&next) {
                    rests.push(fresh);
                }
                frontier.push_back((fresh, next));
            }
        }
    }
    let seen = Seen { states: parents.len(), moves: edges.len(), at_rest: rests.len() };
    match cannot_rest(seen.states, edges, rests) {
        None => Ok(seen),
        Some(stuck) => {
            let finding = Finding::new("every_request_can_finish", "from here, something stays outstanding");
            Err(Broken { finding, way: way_to(&parents, stuck), states: seen.states })
        }
    }
}

fn way_to(parents: &[(u32, Option<Move>)], mut number: u32) -> Vec<Move> {
    let mut way = Vec::new();
    while let (parent, Some(step)) = parents[number as usize] {
        way.push(step);
        number = parent;
    }
    way.reverse();
    way
}

/// The first state from which no state at rest can be reached, if there is one. `edges` point backwards.
fn cannot_rest(states: usize, mut edges: Vec<(u32, u32)>, rests: Vec<u32>) -> Option<u32> {
    edges.sort_unstable();
    let mut can = vec![false; states];
    let mut todo = rests;
    todo.iter().for_each(|&number| can[number as usize] = true);
    while let Some(number) = todo.pop() {
        let first = edges.partition_point(|&(to, _)| to < number);
        for &(_, from) in edges[first..].iter().take_while(|&&(to, _)| to == number) {
            if !std::mem::replace(&mut can[from as usize], true) {
                todo.push(from);
            }
        }
    }
    can.iter().position(|&can| !can).map(|number| number as u32)
}
