//! The hosts given by a batch system: the environment of Slurm, PBS and LSF in an allocation.
//!
//! Nothing here asks anybody: variables are read, and the file that one of them names. Their content is
//! checked as input, since it is set outside of this program.

#![forbid(unsafe_code)]

use super::spec::{RANKS_MAX, Starter};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use vgas_rma::error::{Result, RmaError};

/// Source of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Slurm; its hosts are reached by `srun`.
    Slurm,
    /// PBS, OpenPBS, Torque; hosts are reached by ssh.
    Pbs,
    /// LSF; hosts are reached by ssh.
    Lsf,
}

impl std::fmt::Display for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Slurm => "Slurm",
            Self::Pbs => "PBS",
            Self::Lsf => "LSF",
        })
    }
}

/// Allocation found in this process's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Around {
    /// It is in none.
    Nothing,
    /// This process is one of `srun`'s tasks, each of which would start a job on all hosts.
    Task,
    /// It is in this one.
    Allocation(Allocation),
}

/// Hosts that a batch system has given to this job of its.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The scheduler's name of the job.
    pub job: String,
    /// The hosts, each once, in the scheduler's order, with the number of tasks planned for each; 0 if
    /// unknown.
    pub hosts: Vec<(String, u32)>,
    /// True if this process runs on the first host.
    pub is_here: bool,
}

/// Placement of a job's ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// One host a node.
    pub hosts: Vec<String>,
    /// Number of ranks of each; empty: as many on each.
    pub ranks: Vec<u32>,
}

/// Most bytes read of a file of hosts: a line for each rank that a job may have.
const FILE_BYTES_MAX: u64 = RANKS_MAX as u64 * 256;

/// Steps of Slurm that are no tasks of `srun`: the batch script, and the shell of `salloc`.
const SHELLS: [&str; 2] = ["4294967291", "4294967290"];

impl Allocation {
    /// Reads the allocation from this process's environment.
    ///
    /// # Errors
    /// If they name an allocation and its hosts cannot be made out: the variable, and the reason.
    pub fn around() -> Result<Around> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self::among(variable, &host)
    }

    fn among(variable: impl Fn(&str) -> Option<String>, here: &str) -> Result<Around> {
        let found = if let Some(job) = variable("SLURM_JOB_ID") {
            if let Some(step) = variable("SLURM_STEP_ID").or_else(|| variable("SLURM_STEPID"))
                && !SHELLS.contains(&step.as_str())
            {
                return Ok(Around::Task);
            }
            let hosts = slurm_hosts(&variable)?;
            let is_here = variable("SLURMD_NODENAME").is_some_and(|name| hosts[0].0 == name);
            Self { scheduler: Scheduler::Slurm, job, hosts, is_here }
        } else if let (Some(job), Some(file)) = (variable("PBS_JOBID"), variable("PBS_NODEFILE")) {
            Self::of_file(Scheduler::Pbs, job, "PBS_NODEFILE", Path::new(&file), here)?
        } else if let Some(job) = variable("LSB_JOBID") {
            match (variable("LSB_DJOB_HOSTFILE"), variable("LSB_MCPU_HOSTS")) {
                (Some(file), _) => {
                    Self::of_file(Scheduler::Lsf, job, "LSB_DJOB_HOSTFILE", Path::new(&file), here)?
                }
                (None, Some(pairs)) => {
                    let hosts = host_pairs(&pairs).map_err(|why| unclear("LSB_MCPU_HOSTS", &why))?;
                    Self::of_hosts(Scheduler::Lsf, job, hosts, here)
                }
                (None, None) => return Ok(Around::Nothing),
            }
        } else {
            return Ok(Around::Nothing);
        };
        Ok(Around::Allocation(found))
    }

    fn of_file(scheduler: Scheduler, job: String, variable: &str, path: &Path, here: &str) -> Result<Self> {
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|why| unclear(variable, &format!("{}: {why}", path.display())))?;
        if text.len() as u64 == FILE_BYTES_MAX {
            return Err(unclear(
                variable,
                &format!("{} is longer than {FILE_BYTES_MAX} bytes", path.display()),
            ));
        }
        let hosts =
            host_lines(&text).map_err(|why| unclear(variable, &format!("{}: {why}", path.display())))?;
        Ok(Self::of_hosts(scheduler, job, hosts, here))
    }

    fn of_hosts(scheduler: Scheduler, job: String, hosts: Vec<(String, u32)>, here: &str) -> Self {
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let is_here = short(&hosts[0].0) == short(here);
        Self { scheduler, job, hosts, is_here }
    }

    /// Places the ranks: on each host as many as the scheduler has planned if that is all of them, otherwise
    /// on all hosts, or the first if ranks are fewer, as many on each. None if they run on this process's
    /// host.
    pub fn place(&self, ranks: u32) -> Option<Placement> {
        let planned: u64 = self.hosts.iter().map(|(_, tasks)| u64::from(*tasks)).sum();
        let is_planned = planned == u64::from(ranks) && self.hosts.iter().all(|(_, tasks)| *tasks > 0);
        let count = self.hosts.len().min(ranks.max(1) as usize);
        if count == 1 && self.is_here {
            return None;
        }
        let hosts = self.hosts[..count].iter().map(|(name, _)| name.clone()).collect();
        let ranks =
            if is_planned { self.hosts.iter().map(|(_, tasks)| *tasks).collect() } else { Vec::new() };
        Some(Placement { hosts, ranks })
    }

    /// Returns the command that starts a daemon on one of its hosts: `srun` within Slurm, else `ssh`.
    pub fn starter(&self, ssh: Vec<OsString>, srun: Vec<OsString>) -> Starter {
        match self.scheduler {
            Scheduler::Slurm => Starter::Srun(srun),
            Scheduler::Pbs | Scheduler::Lsf => Starter::Ssh(ssh),
        }
    }
}

