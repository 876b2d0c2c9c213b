//! Goal: a user never sees another page's bytes, and no write is lost, whatever the agent takes away meanwhile.
//!
//! Method: more pages than frames; every word of a page carries the page's number and a version. Reader threads of two
//! ranks get pages and check the number; writer threads add one to words of their own through put; the agent evicts,
//! downgrades, installs and moves pages between frames as fast as it can, overwriting each frame in between. An agent that
//! does not look at the slots is found within milliseconds. A missing barrier would be found only by luck; for that
//! there is the model in `pool_handshake.rs`.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use vgas_cache::page::PageIndex;
use vgas_cache::pool::{
    Attempt, Fences, Intent, Outcome, PageState, PinMode, PoolAgent, PoolClient, PoolSpec, TableLayout,
};
use vgas_shm::Mapping;

const PAGE: u32 = 4096;
const WORDS: usize = PAGE as usize / 8;
const PAGES: u64 = 12;
const FRAMES: u32 = 5;
const WRITERS: usize = 2;
const RUN: Duration = Duration::from_millis(400);
const LIMIT: Duration = Duration::from_secs(60);

fn pool(fences: Fences) -> (PoolAgent, [Arc<PoolClient>; 2]) {
    let spec = PoolSpec {
        page_bytes: PAGE,
        frames: FRAMES,
        page_bytes_max: 4 << 20,
        segment_pages_max: vec![PAGES],
        local_ranks: 2,
        wait_slots_per_rank: 4,
        // Fewer own slots than threads: some share.
        hazard_slots_per_rank: 3,
        mapped_pages_per_rank: 0,
        agent_threads: 1,
        block_pages: 512,
    };
    let layout = TableLayout::new(&spec).unwrap();
    let table = Mapping::anonymous("table", layout.table_bytes()).unwrap();
    let frames = Mapping::anonymous("frames", layout.frames_bytes()).unwrap();
    let agent = PoolAgent::create(&spec, table.clone(), frames.clone(), fences).unwrap();
    let client = |rank| Arc::new(PoolClient::attach(&spec, table.clone(), frames.clone(), rank).unwrap());
    (agent, [client(0), client(1)])
}

/// A word: the page in the upper half, a count below. Word `n` of a page is counted up by writer `n` only.
fn word(page: u64, count: u32) -> u64 {
    (page + 1) << 32 | u64::from(count)
}

fn read(client: &PoolClient, stop: &AtomicBool, seed: u64) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut hits = 0;
    let mut bytes = vec![0u64; WORDS];
    while !stop.load(Relaxed) {
        let page = random.random_range(0..PAGES);
        // Sometimes a few words, sometimes all of the page, so that revocations meet copies in flight.
        let words = if random.random() { WORDS } else { random.random_range(1..9) };
        let first = random.random_range(0..=WORDS - words);
        // SAFETY: `bytes` has a whole page.
        let attempt = unsafe {
            client.try_get(
                client.page(PageIndex(page)),
                (first * 8) as u32,
                bytes.as_mut_ptr().cast(),
                (words * 8) as u32,
            )
        };
        if let Attempt::Miss(_) = attempt {
            continue;
        }
        hits += 1;
        for &found in &bytes[..words] {
            assert_eq!(found >> 32, page + 1, "page {page} shows {found:#x}");
        }
        if random.random_range(0..64) == 0
            && let Some(pin) = client.try_pin(client.page(PageIndex(page)), PinMode::Read)
        {
            for _ in 0..4 {
                let mut found = 0u64;
                // SAFETY: 8 private bytes.
                unsafe { pin.try_get(8 * 100, (&raw mut found).cast(), 8) };
                assert_eq!(found >> 32, page + 1, "a pinned frame never shows another page");
            }
        }
    }
    hits
}

