//! Verbs as objects that end by themselves: all calls into libibverbs and librdmacm, and all `unsafe` of this conduit.
//!
//! # Why this is sound
//!
//! 1. *Types.* Functions and structures are declared as in the header; a test compares every offset with it.
//! 2. *Life.* A pointer that the library returned is checked for null, destroyed once, when its owner is dropped, and
//!    every object holds what it was made from, so the order of ends is right. The library is never unloaded.
//! 3. *Memory under requests.* The device is only told about memory of a [`Registration`], which keeps its mapping, or
//!    about bytes that the post itself copies (inline). A range is checked against its registration before it is posted.
//!    A registration that requests may still use is dropped only after the queue pairs, in [`super::IbvConduit`].
//! 4. *Shared bytes.* Memory that a peer may write is only copied, under the rules of [`vgas_shm`]; received
//!    bytes are private from their completion until their slot is posted again: as long as there is a
//!    [`Slot`] of it, and there is one at a time.
//! 5. *Sources and destinations.* A [`Source`] is vouched for by the caller of the conduit, for the time of the call; an
//!    address from [`Sink::destination`](crate::message::Sink::destination) by the sink, until it is told of the end.
//! 6. *Threads.* libibverbs allows every call on every object from any thread, except its destruction beside others,
//!    which exclusive ownership rules out. That makes the wrappers `Send` and `Sync`.

pub(super) mod cm;
pub mod cm_types;
mod library;
pub mod types;

pub use cm::cm_available;
pub use library::{CM_REMEDY, REMEDY};

use super::events::Event;
use crate::error::{Result, RmaError};
use crate::message::Source;
use library::{Verbs, verbs};
use std::ffi::{CStr, c_int};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use types::{self as raw, number::*};
use vgas_shm::{Atomic, Mapping, Span, copy::copy};

/// Delay of a sender that found no receive slot: 0.16 ms, in the code of the InfiniBand architecture.
const RNR_TIMER: u8 = 8;

/// And how often: for ever. A peer without a free receive slot computes; whether it lives is watched elsewhere.
const RNR_RETRIES: u8 = 7;

fn last_error(what: impl Into<String>) -> RmaError {
    RmaError::io(what, std::io::Error::last_os_error())
}

fn checked(code: c_int, what: impl FnOnce() -> String) -> Result<()> {
    // These calls return an errno instead of setting it.
    if code == 0 { Ok(()) } else { Err(RmaError::io(what(), std::io::Error::from_raw_os_error(code.abs()))) }
}

fn library() -> Result<&'static Verbs> {
    verbs().map_err(|reason| RmaError::Refused(format!("the ibv conduit cannot be used: {reason}")))
}

/// Copies the bytes of a source to private memory of the same length.
pub(super) fn gather(from: Source<'_>, to: &mut [u8]) {
    assert_eq!(from.bytes(), to.len());
    if from.bytes() > 0 {
        // SAFETY: rule 5 for the source; the destination is a slice of the same length.
        unsafe { copy(from.address(), to.as_mut_ptr(), from.bytes()) }
    }
}

/// Checks that libibverbs can be used; otherwise returns the reason.
pub fn available() -> Result<(), String> {
    verbs().map(|_| ()).map_err(str::to_owned)
}

/// An open device with a protection domain.
pub(super) struct Context {
    verbs: &'static Verbs,
    raw: NonNull<raw::Context>,
    domain: NonNull<raw::ProtectionDomain>,
    pub(super) name: String,
}

// SAFETY: rule 6.
unsafe impl Send for Context {}
// SAFETY: rule 6.
unsafe impl Sync for Context {}

impl Context {
    /// Names of the devices that libibverbs has a provider for.
    pub(super) fn device_names() -> Result<Vec<String>> {
        with_devices(|_, devices| Ok(devices.iter().map(|(name, _)| name.clone()).collect()))
    }

