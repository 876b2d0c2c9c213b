//! An externally started rank finds its job.

#![forbid(unsafe_code)]

use super::proof::{self, AdmittedPeer};
use super::watch::Watch;
use crate::bootstrap::{Identity, Launched, welcome};
use crate::control::{BUILD, Channel, VERSION, other_build};
use crate::listen;
use crate::membership::Membership;
use crate::message::{FromRank, Lead, ToNode, ToRank};
use crate::pmi::{PmiChoice, Session};
use crate::reminder::Reminder;
use crate::spec::{Listen, Plan, RANKS_MAX};
use crate::{WAIT_IS_TOLD_AFTER, system};
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vgas_rma::error::{Result, RmaError};
use vgas_rma::key::{JobKey, KEY_BYTES};
use vgas_rma::say;

/// A program's options for joining an externally started job.
#[derive(Debug)]
pub struct Joining {
    /// By which protocol.
    pub pmi: PmiChoice,
    /// The job, as described by rank 0. Its [`Plan::connect_timeout`] bounds every wait of the start, on
    /// every rank.
    pub plan: Plan,
    /// The command that runs [`crate::node_main`], with nothing but a socket as its standard input.
    pub helper: Vec<OsString>,
    /// Variables for it. There is at least one, which the program would find if it came to this function again.
    pub helper_environment: Vec<(OsString, OsString)>,
}

/// See [`crate::join_started`].
pub(crate) fn join_started(joining: &Joining) -> Result<Membership> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if let Some((name, _)) =
        joining.helper_environment.iter().find(|(name, _)| std::env::var_os(name).is_some())
    {
        let what = format!("a helper of a job came to the program's own code ({} is set)", name.display());
        return Err(RmaError::Refused(what));
    }
    // While there is one thread: the kernel makes a process with several wait for all processors.
    vgas_shm::fence::is_asymmetric();
    let timeout = joining.plan.connect_timeout;
    let before = || RmaError::Usage("this process has already joined its job".into());
    if TAKEN.load(Ordering::Relaxed) {
        return Err(before());
    }
    let Some(session) = Session::open(joining.pmi, timeout)? else { return Err(RmaError::NotInJob) };
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(before());
    }
    if session.ranks > RANKS_MAX {
        let what = format!("{} ranks are more than the {RANKS_MAX} that a job may have", session.ranks);
        return Err(RmaError::Refused(what));
    }
    let leader = if session.rank == 0 { Some(Leader::start(joining, session.ranks)?) } else { None };
    let name = Name::of(&session.space)?;
    let mut daemon = match name.listen()? {
        Some(listener) => Some(start_daemon(joining, session.ranks, listener)?),
        None => None,
    };
    // The owner of a node's name listens by now; others come after this.
    let text = leader.as_ref().map(|leader| leader.told.text());
    let agreed = {
        let waits = format!(
            "rank {} has waited {} s for other ranks of this job of {} to start, which the process manager does not name; it \
             waits for {} s (run.start_timeout_ms)",
            session.rank,
            WAIT_IS_TOLD_AFTER.as_secs(),
            session.ranks,
            timeout.as_secs_f32()
        );
        let _told = (session.rank == 0).then(|| Reminder::start(WAIT_IS_TOLD_AFTER, waits));
        session.agree(text)?
    };
    let who = AdmittedPeer { number: session.rank, ranks: session.ranks };
    warn_of_lone_mpi(&session);
    session.keep()?;
    let told = LeaderNotice::parse(&agreed)?;
    if let Some(daemon) = &mut daemon {
        let reach = ToNode::Reach { address: told.address, key: told.key.clone() };
        daemon.channel.sender.send(&reach)?;
        daemon.detached(timeout)?;
    }
    let leader = match leader {
        Some(mut leader) => {
            leader.helper.detached(timeout)?;
            Some(leader.helper.socket)
        }
        None => None,
    };
    let until = Instant::now() + timeout;
    let socket = name.connect()?;
    proof::come(&socket, &told.key, who, until)?;
    welcomed(Channel::over_socket(socket, true)?, who, leader)
}

/// An MPI that does not speak PMIx takes each rank for a job of its own, without a word.
fn warn_of_lone_mpi(session: &Session) {
    if session.rank == 0 && session.ranks > 1 && system::mpich().is_some_and(|mpich| mpich.ranks == Some(1)) {
        say::line(format_args!(
            "vgas: warning: the MPI of this program has found no process manager, so that each of the {} ranks is alone in its \
             MPI_COMM_WORLD: start it with `srun --mpi=pmi2` or mpiexec.hydra",
            session.ranks
        ));
    }
}

