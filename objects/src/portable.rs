//! Types whose values may lie in the global heap.
//!
//! # Rules for the unsafe code in this file
//!
//! A type is [`Portable`] here if all of its bytes are values of the type itself, and it has no [`Link`]s but those that it visits; it
//! is [`Shareable`] if it has no interior mutability.

use crate::glue::Glue;
use crate::layout::Layout;
use crate::tie::Ties;
use crate::word::Link;
use std::cell::Cell;
use std::cmp::{Ordering, Reverse};
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::{NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize};
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize};
use std::num::{Saturating, Wrapping};
use std::ops::{Range, RangeFrom, RangeTo};
use std::time::Duration;

/// The bytes of a value mean the same in every process of the job: it may be moved there. Derived:
///
/// ```
/// use vgas_objects::{Portable, Shareable};
///
/// #[derive(Portable, Shareable)]
/// struct Point { x: f64, y: f64 }
///
/// #[derive(Portable, Shareable)]
/// enum Shape<Label> { Empty, Circle(Point, f64), Named { of: [Point; 4], label: Label } }
/// ```
///
/// Types that are meaningless in another process do not compile: memory of this process, and handles from the
/// kernel.
///
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Text { text: String }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Borrowed { of: &'static u64 }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Pointer(*mut u8);
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Callback { call: fn(u64) -> u64 }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] enum Kept { No, Here(Box<u64>) }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Any { what: Box<dyn Send> }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Many(Vec<u64>);
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Shared(std::sync::Arc<u64>);
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Locked(std::sync::Mutex<u64>);
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Open { file: std::fs::File }
/// ```
/// ```compile_fail
/// # use vgas_objects::Portable;
/// #[derive(Portable)] union Either { bits: u64, number: f64 }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Portable;
/// #[derive(Portable)] struct Of<T>(T);
/// fn is<T: Portable>() {}
/// is::<Of<String>>();
/// ```
///
/// # Safety
/// Every value that is valid in one process of the job, which runs the same program, is valid in all, moved as bytes; and
/// [`Portable::links`] visits all links in it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` means nothing in another process: it cannot lie in the global heap",
    label = "not portable",
    note = "derive `Portable` for a type of your own; text is a `DString`, a list a `DVec`, a map a `DMap`, what is behind a pointer a `DBox`, and one of several types an enum instead of `dyn Trait`",
    note = "references are lent to tasks of a `scope`; memory, files and functions of this process do not travel",
    note = "a task that fails says so by a panic, whose words `join` has, or by a type of its own: errors of std and of this crate do not travel"
)]
pub unsafe trait Portable: Sized + Send + 'static {
    /// True if a value can have links.
    const HAS_LINKS: bool;

    /// Shows each link in it. Does nothing else.
    fn links(&self, visit: &mut dyn FnMut(&Link));

    /// Visits each link in it, with the number of bytes behind it as far as the value itself knows: 0 if it
    /// does not. Tasks that may run anywhere run where most of these are ([`TaskPlace`](crate::TaskPlace)).
    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        self.links(&mut |link| visit(link, 0));
    }

    /// True if a value can have objects tied to it ([`TBox`](crate::TBox)), whose words' offsets it then
    /// gives.
    const HAS_TIES: bool = false;

    /// True if a value is the word of a tied object, and nothing else.
    #[doc(hidden)]
    const IS_TIE: bool = false;

    /// Says where in a value the words of objects are that are tied to it. Those that it does not tell of are fetched by themselves; so are
    /// those in variants of enums, except in an `Option`.
    fn ties(ties: &mut Ties) {
        let _ = ties;
    }

    /// Visits the types of a value's parts, and of the objects that it owns, or declares that dropping it is
    /// more than dropping those ([`Glue::own`]): then it is dropped by its owner, and a remote one comes
    /// there before. All others are dropped in place, without being fetched. Not asked of types that have
    /// nothing to drop.
    fn glue(glue: &mut Glue) {
        glue.own();
    }

    /// Describes the memory layout of values: of their parts, and of the objects in their boxes, beyond the
    /// type's name and size.
    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
    }
}

