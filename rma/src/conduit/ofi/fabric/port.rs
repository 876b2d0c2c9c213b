//! An endpoint with its completion queue and the addresses of its peers: the place of all requests.

use super::memory::{close, failed};
use super::types::{self as raw, number::*};
use super::{Domain, Offer, Peers, Registration, entry, explain};
use crate::error::{Result, RmaError};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use vgas_shm::{Mapping, Span};

/// Most bytes of an endpoint's name that are understood.
const NAME_BYTES_MAX: usize = 512;

/// Completions that are taken at once.
const BATCH: usize = 16;

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::conduit::ofi) enum Posted {
    /// It is in flight.
    Taken,
    /// There is no room; completions are to be taken first.
    Again,
}

/// Memory of a request: bytes of a registration, from an offset on.
#[derive(Clone, Copy)]
pub(in crate::conduit::ofi) struct Local<'a> {
    pub(in crate::conduit::ofi) memory: &'a Registration,
    pub(in crate::conduit::ofi) at: usize,
    pub(in crate::conduit::ofi) bytes: usize,
}

/// Memory of a peer's.
#[derive(Clone, Copy, Debug)]
pub(in crate::conduit::ofi) struct RemoteMemory {
    /// The peer, as the library counts.
    pub(in crate::conduit::ofi) peer: u64,
    pub(in crate::conduit::ofi) address: u64,
    pub(in crate::conduit::ofi) key: u64,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conduit::ofi) struct Event {
    /// The number that it was given; receives have those from [`Port::requests`] on. None: of one that was given no number.
    pub(in crate::conduit::ofi) number: Option<u32>,
    /// Bytes that a receive has brought.
    pub(in crate::conduit::ofi) bytes: usize,
    /// 0, or why it failed, as [`explain`] tells.
    pub(in crate::conduit::ofi) error: c_int,
}

/// The functions that requests are made by: looked up once, when the endpoint is enabled.
struct Calls {
    send: raw::Transfer,
    recv: raw::Transfer,
    inject: Option<raw::Inject>,
    read: raw::Read,
    write: raw::WriteMsg,
    poll: unsafe extern "C" fn(*mut raw::Cq, *mut c_void, usize) -> isize,
    poll_error: unsafe extern "C" fn(*mut raw::Cq, *mut raw::CqErrEntry, u64) -> isize,
}

/// The objects that are opened one after the other; those that are closed in the opposite order when it ends.
struct Opened {
    cq: NonNull<raw::Cq>,
    av: Option<NonNull<raw::Av>>,
    ep: Option<NonNull<raw::Ep>>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: rule 2: each was opened once, after those that follow here, and they have no other users.
        unsafe {
            if let Some(ep) = self.ep {
                close(ep.as_ptr().cast(), "an endpoint");
            }
            if let Some(av) = self.av {
                close(av.as_ptr().cast(), "addresses");
            }
            close(self.cq.as_ptr().cast(), "a completion queue");
        }
    }
}

/// A provider's data of requests: one context a number, never moved.
struct Contexts(NonNull<[raw::Context]>);

impl Contexts {
    fn new(count: usize) -> Self {
        let contexts: Box<[_]> =
            (0..count).map(|_| raw::Context { internal: [ptr::null_mut(); 8] }).collect();
        Self(NonNull::from(Box::leak(contexts)))
    }

    fn of(&self, number: u32) -> *mut c_void {
        assert!((number as usize) < self.0.len(), "no context {number}");
        self.0.as_ptr().cast::<raw::Context>().wrapping_add(number as usize).cast()
    }

