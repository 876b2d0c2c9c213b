//! Code shared by the four programs: flags, the way from `main` to a job and back, progress, figures, random
//! numbers.
//!
//! A program is a [`Program`]: it runs on owned objects, in a job, or on std alone, and says what differs between the two.

// Each program uses a part of it.
#![allow(dead_code)]

pub mod figures;
pub mod random;

use clap::error::ErrorKind;
use clap::{Args, Parser};
use figures::Figures;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use vgas::{Rank, Runtime};
use vgas_objects::{HeapOptions, ObjectError, Objects, RunOptions, TaskError};

/// Error of a program, printed as one line.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Flags that all programs have.
#[derive(Args, Clone, Debug)]
pub struct Shared {
    /// Do the same without objects, too, and compare the results.
    #[arg(long)]
    pub verify: bool,
    /// Only run the version on std, in this process; started by itself, without `vgas run`.
    #[arg(long, conflicts_with = "verify")]
    pub plain: bool,
    /// Threads of each rank that run tasks; of this process, with --plain.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Heap of each rank; it may be larger than the cache, and than memory.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = bytes)]
    pub heap: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the figures to this file, as rows of JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A size such as `64KiB`, `4MiB` or `2GiB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match &text[digits..] {
        "" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        _ => None,
    };
    let number = text[..digits].parse::<u64>().ok();
    let size = number.zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    match size {
        Some(size) if size > 0 => Ok(size),
        _ => Err("write a size such as `64KiB`, `512MiB` or `2GiB`".into()),
    }
}

/// A program on owned objects, with its version on std.
pub trait Program: Parser {
    /// Its name, in messages and figures.
    const NAME: &'static str;

    /// The flags that it shares with the others.
    fn shared(&self) -> &Shared;

    /// Checks the flags against each other.
    fn check(&self) -> Result<(), String>;

    /// Runs it on objects, within [`Objects::run`] on the first of so many ranks, and verifies it if that was asked for.
    fn on_objects(&self, ranks: u32, figures: &mut Figures) -> Outcome;

    /// Runs the version on std.
    fn on_plain(&self, figures: &mut Figures) -> Outcome;

    /// Runs it on something else than objects, if that was asked for: all ranks do, with a runtime that has no segment yet.
    fn on_other(&self, _runtime: &Runtime, _figures: &mut Figures) -> Option<Outcome> {
        None
    }

    /// Does what needs neither a job nor objects, if that was asked for.
    fn alone(&self) -> Option<Outcome> {
        None
    }

    /// Joins the job.
    fn join(&self) -> vgas::Result<Runtime> {
        Runtime::init()
    }
}

/// Runs a program as its flags say. Errors are one line on standard error; the status is 2 for wrong flags, 1 for anything else.
pub fn main<P: Program>() -> ExitCode {
    let parsed = P::command().try_get_matches().and_then(|found| P::from_arg_matches(&found));
    let program = parsed.and_then(|program| match program.check() {
        Ok(()) => Ok(program),
        Err(why) => Err(P::command().error(ErrorKind::ValueValidation, why)),
    });
    let program = match program {
        Ok(program) => program,
        Err(error) => return refuse(&error),
    };
    let said = match program.alone() {
        Some(said) => said,
        None if program.shared().plain => plain(&program),
        None => in_job(&program),
    };
    match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_of_others(&*error) => ExitCode::FAILURE,
        Err(error) => {
            vgas::say::line(format_args!("{}: {error}", P::NAME));
            ExitCode::FAILURE
        }
    }
}

/// Says what is wrong with the flags, once: all ranks of a job know it.
fn refuse(error: &clap::Error) -> ExitCode {
    let code = error.exit_code() as u8;
    let runtime = Runtime::init().ok();
    if runtime.as_ref().is_none_or(|runtime| runtime.rank() == Rank(0)) {
        // Without a reader, nothing is missed.
        let _ = error.print();
    }
    if let Some(runtime) = runtime
        && let Err(error) = runtime.exit(code)
    {
        vgas::say::line(error);
    }
    ExitCode::from(code)
}

fn plain<P: Program>(program: &P) -> Outcome {
    let mut figures = Figures::create(P::NAME, program.shared().json.as_deref())?;
    figures.hold("version", "plain").hold("threads", program.shared().threads);
    program.on_plain(&mut figures)?;
    figures.write()
}

fn in_job<P: Program>(program: &P) -> Outcome {
    let shared = program.shared();
    let runtime = program.join().map_err(|why| {
        let name = P::NAME;
        format!("{why} (run it as `vgas run -n 4 --nodes 2 -- {name}`, or alone with --plain)")
    })?;
    let (ranks, nodes) = (runtime.ranks(), runtime.nodes());
    let is_first = runtime.rank() == Rank(0);
    let figures = || -> Outcome<Figures> {
        let mut figures = Figures::create(P::NAME, shared.json.as_deref().filter(|_| is_first))?;
        figures.hold("ranks", ranks).hold("nodes", nodes).hold("threads", shared.threads);
        Ok(figures)
    };
    let mut other = Figures::create(P::NAME, None)?;
    other.hold("ranks", ranks).hold("nodes", nodes);
    if let Some(said) = program.on_other(&runtime, &mut other) {
        said?;
        runtime.finalize()?;
        return if is_first { other.write_to(shared.json.as_deref()) } else { Ok(()) };
    }
    // The joining thread's error repeats the message of a task's panic.
    std::panic::set_hook(Box::new(|_| {}));
    let objects = Objects::attach(&runtime, &HeapOptions { bytes: shared.heap, ..HeapOptions::default() })?;
    let options = RunOptions { workers: shared.threads as usize, ..RunOptions::default() };
    let said: Outcome<_> = objects
        .run(&options, || {
            let run = || -> Outcome<Figures> {
                let mut figures = figures()?;
                figures.hold("version", "objects");
                program.on_objects(ranks, &mut figures)?;
                Ok(figures)
            };
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(message_of(&*panic).into()))
        })
        .map_err(Into::into);
    let said = said.and_then(Option::transpose).and_then(|figures| count(&objects, figures));
    if let Err(error) = said {
        let runtime = objects.runtime();
        if is_of_others(&*error) {
            // The launcher reports why another rank is gone.
            runtime.complain(&error.to_string(), 1)?;
        } else {
            vgas::say::line(format_args!("{}: {error}", P::NAME));
            runtime.exit(1)?;
        }
        // The heap ends with the job.
        std::process::exit(1);
    }
    Ok(objects.finalize()?)
}

/// Returns true if an error only reports the loss of another rank.
fn is_of_others(error: &(dyn Error + 'static)) -> bool {
    if let Some(TaskError::Objects(error)) = error.downcast_ref() {
        return is_of_others(&**error);
    }
    let error = match error.downcast_ref() {
        Some(ObjectError::Job(error)) => Some(error),
        Some(ObjectError::Lost(lost)) => Some(&lost.why),
        _ => error.downcast_ref(),
    };
    error.is_some_and(vgas::Error::is_complaint)
}

/// Adds what all ranks have sent to other nodes, and writes the figures that the first rank has.
fn count(objects: &Objects, figures: Option<Figures>) -> Outcome {
    // SAFETY: no segment is reached by it, and all ranks call the same.
    let (runtime, endpoint) = unsafe { (objects.runtime(), objects.runtime().raw_endpoint()) };
    let sent = endpoint.counts().network;
    let own = [sent.requests + sent.replies, sent.payload_bytes];
    let all = runtime.all_reduce(own, |a, b| [a[0] + b[0], a[1] + b[1]])?;
    let Some(mut figures) = figures else { return Ok(()) };
    figures.add("sent by all ranks", "messages", "", &[all[0] as f64]);
    figures.add("sent by all ranks", "payload", "bytes", &[all[1] as f64]);
    figures.write()
}

/// Returns the message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it has panicked".into())
}

/// A bar on standard error, if that is a terminal, of what takes more than two seconds. It vanishes when dropped.
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    is_shown: bool,
}

impl Progress {
    /// Starts at zero of `steps`.
    pub fn new(what: &'static str, steps: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        // A wrong template would be this file's mistake; then the default looks will do.
        if let Ok(style) =
            ProgressStyle::with_template("{msg} {bar:40} {percent:>3} %  {elapsed} (left: {eta})")
        {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self { bar, began: Instant::now(), is_shown: false }
    }

    /// One more step is done.
    pub fn step(&mut self) {
        self.bar.inc(1);
        if !self.is_shown && self.began.elapsed() > Duration::from_secs(2) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.is_shown = true;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
