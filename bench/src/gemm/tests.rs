//! Whole products, small: every shape, type, order and number of ranks, against the definition of a product; then
//! everything that can be wrong with the inputs, with the exact words.

use super::npy::{Rectangle, Shape2};
use super::threads::{self, ThreadsSpec};
use super::*;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const ORDERS: [Order; 2] = [Order::C, Order::Fortran];

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Numbers that look random and need no rounding in f32.
fn numbers(count: u64, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            f64::from((state >> 40) as u32) / f64::from(1 << 23) - 1.0
        })
        .collect()
}

/// A matrix in memory, row-major.
#[derive(Clone)]
struct Matrix {
    shape: Shape2,
    numbers: Vec<f64>,
}

impl Matrix {
    fn new(rows: u64, columns: u64, seed: u64) -> Self {
        Self { shape: Shape2 { rows, columns }, numbers: numbers(rows * columns, seed) }
    }

    fn at(&self, row: u64, column: u64) -> f64 {
        self.numbers[(row * self.shape.columns + column) as usize]
    }

    fn all(&self) -> Rectangle {
        Rectangle { rows: 0..self.shape.rows, columns: 0..self.shape.columns }
    }

    /// The elements in an order, as (row, column).
    fn places(&self, order: Order) -> Vec<(u64, u64)> {
        let (slow, fast) = self.all().slow_fast(order);
        let pairs = slow.flat_map(|s| fast.clone().map(move |f| (s, f)));
        match order {
            Order::C => pairs.collect(),
            Order::Fortran => pairs.map(|(s, f)| (f, s)).collect(),
        }
    }

    fn write(&self, path: &Path, dtype: Dtype, order: Order) {
        let bytes: Vec<u8> = self
            .places(order)
            .into_iter()
            .flat_map(|(row, column)| match dtype {
                Dtype::Float32 => (self.at(row, column) as f32).to_le_bytes().to_vec(),
                Dtype::Float64 => self.at(row, column).to_le_bytes().to_vec(),
            })
            .collect();
        let output = NpyOutput::create(path, false, dtype, order, self.shape).unwrap();
        output.write(&self.all(), &bytes).unwrap();
        output.commit().unwrap();
    }

    /// Read by other people's code.
    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let file = npyz::NpyFile::new(&bytes[..]).unwrap();
        let header = file.header().clone();
        let &[rows, columns] = header.shape() else { panic!("not a matrix") };
        let in_order: Vec<f64> = match header.dtype().descr().as_str() {
            "'<f4'" => file.into_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
            _ => file.into_vec::<f64>().unwrap(),
        };
        let mut matrix = Self { shape: Shape2 { rows, columns }, numbers: vec![0.0; in_order.len()] };
        let order = if header.order() == npyz::Order::C { Order::C } else { Order::Fortran };
        for ((row, column), number) in matrix.places(order).into_iter().zip(in_order) {
            matrix.numbers[(row * columns + column) as usize] = number;
        }
        matrix
    }

    /// The definition.
    fn product(&self, other: &Self) -> Self {
        let shape = Shape2 { rows: self.shape.rows, columns: other.shape.columns };
        let mut numbers = Vec::new();
        for row in 0..shape.rows {
            for column in 0..shape.columns {
                numbers.push((0..self.shape.columns).map(|k| self.at(row, k) * other.at(k, column)).sum());
            }
        }
        Self { shape, numbers }
    }

    #[track_caller]
    fn assert_close(&self, expected: &Self, dtype: Dtype, k: u64, what: &str) {
        assert_eq!(self.shape, expected.shape, "{what}");
        let unit = if dtype == Dtype::Float32 { f32::EPSILON.into() } else { f64::EPSILON };
        let allowed = unit * (k + 1) as f64;
        for (at, (found, expected)) in self.numbers.iter().zip(&expected.numbers).enumerate() {
            assert!((found - expected).abs() <= allowed, "{what}: element {at} is {found}, not {expected}");
        }
    }
}

