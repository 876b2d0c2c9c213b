//! The environment of the job, and the variables of GASNet that it understands (GASNet 1.8, 2.2.4, and the README of GASNet).
//!
//! Ranks inherit the environment of the launcher, so a rank's own is the job's.

use libc::c_char;
use vgas::config::Size;
use vgas::say;

/// Effect of a GASNet variable here.
enum Effect {
    /// Read, by the launcher or by ranks.
    Honoured,
    /// Known, and without meaning here; the reason.
    Ignored(&'static str),
}

use Effect::{Honoured, Ignored};

/// The variables that GASNet's README and those of its spawners document, in order; `*` at the end of a name stands for the
/// rest of a family's names. Others whose name begins with `GASNET_` belong to the client.
const VARIABLES: &[(&str, Effect)] = &[
    ("GASNET_BACKTRACE", Honoured),
    ("GASNET_BACKTRACE_MT", Ignored("the thread that crashes writes its own")),
    ("GASNET_BACKTRACE_NODES", Ignored("every rank that crashes writes its own")),
    ("GASNET_BACKTRACE_SIGNAL", Honoured),
    ("GASNET_BACKTRACE_TYPE", Honoured),
    ("GASNET_BARRIER", Ignored("there is one barrier")),
    ("GASNET_CATCH_EXIT", Ignored("whatever ends a rank ends the job")),
    ("GASNET_COLL_*", Ignored("collectives are not tuned, and need no scratch space")),
    ("GASNET_CSPAWN_CMD", Ignored("use GASNET_SPAWNFN=S or L")),
    ("GASNET_DISABLE_ARGDECODE", Ignored("arguments travel as they are")),
    ("GASNET_DISABLE_ENVDECODE", Ignored("the environment travels as it is")),
    ("GASNET_DISABLE_MUNMAP", Ignored("memory is unmapped when the process ends")),
    ("GASNET_EXITTIMEOUT*", Ignored("ranks that do not follow an exit are ended after a second")),
    ("GASNET_FREEZE", Ignored("attach a debugger to the ranks' processes")),
    ("GASNET_FREEZE_ON_ERROR", Ignored("only gasnett_fatalerror waits for a debugger")),
    ("GASNET_FREEZE_SIGNAL", Ignored("attach a debugger to the ranks' processes")),
    ("GASNET_FS_SYNC", Ignored("streams are flushed, files belong to the client")),
    ("GASNET_HOST_DETECT", Ignored("the launcher knows which ranks share a host")),
    ("GASNET_MALLOC*", Ignored("the allocator is the system's")),
    ("GASNET_MASTERIP", Ignored("use VGAS_TCP_INTERFACE")),
    ("GASNET_MAX_SEGSIZE", Honoured),
    ("GASNET_MAX_THREADS", Ignored("there is no limit")),
    ("GASNET_NETWORKDEPTH", Ignored("use VGAS_SMP_RING")),
    ("GASNET_NODEFILE", Honoured),
    ("GASNET_NODEMAP_EXACT", Ignored("the launcher knows which ranks share a host")),
    (
        "GASNET_NO_CATCH_SIGNAL",
        Ignored("of signals that end a process, those that the client handles are left to it"),
    ),
    ("GASNET_PHYSMEM_MAX", Ignored("memory is used where it is touched")),
    ("GASNET_PSHM_BARRIER_*", Ignored("there is one barrier")),
    ("GASNET_PSHM_NETWORK_DEPTH", Ignored("use VGAS_SMP_RING")),
    ("GASNET_PSHM_NODES", Honoured),
    ("GASNET_QUIET", Ignored("nothing is printed without need")),
    ("GASNET_SPAWNFN", Honoured),
    ("GASNET_SSH_CMD", Ignored("use VGAS_RUN_SSH")),
    ("GASNET_SSH_NODEFILE", Honoured),
    ("GASNET_SSH_OPTIONS", Ignored("use VGAS_RUN_SSH")),
    ("GASNET_SSH_SERVERS", Honoured),
    ("GASNET_STATS*", Ignored("use vgasnet_statistics")),
    ("GASNET_SUPERNODE_MAXSIZE", Honoured),
    ("GASNET_THREAD_STACK_*", Ignored("handlers run in the client's threads")),
    ("GASNET_TMPDIR", Ignored("use VGAS_NVM_DIRECTORY")),
    ("GASNET_TRACE*", Ignored("use VGAS_LOG")),
    ("GASNET_USE_PSHM", Ignored("co-located ranks share memory")),
    ("GASNET_VERBOSEENV", Honoured),
    ("GASNET_VIS_*", Ignored("the library chooses")),
];

/// A variable that is set to something.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// A variable that holds a number.
pub(crate) fn number(name: &str) -> Result<Option<u32>, String> {
    variable(name).map(|text| parse_number(name, &text)).transpose()
}

/// Parses a number, or returns the fault.
pub(crate) fn parse_number(name: &str, text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("{name} is {text:?}, which is no number"))
}

/// Returns true if a variable says yes, as GASNet reads it: `1`, `y…`, `Y…`.
pub(crate) fn is_on(name: &str) -> bool {
    variable(name).is_some_and(|text| text.trim().starts_with(['1', 'y', 'Y']))
}

/// The largest segment that a setting can name.
const SEGMENT_BYTES_MAX: u64 = 64 << 40;

