//! Cost of another node's object: reading it for the first time beside a bare message with as many bytes
//! back, large ones beside a bare stream of long messages, bringing it here to write, and dropping it where
//! it is.

use super::job::{self, Result};
use super::line::Line;
use super::report::Report;
use crate::registry::{Benchmark, Options, Parameter, Row, Setup};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vgas::{Rank, Runtime};
use vgas_objects::sync::{DArc, DMutex, Receiver, channel};
use vgas_objects::{
    DBox, HeapOptions, Objects, Portable, RunOptions, Shareable, TBox, TaskPlace, spawn_to, task,
};
use vgas_rma::message::{Payload, Source};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "objects",
    help: "Objects of another node: read for the first time, brought here, dropped, locked, beside bare messages; and tasks.",
    setup: Setup::Job { ranks: 2, nodes: 2 },
    settings: &[("cache.size", "256MiB")],
    parameters: &[Parameter { name: "samples", default: "15", help: "Samples of each figure." }],
    full: &[],
    figures: &[],
    check: |_| Ok(()),
    run,
};

const PING: u8 = 128;
const PONG: u8 = 129;
const ITEM: u8 = 130;

/// Values of a stream, through a channel and as bare messages.
const STREAMED: u64 = 50_000;
/// Room of the channel.
const ROOM: usize = 4096;

/// Objects of a sample.
const SMALL_COUNT: usize = 512;
const LARGE_COUNT: usize = 16;
const SMALL_BYTES: usize = 512;
const LARGE_BYTES: usize = 1 << 20;
/// Words of a list's node, beside the pointer to the next.
const NODE_WORDS: usize = 6;

/// Tasks that do nothing.
const TASK_COUNT: usize = 1_000_000;
/// Tasks that compute, and about how long each of them does.
const LONG_COUNT: u64 = 80;
const LONG: Duration = Duration::from_millis(2);

type Boxes<T, const N: usize> = [Option<DBox<T>>; N];
type Small = Boxes<[u64; SMALL_BYTES / 8], SMALL_COUNT>;
/// Some of each.
type Mixed = (DBox<Small>, DBox<Large>);
type Large = Boxes<[u64; LARGE_BYTES / 8], LARGE_COUNT>;

fn run(options: &Options) -> Result<Vec<Row>> {
    let pongs = Arc::new(AtomicU64::new(0));
    let counted = pongs.clone();
    let builder = Runtime::builder()
        .handler(PING, |token, arguments, _| {
            let answer = [7; SMALL_BYTES];
            token.check(token.reply(PONG, arguments, Payload::Medium(Source::of(&answer))));
        })
        .handler(ITEM, |token, arguments, _| {
            // The last of a stream is answered.
            if u64::from(arguments[0]) + 1 == STREAMED {
                token.check(token.reply(PONG, &[0, 0], Payload::Short));
            }
        })
        .handler(PONG, move |_, _, _| {
            counted.fetch_add(1, Ordering::Release);
        });
    let heap = HeapOptions { bytes: 1 << 28, copies: 1 << 22, ..HeapOptions::default() };
    job::with_objects(builder.init()?, &heap, |objects| measure(options, objects, &pongs))
}

/// A list by boxes.
#[derive(Portable, Shareable)]
struct Loose {
    value: [u64; NODE_WORDS],
    next: Option<DBox<Loose>>,
}

/// A list by boxes that are tied.
#[derive(Portable, Shareable)]
struct Tied {
    value: [u64; NODE_WORDS],
    next: Option<TBox<Tied>>,
}

/// A list of each kind, and boxes that are read together.
#[derive(Portable, Shareable)]
struct Groups {
    loose: DBox<Loose>,
    tied: DBox<Tied>,
    boxes: Small,
}

fn groups() -> DBox<Groups> {
    let value = [1; NODE_WORDS];
    let loose = (1..SMALL_COUNT).fold(None, |next, _| Some(DBox::new(Loose { value, next })));
    let tied = (1..SMALL_COUNT).fold(None, |next, _| Some(TBox::new(Tied { value, next })));
    DBox::new(Groups {
        loose: DBox::new(Loose { value, next: loose }),
        tied: DBox::new(Tied { value, next: tied }),
        boxes: std::array::from_fn(|at| Some(DBox::new([at as u64; SMALL_BYTES / 8]))),
    })
}

