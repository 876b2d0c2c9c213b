//! Work at the home of objects: one message brings another node an object's bytes, and one tells of many that are free.
//!
//! It knows no types and no allocator, only the places of the words that both sides agree on: the slot that
//! was served, and the list of slots freed by others, through the slots themselves ([`crate::slab`],
//! `heap/`).
//!
//! A home whose bytes are not in memory, or which is behind with reads, hands a reader on to the node that
//! read the object last, if it knows of one: a message to that node, and the answer from there. There the
//! copy's label is looked at, the bytes are taken, and the label is looked at again; unless both show this
//! word, and the same copy, the reader comes back to the home, which serves it. A forwarded read does not
//! mark the slot as served: the copy exists because it was marked.
//!
//! An object may be asked for with all that is tied to it ([`Request::Group`]): the reader says where in its bytes the words of tied objects are,
//! and where in theirs; this follows them as long as they are of the same rank and the answer has room.
//!
//! Reads that come in one message ([`Request::All`]) are done at the same time, even from NVMe, and answered
//! together; a home that is behind leaves those with known copies to be requested by themselves.

use super::bytes::Bytes;
pub(crate) use super::hints::CopyAt;
use super::hints::Hints;
use crate::heap::{LIBRARY, SEGMENT};
use crate::slab::{LABEL_BYTES, SERVED, label_offset, word_address};
use crate::tie::TYPES_MAX;
use crate::word::{Link, Word};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use vgas::service::{Call, Failure, Home, Library, Service};
use vgas::{Change, NodeId, Peer, Rank};

/// Most words that are noted in one freed slot, and most slots that are freed by one message.
pub(crate) const NOTE_WORDS_MAX: usize = 4096;

/// Unanswered messages of readers from which on a home forwards reads where it can.
const BUSY_READS: usize = 64;

/// Most reads of a message.
pub(crate) const LIST_READS_MAX: usize = 1024;
/// Most bytes that they want together: no message has more.
const LIST_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a message for a tied object beside its own.
const TIED_BYTES: u64 = 16;

/// Request to the home of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The bytes of an object of this rank.
    Read(Read),
    /// The same, forwarded to the node that may have this copy.
    Handed(Read, CopyAt),
    /// The same, handed on in vain.
    Back(Read),
    /// The bytes of several objects of ranks of this node.
    All(Vec<Read>),
    /// The bytes of objects, and of their ties, in at most `most` bytes. Partitions lie in the order of their
    /// ranks, the first at `base` in all processes, one after each `stride`. The first kind is that of the
    /// objects, or of each of their values.
    Group { first: Vec<Read>, base: u64, stride: u64, most: u32, kinds: Vec<Kind> },
    /// Objects of this rank are free, those that come later in the list being linked to by those before. Answered when all
    /// that were freed by earlier messages are in its list, too.
    Free { owner: u32, all: Vec<Freed> },
    /// Asks for the counts of this node's service.
    Counts,
}

/// The requested bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Read {
    pub owner: u32,
    pub offset: u64,
    pub bytes: u32,
    /// Offset of its slot's word, if the object stays: its next writer must see that it was served.
    pub served: Option<u64>,
    /// Future place of its copy, if others can find it there.
    pub copy: Option<CopyAt>,
}

/// A type as a home needs it to follow the ties of its values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kind {
    pub bytes: u32,
    /// Class of the small slots of its values; values in others are not followed.
    pub slot: Option<u8>,
    /// Offsets of the words of tied objects in a value, and the kind of each.
    pub ties: Vec<(u32, u16)>,
}

/// Work of a node's service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Objects that were read here.
    pub reads: u64,
    /// Readers that were handed on to other nodes.
    pub handed_on: u64,
    /// Readers of other homes that got what they wanted from a copy here.
    pub from_copies: u64,
    /// Readers that came back.
    pub came_back: u64,
    /// Words with a known copy.
    pub hints: u64,
}

/// An object that is free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Freed {
    /// Its [`crate::Word`].
    pub word: u64,
    /// Offset of its slot.
    pub offset: u64,
    /// Words to write there: the word of the next one, and the copies that this one held.
    pub note: Vec<u64>,
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Bytes(Bytes),
    /// In the order of the requests; none if it is to be requested by itself.
    All(Vec<Option<Bytes>>),
    /// Objects in the order of the requests, and their ties, each with its word.
    Group {
        first: Vec<Option<Bytes>>,
        tied: Vec<(u64, Bytes)>,
    },
    Freed,
    Counts(Counts),
    /// Not here, or it could not be done.
    Failed,
}

