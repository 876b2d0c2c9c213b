//! Random programs of ownership on objects, held against the same programs on std's types.
//!
//! A program has a number, from which it is drawn. It runs on the first rank, with tasks on all, and again in each process on `Box`, `Vec`,
//! `Arc`, `Mutex` and channels of std. Both must find the same, and drop the same; and after it nothing may be left: no object, copy, use of
//! one, channel or lock, on any rank or at any home.

mod draw;
mod owned;
mod plain;
#[cfg(feature = "faults")]
pub mod planted;

use crate::scenarios::{ensure, nothing_is_left};
use crate::{HEAP, Outcome, run_job};
use draw::Program;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Signal, getpid, kill_process};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use vgas::{Rank, Runtime};
use vgas_objects::{HeapOptions, Objects, RunOptions};

pub const NAME: &str = "programs";

type Part = fn(Runtime, u64) -> Outcome;

const PARTS: &[(&str, Part)] = &[
    ("programs_usual", |runtime, what| whole(Objects::attach(&runtime, &HEAP)?, what, How::Plain)),
    ("programs_few_colours", |runtime, what| {
        whole(Objects::attach(&runtime, &FEW_COLOURS)?, what, How::Plain)
    }),
    ("programs_kept", |runtime, what| {
        // SAFETY: the folder is this job's alone, and nobody uses objects during its checkpoints.
        whole(unsafe { Objects::attach_named(&runtime, &HEAP, "programs") }?, what, How::Named)
    }),
    ("programs_survived_all", |runtime, what| {
        whole(Objects::attach(&runtime, &REPLICATED)?, what, How::Replicated)
    }),
    ("programs_killed", |runtime, what| last_killed(Objects::attach(&runtime, &HEAP)?, what)),
    ("programs_survived", |runtime, what| last_killed(Objects::attach(&runtime, &REPLICATED)?, what)),
    (FIRST_KILLED, |runtime, what| killed(Objects::attach(&runtime, &REPLICATED)?, Rank(0), what)),
];

/// Of these, the first rank is killed, and not the last one.
const FIRST_KILLED: &str = "programs_survived_first";

const FEW_COLOURS: HeapOptions = HeapOptions { last_colour: 1, copies: 2, ..HEAP };
const REPLICATED: HeapOptions = HeapOptions { replicas: 1, ..HEAP };

pub fn part(name: &str) -> Option<Part> {
    #[cfg(feature = "faults")]
    if let Some((_, part)) = planted::PARTS.iter().find(|(other, _)| *other == name) {
        return Some(*part);
    }
    PARTS.iter().find(|(other, _)| *other == name).map(|(_, part)| *part)
}

/// A simulated network: each message comes up to so much later, by times that are drawn from the first program's number.
const DRAWN: &str = "jitter=200us@";

/// Jobs: a part, ranks, nodes, and hooks around their conduits.
const JOBS: &[(&str, u32, u32, &str)] = &[
    ("programs_usual", 1, 1, "none"),
    ("programs_usual", 2, 2, "none"),
    ("programs_few_colours", 4, 2, "none"),
    ("programs_usual", 3, 3, "delay=30us"),
    ("programs_kept", 2, 2, "none"),
    ("programs_usual", 2, 1, "none"),
    ("programs_few_colours", 2, 2, "loss=0.5%"),
    ("programs_usual", 3, 3, DRAWN),
    ("programs_survived_all", 3, 3, "none"),
    ("programs_usual", 4, 2, "none"),
    ("programs_few_colours", 4, 2, DRAWN),
];

/// Jobs in which a node is killed, with hooks, and how they end: words of the error, or none where they survive. With the first rank, a run ends
/// the job, and what ranks do between two runs does not.
const KILLED: &[(&str, u32, u32, &str, Option<&str>)] = &[
    ("programs_killed", 2, 2, DRAWN, Some("killed by signal 9")),
    ("programs_survived", 3, 3, DRAWN, None),
    ("programs_killed", 4, 2, "none", Some("killed by signal 9")),
    (FIRST_KILLED, 3, 3, "none", Some("killed by signal 9")),
    ("programs_survived", 6, 3, "none", None),
    ("programs_killed", 2, 1, "none", Some("killed by signal 9")),
    ("programs_survived", 3, 3, "none", None),
    ("programs_survived", 6, 3, DRAWN, None),
    (FIRST_KILLED, 6, 3, DRAWN, Some("killed by signal 9")),
];

/// How many there are.
pub struct Size {
    count: u64,
    kills: u64,
}

impl Size {
    /// Few enough for every run of the tests, or as many as there are to be.
    pub fn of(is_slow: bool) -> Self {
        match is_slow {
            false => Self { count: 90, kills: 4 },
            true => Self { count: 10_000, kills: 300 },
        }
    }
}

/// A rank is given the number of the first program times this, and how many.
const COUNT_MAX: u64 = 1 << 12;

