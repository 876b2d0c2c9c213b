//! Goal: whole agents never show a wrong byte, never lose one, never hang, and never lose track of a frame, whatever the
//! order in which messages, disks and ranks go on.
//!
//! Method: hundreds of small jobs on the simulated network (see `simulation/mod.rs`), each drawn from a seed. A failure
//! prints its seed; `VGAS_SEED=n cargo test -p vgas-cache --test agents_simulated` replays it alone, with the plan.
//! `VGAS_SEEDS=n` runs so many.

mod simulation;

use simulation::Finding;
use simulation::plan::{PAGE, Plan};
use simulation::run::{Summary, run, run_and_lose, run_beside_a_writer, run_reads, run_with_failures};
use simulation::sabotage::Sabotage;
use vgas_cache::client::SegmentPages;
use vgas_cache::partition::{Policy, SegmentId};
use vgas_cache::pool::{Counter, CounterSnapshot, PageSize};
use vgas_cache::{CacheError, FailureKind};
use vgas_nvm::device::faulty::{Fault, Script, When};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// The seeds of a test: those of the environment, or so many.
fn seeds(count: u64) -> std::ops::Range<u64> {
    match number("VGAS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VGAS_SEEDS").unwrap_or(count),
    }
}

#[test]
fn random_traffic_agrees_with_the_model() {
    let mut sums = (0, 0, 0);
    let mut counters = CounterSnapshot::default();
    for seed in seeds(150) {
        let plan = Plan::draw(seed);
        match run(&plan) {
            Ok(summary) => {
                sums.0 += summary.operations;
                sums.1 += summary.rows;
                sums.2 += summary.turns;
                counters.add(&summary.counters);
            }
            Err(finding) => panic!("VGAS_SEED={seed}: {finding}\n{plan:#?}"),
        }
    }
    println!("{} operations, {} rows of the tables, {} turns", sums.0, sums.1, sums.2);
    println!("{counters:?}");
}

/// Small gets that bring no page in meet evictions, write-backs and writers: many more pages than frames, so that most pages
/// are on NVMe alone when somebody wants a few of their bytes.
#[test]
fn parts_of_pages_agree_with_the_model() {
    let mut counters = CounterSnapshot::default();
    for seed in seeds(40) {
        let drawn = Plan::draw(seed);
        let plan = Plan {
            partitions: vec![16 + seed % 16; drawn.partitions.len()],
            part_bytes_max: if seed % 2 == 0 { 64 } else { PAGE as u64 },
            self_service: false,
            read_nearest: false,
            operations: 400,
            // As a runtime sets it: a window larger than what can be evicted pushes itself out.
            window_pages_max: u64::from(drawn.frames / 8).max(1),
            ..drawn
        };
        match run(&plan) {
            Ok(summary) => counters.add(&summary.counters),
            Err(finding) => panic!("VGAS_SEED={seed}: {finding}\n{plan:#?}"),
        }
    }
    let (parts, pages) = (counters.get(Counter::NvmPartReads), counters.get(Counter::NvmReads));
    println!("{parts} parts and {pages} pages were read");
    assert!(parts > 200 || number("VGAS_SEED").is_some(), "hardly any part was read: {parts}");
}

/// Whole pages that a rank of the home puts, in frames that it fills, meet gets for which the home brings the same pages in: with so few
/// frames that the puts can have all of them.
#[test]
fn puts_of_whole_pages_beside_gets_end() {
    for seed in seeds(60) {
        let drawn = Plan::draw(seed);
        let home_only = Policy { home_only: true, ..Policy::default() };
        let kinds = [(0, Policy::default()), (1, home_only)].map(|(number, policy)| SegmentPages {
            segment: SegmentId(number),
            size: PageSize::of_bytes(PAGE as u32).expect("a size"),
            policy,
        });
        let (nodes, ranks) = (3, 3);
        let plan = Plan {
            nodes,
            ranks,
            kinds: kinds.into(),
            partitions: vec![1, 0, 0, 48 + seed % 32, 0, 0],
            frames: 12 + drawn.agent_threads + (seed / 4 % 3) as u32 * 4,
            whole_page_put: true,
            owners_write: true,
            tallies: false,
            pointers: false,
            named: false,
            operations: 0,
            turns_max: 400_000,
            ..drawn
        };
        if let Err(finding) = run_beside_a_writer(&plan, 4) {
            panic!("VGAS_SEED={seed}: {finding}\n{plan:#?}");
        }
    }
}

