//! Figures as rows, as `vgas bench --json` writes them.

use super::Outcome;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The figures of a run.
pub struct Figures {
    bench: &'static str,
    params: Map<String, Value>,
    rows: Vec<Value>,
    file: Option<(PathBuf, File)>,
}

impl Figures {
    /// None yet; with the file that they are to go to, which is there before anything is computed for it.
    pub fn create(bench: &'static str, path: Option<&Path>) -> Outcome<Self> {
        let file = path.map(|path| open(path).map(|file| (path.to_owned(), file))).transpose()?;
        Ok(Self { bench, params: Map::new(), rows: Vec::new(), file })
    }

    /// Something that holds for all rows that follow.
    pub fn hold(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        self.params.insert(name.into(), value.into());
        self
    }

    /// A figure: the median of these samples.
    pub fn add(&mut self, case: &str, metric: &str, unit: &str, samples: &[f64]) {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return };
        let value = (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0;
        self.rows.push(json!({
            "bench": self.bench, "case": case, "params": self.params, "metric": metric, "unit": unit,
            "value": value, "samples": samples, "machine": machine(),
        }));
    }

    /// Writes them, where they are to go.
    pub fn write(&mut self) -> Outcome {
        let text = serde_json::to_string_pretty(&self.rows)?;
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        writeln!(file, "{text}").map_err(|why| format!("cannot write {}: {why}", path.display()))?;
        Ok(())
    }

    /// Writes them to a file that is made now.
    pub fn write_to(&mut self, path: Option<&Path>) -> Outcome {
        self.file = path.map(|path| open(path).map(|file| (path.to_owned(), file))).transpose()?;
        self.write()
    }
}

fn open(path: &Path) -> Outcome<File> {
    Ok(File::create(path).map_err(|why| format!("cannot write {}: {why}", path.display()))?)
}

fn machine() -> Value {
    let machine = vgas::info::Machine::find();
    let system = rustix::system::uname();
    json!({
        "host": system.nodename().to_string_lossy(), "kernel": system.release().to_string_lossy(),
        "cores": machine.cores, "memory_bytes": machine.memory_bytes,
    })
}

/// The middle, 99 and 99.9 of 100 of some durations.
pub fn percentiles(seconds: &mut [f64]) -> [f64; 3] {
    seconds.sort_by(f64::total_cmp);
    let last = seconds.len().saturating_sub(1) as f64;
    [0.5, 0.99, 0.999].map(|part| seconds.get((last * part).round() as usize).copied().unwrap_or(0.0))
}
