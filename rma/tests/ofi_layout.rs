//! Holds the declarations of the ofi conduit against installed headers: every offset, size and number, by a C program that includes
//! `<rdma/*.h>`. Without the headers or a compiler it is skipped, visibly; `OFI_INCLUDE` names a folder to look in.

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;
use vgas_rma::conduit::ofi::types::{self, number};

/// `EXPRESSION in C` and the value here.
fn expectations() -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = Vec::new();
    macro_rules! fields {
        ($Rust:ident = $c:literal { $($field:ident $(=> $name:literal)?),* $(,)? }) => {
            $({
                let name = [stringify!($field) $(, $name)?];
                let name = name[name.len() - 1];
                all.push((format!("offsetof(struct {}, {name})", $c), offset_of!(types::$Rust, $field) as u64));
            })*
        };
    }
    macro_rules! sizes {
        ($($Rust:ident = $c:literal),* $(,)?) => {
            $(all.push((format!("sizeof(struct {})", $c), size_of::<types::$Rust>() as u64));)*
        };
    }
    macro_rules! numbers {
        ($($name:ident),* $(,)?) => { $(all.push((stringify!($name).to_owned(), number::$name as u64));)* };
    }
    fields!(Fid = "fid" { fclass, context, ops });
    fields!(Ops = "fi_ops" { size, close, bind, control });
    fields!(TxAttr = "fi_tx_attr" { caps, mode, op_flags, msg_order, comp_order, inject_size, size });
    fields!(RxAttr = "fi_rx_attr" { caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size });
    fields!(EpAttr = "fi_ep_attr" { kind => "type", protocol, protocol_version, max_msg_size, msg_prefix_size });
    fields!(DomainAttr = "fi_domain_attr" {
        domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode, mr_key_size,
        cq_data_size,
    });
    fields!(FabricAttr = "fi_fabric_attr" { fabric, name, prov_name, prov_version, api_version });
    fields!(Info = "fi_info" {
        next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr, rx_attr,
        ep_attr, domain_attr, fabric_attr, nic,
    });
    fields!(Fabric = "fid_fabric" { fid, ops });
    fields!(FabricOps = "fi_ops_fabric" { size, domain, passive_ep, eq_open, wait_open, trywait });
    fields!(Domain = "fid_domain" { fid, ops, mr });
    fields!(DomainOps = "fi_ops_domain" { size, av_open, cq_open, endpoint });
    fields!(MrOps = "fi_ops_mr" { size, reg });
    fields!(Mr = "fid_mr" { fid, mem_desc, key });
    fields!(AvAttr = "fi_av_attr" { kind => "type", rx_ctx_bits, count, ep_per_node, name, map_addr, flags });
    fields!(Av = "fid_av" { fid, ops });
    fields!(AvOps = "fi_ops_av" { size, insert });
    fields!(CqAttr = "fi_cq_attr" { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set });
    fields!(Cq = "fid_cq" { fid, ops });
    fields!(CqOps = "fi_ops_cq" { size, read, readfrom, readerr, sread, sreadfrom, signal, strerror });
    fields!(CqMsgEntry = "fi_cq_msg_entry" { op_context, flags, len });
    fields!(CqErrEntry = "fi_cq_err_entry" {
        op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size,
    });
    fields!(Ep = "fid_ep" { fid, ops, cm, msg, rma });
    fields!(CmOps = "fi_ops_cm" { size, setname, getname });
    fields!(MsgOps = "fi_ops_msg" { size, recv, recvv, recvmsg, send, sendv, sendmsg, inject });
    fields!(RmaOps = "fi_ops_rma" { size, read, readv, readmsg, write, writev, writemsg });
    fields!(RmaIov = "fi_rma_iov" { addr, len, key });
    fields!(MsgRma = "fi_msg_rma" { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data });
    // What is made here and read by the library has its length; what the library makes may become longer.
    sizes!(
        Fid = "fid",
        AvAttr = "fi_av_attr",
        CqAttr = "fi_cq_attr",
        CqMsgEntry = "fi_cq_msg_entry",
        RmaIov = "fi_rma_iov",
        MsgRma = "fi_msg_rma",
        Context = "fi_context2",
    );
    numbers!(
        FI_MSG,
        FI_RMA,
        FI_READ,
        FI_WRITE,
        FI_RECV,
        FI_TRANSMIT,
        FI_REMOTE_READ,
        FI_REMOTE_WRITE,
        FI_DELIVERY_COMPLETE,
        FI_CONTEXT,
        FI_CONTEXT2,
        FI_ADDR_NOTAVAIL,
        FI_SOCKADDR_IN,
        FI_EP_RDM,
        FI_THREAD_SAFE,
        FI_RM_ENABLED,
        FI_MR_LOCAL,
        FI_MR_VIRT_ADDR,
        FI_MR_ALLOCATED,
        FI_MR_PROV_KEY,
        FI_MR_ENDPOINT,
        FI_CQ_FORMAT_MSG,
        FI_WAIT_NONE,
        FI_WAIT_FD,
        FI_GETWAIT,
        FI_ENABLE,
        FI_EAGAIN,
        FI_ENODATA,
        FI_ENOKEY,
        FI_EAVAIL,
    );
    all
}

#[test]
fn declarations_are_those_of_the_headers() {
    let include = std::env::var("OFI_INCLUDE").unwrap_or("/usr/include".into());
    if !Path::new(&include).join("rdma/fabric.h").exists() {
        let what = format!("no rdma/fabric.h in {include} (Debian: `apt install libfabric-dev`)");
        assert!(
            std::env::var_os("VGAS_TEST_OFI").is_none(),
            "the machine is to have what this tests: {what}"
        );
        return println!("skipped: declarations_are_those_of_the_headers: {what}");
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    let headers = ["fabric", "fi_errno", "fi_domain", "fi_endpoint", "fi_cm", "fi_rma", "fi_eq"];
    let mut program = String::from("#include <stddef.h>\n#include <sys/uio.h>\n");
    headers.iter().for_each(|header| writeln!(program, "#include <rdma/{header}.h>").unwrap());
    // The compiler compares: a difference is an error that prints the line.
    for (expression, value) in expectations() {
        writeln!(
            program,
            "_Static_assert((unsigned long)({expression}) == {value}ul, \"{expression} is not {value}\");"
        )
        .unwrap();
    }
    // The room for an error may be longer than the header's, never shorter.
    let room = size_of::<types::CqErrEntry>();
    writeln!(program, "_Static_assert(sizeof(struct fi_cq_err_entry) <= {room}, \"errors are longer\");")
        .unwrap();
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new("cc").args(["-fsyntax-only", "-I", &include]).arg(&source).output();
    let compiled = match compiled {
        Ok(output) => output,
        Err(error) => return println!("skipped: no C compiler ({error})"),
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
