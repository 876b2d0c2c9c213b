//! Goal: if a partition has a backup (`heap/replica.rs`), and its node is lost at any moment, a read never
//! returns a value other than its word means, and nothing passed on is lost. Method: as `walk.rs`. An object
//! is made on the first node, which is lost once, is lent to all for reading and to the first two nodes for
//! writing by the third, which has its box. Slots that become free are used by other objects.
//!
//! A collective operation begins and ends with a meeting, which the ranks leave one by one; a loss cuts it
//! off: its owner's box is then unchanged, even if the object was written already, and other ranks may still
//! read their loans. A place is *right* for a name while it has the bytes that the name means.

use super::walk::visit;
use super::*;

const NODES: usize = 3;
const SLOTS: usize = 3;
const HOME: [usize; SLOTS] = [0, 0, 1];
const LAST: Colour = Colour(1);
const COLOURS: usize = LAST.0 as usize + 1;
/// The lost node, and the node with the box.
const LOST: usize = 0;
const OWNER: usize = 2;
/// Meetings after which what was replaced is free.
const MEETINGS: u8 = 2;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A writer passes on a value that the backup does not have.
    PassedUnreplicated,
    /// A replicated value is written in place, under the next colour: as without backups.
    WrittenInPlace,
    /// A replicated value is not marked as served.
    UnmarkedReplica,
    /// A replaced slot is free at once.
    FreedAtOnce,
    /// A replaced slot is free after one meeting, which its owner may not have left.
    FreedEarly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    slot: usize,
    colour: Colour,
}

/// A collective operation of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Collective {
    Nothing,
    /// They agree: to read, or that this node writes. Each rank that has left the meeting does it.
    Begins {
        writer: Option<usize>,
        out: [bool; NODES],
    },
    Ends {
        writer: Option<usize>,
        out: [bool; NODES],
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    slots: [Slot; SLOTS],
    /// Colours of the current or last objects of the slots.
    colours: [Colour; SLOTS],
    /// True if some other object lies there.
    other: [bool; SLOTS],
    /// The box's word.
    word: Name,
    /// New place of the object at a writer, unknown to its owner; and whether the backup has it, too.
    new: Option<Name>,
    is_passed: bool,
    together: Collective,
    /// A slot was replaced by this node, which has left this number of meetings since.
    parked: [Option<(usize, u8)>; SLOTS],
    /// The words that the first node's backup notes for its slots, and whether the bytes there are right.
    backup: [Option<(Colour, bool)>; SLOTS],
    /// True if the copy is right.
    copies: [[[Option<bool>; COLOURS]; SLOTS]; NODES],
    /// Word of each request, and whether the value it brings is right.
    fetches: [Option<(Name, Option<bool>)>; NODES],
    is_lost: bool,
    /// Loans that were open when the first node was lost.
    late: [Option<Name>; NODES],
}

type Next = Vec<(String, State)>;

impl State {
    fn first() -> Self {
        let word = Name { slot: 0, colour: Colour(0) };
        Self {
            slots: [Slot::Live { served: true }, Slot::Free(Colour(0)), Slot::Free(Colour(0))],
            colours: [Colour(0); SLOTS],
            other: [false; SLOTS],
            word,
            new: None,
            is_passed: false,
            together: Collective::Nothing,
            parked: [None; SLOTS],
            backup: [Some((Colour(0), true)), None, None],
            copies: [[[None; COLOURS]; SLOTS]; NODES],
            fetches: [None; NODES],
            is_lost: false,
            late: [None; NODES],
        }
    }

    fn is_away(&self, slot: usize) -> bool {
        self.is_lost && HOME[slot] == LOST
    }

    /// Bytes under this name are others from now on, wherever they are.
    fn means_something_else(&mut self, name: Name) {
        for node in 0..NODES {
            if let Some(copy) = &mut self.copies[node][name.slot][usize::from(name.colour.0)] {
                *copy = false;
            }
            if let Some((_, Some(brings))) = self.fetches[node].as_mut().filter(|(of, _)| *of == name) {
                *brings = false;
            }
        }
        if let Some((_, is_right)) = self.backup[name.slot].as_mut().filter(|(of, _)| *of == name.colour) {
            *is_right = false;
        }
    }

    /// Something new in this slot.
    fn allocate(&mut self, slot: usize) -> Option<Name> {
        let (next, Outcome::Takes(colour)) = step(self.slots[slot], Event::Allocate, LAST)? else {
            return None;
        };
        self.slots[slot] = next;
        self.colours[slot] = colour;
        let name = Name { slot, colour };
        self.means_something_else(name);
        Some(name)
    }

    fn free(&mut self, slot: usize) -> Option<()> {
        self.slots[slot] = step(self.slots[slot], Event::Free(self.colours[slot]), LAST)?.0;
        Some(())
    }

