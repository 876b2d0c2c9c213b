//! Entry point for a fuzz target: arbitrary bytes as a .npy file. Built only for tests and fuzzing
//! (`fuzz/README.md`); not a public interface.

use super::header;
use super::npy::{NpyMatrix, Rectangle};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Opens the bytes as users' files are opened. A matrix can be read, and written with the header of this
/// program is the same matrix.
pub fn npy(bytes: &[u8]) {
    let Some((found, numbers)) = read(bytes) else { return };
    let shape = found.shape;
    let mut again = header::encode(found.dtype, found.order, shape);
    assert_eq!(again.len() % 64, 0);
    again.extend_from_slice(&numbers);
    let (written, copied) = read(&again).expect("what was written");
    assert_eq!((written.dtype, written.order, written.shape), (found.dtype, found.order, shape));
    assert_eq!(copied, numbers);
}

/// The matrix of a file with these bytes, and all its numbers.
fn read(bytes: &[u8]) -> Option<(NpyMatrix, Vec<u8>)> {
    let file = rustix::fs::memfd_create("fuzzing", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = File::from(file);
    file.write_all(bytes).expect("room for a file");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let matrix = NpyMatrix::open(&path).ok()?;
    let whole = Rectangle { rows: 0..matrix.shape.rows, columns: 0..matrix.shape.columns };
    let length = usize::try_from(whole.len() * matrix.dtype.bytes()).expect("it is in the file");
    assert!(length <= bytes.len());
    let mut numbers = vec![0; length];
    matrix.read(&whole, &mut numbers).expect("what was there a moment ago");
    matrix.advise(&whole);
    Some((matrix, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::npy::{Dtype, Order, Shape2};
    use vgas_testing::replay;

    #[test]
    fn any_file_is_a_matrix_or_refused() {
        let matrix = |dtype: Dtype, order, rows, columns| {
            let mut bytes = header::encode(dtype, order, Shape2 { rows, columns });
            bytes.extend((0..rows * columns * dtype.bytes()).map(|at| at as u8));
            bytes
        };
        let of_text = |version: u8, text: &str| {
            let length = (text.len() as u32).to_le_bytes();
            let length = if version == 1 { &length[..2] } else { &length };
            [&b"\x93NUMPY"[..], &[version, 0], length, text.as_bytes()].concat()
        };
        let text = "{'descr': \"<f8\", 'fortran_order': True, 'shape': (0, 3L), }\n";
        let empty = "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 18446744073709551615), }\n";
        let records = "{'shape': (), 'descr': [('x', '<f8', (2,))], 'fortran_order': False}\n";
        replay(
            "npy",
            npy,
            &[
                ("rows", matrix(Dtype::Float64, Order::C, 3, 4)),
                ("columns", matrix(Dtype::Float32, Order::Fortran, 5, 2)),
                ("version-2", of_text(2, text)),
                ("version-1-records", of_text(1, records)),
                ("empty-and-long", of_text(1, empty)),
            ],
        );
    }
}
