//! The files of the real devices: created without a name, published, opened, locked, closed.

use super::folder::{self, Folder, TemporaryName, system};
use super::whereabouts::Whereabouts;
use super::{FileId, Lent, Naming};
use crate::error::FileError;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout for the lock of a file: far longer than the kernel needs for a dead process, whose writes may
/// still be in flight on a busy disk (half a second has been too short), far shorter than a live job.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The open files of one device.
#[derive(Debug)]
pub(super) struct Files {
    /// None: files of other processes only.
    folder: Option<Folder>,
    direct: bool,
    open: Vec<Option<OpenFile>>,
}

/// A file, as one device knows it: closed with the last of them. There may be thousands of scratch files, which have nothing but
/// their descriptor.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    descriptor: Arc<OwnedFd>,
    /// State that scratch files do not have.
    beside: Option<Arc<NamedState>>,
}

/// State of a file that has a name, will get one, or belongs to another process.
#[derive(Debug)]
struct NamedState {
    descriptor: Arc<OwnedFd>,
    /// Its name, once it has one.
    name: Option<String>,
    /// Why it can only be read.
    read_only: Option<Errno>,
    /// Its temporary name, on filesystems without unnamed files.
    temporary: Option<TemporaryName>,
}

impl OpenFile {
    fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor: Arc::new(descriptor), beside: None }
    }

    fn with(descriptor: OwnedFd, name: Option<String>, read_only: Option<Errno>) -> Self {
        let descriptor = Arc::new(descriptor);
        let beside = NamedState { descriptor: descriptor.clone(), name, read_only, temporary: None };
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

impl Drop for NamedState {
    fn drop(&mut self) {
        if self.name.is_some() {
            // For the same reason. An error changes nothing, the lock ends with the last user of the file at the latest.
            let _ = rustix::fs::flock(&self.descriptor, FlockOperation::Unlock);
        } else if self.read_only.is_none() {
            // It never got its name.
            self.temporary.take().inspect(TemporaryName::remove);
            let _ = rustix::fs::ftruncate(&self.descriptor, 0);
        }
    }
}

impl Files {
    /// Files in a folder, opened for direct I/O or not.
    pub(super) fn new(folder: Folder, direct: bool) -> Self {
        Self { folder: Some(folder), direct, open: Vec::new() }
    }

    /// No files of this process's own.
    pub(super) fn of_others() -> Self {
        Self { folder: None, direct: true, open: Vec::new() }
    }

    fn folder(&self) -> Result<&Folder, FileError> {
        self.folder.as_ref().ok_or_else(|| system("open a file in", Path::new(""), Errno::BADF))
    }

    /// The folder, for people.
    fn path(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new(""), Folder::path)
    }

    /// Why the folder took no bytes when the device was opened.
    pub(super) fn full(&self) -> Option<Errno> {
        self.folder.as_ref()?.full()
    }

    /// Opens a file that another process of this user has open, for reading only.
    pub(super) fn adopt(&mut self, at: &Whereabouts) -> std::io::Result<FileId> {
        let path = format!("/proc/{}/fd/{}", at.process, at.descriptor);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        // Access times are not needed; only the file's owner may turn them off. If the filesystem refuses
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

    /// Returns the location by which other processes find a file.
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
        let is_named = matches!(naming, Naming::Later);
        let (descriptor, temporary) = self.folder()?.unnamed(self.flags(), is_named)?;
        let mut file = OpenFile::new(descriptor);
        if is_named {
            let descriptor = file.descriptor.clone();
            file.beside = Some(Arc::new(NamedState { descriptor, name: None, read_only: None, temporary }));
        }
        rustix::fs::ftruncate(&file.descriptor, bytes)
            .map_err(|errno| system("set the size of a file in", self.path(), errno))?;
        Ok(self.insert(file))
    }

    pub(super) fn publish(&mut self, file: FileId, name: &str) -> Result<(), FileError> {
        let Self { folder: Some(folder), open, .. } = self else {
            return Err(system("create", Path::new(name), Errno::BADF));
        };
        let path = folder.path().join(name);
        let failed = |errno| match errno {
            Errno::EXIST => FileError::Exists { path: path.clone() },
            errno => system("create", &path, errno),
        };
        let Some(Some(file)) = open.get_mut(file.0 as usize) else { return Err(failed(Errno::BADF)) };
        // No other device knows it before it has its name.
        let Some(open) = file.beside.as_mut().and_then(Arc::get_mut) else { return Err(failed(Errno::BADF)) };
        lock(&open.descriptor, &path, FlockOperation::NonBlockingLockExclusive)?;
        folder.publish(&open.descriptor, open.temporary.as_ref(), name).map_err(failed)?;
        open.temporary = None;
        open.name = Some(name.to_owned());
        // The size first, then the name: the folder must not name a file that a crash leaves empty.
        rustix::fs::fsync(&open.descriptor).map_err(|errno| system("sync", &path, errno))?;
        folder.sync().map_err(|errno| system("sync", folder.path(), errno))
    }

    pub(super) fn open(&mut self, name: &str) -> Result<Option<FileId>, FileError> {
        let folder = self.folder()?;
        let path = folder.path().join(name);
        let flags = self.flags();
        loop {
            let mut read_only = None;
            let opened = match folder.open_file(name, flags) {
                // Stored data can still be read.
                Err(FileError::System {
                    errno: errno @ (Errno::ROFS | Errno::ACCESS | Errno::PERM), ..
                }) => {
                    read_only = Some(errno);
                    let flags = flags.difference(OFlags::RDWR) | OFlags::RDONLY;
                    folder.open_file(name, flags)
                }
                opened => opened,
            };
            let Some(descriptor) = opened? else { return Ok(None) };
            match read_only {
                None => lock(&descriptor, &path, FlockOperation::NonBlockingLockExclusive)?,
                // Several may read at a time.
                Some(_) => lock(&descriptor, &path, FlockOperation::NonBlockingLockShared)?,
            }
            // The former holder of the lock may have removed the file.
            if folder.names(name, &descriptor) {
                let file = OpenFile::with(descriptor, Some(name.to_owned()), read_only);
                return Ok(Some(self.insert(file)));
            }
        }
    }

    /// Gives the space of a file back from this byte on.
    pub(super) fn clear(&self, file: FileId, from: u64) {
        if let Some(descriptor) = self.descriptor(file) {
            folder::clear(descriptor, from);
        }
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
            .map_err(|errno| system("measure a file in", self.path(), errno))
    }

    pub(super) fn describe(&self, file: FileId) -> String {
        let beside = self.open.get(file.0 as usize).and_then(Option::as_ref).map(|open| &open.beside);
        match beside {
            Some(None) => format!("{} (scratch)", self.path().display()),
            Some(Some(open)) if let Some(name) = &open.name => self.path().join(name).display().to_string(),
            // One that has no name yet, or that has been closed.
            _ => self.path().display().to_string(),
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
        OFlags::RDWR | OFlags::CLOEXEC | if self.direct { OFlags::DIRECT } else { OFlags::empty() }
    }
}

/// Locks a named file against other jobs. A job that has just been killed may hold it a little longer, until the
/// kernel has taken its ring apart.
pub(crate) fn lock(descriptor: &OwnedFd, path: &Path, how: FlockOperation) -> Result<(), FileError> {
    let start = Instant::now();
    loop {
        match rustix::fs::flock(descriptor, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if start.elapsed() < LOCK_TIMEOUT => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => return Err(FileError::InUse { path: path.to_owned() }),
            Err(errno) => return Err(system("lock", path, errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    /// Goal: a scratch file gives its space back at once, even while the kernel has it open for a ring.
    #[test]
    fn a_closed_scratch_file_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::new(Folder::open(folder.path()).unwrap(), false);
        let file = files.create(1 << 20, Naming::Never).unwrap();
        let elsewhere = rustix::io::dup(&**files.descriptor(file).unwrap()).unwrap();
        assert_eq!(rustix::fs::fstat(&elsewhere).unwrap().st_size, 1 << 20);
        files.close(file);
        assert_eq!(rustix::fs::fstat(&elsewhere).unwrap().st_size, 0);
    }

    /// Goal: files left by a killed process under a temporary name vanish with the next one, and no others
    /// do.
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
        Folder::open(folder.path()).unwrap().clean();
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".vgas-new-1-1", ".vgas-new-1-2", "a-segment"]);
    }
}
