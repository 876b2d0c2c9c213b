//! Arguments of tasks as bytes, there and back.

use crate::bytes::{self, place, take};
use crate::heap::{borrow_from, give, has_links, leave_behind, make_dead};
use crate::portable::{Portable, Shareable};
use crate::shape::{Links, links_of};
use crate::word::Link;
use rustc_hash::FxHasher;
use std::any::Any;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vgas::{NodeId, Rank};

/// Most bytes of a task's loans and arguments, and of its result: as much as every network has in a message.
pub(super) const BYTES_MAX: usize = 2048;

/// Arguments lent to a task of a [`scope`](crate::scope): references to portable values, and several of them.
///
/// On the task's rank, a reference means the value's bytes: its boxes are borrowed as from here. Through
/// `&mut`, the value may be changed; it is here again, changed, when the task has ended.
///
/// # Safety
/// `pack` writes, and `unpack` and `give_back` read, [`Lent::BYTES`] bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not lent to a task: the first of two arguments is a reference, or a tuple of some",
    label = "not lent",
    note = "what a task owns is its last argument; several values are a tuple, as in `task!(|(a, b): (u64, u64)| a + b)`"
)]
pub unsafe trait Lent<'s>: Sized + Send {
    /// The same for another lifetime: a task accepts each, so that none can be told apart from the time for which it runs.
    #[doc(hidden)]
    type For<'a>: Lent<'a>;
    /// Memory of a value while a task runs with it.
    #[doc(hidden)]
    type Frame;
    /// Bytes of it in a message.
    #[doc(hidden)]
    const BYTES: usize;
    /// True if it has links and may be changed.
    #[doc(hidden)]
    const LENDS_LINKS: bool = false;

    /// Writes the bytes; notes their destination if they come back.
    #[doc(hidden)]
    fn pack(self, to: &mut Vec<u8>, back: &mut Vec<Back>);

    /// # Safety
    /// The bytes were packed from such a value by a rank of this job. The result is used while `frame` stays
    /// in place.
    #[doc(hidden)]
    unsafe fn unpack(bytes: &[u8], frame: &mut MaybeUninit<Self::Frame>) -> Self;

    /// # Safety
    /// `frame` was unpacked, and the unpacked value is used no more.
    #[doc(hidden)]
    unsafe fn give_back(frame: &mut MaybeUninit<Self::Frame>, to: &mut Vec<u8>);

    #[doc(hidden)]
    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64));
}

/// Arguments of a task: loans, and values that it owns.
///
/// # Safety
/// As of [`Lent`].
pub unsafe trait Arguments<'s>: Sized {
    /// As of [`Lent`].
    #[doc(hidden)]
    type For<'a>: Arguments<'a>;
    #[doc(hidden)]
    type Lent: Lent<'s>;
    #[doc(hidden)]
    type Values: Portable;
    #[doc(hidden)]
    fn of(lent: Self::Lent, given: Self::Values) -> Self;
}

// SAFETY: it is made of its parts.
unsafe impl<'s, L: Lent<'s>, A: Portable> Arguments<'s> for (L, A) {
    type For<'a> = (L::For<'a>, A);
    type Lent = L;
    type Values = A;

    fn of(lent: L, given: A) -> Self {
        (lent, given)
    }
}

/// Destination of bytes that come back.
#[derive(Debug)]
pub struct Back {
    at: usize,
    bytes: usize,
    /// None if it has none.
    links: Option<Links>,
}

impl Back {
    /// It does not come back, and objects of it may be elsewhere.
    ///
    /// # Safety
    /// It was packed by this process, from a value that is still borrowed.
    pub(super) unsafe fn make_dead(&self, lost: NodeId) {
        if let Some(links) = self.links {
            // SAFETY: the caller's promise: mutably borrowed from the lender, which waits. Without a heap,
            // nothing is used again.
            let _ = unsafe { make_dead(self.at, self.bytes, links, lost) };
        }
    }