    /// Opens a device by its name.
    pub(super) fn open(name: &str) -> Result<Arc<Self>> {
        with_devices(|verbs, devices| {
            let found = devices.iter().find(|(device, _)| device == name);
            let (_, device) = found.ok_or_else(|| {
                let names: Vec<_> = devices.iter().map(|(name, _)| name.as_str()).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                RmaError::Refused(format!("there is no RDMA device {name}; there are: {names}"))
            })?;
            // SAFETY: rules 1, 2: the list of devices is alive.
            let raw = NonNull::new(unsafe { (verbs.ibv_open_device)(*device) })
                .ok_or_else(|| last_error(format!("open the RDMA device {name}")))?;
            // SAFETY: rules 1, 2.
            let domain = NonNull::new(unsafe { (verbs.ibv_alloc_pd)(raw.as_ptr()) });
            let Some(domain) = domain else {
                let error = last_error(format!("make a protection domain on {name}"));
                // SAFETY: rule 2: opened above, and not shared.
                unsafe { (verbs.ibv_close_device)(raw.as_ptr()) };
                return Err(error);
            };
            let context = Arc::new(Self { verbs, raw, domain, name: name.to_owned() });
            never_block(context.event_descriptor())?;
            Ok(context)
        })
    }

    /// Readable when the device has something to say about itself (see [`Context::next_event`]).
    pub(super) fn event_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: rule 2: the context owns the descriptor and lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().async_fd) }
    }

    /// Returns the next event of the device itself; none at the moment.
    pub(super) fn next_event(&self) -> Option<Event> {
        let mut raw = raw::AsyncEvent { element: raw::EventElement { qp: ptr::null_mut() }, event_type: -1 };
        // SAFETY: rules 1, 2; the descriptor does not block.
        if unsafe { (self.verbs.ibv_get_async_event)(self.raw.as_ptr(), &mut raw) } != 0 {
            return None;
        }
        let kind = raw.event_type;
        let event = match kind {
            IBV_EVENT_QP_FATAL..=IBV_EVENT_PATH_MIG_ERR | IBV_EVENT_QP_LAST_WQE_REACHED => {
                // SAFETY: these are about a queue pair, whose destruction waits for the acknowledgement.
                Event::Pair(unsafe { (*raw.element.qp).qp_num }, kind)
            }
            IBV_EVENT_PORT_ACTIVE..=IBV_EVENT_SM_CHANGE
            | IBV_EVENT_CLIENT_REREGISTER
            | IBV_EVENT_GID_CHANGE => {
                // SAFETY: these are about a port.
                Event::Port(unsafe { raw.element.port_num } as u8, kind)
            }
            _ => Event::Device(kind),
        };
        // SAFETY: rules 1, 2: once for each event.
        unsafe { (self.verbs.ibv_ack_async_event)(&mut raw) };
        Some(event)
    }

    /// The limits of the device.
    pub(super) fn limits(&self) -> Result<raw::DeviceAttr> {
        // SAFETY: the structure consists of numbers, for which zero is valid.
        let mut attributes: raw::DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: rules 1, 2.
        let code = unsafe { (self.verbs.ibv_query_device)(self.raw.as_ptr(), &mut attributes) };
        checked(code, || format!("ask {} for its limits", self.name))?;
        Ok(attributes)
    }

    /// The state of a port.
    pub(super) fn port(&self, port: u8) -> Result<raw::PortAttr> {
        // SAFETY: as in `limits`.
        let mut attributes: raw::PortAttr = unsafe { std::mem::zeroed() };
        // SAFETY: rules 1, 2.
        let code = unsafe { (self.verbs.ibv_query_port)(self.raw.as_ptr(), port, &mut attributes) };
        checked(code, || format!("ask {} about its port {port}", self.name))?;
        Ok(attributes)
    }

    /// Registers memory with the rights `peers` for peers that know the key. If the system does not let this
    /// process lock this much, the device is asked to do without (on-demand paging), which few can.
    ///
    /// # Errors
    /// [`RmaError::LockedMemory`] if the system does not let this process lock this much.
    pub(super) fn register(self: &Arc<Self>, memory: Span, peers: Peers) -> Result<Registration> {
        let bytes = memory.bytes();
        let access = IBV_ACCESS_LOCAL_WRITE
            | match peers {
                Peers::Nothing => 0,
                Peers::ReadWrite => IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
                Peers::Atomics => IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
            };
        let register = |access| {
            // SAFETY: rules 1 to 3: the registration keeps the memory, which was checked when the span was made.
            let raw = unsafe {
                (self.verbs.ibv_reg_mr)(self.domain.as_ptr(), memory.address().cast(), bytes, access)
            };
            NonNull::new(raw).ok_or_else(std::io::Error::last_os_error)
        };
        let raw = match register(access) {
            Ok(raw) => raw,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN)) => {
                let refused = RmaError::LockedMemory { bytes: bytes as u64, limit: locked_memory_limit() };
                register(access | IBV_ACCESS_ON_DEMAND).map_err(|_| refused)?
            }
            Err(error) => {
                return Err(RmaError::io(format!("register {bytes} bytes with {}", self.name), error));
            }
        };
        Ok(Registration { context: self.clone(), raw, memory })
    }
}

