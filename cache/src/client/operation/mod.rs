//! A get or put of any length as a state machine: what a blocking call drives in one go and a handle in steps.
//!
//! An operation goes through its pages in order. Hits are copied at once; misses are asked of the agent in windows of
//! neighbouring pages, two windows at a time, so that the second arrives while the first is copied. Puts that miss are
//! posted with their data ([`crate::request`]). Pages served in place by their home are read and written there, many at a time.

mod landing;

use super::own::{Brought, IoMode, OWN_TIMES, PAGES_TO_A_LOOK, ReadId};
use super::remote::RemoteState;
use super::{CacheError, Core};
use crate::error::PAGE_UNKNOWN;
use crate::page::{PageInSegment, PageIndex};
use crate::partition::Partition;
use crate::pool::{Attempt, Page, PageState, WaitId, WaitStatus};
use crate::request::{InPlace, Pieces, Request};
pub(super) use landing::Buffers;
use landing::{Asked, First};
use smallvec::smallvec;
use std::collections::VecDeque;
use vgas_shm::copy::copy;

/// Most bytes that one window of reads asks for: enough to keep a device and a link busy, little enough that a large
/// get does not flush everybody's pages out of the pool.
const WINDOW_BYTES: u64 = 2 << 20;
/// Most pages of one window: the length of a request's run.
const WINDOW_PAGES: u32 = 64;

/// Most partial puts of one operation that its agent has and has not finished: their bytes lie in the agent's memory.
const POSTED_MAX: u32 = 64;

/// Most pieces of one operation that its home has been asked to read or write in place and has not answered: a page each at
/// most. One at a time, an operation would take as long as so many messages there and back.
const REMOTE_MAX: usize = 32;

/// Pieces of a page are got together, with what lies between them, as long as that is no more than so many bytes, or than so
/// many times what is wanted.
const SPARSE_BYTES: usize = 4096;
const SPARSE_TIMES: usize = 4;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// From the segment to this address.
    Get(*mut u8),
    /// From this address to the segment.
    Put(*const u8),
}

/// A run of pages that was asked for.
#[derive(Debug)]
struct Window {
    /// Number in the segment of the first page that was not asked for any more.
    end: PageInSegment,
    awaited: Awaited,
}

/// Who brings it.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    /// The agent.
    Agent(WaitId),
    /// This rank.
    Own(ReadId),
}

impl Awaited {
    fn status(self, client: &Core) -> WaitStatus {
        match self {
            Awaited::Agent(wait) => client.pool.wait_status(wait),
            // What could not be read is missed once more.
            Awaited::Own(read) if client.own.has_ended(client, read) => WaitStatus::Done,
            Awaited::Own(_) => WaitStatus::Pending(1),
        }
    }

    fn end(self, client: &Core) {
        if let Awaited::Agent(wait) = self {
            client.pool.end_wait(wait);
        }
    }
}

/// A part of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) bytes: usize,
    pub(super) way: Way,
}

/// One get or put in flight.
#[derive(Debug)]
pub(super) struct Operation {
    partition: Partition,
    way: Way,
    /// Next byte of the segment.
    offset: u64,
    /// First byte behind.
    end: u64,
    /// Bytes of all of it; 0 of many pieces.
    total: u64,
    windows: VecDeque<Window>,
    /// Most pages of the next window: one after a page was gone before it was copied, then more again. Windows that are
    /// larger than what the pool has to spare would push each other out for ever.
    pages_max: u32,
    /// Everything posted by a put.
    posted: Option<WaitId>,
    /// A home did not do what was asked of it in place: from here on pages are got.
    declined: bool,
    /// What homes were asked to do in place, in this order.
    remote: VecDeque<Asked>,
    /// What comes before anything else: nothing, nearly always.
    pub(super) first: Option<Box<First>>,
    /// What follows when `end` is reached, the next at the end: the pieces of an operation of many, and what homes declined.
    then: Vec<Piece>,
    /// The agent has the first bytes of a partial page, and the others follow as hits: not before it is done.
    awaits_posted: bool,
    /// The agent has been asked for a free frame.
    room: Option<WaitId>,
    /// When the local bytes lie in this rank's own segment: a page, through which everything goes (rule 3 of the client).
    bounce: Option<Box<[u8]>>,
    /// Whether the caller waits for this and nothing else.
    io_mode: IoMode,
    /// How often pages that this rank has brought in may be gone before they are used, until the agent is asked, who keeps
    /// them for a while.
    own_left: u8,
    /// Where this rank brings in what a put does not write.
    own_read: Option<ReadId>,
}