    /// # Safety
    /// It was packed by this process, from a value that is still borrowed, and the bytes are those that were
    /// given back for it.
    pub(super) unsafe fn restore(&self, from: &mut &[u8]) -> bool {
        let Some((own, rest)) = from.split_at_checked(self.bytes) else { return false };
        *from = rest;
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.at);
        // SAFETY: the caller's promise: a value of this size, mutably borrowed from the lender, which waits.
        unsafe { to.copy_from_nonoverlapping(own.as_ptr(), own.len()) };
        true
    }
}

// SAFETY: no bytes.
unsafe impl Lent<'_> for () {
    type For<'a> = ();
    type Frame = ();
    const BYTES: usize = 0;

    fn pack(self, _: &mut Vec<u8>, _: &mut Vec<Back>) {}

    unsafe fn unpack(_: &[u8], _: &mut MaybeUninit<()>) -> Self {}

    unsafe fn give_back(_: &mut MaybeUninit<()>, _: &mut Vec<u8>) {}

    fn weigh(&self, _: &mut dyn FnMut(&Link, u64)) {}
}

// SAFETY: the bytes of the value.
unsafe impl<'s, X: Shareable> Lent<'s> for &'s X {
    type For<'a> = &'a X;
    type Frame = X;
    const BYTES: usize = size_of::<X>();

    fn pack(self, to: &mut Vec<u8>, _: &mut Vec<Back>) {
        bytes::append_shared(self, to);
    }

    unsafe fn unpack(bytes: &[u8], frame: &mut MaybeUninit<X>) -> Self {
        // SAFETY: rule 2; it stays as long as it is used, by the caller's promise.
        unsafe {
            place(bytes, frame);
            &*frame.as_ptr()
        }
    }

    unsafe fn give_back(frame: &mut MaybeUninit<X>, _: &mut Vec<u8>) {
        // SAFETY: it was placed. It is a copy: never dropped, but counted no more.
        leave_behind(unsafe { frame.assume_init_ref() });
    }

    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        Portable::weigh(*self, visit);
    }
}

// SAFETY: the bytes of the value.
unsafe impl<'s, X: Portable> Lent<'s> for &'s mut X {
    type For<'a> = &'a mut X;
    type Frame = X;
    const BYTES: usize = size_of::<X>();
    const LENDS_LINKS: bool = X::HAS_LINKS;

    fn pack(self, to: &mut Vec<u8>, back: &mut Vec<Back>) {
        leave_behind(&*self);
        to.extend_from_slice(bytes::of(&mut *self));
        let links: Option<Links> = if X::HAS_LINKS { Some(links_of::<X>) } else { None };
        back.push(Back { at: std::ptr::from_mut(self).expose_provenance(), bytes: size_of::<X>(), links });
    }

    unsafe fn unpack(bytes: &[u8], frame: &mut MaybeUninit<X>) -> Self {
        // SAFETY: as above.
        unsafe {
            place(bytes, frame);
            &mut *frame.as_mut_ptr()
        }
    }

    unsafe fn give_back(frame: &mut MaybeUninit<X>, to: &mut Vec<u8>) {
        // SAFETY: it was placed, and is a value again when its bytes are back.
        give(unsafe { frame.assume_init_read() }, to);
    }

    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        Portable::weigh(&**self, visit);
    }
}

