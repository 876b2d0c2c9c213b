//! What the ranks of the node ask for.

use super::Agent;
use super::items::{CheckpointPurpose, PostedPut, READ_PAGES_MAX, Waiter};
use crate::error::{CacheError, FailureKind};
use crate::page::PageIndex;
use crate::partition::Partition;
use crate::pool::{Counter, PoolError, WaitId};
use crate::read_ahead::Missed;
use crate::request::{Request, Room};
use smallvec::SmallVec;
use vgas_nvm::Companion;
use vgas_rma::address::{Peer, Rank};

impl Agent {
    /// A rank of this node asks for something. What cannot be a request is the rank's fault and ends the job.
    pub fn on_request(&mut self, from: Peer, request: Request, data: &[u8]) -> Result<(), CacheError> {
        let local_rank = self.cache.ctx.local_rank(from)?;
        self.check_request(from, request)?;
        self.cache.hear_of_filled()?;
        self.serve_request(local_rank, from, request, data).map_err(|error| match error {
            // A number that names nothing, or a frame that is not the rank's: it came from the request.
            CacheError::Pool(error @ (PoolError::OutOfRange { .. } | PoolError::FrameUse { .. })) => {
                CacheError::Protocol { who: self.cache.ctx.layout.describe(from), what: error.to_string() }
            }
            error => error,
        })
    }

    /// What could hurt later, when nobody knows any more whose request it was, or for long.
    fn check_request(&self, from: Peer, request: Request) -> Result<(), CacheError> {
        let refuse =
            |what: String| Err(CacheError::Protocol { who: self.cache.ctx.layout.describe(from), what });
        let spec = self.cache.ctx.pages().spec();
        let operations_max = spec.local_ranks as usize * spec.wait_slots_per_rank as usize;
        // The wait is the second word of every request.
        let slot = WaitId(request.encode()[1]).slot();
        if slot >= spec.wait_slots_per_rank {
            return refuse(format!("waits in slot {slot} of {}", spec.wait_slots_per_rank));
        }
        match request {
            Request::Read { count, .. } if count > READ_PAGES_MAX => {
                refuse(format!("asked for {count} pages at once; {READ_PAGES_MAX} are the most"))
            }
            Request::Room { size, .. } if size.bytes() > spec.page_bytes_max => {
                refuse(format!("asked for room for pages of {} bytes", size.bytes()))
            }
            Request::MakeRoom { .. } if self.cache.ctx.frames.hungry.len() >= operations_max => {
                refuse("asked for more frames than it can wait for".into())
            }
            Request::Checkpoint { .. }
            | Request::Clean { .. }
            | Request::Prepare { .. }
            | Request::Conclude { .. }
                if self.checkpoints.waiting() >= operations_max =>
            {
                refuse("asked for more checkpoints than it can wait for".into())
            }
            _ => Ok(()),
        }
    }