/// Returns the time for each object of the list by boxes, of that by tied ones, and of boxes that are read
/// together, when all are elsewhere.
fn read_groups(groups: &Groups) -> Result<[f64; 3]> {
    let loose = each(SMALL_COUNT, || {
        let all = std::iter::successors(Some(&*groups.loose), |node| node.next.as_deref());
        Ok(all.map(|node| node.value[0]).sum())
    })?;
    let tied = each(SMALL_COUNT, || {
        let all = std::iter::successors(Some(&*groups.tied), |node| node.next.as_deref());
        Ok(all.map(|node| node.value[0]).sum())
    })?;
    let boxes = each(SMALL_COUNT, || {
        Ok(DBox::read_all(groups.boxes.iter().flatten()).iter().map(|one| one[0]).sum())
    })?;
    Ok([loose, tied, boxes])
}

fn boxes<T: Portable, const N: usize>(make: impl Fn(usize) -> T) -> DBox<Boxes<T, N>> {
    DBox::new(std::array::from_fn(|at| Some(DBox::new(make(at)))))
}

fn sum<const WORDS: usize, const N: usize>(boxes: &Boxes<[u64; WORDS], N>) -> u64 {
    boxes.iter().flatten().map(|one| one[0] + one[WORDS - 1]).sum()
}

