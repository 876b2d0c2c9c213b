//! Creating the segments of a job: what all ranks must agree on, before anything is created.
//!
//! A named segment is one file a rank. Each agent knows its own ranks' files only, and would create one that is missing;
//! that all belong together is found here, from what every rank sees in its node's folder.

use crate::config::{DeviceChoice, Settings};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::segments::{AtCheckpoint, Segment};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;
use vgas_cache::Failure;
use vgas_cache::agent::volume_name;
use vgas_cache::client::{Created, SegmentPages};
use vgas_cache::page::PageIndex;
use vgas_cache::partition::SegmentId;
use vgas_cache::request::Named;
use vgas_nvm::{
    CheckpointId, Companion, FileState, NAME_BYTES_MAX, is_segment_name, name_hash, segment_file_name,
    segment_file_state,
};
use vgas_rma::{NodeId, Rank, RmaError};

/// What a name may have less than that of a volume's segment: a dot and the rank.
const RANK_BYTES_MAX: usize = 11;

/// How large a rank's segments are to be.
#[derive(Clone, Debug, Default)]
pub struct SegmentSpec {
    /// Bytes of the first pinned segment; 0 for none. What it leaves of `segment.pinned_max` is for further ones.
    pub pinned_bytes: u64,
    /// Bytes of the tiered segment; 0 for none. Rounded up to pages.
    pub tiered_bytes: u64,
    /// A name keeps the tiered segment after the job: a later job that attaches the same name and size finds the data of
    /// its last [`Runtime::checkpoint`]. The same on all ranks that have a tiered segment: 1 to 189 letters, digits, '_',
    /// '-' and '.', not starting with '.'.
    ///
    /// Where nothing can be written (a read-only mount, a full disk), what is there can be read: [`Runtime::reopened`] says so.
    ///
    /// Rank 3's part of `store` is the file `store.3.3.vgas` in its node's `nvm.directory`. A segment belongs to as many
    /// ranks as have created it, and each finds its file where it left it: a job of another number of ranks, or one that
    /// lacks the file of some rank but not of all, is refused. To begin again, remove the files of all ranks.
    pub name: Option<String>,
    /// Promise agreement on the tiered segment's content at barriers only. Puts into it that are smaller than a page
    /// then wait in the rank that put them, and travel together at its next [`Runtime::barrier`] (or
    /// [`Runtime::barrier_notify`], or when there are too many): several nodes may write different bytes of one page
    /// without taking it from each other every time. A rank sees its own puts at once. *Operation complete* of such a
    /// put means that its source is reusable; *visible* it is after the barrier. May differ from rank to rank.
    pub relaxed: bool,
    /// Have the tiered segments of all ranks at addresses that are the same in every process of the job, so that pointers into them
    /// mean the same everywhere ([`Runtime::pointer_to`], [`Runtime::address_of`]). The owner's pointers reach memory
    /// ([`Runtime::local`]), and those of ranks of its node that have asked to read ([`Runtime::local_of_mate`]); an access by
    /// another rank ends its process with a line that says so. The same on all ranks; together
    /// at most 64 TiB, each rank having as much as the largest.
    pub one_address: bool,
    /// No node but the home has copies of pages of the tiered segment: puts and gets of others travel to it
    /// ([`SegmentOptions::home_only`](crate::SegmentOptions::home_only)). The same on all ranks.
    pub home_only: bool,
}

/// The library that a segment belongs to: its objects lie there, so that nothing else may write into it.
///
/// Ranks whose owners differ are not given one segment ([`Runtime::attach_owned`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentOwner {
    /// The library, and the call by which it attaches: `the heap of Objects::attach`.
    pub library: String,
    /// A number of the rank's program, for a library whose bytes mean the same only in the same program.
    pub program: u64,
    /// All else in which the ranks must agree, as it is told to users.
    pub options: String,
}

/// What a rank tells the others before anything is created.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wish {
    /// Why it asks for nothing: what it was called with is not allowed, or its folder cannot be read.
    refused: Option<String>,
    tiered_bytes: u64,
    relaxed: bool,
    one_address: bool,
    home_only: bool,
    name: Option<String>,
    owner: Option<SegmentOwner>,
    /// Its node's machine and folder, for errors.
    home: String,
    /// With a name: what is there of that name.
    found: Option<Found>,
}

/// How the creation of a rank's segment ended: the number of its first page, and that of why it can only be read, or 0; or why
/// there is none.
type Outcome = Result<(PageIndex, u32), String>;

/// What a rank sees of a named segment in its node's folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Found {
    /// This rank's file.
    path: String,
    state: State,
    /// The file of a rank that the job does not have.
    surplus: Option<String>,
}

/// [`FileState`] as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    Missing,
    Holds(Vec<Offered>),
    Unclear,
}

/// A checkpoint that a file can be opened at, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Offered {
    generation: u64,
    identity: u64,
    /// Name hash and generation of each [`Companion`].
    companions: Vec<(u64, u64)>,
}