/// The service of a node's homes.
#[derive(Debug, Default)]
pub(crate) struct HeapService {
    next: u64,
    reads: HashMap<u64, Reading>,
    /// Those of them that are answered together, by number.
    lists: HashMap<u64, List>,
    /// Number of the reads that belong to lists.
    listed: usize,
    hints: Hints,
    counts: Counts,
    /// Lists that are being freed, the first of them now.
    free: VecDeque<Freeing>,
}

/// A read in flight.
#[derive(Debug)]
struct Reading {
    asker: Requester,
    read: Read,
    step: ReadStep,
}

/// Recipient of a read's result.
#[derive(Debug)]
enum Requester {
    One(Call),
    /// A list with this number, and the index in it.
    List(u64, usize),
}

/// Reads that are answered together.
#[derive(Debug)]
struct List {
    call: Call,
    found: Vec<Option<Bytes>>,
    /// So many have not ended.
    left: usize,
    /// For a group: the objects to follow.
    ties: Option<Followed>,
}

/// Parameters of following a group.
#[derive(Debug)]
struct Followed {
    base: u64,
    stride: u64,
    /// Ranks whose objects are followed: those of this node.
    ranks: Range<u32>,
    /// Its objects stay, and are marked.
    marks: bool,
    /// Bytes that the answer has room for.
    room: u64,
    kinds: Vec<Kind>,
    /// Number of requested objects; the others are tied to them.
    first: usize,
    /// Word and kind of each followed object.
    tied: Vec<(u64, u16)>,
}

/// Step of a read.
#[derive(Clone, Debug)]
enum ReadStep {
    /// Finding out if it is in memory; else this node may have it.
    Looking(NodeId, CopyAt),
    /// The slot is being marked.
    Marking,
    /// The bytes are on their way.
    Bytes,
    /// The label of a copy here is being read, before its bytes are.
    Before(CopyAt),
    /// The bytes of the copy that had this label.
    Copy(CopyAt, Vec<u8>),
    /// The label is being read again: its former value, and the bytes.
    After(Vec<u8>, Vec<u8>),
}

/// Objects that are being hung into the list of a rank.
#[derive(Debug)]
struct Freeing {
    /// The ticket of all that is done for it.
    ticket: u64,
    call: Call,
    owner: Rank,
    all: Vec<Freed>,
    step: Step,
}

/// Step of the first object being freed.
#[derive(Debug)]
enum Step {
    /// So many slots are not noted yet.
    Notes(usize),
    /// The list's beginning is being read.
    Head,
    /// The last one gets this to follow it.
    Link(u64),
    /// The list begins with the first one, if it still began with this.
    Swap(u64),
}

impl Service for HeapService {
    type Request = Request;
    type Answer = Answer;
    const NAME: &'static str = "objects.heap";
    const LIBRARY: Library = LIBRARY;

    fn called(&mut self, call: Call, request: Request, home: &mut Home<'_, Self>) {
        self.next += 1;
        match request {
            Request::Read(read) if is_here(read.owner, home) => self.read(call, read, true, home),
            Request::All(reads) if is_list(&reads) && reads.iter().all(|read| is_here(read.owner, home)) => {
                self.read_all(call, reads, None, home);
            }
            Request::Group { first, base, stride, most, kinds }
                if is_list(&first)
                    && is_group(&kinds)
                    && first.iter().all(|read| is_here(read.owner, home)) =>
            {
                let layout = home.layout();
                let ranks = layout.ranks_of(home.node());
                let taken: u64 = first.iter().map(|read| u64::from(read.bytes) + TIED_BYTES).sum();
                let room = u64::from(most).min(LIST_BYTES_MAX).saturating_sub(taken);
                let marks = first.iter().all(|read| read.served.is_some());
                let stride = stride.max(1);
                let ties = Followed {
                    base,
                    stride,
                    ranks,
                    marks,
                    room,
                    kinds,
                    first: first.len(),
                    tied: Vec::new(),
                };
                self.read_all(call, first, Some(ties), home);
            }
            Request::Back(read) if is_here(read.owner, home) => {
                self.counts.came_back += 1;
                self.read(call, read, false, home);
            }
            Request::Handed(read, copy) if is_here(copy.rank, home) => {
                self.go(Requester::One(call), read, ReadStep::Before(copy), home);
            }
            // No correct rank sends it here; its home says so.
            Request::Handed(read, _) => back(call, read, home),
            Request::Free { owner, all } if is_here(owner, home) && is_sound(&all) => {
                let step = Step::Notes(all.len());
                self.free.push_back(Freeing { ticket: self.next, call, owner: Rank(owner), all, step });
                if self.free.len() == 1 {
                    self.begin(home);
                }
            }
            Request::Counts => {
                let counts = Counts { hints: self.hints.count(), ..self.counts };
                home.answer(call, &Answer::Counts(counts));
            }
            _ => home.answer(call, &Answer::Failed),
        }
    }

