//! Work at the home of objects: one message brings another node an object's bytes, and one tells of many that are free.
//!
//! It knows no types and no allocator, only where the words are that both sides agree on: which slot was served, and the list of
//! what others have freed, through the slots themselves ([`crate::slab`], `heap/`).
//!
//! A home whose bytes are not in memory, or which is behind with reads, hands a reader on to the node that read the object last, if it knows
//! of one: a message to that node, and the answer from there. There the copy's label is looked at, the bytes are taken, and the label is
//! looked at again; unless it says twice that this is a copy of the word, and the same copy, the reader comes back to the home, which serves
//! it. What is handed on is not marked as served: that it was is why there is a copy.
//!
//! Reads that come in one message ([`Request::All`]) are done at the same time, also from NVMe, and answered together; a home that is behind leaves
//! those of which it knows a copy to be asked for by themselves.

use super::bytes::Bytes;
pub(crate) use super::hints::CopyAt;
use super::hints::Hints;
use crate::slab::label_offset;
use crate::slab::{LABEL_BYTES, SERVED};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use vgas::service::{Call, Failure, Home, Service};
use vgas::{Change, NodeId, Peer, Rank};

/// Most words that are noted in one freed slot, and most slots that are freed by one message.
const NOTE_WORDS_MAX: usize = 4096;

/// Messages of readers that a home has not answered, from which on it hands on what it can.
const BUSY_READS: usize = 64;

/// Most reads of a message.
pub(crate) const LIST_READS_MAX: usize = 1024;
/// Most bytes that they want together: no message has more.
const LIST_BYTES_MAX: u64 = 64 << 10;

/// What the home of objects is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The bytes of an object of this rank.
    Read(Read),
    /// The same, handed on to whoever is said to have this copy.
    Handed(Read, CopyAt),
    /// The same, handed on in vain.
    Back(Read),
    /// The bytes of several objects of ranks of this node.
    All(Vec<Read>),
    /// Objects of this rank are free, those that come later in the list being linked to by those before. Answered when all
    /// that were freed by earlier messages are in its list, too.
    Free { owner: u32, all: Vec<Freed> },
    /// What this node's service has done.
    Counts,
}

/// Which bytes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Read {
    pub owner: u32,
    pub offset: u64,
    pub bytes: u32,
    /// Where the word of its slot is, if the object stays: that it was given to others, its next writer must see.
    pub served: Option<u64>,
    /// Where its copy is to be, if it can be found there by others.
    pub copy: Option<CopyAt>,
}

/// What a node's service has done.
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
    /// Words of which it knows a copy.
    pub hints: u64,
}

/// An object that is free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Freed {
    /// Its [`crate::Word`].
    pub word: u64,
    /// Where its slot is.
    pub offset: u64,
    /// What is written there: the word of the next one, and what this one held.
    pub note: Vec<u64>,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Bytes(Bytes),
    /// In the order in which they were asked for; none of what is to be asked for by itself.
    All(Vec<Option<Bytes>>),
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
    /// How many of the reads are of lists.
    listed: usize,
    hints: Hints,
    counts: Counts,
    /// Lists that are being freed, the first of them now.
    free: VecDeque<Freeing>,
}

/// A read under way.
#[derive(Debug)]
struct Reading {
    asker: Asker,
    read: Read,
    step: ReadStep,
}

/// Who hears of a read.
#[derive(Debug)]
enum Asker {
    One(Call),
    /// A list with this number, of what is at this place in it.
    List(u64, usize),
}

/// Reads that are answered together.
#[derive(Debug)]
struct List {
    call: Call,
    found: Vec<Option<Bytes>>,
    /// So many have not ended.
    left: usize,
}

/// What is done for it.
#[derive(Clone, Debug)]
enum ReadStep {
    /// Whether it is in memory is found out; else this node may have it.
    Looking(NodeId, CopyAt),
    /// The slot is being marked.
    Marking,
    /// The bytes are on their way.
    Bytes,
    /// The label of a copy here is being read, before its bytes are.
    Before(CopyAt),
    /// The bytes of the copy that had this label.
    Copy(CopyAt, Vec<u8>),
    /// The label is being read again: what it was, and the bytes.
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

/// What is done for the first of those that are being freed.
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

