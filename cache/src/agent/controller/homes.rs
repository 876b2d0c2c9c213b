//! The directory of the pages whose home is this node: the protocol's entries, and the frames that go with them.

use super::CacheController;
use super::lines::{Deferred, PageControl};
use crate::agent::context::{LocalMessage, NodeContext, Outgoing};
use crate::agent::items::{
    ANSWERS_MAX, FrameWork, InPlaceWork, ParkedRequest, PartGet, StagingRequest, StorageWork,
};
use crate::agent::wire::{Beside, Coherence, Origin};
use crate::error::{CacheError, Failure, FailureKind};
use crate::page::PageIndex;
use crate::pool::{Counter, FrameId, PageState};
use crate::protocol::trace::{Row, Taken};
use crate::protocol::{LineEvent, Message, home};
use crate::request::{InPlace, InPlaceAnswer, Pieces};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use vgas_rma::address::{NodeId, Peer};

/// While so many readers of other pages are being sent theirs, readers of a page are supplied one after the other: links have enough to
/// do, and the node that is the first to have each page must not send it to all.
const SUPPLIED_BESIDE: usize = 4;

/// A page's entry, and what the agent keeps beside it.
#[derive(Debug, Default)]
pub struct HomePage {
    pub home: home::Home,
    /// Who wants the page in which of its frames.
    wanted_in: SmallVec<[(NodeId, Beside); 2]>,
    /// What is being read or written; of the reserve unless it is a frame of this node's own line.
    content: Option<Content>,
    /// Why the NVMe failed, for the requester.
    failure: Option<Failure>,
    cleaning: bool,
}

impl HomePage {
    /// The entry of a page of which this node has the only copy.
    pub fn held_by(node: NodeId) -> Self {
        Self { home: home::Home::held_by(node), ..Self::default() }
    }

    /// The entry of a page that is being read for this node, straight into its frame.
    pub fn reading_for(node: NodeId, frame: FrameId) -> Self {
        let content = Some(Content { frame: Some(frame), staged: false, origin: Origin::Nvm });
        let wanted_in = smallvec![(node, Beside::Frame(frame))];
        Self { home: home::Home::reading_for(node), wanted_in, content, ..Self::default() }
    }

    pub fn directory(&mut self) -> &mut home::Home {
        &mut self.home
    }
}

#[derive(Clone, Copy, Debug)]
struct Content {
    /// None: zeros, which need none.
    frame: Option<FrameId>,
    staged: bool,
    origin: Origin,
}

/// The directory entry of a page that has none; see [`fast_path`](super::fast_path).
fn implied(ctx: &NodeContext, pages: &mut FxHashMap<PageIndex, PageControl>, page: PageIndex) -> HomePage {
    if let Some(control) = pages.get_mut(&page)
        && std::mem::take(&mut control.own_read)
        && let Some(frame) = control.frame
    {
        return HomePage::reading_for(ctx.node, frame);
    }
    match ctx.entry(page).map(|entry| entry.state()) {
        Ok(PageState::Exclusive | PageState::Modified) => HomePage::held_by(ctx.node),
        _ => HomePage::default(),
    }
}

impl CacheController {
    /// The directory entry of a page whose home is here.
    pub fn directory(&mut self, page: PageIndex) -> &mut HomePage {
        self.homes.entry(page).or_insert_with(|| implied(&self.ctx, &mut self.lines.pages, page))
    }

    /// A message of this protocol, from this node or another, to the home or the line here.
    pub fn receive(&mut self, from: NodeId, coherence: Coherence) -> Result<(), CacheError> {
        if coherence.message.is_for_home() {
            if self.ctx.home_of(coherence.page) != Some(self.ctx.node) {
                return Err(self.ctx.violation(from, "spoke to the wrong home"));
            }
            if self.meets_claim(coherence.page)? {
                self.park(coherence.page, ParkedRequest::Home(from, coherence));
                return Ok(());
            }
            self.home_message(from, coherence)
        } else {
            // The answer would seem to be this node's own mistake.
            if from != self.ctx.node && coherence.message.requester() == Some(self.ctx.node) {
                return Err(self.ctx.violation(from, "asks this node to answer itself"));
            }
            let event = LineEvent::Message { from, message: coherence.message };
            self.line_event(coherence.page, Deferred::message(event, coherence.beside, coherence.origin))
        }
    }

