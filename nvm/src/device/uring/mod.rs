//! The real device: io_uring, direct I/O, registered files, and registered buffers for the node's frames.
//!
//! The ring carries an index into a table that owns each operation's memory, vectors and descriptor; an entry leaves
//! the table only when its completion has been seen (rules 1 and 3 of `device/transfer.rs`). Dropping the device waits
//! for what the kernel still works on.
//!
//! Sleeping needs no eventfd: the ring's own descriptor is readable while completions wait in it.
//!
//! What the kernel cannot do at once (most writes) it leaves to threads that it makes for whoever uses the ring, within
//! their limit of processes. Where it may make none, it cancels the operation. [`UringDevice::open`] finds that out; should
//! it happen later, such an operation is done by a plain call instead.

mod buffers;

use super::files::Files;
use super::folder::Folder;
use super::transfer::{Next, Transfer, Vectors, punch_mode};
use super::whereabouts::Whereabouts;
use super::{Completion, Device, FileId, Kind, Lent, Limits, Naming, Operation, Submitted};
use crate::error::{DeviceError, FileError};
use buffers::FrameBuffers;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use vgas_shm::Mapping;

/// Files that the kernel is told in advance: the segments of a node's ranks. Further ones work, a little slower.
const REGISTERED_FILES: u32 = 256;
/// Most bytes of one operation: the ring counts them in 32 bits, and the kernel moves a little less than 2 GiB at once.
const BYTES_MAX: u64 = 1 << 30;
/// Most operations in flight: half of what a ring can have, so that its completion queue holds all of them.
const QUEUE_DEPTH_MAX: u32 = 4096;

/// io_uring over files opened for direct I/O.
pub struct UringDevice {
    ring: IoUring,
    files: Files,
    registered_files: u32,
    buffers: Option<FrameBuffers>,
    /// By the index that the ring carries; `None` is free.
    slots: Vec<Option<Slot>>,
    free_slots: Vec<u32>,
    /// Completions that never were in the ring: operations that could not be started.
    refused: Vec<Completion>,
    in_flight: usize,
    capacity: usize,
    /// Pushed into the ring, not yet told to the kernel.
    unsubmitted: usize,
    /// The kernel has cancelled operations, which has been said.
    said_slow: bool,
}

struct Slot {
    transfer: Transfer,
    /// What the entry in the ring points to (rule 3).
    vectors: Vectors,
}

impl UringDevice {
    /// A ring with `queue_depth` operations in flight over files in `directory`. `frames` is registered piece by
    /// piece as it is used, as far as the limit of locked memory (`ulimit -l`) allows.
    ///
    /// # Errors
    /// The kernel (or a container's filter) refuses io_uring or lacks an operation we need: ENOSYS, EPERM, EOPNOTSUPP. It
    /// may make no thread that would do them: ECANCELED.
    pub fn open(directory: &Path, queue_depth: u32, frames: Option<Arc<Mapping>>) -> io::Result<Self> {
        let folder = Folder::open(directory).map_err(io::Error::other)?;
        folder.clean();
        Self::in_folder(folder, queue_depth, frames)
    }

    /// The same in a folder that has been looked at.
    pub(super) fn in_folder(
        folder: Folder,
        queue_depth: u32,
        frames: Option<Arc<Mapping>>,
    ) -> io::Result<Self> {
        let queue_depth = queue_depth.clamp(1, QUEUE_DEPTH_MAX);
        let ring = ring(queue_depth.next_power_of_two())?;
        Self::over(ring, queue_depth, Files::new(folder, true), frames)
    }

    /// A ring over files that other processes have opened ([`Device::adopt`]). Any thread finds what has completed, also
    /// while the one that has asked for it computes.
    ///
    /// # Errors
    /// As [`UringDevice::open`].
    pub(crate) fn reading(queue_depth: u32, frames: Option<Arc<Mapping>>) -> io::Result<Self> {
        let queue_depth = queue_depth.clamp(1, QUEUE_DEPTH_MAX);
        let ring = IoUring::new(queue_depth.next_power_of_two())?;
        Self::over(ring, queue_depth, Files::of_others(), frames)
    }