/// Nothing changes behind a shared reference to it: a copy may be read while the original is borrowed. Derived.
///
/// ```compile_fail,E0277
/// # use vgas_objects::{Portable, Shareable};
/// #[derive(Portable, Shareable)] struct Counter { count: std::cell::Cell<u64> }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::{Portable, Shareable};
/// #[derive(Portable, Shareable)] enum Counters { One(std::cell::Cell<u64>), None }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::{Portable, Shareable};
/// #[derive(Portable, Shareable)] struct Counter(std::sync::atomic::AtomicU64);
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::Shareable;
/// #[derive(Shareable)] struct Alone(u64);
/// ```
///
/// # Safety
/// As it says: no `Cell`, no atomic, no lock, directly or in a part.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can change while others read it: ranks cannot have copies of it",
    label = "not shareable",
    note = "derive `Shareable`, too, for a type of your own, or write `DBox::get_mut` and `into_inner` where only its owner looks at it; what changes while others have it is a `DMutex` or a `DAtomicU64` of `vgas_objects::sync`, and all else is written through `DBox::get_mut`"
)]
pub unsafe trait Shareable: Portable + Sync {
    /// For the derive: a no-op that does not compile if a part is not shareable.
    #[doc(hidden)]
    fn check(&self) {}
}

macro_rules! plain {
    ($($plain:ty),*) => { $(
        // SAFETY: the rule of this file.
        unsafe impl Portable for $plain {
            const HAS_LINKS: bool = false;
            fn links(&self, _: &mut dyn FnMut(&Link)) {}
            // Its name says all.
            fn describe(_: &mut Layout) {}
        }
        // SAFETY: the rule of this file.
        unsafe impl Shareable for $plain {}
    )* };
}

plain!((), bool, char, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);
plain!(NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize);
plain!(NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize);
plain!(Duration, Ordering, Ipv4Addr, Ipv6Addr, IpAddr);

// SAFETY: the rule of this file: it has no bytes.
unsafe impl<T: Send + 'static> Portable for PhantomData<T> {
    const HAS_LINKS: bool = false;
    fn links(&self, _: &mut dyn FnMut(&Link)) {}
}
// SAFETY: the rule of this file.
unsafe impl<T: Send + Sync + 'static> Shareable for PhantomData<T> {}

// SAFETY: the rule of this file; its links could only be visited by `T: Copy`, which no type with links is.
unsafe impl<T: Portable + Copy> Portable for Cell<T> {
    const HAS_LINKS: bool = T::HAS_LINKS;
    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        self.get().links(visit);
    }
    fn describe(layout: &mut Layout) {
        T::describe(layout);
    }
}

// SAFETY: the rule of this file.
unsafe impl<T: Portable, const N: usize> Portable for [T; N] {
    const HAS_LINKS: bool = T::HAS_LINKS;
    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        self.iter().for_each(|one| one.links(visit));
    }
    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        self.iter().for_each(|one| one.weigh(visit));
    }
    const HAS_TIES: bool = T::HAS_TIES;
    fn ties(ties: &mut Ties) {
        (0..N).for_each(|at| ties.part::<T>(at * size_of::<T>()));
    }
    fn glue(glue: &mut Glue) {
        glue.part::<T>();
    }
    fn describe(layout: &mut Layout) {
        T::describe(layout);
    }
}
// SAFETY: the rule of this file.
unsafe impl<T: Shareable, const N: usize> Shareable for [T; N] {}

// SAFETY: the rule of this file.
unsafe impl<T: Portable> Portable for Option<T> {
    const HAS_LINKS: bool = T::HAS_LINKS;
    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        self.iter().for_each(|one| one.links(visit));
    }
    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        self.iter().for_each(|one| one.weigh(visit));
    }
    // An option of a tie has its word in the same place, or 0 there. For an option of anything else, the
    // bytes of `None` are unknown.
    const HAS_TIES: bool = T::IS_TIE;
    fn ties(ties: &mut Ties) {
        ties.part::<T>(0);
    }
    fn glue(glue: &mut Glue) {
        glue.part::<T>();
    }
    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
        T::describe(layout);
    }
}
// SAFETY: the rule of this file.
unsafe impl<T: Shareable> Shareable for Option<T> {}

