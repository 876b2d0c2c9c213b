//! Holds the declarations of the ibv conduit against the installed header: every offset, size and number, by a C program
//! that includes `<infiniband/verbs.h>` and `<rdma/rdma_cma.h>`. Without the headers or a compiler it is skipped, visibly; `RXE_INCLUDE` names a
//! folder to look in (`rma/tests/guest/run` has the header in its cache).

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;
use vgas_rma::conduit::ibv::cm_types as cm;
use vgas_rma::conduit::ibv::types::{self, number};

/// `EXPRESSION in C` and the value here.
fn expectations() -> Vec<(String, i64)> {
    let mut all: Vec<(String, i64)> = Vec::new();
    macro_rules! fields {
        ($Rust:ident = $c:literal { $($field:ident => $name:literal),* $(,)? }) => {
            $(all.push((format!("offsetof(struct {}, {})", $c, $name), offset_of!(types::$Rust, $field) as i64));)*
        };
    }
    macro_rules! sizes {
        ($($Rust:ident = $c:literal),* $(,)?) => {
            $(all.push((format!("sizeof(struct {})", $c), size_of::<types::$Rust>() as i64));)*
        };
    }
    macro_rules! numbers {
        ($($name:ident),* $(,)?) => { $(all.push((stringify!($name).to_owned(), i64::from(number::$name)));)* };
    }
    all.extend(of_librdmacm());
    fields!(ContextOps = "ibv_context_ops" {
        poll_cq => "poll_cq", req_notify_cq => "req_notify_cq", post_srq_recv => "post_srq_recv",
        post_send => "post_send",
    });
    fields!(Context = "ibv_context" { ops => "ops", cmd_fd => "cmd_fd", async_fd => "async_fd" });
    fields!(AsyncEvent = "ibv_async_event" { element => "element", event_type => "event_type" });
    fields!(CompletionChannel = "ibv_comp_channel" { fd => "fd" });
    fields!(QueuePair = "ibv_qp" { context => "context", srq => "srq", qp_num => "qp_num" });
    fields!(MemoryRegion = "ibv_mr" { addr => "addr", length => "length", lkey => "lkey", rkey => "rkey" });
    fields!(DeviceAttr = "ibv_device_attr" {
        max_qp_wr => "max_qp_wr", max_cqe => "max_cqe", max_qp_rd_atom => "max_qp_rd_atom",
        max_qp_init_rd_atom => "max_qp_init_rd_atom",
        atomic_cap => "atomic_cap", max_srq_wr => "max_srq_wr", phys_port_cnt => "phys_port_cnt",
    });
    fields!(PortAttr = "ibv_port_attr" {
        state => "state", active_mtu => "active_mtu", gid_tbl_len => "gid_tbl_len", lid => "lid",
        link_layer => "link_layer", port_cap_flags2 => "port_cap_flags2",
    });
    fields!(SrqInitAttr = "ibv_srq_init_attr" {
        max_wr => "attr.max_wr", max_sge => "attr.max_sge", srq_limit => "attr.srq_limit",
    });
    fields!(QpInitAttr = "ibv_qp_init_attr" {
        send_cq => "send_cq", recv_cq => "recv_cq", srq => "srq", cap => "cap", qp_type => "qp_type",
        sq_sig_all => "sq_sig_all",
    });
    fields!(QpCap = "ibv_qp_cap" { max_send_sge => "max_send_sge", max_inline_data => "max_inline_data" });
    fields!(GlobalRoute = "ibv_global_route" {
        dgid => "dgid", sgid_index => "sgid_index", hop_limit => "hop_limit", traffic_class => "traffic_class",
    });
    fields!(AhAttr = "ibv_ah_attr" {
        grh => "grh", dlid => "dlid", is_global => "is_global", port_num => "port_num",
    });
    fields!(QpAttr = "ibv_qp_attr" {
        qp_state => "qp_state", path_mtu => "path_mtu", rq_psn => "rq_psn", sq_psn => "sq_psn",
        dest_qp_num => "dest_qp_num", qp_access_flags => "qp_access_flags", cap => "cap", ah_attr => "ah_attr",
        max_rd_atomic => "max_rd_atomic", max_dest_rd_atomic => "max_dest_rd_atomic",
        min_rnr_timer => "min_rnr_timer", port_num => "port_num", timeout => "timeout", retry_cnt => "retry_cnt",
        rnr_retry => "rnr_retry", rate_limit => "rate_limit",
    });
    fields!(Sge = "ibv_sge" { addr => "addr", length => "length", lkey => "lkey" });
    fields!(SendRequest = "ibv_send_wr" {
        next => "next", sg_list => "sg_list", num_sge => "num_sge", opcode => "opcode", send_flags => "send_flags",
        imm_data => "imm_data", wr => "wr", remote_srqn => "qp_type",
    });
    fields!(ReceiveRequest = "ibv_recv_wr" { next => "next", sg_list => "sg_list", num_sge => "num_sge" });
    fields!(Completion = "ibv_wc" {
        status => "status", opcode => "opcode", byte_len => "byte_len", imm_data => "imm_data", qp_num => "qp_num", wc_flags => "wc_flags",
        dlid_path_bits => "dlid_path_bits",
    });
    let rdma = offset_of!(types::SendRequest, wr) as i64;
    for (name, offset) in [
        ("wr.rdma.remote_addr", offset_of!(types::RemoteRdma, remote_addr)),
        ("wr.rdma.rkey", offset_of!(types::RemoteRdma, rkey)),
        ("wr.atomic.remote_addr", offset_of!(types::RemoteAtomic, remote_addr)),
        ("wr.atomic.compare_add", offset_of!(types::RemoteAtomic, compare_add)),
        ("wr.atomic.swap", offset_of!(types::RemoteAtomic, swap)),
        ("wr.atomic.rkey", offset_of!(types::RemoteAtomic, rkey)),
    ] {
        all.push((format!("offsetof(struct ibv_send_wr, {name})"), rdma + offset as i64));
    }
    sizes!(
        AsyncEvent = "ibv_async_event",
        ContextOps = "ibv_context_ops",
        DeviceAttr = "ibv_device_attr",
        PortAttr = "ibv_port_attr",
        SrqInitAttr = "ibv_srq_init_attr",
        QpInitAttr = "ibv_qp_init_attr",
        QpCap = "ibv_qp_cap",
        GlobalRoute = "ibv_global_route",
        AhAttr = "ibv_ah_attr",
        QpAttr = "ibv_qp_attr",
        Sge = "ibv_sge",
        SendRequest = "ibv_send_wr",
        ReceiveRequest = "ibv_recv_wr",
        Completion = "ibv_wc",
    );
    numbers!(
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_SEND,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_SEND_SIGNALED,
        IBV_SEND_INLINE,
        IBV_WC_SUCCESS,
        IBV_WC_WR_FLUSH_ERR,
        IBV_WC_REM_ACCESS_ERR,
        IBV_WC_RETRY_EXC_ERR,
        IBV_WC_RECV,
        IBV_WC_RECV_RDMA_WITH_IMM,
        IBV_ACCESS_LOCAL_WRITE,
        IBV_ACCESS_REMOTE_WRITE,
        IBV_ACCESS_REMOTE_READ,
        IBV_ACCESS_REMOTE_ATOMIC,
        IBV_ACCESS_ON_DEMAND,
        IBV_ATOMIC_NONE,
        IBV_QPT_RC,
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        IBV_QPS_RTS,
        IBV_QPS_ERR,
        IBV_QP_STATE,
        IBV_QP_ACCESS_FLAGS,
        IBV_QP_PKEY_INDEX,
        IBV_QP_PORT,
        IBV_QP_AV,
        IBV_QP_PATH_MTU,
        IBV_QP_TIMEOUT,
        IBV_QP_RETRY_CNT,
        IBV_QP_RNR_RETRY,
        IBV_QP_RQ_PSN,
        IBV_QP_MAX_QP_RD_ATOMIC,
        IBV_QP_MIN_RNR_TIMER,
        IBV_QP_SQ_PSN,
        IBV_QP_MAX_DEST_RD_ATOMIC,
        IBV_QP_DEST_QPN,
        IBV_EVENT_CQ_ERR,
        IBV_EVENT_QP_FATAL,
        IBV_EVENT_QP_REQ_ERR,
        IBV_EVENT_QP_ACCESS_ERR,
        IBV_EVENT_COMM_EST,
        IBV_EVENT_SQ_DRAINED,
        IBV_EVENT_PATH_MIG,
        IBV_EVENT_PATH_MIG_ERR,
        IBV_EVENT_DEVICE_FATAL,
        IBV_EVENT_PORT_ACTIVE,
        IBV_EVENT_PORT_ERR,
        IBV_EVENT_LID_CHANGE,
        IBV_EVENT_PKEY_CHANGE,
        IBV_EVENT_SM_CHANGE,
        IBV_EVENT_SRQ_ERR,
        IBV_EVENT_QP_LAST_WQE_REACHED,
        IBV_EVENT_CLIENT_REREGISTER,
        IBV_EVENT_GID_CHANGE,
        IBV_PORT_ACTIVE,
    );
    all.push(("IBV_LINK_LAYER_ETHERNET".into(), i64::from(number::IBV_LINK_LAYER_ETHERNET)));
    all
}

