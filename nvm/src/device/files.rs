//! The files of the real devices: created without a name, published, opened, locked, closed.

use super::{FileId, Lent, Naming};
use crate::error::FileError;
use crate::shared::Whereabouts;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Readable and writable by their user only.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// How long to wait for the lock of a file: far longer than the kernel needs for a dead process, whose writes may still be
/// under way on a busy disk (half a second has been too short), far shorter than a job
/// that is alive.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
/// Between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// How names begin that files have until they lose them or get their own, where the filesystem has no files without.
const TEMPORARY: &str = ".vgas-new-";
/// A file with such a name that is older than this, and not locked, belongs to nobody: its process was killed.
const ABANDONED_AGE: Duration = Duration::from_secs(60);

/// The open files of one device.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    direct: bool,
    open: Vec<Option<OpenFile>>,
}

/// A file, as one device knows it: closed with the last of them. There may be thousands of scratch files, which have nothing but
/// their descriptor.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    descriptor: Arc<OwnedFd>,
    /// What scratch files have not.
    beside: Option<Arc<Beside>>,
}

/// What is to be known of a file with a name, or one to come, or of another process's.
#[derive(Debug)]
struct Beside {
    descriptor: Arc<OwnedFd>,
    /// Its name, once it has one.
    name: Option<String>,
    /// Why it can only be read.
    read_only: Option<Errno>,
    /// Where it waits for its name, on filesystems whose files cannot be without.
    temporary: Option<PathBuf>,
}

impl OpenFile {
    fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor: Arc::new(descriptor), beside: None }
    }

    fn with(descriptor: OwnedFd, name: Option<String>, read_only: Option<Errno>) -> Self {
        let descriptor = Arc::new(descriptor);
        let beside = Beside { descriptor: descriptor.clone(), name, read_only, temporary: None };
        Self { descriptor, beside: Some(Arc::new(beside)) }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.beside.is_none() && Arc::strong_count(&self.descriptor) == 1 {
            // Closing is not enough: the kernel takes a ring with its registered files apart at leisure. The next job wants the
            // space when this one has ended, not some time later.
            let _ = rustix::fs::ftruncate(&self.descriptor, 0);
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.name.is_some() {
            // For the same reason. An error changes nothing, the lock ends with the last user of the file at the latest.
            let _ = rustix::fs::flock(&self.descriptor, FlockOperation::Unlock);
        }
        if let Some(path) = self.temporary.take() {
            // Nobody is there to be told; the worst is a sparse file that stays.
            let _ = rustix::fs::unlink(path);
            let _ = rustix::fs::ftruncate(&self.descriptor, 0);
        }
    }
}

impl Files {
    /// Files in `directory`, opened for direct I/O or not. Removes what killed processes have left there.
    pub(super) fn new(directory: &Path, direct: bool) -> Self {
        remove_abandoned(directory);
        Self { directory: directory.to_owned(), direct, open: Vec::new() }
    }

    /// No files of this process's own.
    pub(super) fn of_others() -> Self {
        Self { directory: PathBuf::new(), direct: true, open: Vec::new() }
    }

    /// Opens a file that another process of this user has open, for reading only.
    pub(super) fn adopt(&mut self, at: &Whereabouts) -> std::io::Result<FileId> {
        let path = format!("/proc/{}/fd/{}", at.process, at.descriptor);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        // Nobody wants to know when a page was read last; only the file's owner may say so. Where the filesystem refuses
        // direct I/O, the volume does without, too.
        let ways = [OFlags::DIRECT | OFlags::NOATIME, OFlags::DIRECT, OFlags::empty()];
        let open = |more: OFlags| rustix::fs::open(&path, flags | more, Mode::empty());
        let [first, second, third] = ways;
        let opened = open(first).or_else(|_| open(second)).or_else(|_| open(third))?;
        let status = rustix::fs::fstat(&opened)?;
        if (status.st_dev, status.st_ino) != (at.device, at.inode) {
            return Err(Errno::STALE.into());
        }
        Ok(self.insert(OpenFile::with(opened, None, Some(Errno::BADF))))
    }

    /// How other processes find a file.
    pub(super) fn share(&self, file: FileId) -> Option<Whereabouts> {
        let descriptor = self.descriptor(file)?;
        let status = rustix::fs::fstat(descriptor).ok()?;
        Some(Whereabouts {
            process: std::process::id(),
            descriptor: descriptor.as_raw_fd().try_into().ok()?,
            device: status.st_dev,
            inode: status.st_ino,
            places: [0; 2],
        })
    }

    /// A file, for other devices of the process.
    pub(super) fn lend(&self, file: FileId) -> Option<Lent> {
        self.open.get(file.0 as usize)?.clone().map(Lent)
    }

    /// Makes a file known under the number that it has elsewhere.
    pub(super) fn join(&mut self, file: FileId, Lent(open): Lent) {
        let index = file.0 as usize;
        if self.open.len() <= index {
            self.open.resize(index + 1, None);
        }
        self.open[index] = Some(open);
    }

    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// The descriptor of an open file.
    pub(super) fn descriptor(&self, file: FileId) -> Option<&Arc<OwnedFd>> {
        Some(&self.open.get(file.0 as usize)?.as_ref()?.descriptor)
    }