/// In a line for people.
impl std::fmt::Display for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} job {}: ", self.scheduler, self.job)?;
        match &self.hosts[..] {
            [(one, _)] => f.write_str(one),
            [(first, _), .., (last, _)] => write!(f, "{} hosts, {first} to {last}", self.hosts.len()),
            [] => f.write_str("no host"),
        }
    }
}

fn unclear(variable: &str, why: &str) -> RmaError {
    RmaError::Refused(format!("{variable} names no hosts: {why}"))
}

fn slurm_hosts(variable: &impl Fn(&str) -> Option<String>) -> Result<Vec<(String, u32)>> {
    let name = if variable("SLURM_JOB_NODELIST").is_some() { "SLURM_JOB_NODELIST" } else { "SLURM_NODELIST" };
    let list = variable(name).ok_or_else(|| unclear("SLURM_JOB_NODELIST", "it is not set"))?;
    let hosts = expand(&list).map_err(|why| unclear(name, &why))?;
    // Without a number of tasks, Slurm says one for each node, however many cores it has.
    let planned = variable("SLURM_NTASKS").and_then(|_| variable("SLURM_TASKS_PER_NODE"));
    let tasks = match planned {
        None => vec![0; hosts.len()],
        Some(text) => tasks_of(&text, hosts.len()).unwrap_or_else(|| vec![0; hosts.len()]),
    };
    Ok(hosts.into_iter().zip(tasks).collect())
}

/// A name that neither ssh nor srun takes for something else.
fn checked(name: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(is_allowed) {
        return Err(format!("{name:?} is no host"));
    }
    Ok(name.to_owned())
}

const TOO_MANY: &str = "more hosts than a job may have";

