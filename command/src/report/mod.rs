//! `vgas bench all`: runs the benchmarks of a report in turn, and writes one folder: a page with all pictures, the rows, and the pictures
//! as files.
//!
//! Each benchmark is a process group of its own: one that fails or hangs is one line of the report, and a signal to this command ends all
//! of it. Rows come through a pipe. The folder is complete after each benchmark, so a report that is stopped shows what it has, and
//! `--resume` runs the rest.
//!
//! Benchmarks that throttle links and drives by themselves run a second time without throttling, so that both figures stand side by side.

pub mod compare;
mod page;
pub mod watched;

use crate::cli::Bench;
use crate::failure::Failure;
use crate::job;
use crate::output;
use crate::picture::{self, Picture};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use vgas::config::Config;
use vgas::say;
use vgas_bench::registry::{self, Benchmark, CANNOT_RUN, Options, Row};
use watched::{End, Signals};

/// Seconds after which a benchmark is ended: usual and full.
const LIMITS: [u64; 2] = [900, 14_400];

/// File of a report from which `--resume` continues.
const RUNS: &str = "runs.json";

/// A benchmark to run, with its varied parameters.
struct Run {
    benchmark: &'static Benchmark,
    /// Processes that compute beside it.
    busy: u32,
    /// True if the limits of links and drives that the benchmark sets by itself are lifted.
    is_unthrottled: bool,
    /// The command line after `vgas`.
    words: Vec<String>,
}

/// The result of one run.
struct Outcome {
    benchmark: &'static Benchmark,
    busy: u32,
    is_unthrottled: bool,
    stored: Stored,
}

/// The part of an outcome that [`RUNS`] has.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// As a user would type it.
    command: String,
    seconds: f64,
    result: Result<Vec<Row>, Missing>,
}

/// Why there are no rows.
#[derive(Serialize, Deserialize)]
struct Missing {
    /// True if this machine lacks something, false for a failure.
    is_skipped: bool,
    why: String,
}

impl Outcome {
    fn pictures(&self) -> Vec<Picture> {
        let rows = self.stored.result.as_ref();
        rows.map_or_else(
            |_| Vec::new(),
            |rows| picture::of_benchmark(self.benchmark, &registry::merged(rows)),
        )
    }

    /// Ending of the names of its pictures' files.
    fn ending(&self) -> &'static str {
        match (self.busy > 0, self.is_unthrottled) {
            (true, _) => "-busy",
            (false, true) => "-unthrottled",
            (false, false) => "",
        }
    }

    /// Describes the variant in words; empty for the plain run.
    fn variant(&self) -> String {
        match (self.busy, self.is_unthrottled) {
            (0, false) => String::new(),
            (0, true) => "links and drives unthrottled".into(),
            (busy, _) => format!("beside {busy} processes that compute"),
        }
    }
}

/// Runs all of them and writes the folder. Returns status 1 if one failed; a benchmark that cannot run here is no failure.
pub fn all(bench: &Bench, machine: &Map<String, Value>) -> Result<u8, Failure> {
    let folder = bench.out.as_deref().ok_or_else(|| {
        Failure::usage("`vgas bench all` needs a folder for its report").hint("vgas bench all --out FOLDER")
    })?;
    let chosen = chosen(bench)?;
    let config = job::config(&bench.config)?;
    let runs = runs(bench, &chosen, &config)?;
    let folder = Folder::at(folder)?;
    let mut finished = if bench.resume { folder.finished()? } else { Vec::new() };
    let signals = Signals::catch()?;
    let mut progress = Progress::new(&runs, bench.full);
    let mut outcomes = Vec::new();
    for run in runs {
        let command = format!("vgas {}", run.words.join(" "));
        let reused = finished.iter().position(|stored| stored.command == command);
        let stored = match reused {
            Some(at) => finished.swap_remove(at),
            None => {
                progress.begin(&run);
                let Some(stored) = measured(&run, command, bench, &signals)? else {
                    progress.bar.finish_and_clear();
                    if !outcomes.is_empty() {
                        say::line(format!(
                            "stopped; {} has what was measured, and --resume runs the rest",
                            folder.path.display()
                        ));
                    }
                    return Ok(watched::STATUS_TOLD);
                };
                stored
            }
        };
        let Run { benchmark, busy, is_unthrottled, .. } = run;
        let outcome = Outcome { benchmark, busy, is_unthrottled, stored };
        progress.end(&outcome, reused.is_some());
        outcomes.push(outcome);
        write(&folder, &outcomes, machine, &config)?;
    }
    progress.bar.finish_and_clear();
    let is_failure = |one: &Outcome| one.stored.result.as_ref().is_err_and(|missing| !missing.is_skipped);
    output::print(&format!("{}\n", folder.path.join("index.html").display()))?;
    Ok(u8::from(outcomes.iter().any(is_failure)))
}

