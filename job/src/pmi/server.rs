//! The other side of PMI-1: a daemon's answers to its ranks, so that an MPI among them (MPICH and its
//! descendants) finds its ranks. The lines are those of Hydra, the keeper of the protocol.
//!
//! | asked | answered |
//! |---|---|
//! | `init`, `get_maxes`, `get_appnum`, `get_my_kvsname`, `get_universe_size` | what the job is |
//! | `put`, `get` | a value of this node at once, of others after a barrier |
//! | `barrier_in` | `barrier_out`, when all ranks of the job have come |
//! | `finalize`, `abort` | the rank needs it no more; the job ends |
//! | `publish_name`, `unpublish_name`, `lookup_name`, `spawn` | not served: refused, and the program goes on |
//!
//! A rank is another program of the same user, and may be anything: lines and values have bounds, nothing is
//! read from a rank that does not take its answers, and an invalid line ends the job with a line that names
//! its rank.

#![forbid(unsafe_code)]

use super::wire::{LINE_BYTES_MAX, Words, Wrong, gone, quoted};
use crate::control::FRAME_BYTES_MAX;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use vgas_rma::address::{Layout, NodeId};
use vgas_rma::key::JobId;

/// Longest name of a space of keys, longest key, and longest value, each with the zero that ends it in C: Hydra's.
const SPACE_NAME_BYTES_MAX: usize = 256;
const KEY_BYTES_MAX: usize = 64;
const VALUE_BYTES_MAX: usize = 1024;

/// Most bytes of keys and values that a rank may put between two barriers. Less in large jobs: all of them
/// travel at once.
const PUT_BYTES_MAX: usize = 256 << 10;

/// Read at once.
const READ_BYTES: usize = 4 << 10;

/// Values that ranks have exchanged, as far as this node knows.
#[derive(Debug)]
pub(crate) struct Space {
    name: String,
    ranks: u32,
    values: HashMap<String, String>,
    /// Values put by ranks of this node since the last barrier.
    fresh: Vec<(String, String)>,
}

impl Space {
    /// A space of a job with this layout.
    pub(crate) fn new(layout: &Layout, job: JobId) -> Self {
        let number: String = job.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("vgas_{number}");
        // The first question of an MPI: which ranks share a machine.
        let mapping = ("PMI_process_mapping".to_owned(), mapping(layout));
        let values =
            HashMap::from_iter([mapping].into_iter().filter(|(_, text)| text.len() < VALUE_BYTES_MAX));
        Self { name, ranks: layout.ranks(), values, fresh: Vec::new() }
    }

    /// Takes the values put by this node's ranks since the last barrier, for the other nodes.
    pub(crate) fn take_fresh(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.fresh)
    }

    /// Takes the values put by ranks of all nodes.
    pub(crate) fn extend(&mut self, all: Vec<(String, String)>) {
        self.values.extend(all);
    }

    fn put_bytes_max(&self) -> usize {
        PUT_BYTES_MAX.min(FRAME_BYTES_MAX / 2 / self.ranks.max(1) as usize)
    }
}

/// Encodes the number of ranks of each node, as MPICH reads it: `(first node, nodes, ranks of each)`, one
/// after the other.
fn mapping(layout: &Layout) -> String {
    let mut blocks: Vec<(u32, u32, usize)> = Vec::new();
    for node in 0..layout.nodes() {
        let ranks = layout.ranks_of(NodeId(node)).len();
        match blocks.last_mut() {
            Some((_, nodes, each)) if *each == ranks => *nodes += 1,
            _ => blocks.push((node, 1, ranks)),
        }
    }
    let blocks = blocks.into_iter().map(|(first, nodes, each)| format!(",({first},{nodes},{each})"));
    format!("(vector{})", blocks.collect::<String>())
}

/// A rank's request that concerns other ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RankRequest {
    /// It has begun to use the protocol.
    Begun,
    /// It waits for all.
    Barrier,
    /// The job is to end.
    Abort {
        /// With this status.
        code: u8,
        /// For this reason, if it gave one.
        message: String,
    },
}

/// The line to one rank.
#[derive(Debug)]
pub(crate) struct Client {
    socket: OwnedFd,
    unread: Vec<u8>,
    unsent: Vec<u8>,
    /// Within a `spawn`, which is refused when it has ended.
    is_spawning: bool,
    /// Put since the last barrier.
    put_bytes: usize,
    has_begun: bool,
    has_finished: bool,
    waits: bool,
    is_gone: bool,
}

