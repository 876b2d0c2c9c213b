//! The header of a .npy file, as text to fields and back. Written by hand because headers are outside input: `npyz`
//! overflows on shapes whose product does not fit and allocates what the file tells it to (it is the oracle of the
//! tests instead).

use serde::{Deserialize, Serialize};
use std::fmt;
use vgas::say::Quoted;

/// Longest header that is read, in bytes: NumPy's own limit for headers it trusts (`max_header_size`) is 10,000.
pub(super) const HEADER_BYTES_MAX: usize = 1 << 16;

/// Type of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dtype {
    /// `<f4`.
    Float32,
    /// `<f8`.
    Float64,
}

impl Dtype {
    /// Bytes of one number.
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::Float32 => 4,
            Dtype::Float64 => 8,
        }
    }

    /// As the header spells it.
    pub fn descr(self) -> &'static str {
        match self {
            Dtype::Float32 => "<f4",
            Dtype::Float64 => "<f8",
        }
    }

    /// The type that NumPy makes of a header's `descr`, if it is one of these: by its letter or its name, with no byte order, or
    /// the one of this machine.
    pub(super) fn of_descr(descr: &str) -> Option<Self> {
        let (has_order, word) = match descr.strip_prefix(['<', '=', '|']) {
            Some(word) => (true, word),
            None => (false, descr),
        };
        match word {
            "f4" | "f" => Some(Self::Float32),
            "f8" | "d" => Some(Self::Float64),
            "float32" | "single" if !has_order => Some(Self::Float32),
            "float64" | "double" | "float" if !has_order => Some(Self::Float64),
            _ => None,
        }
    }

    /// As people say it.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Float32 => "float32",
            Dtype::Float64 => "float64",
        }
    }
}

/// Order of the elements in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// The elements of a row (row-major).
    C,
    /// The elements of a column (column-major).
    Fortran,
}

/// Rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape2 {
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
}

impl fmt::Display for Shape2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.rows, self.columns)
    }
}

/// Content of a header, before any check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The type: what stands in the quotes, or a structured type's whole list.
    pub descr: String,
    /// The order of the elements.
    pub order: Order,
    /// The length of each dimension.
    pub shape: Vec<u64>,
}

/// Length of the fixed front and of the text that follows it, from the first 12 bytes of a file.
pub(super) fn text_range(front: &[u8]) -> Result<std::ops::Range<usize>, String> {
    if front.len() < 10 || &front[..6] != b"\x93NUMPY" {
        return Err(what_it_is(front).into());
    }
    let (start, bytes) = match (front[6], front[7]) {
        (1, _) => (10, usize::from(u16::from_le_bytes([front[8], front[9]]))),
        (2 | 3, _) if front.len() >= 12 => {
            (12, u32::from_le_bytes([front[8], front[9], front[10], front[11]]) as usize)
        }
        (2 | 3, _) => return Err("its header is cut off".into()),
        (major, minor) => return Err(format!("format version {major}.{minor} is unknown")),
    };
    match bytes {
        0..=HEADER_BYTES_MAX => Ok(start..start + bytes),
        _ => Err(format!("a header of {bytes} bytes is beyond reason")),
    }
}

/// Names what a file is that is no .npy file, and what to do.
fn what_it_is(front: &[u8]) -> &'static str {
    const KNOWN: [(&[u8], &str); 5] = [
        (
            b"PK\x03\x04",
            "it is an archive (.npz); take an array out of it with numpy: np.save('a.npy', np.load(file)['name'])",
        ),
        (b"PK\x05\x06", "it is an archive (.npz) without arrays"),
        (b"\x1f\x8b", "it is compressed (gzip); unpack it with gunzip"),
        (
            b"version https://git-lfs",
            "it is a pointer of Git LFS to a file that is not here; fetch that with `git lfs pull`",
        ),
        (
            b"\x89HDF\r\n",
            "it is an HDF5 file; take a data set out of it with h5py: np.save('a.npy', h5py.File(file)['name'])",
        ),
    ];
    let found = KNOWN.iter().find(|(start, _)| front.starts_with(start));
    found.map_or("it does not begin with \"\\x93NUMPY\"", |(_, what)| what)
}

