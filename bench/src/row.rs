//! Measured figures.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One measured figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The benchmark.
    pub bench: String,
    /// The measured case: `get 8 B, cached`.
    pub case: String,
    /// Under which circumstances.
    pub params: Map<String, Value>,
    /// The quantity: `latency`, `rate`, `ratio`.
    pub metric: String,
    /// Its unit: `ns`, `GB/s`, or empty for a ratio.
    pub unit: String,
    /// The median of the samples.
    pub value: f64,
    /// Every sample, in the order in which they were taken.
    pub samples: Vec<f64>,
    /// The machine it was measured on; filled in when the row is printed.
    #[serde(default)]
    pub machine: Map<String, Value>,
}

impl Row {
    /// A row of these samples, without parameters.
    ///
    /// # Panics
    /// If there is no sample.
    pub fn new(bench: &str, case: &str, metric: &str, unit: &str, samples: Vec<f64>) -> Self {
        let value = median(&samples);
        Self {
            bench: bench.into(),
            case: case.into(),
            params: Map::new(),
            metric: metric.into(),
            unit: unit.into(),
            value,
            samples,
            machine: Map::new(),
        }
    }

    /// True if both rows are of one benchmark, case, metric, unit and circumstances: of two processes.
    pub fn is_alike(&self, other: &Self) -> bool {
        let Self { bench, case, metric, unit, params, .. } = other;
        (&self.bench, &self.case, &self.metric, &self.unit, &self.params)
            == (bench, case, metric, unit, params)
    }

    /// The row with one more parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.params.insert(name.into(), value.into());
        self
    }
}

/// The middle sample, or the mean of the two in the middle.
///
/// # Panics
/// If there is no sample.
pub fn median(samples: &[f64]) -> f64 {
    assert!(!samples.is_empty(), "a median needs a sample");
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}
