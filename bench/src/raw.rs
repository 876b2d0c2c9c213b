//! The layers below a runtime, for what benchmarks count and hold its calls against.

use vgas::{Endpoint, Runtime};
use vgas_cache::client::Client;

/// The cache client of a benchmark's own segments.
pub(crate) fn client(runtime: &Runtime) -> &Client {
    // SAFETY: benchmarks of segments attach no library's.
    unsafe { runtime.raw_client() }
}

/// The endpoint of a benchmark's own segments and messages.
pub(crate) fn endpoint(runtime: &Runtime) -> &Endpoint {
    // SAFETY: as above.
    unsafe { runtime.raw_endpoint() }
}
