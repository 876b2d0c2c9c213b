//! A number that tells programs apart: types, and numbers of tasks, mean the same only in the same program.

use super::entry::table;
use rustc_hash::FxHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// A number of this process's program: of its table of tasks, and of all loaded bytes of its file: code,
/// constants, and the build-id, if the linker has written one. Changes by a debugger or a packager beside
/// them do not make another program. Computed once: some milliseconds.
pub(crate) fn program() -> u64 {
    static PROGRAM: OnceLock<u64> = OnceLock::new();
    *PROGRAM.get_or_init(|| {
        let mut hasher = FxHasher::default();
        table().hash(&mut hasher);
        // One that cannot be read is another program than one that can.
        match File::open("/proc/self/exe").and_then(|file| loaded(&file)) {
            Ok(digest) => digest.hash(&mut hasher),
            Err(why) => why.raw_os_error().hash(&mut hasher),
        }
        hasher.finish()
    })
}

/// Bytes read of a file at once.
const PIECE_BYTES: usize = 1 << 20;

/// The kind of a part of a file that is loaded.
const PT_LOAD: u32 = 1;

/// A number of all that is loaded of an executable file (elf(5): 64 bits, in the order of this machine).
fn loaded(file: &File) -> io::Result<u64> {
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    let (headers, size, count) = (u64_at(&head, 32), u16_at(&head, 54), u16_at(&head, 56));
    let mut header = vec![0; usize::from(size).max(56)];
    let mut piece = vec![0; PIECE_BYTES];
    let mut hasher = FxHasher::default();
    for number in 0..u64::from(count) {
        file.read_exact_at(&mut header, headers + number * u64::from(size))?;
        let (mut at, mut left) = (u64_at(&header, 8), u64_at(&header, 32));
        if !header.starts_with(&PT_LOAD.to_ne_bytes()) {
            continue;
        }
        while left > 0 {
            let bytes = left.min(PIECE_BYTES as u64);
            let part = &mut piece[..bytes as usize];
            file.read_exact_at(part, at)?;
            part.hash(&mut hasher);
            (at, left) = (at + bytes, left - bytes);
        }
    }
    Ok(hasher.finish())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes[at..].first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: any byte of the code counts, and bytes behind the end do not.
    #[test]
    fn programs_are_their_loaded_bytes() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let number_of = |bytes: &[u8]| {
            let path = folder.path().join("program");
            std::fs::write(&path, bytes).unwrap();
            loaded(&File::open(path).unwrap())
        };
        let number = number_of(&own).unwrap();
        assert_eq!(number_of(&[&own[..], b"more"].concat()).unwrap(), number);
        let mut other = own.clone();
        static MARK: &[u8] = b"a constant of this very program";
        let mark = std::hint::black_box(MARK);
        let at = own.windows(mark.len()).position(|bytes| bytes == mark).unwrap();
        other[at] = b'A';
        assert_ne!(number_of(&other).unwrap(), number);
        assert!(number_of(&own[..40]).is_err() && number_of(&own[..at]).is_err());
    }
}
