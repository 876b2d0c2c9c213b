//! What the ranks of the tests do.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vgas_job::bootstrap::conformance;
use vgas_job::pmi::PmiChoice;
use vgas_job::{Joining, Membership, Plan};
use vgas_rma::RegionId;

/// The role `rank`: the program's name and its arguments.
pub fn rank(words: &[String]) -> ExitCode {
    match words[0].as_str() {
        "fake" => return fake(&words[1]),
        "managed" => return super::managed::rank(&words[1..]),
        "foreign" => return foreign(),
        _ => {}
    }
    let member = match join() {
        Ok(member) => member,
        Err(error) => {
            eprintln!("rank: {error}");
            return ExitCode::FAILURE;
        }
    };
    let rank = member.rank().unwrap().0;
    let number = |index: usize| words[index].parse::<u32>().unwrap();
    match words[0].as_str() {
        "hello" => hello(&member),
        // exit CODE RANK: the others wait.
        "exit" if rank == number(2) => std::process::exit(number(1) as i32),
        "exit" => wait_for_the_others(&member),
        "abort" if rank == number(1) => {
            member.bootstrap.abort("something is rotten", 9).unwrap();
            std::process::exit(9);
        }
        "abort" => wait_for_the_others(&member),
        // announce RANKS CODE CODE …: the first ranks exit with these statuses, the others wait.
        "announce" if rank < number(1) => {
            let code = number(2 + rank as usize % (words.len() - 2));
            member.bootstrap.exit(code as u8).unwrap();
            std::process::exit(code as i32);
        }
        "announce" => block(),
        // pieces COUNT: lines of errors, in pieces.
        "pieces" => {
            for _ in 0..number(1) {
                for piece in ["Error: ", &format!("rank {rank} has failed"), "\n"] {
                    std::io::stderr().write_all(piece.as_bytes()).unwrap();
                }
            }
        }
        "leave" => {}
        "hang" => {
            say(&format!("pid {}", std::process::id()));
            wait_for_the_others_after(&member);
        }
        "deaf" => {
            // Ignores what asks it to end.
            for signal in [2, 15] {
                signal_hook::flag::register(signal, Arc::<AtomicBool>::default()).unwrap();
            }
            say(&format!("pid {}", std::process::id()));
            wait_for_the_others_after(&member);
        }
        "catch" => catch(&member),
        "parent" => parent(),
        "key" => {
            if rank == 0 {
                let partial = format!("{}.partial", words[1]);
                std::fs::write(&partial, member.key.expose()).unwrap();
                std::fs::rename(&partial, &words[1]).unwrap();
            }
            say(&format!("pid {}", std::process::id()));
            wait_for_the_others_after(&member);
        }
        "chatter" => chatter(&member, number(1)),
        "read" => read(&member),
        "mixed" if rank == 0 => drop(member.bootstrap.all_gather(b"")),
        "mixed" => drop(member.bootstrap.finalize()),
        "conform" => {
            let case = conformance::CASES.iter().find(|case| case.name == words[1]).expect("a case");
            (case.rank)(&member);
            if words[1] == "all_exit_with_a_status" && rank + 1 == member.layout().ranks() {
                return ExitCode::from(7);
            }
        }
        other => panic!("no program {other}"),
    }
    ExitCode::SUCCESS
}

/// Joins the job that a launcher, or the test itself, has started this process in.
pub fn join() -> vgas_rma::error::Result<Membership> {
    // SAFETY: no library runs in these jobs.
    match unsafe { vgas_job::join() } {
        // SAFETY: as above.
        Err(vgas_rma::RmaError::NotInJob) => unsafe { vgas_job::join_started(&joining()) },
        joined => joined,
    }
}

/// How ranks join that the test itself has started.
fn joining() -> Joining {
    let mut plan = Plan::new();
    plan.settings.insert("greeting".into(), "pmi".into());
    plan.interface = Some("lo".into());
    plan.connect_timeout = Duration::from_secs(2);
    let this = std::env::current_exe().unwrap();
    Joining {
        pmi: PmiChoice::Auto,
        plan,
        helper: vec![this.into(), "node".into()],
        helper_environment: vec![("TEST_IS_HELPER".into(), "1".into())],
    }
}

/// Takes part in the exchange of the process manager, and then does not come. As rank 0, tells what an old version would.
fn fake(how: &str) -> ExitCode {
    let number: i32 = std::env::var("PMI_FD").unwrap().parse().unwrap();
    // SAFETY: the starter has left it open for this process, and nothing else here takes it.
    let mut stream = unsafe { UnixStream::from_raw_fd(number) };
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    let version = if how == "old" { "3" } else { "8/0000000000000001" };
    let put = format!("cmd=put kvsname=x key=vgas-job value={version}/127.0.0.1:1/{}", "00".repeat(32));
    let mut lines = vec!["cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_my_kvsname"];
    lines.extend((how != "absent").then_some(put.as_str()));
    lines.extend(["cmd=barrier_in", "cmd=finalize"]);
    for line in lines {
        stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        answers.next().unwrap().unwrap();
    }
    ExitCode::SUCCESS
}

