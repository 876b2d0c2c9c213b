//! Matrices in .npy files, read piece by piece: a rectangle at a time, by positioned reads, never the whole.

use super::error::{GemmError, Result};
use super::header;
pub use super::header::{Dtype, Order, Shape2};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes read ahead of scattered pieces by one advice: what Linux takes at most in one go (2 MiB), a few times over.
const ADVICE_BYTES: u64 = 8 << 20;

/// A matrix in a file, open for reading.
#[derive(Debug)]
pub struct NpyMatrix {
    file: File,
    path: PathBuf,
    /// Type of its numbers.
    pub dtype: Dtype,
    /// The order of its elements.
    pub order: Order,
    /// Its shape.
    pub shape: Shape2,
    /// Offset of the numbers, in bytes.
    data: u64,
}

/// A rectangle of a matrix. Rows and columns are half-open ranges of indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// Its rows.
    pub rows: Range<u64>,
    /// Its columns.
    pub columns: Range<u64>,
}

impl Rectangle {
    /// The rectangle with these ranges, the slower one in this order first.
    pub fn from_slow_fast(order: Order, slow: Range<u64>, fast: Range<u64>) -> Self {
        match order {
            Order::C => Self { rows: slow, columns: fast },
            Order::Fortran => Self { rows: fast, columns: slow },
        }
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        (self.rows.end - self.rows.start) * (self.columns.end - self.columns.start)
    }

    /// Returns true if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its ranges, the slower one in this order first.
    pub fn slow_fast(&self, order: Order) -> (Range<u64>, Range<u64>) {
        match order {
            Order::C => (self.rows.clone(), self.columns.clone()),
            Order::Fortran => (self.columns.clone(), self.rows.clone()),
        }
    }
}

/// Layout of a rectangle's pieces in a file's data: `pieces` runs of `piece` bytes, `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// First byte.
    pub start: u64,
    /// Bytes of each.
    pub piece: usize,
    /// Number of pieces.
    pub pieces: usize,
    /// From one to the next.
    pub stride: u64,
}

impl Pieces {
    /// The pieces of a rectangle; one piece where its elements are all neighbours.
    pub(super) fn of(rectangle: &Rectangle, shape: Shape2, order: Order, dtype: Dtype, data: u64) -> Self {
        let (slow, fast) = rectangle.slow_fast(order);
        let width = if order == Order::C { shape.columns } else { shape.rows };
        let bytes = dtype.bytes();
        let start = data + (slow.start * width + fast.start) * bytes;
        let (piece, pieces) = ((fast.end - fast.start) * bytes, slow.end - slow.start);
        let (piece, pieces) = match fast.end - fast.start == width {
            true => (piece * pieces, u64::from(piece * pieces > 0)),
            false => (piece, pieces),
        };
        Self { start, piece: piece as usize, pieces: pieces as usize, stride: width * bytes }
    }
}

impl NpyMatrix {
    /// Opens a file and checks that it is a matrix of numbers that can be multiplied, whole.
    ///
    /// # Errors
    /// One for each way in which it is not: missing, not .npy, another type, not two-dimensional, truncated.
    pub fn open(path: &Path) -> Result<Self> {
        // Opening a pipe would wait for its writer, before it can be told from a file.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = File::options()
            .read(true)
            .custom_flags(nonblocking)
            .open(path)
            .map_err(|error| GemmError::io("open", path, error))?;
        let metadata = file.metadata().map_err(|error| GemmError::io("open", path, error))?;
        let not_npy = |why: String| GemmError::NotNpy { path: path.to_owned(), why };
        if !metadata.is_file() {
            return Err(not_npy("it is not a regular file".into()));
        }
        let mut bytes = vec![0; (metadata.len() as usize).min(12 + header::HEADER_BYTES_MAX)];
        file.read_exact_at(&mut bytes, 0).map_err(|error| GemmError::io("read", path, error))?;
        let text = header::text_range(&bytes).map_err(not_npy)?;
        let data = text.end as u64;
        let Some(text) = bytes.get(text) else { return Err(not_npy("its header is cut off".into())) };
        let header = header::parse(text).map_err(not_npy)?;
        let Some(dtype) = Dtype::of_descr(&header.descr) else {
            let (what, advice) = kind(&header.descr);
            return Err(GemmError::Dtype { path: path.to_owned(), what, advice, descr: header.descr });
        };
        let &[rows, columns] = header.shape.as_slice() else {
            return Err(GemmError::NotTwoDimensional { path: path.to_owned(), found: header.shape.len() });
        };
        let bytes_of = |rows: u64, columns: u64| {
            let bytes = rows.checked_mul(columns)?.checked_mul(dtype.bytes())?.checked_add(data)?;
            i64::try_from(bytes).is_ok().then_some(bytes)
        };
        // As NumPy has it, also a matrix of no elements is no longer than one that has some: its rows are counted in bytes.
        let expected = bytes_of(rows.max(1), columns.max(1))
            .and_then(|_| bytes_of(rows, columns))
            .ok_or_else(|| not_npy(format!("no file can hold its shape {rows}×{columns}")))?;
        if metadata.len() < expected {
            return Err(GemmError::Truncated { path: path.to_owned(), expected, found: metadata.len() });
        }
        let shape = Shape2 { rows, columns };
        Ok(Self { file, path: path.to_owned(), dtype, order: header.order, shape, data })
    }

