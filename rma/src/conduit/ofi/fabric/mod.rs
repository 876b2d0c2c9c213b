//! libfabric as objects that end by themselves: all calls into the library, and all `unsafe` of this conduit.
//!
//! # Why this is sound
//!
//! 1. *Types.* Functions and structures are declared as in the headers; a test compares every offset with
//!    them. A table of functions has its length: a member is used if it lies within and is not null.
//! 2. *Life.* A pointer that the library returned is checked for null, closed once, when its owner is
//!    dropped, and every object holds what it was made from, so the order of ends is right. The library is
//!    never unloaded, and its offers ([`offers`]) are never freed, nor are their fabrics.
//! 3. *Memory under requests.* A request names memory of a [`Registration`], which keeps its mapping; its
//!    range is checked against it before. A registration that requests may still use is dropped only after
//!    the port, in [`super::shared::Shared`]. A provider's data of a request lies in the port's contexts, one
//!    a request in flight.
//! 4. *Shared bytes.* Memory that a peer may write is only copied, under the rules of [`vgas_shm`]; received
//!    bytes are private from their completion until their slot is posted again: as long as there is a
//!    [`Slot`] of it, and there is one at a time.
//! 5. *Sources and destinations.* A [`Source`] is vouched for by the caller of the conduit, for the time of the call; an address
//!    from [`Sink::destination`](crate::message::Sink::destination) by the sink, during the delivery.
//! 6. *Threads.* Everything is opened with `FI_THREAD_SAFE`: every call on every object from any thread, except its end beside
//!    others, which exclusive ownership rules out. That makes the wrappers `Send` and `Sync`.
//! 7. *Signals.* Actions are only put back as they were found, right after providers were loaded, which take some for themselves.

mod library;
mod memory;
mod port;
pub mod types;

pub use library::REMEDY;
pub(super) use memory::{Domain, Peers, Registration, gather, scatter};
pub(super) use port::{Event, Local, Port, Posted, RemoteMemory, Slot};

use library::{Exported, library, with_signals_kept};
use std::ffi::{CStr, c_char, c_int};
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use types::{self as raw, number::*};

/// The function of a table, if the table has it (rule 1).
macro_rules! entry {
    ($table:expr, $Table:ident, $name:ident) => {{
        let table: *mut $crate::conduit::ofi::fabric::types::$Table = $table;
        // SAFETY: rules 1, 2: the table of an object that lives, of which so much is read as it says that it has.
        unsafe {
            if !table.is_null()
                && (*table).size > std::mem::offset_of!($crate::conduit::ofi::fabric::types::$Table, $name)
            {
                (*table).$name
            } else {
                None
            }
        }
    }};
}
use entry;

/// Returns the text of the library's error number; those of its calls are negative.
pub(super) fn explain(code: c_int) -> String {
    let Ok(library) = library() else { return format!("error {code}") };
    // SAFETY: rule 1: a constant text.
    text(unsafe { (library.fi_strerror)(code.abs()) }).unwrap_or_else(|| format!("error {code}"))
}

/// A copy of a text of the library's.
fn text(text: *const c_char) -> Option<String> {
    // SAFETY: rules 1, 2: null, or a text that lives as long as the object that it was found in.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Returns major and minor version of the library; otherwise why it cannot be used, and the remedy.
pub(super) fn version() -> Result<(u32, u32), String> {
    library().map(Exported::version).map_err(str::to_owned)
}

/// A path to a network that the library offers: an endpoint is opened from it.
#[derive(Debug)]
pub(super) struct Offer {
    raw: NonNull<raw::Info>,
    /// The provider, such as `tcp;ofi_rxm`.
    pub(super) provider: String,
    /// The device or interface.
    pub(super) domain: String,
    /// Its own address, of those that have IPv4 addresses.
    pub(super) address: Option<IpAddr>,
    /// Most bytes that a call takes over by itself.
    pub(super) inject_max: usize,
    /// Requests that may be in flight.
    pub(super) requests: usize,
    /// Receives that may be posted.
    pub(super) receives: usize,
    mr_mode: c_int,
    mr_key_bytes: usize,
    av_type: c_int,
    /// Bytes that the provider wants in front of each message.
    prefix_bytes: usize,
    /// Opened once and never closed: shared memory names endpoints by their number within their fabric, and the process.
    fabric: OnceLock<Result<FabricHandle, c_int>>,
}

struct FabricHandle(NonNull<raw::Fabric>);

impl std::fmt::Debug for FabricHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a fabric")
    }
}

// SAFETY: rules 2, 6: never freed, and never written after it was made.
unsafe impl Send for Offer {}
// SAFETY: as above.
unsafe impl Sync for Offer {}

