//! Starts the command in a folder of its own and looks at what it leaves.

use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vgas_testing::{Capture, at_most, marked};

pub use vgas_testing::kill;

/// What users wait at most, on a machine of their own.
const END_MAX: Duration = Duration::from_secs(5);

/// Longer than anything here may take, on a machine that does other things, too.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A folder to work in, with another for the segment files. Both vanish.
pub struct Place {
    folder: tempfile::TempDir,
}

/// A command that runs.
pub struct Job {
    child: Child,
    mark: String,
    nvm: PathBuf,
    output: [Capture; 2],
    begun: Instant,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit status, or 128 + signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// From the start, or from [`Job::mishap`], to the end.
    pub time: Duration,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("nvm")).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The names in the folder, but for that of the segment files.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "nvm");
        names.sort();
        names
    }

    /// The command, in an environment without settings but for the folder of segment files.
    pub fn command(&self, words: &str) -> Command {
        self.shell(Path::new(env!("CARGO_BIN_EXE_vgas")), words)
    }

    /// Any program with these words, in the same environment.
    pub fn shell(&self, program: &Path, words: &str) -> Command {
        let mut command = Command::new(program);
        command.args(words.split_whitespace()).current_dir(self.folder.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("VGAS_") {
                command.env_remove(name);
            }
        }
        command.env("VGAS_NVM_DIRECTORY", self.path("nvm"));
        command
    }

    /// Starts the command.
    pub fn start(&self, words: &str) -> Job {
        Job::of(self.command(words), self.path("nvm"))
    }

    /// Starts a job whose ranks are [`super::rank`] with this mode, and waits until they are at work.
    pub fn start_ranks(&self, mode: &str, ranks: usize, words: &str) -> Job {
        let job = self.ranks(mode, ranks, words);
        job.wait_for_lines("ready", ranks);
        job
    }

    /// Starts a job whose ranks are [`super::rank`] with this mode.
    pub fn ranks(&self, mode: &str, ranks: usize, words: &str) -> Job {
        let mut command = self.command(&Self::line_of_ranks(ranks, words));
        command.env(super::rank::MODE, mode);
        Job::of(command, self.path("nvm"))
    }

    /// The words of the command for [`Place::ranks`].
    pub fn line_of_ranks(ranks: usize, words: &str) -> String {
        let this = std::env::current_exe().unwrap();
        format!(
            "run -n {ranks} --cache 2MiB --page 4KiB --set segment.tiered_max=64MiB {words} -- {} --exact \
             rank::rank_of_the_other_tests --nocapture",
            this.display()
        )
    }

    /// The command is to end with this status and one line that contains all these words.
    #[track_caller]
    pub fn refused(&self, words: &str, code: i32, expected: &[&str]) {
        self.start(words).end().refused(code, expected);
    }
}

