//! Plain loads and stores on one's own tiered segment, while others put and get the same pages.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, attach, small, with};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vgas::{Announcing, GlobalAddress, Mechanism, Rank, Runtime};

/// Every mechanism that this machine allows; those that it refuses are named.
fn mechanisms(more: &[(&'static str, &'static str)]) -> Vec<Vec<(&'static str, &'static str)>> {
    let all: [(Mechanism, &[(&str, &str)]); 3] = [
        (Mechanism::Sigsegv, &[("local.mechanism", "sigsegv")]),
        (Mechanism::Userfaultfd(Announcing::BySignal), &[("local.mechanism", "userfaultfd")]),
        (Mechanism::Userfaultfd(Announcing::ToThread), &[("local.mechanism", "system-calls")]),
    ];
    let mut allowed = Vec::new();
    for (mechanism, settings) in all {
        match mechanism.available() {
            Ok(()) => allowed.push(with(&[more, settings].concat())),
            Err(error) => println!("skipped {mechanism:?}: this kernel refuses it ({error})"),
        }
    }
    allowed
}

fn each(ranks: u32, nodes: u32, more: &[(&'static str, &'static str)]) -> Vec<Setting> {
    mechanisms(more).iter().map(|settings| Setting::new(ranks, nodes, settings)).collect()
}

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "local_edges",
        settings: || {
            let mut all = each(1, 1, &[]);
            all.extend(each(2, 2, &[("cache.page", "64KiB"), ("cache.size", "4MiB")]));
            all
        },
        rank: edges,
    },
    Scenario { name: "local_sweep", settings: || each(1, 1, &[]), rank: sweep },
    Scenario {
        name: "local_in_order",
        settings: || {
            let mut all = each(1, 1, &[("cache.size", "4MiB"), ("local.mapped", "512KiB")]);
            all.extend(each(
                1,
                1,
                &[("cache.size", "32MiB"), ("cache.page", "64KiB"), ("local.mapped", "4MiB")],
            ));
            all
        },
        rank: in_order,
    },
    Scenario {
        name: "local_traffic",
        settings: || {
            let mut all = each(3, 3, &[]);
            all.extend(each(4, 2, &[("cache.page", "16KiB"), ("cache.size", "2MiB")]));
            all.push(Setting::new(2, 1, &small()));
            all.push(Setting::new(2, 2, &with(&[("ablation.in_place", "off")])));
            all.push(Setting::new(2, 2, &with(&[("ablation.cooperative", "off"), ("nvm.device", "memory")])));
            all
        },
        rank: traffic,
    },
    Scenario { name: "local_system_calls", settings: || each(1, 1, &[]), rank: system_calls },
    Scenario { name: "local_buffers", settings: || each(2, 2, &[]), rank: buffers },
    Scenario { name: "local_signals", settings: || each(1, 1, &[]), rank: signals },
    Scenario { name: "local_children", settings: || each(1, 1, &[]), rank: children },
    // Twice: the second job finds what the first one has stored.
    Scenario {
        name: "local_checkpoint",
        settings: || vec![in_folder(2, 1), in_folder(2, 1)],
        rank: checkpoint,
    },
];

/// Jobs that end badly, and what they must say.
pub const ENDING_BADLY: &[(Scenario, &str)] = &[
    (Scenario { name: "local_outside", settings: || each(1, 1, &[]), rank: outside }, "SIGSEGV"),
    (Scenario { name: "local_overflow", settings: || each(1, 1, &[]), rank: overflow }, "SIGABRT"),
    (Scenario { name: "local_damaged", settings: || vec![in_folder(1, 1)], rank: damaged }, "SIGBUS"),
    (
        Scenario { name: "local_killed", settings: || vec![in_folder(2, 2), in_folder(2, 1)], rank: killed },
        "SIGKILL",
    ),
    (Scenario { name: "mates_store", settings: || each(2, 1, &[]), rank: crate::mates::store }, "SIGBUS"),
];

