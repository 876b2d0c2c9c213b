//! The product's file: complete under its name, or not there at all.
//!
//! It is written without a name (O_TMPFILE) and given one when it is whole, so a job killed at any moment leaves
//! nothing behind. File systems that cannot do this get a hidden file beside it, removed on failure and, after SIGKILL,
//! by the next job that writes into the folder. The space is reserved at the start, so that a full disk is noticed before the work.

use super::error::{GemmError, Result};
use super::header::{self, Dtype, Order, Shape2};
use super::npy::{Pieces, Rectangle};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Suffix of hidden files.
const HIDDEN: &str = ".vgas-part";
/// Longer than it takes from making a hidden file to locking it.
const ABANDONED_AGE: Duration = Duration::from_secs(60);

/// A matrix file being written.
#[derive(Debug)]
pub struct NpyOutput {
    file: File,
    path: PathBuf,
    /// Its present name, if it had to have one.
    hidden: Option<PathBuf>,
    force: bool,
    dtype: Dtype,
    order: Order,
    shape: Shape2,
    data: u64,
}

/// Checks that `path` can become the output: not there (or with `force`: a regular file), its folder writable.
///
/// # Errors
/// [`GemmError::OutputExists`], [`GemmError::OutputNotAFile`], [`GemmError::OutputFolder`], and [`GemmError::Io`] of a name
/// that no file there can have.
pub fn check(path: &Path, force: bool) -> Result<()> {
    match path.symlink_metadata() {
        // The file is renamed over what is there, which `/dev/null` and `/dev/stdout` would not survive.
        Ok(there) if !there.is_file() => return Err(GemmError::OutputNotAFile(path.to_owned())),
        Ok(_) if !force => return Err(GemmError::OutputExists(path.to_owned())),
        // Opening its folder shows everything else.
        Err(source) if source.kind() == io::ErrorKind::InvalidFilename => {
            return Err(GemmError::Io { what: "write", path: path.to_owned(), source });
        }
        _ => {}
    }
    if path.file_name().is_none() {
        let source = io::Error::from(io::ErrorKind::IsADirectory);
        return Err(GemmError::Io { what: "write", path: path.to_owned(), source });
    }
    if let (_, Some(hidden)) = open_nameless(path)? {
        let _ = std::fs::remove_file(hidden); // it was ours; if it stays, creating it again will say why
    }
    Ok(())
}

impl NpyOutput {
    /// Reserves the space of a matrix and writes its header. Nothing is visible under `path` before
    /// [`commit`](Self::commit).
    ///
    /// # Errors
    /// As of [`check`], and [`GemmError::DiskFull`].
    pub fn create(path: &Path, force: bool, dtype: Dtype, order: Order, shape: Shape2) -> Result<Self> {
        check(path, force)?;
        remove_abandoned(folder(path));
        Self::reserve(open_nameless(path)?, path, force, dtype, order, shape)
    }

    /// As [`create`](Self::create), for a matrix that never gets a name: it vanishes with the processes that have it
    /// open, however they end. See [`into_file`](Self::into_file).
    ///
    /// # Errors
    /// [`GemmError::OutputFolder`], [`GemmError::DiskFull`].
    pub fn scratch(folder: &Path, dtype: Dtype, order: Order, shape: Shape2) -> Result<Self> {
        Self::reserve((scratch(folder)?, None), folder, false, dtype, order, shape)
    }

