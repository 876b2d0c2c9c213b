//! Heaps with a name and replicas: what one job has lost nothing of, later jobs find as the last checkpoint has left it.

use crate::replicas::{Known, REPLICATED, Thing, change, left_behind, meet_before, new_thing, note_pids};
use crate::scenarios::{ensure, nothing_is_left};
use crate::{HEAP, Outcome, run_job};
use rustix::process::{Signal, getpid, kill_process};
use vgas::{Rank, Runtime};
use vgas_objects::{DBox, HeapOptions, Objects};

type Part = fn(Runtime, u64) -> Outcome;

const PARTS: &[(&str, Part)] = &[
    ("kept_replicas_begin", begin),
    ("kept_replicas_lose", |runtime, _| lose(runtime, Rank(2), Rank(0))),
    ("kept_replicas_lose_first", |runtime, _| lose(runtime, Rank(0), Rank(2))),
    ("kept_replicas_end", end),
];

pub fn part(name: &str) -> Option<Part> {
    PARTS.iter().find(|(other, _)| *other == name).map(|(_, part)| *part)
}

pub const NAME: &str = "kept_replicas";

/// Goal: a heap may outlive both its nodes and its job. Method: a job makes things, which are written on one rank after the other, and keeps them; a second
/// one, with replicas again, makes a checkpoint, goes on, and loses a node: it has all as it was; a third one, without, has the checkpoint, and of what was
/// replaced nothing takes room. Once with the last node, once with the first.
pub fn sequence() -> Result<(), String> {
    for loses in ["kept_replicas_lose", "kept_replicas_lose_first"] {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let more = [
            ("nvm.directory", folder.path().display().to_string()),
            ("run.survive", "on".to_owned()),
            ("conduit", "tcp".to_owned()),
        ];
        for name in ["kept_replicas_begin", loses, "kept_replicas_end"] {
            run_job(name, 0, 3, 3, &more).map_err(|error| format!("{loses}, {name}: {error}"))?;
            left_behind(folder.path())?;
        }
    }
    Ok(())
}

fn attach(runtime: Runtime, heap: &HeapOptions) -> Result<Objects, Box<dyn std::error::Error>> {
    note_pids(&runtime)?;
    // SAFETY: the jobs of this test alone have the folder, and none has threads.
    Ok(unsafe { Objects::attach_named(&runtime, heap, "replicated") }?)
}

/// What a thing is after so many changes.
fn known(changes: u64) -> Known {
    let mut known = Known::default();
    (1..=changes).for_each(|version| known.change(version));
    known
}

/// Changes each rank's thing, the next changes by the next rank, and so on: they move, and are replicated.
fn change_all(
    objects: &Objects,
    things: &mut [Option<DBox<Thing>>],
    changes: std::ops::RangeInclusive<u64>,
) -> Outcome {
    let ranks = objects.ranks();
    for version in changes {
        for owner in (0..ranks).map(Rank) {
            let writer = Rank((owner.0 + version as u32) % ranks);
            let own = (objects.rank() == owner).then(|| things[0].as_mut()).flatten();
            objects.lend_mut(owner, writer, own, |mut thing| change(&mut thing, version))?;
        }
    }
    Ok(())
}

fn keep(objects: &Objects, name: &str, thing: Option<DBox<Thing>>) -> Outcome {
    let thing = thing.ok_or("there is nothing")?;
    Ok(objects.keep(name, thing).map_err(|refused| refused.why.to_string())?)
}

fn is(objects: &Objects, thing: &Option<DBox<Thing>>, changes: u64) -> Outcome {
    let found = thing.as_ref().map(|thing| Known::of(thing));
    ensure(found == Some(known(changes)), || {
        format!("{} finds {found:?} after {changes} changes", objects.rank())
    })
}

fn begin(runtime: Runtime, _: u64) -> Outcome {
    let objects = attach(runtime, &REPLICATED)?;
    let mut own = [Some(DBox::new(new_thing()))];
    change_all(&objects, &mut own, 1..=20)?;
    let [own] = own;
    keep(&objects, "thing", own)?;
    objects.checkpoint()?;
    Ok(objects.finalize()?)
}

fn lose(runtime: Runtime, victim: Rank, keeper: Rank) -> Outcome {
    let objects = attach(runtime, &REPLICATED)?;
    let me = objects.rank();
    let mut own = [objects.root("thing")?];
    is(&objects, &own[0], 20)?;
    change_all(&objects, &mut own, 21..=30)?;
    let [own] = own;
    keep(&objects, "thing", own)?;
    objects.checkpoint()?;
    // From here on, later jobs know nothing.
    let given = if me == victim { objects.root::<Thing>("thing")? } else { None };
    let mut given = objects.hand(victim, keeper, given)?;
    for version in 31..=33 {
        objects.lend_mut(keeper, victim, given.as_mut(), |mut thing| change(&mut thing, version))?;
    }
    meet_before(&objects, victim)?;
    if me == victim {
        kill_process(getpid(), Signal::KILL)?;
    }
    while objects.barrier().is_ok() {}
    ensure(objects.lost_nodes().len() == 1, || "no node is lost".into())?;
    if me == keeper {
        ensure(given.as_ref().and_then(DBox::rank) == Some(victim), || {
            "the thing is not where it was lost".into()
        })?;
        is(&objects, &given, 33)?;
        if let Some(thing) = &mut given {
            (34..=40).for_each(|version| change(thing, version));
        }
        is(&objects, &given, 40)?;
        is(&objects, &objects.root("thing")?, 30)?;
    }
    ensure(objects.checkpoint().is_err(), || "a checkpoint without a node".into())?;
    Ok(objects.finalize()?)
}

fn end(runtime: Runtime, _: u64) -> Outcome {
    let objects = attach(runtime, &HEAP)?;
    is(&objects, &objects.root("thing")?, 30)?;
    ensure(objects.root_names().is_empty(), || format!("{:?}", objects.root_names()))?;
    nothing_is_left(&objects)?;
    Ok(objects.finalize()?)
}
