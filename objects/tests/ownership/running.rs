//! Jobs that are looked at from outside while they run.

use crate::scenarios::{ensure, nothing_is_left};
use crate::{HEAP, NOTICED_WITHIN, Outcome, run_job};
use rustix::process::{Signal, Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;
use vgas::{Rank, Runtime};
use vgas_objects::{
    DBox, DVec, HeapRunning, Objects, PartitionRunning, Portable, RunningError, Shareable, heaps_running,
};
use vgas_testing::{kill, until};

pub const NAME: &str = "looked_at";

type Part = fn(Runtime, u64) -> Outcome;

/// A job that only begins and ends, to see whether such can be here.
const TRIAL: &str = "looked_at_trial";

pub fn part(name: &str) -> Option<Part> {
    match name {
        NAME => Some(be_looked_at),
        TRIAL => Some(|runtime, _| Ok(runtime.finalize()?)),
        _ => None,
    }
}

/// What whoever looks says to the ranks, as names of files in the job's folder.
const SEEN: &str = "seen";
const ENOUGH: &str = "enough";

/// Longer than anything here takes.
const WITHIN: Duration = Duration::from_secs(60);

const MEASURES: usize = 40;
const ROUNDS: usize = 100;

#[derive(Portable, Shareable)]
struct Measure {
    number: u64,
    values: [u64; 28],
}

fn measure(number: u64) -> DBox<Measure> {
    DBox::new(Measure { number, values: [number; 28] })
}

/// Goal: who looks at a running job is told what its program knows, rank by rank: objects by size, copies by type and by whose they are,
/// and what homes have served. A rank that is stopped is named and keeps nobody waiting; the job is none the worse for being looked at
/// while it makes, passes on and drops objects, and cannot be found any more when it has ended. Another user is told nothing. Method: this
/// process, which has started the job, looks; files tell the ranks when to go on; once more with networks of the nodes' own.
pub fn sequence() -> Result<(), String> {
    job_is_looked_at(&[])?;
    let networks = [("cluster.netns", "on".to_owned())];
    match run_job(TRIAL, 0, 4, 2, &networks) {
        Ok(()) => job_is_looked_at(&networks),
        Err(why) => {
            println!("skipped {NAME} in networks of its nodes' own: {why}");
            Ok(())
        }
    }
}

fn job_is_looked_at(more: &[(&'static str, String)]) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let more = [more, &[("nvm.directory", folder.path().display().to_string())]].concat();
    std::thread::scope(|scope| {
        let job = scope.spawn(|| run_job(NAME, 0, 4, 2, &more));
        let looked = look(folder.path()).map_err(|error| error.to_string());
        // Also when something is wrong: the ranks wait for these.
        let said = [SEEN, ENOUGH].map(|name| std::fs::write(folder.path().join(name), ""));
        let ended = job.join().map_err(|_| "the launcher has panicked".to_owned())?;
        said.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        looked.and(ended)
    })?;
    match heaps_running(Some(std::process::id())) {
        Err(RunningError::NoSuchJob { .. }) => Ok(()),
        other => Err(format!("after its end: {other:?}")),
    }
}

/// A thread of another user finds nothing, and is answered nothing where it asks nevertheless.
fn others_are_told_nothing(job: &str) -> Outcome {
    if !geteuid().is_root() {
        println!("skipped {NAME} by another user: only root can become one");
        return Ok(());
    }
    let (found, answer) = std::thread::scope(|scope| {
        let other = scope.spawn(|| -> std::io::Result<_> {
            let nobody = Uid::from_raw(65534);
            set_thread_res_uid(nobody, nobody, nobody)?;
            let mut answer = Vec::new();
            let door = SocketAddr::from_abstract_name(format!("vgas-objects.{job}.0"))?;
            // None where the ranks have networks of their own.
            if let Ok(mut door) = UnixStream::connect_addr(&door) {
                door.read_to_end(&mut answer)?;
            }
            Ok((heaps_running(None), answer))
        });
        other.join().map_err(|_| std::io::Error::other("it has panicked"))
    })??;
    // A job beside this one may have ended just then.
    ensure(matches!(found, Err(RunningError::Nothing | RunningError::Ended)), || {
        format!("another user finds {found:?}")
    })?;
    ensure(answer.is_empty(), || format!("another user is told {} bytes", answer.len()))
}

fn own_job() -> Option<HeapRunning> {
    heaps_running(Some(std::process::id())).ok()?.into_iter().next()
}

fn look(folder: &Path) -> Outcome {
    let are_there = |heap: &HeapRunning| {
        let copies: Vec<u64> = heap.partitions.iter().map(|of| of.report.copies).collect();
        // The first rank may have told of its node before the others had read all.
        copies == [0, 41, 41, 41] && heap.homes.first().is_some_and(|of| of.report.reads >= 41)
    };
    let heap = until(WITHIN, || own_job().filter(are_there)).ok_or_else(|| format!("{:?}", own_job()))?;
    is_as_the_program_knows(&heap)?;
    others_are_told_nothing(&heap.job)?;
    let (stopped, others) = (heap.partitions[3].process, [0, 1, 2]);
    kill(stopped.cast_signed(), Signal::STOP);
    let mut took = Duration::ZERO;
    // It stops some time after it was told to.
    let without = until(WITHIN, || {
        let began = std::time::Instant::now();
        let heap = own_job();
        took = began.elapsed();
        heap.filter(|heap| !heap.silent.is_empty())
    });
    kill(stopped.cast_signed(), Signal::CONT);
    let without = without.ok_or("a rank was stopped, and nothing is said of it")?;
    let seen: Vec<u32> = without.partitions.iter().map(|of| of.rank).collect();
    let silent: Vec<_> = without.silent.iter().map(|of| (of.rank, of.process)).collect();
    ensure(
        seen == others && silent == [(3, Some(stopped))] && without.silent[0].why.contains("stopped"),
        || format!("{without:?}"),
    )?;
    ensure(took < NOTICED_WITHIN, || format!("it took {took:.1?}"))?;
    until(WITHIN, || own_job().filter(are_there)).ok_or("it does not go on")?;
    let of_nobody = heaps_running(Some(u32::MAX)).map(drop).map_err(|why| why.to_string());
    ensure(of_nobody.as_ref().is_err_and(|why| why.starts_with("process 4294967295 is of no job")), || {
        format!("{of_nobody:?}")
    })?;
    std::fs::write(folder.join(SEEN), "")?;
    for _ in 0..ROUNDS {
        let heap = own_job().ok_or("it cannot be seen while it works")?;
        ensure(heap.partitions.len() == 4 && heap.silent.is_empty(), || format!("{heap:?}"))?;
        for of in &heap.partitions {
            let taken: u64 = of.sizes.iter().map(|size| size.bytes * size.objects).sum();
            let report = &of.report;
            let is_possible = taken <= report.partition_bytes
                && report.used_bytes <= report.partition_bytes
                && of.room_bytes <= report.partition_bytes;
            ensure(is_possible, || format!("{of:?}"))?;
        }
    }
    Ok(())
}

fn is_as_the_program_knows(heap: &HeapRunning) -> Outcome {
    ensure(
        (heap.ranks, heap.nodes) == (4, 2) && heap.silent.is_empty() && heap.elsewhere.is_empty(),
        || format!("{heap:?}"),
    )?;
    ensure(heap.program.starts_with("ownership"), || format!("it is called {}", heap.program))?;
    for (rank, of) in (0..).zip(&heap.partitions) {
        let places = (of.rank, of.node, of.report.partition_bytes, of.unseen);
        ensure(places == (rank, rank / 2, HEAP.bytes, 0), || format!("{of:?}"))?;
        let sizes: Vec<_> = of.sizes.iter().map(|size| (size.is_large, size.bytes, size.objects)).collect();
        // The row of each rank has two slabs; its room is what no slab was taken from.
        let row = (true, 128 << 10, 1);
        let expected = if rank == 0 { vec![(false, 256, 40), (false, 640, 1), row] } else { vec![row] };
        ensure(sizes == expected, || format!("rank {rank} has {sizes:?}"))?;
        let objects: u64 = expected.iter().map(|(_, _, objects)| objects).sum();
        ensure(of.report.objects == objects && of.report.retired == 0, || format!("{of:?}"))?;
        let geometry = of.report.partition_bytes - of.report.used_bytes - of.room_bytes;
        ensure(geometry < 128 << 10, || format!("{geometry} bytes are neither used nor room: {of:?}"))?;
        copies_are_known(rank, of)?;
    }
    // The second node has read all of it once, and no other has read of that.
    let reads: Vec<u64> = heap.homes.iter().map(|of| of.report.reads).collect();
    ensure(reads.len() == 2 && reads[0] >= 41 && reads[1] == 0, || format!("{:?}", heap.homes))
}

fn copies_are_known(rank: u32, of: &PartitionRunning) -> Outcome {
    let copies: Vec<_> = of.copies_of.iter().map(|of| (of.of, of.copies, of.bytes)).collect();
    if rank == 0 {
        return ensure(copies.is_empty() && of.report.copies == 0, || format!("{of:?}"));
    }
    ensure(copies == [(0, 41, of.report.copy_bytes)] && of.copies_of[0].uses >= 41, || format!("{of:?}"))?;
    let measures = of.report.types.iter().find(|of| of.name.ends_with("Measure"));
    ensure(measures.is_some_and(|of| of.copies == 40 && of.bytes == 40 * 256 && of.uses == 40), || {
        format!("{:?}", of.report.types)
    })?;
    let came = of.report.fetched + of.report.from_mates;
    ensure(came == 41, || format!("rank {rank} has made {came} copies"))
}

/// Has a row of its own and what the first rank has lent, until it was seen; then works until it is enough.
fn be_looked_at(runtime: Runtime, _: u64) -> Outcome {
    let folder = runtime.settings().nvm.directory_path();
    let is_said = |name: &str| folder.join(name).exists();
    let objects = Objects::attach(&runtime, &HEAP)?;
    let (me, first) = (objects.rank(), Rank(0));
    let row: DVec<u8> = (0..100_000).map(|at| at as u8).collect();
    let own =
        (me == first).then(|| DBox::new(std::array::from_fn::<_, MEASURES, _>(|at| measure(at as u64))));
    objects.lend(first, own.as_ref(), |measures| {
        let sum: u64 = measures.iter().map(|measure| measure.number + measure.values[27]).sum();
        ensure(sum == 39 * 40, || format!("the sum is {sum}"))?;
        let is_seen = until(WITHIN, || is_said(SEEN).then_some(())).is_some();
        ensure(is_seen, || "nobody has looked".into())
    })??;
    drop((own, row));
    loop {
        for giver in (0..objects.ranks()).map(Rank) {
            let new = (me == giver).then(|| DBox::new([measure(1), measure(2)]));
            let sum = objects.lend(giver, new.as_ref(), |two| two[0].number + two[1].values[0])?;
            ensure(sum == 3, || format!("{sum} instead of 3"))?;
            let to = Rank((giver.0 + 1) % objects.ranks());
            drop(objects.hand(giver, to, new)?);
        }
        let more = u64::from(!is_said(ENOUGH));
        if crate::job(&objects).all_reduce(more, u64::min)? == 0 {
            break;
        }
    }
    nothing_is_left(&objects)?;
    Ok(objects.finalize()?)
}
