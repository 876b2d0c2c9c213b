//! A folder of segment files: opened once, after every step of its path has been checked, and used through its descriptor from then on.
//!
//! Many folders for temporary files can be written by every user of the machine. A user who creates a
//! segment's file there first would own what a job stores, so a file is used only if no other user could have
//! created it or can change it:
//!
//! * A file belongs to this user or to root, and its mode lets no other user write it.
//! * Each folder on the way belongs to this user or to root. A folder that every user may write to must be
//!   sticky, so that no user can remove or rename files of another.
//! * Each symbolic link on the way belongs to this user or to root.
//!
//! A path is looked up once, one name at a time, each relative to the descriptor of the folder before; the
//! checked object is the opened one. So there is no moment between check and use in which another user could
//! replace anything. Members of a folder's group are trusted not to remove files; they cannot put theirs in
//! the place of ours either.

use crate::error::{FileError, Untrusted};
use crate::format::{BLOCK_BYTES, Geometry, NoSuperblock, Place, Superblock, superblock_at};
use rustix::fs::{AtFlags, CWD, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// Readable and writable by their user only.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Prefix of temporary file names, used until a file loses its name or gets its own, on filesystems without
/// unnamed files.
const TEMPORARY: &str = ".vgas-new-";
/// A file with such a name that is older than this, and not locked, belongs to a process that was killed.
const ABANDONED_AGE: Duration = Duration::from_secs(60);
/// Symbolic links that may be followed in one path, as the kernel's own limit.
const LINKS_MAX: usize = 40;
/// Bytes on the device from which an unused file is worth looking into.
const WORTH_CLEARING: i64 = 64 << 10;

/// A checked folder.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// For opening files relative to it only (O_PATH).
    descriptor: OwnedFd,
    /// Every user may create files in it.
    is_shared: bool,
    /// Why it took no bytes when they were tried.
    refusal: Option<Errno>,
}

