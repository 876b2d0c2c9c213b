//! Objects in whole jobs: this program is launcher, node daemon and rank, so that the tests run real processes over real conduits.
//!
//! Arguments select scenarios by a part of their name; `VGAS_TEST_SEED` replays a seed, `VGAS_TEST_CONDUIT` replaces the conduit of every
//! setting with more than one node. `--ignored` runs the slower ones, and nothing else.

mod channels;
mod conditions;
mod disks;
mod drops;
mod forgotten;
mod kept;
mod kept_replicas;
mod losses;
mod nodes;
mod periods;
mod programs;
mod random;
mod reads;
mod replicas;
mod rows;
mod running;
mod scenarios;
mod sharing;
mod tasks;
mod tied;
mod usual;
#[cfg(all(feature = "arrow", feature = "rkyv", feature = "serde"))]
mod views;
mod watched;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use vgas::config::{Config, FlagValue, Sources};
use vgas::launch::{JobRequest, run};
use vgas_objects::{HeapOptions, Objects};
use vgas_testing::job_within_bound;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// One thing that is tested, over several numbers of ranks and nodes.
struct Scenario {
    name: &'static str,
    /// Ranks and nodes.
    jobs: &'static [(u32, u32)],
    heap: HeapOptions,
    rank: fn(&Objects, u64) -> Outcome,
    /// The words of the error with which it must end, if it must.
    ends_with: Option<&'static str>,
}

/// All scenarios, each in the file that tells its story.
fn all() -> impl Iterator<Item = &'static Scenario> {
    [
        scenarios::ALL,
        drops::ALL,
        forgotten::ALL,
        nodes::ALL,
        periods::ALL,
        random::ALL,
        reads::ALL,
        rows::ALL,
        tasks::ALL,
        sharing::ALL,
        channels::ALL,
        conditions::ALL,
        usual::ALL,
        tied::ALL,
        #[cfg(all(feature = "arrow", feature = "rkyv", feature = "serde"))]
        views::ALL,
        watched::ALL,
    ]
    .into_iter()
    .flatten()
}

/// The heap of most scenarios.
const HEAP: HeapOptions = HeapOptions { bytes: 16 << 20, copies: 64, ..HeapOptions::DEFAULT };

const JOBS: &[(u32, u32)] = &[(1, 1), (2, 1), (2, 2), (4, 2), (3, 3)];

/// The job under the heap.
fn job(objects: &Objects) -> &vgas::Runtime {
    objects.runtime()
}

/// The endpoint under the heap.
fn endpoint(objects: &Objects) -> &vgas::Endpoint {
    // SAFETY: the scenarios count what was sent.
    unsafe { job(objects).raw_endpoint() }
}