/// Waits for the welcome, which the leader bounds.
fn welcomed(mut channel: Channel, who: AdmittedPeer, leader: Option<OwnedFd>) -> Result<Membership> {
    channel.sender.send(&FromRank::Join)?;
    channel.sender.flush_blocking()?;
    let _told = leader.as_ref().map(|_| {
        let waits = format!(
            "rank 0 has waited {} s for other ranks of this job of {} to come to the daemons of their nodes",
            WAIT_IS_TOLD_AFTER.as_secs(),
            who.ranks
        );
        Reminder::start(WAIT_IS_TOLD_AFTER, waits)
    });
    match welcome(&mut channel.receiver)? {
        Some((ToRank::Welcome(welcome), mut files)) if welcome.lifeline && !files.is_empty() => {
            let lifeline = files.remove(0);
            let rank = welcome.me.0;
            let watch = Watch::start(lifeline, leader, format!("rank {rank}"))?;
            Membership::from_welcome(*welcome, files, |place: Identity| {
                Arc::new(Launched::watched(channel, place, watch))
            })
        }
        Some((ToRank::Ended(why), _)) => {
            Err(RmaError::JobAborted(why.line.unwrap_or_else(|| "a rank exits".into())))
        }
        Some(_) => Err(RmaError::Protocol { peer: None, what: "no welcome came".into() }),
        None => Err(RmaError::JobAborted(format!(
            "the daemon of this node has ended before rank {} was welcomed",
            who.number
        ))),
    }
}

/// A process that was started to be the leader or a daemon.
struct Helper {
    child: Child,
    channel: Channel,
    /// A duplicate of the same socket, to see its end.
    socket: OwnedFd,
}

impl Helper {
    fn start(joining: &Joining) -> Result<Self> {
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|e| RmaError::system("create a control channel", e))?;
        let mut words = joining.helper.iter();
        let program = words.next().cloned().unwrap_or_else(|| "vgas".into());
        let mut command = Command::new(&program);
        command.args(words).stdin(its).stdout(Stdio::null()).stderr(Stdio::null());
        command.envs(joining.helper_environment.iter().map(|(name, value)| (name, value)));
        // It tells where the user came from, not how this host is reached.
        command.env_remove("SSH_CONNECTION");
        let failed = |e| RmaError::io(format!("start {} as a helper of the job", program.display()), e);
        let child = system::spawn_apart(&mut command).map_err(failed)?;
        let socket = ours.try_clone().map_err(failed)?;
        Ok(Self { child, channel: Channel::over_socket(ours, true)?, socket })
    }

    /// Waits until it has left this process, which is to have no child that it does not know of.
    fn detached(&mut self, timeout: Duration) -> Result<()> {
        if let Ok(process) = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()) {
            let most = crate::control::timespec(timeout);
            crate::control::wait_for(process.as_fd(), PollFlags::IN, Some(&most))?;
        }
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(None) => {
                let _ = self.child.kill();
                let _ = self.child.wait();
                Err(RmaError::Refused("a helper of the job did not begin in time".into()))
            }
            Ok(Some(status)) => {
                Err(RmaError::Refused(format!("a helper of the job could not begin ({status})")))
            }
            // A program may wait for all of its children.
            Err(_) => Ok(()),
        }
    }
}

/// The process that leads the job, as rank 0 has started it.
struct Leader {
    helper: Helper,
    told: LeaderNotice,
}

impl Leader {
    fn start(joining: &Joining, ranks: u32) -> Result<Self> {
        let plan = joining.plan.clone();
        let ports = plan.ports.as_ref().map(|ports| (*ports.start(), *ports.end()));
        let listen = Listen { loopback: false, by_ssh: false, interface: plan.interface.clone(), ports };
        let listener = listen::bind_here(&listen)?;
        let address =
            listener.local_addr().map_err(|e| RmaError::io("learn the address of a listener", e))?;
        let key = JobKey::generate()?;
        let mut helper = Helper::start(joining)?;
        let lead = ToNode::Lead(Box::new(Lead { ranks, key: key.clone(), plan }));
        helper.channel.sender.send_with_files(&lead, vec![listener.into()])?;
        helper.channel.sender.flush_blocking()?;
        Ok(Self { helper, told: LeaderNotice { address, key } })
    }
}

fn start_daemon(joining: &Joining, ranks: u32, listener: UnixListener) -> Result<Helper> {
    let mut helper = Helper::start(joining)?;
    let serve = ToNode::Serve { ranks, timeout: joining.plan.connect_timeout };
    helper.channel.sender.send_with_files(&serve, vec![listener.into()])?;
    helper.channel.sender.flush_blocking()?;
    Ok(helper)
}

/// Rank 0's announcement to all: the leader's address, and the job's key.
struct LeaderNotice {
    address: SocketAddr,
    key: JobKey,
}

impl LeaderNotice {
    fn text(&self) -> String {
        let key: String = self.key.expose().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{VERSION}/{BUILD:016x}/{}/{key}", self.address)
    }

