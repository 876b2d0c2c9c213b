//! The protocol's steps of a line, and what the node's table shows of them.

use super::Deferred;
use super::*;
use crate::agent::controller::CacheController;
use crate::agent::items::Waiter;
use crate::agent::wire::{Beside, Coherence, Origin};
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
use crate::pool::FrameUse;
use crate::pool::{Counter, FrameId, Intent, Outcome as Revoked};
use crate::protocol::trace::{Row, Taken};
use crate::protocol::{LineEvent, Message, Right, line};

impl CacheController {
    /// An event of the protocol: now, or when the ranks have left the page and what came before is done.
    pub fn line_event(&mut self, page: PageIndex, deferred: Deferred) -> Result<(), CacheError> {
        let entry = self.ctx.entry(page)?;
        let control = self.control(page)?;
        if !control.deferred.is_empty() {
            control.deferred.push_back(deferred);
            return Ok(());
        }
        if takes_rights(deferred.event, entry) {
            control.deferred.push_back(deferred);
            self.ctx.pool.revoke(page, Intent::Revoke)?;
            return Ok(());
        }
        self.step_line(page, deferred)?;
        self.pump(page)
    }

    /// Begins to evict a page for which nothing is in flight. It gets a control when its ranks have left it, or when somebody
    /// wants something of it before: whatever that is waits behind the eviction.
    pub fn evict(&mut self, page: PageIndex) -> Result<(), CacheError> {
        Ok(self.ctx.pool.revoke(page, Intent::Evict)?)
    }

    /// Evicts what a frame holds that replacement has just forgotten. False: not now, and it is known there again.
    pub fn begin_to_evict(&mut self, frame: FrameId) -> Result<bool, CacheError> {
        let FrameUse::Page(page) = self.ctx.pool.frame_use(frame)? else { return Ok(true) };
        if !self.quiet(page) || self.claims.has_parked(page) {
            self.ctx.may_be_evicted(frame)?;
            return Ok(false);
        }
        if self.ctx.entry(page)?.ahead() {
            self.ctx.evicted_unused(page);
        }
        self.ctx.shards.eviction_begins(self.ctx.size_of(page));
        self.evict(page)?;
        Ok(true)
    }

    /// Evicts a page of a block that is being emptied which is about to be pinned there: it is wanted elsewhere.
    pub fn leave_block(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let entry = self.ctx.entry(page)?;
        let frame = entry.frame();
        let leaves = entry.state().readable() && self.ctx.pool.is_vacating(frame);
        if leaves && self.ctx.pool.evictable(frame, self.ctx.time.now_ms) && self.quiet(page) {
            self.evict_early(frame)?;
        }
        Ok(())
    }

    /// Evicts the page in a frame before its turn.
    pub fn evict_early(&mut self, frame: FrameId) -> Result<(), CacheError> {
        self.ctx.victims.remove(&self.ctx.pool, frame)?;
        self.begin_to_evict(frame).map(drop)
    }

    /// Evicts what a block holds of this shard's.
    pub fn vacate(&mut self, block: u32) -> Result<(), CacheError> {
        self.ctx.empty_reserve(block)?;
        let frames: Vec<_> = self.ctx.pool.frames_in_block(block).collect();
        for frame in frames {
            // No frame any more, where the first shard has found the block empty meanwhile and cut it again.
            let Ok(FrameUse::Page(page)) = self.ctx.pool.frame_use(frame) else { continue };
            let is_here = self.ctx.is_mine(page)
                && matches!(self.ctx.pool.page_in(frame), Ok(Some(found)) if found == page);
            if is_here && self.ctx.pool.evictable(frame, self.ctx.time.now_ms) && self.quiet(page) {
                self.evict_early(frame)?;
            }
        }
        Ok(())
    }

    /// Goes on with pages that their ranks have left.
    pub fn poll_revocations(&mut self) -> Result<bool, CacheError> {
        let mut done = std::mem::take(&mut self.lines.revoked);
        self.ctx.pool.poll_revocations(&mut done)?;
        let any = !done.is_empty();
        for (page, outcome) in done.drain(..) {
            self.revoked(page, outcome)?;
        }
        self.lines.revoked = done;
        Ok(any)
    }

    fn revoked(&mut self, page: PageIndex, outcome: Revoked) -> Result<(), CacheError> {
        if self.quiet(page) {
            if outcome == Revoked::Pinned {
                return self.ctx.not_evicted(page);
            }
            if self.evict_own(page)? {
                return Ok(());
            }
        }
        let Some(first) = self.control(page)?.deferred.pop_front() else {
            return self.ctx.pool.unhold(page).map_err(Into::into);
        };
        if outcome == Revoked::Pinned {
            self.ctx.not_evicted(page)?;
        } else {
            if first.event == LineEvent::Replace && self.ctx.home_of(page) == Some(self.ctx.node) {
                self.directory(page);
            }
            self.step_line(page, first)?;
        }
        // What waited behind it; each may need its own revocation.
        while let Some(next) =
            self.lines.pages.get_mut(&page).and_then(|control| control.deferred.pop_front())
        {
            let entry = self.ctx.entry(page)?;
            if takes_rights(next.event, entry) {
                if let Some(control) = self.lines.pages.get_mut(&page) {
                    control.deferred.push_front(next);
                }
                self.ctx.pool.revoke(page, Intent::Revoke)?;
                return Ok(());
            }
            self.step_line(page, next)?;
        }
        self.pump(page)
    }