    fn done(&mut self, ticket: u64, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        match self.reads.remove(&ticket) {
            Some(reading) => {
                self.next += 1;
                self.read_on(reading, result, home);
            }
            None if self.free.front().is_some_and(|first| first.ticket == ticket) => {
                self.go_on(result, home);
            }
            // An abandoned read.
            None => {}
        }
    }
}

/// The reader is to be served by the home after all.
fn back(call: Call, read: Read, home: &mut Home<'_, HeapService>) {
    let layout = home.layout();
    if read.owner < layout.ranks() {
        let to = layout.node_of(Rank(read.owner));
        home.pass_on(call, to, &Request::Back(read));
    } else {
        home.answer(call, &Answer::Failed);
    }
}

/// Returns true if these reads may come in one message: their answer is one, too, and bounds the memory in
/// use.
fn is_list(reads: &[Read]) -> bool {
    let bytes = reads.iter().fold(0, |bytes: u64, read| bytes + u64::from(read.bytes));
    reads.len() <= LIST_READS_MAX && bytes <= LIST_BYTES_MAX
}

/// Returns true if these can be the kinds of a group.
fn is_group(kinds: &[Kind]) -> bool {
    // The work for a request is bounded by its bytes: each tie has bytes of its own.
    let is_kind = |kind: &Kind| {
        size_of::<Link>() * kind.ties.len() <= kind.bytes as usize
            && kind.ties.iter().all(|(_, of)| usize::from(*of) < kinds.len())
    };
    (1..=TYPES_MAX).contains(&kinds.len()) && kinds.iter().all(is_kind)
}

impl Followed {
    /// Returns the reads that follow from found bytes: of the objects tied to them.
    fn reads(&mut self, at: usize, bytes: &[u8]) -> Vec<Read> {
        let of = match at.checked_sub(self.first) {
            None => self.kinds.first(),
            Some(at) => self.tied.get(at).and_then(|(_, of)| self.kinds.get(usize::from(*of))),
        };
        let Some(of) = of else { return Vec::new() };
        let mut reads = Vec::new();
        for begin in (0..bytes.len()).step_by((of.bytes as usize).max(1)) {
            for (offset, number) in &of.ties {
                let word = bytes.get(begin + *offset as usize..).and_then(<[u8]>::first_chunk::<8>);
                let word = word.and_then(|word| Word::from_bits(u64::from_le_bytes(*word)));
                let (Some(word), Some(kind)) = (word, self.kinds.get(usize::from(*number))) else { continue };
                let address = word.address();
                let (Some(slot), Some(within)) = (kind.slot, address.checked_sub(self.base)) else {
                    continue;
                };
                let takes = u64::from(kind.bytes) + TIED_BYTES;
                let owner = u32::try_from(within / self.stride).unwrap_or(u32::MAX);
                let has_room = takes <= self.room && self.first + self.tied.len() < LIST_READS_MAX;
                if kind.bytes == 0 || !has_room || !self.ranks.contains(&owner) {
                    continue;
                }
                self.room -= takes;
                self.tied.push((word.bits(), *number));
                let offset = within % self.stride;
                // The word of its slot is in the same partition, or this leads nowhere, and is refused.
                let served = self.marks.then(|| word_address(slot, address).wrapping_sub(address - offset));
                reads.push(Read { owner, offset, bytes: kind.bytes, served, copy: None });
            }
        }
        reads
    }
}

