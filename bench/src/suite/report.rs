//! From samples to rows: a figure, what it is held against, and their ratio, sample by sample.

use crate::registry::Row;
use serde_json::Value;

/// The rows of one benchmark.
pub(super) struct Report {
    bench: &'static str,
    circumstances: Vec<(&'static str, Value)>,
    rows: Vec<Row>,
}

impl Report {
    /// Without rows.
    pub fn new(bench: &'static str) -> Self {
        Self { bench, circumstances: Vec::new(), rows: Vec::new() }
    }

    /// Something that holds for all rows that follow.
    pub fn under(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.circumstances.push((name, value.into()));
        self
    }

    /// A figure by itself.
    pub fn add(&mut self, case: &str, metric: &str, unit: &str, samples: Vec<f64>) {
        let row = Row::new(self.bench, case, metric, unit, samples);
        self.rows
            .push(self.circumstances.iter().fold(row, |row, (name, value)| row.with(name, value.clone())));
    }

    /// Two figures of one unit and, as `case : baseline`, the quotient of those that were taken together.
    pub fn compare(
        &mut self,
        [metric, unit]: [&str; 2],
        (case, samples): (&str, &[f64]),
        (baseline, base): (&str, &[f64]),
    ) {
        self.add(case, metric, unit, samples.to_vec());
        self.add(baseline, metric, unit, base.to_vec());
        self.ratio((case, samples), (baseline, base));
    }

    /// The quotient alone.
    pub fn ratio(&mut self, (case, samples): (&str, &[f64]), (baseline, base): (&str, &[f64])) {
        let quotients = samples.iter().zip(base).map(|(sample, base)| sample / base).collect();
        self.add(&format!("{case} : {baseline}"), "ratio", "", quotients);
    }

    /// All rows.
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}

/// The least of two figures taken together: for what must beat the better of two.
pub(super) fn least(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a.min(*b)).collect()
}

/// The largest of two figures taken together.
pub(super) fn most(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a.max(*b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_sample_by_sample() {
        let mut report = Report::new("b").under("page_bytes", 4096);
        report.compare(["latency", "ns"], ("ours", &[2.0, 30.0, 4.0]), ("bare", &[1.0, 10.0, 4.0]));
        let rows = report.into_rows();
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[2].case.as_str(), rows[2].value), ("ours : bare", 2.0));
        assert!(rows.iter().all(|row| row.params["page_bytes"] == 4096));
        assert_eq!((least(&[1.0], &[2.0]), most(&[1.0], &[2.0])), (vec![1.0], vec![2.0]));
    }
}
