//! `vgas objects`: heaps of objects, at rest and of jobs that run.

use crate::cli;
use crate::failure::Failure;
use crate::{job, output};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;
use vgas_objects::{
    HeapAtRest, HeapRunning, PartitionAtRest, PartitionRunning, RankReport, heaps_at_rest, heaps_running,
};

/// Types that are named of an object.
const TYPES: usize = 4;

/// Prints what is in heaps.
pub fn objects(flags: &cli::Objects) -> Result<u8, Failure> {
    match (&flags.running, &flags.what) {
        (Some(process), _) => running(*process, flags.json),
        (None, Some(what)) => at_rest(what, flags),
        (None, None) => Err(Failure::usage("no heap is named")),
    }
}

/// Prints what ranks say that they have.
fn running(process: Option<u32>, is_json: bool) -> Result<u8, Failure> {
    let heaps = heaps_running(process).map_err(|error| {
        Failure::new(error).hint("a job has a heap from `Objects::attach` until `Objects::finalize`; look on a machine where it has ranks")
    })?;
    match is_json {
        true => output::print_json(&heaps),
        false => output::print(&heaps.iter().map(text_running).collect::<String>()),
    }
}

/// Prints what is in the files of a heap.
fn at_rest(what: &OsStr, flags: &cli::Objects) -> Result<u8, Failure> {
    let config = job::config(&flags.config)?;
    let path = Path::new(what);
    let found = match (path.is_dir(), what.to_str()) {
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

fn text_running(heap: &HeapRunning) -> String {
    let sum = |of: fn(&RankReport) -> u64| heap.partitions.iter().map(|rank| of(&rank.report)).sum::<u64>();
    let mut text = match heap.partitions.is_empty() {
        true => format!("job {}: no rank answers\n", heap.job),
        false => format!(
            "{}, job {}, {} ranks on {} nodes: {} objects, {} of {} used, {} copies of {}\n",
            heap.program,
            heap.job,
            heap.ranks,
            heap.nodes,
            sum(|of| of.objects),
            size(sum(|of| of.used_bytes)),
            size(sum(|of| of.partition_bytes)),
            sum(|of| of.copies),
            size(sum(|of| of.copy_bytes)),
        ),
    };
    for of in &heap.partitions {
        add_rank(&mut text, of);
    }
    // Writing into a string does not fail.
    for of in &heap.homes {
        let _ = writeln!(
            text,
            "  home of node {}: {} reads, {} handed on to copies elsewhere, {} from copies here, {} channels, {} locks in use",
            of.node,
            of.report.reads,
            of.report.handed_on,
            of.report.from_copies,
            of.report.channels,
            of.report.locks,
        );
    }
    for of in &heap.silent {
        let process = of.process.map(|process| format!(", process {process}")).unwrap_or_default();
        let _ = writeln!(text, "  rank {}{process}: {}", of.rank, of.why);
    }
    if let (Some(first), Some(last)) = (heap.elsewhere.first(), heap.elsewhere.last()) {
        let count = heap.elsewhere.len();
        let _ =
            writeln!(text, "  {count} ranks, from {first} to {last}, are on other machines, or have ended");
    }
    text
}

fn add_rank(text: &mut String, of: &PartitionRunning) {
    let report = &of.report;
    // Writing into a string does not fail.
    let _ = writeln!(
        text,
        "  rank {}, node {}, process {}: {} objects, {} of {} used, room for {}, {} slots retired",
        of.rank,
        of.node,
        of.process,
        report.objects,
        size(report.used_bytes),
        size(report.partition_bytes),
        size(of.room_bytes),
        report.retired,
    );
    for one in &of.sizes {
        let (each, total, count) =
            (size(one.bytes), size(one.bytes.saturating_mul(one.objects)), one.objects);
        let _ = match one.is_large {
            true => writeln!(text, "    {count} large objects of {each}: {total}"),
            false => writeln!(text, "    {count} objects of up to {each}: {total}"),
        };
    }
    if of.unseen > 0 {
        let _ =
            writeln!(text, "    {} objects of an earlier job, whose sizes nobody has looked at", of.unseen);
    }
    if report.copies + report.copies_of_mates + report.fetched > 0 {
        let _ = writeln!(
            text,
            "    {} copies, {}, used {} times; {} fetched, {} from ranks of the node, {} evicted",
            report.copies,
            size(report.copy_bytes),
            report.uses,
            report.fetched,
            report.from_mates,
            report.evicted,
        );
    }
    for one in &of.copies_of {
        let _ = writeln!(
            text,
            "    {} copies of objects of rank {}: {}, used {} times",
            one.copies,
            one.of,
            size(one.bytes),
            one.uses
        );
    }
    for one in &report.types {
        let (count, bytes) = (one.copies, size(one.bytes));
        let _ = writeln!(text, "    {count} copies of {}: {bytes}, used {} times", one.name, one.uses);
    }
}

/// Formats it as settings do, if it is whole.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the ranks' answers are readable; silent ranks are named, with the reason.
    #[test]
    fn running_heaps_are_for_people() {
        let heap = r#"{
            "job": "00000000000000ab", "program": "kv", "ranks": 6, "nodes": 2,
            "partitions": [{
                "rank": 0, "node": 0, "process": 77, "room_bytes": 1048576,
                "report": {
                    "objects": 5, "used_bytes": 131072, "partition_bytes": 2097152, "retired": 1, "copies": 2, "copy_bytes": 96,
                    "uses": 3, "copies_of_mates": 0, "fetched": 9, "from_mates": 4, "in_place": 0, "evicted": 8,
                    "types": [{"name": "kv::Batch", "copies": 2, "bytes": 96, "uses": 3}]
                },
                "sizes": [{"bytes": 48, "objects": 3, "is_large": false}, {"bytes": 65536, "objects": 1, "is_large": true}],
                "unseen": 1,
                "copies_of": [{"of": 5, "copies": 2, "bytes": 96, "uses": 3}]
            }],
            "homes": [{"node": 0, "report": {
                "reads": 12, "handed_on": 0, "from_copies": 0, "came_back": 0, "hints": 0, "channels": 2, "locks": 1
            }}],
            "silent": [{"rank": 1, "process": 78, "why": "it does not answer; is it stopped?"}],
            "elsewhere": [2, 3, 4, 5]
        }"#;
        let mut heap: HeapRunning = serde_json::from_str(heap).expect("a heap");
        let text = text_running(&heap);
        for line in [
            "kv, job 00000000000000ab, 6 ranks on 2 nodes: 5 objects, 128.0 KiB of 2.0 MiB used, 2 copies of 96 B",
            "  rank 0, node 0, process 77: 5 objects, 128.0 KiB of 2.0 MiB used, room for 1.0 MiB, 1 slots retired",
            "    3 objects of up to 48 B: 144 B",
            "    1 large objects of 64.0 KiB: 64.0 KiB",
            "    1 objects of an earlier job, whose sizes nobody has looked at",
            "    2 copies, 96 B, used 3 times; 9 fetched, 4 from ranks of the node, 8 evicted",
            "    2 copies of objects of rank 5: 96 B, used 3 times",
            "    2 copies of kv::Batch: 96 B, used 3 times",
            "  home of node 0: 12 reads, 0 handed on to copies elsewhere, 0 from copies here, 2 channels, 1 locks in use",
            "  rank 1, process 78: it does not answer; is it stopped?",
            "  4 ranks, from 2 to 5, are on other machines, or have ended",
        ] {
            assert!(text.lines().any(|other| other == line), "{line:?} is not in\n{text}");
        }
        heap.partitions.clear();
        assert!(text_running(&heap).starts_with("job 00000000000000ab: no rank answers\n"));
    }
}