// SAFETY: rule 1 of the client: the addresses belong to the caller, who keeps them valid until the operation has ended;
// which thread touches them in the meantime makes no difference.
unsafe impl Send for Operation {}

impl Operation {
    pub(super) fn is_put(&self) -> bool {
        matches!(self.way, Way::Put(_))
    }

    pub(super) fn new(
        partition: Partition,
        Piece { offset, bytes, way }: Piece,
        bounce: Option<Box<[u8]>>,
        io_mode: IoMode,
    ) -> Self {
        let end = offset + bytes as u64;
        Self {
            partition,
            way,
            offset,
            end,
            total: bytes as u64,
            windows: VecDeque::new(),
            pages_max: WINDOW_PAGES,
            posted: None,
            declined: false,
            remote: VecDeque::new(),
            first: None,
            then: Vec::new(),
            awaits_posted: false,
            room: None,
            bounce,
            io_mode,
            own_left: OWN_TIMES,
            own_read: None,
        }
    }

    /// One of many pieces, all the same way; they are taken in this order.
    pub(super) fn of_pieces(partition: Partition, mut pieces: Vec<Piece>, bounce: Option<Box<[u8]>>) -> Self {
        pieces.reverse();
        let way = pieces.last().map_or(Way::Put(std::ptr::null()), |piece| piece.way);
        let nothing = Piece { offset: 0, bytes: 0, way };
        Self { then: pieces, ..Self::new(partition, nothing, bounce, IoMode::NonBlocking) }
    }

    /// Goes on as far as possible without waiting. True: all bytes are where they belong.
    ///
    /// # Safety
    /// Rule 1 of [`super`]: the local bytes are valid.
    pub(super) unsafe fn advance(&mut self, client: &Core) -> Result<bool, CacheError> {
        if self.first.as_ref().is_none_or(|first| first.failed.is_none()) {
            // SAFETY: passed on.
            match unsafe { self.go_through(client) } {
                Err(error) if self.lands() => self.first.get_or_insert_default().failed = Some(error),
                ended => return ended,
            }
        }
        // Rule 4.
        client.endpoint.check_failure()?;
        if !self.drain(client)? {
            return Ok(false);
        }
        self.first.take().and_then(|first| first.failed).map_or(Ok(true), Err)
    }

    /// # Safety
    /// As [`Operation::advance`].
    unsafe fn go_through(&mut self, client: &Core) -> Result<bool, CacheError> {
        loop {
            // SAFETY: passed on.
            unsafe { self.collect(client)? };
            if self.awaits_posted {
                if !self.finish_posted(client)? {
                    return Ok(false);
                }
                self.awaits_posted = false;
            }
            if self.offset == self.end {
                if self.then.is_empty() {
                    return if self.remote.is_empty() { self.finish(client) } else { Ok(false) };
                }
                // SAFETY: passed on.
                if !unsafe { self.go_on(client)? } {
                    return Ok(false);
                }
                continue;
            }
            // SAFETY: passed on.
            let moved = unsafe {
                match self.way {
                    Way::Get(to) => self.advance_get(client, to)?,
                    Way::Put(from) => self.advance_put(client, from)?,
                }
            };
            if !moved {
                return Ok(false);
            }
        }
    }

    /// The read of this rank's own that it waits for, if it waits for nothing else.
    pub(super) fn awaited_read(&self) -> Option<ReadId> {
        match self.windows.front() {
            Some(Window { awaited: Awaited::Own(read), .. }) if self.remote.is_empty() => Some(*read),
            _ => None,
        }
    }