/// A rank of `vgas run` that begins as one of other sources does.
fn foreign() -> ExitCode {
    let number: i32 = std::env::var("VGAS_CONTROL_FD").unwrap().parse().unwrap();
    // SAFETY: the daemon has left it open for this process, and nothing else here takes it.
    let mut stream = unsafe { UnixStream::from_raw_fd(number) };
    stream.write_all(b"vgas\x08\0\0\0\x01\0\0\0\0\0\0\0").unwrap();
    // Its daemon ends it.
    block();
    ExitCode::SUCCESS
}

/// One write for the whole line: output of several ranks comes through one pipe.
pub fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Blocks for ever when some rank does not do the same.
fn wait_for_the_others(member: &Membership) {
    member.bootstrap.all_gather(b"").unwrap();
}

/// Blocks for ever, without a word to anybody.
pub fn block() {
    loop {
        std::thread::park();
    }
}

/// Blocks for ever: one exchange, then each rank waits without anybody missing.
fn wait_for_the_others_after(member: &Membership) {
    member.bootstrap.all_gather(b"").unwrap();
    block();
}

/// Checks everything that a membership holds.
pub fn hello(member: &Membership) {
    let layout = member.layout();
    let rank = member.rank().unwrap();
    // The service was there first.
    let agent = member.domain.map(layout.agent_of(member.node()), RegionId::SEGMENT).unwrap();
    let mut started = [0; 7];
    agent.read(0, &mut started);
    assert_eq!(&started, b"started");
    // Twice, with contributions of different lengths, to see that rounds do not mix.
    for round in 1..3u8 {
        let all = member.bootstrap.all_gather(&vec![round; rank.0 as usize]).unwrap();
        assert_eq!(all.len(), layout.ranks() as usize);
        for (from, contribution) in all.iter().enumerate() {
            assert_eq!(contribution, &vec![round; from]);
        }
    }
    // Shared memory is shared: everybody writes into its own segment and reads those of its domain.
    let own = member.domain.map(member.me(), RegionId::SEGMENT).unwrap();
    own.write(0, &rank.0.to_le_bytes());
    member.bootstrap.all_gather(b"").unwrap();
    for &peer in &member.domain.spec().members {
        if let Some(rank) = layout.rank_of_peer(peer) {
            let mut bytes = [0; 4];
            member.domain.map(peer, RegionId::SEGMENT).unwrap().read(0, &mut bytes);
            assert_eq!(u32::from_le_bytes(bytes), rank.0);
        }
    }
    let network = member.conduit == vgas_rma::conduit::tcp::NAME && layout.nodes() > 1;
    assert_eq!(member.listener.is_some(), network);
    assert_eq!(member.addresses.len(), if network { layout.peers() as usize } else { 0 });
    if let Some(listener) = &member.listener {
        assert_eq!(listener.local_addr().unwrap(), member.addresses[member.me().0 as usize]);
        // Every other peer listens where the table says.
        for &address in &member.addresses {
            std::net::TcpStream::connect(address).unwrap();
        }
    }
    // In what is said of them, peers are called by what users know.
    for peer in [member.me(), layout.agent_of(member.node())] {
        assert_eq!(peer.to_string(), layout.describe(peer));
    }
    assert!(matches!(join(), Err(vgas_rma::RmaError::Usage(_))), "a second join must be refused");
    member.bootstrap.finalize().unwrap();
    say(&format!(
        "hello {rank} of {} on {} {:?}",
        layout.ranks(),
        member.node(),
        member.settings.get("greeting")
    ));
}

/// Says which signals it gets; SIGTERM ends it.
fn catch(member: &Membership) {
    let mut signals = signal_hook::iterator::Signals::new([2, 10, 12, 15]).unwrap();
    member.bootstrap.all_gather(b"").unwrap();
    say(&format!("ready {}", std::process::id()));
    for signal in signals.forever() {
        say(&format!("signal {signal}"));
        if signal == 15 {
            break;
        }
    }
    member.bootstrap.finalize().unwrap();
}

/// Starts a process in its own group and one that leaves it, and hangs. Nobody waits for them: that is the point.
#[expect(clippy::zombie_processes)]
fn parent() {
    let near = Command::new("sleep").arg("1000").spawn().unwrap();
    let far = Command::new("setsid").args(["sleep", "1000"]).spawn().unwrap();
    say(&format!("near {}", near.id()));
    say(&format!("far {}", far.id()));
    say(&format!("pid {}", std::process::id()));
    loop {
        std::thread::park();
    }
}

/// Writes many lines, in pieces, to both streams.
fn chatter(member: &Membership, lines: u32) {
    let rank = member.rank().unwrap().0;
    for line in 0..lines {
        let mut out = std::io::stdout().lock();
        write!(out, "line {line} ").unwrap();
        out.flush().unwrap();
        out.write_all(&vec![b'a' + rank as u8; 50 * (1 + line as usize % 5)]).unwrap();
        out.flush().unwrap();
        writeln!(out, " end").unwrap();
        eprintln!("error {line}");
    }
    member.bootstrap.finalize().unwrap();
}

/// Says what it reads.
fn read(member: &Membership) {
    for line in std::io::stdin().lock().lines() {
        say(&format!("read {} {}", member.rank().unwrap().0, line.unwrap()));
    }
    say(&format!("eof {}", member.rank().unwrap().0));
    member.bootstrap.finalize().unwrap();
}
