//! librdmacm as objects: identifiers that find the way to an address and bring queue pairs of ours along. All calls into
//! it, under the rules of [the module above](super). An event is copied and acknowledged before anybody sees it, so that
//! no identifier's end waits for one.

use super::cm_types::*;
use super::library::{Cm, cm};
use super::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
    QueuePair, Reads, Route, last_error, never_block, raw,
};
use crate::error::{Result, RmaError};
use std::ffi::{CStr, c_int};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

/// Most bytes that a request may bring along: 56, without the header of the address family.
pub(in super::super) const REQUEST_BYTES_MAX: usize = 56;

/// All attributes that a process may set (to `IBV_QP_DEST_QPN`); kernels have put others of their own beside them.
const ATTRIBUTES: c_int = (IBV_QP_DEST_QPN << 1) - 1;

/// Checks that librdmacm can be used; otherwise returns the reason.
pub fn cm_available() -> Result<(), String> {
    cm().map(|_| ()).map_err(str::to_owned)
}

/// Source of the identifiers' events.
pub(in super::super) struct Channel {
    library: &'static Cm,
    raw: NonNull<EventChannel>,
}

// SAFETY: rule 6, which librdmacm keeps as well.
unsafe impl Send for Channel {}
// SAFETY: rule 6.
unsafe impl Sync for Channel {}

/// Event of an identifier.
pub(in super::super) enum News {
    /// A peer asks to connect to a listener.
    Request(Request),
    AddressResolved,
    RouteResolved,
    /// The other side has accepted, with these bytes.
    Accepted(Vec<u8>),
    Disconnected,
    /// Why there is no connection, or none any more.
    Failed(String),
    /// Nothing to act upon.
    Other,
}

/// A connection request; refused when dropped.
pub(in super::super) struct Request {
    pub(in super::super) id: Id,
    /// The number of its queue pair, as it says.
    pub(in super::super) number: u32,
    /// The bytes that it has brought along, and perhaps zeroes behind them.
    pub(in super::super) bytes: Vec<u8>,
}

impl Channel {
    pub(in super::super) fn new() -> Result<Arc<Self>> {
        let library =
            cm().map_err(|reason| RmaError::Refused(format!("ibv.network needs librdmacm: {reason}")))?;
        // SAFETY: rules 1, 2.
        let raw = NonNull::new(unsafe { (library.rdma_create_event_channel)() })
            .ok_or_else(|| last_error("use librdmacm (is the module rdma_ucm loaded?)"))?;
        let channel = Arc::new(Self { library, raw });
        never_block(channel.descriptor())?;
        Ok(channel)
    }

