//! The services of owned objects in the helpers of externally started jobs ([`vgas::started`]).

use vgas::started::serve_helper;

#[used]
// SAFETY: a function of the type that the system calls there, which returns at once in every process but a helper. Those with a number
// come before vgas's own, which has fewer services.
#[unsafe(link_section = ".init_array.65000")]
static SERVE: extern "C" fn() = serve;

/// Keeps the constructor in programs that have a heap.
pub(super) fn keep_constructor() {
    std::hint::black_box(&SERVE);
}

extern "C" fn serve() {
    serve_helper(crate::services);
}