/// Returns true if a rank is of this node.
fn is_here(owner: u32, home: &Home<'_, HeapService>) -> bool {
    let layout = home.layout();
    owner < layout.ranks() && layout.node_of(Rank(owner)) == home.node()
}

/// Returns true if freed objects can be a list.
fn is_sound(all: &[Freed]) -> bool {
    all.len() <= NOTE_WORDS_MAX && all.iter().all(|freed| (1..=NOTE_WORDS_MAX).contains(&freed.note.len()))
}

/// Decodes a label: the word and the serial number of the copy; none if there is no copy.
fn label_of(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<8>().map(|word| u64::from_le_bytes(*word)).filter(|word| *word != 0)
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Builds the answer for a group.
fn group(ties: Followed, mut found: Vec<Option<Bytes>>) -> Answer {
    let tied = found.split_off(ties.first.min(found.len()));
    let words = ties.tied.into_iter().map(|(word, _)| word);
    Answer::Group {
        first: found,
        tied: words.zip(tied).filter_map(|(word, bytes)| Some((word, bytes?))).collect(),
    }
}

impl HeapService {
    /// An object of this node is wanted.
    fn read(&mut self, call: Call, read: Read, may_hand_on: bool, home: &mut Home<'_, Self>) {
        let known = self.known(call.from(), &read, home).filter(|_| may_hand_on);
        match known {
            Some((node, copy)) if self.is_busy() => self.hand_on(call, read, node, copy, home),
            Some((node, copy)) => self.go(Requester::One(call), read, ReadStep::Looking(node, copy), home),
            None => self.serve(Requester::One(call), read, home),
        }
    }

    fn is_busy(&self) -> bool {
        self.reads.len() - self.listed + self.lists.len() >= BUSY_READS
    }

    /// Objects of this node are wanted, to be answered together.
    fn read_all(&mut self, call: Call, reads: Vec<Read>, ties: Option<Followed>, home: &mut Home<'_, Self>) {
        let (from, number, is_busy) = (call.from(), self.next, self.is_busy());
        let count = reads.len();
        self.lists.insert(number, List { call, found: vec![None; count], left: count + 1, ties });
        for (at, read) in reads.into_iter().enumerate() {
            self.next += 1;
            let (asker, known) = (Requester::List(number, at), self.known(from, &read, home));
            match known.filter(|_| is_busy) {
                Some(_) => self.tell(asker, None, home),
                None => self.serve(asker, read, home),
            }
        }
        self.one_of_list_ended(number, home);
    }

    /// Returns a node with a copy, other than the requester's, and notes the requester as having one.
    fn known(&mut self, from: Peer, read: &Read, home: &Home<'_, Self>) -> Option<(NodeId, CopyAt)> {
        let (layout, copy) = (home.layout(), read.copy?);
        let asks = layout.node_of(layout.rank_of_peer(from)?);
        let of = (read.owner, read.offset, read.bytes);
        let known = self.hints.find(of, copy.word, asks);
        // A copy that is not this node's own: a reader of another node names where it will have one.
        if copy.rank < layout.ranks() && layout.node_of(Rank(copy.rank)) == asks {
            self.hints.note(of, asks, copy);
        }
        known
    }

    fn hand_on(&mut self, call: Call, read: Read, node: NodeId, copy: CopyAt, home: &mut Home<'_, Self>) {
        self.counts.handed_on += 1;
        home.pass_on(call, node, &Request::Handed(read, copy));
    }

    /// Says what was found, or that it could not be.
    fn tell(&mut self, asker: Requester, found: Option<Vec<u8>>, home: &mut Home<'_, Self>) {
        match asker {
            Requester::One(call) => {
                home.answer(call, &found.map_or(Answer::Failed, |found| Answer::Bytes(Bytes(found))));
            }
            Requester::List(number, at) => {
                if let Some(list) = self.lists.get_mut(&number) {
                    let followed = list.ties.as_mut().zip(found.as_deref());
                    let more = followed.map_or_else(Vec::new, |(ties, bytes)| ties.reads(at, bytes));
                    if let Some(place) = list.found.get_mut(at) {
                        *place = found.map(Bytes);
                    }
                    let first = list.found.len();
                    list.found.resize(first + more.len(), None);
                    list.left += more.len();
                    for (at, read) in (first..).zip(more) {
                        self.next += 1;
                        self.serve(Requester::List(number, at), read, home);
                    }
                }
                self.one_of_list_ended(number, home);
            }
        }
    }

    /// Answers a list that is complete.
    fn one_of_list_ended(&mut self, number: u64, home: &mut Home<'_, Self>) {
        let Some(list) = self.lists.get_mut(&number) else { return };
        list.left -= 1;
        if list.left == 0
            && let Some(List { call, found, ties, .. }) = self.lists.remove(&number)
        {
            let answer = match ties {
                None => Answer::All(found),
                Some(ties) => group(ties, found),
            };
            home.answer(call, &answer);
        }
    }

    /// Marks it, if it stays, and reads it.
    fn serve(&mut self, asker: Requester, read: Read, home: &mut Home<'_, Self>) {
        self.counts.reads += 1;
        let step = if read.served.is_some() { ReadStep::Marking } else { ReadStep::Bytes };
        self.go(asker, read, step, home);
    }

    /// Says what a step needs; its end is heard of under the last number.
    fn go(&mut self, asker: Requester, read: Read, step: ReadStep, home: &mut Home<'_, Self>) {
        let (owner, ticket) = (Rank(read.owner), self.next);
        let label = |copy: &CopyAt| copy.offset.checked_add(label_offset(read.bytes.into()));
        match &step {
            ReadStep::Looking(..) => home.read_in_memory((SEGMENT, owner), read.offset, read.bytes, ticket),
            ReadStep::Marking => {
                home.update((SEGMENT, owner), read.served.unwrap_or(u64::MAX), Change::Or(SERVED), ticket);
            }
            ReadStep::Bytes => home.read((SEGMENT, owner), read.offset, read.bytes, ticket),
            ReadStep::Copy(copy, _) => {
                home.read_in_memory((SEGMENT, Rank(copy.rank)), copy.offset, read.bytes, ticket);
            }
            ReadStep::Before(copy) => match label(copy) {
                Some(at) => home.read_in_memory((SEGMENT, Rank(copy.rank)), at, LABEL_BYTES as u32, ticket),
                None => return self.go_back(asker, read, home),
            },
            ReadStep::After(..) => return self.tell(asker, None, home),
        }
        self.begin_step(ticket, Reading { asker, read, step });
    }

    fn begin_step(&mut self, ticket: u64, reading: Reading) {
        self.listed += usize::from(matches!(reading.asker, Requester::List(..)));
        self.reads.insert(ticket, reading);
    }

    /// A step has ended, or failed.
    fn read_on(&mut self, reading: Reading, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        let Reading { asker, read, step } = reading;
        self.listed -= usize::from(matches!(asker, Requester::List(..)));
        match (step, result) {
            (ReadStep::Looking(..), Ok(_)) => self.serve(asker, read, home),
            (ReadStep::Looking(node, copy), Err(_)) => match asker {
                Requester::One(call) => self.hand_on(call, read, node, copy, home),
                Requester::List(..) => self.serve(asker, read, home),
            },
            (ReadStep::Marking, Ok(_)) => self.go(asker, read, ReadStep::Bytes, home),
            (ReadStep::Bytes, Ok(found)) => self.tell(asker, Some(found), home),
            (ReadStep::Marking | ReadStep::Bytes, Err(_)) => self.tell(asker, None, home),
            (ReadStep::Before(copy), Ok(label)) if label_of(&label) == Some(copy.word) => {
                self.go(asker, read, ReadStep::Copy(copy, label), home);
            }
            (ReadStep::Copy(copy, label), Ok(found)) => {
                let at = copy.offset.saturating_add(label_offset(read.bytes.into()));
                home.read_in_memory((SEGMENT, Rank(copy.rank)), at, LABEL_BYTES as u32, self.next);
                let step = ReadStep::After(label, found);
                self.begin_step(self.next, Reading { asker, read, step });
            }
            (ReadStep::After(before, found), Ok(after)) if before == after => {
                self.counts.from_copies += 1;
                self.tell(asker, Some(found), home);
            }
            (ReadStep::Before(_) | ReadStep::Copy(..) | ReadStep::After(..), _) => {
                self.go_back(asker, read, home);
            }
        }
    }

    /// Sends a forwarded read back to its home.
    fn go_back(&mut self, asker: Requester, read: Read, home: &mut Home<'_, Self>) {
        match asker {
            Requester::One(call) => back(call, read, home),
            Requester::List(..) => self.tell(asker, None, home),
        }
    }

    /// Begins with the first list that is to be freed, and answers those that need nothing done.
    fn begin(&mut self, home: &mut Home<'_, Self>) {
        while let Some(first) = self.free.front() {
            for freed in &first.all {
                home.write((SEGMENT, first.owner), freed.offset, bytes_of(&freed.note), first.ticket);
            }
            if !first.all.is_empty() {
                return;
            }
            self.end(&Answer::Freed, home);
        }
    }

    /// A step of the first list is done.
    fn go_on(&mut self, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        let Some(Freeing { ticket, owner, all, step, .. }) = self.free.front_mut() else { return };
        let (Some(first), Some(last), Ok(found)) = (all.first(), all.last(), result) else {
            // Its slots are lost with what could not be written.
            self.end(&Answer::Failed, home);
            return self.begin(home);
        };
        let was = found.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut link = |before: u64| {
            home.write((SEGMENT, *owner), last.offset, bytes_of(&[before]), *ticket);
            Step::Link(before)
        };
        *step = match *step {
            Step::Notes(1) => {
                home.read((SEGMENT, *owner), 0, 8, *ticket);
                Step::Head
            }
            Step::Notes(left) => Step::Notes(left - 1),
            Step::Head => link(was),
            Step::Link(expected) => {
                let change = Change::CompareSwap { expected, desired: first.word };
                home.update((SEGMENT, *owner), 0, change, *ticket);
                Step::Swap(expected)
            }
            Step::Swap(before) if before != was => link(was),
            Step::Swap(_) => {
                self.end(&Answer::Freed, home);
                return self.begin(home);
            }
        };
    }

    fn end(&mut self, answer: &Answer, home: &mut Home<'_, Self>) {
        if let Some(Freeing { call, .. }) = self.free.pop_front() {
            home.answer(call, answer);
        }
    }
}

impl HeapService {
    /// Returns true if nothing is in flight.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.free.is_empty() && self.lists.is_empty() && self.listed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas::service::Trial;
    use vgas::{Layout, NodeId};

    fn trial() -> Trial<HeapService> {
        Trial::new(HeapService::default(), Layout::blocks(4, 2), NodeId(1), 4096)
    }

    fn word(trial: &mut Trial<HeapService>, offset: usize) -> u64 {
        u64::from_le_bytes(*trial.memory(Rank(2))[offset..].first_chunk().unwrap())
    }

    fn freed(offset: u64, next: u64) -> Freed {
        Freed { word: 0x1000 + offset, offset, note: vec![next, 5, 0] }
    }

    fn read(owner: u32, offset: u64, bytes: u32, served: Option<u64>) -> Request {
        Request::Read(Read { owner, offset, bytes, served, copy: None })
    }

    /// Goal: a reader gets the bytes after the slot was marked; objects that are not here are refused,
    /// whatever the numbers are.
    #[test]
    fn reads_mark_what_they_give() {
        let mut trial = trial();
        trial.memory(Rank(2))[64..68].copy_from_slice(b"here");
        let call = trial.call(Rank(0), &read(2, 64, 4, Some(128)));
        assert_eq!(trial.pending(), 1, "it reads before the slot is marked");
        trial.finish();
        assert_eq!(trial.answer(call), Some(Ok(Answer::Bytes(Bytes(b"here".to_vec())))));
        assert_eq!(word(&mut trial, 128), u64::from(SERVED));
        for (owner, offset, bytes, served) in [
            (0, 0, 8, None),
            (9, 0, 8, None),
            (u32::MAX, 0, 8, Some(0)),
            (2, u64::MAX, 8, None),
            (3, 4090, u32::MAX, None),
            (2, 0, 8, Some(u64::MAX)),
        ] {
            let call = trial.call(Rank(0), &read(owner, offset, bytes, served));
            trial.finish();
            assert_eq!(trial.answer(call), Some(Ok(Answer::Failed)), "{owner} {offset} {bytes} {served:?}");
        }
    }

    /// Address of the partition of the group's rank, in the processes of the job.
    const BASE: u64 = 1 << 20;
    const STRIDE: u64 = 1 << 17;

    /// A group of a kind that has the next of its kind behind a number, of a rank that is here.
    fn nodes(first: u64, served: Option<u64>, most: u32) -> Request {
        let kinds = vec![Kind { bytes: 24, slot: Some(1), ties: vec![(8, 0)] }];
        let first = vec![Read { owner: 2, offset: first, bytes: 24, served, copy: None }];
        Request::Group { first, base: BASE - 2 * STRIDE, stride: STRIDE, most, kinds }
    }

    /// Writes one of those.
    fn node(trial: &mut Trial<HeapService>, at: u64, next: u64) {
        let words = [at + 1, next, 0];
        trial.memory(Rank(2))[at as usize..][..24].copy_from_slice(&bytes_of(&words));
    }

    /// Returns the words of an answer, the first without one.
    fn came(answer: Option<Result<Answer, vgas::service::ServiceError>>) -> Option<Vec<u64>> {
        let Some(Ok(Answer::Group { first, tied })) = answer else { return None };
        let number = |bytes: &Bytes| u64::from_le_bytes(*bytes.0.first_chunk().unwrap()).wrapping_sub(1);
        let is_right = |word: u64, bytes: &Bytes| word - BASE == number(bytes) || word - BASE > STRIDE;
        assert!(tied.iter().all(|(word, bytes)| is_right(*word, bytes)), "bytes of another");
        let first = number(first.first()?.as_ref()?);
        Some([first].into_iter().chain(tied.iter().map(|(word, _)| word - BASE)).collect())
    }

    /// With room for the words of a slab's slots, and some slots.
    fn larger() -> Trial<HeapService> {
        Trial::new(HeapService::default(), Layout::blocks(4, 2), NodeId(1), 16 << 10)
    }

    /// Goal: a request for an object with its ties gets them, as far as there is room; all of it is marked if
    /// it stays, and nothing if it does not.
    #[test]
    fn groups_are_followed() {
        for (served, most, expected) in [
            (Some(2048), 4096, &[8192u64, 8704, 8256, 8320][..]),
            (Some(2048), 40 + 2 * 40, &[8192, 8704, 8256]),
            (None, u32::MAX, &[8192, 8704, 8256, 8320]),
            (None, 24, &[8192]),
            (None, 0, &[8192]),
        ] {
            let mut trial = larger();
            for two in [8192, 8704, 8256, 8320, 0].windows(2) {
                node(&mut trial, two[0], if two[1] == 0 { 0 } else { BASE + two[1] });
            }
            let call = trial.call(Rank(0), &nodes(8192, served, most));
            trial.finish();
            assert_eq!(came(trial.answer(call)).as_deref(), Some(expected));
            for at in [8704, 8256, 8320] {
                let marks = word_address(1, BASE + at) - BASE;
                let is_marked =
                    word(&mut trial, marks as usize & !7) & u64::from(SERVED) << (8 * (marks & 4)) != 0;
                assert_eq!(is_marked, served.is_some() && expected.contains(&at), "{at}");
            }
        }
    }

    /// Goal: links in circles, to other nodes or to nowhere end; impossible kinds are refused.
    #[test]
    fn groups_are_no_traps() {
        for (next, expected) in [
            (BASE + 1024, 100),
            // Of another rank of the node: there is nothing.
            (BASE + STRIDE + 1024, 2),
            (BASE + 2 * STRIDE + 1024, 1),
            (BASE + (1 << 30), 1),
            (BASE - 8, 1),
            (1, 1),
            (u64::MAX, 1),
        ] {
            let mut trial = trial();
            node(&mut trial, 1024, next);
            let call = trial.call(Rank(0), &nodes(1024, None, 4000));
            trial.finish();
            assert_eq!(came(trial.answer(call)).map(|all| all.len()), Some(expected), "{next:#x}");
        }
        let first = Read { owner: 2, offset: 0, bytes: 24, served: None, copy: None };
        let group = |first: Read, kinds: Vec<Kind>| Request::Group {
            first: vec![first],
            base: BASE - 2 * STRIDE,
            stride: STRIDE,
            most: 4096,
            kinds,
        };
        let kind = |ties: Vec<(u32, u16)>| Kind { bytes: 24, slot: Some(200), ties };
        for wrong in [
            group(first, Vec::new()),
            group(first, vec![kind(vec![(8, 1)])]),
            group(first, vec![kind(vec![(8, 0); 2])]),
            group(first, vec![kind(Vec::new()); TYPES_MAX + 1]),
            group(Read { owner: 0, ..first }, vec![kind(Vec::new())]),
            group(Read { bytes: u32::MAX, ..first }, vec![kind(Vec::new())]),
        ] {
            let mut trial = trial();
            let call = trial.call(Rank(0), &wrong);
            trial.finish();
            assert_eq!(trial.answer(call), Some(Ok(Answer::Failed)), "{wrong:?}");
        }
        let nowhere = group(Read { offset: u64::MAX, ..first }, vec![kind(Vec::new())]);
        let mut trial = trial();
        let call = trial.call(Rank(0), &nowhere);
        trial.finish();
        assert_eq!(trial.answer(call), Some(Ok(Answer::Group { first: vec![None], tied: Vec::new() })));
        // Offsets and sizes that are none of a value.
        for ties in [vec![(u32::MAX, 0)], vec![(20, 0)], Vec::new()] {
            let mut trial = larger();
            node(&mut trial, 1024, BASE + 1024);
            let call = trial.call(Rank(0), &group(Read { offset: 1024, ..first }, vec![kind(ties)]));
            trial.finish();
            assert!(came(trial.answer(call)).is_some());
        }
    }

    /// Goal: freed objects are a list, before the former one, in whatever order its notes are written, and
    /// while its owner takes it away.
    #[test]
    fn what_is_freed_becomes_a_list() {
        let mut trial = trial();
        let list = |from: u64| vec![freed(from, 0x1000 + from + 64), freed(from + 64, 0)];
        let first = trial.call(Rank(0), &Request::Free { owner: 2, all: list(64) });
        let second = trial.call(Rank(1), &Request::Free { owner: 2, all: list(256) });
        trial.tell(Rank(1), &Request::Free { owner: 2, all: vec![freed(512, 0)] });
        assert_eq!(trial.pending(), 2, "one list at a time");
        trial.carry_out(1);
        trial.carry_out(0);
        trial.finish();
        assert_eq!(
            (trial.answer(first), trial.answer(second)),
            (Some(Ok(Answer::Freed)), Some(Ok(Answer::Freed)))
        );
        let mut found = vec![word(&mut trial, 0)];
        while let Some(&last @ 1..) = found.last() {
            found.push(word(&mut trial, last as usize - 0x1000));
        }
        assert_eq!(
            found,
            [512, 256, 320, 64, 128].map(|at| 0x1000 + at).into_iter().chain([0]).collect::<Vec<_>>()
        );
        assert_eq!(word(&mut trial, 64 + 8), 5, "what it held");
        // The owner takes the list away when the next one is about to be hung before it.
        let third = trial.call(Rank(0), &Request::Free { owner: 2, all: vec![freed(64, 0)] });
        for _ in 0..3 {
            trial.carry_out(0);
        }
        trial.memory(Rank(2))[..8].fill(0);
        trial.finish();
        assert_eq!(trial.answer(third), Some(Ok(Answer::Freed)));
        assert_eq!((word(&mut trial, 0), word(&mut trial, 64)), (0x1040, 0));
    }

    /// Goal: an object that cannot be freed is answered, without effect on others.
    #[test]
    fn what_cannot_be_freed_is_refused() {
        let mut trial = trial();
        let nowhere = Freed { offset: 1 << 40, ..freed(64, 0) };
        let lists = [
            (2, vec![freed(64, 0x1080), nowhere, freed(128, 0)], Answer::Failed),
            (0, vec![freed(64, 0)], Answer::Failed),
            (2, vec![Freed { note: Vec::new(), ..freed(64, 0) }], Answer::Failed),
            (2, Vec::new(), Answer::Freed),
            (3, vec![freed(64, 0)], Answer::Freed),
        ];
        let calls: Vec<_> = lists
            .into_iter()
            .map(|(owner, all, answer)| (trial.call(Rank(1), &Request::Free { owner, all }), answer))
            .collect();
        trial.finish();
        for (call, answer) in calls {
            assert_eq!(trial.answer(call), Some(Ok(answer)), "{call}");
        }
    }
}
