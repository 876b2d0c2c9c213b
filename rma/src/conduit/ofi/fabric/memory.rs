//! An open device, and memory that it knows.

use super::types::{self as raw, number::*};
use super::{Offer, entry, explain};
use crate::conduit::oneside::Registered;
use crate::error::{Result, RmaError};
use crate::key::fresh_random;
use crate::message::Source;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use vgas_shm::{Span, copy::copy};

/// Number of other keys to try if one is taken.
const KEYS_TRIED: usize = 16;

/// An error of the library's as the system's.
pub(super) fn failed(what: String, code: c_int) -> RmaError {
    RmaError::io(what, std::io::Error::other(explain(code)))
}

/// Copies the bytes of a source behind what `to` has.
pub(in crate::conduit::ofi) fn gather(from: Source<'_>, to: &mut Vec<u8>) {
    let bytes = from.bytes();
    to.reserve(bytes);
    if bytes > 0 {
        // SAFETY: rule 5 for the source; the room was reserved, and is written before it counts.
        unsafe {
            copy(from.address(), to.as_mut_ptr().add(to.len()), bytes);
            to.set_len(to.len() + bytes);
        }
    }
}

/// Copies private bytes to the sink's address.
pub(in crate::conduit::ofi) fn scatter(from: &[u8], to: *mut u8) {
    if !from.is_empty() {
        // SAFETY: rule 5: the sink vouches for so many bytes there.
        unsafe { copy(from.as_ptr(), to, from.len()) }
    }
}

/// Closes an object of the library's.
///
/// # Safety
/// It is alive, objects made from it are not, and it is not used afterwards.
pub(super) unsafe fn close(object: *mut raw::Fid, what: &str) {
    // SAFETY: rules 1, 2 and the caller's promise.
    let code = entry!(unsafe { (*object).ops }, Ops, close).map_or(0, |close| unsafe { close(object) });
    if code != 0 {
        tracing::debug!("libfabric does not close {what}: {}", explain(code));
    }
}

/// A device that was opened.
pub(in crate::conduit::ofi) struct Domain {
    pub(super) fabric: NonNull<raw::Fabric>,
    pub(super) raw: NonNull<raw::Domain>,
    pub(in crate::conduit::ofi) offer: &'static Offer,
}

// SAFETY: rule 6.
unsafe impl Send for Domain {}
// SAFETY: rule 6.
unsafe impl Sync for Domain {}

impl Domain {
    /// Opens what an offer describes.
    pub(in crate::conduit::ofi) fn open(offer: &'static Offer) -> Result<Arc<Self>> {
        let what = |part: &str| format!("open the {part} {} of libfabric's {}", offer.domain, offer.provider);
        let fabric = offer.fabric().map_err(|code| failed(what("fabric of"), code))?;
        let mut domain = ptr::null_mut();
        // SAFETY: rules 1, 2.
        let ops = unsafe { (*fabric.as_ptr()).ops };
        let code = entry!(ops, FabricOps, domain).map_or(-libc::ENOSYS, |open| {
            // SAFETY: rules 1, 2: the offer lives for ever.
            unsafe { open(fabric.as_ptr(), offer.raw.as_ptr(), &mut domain, ptr::null_mut()) }
        });
        let raw = NonNull::new(domain).filter(|_| code == 0).ok_or_else(|| failed(what("domain"), code))?;
        Ok(Arc::new(Self { fabric, raw, offer }))
    }

    /// Returns true if addresses of registered memory are those of the process that registered it; otherwise
    /// they count from 0.
    fn has_addresses(&self) -> bool {
        self.offer.mr_mode & FI_MR_VIRT_ADDR != 0
    }

    /// Returns an unguessable key to request, as far as the keys of the provider are wide enough.
    fn random_key(&self) -> Result<u64> {
        if self.offer.mr_mode & FI_MR_PROV_KEY != 0 {
            return Ok(0);
        }
        let random = fresh_random()?;
        let [word, ..] = random.as_chunks::<8>().0 else { return Ok(0) };
        let bits = 8 * self.offer.mr_key_bytes.clamp(1, 8) as u32;
        // The largest number of all means none.
        Ok(u64::from_le_bytes(*word) >> (64 - bits) >> u32::from(bits == 64))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: rule 2: everything that was made from it holds it.
        unsafe { close(self.raw.as_ptr().cast(), "a domain") }
    }
}

/// Rights of peers on registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conduit::ofi) enum Peers {
    /// Nothing.
    Nothing,
    /// Read and write.
    ReadWrite,
}

/// Memory that the device knows.
pub(in crate::conduit::ofi) struct Registration {
    raw: NonNull<raw::Mr>,
    pub(super) memory: Span,
    domain: Arc<Domain>,
}

