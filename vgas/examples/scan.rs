//! Running sums over an array larger than the cache: each rank streams its part from its NVMe twice, once for its sum and
//! once to write the running sums, while the next pages are read ahead.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 2 --nodes 2 --cache 16MiB --stats -- target/release/examples/scan`

use vgas::{Runtime, SegmentOptions};

/// Numbers of each rank: 64 MiB.
const NUMBERS: u64 = 8 << 20;

/// Numbers in memory at a time.
const PIECE: usize = 64 << 10;

fn main() -> vgas::Result<()> {
    let runtime = Runtime::init()?;
    let me = runtime.rank();
    let array = runtime.attach(&SegmentOptions::tiered(NUMBERS * 8))?;
    let pieces = || (0..NUMBERS / PIECE as u64).map(|piece| piece * PIECE as u64);
    let first = u64::from(me.0) * NUMBERS;
    let mut piece = vec![0u64; PIECE];
    for start in pieces() {
        (first + start..).zip(&mut piece).for_each(|(number, place)| *place = number);
        array.put(me, start * 8, &piece)?;
    }
    let mut sum = 0u64;
    for start in pieces() {
        array.get(me, start * 8, &mut piece)?;
        sum += piece.iter().sum::<u64>();
    }
    // The sums of the ranks before this one.
    let sums = runtime.all_gatherv(&sum.to_le_bytes())?;
    let before = sums.iter().take(me.0 as usize).filter_map(|sum| sum.as_slice().try_into().ok());
    let mut running: u64 = before.map(u64::from_le_bytes).sum();
    for start in pieces() {
        array.get(me, start * 8, &mut piece)?;
        for place in &mut piece {
            running += *place;
            *place = running;
        }
        array.put(me, start * 8, &piece)?;
    }
    runtime.barrier()?;
    let last: u64 = array.get_value(me, (NUMBERS - 1) * 8)?;
    let count = first + NUMBERS;
    assert_eq!(last, count * (count - 1) / 2, "the sum of the first {count} numbers");
    vgas::print(format_args!("{me}: the first {count} numbers sum up to {last}\n"))?;
    runtime.finalize()
}