    /// A message to the home of a page.
    pub fn home_message(&mut self, from: NodeId, coherence: Coherence) -> Result<(), CacheError> {
        let Coherence { page, message, beside, .. } = coherence;
        let node = self.ctx.node;
        let entry = self.directory(page);
        match message {
            Message::GetShared { .. } | Message::GetModified { .. } => {
                entry.wanted_in.retain(|(node, _)| *node != from);
                entry.wanted_in.push((from, beside));
            }
            // Content from this node's own line: stored from where it is.
            Message::PulledData { dirty: true } if from == node => {
                entry.content = Some(Content { frame: beside.frame(), staged: false, origin: Origin::Cache });
            }
            Message::PulledData { dirty: true }
                if entry.content.is_none_or(|content| !content.staged || content.frame != beside.frame()) =>
            {
                return Err(self.ctx.violation(from, format!("sent page {page} to {beside:?}, unasked")));
            }
            Message::PulledData { dirty: true } => {
                beside.frame().into_iter().for_each(|frame| self.ctx.shards.expected().settled(frame));
            }
            Message::PulledData { dirty: false } => self.unstage(page)?,
            _ => {}
        }
        self.home_event(page, home::HomeEvent::Message { from, message })
    }

    /// A step of the directory, and what follows from it.
    pub fn home_event(&mut self, page: PageIndex, event: home::HomeEvent) -> Result<(), CacheError> {
        let from = match event {
            home::HomeEvent::Message { from, .. } => from,
            _ => self.ctx.node,
        };
        let actions = self
            .step_home(page, event)
            .map_err(|violation| self.ctx.violation(from, format!("page {page}: {violation}")))?;
        tracing::trace!(page = page.0, ?event, ?actions, "home");
        let mut cleaned: SmallVec<[Result<(), Failure>; 1]> = SmallVec::new();
        for action in actions {
            match action {
                home::HomeAction::Send { to, message } => self.home_says(page, to, message)?,
                home::HomeAction::ReadNvm => self.read_for(page)?,
                home::HomeAction::WriteNvm => self.store(page)?,
                // Called with its work by `serve_in_place` alone.
                home::HomeAction::Apply { .. } | home::HomeAction::Decline => {
                    return Err(self
                        .ctx
                        .violation(self.ctx.node, "applied an operation that nobody asked for"));
                }
                home::HomeAction::Recall => self.recall(page)?,
                home::HomeAction::Cleaned => cleaned.push(Ok(())),
                home::HomeAction::NotCleaned => cleaned.push(Err(self.failure_of(page))),
            }
        }
        if !cleaned.is_empty()
            && let Some(entry) = self.homes.get_mut(&page)
        {
            entry.cleaning = false;
        }
        // After everything else: the end of one checkpoint may begin the next, which asks about the same page.
        for result in cleaned {
            self.ctx.page_cleaned(page, result);
        }
        self.forget_home(page)?;
        self.home_has_stepped(page)
    }

    /// One step of the directory entry of a page whose home is here.
    fn step_home(
        &mut self,
        page: PageIndex,
        event: home::HomeEvent,
    ) -> Result<home::HomeActions, crate::protocol::Violation> {
        let mut parameters = self.ctx.home_parameters(page);
        let node = self.ctx.node;
        let entry = self.homes.entry(page).or_insert_with(|| implied(&self.ctx, &mut self.lines.pages, page));
        let observer = &mut self.ctx.observer;
        let home = entry.directory();
        let mut sending = self.sending;
        sending.end(home.suppliers());
        parameters.side_by_side &= sending.all() < SUPPLIED_BESIDE;
        parameters.sending = sending;
        let stepped = home::step_observed(home, &parameters, event, &mut |state, event, next| {
            if let Some(observe) = observer {
                observe(Row { page: page.0, node, taken: Taken::Home(state, event, next) });
            }
        });
        sending.begin(home.suppliers());
        self.sending = sending;
        stepped
    }

    /// Whether the home has nothing in flight for a page that its own node has alone and its owner uses through pointers:
    /// from then on nothing will take the page away.
    pub fn serves_mapped(&self, page: PageIndex) -> bool {
        self.homes.get(&page).is_some_and(|entry| entry.home.serves_in_place(self.ctx.node))
    }

