//! Objects that are tied to others.

use crate::scenarios::{ensure, nothing_is_left, sent};
use crate::{HEAP, JOBS, Outcome, Scenario};
use vgas::Rank;
use vgas_objects::{DBox, DVec, HeapOptions, Objects, Portable, Shareable, TBox};

pub const ALL: &[Scenario] = &[
    Scenario { name: "tied_lists", jobs: JOBS, heap: MANY, rank: lists, ends_with: None },
    Scenario { name: "tied_trees", jobs: JOBS, heap: MANY, rank: trees, ends_with: None },
    Scenario {
        name: "tied_few_copies",
        jobs: &[(2, 2), (4, 2)],
        heap: HeapOptions { copies: 3, last_colour: 1, ..HEAP },
        rank: few,
        ends_with: None,
    },
    Scenario {
        name: "tied_of_many_ranks",
        jobs: &[(2, 2), (4, 2), (3, 3)],
        heap: MANY,
        rank: mixed,
        ends_with: None,
    },
];

const MANY: HeapOptions = HeapOptions { copies: 4000, copy_bytes: 4 << 20, ..HEAP };

#[derive(Portable, Shareable)]
struct Node {
    value: u64,
    next: Option<TBox<Node>>,
}

/// What a node takes of a message: its bytes, and what is beside them.
const NODE_BYTES: usize = size_of::<Node>() + 16;

fn list(count: u64, seed: u64) -> DBox<Node> {
    let node = |next, at| Node { value: seed ^ at, next };
    let rest = (1..count).rev().fold(None, |next, at| Some(TBox::new(node(next, at))));
    DBox::new(node(rest, 0))
}

fn values(first: &Node) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(first), |node| node.next.as_deref()).map(|node| node.value)
}

fn change(first: &mut Node, by: u64) {
    let mut next = Some(first);
    while let Some(node) = next {
        node.value ^= by;
        next = node.next.as_deref_mut();
    }
}

/// Messages in which a list comes: as many nodes in each as it has room for.
fn messages_for(objects: &Objects, count: u64) -> u64 {
    let most = crate::job(objects).medium_bytes_max() - 64;
    let with_the_first = 1 + ((most - size_of::<Node>()) / NODE_BYTES).min(1023) as u64;
    count.div_ceil(with_the_first)
}

/// Goal: a list is read with one message, and one more for each that its nodes fill; again with none. Whoever writes it moves all of it
/// with as many, and has it then: a second change, and a look, need none. What it was before is gone from where it was.
fn lists(objects: &Objects, seed: u64) -> Outcome {
    let (me, ranks, owner) = (objects.rank(), objects.ranks(), Rank(0));
    let far = u64::from(crate::job(objects).nodes() > 1);
    let reader = Rank(ranks - 1);
    for count in [1, 2, 100, 3000] {
        let mut own = (me == owner).then(|| list(count, seed));
        objects.lend(owner, own.as_ref(), |list| -> Outcome {
            // The first came with what it is tied to when it was lent. Nobody else of the node: what one has, the others take from there.
            if me == reader {
                for expected in [far * (messages_for(objects, count) - 1), 0] {
                    let before = sent(objects);
                    let is_right = values(list).eq((0..count).map(|at| seed ^ at));
                    let asked = sent(objects) - before;
                    ensure(is_right, || "other values".into())?;
                    ensure(asked == expected, || {
                        format!("{asked} messages instead of {expected} for {count} nodes")
                    })?;
                }
            }
            Ok(())
        })??;
        let moved = objects.lend_mut(owner, reader, own.as_mut(), |mut list| {
            let before = sent(objects);
            change(&mut list, 5);
            let first = sent(objects) - before;
            change(&mut list, 6);
            (first, sent(objects) - before - first, values(&list).eq((0..count).map(|at| seed ^ at ^ 5 ^ 6)))
        })?;
        if let Some((first, again, is_right)) = moved {
            ensure(is_right, || "other values were moved".into())?;
            ensure(again == 0, || format!("{again} messages for what is here"))?;
            // What it was is freed 64 at a time.
            let most = far * (messages_for(objects, count) + count.div_ceil(64));
            ensure(first <= most, || format!("{first} messages instead of {most} to move {count} nodes"))?;
        }
        objects.lend(owner, own.as_ref(), |list| -> Outcome {
            let is_right = values(list).eq((0..count).map(|at| seed ^ at ^ 5 ^ 6));
            ensure(is_right, || "other values after the move".into())
        })??;
        drop(own);
        nothing_is_left(objects)?;
    }
    Ok(())
}

#[derive(Portable, Shareable)]
enum Kind {
    Leaf(u64),
    /// Not followed, and there anyway.
    Inner(TBox<Tree>),
}

#[derive(Portable, Shareable)]
struct Pair<T>(T, T);

#[derive(Portable, Shareable)]
struct Tree {
    value: u64,
    kind: Kind,
    pair: Pair<Option<TBox<Tree>>>,
    many: [(u32, Option<TBox<Tree>>); 3],
    wide: Option<TBox<[u64; 2000]>>,
    row: DVec<TBox<u64>>,
}

