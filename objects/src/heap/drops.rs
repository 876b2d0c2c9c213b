//! Drops on the objects' ranks: a value whose drop is only glue ([`crate::glue`]) is dropped by the rank that
//! has it, which is told of many by one message.
//!
//! Messages go from rank to rank, and give for each object its word, the number of its type, and the number
//! of values in a row. Handlers only put them into a queue; the rank drops the queued values where it
//! collects slots freed by others. Objects that these own elsewhere are dropped the same way.
//!
//! Heaps with replicas do without: there a value stays unchanged until no rank has its word, and is dropped
//! as a copy of its bytes.
//!
//! *Order.* A reader marks the objects it is given at the home, whose daemon does that ([`crate::service`]);
//! drop messages do not pass through it. So what this rank has asked for and does not wait for any more
//! ([`super::Get`]), it hears of before it tells of drops: a mark that came later could be written into what
//! is another's by then.
//!
//! *Types.* The linker makes a table of an entry for each type that the program may drop so, as of tasks
//! (`linked.rs`): ranks run one program, and a message has an entry's number, never an address. A number, a
//! size or a word that does not match an object here is an error that names the sender.
//!
//! *Depth.* While a rank drops values for others, its own values that it comes upon wait in a list of the
//! thread's, so that a long list of objects takes no more stack than a short one. When an owner drops its own
//! values, those more than [`DEPTH_MAX`] boxes deep wait in another list until the first box is dropped, if
//! their drop is only glue: the order is then unobservable. Drops that the program has written run within
//! each other, in std's order, and take as much stack.
//!
//! *Termination.* Each rank counts the values that it has let go of and those that it has dropped. While all
//! are in a barrier, nothing is on its way, and nothing is left to do, if and only if both are the same,
//! summed over all ranks ([`Objects::barrier`](super::Objects::barrier)).

use super::error::ObjectError;
use super::hooks::Hooks;
use super::{FREES, FREES_BYTES, Heap, Messages, OWN, heap};
use crate::glue::Glue;
use crate::linked::{self, Entry};
use crate::planted::{Fault, is_planted};
use crate::portable::Portable;
use crate::service::Answer;
use crate::word::Word;
use rustc_hash::{FxHashMap, FxHasher};
use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use vgas::service::PendingCall;
use vgas::{Arrived, Rank, Runtime, Token};

/// The handler's index among libraries' (CONTRIBUTING.md).
const HANDLER: u8 = 113;

/// Most objects dropped for others at each allocation, unless room is needed.
pub(super) const DROPS_MOST: usize = 1024;

/// So many reads that were given up are looked at whether they are over.
const GIVEN_UP_MIN: usize = 64;

/// Boxes within each other that are dropped on the stack, beyond which they wait, if they can.
const DEPTH_MAX: u32 = 64;

/// Bytes of an object in a message.
const ENTRY_BYTES: usize = 16;

/// Drop information of a type whose values may be dropped for other ranks.
struct Kind {
    /// Size of one value.
    bytes: usize,
    align: usize,
    name: &'static str,
    id: TypeId,
    /// Only these are.
    is_glue: bool,
    /// Drops `count` values in a row that begin there.
    drop: unsafe fn(u64, usize),
}

unsafe extern "C" {
    #[link_name = "__start_vgas_drops"]
    static FIRST: Entry;
    #[link_name = "__stop_vgas_drops"]
    static END: Entry;
}

/// Function that an entry points to.
type Code = fn() -> Kind;

fn kind_of<T: Portable>() -> Kind {
    Kind {
        bytes: size_of::<T>(),
        align: align_of::<T>(),
        name: std::any::type_name::<T>(),
        id: TypeId::of::<T>(),
        is_glue: Glue::is_all_of::<T>(),
        drop: drop_values::<T>,
    }
}

/// # Safety
/// There are `count` values of this type, which are the caller's, and are not used again.
unsafe fn drop_values<T>(address: u64, count: usize) {
    let values = with_exposed_provenance_mut::<T>(address as usize);
    // SAFETY: the caller's promise.
    unsafe { std::ptr::slice_from_raw_parts_mut(values, count).drop_in_place() };
}

/// All types of the table.
struct Kinds {
    all: Vec<Option<Kind>>,
    /// By code, the numbers of those that may be dropped for others.
    numbers: FxHashMap<usize, u32>,
    /// Hash of all entries in order: type numbers mean the same only if it is equal.
    mark: u32,
}

