//! Operations larger than the cache: every byte is moved once.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, with};
use std::collections::BTreeSet;
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentOptions};

pub const ALL: &[Scenario] = &[Scenario {
    name: "larger than the cache",
    settings: || {
        let small = [("cache.size", "1MiB"), ("segment.tiered_max", "64MiB"), ("cache.page", "4KiB")];
        let large = [("cache.size", "4MiB"), ("segment.tiered_max", "64MiB"), ("cache.page", "64KiB")];
        vec![
            Setting::new(1, 1, &with(&small)),
            Setting::new(2, 2, &with(&small)),
            Setting::new(1, 1, &with(&large)),
            Setting::new(1, 1, &with(&[small[0], small[1], small[2], ("local.mechanism", "sigsegv")])),
        ]
    },
    rank: large,
}];

/// Bytes of a half of each rank's segment.
const HALF: usize = 8 << 20;

/// Bytes read from NVMe by all nodes, and faults of this rank.
fn counts(runtime: &Runtime) -> Result<[u64; 2], Box<dyn std::error::Error>> {
    let client = crate::client(runtime);
    let (rank, agent) = (client.counters(), client.node_counters());
    let read = rank.get(Counter::NvmReadBytes) + agent.get(Counter::NvmReadBytes);
    Ok([runtime.all_reduce(read, u64::wrapping_add)?, rank.get(Counter::Faults)])
}

/// Goal: puts larger than the cache read nothing where they write whole pages, gets read each page once, and both hold where the local
/// bytes lie in the own segment, which is not mapped for that. The bytes are right, whatever the offsets.
fn large(runtime: &Runtime, seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(2 * HALF as u64))?;
    let (me, owner) = (runtime.rank(), Rank(runtime.ranks() - 1));
    let bytes = |salt: u64| -> Vec<u8> {
        let word = |at: u64| (at + seed + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        (0..HALF as u64 / 8).flat_map(word).collect()
    };
    let (old, new, own) = (bytes(1), bytes(2), bytes(3));
    runtime.put(GlobalAddress::tiered(me, 0), &own)?;
    if me.0 == 0 {
        runtime.put(GlobalAddress::tiered(owner, HALF as u64), &old)?;
    }
    runtime.barrier()?;
    let mut complaints = BTreeSet::new();
    // All ranks count, and rank 0 works meanwhile.
    let mut measure = |what: &str, most: usize, work: &mut dyn FnMut() -> Outcome| -> Outcome {
        let before = counts(runtime)?;
        if me.0 == 0 {
            work()?;
        }
        let after = counts(runtime)?;
        let (read, faults) = (after[0] - before[0], after[1] - before[1]);
        if read > most as u64 || faults > 0 {
            complaints.insert(format!("{what}: {read} bytes read, {most} at most; {faults} faults"));
        }
        Ok(())
    };
    // What is read again because of a slow rank or agent, and what a put at the ends of its range brings in.
    let once = HALF + HALF / 4;
    let mut found = vec![0; HALF];
    measure("a put", 0, &mut || Ok(runtime.put(GlobalAddress::tiered(owner, HALF as u64), &new)?))?;
    measure("a get", once, &mut || Ok(runtime.get(GlobalAddress::tiered(owner, HALF as u64), &mut found)?))?;
    if me.0 == 0 {
        assert!(found == new, "a get after a put");
    }
    let base = crate::scenarios::local(runtime)?.base();
    let client = crate::client(runtime);
    measure("a put from the own segment", once, &mut || {
        // SAFETY: the lower half of the own segment, which nobody writes meanwhile.
        unsafe { client.put(owner, HALF as u64, base, HALF)? };
        Ok(())
    })?;
    measure("a get", once, &mut || Ok(runtime.get(GlobalAddress::tiered(owner, HALF as u64), &mut found)?))?;
    if me.0 == 0 {
        assert!(found == own, "a get after a put from the own segment");
    }
    // Neither end is one of a page, and pages do not lie alike.
    let (from, to, length) = (HALF as u64 + 24, 5000, HALF - (256 << 10));
    if me.0 == 0 {
        runtime.put(GlobalAddress::tiered(owner, HALF as u64), &new)?;
    }
    measure("a get into the own segment", once, &mut || {
        // SAFETY: inside of the lower half of the own segment, which nobody else uses.
        unsafe { client.get(owner, from, base.add(to), length)? };
        Ok(())
    })?;
    let mut expected = own.clone();
    expected[to..to + length].copy_from_slice(&new[24..24 + length]);
    if me.0 == 0 {
        runtime.get(GlobalAddress::tiered(me, 0), &mut found)?;
        assert!(found == expected, "what was got into the own segment");
        // SAFETY: as above; the handle is waited for.
        unsafe { client.put_nb(owner, from, base.add(to + 100), length - 200)?.wait()? };
        let mut stored = new.clone();
        stored[24..24 + length - 200].copy_from_slice(&expected[to + 100..to + length - 100]);
        runtime.get(GlobalAddress::tiered(owner, HALF as u64), &mut found)?;
        assert!(found == stored, "what was put from the own segment, without waiting");
        // SAFETY: as above.
        let here = unsafe { std::slice::from_raw_parts(base, HALF) };
        assert!(here == expected, "what pointers show");
    }
    runtime.barrier()?;
    if complaints.is_empty() { Ok(()) } else { Err(format!("{complaints:?}").into()) }
}
