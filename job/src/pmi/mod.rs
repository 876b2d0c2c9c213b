//! The process manager that has started this program, if it was not `vgas run`: how ranks of `srun`,
//! `mpirun`, `mpiexec.hydra` or Flux learn their number and find each other.
//!
//! It is used once, for one text of rank 0 (an address and a key); everything else is our own protocol. A
//! rank puts nothing but that text, waits once for the others, and gets once at most: gets cost milliseconds
//! when they travel.
//!
//! | found | by | as |
//! |---|---|---|
//! | `PMIX_NAMESPACE` | `mpirun`, `srun --mpi=pmix` | PMIx, by libpmix, opened at run time |
//! | `PMI_FD` | `mpiexec.hydra`, `srun --mpi=pmi2`, Flux | the wire protocol of PMI-1, no library |
//!
//! If there is neither, but the environment says that this is one of several ranks, the start is refused: it
//! would become as many jobs of one rank.

#![forbid(unsafe_code)]

mod bounded;
mod relay;
pub(crate) mod server;
pub(crate) mod wire;

use crate::{pmix, system};
use bounded::Bounded;
use relay::Relay;
use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::Duration;
use vgas_rma::error::{Result, RmaError};
use wire::Wire;

/// Choice of the process manager's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmiChoice {
    /// The one that the environment offers: PMIx before PMI-1.
    Auto,
    /// PMIx.
    Pmix,
    /// PMI-1.
    Pmi1,
    /// None: a program that was not started by `vgas run` is not in a job.
    None,
}

/// The process manager that the environment offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing of a process manager.
    Nothing,
    /// A PMIx server.
    Pmix,
    /// A socket for PMI-1.
    Pmi1,
    /// One of several ranks by this variable, with no process manager to be reached.
    Unreachable {
        /// The variable.
        variable: &'static str,
        /// Its number of ranks.
        ranks: u32,
    },
}

/// The key of rank 0's text.
const KEY: &str = "vgas-job";

/// A session with the process manager.
pub(crate) struct Session {
    with: With,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    /// The process manager's name of the job.
    pub(crate) space: String,
}

enum With {
    /// With the number of the line, where an MPI of this process may need a part in it.
    Pmi1(Wire, Option<u32>),
    Pmix(Bounded),
}

/// In a rank that is served PMI-1: the number of its line, and the system's name of it. Programs that the
/// rank runs inherit it with the variables of Hydra's ranks, which must stay for an MPI in the rank; they are
/// no ranks, unless another starter has made them some.
pub(crate) const LINE_VARIABLE: &str = "VGAS_PMI_LINE";

/// Builds the value of [`LINE_VARIABLE`] for a file of this process.
pub(crate) fn line(descriptor: impl std::fmt::Display) -> Option<String> {
    let name = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    Some(format!("{descriptor} {}", name.display()))
}

/// Reads the environment, by `choice`.
pub fn seen(choice: PmiChoice) -> Seen {
    let text = |name| std::env::var(name).unwrap_or_default();
    let (told, descriptor) = (text(LINE_VARIABLE), text("PMI_FD"));
    let is_a_ranks = is_line(&told, &descriptor, line(&descriptor).as_deref());
    look(choice, |name| std::env::var_os(name).filter(|_| !(is_a_ranks && name.starts_with("PMI_"))))
}

/// Returns true if `PMI_FD` is the line that [`LINE_VARIABLE`] describes; `now`: the description of the
/// present file of that number, if there is one.
fn is_line(told: &str, descriptor: &str, now: Option<&str>) -> bool {
    let is_its_number = told.split_once(' ').is_some_and(|(number, _)| number == descriptor);
    // If the program has not inherited it, any file may have its number, which is not the line.
    is_its_number && now.is_none_or(|now| now == told || !now.contains(" socket:"))
}

