//! Named segments over several jobs: what a checkpoint made durable is what the next job finds, whatever happened since.

use crate::scenarios::Outcome;
use crate::{Setting, run_job};
use rustix::process::{Pid, Signal, getppid, kill_process};
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use vgas::{GlobalAddress, Runtime, Segment, SegmentOptions};

/// More than the cache, so that pages are written back between checkpoints, too.
const BYTES: u64 = 2 << 20;
const PIECE: u64 = 4096;

/// Goal: checkpoints survive jobs and crashes, damage is named. Method: jobs one after the other over one folder. The
/// seed of a job is the version that it writes or expects. Without two places for every page, the write-backs of the job
/// that crashes would have destroyed what the checkpoint before promised.
pub fn sequence() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let job_of = |name: &'static str, version: u64, ranks: u32, nodes: u32| {
        let mut setting = Setting::new(
            ranks,
            nodes,
            &[
                ("cache.size", "1MiB"),
                ("cache.page", "4KiB"),
                ("segment.tiered_max", "64MiB"),
                ("segment.pinned_max", "0"),
            ],
        );
        setting.settings.insert("nvm.directory", folder.path().display().to_string());
        run_job(name, version, &setting).map_err(|error| format!("{name} {version}: {error}"))
    };
    let job = |name, version, nodes| job_of(name, version, 2, nodes);
    job("named_write", 1, 1)?;
    job("named_verify", 1, 1)?;
    // The nodes of a job are not part of its segments' names.
    job("named_verify", 1, 2)?;
    job("named_write", 2, 2)?;
    match job("named_crash", 3, 2) {
        Err(why) if why.contains("killed by signal 9") => {}
        other => return Err(format!("the crash ended as {other:?}")),
    }
    job("named_verify", 2, 2)?;
    refused(folder.path(), job_of)?;
    job("named_verify", 2, 2)?;
    damage(folder.path()).map_err(|error| format!("cannot damage the files: {error}"))?;
    job("named_damaged", 2, 1)?;
    together(job)?;
    mixed_checkpoints(folder.path(), |step, accepts| {
        let mut setting = Setting::new(2, 2, &[("cache.size", "1MiB"), ("cache.page", "4KiB")]);
        setting.settings.insert("nvm.directory", folder.path().display().to_string());
        setting.settings.insert("segment.mixed_checkpoints", if accepts { "on" } else { "off" }.into());
        run_job("named_mixed", step, &setting).map_err(|error| format!("named_mixed {step}: {error}"))
    })
}

/// Goal: segments of one job are not opened at different checkpoints without a word. Method: all files of one are replaced by those of
/// an earlier checkpoint, and removed; of the one that is attached first, and of the other.
fn mixed_checkpoints(folder: &Path, job: impl Fn(u64, bool) -> Result<(), String>) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let files = |name: &str| [0, 1].map(|rank| folder.join(format!("{name}.{rank}.{rank}.vgas")));
    let copy = |name: &str, from: &str, to: &str| {
        files(name).iter().try_for_each(|file| {
            let with = |end: &str| file.with_extension(format!("vgas{end}"));
            std::fs::copy(with(from), with(to)).map(drop).map_err(text)
        })
    };
    for _ in 0..2 {
        job(STEP_WRITE, false)?;
        for name in ["first", "second"] {
            copy(name, "-new", "-old").or_else(|_| copy(name, "", "-old"))?;
            copy(name, "", "-new")?;
        }
    }
    for name in ["second", "first"] {
        copy(name, "-old", "")?;
        job(STEP_REFUSED, false)?;
        job(STEP_ACCEPTED, true)?;
        files(name).iter().try_for_each(|file| std::fs::remove_file(file).map_err(text))?;
        job(STEP_REFUSED, false)?;
        job(STEP_ACCEPTED, true)?;
        for name in ["first", "second"] {
            copy(name, "-new", "")?;
        }
        job(STEP_WHOLE, false)?;
    }
    Ok(())
}

