//! Which device a folder gets.

use super::Device;
use super::memory::{MemoryDevice, MemoryDisk};
use crate::error::{Result, VolumeError};
use std::path::Path;
use std::sync::Arc;
use vgas_rma::shm::Mapping;

/// Which device to use.
#[derive(Clone, Debug, Default)]
pub enum DeviceChoice {
    /// io_uring with direct I/O, or the fallback where one of them is refused, which is then said once.
    #[default]
    Auto,
    /// io_uring with direct I/O, or an error.
    Uring,
    /// Plain calls in a few threads, direct where the filesystem takes it.
    Blocking,
    /// Memory: no file is touched.
    Memory(MemoryDisk),
}

/// Opens a device over `directory` for `queue_depth` operations in flight.
pub(crate) fn open(
    _directory: &Path,
    choice: &DeviceChoice,
    queue_depth: u32,
    _frames: Option<Arc<Mapping>>,
) -> Result<Box<dyn Device>> {
    match choice {
        DeviceChoice::Memory(disk) => Ok(Box::new(MemoryDevice::new(disk, queue_depth as usize)?)),
        _ => Err(VolumeError::Usage("only the memory device is there yet".to_owned())),
    }
}
