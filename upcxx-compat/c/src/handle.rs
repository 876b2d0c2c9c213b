//! Operations in flight: explicit handles, implicit ones by thread, access regions (GASNet 1.8, 3.3).
//!
//! A handle is a raw box, or null for a complete one. The headers never look inside. Its operations progress
//! by themselves, synchronised or not (`vgas_rma::endpoint`, `vgas_cache::client`).

use crate::am;
use crate::code;
use crate::fatal::{fail, fatal};
use crate::job::{self, Raw as _};
use libc::{c_int, c_void};
use std::cell::{Cell, RefCell};
use vgas_cache::client::Pending;
use vgas_rma::endpoint::{Endpoint, Handle};

/// Implicit operations after which completed ones are sorted out.
const PRUNE_AT: usize = 64;

/// One operation, or those of an access region.
pub struct Operation(Parts);

enum Parts {
    Pinned(Handle),
    Tiered {
        // Before the source: dropped first, it waits for the operation that reads there.
        pending: Pending,
        /// The bytes of a put whose source is not the client's.
        _source: Option<Box<[u8]>>,
    },
    /// A get of many pieces, which come packed.
    Packed {
        handle: Handle,
        packed: Box<[u8]>,
        /// Their destinations, in order.
        places: Vec<(*mut u8, usize)>,
    },
    Region(Vec<Operation>),
}

impl Operation {
    /// The box of an operation on a pinned segment; null when it is complete.
    pub(crate) fn pinned(handle: Handle) -> *mut Operation {
        if handle.is_empty() {
            return std::ptr::null_mut();
        }
        Box::into_raw(Box::new(Self(Parts::Pinned(handle))))
    }

    /// The box of a get of pieces that come packed, and go to these places when all are here.
    pub(crate) fn packed(handle: Handle, packed: Box<[u8]>, places: Vec<(*mut u8, usize)>) -> *mut Operation {
        Box::into_raw(Box::new(Self(Parts::Packed { handle, packed, places })))
    }

    /// Waits until at most `left_max` of these operations are left.
    pub(crate) unsafe fn thin_out(operations: &mut Vec<*mut Operation>, left_max: usize) {
        let endpoint = endpoint();
        wait_until(endpoint, || {
            // SAFETY: as the caller promised (rule 2).
            unsafe { sweep(endpoint, operations) }.1 <= left_max
        });
        operations.retain(|operation| !operation.is_null());
    }

    /// One operation of many; null when all of them are complete.
    pub(crate) unsafe fn group(operations: Vec<*mut Operation>) -> *mut Operation {
        let mut parts = Vec::with_capacity(operations.len());
        for part in operations {
            // SAFETY: as the caller promised (rule 2).
            parts.extend(unsafe { take(part) }.map(|part| *part));
        }
        match parts.len() {
            0 => std::ptr::null_mut(),
            1 => Box::into_raw(Box::new(parts.remove(0))),
            _ => Box::into_raw(Box::new(Self(Parts::Region(parts)))),
        }
    }

    /// The box of an operation on a tiered segment; null when it is complete.
    pub(crate) fn tiered(mut pending: Pending, source: Option<Box<[u8]>>) -> *mut Operation {
        match pending.test() {
            Ok(true) => std::ptr::null_mut(),
            Ok(false) => Box::into_raw(Box::new(Self(Parts::Tiered { pending, _source: source }))),
            Err(error) => fail(error),
        }
    }

    /// Returns true if it is complete; makes no progress by polling.
    fn test(&mut self, endpoint: &Endpoint) -> bool {
        match &mut self.0 {
            Parts::Pinned(handle) => is_complete(endpoint, handle),
            Parts::Packed { handle, packed, places } => {
                let is_complete = is_complete(endpoint, handle);
                if is_complete {
                    let mut rest = &packed[..];
                    for (place, bytes) in places.drain(..) {
                        let (piece, after) = rest.split_at(bytes);
                        // SAFETY: rule 1: the client's memory stays valid until it has synchronised the get, which it does
                        // now.
                        unsafe { vgas_shm::copy::copy(piece.as_ptr(), place, bytes) };
                        rest = after;
                    }
                }
                is_complete
            }
            Parts::Tiered { pending, .. } => pending.test().unwrap_or_else(|error| fail(error)),
            Parts::Region(operations) => {
                operations.retain_mut(|operation| !operation.test(endpoint));
                operations.is_empty()
            }
        }
    }
}

/// Returns true if it is complete; takes the result then. `try_sync` of a complete handle does not poll.
fn is_complete(endpoint: &Endpoint, handle: &mut Handle) -> bool {
    handle.is_complete()
        && match endpoint.try_sync(handle) {
            Ok(done) => done,
            Err(error) => fail(error),
        }
}

/// Takes a handle back.
unsafe fn take(handle: *mut Operation) -> Option<Box<Operation>> {
    // SAFETY: rule 2: made by `Box::into_raw`, synchronised once.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

fn endpoint() -> &'static Endpoint {
    job::joined().runtime.endpoint()
}