/// Writes, and makes a checkpoint.
const STEP_WRITE: u64 = 0;
/// Expects that the second segment is refused.
const STEP_REFUSED: u64 = 1;
/// Expects that it is attached, and said to be of another checkpoint.
const STEP_ACCEPTED: u64 = 2;
/// Expects that they are of one checkpoint, and attaches a third, which is new.
const STEP_WHOLE: u64 = 3;

/// One of these jobs.
pub fn mixed(runtime: &Runtime, step: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(0))?;
    let attach = |name: &str| {
        let options = SegmentOptions::tiered(0).name(name);
        runtime.attach(&options.sized(1 << 16))
    };
    let first = attach("first")?;
    let second = attach("second");
    if step == STEP_REFUSED {
        let said = second.expect_err("segments of different checkpoints").to_string();
        let expected = ["\"first\"", "\"second\"", "made together", "segment.mixed_checkpoints=on"];
        return match expected.iter().all(|words| said.contains(words)) {
            true => Ok(()),
            false => Err(said.into()),
        };
    }
    let second = second?;
    let found = second.reopened();
    match (step, found) {
        (STEP_WRITE, None) => {}
        (STEP_WRITE | STEP_WHOLE, Some(found)) if found.is_together => {}
        (STEP_ACCEPTED, Some(found)) if !found.is_together => {}
        other => return Err(format!("{other:?}").into()),
    }
    if step == STEP_WHOLE {
        let third = attach("third")?;
        if third.reopened().is_some() {
            return Err("a new segment is said to be an old one".into());
        }
    }
    if step == STEP_WRITE {
        for segment in [&first, &second] {
            runtime.put_value(segment.address(runtime.rank(), 0), 1u64)?;
        }
        runtime.checkpoint()?;
    }
    runtime.barrier()?;
    Ok(())
}

/// Goal: the ranks of a job take the same steps, whichever has a part of a named segment.
pub fn without_a_part(runtime: &Runtime, _seed: u64) -> Outcome {
    let is_first = runtime.rank().0 == 0;
    runtime.attach(&SegmentOptions::tiered(if is_first { BYTES } else { 0 }).name("part"))?;
    let options = SegmentOptions::tiered(0).name("whole");
    runtime.attach(&options.sized(if is_first { 0 } else { BYTES }))?;
    // Known already, in some ranks' words another name.
    let again = options.name(if is_first { "whole" } else { "other" });
    if runtime.attach(&again.sized(BYTES)).is_ok() || !runtime.has_named_segments() {
        return Err("a name was given twice".into());
    }
    runtime.checkpoint()?;
    runtime.barrier()?;
    Ok(())
}

