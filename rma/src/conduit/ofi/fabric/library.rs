//! libfabric, found when it is first asked for, so that a machine without it runs everything else.

use super::types::{FabricAttr, Info};
use libloading::Library;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// Debian's package libfabric1 has it; all versions since 2015 have this name.
const NAME: &str = "libfabric.so.1";

/// Remedy if it is missing.
pub const REMEDY: &str = "install libfabric (Debian: `apt install libfabric1`)";

/// The oldest usable version: the declarations here are complete since then.
const OLDEST: u32 = version(1, 14);

/// Requested version, if the library has it.
const WANTED: u32 = version(1, 17);

const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

macro_rules! functions {
    ($Library:ident: $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The library's exports in use. All else are calls through the tables of its objects.
        pub(super) struct $Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Keeps the functions loaded. Never unloaded: a provider may have started threads.
            _library: Library,
        }

        impl $Library {
            fn load(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: rule 1: the types are those of the headers, and the library lives as long as the pointers, in
                // the same structure.
                unsafe { Ok(Self { $($name: *library.get(concat!(stringify!($name), "\0"))?,)* _library: library }) }
            }
        }
    };
}

functions! { Exported:
    fi_version: fn() -> u32;
    fi_getinfo: fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int;
    fi_dupinfo: fn(*const Info) -> *mut Info;
    fi_freeinfo: fn(*mut Info);
    fi_fabric: fn(*mut FabricAttr, *mut *mut super::types::Fabric, *mut c_void) -> c_int;
    fi_strerror: fn(c_int) -> *const c_char;
}

impl Exported {
    /// Major and minor.
    pub(super) fn version(&self) -> (u32, u32) {
        // SAFETY: rule 1.
        let version = unsafe { (self.fi_version)() };
        (version >> 16, version & 0xFFFF)
    }

    /// The interface that is asked for: not a later one than the library has.
    pub(super) fn interface(&self) -> u32 {
        let (major, minor) = self.version();
        WANTED.min(version(major, minor))
    }
}

/// Returns the library, or why it cannot be used and the remedy.
pub(super) fn library() -> Result<&'static Exported, &'static str> {
    static LIBRARY: OnceLock<Result<Exported, String>> = OnceLock::new();
    LIBRARY.get_or_init(|| with_signals_kept(find)).as_ref().map_err(String::as_str)
}

/// Signals that providers take for themselves when they are loaded, to print what they know before the process ends.
const SIGNALS: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGINT, libc::SIGTERM];

/// Does something during which a provider may be loaded, and puts back what the process does with signals: vgas serves faults of
/// its own pages by them, and a program may do as it likes.
pub(super) fn with_signals_kept<T>(act: impl FnOnce() -> T) -> T {
    let kept = SIGNALS.map(|signal| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: rule 7: it only asks; all zeros are an action.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
        // SAFETY: as above.
        (asked == 0).then(|| (signal, unsafe { action.assume_init() }))
    });
    let done = act();
    for (signal, action) in kept.into_iter().flatten() {
        // SAFETY: rule 7: what was there before.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
    done
}

fn find() -> Result<Exported, String> {
    // SAFETY: rule 1: a system library whose initialisation has no preconditions.
    let found = unsafe { Library::new(NAME) }.and_then(Exported::load).map_err(|error| {
        let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        format!("{reason}; {REMEDY}")
    })?;
    let (major, minor) = found.version();
    if version(major, minor) < OLDEST {
        return Err(format!("libfabric {major}.{minor} is older than 1.14; {REMEDY}"));
    }
    Ok(found)
}
