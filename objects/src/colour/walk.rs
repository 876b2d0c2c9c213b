//! Goal: every read returns the latest value. Method: every reachable state is visited, with two colours, and
//! with copies, requests and evictions on every node: an object on three nodes, two of which have a slot; a
//! parent and its child on two nodes of three slots, and, with one colour, on three nodes of two; an object
//! on one node and two ranks of another, which read each other's copies; and a slot that retires and is asked
//! about by messages. Then each rule is broken in turn, and one of the walks must find it. Backups have a
//! walk of their own (`walk_of_backups.rs`).
//!
//! A copy is *fresh* while its bytes are those of the object. A state has this instead of values, so that
//! there are finitely many. The latest value of the parent contains the child's word.

use super::*;
use rustc_hash::FxHashSet;
use std::hash::Hash;

/// Most of either scope.
const NODES: usize = 3;
const SLOTS: usize = 3;
const HOME: [usize; SLOTS] = [0, 1, 0];
const LAST: Colour = Colour(1);
const COLOURS: usize = LAST.0 as usize + 1;
const PARENT: usize = 0;
const CHILD: usize = 1;

/// Size of the model: all orders of everything at once would be too many.
#[derive(Clone, Copy, Debug)]
struct Scope {
    nodes: usize,
    slots: usize,
    has_child: bool,
    /// The last two are ranks of one node.
    shares: bool,
    /// A retired slot comes back by messages: each node is asked, and confirms by itself.
    flushes: bool,
    last: Colour,
}

const OBJECT: Scope =
    Scope { nodes: 3, slots: 2, has_child: false, shares: false, flushes: false, last: LAST };

const SCOPES: [Scope; 5] = [
    OBJECT,
    Scope { nodes: 2, slots: 3, has_child: true, ..OBJECT },
    Scope { slots: 2, has_child: true, last: Colour(0), ..OBJECT },
    Scope { shares: true, ..OBJECT },
    Scope { slots: 1, flushes: true, ..OBJECT },
];

impl Scope {
    /// The other rank of this one's node.
    fn mate(self, node: usize) -> Option<usize> {
        (self.shares && node > 0).then_some(3 - node)
    }
}

/// More states than either has: if the walk loses its bound, it ends before the machine does.
const STATES_MAX: usize = 4_000_000;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A new object begins with colour 0: the paper's text.
    ColourRestarts,
    /// Writing keeps the colour of a served object.
    BumpSkipped,
    /// The home does not note that it served.
    ServedForgotten,
    /// A copy is kept, though the borrow that asked has ended.
    PublishedLate,
    /// A retired slot comes back while copies are left.
    RevivedEarly,
    /// A node confirms that it has no copies from a retired slot, and keeps them.
    ConfirmedWithCopies,
    /// A retired slot comes back when one node has not confirmed yet.
    ConfirmedByOthers,
    /// Confirmations from a slot's last retirement count when it is retired again.
    ConfirmedBefore,
    /// A copy is evicted that a borrow uses.
    EvictedHeld,
    /// The child is written while the parent's word stays.
    ChildAlone,
    /// A peer forwards its copy at the address, whatever the colour.
    HintUnchecked,
    /// The label of a copy is looked at before its bytes are taken, and not after.
    LabelLookedAtOnce,
    /// A home that knows of a copy takes the slot for marked, even after it has begun again.
    MarkSkippedByHint,
    /// The keeper of a copy evicts it while a rank of its node reads it.
    EvictedFromMate,
    /// A rank that reads an original of its node in place leaves what it has read as a copy.
    KeptFromInPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    slot: usize,
    colour: Colour,
}

/// A node's request in flight: its word, the value it brings once served, and whether the borrow still lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Fetch {
    object: usize,
    name: Name,
    brings: Option<bool>,
    lives: bool,
    /// It was handed on to this peer, which has seen the copy's label.
    from: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    last: Colour,
    slots: [Slot; SLOTS],
    objects: [Option<Name>; 2],
    /// The parent, and with it the child, is borrowed mutably.
    writing: bool,
    /// Each borrow, and the copy it reads through, if it has looked.
    borrows: [[Option<Option<usize>>; 2]; NODES],
    /// A home's hints, which a broken rule believes.
    hints: [[bool; COLOURS]; SLOTS],
    /// Some(fresh) for each copy.
    copies: [[[Option<bool>; COLOURS]; SLOTS]; NODES],
    /// Only node 1 and node 2 ask: one each.
    fetches: [Option<Fetch>; NODES],
    /// Nodes that have confirmed that they have no copies from there, since they were asked.
    confirmed: [[Option<bool>; NODES]; SLOTS],
}

