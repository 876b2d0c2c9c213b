//! Batches: work on pieces of pages that ends together ([`controller::work`](crate::agent::controller)).

use super::NodeContext;
use super::outbox::Outgoing;
use crate::agent::items::{ANSWERS_MAX, BatchKey, PostedPut, ShardMessage, WorkPiece, WorkRequester};
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
use crate::request::{InPlace, InPlaceAnswer};
use slotmap::SlotMap;
use smallvec::SmallVec;
use std::collections::VecDeque;
use vgas_rma::address::Peer;
use vgas_shm::Span;

#[derive(Debug)]
struct Batch {
    requester: WorkRequester,
    left: u32,
    /// Bytes of what is found in all.
    bytes: usize,
    /// What was read, and what words were; empty until something is found.
    found: Vec<u8>,
    failed: Option<(u32, Failure)>,
}

/// The batches in flight.
#[derive(Debug, Default)]
pub struct WorkBatches {
    batches: SlotMap<BatchKey, Batch>,
    /// Batches of services that have ended, with their tickets: each service hears of it in the next turn.
    pub ended: VecDeque<(usize, u64, Result<Vec<u8>, Failure>)>,
    /// Batches of fetches whose answer is on its way, or will not be sent, with memory that is not used any more.
    pub left: VecDeque<(Peer, Option<Span>)>,
}

impl WorkBatches {
    /// Whether so much is in flight that somebody asks and does not wait for answers.
    pub fn is_full(&self) -> bool {
        self.batches.len() >= ANSWERS_MAX
    }
}

impl NodeContext {
    /// Begins a batch of so many pieces, whose results have so many bytes in all.
    pub fn begin_batch(&mut self, requester: WorkRequester, left: u32, found: usize) -> BatchKey {
        self.works.batches.insert(Batch { requester, left, bytes: found, found: Vec::new(), failed: None })
    }

    /// A piece of a batch is done, or cannot be.
    pub fn worked(&mut self, piece: WorkPiece, result: Result<SmallVec<[u8; 8]>, Failure>) {
        if piece.shard != self.shard {
            return self.shards.tell(piece.shard, ShardMessage::Worked(piece, result));
        }
        let WorkPiece { batch: key, number, at, .. } = piece;
        let Some(batch) = self.works.batches.get_mut(key) else { return };
        match result {
            // Mostly there is one piece, which need not be copied.
            Ok(found) if found.len() == batch.bytes => batch.found = found.into_vec(),
            Ok(found) => {
                batch.found.resize(batch.bytes, 0);
                if let Some(place) = batch.found.get_mut(at as usize..at as usize + found.len()) {
                    place.copy_from_slice(&found);
                }
            }
            Err(failure) => {
                if batch.failed.is_none_or(|(first, _)| number < first) {
                    batch.failed = Some((number, failure));
                }
            }
        }
        batch.left -= 1;
        if batch.left == 0
            && let Some(Batch { requester, found, failed, .. }) = self.works.batches.remove(key)
        {
            self.batch_ended(requester, found, failed);
        }
    }

    fn batch_ended(&mut self, requester: WorkRequester, found: Vec<u8>, failed: Option<(u32, Failure)>) {
        match requester {
            WorkRequester::Rank(from, operation) => match failed {
                None => {
                    let words = InPlaceAnswer::Done.encode(operation);
                    self.outbox.push(from, Outgoing::Answer { words, bytes: found });
                }
                Some((number, failure)) => self.answer_failed(from, operation, number, failure),
            },
            WorkRequester::Landing(from, operation, landing, bytes) => match failed {
                None => {
                    let words = InPlaceAnswer::Done.encode(operation);
                    self.outbox.push(from, Outgoing::Landing { words, from: bytes, landing });
                }
                Some((number, failure)) => {
                    self.answer_failed(from, operation, number, failure);
                    self.works.left.push_back((from, Some(bytes)));
                }
            },
            WorkRequester::Filled(from, operation) => {
                match failed {
                    None => {
                        let words = InPlaceAnswer::Done.encode(operation);
                        self.outbox.push(from, Outgoing::Answer { words, bytes: Vec::new() });
                    }
                    Some((number, failure)) => self.answer_failed(from, operation, number, failure),
                }
                self.works.left.push_back((from, None));
            }
            WorkRequester::Service(service, ticket) => {
                let result = failed.map_or(Ok(found), |(_, failure)| Err(failure));
                self.works.ended.push_back((service, ticket, result));
            }
        }
    }

    /// Of what a rank asked for under this number of its own, this piece cannot be had.
    pub fn answer_failed(&mut self, to: Peer, operation: u32, number: u32, failure: Failure) {
        let bytes = [number.to_le_bytes(), failure.code().to_le_bytes()].concat();
        self.outbox.push(to, Outgoing::Answer { words: InPlaceAnswer::Failed.encode(operation), bytes });
    }

    /// A put that cannot be made.
    pub fn put_failed(
        &mut self,
        page: PageIndex,
        put: PostedPut,
        failure: Failure,
    ) -> Result<(), CacheError> {
        match put {
            PostedPut::Part { waiter, .. } => {
                waiter.map_or(Ok(()), |waiter| self.fail(waiter, page, failure))
            }
            PostedPut::Whole { frame, waiter } => {
                frame.map_or(Ok(()), |frame| self.release(frame))?;
                self.fail(waiter, page, failure)
            }
            PostedPut::Work { piece, .. } => {
                self.worked(piece, Err(failure));
                Ok(())
            }
        }
    }

    /// Somebody uses a segment that is not attached any more: its own agent says so, except of what is done here alone.
    pub fn decline_gone(&mut self, from: Peer, operation: InPlace) -> Result<(), CacheError> {
        let number = operation.encode()[1];
        let (answer, bytes) = match operation {
            InPlace::Update { .. } | InPlace::Read { .. } | InPlace::Write { .. } | InPlace::Fetch { .. } => {
                let code = Failure::from(FailureKind::NoSuchPage).code();
                (InPlaceAnswer::Failed, [[0; 4], code.to_le_bytes()].concat())
            }
            _ => (InPlaceAnswer::NotInPlace, Vec::new()),
        };
        self.outbox.push(from, Outgoing::Answer { words: answer.encode(number), bytes });
        Ok(())
    }
}
