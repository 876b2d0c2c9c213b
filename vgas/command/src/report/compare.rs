//! `vgas bench compare OLD NEW`: what became slower beyond the noise, between two files of rows.
//!
//! Counts whose samples are all the same in each file are held against each other exactly. Of everything else that has three samples
//! or more on both sides the quotient of the medians has an interval by the bootstrap: the samples of each side are drawn anew, with
//! repetition, 2,000 times; the interval holds 99 of 100 such quotients. Slower is what lies beyond the margin with all of its interval:
//! samples of one run do not show how much runs differ. Ratios are left out, since what they are made of is compared.

use crate::cli::Bench;
use crate::commands::rows_of_file;
use crate::failure::Failure;
use crate::output;
use crate::picture::better_of;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use vgas_bench::figure::Better;
use vgas_bench::registry::{Row, median};

const DRAWS: usize = 2000;

/// What two rows say of each other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// Worse beyond the noise: the quotient for times and rates, with its interval.
    Worse([f64; 3]),
    Better([f64; 3]),
    /// Within the noise.
    Same,
    /// A count that rose, or fell.
    More,
    Fewer,
    /// Fewer than three samples, or nobody can say which side is good.
    Unjudged,
}

/// Compares, prints, and fails if it is to and something is worse.
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

/// Lines for people, and how many rows are worse.
fn told(old: &[Row], new: &[Row], margin: f64) -> (String, usize) {
    let (mut lines, mut counts) = (String::new(), [0usize; 6]);
    let mut missing = 0;
    for before in old.iter().filter(|row| row.metric != "ratio") {
        let Some(after) = new.iter().find(|row| are_alike(before, row)) else {
            missing += 1;
            continue;
        };
        let verdict = verdict(before, after, margin);
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
            before.params.iter().map(|(name, value)| format!(" {name}={value}").replace('"', "")).collect();
        let [from, to] = [before, after].map(|row| crate::commands::figure(row.value));
        let interval = match verdict {
            Verdict::Worse([low, ratio, high]) | Verdict::Better([low, ratio, high]) => {
                format!("  {ratio:.2} times ({low:.2} to {high:.2})")
            }
            _ => String::new(),
        };
        let (bench, case, metric, unit) = (&before.bench, &before.case, &before.metric, &before.unit);
        writeln!(lines, "{word:<7} {bench}: {case}{params}: {metric} {from} -> {to} {unit}{interval}")
            .unwrap_or_default();
    }
    let [slower, more, faster, fewer, same, unjudged] = counts;
    let added =
        new.iter().filter(|row| row.metric != "ratio" && !old.iter().any(|one| are_alike(one, row))).count();
    writeln!(
        lines,
        "{slower} slower, {faster} faster, {same} the same within the noise; counts: {more} more, {fewer} fewer; {unjudged} not judged; \
         {missing} gone, {added} new"
    )
    .unwrap_or_default();
    writeln!(
        lines,
        "(medians; 99 % intervals by {DRAWS} bootstrap draws of the samples; a margin of {:.0} %; counts exactly)",
        margin * 100.0
    )
    .unwrap_or_default();
    (lines, slower + more)
}

fn are_alike(a: &Row, b: &Row) -> bool {
    (&a.bench, &a.case, &a.metric, &a.unit, &a.params) == (&b.bench, &b.case, &b.metric, &b.unit, &b.params)
}