impl Folder {
    /// Opens a folder.
    ///
    /// # Errors
    /// The system's, and [`FileError::Untrusted`] for a step of the path that another user controls.
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        let failed = |errno| system("open the folder", path, errno);
        let anchor = Path::new(if path.is_absolute() { "/" } else { "." });
        let mut here = open_at(CWD, anchor).map_err(failed)?;
        let mut is_shared = check_folder(&here, anchor)?;
        let mut at = anchor.to_owned();
        let mut names: VecDeque<OsString> = names_of(path);
        if path.as_os_str().is_empty() {
            return Err(failed(Errno::NOENT));
        }
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            let next = open_at(&here, Path::new(&name)).map_err(failed)?;
            let status = rustix::fs::fstat(&next).map_err(failed)?;
            at.push(&name);
            if FileType::from_raw_mode(status.st_mode) != FileType::Symlink {
                is_shared = check_folder(&next, &at)?;
                here = next;
                continue;
            }
            check_owner(&status, &at, true)?;
            links += 1;
            if links > LINKS_MAX {
                return Err(failed(Errno::LOOP));
            }
            let target = rustix::fs::readlinkat(&next, "", Vec::new()).map_err(failed)?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            at.pop();
            if target.is_absolute() {
                here = open_at(CWD, Path::new("/")).map_err(failed)?;
                is_shared = check_folder(&here, Path::new("/"))?;
                at = "/".into();
            }
            names_of(&target).into_iter().rev().for_each(|name| names.push_front(name));
        }
        Ok(Self { path: path.to_owned(), descriptor: here, is_shared, refusal: None })
    }

    /// The folder's path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The same folder, for another device.
    pub(super) fn try_clone(&self) -> Result<Self, FileError> {
        let descriptor = rustix::io::dup(&self.descriptor)
            .map_err(|errno| system("open the folder", &self.path, errno))?;
        let &Self { is_shared, refusal, .. } = self;
        Ok(Self { path: self.path.clone(), descriptor, is_shared, refusal })
    }

    /// Records why it takes no bytes now.
    pub(super) fn refuse(&mut self, error: &FileError) {
        if let FileError::System { errno, .. } = error {
            self.refusal = Some(*errno);
        }
    }

    /// Why it took no bytes, if its disk or the user's quota was full.
    pub(super) fn full(&self) -> Option<Errno> {
        self.refusal.filter(|&errno| matches!(errno, Errno::NOSPC | Errno::DQUOT))
    }

    /// The descriptor, to which names are relative.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Opens a file that belongs to this user or root and that no other user can write. None: there is none
    /// of that name.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> Result<Option<OwnedFd>, FileError> {
        let path = self.path.join(name);
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(&self.descriptor, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            // Error of O_NOFOLLOW for a link.
            Err(Errno::LOOP) => return Err(FileError::Untrusted { path, why: Untrusted::IsLink }),
            opened => opened.map_err(|errno| system("open", &path, errno))?,
        };
        let status = rustix::fs::fstat(&opened).map_err(|errno| system("open", &path, errno))?;
        if !FileType::from_raw_mode(status.st_mode).is_file() {
            return Err(system("open as a segment file", &path, Errno::INVAL));
        }
        check_owner(&status, &path, false)?;
        let mode = status.st_mode & 0o777;
        if mode & 0o022 != 0 {
            return Err(FileError::Untrusted { path, why: Untrusted::FileMode { mode } });
        }
        Ok(Some(opened))
    }

    /// Returns true if `name` still refers to the open file.
    pub(super) fn names(&self, name: &str, file: &OwnedFd) -> bool {
        let found = rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        let identity = |status: Stat| (status.st_dev, status.st_ino);
        found.map(identity) == rustix::fs::fstat(file).map(identity)
    }

    /// Returns the names in it, as far as it can be listed and they are text.
    pub(crate) fn names_within(&self) -> Vec<String> {
        names_in(&self.descriptor)
    }

    /// Gives a file without a name its name, atomically; fails if it is taken. Not durable before [`Folder::sync`].
    pub(crate) fn publish(
        &self,
        file: &OwnedFd,
        temporary: Option<&TemporaryName>,
        name: &str,
    ) -> Result<(), Errno> {
        if let Some(temporary) = temporary {
            return temporary.rename(self, name);
        }
        let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
        match rustix::fs::linkat(CWD, itself, &self.descriptor, name, AtFlags::SYMLINK_FOLLOW) {
            // Without /proc. Only some kernels allow it to every user.
            Err(Errno::NOENT) => rustix::fs::linkat(file, "", &self.descriptor, name, AtFlags::EMPTY_PATH),
            linked => linked,
        }
    }

    /// Makes what has been published in it durable.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.descriptor, ".", flags, Mode::empty()).and_then(rustix::fs::fsync)
    }

    /// An open file without a name, so that it vanishes with the process however that ends; or one with a temporary name.
    pub(crate) fn unnamed(
        &self,
        flags: OFlags,
        may_keep_name: bool,
    ) -> Result<(OwnedFd, Option<TemporaryName>), FileError> {
        let failed = |errno| system("create a file in", &self.path, errno);
        match rustix::fs::openat(&self.descriptor, ".", flags | OFlags::TMPFILE, MODE) {
            // Filesystems that have no such files: create one, and take its name away at once.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
            opened => return Ok((opened.map_err(failed)?, None)),
        }
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEMPORARY}{}-{number}", std::process::id());
        let folder = match self.is_shared {
            true => self.own_folder(true)?,
            false => rustix::io::dup(&self.descriptor).map_err(failed)?,
        };
        let create = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&folder, &name, create, MODE).map_err(failed)?;
        let temporary = TemporaryName { folder, name };
        if !may_keep_name {
            temporary.remove();
            return Ok((file, None));
        }
        // Shows that it is in use. A filesystem without locks has nothing abandoned removed either.
        let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        Ok((file, Some(temporary)))
    }

    /// The user's own folder within a shared one, for files that have names for a while.
    fn own_folder(&self, create: bool) -> Result<OwnedFd, FileError> {
        let user = rustix::process::geteuid().as_raw();
        let name = format!("vgas-{user}");
        let path = self.path.join(&name);
        let failed = |errno| system("open the folder", &path, errno);
        if create {
            match rustix::fs::mkdirat(&self.descriptor, &name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(system("create the folder", &path, errno)),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.descriptor, &name, flags, Mode::empty()).map_err(failed)?;
        let status = rustix::fs::fstat(&opened).map_err(failed)?;
        let why = match status.st_uid == user {
            false => Untrusted::Owner { user: status.st_uid },
            true if status.st_mode & 0o077 != 0 => Untrusted::OwnFolderMode { mode: status.st_mode & 0o777 },
            true => return Ok(opened),
        };
        Err(FileError::Untrusted { path, why })
    }

    /// Returns true if files in this folder take direct I/O. Tries a transfer, because filesystems that
    /// accept the flag may still refuse it. An error means that nothing can be stored there.
    pub(super) fn takes_direct_io(&self) -> Result<bool, FileError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = match self.unnamed(flags | OFlags::DIRECT, false) {
            Err(FileError::System { errno: Errno::INVAL, .. }) => {
                self.unnamed(flags, false)?;
                return Ok(false);
            }
            opened => opened?.0,
        };
        #[repr(align(4096))]
        struct Block([u8; 4096]);
        let block = Box::new(Block([0; 4096]));
        match rustix::io::pwrite(&file, &block.0, 0) {
            Ok(_) => Ok(true),
            Err(Errno::INVAL) => Ok(false),
            Err(errno) => Err(system("write to a file in", &self.path, errno)),
        }
    }

    /// Returns true if a folder that takes no new files, for this reason, may still have segments to read. A
    /// folder without any is useless, and the caller reports that at once.
    pub(super) fn may_be_read(&self, error: &FileError) -> bool {
        let FileError::System { errno, .. } = error else { return false };
        let refuses_writes =
            matches!(*errno, Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::NOSPC | Errno::DQUOT);
        refuses_writes && names_in(&self.descriptor).iter().any(|name| name.ends_with(".vgas"))
    }

    /// Removes what killed processes of this user have left here. Best effort: files that cannot be removed
    /// stay.
    pub(super) fn clean(&self) {
        remove_abandoned(&self.descriptor);
        if self.is_shared
            && let Ok(own) = self.own_folder(false)
        {
            remove_abandoned(&own);
        }
        let files = self.names_within();
        files.iter().filter(|name| name.ends_with(".vgas")).for_each(|name| self.clear_if_unused(name));
    }

    /// Gives back the space of a file without a checkpoint whose job has ended: all of its pages read as zeros.
    fn clear_if_unused(&self, name: &str) {
        let status = rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_worth_it = |status: &Stat| {
            status.st_blocks * 512 >= WORTH_CLEARING
                && status.st_uid == rustix::process::geteuid().as_raw()
                && FileType::from_raw_mode(status.st_mode).is_file()
        };
        if !status.is_ok_and(|status| is_worth_it(&status)) {
            return;
        }
        let Ok(Some(file)) = self.open_file(name, OFlags::RDWR) else { return };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        let file = std::fs::File::from(file);
        let superblock = |place| {
            let mut block = [0; BLOCK_BYTES];
            let read = file.read_exact_at(&mut block, superblock_at(place));
            read.map_err(|_| NoSuperblock::Unreadable).and_then(|()| Superblock::decode(&block, place))
        };
        // Everything else may be read one day.
        if let (Ok(one), Err(NoSuperblock::Absent | NoSuperblock::Void)) =
            (superblock(Place::A), superblock(Place::B))
            && one.checkpoint.generation == 0
            && let Some(geometry) = Geometry::new(one.page_bytes, one.pages)
        {
            clear(&file, geometry.page_at(0, Place::A));
        }
    }
}

