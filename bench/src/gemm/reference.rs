//! Reference for an out-of-core product: the same kernel on the whole matrices, in memory.

use super::kernel::{Element, Factor, multiply};
use super::npy::{Dtype, Order};
use std::time::Instant;

/// Matrices in memory, to be multiplied again and again: in alternation with what is compared, so that a busy
/// machine is busy for both.
pub struct Reference {
    run: Box<dyn FnMut() -> f64>,
}

impl Reference {
    /// Square matrices of side `n`, all of them row-major.
    pub fn new(n: usize, dtype: Dtype, threads: usize) -> Self {
        let run: Box<dyn FnMut() -> f64> = match dtype {
            Dtype::Float32 => Box::new(runner(n, threads, |number| number as f32)),
            Dtype::Float64 => Box::new(runner(n, threads, |number| number)),
        };
        Self { run }
    }

    /// Multiplies once; the rate, in 10⁹ operations a second.
    pub fn gflops(&mut self) -> f64 {
        (self.run)()
    }
}

fn runner<T: Element>(n: usize, threads: usize, number: fn(f64) -> T) -> impl FnMut() -> f64 {
    let fill = |step: f64| (0..n * n).map(|at| number((at as f64 * step).fract() - 0.5)).collect::<Vec<T>>();
    let (a, b) = (fill(0.618_033_988), fill(0.414_213_562));
    let mut c = vec![number(0.0); n * n];
    move || {
        let factors = [&a, &b].map(|numbers| Factor { numbers, order: Order::C });
        let start = Instant::now();
        multiply(&mut c, Order::C, factors, [n; 3], false, threads);
        2.0 * (n as f64).powi(3) / start.elapsed().as_secs_f64() / 1e9
    }
}