impl Offered {
    fn id(&self) -> CheckpointId {
        CheckpointId { generation: self.generation, identity: self.identity }
    }
}

/// What all ranks together have found of a segment's name.
#[derive(Clone, Debug)]
pub(crate) struct Together {
    /// The checkpoint that it is opened at; none when no rank can have any.
    checkpoint: Option<CheckpointId>,
    companions: Vec<Companion>,
    newest: u64,
    relation: Relation,
    /// This rank says it, where a newer one is given up.
    tells: bool,
}

impl Together {
    /// What this rank's agent is to open.
    pub fn named(&self, name: Option<&String>) -> Option<Named> {
        let &Self { checkpoint, tells, .. } = self;
        name.map(|name| Named { name: name.clone(), checkpoint, tells })
    }

    /// The checkpoint that the segment is at from now on.
    pub fn at(&self, name: &str) -> AtCheckpoint {
        let checkpoint = self.checkpoint.unwrap_or_default();
        AtCheckpoint { name: name.to_owned(), checkpoint, companions: self.companions.clone() }
    }

    /// What the program is told; nothing when it is created now, and nothing is missing.
    pub fn reopened(&self, is_read_only: bool) -> Option<Reopened> {
        let checkpoint = self.checkpoint?.generation;
        let is_together = self.relation == Relation::Together;
        let is_found = self.newest > 0 || self.relation == Relation::Mixed;
        is_found.then_some(Reopened { checkpoint, newest: self.newest, is_read_only, is_together })
    }
}

/// How the checkpoint of a segment relates to those of the named segments that were attached before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// They were made together, or the segment is younger than all of them.
    Together,
    /// Jobs have made checkpoints of some without the others. None is known to have had more in common.
    Apart,
    /// One of them was made together with a newer checkpoint of another than that one has now.
    Mixed,
}

/// What a job has found of its named segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reopened {
    /// The checkpoint that the segment was opened at: the newest that is whole on all ranks. They are counted from 1; 0 is
    /// the segment as it was created, all zeros.
    pub checkpoint: u64,
    /// The newest checkpoint that any rank has found whole in its file. It is newer than the other when the job that made it
    /// was ended before all ranks had it; it is given up then, and its number used again.
    pub newest: u64,
    /// Nothing can be written where the part of some rank is stored: gets work there, puts and checkpoints fail with the
    /// reason. If the disk is full, puts succeed as long as the cache has room for them.
    pub is_read_only: bool,
    /// The segment is of one checkpoint with all named segments that were attached before it, or was created after theirs. False
    /// if a job has made checkpoints of some without the others, and, with `segment.mixed_checkpoints`, if some were removed
    /// or replaced by an older copy; `checkpoint` and `newest` are 0 then of one that was removed.
    pub is_together: bool,
}

impl Reopened {
    /// Whether nothing newer was found anywhere.
    pub fn is_newest(&self) -> bool {
        self.checkpoint == self.newest
    }
}

impl Runtime {
    /// Creates this rank's segments. Collective, once: when it returns, all segments of the job may be used. The memory
    /// of both reads as zeros at first, unless a named segment is reopened.
    ///
    /// # Errors
    /// On every rank, when one of them asks for more than `segment.tiered_max` or `segment.pinned_max`, gives a name that is
    /// none, or gives another name than the others, or attaches for a library ([`Runtime::attach_owned`]; the job ends then); and when the files of a named segment were written by another number of
    /// ranks, or some are missing (see [`SegmentSpec::name`]), or hold no checkpoint that all of them hold. Nothing has been
    /// created then. Also on every rank, when a
    /// file cannot be created, is in use by another job, or has another size; and when a peer is lost.
    pub fn attach(&self, spec: &SegmentSpec) -> Result<()> {
        self.attach_for(spec, None)
    }

    /// Creates this rank's segments, as [`Runtime::attach`] does, for a library whose safety depends on their bytes. Collective:
    /// no rank has attached them otherwise, or for another owner.
    ///
    /// # Safety
    /// The caller keeps this runtime: nobody else calls it, except through unsafe code that promises to write nothing into
    /// the segments.
    ///
    /// # Errors
    /// As [`Runtime::attach`]; and on every rank, before anything is created, when the owners differ. The job ends then.
    pub unsafe fn attach_owned(&self, spec: &SegmentSpec, owner: SegmentOwner) -> Result<()> {
        self.attach_for(spec, Some(owner))
    }

