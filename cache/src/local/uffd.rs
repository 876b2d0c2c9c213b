//! The kernel's user-mode page faults (`userfaultfd(2)`), as far as local access needs them.

use linux_raw_sys::general as raw;
use rustix::io::Errno;
use rustix::mm::UserfaultfdFlags;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// How faults become known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcing {
    /// SIGBUS in the thread that faulted, which is served there. The kernel's own accesses (system calls that are given
    /// the address) fail with EFAULT.
    BySignal,
    /// By a message on the descriptor, for a thread of ours to serve; the thread that faulted sleeps meanwhile. The
    /// kernel's own accesses are served, too.
    ToThread,
}

/// An open userfaultfd.
#[derive(Debug)]
pub(super) struct Userfaultfd {
    descriptor: OwnedFd,
    announcing: Announcing,
}

/// An access that found no page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub address: usize,
}

impl Userfaultfd {
    pub fn open(announcing: Announcing) -> Result<Self, Errno> {
        let (more, features) = match announcing {
            Announcing::BySignal => (raw::UFFD_USER_MODE_ONLY, raw::UFFD_FEATURE_SIGBUS),
            Announcing::ToThread => (0, 0),
        };
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        // SAFETY: rule 1: it will watch nothing but addresses of a space that owns it.
        let open =
            |more| unsafe { rustix::mm::userfaultfd(flags | UserfaultfdFlags::from_bits_retain(more)) };
        // Kernels before 5.11 do not know the flag, and need no permission for what it restricts.
        let descriptor =
            open(more).or_else(|error| if error == Errno::INVAL { open(0) } else { Err(error) })?;
        let one = Self { descriptor, announcing };
        let mut api = raw::uffdio_api { api: raw::UFFD_API.into(), features: features.into(), ioctls: 0 };
        // SAFETY: rule 4: the structure that this request takes.
        unsafe { one.control(linux_raw_sys::ioctl::UFFDIO_API, &mut api) }?;
        Ok(one)
    }

    pub fn announcing(&self) -> Announcing {
        self.announcing
    }

    /// Makes accesses to absent memory of this range known.
    pub fn watch(&self, address: usize, bytes: usize) -> Result<(), Errno> {
        let mut register = raw::uffdio_register {
            range: raw::uffdio_range { start: address as u64, len: bytes as u64 },
            mode: raw::UFFDIO_REGISTER_MODE_MISSING.into(),
            ioctls: 0,
        };
        // SAFETY: rule 4: the structure that this request takes.
        unsafe { self.control(linux_raw_sys::ioctl::UFFDIO_REGISTER, &mut register) }
    }

    /// Lets threads that wait for memory of this range look again.
    pub fn wake(&self, address: usize, bytes: usize) {
        let mut range = raw::uffdio_range { start: address as u64, len: bytes as u64 };
        // SAFETY: rule 4: the structure that this request takes. It fails only for ranges that are no addresses.
        let _ = unsafe { self.control(linux_raw_sys::ioctl::UFFDIO_WAKE, &mut range) };
    }

    /// The next access that waits to be served, if there is one.
    pub fn next_access(&self) -> Option<Access> {
        const BYTES: usize = size_of::<raw::uffd_msg>();
        // Offsets of the fields in a message; the union in it would need unsafe code.
        const ADDRESS: usize = 16;
        let mut message = [0u8; BYTES];
        let read = rustix::io::read(&self.descriptor, &mut message).ok()?;
        let is_fault = read == BYTES && u32::from(message[0]) == raw::UFFD_EVENT_PAGEFAULT;
        let address = message.get(ADDRESS..ADDRESS + 8)?.try_into().ok()?;
        is_fault.then_some(Access { address: u64::from_ne_bytes(address) as usize })
    }

    /// # Safety
    /// The request takes a structure of this type.
    unsafe fn control<T>(&self, request: u32, argument: &mut T) -> Result<(), Errno> {
        // SAFETY: as the caller promised; the structure is valid and exclusively borrowed for the call.
        let result =
            unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
        if result < 0 { Err(last_error()) } else { Ok(()) }
    }
}

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Whether the kernel lets this process watch its own memory in this way.
pub(super) fn available(announcing: Announcing) -> Result<(), Errno> {
    Userfaultfd::open(announcing).map(drop)
}