    fn over(
        mut ring: IoUring,
        queue_depth: u32,
        files: Files,
        frames: Option<Arc<Mapping>>,
    ) -> io::Result<Self> {
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
        ];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::Error::from(Errno::OPNOTSUPP));
        }
        employ(&mut ring)?;
        // Old kernels, or a low limit of open files: descriptors are then passed with each operation.
        let registered = ring.submitter().register_files_sparse(REGISTERED_FILES).is_ok();
        let buffers = frames.and_then(|frames| FrameBuffers::new(&ring.submitter(), frames));
        Ok(Self {
            ring,
            files,
            registered_files: if registered { REGISTERED_FILES } else { 0 },
            buffers,
            slots: Vec::new(),
            free_slots: Vec::new(),
            refused: Vec::new(),
            in_flight: 0,
            capacity: queue_depth as usize,
            unsubmitted: 0,
            said_slow: false,
        })
    }

    /// Bytes of the frames that are registered so far.
    pub fn registered_bytes(&self) -> u64 {
        self.buffers.as_ref().map_or(0, FrameBuffers::registered_bytes)
    }

    fn register(&mut self, file: FileId) {
        let descriptor = self.files.descriptor(file).map_or(-1, |descriptor| descriptor.as_raw_fd());
        if file.0 < self.registered_files
            && self.ring.submitter().register_files_update(file.0, &[descriptor]).is_err()
        {
            // A stale entry would name a wrong file: from this one on, none is registered.
            self.registered_files = file.0;
        }
    }

    /// Puts the entry for (the rest of) a transfer into the ring.
    fn push(&mut self, index: u32) {
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return };
        let entry =
            entry(slot, self.registered_files, &mut self.buffers, &self.ring).user_data(u64::from(index));
        // SAFETY: the entry points into the slot's vectors or spans, which stay where they are until its completion
        // (rules 1 to 3).
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            // Full: let the kernel take what is there. It always has room for `capacity` entries.
            let submitted = self.ring.submit();
            // SAFETY: as above.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_err() {
                let errno =
                    submitted.err().and_then(|error| Errno::from_io_error(&error)).unwrap_or(Errno::BUSY);
                return self.finish(index, Err(DeviceError::of(errno, 0)));
            }
            self.unsubmitted = 0;
        }
        self.unsubmitted += 1;
    }

    /// Whether the kernel has completions that it hands over when it is entered next.
    fn has_task_work(&mut self) -> bool {
        self.ring.submission().taskrun()
    }

    /// Ends an operation that is not in the ring.
    fn finish(&mut self, index: u32, result: Result<u64, DeviceError>) {
        if let Some(slot) = self.slots.get_mut(index as usize).and_then(Option::take) {
            self.free_slots.push(index);
            self.refused.push(slot.transfer.complete(result));
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let (mut again, mut cancelled) = (Vec::new(), Vec::new());
        let slots = &mut self.slots;
        for answer in self.ring.completion() {
            let index = answer.user_data() as u32;
            let Some(slot) = slots.get_mut(index as usize) else { continue };
            let Some(transfer) = slot.as_mut().map(|slot| &mut slot.transfer) else { continue };
            let moved = u64::try_from(answer.result())
                .map_err(|_| Errno::from_raw_os_error(answer.result().saturating_neg()));
            if moved == Err(Errno::CANCELED) {
                cancelled.extend(slot.take().map(|slot| slot.transfer));
                self.free_slots.push(index);
                continue;
            }
            match transfer.advance(moved) {
                Next::Continue => again.push(index),
                Next::Done(result) => {
                    let done = slot.take().map(|slot| slot.transfer.complete(result));
                    completions.extend(done);
                    self.free_slots.push(index);
                }
            }
        }
        again.into_iter().for_each(|index| self.push(index));
        if !cancelled.is_empty() && !std::mem::replace(&mut self.said_slow, true) {
            tracing::warn!("{NO_WORKERS}; plain calls do its work, which is slower");
        }
        completions.extend(cancelled.into_iter().map(Transfer::run));
        completions.append(&mut self.refused);
    }
}

