//! Heaps over several jobs: what was kept under names at a checkpoint is what the next job finds, and nothing else takes room for ever.

use crate::scenarios::{ensure, nothing_is_left};
use crate::{HEAP, Outcome, run_job};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Signal, getpid, kill_process};
use std::path::Path;
use std::time::Duration;
use vgas::{GlobalAddress, Rank, Runtime, SegmentOptions};
use vgas_objects::sync::{DArc, DCondvar, DMutex, Receiver, Sender, channel};
use vgas_objects::{DBox, HeapOptions, ObjectError, Objects, Portable, Shareable, heaps_at_rest};

/// What a rank does in one of the jobs, which says how often the heap was changed before.
type Part = fn(Runtime, u64) -> Outcome;

const PARTS: &[(&str, Part)] = &[
    ("kept_begin", begin),
    ("kept_change", change),
    ("kept_crash", crash),
    ("kept_misread", misread),
    ("kept_builds", builds),
    ("kept_use_up", use_up),
    ("kept_other_heap", other_heap),
    ("kept_small_heap", small_heap),
    ("kept_plain", plain),
    ("kept_no_heap", no_heap),
    ("kept_locks_close", close_locks),
    ("kept_locks_open", open_locks),
];

pub fn part(name: &str) -> Option<Part> {
    PARTS.iter().find(|(other, _)| *other == name).map(|(_, part)| *part)
}

/// The exit status of a job that was refused its heap, as it should be.
const REFUSED: i32 = 42;

pub const NAME: &str = "kept";

/// Goal: what was kept is found by later jobs, of other numbers of nodes, too, as it was at the last checkpoint, also after a job was
/// killed; what is no such heap or of another type is refused by name. Method: jobs one after the other over one folder.
pub fn sequence() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let directory = folder.path().display().to_string();
    let job = |name: &str, changes: u64, nodes: u32| {
        let more = [("nvm.directory", directory.clone())];
        run_job(name, changes, 2, nodes, &more).map_err(|error| format!("{name} {changes}: {error}"))
    };
    let refused = |name| match job(name, 0, 1) {
        Err(why) if why.contains(&format!("status {REFUSED}")) => Ok(()),
        other => Err(format!("{name} ended as {other:?}")),
    };
    job("kept_begin", 0, 1)?;
    for changes in 0..6 {
        job("kept_change", changes, 1 + changes as u32 % 2)?;
    }
    match job("kept_crash", 6, 2) {
        Err(why) if why.contains("killed by signal 9") => {}
        other => return Err(format!("the crash ended as {other:?}")),
    }
    job("kept_change", 6, 2)?;
    at_rest(folder.path()).map_err(|error| error.to_string())?;
    job("kept_misread", 7, 1)?;
    refused("kept_other_heap")?;
    refused("kept_small_heap")?;
    job("kept_use_up", 7, 2)?;
    job("kept_plain", 0, 1)?;
    let looked = heaps_at_rest(folder.path(), Some("plain")).map(drop).map_err(|error| error.to_string());
    if !looked.as_ref().is_err_and(|why| why.contains("not a heap") && !why.contains('\n')) {
        return Err(format!("a segment of bytes is looked at as a heap: {looked:?}"));
    }
    let all = heaps_at_rest(folder.path(), None).map_err(|error| error.to_string())?;
    if all.len() != 1 || all[0].name != "heap" {
        return Err(format!("{} heaps", all.len()));
    }
    refused("kept_no_heap")?;
    for nodes in [1, 2] {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let more = [("nvm.directory", folder.path().display().to_string())];
        run_job("kept_locks_close", 0, 2, 2, &more)?;
        run_job("kept_locks_open", 0, 2, nodes, &more).map_err(|error| format!("{nodes} nodes: {error}"))?;
    }
    // What the first build keeps, the second one asks for.
    job("kept_builds", 0, 1)?;
    job("kept_builds", 1, 1)
}