/// Runs a job on threads; the ranks' results.
fn run_threads(job: &GemmJob, ranks: usize, page_bytes: u64) -> Vec<Result<Summary>> {
    let problem = inspect(job).unwrap();
    let cache_bytes = 64 << 20;
    let limits =
        Limits { ranks, ranks_on_node: ranks, page_bytes, cache_bytes, memory_bytes: job.memory_bytes };
    let segment_bytes = Plan::new(&problem, &limits).unwrap().segment_bytes();
    let spec = ThreadsSpec { ranks, segment_bytes, page_bytes, cache_bytes, threads: 1 };
    threads::run(spec, |memory| run(memory, job, &|_, _, _| ()))
}

/// Multiplies through files and compares; the summary of rank 0.
fn check(
    a: &Matrix,
    b: &Matrix,
    dtype: Dtype,
    orders: [Order; 3],
    ranks: usize,
    memory_bytes: u64,
) -> Summary {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    a.write(&path("a.npy"), dtype, orders[0]);
    b.write(&path("b.npy"), dtype, orders[1]);
    let job = GemmJob {
        memory_bytes,
        order: Some(orders[2]),
        verify: true,
        ..GemmJob::new(path("a.npy"), path("b.npy"), path("c.npy"))
    };
    let what =
        format!("{} · {}, {dtype:?}, {orders:?}, {ranks} ranks, {memory_bytes} bytes", a.shape, b.shape);
    let mut summaries = run_threads(&job, ranks, 4096);
    for summary in &summaries {
        assert!(summary.is_ok(), "{what}: {summary:?}");
    }
    let file = NpyMatrix::open(&path("c.npy")).unwrap();
    assert_eq!((file.dtype, file.order), (dtype, orders[2]), "{what}");
    Matrix::read(&path("c.npy")).assert_close(&a.product(b), dtype, a.shape.columns, &what);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "{what}: something was left behind");
    summaries.swap_remove(0).unwrap()
}

#[test]
fn shapes_of_every_kind() {
    let shapes = [
        (1, 1, 1),
        (1, 97, 1),
        (97, 1, 5),
        (1, 1, 211),
        (2, 3, 4),
        (31, 37, 41),
        (64, 64, 64),
        (65, 63, 129),
        (5, 6, 0),
        (0, 6, 3),
        (6, 0, 3),
        (0, 0, 0),
        (127, 131, 113),
    ];
    for (at, &(m, n, k)) in shapes.iter().enumerate() {
        for ranks in 1..=6 {
            // All combinations of types and orders come up, spread over the shapes.
            let turn = at * 6 + ranks;
            let dtype = if turn % 2 == 0 { Dtype::Float32 } else { Dtype::Float64 };
            let orders = [ORDERS[turn / 2 % 2], ORDERS[turn / 4 % 2], ORDERS[turn / 8 % 2]];
            check(&Matrix::new(m, k, 1), &Matrix::new(k, n, 2), dtype, orders, ranks, 33_000);
        }
    }
}

#[test]
fn every_combination_of_orders_and_types_with_many_blocks_and_panels() {
    let (a, b) = (Matrix::new(150, 230, 3), Matrix::new(230, 170, 4));
    for dtype in [Dtype::Float32, Dtype::Float64] {
        for bits in 0..8 {
            let orders = [ORDERS[bits & 1], ORDERS[bits >> 1 & 1], ORDERS[bits >> 2]];
            let summary = check(&a, &b, dtype, orders, 4, 33_000);
            assert!(summary.tile[0] < 75 && summary.tile[1] < 85 && summary.tile[2] < 115, "{summary:?}");
        }
    }
}

#[test]
fn a_budget_for_everything_makes_one_block_a_rank() {
    let (a, b) = (Matrix::new(100, 80, 5), Matrix::new(80, 60, 6));
    let summary = check(&a, &b, Dtype::Float64, [Order::C; 3], 1, MEMORY_BYTES);
    assert_eq!(summary.tile, [100, 60, 80]);
    assert_eq!(summary.bytes_fetched, (100 * 80 + 80 * 60) * 8);
    assert_eq!(summary.bytes_stored, 100 * 60 * 8);
}