    fn attach_for(&self, spec: &SegmentSpec, owner: Option<SegmentOwner>) -> Result<()> {
        // Each rank fails or succeeds by itself, but all learn of it: nobody may wait for one that gave up.
        let (found, refused) = match check(spec, self.settings()).and_then(|()| self.find(spec)) {
            Ok(found) => (found, None),
            Err(error) => (None, Some(error)),
        };
        let is_owned = owner.is_some();
        let wish = Wish {
            refused: refused.as_ref().map(in_short),
            tiered_bytes: spec.tiered_bytes,
            relaxed: spec.relaxed,
            one_address: spec.one_address,
            home_only: spec.home_only,
            name: spec.name.clone().filter(|_| refused.is_none()),
            owner,
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
        let together = self.together(&wishes)?;
        let everywhere = match spec.one_address {
            false => None,
            true => {
                let parts = wishes.iter().map(|wish| wish.tiered_bytes);
                let page_bytes = self.client().page_bytes() as u64;
                Some(self.agree_on_addresses(parts, page_bytes, |own| self.exchange(&own))?)
            }
        };

        let first = |node| self.layout().ranks_of(node).start as usize;
        let home = |node| Some(wishes.get(first(node))?.home.clone());
        self.client().set_homes((0..self.nodes()).filter_map(|node| home(NodeId(node))).collect());
        self.endpoint().attach_segment(spec.pinned_bytes)?;
        let mut pages = SegmentPages::first(self.client().pool());
        pages.policy.home_only = spec.home_only;
        pages.policy.owned = is_owned;
        let named = together.named(spec.name.as_ref());
        let attached = self.client().make_room(pages.size).and_then(|()| match spec.tiered_bytes {
            0 => Ok(Created::default()),
            bytes => self.client().attach(pages, bytes, named.as_ref()),
        });
        let outcome: Outcome = match &attached {
            Ok(created) => Ok((created.first, created.read_only.map_or(0, Failure::code))),
            Err(error) => Err(in_short(error)),
        };
        let all = self.exchange(&outcome)?;
        attached?;
        let failed = all.iter().enumerate().find_map(|(rank, one)| Some((rank, one.as_ref().err()?)));
        if let Some((rank, why)) = failed {
            return Err(Error::Usage(gave_up(rank, why)));
        }
        let created: Vec<Created> = wishes
            .iter()
            .zip(all.into_iter().flatten())
            .map(|(wish, (first, code))| Created {
                first,
                bytes: wish.tiered_bytes,
                relaxed: wish.relaxed,
                read_only: (code != 0).then(|| Failure::from_code(code)),
            })
            .collect();
        let is_read_only = created.iter().any(|one| one.read_only.is_some());
        self.client().know(pages, Rank(0), &created)?;
        self.segments.begin(SegmentId::FIRST);
        everywhere.into_iter().for_each(|everywhere| self.addresses.begin(SegmentId::FIRST, everywhere));
        // Of those who have a part, on all ranks: they take the steps of checkpoints together.
        let name = wishes.iter().find(|wish| wish.tiered_bytes > 0).and_then(|wish| wish.name.as_ref());
        if let Some(name) = name {
            self.segments.is_named(SegmentId::FIRST, name, &together, is_read_only);
        }
        self.endpoint().barrier()?;
        Ok(())
    }

    /// What all ranks have found of the segment that they wish for, if their wishes fit together.
    fn together(&self, wishes: &[Wish]) -> Result<Together> {
        agree(wishes).map_err(Error::Usage)?;
        let may_mix = self.settings().segment.mixed_checkpoints;
        let chosen = choose(wishes, &self.segments.at_checkpoints(), may_mix).map_err(Error::Usage)?;
        let newest = wishes.iter().map(Wish::newest).max().unwrap_or(0);
        let Chosen { checkpoint, companions, relation } = chosen;
        let teller = wishes.iter().position(|wish| wish.newest() > checkpoint.unwrap_or_default().generation);
        let tells = teller == Some(self.rank().0 as usize);
        Ok(Together { checkpoint, companions, newest, relation, tells })
    }

    /// The same for a further segment with a name, which all ranks attach. Collective.
    pub(crate) fn find_together(&self, name: &str, bytes: u64, relaxed: bool) -> Result<Together> {
        let spec = SegmentSpec {
            tiered_bytes: bytes,
            relaxed,
            name: Some(name.to_owned()),
            ..SegmentSpec::default()
        };
        let (found, refused) = match check(&spec, self.settings()).and_then(|()| self.find(&spec)) {
            Ok(found) => (found, None),
            Err(error) => (None, Some(in_short(&error))),
        };
        let name = spec.name.filter(|_| refused.is_none());
        let home = self.home();
        let wish = Wish {
            refused,
            tiered_bytes: bytes,
            relaxed,
            one_address: false,
            home_only: false,
            name,
            owner: None,
            home,
            found,
        };
        self.together(&self.exchange(&wish)?)
    }

    /// What was found of the named segment that was attached first; none when it was created now, or has no name.
    pub fn reopened(&self) -> Option<Reopened> {
        self.reopened_of(Segment::FIRST)
    }

    /// Whether the job has a segment with a name, which a checkpoint keeps.
    pub fn has_named_segments(&self) -> bool {
        self.segments.named_count() > 0
    }

    /// What was found of any segment, as [`Runtime::reopened`] says of the first ([`crate::SegmentOptions::name`]).
    pub fn reopened_of(&self, segment: Segment) -> Option<Reopened> {
        self.segments.reopened(segment.id())
    }

    fn exchange<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>> {
        let own = postcard::to_allocvec(own)
            .map_err(|error| Error::Usage(format!("cannot tell what to attach: {error}")))?;
        let decode = |(rank, bytes): (Rank, Vec<u8>)| {
            postcard::from_bytes(&bytes).map_err(|error| {
                let what = format!("what it attaches: {error}");
                RmaError::Protocol { peer: Some(self.layout().peer_of_rank(rank)), what }.into()
            })
        };
        let all = self.bootstrap.all_gather(&own)?;
        if all.iter().any(Vec::is_empty) {
            // Not all take part any more: a node is lost, of which this rank hears now.
            self.endpoint().wait_until(None, || self.endpoint().has_lost())?;
            self.endpoint().check_all("attaching")?;
        }
        (0..).map(Rank).zip(all).map(decode).collect()
    }

    /// What to call this rank's NVMe.
    fn home(&self) -> String {
        let host = rustix::system::uname();
        let (host, folder) = (host.nodename().to_string_lossy(), self.settings().nvm.directory_path());
        format!("{} (host {host}, {})", self.node(), folder.display())
    }

    fn find(&self, spec: &SegmentSpec) -> Result<Option<Found>> {
        let nvm = &self.settings().nvm;
        match &spec.name {
            Some(name) if spec.tiered_bytes > 0 && nvm.device != DeviceChoice::Memory => {
                find(&nvm.directory_path(), name, self.rank(), self.ranks()).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// What the other ranks say of a rank that could not attach, with its own reason: whichever ends first ends the job, and
/// nothing may come of the others any more.
fn gave_up(rank: usize, why: &str) -> String {
    format!("rank {rank} could not attach its segments: {why}")
}

/// An error as it travels to all ranks: one line, never empty, and not longer than somebody reads.
pub(crate) fn in_short(error: &impl std::fmt::Display) -> String {
    const CHARACTERS_MAX: usize = 1000;
    let line = error.to_string().replace('\n', " ");
    if line.is_empty() {
        "for no reason that it gives".into()
    } else {
        line.chars().take(CHARACTERS_MAX).collect()
    }
}

/// What can be wrong with a rank's call by itself.
fn check(spec: &SegmentSpec, settings: &Settings) -> Result<()> {
    let limits = &settings.segment;
    for (kind, bytes, most) in
        [("tiered", spec.tiered_bytes, &limits.tiered_max), ("pinned", spec.pinned_bytes, &limits.pinned_max)]
    {
        if bytes > most.bytes() {
            let what = format!("a {kind} segment of {bytes} bytes: at most {most} (segment.{kind}_max)");
            return Err(Error::Usage(what));
        }
    }
    let most = NAME_BYTES_MAX - RANK_BYTES_MAX;
    match &spec.name {
        Some(name) if !is_segment_name(name) || name.len() > most => Err(Error::Usage(format!(
            "{name:?} is no name for a segment: 1 to {most} letters, digits, '_', '-' and '.', not starting with '.'"
        ))),
        _ => Ok(()),
    }
}

/// Looks for the files of a named segment in a node's folder.
fn find(folder: &Path, name: &str, rank: Rank, ranks: u32) -> Result<Found> {
    let file_name = |rank: Rank| segment_file_name(&volume_name(name, rank), rank.0);
    let path = folder.join(file_name(rank));
    let state = segment_file_state(&path)
        .map_err(|error| Error::Usage(format!("cannot read {}: {error}", path.display())))?;
    let state = match state {
        FileState::Missing => State::Missing,
        FileState::Holds(checkpoints) => {
            let companions =
                |all: Vec<Companion>| all.into_iter().map(|one| (one.name_hash, one.generation)).collect();
            let offered = |(one, all): (CheckpointId, Vec<Companion>)| Offered {
                generation: one.generation,
                identity: one.identity,
                companions: companions(all),
            };
            State::Holds(checkpoints.into_iter().map(offered).collect())
        }
        FileState::Unclear => State::Unclear,
    };
    // A folder that cannot be listed may still hold files; then nothing is known of others.
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let others = entries.filter_map(|entry| {
        let found = entry.file_name().into_string().ok()?;
        let other = found.strip_prefix(name)?.strip_prefix('.')?.split('.').next()?.parse().ok().map(Rank)?;
        (other.0 >= ranks && found == file_name(other)).then(|| folder.join(found))
    });
    // Any will do, but the same whatever the order of the folder.
    let surplus = others.filter(|path| segment_file_state(path).map_or(true, |state| state.is_kept())).min();
    let shown = |path: &Path| path.display().to_string();
    Ok(Found { path: shown(&path), state, surplus: surplus.as_deref().map(shown) })
}

/// Whether what the ranks want fits together; what is wrong, otherwise, in the same words on every rank.
fn agree(wishes: &[Wish]) -> Result<(), String> {
    let refused = |(rank, wish): (usize, &Wish)| Some(gave_up(rank, wish.refused.as_ref()?));
    if let Some(why) = wishes.iter().enumerate().find_map(refused) {
        return Err(why);
    }
    let tiered = || wishes.iter().enumerate().filter(|(_, wish)| wish.tiered_bytes > 0);
    type Given = fn(&Wish) -> bool;
    let options: [(&str, Given); 2] =
        [("one_address", |wish| wish.one_address), ("home_only", |wish| wish.home_only)];
    for (option, is_given) in options {
        let first = is_given(&wishes[0]);
        if let Some(other) = wishes.iter().position(|wish| is_given(wish) != first) {
            let (with, without) = if first { (0, other) } else { (other, 0) };
            return Err(format!(
                "rank {with} attaches with {option}, rank {without} without: give all the same"
            ));
        }
    }
    let called = |wish: &Wish| wish.name.as_ref().map_or("none".to_owned(), |name| format!("{name:?}"));
    if let Some((first, named)) = tiered().next()
        && let Some((other, different)) = tiered().find(|(_, wish)| wish.name != named.name)
    {
        return Err(format!(
            "the ranks name their tiered segments differently: rank {first} {}, rank {other} {}; give all the same name, \
             or none",
            called(named),
            called(different)
        ));
    }
    let found = || wishes.iter().enumerate().filter_map(|(rank, wish)| Some((rank, wish.found.as_ref()?)));
    if let Some(surplus) = found().find_map(|(_, found)| found.surplus.as_ref()) {
        return Err(format!(
            "{surplus} is there, but this job has {} ranks: the named segment belongs to a job of more; run with as many \
             ranks, choose another name, or remove the files of that name to begin again",
            wishes.len()
        ));
    }
    let kept = found().find(|(_, found)| match &found.state {
        State::Missing => false,
        State::Holds(checkpoints) => checkpoints.iter().any(|one| one.generation > 0),
        State::Unclear => true,
    });
    let missing = found().find(|(_, found)| found.state == State::Missing);
    if let (Some((holder, kept)), Some((rank, missing))) = (kept, missing) {
        return Err(format!(
            "{} of rank {rank} is missing, while {} of rank {holder} holds the segment of an earlier job; restore it, run \
             with as many ranks and on the same machines as that job, or remove the files of that name to begin again",
            missing.path, kept.path
        ));
    }
    Ok(())
}

/// Compares whom the ranks attach their segments for.
fn agree_on_owner(wishes: &[Wish]) -> Result<(), String> {
    let first = &wishes[0].owner;
    let Some(other) = wishes.iter().position(|wish| wish.owner != *first) else { return Ok(()) };
    Err(match (first, &wishes[other].owner) {
        (Some(first), Some(second)) if first.library != second.library => format!(
            "rank 0 attaches {}, rank {other} attaches {}: attach the same on all ranks",
            first.library, second.library
        ),
        (Some(first), Some(second)) if first.program != second.program => format!(
            "rank 0 and rank {other} do not run the same program, and attach {}, whose types and functions mean the same only \
             in one program: start the same file on all ranks",
            first.library
        ),
        (Some(first), Some(second)) => format!(
            "rank 0 attaches {} with {}, rank {other} with {}: give all the same options",
            first.library, first.options, second.options
        ),
        (Some(owner), None) => attached_plainly(&owner.library, 0, other),
        (None, Some(owner)) => attached_plainly(&owner.library, other, 0),
        (None, None) => return Ok(()),
    })
}

fn attached_plainly(library: &str, with: usize, without: usize) -> String {
    format!(
        "rank {with} attaches {library}, rank {without} plain segments: nothing else may write where a library keeps objects, \
         so attach the same on all ranks"
    )
}

impl Wish {
    /// The generation of the newest checkpoint that the rank has found.
    fn newest(&self) -> u64 {
        self.checkpoints().first().map_or(0, |one| one.generation)
    }

    /// What the rank could open; nothing from who has nothing to say about it.
    fn checkpoints(&self) -> Vec<CheckpointId> {
        match self.found.as_ref().map(|found| &found.state) {
            // It is created, as whoever has flushed nothing has it.
            Some(State::Missing) => vec![CheckpointId::default()],
            Some(State::Holds(checkpoints)) => checkpoints.iter().map(Offered::id).collect(),
            Some(State::Unclear) | None => Vec::new(),
        }
    }

    /// The other segments that took part in a checkpoint, as far as this rank's file says so.
    fn companions(&self, of: CheckpointId) -> &[(u64, u64)] {
        match self.found.as_ref().map(|found| &found.state) {
            Some(State::Holds(all)) => {
                all.iter().find(|one| one.id() == of).map_or(&[], |one| &one.companions)
            }
            _ => &[],
        }
    }
}

/// The checkpoint that a segment is opened at.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    /// None when no rank has any.
    checkpoint: Option<CheckpointId>,
    companions: Vec<Companion>,
    relation: Relation,
}

/// Whether a segment at a checkpoint is older than another segment's checkpoint remembers it.
fn is_older(name: &str, checkpoint: CheckpointId, remembered: &[Companion]) -> Option<u64> {
    let hash = name_hash(name);
    let companion = remembered.iter().find(|one| one.name_hash == hash)?;
    (checkpoint.generation <= companion.generation).then_some(companion.generation)
}

/// Why a segment at a checkpoint cannot belong to one that is open; nothing if it can.
fn contradiction(one: &AtCheckpoint, open: &AtCheckpoint) -> Option<String> {
    let (at, open_at) = (one.checkpoint, open.checkpoint);
    if at.identity != 0 && at.identity == open_at.identity {
        return None;
    }
    let (name, other) = (&one.name, &open.name);
    let (generation, open_generation) = (at.generation, open_at.generation);
    if let Some(then) = is_older(name, at, &open.companions) {
        let now = match generation {
            0 => "has no files now".to_owned(),
            _ => format!("is at checkpoint {generation} now"),
        };
        return Some(format!(
            "checkpoint {open_generation} of {other:?} was made together with checkpoint {then} of {name:?}, which {now}"
        ));
    }
    let then = is_older(other, open_at, &one.companions)?;
    Some(format!(
        "checkpoint {generation} of {name:?} was made together with checkpoint {then} of {other:?}, which is at checkpoint \
         {open_generation} now"
    ))
}

/// The newest checkpoint that all ranks have and that belongs to what is open already, preferably made together with the first of
/// that; none when no rank has any. With `may_mix`, the newest that all ranks have if none belongs to it.
fn choose(wishes: &[Wish], open: &[AtCheckpoint], may_mix: bool) -> Result<Chosen, String> {
    let held = wishes.iter().map(Wish::checkpoints).enumerate().filter(|(_, held)| !held.is_empty());
    let held: Vec<(usize, Vec<CheckpointId>)> = held.collect();
    let Some((_, first)) = held.first() else {
        return Ok(Chosen { checkpoint: None, companions: Vec::new(), relation: Relation::Together });
    };
    let name = wishes.iter().find_map(|wish| wish.name.as_deref()).unwrap_or_default();
    let is_common = |one: &&CheckpointId| held.iter().all(|(_, held)| held.contains(one));
    let mut common: Vec<AtCheckpoint> = first
        .iter()
        .filter(is_common)
        .map(|&checkpoint| {
            let all = wishes.iter().map(|wish| wish.companions(checkpoint));
            let companion = |&(name_hash, generation): &(u64, u64)| Companion { name_hash, generation };
            let companions = all.max_by_key(|all| all.len()).unwrap_or_default().iter().map(companion);
            AtCheckpoint { name: name.to_owned(), checkpoint, companions: companions.collect() }
        })
        .collect();
    let with = open.first().map(|open| open.checkpoint.identity).filter(|&identity| identity != 0);
    let key = |one: &AtCheckpoint| (Some(one.checkpoint.identity) == with, one.checkpoint.generation);
    common.sort_by_key(|one| std::cmp::Reverse(key(one)));
    let fits = |one: &&AtCheckpoint| open.iter().all(|open| contradiction(one, open).is_none());
    if let Some(AtCheckpoint { checkpoint, companions, .. }) = common.iter().find(fits).cloned() {
        let is_with = |open: &AtCheckpoint| open.checkpoint.identity == checkpoint.identity;
        let relation = match checkpoint.generation == 0 || open.iter().all(is_with) {
            true => Relation::Together,
            false => Relation::Apart,
        };
        return Ok(Chosen { checkpoint: Some(checkpoint), companions, relation });
    }
    if let Some(AtCheckpoint { checkpoint, companions, .. }) = common.first().filter(|_| may_mix).cloned() {
        return Ok(Chosen { checkpoint: Some(checkpoint), companions, relation: Relation::Mixed });
    }
    if let Some(why) = common.first().and_then(|one| open.iter().find_map(|open| contradiction(one, open))) {
        return Err(format!(
            "{why}: it was removed, or replaced by an older copy; restore what belongs together, or attach what is there with \
             `segment.mixed_checkpoints=on`"
        ));
    }
    // Each has one, or one and that before it: when there is none for all, then some two have none in common.
    let other = |(_, one): &&(usize, Vec<CheckpointId>)| {
        held.iter().find(|(_, other)| !one.iter().any(|checkpoint| other.contains(checkpoint)))
    };
    let holds = |(rank, held): &(usize, Vec<CheckpointId>)| {
        let path = wishes[*rank].found.as_ref().map_or("nothing", |found| &found.path);
        let generations: Vec<_> = held.iter().map(|one| one.generation.to_string()).collect();
        format!("{path} of rank {rank} holds checkpoint {}", generations.join(" and "))
    };
    let pair = held.iter().find_map(|one| Some([one, other(&one)?]));
    let who = pair.map(|pair| pair.map(holds).join(", ")).unwrap_or_default();
    Err(format!(
        "the files of the named segment have no checkpoint in common: {who}; they are of different jobs, or one is older \
         or damaged: restore the files that one job has left, or remove the files of that name to begin again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(name: Option<&str>, state: Option<State>) -> Wish {
        let found = state.map(|state| Found { path: "/folder/file".into(), state, surplus: None });
        let name = name.map(str::to_owned);
        Wish {
            refused: None,
            tiered_bytes: 4096,
            relaxed: false,
            one_address: false,
            home_only: false,
            name,
            owner: None,
            home: String::new(),
            found,
        }
    }

    fn holds(checkpoints: &[(u64, u64)]) -> State {
        let offered = |&(generation, identity): &_| Offered { generation, identity, companions: Vec::new() };
        State::Holds(checkpoints.iter().map(offered).collect())
    }

    fn at(name: &str, generation: u64, identity: u64, companions: &[(&str, u64)]) -> AtCheckpoint {
        let companion = |&(name, generation): &_| Companion { name_hash: name_hash(name), generation };
        AtCheckpoint {
            name: name.into(),
            checkpoint: CheckpointId { generation, identity },
            companions: companions.iter().map(companion).collect(),
        }
    }

    /// Goal: only what is whole, or entirely new, is attached. A job that was killed while it created its files has promised
    /// nothing, and is not in the way of the next one.
    #[test]
    fn files_belong_together() {
        let flushed = || holds(&[(1, 5)]);
        let unflushed = || holds(&[(0, 0)]);
        let missing = || State::Missing;
        let cases = [
            ([missing(), missing()], true),
            ([flushed(), flushed()], true),
            ([unflushed(), missing()], true),
            ([unflushed(), flushed()], true),
            ([missing(), flushed()], false),
            ([flushed(), missing()], false),
            ([missing(), State::Unclear], false),
        ];
        for (states, fits) in cases {
            let wishes = states.clone().map(|state| wish(Some("a"), Some(state)));
            assert_eq!(agree(&wishes).is_ok(), fits, "{states:?}");
        }
    }

    /// Goal: the newest checkpoint that all have is taken, and without one nothing is: also when the numbers are equal, but
    /// not the jobs that have made them.
    #[test]
    fn the_newest_common_checkpoint_is_chosen() {
        let choose = |held: &[&[(u64, u64)]]| {
            let wishes: Vec<_> = held.iter().map(|held| wish(Some("a"), Some(holds(held)))).collect();
            let chosen = choose(&wishes, &[], false)?.checkpoint;
            Ok::<_, String>(chosen.map(|CheckpointId { generation, identity }| (generation, identity)))
        };
        assert_eq!(choose(&[&[(2, 7), (1, 5)], &[(2, 7)]]), Ok(Some((2, 7))));
        assert_eq!(choose(&[&[(2, 7), (1, 5)], &[(1, 5)]]), Ok(Some((1, 5))));
        assert_eq!(choose(&[&[(1, 5)], &[(2, 7), (1, 5)], &[(2, 8), (1, 5)]]), Ok(Some((1, 5))));
        assert_eq!(choose(&[&[(1, 5), (0, 0)], &[(0, 0)]]), Ok(Some((0, 0))));
        // One file is older than the others' last checkpoint but one; one is of another job.
        let error = choose(&[&[(4, 1), (3, 1)], &[(4, 1)], &[(3, 1), (2, 1)]]).unwrap_err();
        assert!(
            error.contains("rank 1 holds checkpoint 4, ")
                && error.contains("rank 2 holds checkpoint 3 and 2;"),
            "{error}"
        );
        assert!(choose(&[&[(4, 1), (3, 1)], &[(4, 2), (3, 2)]]).is_err());
        // Who has no file yet begins with zeros; who has no segment, or one that cannot be read, says nothing.
        let wishes =
            [State::Missing, holds(&[(0, 0)]), State::Unclear].map(|state| wish(Some("a"), Some(state)));
        assert_eq!(super::choose(&wishes, &[], false).unwrap().checkpoint, Some(CheckpointId::default()));
        let open = [at("b", 3, 7, &[])];
        assert_eq!(super::choose(&[wish(None, None)], &open, false).unwrap().checkpoint, None);
        // A segment that was not attached at the last checkpoint has none of its identity; otherwise it is opened with the other.
        let wishes = [(); 2].map(|()| wish(Some("a"), Some(holds(&[(2, 7), (1, 5)]))));
        for (with, generation) in [(None, 2), (Some(7), 2), (Some(5), 1), (Some(9), 2), (Some(0), 2)] {
            let open: Vec<_> = with.iter().map(|&identity| at("b", 3, identity, &[])).collect();
            let chosen = super::choose(&wishes, &open, false).unwrap().checkpoint.unwrap();
            assert_eq!(chosen.generation, generation, "{with:?}");
        }
    }

    /// Goal: a segment is opened at a checkpoint that belongs to what is open, or refused. Method: all that can have become of two
    /// segments `a`, which is open, and `b` after jobs that made checkpoints of both, or of one.
    #[test]
    fn segments_of_different_checkpoints_are_refused() {
        let with_b = |generation| vec![("b", generation)];
        let with_a = |generation| vec![("a", generation)];
        type Remembered = Vec<(&'static str, u64)>;
        type Expected = Result<(u64, Relation), ()>;
        type Held = Vec<(u64, u64, Remembered)>;
        let cases: [(&str, AtCheckpoint, Held, Expected); 9] = [
            (
                "both at one",
                at("a", 7, 70, &with_b(5)),
                vec![(5, 70, with_a(7))],
                Ok((5, Relation::Together)),
            ),
            ("b is older", at("a", 7, 70, &with_b(5)), vec![(4, 60, with_a(6))], Err(())),
            ("b was removed", at("a", 7, 70, &with_b(5)), vec![(0, 0, vec![])], Err(())),
            ("a is older", at("a", 6, 60, &[]), vec![(5, 70, with_a(7))], Err(())),
            ("a was removed", at("a", 0, 0, &[]), vec![(5, 70, with_a(7))], Err(())),
            ("b is new", at("a", 7, 70, &[]), vec![(0, 0, vec![])], Ok((0, Relation::Together))),
            ("a went on alone", at("a", 9, 90, &[]), vec![(5, 70, with_a(7))], Ok((5, Relation::Apart))),
            ("b went on alone", at("a", 7, 70, &with_b(5)), vec![(6, 80, vec![])], Ok((6, Relation::Apart))),
            // The first checkpoint of b was interrupted before a had it.
            (
                "b is ahead",
                at("a", 6, 60, &[]),
                vec![(1, 70, with_a(7)), (0, 0, vec![])],
                Ok((0, Relation::Together)),
            ),
        ];
        for (case, open, offered, expected) in cases {
            let hashed = |all: Remembered| all.iter().map(|&(name, at)| (name_hash(name), at)).collect();
            let newest = offered[0].0;
            let offered = offered.into_iter().map(|(generation, identity, remembered)| Offered {
                generation,
                identity,
                companions: hashed(remembered),
            });
            let wishes = [wish(Some("b"), Some(State::Holds(offered.collect())))];
            let open = [open];
            let found = super::choose(&wishes, &open, false);
            let found_short = found.as_ref().map(|one| (one.checkpoint.unwrap().generation, one.relation));
            assert_eq!(found_short.map_err(|_| ()), expected, "{case}: {found:?}");
            if let Err(why) = found {
                let said = ["\"a\"", "\"b\"", "together with checkpoint", "segment.mixed_checkpoints=on"];
                assert!(said.iter().all(|words| why.contains(words)), "{case}: {why}");
                let mixed = super::choose(&wishes, &open, true).unwrap();
                assert_eq!((mixed.checkpoint.unwrap().generation, mixed.relation), (newest, Relation::Mixed));
            }
        }
    }

    #[test]
    fn ranks_without_a_segment_need_no_name() {
        let nothing = Wish { tiered_bytes: 0, ..wish(None, None) };
        assert_eq!(agree(&[nothing, wish(Some("a"), None)]), Ok(()));
        let error = agree(&[wish(Some("a"), None), wish(None, None)]).unwrap_err();
        assert!(error.contains("rank 0 \"a\", rank 1 none"), "{error}");
    }

    /// Goal: a segment belongs to one library, program and set of options, or to none, and what differs is named.
    #[test]
    fn owners_agree() {
        let of = |library: &str, program, options: &str| {
            let (library, options) = (library.to_owned(), options.to_owned());
            Wish { owner: Some(SegmentOwner { library, program, options }), ..wish(None, None) }
        };
        let plain = || wish(None, None);
        assert_eq!(agree_on_owner(&[of("a heap", 1, "x"), of("a heap", 1, "x")]), Ok(()));
        assert_eq!(agree_on_owner(&[plain(), plain()]), Ok(()));
        let cases = [
            ([of("a heap", 1, "x"), plain()], "rank 0 attaches a heap, rank 1 plain segments"),
            ([plain(), of("a heap", 1, "x")], "rank 1 attaches a heap, rank 0 plain segments"),
            (
                [of("a heap", 1, "x"), of("a table", 1, "x")],
                "rank 0 attaches a heap, rank 1 attaches a table",
            ),
            ([of("a heap", 1, "x"), of("a heap", 2, "y")], "rank 0 and rank 1 do not run the same program"),
            ([of("a heap", 1, "x"), of("a heap", 1, "y")], "rank 0 attaches a heap with x, rank 1 with y"),
        ];
        for (wishes, said) in cases {
            let why = agree_on_owner(&wishes).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }

    /// Only files of exactly this name count, and of these only those of ranks that the job does not have.
    #[test]
    fn files_of_more_ranks_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let find = || find(folder.path(), "a", Rank(0), 2).unwrap();
        for other in
            ["a.1.1.vgas", "a.1.7.vgas", "a.7.7.vgas.old", "ab.7.7.vgas", "a.b.7.7.vgas", "a.07.7.vgas"]
        {
            std::fs::write(folder.path().join(other), "something").unwrap();
        }
        assert_eq!((find().state, find().surplus), (State::Missing, None));
        let surplus = folder.path().join("a.2.2.vgas");
        std::fs::write(&surplus, "something").unwrap();
        assert_eq!(find().surplus, Some(surplus.display().to_string()));
    }
}
