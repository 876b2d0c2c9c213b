//! Attaching and detaching segments.
//!
//! A collective attach takes up to three meetings of all ranks. They compare what they ask for, if that has to be known before
//! anything is created (files, addresses, the first segment); each creates its part; they hear whether all have. Either all ranks
//! have the segment in the end, or none.

use super::reopened::Common;
use super::stored::{Wish, agree, agree_on_owner, gave_up, in_short};
use super::table::Attacher;
use super::wanted::{AttachRequest, Part, SegmentOwner};
use super::{Segment, SegmentOptions};
use crate::address::{GlobalAddress, Kind};
use crate::config::Settings;
use crate::error::{Error, Result};
use crate::memory::not_yours;
use crate::runtime::Runtime;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::Ordering::Relaxed;
use vgas_cache::Failure;
use vgas_cache::client::{Created, SegmentPages};
use vgas_cache::local::Everywhere;
use vgas_cache::page::PageIndex;
use vgas_cache::partition::SegmentId;
use vgas_cache::pool::PageSize;
use vgas_cache::request::{Detach, Named};
use vgas_nvm::{NAME_BYTES_MAX, is_segment_name};
use vgas_rma::{NodeId, Rank, RmaError};

/// The caller of barriers that attach and detach: below the indices of libraries.
const ATTACH: u32 = 1;

/// Bytes that a rank appends to the name of its file: a dot and its number.
const RANK_BYTES_MAX: usize = 11;

impl Runtime {
    /// Attaches a segment: the only way to memory that other ranks can reach. Collective, unless the options are
    /// [independent](SegmentOptions::independent): all ranks call it with the same options, each with a size of its own, in the same
    /// order; when it returns, the segment may be used everywhere. It reads as zeros at first, unless a named segment is reopened
    /// ([`Segment::reopened`]). Takes some hundred microseconds.
    ///
    /// # Errors
    /// The same on all ranks, and nothing was created (except in a job that goes on without a node that is lost meanwhile: some
    /// ranks may have the segment then, and this rank's part stays until the end): options that differ or cannot be; pages of a
    /// size that the cache has no room for; more bytes than `segment.tiered_max` or `segment.pinned_max` leaves; a file that cannot
    /// be created, is in use by another job or has another size; files of a named segment that were written by another number of
    /// ranks, are missing in part or hold no checkpoint that all of them hold; more than 768 tiered or 256 pinned segments, or more
    /// than 56 at one address, or no addresses that are free in all processes; a lost peer. An independent segment fails by itself.
    pub fn attach(&self, options: &SegmentOptions) -> Result<Segment> {
        self.attach_for(options, None)
    }

    /// Attaches a segment, as [`Runtime::attach`] does, for a library whose safety depends on the bytes in it. Collective: no rank
    /// attaches it plainly, or for another owner. Puts, updates, locks and pins by address are refused there
    /// ([`Runtime::put`]); only the segment that this returns may write.
    ///
    /// # Safety
    /// The library shares the segment with no other code.
    ///
    /// # Errors
    /// As [`Runtime::attach`]; and on every rank, before anything is created, if the owners differ. The job ends then.
    pub unsafe fn attach_owned(&self, options: &SegmentOptions, owner: &SegmentOwner) -> Result<Segment> {
        self.attach_for(options, Some(owner))
    }

    fn attach_for(&self, options: &SegmentOptions, owner: Option<&SegmentOwner>) -> Result<Segment> {
        let _turn = self.segments().turn();
        if options.is_independent {
            return match owner {
                None => self.attach_independent(options),
                Some(_) => {
                    Err(Error::Usage("an independent segment for a library: attach it on all ranks".into()))
                }
            };
        }
        self.endpoint().check_all("attaching a segment")?;
        let attacher = owner.map_or(Attacher::All, |owner| Attacher::Library(owner.slot));
        match options.kind {
            Kind::Tiered => self.attach_tiered(options, attacher, owner),
            Kind::Pinned => self.attach_pinned(options, attacher, owner),
        }
    }

