//! Lines over a number that was chosen: nodes, sizes.

use super::axis::{self, Axis};
use super::canvas::{BLACK, Canvas, GREY, Look, PALE, Pen, Side, WIDTH, width_of};
use super::seen::{self, with_unit};
use super::{parameter_words, quantity, value_words};
use serde_json::Value;
use vgas_bench::figure::{Better, Figure};
use vgas_bench::registry::Row;

/// A figure's lines, by panel.
pub struct Lines<'r> {
    figure: &'r Figure,
    panels: Vec<(String, Vec<Line<'r>>)>,
    by: &'static str,
}

/// A variant: its points by the number along the axis.
struct Line<'r> {
    case: &'r str,
    look: Look,
    points: Vec<(f64, &'r Row)>,
}

const LEFT: i32 = 62;
const RIGHT: i32 = 24;
const BETWEEN: i32 = 50;
const PLOT: i32 = 260;
const ROW: i32 = 22;

impl<'r> Lines<'r> {
    /// None if no row has the number.
    pub fn new(figure: &'r Figure, rows: &[&'r Row], by: &'static str, panels_by: &str) -> Option<Self> {
        let mut cases: Vec<&str> = Vec::new();
        for row in rows {
            if !cases.contains(&row.case.as_str()) {
                cases.push(&row.case);
            }
        }
        let is_reference = |case: &str| figure.references.contains(&case);
        let look = |case: &str| {
            let mut alike = cases.iter().filter(|other| is_reference(other) == is_reference(case));
            let at = alike.position(|other| *other == case).unwrap_or(0);
            if is_reference(case) { Look::reference(at) } else { Look::variant(at) }
        };
        let mut values: Vec<Option<&Value>> = Vec::new();
        for row in rows {
            let value = row.params.get(panels_by);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let mut panels = Vec::new();
        for value in values {
            let words = value.map_or(String::new(), |value| parameter_words(panels_by, value));
            let lines: Vec<Line<'r>> = cases
                .iter()
                .map(|case| {
                    let here = |row: &&&Row| row.case == *case && row.params.get(panels_by) == value;
                    let point = |row: &&'r Row| Some((row.params.get(by)?.as_f64()?, *row));
                    let points = rows.iter().filter(here).filter_map(point);
                    let mut points: Vec<_> = points.filter(|(number, _)| *number >= figure.from).collect();
                    points.sort_by(|a, b| a.0.total_cmp(&b.0));
                    Line { case, look: look(case), points }
                })
                .filter(|line| !line.points.is_empty())
                .collect();
            if !lines.is_empty() {
                panels.push((words, lines));
            }
        }
        (!panels.is_empty()).then_some(Self { figure, panels, by })
    }

    fn points(&self) -> impl Iterator<Item = &(f64, &'r Row)> {
        self.panels.iter().flat_map(|(_, lines)| lines).flat_map(|line| &line.points)
    }

