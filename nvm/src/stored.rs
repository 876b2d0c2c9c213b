//! Named segments stored in a folder: listing, copying and removing them. For tools, while no job uses them:
//! files that a job has open are never touched.

use crate::device::{Folder, lock};
use crate::error::{FileError, VolumeError};
use crate::rest::AtRest;
use crate::volume::{is_segment_name, segment_file_name};
use rustix::fs::{AtFlags, FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes that are copied between two reports of progress.
const PIECE_BYTES: usize = 4 << 20;

/// A segment with a name: the files of its ranks that are in one folder.
#[derive(Debug)]
pub struct StoredSegment {
    /// Its name.
    pub name: String,
    /// The part of each rank that is here, by rank.
    pub parts: BTreeMap<u32, StoredPart>,
}

/// The file of one rank.
#[derive(Debug)]
pub struct StoredPart {
    /// The file.
    pub path: PathBuf,
    /// Bytes that the file takes on its device.
    pub stored_bytes: u64,
    /// Time of its last write.
    pub changed: SystemTime,
    /// A job has it open.
    pub is_in_use: bool,
    /// The content, or why it cannot be used.
    pub content: Result<AtRest, String>,
}

impl StoredSegment {
    /// A job has some of it open.
    pub fn is_in_use(&self) -> bool {
        self.parts.values().any(|part| part.is_in_use)
    }
}

/// The name and the rank that a file's name stands for: `store` and 3 of `store.3.3.vgas`.
pub fn segment_of_file(file: &str) -> Option<(&str, u32)> {
    let (rest, number) = file.strip_suffix(".vgas")?.rsplit_once('.')?;
    let (name, rank) = rest.rsplit_once('.')?;
    let parsed = rank.parse().ok().filter(|rank: &u32| rank.to_string() == number)?;
    (rank == number && is_segment_name(name)).then_some((name, parsed))
}

/// The file of a rank's part of a segment.
fn file_of(name: &str, rank: u32) -> String {
    segment_file_name(&format!("{name}.{rank}"), rank)
}

/// Lists the segments with names in a folder, by name. Changes nothing.
///
/// # Errors
/// The folder cannot be read.
pub fn stored_segments(folder: &Path) -> std::io::Result<Vec<StoredSegment>> {
    let mut found: BTreeMap<String, BTreeMap<u32, StoredPart>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let file = entry.file_name();
        if let Some((name, rank)) = file.to_str().and_then(segment_of_file) {
            let part = StoredPart::look(entry.path());
            found.entry(name.to_owned()).or_default().insert(rank, part);
        }
    }
    Ok(found.into_iter().map(|(name, parts)| StoredSegment { name, parts }).collect())
}

impl StoredPart {
    fn look(path: PathBuf) -> Self {
        use std::os::unix::fs::MetadataExt;
        let status = std::fs::symlink_metadata(&path).ok();
        let stored_bytes = status.as_ref().map_or(0, |status| status.blocks() * 512);
        let changed = status.and_then(|status| status.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH);
        let content = AtRest::open(&path).map_err(|error| error.to_string());
        let is_in_use = content.as_ref().is_ok_and(AtRest::is_in_use);
        Self { path, stored_bytes, changed, is_in_use, content }
    }
}

/// Target of a copied segment.
#[derive(Clone, Debug)]
pub struct CopyTarget {
    /// Into this folder.
    pub folder: PathBuf,
    /// Under this name.
    pub name: String,
}

/// Copies all parts of a segment that are in a folder: all of them, or none. Holes stay holes. Reports the
/// bytes of files done, and of all. Returns the files that it has made. Blocks until they are durable, and
/// waits for files of a job that has just ended.
///
/// # Errors
/// If there is no such segment, a job has it open, names are taken, or the system refuses.
pub fn copy_segment(
    folder: &Path,
    name: &str,
    to: &CopyTarget,
    report: &mut dyn FnMut(u64, u64),
) -> Result<Vec<PathBuf>, VolumeError> {
    if !is_segment_name(&to.name) {
        return Err(VolumeError::Usage(format!("{:?} is no name for a segment", to.name)));
    }
    let from = Folder::open(folder)?;
    let into = Folder::open(&to.folder)?;
    let files = lock_all(&from, name, OFlags::RDONLY, FlockOperation::NonBlockingLockShared)?;
    for (rank, _) in &files {
        let path = to.folder.join(file_of(&to.name, *rank));
        if std::fs::symlink_metadata(&path).is_ok() {
            return Err(FileError::Exists { path }.into());
        }
    }
    let total = files.iter().map(|(_, file)| bytes_of(file)).sum();
    let mut done = 0;
    let mut copies = Vec::new();
    for (rank, file) in &files {
        let path = to.folder.join(file_of(&to.name, *rank));
        let failed = |errno| FileError::System { what: "copy to", path: path.clone(), errno };
        let (copy, temporary) = into.unnamed(OFlags::RDWR | OFlags::CLOEXEC, true)?;
        let bytes = bytes_of(file);
        rustix::fs::ftruncate(&copy, bytes).map_err(failed)?;
        copy_data(file, &copy, &mut |at| report(done + at, total)).map_err(failed)?;
        rustix::fs::fsync(&copy).map_err(failed)?;
        done += bytes;
        report(done, total);
        copies.push((*rank, copy, temporary));
    }
    let mut made = Vec::new();
    for (rank, copy, temporary) in &copies {
        let file = file_of(&to.name, *rank);
        let published = into.publish(copy, temporary.as_ref(), &file);
        let path = to.folder.join(&file);
        if let Err(errno) = published {
            // All or none.
            for (rank, ..) in copies.iter().take(made.len()) {
                let _ = rustix::fs::unlinkat(into.descriptor(), file_of(&to.name, *rank), AtFlags::empty());
            }
            copies
                .iter()
                .skip(made.len())
                .filter_map(|(.., name)| name.as_ref())
                .for_each(|name| name.remove());
            return Err(match errno {
                Errno::EXIST => FileError::Exists { path },
                errno => FileError::System { what: "create", path, errno },
            }
            .into());
        }
        made.push(path);
    }
    into.sync().map_err(|errno| FileError::System { what: "sync", path: to.folder.clone(), errno })?;
    Ok(made)
}

