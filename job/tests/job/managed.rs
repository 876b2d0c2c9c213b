//! Ranks that speak PMI-1 to who has started them, as MPICH's do: by a client written here, beside programs that join the job, and
//! programs that mean harm.

use super::harness::{Ended, Test, fake_ssh, run, start, start_in};
use super::programs;
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use vgas_testing::at_most;

pub const TESTS: &[Test] = &[
    ("managed_ranks_agree", managed_ranks_agree),
    ("managed_ranks_join_in_both_orders", managed_ranks_join_in_both_orders),
    ("a_managed_rank_ends_the_job", a_managed_rank_ends_the_job),
    ("a_managed_rank_that_leaves_is_missed", a_managed_rank_that_leaves_is_missed),
    ("harmful_clients_are_a_line", harmful_clients_are_a_line),
    ("surroundings_of_others_are_hidden", surroundings_of_others_are_hidden),
    ("srun_starts_daemons", srun_starts_daemons),
];

/// The client's end of the protocol.
struct Client {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Client {
    fn new() -> Self {
        let number: i32 = std::env::var("PMI_FD").expect("served").parse().unwrap();
        // SAFETY: the daemon has left it open for this process, and nothing else here takes it.
        let stream = unsafe { UnixStream::from_raw_fd(number) };
        let answers = BufReader::new(stream.try_clone().unwrap());
        Self { stream, answers }
    }

    fn ask(&mut self, line: &str) -> String {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().into()
    }

