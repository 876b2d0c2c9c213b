//! Large gets of pages that stay at their home: a question for many bytes, which land where the program wants them, several under
//! way at a time.
//!
//! The conduit writes them there by itself (rule 4 of [`crate::client`]). Where that is memory of this rank's own segment, whose pages a
//! system call cannot bring in, they land in a buffer, and are copied from there. Where all nodes share memory, the home copies them
//! from its frames into a piece of this rank's [`region::LANDINGS`], and this rank from there: nothing passes through a message.

use super::{Operation, Piece, Way};
use crate::client::remote::{Expected, RemoteState};
use crate::client::{CacheError, Core};
use crate::request::{FETCH_BYTES_MAX, InPlace};
use smallvec::{SmallVec, smallvec};
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use vgas_shm::Mapping;
use vgas_shm::copy::copy;

/// Questions of one operation that its home has not answered: enough that it always has the next one, and that all of them wait in
/// sockets without filling these.
const FETCHES_MAX: usize = 8;

/// Buffers that are kept for the next gets.
const KEPT_MAX: usize = FETCHES_MAX;

/// Fewer bytes come as a message, where landings are shared memory.
const SHARED_BYTES_MIN: u64 = 4 << 10;

/// Bytes land as far behind a multiple of this as they are in their page: copies are fastest like that.
const ALIGNMENT: u64 = 64;

/// Memory that bytes land in on their way to where they belong.
#[derive(Debug)]
enum Buffer {
    /// Of this process: of [`FETCH_BYTES_MAX`] bytes, and freed by hand.
    Own(ManuallyDrop<Vec<u8>>),
    /// A piece of this rank's landings, by its number, and the first byte in the region.
    Shared(usize, usize),
}

/// Buffers that nothing lands in.
#[derive(Debug)]
pub(in crate::client) struct Buffers {
    kept: Mutex<Vec<ManuallyDrop<Vec<u8>>>>,
    landings: Option<Arc<Mapping>>,
    /// The pieces of the landings.
    free: Mutex<Vec<usize>>,
}

impl Buffers {
    pub(in crate::client) fn new(landings: Option<Arc<Mapping>>) -> Self {
        let pieces = landings.as_ref().map_or(0, |mapping| mapping.bytes() / FETCH_BYTES_MAX as usize);
        Self { kept: Mutex::default(), landings, free: Mutex::new((0..pieces).rev().collect()) }
    }

    fn take(&self) -> Buffer {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Buffer::Own(kept.unwrap_or_else(|| ManuallyDrop::new(vec![0; FETCH_BYTES_MAX as usize])))
    }

    /// Takes a piece of the landings for bytes at this offset of a partition.
    fn take_shared(&self, offset: u64) -> Option<Buffer> {
        let piece = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Buffer::Shared(piece, piece * FETCH_BYTES_MAX as usize + (offset % ALIGNMENT) as usize))
    }

    fn give_back(&self, buffer: Buffer) {
        match buffer {
            Buffer::Own(buffer) => {
                let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() < KEPT_MAX {
                    kept.push(buffer);
                } else {
                    drop(ManuallyDrop::into_inner(buffer));
                }
            }
            Buffer::Shared(piece, _) => {
                self.free.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
            }
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        kept.drain(..).for_each(|buffer| drop(ManuallyDrop::into_inner(buffer)));
    }
}

/// What a home was, or is about to be, asked to do where a page is.
#[derive(Debug)]
pub(in crate::client) struct Asked {
    /// The operation's number at this rank.
    pub number: u32,
    /// The bytes of the answer to a get, of which the pieces may be some.
    pub offset: u64,
    pub bytes: usize,
    pub pieces: SmallVec<[Piece; 1]>,
    /// The answer lands, there or where the first piece belongs.
    pub lands: bool,
    buffer: Option<Buffer>,
}

impl Asked {
    /// Something whose answer comes as a message.
    pub fn told(number: u32, offset: u64, bytes: usize, pieces: SmallVec<[Piece; 1]>) -> Self {
        Self { number, offset, bytes, pieces, lands: false, buffer: None }
    }

