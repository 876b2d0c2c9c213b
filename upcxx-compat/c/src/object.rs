//! The loaded object that contains this library: the program, something that was loaded with it, or a library
//! that it has loaded while it ran (`dlopen`, as interpreters load extensions).

use libc::{c_int, c_void, dl_phdr_info};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Question to the loader, and its answers.
struct Search {
    /// An address in this library.
    address: usize,
    /// Address of the loader itself; 0 in programs without one.
    loader: usize,
    passed_loader: bool,
    found: Option<PathBuf>,
}

/// The file of the library that holds this one, under the name by which it was loaded, when the program has
/// loaded it while it ran. The loader lists objects in the order in which it has loaded them, and itself
/// among those of the start. Some of these may follow it: then an answer is given although none is needed.
pub(crate) fn loaded_late() -> Option<PathBuf> {
    let mut search = Search {
        address: loaded_late as *const () as usize,
        // SAFETY: looks a number up.
        loader: unsafe { libc::getauxval(libc::AT_BASE) } as usize,
        passed_loader: false,
        found: None,
    };
    // SAFETY: the function is given the search, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut search).cast()) };
    search.found
}

/// Looks at one object; not 0 ends the search.
unsafe extern "C" fn look_at(info: *mut dl_phdr_info, _bytes: usize, search: *mut c_void) -> c_int {
    // SAFETY: `loaded_late` gives its own search; the loader describes an object with a name and so many headers.
    let (search, info, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (&mut *search.cast::<Search>(), info, headers)
    };
    let base = info.dlpi_addr as usize;
    let holds_address = headers.iter().any(|header| {
        let offset = search.address.wrapping_sub(base).wrapping_sub(header.p_vaddr as usize);
        header.p_type == libc::PT_LOAD && offset < header.p_memsz as usize
    });
    if holds_address && search.passed_loader {
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        search.found = Some(OsStr::from_bytes(name.to_bytes()).into());
    }
    search.passed_loader |= search.loader != 0 && base == search.loader;
    c_int::from(holds_address)
}
