//! Heaps with replicas, and what is left of them when a node is killed at some moment.

use crate::scenarios::ensure;
use crate::{HEAP, Outcome, run_job};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use vgas::{NodeId, Rank, Runtime};
use vgas_objects::sync::{DArc, DMutex, LockError, Receiver, Sender, channel};
use vgas_objects::{
    DBox, DMap, DString, DVec, HeapOptions, ObjectError, Objects, Portable, RunOptions, Shareable, TaskError,
    scope, spawn, spawn_to, task,
};

type Part = fn(Runtime, u64) -> Outcome;

const PARTS: &[(&str, Part)] = &[
    ("replica_rank", |runtime, seed| lose(runtime, seed, 1, &[Victim::Rank])),
    ("replica_daemon", |runtime, seed| lose(runtime, seed, 1, &[Victim::Daemon])),
    ("replica_rank_daemon", |runtime, seed| lose(runtime, seed, 1, &[Victim::Other, Victim::Daemon])),
    ("replica_daemon_rank", |runtime, seed| lose(runtime, seed, 1, &[Victim::Daemon, Victim::Rank])),
    ("replica_first_rank", |runtime, seed| lose(runtime, seed, 0, &[Victim::Rank])),
    ("replica_first_daemon", |runtime, seed| lose(runtime, seed, 0, &[Victim::Daemon])),
    ("replica_last", |runtime, seed| lose(runtime, seed, 2, &[Victim::Other, Victim::Daemon])),
    ("replica_main", main_dies),
    ("replica_main_ends", main_dies_at_the_end),
    ("replica_unhinted", unhinted),
    ("replica_channel", lost_channel),
    ("replica_one_node", one_node),
    ("replica_late", late),
    ("replica_tasks", tasks),
    ("replica_spread", spread),
    ("replica_given", given),
    ("replica_given_lent", given_lent),
    ("replica_stopped", stopped),
    ("replica_two_nodes", two_nodes),
    ("replica_shared_pages", shared_pages),
    ("replica_none", none),
];

pub fn part(name: &str) -> Option<Part> {
    PARTS.iter().find(|(other, _)| *other == name).map(|(_, part)| *part)
}

pub const NAME: &str = "replicas";

pub const REPLICATED: HeapOptions = HeapOptions { replicas: 1, ..HEAP };

/// Fail-over may take this long, also beside programs that compute.
const USED_AGAIN_WITHIN: Duration = Duration::from_secs(5);

/// Goal: a node that is killed, in any way and at any moment, takes nothing with it that others had seen; without replicas what is lost
/// is named; a node that is stopped is not lost; the loss of a second one ends the job, and so does that of who runs `main`; nothing is left behind.
/// Method: jobs of which a node kills itself while a rank of another one lends its objects around, and then looks at all of them.
pub fn sequence(seed: u64) -> Result<(), String> {
    type Ended = (Result<(), String>, Duration);
    let job = |name: &str, seed: u64, ranks: u32, survive: bool| -> Result<Ended, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut more = vec![("nvm.directory", folder.path().display().to_string())];
        if survive {
            more.extend([("run.survive", "on".to_owned()), ("conduit", "tcp".to_owned())]);
        }
        let began = Instant::now();
        let ended = run_job(name, seed, ranks, 3, &more);
        let took = began.elapsed();
        left_behind(folder.path())?;
        println!("        {name} ({ranks} ranks, 3 nodes, seed {seed}) in {took:.1?}");
        Ok((ended, took))
    };
    let good = |name: &str, seed, ranks| match job(name, seed, ranks, true)? {
        (Ok(()), _) => Ok(()),
        (Err(why), _) => Err(format!("{name}, {ranks} ranks, seed {seed}: {why}")),
    };
    let nodes = [
        "replica_rank",
        "replica_daemon",
        "replica_rank_daemon",
        "replica_daemon_rank",
        "replica_first_rank",
        "replica_first_daemon",
        "replica_last",
    ];
    for (at, name) in nodes.into_iter().enumerate() {
        for (more, ranks) in [3, 6].into_iter().enumerate() {
            good(name, seed.wrapping_add((2 * at + more) as u64), ranks)?;
        }
    }
    good("replica_tasks", seed, 3)?;
    good("replica_tasks", seed.wrapping_add(1), 6)?;
    good("replica_spread", seed, 3)?;
    good("replica_spread", seed.wrapping_add(1), 6)?;
    good("replica_given", seed, 3)?;
    good("replica_given_lent", seed, 3)?;
    good("replica_stopped", seed, 3)?;
    good("replica_unhinted", seed, 3)?;
    good("replica_channel", seed, 3)?;
    good("replica_none", seed, 3)?;
    let bad = |name: &str, survive, words: &str| match job(name, seed, 3, survive)? {
        (Err(why), took) if why.contains(words) && took < crate::NOTICED_WITHIN => Ok(()),
        (ended, took) => Err(format!("{name} ended as {ended:?} after {took:.1?}")),
    };
    bad("replica_two_nodes", true, "was lost before, and a job goes on without one node only")?;
    bad("replica_main", true, "killed by signal 9")?;
    bad("replica_main_ends", true, "killed by signal 9")?;
    bad("replica_late", true, "killed by signal 9")?;
    match run_job("replica_one_node", seed, 3, 1, &[("run.survive", "on".to_owned())]) {
        Err(why) if why.contains("killed by signal 9") => {}
        ended => return Err(format!("replica_one_node ended as {ended:?}")),
    }
    bad("replica_shared_pages", true, "killed by signal 9")?;
    bad("replica_none", false, "killed by signal 9")?;
    bad("replica_rank", false, "exit status 1")
}

