//! Fetches: how the bytes of other ranks' objects come here.
//!
//! The home of an object is asked by a message, and answers with the bytes ([`crate::service`]). Requests in flight are one state machine,
//! [`InFlight`], which three callers drive: [`Heap::read`] waits for one object, the future of [`super::DBox::get`] polls for one, in parts
//! if it is large, and [`Heap::fetch_all`] waits for lists of objects. All of them follow the same rules:
//!
//! * If the bytes stay here as a copy, the home marks the slot as served before it reads: the next writer must see the mark.
//! * An object that a home does not send is read directly, which also finds the error to report ([`Heap::read_directly`]). A rank of this
//!   node is always read directly, through the memory that both share.
//! * An object of a lost rank is read at its backup.

use super::error::{LostObject, ObjectError};
use super::group::{FoundGroup, given};
use super::{Heap, OWN};
use crate::service::{Answer, Bytes, CopyAt, HeapService, LIST_READS_MAX, Read, Request};
use crate::shape::Shape;
use crate::slab::SERVED;
use crate::word::Word;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use vgas::service::PendingCall;
use vgas::{Change, GlobalAddress, NodeId, Rank, Runtime};

/// Most bytes of a message beside those of an object.
const REST_BYTES: usize = 64;
/// Most bytes of a request for one object of a list, and of an answer beside that object's bytes.
const ASKED_BYTES: usize = 64;
const FOUND_BYTES: usize = 8;

/// Most parts of a large object that are in flight.
const PARTS_MAX: usize = 8;
/// Most lists that are in flight.
const LISTS_MAX: usize = 32;

/// Requests in flight, answered in order, each with a note of its subject.
struct InFlight<'h, W> {
    runtime: &'h Runtime,
    /// The oldest: mostly the only one.
    first: Option<(PendingCall<Answer>, W)>,
    rest: VecDeque<(PendingCall<Answer>, W)>,
}

impl<'h, W> InFlight<'h, W> {
    fn new(runtime: &'h Runtime) -> Self {
        Self { runtime, first: None, rest: VecDeque::new() }
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Sends a request. Gives the note back if that cannot be sent.
    fn send(&mut self, node: NodeId, request: &Request, note: W) -> Result<(), (W, vgas::Error)> {
        match self.runtime.start_call::<HeapService>(node, request) {
            Err(why) => return Err((note, why)),
            Ok(call) if self.first.is_none() => self.first = Some((call, note)),
            Ok(call) => self.rest.push_back((call, note)),
        }
        Ok(())
    }

    /// Returns the answer to the oldest request, once `look` finds it; none if nothing is in flight.
    fn next(
        &mut self,
        look: impl FnOnce(&mut PendingCall<Answer>) -> Poll<Result<Answer, vgas::Error>>,
    ) -> Poll<Option<(Result<Answer, vgas::Error>, W)>> {
        let Some((call, _)) = &mut self.first else { return Poll::Ready(None) };
        let answer = ready!(look(call));
        let first = std::mem::replace(&mut self.first, self.rest.pop_front());
        Poll::Ready(first.map(|(_, note)| (answer, note)))
    }
}

/// Looks at a request as a thread that waits in the endpoint does.
fn test(call: &mut PendingCall<Answer>) -> Poll<Result<Answer, vgas::Error>> {
    match call.test() {
        Ok(None) => Poll::Pending,
        Ok(Some(answer)) => Poll::Ready(Ok(answer)),
        Err(why) => Poll::Ready(Err(why.into())),
    }
}

/// A fetch of one object from its home: by one message, or in parts side by side.
pub(super) struct Fetch<'h> {
    heap: &'h Heap,
    word: Word,
    shape: &'h Shape,
    served: Option<u64>,
    copy: Option<CopyAt>,
    /// Each with the bytes of its part.
    in_flight: InFlight<'h, usize>,
    /// Bytes that were asked for.
    asked: usize,
    found: Vec<u8>,
}

