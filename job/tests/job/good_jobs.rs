//! Jobs in which nothing goes wrong.

use super::harness::{Test, run, start, start_with_input};
use rustix::process::Signal;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;
use vgas_job::JobStatus;
use vgas_job::bootstrap::conformance;
use vgas_testing::at_most;

pub const TESTS: &[Test] = &[
    ("any_program_can_be_run", any_program_can_be_run),
    ("agents_leave_in_any_order", agents_leave_in_any_order),
    ("members_know_each_other", members_know_each_other),
    ("launched_ranks_conform", launched_ranks_conform),
    ("output_passes_unchanged", output_passes_unchanged),
    ("labelled_lines_stay_whole", labelled_lines_stay_whole),
    ("errors_in_pieces_stay_whole", errors_in_pieces_stay_whole),
    ("input_goes_to_rank_0", input_goes_to_rank_0),
    ("signals_reach_every_rank", signals_reach_every_rank),
    ("a_job_can_be_suspended", a_job_can_be_suspended),
    ("the_key_is_invisible", the_key_is_invisible),
    ("wrapper_scripts_work", wrapper_scripts_work),
    ("start_and_stop_are_quick", start_and_stop_are_quick),
];

/// Goal: when all ranks have ended well, an agent that finds another one gone, while it sends what nobody waits for any more, is no
/// failure of the job.
fn agents_leave_in_any_order() {
    let ended = run("ranks=2 nodes=2 conduit=smp service=complains-at-the-end -- @ rank hello");
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
}

fn any_program_can_be_run() {
    let ended = run("ranks=4 nodes=2 -- true");
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
}

fn members_know_each_other() {
    for (shape, ranks) in [
        ("ranks=1", 1),
        ("ranks=4", 4),
        ("ranks=4 nodes=2 conduit=smp", 4),
        ("ranks=5 nodes=3 conduit=tcp", 5),
        ("ranks=3 label=yes", 3),
    ] {
        let ended = run(&format!("{shape} greeting=moin -- @ rank hello"));
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{shape}: {ended:?}");
        let line = |rank: u32| format!("hello rank {rank} of {ranks} on ");
        assert!((0..ranks).all(|rank| ended.stdout.contains(&line(rank))), "{shape}: {ended:?}");
        assert_eq!(ended.stdout.matches("Some(\"moin\")").count(), ranks as usize);
    }
}

/// The same suite as for ranks that are threads (`tests/in_process.rs`).
fn launched_ranks_conform() {
    for (shape, ranks) in [("ranks=1", 1), ("ranks=3", 3), ("ranks=3 nodes=2 conduit=tcp", 3)] {
        for case in conformance::CASES.iter().filter(|case| case.ranks_min <= ranks) {
            let ended = run(&format!("{shape} -- @ rank conform {}", case.name));
            let message = ended.stderr.lines().find_map(|line| line.strip_prefix("launcher: "));
            case.check(&JobStatus { code: ended.code as u8, message: message.map(Into::into) });
        }
    }
}

fn output_passes_unchanged() {
    let ended = run("ranks=1 -- @ rank chatter 2000");
    assert_eq!(ended.code, 0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2000);
    assert!(lines[1999].starts_with("line 1999 aaaa") && lines[1999].ends_with("aaaa end"));
    assert_eq!(ended.stderr.lines().count(), 2000);
}

fn labelled_lines_stay_whole() {
    let ended = run("ranks=3 nodes=2 conduit=smp label=yes -- @ rank chatter 300");
    assert_eq!(ended.code, 0, "{ended:?}");
    for rank in 0..3u8 {
        let own: Vec<&str> =
            ended.stdout.lines().filter_map(|line| line.strip_prefix(&format!("[rank {rank}] "))).collect();
        assert_eq!(own.len(), 300);
        for (number, line) in own.iter().enumerate() {
            let letters = (b'a' + rank) as char;
            assert_eq!(
                *line,
                format!("line {number} {} end", letters.to_string().repeat(50 * (1 + number % 5)))
            );
        }
        assert_eq!(ended.stderr.matches(&format!("[rank {rank}] error ")).count(), 300);
    }
    assert_eq!(ended.stdout.lines().count(), 900);
}

/// Goal: ranks that fail together are read, one after the other, whatever their programs do: `main` of a Rust program that returns
/// an error writes it in three pieces. Method: each rank writes many such lines; were they not put together, some would mix.
fn errors_in_pieces_stay_whole() {
    for shape in ["ranks=4", "ranks=4 nodes=2 conduit=smp"] {
        let ended = run(&format!("{shape} -- @ rank pieces 200"));
        assert_eq!(ended.code, 0, "{ended:?}");
        let mut counts = [0; 4];
        for line in ended.stderr.lines() {
            let rank = line.strip_prefix("Error: rank ").and_then(|rest| rest.strip_suffix(" has failed"));
            let rank = rank.and_then(|rank| rank.parse::<usize>().ok());
            counts[rank.unwrap_or_else(|| panic!("{shape}: {line:?}"))] += 1;
        }
        assert_eq!(counts, [200; 4], "{shape}");
    }
}