type Checked = Result<(), String>;

impl State {
    fn first(scope: Scope) -> Self {
        Self {
            last: scope.last,
            slots: [Slot::Free(Colour(0)); SLOTS],
            objects: [None; 2],
            writing: false,
            borrows: [[None; 2]; NODES],
            hints: [[false; COLOURS]; SLOTS],
            copies: [[[None; COLOURS]; SLOTS]; NODES],
            fetches: [None; NODES],
            confirmed: [[None; NODES]; SLOTS],
        }
    }

    fn copy(&mut self, node: usize, name: Name) -> &mut Option<bool> {
        &mut self.copies[node][name.slot][usize::from(name.colour.0)]
    }

    fn is_borrowed(&self) -> bool {
        self.borrows.iter().flatten().any(Option::is_some)
    }

    /// Its bytes are about to change, or are gone: copies of it are stale, and so are those in flight.
    fn stale(&mut self, object: usize) {
        let Some(name) = self.objects[object] else { return };
        for node in 0..NODES {
            for copy in self.copies[node][name.slot].iter_mut().flatten() {
                *copy = false;
            }
            if let Some(fetch) = self.fetches[node].as_mut().filter(|fetch| fetch.object == object) {
                fetch.brings = fetch.brings.map(|_| false);
            }
        }
    }

    fn apply(&mut self, slot: usize, event: Event) -> Option<Outcome> {
        let (next, outcome) = step(self.slots[slot], event, self.last)?;
        self.slots[slot] = next;
        Some(outcome)
    }

    /// A new object in this slot.
    fn place(&mut self, object: usize, slot: usize, fault: Option<Fault>) -> Option<()> {
        if let (Slot::Free(_), Some(Fault::ColourRestarts)) = (self.slots[slot], fault) {
            self.slots[slot] = Slot::Free(Colour(0));
        }
        let Outcome::Takes(colour) = self.apply(slot, Event::Allocate)? else { return None };
        self.objects[object] = Some(Name { slot, colour });
        Some(())
    }

    fn remove(&mut self, object: usize) -> Option<()> {
        let name = self.objects[object]?;
        self.stale(object);
        self.apply(name.slot, Event::Free(name.colour))?;
        self.objects[object] = None;
        Some(())
    }

    /// A node writes an object: here, or after it has moved to `to`.
    fn write(&mut self, object: usize, to: usize, fault: Option<Fault>) -> Option<()> {
        let name = self.objects[object]?;
        let outcome = match to == name.slot {
            true => match (self.apply(name.slot, Event::Write(name.colour))?, fault) {
                (Outcome::Takes(_), Some(Fault::BumpSkipped)) => Outcome::Stays,
                (outcome, _) => outcome,
            },
            false => Outcome::Move,
        };
        self.stale(object);
        match outcome {
            Outcome::Stays => {}
            Outcome::Takes(colour) => self.objects[object] = Some(Name { colour, ..name }),
            Outcome::Move if to == name.slot => return None,
            Outcome::Move => {
                self.remove(object)?;
                self.place(object, to, fault)?;
            }
        }
        Some(())
    }

