//! What the pictures of a benchmark are to show, as data beside the benchmark. Who draws them is the command.

/// A picture of some rows of one benchmark. It asks a question; its rows answer it.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Of its file, unique among all benchmarks.
    pub name: &'static str,
    /// Its title.
    pub question: &'static str,
    /// What one should see, in a sentence: what the design, or the paper, promises.
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
    /// What lies along the axes.
    pub form: Form,
    /// Which side is good.
    pub better: Better,
}

/// What lies along the axes of a figure.
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

/// Which side of an axis is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Large values.
    Higher,
    /// Small values.
    Lower,
}

impl Figure {
    /// What a figure is unless it says otherwise.
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
    };
}
