//! Errors of segment files. Each says which file, segment and page, the operation, its progress, and what to
//! do about it.

use rustix::io::Errno;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = VolumeError> = std::result::Result<T, E>;

/// Why one operation of a [`Device`](crate::device::Device) failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The system refused or the hardware failed.
    #[error("{errno} ({bytes_done} bytes done)")]
    System {
        /// The system's reason.
        errno: Errno,
        /// Bytes moved before it happened.
        bytes_done: u64,
    },
    /// No space is left on the filesystem, or the user's quota is used up.
    #[error("{} ({bytes_done} bytes done)", no_space(*errno))]
    NoSpace {
        /// The error number: space or quota.
        errno: Errno,
        /// Bytes written before it happened.
        bytes_done: u64,
    },
    /// The file ends before the bytes asked for, or the device stopped moving bytes without saying why.
    #[error("only {bytes_done} of {bytes_asked} bytes")]
    Short {
        /// Bytes moved.
        bytes_done: u64,
        /// Bytes asked for.
        bytes_asked: u64,
    },
    /// Offset, length or memory is not a multiple of direct I/O's unit.
    #[error("offset, length or memory is no multiple of {alignment} bytes")]
    Misaligned {
        /// The multiple.
        alignment: u64,
    },
    /// The file was never opened or has been closed, or the device no longer takes operations.
    #[error("the file or the device is closed")]
    Closed,
}

impl DeviceError {
    /// The error for a system error number, with "disk full" told apart from the others.
    pub fn of(errno: Errno, bytes_done: u64) -> Self {
        match errno {
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace { errno, bytes_done },
            errno => Self::System { errno, bytes_done },
        }
    }

    /// Bytes that were moved before the failure.
    pub fn bytes_done(&self) -> u64 {
        match *self {
            Self::System { bytes_done, .. }
            | Self::NoSpace { bytes_done, .. }
            | Self::Short { bytes_done, .. } => bytes_done,
            Self::Misaligned { .. } | Self::Closed => 0,
        }
    }
}

impl DeviceError {
    /// The system's number of it, if it was the system that refused.
    pub fn errno(&self) -> Option<Errno> {
        match *self {
            Self::System { errno, .. } | Self::NoSpace { errno, .. } => Some(errno),
            Self::Short { .. } | Self::Misaligned { .. } | Self::Closed => None,
        }
    }
}

fn no_space(errno: Errno) -> &'static str {
    if errno == Errno::DQUOT { "the user's quota is used up" } else { "no space left" }
}

/// Why a file could not be created, named or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refused.
    #[error("cannot {what} {}: {errno}; {}", path.display(), advice(*errno))]
    System {
        /// The attempted operation: a verb.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        errno: Errno,
    },
    /// The name is taken.
    #[error("{} exists already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another user could have put it there, or can change it.
    #[error("cannot use {}: {why}", path.display())]
    Untrusted {
        /// The file, or the step of the path.
        path: PathBuf,
        /// Why.
        why: Untrusted,
    },
    /// Another job has the file open.
    #[error("{} is in use by another job; wait for its end or choose another name", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
}

/// Reason why a file or folder is not trusted with a job's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Untrusted {
    /// It belongs to another user than this one and root.
    #[error(
        "it belongs to user {user}, who could read and change what is stored there; use a folder of your own \
         (nvm.directory), or another name"
    )]
    Owner {
        /// Its owner.
        user: u32,
    },
    /// Other users may write the file.
    #[error(
        "other users may write it (mode {mode:03o}); if you trust what it holds, `chmod go-w` it, else remove it"
    )]
    FileMode {
        /// Its permissions.
        mode: u32,
    },
    /// Every user may write to the folder, and it is not sticky.
    #[error(
        "every user may rename and remove files in it (mode {mode:04o}); `chmod o-w` or `chmod +t` it, or use another \
         folder (nvm.directory)"
    )]
    FolderMode {
        /// Its permissions.
        mode: u32,
    },
    /// The user's own folder for temporary files lets others in.
    #[error("other users may enter it (mode {mode:03o}); `chmod 700` it")]
    OwnFolderMode {
        /// Its permissions.
        mode: u32,
    },
    /// A symbolic link in the place of a segment's file.
    #[error(
        "it is a symbolic link, and files are not followed out of their folder; move what it names there, or set \
         nvm.directory to where that is"
    )]
    IsLink,
}

fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => "choose a folder you may write to",
        Errno::NOENT => "create the folder first",
        Errno::NOTDIR => "choose a folder",
        Errno::NOSPC | Errno::DQUOT => "free space there or choose another folder",
        Errno::FBIG => {
            "its filesystem, or the limit of the file size (ulimit -f), has no files that large: use a smaller segment \
             or another filesystem"
        }
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (ulimit -n)",
        _ => "check the folder and its filesystem",
    }
}

/// An operation on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOperation {
    /// Reading it.
    Read,
    /// Writing it.
    Write,
    /// Giving it back.
    Discard,
    /// A checkpoint of its segment.
    Flush,
}

impl std::fmt::Display for PageOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
        })
    }
}

