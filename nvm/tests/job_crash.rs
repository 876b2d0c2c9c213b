//! Crashes at every point of a checkpoint of two segments that belong together, each on a disk of its own.
//!
//! Goal: whatever a crash leaves, the newest checkpoint that both files have is one that the job has made of both, never
//! older than one that it was told is complete; also when the job that reopens them is cut short in its turn.
//!
//! Method: as in `crash.rs`, over two volumes: a story of writes, checkpoints in two phases, and one that is given up, runs
//! until its n-th operation at either device, for every n. Then the power fails at both. The files are looked at, opened at
//! the newest common checkpoint, compared with the legal states, and used on until a second crash.

mod common;

use common::{Bench, page};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vgas_nvm::device::faulty::{Fault, FaultyDevice, Script, When};
use vgas_nvm::device::memory::{Crash, MemoryDevice, MemoryDisk};
use vgas_nvm::format::{BLOCK_BYTES, MARK_AT, Place, Superblock, decode_mark, superblock_at};
use vgas_nvm::{CheckpointId, NamedFile, newest_common};

const PAGES: u64 = 1100;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Of both segments: pages and what they were written as.
type Content = [BTreeMap<u64, u64>; 2];

struct Job {
    ranks: [Bench; 2],
    content: Content,
    /// Drawn from, to let now one and now the other go on.
    turns: u64,
    next_identity: u64,
}

/// The power has failed.
struct Stopped;

impl Job {
    /// The two volumes over these disks; the script counts the operations of both.
    fn new(disks: &[MemoryDisk; 2], seed: u64, script: &Script) -> Self {
        let rank = |disk: &MemoryDisk| {
            let device = match seed {
                0 => MemoryDevice::new(disk, 4).unwrap(),
                seed => MemoryDevice::disordered(disk, 4, seed).unwrap(),
            };
            Bench::over(Box::new(FaultyDevice::new(Box::new(device), script)))
        };
        let turns = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            ranks: disks.each_ref().map(rank),
            content: Content::default(),
            turns,
            next_identity: seed * 1000 + 1,
        }
    }

    fn open(&mut self, checkpoint: Option<CheckpointId>) -> Result<(), Stopped> {
        for (segment, rank) in (0..).zip(&mut self.ranks) {
            let file = NamedFile { name: "data", number: segment, checkpoint };
            rank.volume.open_named(segment, file, PAGES).map_err(|_| Stopped)?;
        }
        Ok(())
    }

    /// Starts a request of each and waits for both, in an order that the seed says. What is held stays in flight.
    fn both(&mut self, start: impl Fn(&mut Bench, u32, u64)) -> Result<(), Stopped> {
        let keys = [0, 1].map(|rank| {
            let key = self.ranks[rank].key();
            start(&mut self.ranks[rank], rank as u32, key);
            key
        });
        let (mut done, begun) = ([false; 2], Instant::now());
        while done != [true; 2] {
            assert!(begun.elapsed() < TIMEOUT, "a request never ends");
            self.turns ^= self.turns << 13;
            self.turns ^= self.turns >> 7;
            self.turns ^= self.turns << 17;
            let rank = (self.turns % 2) as usize;
            let mut ended = Vec::new();
            self.ranks[rank].volume.poll(&mut ended).map_err(|_| Stopped)?;
            for one in ended {
                one.result.map_err(|_| Stopped)?;
                done[rank] |= one.key == keys[rank];
            }
        }
        Ok(())
    }

    fn write(&mut self, pages: &[u64], stamp: u64) -> Result<(), Stopped> {
        for &index in pages {
            self.both(|rank, segment, key| {
                let span = rank.span(index % 50);
                span.write(&page(stamp + u64::from(segment)));
                rank.volume.write(segment, index, span, key).unwrap();
            })?;
            for (segment, content) in (0..).zip(&mut self.content) {
                content.insert(index, stamp + segment);
            }
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), Stopped> {
        self.next_identity += 1;
        let identity = self.next_identity;
        self.both(|rank, segment, key| rank.volume.prepare(segment, identity, Vec::new(), key).unwrap())
    }

    fn conclude(&mut self, commit: bool) -> Result<(), Stopped> {
        self.both(|rank, segment, key| rank.volume.conclude(segment, commit, key).unwrap())
    }
}

/// What may be found after a crash: the last complete checkpoint, and one that was being made.
#[derive(Default)]
struct Legal {
    complete: Content,
    making: Option<Content>,
}

/// Three rounds of writes and a checkpoint, of which the second is given up.
fn story(job: &mut Job, legal: &mut Legal) -> Result<(), Stopped> {
    for round in 1..=3u64 {
        job.write(&[0, round, 512 + round, 1023, 1024], round * 10_000 + job.next_identity)?;
        legal.making = Some(job.content.clone());
        job.prepare()?;
        // Both have it: it must not be lost any more, unless it is given up.
        let complete = job.content.clone();
        if round != 2 {
            (legal.complete, legal.making) = (complete, None);
        }
        // A page that is not of this checkpoint is written at once.
        job.write(&[40 + round], 90_000 + round)?;
        job.conclude(round != 2)?;
        if round == 2 {
            legal.making = None;
        }
    }
    Ok(())
}

