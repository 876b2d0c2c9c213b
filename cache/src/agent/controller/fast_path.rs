//! The fast path of pages whose home is this node and of which no other node has a copy.
//!
//! Such a page needs no other node's consent, yet its line and its directory entry would exchange six messages for each time it
//! is read and evicted. Here both take their steps at once: the same rows of the same tables, in an order that a fast
//! channel of the node to itself would give them. So that there is nothing to keep in step, the directory has no entry for
//! such a page. What the entry would be follows from the page:
//!
//! | the page | its entry |
//! |---|---|
//! | is being read by [`CacheController::start_own`] or [`CacheController::read_own`] ([`PageControl::own_read`]) | [`home::Home::reading_for`] this node |
//! | stands in the table as E or M | [`home::Home::held_by`] this node |
//! | else | a new one |
//!
//! [`CacheController::directory`] makes the entry as soon as another node says anything about the page, or it is evicted with changes;
//! from then on every step is the tables'. In builds with assertions, and where the rows are observed, as in the simulation
//! tests, the tables themselves are asked, and must agree.

use super::CacheController;
use super::lines::PageControl;
use crate::agent::items::Waiter;
use crate::agent::wire::Origin;
use crate::error::{CacheError, Failure};
use crate::page::PageIndex;
use crate::pool::{Counter, FrameId, PageState};
use crate::protocol::home::{HomeAction, HomeEvent};
use crate::protocol::trace::{Row, Taken};
use crate::protocol::{Line, LineEvent, Message, Right, home, line};
use std::collections::hash_map;

