//! `vgas objects`: heaps of objects at rest.

use crate::cli;
use crate::failure::Failure;
use crate::{job, output};
use std::fmt::Write;
use std::path::Path;
use vgas_objects::{HeapAtRest, PartitionAtRest, heaps_at_rest};

/// Types that are named of an object.
const TYPES: usize = 4;

/// Prints what is in the files of a heap.
pub fn objects(flags: &cli::Objects) -> Result<u8, Failure> {
    let config = job::config(&flags.config)?;
    let path = Path::new(&flags.what);
    let found = match (path.is_dir(), flags.what.to_str()) {
        (true, _) => heaps_at_rest(path, None),
        (false, Some(name)) => heaps_at_rest(&config.settings().nvm.directory_path(), Some(name)),
        (false, None) => return Err(Failure::usage("the name of a heap is text")),
    };
    let heaps = found.map_err(|error| {
        Failure::new(error).hint(
            "heaps have names if `Objects::attach_named` made them; `nvm.directory` says where they are",
        )
    })?;
    if flags.json {
        output::print_json(&heaps)
    } else {
        output::print(&heaps.iter().map(text).collect::<String>())
    }
}

fn text(heap: &HeapAtRest) -> String {
    let sum = |of: fn(&PartitionAtRest) -> u64| heap.partitions.iter().map(of).sum::<u64>();
    let mut text = format!(
        "{}: {} objects in {} partitions of {} in all, {} used, {} stored\n",
        heap.name,
        sum(|of| of.objects),
        heap.partitions.len(),
        size(sum(|of| of.bytes)),
        size(sum(|of| of.used_bytes)),
        size(sum(|of| of.stored_bytes)),
    );
    for of in &heap.partitions {
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "  rank {}, at {:#x}, checkpoint {}, {} jobs: {} objects, {} of {} used, {} of it free, {} large slots retired",
            of.rank,
            of.address,
            of.checkpoint,
            of.jobs,
            of.objects,
            size(of.used_bytes),
            size(of.bytes),
            size(of.free_bytes),
            of.retired,
        );
        for one in &of.sizes {
            let (each, total, count) = (size(one.bytes), size(one.total_bytes), one.count);
            let _ = match one.is_large {
                true => writeln!(text, "    {count} large objects of {each}: {total}"),
                false => writeln!(text, "    {count} slabs of objects up to {each}: {total}"),
            };
        }
        for root in &of.roots {
            // Types with fields are the program's; a line is a name, and what it is.
            let names = root
                .layout
                .iter()
                .filter(|line| line.contains(", "))
                .map(|line| line.split_once(": ").map_or(&line[..], |(name, _)| name));
            let names: Vec<&str> = names.take(TYPES).collect();
            let _ = writeln!(
                text,
                "    {:?} on rank {} at {:#x}, of {}",
                root.name,
                root.rank,
                root.offset,
                names.join(", ")
            );
        }
    }
    text
}

/// As settings write it, where it is whole.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}
