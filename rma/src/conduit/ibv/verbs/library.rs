//! libibverbs and librdmacm, found when they are first asked for, so that a machine without them runs everything else.

use super::cm_types::{Event as CmEvent, EventChannel, Id, Parameters};
use super::types::*;
use libloading::Library;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// Names of the library, in the order of preference. Debian's package libibverbs1 has the first.
const NAMES: [&str; 2] = ["libibverbs.so.1", "libibverbs.so"];

/// Remedy if it is missing.
pub const REMEDY: &str =
    "install libibverbs and the provider of the card (Debian: `apt install libibverbs1 ibverbs-providers`)";

/// The same for librdmacm: Debian's package of this name.
const CM_NAMES: [&str; 2] = ["librdmacm.so.1", "librdmacm.so"];

/// Remedy if librdmacm is missing.
pub const CM_REMEDY: &str = "install librdmacm (Debian: `apt install librdmacm1`)";

macro_rules! functions {
    ($Library:ident: $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library, each under its own name.
        pub(super) struct $Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Keeps the functions loaded. Never unloaded: a provider may have started threads.
            _library: Library,
        }

        impl $Library {
            fn load(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: rule 1: the types are those of the header (held against it by `tests/ibv_layout.rs`), and the
                // library lives as long as the pointers, in the same structure.
                unsafe { Ok(Self { $($name: *library.get(concat!(stringify!($name), "\0"))?,)* _library: library }) }
            }
        }
    };
}

functions! { Verbs:
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut Device;
    ibv_free_device_list: fn(*mut *mut Device);
    ibv_get_device_name: fn(*mut Device) -> *const c_char;
    ibv_open_device: fn(*mut Device) -> *mut Context;
    ibv_close_device: fn(*mut Context) -> c_int;
    ibv_get_async_event: fn(*mut Context, *mut AsyncEvent) -> c_int;
    ibv_ack_async_event: fn(*mut AsyncEvent);
    ibv_fork_init: fn() -> c_int;
    ibv_query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
    ibv_query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
    ibv_alloc_pd: fn(*mut Context) -> *mut ProtectionDomain;
    ibv_dealloc_pd: fn(*mut ProtectionDomain) -> c_int;
    ibv_reg_mr: fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    ibv_dereg_mr: fn(*mut MemoryRegion) -> c_int;
    ibv_create_comp_channel: fn(*mut Context) -> *mut CompletionChannel;
    ibv_destroy_comp_channel: fn(*mut CompletionChannel) -> c_int;
    ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut CompletionQueue;
    ibv_destroy_cq: fn(*mut CompletionQueue) -> c_int;
    ibv_get_cq_event: fn(*mut CompletionChannel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut CompletionQueue, u32);
    ibv_create_srq: fn(*mut ProtectionDomain, *mut SrqInitAttr) -> *mut SharedReceiveQueue;
    ibv_destroy_srq: fn(*mut SharedReceiveQueue) -> c_int;
    ibv_create_qp: fn(*mut ProtectionDomain, *mut QpInitAttr) -> *mut QueuePair;
    ibv_modify_qp: fn(*mut QueuePair, *mut QpAttr, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut QueuePair) -> c_int;
    ibv_wc_status_str: fn(c_int) -> *const c_char;
}

functions! { Cm:
    rdma_create_event_channel: fn() -> *mut EventChannel;
    rdma_destroy_event_channel: fn(*mut EventChannel);
    rdma_get_cm_event: fn(*mut EventChannel, *mut *mut CmEvent) -> c_int;
    rdma_ack_cm_event: fn(*mut CmEvent) -> c_int;
    rdma_create_id: fn(*mut EventChannel, *mut *mut Id, *mut c_void, c_int) -> c_int;
    rdma_destroy_id: fn(*mut Id) -> c_int;
    rdma_bind_addr: fn(*mut Id, *mut libc::sockaddr) -> c_int;
    rdma_listen: fn(*mut Id, c_int) -> c_int;
    rdma_get_src_port: fn(*mut Id) -> u16;
    rdma_resolve_addr: fn(*mut Id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
    rdma_resolve_route: fn(*mut Id, c_int) -> c_int;
    rdma_connect: fn(*mut Id, *mut Parameters) -> c_int;
    rdma_establish: fn(*mut Id) -> c_int;
    rdma_accept: fn(*mut Id, *mut Parameters) -> c_int;
    rdma_reject: fn(*mut Id, *const c_void, u8) -> c_int;
    rdma_init_qp_attr: fn(*mut Id, *mut QpAttr, *mut c_int) -> c_int;
}

/// Returns the library, or why it cannot be used and the remedy.
pub(super) fn verbs() -> Result<&'static Verbs, &'static str> {
    static VERBS: OnceLock<Result<Verbs, String>> = OnceLock::new();
    let find = || {
        let verbs = find(NAMES, Verbs::load, REMEDY)?;
        // SAFETY: rule 1: before everything else, as ibv_fork_init(3) asks for. Does nothing where the kernel (5.12) keeps
        // registered memory with the parent by itself; where it fails, a child that does not execute another program may
        // cost its parent memory, as without it.
        unsafe { (verbs.ibv_fork_init)() };
        Ok(verbs)
    };
    VERBS.get_or_init(find).as_ref().map_err(String::as_str)
}

/// Returns librdmacm, or why it cannot be used and the remedy.
pub(super) fn cm() -> Result<&'static Cm, &'static str> {
    static CM: OnceLock<Result<Cm, String>> = OnceLock::new();
    let find = || {
        // ibv_fork_init comes before everything else, in every caller.
        verbs()?;
        find(CM_NAMES, Cm::load, CM_REMEDY)
    };
    CM.get_or_init(find).as_ref().map_err(String::as_str)
}

fn find<T>(
    names: [&str; 2],
    load: fn(Library) -> Result<T, libloading::Error>,
    remedy: &str,
) -> Result<T, String> {
    let mut reason = String::new();
    for name in names {
        // SAFETY: rule 1: a system library whose initialisation has no preconditions.
        match unsafe { Library::new(name) }.and_then(load) {
            Ok(library) => return Ok(library),
            // The first is the usual name; the loader's own words are in the source of the error.
            Err(error) if reason.is_empty() => {
                reason =
                    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            }
            Err(_) => {}
        }
    }
    Err(format!("{reason}; {remedy}"))
}