impl CacheController {
    /// The pages of which this node has the only copy, as far as the table says so.
    pub fn own_copies(&self) -> impl Iterator<Item = PageIndex> + '_ {
        self.ctx.cached_pages().filter(|&page| {
            let state = self.ctx.entry(page).map(|entry| entry.state());
            matches!(state, Ok(PageState::Exclusive | PageState::Modified)) && self.ctx.is_mine(page)
        })
    }

    /// Whether a page that this node does not have can be read on the fast path.
    pub fn may_read_own(&self, page: PageIndex) -> bool {
        self.ctx.stored_in(page).is_some_and(|(file, in_file)| {
            !self.homes.contains_key(&page) && self.ctx.storage.volume.is_written(file, in_file.0)
        })
    }

    /// Starts to read a page for which nothing is in flight, for somebody who waits or for nobody yet, if the fast path is
    /// open.
    pub fn start_own(
        &mut self,
        page: PageIndex,
        reader: Option<Waiter>,
        ahead: bool,
    ) -> Result<bool, CacheError> {
        if self.ctx.entry(page)?.state() != PageState::Invalid || !self.may_read_own(page) {
            return Ok(false);
        }
        if self.lines.pages.contains_key(&page) {
            return Ok(false);
        }
        let Some(frame) = self.ctx.take_frame_for(page) else { return Ok(false) };
        self.ctx.shards.somebody_got_a_frame();
        let control = self.lines.pages.entry(page).insert_entry(PageControl::wanted(frame, reader, ahead));
        control.into_mut().take_fast_path(self.ctx.time.nanoseconds());
        self.read_begun(page, frame);
        Ok(true)
    }

    /// Starts to read a page that has a control with a frame, and no copy, if the fast path is open.
    pub fn read_own(&mut self, page: PageIndex) -> Result<bool, CacheError> {
        if !self.may_read_own(page) {
            return Ok(false);
        }
        let Some(control) = self.lines.pages.get_mut(&page) else { return Ok(false) };
        let Some(frame) = control.frame else { return Ok(false) };
        control.take_fast_path(self.ctx.time.nanoseconds());
        self.read_begun(page, frame);
        Ok(true)
    }

    fn read_begun(&mut self, page: PageIndex, frame: FrameId) {
        self.ctx.collect_read(page, frame);
        if self.ctx.asks_tables() {
            self.show_read_begun(page);
        }
    }

    fn show_read_begun(&mut self, page: PageIndex) {
        let node = self.ctx.node;
        self.take_line(page, Line::default(), LineEvent::Read, line::State::IsD);
        let asked = HomeEvent::Message { from: node, message: Message::GetShared { nvm: false } };
        let reading = home::Home::reading_for(node);
        self.take_home(page, home::Home::default(), asked, &reading, &HomeAction::ReadNvm);
    }

    fn show_read_done(&mut self, page: PageIndex) {
        let node = self.ctx.node;
        let message = Message::Data { right: Right::Exclusive, dirty: false, acks: 0, confirm: false };
        let given = HomeAction::Send { to: node, message };
        let held = home::Home::held_by(node);
        self.take_home(page, home::Home::reading_for(node), HomeEvent::NvmRead, &held, &given);
        let (asked, _) = line::step(Line::default(), node, LineEvent::Read).expect("a row");
        self.take_line(page, asked, LineEvent::Message { from: node, message }, line::State::E);
    }

    /// NVMe has read a page, or not. False: it was not read by [`CacheController::read_own`], or cannot end like this.
    pub fn own_read_done(
        &mut self,
        page: PageIndex,
        result: Result<(), Failure>,
    ) -> Result<bool, CacheError> {
        let hash_map::Entry::Occupied(mut place) = self.lines.pages.entry(page) else { return Ok(false) };
        let control = place.get_mut();
        if !control.own_read || result.is_err() {
            return Ok(false);
        }
        let Some(frame) = control.frame.take() else { return Ok(false) };
        control.own_read = false;
        control.line.state = line::State::E;
        let (ahead, asked) = (std::mem::take(&mut control.ahead), control.asked.take());
        let readers = if control.wants_reading_at_most() {
            let readers = std::mem::take(&mut control.readers);
            place.remove();
            Some(readers)
        } else {
            None
        };
        self.ctx.count(Counter::FromNvm, 1);
        self.has_come(page, self.ctx.node, Origin::Nvm, asked);
        self.ctx.install(page, frame, PageState::Exclusive, ahead)?;
        if self.ctx.asks_tables() {
            self.show_read_done(page);
        }
        match readers {
            Some(readers) => {
                self.settle(page)?;
                self.ctx.now_readable(frame, readers)?;
            }
            None => self.pump(page)?,
        }
        Ok(true)
    }

    /// Evicts a page that its ranks have left, if the fast path is open: the only copy, unchanged, for which nothing else is
    /// in flight. Otherwise the directory has an entry for it now, if its home is here.
    pub fn evict_own(&mut self, page: PageIndex) -> Result<bool, CacheError> {
        if self.ctx.home_of(page) != Some(self.ctx.node) || self.homes.contains_key(&page) {
            return Ok(false);
        }
        if self.ctx.entry(page)?.state() != PageState::Exclusive || !self.quiet(page) {
            self.directory(page);
            return Ok(false);
        }
        if let Some(frame) = self.ctx.detach(page)? {
            self.ctx.release(frame)?;
        }
        if self.ctx.asks_tables() {
            let node = self.ctx.node;
            let mut held = Line::default();
            held.state = line::State::E;
            let leaving = self.take_line(page, held, LineEvent::Replace, line::State::EiE);
            let asked = HomeEvent::Message { from: node, message: Message::Evict { dirty: false } };
            let (before, let_go) = (home::Home::held_by(node), Message::EvictAck);
            let action = HomeAction::Send { to: node, message: let_go };
            self.take_home(page, before, asked, &home::Home::default(), &action);
            let acknowledged = LineEvent::Message { from: node, message: let_go };
            self.take_line(page, leaving, acknowledged, line::State::I);
        }
        self.ctx.evicted(page)?;
        self.settle(page)?;
        Ok(true)
    }

    /// Shows the rows that a rank has taken which has brought a page in by itself.
    pub fn show_claimed(&mut self, page: PageIndex) {
        if self.ctx.asks_tables() {
            self.show_read_begun(page);
            self.show_read_done(page);
        }
    }

    /// Asks the table whether a line takes this step, and shows its row.
    fn take_line(&mut self, page: PageIndex, line: Line, event: LineEvent, next: line::State) -> Line {
        let node = self.ctx.node;
        let (named, _) = line::classify(line, node, event).expect("an event of the fast path");
        let (taken, _) = line::step(line, node, event).expect("a step of the fast path");
        assert_eq!(taken.state, next, "page {page}: the fast path is not the table's");
        if let Some(observe) = &mut self.ctx.observer {
            observe(Row { page: page.0, node, taken: Taken::Line(line.state, named, next) });
        }
        taken
    }

    /// Asks the table whether a directory entry takes this step with this one action, and shows its row.
    fn take_home(
        &mut self,
        page: PageIndex,
        mut entry: home::Home,
        event: HomeEvent,
        next: &home::Home,
        action: &HomeAction,
    ) {
        let parameters = self.ctx.home_parameters(page);
        let (node, observer) = (self.ctx.node, &mut self.ctx.observer);
        let actions = home::step_observed(&mut entry, &parameters, event, &mut |state, event, next| {
            if let Some(observe) = observer {
                observe(Row { page: page.0, node, taken: Taken::Home(state, event, next) });
            }
        })
        .expect("a step of the fast path");
        assert_eq!((&entry, &actions[..]), (next, std::slice::from_ref(action)), "page {page}");
    }
}
