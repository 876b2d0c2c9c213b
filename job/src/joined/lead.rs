//! The leader of a job whose ranks are started externally: the launcher's part, without the launch.

#![forbid(unsafe_code)]

use super::door::{Door, Listener};
use crate::control::timespec;
use crate::control::{Arrival, Channel};
use crate::launcher;
use crate::message::{FromNode, Lead, ToNode, Why};
use crate::service::NodeService;
use crate::spec::{Plan, RunSpec};
use rustix::event::{PollFd, PollFlags, poll};
use std::net::TcpListener;
use std::os::fd::BorrowedFd;
use std::time::Instant;
use vgas_rma::address::Layout;
use vgas_rma::error::{Result, RmaError};
use vgas_rma::key::JobKey;

/// A daemon, and which ranks have come to it, by the starter's numbers.
struct Reached {
    channel: Channel,
    host: String,
    ranks: Vec<u32>,
}

/// Leads the job to its end. `rank` is the line to the rank that has started this process: the end of either tells the other.
pub(crate) fn lead(
    lead: Lead,
    listener: TcpListener,
    rank: Channel,
    service: &dyn NodeService,
) -> Result<u8> {
    let Lead { ranks, key, plan } = lead;
    let door = Door::new(Listener::Tcp(listener), key.clone())?;
    let mut meeting = Meeting { door, ranks, rank, reached: Vec::new() };
    let began = meeting.gather(&plan).and_then(|()| meeting.job(plan, service));
    match began {
        Ok((spec, layout)) => {
            let channels = meeting.reached.into_iter().map(|reached| reached.channel).collect();
            launcher::lead(&spec, layout, key, channels).map(|status| status.code)
        }
        Err(error) => {
            meeting.refuse(&error.to_string());
            Ok(1)
        }
    }
}

/// Daemons that come, until all ranks are at one.
struct Meeting {
    door: Door,
    ranks: u32,
    rank: Channel,
    reached: Vec<Reached>,
}

impl Meeting {
    fn gather(&mut self, plan: &Plan) -> Result<()> {
        // The ranks wait as long for each other before a daemon comes here.
        let mut until = Instant::now() + 2 * plan.connect_timeout;
        loop {
            let come: usize = self.reached.iter().map(|reached| reached.ranks.len()).sum();
            if come == self.ranks as usize {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(self.too_late(plan));
            }
            self.wait(until)?;
            if self.rank.receiver.read()? == Arrival::End {
                return Err(RmaError::Refused("rank 0 has ended before the job began".into()));
            }
            for event in self.door.serve()? {
                if event.who.ranks != self.ranks {
                    let what =
                        format!("a node of a job of {} ranks came to one of {}", event.who.ranks, self.ranks);
                    return Err(RmaError::Refused(what));
                }
                let channel = Channel::over_socket(event.socket, false)?;
                if self.reached.is_empty() {
                    until = Instant::now() + plan.connect_timeout;
                }
                self.reached.push(Reached { channel, host: String::new(), ranks: Vec::new() });
            }
            for index in 0..self.reached.len() {
                self.listen(index)?;
            }
        }
    }

    /// Handles a daemon's messages.
    fn listen(&mut self, index: usize) -> Result<()> {
        let arrival = self.reached[index].channel.receiver.read()?;
        while let Some((message, _)) = self.reached[index].channel.receiver.next::<FromNode>()? {
            match message {
                FromNode::Arrived { rank, host } => {
                    if rank >= self.ranks || self.reached.iter().any(|reached| reached.ranks.contains(&rank))
                    {
                        let what = format!("rank {rank} of {} has come twice, or does not exist", self.ranks);
                        return Err(RmaError::Refused(what));
                    }
                    let reached = &mut self.reached[index];
                    reached.ranks.push(rank);
                    reached.host = host;
                }
                FromNode::Failed { message, .. } => return Err(RmaError::Refused(message)),
                FromNode::Alive => {}
                _ => {
                    let what = "a daemon did not begin with who has come".into();
                    return Err(RmaError::Protocol { peer: None, what });
                }
            }
        }
        match arrival {
            Arrival::End => {
                Err(RmaError::Refused("the daemon of a node has ended before the job began".into()))
            }
            _ => Ok(()),
        }
    }

    fn wait(&self, until: Instant) -> Result<()> {
        let mut files: Vec<(BorrowedFd<'_>, PollFlags)> = Vec::new();
        self.door.poll_files(&mut files);
        files.push((self.rank.receiver.file(), PollFlags::IN));
        files.extend(self.reached.iter().map(|reached| (reached.channel.receiver.file(), PollFlags::IN)));
        let mut files: Vec<PollFd<'_>> =
            files.iter().map(|(file, flags)| PollFd::new(file, *flags)).collect();
        let left = timespec(until.saturating_duration_since(Instant::now()));
        match poll(&mut files, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(RmaError::system("wait for events", e)),
        }
    }

    fn too_late(&self, plan: &Plan) -> RmaError {
        let come = |rank: &u32| self.reached.iter().any(|reached| reached.ranks.contains(rank));
        let missing: Vec<String> =
            (0..self.ranks).filter(|rank| !come(rank)).map(|rank| rank.to_string()).collect();
        let more = if missing.len() > 8 { ", …" } else { "" };
        RmaError::Refused(format!(
            "rank {}{more} has not come to the job within {} s (run.start_timeout_ms)",
            missing[..missing.len().min(8)].join(", "),
            plan.connect_timeout.as_secs_f32()
        ))
    }

    /// Builds the job's description, with the nodes by their lowest ranks.
    fn job(&mut self, plan: Plan, service: &dyn NodeService) -> Result<(RunSpec, Layout)> {
        self.reached.retain(|reached| !reached.ranks.is_empty());
        self.reached.sort_by_key(|reached| reached.ranks.iter().min().copied());
        let layout = Layout::of_nodes(self.reached.iter().map(|reached| reached.ranks.len() as u32));
        let layout = layout.ok_or_else(|| RmaError::Refused("a job without ranks".into()))?;
        let hosts = self.reached.iter().map(|reached| reached.host.clone()).collect();
        let mut spec = plan.spec(self.ranks, hosts);
        spec.regions =
            service.regions(&spec.settings, &layout).map_err(|error| RmaError::Refused(error.to_string()))?;
        spec.check_against(&layout)?;
        Ok((spec, layout))
    }

    /// Tells all that there is no job, and why.
    fn refuse(&mut self, what: &str) {
        let end = ToNode::End { at_once: false, why: Why { line: Some(what.to_owned()), code: 1 } };
        for reached in &mut self.reached {
            // A fresh connection has room; a rank that is gone needs no telling.
            let _ = reached.channel.sender.send(&end);
        }
    }
}

/// The key of a description that travels in the open: its receivers have proven to know the real one.
pub(crate) fn no_key() -> JobKey {
    JobKey::from_bytes([0; vgas_rma::key::KEY_BYTES])
}