    /// Every state that can come next, with how.
    fn next(&self, scope: Scope, fault: Option<Fault>) -> Result<Vec<(String, State)>, String> {
        let mut all = Vec::new();
        let mut add = |what: String, state: Option<State>| all.extend(state.map(|state| (what, state)));
        let with = |change: &dyn Fn(&mut State) -> Option<()>| {
            let mut state = *self;
            change(&mut state).map(|()| state)
        };
        let free = !self.is_borrowed() && !self.writing;
        for slot in 0..scope.slots {
            let (none, child) = (self.objects[PARENT].is_none(), self.objects[CHILD].is_some());
            if none {
                add(format!("parent in {slot}"), with(&|state| state.place(PARENT, slot, fault)));
            }
            if free {
                let begin = |state: &mut State| {
                    state.write(PARENT, slot, fault)?;
                    state.writing = true;
                    Some(())
                };
                add(format!("write the parent in {slot}"), with(&begin));
            }
            if self.writing && !child && scope.has_child {
                add(format!("child in {slot}"), with(&|state| state.place(CHILD, slot, fault)));
            }
            if self.writing && child {
                add(format!("write the child in {slot}"), with(&|state| state.write(CHILD, slot, fault)));
            }
            if free && child && fault == Some(Fault::ChildAlone) {
                let alone = |state: &mut State| {
                    let before = state.objects[CHILD];
                    state.write(CHILD, slot, fault)?;
                    if state.objects[CHILD] != before {
                        // The parent's bytes have changed, under its old word.
                        state.stale(PARENT);
                    }
                    Some(())
                };
                add(format!("write the child alone in {slot}"), with(&alone));
            }
            if scope.flushes {
                self.flush(slot, scope, fault, &mut add);
                continue;
            }
            let left = self.copies.iter().any(|copies| copies[slot].iter().any(Option::is_some));
            let asked = self.fetches.iter().flatten().any(|fetch| fetch.name.slot == slot);
            if (!left && !asked) || fault == Some(Fault::RevivedEarly) {
                add(format!("revive {slot}"), with(&|state| state.apply(slot, Event::Confirmed).map(|_| ())));
            }
        }
        if self.writing {
            add("end of writing".into(), Some(State { writing: false, ..*self }));
        }
        if free {
            let drop_all = |state: &mut State| {
                if state.objects[CHILD].is_some() {
                    state.remove(CHILD)?;
                }
                state.remove(PARENT)
            };
            add("drop".into(), with(&drop_all));
        }
        for node in 0..scope.nodes {
            self.read(node, scope, fault, &mut add)?;
            self.arrive(node, fault, &mut add);
            for slot in 0..SLOTS {
                for colour in 0..COLOURS {
                    if self.copies[node][slot][colour].is_none() {
                        continue;
                    }
                    let name = Name { slot, colour: Colour(colour as u16) };
                    let holds = |who: usize| {
                        (0..2).any(|object| {
                            self.borrows[who][object] == Some(Some(node))
                                && self.objects[object] == Some(name)
                        })
                    };
                    let (held, by_mate) = (holds(node), scope.mate(node).is_some_and(holds));
                    let is_evicted = (held && fault == Some(Fault::EvictedHeld))
                        || (by_mate && !held && fault == Some(Fault::EvictedFromMate));
                    if is_evicted {
                        return Err(format!("node {node} evicts what is read"));
                    }
                    let held = held || by_mate;
                    if !held {
                        let evict = |state: &mut State| {
                            *state.copy(node, name) = None;
                            Some(())
                        };
                        add(format!("node {node} evicts {name:?}"), with(&evict));
                    }
                }
            }
        }
        Ok(all)
    }

    /// A slot that is retired: its home asks all nodes, each drops what it has from there, and confirms; then
    /// it comes back. Abandoned requests may be in flight meanwhile.
    fn flush(
        &self,
        slot: usize,
        scope: Scope,
        fault: Option<Fault>,
        add: &mut dyn FnMut(String, Option<State>),
    ) {
        if self.slots[slot] != Slot::Retired {
            return;
        }
        let all = &self.confirmed[slot][..scope.nodes];
        if all.iter().all(Option::is_none) {
            let mut state = *self;
            state.confirmed[slot][..scope.nodes].fill(Some(false));
            add(format!("all are asked about {slot}"), Some(state));
            return;
        }
        for node in (0..scope.nodes).filter(|node| all[*node] == Some(false)) {
            let mut state = *self;
            if fault != Some(Fault::ConfirmedWithCopies) {
                state.copies[node][slot] = [None; COLOURS];
            }
            state.confirmed[slot][node] = Some(true);
            add(format!("node {node} confirms {slot}"), Some(state));
        }
        let missing = all.iter().filter(|confirmed| **confirmed != Some(true)).count();
        if missing <= usize::from(fault == Some(Fault::ConfirmedByOthers)) {
            let mut state = *self;
            if fault != Some(Fault::ConfirmedBefore) {
                state.confirmed[slot] = [None; NODES];
            }
            let revived = state.apply(slot, Event::Confirmed).map(|_| state);
            add(format!("revive {slot}"), revived);
        }
    }

