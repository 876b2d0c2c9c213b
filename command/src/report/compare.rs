//! `vgas bench compare OLD NEW`: rows that became slower beyond the noise, between two files of rows.
//!
//! A count whose samples are all equal on each side is compared exactly. All else is judged by processes, since the samples of one process
//! agree with each other far better than processes do: `--repeat` writes a row for each process, and a side with fewer than
//! [`PROCESSES`] of them is not judged. A row is slower if
//!
//! * the best process of the new side is worse than the worst one of the old side, by more than the margin, and by more than the processes
//!   of a side differ among themselves;
//! * and that is not the machine: if the benchmark took the row in turn with a reference (memcpy, an array,
//!   the bare device), the quotient is compared in place of the row; elsewhere the margin grows by as much as
//!   the benchmark's references moved.

use crate::cli::Bench;
use crate::commands::rows_of_file;
use crate::failure::Failure;
use crate::output;
use crate::picture::better_of;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use vgas_bench::figure::Better;
use vgas_bench::registry::{self, Row, median};

/// Processes a side from which rows are judged.
const PROCESSES: usize = 3;

/// The outcome of comparing two sides of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// Worse beyond the noise: the quotient of the medians.
    Worse(f64),
    Better(f64),
    /// Within the noise.
    Same,
    /// A count that rose, or fell.
    More,
    Fewer,
    /// Too few processes, or neither direction is better.
    Unjudged,
}

/// All rows of one side that differ by process only.
type Side<'r> = Vec<&'r Row>;

/// Compares and prints. Returns status 1 if `--fail` is given and something is worse.
pub fn compare(bench: &Bench) -> Result<u8, Failure> {
    let [old, new] = &bench.files[..] else {
        return Err(Failure::usage("`vgas bench compare` needs two files, or folders of reports")
            .hint("vgas bench compare OLD NEW"));
    };
    let [old_rows, new_rows] = [rows(old)?, rows(new)?];
    let margin = f64::from(bench.margin) / 100.0;
    let (text, worse) = told(&old_rows, &new_rows, margin);
    output::print(&text)?;
    Ok(u8::from(bench.fail && worse > 0))
}

fn rows(path: &Path) -> Result<Vec<Row>, Failure> {
    let path: PathBuf = if path.is_dir() { path.join("rows.json") } else { path.to_owned() };
    rows_of_file(&path)
}

/// The text for people, and the number of rows that are worse.
fn told(old: &[Row], new: &[Row], margin: f64) -> (String, usize) {
    let (mut lines, mut counts) = (String::new(), [0usize; 6]);
    let (old_sides, new_sides) = (sides(old), sides(new));
    let mut missing = 0;
    // References are the machine's, and quotients are of rows that are compared themselves.
    let is_compared = |side: &&Side<'_>| !is_quotient(side[0]) && !is_reference(side[0], &old_sides);
    for before in old_sides.iter().filter(is_compared) {
        let row = before[0];
        let Some(after) = new_sides.iter().find(|side| row.is_alike(side[0])) else {
            missing += 1;
            continue;
        };
        let verdict = verdict([before, after], [&old_sides, &new_sides], margin);
        let (at, word) = match verdict {
            Verdict::Worse(_) => (0, "slower"),
            Verdict::More => (1, "more"),
            Verdict::Better(_) => (2, "faster"),
            Verdict::Fewer => (3, "fewer"),
            Verdict::Same => (4, ""),
            Verdict::Unjudged => (5, ""),
        };
        counts[at] += 1;
        if word.is_empty() {
            continue;
        }
        let params: String =
            row.params.iter().map(|(name, value)| format!(" {name}={value}").replace('"', "")).collect();
        let [from, to] = [before, after].map(|side| crate::commands::figure(median(&medians(side))));
        let quotient = match verdict {
            Verdict::Worse(quotient) | Verdict::Better(quotient) => format!("  {quotient:.2} times"),
            _ => String::new(),
        };
        let (bench, case, metric, unit) = (&row.bench, &row.case, &row.metric, &row.unit);
        writeln!(lines, "{word:<7} {bench}: {case}{params}: {metric} {from} -> {to} {unit}{quotient}")
            .unwrap_or_default();
    }
    let [slower, more, faster, fewer, same, unjudged] = counts;
    let is_new =
        |side: &&Side<'_>| !is_quotient(side[0]) && !old_sides.iter().any(|one| one[0].is_alike(side[0]));
    let added = new_sides.iter().filter(is_new).count();
    writeln!(
        lines,
        "{slower} slower, {faster} faster, {same} the same within the noise; counts: {more} more, {fewer} fewer; {unjudged} not judged; \
         {missing} gone, {added} new"
    )
    .unwrap_or_default();
    if unjudged > 0 {
        writeln!(
            lines,
            "(judged are rows of {PROCESSES} processes and more a side: measure with --repeat 5)"
        )
        .unwrap_or_default();
    }
    writeln!(
        lines,
        "(medians of processes; a margin of {:.0} %; load average {} -> {})",
        margin * 100.0,
        load(old),
        load(new)
    )
    .unwrap_or_default();
    (lines, slower + more)
}