    /// Gives back what is held in shared tables; called when an operation ends early.
    pub(super) fn abandon(&mut self, client: &Core) {
        for window in self.windows.drain(..) {
            window.awaited.end(client);
        }
        for wait in [self.posted.take(), self.room.take()].into_iter().flatten() {
            client.pool.end_wait(wait);
        }
        self.forget_asked(client);
    }

    /// Whether bytes may land for it.
    fn lands(&self) -> bool {
        self.has_opened() || self.remote.iter().any(|asked| asked.lands)
    }

    pub(super) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Bytes of the present piece that nobody was asked for.
    pub(super) fn left(&self) -> u64 {
        self.end - self.offset
    }

    /// Pages of the present piece that lie behind the one it has come to.
    fn pages_left(&self) -> u64 {
        self.left().div_ceil(self.page_bytes() as u64).saturating_sub(1)
    }

    /// Whether its bytes lie in this rank's own segment.
    pub(super) fn bounces(&self) -> bool {
        self.bounce.is_some()
    }

    /// So many of the bytes that come next.
    pub(super) fn present_piece(&self, bytes: usize) -> Piece {
        Piece { offset: self.offset, bytes, way: self.way }
    }

    /// How many questions homes have not answered.
    pub(super) fn asked_count(&self) -> usize {
        self.remote.len()
    }

    pub(super) fn first_asked(&self) -> Option<&Asked> {
        self.remote.front()
    }

    pub(super) fn pop_asked(&mut self) -> Option<Asked> {
        self.remote.pop_front()
    }

    pub(super) fn push_asked(&mut self, asked: Asked) {
        self.remote.push_back(asked);
    }

    /// Page in the partition, first byte in it, and bytes up to its end or the operation's.
    fn piece(&self) -> (PageInSegment, usize, usize) {
        let page_bytes = self.page_bytes();
        let in_page = self.offset as usize & (page_bytes - 1);
        let bytes = (page_bytes - in_page).min((self.end - self.offset) as usize);
        (self.in_segment(self.offset), in_page, bytes)
    }

    fn page_bytes(&self) -> usize {
        self.partition.size.bytes() as usize
    }

    fn shift(&self) -> u32 {
        self.partition.size.shift()
    }

    /// The page of the partition that a byte of it is in.
    fn in_segment(&self, offset: u64) -> PageInSegment {
        PageInSegment(offset >> self.shift())
    }

    /// The number of a page of the partition.
    fn index(&self, page: PageInSegment) -> PageIndex {
        self.partition.first + page
    }

    /// The same, as the pool wants it.
    fn page(&self, number: PageIndex) -> Page {
        Page { number, size: self.partition.size }
    }

    /// Most bytes that one message may ask for in place.
    fn in_place_max(&self, client: &Core) -> usize {
        client.medium_max.min(self.page_bytes())
    }

    /// Of so many bytes from there on, how many one message asks for: no aligned word is divided.
    fn in_one_message(&self, client: &Core, in_page: usize, bytes: usize) -> usize {
        let most = self.in_place_max(client);
        if bytes <= most { bytes } else { most - (in_page + most) % size_of::<u64>() }
    }

    pub(super) fn step(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.own_left = OWN_TIMES;
        // SAFETY: rule 1: the operation covers `end - offset` further bytes, so the address stays inside or one behind.
        unsafe {
            match &mut self.way {
                Way::Get(to) => *to = to.add(bytes),
                Way::Put(from) => *from = from.add(bytes),
            }
        }
    }