/// Goal: who looks at a heap at rest is told what is in it, and changes nothing; of damaged files, whatever is damaged, told so in a
/// line, or nothing that matters.
fn at_rest(folder: &Path) -> Outcome {
    let heap = &heaps_at_rest(folder, Some("heap"))?[0];
    ensure(heap.partitions.len() == 2, || format!("{heap:?}"))?;
    for (rank, of) in (0..).zip(&heap.partitions) {
        let names: Vec<&str> = of.roots.iter().map(|root| &root.name[..]).collect();
        let is_known = of.rank == rank && of.bytes == HEAP.bytes && of.objects >= NODES as u64;
        let of_values: u64 = of.sizes.iter().map(|size| size.total_bytes).sum();
        ensure(is_known && names.contains(&"list") && of_values + of.free_bytes == of.used_bytes, || {
            format!("{of:?}")
        })?;
        let list = of.roots.iter().find(|root| root.name == "list").map(|root| root.layout.join(" "));
        ensure(list.is_some_and(|layout| layout.contains("Node: 144 bytes")), || format!("{:?}", of.roots))?;
    }
    let nowhere = heaps_at_rest(folder, Some("other")).map(drop);
    ensure(nowhere.is_err_and(|why| why.to_string().contains("holds no heap")), || "it is found".into())?;
    let other = tempfile::tempdir()?;
    let path = other.path().join("heap.0.0.vgas");
    let mut random = ChaCha8Rng::seed_from_u64(heap.partitions[0].checkpoint);
    let whole = std::fs::read(&heap.partitions[0].file)?;
    for round in 0..60 {
        let mut bytes = whole.clone();
        match round % 3 {
            0 => bytes.truncate(random.random_range(0..bytes.len())),
            1 => (0..50).for_each(|_| {
                let at = random.random_range(0..1 << 16);
                bytes[at] ^= 1 << random.random_range(0..8);
            }),
            _ => {
                let at = random.random_range(0..1 << 16);
                bytes[at..at + 64].copy_from_slice(&std::array::from_fn::<u8, 64, _>(|_| random.random()));
            }
        }
        std::fs::write(&path, &bytes)?;
        let looked = heaps_at_rest(other.path(), Some("heap")).map(drop).map_err(|why| why.to_string());
        let is_told = looked.as_ref().map_or_else(|why| !why.contains('\n') && !why.is_empty(), |()| true);
        ensure(is_told && (round % 3 > 0 || looked.is_err()), || format!("round {round}: {looked:?}"))?;
    }
    Ok(())
}

#[derive(Portable, Shareable)]
struct Node {
    number: u64,
    data: [u32; 30],
    next: Option<DBox<Node>>,
}

const NODES: usize = 300;

fn attach(runtime: Runtime) -> Result<Objects, Box<dyn std::error::Error>> {
    // SAFETY: the jobs of this test alone have the folder, and none has threads.
    Ok(unsafe { Objects::attach_named(&runtime, &HEAP, "heap") }?)
}

/// What a rank's list has after so many changes.
fn numbers(rank: Rank, changes: u64) -> Vec<u64> {
    let mut random = ChaCha8Rng::seed_from_u64(rank.0.into());
    let mut numbers: Vec<u64> = (0..NODES).map(|_| random.random()).collect();
    for _ in 0..changes {
        let at = random.random_range(0..NODES);
        numbers[at] = numbers[at].wrapping_mul(3);
        numbers.rotate_left(1);
    }
    numbers
}

fn list(numbers: &[u64]) -> Option<DBox<Node>> {
    numbers
        .iter()
        .rev()
        .fold(None, |next, &number| Some(DBox::new(Node { number, data: [number as u32; 30], next })))
}

fn read(list: &Option<DBox<Node>>) -> Vec<u64> {
    let all = std::iter::successors(list.as_deref(), |node| node.next.as_deref());
    all.filter(|node| node.data == [node.number as u32; 30]).map(|node| node.number).collect()
}

fn end(objects: Objects) -> Outcome {
    Ok(objects.finalize()?)
}