/// The rows of a file, by their identity.
fn sides(rows: &[Row]) -> Vec<Side<'_>> {
    let mut sides: Vec<Side<'_>> = Vec::new();
    for row in rows {
        match sides.iter_mut().find(|side| side[0].is_alike(row)) {
            Some(side) => side.push(row),
            None => sides.push(vec![row]),
        }
    }
    sides
}

/// True for a quotient of two cases that were taken in turn: `a : b`.
fn is_quotient(row: &Row) -> bool {
    row.metric == "ratio"
}

fn medians(side: &Side<'_>) -> Vec<f64> {
    side.iter().map(|row| row.value).collect()
}

fn load(rows: &[Row]) -> String {
    let loads: Vec<f64> = rows.iter().filter_map(|row| row.machine.get("load_average")?.as_f64()).collect();
    if loads.is_empty() { "unknown".into() } else { format!("{:.1}", median(&loads)) }
}

fn verdict([old, new]: [&Side<'_>; 2], all: [&[Side<'_>]; 2], margin: f64) -> Verdict {
    let row = old[0];
    let is_steady =
        |side: &Side<'_>| side.iter().all(|row| row.samples.iter().all(|sample| *sample == side[0].value));
    if matches!(row.metric.as_str(), "count" | "messages") && is_steady(old) && is_steady(new) {
        return match new[0].value.total_cmp(&old[0].value) {
            std::cmp::Ordering::Greater => Verdict::More,
            std::cmp::Ordering::Less => Verdict::Fewer,
            std::cmp::Ordering::Equal => Verdict::Same,
        };
    }
    let Some(better) = better_of(&row.metric, &row.unit) else { return Verdict::Unjudged };
    let is_judged = |side: &Side<'_>| side.len() >= PROCESSES && side.iter().all(|row| row.value > 0.0);
    if !is_judged(old) || !is_judged(new) {
        return Verdict::Unjudged;
    }
    // In turn with a reference, or with a margin for what references did.
    let quotient_of = |sides: &[Side<'_>]| {
        let is_of_it = |side: &&Side<'_>| {
            let one = side[0];
            is_quotient(one)
                && (&one.bench, &one.params) == (&row.bench, &row.params)
                && one.case.split_once(" : ").is_some_and(|(case, _)| case == row.case)
        };
        sides.iter().find(is_of_it).filter(|side| is_judged(side)).map(medians)
    };
    let (values, slack) = match all.map(quotient_of) {
        [Some(old), Some(new)] => ([old, new], 1.0),
        _ => ([medians(old), medians(new)], drift(row, all)),
    };
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let [old, new] = &values;
    let spread = (most(old) / least(old) + most(new) / least(new)) / 2.0;
    let factor = spread.max(1.0 + margin) * slack;
    let quotient = median(new) / median(old);
    match better {
        Better::Lower if least(new) > most(old) * factor => Verdict::Worse(quotient),
        Better::Lower if most(new) * factor < least(old) => Verdict::Better(quotient),
        Better::Higher if most(new) * factor < least(old) => Verdict::Worse(quotient),
        Better::Higher if least(new) > most(old) * factor => Verdict::Better(quotient),
        _ => Verdict::Same,
    }
}

