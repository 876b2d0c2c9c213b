//! The PMI-1 wire protocol, as Hydra (`mpiexec`), Slurm (`srun --mpi=pmi2`) and Flux speak it on `PMI_FD`: lines of `name=value`
//! words, a question and an answer at a time. No library is needed for it.
//!
//! The other end is the starter's, but the number in `PMI_FD` may name anything, so what comes is held against what was asked,
//! lines have a bound, and every answer has a time within which it must come.

#![forbid(unsafe_code)]

use crate::control::timespec;
use crate::control::wait_for;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Longest line. Implementations allow values of 1024 bytes.
pub(super) const LINE_BYTES_MAX: usize = 8 << 10;

/// Fault of the other end, or of the line to it: for users, after "PMI: ".
pub(crate) type Wrong = String;

/// A session with the process manager, over a socket that the program's MPI may use before and after.
#[derive(Debug)]
pub(super) struct Wire {
    socket: OwnedFd,
    /// The space of keys, by the name that the process manager gave it. It names the job.
    pub(super) space: String,
    value_bytes_max: usize,
    timeout: Duration,
}

impl Wire {
    /// Begins a session. Every answer must come within `timeout`.
    pub(super) fn open(socket: OwnedFd, timeout: Duration) -> Result<Self, Wrong> {
        let wire = Self { socket, space: String::new(), value_bytes_max: 0, timeout };
        let answer = wire.ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init")?;
        answer.succeeded("init")?;
        if answer.word("pmi_version") != Some("1") {
            return Err(format!("it speaks version {}, not 1", answer.word("pmi_version").unwrap_or("?")));
        }
        wire.learn()
    }

    /// Goes on with a session that an MPI of this process has begun.
    pub(super) fn go_on(socket: OwnedFd, timeout: Duration) -> Result<Self, Wrong> {
        Self { socket, space: String::new(), value_bytes_max: 0, timeout }.learn()
    }

    /// Learns the limits and the space of keys.
    fn learn(self) -> Result<Self, Wrong> {
        let mut wire = self;
        let answer = wire.ask("cmd=get_maxes\n", "maxes")?;
        wire.value_bytes_max = answer.word("vallen_max").and_then(|text| text.parse().ok()).unwrap_or(0);
        let answer = wire.ask("cmd=get_my_kvsname\n", "my_kvsname")?;
        wire.space = answer.word("kvsname").unwrap_or_default().to_owned();
        match wire.space.is_empty() {
            true => Err("it names no space of keys".into()),
            false => Ok(wire),
        }
    }

    /// Publishes a value for other ranks, which see it after [`Wire::meet`].
    pub(super) fn put(&self, key: &str, value: &str) -> Result<(), Wrong> {
        if value.len() >= self.value_bytes_max {
            return Err(format!(
                "values may have {} bytes, {} are needed",
                self.value_bytes_max,
                value.len() + 1
            ));
        }
        let line = format!("cmd=put kvsname={} key={key} value={value}\n", self.space);
        self.ask(&line, "put_result")?.succeeded("put")
    }

    /// Waits until all ranks have come here.
    pub(super) fn meet(&self) -> Result<(), Wrong> {
        self.ask("cmd=barrier_in\n", "barrier_out")?.succeeded("barrier")
    }

    /// Returns another rank's value.
    pub(super) fn get(&self, key: &str) -> Result<String, Wrong> {
        let answer = self.ask(&format!("cmd=get kvsname={} key={key}\n", self.space), "get_result")?;
        answer.succeeded("get")?;
        let value = answer.word("value").filter(|value| !value.is_empty());
        value.map(str::to_owned).ok_or_else(|| format!("it has no value of {key}"))
    }

    /// Says that this process needs it no more. An MPI of this process may have said so before; then no
    /// answer comes.
    pub(super) fn leave(&self) {
        let _ = self.ask("cmd=finalize\n", "finalize_ack");
    }

    /// A duplicate of the socket.
    pub(super) fn copy_of_socket(&self) -> Result<OwnedFd, Wrong> {
        self.socket.try_clone().map_err(|error| error.to_string())
    }

    fn ask(&self, line: &str, wanted: &str) -> Result<Words, Wrong> {
        let until = Instant::now() + self.timeout;
        self.send(line.as_bytes(), until)?;
        let answer = Words::parse(&self.line(until)?)?;
        match answer.word("cmd") {
            Some(command) if command == wanted => Ok(answer),
            Some("abort") => Err("the process manager ends the job".into()),
            other => {
                Err(format!("{wanted:?} was to come, not {}", quoted(other.unwrap_or_default().as_bytes())))
            }
        }
    }

