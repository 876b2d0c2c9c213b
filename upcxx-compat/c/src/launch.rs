//! Starting a job from the client itself: `./program 4 …` without any spawner, as GASNet's conduits do.
//!
//! The program is launcher, node daemon and rank in turn, so that nothing but the client and this library is
//! needed. The launcher never returns from `gasnet_init`. A daemon is this program with [`DAEMON_VARIABLE`]
//! set: a constructor of the library serves the node and leaves before `main` is reached, so that the
//! client's code runs in ranks only. If the program loads the library while it runs, its daemons are a shell
//! into which the library is preloaded ([`daemon`]): the constructor must not run within `dlopen`, which
//! holds the loader's lock, because the daemon's threads need that lock. A library that cannot be preloaded,
//! such as a plugin that uses symbols of its program, is served by the program itself: it runs up to
//! `gasnet_init`.

use crate::crash;
use crate::environment::{self, number, segment_size, variable, whole_pages};
use crate::log;
use crate::object;
use libc::{c_char, c_int};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vgas::config::{Auto, Config, FlagValue, Origin, Settings, Size, Sources};
use vgas::info::Machine;
use vgas::launch::{JobRequest, node_main, run};
use vgas::say;
use vgas::started::{Seen, Starting, seen};
use vgas_rma::conduit::factory::{self, Availability, Provider};
use vgas_rma::conduit::{ibv, smp, tcp};

/// Tells a process that it is the daemon of a node.
const DAEMON_VARIABLE: &str = "VGASNET_DAEMON";

/// [`DAEMON_VARIABLE`] in a process that only shows that the library can be preloaded into it.
const PROBE: &str = "probe";

/// [`DAEMON_VARIABLE`] in a daemon that runs the program up to `gasnet_init`.
const LATE: &str = "late";

/// Former value of LD_PRELOAD, in a daemon that has this library preloaded; its ranks have not.
const PRELOAD_BEFORE_VARIABLE: &str = "VGASNET_PRELOAD_BEFORE";

/// Set in ranks (see `vgas_job`).
const RANK_VARIABLE: &str = "VGAS_CONTROL_FD";

/// The number of ranks, set by the spawners.
const RANKS_VARIABLE: &str = "VGASNET_RANKS";

/// The conduit `smp`: as many ranks as GASNET_PSHM_NODES says. Others take the number of ranks from their first argument
/// ([`leading_number`]). [`RANKS_VARIABLE`] overrules both, and leaves all arguments to the client.
const CONDUIT_SMP: c_int = 1;
/// The conduit `ibv`.
pub(crate) const CONDUIT_IBV: c_int = 3;

/// The conduit that a number of the headers means.
fn conduit_name(number: c_int) -> &'static str {
    match number {
        CONDUIT_SMP => smp::NAME,
        CONDUIT_IBV => ibv::NAME,
        _ => tcp::NAME,
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static SERVE_NODE: extern "C" fn() = serve_node;

/// Serves a node instead of running the client, in a daemon.
extern "C" fn serve_node() {
    match std::env::var(DAEMON_VARIABLE).as_deref() {
        Ok(PROBE) => std::process::exit(0),
        // Once the program calls `gasnet_init`.
        Ok(LATE) | Err(_) => {}
        Ok(_) => serve(),
    }
}

/// Serves a node in a daemon whose program has come to `gasnet_init`; returns at once in any other process.
pub(crate) fn serve_node_late() {
    if std::env::var(DAEMON_VARIABLE).as_deref() != Ok(LATE) {
        return;
    }
    if !loads_libraries() {
        say::line(format_args!(
            "vgas: this program calls gasnet_init within a constructor of a library, and that library cannot be preloaded into a \
             shell: its node cannot be served; start the program by vgas run"
        ));
        std::process::exit(1);
    }
    serve()
}

/// Serves a node in this process, from here to its end.
fn serve() -> ! {
    // SAFETY: constructors run before the program has other threads; `gasnet_init` may write to the environment, as GASNet's does.
    unsafe {
        std::env::remove_var(DAEMON_VARIABLE);
        if let Some(before) = std::env::var_os(PRELOAD_BEFORE_VARIABLE) {
            std::env::remove_var(PRELOAD_BEFORE_VARIABLE);
            match before.is_empty() {
                true => std::env::remove_var("LD_PRELOAD"),
                false => std::env::set_var("LD_PRELOAD", before),
            }
        }
    }
    open_standard_streams();
    load_ranks_at_equal_addresses();
    log::start();
    let status = node_main().unwrap_or_else(|error| {
        say::line(format_args!("vgas: {error}"));
        1
    });
    std::process::exit(i32::from(status))
}

/// Returns true if other threads can load libraries now: not while this one runs a constructor within
/// `dlopen`, because the loader's lock is held until the constructor returns.
fn loads_libraries() -> bool {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let (done, has_loaded) = std::sync::mpsc::channel();
    let load = move || {
        // SAFETY: names the program itself, which stays loaded.
        let _program = unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_LAZY) };
        let _ = done.send(());
    };
    std::thread::Builder::new().spawn(load).is_ok() && has_loaded.recv_timeout(TIMEOUT).is_ok()
}