    /// Borrows and looks of a node: of the child only while it borrows the parent.
    fn read(
        &self,
        node: usize,
        scope: Scope,
        fault: Option<Fault>,
        add: &mut dyn FnMut(String, Option<State>),
    ) -> Checked {
        for object in [PARENT, CHILD] {
            let Some(name) = self.objects[object].filter(|_| !self.writing) else { continue };
            let under = object == PARENT || self.borrows[node][PARENT].is_some();
            if let Some(through) = self.borrows[node][object] {
                let inner = object == PARENT && self.borrows[node][CHILD].is_some();
                if !inner {
                    let mut state = *self;
                    state.borrows[node][object] = None;
                    // Its request may have been forgotten: it comes all the same.
                    if let Some(fetch) = state.fetches[node].as_mut().filter(|fetch| fetch.object == object) {
                        fetch.lives = false;
                    }
                    add(format!("node {node} ends its borrow of {object}"), Some(state));
                }
                let home = HOME[name.slot];
                if scope.mate(node) == Some(home) && fault == Some(Fault::KeptFromInPlace) {
                    let mut state = *self;
                    state.copy(node, name).get_or_insert(true);
                    add(format!("node {node} keeps what it has read of {object} in place"), Some(state));
                }
                // A rank of the home's node reads in place: nothing is marked, and no copy is made.
                if through.is_some()
                    || home == node
                    || scope.mate(node) == Some(home) && fault != Some(Fault::KeptFromInPlace)
                {
                    continue;
                }
            } else if under {
                let mut state = *self;
                state.borrows[node][object] = Some(None);
                add(format!("node {node} borrows {object}"), Some(state));
                continue;
            } else {
                continue;
            }
            let mut state = *self;
            if let Some(fresh) = *state.copy(node, name) {
                if !fresh {
                    return Err(format!("node {node} reads a stale copy of {object} under {name:?}"));
                }
                state.borrows[node][object] = Some(Some(node));
                add(format!("node {node} finds {object}"), Some(state));
                continue;
            }
            if let Some(mate) = scope.mate(node)
                && let Some(fresh) = *state.copy(mate, name)
            {
                if !fresh {
                    return Err(format!("node {node} reads a stale copy of {object} that {mate} keeps"));
                }
                let mut copied = state;
                *copied.copy(node, name) = Some(fresh);
                add(format!("node {node} copies {object} of {mate}"), Some(copied));
                state.borrows[node][object] = Some(Some(mate));
                add(format!("node {node} reads {object} in the copy of {mate}"), Some(state));
            } else if state.fetches[node].is_none() {
                state.fetches[node] = Some(Fetch { object, name, brings: None, lives: true, from: None });
                add(format!("node {node} asks for {object}"), Some(state));
            }
        }
        Ok(())
    }

