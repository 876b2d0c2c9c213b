//! The programs of `objects/examples` in whole jobs: right results, wrong flags and files, and ranks that are killed.
//!
//! This program is all of them, the daemon of a node, and what `vgas run` is: which one, the name says by which it was started. So the
//! programs that are tested are those of this build. Arguments select tests by a part of their name.

// Each program has its own, as it has when it is built by itself.
#![allow(clippy::duplicate_mod)]

#[path = "../../examples/dataframe/main.rs"]
mod dataframe;
#[path = "../../examples/first.rs"]
mod first;
#[path = "../../examples/kv/main.rs"]
mod kv;
mod lines;
#[path = "../../examples/matrix/main.rs"]
mod matrix;
#[path = "../../examples/socialnet/main.rs"]
mod socialnet;

use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use vgas::config::{Config, FlagValue, Sources};
use vgas::launch::{JobRequest, run};
use vgas_testing::{Capture, at_most, code_of, job_within_bound, kill, mark, marked, until};

type Outcome<T = ()> = Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let name = Path::new(&arguments[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
    match (name.as_str(), arguments.get(1).map(String::as_str)) {
        ("dataframe", _) => dataframe::main(),
        ("first", _) => first::main().map_or_else(|why| failed(&why.to_string()), |()| ExitCode::SUCCESS),
        ("kv", _) => kv::main(),
        ("matrix", _) => matrix::main(),
        ("socialnet", _) => socialnet::main(),
        (_, Some("node")) => match vgas::service::node_main_with(vgas_objects::services()) {
            Ok(code) => ExitCode::from(code),
            Err(error) => failed(&error.to_string()),
        },
        (_, Some("run")) => launch(&arguments[2..]).unwrap_or_else(|why| failed(&why)),
        _ => all(&arguments[1..]),
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

/// What `vgas run` does: ranks, nodes, the cache of each, the program, and its arguments.
fn launch(words: &[String]) -> Outcome<ExitCode> {
    let [ranks, nodes, cache, program, arguments @ ..] = words else { return Err("too few words".into()) };
    let number = |word: &String| word.parse::<u32>().map_err(|why| format!("{word}: {why}"));
    let settings = BTreeMap::from([("cache.size", cache.as_str()), ("cache.page", "16KiB")]);
    let flag = |(name, text): (&'static str, &str)| FlagValue {
        flag: "--set".into(),
        name: name.into(),
        text: text.into(),
    };
    let flags = settings.into_iter().map(flag).collect();
    let sources = Sources { file: None, environment: Vec::new(), flags };
    let config = Config::load(&sources).map_err(|error| error.to_string())?;
    let status = run(JobRequest {
        program: program.into(),
        name: None,
        arguments: arguments.iter().map(Into::into).collect(),
        ranks: number(ranks)?,
        nodes: number(nodes)?,
        hosts: Vec::new(),
        allocation: None,
        environment: Vec::new(),
        daemon: Vec::new(),
        settings: config.settings().clone(),
    })
    .map_err(|error| error.to_string())?;
    if let Some(message) = status.message {
        eprintln!("vgas: {message}");
    }
    Ok(ExitCode::from(status.code))
}

/// Where the programs are: names of this one.
struct Programs {
    folder: tempfile::TempDir,
}

/// How a job, or a program by itself, has ended.
struct Ended {
    code: i32,
    output: String,
    errors: String,
    mark: String,
}

impl Programs {
    fn new() -> Outcome<Self> {
        let folder = tempfile::tempdir().map_err(|why| why.to_string())?;
        let own = std::env::current_exe().map_err(|why| why.to_string())?;
        for name in ["dataframe", "first", "kv", "matrix", "socialnet"] {
            std::os::unix::fs::symlink(&own, folder.path().join(name)).map_err(|why| why.to_string())?;
        }
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file for a program to read.
    fn file(&self, name: &str, text: &str) -> Outcome<String> {
        std::fs::write(self.path(name), text).map_err(|why| why.to_string())?;
        Ok(self.path(name).to_string_lossy().into_owned())
    }

    /// Runs a program in a job of so many ranks, nodes, and so large a cache, or by itself. `meanwhile` is told its mark.
    fn run(
        &self,
        job: Option<(u32, u32, &str)>,
        words: &str,
        meanwhile: impl FnOnce(&str) -> Outcome,
    ) -> Outcome<Ended> {
        let mut words = words.split(' ').filter(|word| !word.is_empty());
        let program = self.path(words.next().unwrap_or_default());
        let mut command = match job {
            None => Command::new(program),
            Some((ranks, nodes, cache)) => {
                let mut command = Command::new(std::env::current_exe().map_err(|why| why.to_string())?);
                command.args(["run", &ranks.to_string(), &nodes.to_string(), cache]).arg(program);
                command
            }
        };
        let mark = mark(&mut command);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| why.to_string())?;
        let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err("pipes are there".into());
        };
        let (output, errors) = (Capture::new(output), Capture::new(errors));
        let met = meanwhile(&mark);
        let status = child.wait().map_err(|why| why.to_string())?;
        met?;
        Ok(Ended { code: code_of(status), output: output.finish(), errors: errors.finish(), mark })
    }

    fn job(&self, job: (u32, u32, &str), words: &str) -> Outcome<Ended> {
        self.run(Some(job), words, |_| Ok(()))
    }

    fn alone(&self, words: &str) -> Outcome<Ended> {
        self.run(None, words, |_| Ok(()))
    }
}

impl Ended {
    /// It has ended well, and verified.
    fn ends_verified(self) -> Outcome {
        let is_verified = self.output.lines().any(|line| line.starts_with("verified"));
        if self.code != 0 || !is_verified || !self.errors.is_empty() {
            return Err(format!("status {}: {}{}", self.code, self.output, self.errors));
        }
        self.left_nothing()
    }

    /// It has ended with this status, and one line that has these words.
    fn complains(self, code: i32, words: &str) -> Outcome {
        if self.code != code || !self.errors.contains(words) || self.errors.lines().count() != 1 {
            let Self { code: found, output, errors, .. } = self;
            return Err(format!("status {found} instead of {code}, without {words:?}: {output}{errors}"));
        }
        self.left_nothing()
    }

    /// It has ended since a rank was killed, which one line says; others, which the end has caught in the middle, may say that.
    fn ends_killed(self) -> Outcome {
        // The library of a rank that has used pages whose agent is gone, or cannot hear of a task, or tell workers.
        const OF_THE_END: [&str; 2] = ["lost rank ", "the agent of this node has ended"];
        let is_late =
            |line: &&str| line.starts_with("vgas: ") && OF_THE_END.iter().any(|words| line.contains(words));
        let own = self.errors.lines().filter(|line| !is_late(line));
        let own: Vec<_> = own.collect();
        if self.code <= 128 || own.len() != 1 || !own[0].contains("was killed by signal ") {
            return Err(format!("status {}: {}{}", self.code, self.output, self.errors));
        }
        self.left_nothing()
    }

    fn left_nothing(&self) -> Outcome {
        match until(at_most(Duration::from_secs(2)), || marked(&self.mark).is_empty().then_some(())) {
            Some(()) => Ok(()),
            None => Err(format!("left behind: {:?}", marked(&self.mark))),
        }
    }
}

/// Goal: each program computes the same as its version on std: on one rank, on four of two nodes, and beyond its cache.
fn results(programs: &Programs) -> Outcome {
    const CACHE: &str = "64MiB";
    for (job, words) in [
        ((1, 1, CACHE), "kv --records 3000 --operations 6000 --batch 1000"),
        ((4, 2, CACHE), "kv --records 3000 --operations 6000 --batch 500 --workload d"),
        ((4, 2, CACHE), "kv --records 3000 --operations 2000 --batch 250 --workload e"),
        // Records of 8 MiB in a cache of 2 on each of two nodes.
        ((2, 2, "2MiB"), "kv --records 8000 --operations 2000 --batch 500 --value 1024 --workload f"),
        ((1, 1, CACHE), "dataframe --rows 20000 --threads 2"),
        ((4, 2, CACHE), "dataframe --rows 140000 --groups 50 --questions 1,3,6,8,10"),
        ((4, 2, CACHE), "dataframe --rows 30000 --joins"),
        ((1, 1, "2MiB"), "dataframe --rows 140000 --questions 2,6,10"),
        ((1, 1, CACHE), "socialnet --users 500 --edges 3000 --operations 5000"),
        ((4, 2, CACHE), "socialnet --users 500 --edges 3000 --operations 8000 --batch 500 --theta 0.9"),
        ((1, 1, "2MiB"), "socialnet --users 2000 --edges 20000 --operations 20000 --batch 2000"),
        ((1, 1, CACHE), "matrix --size 96 --tile 32"),
        ((4, 2, CACHE), "matrix --size 128 --tile 16 --levels 1"),
        ((4, 2, CACHE), "matrix --size 120 --tile 15 --numbers i32 --levels 2"),
        ((1, 1, "2MiB"), "matrix --size 512 --tile 64"),
    ] {
        let ended = programs.job(job, &format!("{words} --verify --heap 128MiB"))?;
        ended.ends_verified().map_err(|why| format!("{words} on {job:?}: {why}"))?;
    }
    Ok(())
}

/// Goal: the program that users begin with has the right mean, of a heap that is several times the cache and of one that is not.
fn first_program(programs: &Programs) -> Outcome {
    for (job, thousands, mean) in [((1, 1, "64MiB"), 100, "50957.000"), ((4, 2, "2MiB"), 200, "400082.000")] {
        let ended = programs.job(job, &format!("first {thousands}"))?;
        if ended.code != 0 || ended.output != format!("the mean of sensor 7 is {mean}\n") {
            return Err(format!("{job:?}: status {}: {}{}", ended.code, ended.output, ended.errors));
        }
        ended.left_nothing()?;
    }
    Ok(())
}

/// Goal: stores that keep pages coherent, or answer by messages, answer rightly, too: programs are compared with them.
fn baselines(programs: &Programs) -> Outcome {
    for words in [
        "kv --store coherent --workload f",
        "kv --store delegated --workload f",
        "kv --store delegated --workload a",
    ] {
        let ended = programs
            .job((2, 2, "64MiB"), &format!("{words} --records 2000 --operations 2000 --batch 500"))?;
        if ended.code != 0 || !ended.errors.is_empty() || !ended.output.contains("2000 requests") {
            return Err(format!("{words}: status {}: {}{}", ended.code, ended.output, ended.errors));
        }
    }
    Ok(())
}

/// Goal: figures are rows of the form that all benchmarks have; a generated file is read as what was written.
fn figures(programs: &Programs) -> Outcome {
    let (json, table) = (programs.path("figures.json"), programs.path("table.csv"));
    let ended =
        programs.alone(&format!("dataframe --rows 3000 --groups 10 --write-csv {}", table.display()))?;
    if ended.code != 0 {
        return Err(format!("status {}: {}", ended.code, ended.errors));
    }
    let words =
        format!("dataframe --csv {} --verify --heap 64MiB --json {}", table.display(), json.display());
    programs.job((2, 2, "64MiB"), &words)?.ends_verified()?;
    let text = std::fs::read(&json).map_err(|why| why.to_string())?;
    let rows: Vec<serde_json::Map<String, serde_json::Value>> =
        serde_json::from_slice(&text).map_err(|why| why.to_string())?;
    let names = ["bench", "case", "machine", "metric", "params", "samples", "unit", "value"];
    let is_right = rows.iter().all(|row| {
        let mut found: Vec<_> = row.keys().map(String::as_str).collect();
        found.sort_unstable();
        found == names
    });
    // The same table, generated: the same answers.
    let read = programs.alone(&format!("dataframe --plain --csv {}", table.display()))?;
    let generated = programs.alone("dataframe --plain --rows 3000 --groups 10")?;
    let sums = |ended: &Ended| -> Vec<String> {
        ended.output.lines().filter_map(|line| Some(line.split_once(" rows; ")?.1.to_owned())).collect()
    };
    match is_right && rows.len() == 13 && sums(&read).len() == 10 && sums(&read) == sums(&generated) {
        true => Ok(()),
        false => Err(format!("{rows:?}\n{}\n{}", read.output, generated.output)),
    }
}

/// Goal: a file that is broken is said to be, in one line, with the line where it is.
fn files(programs: &Programs) -> Outcome {
    const HEADER: &str = "id1,id2,id3,id4,id5,id6,v1,v2,v3";
    const ROW: &str = "id001,id002,id0000000003,4,5,6,1,2,3.5";
    let huge = "x".repeat(10_000);
    let far = format!("{HEADER}\n{}bad\n", format!("{ROW}\n").repeat(120_000));
    for (name, text, words) in [
        ("empty", "", ":1: the file is empty"),
        ("header", &format!("{HEADER}\n"), ":2: the file has no rows"),
        ("columns", "id1,id2,id3\n", ":1: 3 fields instead of 9"),
        ("names", &format!("{}\n{ROW}\n", HEADER.replace("v1", "x1")), ":1: column `x1` instead of v1"),
        ("fields", &format!("{HEADER}\n{ROW}\n{ROW},7\n"), ":3: 10 fields instead of 9"),
        (
            "number",
            &format!("{HEADER}\n{}\n", ROW.replace(",4,", ",four,")),
            ":2: id4 is `four`, not a whole number",
        ),
        ("beyond", &format!("{HEADER}\n{}\n", ROW.replace(",4,", ",4000000000,")), ":2: id4 is `4000000000`"),
        (
            "missing",
            &format!("{HEADER}\n{}\n", ROW.replace(",4,", ",,")),
            ":2: id4 is ``, not a whole number",
        ),
        ("infinite", &format!("{HEADER}\n{}\n", ROW.replace("3.5", "inf")), ":2: v3 is `inf`, not a number"),
        ("quotes", &format!("{HEADER}\n{ROW}\n\"{ROW}\n"), ":3: field 1 has a quotation that does not end"),
        (
            "inner",
            &format!("{HEADER}\n{}\n", ROW.replace("d001", "d\"1")),
            ":2: field 1 has a quotation mark",
        ),
        ("truncated", &format!("{HEADER}\r\n{ROW}\r\nid001,id0"), ":3: 2 fields instead of 9"),
        ("huge", &format!("{HEADER}\n{ROW}\n{huge}\n"), ":3: the line is longer than 4096 bytes"),
        (
            "name",
            &format!("{HEADER}\n{}\n", ROW.replace("id001", &huge[..17])),
            ":2: id1 is `xxxxxxxxxxxxxxxxx`, not a name",
        ),
        ("blank", &format!("{HEADER}\n\n{ROW}\n"), ":2: the line is empty"),
        ("far", &far, ":120002: 1 fields instead of 9"),
    ] {
        let path = programs.file(&format!("{name}.csv"), text)?;
        // Pieces of files are read by several threads also here.
        let ended = programs.alone(&format!("dataframe --plain --threads 3 --csv {path}"))?;
        ended.complains(1, &format!("{path}{words}")).map_err(|why| format!("{name}: {why}"))?;
    }
    let path = programs.path("columns.csv").to_string_lossy().into_owned();
    programs
        .job((2, 2, "64MiB"), &format!("dataframe --csv {path}"))?
        .complains(1, &format!("dataframe: {path}:1:"))?;
    let path = programs.path("far.csv").to_string_lossy().into_owned();
    programs
        .job((2, 2, "64MiB"), &format!("dataframe --csv {path}"))?
        .complains(1, &format!("{path}:120002:"))?;
    let nowhere = "dataframe --plain --csv /nowhere/table.csv";
    programs.alone(nowhere)?.complains(1, "cannot read /nowhere/table.csv: No such file")?;
    for (text, words) in
        [("1 2\n3\n", ":2: `3` is not two numbers"), ("# none\n", ":1: the file has no pairs")]
    {
        let path = programs.file("graph.txt", text)?;
        programs
            .alone(&format!("socialnet --plain --graph {path}"))?
            .complains(1, &format!("{path}{words}"))?;
    }
    // Ends of lines as on other systems, and quotation marks where they may be, are right.
    let path =
        programs.file("right.csv", &format!("{HEADER}\r\n\"id001\",id2,id3,4,5,6,1,2,\"3.5\"\r\n{ROW}"))?;
    let ended = programs.alone(&format!("dataframe --plain --csv {path}"))?;
    if ended.code == 0 { Ok(()) } else { Err(ended.errors) }
}

/// Goal: wrong flags and sizes are said to be wrong, once, with a status of their own; nothing is left.
fn flags(programs: &Programs) -> Outcome {
    let job = (2, 2, "64MiB");
    for (words, says) in [
        ("kv --workload x", "invalid value 'x' for '--workload"),
        ("kv --theta 1", "--theta is from 0 to less than 1"),
        ("kv --records 0", "invalid value '0' for '--records"),
        ("kv --store coherent --workload e", "only --store objects inserts and scans"),
        ("kv --heap 12parsecs", "write a size such as `64KiB`"),
        ("dataframe --rows 10 --groups 11", "10 rows have no 11 groups"),
        ("dataframe --questions 11", "invalid value '11' for '--questions"),
        ("matrix --size 100 --tile 64", "a matrix of 100 rows is not of whole tiles of 64"),
        ("matrix --size 128 --tile 64 --levels 2", "cannot be cut into halves 2 times"),
        ("socialnet --users 1", "invalid value '1' for '--users"),
        ("socialnet --no-such-flag", "unexpected argument '--no-such-flag'"),
    ] {
        let ended = programs.run(Some(job).filter(|_| words.contains("theta")), words, |_| Ok(()))?;
        let is_once = ended.errors.matches("error:").count() == 1 && ended.errors.contains(says);
        if ended.code != 2 || !is_once {
            return Err(format!("{words}: status {}: {}{}", ended.code, ended.output, ended.errors));
        }
        ended.left_nothing()?;
    }
    for name in ["dataframe", "kv", "matrix", "socialnet"] {
        let ended = programs.alone(&format!("{name} --help"))?;
        if ended.code != 0 || !ended.output.contains("Examples:") {
            return Err(format!("{name} --help: status {}: {}", ended.code, ended.output));
        }
    }
    programs.alone("kv")?.complains(1, "kv: this program is not part of a job")?;
    programs
        .alone("kv --plain --operations 100 --json /nowhere/x")?
        .complains(1, "kv: cannot write /nowhere/x")?;
    programs.job(job, "kv --heap 1MiB")?.complains(1, "of 1048576 bytes; free objects")
}

/// Goal: when a rank is killed in the middle, the job ends, says so, and leaves nothing.
fn killed(programs: &Programs) -> Outcome {
    for words in [
        "kv --operations 4000000000 --records 2000",
        "dataframe --rows 200000 --repeat 1000",
        "socialnet --users 500 --edges 3000 --operations 4000000000",
        "matrix --size 2048 --tile 64",
    ] {
        let name = words.split(' ').next().unwrap_or_default();
        let program = self::Programs::path(programs, name).to_string_lossy().into_owned();
        let began = Instant::now();
        let ended = programs.run(Some((4, 2, "64MiB")), &format!("{words} --heap 128MiB"), |mark| {
            let ranks = || -> Vec<i32> {
                let all = marked(mark).into_iter();
                all.filter(|(_, command)| command.split('\0').next() == Some(&program))
                    .map(|(pid, _)| pid)
                    .collect()
            };
            let bound = at_most(Duration::from_secs(10));
            let found = until(bound, || Some(ranks()).filter(|found| found.len() == 4));
            let found = found.ok_or("the ranks have not begun")?;
            // In the middle: when all have computed for some time.
            until(bound, || found.iter().all(|pid| has_computed(*pid)).then_some(()))
                .ok_or("a rank does nothing")?;
            kill(found[2], Signal::KILL);
            Ok(())
        })?;
        let took = began.elapsed();
        ended.ends_killed().map_err(|why| format!("{words} after {took:.1?}: {why}"))?;
    }
    Ok(())
}

/// Whether a process has used some hundredths of a second of a processor.
fn has_computed(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    // Ticks of a hundredth of a second, in user mode.
    fields.split(' ').nth(11).and_then(|ticks| ticks.parse::<u64>().ok()).is_some_and(|ticks| ticks >= 3)
}

fn all(arguments: &[String]) -> ExitCode {
    type Test = fn(&Programs) -> Outcome;
    let tests: [(&str, Test); 8] = [
        ("first", first_program),
        ("results", results),
        ("baselines", baselines),
        ("figures", figures),
        ("files", files),
        ("flags", flags),
        ("killed", killed),
        ("lines", |_| lines::are_as_few_as_recorded()),
    ];
    // What a test runner passes (`--nocapture`, `--test-threads`) means nothing here.
    let wanted: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()));
    let programs = match Programs::new() {
        Ok(programs) => programs,
        Err(why) => return failed(&why),
    };
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in tests.into_iter().filter(|(name, _)| is_wanted(name)) {
        let began = Instant::now();
        match job_within_bound(name, 0, || test(&programs)) {
            Ok(()) => {
                println!("ok      {name} in {:.1?}", began.elapsed());
                passed += 1;
            }
            Err(why) => {
                println!("FAILED  {name}: {why}");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
