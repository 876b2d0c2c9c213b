//! Long messages: their payload belongs into a segment.
//!
//! Into a pinned segment the conduit writes it. Into a tiered one only its owner, or a put, can write: a
//! small payload travels in a medium message and is stored by the receiver through its pointers before the
//! handler runs; a large one is put first and then announced. A handler must not wait for a put, so replies
//! carry all of theirs.

use crate::fatal::fail;
use crate::job::{self, Raw as _};
use crate::segment;
use crate::transfer::copied;
use libc::c_void;
use std::sync::atomic::Ordering;
use vgas_rma::message::{Destination, Payload, Source};
use vgas_rma::{Rank, RegionId};
use vgas_shm::copy::copy;

/// The handler index of messages that carry a long payload, or announce one.
pub(crate) const CARRIED: u8 = 127;

/// Address (8), length (8), the client's handler (1), whether the bytes follow (1), and space up to a multiple of 16.
const HEADER_BYTES: usize = 32;

/// A long message that is about to be sent.
pub(crate) enum Long<'a> {
    /// The conduit places the bytes.
    Direct { handler: u8, payload: Payload<'a> },
    /// Header and bytes.
    Carried(Vec<u8>),
    /// The header of bytes that are in place.
    Announced([u8; HEADER_BYTES]),
}

/// Most bytes that are carried.
pub(crate) fn carried_max() -> usize {
    job::joined().runtime.endpoint().medium_bytes_max() - HEADER_BYTES
}

impl Long<'_> {
    /// A request; none when the address or the length is not allowed. May wait.
    pub(crate) unsafe fn request(
        rank: u32,
        handler: u8,
        from: *const c_void,
        bytes: usize,
        to: *const c_void,
    ) -> Option<Self> {
        if !segment::is_tiered() || bytes <= carried_max() {
            // SAFETY: as the caller promised.
            return unsafe { Self::reply(rank, handler, from, bytes, to) };
        }
        let runtime = &job::joined().runtime;
        let offset = segment::offset_of(rank, to, bytes)?;
        if bytes > runtime.endpoint().long_bytes_max() {
            return None;
        }
        // SAFETY: rule 1.
        let put = unsafe { runtime.client().put(Rank(rank), offset, from.cast(), bytes) };
        // The handler is to find the bytes also in a relaxed segment.
        if let Err(error) = put.and_then(|()| runtime.client().flush_relaxed()) {
            fail(error);
        }
        Some(Self::Announced(header(handler, to, bytes, false)))
    }

    /// A reply; never waits.
    pub(crate) unsafe fn reply(
        rank: u32,
        handler: u8,
        from: *const c_void,
        bytes: usize,
        to: *const c_void,
    ) -> Option<Self> {
        let job = job::current()?;
        let offset = segment::offset_of(rank, to, bytes);
        if segment::is_tiered() {
            if (offset.is_none() && bytes > 0) || bytes > carried_max() {
                return None;
            }
            if bytes > 0 && rank == job::vgasi_mynode.load(Ordering::Relaxed) {
                // SAFETY: rules 1 and 5: this rank's segment, which is memory to it.
                unsafe { copy_own(from.cast(), to.cast_mut().cast(), bytes) };
                return Some(Self::Announced(header(handler, to, bytes, false)));
            }
            let mut message = Vec::with_capacity(HEADER_BYTES + bytes);
            message.extend_from_slice(&header(handler, to, bytes, true));
            if bytes > 0 {
                // SAFETY: rule 1.
                message.extend_from_slice(&unsafe { copied(from.cast(), bytes) });
            }
            return Some(Self::Carried(message));
        }
        let Some(offset) = offset else {
            // Without bytes it needs no place; the handler is told the address all the same.
            return (bytes == 0).then(|| Self::Announced(header(handler, to, 0, false)));
        };
        let owner = job.runtime.layout().peer_of_rank(Rank(rank));
        let destination = Destination::Region { region: RegionId::SEGMENT, owner, offset };
        // SAFETY: rule 1.
        let source = unsafe { Source::raw(from.cast(), bytes) };
        Some(Self::Direct { handler, payload: Payload::Long(source, destination) })
    }

    /// The handler that the message is sent to.
    pub(crate) fn handler(&self) -> u8 {
        match self {
            Self::Direct { handler, .. } => *handler,
            Self::Carried(_) | Self::Announced(_) => CARRIED,
        }
    }

    /// Returns the payload to send.
    pub(crate) fn payload(&self) -> Payload<'_> {
        match self {
            Self::Direct { payload, .. } => *payload,
            Self::Carried(message) => Payload::Medium(Source::of(message)),
            Self::Announced(header) => Payload::Medium(Source::of(header)),
        }
    }
}

/// Content of a carried message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried<'a> {
    /// The client's handler.
    pub handler: u8,
    /// Destination of the bytes, as the sender sees it: only the number is known of it.
    pub address: usize,
    /// Number of bytes.
    pub bytes: usize,
    /// They themselves, unless they were put before.
    pub body: Option<&'a [u8]>,
}

impl<'a> Carried<'a> {
    /// None if it is malformed: too short, of another length than its header, or with nonzero bytes in
    /// reserved places.
    pub(crate) fn decode(message: &'a [u8]) -> Option<Self> {
        let (header, body) = message.split_first_chunk::<HEADER_BYTES>()?;
        let (numbers, _) = header.as_chunks::<8>();
        let number = |index: usize| usize::try_from(u64::from_le_bytes(*numbers.get(index)?)).ok();
        let (address, bytes) = (number(0)?, number(1)?);
        let (handler, follows) = (header[16], header[17]);
        let is_whole = body.len() == if follows == 1 { bytes } else { 0 };
        if follows > 1 || !is_whole || header[18..].iter().any(|&byte| byte != 0) {
            return None;
        }
        Some(Self { handler, address, bytes, body: (follows == 1).then_some(body) })
    }
}

pub(crate) fn header(handler: u8, to: *const c_void, bytes: usize, follows: bool) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&(to as u64).to_le_bytes());
    header[8..16].copy_from_slice(&(bytes as u64).to_le_bytes());
    (header[16], header[17]) = (handler, u8::from(follows));
    header
}

/// Copies within this process; the two ranges may overlap.
unsafe fn copy_own(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: as the caller promised.
    unsafe {
        if from.addr().abs_diff(to.addr()) < bytes {
            copy(copied(from, bytes).as_ptr(), to, bytes);
        } else {
            copy(from, to, bytes);
        }
    }
}

/// Takes a message that has arrived apart and stores its bytes: the client's handler, address and length. None when it is
/// malformed, or names memory outside of this rank's segment.
pub(crate) fn place(message: &[u8]) -> Option<(u8, *mut u8, usize)> {
    let Carried { handler, address, bytes, body } = Carried::decode(message)?;
    let address: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
    let own = job::joined().runtime.rank().0;
    if bytes > 0 && segment::offset_of(own, address.cast(), bytes).is_none() {
        return None;
    }
    if let Some(body) = body {
        // SAFETY: rule 5: the range, as long as the body, was found to lie in this rank's segment, which is memory to it.
        unsafe { copy(body.as_ptr(), address, bytes) };
    }
    Some((handler, address, bytes))
}
