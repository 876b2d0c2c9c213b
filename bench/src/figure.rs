//! Pictures of a benchmark, as data beside it: the question, the expected answer, and claims that rows confirm or refute.
//! The command draws them.

use crate::row::Row;
use serde_json::Value;

/// A picture of some rows of one benchmark. It asks a question; its rows answer it.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Name of its file, unique among all benchmarks.
    pub name: &'static str,
    /// Its title.
    pub question: &'static str,
    /// The expected result, in a sentence: the promise of the design, or of the paper.
    pub expect: &'static str,
    /// Rows of this metric.
    pub metric: &'static str,
    /// Their unit; empty for what is counted.
    pub unit: &'static str,
    /// Rows of these cases, in this order, the subject first; empty: all in the order in which they come.
    pub cases: &'static [&'static str],
    /// Those of the cases that others are held against.
    pub references: &'static [&'static str],
    /// Values from elsewhere, such as the paper's: each with its words.
    pub marks: &'static [(f64, &'static str)],
    /// Lines begin at this number: what comes before would hide the rest.
    pub from: f64,
    /// Form of the axes.
    pub form: Form,
    /// The good side.
    pub better: Better,
    /// Parts of the expectation that the rows decide. All must hold for a check mark.
    pub claims: &'static [Claim],
    /// True if the rows come from a simulation instead of a run.
    pub is_simulated: bool,
}

/// An expectation that rows confirm or refute: the subject is at least `factor` times as good as the reference, in the
/// direction of the figure's [`Better`].
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The case that the claim is about.
    pub subject: &'static str,
    /// The other side of the comparison.
    pub reference: Reference,
    /// Numbers along the axis of [`Form::Lines`] at which the claim must hold, from the first to the last, both included.
    pub range: (f64, f64),
    /// Least quotient of subject and reference, above 1 if larger is better, its reciprocal otherwise.
    pub factor: f64,
}

/// The other side of a [`Claim`].
#[derive(Clone, Copy, Debug)]
pub enum Reference {
    /// The row of this case with the same parameters.
    Case(&'static str),
    /// A number in the unit of the figure.
    Value(f64),
}

/// The outcome of a figure's claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// True if every claim holds for every row that it speaks of.
    pub holds: bool,
    /// One phrase for each claim that does not hold, with its worst row.
    pub failures: Vec<String>,
}

impl Claim {
    /// A claim about the whole axis: `subject` is at least `factor` times as good as `reference`.
    pub const fn new(subject: &'static str, reference: Reference, factor: f64) -> Self {
        Self { subject, reference, range: (0.0, f64::INFINITY), factor }
    }

    /// The same claim about a part of the axis.
    #[must_use]
    pub const fn within(self, from: f64, to: f64) -> Self {
        Self { range: (from, to), ..self }
    }
}

/// Form of a figure's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line for each case over a number among the parameters.
    Lines {
        /// The parameter.
        by: &'static str,
        /// Its words below the axis.
        label: &'static str,
        /// A parameter of which each value has a panel of its own; empty: one panel.
        panels: &'static str,
    },
    /// A row for each case, and for each value of these parameters.
    Dots {
        /// The parameters that tell rows apart.
        by: &'static [&'static str],
    },
}

/// The good side of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Large values.
    Higher,
    /// Small values.
    Lower,
}

impl Figure {
    /// Default of a figure.
    pub const BASE: Self = Self {
        name: "",
        question: "",
        expect: "",
        metric: "rate",
        unit: "MB/s",
        cases: &[],
        references: &[],
        marks: &[],
        from: 0.0,
        form: Form::Dots { by: &[] },
        better: Better::Higher,
        claims: &[],
        is_simulated: false,
    };

