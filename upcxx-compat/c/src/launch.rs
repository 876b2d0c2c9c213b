//! Starting a job from the client itself: `./program 4 …` without any spawner, as GASNet's conduits do.
//!
//! The program is launcher, node daemon and rank in turn, so that nothing but the client and this library is needed.
//! The launcher never returns from `gasnet_init`. A daemon is this program with [`DAEMON_VARIABLE`] set: a constructor
//! of the library serves the node and leaves before `main` is reached, so that the client's code runs in ranks only.

use libc::{c_char, c_int};
use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use vgas::config::{Auto, Config, FlagValue, Size, Sources};
use vgas::info::Machine;
use vgas::launch::{JobRequest, node_main, run};

/// Tells a process that it is the daemon of a node.
const DAEMON_VARIABLE: &str = "VGASNET_DAEMON";

/// Set in ranks (see `vgas_rma::job`).
const RANK_VARIABLE: &str = "VGAS_CONTROL_FD";

/// The conduit `smp`: one argument list, as many ranks as GASNET_PSHM_NODES says. Others take the number of ranks
/// from their first argument.
const CONDUIT_SMP: c_int = 1;

#[used]
#[unsafe(link_section = ".init_array")]
static SERVE_NODE: extern "C" fn() = serve_node;

/// Serves a node instead of running the client, in a daemon.
extern "C" fn serve_node() {
    if std::env::var_os(DAEMON_VARIABLE).is_none() {
        return;
    }
    // SAFETY: constructors run before the program has other threads.
    unsafe { std::env::remove_var(DAEMON_VARIABLE) };
    let status = node_main().unwrap_or_else(|error| {
        eprintln!("vgas: {error}");
        1
    });
    std::process::exit(i32::from(status))
}

/// Whether this process is a rank of a job.
pub(crate) fn in_job() -> bool {
    std::env::var_os(RANK_VARIABLE).is_some()
}

/// Runs a job of this program, and ends this process with its status.
pub(crate) unsafe fn start_job(argc: *mut c_int, argv: *mut *mut *mut c_char, conduit: c_int) -> ! {
    // The constructor and this function live and die together in a static library.
    std::hint::black_box(&SERVE_NODE);
    // SAFETY: as the caller promised.
    let words = unsafe { arguments(argc, argv) };
    let status = request(words, conduit).and_then(|request| run(request).map_err(|error| error.to_string()));
    let code = match status {
        Ok(status) => {
            if let Some(message) = &status.message {
                eprintln!("vgas: {message}");
            }
            status.code
        }
        Err(reason) => {
            eprintln!("vgas: {reason}");
            1
        }
    };
    std::process::exit(i32::from(code))
}

/// What `main` was given, or, when the client did not tell, what the system says.
unsafe fn arguments(argc: *mut c_int, argv: *mut *mut *mut c_char) -> Vec<OsString> {
    if argc.is_null() || argv.is_null() {
        return std::env::args_os().collect();
    }
    // SAFETY: rule 1: as `main` was given them, so many strings.
    unsafe {
        (0..(*argc).max(0) as usize)
            .map(|index| OsString::from_vec(CStr::from_ptr(*(*argv).add(index)).to_bytes().to_vec()))
            .collect()
    }
}

fn number(name: &str, text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("{name} is {text:?}, which is no number"))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The job that the arguments and the environment ask for.
fn request(words: Vec<OsString>, conduit: c_int) -> Result<JobRequest, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut arguments: Vec<OsString> = words.into_iter().skip(1).collect();
    let ranks = if conduit == CONDUIT_SMP {
        variable("GASNET_PSHM_NODES").map_or(Ok(1), |text| number("GASNET_PSHM_NODES", &text))?
    } else {
        if arguments.is_empty() {
            return Err("the first argument is the number of nodes".into());
        }
        number("the first argument", &arguments.remove(0).to_string_lossy())?
    };
    let flags =
        vec![FlagValue { flag: "gasnet_init".into(), name: "segment.kind".into(), text: "pinned".into() }];
    let sources = Sources { file: None, environment: std::env::vars_os().collect(), flags };
    let config = Config::load(&sources).map_err(|error| error.to_string())?;
    let mut settings = config.settings().clone();
    let nodes = variable("VGASNET_NODES").map_or(Ok(1), |text| number("VGASNET_NODES", &text))?;
    let cache = settings.cache.size_bytes(Machine::find().usable_memory_bytes(), nodes);
    settings.cache.size = Auto::Is(Size::of_bytes(cache));
    let daemon = vec!["env".into(), format!("{DAEMON_VARIABLE}=1").into(), program.clone().into_os_string()];
    Ok(JobRequest {
        program: program.into_os_string(),
        arguments,
        ranks,
        nodes,
        hosts: Vec::new(),
        environment: Vec::new(),
        daemon,
        settings,
    })
}