    fn attach_tiered(
        &self,
        options: &SegmentOptions,
        attacher: Attacher,
        owner: Option<&SegmentOwner>,
    ) -> Result<Segment> {
        let has_usual_pages =
            matches!(options.page_bytes as usize, bytes if bytes == 0 || bytes == self.page_bytes());
        let number = self.segments().vacant(Kind::Tiered, attacher, has_usual_pages);
        let wanted = AttachRequest::new(options, number, owner);
        let have_met = self.segments().have_met.load(Relaxed);
        let mut together = AttachSummary::default();
        if !have_met || options.name.is_some() || options.has_one_address || owner.is_some() {
            together = self.compare(options, &wanted, owner, have_met)?;
        }
        let named = together.common.as_ref().and_then(|common| common.named(options.name.as_ref()));
        let place = match options.has_one_address {
            true => self.place(options, &together.bytes).map(Some),
            false => Ok(None),
        };
        // A refusal for all ranks is told with this rank's own refusal.
        let created = place.and_then(|everywhere| {
            let (pages, created) = self.create(number, options, owner.is_some(), named.as_ref())?;
            Ok((pages, created, everywhere))
        });
        let told = |(_, created, _): &(SegmentPages, Created, Option<Everywhere>)| {
            (created.first, created.read_only.map_or(0, Failure::code))
        };
        let ((pages, _, everywhere), parts) =
            self.all_or_none(wanted, options.bytes, created, told, |(pages, ..)| {
                // No other node knows of it.
                Ok(self.client().detach(pages.segment, Detach::Forget)?)
            })?;
        let created = |part: Part| {
            let (first, code) = part.created.unwrap_or_default();
            let read_only = (code != 0).then(|| Failure::from_code(code));
            Created { first, bytes: part.bytes, relaxed: options.is_relaxed, read_only }
        };
        let parts: Vec<Created> = parts.into_iter().map(created).collect();
        match self.speaks_for_node() {
            true => self.client().know(pages, Rank(0), &parts)?,
            false => self.client().know_here(pages, Rank(0), &parts)?,
        }
        self.segments().begin(pages.segment, options);
        everywhere.into_iter().for_each(|everywhere| self.addresses().begin(pages.segment, everywhere));
        // A name of nothing keeps nothing.
        let name = options.name.as_ref().filter(|_| parts.iter().any(|part| part.bytes > 0));
        if let (Some(name), Some(common)) = (name, &together.common) {
            let is_read_only = parts.iter().any(|part| part.read_only.is_some());
            self.segments().begin_named(pages.segment, name, owner.is_some(), common, is_read_only);
        }
        self.barrier()?;
        Ok(Segment::new(self, pages.segment, options))
    }

    /// Compares what all ranks ask for, before anything is created.
    fn compare(
        &self,
        options: &SegmentOptions,
        wanted: &AttachRequest,
        owner: Option<&SegmentOwner>,
        have_met: bool,
    ) -> Result<AttachSummary> {
        if have_met {
            // A rank that attaches something else may not come to the meeting below.
            self.mean_the_same(&Part {
                wanted: wanted.clone(),
                bytes: options.bytes,
                created: Some(Default::default()),
            })?;
        }
        // Each rank fails or succeeds by itself, but all learn of it: no rank may wait for one that gave up.
        let (found, refused) = match self.check(options).and_then(|()| self.find(options)) {
            Ok(found) => (found, None),
            Err(error) => (None, Some(error)),
        };
        let wish = Wish {
            refused: refused.as_ref().map(in_short),
            bytes: options.bytes,
            wanted: wanted.clone(),
            name: options.name.clone().filter(|_| refused.is_none()),
            owner: owner.cloned(),
            home: self.home(),
            found,
        };
        let wishes = self.exchange(&wish)?;
        if let Some(error) = refused {
            return Err(error);
        }
        if let Err(why) = agree_on_owner(&wishes) {
            // No rank can go on. The job's last line is this, whichever rank ends first.
            let _ = self.abort(&why, 1);
            return Err(Error::Usage(why));
        }
        agree(&wishes).map_err(Error::Usage)?;
        if let Some(other) = wishes.iter().position(|wish| wish.wanted != *wanted) {
            return Err(self.differs(wanted, &wishes[other].wanted, other));
        }
        let common = options.name.is_some().then(|| self.common(&wishes)).transpose()?;
        if !self.segments().have_met.swap(true, Relaxed) {
            let first = |node| self.layout().ranks_of(node).start as usize;
            let home = |node| Some(wishes.get(first(node))?.home.clone());
            self.client().set_homes((0..self.nodes()).filter_map(|node| home(NodeId(node))).collect());
        }
        Ok(AttachSummary { bytes: wishes.iter().map(|wish| wish.bytes).collect(), common })
    }

    fn differs(&self, own: &AttachRequest, other: &AttachRequest, rank: usize) -> Error {
        let how = own.difference(other);
        Error::Usage(format!(
            "{} and rank {rank} attach segments with different options, or in different order: {how}; give all ranks the same",
            self.rank()
        ))
    }

