//! Plain loads and stores on one's own tiered segment (vGASNet §III.D).

use crate::config::{LocalMechanism, Settings, Value};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use std::borrow::Cow;
use std::sync::{Mutex, OnceLock, PoisonError};
use vgas_cache::local::{Announcing, Everywhere, LocalSegment, LocalSpec, Mechanism};
use vgas_cache::partition::{PartitionId, SegmentId};
use vgas_cache::region;

/// A rank's local segment: opened when it is first asked for, so that programs that use no pointers keep their signal
/// handlers and addresses.
#[derive(Debug, Default)]
pub(crate) struct Local {
    segment: OnceLock<LocalSegment>,
    opening: Mutex<()>,
}

impl Local {
    /// Ends the segment, if there is one; while the agent still runs.
    pub fn close(&self) -> Result<()> {
        Ok(self.segment.get().map_or(Ok(()), LocalSegment::close)?)
    }
}

impl Runtime {
    /// This rank's own tiered segment as memory: [`LocalSegment::base`] is good for plain loads and stores over all its
    /// size, which may be far larger than DRAM, from any thread, while other ranks put and get the same bytes. Opened by
    /// the first call after [`Runtime::attach`]; valid until [`Runtime::finalize`].
    ///
    /// What the pointers show is what this rank's gets would show. Races between them and other ranks' puts are the
    /// program's to exclude; aligned words are never torn. What system calls, signals and children do with such memory is
    /// told in [`vgas_cache::local`].
    ///
    /// # Errors
    /// When this rank has no tiered segment, when addresses for it cannot be had, or when the machine does not allow what
    /// `local.mechanism` asks for.
    pub fn local(&self) -> Result<&LocalSegment> {
        let local = self.local_state();
        if let Some(segment) = local.segment.get() {
            return Ok(segment);
        }
        let _opening = local.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(segment) = local.segment.get() {
            return Ok(segment);
        }
        let own = PartitionId { segment: SegmentId::FIRST, owner: self.rank() };
        // Kept as long as this: the first segment is never detached.
        let everywhere = self.addresses.of(own.segment);
        let segment = self.open_local(own, None, everywhere.as_deref())?;
        self.segments.is_shown(own, &segment);
        self.tell_absent();
        Ok(local.segment.get_or_init(|| segment))
    }

    /// Opens a partition in what is reserved for its segment, which the caller keeps longer.
    pub(crate) fn open_local(
        &self,
        of: PartitionId,
        pages_max: Option<u32>,
        everywhere: Option<&Everywhere>,
    ) -> Result<LocalSegment> {
        let is_own = of.owner == self.rank();
        let (bytes, partition) = (self.client().bytes_of(of), self.client().partition(of));
        let Some(partition) = partition.filter(|_| bytes > 0) else {
            return Err(Error::Usage(format!("{} has attached no tiered segment", of.owner)));
        };
        if is_own {
            self.client().check_writable(of)?;
        }
        let endpoint = self.endpoint().clone();
        let agent = self.layout().agent_of(self.node());
        let frames = endpoint
            .domain()
            .and_then(|domain| domain.region_file(agent, region::FRAMES))
            .ok_or_else(|| Error::Usage("this rank does not share its node's memory".into()))?
            .try_clone_to_owned()
            .map_err(|error| Error::Usage(format!("cannot duplicate a descriptor: {error}")))?;
        let spec = LocalSpec {
            pool: self.client().pool().clone(),
            frames,
            partition,
            is_own,
            bytes,
            pages_max,
            at: everywhere.map(|everywhere| everywhere.range().base_of(of.owner.0)),
            mechanism: mechanism(self.settings())?,
            ring: Box::new(move || endpoint.ring(agent)),
            read: match is_own {
                true => self.client().page_reader(of),
                false => Box::new(|_| false),
            },
        };
        // SAFETY: the place is this partition's own in a range that the caller keeps longer; the file is that of the pool's frames; the
        // endpoint's ring and the client's reader are made for signal handlers.
        Ok(unsafe { LocalSegment::open(spec) }?)
    }

    /// Bytes to be sent, as private memory: a conduit may hand them to a system call, which cannot wait for a page of the
    /// local segment.
    pub(crate) fn private<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        if self.client().is_local(bytes.as_ptr()) { Cow::Owned(bytes.to_vec()) } else { Cow::Borrowed(bytes) }
    }
}

/// What the settings ask for, if the machine allows it.
fn mechanism(settings: &Settings) -> Result<Mechanism> {
    let signalled = Mechanism::Userfaultfd(Announcing::BySignal);
    let wanted = match settings.local.mechanism {
        LocalMechanism::Auto if signalled.available().is_ok() => signalled,
        LocalMechanism::Auto | LocalMechanism::Sigsegv => Mechanism::Sigsegv,
        LocalMechanism::Userfaultfd => signalled,
        LocalMechanism::SystemCalls => Mechanism::Userfaultfd(Announcing::ToThread),
    };
    wanted.available().map(|()| wanted).map_err(|error| {
        Error::Usage(format!(
            "local.mechanism = {} needs userfaultfd, which the kernel refuses ({error}); see `vgas info`, or leave it at its default",
            settings.local.mechanism.text()
        ))
    })
}