impl Offer {
    /// None: it lacks what every offer has.
    fn of(raw: NonNull<raw::Info>) -> Option<Self> {
        // SAFETY: rules 1, 2: the library made it; its parts are checked for null.
        unsafe {
            let info = raw.as_ref();
            let (tx, rx) = (info.tx_attr.as_ref()?, info.rx_attr.as_ref()?);
            let (ep, domain) = (info.ep_attr.as_ref()?, info.domain_attr.as_ref()?);
            let fabric = info.fabric_attr.as_ref()?;
            let ipv4 = info.addr_format == FI_SOCKADDR_IN
                && !info.src_addr.is_null()
                && info.src_addrlen >= size_of::<libc::sockaddr_in>();
            let address = ipv4.then(|| {
                let address = ptr::read_unaligned(info.src_addr.cast::<libc::sockaddr_in>());
                IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
            });
            Some(Self {
                raw,
                provider: text(fabric.prov_name)?,
                domain: text(domain.name).unwrap_or_default(),
                address,
                inject_max: tx.inject_size,
                requests: tx.size,
                receives: rx.size,
                mr_mode: domain.mr_mode,
                mr_key_bytes: domain.mr_key_size,
                av_type: domain.av_type,
                prefix_bytes: ep.msg_prefix_size,
                fabric: OnceLock::new(),
            })
        }
    }
}

impl Offer {
    /// The fabric that it belongs to; or why the library does not open it.
    fn fabric(&self) -> Result<NonNull<raw::Fabric>, c_int> {
        let open = || {
            let library = library().map_err(|_| -libc::ENOSYS)?;
            let mut fabric = ptr::null_mut();
            // SAFETY: rules 1, 2: the offer lives for ever.
            let code = unsafe {
                let attributes = (*self.raw.as_ptr()).fabric_attr;
                (library.fi_fabric)(attributes, &mut fabric, ptr::null_mut())
            };
            NonNull::new(fabric).filter(|_| code == 0).map(FabricHandle).ok_or(code)
        };
        self.fabric.get_or_init(open).as_ref().map(|fabric| fabric.0).map_err(|&code| code)
    }
}

/// Everything that the library offers for messages and one-sided access between unconnected endpoints. It is asked once a
/// process, which takes 0.4 s: it looks for devices of every kind, and one of its parts sleeps for 0.2 s when it is loaded.
///
/// # Errors
/// That the library is missing, or that it refuses to look; in words.
pub(super) fn offers() -> Result<&'static [Offer], String> {
    static OFFERS: OnceLock<Result<Vec<Offer>, String>> = OnceLock::new();
    OFFERS.get_or_init(|| with_signals_kept(ask)).as_deref().map_err(Clone::clone)
}

fn ask() -> Result<Vec<Offer>, String> {
    let library = library()?;
    // SAFETY: rule 1: with nothing to copy it makes an empty one, with all its parts.
    let hints =
        NonNull::new(unsafe { (library.fi_dupinfo)(ptr::null()) }).ok_or("libfabric has no memory")?;
    let mut first = ptr::null_mut();
    // SAFETY: rules 1, 2: it was made with all its parts, is used by the call only, and freed once.
    let code = unsafe {
        let wanted = hints.as_ref();
        if [wanted.tx_attr.is_null(), wanted.ep_attr.is_null(), wanted.domain_attr.is_null()].contains(&true)
        {
            return Err("libfabric makes no whole description".into());
        }
        let wanted = hints.as_ptr();
        (*wanted).caps = FI_MSG | FI_RMA;
        // A request of each kind has room for what the provider wants to keep with it.
        (*wanted).mode = FI_CONTEXT | FI_CONTEXT2;
        (*(*wanted).ep_attr).kind = FI_EP_RDM;
        let domain = (*wanted).domain_attr;
        (*domain).threading = FI_THREAD_SAFE;
        (*domain).resource_mgmt = FI_RM_ENABLED;
        (*domain).mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
        let version = library.interface();
        let code = (library.fi_getinfo)(version, ptr::null(), ptr::null(), 0, wanted, &mut first);
        (library.fi_freeinfo)(wanted);
        code
    };
    match -code {
        0 => {}
        FI_ENODATA => return Ok(Vec::new()),
        error => return Err(format!("libfabric cannot say what there is: {}", explain(error))),
    }
    let mut offers = Vec::new();
    while let Some(info) = NonNull::new(first) {
        // SAFETY: rules 1, 2: a list that the library made and that is not freed.
        first = unsafe { info.as_ref() }.next;
        offers.extend(Offer::of(info).filter(|offer| offer.prefix_bytes == 0));
    }
    Ok(offers)
}
