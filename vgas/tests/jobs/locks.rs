//! Locks in whole jobs: one writer or many readers, whoever asks from wherever, while everything is evicted; what panics and
//! circles end in.

use crate::Setting;
use crate::scenarios::{Outcome, small, with};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use vgas::{GlobalAddress, Rank, Runtime, SegmentOptions};

pub fn settings() -> Vec<Setting> {
    vec![
        Setting::new(1, 1, &small()),
        Setting::new(4, 1, &small()),
        Setting::new(4, 2, &small()),
        Setting::new(3, 3, &with(&[("conduit", "smp"), ("agent.threads", "2")])),
        Setting::new(4, 4, &with(&[("ablation.cooperative", "off")])),
        Setting::new(3, 3, &with(&[("hooks", "delay=100us,loss=2%")])),
    ]
}

const BYTES: u64 = 4 << 20;

/// Within this all that was given back has come home, however busy the machine is.
const GIVEN_BACK: Duration = Duration::from_secs(20);

pub fn rank(runtime: &Runtime, seed: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(BYTES))?;
    exclusion(runtime, seed)?;
    runtime.barrier()?;
    refusals(runtime)?;
    runtime.barrier()?;
    poison(runtime)?;
    runtime.barrier()?;
    circle(runtime)?;
    runtime.barrier()?;
    segments(runtime)
}

fn at(rank: u32, offset: u64) -> GlobalAddress {
    GlobalAddress::tiered(Rank(rank), offset)
}

/// Goal: what a lock guards is whole to everybody who has it. Method: two words on other pages that writers move apart and together
/// again, from two threads of each rank, over a few locks.
fn exclusion(runtime: &Runtime, seed: u64) -> Outcome {
    const ROUNDS: u64 = 60;
    const LOCKS: u64 = 3;
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    let work = |thread: u64| -> Result<(), String> {
        let text = |error: vgas::Error| error.to_string();
        let mut random = ChaCha8Rng::seed_from_u64(seed + u64::from(me) * 2 + thread);
        for _ in 0..ROUNDS {
            let which = random.random_range(0..LOCKS);
            let home = which as u32 % ranks;
            let (lock, one, other) =
                (at(home, 64 * which), at(home, 8192 + which * 8), at(0, (1 << 20) + which * 4096));
            if random.random_range(0..3) == 0 {
                let guard = runtime.lock_shared(lock).map_err(text)?;
                let pair: [u64; 2] =
                    [runtime.get_value(one).map_err(text)?, runtime.get_value(other).map_err(text)?];
                if pair[0] != pair[1] {
                    return Err(format!("a reader of lock {which} has seen {pair:?}"));
                }
                drop(guard);
            } else {
                let guard = runtime.lock(lock).map_err(text)?;
                let sum: u64 = runtime.get_value(one).map_err(text)?;
                runtime.put_value(one, sum + 1).map_err(text)?;
                let elsewhere = random.random_range(0..BYTES / 4096) * 4096;
                let _: u64 = runtime.get_value(at(home, elsewhere)).map_err(text)?;
                let same: u64 = runtime.get_value(other).map_err(text)?;
                if same != sum {
                    return Err(format!("a writer under lock {which} has seen {sum} and {same}"));
                }
                runtime.put_value(other, sum + 1).map_err(text)?;
                drop(guard);
            }
            if let Some(guard) = runtime.try_lock(at(ranks - 1, 4096)).map_err(text)? {
                let sum: u64 = runtime.get_value(at(0, 2 << 20)).map_err(text)?;
                runtime.put_value(at(0, 2 << 20), sum + 1).map_err(text)?;
                drop(guard);
                runtime.fetch_add(at(0, 3 << 20), 1).map_err(text)?;
            }
        }
        Ok(())
    };
    let results = std::thread::scope(|scope| {
        let other = scope.spawn(|| work(1));
        [work(0), other.join().unwrap_or_else(|_| Err("a thread panicked".into()))]
    });
    results.into_iter().collect::<Result<(), String>>()?;
    runtime.barrier()?;
    let (guarded, counted): (u64, u64) =
        (runtime.get_value(at(0, 2 << 20))?, runtime.get_value(at(0, 3 << 20))?);
    if guarded != counted || counted == 0 {
        return Err(format!("{guarded} of {counted} were counted under a lock that was tried").into());
    }
    // A lock is given back by a message that nobody waits for, and which the barrier may overtake.
    let (began, mut naps) = (Instant::now(), 0);
    for which in 0..LOCKS {
        loop {
            let word: u64 = runtime.get_value(at(which as u32 % ranks, 64 * which))?;
            if word == 0 {
                break;
            }
            if began.elapsed() > GIVEN_BACK {
                return Err(format!("lock {which} is {word:#x} when nobody has it").into());
            }
            vgas_shm::cores::nap(&mut naps);
        }
    }
    Ok(())
}