/// Goal: programs find the same on objects as on std's types, drop the same, and leave nothing; with messages that are late, lost, or overtaken, too; and
/// when a rank is killed in one, it ends within ten seconds with an error that names it. Method: `count` programs from
/// the one of this number on, and `kills` jobs; `VGAS_TEST_SEED` begins with a number again.
pub fn sequence(first: u64, Size { count, kills }: Size) -> Result<(), String> {
    let mut next = first % (1 << 40);
    let each = count.div_ceil(JOBS.len() as u64).clamp(1, COUNT_MAX - 1);
    for (name, ranks, nodes, hooks) in JOBS.iter().copied() {
        let title = format!("{name} ({ranks} ranks, {nodes} nodes, hooks {hooks}), {each} from {next}");
        let (ended, took) = job(name, next * COUNT_MAX + each, ranks, nodes, hooks)?;
        ended.map_err(|why| format!("{title}: {why}"))?;
        println!("        {title} in {took:.1?}");
        next += each;
    }
    for (at, (name, ranks, nodes, hooks, words)) in (0..kills).zip(KILLED.iter().copied().cycle()) {
        let seed = next + 1001 * at;
        let (ended, took) = job(name, seed * COUNT_MAX + COUNT_MAX - 1, ranks, nodes, hooks)?;
        let is_so = match (&ended, words) {
            (Err(why), Some(words)) => why.contains(words),
            (Ok(()), None) => true,
            (Ok(()), Some(_)) => name == FIRST_KILLED,
            _ => false,
        };
        let title = format!("{name} ({ranks} ranks, {nodes} nodes, hooks {hooks}) from {seed}");
        if !is_so || took > crate::NOTICED_WITHIN {
            return Err(format!("{title} ended as {ended:?} after {took:.1?}"));
        }
        println!("        {title} in {took:.1?}");
    }
    Ok(())
}

type Ended = (Result<(), String>, Duration);

/// Runs a job, after which none of its processes is left.
fn job(name: &str, what: u64, ranks: u32, nodes: u32, hooks: &str) -> Result<Ended, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let hooks = if hooks == DRAWN { format!("{DRAWN}{}", what / COUNT_MAX) } else { hooks.to_owned() };
    let mut more = vec![("hooks", hooks), ("nvm.directory", folder.path().display().to_string())];
    if name.starts_with("programs_survived") {
        more.extend([("run.survive", "on".to_owned()), ("conduit", "tcp".to_owned())]);
    }
    let began = Instant::now();
    let ended =
        vgas_testing::job_within_bound(name, what / COUNT_MAX, || run_job(name, what, ranks, nodes, &more));
    let took = began.elapsed();
    crate::replicas::left_behind(folder.path())?;
    Ok((ended, took))
}

/// What kind of heap it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Named,
    Replicated,
}

/// Runs programs, and ends the heap.
fn whole(objects: Objects, what: u64, how: How) -> Outcome {
    all(&objects, what, how)?;
    Ok(objects.finalize()?)
}

/// Runs programs, one after the other.
fn all(objects: &Objects, what: u64, how: How) -> Outcome {
    std::panic::set_hook(Box::new(|_| {}));
    let (first, count) = (what / COUNT_MAX, what % COUNT_MAX);
    for number in first..first + count {
        one(objects, number, how).map_err(|why| said(objects, number, &*why))?;
    }
    Ok(())
}

fn said(objects: &Objects, number: u64, why: &dyn std::error::Error) -> String {
    let program = Program::draw(number, objects.ranks());
    let steps: Vec<String> = program.steps.iter().map(|step| format!("\n    {step:?}")).collect();
    let (workers, cut) = (program.workers, program.cut);
    if objects.rank() != Rank(0) {
        return format!("program {number} on {}: {why}", objects.rank());
    }
    format!(
        "program {number} on {}: {why}; replay with VGAS_TEST_SEED={number}\n  {workers} workers, cut at {cut}{}",
        objects.rank(),
        steps.concat()
    )
}

/// Runs a program, and compares it.
fn one(objects: &Objects, number: u64, how: How) -> Outcome {
    let (ranks, me) = (objects.ranks(), objects.rank());
    let program = Program::draw(number, ranks);
    let options = RunOptions { workers: program.workers, ..RunOptions::default() };
    let mut world = owned::World::new(ranks);
    let (before, after) = program.steps.split_at(program.cut);
    for (half, steps) in [before, after].into_iter().enumerate() {
        let ended = objects.run(&options, || {
            steps.iter().try_for_each(|step| world.step(step).map_err(|why| format!("{step:?}: {why}")))
        })?;
        ended.unwrap_or(Ok(()))?;
        if half == 0 && how == How::Named {
            kept(objects, &mut world)?;
        }
    }
    let mut found = std::mem::take(&mut world.found);
    drop(world);
    let mut plain = plain::World::new(ranks);
    program.steps.iter().for_each(|step| plain.step(step));
    if me == Rank(0) {
        for (at, late) in plain.or_late.drain(..) {
            found.iter_mut().skip(at).take(1).filter(|one| **one == late).for_each(|one| *one = 0);
        }
        let differs = found.iter().zip(&plain.found).position(|(one, other)| one != other);
        let (here, there) = (found.len(), plain.found.len());
        ensure(found == plain.found, || format!("finding {differs:?} of {here}, {there} is another"))?;
    }
    drop(plain);
    if how == How::Replicated {
        // What was passed on is free when all have met again.
        objects.barrier()?;
        objects.barrier()?;
    }
    nothing_is_left(objects)?;
    // Slots whose colours are used up begin again where nobody has copies.
    objects.barrier()?;
    let report = objects.report()?;
    let is_left = report.ranks.iter().any(|of| of.uses + of.retired > 0)
        || report.nodes.iter().any(|of| of.channels + of.locks > 0);
    ensure(!is_left, || format!("something is left:\n{report}"))?;
    dropped_the_same(objects)
}

