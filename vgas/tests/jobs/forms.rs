//! Every form of put and get does the same to memory, in both kinds of segments, whoever owns them.

use crate::scenarios::Outcome;
use vgas::{BatchKind, Counter, GlobalAddress, Kind, PinMode, Rank, Runtime, SegmentOptions};

const BYTES: u64 = 256 << 10;

/// Goal: what each form writes, each form reads. Method: each rank has a stripe in the segment of every rank, of either
/// kind; it goes through all forms there, page boundaries included.
pub fn forms(runtime: &Runtime, _seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(BYTES))?;
    runtime.attach(&SegmentOptions::pinned(BYTES))?;
    let stripe = BYTES / u64::from(runtime.ranks()) / 8 * 8;
    for owner in (0..runtime.ranks()).map(Rank) {
        for kind in [Kind::Tiered, Kind::Pinned] {
            let offset = stripe * u64::from(runtime.rank().0);
            each_form(runtime, GlobalAddress::of_kind(kind, owner, offset), stripe)
                .map_err(|error| format!("{kind:?} segment of {owner}: {error}"))?;
        }
    }
    runtime.barrier()?;
    if runtime.rank().0 == 0 {
        pins(runtime)?;
    }
    Ok(())
}

fn each_form(runtime: &Runtime, base: GlobalAddress, bytes: u64) -> Outcome {
    let words = (bytes / 8) as usize;
    let at = |word: usize| GlobalAddress { offset: base.offset + 8 * word as u64, ..base };
    let expect = |what: &str, first: usize, values: &[u64]| -> Outcome {
        let mut found = vec![0; values.len()];
        runtime.get(at(first), &mut found)?;
        match found.iter().zip(values).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(i) => {
                Err(format!("{what}: word {} is {:#x}, not {:#x}", first + i, found[i], values[i]).into())
            }
        }
    };
    runtime.memset(base, 0xa5, bytes)?;
    expect("memset", 0, &vec![0xa5a5_a5a5_a5a5_a5a5; words])?;
    // Not at a boundary of anything, and nothing beside it.
    runtime.memset(GlobalAddress { offset: base.offset + 16, ..base }, 0, 8)?;
    expect("small memset", 1, &[0xa5a5_a5a5_a5a5_a5a5, 0, 0xa5a5_a5a5_a5a5_a5a5])?;

    let values: Vec<u64> = (0..words as u64).map(|word| word << 8 | 1).collect();
    let values = runtime.put_nb(base, values)?.wait()?;
    expect("put_nb", 0, &values)?;
    let mut put = runtime.put_nb_copy(at(1), &values[..3])?;
    while !put.test()? {}
    put.wait()?;
    expect("put_nb_copy", 1, &values[..3])?;
    runtime.put_value_nb(at(2), 77u64)?.wait()?;
    if runtime.get_value_nb::<u64>(at(2))?.wait_value()? != 77 {
        return Err("get_value_nb reads something else than put_value_nb wrote".into());
    }
    let mut get = runtime.get_nb(base, vec![0u64; words])?;
    while !get.test()? {
        runtime.poll()?;
    }
    if get.wait()?[4..] != values[4..] {
        return Err("get_nb reads something else".into());
    }
    // Dropped handles end by themselves.
    drop(runtime.put_nb(at(2), vec![78u64])?);
    drop(runtime.get_nb(base, vec![0u64; words])?);
    expect("a dropped put", 2, &[78])?;

    let (low, high) = (vec![5u64; words / 2], vec![6u64; words / 2]);
    let mut read = vec![0u64; words / 2];
    runtime.batch(|batch| {
        batch.put(base, &low)?;
        for (word, value) in high.iter().enumerate() {
            batch.put_value(at(words / 2 + word), *value)?;
        }
        batch.wait(BatchKind::Puts)?;
        batch.get(base, &mut read)?;
        while !batch.test(BatchKind::All)? {}
        batch.memset(at(0), 9, 8)
    })?;
    expect("a batch's memset", 0, &[0x0909_0909_0909_0909])?;
    expect("a batch's puts", words / 2, &high)?;
    if read != low {
        return Err("a batch's get reads something else".into());
    }
    // Out of range in every form, and nothing written.
    let outside = GlobalAddress { offset: BYTES - 4, ..base };
    let refused = runtime.put(outside, &[1u64]).is_err()
        && runtime.put_nb(outside, vec![1u64]).is_err()
        && runtime.get_nb(outside, vec![1u64]).is_err()
        && runtime.memset(outside, 1, 8).is_err()
        && runtime.batch(|batch| batch.put_value(outside, 1u64)).is_err();
    if refused { Ok(()) } else { Err("8 bytes at 4 before the end were not refused".into()) }
}