fn refusals(runtime: &Runtime) -> Outcome {
    let me = runtime.rank().0;
    let expect = |what: &str, result: Result<(), vgas::Error>| match result {
        Err(error) if error.to_string().contains(what) => Ok(()),
        other => Err(format!("{other:?} instead of {what}")),
    };
    expect("multiple of 8", runtime.lock(at(0, 4)).map(drop))?;
    expect("outside", runtime.lock(at(0, BYTES)).map(drop))?;
    expect("tiered", runtime.lock(GlobalAddress::pinned(Rank(0), 0)).map(drop))?;
    let garbage = at(0, 128 + 64 * u64::from(me) + 4096 * 3);
    runtime.put_value(garbage, u64::MAX)?;
    expect("no lock", runtime.lock(garbage).map(drop))?;
    // Once more, by way of the service alone.
    expect("no lock", runtime.try_lock_shared(garbage).map(drop))?;
    // A thread that waits for itself.
    let own = at(me, 32768);
    let guard = runtime.lock(own)?;
    expect("would never end", runtime.lock(own).map(drop))?;
    if runtime.try_lock(own)?.is_some() {
        return Err("a lock was had twice".into());
    }
    drop(guard);
    drop(runtime.lock(own)?);
    Ok(())
}

/// Goal: who panics with a lock is named to all who come after, until somebody says that all is well.
fn poison(runtime: &Runtime) -> Outcome {
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    let lock = at(ranks - 1, 65536);
    if me == 0 {
        std::panic::set_hook(Box::new(|_| ()));
        let guard = runtime.lock(lock)?;
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _guard = guard;
            panic!("in the middle");
        }));
        let _ = std::panic::take_hook();
        if panicked.is_ok() {
            return Err("nobody panicked".into());
        }
    }
    runtime.barrier()?;
    for shared in [false, true] {
        let result = if shared { runtime.lock_shared(lock).map(drop) } else { runtime.lock(lock).map(drop) };
        match result {
            Err(error) if error.to_string().contains("rank 0") && error.to_string().contains("panicked") => {}
            other => return Err(format!("{other:?} of a poisoned lock").into()),
        }
    }
    runtime.barrier()?;
    if me == ranks - 1 {
        runtime.clear_poison(lock)?;
    }
    runtime.barrier()?;
    drop(runtime.lock(lock)?);
    Ok(())
}

/// Goal: ranks that wait for each other in a circle do not wait for ever: one of them hears of all, the others go on.
fn circle(runtime: &Runtime) -> Outcome {
    let (me, ranks) = (runtime.rank().0, runtime.ranks());
    if ranks == 1 {
        return Ok(());
    }
    let lock = |rank: u32| at(rank % ranks, 131_072);
    let first = runtime.lock(lock(me))?;
    runtime.barrier()?;
    let second = runtime.lock(lock(me + 1));
    let victims = u64::from(second.is_err());
    match &second {
        Ok(_) => {}
        Err(error) => {
            let text = error.to_string();
            if !(0..ranks).all(|rank| text.contains(&format!("rank {rank} (thread"))) {
                return Err(format!("not all are named: {text}").into());
            }
        }
    }
    drop(second);
    drop(first);
    if runtime.all_reduce(victims, |a, b| a + b)? != 1 {
        return Err("not one rank was told".into());
    }
    Ok(())
}

