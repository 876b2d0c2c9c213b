//! What is tested, by name.

use crate::{HEAP, JOBS, Outcome, Scenario};
use rustix::process::{Signal, getpid, kill_process};
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::{Counter, GlobalAddress, Rank, Runtime, SegmentOptions};
use vgas_objects::sync::DAtomicU64;
use vgas_objects::{
    DBox, HeapOptions, MutRef, ObjectError, Objects, Portable, Ref, RunOptions, Shareable, Word, dalloc,
    dfree, dread, dwrite, scope, task,
};
use vgas_rma::endpoint::CarrierCounts;

/// A partition of which all slots are retired soon.
pub const FEW_COLOURS: HeapOptions = HeapOptions { bytes: 1 << 20, last_colour: 2, ..HEAP };

pub const ALL: &[Scenario] = &[
    Scenario { name: "tree", jobs: JOBS, heap: HEAP, rank: tree, ends_with: None },
    Scenario {
        name: "reads_beside_sleepers",
        jobs: &[(2, 1), (2, 1), (2, 2), (4, 2)],
        heap: HeapOptions { bytes: 1 << 20, ..HEAP },
        rank: reads_beside_sleepers,
        ends_with: None,
    },
    Scenario {
        name: "colours",
        jobs: JOBS,
        heap: HeapOptions { last_colour: 2, ..HEAP },
        rank: colours,
        ends_with: None,
    },
    Scenario {
        name: "colours_within_a_run",
        jobs: &[(2, 1), (2, 2), (4, 2), (3, 3)],
        heap: FEW_COLOURS,
        rank: |objects, _seed| colours_within_a_run::<512>(objects),
        ends_with: None,
    },
    Scenario {
        name: "full",
        jobs: &[(1, 1), (2, 2)],
        heap: HeapOptions { bytes: 1 << 20, ..HEAP },
        rank: full,
        ends_with: None,
    },
    Scenario {
        name: "full_elsewhere",
        jobs: &[(2, 1), (2, 2), (3, 3), (4, 2)],
        heap: HeapOptions { bytes: 1 << 20, ..HEAP },
        rank: full_elsewhere,
        ends_with: None,
    },
    Scenario {
        name: "beyond_memory",
        jobs: &[(1, 1), (2, 2)],
        heap: HEAP,
        rank: beyond_memory,
        ends_with: None,
    },
    Scenario { name: "unwinding", jobs: JOBS, heap: HEAP, rank: unwinding, ends_with: None },
    Scenario {
        name: "messages",
        jobs: &[(2, 2)],
        heap: HeapOptions { copies: 1000, ..HEAP },
        rank: messages,
        ends_with: None,
    },
    Scenario { name: "raw_words", jobs: JOBS, heap: HEAP, rank: raw_words, ends_with: None },
    Scenario { name: "hits", jobs: JOBS, heap: HEAP, rank: hits, ends_with: None },
    Scenario {
        name: "different_calls",
        jobs: &[(2, 1), (2, 2)],
        heap: HEAP,
        rank: different_calls,
        ends_with: None,
    },
    Scenario {
        name: "killed",
        jobs: &[(2, 1), (2, 2), (3, 3)],
        heap: HEAP,
        rank: killed,
        ends_with: Some("killed by signal 9"),
    },
    Scenario {
        name: PLAIN_RANK,
        jobs: &[(2, 1), (2, 2)],
        heap: HEAP,
        rank: |_, _| Err("it has attached".into()),
        ends_with: Some("attaches a heap of objects (Objects::attach), rank 1 plain segments"),
    },
];

/// Goal: no rank has a heap's segment as a plain one, by which safe code could write into other ranks' objects.
pub const PLAIN_RANK: &str = "plain_rank";

/// The second rank of [`PLAIN_RANK`] asks for the segment that a heap has.
pub fn attach_plainly(runtime: &Runtime, heap: &HeapOptions) -> Outcome {
    let spec = SegmentOptions::tiered(heap.bytes).one_address(true).home_only(true);
    runtime.attach(&spec)?;
    runtime.put(GlobalAddress::tiered(Rank(0), 0), &[u64::MAX; 512])?;
    Err("it has written into the heap".into())
}