fn wait_until(endpoint: &Endpoint, condition: impl FnMut() -> bool) {
    if let Err(error) = endpoint.wait_until(None, condition) {
        fail(error);
    }
}

/// Waits for one operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_wait(handle: *mut Operation) {
    // SAFETY: as the caller promised.
    if let Some(mut operation) = unsafe { take(handle) } {
        let endpoint = endpoint();
        wait_until(endpoint, || operation.test(endpoint));
    }
}

/// Makes progress once; takes the handle back when its operation is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_try(handle: *mut Operation) -> c_int {
    let endpoint = endpoint();
    am::vgasi_poll();
    // SAFETY: rule 2.
    let left = unsafe { sweep(endpoint, &mut [handle]) }.1;
    if left == 0 { code::OK } else { code::NOT_READY }
}

/// Takes the handle back when its operation is complete. Runs no handler: for clients that test with a lock in hand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_try_quietly(handle: *mut Operation) -> c_int {
    // SAFETY: rule 2.
    let left = unsafe { sweep(endpoint(), &mut [handle]) }.1;
    if left == 0 { code::OK } else { code::NOT_READY }
}

/// The handles of a call on many.
unsafe fn table<'a>(handles: *mut *mut Operation, count: usize) -> &'a mut [*mut Operation] {
    if count == 0 {
        return &mut [];
    }
    // SAFETY: rule 1: this many handles, which have no other users during the call.
    unsafe { std::slice::from_raw_parts_mut(handles, count) }
}

/// Takes back complete operations, leaving null; returns the numbers taken and left.
unsafe fn sweep(endpoint: &Endpoint, handles: &mut [*mut Operation]) -> (usize, usize) {
    let (mut taken, mut left) = (0, 0);
    for handle in handles.iter_mut() {
        // SAFETY: rule 2.
        let Some(operation) = (unsafe { handle.as_mut() }) else { continue };
        if operation.test(endpoint) {
            // SAFETY: rule 2: the place is emptied.
            drop(unsafe { take(std::mem::replace(handle, std::ptr::null_mut())) });
            taken += 1;
        } else {
            left += 1;
        }
    }
    (taken, left)
}

/// Waits for all; all places are null afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_wait_all(handles: *mut *mut Operation, count: usize) {
    // SAFETY: as the caller promised.
    let (blocks, rest) = unsafe { table(handles, count) }.as_chunks::<8>();
    let is_complete =
        |handles: &[*mut Operation]| handles.iter().fold(0, |any, handle| any | handle.addr()) == 0;
    if blocks.iter().all(|block| is_complete(block)) && is_complete(rest) {
        return;
    }
    let endpoint = endpoint();
    // SAFETY: as the caller promised.
    wait_until(endpoint, || unsafe { sweep(endpoint, table(handles, count)) }.1 == 0);
}

/// Waits until one of them has completed in this call; at once when none is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_wait_some(handles: *mut *mut Operation, count: usize) {
    let endpoint = endpoint();
    wait_until(endpoint, || {
        // SAFETY: as the caller promised.
        let (taken, left) = unsafe { sweep(endpoint, table(handles, count)) };
        taken > 0 || left == 0
    });
}

/// Makes progress once. Success when all are complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_try_all(handles: *mut *mut Operation, count: usize) -> c_int {
    am::vgasi_poll();
    // SAFETY: as the caller promised.
    unsafe { vgasi_try_all_quietly(handles, count) }
}

/// The same without running handlers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_try_all_quietly(handles: *mut *mut Operation, count: usize) -> c_int {
    // SAFETY: as the caller promised.
    let (_, left) = unsafe { sweep(endpoint(), table(handles, count)) };
    if left == 0 { code::OK } else { code::NOT_READY }
}

/// Makes progress once. Success when one has completed in this call, or none is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_try_some(handles: *mut *mut Operation, count: usize) -> c_int {
    am::vgasi_poll();
    // SAFETY: as the caller promised.
    unsafe { vgasi_try_some_quietly(handles, count) }
}

/// The same without running handlers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_try_some_quietly(handles: *mut *mut Operation, count: usize) -> c_int {
    // SAFETY: as the caller promised.
    let (taken, left) = unsafe { sweep(endpoint(), table(handles, count)) };
    if taken > 0 || left == 0 { code::OK } else { code::NOT_READY }
}

/// Implicit operations of one kind.
#[derive(Default)]
struct Started {
    operations: Vec<Operation>,
}

impl Started {
    fn add(&mut self, operation: Operation) {
        self.operations.push(operation);
        if self.operations.len().is_multiple_of(PRUNE_AT) {
            self.prune(endpoint());
        }
    }

    /// True: none is left.
    fn prune(&mut self, endpoint: &Endpoint) -> bool {
        self.operations.retain_mut(|operation| !operation.test(endpoint));
        self.operations.is_empty()
    }
}