    /// Its bytes have landed, or will not: brings them where they belong.
    ///
    /// # Safety
    /// Rule 1 of [`super`]; nothing lands there any more.
    pub unsafe fn landed(&mut self, client: &Core, all_there: bool) {
        let Some(buffer) = self.buffer.take() else { return };
        if let [Piece { way: Way::Get(to), bytes, .. }] = self.pieces[..]
            && all_there
        {
            let from = match (&buffer, &client.buffers.landings) {
                (Buffer::Own(buffer), _) => buffer.as_ptr(),
                (Buffer::Shared(_, at), Some(landings)) => landings.base().wrapping_add(*at).cast_const(),
                (Buffer::Shared(..), None) => unreachable!("pieces are of the landings"),
            };
            // SAFETY: the piece is a part of the operation's bytes, and not longer than the buffer, which landed whole. Of the
            // landings, another process may write them (rule 4 of `shm`).
            unsafe { copy(from, to, bytes) };
        }
        client.buffers.give_back(buffer);
    }

    /// Whether an answer says that the home has filled shared memory.
    pub fn is_filled(&self, answer: &RemoteState) -> bool {
        let is_short = matches!(answer, RemoteState::Done(data) if data.is_empty());
        is_short && matches!(self.buffer, Some(Buffer::Shared(..)))
    }
}

/// What an operation does before anything else.
#[derive(Debug, Default)]
pub(in crate::client) struct First {
    /// Asks its home for this, which lands where the number says: there was no room to ask when the landing was opened.
    pub opened: Option<(Asked, u64)>,
    /// Ends with this, when nothing lands any more.
    pub failed: Option<CacheError>,
}

impl Operation {
    /// Whether to have what is left of the present piece land, of which this page has so many: where that is more than a message
    /// would bring.
    pub(in crate::client) fn may_land(&self, client: &Core, bytes: usize) -> bool {
        let home = client.layout.agent_of(client.home(self.partition().owner));
        let is_long = self.left() > bytes as u64;
        match client.buffers.landings {
            None => is_long && client.endpoint.may_land(home),
            Some(_) => self.left() > SHARED_BYTES_MIN,
        }
    }

    /// Asks the home for as much as one question may, and goes on behind it. False: no room to ask now. None: other gets have all of the
    /// landings, and no answer to this one will tell when they have not.
    ///
    /// # Safety
    /// As [`Operation::advance`].
    pub(in crate::client) unsafe fn fetch(
        &mut self,
        client: &Core,
        to: *mut u8,
    ) -> Result<Option<bool>, CacheError> {
        if !self.has_opened() {
            // So that no aligned word is read in two parts.
            let most = u64::from(FETCH_BYTES_MAX) - self.present_piece(0).offset % ALIGNMENT;
            let bytes = self.left().min(most) as usize;
            // SAFETY: passed on.
            let Some(opened) = (unsafe { self.open_landing(client, to, bytes) }) else {
                let waits_for_others = client.buffers.landings.is_some() && self.asked_count() == 0;
                return Ok((!waits_for_others).then_some(false));
            };
            self.first.get_or_insert_default().opened = Some(opened);
        }
        let Some(bytes) = self.ask_opened(client)? else { return Ok(Some(false)) };
        self.step(bytes);
        Ok(Some(true))
    }