    fn number(&self, context: *mut c_void) -> Option<u32> {
        let offset = context.addr().checked_sub(self.0.as_ptr().cast::<raw::Context>().addr())?;
        let number = offset / size_of::<raw::Context>();
        (number < self.0.len()).then_some(number as u32)
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // SAFETY: rule 3: made from a box, and the endpoint, which is dropped before it, was the only user.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// See the module's page. Its fields end in their order.
pub(in crate::conduit::ofi) struct Port {
    opened: Opened,
    contexts: Contexts,
    /// The slots of its receives.
    inbox: Registration,
    slot_bytes: usize,
    calls: Calls,
    wait: Option<RawFd>,
    domain: Arc<Domain>,
    /// Requests that may have numbers: those below it. Receives have those that follow.
    pub(in crate::conduit::ofi) requests: u32,
    /// Receive slots.
    pub(in crate::conduit::ofi) slots: u32,
    /// Most bytes of [`Port::inject`]; 0: it is not offered.
    pub(in crate::conduit::ofi) inject_max: usize,
    /// Its name for peers.
    pub(in crate::conduit::ofi) name: Vec<u8>,
}

// SAFETY: rule 6.
unsafe impl Send for Port {}
// SAFETY: rule 6.
unsafe impl Sync for Port {}

impl Port {
    /// Opens an endpoint, with at most `requests` in flight and `slots` receives of `slot_bytes` each, for
    /// `peers` peers. No receive is posted yet.
    pub(in crate::conduit::ofi) fn open(
        offer: &'static Offer,
        requests: u32,
        slots: u32,
        slot_bytes: usize,
        peers: u32,
    ) -> Result<Self> {
        let domain = Domain::open(offer)?;
        let requests = requests.min(u32::try_from(offer.requests).unwrap_or(u32::MAX)).max(8);
        let slots = slots.min(u32::try_from(offer.receives).unwrap_or(u32::MAX)).max(8);
        let contexts = Contexts::new((requests + slots) as usize);
        let (cq, wait) = open_queue(&domain, (requests + slots) as usize)?;
        let mut opened = Opened { cq, av: None, ep: None };
        let what = |part: &str| format!("open {part} of libfabric's {}", offer.provider);
        let av = open_addresses(&domain, peers).map_err(|code| failed(what("the addresses"), code))?;
        opened.av = Some(av);
        let ep = open_endpoint(&domain).map_err(|code| failed(what("an endpoint"), code))?;
        opened.ep = Some(ep);
        enable(ep, cq, av).map_err(|code| failed(what("an endpoint"), code))?;
        let calls = Calls::of(ep, cq).ok_or_else(|| {
            RmaError::Refused(format!("libfabric's {} lacks messages or one-sided access", offer.provider))
        })?;
        let name = name_of(ep).map_err(|code| failed(what("the name"), code))?;
        let memory = Mapping::anonymous("vgas-ofi-receive", slots as u64 * slot_bytes as u64)?;
        let span = memory.span(0, memory.bytes());
        let inbox = Registration::new(&domain, Some(ep), span, Peers::Nothing)?;
        let inject_max = if calls.inject.is_some() { offer.inject_max } else { 0 };
        Ok(Self {
            opened,
            contexts,
            inbox,
            slot_bytes,
            calls,
            wait,
            domain,
            requests,
            slots,
            inject_max,
            name,
        })
    }

    pub(in crate::conduit::ofi) fn offer(&self) -> &'static Offer {
        self.domain.offer
    }

    fn ep(&self) -> *mut raw::Ep {
        self.opened.ep.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    /// Registers memory for requests of this port, and of peers to it.
    pub(in crate::conduit::ofi) fn register(&self, memory: Span, peers: Peers) -> Result<Registration> {
        Registration::new(&self.domain, self.opened.ep, memory, peers)
    }

    /// Becomes readable when [`Port::poll`] may find something; if the provider can say so.
    pub(in crate::conduit::ofi) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: rule 2: the queue owns the descriptor and lives as long as the borrow.
        self.wait.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Returns true if a thread may sleep on the descriptor: nothing has come that it would not report.
    pub(in crate::conduit::ofi) fn may_sleep(&self) -> bool {
        if self.wait.is_none() {
            return true;
        }
        let fabric = self.domain.fabric.as_ptr();
        let mut queue: *mut raw::Fid = self.opened.cq.as_ptr().cast();
        // SAFETY: rules 1, 2.
        let code = entry!(unsafe { (*fabric).ops }, FabricOps, trywait)
            .map_or(0, |try_wait| unsafe { try_wait(fabric, &mut queue, 1) });
        code == 0
    }

    /// The library's number of a peer with this name.
    pub(in crate::conduit::ofi) fn insert(&self, name: &[u8]) -> Result<u64> {
        let mut peer = FI_ADDR_NOTAVAIL;
        let av = self.opened.av.map_or(ptr::null_mut(), NonNull::as_ptr);
        // A provider reads as much as its names have: nothing behind what a peer has sent.
        let mut padded = name.to_vec();
        padded.resize(NAME_BYTES_MAX, 0);
        // SAFETY: rules 1, 2; the bytes are read during the call.
        let count = entry!(unsafe { (*av).ops }, AvOps, insert).map_or(-libc::ENOSYS, |insert| unsafe {
            insert(av, padded.as_ptr().cast(), 1, &mut peer, 0, ptr::null_mut())
        });
        if count == 1 && peer != FI_ADDR_NOTAVAIL {
            return Ok(peer);
        }
        let what = format!("understand an address of libfabric's {}", self.offer().provider);
        Err(failed(what, count.min(0)))
    }

    fn posted(&self, code: isize, what: &str) -> Result<Posted> {
        match code {
            0 => Ok(Posted::Taken),
            code if code == -(FI_EAGAIN as isize) => Ok(Posted::Again),
            code => Err(failed(format!("{what} by libfabric's {}", self.offer().provider), code as c_int)),
        }
    }

    /// Sends bytes that may be reused at once, with no completion. At most [`Port::inject_max`].
    pub(in crate::conduit::ofi) fn inject(&self, peer: u64, bytes: &[u8]) -> Result<Posted> {
        let Some(inject) = self.calls.inject.filter(|_| bytes.len() <= self.inject_max) else {
            return Err(RmaError::Usage(format!("{} bytes cannot be injected", bytes.len())));
        };
        // SAFETY: rules 1, 2: the bytes are read during the call.
        let code = unsafe { inject(self.ep(), bytes.as_ptr().cast(), bytes.len(), peer) };
        self.posted(code, "send")
    }

    /// Sends registered memory, which stays as it is until the completion with this number.
    pub(in crate::conduit::ofi) fn send(&self, peer: u64, from: Local<'_>, number: u32) -> Result<Posted> {
        let (context, address) = (self.contexts.of(number), from.memory.place(from.at, from.bytes));
        // SAFETY: rules 1 to 3.
        let code = unsafe {
            let descriptor = from.memory.descriptor();
            (self.calls.send)(self.ep(), address.cast(), from.bytes, descriptor, peer, context)
        };
        self.posted(code, "send")
    }

    /// Reads memory of a peer's into registered memory, complete at the completion with this number.
    pub(in crate::conduit::ofi) fn read(
        &self,
        there: RemoteMemory,
        to: Local<'_>,
        number: u32,
    ) -> Result<Posted> {
        let (context, address) = (self.contexts.of(number), to.memory.place(to.at, to.bytes));
        let RemoteMemory { peer, address: remote, key } = there;
        // SAFETY: rules 1 to 3.
        let code = unsafe {
            let descriptor = to.memory.descriptor();
            (self.calls.read)(self.ep(), address.cast(), to.bytes, descriptor, peer, remote, key, context)
        };
        self.posted(code, "read")
    }

    /// Writes registered memory, which stays as it is until the completion with this number, into memory of a peer's. The
    /// completion is asked to say that the bytes are visible there.
    pub(in crate::conduit::ofi) fn write(
        &self,
        there: RemoteMemory,
        from: Local<'_>,
        number: u32,
    ) -> Result<Posted> {
        let piece =
            libc::iovec { iov_base: from.memory.place(from.at, from.bytes).cast(), iov_len: from.bytes };
        let remote = raw::RmaIov { addr: there.address, len: from.bytes, key: there.key };
        let mut descriptor = from.memory.descriptor();
        let message = raw::MsgRma {
            msg_iov: &piece,
            desc: &mut descriptor,
            iov_count: 1,
            addr: there.peer,
            rma_iov: &remote,
            rma_iov_count: 1,
            context: self.contexts.of(number),
            data: 0,
        };
        // SAFETY: rules 1 to 3: the description is read during the call.
        let code = unsafe { (self.calls.write)(self.ep(), &message, FI_DELIVERY_COMPLETE) };
        self.posted(code, "write")
    }

    /// Posts a receive slot, by its index.
    fn receive(&self, slot: u32) -> Result<Posted> {
        let context = self.contexts.of(self.requests + slot);
        let address = self.inbox.place(slot as usize * self.slot_bytes, self.slot_bytes);
        // SAFETY: rules 1 to 4: the slot is not read while it is posted.
        let code = unsafe {
            let descriptor = self.inbox.descriptor();
            (self.calls.recv)(
                self.ep(),
                address.cast(),
                self.slot_bytes,
                descriptor,
                FI_ADDR_NOTAVAIL,
                context,
            )
        };
        self.posted(code, "receive")
    }

    /// Returns an unused receive slot: one that was never posted, or whose receive has just completed.
    pub(in crate::conduit::ofi) fn slot(&self, number: u32) -> Option<Slot<'_>> {
        let index = number.checked_sub(self.requests).filter(|&index| index < self.slots)?;
        Some(Slot { port: self, index })
    }

    /// Takes completions, and does what the provider has to do meanwhile.
    pub(in crate::conduit::ofi) fn poll(&self, events: &mut Vec<Event>) -> Result<()> {
        let mut batch = [const { MaybeUninit::<raw::CqMsgEntry>::uninit() }; BATCH];
        let cq = self.opened.cq.as_ptr();
        // SAFETY: rules 1, 2: the queue was opened for entries of this form, and there is room for so many.
        let count = unsafe { (self.calls.poll)(cq, batch.as_mut_ptr().cast(), BATCH) };
        match count {
            1.. => {
                events.extend(batch[..(count as usize).min(BATCH)].iter().map(|entry| {
                    // SAFETY: rule 1: so many were written.
                    let entry = unsafe { entry.assume_init_ref() };
                    Event { number: self.contexts.number(entry.op_context), bytes: entry.len, error: 0 }
                }));
                Ok(())
            }
            0 => Ok(()),
            code if code == -(FI_EAGAIN as isize) => Ok(()),
            code if code == -(FI_EAVAIL as isize) => {
                events.extend(self.poll_error());
                Ok(())
            }
            code => Err(failed(format!("ask libfabric's {}", self.offer().provider), code as c_int)),
        }
    }

    fn poll_error(&self) -> Option<Event> {
        let mut entry = raw::CqErrEntry {
            op_context: ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: ptr::null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: ptr::null_mut(),
            err_data_size: 0,
            rest: [0; 4],
        };
        // SAFETY: rules 1, 2: no room is offered for more about the error.
        let count = unsafe { (self.calls.poll_error)(self.opened.cq.as_ptr(), &mut entry, 0) };
        let error = if entry.err == 0 { libc::EIO } else { entry.err };
        (count == 1).then(|| Event { number: self.contexts.number(entry.op_context), bytes: 0, error })
    }

    /// Returns the text of an event's error.
    pub(in crate::conduit::ofi) fn explain(&self, error: c_int) -> String {
        format!("libfabric's {}: {}", self.offer().provider, explain(error))
    }
}

/// A receive slot that is not posted (rule 4).
pub(in crate::conduit::ofi) struct Slot<'a> {
    port: &'a Port,
    pub(in crate::conduit::ofi) index: u32,
}

