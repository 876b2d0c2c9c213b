//! Report of the objects: each rank's, its copies, and the homes' work for other nodes.

use super::Heap;
use super::error::ObjectError;
use super::objects::Objects;
use crate::service::channels::{self, ChannelService};
use crate::service::locks::{self, LockService};
use crate::service::{Answer, HeapService, Request};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::fmt;
use vgas::{NodeId, Rank, Runtime};

/// Types that a rank tells of, those whose copies take most.
const TYPES: usize = 8;
/// Bytes of a type's name that are told.
const NAME_BYTES: usize = 120;

/// A rank's objects and copies. Bytes are those of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RankReport {
    /// Objects that lie in its partition.
    pub objects: u64,
    /// Bytes of its partition that were ever used for objects or copies.
    pub used_bytes: u64,
    /// Bytes of its partition.
    pub partition_bytes: u64,
    /// Slots whose colours are used up.
    pub retired: u64,
    /// Copies of other ranks' objects that it keeps.
    pub copies: u64,
    /// Bytes that these take.
    pub copy_bytes: u64,
    /// Uses of copies, its own and those that others of its node keep: boxes that know where one is, and borrows.
    pub uses: u64,
    /// Copies of other ranks of its node that it reads in place.
    pub copies_of_mates: u64,
    /// Copies that it has made of bytes from homes, or from the nodes that a read was forwarded to.
    pub fetched: u64,
    /// Copies that it has made of one that a rank of its node keeps.
    pub from_mates: u64,
    /// Objects of ranks of its node that it has found in place, each time a box or borrow asked.
    pub in_place: u64,
    /// Copies that it has evicted.
    pub evicted: u64,
    /// Types whose copies it uses, those with the most bytes of copies.
    pub types: Vec<TypeReport>,
}

/// Copies of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TypeReport {
    /// The type, or the type of a row's values.
    pub name: String,
    /// Number of copies.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of boxes and borrows that use them now.
    pub uses: u64,
}

/// Work of a node's home.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// Objects that other nodes have read here.
    pub reads: u64,
    /// Readers that were handed on to nodes with copies, because the object was not in memory or the home was behind.
    pub handed_on: u64,
    /// Readers of other homes that were served with a copy here.
    pub from_copies: u64,
    /// Readers that were handed on in vain, and came back.
    pub came_back: u64,
    /// Objects with known copies.
    pub hints: u64,
    /// Channels that are at home there.
    pub channels: u64,
    /// Locks there that are held or waited for, and conditions that are waited for.
    pub locks: u64,
}

/// Report of a job's objects ([`Objects::report`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// By rank.
    pub ranks: Vec<RankReport>,
    /// By node.
    pub nodes: Vec<NodeReport>,
}

impl RankReport {
    fn numbers(&mut self) -> [&mut u64; 12] {
        [
            &mut self.objects,
            &mut self.used_bytes,
            &mut self.partition_bytes,
            &mut self.retired,
            &mut self.copies,
            &mut self.copy_bytes,
            &mut self.uses,
            &mut self.copies_of_mates,
            &mut self.fetched,
            &mut self.from_mates,
            &mut self.in_place,
            &mut self.evicted,
        ]
    }