fn verdict(old: &Row, new: &Row, margin: f64) -> Verdict {
    let is_count = matches!(old.metric.as_str(), "count" | "messages");
    let is_steady = |row: &Row| row.samples.iter().all(|sample| *sample == row.value);
    if is_count && is_steady(old) && is_steady(new) {
        return match new.value.total_cmp(&old.value) {
            std::cmp::Ordering::Greater => Verdict::More,
            std::cmp::Ordering::Less => Verdict::Fewer,
            std::cmp::Ordering::Equal => Verdict::Same,
        };
    }
    let enough = |row: &Row| row.samples.len() >= 3 && row.samples.iter().all(|sample| *sample > 0.0);
    let better = better_of(&old.metric, &old.unit);
    let (true, true, Some(better)) = (enough(old), enough(new), better) else { return Verdict::Unjudged };
    let interval = interval(&old.samples, &new.samples);
    let [low, _, high] = interval;
    let (is_larger, is_smaller) = (low > 1.0 + margin, high < 1.0 / (1.0 + margin));
    match (is_larger, is_smaller, better) {
        (true, _, Better::Lower) | (_, true, Better::Higher) => Verdict::Worse(interval),
        (true, _, Better::Higher) | (_, true, Better::Lower) => Verdict::Better(interval),
        _ => Verdict::Same,
    }
}

/// The quotient of the medians, new by old, between the ends of its interval. The same in every run.
fn interval(old: &[f64], new: &[f64]) -> [f64; 3] {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut drawn = |samples: &[f64]| {
        let again: Vec<f64> =
            samples.iter().map(|_| samples[random.random_range(0..samples.len())]).collect();
        median(&again)
    };
    let mut quotients: Vec<f64> = (0..DRAWS).map(|_| drawn(new) / drawn(old)).collect();
    quotients.sort_by(f64::total_cmp);
    let at = |share: f64| quotients[((DRAWS - 1) as f64 * share).round() as usize];
    [at(0.005), median(new) / median(old), at(0.995)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metric: &str, unit: &str, samples: &[f64]) -> Row {
        Row::new("b", "c", metric, unit, samples.to_vec()).with("nodes", 2)
    }

    /// Goal: what is slower is named, noise is not, counts are exact, and what cannot be judged is not.
    #[test]
    fn what_is_worse_beyond_the_noise_is_named() {
        let judge = |metric, unit, old: &[f64], new: &[f64]| {
            verdict(&row(metric, unit, old), &row(metric, unit, new), 0.05)
        };
        let steady: Vec<f64> = (0..9).map(|at| 100.0 + f64::from(at)).collect();
        let by = |times: f64| steady.iter().map(|sample| sample * times).collect::<Vec<_>>();
        assert!(matches!(judge("rate", "MB/s", &steady, &by(0.7)), Verdict::Worse(_)));
        assert!(matches!(judge("latency", "ns", &steady, &by(0.7)), Verdict::Better(_)));
        assert!(matches!(judge("latency", "ns", &steady, &by(1.3)), Verdict::Worse(_)));
        assert_eq!(judge("latency", "ns", &steady, &by(1.02)), Verdict::Same);
        // Half as many again, but the samples lie anywhere.
        let wide = [50.0, 300.0, 90.0, 400.0, 70.0];
        assert_eq!(judge("latency", "ns", &wide, &wide.map(|sample| sample * 1.5)), Verdict::Same);
        assert_eq!(judge("messages", "", &[4.0], &[5.0]), Verdict::More);
        assert_eq!(judge("count", "", &[4.0, 4.0], &[3.0, 3.0]), Verdict::Fewer);
        assert_eq!(judge("rate", "MB/s", &[1.0], &[0.1]), Verdict::Unjudged);
        let [low, ratio, high] = interval(&steady, &by(0.5));
        assert!(low <= ratio && ratio <= high && (ratio - 0.5).abs() < 1e-9, "{low} {ratio} {high}");

        let (text, worse) = told(&[row("rate", "MB/s", &steady)], &[row("rate", "MB/s", &by(0.7))], 0.05);
        assert_eq!(worse, 1);
        assert!(text.starts_with("slower  b: c nodes=2: rate 104.0 -> 72.8 MB/s  0.70 times (0."), "{text}");
        let (text, worse) = told(&[row("rate", "MB/s", &steady)], &[], 0.05);
        assert!(worse == 0 && text.contains("1 gone, 0 new"), "{text}");
    }
}