/// A folder for segment files, while the launcher lives.
static FOLDER: Mutex<Option<tempfile::TempDir>> = Mutex::new(None);

fn in_folder(ranks: u32, nodes: u32) -> Setting {
    let mut folder = FOLDER.lock().unwrap_or_else(|e| e.into_inner());
    let path = folder.get_or_insert_with(|| tempfile::tempdir().expect("a folder")).path();
    let path = path.to_str().expect("plain").to_owned();
    let mut setting = Setting::new(ranks, nodes, &small());
    setting.settings.insert("nvm.directory", path);
    setting
}

/// Removes the folder of segment files.
pub fn remove_folder() {
    drop(FOLDER.lock().unwrap_or_else(|e| e.into_inner()).take());
}

/// Whether a job that has ended has left nothing but named segments in the folder.
pub fn nothing_is_left() -> Result<(), String> {
    let folder = FOLDER.lock().unwrap_or_else(|e| e.into_inner());
    let Some(folder) = folder.as_ref() else { return Ok(()) };
    let files = std::fs::read_dir(folder.path()).map_err(|error| error.to_string())?;
    let names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
    let left: Vec<String> = names.filter(|name| !name.ends_with(".vgas")).collect();
    if left.is_empty() { Ok(()) } else { Err(format!("has left {left:?}")) }
}

/// A segment as words that several threads and ranks use.
#[derive(Clone, Copy)]
struct Words<'r> {
    base: *mut u8,
    words: usize,
    _runtime: &'r Runtime,
}

// SAFETY: a local segment may be used from any thread, here as atomics.
unsafe impl Send for Words<'_> {}
// SAFETY: as above.
unsafe impl Sync for Words<'_> {}

impl<'r> Words<'r> {
    fn of(runtime: &'r Runtime) -> vgas::Result<Self> {
        let local = crate::scenarios::local(runtime)?;
        Ok(Self { base: local.base(), words: local.bytes() as usize / 8, _runtime: runtime })
    }

    fn at(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.words);
        // SAFETY: inside of the segment, which lives as long as the runtime.
        unsafe { AtomicU64::from_ptr(self.base.cast::<u64>().add(word)) }
    }

    fn load(&self, word: usize) -> u64 {
        self.at(word).load(Ordering::Relaxed)
    }

    fn store(&self, word: usize, value: u64) {
        self.at(word).store(value, Ordering::Relaxed);
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} instead of {expected:?}").into()) }
}

/// Goal: the first and the last byte, by pointer, put and get; addresses and offsets name each other.
fn edges(runtime: &Runtime, _seed: u64) -> Outcome {
    const BYTES: u64 = (32 << 20) + 24;
    attach(runtime, BYTES)?;
    let local = crate::scenarios::local(runtime)?;
    equal("bytes", local.bytes(), BYTES)?;
    let own = |offset: u64| GlobalAddress::tiered(runtime.rank(), offset);
    for offset in [0, 1, 4095, 4096, BYTES / 2, BYTES - 1] {
        let address = local.address_of(offset).ok_or("an offset without address")?;
        equal("offset", local.offset_of(address), Some(offset))?;
        let value = (offset % 251) as u8 + 1;
        // SAFETY: inside of the segment; nobody else uses it.
        unsafe {
            equal("fresh byte", address.read_volatile(), 0)?;
            address.write_volatile(value);
        }
        equal("got byte", runtime.get_value::<u8>(own(offset))?, value)?;
        runtime.put_value(own(offset), value + 1)?;
        // SAFETY: as above.
        equal("put byte", unsafe { address.read_volatile() }, value + 1)?;
    }
    equal("address behind", local.address_of(BYTES), None)?;
    equal("offset behind", local.offset_of(local.base().wrapping_add(BYTES as usize)), None)?;
    equal("offset before", local.offset_of(local.base().wrapping_sub(1)), None)?;
    equal("pin behind", local.pin(BYTES - 1, 2).is_err(), true)?;
    runtime.barrier()?;
    // Another rank sees what pointers wrote.
    let next = Rank((runtime.rank().0 + 1) % runtime.ranks());
    let last: u8 = runtime.get_value(GlobalAddress::tiered(next, BYTES - 1))?;
    equal("last byte of another", last, ((BYTES - 1) % 251) as u8 + 2)
}

