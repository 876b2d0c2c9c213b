//! Standard output and error that cannot be written, or are shared by many.

use super::harness::Place;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use vgas_testing::code_of;

/// A stream that nobody reads any more.
fn unread() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// A stream to a disk without space.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// What goes wrong keeps its status when it cannot be told, by the command as by its daemons and ranks; so does what goes well.
#[test]
fn a_status_survives_a_standard_error_that_cannot_be_written() {
    let place = Place::new();
    let shell = ["run", "-n", "2", "--", "sh", "-c", "exit 7"];
    let cases: [(&[&str], i32); 7] = [
        (&shell, 7),
        (&["run", "-n", "1", "--", "no-such-program"], 127),
        (&["run", "-n", "1", "--no-such-flag"], 2),
        (&["gemm", "missing.npy", "missing.npy", "-o", "c.npy"], 1),
        (&["demo", "--order", "64", "--set", "nvm.directory=/no/such/folder"], 1),
        (&["demo", "--order", "64", "--stats"], 0),
        (&["run", "-n", "2", "--", "true"], 0),
    ];
    for (words, code) in cases {
        for stream in [unread, full] {
            let mut command = place.command("");
            command.args(words).env("VGAS_LOG", "info").stdout(Stdio::null()).stderr(stream());
            assert_eq!(code_of(command.status().unwrap()), code, "{words:?}");
        }
    }
}

/// `vgas run … -- program | head`: that nobody reads any more is no failure. That nothing can be written is.
#[test]
fn the_examples_do_not_panic_when_nobody_reads() {
    let place = Place::new();
    let named = format!("--set nvm.directory={}", place.path("named").display());
    std::fs::create_dir(place.path("named")).unwrap();
    for (example, words) in [
        ("ring", ""),
        ("histogram", ""),
        ("stencil", ""),
        ("scan", "--cache 16MiB"),
        ("store", named.as_str()),
    ] {
        let Some(program) = example_program(example) else { return };
        let line = format!("run -n 2 --nodes 2 {words} -- {} key", program.display());
        let run = |stdout: Stdio| {
            let output = place.command(&line).stdout(stdout).stderr(Stdio::piped()).output().unwrap();
            (code_of(output.status), String::from_utf8(output.stderr).unwrap())
        };
        assert_eq!(run(unread()), (0, String::new()), "{example}");
        let (code, said) = run(full());
        assert_eq!(code, 1, "{example}: {said}");
        assert!(said.contains("cannot write to standard output") && !said.contains("panicked"), "{said}");
    }
}

/// The program of an example, which is built with the workspace's tests.
fn example_program(name: &str) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_vgas")).parent()?.join("examples").join(name);
    if !program.exists() {
        eprintln!("skipped: {} is not built (cargo build --examples)", program.display());
        return None;
    }
    Some(program)
}
