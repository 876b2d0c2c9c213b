//! Crashes at every point of a checkpoint.
//!
//! Goal: after a crash, a named segment is exactly its last complete flush, or exactly the newer one that was being
//! made when the crash came; never a mix, and never damaged.
//!
//! Method: a fixed story of writes and flushes runs over a faulty device that stops at its n-th operation, for every n
//! that the story has. Then the power fails: each write that no sync has saved is lost, kept or torn. The segment is
//! opened again and compared with the two legal states. Without the shadow places, or with the superblock written
//! before the sync, this fails within the first seeds.

mod common;

use common::{Bench, page};
use std::collections::BTreeMap;
use vgas_nvm::Opened;
use vgas_nvm::device::faulty::{Fault, FaultyDevice, Script, When};
use vgas_nvm::device::memory::{Crash, MemoryDevice, MemoryDisk};

const PAGES: u64 = 1300;

type Content = BTreeMap<u64, u64>;

/// The story: three rounds of writes, each followed by a flush. Returns what each completed flush holds, and what the
/// flush that was interrupted, if one was, would have held.
fn story(bench: &mut Bench) -> (Vec<Content>, Option<Content>) {
    let (mut content, mut flushed) = (Content::new(), vec![Content::new()]);
    if bench.volume.create_or_open_named(0, "data", PAGES).is_err() {
        return (Vec::new(), None);
    }
    for round in 1..=3u64 {
        // Pages of several map blocks, some of them in every round.
        for (frame, index) in
            [0, 1, round, 511, 512 + round, 700, 1023, 1024, PAGES - round].into_iter().enumerate()
        {
            if frame as u64 == round % 2 {
                continue;
            }
            let (stamp, key, span) = (round * 10_000 + index, bench.key(), bench.span(frame as u64));
            if round == 3 && index == 700 {
                bench.volume.discard(0, index, key).unwrap();
                content.remove(&index);
            } else {
                span.write(&page(stamp));
                if bench.finish().values().any(Result::is_err) {
                    return (flushed, None);
                }
                bench.volume.write(0, index, span, key).unwrap();
                content.insert(index, stamp);
            }
        }
        // Writes and the flush are in flight together.
        let key = bench.key();
        bench.volume.flush(0, key).unwrap();
        if bench.finish().remove(&key).unwrap().is_err() {
            return (flushed, Some(content));
        }
        flushed.push(content.clone());
    }
    (flushed, None)
}

fn device(disk: &MemoryDisk, seed: u64, script: &Script) -> Bench {
    let inner = match seed {
        0 => MemoryDevice::new(disk, 4).unwrap(),
        seed => MemoryDevice::disordered(disk, 4, seed).unwrap(),
    };
    Bench::over(Box::new(FaultyDevice::new(Box::new(inner), script)))
}

fn check(disk: &MemoryDisk, legal: &[&Content], what: &str) -> u64 {
    let mut bench = Bench::over(Box::new(MemoryDevice::new(disk, 8).unwrap()));
    let report =
        bench.volume.create_or_open_named(0, "data", PAGES).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(report.damaged_pages.is_empty(), "{what}: {report:?}");
    let mut found = Content::new();
    for index in 0..PAGES {
        match bench.read(0, index).unwrap_or_else(|error| panic!("{what}: {error}")) {
            0 => {}
            stamp => drop(found.insert(index, stamp)),
        }
    }
    assert!(legal.iter().any(|&legal| *legal == found), "{what}: neither flush: {found:?}\nlegal: {legal:?}");
    // And it can be used on: a further flush is found again.
    bench.write(0, 5, 42).unwrap();
    bench.flush(0).unwrap();
    disk.crash(Crash::LoseUnsynced);
    let mut bench = Bench::over(Box::new(MemoryDevice::new(disk, 8).unwrap()));
    bench.volume.create_or_open_named(0, "data", PAGES).unwrap();
    found.insert(5, 42);
    for index in (0..8).chain(1020..1030) {
        assert_eq!(
            bench.read(0, index).unwrap(),
            found.get(&index).copied().unwrap_or(0),
            "{what}: page {index}"
        );
    }
    match report.opened {
        Opened::Fresh => 0,
        Opened::Reopened { generation } => generation,
    }
}

#[test]
fn a_crash_at_any_operation_leaves_one_flush_or_the_next() {
    let script = Script::new();
    story(&mut device(&MemoryDisk::new(), 0, &script));
    let operations = script.counts().operations;
    assert!(operations > 40, "the story has become too short: {operations} operations");
    let mut generations = BTreeMap::<u64, u32>::new();
    for stop in 1..=operations {
        for seed in 0..6 {
            let (disk, script) = (MemoryDisk::new(), Script::new());
            script.plan(When::Operation(stop), Fault::Stop);
            let mut bench = device(&disk, seed, &script);
            let (flushed, interrupted) = story(&mut bench);
            drop(bench);
            let policy = match seed {
                0 => Crash::LoseUnsynced,
                1 => Crash::KeepUnsynced,
                seed => Crash::Random(stop * 100 + seed),
            };
            disk.crash(policy);
            let nothing = Content::new();
            let mut legal = vec![flushed.last().unwrap_or(&nothing)];
            legal.extend(&interrupted);
            let generation =
                check(&disk, &legal, &format!("stopped at operation {stop}, seed {seed}, {policy:?}"));
            *generations.entry(generation).or_default() += 1;
        }
    }
    // The crashes have met every checkpoint.
    assert_eq!(generations.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3], "{generations:?}");
}

/// The same with crashes at the syncs, where the state of the device matters most.
#[test]
fn a_crash_at_any_sync_leaves_one_flush_or_the_next() {
    // One sync when the file is created, three a flush.
    for stop in 1..=10 {
        for seed in 0..40 {
            let (disk, script) = (MemoryDisk::new(), Script::new());
            script.plan(When::Sync(stop), Fault::Stop);
            let mut bench = device(&disk, seed, &script);
            let (flushed, interrupted) = story(&mut bench);
            drop(bench);
            disk.crash(Crash::Random(seed));
            let nothing = Content::new();
            let mut legal = vec![flushed.last().unwrap_or(&nothing)];
            legal.extend(&interrupted);
            check(&disk, &legal, &format!("stopped at sync {stop}, seed {seed}"));
        }
    }
}