impl<'h> Fetch<'h> {
    /// Prepares a fetch; nothing is sent yet. `served`: the offset of the word of the object's slot that is to be marked. `copy`: the copy that
    /// the bytes become.
    pub fn new(
        heap: &'h Heap,
        word: Word,
        shape: &'h Shape,
        served: Option<u64>,
        copy: Option<CopyAt>,
    ) -> Self {
        let in_flight = InFlight::new(&heap.runtime);
        Self { heap, word, shape, served, copy, in_flight, asked: 0, found: Vec::new() }
    }

    /// Goes on, and registers the task to be woken. Ready with the bytes; without, if the object is to be read directly.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, ObjectError>> {
        self.advance(|call| Pin::new(call).poll(context).map_err(vgas::Error::from))
    }

    /// Waits for the bytes; none if the object is to be read directly.
    fn wait(mut self) -> Result<Option<Vec<u8>>, ObjectError> {
        let mut ended = Poll::Pending;
        let waited = self.heap.runtime.wait_until(|| {
            ended = self.advance(test);
            ended.is_ready()
        });
        match (ended, waited) {
            (Poll::Ready(ended), _) => ended,
            (Poll::Pending, waited) => waited.map_or_else(|why| self.failed(why), |()| Ok(None)),
        }
    }

    /// Takes the requests that are in flight, of a fetch that is given up.
    pub fn take_calls(&mut self) -> impl Iterator<Item = PendingCall<Answer>> {
        self.in_flight.first.take().into_iter().chain(self.in_flight.rest.drain(..)).map(|(call, _)| call)
    }

    fn advance(
        &mut self,
        mut look: impl FnMut(&mut PendingCall<Answer>) -> Poll<Result<Answer, vgas::Error>>,
    ) -> Poll<Result<Option<Vec<u8>>, ObjectError>> {
        loop {
            if let Err(why) = self.send() {
                return Poll::Ready(self.failed(why));
            }
            match ready!(self.in_flight.next(&mut look)) {
                None => return Poll::Ready(Ok(Some(std::mem::take(&mut self.found)))),
                Some((Ok(Answer::Bytes(Bytes(part))), bytes)) if part.len() == bytes => self.add(part),
                Some((Ok(_), _)) => return Poll::Ready(Ok(None)),
                Some((Err(why), _)) => return Poll::Ready(self.failed(why)),
            }
        }
    }

    fn send(&mut self) -> Result<(), vgas::Error> {
        while self.asked < self.shape.bytes && self.in_flight.len() < PARTS_MAX {
            let Heap { runtime, .. } = self.heap;
            let at = self.heap.locate(self.word.address());
            let bytes = (self.shape.bytes - self.asked).min(self.heap.message_bytes().max(1));
            let place = GlobalAddress { offset: at.offset + self.asked as u64, ..at };
            let (served, copy) = (self.served.take(), self.copy.take());
            let request = Request::Read(read_at(place, bytes, served, copy));
            let sent = self.in_flight.send(runtime.layout().node_of(at.rank), &request, bytes);
            sent.map_err(|(_, why)| why)?;
            self.asked += bytes;
        }
        Ok(())
    }

    fn add(&mut self, part: Vec<u8>) {
        if part.len() == self.shape.bytes {
            self.found = part;
        } else {
            self.found.reserve_exact(self.shape.bytes - self.found.len());
            self.found.extend(part);
        }
    }

    fn failed(&self, why: vgas::Error) -> Result<Option<Vec<u8>>, ObjectError> {
        match self.heap.is_backed_up(self.heap.locate(self.word.address()).rank) {
            // A direct read finds it at its backup.
            true => Ok(None),
            false => Err(self.heap.lost(self.word, self.shape, why)),
        }
    }
}

/// An object of a list that is to be fetched.
pub(super) struct Target {
    /// Its number among those that are wanted.
    pub at: usize,
    pub word: Word,
    pub shape: Shape,
    pub read: Read,
}

