//! Broadcast, gather, reduce over byte strings, on active messages: simple, correct over every conduit, and good enough
//! to build on. Not meant for bulk data.
//!
//! Every rank calls the same collectives in the same order, from one thread at a time. Collectives are numbered, and a
//! string belongs to a number and a sender, so ranks may run ahead of each other; every few calls all ranks meet, so
//! that what waits for a slow rank is bounded.

use super::wait::lock;
use super::{Endpoint, Handler, Token};
use crate::address::{Peer, Rank};
use crate::error::{Result, RmaError};
use crate::message::{Arrived, Payload, Source};
use std::collections::HashMap;
use std::sync::Mutex;

const PIECE: u8 = 7;

/// Collectives between two meetings of all ranks.
const CALLS_PER_MEETING: u32 = 16;

#[derive(Default)]
pub(super) struct Collective {
    /// Collectives begun; held by the thread that runs one.
    calls: Mutex<u32>,
    arriving: Mutex<HashMap<(u32, Peer), Arriving>>,
}

/// A string of which pieces have arrived, in order.
struct Arriving {
    bytes: Vec<u8>,
    total: usize,
}

pub(super) fn handlers() -> [(u8, Handler); 1] {
    [(PIECE, Box::new(on_piece))]
}

fn on_piece(token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>) {
    let (&[call, total], Arrived::Medium(piece)) = (arguments, payload) else {
        return token.refuse("a malformed piece of a collective");
    };
    let mut arriving = lock(&token.endpoint().collective.arriving);
    let entry = arriving
        .entry((call, token.from()))
        .or_insert_with(|| Arriving { bytes: Vec::new(), total: total as usize });
    if entry.total != total as usize || entry.bytes.len() + piece.len() > entry.total {
        drop(arriving);
        return token.refuse("pieces of a collective that do not fit together");
    }
    entry.bytes.extend_from_slice(&piece);
}

impl Endpoint {
    /// Gives the bytes of `root` to every rank; the others' `bytes` are replaced.
    pub fn broadcast(&self, root: Rank, bytes: &mut Vec<u8>) -> Result<()> {
        self.collective(root, |call| self.broadcast_call(call, root, bytes))
    }

    /// The bytes of every rank, by rank, at `root`; nothing elsewhere. Lengths may differ.
    pub fn gather(&self, root: Rank, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        self.collective(root, |call| self.gather_call(call, root, bytes))
    }

