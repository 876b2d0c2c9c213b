//! What the ranks of the node ask for.

use super::Agent;
use super::answers::Waiter;
use super::lines::Put;
use super::segments::Purpose;
use crate::error::{CacheError, FailureKind};
use crate::partition::Partition;
use crate::pool::PoolError;
use crate::pool::{Counter, FrameId};
use crate::request::{PageIndex, Request, Room};
use smallvec::SmallVec;
use vgas_rma::address::{Peer, Rank};

/// Most pages that one request for reading may name; a client's windows are smaller.
pub(super) const READ_PAGES_MAX: u32 = 256;

impl Agent {
    /// A rank of this node asks for something. What cannot be a request is the rank's fault and ends the job.
    pub fn on_request(&mut self, from: Peer, request: Request, data: &[u8]) -> Result<(), CacheError> {
        let local_rank = self.local_rank(from)?;
        self.check_request(from, request)?;
        self.hear_of_filled()?;
        self.serve_request(local_rank, from, request, data).map_err(|error| match error {
            // A number that names nothing, or a frame that is not the rank's: it came from the request.
            CacheError::Pool(error @ (PoolError::OutOfRange { .. } | PoolError::FrameUse { .. })) => {
                CacheError::Protocol { who: self.layout.describe(from), what: error.to_string() }
            }
            error => error,
        })
    }

    /// What could hurt later, when nobody knows any more whose request it was, or for long.
    fn check_request(&self, from: Peer, request: Request) -> Result<(), CacheError> {
        let refuse = |what: String| Err(CacheError::Protocol { who: self.layout.describe(from), what });
        let spec = self.pool.layout().spec();
        let operations_max = spec.local_ranks as usize * spec.wait_slots_per_rank as usize;
        // The slot is the second word of every request.
        let slot = request.encode()[1] & 0xffff;
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
            Request::MakeRoom { .. } if self.frames.hungry.len() >= operations_max => {
                refuse("asked for more frames than it can wait for".into())
            }
            Request::Checkpoint { .. }
            | Request::Clean { .. }
            | Request::Prepare { .. }
            | Request::Conclude { .. }
                if self.segments.checkpoints_waiting() >= operations_max =>
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
        let waiter = |slot: u32| Waiter { local_rank, wait: crate::pool::WaitId(slot) };
        match request {
            Request::Put { page, slot, .. } | Request::Own { page, slot } if self.is_gone(page) => {
                self.fail(waiter(slot), page, FailureKind::NoSuchPage.into())
            }
            Request::PutFrame { page, frame, slot } if self.is_gone(page) => {
                self.pool.adopt(FrameId(frame), local_rank)?;
                self.release(FrameId(frame))?;
                self.fail(waiter(slot), page, FailureKind::NoSuchPage.into())
            }
            Request::Read { page, count, slot } if self.is_gone(page) => {
                (0..u64::from(count)).try_for_each(|ahead| {
                    self.fail(waiter(slot), page.saturating_add(ahead), FailureKind::NoSuchPage.into())
                })
            }
            Request::Read { page, count, slot } => {
                let pages = page..page.saturating_add(u64::from(count));
                let missed: SmallVec<[PageIndex; 4]> =
                    pages.clone().filter(|&page| self.is_miss(page)).collect();
                missed.first().into_iter().for_each(|&first| self.take_at_hand(first, missed.len()));
                for page in pages.clone() {
                    self.want_read(page, waiter(slot))?;
                }
                self.give_back_at_hand()?;
                missed.first().map_or(Ok(()), |page| self.publish_neighbours(*page))?;
                self.missed(&missed, count > 1)?;
                // After the misses: a stream's pages that lie behind the mark are behind its reader from then on.
                self.reached(pages)
            }
            Request::Put { page, offset, slot } => {
                let page_bytes = self.size_of(page).bytes() as usize;
                if offset as usize + data.len() > page_bytes {
                    return Err(CacheError::Protocol {
                        who: self.layout.describe(from),
                        what: format!("put {} bytes at {offset} of a page", data.len()),
                    });
                }
                let put = Put::Part { offset, data: data.into(), waiter: Some(waiter(slot)) };
                self.want_put(page, put)
            }
            Request::PutFrame { page, frame, slot } => {
                let frame = FrameId(frame);
                if self.pool.size_of_frame(frame)? != self.size_of(page) {
                    return Err(CacheError::Protocol {
                        who: self.layout.describe(from),
                        what: format!("put frame {} as page {page}, which is of another size", frame.0),
                    });
                }
                self.pool.adopt(frame, local_rank)?;
                self.pool.count(Counter::WholePagePuts, 1);
                self.want_put(page, Put::Whole { frame: Some(frame), waiter: waiter(slot) })
            }
            Request::Own { page, slot } => self.want_own(page, waiter(slot)),
            Request::Prefetch { page, count } => self.prefetch(page, count),
            Request::Ahead { page } => self.used_ahead(page),
            Request::MakeRoom { page, slot } => {
                self.frames.hungry.push((self.size_of(page), waiter(slot)));
                Ok(())
            }
            Request::Attach { pages, segment, size, policy, slot } => {
                let owner = Rank(self.layout.ranks_of(self.node).start + local_rank);
                let wanted = Partition { segment, owner, size, first: 0, pages, policy, shared: false };
                self.attach(wanted, data, waiter(slot))
            }
            Request::Detach { segment, step, slot } => self.detach(segment, step, waiter(slot)),
            Request::Room { size, slot } => {
                let room = self.keep_room_for(size);
                if room == Room::NotYet && self.evictions_rest() {
                    // Blocks get empty by evictions only.
                    return self.complete(waiter(slot), Err(self.why_no_frame()));
                }
                self.pool.answer(local_rank, waiter(slot).wait, &room.encode())?;
                self.complete(waiter(slot), Ok(()))
            }
            Request::Attached { slot } => {
                self.pool.reach_new_client()?;
                self.complete(waiter(slot), Ok(()))
            }
            Request::Partitions { segment, size, policy, first_rank, slot } => {
                let all =
                    Partition { segment, owner: first_rank, size, first: 0, pages: 0, policy, shared: false };
                self.learn_partitions(all, data, waiter(slot))
            }
            Request::Checkpoint { segment, slot } => {
                self.checkpoint(self.file_of(local_rank, segment), waiter(slot), Purpose::Flush)
            }
            Request::Clean { segment, slot } => {
                self.checkpoint(self.file_of(local_rank, segment), waiter(slot), Purpose::Clean)
            }
            Request::Prepare { segment, identity, slot } => {
                self.prepare(self.file_of(local_rank, segment), identity, waiter(slot))
            }
            Request::Why { segment, piece, slot } => {
                self.tell_why(self.file_of(local_rank, segment), piece, waiter(slot))
            }
            Request::Conclude { segment, commit, slot } => {
                self.conclude(self.file_of(local_rank, segment), commit, waiter(slot))
            }
        }
    }
}
