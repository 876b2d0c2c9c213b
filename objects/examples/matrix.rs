//! The product of two matrices whose tiles are owned objects: each tile of the result is a task, which reads copies of the tiles that it
//! needs. Beside it, the same on plain vectors in one process.
//!
//! Run it: `cargo build --release --examples && target/release/vgas run -n 4 --nodes 2 -- target/release/examples/matrix --verify`

use clap::Parser;
use std::time::Instant;
use vgas::{Rank, Runtime};
use vgas_objects::{DVec, HeapOptions, Objects, Portable, RunOptions, Shareable, TaskError, scope, task};

/// Multiplies two square matrices of owned objects.
///
/// Example: vgas run -n 4 --nodes 2 -- matrix --size 2048 --verify
#[derive(Debug, Parser)]
struct Arguments {
    /// Rows and columns of the matrices; whole tiles.
    #[arg(long, default_value_t = 1024)]
    size: u32,
    /// Rows and columns of a tile.
    #[arg(long, default_value_t = 128)]
    tile: u32,
    /// Compute it without objects, too, and compare.
    #[arg(long)]
    verify: bool,
    /// MiB of each rank's heap; more than the cache is fine.
    #[arg(long, default_value_t = 512)]
    heap: u64,
}

/// A square of tiles, row by row, each of them row by row, too.
#[derive(Portable, Shareable)]
struct Matrix {
    tiles: DVec<DVec<f64>>,
    /// Tiles in a row.
    across: u32,
    /// Rows of a tile.
    tile: u32,
}

/// An element of a matrix that nobody stores.
fn element(seed: u32, row: u32, column: u32) -> f64 {
    f64::from((row * 31 + column * 17 + seed) % 64) / 64.0
}

/// The elements of a tile, as both versions make them.
fn tile_of(seed: u32, across: u32, tile: u32, at: u32) -> impl Iterator<Item = f64> {
    let (first_row, first_column) = (at / across * tile, at % across * tile);
    (0..tile).flat_map(move |row| {
        (0..tile).map(move |column| element(seed, first_row + row, first_column + column))
    })
}

/// Adds the product of two tiles to a third: what both versions compute with.
fn add_product(tile: usize, a: &[f64], b: &[f64], c: &mut [f64]) {
    for (row, c) in a.chunks_exact(tile).zip(c.chunks_exact_mut(tile)) {
        for (a, b) in row.iter().zip(b.chunks_exact(tile)) {
            c.iter_mut().zip(b).for_each(|(c, b)| *c += a * b);
        }
    }
}

/// The tiles of a matrix that are made where they will be read first.
fn make(seed: u32, across: u32, tile: u32, ranks: u32) -> Result<Matrix, TaskError> {
    let made: Vec<_> = (0..across * across)
        .map(|at| {
            let make = task!(|(seed, across, tile, at): (u32, u32, u32, u32)| -> DVec<f64> {
                tile_of(seed, across, tile, at).collect()
            });
            vgas_objects::spawn_to(Rank(at / across % ranks), make, (seed, across, tile, at))
        })
        .collect();
    let tiles = made.into_iter().map(|tile| tile.join()).collect::<Result<_, _>>()?;
    Ok(Matrix { tiles, across, tile })
}

fn multiply(a: &Matrix, b: &Matrix, ranks: u32) -> Result<Matrix, TaskError> {
    let across = a.across;
    let tiles = scope(|scope| {
        let all: Vec<_> = (0..across * across)
            .map(|at| {
                let product = task!(|(a, b): (&Matrix, &Matrix), at: u32| -> DVec<f64> {
                    let (across, tile) = (a.across, a.tile as usize);
                    let mut c = vec![0.0; tile * tile];
                    for step in 0..across {
                        let (a, b) = (
                            &a.tiles[(at / across * across + step) as usize],
                            &b.tiles[(step * across + at % across) as usize],
                        );
                        add_product(tile, a, b, &mut c);
                    }
                    c.into_iter().collect()
                });
                scope.spawn_to(Rank(at / across % ranks), product, (a, b), at)
            })
            .collect();
        all.into_iter().map(|tile| tile.join()).collect::<Result<DVec<_>, _>>()
    })?;
    Ok(Matrix { tiles, across, tile: a.tile })
}

/// The same on vectors, and whether it is the same.
fn verify(product: &Matrix) -> (bool, std::time::Duration) {
    let (across, tile) = (product.across, product.tile);
    let plain = |seed| -> Vec<Vec<f64>> {
        (0..across * across).map(|at| tile_of(seed, across, tile, at).collect()).collect()
    };
    let (a, b) = (plain(1), plain(2));
    let began = Instant::now();
    let c: Vec<Vec<f64>> = (0..across * across)
        .map(|at| {
            let mut c = vec![0.0; (tile * tile) as usize];
            for step in 0..across {
                let (a, b) =
                    (&a[(at / across * across + step) as usize], &b[(step * across + at % across) as usize]);
                add_product(tile as usize, a, b, &mut c);
            }
            c
        })
        .collect();
    let took = began.elapsed();
    (c.iter().zip(&product.tiles).all(|(plain, tile)| plain[..] == tile[..]), took)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let (size, tile) = (arguments.size, arguments.tile);
    if tile == 0 || size % tile != 0 || size == 0 {
        return Err(format!("a matrix of {size} rows is not of whole tiles of {tile}").into());
    }
    let heap = HeapOptions { bytes: arguments.heap << 20, ..HeapOptions::default() };
    let objects = Objects::attach(Runtime::init()?, &heap)?;
    let ranks = objects.ranks();
    let said = objects.run(&RunOptions::default(), || -> Result<(), Box<dyn std::error::Error>> {
        let (a, b) = (make(1, size / tile, tile, ranks)?, make(2, size / tile, tile, ranks)?);
        let began = Instant::now();
        let product = multiply(&a, &b, ranks)?;
        let took = began.elapsed();
        let rate = 2.0 * f64::from(size).powi(3) / took.as_secs_f64() / 1e9;
        vgas::print(format_args!(
            "product of {size} by {size} in {took:.2?}: {rate:.1} GFLOP/s on {ranks} ranks\n"
        ))?;
        if arguments.verify {
            let (is_same, plain) = verify(&product);
            if !is_same {
                return Err("the product is not that of plain vectors".into());
            }
            vgas::print(format_args!("verified; {plain:.2?} on plain vectors in one thread\n"))?;
        }
        Ok(())
    })?;
    said.unwrap_or(Ok(()))?;
    Ok(objects.finalize()?)
}