/// A multiplication table of errors: one wrong element among all, anywhere, must be found, in either type.
#[test]
fn verification_finds_one_wrong_element() {
    let (m, n, k) = (120, 140, 160);
    for dtype in [Dtype::Float32, Dtype::Float64] {
        for (turn, (row, column)) in [(0, 0), (119, 139), (60, 3), (3, 60)].into_iter().enumerate() {
            let folder = folder();
            let path = |name: &str| folder.path().join(name);
            let orders = [ORDERS[turn % 2], ORDERS[turn / 2], ORDERS[turn % 2]];
            let (a, b) = (Matrix::new(m, k, 7), Matrix::new(k, n, 8));
            a.write(&path("a.npy"), dtype, orders[0]);
            b.write(&path("b.npy"), dtype, orders[1]);
            let mut c = a.product(&b);
            // In f32, 1e-3 is what the 24th bit of a number of size 2¹³ means; elements here are of size 7.
            c.numbers[row * n as usize + column] += if dtype == Dtype::Float32 { 2e-3 } else { 1e-11 };
            c.write(&path("c.npy"), dtype, orders[2]);
            let results = verify_only(&path("a.npy"), &path("b.npy"), &path("c.npy"), 3);
            for result in results {
                let Err(GemmError::Wrong { row: found, error, allowed, .. }) = result else {
                    panic!("{dtype:?}: the wrong element at {row}, {column} was not found: {result:?}");
                };
                assert_eq!(found, row as u64);
                assert!(error > allowed);
            }
        }
    }
}

#[test]
fn verification_names_nan_and_passes_large_and_biased_products() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    for dtype in [Dtype::Float32, Dtype::Float64] {
        for (turn, value) in [0.1, 1e15, -7.7e-20, 0.0].into_iter().enumerate() {
            let name = |what: &str| path(&format!("{what}{turn}{}.npy", dtype.name()));
            let constant = |rows, columns| Matrix {
                shape: Shape2 { rows, columns },
                numbers: vec![value; (rows * columns) as usize],
            };
            constant(90, 2000).write(&name("a"), dtype, Order::C);
            constant(2000, 70).write(&name("b"), dtype, Order::C);
            let job = GemmJob { verify: true, ..GemmJob::new(name("a"), name("b"), name("c")) };
            for result in run_threads(&job, 2, 4096) {
                result.unwrap_or_else(|error| panic!("{dtype:?} {value}: {error}"));
            }
            let mut wrong = Matrix::read(&name("c"));
            wrong.numbers[17 * 70 + 3] = f64::NAN;
            wrong.write(&name("nan"), dtype, Order::C);
            let results = verify_only(&name("a"), &name("b"), &name("nan"), 2);
            assert!(
                results.iter().all(|result| matches!(result, Err(GemmError::Wrong { row: 17, .. }))),
                "{results:?}"
            );
            let results = verify_only(&name("nan"), &name("c"), &name("c"), 2);
            assert!(results.iter().all(|result| result.is_err()));
        }
    }
}

impl Matrix {
    /// Every row and every column times a number of its own.
    fn scaled(&self, rows: impl Fn(u64) -> f64, columns: impl Fn(u64) -> f64) -> Self {
        let mut scaled = self.clone();
        for (row, column) in self.places(Order::C) {
            let at = (row * self.shape.columns + column) as usize;
            scaled.numbers[at] *= rows(row) * columns(column);
        }
        scaled
    }
}