    /// Continues a node's request: the home serves it, or a peer, and it arrives.
    fn arrive(&self, node: usize, fault: Option<Fault>, add: &mut dyn FnMut(String, Option<State>)) {
        let Some(fetch) = self.fetches[node] else { return };
        let Fetch { object, name, .. } = fetch;
        let Some(fresh) = fetch.brings else {
            if let Some(peer) = fetch.from {
                // The copy's present state, if it is there; else its label shows that, and the home is asked
                // again.
                let now = self.copies[peer][name.slot][usize::from(name.colour.0)];
                let once = fault == Some(Fault::LabelLookedAtOnce);
                let brings = if once { Some(now.unwrap_or(false)) } else { now };
                let mut state = *self;
                state.fetches[node] = Some(Fetch { brings, from: None, ..fetch });
                add(format!("node {peer} answers node {node}"), Some(state));
                return;
            }
            let mut state = *self;
            // The slot may be another object's, or free, if the requester has ended: then its bytes are
            // arbitrary.
            let is_it = self.objects[object] == Some(name);
            let bytes = is_it && !self.writing;
            let believes = fault == Some(Fault::MarkSkippedByHint);
            let hint = &mut state.hints[name.slot][usize::from(name.colour.0)];
            let is_known = std::mem::replace(hint, believes);
            if fault != Some(Fault::ServedForgotten) && !is_known {
                let _ = state.apply(name.slot, Event::Serve);
            }
            state.fetches[node] = Some(Fetch { brings: Some(bytes), ..fetch });
            add(format!("the home serves node {node}"), Some(state));
            for peer in (0..NODES).filter(|peer| *peer != node) {
                let copies = &self.copies[peer][name.slot];
                let under = copies[usize::from(name.colour.0)];
                let mut state = *self;
                if fault == Some(Fault::HintUnchecked) {
                    let Some(any) = copies.iter().flatten().min().copied() else { continue };
                    state.fetches[node] = Some(Fetch { brings: Some(any), ..fetch });
                } else if under.is_some() {
                    state.fetches[node] = Some(Fetch { from: Some(peer), ..fetch });
                } else {
                    continue;
                }
                add(format!("node {node} is handed on to node {peer}"), Some(state));
            }
            return;
        };
        let mut state = *self;
        state.fetches[node] = None;
        let late = fault == Some(Fault::PublishedLate);
        if may_publish(fetch.lives) || late {
            state.copy(node, name).get_or_insert(fresh);
        }
        add(format!("it arrives at node {node}"), Some(state));
    }
}

/// Visits all states; returns their number, or the violation.
fn explore(scope: Scope, fault: Option<Fault>) -> Result<usize, String> {
    visit(State::first(scope), fault.is_some(), |state| state.next(scope, fault))
}

/// Visits all states reachable from the first and returns their number, or the violation, with the shortest
/// path to it if requested.
pub(super) fn visit<S: Copy + Eq + Hash>(
    first: S,
    is_told: bool,
    next: impl Fn(&S) -> Result<Vec<(String, S)>, String>,
) -> Result<usize, String> {
    let mut seen: FxHashSet<S> = FxHashSet::from_iter([first]);
    let mut states = vec![(first, 0u32, String::new())];
    let mut at = 0;
    while at < states.len() {
        match next(&states[at].0) {
            Ok(all) => {
                for (how, next) in all {
                    if seen.insert(next) {
                        states.push((next, at as u32, if is_told { how } else { String::new() }));
                    }
                }
            }
            Err(what) => {
                let mut way = vec![what];
                while at != 0 {
                    way.push(states[at].2.clone());
                    at = states[at].1 as usize;
                }
                way.reverse();
                return Err(way.join(" · "));
            }
        }
        at += 1;
        assert!(at < STATES_MAX, "the walk has no end");
    }
    Ok(states.len())
}

#[test]
fn no_order_of_things_shows_an_old_value() {
    let states = SCOPES.map(|scope| explore(scope, None).unwrap());
    assert_eq!(
        states,
        [787_065, 1_351_413, 432_695, 302_196, 6_035],
        "the protocol or the walk has changed: see that it is meant"
    );
}

#[test]
fn every_broken_rule_is_found() {
    use Fault::*;
    for fault in [
        ColourRestarts,
        BumpSkipped,
        ServedForgotten,
        PublishedLate,
        RevivedEarly,
        ConfirmedWithCopies,
        ConfirmedByOthers,
        ConfirmedBefore,
        EvictedHeld,
        ChildAlone,
        HintUnchecked,
        LabelLookedAtOnce,
        MarkSkippedByHint,
        EvictedFromMate,
        KeptFromInPlace,
    ] {
        // The smallest first.
        let found = SCOPES.iter().rev().find_map(|scope| explore(*scope, Some(fault)).err());
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} is not found");
    }
    // Each walk by itself, of what it is for.
    for (scope, fault) in SCOPES.into_iter().zip([
        BumpSkipped,
        ChildAlone,
        LabelLookedAtOnce,
        EvictedFromMate,
        ConfirmedByOthers,
    ]) {
        assert!(explore(scope, Some(fault)).is_err(), "{fault:?} is not found in {scope:?}");
    }
}