    /// One step of the line, and what the table shows of it.
    pub fn step_line(&mut self, page: PageIndex, deferred: Deferred) -> Result<(), CacheError> {
        let Deferred { event, beside, origin, work } = deferred;
        let home = self
            .ctx
            .home_of(page)
            .ok_or_else(|| self.ctx.violation(self.ctx.node, "a page without a home"))?;
        if home == self.ctx.node && self.lines.pages.get(&page).is_some_and(|control| control.own_read) {
            // Somebody speaks about a page on its fast path: it goes on in the usual one.
            self.directory(page);
        }
        let entry = self.ctx.entry(page)?;
        let node = self.ctx.node;
        let control = self.control(page)?;
        if control.line.stable() {
            control.line.state = state_of(entry);
        }
        let (next, actions) = match line::step(control.line, home, event) {
            Ok(step) => step,
            Err(violation) => {
                let from = match event {
                    LineEvent::Message { from, .. } => from,
                    _ => node,
                };
                return Err(self.ctx.violation(from, format!("page {page}: {violation}")));
            }
        };
        let taken = line::classify(control.line, home, event).map(|(named, _)| (control.line.state, named));
        let before = shown(control.line);
        let after = shown(next);
        tracing::trace!(page = page.0, from = ?control.line.state, ?event, to = ?next.state, "line");
        control.line = next;
        // Of whatever ends the request.
        let asked = if next.stable() { control.asked.take() } else { None };
        let visible = entry.state().readable();
        debug_assert_eq!(before.is_some(), visible, "page {page}: {before:?} but {entry:?}");
        let frame = if visible { Some(entry.frame()) } else { control.frame };
        if let LineEvent::Message { from, message: Message::Data { .. } } = event
            && (frame.is_none() || beside.frame() != frame)
        {
            return Err(self
                .ctx
                .violation(from, format!("sent page {page} to {beside:?}, not to {frame:?}")));
        }
        if let (Some(observe), Ok((state, named))) = (&mut self.ctx.observer, taken) {
            observe(Row { page: page.0, node, taken: Taken::Line(state, named, next.state) });
        }
        match event {
            LineEvent::Message { from, message: message @ Message::Data { .. } } => {
                // What had to be waited for because it was being written says nothing about the way.
                let is_clean =
                    matches!(message, Message::Data { right, dirty: false, .. } if right != Right::Modified);
                self.has_come(page, from, origin, asked.filter(|_| is_clean));
                let counter = match origin {
                    Origin::Zeros => Counter::WithoutData,
                    Origin::Nvm => Counter::FromNvm,
                    Origin::Cache if from == home => Counter::FromHome,
                    Origin::Cache => Counter::FromPeer,
                };
                self.ctx.count(counter, 1);
                if origin == Origin::Zeros
                    && let Some(frame) = frame
                {
                    self.ctx.frame_span(frame)?.fill_zero();
                }
            }
            LineEvent::Message { message: Message::Grant { .. }, .. } => {
                self.ctx.count(Counter::WithoutData, 1);
            }
            // Not of a page that is on its way out.
            LineEvent::Message { message: Message::Last, .. } if visible => {
                self.ctx.holds_last(entry.frame())
            }
            // The home knows now that NVMe has what this node had alone; it has told nobody else of it yet.
            LineEvent::Message { message: Message::Pull, .. } if entry.state().writable() => {
                self.ctx.holds_last(entry.frame());
            }
            _ => {}
        }
        match (visible, after) {
            (true, Some(state)) if state == entry.state() => {
                if entry.held() {
                    self.ctx.pool.unhold(page)?;
                }
            }
            (true, Some(state)) if entry.held() => self.ctx.pool.settle(page, state)?,
            (true, Some(state)) => self.ctx.pool.upgrade(page, state)?,
            (true, None) => {
                let frame = self.ctx.detach(page)?;
                self.control(page)?.frame = frame;
            }
            (false, Some(state)) => {
                let control = self.control(page)?;
                let ahead = std::mem::take(&mut control.ahead);
                let Some(frame) = control.frame.take() else {
                    return Err(self.ctx.violation(node, "gave a copy to a page without a frame"));
                };
                self.ctx.install(page, frame, state, ahead)?;
            }
            (false, None) => {}
        }
        if next.stable()
            && let Some(frame) = frame
        {
            self.ctx.shards.expected().settled(frame);
        }
        if let LineEvent::Message { message: Message::ForwardShared { .. }, .. } = event
            && let Some(frame) = frame
        {
            self.ctx.holds_shared(frame)?;
        }
        for action in actions {
            match action {
                line::Action::Send { to, message } => {
                    self.line_says(page, to, message, frame, beside)?;
                }
                line::Action::Complete(outcome) => self.line_outcome(page, outcome, beside)?,
                line::Action::Apply { write } => {
                    if let (Some(frame), Some(work)) = (frame, &work) {
                        self.apply_in_place(frame, write, work)?;
                    }
                }
                line::Action::Drop => {
                    if let Some(frame) = self.control(page)?.frame.take() {
                        self.ctx.release(frame)?;
                    }
                }
            }
        }
        if let LineEvent::Message { message: Message::EvictAck, .. } = event {
            self.ctx.evicted(page)?;
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
        beside: Beside,
    ) -> Result<(), CacheError> {
        match message {
            Message::GetShared { .. } | Message::GetModified { .. } => {
                if let Some(frame) = frame {
                    self.ctx.shards.expected().expect_any_agent(frame, page);
                }
                let message = match message {
                    Message::GetShared { .. } => Message::GetShared { nvm: self.wants_nvm(page, to)? },
                    other => other,
                };
                self.ctx.say(to, Coherence::new(page, message, Beside::of(frame)));
            }
            _ if message.carries_page() => {
                let Some(frame) = frame else {
                    return Err(self.ctx.violation(self.ctx.node, "has no content to send"));
                };
                if to == self.ctx.node {
                    // To this node's own home: the content is where it will be stored from.
                    self.ctx.say(to, Coherence::new(page, message, Beside::Frame(frame)));
                } else {
                    if matches!(message, Message::Data { .. }) {
                        self.ctx.count(Counter::Forwards, 1);
                    }
                    self.ctx.say_with_page(to, Coherence::new(page, message, beside), frame)?;
                }
            }
            _ => {
                if message == Message::InvalidateAck {
                    self.ctx.count(Counter::Invalidations, 1);
                }
                self.ctx.say(to, Coherence::plain(page, message));
            }
        }
        Ok(())
    }

    /// Whether to ask the home to read NVMe for whoever waits for the page. What is read ahead is in time from elsewhere, too.
    fn wants_nvm(&mut self, page: PageIndex, home: vgas_rma::address::NodeId) -> Result<bool, CacheError> {
        let now = self.ctx.time.nanoseconds();
        let control = self.control(page)?;
        control.asked = (!control.readers.is_empty()).then_some(now);
        let is_awaited = control.asked.is_some();
        Ok(is_awaited
            && self.ctx.options.read_nearest
            && self.costs.prefers_nvm(home, self.ctx.size_of(page)))
    }

    /// A page has come from there that was asked for at this time, if for somebody who waits.
    pub fn has_come(
        &mut self,
        page: PageIndex,
        from: vgas_rma::address::NodeId,
        origin: Origin,
        asked: Option<u64>,
    ) {
        if let (Some(asked), Some(home)) = (asked, self.ctx.home_of(page)) {
            let took = self.ctx.time.nanoseconds().saturating_sub(asked);
            self.costs.took(home, self.ctx.size_of(page), from, origin, took);
        }
    }

    fn line_outcome(
        &mut self,
        page: PageIndex,
        outcome: line::Outcome,
        beside: Beside,
    ) -> Result<(), CacheError> {
        match outcome {
            // `pump` serves the wants, once the step is complete; puts must reach the frame before anybody else does.
            line::Outcome::Readable => Ok(()),
            line::Outcome::Writable => {
                let has_puts = self.lines.pages.get(&page).is_some_and(|control| !control.puts.is_empty());
                if has_puts { self.apply_puts(page) } else { Ok(()) }
            }
            line::Outcome::InPlace => self.go_in_place(page),
            line::Outcome::Failed(_) => self.line_failed(page, self.named_failure(page, beside)),
            line::Outcome::NotEvicted => {
                self.ctx.shards.eviction_refused(self.named_failure(page, beside));
                self.ctx.not_evicted(page)
            }
        }
    }

    /// Why a request for a page failed: as its home names it beside the protocol's reason. What is no such name is a
    /// failure of that home's device all the same.
    fn named_failure(&self, page: PageIndex, beside: Beside) -> Failure {
        match beside {
            Beside::Failure(failure) if failure.kind != FailureKind::Unknown => failure,
            _ => Failure { kind: FailureKind::Device, errno: None, node: self.ctx.home_of(page) },
        }
    }

    /// What this node wanted of a page cannot be had: everybody who waits for it is told.
    pub fn line_failed(&mut self, page: PageIndex, failure: Failure) -> Result<(), CacheError> {
        let control = self.control(page)?;
        (control.prefetch, control.recall) = (false, false);
        let mappers = std::mem::take(&mut control.mappers);
        let waiters: Vec<Waiter> = control.readers.drain(..).chain(control.writers.drain(..)).collect();
        let puts = std::mem::take(&mut control.puts);
        for waiter in waiters {
            self.ctx.fail(waiter, page, failure)?;
        }
        for put in puts {
            self.ctx.put_failed(page, put, failure)?;
        }
        mappers.into_iter().try_for_each(|mapper| self.map_failed(page, mapper.id, failure))
    }
}