    fn send(&self, mut bytes: &[u8], until: Instant) -> Result<(), Wrong> {
        while !bytes.is_empty() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(&self.socket, bytes, flags) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(gone(errno)),
            }
        }
        Ok(())
    }

    /// One line, without its end. Nothing beyond it is taken: it would be for other users of the socket.
    fn line(&self, until: Instant) -> Result<Vec<u8>, Wrong> {
        let mut line = Vec::new();
        let mut piece = [0u8; 1024];
        loop {
            let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            let seen = match rustix::net::recv(&self.socket, &mut piece, look) {
                Ok((0, _)) => return Err("it has closed its end".into()),
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => {
                    self.wait(PollFlags::IN, until)?;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(gone(errno)),
            };
            let end = piece[..seen].iter().position(|&byte| byte == b'\n');
            let wanted = end.map_or(seen, |end| end + 1);
            let taken = match rustix::net::recv(&self.socket, &mut piece[..wanted], RecvFlags::DONTWAIT) {
                Ok((count, _)) => count,
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(errno) => return Err(gone(errno)),
            };
            line.extend_from_slice(&piece[..taken]);
            if line.last() == Some(&b'\n') {
                line.pop();
                return Ok(line);
            }
            if line.len() > LINE_BYTES_MAX {
                return Err(format!("a line of more than {LINE_BYTES_MAX} bytes came: {}", quoted(&line)));
            }
        }
    }

    fn wait(&self, flags: PollFlags, until: Instant) -> Result<(), Wrong> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!(
                "no answer within {} s: a rank has not come, or the starter hangs (run.start_timeout_ms says how \
                 long to wait)",
                self.timeout.as_secs_f32()
            ));
        }
        wait_for(self.socket.as_fd(), flags, Some(&timespec(left))).map_err(|error| error.to_string())
    }
}

pub(super) fn gone(errno: Errno) -> Wrong {
    match errno {
        Errno::CONNRESET | Errno::PIPE => "it has closed its end".into(),
        errno => std::io::Error::from(errno).to_string(),
    }
}

/// Quotes some of the received bytes, for users.
pub(super) fn quoted(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(60)]))
}

/// The words of a line.
#[derive(Debug)]
pub(super) struct Words(Vec<(String, String)>);

impl Words {
    /// Words are separated by spaces; the last may be a value or a message that contains some.
    pub(super) fn parse(line: &[u8]) -> Result<Self, Wrong> {
        let wrong = || format!("this is no line of the protocol: {}", quoted(line));
        let text = std::str::from_utf8(line).map_err(|_| wrong())?;
        if text.chars().any(char::is_control) {
            return Err(wrong());
        }
        let mut words: Vec<(String, String)> = Vec::new();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            match (word.split_once('='), words.last_mut()) {
                (Some((name, value)), _) => words.push((name.into(), value.into())),
                // Messages of errors have spaces in them, or underscores.
                (None, Some((_, value))) => *value = format!("{value} {word}"),
                (None, None) => return Err(wrong()),
            }
        }
        match words.first() {
            Some((name, _)) if name == "cmd" => Ok(Self(words)),
            _ => Err(wrong()),
        }
    }

    pub(super) fn word(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// An answer without a status is a success: few have one.
    fn succeeded(&self, what: &str) -> Result<(), Wrong> {
        match self.word("rc") {
            None | Some("0") => Ok(()),
            Some(code) => Err(format!(
                "{what} was refused with {code}: {}",
                self.word("msg").unwrap_or("no reason given")
            )),
        }
    }
}

