//! An externally started program (`srun`, `mpirun`, `mpiexec.hydra`, Flux) joins its job and is the job's
//! helpers.
//!
//! The helpers of such a job, its leader and the daemons of nodes, are this program once more
//! ([`vgas_job::join_started`]): a constructor, which the system calls before `main`, serves instead of the
//! program when it finds [`HELPER_VARIABLE`]. So none of the program's own code runs there, and no `vgas`
//! command has to be installed. A program that brings services of its own ([`crate::service::serve_node`])
//! has its `main` do it.

use crate::config::{Auto, Config, ConfigError, PmiProtocol, Settings, Size, Sources, Value};
use crate::error::{Error, Result};
use crate::info::Machine;
use crate::service::{NODE_ARGUMENT, Services, node_main_with};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
pub use vgas_job::pmi::Seen;
use vgas_job::pmi::{self, PmiChoice};
use vgas_job::{Joining, Membership, Plan};

/// Tells a program that it was started as a helper.
pub const HELPER_VARIABLE: &str = "VGAS_HELPER";

/// The value by which the constructor of a library that this program is linked with serves.
const BY_CONSTRUCTOR: &str = "constructor";

/// The value for others.
const BY_PROGRAM: &str = "program";

/// `main` begins with [`crate::service::serve_node`].
static SERVES_ITSELF: AtomicBool = AtomicBool::new(false);

/// A library's options for joining an externally started job.
#[derive(Clone, Debug)]
pub struct Starting {
    /// The settings; `cache.size` need not be resolved.
    pub settings: Settings,
    /// The command that calls [`crate::launch::node_main`], as [`JobRequest::daemon`](crate::launch::JobRequest::daemon).
    pub daemon: Vec<OsString>,
}

#[used]
// SAFETY: a function of the type that the system calls there, which returns at once in every process but a helper.
#[unsafe(link_section = ".init_array")]
static SERVE: extern "C" fn() = serve;

/// Keeps the constructor in programs that can join.
fn keep_constructor() {
    std::hint::black_box(&SERVE);
}

extern "C" fn serve() {
    serve_helper(Services::default);
}

/// If this process was started as a helper of its program, is that until the job ends, with these services, and ends the process.
/// For constructors of libraries that have services; that of this crate comes last.
pub fn serve_helper(services: impl FnOnce() -> Services) {
    if std::env::var_os(HELPER_VARIABLE).is_some_and(|value| value == BY_CONSTRUCTOR) {
        let status = node_main_with(services()).unwrap_or(1);
        std::process::exit(status.into());
    }
}

/// The program's `main` would have served a node.
pub(crate) fn serves_itself() {
    SERVES_ITSELF.store(true, Ordering::Relaxed);
}

/// Looks for a process manager in this process's environment, by the setting `run.pmi`.
pub fn seen(settings: &Settings) -> Seen {
    pmi::seen(choice(settings))
}

fn choice(settings: &Settings) -> PmiChoice {
    match settings.run.pmi {
        PmiProtocol::Auto => PmiChoice::Auto,
        PmiProtocol::Pmix => PmiChoice::Pmix,
        PmiProtocol::Pmi1 => PmiChoice::Pmi1,
        PmiProtocol::None => PmiChoice::None,
    }
}

/// Returns true if this process was started as one of several ranks, as far as its environment says: then a
/// command that would start a job of its own belongs to one. By the default of `run.pmi`.
pub fn is_one_of_several() -> bool {
    let number = |name| std::env::var(name).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let ranks = ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"].into_iter().find_map(number);
    pmi::seen(PmiChoice::Auto) != Seen::Nothing && ranks.is_some_and(|ranks| ranks > 1)
}

/// Joins the job in which this process was started, by whomever.
pub(crate) fn join(starting: Option<Starting>) -> Result<Membership> {
    // SAFETY: the membership becomes a runtime, whose calls that reach what belongs to a library are unsafe.
    match unsafe { vgas_job::join() } {
        // A process that has the variable and not the socket is a child of a rank, and none itself.
        Err(vgas_rma::RmaError::NotInJob) if std::env::var_os("VGAS_CONTROL_FD").is_none() => {}
        joined => return Ok(joined?),
    }
    keep_constructor();
    let (settings, daemon) = match starting {
        Some(Starting { settings, daemon }) => (settings, Some(daemon)),
        None => {
            let environment = std::env::vars_os().collect();
            let sources = Sources { file: None, environment, flags: Vec::new() };
            (
                Config::load(&sources).map_err(|error| Error::Usage(in_a_line(&error)))?.settings().clone(),
                None,
            )
        }
    };
    if seen(&settings) == Seen::Nothing {
        return Err(vgas_rma::RmaError::NotInJob.into());
    }
    let by_itself = SERVES_ITSELF.load(Ordering::Relaxed);
    let this = || "/proc/self/exe".into();
    let (helper, how) = match daemon {
        Some(daemon) => (daemon, BY_PROGRAM),
        None if by_itself => (vec![this(), NODE_ARGUMENT.into()], BY_PROGRAM),
        None => (vec![this()], BY_CONSTRUCTOR),
    };
    let joining = Joining {
        pmi: choice(&settings),
        plan: plan(settings)?,
        helper,
        helper_environment: vec![(HELPER_VARIABLE.into(), how.into())],
    };
    // SAFETY: as above.
    Ok(unsafe { vgas_job::join_started(&joining) }?)
}

fn in_a_line(error: &ConfigError) -> String {
    error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}; {hint}"))
}

/// The job that the settings ask for.
fn plan(mut settings: Settings) -> Result<Plan> {
    if let Some((name, _)) = settings.cluster.of_virtual_nodes() {
        return Err(Error::Usage(format!("{name} is for virtual nodes, which `vgas run` starts")));
    }
    let cache = settings.cache.size_bytes(Machine::find().usable_memory_bytes(), 1);
    settings.cache.size = Auto::Is(Size::of_bytes(cache));
    let mut plan = Plan::new();
    plan.conduit = settings.conduit.provider().name.into();
    plan.ring_bytes = settings.smp.ring.bytes();
    plan.survive = settings.run.survive;
    plan.connect_timeout = Duration::from_millis(settings.run.start_timeout_ms.into());
    if let Auto::Is(range) = &settings.tcp.port_range {
        plan.ports = Some(range.0.clone());
    }
    if let Auto::Is(interface) = &settings.tcp.interface {
        plan.interface = Some(interface.text());
    }
    plan.settings = settings.to_map();
    Ok(plan)
}