/// Goal: several threads use a segment sixteen times the cache at once, and every word keeps what its thread stored.
fn sweep(runtime: &Runtime, seed: u64) -> Outcome {
    const BYTES: u64 = 16 << 20;
    const THREADS: usize = 4;
    attach(runtime, BYTES)?;
    let words = Words::of(runtime)?;
    let value = |word: usize| (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed | 1;
    let wrong = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let wrong = &wrong;
            scope.spawn(move || {
                // Neighbouring words belong to different threads: all of them fault on the same pages.
                let mine = || (thread..words.words).step_by(THREADS);
                for word in mine() {
                    words.store(word, value(word));
                }
                let mut random = ChaCha8Rng::seed_from_u64(seed ^ thread as u64);
                for _ in 0..2000 {
                    let word = random.random_range(0..words.words / THREADS) * THREADS + thread;
                    wrong.fetch_add(u64::from(words.load(word) != value(word)), Ordering::Relaxed);
                }
                for word in mine() {
                    wrong.fetch_add(u64::from(words.load(word) != value(word)), Ordering::Relaxed);
                }
            });
        }
    });
    equal("wrong words", wrong.into_inner(), 0)?;
    let faults =
        crate::client(runtime).counters().iter().find(|(counter, _)| *counter == vgas::Counter::Faults);
    equal("at least a fault a page", faults.is_some_and(|(_, faults)| faults >= BYTES / 4096), true)?;
    // Gets see the same.
    for first in (0..words.words).step_by(8192) {
        let mut got = vec![0u64; 8192];
        runtime.get(GlobalAddress::tiered(runtime.rank(), first as u64 * 8), &mut got)?;
        equal("got words", got, (first..first + 8192).map(value).collect())?;
    }
    Ok(())
}

/// Goal: who goes through pages in DRAM in order faults once for several of them, storing to new ones that are here, loading, storing, loading
/// before each store, and storing to several columns in turn, on a thread of its own as well; finds what was written; and pages
/// apart fault by themselves.
fn in_order(runtime: &Runtime, seed: u64) -> Outcome {
    let page_words = runtime.page_bytes() / 8;
    let vgas::config::Auto::Is(cache) = &runtime.settings().cache.size else {
        return Err("no cache size".into());
    };
    // Four times what may be mapped, half of what the cache holds.
    let pages = cache.bytes() as usize / 2 / (8 * page_words);
    attach(runtime, (pages * page_words * 8) as u64)?;
    let words = Words::of(runtime)?;
    let value = |round: u64, page: usize| (page as u64 + 1).wrapping_mul(seed | 1) ^ round << 60;
    let word = |page: usize| page * page_words + page % page_words;
    let faults = || {
        let counters = crate::client(runtime).counters();
        counters.iter().find(|(counter, _)| *counter == vgas::Counter::Faults).map_or(0, |(_, faults)| faults)
    };
    let mut wrong = 0;
    // New pages, which the agent has brought in, and then nobody uses: not more of them at a time than it does.
    let at = |word: usize| GlobalAddress::tiered(runtime.rank(), word as u64 * 8);
    let quarter = pages / 4;
    for first in (0..4).map(|part| part * quarter) {
        runtime.prefetch(at(first * page_words), (quarter * page_words * 8) as u64)?;
        for page in first..first + quarter {
            runtime.get(at(word(page)), &mut [0u64])?;
        }
    }
    let before = faults();
    (0..pages).for_each(|page| words.store(word(page), value(0, page)));
    let filled = faults() - before;
    let before = faults();
    (0..pages).for_each(|page| wrong += u64::from(words.load(word(page)) != value(0, page)));
    let loaded = faults() - before;
    for page in 0..pages {
        wrong += u64::from(words.load(word(page)) != value(0, page));
        words.store(word(page), value(1, page));
    }
    let changed = faults() - before - loaded;
    (0..pages).for_each(|page| words.store(word(page), value(2, page)));
    let stored = faults() - before - loaded - changed;
    // No page follows its neighbour, nor any of the last few, so that nothing is brought along.
    for first in 0..7 {
        (first..pages)
            .step_by(7)
            .for_each(|page| wrong += u64::from(words.load(word(page)) != value(2, page)));
    }
    let apart = faults() - before - loaded - changed - stored;
    const COLUMNS: usize = 8;
    let before = faults();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            vgas::prepare_thread();
            let height = pages / COLUMNS;
            let row = |row: usize| (0..COLUMNS).map(move |column| column * height + row);
            (0..height).flat_map(row).for_each(|page| words.store(word(page), value(3, page)));
        });
    });
    let in_columns = faults() - before;
    (0..pages / COLUMNS * COLUMNS)
        .for_each(|page| wrong += u64::from(words.load(word(page)) != value(3, page)));
    let pages = pages as u64;
    let few = filled <= pages / 6 && loaded <= pages / 6 && changed <= pages / 3 && stored <= pages / 6;
    let few = few && in_columns <= pages / 2 && apart >= pages / 2;
    let told =
        format!("{filled}, {loaded}, {changed}, {stored}, {apart}, {in_columns} faults for {pages} pages");
    equal(&told, (few, wrong), (true, 0))
}