/// Waits until others have made a number so large: an error after as long as the loss of a rank may take to be noticed.
pub fn reaches(number: &DAtomicU64, wanted: u64) -> Outcome {
    let reached = vgas_testing::until(crate::NOTICED_WITHIN, || match number.load() {
        Ok(found) if found < wanted => None,
        found => Some(found),
    });
    reached.ok_or("others have not begun")?.map(drop).map_err(Into::into)
}

pub fn ensure(is_so: bool, what: impl Fn() -> String) -> Outcome {
    if is_so { Ok(()) } else { Err(what().into()) }
}

#[derive(Portable, Shareable)]
struct Node {
    key: u64,
    left: Option<DBox<Node>>,
    right: Option<DBox<Node>>,
}

/// How many nodes this process has dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

impl Drop for Node {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

fn leaf(key: u64) -> Node {
    Node { key, left: None, right: None }
}

fn sum(node: &Node) -> u64 {
    node.key + node.left.as_deref().map_or(0, sum) + node.right.as_deref().map_or(0, sum)
}

fn insert(at: &mut Node, key: u64) {
    let side = if key < at.key { &mut at.left } else { &mut at.right };
    match side {
        Some(next) => insert(next, key),
        None => *side = Some(DBox::new(leaf(key))),
    }
}

/// Goal: a tree whose nodes are on all ranks is read by all as its owner wrote it, and its last owner drops each node once, and leaves
/// nothing behind. Method: each rank in turn gets it lent, and adds to it; then all read it, several times.
fn tree(objects: &Objects, _seed: u64) -> Outcome {
    const EACH: u64 = 40;
    let (me, ranks) = (objects.rank(), objects.ranks());
    let first = Rank(0);
    let mut root = (me == first).then(|| DBox::new(leaf(500)));
    let (mut expected, mut nodes) = (500, 1);
    for round in 0..u64::from(2 * ranks) {
        let to = Rank((round % u64::from(ranks)) as u32);
        let keys = (0..EACH).map(|step| (round * 7919 + step * 104_729) % 1000);
        expected += keys.clone().sum::<u64>();
        nodes += EACH;
        let added = objects.lend_mut(first, to, root.as_mut(), |mut root: MutRef<'_, Node>| {
            keys.for_each(|key| insert(&mut root, key));
            sum(&root)
        })?;
        ensure(added.is_none_or(|found| found == expected), || format!("{added:?} instead of {expected}"))?;
        for _ in 0..2 {
            let found = objects.lend(first, root.as_ref(), |root| (sum(root), sum(&root.clone())))?;
            ensure(found == (expected, expected), || {
                format!("{found:?} instead of {expected} in round {round}")
            })?;
        }
        ensure(DROPPED.load(Ordering::Relaxed) == 0, || "a copy was dropped as an object".into())?;
    }
    let last = Rank(ranks - 1);
    drop(objects.hand(first, last, root)?);
    let dropped = crate::job(objects).all_reduce(DROPPED.load(Ordering::Relaxed), |a, b| a + b)?;
    ensure(dropped == nodes, || format!("{dropped} of {nodes} nodes were dropped"))?;
    nothing_is_left(objects)
}