    /// # Safety
    /// As [`Operation::advance`].
    unsafe fn open_landing(&self, client: &Core, to: *mut u8, bytes: usize) -> Option<(Asked, u64)> {
        if self.asked_count() >= FETCHES_MAX {
            return None;
        }
        let home = client.layout.agent_of(client.home(self.partition().owner));
        let piece = self.present_piece(bytes);
        let offset = piece.offset;
        if client.buffers.landings.is_some() {
            let buffer = client.buffers.take_shared(offset)?;
            let Some(number) = client.remote.begin(home) else {
                client.buffers.give_back(buffer);
                return None;
            };
            let at = if let Buffer::Shared(_, at) = buffer { at as u64 } else { 0 };
            let (pieces, buffer) = (smallvec![piece], Some(buffer));
            return Some((Asked { number, offset, bytes, pieces, lands: true, buffer }, at));
        }
        let number = client.remote.begin(home)?;
        let mut buffer = self.bounces().then(|| client.buffers.take());
        let at = match &mut buffer {
            Some(Buffer::Own(buffer)) => buffer.as_mut_ptr(),
            _ => to,
        };
        // SAFETY: rules 1 and 4: the caller's bytes, or a buffer that is long enough, stay until the home has answered.
        let landing = unsafe { client.endpoint.start_landing(home, at, bytes as u64) };
        client.remote.expect(number, Expected { landing, address: at.addr(), bytes });
        let asked = Asked { number, offset, bytes, pieces: smallvec![piece], lands: true, buffer };
        Some((asked, landing.number()))
    }

    /// Whether a landing is open that the home was not asked to fill.
    pub(in crate::client) fn has_opened(&self) -> bool {
        self.first.as_ref().is_some_and(|first| first.opened.is_some())
    }

    /// Sends the question that is ready; for how many bytes, 0 if there is none. Its landing stays open while there is no room (None):
    /// a home that guesses its number may have begun to fill it.
    fn ask_opened(&mut self, client: &Core) -> Result<Option<usize>, CacheError> {
        let Some((asked, landing)) = self.first.as_ref().and_then(|first| first.opened.as_ref()) else {
            return Ok(Some(0));
        };
        let (partition, bytes) = (self.partition(), asked.bytes);
        let page = partition.page_at(asked.offset);
        let offset = (asked.offset & u64::from(partition.size.bytes() - 1)) as u32;
        let question = InPlace::Fetch { page, offset, bytes: bytes as u32, number: asked.number };
        if !client.try_in_place(partition.owner, question, &landing.to_le_bytes())? {
            return Ok(None);
        }
        self.count_as_asked();
        Ok(Some(bytes))
    }

    fn count_as_asked(&mut self) {
        if let Some((asked, _)) = self.first.as_mut().and_then(|first| first.opened.take()) {
            self.push_asked(asked);
        }
    }

    /// Waits, by steps, until nothing lands any more, of an operation that has failed. True: so it is.
    pub(in crate::client) fn drain(&mut self, client: &Core) -> Result<bool, CacheError> {
        if self.ask_opened(client)?.is_none() {
            return Ok(false);
        }
        while let Some(asked) = self.first_asked() {
            if asked.lands && client.remote.finish(asked.number) == RemoteState::Pending {
                return Ok(false);
            }
            if let Some(mut asked) = self.pop_asked() {
                if !asked.lands {
                    client.remote.abandon(asked.number);
                }
                // SAFETY: it was answered; no byte is copied.
                unsafe { asked.landed(client, false) };
            }
        }
        Ok(true)
    }

    /// Forgets what homes were asked. Where bytes could still land, the endpoint has failed.
    pub(in crate::client) fn forget_asked(&mut self, client: &Core) {
        self.count_as_asked();
        while let Some(mut asked) = self.pop_asked() {
            let is_pending = client.remote.finish(asked.number) == RemoteState::Pending;
            if let Some(Buffer::Shared(..)) = asked.buffer
                && is_pending
            {
                // Its home may still fill it: nothing lands there any more.
                asked.buffer = None;
            }
            if let Some(landing) = client.remote.abandon(asked.number).landing {
                if client.endpoint.check_failure().is_ok() {
                    // Nobody can wait here, in a handler: what comes may only find an endpoint that takes nothing.
                    let what = "a get was given up in a handler while its bytes came".into();
                    client.endpoint.fail(vgas_rma::RmaError::Usage(what));
                }
                client.endpoint.end_landing(landing);
            }
            // SAFETY: no message comes in any more; no byte is copied.
            unsafe { asked.landed(client, false) };
        }
    }
}