/// Adds one to its word of random pages; returns how often, per page.
fn write(client: &PoolClient, stop: &AtomicBool, writer: usize) -> Vec<u32> {
    let mut random = ChaCha8Rng::seed_from_u64(writer as u64 + 100);
    let mut counts = vec![0u32; PAGES as usize];
    while !stop.load(Relaxed) {
        let page = random.random_range(0..PAGES);
        let next = word(page, counts[page as usize] + 1);
        // SAFETY: 8 private bytes.
        let attempt = unsafe {
            client.try_put(client.page(PageIndex(page)), writer as u32 * 8, (&raw const next).cast(), 8)
        };
        if !matches!(attempt, Attempt::Miss(_)) {
            counts[page as usize] += 1;
        }
    }
    counts
}

/// Moves pages in and out until told to stop; `store` is what the pages are when they are not in a frame.
fn shuffle(agent: &mut PoolAgent, store: &mut [Vec<u64>], until: Instant) {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut done = Vec::new();
    let garbage = [0xff_u8; PAGE as usize];
    while Instant::now() < until {
        // Bring pages in while there are frames.
        for _ in 0..2 {
            let page = random.random_range(0..PAGES);
            if agent.entry(PageIndex(page)).unwrap() != vgas_cache::pool::Entry::INVALID {
                continue;
            }
            let Some(frame) = agent.take_frame(agent.layout().page_size()) else { break };
            let bytes: Vec<u8> = store[page as usize].iter().flat_map(|word| word.to_ne_bytes()).collect();
            agent.frame_span(frame).unwrap().write(&bytes);
            let state =
                [PageState::Shared, PageState::Exclusive, PageState::Modified][random.random_range(0..3)];
            agent.install(PageIndex(page), frame, state, random.random()).unwrap();
        }
        for _ in 0..2 {
            let page = random.random_range(0..PAGES);
            if agent.entry(PageIndex(page)).unwrap().state().readable() {
                let intent = if random.random() { Intent::Evict } else { Intent::Revoke };
                agent.revoke(PageIndex(page), intent).unwrap();
            }
        }
        agent.poll_revocations(&mut done).unwrap();
        for (page, outcome) in done.drain(..) {
            if outcome == Outcome::Pinned {
                continue;
            }
            match random.random_range(0..4) {
                0 => agent.unhold(page).unwrap(),
                1 => agent.settle(page, PageState::Owned).unwrap(),
                _ => take_out(agent, store, page, &garbage),
            }
        }
        agent.reclaim();
        agent.tick();
    }
    // Everything out, for the count at the end.
    for page in 0..PAGES {
        agent.revoke(PageIndex(page), Intent::Revoke).unwrap();
    }
    let mut naps = 0;
    while agent.revoking() {
        assert!(Instant::now() < until + LIMIT, "users never leave");
        agent.poll_revocations(&mut done).unwrap();
        vgas_shm::cores::nap(&mut naps);
    }
    for (page, outcome) in done {
        assert_eq!(outcome, Outcome::Quiet);
        take_out(agent, store, page, &garbage);
    }
}

fn take_out(agent: &mut PoolAgent, store: &mut [Vec<u64>], page: PageIndex, garbage: &[u8]) {
    let Some(frame) = agent.detach(page).unwrap() else { return };
    let span = agent.frame_span(frame).unwrap();
    let mut bytes = vec![0; PAGE as usize];
    span.read(&mut bytes);
    store[page.0 as usize] =
        bytes.chunks(8).map(|chunk| u64::from_ne_bytes(chunk.try_into().unwrap())).collect();
    if agent.pins(frame).unwrap().none() {
        span.write(garbage);
    }
    agent.release(frame).unwrap();
}