/// Each rank keeps a list that the other has made, so that it lies there.
fn begin(runtime: Runtime, _: u64) -> Outcome {
    let objects = attach(runtime)?;
    let (me, other) = (objects.rank(), Rank(1 - objects.rank().0));
    ensure(objects.reopened().is_none() && objects.root_names().is_empty(), || "something was there".into())?;
    let made = || list(&numbers(other, 0));
    let own = match me {
        Rank(0) => {
            let own = objects.hand(Rank(1), me, None)?;
            objects.hand(me, other, made())?;
            own
        }
        _ => {
            objects.hand(me, other, made())?;
            objects.hand(Rank(0), me, None)?
        }
    };
    // Copies, which are nobody's in the next job.
    ensure(read(&own) == numbers(me, 0), || "another list".into())?;
    keep(&objects, "list", own)?;
    let small = DBox::new(7u8);
    objects.keep("small", small).map_err(|refused| refused.why.to_string())?;
    let again = objects.keep("small", DBox::new(8u8));
    ensure(again.is_err_and(|refused| *refused.value == 8), || "a name was given twice".into())?;
    objects.checkpoint()?;
    // What comes after it is lost.
    let small: Option<DBox<u8>> = objects.root("small")?;
    drop(small);
    end(objects)
}

fn keep(objects: &Objects, name: &str, list: Option<DBox<Node>>) -> Outcome {
    let list = list.ok_or("an empty list")?;
    Ok(objects.keep(name, list).map_err(|refused| refused.why.to_string())?)
}

/// Finds what was kept, and changes it everywhere: some nodes come here, some are new.
fn change(runtime: Runtime, changes: u64) -> Outcome {
    let objects = attach(runtime)?;
    let me = objects.rank();
    ensure(objects.reopened().is_some_and(|reopened| reopened.checkpoint == changes + 1), || {
        format!("{:?}", objects.reopened())
    })?;
    ensure(objects.root_names() == ["small", "list"] || objects.root_names() == ["list", "small"], || {
        format!("{:?}", objects.root_names())
    })?;
    let mut own: Option<DBox<Node>> = objects.root("list")?;
    ensure(read(&own) == numbers(me, changes), || format!("{me} has another list after {changes} changes"))?;
    let garbage: Vec<_> = (0..50).map(|at| DBox::new([at; 100])).collect();
    let now = numbers(me, changes + 1);
    let first = own.as_mut().and_then(|node| node.next.take());
    drop(std::mem::replace(&mut own, first));
    let mut node = own.as_mut();
    for number in &now[..now.len() - 1] {
        let Some(this) = node else { return Err("the list is shorter".into()) };
        if this.number != *number {
            (this.number, this.data) = (*number, [*number as u32; 30]);
        }
        if this.next.is_none() {
            this.next = list(&now[now.len() - 1..]);
        }
        node = this.next.as_mut();
    }
    let found = read(&own);
    let differs = (0..found.len().max(now.len())).find(|&at| found.get(at) != now.get(at));
    ensure(differs.is_none(), || format!("{me} differs at {differs:?} of {}", found.len()))?;
    drop(garbage);
    keep(&objects, "list", own)?;
    objects.barrier()?;
    objects.drop_copies()?;
    let placed = objects.counts()?.placed;
    // The list, a byte, and what says where they are: nothing of earlier jobs.
    ensure(placed == NODES as u64 + 3, || format!("{placed} objects of {me} are placed"))?;
    objects.checkpoint()?;
    end(objects)
}

/// A job that changes all, and is killed.
fn crash(runtime: Runtime, changes: u64) -> Outcome {
    let objects = attach(runtime)?;
    let mut own: Option<DBox<Node>> = objects.root("list")?;
    ensure(read(&own) == numbers(objects.rank(), changes), || "another list".into())?;
    let mut node = own.as_mut();
    while let Some(this) = node {
        this.number = 0;
        node = this.next.as_mut();
    }
    objects.barrier()?;
    if objects.rank() == Rank(1) {
        kill_process(getpid(), Signal::KILL)?;
    }
    objects.barrier()?;
    Ok(())
}

mod changed {
    use super::{DBox, Portable, Shareable};

    #[derive(Portable, Shareable)]
    pub struct Node {
        number: u64,
        data: [u32; 31],
        next: Option<DBox<Node>>,
    }
}

/// What is kept as one type is not read as another, and stays.
fn misread(runtime: Runtime, changes: u64) -> Outcome {
    let objects = attach(runtime)?;
    let refused = objects.root::<changed::Node>("list");
    let Err(ObjectError::Layout(other)) = refused else { return Err(format!("{refused:?}").into()) };
    ensure(other.why.contains("changed::Node"), || other.to_string())?;
    ensure(objects.root::<u16>("small").is_err(), || "a byte was read as two".into())?;
    ensure(objects.root::<u8>("other")?.is_none(), || "there is no such name".into())?;
    let own: Option<DBox<Node>> = objects.root("list")?;
    ensure(read(&own) == numbers(objects.rank(), changes), || "another list".into())?;
    objects.barrier()?;
    end(objects)
}

