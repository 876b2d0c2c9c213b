//! What ranks hear who wait for others when one of them is killed: in locks, channels, barriers, conditions, tasks and scopes.

use crate::scenarios::{ensure, reaches};
use crate::{HEAP, NOTICED_WITHIN, Outcome, replicas, run_job};
use rustix::process::{Signal, getpid, kill_process};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;
use vgas::{Arrived, NodeId, Rank, Runtime, Token};
use vgas_objects::sync::{
    DArc, DAtomicU64, DBarrier, DCondvar, DMutex, DRwLock, LockError, Receiver, Sender, channel,
};
use vgas_objects::{
    DBox, HeapOptions, Objects, Portable, RunOptions, Shareable, TaskError, rank, scope, spawn_to, task,
};

pub const NAME: &str = "losses";

type Alone = fn() -> Outcome;
type Part = fn(Runtime, u64) -> Outcome;

const REPLICATED: HeapOptions = HeapOptions { replicas: 1, ..HEAP };

const PARTS: &[(&str, Part)] = &[
    ("losses_survived", |runtime, seed| lose(runtime, &REPLICATED, seed)),
    ("losses_end", |runtime, seed| lose(runtime, &HEAP, seed)),
];

/// Jobs that begin the runtime themselves: one needs handlers of its own.
pub const OTHERS: &[(&str, Alone)] = &[("losses_leave", leaves), ("losses_apart", apart)];

pub fn part(name: &str) -> Option<Part> {
    PARTS.iter().find(|(other, _)| *other == name).map(|(_, part)| *part)
}

/// The node that is lost, which has the rank of its number.
const LOST: u32 = 1;

/// What is waited for, and words of what is heard of it where the job goes on.
const WAITS: &[(&str, &[&str])] = &[
    ("lock held there", &["who had the lock", "node 1, which is lost"]),
    ("lock there", &["DMutex<u64>", "rank 1 on node 1", "losses.rs", "node 1 is lost"]),
    ("rwlock there", &["DMutex<u64>", "rank 1 on node 1", "losses.rs", "node 1 is lost"]),
    ("with there", &["DMutex<u64>", "rank 1 on node 1", "losses.rs", "node 1 is lost"]),
    ("with killed within", &["DMutex<u64>", "rank 1 on node 1", "losses.rs", "node 1 is lost"]),
    ("number there", &["DAtomic<u64>", "rank 1 on node 1", "losses.rs", "node 1 is lost"]),
    ("counted value there", &["DArc<u64>", "rank 1 on node 1", "losses.rs", "node 1 is lost"]),
    ("barrier", &["DBarrier", "rank 0 on node 0", "losses.rs", "node 1 is lost"]),
    ("condition", &["DCondvar", "rank 0 on node 0", "losses.rs", "node 1 is lost"]),
    ("receiver there", &["Receiver<u64>", "losses.rs", "node 1 is lost"]),
    ("sender there", &["Sender<u64>", "losses.rs", "node 1 is lost"]),
    ("channel there", &["Receiver<u64>", "rank 1 on node 1", "losses.rs", "node 1 is lost"]),
];

/// Goal: who waits for a lost rank, in whatever way, hears within ten seconds what is lost, by type, place and call, where the job goes on;
/// else the job ends within that time, and says who was killed. Method: a rank is killed that has or is to do what tasks of all others wait for; what each hears, it writes into a file.
pub fn sequence(seed: u64) -> Result<(), String> {
    for name in ["losses_survived", "losses_end"] {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let survives = name == "losses_survived";
        let mut more = vec![("nvm.directory", folder.path().display().to_string())];
        if survives {
            more.extend([("run.survive", "on".to_owned()), ("conduit", "tcp".to_owned())]);
        }
        let began = Instant::now();
        let ended = run_job(name, seed, 3, 3, &more);
        match &ended {
            Ok(()) if survives => {}
            Err(why) if !survives && why.contains("killed by signal 9") => {}
            _ => return Err(format!("{name} ended as {ended:?}")),
        }
        let took = began.elapsed();
        if took > NOTICED_WITHIN {
            return Err(format!("{name} has taken {took:?}"));
        }
        replicas::left_behind(folder.path())?;
        if survives {
            heard(folder.path()).map_err(|why| format!("{name}: {why}"))?;
        }
        println!("        {name} in {took:.1?}");
    }
    let more = [("run.survive", "on".to_owned()), ("conduit", "tcp".to_owned())];
    OTHERS
        .iter()
        .try_for_each(|(name, _)| run_job(name, seed, 3, 3, &more).map_err(|why| format!("{name}: {why}")))
}