/// What a file can be opened at; none: it is not there.
fn held(disk: &MemoryDisk, segment: usize) -> Option<Vec<CheckpointId>> {
    let name = format!("data.{segment}.vgas");
    let block = |offset| {
        let mut block = Box::new([0; BLOCK_BYTES]);
        disk.tamper(&name, offset, |sector| block[..sector.len()].copy_from_slice(&sector[..]))
            .then_some(block)
    };
    let superblock = |place| Some(Superblock::decode(&*block(superblock_at(place))?, place));
    let offer =
        Superblock::offer(superblock(Place::A)?, superblock(Place::B)?, decode_mark(&*block(MARK_AT)?));
    Some(offer.expect("a file that can be opened").checkpoints().map(|one| one.checkpoint).collect())
}

struct Reopened {
    checkpoint: Option<CheckpointId>,
    generation: u64,
    content: Content,
}

/// Opens both at the newest checkpoint that both have, and holds what is there against what may be.
fn reopen(disks: &[MemoryDisk; 2], seed: u64, legal: &Legal, what: &str) -> Reopened {
    let fresh = vec![CheckpointId::default()];
    let held = [0, 1].map(|segment| held(&disks[segment], segment).unwrap_or_else(|| fresh.clone()));
    let checkpoint = newest_common(held.iter().map(|held| &held[..]));
    assert!(checkpoint.is_some(), "{what}: nothing in common: {held:?}");
    let mut job = Job::new(disks, seed, &Script::new());
    assert!(job.open(checkpoint).is_ok(), "{what}: the files cannot be opened at {checkpoint:?} of {held:?}");
    let mut content = Content::default();
    for (segment, (rank, content)) in (0..).zip(job.ranks.iter_mut().zip(&mut content)) {
        for index in (0..60).chain(500..530).chain(1000..PAGES) {
            match rank.read(segment, index).unwrap_or_else(|error| panic!("{what}: {error}")) {
                0 => {}
                stamp => drop(content.insert(index, stamp)),
            }
        }
    }
    let Legal { complete, making } = legal;
    assert!(
        content == *complete || making.as_ref() == Some(&content),
        "{what}: at {checkpoint:?} of {held:?}: {content:?}\ncomplete: {complete:?}\nmaking: {making:?}"
    );
    Reopened { checkpoint, generation: checkpoint.map_or(0, |one| one.generation), content }
}

#[test]
fn a_crash_at_any_operation_leaves_a_checkpoint_of_both() {
    let new_disks = || [MemoryDisk::new(), MemoryDisk::new()];
    let script = Script::new();
    let mut job = Job::new(&new_disks(), 0, &script);
    assert!(job.open(None).is_ok() && story(&mut job, &mut Legal::default()).is_ok());
    let operations = script.counts().operations;
    assert!(operations > 80, "the story has become too short: {operations} operations");
    let (mut generations, mut of_two) = (BTreeMap::<u64, u32>::new(), 0);
    for stop in 1..=operations + 10 {
        for seed in 0..8 {
            let (disks, script, mut legal) = (new_disks(), Script::new(), Legal::default());
            script.plan(When::Operation(stop), Fault::Stop);
            let mut job = Job::new(&disks, seed, &script);
            let _ = job.open(None).and_then(|()| story(&mut job, &mut legal));
            drop(job);
            let crash = |moment: u64| {
                for (rank, disk) in (0..).zip(&disks) {
                    disk.crash(match seed {
                        0 => Crash::LoseUnsynced,
                        1 => Crash::KeepUnsynced,
                        seed => Crash::Random(moment * 100 + seed * 2 + rank),
                    });
                }
            };
            crash(stop);
            let what = format!("stopped at operation {stop}, seed {seed}");
            let has_two = |rank: usize| held(&disks[rank], rank).is_some_and(|held| held.len() > 1);
            of_two += u32::from(has_two(0) || has_two(1));
            let opened = reopen(&disks, seed, &legal, &what);
            *generations.entry(opened.generation).or_default() += 1;
            crash(stop + 1000);

            // Again, with the power failing while the next job opens the files or makes its own checkpoints.
            let mut again = Legal { complete: opened.content.clone(), making: None };
            let script = Script::new();
            script.plan(When::Operation(1 + (stop * 7 + seed * 31) % 200), Fault::Stop);
            let mut job = Job::new(&disks, seed, &script);
            (job.next_identity, job.content) = (seed * 1000 + 500, opened.content);
            let _ = job.open(opened.checkpoint).and_then(|()| story(&mut job, &mut again));
            drop(job);
            crash(stop + 2000);
            reopen(&disks, seed, &again, &format!("{what}, again"));
        }
    }
    // The crashes have met every checkpoint, and files that held two.
    assert_eq!(generations.keys().copied().collect::<Vec<_>>(), [0, 1, 2], "{generations:?}");
    assert!(of_two > 50, "{of_two}");
}
