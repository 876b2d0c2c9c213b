//! PMIx, by the library that the site has: opened at run time, so that a program needs none to be built and none to start
//! otherwise. Six functions, whose structures have had the same layout since PMIx 2; a test holds them against the header.
//!
//! # Rules
//!
//! 1. *Types.* Functions and structures are declared as in `pmix_common.h`. Structures made only by the
//!    library (a value) are read no further than their tag and the member that the tag names.
//! 2. *Life.* The library is never unloaded: it has threads of its own. Its allocations are freed once, by
//!    `free` as its header's macros do, after they have been copied.
//! 3. *Text.* A string of the library is read to its end, but no further than a bound; strings passed to it
//!    end with a zero.
//! 4. *Threads.* One thread makes all calls, one after another ([`crate::pmi`] has one for it, because a call has no bound of its own). The
//!    last may come from the thread that ends the process, when no other is in flight.
//!
//! A library that returns a wrong length, or an invalid address, cannot be caught: it is code of this
//! process.

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

/// Longest value of ours, in bytes.
const VALUE_BYTES_MAX: usize = 4 << 10;

const NAMESPACE_BYTES: usize = 256;
const KEY_BYTES: usize = 512;
const RANK_WILDCARD: u32 = u32::MAX - 1;
const SCOPE_GLOBAL: u8 = 3;

const TYPE_BOOL: u16 = 1;
const TYPE_STRING: u16 = 3;
const TYPE_UINT32: u16 = 14;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    namespace: [u8; NAMESPACE_BYTES],
    rank: u32,
}

/// `pmix_value_t`: a tag, and 24 bytes whose meaning the tag gives.
#[repr(C)]
struct Value {
    tag: u16,
    data: Data,
}

#[repr(C)]
union Data {
    text: *mut c_char,
    number: u32,
    flag: bool,
    room: [u64; 3],
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [u8; KEY_BYTES],
    flags: u32,
    value: Value,
}

type Init = unsafe extern "C" fn(*mut Process, *mut Info, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Process, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Process, usize, *const Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The library, loaded for good.
#[derive(Clone, Copy)]
struct Functions {
    init: Init,
    get: Get,
    put: Put,
    commit: Commit,
    fence: Fence,
    finalize: Finalize,
    error_string: Option<ErrorString>,
}

/// A session with the PMIx server of this node.
pub(crate) struct Session {
    functions: Functions,
    me: Process,
}

/// Checks that a library of PMIx can be loaded; returns its name, or the reason.
pub(crate) fn library_name() -> Result<&'static str, String> {
    load().map(|(_, name)| name)
}

fn load() -> Result<(Functions, &'static str), String> {
    let mut first = None;
    for name in ["libpmix.so.2", "libpmix.so"] {
        // SAFETY: the initialisers of a library that the site has for this purpose; rule 2: it stays.
        match unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_LOCAL) } {
            Ok(library) => return functions(library).map(|functions| (functions, name)),
            Err(error) => drop(first.get_or_insert(error.to_string())),
        }
    }
    Err(first.unwrap_or_default())
}

fn functions(library: Library) -> Result<Functions, String> {
    // SAFETY: rule 1: each name with its type.
    let found = unsafe {
        (|| {
            Ok::<_, libloading::Error>(Functions {
                init: *library.get::<Init>(b"PMIx_Init\0")?,
                get: *library.get::<Get>(b"PMIx_Get\0")?,
                put: *library.get::<Put>(b"PMIx_Put\0")?,
                commit: *library.get::<Commit>(b"PMIx_Commit\0")?,
                fence: *library.get::<Fence>(b"PMIx_Fence\0")?,
                finalize: *library.get::<Finalize>(b"PMIx_Finalize\0")?,
                error_string: library.get::<ErrorString>(b"PMIx_Error_string\0").ok().map(|found| *found),
            })
        })()
    };
    std::mem::forget(library);
    found.map_err(|error| error.to_string())
}

