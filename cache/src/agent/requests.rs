//! What the ranks of the node ask for.

use super::Agent;
use super::answers::Waiter;
use super::lines::Put;
use super::segments::Purpose;
use crate::error::{CacheError, FailureKind};
use crate::page::PageIndex;
use crate::partition::Partition;
use crate::pool::{Counter, PoolError, WaitId};
use crate::read_ahead::Missed;
use crate::request::{Request, Room};
use smallvec::SmallVec;
use vgas_nvm::Companion;
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
        let waiter = |wait| Waiter { local_rank, wait };
        match request {
            Request::Put { page, wait, .. } | Request::Own { page, wait } if self.is_gone(page) => {
                self.fail(waiter(wait), page, FailureKind::NoSuchPage.into())
            }
            Request::PutFrame { page, frame, wait } if self.is_gone(page) => {
                self.pool.adopt(frame, local_rank)?;
                self.release(frame)?;
                self.fail(waiter(wait), page, FailureKind::NoSuchPage.into())
            }
            Request::Read { page, count, wait, .. } if self.is_gone(page) => (0..u64::from(count))
                .try_for_each(|ahead| {
                    self.fail(waiter(wait), page.saturating_add(ahead), FailureKind::NoSuchPage.into())
                }),
            Request::Read { page, count, more, wait } => {
                let pages = page..page.saturating_add(u64::from(count));
                let missed: SmallVec<[PageIndex; 4]> =
                    PageIndex::each(pages.clone()).filter(|&page| self.is_miss(page)).collect();
                missed.first().into_iter().for_each(|&first| self.take_at_hand(first, missed.len()));
                for page in PageIndex::each(pages.clone()) {
                    self.want_read(page, waiter(wait))?;
                }
                self.give_back_at_hand()?;
                if let Some(&first) = missed.first() {
                    self.publish_neighbours(first)?;
                    let end = pages.end.saturating_add(u64::from(more));
                    self.missed(&Missed { pages: first..pages.end, end })?;
                }
                // After the misses: a stream's pages that lie behind the mark are behind its reader from then on.
                self.reached(pages)
            }
            Request::Put { page, offset, wait } => {
                let page_bytes = self.size_of(page).bytes() as usize;
                if offset as usize + data.len() > page_bytes {
                    return Err(CacheError::Protocol {
                        who: self.layout.describe(from),
                        what: format!("put {} bytes at {offset} of a page", data.len()),
                    });
                }
                let put = Put::Part { offset, data: data.into(), waiter: Some(waiter(wait)) };
                self.want_put(page, put)
            }
            Request::PutFrame { page, frame, wait } => {
                if self.pool.size_of_frame(frame)? != self.size_of(page) {
                    return Err(CacheError::Protocol {
                        who: self.layout.describe(from),
                        what: format!("put frame {} as page {page}, which is of another size", frame.0),
                    });
                }
                self.pool.adopt(frame, local_rank)?;
                self.pool.count(Counter::WholePagePuts, 1);
                self.want_put(page, Put::Whole { frame: Some(frame), waiter: waiter(wait) })
            }
            Request::Own { page, wait } => self.want_own(page, waiter(wait)),
            Request::Prefetch { page, count } => self.prefetch(page, count),
            Request::Ahead { page } => self.used_ahead(page),
            Request::MakeRoom { page, wait } => {
                self.frames.hungry.push((self.size_of(page), waiter(wait)));
                Ok(())
            }
            Request::Attach { pages, segment, size, policy, wait } => {
                let owner = Rank(self.layout.ranks_of(self.node).start + local_rank);
                let wanted =
                    Partition { segment, owner, size, first: PageIndex(0), pages, policy, shared: false };
                self.attach(wanted, data, waiter(wait))
            }
            Request::Detach { segment, step, wait } => self.detach(segment, step, waiter(wait)),
            Request::Room { size, wait } => {
                let room = self.keep_room_for(size);
                if room == Room::NotYet && self.evictions_rest() {
                    // Blocks get empty by evictions only.
                    return self.complete(waiter(wait), Err(self.why_no_frame()));
                }
                self.pool.answer(local_rank, waiter(wait).wait, &room.encode())?;
                self.complete(waiter(wait), Ok(()))
            }
            Request::Attached { wait } => {
                self.pool.reach_new_client()?;
                self.complete(waiter(wait), Ok(()))
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
                self.learn_partitions(all, data, waiter(wait))
            }
            Request::Checkpoint { segment, wait } => {
                self.checkpoint(self.file_of(local_rank, segment), waiter(wait), Purpose::Flush)
            }
            Request::Clean { segment, wait } => {
                self.checkpoint(self.file_of(local_rank, segment), waiter(wait), Purpose::Clean)
            }
            Request::Prepare { segment, identity, wait } => {
                let Some(companions) = Companion::decode_all(data) else {
                    return Err(CacheError::Protocol {
                        who: self.layout.describe(from),
                        what: format!("companions of a checkpoint in {} bytes", data.len()),
                    });
                };
                self.prepare(self.file_of(local_rank, segment), identity, companions, waiter(wait))
            }
            Request::Why { segment, piece, wait } => {
                self.tell_why(self.file_of(local_rank, segment), piece, waiter(wait))
            }
            Request::Conclude { segment, commit, wait } => {
                self.conclude(self.file_of(local_rank, segment), commit, waiter(wait))
            }
        }
    }
}