/// Goal: each word holds what its only writer wrote last and never goes back, when owners use pointers (from two threads)
/// and others put and get, all at random, in the same pages, and the cache is a tenth of what is touched.
fn traffic(runtime: &Runtime, seed: u64) -> Outcome {
    const STEPS: u64 = 1500;
    let vgas::config::Auto::Is(cache) = &runtime.settings().cache.size else {
        return Err("no cache size".into());
    };
    let bytes = (cache.bytes() * 10 / u64::from(runtime.ranks())).next_multiple_of(64 << 10);
    attach(runtime, bytes)?;
    let local = Words::of(runtime)?;
    let (ranks, me) = (u64::from(runtime.ranks()), u64::from(runtime.rank().0));
    // Two writers a rank: its main thread, by put or pointer, and a second thread, by pointer in its own segment alone.
    let writers = ranks + 1;
    let writer = |word: u64| word % writers;
    let failed = Mutex::new(None);
    let rank = |segment: u64, word: u64| GlobalAddress::tiered(Rank(segment as u32), word * 8);
    let words = bytes / 8;
    // Words near each other are used again and again, so that ranks meet in the same pages.
    let draw = |random: &mut ChaCha8Rng| {
        let hot = random.random_bool(0.5);
        if hot { random.random_range(0..words / 64) } else { random.random_range(0..words) }
    };
    std::thread::scope(|scope| -> Outcome {
        scope.spawn(|| {
            let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0xffff ^ me);
            let mut last = std::collections::HashMap::new();
            for step in 1..=STEPS {
                let word = draw(&mut random) / writers * writers + ranks;
                if word >= words {
                    continue;
                }
                let found = local.load(word as usize);
                let expected = last.insert(word, step).unwrap_or(0);
                if found != expected {
                    let what = format!("second thread: word {word} is {found}, was {expected}");
                    failed.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(what);
                }
                local.store(word as usize, step);
            }
        });
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ me.wrapping_mul(0x9e37_79b9));
        let mut seen = std::collections::HashMap::<(u64, u64), u64>::new();
        for step in 1..=STEPS {
            let segment = if random.random_bool(0.5) { me } else { random.random_range(0..ranks) };
            let word = draw(&mut random);
            let pointer = segment == me && random.random_bool(0.7);
            let found = match pointer {
                true => local.load(word as usize),
                false => runtime.get_value(rank(segment, word))?,
            };
            let last = seen.entry((segment, word)).or_default();
            let mine = writer(word) == me;
            if found < *last || (mine && found != *last) {
                return Err(format!(
                    "word {word} of segment {segment} is {found}, was {last} (mine: {mine})"
                )
                .into());
            }
            *last = found;
            if mine {
                *last = step;
                match pointer {
                    true => local.store(word as usize, step),
                    false => runtime.put_value(rank(segment, word), step)?,
                }
            }
        }
        Ok(())
    })?;
    if let Some(what) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(what.into());
    }
    runtime.barrier()?;
    // All agree on everything: others' segments by get, its own by pointer.
    let mut sum = 0u64;
    for segment in 0..ranks {
        for first in (0..words).step_by(4096) {
            let count = 4096.min(words - first) as usize;
            let mut got = vec![0u64; count];
            if segment == me {
                got.iter_mut().zip(first as usize..).for_each(|(to, word)| *to = local.load(word));
            } else {
                runtime.get(rank(segment, first), &mut got)?;
            }
            sum = got.iter().fold(sum, |sum, word| sum.rotate_left(5) ^ word);
        }
    }
    let sums = runtime.all_gatherv(&sum.to_le_bytes())?;
    equal("ranks that see other memory", sums.iter().filter(|other| ***other != sum.to_le_bytes()).count(), 0)
}