    fn called(&mut self, call: Call, request: Request, home: &mut Home<'_, Self>) {
        self.next += 1;
        match request {
            Request::Read(read) if is_here(read.owner, home) => self.read(call, read, true, home),
            Request::All(reads) if is_list(&reads) && reads.iter().all(|read| is_here(read.owner, home)) => {
                self.read_all(call, reads, home);
            }
            Request::Back(read) if is_here(read.owner, home) => {
                self.counts.came_back += 1;
                self.read(call, read, false, home);
            }
            Request::Handed(read, copy) if is_here(copy.rank, home) => {
                self.go(Asker::One(call), read, ReadStep::Before(copy), home);
            }
            // Nobody who knows the job sends it here; its home says so.
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
            // What was given up.
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

/// Whether reads may come in one message: what is found is one, too, and takes no more memory meanwhile.
fn is_list(reads: &[Read]) -> bool {
    let bytes = reads.iter().fold(0, |bytes: u64, read| bytes + u64::from(read.bytes));
    reads.len() <= LIST_READS_MAX && bytes <= LIST_BYTES_MAX
}

/// Whether a rank is of this node.
fn is_here(owner: u32, home: &Home<'_, HeapService>) -> bool {
    let layout = home.layout();
    owner < layout.ranks() && layout.node_of(Rank(owner)) == home.node()
}

/// Whether what was freed can be a list.
fn is_sound(all: &[Freed]) -> bool {
    all.len() <= NOTE_WORDS_MAX && all.iter().all(|freed| (1..=NOTE_WORDS_MAX).contains(&freed.note.len()))
}

/// What a label says: of which word the copy is, and which copy; none where there is none.
fn label_of(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<8>().map(|word| u64::from_le_bytes(*word)).filter(|word| *word != 0)
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl HeapService {
    /// An object of this node is wanted.
    fn read(&mut self, call: Call, read: Read, may_hand_on: bool, home: &mut Home<'_, Self>) {
        let known = self.known(call.from(), &read, home).filter(|_| may_hand_on);
        match known {
            Some((node, copy)) if self.is_busy() => self.hand_on(call, read, node, copy, home),
            Some((node, copy)) => self.go(Asker::One(call), read, ReadStep::Looking(node, copy), home),
            None => self.serve(Asker::One(call), read, home),
        }
    }

    fn is_busy(&self) -> bool {
        self.reads.len() - self.listed + self.lists.len() >= BUSY_READS
    }

    /// Objects of this node are wanted, to be answered together.
    fn read_all(&mut self, call: Call, reads: Vec<Read>, home: &mut Home<'_, Self>) {
        let (from, number, is_busy) = (call.from(), self.next, self.is_busy());
        let count = reads.len();
        self.lists.insert(number, List { call, found: vec![None; count], left: count + 1 });
        for (at, read) in reads.into_iter().enumerate() {
            self.next += 1;
            let (asker, known) = (Asker::List(number, at), self.known(from, &read, home));
            match known.filter(|_| is_busy) {
                Some(_) => self.tell(asker, None, home),
                None => self.serve(asker, read, home),
            }
        }
        self.one_of_list_ended(number, home);
    }

    /// A node with a copy, other than that of who asks; who asks is known to have one from now on.
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
    fn tell(&mut self, asker: Asker, found: Option<Vec<u8>>, home: &mut Home<'_, Self>) {
        match asker {
            Asker::One(call) => {
                home.answer(call, &found.map_or(Answer::Failed, |found| Answer::Bytes(Bytes(found))));
            }
            Asker::List(number, at) => {
                if let Some(place) = self.lists.get_mut(&number).and_then(|list| list.found.get_mut(at)) {
                    *place = found.map(Bytes);
                }
                self.one_of_list_ended(number, home);
            }
        }
    }

    /// Answers a list of which nothing is left.
    fn one_of_list_ended(&mut self, number: u64, home: &mut Home<'_, Self>) {
        let Some(list) = self.lists.get_mut(&number) else { return };
        list.left -= 1;
        if list.left == 0
            && let Some(List { call, found, .. }) = self.lists.remove(&number)
        {
            home.answer(call, &Answer::All(found));
        }
    }

    /// Marks it, if it stays, and reads it.
    fn serve(&mut self, asker: Asker, read: Read, home: &mut Home<'_, Self>) {
        self.counts.reads += 1;
        let step = if read.served.is_some() { ReadStep::Marking } else { ReadStep::Bytes };
        self.go(asker, read, step, home);
    }

    /// Says what a step needs; its end is heard of under the last number.
    fn go(&mut self, asker: Asker, read: Read, step: ReadStep, home: &mut Home<'_, Self>) {
        let (owner, ticket) = (Rank(read.owner), self.next);
        let label = |copy: &CopyAt| copy.offset.checked_add(label_offset(read.bytes.into()));
        match &step {
            ReadStep::Looking(..) => home.read_in_memory(owner, read.offset, read.bytes, ticket),
            ReadStep::Marking => {
                home.update(owner, read.served.unwrap_or(u64::MAX), Change::Or(SERVED), ticket);
            }
            ReadStep::Bytes => home.read(owner, read.offset, read.bytes, ticket),
            ReadStep::Copy(copy, _) => {
                home.read_in_memory(Rank(copy.rank), copy.offset, read.bytes, ticket);
            }
            ReadStep::Before(copy) => match label(copy) {
                Some(at) => home.read_in_memory(Rank(copy.rank), at, LABEL_BYTES as u32, ticket),
                None => return self.go_back(asker, read, home),
            },
            ReadStep::After(..) => return self.tell(asker, None, home),
        }
        self.begin_step(ticket, Reading { asker, read, step });
    }

    fn begin_step(&mut self, ticket: u64, reading: Reading) {
        self.listed += usize::from(matches!(reading.asker, Asker::List(..)));
        self.reads.insert(ticket, reading);
    }

    /// A step is done, or cannot be.
    fn read_on(&mut self, reading: Reading, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        let Reading { asker, read, step } = reading;
        self.listed -= usize::from(matches!(asker, Asker::List(..)));
        match (step, result) {
            (ReadStep::Looking(..), Ok(_)) => self.serve(asker, read, home),
            (ReadStep::Looking(node, copy), Err(_)) => match asker {
                Asker::One(call) => self.hand_on(call, read, node, copy, home),
                Asker::List(..) => self.serve(asker, read, home),
            },
            (ReadStep::Marking, Ok(_)) => self.go(asker, read, ReadStep::Bytes, home),
            (ReadStep::Bytes, Ok(found)) => self.tell(asker, Some(found), home),
            (ReadStep::Marking | ReadStep::Bytes, Err(_)) => self.tell(asker, None, home),
            (ReadStep::Before(copy), Ok(label)) if label_of(&label) == Some(copy.word) => {
                self.go(asker, read, ReadStep::Copy(copy, label), home);
            }
            (ReadStep::Copy(copy, label), Ok(found)) => {
                let at = copy.offset.saturating_add(label_offset(read.bytes.into()));
                home.read_in_memory(Rank(copy.rank), at, LABEL_BYTES as u32, self.next);
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

    /// What was looked for here is at its home.
    fn go_back(&mut self, asker: Asker, read: Read, home: &mut Home<'_, Self>) {
        match asker {
            Asker::One(call) => back(call, read, home),
            Asker::List(..) => self.tell(asker, None, home),
        }
    }

    /// Begins with the first list that is to be freed, and answers those that need nothing done.
    fn begin(&mut self, home: &mut Home<'_, Self>) {
        while let Some(first) = self.free.front() {
            for freed in &first.all {
                home.write(first.owner, freed.offset, bytes_of(&freed.note), first.ticket);
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
            home.write(*owner, last.offset, bytes_of(&[before]), *ticket);
            Step::Link(before)
        };
        *step = match *step {
            Step::Notes(1) => {
                home.read(*owner, 0, 8, *ticket);
                Step::Head
            }
            Step::Notes(left) => Step::Notes(left - 1),
            Step::Head => link(was),
            Step::Link(expected) => {
                let change = Change::CompareSwap { expected, desired: first.word };
                home.update(*owner, 0, change, *ticket);
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
    /// Whether nothing is under way.
    #[cfg(test)]
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

    /// Goal: who reads gets the bytes after the slot was marked; what is not here is refused, whatever the numbers are.
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

    /// Goal: what is freed is a list, before what was there, in whatever order its notes are written, and while its owner takes it away.
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

    /// Goal: what cannot be freed is answered, and is in nobody's way.
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