/// Keeps a value of a type, or, as a later build, asks for it as another type of the same name.
macro_rules! build {
    ($objects:ident, $is_later:ident, $name:literal, [$($before:item)*] $value:expr, [$($after:item)*] $words:literal) => {
        match $is_later {
            false => {
                #[allow(dead_code, unused_imports, reason = "the layout matters")]
                mod build {
                    use super::{DBox, Portable, Shareable};
                    $($before)*
                    pub fn value() -> State {
                        $value
                    }
                }
                let kept = $objects.keep($name, DBox::new(build::value()));
                kept.map_err(|refused| refused.why.to_string())?;
                drop($objects.root::<build::State>($name)?.map(|state| $objects.keep($name, state)));
            }
            true => {
                #[allow(dead_code, unused_imports, reason = "the layout matters")]
                mod build {
                    use super::{DBox, Portable, Shareable};
                    $($after)*
                }
                is_refused($objects.root::<build::State>($name).map(|_| ()), $words)?;
            }
        }
    };
}

fn is_refused(asked: Result<(), ObjectError>, words: &str) -> Outcome {
    let why = asked.map_err(|error| error.to_string());
    ensure(why.as_ref().is_err_and(|why| why.contains(words) && !why.contains('\n')), || {
        format!("{words:?}: {why:?}")
    })
}

/// Goal: a later build reads what an earlier one has kept only if each type in it is what it was. Method: two modules of one path, as two
/// builds have them; the job keeps values of the first, and the next one asks for the second.
fn builds(runtime: Runtime, is_later: u64) -> Outcome {
    // SAFETY: as for all jobs here.
    let objects = unsafe { Objects::attach_named(&runtime, &HEAP, "builds") }?;
    builds_of(&objects, is_later == 1)?;
    types_of_one_name(&objects, is_later == 1)?;
    objects.checkpoint()?;
    end(objects)
}

