//! Fuzz targets: decode arbitrary bytes as the messages of launcher, daemons and ranks, and as those of
//! process managers that start ranks. Built only for tests and fuzzing (`fuzz/README.md`); not a public
//! interface.

use super::control::{Arrival, Receiver};
use super::message::{FromNode, FromRank, ToNode, ToRank};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Most bytes of a stream: a socket takes as many in any case.
const BYTES_MAX: usize = 32 << 10;

/// The first byte selects the receiver of the others: a node's daemon, the launcher, a rank, or the daemon as
/// ranks speak to it.
pub fn job_control(bytes: &[u8]) {
    let Some((listener, rest)) = bytes.split_first() else { return };
    match listener {
        0 => listen::<ToNode>(rest),
        1 => listen::<FromNode>(rest),
        2 => listen::<ToRank>(rest),
        _ => listen::<FromRank>(rest),
    }
}

/// The first byte selects the others' kind: a process manager's answers to a rank, a rank's questions to
/// `vgas run`, or a scheduler's list of hosts.
pub fn starters(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, answers)) => super::pmi::wire::session_of(answers),
        Some((1, questions)) => super::pmi::server::session_of(questions),
        Some((_, hosts)) => super::allocation::hosts_of(&String::from_utf8_lossy(hosts)),
        None => {}
    }
}