/// Goal: a rank that leaves since a node is lost answers others until they leave as well. Method: the last rank kills itself; the
/// middle one leaves as soon as it hears of it, and says so to the first, which asks it something again and again before it leaves too.
fn leaves() -> Outcome {
    const LEAVES: u8 = 128;
    const ASKED: u8 = 129;
    const ANSWERED: u8 = 130;
    const QUESTIONS: u32 = 50;
    let (leaves, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (is_left, is_answered) = (leaves.clone(), answers.clone());
    let runtime = Runtime::builder()
        .handler(LEAVES, move |_, _, _| is_left.store(true, Ordering::SeqCst))
        .handler(ASKED, |token, _, _| token.check(token.reply_short(ANSWERED, &[])))
        .handler(ANSWERED, move |_, _, _| {
            is_answered.fetch_add(1, Ordering::SeqCst);
        })
        .init()?;
    let met = runtime.barrier();
    if runtime.rank() == Rank(2) {
        met?;
        kill_process(getpid(), Signal::KILL)?;
    }
    // The others may hear of the loss before they hear that all are here.
    runtime.wait_until(|| !runtime.lost_nodes().is_empty())?;
    if runtime.rank() == Rank(1) {
        runtime.request(Rank(0), LEAVES, &[], &[])?;
        return Ok(runtime.finalize()?);
    }
    runtime.wait_until(|| leaves.load(Ordering::SeqCst))?;
    for asked in 0..QUESTIONS {
        runtime.request(Rank(1), ASKED, &[], &[])?;
        runtime.wait_until(|| answers.load(Ordering::SeqCst) > asked)?;
    }
    Ok(runtime.finalize()?)
}

/// Goal: who takes part in something together that another does not, since that has heard of a loss, hears of it too, whatever the other
/// does. Method: the last rank kills itself; the first one attaches memory, and says so when that has failed; the middle one waits for that, and leaves.
fn apart() -> Outcome {
    const HAS_FAILED: u8 = 128;
    let has_failed = Arc::new(AtomicBool::new(false));
    let hears = has_failed.clone();
    let hear = move |_: &Token<'_>, _: &[u32], _: Arrived<'_>| hears.store(true, Ordering::SeqCst);
    let runtime = Runtime::builder().handler(HAS_FAILED, hear).init()?;
    let met = runtime.barrier();
    match runtime.rank() {
        Rank(0) => {
            let attached = runtime.attach(&vgas::SegmentOptions::tiered(1 << 20));
            let why = attached.map_or_else(|why| why.to_string(), |_| "nothing".into());
            ensure(why.contains("node 2 is lost"), || format!("what was heard of the loss: {why}"))?;
            runtime.request(Rank(1), HAS_FAILED, &[], &[])?;
        }
        Rank(1) => runtime.wait_until(|| has_failed.load(Ordering::SeqCst))?,
        _ => {
            met?;
            kill_process(getpid(), Signal::KILL)?;
        }
    }
    Ok(runtime.finalize()?)
}

/// Whether each rank has heard what it should.
fn heard(folder: &Path) -> Result<(), String> {
    for (what, words) in WAITS {
        for rank in [0, 2] {
            let said = std::fs::read_to_string(folder.join(format!("said {rank} {what}")));
            let said = said.map_err(|why| format!("rank {rank} has not heard of the {what}: {why}"))?;
            let is_named = words.iter().all(|word| said.contains(word));
            if !is_named {
                return Err(format!("of the {what}, rank {rank} has heard: {said}"));
            }
        }
    }
    Ok(())
}

/// What tasks wait for.
#[derive(Portable, Shareable)]
struct Things {
    /// Tasks that are where they are to be when the rank is killed.
    ready: DAtomicU64,
    held_there: DMutex<u64>,
    lock_there: DMutex<u64>,
    rwlock_there: DRwLock<u64>,
    with_there: DMutex<u64>,
    dies_there: DMutex<u64>,
    number_there: DAtomicU64,
    counted_there: DArc<u64>,
    barrier: DBarrier,
    turn: DMutex<u64>,
    condition: DCondvar,
    sender: Sender<u64>,
}

impl Things {
    fn is_ready(&self) {
        let _ = self.ready.fetch_add(1);
    }

    /// When the rank is gone, for what does not wait by itself.
    fn wait_for_loss(&self) {
        self.is_ready();
        let is_lost = vgas_testing::until(NOTICED_WITHIN, || self.number_there.load().err());
        assert!(is_lost.is_some(), "nothing was lost");
    }
}

/// In the rank that is killed: stays as it is.
fn stay(things: &Things) -> ! {
    things.is_ready();
    loop {
        std::thread::park();
    }
}

fn said(what: u32, error: Result<(), impl std::fmt::Display>) {
    let folder = std::env::var("LOSSES_FOLDER").unwrap_or_default();
    let what = WAITS[what as usize].0;
    let me = rank().map_or(u32::MAX, |rank| rank.0);
    let text = error.err().map_or_else(|| "nothing".into(), |error| error.to_string());
    let _ = std::fs::write(Path::new(&folder).join(format!("said {me} {what}")), text);
}

/// A task of a rank that waits.
fn wait(things: &Things, what: u32) {
    let lock_error = |ended: Result<(), LockError>| said(what, ended);
    match what {
        0 => {
            things.is_ready();
            lock_error(things.held_there.lock().map(drop));
        }
        1 => {
            things.is_ready();
            lock_error(things.lock_there.lock().map(drop));
        }
        2 => {
            things.is_ready();
            lock_error(things.rwlock_there.read().map(drop));
        }
        3 => {
            things.is_ready();
            lock_error(things.with_there.with((), task!(|of: &mut u64, _n: ()| -> () { *of += 1 })));
        }
        // Behind who has it, and dies with it.
        4 => {
            things.is_ready();
            lock_error(things.dies_there.with((), task!(|of: &mut u64, _n: ()| -> () { *of += 1 })));
        }
        5 => {
            things.wait_for_loss();
            said(what, things.number_there.fetch_add(1).map(drop));
        }
        6 => {
            things.wait_for_loss();
            // What this rank has drawn it gives away without asking.
            let mut all = Vec::new();
            let ended = loop {
                match DArc::try_clone(&things.counted_there) {
                    Ok(one) => all.push(one),
                    Err(error) => break Err(error),
                }
            };
            said(what, ended);
        }
        7 => {
            things.is_ready();
            said(what, things.barrier.try_wait().map(drop));
        }
        8 => {
            let ended = things.turn.lock().and_then(|turn| {
                things.is_ready();
                things.condition.wait_while(turn, |turn| *turn < 5).map(drop)
            });
            lock_error(ended);
        }
        _ => {
            things.is_ready();
            let ended = loop {
                match things.sender.send_checked(1) {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            said(what, ended);
        }
    }
}

/// A task that receives what never comes.
fn receive(things: &Things, what: u32, receiver: &Receiver<u64>) {
    things.is_ready();
    let ended = loop {
        match receiver.recv_checked() {
            Ok(Some(_)) => {}
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    said(what, ended);
}

fn lose(runtime: Runtime, options: &HeapOptions, seed: u64) -> Outcome {
    replicas::note_pids(&runtime)?;
    let folder = runtime.settings().nvm.directory_path();
    // SAFETY: no other thread of this process uses its environment yet.
    unsafe { std::env::set_var("LOSSES_FOLDER", &folder) };
    std::panic::set_hook(Box::new(|_| {}));
    let survives = runtime.settings().run.survive;
    let objects = Objects::attach(&runtime, options)?;
    let options = RunOptions { workers: 16, ..RunOptions::default() };
    objects.run(&options, || wait_for_all(survives, seed))?.unwrap_or(Ok(()))?;
    ensure(objects.lost_nodes() == [NodeId(LOST)], || "nobody was lost".into())?;
    Ok(objects.finalize()?)
}

type There = ((DMutex<u64>, DRwLock<u64>), ((DMutex<u64>, DMutex<u64>), (DAtomicU64, DArc<u64>)));
type Ends = (Sender<u64>, Receiver<u64>);

/// On the first rank.
fn wait_for_all(survives: bool, seed: u64) -> Outcome {
    let there = Rank(LOST);
    let make = task!(|_n: ()| -> There {
        let locks = (DMutex::new(1), DRwLock::new(1));
        (locks, ((DMutex::new(1), DMutex::new(1)), (DAtomicU64::new(1), DArc::new(1))))
    });
    let ((lock_there, rwlock_there), ((with_there, dies_there), (number_there, counted_there))) =
        spawn_to(there, make, ()).join()?;
    let (sender, receiver) = channel(4);
    let things = Things {
        ready: DAtomicU64::new(0),
        held_there: DMutex::new(1),
        lock_there,
        rwlock_there,
        with_there,
        dies_there,
        number_there,
        counted_there,
        barrier: DBarrier::new(3),
        turn: DMutex::new(0),
        condition: DCondvar::new(),
        sender,
    };
    let mut lent = DBox::new([1u64; 50]);
    let ended = scope(|scope| {
        let set_up = || -> Result<Option<TaskError>, Box<dyn std::error::Error>> {
            // What the lost rank has, each in a task that stays.
            let hold = task!(|things: &Things, what: u32| -> () {
                // Forgotten, a guard has its lock for ever.
                match what {
                    0 => std::mem::forget(things.held_there.lock()),
                    1 => std::mem::forget(things.lock_there.lock()),
                    2 => std::mem::forget(things.rwlock_there.write()),
                    _ => std::mem::forget(things.with_there.lock()),
                }
                stay(things)
            });
            let mut parties = 4;
            (0..4).for_each(|what| std::mem::forget(scope.spawn_to(there, hold, &things, what)));
            let take = task!(|things: &Things, receiver: Receiver<u64>| -> () {
                let _ = receiver.recv();
                stay(things)
            });
            things.sender.send(1)?;
            std::mem::forget(scope.spawn_to(there, take, &things, receiver));
            parties += 1;
            let mut written = None;
            if survives {
                let write = task!(|(things, lent): (&Things, &mut DBox<[u64; 50]>), _n: ()| -> () {
                    lent[7] = 2;
                    stay(things)
                });
                written = Some(scope.spawn_to(there, write, (&things, &mut lent), ()));
                parties += 1;
            }
            let give = task!(|things: &Things, _sender: Sender<u64>| -> () { stay(things) });
            let mut receivers = Vec::new();
            for to in [0, 2] {
                let (sender, receiver) = channel::<u64>(4);
                std::mem::forget(scope.spawn_to(there, give, &things, sender));
                let (sender, receiver_there) =
                    spawn_to(there, task!(|_n: ()| -> Ends { channel(4) }), ()).join()?;
                parties += 1;
                receivers.push((to, receiver, receiver_there, sender));
            }
            // What is done with a lock there: the rank is killed within that, when it is told to.
            let (die, is_told) = channel::<u64>(1);
            let (begins, has_begun) = channel::<u64>(1);
            let dies = task!(|things: &Things, ends: Ends| -> () {
                let within = task!(|_of: &mut u64, (begins, is_told): Ends| -> () {
                    let _ = begins.send(1);
                    let _ = is_told.recv();
                    let _ = kill_process(getpid(), Signal::KILL);
                });
                said(4, things.dies_there.with(ends, within));
            });
            std::mem::forget(scope.spawn_to(Rank(0), dies, &things, (begins, is_told)));
            has_begun.recv_timeout(NOTICED_WITHIN)?;
            // They have it before others ask.
            reaches(&things.ready, parties)?;
            let waits = task!(|things: &Things, what: u32| -> () { wait(things, what) });
            let receives = task!(|things: &Things, (receiver, what): (Receiver<u64>, u32)| -> () {
                receive(things, what, &receiver)
            });
            let mut kept = Vec::new();
            for (to, receiver, receiver_there, sender) in receivers {
                kept.push(sender);
                std::mem::forget(scope.spawn_to(Rank(to), receives, &things, (receiver, 10)));
                std::mem::forget(scope.spawn_to(Rank(to), receives, &things, (receiver_there, 11)));
                // On the first rank, who does what kills hears of it.
                let all = (0..10).filter(|what| (to, *what) != (0, 4));
                parties += 2 + all.clone().count() as u64;
                all.for_each(|what| std::mem::forget(scope.spawn_to(Rank(to), waits, &things, what)));
            }
            reaches(&things.ready, parties)?;
            // A moment in which some wait already and others are about to.
            std::thread::sleep(std::time::Duration::from_micros(seed % 20_000));
            die.send(1)?;
            // Who would have received it is gone.
            std::mem::forget((die, has_begun));
            Ok(written.and_then(|written| written.join().err()))
        };
        // Tasks that stay would be waited for.
        set_up().unwrap_or_else(|why| {
            eprintln!("it was not set up: {why}");
            std::process::exit(1)
        })
    });
    ensure(!survives || matches!(ended, Some(TaskError::Lost(NodeId(LOST)))), || {
        format!("the task that was lent to has ended with {ended:?}")
    })?;
    ensure(*lent == [1; 50], || "what was lent is not as it was".into())?;
    std::mem::forget(things);
    Ok(())
}
