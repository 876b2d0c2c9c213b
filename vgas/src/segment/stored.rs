//! The files of a named segment: the agreement of all ranks before any is created or opened.
//!
//! A named segment is one file a rank. Each agent knows its own ranks' files only, and would create a missing
//! one; this code checks that all belong together, from every rank's view of its node's folder.

use super::SegmentOptions;
use super::reopened::{AtCheckpoint, Common, Relation};
use super::wanted::{AttachRequest, SegmentOwner};
use crate::config::DeviceChoice;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use serde::{Deserialize, Serialize};
use std::path::Path;
use vgas_cache::agent::volume_name;
use vgas_nvm::{CheckpointId, Companion, FileState, name_hash, segment_file_name, segment_file_state};
use vgas_rma::Rank;

/// A rank's announcement to the other ranks before anything is created.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Wish {
    /// Reason for no request: its options are not allowed, or its folder cannot be read.
    pub refused: Option<String>,
    pub bytes: u64,
    pub wanted: AttachRequest,
    pub name: Option<String>,
    pub owner: Option<SegmentOwner>,
    /// Its node's machine and folder, for errors.
    pub home: String,
    /// With a name: the files of that name.
    pub found: Option<FoundSegment>,
}

/// A rank's view of a named segment in its node's folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FoundSegment {
    /// This rank's file.
    path: String,
    state: State,
    /// The file of a rank that the job does not have.
    surplus: Option<String>,
}

/// [`FileState`] as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Missing,
    Holds(Vec<Offered>),
    Unclear,
}

/// A checkpoint that a file can be opened at, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offered {
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

impl Runtime {
    /// Combines the ranks' views of the requested segment, if their files fit together.
    pub(super) fn common(&self, wishes: &[Wish]) -> Result<Common> {
        let may_mix = self.settings().segment.mixed_checkpoints;
        let chosen = choose(wishes, &self.segments().at_checkpoints(), may_mix).map_err(Error::Usage)?;
        let newest = wishes.iter().map(Wish::newest).max().unwrap_or(0);
        let Chosen { checkpoint, companions, relation } = chosen;
        let teller = wishes.iter().position(|wish| wish.newest() > checkpoint.unwrap_or_default().generation);
        let tells = teller == Some(self.rank().0 as usize);
        Ok(Common { checkpoint, companions, newest, relation, tells })
    }

    /// Returns true if the job has a segment with a name, which a checkpoint keeps.
    pub fn has_named_segments(&self) -> bool {
        self.segments().named_count() > 0
    }

    /// Returns the name of this rank's NVMe.
    pub(super) fn home(&self) -> String {
        let host = rustix::system::uname();
        let (host, folder) = (host.nodename().to_string_lossy(), self.settings().nvm.directory_path());
        format!("{} (host {host}, {})", self.node(), folder.display())
    }