    fn begin(&mut self) {
        let answer = self.ask("cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(answer, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    }
}

fn number(variable: &str) -> u32 {
    std::env::var(variable).unwrap().parse().unwrap()
}

/// What a rank of these tests does.
pub fn rank(words: &[String]) -> ExitCode {
    let (me, ranks) = (number("PMI_RANK"), number("PMI_SIZE"));
    let mut client = Client::new();
    match words[0].as_str() {
        "agree" => agree(&mut client, me, ranks),
        "job-first" => {
            let member = programs::join().unwrap();
            assert_eq!(member.rank().unwrap().0, me);
            member.bootstrap.all_gather(b"").unwrap();
            agree(&mut client, me, ranks);
            member.bootstrap.finalize().unwrap();
        }
        "job-last" => {
            client.begin();
            let member = programs::join().unwrap();
            assert_eq!(member.rank().unwrap().0, me);
            member.bootstrap.all_gather(b"").unwrap();
            member.bootstrap.finalize().unwrap();
            agree(&mut client, me, ranks);
        }
        "abort" if me == 1 => {
            client.begin();
            client.ask("cmd=abort exitcode=7");
            programs::block();
        }
        "leave" if me == 1 => client.begin(),
        "abort" | "leave" => {
            client.begin();
            client.ask("cmd=barrier_in");
            programs::block();
        }
        harm if me == 1 => harm_by(&mut client, harm),
        _ => {
            client.begin();
            client.ask("cmd=barrier_in");
            programs::block();
        }
    }
    ExitCode::SUCCESS
}

/// All ranks tell each other something, twice.
fn agree(client: &mut Client, me: u32, ranks: u32) {
    client.begin();
    assert_eq!(client.ask("cmd=get_universe_size"), format!("cmd=universe_size size={ranks}"));
    let name = client.ask("cmd=get_my_kvsname");
    let name = name.strip_prefix("cmd=my_kvsname kvsname=").unwrap().to_owned();
    for round in 0..2 {
        let put =
            format!("cmd=put kvsname={name} key=card-{round}-{me} value={}", "x".repeat(me as usize + 1));
        assert_eq!(client.ask(&put), "cmd=put_result rc=0 msg=success");
        assert_eq!(client.ask("cmd=barrier_in"), "cmd=barrier_out");
        for other in 0..ranks {
            let answer = client.ask(&format!("cmd=get kvsname={name} key=card-{round}-{other}"));
            assert_eq!(
                answer,
                format!("cmd=get_result rc=0 msg=success value={}", "x".repeat(other as usize + 1))
            );
        }
    }
    let mapping = client.ask(&format!("cmd=get kvsname={name} key=PMI_process_mapping"));
    assert_eq!(client.ask("cmd=finalize"), "cmd=finalize_ack");
    programs::say(&format!("agreed {me} {name} {}", mapping.rsplit_once('=').unwrap().1));
}

fn harm_by(client: &mut Client, how: &str) {
    let piece = vec![b'x'; 1 << 20];
    let first: &[u8] = match how {
        "garbage" => b"\x00\xff\xfe\x80 not a line\n",
        "long" => b"cmd=init pmi_version=1",
        "huge" => b"cmd=put kvsname=x key=y value=",
        other => panic!("no harm {other}"),
    };
    // The other end closes when it has seen enough.
    let mut sent = client.stream.write_all(first);
    let mut pieces = 0;
    while how != "garbage" && sent.is_ok() && pieces < 1 << 10 {
        pieces += 1;
        sent = client.stream.write_all(&piece);
    }
    programs::block();
}

/// Checks that all ranks have agreed, and gives what they say of the nodes.
fn agreed(ended: &Ended, ranks: usize) -> String {
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    let mut lines: Vec<Vec<&str>> = ended.stdout.lines().map(|line| line.split(' ').collect()).collect();
    lines.sort();
    assert_eq!(lines.len(), ranks, "{ended:?}");
    assert!(lines.iter().all(|line| line[0] == "agreed" && line[2..] == lines[0][2..]), "{ended:?}");
    lines[0][3].to_owned()
}

/// Goal: ranks see each other, on one node, on several, and on uneven ones behind connections.
fn managed_ranks_agree() {
    assert_eq!(agreed(&run("ranks=4 -- @ rank managed agree"), 4), "(vector,(0,1,4))");
    let ended = run("conduit=tcp nodes=2 ranks=5 -- @ rank managed agree");
    assert_eq!(agreed(&ended, 5), "(vector,(0,1,3),(1,1,2))");
    let folder = tempfile::tempdir().unwrap();
    let ssh = fake_ssh(&folder);
    let line = format!(
        "conduit=tcp nodes=3 hosts=a,b,c placement=1,3,1 ssh={} ranks=5 -- @ rank managed agree",
        ssh.display()
    );
    assert_eq!(agreed(&run(&line), 5), "(vector,(0,1,1),(1,1,3),(2,1,1))");
}

/// Goal: a program is part of the job and of an MPI, whichever begins.
fn managed_ranks_join_in_both_orders() {
    for order in ["job-first", "job-last"] {
        agreed(&run(&format!("conduit=tcp nodes=2 ranks=4 -- @ rank managed {order}")), 4);
    }
}

/// Goal: the status that a rank ends the job with is the job's.
fn a_managed_rank_ends_the_job() {
    let ended = run("conduit=tcp nodes=2 ranks=3 -- @ rank managed abort");
    assert!(ended.code == 7 && ended.stderr.contains("rank 1: ended the job with status 7"), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

/// Goal: nobody waits for ever in a barrier for a rank that has ended well; who is killed, as always, ends all.
fn a_managed_rank_that_leaves_is_missed() {
    let ended = run("ranks=3 -- @ rank managed leave");
    assert!(ended.code == 1 && ended.stderr.contains("rank 1 "), "{ended:?}");
    assert!(
        ended.stderr.contains("exited without finalising the job, which the other ranks wait for"),
        "{ended:?}"
    );
}

/// Goal: garbage, lines and values without end are one line that names the rank, soon and with little memory.
fn harmful_clients_are_a_line() {
    for (how, wanted) in [
        ("garbage", "this is no line of the protocol"),
        ("long", "a line of more than 8192 bytes came"),
        ("huge", "a line of more than 8192 bytes came"),
    ] {
        let ended = run(&format!("conduit=tcp nodes=2 ranks=3 -- @ rank managed {how}"));
        assert!(ended.code == 1 && ended.stderr.contains(wanted), "{how}: {ended:?}");
        assert!(ended.stderr.contains("rank 1: broke the protocol PMI-1"), "{how}: {ended:?}");
        assert!(
            ended.stderr.lines().count() == 1 && ended.time < at_most(Duration::from_secs(5)),
            "{ended:?}"
        );
    }
}

/// Goal: what tells of another starter's ranks does not reach ranks; what users set does, and what jobs set themselves.
fn surroundings_of_others_are_hidden() {
    let around = [
        ("PMIX_NAMESPACE", "other"),
        ("PMI_RANK", "77"),
        ("SLURM_PROCID", "5"),
        ("OMPI_COMM_WORLD_SIZE", "9"),
        ("OMPI_MCA_btl", "self"),
        ("SLURM_JOB_ID", "12"),
    ];
    let ended = start_in("ranks=2 label=yes -- env", Stdio::null(), &around).end();
    let has = |text: &str| ended.stdout.lines().filter(|line| line.contains(text)).count();
    for gone in ["PMIX_", "=77", "SLURM_PROCID", "OMPI_COMM_WORLD"] {
        assert_eq!(has(gone), 0, "{gone}: {ended:?}");
    }
    for kept in ["OMPI_MCA_btl=self", "SLURM_JOB_ID=12", "PMI_SIZE=2", "MPI_LOCALNRANKS=2"] {
        assert_eq!(has(kept), 2, "{kept}: {ended:?}");
    }
    assert_eq!((has("PMI_RANK=0"), has("PMI_RANK=1")), (1, 1), "{ended:?}");
    let ended = run("ranks=2 pmi=off -- env");
    assert!(!ended.stdout.contains("PMI_"), "{ended:?}");
}

/// Goal: srun is told the host and the command word by word; its death, and its silence, are told by its name.
fn srun_starts_daemons() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("srun");
    let script = "#!/bin/sh\n\
        # A variable that would have srun begin lines with numbers.\n\
        [ -z \"$SLURM_LABELIO\" ] || exit 3\n\
        while :; do case $1 in --nodelist=*) host=${1#*=}; shift;; -*) shift;; *) break;; esac; done\n\
        case $host in down) echo \"srun: error: Unable to create step\" >&2; exit 1;; silent) exec sleep 1000;; esac\n\
        exec \"$@\"\n";
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let line = |hosts: &str, rest: &str| {
        format!("conduit=tcp nodes=2 hosts={hosts} srun={} placement=3,1 ranks=4 {rest}", path.display())
    };
    let job = start_in(&line("a,b", "-- @ rank hello"), Stdio::null(), &[("SLURM_LABELIO", "1")]);
    let ended = job.end();
    assert_eq!((ended.code, ended.stderr.as_str(), ended.stdout.lines().count()), (0, "", 4), "{ended:?}");
    assert_eq!(ended.stdout.lines().filter(|line| line.contains("on node 0")).count(), 3, "{ended:?}");
    for (host, wanted) in [
        ("down", "node 1 (host down): srun: error: Unable to create step"),
        ("silent", "does `srun --overlap -N1 -n1 -w silent true` work"),
    ] {
        let ended = run(&line(&format!("a,{host}"), "seconds=1.5 -- true"));
        assert!(ended.code == 1 && ended.stderr.contains(wanted), "{host}: {ended:?}");
    }
    let job = start(&line("a,b", "-- @ rank hang"));
    job.numbers("pid ", 4);
    super::harness::kill(job.daemons()[1], Signal::KILL);
    let ended = job.end();
    assert!(ended.code == 1 && ended.stderr.contains("is gone: srun was killed by signal 9"), "{ended:?}");
}