fn kinds() -> &'static Kinds {
    static KINDS: OnceLock<Kinds> = OnceLock::new();
    KINDS.get_or_init(|| {
        // There is a table also where nothing is ever dropped.
        linked::entry!("vgas_drops");
        // SAFETY: the linker gives the section's beginning and end.
        let entries = unsafe { linked::entries(&raw const FIRST, &raw const END) };
        let (mut all, mut numbers) = (Vec::with_capacity(entries.len()), FxHashMap::default());
        for (entry, number) in entries.iter().zip(0u32..) {
            let kind = linked::address(entry).map(|address| {
                let code: *const () = std::ptr::with_exposed_provenance(address);
                // SAFETY: each entry that is not 0 was made of such a function, in `number_of`.
                let kind = unsafe { std::mem::transmute::<*const (), Code>(code) }();
                if kind.is_glue {
                    numbers.insert(address, number);
                }
                kind
            });
            all.push(kind);
        }
        // Without a key: the same in every process.
        let mut hasher = FxHasher::default();
        all.iter().flatten().for_each(|Kind { bytes, align, id, is_glue, .. }| {
            (id, bytes, align, is_glue).hash(&mut hasher);
        });
        Kinds { all, numbers, mark: hasher.finish() as u32 }
    })
}

/// The number of a type; none if its drop is more than glue.
pub(super) fn number_of<T: Portable>() -> Option<u32> {
    linked::entry!("vgas_drops", sym kind_of::<T>);
    kinds().numbers.get(&(kind_of::<T> as Code as usize)).copied()
}

/// Returns the entry of a number, if its type may be dropped for other ranks.
fn kind(number: u32) -> Option<&'static Kind> {
    kinds().all.get(number as usize)?.as_ref().filter(|kind| kind.is_glue)
}

/// Values in a row that have lost their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    pub word: Word,
    /// Number of their type.
    pub number: u32,
    pub count: u32,
}

impl Dropped {
    fn bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.word.bits().to_le_bytes());
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// Decodes a message of drops; none if it is another.
    fn all_of(bytes: &[u8]) -> Option<Vec<Self>> {
        let (entries, []) = bytes.as_chunks::<ENTRY_BYTES>() else { return None };
        let of = |entry: &[u8; ENTRY_BYTES]| {
            let (word, [number, count]) =
                (entry.first_chunk::<8>()?, entry[8..].as_chunks::<4>().0.first_chunk::<2>()?);
            let word = Word::from_bits(u64::from_le_bytes(*word))?;
            let [number, count] = [number, count].map(|bytes| u32::from_le_bytes(*bytes));
            let is_some = count > 0 && kind(number).is_some();
            is_some.then_some(Self { word, number, count })
        };
        entries.iter().map(of).collect()
    }
}

/// A rank's drops of remote objects, and other ranks' drops of its own.
#[derive(Default)]
pub(super) struct Drops {
    /// By rank: the values to drop there, and their total bytes.
    leaving: Mutex<FxHashMap<Rank, (Vec<Dropped>, usize)>>,
    /// Number of these.
    leaving_count: AtomicUsize,
    /// Values that other ranks have let go of, with the rank.
    come: Mutex<VecDeque<(Rank, Dropped)>>,
    come_count: AtomicUsize,
    /// Held by the thread that drops what has come: one at a time, so that nothing is dropped twice, whatever a peer says.
    dropping: Mutex<()>,
    /// Number of values let go of, told or not.
    let_go: AtomicU64,
    done: AtomicU64,
    /// Reads that were given up, and are in flight; some are over since they were looked at.
    given_up: Mutex<Vec<PendingCall<Answer>>>,
    given_up_count: AtomicUsize,
}

impl std::fmt::Debug for Drops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [leaving, come] =
            [&self.leaving_count, &self.come_count].map(|count| count.load(Ordering::Relaxed));
        write!(f, "Drops({leaving} leave, {come} have come)")
    }
}