    pub(super) fn create(&mut self, bytes: u64, naming: Naming) -> Result<FileId, FileError> {
        let (descriptor, temporary) = unnamed(&self.directory, self.flags(), naming)
            .map_err(|errno| system("create a file in", &self.directory, errno))?;
        let mut file = OpenFile::new(descriptor);
        if temporary.is_some() {
            let descriptor = file.descriptor.clone();
            file.beside = Some(Arc::new(Beside { descriptor, name: None, read_only: None, temporary }));
        }
        rustix::fs::ftruncate(&file.descriptor, bytes)
            .map_err(|errno| system("set the size of a file in", &self.directory, errno))?;
        Ok(self.insert(file))
    }

    pub(super) fn publish(&mut self, file: FileId, name: &str) -> Result<(), FileError> {
        let path = self.directory.join(name);
        let failed = |errno| match errno {
            Errno::EXIST => FileError::Exists { path: path.clone() },
            errno => system("create", &path, errno),
        };
        let Some(Some(file)) = self.open.get_mut(file.0 as usize) else { return Err(failed(Errno::BADF)) };
        let OpenFile { descriptor, beside } = file;
        let unnamed =
            || Beside { descriptor: descriptor.clone(), name: None, read_only: None, temporary: None };
        // No other device knows it before it has its name.
        let open = Arc::get_mut(beside.get_or_insert_with(|| Arc::new(unnamed())));
        let Some(open) = open else { return Err(failed(Errno::BADF)) };
        lock(&open.descriptor, &path, FlockOperation::NonBlockingLockExclusive)?;
        match open.temporary.take() {
            Some(temporary) => {
                let renamed = rustix::fs::renameat_with(CWD, &temporary, CWD, &path, RenameFlags::NOREPLACE);
                renamed.inspect_err(|_| open.temporary = Some(temporary)).map_err(failed)?;
            }
            None => {
                let itself = format!("/proc/self/fd/{}", open.descriptor.as_raw_fd());
                rustix::fs::linkat(CWD, itself, CWD, &path, AtFlags::SYMLINK_FOLLOW).map_err(failed)?;
            }
        }
        open.name = Some(name.to_owned());
        // The size first, then the name: the folder must not name a file that a crash leaves empty.
        rustix::fs::fsync(&open.descriptor).map_err(|errno| system("sync", &path, errno))?;
        let folder = rustix::fs::open(
            &self.directory,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        folder.and_then(rustix::fs::fsync).map_err(|errno| system("sync", &self.directory, errno))
    }

    pub(super) fn open(&mut self, name: &str) -> Result<Option<FileId>, FileError> {
        let path = self.directory.join(name);
        // A stranger's symbolic link or pipe under that name is refused instead of followed or waited for.
        let flags = self.flags() | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut read_only = None;
        let descriptor = match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            // What is there can still be read.
            Err(errno @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) => {
                read_only = Some(errno);
                let flags = flags.difference(OFlags::RDWR) | OFlags::RDONLY;
                rustix::fs::open(&path, flags, Mode::empty()).map_err(|_| system("open", &path, errno))?
            }
            opened => opened.map_err(|errno| system("open", &path, errno))?,
        };
        let is_file = rustix::fs::fstat(&descriptor)
            .is_ok_and(|status| rustix::fs::FileType::from_raw_mode(status.st_mode).is_file());
        if !is_file {
            return Err(system("open as a segment file", &path, Errno::INVAL));
        }
        match read_only {
            None => lock(&descriptor, &path, FlockOperation::NonBlockingLockExclusive)?,
            // Several may read at a time.
            Some(_) => lock(&descriptor, &path, FlockOperation::NonBlockingLockShared)?,
        }
        Ok(Some(self.insert(OpenFile::with(descriptor, Some(name.to_owned()), read_only))))
    }

    /// Why a file can only be read, if it can.
    pub(super) fn read_only(&self, file: FileId) -> Option<Errno> {
        self.open.get(file.0 as usize)?.as_ref()?.beside.as_ref()?.read_only
    }

    pub(super) fn file_bytes(&self, file: FileId) -> Result<u64, FileError> {
        let measured = match self.descriptor(file) {
            Some(descriptor) => rustix::fs::fstat(descriptor),
            None => Err(Errno::BADF),
        };
        measured
            .map(|status| status.st_size as u64)
            .map_err(|errno| system("measure a file in", &self.directory, errno))
    }

    pub(super) fn describe(&self, file: FileId) -> String {
        match self.open.get(file.0 as usize) {
            Some(Some(OpenFile { beside: Some(open), .. })) if let Some(name) = &open.name => {
                self.directory.join(name).display().to_string()
            }
            _ => format!("{} (scratch)", self.directory.display()),
        }
    }

    /// Forgets a file; it is closed when its last operation lets go of the descriptor.
    pub(super) fn close(&mut self, file: FileId) {
        if let Some(slot) = self.open.get_mut(file.0 as usize) {
            *slot = None;
        }
    }