/// The runs of a report in their order: each benchmark idle, without its throttling if it has some, and busy if that is wanted.
fn runs(bench: &Bench, chosen: &[&'static Benchmark], config: &Config) -> Result<Vec<Run>, Failure> {
    const LIMITS: [&str; 2] = ["cluster.link", "cluster.nvm"];
    let mut runs = Vec::new();
    for benchmark in chosen {
        let options = Options::new(benchmark, bench.full, &[], config.clone()).map_err(Failure::usage)?;
        let mut words = vec!["bench".to_owned(), benchmark.name.to_owned()];
        words.extend(bench.full.then(|| "--full".to_owned()));
        words.extend(options.given_settings().map(|(name, value)| format!("--set={name}={value}")));
        let throttles = benchmark.settings.iter().map(|(name, _)| *name).filter(|name| LIMITS.contains(name));
        let is_given = |name: &&str| options.given_settings().any(|(given, _)| given == *name);
        let lifted: Vec<String> =
            throttles.filter(|name| !is_given(name)).map(|name| format!("--set={name}=none")).collect();
        let mut add = |busy: u32, is_unthrottled: bool, more: &[String]| {
            let words = [&words[..], more].concat();
            runs.push(Run { benchmark, busy, is_unthrottled, words });
        };
        add(0, false, &[]);
        if !lifted.is_empty() {
            add(0, true, &lifted);
        }
        if bench.busy > 0 {
            add(bench.busy, false, &[format!("--busy={}", bench.busy)]);
        }
    }
    Ok(runs)
}

/// Runs one in as many processes as are wanted. Returns `None` if this process was told to end.
fn measured(run: &Run, command: String, bench: &Bench, signals: &Signals) -> Result<Option<Stored>, Failure> {
    let start = Instant::now();
    let mut result = Ok(Vec::new());
    for _ in 0..bench.repeat {
        let Some(more) = rows_of_process(&run.words, bench.full, signals)? else { return Ok(None) };
        result = result.and_then(|rows: Vec<Row>| more.map(|more| [rows, more].concat()));
        if result.is_err() {
            break;
        }
    }
    Ok(Some(Stored { command, seconds: start.elapsed().as_secs_f64(), result }))
}

/// The rows of one process of a benchmark, which is ended after the limit. Returns `None` if this process was told to end.
fn rows_of_process(
    words: &[String],
    is_full: bool,
    signals: &Signals,
) -> Result<Option<Result<Vec<Row>, Missing>>, Failure> {
    let limit = Duration::from_secs(LIMITS[usize::from(is_full)]);
    Ok(Some(match watched::run(for_rows(words)?, limit, signals)? {
        End::Told => return Ok(None),
        End::Late => Err(Missing { is_skipped: false, why: format!("not done after {} s", limit.as_secs()) }),
        End::Done { status: Some(0), output, .. } => serde_json::from_slice(&output)
            .map_err(|error| Missing { is_skipped: false, why: format!("its rows cannot be read: {error}") }),
        End::Done { status, said, .. } => {
            let line = said.lines().find_map(|line| line.strip_prefix("vgas: "));
            let why = line.unwrap_or("it gave no reason").to_owned();
            Err(Missing { is_skipped: status == Some(i32::from(CANNOT_RUN)), why })
        }
    }))
}

/// Runs this very command `--repeat` times, without the flags that are for its output. Returns the rows of all processes, or a status if
/// this process was told to end.
pub fn repeated(bench: &Bench) -> Result<Result<Vec<Row>, u8>, Failure> {
    let mut words = Vec::new();
    let mut arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = arguments.next() {
        match ["--repeat", "--json", "--plot"].iter().find(|flag| word.starts_with(**flag)) {
            Some(flag) if word == *flag => drop(arguments.next()),
            Some(_) => {}
            None => words.push(word),
        }
    }
    let signals = Signals::catch()?;
    let mut rows = Vec::new();
    for _ in 0..bench.repeat {
        match rows_of_process(&words, bench.full, &signals)? {
            None => return Ok(Err(watched::STATUS_TOLD)),
            Some(Ok(more)) => rows.extend(more),
            Some(Err(missing)) => return Err(Failure::new(missing.why)),
        }
    }
    Ok(Ok(rows))
}

/// The bar, and the estimate of the time left: usual durations, scaled by how this machine has compared with them so far.
struct Progress {
    bar: ProgressBar,
    is_full: bool,
    /// Usual seconds of the remaining runs, of the finished ones, and the time of the latter.
    left: f64,
    done: f64,
    took: f64,
}

impl Progress {
    fn new(runs: &[Run], is_full: bool) -> Self {
        let bar = ProgressBar::new(runs.len() as u64);
        if let Ok(style) = ProgressStyle::with_template("{msg:<44} {bar:30} {pos}/{len}  {elapsed}") {
            bar.set_style(style);
        }
        let left = runs.iter().map(|run| usual_seconds(run, is_full)).sum();
        Self { bar, is_full, left, done: 0.0, took: 0.0 }
    }

    fn begin(&self, run: &Run) {
        let pace = if self.done > 0.0 { self.took / self.done } else { 1.0 };
        let minutes = (self.left * pace / 60.0).ceil();
        self.bar.set_message(format!("{}, about {minutes} min left", run.benchmark.name));
        self.bar.tick();
    }

    fn end(&mut self, outcome: &Outcome, is_reused: bool) {
        let usual = usual_seconds_of(outcome.benchmark, self.is_full);
        self.left -= usual;
        if !is_reused && outcome.stored.result.is_ok() {
            (self.done, self.took) = (self.done + usual, self.took + outcome.stored.seconds);
        }
        let line = if is_reused { format!("{}: measured before", titled(outcome)) } else { told(outcome) };
        self.bar.suspend(|| say::line(line));
        self.bar.inc(1);
    }
}

fn usual_seconds(run: &Run, is_full: bool) -> f64 {
    usual_seconds_of(run.benchmark, is_full)
}

fn usual_seconds_of(benchmark: &Benchmark, is_full: bool) -> f64 {
    f64::from(registry::usual_seconds(benchmark.name)) * if is_full { 10.0 } else { 1.0 }
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

fn titled(outcome: &Outcome) -> String {
    match outcome.variant() {
        variant if variant.is_empty() => outcome.benchmark.name.to_owned(),
        variant => format!("{}, {variant}", outcome.benchmark.name),
    }
}

/// The line of a benchmark that has ended.
fn told(outcome: &Outcome) -> String {
    let (title, seconds) = (titled(outcome), outcome.stored.seconds);
    match &outcome.stored.result {
        Ok(rows) => format!("{title}: {} rows in {seconds:.0} s", rows.len()),
        Err(Missing { is_skipped: true, why }) => format!("{title}: skipped: {why}"),
        Err(Missing { why, .. }) => format!("{title}: failed: {why}"),
    }
}

/// Writes the folder again: rows, runs, the pictures of the last outcome, and the page.
fn write(
    folder: &Folder<'_>,
    outcomes: &[Outcome],
    machine: &Map<String, Value>,
    config: &Config,
) -> Result<(), Failure> {
    let json = |error| Failure::new(format!("cannot write the report as JSON: {error}"));
    let stored: Vec<&Stored> = outcomes.iter().map(|one| &one.stored).collect();
    let rows: Vec<&Row> = stored.iter().filter_map(|one| one.result.as_ref().ok()).flatten().collect();
    folder.put("rows.json", &(serde_json::to_string_pretty(&rows).map_err(json)? + "\n"))?;
    folder.put(RUNS, &(serde_json::to_string(&stored).map_err(json)? + "\n"))?;
    if let Some(last) = outcomes.last() {
        for picture in last.pictures() {
            folder.put(&format!("{}{}.svg", picture.name, last.ending()), &picture.svg)?;
        }
    }
    folder.put("index.html", &page::html(outcomes, machine, config))
}

/// The folder of the report. It is created if necessary, and removed again if nothing was written into it.
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

    /// Returns the runs of an earlier report in this folder that have rows: missing ones are tried again.
    fn finished(&self) -> Result<Vec<Stored>, Failure> {
        let path = self.path.join(RUNS);
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format!("cannot resume from {}: {error}", path.display()))
                .hint("leave out --resume to begin again")
        };
        let text = std::fs::read(&path).map_err(|error| failed(&error))?;
        let stored: Vec<Stored> = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
        Ok(stored.into_iter().filter(|one| one.result.is_ok()).collect())
    }

    /// Replaces a file as a whole, so that a report that is killed has the old one or the new one.
    fn put(&self, name: &str, text: &str) -> Result<(), Failure> {
        let (path, unfinished) = (self.path.join(name), self.path.join(".vgas"));
        std::fs::write(&unfinished, text)
            .and_then(|()| std::fs::rename(&unfinished, &path))
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
    }
}

impl Drop for Folder<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // Fails if there is a report in it, which stays.
            let _ = std::fs::remove_dir(self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// Goal: a benchmark that throttles links and drives runs without that, too, unless the user has chosen limits; others run once.
    #[test]
    fn throttled_benchmarks_run_unthrottled_too() {
        let runs_of = |line: &str| {
            let cli = crate::cli::Cli::try_parse_from(line.split_whitespace()).unwrap();
            let crate::cli::Command::Bench(bench) = cli.command else { panic!("bench") };
            let config = job::config(&bench.config).unwrap();
            let runs = runs(&bench, &chosen(&bench).unwrap(), &config).unwrap();
            runs.iter().map(|run| run.words.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(
            runs_of("vgas bench all --out x --only seq,hit --busy 2"),
            [
                "bench seq",
                "bench seq --set=cluster.link=none --set=cluster.nvm=none",
                "bench seq --busy=2",
                "bench hit",
                "bench hit --busy=2"
            ]
        );
        assert_eq!(
            runs_of("vgas bench all --out x --only seq --link 10gbit,20us --nvm none"),
            ["bench seq --set=cluster.link=10gbit,20us --set=cluster.nvm=none"]
        );
    }
}
