//! A row for each case, with its dot, the range of its samples, and the median as a number.

use super::axis::{self, Axis};
use super::canvas::{BLACK, Canvas, GREY, Look, PALE, Side, WIDTH, width_of};
use super::seen::{self, number, with_unit};
use super::{parameter_words, quantity};
use vgas_bench::figure::Better;
use vgas_bench::registry::Row;

/// Rows of one unit.
pub struct Dots<'r> {
    question: &'r str,
    /// With the words of each, and the group that it stands in.
    rows: Vec<(String, String, &'r Row)>,
    references: &'r [&'r str],
    better: Option<Better>,
    /// Each once.
    cases: Vec<&'r str>,
}

const ROW: i32 = 24;
const VALUES: i32 = 96;

impl<'r> Dots<'r> {
    /// `by` names the parameters that tell rows apart: one of texts makes groups, others stand behind the case.
    pub fn new(
        question: &'r str,
        rows: &[&'r Row],
        by: &[String],
        references: &'r [&'r str],
        better: Option<Better>,
    ) -> Self {
        let grouping = by.first().filter(|name| by.len() == 1 && is_text(rows, name));
        let words = |row: &&'r Row| {
            let told = |name: &&String| Some(parameter_words(name, row.params.get(name.as_str())?));
            let group = grouping.as_ref().and_then(told).unwrap_or_default();
            let behind = by.iter().filter(|name| Some(*name) != grouping).filter_map(|name| told(&name));
            let words: Vec<String> = std::iter::once(row.case.clone()).chain(behind).collect();
            (group, words.join(", "), *row)
        };
        let mut cases: Vec<&str> = Vec::new();
        for row in rows {
            if !cases.contains(&row.case.as_str()) {
                cases.push(&row.case);
            }
        }
        Self { question, rows: rows.iter().map(words).collect(), references, better, cases }
    }

    fn look(&self, row: &Row) -> Look {
        match self.references.iter().position(|case| *case == row.case) {
            Some(at) => Look::reference(at),
            // If cases repeat, each looks the same each time.
            None if self.cases.len() * 2 <= self.rows.len() && self.cases.len() <= 6 => {
                Look::variant(self.cases.iter().position(|case| *case == row.case).unwrap_or(0))
            }
            None => Look::variant(0),
        }
    }

    /// Draws only words and numbers, with their units: for single measurements, for which an axis adds
    /// nothing.
    pub fn draw_plain(&self, conditions: &str) -> Canvas {
        let top = if conditions.is_empty() { 40 } else { 58 };
        Canvas::new(top + ROW * self.rows.len() as i32 + 10, |pen| {
            pen.heading(self.question, "", conditions);
            for ((_, words, row), y) in self.rows.iter().zip((top + 8..).step_by(ROW as usize)) {
                pen.text(words, (14, y), 12.0, BLACK, Side::Right);
                pen.text(&with_unit(row), (WIDTH - 14, y), 12.0, BLACK, Side::Left);
                pen.line((14, y + ROW / 2), (WIDTH - 14, y + ROW / 2), PALE, 1);
            }
        })
    }

    pub fn draw(&self, conditions: &str) -> Canvas {
        let names = self.rows.iter().map(|(_, words, _)| width_of(words, 12.0)).max().unwrap_or(0);
        let left = (names + 26).clamp(120, 520);
        let right = WIDTH - VALUES;
        let mut groups = 0;
        let mut last = "";
        for (group, ..) in &self.rows {
            groups += i32::from(group != last);
            last = group;
        }
        let top = 58;
        let bottom = top + ROW * (self.rows.len() as i32 + groups) + 4;
        let (first, unit) = self.rows.first().map_or(("", ""), |(_, _, row)| (&row.metric, &row.unit));
        let is_ratio = first == "ratio";
        let samples = self.rows.iter().flat_map(|(_, _, row)| row.samples.iter().copied());
        let samples = samples.chain(is_ratio.then_some(1.0));
        let (least, most) =
            samples.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), s| (a.min(s), b.max(s)));
        let x = Axis::of_values(least, most, (left, right));
        Canvas::new(bottom + 44, |pen| {
            let quantity = quantity(first, unit, self.better, false, x.is_logarithmic());
            pen.heading(self.question, &quantity, conditions);
            let mut free_from = i32::MIN;
            for value in x.ticks(8) {
                let at = x.at(value);
                pen.line((at, top), (at, bottom), PALE, 1);
                let half = width_of(&axis::tick(value), 11.5) / 2;
                if at - half > free_from {
                    pen.text(&axis::tick(value), (at, bottom + 13), 11.5, BLACK, Side::Around);
                    free_from = at + half + 4;
                }
            }
            pen.line((left, bottom), (right, bottom), BLACK, 1);
            if is_ratio {
                pen.dotted((x.at(1.0), top), (x.at(1.0), bottom), BLACK);
            }
            for (_, _, row) in self.rows.iter().filter(|(group, ..)| group.is_empty()) {
                if self.references.contains(&row.case.as_str()) {
                    pen.dotted((x.at(row.value), top), (x.at(row.value), bottom), GREY);
                }
            }
            let (mut y, mut last) = (top - ROW / 2, "");
            for (group, words, row) in &self.rows {
                if group != last {
                    y += ROW;
                    pen.bold(group, (14, y), 12.0);
                    last = group;
                }
                y += ROW;
                let look = self.look(row);
                pen.text(words, (left - 12, y), 12.0, BLACK, Side::Left);
                let ends = row.samples.iter().fold((row.value, row.value), |(a, b), &s| (a.min(s), b.max(s)));
                pen.spread((x.at(ends.0), y), (x.at(ends.1), y), look.colour);
                pen.marker((x.at(row.value), y), look);
                pen.text(&number(row.value), (WIDTH - 14, y), 12.0, BLACK, Side::Left);
            }
            let note =
                "markers: medians, as numbers at the right; bars: from the least to the largest sample";
            pen.text(note, (WIDTH - 14, bottom + 34), 10.5, GREY, Side::Left);
        })
    }

    /// Describes, with a reference, the subject's ratio to it; without, the best of each group.
    pub fn seen(&self) -> String {
        let Some((_, _, subject)) = self.rows.first() else { return String::new() };
        let is_reference = |row: &Row| self.references.contains(&row.case.as_str());
        let references = self.rows.iter().filter(|(_, _, row)| is_reference(row));
        let references: Vec<_> = references.map(|(_, words, row)| (words.as_str(), *row)).take(1).collect();
        if !references.is_empty() {
            let others = self.rows.iter().filter(|(_, _, row)| !is_reference(row));
            let found = others.map(|(_, words, row)| {
                format!("{words} {}{}", with_unit(row), seen::among(row, &references))
            });
            return format!("{}.", found.collect::<Vec<_>>().join("; "));
        }
        let better = self.better.unwrap_or(Better::Higher);
        let mut sentences = Vec::new();
        for group in self.groups() {
            let mut rows: Vec<_> = self.rows.iter().filter(|(of, ..)| of == group).collect();
            rows.sort_by(|(_, _, a), (_, _, b)| a.value.total_cmp(&b.value));
            if better == Better::Higher {
                rows.reverse();
            }
            let ([(_, best, first), ..], Some((_, worst, last))) = (&rows[..], rows.last()) else { continue };
            let place = if group.is_empty() { String::new() } else { format!("{group}: ") };
            let kinds = if self.better.is_some() { ["best", "worst"] } else { ["most", "least"] };
            sentences.push(format!(
                "{place}{} {best} with {}, {} {worst} with {}.",
                kinds[0],
                with_unit(first),
                kinds[1],
                with_unit(last)
            ));
        }
        if self.rows.len() == 1 {
            return format!("{} {}.", subject.case, with_unit(subject));
        }
        sentences.join(" ")
    }

    fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for (group, ..) in &self.rows {
            if !groups.contains(&group.as_str()) {
                groups.push(group);
            }
        }
        groups
    }
}

fn is_text(rows: &[&Row], name: &str) -> bool {
    rows.iter().all(|row| row.params.get(name).is_some_and(serde_json::Value::is_string))
}