/// Longer than any job takes to notice that a rank is gone, also beside programs that compute.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "node") {
        return vgas::service::node_main_with(vgas_objects::services()).map_or_else(failed, ExitCode::from);
    }
    if arguments.first().is_some_and(|word| word == disks::LAUNCHER) {
        return disks::launch(&arguments);
    }
    if std::env::var_os("VGAS_CONTROL_FD").is_some() {
        let seed = arguments.get(1).and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let name = arguments.first().map(String::as_str).unwrap_or_default();
        return run_rank(name, seed).map_or_else(failed, |()| ExitCode::SUCCESS);
    }
    let seed: u64 = match std::env::var("VGAS_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed,
        None => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |time| time.subsec_nanos().into()),
    };
    // What a test runner passes (`--nocapture`, `--test-threads`) means nothing here.
    let wanted: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    // The slower ones, and nothing else.
    let is_slow = arguments.iter().any(|word| word == "--ignored");
    let (mut passed, mut failed) = (0, 0);
    for scenario in all() {
        if is_slow || (!wanted.is_empty() && !wanted.iter().any(|word| scenario.name.contains(word.as_str())))
        {
            continue;
        }
        for &(ranks, nodes) in scenario.jobs {
            let began = Instant::now();
            let title = format!("{} ({ranks} ranks, {nodes} nodes)", scenario.name);
            let ended = job_within_bound(&title, seed, || run_job(scenario.name, seed, ranks, nodes, &[]));
            let took = began.elapsed();
            let ended = match (ended, scenario.ends_with) {
                (Err(why), Some(expected)) if !why.contains(expected) => Err(why),
                (Err(_), Some(_)) if took > NOTICED_WITHIN => Err(format!("ended after {took:.1?}")),
                (Err(_), Some(_)) => Ok(()),
                (Ok(()), Some(expected)) => Err(format!("ended well, without {expected}")),
                (ended, None) => ended,
            };
            match ended {
                Ok(()) => {
                    println!("ok      {title} in {took:.1?}");
                    passed += 1;
                }
                Err(why) => {
                    println!("FAILED  {title}: {why}; replay with VGAS_TEST_SEED={seed}");
                    failed += 1;
                }
            }
        }
    }
    type Sequence<'s> = (&'static str, &'s dyn Fn() -> Result<(), String>);
    let sequences: &[Sequence<'_>] = &[
        (kept::NAME, &|| job_within_bound(kept::NAME, seed, kept::sequence)),
        (kept_replicas::NAME, &|| job_within_bound(kept_replicas::NAME, seed, kept_replicas::sequence)),
        (replicas::NAME, &|| job_within_bound(replicas::NAME, seed, || replicas::sequence(seed))),
        (running::NAME, &|| job_within_bound(running::NAME, seed, running::sequence)),
        (disks::NAME, &|| job_within_bound(disks::NAME, seed, || disks::sequence(seed))),
        (losses::NAME, &|| job_within_bound(losses::NAME, seed, || losses::sequence(seed))),
        (programs::NAME, &|| programs::sequence(seed, programs::Size::of(is_slow))),
        #[cfg(feature = "faults")]
        (programs::planted::NAME, &|| programs::planted::sequence(seed)),
    ];
    for &(name, sequence) in sequences {
        if (is_slow && name != programs::NAME)
            || !(wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str())))
        {
            continue;
        }
        let began = Instant::now();
        match sequence() {
            Ok(()) => {
                println!("ok      {name} in {:.1?}", began.elapsed());
                passed += 1;
            }
            Err(why) => {
                println!("FAILED  {name}: {why}; replay with VGAS_TEST_SEED={seed}");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failed(error: impl std::fmt::Display) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}

fn run_rank(name: &str, seed: u64) -> Outcome {
    if let Some(part) = kept::part(name)
        .or_else(|| kept_replicas::part(name))
        .or_else(|| replicas::part(name))
        .or_else(|| programs::part(name))
        .or_else(|| losses::part(name))
        .or_else(|| disks::part(name))
        .or_else(|| running::part(name))
    {
        return part(vgas::Runtime::init()?, seed);
    }
    if let Some((_, part)) = losses::OTHERS.iter().find(|(other, _)| *other == name) {
        return part();
    }
    if name == tasks::OTHER_PROGRAM {
        tasks::become_another(seed)?;
    }
    let scenario = all().find(|scenario| scenario.name == name).ok_or_else(|| format!("no {name}"))?;
    let runtime = vgas::Runtime::init()?;
    if name == scenarios::PLAIN_RANK && runtime.rank().0 == 1 {
        return scenarios::attach_plainly(&runtime, &scenario.heap);
    }
    let objects = Objects::attach(&runtime, &scenario.heap)?;
    (scenario.rank)(&objects, seed)?;
    Ok(objects.finalize()?)
}

fn run_job(
    name: &str,
    seed: u64,
    ranks: u32,
    nodes: u32,
    more: &[(&'static str, String)],
) -> Result<(), String> {
    // A cache so small that everything is evicted all the time.
    let mut settings = BTreeMap::from([
        ("cache.size", "1MiB".to_owned()),
        ("cache.page", "4KiB".to_owned()),
        ("segment.tiered_max", "64MiB".to_owned()),
        ("segment.pinned_max", "1MiB".to_owned()),
    ]);
    settings.extend(more.iter().cloned());
    settings.extend(
        std::env::var("VGAS_TEST_CONDUIT").ok().filter(|_| nodes > 1).map(|conduit| ("conduit", conduit)),
    );
    settings.extend(
        std::env::var("VGAS_TEST_START_TIMEOUT_MS").ok().map(|limit| ("run.start_timeout_ms", limit)),
    );
    let flags =
        settings.into_iter().map(|(name, text)| FlagValue { flag: "--set".into(), name: name.into(), text });
    let sources = Sources { file: None, environment: Vec::new(), flags: flags.collect() };
    let config = Config::load(&sources).map_err(|error| error.to_string())?;
    let ended = run(JobRequest {
        program: std::env::current_exe().map_err(|error| error.to_string())?.into(),
        name: None,
        arguments: vec![OsString::from(name), OsString::from(seed.to_string())],
        ranks,
        nodes,
        hosts: Vec::new(),
        allocation: None,
        environment: Vec::new(),
        daemon: Vec::new(),
        settings: config.settings().clone(),
    });
    if name == tasks::OTHER_PROGRAM {
        // No rank of this job can remove it in the next one, which has the same seed.
        let _ = std::fs::remove_dir_all(tasks::other_folder(seed));
    }
    let status = ended.map_err(|error| error.to_string())?;
    match status.message {
        None if status.code == 0 => Ok(()),
        message => Err(format!("status {}: {}", status.code, message.unwrap_or_default())),
    }
}