/// The processes whose numbers ranks have noted in a folder are gone.
pub fn left_behind(folder: &Path) -> Result<(), String> {
    for entry in std::fs::read_dir(folder).map_err(|error| error.to_string())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix("pid-").and_then(|pid| pid.parse().ok()) else { continue };
        // One that has ended and was not waited for yet is init's.
        let is_gone = || matches!(vgas_testing::state(pid), None | Some('Z')).then_some(());
        vgas_testing::until(crate::NOTICED_WITHIN, is_gone)
            .ok_or_else(|| format!("process {pid} is left behind"))?;
    }
    Ok(())
}

pub fn note_pids(runtime: &Runtime) -> Outcome {
    let folder = runtime.settings().nvm.directory_path();
    for pid in std::iter::once(getpid()).chain(getppid()) {
        std::fs::write(folder.join(format!("pid-{}", pid.as_raw_nonzero())), "")?;
    }
    Ok(())
}

#[derive(Portable, Shareable)]
pub struct Thing {
    version: u64,
    numbers: DVec<u64>,
    text: DString,
    chain: Option<DBox<Link>>,
}

#[derive(Portable, Shareable)]
struct Link {
    number: u64,
    next: Option<DBox<Link>>,
}

/// What a thing is known to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    version: u64,
    numbers: Vec<u64>,
    text: String,
    chain: Vec<u64>,
}

impl Known {
    pub fn of(thing: &Thing) -> Self {
        let chain = std::iter::successors(thing.chain.as_deref(), |link| link.next.as_deref());
        Self {
            version: thing.version,
            numbers: thing.numbers.to_vec(),
            text: thing.text.to_string(),
            chain: chain.map(|link| link.number).collect(),
        }
    }

    /// Step `version` of a thing.
    pub fn change(&mut self, version: u64) {
        self.version = version;
        match version % 4 {
            0 => self.numbers.extend((0..version % 90).map(|at| at * version)),
            1 => self.numbers.iter_mut().for_each(|number| *number ^= version),
            2 => self.numbers.truncate(self.numbers.len() / 2),
            _ => {}
        }
        self.text = format!("version {version}");
        match version % 3 {
            0 => self.chain.insert(0, version),
            1 => drop((!self.chain.is_empty()).then(|| self.chain.remove(0))),
            _ => self.chain.iter_mut().for_each(|number| *number += version),
        }
    }
}

pub fn new_thing() -> Thing {
    Thing { version: 0, numbers: DVec::new(), text: DString::new(), chain: None }
}

