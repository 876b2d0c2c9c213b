//! Active messages: the client's table of handlers, requests, replies, delivery (GASNet 1.8, 2.3).

use crate::call;
use crate::code;
use crate::coll;
use crate::fatal::fail;
use crate::job::{self, Raw as _, RawHandler};
use crate::launch::CONDUIT_IBV;
use crate::long::{self, Long};
use crate::segment;
use crate::transfer::copied;
use libc::{c_int, c_void};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vgas::{Runtime, say};
use vgas_rma::Rank;
use vgas_rma::endpoint::{Endpoint, Token, WaitMode};
use vgas_rma::message::{Arrived, Payload, Source};
use vgas_shm::cores;
use vgas_shm::striped::StripedCounter;

/// The first index of the client's handlers.
const CLIENT_HANDLERS: u8 = 128;

/// An entry of the table given to `gasnet_attach`, as `gasnet_handlerentry_t` is.
#[repr(C)]
pub struct HandlerEntry {
    index: u8,
    function: Option<RawHandler>,
}

/// Registered functions by index; 0 if there is none.
static HANDLERS: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];

/// Handlers run so far, for [`vgasi_wait_for_delivery`].
static DELIVERED: StripedCounter = StripedCounter::new();

/// Registers the client's handlers: an index from 128 to 255, or 0 for any free one, which is written back. Entries are
/// looked at in order, so that equal tables get equal indices on all ranks.
unsafe fn register(table: *mut HandlerEntry, count: c_int) -> c_int {
    if count < 0 || (table.is_null() && count > 0) {
        return code::BAD_ARG;
    }
    let entries = match count {
        0 => &mut [],
        // SAFETY: rule 1: the table has `count` entries, which the client does not touch during the call.
        count => unsafe { std::slice::from_raw_parts_mut(table, count as usize) },
    };
    if entries.len() > 128 {
        return code::BAD_ARG;
    }
    let mut taken = [false; 256];
    for entry in entries.iter().filter(|entry| entry.index != 0) {
        if entry.index < CLIENT_HANDLERS || std::mem::replace(&mut taken[usize::from(entry.index)], true) {
            return code::BAD_ARG;
        }
    }
    if entries.iter().any(|entry| entry.function.is_none()) {
        return code::BAD_ARG;
    }
    for entry in entries.iter_mut() {
        if entry.index == 0 {
            // There are 128 indices for at most 128 entries.
            let Some(free) = (CLIENT_HANDLERS..=u8::MAX).find(|&index| !taken[usize::from(index)]) else {
                return code::BAD_ARG;
            };
            taken[usize::from(free)] = true;
            entry.index = free;
        }
        let address = entry.function.map_or(0, |function| function as usize);
        HANDLERS[usize::from(entry.index)].store(address, Ordering::Release);
    }
    code::OK
}

/// Set when `gasnet_attach` has accepted its arguments.
static ATTACHED: AtomicBool = AtomicBool::new(false);

/// Returns true if this process has attached: other functions of the core interface answer [`code::NOT_INIT`]
/// before it (1.5).
pub(crate) fn is_attached() -> bool {
    ATTACHED.load(Ordering::Relaxed)
}

/// `gasnet_attach`. Collective; once, even if the segment could not be attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_attach(table: *mut HandlerEntry, count: c_int, bytes: usize) -> c_int {
    // SAFETY: as the caller promised.
    unsafe { attach(table, count, bytes, segment::vgasi_max_local_segment(), None) }
}

/// Registers handlers and attaches this rank's segment of at most `bytes_max` bytes. No handler of the client runs before it
/// returns.
pub(crate) unsafe fn attach(
    table: *mut HandlerEntry,
    count: c_int,
    bytes: usize,
    bytes_max: usize,
    name: Option<String>,
) -> c_int {
    if job::current().is_none() || is_attached() {
        return code::NOT_INIT;
    }
    if bytes > bytes_max {
        segment::tell_limit(bytes, bytes_max);
        return code::BAD_ARG;
    }
    if !bytes.is_multiple_of(segment::PAGE_BYTES) {
        return code::BAD_ARG;
    }
    // SAFETY: as the caller promised.
    let attached = match unsafe { register(table, count) } {
        code::OK => {
            ATTACHED.store(true, Ordering::Relaxed);
            segment::attach(bytes, name)
        }
        error => return error,
    };
    // Attached ranks may send at once; the client, which has not seen this return, is not ready for it.
    if let Some(job) = job::current() {
        job.runtime.endpoint().withhold(false);
    }
    attached
}

