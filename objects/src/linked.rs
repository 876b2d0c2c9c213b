//! Tables that the linker makes: of functions that the program has been compiled with, of one type each,
//! which it has in every process in the same order. Processes exchange an entry's number, never an address.
//!
//! Rules: a section has entries that [`entry!`] has made, of functions of one type, and zeros; it is never
//! written.

/// Distance from an entry to its function: the same in every process. 0: none.
pub(crate) type Entry = i64;

/// Places an entry of a function into a section, or one of none, so that there is a section. `R` keeps it
/// when the linker drops unreferenced sections.
macro_rules! entry {
    ($section:literal) => {
        $crate::linked::entry!($section, ".quad 0",)
    };
    ($section:literal, sym $code:path) => {
        $crate::linked::entry!($section, "77: .quad {code} - 77b", code = sym $code,)
    };
    ($section:literal, $entry:literal, $($code:tt)*) => {
        // SAFETY: it only places a number into a section of its own.
        unsafe {
            std::arch::asm!(
                concat!(".pushsection ", $section, ",\"aR\",@progbits"),
                ".balign 8",
                $entry,
                ".popsection",
                $($code)*
                options(nomem, nostack, preserves_flags),
            )
        }
    };
}
pub(crate) use entry;

/// The entries of a section, in their order.
///
/// # Safety
/// It begins and ends there, as the linker says.
pub(crate) unsafe fn entries(first: *const Entry, end: *const Entry) -> &'static [Entry] {
    let count = (end.addr() - first.addr()) / size_of::<Entry>();
    // SAFETY: the caller's promise, and the rules.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// Returns the address of an entry's function; none if it has none.
pub(crate) fn address(entry: &Entry) -> Option<usize> {
    (*entry != 0).then(|| std::ptr::from_ref(entry).addr().wrapping_add_signed(*entry as isize))
}
