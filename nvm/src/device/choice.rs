//! Choice of the device for a folder.

use super::Device;
use super::blocking::BlockingDevice;
use super::folder::Folder;
use super::memory::{MemoryDevice, MemoryDisk};
use super::uring::{NO_WORKERS, UringDevice};
use crate::error::{Result, Unusable, VolumeError};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::sync::{Arc, Once};
use vgas_shm::Mapping;

/// The device to use.
#[derive(Clone, Debug, Default)]
pub enum DeviceChoice {
    /// io_uring with direct I/O, or the fallback where one of them is refused, which is then said once.
    #[default]
    Auto,
    /// io_uring with direct I/O, or an error.
    Uring,
    /// Plain calls in a few threads, direct if the filesystem takes it.
    Blocking,
    /// Memory: no file is touched.
    Memory(MemoryDisk),
}

/// Why a folder does not get the fast device, for people.
pub fn why_not_fast(directory: &Path) -> Result<Option<String>> {
    let folder = Folder::open(directory)?;
    if !folder.takes_direct_io()? {
        let path = directory.display();
        return Ok(Some(format!(
            "{path} takes no direct I/O; choose a folder on an NVMe filesystem (ext4, xfs)"
        )));
    }
    Ok(UringDevice::open(directory, 1, None).err().map(refusal))
}

fn refusal(error: io::Error) -> String {
    if Errno::from_io_error(&error) == Some(Errno::CANCELED) {
        return NO_WORKERS.into();
    }
    let advice = match Errno::from_io_error(&error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "allow it in the container's filter and in kernel.io_uring_disabled"
        }
        Some(Errno::NOSYS | Errno::OPNOTSUPP) => "it needs Linux 5.6 or later",
        Some(Errno::NOMEM) => "raise the limit of locked memory (ulimit -l)",
        _ => "see the kernel's log",
    };
    format!("io_uring is refused ({error}); {advice}")
}

/// Opens a device over `directory` for `queue_depth` operations in flight.
pub(crate) fn open(
    directory: &Path,
    choice: &DeviceChoice,
    queue_depth: u32,
    frames: Option<Arc<Mapping>>,
) -> Result<Box<dyn Device>> {
    if let DeviceChoice::Memory(disk) = choice {
        return Ok(Box::new(MemoryDevice::new(disk, queue_depth as usize)?));
    }
    if let DeviceChoice::Blocking = choice {
        return Ok(Box::new(BlockingDevice::open(directory, queue_depth)?));
    }
    let mut folder = Folder::open(directory)?;
    folder.clean();
    let taken = match folder.takes_direct_io() {
        Err(error) if folder.may_be_read(&error) && !matches!(choice, DeviceChoice::Uring) => {
            tracing::warn!("{error}; the segments there can be read all the same");
            folder.refuse(&error);
            return Ok(Box::new(BlockingDevice::over(folder, false, queue_depth)?));
        }
        taken => taken?,
    };
    let refused = match taken {
        true => match UringDevice::in_folder(folder.try_clone()?, queue_depth, frames) {
            Ok(device) => return Ok(Box::new(device)),
            Err(error) => refusal(error),
        },
        false => format!("{} takes no direct I/O", directory.display()),
    };
    if let DeviceChoice::Uring = choice {
        let file = directory.display().to_string();
        return Err(VolumeError::Unusable { file, reason: Unusable::Refused(refused) });
    }
    let device = BlockingDevice::over(folder, taken, queue_depth)?;
    static SAID: Once = Once::new();
    SAID.call_once(|| tracing::warn!("{refused}; using {} instead, which is slower", device.name()));
    Ok(Box::new(device))
}