/// The same of librdmacm.
fn of_librdmacm() -> Vec<(String, i64)> {
    let mut all: Vec<(String, i64)> = Vec::new();
    macro_rules! fields {
        ($Rust:ident = $c:literal { $($field:ident => $name:literal),* $(,)? }) => {
            $(all.push((format!("offsetof(struct {}, {})", $c, $name), offset_of!(cm::$Rust, $field) as i64));)*
        };
    }
    macro_rules! numbers {
        ($($name:ident),* $(,)?) => { $(all.push((stringify!($name).to_owned(), i64::from(cm::$name)));)* };
    }
    fields!(EventChannel = "rdma_event_channel" { fd => "fd" });
    fields!(Id = "rdma_cm_id" {
        verbs => "verbs", channel => "channel", context => "context", qp => "qp", route => "route", ps => "ps",
        port_num => "port_num",
    });
    fields!(Parameters = "rdma_conn_param" {
        private_data => "private_data", private_data_len => "private_data_len",
        responder_resources => "responder_resources", initiator_depth => "initiator_depth",
        flow_control => "flow_control", retry_count => "retry_count", rnr_retry_count => "rnr_retry_count",
        srq => "srq", qp_num => "qp_num",
    });
    fields!(Event = "rdma_cm_event" {
        id => "id", listen_id => "listen_id", event => "event", status => "status", conn => "param.conn",
    });
    all.push(("sizeof(struct rdma_conn_param)".into(), size_of::<cm::Parameters>() as i64));
    numbers!(
        RDMA_PS_TCP,
        RDMA_CM_EVENT_ADDR_RESOLVED,
        RDMA_CM_EVENT_ADDR_ERROR,
        RDMA_CM_EVENT_ROUTE_RESOLVED,
        RDMA_CM_EVENT_ROUTE_ERROR,
        RDMA_CM_EVENT_CONNECT_REQUEST,
        RDMA_CM_EVENT_CONNECT_RESPONSE,
        RDMA_CM_EVENT_CONNECT_ERROR,
        RDMA_CM_EVENT_UNREACHABLE,
        RDMA_CM_EVENT_REJECTED,
        RDMA_CM_EVENT_ESTABLISHED,
        RDMA_CM_EVENT_DISCONNECTED,
        RDMA_CM_EVENT_DEVICE_REMOVAL,
        RDMA_CM_EVENT_TIMEWAIT_EXIT,
    );
    all
}

#[test]
fn declarations_are_those_of_the_header() {
    let include = std::env::var("RXE_INCLUDE").unwrap_or("/usr/include".into());
    for (header, package) in [("infiniband/verbs.h", "libibverbs-dev"), ("rdma/rdma_cma.h", "librdmacm-dev")]
    {
        if !Path::new(&include).join(header).exists() {
            println!("skipped: no {header} in {include} (Debian: `apt install {package}`)");
            return;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    // The compiler compares: a difference is an error that prints the line.
    let mut program =
        String::from("#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n");
    for (expression, value) in expectations() {
        writeln!(
            program,
            "_Static_assert((long)({expression}) == {value}, \"{expression} is not {value}\");"
        )
        .unwrap();
    }
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new("cc").args(["-fsyntax-only", "-I", &include]).arg(&source).output();
    let compiled = match compiled {
        Ok(output) => output,
        Err(error) => return println!("skipped: no C compiler ({error})"),
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
