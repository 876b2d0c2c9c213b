//! The benchmarks that `vgas bench` offers, and the rows they produce. A benchmark is added by writing a function
//! and a line in `suite/mod.rs`.

use crate::figure::Figure;
pub use crate::row::{Row, median};
use std::collections::BTreeMap;
use vgas::config::{Config, EffectiveValue, Origin};

/// Why a benchmark could not be run. Its text is printed in one line.
pub type BenchmarkError = Box<dyn std::error::Error + Send + Sync>;

/// A missing requirement of a benchmark, on this machine or in this build: no failure, and no figure either.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot run here: {0}")]
pub struct CannotRun(pub String);

/// The exit status of a benchmark that cannot run here, as test suites know it.
pub const CANNOT_RUN: u8 = 77;

/// One benchmark.
#[derive(Debug)]
pub struct Benchmark {
    /// As written after `vgas bench`.
    pub name: &'static str,
    /// Its measurement, in one line.
    pub help: &'static str,
    /// Its environment.
    pub setup: Setup,
    /// Settings of its job that differ from the usual defaults, by name; whatever the user has written prevails.
    pub settings: &'static [(&'static str, &'static str)],
    /// Parameters for `--param`.
    pub parameters: &'static [Parameter],
    /// The values of `--full`, by name, where those of a run of less than a minute are less than one wants to see: of parameters, and
    /// of settings, whose names have a dot.
    pub full: &'static [(&'static str, &'static str)],
    /// Its pictures; none: all rows by unit.
    pub figures: &'static [Figure],
    /// Refuses values of parameters that make no sense, before a process is started for them.
    pub check: fn(&Options) -> Result<(), BenchmarkError>,
    /// Measures. In a job every rank calls it; the rows that any of them returns are printed.
    pub run: fn(&Options) -> Result<Vec<Row>, BenchmarkError>,
}

/// Environment of a benchmark, which decides the flags that apply to it.
#[derive(Clone, Copy, Debug)]
pub enum Setup {
    /// A job, whose place and settings are what the user says.
    Job {
        /// Ranks of it, unless the user says otherwise.
        ranks: u32,
        /// Nodes of it, unless the user says otherwise.
        nodes: u32,
    },
    /// Jobs that it starts itself, whose place it decides.
    OwnJobs {
        /// The settings that it decides as well.
        decides: &'static [&'static str],
    },
    /// Its own process, without a job.
    NoJob {
        /// The only settings that mean something to it.
        takes: &'static [&'static str],
    },
}

impl Setup {
    /// Returns true if it takes a setting from the user.
    pub fn takes(&self, setting: &str) -> bool {
        match self {
            Self::Job { .. } => true,
            Self::OwnJobs { decides } => !decides.contains(&setting),
            Self::NoJob { takes } => takes.contains(&setting),
        }
    }
}

/// Something that can be varied in a benchmark: `--param NAME=VALUE`.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its default value.
    pub default: &'static str,
    /// Its meaning, with the unit.
    pub help: &'static str,
}

/// The values of a benchmark's parameters, all of them, and the user's settings.
#[derive(Clone, Debug)]
pub struct Options {
    values: BTreeMap<&'static str, String>,
    setup: Setup,
    config: Config,
}

