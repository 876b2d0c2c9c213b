//! Many bytes of pages that stay at home, for ranks of other nodes, which have them land where they want them.
//!
//! They pass this node once: each page is copied into memory that nobody else has, and from there the conduit sends all of them as
//! one message. Not from the frames: who has a page to write may do so meanwhile, and a word that a system call reads in two parts
//! would be torn. What was just copied is still in the core's cache when it is sent. A rank that shares memory with this node has it copied
//! into its own landings ([`region::LANDINGS`]) instead, and the message is short.
//!
//! Of one peer so many answers have memory at a time, and the others wait their turn: a rank that does not take its answers holds
//! up nobody else.

use super::work::Asker;
use super::{ANSWERS_MAX, Agent};
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
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

/// What a rank asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    /// The first page.
    pub page: PageIndex,
    /// First byte in it.
    pub offset: u32,
    /// How many.
    pub bytes: u32,
    /// The rank's number of the operation.
    pub number: u32,
}

/// Memory of answers, until they have left.
#[derive(Debug, Default)]
pub(super) struct Staging {
    kept: Vec<Arc<Mapping>>,
    /// Of each peer, how many answers have memory, and what waits for that with its landing.
    peers: FxHashMap<Peer, (usize, VecDeque<(Fetch, u64)>)>,
    /// Of which an answer has left, for each.
    left: VecDeque<Peer>,
    /// Landings of ranks that share memory with this node.
    shared: FxHashMap<Peer, Arc<Mapping>>,
}

impl Staging {
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

impl Agent {
    /// Whether bytes may land at a rank of another node: by a long message, or in memory that is shared with it.
    pub(super) fn may_land(&mut self, endpoint: &Endpoint, to: Peer) -> bool {
        if endpoint.may_land(to) || self.staging.shared.contains_key(&to) {
            return true;
        }
        let landings = endpoint.domain().and_then(|domain| domain.map(to, region::LANDINGS).ok());
        let is_shared = landings.is_some();
        self.staging.shared.extend(landings.map(|landings| (to, landings)));
        is_shared
    }

    /// A rank of another node asks for bytes of neighbouring pages whose home should be here; `data`: where they are to land.
    pub(super) fn serve_fetch(&mut self, from: Peer, fetch: Fetch, data: &[u8]) -> Result<(), CacheError> {
        let Fetch { page, offset, bytes, .. } = fetch;
        let refuse = |what: String| Err(CacheError::Protocol { who: self.layout.describe(from), what });
        let Some(landing) = landing_of(data).filter(|_| (1..=FETCH_BYTES_MAX).contains(&bytes)) else {
            return refuse(format!("sent a malformed question for {bytes} bytes of page {page}"));
        };
        let is_outside = |landings: &Arc<Mapping>| !landings.contains(landing, bytes.into());
        if self.staging.shared.get(&from).is_some_and(is_outside) {
            return refuse(format!(
                "wants {bytes} bytes of page {page} to land at {landing}, behind its landings"
            ));
        }
        if self.home_of(page) != Some(self.node) || !self.is_mine(page) || !self.has(&fetch) {
            return refuse(format!("asked for {bytes} bytes at {offset} of page {page} at its home"));
        }
        let (staged, waiting) = self.staging.peers.entry(from).or_default();
        if waiting.len() >= ANSWERS_MAX {
            return refuse("asks and does not take its answers".into());
        }
        if *staged >= STAGED_MAX {
            waiting.push_back((fetch, landing));
            return Ok(());
        }
        *staged += 1;
        self.begin_fetch(from, fetch, landing)
    }

    /// Whether the first page's partition has all the bytes.
    fn has(&self, &Fetch { page, offset, bytes, .. }: &Fetch) -> bool {
        self.segments.partitions.find(page).is_some_and(|found| {
            let first = u64::from(found.size.bytes()) * (page - found.first) + u64::from(offset);
            offset < found.size.bytes() && first + u64::from(bytes) <= found.bytes()
        })
    }

    /// It is the turn of this one, which has a place among those of its peer.
    fn begin_fetch(&mut self, from: Peer, fetch: Fetch, landing: u64) -> Result<(), CacheError> {
        let Fetch { page, offset, bytes, number } = fetch;
        self.pool.count(Counter::InPlaceServed, 1);
        if let Some(landings) = self.staging.shared.get(&from) {
            // Checked when it came.
            let span = landings.span(landing as usize, bytes as usize);
            return self.stage(Asker::Filled(from, number), page, offset, &span);
        }
        match self.staging.take(bytes) {
            Ok(span) => self.stage(Asker::Landing(from, number, landing, span.clone()), page, offset, &span),
            Err(error) => {
                let errno = Errno::from_io_error(&error.source);
                self.answer_failed(from, number, 0, Failure { errno, ..FailureKind::Unknown.into() });
                self.staging.left.push_back(from);
                Ok(())
            }
        }
    }

    /// An answer has left, or will not be sent: its memory may be another's, and its place among those of its peer.
    pub(super) fn answer_left(&mut self, to: Peer, staged: &Span) {
        if self.staging.kept.len() < KEPT_MAX {
            self.staging.kept.push(staged.mapping().clone());
        }
        self.staging.left.push_back(to);
    }

    /// An answer without memory is on its way: its place among those of its peer may be another's.
    pub(super) fn answer_filled(&mut self, to: Peer) {
        self.staging.left.push_back(to);
    }

    /// Gives the places of answers that have left to those that wait. True: there were some.
    pub(super) fn go_on_fetching(&mut self) -> Result<bool, CacheError> {
        let mut any = false;
        while let Some(peer) = self.staging.left.pop_front() {
            any = true;
            let Some((staged, waiting)) = self.staging.peers.get_mut(&peer) else { continue };
            let Some((fetch, landing)) = waiting.pop_front() else {
                *staged -= 1;
                if *staged == 0 {
                    self.staging.peers.remove(&peer);
                }
                continue;
            };
            if self.has(&fetch) && !self.is_gone(fetch.page) {
                self.begin_fetch(peer, fetch, landing)?;
            } else {
                self.answer_failed(peer, fetch.number, 0, FailureKind::NoSuchPage.into());
                self.staging.left.push_back(peer);
            }
        }
        Ok(any)
    }
}

/// The number of a landing, as it follows an [`InPlace::Fetch`](crate::request::InPlace::Fetch).
fn landing_of(data: &[u8]) -> Option<u64> {
    data.try_into().ok().map(u64::from_le_bytes)
}