    /// Readable when there is an event.
    pub(in super::super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: rule 2: the channel owns the descriptor and lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    /// Returns the next event, with the [`Id::key`] of its subject; none at the moment.
    pub(in super::super) fn next(self: &Arc<Self>) -> Option<(usize, News)> {
        let mut event = ptr::null_mut();
        // SAFETY: rules 1, 2; the descriptor does not block.
        if unsafe { (self.library.rdma_get_cm_event)(self.raw.as_ptr(), &mut event) } != 0 {
            return None;
        }
        // SAFETY: rule 2: the event is ours until it is acknowledged; its bytes are as many as it says.
        let (id, kind, status, number, bytes) = unsafe {
            let event = &*event;
            let (data, length) = (event.conn.private_data, usize::from(event.conn.private_data_len));
            let bytes = if data.is_null() || length == 0 {
                Vec::new()
            } else {
                std::slice::from_raw_parts(data.cast::<u8>(), length).to_vec()
            };
            (event.id, event.event, event.status, event.conn.qp_num, bytes)
        };
        // SAFETY: rules 1, 2: once for each event.
        unsafe { (self.library.rdma_ack_cm_event)(event) };
        let news = match kind {
            RDMA_CM_EVENT_CONNECT_REQUEST => match NonNull::new(id) {
                Some(raw) => {
                    let id = Id { channel: self.clone(), raw };
                    News::Request(Request { id, number, bytes })
                }
                None => News::Other,
            },
            RDMA_CM_EVENT_ADDR_RESOLVED => News::AddressResolved,
            RDMA_CM_EVENT_ROUTE_RESOLVED => News::RouteResolved,
            RDMA_CM_EVENT_CONNECT_RESPONSE => News::Accepted(bytes),
            RDMA_CM_EVENT_DISCONNECTED => News::Disconnected,
            _ => failure(kind, status).map_or(News::Other, News::Failed),
        };
        Some((id.addr(), news))
    }
}

/// Returns an event's reason for a failed connection; none if it has none.
fn failure(kind: c_int, status: c_int) -> Option<String> {
    let system = || std::io::Error::from_raw_os_error(status.saturating_abs());
    Some(match kind {
        RDMA_CM_EVENT_ADDR_ERROR => format!("nobody on the RDMA network has its address ({})", system()),
        RDMA_CM_EVENT_ROUTE_ERROR => format!("the RDMA network has no route to its address ({})", system()),
        RDMA_CM_EVENT_UNREACHABLE => format!("it does not answer on the RDMA network ({})", system()),
        RDMA_CM_EVENT_CONNECT_ERROR => format!("the connection could not be set up ({})", system()),
        // The reasons of the InfiniBand architecture, table 109.
        RDMA_CM_EVENT_REJECTED => match status {
            8 => "nobody listens at its address on the RDMA network".into(),
            10 => "it takes the queue pair for one that has just ended; start the job again".into(),
            28 => "it has refused the connection".into(),
            reason => format!("it has refused the connection (reason {reason})"),
        },
        RDMA_CM_EVENT_DEVICE_REMOVAL => "the RDMA device here was removed".into(),
        _ => return None,
    })
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: rule 2: every identifier held an `Arc` of this and is gone.
        unsafe { (self.library.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// One side of a connection, or a listener.
pub(in super::super) struct Id {
    channel: Arc<Channel>,
    raw: NonNull<super::cm_types::Id>,
}

// SAFETY: rule 6.
unsafe impl Send for Id {}
// SAFETY: rule 6.
unsafe impl Sync for Id {}

impl Id {
    pub(in super::super) fn new(channel: &Arc<Channel>) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: rules 1, 2.
        let code = unsafe {
            (channel.library.rdma_create_id)(channel.raw.as_ptr(), &mut raw, ptr::null_mut(), RDMA_PS_TCP)
        };
        match NonNull::new(raw).filter(|_| code == 0) {
            Some(raw) => Ok(Self { channel: channel.clone(), raw }),
            None => Err(last_error("make an identifier of librdmacm")),
        }
    }

    /// Returns the key of its events.
    pub(in super::super) fn key(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    fn done(code: c_int, what: impl FnOnce() -> String) -> Result<()> {
        // These calls set errno.
        if code == 0 { Ok(()) } else { Err(last_error(what())) }
    }

    /// Takes an address of this machine; returns the name of the device behind it, and the port.
    pub(in super::super) fn bind(&self, address: SocketAddr) -> Result<(String, u8)> {
        let mut raw = RawAddress::from(address);
        // SAFETY: rules 1, 2: the address is read during the call.
        let code = unsafe { (self.channel.library.rdma_bind_addr)(self.raw.as_ptr(), raw.pointer()) };
        Self::done(code, || format!("use {address} for RDMA"))?;
        // SAFETY: rule 2: the library has filled in the device, which stays open as long as the identifier.
        let (device, port) = unsafe {
            let id = self.raw.as_ref();
            (id.verbs.as_ref().map(|context| context.device), id.port_num)
        };
        let device =
            device.ok_or_else(|| RmaError::Refused(format!("no RDMA device has the address {address}")))?;
        let verbs = super::library()?;
        // SAFETY: rules 1, 2: a device has a name, which ends with a zero.
        let name = unsafe { CStr::from_ptr((verbs.ibv_get_device_name)(device)) };
        Ok((name.to_string_lossy().into_owned(), port))
    }

    /// Takes requests from now on, `backlog` at once; returns the port.
    pub(in super::super) fn listen(&self, backlog: i32) -> Result<u16> {
        let library = self.channel.library;
        // SAFETY: rules 1, 2.
        let code = unsafe { (library.rdma_listen)(self.raw.as_ptr(), backlog) };
        Self::done(code, || "listen for RDMA connections".into())?;
        // SAFETY: rules 1, 2.
        Ok(u16::from_be(unsafe { (library.rdma_get_src_port)(self.raw.as_ptr()) }))
    }

    /// Begins to look for an address, from one of this machine's.
    pub(in super::super) fn resolve_address(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        most: Duration,
    ) -> Result<()> {
        let (mut raw_from, mut raw_to) = (RawAddress::from(from), RawAddress::from(to));
        // SAFETY: rules 1, 2: the addresses are read during the call.
        let code = unsafe {
            let resolve = self.channel.library.rdma_resolve_addr;
            resolve(self.raw.as_ptr(), raw_from.pointer(), raw_to.pointer(), most.as_millis() as c_int)
        };
        Self::done(code, || format!("look for {to} on the RDMA network"))
    }

    /// Begins to look for the way there; the address was resolved.
    pub(in super::super) fn resolve_route(&self, most: Duration) -> Result<()> {
        // SAFETY: rules 1, 2.
        let code = unsafe {
            (self.channel.library.rdma_resolve_route)(self.raw.as_ptr(), most.as_millis() as c_int)
        };
        Self::done(code, || "look for a route on the RDMA network".into())
    }

    /// Begins to connect the queue pair with this number; the route was resolved.
    pub(in super::super) fn connect(&self, number: u32, reads: Reads, bytes: &[u8]) -> Result<()> {
        let mut parameters = parameters(number, reads, bytes);
        // SAFETY: rules 1, 2: the parameters are read during the call.
        let code = unsafe { (self.channel.library.rdma_connect)(self.raw.as_ptr(), &mut parameters) };
        Self::done(code, || "ask for an RDMA connection".into())
    }

    /// Accepts a request for the queue pair with this number, which receives already.
    pub(in super::super) fn accept(&self, number: u32, reads: Reads, bytes: &[u8]) -> Result<()> {
        let mut parameters = parameters(number, reads, bytes);
        // SAFETY: rules 1, 2: the parameters are read during the call.
        let code = unsafe { (self.channel.library.rdma_accept)(self.raw.as_ptr(), &mut parameters) };
        Self::done(code, || "accept an RDMA connection".into())
    }

    /// Tells the side that has accepted that the queue pair here receives.
    pub(in super::super) fn establish(&self) -> Result<()> {
        // SAFETY: rules 1, 2.
        let code = unsafe { (self.channel.library.rdma_establish)(self.raw.as_ptr()) };
        Self::done(code, || "complete an RDMA connection".into())
    }

    /// Refuses a request.
    pub(in super::super) fn reject(self) {
        // SAFETY: rules 1, 2. Should it fail, the end of the identifier says it as well.
        unsafe { (self.channel.library.rdma_reject)(self.raw.as_ptr(), ptr::null(), 0) };
    }

    /// Returns the attributes for a queue pair's transition to `state`, and their mask.
    fn attributes(&self, state: c_int) -> Result<(raw::QpAttr, c_int)> {
        let mut attributes = raw::QpAttr { qp_state: state, ..raw::QpAttr::default() };
        let mut mask = 0;
        // SAFETY: rules 1, 2.
        let code = unsafe {
            (self.channel.library.rdma_init_qp_attr)(self.raw.as_ptr(), &mut attributes, &mut mask)
        };
        Self::done(code, || "ask librdmacm for the attributes of a queue pair".into())?;
        Ok((attributes, mask & ATTRIBUTES))
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: rule 2. Its events were acknowledged as they came, so this does not wait.
        unsafe { (self.channel.library.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

fn parameters(number: u32, reads: Reads, bytes: &[u8]) -> Parameters {
    assert!(bytes.len() <= REQUEST_BYTES_MAX, "{} bytes with a request", bytes.len());
    Parameters {
        private_data: bytes.as_ptr().cast(),
        private_data_len: bytes.len() as u8,
        responder_resources: reads.answered,
        initiator_depth: reads.asked,
        flow_control: 1,
        // The queue pair's own are set by `QueuePair::join`.
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 1,
        qp_num: number,
    }
}

impl QueuePair {
    /// Connects as the identifier says: afterwards it receives and may send. Partition, addresses, path and
    /// first packets are those of librdmacm; the options' values (MTU, READs in flight, timeout, retries) are
    /// those of `route`.
    pub(in super::super) fn join(&self, id: &Id, route: &Route) -> Result<()> {
        let (mut attributes, mask) = id.attributes(IBV_QPS_INIT)?;
        // Access is what it was made with.
        attributes.qp_access_flags = 0;
        self.modify(attributes, mask & !IBV_QP_ACCESS_FLAGS, "initialise a queue pair")?;
        let (mut attributes, mask) = id.attributes(IBV_QPS_RTR)?;
        attributes.path_mtu = attributes.path_mtu.min(route.mtu);
        attributes.max_dest_rd_atomic = route.reads.answered;
        attributes.min_rnr_timer = super::RNR_TIMER;
        let address = &mut attributes.ah_attr;
        address.sl = route.service_level.unwrap_or(address.sl);
        address.grh.traffic_class = route.traffic_class.unwrap_or(address.grh.traffic_class);
        self.modify(attributes, mask | IBV_QP_MAX_DEST_RD_ATOMIC, "connect a queue pair")?;
        let (mut attributes, mask) = id.attributes(IBV_QPS_RTS)?;
        attributes.timeout = route.timeout;
        attributes.retry_cnt = route.retries;
        attributes.rnr_retry = super::RNR_RETRIES;
        attributes.max_rd_atomic = route.reads.asked;
        self.modify(attributes, mask, "let a queue pair send")
    }
}

/// A `struct sockaddr`.
enum RawAddress {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }
}

impl RawAddress {
    fn pointer(&mut self) -> *mut libc::sockaddr {
        match self {
            Self::V4(address) => ptr::from_mut(address).cast(),
            Self::V6(address) => ptr::from_mut(address).cast(),
        }
    }
}