    /// The bytes of every rank, by rank, everywhere. Lengths may differ.
    pub fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let root = Rank(0);
        let gathered = self.gather(root, bytes)?;
        let mut flat = gathered.map_or_else(Vec::new, |strings| flatten(&strings));
        self.broadcast(root, &mut flat)?;
        unflatten(&flat, self.layout.ranks() as usize).ok_or_else(|| RmaError::Protocol {
            peer: Some(self.layout.peer_of_rank(root)),
            what: "the result of an all-gather does not hold one string a rank".into(),
        })
    }

    /// Combines the bytes of all ranks at `root`: `combine(into, other)` merges the second into the first. It must be
    /// associative; ranks are combined in ascending order counted from the root, in a fixed tree, so the result is the
    /// same in every run. All ranks give the same length.
    pub fn reduce(
        &self,
        root: Rank,
        bytes: &[u8],
        combine: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<Option<Vec<u8>>> {
        self.collective(root, |call| self.reduce_call(call, root, bytes, combine))
    }

    /// [`Endpoint::reduce`], with the result everywhere; `bytes` is replaced.
    pub fn all_reduce(&self, bytes: &mut Vec<u8>, combine: impl FnMut(&mut [u8], &[u8])) -> Result<()> {
        let root = Rank(0);
        if let Some(reduced) = self.reduce(root, bytes, combine)? {
            *bytes = reduced;
        }
        self.broadcast(root, bytes)
    }

    /// Runs one numbered collective, and a meeting of all ranks when it is time.
    fn collective<R>(&self, root: Rank, run: impl FnOnce(u32) -> Result<R>) -> Result<R> {
        if self.rank().is_none() || root.0 >= self.layout.ranks() {
            return Err(RmaError::Usage(format!("a collective with root {} called by {:?}", root.0, self)));
        }
        let mut calls = lock(&self.collective.calls);
        if *calls % CALLS_PER_MEETING == CALLS_PER_MEETING - 1 {
            *calls = calls.wrapping_add(1);
            self.gather_call(*calls, Rank(0), &[])?;
            *calls = calls.wrapping_add(1);
            self.broadcast_call(*calls, Rank(0), &mut Vec::new())?;
        }
        *calls = calls.wrapping_add(1);
        run(*calls)
    }

    fn send_string(&self, call: u32, to: Rank, bytes: &[u8]) -> Result<()> {
        let total = u32::try_from(bytes.len())
            .map_err(|_| RmaError::Usage(format!("a collective over {} bytes", bytes.len())))?;
        let to = self.layout.peer_of_rank(to);
        let mut pieces = bytes.chunks(self.medium_bytes_max);
        let mut piece = pieces.next().unwrap_or(&[]);
        loop {
            self.request(to, PIECE, &[call, total], Payload::Medium(Source::of(piece)))?;
            match pieces.next() {
                Some(next) => piece = next,
                None => return Ok(()),
            }
        }
    }

    fn receive_string(&self, call: u32, from: Rank) -> Result<Vec<u8>> {
        let key = (call, self.layout.peer_of_rank(from));
        let mut string = None;
        self.wait_until(None, || {
            let mut arriving = lock(&self.collective.arriving);
            if arriving.get(&key).is_some_and(|entry| entry.bytes.len() == entry.total) {
                string = arriving.remove(&key);
            }
            string.is_some() || self.check_all("in a collective").is_err()
        })?;
        if string.is_none() {
            self.check_all("in a collective")?;
        }
        Ok(string.map(|entry| entry.bytes).unwrap_or_default())
    }

    /// Position of this rank when ranks are counted from the root, and back.
    fn relative(&self, root: Rank) -> (u32, impl Fn(u32) -> Rank) {
        let (ranks, me) = (self.layout.ranks(), self.me.0);
        ((me + ranks - root.0) % ranks, move |position| Rank((position + root.0) % ranks))
    }

    /// Down a binomial tree: a position receives from the one without its lowest set bit.
    fn broadcast_call(&self, call: u32, root: Rank, bytes: &mut Vec<u8>) -> Result<()> {
        let (me, rank_at) = self.relative(root);
        let ranks = self.layout.ranks();
        if me != 0 {
            *bytes = self.receive_string(call, rank_at(me & (me - 1)))?;
        }
        let lowest = if me == 0 { ranks.next_power_of_two() } else { 1 << me.trailing_zeros() };
        let mut step = lowest >> 1;
        while step > 0 {
            if me + step < ranks {
                self.send_string(call, rank_at(me + step), bytes)?;
            }
            step >>= 1;
        }
        Ok(())
    }

    fn gather_call(&self, call: u32, root: Rank, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        if self.rank() != Some(root) {
            self.send_string(call, root, bytes)?;
            return Ok(None);
        }
        let ranks = (0..self.layout.ranks()).map(Rank);
        let strings = ranks.map(|rank| match rank == root {
            true => Ok(bytes.to_vec()),
            false => self.receive_string(call, rank),
        });
        strings.collect::<Result<_>>().map(Some)
    }

    /// Up the same tree.
    fn reduce_call(
        &self,
        call: u32,
        root: Rank,
        bytes: &[u8],
        mut combine: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<Option<Vec<u8>>> {
        let (me, rank_at) = self.relative(root);
        let mut mine = bytes.to_vec();
        let mut step = 1;
        while step < self.layout.ranks() {
            if me & step != 0 {
                self.send_string(call, rank_at(me - step), &mine)?;
                return Ok(None);
            }
            if me + step < self.layout.ranks() {
                let other = self.receive_string(call, rank_at(me + step))?;
                if other.len() != mine.len() {
                    let what = format!("a reduction over {} and {} bytes", mine.len(), other.len());
                    return Err(RmaError::Usage(what));
                }
                combine(&mut mine, &other);
            }
            step <<= 1;
        }
        Ok(Some(mine))
    }
}

/// Strings as one, each after its length.
pub(super) fn flatten(strings: &[Vec<u8>]) -> Vec<u8> {
    let mut flat = Vec::new();
    for string in strings {
        flat.extend_from_slice(&(string.len() as u64).to_le_bytes());
        flat.extend_from_slice(string);
    }
    flat
}

/// None: it is not so many strings, or not only they.
pub(super) fn unflatten(mut flat: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let mut strings = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, rest) = flat.split_first_chunk::<8>()?;
        let (string, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        strings.push(string.to_vec());
        flat = rest;
    }
    flat.is_empty().then_some(strings)
}
