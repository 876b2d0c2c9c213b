//! This node's copies of pages: what its ranks want of them, and what messages do to them.
//!
//! A page has a control block ([`Page`]) only while something is under way; otherwise its entry in the shared table says
//! everything. Events that take rights from ranks wait in the block until the ranks have left the page, and everything
//! that the protocol says about the page waits behind them.

use super::claims::Parked;
use super::mapped::Mapper;
use super::segments::Purpose;
use super::wire::{Coherence, NO_FRAME, Origin};
use super::{Agent, Outgoing, RESERVATION, Waiter};
use crate::error::{CacheError, Failure, FailureKind};
use crate::pool::{Counter, Entry, FrameId, Intent, Outcome as Revoked, PageState};
use crate::protocol::trace::{Row, Taken};
use crate::protocol::{Line, LineEvent, Message, line};
use crate::request::{InPlace, InPlaceAnswer, PageIndex, Pieces, Request};
use smallvec::SmallVec;
use std::collections::VecDeque;
use vgas_rma::address::Peer;

/// A put that was posted with its data.
#[derive(Debug)]
pub(super) enum Put {
    /// Some bytes of the page.
    Part {
        offset: u32,
        data: Box<[u8]>,
        /// Who is told at the end.
        waiter: Option<Waiter>,
    },
    /// All of it, in a frame. The frame is gone from here once it has become the page's own.
    Whole { frame: Option<FrameId>, waiter: Waiter },
}

/// A small operation that the home applies in place.
#[derive(Debug)]
pub(super) struct InPlaceWork {
    /// Who gets the answer.
    pub from: Peer,
    pub operation: InPlace,
    pub data: Box<[u8]>,
}

/// A put of this agent's that travels to a page served in place at its home.
#[derive(Debug)]
pub(super) struct RemotePut {
    page: PageIndex,
    put: Put,
}

impl RemotePut {
    pub fn page(&self) -> PageIndex {
        self.page
    }
}

/// A protocol event that waits until ranks have left the page, with what the agent needs to carry it out.
#[derive(Debug)]
pub(super) struct Deferred {
    event: LineEvent,
    frame: u32,
    origin: Origin,
    work: Option<InPlaceWork>,
}

impl Deferred {
    pub fn message(event: LineEvent, frame: u32, origin: Origin) -> Self {
        Self { event, frame, origin, work: None }
    }

    pub fn local(event: LineEvent) -> Self {
        Self { event, frame: NO_FRAME, origin: Origin::Cache, work: None }
    }

    pub fn apply(event: LineEvent, work: InPlaceWork) -> Self {
        Self { event, frame: NO_FRAME, origin: Origin::Cache, work: Some(work) }
    }
}

/// The control block of a page.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) line: Line,
    /// The page's frame while it is not in the table: on its way in or out.
    pub(super) frame: Option<FrameId>,
    pub(super) readers: SmallVec<[Waiter; 2]>,
    writers: SmallVec<[Waiter; 2]>,
    /// The owner's thread that waits for the page to be mapped.
    pub(super) mapper: Option<Mapper>,
    puts: VecDeque<Put>,
    deferred: VecDeque<Deferred>,
    starved: bool,
    /// Wanted by nobody yet.
    prefetch: bool,
    /// Wanted by the home, to serve it in place.
    recall: bool,
    /// To be marked as read-ahead trigger when it arrives.
    pub(super) ahead: bool,
    /// Is being read by [`Agent::read_own`]: its directory entry need not exist.
    pub(super) own_read: bool,
}

impl Page {
    /// Of a page that is to come into this frame, for somebody who waits or for nobody yet.
    pub(super) fn wanted(frame: FrameId, reader: Option<Waiter>, ahead: bool) -> Self {
        let prefetch = reader.is_none();
        Self { frame: Some(frame), readers: reader.into_iter().collect(), prefetch, ahead, ..Self::default() }
    }