    /// The map need not know what it would be told anyway ([`super::fast_path`]): nobody has the page, or this node alone.
    fn forget_home(&mut self, page: PageIndex) -> Result<(), CacheError> {
        if let Some(entry) = self.homes.get(&page)
            && entry.content.is_none()
            && !entry.cleaning
            && (entry.home.is_idle() || self.is_implied(page, &entry.home)?)
        {
            self.homes.remove(&page);
            return self.settle(page);
        }
        Ok(())
    }

    /// Nothing is in flight for a page in this node's line. Its home, if it is here, had taken its last step before the line had the
    /// page: only now does its entry say no more than the table.
    pub fn rest(&mut self, page: PageIndex) -> Result<(), CacheError> {
        match self.homes.contains_key(&page) {
            true => self.forget_home(page),
            false => self.settle(page),
        }
    }

    /// Whether an entry says no more than that this node alone has the page, which the table says, too.
    fn is_implied(&self, page: PageIndex, home: &home::Home) -> Result<bool, CacheError> {
        let entry = self.ctx.entry(page)?;
        Ok(entry.state().writable()
            && !entry.held()
            && self.quiet(page)
            && home.is_only_held_by(self.ctx.node))
    }

    fn home_says(&mut self, page: PageIndex, to: NodeId, message: Message) -> Result<(), CacheError> {
        let wanted_in = |entry: &HomePage, node: NodeId| {
            entry
                .wanted_in
                .iter()
                .find(|(other, _)| *other == node)
                .map_or(Beside::Nothing, |(_, frame)| *frame)
        };
        let Some(entry) = self.homes.get_mut(&page) else {
            // Whoever waits for what is to be said would wait for ever.
            return Err(self
                .ctx
                .violation(self.ctx.node, format!("has forgotten page {page} in the middle of a step")));
        };
        match message {
            Message::ForwardShared { requester, .. } | Message::ForwardModified { requester, .. } => {
                let beside = wanted_in(entry, requester);
                self.ctx.say(to, Coherence::new(page, message, beside));
            }
            Message::Data { .. } => {
                let beside = wanted_in(entry, to);
                let Some(content) = entry.content.take() else {
                    return Err(self.ctx.violation(self.ctx.node, "supplied a page that was not read"));
                };
                let coherence = Coherence { page, message, beside, origin: content.origin };
                match content.frame {
                    Some(frame) if to != self.ctx.node => self.ctx.say_with_page(to, coherence, frame)?,
                    _ => self.ctx.say(to, coherence),
                }
                if let Some(frame) = content.frame.filter(|_| content.staged) {
                    self.ctx.release(frame)?;
                }
            }
            Message::Pull if to != self.ctx.node => match self.ctx.take_reserve(page) {
                Some(frame) => self.pull_into(page, to, frame),
                None => self.ctx.frames.unstaged.push_back(StagingRequest::Pull(page, to)),
            },
            Message::Failed { .. } | Message::EvictRefused => {
                let beside = Beside::Failure(self.failure_of(page));
                self.ctx.say(to, Coherence::new(page, message, beside));
            }
            _ => self.ctx.say(to, Coherence::plain(page, message)),
        }
        Ok(())
    }

    fn pull_into(&mut self, page: PageIndex, holder: NodeId, frame: FrameId) {
        if let Some(entry) = self.homes.get_mut(&page) {
            entry.content = Some(Content { frame: Some(frame), staged: true, origin: Origin::Cache });
        }
        self.ctx.shards.expected().expect(frame, page, self.ctx.layout.agent_of(holder));
        self.ctx.say(holder, Coherence::new(page, Message::Pull, Beside::Frame(frame)));
    }

    /// Reads the page for whose turn it is: into the frame of a requester of this node, or into one of the reserve.
    fn read_for(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let Some((file, in_file)) = self.ctx.stored_in(page) else { return Ok(()) };
        let Some(entry) = self.homes.get_mut(&page) else { return Ok(()) };
        if !self.ctx.storage.volume.is_written(file, in_file.0) {
            // Never written: zeros, which need neither NVMe nor network.
            entry.content = Some(Content { frame: None, staged: false, origin: Origin::Zeros });
            return self.home_event(page, home::HomeEvent::NvmRead);
        }
        let own = entry.wanted_in.iter().find(|(node, _)| *node == self.ctx.node);
        let own = own.and_then(|(_, beside)| beside.frame());
        match (entry.home.requester() == Some(self.ctx.node), own) {
            (true, Some(frame)) => self.read_into(page, frame, false),
            _ => match self.ctx.take_reserve(page) {
                Some(frame) => self.read_into(page, frame, true),
                None => {
                    self.ctx.frames.unstaged.push_back(StagingRequest::Read(page));
                    Ok(())
                }
            },
        }
    }