/// A name that a file has until it gets its own.
#[derive(Debug)]
pub(crate) struct TemporaryName {
    folder: OwnedFd,
    name: String,
}

impl TemporaryName {
    /// Takes the name away. Best effort: the worst is a sparse file that stays until the next job of the user.
    pub(crate) fn remove(&self) {
        let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
    }

    /// Gives the file its own name in a folder of the same filesystem; fails when there is one.
    fn rename(&self, to: &Folder, name: &str) -> Result<(), Errno> {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(&self.folder, &self.name, to.descriptor(), name, flags)
    }
}

/// Turns everything of a file from a byte on into a hole, if the filesystem can.
pub(super) fn clear(file: impl std::os::fd::AsFd, from: u64) {
    let Ok(status) = rustix::fs::fstat(&file) else { return };
    if let Some(bytes) = (status.st_size as u64).checked_sub(from).filter(|&bytes| bytes > 0) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&file, flags, from, bytes);
    }
}

pub(super) fn system(what: &'static str, path: &Path, errno: Errno) -> FileError {
    FileError::System { what, path: path.to_owned(), errno }
}

/// Opens one name for looking at it, and as a folder to open others in.
fn open_at(folder: impl std::os::fd::AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

/// The names of a path, without its anchor.
fn names_of(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|one| matches!(one, Component::Normal(_) | Component::ParentDir))
        .map(|one| one.as_os_str().to_owned())
        .collect()
}