macro_rules! several {
    ($(($($part:ident $at:tt)+))*) => { $(
        // SAFETY: one after the other.
        unsafe impl<'s, $($part: Lent<'s>),+> Lent<'s> for ($($part,)+) {
            type For<'a> = ($($part::For<'a>,)+);
            type Frame = ($(MaybeUninit<$part::Frame>,)+);
            const BYTES: usize = 0 $(+ $part::BYTES)+;
            const LENDS_LINKS: bool = false $(|| $part::LENDS_LINKS)+;

            fn pack(self, to: &mut Vec<u8>, back: &mut Vec<Back>) {
                $(self.$at.pack(to, back);)+
            }

            unsafe fn unpack(bytes: &[u8], frame: &mut MaybeUninit<Self::Frame>) -> Self {
                let frame = frame.write(($(MaybeUninit::<$part::Frame>::uninit(),)+));
                let mut rest = bytes;
                // SAFETY: the caller's promise, for each part.
                let parts = ($(unsafe {
                    let (own, others) = rest.split_at($part::BYTES);
                    rest = others;
                    $part::unpack(own, &mut frame.$at)
                },)+);
                debug_assert!(rest.is_empty());
                parts
            }

            unsafe fn give_back(frame: &mut MaybeUninit<Self::Frame>, to: &mut Vec<u8>) {
                // SAFETY: it was unpacked, and so were its parts.
                unsafe {
                    let frame = frame.assume_init_mut();
                    $($part::give_back(&mut frame.$at, to);)+
                }
            }

            fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
                $(self.$at.weigh(visit);)+
            }
        }
    )* };
}

several! {
    (A 0) (A 0 B 1) (A 0 B 1 C 2) (A 0 B 1 C 2 D 3) (A 0 B 1 C 2 D 3 E 4) (A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6) (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)
}

/// A value that goes to a task among what is lent to it ([`call!`](crate::call)): it does not come back.
#[derive(Debug)]
pub struct Moved<X>(pub(super) X);

// SAFETY: the bytes of the value.
unsafe impl<X: Portable> Lent<'_> for Moved<X> {
    type For<'a> = Self;
    type Frame = ();
    const BYTES: usize = size_of::<X>();

    fn pack(self, to: &mut Vec<u8>, _: &mut Vec<Back>) {
        give(self.0, to);
    }

    unsafe fn unpack(bytes: &[u8], _: &mut MaybeUninit<()>) -> Self {
        // SAFETY: rule 2: it is the task's.
        Self(unsafe { take(bytes) })
    }

    unsafe fn give_back(_: &mut MaybeUninit<()>, _: &mut Vec<u8>) {}

    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        Portable::weigh(&self.0, visit);
    }
}

thread_local! {
    /// The rank that has begun the task which this thread is about to run, if that is another one, and the task's number there.
    pub(super) static LENDER: Cell<Option<(Rank, u64)>> = const { Cell::new(None) };
    /// True if the outcome of this thread's last task has links.
    pub(super) static GIVES: Cell<bool> = const { Cell::new(false) };
}

/// Outcomes of a task: the first byte.
pub(super) const RETURNED: u8 = 0;
pub(super) const PANICKED: u8 = 1;
pub(super) const MISREAD: u8 = 2;
/// It has not begun, and does not: no tasks are run any more. The node's number follows where one is lost.
pub(super) const STOPPED: u8 = 3;

/// Encodes the outcome of a task that is not run.
pub(super) fn stopped(runtime: &vgas::Runtime) -> Vec<u8> {
    let lost = runtime.lost_nodes().first().map(|node| node.0.to_le_bytes());
    std::iter::once(STOPPED).chain(lost.into_iter().flatten()).collect()
}

/// Identifies the arguments and results of tasks, and their layout in memory: the first bytes of the
/// arguments. The layout of a type's parts follows from the program, which all ranks have compared
/// ([`crate::Objects::run`]).
pub(super) fn mark<'s, A: Arguments<'s>, R>() -> [u8; 8] {
    let mut hasher = FxHasher::default();
    std::any::type_name::<fn(A) -> R>().hash(&mut hasher);
    let given = (size_of::<A::Values>(), align_of::<A::Values>());
    let frame = align_of::<<A::Lent as Lent<'s>>::Frame>();
    (given, A::Lent::BYTES, frame, size_of::<R>(), align_of::<R>()).hash(&mut hasher);
    hasher.finish().to_le_bytes()
}

