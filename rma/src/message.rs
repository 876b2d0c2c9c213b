//! Active messages as conduits see them (GASNet specification 1.8, Core API).

use crate::address::{Peer, RegionId};
use crate::conduit::Trusted;
use crate::error::RmaError;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use vgas_shm::Span;

/// Most arguments of an active message.
pub const ARGUMENTS_MAX: usize = 16;

/// The handler of *notes*: requests whose long payload is a block of the receiver's [`RegionId::BLOCKS`]. With two arguments,
/// the block's index (its offset divided by its length) and a number below 256 for the layer above, such a message is short
/// enough for a conduit to send as one write that tells of itself. The layer above registers the handler.
pub const NOTE_HANDLER: u8 = 33;

/// Direction of a message. A request handler may send one reply; a reply handler sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// May be delayed by back-pressure.
    Request,
    /// Must always find room once its request was accepted: so that replies drain and no cycle can form.
    Reply,
}

/// Destination of a long message's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Into a registered region of the receiver. In a [segment](RegionId::is_segment), which others read and
    /// write meanwhile, each aligned word is stored as a whole.
    Region {
        /// The region. On an agent, a [segment](RegionId::is_segment) with `owner` names the part of a rank
        /// of its node, which the agent serves while the rank computes.
        region: RegionId,
        /// The peer that owns the region: the receiver itself, or a rank of the receiving agent's node.
        owner: Peer,
        /// First byte in the region.
        offset: u64,
    },
    /// Into the private memory that the receiver named when it started operation `id` (the answer to a get).
    Operation {
        /// The receiver's own number of the operation.
        id: u64,
        /// First byte, counted from the operation's destination.
        offset: u64,
    },
}

/// Bytes to send, readable for `'a`. An address and not a slice, because others may write them meanwhile when they lie in
/// shared memory: they are copied out with raw copies or by the system, never looked at through a reference.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    address: *const u8,
    bytes: usize,
    contended: bool,
    life: PhantomData<&'a [u8]>,
}

impl<'a> Source<'a> {
    /// Nothing.
    pub const EMPTY: Source<'static> = Source::private(std::ptr::null(), 0);

    /// Private bytes. They outlive it:
    ///
    /// ```compile_fail,E0597
    /// use vgas_rma::message::Source;
    /// let source = {
    ///     let bytes = [1, 2, 3];
    ///     Source::of(&bytes)
    /// };
    /// assert_eq!(source.bytes(), 3);
    /// ```
    pub fn of(bytes: &'a [u8]) -> Self {
        Self::private(bytes.as_ptr(), bytes.len())
    }

    /// Bytes of a mapping.
    pub fn of_span(span: &'a Span) -> Self {
        // SAFETY: the range was checked when the span was made, and stays mapped as long as it lives (rules 2, 3 of `shm`).
        unsafe { Self::raw(span.address(), span.bytes()) }
    }

    /// Bytes that may be shared.
    ///
    /// # Safety
    /// `address` is valid for reads of `bytes` bytes as long as `'a` lasts; or `bytes` is 0. Other threads and processes may
    /// write there meanwhile: what arrives is then any mixture of old and new.
    pub unsafe fn raw(address: *const u8, bytes: usize) -> Self {
        Self::private(address, bytes)
    }

    /// Bytes of a segment, each aligned word of which shall arrive as it was written.
    ///
    /// # Safety
    /// As [`Source::raw`].
    pub unsafe fn contended(address: *const u8, bytes: usize) -> Self {
        Self { contended: true, ..Self::private(address, bytes) }
    }

    const fn private(address: *const u8, bytes: usize) -> Self {
        Self { address, bytes, contended: false, life: PhantomData }
    }

    /// Returns true if a conduit has to [copy](vgas_shm::copy) them before it has the system read them, which
    /// does not keep words whole.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.contended
    }

    /// First byte; anything when there are none.
    #[inline]
    pub fn address(&self) -> *const u8 {
        self.address
    }

    /// Returns their number.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// So many of them, from an offset on.
    ///
    /// # Panics
    /// When that reaches beyond the end.
    pub fn part(&self, offset: usize, bytes: usize) -> Self {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "{bytes} bytes at {offset} of {}", self.bytes);
        Self { address: self.address.wrapping_add(offset), bytes, ..*self }
    }
}

