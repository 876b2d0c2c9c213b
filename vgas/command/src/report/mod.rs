//! `vgas bench all`: runs the benchmarks of a report, one after the other, and writes one folder: a page with all pictures, the rows, and
//! the pictures as files.
//!
//! Each benchmark is a process group of its own, so that one that fails or hangs is one line of the report, and that all of it ends when
//! this command is told to. Its rows come through a pipe; nothing is written before the end.

pub mod compare;
mod page;
pub mod watched;

use crate::cli::Bench;
use crate::failure::Failure;
use crate::job;
use crate::output;
use crate::picture::{self, Picture};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use vgas::say;
use vgas_bench::registry::{self, Benchmark, CANNOT_RUN, Options, Row};
use watched::{End, Signals};

/// Until a benchmark has taken too long, in seconds: usual and full.
const LIMITS: [u64; 2] = [900, 14_400];

/// What came of one benchmark.
struct Outcome {
    benchmark: &'static Benchmark,
    /// As one would type it.
    command: String,
    /// Processes that counted beside it.
    busy: u32,
    seconds: f64,
    result: Result<Vec<Row>, Missing>,
}

/// Why there are no rows.
struct Missing {
    /// It lacks something here, and has not failed.
    is_skipped: bool,
    why: String,
}

impl Outcome {
    fn pictures(&self) -> Vec<Picture> {
        self.result.as_ref().map_or_else(|_| Vec::new(), |rows| picture::of_benchmark(self.benchmark, rows))
    }
}

/// Runs all of them and writes the folder. The status is that of the worst: 1 if one failed; what cannot run here is no failure.
pub fn all(bench: &Bench, machine: &Map<String, Value>) -> Result<u8, Failure> {
    let folder = bench.out.as_deref().ok_or_else(|| {
        Failure::usage("`vgas bench all` needs a folder for its report").hint("vgas bench all --out FOLDER")
    })?;
    let chosen = chosen(bench)?;
    let config = job::config(&bench.config)?;
    let folder = Folder::at(folder)?;
    let signals = Signals::catch()?;
    let loads: &[u32] = if bench.busy > 0 { &[0, bench.busy] } else { &[0] };
    let runs: Vec<_> = chosen.iter().flat_map(|one| loads.iter().map(move |busy| (*one, *busy))).collect();
    let bar = ProgressBar::new(runs.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:<16} {bar:40} {pos}/{len}  {elapsed} (left: {eta})")
    {
        bar.set_style(style);
    }
    let mut outcomes = Vec::new();
    for (benchmark, busy) in runs {
        bar.set_message(benchmark.name);
        bar.tick();
        let options = Options::new(benchmark, bench.full, &[], config.clone()).map_err(Failure::usage)?;
        let mut words = vec!["bench".to_owned(), benchmark.name.to_owned()];
        words.extend(bench.full.then(|| "--full".to_owned()));
        words.extend((busy > 0).then(|| format!("--busy={busy}")));
        words.extend(options.given_settings().map(|(name, value)| format!("--set={name}={value}")));
        let start = Instant::now();
        let limit = Duration::from_secs(LIMITS[usize::from(bench.full)]);
        let result = match watched::run(for_rows(&words)?, limit, &signals)? {
            End::Told => {
                bar.finish_and_clear();
                return Ok(watched::STATUS_TOLD);
            }
            End::Late => {
                Err(Missing { is_skipped: false, why: format!("not done after {} s", limit.as_secs()) })
            }
            End::Done { status: Some(0), output, .. } => serde_json::from_slice(&output).map_err(|error| {
                Missing { is_skipped: false, why: format!("its rows cannot be read: {error}") }
            }),
            End::Done { status, said, .. } => {
                let lines = said.lines().find_map(|line| line.strip_prefix("vgas: "));
                let why = lines.unwrap_or("it does not say why").to_owned();
                Err(Missing { is_skipped: status == Some(i32::from(CANNOT_RUN)), why })
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        let command = format!("vgas {}", words.join(" "));
        let outcome = Outcome { benchmark, command, busy, seconds, result };
        bar.suspend(|| say::line(told(&outcome)));
        bar.inc(1);
        outcomes.push(outcome);
    }
    bar.finish_and_clear();
    write(&folder, &outcomes, machine, &config)?;
    let failed = outcomes.iter().any(|one| one.result.as_ref().is_err_and(|missing| !missing.is_skipped));
    output::print(&format!("{}\n", folder.path.join("index.html").display()))?;
    Ok(u8::from(failed))
}

/// This very command with these words, whose rows are read.
fn for_rows(words: &[String]) -> Result<Command, Failure> {
    let this = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find the vgas program itself: {error}")))?;
    let mut command = Command::new(this);
    command.args(words).args(["--json", "-"]).env("VGAS_RUN_LABEL", "off").env("VGAS_STATS_PRINT", "off");
    Ok(command)
}

/// The benchmarks that are wanted.
fn chosen(bench: &Bench) -> Result<Vec<&'static Benchmark>, Failure> {
    if bench.only.is_empty() {
        return Ok(registry::reported().iter().collect());
    }
    let find = |name: &String| {
        registry::find(name).ok_or_else(|| {
            Failure::usage(format!("no benchmark is named `{name}`"))
                .hint("`vgas bench --list` lists the benchmarks")
        })
    };
    bench.only.iter().map(find).collect()
}

/// A line while it goes on.
fn told(outcome: &Outcome) -> String {
    let name = outcome.benchmark.name;
    let beside = if outcome.busy > 0 { format!(" beside {}", outcome.busy) } else { String::new() };
    let seconds = outcome.seconds;
    match &outcome.result {
        Ok(rows) => format!("{name}{beside}: {} rows in {seconds:.0} s", rows.len()),
        Err(Missing { is_skipped: true, why }) => format!("{name}{beside}: skipped: {why}"),
        Err(Missing { why, .. }) => format!("{name}{beside}: failed: {why}"),
    }
}

fn write(
    folder: &Folder<'_>,
    outcomes: &[Outcome],
    machine: &Map<String, Value>,
    config: &vgas::config::Config,
) -> Result<(), Failure> {
    let rows: Vec<&Row> = outcomes.iter().filter_map(|one| one.result.as_ref().ok()).flatten().collect();
    let text = serde_json::to_string_pretty(&rows).map_err(|error| Failure::new(format!("JSON: {error}")))?;
    folder.put("rows.json", &(text + "\n"))?;
    for outcome in outcomes {
        let ending = if outcome.busy > 0 { "-busy" } else { "" };
        for picture in outcome.pictures() {
            folder.put(&format!("{}{ending}.svg", picture.name), &picture.svg)?;
        }
    }
    folder.put("index.html", &page::html(outcomes, machine, config))
}

/// Where the report goes: made if it is not there, and left as it was if nothing came of it.
struct Folder<'p> {
    path: &'p Path,
    is_new: bool,
}

impl<'p> Folder<'p> {
    fn at(path: &'p Path) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("cannot write into {}: {error}", path.display()));
        let is_new = !path.exists();
        std::fs::create_dir_all(path).map_err(failed)?;
        let folder = Self { path, is_new };
        let probe = path.join(".vgas");
        std::fs::File::create(&probe).and_then(|_| std::fs::remove_file(&probe)).map_err(failed)?;
        Ok(folder)
    }

    fn put(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.path.join(name);
        std::fs::write(&path, text)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
    }
}

impl Drop for Folder<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // With a report in it, it stays.
            let _ = std::fs::remove_dir(self.path);
        }
    }
}
