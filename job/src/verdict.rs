//! Outcome of a job, from observations: the cause among several failures, and the line that reports it.
//!
//! A failure spreads faster than its report: when rank 2 is killed, rank 1 may have lost its connection, complained and
//! exited before the daemon of rank 2 has seen anything. So causes have weights, and among equals the first counts.

#![forbid(unsafe_code)]

use super::message::{Exit, RankExit};
use super::spec::JobStatus;
use vgas_rma::address::{Layout, NodeId, Peer, Rank};

/// Signal of a process that touches shared memory which is gone.
const SIGBUS: i32 = rustix::process::Signal::BUS.as_raw();

/// Something that makes a job fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A rank ended other than with 0.
    Rank(RankExit),
    /// A rank that joined, or that others wait for, ended with 0 but without finalising.
    Left(RankExit),
    /// A rank or an agent asked for it. A complaint is about another process.
    Abort { from: Peer, message: String, code: u8, is_complaint: bool },
    /// A node cannot do its part, for this reason.
    Failed { node: NodeId, message: String, code: u8 },
    /// A daemon, or the connection to it, is gone.
    DaemonLost { node: NodeId, pid: Option<u32>, how: String, code: u8 },
    /// The user, or the system, asked the launcher to end it.
    Interrupted { signal: i32 },
}

/// Collects causes.
#[derive(Debug)]
pub(crate) struct Verdict {
    layout: Layout,
    /// By node.
    hosts: Vec<String>,
    cause: Option<Cause>,
    /// Signals that the launcher has passed on; ranks that die of them were asked to.
    passed_on: Vec<i32>,
    /// Processes that were killed and did not end.
    unending: Vec<String>,
}

impl Cause {
    /// Later causes replace earlier ones of less weight. A killed process is a cause, a complaint may be a
    /// symptom.
    fn weight(&self) -> u8 {
        match self {
            Cause::Abort { is_complaint: true, .. } => 0,
            Cause::Left(_) => 1,
            Cause::Rank(RankExit { exit: Exit::Code(_) | Exit::Unseen, .. })
            | Cause::Abort { .. }
            | Cause::Failed { .. } => 2,
            // Memory that its agent has taken along.
            Cause::Rank(RankExit { exit: Exit::Signal(SIGBUS), .. }) => 3,
            Cause::Rank(_) | Cause::DaemonLost { .. } | Cause::Interrupted { .. } => 4,
        }
    }
}

impl Verdict {
    pub(crate) fn new(layout: Layout) -> Self {
        let hosts = vec!["?".to_owned(); layout.nodes() as usize];
        Self { layout, hosts, cause: None, passed_on: Vec::new(), unending: Vec::new() }
    }

    /// The name of a node's machine, once it is known.
    pub(crate) fn set_host(&mut self, node: NodeId, host: String) {
        self.hosts[node.0 as usize] = host;
    }

    /// A signal has been passed on to all ranks.
    pub(crate) fn passed_on(&mut self, signal: i32) {
        self.passed_on.push(signal);
    }

    /// Returns true if a signal was passed on to all ranks.
    pub(crate) fn has_passed_on(&self, signal: i32) -> bool {
        self.passed_on.contains(&signal)
    }

    /// Returns true if something has made the job fail.
    pub(crate) fn failed(&self) -> bool {
        self.cause.is_some()
    }

    /// Returns true if the cause known so far may be a mere consequence of something else.
    pub(crate) fn is_complaint(&self) -> bool {
        self.cause.as_ref().is_some_and(|cause| cause.weight() < 4)
    }

    /// Returns true if the job ends because a process of it was killed or lost, and that was not requested.
    pub(crate) fn is_loss(&self) -> bool {
        self.cause.as_ref().is_some_and(|cause| match cause {
            Cause::Rank(exit) => matches!(exit.exit, Exit::Signal(_)),
            Cause::DaemonLost { .. } => true,
            _ => false,
        })
    }

    /// Returns true if only complaints are known.
    pub(crate) fn is_mere_complaint(&self) -> bool {
        self.cause.as_ref().is_some_and(|cause| cause.weight() == 0)
    }

    /// Takes in a cause.
    pub(crate) fn add(&mut self, cause: Cause) {
        let cause = match cause {
            Cause::Rank(RankExit { exit: Exit::Signal(signal), .. }) if self.passed_on.contains(&signal) => {
                Cause::Interrupted { signal }
            }
            cause => cause,
        };
        if self.cause.as_ref().is_none_or(|known| known.weight() < cause.weight()) {
            self.cause = Some(cause);
        }
    }