/// Goal: `read(2)` into the segment works, or fails with EFAULT where the mechanism cannot serve the kernel's own faults,
/// and works with each after `pin`.
fn system_calls(runtime: &Runtime, _seed: u64) -> Outcome {
    const BYTES: u64 = 8 << 20;
    const PIECE: usize = 20_000;
    attach(runtime, BYTES)?;
    let local = crate::scenarios::local(runtime)?;
    let mut file = tempfile::tempfile()?;
    let content: Vec<u8> = (0..PIECE).map(|at| (at % 251) as u8).collect();
    std::io::Write::write_all(&mut file, &content)?;
    let read = |offset: u64| {
        let to = local.address_of(offset).expect("inside");
        // SAFETY: inside of the segment, which nobody else uses.
        let read = unsafe { libc::pread(file.as_raw_fd(), to.cast(), PIECE, 0) };
        if read < 0 { Err(std::io::Error::last_os_error().raw_os_error()) } else { Ok(read as usize) }
    };
    let check = |offset: u64| -> Outcome {
        let mut got = vec![0u8; PIECE];
        runtime.get(GlobalAddress::tiered(runtime.rank(), offset), &mut got)?;
        equal("bytes that were read", got == content, true)
    };
    match local.mechanism() {
        Mechanism::Userfaultfd(Announcing::ToThread) => {
            equal("read", read(1000), Ok(PIECE))?;
            check(1000)?;
        }
        _ => equal("read", read(1000), Err(Some(libc::EFAULT)))?,
    }
    let pin = local.pin(2_000_000, PIECE as u64)?;
    equal("read into pinned memory", read(2_000_000), Ok(PIECE))?;
    // Pinned pages stay while everything else comes and goes.
    let words = Words::of(runtime)?;
    (0..words.words).step_by(512).for_each(|word| assert_eq!(words.load(word), words.load(word)));
    equal("read into pinned memory", read(2_000_000), Ok(PIECE))?;
    check(2_000_000)?;
    drop(pin);
    (0..words.words).step_by(512).for_each(|word| assert_eq!(words.load(word), words.load(word)));
    check(2_000_000)?;
    equal("more pinned than can be", local.pin(0, BYTES).is_err(), true)?;
    // Nothing stays pinned of an attempt that failed.
    for _ in 0..3 {
        drop(local.pin(0, 40 << 12)?);
    }
    Ok(())
}