fn builds_of(objects: &Objects, is_later: bool) -> Outcome {
    build!(objects, is_later, "one variant fewer",
        [#[derive(Portable, Shareable)] pub enum State { Idle, Busy, Dead }] State::Dead,
        [#[derive(Portable, Shareable)] pub enum State { Idle, Busy }] "Dead = 2");
    build!(objects, is_later, "variants in another order",
        [#[derive(Portable, Shareable)] pub enum State { First, Second }] State::First,
        [#[derive(Portable, Shareable)] pub enum State { Second, First }] "Second = 0, First = 1\", and was");
    build!(objects, is_later, "another discriminant",
        [#[derive(Portable, Shareable)] #[repr(u8)] pub enum State { Idle, Busy = 7 }] State::Busy,
        [#[derive(Portable, Shareable)] #[repr(u8)] pub enum State { Idle, Busy = 8 }] "Busy = 7");
    build!(objects, is_later, "another representation",
        [#[derive(Portable, Shareable)] #[repr(u8)] pub enum State { Of(u8, u32), None }] State::Of(1, 2),
        [#[derive(Portable, Shareable)] #[repr(C)] pub enum State { Of(u8, u32), None }] "as u8");
    build!(objects, is_later, "variants of a field, in an option",
        [
            #[derive(Portable, Shareable)] pub enum Kind { Small(u8), Large(u8) }
            #[derive(Portable, Shareable)] pub struct State { of: Option<Kind> }
        ] State { of: Some(Kind::Large(1)) },
        [
            #[derive(Portable, Shareable)] pub enum Kind { Large(u8), Small(u8) }
            #[derive(Portable, Shareable)] pub struct State { of: Option<Kind> }
        ] "Kind: 2 bytes");
    build!(objects, is_later, "a box in place of a number, behind a box",
        [
            #[derive(Portable, Shareable)] pub struct Inner { at: u64, more: u64 }
            #[derive(Portable, Shareable)] pub struct State { of: DBox<Inner> }
        ] State { of: DBox::new(Inner { at: 0x4141, more: 0 }) },
        [
            #[derive(Portable, Shareable)] pub struct Inner { at: DBox<u64> }
            #[derive(Portable, Shareable)] pub struct State { of: DBox<Inner> }
        ] "DBox<u64>");
    build!(objects, is_later, "parts of a tuple",
        [#[derive(Portable, Shareable)] pub struct State((u32, i32), u8);] State((1, 2), 3),
        [#[derive(Portable, Shareable)] pub struct State((i32, u32), u8);] "(i32, u32)");
    Ok(())
}

/// Two types with one name are told apart within a job, and not kept together.
fn types_of_one_name(objects: &Objects, is_later: bool) -> Outcome {
    {
        #[derive(Portable, Shareable)]
        struct Inner(u64);
        type First = Inner;
        if !is_later {
            objects.keep("of one name", DBox::new(Inner(7))).map_err(|refused| refused.why.to_string())?;
        }
        {
            #[derive(Portable, Shareable)]
            struct Inner(u64);
            if !is_later {
                is_refused(objects.root::<Inner>("of one name").map(|_| ()), "another type of this name")?;
            }
            let both = objects.keep("both", DBox::new((First { 0: 1 }, Inner(2))));
            let both = both.map_err(|refused| (refused.value.0.0, refused.value.1.0, *refused.why));
            let Err((1, 2, why)) = both else { return Err("an ambiguous type was kept".into()) };
            is_refused(Err(why), "two types in it are named")?;
            is_refused(
                objects.root::<[(First, Inner); 1]>("of one name").map(|_| ()),
                "two types in it are named",
            )?;
        }
        let kept = objects.root::<Inner>("of one name")?.ok_or("it is gone")?;
        ensure(kept.0 == 7, || "it is another".into())?;
        objects.keep("of one name", kept).map_err(|refused| refused.why.to_string())?;
    }
    Ok(())
}

/// A heap with other options than it was made with.
fn other_heap(runtime: Runtime, _: u64) -> Outcome {
    refused(runtime, &HeapOptions { last_colour: 9, ..HEAP }, "heap", "65535 colours, not 9")
}

/// A heap without room for a slab.
fn small_heap(runtime: Runtime, _: u64) -> Outcome {
    refused(runtime, &HeapOptions { bytes: 0, ..HEAP }, "heap", "HeapOptions::bytes is 0")
}

/// A segment of bytes.
fn plain(runtime: Runtime, _: u64) -> Outcome {
    runtime.attach(&SegmentOptions::tiered(HEAP.bytes).name("plain"))?;
    runtime.put_value(GlobalAddress::tiered(runtime.rank(), 8), 1u64)?;
    runtime.checkpoint()?;
    Ok(runtime.finalize()?)
}

fn no_heap(runtime: Runtime, _: u64) -> Outcome {
    refused(runtime, &HEAP, "plain", "not a heap")
}

fn refused(runtime: Runtime, options: &HeapOptions, name: &str, words: &str) -> Outcome {
    // SAFETY: as for all jobs here.
    let heap = unsafe { Objects::attach_named(&runtime, options, name) };
    let why = heap.map(drop).map_err(|error| error.to_string());
    ensure(why.as_ref().is_err_and(|why| why.contains(words)), || format!("{why:?}"))?;
    std::process::exit(REFUSED)
}

/// When all that was kept is dropped, nothing is left: slots of earlier jobs are all free.
fn use_up(runtime: Runtime, changes: u64) -> Outcome {
    let objects = attach(runtime)?;
    let own: Option<DBox<Node>> = objects.root("list")?;
    ensure(read(&own) == numbers(objects.rank(), changes), || "another list".into())?;
    drop(own);
    drop(objects.root::<u8>("small")?);
    objects.barrier()?;
    nothing_is_left(&objects)?;
    // All of its room can be had again, as far as slots of 8 KiB fill slabs.
    let mut large = Vec::new();
    while let Ok(one) = DBox::try_new([7u64; 1000]) {
        large.push(one);
    }
    let bytes = large.len() as u64 * 8000;
    ensure(bytes > HEAP.bytes * 84 / 100, || format!("only {bytes} bytes can be used"))?;
    drop(large);
    end(objects)
}

/// The heap of the jobs about locks.
fn attach_locks(runtime: Runtime) -> Result<Objects, Box<dyn std::error::Error>> {
    // SAFETY: as of `attach`.
    Ok(unsafe { Objects::attach_named(&runtime, &HEAP, "locks") }?)
}

type SharedLock = DArc<DMutex<Option<DBox<u64>>>>;

fn keep_any<T: Portable>(objects: &Objects, name: &str, value: T) -> Outcome {
    Ok(objects.keep(name, DBox::new(value)).map_err(|refused| refused.why.to_string())?)
}

/// Goal: no checkpoint is taken while a rank holds a lock, of its own or another node, or has forgotten a guard: what was taken out of the lock would
/// have two owners in the next job. All ranks hear which rank holds which lock.
fn close_locks(runtime: Runtime, _: u64) -> Outcome {
    let objects = attach_locks(runtime)?;
    let me = objects.rank();
    let refused = |holder: u32, owner: u32| match objects.checkpoint() {
        Err(ObjectError::LockHeld { holder: Rank(by), owner: Rank(of), .. })
            if (by, of) == (holder, owner) =>
        {
            Ok(())
        }
        other => Err(format!("{me}: a checkpoint with a lock of {owner} held by {holder}: {other:?}")),
    };
    let (first, second) = (Rank(0), Rank(1));
    if me == first {
        let lock: SharedLock = DArc::new(DMutex::new(Some(DBox::new(1))));
        objects.hand::<SharedLock>(first, second, Some(DBox::new(lock.clone())))?;
        keep_any(&objects, "lock", lock)?;
        refused(1, 0)?;
        objects.checkpoint()?;
        let lock = DMutex::new(DBox::new(5u64));
        std::mem::forget(lock.lock()?);
        std::mem::forget(lock);
    } else {
        let lock = objects.hand::<SharedLock>(first, second, None)?.ok_or("no lock")?.into_inner();
        let mut guard = lock.lock()?;
        let taken = guard.take().ok_or("an empty lock")?;
        objects.keep("box", taken).map_err(|refused| refused.why.to_string())?;
        let turn = (DMutex::new(0u64), DCondvar::new());
        drop(turn.1.wait_timeout(turn.0.lock()?, Duration::from_millis(1))?);
        keep_any(&objects, "turn", turn)?;
        let (sender, receiver) = channel::<DBox<u64>>(4);
        sender.send(DBox::new(7)).map_err(|_| "nobody receives")?;
        keep_any(&objects, "sender", sender)?;
        keep_any(&objects, "receiver", receiver)?;
        refused(1, 0)?;
        // A released value is part of the next checkpoint, at once.
        drop(guard);
        objects.checkpoint()?;
    }
    refused(0, 0)?;
    end(objects)
}

/// Goal: what was taken out of a lock has one owner in the next job; conditions and ends of channels that were kept are of use, or say that they are
/// closed, though their node is gone.
fn open_locks(runtime: Runtime, _: u64) -> Outcome {
    let objects = attach_locks(runtime)?;
    if objects.rank() == Rank(0) {
        let lock = objects.root::<SharedLock>("lock")?.ok_or("no lock")?.into_inner();
        let found = lock.try_lock()?.ok_or("the lock is held")?.take();
        ensure(found.is_none(), || format!("a box has two owners: {found:?}"))?;
    } else {
        let own = objects.root::<u64>("box")?.ok_or("no box")?;
        ensure(*own == 1, || format!("{own} is not 1"))?;
        let turn = objects.root::<(DMutex<u64>, DCondvar)>("turn")?.ok_or("no condition")?.into_inner();
        turn.1.notify_all();
        let (guard, waited) = turn.1.wait_timeout(turn.0.lock()?, Duration::from_millis(1))?;
        ensure(waited.timed_out() && *guard == 0, || "somebody has notified".into())?;
        turn.1.notify_all();
        drop(guard);
        let sender = objects.root::<Sender<DBox<u64>>>("sender")?.ok_or("no sender")?.into_inner();
        let receiver = objects.root::<Receiver<DBox<u64>>>("receiver")?.ok_or("no receiver")?.into_inner();
        for sender in [sender.clone(), sender] {
            // The first may be on its way before its home says so.
            sender.send_checked(DBox::new(8))?;
            ensure(!sender.flush()?, || "a channel of an earlier job takes values".into())?;
        }
        let received = receiver.recv_checked()?;
        ensure(received.is_none(), || format!("{received:?} was received of an earlier job"))?;
    }
    objects.barrier()?;
    end(objects)
}