fn read_at(at: GlobalAddress, bytes: usize, served: Option<u64>, copy: Option<CopyAt>) -> Read {
    Read { owner: at.rank.0, offset: at.offset, bytes: bytes as u32, served, copy }
}

impl Heap {
    /// Returns the node of a rank, if it is another one.
    pub(super) fn far(&self, rank: Rank) -> Option<NodeId> {
        let node = self.runtime.layout().node_of(rank);
        (node != self.runtime.node()).then_some(node)
    }

    /// Returns the most bytes of objects that a message holds.
    pub(super) fn message_bytes(&self) -> usize {
        self.runtime.medium_bytes_max().saturating_sub(REST_BYTES)
    }

    /// Returns whether a message holds an object together with others.
    pub(super) fn fits_list(&self, shape: &Shape) -> bool {
        shape.bytes + FOUND_BYTES <= self.message_bytes()
    }

    /// Returns the request for an object; see [`Fetch::new`].
    pub(super) fn read_of(
        &self,
        word: Word,
        shape: &Shape,
        served: Option<u64>,
        copy: Option<CopyAt>,
    ) -> Read {
        read_at(self.locate(word.address()), shape.bytes, served, copy)
    }

    /// Returns the copy that an object's bytes become at this address. Homes may forward other readers to it;
    /// none if it is no copy in this rank's partition, or if the node that readers are forwarded to may be
    /// lost.
    pub(super) fn copy_at(&self, word: Word, address: u64) -> Option<CopyAt> {
        let offset = OWN.offset_of(address).filter(|_| self.may_hand_on())?;
        Some(CopyAt { word: word.bits(), rank: self.runtime.rank().0, offset })
    }

    /// Reads the bytes of another rank's object, after `served`, the word of its slot, was marked: its next writer must see it.
    ///
    /// # Safety
    /// At `to` are as many bytes as its shape has, which only the caller has.
    pub(super) unsafe fn read(
        &self,
        word: Word,
        shape: &Shape,
        to: usize,
        served: Option<u64>,
    ) -> Result<(), ObjectError> {
        let rank = self.locate(word.address()).rank;
        if shape.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { super::room(to as u64, shape.bytes) };
        if shape.bytes <= self.message_bytes() && self.far(rank).is_some() && !self.is_backed_up(rank) {
            let copy = served.and_then(|_| self.copy_at(word, to as u64));
            if let Some(found) = Fetch::new(self, word, shape, served, copy).wait()? {
                bytes.copy_from_slice(&found);
                return Ok(());
            }
        }
        self.read_directly(word, shape, bytes, served)
    }

    /// As [`Heap::read`], without the service of the object's home.
    fn read_directly(
        &self,
        word: Word,
        shape: &Shape,
        to: &mut [u8],
        served: Option<u64>,
    ) -> Result<(), ObjectError> {
        let at = self.locate(word.address());
        if self.is_backed_up(at.rank) {
            return self.read_backup(word, shape, to);
        }
        let mark = |offset| self.segment.update(at.rank, offset, Change::Or(SERVED));
        match served.map_or(Ok(0), mark).and_then(|_| self.runtime.get(at, to)) {
            // Its rank was lost meanwhile.
            Err(_) if self.is_backed_up(at.rank) => self.read_backup(word, shape, to),
            read => read.map_err(|why| self.lost(word, shape, why)),
        }
    }