thread_local! {
    /// The payload of the medium message that this thread handles, unless it is shared memory: the handler may write to it,
    /// and it begins at a multiple of 16 (as the specification promises 8).
    static MEDIUM: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
}

/// Runs the client's handler for a long message that has arrived as a medium one.
pub(crate) fn deliver_carried(token: &Token<'_>, words: &[u32], arrived: Arrived<'_>) {
    let placed = if let Arrived::Medium(bytes) = &arrived { long::place(bytes) } else { None };
    match placed {
        Some((index, address, bytes)) => deliver(index, token, words, Arrived::Long(address, bytes)),
        None => token.refuse("a long message that does not fit the segment"),
    }
}

/// Runs the client's handler for a message that has arrived.
#[inline(always)]
pub(crate) fn deliver(index: u8, token: &Token<'_>, words: &[u32], arrived: Arrived<'_>) {
    let address = HANDLERS[usize::from(index)].load(Ordering::Acquire);
    if address == 0 {
        return token.refuse(format!("a message for handler {index}, which was not registered"));
    }
    // SAFETY: rule 3: only functions are stored there.
    let handler =
        unsafe { std::mem::transmute::<*const (), RawHandler>(std::ptr::with_exposed_provenance(address)) };
    let c_token = std::ptr::from_ref(token).cast_mut().cast::<c_void>();
    match arrived {
        Arrived::Short => call::short(handler, c_token, words),
        Arrived::Long(address, bytes) => call::with_payload(handler, c_token, address.cast(), bytes, words),
        Arrived::Medium(bytes) if let Some(address) = bytes.in_place() => {
            call::with_payload(handler, c_token, address.cast(), bytes.len(), words);
        }
        Arrived::Medium(bytes) => {
            let with_copy = |buffer: &mut Vec<u128>| {
                let needed = bytes.len().div_ceil(16).max(1);
                if buffer.len() < needed {
                    buffer.resize(needed, 0);
                }
                let address = buffer.as_mut_ptr().cast::<u8>();
                // SAFETY: the buffer was made long enough, and the payload is not in it.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, bytes.len()) };
                call::with_payload(handler, c_token, address.cast(), bytes.len(), words);
            };
            // A thread that ends has given its buffer up when destructors of the client still wait for messages.
            if MEDIUM.try_with(|buffer| with_copy(&mut buffer.borrow_mut())).is_err() {
                with_copy(&mut Vec::new());
            }
        }
    }
    DELIVERED.note();
}

/// The arguments of a message.
unsafe fn arguments<'a>(count: c_int, words: *const u32) -> Option<&'a [u32]> {
    match count {
        0 => Some(&[]),
        // SAFETY: rule 1: so many words.
        1..=16 => Some(unsafe { std::slice::from_raw_parts(words, count as usize) }),
        _ => None,
    }
}

/// Bytes to send, copied to private memory if they are elsewhere: a conduit may hand them to a system call,
/// which cannot wait for a page of a tiered segment.
pub(crate) struct Private {
    _copy: Option<Box<[u8]>>,
    address: *const u8,
    bytes: usize,
}

impl Private {
    pub(crate) unsafe fn of(from: *const c_void, bytes: usize) -> Self {
        let is_local =
            bytes > 0 && job::current().is_some_and(|job| job.runtime.client().is_local(from.cast()));
        // SAFETY: rule 1.
        let copy = is_local.then(|| unsafe { copied(from.cast(), bytes) });
        let address = copy.as_ref().map_or(from.cast(), |copy| copy.as_ptr());
        Self { _copy: copy, address, bytes }
    }

    pub(crate) fn source(&self) -> Source<'_> {
        // SAFETY: the own copy, or what the caller of `of` promised.
        unsafe { Source::raw(self.address, self.bytes) }
    }
}