    /// A rank has ended: a cause, unless it ended well or was being ended.
    pub(crate) fn add_exit(&mut self, exit: RankExit) {
        if exit.by_itself && exit.exit != Exit::Code(0) {
            self.add(Cause::Rank(exit));
        }
    }

    /// Returns the job's status.
    pub(crate) fn status(&self) -> JobStatus {
        let Some(cause) = &self.cause else { return JobStatus::SUCCESS };
        let (code, message) = self.tell(cause);
        JobStatus { code: code.max(1), message: Some(one_line(&message)) }
    }

    /// Describes a cause in a line.
    pub(crate) fn describe(&self, cause: &Cause) -> String {
        one_line(&self.tell(cause).1)
    }

    fn tell(&self, cause: &Cause) -> (u8, String) {
        match cause {
            Cause::Rank(exit) => match exit.exit {
                Exit::Code(code) => {
                    (code as u8, format!("{} ended with exit status {code}", self.rank(exit)))
                }
                Exit::Signal(signal) => {
                    let name = signal_name(signal);
                    (signal_code(signal), format!("{} was killed by signal {signal}{name}", self.rank(exit)))
                }
                Exit::Unseen => (1, format!("{} has ended without finalising the job", self.rank(exit))),
            },
            Cause::Left(exit) => {
                let did = if exit.joined {
                    "exited without finalising the job"
                } else {
                    "exited without joining the job"
                };
                (1, format!("{} {did}, which the other ranks wait for", self.rank(exit)))
            }
            Cause::Abort { from, message, code, .. } => {
                (*code, format!("{}: {message}", self.layout.describe(*from)))
            }
            Cause::Failed { node, message, code } => {
                let host = &self.hosts[node.0 as usize];
                let several = self.layout.nodes() > 1;
                let who = if several { format!("{node} (host {host}): ") } else { String::new() };
                (*code, format!("{who}{message}"))
            }
            Cause::DaemonLost { node, pid, how, code } => {
                (*code, format!("{} {how}", self.describe_daemon(*node, *pid)))
            }
            Cause::Interrupted { signal } => {
                (signal_code(*signal), format!("ended by signal {signal}{}", signal_name(*signal)))
            }
        }
    }

    fn rank(&self, exit: &RankExit) -> String {
        self.describe_rank(exit.rank, exit.pid)
    }

    /// Describes a rank: number, node and process.
    pub(crate) fn describe_rank(&self, rank: Rank, pid: u32) -> String {
        let host = &self.hosts[self.layout.node_of(rank).0 as usize];
        format!("{rank} (pid {pid}, host {host})")
    }

    /// Describes a daemon: node and process.
    pub(crate) fn describe_daemon(&self, node: NodeId, pid: Option<u32>) -> String {
        let host = &self.hosts[node.0 as usize];
        let pid = pid.map_or_else(String::new, |pid| format!("pid {pid}, "));
        format!("the daemon of {node} ({pid}host {host})")
    }

    /// A process was killed and did not end.
    pub(crate) fn add_unending(&mut self, who: String) {
        self.unending.push(who);
    }

    /// Returns this status, or, if something is left of the job, one that is not 0 and names it.
    pub(crate) fn with_unending(&self, status: JobStatus) -> JobStatus {
        if self.unending.is_empty() {
            return status;
        }
        let before = status.message.map_or_else(String::new, |message| format!("{message}; "));
        let who = self.unending.join(", ");
        let message = format!(
            "{before}left behind: {who}, killed but waiting within the kernel, as for a disk that does not answer"
        );
        JobStatus { code: status.code.max(1), message: Some(message) }
    }
}

/// The exit status for "killed by this signal", as shells do.
pub(crate) fn signal_code(signal: i32) -> u8 {
    128u8.wrapping_add(signal as u8)
}

/// " (SIGKILL)", or nothing for signals without a name.
pub(crate) fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(String::new, |name| format!(" ({name})"))
}

