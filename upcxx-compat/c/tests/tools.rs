//! The GASNet tools, without a job: C and C++ programs with and without threads, and what ends a process.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::{Bench, compilers, crate_folder, finish};

/// How a program is compiled.
struct Way {
    language: &'static str,
    standard: &'static str,
    flags: &'static [&'static str],
}

const THREADS: &[&str] = &["-DGASNETT_THREAD_SAFE=1"];

const WAYS: [Way; 5] = [
    Way { language: "c", standard: "-std=c99", flags: &[] },
    Way { language: "c", standard: "-std=c99", flags: THREADS },
    Way { language: "c", standard: "-std=c11", flags: THREADS },
    Way { language: "c++", standard: "-std=c++17", flags: &[] },
    Way { language: "c++", standard: "-std=c++17", flags: THREADS },
];

/// Compiles `tests/tools/<name>.c` against the library of the tools alone.
fn compile(bench: &Bench, compiler: &str, way: &Way, name: &str) -> PathBuf {
    let path = bench.path().join(format!("{name}-{compiler}{}{}", way.standard, way.flags.len()));
    let mut command = Command::new(compiler);
    command
        .args([
            "-O1",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-pthread",
            "-x",
            way.language,
            way.standard,
        ])
        .args(way.flags)
        .arg("-I")
        .arg(crate_folder().join("include"))
        .arg("-o")
        .arg(&path)
        .arg(crate_folder().join("tests/tools").join(format!("{name}.c")))
        .args(["-x", "none"])
        .arg(bench.tools());
    let output = command.output().expect("a C compiler runs");
    assert!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    path
}

fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.iter().copied());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    finish(child.expect("the program starts"), &format!("{} {arguments:?}", program.display()))
}

/// Goal: every call does what it is documented to do, in both languages, with and without threads.
#[test]
fn every_call() {
    let bench = Bench::new();
    for way in &WAYS {
        for compiler in compilers(way.language) {
            for name in ["tools", "lite"] {
                let output = run(&compile(&bench, compiler, way, name), &[], &[]);
                assert!(output.status.success(), "{name} {compiler} {}: {output:?}", way.standard);
            }
        }
    }
}

/// Goal: what must not return ends the process as documented, and says why.
#[test]
fn ends() {
    use std::os::unix::process::ExitStatusExt;
    let bench = Bench::new();
    let program = compile(&bench, compilers("c")[0], &WAYS[1], "tools");
    let yesno = ("VGAS_TOOLS_YESNO", "perhaps");
    let cases = [
        ("fatal", "*** FATAL ERROR: error number 7\n", &[][..]),
        ("assert", "count == 0", &[]),
        ("number", "\"12 parsecs\" is not a size of memory", &[]),
        ("huge", "\"9999999TB\" is not a size of memory", &[]),
        ("yesno", "VGAS_TOOLS_YESNO is \"perhaps\"", &[yesno]),
    ];
    for (argument, text, environment) in cases {
        let output = run(&program, &[argument], environment);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{argument}: {output:?}");
        assert!(errors.starts_with("*** FATAL ERROR: ") && errors.contains(text), "{argument}: {errors}");
    }
    assert_eq!(run(&program, &["kill"], &[]).status.code(), Some(42));
    // A bad value of what fatal errors look at does not make them endless.
    let output = run(&program, &["fatal"], &[("GASNET_FREEZE_ON_ERROR", "perhaps")]);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
}

/// Goal: a fatal error writes a backtrace when the user asks for one, and an environment variable is told once.
#[test]
fn tells_the_user() {
    let bench = Bench::new();
    let program = compile(&bench, compilers("c")[0], &WAYS[0], "tools");
    let environment = [("GASNET_BACKTRACE", "1"), ("GASNET_BACKTRACE_TYPE", "EXECINFO")];
    let output = run(&program, &["fatal"], &environment);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.lines().count() > 2, "a line a frame is expected: {errors}");
    let output = run(&program, &["verbose"], &[("GASNET_VERBOSEENV", "1")]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(errors.matches("VGAS_TOOLS_SIZE = 64 KB").count(), 1, "{errors}");
    assert!(errors.contains("(default)"), "{errors}");
}

/// Goal: a process frozen by an error goes on when a debugger says so. Without a debugger here: it announces itself, and
/// stays until it is ended.
#[test]
fn freezes() {
    use std::io::{BufRead, BufReader};
    let bench = Bench::new();
    let program = compile(&bench, compilers("c")[0], &WAYS[0], "tools");
    let mut command = Command::new(program);
    command.arg("freeze").env("GASNET_FREEZE_ON_ERROR", "1").stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line of text");
    assert!(line.contains(&format!("pid={}", child.id())), "{line}");
    assert!(child.try_wait().expect("the child is ours").is_none(), "it waits");
    child.kill().expect("the child is ours");
    child.wait().expect("the child is ours");
}
