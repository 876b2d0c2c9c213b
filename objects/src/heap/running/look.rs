//! The observer of running heaps: finds the sockets of ranks, and asks them all.

use super::super::report::printable;
use super::{
    HeapRunning, HomeRunning, PROTOCOL, PartitionRunning, RankAnswer, RunningError, SilentRank, name_of,
    named,
};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest that ranks are waited for, all together: one that is stopped never answers.
const TIMEOUT: Duration = Duration::from_secs(3);

/// More is no rank's.
const SAID_BYTES_MAX: u64 = 1 << 20;

/// More ranks have no heap.
const RANKS_MAX: u32 = u16::MAX as u32;

/// Processes above a rank's that are looked through for the one that is meant.
const ABOVE_MAX: usize = 64;

/// The lists of sockets of this process's network.
const SOCKETS: &str = "/proc/self/net/unix";

/// The sockets of the ranks of a job, each with the network that it is in: none is this process's own.
type Doors = BTreeMap<u64, BTreeMap<u32, Option<PathBuf>>>;

/// The heaps of all jobs of this user, or, for root, of all users, that run on this machine; with a process,
/// of those that it is a rank of, or has started, through others or not. Ranks are asked, and continue
/// meanwhile; what they say is of moments close to each other.
///
/// Changes nothing. Takes a few seconds where a rank does not answer.
///
/// # Errors
/// If there is none, or it ended meanwhile.
pub fn heaps_running(process: Option<u32>) -> Result<Vec<HeapRunning>, RunningError> {
    let until = Instant::now() + TIMEOUT;
    let doors = doors()?;
    // All are asked before one is listened to: those that answer do it at once, and one that does not must not take their time.
    let asked: Vec<(u64, Vec<AskedRank>)> = doors
        .into_iter()
        .map(|(job, ranks)| (job, ranks.into_iter().map(|at| ask(job, at)).collect()))
        .collect();
    let (mut heaps, mut has_ended) = (Vec::new(), false);
    for (job, ranks) in asked {
        let is_meant = process.is_none_or(|process| {
            ranks.iter().filter_map(|asked| asked.process).any(|of| is_or_has_started(process, of))
        });
        if is_meant {
            heaps.extend(listen(job, ranks, until, &mut has_ended));
        }
    }
    match (heaps.is_empty(), has_ended, process) {
        (false, ..) => Ok(heaps),
        (true, true, _) => Err(RunningError::Ended),
        (true, false, Some(process)) => Err(RunningError::NoSuchJob { process }),
        (true, false, None) => Err(RunningError::Nothing),
    }
}

/// All sockets of ranks, in this network and in others in which a process is that this one may look into: virtual nodes can have
/// networks of their own.
fn doors() -> Result<Doors, RunningError> {
    let own = fs::read_to_string(SOCKETS).map_err(|why| RunningError::Unseen { file: SOCKETS, why })?;
    let mut doors = Doors::new();
    note(&mut doors, &own, None);
    let mut networks = BTreeSet::from([fs::read_link("/proc/self/ns/net").unwrap_or_default()]);
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let is_process = process.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
        let at = process.path();
        if !is_process {
            continue;
        }
        // Another user's, or gone.
        let Ok(network) = fs::read_link(at.join("ns/net")) else { continue };
        if networks.insert(network)
            && let Ok(sockets) = fs::read_to_string(at.join("net/unix"))
        {
            note(&mut doors, &sockets, Some(&at.join("ns/net")));
        }
    }
    Ok(doors)
}

/// Takes note of those in a list of sockets, whose names the system shows behind `@` if they have no file.
fn note(doors: &mut Doors, sockets: &str, network: Option<&Path>) {
    for line in sockets.lines() {
        let name = line.split_ascii_whitespace().nth(7).and_then(|name| name.strip_prefix('@'));
        if let Some((job, rank)) = name.and_then(named) {
            doors.entry(job).or_default().entry(rank).or_insert(network.map(Path::to_owned));
        }
    }
}

/// A rank that was asked.
struct AskedRank {
    rank: u32,
    process: Option<u32>,
    answers: Result<UnixStream, Silence>,
}

/// Reason for a rank's silence.
#[derive(Debug)]
enum Silence {
    /// It has just ended.
    Gone,
    /// A process of another user.
    NotOurs,
    Because(String),
}

impl From<Errno> for Silence {
    fn from(why: Errno) -> Self {
        match why {
            Errno::CONNREFUSED | Errno::NOENT | Errno::CONNRESET | Errno::PIPE => Self::Gone,
            // As many wait there as can.
            Errno::AGAIN => Self::late(),
            other => Self::Because(format!("it cannot be asked: {other}")),
        }
    }
}