fn look(choice: PmiChoice, variable: impl Fn(&str) -> Option<OsString>) -> Seen {
    let (pmix, pmi1) = (variable("PMIX_NAMESPACE").is_some(), variable("PMI_FD").is_some());
    match choice {
        PmiChoice::None => return Seen::Nothing,
        PmiChoice::Auto | PmiChoice::Pmix if pmix => return Seen::Pmix,
        PmiChoice::Auto | PmiChoice::Pmi1 if pmi1 => return Seen::Pmi1,
        _ => {}
    }
    let number = |name| variable(name)?.to_str()?.trim().parse::<u32>().ok();
    // Within an allocation, but outside of a step, the number of tasks is what a step would have.
    let in_step = variable("SLURM_STEP_ID").is_some();
    let of_slurm = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"].into_iter().filter(|_| in_step);
    let mut all = of_slurm.chain(["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"]);
    let several = all.find_map(|name| number(name).map(|ranks| (name, ranks)));
    match several {
        Some((variable, ranks)) if ranks > 1 => Seen::Unreachable { variable, ranks },
        _ => Seen::Nothing,
    }
}

/// Returns the remedy if no process manager can be reached.
pub fn remedy(variable: &str) -> &'static str {
    match variable.starts_with("SLURM") {
        true => "start it with `srun --mpi=pmix` (or `--mpi=pmi2`)",
        false => {
            "start it with an mpirun or mpiexec that offers PMIx or PMI-1, with `srun --mpi=pmix`, or with `vgas run`"
        }
    }
}

impl Session {
    /// Begins a session; none if no process manager has started this process.
    ///
    /// # Errors
    /// If one has, as far as can be seen, and cannot be reached.
    pub(crate) fn open(choice: PmiChoice, timeout: Duration) -> Result<Option<Self>> {
        let opened = match seen(choice) {
            Seen::Nothing => return Ok(None),
            Seen::Unreachable { variable, ranks } => {
                return Err(RmaError::Refused(format!(
                    "this is one of {ranks} processes ({variable}), but no process manager answers them; {}",
                    remedy(variable)
                )));
            }
            Seen::Pmix => Self::over_pmix(timeout).map_err(|what| refused("PMIx", &what)),
            Seen::Pmi1 => Self::over_wire(timeout).map_err(|what| refused("PMI-1", &what)),
        };
        let session = opened?;
        if session.rank >= session.ranks {
            let what = format!("rank {} of {}", session.rank, session.ranks);
            return Err(refused("the process manager", &what));
        }
        Ok(Some(session))
    }

    fn over_wire(timeout: Duration) -> std::result::Result<Self, String> {
        let number = |name: &str| {
            let text = std::env::var(name).map_err(|_| format!("{name} is not set"))?;
            text.trim().parse::<u32>().map_err(|_| format!("{name} is {text:?}, which is no number"))
        };
        let (rank, ranks, descriptor) = (number("PMI_RANK")?, number("PMI_SIZE")?, number("PMI_FD")?);
        let socket = system::inherited_socket(descriptor)
            .ok_or_else(|| format!("PMI_FD is {descriptor}, which is no open socket of this process"))?;
        let mpich = system::mpich();
        let wire = match &mpich {
            // Slurm takes one beginning of a session from a process, and leaves a second one without an answer.
            Some(mpich) if mpich.has_begun => Wire::go_on(socket, timeout)?,
            _ => Wire::open(socket, timeout)?,
        };
        let has_begun_it = !mpich.is_some_and(|mpich| mpich.has_begun);
        let shared = (has_begun_it && std::env::var_os("SLURM_STEP_ID").is_some()).then_some(descriptor);
        let space = wire.space.clone();
        Ok(Self { with: With::Pmi1(wire, shared), rank, ranks, space })
    }

    fn over_pmix(timeout: Duration) -> std::result::Result<Self, String> {
        let (bounded, found) = Bounded::open(timeout)?;
        Ok(Self { with: With::Pmix(bounded), rank: found.rank, ranks: found.ranks, space: found.space })
    }

    /// Tells all ranks of the job this text, which is rank 0's (the others give none), and returns it. It is
    /// a barrier: all ranks have come here before any returns.
    pub(crate) fn agree(&self, text: Option<String>) -> Result<String> {
        match &self.with {
            With::Pmi1(wire, _) => agree_by_wire(wire, text).map_err(|what| refused("PMI-1", &what)),
            With::Pmix(pmix) => pmix.agree(text).map_err(|what| refused("PMIx", &what)),
        }
    }

