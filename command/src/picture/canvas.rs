//! Drawing primitives of pictures: text, lines with dashes, markers, in one size of page.

use plotters::prelude::{DrawingBackend, RGBColor, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoTextStyle, ShapeStyle};

/// Width of every picture.
pub const WIDTH: i32 = 960;

pub const BLACK: RGBColor = RGBColor(20, 20, 20);
pub const GREY: RGBColor = RGBColor(110, 110, 110);
pub const PALE: RGBColor = RGBColor(224, 224, 224);

/// Look of a variant: colours that can be told apart by the colour-blind, dashes and markers that need no
/// colour.
#[derive(Clone, Copy)]
pub struct Look {
    pub colour: RGBColor,
    /// Pixels drawn and left out, in turn; empty: all drawn.
    dash: &'static [f64],
    marker: Marker,
    /// References are drawn hollow.
    is_hollow: bool,
}

#[derive(Clone, Copy)]
enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
}

const LOOKS: [(RGBColor, &[f64], Marker); 6] = [
    (RGBColor(0, 90, 160), &[], Marker::Circle),
    (RGBColor(205, 80, 0), &[9.0, 4.0], Marker::Square),
    (RGBColor(0, 135, 95), &[3.0, 3.0], Marker::Triangle),
    (RGBColor(160, 60, 130), &[10.0, 3.0, 2.0, 3.0], Marker::Diamond),
    (RGBColor(120, 90, 20), &[5.0, 2.0], Marker::Cross),
    (RGBColor(60, 60, 160), &[1.0, 3.0], Marker::Circle),
];

const REFERENCES: [(RGBColor, &[f64], Marker); 3] = [
    (RGBColor(90, 90, 90), &[14.0, 4.0], Marker::Circle),
    (RGBColor(130, 130, 130), &[2.0, 4.0], Marker::Square),
    (RGBColor(90, 90, 90), &[6.0, 6.0], Marker::Diamond),
];

impl Look {
    /// Returns the look of the variant of this number.
    pub fn variant(at: usize) -> Self {
        let (colour, dash, marker) = LOOKS[at % LOOKS.len()];
        Self { colour, dash, marker, is_hollow: false }
    }

    /// Returns the look of the reference of this number.
    pub fn reference(at: usize) -> Self {
        let (colour, dash, marker) = REFERENCES[at % REFERENCES.len()];
        Self { colour, dash, marker, is_hollow: true }
    }
}

/// Side of a point on which text stands.
#[derive(Clone, Copy)]
pub enum Side {
    /// It begins there.
    Right,
    /// It ends there.
    Left,
    /// It stands around it.
    Around,
}

/// Calls that are drawn when the height is known.
pub struct Canvas {
    height: i32,
    svg: String,
}

/// A pen that draws on a canvas.
pub struct Pen<'c> {
    backend: SVGBackend<'c>,
}

type At = (i32, i32);

impl Canvas {
    /// A white page of this height, drawn by `draw`.
    pub fn new(height: i32, draw: impl FnOnce(&mut Pen<'_>)) -> Self {
        let mut svg = String::new();
        {
            let backend = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32));
            let mut pen = Pen { backend };
            pen.rectangle((0, 0), (WIDTH, height), RGBColor(255, 255, 255));
            draw(&mut pen);
            // A string takes all that is written.
            let _ = pen.backend.present();
        }
        Self { height, svg }
    }

    pub fn height(&self) -> i32 {
        self.height
    }

    pub fn into_svg(self) -> String {
        self.svg
    }
}