    /// Checks a rank's call by itself.
    fn check(&self, options: &SegmentOptions) -> Result<()> {
        check(options, self.settings())?;
        let Some(name) = &options.name else { return Ok(()) };
        let most = self.client().companions_max();
        match self.segments().has_name(name) {
            true => Err(Error::Usage("a segment of this job has that name already".into())),
            false if self.segments().named_count() > most => {
                Err(Error::Usage(format!("a job has at most {} segments with names", most + 1)))
            }
            false => Ok(()),
        }
    }

    /// Finds addresses for all parts of a segment that is to be at one address.
    fn place(&self, options: &SegmentOptions, parts: &[u64]) -> Result<Everywhere> {
        let page_bytes = match options.page_bytes {
            0 => self.page_bytes() as u64,
            bytes => bytes.into(),
        };
        let exchange = |own: u32| {
            let all = self.barrier_for(ATTACH, &own.to_le_bytes())?;
            let word = |bytes: &Vec<u8>| Some(u32::from_le_bytes(bytes.as_slice().try_into().ok()?));
            Ok(all.iter().map(|bytes| word(bytes).unwrap_or(0)).collect())
        };
        self.agree_on_addresses(parts.iter().copied(), page_bytes, exchange)
    }

    /// Creates this rank's part.
    fn create(
        &self,
        number: Option<SegmentId>,
        options: &SegmentOptions,
        is_owned: bool,
        named: Option<&Named>,
    ) -> Result<(SegmentPages, Created)> {
        check(options, self.settings())?;
        let Some(segment) = number else {
            return Err(Error::Usage("no number for another segment is left".into()));
        };
        let layout = self.client().pool().layout();
        let size = match options.page_bytes {
            0 => layout.page_size(),
            bytes => PageSize::try_from(bytes).map_err(Error::Usage)?,
        };
        if size.bytes() > layout.spec().page_bytes_max {
            let (bytes, most) = (size.bytes(), layout.spec().page_bytes_max);
            return Err(Error::Usage(format!(
                "pages of {bytes} bytes: the cache of a node has room for pages of at most {most}; raise cache.size (--cache)"
            )));
        }
        self.client().make_room(size)?;
        let pages = SegmentPages { segment, size, policy: options.policy(is_owned) };
        let created = match options.bytes {
            0 => Created::default(),
            bytes => self.client().attach(pages, bytes, named)?,
        };
        Ok((pages, Created { relaxed: options.is_relaxed, ..created }))
    }

    /// Tells the other ranks whether this rank has its part of a new segment: when this returns, all ranks
    /// have theirs, which are returned, or none has, and this rank's part was undone.
    pub(super) fn all_or_none<T>(
        &self,
        wanted: AttachRequest,
        bytes: u64,
        created: Result<T>,
        told: impl FnOnce(&T) -> (PageIndex, u32),
        undo: impl FnOnce(&T) -> Result<()>,
    ) -> Result<(T, Vec<Part>)> {
        let own = Part { wanted, bytes, created: created.as_ref().ok().map(told) };
        let (heard, is_same_call) = match self.hear_parts(&own) {
            Ok(parts) => (self.agree_on_parts(&own, &parts).map(|()| parts), true),
            Err(error) => (Err(error), false),
        };
        let error = match (created, heard) {
            (Ok(created), Ok(parts)) if parts.iter().all(|part| part.created.is_some()) => {
                return Ok((created, parts));
            }
            (created, heard) => {
                // If a node is lost, other ranks may have heard that all have theirs, and use this one.
                let stays = self.endpoint().has_lost();
                let undone = created.as_ref().ok().filter(|_| !stays).map_or(Ok(()), undo);
                // Each rank has a reason, or hears it.
                let why = heard.as_ref().ok().map(|_| self.exchange(&created.as_ref().err().map(in_short)));
                // The next segment may have the same number: no neighbour is to forget that one. A rank at another call does not come.
                if is_same_call {
                    self.barrier()?;
                }
                undone?;
                match (created, heard, why) {
                    (Err(error), ..) | (_, Err(error), _) | (.., Some(Err(error))) => error,
                    (.., whys) => {
                        let whys = whys.and_then(Result::ok).unwrap_or_default();
                        let found =
                            whys.iter().enumerate().find_map(|(rank, why)| Some((rank, why.as_ref()?)));
                        Error::Usage(found.map_or("a segment could not be attached".into(), |(rank, why)| {
                            gave_up(rank, why)
                        }))
                    }
                }
            }
        };
        Err(error)
    }