impl Client {
    /// A line, and the rank's end of it, which is its to inherit.
    pub(crate) fn pair() -> rustix::io::Result<(Self, OwnedFd)> {
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((Self::over(ours), its))
    }

    fn over(socket: OwnedFd) -> Self {
        Self {
            socket,
            unread: Vec::new(),
            unsent: Vec::new(),
            is_spawning: false,
            put_bytes: 0,
            has_begun: false,
            has_finished: false,
            waits: false,
            is_gone: false,
        }
    }

    /// Returns true if the rank has begun to use the protocol.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns true if the rank has said that it needs it no more.
    pub(crate) fn has_finished(&self) -> bool {
        self.has_finished
    }

    /// Returns true if the rank waits in a barrier.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Returns the file to poll; none if the rank has closed its end.
    pub(crate) fn poll_file(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let flags = if self.unsent.is_empty() { PollFlags::IN } else { PollFlags::OUT };
        (!self.is_gone).then(|| (self.socket.as_fd(), flags))
    }

    /// All ranks have come to the barrier, and their values are in the space.
    pub(crate) fn leave_barrier(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.put_bytes = 0;
            self.unsent.extend_from_slice(b"cmd=barrier_out\n");
            let _ = self.flush();
        }
    }

    /// Answers what has come. An error is the rank's fault, and the end of this line.
    pub(crate) fn serve(&mut self, space: &mut Space) -> Result<Vec<RankRequest>, Wrong> {
        let mut asked = Vec::new();
        let mut has_read = false;
        while !self.is_gone && self.flush()? {
            if let Some(line) = self.next_line()? {
                asked.extend(self.answer(&line, space)?);
            } else if std::mem::replace(&mut has_read, true) {
                // The others have their turn; what is there is there in the next round.
                break;
            } else if !self.read()? {
                break;
            }
        }
        Ok(asked)
    }

    /// Returns true if some bytes have come.
    fn read(&mut self) -> Result<bool, Wrong> {
        let mut piece = [0u8; READ_BYTES];
        match rustix::net::recv(&self.socket, &mut piece, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => self.is_gone = true,
            Ok((count, _)) => {
                self.unread.extend_from_slice(&piece[..count]);
                return Ok(true);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(gone(errno)),
        }
        Ok(false)
    }

    /// Sends what there is to send, and whether all of it went.
    fn flush(&mut self) -> Result<bool, Wrong> {
        while !self.unsent.is_empty() {
            match rustix::net::send(&self.socket, &self.unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    self.is_gone = true;
                    self.unsent.clear();
                }
                Err(errno) => return Err(gone(errno)),
            }
        }
        Ok(true)
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>, Wrong> {
        let end = self.unread.iter().position(|&byte| byte == b'\n');
        if end.unwrap_or(self.unread.len()) > LINE_BYTES_MAX {
            return Err(format!("a line of more than {LINE_BYTES_MAX} bytes came: {}", quoted(&self.unread)));
        }
        let Some(end) = end else { return Ok(None) };
        let mut line: Vec<u8> = self.unread.drain(..=end).collect();
        line.pop();
        Ok(Some(line))
    }

    fn answer(&mut self, line: &[u8], space: &mut Space) -> Result<Option<RankRequest>, Wrong> {
        if self.is_spawning {
            if line == b"endcmd" {
                self.is_spawning = false;
                self.say("cmd=spawn_result rc=-1 msg=vgas_run_starts_no_further_processes");
            }
            return Ok(None);
        }
        if self.waits {
            return Err(format!("{} came from a rank that waits in a barrier", quoted(line)));
        }
        if line == b"mcmd=spawn" {
            self.is_spawning = true;
            return Ok(None);
        }
        let words = Words::parse(line)?;
        let command = words.word("cmd").unwrap_or_default();
        match command {
            "init" => {
                let rc = if words.word("pmi_version") == Some("1") { 0 } else { -1 };
                self.say(&format!("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}"));
                self.has_begun = true;
                return Ok(Some(RankRequest::Begun));
            }
            "get_maxes" => self.say(&format!(
                "cmd=maxes kvsname_max={SPACE_NAME_BYTES_MAX} keylen_max={KEY_BYTES_MAX} vallen_max={VALUE_BYTES_MAX}"
            )),
            "get_appnum" => self.say("cmd=appnum appnum=0"),
            "get_my_kvsname" => self.say(&format!("cmd=my_kvsname kvsname={}", space.name)),
            "get_universe_size" => self.say(&format!("cmd=universe_size size={}", space.ranks)),
            "put" => self.put(&words, space),
            "get" => match words.word("key").and_then(|key| space.values.get(key)) {
                Some(value) => self.say(&format!("cmd=get_result rc=0 msg=success value={value}")),
                None => self.say("cmd=get_result rc=-1 msg=key_not_found value=unknown"),
            },
            "barrier_in" => {
                self.waits = true;
                return Ok(Some(RankRequest::Barrier));
            }
            "finalize" => {
                self.has_finished = true;
                self.say("cmd=finalize_ack");
            }
            "abort" => {
                let code = words.word("exitcode").and_then(|text| text.parse::<i32>().ok()).unwrap_or(1);
                let message = words.word("error_msg").or(words.word("msg")).unwrap_or_default().to_owned();
                return Ok(Some(RankRequest::Abort { code: (code as u8).max(1), message }));
            }
            "publish_name" => self.say("cmd=publish_result rc=-1 msg=names_are_not_published_by_vgas_run"),
            "unpublish_name" => self.say("cmd=unpublish_result rc=-1 msg=names_are_not_published_by_vgas_run"),
            "lookup_name" => self.say("cmd=lookup_result rc=-1 msg=names_are_not_published_by_vgas_run"),
            other => return Err(format!("{} is no command that is served", quoted(other.as_bytes()))),
        }
        Ok(None)
    }

    fn put(&mut self, words: &Words, space: &mut Space) {
        let (key, value) = (words.word("key").unwrap_or_default(), words.word("value").unwrap_or_default());
        let bytes = key.len() + value.len();
        let refused = if key.is_empty() {
            Some("no_key")
        } else if key.len() >= KEY_BYTES_MAX {
            Some("key_too_long")
        } else if value.len() >= VALUE_BYTES_MAX {
            Some("value_too_long")
        } else if self.put_bytes + bytes > space.put_bytes_max() {
            Some("too_many_values_before_a_barrier")
        } else {
            None
        };
        match refused {
            Some(why) => self.say(&format!("cmd=put_result rc=-1 msg={why}")),
            None => {
                self.put_bytes += bytes;
                space.values.insert(key.into(), value.into());
                space.fresh.push((key.into(), value.into()));
                self.say("cmd=put_result rc=0 msg=success");
            }
        }
    }

    fn say(&mut self, line: &str) {
        self.unsent.extend_from_slice(line.as_bytes());
        self.unsent.push(b'\n');
    }
}