    fn insert(&mut self, file: OpenFile) -> FileId {
        match self.open.iter_mut().enumerate().find(|(_, slot)| slot.is_none()) {
            Some((index, slot)) => {
                *slot = Some(file);
                FileId(index as u32)
            }
            None => {
                if self.open.len() == self.open.capacity() {
                    // There may be thousands.
                    self.open.reserve_exact(self.open.len() / 8 + 4);
                }
                self.open.push(Some(file));
                FileId(self.open.len() as u32 - 1)
            }
        }
    }

    fn flags(&self) -> OFlags {
        flags(self.direct)
    }
}

fn flags(direct: bool) -> OFlags {
    OFlags::RDWR | OFlags::CLOEXEC | if direct { OFlags::DIRECT } else { OFlags::empty() }
}

/// An open file without a name, so that it vanishes with the process however that ends.
fn unnamed(directory: &Path, flags: OFlags, naming: Naming) -> Result<(OwnedFd, Option<PathBuf>), Errno> {
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, MODE) {
        // Filesystems that have no such files: create one, and take its name away at once.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            static COUNTER: AtomicU32 = AtomicU32::new(0);
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!("{TEMPORARY}{}-{number}", std::process::id()));
            let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, MODE)?;
            match naming {
                Naming::Never => rustix::fs::unlink(&path).map(|()| (file, None)),
                Naming::Later => {
                    // Shows that it is in use. A filesystem without locks has nothing abandoned removed either.
                    let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
                    Ok((file, Some(path)))
                }
            }
        }
        opened => Ok((opened?, None)),
    }
}

/// Removes temporary files whose processes were killed before they could. Nobody depends on it: what cannot be removed
/// stays.
fn remove_abandoned(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_temporary = entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes());
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if !is_temporary || age().is_none_or(|age| age < ABANDONED_AGE) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(entry.path(), flags, Mode::empty())
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = rustix::fs::unlink(entry.path());
        }
    }
}

/// Whether files in this folder take direct I/O; tried, because filesystems that accept the flag may still refuse the
/// transfer. An error means that nothing can be stored there.
pub(super) fn takes_direct_io(directory: &Path) -> Result<bool, FileError> {
    let failed = |errno| system("create a file in", directory, errno);
    let file = match unnamed(directory, flags(true), Naming::Never) {
        Err(Errno::INVAL) => {
            unnamed(directory, flags(false), Naming::Never).map_err(failed)?;
            return Ok(false);
        }
        opened => opened.map_err(failed)?.0,
    };
    #[repr(align(4096))]
    struct Block([u8; 4096]);
    let block = Box::new(Block([0; 4096]));
    match rustix::io::pwrite(&file, &block.0, 0) {
        Ok(_) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(errno) => Err(system("write to a file in", directory, errno)),
    }
}

/// Whether a folder that takes no new files, for this reason, may have segments that can be read. Without any it is of no
/// use, and that is better said at once.
pub(super) fn may_be_read(directory: &Path, error: &FileError) -> bool {
    let FileError::System { errno, .. } = error else { return false };
    let refuses_writes =
        matches!(*errno, Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::NOSPC | Errno::DQUOT);
    let is_segment = |entry: std::fs::DirEntry| entry.file_name().as_encoded_bytes().ends_with(b".vgas");
    refuses_writes && std::fs::read_dir(directory).into_iter().flatten().flatten().any(is_segment)
}

/// Locks a named file against other jobs. A job that has just been killed may hold it a little longer, until the
/// kernel has taken its ring apart.
fn lock(descriptor: &OwnedFd, path: &Path, how: FlockOperation) -> Result<(), FileError> {
    let start = Instant::now();
    loop {
        match rustix::fs::flock(descriptor, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if start.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => return Err(FileError::InUse { path: path.to_owned() }),
            Err(errno) => return Err(system("lock", path, errno)),
        }
    }
}

fn system(what: &'static str, path: &Path, errno: Errno) -> FileError {
    FileError::System { what, path: path.to_owned(), errno }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    /// Goal: a scratch file gives its space back at once, also while the kernel has it open for a ring.
    #[test]
    fn a_closed_scratch_file_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::new(folder.path(), false);
        let file = files.create(1 << 20, Naming::Never).unwrap();
        let elsewhere = rustix::io::dup(&**files.descriptor(file).unwrap()).unwrap();
        assert_eq!(rustix::fs::fstat(&elsewhere).unwrap().st_size, 1 << 20);
        files.close(file);
        assert_eq!(rustix::fs::fstat(&elsewhere).unwrap().st_size, 0);
    }

    /// Goal: what a killed process left under a temporary name vanishes with the next one, and nothing else does.
    #[test]
    fn abandoned_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let create = |name: &str, age: u64| {
            let file = std::fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            file
        };
        create(".vgas-new-1-0", 3600);
        create(".vgas-new-1-1", 0);
        create("a-segment", 3600);
        let in_use = create(".vgas-new-1-2", 3600);
        rustix::fs::flock(&in_use, FlockOperation::LockExclusive).unwrap();
        Files::new(folder.path(), false);
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".vgas-new-1-1", ".vgas-new-1-2", "a-segment"]);
    }
}