/// Goal: a borrow for writing that ends by a panic ends for all: the owner's box means what was written, wherever that was, and the object
/// is dropped once.
fn unwinding(objects: &Objects, _seed: u64) -> Outcome {
    let (me, ranks, first) = (objects.rank(), objects.ranks(), Rank(0));
    let mut root = (me == first).then(|| DBox::new(leaf(0)));
    for to in (0..ranks).map(Rank) {
        // Where the object is: at another rank, or at the owner's, where others have read it.
        for before in [Rank(ranks - 1), first] {
            let key = |root: &Node| root.key;
            let was = objects.lend(first, root.as_ref(), |root| key(root))?;
            objects.lend_mut(first, before, root.as_mut(), |mut root| root.key += 1)?;
            objects.lend(first, root.as_ref(), |root| key(root))?;
            let lent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                objects
                    .lend_mut(first, to, root.as_mut(), |mut root| -> () {
                        root.key += 1;
                        // As a panic, without its line.
                        std::panic::resume_unwind(Box::new("on purpose"))
                    })
                    .map_err(|why| why.to_string())
            }));
            ensure(lent.is_err() == (me == to), || format!("{me} did not notice the panic on {to}"))?;
            let is = objects.lend(first, root.as_ref(), |root| key(root))?;
            ensure(is == was + 2, || format!("{is} after {was}, written on {before} and on {to}"))?;
        }
    }
    drop(root);
    let dropped = crate::job(objects).all_reduce(DROPPED.load(Ordering::Relaxed), |a, b| a + b)?;
    ensure(dropped == 1, || format!("it was dropped {dropped} times"))?;
    nothing_is_left(objects)
}

/// Goal: all that was placed is free again, and nobody counts copies that nobody uses.
pub fn nothing_is_left(objects: &Objects) -> Outcome {
    objects.barrier()?;
    objects.drop_copies()?;
    // Another rank of the node may have used some of them until now.
    crate::job(objects).barrier()?;
    objects.drop_copies()?;
    let counts = objects.counts()?;
    ensure(counts.placed == 0 && counts.copies == 0, || format!("{} is left with {counts:?}", objects.rank()))
}

/// Goal: by its word alone a value is read, written and freed by any rank, where it is; each read sees the last write, and nothing is left,
/// neither object nor copy. Method: the ranks take turns, so that each reads what another has written; sizes of a word and of pages.
fn raw_words(objects: &Objects, _seed: u64) -> Outcome {
    raw::<1>(objects)?;
    raw::<2000>(objects)?;
    nothing_is_left(objects)
}

fn raw<const N: usize>(objects: &Objects) -> Outcome {
    let (me, ranks) = (objects.rank(), objects.ranks());
    for owner in (0..ranks).map(Rank) {
        let word = match me == owner {
            true => dalloc([7u64; N])?.bits(),
            false => 0,
        };
        let bits = crate::job(objects).all_reduce(word, |a, b| a | b)?;
        let word = Word::from_bits(bits).ok_or("no word")?;
        let mut expected = 7;
        for writer in (0..ranks).map(Rank) {
            // SAFETY: the word of such a value, which is freed at the end; barriers are between who reads and who writes.
            let found = unsafe { dread::<[u64; N]>(word) }?;
            ensure(found == [expected; N], || format!("{} instead of {expected}", found[N - 1]))?;
            objects.barrier()?;
            expected = 100 + u64::from(writer.0);
            if me == writer {
                // SAFETY: as above.
                unsafe { dwrite(word, [expected; N]) }?;
            }
            objects.barrier()?;
        }
        // By the rank after its owner.
        if me.0 == (owner.0 + 1) % ranks {
            // SAFETY: as above; nobody uses it again.
            unsafe { dfree::<[u64; N]>(word) }?;
        }
    }
    Ok(())
}

/// Goal: an object that is read by others after each write uses up its colours, moves, and its slots begin again when nobody has copies.
fn colours(objects: &Objects, _seed: u64) -> Outcome {
    let (me, ranks) = (objects.rank(), objects.ranks());
    let mut number = (me == Rank(0)).then(|| DBox::new(0u64));
    let mut retired = 0;
    for round in 1..60 {
        if let Some(number) = &mut number {
            let word = DBox::word(number);
            **number += 1;
            *number.get_mut() += 0;
            ensure(ranks == 1 || round == 1 || DBox::word(number) != word, || format!("{word:?} was read"))?;
        }
        let found = objects.lend(Rank(0), number.as_ref(), |number| **number)?;
        ensure(found == round, || format!("{found} in round {round}"))?;
        retired = objects.counts()?.retired.max(retired);
        if round % 20 == 0 {
            objects.drop_copies()?;
            objects.barrier()?;
            let now = objects.counts()?.retired;
            ensure(now == 0, || format!("{now} slots of {me} do not come back"))?;
        }
    }
    ensure((me == Rank(0) && ranks > 1) == (retired > 3), || format!("{retired} slots of {me} retired"))
}