    /// # Safety
    /// As [`Operation::advance`].
    unsafe fn advance_get(&mut self, client: &Core, to: *mut u8) -> Result<bool, CacheError> {
        let (page, in_page, bytes) = self.piece();
        if let Some(window) = self.windows.front() {
            match window.awaited.status(client) {
                WaitStatus::Pending(_) => return Ok(false),
                WaitStatus::Done => {}
                WaitStatus::Failed { code, detail } => {
                    return Err(client.failed(self.partition.id(), page, code, detail));
                }
            }
        }
        let index = self.index(page);
        if client.stays_at_home(&self.partition) {
            let (offset, bytes) = (in_page as u32, self.in_one_message(client, in_page, bytes));
            if self.may_land(client, bytes) {
                // SAFETY: passed on.
                if let Some(moved) = unsafe { self.fetch(client, to) }? {
                    return Ok(moved);
                }
            }
            let wanted = bytes as u32;
            return self.ask_home(client, bytes, &[], |number| InPlace::Read {
                page: index,
                offset,
                bytes: wanted,
                number,
            });
        }
        // Of what is got once through a small cache, the pages that were read are to leave before those that were not.
        let is_own = matches!(self.windows.front(), Some(Window { awaited: Awaited::Own(_), .. }));
        let is_streamed =
            is_own && self.total >> self.shift() > client.pool.transfer_frames(self.partition.size).into();
        let brought = if is_streamed { client.pool.last_use(index) } else { None };
        let into = self.bounce.as_mut().map_or(to, |bounce| bounce.as_mut_ptr());
        // SAFETY: rules 1 and 3; a bounce has room for a page.
        match unsafe { client.pool.try_get(self.page(index), in_page as u32, into, bytes as u32) } {
            hit @ (Attempt::Hit | Attempt::HitNotify) => {
                if hit == Attempt::HitNotify {
                    client.hint(index);
                }
                brought.into_iter().for_each(|brought| client.pool.set_last_use(brought));
                if let Some(Window { awaited: Awaited::Agent(_), .. }) = self.windows.front() {
                    client.pool.taken(index);
                }
                if into != to {
                    // SAFETY: rule 1; the page is not in use any more.
                    unsafe { copy(into, to, bytes) };
                }
                self.step(bytes);
                if self.windows.front().is_some_and(|window| page + 1 >= window.end) {
                    let window = self.windows.pop_front().expect("just seen");
                    window.awaited.end(client);
                    self.pages_max = (self.pages_max * 2).min(WINDOW_PAGES);
                    // Keep a second window on its way while this thread copies the first.
                    if let Some(last) = self.windows.back() {
                        let from = last.end;
                        self.ask(client, from)?;
                    }
                }
                Ok(true)
            }
            Attempt::Miss(entry) if entry.state() == PageState::InPlace => {
                let bytes = self.in_one_message(client, in_page, bytes);
                let (offset, bytes32) = (in_page as u32, bytes as u32);
                self.ask_home(client, bytes, &[], |number| InPlace::Get {
                    page: index,
                    offset,
                    bytes: bytes32,
                    number,
                })
            }
            Attempt::Miss(_) if self.wants_part(client, index) => {
                let (offset, bytes32) = (in_page as u32, bytes as u32);
                let asked = self.ask_home(client, bytes, &[], |number| InPlace::Part {
                    page: index,
                    offset,
                    bytes: bytes32,
                    number,
                })?;
                if asked {
                    client.part_reads.remark(index);
                }
                Ok(asked)
            }
            Attempt::Miss(_) => {
                // Arrived and already gone again, or never asked for: in both cases ask from here.
                if !self.windows.is_empty() {
                    self.pages_max = 1;
                }
                for window in self.windows.drain(..) {
                    window.awaited.end(client);
                }
                let asked = self.ask(client, page)?;
                if asked
                    && self.pages_max > 1
                    && let Some(end) = self.windows.back().map(|window| window.end)
                {
                    self.ask(client, end)?;
                }
                Ok(asked)
            }
        }
    }

    /// Whether the bytes that are left had better be read where the page is than have it come.
    fn wants_part(&self, client: &Core, index: PageIndex) -> bool {
        let part_max = u64::from(client.parts.of(self.partition.size));
        self.end - self.offset <= part_max.min(client.medium_max as u64)
            && self.windows.is_empty()
            && !self.declined
            && !client.part_reads.knows(index)
    }