/// `RLIMIT_MEMLOCK` of this process; none: unlimited.
pub fn locked_memory_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

/// Reads from this descriptor return at once from now on.
fn never_block(descriptor: BorrowedFd<'_>) -> Result<()> {
    let refused = |e| RmaError::system("make a descriptor of the RDMA device non-blocking", e);
    let flags = rustix::fs::fcntl_getfl(descriptor).map_err(refused)?;
    rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK).map_err(refused)
}

fn with_devices<T>(
    look: impl FnOnce(&'static Verbs, &[(String, *mut raw::Device)]) -> Result<T>,
) -> Result<T> {
    let verbs = library()?;
    let mut count = 0;
    // SAFETY: rule 1.
    let list = unsafe { (verbs.ibv_get_device_list)(&mut count) };
    if list.is_null() {
        let error = std::io::Error::last_os_error();
        // A kernel without RDMA has no devices, as other machines have none: the caller decides about that.
        return match error.kind() {
            std::io::ErrorKind::Unsupported => look(verbs, &[]),
            _ => Err(RmaError::io("list the RDMA devices (is the module ib_uverbs loaded?)", error)),
        };
    }
    let devices: Vec<_> = (0..count.max(0) as usize)
        .map(|index| {
            // SAFETY: rules 1, 2: the list has `count` entries, each with a name that ends with a zero.
            unsafe {
                let device = *list.add(index);
                let name = CStr::from_ptr((verbs.ibv_get_device_name)(device));
                (name.to_string_lossy().into_owned(), device)
            }
        })
        .collect();
    let result = look(verbs, &devices);
    // SAFETY: rule 2: freed once; an open device does not need it (ibv_open_device(3)).
    unsafe { (verbs.ibv_free_device_list)(list) };
    result
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: rule 2: everything that was made from them held an `Arc` of this and is gone.
        unsafe {
            (self.verbs.ibv_dealloc_pd)(self.domain.as_ptr());
            (self.verbs.ibv_close_device)(self.raw.as_ptr());
        }
    }
}

/// Rights of peers that know the key of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peers {
    Nothing,
    ReadWrite,
    /// And update words.
    Atomics,
}

/// Memory that the device may use.
pub(super) struct Registration {
    context: Arc<Context>,
    raw: NonNull<raw::MemoryRegion>,
    memory: Span,
}

// SAFETY: rule 6.
unsafe impl Send for Registration {}
// SAFETY: rule 6.
unsafe impl Sync for Registration {}

impl Registration {
    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Returns its remote name: the address of its first byte and its key.
    pub(super) fn remote(&self) -> (u64, u32) {
        // SAFETY: rule 2: filled in by the library when it was made.
        (self.memory.address().expose_provenance() as u64, unsafe { self.raw.as_ref() }.rkey)
    }

    fn local_key(&self) -> u32 {
        // SAFETY: rule 2.
        unsafe { self.raw.as_ref() }.lkey
    }