/// Goal: a run that goes on for ever has room for ever: slots whose colours are used up are used again, without a barrier, and what is read there is
/// always what was written last. Method: a small partition in which all slots would be retired twice over; other ranks read each value, and have
/// room for copies of some.
pub fn colours_within_a_run<const N: usize>(objects: &Objects) -> Outcome {
    const ROUNDS: u64 = 1200;
    let (ranks, mut most) = (objects.ranks(), 0);
    let ended = objects.run(&RunOptions::default(), || -> Outcome {
        for round in 0..ROUNDS {
            let mut number = DBox::try_new([round; N]).map_err(|refused| refused.why)?;
            for step in 1..=3 {
                let reader = Rank(1 + (round + step) as u32 % (ranks - 1));
                let found = scope(|scope| {
                    let read = task!(|number: &DBox<[u64; N]>, _n: ()| -> u64 { number.iter().sum() });
                    scope.spawn_to(reader, read, &number, ()).join()
                })?;
                let expected = N as u64 * (round + step - 1);
                ensure(found == expected, || format!("{found} in round {round}, instead of {expected}"))?;
                *number.get_mut() = [round + step; N];
            }
            most = objects.counts()?.retired.max(most);
        }
        Ok(())
    })?;
    ended.unwrap_or(Ok(()))?;
    ensure((objects.rank() == Rank(0)) == (most > 0) && most < 150, || format!("{most} slots retired"))?;
    nothing_is_left(objects)
}

/// Goal: a full partition is an error that gives the value back, and room that was freed, here or by another rank, is used again.
fn full(objects: &Objects, _seed: u64) -> Outcome {
    let (me, ranks) = (objects.rank(), objects.ranks());
    for _ in 0..2 {
        let mut kept = Vec::new();
        let refused = loop {
            match DBox::try_new([kept.len(); 512]) {
                Ok(new) => kept.push(new),
                Err(refused) => break refused,
            }
        };
        ensure(refused.value == [kept.len(); 512], || "the value is another".into())?;
        ensure(matches!(*refused.why, ObjectError::Full(_)), || format!("{refused}"))?;
        ensure(kept.len() > 150, || format!("{} objects", kept.len()))?;
        for (at, object) in kept.iter().enumerate() {
            ensure(**object == [at; 512], || format!("object {at} is another"))?;
        }
        // The next rank drops one of each rank's; the others go here.
        for from in (0..ranks).map(Rank) {
            let given = (me == from).then(|| kept.pop()).flatten();
            drop(objects.hand(from, Rank((from.0 + 1) % ranks), given)?);
        }
        objects.barrier()?;
        let again = DBox::try_new([7usize; 512]).map_err(|refused| refused.why)?;
        ensure(*again.read() == [7; 512], || "what was placed again is another".into())?;
    }
    nothing_is_left(objects)
}

/// Goal: a rank whose partition is full goes on on the others, with small values and large ones, until all are full; that is a typed error
/// which says how much was wanted and how many were asked; all values are right, also read from there while nothing is free, and room that is free
/// again is found.
fn full_elsewhere(objects: &Objects, _seed: u64) -> Outcome {
    let ended = objects.run(&RunOptions::default(), || -> Outcome {
        let others = objects.ranks() - 1;
        fill::<512>(others, 150)?;
        fill::<20_000>(others, 4)?;
        // What is made on others' room is moved, lent to tasks, and dropped there.
        let mut kept = fill_all::<512>(others)?;
        let far = kept.pop().ok_or("nothing was placed")?;
        kept.drain(..kept.len() / 2);
        let mut all = Vec::new();
        for to in (0..=others).map(Rank) {
            all.push(scope(|scope| {
                let read = task!(|of: &DBox<[usize; 512]>, _n: ()| -> usize { of[17] });
                scope.spawn_to(to, read, &far, ()).join()
            })?);
        }
        ensure(all.iter().all(|found| *found == far[17]), || "a task has read something else".into())
    })?;
    ended.unwrap_or(Ok(()))?;
    nothing_is_left(objects)
}