    /// Fetches objects of other nodes that [fit lists](Heap::fits_list): by one message to each node, or as many as their bytes need. Those of one
    /// call have ties, or none has. Calls `each` with the bytes of each object, in any order; without, if it is to be fetched alone. Fails with the
    /// number of an object.
    pub(super) fn fetch_all<W>(
        &self,
        wanted: impl IntoIterator<Item = (NodeId, Target, W)>,
        mut each: impl FnMut(Target, W, Option<Vec<u8>>) -> Result<(), (usize, ObjectError)>,
    ) -> Result<(), (usize, ObjectError)> {
        let most = self.message_bytes();
        let reads_max = LIST_READS_MAX.min(most / ASKED_BYTES).max(1);
        let mut open: FxHashMap<NodeId, (Vec<(Target, W)>, usize)> = FxHashMap::default();
        let mut in_flight = InFlight::new(&self.runtime);
        for (node, target, note) in wanted {
            let (list, bytes) = open.entry(node).or_default();
            let more = target.shape.bytes + FOUND_BYTES;
            // Objects that are tied to these are to have room, too.
            let most = if target.shape.tied.is_some() { most / 2 } else { most };
            if *bytes + more > most || list.len() == reads_max {
                *bytes = 0;
                self.send_list(node, std::mem::take(list), &mut in_flight, &mut each)?;
            }
            *bytes += more;
            list.push((target, note));
        }
        for (node, (list, _)) in open {
            self.send_list(node, list, &mut in_flight, &mut each)?;
        }
        while in_flight.len() > 0 {
            self.take_list(&mut in_flight, &mut each)?;
        }
        Ok(())
    }

    fn send_list<'h, W>(
        &self,
        node: NodeId,
        list: Vec<(Target, W)>,
        in_flight: &mut InFlight<'h, Vec<(Target, W)>>,
        each: &mut impl FnMut(Target, W, Option<Vec<u8>>) -> Result<(), (usize, ObjectError)>,
    ) -> Result<(), (usize, ObjectError)> {
        if in_flight.len() >= LISTS_MAX {
            self.take_list(in_flight, each)?;
        }
        let reads = list.iter().map(|(target, _)| target.read);
        let request = match list.first().and_then(|(target, _)| target.shape.tied) {
            Some(types) => {
                self.group_request(types(), reads.map(|read| Read { copy: None, ..read }).collect())
            }
            None => Request::All(reads.collect()),
        };
        match in_flight.send(node, &request, list) {
            Ok(()) => Ok(()),
            // A fetch of each alone finds out why.
            Err((list, _)) => list.into_iter().try_for_each(|(target, note)| each(target, note, None)),
        }
    }

    /// Waits for the oldest list.
    fn take_list<W>(
        &self,
        in_flight: &mut InFlight<'_, Vec<(Target, W)>>,
        each: &mut impl FnMut(Target, W, Option<Vec<u8>>) -> Result<(), (usize, ObjectError)>,
    ) -> Result<(), (usize, ObjectError)> {
        let first = in_flight.first.as_ref().and_then(|(_, list)| list.first());
        let first = first.map_or(0, |(target, _)| target.at);
        let mut next = Poll::Pending;
        let waited = self.runtime.wait_until(|| {
            next = in_flight.next(test);
            next.is_ready()
        });
        waited.map_err(|why| (first, why.into()))?;
        let Poll::Ready(Some((answer, list))) = next else { return Ok(()) };
        let sizes = list.iter().map(|(target, _)| target.shape.bytes);
        let found = match (answer, list.first().and_then(|(target, _)| target.shape.tied)) {
            (Err(_), _) => vec![None; list.len()],
            (Ok(answer), None) => given(answer, sizes),
            (Ok(answer), Some(types)) => match FoundGroup::of(types(), answer, sizes) {
                Some(mut found) => {
                    self.keep_tied(&found);
                    std::mem::take(&mut found.first)
                }
                None => vec![None; list.len()],
            },
        };
        list.into_iter().zip(found).try_for_each(|((target, note), bytes)| each(target, note, bytes))
    }

    /// Returns the error for an object that cannot be reached.
    pub(super) fn lost(&self, word: Word, shape: &Shape, why: vgas::Error) -> ObjectError {
        let rank = self.locate(word.address()).rank;
        let node = self.runtime.layout().node_of(rank);
        let (type_name, address) = ((shape.name)(), word.address());
        ObjectError::Lost(Box::new(LostObject { type_name, address, rank, node, at: None, why }))
    }
}