impl Options {
    /// The defaults of a benchmark, changed by `NAME=VALUE` texts. The error names what is wrong and what
    /// there is. If the default is a number, the value must be a number from 1 on: no benchmark has a meaning
    /// without samples, ranks or bytes.
    ///
    /// `full` begins with the values of `--full`. The settings are for the starter of the benchmark; in a
    /// job, its ranks know their own.
    pub fn new(
        benchmark: &'static Benchmark,
        full: bool,
        changes: &[String],
        config: Config,
    ) -> Result<Self, String> {
        let mut values: BTreeMap<_, _> =
            benchmark.parameters.iter().map(|p| (p.name, p.default.to_owned())).collect();
        if full {
            let parameters = benchmark.full.iter().filter(|(name, _)| values.contains_key(name));
            let parameters: Vec<_> = parameters.map(|(name, value)| (*name, (*value).to_owned())).collect();
            values.extend(parameters);
        }
        for change in changes {
            let (name, value) =
                change.split_once('=').ok_or_else(|| format!("`{change}` is not NAME=VALUE"))?;
            let Some(place) = values.get_mut(name) else {
                let names: Vec<_> = benchmark.parameters.iter().map(|p| p.name).collect();
                let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(format!("{} has no parameter `{name}`; it has: {known}", benchmark.name));
            };
            let is_number = |text: &str| text.parse::<u64>().is_ok();
            if is_number(place) && !value.parse().is_ok_and(|number: u64| number > 0) {
                let benchmark = benchmark.name;
                return Err(format!("{benchmark}: `{name}` is a whole number from 1 on, not `{value}`"));
            }
            *place = value.to_owned();
        }
        let options = Self { values, setup: benchmark.setup, config };
        (benchmark.check)(&options).map_err(|error| format!("{}: {error}", benchmark.name))?;
        Ok(options)
    }

    /// The effective settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The settings that the user has given by flags and files and that the benchmark takes: name and value. Processes
    /// that it starts have the environment anyway.
    pub fn given_settings(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let given = |value: &&EffectiveValue| matches!(value.origin, Origin::Flag(_) | Origin::File { .. });
        let taken = |value: &&EffectiveValue| self.setup.takes(value.setting.name);
        let values = self.config.values().iter().filter(given).filter(taken);
        values.map(|value| (value.setting.name, value.text.as_str()))
    }

    /// The value of a parameter in MiB, in bytes.
    pub fn mebibytes(&self, name: &str) -> Result<u64, BenchmarkError> {
        let bytes = self.get::<u64>(name)?.checked_mul(1 << 20).filter(|&bytes| bytes <= i64::MAX as u64);
        bytes.ok_or_else(|| format!("parameter `{name}` is more than any disk has").into())
    }

    /// The text of a parameter; empty when the benchmark did not declare it.
    pub fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// The value of a parameter.
    pub fn get<T: std::str::FromStr>(&self, name: &str) -> Result<T, BenchmarkError> {
        let text = self.text(name);
        text.parse().map_err(|_| format!("parameter `{name}` cannot be `{text}`").into())
    }
}

/// Rows of several processes as one each: all samples, and the median of the processes' medians.
pub fn merged(rows: &[Row]) -> Vec<Row> {
    let mut merged: Vec<(Row, Vec<f64>)> = Vec::new();
    for row in rows {
        match merged.iter_mut().find(|(one, _)| one.is_alike(row)) {
            Some((one, medians)) => {
                one.samples.extend(&row.samples);
                medians.push(row.value);
            }
            None => merged.push((row.clone(), vec![row.value])),
        }
    }
    merged.into_iter().map(|(row, medians)| Row { value: median(&medians), ..row }).collect()
}

/// All benchmarks, in the order in which they are listed.
pub fn registry() -> &'static [Benchmark] {
    crate::suite::ALL
}

/// Those of a report: the paper's figures, and what they stand on.
pub fn reported() -> &'static [Benchmark] {
    &crate::suite::ALL[..crate::suite::REPORTED]
}

/// Seconds that a benchmark usually takes on two cores, without `--full`: for estimates of the time that a report needs.
pub fn usual_seconds(name: &str) -> u32 {
    const SECONDS: [(&str, u32); 11] = [
        ("protocol", 20),
        ("seq", 120),
        ("random", 120),
        ("false-sharing", 60),
        ("gemm", 60),
        ("predict", 120),
        ("rma", 60),
        ("device", 30),
        ("hit", 20),
        ("replacement", 1),
        ("gups", 20),
    ];
    SECONDS.iter().find(|(known, _)| *known == name).map_or(30, |(_, seconds)| *seconds)
}

/// Names that benchmarks had.
const FORMER: [(&str, &str); 2] = [("seq-nodes", "seq"), ("random-nodes", "random")];