/// Sends a request to a handler of the client, or to [`long::CARRIED`]. Clients count on GASNet's habit of handling what they send to
/// themselves inside of the request: they then wait for it in ways that do not poll, such as puts to a rank that shares memory.
#[inline]
fn request(rank: u32, handler: u8, words: Option<&[u32]>, payload: &Payload<'_>) -> c_int {
    let Some(job) = job::current().filter(|_| is_attached()) else { return code::NOT_INIT };
    let Some(words) = words else { return code::BAD_ARG };
    let (layout, endpoint) = (job.runtime.layout(), job.runtime.endpoint());
    if rank >= layout.ranks() {
        return code::BAD_ARG;
    }
    let sent = if rank == job::vgasi_mynode.load(Ordering::Relaxed) {
        poll_now_and_then(endpoint);
        endpoint.request_inline(handler, words, payload)
    } else {
        // A payload that was just written and is copied as a whole makes the processor wait.
        let peer = layout.peer_of_rank(Rank(rank));
        match payload {
            Payload::Short => endpoint.request(peer, handler, words, Payload::Short),
            payload => endpoint.request(peer, handler, words, *payload),
        }
    };
    match sent {
        Ok(()) => code::OK,
        Err(vgas_rma::RmaError::Usage(_)) => code::BAD_ARG,
        Err(error) => fail(error),
    }
}

/// Requests of a thread to its own rank between two polls: a client that sends to itself only is to serve others, too.
const SELF_REQUESTS_PER_POLL: u32 = 64;

#[inline]
fn poll_now_and_then(endpoint: &Endpoint) {
    thread_local!(static REQUESTS: Cell<u32> = const { Cell::new(0) });
    let requests = REQUESTS.with(|requests| requests.replace(requests.get().wrapping_add(1)));
    if requests % SELF_REQUESTS_PER_POLL == SELF_REQUESTS_PER_POLL - 1 && !endpoint.in_handler() {
        // Not `vgasi_poll`, which may sleep: this thread does not wait here.
        if let Err(error) = endpoint.poll() {
            fail(error);
        }
        coll::progress();
    }
}

/// `gasnet_AMRequestShort`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_request_short(
    rank: u32,
    handler: u8,
    count: c_int,
    words: *const u32,
) -> c_int {
    if handler < CLIENT_HANDLERS {
        return code::BAD_ARG;
    }
    // SAFETY: as the caller promised.
    request(rank, handler, unsafe { arguments(count, words) }, &Payload::Short)
}

/// `gasnet_AMRequestMedium`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_request_medium(
    rank: u32,
    handler: u8,
    from: *const c_void,
    bytes: usize,
    count: c_int,
    words: *const u32,
) -> c_int {
    if handler < CLIENT_HANDLERS || is_too_long(bytes) {
        return code::BAD_ARG;
    }
    // SAFETY: as the caller promised.
    unsafe {
        if rank == job::vgasi_mynode.load(Ordering::Relaxed) {
            let source = Source::raw(from.cast(), bytes);
            return request(rank, handler, arguments(count, words), &Payload::Medium(source));
        }
        let private = Private::of(from, bytes);
        request(rank, handler, arguments(count, words), &Payload::Medium(private.source()))
    }
}

/// `gasnet_AMRequestLong`, and `gasnet_AMRequestLongAsync`: the source is reusable when it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_request_long(
    rank: u32,
    handler: u8,
    from: *const c_void,
    bytes: usize,
    to: *const c_void,
    count: c_int,
    words: *const u32,
) -> c_int {
    if !is_attached() {
        return code::NOT_INIT;
    }
    if handler < CLIENT_HANDLERS {
        return code::BAD_ARG;
    }
    // SAFETY: as the caller promised.
    let (words, long) = unsafe { (arguments(count, words), Long::request(rank, handler, from, bytes, to)) };
    match long {
        Some(long) => request(rank, long.handler(), words, &long.payload()),
        None => code::BAD_ARG,
    }
}

/// The token of the message that is being handled.
unsafe fn token_of<'a>(token: *mut c_void) -> Option<&'a Token<'a>> {
    // SAFETY: rule 1: tokens are used in the handler that `deliver` gave them to, or are null.
    unsafe { token.cast::<Token<'a>>().as_ref() }
}