/// Goal: numbers whose squares are out of range are judged as well as others: right products pass, wrong ones are found.
#[test]
fn verification_judges_numbers_of_every_size() {
    type Factors<'a> = &'a dyn Fn(u64) -> f64;
    let every: Factors = &|_| 1.0;
    let huge_and_tiny: Factors = &|at| if at % 2 == 0 { 1e200 } else { 1e-200 };
    let falling: Factors = &|at| 10f64.powi(150 - 20 * at as i32);
    let cases: [(&str, f64, Factors, f64, Factors); 8] = [
        ("large by small", 1e160, every, 1e-160, every),
        ("small by large", 1e-300, every, 1e300, every),
        ("small by one", 1e-170, every, 1.0, every),
        ("one by large", 1.0, every, 1e300, every),
        ("the product is subnormal", 1e-160, every, 1e-160, every),
        ("the product is zero", 1e-300, every, 1e-300, every),
        ("rows apart", 1.0, huge_and_tiny, 1e90, every),
        ("columns apart", 1e-90, falling, 1e3, huge_and_tiny),
    ];
    for (what, of_a, rows, of_b, columns) in cases {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        let a = Matrix::new(20, 50, 11).scaled(|row| of_a * rows(row), every);
        let b = Matrix::new(50, 30, 12).scaled(|_| of_b, columns);
        a.write(&path("a.npy"), Dtype::Float64, Order::C);
        b.write(&path("b.npy"), Dtype::Float64, Order::Fortran);
        let job = GemmJob { verify: true, ..GemmJob::new(path("a.npy"), path("b.npy"), path("c.npy")) };
        for result in run_threads(&job, 2, 4096) {
            result.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        // The largest element of a row, 0.01 % too large; where all are zero, one that is not.
        for row in [0, 13] {
            let mut wrong = Matrix::read(&path("c.npy"));
            let elements = &mut wrong.numbers[row * 30..][..30];
            let largest = elements.iter_mut().max_by(|x, y| x.abs().total_cmp(&y.abs())).unwrap();
            *largest = if largest.abs() < 1e-300 { 1e-300 } else { *largest * 1.0001 };
            let name = path(&format!("wrong{row}.npy"));
            wrong.write(&name, Dtype::Float64, Order::C);
            for result in verify_only(&path("a.npy"), &path("b.npy"), &name, 2) {
                assert!(
                    matches!(result, Err(GemmError::Wrong { row: found, .. }) if found == row as u64),
                    "{what}: {result:?}"
                );
            }
        }
    }
}

/// Goal: if the type cannot hold the product, infinities are not reported as wrong, nor as checked; if it
/// can, they are wrong, even beside others that are right.
#[test]
fn verification_says_that_a_product_overflows() {
    for (dtype, size) in [(Dtype::Float32, 1e30), (Dtype::Float64, 1e200)] {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        // Rows from 5 on and columns from 3 on are large.
        let large = |from: u64| move |at| if at >= from { size } else { 1e-3 };
        Matrix::new(9, 40, 21).scaled(large(5), |_| 1.0).write(&path("a.npy"), dtype, Order::C);
        Matrix::new(40, 7, 22).scaled(|_| 1.0, large(3)).write(&path("b.npy"), dtype, Order::C);
        let job = GemmJob { verify: true, ..GemmJob::new(path("a.npy"), path("b.npy"), path("c.npy")) };
        for result in run_threads(&job, 2, 4096) {
            let error = result.unwrap_err().to_string();
            let expected = format!(
                "cannot verify: the product overflows {} (row 5 of {} has infinite elements); scale A or B, or leave \
                 out --verify",
                dtype.name(),
                path("c.npy").display()
            );
            assert_eq!(error, expected);
        }
        let right = Matrix::read(&path("c.npy"));
        assert!(right.at(5, 3).is_infinite() && right.at(4, 3).is_finite() && right.at(5, 2).is_finite());
        for (row, column) in [(4, 3), (5, 2)] {
            let mut wrong = right.clone();
            wrong.numbers[row * 7 + column] = f64::INFINITY;
            let name = path(&format!("{row}.npy"));
            wrong.write(&name, dtype, Order::C);
            for result in verify_only(&path("a.npy"), &path("b.npy"), &name, 2) {
                assert!(
                    matches!(result, Err(GemmError::Wrong { row: found, .. }) if found == row as u64),
                    "{dtype:?}, {row}, {column}: {result:?}"
                );
            }
        }
    }
}

/// Runs the verification alone.
fn verify_only(a: &Path, b: &Path, c: &Path, ranks: usize) -> Vec<Result<()>> {
    let job = GemmJob { force: true, ..GemmJob::new(a, b, c) };
    let Ok(problem) = inspect(&job) else { return vec![Err(GemmError::NotFinite)] };
    let limits = Limits {
        ranks,
        ranks_on_node: ranks,
        page_bytes: 4096,
        cache_bytes: 64 << 20,
        memory_bytes: 1 << 20,
    };
    let plan = Plan::new(&problem, &limits).unwrap();
    let spec = ThreadsSpec {
        ranks,
        segment_bytes: plan.segment_bytes(),
        page_bytes: 4096,
        cache_bytes: 64 << 20,
        threads: 1,
    };
    threads::run(spec, |memory| {
        let files = [a, b, c].map(|path| NpyMatrix::open(path).unwrap());
        let files = [&files[0], &files[1], &files[2]];
        match problem.dtype {
            Dtype::Float32 => verify::verify::<f32>(memory, &plan, files, c, 1, &mut |_| ()),
            Dtype::Float64 => verify::verify::<f64>(memory, &plan, files, c, 1, &mut |_| ()),
        }
    })
}

#[test]
fn inputs_with_nan_cannot_be_verified_and_that_is_said() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let mut a = Matrix::new(9, 9, 1);
    a.numbers[40] = f64::NAN;
    a.write(&path("a.npy"), Dtype::Float64, Order::C);
    Matrix::new(9, 9, 1).write(&path("b.npy"), Dtype::Float64, Order::C);
    let job = GemmJob { verify: true, ..GemmJob::new(path("a.npy"), path("b.npy"), path("c.npy")) };
    for result in run_threads(&job, 2, 4096) {
        let error = result.unwrap_err().to_string();
        assert_eq!(error, "cannot verify: A or B contains NaN or infinite values; leave out --verify");
    }
}