/// Returns the size that GASNET_MAX_SEGSIZE gives to each of `ranks_per_node` ranks of a host with this much
/// memory: a number with a unit (`512MB`, `0.5G`) or, of at most 1 and without one, a part of the memory
/// (`0.85`); followed by `/P` (per process, the default) or `/H` (per host).
pub(crate) fn segment_size(text: &str, ranks_per_node: u32, memory_bytes: u64) -> Result<Size, String> {
    let wrong = || {
        format!(
            "GASNET_MAX_SEGSIZE is {text:?}; write a size such as 512MB, 2GB/H for each host, or 0.8/H of its memory"
        )
    };
    let upper = text.trim().to_uppercase();
    let (size, is_shared) = match (upper.strip_suffix('P'), upper.strip_suffix('H')) {
        (Some(size), _) => (size, false),
        (_, Some(size)) => (size, true),
        _ => (upper.as_str(), false),
    };
    let size = if size.len() < upper.len() { size.trim_end() } else { size };
    let size = size.strip_suffix('/').filter(|_| size.len() < upper.len()).unwrap_or(size).trim_end();
    let digits = size.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(size.len());
    let (number, unit) = size.split_at(digits);
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let of = match unit.trim().trim_end_matches('B').trim_end_matches('I') {
        "" if unit.is_empty() && number.contains('.') && value <= 1.0 => memory_bytes,
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err(wrong()),
    };
    let parts = if is_shared { ranks_per_node.max(1) } else { 1 };
    let page = crate::segment::PAGE_BYTES as u64;
    // A float is exact far beyond any size that memory has.
    let bytes = (value * of as f64 / f64::from(parts)) as u64;
    if bytes < page { Err(wrong()) } else { Ok(whole_pages(bytes)) }
}

/// Rounds a size of a segment: at least a page; the available memory limits it anyway.
pub(crate) fn whole_pages(bytes: u64) -> Size {
    let page = crate::segment::PAGE_BYTES as u64;
    Size::of_bytes((bytes / page * page).clamp(page, SEGMENT_BYTES_MAX))
}

/// Says what each variable of GASNet that is set does, when GASNET_VERBOSEENV asks for it.
pub(crate) fn verbose() {
    if !is_on("GASNET_VERBOSEENV") {
        return;
    }
    let mut names: Vec<String> =
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    names.sort();
    for name in names {
        let (Some(effect), Some(value)) = (effect_of(&name), variable(&name)) else { continue };
        match effect {
            Honoured => say::line(format_args!("ENV parameter: {name} = {value}")),
            Ignored(why) => {
                say::line(format_args!("ENV parameter: {name} = {value} (ignored: {why})"));
            }
        }
    }
}

/// Returns the effect of the variable of this name, if it is one of GASNet's.
fn effect_of(name: &str) -> Option<&'static Effect> {
    let is_it = |known: &str| match known.strip_suffix('*') {
        Some(family) => name.starts_with(family),
        None => name == known,
    };
    VARIABLES.iter().find(|(known, _)| is_it(known)).map(|(_, effect)| effect)
}

/// `gasnet_getenv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_getenv(name: *const c_char) -> *mut c_char {
    if name.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: rule 1: a string.
    unsafe { libc::getenv(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms that GASNet's README shows, in pairs with near misses.
    #[test]
    fn segment_sizes_are_read_as_gasnet_reads_them() {
        let bytes = |text: &str| segment_size(text, 4, 16 << 30).map(|size| size.bytes()).ok();
        for (text, expected) in [
            ("65536", Some(65536)),
            ("1M", Some(1 << 20)),
            ("512MB", Some(512 << 20)),
            ("512 mb", Some(512 << 20)),
            ("0.5GB", Some(1 << 29)),
            ("2GiB", Some(2 << 30)),
            ("1T/P", Some(1 << 40)),
            ("2G/H", Some(1 << 29)),
            ("900TB", Some(64 << 40)),
            ("4097", Some(4096)),
            ("4095", None),
            ("2G / h", Some(1 << 29)),
            ("2Gh", Some(1 << 29)),
            ("3Mp", Some(3 << 20)),
            ("0.5", Some(8 << 30)),
            ("0.5/H", Some(2 << 30)),
            ("1.0", Some(16 << 30)),
            ("0.0", None),
            ("0.00000001", None),
            ("1/H", None),
            ("/H", None),
            ("1M//H", None),
            ("1X", None),
            ("1M/Q", None),
            ("", None),
            ("-1M", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn the_table_is_in_order() {
        assert!(VARIABLES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn families_of_variables_are_known_by_their_beginning() {
        let is_ignored = |name| effect_of(name).map(|effect| matches!(effect, Ignored(_)));
        assert_eq!(is_ignored("GASNET_PSHM_NODES"), Some(false));
        assert_eq!(is_ignored("GASNET_COLL_SCRATCH_SIZE"), Some(true));
        assert_eq!(is_ignored("GASNET_TRACEMASK"), Some(true));
        assert_eq!(is_ignored("GASNET_EXITTIMEOUT"), Some(true));
        assert_eq!(is_ignored("GASNET_BARRIERS"), None);
        assert_eq!(is_ignored("GASNET_TEST_POLITE_SYNC"), None);
    }
}
