//! Pictures of rows, as SVG. A benchmark describes its pictures as [`Figure`]s; one without any gets all of
//! its rows by unit. A sentence for each describes the result.
//!
//! Every picture asks its question at the top, names the conditions that a reader would not expect (throttled links, a simulation), marks
//! the good side and logarithmic axes, and tells variants apart by colour, dash and marker at once, so that it can be read in black and
//! white. Dots are medians, bars reach over all samples.

mod axis;
mod canvas;
mod dots;
mod lines;
mod seen;

pub use seen::better_of;

use std::fmt::Write;
use vgas_bench::figure::{Better, Figure, Form, Verdict};
use vgas_bench::registry::{Benchmark, Row};

/// A picture with its words.
pub struct Picture {
    /// Name of its file.
    pub name: String,
    /// Its title.
    pub question: String,
    /// The expected result; empty if there is none.
    pub expect: String,
    /// The observed result.
    pub seen: String,
    /// Conditions that are part of the title: throttled links and drives, a simulation. Mostly empty.
    pub conditions: String,
    /// Outcome of the figure's claims; none if it makes none.
    pub verdict: Option<Verdict>,
    /// The picture itself.
    pub svg: String,
    height: i32,
}

/// The pictures of a benchmark's rows: those that it wants, as far as there are rows for them, or all rows by unit.
pub fn of_benchmark(benchmark: &Benchmark, rows: &[Row]) -> Vec<Picture> {
    let finite = |row: &&Row| row.samples.iter().all(|sample| sample.is_finite()) && !row.samples.is_empty();
    let rows: Vec<&Row> = rows.iter().filter(finite).collect();
    let wanted = benchmark.figures.iter().filter_map(|figure| of_figure(figure, &rows));
    let wanted: Vec<Picture> = wanted.collect();
    if wanted.is_empty() { by_unit(benchmark, &rows) } else { wanted }
}

fn of_figure(figure: &Figure, rows: &[&Row]) -> Option<Picture> {
    let of_it = |row: &&&Row| row.metric == figure.metric && row.unit == figure.unit;
    let rows: Vec<&Row> = rows.iter().filter(of_it).copied().collect();
    let rows: Vec<&Row> = match figure.cases {
        [] => rows,
        cases => {
            cases.iter().flat_map(|case| rows.iter().filter(move |row| row.case == *case)).copied().collect()
        }
    };
    if rows.is_empty() {
        return None;
    }
    let conditions = conditions(&rows, figure.is_simulated);
    let (canvas, seen) = match figure.form {
        Form::Lines { by, label, panels } => {
            let lines = lines::Lines::new(figure, &rows, by, panels)?;
            (lines.draw(label, &conditions), lines.seen())
        }
        Form::Dots { by } => {
            let by: Vec<String> = by.iter().map(|name| (*name).to_owned()).collect();
            let dots = dots::Dots::new(figure.question, &rows, &by, figure.references, Some(figure.better));
            (dots.draw(&conditions), dots.seen())
        }
    };
    let height = canvas.height();
    Some(Picture {
        name: figure.name.into(),
        question: figure.question.into(),
        expect: figure.expect.into(),
        seen,
        conditions,
        verdict: figure.check(&rows),
        svg: canvas.into_svg(),
        height,
    })
}

/// Returns a picture for each metric and unit, in order of appearance, with the varied parameters beside the
/// cases; and a list of single measurements.
fn by_unit(benchmark: &Benchmark, rows: &[&Row]) -> Vec<Picture> {
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    let (once, rows): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.samples.len() == 1);
    for row in &rows {
        let kind = (row.metric.as_str(), row.unit.as_str());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let picture = |(metric, unit): (&str, &str)| {
        let rows: Vec<&Row> =
            rows.iter().filter(|row| row.metric == metric && row.unit == unit).copied().collect();
        let of = if unit.is_empty() { String::new() } else { format!(" in {}", seen::unit_words(unit)) };
        let question = format!("vgas bench {}: which {metric}{of}?", benchmark.name);
        let dots = dots::Dots::new(&question, &rows, &varying(&rows), &[], better_of(metric, unit));
        let conditions = conditions(&rows, false);
        let (canvas, seen) = (dots.draw(&conditions), dots.seen());
        let height = canvas.height();
        let name = format!("{}-{}", benchmark.name, metric.replace(' ', "-"));
        let (expect, verdict) = (String::new(), None);
        Picture { name, question, expect, seen, conditions, verdict, svg: canvas.into_svg(), height }
    };
    let mut pictures: Vec<Picture> = kinds.into_iter().map(picture).collect();
    if !once.is_empty() {
        let question = format!("vgas bench {}: what was counted, or measured once?", benchmark.name);
        let conditions = conditions(&once, false);
        let canvas = dots::Dots::new(&question, &once, &varying(&once), &[], None).draw_plain(&conditions);
        let (height, name) = (canvas.height(), format!("{}-once", benchmark.name));
        let (expect, seen, verdict) = (String::new(), String::new(), None);
        let svg = canvas.into_svg();
        pictures.push(Picture { name, question, expect, seen, conditions, verdict, svg, height });
    }
    pictures
}

/// Conditions that change what a figure means, for its title.
fn conditions(rows: &[&Row], is_simulated: bool) -> String {
    let mut parts = Vec::new();
    if is_simulated {
        parts.push("simulated".to_owned());
    }
    let of = |name: &str| rows.iter().find_map(|row| row.params.get(name)?.as_str());
    let limits = [("link", of(LINK)), ("drive", of(DRIVE))];
    let limits = limits.into_iter().filter_map(|(name, limit)| Some(format!("{name} {}", limit?)));
    let limits = limits.collect::<Vec<_>>().join(", ");
    if !limits.is_empty() {
        parts.push(format!("each node throttled: {limits}"));
    }
    parts.join("; ")
}

