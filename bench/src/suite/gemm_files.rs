//! The product of NumPy files by `vgas gemm`, against what people use instead: NumPy over the same files, memory-mapped. Each has the
//! machine for itself, in turn; with `--memory`, under one limit that is less than the matrices.
//!
//! Counted is the whole of it, from the files to a file: ours reads, multiplies and writes one after the other.

use super::job::Result;
use super::report::Report;
use crate::figure::{Claim, Figure, Form, Reference};
use crate::gemm::demo;
use crate::gemm::npy::{Dtype, Order, Shape2};
use crate::gemm::output::path_of;
use crate::registry::{Benchmark, CannotRun, Options, Parameter, Row, Setup};
use std::fs::File;
use std::process::{Command, Output, Stdio};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "gemm-files",
    help: "Product of NumPy files, against NumPy over memory-mapped files; for --memory, such as 288MiB.",
    setup: Setup::OwnJobs { decides: &["cache.size", "run.label"] },
    settings: &[],
    parameters: &[
        Parameter { name: "order", default: "4096", help: "Rows and columns of the matrices, of f64." },
        Parameter { name: "cache", default: "96", help: "MiB of our cache." },
        Parameter { name: "samples", default: "2", help: "Products of each kind." },
    ],
    full: &[("order", "6144"), ("samples", "3")],
    figures: &[Figure {
        name: "gemm-files",
        question: "How fast is a product of files that memory does not hold?",
        expect: "Beyond memory NumPy reads rows and columns again and again as pages fault; tiles are read once for many products.",
        unit: "GFLOP/s",
        cases: &[OURS, THEIRS],
        references: &[THEIRS],
        claims: &[Claim::new(OURS, Reference::Case(THEIRS), 2.0)],
        form: Form::Dots { by: &[] },
        ..Figure::BASE
    }],
    check: |options| match options.get::<u64>("order")? {
        0..=100_000 => options.mebibytes("cache").map(drop),
        _ => Err("parameter `order` is at most 100000".into()),
    },
    run,
};

const OURS: &str = "vgas gemm";
const THEIRS: &str = "NumPy, memory-mapped files";

/// NumPy's product; seconds, without starting it.
const NUMPY: &str = "import sys, time, numpy
start = time.perf_counter()
a, b = (numpy.load(path, mmap_mode='r') for path in sys.argv[1:3])
c = numpy.load(sys.argv[3], mmap_mode='r+')
numpy.matmul(a, b, out=c)
c.flush()
print(time.perf_counter() - start)";

fn run(options: &Options) -> Result<Vec<Row>> {
    let (order, samples): (u64, usize) = (options.get("order")?, options.get("samples")?);
    let python = Command::new("python3").args(["-c", "import numpy"]).output();
    if !python.is_ok_and(|output| output.status.success()) {
        return Err(CannotRun("there is no python3 with numpy".into()).into());
    }
    let folder = options.config().settings().nvm.directory_path();
    let shape = Shape2 { rows: order, columns: order };
    // The third one takes NumPy's product.
    let file = |seed| demo::scratch_random(&folder, Dtype::Float64, Order::C, shape, seed);
    let files: [File; 3] = [file(1)?, file(2)?, file(3)?];
    let paths = files.each_ref().map(path_of);
    let this = std::env::current_exe()?;
    let cache = format!("{}MiB", options.text("cache"));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for sample in 0..samples {
        for turn in 0..2 {
            // Data left in the kernel's cache by one is no help to the other.
            forget(&files)?;
            if (sample + turn) % 2 == 0 {
                let mut command = Command::new(&this);
                command.arg("gemm").args(&paths[..2]).arg("-o").arg(&folder).args(["--discard", "--json"]);
                command.args(["--cache", &cache]);
                command.args(options.given_settings().map(|(name, value)| format!("--set={name}={value}")));
                let output = command.stdin(Stdio::null()).output()?;
                let summary: serde_json::Value = serde_json::from_slice(&succeeded(OURS, output)?)?;
                let parts = ["seconds_loading", "seconds_computing", "seconds_writing"];
                let seconds: Option<f64> = parts.iter().map(|part| summary[part].as_f64()).sum();
                ours.push(seconds.ok_or("the summary has no times")?);
            } else {
                let output =
                    Command::new("python3").args(["-c", NUMPY]).args(&paths).stdin(Stdio::null()).output()?;
                let text = String::from_utf8(succeeded(THEIRS, output)?)?;
                theirs.push(text.trim().parse::<f64>()?);
            }
        }
    }
    let rates = |seconds: &[f64]| -> Vec<f64> {
        seconds.iter().map(|seconds| 2.0 * (order as f64).powi(3) / seconds / 1e9).collect()
    };
    let mut report = Report::new("gemm-files").under("order", order).under("cache", cache);
    report.compare(["rate", "GFLOP/s"], (OURS, &rates(&ours)), (THEIRS, &rates(&theirs)));
    report.add(OURS, "time", "s", ours);
    report.add(THEIRS, "time", "s", theirs);
    Ok(report.into_rows())
}

/// Drops the files from the kernel's cache, when they are on the device.
fn forget(files: &[File]) -> Result<()> {
    for file in files {
        file.sync_all()?;
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

/// Returns its output, or its last words as the error.
fn succeeded(who: &str, output: Output) -> Result<Vec<u8>> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().last().map_or_else(|| output.status.to_string(), str::to_owned);
    Err(format!("{who} failed: {why}").into())
}
