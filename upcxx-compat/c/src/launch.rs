//! Starting a job from the client itself: `./program 4 …` without any spawner, as GASNet's conduits do.
//!
//! The program is launcher, node daemon and rank in turn, so that nothing but the client and this library is needed.
//! The launcher never returns from `gasnet_init`. A daemon is this program with [`DAEMON_VARIABLE`] set: a constructor
//! of the library serves the node and leaves before `main` is reached, so that the client's code runs in ranks only.

use crate::crash;
use crate::environment::{self, number, parse_number, segment_size, variable};
use crate::log;
use libc::{c_char, c_int};
use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use vgas::config::{Auto, ConduitChoice, Config, FlagValue, Origin, Settings, Size, Sources};
use vgas::info::{self, Machine, State};
use vgas::launch::{JobRequest, node_main, run};

/// Tells a process that it is the daemon of a node.
const DAEMON_VARIABLE: &str = "VGASNET_DAEMON";

/// Set in ranks (see `vgas_rma::job`).
const RANK_VARIABLE: &str = "VGAS_CONTROL_FD";

/// The conduit `smp`: as many ranks as GASNET_PSHM_NODES says. Others take the number of ranks from their first argument.
/// VGASNET_RANKS, which the spawners set, overrules both.
const CONDUIT_SMP: c_int = 1;
/// The conduit `ibv`.
const CONDUIT_IBV: c_int = 3;

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
    load_ranks_at_equal_addresses();
    log::start();
    let status = node_main().unwrap_or_else(|error| {
        eprintln!("vgas: {error}");
        1
    });
    std::process::exit(i32::from(status))
}