/// Names in a folder, as far as it can be listed and they are text.
fn names_in(folder: &OwnedFd) -> Vec<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(folder, ".", flags, Mode::empty()).and_then(Dir::new);
    let names = opened.into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned)).collect()
}

/// Removes temporary files whose processes were killed before they could.
fn remove_abandoned(folder: &OwnedFd) {
    let user = rustix::process::geteuid().as_raw();
    for name in names_in(folder).iter().filter(|name| name.starts_with(TEMPORARY)) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(folder, name, flags, Mode::empty()) else { continue };
        let Ok(status) = rustix::fs::fstat(&file) else { continue };
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(status.st_mtime.max(0) as u64);
        let is_old = SystemTime::now().duration_since(changed).is_ok_and(|age| age >= ABANDONED_AGE);
        let is_ours = status.st_uid == user && FileType::from_raw_mode(status.st_mode).is_file();
        if is_old && is_ours && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
    }
}

/// Checks a folder; whether every user may create files in it.
fn check_folder(folder: &OwnedFd, path: &Path) -> Result<bool, FileError> {
    let status = rustix::fs::fstat(folder).map_err(|errno| system("open the folder", path, errno))?;
    if !FileType::from_raw_mode(status.st_mode).is_dir() {
        return Err(system("open the folder", path, Errno::NOTDIR));
    }
    check_owner(&status, path, true)?;
    let is_shared = status.st_mode & 0o002 != 0;
    match is_shared && status.st_mode & Mode::SVTX.as_raw_mode() == 0 {
        true => {
            let why = Untrusted::FolderMode { mode: status.st_mode & 0o7777 };
            Err(FileError::Untrusted { path: path.to_owned(), why })
        }
        false => Ok(is_shared),
    }
}

fn check_owner(status: &Stat, path: &Path, is_on_the_way: bool) -> Result<(), FileError> {
    let user = status.st_uid;
    let is_own = user == rustix::process::geteuid().as_raw() || user == 0;
    match is_own || is_on_the_way && Some(user) == unmapped_user() {
        true => Ok(()),
        false => Err(FileError::Untrusted { path: path.to_owned(), why: Untrusted::Owner { user } }),
    }
}