    /// Asks for a window that begins at a page of the segment. False: no room to ask now.
    fn ask(&mut self, client: &Core, page: PageInSegment) -> Result<bool, CacheError> {
        let last = self.in_segment(self.end - 1);
        if page > last || self.windows.len() >= 2 {
            return Ok(false);
        }
        let window_max = (client.window_bytes_max >> self.shift()).max(1);
        let most = (WINDOW_BYTES >> self.shift()).clamp(1, u64::from(self.pages_max).min(window_max));
        let count = (last - page + 1).min(most) as u32;
        if self.own_left > 0 {
            let is_all = self.in_segment(self.offset) == page && u64::from(count) == last - page + 1;
            let io_mode = if is_all { self.io_mode } else { IoMode::NonBlocking };
            let (first, end) = (self.index(page), self.index(last) + 1);
            match client.own.bring(client, &self.partition, first, u64::from(count), end, io_mode) {
                Brought::Here => {
                    self.own_left -= 1;
                    return Ok(true);
                }
                Brought::Reading(read, pages) => {
                    self.own_left -= 1;
                    let end = page + pages.min(u64::from(count));
                    self.windows.push_back(Window { end, awaited: Awaited::Own(read) });
                    return Ok(true);
                }
                Brought::No => {}
            }
        }
        let Some(wait) = client.pool.begin_wait(count) else { return Ok(false) };
        let more = u32::try_from(last - page + 1 - u64::from(count)).unwrap_or(u32::MAX);
        let request = Request::Read { page: self.index(page), count, more, wait };
        if !client.try_ask(request, &[])? {
            client.pool.take_back_parts(wait, count);
            client.pool.end_wait(wait);
            return Ok(false);
        }
        client.part_reads.comes_whole(self.index(page + u64::from(count - 1)));
        self.windows.push_back(Window { end: page + u64::from(count), awaited: Awaited::Agent(wait) });
        Ok(true)
    }

    /// # Safety
    /// As [`Operation::advance`].
    unsafe fn advance_put(&mut self, client: &Core, from: *const u8) -> Result<bool, CacheError> {
        let (page, in_page, bytes) = self.piece();
        let index = self.index(page);
        let from = match &mut self.bounce {
            Some(bounce) => {
                // SAFETY: rule 1; a bounce has room for a page.
                unsafe { copy(from, bounce.as_mut_ptr(), bytes) };
                bounce.as_ptr()
            }
            None => from,
        };
        if client.stays_at_home(&self.partition) {
            let bytes = self.in_one_message(client, in_page, bytes);
            // SAFETY: rule 1: these bytes are the caller's, valid and not written while the operation runs.
            let data = unsafe { std::slice::from_raw_parts(from, bytes) };
            let offset = in_page as u32;
            return self.ask_home(client, bytes, data, |number| InPlace::Write {
                page: index,
                offset,
                number,
            });
        }
        // SAFETY: rules 1 and 3.
        let entry = match unsafe { client.pool.try_put(self.page(index), in_page as u32, from, bytes as u32) }
        {
            hit @ (Attempt::Hit | Attempt::HitNotify) => {
                if hit == Attempt::HitNotify {
                    client.hint(index);
                }
                self.step(bytes);
                return Ok(true);
            }
            Attempt::Miss(entry) => entry,
        };
        if entry.state() == PageState::InPlace {
            let bytes = self.in_one_message(client, in_page, bytes);
            // SAFETY: rule 1: these bytes are the caller's, valid and not written while the operation runs.
            let data = unsafe { std::slice::from_raw_parts(from, bytes) };
            let offset = in_page as u32;
            return self.ask_home(client, bytes, data, |number| InPlace::Put { page: index, offset, number });
        }
        if entry.state().is_claimable() && self.own_left > 0 {
            // SAFETY: passed on.
            if let Some(moved) = unsafe { self.put_own(client, index, bytes, from) } {
                return Ok(moved);
            }
        }
        if bytes == self.page_bytes() && client.whole_page_put {
            // SAFETY: passed on.
            return unsafe { self.post_frame(client, index, from) };
        }
        // Whoever waits is woken when all of them are finished.
        if let Some(posted) = self.posted
            && matches!(client.pool.wait_status(posted), WaitStatus::Pending(parts) if parts >= POSTED_MAX)
        {
            return Ok(false);
        }
        let first = self.in_one_message(client, in_page, bytes);
        let Some(wait) = self.begin_part(client) else { return Ok(false) };
        // SAFETY: as above.
        let data = unsafe { std::slice::from_raw_parts(from, first) };
        if !client.try_ask(Request::Put { page: index, offset: in_page as u32, wait }, data)? {
            client.pool.take_back_parts(wait, 1);
            return Ok(false);
        }
        self.step(first);
        if first < bytes {
            self.awaits_posted = true;
        }
        Ok(true)
    }