/// Kind and bytes of a message's payload.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// None.
    Short,
    /// Handed to the handler in a buffer of the receiver's.
    Medium(Source<'a>),
    /// Written to its destination before the handler runs.
    Long(Source<'a>, Destination),
}

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Request or reply.
    pub direction: Direction,
    /// Index of the handler at the receiver.
    pub handler: u8,
    /// 0 to 16 arguments.
    pub arguments: &'a [u32],
    /// Payload.
    pub payload: Payload<'a>,
}

/// A message that has arrived, for the time of its delivery.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Its sender (proved, not claimed).
    pub from: Peer,
    /// Request or reply.
    pub direction: Direction,
    /// Index of the handler; checked by the endpoint.
    pub handler: u8,
    /// 0 to 16 arguments.
    pub arguments: &'a [u32],
    /// Payload.
    pub payload: Arrived<'a>,
}

/// The payload of a message that has arrived.
#[derive(Clone, Copy, Debug)]
pub enum Arrived<'a> {
    /// None.
    Short,
    /// The bytes themselves, valid during the delivery.
    Medium(MediumPayload<'a>),
    /// Already at its destination: the address in this process and the length.
    Long(*mut u8, usize),
}

impl<'a> Arrived<'a> {
    /// Returns the bytes of a medium payload in private memory; nothing of the others.
    pub fn medium_bytes(self) -> &'a [u8] {
        match self {
            Self::Medium(bytes) => bytes.as_slice(),
            Self::Short | Self::Long(..) => &[],
        }
    }
}

/// The bytes of a medium message that has arrived.
///
/// They may still lie in memory that this process shares with their sender, which may write there at any time. [`Deref`](std::ops::Deref) and
/// [`MediumPayload::as_slice`] therefore copy such bytes into a private buffer, once a message, when they are first asked for.
/// [`MediumPayload::source`] takes them from where they lie, as the payload of another message.
///
/// ```
/// use vgas_rma::message::MediumPayload;
/// let bytes = MediumPayload::from(&b"abc"[..]);
/// assert_eq!((bytes.len(), &bytes[1..]), (3, &b"bc"[..]));
/// ```
#[derive(Clone, Copy)]
pub struct MediumPayload<'a> {
    address: *mut u8,
    bytes: usize,
    memory: PayloadMemory<'a>,
}

/// The kind of memory in which a payload lies.
#[derive(Clone, Copy)]
enum PayloadMemory<'a> {
    /// Private, and looked at again after the delivery.
    Borrowed,
    /// Private, of this delivery alone.
    Owned,
    /// Shared with the sender; with a buffer for a private copy.
    Shared(&'a PrivateCopy),
}

impl<'a> MediumPayload<'a> {
    /// Bytes in shared memory.
    ///
    /// # Safety
    /// `address` is valid for reads and writes of `bytes` bytes for `'a`, and a multiple of 8. `copy` is used for no other payload during `'a`.
    pub(crate) unsafe fn shared(address: *mut u8, bytes: usize, copy: &'a PrivateCopy) -> Self {
        Self { address, bytes, memory: PayloadMemory::Shared(copy) }
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the bytes in private memory.
    pub fn as_slice(&self) -> &'a [u8] {
        match self.memory {
            // SAFETY: made from a slice that lives for `'a`.
            PayloadMemory::Borrowed | PayloadMemory::Owned => unsafe {
                std::slice::from_raw_parts(self.address, self.bytes)
            },
            // SAFETY: the range is valid for `'a`, and the buffer is this payload's (contract of `shared`).
            PayloadMemory::Shared(copy) => unsafe { copy.fill_once(self.address, self.bytes) },
        }
    }