    /// Brings the backup of the first node up to date, if `node` is that.
    fn replicate(&mut self, node: usize, fault: Option<Fault>) {
        for slot in (0..SLOTS).filter(|slot| HOME[*slot] == node) {
            let Some((served, _)) = step(self.slots[slot], Event::Serve, LAST) else { continue };
            if fault != Some(Fault::UnmarkedReplica) {
                self.slots[slot] = served;
            }
            if node == LOST {
                self.backup[slot] = Some((self.colours[slot], true));
            }
        }
    }

    /// A node writes the object, which was under `word`: yields its name then.
    fn write(&mut self, node: usize, to: usize, fault: Option<Fault>) -> Option<Name> {
        let Name { slot, colour } = self.word;
        if to == slot {
            // Only an object that was not given to any rank; there is no such object, if all is right.
            return match step(self.slots[slot], Event::Write(colour), LAST)? {
                (_, Outcome::Stays) => {
                    self.means_something_else(self.word);
                    Some(self.word)
                }
                (next, Outcome::Takes(colour)) if fault == Some(Fault::WrittenInPlace) => {
                    self.means_something_else(self.word);
                    (self.slots[slot], self.colours[slot]) = (next, colour);
                    let name = Name { slot, colour };
                    self.means_something_else(name);
                    Some(name)
                }
                _ => None,
            };
        }
        let new = self.allocate(to)?;
        if fault == Some(Fault::FreedAtOnce) {
            self.free(slot)?;
        } else if !self.is_away(slot) {
            self.parked[slot] = Some((node, 0));
        }
        Some(new)
    }

    /// A node has come out of a meeting.
    fn has_met(&mut self, node: usize, fault: Option<Fault>) {
        let meetings = if fault == Some(Fault::FreedEarly) { 1 } else { MEETINGS };
        for slot in 0..SLOTS {
            let Some((_, met)) = self.parked[slot].as_mut().filter(|(who, _)| *who == node) else { continue };
            *met += 1;
            if *met >= meetings {
                self.parked[slot] = None;
                let _ = self.free(slot);
            }
        }
    }

    /// Returns the word that a node has borrowed for reading.
    fn borrowed(&self, node: usize) -> Option<Name> {
        match self.together {
            Collective::Begins { writer: None, out } if out[node] => Some(self.word),
            _ => self.late[node],
        }
    }

    fn next(&self, fault: Option<Fault>) -> Result<Next, String> {
        let mut all = Next::new();
        let mut add = |what: String, state: State| all.push((what, state));
        self.meet(fault, &mut add);
        // Reads of the first node go with it.
        for node in 1..NODES {
            self.read(node, &mut add)?;
            for slot in 0..SLOTS {
                for colour in 0..COLOURS {
                    let name = Name { slot, colour: Colour(colour as u16) };
                    if self.copies[node][slot][colour].is_some() && self.borrowed(node) != Some(name) {
                        let mut state = *self;
                        state.copies[node][slot][colour] = None;
                        add(format!("node {node} evicts {name:?}"), state);
                    }
                }
            }
        }
        for slot in (0..SLOTS).filter(|slot| !self.is_away(*slot)) {
            // The object's former place; it stays.
            let mut state = *self;
            if self.slots[slot] != Slot::Free(Colour(0)) && state.allocate(slot).is_some() {
                state.other[slot] = true;
                add(format!("another object in {slot}"), state);
            }
        }
        if !self.is_lost {
            let mut state = *self;
            state.is_lost = true;
            state.late = std::array::from_fn(|node| self.borrowed(node).filter(|_| node != LOST));
            // Nodes that have not heard of it have the old place.
            state.new = None;
            state.together = Collective::Nothing;
            add("the first node is lost".into(), state);
        }
        Ok(all)
    }