    fn parse(text: &str) -> Result<Self> {
        let wrong =
            || RmaError::Refused("what rank 0 has told through the process manager makes no sense".into());
        let mut parts = text.split('/');
        let version = parts.next().unwrap_or_default();
        if version.parse() != Ok(VERSION) {
            let known = version.bytes().all(|byte| byte.is_ascii_digit()) && (1..=9).contains(&version.len());
            return Err(if known { RmaError::Refused(proof::other_version(version)) } else { wrong() });
        }
        let build = parts.next().and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(wrong)?;
        if build != BUILD {
            return Err(RmaError::Refused(format!("cannot join the job: rank 0 has {}", other_build(build))));
        }
        let address = parts.next().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let digits =
            parts.next().filter(|text| text.len() == 2 * KEY_BYTES && text.is_ascii()).ok_or_else(wrong)?;
        let mut key = [0; KEY_BYTES];
        for (index, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
        }
        match parts.next() {
            None => Ok(Self { address, key: JobKey::from_bytes(key) }),
            Some(_) => Err(wrong()),
        }
    }
}

/// The abstract name under which the ranks of a node find their daemon. The rank that binds it first starts
/// the daemon.
struct Name(UnixAddress);

impl Name {
    /// Derives it from the job's name, the user, and the starter's name of this machine if it has several
    /// names.
    fn of(space: &str) -> Result<Self> {
        let node = std::env::var("SLURMD_NODENAME").unwrap_or_default();
        let user = rustix::process::geteuid().as_raw();
        let name = format!("vgas/{user}/{:032x}", digest(&[space, &node]));
        let address = UnixAddress::from_abstract_name(name);
        address.map(Self).map_err(|e| RmaError::io("name a socket", e))
    }

    /// Listens under it; none when another process does.
    fn listen(&self) -> Result<Option<UnixListener>> {
        match UnixListener::bind_addr(&self.0) {
            Ok(listener) => Ok(Some(listener)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(RmaError::io("listen for the ranks of this node", error)),
        }
    }

    fn connect(&self) -> Result<OwnedFd> {
        let failed = |e| RmaError::io("reach the daemon of this node", e);
        let socket: OwnedFd = UnixStream::connect_addr(&self.0).map_err(failed)?.into();
        let (_, user) = system::peer_of(socket.as_fd()).map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        if user != own && user != OVERFLOW_USER {
            let what = format!("the socket of this job belongs to another user ({user}, not {own})");
            return Err(RmaError::Refused(what));
        }
        Ok(socket)
    }
}

/// A user of another user namespace, which only the key tells from others.
pub(super) const OVERFLOW_USER: u32 = 65534;

/// FNV-1a over the texts and their lengths: the same in every build. It only has to keep jobs apart, not strangers out.
fn digest(texts: &[&str]) -> u128 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain(text.len().to_le_bytes()));
    bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |sum, byte| {
        (sum ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: rank 0's announcement round-trips, and anything else is refused, another version by name.
    #[test]
    fn what_is_told_is_understood() {
        let told =
            LeaderNotice { address: "10.0.0.7:4000".parse().unwrap(), key: JobKey::from_bytes([0xa5; 32]) };
        let text = told.text();
        let again = LeaderNotice::parse(&text).unwrap();
        assert_eq!((again.address, again.key.expose()), (told.address, told.key.expose()));
        assert!(!text.contains([' ', '=', '\n']) && text.len() < 256, "fits into a PMI value");
        for wrong in [
            "",
            "8",
            "8/x/y/z",
            "8/123456789abcdef0/y/z",
            &text[..text.len() - 1],
            &format!("{text}/"),
            &text.replace("a5", "zz"),
            "é/é/é",
        ] {
            let error = LeaderNotice::parse(wrong).err().expect(wrong).to_string();
            assert!(error.contains("makes no sense"), "{error}");
        }
        let error = LeaderNotice::parse(&format!("4{}", &text[1..])).err().unwrap().to_string();
        assert!(error.contains("start-up protocol 4 instead of 8"), "{error}");
        let error = LeaderNotice::parse(&text.replace("9abcdef0", "0")).err().unwrap().to_string();
        assert!(error.contains("vgas of other sources (0000000123456780 instead of"), "{error}");
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }

    /// Goal: of several processes that want a node's name, one gets it, and the others reach that one.
    #[test]
    fn a_name_has_one_owner() {
        let name = Name::of(&format!("test of process {}", std::process::id())).unwrap();
        let listener = name.listen().unwrap().expect("nobody else has this name");
        assert!(name.listen().unwrap().is_none());
        assert!(name.connect().is_ok());
        drop(listener);
        assert!(name.connect().unwrap_err().to_string().contains("reach the daemon"));
    }
}
