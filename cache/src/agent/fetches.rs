//! Many bytes of pages that stay at home, for ranks of other nodes, which have them land where they want them.
//!
//! They pass this node once: each page is copied into memory that nobody else has, and from there the conduit sends all of them as
//! one message. Not from the frames: who has a page to write may do so meanwhile, and a word that a system call reads in two parts
//! would be torn. What was just copied is still in the core's cache when it is sent. A rank that shares memory with this node has it copied
//! into its own landings ([`region::LANDINGS`]) instead, and the message is short.
//!
//! Of one peer so many answers have memory at a time, and the others wait their turn: a rank that does not take its answers holds
//! up nobody else.

use super::controller::CacheController;
use super::items::{ANSWERS_MAX, FetchRequest, WorkRequester};
use crate::error::{CacheError, Failure, FailureKind};
use crate::pool::Counter;
use crate::region;
use crate::request::FETCH_BYTES_MAX;
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;
use vgas_rma::address::Peer;
use vgas_rma::endpoint::Endpoint;
use vgas_shm::error::ShmError;
use vgas_shm::{Mapping, Span};

/// Answers of a peer that have memory at a time.
const STAGED_MAX: usize = 16;

/// Pieces of memory that are kept for the next answers.
const KEPT_MAX: usize = 8;

/// Memory of answers, until they have left.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    kept: Vec<Arc<Mapping>>,
    /// Of each peer, how many answers have memory, and what waits for that with its landing.
    peers: FxHashMap<Peer, (usize, VecDeque<(FetchRequest, u64)>)>,
    /// Of which an answer has left, for each.
    left: VecDeque<Peer>,
    /// Landings of ranks that share memory with this node.
    shared: FxHashMap<Peer, Arc<Mapping>>,
}

impl Fetches {
    fn take(&mut self, bytes: u32) -> Result<Span, ShmError> {
        let mapping = match self.kept.pop() {
            Some(mapping) => mapping,
            None => {
                let mapping = Mapping::anonymous("vgas-answer", FETCH_BYTES_MAX.into())?;
                mapping.prepare(0, mapping.bytes());
                mapping
            }
        };
        Ok(mapping.span(0, bytes as usize))
    }
}

impl Fetches {
    /// Whether bytes may land at a rank of another node: by a long message, or in memory that is shared with it.
    pub(super) fn may_land(&mut self, endpoint: &Endpoint, to: Peer) -> bool {
        if endpoint.may_land(to) || self.shared.contains_key(&to) {
            return true;
        }
        let landings = endpoint.domain().and_then(|domain| domain.map(to, region::LANDINGS).ok());
        let is_shared = landings.is_some();
        self.shared.extend(landings.map(|landings| (to, landings)));
        is_shared
    }

    /// A rank of another node asks for bytes of neighbouring pages whose home should be here; `data`: where they are to land.
    pub(super) fn serve_fetch(
        &mut self,
        cache: &mut CacheController,
        from: Peer,
        fetch: FetchRequest,
        data: &[u8],
    ) -> Result<(), CacheError> {
        let FetchRequest { page, offset, bytes, .. } = fetch;
        let refuse = |what: String| Err(CacheError::Protocol { who: cache.ctx.layout.describe(from), what });
        let Some(landing) = landing_of(data).filter(|_| (1..=FETCH_BYTES_MAX).contains(&bytes)) else {
            return refuse(format!("sent a malformed question for {bytes} bytes of page {page}"));
        };
        let is_outside = |landings: &Arc<Mapping>| !landings.contains(landing, bytes.into());
        if self.shared.get(&from).is_some_and(is_outside) {
            return refuse(format!(
                "wants {bytes} bytes of page {page} to land at {landing}, behind its landings"
            ));
        }
        if cache.ctx.home_of(page) != Some(cache.ctx.node)
            || !cache.ctx.is_mine(page)
            || !Self::has(cache, &fetch)
        {
            return refuse(format!("asked for {bytes} bytes at {offset} of page {page} at its home"));
        }
        let (staged, waiting) = self.peers.entry(from).or_default();
        if waiting.len() >= ANSWERS_MAX {
            return refuse("asks and does not take its answers".into());
        }
        if *staged >= STAGED_MAX {
            waiting.push_back((fetch, landing));
            return Ok(());
        }
        *staged += 1;
        self.begin_fetch(cache, from, fetch, landing)
    }

    /// Whether the first page's partition has all the bytes.
    fn has(cache: &CacheController, &FetchRequest { page, offset, bytes, .. }: &FetchRequest) -> bool {
        cache.ctx.segments.partitions.find(page).is_some_and(|found| {
            let first = u64::from(found.size.bytes()) * (page - found.first) + u64::from(offset);
            offset < found.size.bytes() && first + u64::from(bytes) <= found.bytes()
        })
    }

    /// It is the turn of this one, which has a place among those of its peer.
    fn begin_fetch(
        &mut self,
        cache: &mut CacheController,
        from: Peer,
        fetch: FetchRequest,
        landing: u64,
    ) -> Result<(), CacheError> {
        let FetchRequest { page, offset, bytes, number } = fetch;
        cache.ctx.count(Counter::InPlaceServed, 1);
        if let Some(landings) = self.shared.get(&from) {
            // Checked when it came.
            let span = landings.span(landing as usize, bytes as usize);
            return cache.stage(WorkRequester::Filled(from, number), page, offset, &span);
        }
        match self.take(bytes) {
            Ok(span) => {
                cache.stage(WorkRequester::Landing(from, number, landing, span.clone()), page, offset, &span)
            }
            Err(error) => {
                let errno = Errno::from_io_error(&error.source);
                cache.ctx.answer_failed(from, number, 0, Failure { errno, ..FailureKind::Unknown.into() });
                self.left.push_back(from);
                Ok(())
            }
        }
    }

    /// An answer has left, or will not be sent: its memory may be another's, and its place among those of its peer.
    pub(super) fn answer_left(&mut self, to: Peer, staged: &Span) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push(staged.mapping().clone());
        }
        self.left.push_back(to);
    }

    /// Gives the places of answers that have left to those that wait. True: there were some.
    pub(super) fn advance(&mut self, cache: &mut CacheController) -> Result<bool, CacheError> {
        while let Some((peer, staged)) = cache.ctx.works.left.pop_front() {
            match staged {
                Some(staged) => self.answer_left(peer, &staged),
                None => self.left.push_back(peer),
            }
        }
        let mut any = false;
        while let Some(peer) = self.left.pop_front() {
            any = true;
            let Some((staged, waiting)) = self.peers.get_mut(&peer) else { continue };
            let Some((fetch, landing)) = waiting.pop_front() else {
                *staged -= 1;
                if *staged == 0 {
                    self.peers.remove(&peer);
                }
                continue;
            };
            if Self::has(cache, &fetch) && !cache.ctx.is_gone(fetch.page) {
                self.begin_fetch(cache, peer, fetch, landing)?;
            } else {
                cache.ctx.answer_failed(peer, fetch.number, 0, FailureKind::NoSuchPage.into());
                self.left.push_back(peer);
            }
        }
        Ok(any)
    }
}

/// The number of a landing, as it follows an [`InPlace::Fetch`](crate::request::InPlace::Fetch).
fn landing_of(data: &[u8]) -> Option<u64> {
    data.try_into().ok().map(u64::from_le_bytes)
}