    /// As it travels: numbers, and lines of types.
    fn encode(mut self) -> Vec<u8> {
        let types = std::mem::take(&mut self.types);
        let mut bytes: Vec<u8> = self.numbers().iter().flat_map(|number| number.to_le_bytes()).collect();
        for TypeReport { name, copies, bytes: size, uses } in types {
            bytes.extend(format!("{copies} {size} {uses} {name}\n").bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut report = Self::default();
        let mut rest = bytes;
        for number in report.numbers() {
            let Some((word, left)) = rest.split_first_chunk::<8>() else { break };
            (*number, rest) = (u64::from_le_bytes(*word), left);
        }
        report.types = String::from_utf8_lossy(rest).lines().filter_map(TypeReport::read).collect();
        report
    }
}

impl TypeReport {
    fn read(line: &str) -> Option<Self> {
        let mut parts = line.splitn(4, ' ');
        let mut number = || parts.next()?.parse().ok();
        let (copies, bytes, uses) = (number()?, number()?, number()?);
        // Another rank's words are printed as they are.
        let name = printable(parts.next()?);
        Some(Self { name, copies, bytes, uses })
    }
}

/// Makes a foreign name printable.
pub(super) fn printable(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(NAME_BYTES).collect()
}

impl NodeReport {
    fn of(counted: Answer, channels: channels::Answer, locks: locks::Answer) -> Self {
        let Answer::Counts(counts) = counted else { return Self::default() };
        Self {
            reads: counts.reads,
            handed_on: counts.handed_on,
            from_copies: counts.from_copies,
            came_back: counts.came_back,
            hints: counts.hints,
            channels: if let channels::Answer::Counted(count) = channels { count } else { 0 },
            locks: if let locks::Answer::Counted(count) = locks { count } else { 0 },
        }
    }
}

/// Returns the work of a node's home.
fn node_report(runtime: &Runtime, node: NodeId) -> Result<NodeReport, ObjectError> {
    let counted = runtime.call::<HeapService>(node, &Request::Counts)?;
    let channels = runtime.call::<ChannelService>(node, &channels::Request::Count)?;
    let locks = runtime.call::<LockService>(node, &locks::Request::Count)?;
    Ok(NodeReport::of(counted, channels, locks))
}

/// The same for a thread that must not run handlers: it may go away before all answers are there.
pub(super) async fn node_report_awaited(runtime: &Runtime, node: NodeId) -> Result<NodeReport, ObjectError> {
    let said = |why| ObjectError::from(vgas::Error::from(why));
    let counted = runtime.start_call::<HeapService>(node, &Request::Counts)?.await.map_err(said)?;
    let channels = runtime.start_call::<ChannelService>(node, &channels::Request::Count)?;
    let channels = channels.await.map_err(said)?;
    let locks = runtime.start_call::<LockService>(node, &locks::Request::Count)?.await.map_err(said)?;
    Ok(NodeReport::of(counted, channels, locks))
}

impl Heap {
    /// Returns this rank's report, without first taking note of values freed by other ranks.
    pub(super) fn report(&self) -> RankReport {
        let (placed, retired, used) = {
            let slabs = self.slabs();
            (slabs.live(), slabs.retired().len() as u64, slabs.used())
        };
        let (copies, copy_bytes) = self.copies.kept();
        let mut types: FxHashMap<&'static str, TypeReport> = FxHashMap::default();
        let mut report = RankReport {
            // A copy may have come in between.
            objects: placed.saturating_sub(copies as u64),
            copies: copies as u64,
            copy_bytes,
            retired,
            used_bytes: u64::from(used) * crate::slab::SLAB_BYTES,
            partition_bytes: self.bytes,
            ..RankReport::default()
        };
        self.copies.each(|_, copy, uses| {
            report.uses += uses;
            report.copies_of_mates += u64::from(copy.entry.is_some());
            let name = (copy.name)();
            let of_type = types.entry(name).or_insert_with(|| TypeReport {
                name: printable(name),
                copies: 0,
                bytes: 0,
                uses: 0,
            });
            of_type.copies += 1;
            of_type.bytes += copy.class.bytes();
            of_type.uses += uses;
        });
        [report.in_place, report.fetched, report.from_mates, report.evicted] = self.mates.counts();
        report.types = types.into_values().collect();
        report
            .types
            .sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.name.cmp(&other.name)));
        report.types.truncate(TYPES);
        report
    }
}