    /// Returns the bytes as what another message may carry on, without a private copy.
    #[inline]
    pub fn source(&self) -> Source<'a> {
        // SAFETY: valid for `'a`, by all ways in which this is made.
        unsafe { Source::raw(self.address, self.bytes) }
    }

    /// Returns the address of bytes that the handler may write until it returns, a multiple of 8; they have
    /// no other users then. A handler that writes there uses no slice of them. None: others may look at the
    /// bytes later.
    #[inline]
    pub fn in_place(&self) -> Option<*mut u8> {
        match self.memory {
            PayloadMemory::Borrowed => None,
            PayloadMemory::Owned | PayloadMemory::Shared(_) => Some(self.address),
        }
    }
}

impl<'a> From<&'a [u8]> for MediumPayload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { address: bytes.as_ptr().cast_mut(), bytes: bytes.len(), memory: PayloadMemory::Borrowed }
    }
}

/// Bytes that the handler may write, if they begin at a multiple of 8.
impl<'a> From<&'a mut [u8]> for MediumPayload<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        let is_aligned = bytes.as_ptr().addr().is_multiple_of(align_of::<u64>());
        let memory = if is_aligned { PayloadMemory::Owned } else { PayloadMemory::Borrowed };
        Self { address: bytes.as_mut_ptr(), bytes: bytes.len(), memory }
    }
}

impl std::ops::Deref for MediumPayload<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl std::fmt::Debug for MediumPayload<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

/// A buffer for the private copy of one payload at a time.
pub(crate) struct PrivateCopy {
    buffer: UnsafeCell<Box<[u8]>>,
    bytes_max: usize,
    is_filled: Cell<bool>,
}

impl PrivateCopy {
    /// For payloads of at most so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let buffer = UnsafeCell::new(vec![0; bytes_max].into_boxed_slice());
        Self { buffer, bytes_max, is_filled: Cell::new(false) }
    }

    /// Returns the size of the largest payload.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Makes the buffer ready for another payload.
    pub(crate) fn clear(&mut self) {
        self.is_filled.set(false);
    }

    /// Copies the bytes, unless that was done since the last [`PrivateCopy::clear`].
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes, the same at each call between two clears.
    unsafe fn fill_once(&self, from: *const u8, bytes: usize) -> &[u8] {
        assert!(bytes <= self.bytes_max, "a payload that exceeds its conduit's limit");
        if !self.is_filled.replace(true) {
            // SAFETY: no other reference to the buffer exists: it is lent only once filled, and `clear` waits for the end of such loans.
            let buffer = unsafe { &mut *self.buffer.get() };
            // SAFETY: the source is the caller's duty; the length was checked.
            unsafe { vgas_shm::copy::copy(from, buffer.as_mut_ptr(), bytes) };
        }
        // SAFETY: filled, so that nothing changes it while it is lent.
        let buffer = unsafe { &*self.buffer.get() };
        &buffer[..bytes]
    }
}

/// Receiver of arriving messages: the endpoint.
pub trait Sink: Trusted {
    /// The address at which a long payload of `bytes` bytes belongs, valid until [`Sink::deliver`] for the same
    /// message has returned. An error is the peer's fault: the conduit closes the connection and reports it.
    fn destination(&self, from: Peer, destination: Destination, bytes: usize) -> Result<*mut u8, RmaError>;

    /// Returns true if nothing of this peer is wanted any more, not even the rest of a payload: its
    /// destination may be in use for something else. A conduit that writes a payload in several steps asks
    /// before each, and ends the connection as if the peer had broken the protocol.
    fn is_gone(&self, _peer: Peer) -> bool {
        false
    }

    /// The memory of a region of this peer, or of a rank that it serves, as far as it is in use, for a conduit that registers
    /// it with a device because `from` wants to write or read there by itself. It stays where it is until the conduit is told to
    /// [forget](crate::conduit::Conduit::forget) it, or ends. None: no such region.
    fn region(&self, _from: Peer, _owner: Peer, _region: RegionId) -> Option<Span> {
        None
    }

    /// A part of a one-sided operation is complete (see [`crate::conduit::Conduit::start_put`]).
    fn completed(&self, server: Peer, operation: u64) -> Result<(), RmaError> {
        let what = format!("the end of operation {operation}, which was not started");
        Err(RmaError::Protocol { peer: Some(server), what })
    }

    /// Runs the handler. An error is the peer's fault (unknown handler, too many arguments).
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), RmaError>;
}