/// Goal: each lock call acts on the word it was given, in every kind of segment, and on no other. Method: at the same offset of the
/// first segment lies a word of zeros, on a page that its node may write, which a call that loses the segment would find free
/// and change; and a word counts the writers that hold the lock.
fn segments(runtime: &Runtime) -> Outcome {
    let base = SegmentOptions::tiered(0).page_size(8 << 10);
    let kinds = [
        ("plain", base.clone()),
        ("relaxed", base.clone().relaxed(true)),
        ("home_only", base.clone().home_only(true)),
        ("in_place", base.clone().in_place(true)),
        ("streamed", base.clone().streamed(true)),
        ("one_address", base.clone().one_address(true)),
    ];
    let (me, ranks) = (runtime.rank(), runtime.ranks());
    const PLACE: u64 = 64;
    let first = |rank| GlobalAddress::tiered(rank, PLACE);
    let is_unchanged = || match runtime.get_value::<u64>(first(me))? {
        0 => Ok(()),
        word => Err(format!("the first segment's word has become {word:#x}").into()),
    };
    for (kind, options) in kinds {
        let segment = runtime.attach(&options.sized(64 << 10))?;
        runtime.put_value(first(me), 0u64)?;
        let guard = runtime.lock(segment.address(me, PLACE))?;
        is_unchanged()?;
        drop(guard);
        lock_calls(runtime, segment.address(me, PLACE)).map_err(|error| format!("{kind}, own: {error}"))?;
        runtime.barrier()?;
        let other = Rank((me.0 + 1) % ranks);
        lock_calls(runtime, segment.address(other, PLACE))
            .map_err(|error| format!("{kind}, of {other}: {error}"))?;
        runtime.barrier()?;
        contended(runtime, segment.address(Rank(0), PLACE), segment.address(Rank(0), 8 << 10))
            .map_err(|error| format!("{kind}, contended: {error}"))?;
        runtime.barrier()?;
        is_unchanged()?;
        segment.detach()?;
    }
    // Attached by one rank alone, and locked by all.
    let own = if me.0 == 0 { Some(runtime.attach(&base.sized(64 << 10).independent())?) } else { None };
    let number = own.as_ref().map_or(0, |own| u64::from(own.address(me, 0).segment.0));
    let number = runtime.all_reduce(number, u64::max)?;
    let segment = vgas::SegmentId(number as u16);
    let word = |offset| GlobalAddress { segment, ..GlobalAddress::tiered(Rank(0), offset) };
    if me.0 != 0 {
        runtime.open_remote(word(0))?;
    }
    runtime.put_value(first(me), 0u64)?;
    contended(runtime, word(PLACE), word(8 << 10)).map_err(|error| format!("own: {error}"))?;
    runtime.barrier()?;
    is_unchanged()
}

/// Goal: all calls work on this lock, which one thread of the job uses.
fn lock_calls(runtime: &Runtime, lock: GlobalAddress) -> Outcome {
    let refuse = |what: &str| Err(format!("{what} at {lock:?}").into());
    for _ in 0..2 {
        let guard = runtime.lock(lock)?;
        if guard.address() != lock {
            return refuse("a write guard names another lock");
        }
        if runtime.try_lock(lock)?.is_some() || runtime.try_lock_shared(lock)?.is_some() {
            return refuse("two have a lock");
        }
        drop(guard);
        let guard = runtime.lock_shared(lock)?;
        if guard.address() != lock {
            return refuse("a read guard names another lock");
        }
        let Some(second) = runtime.try_lock_shared(lock)? else { return refuse("two readers") };
        if runtime.try_lock(lock)?.is_some() {
            return refuse("a writer beside readers");
        }
        drop((guard, second));
        let Some(guard) = runtime.try_lock(lock)? else { return refuse("a free lock is refused") };
        // Given back by hand, as by programs that cannot keep guards.
        std::mem::forget(guard);
        runtime.unlock(lock, true)?;
        std::mem::forget(runtime.lock_shared(lock)?);
        runtime.unlock(lock, false)?;
    }
    let guard = runtime.lock(lock)?;
    std::panic::set_hook(Box::new(|_| ()));
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("in the middle");
    }));
    let _ = std::panic::take_hook();
    let poisoned = runtime.lock(lock).map(drop);
    if panicked.is_ok() || !poisoned.is_err_and(|error| error.to_string().contains("panicked")) {
        return refuse("a lock is not poisoned");
    }
    runtime.clear_poison(lock)?;
    drop(runtime.lock(lock)?);
    Ok(())
}

/// Goal: of all ranks, one at a time has the lock. `counter`: a word on another page, which they change under it.
fn contended(runtime: &Runtime, lock: GlobalAddress, counter: GlobalAddress) -> Outcome {
    const ROUNDS: u64 = 20;
    runtime.barrier()?;
    for _ in 0..ROUNDS {
        let guard = runtime.lock(lock)?;
        let sum: u64 = runtime.get_value(counter)?;
        runtime.put_value(counter, sum + 1)?;
        drop(guard);
        drop(runtime.lock_shared(lock)?);
    }
    runtime.barrier()?;
    let sum: u64 = runtime.get_value(counter)?;
    match sum == ROUNDS * u64::from(runtime.ranks()) {
        true => Ok(()),
        false => Err(format!("{sum} of {ROUNDS} times {}", runtime.ranks()).into()),
    }
}