/// The hosts of Slurm's notation, such as `n[0-3,7],rack[1-2]n[01-16],login`.
fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for part in split_outside(list)? {
        let mut names = vec![String::new()];
        let mut rest = part;
        while !rest.is_empty() {
            let (literal, behind) = rest.split_once('[').map_or((rest, None), |(l, r)| (l, Some(r)));
            names.iter_mut().for_each(|name| name.push_str(literal));
            let Some(behind) = behind else { break };
            let (ranges, after) = behind.split_once(']').ok_or_else(|| format!("{part:?} has no end"))?;
            let numbers = numbers_of(ranges)?;
            if names.len().saturating_mul(numbers.len()) > RANKS_MAX as usize {
                return Err(TOO_MANY.into());
            }
            names = names
                .iter()
                .flat_map(|name| numbers.iter().map(move |number| format!("{name}{number}")))
                .collect();
            rest = after;
        }
        for name in names {
            hosts.push(checked(&name)?);
        }
        if hosts.len() > RANKS_MAX as usize {
            return Err(TOO_MANY.into());
        }
    }
    if hosts.is_empty() { Err("it is empty".into()) } else { Ok(hosts) }
}

/// The parts between commas that are in no brackets.
fn split_outside(list: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin, mut is_inside) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            '[' if is_inside => return Err(format!("{list:?} has brackets in brackets")),
            '[' => is_inside = true,
            ']' => is_inside = false,
            ',' if !is_inside => {
                parts.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[begin..]);
    Ok(parts)
}

/// Returns the numbers of `0-3,7` as written: with leading zeros if the first has them.
fn numbers_of(ranges: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| -> Result<u32, String> {
            // Longer ones than numbers of hosts can be are names that fill memory.
            let digits = (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten().ok_or_else(|| format!("{range:?} is no range"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(format!("{range:?} is no range"));
        }
        if u64::from(to - from) + numbers.len() as u64 >= u64::from(RANKS_MAX) {
            return Err(TOO_MANY.into());
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Ok(numbers)
}

/// Returns the tasks of each host in Slurm's notation, such as `4(x2),3`; none if it is of another number of
/// hosts.
fn tasks_of(text: &str, hosts: usize) -> Option<Vec<u32>> {
    let mut tasks = Vec::new();
    for part in text.split(',') {
        let (each, times) = match part.split_once("(x") {
            Some((each, times)) => (each, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1usize),
        };
        if times > hosts - tasks.len() {
            return None;
        }
        tasks.extend(std::iter::repeat_n(each.parse::<u32>().ok()?, times));
    }
    (tasks.len() == hosts).then_some(tasks)
}

/// The hosts of a file that names each once for every task.
fn host_lines(text: &str) -> Result<Vec<(String, u32)>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    counted(lines.map(|line| (line, 1)))
}

/// The hosts of `a 4 b 2`.
fn host_pairs(text: &str) -> Result<Vec<(String, u32)>, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (pairs, []) = words.as_chunks::<2>() else { return Err(format!("{text:?} ends within a pair")) };
    let count = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number of tasks"));
    let pairs: Vec<(&str, u32)> =
        pairs.iter().map(|[host, tasks]| Ok((*host, count(tasks)?))).collect::<Result<_, String>>()?;
    counted(pairs.into_iter())
}

/// Lists each host once, at its first place, with all its tasks.
fn counted<'a>(named: impl Iterator<Item = (&'a str, u32)>) -> Result<Vec<(String, u32)>, String> {
    let mut hosts: Vec<(String, u32)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (name, tasks) in named {
        let place = *places.entry(name).or_insert(hosts.len());
        if place == hosts.len() {
            if hosts.len() == RANKS_MAX as usize {
                return Err(TOO_MANY.into());
            }
            hosts.push((checked(name)?, 0));
        }
        hosts[place].1 = hosts[place].1.saturating_add(tasks);
    }
    if hosts.is_empty() { Err("it is empty".into()) } else { Ok(hosts) }
}

