//! The hit path as numbers and addresses, for code that is not compiled with this crate: the headers of the C interface
//! do what [`PoolClient::try_get`](super::PoolClient::try_get) and [`PoolClient::try_put`](super::PoolClient::try_put) do, without a call.
//!
//! Such a *mirror* follows the handshake and the rules of [`crate::pool`]. It may leave whatever is not plain to
//! [`PoolClient`](super::PoolClient): a page with a flag, the first write of a page in E, a thread without an own slot, a slot in use. A test
//! of the mirror holds its structures against [`layout`].

use super::hazard::Recent;
use super::layout::SLOT_BYTES;
use super::size::PAGE_BYTES_MIN;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Numbers that a mirror has compiled in: offsets and sizes in bytes, states as they stand in an entry.
pub mod layout {
    use super::super::entry::{PageState, STATE_SHIFT as ENTRY_STATE_SHIFT};
    use super::super::hazard::{Recent, ThreadSlot};
    use std::mem::offset_of;

    /// Of [`super::ThreadRecord`]: the client that the slot belongs to.
    pub const RECORD_CLIENT: usize = offset_of!(Recent, client);
    /// Of [`super::ThreadRecord`]: the slot's address.
    pub const RECORD_SLOT: usize = offset_of!(Recent, slot);
    /// Of a slot: the word of the page in use, its number plus one.
    pub const SLOT_HAZARD: usize = offset_of!(ThreadSlot, hazard);
    /// Of a slot: pages read.
    pub const SLOT_GET_HITS: usize = offset_of!(ThreadSlot, get_hits);
    /// Of a slot: pages written.
    pub const SLOT_PUT_HITS: usize = offset_of!(ThreadSlot, put_hits);
    /// Bits of an entry's word below its state and flags: the frame's number. What stands above them, as one number, is the
    /// state when no flag is set, and larger than any state otherwise.
    pub const STATE_SHIFT: u32 = ENTRY_STATE_SHIFT;
    /// A frame's number is where it begins, in units of 2 to this power bytes.
    pub const UNIT_SHIFT: u32 = super::PAGE_BYTES_MIN.trailing_zeros();
    /// The first state that may be read at once.
    pub const SHARED: u32 = PageState::Shared as u32;
    /// The last such state, and the only one that may be written at once.
    pub const MODIFIED: u32 = PageState::Modified as u32;
}

const _: () = assert!(SLOT_BYTES >= 24, "a slot has the words that a mirror uses");

/// What a thread knows of its slot; [`layout`] has its fields. Belongs to the thread, which alone may look at it, until the
/// thread has ended, and names another client, or none, while the thread has no slot of this one.
#[repr(transparent)]
pub struct ThreadRecord(#[allow(dead_code, reason = "read by the mirror")] Recent);

/// A client's part of the hit path. The addresses are valid as long as the client; what they point to is shared with other
/// processes and only reached by atomic accesses, frames by copying.
#[derive(Clone, Copy, Debug)]
pub struct HitPath {
    /// What a thread's record must name.
    pub client: u64,
    /// The entries of all pages, by page number.
    pub entries: *const AtomicU64,
    /// The first byte of the first frame.
    pub frames: *mut u8,
    /// When each frame was last used, by the frame's number, in ticks of the clock.
    pub stamps: *const AtomicU32,
    /// The clock of replacement.
    pub clock: *const AtomicU32,
    /// Bytes of all frames: what the end of an access is compared with before it is made.
    pub pool_bytes: u64,
    /// Between the announcement and the look at the entry, a barrier of the compiler is enough.
    pub asymmetric: bool,
}
