//! The structures and numbers of libfabric that this conduit uses, as its headers (`<rdma/*.h>`, from 1.14
//! on) declare them; a test holds each of them against installed headers. Structures that the library
//! allocates may be longer in a later version: they are only read through a pointer, and a table of functions
//! gives its own size.

#![allow(missing_docs, reason = "the names are those of the headers, where they are documented")]

use std::ffi::{c_char, c_int, c_void};

/// Any object: each begins with this.
#[repr(C)]
#[derive(Debug)]
pub struct Fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *mut Ops,
}

/// A function of a table that is never called from here.
pub type Unused = *const c_void;

/// Operations of every object.
#[repr(C)]
#[derive(Debug)]
pub struct Ops {
    pub size: usize,
    pub close: Option<unsafe extern "C" fn(*mut Fid) -> c_int>,
    pub bind: Option<unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int>,
    pub control: Option<unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int>,
}

#[repr(C)]
#[derive(Debug)]
pub struct TxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
}

#[repr(C)]
#[derive(Debug)]
pub struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
}

#[repr(C)]
#[derive(Debug)]
pub struct EpAttr {
    pub kind: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
}

#[repr(C)]
#[derive(Debug)]
pub struct DomainAttr {
    pub domain: *mut Domain,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
}

#[repr(C)]
#[derive(Debug)]
pub struct FabricAttr {
    pub fabric: *mut Fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct Info {
    pub next: *mut Info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut Fid,
    pub tx_attr: *mut TxAttr,
    pub rx_attr: *mut RxAttr,
    pub ep_attr: *mut EpAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
    pub nic: *mut c_void,
}

#[repr(C)]
#[derive(Debug)]
pub struct Fabric {
    pub fid: Fid,
    pub ops: *mut FabricOps,
}

#[repr(C)]
#[derive(Debug)]
pub struct FabricOps {
    pub size: usize,
    pub domain: Option<unsafe extern "C" fn(*mut Fabric, *mut Info, *mut *mut Domain, *mut c_void) -> c_int>,
    pub passive_ep: Unused,
    pub eq_open: Unused,
    pub wait_open: Unused,
    pub trywait: Option<unsafe extern "C" fn(*mut Fabric, *mut *mut Fid, c_int) -> c_int>,
}

#[repr(C)]
#[derive(Debug)]
pub struct Domain {
    pub fid: Fid,
    pub ops: *mut DomainOps,
    pub mr: *mut MrOps,
}

#[repr(C)]
#[derive(Debug)]
pub struct DomainOps {
    pub size: usize,
    pub av_open: Option<unsafe extern "C" fn(*mut Domain, *mut AvAttr, *mut *mut Av, *mut c_void) -> c_int>,
    pub cq_open: Option<unsafe extern "C" fn(*mut Domain, *mut CqAttr, *mut *mut Cq, *mut c_void) -> c_int>,
    pub endpoint: Option<unsafe extern "C" fn(*mut Domain, *mut Info, *mut *mut Ep, *mut c_void) -> c_int>,
}

#[repr(C)]
#[derive(Debug)]
pub struct MrOps {
    pub size: usize,
    pub reg: Option<
        unsafe extern "C" fn(
            *mut Fid,
            *const c_void,
            usize,
            u64,
            u64,
            u64,
            u64,
            *mut *mut Mr,
            *mut c_void,
        ) -> c_int,
    >,
}

#[repr(C)]
#[derive(Debug)]
pub struct Mr {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct AvAttr {
    pub kind: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct Av {
    pub fid: Fid,
    pub ops: *mut AvOps,
}

#[repr(C)]
#[derive(Debug)]
pub struct AvOps {
    pub size: usize,
    pub insert:
        Option<unsafe extern "C" fn(*mut Av, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int>,
}

#[repr(C)]
#[derive(Debug)]
pub struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
#[derive(Debug)]
pub struct Cq {
    pub fid: Fid,
    pub ops: *mut CqOps,
}

#[repr(C)]
#[derive(Debug)]
pub struct CqOps {
    pub size: usize,
    pub read: Option<unsafe extern "C" fn(*mut Cq, *mut c_void, usize) -> isize>,
    pub readfrom: Unused,
    pub readerr: Option<unsafe extern "C" fn(*mut Cq, *mut CqErrEntry, u64) -> isize>,
    pub sread: Unused,
    pub sreadfrom: Unused,
    pub signal: Unused,
    pub strerror:
        Option<unsafe extern "C" fn(*mut Cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CqMsgEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
}

#[repr(C)]
#[derive(Debug)]
pub struct CqErrEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    /// A later version may write more.
    pub rest: [u64; 4],
}

#[repr(C)]
#[derive(Debug)]
pub struct Ep {
    pub fid: Fid,
    pub ops: *mut c_void,
    pub cm: *mut CmOps,
    pub msg: *mut MsgOps,
    pub rma: *mut RmaOps,
}

#[repr(C)]
#[derive(Debug)]
pub struct CmOps {
    pub size: usize,
    pub setname: Unused,
    pub getname: Option<unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int>,
}

/// `send` and `recv`: endpoint, memory, length, its descriptor, peer, context.
pub type Transfer = unsafe extern "C" fn(*mut Ep, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize;

#[repr(C)]
#[derive(Debug)]
pub struct MsgOps {
    pub size: usize,
    pub recv: Option<Transfer>,
    pub recvv: Unused,
    pub recvmsg: Unused,
    pub send: Option<Transfer>,
    pub sendv: Unused,
    pub sendmsg: Unused,
    pub inject: Option<Inject>,
}

/// Endpoint, bytes, length, peer.
pub type Inject = unsafe extern "C" fn(*mut Ep, *const c_void, usize, u64) -> isize;

#[repr(C)]
#[derive(Debug)]
pub struct RmaOps {
    pub size: usize,
    pub read: Option<Read>,
    pub readv: Unused,
    pub readmsg: Unused,
    pub write: Unused,
    pub writev: Unused,
    pub writemsg: Option<WriteMsg>,
}

/// Endpoint, memory, length, its descriptor, peer, address there, key there, context.
pub type Read =
    unsafe extern "C" fn(*mut Ep, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize;

/// Endpoint, message, flags.
pub type WriteMsg = unsafe extern "C" fn(*mut Ep, *const MsgRma, u64) -> isize;

#[repr(C)]
#[derive(Debug)]
pub struct RmaIov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct MsgRma {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub rma_iov: *const RmaIov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

/// A provider's data of a request until it has completed (`fi_context2`).
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    pub internal: [*mut c_void; 8],
}

/// The numbers, by their names in C.
pub mod number {
    use std::ffi::c_int;

    pub const FI_MSG: u64 = 1 << 1;
    pub const FI_RMA: u64 = 1 << 2;
    pub const FI_READ: u64 = 1 << 8;
    pub const FI_WRITE: u64 = 1 << 9;
    pub const FI_RECV: u64 = 1 << 10;
    pub const FI_TRANSMIT: u64 = 1 << 11;
    pub const FI_REMOTE_READ: u64 = 1 << 12;
    pub const FI_REMOTE_WRITE: u64 = 1 << 13;
    pub const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
    pub const FI_CONTEXT: u64 = 1 << 59;
    pub const FI_CONTEXT2: u64 = 1 << 52;
    pub const FI_ADDR_NOTAVAIL: u64 = u64::MAX;
    pub const FI_SOCKADDR_IN: u32 = 2;
    pub const FI_EP_RDM: c_int = 3;
    pub const FI_THREAD_SAFE: c_int = 1;
    pub const FI_RM_ENABLED: c_int = 2;
    pub const FI_MR_LOCAL: c_int = 1 << 2;
    pub const FI_MR_VIRT_ADDR: c_int = 1 << 4;
    pub const FI_MR_ALLOCATED: c_int = 1 << 5;
    pub const FI_MR_PROV_KEY: c_int = 1 << 6;
    pub const FI_MR_ENDPOINT: c_int = 1 << 9;
    pub const FI_CQ_FORMAT_MSG: c_int = 2;
    pub const FI_WAIT_NONE: c_int = 0;
    pub const FI_WAIT_FD: c_int = 3;
    pub const FI_GETWAIT: c_int = 5;
    pub const FI_ENABLE: c_int = 6;
    pub const FI_EAGAIN: c_int = libc::EAGAIN;
    pub const FI_ENODATA: c_int = libc::ENODATA;
    pub const FI_ENOKEY: c_int = 266;
    pub const FI_EAVAIL: c_int = 259;
}