impl Drops {
    /// Abandons these reads.
    pub fn give_up(&self, reads: impl Iterator<Item = PendingCall<Answer>>) {
        let mut given_up = lock(&self.given_up);
        given_up.extend(reads.filter(PendingCall::is_sent));
        // Now and then, so that each is looked at a few times only.
        let is_due = given_up.len() >= GIVEN_UP_MIN && given_up.len().is_power_of_two();
        let over = if is_due { sweep(&mut given_up) } else { Vec::new() };
        self.given_up_count.store(given_up.len(), Ordering::Relaxed);
        drop(given_up);
        // The threads it wakes may give up others.
        drop(over);
    }

    /// Waits until what was given up is over.
    fn hear_of_reads(&self, hooks: &Hooks) -> Result<(), ObjectError> {
        if self.given_up_count.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let mut is_over = || {
            let mut given_up = lock(&self.given_up);
            let over = sweep(&mut given_up);
            self.given_up_count.store(given_up.len(), Ordering::Relaxed);
            let is_over = given_up.is_empty();
            drop(given_up);
            drop(over);
            is_over
        };
        (hooks.wait_until)(None, &mut is_over).map(drop)
    }
}

/// Takes out the reads that are over.
fn sweep(reads: &mut Vec<PendingCall<Answer>>) -> Vec<PendingCall<Answer>> {
    reads.extract_if(.., |read| !matches!(read.test(), Ok(None))).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Changed in steps that leave what they are about whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// True while this thread drops values that other ranks have let go of. Asked by all drops, even those at
    /// a thread's end.
    static IS_DROPPING: Cell<bool> = const { Cell::new(false) };
    /// Own values that it is to drop then.
    static LEFT: RefCell<Vec<Dropped>> = const { RefCell::new(Vec::new()) };
}

/// Returns true while this thread drops values that other ranks have let go of.
#[inline]
pub(crate) fn is_dropping() -> bool {
    IS_DROPPING.get()
}

/// Leaves own values of this type to the list, while this thread drops values for others; false: the caller
/// is to drop them.
#[inline]
pub(super) fn leave<T: Portable>(word: Word, count: u64) -> bool {
    if !is_dropping() {
        return false;
    }
    let (Some(number), Ok(count)) = (number_of::<T>(), u32::try_from(count)) else { return false };
    LEFT.with_borrow_mut(|left| left.push(Dropped { word, number, count }));
    true
}

thread_local! {
    /// Boxes that this thread drops within each other.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Deeper values that wait: values in a row, and their drop function.
    static DEEP: RefCell<Vec<(Word, u64, DropFn)>> = const { RefCell::new(Vec::new()) };
}

/// Drops this number of values of some type in a row, and frees their slot.
type DropFn = fn(Word, u64);

/// One more box or row that this thread drops on the stack. With the first of them end those that wait.
pub(super) struct Level(());

impl Level {
    /// None: these values wait, and are dropped by this function.
    #[inline]
    pub fn enter<T: Portable>(word: Word, count: u64, drops: DropFn) -> Option<Self> {
        let depth = DEPTH.get();
        if depth >= DEPTH_MAX && waits::<T>(word, count, drops) {
            return None;
        }
        DEPTH.set(depth + 1);
        Some(Self(()))
    }
}

#[cold]
#[inline(never)]
fn waits<T: Portable>(word: Word, count: u64, drops: DropFn) -> bool {
    // A thread that ends has no list any more.
    number_of::<T>().is_some() && DEEP.try_with(|deep| deep.borrow_mut().push((word, count, drops))).is_ok()
}

impl Drop for Level {
    #[inline]
    fn drop(&mut self) {
        /// Runs even if a drop of a counted value panics: the waiting values go with the next box.
        struct Leave(u32);
        impl Drop for Leave {
            fn drop(&mut self) {
                DEPTH.set(self.0);
            }
        }
        let depth = DEPTH.get();
        let _leave = Leave(depth - 1);
        if depth == 1 {
            while let Some((word, count, drops)) =
                DEEP.try_with(|deep| deep.borrow_mut().pop()).ok().flatten()
            {
                drops(word, count);
            }
        }
    }
}