/// Everything that can go wrong in a [`Volume`](crate::Volume). Errors say one line each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The device failed in the middle of an operation on a page.
    #[error(
        "cannot {operation} page {page} of segment {segment} in {file}: {source}; check the device (dmesg)"
    )]
    Page {
        /// The segment file.
        file: String,
        /// The segment.
        segment: u32,
        /// The page.
        page: u64,
        /// The failed operation.
        operation: PageOperation,
        /// The device's error, with the bytes done.
        source: DeviceError,
    },
    /// There is no room for a page. In named segments the page's old content is unharmed.
    #[error(
        "cannot {operation} {what} of segment {segment} in {file}: {source}; free space there or put the segments in \
         another folder"
    )]
    NoSpace {
        /// The segment file.
        file: String,
        /// The segment.
        segment: u32,
        /// "page 7" or "the page map".
        what: String,
        /// The failed operation.
        operation: PageOperation,
        /// The device's error, with the bytes done.
        source: DeviceError,
    },
    /// The bytes read are not the bytes written.
    #[error(
        "page {page} of segment {segment} in {file} is corrupt: the checksum of its bytes {}..{} is {found:#010x} instead \
         of {expected:#010x}; the device or the file was changed behind the job's back, restore it from a copy",
        bytes.start, bytes.end
    )]
    Corrupt {
        /// The segment file.
        file: String,
        /// The segment.
        segment: u32,
        /// The page.
        page: u64,
        /// The bytes of it that were checked: the first block that is wrong, or all where blocks are not known.
        bytes: std::ops::Range<u32>,
        /// The checksum of the written bytes.
        expected: u32,
        /// The checksum of the bytes read.
        found: u32,
    },
    /// The page's place and checksum are unknown, because its part of the page map is damaged. Writing the
    /// whole page makes it usable again.
    #[error("page {page} of segment {segment} in {file} is lost: its entry in the page map is damaged")]
    Lost {
        /// The segment file.
        file: String,
        /// The segment.
        segment: u32,
        /// The page.
        page: u64,
    },
    /// A checkpoint failed. The segment can still be read; the last complete checkpoint is still in the file, or
    /// this one is, but no later one will be made.
    #[error(
        "cannot flush segment {segment} in {file} while {step}: {source}; end the job and restart from the last flush"
    )]
    Flush {
        /// The segment file.
        file: String,
        /// The segment.
        segment: u32,
        /// The step of the checkpoint.
        step: &'static str,
        /// The device's error.
        source: DeviceError,
    },
    /// An earlier checkpoint failed when it was no longer certain what the file holds, so nothing is written any more.
    #[error(
        "segment {segment} in {file} takes no writes since its flush failed ({source}); restart from the last flush"
    )]
    WritesStopped {
        /// The segment file.
        file: String,
        /// The segment.
        segment: u32,
        /// The device's error of the failed flush.
        source: DeviceError,
    },
    /// The segment was opened for reading only, because nothing can be written there.
    #[error(
        "segment {segment} in {file} can only be read: {source}; make the folder writable, or free space there"
    )]
    ReadOnly {
        /// The segment file.
        file: String,
        /// The segment.
        segment: u32,
        /// The device's error of the first write.
        source: DeviceError,
    },
    /// The device itself failed, not one operation.
    #[error("the storage device failed: {0}")]
    Device(#[from] DeviceError),
    /// A file could not be created, named or opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// A named segment's file, or a folder, cannot be used.
    #[error("cannot use {file}: {reason}")]
    Unusable {
        /// The file.
        file: String,
        /// Why.
        reason: Unusable,
    },
    /// A call that the interface forbids.
    #[error("wrong use of a volume: {0}")]
    Usage(String),
}

impl VolumeError {
    /// The system's number of the cause, if it was the system that refused.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Page { source, .. }
            | Self::NoSpace { source, .. }
            | Self::Flush { source, .. }
            | Self::WritesStopped { source, .. }
            | Self::ReadOnly { source, .. }
            | Self::Device(source) => source.errno(),
            Self::File(FileError::System { errno, .. }) => Some(*errno),
            _ => None,
        }
    }
}

/// Reason why a file or folder cannot be used for segments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// It does not start like one.
    #[error(
        "it is no segment file of vgas, or its header is damaged; choose another name or restore it from a copy"
    )]
    NotASegment,
    /// It was written by a version of this program with another format.
    #[error("it has format {found}, this program reads {expected}; use the program that wrote it")]
    Format {
        /// The file's format.
        found: u32,
        /// This program's format.
        expected: u32,
    },
    /// It belongs to another rank.
    #[error("it is segment {found}, not {expected}; was it renamed?")]
    Segment {
        /// The file's segment.
        found: u32,
        /// The segment asked for.
        expected: u32,
    },
    /// Its pages have another size.
    #[error("its pages have {found} bytes, the job's {expected}; run with that page size")]
    PageBytes {
        /// The file's page size.
        found: u32,
        /// The job's.
        expected: u32,
    },
    /// It has another number of pages.
    #[error(
        "it has {} bytes of a rank, the job asks for {}; run with that segment size",
        .found.saturating_mul((*.page_bytes).into()), .expected.saturating_mul((*.page_bytes).into())
    )]
    Pages {
        /// The file's number.
        found: u64,
        /// The job's.
        expected: u64,
        /// Bytes of each.
        page_bytes: u32,
    },
    /// It has been cut off.
    #[error("it has {found} bytes where {expected} belong: it was truncated; restore it from a copy")]
    Truncated {
        /// The file's length.
        found: u64,
        /// The length it was created with.
        expected: u64,
    },
    /// It does not hold the checkpoint that all ranks have; another job has changed it meanwhile.
    #[error("it holds {}, not checkpoint {asked}; another job has changed it, try again", checkpoints(found))]
    Checkpoint {
        /// The generation asked for.
        asked: u64,
        /// The generations it holds, the newest first.
        found: Vec<u64>,
    },
    /// The device that was asked for is not available there.
    #[error("{0}")]
    Refused(String),
    /// Neither of its two superblocks can be read.
    #[error("both of its superblocks are damaged ({0}); restore it from a copy")]
    Superblocks(String),
}

fn checkpoints(generations: &[u64]) -> String {
    match generations {
        [] => "no checkpoint".to_owned(),
        [newest] => format!("checkpoint {newest}"),
        [newest, before, ..] => format!("checkpoints {newest} and {before}"),
    }
}
