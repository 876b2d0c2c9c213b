//! Runs the tests, and what they start: launchers with chosen specifications, watched from outside.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use vgas_job::{Membership, NodeService, RunSpec, ServiceError, Starter, Stop};
use vgas_rma::Layout;
use vgas_rma::Peer;
use vgas_rma::RegionId;
use vgas_rma::RmaError;
use vgas_rma::domain::RegionSpec;
use vgas_testing::{Capture, marked};

pub use vgas_testing::kill;

/// A test: its name and what it does.
pub type Test = (&'static str, fn());

/// Longer than anything here may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the tests whose names contain one of the words, as libtest would.
pub fn run_tests(arguments: &[String], tests: &[Test]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let words: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen: Vec<&Test> = tests
        .iter()
        .filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(*word)))
        .collect();
    println!("\nrunning {} tests", chosen.len());
    let mut failed = Vec::new();
    let begun = Instant::now();
    for (name, test) in &chosen {
        print!("test {name} ... ");
        let _ = std::io::stdout().flush();
        let result = std::panic::catch_unwind(test);
        println!("{}", if result.is_ok() { "ok" } else { "FAILED" });
        if result.is_err() {
            failed.push(name);
        }
    }
    let (verdict, passed) = (if failed.is_empty() { "ok" } else { "FAILED" }, chosen.len() - failed.len());
    let filtered = tests.len() - chosen.len();
    println!(
        "\ntest result: {verdict}. {passed} passed; {} failed; 0 ignored; 0 measured; {filtered} filtered out; \
         finished in {:.2}s\n",
        failed.len(),
        begun.elapsed().as_secs_f32()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// The role `launch`: `ranks=4 nodes=2 … -- program arguments`.
pub fn launch(arguments: &[String]) -> ExitCode {
    let mut words = arguments.split(|word| word == "--");
    let options = words.next().unwrap_or_default();
    let program = arguments.get(options.len() + 1..).unwrap_or_default();
    let mut spec = RunSpec::new(&program[0], 1);
    spec.arguments = program[1..].iter().map(OsString::from).collect();
    spec.input = false;
    for option in options {
        let (name, value) = option.split_once('=').expect("name=value");
        let number = || value.parse().expect("a number");
        match name {
            "ranks" => spec.ranks = number(),
            "nodes" => spec.nodes = number(),
            "conduit" => spec.conduit = value.into(),
            "label" => spec.label = true,
            "input" => spec.input = true,
            "hosts" => spec.hosts = value.split(',').map(String::from).collect(),
            "ssh" => spec.starter = Starter::Ssh(vec![value.into()]),
            "srun" => spec.starter = Starter::Srun(vec![value.into()]),
            "placement" => {
                spec.placement = value.split(',').map(|ranks| ranks.parse().expect("a number")).collect()
            }
            "pmi" => spec.pmi = value == "on",
            "port" => spec.ports = Some(value.parse().expect("a port")..=value.parse().expect("a port")),
            "seconds" => spec.connect_timeout = Duration::from_secs_f32(value.parse().expect("seconds")),
            setting => drop(spec.settings.insert(setting.into(), value.into())),
        }
    }
    if let Ok(layout) = spec.layout() {
        spec.regions = (0..layout.peers())
            .map(|peer| RegionSpec { owner: Peer(peer), region: RegionId::SEGMENT, bytes: 1 << 16 })
            .collect();
    }
    let status = match vgas_job::run(&spec) {
        Ok(status) => status,
        Err(error) => vgas_job::JobStatus { code: 2, message: Some(error.to_string()) },
    };
    if let Some(message) = status.message {
        eprintln!("launcher: {message}");
    }
    ExitCode::from(status.code)
}

/// The role `node`: a daemon with a service that does what the setting `service` says.
pub fn node() -> ExitCode {
    // SAFETY: no library runs in these jobs.
    match unsafe { vgas_job::node_main(Box::new(TestService::default())) } {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("node: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A service that can fail in each way.
#[derive(Default)]
struct TestService {
    membership: Option<Membership>,
}

impl TestService {
    fn behaviour(&self) -> &str {
        let settings = self.membership.as_ref().map(|member| &member.settings);
        settings.and_then(|settings| settings.get("service")).map_or("", String::as_str)
    }
}

impl NodeService for TestService {
    fn start(&mut self, membership: Membership) -> Result<(), ServiceError> {
        assert_eq!(membership.me(), membership.layout().agent_of(membership.node()));
        // Ranks check that this was written before their `join` returned.
        let region = membership.domain.map(membership.me(), RegionId::SEGMENT)?;
        region.write(0, b"started");
        // Kept, because its listener has to be there.
        self.membership = Some(membership);
        match self.behaviour() {
            "fails-to-start" => Err("no space on the device".into()),
            _ => Ok(()),
        }
    }

    fn regions(
        &self,
        _: &BTreeMap<String, String>,
        layout: &Layout,
    ) -> Result<Vec<RegionSpec>, ServiceError> {
        let region = |peer| RegionSpec { owner: Peer(peer), region: RegionId::SEGMENT, bytes: 1 << 16 };
        Ok((0..layout.peers()).map(region).collect())
    }

    fn run(&mut self, stop: &Stop) -> Result<(), ServiceError> {
        let node = self.membership.as_ref().map(|member| member.node().0);
        match (self.behaviour(), node) {
            ("fails", Some(0)) => Err("the disk is on fire".into()),
            ("panics", Some(0)) => panic!("an impossible state"),
            // Agents leave in any order: one that still sends finds another one gone.
            ("complains-at-the-end", Some(0)) => {
                stop.wait()?;
                let (peer, who) = (Peer(3), "the agent of node 1".into());
                let (during, reason) = ("sending".into(), "Broken pipe".into());
                Err(RmaError::PeerLost { peer, who, during, reason }.into())
            }
            _ => Ok(stop.wait()?),
        }
    }
}

/// A launcher that runs, and what it has written so far.
pub struct Job {
    child: Child,
    mark: String,
    /// What is behind a lost connection ends by itself, soon.
    remote: bool,
    stdout: Capture,
    stderr: Capture,
    begun: Instant,
}

/// How a launcher ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit status, or 128 + signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// From start to end.
    pub time: Duration,
}

/// Starts a launcher. Options and program are one line of words: `ranks=2 -- prog`; `@` stands for this binary.
pub fn start(line: &str) -> Job {
    start_with_input(line, Stdio::null())
}

/// As [`start`], with a standard input.
pub fn start_with_input(line: &str, input: Stdio) -> Job {
    start_in(line, input, &[])
}

/// As [`start`], with a standard input and variables around the launcher.
pub fn start_in(line: &str, input: Stdio, variables: &[(&str, &str)]) -> Job {
    let this = std::env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    let words =
        line.split(' ').filter(|word| !word.is_empty()).map(|word| if word == "@" { this } else { word });
    let mut command = Command::new(this);
    let mark = vgas_testing::mark(&mut command);
    let mut child = command
        .arg("launch")
        .args(words)
        .env_remove("SSH_CONNECTION")
        .envs(variables.iter().copied())
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let remote = line.contains("hosts=");
    Job {
        child,
        mark,
        remote,
        stdout: Capture::new(stdout),
        stderr: Capture::new(stderr),
        begun: Instant::now(),
    }
}

/// Runs a launcher to its end.
pub fn run(line: &str) -> Ended {
    start(line).end()
}

impl Job {
    /// The launcher's process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The launcher's standard input.
    pub fn input(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Waits until the output has `count` lines that begin with `word`, and returns what follows it in them.
    pub fn lines(&self, word: &str, count: usize) -> Vec<String> {
        until(&format!("{count} lines with {word:?}"), || {
            let text = self.stdout.text();
            // Only whole lines.
            let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let found: Vec<String> =
                lines.filter_map(|line| line.strip_prefix(word)).map(|rest| rest.trim().to_owned()).collect();
            (found.len() >= count).then_some(found)
        })
        .unwrap_or_else(|| panic!("stdout {:?} stderr {:?}", self.stdout.text(), self.stderr.text()))
    }

    /// Numbers after `word`.
    pub fn numbers(&self, word: &str, count: usize) -> Vec<i32> {
        self.lines(word, count).iter().map(|line| line.parse().unwrap()).collect()
    }

    /// Sends a signal to the launcher.
    pub fn signal(&self, signal: rustix::process::Signal) {
        kill(self.pid(), signal);
    }

    /// The processes of this job, launcher included: pid and command line.
    pub fn processes(&self) -> BTreeMap<i32, String> {
        marked(&self.mark)
    }

    /// The daemons of the job.
    pub fn daemons(&self) -> Vec<i32> {
        let all = self.processes();
        all.iter().filter(|(_, command)| command.contains("\0node\0")).map(|(&pid, _)| pid).collect()
    }

    /// Waits for the end of the launcher and checks that nothing is left of its job.
    pub fn end(mut self) -> Ended {
        let status = until("the end of the launcher", || self.child.try_wait().unwrap());
        let time = self.begun.elapsed();
        let Some(status) = status else {
            let left = self.processes();
            for &pid in left.keys() {
                kill(pid, rustix::process::Signal::KILL);
            }
            panic!("the job hangs: {left:?} stdout {:?} stderr {:?}", self.stdout.text(), self.stderr.text());
        };
        // A launcher that ended by itself has waited for everything on this machine.
        let at_once = status.code().is_some() && !self.remote;
        self.nothing_is_left(if at_once { Duration::ZERO } else { Duration::from_secs(2) });
        let code = vgas_testing::code_of(status);
        Ended { code, stdout: self.stdout.finish(), stderr: self.stderr.finish(), time }
    }

    /// Checks that within this time no process of the job is left.
    fn nothing_is_left(&self, time: Duration) {
        if vgas_testing::until(time, || self.processes().is_empty().then_some(())).is_none() {
            let left = self.processes();
            left.keys().for_each(|&pid| kill(pid, rustix::process::Signal::KILL));
            panic!("left behind: {left:?} stdout {:?} stderr {:?}", self.stdout.text(), self.stderr.text());
        }
    }
}

/// The state of a process, as `ps` shows it: `T` when it is stopped.
pub fn state(pid: i32) -> char {
    vgas_testing::state(pid).expect("the process is there")
}

/// Waits for a condition, with a bound.
pub fn until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> Option<T> {
    let found = vgas_testing::until(TIMEOUT, condition);
    if found.is_none() {
        eprintln!("gave up waiting for {what}");
    }
    found
}

/// A file that stands for ssh: called with a host and a command line, as ssh is.
pub fn fake_ssh(folder: &tempfile::TempDir) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.path().join("ssh");
    let script = "#!/bin/sh\n\
        host=$1; shift\n\
        case $host in\n\
        down) echo \"ssh: connect to host down port 22: Connection refused\" >&2; exit 255;;\n\
        silent) exec sleep 1000;;\n\
        chatty) echo \"Welcome to chatty!\";;\n\
        esac\n\
        exec sh -c \"$*\"\n";
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}