/// Drops own values that another rank has let go of, and this rank's values that these own, one after the
/// other. Each is looked for before: bytes that are not of the type which that rank has named may name
/// anything.
///
/// # Safety
/// The values are the caller's: in slots of this partition that no other code uses.
unsafe fn drop_own(heap: &Heap, from: Rank, first: Dropped) -> Result<(), ObjectError> {
    /// Ends it, whatever happens. If a drop panics, which would be a bug of this crate, the remaining values
    /// are leaked.
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            IS_DROPPING.set(false);
            LEFT.take();
        }
    }
    IS_DROPPING.set(true);
    let _ends = Ends;
    let (mut next, mut ended) = (Some(first), Ok(()));
    while let Some(dropped) = next {
        let Dropped { word, count, .. } = dropped;
        let freed = heap.kind_here(from, dropped).and_then(|kind| {
            // SAFETY: rule 2: the caller's promise; so many values fit into the slot.
            unsafe { (kind.drop)(word.address(), count as usize) };
            heap.free_own(word)
        });
        ended = ended.and(freed);
        next = LEFT.with_borrow_mut(Vec::pop);
    }
    ended
}

/// Takes messages of drops in; before other ranks can send some.
pub(super) fn register(runtime: &'static Runtime) -> Result<(), ObjectError> {
    // Not in the handler for the first time.
    kinds();
    let take_in = move |token: &Token<'_>, words: &[u32], arrived: Arrived<'_>| {
        let bytes = arrived.medium_bytes();
        if words != [kinds().mark] {
            return token.refuse("what it lets go of has numbers of another program");
        }
        let from = runtime.layout().rank_of_peer(token.from());
        let (Some(all), Some(from)) = (Dropped::all_of(bytes), from) else {
            return token.refuse("what it lets go of is of no type that is dropped for others");
        };
        // Messages after the heap's end are gone with it.
        if let Ok(heap) = heap()
            && let Err(why) = heap.has_let_go(from, all)
        {
            token.refuse(why);
        }
    };
    Ok(runtime.messages().register_library(HANDLER, take_in).map_err(vgas::Error::from)?)
}

impl Heap {
    /// A rank has let go of objects of this one. In handlers.
    fn has_let_go(&self, from: Rank, all: Vec<Dropped>) -> Result<(), String> {
        if let Some(wrong) = all.iter().find(|dropped| OWN.offset_of(dropped.word.address()).is_none()) {
            return Err(format!("it lets go of {:?}, which is not here", wrong.word));
        }
        let mut come = lock(&self.drops.come);
        // No object takes less.
        if (come.len() + all.len()) as u64 > self.bytes / 16 {
            return Err("it lets go of more objects than there can be".into());
        }
        come.extend(all.into_iter().map(|dropped| (from, dropped)));
        self.drops.come_count.store(come.len(), Ordering::SeqCst);
        drop(come);
        (self.hooks.serve_others)();
        Ok(())
    }

    /// Returns true if values let go of by other ranks are still to be dropped.
    pub(super) fn has_come(&self) -> bool {
        self.drops.come_count.load(Ordering::SeqCst) > 0
    }

    /// Drops values that others have let go of, the oldest first, at most `most`. If another thread is doing
    /// so, it does nothing, unless all are to be dropped: then it continues when that has ended.
    pub(super) fn drop_come(&self, most: usize) -> Result<(), ObjectError> {
        // A thread that ends has no list any more.
        if !self.has_come() || is_dropping() || LEFT.try_with(|_| ()).is_err() {
            return Ok(());
        }
        let _alone = match self.drops.dropping.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            // It waits for nothing that this thread has, and polls meanwhile; in a handler no thread waits.
            Err(TryLockError::WouldBlock) if most == usize::MAX && !self.runtime.messages().in_handler() => {
                lock(&self.drops.dropping)
            }
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        for _ in 0..most {
            let next = {
                let mut come = lock(&self.drops.come);
                let next = come.pop_front();
                self.drops.come_count.store(come.len(), Ordering::SeqCst);
                next
            };
            let Some((from, dropped)) = next else { break };
            // SAFETY: rules 1 to 3: for objects in slots of the own partition: their owner, which has the
            // only word, says that they are to be dropped.
            let ended = unsafe { drop_own(self, from, dropped) };
            self.drops.done.fetch_add(1, Ordering::SeqCst);
            ended?;
        }
        Ok(())
    }