    /// One scale for all panels, since they are compared.
    fn values_axis(&self, pixels: (i32, i32)) -> Axis {
        let samples = self.points().flat_map(|(_, row)| row.samples.iter().copied());
        let samples = samples.chain(self.figure.marks.iter().map(|(value, _)| *value));
        let (least, most) =
            samples.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), s| (a.min(s), b.max(s)));
        Axis::of_values(least, most, pixels)
    }

    /// Each variant once, in the order of the figure.
    fn legend(&self) -> Vec<(&'r str, Look)> {
        let mut entries: Vec<(&str, Look)> = Vec::new();
        for line in self.panels.iter().flat_map(|(_, lines)| lines) {
            if !entries.iter().any(|(case, _)| *case == line.case) {
                entries.push((line.case, line.look));
            }
        }
        entries
    }

    pub fn draw(&self, label: &str, conditions: &str) -> Canvas {
        let legend = self.legend();
        let shared = shared_words(&legend);
        // Rows of the legend, before anything is drawn.
        let (mut x, mut rows) = (LEFT, 1);
        let mut places = Vec::new();
        for (case, _) in &legend {
            let width = 64 + width_of(&case[shared..], 12.0);
            if x > LEFT && x + width > WIDTH - RIGHT {
                (x, rows) = (LEFT, rows + 1);
            }
            places.push((x, rows - 1));
            x += width;
        }
        let has_words = self.panels.iter().any(|(words, _)| !words.is_empty());
        let legend_top = 56;
        let top = legend_top + rows * ROW + if has_words { 28 } else { 8 };
        let height = top + PLOT + 66;
        Canvas::new(height, |pen| {
            let Figure { question, metric, unit, better, .. } = self.figure;
            let is_logarithmic = self.values_axis((top + PLOT, top)).is_logarithmic();
            pen.heading(question, &quantity(metric, unit, Some(*better), true, is_logarithmic), conditions);
            for ((case, look), (x, row)) in legend.iter().zip(&places) {
                pen.sample((*x, legend_top + 8 + row * ROW), *look, &case[shared..]);
            }
            let count = self.panels.len() as i32;
            let width = (WIDTH - LEFT - RIGHT - BETWEEN * (count - 1)) / count;
            for (at, (words, lines)) in self.panels.iter().enumerate() {
                let left = LEFT + at as i32 * (width + BETWEEN);
                pen.text(words, (left + width / 2, top - 14), 13.0, BLACK, Side::Around);
                self.panel(pen, lines, [left, left + width], [top, top + PLOT], label);
            }
            let note = "markers: medians; bars: from the least to the largest sample";
            pen.text(note, (WIDTH - RIGHT, height - 12), 10.5, GREY, Side::Left);
        })
    }

    fn panel(
        &self,
        pen: &mut Pen<'_>,
        lines: &[Line<'_>],
        [left, right]: [i32; 2],
        [top, bottom]: [i32; 2],
        label: &str,
    ) {
        let y = self.values_axis((bottom, top));
        let chosen = self.points().map(|(number, _)| *number);
        let (first, last) = chosen.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), n| (a.min(n), b.max(n)));
        let x = Axis::of_choices(first.max(1e-9), last, (left, right));
        for value in y.ticks(6) {
            let at = y.at(value);
            pen.line((left, at), (right, at), PALE, 1);
            pen.text(&axis::tick(value), (left - 7, at), 11.5, BLACK, Side::Left);
        }
        let mut numbers: Vec<f64> =
            lines.iter().flat_map(|line| &line.points).map(|(number, _)| *number).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        // Every number has its words: where they are too wide for one row, in two.
        let mut free_from = [i32::MIN; 2];
        for value in numbers {
            let at = x.at(value);
            let words = if self.by.ends_with("bytes") { axis::bytes(value) } else { axis::tick(value) };
            let half = width_of(&words, 11.5) / 2;
            let row = free_from.iter().position(|free| at - half > *free);
            let length = if row == Some(1) { 16 } else { 4 };
            pen.line((at, bottom), (at, bottom + length), BLACK, 1);
            if let Some(row) = row {
                pen.text(&words, (at, bottom + 13 + 12 * row as i32), 11.5, BLACK, Side::Around);
                free_from[row] = at + half + 4;
            }
        }
        pen.line((left, bottom), (right, bottom), BLACK, 1);
        pen.line((left, top), (left, bottom), BLACK, 1);
        let label = format!("{label} (logarithmic)");
        pen.text(&label, ((left + right) / 2, bottom + 40), 12.0, BLACK, Side::Around);
        for (value, words) in self.figure.marks {
            pen.dotted((left, y.at(*value)), (right, y.at(*value)), GREY);
            // On the worse side, where lines are not to be.
            let off = if self.figure.better == Better::Lower { 9 } else { -9 };
            pen.text(words, (left + (right - left) / 4, y.at(*value) + off), 11.0, GREY, Side::Around);
        }
        // The subject last, on top of the others. Each line is a few pixels beside the next, so that equal ones are both seen.
        for (index, line) in lines.iter().enumerate().rev() {
            let aside = 4 * index as i32 - 2 * (lines.len() as i32 - 1);
            let across = |number: f64| x.at(number) + aside;
            let places: Vec<_> =
                line.points.iter().map(|(number, row)| (across(*number), y.at(row.value))).collect();
            pen.path(&places, line.look);
            for ((number, row), place) in line.points.iter().zip(places) {
                let ends = row.samples.iter().fold((row.value, row.value), |(a, b), &s| (a.min(s), b.max(s)));
                let at = across(*number);
                pen.spread((at, y.at(ends.0)), (at, y.at(ends.1)), line.look.colour);
                pen.marker(place, line.look);
            }
        }
    }

    /// Describes each panel at its last number: the subject, and every other beside it.
    pub fn seen(&self) -> String {
        let mut sentences = Vec::new();
        for (words, lines) in &self.panels {
            let Some((subject, others)) = lines.split_first() else { continue };
            let Some((last, row)) = subject.points.last() else { continue };
            let at = value_words(self.by, &Value::from(*last as u64));
            let at = if self.by.ends_with("bytes") { at } else { format!("{at} {}", self.by) };
            let place = if words.is_empty() { format!("At {at}") } else { format!("{words}, at {at}") };
            let there = |line: &Line<'r>| {
                line.points.iter().find(|(number, _)| number == last).map(|point| (line.case, point.1))
            };
            let others: Vec<_> = others.iter().filter_map(there).collect();
            let (case, value) = (subject.case, with_unit(row));
            sentences.push(format!("{place}: {case} {value}{}.", seen::among(row, &others)));
        }
        sentences.join(" ")
    }
}

/// Length of the common beginning of all cases, up to a comma: a title says those.
fn shared_words(legend: &[(&str, Look)]) -> usize {
    let Some(((first, _), others)) = legend.split_first().filter(|(_, others)| !others.is_empty()) else {
        return 0;
    };
    let Some(end) = first.find(", ").map(|comma| comma + 2) else { return 0 };
    if others.iter().all(|(case, _)| case.starts_with(&first[..end])) { end } else { 0 }
}