impl Silence {
    fn late() -> Self {
        Self::Because("it does not answer; is it stopped?".into())
    }

    fn odd() -> Self {
        Self::Because(
            "it answers what this version does not understand: its program is of another one".into(),
        )
    }
}

fn ask(job: u64, (rank, network): (u32, Option<PathBuf>)) -> AskedRank {
    let name = name_of(job, rank);
    let knocked = match network {
        None => knock(&name),
        Some(network) => knock_in(&network, &name),
    };
    match knocked {
        Ok((process, answers)) => AskedRank { rank, process, answers: Ok(answers) },
        Err(silence) => AskedRank { rank, process: None, answers: Err(silence) },
    }
}

/// Asks a rank in the network of a process, from a thread that has gone there.
fn knock_in(network: &Path, name: &str) -> Result<(Option<u32>, UnixStream), Silence> {
    let file = File::open(network).map_err(|_| Silence::Gone)?;
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|_| {
                Silence::Because("its node has a network of its own, where only root may look".into())
            })?;
            knock(name)
        });
        there.join().unwrap_or_else(|_| Err(Silence::Because("it cannot be asked".into())))
    })
}

fn knock(name: &str) -> Result<(Option<u32>, UnixStream), Silence> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    let other = socket_peercred(&socket)?;
    // Such names are anybody's to take: whose rank answers, only the system knows.
    if other.uid != geteuid() && !geteuid().is_root() {
        return Err(Silence::NotOurs);
    }
    // None where it is in a container that this process is not in.
    let process = u32::try_from(other.pid.as_raw_pid()).ok().filter(|process| *process > 0);
    Ok((process, UnixStream::from(socket)))
}

/// Collects the reports of a job's ranks; none if all have ended, or belong to other users. Notes whether one
/// has ended just now.
fn listen(job: u64, asked: Vec<AskedRank>, until: Instant, has_ended: &mut bool) -> Option<HeapRunning> {
    let mut heap = HeapRunning {
        job: format!("{job:016x}"),
        program: String::new(),
        ranks: 0,
        nodes: 0,
        partitions: Vec::new(),
        homes: Vec::new(),
        silent: Vec::new(),
        elsewhere: Vec::new(),
    };
    for AskedRank { rank, process, answers } in asked {
        match answers.and_then(|answers| hear(&answers, rank, until)) {
            Ok(said) => take(&mut heap, said, process),
            Err(Silence::Gone) => *has_ended = true,
            Err(Silence::NotOurs) => {}
            Err(Silence::Because(why)) => heap.silent.push(SilentRank { rank, process, why }),
        }
    }
    if heap.partitions.is_empty() && heap.silent.is_empty() {
        return None;
    }
    let known: BTreeSet<u32> =
        heap.partitions.iter().map(|of| of.rank).chain(heap.silent.iter().map(|of| of.rank)).collect();
    heap.elsewhere = (0..heap.ranks).filter(|rank| !known.contains(rank)).collect();
    Some(heap)
}

fn take(heap: &mut HeapRunning, said: RankAnswer, process: Option<u32>) {
    let RankAnswer { program, ranks, nodes, partition, home } = said;
    (heap.program, heap.ranks, heap.nodes) = (program, ranks, nodes);
    heap.homes.extend(home.map(|report| HomeRunning { node: partition.node, report }));
    // A rank in a container knows itself by another number.
    let process = process.unwrap_or(partition.process);
    heap.partitions.push(PartitionRunning { process, ..partition });
}

fn hear(mut from: &UnixStream, rank: u32, until: Instant) -> Result<RankAnswer, Silence> {
    let of_system = |why: &std::io::Error| match why.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => Silence::late(),
        _ => Errno::from_io_error(why).map_or(Silence::Gone, Silence::from),
    };
    from.set_nonblocking(false).map_err(|why| of_system(&why))?;
    let mut bytes = Vec::new();
    loop {
        // Even the last rank gets a moment.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(10));
        from.set_read_timeout(Some(left)).map_err(|why| of_system(&why))?;
        let mut piece = [0; 4096];
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend(&piece[..count]),
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(why) => return Err(of_system(&why)),
        }
        if bytes.len() as u64 > SAID_BYTES_MAX {
            return Err(Silence::odd());
        }
    }
    if bytes.is_empty() {
        return Err(Silence::Gone);
    }
    decode(&bytes).filter(|said| said.partition.rank == rank).ok_or_else(Silence::odd)
}