/// Reads the text: a Python dictionary with the keys `descr`, `fortran_order` and `shape`.
pub(super) fn parse(text: &[u8]) -> Result<Header, String> {
    let text = std::str::from_utf8(text).map_err(|_| "its header is not UTF-8".to_owned())?;
    let mut rest = Cursor(text);
    let (mut descr, mut order, mut shape) = (None, None, None);
    rest.expect('{')?;
    while !rest.take('}') {
        let key = rest.quoted()?;
        rest.expect(':')?;
        match key {
            "descr" if rest.peek() == Some('[') => descr = Some(rest.balanced()?.to_owned()),
            "descr" => descr = Some(rest.quoted()?.to_owned()),
            "fortran_order" if rest.word("True") => order = Some(Order::Fortran),
            "fortran_order" if rest.word("False") => order = Some(Order::C),
            "fortran_order" => return Err("its fortran_order is neither True nor False".into()),
            "shape" => shape = Some(rest.tuple()?),
            other => return Err(format!("its header has an unknown key '{}'", Quoted(other))),
        }
        if !rest.take(',') {
            rest.expect('}')?;
            break;
        }
    }
    match (descr, order, shape) {
        (Some(descr), Some(order), Some(shape)) => Ok(Header { descr, order, shape }),
        _ => Err("its header lacks descr, fortran_order or shape".into()),
    }
}

