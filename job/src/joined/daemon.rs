//! The daemon of a node with externally started ranks, until it knows them: then it is as any other.

#![forbid(unsafe_code)]

use super::door::{Door, Listener};
use super::proof::{self, AdmittedPeer};
use crate::control::timespec;
use crate::control::{Arrival, Channel};
use crate::listen;
use crate::message::{FromNode, FromRank, NodeDescription, ToNode, Why};
use crate::node::{Node, fail};
use crate::rank_process::RankProcess;
use crate::service::NodeService;
use rustix::event::{PollFd, PollFlags, poll};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use vgas_rma::address::Rank;
use vgas_rma::error::{Result, RmaError};
use vgas_rma::key::JobKey;

/// Timeout for telling the ranks of this node that there is no job for them. They have all started by then.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves the node of this listener until the job ends. `from` is the rank that has started it.
pub(crate) fn serve(
    ranks: u32,
    timeout: Duration,
    listener: UnixListener,
    mut from: Channel,
    service: Box<dyn NodeService>,
) -> Result<u8> {
    let Some((ToNode::Reach { address, key }, _)) = from.receiver.next_blocking()? else {
        // The rank has ended before it knew.
        return Ok(1);
    };
    drop(from);
    let mut gathering =
        Gathering { door: Door::new(Listener::Unix(listener), key.clone())?, ranks, guests: Vec::new() };
    let mut channel = match reach(address, &key, ranks, timeout) {
        Ok(channel) => channel,
        Err(error) => return gathering.refuse(&error.to_string()),
    };
    match gathering.gather(&mut channel)? {
        Gathered::Over(code) => Ok(code),
        Gathered::Described(mut description) => {
            description.job.key = key;
            let mut guests = gathering.guests;
            guests.sort_by_key(|guest| guest.rank);
            match Node::prepare_with(*description, Vec::new(), &mut channel, guests) {
                Ok(node) => node.serve(channel, service),
                // The leader tells all, and ends this channel.
                Err((error, guests)) => {
                    fail(&mut channel, &error.to_string(), 1)?;
                    tell(guests, &Why { line: Some(error.to_string()), code: 1 });
                    Ok(1)
                }
            }
        }
    }
}

/// Connects to the leader of the job.
fn reach(address: SocketAddr, key: &JobKey, ranks: u32, timeout: Duration) -> Result<Channel> {
    let failed =
        |e| RmaError::io(format!("reach rank 0's node at {address} (tcp.interface chooses another way)"), e);
    let until = Instant::now() + timeout;
    let stream = TcpStream::connect_timeout(&address, timeout).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let socket: OwnedFd = stream.into();
    proof::come(&socket, key, AdmittedPeer { number: 0, ranks }, until)?;
    Channel::over_socket(socket, false)
}

/// Tells these ranks that the job ends, and why. They end by themselves.
fn tell(guests: Vec<RankProcess>, why: &Why) {
    for mut guest in guests {
        guest.tell_end(why);
    }
}

/// Ranks that come, until the leader knows all of the job.
struct Gathering {
    door: Door,
    ranks: u32,
    guests: Vec<RankProcess>,
}

enum Gathered {
    Described(Box<NodeDescription>),
    Over(u8),
}

impl Gathering {
    fn gather(&mut self, channel: &mut Channel) -> Result<Gathered> {
        loop {
            self.wait(Some(channel), None)?;
            let arrival = channel.receiver.read()?;
            while let Some((message, _)) = channel.receiver.next::<ToNode>()? {
                match message {
                    ToNode::Describe(description) => return Ok(Gathered::Described(description)),
                    ToNode::End { why, .. } => return Ok(self.over(&why)),
                    ToNode::Alive => {}
                    _ => {
                        let what = "who leads the job did not begin with a description".into();
                        return Err(RmaError::Protocol { peer: None, what });
                    }
                }
            }
            if arrival == Arrival::End {
                let line = Some("the process that leads the job has ended".into());
                return Ok(self.over(&Why { line, code: 1 }));
            }
            if let Err(error) = self.take_in(Some(channel)) {
                fail(channel, &error.to_string(), 1)?;
                return Ok(self.over(&Why { line: Some(error.to_string()), code: 1 }));
            }
            channel.sender.flush()?;
        }
    }

    /// Sleeps until there is something to do, or until a moment.
    fn wait(&self, channel: Option<&Channel>, until: Option<Instant>) -> Result<()> {
        let mut files: Vec<(BorrowedFd<'_>, PollFlags)> = Vec::new();
        if let Some(channel) = channel {
            let more = if channel.sender.queued_bytes() > 0 { PollFlags::OUT } else { PollFlags::empty() };
            files.push((channel.receiver.file(), PollFlags::IN | more));
        }
        self.door.poll_files(&mut files);
        files.extend(self.guests.iter().filter_map(|guest| {
            guest.channel.as_ref().map(|channel| (channel.receiver.file(), PollFlags::IN))
        }));
        let mut files: Vec<PollFd<'_>> =
            files.iter().map(|(file, flags)| PollFd::new(file, *flags)).collect();
        let left = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
        match poll(&mut files, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(RmaError::system("wait for events", e)),
        }
    }

    /// Accepts ranks, and handles their messages.
    fn take_in(&mut self, mut channel: Option<&mut Channel>) -> Result<()> {
        for event in self.door.serve()? {
            let rank = event.who.number;
            if event.who.ranks != self.ranks || rank >= self.ranks {
                let what =
                    format!("rank {rank} of {} came to a job of {} ranks", event.who.ranks, self.ranks);
                return Err(RmaError::Refused(what));
            }
            self.guests.push(RankProcess::guest(Rank(rank), event.socket)?);
            if let Some(channel) = &mut channel {
                channel.sender.send(&FromNode::Arrived { rank, host: listen::host() })?;
            }
        }
        for guest in &mut self.guests {
            for message in guest.receive()? {
                match message {
                    FromRank::Join => guest.progress.joined = true,
                    _ => {
                        let what = format!("{} did not begin by joining", guest.rank);
                        return Err(RmaError::Protocol { peer: None, what });
                    }
                }
            }
            if guest.channel.is_none() {
                return Err(RmaError::Refused(format!("{} has ended before the job began", guest.rank)));
            }
        }
        Ok(())
    }

    fn over(&mut self, why: &Why) -> Gathered {
        tell(std::mem::take(&mut self.guests), why);
        Gathered::Over(1)
    }

    /// Tells the ranks that come why there is no job for them. They are not many on a node, and come soon.
    fn refuse(mut self, what: &str) -> Result<u8> {
        let until = Instant::now() + REFUSAL_TIMEOUT;
        let why = Why { line: Some(what.to_owned()), code: 1 };
        while Instant::now() < until {
            self.wait(None, Some(until))?;
            // One that goes meanwhile needs no telling.
            let _ = self.take_in(None);
            tell(std::mem::take(&mut self.guests), &why);
        }
        Ok(1)
    }
}