/// In a job the agent is another process than its ranks and visits every processor when one attaches, because the
/// kernel may otherwise leave one out of the barriers (see `pool/fence.rs`). Here everything is one process, so a child
/// is sent to each processor.
fn visit_processors() {
    use std::os::unix::process::CommandExt;
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    for processor in (0..rustix::thread::CpuSet::MAX_CPU).filter(|&processor| all.is_set(processor)) {
        let mut one = rustix::thread::CpuSet::new();
        one.set(processor);
        let mut child = std::process::Command::new("/bin/true");
        // SAFETY: between fork and exec only a system call is made, which neither allocates nor locks.
        unsafe { child.pre_exec(move || Ok(rustix::thread::sched_setaffinity(None, &one)?)) };
        assert!(child.status().unwrap().success());
    }
}

fn run(fences: Fences) {
    let (mut agent, clients) = pool(fences);
    visit_processors();
    let mut store: Vec<Vec<u64>> = (0..PAGES).map(|page| vec![word(page, 0); WORDS]).collect();
    let stop = AtomicBool::new(false);
    let (hits, counts) = std::thread::scope(|scope| {
        let stop = &stop;
        let readers: Vec<_> = (0..3)
            .map(|n| {
                let client = clients[n % 2].clone();
                scope.spawn(move || read(&client, stop, n as u64))
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| {
                let client = clients[n % 2].clone();
                scope.spawn(move || write(&client, stop, n))
            })
            .collect();
        shuffle(&mut agent, &mut store, Instant::now() + RUN);
        stop.store(true, Relaxed);
        let hits: u64 = readers.into_iter().map(|thread| thread.join().unwrap()).sum();
        let counts: Vec<_> = writers.into_iter().map(|thread| thread.join().unwrap()).collect();
        (hits, counts)
    });
    assert!(hits > 0, "readers found nothing");
    for (writer, counts) in counts.iter().enumerate() {
        assert!(counts.iter().any(|&count| count > 0), "writer {writer} found nothing");
        for (page, &count) in counts.iter().enumerate() {
            assert_eq!(store[page][writer], word(page as u64, count), "writer {writer}, page {page}");
        }
    }
    while agent.reclaim() > 0 {}
    assert_eq!(agent.free_frames(agent.layout().page_size()), FRAMES, "no frame is lost");
}

#[test]
fn users_never_see_another_page_with_membarrier() {
    run(Fences::Detect);
}

#[test]
fn users_never_see_another_page_with_fences() {
    run(Fences::Symmetric);
}

/// Frames go round between several threads: none is lost, none is handed out twice.
#[test]
fn the_free_queue_hands_each_frame_to_one_at_a_time() {
    let (mut agent, clients) = pool(Fences::Detect);
    let holders: Vec<_> = (0..FRAMES).map(|_| AtomicBool::new(false)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (client, holders, stop) = (clients[n % 2].clone(), &holders, &stop);
            scope.spawn(move || {
                let mut taken = 0;
                while !stop.load(Relaxed) || taken == 0 {
                    let Some(frame) = client.stage(client.layout().page_size()) else { continue };
                    taken += 1;
                    let index = frame.id().0 as usize;
                    assert!(!holders[index].swap(true, Relaxed), "frame {index} was handed out twice");
                    // Not a wait: somebody is to come in between, on one core as well. The same below.
                    std::thread::yield_now();
                    holders[index].store(false, Relaxed);
                    drop(frame);
                }
            });
        }
        // The agent takes several at once.
        let (until, mut batch) = (Instant::now() + RUN / 2, Vec::new());
        while Instant::now() < until {
            agent.take_frames(agent.layout().page_size(), 3, &mut batch);
            for frame in &batch {
                let index = frame.0 as usize;
                assert!(!holders[index].swap(true, Relaxed), "frame {index} was handed out twice");
            }
            std::thread::yield_now();
            for frame in batch.drain(..) {
                holders[frame.0 as usize].store(false, Relaxed);
                agent.release(frame).expect("just taken");
            }
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(agent.free_frames(agent.layout().page_size()), FRAMES);
    let all: Vec<_> = std::iter::from_fn(|| agent.take_frame(agent.layout().page_size())).collect();
    assert_eq!(all.len(), FRAMES as usize);
}