    fn read_into(&mut self, page: PageIndex, frame: FrameId, staged: bool) -> Result<(), CacheError> {
        if let Some(entry) = self.homes.get_mut(&page) {
            entry.content = Some(Content { frame: Some(frame), staged, origin: Origin::Nvm });
        }
        self.ctx.collect_read(page, frame);
        Ok(())
    }

    /// Frames of the reserve for those who wait for one.
    pub fn feed_unstaged(&mut self) -> Result<(), CacheError> {
        for _ in 0..self.ctx.frames.unstaged.len() {
            let Some(staging) = self.ctx.frames.unstaged.pop_front() else { break };
            let Some(frame) = self.ctx.take_reserve(staging.page()) else {
                self.ctx.frames.unstaged.push_back(staging);
                continue;
            };
            match staging {
                StagingRequest::Read(page) => self.read_into(page, frame, true)?,
                StagingRequest::Pull(page, holder) => self.pull_into(page, holder, frame),
                StagingRequest::Copy(page) => {
                    self.ctx.release(frame)?;
                    // It may have been unmapped since.
                    if !self.clean(page)? {
                        self.ctx.page_cleaned(page, Ok(()));
                    }
                }
            }
        }
        Ok(())
    }

    fn unstage(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let content = self.homes.get_mut(&page).and_then(|entry| entry.content.take());
        match content {
            Some(Content { frame: Some(frame), staged: true, .. }) => self.ctx.release(frame),
            _ => Ok(()),
        }
    }

    /// Writes what was pulled.
    fn store(&mut self, page: PageIndex) -> Result<(), CacheError> {
        let content = self.homes.get(&page).and_then(|entry| entry.content);
        let Some(frame) = content.and_then(|content| content.frame) else {
            return Err(self.ctx.violation(self.ctx.node, "stored a page that did not come"));
        };
        if self.ctx.is_withdrawn(page) {
            return self.stored(page, StorageWork::Write(page), Ok(()));
        }
        self.ctx.count(Counter::WriteBacks, 1);
        self.ctx.collect_write(page, frame);
        Ok(())
    }

    /// The NVMe has done, or not, what [`home::HomeAction`] asked for.
    pub fn stored(
        &mut self,
        page: PageIndex,
        work: StorageWork,
        result: Result<(), Failure>,
    ) -> Result<(), CacheError> {
        if let StorageWork::Read(_) = work {
            if self.own_read_done(page, result)? {
                return Ok(());
            }
            self.directory(page);
        }
        let event = match (work, result) {
            (StorageWork::Read(_), Ok(())) => home::HomeEvent::NvmRead,
            (StorageWork::Read(_), Err(failure)) => {
                if let Some(entry) = self.homes.get_mut(&page) {
                    entry.failure = Some(failure);
                }
                self.unstage(page)?;
                home::HomeEvent::NvmReadFailed
            }
            (_, Ok(())) => {
                self.unstage(page)?;
                home::HomeEvent::NvmWritten
            }
            (_, Err(failure)) => {
                if let Some(entry) = self.homes.get_mut(&page) {
                    entry.failure = Some(failure);
                }
                self.unstage(page)?;
                home::HomeEvent::NvmWriteFailed
            }
        };
        self.home_event(page, event)
    }

    /// Why the NVMe failed; asked once, by whoever is told.
    fn failure_of(&mut self, page: PageIndex) -> Failure {
        self.homes.get_mut(&page).and_then(|entry| entry.failure.take()).unwrap_or(Failure {
            kind: FailureKind::Device,
            errno: None,
            node: Some(self.ctx.node),
        })
    }

    /// The home wants the page to itself, to serve it in place: its node asks for it like one of its ranks.
    fn recall(&mut self, page: PageIndex) -> Result<(), CacheError> {
        if self.quiet(page) {
            self.own_for_home(page)?;
        }
        Ok(())
    }

