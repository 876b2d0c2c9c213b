//! The fallback: plain calls in a few threads, for kernels that refuse io_uring and filesystems that refuse direct I/O.
//!
//! Direct if the filesystem takes it. Otherwise the page cache holds every page a second time; that is slower
//! and costs memory, but gives the same results.

use super::Whereabouts;
use super::files::Files;
use super::folder::Folder;
use super::transfer::Transfer;
use super::{Completion, Device, FileId, Lent, Limits, Naming, Operation, Submitted};
use crate::error::{DeviceError, FileError};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Most threads: each keeps one operation at the disk busy, and more of them bring little on common NVMe devices.
const THREADS_MAX: usize = 16;

/// A device of plain blocking calls.
pub struct BlockingDevice {
    files: Files,
    shared: Arc<Shared>,
    /// If none could be started, the submitting thread does the operation itself.
    threads: Vec<JoinHandle<()>>,
    in_flight: usize,
    capacity: usize,
    name: &'static str,
}

struct Shared {
    tasks: Mutex<Tasks>,
    work: Condvar,
    done: Mutex<Vec<Completion>>,
    /// Readable while `done` is not empty; changed only under its lock.
    bell: OwnedFd,
}

struct Tasks {
    queue: VecDeque<Transfer>,
    closing: bool,
}

impl BlockingDevice {
    /// Files in `directory`, with `queue_depth` operations in flight; direct I/O is used if the folder takes it.
    pub fn open(directory: &Path, queue_depth: u32) -> Result<Self, FileError> {
        let mut folder = Folder::open(directory)?;
        folder.clean();
        let direct = match folder.takes_direct_io() {
            Err(error) if folder.may_be_read(&error) => {
                folder.refuse(&error);
                false
            }
            taken => taken?,
        };
        Self::over(folder, direct, queue_depth)
    }

    /// A device over a folder that has been looked at.
    pub(super) fn over(folder: Folder, direct: bool, queue_depth: u32) -> Result<Self, FileError> {
        let directory = folder.path().to_owned();
        let system =
            |errno| FileError::System { what: "start the device of", path: directory.clone(), errno };
        let shared = Arc::new(Shared {
            tasks: Mutex::new(Tasks { queue: VecDeque::new(), closing: false }),
            work: Condvar::new(),
            done: Mutex::new(Vec::new()),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?,
        });
        let capacity = (queue_depth as usize).max(1);
        let mut device = Self {
            files: Files::new(folder, direct),
            shared,
            threads: Vec::new(),
            in_flight: 0,
            capacity,
            name: if direct { "plain calls, direct" } else { "plain calls, buffered" },
        };
        for number in 0..capacity.min(THREADS_MAX) {
            let shared = device.shared.clone();
            let thread = std::thread::Builder::new().name(format!("vgas-disk-{number}"));
            match thread.spawn(move || shared.work()) {
                Ok(thread) => device.threads.push(thread),
                // Fewer threads are slower, not wrong; nor are none.
                Err(_) => break,
            }
        }
        if device.threads.is_empty() {
            device.name = "plain calls, one at a time";
        }
        Ok(device)
    }
}

impl Shared {
    fn work(&self) {
        loop {
            let mut tasks = lock(&self.tasks);
            let transfer = loop {
                match tasks.queue.pop_front() {
                    Some(transfer) => break transfer,
                    None if tasks.closing => return,
                    None => tasks = self.work.wait(tasks).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(tasks);
            self.finish(transfer.run());
        }
    }

    fn finish(&self, completion: Completion) {
        let mut done = lock(&self.done);
        if done.is_empty() {
            // Cannot fail: the counter goes from 0 to 1.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
        done.push(completion);
    }
}

impl Drop for BlockingDevice {
    fn drop(&mut self) {
        lock(&self.shared.tasks).closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of that thread has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Device for BlockingDevice {
    fn name(&self) -> &str {
        self.name
    }

    fn limits(&self) -> Limits {
        let alignment = if self.files.is_direct() { super::DIRECT_ALIGNMENT } else { 1 };
        Limits { alignment, spans_max: 256, run_bytes_max: 1 << 20 }
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn create(&mut self, bytes: u64, naming: Naming) -> Result<FileId, FileError> {
        self.files.create(bytes, naming)
    }

    fn publish(&mut self, file: FileId, name: &str) -> Result<(), FileError> {
        self.files.publish(file, name)
    }

    fn open(&mut self, name: &str) -> Result<Option<FileId>, FileError> {
        self.files.open(name)
    }

    fn file_bytes(&self, file: FileId) -> Result<u64, FileError> {
        self.files.file_bytes(file)
    }

    fn read_only(&self, file: FileId) -> Option<rustix::io::Errno> {
        self.files.read_only(file)
    }

    fn share(&self, file: FileId) -> Option<Whereabouts> {
        self.files.share(file)
    }

    fn lend(&self, file: FileId) -> Option<Lent> {
        self.files.lend(file)
    }

    fn join(&mut self, file: FileId, lent: Lent) -> Result<(), FileError> {
        self.files.join(file, lent);
        Ok(())
    }

    fn full(&self) -> Option<rustix::io::Errno> {
        self.files.full()
    }

    fn clear(&mut self, file: FileId, from: u64) {
        self.files.clear(file, from);
    }

    fn describe(&self, file: FileId) -> String {
        self.files.describe(file)
    }

    fn close(&mut self, file: FileId) {
        self.files.close(file);
    }

    fn submit(&mut self, operation: Operation) -> Submitted {
        if self.in_flight == self.capacity {
            return Submitted::Busy(operation);
        }
        self.in_flight += 1;
        let alignment = self.limits().alignment;
        match self.files.descriptor(operation.file) {
            Some(descriptor) if operation.aligned_to(alignment) => {
                let transfer = Transfer::new(operation, descriptor.clone());
                if self.threads.is_empty() {
                    self.shared.finish(transfer.run());
                } else {
                    lock(&self.shared.tasks).queue.push_back(transfer);
                    self.shared.work.notify_one();
                }
            }
            found => {
                let error = found.map_or(DeviceError::Closed, |_| DeviceError::Misaligned { alignment });
                self.shared.finish(Completion {
                    key: operation.key,
                    spans: operation.spans,
                    result: Err(error),
                });
            }
        }
        Submitted::Accepted
    }

    fn flush_submissions(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let mut done = lock(&self.shared.done);
        if done.is_empty() {
            return Ok(0);
        }
        let mut counter = [0; 8];
        rustix::io::read(&self.shared.bell, &mut counter).map_err(|errno| DeviceError::of(errno, 0))?;
        let count = done.len();
        completions.append(&mut done);
        self.in_flight -= count;
        Ok(count)
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    fn arm(&mut self) -> bool {
        lock(&self.shared.done).is_empty()
    }

    fn disarm(&mut self) {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
