//! The drive of a simulated node: a disk in memory whose completions are shown when the node's drive would have them.

use super::machine::Machine;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use vgas_nvm::device::memory::{MemoryDevice, MemoryDisk};
use vgas_nvm::device::{Completion, Device, FileId, Kind, Limits, Naming, Operation, Submitted};
use vgas_nvm::{DeviceError, FileError};

/// Operations in flight.
const CAPACITY: usize = 128;

/// The drive of one node.
pub struct Drive {
    machine: Arc<Machine>,
    node: usize,
    limits: Limits,
    /// Made with the first file: most nodes have none, and a descriptor each.
    disk: Option<MemoryDevice>,
    /// A dummy: no thread sleeps on it.
    descriptor: Arc<OwnedFd>,
    /// When operations are over, by key.
    due: HashMap<u64, u64>,
    held: Vec<(u64, Completion)>,
}

impl Drive {
    /// Without files. Runs longer than `run_bytes_max` simulated bytes bring nothing.
    pub fn new(machine: &Arc<Machine>, node: usize, descriptor: &Arc<OwnedFd>, run_bytes_max: u64) -> Self {
        Self {
            machine: machine.clone(),
            node,
            limits: Limits { alignment: 512, spans_max: 64, run_bytes_max },
            disk: None,
            descriptor: descriptor.clone(),
            due: HashMap::new(),
            held: Vec::new(),
        }
    }

    fn disk(&mut self) -> Result<&mut MemoryDevice, DeviceError> {
        match self.disk {
            Some(ref mut disk) => Ok(disk),
            None => Ok(self.disk.insert(MemoryDevice::new(&MemoryDisk::new(), CAPACITY)?)),
        }
    }
}

fn refused(error: DeviceError) -> FileError {
    tracing::debug!(%error, "a simulated drive");
    FileError::System { what: "make a simulated drive", path: "memory".into(), errno: Errno::MFILE }
}

impl Device for Drive {
    fn name(&self) -> &str {
        "simulated"
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn capacity(&self) -> usize {
        CAPACITY
    }

    fn in_flight(&self) -> usize {
        self.due.len() + self.held.len()
    }

    fn create(&mut self, bytes: u64, naming: Naming) -> Result<FileId, FileError> {
        self.disk().map_err(refused)?.create(bytes, naming)
    }

    fn publish(&mut self, file: FileId, name: &str) -> Result<(), FileError> {
        self.disk().map_err(refused)?.publish(file, name)
    }

    fn open(&mut self, name: &str) -> Result<Option<FileId>, FileError> {
        self.disk().map_err(refused)?.open(name)
    }

    fn file_bytes(&self, file: FileId) -> Result<u64, FileError> {
        let none = FileError::System { what: "measure", path: "memory".into(), errno: Errno::BADF };
        self.disk.as_ref().map_or(Err(none), |disk| disk.file_bytes(file))
    }

    fn describe(&self, _: FileId) -> String {
        format!("the simulated drive of node {}", self.node)
    }

    fn close(&mut self, file: FileId) {
        if let Some(disk) = &mut self.disk {
            disk.close(file);
        }
    }

    fn submit(&mut self, operation: Operation) -> Submitted {
        let (key, bytes) = (operation.key, operation.bytes());
        let moves = matches!(operation.kind, Kind::Read | Kind::Write);
        let Ok(disk) = self.disk() else { return Submitted::Busy(operation) };
        let submitted = disk.submit(operation);
        if matches!(submitted, Submitted::Accepted) {
            let due = if moves { self.machine.drive(self.node, bytes) } else { self.machine.now() };
            self.due.insert(key, due);
        }
        submitted
    }

    fn flush_submissions(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let mut done = Vec::new();
        if let Some(disk) = &mut self.disk {
            disk.poll(&mut done)?;
        }
        let now = self.machine.now();
        self.held.extend(done.into_iter().map(|one| (self.due.remove(&one.key).unwrap_or(now), one)));
        // The order in which the drive has done them.
        self.held.sort_by_key(|(due, _)| *due);
        let over = self.held.partition_point(|(due, _)| *due <= now);
        completions.extend(self.held.drain(..over).map(|(_, completion)| completion));
        Ok(over)
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&*self.descriptor)
    }

    fn arm(&mut self) -> bool {
        self.in_flight() == 0
    }

    fn disarm(&mut self) {}
}