/// Boxes of values of `N` words, each of its number, until no rank has room.
fn fill_all<const N: usize>(others: u32) -> Result<Vec<DBox<[usize; N]>>, Box<dyn std::error::Error>> {
    let mut kept = Vec::new();
    let refused = loop {
        match DBox::try_new([kept.len(); N]) {
            Ok(new) => kept.push(new),
            Err(refused) => break refused,
        }
    };
    ensure(refused.value == [kept.len(); N], || "the value is another".into())?;
    let ObjectError::Full(full) = &*refused.why else { return Err(format!("{refused}").into()) };
    let is_named = full.others == others && full.bytes >= 8 * N as u64 && full.of == 1 << 20;
    let asked = if others == 1 {
        "nor in that of one other".into()
    } else {
        format!("nor in those of {others} other")
    };
    let is_said = ["the partition of rank 0", &asked].iter().all(|words| full.to_string().contains(words));
    ensure(is_named && is_said, || format!("{full}"))?;
    Ok(kept)
}

fn fill<const N: usize>(others: u32, each: usize) -> Outcome {
    for _ in 0..2 {
        let kept = fill_all::<N>(others)?;
        for rank in (0..=others).map(Rank) {
            let there = kept.iter().filter(|object| DBox::rank(object) == Some(rank)).count();
            ensure(there >= each, || format!("{there} objects of {N} words are on {rank}"))?;
        }
        // No partition has room for a copy.
        for (number, object) in kept.iter().enumerate() {
            // Not by `Deref`: a box would keep its copy.
            let object = object.try_read()?;
            ensure(object.iter().all(|word| *word == number), || format!("value {number} is another"))?;
        }
        let last = kept.iter().enumerate().rev().take(if N > 1000 { 1 } else { 8 });
        let last: Vec<(usize, &[usize; N])> = last.map(|(number, object)| (number, &**object)).collect();
        ensure(last.iter().all(|(number, object)| object[N - 1] == *number), || {
            "a kept copy is another".into()
        })?;
        drop(kept);
        let again = DBox::try_new([7usize; N]).map_err(|refused| refused.why)?;
        ensure(*again.read() == [7; N], || "what was placed again is another".into())?;
    }
    Ok(())
}