// SAFETY: the rule of this file.
unsafe impl<T: Portable, E: Portable> Portable for Result<T, E> {
    const HAS_LINKS: bool = T::HAS_LINKS || E::HAS_LINKS;
    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        match self {
            Ok(value) => value.links(visit),
            Err(error) => error.links(visit),
        }
    }
    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        match self {
            Ok(value) => value.weigh(visit),
            Err(error) => error.weigh(visit),
        }
    }
    fn glue(glue: &mut Glue) {
        glue.part::<T>();
        glue.part::<E>();
    }
    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
        T::describe(layout);
        E::describe(layout);
    }
}
// SAFETY: the rule of this file.
unsafe impl<T: Shareable, E: Shareable> Shareable for Result<T, E> {}

macro_rules! structs_of_std {
    ($($name:ident { $($field:tt)+ })*) => { $(
        // SAFETY: the rule of this file; these are all of its fields.
        unsafe impl<T: Portable> Portable for $name<T> {
            const HAS_LINKS: bool = T::HAS_LINKS;
            fn links(&self, visit: &mut dyn FnMut(&Link)) {
                $(self.$field.links(visit);)+
            }
            fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
                $(self.$field.weigh(visit);)+
            }
            const HAS_TIES: bool = T::HAS_TIES;
            fn ties(ties: &mut Ties) {
                $(ties.part::<T>(std::mem::offset_of!(Self, $field));)+
            }
            fn glue(glue: &mut Glue) {
                glue.part::<T>();
            }
            fn describe(layout: &mut Layout) {
                if layout.begin::<Self>() {
                    $(layout.field::<Self, T>(stringify!($field), Some(std::mem::offset_of!(Self, $field)));)+
                    T::describe(layout);
                }
            }
        }
        // SAFETY: the rule of this file.
        unsafe impl<T: Shareable> Shareable for $name<T> {}
    )* };
}

structs_of_std! {
    Range { start end }
    RangeFrom { start }
    RangeTo { end }
    Reverse { 0 }
    Saturating { 0 }
    Wrapping { 0 }
}

macro_rules! tuples {
    ($(($($name:ident $at:tt)+))*) => { $(
        // SAFETY: the rule of this file.
        unsafe impl<$($name: Portable),+> Portable for ($($name,)+) {
            const HAS_LINKS: bool = false $(|| $name::HAS_LINKS)+;
            #[allow(non_snake_case)]
            fn links(&self, visit: &mut dyn FnMut(&Link)) {
                let ($($name,)+) = self;
                $($name.links(visit);)+
            }
            #[allow(non_snake_case)]
            fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
                let ($($name,)+) = self;
                $($name.weigh(visit);)+
            }
            const HAS_TIES: bool = false $(|| $name::HAS_TIES)+;
            fn ties(ties: &mut Ties) {
                $(ties.part::<$name>(std::mem::offset_of!(Self, $at));)+
            }
            fn glue(glue: &mut Glue) {
                $(glue.part::<$name>();)+
            }
            fn describe(layout: &mut Layout) {
                if layout.begin::<Self>() {
                    $(layout.field::<Self, $name>(stringify!($at), Some(std::mem::offset_of!(Self, $at)));)+
                    $($name::describe(layout);)+
                }
            }
        }
        // SAFETY: the rule of this file.
        unsafe impl<$($name: Shareable),+> Shareable for ($($name,)+) {}
    )* };
}

tuples! {
    (A 0) (A 0 B 1) (A 0 B 1 C 2) (A 0 B 1 C 2 D 3) (A 0 B 1 C 2 D 3 E 4) (A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6) (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7) (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9) (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11)
}