/// Returns true if a task's arguments lead to objects.
pub(super) fn lead_to_objects<'s, A: Arguments<'s>>(lent: &A::Lent, given: &A::Values) -> bool {
    let mut has_links = false;
    let mut see = |_: &Link, _: u64| has_links = true;
    lent.weigh(&mut see);
    Portable::weigh(given, &mut see);
    has_links
}

/// The bytes of a task's arguments.
pub(super) fn pack<'s, A: Arguments<'s>, R>(
    lent: A::Lent,
    given: A::Values,
    back: &mut Vec<Back>,
) -> Vec<u8> {
    const {
        assert!(
            A::Lent::BYTES + size_of::<A::Values>() <= BYTES_MAX,
            "a task is lent and given at most 2 KiB: put more into a DBox"
        )
    };
    let mut bytes = Vec::with_capacity(8 + A::Lent::BYTES + size_of::<A::Values>());
    bytes.extend(mark::<A, R>());
    lent.pack(&mut bytes, back);
    give(given, &mut bytes);
    bytes
}

/// Runs a task on the bytes of its arguments. Returns its outcome: its kind, the bytes of its loans, and the
/// result, or the message of its panic.
pub(super) fn run<'s, A: Arguments<'s>, R: Portable>(
    bytes: &[u8],
    task: impl FnOnce(A) -> R,
) -> Option<Vec<u8>> {
    const { assert!(size_of::<R>() <= BYTES_MAX, "a task returns at most 2 KiB: put more into a DBox") };
    let bytes = bytes.strip_prefix(&mark::<A, R>())?;
    if bytes.len() != A::Lent::BYTES + size_of::<A::Values>() {
        return None;
    }
    let (lent, given) = bytes.split_at(A::Lent::BYTES);
    let mut frame = MaybeUninit::uninit();
    let lender = LENDER.take().filter(|_| A::Lent::LENDS_LINKS);
    let loan = lender.and_then(|(lender, number)| {
        borrow_from(lender, move || super::tell_lender(lender, Some(number), 0))
    });
    // SAFETY: rule 2: packed by `pack` for this entry of the table; used within this function.
    let (lent, given) = unsafe { (A::Lent::unpack(lent, &mut frame), take::<A::Values>(given)) };
    let ended = catch_unwind(AssertUnwindSafe(|| task(A::of(lent, given))));
    // Its remaining loans are given back.
    drop(loan);
    GIVES.set(A::Lent::LENDS_LINKS || ended.as_ref().is_ok_and(has_links));
    let mut outcome = vec![if ended.is_ok() { RETURNED } else { PANICKED }];
    // SAFETY: the task has ended, and with it what it was lent.
    unsafe { A::Lent::give_back(&mut frame, &mut outcome) };
    match ended {
        Ok(result) => give(result, &mut outcome),
        Err(panic) => outcome.extend(message_of(panic).bytes().take(BYTES_MAX)),
    }
    Some(outcome)
}

/// Returns a panic's message, and drops its payload.
pub(super) fn message_of(panic: Box<dyn Any + Send>) -> String {
    let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
    drop_payload(panic);
    message.unwrap_or_else(|| "it did not say why".into())
}

/// Drops the payload of a panic. If that panics in turn, which the panic hook reports, the second payload is
/// leaked: std leaves a payload to the thread that joins, here it has no recipient, and the task's waiters
/// must be told of its end.
pub(crate) fn drop_payload(panic: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(next);
    }
}

/// The result, of bytes that a task has returned; none if they are not as many.
pub(super) fn result_of<R: Portable>(bytes: &[u8]) -> Option<R> {
    // SAFETY: rule 2: the bytes of a result, which comes once.
    (bytes.len() == size_of::<R>()).then(|| unsafe { take(bytes) })
}

/// Number of ranks that are distinguished when weighing a task's arguments: of more, those with most.
const RANKS_TOLD_APART: usize = 8;

