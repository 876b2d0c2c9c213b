//! The structures and numbers of `<infiniband/verbs.h>` that this conduit uses (rdma-core, ABI `IBVERBS_1.1`, unchanged
//! since 2008 except for additions at the ends). Objects that the library makes are declared as far as they are read.
//! `tests/ibv_layout.rs` holds every offset and number against the installed header.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "the names of the header, explained there and in the manual pages")]

use std::ffi::{c_char, c_int, c_void};

/// `union ibv_gid`.
pub type Gid = [u8; 16];

#[repr(C)]
pub struct Device {
    _private: [u8; 0],
}

#[repr(C)]
pub struct ProtectionDomain {
    _private: [u8; 0],
}

/// The functions behind the header's inline ones, by position in `struct ibv_context_ops`.
#[repr(C)]
pub struct ContextOps {
    pub before_poll_cq: [Option<unsafe extern "C" fn()>; 11],
    pub poll_cq: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut Completion) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int>,
    pub before_post_srq_recv: [Option<unsafe extern "C" fn()>; 7],
    pub post_srq_recv: Option<
        unsafe extern "C" fn(*mut SharedReceiveQueue, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int,
    >,
    pub before_post_send: [Option<unsafe extern "C" fn()>; 4],
    pub post_send:
        Option<unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int>,
    pub after_post_send: [Option<unsafe extern "C" fn()>; 6],
}

/// The member `element` of `struct ibv_async_event`, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy)]
pub union EventElement {
    pub qp: *mut QueuePair,
    pub port_num: c_int,
}

/// `struct ibv_async_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AsyncEvent {
    pub element: EventElement,
    pub event_type: c_int,
}

/// `struct ibv_context`, its first members.
#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub struct CompletionChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// `struct ibv_cq`, its first members.
#[repr(C)]
pub struct CompletionQueue {
    pub context: *mut Context,
}

/// `struct ibv_srq`, its first members.
#[repr(C)]
pub struct SharedReceiveQueue {
    pub context: *mut Context,
}