impl Session {
    /// Connects to the server.
    pub(crate) fn open() -> Result<Self, String> {
        let (functions, _) = load()?;
        let mut me = Process { namespace: [0; NAMESPACE_BYTES], rank: 0 };
        // SAFETY: rules 1 and 4; no attributes.
        let code = unsafe { (functions.init)(&raw mut me, ptr::null_mut(), 0) };
        // A name without its end would be read beyond it.
        me.namespace[NAMESPACE_BYTES - 1] = 0;
        let session = Self { functions, me };
        session.checked(code, "PMIx_Init")?;
        match session.space().is_empty() {
            true => Err("PMIx_Init named no job".into()),
            false => Ok(session),
        }
    }

    /// The name of the job.
    pub(crate) fn space(&self) -> String {
        let name = CStr::from_bytes_until_nul(&self.me.namespace).unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// This process among those of the job.
    pub(crate) fn rank(&self) -> u32 {
        self.me.rank
    }

    /// Returns the number of processes of the job.
    pub(crate) fn ranks(&self) -> Result<u32, String> {
        self.get(RANK_WILDCARD, c"pmix.job.size", |value| match value.tag {
            // SAFETY: rule 1: the tag says that it is this.
            TYPE_UINT32 => Ok(unsafe { value.data.number }),
            tag => Err(format!("the size of the job has type {tag}, not {TYPE_UINT32}")),
        })
    }

    /// Publishes a value for other ranks, which see it after [`Session::meet`].
    pub(crate) fn put(&self, key: &str, value: &str) -> Result<(), String> {
        let text = |text: &str| CString::new(text).map_err(|_| "a zero in a text".to_owned());
        let (key, text) = (text(key)?, text(value)?);
        let mut value = Value { tag: TYPE_STRING, data: Data { room: [0; 3] } };
        value.data.text = text.as_ptr().cast_mut();
        // SAFETY: rules 1, 3 and 4; the library copies what it is given.
        let code = unsafe { (self.functions.put)(SCOPE_GLOBAL, key.as_ptr(), &raw mut value) };
        self.checked(code, "PMIx_Put")?;
        // SAFETY: rule 4.
        let code = unsafe { (self.functions.commit)() };
        self.checked(code, "PMIx_Commit")
    }

    /// Waits until all ranks have come here, and brings what they have put.
    pub(crate) fn meet(&self) -> Result<(), String> {
        let mut info = Info {
            key: [0; KEY_BYTES],
            flags: 0,
            value: Value { tag: TYPE_BOOL, data: Data { room: [0; 3] } },
        };
        let name = b"pmix.collect";
        info.key[..name.len()].copy_from_slice(name);
        info.value.data.flag = true;
        // SAFETY: rules 1 and 4: all processes of the job, one attribute.
        let code = unsafe { (self.functions.fence)(ptr::null(), 0, &raw const info, 1) };
        self.checked(code, "PMIx_Fence")
    }

    /// Returns a rank's value.
    pub(crate) fn fetch(&self, rank: u32, key: &str) -> Result<String, String> {
        let key = CString::new(key).map_err(|_| "a zero in a key".to_owned())?;
        self.get(rank, &key, |value| {
            let text = match value.tag {
                // SAFETY: rule 1: the tag says that it is this.
                TYPE_STRING => unsafe { value.data.text },
                tag => return Err(format!("what a rank has put has type {tag}, not {TYPE_STRING}")),
            };
            if text.is_null() {
                return Err("what a rank has put is no text".into());
            }
            // SAFETY: rule 3: looks for the end no further than the bound, and never behind it.
            let bytes = unsafe {
                let length = libc::strnlen(text, VALUE_BYTES_MAX);
                let bytes = std::slice::from_raw_parts(text.cast::<u8>(), length).to_vec();
                // Rule 2: of the library's `malloc`, which is this process's.
                libc::free(text.cast::<c_void>());
                bytes
            };
            String::from_utf8(bytes).map_err(|_| "what a rank has put is no text".into())
        })
    }

    /// Asks for a value, hands it on, and frees its outer block.
    fn get<T>(
        &self,
        rank: u32,
        key: &CStr,
        take: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Result<T, String> {
        let of = Process { rank, ..self.me };
        let mut value: *mut Value = ptr::null_mut();
        // SAFETY: rules 1, 3 and 4; no attributes.
        let code =
            unsafe { (self.functions.get)(&raw const of, key.as_ptr(), ptr::null(), 0, &raw mut value) };
        self.checked(code, "PMIx_Get")?;
        if value.is_null() {
            return Err("PMIx_Get gave nothing".into());
        }
        // SAFETY: rule 1: it is a value, of this thread alone until it is freed.
        let taken = take(unsafe { &*value });
        // SAFETY: rule 2. A value of another type may have an inner block, which stays: there is an error to tell.
        unsafe { libc::free(value.cast::<c_void>()) };
        taken
    }

    /// Says that vgas needs it no more. An MPI of this process has a count of its own.
    pub(crate) fn leave(&self) {
        // SAFETY: rules 1 and 4.
        unsafe { (self.functions.finalize)(ptr::null(), 0) };
    }

    fn checked(&self, code: c_int, what: &str) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let text = self.functions.error_string.map(|text| {
            // SAFETY: rules 1 and 3: a constant of the library.
            unsafe {
                let text = text(code);
                let length = if text.is_null() { 0 } else { libc::strnlen(text, 100) };
                let bytes: &[u8] =
                    if length == 0 { &[] } else { std::slice::from_raw_parts(text.cast::<u8>(), length) };
                String::from_utf8_lossy(bytes).into_owned()
            }
        });
        Err(format!("{what} failed with {code} {}", text.unwrap_or_default()).trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// Goal: the structures are those of the header. If PMIx is not installed, the numbers that a compiler
    /// found in 4.2's stand for it.
    #[test]
    fn structures_are_as_in_the_header() {
        let ours = [
            size_of::<Process>(),
            offset_of!(Process, rank),
            size_of::<Value>(),
            offset_of!(Value, data),
            size_of::<Info>(),
            offset_of!(Info, flags),
            offset_of!(Info, value),
            TYPE_BOOL.into(),
            TYPE_STRING.into(),
            TYPE_UINT32.into(),
            SCOPE_GLOBAL.into(),
            RANK_WILDCARD as usize,
        ];
        assert_eq!(ours, [260, 256, 32, 8, 552, 512, 520, 1, 3, 14, 3, 0xffff_fffe]);
        let program = r##"
            #include <pmix_common.h>
            #include <stddef.h>
            #include <stdio.h>
            int main(void) {
                printf("%zu %zu %zu %zu %zu %zu %zu %d %d %d %d %zu\n", sizeof(pmix_proc_t), offsetof(pmix_proc_t, rank),
                    sizeof(pmix_value_t), offsetof(pmix_value_t, data), sizeof(pmix_info_t), offsetof(pmix_info_t, flags),
                    offsetof(pmix_info_t, value), PMIX_BOOL, PMIX_STRING, PMIX_UINT32, PMIX_GLOBAL,
                    (size_t)PMIX_RANK_WILDCARD);
                return 0;
            }"##;
        let folder = tempfile::tempdir().unwrap();
        let (source, binary) = (folder.path().join("p.c"), folder.path().join("p"));
        std::fs::write(&source, program).unwrap();
        let mut compiler = std::process::Command::new("cc");
        for include in ["/usr/lib/x86_64-linux-gnu/pmix2/include", "/usr/include/pmix"] {
            compiler.arg(format!("-I{include}"));
        }
        let compiled = compiler.args([&source]).arg("-o").arg(&binary).output();
        if !compiled.is_ok_and(|output| output.status.success()) {
            return eprintln!("skipped: no compiler, or no header of PMIx");
        }
        let said = std::process::Command::new(&binary).output().unwrap().stdout;
        let said: Vec<usize> = String::from_utf8(said)
            .unwrap()
            .split_whitespace()
            .map(|number| number.parse().unwrap())
            .collect();
        assert_eq!(said, ours);
    }
}
