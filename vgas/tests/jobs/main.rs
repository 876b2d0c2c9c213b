//! Whole jobs: this program is launcher, node daemon and rank, so that the tests run real processes over real conduits.
//!
//! Without arguments it runs every scenario in every setting that makes sense for it and closes with a count. Arguments
//! select scenarios by a part of their name; `VGAS_TEST_SEED` replays a seed, `VGAS_TEST_CONDUIT` replaces the conduit of
//! every setting with more than one node, `VGAS_TEST_SET` (such as `agent.threads=2`) adds to all settings, and `VGAS_TEST_START_TIMEOUT_MS` gives slow machines time to start.

mod addresses;
mod cluster;
mod fetches;
mod forms;
mod large;
mod local;
mod locks;
mod mates;
mod misses;
mod named;
mod own;
mod parts;
mod pinned;
mod progress;
mod reads;
mod scenarios;
mod segments;
mod services;
mod streamed;
mod teams;
mod teams_nb;
mod words;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;
use vgas::config::{Config, FlagValue, Sources};
use vgas::launch::{JobRequest, run};
use vgas_testing::job_within_bound;

/// How a scenario is run.
#[derive(Clone, Debug)]
struct Setting {
    ranks: u32,
    nodes: u32,
    settings: BTreeMap<&'static str, String>,
}

impl Setting {
    fn new(ranks: u32, nodes: u32, settings: &[(&'static str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { ranks, nodes, settings }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "node") {
        return match vgas::service::node_main_with(services::services()) {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                eprintln!("node: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if std::env::var_os("VGAS_CONTROL_FD").is_some() {
        let name = arguments.first().map(String::as_str).unwrap_or_default();
        let seed = arguments.get(1).and_then(|seed| seed.parse().ok()).unwrap_or(1);
        return scenarios::run_rank(name, seed);
    }
    let seed: u64 = match std::env::var("VGAS_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed,
        None => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |time| time.subsec_nanos().into()),
    };
    // What a test runner passes (`--nocapture`, `--test-threads`) means nothing here.
    let wanted: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let conduit = std::env::var("VGAS_TEST_CONDUIT").ok();
    let start_timeout = std::env::var("VGAS_TEST_START_TIMEOUT_MS").ok();
    let more: Option<&'static str> = std::env::var("VGAS_TEST_SET").ok().map(|text| &*text.leak());
    let more = more.and_then(|text| text.split_once('='));
    let (mut passed, mut failed) = (0, 0);
    for (scenario, ends_with) in scenarios::all() {
        if !wanted.is_empty() && !wanted.iter().any(|word| scenario.name.contains(word.as_str())) {
            continue;
        }
        for mut setting in (scenario.settings)() {
            if let Some(conduit) = conduit.as_ref().filter(|_| setting.nodes > 1) {
                setting.settings.insert("conduit", conduit.clone());
            }
            setting.settings.extend(more.map(|(name, value)| (name, value.to_owned())));
            setting.settings.extend(start_timeout.clone().map(|limit| ("run.start_timeout_ms", limit)));
            let began = Instant::now();
            let words: Vec<String> = setting.settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let title = format!(
                "{} ({} ranks, {} nodes, {})",
                scenario.name,
                setting.ranks,
                setting.nodes,
                words.join(" ")
            );
            let ended = job_within_bound(&title, seed, || run_job(scenario.name, seed, &setting));
            let ended = match (ended, ends_with) {
                (Err(why), Some(expected)) if why.contains(expected) => local::nothing_is_left(),
                (Ok(()), Some(expected)) => Err(format!("ended well, without {expected}")),
                (ended, _) => ended,
            };
            match ended {
                Ok(()) => {
                    println!("ok      {title} in {:.1?}", began.elapsed());
                    passed += 1;
                }
                Err(why) => {
                    println!("FAILED  {title}: {why}; replay with VGAS_TEST_SEED={seed}");
                    failed += 1;
                }
            }
        }
    }
    if wanted.is_empty() || wanted.iter().any(|word| "named".contains(word.as_str())) {
        let began = Instant::now();
        match named::sequence() {
            Ok(()) => {
                println!("ok      named segments over several jobs in {:.1?}", began.elapsed());
                passed += 1;
            }
            Err(why) => {
                println!("FAILED  named segments over several jobs: {why}");
                failed += 1;
            }
        }
    }
    local::remove_folder();
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The cache client, of which the scenarios look at what they have no other way to see.
fn client(runtime: &vgas::Runtime) -> &vgas_cache::client::Client {
    // SAFETY: the segments are the scenarios' own.
    unsafe { runtime.raw_client() }
}

fn run_job(name: &str, seed: u64, setting: &Setting) -> Result<(), String> {
    let flags = setting.settings.iter().map(|(name, text)| FlagValue {
        flag: "--set".into(),
        name: (*name).into(),
        text: text.clone(),
    });
    let sources = Sources { file: None, environment: Vec::new(), flags: flags.collect() };
    let config = Config::load(&sources).map_err(|error| error.to_string())?;
    let status = run(JobRequest {
        program: std::env::current_exe().map_err(|error| error.to_string())?.into(),
        name: None,
        arguments: vec![OsString::from(name), OsString::from(seed.to_string())],
        ranks: setting.ranks,
        nodes: setting.nodes,
        hosts: Vec::new(),
        allocation: None,
        environment: Vec::new(),
        daemon: Vec::new(),
        settings: config.settings().clone(),
    })
    .map_err(|error| error.to_string())?;
    match status.message {
        None if status.code == 0 => Ok(()),
        message => Err(format!("status {}: {}", status.code, message.unwrap_or_default())),
    }
}