    /// Tells the other ranks what this rank means to attach, and hears what they do. An error if that does not fit together: then
    /// ranks that mean something else have come to [`Runtime::all_or_none`] and left it.
    fn mean_the_same(&self, own: &Part) -> Result<()> {
        let parts = self.hear_parts(own)?;
        let agreed = self.agree_on_parts(own, &parts);
        if agreed.is_err() {
            self.barrier()?;
        }
        agreed
    }

    /// Gathers the parts of all ranks, if all are at the same call.
    fn hear_parts(&self, own: &Part) -> Result<Vec<Part>> {
        let bytes = postcard::to_allocvec(own)
            .map_err(|error| Error::Usage(format!("cannot tell what to attach: {error}")))?;
        let all = self.barrier_for(ATTACH, &bytes)?;
        let decode = |(rank, bytes): (usize, &Vec<u8>)| {
            postcard::from_bytes(bytes).map_err(|error| {
                Error::Usage(format!("rank {rank} is at another barrier than attach: {error}"))
            })
        };
        all.iter().enumerate().map(decode).collect()
    }

    fn agree_on_parts(&self, own: &Part, parts: &[Part]) -> Result<()> {
        let Some(other) = parts.iter().position(|part| part.wanted != own.wanted) else { return Ok(()) };
        let error = self.differs(&own.wanted, &parts[other].wanted, other);
        if own.wanted.owner != parts[other].wanted.owner {
            // As of owners that are compared before.
            let _ = self.abort(&error.to_string(), 1);
        }
        Err(error)
    }

    /// All ranks' values, by a meeting at the launcher that carries any length.
    fn exchange<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>> {
        let own = postcard::to_allocvec(own)
            .map_err(|error| Error::Usage(format!("cannot tell what to attach: {error}")))?;
        let decode = |(rank, bytes): (Rank, Vec<u8>)| {
            postcard::from_bytes(&bytes).map_err(|error| {
                let what = format!("what it attaches: {error}");
                RmaError::Protocol { peer: Some(self.layout().peer_of_rank(rank)), what }.into()
            })
        };
        let all = self.bootstrap().all_gather(&own)?;
        if all.iter().any(Vec::is_empty) {
            // Not all take part any more: a node is lost, of which this rank hears now.
            self.endpoint().wait_until(None, || self.endpoint().has_lost())?;
            self.endpoint().check_all("attaching")?;
        }
        (0..).map(Rank).zip(all).map(decode).collect()
    }

    /// Returns true if this rank tells its node's agent what all ranks would otherwise tell theirs, and wait
    /// for at the next barrier: each of these requests may have to wait for a processor.
    fn speaks_for_node(&self) -> bool {
        self.layout().ranks_of(self.node()).start == self.rank().0
    }

    fn attach_independent(&self, options: &SegmentOptions) -> Result<Segment> {
        if options.bytes == 0 {
            return Err(Error::Usage("an independent segment of no bytes".into()));
        }
        for (given, what) in
            [(options.name.is_some(), "with a name"), (options.has_one_address, "at one address")]
        {
            if given {
                return Err(Error::Usage(format!(
                    "an independent segment {what}: attach it on all ranks together"
                )));
            }
        }
        if options.kind == Kind::Pinned {
            return self.attach_pinned_independent(options);
        }
        let number = self.segments().vacant(Kind::Tiered, Attacher::Independent, false);
        let (pages, created) = self.create(number, options, false, None)?;
        self.client().know(pages, self.rank(), &[created])?;
        self.segments().begin(pages.segment, options);
        Ok(Segment::new(self, pages.segment, options))
    }

    /// Learns of a segment that another rank has attached [independently](SegmentOptions::independent), from
    /// an address in it: from now on the address can be used here, as can the returned handle. No-op if the
    /// segment is known, as a tiered one is to all ranks of a node once one of them knows it; not for a
    /// pinned one, which may be another of the same number. Takes one message there and back, and, for a
    /// tiered segment, one to the node's agent, which keeps room for its pages.
    ///
    /// # Errors
    /// If that rank has no such segment, and if nothing can leave the cache for its pages.
    pub fn open_remote(&self, at: GlobalAddress) -> Result<Segment> {
        if at.is_of_library() {
            return Err(not_yours(at));
        }
        match at.kind {
            Kind::Tiered => self.client().learn(at.partition())?,
            Kind::Pinned => self.learn_pinned(at)?,
        }
        // Ranks number their independent segments alike: this rank may have another of that number.
        let own = self.segment(at.kind, at.segment);
        let own = own.filter(|own| at.rank == self.rank() || !own.options().is_independent);
        Ok(own.unwrap_or_else(|| Segment::foreign(at, self)))
    }
}