impl Slot<'_> {
    /// Returns the received bytes.
    pub(in crate::conduit::ofi) fn bytes(&self, count: usize) -> &[u8] {
        let count = count.min(self.port.slot_bytes);
        let address = self.port.inbox.place(self.index as usize * self.port.slot_bytes, count);
        // SAFETY: rule 4.
        unsafe { std::slice::from_raw_parts(address, count) }
    }

    /// Posts it.
    pub(in crate::conduit::ofi) fn post(self) -> Result<Posted> {
        self.port.receive(self.index)
    }
}

impl Calls {
    fn of(ep: NonNull<raw::Ep>, cq: NonNull<raw::Cq>) -> Option<Self> {
        // SAFETY: rules 1, 2.
        let (msg, rma, queue) = unsafe { ((*ep.as_ptr()).msg, (*ep.as_ptr()).rma, (*cq.as_ptr()).ops) };
        Some(Self {
            send: entry!(msg, MsgOps, send)?,
            recv: entry!(msg, MsgOps, recv)?,
            inject: entry!(msg, MsgOps, inject),
            read: entry!(rma, RmaOps, read)?,
            write: entry!(rma, RmaOps, writemsg)?,
            poll: entry!(queue, CqOps, read)?,
            poll_error: entry!(queue, CqOps, readerr)?,
        })
    }
}

