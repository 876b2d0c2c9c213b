//! Every rank writes to its right neighbour's tiered segment and reads what its left neighbour wrote.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 -- target/release/examples/ring`

use vgas::{Rank, Runtime, SegmentOptions};

fn main() -> vgas::Result<()> {
    let runtime = Runtime::init()?;
    let segment = runtime.attach(&SegmentOptions::tiered(1 << 20))?;
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    let right = Rank((me.0 + 1) % ranks);
    segment.put_value(right, 0, me.0)?;
    runtime.barrier()?;
    let left: u32 = segment.get_value(me, 0)?;
    vgas::print(format_args!("{me} of {ranks}: my left neighbour is rank {left}\n"))?;
    runtime.finalize()
}
