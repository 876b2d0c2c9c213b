//! What a rank can do while its agent does nothing: the node's daemon is stopped, and everything that needs no other process
//! goes on.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, with};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, getppid, kill_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vgas::{Change, Counter, GlobalAddress, Rank, Runtime, SegmentOptions};
use vgas_cache::page::PageIndex;
use vgas_cache::pool::PageState;

pub const ALL: &[Scenario] = &[Scenario {
    name: "own",
    settings: || {
        let small = [("cache.size", "8MiB"), ("segment.tiered_max", "64MiB")];
        let large = [("cache.size", "32MiB"), ("segment.tiered_max", "128MiB"), ("cache.page", "64KiB")];
        vec![
            Setting::new(1, 1, &with(&small)),
            Setting::new(1, 1, &with(&[small[0], small[1], ("local.mechanism", "sigsegv")])),
            Setting::new(1, 1, &with(&large)),
        ]
    },
    rank: own,
}];

/// Pages that are used in each way while the agent is stopped: all together fewer than the frames that it keeps free.
const EACH: usize = 2;
/// Ways.
const GROUPS: usize = 8;
/// In each page, a word that is a lock.
const LOCK: u64 = 16;
/// How long the agent stays stopped if something does wait for it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The node's daemon, stopped until this is dropped, or for so long.
struct Stopped {
    daemon: Pid,
    over: Arc<AtomicBool>,
    watch: Option<std::thread::JoinHandle<bool>>,
}

impl Stopped {
    fn stop() -> Result<Self, Box<dyn std::error::Error>> {
        let daemon = getppid().ok_or("a rank has a parent")?;
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let watch = std::thread::spawn(move || {
            let began = Instant::now();
            while !seen.load(Ordering::Acquire) {
                if began.elapsed() > TIMEOUT {
                    let _ = kill_process(daemon, Signal::CONT);
                    return false;
                }
                std::thread::park_timeout(TIMEOUT);
            }
            true
        });
        kill_process(daemon, Signal::STOP)?;
        let status = format!("/proc/{}/stat", daemon.as_raw_nonzero());
        let is_stopped = || std::fs::read_to_string(&status).is_ok_and(|text| text.contains(") T "));
        let began = Instant::now();
        while !is_stopped() {
            if began.elapsed() > TIMEOUT {
                return Err("the daemon cannot be stopped".into());
            }
        }
        Ok(Self { daemon, over, watch: Some(watch) })
    }

    /// Lets the daemon go on. False: it went on before.
    fn end(mut self) -> bool {
        self.let_go()
    }

