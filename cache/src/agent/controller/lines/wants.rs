//! What ranks want of pages, and giving it to them.

use super::*;
use super::{Deferred, PageControl};
use crate::agent::controller::CacheController;
use crate::agent::items::{ParkedRequest, PostedPut, Waiter};
use crate::error::{CacheError, FailureKind};
use crate::page::PageIndex;
use crate::pool::PageState;
use crate::protocol::{Line, LineEvent, line};

impl CacheController {
    pub fn want_own(&mut self, page: PageIndex, waiter: Waiter) -> Result<(), CacheError> {
        if !self.ctx.attached(page) {
            return self.ctx.fail(waiter, page, FailureKind::NoSuchPage.into());
        }
        if self.meets_claim(page)? {
            self.park(page, ParkedRequest::Own(waiter));
            return Ok(());
        }
        self.control(page)?.writers.push(waiter);
        self.pump(page)
    }

    pub fn want_read(&mut self, page: PageIndex, waiter: Waiter) -> Result<(), CacheError> {
        if !self.ctx.attached(page) {
            return self.ctx.fail(waiter, page, FailureKind::NoSuchPage.into());
        }
        if self.meets_claim(page)? {
            self.park(page, ParkedRequest::Read(waiter));
            return Ok(());
        }
        if self.start_own(page, Some(waiter), false)? {
            return Ok(());
        }
        self.control(page)?.readers.push(waiter);
        self.pump(page)
    }

    pub fn want_put(&mut self, page: PageIndex, put: PostedPut) -> Result<(), CacheError> {
        if !self.ctx.attached(page) {
            return self.ctx.put_failed(page, put, FailureKind::NoSuchPage.into());
        }
        if self.meets_claim(page)? {
            self.park(page, ParkedRequest::Put(put));
            return Ok(());
        }
        self.control(page)?.puts.push_back(put);
        self.pump(page)?;
        self.publish_neighbours(page)
    }

    /// The control, made from the table if there is none. A page without one that is held is being evicted
    /// ([`CacheController::evict`]).
    pub fn control(&mut self, page: PageIndex) -> Result<&mut PageControl, CacheError> {
        let entry = self.ctx.entry(page)?;
        Ok(self.lines.pages.entry(page).or_insert_with(|| {
            let mut line = Line::default();
            line.state = state_of(entry);
            let mut control = PageControl { line, ..PageControl::default() };
            if entry.held() && entry.state().readable() {
                control.deferred.push_back(Deferred::local(LineEvent::Replace));
            }
            control
        }))
    }

    /// Asks for a page as the home itself: to serve it in place, or for its owner's pointers.
    pub fn own_for_home(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.control(page)?.recall = true;
        self.pump(page)
    }

    /// Whether a thread of a rank waits for the page to be mapped.
    pub fn waits_to_map(&self, page: PageIndex) -> bool {
        self.lines.pages.get(&page).is_some_and(|control| !control.mappers.is_empty())
    }

    /// Takes the mark of a page on its way, if it has one.
    pub fn take_mark(&mut self, page: PageIndex) -> bool {
        self.lines.pages.get_mut(&page).is_some_and(|control| std::mem::take(&mut control.ahead))
    }

    /// Whether nothing is in flight for a page.
    pub fn quiet(&self, page: PageIndex) -> bool {
        !self.lines.pages.contains_key(&page)
    }

    /// Brings a page in that nobody waits for.
    pub fn fetch(&mut self, page: PageIndex, ahead: bool) -> Result<bool, CacheError> {
        let entry = self.ctx.entry(page)?;
        if let Some(control) = self.lines.pages.get_mut(&page) {
            // On its way already: then it carries the mark.
            control.ahead |= ahead;
            return Ok(false);
        }
        if entry.state().readable() || self.meets_claim(page)? || !self.ctx.attached(page) {
            return Ok(false);
        }
        if self.ctx.entry(page)?.state() != PageState::Invalid {
            return Ok(false);
        }
        if self.start_own(page, None, ahead)? {
            return Ok(true);
        }
        let control = self.control(page)?;
        control.prefetch = true;
        control.ahead = ahead;
        self.pump(page)?;
        Ok(true)
    }