/// Decodes any text as each of the schedulers' lists of hosts: refused, or hosts that may be named to ssh and
/// srun. For tests and fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn hosts_of(text: &str) {
    for (names, variable) in
        [(&["SLURM_JOB_ID"][..], "SLURM_JOB_NODELIST"), (&["LSB_JOBID"], "LSB_MCPU_HOSTS")]
    {
        let tasks = text.split_once(' ').map_or("", |(_, tasks)| tasks);
        let around = Allocation::among(
            |name| match name {
                "SLURM_TASKS_PER_NODE" | "SLURM_NTASKS" => Some(tasks.to_owned()),
                _ if name == variable => Some(text.split(' ').next().unwrap_or_default().to_owned()),
                _ => names.contains(&name).then(|| "7".to_owned()),
            },
            "n0",
        );
        if let Ok(Around::Allocation(found)) = around {
            check(&found);
        }
    }
    for hosts in [host_lines(text), host_pairs(text)].into_iter().flatten().filter(|hosts| !hosts.is_empty())
    {
        check(&Allocation::of_hosts(Scheduler::Pbs, "7".into(), hosts, "n0"));
    }
}

#[cfg(any(test, fuzzing))]
fn check(found: &Allocation) {
    assert!((1..=RANKS_MAX as usize).contains(&found.hosts.len()));
    assert!(found.hosts.iter().all(|(name, _)| checked(name).is_ok()));
    for ranks in [1, 2, 7, RANKS_MAX] {
        if let Some(placement) = found.place(ranks) {
            let placed: u64 = placement.ranks.iter().map(|&ranks| u64::from(ranks)).sum();
            assert!(placement.ranks.is_empty() || placed == u64::from(ranks), "{found:?} {ranks}");
        }
    }
    let _ = found.to_string();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(variables: &[(&str, &str)]) -> Result<Around> {
        let value =
            |name: &str| { variables.iter().find(|(is, _)| *is == name) }.map(|(_, value)| (*value).into());
        Allocation::among(value, "n0.site")
    }

    fn found(variables: &[(&str, &str)]) -> Allocation {
        match around(variables) {
            Ok(Around::Allocation(found)) => found,
            other => unreachable!("{variables:?}: {other:?}"),
        }
    }

    fn refusal(variables: &[(&str, &str)]) -> String {
        around(variables).expect_err("no hosts").to_string()
    }

    /// Goal: Slurm's notation of hosts and tasks is read as Slurm writes it, and an invalid one is refused in
    /// a line, however large its numbers.
    #[test]
    fn hosts_of_slurm_are_read() {
        assert_eq!(expand("n[0-2,7],m").unwrap(), ["n0", "n1", "n2", "n7", "m"]);
        assert_eq!(expand("r[1-2]n[09-10]").unwrap(), ["r1n09", "r1n10", "r2n09", "r2n10"]);
        assert_eq!(expand("a[1-2]-ib.site").unwrap(), ["a1-ib.site", "a2-ib.site"]);
        let most = format!("n[1-{RANKS_MAX}]");
        assert_eq!(expand(&most).unwrap().len(), RANKS_MAX as usize);
        for wrong in [
            "",
            ",",
            "a,,b",
            "n[",
            "n[]",
            "n[1",
            "n[1-]",
            "n[2-1]",
            "n[a]",
            "n[[1]]",
            "n[1-4294967295]",
            "n[0-99999]m[0-99999]",
            "-oProxyCommand=x",
            "a b",
            "n[1-99999999999]",
            "n[0-65535],m[0-65535],k[0-65535]",
            "n]1[",
        ] {
            let said = refusal(&[("SLURM_JOB_ID", "1"), ("SLURM_JOB_NODELIST", wrong)]);
            assert!(said.contains("SLURM_JOB_NODELIST") || wrong.is_empty(), "{wrong}: {said}");
            assert!(!said.contains('\n'), "{said}");
        }
        assert_eq!(tasks_of("2(x3),1", 4), Some(vec![2, 2, 2, 1]));
        for (wrong, hosts) in [("2(x3),1", 3), ("2", 2), ("2(x9999999999999)", 4), ("2(x3", 3), ("", 1)] {
            assert_eq!(tasks_of(wrong, hosts), None, "{wrong}");
        }
    }

    /// Goal: ranks go where the scheduler has planned them, if it has, else on all hosts; a job on the host of this process needs no starter.
    #[test]
    fn ranks_are_placed_as_planned() {
        let mut variables =
            vec![("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n[0-1]"), ("SLURM_TASKS_PER_NODE", "3,1")];
        let names = |hosts: &[&str]| hosts.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let unplanned = found(&variables);
        assert_eq!(unplanned.hosts, [("n0".into(), 0), ("n1".into(), 0)]);
        variables.push(("SLURM_NTASKS", "4"));
        let planned = found(&variables);
        let placed = |ranks| planned.place(ranks).unwrap();
        assert_eq!(placed(4), Placement { hosts: names(&["n0", "n1"]), ranks: vec![3, 1] });
        assert_eq!(placed(5), Placement { hosts: names(&["n0", "n1"]), ranks: Vec::new() });
        assert_eq!(placed(1), Placement { hosts: names(&["n0"]), ranks: Vec::new() });
        variables.push(("SLURMD_NODENAME", "n0"));
        assert_eq!((found(&variables).place(1), found(&variables).place(2).unwrap().hosts.len()), (None, 2));
        assert_eq!(planned.to_string(), "Slurm job 7: 2 hosts, n0 to n1");
        assert!(matches!(planned.starter(Vec::new(), vec!["srun".into()]), Starter::Srun(_)));
    }

    /// Goal: a task of srun starts no job on all hosts, once for each task; the shells of sbatch and salloc do.
    #[test]
    fn tasks_are_no_shells() {
        let with =
            |step| around(&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n0"), ("SLURM_STEP_ID", step)]);
        assert_eq!(with("0").unwrap(), Around::Task);
        for shell in SHELLS {
            assert!(matches!(with(shell).unwrap(), Around::Allocation(_)));
        }
    }

    /// Goal: the files and words of PBS and LSF are read; the error names a missing or wrong one.
    #[test]
    fn hosts_of_pbs_and_lsf_are_read() {
        assert_eq!(around(&[]).unwrap(), Around::Nothing);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "n0\nn0\nn1.site\n\nn0\n").unwrap();
        let path = file.path().to_str().unwrap();
        let pbs = found(&[("PBS_JOBID", "3.server"), ("PBS_NODEFILE", path)]);
        assert_eq!(pbs.hosts, [("n0".into(), 3), ("n1.site".into(), 1)]);
        assert!(pbs.is_here && matches!(pbs.starter(vec!["ssh".into()], Vec::new()), Starter::Ssh(_)));
        assert_eq!(pbs.place(4).unwrap().ranks, [3, 1]);
        let lsf = [("LSB_JOBID", "3"), ("LSB_MCPU_HOSTS", "b 2 a 1 ")];
        assert_eq!(found(&lsf).hosts, [("b".into(), 2), ("a".into(), 1)]);
        let lsf = [("LSB_JOBID", "3"), ("LSB_DJOB_HOSTFILE", path), ("LSB_MCPU_HOSTS", "b 2")];
        assert_eq!(found(&lsf).hosts, pbs.hosts);
        assert_eq!(around(&[("LSB_JOBID", "3")]).unwrap(), Around::Nothing);
        assert!(refusal(&[("LSB_JOBID", "3"), ("LSB_MCPU_HOSTS", "b")]).contains("within a pair"));
        assert!(refusal(&[("LSB_JOBID", "3"), ("LSB_MCPU_HOSTS", "b x")]).contains("no number"));
        assert!(refusal(&[("PBS_JOBID", "3"), ("PBS_NODEFILE", "/nowhere")]).contains("/nowhere"));
        std::fs::write(&file, "\n").unwrap();
        assert!(refusal(&[("PBS_JOBID", "3"), ("PBS_NODEFILE", path)]).contains("empty"));
    }
}