/// A page that is only read is never written back, whatever the policy: so reads go on when all disks are full.
#[test]
fn reads_write_nothing_and_need_no_space() {
    let mut read = 0;
    for seed in seeds(60) {
        let drawn = Plan::draw(seed);
        let policy = Policy {
            home_only: seed % 3 == 0,
            in_place: seed % 3 == 1,
            streamed: seed % 5 == 0,
            ..Policy::default()
        };
        let size = PageSize::of_bytes(PAGE as u32).expect("a size");
        let plan = Plan {
            kinds: vec![SegmentPages { segment: SegmentId::FIRST, size, policy }],
            partitions: (0..drawn.ranks).map(|rank| 4 + (seed + u64::from(rank)) % 29).collect(),
            // As a runtime sets it: a window larger than what can be evicted pushes itself out.
            window_pages_max: u64::from(drawn.frames / 8).max(1),
            frames: drawn.frames.min(40),
            owners_write: true,
            tallies: false,
            pointers: false,
            named: true,
            operations: 0,
            ..drawn
        };
        match run_reads(&plan, 3) {
            Ok(count) => read += count,
            Err(finding) => panic!("VGAS_SEED={seed}: {finding}\n{plan:#?}"),
        }
    }
    println!("{read} pages were read");
    assert!(read > 1000 || number("VGAS_SEED").is_some(), "hardly any page was read: {read}");
}

/// Without this, a failure that a seed has found could not be found again.
#[test]
fn a_seed_replays_exactly() {
    for seed in [1, 2, 3] {
        let [first, second] = [(); 2].map(|()| run(&Plan::draw(seed)).expect("no finding"));
        assert_eq!((first.turns, first.rows), (second.turns, second.rows), "seed {seed}");
        assert_eq!(first.counters, second.counters, "seed {seed}");
    }
}

/// Seeds until a broken promise is noticed, and as what.
fn noticed(sabotage: impl Fn(u64) -> Sabotage, change: impl Fn(&mut Plan)) -> Option<(u64, Finding)> {
    (0..40).find_map(|seed| {
        let mut plan = Plan::draw(seed);
        plan.sabotage = Some(sabotage(seed));
        plan.turns_max = 100_000;
        change(&mut plan);
        run(&plan).err().map(|finding| (seed, finding))
    })
}

/// The simulation looks: each promise of a conduit that agents rely on is noticed when it is broken.
#[test]
fn a_lost_message_is_noticed() {
    let (seed, finding) =
        noticed(|seed| Sabotage::Lose { after: 20 + seed as u32 }, |_| ()).expect("unnoticed");
    println!("seed {seed}: {finding}");
}

#[test]
fn messages_that_overtake_each_other_are_noticed() {
    let (seed, finding) = noticed(|_| Sabotage::Overtake { after: 20 }, |_| ()).expect("unnoticed");
    println!("seed {seed}: {finding}");
}

/// The agent keeps a frame until the conduit has taken its content. A conduit that says so too early makes it a frame that
/// was released before its content was sent.
#[test]
fn a_frame_released_before_its_content_was_sent_is_noticed() {
    let late = |_| Sabotage::ReadLate { polls: 40 };
    let (seed, finding) = noticed(late, |plan| plan.cooperative = true).expect("unnoticed");
    // Wherever the wrong bytes show first: with a reader, in another copy, or on disk.
    let wrong_bytes = [
        "an old value",
        "a value from the future",
        "a word that nobody wrote there",
        "copies differ",
        "a checkpoint has lost something",
    ];
    assert!(wrong_bytes.contains(&finding.what), "noticed as something else: {finding}");
    println!("seed {seed}: {finding}");
}

/// Pages of node 0 whose device failed, as the log of rows tells.
fn failed_pages(summary: &Summary) -> Vec<u64> {
    let rows =
        summary.log.lines().filter(|row| row.contains(" ReadFailed ") || row.contains(" WriteFailed "));
    rows.filter_map(|row| row.split(' ').next()?.parse().ok()).collect()
}

/// Every failure names a page that really failed, with one of these reasons.
fn check_failures(plan: &Plan, summary: &Summary, reasons: &[FailureKind]) {
    let failed = failed_pages(summary);
    for error in &summary.failures {
        let CacheError::Page { owner, page, reason, .. } = error else {
            panic!("VGAS_SEED={}: {error}", plan.seed)
        };
        let number = usize::from(owner.segment.0) * plan.ranks as usize + owner.owner.0 as usize;
        let index = (summary.first_pages[number] + *page).0;
        assert!(
            reasons.contains(&reason.kind) && failed.contains(&index),
            "VGAS_SEED={}: {error}, but {failed:?} have failed",
            plan.seed
        );
    }
}

