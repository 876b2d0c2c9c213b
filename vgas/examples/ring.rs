//! Every rank writes to its right neighbour's tiered segment and reads what its left neighbour wrote.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 -- target/release/examples/ring`

use vgas::{GlobalAddress, Rank, Runtime, SegmentSpec};

fn main() -> vgas::Result<()> {
    let runtime = Runtime::init()?;
    runtime.attach(&SegmentSpec { tiered_bytes: 1 << 20, ..SegmentSpec::default() })?;
    let right = Rank((runtime.rank().0 + 1) % runtime.ranks());
    runtime.put_value(GlobalAddress::tiered(right, 0), u64::from(runtime.rank().0))?;
    runtime.barrier()?;
    let left: u64 = runtime.get_value(GlobalAddress::tiered(runtime.rank(), 0))?;
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    vgas::print(format_args!("{me} of {ranks}: my left neighbour is rank {left}\n"))?;
    runtime.finalize()
}