/// Parameter of rows that were taken over throttled links: the limit.
pub const LINK: &str = "throttled_link";
/// Parameter of rows that were taken on throttled drives: the limit.
pub const DRIVE: &str = "throttled_drive";

/// The parameters that tell rows of one case apart.
fn varying(rows: &[&Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        for (name, value) in &row.params {
            let differs =
                rows.iter().any(|other| other.case == row.case && other.params.get(name) != Some(value));
            if differs && !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

/// All pictures below each other, for one file.
pub fn stacked(pictures: &[Picture]) -> String {
    let height: i32 = pictures.iter().map(|picture| picture.height).sum();
    let width = canvas::WIDTH;
    let mut all = format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n"
    );
    let mut top = 0;
    for picture in pictures {
        let placed = picture.svg.replacen("<svg ", &format!("<svg x=\"0\" y=\"{top}\" "), 1);
        writeln!(all, "{placed}").unwrap_or_default();
        top += picture.height;
    }
    all + "</svg>\n"
}

/// Describes the measured quantity, the good side, and a logarithmic axis.
fn quantity(
    metric: &str,
    unit: &str,
    better: Option<Better>,
    is_upright: bool,
    is_logarithmic: bool,
) -> String {
    let side = match (better, is_upright) {
        (Some(Better::Higher), true) => " · ↑ higher is better",
        (Some(Better::Lower), true) => " · ↓ lower is better",
        (Some(Better::Higher), false) => " · further right is better →",
        (Some(Better::Lower), false) => " · ← further left is better",
        (None, _) => "",
    };
    let scale = if is_logarithmic { " · logarithmic axis" } else { "" };
    match unit {
        "" => format!("{metric}{side}{scale}"),
        unit => format!("{metric} in {}{side}{scale}", seen::unit_words(unit)),
    }
}

/// Formats a parameter's value: `4 KiB` if the name says bytes.
fn value_words(name: &str, value: &serde_json::Value) -> String {
    match (value.as_u64(), value.as_str()) {
        (Some(bytes), _) if name.ends_with("bytes") => axis::bytes(bytes as f64),
        (_, Some(text)) => text.to_owned(),
        _ => value.to_string(),
    }
}

/// Formats a parameter with its value: `nodes 4`, `data 8 MiB`, or only the value if that is enough.
fn parameter_words(name: &str, value: &serde_json::Value) -> String {
    let words = value_words(name, value);
    match name {
        "bytes" | "trace" | "conduit" => words,
        "scaling" => format!("{words} scaling"),
        _ if name.ends_with("_bytes") => format!("{} of {words}", name.trim_end_matches("_bytes")),
        _ => format!("{name} {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_bench::registry;

    fn rows() -> Vec<Row> {
        let row = |case: &str, nodes: u32, samples: &[f64]| {
            Row::new("seq", case, "rate", "MB/s", samples.to_vec())
                .with("nodes", nodes)
                .with("data_bytes", 8 << 20)
        };
        vec![
            row("all together", 1, &[100.0, 110.0, 120.0]),
            row("all together", 8, &[400.0, 440.0, 500.0]),
            row("all together, without cooperation", 1, &[100.0]),
            row("all together, without cooperation", 8, &[220.0]),
            Row::new("seq", "a & <b>", "ratio", "", vec![0.5, 0.6]).with("depth", 1),
            Row::new("seq", "a & <b>", "ratio", "", vec![0.7, 0.8]).with("depth", 32),
        ]
    }

    /// Goal: a figure asks its question, has a line with a marker for each variant, and states the good side
    /// and the result; a series without rows is left out.
    #[test]
    fn a_figure_is_what_its_benchmark_wants() {
        let pictures = of_benchmark(registry::find("seq").unwrap(), &rows());
        assert_eq!(pictures.len(), 1);
        let [picture] = &pictures[..] else { panic!("one") };
        for words in ["What do all nodes", "higher is better", "without cooperation", "data of 8 MiB", "MB/s"]
        {
            assert!(picture.svg.contains(words), "{words}: {}", picture.svg);
        }
        assert!(picture.seen.contains("at 8 nodes: all together 440 MB/s, which is 2.0 times all together, without cooperation (220)."), "{}", picture.seen);
        let all = stacked(&pictures);
        assert_eq!(all.matches("<svg ").count(), 2);
        assert!(all.ends_with("</svg>\n"));
    }

    /// Goal: without figures, rows that only a parameter tells apart carry it, and text stays text.
    #[test]
    fn rows_by_unit_name_what_tells_them_apart() {
        let all = rows();
        let pictures = by_unit(registry::find("start").unwrap(), &all.iter().collect::<Vec<_>>());
        assert_eq!(pictures.len(), 3);
        assert!(
            pictures[2].svg.contains("220 MB/s") && !pictures[2].svg.contains("<circle"),
            "{}",
            pictures[2].svg
        );
        for words in ["a &amp; &lt;b&gt;, depth 1", "a &amp; &lt;b&gt;, depth 32"] {
            assert!(pictures[1].svg.contains(words), "{}", pictures[1].svg);
        }
        let nothing = [Row::new("b", "c", "ratio", "", vec![f64::NAN])];
        assert!(of_benchmark(registry::find("seq").unwrap(), &nothing).is_empty());
    }
}
