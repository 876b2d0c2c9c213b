//! Memory shared by the processes of one machine: a control file and the regions of each peer.
//!
//! A domain holds either the processes of one node, or, when the conduit between nodes is `smp` too, all
//! processes of the job. Its creator (the launcher or the node's daemon) decides the sizes; the others
//! receive the specification and the open files. Everything is an anonymous file: it vanishes with its
//! processes, even when they are killed.

use crate::address::{Peer, RegionId};
use crate::error::{Result, RmaError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use vgas_shm::{Mapping, anonymous_file};

/// A region to create, with the most bytes it may ever have (memory is used only when it is touched).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionSpec {
    /// The peer whose region it is.
    pub owner: Peer,
    /// The region.
    pub region: RegionId,
    /// Size in bytes.
    pub bytes: u64,
}

/// Everything that determines a domain's layout; equal in all its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainSpec {
    /// The peers whose processes share it, ascending.
    pub members: Vec<Peer>,
    /// Bytes of the control file (rings, doorbell words); computed by the `smp` conduit from the members.
    pub control_bytes: u64,
    /// Bytes of one ring of the `smp` conduit.
    pub ring_bytes: u64,
    /// The regions of the members.
    pub regions: Vec<RegionSpec>,
    /// Bytes common to all domains of a job, if these are on one machine: virtual nodes need them to be as
    /// slow as real ones. Mostly 0.
    pub common_bytes: u64,
}

/// A domain as one process sees it. Regions are mapped when first asked for.
pub struct Domain {
    spec: DomainSpec,
    control: Arc<Mapping>,
    /// Control file, one doorbell a member, one file a region, the common memory: in the order in which they
    /// are handed to a child.
    files: Vec<OwnedFd>,
    common: Option<Arc<Mapping>>,
    regions: Vec<OnceLock<Arc<Mapping>>>,
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Domain {
    /// Creates the files of a domain.
    pub fn create(spec: DomainSpec) -> Result<Self> {
        let common = match spec.common_bytes {
            0 => None,
            bytes => Some(anonymous_file("vgas-common", bytes)?),
        };
        Self::create_with(spec, common)
    }

    /// Creates the files of a domain that has its common memory with another one of the job.
    pub fn create_beside(spec: DomainSpec, other: &Domain) -> Result<Self> {
        let common = (spec.common_bytes > 0).then(|| other.files.last()).flatten();
        let common = common.map(OwnedFd::try_clone).transpose();
        Self::create_with(spec, common.map_err(|e| RmaError::io("share memory between nodes", e))?)
    }

    fn create_with(spec: DomainSpec, common: Option<OwnedFd>) -> Result<Self> {
        let mut files = vec![anonymous_file("vgas-control", spec.control_bytes)?];
        for _ in &spec.members {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| RmaError::system("create a doorbell (eventfd)", e))?;
            files.push(bell);
        }
        for region in &spec.regions {
            files.push(anonymous_file("vgas-region", region.bytes)?);
        }
        files.extend(common);
        Self::open(spec, files)
    }

    /// Opens a domain from its specification and its files, in the order of [`Domain::files`].
    pub fn open(spec: DomainSpec, files: Vec<OwnedFd>) -> Result<Self> {
        let has_common = spec.common_bytes > 0;
        let expected = 1 + spec.members.len() + spec.regions.len() + usize::from(has_common);
        if files.len() != expected {
            return Err(RmaError::Protocol {
                peer: None,
                what: format!("a shared-memory domain needs {expected} files, {} came", files.len()),
            });
        }
        let control = Mapping::of_file(&files[0])?;
        let regions = spec.regions.iter().map(|_| OnceLock::new()).collect();
        let common = files.last().filter(|_| has_common).map(Mapping::of_file).transpose()?;
        Ok(Self { spec, control, files, common, regions })
    }

    /// Returns the parameters that determine the layout.
    pub fn spec(&self) -> &DomainSpec {
        &self.spec
    }

    /// The files to hand to another process, in the order that [`Domain::open`] expects.
    pub fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.files.iter().map(AsFd::as_fd)
    }

    /// The control mapping: rings and words of the `smp` conduit.
    pub fn control(&self) -> &Arc<Mapping> {
        &self.control
    }

    /// Returns the memory common to all domains of the job, if any.
    pub fn common(&self) -> Option<&Arc<Mapping>> {
        self.common.as_ref()
    }

    /// Position of a peer among the members.
    pub fn member_index(&self, peer: Peer) -> Option<usize> {
        self.spec.members.binary_search(&peer).ok()
    }

    /// The doorbell (an eventfd) of a member.
    pub fn doorbell(&self, member_index: usize) -> BorrowedFd<'_> {
        self.files[1 + member_index].as_fd()
    }

    /// The size of a region of a member, if it has it.
    pub fn region_bytes(&self, owner: Peer, region: RegionId) -> Option<u64> {
        self.region_index(owner, region).map(|index| self.spec.regions[index].bytes)
    }

    /// Maps a region of a member (once; later calls return the same mapping).
    pub fn map(&self, owner: Peer, region: RegionId) -> Result<Arc<Mapping>> {
        let index = self.region_index(owner, region).ok_or(RmaError::NoSuchRegion { owner, region })?;
        if let Some(mapping) = self.regions[index].get() {
            return Ok(mapping.clone());
        }
        let mapping = Mapping::of_file(&self.files[1 + self.spec.members.len() + index])?;
        Ok(self.regions[index].get_or_init(|| mapping).clone())
    }

    /// The file behind a region: for mapping pieces of it at chosen addresses (local access).
    pub fn region_file(&self, owner: Peer, region: RegionId) -> Option<BorrowedFd<'_>> {
        self.region_index(owner, region).map(|index| self.files[1 + self.spec.members.len() + index].as_fd())
    }

    /// Gives the memory behind a range of a region back to the system, in whole pages: every process reads zeros there from now on.
    pub(crate) fn discard(&self, owner: Peer, region: RegionId, range: Range<u64>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let file = self.region_file(owner, region).ok_or(RmaError::NoSuchRegion { owner, region })?;
        let (start, bytes) = (range.start, range.end - range.start);
        fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, bytes)
            .map_err(|e| RmaError::system("give shared memory back (fallocate)", e))
    }

    fn region_index(&self, owner: Peer, region: RegionId) -> Option<usize> {
        self.spec.regions.iter().position(|spec| spec.owner == owner && spec.region == region)
    }
}
