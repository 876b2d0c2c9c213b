//! What the tests of volumes share: pages with recognisable content, and waiting for requests with a bound.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vgas_nvm::device::Device;
use vgas_nvm::{Volume, VolumeError};
use vgas_shm::{Mapping, Span};

pub const PAGE: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(30);

/// A volume with some memory for pages.
pub struct Bench {
    pub volume: Volume,
    pub frames: Arc<Mapping>,
    next_key: u64,
}

pub type Outcome = Result<(), Box<VolumeError>>;

/// The bytes of a page that was written as `stamp`; 0 is a page never written.
pub fn page(stamp: u64) -> Vec<u8> {
    match stamp {
        0 => vec![0; PAGE],
        stamp => (0..PAGE as u64 / 8).flat_map(|word| (stamp << 32 | word).to_le_bytes()).collect(),
    }
}

impl Bench {
    pub fn over(device: Box<dyn Device>) -> Self {
        Self::with(Volume::over(device, PAGE as u32, true).unwrap())
    }

    pub fn with(volume: Volume) -> Self {
        let frames = Mapping::anonymous("frames", 64 * volume.page_bytes() as u64).unwrap();
        Self { volume, frames, next_key: 0 }
    }

    pub fn span(&self, frame: u64) -> Span {
        self.frames.span(frame as usize * PAGE, PAGE)
    }

    pub fn key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// Waits until everything in flight is done.
    pub fn finish(&mut self) -> BTreeMap<u64, Outcome> {
        let (mut done, start) = (Vec::new(), Instant::now());
        while self.volume.in_flight() > 0 {
            let count = self.volume.poll(&mut done).unwrap();
            if count == 0 && self.volume.arm() {
                let descriptor = self.volume.wait_descriptor();
                let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                let mut descriptors =
                    [rustix::event::PollFd::from_borrowed_fd(descriptor, rustix::event::PollFlags::IN)];
                let _ = rustix::event::poll(&mut descriptors, Some(&timeout));
                self.volume.disarm();
            }
            assert!(start.elapsed() < TIMEOUT, "requests never finish: {}", self.volume.in_flight());
        }
        let count = done.len();
        let outcomes: BTreeMap<_, _> = done.into_iter().map(|done| (done.key, done.result)).collect();
        assert_eq!(outcomes.len(), count, "a key completed twice");
        outcomes
    }

    fn finish_one(&mut self, key: u64) -> Outcome {
        self.finish().remove(&key).expect("the request was reported")
    }

    pub fn write(&mut self, segment: u32, index: u64, stamp: u64) -> Outcome {
        let key = self.key();
        let span = self.span(63);
        span.write(&page(stamp));
        self.volume.write(segment, index, span, key).unwrap();
        self.finish_one(key)
    }

    /// The stamp that a page was written with; fails when its bytes are of no single write.
    pub fn read(&mut self, segment: u32, index: u64) -> Result<u64, Box<VolumeError>> {
        let key = self.key();
        let span = self.span(62);
        span.write(&[0xee; PAGE]);
        self.volume.read(segment, index, span.clone(), key).unwrap();
        self.finish_one(key)?;
        Ok(stamp(&span))
    }

    pub fn prepare(&mut self, segment: u32, identity: u64) -> Outcome {
        let key = self.key();
        self.volume.prepare(segment, identity, Vec::new(), key).unwrap();
        self.finish_one(key)
    }

    pub fn conclude(&mut self, segment: u32, commit: bool) -> Outcome {
        let key = self.key();
        self.volume.conclude(segment, commit, key).unwrap();
        self.finish_one(key)
    }

    pub fn flush(&mut self, segment: u32) -> Outcome {
        let key = self.key();
        self.volume.flush(segment, key).unwrap();
        self.finish_one(key)
    }
}

/// The stamp of a page in memory.
pub fn stamp(span: &Span) -> u64 {
    let mut bytes = vec![0; PAGE];
    span.read(&mut bytes);
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    let stamp = u64::from_le_bytes(word) >> 32;
    assert!(bytes == page(stamp), "a page that no single write has written");
    stamp
}
