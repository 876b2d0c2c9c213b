//! A starter that speaks PMI-1, as `mpiexec.hydra` does, so that jobs whose ranks others have started need nothing installed.

use crate::{Capture, code_of, marked, until};
use rustix::process::Signal;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Behaviour of the starter's end of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// As the protocol says.
    Good,
    /// It answers so many lines and then nothing, but reads.
    StopsAfter(u32),
    /// It answers with bytes without end.
    Floods,
    /// It answers each line with something else.
    TalksNonsense,
    /// The number in `PMI_FD` is not open.
    Closed,
}

/// A job as a starter sees it.
#[derive(Debug)]
pub struct Started {
    ranks: Vec<Running>,
    mark: String,
    begun: Instant,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    code: Option<i32>,
    stdout: Capture,
    stderr: Capture,
}

/// End of a rank.
#[derive(Debug)]
pub struct RankEnded {
    /// The exit status, or 128 + signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The starter's requests, by command.
#[derive(Debug, Default)]
pub struct Counts(Mutex<BTreeMap<String, u32>>);

impl Counts {
    /// Returns the number of these requests.
    pub fn of(&self, command: &str) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(command).copied().unwrap_or(0)
    }
}

/// Longer than anything of a test may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Starts so many ranks, each of the command that is made for it.
///
/// # Panics
/// When the system refuses.
pub fn start(ranks: u32, manners: Manners, command: impl Fn(u32) -> Command) -> Started {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let space = format!("kvs_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let shared = Arc::new(Shared { ranks, space, state: Mutex::default() });
    let counts = Arc::new(Counts::default());
    let begun = Instant::now();
    let mut mark = String::new();
    let running = (0..ranks).map(|rank| {
        let mut command = command(rank);
        // One mark for the whole job.
        if mark.is_empty() {
            mark = crate::mark(&mut command);
        } else {
            command.env(crate::MARK, &mark);
        }
        let (ours, its) = UnixStream::pair().expect("a pair of sockets");
        let its = OwnedFd::from(its);
        let number = its.as_raw_fd();
        command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", ranks.to_string());
        command.env("PMI_FD", number.to_string()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let keep = manners != Manners::Closed;
        // SAFETY: between fork and exec, only a call that is async-signal-safe, on a number.
        unsafe {
            command.pre_exec(move || {
                if keep {
                    libc::fcntl(number, libc::F_SETFD, 0)
                } else {
                    libc::close(number)
                };
                Ok(())
            });
        }
        let mut child = command.spawn().expect("the rank starts");
        drop(its);
        let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let (shared, counts) = (shared.clone(), counts.clone());
        std::thread::spawn(move || serve(ours, &shared, &counts, manners));
        Running { child, code: None, stdout: Capture::new(stdout), stderr: Capture::new(stderr) }
    });
    let running = running.collect();
    Started { ranks: running, mark, begun, counts }
}

impl Started {
    /// The process of a rank.
    pub fn pid(&self, rank: usize) -> i32 {
        self.ranks[rank].child.id() as i32
    }

    /// All processes of the job, helpers included: pid and command line.
    pub fn processes(&self) -> BTreeMap<i32, String> {
        marked(&self.mark)
    }

    /// Those that are no ranks.
    pub fn helpers(&self) -> Vec<i32> {
        let ranks: Vec<i32> = (0..self.ranks.len()).map(|rank| self.pid(rank)).collect();
        self.processes().into_keys().filter(|pid| !ranks.contains(pid)).collect()
    }

    /// Returns the starter's requests.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Since the first rank was started.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits until each of these ranks has written a line that begins with `word`; what follows it.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn lines(&self, word: &str, ranks: impl IntoIterator<Item = usize>) -> Vec<String> {
        let line = |rank: usize| {
            until(TIMEOUT, || {
                let text = self.ranks[rank].stdout.text();
                let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
                whole.filter_map(|line| line.strip_prefix(word)).map(|rest| rest.trim().to_owned()).next()
            })
            .unwrap_or_else(|| panic!("rank {rank} says no {word:?}: {:?}", self.ranks[rank].stderr.text()))
        };
        ranks.into_iter().map(line).collect()
    }

    /// Waits until all ranks have ended, and checks that after this time nothing of the job is left.
    ///
    /// # Panics
    /// When a rank does not end, or something is left; that is killed first.
    pub fn end(mut self, left_after: Duration) -> Vec<RankEnded> {
        let ended = until(TIMEOUT, || {
            for rank in self.ranks.iter_mut().filter(|rank| rank.code.is_none()) {
                rank.code = rank.child.try_wait().expect("its child").map(code_of);
            }
            self.ranks.iter().all(|rank| rank.code.is_some()).then_some(())
        });
        let gone = ended.and_then(|()| until(left_after, || self.processes().is_empty().then_some(())));
        if gone.is_none() {
            let left = self.processes();
            left.keys().for_each(|&pid| crate::kill(pid, Signal::KILL));
            let said: Vec<String> = self.ranks.iter().map(|rank| rank.stderr.text()).collect();
            panic!("left behind: {left:?}; {said:?}");
        }
        let ended = self.ranks.into_iter().map(|rank| RankEnded {
            code: rank.code.unwrap_or(-1),
            stdout: rank.stdout.finish(),
            stderr: rank.stderr.finish(),
        });
        ended.collect()
    }
}

struct Shared {
    ranks: u32,
    space: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    values: HashMap<String, String>,
    /// Ranks in the barrier.
    inside: Vec<UnixStream>,
}

/// Answers one rank until it is gone.
fn serve(stream: UnixStream, shared: &Shared, counts: &Counts, manners: Manners) {
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut answered = 0;
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let words: HashMap<&str, &str> = line.split(' ').filter_map(|word| word.split_once('=')).collect();
        let command = words.get("cmd").copied().unwrap_or_default();
        let mut all = counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(command.to_owned()).or_default() += 1;
        drop(all);
        match manners {
            Manners::StopsAfter(lines) if answered >= lines => continue,
            Manners::Floods => while writer.write_all(&[b'f'; 1000]).is_ok() {},
            Manners::TalksNonsense => drop(writer.write_all(b"HTTP/1.1 400 Bad Request\r\n")),
            _ => {}
        }
        answered += 1;
        let Some(answer) = shared.answer(command, &words, &writer) else { continue };
        if writer.write_all(answer.as_bytes()).is_err() || command == "finalize" {
            return;
        }
    }
}

impl Shared {
    fn answer(&self, command: &str, words: &HashMap<&str, &str>, writer: &UnixStream) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let word = |name: &str| words.get(name).copied().unwrap_or_default();
        Some(match command {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n".into(),
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n".into(),
            "get_my_kvsname" => format!("cmd=my_kvsname kvsname={}\n", self.space),
            "put" => {
                state.values.insert(word("key").into(), word("value").into());
                "cmd=put_result rc=0 msg=success\n".into()
            }
            "get" => match state.values.get(word("key")) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}\n"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown\n".into(),
            },
            "barrier_in" => {
                state.inside.extend(writer.try_clone());
                if state.inside.len() == self.ranks as usize {
                    for mut inside in state.inside.drain(..) {
                        let _ = inside.write_all(b"cmd=barrier_out\n");
                    }
                }
                return None;
            }
            "finalize" => "cmd=finalize_ack\n".into(),
            _ => return None,
        })
    }
}