/// Writes a file with a header made of `text`, in the given version of the format, and `data` zeros.
fn raw(path: &Path, version: u8, text: &str, data: usize) {
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    match version {
        1 => bytes.extend((text.len() as u16).to_le_bytes()),
        _ => bytes.extend((text.len() as u32).to_le_bytes()),
    }
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    fs::write(path, bytes).unwrap();
}

fn header_text(descr: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n")
}

#[test]
fn versions_1_2_and_3_are_read() {
    let folder = folder();
    for version in 1..=3 {
        let path = folder.path().join(format!("{version}.npy"));
        raw(&path, version, &header_text("'<f4'", "(3, 5)"), 60);
        let matrix = NpyMatrix::open(&path).unwrap();
        assert_eq!((matrix.shape, matrix.dtype), (Shape2 { rows: 3, columns: 5 }, Dtype::Float32));
        matrix.read(&Rectangle { rows: 0..3, columns: 0..5 }, &mut [0; 60]).unwrap();
    }
}

/// Each wrong input gives its own sentence, from `inspect`, before anything is started.
#[test]
fn wrong_inputs_are_named() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let show = |name: &str| at(name).display().to_string();
    Matrix::new(4, 3, 1).write(&at("good.npy"), Dtype::Float64, Order::C);
    Matrix::new(3, 4, 1).write(&at("right.npy"), Dtype::Float64, Order::C);
    Matrix::new(3, 4, 1).write(&at("single.npy"), Dtype::Float32, Order::C);
    fs::write(at("text.npy"), "1 2 3").unwrap();
    fs::write(at("empty.npy"), "").unwrap();
    fs::create_dir(at("folder.npy")).unwrap();
    let dtypes = [
        ("big", "'>f8'", "big-endian numbers", ">f8"),
        ("int", "'<i8'", "integers", "<i8"),
        ("record", "[('x', '<f8')]", "records", "[('x', '<f8')]"),
        ("object", "'|O'", "Python objects", "|O"),
        ("half", "'<f2'", "floating-point numbers of another size", "<f2"),
        ("complex", "'<c16'", "complex numbers", "<c16"),
    ];
    for (name, descr, ..) in dtypes {
        raw(&at(&format!("{name}.npy")), 1, &header_text(descr, "(4, 3)"), 400);
    }
    raw(&at("vector.npy"), 1, &header_text("'<f8'", "(4,)"), 32);
    raw(&at("cube.npy"), 1, &header_text("'<f8'", "(4, 3, 2)"), 192);
    raw(&at("short.npy"), 1, &header_text("'<f8'", "(4, 3)"), 95);
    raw(&at("huge.npy"), 1, &header_text("'<f8'", "(4294967296, 4294967296)"), 0);
    raw(&at("broad.npy"), 1, &header_text("'<f8'", "(0, 576460752303423488)"), 0);
    raw(&at("high.npy"), 1, &header_text("'<f8'", "(576460752303423488, 0)"), 0);
    raw(&at("wide.npy"), 1, &header_text("'<f8'", "(0, 4611686018427387904)"), 0);
    raw(&at("future.npy"), 9, &header_text("'<f8'", "(4, 3)"), 96);
    let short = 10 + header_text("'<f8'", "(4, 3)").len();

    let mut cases = vec![
        ("absent.npy", "right.npy", format!("{}: no such file", show("absent.npy"))),
        (
            "text.npy",
            "right.npy",
            format!("{} is not a usable .npy file: it does not begin with \"\\x93NUMPY\"", show("text.npy")),
        ),
        (
            "empty.npy",
            "right.npy",
            format!("{} is not a usable .npy file: it does not begin with \"\\x93NUMPY\"", show("empty.npy")),
        ),
        (
            "folder.npy",
            "right.npy",
            format!("{} is not a usable .npy file: it is not a regular file", show("folder.npy")),
        ),
        (
            "vector.npy",
            "right.npy",
            format!("{} has 1 dimension, a matrix has 2; use a.reshape", show("vector.npy")),
        ),
        (
            "cube.npy",
            "right.npy",
            format!("{} has 3 dimensions, a matrix has 2; use a.reshape", show("cube.npy")),
        ),
        (
            "short.npy",
            "right.npy",
            format!(
                "{} is truncated: its header promises {} bytes, the file has {}; write it again",
                show("short.npy"),
                short + 96,
                short + 95
            ),
        ),
        (
            "huge.npy",
            "right.npy",
            format!(
                "{} is not a usable .npy file: no file can hold its shape 4294967296×4294967296",
                show("huge.npy")
            ),
        ),
        (
            "broad.npy",
            "high.npy",
            "the product of 0×576460752303423488 and 576460752303423488×0 is too large for a file".into(),
        ),
        (
            "wide.npy",
            "right.npy",
            format!(
                "{} is not a usable .npy file: no file can hold its shape 0×4611686018427387904",
                show("wide.npy")
            ),
        ),
        (
            "future.npy",
            "right.npy",
            format!("{} is not a usable .npy file: format version 9.0 is unknown", show("future.npy")),
        ),
        (
            "good.npy",
            "good.npy",
            "the shapes do not multiply: A is 4×3, B is 4×3; A needs as many columns as B has rows".into(),
        ),
        (
            "good.npy",
            "single.npy",
            "A holds float64, B holds float32; convert one of them with numpy: a.astype('float32')".into(),
        ),
    ];
    let names: Vec<_> = dtypes.iter().map(|(name, ..)| format!("{name}.npy")).collect();
    for ((_, _, what, descr), name) in dtypes.iter().zip(&names) {
        let advice = match *descr {
            // A conversion would silently make it real.
            "<c16" => {
                "multiply their parts: a.real and a.imag, each saved with np.save, are matrices of real numbers"
            }
            "[('x', '<f8')]" => "take one of its fields with numpy: a['name'].astype('<f8')",
            _ => "convert it with numpy: a.astype('<f8')",
        };
        let sentence = format!(
            "{} holds {what} ({descr}), but only little-endian float64 ('<f8') and float32 ('<f4') can be \
             multiplied; {advice}",
            show(name)
        );
        cases.push((name, "right.npy", sentence));
    }
    for (a, b, expected) in cases {
        let error = inspect(&GemmJob::new(at(a), at(b), at("c.npy"))).unwrap_err().to_string();
        assert_eq!(error, expected);
        assert!(!error.contains('\n'));
    }
}