impl Objects {
    /// Returns a report of all objects. Collective; costs three messages to each node beside what a
    /// collective does, and looks at no object.
    ///
    /// # Errors
    /// As [`Objects::barrier`].
    pub fn report(&self) -> Result<Report, ObjectError> {
        self.can_meet("report")?;
        let runtime = self.job();
        let ranks = runtime.all_gatherv(&self.own_report()?.encode())?;
        let nodes = (0..runtime.nodes()).map(|node| node_report(runtime, NodeId(node)));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        // Counts must not change while another rank asks.
        runtime.barrier()?;
        Ok(Report { ranks: ranks.iter().map(|bytes| RankReport::decode(bytes)).collect(), nodes })
    }

    /// Returns this rank's part of [`Objects::report`], by itself.
    ///
    /// # Errors
    /// If another rank has freed what is no object.
    pub fn own_report(&self) -> Result<RankReport, ObjectError> {
        // Objects freed by other ranks count no more.
        self.heap.collect()?;
        Ok(self.heap.report())
    }

    /// Prints it on the first rank, if `stats.print` asks for it. Collective.
    pub(super) fn print_report(&self) -> Result<(), ObjectError> {
        let runtime = self.job();
        if runtime.settings().stats.print == vgas::config::StatisticsChoice::Off {
            return Ok(());
        }
        let report = self.report()?;
        if self.rank() == Rank(0) {
            vgas::say::text(report);
        }
        Ok(())
    }
}

/// A table, a line for each rank, with the types of its copies, and for each node.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "rank   objects     used MiB    copies     copy KiB      uses   fetched from mates  in place   evicted  retired"
        )?;
        for (rank, of) in self.ranks.iter().enumerate() {
            writeln!(
                f,
                "{rank:<4} {:>9} {:>12} {:>9} {:>12} {:>9} {:>9} {:>10} {:>9} {:>9} {:>8}",
                of.objects,
                of.used_bytes >> 20,
                of.copies,
                of.copy_bytes >> 10,
                of.uses,
                of.fetched,
                of.from_mates,
                of.in_place,
                of.evicted,
                of.retired,
            )?;
            for one in &of.types {
                let (copies, kib, uses) = (one.copies, one.bytes >> 10, one.uses);
                writeln!(f, "     {copies} copies of {}: {kib} KiB, used {uses} times", one.name)?;
            }
        }
        writeln!(f, "node     reads handed on from copies came back     hints  channels     locks")?;
        for (node, of) in self.nodes.iter().enumerate() {
            writeln!(
                f,
                "{node:<4} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>9}",
                of.reads, of.handed_on, of.from_copies, of.came_back, of.hints, of.channels, of.locks
            )?;
        }
        Ok(())
    }
}

/// Decodes any bytes as a rank's report, and checks that it round-trips.
#[cfg(any(test, fuzzing))]
pub(super) fn any_report(bytes: &[u8]) {
    let report = RankReport::decode(bytes);
    assert!(report.types.len() <= 1 + bytes.len());
    assert!(report.types.iter().all(|of| !of.name.contains(char::is_control)));
    assert_eq!(RankReport::decode(&report.clone().encode()), report);
    let whole = Report { ranks: vec![report; 2], nodes: vec![NodeReport::default()] };
    drop(whole.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_travel() {
        let one = |name: &str| TypeReport { name: name.into(), copies: 3, bytes: 1 << 40, uses: u64::MAX };
        let mut report = RankReport { types: vec![one("a::B<c, d>"), one("u8")], ..RankReport::default() };
        for (number, value) in report.numbers().into_iter().zip(1..) {
            *number = value;
        }
        assert_eq!(RankReport::decode(&report.clone().encode()), report);
        for bytes in [&b""[..], b"short", &[0xff; 97]] {
            assert!(RankReport::decode(bytes).types.is_empty());
        }
        let text = Report { ranks: vec![report], nodes: vec![NodeReport::default()] }.to_string();
        assert!(text.contains("3 copies of a::B<c, d>: 1073741824 KiB"), "{text}");
    }
}
