//! A clock that wakes a sleeper: a timer whose descriptor is readable from a moment on, alone or beside another descriptor.

#![forbid(unsafe_code)]

use crate::error::{Result, ShmError};
use rustix::event::{Timespec, epoll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A timer that is set to one moment at a time.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// One that is not set.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new() -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags);
        Ok(Self(timer.map_err(|e| ShmError::new("create a timer (timerfd)", e))?))
    }

    /// Its descriptor is readable from `at` on, and until then not; without a moment, never.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn set(&self, at: Option<Instant>) -> Result<()> {
        // Zero would stop the timer: what is due already rings it at once.
        let left = at.map(|at| at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1)));
        let left = left.unwrap_or_default();
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let times = Itimerspec { it_interval: zero, it_value: value };
        let set = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &times);
        set.map_err(|e| ShmError::new("set a timer (timerfd)", e))?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One descriptor that is readable when one of two is.
///
/// # Errors
/// If the system has no descriptor left.
pub fn either(descriptors: [BorrowedFd<'_>; 2]) -> Result<OwnedFd> {
    let failed = |e| ShmError::new("wait for two things at once (epoll)", e);
    let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    for (index, descriptor) in (0..).zip(descriptors) {
        epoll::add(&both, descriptor, epoll::EventData::new_u64(index), epoll::EventFlags::IN)
            .map_err(failed)?;
    }
    Ok(both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable(descriptor: BorrowedFd<'_>, within: Duration) -> bool {
        let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout)).unwrap() > 0
    }

    /// Goal: an alarm rings from its moment on, seen through a joined descriptor too, and not when it was set again.
    #[test]
    fn rings_when_it_is_due() {
        let (alarm, other) = (Alarm::new().unwrap(), Alarm::new().unwrap());
        let both = either([other.as_fd(), alarm.as_fd()]).unwrap();
        assert!(!is_readable(both.as_fd(), Duration::ZERO));
        let soon = Instant::now() + Duration::from_millis(5);
        alarm.set(Some(soon)).unwrap();
        assert!(is_readable(both.as_fd(), Duration::from_secs(10)) && Instant::now() >= soon);
        alarm.set(None).unwrap();
        assert!(!is_readable(both.as_fd(), Duration::ZERO));
        // What is over rings at once.
        alarm.set(Some(soon)).unwrap();
        assert!(is_readable(alarm.as_fd(), Duration::from_secs(10)));
    }
}