/// Goal: buffers of puts, gets and messages may lie in the segment, also if their pages are absent.
fn buffers(runtime: &Runtime, seed: u64) -> Outcome {
    const BYTES: u64 = 8 << 20;
    attach(runtime, BYTES)?;
    let words = Words::of(runtime)?;
    let other = Rank((runtime.rank().0 + 1) % runtime.ranks());
    let half = words.words / 2;
    for word in 0..half {
        words.store(word, seed ^ word as u64);
    }
    runtime.barrier()?;
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ u64::from(runtime.rank().0));
    for round in 0..200 {
        let length =
            if random.random_bool(0.5) { random.random_range(1..64) } else { random.random_range(1..4096) };
        let (from, to) = (random.random_range(0..half - length), random.random_range(0..half - length));
        // SAFETY: the first half is only read from now on, the second half of this segment is this rank's alone.
        let (source, into) = unsafe {
            let base = words.base.cast::<u64>();
            (
                std::slice::from_raw_parts(base.add(from), length),
                std::slice::from_raw_parts_mut(base.add(half + to), length),
            )
        };
        if round % 2 == 0 {
            // From the other's first half into one's own second half.
            runtime.get(GlobalAddress::tiered(other, from as u64 * 8), into)?;
        } else {
            // From one's own first half into one's own second half, by put.
            runtime.put(GlobalAddress::tiered(runtime.rank(), (half + to) as u64 * 8), source)?;
        }
        for at in 0..length {
            equal("copied word", words.load(half + to + at), seed ^ (from + at) as u64)?;
        }
    }
    runtime.barrier()?;
    Ok(())
}

/// Goal: handlers of other signals may touch the segment, `errno` survives a fault, and a fault elsewhere goes to the
/// handler that was there before.
fn signals(runtime: &Runtime, _seed: u64) -> Outcome {
    static BASE: AtomicU64 = AtomicU64::new(0);
    static TOUCHED: AtomicU32 = AtomicU32::new(0);
    static CAUGHT: AtomicU64 = AtomicU64::new(0);
    const BYTES: u64 = 8 << 20;
    extern "C" fn touch(_: libc::c_int) {
        let page = TOUCHED.fetch_add(1, Ordering::Relaxed) as u64;
        let at = BASE.load(Ordering::Relaxed) + page * 4096 % BYTES;
        // SAFETY: inside of the segment.
        unsafe { std::ptr::with_exposed_provenance_mut::<u64>(at as usize).write_volatile(page) };
    }
    extern "C" fn caught(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel's structure; the page at the address is the test's own.
        unsafe {
            let address = (*info).si_addr();
            CAUGHT.store(address.addr() as u64, Ordering::Relaxed);
            libc::mprotect(address, 4096, libc::PROT_READ | libc::PROT_WRITE);
        }
    }
    // Installed before the segment: the one that faults elsewhere are left to.
    // SAFETY: zeroed structures are valid; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = caught as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        action.sa_sigaction = touch as extern "C" fn(_) as usize;
        action.sa_flags = 0;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    attach(runtime, BYTES)?;
    let words = Words::of(runtime)?;
    BASE.store(words.base.expose_provenance() as u64, Ordering::Relaxed);
    // A thread is interrupted again and again while it faults.
    let stop = AtomicU32::new(0);
    std::thread::scope(|scope| -> Outcome {
        // SAFETY: no memory is involved.
        let target = unsafe { libc::pthread_self() };
        let stop = &stop;
        scope.spawn(move || {
            for sent in 1..=2000 {
                // SAFETY: the thread outlives this scope.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                // One at a time: the thread is to get on, too.
                let mut naps = 0;
                while TOUCHED.load(Ordering::Relaxed) < sent && stop.load(Ordering::Relaxed) == 0 {
                    vgas_shm::cores::nap(&mut naps);
                }
            }
        });
        let swept = (0..3).try_for_each(|round| -> Outcome {
            for word in (1..words.words).step_by(512) {
                words.store(word, word as u64 + round);
            }
            for word in (1..words.words).step_by(512) {
                equal("word", words.load(word), word as u64 + round)?;
            }
            Ok(())
        });
        stop.store(1, Ordering::Relaxed);
        swept
    })?;
    equal("signals that touched the segment", TOUCHED.load(Ordering::Relaxed) > 0, true)?;
    // SAFETY: this thread's own `errno`.
    unsafe { *libc::__errno_location() = 77 };
    words.load(words.words - 1);
    words.load(0);
    // SAFETY: as above.
    equal("errno", unsafe { *libc::__errno_location() }, 77)?;
    // SAFETY: a page of the test's own, which its handler opens.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let closed = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0);
        closed.cast::<u8>().write_volatile(1);
        equal(
            "fault that was left to the other handler",
            CAUGHT.load(Ordering::Relaxed),
            closed.addr() as u64,
        )
    }
}