#[test]
fn wrong_outputs_are_named_and_nothing_is_overwritten() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    Matrix::new(4, 3, 1).write(&at("a.npy"), Dtype::Float64, Order::C);
    Matrix::new(3, 4, 1).write(&at("b.npy"), Dtype::Float64, Order::C);
    fs::write(at("c.npy"), "precious").unwrap();
    let job = GemmJob::new(at("a.npy"), at("b.npy"), at("c.npy"));
    let error = inspect(&job).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("{} exists; choose another name or overwrite it with --force", at("c.npy").display())
    );
    let elsewhere = GemmJob { output: at("no/c.npy"), ..job.clone() };
    let error = inspect(&elsewhere).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot write in the folder {}: ", at("no").display())), "{error}");
    assert!(inspect(&GemmJob { output: folder.path().into(), force: true, ..job.clone() }).is_err());

    // All ranks stop, one with the reason, and the file is as it was.
    let results = threads::run(
        ThreadsSpec { ranks: 3, segment_bytes: 1 << 20, page_bytes: 4096, cache_bytes: 1 << 30, threads: 1 },
        |memory| run(memory, &job, &|_, _, _| ()),
    );
    assert!(matches!(results[0], Err(GemmError::OutputExists(_))));
    assert!(results[1..].iter().all(|result| matches!(result, Err(GemmError::Elsewhere(0)))));
    assert_eq!(fs::read(at("c.npy")).unwrap(), b"precious");

    let force = GemmJob { force: true, ..job };
    run_threads(&force, 2, 4096).into_iter().for_each(|result| drop(result.unwrap()));
    assert_eq!(Matrix::read(&at("c.npy")).shape, Shape2 { rows: 4, columns: 4 });
}