/// Goal: several named segments are of one checkpoint, also when a job was killed while it made one. Method: after a first
/// version, jobs write one version after another until they kill themselves, at random; each begins with a look at what the one
/// before has left.
fn together(job: impl Fn(&'static str, u64, u32) -> Result<(), String>) -> Result<(), String> {
    job("named_without_a_part", 0, 2)?;
    job("named_together", 0, 2)?;
    for round in 1..=6 {
        match job("named_together", round, 1 + round as u32 % 2) {
            Err(why) if why.contains("killed by signal 9") => {}
            other => return Err(format!("round {round} ended as {other:?}")),
        }
    }
    Ok(())
}

/// One of these jobs.
pub fn one_of_many(runtime: &Runtime, round: u64) -> Outcome {
    const PLACES: u64 = 64;
    let me = runtime.rank();
    runtime.attach(&SegmentOptions::tiered(4096))?;
    let named = |name: &str, page_bytes| {
        let options = SegmentOptions::tiered(0).page_size(page_bytes).name(name);
        runtime.attach(&options.sized(PLACES << 14))
    };
    if named("a/b", 4 << 10).is_ok() {
        return Err("a segment has a name that is none".into());
    }
    if runtime.ranks() > 1 && named(if me.0 == 0 { "this" } else { "that" }, 4 << 10).is_ok() {
        return Err("a segment has two names".into());
    }
    let both = [named("left", 4 << 10)?, named("right", 16 << 10)?];
    if named("right", 16 << 10).is_ok() {
        return Err("two segments have one name".into());
    }
    let found = both.each_ref().map(|segment| segment.reopened().is_some());
    if found != [round > 0; 2] {
        return Err(format!("round {round} finds {found:?}").into());
    }
    let place = |at: u64| both[(at % 2) as usize].address(me, (at / 2) << 14);
    let mut versions = Vec::new();
    for at in 0..2 * PLACES {
        versions.push(runtime.get_value::<u64>(place(at))?);
    }
    let all = runtime.all_gatherv(bytemuck::cast_slice(&versions))?;
    let first = versions[0];
    if all.iter().any(|bytes| bytes.as_chunks::<8>().0.iter().any(|word| u64::from_le_bytes(*word) != first))
    {
        return Err(format!("round {round} finds different versions: {versions:?}").into());
    }
    // Dropped with the rank.
    let (_running, ended) = std::sync::mpsc::channel::<()>();
    if round > 0 && me.0 == 0 {
        let daemon = getppid().ok_or("no daemon")?;
        let after = std::time::Duration::from_micros(500 + fresh(round) % 60_000);
        std::thread::spawn(move || {
            // Somewhere in the middle of what the ranks do, if they have not ended by themselves.
            if ended.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(daemon, Signal::KILL);
            }
        });
    }
    for version in first + 1.. {
        for at in 0..2 * PLACES {
            runtime.put_value(place(at), version)?;
        }
        runtime.checkpoint()?;
        if round == 0 {
            break;
        }
    }
    Ok(())
}