    /// The offset of an address range in it, if it lies inside.
    pub(super) fn offset_of(&self, address: *const u8, bytes: usize) -> Option<usize> {
        let offset = address.addr().checked_sub(self.memory.address().addr())?;
        (offset.checked_add(bytes)? <= self.bytes()).then_some(offset)
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If the range is not inside.
    pub(super) fn fill(&self, offset: usize, from: Source<'_>) {
        assert!(
            offset + from.bytes() <= self.bytes(),
            "{} bytes at {offset} of {}",
            from.bytes(),
            self.bytes()
        );
        if from.bytes() > 0 {
            // SAFETY: the range was checked; rules 4 and 5.
            unsafe { copy(from.address(), self.memory.address().add(offset), from.bytes()) }
        }
    }

    /// Copies bytes out, to the sink's address.
    ///
    /// # Panics
    /// If the range is not inside.
    pub(super) fn empty(&self, offset: usize, to: *mut u8, bytes: usize) {
        assert!(offset + bytes <= self.bytes(), "{bytes} bytes at {offset} of {}", self.bytes());
        // SAFETY: the range was checked; rules 4 and 5.
        unsafe { copy(self.memory.address().add(offset), to, bytes) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: rules 2, 3.
        unsafe { (self.context.verbs.ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}

/// A completion queue with a descriptor to sleep on, and a queue of receive slots that all queue pairs share.
pub(super) struct Queues {
    context: Arc<Context>,
    channel: NonNull<raw::CompletionChannel>,
    completions: NonNull<raw::CompletionQueue>,
    receives: NonNull<raw::SharedReceiveQueue>,
    /// The receive slots, one after another.
    slots: Registration,
    slot_bytes: usize,
    /// Slots that the device has filled and that are not taken.
    filled: Box<[AtomicBool]>,
}

/// A receive slot that the device has filled, and does not touch until it is posted again.
pub(super) struct Slot<'a> {
    queues: &'a Queues,
    index: u32,
}

// SAFETY: rule 6.
unsafe impl Send for Queues {}
// SAFETY: rule 6.
unsafe impl Sync for Queues {}

impl Queues {
    /// Makes queues for `completions` completions, with `slots` receive slots of `slot_bytes` bytes, all posted.
    pub(super) fn new(
        context: &Arc<Context>,
        completions: u32,
        slots: u32,
        slot_bytes: usize,
    ) -> Result<Arc<Self>> {
        let verbs = context.verbs;
        let bytes = slots as usize * slot_bytes;
        let memory = context
            .register(Mapping::anonymous("vgas-ibv-receive", bytes as u64)?.span(0, bytes), Peers::Nothing)?;
        // SAFETY: rules 1, 2 for all three; what was made before a failure is destroyed.
        unsafe {
            let channel = NonNull::new((verbs.ibv_create_comp_channel)(context.raw.as_ptr()))
                .ok_or_else(|| last_error("make a completion channel"))?;
            let cq = (verbs.ibv_create_cq)(
                context.raw.as_ptr(),
                completions as c_int,
                ptr::null_mut(),
                channel.as_ptr(),
                0,
            );
            let Some(cq) = NonNull::new(cq) else {
                let error = last_error(format!("make a queue of {completions} completions"));
                (verbs.ibv_destroy_comp_channel)(channel.as_ptr());
                return Err(error);
            };
            let mut attributes =
                raw::SrqInitAttr { srq_context: ptr::null_mut(), max_wr: slots, max_sge: 1, srq_limit: 0 };
            let srq = (verbs.ibv_create_srq)(context.domain.as_ptr(), &mut attributes);
            let Some(receives) = NonNull::new(srq) else {
                let error = last_error(format!("make a shared queue of {slots} receives"));
                (verbs.ibv_destroy_cq)(cq.as_ptr());
                (verbs.ibv_destroy_comp_channel)(channel.as_ptr());
                return Err(error);
            };
            let context = context.clone();
            let filled = (0..slots).map(|_| AtomicBool::new(false)).collect();
            let queues = Arc::new(Self {
                context,
                channel,
                completions: cq,
                receives,
                slots: memory,
                slot_bytes,
                filled,
            });
            never_block(queues.descriptor())?;
            for slot in 0..slots {
                Slot { queues: &queues, index: slot }.post()?;
            }
            Ok(queues)
        }
    }

    /// Readable when an event has come (see [`Queues::request_event`]).
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: rule 2: the channel owns the descriptor and lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }

    /// Takes completions; returns their number. Those of receives have the numbers of slots, all others have
    /// larger ones.
    pub(super) fn poll(&self, into: &mut [raw::Completion]) -> Result<usize> {
        // SAFETY: rules 1, 2: the provider fills at most as many entries as there are.
        let count = unsafe {
            let poll = self.context.raw.as_ref().ops.poll_cq;
            poll.map_or(-1, |poll| poll(self.completions.as_ptr(), into.len() as c_int, into.as_mut_ptr()))
        };
        let count = usize::try_from(count).map_err(|_| {
            RmaError::io("take completions from the device", std::io::Error::other("it failed"))
        })?;
        for completion in &into[..count] {
            if let Some(filled) = self.filled.get(completion.wr_id as usize) {
                filled.store(true, Ordering::Release);
            }
        }
        Ok(count)
    }

    /// Asks for one event at the next completion, after taking the events that have come.
    pub(super) fn request_event(&self) -> Result<()> {
        self.take_events();
        // SAFETY: rules 1, 2.
        let code = unsafe {
            let request = self.context.raw.as_ref().ops.req_notify_cq;
            request.map_or(libc::ENOSYS, |request| request(self.completions.as_ptr(), 0))
        };
        checked(code, || "ask for an event at the next completion".into())
    }

    /// Takes the events that have come, so that the descriptor is no longer readable.
    pub(super) fn take_events(&self) {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        let mut events = 0;
        // SAFETY: rules 1, 2; the channel does not block and has this queue only.
        unsafe {
            while (self.context.verbs.ibv_get_cq_event)(self.channel.as_ptr(), &mut cq, &mut context) == 0 {
                events += 1;
            }
            if events > 0 {
                (self.context.verbs.ibv_ack_cq_events)(self.completions.as_ptr(), events);
            }
        }
    }

    /// The slot that a receive has filled, once for each completion that was taken: its number is that of the completion.
    pub(super) fn filled(&self, index: u64) -> Result<Slot<'_>> {
        let filled = self.filled.get(index as usize);
        if filled.is_some_and(|filled| filled.swap(false, Ordering::Acquire)) {
            return Ok(Slot { queues: self, index: index as u32 });
        }
        let what = std::io::Error::other(format!("it has completed request {index}, which it was not given"));
        Err(RmaError::io("take completions from the device", what))
    }

    /// Returns the library's text for the status of a completion.
    pub(super) fn explain(&self, status: c_int) -> String {
        // SAFETY: rule 1: it returns a constant for any number.
        unsafe { CStr::from_ptr((self.context.verbs.ibv_wc_status_str)(status)) }
            .to_string_lossy()
            .into_owned()
    }
}

impl Slot<'_> {
    fn offset(&self) -> usize {
        self.index as usize * self.queues.slot_bytes
    }

    /// Its first bytes, at most as many as there are.
    pub(super) fn bytes(&self, bytes: usize) -> &[u8] {
        let bytes = bytes.min(self.queues.slot_bytes);
        // SAFETY: rule 4; the slots lie in the registration, which the queues keep.
        unsafe { std::slice::from_raw_parts(self.queues.slots.memory.address().add(self.offset()), bytes) }
    }

    /// Gives it back to the device.
    pub(super) fn post(self) -> Result<()> {
        let result = self.give_back();
        std::mem::forget(self);
        result
    }

    fn give_back(&self) -> Result<()> {
        let queues = self.queues;
        let mut piece = raw::Sge {
            addr: queues.slots.remote().0 + self.offset() as u64,
            length: queues.slot_bytes as u32,
            lkey: queues.slots.local_key(),
        };
        let mut request = raw::ReceiveRequest {
            wr_id: u64::from(self.index),
            next: ptr::null_mut(),
            sg_list: &mut piece,
            num_sge: 1,
        };
        let mut failed = ptr::null_mut();
        // SAFETY: rules 1 to 3: the slot lies in the registration, which the queues keep.
        let code = unsafe {
            let post = queues.context.raw.as_ref().ops.post_srq_recv;
            post.map_or(libc::ENOSYS, |post| post(queues.receives.as_ptr(), &mut request, &mut failed))
        };
        checked(code, || "post a receive".into())
    }
}

impl Drop for Slot<'_> {
    /// After a panic in a handler: the slot is not lost with it.
    fn drop(&mut self) {
        let _ = self.give_back();
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // SAFETY: rule 2: every queue pair held an `Arc` of this and is gone.
        unsafe {
            (self.context.verbs.ibv_destroy_srq)(self.receives.as_ptr());
            (self.context.verbs.ibv_destroy_cq)(self.completions.as_ptr());
            (self.context.verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

/// Place of a request's bytes on this side.
#[derive(Clone, Copy)]
pub(super) enum Local<'a> {
    /// Copied by the post; at most as many as the queue pair takes inline.
    Inline(Source<'a>),
    /// In registered memory.
    Registered(&'a Registration, usize, usize),
}

/// Operation of a request.
#[derive(Clone, Copy)]
pub(super) enum Verb {
    /// Into a receive slot of the other side.
    Send,
    /// Into memory of the other side: its address and key.
    Write(u64, u32),
    /// The same, and its end takes a receive slot of the other side, whose completion has this number.
    WriteImmediate(u64, u32, u32),
    /// From memory of the other side: its address and key.
    Read(u64, u32),
    /// An update of a word of the other side: its address and key. The old value comes back.
    Atomic(u64, u32, Atomic),
}

/// One request to a queue pair.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) id: u64,
    pub(super) verb: Verb,
    pub(super) local: Local<'a>,
    pub(super) signalled: bool,
}

/// Path and traffic parameters between two queue pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) port: u8,
    /// Index of the own address; none: the other side is addressed by its LID (InfiniBand within a subnet).
    pub(super) gid_index: Option<u8>,
    /// `enum ibv_mtu`.
    pub(super) mtu: c_int,
    /// The wait for an acknowledgement is 4.096 µs times 2 to this power.
    pub(super) timeout: u8,
    pub(super) retries: u8,
    /// Service level, by which switches tell this traffic from others; none: librdmacm's finding, or 0.
    pub(super) service_level: Option<u8>,
    pub(super) traffic_class: Option<u8>,
    /// READs and atomic updates that may be in flight towards the other side, and from it.
    pub(super) reads: Reads,
}

/// Number of READs and atomic updates that may be in flight on a connection. More are queued by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reads {
    /// Requested by this side.
    pub(super) asked: u8,
    /// Answered by this side for the other.
    pub(super) answered: u8,
}

impl Reads {
    /// Returns this side's limits, as far as the other side supports them.
    pub(super) fn with(self, there: Self) -> Self {
        Self { asked: self.asked.min(there.answered), answered: self.answered.min(there.asked) }
    }
}

/// Address of a queue pair, for the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuePairAddress {
    pub(super) number: u32,
    pub(super) first_packet: u32,
    /// `enum ibv_mtu`: the smaller of both sides counts.
    pub(super) mtu: c_int,
    pub(super) lid: u16,
    pub(super) gid: raw::Gid,
    /// Limits of its device.
    pub(super) reads: Reads,
}

/// A reliable connection.
pub(super) struct QueuePair {
    queues: Arc<Queues>,
    raw: NonNull<raw::QueuePair>,
    pub(super) inline_max: usize,
}

// SAFETY: rule 6.
unsafe impl Send for QueuePair {}
// SAFETY: rule 6.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Makes an unconnected queue pair that takes `depth` requests at once, and `inline` bytes inline if the device
    /// can.
    pub(super) fn new(
        queues: &Arc<Queues>,
        depth: u32,
        inline: u32,
        port: u8,
        atomics: bool,
    ) -> Result<Self> {
        let verbs = queues.context.verbs;
        let mut inline = inline;
        let (raw, capacity) = loop {
            let mut attributes = raw::QpInitAttr {
                qp_context: ptr::null_mut(),
                send_cq: queues.completions.as_ptr(),
                recv_cq: queues.completions.as_ptr(),
                srq: queues.receives.as_ptr(),
                cap: raw::QpCap {
                    max_send_wr: depth,
                    max_send_sge: 1,
                    max_inline_data: inline,
                    ..raw::QpCap::default()
                },
                qp_type: IBV_QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: rules 1, 2.
            let made = unsafe { (verbs.ibv_create_qp)(queues.context.domain.as_ptr(), &mut attributes) };
            match NonNull::new(made) {
                Some(made) => break (made, attributes.cap),
                // Devices do not tell how much they take inline.
                None if inline > 0 => inline /= 2,
                None => return Err(last_error(format!("make a queue pair of {depth} requests"))),
            }
        };
        let inline_max = (capacity.max_inline_data as usize).min(inline as usize);
        let pair = Self { queues: queues.clone(), raw, inline_max };
        let access = IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_READ
            | if atomics { IBV_ACCESS_REMOTE_ATOMIC } else { 0 };
        let attributes = raw::QpAttr {
            qp_state: IBV_QPS_INIT,
            port_num: port,
            qp_access_flags: access as u32,
            ..raw::QpAttr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        pair.modify(attributes, mask, "initialise a queue pair")?;
        Ok(pair)
    }

    /// Its number on the device.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: rule 2: set by the library when it was made.
        unsafe { self.raw.as_ref() }.qp_num
    }

    /// Connects to the queue pair at `there`; receives from now on.
    pub(super) fn receive_from(&self, there: &QueuePairAddress, route: &Route) -> Result<()> {
        let mut address = raw::AhAttr {
            port_num: route.port,
            dlid: there.lid,
            sl: route.service_level.unwrap_or(0),
            ..raw::AhAttr::default()
        };
        if let Some(sgid_index) = route.gid_index {
            let (high, low) = there.gid.split_at(8);
            let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
            address.is_global = 1;
            address.grh = raw::GlobalRoute {
                dgid: [number(high), number(low)],
                sgid_index,
                hop_limit: 64,
                traffic_class: route.traffic_class.unwrap_or(0),
                ..raw::GlobalRoute::default()
            };
        }
        let attributes = raw::QpAttr {
            qp_state: IBV_QPS_RTR,
            path_mtu: route.mtu,
            dest_qp_num: there.number,
            rq_psn: there.first_packet,
            max_dest_rd_atomic: route.reads.answered,
            min_rnr_timer: RNR_TIMER,
            ah_attr: address,
            ..raw::QpAttr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify(attributes, mask, "connect a queue pair")
    }

    /// Allows sending; the other side receives already.
    pub(super) fn send_from(&self, first_packet: u32, route: &Route) -> Result<()> {
        let attributes = raw::QpAttr {
            qp_state: IBV_QPS_RTS,
            sq_psn: first_packet,
            timeout: route.timeout,
            retry_cnt: route.retries,
            rnr_retry: RNR_RETRIES,
            max_rd_atomic: route.reads.asked,
            ..raw::QpAttr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(attributes, mask, "let a queue pair send")
    }

    /// Ends all its traffic; requests in flight complete with an error.
    pub(super) fn stop(&self) {
        let attributes = raw::QpAttr { qp_state: IBV_QPS_ERR, ..raw::QpAttr::default() };
        // A queue pair that cannot be stopped has stopped.
        let _ = self.modify(attributes, IBV_QP_STATE, "stop a queue pair");
    }

    fn modify(&self, mut attributes: raw::QpAttr, mask: c_int, what: &str) -> Result<()> {
        // SAFETY: rules 1, 2.
        let code =
            unsafe { (self.queues.context.verbs.ibv_modify_qp)(self.raw.as_ptr(), &mut attributes, mask) };
        checked(code, || what.to_owned())
    }

    /// Posts one request, or two that follow each other.
    ///
    /// # Panics
    /// If a range is outside of its registration, or more is to be inline than [`QueuePair::inline_max`].
    pub(super) fn post(&self, first: Work<'_>, then: Option<Work<'_>>) -> Result<()> {
        let mut piece = self.piece(first.local);
        let mut first = request(&first, &mut piece);
        let Some(then) = then else { return self.post_list(&mut first) };
        let mut piece = self.piece(then.local);
        let mut then = request(&then, &mut piece);
        first.next = &mut then;
        self.post_list(&mut first)
    }

    #[inline]
    fn post_list(&self, first: &mut raw::SendRequest) -> Result<()> {
        let mut failed = ptr::null_mut();
        // SAFETY: rules 1 to 3: the requests are read during the call; the bytes are inline (rule 5) or registered.
        let code = unsafe {
            let post = self.queues.context.raw.as_ref().ops.post_send;
            post.map_or(libc::ENOSYS, |post| post(self.raw.as_ptr(), first, &mut failed))
        };
        checked(code, || "post a request to the device".into())
    }

    fn piece(&self, local: Local<'_>) -> raw::Sge {
        match local {
            Local::Inline(source) => {
                assert!(source.bytes() <= self.inline_max, "{} bytes inline", source.bytes());
                raw::Sge {
                    addr: source.address().expose_provenance() as u64,
                    length: source.bytes() as u32,
                    lkey: 0,
                }
            }
            Local::Registered(memory, offset, bytes) => {
                assert!(
                    offset.checked_add(bytes).is_some_and(|end| end <= memory.bytes()),
                    "{bytes} bytes at {offset} of {}",
                    memory.bytes()
                );
                raw::Sge {
                    addr: memory.remote().0 + offset as u64,
                    length: bytes as u32,
                    lkey: memory.local_key(),
                }
            }
        }
    }
}

fn request(work: &Work<'_>, piece: &mut raw::Sge) -> raw::SendRequest {
    let rdma = |remote_addr, rkey| raw::Remote { rdma: raw::RemoteRdma { remote_addr, rkey } };
    let atomic = |remote_addr, rkey, compare_add, swap| raw::Remote {
        atomic: raw::RemoteAtomic { remote_addr, compare_add, swap, rkey },
    };
    let (opcode, wr) = match work.verb {
        Verb::Send => (IBV_WR_SEND, rdma(0, 0)),
        Verb::Write(address, key) => (IBV_WR_RDMA_WRITE, rdma(address, key)),
        Verb::WriteImmediate(address, key, _) => (IBV_WR_RDMA_WRITE_WITH_IMM, rdma(address, key)),
        Verb::Read(address, key) => (IBV_WR_RDMA_READ, rdma(address, key)),
        Verb::Atomic(address, key, Atomic::FetchAdd(value)) => {
            (IBV_WR_ATOMIC_FETCH_AND_ADD, atomic(address, key, value, 0))
        }
        Verb::Atomic(address, key, Atomic::CompareSwap { expected, desired }) => {
            (IBV_WR_ATOMIC_CMP_AND_SWP, atomic(address, key, expected, desired))
        }
    };
    let inline = if matches!(work.local, Local::Inline(_)) { IBV_SEND_INLINE } else { 0 };
    let signalled = if work.signalled { IBV_SEND_SIGNALED } else { 0 };
    // In the order of bytes of the network, as in a completion.
    let imm_data = if let Verb::WriteImmediate(_, _, number) = work.verb { number.to_be() } else { 0 };
    raw::SendRequest {
        wr_id: work.id,
        next: ptr::null_mut(),
        sg_list: piece,
        num_sge: 1,
        opcode,
        send_flags: inline | signalled,
        imm_data,
        wr,
        remote_srqn: 0,
        rest: [0; 6],
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: rule 2.
        unsafe { (self.queues.context.verbs.ibv_destroy_qp)(self.raw.as_ptr()) };
    }
}
