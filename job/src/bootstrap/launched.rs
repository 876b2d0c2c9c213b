//! A rank that a node's daemon has started: over the socket that it was given.

#![forbid(unsafe_code)]

use super::{Bootstrap, End, Identity, check_share, out_of_step};
use crate::control::{Channel, Receiver, Sender};
use crate::joined::Watch;
use crate::lock::lock;
use crate::membership::Membership;
use crate::message::{FromRank, ToRank};
use crate::system;
use std::ffi::CStr;
use std::fmt;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use vgas_rma::address::Peer;
use vgas_rma::conduit::factory;
use vgas_rma::error::{Result, RmaError};

/// See [`crate::join`].
pub(crate) fn join() -> Result<Membership> {
    let mut channel = Channel::over_socket(system::take_control_socket()?, true)?;
    channel.sender.send(&FromRank::Join)?;
    channel.sender.flush_blocking()?;
    match welcome(&mut channel.receiver)? {
        Some((ToRank::Welcome(welcome), files)) => {
            if welcome.me.0 == 0 && welcome.job.layout.ranks() > 1 && system::has_symbol(OF_OPEN_MPI) {
                // In one piece, and without ending the program if there is no reader.
                let _ = std::io::stderr().write_all(format!("vgas: {OPEN_MPI_IS_ALONE}\n").as_bytes());
            }
            Membership::from_welcome(*welcome, files, |place| Arc::new(Launched::new(channel, place)))
        }
        Some(_) => {
            Err(RmaError::Protocol { peer: None, what: "the daemon did not begin with a welcome".into() })
        }
        None => Err(daemon_lost()),
    }
}

/// Waits for a daemon's answer to [`FromRank::Join`], and prepares the conduit meanwhile if the daemon asks for it.
pub(crate) fn welcome(receiver: &mut Receiver) -> Result<Option<(ToRank, Vec<OwnedFd>)>> {
    match receiver.next_blocking()? {
        Some((ToRank::Prepare { conduit }, _)) => {
            factory::find(&conduit)?.prepare_beside(|| receiver.next_blocking())
        }
        answer => Ok(answer),
    }
}

/// Symbol that only programs of Open MPI have.
const OF_OPEN_MPI: &CStr = c"ompi_mpi_comm_world";

/// It asks PMIx, which `vgas run` does not serve, and takes each rank for an MPI of its own without a word.
const OPEN_MPI_IS_ALONE: &str = "this program has Open MPI in it, to which each rank is alone under `vgas run`: if it uses MPI, start it \
                                 with mpirun, or with `srun --mpi=pmix`";

/// Returns true if this process was started as a rank and has not joined yet: then joining finds its job.
pub fn in_job() -> bool {
    system::control_socket().is_some()
}

fn daemon_lost() -> RmaError {
    RmaError::JobAborted("the daemon of this node has ended".into())
}

/// The line of a rank to its node's daemon, and through it to the launcher.
pub(crate) struct Launched {
    place: Identity,
    sender: Mutex<Sender>,
    receiver: Mutex<Receiver>,
    /// Thread at the lifeline, if this rank was started externally.
    watch: Option<Arc<Watch>>,
}

impl fmt::Debug for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launched").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Launched {
    fn new(channel: Channel, place: Identity) -> Self {
        let (sender, receiver) = (Mutex::new(channel.sender), Mutex::new(channel.receiver));
        Self { place, sender, receiver, watch: None }
    }

    /// Makes an externally started rank.
    pub(crate) fn watched(channel: Channel, place: Identity, watch: Arc<Watch>) -> Self {
        Self { watch: Some(watch), ..Self::new(channel, place) }
    }

    /// The daemon is gone. If a thread watches it, that one ends the process with the reason.
    fn lost(&self) -> RmaError {
        if let Some(watch) = &self.watch {
            watch.wait_for_reason();
        }
        daemon_lost()
    }

    /// From now on the end of the daemon is no failure: it leaves when all ranks have said what this one is about to say.
    fn is_leaving(&self) {
        if let Some(watch) = &self.watch {
            watch.is_leaving();
        }
    }

    fn tell(&self, message: &FromRank) -> Result<()> {
        let mut sender = lock(&self.sender);
        sender.send(message)?;
        sender.flush_blocking()
    }

    /// Says something and waits for the answer. The lock on the receiver keeps exchanges of several threads apart;
    /// the sender is free meanwhile, so that another thread can abort.
    fn exchange(&self, message: &FromRank) -> Result<ToRank> {
        let mut receiver = lock(&self.receiver);
        self.tell(message)?;
        receiver.next_blocking()?.map(|(answer, _)| answer).ok_or_else(|| self.lost())
    }
}

impl Bootstrap for Launched {
    fn place(&self) -> &Identity {
        &self.place
    }

    fn all_gather(&self, contribution: &[u8]) -> Result<Vec<Vec<u8>>> {
        let ranks = self.place.layout.ranks();
        check_share(contribution, ranks)?;
        match self.exchange(&FromRank::Gather(contribution.to_vec()))? {
            ToRank::Gathered(all) if all.len() == ranks as usize => Ok(all),
            _ => Err(out_of_step()),
        }
    }

    fn declare_end(&self) -> Result<()> {
        self.is_leaving();
        match self.exchange(&FromRank::Finalise)? {
            ToRank::Finalised => Ok(()),
            _ => Err(out_of_step()),
        }
    }

    fn depart(&self) {
        // All ranks have finalised or exit. The helpers of a job that others have started go before its ranks do.
        if let Some(watch) = &self.watch {
            watch.wait_for_end();
        }
    }

    fn exit(&self, code: u8) -> Result<()> {
        self.is_leaving();
        self.tell(&FromRank::Exit { code })?;
        let Ok(mut receiver) = self.receiver.try_lock() else { return Err(out_of_step()) };
        loop {
            match receiver.next_blocking()? {
                Some((ToRank::Finalised, _)) => {
                    self.depart();
                    return Ok(());
                }
                Some(_) => {}
                None => return Err(self.lost()),
            }
        }
    }

    fn report_broken(&self, peer: Peer) -> Result<()> {
        self.tell(&FromRank::Broken(peer))
    }

    fn end(&self, End { message, code, is_complaint }: End) -> Result<()> {
        self.tell(&FromRank::Abort { message, code, is_complaint })?;
        if let Some(watch) = &self.watch {
            // No launcher says it: this rank would leave without a word.
            watch.wait_for_reason();
        }
        Ok(())
    }
}