fn input_goes_to_rank_0() {
    let mut job = start_with_input("ranks=2 input=yes -- @ rank read", Stdio::piped());
    let mut input = job.input();
    input.write_all(b"first\n").unwrap();
    assert_eq!(job.lines("read ", 1), ["0 first"]);
    input.write_all(b"second\n").unwrap();
    drop(input);
    let ended = job.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("read 0 second") && ended.stdout.contains("eof 0"));
    assert!(ended.stdout.contains("eof 1") && !ended.stdout.contains("read 1"));
}

fn signals_reach_every_rank() {
    let job = start("ranks=3 nodes=2 conduit=smp -- @ rank catch");
    job.numbers("ready ", 3);
    job.signal(Signal::USR1);
    assert_eq!(job.numbers("signal ", 3), [10, 10, 10]);
    // A first Ctrl-C is the program's to handle.
    job.signal(Signal::INT);
    assert_eq!(job.numbers("signal ", 6)[3..], [2, 2, 2]);
    job.signal(Signal::USR2);
    assert_eq!(job.numbers("signal ", 9)[6..], [12, 12, 12]);
    // Signals before this one were handled by the ranks, and so is this: they end well.
    for rank in job.numbers("ready ", 3) {
        super::harness::kill(rank, Signal::TERM);
    }
    let ended = job.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
}

fn a_job_can_be_suspended() {
    let job = start("ranks=2 -- @ rank hang");
    let mut processes = job.numbers("pid ", 2);
    processes.push(job.pid());
    let all_are = |stopped: bool| {
        super::harness::until("ranks and launcher to stop or go on", || {
            processes.iter().all(|&pid| (super::harness::state(pid) == 'T') == stopped).then_some(())
        })
        .unwrap();
    };
    for _ in 0..2 {
        job.signal(Signal::TSTP);
        all_are(true);
        job.signal(Signal::CONT);
        all_are(false);
    }
    job.signal(Signal::INT);
    assert_eq!(job.end().code, 130);
}

/// The key is in no argument and no variable of any process, neither as bytes nor in hexadecimal.
fn the_key_is_invisible() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = super::harness::fake_ssh(&folder);
    let file = folder.path().join("key");
    for shape in ["conduit=smp".to_owned(), format!("conduit=tcp hosts=a,b ssh={}", ssh.display())] {
        let _ = std::fs::remove_file(&file);
        let job = start(&format!("ranks=2 nodes=2 {shape} -- @ rank key {}", file.display()));
        job.numbers("pid ", 2);
        let key = super::harness::until("the key", || std::fs::read(&file).ok()).unwrap();
        assert_eq!(key.len(), 32);
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let processes = job.processes();
        assert!(processes.len() >= 5, "launcher, two daemons, two ranks: {processes:?}");
        for pid in processes.keys() {
            for part in ["cmdline", "environ"] {
                let bytes = std::fs::read(format!("/proc/{pid}/{part}")).unwrap();
                assert!(!bytes.windows(8).any(|window| window == &key[..8]), "{part} of {processes:?}");
                assert!(!String::from_utf8_lossy(&bytes).to_lowercase().contains(&hex[..16]));
            }
        }
        job.signal(Signal::INT);
        assert_eq!(job.end().code, 130);
    }
}

/// A rank may be started by a shell script, but only one program of a rank may join.
fn wrapper_scripts_work() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("wrapper");
    std::fs::write(&script, "\"$@\"\n").unwrap();
    let ended = run(&format!("ranks=2 -- sh {} @ rank hello", script.display()));
    assert_eq!((ended.code, ended.stdout.lines().count()), (0, 2), "{ended:?}");
    std::fs::write(&script, "\"$@\"\n\"$@\"\n").unwrap();
    let ended = run(&format!("ranks=1 -- sh {} @ rank hello", script.display()));
    assert!(ended.code != 0 && ended.stderr.contains("only one program of a rank may join"), "{ended:?}");
}

/// Measured where it matters with `cargo test --release`; here only that nothing waits for a timeout. The bound is
/// wide because other tests may be running.
fn start_and_stop_are_quick() {
    for line in ["ranks=4 -- @ rank hello", "ranks=4 nodes=2 conduit=tcp -- @ rank hello", "ranks=4 -- true"]
    {
        let mut times: Vec<Duration> = (0..11).map(|_| run(line).time).collect();
        times.sort();
        print!(
            "[{line}: {:.1} ms, quickest {:.1}] ",
            times[5].as_secs_f64() * 1e3,
            times[0].as_secs_f64() * 1e3
        );
        assert!(times[0] < at_most(Duration::from_millis(150)), "{times:?}");
    }
}
