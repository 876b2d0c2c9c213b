//! Measures the share of faer's full-size rate that is left when the product is a sum of thin panels, as in
//! SUMMA: the basis of the panel width in `gemm::plan`. Thin and full-size runs alternate, so that noisy
//! neighbours hit both.
//!
//! `cargo run --release -p vgas-bench --example gemm_kernel [threads] [rounds]`

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rustix::time::{ClockId, clock_gettime};
use vgas::say::print;

/// C (row-major, `m` × `n`) += A (`m` × `k`) · B (`k` × `n`), the inputs row-major or column-major.
fn multiply(c: &mut [f64], a: &[f64], b: &[f64], [m, n, k]: [usize; 3], columns: [bool; 2], par: Par) {
    let c = MatMut::from_row_major_slice_mut(c, m, n);
    let view = |slice, rows, cols, column_major| match column_major {
        true => MatRef::from_column_major_slice(slice, rows, cols),
        false => MatRef::from_row_major_slice(slice, rows, cols),
    };
    matmul(c, Accum::Add, view(a, m, k, columns[0]), view(b, k, n, columns[1]), 1.0, par);
}

fn random(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
        })
        .collect()
}

/// With one thread, by the time the thread had a core: the figure survives a busy machine. With more, by the clock.
fn gflops([m, n, k]: [usize; 3], threads: usize, mut run: impl FnMut()) -> f64 {
    let clock = if threads == 1 { ClockId::ThreadCPUTime } else { ClockId::Monotonic };
    let seconds = || {
        let time = clock_gettime(clock);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    };
    let start = seconds();
    run();
    2.0 * (m * n * k) as f64 / (seconds() - start) / 1e9
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let threads = arguments.next().unwrap_or(1);
    let rounds = arguments.next().unwrap_or(5);
    let par = if threads == 1 { Par::Seq } else { Par::rayon(threads) };
    let full = [3072; 3];
    let (fa, fb, mut fc) = (random(3072 * 3072, 1), random(3072 * 3072, 2), vec![0.0; 3072 * 3072]);
    print(format_args!(
        "{threads} threads; GFLOP/s, medians of {rounds} alternated rounds; A and B: r row-major, c column-major\n\
         {:>22} {:>6} {:>8} {:>8} {:>6}\n",
        "C block, panel", "A B", "full", "thin", "ratio"
    ))?;
    for [m, n] in [[1024, 1024], [2048, 1536], [1824, 1824]] {
        for k in [64, 128, 256, 512] {
            for columns in [[false, false], [true, false], [false, true], [true, true]] {
                if columns != [false, false] && k != 256 {
                    continue;
                }
                // Eight different panels in turn: as in a real run, none is in the core's cache when it comes.
                let panels: Vec<_> = (0..8).map(|i| (random(m * k, i), random(k * n, i + 9))).collect();
                let mut c = vec![0.0; m * n];
                let mut pairs: Vec<(f64, f64)> = (0..rounds)
                    .map(|_| {
                        let whole =
                            gflops(full, threads, || multiply(&mut fc, &fa, &fb, full, [false; 2], par));
                        let thin = gflops([m, n, 8 * k], threads, || {
                            for (a, b) in &panels {
                                multiply(&mut c, a, b, [m, n, k], columns, par);
                            }
                        });
                        (whole, thin)
                    })
                    .collect();
                pairs.sort_by(|x, y| (x.1 / x.0).total_cmp(&(y.1 / y.0)));
                let (whole, thin) = pairs[rounds / 2];
                let order = columns.map(|c| if c { 'c' } else { 'r' });
                print(format_args!(
                    "{:>22} {:>6} {whole:>8.1} {thin:>8.1} {:>6.3}\n",
                    format!("{m} x {n}, k = {k}"),
                    format!("{} {}", order[0], order[1]),
                    thin / whole
                ))?;
            }
        }
    }
    Ok(())
}