/// Weight of an object beside its bytes: about as many as move in the time of the message, and its answer,
/// that brings it.
const OBJECT_BYTES: u64 = 4096;

/// Returns the rank that has most bytes of the objects that are weighed, the first of those that have as much; none without objects. Links
/// within these objects do not count: to ask their homes would cost more than a task.
pub(super) fn rank_of_most(
    weigh: impl FnOnce(&mut dyn FnMut(&Link, u64)),
    rank_of: impl Fn(u64) -> Option<Rank>,
) -> Option<Rank> {
    let mut found: [Option<(Rank, u64)>; RANKS_TOLD_APART] = [None; RANKS_TOLD_APART];
    weigh(&mut |link, bytes| {
        let Some(rank) = rank_of(link.word().address()) else { return };
        let more = bytes.saturating_add(OBJECT_BYTES);
        for place in &mut found {
            let (of, weight) = place.get_or_insert((rank, 0));
            if *of == rank {
                *weight = weight.saturating_add(more);
                return;
            }
        }
        let least = found.iter_mut().flatten().min_by_key(|(_, weight)| *weight);
        if let Some(least) = least.filter(|(_, weight)| *weight < more) {
            *least = (rank, more);
        }
    });
    let mut most: Option<(Rank, u64)> = None;
    for (rank, weight) in found.into_iter().flatten() {
        if most.is_none_or(|(_, before)| weight > before) {
            most = Some((rank, weight));
        }
    }
    most.map(|(rank, _)| rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{Colour, Word};

    /// A large value, on the rank whose number is its address in megabytes.
    struct Of(Link, u64);

    // SAFETY: a link, which is visited, and a number.
    unsafe impl Portable for Of {
        const HAS_LINKS: bool = true;

        fn links(&self, visit: &mut dyn FnMut(&Link)) {
            visit(&self.0);
        }

        fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
            visit(&self.0, self.1);
        }
    }

    // SAFETY: it is never written.
    unsafe impl Shareable for Of {}

    fn of(rank: u64, bytes: u64) -> Of {
        Of(Link::new(Word::new(rank << 20 | 16, Colour(0)).unwrap()), bytes)
    }

    fn runs_on<const N: usize>(all: [(u64, u64); N]) -> Option<u32> {
        let lent = all.map(|(rank, bytes)| of(rank, bytes));
        let rank_of = |address: u64| Some(Rank((address >> 20) as u32));
        let by_lending = rank_of_most(|note| Lent::weigh(&&lent, note), rank_of);
        let by_giving = rank_of_most(|note| Portable::weigh(&(lent, 1u8), note), rank_of);
        assert_eq!(by_lending, by_giving);
        by_lending.map(|rank| rank.0)
    }

    /// Goal: a task belongs to where most bytes of its arguments are, however many small objects are elsewhere; many small ones count for
    /// the messages that bring them.
    #[test]
    fn bytes_of_arguments_decide() {
        assert_eq!(runs_on([]), None);
        assert_eq!(runs_on([(1, 16), (1, 16), (2, 1 << 30)]), Some(2));
        assert_eq!(runs_on([(2, 1 << 30), (1, 16), (1, 16)]), Some(2));
        assert_eq!(
            runs_on([(1, 16), (1, 16), (2, 4000)]),
            Some(1),
            "two messages bring more than one of 4000 bytes"
        );
        assert_eq!(runs_on([(1, 16), (1, 16), (2, 5000)]), Some(2));
        assert_eq!(runs_on([(3, 8), (1, 8), (2, 8)]), Some(3), "the first of those that have as much");
        assert_eq!(
            runs_on([(3, 8), (1, 8), (2, 8), (1, 0)]),
            Some(1),
            "what does not say how large it is counts, too"
        );
        assert_eq!(runs_on([(1, u64::MAX), (2, 8), (1, u64::MAX)]), Some(1), "sums do not come round");
    }

    /// Goal: even if arguments are of more ranks than are told apart, the one with the large object is found.
    #[test]
    fn a_large_object_is_found_among_many() {
        for at in 0..20 {
            let all: [_; 20] =
                std::array::from_fn(|rank| (rank as u64, if rank == at { 1 << 20 } else { 64 }));
            assert_eq!(runs_on(all), Some(at as u32));
        }
    }

    /// Goal: arguments of another length, of other types, or of nothing are not made values.
    #[test]
    fn other_arguments_are_refused() {
        type TestArguments = ((), (u64, bool));
        let task = |((), (number, is_so)): TestArguments| -> u64 { number + u64::from(is_so) };
        let bytes = pack::<TestArguments, u64>((), (41, true), &mut Vec::new());
        let outcome = run::<TestArguments, u64>(&bytes, task).unwrap();
        assert_eq!((outcome[0], result_of::<u64>(&outcome[1..])), (RETURNED, Some(42)));
        let other = pack::<((), (u64, u64)), u64>((), (41, 2), &mut Vec::new());
        for wrong in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat(), &other, &[]] {
            assert!(run::<TestArguments, u64>(wrong, task).is_none(), "{wrong:?}");
        }
        assert_eq!(result_of::<u64>(&outcome), None);
    }

    /// Goal: values with padding, and with links that may be noted in meanwhile, are unchanged when lent,
    /// given and returned. Under Miri: nothing looks at padding.
    #[test]
    fn values_with_padding_are_lent() {
        type Lent<'s> = ((&'s (u8, Of), &'s mut (u16, Option<u32>)), (u8, u64));
        let (shared, mut changed) = ((1, of(2, 3)), (4, None));
        shared.1.0.extension.store(7, std::sync::atomic::Ordering::Relaxed);
        let mut back = Vec::new();
        let bytes = pack::<Lent<'_>, (u8, u32)>((&shared, &mut changed), (5, 6), &mut back);
        let outcome = run::<Lent<'_>, (u8, u32)>(&bytes, |((shared, changed), given): Lent<'_>| {
            assert_eq!(shared.1.0.extension.load(std::sync::atomic::Ordering::Relaxed), 0);
            *changed = (changed.0 + 1, Some(given.1 as u32));
            (shared.0 + given.0, shared.1.1 as u32)
        });
        let outcome = outcome.unwrap();
        let mut rest = &outcome[1..];
        // SAFETY: lent by this test, which has nothing else of it.
        assert!(back.iter().all(|back| unsafe { back.restore(&mut rest) }));
        assert_eq!((result_of::<(u8, u32)>(rest), changed), (Some((6, 3)), (5, Some(6))));
        assert_eq!(shared.1.0.extension.load(std::sync::atomic::Ordering::Relaxed), 7);
    }

    /// Goal: a loan is there while the task runs, and its changes come back, even after a panic.
    #[test]
    fn what_is_lent_comes_back() {
        type Lent<'s> = ((&'s mut [u32; 3], &'s u8), u32);
        let (mut numbers, by) = ([1, 2, 3], 10);
        for panics in [0, 1] {
            let mut back = Vec::new();
            let bytes = pack::<Lent<'_>, ()>((&mut numbers, &by), panics, &mut back);
            let outcome = run::<Lent<'_>, ()>(&bytes, |((numbers, by), panics): Lent<'_>| {
                numbers.iter_mut().for_each(|number| *number += u32::from(*by));
                assert!(panics == 0, "as it should");
            });
            let outcome = outcome.unwrap();
            let mut rest = &outcome[1..];
            // SAFETY: lent by this test, which has nothing else of it.
            assert!(back.iter().all(|back| unsafe { back.restore(&mut rest) }));
            assert_eq!(rest, if panics == 0 { &b""[..] } else { b"as it should" });
        }
        assert_eq!(numbers, [21, 22, 23]);
    }
}