/// `struct ibv_qp`, its first members.
#[repr(C)]
pub struct QueuePair {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut ProtectionDomain,
    pub send_cq: *mut CompletionQueue,
    pub recv_cq: *mut CompletionQueue,
    pub srq: *mut SharedReceiveQueue,
    pub handle: u32,
    pub qp_num: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
pub struct MemoryRegion {
    pub context: *mut Context,
    pub pd: *mut ProtectionDomain,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct ibv_device_attr`.
#[repr(C)]
pub struct DeviceAttr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: u32,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_int,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PortAttr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

/// `struct ibv_srq_init_attr`.
#[repr(C)]
pub struct SrqInitAttr {
    pub srq_context: *mut c_void,
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut CompletionQueue,
    pub recv_cq: *mut CompletionQueue,
    pub srq: *mut SharedReceiveQueue,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

/// `struct ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct GlobalRoute {
    /// 8-byte aligned in the header, because of the union's other member.
    pub dgid: [u64; 2],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AhAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpAttr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// The member `wr` of `struct ibv_send_wr`: `rdma` uses the first two of its atomic form, with the key second.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Remote {
    pub rdma: RemoteRdma,
    pub atomic: RemoteAtomic,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RemoteRdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RemoteAtomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
pub struct SendRequest {
    pub wr_id: u64,
    pub next: *mut SendRequest,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: u32,
    pub imm_data: u32,
    pub wr: Remote,
    pub remote_srqn: u32,
    /// `bind_mw` or `tso`, unused here.
    pub rest: [u64; 6],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub struct ReceiveRequest {
    pub wr_id: u64,
    pub next: *mut ReceiveRequest,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// Numbers, under the header's names.
pub mod number {
    use std::ffi::c_int;

    pub const IBV_WR_RDMA_WRITE: c_int = 0;
    pub const IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
    pub const IBV_WR_SEND: c_int = 2;
    pub const IBV_WR_RDMA_READ: c_int = 4;
    pub const IBV_WR_ATOMIC_CMP_AND_SWP: c_int = 5;
    pub const IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
    pub const IBV_SEND_SIGNALED: u32 = 1 << 1;
    pub const IBV_SEND_INLINE: u32 = 1 << 3;
    pub const IBV_WC_SUCCESS: c_int = 0;
    pub const IBV_WC_WR_FLUSH_ERR: c_int = 5;
    pub const IBV_WC_REM_ACCESS_ERR: c_int = 10;
    pub const IBV_WC_RETRY_EXC_ERR: c_int = 12;
    pub const IBV_WC_RECV: c_int = 1 << 7;
    pub const IBV_WC_RECV_RDMA_WITH_IMM: c_int = (1 << 7) + 1;
    pub const IBV_ACCESS_LOCAL_WRITE: c_int = 1;
    pub const IBV_ACCESS_REMOTE_WRITE: c_int = 1 << 1;
    pub const IBV_ACCESS_REMOTE_READ: c_int = 1 << 2;
    pub const IBV_ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;
    pub const IBV_ACCESS_ON_DEMAND: c_int = 1 << 6;
    pub const IBV_ATOMIC_NONE: c_int = 0;
    pub const IBV_QPT_RC: c_int = 2;
    pub const IBV_QPS_INIT: c_int = 1;
    pub const IBV_QPS_RTR: c_int = 2;
    pub const IBV_QPS_RTS: c_int = 3;
    pub const IBV_QPS_ERR: c_int = 6;
    pub const IBV_QP_STATE: c_int = 1;
    pub const IBV_QP_ACCESS_FLAGS: c_int = 1 << 3;
    pub const IBV_QP_PKEY_INDEX: c_int = 1 << 4;
    pub const IBV_QP_PORT: c_int = 1 << 5;
    pub const IBV_QP_AV: c_int = 1 << 7;
    pub const IBV_QP_PATH_MTU: c_int = 1 << 8;
    pub const IBV_QP_TIMEOUT: c_int = 1 << 9;
    pub const IBV_QP_RETRY_CNT: c_int = 1 << 10;
    pub const IBV_QP_RNR_RETRY: c_int = 1 << 11;
    pub const IBV_QP_RQ_PSN: c_int = 1 << 12;
    pub const IBV_QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
    pub const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;
    pub const IBV_QP_SQ_PSN: c_int = 1 << 16;
    pub const IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub const IBV_QP_DEST_QPN: c_int = 1 << 20;
    pub const IBV_EVENT_CQ_ERR: c_int = 0;
    pub const IBV_EVENT_QP_FATAL: c_int = 1;
    pub const IBV_EVENT_QP_REQ_ERR: c_int = 2;
    pub const IBV_EVENT_QP_ACCESS_ERR: c_int = 3;
    pub const IBV_EVENT_COMM_EST: c_int = 4;
    pub const IBV_EVENT_SQ_DRAINED: c_int = 5;
    pub const IBV_EVENT_PATH_MIG: c_int = 6;
    pub const IBV_EVENT_PATH_MIG_ERR: c_int = 7;
    pub const IBV_EVENT_DEVICE_FATAL: c_int = 8;
    pub const IBV_EVENT_PORT_ACTIVE: c_int = 9;
    pub const IBV_EVENT_PORT_ERR: c_int = 10;
    pub const IBV_EVENT_LID_CHANGE: c_int = 11;
    pub const IBV_EVENT_PKEY_CHANGE: c_int = 12;
    pub const IBV_EVENT_SM_CHANGE: c_int = 13;
    pub const IBV_EVENT_SRQ_ERR: c_int = 14;
    pub const IBV_EVENT_QP_LAST_WQE_REACHED: c_int = 16;
    pub const IBV_EVENT_CLIENT_REREGISTER: c_int = 17;
    pub const IBV_EVENT_GID_CHANGE: c_int = 18;
    pub const IBV_PORT_ACTIVE: c_int = 4;
    pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;
}