/// Decodes a rank's report. Words that people will read have no control characters.
fn decode(bytes: &[u8]) -> Option<RankAnswer> {
    let mut said: RankAnswer = postcard::from_bytes(bytes.strip_prefix(&PROTOCOL)?).ok()?;
    let partition = &mut said.partition;
    if said.ranks > RANKS_MAX || partition.rank >= said.ranks || partition.node >= said.nodes {
        return None;
    }
    said.program = printable(&said.program);
    partition.report.types.iter_mut().for_each(|of| of.name = printable(&of.name));
    Some(said)
}

/// Returns true if a process is this one or one of its descendants.
fn is_or_has_started(process: u32, mut of: u32) -> bool {
    for _ in 0..ABOVE_MAX {
        if of == process {
            return true;
        }
        let status = fs::read_to_string(format!("/proc/{of}/stat")).unwrap_or_default();
        let above = status.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        match above {
            Some(above) if above > 0 => of = above,
            _ => return false,
        }
    }
    false
}

/// Decodes any bytes as a rank's answer, and checks that it round-trips.
#[cfg(any(test, fuzzing))]
pub(crate) fn any_words(bytes: &[u8]) {
    let Some(said) = decode(bytes) else { return };
    assert!(said.partition.rank < said.ranks && said.ranks <= RANKS_MAX);
    assert!(!said.program.contains(char::is_control));
    let again = postcard::to_extend(&said, PROTOCOL.to_vec()).expect("what was decoded");
    let again = decode(&again).expect("what was encoded");
    assert!(again.partition == said.partition && again.home == said.home);
}

/// A rank's report, for [`any_words`].
#[cfg(test)]
pub(in crate::heap) fn some_words() -> Vec<u8> {
    use super::super::report::{NodeReport, RankReport, TypeReport};
    use super::{CopiesRunning, SizeRunning};
    let types = vec![TypeReport { name: "a\x1b::B".into(), copies: 2, bytes: 64, uses: 1 }];
    let partition = PartitionRunning {
        rank: 1,
        node: 1,
        process: 77,
        room_bytes: 1 << 40,
        report: RankReport { types, ..RankReport::default() },
        sizes: vec![SizeRunning { bytes: 32, objects: 3, is_large: false }],
        unseen: 0,
        copies_of: vec![CopiesRunning { of: 0, copies: 2, bytes: 64, uses: 1 }],
    };
    let home = Some(NodeReport { reads: 5, ..NodeReport::default() });
    let said = RankAnswer { program: "a\nprogram".into(), ranks: 2, nodes: 2, partition, home };
    postcard::to_extend(&said, PROTOCOL.to_vec()).expect("it is encoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a rank's answer arrives, without characters that would move a terminal's cursor; anything else
    /// is nothing.
    #[test]
    fn what_ranks_say_arrives() {
        let words = some_words();
        let said = decode(&words).unwrap();
        assert_eq!((&said.program[..], said.ranks, said.partition.process), ("aprogram", 2, 77));
        assert_eq!(said.partition.report.types[0].name, "a::B");
        any_words(&words);
        assert!((0..words.len()).all(|length| decode(&words[..length]).is_none()));
        let mut of_others = words.clone();
        of_others[7] = b'2';
        assert!(decode(&of_others).is_none(), "another version is understood");
        let mut said = said;
        for (ranks, rank) in [(2, 2), (RANKS_MAX + 1, 0)] {
            (said.ranks, said.partition.rank) = (ranks, rank);
            assert!(decode(&postcard::to_extend(&said, PROTOCOL.to_vec()).unwrap()).is_none());
        }
    }

    /// Goal: only sockets of ranks are taken for such.
    #[test]
    fn sockets_are_known_by_their_names() {
        let line =
            |name: &str| format!("0000000000000000: 00000002 00000000 00010000 0001 01 12345 {name}\n");
        let own = name_of(0xabc, 3);
        let mut names = vec![format!("@{own}"), format!("@{}", name_of(0xabc, 10)), own.clone()];
        names.extend(
            ["", "/run/x", "@vgas-objects.", "@vgas-objects.abc.3", "@vgas-objects.0000000000000abc.-1"]
                .map(str::to_owned),
        );
        names.push(format!("@{own}.1"));
        let mut doors = Doors::new();
        note(&mut doors, &names.iter().map(|name| line(name)).collect::<String>(), None);
        assert_eq!(doors, BTreeMap::from([(0xabc, BTreeMap::from([(3, None), (10, None)]))]));
    }

    /// Goal: a process is found by itself and by its ancestors, and not by others.
    #[test]
    fn processes_are_found_from_below() {
        let me = std::process::id();
        let above = std::os::unix::process::parent_id();
        assert!(is_or_has_started(me, me) && is_or_has_started(above, me));
        assert!(!is_or_has_started(me, above) && !is_or_has_started(u32::MAX, me));
    }
}