/// Messages of programs may have several lines; the launcher promises one.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(rank: u32, exit: Exit, by_itself: bool) -> RankExit {
        RankExit { rank: Rank(rank), pid: 4711, exit, joined: true, finalised: false, by_itself }
    }

    fn verdict() -> Verdict {
        let mut verdict = Verdict::new(Layout::blocks(4, 2));
        verdict.set_host(NodeId(0), "x".into());
        verdict.set_host(NodeId(1), "y".into());
        verdict
    }

    fn complaint() -> Cause {
        Cause::Abort { from: Peer(0), message: "lost rank 2".into(), code: 1, is_complaint: true }
    }

    #[test]
    fn nothing_bad_is_success() {
        let mut verdict = verdict();
        verdict.add_exit(exit(0, Exit::Code(0), true));
        assert_eq!(verdict.status(), JobStatus::SUCCESS);
    }

    /// Rank 2 is killed; ranks 0 and 1 notice first and complain. The killed one is named, however late its report.
    #[test]
    fn what_was_killed_outweighs_who_complained() {
        let mut verdict = verdict();
        verdict.add(complaint());
        verdict.add_exit(exit(1, Exit::Code(1), true));
        verdict.add_exit(exit(2, Exit::Signal(9), true));
        verdict.add_exit(exit(3, Exit::Signal(11), true));
        let status = verdict.status();
        assert_eq!(status.code, 137);
        assert_eq!(status.message.unwrap(), "rank 2 (pid 4711, host y) was killed by signal 9 (SIGKILL)");
    }

    /// The daemon of node 1 is killed; its ranks, and those that map memory of theirs, end when they touch
    /// it. The daemon is named.
    #[test]
    fn what_was_killed_outweighs_who_has_lost_memory() {
        let mut verdict = verdict();
        verdict.add_exit(exit(1, Exit::Code(1), true));
        verdict.add_exit(exit(2, Exit::Signal(SIGBUS), true));
        assert!(verdict.is_complaint(), "more may come");
        assert_eq!(
            verdict.status().message.unwrap(),
            "rank 2 (pid 4711, host y) was killed by signal 7 (SIGBUS)"
        );
        let (pid, how) = (Some(4712), "was killed by signal 9 (SIGKILL)".into());
        verdict.add(Cause::DaemonLost { node: NodeId(1), pid, how, code: 137 });
        let said = verdict.status().message.unwrap();
        assert!(said.contains("daemon") && said.contains("SIGKILL"), "{said}");
    }

    /// Rank 1 reports why it ends, and ends. An agent on another node has lost it before that has travelled.
    #[test]
    fn who_knows_the_reason_outweighs_who_saw_the_end() {
        let mut verdict = verdict();
        verdict.add(complaint());
        let message = "no node 3".into();
        verdict.add(Cause::Abort { from: Peer(1), message, code: 1, is_complaint: false });
        assert_eq!(verdict.status().message.unwrap(), "rank 1: no node 3");
    }

    #[test]
    fn the_first_exit_code_counts_and_those_that_were_ended_do_not() {
        let mut verdict = verdict();
        verdict.add_exit(exit(3, Exit::Signal(15), false));
        verdict.add_exit(exit(1, Exit::Code(3), true));
        verdict.add_exit(exit(2, Exit::Code(4), true));
        let status = verdict.status();
        assert_eq!((status.code, status.message.unwrap().contains("rank 1")), (3, true));
    }

    #[test]
    fn ranks_that_die_of_a_signal_we_passed_on_were_interrupted() {
        let mut verdict = verdict();
        verdict.passed_on(2);
        verdict.add_exit(exit(1, Exit::Signal(2), true));
        let status = verdict.status();
        assert_eq!((status.code, status.message.unwrap().as_str()), (130, "ended by signal 2 (SIGINT)"));
    }

    /// Even a job that went well has not when something of it stays.
    #[test]
    fn who_cannot_be_ended_is_named() {
        let mut verdict = verdict();
        verdict.add_unending(verdict.describe_rank(Rank(1), 4711));
        verdict.add_unending(verdict.describe_daemon(NodeId(1), Some(42)));
        let status = verdict.with_unending(verdict.status());
        let left = "left behind: rank 1 (pid 4711, host x), the daemon of node 1 (pid 42, host y), killed";
        assert!(status.code == 1 && status.message.as_ref().unwrap().starts_with(left), "{status:?}");
        verdict.add(Cause::Interrupted { signal: 2 });
        let status = verdict.with_unending(verdict.status());
        assert!(
            status.code == 130 && status.message.unwrap().starts_with("ended by signal 2 (SIGINT); left")
        );
    }

    #[test]
    fn exit_codes_that_look_like_success_in_eight_bits_do_not_pass() {
        let mut verdict = verdict();
        verdict.add_exit(exit(1, Exit::Code(256), true));
        assert_eq!(verdict.status().code, 1);
    }

    #[test]
    fn the_agent_is_named_and_lines_are_joined() {
        let mut verdict = verdict();
        verdict.add(Cause::Abort {
            from: Peer(5),
            message: "disk full\n free some\n".into(),
            code: 1,
            is_complaint: false,
        });
        assert_eq!(verdict.status().message.unwrap(), "the agent of node 1: disk full; free some");
    }
}