    /// A rank's request.
    pub(super) fn serve_request(
        &mut self,
        local_rank: u32,
        from: Peer,
        request: Request,
        data: &[u8],
    ) -> Result<(), CacheError> {
        let waiter = |wait| Waiter { local_rank, wait };
        match request {
            Request::Put { page, wait, .. } | Request::Own { page, wait } if self.cache.ctx.is_gone(page) => {
                self.cache.ctx.fail(waiter(wait), page, FailureKind::NoSuchPage.into())
            }
            Request::PutFrame { page, frame, wait } if self.cache.ctx.is_gone(page) => {
                self.cache.ctx.adopt(frame, local_rank)?;
                self.cache.ctx.release(frame)?;
                self.cache.ctx.fail(waiter(wait), page, FailureKind::NoSuchPage.into())
            }
            Request::Read { page, count, wait, .. } if self.cache.ctx.is_gone(page) => (0..u64::from(count))
                .try_for_each(|ahead| {
                    self.cache.ctx.fail(
                        waiter(wait),
                        page.saturating_add(ahead),
                        FailureKind::NoSuchPage.into(),
                    )
                }),
            Request::Read { page, count, more, wait } => {
                let pages = page..page.saturating_add(u64::from(count));
                let missed: SmallVec<[PageIndex; 4]> =
                    PageIndex::each(pages.clone()).filter(|&page| self.cache.ctx.is_miss(page)).collect();
                missed
                    .first()
                    .into_iter()
                    .for_each(|&first| self.cache.ctx.take_at_hand(first, missed.len()));
                for page in PageIndex::each(pages.clone()) {
                    self.cache.want_read(page, waiter(wait))?;
                }
                self.cache.ctx.give_back_at_hand()?;
                if let Some(&first) = missed.first() {
                    self.cache.publish_neighbours(first)?;
                    let end = pages.end.saturating_add(u64::from(more));
                    self.missed(&Missed { pages: first..pages.end, end })?;
                }
                // After the misses: a stream's pages that lie behind the mark are behind its reader from then on.
                self.reached(pages)
            }
            Request::Put { page, offset, wait } => {
                let page_bytes = self.cache.ctx.size_of(page).bytes() as usize;
                if offset as usize + data.len() > page_bytes {
                    return Err(CacheError::Protocol {
                        who: self.cache.ctx.layout.describe(from),
                        what: format!("put {} bytes at {offset} of a page", data.len()),
                    });
                }
                let put = PostedPut::Part { offset, data: data.into(), waiter: Some(waiter(wait)) };
                self.cache.want_put(page, put)
            }
            Request::PutFrame { page, frame, wait } => {
                if self.cache.ctx.size_of_frame(frame)? != self.cache.ctx.size_of(page) {
                    return Err(CacheError::Protocol {
                        who: self.cache.ctx.layout.describe(from),
                        what: format!("put frame {} as page {page}, which is of another size", frame.0),
                    });
                }
                self.cache.ctx.adopt(frame, local_rank)?;
                self.cache.ctx.count(Counter::WholePagePuts, 1);
                self.cache.want_put(page, PostedPut::Whole { frame: Some(frame), waiter: waiter(wait) })
            }
            Request::Own { page, wait } => self.cache.want_own(page, waiter(wait)),
            Request::Prefetch { page, count } => self.prefetch(page, count),
            Request::Ahead { page } => self.used_ahead(page),
            Request::MakeRoom { page, wait } => {
                self.cache.ctx.frames.hungry.push((self.cache.ctx.size_of(page), waiter(wait)));
                Ok(())
            }
            Request::Attach { pages, segment, size, policy, wait } => {
                let owner = Rank(self.cache.ctx.layout.ranks_of(self.cache.ctx.node).start + local_rank);
                let wanted =
                    Partition { segment, owner, size, first: PageIndex(0), pages, policy, shared: false };
                self.cache.ctx.attach(wanted, data, waiter(wait))
            }
            Request::Detach { segment, step, wait } => {
                self.withdrawals.detach(&mut self.cache, segment, step, waiter(wait))
            }
            Request::Room { size, wait } => {
                let room = self.balance.keep_room_for(&mut self.cache.ctx, size);
                if room == Room::NotYet && self.cache.ctx.evictions_rest() {
                    // Blocks get empty by evictions only.
                    return self.cache.ctx.complete(waiter(wait), Err(self.cache.ctx.why_no_frame()));
                }
                self.cache.ctx.answer(waiter(wait), &room.encode())
            }
            Request::Attached { wait } => {
                self.cache.ctx.reach_new_client()?;
                self.cache.ctx.complete(waiter(wait), Ok(()))
            }
            Request::Partitions { segment, size, policy, first_rank, wait } => {
                let all = Partition {
                    segment,
                    owner: first_rank,
                    size,
                    first: PageIndex(0),
                    pages: 0,
                    policy,
                    shared: false,
                };
                self.cache.ctx.learn_partitions(all, data, waiter(wait))
            }
            Request::Checkpoint { segment, wait } => {
                let file = self.cache.ctx.file_of(local_rank, segment);
                self.checkpoints.checkpoint(&mut self.cache, file, waiter(wait), CheckpointPurpose::Flush)
            }
            Request::Clean { segment, wait } => {
                let file = self.cache.ctx.file_of(local_rank, segment);
                self.checkpoints.checkpoint(&mut self.cache, file, waiter(wait), CheckpointPurpose::Clean)
            }
            Request::Prepare { segment, identity, wait } => {
                let Some(companions) = Companion::decode_all(data) else {
                    return Err(CacheError::Protocol {
                        who: self.cache.ctx.layout.describe(from),
                        what: format!("companions of a checkpoint in {} bytes", data.len()),
                    });
                };
                let file = self.cache.ctx.file_of(local_rank, segment);
                self.checkpoints.prepare(&mut self.cache, file, identity, companions, waiter(wait))
            }
            Request::Why { segment, piece, wait } => {
                self.cache.ctx.tell_why(self.cache.ctx.file_of(local_rank, segment), piece, waiter(wait))
            }
            Request::Conclude { segment, commit, wait } => {
                let file = self.cache.ctx.file_of(local_rank, segment);
                self.checkpoints.conclude(&mut self.cache, file, commit, waiter(wait))
            }
        }
    }
}
