//! A search tree of owned objects that outlives its jobs: the first makes it, others find it again under its name, without reading it.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 2 -- target/release/examples/tree 1000000`, more than once.
//! It stays in files (`vgas-tree.*.vgas` in the folder that `vgas info` names) until they are removed; another number of
//! objects is another tree.

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

fn find(tree: &Option<DBox<Node>>, key: u64) -> Option<u64> {
    let mut node = tree.as_deref()?;
    while node.key != key {
        let next = if key < node.key { &node.smaller } else { &node.larger };
        node = next.as_deref()?;
    }
    Some(node.value)
}

fn value_of(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(100_000), |count| count.parse())?;
    let runtime = Runtime::init()?;
    let options =
        HeapOptions { bytes: (count * 64).next_multiple_of(1 << 20) + (1 << 22), ..HeapOptions::default() };
    let began = Instant::now();
    // SAFETY: only this program writes files of this name, and it makes checkpoints when it has one thread and borrows nothing.
    let objects = unsafe { Objects::attach_named(runtime, &options, &format!("vgas-tree-{count}")) }?;
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
            let asked = (0..1000).map(|one| value_of(one) % count);
            let right = asked.filter(|key| find(&tree, *key) == Some(value_of(*key))).count();
            let took = began.elapsed();
            vgas::print(format_args!(
                "{rank} has looked for 1000 of them, and found {right}, in {took:.1?}\n"
            ))?;
            if let Some(tree) = tree {
                objects.keep("tree", tree).map_err(|refused| refused.why)?;
            }
        }
    }
    Ok(objects.finalize()?)
}