/// Handles any bytes of a rank: answers them, or refuses them. For tests and fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn session_of(bytes: &[u8]) {
    let layout = Layout::blocks(3, 2);
    let mut space = Space::new(&layout, JobId([7; 16]));
    let Ok((mut client, its)) = Client::pair() else { return };
    let bytes = &bytes[..bytes.len().min(32 << 10)];
    assert_eq!(rustix::io::write(&its, bytes), Ok(bytes.len()), "less than a socket takes");
    let _ = rustix::net::shutdown(&its, rustix::net::Shutdown::Write);
    let mut answers = vec![0u8; 64 << 10];
    while !client.is_gone {
        match client.serve(&mut space) {
            Ok(asked) if asked.contains(&RankRequest::Barrier) => {
                let fresh = space.take_fresh();
                assert!(
                    fresh.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() <= PUT_BYTES_MAX
                );
                space.extend(fresh);
                client.leave_barrier();
            }
            Ok(_) => {}
            Err(what) => {
                assert!(!what.contains('\n'), "{what}");
                return;
            }
        }
        // As a rank does that wants its answers.
        while let Ok((1.., _)) = rustix::net::recv(&its, &mut answers, RecvFlags::DONTWAIT) {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::Wire;
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Serves these ranks as a job of one node each does, until all are gone; returns what the last call of each said.
    fn serve(mut clients: Vec<Client>, layout: Layout) -> Vec<Result<Vec<RankRequest>, Wrong>> {
        let mut spaces: Vec<Space> =
            (0..layout.nodes()).map(|_| Space::new(&layout, JobId([7; 16]))).collect();
        let mut told: Vec<Result<Vec<RankRequest>, Wrong>> = clients.iter().map(|_| Ok(Vec::new())).collect();
        while clients.iter().zip(&told).any(|(client, told)| !client.is_gone && told.is_ok()) {
            let files = clients.iter().zip(&told).filter(|(_, told)| told.is_ok());
            let mut files: Vec<_> = files
                .filter_map(|(client, _)| client.poll_file())
                .map(|(file, flags)| rustix::event::PollFd::from_borrowed_fd(file, flags))
                .collect();
            rustix::event::poll(&mut files, None).unwrap();
            drop(files);
            for (rank, client) in clients.iter_mut().enumerate() {
                let node = layout.node_of(vgas_rma::address::Rank(rank as u32)).0 as usize;
                match (client.serve(&mut spaces[node]), &mut told[rank]) {
                    (Ok(asked), Ok(all)) => all.extend(asked),
                    (Err(what), all @ Ok(_)) => *all = Err(what),
                    _ => {}
                }
            }
            if clients.iter().all(Client::waits) {
                let all: Vec<_> = spaces.iter_mut().flat_map(Space::take_fresh).collect();
                spaces.iter_mut().for_each(|space| space.extend(all.clone()));
                clients.iter_mut().for_each(Client::leave_barrier);
            }
        }
        told
    }

    /// Goal: ranks on two nodes agree through it, by the client that joins others' jobs: both ends speak one protocol.
    #[test]
    fn ranks_of_two_nodes_agree() {
        let (clients, theirs): (Vec<_>, Vec<_>) = (0..3).map(|_| Client::pair().unwrap()).unzip();
        let ranks: Vec<_> = (0..)
            .zip(theirs)
            .map(|(rank, socket)| {
                std::thread::spawn(move || {
                    let wire = Wire::open(socket, Duration::from_secs(10)).unwrap();
                    assert!(wire.get("card-9").is_err(), "nobody puts it");
                    wire.put(&format!("card-{rank}"), &format!("value of {rank}")).unwrap();
                    wire.meet().unwrap();
                    let all = (0..3).map(|other| wire.get(&format!("card-{other}")).unwrap());
                    let all: Vec<String> = all.collect();
                    let mapping = wire.get("PMI_process_mapping").unwrap();
                    wire.leave();
                    (all, mapping)
                })
            })
            .collect();
        let told = serve(clients, Layout::blocks(3, 2));
        for rank in ranks {
            let (all, mapping) = rank.join().unwrap();
            assert_eq!(all, ["value of 0", "value of 1", "value of 2"]);
            assert_eq!(mapping, "(vector,(0,1,2),(1,1,1))");
        }
        assert!(
            told.iter().all(|told| *told == Ok(vec![RankRequest::Begun, RankRequest::Barrier])),
            "{told:?}"
        );
    }

    /// Returns the answers to a rank that sends these bytes and ends, and the result.
    fn said(bytes: &[u8]) -> (String, Result<Vec<RankRequest>, Wrong>) {
        let (client, its) = Client::pair().unwrap();
        rustix::io::write(&its, bytes).unwrap();
        rustix::net::shutdown(&its, rustix::net::Shutdown::Write).unwrap();
        let told = serve(vec![client], Layout::blocks(1, 1)).remove(0);
        let mut answers = vec![0; 64 << 10];
        let count = rustix::io::read(&its, &mut answers).unwrap_or(0);
        (String::from_utf8_lossy(&answers[..count]).into_owned(), told)
    }

    /// Goal: an unsupported request is refused in a way that lets the program continue.
    #[test]
    fn what_is_not_served_is_refused() {
        let (answers, told) = said(
            b"cmd=init pmi_version=1 pmi_subversion=1\nmcmd=spawn\nnprocs=1\nexecname=x\nendcmd\ncmd=publish_name service=a port=b\n\
              cmd=lookup_name service=a\ncmd=unpublish_name service=a\ncmd=get_universe_size\ncmd=get_appnum\n",
        );
        let answers: Vec<&str> = answers.lines().collect();
        for (answer, wanted) in
            answers[1..5].iter().zip(["spawn_result", "publish_result", "lookup_result", "unpublish_result"])
        {
            assert!(answer.starts_with(&format!("cmd={wanted} rc=-1 msg=")), "{answers:?}");
        }
        assert_eq!(answers[5..], ["cmd=universe_size size=1", "cmd=appnum appnum=0"]);
        assert_eq!(told, Ok(vec![RankRequest::Begun]));
    }

    /// Goal: an end that a rank wants has its status, which is never 0.
    #[test]
    fn a_rank_ends_the_job() {
        assert_eq!(
            said(b"cmd=abort exitcode=7\n").1,
            Ok(vec![RankRequest::Abort { code: 7, message: String::new() }])
        );
        let zero = RankRequest::Abort { code: 1, message: "why not".into() };
        assert_eq!(said(b"cmd=abort exitcode=0 error_msg=why not\n").1, Ok(vec![zero]));
    }

    /// Goal: an invalid line is refused with its text; a value that is too large is refused, and others
    /// continue.
    #[test]
    fn nonsense_is_refused() {
        for (bytes, wanted) in [
            (&b"GET / HTTP/1.1\r\n"[..], "no line of the protocol"),
            (b"\n", "no line of the protocol"),
            (b"cmd=format_disk\n", "\"format_disk\" is no command"),
            (&[b'x'; 10_000], "a line of more than 8192 bytes came: \"xxxx"),
            (b"cmd=barrier_in\ncmd=barrier_in\n\n\n", "waits in a barrier"),
        ] {
            // For two ranks, so that a barrier does not end at once.
            let (client, its) = Client::pair().unwrap();
            let (other, others) = Client::pair().unwrap();
            rustix::io::write(&its, bytes).unwrap();
            drop((its, others));
            let told = serve(vec![client, other], Layout::blocks(2, 1)).remove(0);
            assert!(told.as_ref().is_err_and(|what| what.contains(wanted)), "{told:?}");
        }
        for (key, value, wanted) in [
            ("k".repeat(KEY_BYTES_MAX - 1), "v".repeat(VALUE_BYTES_MAX - 1), "rc=0"),
            ("k".repeat(KEY_BYTES_MAX), "v".into(), "msg=key_too_long"),
            ("k".into(), "v".repeat(VALUE_BYTES_MAX), "msg=value_too_long"),
            (String::new(), "v".into(), "msg=no_key"),
        ] {
            let (answer, told) = said(format!("cmd=put kvsname=x key={key} value={value}\n").as_bytes());
            assert!(answer.contains(wanted) && told.is_ok(), "{answer}");
        }
    }

    /// Goal: one rank cannot fill the memory of the node: its values have a bound until the next barrier, and
    /// then again.
    #[test]
    fn values_have_a_bound() {
        let layout = Layout::blocks(1, 1);
        let mut space = Space::new(&layout, JobId([7; 16]));
        let (mut client, its) = Client::pair().unwrap();
        let put = |client: &mut Client, space: &mut Space, number: usize| {
            let line = format!("cmd=put kvsname=x key=key{number} value={}\n", "v".repeat(1000));
            rustix::io::write(&its, line.as_bytes()).unwrap();
            while !client.serve(space).unwrap().is_empty() || !client.unread.is_empty() {}
            let mut answer = [0; 200];
            let count = rustix::io::read(&its, &mut answer).unwrap();
            answer[..count].starts_with(b"cmd=put_result rc=0")
        };
        let taken = (0..1000).take_while(|&number| put(&mut client, &mut space, number)).count();
        assert!((200..300).contains(&taken), "{taken}");
        client.waits = true;
        client.leave_barrier();
        let mut out = [0; 64];
        rustix::io::read(&its, &mut out).unwrap();
        assert!(put(&mut client, &mut space, 0));
    }

    /// Goal: a rank that sends requests without end and takes no answer is ignored, and costs no memory.
    #[test]
    fn who_takes_no_answers_is_not_listened_to() {
        let mut space = Space::new(&Layout::blocks(1, 1), JobId([7; 16]));
        let (mut client, its) = Client::pair().unwrap();
        rustix::io::ioctl_fionbio(&its, true).unwrap();
        let question = b"cmd=get_maxes\n".repeat(100);
        let mut refused = 0;
        for _ in 0..10_000 {
            refused += u32::from(rustix::io::write(&its, &question).is_err());
            client.serve(&mut space).unwrap();
        }
        assert!(refused > 1000 && client.unsent.len() < 1 << 10 && client.unread.len() <= 2 * READ_BYTES);
    }

    #[test]
    fn mappings_tell_nodes() {
        let of = |ranks: &[u32]| mapping(&Layout::of_nodes(ranks.iter().copied()).unwrap());
        assert_eq!(of(&[4]), "(vector,(0,1,4))");
        assert_eq!(of(&[2, 2, 2]), "(vector,(0,3,2))");
        assert_eq!(of(&[3, 1, 1]), "(vector,(0,1,3),(1,2,1))");
    }

    proptest! {
        /// Goal: no bytes make it panic or wait.
        #[test]
        fn any_bytes_are_answered_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            session_of(&bytes);
        }

        /// Goal: nor do lines that are nearly right.
        #[test]
        fn nearly_right_lines_too(lines in proptest::collection::vec("(cmd=(init|put|get|barrier_in|abort|finalize|spawn)|mcmd=spawn|endcmd)( (key|value|kvsname|exitcode)=[ -~]{0,9}){0,3}", 0..12)) {
            session_of(format!("{}\n", lines.join("\n")).as_bytes());
        }
    }
}