/// A ring whose completions wait until this process enters the kernel anyway, and that says so. Otherwise each of them
/// would interrupt the thread, on a virtual machine at the price of a message between processors. Before Linux 5.19 they
/// do.
fn ring(entries: u32) -> io::Result<IoUring> {
    let cooperative = IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(entries);
    cooperative.or_else(|_| IoUring::new(entries))
}

/// What it means when the kernel cancels an operation, since nobody here does, and what to do about it.
pub(super) const NO_WORKERS: &str =
    "io_uring may start no threads; raise the limit of processes (`ulimit -u`, or pids.max of the cgroup)";

/// Has the kernel make the first of the threads that work for this ring, which then stays: with it, no operation on a
/// file is cancelled for want of one.
fn employ(ring: &mut IoUring) -> io::Result<()> {
    let nothing = opcode::Nop::new().build().flags(squeue::Flags::ASYNC);
    // SAFETY: the entry points to no memory.
    unsafe { ring.submission().push(&nothing) }.map_err(|_| io::Error::from(Errno::BUSY))?;
    while let Err(error) = ring.submit_and_wait(1) {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match ring.completion().next().map(|answer| answer.result()) {
        Some(0..) => Ok(()),
        Some(refused) => Err(io::Error::from_raw_os_error(-refused)),
        None => Err(io::Error::from(Errno::IO)),
    }
}

/// The ring's entry for the rest of a transfer.
fn entry(
    slot: &mut Slot,
    registered_files: u32,
    buffers: &mut Option<FrameBuffers>,
    ring: &IoUring,
) -> squeue::Entry {
    let Slot { transfer, vectors } = slot;
    let (file, kind, offset) = (transfer.operation.file, transfer.operation.kind, transfer.offset());
    let (descriptor, flags) = if file.0 < registered_files {
        (Fd(file.0 as i32), squeue::Flags::FIXED_FILE)
    } else {
        (Fd(transfer.descriptor.as_raw_fd()), squeue::Flags::empty())
    };
    let entry = match kind {
        Kind::SyncData => opcode::Fsync::new(descriptor).flags(FsyncFlags::DATASYNC).build(),
        Kind::PunchHole { bytes } => {
            let mode = punch_mode().bits() as i32;
            opcode::Fallocate::new(descriptor, bytes).offset(offset).mode(mode).build()
        }
        Kind::Read | Kind::Write => {
            let read = kind == Kind::Read;
            let one = transfer.one_piece();
            if one.is_none() {
                *vectors = transfer.vectors();
            }
            let one = one.or(match vectors.0[..] {
                [libc::iovec { iov_base, iov_len }] => Some((iov_base.cast(), iov_len)),
                _ => None,
            });
            match one {
                Some((at, length)) => {
                    let bytes = length as u32;
                    let registered =
                        buffers.as_mut().and_then(|frames| frames.index(&ring.submitter(), at, length));
                    match (read, registered) {
                        (true, Some(index)) => {
                            opcode::ReadFixed::new(descriptor, at, bytes, index).offset(offset).build()
                        }
                        (true, None) => opcode::Read::new(descriptor, at, bytes).offset(offset).build(),
                        (false, Some(index)) => {
                            opcode::WriteFixed::new(descriptor, at, bytes, index).offset(offset).build()
                        }
                        (false, None) => opcode::Write::new(descriptor, at, bytes).offset(offset).build(),
                    }
                }
                None => {
                    let (at, count) = (vectors.0.as_ptr(), vectors.0.len() as u32);
                    if read {
                        opcode::Readv::new(descriptor, at, count).offset(offset).build()
                    } else {
                        opcode::Writev::new(descriptor, at, count).offset(offset).build()
                    }
                }
            }
        }
    };
    entry.flags(flags)
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        while self.slots.iter().any(Option::is_some) {
            match self.ring.submit_and_wait(1) {
                Ok(_) => self.reap(&mut completions),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel may still write the memory: better never unmapped than too early.
                Err(_) => return std::mem::forget(std::mem::take(&mut self.slots)),
            }
        }
    }
}