fn measure(options: &Options, objects: &Objects, pongs: &AtomicU64) -> Result<Vec<Row>> {
    let samples: usize = options.get("samples")?;
    let runtime = objects.runtime();
    job::need(runtime, 2, 2)?;
    let mut line = Line::between(runtime)?;
    let (here, there, me) = (Rank(0), Rank(1), objects.rank());
    let mut buffer = vec![1; LARGE_BYTES];
    let mut times = [const { Vec::new() }; 19];
    let mut at_once = [const { Vec::new() }; 2];
    let steps = steps_in(LONG);
    for sample in 0..=samples {
        let socket = line.ping_pong(me.0, SMALL_COUNT as u64)?;
        runtime.barrier()?;
        let stream = line.stream(me.0, &mut buffer, LARGE_COUNT as u64, false)?;
        runtime.barrier()?;
        let mut small: Option<DBox<Small>> = (me == there).then(|| boxes(|at| [at as u64; SMALL_BYTES / 8]));
        let large: Option<DBox<Large>> = (me == there).then(|| boxes(|at| [at as u64; LARGE_BYTES / 8]));
        // Between ranks that do nothing else: the receiver waits for the messages.
        let bare = objects.lend(there, small.as_ref(), |_| match me == here {
            true => each(STREAMED as usize, || {
                let expected = pongs.load(Ordering::Relaxed) + 1;
                (0..STREAMED).try_for_each(|at| runtime.request(there, ITEM, &[at as u32, 0], &[]))?;
                runtime.wait_until(|| pongs.load(Ordering::Acquire) == expected)?;
                Ok(0)
            }),
            false => Ok(0.0),
        })??;
        let reads = objects.lend(there, small.as_ref(), |small| -> Result<_> {
            if me != here {
                return Ok([0.0; 2]);
            }
            let messages = each(SMALL_COUNT, || {
                for _ in 0..SMALL_COUNT {
                    let expected = pongs.load(Ordering::Relaxed) + 1;
                    runtime.request(there, PING, &[1, 2], &[])?;
                    runtime.wait_until(|| pongs.load(Ordering::Acquire) == expected)?;
                }
                Ok(0)
            })?;
            Ok([messages, each(SMALL_COUNT, || Ok(sum(small)))?])
        })??;
        let read_large = objects.lend(there, large.as_ref(), |large| match me == here {
            true => each(LARGE_COUNT, || Ok(sum(large))),
            false => Ok(0.0),
        })??;
        // From this rank for the other, and from the other for this one: no processor is left over then.
        let mine: DBox<Mixed> =
            DBox::new((boxes(|at| [at as u64; SMALL_BYTES / 8]), boxes(|at| [at as u64; LARGE_BYTES / 8])));
        let both = objects.lend(here, (me == here).then_some(&mine), |first| {
            objects.lend(there, (me == there).then_some(&mine), |second| -> Result<_> {
                let (small, large) = if me == here { &**second } else { &**first };
                runtime.barrier()?;
                let small = each(SMALL_COUNT, || Ok(sum(small)))?;
                runtime.barrier()?;
                Ok([small, each(LARGE_COUNT, || Ok(sum(large)))?])
            })
        })???;
        drop(mine);
        let groups = (me == there).then(groups);
        let [loose, tied, all] = objects.lend(there, groups.as_ref(), |groups| match me == here {
            true => read_groups(groups),
            false => Ok([0.0; 3]),
        })??;
        drop(groups);
        let moved = objects.lend_mut(there, here, small.as_mut(), |mut small| {
            let all = &mut *small;
            each(SMALL_COUNT, || Ok(all.iter_mut().flatten().map(|one| one.get_mut()[0]).sum()))
        })?;
        let moved = moved.transpose()?.unwrap_or_default();
        drop(small);
        drop(large);
        let given = (me == there).then(|| boxes::<_, SMALL_COUNT>(|at| [at as u64; SMALL_BYTES / 8]));
        let mut given: Option<DBox<Small>> = objects.hand(there, here, given)?;
        let dropped = each(SMALL_COUNT, || {
            given = None;
            Ok(0)
        })?;
        let lock = (me == there).then(|| DBox::new((DMutex::new(0u64), DArc::new(1u64))));
        let [locked, cloned] = objects.lend(there, lock.as_ref(), |lock| -> Result<_> {
            if me != here {
                return Ok([0.0; 2]);
            }
            let locked = each(SMALL_COUNT, || {
                for _ in 0..SMALL_COUNT {
                    *lock.0.lock()? += 1;
                }
                Ok(0)
            })?;
            // The first clone draws what the others take.
            drop(lock.1.clone());
            Ok([locked, each(SMALL_COUNT, || Ok((0..SMALL_COUNT).map(|_| *lock.1.clone()).sum()))?])
        })??;
        drop(lock);
        let tasks = objects.run(&RunOptions::default(), || -> Result<_> {
            let one_by_one = |to| {
                each(SMALL_COUNT, || {
                    (0..SMALL_COUNT as u64).try_fold(0, |sum, at| {
                        Ok(sum + spawn_to(to, task!(|at: u64| -> u64 { at }), at).join()?)
                    })
                })
            };
            let together = |place: TaskPlace| {
                each(TASK_COUNT, || {
                    let add = task!(|at: u64| -> u64 { at });
                    let all: Vec<_> = (0..TASK_COUNT as u64).map(|at| spawn_to(place, add, at)).collect();
                    all.into_iter().try_fold(0, |sum, one| Ok(sum + one.join()?))
                })
            };
            let compute = task!(|steps: u64| -> u64 { count(steps) });
            let alone = each(1, || Ok(count(steps * LONG_COUNT / 4)))? * 4.0;
            let spread = each(1, || {
                let all: Vec<_> =
                    (0..LONG_COUNT).map(|_| spawn_to(TaskPlace::Anywhere, compute, steps)).collect();
                all.into_iter().try_fold(0, |sum, one| Ok(sum ^ one.join()?))
            })?;
            let (own, any) = (together(TaskPlace::Rank(here))?, together(TaskPlace::Anywhere)?);
            let (sender, receiver) = channel::<u64>(ROOM);
            let sum = task!(|receiver: Receiver<u64>| -> u64 { receiver.iter().sum() });
            let receives = spawn_to(there, sum, receiver);
            let streamed = each(STREAMED as usize, || {
                (0..STREAMED).try_for_each(|number| sender.send(number))?;
                drop(sender);
                Ok(receives.join()?)
            })?;
            Ok([one_by_one(there)?, one_by_one(here)?, own, any, spread / (alone / 2.0), streamed])
        })?;
        let tasks = tasks.transpose()?.unwrap_or_default();
        objects.barrier()?;
        objects.drop_copies()?;
        if sample > 0 {
            let rate = |nanoseconds: f64| LARGE_BYTES as f64 / nanoseconds;
            let streamed = rate(stream.as_nanos() as f64 / LARGE_COUNT as f64);
            let [elsewhere, own, together, anywhere, spread, sent] = tasks;
            let [messages, small] = reads;
            let large = rate(read_large);
            let found = [
                small, messages, socket, moved, dropped, large, streamed, elsewhere, own, together, anywhere,
                spread, locked, cloned, sent, bare, loose, tied, all,
            ];
            times.iter_mut().zip(found).for_each(|(all, time)| all.push(time));
            at_once.iter_mut().zip([both[0], rate(both[1])]).for_each(|(all, one)| all.push(one));
        }
    }
    if me != here {
        return Ok(Vec::new());
    }
    let [
        reads,
        messages,
        socket,
        moved,
        dropped,
        large,
        stream,
        elsewhere,
        own,
        together,
        anywhere,
        spread,
        locked,
        cloned,
        sent,
        bare,
        loose,
        tied,
        all,
    ] = &times;
    let [small_at_once, large_at_once] = at_once;
    let mut report = Report::new("objects").under("conduit", line.name());
    let latency = ["latency", "ns"];
    let case = "read of 512 B, not here yet";
    report.compare(latency, (case, reads), ("message, and 512 B back", messages));
    report.add("bare ping-pong of 8 B", "latency", "ns", socket.clone());
    report.ratio((case, reads), ("bare ping-pong of 8 B", socket));
    report.add("read of 512 B, not here yet, of both nodes at once", "latency", "ns", small_at_once);
    report.add("read of 1 MiB, not here yet, of both nodes at once", "rate", "GB/s", large_at_once);
    let case = "each of 512 objects of 512 B, read together";
    report.compare(latency, (case, all), ("read of 512 B, not here yet", reads));
    let case = "each of a list of 512 nodes of 64 B, tied to each other";
    report.compare(latency, (case, tied), ("each of such a list by boxes", loose));
    report.add("write of 512 B, which moves here", "latency", "ns", moved.clone());
    report.add("drop of 512 B there", "latency", "ns", dropped.clone());
    let case = "task on a rank of another node, and its result";
    report.add(case, "latency", "ns", elsewhere.clone());
    report.ratio((case, elsewhere), ("message, and 512 B back", messages));
    report.add("task on this rank, and its result", "latency", "ns", own.clone());
    report.add("each of 10⁶ tasks on this rank", "latency", "ns", together.clone());
    report.add("each of 10⁶ tasks that may run anywhere", "latency", "ns", anywhere.clone());
    let case = "80 tasks of 2 ms, begun on one of two nodes, over half of their time";
    report.add(case, "ratio", "", spread.clone());
    let case = "lock of another node, taken with its value and given back";
    report.add(case, "latency", "ns", locked.clone());
    report.ratio((case, locked), ("message, and 512 B back", messages));
    report.add("counted value of another node, cloned and dropped", "latency", "ns", cloned.clone());
    let case = "each of a stream of values through a channel to another node";
    report.compare(latency, (case, sent), ("each of a stream of bare messages", bare));
    report.compare(["rate", "GB/s"], ("read of 1 MiB, not here yet", large), ("bare stream", stream));
    Ok(report.into_rows())
}

/// Something to do, of so many steps.
fn count(steps: u64) -> u64 {
    (0..steps).fold(1, |number: u64, step| {
        std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) ^ step)
    })
}

/// Steps that take about as long.
fn steps_in(time: Duration) -> u64 {
    let start = Instant::now();
    let mut steps = 0;
    while start.elapsed() < 4 * time {
        std::hint::black_box(count(10_000));
        steps += 10_000;
    }
    steps / 4
}

/// Nanoseconds of each of so many.
fn each(count: usize, deed: impl FnOnce() -> Result<u64>) -> Result<f64> {
    let start = Instant::now();
    std::hint::black_box(deed()?);
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}