    /// A put into a page that nobody has: this rank brings it in. None: that cannot be.
    ///
    /// # Safety
    /// As [`Operation::advance`].
    unsafe fn put_own(
        &mut self,
        client: &Core,
        index: PageIndex,
        bytes: usize,
        from: *const u8,
    ) -> Option<bool> {
        if let Some(read) = self.own_read {
            if !client.own.has_ended(client, read) {
                return Some(false);
            }
            self.own_read = None;
        }
        if bytes == self.page_bytes() && client.whole_page_put {
            // SAFETY: rule 1 for the source; rule 3.
            if !unsafe { client.own.put_page(client, &self.partition, index, from, self.pages_left()) } {
                return None;
            }
            self.step(bytes);
            return Some(true);
        }
        if !self.then.is_empty() {
            // Many pieces are many pages: the agent reads them at once.
            return None;
        }
        self.own_left -= 1;
        match client.own.bring(client, &self.partition, index, 1, index + 1, self.io_mode) {
            Brought::Here => Some(true),
            Brought::Reading(read, _) => {
                self.own_read = Some(read);
                Some(false)
            }
            Brought::No => None,
        }
    }

    /// Fills a free frame and hands it to the agent as the page's new content: nothing is read.
    ///
    /// # Safety
    /// As [`Operation::advance`].
    unsafe fn post_frame(
        &mut self,
        client: &Core,
        index: PageIndex,
        from: *const u8,
    ) -> Result<bool, CacheError> {
        let staged = client.pool.stage(self.partition.size);
        if staged.is_none() || self.pages_left().is_multiple_of(PAGES_TO_A_LOOK) {
            client.look_after_frames(self.partition.size, self.pages_left());
        }
        let Some(mut frame) = staged else {
            return self.ask_for_room(client, index);
        };
        if let Some(wait) = self.room.take() {
            client.pool.end_wait(wait);
        }
        let Some(wait) = self.begin_part(client) else { return Ok(false) };
        // SAFETY: rule 1 for the source.
        unsafe { frame.write(0, from, self.partition.size.bytes()) };
        let request = Request::PutFrame { page: index, frame: frame.id(), wait };
        if !client.try_ask(request, &[])? {
            client.pool.take_back_parts(wait, 1);
            return Ok(false);
        }
        // The agent has it now.
        let _ = frame.into_id();
        self.step(self.page_bytes());
        Ok(true)
    }

    /// Asks the agent for a free frame for this page, once. True: there was one just now.
    fn ask_for_room(&mut self, client: &Core, page: PageIndex) -> Result<bool, CacheError> {
        let Some(wait) = self.room else {
            let Some(wait) = client.pool.begin_wait(1) else { return Ok(false) };
            if client.try_ask(Request::MakeRoom { page, wait }, &[])? {
                self.room = Some(wait);
            } else {
                client.pool.take_back_parts(wait, 1);
                client.pool.end_wait(wait);
            }
            return Ok(false);
        };
        match client.pool.wait_status(wait) {
            WaitStatus::Pending(_) => return Ok(false),
            WaitStatus::Done => {}
            WaitStatus::Failed { code, detail } => {
                let page = self.in_segment(self.offset);
                return Err(client.failed(self.partition.id(), page, code, detail));
            }
        }
        client.pool.end_wait(wait);
        self.room = None;
        Ok(true)
    }