/// Lets the ranks of this node, its children, find their program at the same addresses as all others: runtimes send each
/// other pointers to functions and global variables, which GASNet's smp conduit, where ranks are forked, makes possible.
/// Refused in some containers; programs linked with -no-pie have equal addresses there.
fn load_ranks_at_equal_addresses() {
    const QUERY: libc::c_ulong = 0xffff_ffff;
    // SAFETY: changes how programs that this process and its children execute later are laid out, nothing else.
    unsafe {
        if let Ok(now) = libc::c_ulong::try_from(libc::personality(QUERY)) {
            libc::personality(now | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        }
    }
}

/// Whether this process is a rank of a job.
pub(crate) fn in_job() -> bool {
    std::env::var_os(RANK_VARIABLE).is_some()
}

/// Runs a job of this program, and ends this process with its status.
pub(crate) unsafe fn start_job(argc: *mut c_int, argv: *mut *mut *mut c_char, conduit: c_int) -> ! {
    // The constructor and this function live and die together in a static library.
    std::hint::black_box(&SERVE_NODE);
    environment::verbose();
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

/// The job that the arguments and the environment ask for.
fn request(words: Vec<OsString>, conduit: c_int) -> Result<JobRequest, String> {
    crash::asked_for()?;
    log::wanted()?;
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut arguments: Vec<OsString> = words.into_iter().skip(1).collect();
    let ranks = match number("VGASNET_RANKS")? {
        Some(ranks) => ranks,
        None if conduit == CONDUIT_SMP => number("GASNET_PSHM_NODES")?.unwrap_or(1),
        None if arguments.is_empty() => {
            return Err("how many processes? give their number as the first argument".into());
        }
        None => parse_number("the first argument", &arguments.remove(0).to_string_lossy())?,
    };
    let hosts = hosts(ranks, conduit)?;
    let nodes = match number("VGASNET_NODES")? {
        _ if !hosts.is_empty() => hosts.len() as u32,
        Some(nodes) => nodes,
        None => match number("GASNET_SUPERNODE_MAXSIZE")? {
            Some(ranks_per_node) if ranks_per_node > 0 => ranks.div_ceil(ranks_per_node),
            _ => 1,
        },
    };
    let ranks_per_node = ranks.div_ceil(nodes.max(1));
    let mut settings = settings(conduit, ranks_per_node)?;
    if hosts.is_empty() && settings.conduit == ConduitChoice::Ibv {
        can_use_rdma()?;
    }
    let nodes_here = if hosts.is_empty() { nodes } else { 1 };
    let cache = settings.cache.size_bytes(Machine::find().usable_memory_bytes(), nodes_here.max(1));
    settings.cache.size = Auto::Is(Size::of_bytes(cache));
    // Not by env(1), which takes the path of a program for a variable when there is a `=` in it.
    let command = format!("{DAEMON_VARIABLE}=1 exec \"$0\"");
    let daemon = vec!["sh".into(), "-c".into(), command.into(), program.clone().into_os_string()];
    let program = program.into_os_string();
    Ok(JobRequest { program, arguments, ranks, nodes, hosts, environment: Vec::new(), daemon, settings })
}

/// Whether this machine has what the conduit `ibv` needs; otherwise what it lacks and where that comes from, before each
/// rank would find out by itself.
fn can_use_rdma() -> Result<(), String> {
    match info::conduits().into_iter().find(|fact| fact.name == "ibv" && fact.state == State::Missing) {
        None => Ok(()),
        Some(missing) => Err(format!(
            "the conduit ibv cannot be used here: {}; to get it: {} (VGAS_CONDUIT=tcp runs this program as it is)",
            missing.detail,
            missing.remedy.unwrap_or_default()
        )),
    }
}

/// The hosts of the job, one a node; none for this machine. GASNET_SPAWNFN chooses: `L` (the default) this machine, `S`
/// those that GASNET_SSH_SERVERS names, or GASNET_SSH_NODEFILE or GASNET_NODEFILE lists. Users of `ibv` are used to naming
/// hosts alone.
fn hosts(ranks: u32, conduit: c_int) -> Result<Vec<String>, String> {
    let nodefile = || variable("GASNET_SSH_NODEFILE").or_else(|| variable("GASNET_NODEFILE"));
    let names_hosts = || variable("GASNET_SSH_SERVERS").is_some() || nodefile().is_some();
    let list = match variable("GASNET_SPAWNFN").as_deref().map(str::trim) {
        None if conduit != CONDUIT_IBV || !names_hosts() => return Ok(Vec::new()),
        Some("L" | "l") => return Ok(Vec::new()),
        None | Some("S" | "s") => match (variable("GASNET_SSH_SERVERS"), nodefile()) {
            (Some(servers), _) => servers,
            (None, Some(file)) => {
                std::fs::read_to_string(&file).map_err(|error| format!("cannot read {file}: {error}"))?
            }
            (None, None) => {
                return Err("GASNET_SPAWNFN=S needs hosts: set GASNET_SSH_SERVERS or GASNET_NODEFILE".into());
            }
        },
        Some(other) => return Err(format!("GASNET_SPAWNFN is {other:?}: L and S are supported")),
    };
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default());
    let words = lines.flat_map(|line| line.split([' ', '\t', ',', ';'])).filter(|word| !word.is_empty());
    // A host that is listed several times is one node.
    let mut hosts: Vec<String> = Vec::new();
    for word in words {
        if !hosts.iter().any(|host| host == word) {
            hosts.push(word.to_owned());
        }
    }
    hosts.truncate(ranks as usize);
    if hosts.is_empty() { Err("the list of hosts is empty".into()) } else { Ok(hosts) }
}

/// The settings of the job: what users say about vgas, else what they say about GASNet, else the defaults for C clients.
fn settings(conduit: c_int, ranks_per_node: u32) -> Result<Settings, String> {
    let network = match conduit {
        CONDUIT_SMP => "smp",
        CONDUIT_IBV => "ibv",
        _ => "tcp",
    };
    let mut defaults = vec![("conduit", network.to_owned()), ("segment.kind", "pinned".to_owned())];
    if let Some(text) = variable("GASNET_MAX_SEGSIZE") {
        let size = segment_size(&text, ranks_per_node)?.to_string();
        defaults.push(("segment.pinned_max", size.clone()));
        defaults.push(("segment.tiered_max", size));
    }
    let mut sources = Sources { file: None, environment: std::env::vars_os().collect(), flags: Vec::new() };
    let said = Config::load(&sources).map_err(|error| error.to_string())?;
    let is_default = |name: &str| {
        said.values().iter().any(|value| value.setting.name == name && value.origin == Origin::Default)
    };
    let flags = defaults.into_iter().filter(|(name, _)| is_default(name));
    sources.flags =
        flags.map(|(name, text)| FlagValue { flag: "gasnet_init".into(), name: name.into(), text }).collect();
    let config = Config::load(&sources).map_err(|error| error.to_string())?;
    Ok(config.settings().clone())
}