impl Device for UringDevice {
    fn name(&self) -> &str {
        "io_uring, direct"
    }

    fn limits(&self) -> Limits {
        Limits { alignment: super::DIRECT_ALIGNMENT, spans_max: 256, run_bytes_max: 1 << 20 }
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn create(&mut self, bytes: u64, naming: Naming) -> Result<FileId, FileError> {
        let file = self.files.create(bytes, naming)?;
        self.register(file);
        Ok(file)
    }

    fn publish(&mut self, file: FileId, name: &str) -> Result<(), FileError> {
        self.files.publish(file, name)
    }

    fn open(&mut self, name: &str) -> Result<Option<FileId>, FileError> {
        let file = self.files.open(name)?;
        file.into_iter().for_each(|file| self.register(file));
        Ok(file)
    }

    fn file_bytes(&self, file: FileId) -> Result<u64, FileError> {
        self.files.file_bytes(file)
    }

    fn read_only(&self, file: FileId) -> Option<Errno> {
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
        self.register(file);
        Ok(())
    }

    fn adopt(&mut self, at: &Whereabouts) -> io::Result<(FileId, Option<Arc<OwnedFd>>)> {
        let file = self.files.adopt(at)?;
        self.register(file);
        Ok((file, self.files.descriptor(file).cloned()))
    }

    fn full(&self) -> Option<Errno> {
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
        self.register(file);
    }

    fn submit(&mut self, operation: Operation) -> Submitted {
        if self.in_flight == self.capacity {
            return Submitted::Busy(operation);
        }
        self.in_flight += 1;
        let alignment = self.limits().alignment;
        let descriptor = match self.files.descriptor(operation.file) {
            Some(descriptor) if operation.aligned_to(alignment) && operation.bytes() <= BYTES_MAX => {
                descriptor.clone()
            }
            found => {
                let error = found.map_or(DeviceError::Closed, |_| DeviceError::Misaligned { alignment });
                self.refused.push(Completion {
                    key: operation.key,
                    spans: operation.spans,
                    result: Err(error),
                });
                return Submitted::Accepted;
            }
        };
        let slot = Some(Slot { transfer: Transfer::new(operation, descriptor), vectors: Vectors::default() });
        let index = match self.free_slots.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.push(index);
        Submitted::Accepted
    }

    fn flush_submissions(&mut self) -> Result<(), DeviceError> {
        if self.unsubmitted == 0 && !self.has_task_work() {
            return Ok(());
        }
        match self.ring.submit() {
            Ok(taken) => {
                self.unsubmitted = self.unsubmitted.saturating_sub(taken);
                Ok(())
            }
            Err(error) => match Errno::from_io_error(&error) {
                // Not now; the next poll tries again.
                Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                errno => Err(DeviceError::of(errno.unwrap_or(Errno::IO), 0)),
            },
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.flush_submissions()?;
        let before = completions.len();
        self.reap(completions);
        let count = completions.len() - before;
        self.in_flight -= count;
        Ok(count)
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring, and with it its descriptor, lives as long as the borrow of `self`.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    fn arm(&mut self) -> bool {
        self.refused.is_empty()
            && self.unsubmitted == 0
            && !self.has_task_work()
            && self.ring.completion().is_empty()
    }

    fn disarm(&mut self) {}
}