/// Goal: a child has no access to the segment and ends by SIGSEGV, after one line that says so; one that touches what is behind it
/// ends without. A child that touches nothing, or executes a program, is not concerned, and the parent goes on.
fn children(runtime: &Runtime, _seed: u64) -> Outcome {
    const BYTES: u64 = 4 << 20;
    attach(runtime, BYTES)?;
    let words = Words::of(runtime)?;
    (0..words.words).step_by(512).for_each(|word| words.store(word, 7));
    let in_child = |address: Option<*mut u8>| -> Result<(i32, String), std::io::Error> {
        let (mut reader, writer) = std::io::pipe()?;
        // SAFETY: the child makes system calls, at most one load, and `_exit`.
        unsafe {
            match libc::fork() {
                -1 => Err(std::io::Error::last_os_error()),
                0 => {
                    libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&writer), libc::STDERR_FILENO);
                    if let Some(address) = address {
                        address.read_volatile();
                    }
                    libc::_exit(0)
                }
                child => {
                    drop(writer);
                    let mut said = String::new();
                    std::io::Read::read_to_string(&mut reader, &mut said)?;
                    let mut status = 0;
                    libc::waitpid(child, &mut status, 0);
                    Ok((status, said))
                }
            }
        }
    };
    // A page that is mapped in the parent, and one that is not.
    for offset in [0, words.words * 8 - 1] {
        let (status, said) = in_child(Some(words.base.wrapping_add(offset)))?;
        equal("a child's load ends by", libc::WTERMSIG(status), libc::SIGSEGV)?;
        equal("its lines", said.lines().count(), 1)?;
        equal(
            "it names the remedy",
            said.contains("the rank that forked it") && said.contains("spawn"),
            true,
        )?;
    }
    for address in
        [words.base.wrapping_sub(1), words.base.wrapping_add(words.words * 8), std::ptr::null_mut()]
    {
        let (status, said) = in_child(Some(address))?;
        equal("a load elsewhere ends by", libc::WTERMSIG(status), libc::SIGSEGV)?;
        equal("a segment is blamed", said.contains("the rank that forked it"), false)?;
    }
    equal("a child that touches nothing", in_child(None)?, (0, String::new()))?;
    equal("a program that a child executes", std::process::Command::new("true").status()?.code(), Some(0))?;
    equal("wrong words", (0..words.words).step_by(512).filter(|word| words.load(*word) != 7).count(), 0)
}

/// Goal: a checkpoint stores what pointers wrote, while they go on writing elsewhere; nothing hangs, and a later job finds
/// it.
fn checkpoint(runtime: &Runtime, _seed: u64) -> Outcome {
    const BYTES: u64 = 4 << 20;
    let name = Some("local".to_owned());
    runtime.attach(&vgas::SegmentOptions::tiered(BYTES).maybe_name(name))?;
    let words = Words::of(runtime)?;
    let folder = runtime.settings().nvm.directory_path();
    let mark = folder.join(format!("written-{}.vgas", runtime.rank().0));
    // The first word of a page stays, the second one changes all the time.
    let first = || (0..words.words).step_by(512);
    if mark.exists() {
        return equal(
            "words that were not stored",
            first().filter(|word| words.load(*word) != *word as u64 + 1).count(),
            0,
        );
    }
    first().for_each(|word| words.store(word, word as u64 + 1));
    let stop = AtomicU32::new(0);
    std::thread::scope(|scope| -> Outcome {
        let stop = &stop;
        scope.spawn(move || {
            for value in 1.. {
                // Few enough to stay mapped, so that the checkpoint meets them.
                for word in first().take(16).chain(first().skip(900).take(8)) {
                    words.store(word + 1, value);
                }
                if stop.load(Ordering::Relaxed) != 0 {
                    return;
                }
            }
        });
        let done = (0..3).try_for_each(|_| runtime.checkpoint());
        stop.store(1, Ordering::Relaxed);
        Ok(done?)
    })?;
    std::fs::write(mark, "")?;
    runtime.barrier()?;
    Ok(())
}