impl Job {
    pub fn of(mut command: Command, nvm: PathBuf) -> Self {
        let mark = vgas_testing::mark(&mut command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = [Capture::new(child.stdout.take().unwrap()), Capture::new(child.stderr.take().unwrap())];
        Self { child, mark, nvm, output, begun: Instant::now() }
    }

    pub fn launcher(&self) -> i32 {
        self.child.id() as i32
    }

    /// The daemons of the job, in the order of their processes.
    pub fn daemons(&self) -> Vec<i32> {
        self.processes_with("\0node\0")
    }

    /// The ranks of [`Place::start_ranks`].
    pub fn ranks(&self) -> Vec<i32> {
        self.processes_with("\0rank::rank_of_the_other_tests\0")
            .into_iter()
            .filter(|&pid| pid != self.launcher())
            .collect()
    }

    fn processes_with(&self, word: &str) -> Vec<i32> {
        let all = marked(&self.mark);
        all.iter().filter(|(_, command)| command.contains(word)).map(|(&pid, _)| pid).collect()
    }

    /// All processes of the job.
    pub fn processes(&self) -> Vec<i32> {
        marked(&self.mark).into_keys().collect()
    }

    /// Standard output so far.
    pub fn stdout(&self) -> String {
        self.output[0].text()
    }

    /// What the job has written to standard error so far.
    pub fn said(&self) -> String {
        self.output[1].text()
    }

    /// Waits until so many lines of the output are this word.
    pub fn wait_for_lines(&self, word: &str, count: usize) {
        let found = until(|| {
            let text = self.output[0].text();
            (text.lines().filter(|line| *line == word).count() >= count).then_some(())
        });
        assert!(
            found.is_some(),
            "no {count} lines {word:?}: {:?} {:?}",
            self.output[0].text(),
            self.output[1].text()
        );
    }

    /// Ctrl-C as often as it takes: signals that are pending at the same time are one.
    pub fn interrupt_until_it_ends(&mut self) {
        self.mishap(|_| {});
        let ended = until(|| {
            kill(self.launcher(), Signal::INT);
            // Not waited for, so that its number stays its own.
            (vgas_testing::state(self.launcher()) == Some('Z')).then_some(())
        });
        assert!(ended.is_some(), "the launcher does not end");
    }

    /// Something happens to the job now: the time until its end counts from here.
    pub fn mishap(&mut self, what: impl FnOnce(&Self)) {
        self.begun = Instant::now();
        what(self);
    }

    /// Waits for the end and checks that nothing is left.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let status = until(|| self.child.try_wait().unwrap());
        let time = self.begun.elapsed();
        // Processes of a job whose launcher was killed are ended by others, soon.
        let gone = status.and_then(|_| {
            vgas_testing::until(at_most(END_MAX), || self.processes().is_empty().then_some(()))
        });
        let left = marked(&self.mark);
        left.keys().for_each(|&pid| kill(pid, Signal::KILL));
        let [stdout, stderr] = self.output.map(Capture::finish);
        let status = status.unwrap_or_else(|| panic!("hangs: {left:?}\n{stdout}\n{stderr}"));
        assert!(gone.is_some(), "left behind: {left:?}\n{stdout}\n{stderr}");
        let files: Vec<_> =
            fs::read_dir(&self.nvm).into_iter().flatten().flatten().map(|e| e.path()).collect();
        assert!(files.is_empty(), "scratch files: {files:?}");
        Ended { code: vgas_testing::code_of(status), stdout, stderr, time }
    }
}

impl Ended {
    /// Ended in time with this status and one line that contains all these words; a hint and a log may follow.
    #[track_caller]
    pub fn refused(&self, code: i32, expected: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        let lines: Vec<_> = self.stderr.lines().filter(|line| line.starts_with("vgas: ")).collect();
        assert_eq!(lines.len(), 1, "{self:?}");
        let hints: String = self.stderr.lines().filter(|line| line.starts_with("hint: ")).collect();
        let said = format!("{} {hints}", lines[0]);
        assert!(expected.iter().all(|word| said.contains(word)), "{expected:?} in {self:?}");
        assert!(self.stderr.lines().count() <= 6, "a flood: {self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        assert!(self.time < at_most(END_MAX), "{self:?}");
    }
}

/// Waits for a condition, with a bound.
pub fn until<T>(condition: impl FnMut() -> Option<T>) -> Option<T> {
    vgas_testing::until(TIMEOUT, condition)
}

/// A .npy file of zeros.
pub fn matrix(path: &Path, rows: usize, columns: usize) {
    npy(path, "<f8", &format!("({rows}, {columns})"), rows * columns * 8);
}

/// A .npy file with this header and so many bytes of data.
pub fn npy(path: &Path, descr: &str, shape: &str, bytes: usize) {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    header.extend(std::iter::repeat_n(' ', 127 - 10 - header.len()));
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    file.resize(file.len() + bytes, 0);
    fs::write(path, file).unwrap();
}