    /// Looks for this rank's files of a named segment.
    pub(super) fn find(&self, options: &SegmentOptions) -> Result<Option<FoundSegment>> {
        let nvm = &self.settings().nvm;
        match &options.name {
            Some(name) if options.bytes > 0 && nvm.device != DeviceChoice::Memory => {
                find(&nvm.directory_path(), name, self.rank(), self.ranks()).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// Builds the other ranks' error for a rank that could not attach, with its own reason: whichever ends first
/// ends the job, and no report of the others may arrive any more.
pub(super) fn gave_up(rank: usize, why: &str) -> String {
    format!("rank {rank} could not attach its segment: {why}")
}

/// Formats an error for all ranks: one line, never empty, and not longer than a user reads.
pub(crate) fn in_short(error: &impl std::fmt::Display) -> String {
    const CHARACTERS_MAX: usize = 1000;
    let line = error.to_string().replace('\n', " ");
    if line.is_empty() {
        "for no reason that it gives".into()
    } else {
        line.chars().take(CHARACTERS_MAX).collect()
    }
}

/// Looks for the files of a named segment in a node's folder.
fn find(folder: &Path, name: &str, rank: Rank, ranks: u32) -> Result<FoundSegment> {
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
    Ok(FoundSegment { path: shown(&path), state, surplus: surplus.as_deref().map(shown) })
}

/// Checks that the ranks' requests fit together; the error is the same on every rank.
pub(super) fn agree(wishes: &[Wish]) -> Result<(), String> {
    let refused = |(rank, wish): (usize, &Wish)| Some(gave_up(rank, wish.refused.as_ref()?));
    if let Some(why) = wishes.iter().enumerate().find_map(refused) {
        return Err(why);
    }
    let tiered = || wishes.iter().enumerate().filter(|(_, wish)| wish.bytes > 0);
    let called = |wish: &Wish| wish.name.as_ref().map_or("none".to_owned(), |name| format!("{name:?}"));
    if let Some((first, named)) = tiered().next()
        && let Some((other, different)) = tiered().find(|(_, wish)| wish.name != named.name)
    {
        return Err(format!(
            "the ranks name their segments differently: rank {first} {}, rank {other} {}; give all the same name, \
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

/// Compares the libraries that the ranks attach their segments for.
pub(super) fn agree_on_owner(wishes: &[Wish]) -> Result<(), String> {
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

    /// Returns the checkpoints that the rank could open; none if it has no file and no part.
    fn checkpoints(&self) -> Vec<CheckpointId> {
        match self.found.as_ref().map(|found| &found.state) {
            // It is created, as a rank without a flush has it.
            Some(State::Missing) => vec![CheckpointId::default()],
            Some(State::Holds(checkpoints)) => checkpoints.iter().map(Offered::id).collect(),
            Some(State::Unclear) | None => Vec::new(),
        }
    }

    /// Returns the other segments that took part in a checkpoint, as far as this rank's file lists them.
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

/// Returns the generation of a segment that another segment's checkpoint remembers, if `checkpoint` is not newer.
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

/// Chooses the newest checkpoint that all ranks have and that belongs to the open segments, preferably made
/// together with the first of those; none if no rank has any. With `may_mix`, the newest that all ranks have
/// if none belongs to it.
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
        let found = state.map(|state| FoundSegment { path: "/folder/file".into(), state, surplus: None });
        let name = name.map(str::to_owned);
        Wish {
            refused: None,
            bytes: 4096,
            wanted: AttachRequest::new(&SegmentOptions::tiered(4096), None, None),
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

    /// Goal: the newest checkpoint that all have is taken, and without one nothing is: even if the numbers
    /// are equal, but not the jobs that have made them.
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
        // A rank without a file begins with zeros; one without a segment, or with an unreadable one, has no
        // say.
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

    /// Goal: a segment is opened at a checkpoint that belongs to the open ones, or refused. Method: all that
    /// can have become of two segments `a`, which is open, and `b` after jobs that made checkpoints of both,
    /// or of one.
    #[test]
    fn segments_of_different_checkpoints_are_refused() {
        let with_b = |generation| vec![("b", generation)];
        let with_a = |generation| vec![("a", generation)];
        type Remembered = Vec<(&'static str, u64)>;
        type Expected = Result<(u64, Relation), ()>;
        type TestFiles = Vec<(u64, u64, Remembered)>;
        let cases: [(&str, AtCheckpoint, TestFiles, Expected); 9] = [
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
        let nothing = Wish { bytes: 0, ..wish(None, None) };
        assert_eq!(agree(&[nothing, wish(Some("a"), None)]), Ok(()));
        let error = agree(&[wish(Some("a"), None), wish(None, None)]).unwrap_err();
        assert!(error.contains("rank 0 \"a\", rank 1 none"), "{error}");
    }

    /// Goal: a segment belongs to one library, program and set of options, or to none, and the error names
    /// the difference.
    #[test]
    fn owners_agree() {
        let of = |library: &str, program, options: &str| {
            let (library, options, slot) = (library.to_owned(), options.to_owned(), 0);
            Wish { owner: Some(SegmentOwner { slot, library, program, options }), ..wish(None, None) }
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