    /// Reads a rectangle into `into`, in the file's order and without gaps.
    ///
    /// # Errors
    /// If the file cannot be read, or has become shorter since it was opened.
    ///
    /// # Panics
    /// If the rectangle lies outside of the matrix or `into` has another length.
    pub fn read(&self, rectangle: &Rectangle, into: &mut [u8]) -> Result<()> {
        let pieces = self.pieces(rectangle);
        assert_eq!(into.len(), pieces.piece * pieces.pieces, "the length of the rectangle");
        if into.is_empty() {
            return Ok(());
        }
        for (at, piece) in into.chunks_exact_mut(pieces.piece).enumerate() {
            self.read_at(piece, pieces.start + at as u64 * pieces.stride)?;
        }
        Ok(())
    }

    /// Returns true if `path` names this file; it need not exist.
    pub fn is(&self, path: &Path) -> bool {
        match (self.file.metadata(), path.metadata()) {
            (Ok(this), Ok(that)) => (this.dev(), this.ino()) == (that.dev(), that.ino()),
            _ => false,
        }
    }

    /// Returns the name by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the layout of a rectangle's pieces in the file.
    fn pieces(&self, rectangle: &Rectangle) -> Pieces {
        assert!(rectangle.rows.end <= self.shape.rows && rectangle.columns.end <= self.shape.columns);
        Pieces::of(rectangle, self.shape, self.order, self.dtype, self.data)
    }

    /// Tells the system that a rectangle will be read soon. Pieces of a few KiB, each far from the last, would
    /// otherwise cost a device's latency each; what lies between them is asked for as well, because the
    /// neighbouring rectangles come next.
    pub fn advise(&self, rectangle: &Rectangle) {
        let pieces = self.pieces(rectangle);
        if pieces.pieces < 2 {
            return; // one run: the system's own read-ahead sees it
        }
        let end = pieces.start + pieces.pieces as u64 * pieces.stride;
        let mut at = pieces.start;
        while at < end {
            let bytes = ADVICE_BYTES.min(end - at);
            let advice = rustix::fs::Advice::WillNeed;
            if rustix::fs::fadvise(&self.file, at, std::num::NonZeroU64::new(bytes), advice).is_err() {
                return; // only a hint
            }
            at += bytes;
        }
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        match self.file.read_exact_at(into, offset) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let found = self.file.metadata().map(|metadata| metadata.len()).unwrap_or(offset);
                let expected = self.data + self.shape.rows * self.shape.columns * self.dtype.bytes();
                Err(GemmError::Truncated { path: self.path.clone(), expected, found })
            }
            Err(source) => Err(GemmError::Io { what: "read", path: self.path.clone(), source }),
        }
    }
}

/// Names what a header's `descr` stands for, and says how to make something of it that can be multiplied.
fn kind(descr: &str) -> (&'static str, &'static str) {
    const CONVERT: &str = "convert it with numpy: a.astype('<f8')";
    let is_big = descr.starts_with('>');
    let word = descr.strip_prefix(['<', '>', '=', '|']).unwrap_or(descr);
    let what = match word.chars().next() {
        Some('[') => {
            return ("records", "take one of its fields with numpy: a['name'].astype('<f8')");
        }
        // Converting them would lose their imaginary parts.
        Some('c' | 'F' | 'D' | 'G') => {
            return (
                "complex numbers",
                "multiply their parts: a.real and a.imag, each saved with np.save, are matrices of real numbers",
            );
        }
        Some('S' | 'U' | 'V' | 'a' | 's') if !word.starts_with("single") => {
            return ("text or raw bytes", "save numbers instead");
        }
        Some('O' | 'o') => "Python objects",
        Some('i' | 'u' | 'l' | 'q' | 'h') => "integers",
        Some('b' | '?') => "booleans",
        Some('f' | 'd' | 's') if is_big => "big-endian numbers",
        Some('f' | 'e' | 'g') => "floating-point numbers of another size",
        Some('M' | 'm' | 't') => "times",
        _ => "an unknown type",
    };
    (what, CONVERT)
}