/// True for a row of the machine instead of vgas: a figure names it, or a quotient has it below the line.
fn is_reference(row: &Row, sides: &[Side<'_>]) -> bool {
    let figures = registry::find(&row.bench).map_or(&[][..], |benchmark| benchmark.figures);
    let is_below = |one: &Row| {
        one.bench == row.bench && one.case.split_once(" : ").is_some_and(|(_, other)| other == row.case)
    };
    figures.iter().any(|figure| figure.references.contains(&row.case.as_str()))
        || sides.iter().any(|side| is_below(side[0]))
}

/// The largest factor by which a reference of the row's benchmark moved, in either direction.
fn drift(row: &Row, [old, new]: [&[Side<'_>]; 2]) -> f64 {
    let moved = old.iter().filter(|side| side[0].bench == row.bench && is_reference(side[0], old));
    let moved = moved.filter_map(|before| {
        let after = new.iter().find(|side| before[0].is_alike(side[0]))?;
        let quotient = median(&medians(after)) / median(&medians(before));
        (quotient.is_finite() && quotient > 0.0).then(|| quotient.max(1.0 / quotient))
    });
    moved.fold(1.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, metric: &str, unit: &str, samples: &[f64]) -> Row {
        Row::new("b", case, metric, unit, samples.to_vec()).with("nodes", 2)
    }

    fn processes(case: &str, metric: &str, unit: &str, medians: &[f64]) -> Vec<Row> {
        medians.iter().map(|median| row(case, metric, unit, &[*median])).collect()
    }

    fn judged(metric: &str, unit: &str, old: &[f64], new: &[f64]) -> Verdict {
        let [old, new] = [old, new].map(|medians| processes("c", metric, unit, medians));
        let [old, new] = [sides(&old), sides(&new)];
        verdict([&old[0], &new[0]], [&old, &new], 0.05)
    }

    /// Goal: a row is slower if its processes are apart; noise between processes is none, counts are exact, and too few processes are not
    /// judged.
    #[test]
    fn processes_that_are_apart_are_named() {
        let steady = [100.0, 101.0, 102.0, 103.0, 104.0];
        let by = |times: f64| steady.map(|value| value * times);
        assert!(matches!(judged("rate", "MB/s", &steady, &by(0.7)), Verdict::Worse(_)));
        assert!(matches!(judged("latency", "ns", &steady, &by(0.7)), Verdict::Better(_)));
        assert!(matches!(judged("latency", "ns", &steady, &by(1.3)), Verdict::Worse(_)));
        assert_eq!(
            judged("latency", "ns", &steady, &by(1.06)),
            Verdict::Same,
            "apart by less than the margin"
        );
        assert_eq!(judged("latency", "ns", &[90.0, 120.0, 150.0], &[160.0, 200.0, 260.0]), Verdict::Same);
        assert_eq!(judged("rate", "MB/s", &steady[..2], &by(0.1)[..2]), Verdict::Unjudged);
        assert_eq!(judged("messages", "", &[4.0], &[5.0]), Verdict::More);
        assert_eq!(judged("count", "", &[4.0, 4.0], &[3.0, 3.0]), Verdict::Fewer);
        let (text, worse) =
            told(&processes("c", "rate", "MB/s", &steady), &processes("c", "rate", "MB/s", &by(0.7)), 0.05);
        assert_eq!(worse, 1);
        assert!(text.starts_with("slower  b: c nodes=2: rate 102.0 -> 71.4 MB/s  0.70 times\n"), "{text}");
        let (text, worse) = told(&processes("c", "rate", "MB/s", &steady), &[], 0.05);
        assert!(worse == 0 && text.contains("1 gone, 0 new"), "{text}");
    }

    /// Goal: a machine that became slower is no finding: a quotient that was taken in turn stays, and other rows of the benchmark get a
    /// margin as large as the references' movement.
    #[test]
    fn a_slower_machine_is_no_slower_program() {
        let side = |factor: f64, subject: f64| {
            let of = |value: f64| [1.0, 1.01, 1.02].map(|noise| value * noise * factor);
            let mut rows = processes("c", "latency", "ns", &of(100.0 * subject));
            rows.extend(processes("memcpy", "latency", "ns", &of(50.0)));
            rows.extend(processes("other", "latency", "ns", &of(10.0 * subject)));
            let quotients = [2.0, 2.01, 2.02].map(|quotient| quotient * subject);
            rows.extend(processes("c : memcpy", "ratio", "", &quotients));
            rows
        };
        let (text, worse) = told(&side(1.0, 1.0), &side(1.6, 1.0), 0.05);
        let slower = "slower  b: memcpy";
        assert!(worse == 0 && !text.contains("slower  b: c") && !text.contains(slower), "{text}");
        let (text, worse) = told(&side(1.0, 1.0), &side(1.6, 1.5), 0.05);
        assert!(worse == 2 && text.starts_with("slower  b: c ") && !text.contains(slower), "{text}");
    }
}