    fn reserve(
        (file, hidden): (File, Option<PathBuf>),
        path: &Path,
        force: bool,
        dtype: Dtype,
        order: Order,
        shape: Shape2,
    ) -> Result<Self> {
        let header = header::encode(dtype, order, shape);
        let data = header.len() as u64;
        let output = Self { file, path: path.to_owned(), hidden, force, dtype, order, shape, data };
        let bytes = output.bytes();
        match rustix::fs::fallocate(&output.file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                return Err(GemmError::DiskFull { path: path.to_owned(), bytes });
            }
            // No reservation on this file system: then a full disk is noticed when it is full.
            Err(_) => output.file.set_len(bytes).map_err(|error| output.failed(error))?,
        }
        output.write_at(&header, 0)?;
        Ok(output)
    }

    /// Length of the whole file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.data + self.shape.rows * self.shape.columns * self.dtype.bytes()
    }

    /// Writes a rectangle, given in the file's order and without gaps.
    ///
    /// # Errors
    /// If the system refuses; [`GemmError::DiskFull`] among others.
    ///
    /// # Panics
    /// If the rectangle lies outside of the matrix or `from` has another length.
    pub fn write(&self, rectangle: &Rectangle, from: &[u8]) -> Result<()> {
        assert!(rectangle.rows.end <= self.shape.rows && rectangle.columns.end <= self.shape.columns);
        let pieces = Pieces::of(rectangle, self.shape, self.order, self.dtype, self.data);
        assert_eq!(from.len(), pieces.piece * pieces.pieces, "the length of the rectangle");
        if from.is_empty() {
            return Ok(());
        }
        for (at, piece) in from.chunks_exact(pieces.piece).enumerate() {
            self.write_at(piece, pieces.start + at as u64 * pieces.stride)?;
        }
        Ok(())
    }

    /// The file without a name, durable as [`commit`](Self::commit) makes it, so that both take as long. A
    /// reader opens [`path_of`] it.
    ///
    /// # Errors
    /// If the system refuses, or this process may open no more files.
    pub fn into_file(self) -> Result<File> {
        self.file.sync_all().map_err(|error| self.failed(error))?;
        self.file.try_clone().map_err(|error| GemmError::io("keep open", &self.path, error))
    }

    /// Makes the file durable, then visible under its name.
    ///
    /// # Errors
    /// If the system refuses, or when another file took the name in the meantime (unless `force`).
    pub fn commit(mut self) -> Result<()> {
        self.file.sync_all().map_err(|error| self.failed(error))?;
        let link = |to: &Path| {
            let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, own, CWD, to, AtFlags::SYMLINK_FOLLOW)
        };
        let named = match (&self.hidden, self.force) {
            (None, false) => link(&self.path),
            (None, true) => {
                let name = hidden_name(&self.path);
                link(&name).and_then(|()| {
                    rustix::fs::rename(&name, &self.path).inspect_err(|_| drop(std::fs::remove_file(&name)))
                })
            }
            // A hard link refuses an existing name, which rename would replace.
            (Some(hidden), false) => rustix::fs::link(hidden, &self.path),
            (Some(hidden), true) => rustix::fs::rename(hidden, &self.path),
        };
        match named {
            Err(Errno::EXIST) => Err(GemmError::OutputExists(self.path.clone())),
            Err(error) => Err(self.failed(error.into())),
            Ok(()) => {
                if self.force {
                    self.hidden = None; // it bears the right name now
                }
                Ok(())
            }
        }
    }

    fn write_at(&self, from: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(from, offset).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> GemmError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                GemmError::DiskFull { path: self.path.clone(), bytes: self.bytes() }
            }
            _ => GemmError::Io { what: "write", path: self.path.clone(), source },
        }
    }
}

impl Drop for NpyOutput {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = std::fs::remove_file(hidden); // nothing more can be done about it here
        }
    }
}

/// A new file in a folder, open for reading and writing, without a name.
///
/// # Errors
/// [`GemmError::OutputFolder`].
pub fn scratch(folder: &Path) -> Result<File> {
    let (file, hidden) = open_nameless(&folder.join("vgas-scratch"))?;
    if let Some(hidden) = hidden {
        std::fs::remove_file(&hidden).map_err(|error| GemmError::io("remove", &hidden, error))?;
    }
    Ok(file)
}

/// Path by which the processes of the same user find a file without a name, for as long as this process has
/// it open.
pub fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// The folder of a file.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns an unused name beside `path`, which is not too long if that one is not.
fn hidden_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(50).collect();
    folder(path).join(format!(".{name}.{}{HIDDEN}", std::process::id()))
}

/// Locks the file for as long as it is open, so that it does not count as abandoned. A file system without
/// locks has nothing abandoned removed either.
fn in_use(file: File) -> File {
    let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    file
}

