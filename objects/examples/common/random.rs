//! Random numbers that are the same everywhere: the versions of a program compute with the same ones.

use vgas_objects::{Portable, Shareable};

/// A bijection that looks random (the finaliser of SplitMix64).
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// SplitMix64.
#[derive(Clone, Copy, Debug, Portable, Shareable)]
pub struct Random(u64);

impl Random {
    /// Numbers of a seed, others for each stream.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream.wrapping_add(0x9e37_79b9_7f4a_7c15))))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, each as likely as the others, as far as 64 bits go.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 on, before 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Ranks from 0 on, of which the first are the likeliest: that of rank k falls with k to the power of `theta` (Gray et al., *Quickly
/// generating billion-record synthetic databases*, as YCSB has it).
#[derive(Clone, Copy, Debug, Portable, Shareable)]
pub struct Zipf {
    count: f64,
    theta: f64,
    alpha: f64,
    sum: f64,
    eta: f64,
    second: f64,
}

impl Zipf {
    /// Over so many ranks, of `theta` from 0 on, before 1. It adds up as many numbers once.
    pub fn new(count: u64, theta: f64) -> Self {
        let sum_of = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let (sum, two) = (sum_of(count), sum_of(2.min(count)));
        let of = count as f64;
        let eta = (1.0 - (2.0 / of).powf(1.0 - theta)) / (1.0 - two / sum);
        let eta = if eta.is_finite() { eta } else { 0.0 };
        Self { count: of, theta, alpha: 1.0 / (1.0 - theta), sum, eta, second: 1.0 + 0.5f64.powf(theta) }
    }

    /// The next.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let part = unit * self.sum;
        if part < 1.0 || self.count < 2.0 {
            return 0;
        }
        if part < self.second {
            return 1;
        }
        let rank = self.count * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count as u64 - 1)
    }
}
