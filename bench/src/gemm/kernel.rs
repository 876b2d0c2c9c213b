//! The multiplication of one panel: faer's, on tiles as they lie in memory.

use super::npy::{Dtype, Order};
use bytemuck::Pod;
use faer::linalg::matmul::matmul;
use faer::traits::RealField;
use faer::{Accum, MatMut, MatRef, Par};
use std::error::Error;
use std::sync::OnceLock;

/// A number that can be multiplied: f32 or f64.
pub trait Element: Pod + RealField + Into<f64> + Send + Sync {
    /// Its name in files.
    const DTYPE: Dtype;
    /// Half the distance from 1 to the next number: the largest relative error of one rounding.
    const ROUNDING: f64;
    /// The smallest positive number: the largest absolute error of one rounding near 0.
    const TINY: f64;
    /// The largest number.
    const LARGEST: f64;
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::Float32;
    const ROUNDING: f64 = f32::EPSILON as f64 / 2.0;
    const TINY: f64 = 1.5e-45;
    const LARGEST: f64 = f32::MAX as f64;
}

impl Element for f64 {
    const DTYPE: Dtype = Dtype::Float64;
    const ROUNDING: f64 = f64::EPSILON / 2.0;
    const TINY: f64 = 5e-324;
    const LARGEST: f64 = f64::MAX;
}

/// A tile to read.
#[derive(Clone, Copy)]
pub(super) struct Factor<'a, T> {
    /// Its numbers, without gaps.
    pub numbers: &'a [T],
    /// Their order.
    pub order: Order,
}

/// `c = a·b`, or `c += a·b` if `add`; the sizes are m, n and k.
pub(super) fn multiply<T: Element>(
    c: &mut [T],
    c_order: Order,
    [a, b]: [Factor<'_, T>; 2],
    [m, n, k]: [usize; 3],
    add: bool,
    threads: usize,
) {
    let c = match c_order {
        Order::C => MatMut::from_row_major_slice_mut(c, m, n),
        Order::Fortran => MatMut::from_column_major_slice_mut(c, m, n),
    };
    let beta = if add { Accum::Add } else { Accum::Replace };
    matmul(c, beta, view(a, m, k), view(b, k, n), T::one_impl(), parallelism(threads));
}

/// So many threads, or the calling one alone where no others may be started, for want of which rayon would panic.
fn parallelism(threads: usize) -> Par {
    static HELPED: OnceLock<bool> = OnceLock::new();
    let start = || match rayon::ThreadPoolBuilder::new().build_global() {
        // Without a source: they were started before.
        Err(error) if error.source().is_some() => {
            tracing::warn!(
                "cannot start threads to multiply with ({error}); one does it alone, which is slower: raise the limit of \
                 processes (`ulimit -u`)"
            );
            false
        }
        _ => true,
    };
    if threads > 1 && *HELPED.get_or_init(start) { Par::rayon(threads) } else { Par::Seq }
}

fn view<'a, T: Element>(tile: Factor<'a, T>, rows: usize, columns: usize) -> MatRef<'a, T> {
    match tile.order {
        Order::C => MatRef::from_row_major_slice(tile.numbers, rows, columns),
        Order::Fortran => MatRef::from_column_major_slice(tile.numbers, rows, columns),
    }
}