    /// Adds the starts and ends of collective operations.
    fn meet(&self, fault: Option<Fault>, add: &mut dyn FnMut(String, State)) {
        match self.together {
            Collective::Nothing if self.is_lost => {
                // They do not meet any more. Tasks borrow, and write what they are lent.
                let mut state = *self;
                if self.late[OWNER].is_none() {
                    state.late[OWNER] = Some(self.word);
                    add("its owner borrows".into(), state);
                } else if self.fetches[OWNER].is_none() {
                    state.late[OWNER] = None;
                    add("its owner ends its borrow".into(), state);
                }
                for to in (0..SLOTS).filter(|to| self.late[OWNER].is_none() && HOME[*to] == 1) {
                    let mut state = *self;
                    if let Some(new) = state.write(1, to, fault) {
                        state.replicate(1, fault);
                        state.word = new;
                        add(format!("a task writes in {to}"), state);
                    }
                }
                if self.late[1].is_some() && self.fetches[1].is_none() {
                    let mut state = *self;
                    state.late[1] = None;
                    add("node 1 ends its borrow".into(), state);
                }
            }
            Collective::Nothing => {
                for writer in [None, Some(0), Some(1)] {
                    let together = Collective::Begins { writer, out: [false; NODES] };
                    add(
                        format!("they agree: {writer:?} writes"),
                        State { together, is_passed: false, ..*self },
                    );
                }
            }
            Collective::Begins { writer, out } => {
                for node in (0..NODES).filter(|node| !out[*node]) {
                    let mut state = *self;
                    state.has_met(node, fault);
                    let mut out = out;
                    out[node] = true;
                    state.together = Collective::Begins { writer, out };
                    add(format!("node {node} begins"), state);
                }
                if let Some(writer) = writer.filter(|writer| out[*writer] && self.new.is_none()) {
                    for to in (0..SLOTS).filter(|to| HOME[*to] == writer) {
                        let mut state = *self;
                        state.new = state.write(writer, to, fault);
                        if state.new.is_some() {
                            add(format!("node {writer} writes in {to}"), state);
                        }
                    }
                }
                if let Some(writer) = writer.filter(|_| self.new.is_some() && !self.is_passed) {
                    let mut state = *self;
                    if fault != Some(Fault::PassedUnreplicated) {
                        state.replicate(writer, fault);
                    }
                    state.is_passed = true;
                    add(format!("node {writer} has written"), state);
                }
                let is_done = writer.is_none() || self.is_passed;
                if is_done && out == [true; NODES] && self.fetches == [None; NODES] {
                    let together = Collective::Ends { writer, out: [false; NODES] };
                    add("they end".into(), State { together, ..*self });
                }
            }
            Collective::Ends { writer, out } => {
                for node in (0..NODES).filter(|node| !out[*node]) {
                    let mut state = *self;
                    state.has_met(node, fault);
                    if node == OWNER {
                        state.word = state.new.take().unwrap_or(state.word);
                    }
                    let mut out = out;
                    out[node] = true;
                    state.together = match out == [true; NODES] {
                        true => Collective::Nothing,
                        false => Collective::Ends { writer, out },
                    };
                    add(format!("node {node} has ended"), state);
                }
            }
        }
    }

    /// Adds a node's steps with its borrow.
    fn read(&self, node: usize, add: &mut dyn FnMut(String, State)) -> Result<(), String> {
        let Some(name) = self.borrowed(node) else { return Ok(()) };
        let Name { slot, colour } = name;
        // The current object there, at its home.
        let is_there = matches!(self.slots[slot], Slot::Live { .. })
            && self.colours[slot] == colour
            && !self.other[slot]
            // Its writer has it in the same place, under the same name.
            && (self.new != Some(name) || self.word != name);
        match (self.fetches[node], self.copies[node][slot][usize::from(colour.0)]) {
            (None, Some(is_right)) if !is_right => {
                Err(format!("node {node} reads another value under {name:?}"))
            }
            (None, Some(_)) => Ok(()),
            (None, None) if HOME[slot] == node => match is_there {
                true => Ok(()),
                false => Err(format!("node {node} finds something else at {name:?}")),
            },
            (None, None) => {
                let mut state = *self;
                state.fetches[node] = Some((name, None));
                add(format!("node {node} asks for {name:?}"), state);
                Ok(())
            }
            (Some((of, None)), _) if of == name => {
                let mut state = *self;
                let brings = match self.is_away(slot) {
                    true => match self.backup[slot] {
                        Some((noted, is_right)) if noted == colour => is_right,
                        _ => {
                            return Err(format!(
                                "{name:?} is not in the backup, and node {node} was lent it"
                            ));
                        }
                    },
                    false => {
                        state.slots[slot] =
                            step(self.slots[slot], Event::Serve, LAST).map_or(self.slots[slot], |to| to.0);
                        is_there
                    }
                };
                state.fetches[node] = Some((name, Some(brings)));
                add(format!("node {node} is served"), state);
                Ok(())
            }
            (Some((of, Some(is_right))), _) if of == name => {
                let mut state = *self;
                state.fetches[node] = None;
                state.copies[node][slot][usize::from(colour.0)] = Some(is_right);
                add(format!("it arrives at node {node}"), state);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn explore(fault: Option<Fault>) -> Result<usize, String> {
    visit(State::first(), fault.is_some(), |state| state.next(fault))
}

#[test]
fn no_loss_shows_an_old_value_or_loses_one() {
    assert_eq!(explore(None), Ok(1_109_040), "replication or the walk has changed: see that it is meant");
}

#[test]
fn every_broken_rule_of_replication_is_found() {
    use Fault::*;
    for fault in [PassedUnreplicated, WrittenInPlace, UnmarkedReplica, FreedAtOnce, FreedEarly] {
        let found = explore(Some(fault)).err();
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} is not found");
    }
}