// Drawing into a string cannot fail.
impl Pen<'_> {
    pub fn text(&mut self, words: &str, at: At, size: f64, colour: RGBColor, side: Side) {
        self.words(words, at, size, colour, side, FontStyle::Normal);
    }

    /// The first two lines of a picture: its question, and below it the quantity and, in bold, the conditions.
    pub fn heading(&mut self, question: &str, quantity: &str, conditions: &str) {
        self.bold(question, (14, 20), 16.0);
        self.text(quantity, (14, 42), 12.0, GREY, Side::Right);
        if !conditions.is_empty() {
            let left = WIDTH - 14 - width_of(conditions, 12.0);
            // Bold letters are wider.
            self.bold(conditions, (left - conditions.len() as i32 / 2, 42), 12.0);
        }
    }

    pub fn bold(&mut self, words: &str, at: At, size: f64) {
        self.words(words, at, size, BLACK, Side::Right, FontStyle::Bold);
    }

    fn words(&mut self, words: &str, at: At, size: f64, colour: RGBColor, side: Side, style: FontStyle) {
        let h = match side {
            Side::Right => HPos::Left,
            Side::Left => HPos::Right,
            Side::Around => HPos::Center,
        };
        // The drawing library's size is larger than the letters are.
        let style = ("sans-serif", size * 1.24, style).into_text_style(&(1, 1)).color(&colour);
        let _ = self.backend.draw_text(words, &style.pos(Pos::new(h, VPos::Center)), at);
    }

    pub fn rectangle(&mut self, from: At, upto: At, colour: RGBColor) {
        let _ = self.backend.draw_rect(from, upto, &colour, true);
    }

    pub fn line(&mut self, from: At, upto: At, colour: RGBColor, width: u32) {
        let style = ShapeStyle { color: colour.to_rgba(), filled: false, stroke_width: width };
        let _ = self.backend.draw_path([from, upto], &style);
    }

    /// A thin line of dots.
    pub fn dotted(&mut self, from: At, upto: At, colour: RGBColor) {
        self.dashed(&[from, upto], &[2.0, 3.0], colour, 1);
    }

    /// The line of a variant through these points.
    pub fn path(&mut self, points: &[At], look: Look) {
        self.dashed(points, look.dash, look.colour, 2);
    }

    fn dashed(&mut self, points: &[At], dash: &[f64], colour: RGBColor, width: u32) {
        let style = ShapeStyle { color: colour.to_rgba(), filled: false, stroke_width: width };
        if dash.is_empty() {
            let _ = self.backend.draw_path(points.iter().copied(), &style);
            return;
        }
        let (mut piece, mut left) = (0, dash[0]);
        for pair in points.windows(2) {
            let [from, upto] = [pair[0], pair[1]].map(|(x, y)| (f64::from(x), f64::from(y)));
            let length = (upto.0 - from.0).hypot(upto.1 - from.1);
            let at = |done: f64| {
                let share = done / length.max(1e-9);
                let between = |a: f64, b: f64| (a + share * (b - a)).round() as i32;
                (between(from.0, upto.0), between(from.1, upto.1))
            };
            let mut done = 0.0;
            while done < length {
                let step = left.min(length - done);
                if piece % 2 == 0 {
                    let _ = self.backend.draw_path([at(done), at(done + step)], &style);
                }
                done += step;
                left -= step;
                if left <= 0.0 {
                    piece = (piece + 1) % dash.len();
                    left = dash[piece];
                }
            }
        }
    }

    /// The bar of samples through a marker: upright or not, with ends.
    pub fn spread(&mut self, from: At, upto: At, colour: RGBColor) {
        let is_upright = from.0 == upto.0;
        if (from.0 - upto.0).abs().max((from.1 - upto.1).abs()) < 3 {
            return;
        }
        self.line(from, upto, colour, 1);
        for (x, y) in [from, upto] {
            let (dx, dy) = if is_upright { (3, 0) } else { (0, 3) };
            self.line((x - dx, y - dy), (x + dx, y + dy), colour, 1);
        }
    }

    pub fn marker(&mut self, (x, y): At, look: Look) {
        let corners: &[At] = match look.marker {
            Marker::Circle => {
                if look.is_hollow {
                    let _ = self.backend.draw_circle((x, y), 4, &RGBColor(255, 255, 255), true);
                }
                let style = ShapeStyle { color: look.colour.to_rgba(), filled: false, stroke_width: 2 };
                let _ = self.backend.draw_circle((x, y), 4, &style, !look.is_hollow);
                return;
            }
            Marker::Square => &[(-4, -4), (4, -4), (4, 4), (-4, 4), (-4, -4)],
            Marker::Triangle => &[(0, -5), (5, 4), (-5, 4), (0, -5)],
            Marker::Diamond => &[(0, -6), (5, 0), (0, 6), (-5, 0), (0, -6)],
            Marker::Cross => {
                self.line((x - 4, y - 4), (x + 4, y + 4), look.colour, 2);
                self.line((x - 4, y + 4), (x + 4, y - 4), look.colour, 2);
                return;
            }
        };
        let corners: Vec<At> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        let filling = if look.is_hollow { RGBColor(255, 255, 255) } else { look.colour };
        let _ = self.backend.fill_polygon(corners.iter().copied(), &filling);
        let style = ShapeStyle { color: look.colour.to_rgba(), filled: false, stroke_width: 2 };
        let _ = self.backend.draw_path(corners, &style);
    }

    /// Draws a variant's look, with its words; returns its width.
    pub fn sample(&mut self, (x, y): At, look: Look, words: &str) -> i32 {
        self.path(&[(x, y), (x + 34, y)], look);
        self.marker((x + 17, y), look);
        self.text(words, (x + 42, y), 12.0, BLACK, Side::Right);
        42 + width_of(words, 12.0) + 22
    }
}

/// Estimates the width of words: the reader's fonts are unknown.
pub fn width_of(words: &str, size: f64) -> i32 {
    let wide = words.chars().filter(|letter| letter.is_uppercase() || *letter == '_').count() as f64;
    let all = words.chars().count() as f64;
    ((all * 0.57 + wide * 0.17) * size).ceil() as i32
}