    /// The wait of everything this put posts, with one more part.
    fn begin_part(&mut self, client: &Core) -> Option<WaitId> {
        match self.posted {
            Some(wait) => {
                client.pool.add_parts(wait, 1);
                Some(wait)
            }
            None => {
                self.posted = client.pool.begin_wait(1);
                self.posted
            }
        }
    }

    /// Starts a small operation where the page is, and goes on behind it.
    fn ask_home(
        &mut self,
        client: &Core,
        bytes: usize,
        data: &[u8],
        operation: impl FnOnce(u32) -> InPlace,
    ) -> Result<bool, CacheError> {
        if self.remote.len() >= REMOTE_MAX {
            return Ok(false);
        }
        let Some(number) = client.remote.begin(client.layout.agent_of(client.home(self.partition.owner)))
        else {
            return Ok(false);
        };
        if !client.try_in_place(self.partition.owner, operation(number), data)? {
            client.remote.abandon(number);
            return Ok(false);
        }
        let piece = self.present_piece(bytes);
        self.remote.push_back(Asked::told(number, self.offset, bytes, smallvec![piece]));
        self.step(bytes);
        Ok(true)
    }

    /// Takes the answers of homes, in the order in which they were asked.
    ///
    /// # Safety
    /// As [`Operation::advance`].
    unsafe fn collect(&mut self, client: &Core) -> Result<(), CacheError> {
        while let Some(asked) = self.remote.front() {
            let state = client.remote.finish(asked.number);
            if state == RemoteState::Pending {
                return client.check_awaited(asked.number);
            }
            let Some(mut asked) = self.remote.pop_front() else { return Ok(()) };
            let has_landed = state == RemoteState::Landed || asked.is_filled(&state);
            // SAFETY: rule 4: its home has answered.
            unsafe { asked.landed(client, has_landed) };
            let data = match state {
                RemoteState::Landed | RemoteState::Pending => continue,
                RemoteState::Done(_) if has_landed => continue,
                RemoteState::Done(data) => Some(data),
                // There is no other way to such a page.
                RemoteState::Failed(number, code) if client.stays_at_home(&self.partition) => {
                    let page = self.in_segment(asked.offset) + u64::from(number);
                    return Err(client.failed(self.partition.id(), page, code, PAGE_UNKNOWN));
                }
                // Of anything else the normal way will say why.
                RemoteState::NotInPlace | RemoteState::Failed(..) => None,
            };
            let Some(data) = data else {
                self.declined = true;
                client.pool.forget_in_place(self.partition.page_at(asked.offset));
                asked.pieces.reverse();
                self.then.extend(asked.pieces);
                continue;
            };
            for piece in asked.pieces {
                let Way::Get(to) = piece.way else { continue };
                if data.len() != asked.bytes {
                    return Err(client.short_answer(self.partition.owner, asked.bytes, data.len()));
                }
                let found = &data[(piece.offset - asked.offset) as usize..][..piece.bytes];
                // SAFETY: rule 1: the piece is a part of the operation's bytes.
                unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), to, piece.bytes) };
            }
        }
        Ok(())
    }

    /// Goes on with what follows, when everything before is done or on its way. False: no room to ask now.
    ///
    /// # Safety
    /// As [`Operation::advance`].
    unsafe fn go_on(&mut self, client: &Core) -> Result<bool, CacheError> {
        let count = self.packable(client);
        if count > 1 {
            // SAFETY: passed on.
            return unsafe { self.ask_home_for_many(client, count) };
        }
        if let Some(piece) = self.then.pop() {
            for window in self.windows.drain(..) {
                window.awaited.end(client);
            }
            (self.offset, self.end, self.way) = (piece.offset, piece.offset + piece.bytes as u64, piece.way);
        }
        Ok(true)
    }

    /// How many of the pieces that follow lie in one page that is served in place, and fit into one message.
    fn packable(&self, client: &Core) -> usize {
        let shift = self.shift();
        let page_of = |piece: &Piece| {
            let (first, last) = (piece.offset, piece.offset + piece.bytes.max(1) as u64 - 1);
            (first >> shift == last >> shift).then_some(PageInSegment(first >> shift))
        };
        let [.., second, first] = &self.then[..] else { return 1 };
        let Some(page) = page_of(first).filter(|page| page_of(second) == Some(*page)) else { return 1 };
        if client.pool.peek(self.index(page)).state() != PageState::InPlace {
            return 1;
        }
        let (mut count, mut wanted, mut first, mut end) = (0, 0, u64::MAX, 0);
        for piece in self.then.iter().rev().take_while(|piece| page_of(piece) == Some(page)) {
            (first, end) = (first.min(piece.offset), end.max(piece.offset + piece.bytes as u64));
            let message = if self.is_put() {
                wanted += Pieces::ENTRY_BYTES + piece.bytes;
                wanted
            } else {
                wanted += piece.bytes;
                let span = (end - first) as usize;
                let is_sparse = span > SPARSE_BYTES.max(wanted.saturating_mul(SPARSE_TIMES));
                if is_sparse { usize::MAX } else { span }
            };
            if message > self.in_place_max(client) {
                break;
            }
            count += 1;
        }
        count.max(1)
    }

    /// Asks the home for the next pieces in one message: a get of all bytes from the first to the last of them, or a put of a
    /// list.
    ///
    /// # Safety
    /// As [`Operation::advance`].
    unsafe fn ask_home_for_many(&mut self, client: &Core, count: usize) -> Result<bool, CacheError> {
        if self.remote.len() >= REMOTE_MAX {
            return Ok(false);
        }
        let begin = self.then.len() - count;
        let pieces = &self.then[begin..];
        let offset = pieces.iter().map(|piece| piece.offset).min().unwrap_or_default();
        let end = pieces.iter().map(|piece| piece.offset + piece.bytes as u64).max().unwrap_or_default();
        let page = self.partition.page_at(offset);
        let page_mask = self.partition.size.bytes() - 1;
        let in_page = |offset: u64| offset as u32 & page_mask;
        let bytes = (end - offset) as usize;
        let Some(number) = client.remote.begin(client.layout.agent_of(client.home(self.partition.owner)))
        else {
            return Ok(false);
        };
        let mut message = Vec::new();
        let operation = if self.is_put() {
            for piece in pieces.iter().rev() {
                Pieces::announce(&mut message, in_page(piece.offset), piece.bytes as u32);
            }
            for piece in pieces.iter().rev() {
                let Way::Put(from) = piece.way else { continue };
                let at = message.len();
                message.resize(at + piece.bytes, 0);
                // SAFETY: rule 1; the message was made long enough, and no page is in use (rule 3).
                unsafe { copy(from, message[at..].as_mut_ptr(), piece.bytes) };
            }
            InPlace::PutPieces { page, count: count as u32, number }
        } else {
            InPlace::Get { page, offset: in_page(offset), bytes: bytes as u32, number }
        };
        if !client.try_in_place(self.partition.owner, operation, &message)? {
            client.remote.abandon(number);
            return Ok(false);
        }
        let pieces = self.then.drain(begin..).rev().collect();
        self.remote.push_back(Asked::told(number, offset, bytes, pieces));
        Ok(true)
    }

    fn finish_posted(&mut self, client: &Core) -> Result<bool, CacheError> {
        let Some(wait) = self.posted else { return Ok(true) };
        match client.pool.wait_status(wait) {
            WaitStatus::Pending(_) => Ok(false),
            WaitStatus::Done => {
                client.pool.end_wait(wait);
                self.posted = None;
                Ok(true)
            }
            WaitStatus::Failed { code, detail } => Err(client.failed(
                self.partition.id(),
                self.in_segment(self.offset.saturating_sub(1)),
                code,
                detail,
            )),
        }
    }

    fn finish(&mut self, client: &Core) -> Result<bool, CacheError> {
        for window in self.windows.drain(..) {
            window.awaited.end(client);
        }
        if let Some(wait) = self.room.take() {
            client.pool.end_wait(wait);
        }
        self.finish_posted(client)
    }
}