/// Takes all messages of a stream, and sends each through the encoding again.
fn listen<T: Serialize + DeserializeOwned>(stream: &[u8]) {
    let (here, there) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    let mut receiver = Receiver::new(Arc::new(here)).expect("a receiver");
    let stream = &stream[..stream.len().min(BYTES_MAX)];
    assert_eq!(rustix::io::write(&there, stream), Ok(stream.len()));
    drop(there);
    loop {
        match receiver.next::<T>() {
            Ok(Some((message, files))) => {
                assert!(files.is_empty());
                let bytes = postcard::to_allocvec(&message).expect("what was decoded");
                let again: T = postcard::from_bytes(&bytes).expect("what was encoded");
                assert!(postcard::to_allocvec(&again).is_ok_and(|again| again == bytes));
            }
            Ok(None) => match receiver.read() {
                Ok(Arrival::Bytes) => {}
                Ok(Arrival::Nothing | Arrival::End) | Err(_) => return,
            },
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Channel;
    use crate::message::{
        DomainOrigin, Exit, Input, JobDescription, Lead, NodeDescription, Output, RankExit, Stream, Welcome,
        Why,
    };
    use crate::spec::{Listen, Plan};
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use vgas_rma::address::{Layout, NodeId, Peer, Rank, RegionId};
    use vgas_rma::domain::{DomainSpec, RegionSpec};
    use vgas_rma::key::JobKey;
    use vgas_testing::replay;

    /// The stream of some messages, for this listener.
    fn stream<T: Serialize>(listener: u8, messages: &[T]) -> Vec<u8> {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut channel = Channel::over_socket(here.into(), false).unwrap();
        messages.iter().for_each(|message| channel.sender.send(message).unwrap());
        drop(channel);
        let mut bytes = vec![listener];
        there.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn job() -> JobDescription {
        let settings = BTreeMap::from([("conduit".into(), "tcp".into())]);
        JobDescription {
            layout: Layout::blocks(3, 2),
            key: JobKey::from_bytes([1; 32]),
            conduit: "tcp".into(),
            settings,
        }
    }

    fn domain() -> DomainSpec {
        let region = RegionSpec { owner: Peer(2), region: RegionId::SEGMENT, bytes: 1 << 30 };
        let members = vec![Peer(2), Peer(4)];
        DomainSpec {
            members,
            control_bytes: 1 << 20,
            ring_bytes: 1 << 18,
            regions: vec![region],
            common_bytes: 0,
        }
    }

    fn node() -> NodeDescription {
        NodeDescription {
            job: job(),
            node: NodeId(1),
            over_ssh: true,
            domain: domain(),
            domain_origin: DomainOrigin::Daemon,
            listen: Some(Listen {
                loopback: true,
                by_ssh: true,
                interface: Some("eth0".into()),
                ports: Some((4000, 4010)),
            }),
            program: "ring".into(),
            name: None,
            arguments: vec!["-v".into()],
            environment: vec![("PATH".into(), "/bin".into())],
            directory: "/tmp".into(),
            output: Output::ForwardErrors,
            input: Input::Forward,
            pmi: true,
            group: Some("/sys/fs/cgroup/vgas-1-0-node0".into()),
        }
    }

    #[test]
    fn any_stream_is_messages_or_refused() {
        let address = || vec!["10.0.0.7:4000".parse().unwrap()];
        let exit = RankExit {
            rank: Rank(1),
            pid: 77,
            exit: Exit::Signal(9),
            joined: true,
            finalised: false,
            by_itself: true,
        };
        let to_node = [
            ToNode::Describe(Box::new(node())),
            ToNode::Start { addresses: address() },
            ToNode::Input(b"text".to_vec()),
            ToNode::Gathered(vec![vec![1], vec![]]),
            ToNode::Fenced(vec![("key".into(), "value".into())]),
            ToNode::End { at_once: true, why: Why { line: Some("why".into()), code: 1 } },
            ToNode::Lead(Box::new(Lead { ranks: 3, key: JobKey::from_bytes([2; 32]), plan: Plan::new() })),
            ToNode::Serve { ranks: 3, timeout: std::time::Duration::from_secs(4) },
            ToNode::Reach { address: address()[0], key: JobKey::from_bytes([2; 32]) },
            ToNode::Lost(NodeId(1)),
        ];
        let from_node = [
            FromNode::Arrived { rank: 2, host: "host7".into() },
            FromNode::Ready { host: "host7".into(), addresses: address() },
            FromNode::Failed { message: "why".into(), code: 3 },
            FromNode::Fence(vec![("key".into(), "value".into())]),
            FromNode::Exited(exit),
            FromNode::Output { rank: Rank(2), stream: Stream::Error, bytes: b"line\n".to_vec() },
            FromNode::Unending(vec![(Rank(1), 77)]),
            FromNode::Broken(Peer(2)),
        ];
        let welcome = Welcome {
            job: job(),
            me: Peer(2),
            domain: domain(),
            addresses: address(),
            listens: true,
            lifeline: true,
        };
        let to_rank = [
            ToRank::Welcome(Box::new(welcome)),
            ToRank::Gathered(vec![vec![7; 8]]),
            ToRank::Finalised,
            ToRank::Ended(Why::default()),
            ToRank::Prepare { conduit: "ofi".into() },
        ];
        let abort = FromRank::Abort { message: "why".into(), code: 1, is_complaint: false };
        let from_rank = [
            FromRank::Join,
            FromRank::Gather(vec![1, 2]),
            abort,
            FromRank::Exit { code: 4 },
            FromRank::Broken(Peer(1)),
        ];
        replay(
            "job_control",
            job_control,
            &[
                ("to-a-daemon", stream(0, &to_node)),
                ("from-a-daemon", stream(1, &from_node)),
                ("to-a-rank", stream(2, &to_rank)),
                ("from-a-rank", stream(3, &from_rank)),
            ],
        );
    }

    #[test]
    fn any_starter_is_understood_or_refused() {
        let seed = |about: u8, text: &str| [&[about], text.as_bytes()].concat();
        let answers = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=maxes kvsname_max=256 keylen_max=64 \
                       vallen_max=1024\ncmd=my_kvsname kvsname=kvs_77_0\ncmd=put_result rc=0 msg=success\ncmd=barrier_out\n\
                       cmd=get_result rc=0 msg=success value=7/ab=c\ncmd=finalize_ack\n";
        let questions = "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=get_appnum\ncmd=get_my_kvsname\n\
                         cmd=put kvsname=x key=k value=v\ncmd=barrier_in\ncmd=get kvsname=x key=k\nmcmd=spawn\nnprocs=1\nendcmd\n\
                         cmd=abort exitcode=7\ncmd=finalize\n";
        replay(
            "starters",
            starters,
            &[
                ("answers-to-a-rank", seed(0, answers)),
                ("questions-of-a-rank", seed(1, questions)),
                ("slurm", seed(2, "n[0-3,07],rack[1-2]n[01-03],login 4(x5),3,1(x6)")),
                ("lsf", seed(2, "a 4 b 2")),
                ("pbs", seed(2, "n0\nn0\n# none\nn1\n")),
            ],
        );
    }
}
