//! A device that is slower than its base: limited to a number of bytes and of operations a second, as the
//! NVMe drive of a virtual node.
//!
//! Operations take their turns at a [`Pace`]: each occupies the drive for as long as its bytes take, at least for one operation's
//! share of a second, and its completion is shown when both that time and the device below are over. Several devices of a node share
//! one pace, as they would share the drive. A drive that is slower than the pace stays as slow as it is.
//!
//! Files are not shared with other processes, which could read them faster.

#![forbid(unsafe_code)]

use super::{Completion, Device, FileId, Kind, Lent, Limits, Naming, Operation, Submitted};
use crate::error::{DeviceError, FileError};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vgas_shm::alarm::{Alarm, either};
use vgas_shm::error::ShmError;

/// The slowest rate, in bytes a second: a page of the largest size takes a minute then.
const RATE_MIN: u64 = 64 << 10;

/// Rates of a drive, per second. Written as `200MiB` or `200MiB,50k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Bytes, read and written together.
    pub bytes: u64,
    /// Operations; none: as many as the bytes allow.
    pub operations: Option<u64>,
}

impl Rates {
    /// Time that an operation of `bytes` keeps the drive busy.
    fn time_of(&self, bytes: u64) -> Duration {
        let share = |part: u64, rate: u64| Duration::from_secs_f64(part as f64 / rate as f64);
        let least = self.operations.map_or(Duration::ZERO, |operations| share(1, operations));
        share(bytes, self.bytes).max(least)
    }
}

/// Digits, and one of these units.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

const BYTES: &[(&str, u64)] = &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
const OPERATIONS: &[(&str, u64)] = &[("", 1), ("k", 1_000), ("M", 1_000_000)];

impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (bytes, operations) =
            text.split_once(',').map_or((text, None), |(bytes, operations)| (bytes, Some(operations)));
        let bytes = with_unit(bytes.trim(), BYTES).filter(|&bytes| bytes >= RATE_MIN);
        let bytes = bytes.ok_or("begins with no rate of at least `64KiB` a second")?;
        let operations = operations.map(|text| {
            let number = with_unit(text.trim(), OPERATIONS).filter(|&number| number > 0);
            number.ok_or("has no number of operations after the comma, such as `50k`")
        });
        Ok(Self { bytes, operations: operations.transpose()? })
    }
}

/// With the largest unit that leaves a whole number.
fn write_with_unit(f: &mut fmt::Formatter<'_>, number: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = units.iter().rev().find(|(_, factor)| number.is_multiple_of(*factor));
    // The numbers that are read are multiples of the smallest.
    let (unit, factor) = fits.unwrap_or(&units[0]);
    write!(f, "{}{unit}", number / factor)
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, self.bytes, BYTES)?;
        let Some(operations) = self.operations else { return Ok(()) };
        f.write_str(",")?;
        write_with_unit(f, operations, OPERATIONS)
    }
}

/// A drive shared by several devices: an operation waits until the drive is free.
#[derive(Debug)]
pub struct Pace {
    rates: Rates,
    free_at: Mutex<Instant>,
}

impl Pace {
    /// A drive with nothing to do.
    pub fn new(rates: Rates) -> Arc<Self> {
        Arc::new(Self { rates, free_at: Mutex::new(Instant::now()) })
    }

    /// Takes a turn for `bytes` bytes; returns its end.
    fn take(&self, bytes: u64) -> Instant {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(Instant::now()) + self.rates.time_of(bytes);
        *free_at
    }
}

/// A device whose operations take their turns.
pub struct PacedDevice {
    device: Box<dyn Device>,
    pace: Arc<Pace>,
    name: String,
    /// By the key that the inner device sees: the caller's, and when it may be shown as done.
    in_flight: HashMap<u64, (u64, Instant)>,
    next_key: u64,
    /// Done below, and not due yet.
    held: BTreeMap<(Instant, u64), Completion>,
    alarm: Alarm,
    alarm_at: Option<Instant>,
    /// Polls the inner device and the alarm.
    both: OwnedFd,
}

fn of_system(error: ShmError) -> DeviceError {
    DeviceError::of(Errno::from_io_error(&error.source).unwrap_or(Errno::IO), 0)
}

impl PacedDevice {
    /// Slows a device down.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub fn new(device: Box<dyn Device>, pace: &Arc<Pace>) -> Result<Self, ShmError> {
        let alarm = Alarm::new()?;
        let both = either([device.wait_descriptor(), alarm.as_fd()])?;
        let name = format!("{}, at most {} a second", device.name(), pace.rates);
        Ok(Self {
            device,
            pace: pace.clone(),
            name,
            in_flight: HashMap::new(),
            next_key: 0,
            held: BTreeMap::new(),
            alarm,
            alarm_at: None,
            both,
        })
    }

    fn first_due(&self) -> Option<Instant> {
        self.held.keys().next().map(|(due, _)| *due)
    }

    /// Shows what is due.
    fn release(&mut self, completions: &mut Vec<Completion>) -> usize {
        let now = Instant::now();
        let before = completions.len();
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= now) {
            completions.push(first.remove());
        }
        completions.len() - before
    }
}