    /// Gives a page's wants what it can, and asks the protocol for the rest.
    pub fn pump(&mut self, page: PageIndex) -> Result<(), CacheError> {
        loop {
            let entry = self.ctx.entry(page)?;
            let Some(control) = self.lines.pages.get_mut(&page) else { return Ok(()) };
            if !control.deferred.is_empty() {
                return Ok(());
            }
            if control.line.stable() {
                control.line.state = state_of(entry);
            }
            if control.line.readable() && (!control.readers.is_empty() || control.prefetch) {
                control.prefetch = false;
                let readers = std::mem::take(&mut control.readers);
                self.ctx.now_readable(entry.frame(), readers)?;
                continue;
            }
            if control.line.readable() && self.apply_reads(page)? {
                continue;
            }
            let Some(control) = self.lines.pages.get(&page) else { return Ok(()) };
            if !control.line.stable() {
                return Ok(());
            }
            let is_absent = control.line.state == line::State::I && !control.puts.is_empty();
            let is_own = is_absent && self.may_read_own(page);
            let Some(control) = self.lines.pages.get_mut(&page) else { return Ok(()) };
            let event = if !control.puts.is_empty() {
                if control.line.writable() {
                    self.apply_puts(page)?;
                    continue;
                }
                if is_absent && control.frame.is_none() {
                    control.overwrite_first();
                }
                control.event_of_puts(is_own)
            } else if !control.readers.is_empty() || control.prefetch {
                LineEvent::Read
            } else if !control.writers.is_empty() || control.recall {
                if control.line.writable() {
                    control.recall = false;
                    let writers = std::mem::take(&mut control.writers);
                    // The home alone needs no more than the only copy: what is put in place then makes it differ from NVMe.
                    if !writers.is_empty() {
                        self.write_silently(page)?;
                        self.ctx.now_readable(entry.frame(), writers)?;
                    }
                    continue;
                }
                LineEvent::Write
            } else if let Some(first) = control.mappers.first() {
                let write = first.write;
                if control.line.writable() {
                    if !self.serves_mapped(page) {
                        // A message that takes the page away is on its way to it, or the home has not heard yet that it
                        // is here. Either will be followed by another look.
                        return Ok(());
                    }
                    let control = self.lines.pages.get_mut(&page);
                    let mappers =
                        control.map(|control| std::mem::take(&mut control.mappers)).unwrap_or_default();
                    if mappers.iter().any(|mapper| mapper.write) {
                        self.write_silently(page)?;
                    }
                    for mapper in mappers {
                        self.map(page, entry.frame(), mapper.id)?;
                    }
                    continue;
                }
                // For loads the only copy will do, and may stay clean; one of several is claimed, and stays clean if all equal NVMe.
                let alone = write || control.line.state != line::State::I;
                if alone { LineEvent::Write } else { LineEvent::Read }
            } else {
                if control.idle() {
                    self.lines.pages.remove(&page);
                    return self.rest(page);
                }
                return Ok(());
            };
            if control.line.state == line::State::I && control.frame.is_none() {
                let frame = self.ctx.take_frame_for(page);
                let Some(control) = self.lines.pages.get_mut(&page) else { return Ok(()) };
                match frame {
                    Some(frame) => {
                        control.frame = Some(frame);
                        self.ctx.shards.somebody_got_a_frame();
                    }
                    None if control.prefetch
                        && control.readers.is_empty()
                        && control.puts.is_empty()
                        && control.mappers.is_empty()
                        && control.writers.is_empty() =>
                    {
                        // Nobody waits for it: not worth an eviction.
                        self.lines.pages.remove(&page);
                        return self.settle(page);
                    }
                    None => {
                        if !control.starved {
                            control.starved = true;
                            self.ctx.frames.starved.push_back(page);
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

    /// No frame can be had for a page that waits for one, because nothing can be evicted.
    pub fn give_up(&mut self, page: PageIndex) -> Result<(), CacheError> {
        if let Some(control) = self.lines.pages.get_mut(&page) {
            control.starved = false;
            if control.line.state == line::State::I && control.frame.is_none() {
                self.line_failed(page, self.ctx.why_no_frame())?;
            }
            self.pump(page)?;
        }
        Ok(())
    }

    /// Tries again for pages that wait for a frame.
    pub fn feed_starved(&mut self) -> Result<bool, CacheError> {
        let mut any = false;
        for _ in 0..self.ctx.frames.starved.len() {
            let Some(page) = self.ctx.frames.starved.pop_front() else { break };
            if self.ctx.free_frames(self.ctx.size_of(page)) == 0 {
                self.ctx.frames.starved.push_back(page);
                continue;
            }
            if let Some(control) = self.lines.pages.get_mut(&page) {
                control.starved = false;
                self.pump(page)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// E becomes M without a message (the ranks do the same by themselves).
    pub fn write_silently(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let Some(control) = self.lines.pages.get_mut(&page) else { return Ok(()) };
        if control.line.state == line::State::E {
            self.step_line(page, Deferred::local(LineEvent::Write))?;
        }
        Ok(())
    }

    /// Does the work in front of the puts that leaves the page as it is, which this node may read. True: there was some.
    fn apply_reads(&mut self, page: PageIndex) -> Result<bool, CacheError> {
        let mut any = false;
        loop {
            let first = self.lines.pages.get(&page).and_then(|control| control.puts.front());
            let Some(PostedPut::Work { offset, work, piece }) = first else { return Ok(any) };
            let span = self.ctx.frame_span(self.ctx.entry(page)?.frame())?;
            let Some(found) = work.apply_unchanging(&span, *offset) else { return Ok(any) };
            let piece = *piece;
            if let Some(control) = self.lines.pages.get_mut(&page) {
                control.puts.pop_front();
            }
            self.ctx.worked(piece, Ok(found));
            any = true;
        }
    }

    /// Applies the posted puts of a page that this node may write, in order. Only a put makes the page differ from NVMe, not the
    /// work before it that reads.
    pub fn apply_puts(&mut self, page: PageIndex) -> Result<(), CacheError> {
        self.apply_reads(page)?;
        if self.lines.pages.get(&page).is_none_or(|control| control.puts.is_empty()) {
            return Ok(());
        }
        self.write_silently(page)?;
        let entry = self.ctx.entry(page)?;
        let span = self.ctx.frame_span(entry.frame())?;
        while let Some(put) = self.lines.pages.get_mut(&page).and_then(|control| control.puts.pop_front()) {
            match put {
                PostedPut::Part { offset, data, waiter } => {
                    span.mapping().write(span.offset() + offset as usize, &data);
                    if let Some(waiter) = waiter {
                        self.ctx.complete(waiter, Ok(()))?;
                    }
                }
                PostedPut::Work { offset, work, piece } => self.work_now(&span, offset, &work, piece),
                PostedPut::Whole { frame, waiter } => {
                    if let Some(frame) = frame {
                        span.copy_from(&self.ctx.frame_span(frame)?);
                        self.ctx.release(frame)?;
                    }
                    self.ctx.complete(waiter, Ok(()))?;
                }
            }
        }
        Ok(())
    }
}
