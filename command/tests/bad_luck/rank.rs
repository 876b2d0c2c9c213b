//! The ranks of the other tests: this test program, started by `vgas run`.

use std::process::exit;
use vgas::{GlobalAddress, Rank, Runtime, SegmentOptions};

/// The variable that says what the ranks do: `traffic` for ever, `rounds` until a file named `enough` appears, `named`:
/// one checkpoint of a named segment, or `checkpoints`: one after the other, for ever.
pub const MODE: &str = "TEST_BAD_LUCK_RANK";

/// A segment larger than the cache, so that the NVMe is at work, too.
const BYTES: u64 = 4 << 20;

/// A test as far as the test runner is concerned; does something only where `vgas run` has started it.
#[test]
fn rank_of_the_other_tests() {
    if std::env::var_os("VGAS_CONTROL_FD").is_none() {
        return;
    }
    let mode = std::env::var(MODE).unwrap();
    // As of any program: an error ends it with 1. What it says is looked at in some tests only.
    let ended = work(&mode);
    if let (Err(error), true) = (&ended, mode.starts_with("named") || mode.starts_with("refused")) {
        // In one piece: all ranks may say it at once.
        vgas::say::line(format_args!("Error: {error}"));
    }
    exit(i32::from(ended.is_err()));
}

fn work(mode: &str) -> vgas::Result<()> {
    let runtime = Runtime::init()?;
    if let Some(delays) = mode.strip_prefix("refused ") {
        return refused(&runtime, delays);
    }
    if let Some(disk) = mode.strip_prefix("named on a disk that is ") {
        return unwritable(&runtime, disk);
    }
    if mode == "grows" {
        let mut all = Vec::new();
        while runtime.rank().0 == 1 {
            all.push(vec![1u8; 1 << 20]);
        }
        return runtime.barrier();
    }
    if mode == "checkpoints" {
        return checkpoints(runtime);
    }
    if mode == "named" {
        let name = Some("kept".into());
        runtime.attach(&SegmentOptions::tiered(4096).maybe_name(name))?;
        runtime.put_value(GlobalAddress::tiered(runtime.rank(), 0), 1u64)?;
        runtime.checkpoint()?;
        return runtime.finalize();
    }
    runtime.attach(&SegmentOptions::tiered(BYTES))?;
    runtime.barrier()?;
    // Who is stopped before all nodes have met ends the job: nobody waits long for one that does not answer at all.
    let meet_first = mode == "rounds";
    if !meet_first {
        println!("ready");
    }
    let ranks = u64::from(runtime.ranks());
    let me = u64::from(runtime.rank().0);
    for round in 1u64.. {
        for step in 0..256 {
            // Every rank has words of its own in every segment, scattered over all pages.
            let word = (round * 7919 + step * 104_729) % (BYTES / 8 / ranks) * ranks + me;
            let at = GlobalAddress::tiered(Rank((step % ranks) as u32), word * 8);
            runtime.put_value(at, round << 32 | step)?;
            let read: u64 = runtime.get_value(at)?;
            assert_eq!(read, round << 32 | step, "another rank's word");
        }
        if meet_first && round == 1 {
            runtime.barrier()?;
            println!("ready");
        }
        let enough = mode == "rounds" && std::fs::exists("enough").unwrap_or(false);
        if runtime.all_reduce(u8::from(enough), |a, b| a | b)? == 1 {
            break;
        }
    }
    runtime.finalize()
}

/// Attaches, and ends with an error that comes as many microseconds late as the mode says of this rank.
fn refused(runtime: &Runtime, delays: &str) -> vgas::Result<()> {
    let me = runtime.rank();
    // Rank 1 asks for more than is allowed, or its file is a stranger's.
    let tiered_bytes = if delays.ends_with("large") && me == Rank(1) { 1 << 40 } else { 4096 };
    let attached = runtime.attach(&SegmentOptions::tiered(tiered_bytes).name("kept"));
    let delay = delays.split(' ').nth(me.0 as usize).and_then(|delay| delay.parse().ok()).unwrap_or(0);
    let start = std::time::Instant::now();
    while start.elapsed() < std::time::Duration::from_micros(delay) {
        std::hint::spin_loop();
    }
    attached.map(drop)
}

/// Reads what the mode `named` has left where nothing can be written, and ends with the error of an attempt to write.
fn unwritable(runtime: &Runtime, disk: &str) -> vgas::Result<()> {
    let kept = runtime.attach(&SegmentOptions::tiered(4096).name("kept"))?;
    for owner in 0..runtime.ranks() {
        assert_eq!(runtime.get_value::<u64>(GlobalAddress::tiered(Rank(owner), 0))?, 1);
    }
    assert!(kept.reopened().is_some_and(|reopened| reopened.is_read_only));
    println!("read");
    runtime.barrier()?;
    // The cache takes what a full disk may have room for later.
    let written = runtime.put_value(GlobalAddress::tiered(Rank(0), 8), 2u64);
    assert_eq!(written.is_err(), disk == "read-only", "{written:?}");
    written?;
    runtime.checkpoint()?;
    panic!("a checkpoint on a disk that is {disk}");
}

/// Says what number all words of a named segment have, and makes checkpoints of greater ones.
fn checkpoints(runtime: Runtime) -> vgas::Result<()> {
    const WORDS: usize = 8 << 10;
    runtime.attach(&SegmentOptions::tiered(8 * WORDS as u64).name("kept"))?;
    let own = GlobalAddress::tiered(runtime.rank(), 0);
    let mut words = vec![0u64; WORDS];
    runtime.get(own, &mut words)?;
    let first = words[0];
    let is_whole = words.iter().all(|&word| word == first);
    let found = runtime.all_reduce([first, first, u64::from(is_whole)], |a, b| {
        [a[0].min(b[0]), a[1].max(b[1]), a[2] & b[2]]
    })?;
    let is_leader = runtime.rank() == Rank(0);
    if is_leader {
        match found {
            [least, most, 1] if least == most => println!("found {least}"),
            found => println!("mixed {found:?}"),
        }
    }
    for number in first + 1.. {
        words.fill(number);
        runtime.put(own, &words)?;
        runtime.checkpoint()?;
        if is_leader {
            println!("complete {number}");
        }
    }
    Ok(())
}