    /// Holds the rows of this figure against its claims. Returns `None` if it has no claim, or no row that one speaks of.
    pub fn check(&self, rows: &[&Row]) -> Option<Verdict> {
        let keys: Vec<&str> = match self.form {
            Form::Lines { by, panels, .. } => vec![by, panels],
            Form::Dots { by } => by.to_vec(),
        };
        let place = |row: &Row| keys.iter().map(|key| row.params.get(*key).cloned()).collect::<Vec<_>>();
        let is_within = |row: &Row, claim: &Claim| match self.form {
            Form::Lines { by, .. } => {
                let number = row.params.get(by).and_then(Value::as_f64).unwrap_or(0.0);
                number >= self.from && (claim.range.0..=claim.range.1).contains(&number)
            }
            Form::Dots { .. } => true,
        };
        let (mut is_decided, mut failures) = (false, Vec::new());
        for claim in self.claims {
            let subjects = rows.iter().filter(|row| row.case == claim.subject && is_within(row, claim));
            let quotient = |row: &Row| {
                let reference = match claim.reference {
                    Reference::Value(value) => value,
                    Reference::Case(case) => {
                        rows.iter().find(|other| other.case == case && place(other) == place(row))?.value
                    }
                };
                let quotient = row.value / reference;
                let quotient = if self.better == Better::Lower { 1.0 / quotient } else { quotient };
                quotient.is_finite().then_some(quotient)
            };
            let quotients = subjects.filter_map(|row| quotient(row));
            let Some(worst) = quotients.min_by(f64::total_cmp) else { continue };
            is_decided = true;
            if worst < claim.factor {
                let reference = match claim.reference {
                    Reference::Case(case) => case.to_owned(),
                    Reference::Value(value) => format!("{value} {}", self.unit),
                };
                let Claim { subject, factor, .. } = claim;
                let reference = reference.trim_end();
                failures.push(format!(
                    "{subject} is {worst:.2} times as good as {reference}, not {factor} times"
                ));
            }
        }
        is_decided.then_some(Verdict { holds: failures.is_empty(), failures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURE: Figure = Figure {
        unit: "us",
        better: Better::Lower,
        form: Form::Lines { by: "bytes", label: "size", panels: "conduit" },
        claims: &[Claim::new("put", Reference::Case("copy"), 0.5).within(8.0, 64.0)],
        ..Figure::BASE
    };

    fn row(case: &str, conduit: &str, bytes: u32, time: f64) -> Row {
        Row::new("b", case, "latency", "us", vec![time]).with("bytes", bytes).with("conduit", conduit)
    }

    /// Goal: a claim compares rows of the same panel and number, in its range only, and names the worst one.
    #[test]
    fn claims_are_decided_by_the_worst_row_in_their_range() {
        let mut rows = vec![
            row("put", "smp", 8, 2.0),
            row("copy", "smp", 8, 1.0),
            row("put", "tcp", 8, 15.0),
            row("copy", "tcp", 8, 10.0),
            // Outside of the range.
            row("put", "smp", 128, 900.0),
            row("copy", "smp", 128, 1.0),
        ];
        let check = |figure: &Figure, rows: &[Row]| figure.check(&rows.iter().collect::<Vec<_>>());
        assert_eq!(check(&FIGURE, &rows), Some(Verdict { holds: true, failures: Vec::new() }));
        rows[2].value = 25.0;
        let Verdict { holds, failures } = check(&FIGURE, &rows).unwrap();
        assert!(!holds);
        assert_eq!(failures, ["put is 0.40 times as good as copy, not 0.5 times"]);
        assert_eq!(check(&FIGURE, &rows[1..2]), None, "no row of the subject");
        assert_eq!(check(&Figure { claims: &[], ..FIGURE }, &rows), None);
        const BOUND: Figure = Figure {
            form: Form::Dots { by: &[] },
            claims: &[Claim::new("put", Reference::Value(10.0), 1.0)],
            ..FIGURE
        };
        assert_eq!(
            check(&BOUND, &rows).unwrap().failures,
            ["put is 0.01 times as good as 10 us, not 1 times"]
        );
    }
}
