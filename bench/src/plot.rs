//! Pictures of rows: one panel for each unit, one line for each case, with the median as a dot on the range of the
//! samples. Figures that are held against each other stand below each other on one scale.

use crate::registry::{BenchmarkError, Row};
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

const WIDTH: u32 = 1100;
const TITLE_HEIGHT: u32 = 40;
const CASE_HEIGHT: u32 = 26;

/// What a panel needs besides its cases: caption, axis, its description.
const PANEL_HEIGHT: u32 = 100;

/// One colour for all cases: what they are is written beside them, and pale ones cannot be seen.
const INK: RGBColor = RGBColor(24, 90, 140);

/// Room for the names of the cases.
const NAMES_WIDTH: u32 = 470;

/// From this ratio of the largest to the least value on, a panel has a logarithmic scale.
const LOGARITHMIC_FROM: f64 = 30.0;

/// The rows of one unit.
struct Panel<'r> {
    caption: String,
    rows: Vec<&'r Row>,
    logarithmic: bool,
}

/// Draws the rows of one benchmark as SVG.
///
/// # Errors
/// When there is nothing to draw: no row, or a value that is no number.
pub fn svg(title: &str, rows: &[Row]) -> Result<String, BenchmarkError> {
    if rows.is_empty() || rows.iter().flat_map(|row| &row.samples).any(|sample| !sample.is_finite()) {
        return Err("there is nothing to draw".into());
    }
    let panels = panels(rows);
    let height: u32 = panels.iter().map(Panel::height).sum();
    let mut svg = String::new();
    {
        let whole = SVGBackend::with_string(&mut svg, (WIDTH, TITLE_HEIGHT + height)).into_drawing_area();
        whole.fill(&WHITE).map_err(text)?;
        let (head, mut rest) = whole.split_vertically(TITLE_HEIGHT);
        head.draw(&Text::new(title, (12, 10), ("sans-serif", 20))).map_err(text)?;
        for panel in &panels {
            let (area, below) = rest.split_vertically(panel.height());
            panel.draw(&area)?;
            rest = below;
        }
        whole.present().map_err(text)?;
    }
    Ok(svg)
}

/// Rows by metric and unit, in the order in which they come.
fn panels(rows: &[Row]) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for row in rows {
        let caption = match row.unit.as_str() {
            "" => row.metric.clone(),
            unit => format!("{} in {unit}", row.metric),
        };
        match panels.iter_mut().find(|panel| panel.caption == caption) {
            Some(panel) => panel.rows.push(row),
            None => panels.push(Panel { caption, rows: vec![row], logarithmic: false }),
        }
    }
    for panel in &mut panels {
        let (least, most) = panel.extent();
        panel.logarithmic = least > 0.0 && most / least >= LOGARITHMIC_FROM;
    }
    panels
}

impl Panel<'_> {
    fn height(&self) -> u32 {
        PANEL_HEIGHT + CASE_HEIGHT * self.rows.len() as u32
    }

    fn extent(&self) -> (f64, f64) {
        let samples = self.rows.iter().flat_map(|row| &row.samples);
        samples.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &sample| {
            (least.min(sample), most.max(sample))
        })
    }

    /// Where a value stands on the axis.
    fn place(&self, value: f64) -> f64 {
        if self.logarithmic { value.log10() } else { value }
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Result<(), BenchmarkError> {
        let (least, most) = self.extent();
        // A linear scale begins at zero: lengths are compared.
        let (from, upto) = match self.logarithmic {
            true => (self.place(least) - 0.05, self.place(most) + 0.05),
            false => (least.min(0.0), if most > 0.0 { most * 1.05 } else { 1.0 }),
        };
        let last = self.rows.len() - 1;
        // Two segments at least: one alone has no extent, and its label falls outside of the picture.
        let mut chart = ChartBuilder::on(area)
            .caption(&self.caption, ("sans-serif", 16))
            .margin(8)
            .margin_right(24)
            .set_label_area_size(LabelAreaPosition::Left, NAMES_WIDTH)
            .set_label_area_size(LabelAreaPosition::Bottom, 30)
            .build_cartesian_2d(from..upto, (0..last.max(1)).into_segmented())
            .map_err(text)?;
        let name = |place: &SegmentValue<usize>| match place {
            // The first row stands at the top.
            SegmentValue::CenterOf(at) => {
                let row = last.checked_sub(*at).and_then(|row| self.rows.get(row));
                row.map_or(String::new(), |row| row.case.clone())
            }
            _ => String::new(),
        };
        let value = |place: &f64| number(if self.logarithmic { 10f64.powf(*place) } else { *place });
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(WHITE.mix(0.0))
            .x_labels(8)
            .y_labels(self.rows.len() + 1)
            .x_label_formatter(&value)
            .y_label_formatter(&name)
            .label_style(("sans-serif", 13))
            .draw()
            .map_err(text)?;
        for (at, row) in (0..=last).rev().zip(&self.rows) {
            let ends = row.samples.iter().fold((row.value, row.value), |(a, b), &s| (a.min(s), b.max(s)));
            let ends = [ends.0, ends.1].map(|value| (self.place(value), SegmentValue::CenterOf(at)));
            chart.draw_series([PathElement::new(ends.to_vec(), INK.stroke_width(3))]).map_err(text)?;
            let middle = (self.place(row.value), SegmentValue::CenterOf(at));
            chart.draw_series([Circle::new(middle, 5, INK.filled())]).map_err(text)?;
        }
        Ok(())
    }
}

/// About three digits.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn text(error: impl std::fmt::Display) -> BenchmarkError {
    error.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_a_dot_in_the_panel_of_its_unit() {
        let rows = [
            Row::new("b", "ours & <theirs>", "latency", "ns", vec![1.0, 2.0, 3.0]),
            Row::new("b", "bare", "latency", "ns", vec![500.0]),
            Row::new("b", "ours : bare", "ratio", "", vec![0.5, 0.25]),
        ];
        let panels = panels(&rows);
        assert_eq!(panels.iter().map(|panel| panel.logarithmic).collect::<Vec<_>>(), [true, false]);
        let svg = svg("vgas bench b", &rows).unwrap();
        assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
        for words in ["vgas bench b", "latency in ns", "ratio", "ours &amp; &lt;theirs&gt;", "ours : bare"] {
            assert!(svg.contains(words), "{words} is not in {svg}");
        }
    }

    #[test]
    fn nothing_is_not_drawn() {
        assert!(svg("b", &[]).is_err());
        assert!(svg("b", &[Row::new("b", "c", "ratio", "", vec![f64::NAN])]).is_err());
    }
}