/// Handles any bytes as the other end's part of a session: refused, or answers. For tests and fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn session_of(bytes: &[u8]) {
    let Ok((here, there)) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    ) else {
        return;
    };
    let _ = rustix::io::write(&there, &bytes[..bytes.len().min(32 << 10)]);
    let _ = rustix::net::shutdown(&there, rustix::net::Shutdown::Write);
    if let Ok(wire) = Wire::open(here, Duration::from_secs(2)) {
        let _ = wire.put("key", "value");
        let _ = wire.meet();
        let _ = wire.get("key");
        wire.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;

    /// A process manager that gives these answers, whatever it is asked, and then reads until the end.
    fn answering(answers: &'static [&'static str]) -> (OwnedFd, std::thread::JoinHandle<Vec<String>>) {
        let (here, there) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let mut writer = there.try_clone().unwrap();
            let mut lines = BufReader::new(there).lines().map_while(Result::ok);
            let mut asked = Vec::new();
            for answer in answers {
                asked.extend(lines.next());
                if writer.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
            asked
        });
        (here.into(), thread)
    }

    const BEGIN: [&str; 3] = [
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
        "cmd=my_kvsname kvsname=kvs_77_0\n",
    ];

    const SOON: Duration = Duration::from_secs(5);

    /// Goal: a whole session sends the protocol's requests, and takes its answers.
    #[test]
    fn a_session() {
        static ANSWERS: [&str; 7] = [
            BEGIN[0],
            BEGIN[1],
            BEGIN[2],
            "cmd=put_result rc=0 msg=success\n",
            "cmd=barrier_out\n",
            "cmd=get_result rc=0 msg=success value=5/ab=c\n",
            "cmd=finalize_ack\n",
        ];
        let (socket, thread) = answering(&ANSWERS);
        let wire = Wire::open(socket, SOON).unwrap();
        assert_eq!(wire.space, "kvs_77_0");
        wire.put("vgas", "5/ab=c").unwrap();
        wire.meet().unwrap();
        assert_eq!(wire.get("vgas").unwrap(), "5/ab=c");
        wire.leave();
        let asked = thread.join().unwrap();
        assert_eq!(
            asked,
            [
                "cmd=init pmi_version=1 pmi_subversion=1",
                "cmd=get_maxes",
                "cmd=get_my_kvsname",
                "cmd=put kvsname=kvs_77_0 key=vgas value=5/ab=c",
                "cmd=barrier_in",
                "cmd=get kvsname=kvs_77_0 key=vgas",
                "cmd=finalize"
            ]
        );
    }

    /// Goal: an answer of something else, a refusal, an end and a value too long are errors that say what came.
    #[test]
    fn wrong_answers_are_told() {
        let opened = |answers| {
            let (socket, thread) = answering(answers);
            let error = Wire::open(socket, SOON).unwrap_err();
            thread.join().unwrap();
            error
        };
        assert!(opened(&["HTTP/1.1 400 Bad Request\r\n"]).contains("no line of the protocol"));
        assert!(
            opened(&["cmd=barrier_out\n"]).contains("\"response_to_init\" was to come, not \"barrier_out\"")
        );
        assert!(opened(&["cmd=response_to_init pmi_version=2 rc=0\n"]).contains("version 2"));
        assert!(opened(&["cmd=response_to_init rc=-1 msg=no such thing\n"]).contains("no such thing"));
        assert!(opened(&[]).contains("closed its end"));
        let (socket, thread) = answering(&BEGIN);
        let wire = Wire::open(socket, SOON).unwrap();
        let error = wire.put("key", &"x".repeat(1024)).unwrap_err();
        assert!(error.contains("values may have 1024 bytes, 1025 are needed"), "{error}");
        drop(wire);
        thread.join().unwrap();
    }

    /// Goal: a silent peer and a flooding one are given up, within the time and with bounded memory.
    #[test]
    fn silence_and_floods_end() {
        let (here, there) = UnixStream::pair().unwrap();
        let begun = Instant::now();
        let error = Wire::open(here.into(), Duration::from_millis(50)).unwrap_err();
        assert!(error.contains("no answer within 0.05 s"), "{error}");
        assert!(begun.elapsed() < SOON);
        drop(there);
        let (here, mut there) = UnixStream::pair().unwrap();
        let flood = std::thread::spawn(move || while there.write_all(&[b'x'; 4096]).is_ok() {});
        let error = Wire::open(here.into(), SOON).unwrap_err();
        assert!(error.contains("a line of more than"), "{error}");
        flood.join().unwrap();
    }

    /// Goal: bytes behind the answer stay in the socket, for an MPI that uses it next.
    #[test]
    fn nothing_beyond_the_answer_is_taken() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let copy = here.try_clone().unwrap();
        there.write_all(BEGIN.concat().as_bytes()).unwrap();
        there.write_all(b"for another\n").unwrap();
        let _wire = Wire::open(here.into(), SOON).unwrap();
        let mut line = String::new();
        BufReader::new(copy).read_line(&mut line).unwrap();
        assert_eq!(line, "for another\n");
    }

    proptest! {
        /// Goal: no bytes make it panic or wait.
        #[test]
        fn any_bytes_are_answers_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            session_of(&bytes);
        }

        /// Goal: nor do lines that are nearly right.
        #[test]
        fn nearly_right_lines_too(words in proptest::collection::vec("(cmd|rc|kvsname|value|vallen_max)=[ -~]{0,20}", 0..12)) {
            session_of(format!("{}{}\n", BEGIN.concat(), words.join(" ")).as_bytes());
            session_of(words.join("\n").as_bytes());
        }
    }
}