/// Opens /dev/null in place of missing standard streams: otherwise the first files and sockets of the job
/// would get these numbers, and be used as the user's input and output.
fn open_standard_streams() {
    for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: numbers, and a string that ends with a zero. The opened file gets the lowest number that is
        // free: this one.
        unsafe {
            if libc::fcntl(stream, libc::F_GETFD) == -1 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
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

/// Removes the job's variables from the environment of this process, which has joined it: programs that it
/// runs are no ranks, and may start jobs of their own.
pub(crate) fn forget_job() {
    for name in [RANK_VARIABLE, RANKS_VARIABLE] {
        // SAFETY: the environment belongs to the client, which runs nothing beside `gasnet_init` that looks at it (GASNet's own
        // conduits write to it there, too).
        unsafe { std::env::remove_var(name) };
    }
}

/// Returns the options for joining the job if `srun`, `mpirun`, `mpiexec.hydra` or the like have started this
/// process: then there is no number of ranks among its arguments, and no job to start.
pub(crate) fn started_by_others(conduit: c_int, segment_max: u64) -> Result<Option<Starting>, String> {
    let settings = settings(conduit, ranks_here(), segment_max)?;
    if seen(&settings) == Seen::Nothing {
        return Ok(None);
    }
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let daemon = daemon(program.as_os_str(), std::env::args_os().skip(1).collect(), object::loaded_late())?;
    // The constructor and this function live and die together in a static library.
    std::hint::black_box(&SERVE_NODE);
    Ok(Some(Starting { settings, daemon }))
}

/// Ranks of this node, as starters say it.
fn ranks_here() -> u32 {
    let number = |name| variable(name)?.trim().parse().ok();
    let all = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE", "PMI_SIZE"];
    all.into_iter().find_map(number).unwrap_or(1).max(1)
}

/// Runs a job of this program, and ends this process with its status.
pub(crate) unsafe fn start_job(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    conduit: c_int,
    segment_max: u64,
) -> ! {
    // The constructor and this function live and die together in a static library.
    std::hint::black_box(&SERVE_NODE);
    open_standard_streams();
    environment::verbose();
    // SAFETY: as the caller promised.
    let words = unsafe { arguments(argc, argv) };
    let status = request(CommandLine::of(std::env::args_os().collect(), words), conduit, segment_max)
        .and_then(|request| run(request).map_err(|error| error.to_string()));
    let code = match status {
        Ok(status) => {
            if let Some(message) = &status.message {
                say::line(format_args!("vgas: {message}"));
            }
            status.code
        }
        Err(reason) => {
            say::line(format_args!("vgas: {reason}"));
            1
        }
    };
    std::process::exit(i32::from(code))
}

/// Returns the arguments of `main`, or, if the client did not pass them, the system's.
unsafe fn arguments(argc: *mut c_int, argv: *mut *mut *mut c_char) -> Vec<OsString> {
    // SAFETY: rule 1: as `main` was given them, so many strings.
    unsafe {
        // Runtimes that do not know theirs give none.
        if argc.is_null() || argv.is_null() || *argc <= 0 {
            return std::env::args_os().collect();
        }
        (0..(*argc).max(0) as usize)
            .map(|index| OsString::from_vec(CStr::from_ptr(*(*argv).add(index)).to_bytes().to_vec()))
            .collect()
    }
}

/// Command line of each rank.
#[derive(Debug, PartialEq, Eq)]
struct CommandLine {
    /// The name by which the program is called.
    name: Option<OsString>,
    /// Words before the client's arguments: the script that an interpreter runs, and its options.
    before: Vec<OsString>,
    /// The client's arguments; the first may be the number of ranks.
    arguments: Vec<OsString>,
}

impl CommandLine {
    /// Splits the system's command line of this process, by the arguments that the client has given to
    /// `gasnet_init`: a C program passes those of `main`, an interpreter those of its script, which are
    /// fewer.
    fn of(system: Vec<OsString>, client: Vec<OsString>) -> Self {
        let mut words = client.clone().into_iter();
        let (name, arguments) = (words.next(), words.collect::<Vec<_>>());
        if name == system.first().cloned() || system.is_empty() {
            return Self { name, before: Vec::new(), arguments };
        }
        // As many of the last words as the client has arguments, where it has left them as they were; otherwise what follows its name.
        let end = match system[1..].ends_with(&arguments) {
            true => Some(system.len() - arguments.len()),
            false => system.iter().position(|word| Some(word) == name.as_ref()).map(|at| at + 1),
        };
        match end {
            Some(end) => {
                let before = system[1..end].to_vec();
                Self { name: system.into_iter().next(), before, arguments }
            }
            None => Self { name, before: Vec::new(), arguments },
        }
    }
}

/// The job that the arguments and the environment ask for.
fn request(line: CommandLine, conduit: c_int, segment_max: u64) -> Result<JobRequest, String> {
    crash::asked_for()?;
    log::wanted()?;
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let CommandLine { name, before, mut arguments } = line;
    let ranks = match number(RANKS_VARIABLE)? {
        Some(ranks) => ranks,
        None if conduit == CONDUIT_SMP => number("GASNET_PSHM_NODES")?.unwrap_or(1),
        None => leading_number(&mut arguments, name.as_deref().unwrap_or(program.as_os_str()))?,
    };
    let hosts = hosts(ranks, conduit)?;
    let nodes = match number("VGASNET_NODES")? {
        _ if !hosts.is_empty() => hosts.len() as u32,
        // A node without a rank would be useless.
        Some(nodes) => nodes.min(ranks),
        None => match number("GASNET_SUPERNODE_MAXSIZE")? {
            Some(ranks_per_node) if ranks_per_node > 0 => ranks.div_ceil(ranks_per_node),
            _ => 1,
        },
    };
    let ranks_per_node = ranks.div_ceil(nodes.max(1));
    let mut settings = settings(conduit, ranks_per_node, segment_max)?;
    let provider = settings.conduit.provider();
    if hosts.is_empty() && provider.name != factory::DEFAULT {
        can_use(provider)?;
    }
    let nodes_here = if hosts.is_empty() { nodes } else { 1 };
    let cache = settings.cache.size_bytes(Machine::find().usable_memory_bytes(), nodes_here.max(1));
    settings.cache.size = Auto::Is(Size::of_bytes(cache));
    let program = program.into_os_string();
    let arguments: Vec<OsString> = before.into_iter().chain(arguments).collect();
    let daemon = daemon(&program, arguments.clone(), object::loaded_late())?;
    Ok(JobRequest {
        program,
        name,
        arguments,
        ranks,
        nodes,
        hosts,
        allocation: None,
        environment: Vec::new(),
        daemon,
        settings,
    })
}

/// Takes the number of ranks from the front of the arguments: `4`, as GASNet's conduits have it, or `-n 4`, `-n4`, `-np 4`, as
/// spawners do.
fn leading_number(arguments: &mut Vec<OsString>, program: &OsStr) -> Result<u32, String> {
    let usage = |problem: String| {
        let program = Path::new(program).display();
        format!(
            "{problem}: write `{program} 4 ...` or `{program} -n 4 ...`, or set {RANKS_VARIABLE}=4, which leaves all arguments \
             to the program"
        )
    };
    let Some(first) = arguments.first().map(|first| first.to_string_lossy().into_owned()) else {
        return Err(usage("how many processes?".into()));
    };
    let (text, words) = match first.strip_prefix("-np").or_else(|| first.strip_prefix("-n")) {
        Some("") => (arguments.get(1).map(|second| second.to_string_lossy().into_owned()), 2),
        Some(rest) => (Some(rest.to_owned()), 1),
        None => (Some(first.clone()), 1),
    };
    let Some(text) = text else { return Err(usage(format!("how many processes? nothing follows {first}"))) };
    let ranks = text
        .trim()
        .parse()
        .map_err(|_| usage(format!("the first argument is {first:?}, not the number of processes")))?;
    arguments.drain(..words);
    Ok(ranks)
}

/// The command of a daemon. Without env(1), which takes a program's path with a `=` in it for a variable.
///
/// A program that is linked with the library is its own daemon. If the library is loaded late, the daemon is
/// a shell with the library preloaded, because no code of the program may run there: an interpreter without
/// arguments loads nothing, and a constructor of the program's other libraries may load the client itself,
/// within `dlopen`, before the preloaded library has its turn. The shell first tries whether the library can
/// be preloaded; if not, because it uses symbols of the program or of another library, the daemon is the
/// program with its arguments, and serves the node once it calls `gasnet_init`.
fn daemon(
    program: &OsStr,
    arguments: Vec<OsString>,
    library: Option<PathBuf>,
) -> Result<Vec<OsString>, String> {
    let start = |command: String| vec!["sh".into(), "-c".into(), command.into(), program.to_owned()];
    let Some(library) = library else {
        return Ok(start(format!("{DAEMON_VARIABLE}=1 exec \"$0\"")));
    };
    let path = library.canonicalize().map_err(|error| {
        format!(
            "{} was loaded while this program ran, and cannot be loaded into the daemons of the job: {error} (`vgas run -n \
             RANKS -- {} …` needs no such daemons)",
            library.display(),
            Path::new(program).display()
        )
    })?;
    let preload = "LD_PRELOAD=\"${LD_PRELOAD:+$LD_PRELOAD:}$1\"";
    // The loader takes spaces and colons for the end of a name. If the library is missing, on another host,
    // the program itself would run as if it were a daemon.
    let mut command = start(format!(
        "[ -r \"$1\" ] || {{ echo \"vgas: cannot read $1, which the program loads\" >&2; exit 1; }}; \
         case $1 in *[\\ :]*) ;; *) if {preload} {DAEMON_VARIABLE}={PROBE} sh -c 'exit 1' </dev/null >/dev/null 2>&1; then \
         {PRELOAD_BEFORE_VARIABLE}=\"${{LD_PRELOAD-}}\" {preload} {DAEMON_VARIABLE}=1 exec sh -c 'exit 1'; fi ;; esac; \
         shift; {DAEMON_VARIABLE}={LATE} exec \"$0\" \"$@\""
    ));
    command.push(path.into_os_string());
    command.extend(arguments);
    Ok(command)
}

/// Checks that this machine has what a conduit needs; otherwise returns the missing part and its source,
/// before each rank would find out by itself.
fn can_use(conduit: &Provider) -> Result<(), String> {
    match conduit.probe() {
        Availability::Missing { detail, remedy } => Err(format!(
            "the conduit {conduit} cannot be used here: {detail}; to get it: {remedy} (VGAS_CONDUIT={} runs this program \
             as it is)",
            factory::DEFAULT
        )),
        Availability::Available { .. } | Availability::Limited { .. } => Ok(()),
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

/// Returns the settings of the job: users' settings of vgas, else those of GASNet, else the defaults for C
/// clients.
fn settings(conduit: c_int, ranks_per_node: u32, segment_max: u64) -> Result<Settings, String> {
    let mut defaults =
        vec![("conduit", conduit_name(conduit).to_owned()), ("segment.kind", "pinned".to_owned())];
    let size = match variable("GASNET_MAX_SEGSIZE") {
        Some(text) => Some(segment_size(&text, ranks_per_node, Machine::find().usable_memory_bytes())?),
        None if segment_max > 0 => Some(whole_pages(segment_max)),
        None => None,
    };
    if let Some(size) = size {
        defaults.push(("segment.pinned_max", size.to_string()));
        defaults.push(("segment.tiered_max", size.to_string()));
    }
    let mut sources = Sources { file: None, environment: std::env::vars_os().collect(), flags: Vec::new() };
    let said = load(&sources)?;
    let is_default = |name: &str| {
        said.values().iter().any(|value| value.setting.name == name && value.origin == Origin::Default)
    };
    let flags = defaults.into_iter().filter(|(name, _)| is_default(name));
    sources.flags =
        flags.map(|(name, text)| FlagValue { flag: "gasnet_init".into(), name: name.into(), text }).collect();
    Ok(load(&sources)?.settings().clone())
}

/// Returns the configuration, or the fault and the remedy, on one line.
fn load(sources: &Sources) -> Result<Config, String> {
    Config::load(sources).map_err(|error| match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an interpreter's ranks run the script, whatever part of its command line the script gives to `gasnet_init`.
    #[test]
    fn ranks_run_what_this_process_runs() {
        let line = |system: &[&str], client: &[&str]| {
            let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
            let found = CommandLine::of(words(system), words(client));
            let all: Vec<String> = found
                .name
                .iter()
                .chain(&found.before)
                .chain([&OsString::from("|")])
                .chain(&found.arguments)
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            all.join(" ")
        };
        assert_eq!(line(&["./a", "2", "x"], &["./a", "2", "x"]), "./a | 2 x");
        assert_eq!(line(&["./a", "2", "x"], &["./a"]), "./a |");
        assert_eq!(line(&["./a", "2"], &["other", "7"]), "other | 7");
        assert_eq!(line(&["python3", "t.py", "2", "x"], &["t.py", "2", "x"]), "python3 t.py | 2 x");
        assert_eq!(line(&["python3", "t.py", "x"], &["t.py"]), "python3 t.py x |");
        assert_eq!(line(&["python3", "-c", "import t", "2"], &["-c", "2"]), "python3 -c import t | 2");
        assert_eq!(line(&["python3", "-u", "t.py", "x"], &["t.py", "y"]), "python3 -u t.py | y");
        assert_eq!(line(&["python3", "-m", "t", "2"], &["/lib/t.py", "2"]), "python3 -m t | 2");
    }

    #[test]
    fn the_number_of_ranks_is_taken_from_the_front() {
        let taken = |words: &[&str]| {
            let mut arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
            let ranks = leading_number(&mut arguments, OsStr::new("./ring"));
            ranks.map(|ranks| (ranks, arguments.len()))
        };
        for words in
            [&["4", "-n", "7"][..], &["-n", "4", "a", "b"], &["-n4", "a", "b"], &["-np", "4", "a", "b"]]
        {
            assert_eq!(taken(words), Ok((4, 2)), "{words:?}");
        }
        assert_eq!(taken(&["-np4"]), Ok((4, 0)));
        for words in
            [&[][..], &["-n"], &["-n", "a"], &["--ranks", "4"], &["4.5"], &["-n", "-1"], &["-4"], &["-nope"]]
        {
            let problem = taken(words).expect_err("no number");
            assert!(
                problem.contains("`./ring -n 4 ...`") && problem.contains("VGASNET_RANKS=4"),
                "{problem}"
            );
        }
    }
}