/// Without the typed error a rank would wait for ever, or read the frame's old bytes; without its end for this page alone,
/// others would wait, too.
#[test]
fn a_device_that_cannot_read_fails_the_get_of_that_page_alone() {
    let mut failures = 0;
    for seed in seeds(60) {
        let script = Script::new();
        let (fault, reason) = match seed % 2 {
            0 => (Fault::Error(rustix::io::Errno::IO), FailureKind::Device),
            _ => (Fault::FlipBit(1234 + seed), FailureKind::Corrupt),
        };
        for read in 0..6 {
            script.plan(When::Read(1 + read * 3), fault);
        }
        let plan = Plan { disk: Some(script), named: false, ..Plan::draw(seed) };
        match run_with_failures(&plan) {
            Ok(summary) => {
                check_failures(&plan, &summary, &[reason]);
                failures += summary.failures.len();
            }
            Err(finding) => panic!("VGAS_SEED={seed}: {finding}\n{plan:#?}"),
        }
    }
    assert!(failures > 10 || number("VGAS_SEED").is_some(), "the faults hit nobody");
    println!("{failures} operations failed");
}

/// A write-back that fails is repeated, or the one who needs the frame is told; one that is torn, while the device says
/// that all is well, is found by the checksum when the page is read again. Nobody ever reads wrong bytes.
#[test]
fn a_write_back_that_fails_or_is_torn_is_never_read_as_data() {
    let (mut failures, mut hit) = (0, 0);
    for seed in seeds(60) {
        let script = Script::new();
        let fault = match seed % 2 {
            0 => Fault::Error(rustix::io::Errno::IO),
            _ => Fault::Torn(8 * (1 + seed % 500)),
        };
        for write in 0..6 {
            script.plan(When::Write(1 + write * 3), fault);
        }
        let plan = Plan { disk: Some(script), named: false, ..Plan::draw(seed) };
        match run_with_failures(&plan) {
            Ok(summary) => {
                check_failures(
                    &plan,
                    &summary,
                    &[FailureKind::Device, FailureKind::NoSpace, FailureKind::Corrupt],
                );
                failures += summary.failures.len();
                hit += failed_pages(&summary).len();
            }
            Err(finding) => panic!("VGAS_SEED={seed}: {finding}\n{plan:#?}"),
        }
    }
    assert!(hit > 10 || number("VGAS_SEED").is_some(), "the faults hit nothing");
    println!("{hit} reads or write-backs failed, {failures} operations with them");
}

/// Whoever waits for a node that is gone must be told which one, and soon: not only those who have asked it, but also who
/// waits for an answer of somebody who waits for it. Until then nobody reads a wrong byte, and no two nodes write a page.
#[test]
fn the_loss_of_a_node_ends_every_agent_and_every_operation() {
    let (mut completed, mut failed) = (0, 0);
    for seed in seeds(100) {
        let plan = Plan { pointers: false, named: false, turns_max: 20_000, ..Plan::draw(seed) };
        match run_and_lose(&plan) {
            Ok(loss) => {
                completed += loss.completed;
                failed += loss.failures.len();
            }
            Err(finding) => panic!("VGAS_SEED={seed}: {finding}\n{plan:#?}"),
        }
    }
    println!("{completed} operations ended well, {failed} by the loss");
    assert!(failed > 10 || number("VGAS_SEED").is_some(), "the losses hit nobody");
}

/// A full disk: what cannot be stored stays where it is; who needs room is told; nothing that was acknowledged is lost.
#[test]
fn a_full_disk_is_reported_and_loses_nothing() {
    let mut failures = 0;
    for seed in seeds(60) {
        let mut plan = Plan {
            disk_bytes_max: Some((seed % 8) * 4096),
            named: false,
            turns_max: 300_000,
            ..Plan::draw(seed)
        };
        // As a runtime sets it: a window that is larger than what can be evicted pushes itself out.
        plan.window_pages_max = u64::from(plan.frames / 8);
        match run_with_failures(&plan) {
            Ok(summary) => {
                let reasons = summary.failures.iter().map(|error| match error {
                    CacheError::Page { reason, .. } => *reason,
                    other => panic!("VGAS_SEED={seed}: {other}"),
                });
                reasons.for_each(|reason| assert_eq!(reason.kind, FailureKind::NoSpace, "VGAS_SEED={seed}"));
                failures += summary.failures.len();
            }
            Err(finding) => panic!("VGAS_SEED={seed}: {finding}\n{plan:#?}"),
        }
    }
    println!("{failures} operations failed");
    assert!(failures > 10 || number("VGAS_SEED").is_some(), "the disk was never full");
}