    /// Keeps the session until [`leave`]: a starter takes the earlier end of a process for a failure.
    ///
    /// # Errors
    /// If the line cannot be shared with an MPI of this process.
    pub(crate) fn keep(self) -> Result<()> {
        let kept = match self.with {
            // Not before: the relay reads what comes.
            With::Pmi1(wire, Some(number)) => {
                Kept::Relay(relay::start(&wire, number).map_err(|what| refused("PMI-1", &what))?)
            }
            With::Pmi1(wire, None) => Kept::Pmi1(wire),
            With::Pmix(pmix) => Kept::Pmix(pmix),
        };
        if KEPT.set(kept).is_ok() {
            system::at_exit(leave);
        }
        Ok(())
    }
}

fn agree_by_wire(wire: &Wire, text: Option<String>) -> std::result::Result<String, String> {
    if let Some(text) = &text {
        wire.put(KEY, text)?;
    }
    wire.meet()?;
    text.map_or_else(|| wire.get(KEY), Ok)
}

/// State of a session that is kept until the process exits.
enum Kept {
    Pmi1(Wire),
    Relay(Relay),
    Pmix(Bounded),
}

static KEPT: OnceLock<Kept> = OnceLock::new();

/// Leaves the process manager, when the process ends: until then an MPI of the program may need it.
extern "C" fn leave() {
    match KEPT.get() {
        Some(Kept::Pmi1(wire)) => wire.leave(),
        Some(Kept::Relay(relay)) => relay.leave(),
        Some(Kept::Pmix(pmix)) => pmix.leave(),
        None => {}
    }
}

fn refused(with: &str, what: &str) -> RmaError {
    RmaError::Refused(format!("cannot join the job by {with}: {what}"))
}

/// Checks that libpmix can be loaded here; returns its name, or the reason.
///
/// # Errors
/// The loader's message.
pub fn pmix_library() -> std::result::Result<&'static str, String> {
    pmix::library_name()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(choice: PmiChoice, variables: &[(&str, &str)]) -> Seen {
        look(choice, |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    /// Goal: PMIx before PMI-1 before nothing, and never silently a job of one where there are several.
    /// Goal: programs that a rank runs do not take the rank's line for theirs, whether they have it or not; the line of another starter,
    /// of whatever number, is.
    #[test]
    fn lines_of_ranks_are_known() {
        let (own, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let told = line(std::os::fd::AsRawFd::as_raw_fd(&own)).unwrap();
        let (number, _) = told.split_once(' ').unwrap();
        assert!(is_line(&told, number, Some(&told)) && is_line(&told, number, None));
        assert!(is_line(&told, number, Some(&format!("{number} /dev/null"))));
        assert!(!is_line(&told, "1234", None) && !is_line("", "", None));
        assert!(!is_line(&told, number, Some(&format!("{number} socket:[1]"))));
    }

    #[test]
    fn what_is_seen() {
        let both = [("PMIX_NAMESPACE", "one.1"), ("PMI_FD", "7")];
        assert_eq!(looked(PmiChoice::Auto, &both), Seen::Pmix);
        assert_eq!(looked(PmiChoice::Pmi1, &both), Seen::Pmi1);
        assert_eq!(looked(PmiChoice::None, &both), Seen::Nothing);
        assert_eq!(looked(PmiChoice::Auto, &both[1..]), Seen::Pmi1);
        assert_eq!(looked(PmiChoice::Auto, &[]), Seen::Nothing);
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "4")];
        let several = Seen::Unreachable { variable: "SLURM_NTASKS", ranks: 4 };
        assert_eq!(looked(PmiChoice::Auto, &step), several);
        assert_eq!(looked(PmiChoice::Auto, &step[1..]), Seen::Nothing, "an allocation's shell");
        assert_eq!(looked(PmiChoice::Auto, &[step[0], ("SLURM_NTASKS", "1")]), Seen::Nothing);
        assert_eq!(
            looked(PmiChoice::Pmix, &[("PMI_SIZE", "2"), ("PMI_FD", "7")]),
            Seen::Unreachable { variable: "PMI_SIZE", ranks: 2 }
        );
    }
}
