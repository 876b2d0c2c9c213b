//! The structures and numbers of `<rdma/rdma_cma.h>` that this conduit uses (rdma-core, ABI `RDMACM_1.0`), as far as they are
//! read. `tests/ibv_layout.rs` holds every offset and number against the installed header.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "the names of the header, explained there and in the manual pages")]

use super::types::{Context, QueuePair};
use std::ffi::{c_int, c_void};

/// `struct rdma_event_channel`.
#[repr(C)]
pub struct EventChannel {
    pub fd: c_int,
}

/// `struct rdma_cm_id`, its first members. The library makes them all.
#[repr(C)]
pub struct Id {
    pub verbs: *mut Context,
    pub channel: *mut EventChannel,
    pub context: *mut c_void,
    pub qp: *mut QueuePair,
    /// Addresses and paths, not read.
    pub route: [u64; 39],
    pub ps: c_int,
    pub port_num: u8,
}

/// `struct rdma_conn_param`.
#[repr(C)]
pub struct Parameters {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// `struct rdma_cm_event`, as that of a connection. The library makes them all.
#[repr(C)]
pub struct Event {
    pub id: *mut Id,
    pub listen_id: *mut Id,
    pub event: c_int,
    pub status: c_int,
    pub conn: Parameters,
}

pub const RDMA_PS_TCP: c_int = 0x0106;
pub const RDMA_CM_EVENT_ADDR_RESOLVED: c_int = 0;
pub const RDMA_CM_EVENT_ADDR_ERROR: c_int = 1;
pub const RDMA_CM_EVENT_ROUTE_RESOLVED: c_int = 2;
pub const RDMA_CM_EVENT_ROUTE_ERROR: c_int = 3;
pub const RDMA_CM_EVENT_CONNECT_REQUEST: c_int = 4;
pub const RDMA_CM_EVENT_CONNECT_RESPONSE: c_int = 5;
pub const RDMA_CM_EVENT_CONNECT_ERROR: c_int = 6;
pub const RDMA_CM_EVENT_UNREACHABLE: c_int = 7;
pub const RDMA_CM_EVENT_REJECTED: c_int = 8;
pub const RDMA_CM_EVENT_ESTABLISHED: c_int = 9;
pub const RDMA_CM_EVENT_DISCONNECTED: c_int = 10;
pub const RDMA_CM_EVENT_DEVICE_REMOVAL: c_int = 11;
pub const RDMA_CM_EVENT_TIMEWAIT_EXIT: c_int = 15;