    /// Asks NVMe itself instead of the directory.
    pub(super) fn take_short_way(&mut self) {
        self.own_read = true;
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
    pub(super) fn wants_reading_at_most(&self) -> bool {
        self.writers.is_empty()
            && self.mapper.is_none()
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

impl Agent {
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
            Request::Read { page, count, slot } => {
                let pages = page..page.saturating_add(u64::from(count));
                let missed: SmallVec<[PageIndex; 4]> =
                    pages.clone().filter(|&page| self.is_miss(page)).collect();
                self.take_at_hand(missed.len());
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
                let page_bytes = self.pool.layout().spec().page_bytes as usize;
                if offset as usize + data.len() > page_bytes {
                    return Err(CacheError::Protocol {
                        who: self.layout.describe(from),
                        what: format!("put {} bytes at {offset} of a page", data.len()),
                    });
                }
                let put = Put::Part { offset, data: data.into(), waiter: Some(waiter(slot)) };
                self.want_put(page, put, waiter(slot))
            }
            Request::PutFrame { page, frame, slot } => {
                let frame = FrameId(frame);
                self.pool.adopt(frame, local_rank)?;
                self.pool.count(Counter::WholePagePuts, 1);
                self.want_put(page, Put::Whole { frame: Some(frame), waiter: waiter(slot) }, waiter(slot))
            }
            Request::Own { page, slot } => self.want_own(page, waiter(slot)),
            Request::Prefetch { page, count } => self.prefetch(page, count),
            Request::Ahead { page } => self.used_ahead(page),
            Request::MakeRoom { slot } => {
                self.hungry.push(waiter(slot));
                Ok(())
            }
            Request::Attach { pages, slot } => self.attach(local_rank, pages, data, waiter(slot)),
            Request::Attached { slot } => {
                self.pool.reach_new_client()?;
                self.complete(waiter(slot), Ok(()))
            }
            Request::Segments { first_rank, slot } => self.learn_segments(first_rank, data, waiter(slot)),
            Request::Checkpoint { slot } => self.checkpoint(local_rank, waiter(slot), Purpose::Flush),
            Request::Clean { slot } => self.checkpoint(local_rank, waiter(slot), Purpose::Clean),
            Request::Prepare { identity, slot } => self.prepare(local_rank, identity, waiter(slot)),
            Request::Why { piece, slot } => self.tell_why(local_rank, piece, waiter(slot)),
            Request::Conclude { commit, slot } => self.conclude(local_rank, commit, waiter(slot)),
        }
    }

    pub(super) fn want_own(&mut self, page: PageIndex, waiter: Waiter) -> Result<(), CacheError> {
        if !self.attached(page) {
            return self.fail(waiter, page, FailureKind::NoSuchPage.into());
        }
        if self.meets_claim(page)? {
            self.park(page, Parked::Own(waiter));
            return Ok(());
        }
        self.page(page)?.writers.push(waiter);
        self.pump(page)
    }

    pub(super) fn want_read(&mut self, page: PageIndex, waiter: Waiter) -> Result<(), CacheError> {
        if !self.attached(page) {
            return self.fail(waiter, page, FailureKind::NoSuchPage.into());
        }
        if self.meets_claim(page)? {
            self.park(page, Parked::Read(waiter));
            return Ok(());
        }
        if self.start_own(page, Some(waiter), false)? {
            return Ok(());
        }
        self.page(page)?.readers.push(waiter);
        self.pump(page)
    }

    pub(super) fn want_put(&mut self, page: PageIndex, put: Put, waiter: Waiter) -> Result<(), CacheError> {
        if !self.attached(page) {
            if let Put::Whole { frame: Some(frame), .. } = put {
                self.release(frame)?;
            }
            return self.fail(waiter, page, FailureKind::NoSuchPage.into());
        }
        if self.meets_claim(page)? {
            self.park(page, Parked::Put(put, waiter));
            return Ok(());
        }
        self.page(page)?.puts.push_back(put);
        self.pump(page)?;
        self.publish_neighbours(page)
    }

    /// The control block, made from the table if there is none. A page without one that is held is being evicted
    /// ([`Agent::evict`]).
    pub(super) fn page(&mut self, page: PageIndex) -> Result<&mut Page, CacheError> {
        let entry = self.pool.entry(page)?;
        Ok(self.pages.entry(page).or_insert_with(|| {
            let mut line = Line::default();
            line.state = state_of(entry);
            let mut block = Page { line, ..Page::default() };
            if entry.held() && entry.state().readable() {
                block.deferred.push_back(Deferred::local(LineEvent::Replace));
            }
            block
        }))
    }

    /// Begins to evict a page for which nothing is under way. It gets a block when its ranks have left it, or when somebody
    /// wants something of it before: whatever that is waits behind the eviction.
    pub(super) fn evict(&mut self, page: PageIndex) -> Result<(), CacheError> {
        Ok(self.pool.revoke(page, Intent::Evict)?)
    }

    /// Asks for a page as the home itself: to serve it in place, or for its owner's pointers.
    pub(super) fn own_for_home(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.page(page)?.recall = true;
        self.pump(page)
    }

    /// Whether a thread of the owner waits for the page to be mapped.
    pub(super) fn waits_to_map(&self, page: PageIndex) -> bool {
        self.pages.get(&page).is_some_and(|block| block.mapper.is_some())
    }

    /// Takes the mark of a page on its way, if it has one.
    pub(super) fn take_mark(&mut self, page: PageIndex) -> bool {
        self.pages.get_mut(&page).is_some_and(|block| std::mem::take(&mut block.ahead))
    }

    /// Whether nothing is under way for a page.
    pub(super) fn quiet(&self, page: PageIndex) -> bool {
        !self.pages.contains_key(&page)
    }

    /// Brings a page in that nobody waits for.
    pub(super) fn fetch(&mut self, page: PageIndex, ahead: bool) -> Result<bool, CacheError> {
        let entry = self.pool.entry(page)?;
        if let Some(block) = self.pages.get_mut(&page) {
            // On its way already: then it carries the mark.
            block.ahead |= ahead;
            return Ok(false);
        }
        if entry.state().readable() || self.meets_claim(page)? || !self.attached(page) {
            return Ok(false);
        }
        if self.pool.entry(page)?.state() != PageState::Invalid {
            return Ok(false);
        }
        if self.start_own(page, None, ahead)? {
            return Ok(true);
        }
        let block = self.page(page)?;
        block.prefetch = true;
        block.ahead = ahead;
        self.pump(page)?;
        Ok(true)
    }

    /// Gives a page's wants what it can, and asks the protocol for the rest.
    pub(super) fn pump(&mut self, page: PageIndex) -> Result<(), CacheError> {
        loop {
            let entry = self.pool.entry(page)?;
            let Some(block) = self.pages.get_mut(&page) else { return Ok(()) };
            if !block.deferred.is_empty() {
                return Ok(());
            }
            if block.line.stable() {
                block.line.state = state_of(entry);
            }
            if block.line.readable() && (!block.readers.is_empty() || block.prefetch) {
                block.prefetch = false;
                let readers = std::mem::take(&mut block.readers);
                self.now_readable(entry.frame(), readers)?;
                continue;
            }
            if !block.line.stable() {
                return Ok(());
            }
            let event = if let Some(put) = block.puts.front_mut() {
                if block.line.writable() {
                    self.apply_puts(page)?;
                    continue;
                }
                match put {
                    Put::Whole { frame, .. } => {
                        if block.line.state == line::State::I && block.frame.is_none() {
                            block.frame = frame.take();
                        }
                        LineEvent::WriteWhole
                    }
                    Put::Part { .. } => LineEvent::Write,
                }
            } else if !block.readers.is_empty() || block.prefetch {
                LineEvent::Read
            } else if !block.writers.is_empty() || block.recall {
                if block.line.writable() {
                    block.recall = false;
                    let writers = std::mem::take(&mut block.writers);
                    self.write_silently(page)?;
                    self.now_readable(entry.frame(), writers)?;
                    continue;
                }
                LineEvent::Write
            } else if let Some(mapper) = block.mapper {
                if block.line.writable() {
                    if !self.serves_mapped(page) {
                        // A message that takes the page away is on its way to it, or the home has not heard yet that it
                        // is here. Either will be followed by another look.
                        return Ok(());
                    }
                    if let Some(block) = self.pages.get_mut(&page) {
                        block.mapper = None;
                    }
                    if mapper.write {
                        self.write_silently(page)?;
                    }
                    self.map(page, entry.frame(), mapper.id)?;
                    continue;
                }
                // For loads the only copy will do, and may stay clean; one of several has to be claimed.
                let alone = mapper.write || block.line.state != line::State::I;
                if alone { LineEvent::Write } else { LineEvent::Read }
            } else {
                if block.idle() {
                    self.pages.remove(&page);
                    return self.settle(page);
                }
                return Ok(());
            };
            if block.line.state == line::State::I && block.frame.is_none() {
                match self.at_hand.pop().or_else(|| self.pool.take_frame()) {
                    Some(frame) => {
                        block.frame = Some(frame);
                        self.refused = 0;
                    }
                    None if block.prefetch
                        && block.readers.is_empty()
                        && block.puts.is_empty()
                        && block.mapper.is_none()
                        && block.writers.is_empty() =>
                    {
                        // Nobody waits for it: not worth an eviction.
                        self.pages.remove(&page);
                        return self.settle(page);
                    }
                    None => {
                        if !block.starved {
                            block.starved = true;
                            self.starved.push_back(page);
                        }
                        return Ok(());
                    }
                }
            }
            if event == LineEvent::Read && self.read_own(page)? {
                return Ok(());
            }
            self.step_line(page, Deferred::local(event))?;
        }
    }

    /// Tells those who wait for a page that they can use it, and keeps its frame for them.
    pub(super) fn now_readable(
        &mut self,
        frame: FrameId,
        waiters: SmallVec<[Waiter; 2]>,
    ) -> Result<(), CacheError> {
        let deadline = self.now_ms + RESERVATION.as_millis() as u64;
        for waiter in waiters {
            self.pool.reserve(frame, deadline)?;
            self.complete(waiter, Ok(()))?;
        }
        Ok(())
    }

    /// No frame can be had for a page that waits for one, because nothing can be evicted.
    pub(super) fn give_up(&mut self, page: PageIndex) -> Result<(), CacheError> {
        if let Some(block) = self.pages.get_mut(&page) {
            block.starved = false;
            if block.line.state == line::State::I && block.frame.is_none() {
                self.line_failed(page, self.why_no_frame())?;
            }
            self.pump(page)?;
        }
        Ok(())
    }

    /// Tries again for pages that wait for a frame.
    pub(super) fn feed_starved(&mut self) -> Result<bool, CacheError> {
        let mut any = false;
        for _ in 0..self.starved.len() {
            if self.pool.free_frames() == 0 {
                break;
            }
            let Some(page) = self.starved.pop_front() else { break };
            if let Some(block) = self.pages.get_mut(&page) {
                block.starved = false;
                self.pump(page)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// E becomes M without a message (the ranks do the same by themselves).
    fn write_silently(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let Some(block) = self.pages.get_mut(&page) else { return Ok(()) };
        if block.line.state == line::State::E {
            self.step_line(page, Deferred::local(LineEvent::Write))?;
        }
        Ok(())
    }

    /// Applies the posted puts of a page that this node may write, in order.
    fn apply_puts(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.write_silently(page)?;
        let entry = self.pool.entry(page)?;
        let span = self.pool.frame_span(entry.frame())?;
        while let Some(put) = self.pages.get_mut(&page).and_then(|block| block.puts.pop_front()) {
            match put {
                Put::Part { offset, data, waiter } => {
                    span.mapping().write(span.offset() + offset as usize, &data);
                    if let Some(waiter) = waiter {
                        self.complete(waiter, Ok(()))?;
                    }
                }
                Put::Whole { frame, waiter } => {
                    if let Some(frame) = frame {
                        span.copy_from(&self.pool.frame_span(frame)?);
                        self.release(frame)?;
                    }
                    self.complete(waiter, Ok(()))?;
                }
            }
        }
        Ok(())
    }

    /// An event of the protocol: now, or when the ranks have left the page and what came before is done.
    pub(super) fn line_event(&mut self, page: PageIndex, deferred: Deferred) -> Result<(), CacheError> {
        let entry = self.pool.entry(page)?;
        let block = self.page(page)?;
        if !block.deferred.is_empty() {
            block.deferred.push_back(deferred);
            return Ok(());
        }
        if takes_rights(deferred.event, entry) {
            block.deferred.push_back(deferred);
            self.pool.revoke(page, Intent::Revoke)?;
            return Ok(());
        }
        self.step_line(page, deferred)?;
        self.pump(page)
    }

    /// Goes on with pages that their ranks have left.
    pub(super) fn poll_revocations(&mut self) -> Result<bool, CacheError> {
        let mut done = std::mem::take(&mut self.scratch_done);
        self.pool.poll_revocations(&mut done)?;
        let any = !done.is_empty();
        for (page, outcome) in done.drain(..) {
            self.revoked(page, outcome)?;
        }
        self.scratch_done = done;
        Ok(any)
    }

    fn revoked(&mut self, page: PageIndex, outcome: Revoked) -> Result<(), CacheError> {
        if self.quiet(page) {
            if outcome == Revoked::Pinned {
                return self.not_evicted(page);
            }
            if self.evict_own(page)? {
                return Ok(());
            }
        }
        let Some(first) = self.page(page)?.deferred.pop_front() else {
            return self.pool.unhold(page).map_err(Into::into);
        };
        if outcome == Revoked::Pinned {
            self.not_evicted(page)?;
        } else {
            if first.event == LineEvent::Replace && self.home_of(page) == Some(self.node) {
                self.directory(page);
            }
            self.step_line(page, first)?;
        }
        // What waited behind it; each may need its own revocation.
        while let Some(next) = self.pages.get_mut(&page).and_then(|block| block.deferred.pop_front()) {
            let entry = self.pool.entry(page)?;
            if takes_rights(next.event, entry) {
                if let Some(block) = self.pages.get_mut(&page) {
                    block.deferred.push_front(next);
                }
                self.pool.revoke(page, Intent::Revoke)?;
                return Ok(());
            }
            self.step_line(page, next)?;
        }
        self.pump(page)
    }

    /// One step of the line, and what the table shows of it.
    fn step_line(&mut self, page: PageIndex, deferred: Deferred) -> Result<(), CacheError> {
        let Deferred { event, frame: named, origin, work } = deferred;
        let home = self.home_of(page).ok_or_else(|| self.violation(self.node, "a page without a home"))?;
        if home == self.node && self.pages.get(&page).is_some_and(|block| block.own_read) {
            // Somebody speaks about a page on its short way: it goes on in the usual one.
            self.directory(page);
        }
        let entry = self.pool.entry(page)?;
        let node = self.node;
        let block = self.page(page)?;
        if block.line.stable() {
            block.line.state = state_of(entry);
        }
        let (next, actions) = match line::step(block.line, home, event) {
            Ok(step) => step,
            Err(violation) => {
                let from = match event {
                    LineEvent::Message { from, .. } => from,
                    _ => node,
                };
                return Err(self.violation(from, format!("page {page}: {violation}")));
            }
        };
        let taken = line::classify(block.line, home, event).map(|(named, _)| (block.line.state, named));
        let before = shown(block.line);
        let after = shown(next);
        tracing::trace!(page, from = ?block.line.state, ?event, to = ?next.state, "line");
        block.line = next;
        let visible = entry.state().readable();
        debug_assert_eq!(before.is_some(), visible, "page {page}: {before:?} but {entry:?}");
        let frame = if visible { Some(entry.frame()) } else { block.frame };
        if let LineEvent::Message { from, message: Message::Data { .. } } = event
            && frame.is_none_or(|frame| frame.0 != named)
        {
            return Err(self.violation(from, format!("sent page {page} to frame {named}, not to {frame:?}")));
        }
        if let (Some(observe), Ok((state, named))) = (&mut self.observer, taken) {
            observe(Row { page, node, taken: Taken::Line(state, named, next.state) });
        }
        match event {
            LineEvent::Message { from, message: Message::Data { .. } } => {
                let counter = match origin {
                    Origin::Zeros => Counter::WithoutData,
                    Origin::Nvm => Counter::FromNvm,
                    Origin::Cache if from == home => Counter::FromHome,
                    Origin::Cache => Counter::FromPeer,
                };
                self.pool.count(counter, 1);
                if origin == Origin::Zeros
                    && let Some(frame) = frame
                {
                    self.pool.frame_span(frame)?.fill_zero();
                }
            }
            LineEvent::Message { message: Message::Grant { .. }, .. } => {
                self.pool.count(Counter::WithoutData, 1);
            }
            _ => {}
        }
        match (visible, after) {
            (true, Some(state)) if state == entry.state() => {
                if entry.held() {
                    self.pool.unhold(page)?;
                }
            }
            (true, Some(state)) if entry.held() => self.pool.settle(page, state)?,
            (true, Some(state)) => self.pool.upgrade(page, state)?,
            (true, None) => {
                let frame = self.pool.detach(page)?;
                if let Some(frame) = frame {
                    self.options.replacement.remove(frame);
                }
                self.page(page)?.frame = frame;
            }
            (false, Some(state)) => {
                let block = self.page(page)?;
                let ahead = std::mem::take(&mut block.ahead);
                let Some(frame) = block.frame.take() else {
                    return Err(self.violation(node, "gave a copy to a page without a frame"));
                };
                self.pool.install(page, frame, state, ahead)?;
                let stamp = self.pool.stamp(frame)?;
                self.options.replacement.insert(frame, stamp);
            }
            (false, None) => {}
        }
        if next.stable()
            && let Some(frame) = frame
        {
            self.expected.settled(frame);
        }
        for action in actions {
            match action {
                line::Action::Send { to, message } => {
                    self.line_says(page, to, message, frame, named)?;
                }
                line::Action::Complete(outcome) => self.line_outcome(page, outcome, named)?,
                line::Action::Apply { write } => {
                    if let (Some(frame), Some(work)) = (frame, &work) {
                        self.apply_in_place(frame, write, work)?;
                    }
                }
                line::Action::Drop => {
                    if let Some(frame) = self.page(page)?.frame.take() {
                        self.release(frame)?;
                    }
                }
            }
        }
        if let LineEvent::Message { message: Message::EvictAck, .. } = event {
            self.evicted(page)?;
        }
        Ok(())
    }

    /// Sends a message of the line, with what the agent adds: the frame in which an answer is expected, or the content.
    fn line_says(
        &mut self,
        page: PageIndex,
        to: vgas_rma::address::NodeId,
        message: Message,
        frame: Option<FrameId>,
        named: u32,
    ) -> Result<(), CacheError> {
        match message {
            Message::GetShared | Message::GetModified { .. } => {
                if let Some(frame) = frame {
                    self.expected.expect_any_agent(frame, page);
                }
                let frame = frame.map_or(NO_FRAME, |frame| frame.0);
                self.say(to, Coherence { page, message, frame, origin: Origin::Cache });
            }
            _ if message.carries_page() => {
                let Some(frame) = frame else {
                    return Err(self.violation(self.node, "has no content to send"));
                };
                if to == self.node {
                    // To this node's own home: the content is where it will be stored from.
                    self.say(to, Coherence { page, message, frame: frame.0, origin: Origin::Cache });
                } else {
                    if matches!(message, Message::Data { .. }) {
                        self.pool.count(Counter::Forwards, 1);
                    }
                    self.say_with_page(
                        to,
                        Coherence { page, message, frame: named, origin: Origin::Cache },
                        frame,
                    )?;
                }
            }
            _ => {
                if message == Message::InvalidateAck {
                    self.pool.count(Counter::Invalidations, 1);
                }
                self.say(to, Self::plain(page, message));
            }
        }
        Ok(())
    }

    fn line_outcome(
        &mut self,
        page: PageIndex,
        outcome: line::Outcome,
        named: u32,
    ) -> Result<(), CacheError> {
        match outcome {
            // `pump` serves the wants, once the step is complete; puts must reach the frame before anybody else does.
            line::Outcome::Readable => Ok(()),
            line::Outcome::Writable => {
                let has_puts = self.pages.get(&page).is_some_and(|block| !block.puts.is_empty());
                if has_puts { self.apply_puts(page) } else { Ok(()) }
            }
            line::Outcome::InPlace => self.go_in_place(page),
            line::Outcome::Failed(_) => self.line_failed(page, self.named_failure(page, named)),
            line::Outcome::NotEvicted => {
                self.refused += 1;
                self.refusal = Some(self.named_failure(page, named));
                self.not_evicted(page)
            }
        }
    }

    /// Why a request for a page failed: as its home names it beside the protocol's reason. What is no such name is a
    /// failure of that home's device all the same.
    fn named_failure(&self, page: PageIndex, named: u32) -> Failure {
        let failure = Failure::from_code(named);
        match failure.kind {
            FailureKind::Unknown => {
                Failure { kind: FailureKind::Device, errno: None, node: self.home_of(page) }
            }
            _ => failure,
        }
    }

    /// The home serves the page in place: readers go there by themselves, posted puts are sent there.
    fn go_in_place(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.pool.mark_in_place(page, true)?;
        let block = self.page(page)?;
        block.prefetch = false;
        let waiters: Vec<Waiter> = block.readers.drain(..).chain(block.writers.drain(..)).collect();
        let mut puts = std::mem::take(&mut block.puts);
        // The frame of a whole put may have become the page's own: it holds the put's data.
        if let Some(Put::Whole { frame: frame @ None, .. }) = puts.front_mut() {
            *frame = block.frame.take();
        }
        for waiter in waiters {
            self.complete(waiter, Ok(()))?;
        }
        for put in puts {
            self.put_remotely(page, put)?;
        }
        Ok(())
    }

    fn put_remotely(&mut self, page: PageIndex, put: Put) -> Result<(), CacheError> {
        let home = self.home_of(page).ok_or_else(|| self.violation(self.node, "a page without a home"))?;
        // Whole pages travel in pieces that fit a message.
        const PIECE: usize = 8 << 10;
        let put = match put {
            Put::Whole { frame: Some(frame), waiter } => {
                let span = self.pool.frame_span(frame)?;
                let mut all = vec![0; span.bytes()];
                span.read(&mut all);
                self.release(frame)?;
                // The pieces may end in any order: the home may decline some of them, which then go the normal way.
                let pieces = all.len().div_ceil(PIECE) as u32;
                self.pool.split_part(waiter.local_rank, waiter.wait, pieces)?;
                for (index, piece) in all.chunks(PIECE).enumerate() {
                    let waiter = Some(waiter);
                    let offset = (index * PIECE) as u32;
                    self.put_remotely(page, Put::Part { offset, data: piece.into(), waiter })?;
                }
                return Ok(());
            }
            put => put,
        };
        let Put::Part { offset, data, .. } = &put else { return Ok(()) };
        self.next_remote = self.next_remote.wrapping_add(1);
        let number = self.next_remote;
        let operation = InPlace::Put { page, offset: *offset, slot: number };
        let data = data.clone();
        self.remote_puts.insert(number, RemotePut { page, put });
        self.outbox.push(self.layout.agent_of(home), Outgoing::InPlace { words: operation.encode(), data });
        Ok(())
    }

    pub(super) fn remote_put_ended(&mut self, number: u32, answer: InPlaceAnswer) -> Result<(), CacheError> {
        let Some(RemotePut { page, put }) = self.remote_puts.remove(&number) else {
            return Err(self.violation(self.node, "was answered an in-place put that is not under way"));
        };
        match answer {
            InPlaceAnswer::Done => match put {
                Put::Part { waiter: Some(waiter), .. } => self.complete(waiter, Ok(())),
                _ => Ok(()),
            },
            InPlaceAnswer::NotInPlace => {
                if self.pool.entry(page)?.state() == PageState::InPlace {
                    self.pool.mark_in_place(page, false)?;
                }
                self.page(page)?.puts.push_back(put);
                self.pump(page)
            }
        }
    }

    /// What this node wanted of a page cannot be had: everybody who waits for it is told.
    pub(super) fn line_failed(&mut self, page: PageIndex, failure: Failure) -> Result<(), CacheError> {
        let block = self.page(page)?;
        (block.prefetch, block.recall) = (false, false);
        let mapper = block.mapper.take();
        let mut waiters: Vec<Waiter> = block.readers.drain(..).chain(block.writers.drain(..)).collect();
        let mut frames = Vec::new();
        for put in block.puts.drain(..) {
            match put {
                Put::Part { waiter, .. } => waiters.extend(waiter),
                Put::Whole { frame, waiter } => {
                    frames.extend(frame);
                    waiters.push(waiter);
                }
            }
        }
        for frame in frames {
            self.release(frame)?;
        }
        for waiter in waiters {
            self.fail(waiter, page, failure)?;
        }
        mapper.map_or(Ok(()), |mapper| self.map_failed(page, mapper.id, failure))
    }

    /// Does a small operation on the home's copy, and answers.
    fn apply_in_place(&mut self, frame: FrameId, write: bool, work: &InPlaceWork) -> Result<(), CacheError> {
        let span = self.pool.frame_span(frame)?;
        let answer = match work.operation {
            InPlace::Get { offset, bytes, slot, .. } if !write => {
                let mut data = vec![0; bytes as usize];
                span.mapping().read(span.offset() + offset as usize, &mut data);
                Outgoing::Answer { words: InPlaceAnswer::Done.encode(slot), bytes: data }
            }
            InPlace::Put { offset, slot, .. } if write => {
                span.mapping().write(span.offset() + offset as usize, &work.data);
                Outgoing::Answer { words: InPlaceAnswer::Done.encode(slot), bytes: Vec::new() }
            }
            InPlace::PutPieces { count, slot, .. } if write => {
                let page_bytes = u64::from(self.pool.layout().spec().page_bytes);
                // It was found to be well-formed when it came.
                let pieces = Pieces::read(&work.data, count, page_bytes).into_iter().flat_map(Pieces::each);
                for (offset, bytes) in pieces {
                    span.mapping().write(span.offset() + offset as usize, bytes);
                }
                Outgoing::Answer { words: InPlaceAnswer::Done.encode(slot), bytes: Vec::new() }
            }
            _ => return Err(self.violation(self.node, "mixed an in-place get with a put")),
        };
        self.pool.count(Counter::InPlaceServed, 1);
        self.outbox.push(work.from, answer);
        Ok(())
    }
}
