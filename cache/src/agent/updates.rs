//! Atomic updates of words of pages whose home is here, for ranks anywhere (DESIGN, property 14).
//!
//! The protocol does not know of them: the home brings a page to its own node as if one of its ranks wanted to put, and then
//! updates the frame with the instruction that ranks of the node use for pages which they have ([`crate::pool::PoolClient::try_update`]).
//! Who has a page to write has it alone, so that all updates of a word meet in one frame at a time; whoever else writes there
//! does so in whole words.
//!
//! A message may bring many of them. It is answered when all are made.

use super::lines::Put;
use super::{ANSWERS_MAX, Agent, Outgoing};
use crate::error::{CacheError, Failure};
use crate::pool::{Counter, PageState};
use crate::request::{InPlaceAnswer, PageIndex, WordUpdate};
use slotmap::SlotMap;
use vgas_rma::address::Peer;

slotmap::new_key_type! {
    /// A message's updates.
    pub(super) struct BatchKey;
}

/// Updates of one message.
#[derive(Debug)]
struct Batch {
    from: Peer,
    /// The asking rank's number.
    slot: u32,
    left: u32,
    /// What each word was, eight bytes each.
    were: Vec<u8>,
    failed: Option<(u32, Failure)>,
}

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Updates {
    batches: SlotMap<BatchKey, Batch>,
}

/// One of a message's updates, until it is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneOf {
    batch: BatchKey,
    number: u32,
}

impl Agent {
    /// Somebody asks for updates of words of pages whose home should be here.
    pub(super) fn serve_updates(
        &mut self,
        from: Peer,
        slot: u32,
        count: u32,
        data: &[u8],
    ) -> Result<(), CacheError> {
        let refuse = |what: String| Err(CacheError::Protocol { who: self.layout.describe(from), what });
        let page_bytes = self.pool.layout().spec().page_bytes;
        let Some(updates) = WordUpdate::read_list(data, count, page_bytes).filter(|list| !list.is_empty())
        else {
            return refuse(format!("sent a malformed list of {count} updates"));
        };
        let elsewhere =
            |update: &&WordUpdate| self.home_of(update.page) != Some(self.node) || !self.is_mine(update.page);
        if let Some(update) = updates.iter().find(elsewhere) {
            return refuse(format!("asked for an update of page {} at another's agent", update.page));
        }
        if self.outbox.waiting_for(from) >= ANSWERS_MAX || self.updates.batches.len() >= ANSWERS_MAX {
            return refuse("asks and does not take its answers".into());
        }
        let were = vec![0; 8 * updates.len()];
        let batch = self.updates.batches.insert(Batch { from, slot, left: count, were, failed: None });
        self.pool.count(Counter::InPlaceServed, u64::from(count));
        for (number, WordUpdate { page, offset, update }) in (0..).zip(updates) {
            let one = OneOf { batch, number };
            let entry = self.pool.entry(page)?;
            // As a rank that hits.
            if entry.state() == PageState::Modified && !entry.held() && self.quiet(page) {
                let span = self.pool.frame_span(entry.frame())?;
                let was = span.mapping().update(span.offset() + offset as usize, update);
                self.updated(one, Ok(was));
            } else {
                self.want_put(page, Put::Update { offset, update, one })?;
            }
        }
        Ok(())
    }

    /// One of a message's updates has been made, or cannot be.
    pub(super) fn updated(&mut self, OneOf { batch: key, number }: OneOf, result: Result<u64, Failure>) {
        let Some(batch) = self.updates.batches.get_mut(key) else { return };
        match result {
            Ok(was) => {
                if let Some(word) = batch.were.as_chunks_mut().0.get_mut(number as usize) {
                    *word = was.to_le_bytes();
                }
            }
            Err(failure) => {
                let is_first = batch.failed.is_none_or(|(first, _)| number < first);
                if is_first {
                    batch.failed = Some((number, failure));
                }
            }
        }
        batch.left -= 1;
        if batch.left == 0
            && let Some(Batch { from, slot, were, failed, .. }) = self.updates.batches.remove(key)
        {
            let (answer, bytes) = match failed {
                None => (InPlaceAnswer::Done, were),
                Some((number, failure)) => {
                    (InPlaceAnswer::Failed, [number.to_le_bytes(), failure.code().to_le_bytes()].concat())
                }
            };
            self.outbox.push(from, Outgoing::Answer { words: answer.encode(slot), bytes });
        }
    }

    /// A put that cannot be made.
    pub(super) fn put_failed(
        &mut self,
        page: PageIndex,
        put: Put,
        failure: Failure,
    ) -> Result<(), CacheError> {
        match put {
            Put::Part { waiter, .. } => waiter.map_or(Ok(()), |waiter| self.fail(waiter, page, failure)),
            Put::Whole { frame, waiter } => {
                frame.map_or(Ok(()), |frame| self.release(frame))?;
                self.fail(waiter, page, failure)
            }
            Put::Update { one, .. } => {
                self.updated(one, Err(failure));
                Ok(())
            }
        }
    }
}