fn tree(depth: u32, value: u64) -> Tree {
    let part = |at: u64| (depth > 0).then(|| TBox::new(tree(depth - 1, value * 7 + at)));
    Tree {
        value,
        kind: match value % 5 {
            0 if depth > 0 => Kind::Inner(TBox::new(tree(0, value + 1))),
            _ => Kind::Leaf(value),
        },
        pair: Pair(part(1), if value.is_multiple_of(2) { part(2) } else { None }),
        many: [(1, None), (2, part(3)), (3, None)],
        wide: (value % 11 == 3).then(|| TBox::new([value; 2000])),
        row: (0..value % 4).map(|at| TBox::new(value + at)).collect(),
    }
}

fn digest(tree: &Tree) -> u64 {
    let part = |of: &Option<TBox<Tree>>| of.as_deref().map_or(1, digest);
    let kind = match &tree.kind {
        Kind::Leaf(value) => *value,
        Kind::Inner(of) => digest(of),
    };
    let parts = [&tree.pair.0, &tree.pair.1].into_iter().chain(tree.many.iter().map(|(_, of)| of)).map(part);
    let more = tree.row.iter().map(|one| **one).chain(tree.wide.as_deref().map(|wide| wide[1999]));
    let all = [tree.value, kind].into_iter().chain(parts).chain(more);
    all.fold(0, |sum: u64, one| (sum.rotate_left(9) ^ one).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn rename(tree: &mut Tree, by: u64) {
    tree.value ^= by;
    let Tree { kind, pair, many, wide, row, .. } = tree;
    let parts = [&mut pair.0, &mut pair.1].into_iter().chain(many.iter_mut().map(|(_, of)| of));
    parts.flatten().for_each(|of| rename(of, by));
    if let Kind::Inner(of) = kind {
        rename(of, by);
    }
    wide.iter_mut().for_each(|wide| wide[1999] ^= by);
    row.iter_mut().for_each(|one| **one ^= by);
}

/// Goal: trees with ties in structs, pairs, arrays, variants and rows are what they are where they are read and written, by all in turn; with what
/// cannot come with them, and in fewer messages than they have objects.
fn trees(objects: &Objects, seed: u64) -> Outcome {
    let (me, ranks, owner) = (objects.rank(), objects.ranks(), Rank(0));
    let seed = seed % 1000;
    let mut own = (me == owner).then(|| DBox::new(tree(4, seed)));
    let mut right = tree(4, seed);
    for round in 0..4u64 {
        let expected = digest(&right);
        objects.lend(owner, own.as_ref(), |tree| -> Outcome {
            let before = sent(objects);
            ensure(digest(tree) == expected, || format!("another tree in round {round}"))?;
            // It has some hundred objects that can come with it. Who is of its owner's node may have sent nobody else anything yet.
            let asked = if me == Rank(ranks - 1) { sent(objects) - before } else { 0 };
            ensure(asked < 100, || format!("{asked} messages for a tree"))
        })??;
        let to = Rank(((round + seed) % u64::from(ranks)) as u32);
        let by = 1 << (8 + round);
        objects.lend_mut(owner, to, own.as_mut(), |mut tree| rename(&mut tree, by))?;
        rename(&mut right, by);
    }
    if let Some(mut own) = own {
        rename(&mut own, 1);
        rename(&mut right, 1);
        ensure(digest(&own) == digest(&right), || "another tree at its owner".into())?;
    }
    drop(right);
    nothing_is_left(objects)
}

/// Goal: with hardly any room for copies and two colours, several threads that read while the next round's values are not there yet find each
/// round's values.
fn few(objects: &Objects, seed: u64) -> Outcome {
    let (me, owner) = (objects.rank(), Rank(0));
    let mut own = (me == owner).then(|| list(50, seed));
    for round in 0..12 {
        let is_right = objects.lend(owner, own.as_ref(), |list| {
            std::thread::scope(|scope| {
                let read = || values(list).eq((0..50).map(|at| seed ^ at ^ round));
                let others = [scope.spawn(read), scope.spawn(read)];
                read() & others.into_iter().all(|other| other.join().unwrap_or(false))
            })
        })?;
        ensure(is_right, || format!("other values in round {round}"))?;
        if let Some(own) = &mut own {
            change(own, round ^ (round + 1));
        }
    }
    drop(own);
    nothing_is_left(objects)
}

/// Goal: a list whose nodes are on all ranks in turn, since each has put one before those that it was given, is whole for all, and moves to
/// whoever writes it.
fn mixed(objects: &Objects, seed: u64) -> Outcome {
    let (me, ranks) = (objects.rank(), objects.ranks());
    let owner = Rank(0);
    let mut own = (me == owner).then(|| list(1, seed));
    for at in 1..24u64 {
        let to = Rank((at % u64::from(ranks)) as u32);
        objects.lend_mut(owner, to, own.as_mut(), |mut first| {
            let node = Node { value: seed ^ at, next: first.next.take() };
            first.next = Some(TBox::new(node));
        })?;
    }
    let right = || std::iter::once(seed).chain((1..24).rev().map(|at| seed ^ at));
    objects
        .lend(owner, own.as_ref(), |list| ensure(values(list).eq(right()), || "other values".into()))??;
    objects.lend_mut(owner, Rank(ranks - 1), own.as_mut(), |mut first| change(&mut first, 9))?;
    objects.lend(owner, own.as_ref(), |list| {
        ensure(values(list).eq(right().map(|value| value ^ 9)), || "other values after the change".into())
    })??;
    drop(own);
    nothing_is_left(objects)
}