#[inline]
unsafe fn reply(token: *mut c_void, handler: u8, words: Option<&[u32]>, payload: &Payload<'_>) -> c_int {
    // SAFETY: as the caller promised.
    let (Some(token), Some(words)) = (unsafe { token_of(token) }, words) else { return code::BAD_ARG };
    // SAFETY: the client's own handlers, and this interface's.
    match unsafe { token.reply_library(handler, words, payload) } {
        Ok(()) => code::OK,
        Err(vgas_rma::RmaError::Usage(_)) => code::BAD_ARG,
        Err(error) => fail(error),
    }
}

/// `gasnet_AMReplyShort`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_reply_short(
    token: *mut c_void,
    handler: u8,
    count: c_int,
    words: *const u32,
) -> c_int {
    if handler < CLIENT_HANDLERS {
        return code::BAD_ARG;
    }
    // SAFETY: as the caller promised.
    unsafe { reply(token, handler, arguments(count, words), &Payload::Short) }
}

/// `gasnet_AMReplyMedium`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_reply_medium(
    token: *mut c_void,
    handler: u8,
    from: *const c_void,
    bytes: usize,
    count: c_int,
    words: *const u32,
) -> c_int {
    if handler < CLIENT_HANDLERS || is_too_long(bytes) {
        return code::BAD_ARG;
    }
    // SAFETY: as the caller promised.
    unsafe {
        let private = Private::of(from, bytes);
        reply(token, handler, arguments(count, words), &Payload::Medium(private.source()))
    }
}

/// `gasnet_AMReplyLong`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_reply_long(
    token: *mut c_void,
    handler: u8,
    from: *const c_void,
    bytes: usize,
    to: *const c_void,
    count: c_int,
    words: *const u32,
) -> c_int {
    if handler < CLIENT_HANDLERS {
        return code::BAD_ARG;
    }
    // SAFETY: as the caller promised.
    let Some(rank) = unsafe { token_of(token) }.map(|token| token.from().0) else { return code::BAD_ARG };
    // SAFETY: as the caller promised.
    unsafe {
        match Long::reply(rank, handler, from, bytes, to) {
            Some(long) => reply(token, long.handler(), arguments(count, words), &long.payload()),
            None => code::BAD_ARG,
        }
    }
}

/// `gasnet_AMGetMsgSource`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_message_source(token: *mut c_void, rank: *mut u32) -> c_int {
    // SAFETY: as the caller promised.
    let Some(token) = (unsafe { token_of(token) }) else { return code::BAD_ARG };
    if rank.is_null() {
        return code::BAD_ARG;
    }
    // SAFETY: rule 1; only ranks send to these handlers, and their peers have the same numbers.
    unsafe { rank.write(token.from().0) };
    code::OK
}

/// Most bytes of a medium message of a client that was compiled for this conduit.
pub(crate) fn medium_max(conduit: c_int, runtime: &Runtime) -> usize {
    let constant = if conduit == CONDUIT_IBV { MEDIUM_MAX_IBV } else { MEDIUM_MAX };
    constant.min(runtime.endpoint().medium_bytes_max())
}

/// `gasnet_AMMaxMedium` in the headers, which each conduit of vgas carries but those over cards.
const MEDIUM_MAX: usize = 65_000;

/// The same for clients compiled for `ibv`.
const MEDIUM_MAX_IBV: usize = 8_000;

/// Returns true if a medium message has too many bytes. If the headers would allow it, and the conduit that
/// `VGAS_CONDUIT` names does not, a line reports it once.
fn is_too_long(bytes: usize) -> bool {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let Some(job) = job::current() else { return bytes > 0 };
    let limit = job.medium_max;
    let by_conduit = limit == job.runtime.endpoint().medium_bytes_max();
    if by_conduit && (limit + 1..=MEDIUM_MAX).contains(&bytes) && !TOLD.swap(true, Ordering::Relaxed) {
        let conduit = job.runtime.settings().conduit.provider();
        say::line(format_args!(
            "vgas: a medium message of {bytes} bytes is refused: over {conduit} there are at most {limit}. Compile this program for \
             the conduit ibv, whose gasnet_AMMaxMedium is less"
        ));
    }
    bytes > limit
}