impl Device for PacedDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn capacity(&self) -> usize {
        self.device.capacity()
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len() + self.held.len()
    }

    fn create(&mut self, bytes: u64, naming: Naming) -> Result<FileId, FileError> {
        self.device.create(bytes, naming)
    }

    fn publish(&mut self, file: FileId, name: &str) -> Result<(), FileError> {
        self.device.publish(file, name)
    }

    fn open(&mut self, name: &str) -> Result<Option<FileId>, FileError> {
        self.device.open(name)
    }

    fn file_bytes(&self, file: FileId) -> Result<u64, FileError> {
        self.device.file_bytes(file)
    }

    fn read_only(&self, file: FileId) -> Option<Errno> {
        self.device.read_only(file)
    }

    fn lend(&self, file: FileId) -> Option<Lent> {
        self.device.lend(file)
    }

    fn join(&mut self, file: FileId, lent: Lent) -> Result<(), FileError> {
        self.device.join(file, lent)
    }

    fn full(&self) -> Option<Errno> {
        self.device.full()
    }

    fn clear(&mut self, file: FileId, from: u64) {
        self.device.clear(file, from);
    }

    fn describe(&self, file: FileId) -> String {
        self.device.describe(file)
    }

    fn close(&mut self, file: FileId) {
        self.device.close(file);
    }

    fn submit(&mut self, operation: Operation) -> Submitted {
        if self.in_flight() >= self.capacity() {
            return Submitted::Busy(operation);
        }
        let key = operation.key;
        let moved = matches!(operation.kind, Kind::Read | Kind::Write).then(|| operation.bytes());
        match self.device.submit(Operation { key: self.next_key, ..operation }) {
            Submitted::Accepted => {
                let due = moved.map_or_else(Instant::now, |bytes| self.pace.take(bytes));
                self.in_flight.insert(self.next_key, (key, due));
                self.next_key += 1;
                Submitted::Accepted
            }
            Submitted::Busy(operation) => Submitted::Busy(Operation { key, ..operation }),
        }
    }

    fn flush_submissions(&mut self) -> Result<(), DeviceError> {
        self.device.flush_submissions()
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let mut done = Vec::new();
        self.device.poll(&mut done)?;
        for completion in done {
            let Some((key, due)) = self.in_flight.remove(&completion.key) else { continue };
            self.held.insert((due, completion.key), Completion { key, ..completion });
        }
        let shown = self.release(completions);
        let first = self.first_due();
        if first != self.alarm_at {
            self.alarm.set(first).map_err(of_system)?;
            self.alarm_at = first;
        }
        Ok(shown)
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    fn arm(&mut self) -> bool {
        // Operations that become due from now on ring the alarm.
        self.first_due().is_none_or(|due| due > Instant::now()) && self.device.arm()
    }

    fn disarm(&mut self) {
        self.device.disarm();
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::{MemoryDevice, MemoryDisk};
    use super::super::wait;
    use super::*;
    use vgas_shm::Mapping;

    /// Goal: the output is read back as the same, and an invalid pace is refused with the valid forms.
    #[test]
    fn rates_are_written_as_they_are_read() {
        for (text, printed) in [
            ("200MiB", "200MiB"),
            ("200MiB, 50k", "200MiB,50k"),
            ("1024KiB,1000000", "1MiB,1M"),
            ("64KiB,7", "64KiB,7"),
        ] {
            let rates: Rates = text.parse().unwrap();
            assert_eq!(rates.to_string(), printed);
            assert_eq!(printed.parse(), Ok(rates));
        }
        for text in ["", "200", "63KiB", "200MB", "99999999999GiB", "-1MiB"] {
            assert!(text.parse::<Rates>().unwrap_err().contains("64KiB"), "{text}");
        }
        for text in ["1MiB,", "1MiB,0", "1MiB,5K", "1MiB,1,1"] {
            assert!(text.parse::<Rates>().unwrap_err().contains("50k"), "{text}");
        }
    }

    /// Runs `count` reads of a page through two devices of one pace, and returns their time.
    fn time_of(rates: Rates, count: u64) -> Duration {
        let (disk, pace) = (MemoryDisk::new(), Pace::new(rates));
        let memory = Mapping::anonymous("paced", 4096).unwrap();
        let open = || PacedDevice::new(Box::new(MemoryDevice::new(&disk, 64).unwrap()), &pace).unwrap();
        let mut devices = [open(), open()];
        let start = Instant::now();
        for device in &mut devices {
            let file = device.create(1 << 20, Naming::Never).unwrap();
            for key in 0..count / 2 {
                let spans = memory.span(0, 4096).into();
                let read = Operation { key, file, kind: Kind::Read, offset: key * 4096, spans };
                assert!(matches!(device.submit(read), Submitted::Accepted));
            }
        }
        let mut done = Vec::new();
        for device in &mut devices {
            while device.in_flight() > 0 {
                if device.poll(&mut done).unwrap() == 0 {
                    wait(device, 10_000).unwrap();
                }
            }
        }
        assert_eq!(done.len() as u64, count);
        assert!(done.iter().all(|done| matches!(done.result, Ok(4096))));
        start.elapsed()
    }

    /// Goal: neither bytes nor operations exceed the configured rate, summed over all devices of a node, and
    /// below that rate no thread sleeps longer than it must.
    #[test]
    fn nothing_passes_faster_than_it_may() {
        let by_bytes = time_of(Rates { bytes: 4 << 20, operations: None }, 64);
        assert!(by_bytes >= Duration::from_micros(62_400), "256 KiB at 4 MiB a second took {by_bytes:?}");
        let by_operations = time_of(Rates { bytes: 1 << 30, operations: Some(1000) }, 50);
        assert!(
            by_operations >= Duration::from_millis(49),
            "50 operations of 1000 a second: {by_operations:?}"
        );
        let free = time_of(Rates { bytes: 1 << 40, operations: None }, 64);
        assert!(free < Duration::from_secs(5), "{free:?}");
    }
}