/// All boxes are given to the heap, and are taken out of it after a checkpoint.
fn kept(objects: &Objects, world: &mut owned::World) -> Outcome {
    for (at, of) in world.boxes.iter_mut().enumerate() {
        if let Some(of) = of.take() {
            objects.keep(&format!("box {at}"), of).map_err(|refused| refused.why)?;
        }
    }
    objects.checkpoint()?;
    for (at, of) in world.boxes.iter_mut().enumerate() {
        *of = objects.root(&format!("box {at}"))?;
    }
    Ok(())
}

/// What was dropped on all ranks together is what std's types have dropped.
fn dropped_the_same(objects: &Objects) -> Outcome {
    let mut expected = plain::dropped();
    let own: Vec<u8> = owned::dropped().iter().flat_map(|mark| mark.to_le_bytes()).collect();
    let mut dropped = Vec::new();
    // A message has room for so much of each rank.
    let most = crate::job(objects).all_reduce(own.len() as u64, u64::max)?;
    for from in (0..most as usize).step_by(1000) {
        let part = own.get(from..).map_or(&[][..], |rest| &rest[..rest.len().min(1000)]);
        let all = crate::job(objects).barrier_with(part)?;
        let marks = all.iter().flat_map(|bytes| bytes.as_chunks::<2>().0);
        dropped.extend(marks.map(|mark| u16::from_le_bytes(*mark)));
    }
    expected.sort_unstable();
    dropped.sort_unstable();
    ensure(dropped == expected, || {
        let (mut never, mut twice) = (expected.clone(), dropped.clone());
        never.retain(|mark| !dropped.contains(mark));
        twice.dedup_by(|one, other| {
            let is_same = one == other;
            *other |= u16::from(is_same) << 15;
            is_same
        });
        twice.retain(|mark| mark >> 15 == 1);
        twice.iter_mut().for_each(|mark| *mark &= 0x7fff);
        let (here, there) = (dropped.len(), expected.len());
        format!("{here} marks were dropped instead of {there}; never: {never:?}; more than once: {twice:?}")
    })
}

/// The last rank kills itself.
fn last_killed(objects: Objects, what: u64) -> Outcome {
    let last = Rank(objects.ranks() - 1);
    killed(objects, last, what)
}

/// Runs programs until a node is lost, at some moment: one of its ranks kills itself.
fn killed(objects: Objects, victim: Rank, what: u64) -> Outcome {
    std::panic::set_hook(Box::new(|_| {}));
    let (first, me) = (what / COUNT_MAX, objects.rank());
    let lost = crate::job(&objects).layout().node_of(victim);
    crate::replicas::note_pids(crate::job(&objects))?;
    // The victim may have killed itself before all others have heard that all are here.
    let began = crate::job(&objects).barrier();
    if me == victim {
        let mut random = ChaCha8Rng::seed_from_u64(first);
        // A moment of a program, whatever it does then; of every second, when some have begun and others not, or not all know.
        let most = if first.is_multiple_of(2) { 60_000 } else { 3_000 };
        let after = Duration::from_micros(random.random_range(0..most));
        std::thread::spawn(move || {
            std::thread::sleep(after);
            kill_process(getpid(), Signal::KILL)
        });
    }
    let mut number = first;
    let why = loop {
        if let Err(why) = &began {
            break why.to_string();
        }
        let ended = catch_unwind(AssertUnwindSafe(|| one(&objects, number, How::Replicated)));
        match ended {
            Ok(Ok(())) => number += 1,
            Ok(Err(why)) => break why.to_string(),
            Err(said) => break words_of(&*said),
        }
    };
    let names = [format!("{lost}"), format!("{victim}"), "lost".into(), "cannot be reached".into()];
    ensure(names.iter().any(|name| why.contains(name)), || {
        format!("program {number} ended on {me} with what names no loss: {why}")
    })?;
    if !crate::job(&objects).settings().run.survive {
        return Err(why.into());
    }
    ensure(objects.lost_nodes().contains(&lost), || format!("{lost} is not lost, but: {why}"))?;
    Ok(objects.finalize()?)
}

/// What a panic has said.
fn words_of(said: &(dyn std::any::Any + Send)) -> String {
    let text = said.downcast_ref::<String>().cloned();
    text.or_else(|| said.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