/// Most bytes of a medium message; 0 before the job is joined.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_medium_max() -> usize {
    job::current().map_or(0, |job| job.medium_max)
}

/// Most bytes of a long request.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_long_request_max() -> usize {
    job::current().map_or(0, |job| job.runtime.endpoint().long_bytes_max())
}

/// Most bytes of a long reply.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_long_reply_max() -> usize {
    if segment::is_tiered() { long::carried_max() } else { vgasi_long_request_max() }
}

/// Empty polls in a row after which it looks for a free core: clients wait in loops around `gasnet_AMPoll`,
/// and the process they wait for may need this one. Some microseconds, several round trips between ranks that
/// have a core each.
const POLLS_PER_LOOK: u32 = 128;

/// The same for the wait modes of GASNet, by number: a spinning thread never gives up its core, a blocking
/// one does it at once.
static POLLS_PER_LOOK_NOW: AtomicU32 = AtomicU32::new(POLLS_PER_LOOK);

/// A poll, on average, in a loop that does nothing else. A client that computes between polls is not waiting,
/// and must not rest.
const BARE_POLL: Duration = Duration::from_nanos(500);

/// Longest rest between polls: a client may wait for bytes in its memory, of which nothing notifies it.
const REST: Duration = Duration::from_micros(50);

/// `gasnet_set_waitmode`: how this rank's threads wait from now on.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_set_wait_mode(mode: c_int) -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    let (mode, polls) = match mode {
        0 => (WaitMode::Spin, u32::MAX),
        1 => (WaitMode::Block, 1),
        2 => (WaitMode::SpinBlock, POLLS_PER_LOOK),
        _ => return code::BAD_ARG,
    };
    job.runtime.endpoint().set_wait_mode(mode);
    POLLS_PER_LOOK_NOW.store(polls, Ordering::Relaxed);
    code::OK
}

thread_local! {
    static EMPTY_POLLS: Cell<u32> = const { Cell::new(0) };
    static LAST_LOOK: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Call it after this many empty polls: sleeps a little, or until a message comes, if another process needs
/// the core.
#[cold]
fn rest_between_polls(endpoint: &Endpoint, polls: u32) -> vgas_rma::Result<()> {
    let now = Instant::now();
    let waits = LAST_LOOK.replace(Some(now)).is_some_and(|last| now - last < BARE_POLL * polls);
    // A client that has asked to block is taken at its word.
    if (waits || polls == 1) && !cores::spare() && !endpoint.in_handler() {
        let before = DELIVERED.read();
        endpoint.wait_until(Some(now + REST), || DELIVERED.read() != before)?;
        LAST_LOOK.set(Some(Instant::now()));
    }
    Ok(())
}

/// `gasnet_AMPoll`.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_poll() -> c_int {
    let Some(job) = job::current() else { return code::NOT_INIT };
    let endpoint = job.runtime.endpoint();
    match endpoint.poll() {
        Ok(0) => {
            let empty = EMPTY_POLLS.get().wrapping_add(1);
            EMPTY_POLLS.set(empty);
            let polls = POLLS_PER_LOOK_NOW.load(Ordering::Relaxed);
            if empty.is_multiple_of(polls)
                && let Err(error) = rest_between_polls(endpoint, polls)
            {
                fail(error);
            }
        }
        Ok(_) => EMPTY_POLLS.set(0),
        Err(error) => fail(error),
    }
    coll::progress();
    code::OK
}

/// The number of handlers run so far, for [`vgasi_wait_for_delivery`].
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_deliveries() -> u64 {
    DELIVERED.read()
}

/// The waiting part of `GASNET_BLOCKUNTIL`: returns when a handler has run since [`vgasi_deliveries`]
/// returned `before`, and now and then without, since clients also wait for puts into their memory.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_wait_for_delivery(before: u64) {
    const AT_MOST: std::time::Duration = std::time::Duration::from_millis(1);
    let deadline = std::time::Instant::now() + AT_MOST;
    let endpoint = job::joined().runtime.endpoint();
    if let Err(error) = endpoint.wait_until(Some(deadline), || DELIVERED.read() != before) {
        fail(error);
    }
    coll::progress();
}