/// Another number in each run.
fn fresh(round: u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (u64::from(now.subsec_nanos()) ^ round).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

/// What each case of the scenario `named_refused` must say.
const REFUSALS: [&str; 5] = [
    "sequence.1.1.vgas of rank 1 is missing",
    "sequence.1.1.vgas is there, but this job has 1 ranks",
    "sequence.2.2.vgas of rank 2 is missing",
    "rank 0 \"sequence\", rank 1 none",
    "is no name for a segment",
];

/// Goal: a named segment that is not whole, or not that of this job, is refused in clear words on every rank, and nothing
/// is created in its place. Method: a file is taken away and given back; jobs of fewer and more ranks; other names.
fn refused(
    folder: &Path,
    job: impl Fn(&'static str, u64, u32, u32) -> Result<(), String>,
) -> Result<(), String> {
    let names = || -> std::io::Result<Vec<_>> {
        let mut names = std::fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<Vec<_>, _>>()?;
        names.sort();
        Ok(names)
    };
    let unchanged = |case: u64, ranks, nodes| {
        let before = names().map_err(|error| error.to_string())?;
        job("named_refused", case, ranks, nodes)?;
        let after = names().map_err(|error| error.to_string())?;
        if before == after { Ok(()) } else { Err(format!("case {case} left {after:?} of {before:?}")) }
    };
    let (file, away) = (folder.join("sequence.1.1.vgas"), folder.join("away"));
    std::fs::rename(&file, &away).map_err(|error| error.to_string())?;
    unchanged(0, 2, 1)?;
    unchanged(0, 2, 2)?;
    std::fs::rename(&away, &file).map_err(|error| error.to_string())?;
    unchanged(1, 1, 1)?;
    unchanged(2, 3, 2)?;
    unchanged(3, 2, 2)?;
    unchanged(4, 2, 1)
}

/// Expects that the segment is refused on this rank, for the reason of the case.
pub fn refusal(runtime: &Runtime, case: u64) -> Outcome {
    let me = runtime.rank().0;
    let name = match (case, me) {
        (3, 1) => None,
        (4, _) => Some("a/b".to_owned()),
        _ => Some("sequence".to_owned()),
    };
    let expected = REFUSALS[case as usize];
    match runtime.attach(&SegmentOptions::tiered(BYTES).maybe_name(name)) {
        Err(error) if error.to_string().contains(expected) => Ok(()),
        other => Err(format!("{other:?} instead of {expected:?}").into()),
    }
}

/// Changes one byte of every page in a part of each segment file, in both places that a page has.
fn damage(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let mut bytes = std::fs::read(&path)?;
        let end = bytes.len();
        for place in [end - end / 8, end / 2 - end / 8] {
            (place..place + end / 16).step_by(4096).for_each(|at| bytes[at] ^= 1);
        }
        std::fs::write(&path, bytes)?;
    }
    Ok(())
}

fn attach(runtime: &Runtime) -> vgas::Result<Segment> {
    runtime.attach(&SegmentOptions::tiered(BYTES).name("sequence"))
}

fn piece(runtime: &Runtime, version: u64, offset: u64) -> Vec<u64> {
    (0..PIECE / 8).map(|word| version << 48 | u64::from(runtime.rank().0) << 40 | (offset + word)).collect()
}

fn put_all(runtime: &Runtime, version: u64) -> vgas::Result<()> {
    for offset in (0..BYTES).step_by(PIECE as usize) {
        runtime.put(GlobalAddress::tiered(runtime.rank(), offset), &piece(runtime, version, offset))?;
    }
    Ok(())
}

/// Writes a version and makes it durable.
pub fn write(runtime: &Runtime, version: u64) -> Outcome {
    attach(runtime)?;
    put_all(runtime, version)?;
    runtime.checkpoint()?;
    // Not durable, and not to be found: the job ends well, but without another checkpoint.
    runtime.put_value(GlobalAddress::tiered(runtime.rank(), 8), u64::MAX)?;
    Ok(())
}

/// Expects exactly a version, at a checkpoint after which none was complete anywhere.
pub fn verify(runtime: &Runtime, version: u64) -> Outcome {
    let reopened = attach(runtime)?.reopened().ok_or("a named segment that was made again")?;
    if reopened.checkpoint == 0 || !reopened.is_newest() {
        return Err(format!("{reopened:?}").into());
    }
    for offset in (0..BYTES).step_by(PIECE as usize) {
        let mut found = vec![0u64; PIECE as usize / 8];
        runtime.get(GlobalAddress::tiered(runtime.rank(), offset), &mut found)?;
        if found != piece(runtime, version, offset) {
            return Err(format!("offset {offset} begins with {:#x}", found[0]).into());
        }
    }
    Ok(())
}

/// Writes a version, lets most of it reach the NVMe, and kills every daemon, and with it everything, at once.
pub fn crash(runtime: &Runtime, version: u64) -> Outcome {
    attach(runtime)?;
    put_all(runtime, version)?;
    let daemon = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let daemons = runtime.all_gatherv(&daemon.to_le_bytes())?;
    if runtime.rank().0 == 0 {
        for daemon in daemons {
            let pid = Pid::from_raw(i32::from_le_bytes(daemon.as_slice().try_into()?));
            // The second rank of a node names a daemon that is gone already.
            let _ = kill_process(pid.ok_or("a rank without a daemon")?, Signal::KILL);
        }
    }
    runtime.barrier()?;
    Err("nobody was killed".into())
}

/// Expects a version where the file is whole, and an error that says so where it is not.
pub fn damaged(runtime: &Runtime, version: u64) -> Outcome {
    attach(runtime)?;
    let (mut whole, mut named) = (0u64, 0u64);
    for offset in (0..BYTES).step_by(PIECE as usize) {
        let mut found = vec![0u64; PIECE as usize / 8];
        match runtime.get(GlobalAddress::tiered(runtime.rank(), offset), &mut found) {
            Ok(()) if found == piece(runtime, version, offset) => whole += 1,
            Ok(()) => return Err(format!("offset {offset}: damaged bytes were passed on").into()),
            Err(error) if error.to_string().contains("damaged") => named += 1,
            Err(error) => return Err(error.into()),
        }
    }
    let sums = [whole, named].map(|count| runtime.all_reduce(count, |a, b| a + b));
    match sums {
        [Ok(1..), Ok(1..)] => Ok(()),
        sums => Err(format!("whole and damaged pages: {sums:?}").into()),
    }
}
