//! Places of values along an axis, and the numbers beside it: 1, 2, 5 and their tenfold.

/// From this ratio of the largest to the least value on, an axis is logarithmic.
const LOGARITHMIC_FROM: f64 = 25.0;

/// An axis from one pixel to another.
#[derive(Clone, Debug)]
pub struct Axis {
    logarithmic: bool,
    from: f64,
    upto: f64,
    pixels: (i32, i32),
}

impl Axis {
    /// For values that are measured. Linear ones begin at zero, so that lengths can be compared.
    pub fn of_values(least: f64, most: f64, pixels: (i32, i32)) -> Self {
        let logarithmic = least > 0.0 && most / least >= LOGARITHMIC_FROM;
        let (from, upto) = match logarithmic {
            true => (least.log10() - 0.06, most.log10() + 0.06),
            false => (least.min(0.0) * 1.06, if most > 0.0 { most * 1.06 } else { 1.0 }),
        };
        Self { logarithmic, from, upto, pixels }
    }

    /// For numbers that were chosen, such as nodes and sizes, which are multiplied from one to the next.
    pub fn of_choices(least: f64, most: f64, pixels: (i32, i32)) -> Self {
        let margin = ((most / least).log10() * 0.04).max(0.03);
        Self { logarithmic: true, from: least.log10() - margin, upto: most.log10() + margin, pixels }
    }

    /// True if equal distances are equal quotients.
    pub fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// The pixel of a value.
    pub fn at(&self, value: f64) -> i32 {
        let place = if self.logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let share = (place - self.from) / (self.upto - self.from);
        let (first, last) = (f64::from(self.pixels.0), f64::from(self.pixels.1));
        (first + share.clamp(-0.01, 1.01) * (last - first)).round() as i32
    }

    /// Returns the numbers beside it, about `about` of them.
    pub fn ticks(&self, about: usize) -> Vec<f64> {
        if self.logarithmic { self.decades(about) } else { self.steps(about) }
    }

    fn steps(&self, about: usize) -> Vec<f64> {
        let rough = (self.upto - self.from) / about as f64;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * decade);
        let step = step.into_iter().find(|step| *step >= rough * 0.7).unwrap_or(rough);
        let (first, last) = ((self.from / step).ceil() as i64, (self.upto / step).floor() as i64);
        (first..=last).map(|at| at as f64 * step).collect()
    }

    fn decades(&self, about: usize) -> Vec<f64> {
        let (first, last) = (self.from.floor() as i32, self.upto.ceil() as i32);
        let within = |value: &f64| (self.from..=self.upto).contains(&value.log10());
        let of = |times: &[f64], every: i32| -> Vec<f64> {
            let decades = (first..=last).filter(|decade| decade % every == 0);
            decades
                .flat_map(|decade| times.iter().map(move |times| times * 10f64.powi(decade)))
                .filter(within)
                .collect()
        };
        let fine = of(&[1.0, 2.0, 5.0], 1);
        if fine.len() <= about + 3 {
            return fine;
        }
        let plain = of(&[1.0], 1);
        if plain.len() <= about + 3 { plain } else { of(&[1.0], 3) }
    }
}

/// Bytes in the largest unit that fits.
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    format!("{text} {}", units[unit])
}

/// A number beside an axis.
pub fn tick(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{}G", value / 1e9),
        size if size >= 1e6 => format!("{}M", value / 1e6),
        size if size >= 1e4 => format!("{}k", value / 1e3),
        // Sums of tenths have spurious digits.
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the numbers beside an axis are those that people read.
    #[test]
    fn ticks_are_ones_twos_and_fives() {
        let words = |axis: Axis, about| axis.ticks(about).into_iter().map(tick).collect::<Vec<_>>().join(" ");
        assert_eq!(words(Axis::of_values(30.0, 270.0, (0, 100)), 6), "0 50 100 150 200 250");
        assert_eq!(words(Axis::of_values(0.3, 1.4, (0, 100)), 6), "0 0.2 0.4 0.6 0.8 1 1.2 1.4");
        assert_eq!(words(Axis::of_values(1.0, 90.0, (0, 100)), 6), "1 2 5 10 20 50 100");
        assert_eq!(words(Axis::of_values(1.0, 31_623.0, (0, 100)), 6), "1 10 100 1000 10k");
        assert_eq!(
            (bytes(4096.0), bytes(1536.0), bytes(8.0)),
            ("4 KiB".into(), "1.5 KiB".into(), "8 B".into())
        );
        let axis = Axis::of_values(0.0, 100.0, (0, 106));
        assert_eq!((axis.at(0.0), axis.at(100.0)), (0, 100));
        assert_eq!(Axis::of_choices(1.0, 8.0, (100, 0)).at(8.0), 4);
    }
}
