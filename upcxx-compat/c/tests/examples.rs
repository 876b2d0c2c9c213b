//! The programs in `examples/c`: each checks its own result.

mod support;

use support::{Bench, Conduit, Mode, crate_folder};

/// Goal: the examples do what their first lines say, over both conduits and several nodes; the stencil's segments are four
/// times as large as the cache.
#[test]
fn examples_run() {
    let bench = Bench::new();
    let program = |name: &str, conduit, mode| {
        bench.program_of(&crate_folder().join("../../examples/c").join(name), conduit, mode)
    };
    let ring = program("ring.c", Conduit::Smp, Mode::Seq);
    assert!(ring.pass(3, &[], &["50"]).contains("sum 150, expected 150"));
    let histogram = program("histogram.c", Conduit::Tcp, Mode::Par);
    assert!(
        histogram.pass(3, &[("VGASNET_NODES", "2")], &["3000", "100"]).contains("9000 samples in 100 bins")
    );
    let stencil = program("stencil.c", Conduit::Tcp, Mode::Par);
    let settings = [("VGASNET_NODES", "2"), ("VGAS_CACHE_SIZE", "1MiB"), ("VGAS_CACHE_PAGE", "16KiB")];
    assert!(stencil.pass(2, &settings, &["4", "3"]).contains("every number is 27"));
}