    /// A small operation of a rank (or agent) on another node.
    pub fn serve_in_place(
        &mut self,
        from: Peer,
        page: PageIndex,
        operation: InPlace,
        data: &[u8],
    ) -> Result<(), CacheError> {
        if self.ctx.is_gone_here(page) {
            return self.ctx.decline_gone(from, operation);
        }
        let page_bytes = u64::from(self.ctx.size_of(page).bytes());
        let (offset, bytes, number, write) = match operation {
            InPlace::Get { offset, bytes, number, .. } => (offset, u64::from(bytes), number, false),
            InPlace::Put { offset, number, .. } => (offset, data.len() as u64, number, true),
            InPlace::PutPieces { count, number, .. } => match Pieces::read(data, count, page_bytes) {
                Some(_) => (0, page_bytes, number, true),
                None => {
                    return Err(CacheError::Protocol {
                        who: self.ctx.layout.describe(from),
                        what: format!("sent a malformed list of {count} pieces of page {page}"),
                    });
                }
            },
            InPlace::Part { page, offset, bytes, number } => {
                return self.serve_part(from, PartGet { page, offset, bytes, number });
            }
            // Those of a partition, and gets of many pages, do not come here.
            InPlace::Fetch { .. } | InPlace::Partition { .. } => {
                return Err(self.ctx.violation(self.ctx.node, "serves in place what is not of one page"));
            }
            InPlace::Update { count, number, .. } => return self.serve_updates(from, number, count, data),
            InPlace::Read { page, offset, bytes, number } => {
                return self.serve_work(from, number, page, offset, bytes, FrameWork::Read(bytes));
            }
            InPlace::Write { page, offset, number } => {
                let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
                return self.serve_work(from, number, page, offset, bytes, FrameWork::Write(data.into()));
            }
        };
        if self.ctx.home_of(page) != Some(self.ctx.node) || u64::from(offset) + bytes > page_bytes {
            return Err(CacheError::Protocol {
                who: self.ctx.layout.describe(from),
                what: format!("asked for {bytes} bytes at {offset} of page {page} in place"),
            });
        }
        if self.ctx.outbox.waiting_for(from) >= ANSWERS_MAX {
            return Err(CacheError::Protocol {
                who: self.ctx.layout.describe(from),
                what: "asks and does not take its answers".into(),
            });
        }
        if self.meets_claim(page)? {
            self.park(page, ParkedRequest::InPlace(from, operation, data.into()));
            return Ok(());
        }
        let node = self.ctx.layout.node_of_peer(from);
        let event = home::HomeEvent::InPlace { from: node, write };
        let actions = self.step_home(page, event).map_err(|violation| CacheError::Protocol {
            who: self.ctx.layout.describe(from),
            what: violation.to_string(),
        })?;
        let work = InPlaceWork { from, operation, data: data.into() };
        let mut work = Some(work);
        for action in actions {
            match (action, work.take()) {
                (home::HomeAction::Apply { write }, Some(work)) => {
                    self.ctx.local.push_back(LocalMessage::Apply { page, write, work });
                }
                (home::HomeAction::Decline, Some(_)) => {
                    let words = InPlaceAnswer::NotInPlace.encode(number);
                    self.ctx.outbox.push(from, Outgoing::Answer { words, bytes: Vec::new() });
                }
                (home::HomeAction::Send { to, message }, kept) => {
                    work = kept;
                    self.home_says(page, to, message)?;
                }
                (_, kept) => work = kept,
            }
        }
        self.forget_home(page)
    }

    /// Makes NVMe agree with what is cached of a page, wherever it is. False: it does already.
    pub fn clean(&mut self, page: PageIndex) -> Result<bool, CacheError> {
        self.know(page)?;
        // Its owner has only loaded from it.
        if self.is_mapped(page) && self.ctx.entry(page)?.state() == PageState::Exclusive {
            return Ok(false);
        }
        if self.store_copy(page)? {
            return Ok(true);
        }
        if !self.homes.contains_key(&page) && !self.ctx.entry(page)?.state().readable() {
            return Ok(false);
        }
        let entry = self.directory(page);
        if entry.cleaning {
            return Ok(false);
        }
        entry.cleaning = true;
        self.home_event(page, home::HomeEvent::Clean)?;
        Ok(true)
    }

    /// The pages of a segment of which there are copies.
    pub fn known_pages(&self, pages: Range<PageIndex>) -> Vec<PageIndex> {
        let own = self.own_copies().filter(|page| !self.homes.contains_key(page));
        own.chain(self.homes.keys().copied()).filter(|page| pages.contains(page)).collect()
    }
}
