//! Errors of a product of two files: one line each, with the remedy.

use super::npy::Shape2;
use std::io;
use std::path::{Path, PathBuf};
use vgas::say::Quoted;

/// Result of this module.
pub type Result<T, E = GemmError> = std::result::Result<T, E>;

/// Why a product was not made, or is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GemmError {
    /// An input is not there.
    #[error("{}: no such file", .0.display())]
    Missing(PathBuf),
    /// The system refused something on a file.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// "open", "read", "write".
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// An input does not follow the .npy format.
    #[error("{} is not a usable .npy file: {why}", .path.display())]
    NotNpy {
        /// The file.
        path: PathBuf,
        /// The first thing that is wrong with it.
        why: String,
    },
    /// An input is shorter than its header says.
    #[error(
        "{} is truncated: its header promises {expected} bytes, the file has {found}; write it again",
        .path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length by the header, header included, in bytes.
        expected: u64,
        /// Length of the file, in bytes.
        found: u64,
    },
    /// An input holds numbers of another kind.
    #[error(
        "{} holds {what} ({}), but only little-endian float64 ('<f8') and float32 ('<f4') can be \
         multiplied; {advice}",
        .path.display(), Quoted(.descr)
    )]
    Dtype {
        /// The file.
        path: PathBuf,
        /// "big-endian numbers", "integers", …
        what: &'static str,
        /// The remedy.
        advice: &'static str,
        /// The header's own words.
        descr: String,
    },
    /// An input is no matrix.
    #[error("{} has {found} dimension{}, a matrix has 2; use a.reshape", .path.display(), if *.found == 1 { "" } else { "s" })]
    NotTwoDimensional {
        /// The file.
        path: PathBuf,
        /// Its number of dimensions.
        found: usize,
    },
    /// The inputs hold different types.
    #[error("A holds {a}, B holds {b}; convert one of them with numpy: a.astype('{b}')")]
    DtypeMismatch {
        /// Type of A, as NumPy names it.
        a: &'static str,
        /// Type of B.
        b: &'static str,
    },
    /// The inputs do not fit together.
    #[error("the shapes do not multiply: A is {a}, B is {b}; A needs as many columns as B has rows")]
    ShapesDoNotMultiply {
        /// Shape of A.
        a: Shape2,
        /// Shape of B.
        b: Shape2,
    },
    /// The product is larger than a file can be.
    #[error("the product of {a} and {b} is too large for a file")]
    TooLarge {
        /// Shape of A.
        a: Shape2,
        /// Shape of B.
        b: Shape2,
    },
    /// The output is there already.
    #[error("{} exists; choose another name or overwrite it with --force", .0.display())]
    OutputExists(PathBuf),
    /// The output is one of the inputs, perhaps by another name.
    #[error("{} is the input {}, which would be lost; name another output", .output.display(), .input.display())]
    OutputIsInput {
        /// The output.
        output: PathBuf,
        /// The input, as it was named.
        input: PathBuf,
    },
    /// The output is a device, a pipe, a link or a folder: a file in its place would destroy it.
    #[error("{} exists and is not a regular file; name another output", .0.display())]
    OutputNotAFile(PathBuf),
    /// The output's folder cannot take it.
    #[error("cannot write in the folder {}: {source}", .path.display())]
    OutputFolder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The output's disk cannot take it.
    #[error("no space for the {bytes} bytes of {}; free some, or choose another disk", .path.display())]
    DiskFull {
        /// The output.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The cache cannot hold the panels that are on their way.
    #[error(
        "a cache of {cache_bytes} bytes is too small for the tiles: {ranks_on_node} ranks on a node with pages of \
         {page_bytes} bytes need {minimum_bytes}; give --cache {minimum_bytes} or a smaller --page"
    )]
    CacheTooSmall {
        /// Bytes given, per node.
        cache_bytes: u64,
        /// Bytes needed, per node.
        minimum_bytes: u64,
        /// Page size.
        page_bytes: u64,
        /// Ranks that share the cache.
        ranks_on_node: usize,
    },
    /// A rank's private memory cannot hold the smallest tiles.
    #[error(
        "{memory_bytes} bytes of private memory a rank are too few for the tiles: at least {minimum_bytes}"
    )]
    MemoryTooSmall {
        /// Bytes given, per rank.
        memory_bytes: u64,
        /// Bytes needed.
        minimum_bytes: u64,
    },
    /// The global memory failed.
    #[error("{0}")]
    Memory(#[from] Box<dyn std::error::Error + Send + Sync>),
    /// This rank stopped because another one failed. That one reports the reason: a program need not print this.
    #[error("stopped because rank {0} failed")]
    Elsewhere(usize),
    /// `--verify` found an element that is not the product's.
    #[error(
        "verification failed: row {row} of {} is not the product of A and B (error {error:.3e}, allowed {allowed:.3e})",
        .path.display()
    )]
    Wrong {
        /// The output.
        path: PathBuf,
        /// First row found wrong by some rank, counted from 0.
        row: u64,
        /// Size of the deviation.
        error: f64,
        /// Largest deviation that rounding may cause.
        allowed: f64,
    },
    /// `--verify` cannot judge products of infinities and NaN.
    #[error("cannot verify: A or B contains NaN or infinite values; leave out --verify")]
    NotFinite,
    /// `--verify` cannot judge a product that its type cannot hold.
    #[error(
        "cannot verify: the product overflows {dtype} (row {row} of {} has infinite elements); scale A or B, or leave \
         out --verify",
        .path.display()
    )]
    Overflow {
        /// The type, as NumPy names it.
        dtype: &'static str,
        /// The output.
        path: PathBuf,
        /// The first such row, counted from 0.
        row: u64,
    },
}

impl GemmError {
    /// An [`GemmError::Io`], or the more exact error that the reason stands for.
    pub(super) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path.to_owned()),
            _ => Self::Io { what, path: path.to_owned(), source },
        }
    }
}