    /// Returns the drop information of the type of own values, if they can be where a rank says.
    fn kind_here(&self, from: Rank, dropped: Dropped) -> Result<&'static Kind, ObjectError> {
        let Dropped { word, number, count } = dropped;
        let offset = OWN.offset_of(word.address());
        let room = offset.and_then(|offset| self.slabs().value_at(offset, word.colour()).ok());
        let (Some(room), Some(kind)) = (room, kind(number)) else {
            return Err(ObjectError::Usage(format!("{from} lets go of {word:?}, which is no object")));
        };
        let bytes = (kind.bytes as u64).saturating_mul(count.into());
        if bytes == 0 || bytes > room || !word.address().is_multiple_of(kind.align as u64) {
            let name = kind.name;
            return Err(ObjectError::Usage(format!(
                "{from} lets go of {count} of {name} at {word:?}, where no room is for them"
            )));
        }
        Ok(kind)
    }

    /// Lets go of another rank's values, to be dropped there: this many in a row. False: their drop is more than glue, or they are to be dropped as
    /// a copy of their bytes.
    pub(super) fn let_go<T: Portable>(&self, word: Word, count: u64) -> bool {
        if self.has_replicas() {
            return false;
        }
        let (Some(number), Ok(count)) = (number_of::<T>(), u32::try_from(count)) else { return false };
        // Messages that cannot be sent are lost with their rank, and the job.
        let _ =
            self.let_go_of(Dropped { word, number, count }, size_of::<T>().saturating_mul(count as usize));
        true
    }

    /// Returns true if other ranks' values of this type, in a row, can be let go of.
    pub(super) fn may_let_go<T: Portable>(&self, count: u64) -> bool {
        !self.has_replicas() && u32::try_from(count).is_ok() && number_of::<T>().is_some()
    }

    fn let_go_of(&self, dropped: Dropped, bytes: usize) -> Result<(), ObjectError> {
        if is_planted(Fault::ForgottenDrop) {
            return Ok(());
        }
        // This rank's copy of it is memory for the next.
        if let Some(copy) = self.copies.take_of_dropped(dropped.word) {
            self.forget(copy)?;
        }
        let rank = self.locate(dropped.word.address()).rank;
        let is_full = {
            let mut leaving = lock(&self.drops.leaving);
            let (list, all_bytes) = leaving.entry(rank).or_default();
            list.push(dropped);
            *all_bytes += bytes;
            // Before it can be done.
            self.drops.let_go.fetch_add(1, Ordering::SeqCst);
            self.drops.leaving_count.fetch_add(1, Ordering::Relaxed);
            list.len() >= FREES || *all_bytes >= FREES_BYTES
        };
        // Handlers must not wait, as for room in a message: the queued drops go with the next.
        if is_full && !self.runtime.messages().in_handler() { self.send_drops(rank) } else { Ok(()) }
    }

    /// Returns true if drops of remote values have not been told yet.
    pub(super) fn has_drops(&self) -> bool {
        self.drops.leaving_count.load(Ordering::Relaxed) > 0
    }

    /// Tells all ranks what this one has let go of. Cheap if there is nothing.
    pub(super) fn send_all_drops(&self) -> Result<(), ObjectError> {
        if !self.has_drops() || self.runtime.messages().in_handler() {
            return Ok(());
        }
        let ranks: Vec<Rank> = lock(&self.drops.leaving).keys().copied().collect();
        ranks.into_iter().try_for_each(|rank| self.send_drops(rank))
    }

    /// Tells a rank. If that fails, the values stay queued.
    fn send_drops(&self, rank: Rank) -> Result<(), ObjectError> {
        self.drops.hear_of_reads(self.hooks)?;
        let most = (self.runtime.medium_bytes_max() / ENTRY_BYTES).max(1);
        loop {
            let some: Vec<Dropped> = {
                let mut leaving = lock(&self.drops.leaving);
                let Some((list, all_bytes)) = leaving.get_mut(&rank) else { return Ok(()) };
                let at = list.len().saturating_sub(most);
                let some = list.split_off(at);
                if list.is_empty() {
                    *all_bytes = 0;
                }
                self.drops.leaving_count.fetch_sub(some.len(), Ordering::Relaxed);
                some
            };
            if some.is_empty() {
                return Ok(());
            }
            let bytes: Vec<u8> = some.iter().flat_map(Dropped::bytes).collect();
            if let Err(why) = self.runtime.send(rank, HANDLER, &[kinds().mark], &bytes) {
                let mut leaving = lock(&self.drops.leaving);
                self.drops.leaving_count.fetch_add(some.len(), Ordering::Relaxed);
                leaving.entry(rank).or_default().0.extend(some);
                return Err(why.into());
            }
        }
    }

    /// Returns the numbers of remote objects let go of, and of own objects dropped for other ranks.
    pub(super) fn drops_told_and_done(&self) -> [u64; 2] {
        // Values are let go of before they are dropped: read in this order, `let_go` is never the smaller.
        let done = self.drops.done.load(Ordering::SeqCst);
        [self.drops.let_go.load(Ordering::SeqCst), done]
    }
}