/// Removes all parts of some segments that are in a folder. Returns the files that are gone. Waits for files
/// of a job that has just ended.
///
/// # Errors
/// One that is not there, or that a job has open: nothing has been removed then. The system's error.
pub fn remove_segments(folder: &Path, names: &[String]) -> Result<Vec<PathBuf>, VolumeError> {
    let from = Folder::open(folder)?;
    let mut locked = Vec::new();
    for name in names {
        let files = lock_all(&from, name, OFlags::RDWR, FlockOperation::NonBlockingLockExclusive)?;
        locked.extend(files.into_iter().map(|(rank, file)| (file_of(name, rank), file)));
    }
    let mut gone = Vec::new();
    for (file, _locked) in &locked {
        let path = folder.join(file);
        rustix::fs::unlinkat(from.descriptor(), file, AtFlags::empty())
            .map_err(|errno| FileError::System { what: "remove", path: path.clone(), errno })?;
        gone.push(path);
    }
    from.sync().map_err(|errno| FileError::System { what: "sync", path: folder.to_owned(), errno })?;
    Ok(gone)
}

/// Opens and locks the files of all ranks.
fn lock_all(
    folder: &Folder,
    name: &str,
    flags: OFlags,
    how: FlockOperation,
) -> Result<Vec<(u32, OwnedFd)>, VolumeError> {
    let mut files = Vec::new();
    for file in folder.names_within().iter().filter_map(|file| segment_of_file(file)) {
        let (found, rank) = file;
        if found != name {
            continue;
        }
        let path = folder.path().join(file_of(name, rank));
        let Some(opened) = folder.open_file(&file_of(name, rank), flags)? else { continue };
        lock(&opened, &path, how)?;
        files.push((rank, opened));
    }
    files.sort_by_key(|(rank, _)| *rank);
    match files.is_empty() {
        true => {
            let place = folder.path().display();
            Err(VolumeError::Usage(format!("no segment {name:?} is stored in {place}")))
        }
        false => Ok(files),
    }
}

fn bytes_of(file: &OwnedFd) -> u64 {
    rustix::fs::fstat(file).map_or(0, |status| status.st_size.max(0) as u64)
}

/// Copies what a file has beside holes to the same places of another.
fn copy_data(from: &OwnedFd, to: &OwnedFd, report: &mut dyn FnMut(u64)) -> Result<(), Errno> {
    let end = bytes_of(from);
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < end {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole is left.
            Err(Errno::NXIO) => return Ok(()),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(errno) => return Err(errno),
        };
        let hole = rustix::fs::seek(from, SeekFrom::Hole(data)).unwrap_or(end);
        at = data;
        while at < hole {
            let most = ((hole - at) as usize).min(PIECE_BYTES);
            let read = rustix::io::pread(from, &mut piece[..most], at)?;
            if read == 0 {
                return Ok(());
            }
            let mut written = 0;
            while written < read {
                written += rustix::io::pwrite(to, &piece[written..read], at + written as u64)?;
            }
            at += read as u64;
            report(at);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_taken_apart() {
        for (file, expected) in [
            ("store.3.3.vgas", Some(("store", 3))),
            ("a.b-c.0.0.vgas", Some(("a.b-c", 0))),
            ("store.3.4.vgas", None),
            ("store.03.03.vgas", None),
            (".3.3.vgas", None),
            ("store.3.vgas", None),
            ("store.3.3.vgas.old", None),
            ("store.99999999999.99999999999.vgas", None),
        ] {
            assert_eq!(segment_of_file(file), expected, "{file}");
        }
        assert_eq!(segment_of_file(&file_of("store", 12)), Some(("store", 12)));
    }
}