/// Goal: a store right before the segment ends the program as it would without us.
fn outside(runtime: &Runtime, _seed: u64) -> Outcome {
    attach(runtime, 4 << 20)?;
    let words = Words::of(runtime)?;
    words.store(0, 1);
    // SAFETY: none: this is to end the program.
    unsafe { words.base.wrapping_sub(1).write_volatile(1) };
    Ok(())
}

/// Goal: the overflow of a stack is still reported by whoever did so before.
fn overflow(runtime: &Runtime, seed: u64) -> Outcome {
    #[allow(unconditional_recursion, reason = "on purpose")]
    #[inline(never)]
    fn deeper(depth: u64) -> u64 {
        let here = std::hint::black_box([depth; 64]);
        deeper(std::hint::black_box(depth + 1)) + here[depth as usize % 64]
    }
    attach(runtime, 4 << 20)?;
    Words::of(runtime)?.store(0, 1);
    std::hint::black_box(deeper(seed));
    Ok(())
}

/// Goal: a page whose stored bytes are damaged is an error of `pin`, and ends the process by SIGBUS when a pointer needs
/// it.
fn damaged(runtime: &Runtime, _seed: u64) -> Outcome {
    const PATTERN: u64 = 0x5a5a_5a5a_5a5a_5a5a;
    const BYTES: u64 = 8 << 20;
    let name = Some("damaged".to_owned());
    runtime.attach(&vgas::SegmentOptions::tiered(BYTES).maybe_name(name))?;
    let words = Words::of(runtime)?;
    (0..words.words).for_each(|word| words.store(word, PATTERN));
    runtime.checkpoint()?;
    // One byte of each stored page.
    let path = runtime.settings().nvm.directory_path().join("damaged.0.0.vgas");
    let mut content = std::fs::read(&path)?;
    for block in content.chunks_mut(4096).filter(|block| block.starts_with(&PATTERN.to_le_bytes())) {
        block[100] ^= 1;
    }
    let mut file = std::fs::OpenOptions::new().write(true).open(&path)?;
    std::io::Write::write_all(&mut file, &content)?;
    file.sync_all()?;
    match crate::scenarios::local(runtime)?.pin(0, 1) {
        Err(error) if error.to_string().contains("damaged") => {}
        other => return Err(format!("the pin of a damaged page: {other:?}").into()),
    }
    Err(format!("a damaged page could be loaded: {}", words.load(0)).into())
}

/// Goal: the death of a rank with mapped pages, which another one uses meanwhile, ends the job at once.
fn killed(runtime: &Runtime, _seed: u64) -> Outcome {
    attach(runtime, 4 << 20)?;
    let words = Words::of(runtime)?;
    (0..words.words).step_by(512).for_each(|word| words.store(word, 7));
    runtime.barrier()?;
    let began = std::time::Instant::now();
    let (middle, limit) = (std::time::Duration::from_millis(300), std::time::Duration::from_secs(60));
    for round in 0..u64::MAX {
        let at = GlobalAddress::tiered(Rank(1), (round * 4096 + 8) % (4 << 20));
        runtime.put_value(at, round)?;
        words.store((round * 512) as usize % words.words, 7);
        if runtime.rank().0 == 1 && round >= 20 && began.elapsed() > middle {
            // SAFETY: no memory is involved.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        if began.elapsed() > limit {
            return Err("the job goes on without a rank".into());
        }
    }
    Ok(())
}
