//! Several handles of one volume, as the shards of an agent use them: each has the operations of its own pages, the first
//! makes the checkpoints, and whoever asked is told, whichever device has done it.

mod common;

use common::{PAGE, page, stamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vgas_nvm::device::memory::{Crash, MemoryDevice, MemoryDisk};
use vgas_nvm::{DeviceChoice, PageDone, Volume, VolumeSpec};
use vgas_shm::{Mapping, Span};

const PAGES: u64 = 600;
const HANDLES: usize = 3;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// One handle with what it has in flight.
struct Shard {
    volume: Volume,
    frames: Arc<Mapping>,
    /// Page, frame and stamp of each operation; a stamp of a read is what the page must hold.
    in_flight: BTreeMap<u64, (u64, u64, u64, bool)>,
    next_key: u64,
    /// What each page holds once everything is done.
    holds: BTreeMap<u64, u64>,
}

impl Shard {
    fn new(volume: Volume) -> Self {
        let frames = Mapping::anonymous("handles-test", 64 * PAGE as u64).unwrap();
        Self { volume, frames, in_flight: BTreeMap::new(), next_key: 0, holds: BTreeMap::new() }
    }

    fn span(&self, frame: u64) -> Span {
        self.frames.span(frame as usize * PAGE, PAGE)
    }

    /// Begins to write or read a page for which nothing is in flight.
    fn begin(&mut self, page_index: u64, write: Option<u64>) {
        let busy = |frame: &u64| self.in_flight.values().any(|(_, other, ..)| other == frame);
        let Some(frame) = (0..64).find(|frame| !busy(frame)) else { return };
        if self.in_flight.values().any(|(other, ..)| *other == page_index) {
            return;
        }
        self.next_key += 1;
        let (key, span) = (self.next_key, self.span(frame));
        let value = write.unwrap_or_else(|| self.holds.get(&page_index).copied().unwrap_or(0));
        match write {
            Some(stamp) => {
                span.write(&page(stamp));
                self.volume.write(0, page_index, span, key).unwrap();
                self.holds.insert(page_index, stamp);
            }
            None => self.volume.read(0, page_index, span, key).unwrap(),
        }
        self.in_flight.insert(key, (page_index, frame, value, write.is_some()));
    }

    /// Takes what is done. True for the key of a checkpoint.
    fn poll(&mut self, checkpoint: Option<u64>) -> bool {
        let (mut done, mut ended) = (Vec::new(), false);
        self.volume.poll(&mut done).unwrap();
        for PageDone { key, result } in done {
            result.unwrap();
            if Some(key) == checkpoint {
                ended = true;
                continue;
            }
            let (page_index, frame, value, is_write) =
                self.in_flight.remove(&key).expect("a key of this handle");
            if !is_write {
                assert_eq!(stamp(&self.span(frame)), value, "page {page_index}");
            }
        }
        ended
    }
}

/// Goal: whatever order three devices do things in, everybody hears of what it asked for and nothing else, reads bring what
/// was written, and a checkpoint holds what each handle had written before it.
#[test]
fn everybody_hears_of_its_own() {
    for seed in 0..60 {
        let disk = MemoryDisk::new();
        let device = |number: u64| Box::new(MemoryDevice::disordered(&disk, 4, seed * 10 + number).unwrap());
        let mut first = Volume::over(device(0), PAGE as u32, true).unwrap();
        first.create_or_open_named(0, "data", PAGES).unwrap();
        let others: Vec<Volume> =
            (1..HANDLES as u64).map(|number| first.another_over(device(number))).collect();
        let mut shards: Vec<Shard> = std::iter::once(first).chain(others).map(Shard::new).collect();
        let mut random = Random(seed);
        let mut at_checkpoint = BTreeMap::new();
        for round in 0..4 {
            for step in 0..200 {
                let index = random.below(HANDLES as u64) as usize;
                let page_index = random.below(PAGES / HANDLES as u64) * HANDLES as u64 + index as u64;
                let write = (random.below(3) > 0).then_some(1 + round * 1000 + step);
                shards[index].begin(page_index, write);
                let polled = random.below(HANDLES as u64) as usize;
                shards[polled].poll(None);
            }
            // What is in flight is neither in nor out: the checkpoint is asked for when all is done, as agents do.
            while shards.iter().any(|shard| !shard.in_flight.is_empty()) {
                shards.iter_mut().for_each(|shard| assert!(!shard.poll(None)));
            }
            at_checkpoint = shards.iter().flat_map(|shard| shard.holds.clone()).collect();
            let key = 1 << 40 | round;
            shards[0].volume.flush(0, key).unwrap();
            let (mut ended, mut step) = (false, 0);
            while !ended || shards.iter().any(|shard| !shard.in_flight.is_empty()) {
                // Writes meanwhile: some are held, and end in whichever handle lets them go.
                if step < 50 {
                    let index = random.below(HANDLES as u64) as usize;
                    let page_index = random.below(PAGES / HANDLES as u64) * HANDLES as u64 + index as u64;
                    shards[index].begin(page_index, Some(500 + round * 1000 + step));
                }
                step += 1;
                for (index, shard) in shards.iter_mut().enumerate() {
                    ended |= shard.poll((index == 0).then_some(key));
                }
                assert!(step < 1_000_000, "seed {seed}: never ends");
            }
        }
        drop(shards);
        disk.crash(Crash::LoseUnsynced);
        let device = Box::new(MemoryDevice::new(&disk, 4).unwrap());
        let mut bench = common::Bench::over(device);
        bench.volume.create_or_open_named(0, "data", PAGES).unwrap();
        for page_index in 0..PAGES {
            let expected = at_checkpoint.get(&page_index).copied().unwrap_or(0);
            assert_eq!(bench.read(0, page_index).unwrap(), expected, "seed {seed}, page {page_index}");
        }
    }
}

/// Goal: threads with a handle each over real files, scratch and named, beside checkpoints of the first; nothing sleeps for
/// what another handle has done.
#[test]
fn threads_over_real_files() {
    for choice in [DeviceChoice::Auto, DeviceChoice::Blocking] {
        for name in [None, Some("data")] {
            let folder = tempfile::tempdir().unwrap();
            let spec = VolumeSpec { device: choice.clone(), ..VolumeSpec::new(folder.path(), PAGE as u32) };
            let mut first = Volume::open(spec).unwrap();
            let others: Vec<Volume> = (1..HANDLES).map(|_| first.another().unwrap()).collect();
            match name {
                Some(name) => drop(first.create_or_open_named(0, name, PAGES).unwrap()),
                None => first.create_scratch(0, PAGES).unwrap(),
            }
            let running = AtomicU64::new(HANDLES as u64 - 1);
            let over = AtomicBool::new(false);
            let mut shards: Vec<Shard> = std::iter::once(first).chain(others).map(Shard::new).collect();
            std::thread::scope(|scope| {
                let (checkpoints, workers) = shards.split_at_mut(1);
                for (index, shard) in workers.iter_mut().enumerate() {
                    let (running, over) = (&running, &over);
                    scope.spawn(move || {
                        let mut random = Random(index as u64);
                        for step in 0..3000 {
                            let page_index =
                                random.below(PAGES / HANDLES as u64) * HANDLES as u64 + index as u64 + 1;
                            shard.begin(page_index, (step % 3 > 0).then_some(step + 1));
                            shard.poll(None);
                        }
                        while !shard.in_flight.is_empty() {
                            shard.poll(None);
                        }
                        running.fetch_sub(1, Ordering::SeqCst);
                        // A checkpoint may be in progress by this handle's device.
                        while !over.load(Ordering::SeqCst) {
                            shard.poll(None);
                        }
                    });
                }
                let mut key = 1 << 40;
                while running.load(Ordering::SeqCst) > 0 {
                    key += 1;
                    checkpoints[0].volume.flush(0, key).unwrap();
                    while !checkpoints[0].poll(Some(key)) {}
                }
                // Once more: what was written since.
                checkpoints[0].volume.flush(0, key + 1).unwrap();
                while !checkpoints[0].poll(Some(key + 1)) {}
                over.store(true, Ordering::SeqCst);
            });
            let holds: BTreeMap<u64, u64> = shards.iter().flat_map(|shard| shard.holds.clone()).collect();
            drop(shards);
            let Some(name) = name else { continue };
            let mut bench =
                common::Bench::with(Volume::open(VolumeSpec::new(folder.path(), PAGE as u32)).unwrap());
            bench.volume.create_or_open_named(0, name, PAGES).unwrap();
            for (page_index, expected) in holds {
                assert_eq!(bench.read(0, page_index).unwrap(), expected, "page {page_index}");
            }
        }
    }
}