impl Segment {
    /// Gives the segment up, with everything in it. Collective, unless it is [independent](SegmentOptions::independent): when it
    /// returns, its pages, files and number are free. No rank uses it any more: operations have been waited for, and pins are gone.
    ///
    /// An independent segment: ranks that still use it get errors; see to it that none uses an address of it
    /// later, when its number may be another segment's. For a pinned one, an access by a rank of another node
    /// ends the job with a line that names that rank.
    ///
    /// # Errors
    /// If the segment is detached already, or [another rank's](Runtime::open_remote). On every rank, and then
    /// without an effect, if one of them has it open by pointers ([`Segment::local`]). If a relaxed put that
    /// was still waiting fails.
    pub fn detach(&self) -> Result<()> {
        let (runtime, id) = (self.runtime(), self.id());
        let segments = runtime.segments();
        let _turn = segments.turn();
        if self.0.is_foreign {
            return Err(Error::Usage(format!("the {self:?} is another rank's, which alone may detach it")));
        }
        if !segments.has(self.kind(), id) {
            return Err(Error::Usage(format!("the {self:?} is detached already")));
        }
        let is_alone = self.options().is_independent;
        if self.kind() == Kind::Pinned && !is_alone {
            return self.detach_pinned();
        }
        let is_open = segments.begin_leaving(id) && self.kind() == Kind::Tiered;
        let detached = match is_alone {
            true => self.detach_independent(is_open),
            false => self.detach_tiered(is_open),
        };
        segments.end_leaving(id);
        detached
    }

    fn detach_tiered(&self, is_open: bool) -> Result<()> {
        let (runtime, id) = (self.runtime(), self.id());
        let all = runtime.barrier_for(ATTACH, &[u8::from(is_open)])?;
        if let Some(rank) = all.iter().position(|said| said[..] == [1]) {
            return Err(Error::Usage(format!(
                "the {self:?} is open by pointers in rank {rank}: drop what Segment::local has returned before it is detached"
            )));
        }
        runtime.client().leave(id)?;
        runtime.barrier()?;
        for step in [Detach::Withdraw, Detach::Forget] {
            if runtime.speaks_for_node() {
                runtime.client().detach(id, step)?;
            }
            if step == Detach::Forget {
                runtime.segments().end(Kind::Tiered, id);
                runtime.addresses().end(id);
            }
            runtime.barrier()?;
        }
        Ok(())
    }

    fn detach_independent(&self, is_open: bool) -> Result<()> {
        if is_open {
            return Err(Error::Usage(format!(
                "the {self:?} is open by pointers: drop what Segment::local has returned before it is detached"
            )));
        }
        match self.kind() {
            Kind::Tiered => self.runtime().client().detach_own((self.id(), self.runtime().rank()))?,
            Kind::Pinned => self.give_back()?,
        }
        self.runtime().segments().end(self.kind(), self.id());
        Ok(())
    }
}

/// The ranks' combined findings before anything was created.
#[derive(Default)]
struct AttachSummary {
    /// Bytes of each rank's part.
    bytes: Vec<u64>,
    common: Option<Common>,
}

/// Checks a rank's options by themselves.
fn check(options: &SegmentOptions, settings: &Settings) -> Result<()> {
    let most = match options.kind {
        Kind::Tiered => &settings.segment.tiered_max,
        Kind::Pinned => &settings.segment.pinned_max,
    };
    if options.bytes > most.bytes() {
        let kind = if options.kind == Kind::Tiered { "tiered" } else { "pinned" };
        return Err(Error::Usage(format!(
            "a {kind} segment of {} bytes: at most {most} (segment.{kind}_max)",
            options.bytes
        )));
    }
    if options.policy(false).weight == 0 {
        return Err(Error::Usage("a segment with the weight 0: 1 to 255".into()));
    }
    let most = NAME_BYTES_MAX - RANK_BYTES_MAX;
    match &options.name {
        Some(name) if !is_segment_name(name) || name.len() > most => Err(Error::Usage(format!(
            "{name:?} is no name for a segment: 1 to {most} letters, digits, '_', '-' and '.', not starting with '.'"
        ))),
        _ => Ok(()),
    }
}