// SAFETY: rule 6.
unsafe impl Send for Registration {}
// SAFETY: rule 6.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers memory. `port`: the endpoint that peers reach it through, for providers that bind memory to one.
    pub(super) fn new(
        domain: &Arc<Domain>,
        port: Option<NonNull<raw::Ep>>,
        memory: Span,
        peers: Peers,
    ) -> Result<Self> {
        let local = FI_TRANSMIT | FI_RECV | FI_READ | FI_WRITE;
        let access = match peers {
            Peers::Nothing => local,
            Peers::ReadWrite => local | FI_REMOTE_READ | FI_REMOTE_WRITE,
        };
        let bytes = memory.bytes();
        let refused =
            |code| failed(format!("register {bytes} bytes with libfabric's {}", domain.offer.provider), code);
        // SAFETY: rules 1, 2.
        let register = entry!(unsafe { (*domain.raw.as_ptr()).mr }, MrOps, reg);
        let register = register.ok_or_else(|| refused(libc::ENOSYS))?;
        for _ in 0..KEYS_TRIED {
            let key = domain.random_key()?;
            let mut made = ptr::null_mut();
            // SAFETY: rules 1 to 3: the mapping lives as long as the registration.
            let code = unsafe {
                let address: *const c_void = memory.address().cast();
                let domain = domain.raw.as_ptr().cast();
                register(domain, address, bytes, access, 0, key, 0, &mut made, ptr::null_mut())
            };
            if code == -FI_ENOKEY {
                continue;
            }
            let raw = NonNull::new(made).filter(|_| code == 0).ok_or_else(|| refused(code))?;
            let registration = Self { raw, memory, domain: domain.clone() };
            if let Some(port) = port.filter(|_| domain.offer.mr_mode & FI_MR_ENDPOINT != 0) {
                registration.bind(port).map_err(refused)?;
            }
            return Ok(registration);
        }
        Err(refused(FI_ENOKEY))
    }

    fn bind(&self, port: NonNull<raw::Ep>) -> Result<(), c_int> {
        let object: *mut raw::Fid = self.raw.as_ptr().cast();
        // SAFETY: rules 1, 2.
        let ops = unsafe { (*object).ops };
        let bind = entry!(ops, Ops, bind).ok_or(libc::ENOSYS)?;
        let control = entry!(ops, Ops, control).ok_or(libc::ENOSYS)?;
        // SAFETY: rules 1, 2: both objects live.
        let code = unsafe {
            match bind(object, port.as_ptr().cast(), 0) {
                0 => control(object, FI_ENABLE, ptr::null_mut()),
                code => code,
            }
        };
        if code == 0 { Ok(()) } else { Err(code) }
    }

    /// Length.
    pub(in crate::conduit::ofi) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Address of the first byte, as peers are to name it, and the key.
    pub(in crate::conduit::ofi) fn remote(&self) -> (u64, u64) {
        let address =
            if self.domain.has_addresses() { self.memory.address().expose_provenance() as u64 } else { 0 };
        // SAFETY: rules 1, 2.
        (address, unsafe { self.raw.as_ref() }.key)
    }

    /// Returns the descriptor for requests that use it.
    pub(super) fn descriptor(&self) -> *mut c_void {
        // SAFETY: rules 1, 2.
        unsafe { self.raw.as_ref() }.mem_desc
    }

    /// Returns the address of bytes in it.
    ///
    /// # Panics
    /// If they do not lie in it.
    pub(super) fn place(&self, at: usize, bytes: usize) -> *mut u8 {
        let end = at.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.memory.bytes()),
            "{bytes} bytes at {at} of {}",
            self.memory.bytes()
        );
        self.memory.address().wrapping_add(at)
    }

    /// Copies private bytes into it.
    pub(in crate::conduit::ofi) fn fill(&self, at: usize, from: &[u8]) {
        let to = self.place(at, from.len());
        // SAFETY: rule 3: the range was checked.
        unsafe { copy(from.as_ptr(), to, from.len()) }
    }

    /// Copies a source into it.
    pub(in crate::conduit::ofi) fn fill_from(&self, at: usize, from: Source<'_>) {
        let to = self.place(at, from.bytes());
        if from.bytes() > 0 {
            // SAFETY: rule 5 for the source, rule 3 for the destination, whose range was checked.
            unsafe { copy(from.address(), to, from.bytes()) }
        }
    }

    /// Copies bytes out of it to the sink's address.
    pub(in crate::conduit::ofi) fn empty(&self, at: usize, to: *mut u8, bytes: usize) {
        let from = self.place(at, bytes);
        if bytes > 0 {
            // SAFETY: rule 3 for the source, rule 5 for the destination.
            unsafe { copy(from, to, bytes) }
        }
    }
}

impl Registered for Registration {
    fn offset_of(&self, address: *const u8, bytes: usize) -> Option<usize> {
        let offset = address.addr().checked_sub(self.memory.address().addr())?;
        (offset.checked_add(bytes)? <= self.memory.bytes()).then_some(offset)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: rules 2, 3: no request uses it any more, or its port is gone.
        unsafe { close(self.raw.as_ptr().cast(), "a registration") }
    }
}
