//! This node's copies of pages: what its ranks want of them, and what messages do to them.
//!
//! A page has a control ([`PageControl`]) only while something is in flight; otherwise its entry in the shared table says
//! everything. Events that take rights from ranks wait in the control until the ranks have left the page, and everything
//! that the protocol says about the page waits behind them.
//!
//! | file | holds |
//! |---|---|
//! | `wants.rs` | what ranks want of a page, and giving it to them |
//! | `steps.rs` | the protocol's steps, and what the table shows of them |
//! | `in_place.rs` | small operations done where the page is |

mod in_place;
mod steps;
mod wants;

use crate::agent::items::{InPlaceWork, MapRequest, PostedPut, Waiter};
use crate::agent::wire::{Beside, Origin};
use crate::page::PageIndex;
use crate::pool::{Entry, FrameId, Outcome, PageState};
use crate::protocol::{Line, LineEvent, Message, line};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The pages for which something is in flight here.
#[derive(Debug, Default)]
pub struct Lines {
    pub pages: FxHashMap<PageIndex, PageControl>,
    /// In-place puts of this agent's own in flight: by the number in their answer.
    pub remote_puts: FxHashMap<u32, RemotePut>,
    next_remote: u32,
    /// Kept for its allocation.
    revoked: Vec<(PageIndex, Outcome)>,
}

/// A put of this agent's that travels to a page served in place at its home.
#[derive(Debug)]
pub struct RemotePut {
    page: PageIndex,
    put: PostedPut,
}

impl RemotePut {
    pub fn page(&self) -> PageIndex {
        self.page
    }
}

/// A protocol event that waits until ranks have left the page, with what the agent needs to carry it out.
#[derive(Debug)]
pub struct Deferred {
    event: LineEvent,
    beside: Beside,
    origin: Origin,
    work: Option<InPlaceWork>,
}

impl Deferred {
    pub fn message(event: LineEvent, beside: Beside, origin: Origin) -> Self {
        Self { event, beside, origin, work: None }
    }

    pub fn local(event: LineEvent) -> Self {
        Self { event, beside: Beside::Nothing, origin: Origin::Cache, work: None }
    }

    pub fn apply(event: LineEvent, work: InPlaceWork) -> Self {
        Self { event, beside: Beside::Nothing, origin: Origin::Cache, work: Some(work) }
    }
}

/// What is in flight about a page, its *control*: not to be confused with a block of the pool.
#[derive(Debug, Default)]
pub struct PageControl {
    pub line: Line,
    /// The page's frame while it is not in the table: on its way in or out.
    pub frame: Option<FrameId>,
    pub readers: SmallVec<[Waiter; 2]>,
    writers: SmallVec<[Waiter; 2]>,
    /// The threads, each of another rank of the node, that wait for the page to be mapped.
    pub mappers: SmallVec<[MapRequest; 1]>,
    puts: VecDeque<PostedPut>,
    deferred: VecDeque<Deferred>,
    starved: bool,
    /// Wanted by nobody yet.
    prefetch: bool,
    /// Wanted by the home, to serve it in place.
    recall: bool,
    /// To be marked as read-ahead trigger when it arrives.
    pub ahead: bool,
    /// Is being read by [`CacheController::read_own`]: its directory entry need not exist.
    pub own_read: bool,
    /// When it was asked for, in nanoseconds, for somebody who waits to read it.
    pub asked: Option<u64>,
}

impl PageControl {
    /// The protocol's event by which the first of the puts gets the right that it needs. `is_own`: no other node has a copy, so
    /// that a page which is read may be written without a message.
    fn event_of_puts(&self, is_own: bool) -> LineEvent {
        let reads = |put: &PostedPut| matches!(put, PostedPut::Work { work, .. } if work.only_reads());
        let may_read = |put: &PostedPut| reads(put) || (is_own && matches!(put, PostedPut::Work { .. }));
        match self.puts.front() {
            Some(PostedPut::Whole { .. }) => LineEvent::WriteWhole,
            // One that writes comes after those that read: the right to write is asked for once.
            _ if self.puts.iter().all(may_read) => LineEvent::Read,
            _ => LineEvent::Write,
        }
    }

    /// Moves the first put of the whole page to the front, and makes its frame the page's. Without this, pages could wait for frames that are
    /// all filled with puts waiting behind them for the same pages. All of the puts are in flight, so that any of them may be the first; those
    /// of parts that came before are overwritten.
    fn overwrite_first(&mut self) {
        let is_whole = |put: &PostedPut| matches!(put, PostedPut::Whole { frame: Some(_), .. });
        let Some(at) = self.puts.iter().position(is_whole) else { return };
        for put in self.puts.iter_mut().take(at) {
            if let PostedPut::Part { data, .. } = put {
                *data = Box::default();
            }
        }
        let Some(PostedPut::Whole { frame, waiter }) = self.puts.remove(at) else { return };
        self.frame = frame;
        self.puts.push_front(PostedPut::Whole { frame: None, waiter });
    }

    /// Of a page that is to come into this frame, for somebody who waits or for nobody yet.
    pub fn wanted(frame: FrameId, reader: Option<Waiter>, ahead: bool) -> Self {
        let prefetch = reader.is_none();
        Self { frame: Some(frame), readers: reader.into_iter().collect(), prefetch, ahead, ..Self::default() }
    }

    /// Asks NVMe itself instead of the directory, at this time.
    pub fn take_fast_path(&mut self, nanoseconds: u64) {
        (self.own_read, self.asked) = (true, (!self.readers.is_empty()).then_some(nanoseconds));
        self.line.state = line::State::IsD;
    }

    fn idle(&self) -> bool {
        self.line.stable()
            && self.frame.is_none()
            && self.readers.is_empty()
            && !self.prefetch
            && self.wants_reading_at_most()
    }

    /// Whether nobody waits for anything but to read, and nothing waits for its turn.
    pub fn wants_reading_at_most(&self) -> bool {
        self.writers.is_empty()
            && self.mappers.is_empty()
            && self.puts.is_empty()
            && self.deferred.is_empty()
            && !self.recall
    }
}

fn state_of(entry: Entry) -> line::State {
    match entry.state() {
        PageState::Shared => line::State::S,
        PageState::Owned => line::State::O,
        PageState::Exclusive => line::State::E,
        PageState::Modified => line::State::M,
        PageState::Invalid | PageState::InPlace | PageState::Stored | PageState::Claimed => line::State::I,
    }
}

/// What the table shows of a line.
fn shown(line: Line) -> Option<PageState> {
    use line::State::*;
    match line.state {
        S | SmG | SwG => Some(PageState::Shared),
        O | OmG | OwG => Some(PageState::Owned),
        E => Some(PageState::Exclusive),
        M => Some(PageState::Modified),
        _ => None,
    }
}

/// Whether an event takes a right away that ranks may be using.
fn takes_rights(event: LineEvent, entry: Entry) -> bool {
    if !entry.state().readable() {
        return false;
    }
    let writable = entry.state().writable();
    match event {
        LineEvent::Replace => true,
        LineEvent::Message { message, .. } => match message {
            Message::ForwardModified { .. } | Message::Invalidate { .. } => true,
            Message::ForwardShared { .. } | Message::Pull => writable,
            _ => false,
        },
        LineEvent::Read | LineEvent::Write | LineEvent::WriteWhole | LineEvent::Apply { .. } => false,
    }
}