/// Removes hidden files whose processes were killed before they could. Best effort: files that cannot be
/// removed stay.
fn remove_abandoned(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_hidden = entry.file_name().as_encoded_bytes().ends_with(HIDDEN.as_bytes());
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if !is_hidden || age().is_none_or(|age| age < ABANDONED_AGE) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(entry.path(), flags, Mode::empty())
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A new file in the folder of `path`: without a name, or with a hidden one where that cannot be.
fn open_nameless(path: &Path) -> Result<(File, Option<PathBuf>)> {
    let folder = folder(path);
    let refused = |source: io::Error| GemmError::OutputFolder { path: folder.to_owned(), source };
    let mode = Mode::from_raw_mode(0o666);
    match rustix::fs::open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => Ok((in_use(file.into()), None)),
        // Errors of file systems and kernels without O_TMPFILE.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let name = hidden_name(path);
            let file =
                File::options().read(true).write(true).create_new(true).open(&name).map_err(refused)?;
            Ok((in_use(file), Some(name)))
        }
        Err(error) => Err(refused(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const SHAPE: Shape2 = Shape2 { rows: 2, columns: 3 };

    fn all() -> Rectangle {
        Rectangle { rows: 0..2, columns: 0..3 }
    }

    /// An output as on a file system that knows no nameless files.
    fn create_hidden(path: &Path, force: bool) -> NpyOutput {
        let mut output = NpyOutput::create(path, force, Dtype::Float32, Order::C, SHAPE).unwrap();
        let hidden = hidden_name(path);
        output.file = File::options().read(true).write(true).create_new(true).open(&hidden).unwrap();
        output.hidden = Some(hidden);
        output.write_at(&header::encode(Dtype::Float32, Order::C, SHAPE), 0).unwrap();
        output
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        for hidden in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("c.npy");
            let create = |force| match hidden {
                true => create_hidden(&path, force),
                false => NpyOutput::create(&path, force, Dtype::Float32, Order::C, SHAPE).unwrap(),
            };
            let output = create(false);
            assert_eq!(names(folder.path()).len(), usize::from(hidden));
            drop(output);
            assert!(names(folder.path()).is_empty(), "given up: nothing is left");

            let output = create(false);
            output.write(&all(), &[7; 24]).unwrap();
            output.commit().unwrap();
            assert_eq!(names(folder.path()), ["c.npy"]);
            assert_eq!(fs::read(&path).unwrap().len(), 128 + 24);

            let output = create(true);
            output.write(&all(), &[8; 24]).unwrap();
            assert_eq!(
                fs::read(&path).unwrap()[128..],
                [7; 24],
                "the old file stays until the new one is whole"
            );
            output.commit().unwrap();
            assert_eq!(fs::read(&path).unwrap()[128..], [8; 24]);
            assert_eq!(names(folder.path()), ["c.npy"]);
        }
    }

    /// Files left by a killed job are removed by the next one; files that may still be in use, and foreign
    /// ones, are not.
    #[test]
    fn abandoned_files_are_removed_by_a_later_job() {
        let folder = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::now() - ABANDONED_AGE * 2;
        let make = |name: &str| File::create(folder.path().join(name)).unwrap();
        let [abandoned, used, theirs] =
            [".a.npy.1.vgas-part", ".b.npy.2.vgas-part", ".c.npy.3.part"].map(make);
        let used = in_use(used);
        [&abandoned, &used, &theirs].iter().for_each(|file| file.set_modified(old).unwrap());
        drop(make(".young.npy.4.vgas-part"));
        drop(
            NpyOutput::create(&folder.path().join("d.npy"), false, Dtype::Float32, Order::C, SHAPE).unwrap(),
        );
        assert_eq!(names(folder.path()), [".b.npy.2.vgas-part", ".c.npy.3.part", ".young.npy.4.vgas-part"]);
        // Its process is gone.
        drop(used);
        remove_abandoned(folder.path());
        assert_eq!(names(folder.path()), [".c.npy.3.part", ".young.npy.4.vgas-part"]);
    }

    /// Two jobs with the same output: the second to finish must not destroy what the first one made.
    #[test]
    fn a_name_taken_in_the_meantime_is_respected() {
        for hidden in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("c.npy");
            let output = match hidden {
                true => create_hidden(&path, false),
                false => NpyOutput::create(&path, false, Dtype::Float32, Order::C, SHAPE).unwrap(),
            };
            fs::write(&path, "precious").unwrap();
            assert!(matches!(output.commit(), Err(GemmError::OutputExists(_))));
            assert_eq!(fs::read(&path).unwrap(), b"precious");
            assert_eq!(names(folder.path()), ["c.npy"]);
        }
    }

    #[test]
    fn a_disk_that_cannot_hold_the_output_is_named_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.npy");
        // 32 TB: more than a file of ext4 can have, and than the disks of test machines.
        let shape = Shape2 { rows: 2_000_000, columns: 2_000_000 };
        let error = NpyOutput::create(&path, false, Dtype::Float64, Order::C, shape).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "no space for the 32000000000128 bytes of {}; free some, or choose another disk",
                path.display()
            )
        );
        assert!(names(folder.path()).is_empty());
    }

    /// The longest name that a file can have is good, with its hidden beginnings; a longer one is refused at once.
    #[test]
    fn a_name_that_is_too_long_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for force in [false, true] {
            let longest = folder.path().join("n".repeat(255));
            let output = NpyOutput::create(&longest, force, Dtype::Float32, Order::C, SHAPE).unwrap();
            output.commit().unwrap();
            assert_eq!(names(folder.path()), ["n".repeat(255)]);
            fs::remove_file(&longest).unwrap();
            create_hidden(&longest, force).commit().unwrap();
            fs::remove_file(&longest).unwrap();
            let error = check(&folder.path().join("n".repeat(256)), force).unwrap_err();
            assert!(error.to_string().contains("File name too long"), "{error}");
        }
    }

    #[test]
    fn what_is_no_regular_file_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "precious").unwrap();
        std::os::unix::fs::symlink("precious", at("link")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, force) in
            ["link", "folder", "socket"].iter().flat_map(|name| [(name, false), (name, true)])
        {
            let error = check(&at(name), force).unwrap_err().to_string();
            let sentence =
                format!("{} exists and is not a regular file; name another output", at(name).display());
            assert_eq!(error, sentence);
        }
        assert!(at("link").is_symlink());
        assert_eq!(fs::read(at("link")).unwrap(), b"precious");
    }
}
