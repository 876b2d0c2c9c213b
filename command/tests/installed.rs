//! vgas outside of its tree: the installed command, and a program that depends on the crate.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the folder of the repository")
}

/// cargo as a user calls it, not as the test runner's child, with what was downloaded for this build.
fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(words).arg("--offline").stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_MANIFEST_")
            || name.starts_with("CARGO_BIN_")
        {
            command.env_remove(name);
        }
    }
    command
}

fn done(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{error}", output.status);
    output
}

/// Goal: README.md's words on how a program of its own depends on the crate are true: its example is built outside of the tree,
/// and runs.
#[test]
fn a_program_outside_of_the_tree_depends_on_the_crate() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let readme = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    let block = |kind: &str| {
        let rest = readme.split_once(&format!("```{kind}\n")).expect("README.md shows it").1;
        rest.split_once("```").expect("it ends").0.to_owned()
    };
    let dependencies =
        block("toml").replace("../vgas/vgas", root().join("vgas").to_str().expect("a plain path"));
    let manifest = format!("[package]\nname = \"outside\"\nedition = \"2024\"\n\n{dependencies}");
    std::fs::create_dir(folder.path().join("src")).expect("the folder is writable");
    std::fs::write(folder.path().join("Cargo.toml"), manifest).expect("the folder is writable");
    std::fs::write(folder.path().join("src/main.rs"), block("rust")).expect("the folder is writable");
    // So that it takes the versions that are here.
    std::fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock"))
        .expect("the folder is writable");
    // Kept from run to run; without what only debuggers want.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let build = cargo(&["build", "--quiet"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_PROFILE_DEV_DEBUG", "none")
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&build.stderr);
    if error.contains("--offline") {
        return eprintln!("skipped: a dependency is not on this machine: {error}");
    }
    assert!(build.status.success(), "{error}");
    let run = done(
        Command::new(env!("CARGO_BIN_EXE_vgas"))
            .args(["run", "-n", "2", "--nodes", "2", "--"])
            .arg(target.join("debug/outside"))
            .stdin(Stdio::null()),
    );
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(
        text.contains("my left neighbour is rank 1") && text.contains("my left neighbour is rank 0"),
        "{text}"
    );
}

/// Goal: the command is installed as README.md says, is small, and works where it is.
#[test]
#[ignore = "builds the release, which takes minutes; .ci/run runs it among the slower tests"]
fn the_command_is_installed() {
    // With the services of owned objects, benchmarks of everything, and reports of them: the paper's evaluation, its pictures and the
    // comparison of two of these took 0.4 MB; joining jobs that others have started, and leading them, 0.2 MB; the prediction, which
    // has the simulated network and disk in it, 0.3 MB; the conduit over libfabric 0.2 MB; serving PMI-1, and the hosts of batch
    // systems, 0.1 MB; networks and memory of virtual nodes, and values placed on other ranks, 0.1 MB; looking at the objects of running jobs 0.2 MB;
    // going on after losses that ranks hear of at different moments 0.04 MB, and after that of the first node, with handing on measured with
    // objects of two sizes, 0.04 MB. Named segments, boards of collectives, long transfers, reports that resume, and a C client timed beside GASNet came since,
    // then the handle of a job with segments that are attached and detached, and the collectives of MPI; and pointers timed beside a mapped file.
    const COMMAND_BYTES_MAX: u64 = 12_550_000;
    let prefix = tempfile::tempdir().expect("a temporary folder");
    let target =
        Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the folder of what is built");
    let readme = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    assert!(readme.contains("cargo install --path command"));
    let status = std::fs::read_to_string(root().join("docs/STATUS.md")).expect("it is there");
    assert!(status.contains(&format!("less than {} MB", COMMAND_BYTES_MAX as f64 / 1e6)));
    done(
        cargo(&["install", "--path", "command", "--locked", "--no-track"])
            .arg("--root")
            .arg(prefix.path())
            .arg("--target-dir")
            .arg(target)
            .current_dir(root()),
    );
    let vgas = prefix.path().join("bin/vgas");
    let bytes = std::fs::metadata(&vgas).expect("it was installed").len();
    assert!(bytes <= COMMAND_BYTES_MAX, "{bytes} bytes");
    done(Command::new(&vgas).args(["run", "-n", "2", "--", "true"]).stdin(Stdio::null()));
}