/// Goal: objects of many times the cache are what they were, and large ones travel whole.
fn beyond_memory(objects: &Objects, seed: u64) -> Outcome {
    const COUNT: u64 = 2000;
    let me = objects.rank();
    let mut all: Vec<DBox<[u64; 500]>> = (0..COUNT).map(|at| DBox::new([at ^ seed; 500])).collect();
    for (at, one) in all.iter_mut().enumerate().step_by(3) {
        one[17] += at as u64;
    }
    for (at, one) in (0..).zip(&all) {
        let added = if at % 3 == 0 { at } else { 0 };
        ensure(one[499] == at ^ seed && one[17] == (at ^ seed) + added, || {
            format!("object {at} is another")
        })?;
    }
    drop(all);
    let owner = Rank(objects.ranks() - 1);
    let large = (me == owner).then(|| DBox::new([seed; 40_000]));
    let is_it =
        objects.lend(owner, large.as_ref(), |large: &Ref<'_, [u64; 40_000]>| **large == [seed; 40_000])?;
    ensure(is_it, || "the large object is another".into())?;
    let moved = objects.hand(owner, Rank(0), large)?.map(DBox::into_inner);
    ensure(moved.is_none_or(|moved| moved == [seed; 40_000]), || "it has not moved whole".into())
}

/// Messages that this rank has sent to other nodes; of a job over shared memory, to anybody.
pub fn sent(objects: &Objects) -> u64 {
    let counts = crate::endpoint(objects).counts();
    let through = |carrier: CarrierCounts| carrier.requests + carrier.replies;
    match through(counts.network) {
        0 => through(counts.smp),
        sent => sent,
    }
}

/// Messages that the agent of this rank's node has sent to anybody; counted once a node.
pub fn agent_sent(objects: &Objects) -> u64 {
    let job = crate::job(objects);
    let is_first = job.layout().ranks_of(job.node()).start == objects.rank().0;
    let counted = job.node_statistics();
    let kinds = [
        Counter::RequestMessages,
        Counter::ReplyMessages,
        Counter::DataMessages,
        Counter::InvalidationMessages,
    ];
    kinds.iter().filter(|_| is_first).map(|kind| counted.get(*kind)).sum()
}

/// So many boxes are counted together.
const BOXES: u64 = 128;

type Boxes = [Option<DBox<[u64; 64]>>; BOXES as usize];

/// Goal: an object of another node is read by a message and its answer, and again without any; brought here by as many, and by one
/// more for 64 that are then free where they were; and what owns it is dropped without it. Method: what the rank that does it has sent; of what is
/// brought also what all homes have.
fn messages(objects: &Objects, _seed: u64) -> Outcome {
    let (here, there) = (Rank(0), Rank(1));
    let made = || DBox::<Boxes>::new(std::array::from_fn(|at| Some(DBox::new([at as u64; 64]))));
    let counted = |deed: &mut dyn FnMut() -> u64| {
        let before = sent(objects);
        let found = deed();
        (sent(objects) - before, found)
    };
    let expect = |what: &str, wanted: u64, sum: u64, (messages, found): (u64, u64)| {
        let is_here = objects.rank() == here;
        let is_so = !is_here || (messages == wanted && found == sum);
        ensure(is_so, || format!("{what}: {messages} messages instead of {wanted}, {found} instead of {sum}"))
    };
    let sum: u64 = (0..BOXES).sum();
    let mut boxes = (objects.rank() == there).then(made);
    objects.lend(there, boxes.as_ref(), |boxes| {
        let mut read = || boxes.iter().flatten().map(|one| one[63]).sum();
        expect("read", BOXES, sum, counted(&mut read))?;
        expect("read again", 0, sum, counted(&mut read))
    })??;
    // Agents say nothing of what ranks do together.
    let answers = agent_sent(objects);
    objects
        .lend_mut(there, here, boxes.as_mut(), |mut boxes| {
            let mut write = || boxes.iter_mut().flatten().map(|one| one.get_mut()[63]).sum();
            expect("move", BOXES + BOXES / 64, sum, counted(&mut write))?;
            expect("write again", 0, sum, counted(&mut write))
        })?
        .transpose()?;
    let answers = crate::job(objects).all_reduce(agent_sent(objects) - answers, |a, b| a + b)?;
    // The array itself comes by pages.
    ensure((BOXES..BOXES + 10).contains(&answers), || {
        format!("{answers} answers to {BOXES} objects that move")
    })?;
    drop(boxes);
    let mut given = objects.hand(there, here, (objects.rank() == there).then(made))?;
    let mut drop_all = || {
        given.take();
        0
    };
    // Where the array is, it says what there is to drop, and is told of with others.
    expect("drop", 0, 0, counted(&mut drop_all))?;
    nothing_is_left(objects)
}

/// Goal: what was read is read again without asking anybody, as long as nobody writes; own objects are never asked for.
fn hits(objects: &Objects, _seed: u64) -> Outcome {
    let me = objects.rank();
    let mut numbers = (me == Rank(0)).then(|| DBox::new(DBox::new([1u64; 30])));
    let asked = || {
        let counted = crate::job(objects).rank_statistics();
        let gets = [Counter::GetHits, Counter::GetMisses].map(|counter| counted.get(counter));
        // On both ways: a rank may send its first message over the network here.
        let counts = crate::endpoint(objects).counts();
        let sent = [counts.network, counts.smp].map(|way| way.requests + way.replies);
        gets.iter().sum::<u64>() + sent.iter().sum::<u64>()
    };
    let read = |numbers: Option<&DBox<DBox<[u64; 30]>>>| -> Result<u64, Box<dyn std::error::Error>> {
        Ok(objects.lend(Rank(0), numbers, |numbers| {
            let before = asked();
            (0..1000).map(|at| numbers.read()[at % 30]).sum::<u64>() * 1000 + asked() - before
        })?)
    };
    for round in 1..5 {
        let found = [read(numbers.as_ref())?, read(numbers.as_ref())?];
        let expected = round * 1_000_000;
        let bytes = expected..expected + 1000;
        let is_once = (found[0] > expected) == (me != Rank(0)) && bytes.contains(&found[0]);
        ensure(is_once && found[1] == expected, || format!("{found:?} in round {round}"))?;
        if let Some(numbers) = &mut numbers {
            let before = asked();
            numbers.iter_mut().for_each(|number| *number += 1);
            ensure(asked() == before, || "an own object was asked for".into())?;
        }
    }
    drop(numbers);
    nothing_is_left(objects)
}

/// Goal: ranks that do different things at the same time are told so, and go on.
fn different_calls(objects: &Objects, _seed: u64) -> Outcome {
    let me = objects.rank();
    let error = match me.0 {
        0 => objects.hand(Rank(0), Rank(1), Some(DBox::new(1u64))).err(),
        _ => objects.hand::<i64>(Rank(0), Rank(1), None).err(),
    };
    ensure(error.is_some_and(|error| error.to_string().contains("is not")), || "types differ".into())?;
    let nothing = objects.hand::<u64>(Rank(0), Rank(1), None);
    ensure(nothing.is_err(), || "nobody has given anything".into())?;
    let both = objects.hand(Rank(0), Rank(1), Some(DBox::new(2u64)));
    ensure(both.is_err(), || "two have given".into())?;
    let given = (me == Rank(0)).then(|| DBox::new(3u64));
    let got = objects.hand(Rank(0), Rank(1), given)?;
    ensure(got.is_none_or(|got| *got == 3), || "what was given is another".into())
}

/// A rank ends while the others wait for it, or read what it has: all end, with a sentence that names it.
fn killed(objects: &Objects, _seed: u64) -> Outcome {
    let me = objects.rank();
    let mine = (me == Rank(1)).then(|| DBox::new([1u64; 100]));
    for round in 0.. {
        let found = objects.lend(Rank(1), mine.as_ref(), |mine| mine[99])?;
        ensure(found == 1, || format!("{found} in round {round}"))?;
        if me == Rank(1) && round == 5 {
            kill_process(getpid(), Signal::KILL)?;
        }
        objects.drop_copies()?;
    }
    Ok(())
}

/// Goal: a thread that waits for its node's NVMe goes on when that has answered, while a worker of its rank sleeps for both: it has begun
/// to before there was anything to read. With a heap as large as the cache, pages come and go, and puts need the rest of theirs.
fn reads_beside_sleepers(objects: &Objects, _seed: u64) -> Outcome {
    let ended = objects.run(&vgas_objects::RunOptions::default(), || -> Outcome {
        for _ in 0..3 {
            let make = vgas_objects::task!(|_n: ()| -> vgas_objects::DVec<DBox<[usize; 512]>> {
                (0..120).map(|n| DBox::new([n; 512])).collect()
            });
            let kept = vgas_objects::spawn_to(Rank(1), make, ()).join()?.into_vec()?;
            let own: Vec<_> = (0..100).map(|n| DBox::new([n; 512])).collect();
            for (number, object) in kept.iter().enumerate() {
                let object = object.try_read()?;
                ensure(object.iter().all(|word| *word == number), || "another".into())?;
            }
            drop(own);
        }
        Ok(())
    })?;
    ended.unwrap_or(Ok(()))
}