/// Opens a completion queue with a descriptor to sleep on, or without one if the provider has none.
fn open_queue(domain: &Domain, size: usize) -> Result<(NonNull<raw::Cq>, Option<RawFd>)> {
    let mut last = 0;
    for wait_obj in [FI_WAIT_FD, FI_WAIT_NONE] {
        let mut attributes = raw::CqAttr {
            size,
            flags: 0,
            format: FI_CQ_FORMAT_MSG,
            wait_obj,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        let mut queue = ptr::null_mut();
        // SAFETY: rules 1, 2.
        last = entry!(unsafe { (*domain.raw.as_ptr()).ops }, DomainOps, cq_open)
            .map_or(-libc::ENOSYS, |open| unsafe {
                open(domain.raw.as_ptr(), &mut attributes, &mut queue, ptr::null_mut())
            });
        let Some(queue) = NonNull::new(queue).filter(|_| last == 0) else { continue };
        return Ok((queue, if wait_obj == FI_WAIT_FD { descriptor_of(queue) } else { None }));
    }
    Err(failed(format!("open a completion queue of libfabric's {}", domain.offer.provider), last))
}

fn descriptor_of(queue: NonNull<raw::Cq>) -> Option<RawFd> {
    let object: *mut raw::Fid = queue.as_ptr().cast();
    let mut descriptor: c_int = -1;
    // SAFETY: rules 1, 2: a queue that was opened for it answers with a descriptor.
    let code = entry!(unsafe { (*object).ops }, Ops, control).map_or(-libc::ENOSYS, |control| unsafe {
        control(object, FI_GETWAIT, (&raw mut descriptor).cast())
    });
    (code == 0 && descriptor >= 0).then_some(descriptor)
}

fn open_addresses(domain: &Domain, peers: u32) -> Result<NonNull<raw::Av>, c_int> {
    let mut attributes = raw::AvAttr {
        kind: domain.offer.av_type,
        rx_ctx_bits: 0,
        count: peers as usize,
        ep_per_node: 0,
        name: ptr::null(),
        map_addr: ptr::null_mut(),
        flags: 0,
    };
    let mut av = ptr::null_mut();
    // SAFETY: rules 1, 2.
    let code = entry!(unsafe { (*domain.raw.as_ptr()).ops }, DomainOps, av_open)
        .map_or(-libc::ENOSYS, |open| unsafe {
            open(domain.raw.as_ptr(), &mut attributes, &mut av, ptr::null_mut())
        });
    NonNull::new(av).filter(|_| code == 0).ok_or(code)
}

fn open_endpoint(domain: &Domain) -> Result<NonNull<raw::Ep>, c_int> {
    let mut ep = ptr::null_mut();
    // SAFETY: rules 1, 2.
    let code = entry!(unsafe { (*domain.raw.as_ptr()).ops }, DomainOps, endpoint)
        .map_or(-libc::ENOSYS, |open| unsafe {
            open(domain.raw.as_ptr(), domain.offer.raw.as_ptr(), &mut ep, ptr::null_mut())
        });
    NonNull::new(ep).filter(|_| code == 0).ok_or(code)
}

fn enable(ep: NonNull<raw::Ep>, cq: NonNull<raw::Cq>, av: NonNull<raw::Av>) -> Result<(), c_int> {
    let object: *mut raw::Fid = ep.as_ptr().cast();
    // SAFETY: rules 1, 2.
    let ops = unsafe { (*object).ops };
    let bind = entry!(ops, Ops, bind).ok_or(-libc::ENOSYS)?;
    let control = entry!(ops, Ops, control).ok_or(-libc::ENOSYS)?;
    let checked = |code| if code == 0 { Ok(()) } else { Err(code) };
    // SAFETY: rules 1, 2: all three live, and they have no other users yet.
    unsafe {
        checked(bind(object, av.as_ptr().cast(), 0))?;
        checked(bind(object, cq.as_ptr().cast(), FI_TRANSMIT | FI_RECV))?;
        checked(control(object, FI_ENABLE, ptr::null_mut()))
    }
}

fn name_of(ep: NonNull<raw::Ep>) -> Result<Vec<u8>, c_int> {
    let mut name = vec![0; NAME_BYTES_MAX];
    let mut bytes = name.len();
    // SAFETY: rules 1, 2: there is room for so many bytes.
    let code = entry!(unsafe { (*ep.as_ptr()).cm }, CmOps, getname).map_or(-libc::ENOSYS, |name_of| unsafe {
        name_of(ep.as_ptr().cast(), name.as_mut_ptr().cast(), &mut bytes)
    });
    if code != 0 || bytes == 0 || bytes > name.len() {
        return Err(if code == 0 { -libc::EINVAL } else { code });
    }
    name.truncate(bytes);
    Ok(name)
}