/// An input that shrinks after it was checked ends the job with the reason, and without an output.
#[test]
fn an_input_cut_off_in_the_middle_leaves_no_output() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    Matrix::new(300, 300, 1).write(&at("a.npy"), Dtype::Float64, Order::C);
    Matrix::new(300, 300, 1).write(&at("b.npy"), Dtype::Float64, Order::C);
    let job = GemmJob { memory_bytes: 100_000, ..GemmJob::new(at("a.npy"), at("b.npy"), at("c.npy")) };
    let problem = inspect(&job).unwrap();
    let spec =
        ThreadsSpec { ranks: 2, segment_bytes: 4 << 20, page_bytes: 4096, cache_bytes: 64 << 20, threads: 1 };
    assert_eq!(problem.m, 300);
    let results = threads::run(spec, |memory| {
        run(memory, &job, &|phase, done, _| {
            if memory.rank() == 0 && phase == Phase::Load && done == 0 {
                fs::OpenOptions::new().write(true).open(at("b.npy")).unwrap().set_len(20_000).unwrap();
            }
        })
    });
    assert!(results.iter().all(|result| result.is_err()));
    let named =
        results.iter().any(|result| matches!(result, Err(GemmError::Truncated { found: 20_000, .. })));
    assert!(named, "{results:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "an output was left behind");
}

#[test]
fn random_matrices_are_the_same_each_time_and_between_minus_one_and_one() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let shape = Shape2 { rows: 300, columns: 700 };
    for (dtype, order) in [(Dtype::Float32, Order::C), (Dtype::Float64, Order::Fortran)] {
        demo::write_random(&at("1.npy"), true, dtype, order, shape, 5).unwrap();
        demo::write_random(&at("2.npy"), true, dtype, order, shape, 5).unwrap();
        demo::write_random(&at("3.npy"), true, dtype, order, shape, 6).unwrap();
        assert_eq!(fs::read(at("1.npy")).unwrap(), fs::read(at("2.npy")).unwrap());
        assert_ne!(fs::read(at("1.npy")).unwrap(), fs::read(at("3.npy")).unwrap());
        let matrix = Matrix::read(&at("1.npy"));
        assert_eq!(matrix.shape, shape);
        assert!(matrix.numbers.iter().all(|number| (-1.0..1.0).contains(number)));
        let mean = matrix.numbers.iter().sum::<f64>() / matrix.numbers.len() as f64;
        assert!(mean.abs() < 0.02, "{mean}");
    }
}

/// A product that is thrown away is checked all the same, and never had a name.
#[test]
fn a_discarded_product_is_verified_and_leaves_nothing() {
    let folder = folder();
    let shape = Shape2 { rows: 40, columns: 40 };
    let random = |seed| demo::scratch_random(folder.path(), Dtype::Float64, Order::C, shape, seed).unwrap();
    let held = [random(1), random(2)];
    let [a, b] = [0, 1].map(|at| output::path_of(&held[at]));
    let job = GemmJob { discard: true, verify: true, ..GemmJob::new(a, b, folder.path()) };
    for result in run_threads(&job, 3, 4096) {
        assert!(result.unwrap().seconds_verifying.is_some());
    }
    let elsewhere = GemmJob { output: folder.path().join("no"), ..job };
    assert!(matches!(run_threads(&elsewhere, 1, 4096)[0], Err(GemmError::OutputFolder { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_summary_reads_well() {
    let (a, b) = (Matrix::new(100, 80, 5), Matrix::new(80, 60, 6));
    let summary = check(&a, &b, Dtype::Float64, [Order::C; 3], 2, MEMORY_BYTES);
    let text = summary.to_string();
    for part in [
        "C (100×60) = A (100×80) · B (80×60), float64",
        "GFLOP/s",
        "ranks      2 as ",
        "the product is right",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