    fn let_go(&mut self) -> bool {
        let _ = kill_process(self.daemon, Signal::CONT);
        self.over.store(true, Ordering::Release);
        let watch = self.watch.take().inspect(|watch| watch.thread().unpark());
        watch.is_none_or(|watch| watch.join().unwrap_or(false))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn word(at: u64) -> u64 {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

fn own(runtime: &Runtime, seed: u64) -> Outcome {
    // Four times the cache, so that most pages are on NVMe alone.
    let bytes = 4 * runtime.cache_layout().frames_bytes();
    runtime.attach(&SegmentOptions::tiered(bytes))?;
    let page_bytes = runtime.page_bytes() as u64;
    let pages_all = bytes / page_bytes;
    let at = |offset: u64| GlobalAddress::tiered(Rank(0), offset);
    for page in 0..pages_all {
        let begin = page * page_bytes;
        let mut words: Vec<u64> = (begin..begin + page_bytes).step_by(8).map(word).collect();
        words[LOCK as usize / 8] = 0;
        runtime.put(at(begin), &words)?;
    }
    let local = crate::scenarios::local(runtime)?;
    let pool = crate::client(runtime).pool().clone();
    let is_stored = |page: &u64| pool.peek(PageIndex(*page)).state() == PageState::Stored;
    // In no order that looks like a scan, for which more would be read.
    let mut order: Vec<u64> = (0..pages_all).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let stored = || order.iter().copied().filter(is_stored).take(1 + GROUPS * EACH).collect::<Vec<_>>();
    let began = Instant::now();
    while stored().len() < 1 + GROUPS * EACH || pool.is_short_of_frames(pool.layout().page_size()) {
        if began.elapsed() > TIMEOUT {
            return Err(format!("only pages {:?} are left to the ranks", stored()).into());
        }
    }
    let (probe, pages) = stored().split_first().map(|(first, rest)| (*first, rest.to_vec())).ok_or("some")?;
    let counted = |counter| runtime.rank_statistics().get(counter);
    let _: u64 = runtime.get_value(at(probe * page_bytes))?;
    if counted(Counter::NvmReads) == 0 {
        println!(
            "skipped: ranks cannot read segment files here (io_uring, or /proc/<pid>/fd, is not allowed)"
        );
        return Ok(());
    }
    let before = [Counter::NvmReads, Counter::WholePagePuts].map(counted);

    let stopped = Stopped::stop()?;
    let mut groups = pages.chunks(EACH).map(|group| group.iter().map(|page| page * page_bytes));
    let mut next = || groups.next().ok_or("too few groups");
    for offset in next()? {
        let found: u64 = runtime.get_value(at(offset + 8))?;
        assert_eq!(found, word(offset + 8), "a get");
    }
    let gets: Vec<_> = next()?
        .map(|offset| Ok((offset, runtime.get_nb(at(offset), vec![0u64; 2])?)))
        .collect::<vgas::Result<_>>()?;
    for (offset, get) in gets {
        assert_eq!(get.wait()?, [word(offset), word(offset + 8)], "a get that goes on by itself");
    }
    let puts: Vec<u64> = next()?.collect();
    for offset in &puts {
        runtime.put_value(at(offset + 8), 7u64)?;
    }
    let wholes: Vec<u64> = next()?.collect();
    for offset in &wholes {
        runtime.put(at(*offset), &vec![9u64; page_bytes as usize / 8])?;
    }
    let pointers: Vec<u64> = next()?.collect();
    for offset in &pointers {
        let here = local.address_of(*offset).ok_or("inside")?.cast::<u64>();
        // SAFETY: words of the segment, which nobody else uses.
        unsafe {
            assert_eq!(here.add(1).read_volatile(), word(offset + 8), "a load");
            here.write_volatile(11);
        }
    }
    let updates: Vec<u64> = next()?.collect();
    for offset in &updates {
        assert_eq!(runtime.fetch_add(at(offset + 8), 5)?, word(offset + 8), "an update");
    }
    let many: Vec<u64> = next()?.collect();
    let list: Vec<_> = many.iter().map(|offset| (at(offset + 8), Change::Add(3u64))).collect();
    let list: Vec<_> = list.iter().chain(&list).copied().collect();
    let twice: Vec<u64> = runtime.update_many(&list)?;
    let expected = |more| many.iter().map(move |offset| word(offset + 8).wrapping_add(more));
    assert_eq!(twice, expected(0).chain(expected(3)).collect::<Vec<_>>(), "many updates");
    let locks: Vec<u64> = next()?.collect();
    for (number, offset) in locks.iter().enumerate() {
        match number % 2 {
            0 => drop(runtime.lock(at(offset + LOCK))?),
            _ => drop(runtime.try_lock_shared(at(offset + LOCK))?.ok_or("a free lock")?),
        }
    }
    if !stopped.end() {
        return Err("something has waited for the agent".into());
    }
    let after = [Counter::NvmReads, Counter::WholePagePuts].map(counted);
    assert_eq!(after[0] - before[0], (GROUPS - 1) as u64 * EACH as u64, "pages read by the rank");
    assert_eq!(after[1] - before[1], EACH as u64, "pages put as a whole");

    let two = |offset: u64| -> vgas::Result<[u64; 2]> {
        let mut words = [0; 2];
        runtime.get(at(offset), &mut words)?;
        Ok(words)
    };
    for offset in puts {
        assert_eq!(two(offset)?, [word(offset), 7]);
    }
    for offset in wholes {
        assert_eq!(two(offset)?, [9, 9]);
    }
    for offset in pointers {
        assert_eq!(two(offset)?, [11, word(offset + 8)]);
    }
    for offset in updates {
        assert_eq!(two(offset)?, [word(offset), word(offset + 8).wrapping_add(5)]);
    }
    for offset in many {
        assert_eq!(two(offset)?, [word(offset), word(offset + 8).wrapping_add(6)]);
    }
    // What the agent did not see is evicted and stored like everything else.
    for page in 0..pages_all {
        let offset = page * page_bytes + page_bytes - 8;
        let found: u64 = runtime.get_value(at(offset))?;
        assert!(found == word(offset) || found == 9, "{offset}: {found}");
    }
    Ok(())
}