/// The benchmark of this name, or of this former name.
pub fn find(name: &str) -> Option<&'static Benchmark> {
    let name = FORMER.iter().find(|(former, _)| *former == name).map_or(name, |(_, now)| now);
    registry().iter().find(|benchmark| benchmark.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    static EXAMPLE: Benchmark = Benchmark {
        name: "example",
        help: "Nothing.",
        setup: Setup::Job { ranks: 1, nodes: 1 },
        settings: &[],
        parameters: &[Parameter { name: "bytes", default: "8", help: "Bytes of a get." }],
        full: &[("bytes", "64")],
        figures: &[],
        check: |options| match options.get::<u64>("bytes")? {
            7 => Err("7 bytes are a strange number".into()),
            _ => Ok(()),
        },
        run: |_| Ok(Vec::new()),
    };

    #[test]
    fn parameters_have_defaults_and_unknown_ones_are_refused() {
        let new = |changes: &[String]| Options::new(&EXAMPLE, false, changes, Config::defaults());
        let options = new(&[]).unwrap();
        assert_eq!(options.get::<u64>("bytes").unwrap(), 8);
        for wrong in ["x", "", "0", "-1", "1.5", "18446744073709551616"] {
            let error = new(&[format!("bytes={wrong}")]).unwrap_err();
            assert_eq!(error, format!("example: `bytes` is a whole number from 1 on, not `{wrong}`"));
        }
        let options = new(&["bytes=300".into()]).unwrap();
        assert_eq!(options.get::<u8>("bytes").unwrap_err().to_string(), "parameter `bytes` cannot be `300`");
        assert_eq!(options.mebibytes("bytes").unwrap(), 300 << 20);
        assert!(new(&["bytes=99999999999999".into()]).unwrap().mebibytes("bytes").is_err());
        assert!(new(&["bytes".into()]).is_err());
        assert_eq!(new(&["bytes=7".into()]).unwrap_err(), "example: 7 bytes are a strange number");
        let error = new(&["byte=1".into()]).unwrap_err();
        assert_eq!(error, "example has no parameter `byte`; it has: bytes");
        let full = |changes: &[String]| Options::new(&EXAMPLE, true, changes, Config::defaults()).unwrap();
        assert_eq!(full(&[]).get::<u64>("bytes").unwrap(), 64);
        assert_eq!(full(&["bytes=9".into()]).get::<u64>("bytes").unwrap(), 9);
    }

    #[test]
    fn the_value_of_a_row_is_the_median() {
        assert_eq!(Row::new("b", "c", "latency", "ns", vec![9.0, 1.0, 2.0]).value, 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let process = |samples: &[f64]| Row::new("b", "c", "latency", "ns", samples.to_vec());
        let merged = merged(&[process(&[1.0, 2.0, 3.0]), process(&[7.0]), process(&[4.0]).with("nodes", 2)]);
        assert_eq!((merged.len(), merged[0].value, merged[0].samples.len()), (2, 4.5, 4));
    }

    #[test]
    fn names_are_unique_and_explained() {
        let mut names: Vec<_> = registry().iter().map(|benchmark| benchmark.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), registry().len());
        assert!(registry().iter().all(|benchmark| benchmark.help.ends_with('.')));
        let mut figures: Vec<_> = registry().iter().flat_map(|one| one.figures).map(|one| one.name).collect();
        let all = figures.len();
        figures.sort();
        figures.dedup();
        assert_eq!(figures.len(), all);
        for benchmark in registry() {
            let known = |name: &&str| {
                let mut settings = benchmark.settings.iter();
                benchmark.parameters.iter().any(|one| one.name == *name)
                    || settings.any(|(setting, _)| setting == name)
            };
            assert!(benchmark.full.iter().all(|(name, _)| known(name)), "{}", benchmark.name);
            assert!(benchmark.figures.iter().all(|one| one.question.ends_with('?')), "{}", benchmark.name);
            assert!(benchmark.figures.iter().all(|one| one.expect.ends_with('.')), "{}", benchmark.name);
        }
        assert_eq!(find("seq-nodes").unwrap().name, "seq");
    }
}