/// The user that stands for all that have no number here, root of the machine among them, in a user namespace with some numbers
/// only, as containers without privileges are. None elsewhere.
fn unmapped_user() -> Option<u32> {
    static UNMAPPED: OnceLock<Option<u32>> = OnceLock::new();
    *UNMAPPED.get_or_init(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
        let is_whole = |line: &str| line.split_whitespace().eq(["0", "0", "4294967295"]);
        if map.lines().any(is_whole) {
            return None;
        }
        let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
        text.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    /// A user that is neither root nor any that runs tests.
    const STRANGER: u32 = 64_321;

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn untrusted(result: Result<impl std::fmt::Debug, FileError>) -> Untrusted {
        match result.unwrap_err() {
            FileError::Untrusted { why, .. } => why,
            other => panic!("{other}"),
        }
    }

    /// Gives a file away; false where only root could.
    fn give_away(path: &Path) -> bool {
        match std::os::unix::fs::lchown(path, Some(STRANGER), None) {
            Ok(()) => true,
            Err(error) => {
                eprintln!("skipped: only root gives files away ({error})");
                false
            }
        }
    }

    /// Goal: no file is used that another user has put there, or can change. Method: each kind of plant, in a folder that every
    /// user may write to.
    #[test]
    fn planted_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let shared = place.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        mode(&shared, 0o1777);
        let folder = Folder::open(&shared).unwrap();
        assert!(folder.is_shared);
        let open = |name: &str| folder.open_file(name, OFlags::RDWR);
        assert!(open("none").unwrap().is_none());
        let file = shared.join("store.0.0.vgas");
        std::fs::write(&file, "something").unwrap();
        for (bits, is_fine) in [(0o600, true), (0o644, true), (0o666, false), (0o660, false), (0o602, false)]
        {
            mode(&file, bits);
            match is_fine {
                true => assert!(open("store.0.0.vgas").unwrap().is_some()),
                false => {
                    assert_eq!(untrusted(open("store.0.0.vgas")), Untrusted::FileMode { mode: bits });
                }
            }
        }
        symlink(&file, shared.join("link")).unwrap();
        assert_eq!(untrusted(open("link")), Untrusted::IsLink);
        symlink("nowhere", shared.join("dangling")).unwrap();
        assert_eq!(untrusted(open("dangling")), Untrusted::IsLink);
        mode(&file, 0o600);
        if give_away(&file) {
            assert_eq!(untrusted(open("store.0.0.vgas")), Untrusted::Owner { user: STRANGER });
        }
    }

    /// Goal: a folder is used only if no other user can replace it, or its content.
    #[test]
    fn every_step_of_a_path_is_checked() {
        let place = tempfile::tempdir().unwrap();
        let (outer, inner) = (place.path().join("outer"), place.path().join("outer/inner"));
        std::fs::create_dir_all(&inner).unwrap();
        symlink("outer/../outer", place.path().join("way")).unwrap();
        symlink(&inner, place.path().join("absolute")).unwrap();
        for path in ["outer/inner", "way/inner", "absolute", "outer/./inner/"] {
            let folder = Folder::open(&place.path().join(path)).unwrap();
            let status = rustix::fs::fstat(folder.descriptor()).unwrap();
            assert_eq!(status.st_ino, std::fs::metadata(&inner).unwrap().ino(), "{path}");
            assert!(!folder.is_shared);
        }
        let open = || Folder::open(&place.path().join("way/inner"));
        for (bits, is_fine) in [(0o777, false), (0o702, false), (0o1777, true), (0o775, true), (0o700, true)]
        {
            mode(&outer, bits);
            match is_fine {
                true => drop(open().unwrap()),
                false => assert_eq!(untrusted(open()), Untrusted::FolderMode { mode: bits }),
            }
        }
        let system = |path: &str, errno| {
            let error = Folder::open(&place.path().join(path)).unwrap_err();
            assert!(matches!(error, FileError::System { errno: found, .. } if found == errno), "{error}");
        };
        system("none", Errno::NOENT);
        std::fs::write(place.path().join("file"), "").unwrap();
        system("file", Errno::NOTDIR);
        symlink("circle", place.path().join("circle")).unwrap();
        system("circle", Errno::LOOP);
        for given in ["way", "outer", "outer/inner"] {
            let path = place.path().join(given);
            if !give_away(&path) {
                return;
            }
            assert_eq!(untrusted(open()), Untrusted::Owner { user: STRANGER }, "{given}");
            std::os::unix::fs::lchown(&path, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        }
        drop(open().unwrap());
    }

    /// Goal: temporary names in a folder shared by all users lie in a subfolder of this user, which no other
    /// user can have made.
    #[test]
    fn temporary_names_are_in_an_own_folder() {
        let place = tempfile::tempdir().unwrap();
        mode(place.path(), 0o1777);
        let folder = Folder::open(place.path()).unwrap();
        let own = place.path().join(format!("vgas-{}", rustix::process::geteuid().as_raw()));
        folder.own_folder(true).unwrap();
        assert_eq!(std::fs::metadata(&own).unwrap().mode() & 0o7777, 0o700);
        folder.own_folder(true).unwrap();
        mode(&own, 0o750);
        assert_eq!(untrusted(folder.own_folder(true)), Untrusted::OwnFolderMode { mode: 0o750 });
        mode(&own, 0o700);
        if give_away(&own) {
            assert_eq!(untrusted(folder.own_folder(true)), Untrusted::Owner { user: STRANGER });
        }
        std::fs::remove_dir(&own).unwrap();
        symlink(place.path(), &own).unwrap();
        assert!(folder.own_folder(true).is_err());
    }
}