/// Tells all ranks which of their values this one has let go of, as far as untold: after the end of a task,
/// no more drops are to follow. Completes abandoned reads first: the lender may let go of the object next.
pub(crate) fn tell_drops() -> Result<(), ObjectError> {
    let Ok(heap) = heap() else { return Ok(()) };
    heap.drops.hear_of_reads(heap.hooks)?;
    heap.send_all_drops()
}

/// Returns true if values of this rank, let go of by others, are still to be dropped.
pub(crate) fn has_drops_to_do() -> bool {
    heap().is_ok_and(Heap::has_come)
}

/// Drops it, and tells others what these objects owned of theirs: for a rank that has nothing else to do.
pub(crate) fn drop_for_others() {
    let Ok(heap) = heap() else { return };
    if !heap.has_come() {
        return;
    }
    match heap.drop_come(usize::MAX) {
        // A rank that cannot be told is lost, and mostly the job with it.
        Ok(()) => drop(heap.flush()),
        Err(why) => super::complain(&why.to_string()),
    }
}

/// Decodes any bytes as a message, and checks that it round-trips, with types that are dropped for others.
#[cfg(any(test, fuzzing))]
pub(super) fn any_message(bytes: &[u8]) {
    let number = number_of::<super::DBox<super::DBox<u64>>>().expect("its drop is glue");
    let mut bytes = bytes.to_vec();
    for entry in bytes.as_chunks_mut::<ENTRY_BYTES>().0 {
        if entry[8..12] == [0; 4] {
            entry[8..12].copy_from_slice(&number.to_le_bytes());
        }
    }
    if let Some(all) = Dropped::all_of(&bytes) {
        assert_eq!(all.iter().flat_map(Dropped::bytes).collect::<Vec<_>>(), bytes);
        for Dropped { number, count, .. } in all {
            assert!(count > 0 && kind(number).is_some_and(|kind| kind.is_glue && kind.bytes > 0));
        }
    }
}

/// Messages, for [`any_message`].
#[cfg(test)]
pub(super) fn some_messages() -> Vec<(&'static str, Vec<u8>)> {
    let said = |word: u64, number: u32, count: u32| {
        [&word.to_le_bytes()[..], &number.to_le_bytes(), &count.to_le_bytes()].concat()
    };
    vec![
        ("drops", [said(1 << 48 | 1 << 40, 0, 1), said(1 << 40, 0, u32::MAX)].concat()),
        ("drops-of-no-type", said(1 << 40, u32::MAX, 1)),
        ("drops-of-nothing", [said(1 << 40, 0, 0), said(0, 0, 1)].concat()),
        ("drops-cut", said(1 << 40, 0, 1)[..15].to_vec()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DBox, DVec, Portable};

    #[derive(Portable)]
    struct WithDrop(u64);

    impl Drop for WithDrop {
        fn drop(&mut self) {
            self.0 = 0;
        }
    }

    /// Goal: each type whose drop is glue has a number, by which it is found, with its size; and no other has one, though it is in the table.
    #[test]
    fn types_have_numbers() {
        let numbers =
            [number_of::<DBox<u64>>(), number_of::<DVec<DBox<u64>>>(), number_of::<[DBox<u64>; 3]>()];
        for (number, bytes) in numbers.into_iter().zip([16, 32, 48]) {
            assert_eq!(number.and_then(kind).map(|kind| kind.bytes), Some(bytes));
        }
        assert_eq!(
            [number_of::<WithDrop>(), number_of::<DBox<WithDrop>>(), number_of::<DVec<Option<WithDrop>>>()],
            [None; 3]
        );
        let is_in = |kind: &Option<Kind>| kind.as_ref().is_some_and(|kind| kind.name.ends_with("::WithDrop"));
        let at = kinds().all.iter().position(is_in).expect("it has an entry");
        assert!(
            kind(at as u32).is_none() && kind(kinds().all.len() as u32).is_none() && kind(u32::MAX).is_none()
        );
    }
}