/// The same step of the thing itself.
pub fn change(thing: &mut Thing, version: u64) {
    thing.version = version;
    match version % 4 {
        0 => thing.numbers.extend((0..version % 90).map(|at| at * version)),
        1 => thing.numbers.as_mut_slice().iter_mut().for_each(|number| *number ^= version),
        2 => thing.numbers.truncate(thing.numbers.len() / 2),
        _ => {}
    }
    thing.text = format!("version {version}").as_str().into();
    match version % 3 {
        0 => thing.chain = Some(DBox::new(Link { number: version, next: thing.chain.take() })),
        1 => thing.chain = thing.chain.take().and_then(|first| first.into_inner().next),
        _ => {
            let mut next = thing.chain.as_deref_mut();
            while let Some(link) = next {
                link.number += version;
                next = link.next.as_deref_mut();
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    /// The rank that kills.
    Rank,
    /// The other rank of its node, if there is one, else itself.
    Other,
    Daemon,
}

const THINGS: usize = 12;

/// Starts to kill this rank's node, at some moment soon.
fn kill_soon(runtime: &Runtime, seed: u64, victims: &'static [Victim]) -> Outcome {
    let folder = runtime.settings().nvm.directory_path();
    let (daemon, own) = (getppid().ok_or("a rank without a daemon")?, getpid());
    let others = std::fs::read_to_string(folder.join("second"))?;
    let other = others.trim().parse().ok().and_then(Pid::from_raw).unwrap_or(own);
    std::thread::spawn(move || {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        std::thread::sleep(Duration::from_micros(random.random_range(500..250_000)));
        let _ = std::fs::write(folder.join("killed"), nanoseconds().to_string());
        for victim in victims {
            let pid = match victim {
                Victim::Rank => own,
                Victim::Other => other,
                Victim::Daemon => daemon,
            };
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    Ok(())
}

fn nanoseconds() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}

/// Those that this rank owns, and what all are known to be.
type Things = (Vec<DBox<Thing>>, Vec<Known>);

/// Things that each rank has made, and one owns.
fn things(objects: &Objects, owner: Rank) -> Result<Things, Box<dyn std::error::Error>> {
    let mut all = Vec::new();
    for at in 0..THINGS {
        let maker = Rank(at as u32 % objects.ranks());
        let make = || DBox::new(new_thing());
        all.extend(objects.hand(maker, owner, (objects.rank() == maker).then(make))?);
    }
    Ok((all, vec![Known::default(); THINGS]))
}

/// A rank lends its things around, until a node is lost; then it has them all, as they were, and goes on. That node's backup is on neither.
fn lose(runtime: Runtime, seed: u64, lost: u32, victims: &'static [Victim]) -> Outcome {
    note_pids(&runtime)?;
    let (me, layout) = (runtime.rank(), runtime.layout().clone());
    let folder = runtime.settings().nvm.directory_path();
    let lost = NodeId(lost);
    let doomed = layout.ranks_of(lost);
    let owner = Rank(layout.ranks_of(NodeId((lost.0 + 2) % layout.nodes())).start);
    if me.0 == doomed.end - 1 {
        let second = if doomed.len() > 1 { getpid().as_raw_nonzero().to_string() } else { String::new() };
        std::fs::write(folder.join("second"), second)?;
    }
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    let (mut owned, mut known) = things(&objects, owner)?;
    meet_before(&objects, Rank(doomed.start))?;
    if me.0 == doomed.start {
        kill_soon(crate::job(&objects), seed, victims)?;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut last_good = Instant::now();
    let error = loop {
        let version = known.iter().map(|known| known.version).max().unwrap_or(0) + 1;
        let (at, to) = (random.random_range(0..THINGS), Rank(random.random_range(0..objects.ranks())));
        let lent = objects.lend_mut(owner, to, owned.get_mut(at), |mut thing| change(&mut thing, version));
        match lent {
            Ok(_) => known[at].change(version),
            Err(error) => break error,
        }
        last_good = Instant::now();
        if version % 7 == 0 {
            let expected = &known[at];
            match objects.lend(owner, owned.get(at), |thing| Known::of(thing) == *expected) {
                Ok(is_same) => ensure(is_same, || format!("thing {at} is not as it was left"))?,
                Err(error) => break error,
            }
        }
    };
    ensure(objects.lost_nodes() == [lost], || format!("it ended with {error}"))?;
    if me == owner {
        let at_lost =
            owned.iter().filter(|thing| doomed.contains(&DBox::rank(thing).map_or(0, |rank| rank.0)));
        let at_lost = at_lost.count();
        for (at, (thing, known)) in owned.iter().zip(&known).enumerate() {
            let is = Known::of(thing);
            if at == 0 {
                let killed: u128 = std::fs::read_to_string(folder.join("killed"))?.trim().parse()?;
                let took = Duration::from_nanos((nanoseconds() - killed) as u64);
                let steps = known.version;
                println!(
                    "        fail-over: {took:.1?} after the kill, {:.1?} after the last step ({steps} steps, {at_lost} of \
                     {THINGS} things were there)",
                    last_good.elapsed()
                );
                ensure(took < USED_AGAIN_WITHIN, || format!("used again after {took:?}"))?;
            }
            ensure(is == *known, || format!("thing {at} is {is:?}, and was {known:?}"))?;
        }
        // It goes on: what was there is moved, grown, freed.
        for (thing, known) in owned.iter_mut().zip(&mut known) {
            for version in known.version + 1..known.version + 14 {
                change(thing, version);
                known.change(version);
            }
            ensure(DBox::rank(thing) == Some(owner), || "it is not here".into())?;
        }
        let others = owned.split_off(THINGS / 2);
        drop(others);
        let more: Vec<DBox<u64>> = (0..2000).map(DBox::new).collect();
        ensure(more.iter().enumerate().all(|(at, number)| **number == at as u64), || "new ones".into())?;
        for (thing, known) in owned.iter().zip(&known) {
            ensure(Known::of(thing) == *known, || "it is not what was written".into())?;
        }
        objects.replicate()?;
    }
    ensure(matches!(objects.barrier(), Err(ObjectError::Job(_))), || "a barrier of all".into())?;
    Ok(objects.finalize()?)
}

/// A thing that was made elsewhere.
fn made(on: Rank) -> Result<DBox<Thing>, TaskError> {
    let task = task!(|_n: ()| -> DBox<Thing> { DBox::new(new_thing()) });
    spawn_to(on, task, ()).join()
}

/// A step that is taken elsewhere.
fn step(to: Rank, thing: &mut DBox<Thing>, version: u64) -> Result<(), TaskError> {
    scope(|scope| {
        let task = task!(|thing: &mut DBox<Thing>, version: u64| -> () { change(thing, version) });
        scope.spawn_to(to, task, thing, version).join()
    })
}

/// A step that kills the node where it is taken, holding a lock.
fn die(on: Rank, thing: &mut DBox<Thing>, lock: &DMutex<u64>, version: u64) -> Result<(), TaskError> {
    scope(|scope| {
        let task = task!(|(thing, lock): (&mut DBox<Thing>, &DMutex<u64>), version: u64| -> () {
            let mut guard = lock.lock().expect("nobody has it");
            *guard = 9;
            change(thing, version);
            let _ = getppid().map(|daemon| kill_process(daemon, Signal::KILL));
            // The kernel ends this process next; the lock is not given back until then.
            std::thread::park_timeout(crate::NOTICED_WITHIN);
        });
        scope.spawn_to(on, task, (thing, lock), version).join()
    })
}

/// Goal: a task on a node that is lost is reported as lost, what was lent to it is as before, a lock that it had is poisoned and has its
/// value; tasks that have ended are not undone, and others go on. Method: a task of rank 1 kills its daemon, holding all that.
fn tasks(runtime: Runtime, seed: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    let ranks = objects.ranks();
    let doomed = crate::job(&objects).layout().ranks_of(NodeId(1));
    let main = || -> Outcome {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut owned = Vec::new();
        for at in 0..THINGS {
            owned.push(made(Rank(at as u32 % ranks))?);
        }
        let mut known = vec![Known::default(); THINGS];
        for version in 1..60 {
            let (at, to) = (random.random_range(0..THINGS), Rank(random.random_range(0..ranks)));
            step(to, &mut owned[at], version)?;
            known[at].change(version);
        }
        let lock = DMutex::new(5u64);
        let at = random.random_range(0..THINGS);
        let ended = die(Rank(doomed.start), &mut owned[at], &lock, 60);
        ensure(matches!(ended, Err(TaskError::Lost(NodeId(1)))), || format!("it ended as {ended:?}"))?;
        for (at, (thing, known)) in owned.iter().zip(&known).enumerate() {
            let is = Known::of(thing);
            ensure(is == *known, || format!("thing {at} is {is:?}, and was {known:?}"))?;
        }
        ensure(matches!(lock.lock(), Err(LockError::Left { node: NodeId(1), .. })), || {
            "the lock is not poisoned".into()
        })?;
        lock.clear_poison()?;
        let value = *lock.lock()?;
        ensure(value == 5, || format!("the lock has {value}"))?;
        let late = made(Rank(doomed.start)).map(drop);
        ensure(matches!(late, Err(TaskError::Lost(NodeId(1)))), || format!("it ended as {late:?}"))?;
        for version in 61..90 {
            let (at, to) = (random.random_range(0..THINGS), Rank(random.random_range(0..ranks)));
            let to = if doomed.contains(&to.0) { Rank(0) } else { to };
            step(to, &mut owned[at], version)?;
            known[at].change(version);
        }
        let all = (0..50u64).map(|number| spawn(task!(|number: u64| -> u64 { 2 * number }), number));
        let all: Vec<_> = all.collect();
        let sum = all.into_iter().map(|one| one.join()).sum::<Result<u64, _>>()?;
        ensure(sum == 49 * 50, || format!("{sum}"))?;
        for (thing, known) in owned.iter().zip(&known) {
            ensure(Known::of(thing) == *known, || "it is not what was written".into())?;
        }
        Ok(())
    };
    if let Some(ended) = objects.run(&RunOptions::default(), main)? {
        ended?;
    }
    Ok(objects.finalize()?)
}

/// Says how many were dropped in this process.
#[derive(Portable, Shareable)]
struct Counted(u64);

static DROPPED: AtomicU64 = AtomicU64::new(0);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

type Slot = Option<DBox<Counted>>;
type SharedSlot = DArc<DMutex<Slot>>;

/// Kills the node of this rank, and waits for that.
fn die_here() {
    let _ = getppid().map(|daemon| kill_process(daemon, Signal::KILL));
    std::thread::park_timeout(crate::NOTICED_WITHIN);
}

/// What a lost rank has sent is the receiver's alone, and dropped once; new objects are apart from it.
fn has_one_owner(receiver: &Receiver<DBox<Counted>>, number: u64) -> Outcome {
    let mut came = receiver.recv_checked()?.ok_or("nothing came")?;
    ensure(came.0 == number, || format!("{} has come", came.0))?;
    came.0 += 100;
    let more: Vec<DBox<u64>> = (0..100).map(DBox::new).collect();
    ensure(came.0 == number + 100 && more.iter().enumerate().all(|(at, one)| **one == at as u64), || {
        "it is another object, too".into()
    })?;
    let before = DROPPED.load(Ordering::SeqCst);
    drop(came);
    let dropped = DROPPED.load(Ordering::SeqCst) - before;
    ensure(dropped == 1, || format!("it was dropped {dropped} times"))
}

/// Goal: what a task has taken out of what it was lent, or of a lock, and passed on before its node was lost has one owner. Method: the task sends both
/// to `main`, which then looks at what it has lent and at the lock.
fn given(runtime: Runtime, _: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    let main = || -> Outcome {
        let lock: SharedSlot = DArc::new(DMutex::new(Some(DBox::new(Counted(1)))));
        let mut lent = (Some(DBox::new(Counted(2))), 7u64);
        let (sender, receiver) = channel::<DBox<Counted>>(4);
        let ended = scope(|scope| {
            let task =
                task!(|(lent, lock): (&mut (Slot, u64), &SharedSlot), sender: Sender<DBox<Counted>>| -> () {
                    let mut guard = lock.lock().expect("nobody has it");
                    lent.1 += 1;
                    let taken = [guard.take(), lent.0.take()];
                    let sent = taken.into_iter().flatten().all(|one| sender.send(one).is_ok());
                    if sent && sender.flush().is_ok() {
                        die_here();
                    }
                });
            scope.spawn_to(Rank(1), task, (&mut lent, &lock), sender).join()
        });
        ensure(matches!(ended, Err(TaskError::Lost(NodeId(1)))), || format!("it ended as {ended:?}"))?;
        has_one_owner(&receiver, 1)?;
        has_one_owner(&receiver, 2)?;
        ensure(lent.1 == 7, || format!("the number is {}", lent.1))?;
        let again = lent.0.as_ref().ok_or("nothing is there")?.try_read().map(|found| found.0);
        let is_lost =
            matches!(&again, Err(ObjectError::Lost(why)) if why.to_string().contains("passed objects on"));
        ensure(is_lost, || format!("what was sent is also lent: {again:?}"))?;
        for _ in 0..2 {
            let locked = lock.lock().map(drop);
            ensure(matches!(locked, Err(LockError::Given { node: NodeId(1), .. })), || {
                format!("{locked:?}")
            })?;
            let cleared = lock.clear_poison();
            ensure(matches!(cleared, Err(LockError::Given { .. })), || format!("{cleared:?}"))?;
        }
        let before = DROPPED.load(Ordering::SeqCst);
        drop((lent, lock));
        let dropped = DROPPED.load(Ordering::SeqCst) - before;
        ensure(dropped == 0, || format!("{dropped} more were dropped"))?;
        let fine = spawn_to(Rank(2), task!(|_n: ()| DBox::new(Counted(3))), ()).join()?;
        ensure(fine.0 == 3, || "another object".into())
    };
    if let Some(ended) = objects.run(&RunOptions::default(), main)? {
        ended?;
    }
    Ok(objects.finalize()?)
}

/// Goal: the same of what [`Objects::lend_mut`] has lent.
fn given_lent(runtime: Runtime, _: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    let me = objects.rank();
    let (mut own, mut receiver, mut sender) = (None, None, None);
    let mut given = None;
    if me == Rank(0) {
        let (to, from) = channel::<DBox<Counted>>(4);
        own = Some(DBox::new(Some(DBox::new(Counted(1)))));
        (given, receiver) = (Some(DBox::new(to)), Some(from));
    }
    if let Some(one) = objects.hand(Rank(0), Rank(1), given)? {
        sender = Some(one.into_inner());
    }
    let lent =
        objects.lend_mut(Rank(0), Rank(1), own.as_mut(), |mut slot: vgas_objects::MutRef<'_, Slot>| {
            if let (Some(taken), Some(sender)) = (slot.take(), sender.take())
                && sender.send(taken).is_ok()
                && sender.flush().is_ok()
            {
                die_here();
            }
        });
    ensure(lent.is_err(), || "the borrow has ended well".into())?;
    if let (Some(own), Some(receiver)) = (own, receiver) {
        has_one_owner(&receiver, 1)?;
        let again = own.try_read().map(|slot| slot.is_some());
        ensure(matches!(again, Err(ObjectError::Lost(_))), || {
            format!("what was sent is also lent: {again:?}")
        })?;
        let before = DROPPED.load(Ordering::SeqCst);
        drop(own);
        ensure(DROPPED.load(Ordering::SeqCst) == before, || "more was dropped".into())?;
    }
    Ok(objects.finalize()?)
}

/// Goal: tasks that may run anywhere end all, when a node is lost at some moment: with their result, or as lost with that node; later ones are
/// not lost. An object whose home is lost is awaited from its backup. Method: many short tasks of rank 0, while node 1 kills itself.
fn spread(runtime: Runtime, seed: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    let doomed = Rank(crate::job(&objects).layout().ranks_of(NodeId(1)).start);
    let main = || -> Outcome {
        let there = made(doomed)?;
        let kill = task!(|seed: u64| -> () {
            std::thread::spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                std::thread::sleep(Duration::from_micros(random.random_range(500..60_000)));
                let _ = getppid().map(|daemon| kill_process(daemon, Signal::KILL));
            });
        });
        spawn_to(doomed, kill, seed).join()?;
        let (until, mut rounds_after, mut lost) = (Instant::now() + crate::NOTICED_WITHIN, 0, 0);
        while rounds_after < 5 {
            ensure(Instant::now() < until, || "nobody was lost".into())?;
            let is_before = objects.lost_nodes().is_empty();
            let work = task!(|number: u64| -> u64 {
                let until = Instant::now() + Duration::from_micros(20);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                2 * number
            });
            let all: Vec<_> = (0..200u64).map(|number| spawn(work, number)).collect();
            for (number, one) in all.into_iter().enumerate() {
                match one.join() {
                    Ok(result) => ensure(result == 2 * number as u64, || format!("{number}: {result}"))?,
                    Err(TaskError::Lost(NodeId(1))) if is_before => lost += 1,
                    Err(error) => return Err(format!("task {number}: {error}").into()),
                }
            }
            rounds_after += u32::from(!is_before);
        }
        println!("        {lost} tasks were lost");
        let mut get = std::pin::pin!(there.get());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(there) = get.as_mut().poll(&mut context) else {
            return Err("a lost rank's object is waited for".into());
        };
        let is = Known::of(&*there?);
        ensure(is == Known::default(), || format!("it is {is:?}"))
    };
    if let Some(ended) = objects.run(&RunOptions::default(), main)? {
        ended?;
    }
    Ok(objects.finalize()?)
}

/// Goal: who is stopped for a while is waited for.
fn stopped(runtime: Runtime, _: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    let (mut owned, _) = things(&objects, Rank(0))?;
    if objects.rank() == Rank(1) {
        let pid = getpid().as_raw_nonzero();
        let mut waker = std::process::Command::new("sh")
            .args(["-c", &format!("kill -STOP {pid}; sleep 0.7; kill -CONT {pid}")])
            .spawn()?;
        waker.wait()?;
    }
    for version in 1..20 {
        let to = Rank(version as u32 % objects.ranks());
        objects.lend_mut(Rank(0), to, owned.get_mut(0), |mut thing| change(&mut thing, version))?;
    }
    ensure(objects.lost_nodes().is_empty(), || "it was given up".into())?;
    drop(owned);
    objects.barrier()?;
    Ok(objects.finalize()?)
}

/// A barrier out of which all have come when `last` has come out of this.
pub fn meet_before(objects: &Objects, last: Rank) -> Outcome {
    objects.barrier()?;
    match objects.barrier() {
        // It may be gone before others have come out of the second.
        Err(_) if objects.rank() != last => Ok(()),
        met => Ok(met?),
    }
}

fn kill_myself() {
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Goal: the loss of a second node ends the job.
fn two_nodes(runtime: Runtime, _: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    meet_before(&objects, Rank(1))?;
    if objects.rank() == Rank(1) {
        kill_myself();
    }
    ensure(objects.barrier().is_err(), || "a barrier of all".into())?;
    if objects.rank() == Rank(2) {
        kill_myself();
    }
    crate::job(&objects).wait_until(|| false)?;
    Ok(())
}

/// Goal: a job whose first rank is lost within `Objects::run` ends, for it has nobody's `main` any more, and says who was killed. Method:
/// `main` kills its node while a task of another one waits.
fn main_dies(runtime: Runtime, _: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    let main = || -> Outcome {
        let wait = task!(|_n: ()| -> () { std::thread::park_timeout(crate::NOTICED_WITHIN) });
        let waits = spawn_to(Rank(1), wait, ());
        spawn_to(Rank(1), task!(|_n: ()| -> () {}), ()).join()?;
        kill_myself();
        Ok(waits.join()?)
    };
    objects.run(&RunOptions { workers: 2, ..RunOptions::default() }, main).map(drop)?;
    Err("the run has ended well".into())
}

/// Goal: the same where `main` has returned, and others have not come to the end of the run yet.
fn main_dies_at_the_end(runtime: Runtime, seed: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    let main = || -> Outcome {
        // Nobody receives more than the first, so that the last rank is not done until the first one is lost.
        let (sender, receiver) = channel(1);
        let waits =
            task!(|sender: Sender<u64>| -> () { while matches!(sender.send_checked(1), Ok(true)) {} });
        std::mem::forget(spawn_to(Rank(2), waits, sender));
        receiver.recv()?;
        std::mem::forget(receiver);
        std::thread::spawn(move || {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            std::thread::sleep(Duration::from_micros(random.random_range(500..60_000)));
            kill_myself();
        });
        Ok(())
    };
    objects.run(&RunOptions::default(), main).map(drop)?;
    Err("the run has ended well".into())
}

/// Goal: who has sent into a channel whose home is lost hears of it each time, and goes on: nothing waits for what cannot arrive.
fn lost_channel(runtime: Runtime, _: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    let main = || -> Outcome {
        let make = task!(|_n: ()| -> (Sender<u64>, Receiver<u64>) { channel(4) });
        let (sender, receiver) = spawn_to(Rank(1), make, ()).join()?;
        let dies = spawn_to(Rank(1), task!(|_n: ()| -> () { kill_myself() }), ()).join();
        ensure(matches!(dies, Err(TaskError::Lost(NodeId(1)))), || format!("it ended as {dies:?}"))?;
        for _ in 0..10 {
            let sent = sender.send_checked(1);
            ensure(matches!(sent, Err(ObjectError::Lost(_))), || format!("{sent:?}"))?;
            ensure(sender.flush().is_err(), || "what was sent is nowhere".into())?;
            // What this thread has sent before is to be there when others begin.
            for to in [0, 2].map(Rank) {
                let two = spawn_to(to, task!(|_n: ()| -> u64 { 2 }), ()).join()?;
                ensure(two == 2, || format!("{two}"))?;
            }
        }
        let received = receiver.recv_checked();
        ensure(received.is_err(), || format!("{received:?}"))
    };
    if let Some(ended) = objects.run(&RunOptions::default(), main)? {
        ended?;
    }
    Ok(objects.finalize()?)
}

/// Goal: in a job that may lose nodes, no home hands a reader on to one that may be lost. Method: readers do not say where their copies are.
fn unhinted(runtime: Runtime, _: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &HEAP)?;
    let made = (objects.rank() == Rank(0)).then(|| DBox::new([DBox::new(1u64), DBox::new(2)]));
    let read = objects.lend(Rank(0), made.as_ref(), |made| {
        made.iter().map(|one| **one).sum::<u64>()
            + DBox::read_all(made.iter()).iter().map(|one| **one).sum::<u64>()
    })?;
    ensure(read == 6, || format!("{read}"))?;
    let hints: u64 = objects.report()?.nodes.iter().map(|of| of.hints).sum();
    ensure(hints == 0, || format!("{hints} copies are known"))?;
    drop(made);
    Ok(objects.finalize()?)
}

/// Goal: a job of one node goes on without nobody: it ends, and says who was killed.
fn one_node(runtime: Runtime, _: u64) -> Outcome {
    let objects = Objects::attach(&runtime, &HEAP)?;
    meet_before(&objects, Rank(1))?;
    if objects.rank() == Rank(1) {
        kill_myself();
    }
    crate::job(&objects).wait_until(|| false)?;
    Ok(())
}

/// Goal: a rank that is killed when all have left the job has failed, and nobody goes on without it.
fn late(runtime: Runtime, _: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    let me = objects.rank();
    objects.finalize()?;
    if me == Rank(0) {
        kill_myself();
    }
    Ok(())
}

/// Goal: where another node may have had the only copy of a page, a loss ends the job, and is named.
fn shared_pages(runtime: Runtime, _: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &REPLICATED)?;
    crate::job(&objects).attach(&vgas::SegmentOptions::tiered(1 << 16))?;
    meet_before(&objects, Rank(1))?;
    if objects.rank() == Rank(1) {
        kill_myself();
    }
    crate::job(&objects).wait_until(|| false)?;
    Ok(())
}

/// What is lost in the end, but for where it is.
#[derive(Portable, Shareable)]
struct Parts {
    rows: [DVec<u64>; 3],
    texts: [DString; 2],
    maps: [DMap<u64, u64>; 3],
}

/// Whatever call wants something that is lost, its error has the type, the place, and the line of the call.
fn all_are_named(thing: &DBox<Thing>, parts: Parts) -> Outcome {
    let Parts {
        rows: [mut grown, pushed, taken],
        texts: [mut longer, text],
        maps: [mut map, mut entered, got],
    } = parts;
    let mut pushed = pushed;
    let is_named = |what: &str, why: ObjectError, line: u32, type_name: &str| {
        let ObjectError::Lost(lost) = &why else { return Err(format!("{what}: {why}").into()) };
        let at = lost.at.is_some_and(|at| at.file() == file!() && at.line().abs_diff(line) <= 1);
        ensure(at && lost.rank == Rank(1) && lost.type_name.contains(type_name), || format!("{what}: {why}"))
    };
    let get = crate::tasks::block_on(thing.get()).map(drop);
    is_named("get", get.err().ok_or("get")?, line!() - 1, "Thing")?;
    let range = grown.range(3..5).map(drop);
    is_named("range", range.err().ok_or("range")?, line!() - 1, "u64")?;
    let chunk = grown.chunks_of(100).next().ok_or("no chunk")?.map(drop);
    is_named("chunks_of", chunk.err().ok_or("chunk")?, line!() - 1, "u64")?;
    let reserved = grown.try_reserve(100_000);
    is_named("try_reserve", reserved.err().ok_or("reserve")?, line!() - 1, "u64")?;
    let refused = pushed.try_push(1).map_err(|refused| *refused.why);
    is_named("try_push", refused.err().ok_or("push")?, line!() - 1, "u64")?;
    let extended = pushed.try_extend_from(&[1, 2]);
    is_named("try_extend_from", extended.err().ok_or("extend")?, line!() - 1, "u64")?;
    let vec = taken.into_vec();
    is_named("into_vec", vec.err().ok_or("into_vec")?, line!() - 1, "u64")?;
    let str = text.try_as_str().map(drop);
    is_named("try_as_str", str.err().ok_or("str")?, line!() - 1, "u8")?;
    let added = longer.try_push_str("er");
    is_named("try_push_str", added.err().ok_or("push_str")?, line!() - 1, "u8")?;
    let string = text.into_string();
    is_named("into_string", string.err().ok_or("string")?, line!() - 1, "u8")?;
    let inserted = map.try_insert(3, 4);
    is_named("try_insert", inserted.err().ok_or("insert")?, line!() - 1, "Bucket")?;
    let entry = entered.try_entry(3).map(drop);
    is_named("try_entry", entry.err().ok_or("entry")?, line!() - 1, "Bucket")?;
    let iter = got.try_iter().map(drop);
    is_named("try_iter", iter.err().ok_or("iter")?, line!() - 1, "Bucket")
}

/// Goal: without replicas, what is lost is named by type, place and where it is used; where the job does not survive, it ends.
fn none(runtime: Runtime, _: u64) -> Outcome {
    note_pids(&runtime)?;
    let objects = Objects::attach(&runtime, &HEAP)?;
    let (owned, _) = things(&objects, Rank(0))?;
    let parts = (objects.rank() == Rank(1)).then(|| {
        let far = || -> DVec<u64> { (0..5000).collect() };
        let map = |keys: u64| -> DMap<u64, u64> { (0..keys).map(|key| (key, key)).collect() };
        let text = || DString::from("far away");
        DBox::new(Parts {
            rows: [far(), far(), far()],
            texts: [text(), text()],
            maps: [map(6), map(6), map(6)],
        })
    });
    // The box comes to the first rank; what is in it stays.
    let parts = objects.hand(Rank(1), Rank(0), parts)?.map(DBox::into_inner);
    meet_before(&objects, Rank(1))?;
    if objects.rank() == Rank(1) {
        kill_myself();
    }
    ensure(objects.barrier().is_err(), || "a barrier of all".into())?;
    if let Some(parts) = parts {
        all_are_named(&owned[1], parts)?;
    }
    if objects.rank() == Rank(0) {
        ensure(owned[0].numbers.is_empty() && owned[2].version == 0, || "those of others".into())?;
        let Err(ObjectError::Lost(lost)) = owned[1].try_read().map(drop) else {
            return Err("it was read".into());
        };
        let (type_name, rank) = (lost.type_name, lost.rank);
        ensure(type_name.ends_with("Thing") && rank == Rank(1), || format!("{type_name} of {rank}"))?;
        static SAID: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
        std::panic::set_hook(Box::new(|info| *SAID.lock().unwrap() = info.to_string()));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| owned[1].version)).is_err();
        let said = SAID.lock().unwrap().clone();
        let is_named = [file!(), "Thing", "rank 1", "node 1 is lost"].iter().all(|word| said.contains(word));
        ensure(panicked && is_named, || format!("it panicked with {said:?}"))?;
    }
    // The heap cannot go on, but its job ends as the first rank says.
    Ok(crate::job(&objects).exit(0)?)
}