#[derive(Default)]
struct Implicit {
    puts: Started,
    gets: Started,
    region: Option<Started>,
}

thread_local! {
    /// Leaked, so that nothing is waited for when a thread or the process ends.
    static IMPLICIT: &'static RefCell<Implicit> = Box::leak(Box::default());

    /// The bits of the kinds of operations in [`IMPLICIT`], and of an open access region. Constant and
    /// without a destructor: most waits have nothing to wait for, and find that out by one load.
    static OPEN: Cell<c_int> = const { Cell::new(0) };
}

/// Beside [`PUTS`] and [`GETS`] in [`OPEN`]: an access region has been begun.
const REGION: c_int = 4;

fn with_implicit<R>(with: impl FnOnce(&mut Implicit) -> R) -> R {
    IMPLICIT.with(|implicit| {
        let mut implicit = implicit.borrow_mut();
        let result = with(&mut implicit);
        let bit = |bit, is_set| if is_set { bit } else { 0 };
        let puts = bit(PUTS, !implicit.puts.operations.is_empty());
        let gets = bit(GETS, !implicit.gets.operations.is_empty());
        OPEN.set(puts | gets | bit(REGION, implicit.region.is_some()));
        result
    })
}

/// Returns true if this thread has no implicit operation of these kinds, and no access region.
#[inline]
fn has_none(kinds: c_int) -> bool {
    OPEN.get() & (kinds | REGION) == 0
}

/// Kinds of implicit operations that a call is about. Bits, as the headers give them.
pub(crate) const PUTS: c_int = 1;
pub(crate) const GETS: c_int = 2;

/// Makes an operation an implicit one of this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_accumulate(handle: *mut Operation, kind: c_int) {
    // SAFETY: as the caller promised.
    let Some(operation) = (unsafe { take(handle) }) else { return };
    with_implicit(|implicit| {
        let into = match &mut implicit.region {
            Some(region) => region,
            None if kind == GETS => &mut implicit.gets,
            None => &mut implicit.puts,
        };
        into.add(*operation);
    });
}

fn prune(endpoint: &Endpoint, kinds: c_int) -> bool {
    with_implicit(|implicit| {
        if implicit.region.is_some() {
            fatal("implicit operations are not synchronised inside of an access region: end it first");
        }
        let puts = kinds & PUTS == 0 || implicit.puts.prune(endpoint);
        let gets = kinds & GETS == 0 || implicit.gets.prune(endpoint);
        puts && gets
    })
}

/// Waits for the implicit operations of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_wait_implicit(kinds: c_int) {
    if has_none(kinds) {
        return;
    }
    let endpoint = endpoint();
    wait_until(endpoint, || prune(endpoint, kinds));
}

/// Makes progress once. Success when the implicit operations of this thread are complete.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_try_implicit(kinds: c_int) -> c_int {
    let endpoint = endpoint();
    am::vgasi_poll();
    if has_none(kinds) || prune(endpoint, kinds) { code::OK } else { code::NOT_READY }
}

/// `gasnet_begin_nbi_accessregion`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_begin_region() {
    with_implicit(|implicit| {
        if implicit.region.is_some() {
            fatal("access regions do not nest");
        }
        implicit.region = Some(Started::default());
    });
}

/// `gasnet_end_nbi_accessregion`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_end_region() -> *mut Operation {
    let Some(region) = with_implicit(|implicit| implicit.region.take()) else {
        fatal("an access region was ended that was not begun");
    };
    if region.operations.is_empty() {
        return std::ptr::null_mut();
    }
    Box::into_raw(Box::new(Operation(Parts::Region(region.operations))))
}

/// A value that is being got.
pub struct Value {
    handle: *mut Operation,
    bytes: [u8; 8],
}

/// Starts to get a value of 1 to 8 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_get_value_nb(rank: u32, from: *const c_void, bytes: usize) -> *mut Value {
    if !(1..=8).contains(&bytes) {
        fatal(format_args!("a value of {bytes} bytes: 1 to 8 are possible"));
    }
    let value = Box::into_raw(Box::new(Value { handle: std::ptr::null_mut(), bytes: [0; 8] }));
    // SAFETY: the box was just made; it stays until `vgasi_wait_value`, which waits for the operation.
    unsafe {
        let to = (&raw mut (*value).bytes).cast::<c_void>();
        (*value).handle = crate::transfer::vgasi_get_nb(to, rank, from, bytes);
    }
    value
}

/// Waits for a value; extended with zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_wait_value(value: *mut Value) -> u64 {
    if value.is_null() {
        fatal("a value was waited for that was not asked for");
    }
    // SAFETY: rule 2; the bytes are read after the operation has ended.
    unsafe {
        vgasi_wait((*value).handle);
        u64::from_le_bytes(Box::from_raw(value).bytes)
    }
}
