//! A search tree of owned objects that outlives its jobs: the first makes it, others find it again under its name, without reading it.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 2 -- target/release/examples/tree 1000000`, more than once.
//! It stays in files (`vgas-tree.*.vgas` in the folder that `vgas info` names) until they are removed; another number of
//! objects is another tree. A second number says how many nodes each rank of a later job visits, on the way to keys at random, and
//! holds against what was put there.

use std::time::Instant;
use vgas::Runtime;
use vgas_objects::{DBox, HeapOptions, Objects, Portable, Shareable};

#[derive(Portable, Shareable)]
struct Node {
    key: u64,
    value: u64,
    smaller: Option<DBox<Node>>,
    larger: Option<DBox<Node>>,
}

/// A tree of all keys from `from` on, before `to`.
fn build(from: u64, to: u64) -> Option<DBox<Node>> {
    let key = from + (to - from) / 2;
    (from < to).then(|| {
        let (smaller, larger) = (build(from, key), build(key + 1, to));
        DBox::new(Node { key, value: value_of(key), smaller, larger })
    })
}

/// The value of a key, and how many nodes it took to get there.
fn find(tree: &Option<DBox<Node>>, key: u64) -> Option<(u64, u64)> {
    let (mut node, mut visited) = (tree.as_deref()?, 1);
    while node.key != key {
        let next = if key < node.key { &node.smaller } else { &node.larger };
        (node, visited) = (next.as_deref()?, visited + 1);
    }
    Some((node.value, visited))
}

fn value_of(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(100_000), |count| count.parse())?;
    let steps: u64 = std::env::args().nth(2).map_or(Ok(20_000), |steps| steps.parse())?;
    let runtime = Runtime::init()?;
    let options =
        HeapOptions { bytes: (count * 64).next_multiple_of(1 << 20) + (1 << 22), ..HeapOptions::default() };
    let began = Instant::now();
    // SAFETY: only this program writes files of this name, and it makes checkpoints when it has one thread and borrows nothing.
    let objects = unsafe { Objects::attach_named(&runtime, &options, &format!("vgas-tree-{count}")) }?;
    let attached = began.elapsed();
    let began = Instant::now();
    let root: Option<DBox<Node>> = objects.root("tree")?;
    let (rank, took) = (objects.rank(), attached + began.elapsed());
    match root {
        None => {
            let began = Instant::now();
            if let Some(tree) = build(0, count) {
                objects.keep("tree", tree).map_err(|refused| refused.why)?;
            }
            let built = began.elapsed();
            let began = Instant::now();
            objects.checkpoint()?;
            let kept = began.elapsed();
            vgas::print(format_args!(
                "{rank} has made a tree of {count} nodes in {built:.1?}, and kept it in {kept:.1?}\n"
            ))?;
        }
        tree => {
            vgas::print(format_args!(
                "{rank} has its heap of {count} nodes after {took:.1?}, of which {attached:.1?} to attach it\n"
            ))?;
            let began = Instant::now();
            let mut keys = (u64::from(rank.0) << 40..).map(|one| value_of(one) % count);
            let (mut asked, mut right, mut visited) = (0u64, 0u64, 0u64);
            while visited < steps
                && let Some(key) = keys.next()
            {
                let found = find(&tree, key);
                asked += 1;
                right += u64::from(found.is_some_and(|(value, _)| value == value_of(key)));
                visited += found.map_or(1, |(_, visited)| visited);
            }
            let took = began.elapsed();
            vgas::print(format_args!(
                "{rank} has looked for {asked} of them, and found {right}, by {visited} nodes in {took:.1?}\n"
            ))?;
            if asked != right {
                return Err(format!("{} nodes are not what was put there", asked - right).into());
            }
            if let Some(tree) = tree {
                objects.keep("tree", tree).map_err(|refused| refused.why)?;
            }
        }
    }
    Ok(objects.finalize()?)
}