/// The whole header of a matrix, as NumPy writes it: version 1.0, padded so that the data is aligned to 64 bytes.
pub(super) fn encode(dtype: Dtype, order: Order, shape: Shape2) -> Vec<u8> {
    let fortran = if order == Order::Fortran { "True" } else { "False" };
    let text = format!(
        "{{'descr': '{}', 'fortran_order': {fortran}, 'shape': ({}, {}), }}",
        dtype.descr(),
        shape.rows,
        shape.columns
    );
    let total = (10 + text.len() + 1).next_multiple_of(64);
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend_from_slice(&((total - 10) as u16).to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    header.resize(total - 1, b' ');
    header.push(b'\n');
    header
}

/// The text that is left to read; white space does not count.
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    fn peek(&mut self) -> Option<char> {
        self.0 = self.0.trim_start();
        self.0.chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.0 = &self.0[wanted.len_utf8()..];
        }
        found
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        match self.take(wanted) {
            true => Ok(()),
            false => Err(format!("its header lacks a '{wanted}'")),
        }
    }

    fn word(&mut self, wanted: &str) -> bool {
        self.peek();
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn quoted(&mut self) -> Result<&'a str, String> {
        self.peek();
        // Python 2 marked text that is not bytes.
        if let Some(rest) = self.0.strip_prefix(['u', 'U']).filter(|rest| rest.starts_with(['\'', '"'])) {
            self.0 = rest;
        }
        let quote =
            self.peek().filter(|c| matches!(c, '\'' | '"')).ok_or("its header lacks a quoted word")?;
        let (word, rest) = self.0[1..].split_once(quote).ok_or("its header has an open quote")?;
        self.0 = rest;
        Ok(word)
    }

    /// A list with everything in it, as text.
    fn balanced(&mut self) -> Result<&'a str, String> {
        let mut depth = 0usize;
        for (at, c) in self.0.char_indices() {
            match c {
                '[' | '(' => depth += 1,
                ']' | ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                let (list, rest) = self.0.split_at(at + c.len_utf8());
                self.0 = rest;
                return Ok(list);
            }
        }
        Err("its header has an open bracket".into())
    }

    fn tuple(&mut self) -> Result<Vec<u64>, String> {
        let mut numbers = Vec::new();
        self.expect('(')?;
        while !self.take(')') {
            self.peek();
            let digits = self.0.len() - self.0.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = self.0.split_at(digits);
            numbers.push(number.parse().map_err(|_| "its shape is not a tuple of lengths".to_owned())?);
            self.0 = rest.strip_prefix('L').unwrap_or(rest); // Python 2 wrote 3L
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_numpy_writes_is_read() {
        let cases = [
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }  \n", "<f8", Order::C, vec![3, 4]),
            ("{'shape': (5,), 'fortran_order': True, 'descr': \"<f4\"}", "<f4", Order::Fortran, vec![5]),
            ("{'descr': '>i2', 'fortran_order': False, 'shape': (), }", ">i2", Order::C, vec![]),
            ("{u'descr': u'<f8', u'fortran_order': False, u'shape': (3, 4)}", "<f8", Order::C, vec![3, 4]),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 0L), }", "<f4", Order::C, vec![3, 0]),
            (
                "{'descr': [('x', '<f8'), ('y', '<i4', (2,))], 'fortran_order': False, 'shape': (1, 2), }",
                "[('x', '<f8'), ('y', '<i4', (2,))]",
                Order::C,
                vec![1, 2],
            ),
        ];
        for (text, descr, order, shape) in cases {
            assert_eq!(parse(text.as_bytes()), Ok(Header { descr: descr.into(), order, shape }), "{text}");
        }
    }

    /// Goal: the types that NumPy takes for numbers of 4 and 8 bytes are taken, and no others. (As NumPy 2.4 has them.)
    #[test]
    fn types_are_those_of_numpy() {
        let (single, double) = (Some(Dtype::Float32), Some(Dtype::Float64));
        for (descr, expected) in [
            ("<f8", double),
            ("=f8", double),
            ("|f8", double),
            ("f8", double),
            ("d", double),
            ("<d", double),
            ("float64", double),
            ("double", double),
            ("float", double),
            ("<f4", single),
            ("=f4", single),
            ("f", single),
            ("float32", single),
            (">f8", None),
            (">d", None),
            ("<<f8", None),
            ("<float64", None),
            ("", None),
            ("<", None),
            ("f2", None),
            ("f16", None),
            ("c8", None),
            ("c16", None),
            ("complex128", None),
            ("i8", None),
        ] {
            assert_eq!(Dtype::of_descr(descr), expected, "{descr}");
        }
    }

    #[test]
    fn broken_headers_are_errors() {
        for text in [
            "",
            "{",
            "{'descr'",
            "{'descr': '<f8",
            "{'descr': [('x'",
            "{'descr': '<f8', 'fortran_order': 1, 'shape': (3, 4), }",
            "{'descr': '<f8', 'fortran_order': False, }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3, x), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 4), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 4), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), 'more': 1}",
            "{'descr' '<f8' é",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn fronts_of_all_versions() {
        assert_eq!(text_range(b"\x93NUMPY\x01\x00\x76\x00{'"), Ok(10..128));
        assert_eq!(text_range(b"\x93NUMPY\x02\x00\x74\x00\x00\x00"), Ok(12..128));
        assert_eq!(text_range(b"\x93NUMPY\x03\x00\x74\x00\x00\x00"), Ok(12..128));
        assert!(text_range(b"\x93NUMPY\x04\x00\x74\x00\x00\x00").unwrap_err().contains("4.0"));
        assert!(text_range(b"\x93NUMPY\x03\x00\xff\xff\xff\xff").unwrap_err().contains("beyond reason"));
        assert!(text_range(b"\x93NUMPY\x02\x00\x74\x00").is_err());
        for (start, said) in [
            (&b"PK\x03\x04"[..], ".npz"),
            (b"\x1f\x8b\x08", "gunzip"),
            (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
            (b"something", "does not begin with"),
            (b"", "does not begin with"),
        ] {
            assert!(text_range(start).unwrap_err().contains(said), "{said}");
        }
    }

    #[test]
    fn npyz_reads_what_is_written() {
        for (dtype, order) in [(Dtype::Float32, Order::C), (Dtype::Float64, Order::Fortran)] {
            let shape = Shape2 { rows: 1234567, columns: 0 };
            let bytes = encode(dtype, order, shape);
            assert_eq!(bytes.len() % 64, 0);
            let header = npyz::NpyHeader::from_reader(&bytes[..]).unwrap();
            assert_eq!(header.shape(), [1234567, 0]);
            assert_eq!(header.dtype().descr(), format!("'{}'", dtype.descr()));
            assert_eq!(header.order() == npyz::Order::Fortran, order == Order::Fortran);
            assert_eq!(parse(&bytes[text_range(&bytes).unwrap()]).unwrap().shape, [1234567, 0]);
        }
    }
}