/// Pinned pages read what is put, and are unpinned.
fn pins(runtime: &Runtime) -> Outcome {
    let at = GlobalAddress::tiered(Rank(runtime.ranks() - 1), 8192 + 8);
    runtime.put_value(at, 1u64)?;
    let mut read = runtime.pin(at, PinMode::Read)?;
    if !read.range().contains(&at.offset) || read.get_value::<u64>(in_page(&read, at))? != 1 {
        return Err(format!("{read:?} shows something else").into());
    }
    runtime.put_value(at, 2u64)?;
    if read.get_value::<u64>(in_page(&read, at))? != 2 {
        return Err("a pinned page hides a later put".into());
    }
    read.refresh()?;
    let place = in_page(&read, at);
    if read.put_value(place, 3u64).is_ok() || read.get_value::<u64>(u32::MAX).is_ok() {
        return Err("a write through a read pin, or behind the page, was not refused".into());
    }
    drop(read);
    let write = runtime.pin(at, PinMode::Write)?;
    write.put_value(in_page(&write, at), 4u64)?;
    drop(write);
    match runtime.get_value::<u64>(at)? {
        4 if runtime.pin(GlobalAddress::pinned(Rank(0), 0), PinMode::Read).is_err() => Ok(()),
        value => Err(format!("read {value} after a write through a pin").into()),
    }
}

fn in_page(page: &vgas::PinnedPage<'_>, at: GlobalAddress) -> u32 {
    (at.offset - page.range().start) as u32
}

/// Goal: relaxed segments agree at barriers, a rank sees its own puts before, and puts to neighbouring bytes travel
/// together. Method: the same rounds of false sharing on a relaxed segment and on one that is not; every rank writes
/// blocks of the same pages word by word, reads each word back at once, and reads all after the barrier.
pub fn relaxed(runtime: &Runtime, seed: u64) -> Outcome {
    const WORDS: u64 = 2048;
    const BLOCK: u64 = 16;
    const ROUNDS: u64 = 4;
    let me = u64::from(runtime.rank().0);
    let ranks = u64::from(runtime.ranks());
    let options = SegmentOptions::tiered(8 * WORDS);
    let segments = [runtime.attach(&options.clone().relaxed(true))?, runtime.attach(&options)?];
    let value = |round: u64, word: u64| seed.wrapping_mul(31).wrapping_add(round << 32 | word);
    for (segment, is_relaxed) in segments.iter().zip([true, false]) {
        let at = |word: u64| segment.address(Rank(1), 8 * word);
        let before = runtime.statistics()?;
        for round in 1..=ROUNDS {
            for word in (0..WORDS).filter(|word| word / BLOCK % ranks == me) {
                runtime.put_value(at(word), value(round, word))?;
                let own: u64 = runtime.get_value(at(word))?;
                if own != value(round, word) {
                    return Err(format!("own word {word} is {own:#x}").into());
                }
            }
            runtime.barrier()?;
            let mut all = vec![0u64; WORDS as usize];
            runtime.get(at(0), &mut all)?;
            if let Some(wrong) = (0..WORDS).find(|&word| all[word as usize] != value(round, word)) {
                return Err(format!("word {wrong} of the {segment:?} after barrier {round}").into());
            }
            runtime.barrier()?;
        }
        let spent = runtime.statistics()?.since(&before);
        let counted = [Counter::CombinedPuts, Counter::CombinedRuns].map(|counter| spent.get(counter));
        let expected = if is_relaxed { [ROUNDS * WORDS, ROUNDS * WORDS / BLOCK] } else { [0, 0] };
        if counted != expected {
            return Err(
                format!("puts and runs of the {segment:?}: {counted:?} instead of {expected:?}").into()
            );
        }
    }
    Ok(())
}
