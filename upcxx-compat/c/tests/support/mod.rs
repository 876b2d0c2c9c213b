//! Compiling C programs against the headers and the library of this build, and running them as jobs.

#![allow(dead_code)] // Each test target uses a part.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take, compiled without optimisation, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A conduit as programs are compiled for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduit {
    Smp,
    Tcp,
    Ibv,
}

/// A thread mode as programs are compiled for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Seq,
    Parsync,
    Par,
}

impl Conduit {
    pub fn flag(self) -> &'static str {
        match self {
            Self::Smp => "-DGASNET_CONDUIT_SMP",
            Self::Tcp => "-DGASNET_CONDUIT_TCP",
            Self::Ibv => "-DGASNET_CONDUIT_IBV",
        }
    }
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Seq, Mode::Parsync, Mode::Par];

    pub fn flag(self) -> &'static str {
        match self {
            Self::Seq => "-DGASNET_SEQ",
            Self::Parsync => "-DGASNET_PARSYNC",
            Self::Par => "-DGASNET_PAR",
        }
    }
}

/// The folder of this crate.
pub fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder in which this build has put the library.
pub fn library_folder() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its own path");
    let folder = program.parent().expect("a program is in a folder").to_owned();
    assert!(folder.join("libvgasnet.a").exists(), "no libvgasnet.a in {}", folder.display());
    folder
}

/// What a program that is linked with the static library needs besides.
pub const SYSTEM_LIBRARIES: [&str; 5] = ["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lrt"];

/// The shared library's installed name.
const SHARED_LIBRARY: &str = "libvgas.so.0";

/// The compilers of a language that this machine has; says which are missing.
pub fn compilers(language: &str) -> Vec<&'static str> {
    let wanted: &[&str] = if language == "c++" { &["g++", "clang++"] } else { &["gcc", "clang"] };
    let (found, missing): (Vec<&str>, Vec<&str>) = wanted.iter().partition(|compiler| {
        Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    });
    if !missing.is_empty() {
        eprintln!("skipped: {} not installed", missing.join(", "));
    }
    found
}

/// The C compiler: `CC`, or `cc`.
pub fn cc() -> String {
    std::env::var("CC").ok().filter(|cc| !cc.is_empty()).unwrap_or_else(|| "cc".into())
}

/// A folder with programs that were compiled for a test; removed with it.
pub struct Bench {
    folder: tempfile::TempDir,
}

/// A compiled program.
pub struct Program {
    path: PathBuf,
    conduit: Conduit,
}

impl Bench {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Under its installed name, by which programs look for it. Linking with the static one takes long.
        std::os::unix::fs::symlink(
            library_folder().join("libvgasnet.so"),
            folder.path().join(SHARED_LIBRARY),
        )
        .expect("the folder is writable");
        Self { folder }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Compiles and links `tests/c/<name>.c`.
    pub fn program(&self, name: &str, conduit: Conduit, mode: Mode) -> Program {
        self.program_of(&crate_folder().join("tests/c").join(format!("{name}.c")), conduit, mode)
    }

    /// Compiles and links a source as a program of its name.
    pub fn program_of(&self, source: &Path, conduit: Conduit, mode: Mode) -> Program {
        self.program_with(&cc(), &[], source, conduit, mode)
    }

    /// The same with a compiler and flags of the caller's choice.
    pub fn program_with(
        &self,
        compiler: &str,
        flags: &[&str],
        source: &Path,
        conduit: Conduit,
        mode: Mode,
    ) -> Program {
        let name = source.file_stem().expect("a source has a name").to_string_lossy();
        let path = self.path().join(format!("{name}-{conduit:?}-{mode:?}{}", flags.concat()));
        self.compile(compiler, &[&["-std=gnu11"], flags].concat(), source, conduit, mode, &path);
        Program { path, conduit }
    }

    /// Compiles and links any source, with warnings as errors.
    pub fn compile(
        &self,
        compiler: &str,
        flags: &[&str],
        source: &Path,
        conduit: Conduit,
        mode: Mode,
        to: &Path,
    ) {
        let include = crate_folder().join("include");
        let mut command = Command::new(compiler);
        command
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", conduit.flag(), mode.flag(), "-pthread"])
            .args(flags)
            .arg("-I")
            .arg(include)
            .arg("-o")
            .arg(to)
            .arg(source)
            .arg(crate_folder().join("csrc/configuration.c"))
            .args(["-x", "none"])
            .arg(self.tools())
            .arg(self.path().join(SHARED_LIBRARY))
            .arg(format!("-Wl,-rpath,{}", self.path().display()));
        let output = command.output().expect("a C compiler runs");
        assert!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Bench {
    /// The library of the GASNet tools, compiled once for a bench.
    pub fn tools(&self) -> PathBuf {
        let library = self.path().join("libgasnet_tools.a");
        if library.exists() {
            return library;
        }
        let sources = std::fs::read_dir(crate_folder().join("csrc/tools")).expect("a folder of this crate");
        let sources = sources.map(|entry| entry.expect("it can be listed").path());
        let mut sources: Vec<_> =
            sources.filter(|path| path.extension().is_some_and(|it| it == "c")).collect();
        sources.sort();
        let objects = self.path().join("tools");
        std::fs::create_dir(&objects).expect("the folder is writable");
        let mut compile = Command::new(cc());
        compile.args([
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-O1",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ]);
        compile.arg("-I").arg(crate_folder().join("include")).arg("-c").args(&sources).current_dir(&objects);
        let names = sources
            .iter()
            .filter_map(|path| path.file_name())
            .map(|name| Path::new(name).with_extension("o"));
        let mut archive = Command::new("ar");
        archive.arg("cr").arg(&library).args(names).current_dir(&objects);
        for mut command in [compile, archive] {
            let output = command.output().expect("the compiler's tools run");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?} failed:\n{error}");
        }
        library
    }

    /// Compiles a source without keeping the result, with warnings as errors; including gasnet.h must cost little.
    pub fn check(&self, compiler: &str, flags: &[&str], source: &Path, mode: Mode) {
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", mode.flag()]).args(flags);
        command.arg("-I").arg(crate_folder().join("include")).arg(source);
        let output = command.output().expect("the compiler is installed");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?} failed:\n{error}");
    }
}

impl Program {
    /// The program's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The command that runs it as a job: `GASNET_PSHM_NODES=4 program …`, or `program 4 …`.
    pub fn command(&self, ranks: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        match self.conduit {
            Conduit::Smp => command.env("GASNET_PSHM_NODES", ranks.to_string()),
            Conduit::Tcp | Conduit::Ibv => command.arg(ranks.to_string()),
        };
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub fn run(&self, ranks: u32, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
        let mut command = self.command(ranks, arguments);
        command.envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        finish(child, &format!("{} on {ranks} ranks, {environment:?}", self.path.display()))
    }

    /// Runs it to its end, which must be a good one.
    pub fn pass(&self, ranks: u32, environment: &[(&str, &str)], arguments: &[&str]) -> String {
        let output = self.run(ranks, environment, arguments);
        assert!(
            output.status.success(),
            "{} on {ranks} ranks, {environment:?}: {}\n{}{}",
            self.path.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A tiered job with the smallest cache that there can be, so that everything is evicted all the time.
pub fn tiered(nodes: &'static str) -> [(&'static str, &'static str); 5] {
    [
        ("VGAS_SEGMENT_KIND", "tiered"),
        ("VGAS_CACHE_SIZE", "1MiB"),
        ("VGAS_CACHE_PAGE", "4KiB"),
        ("VGAS_SEGMENT_TIERED_MAX", "64MiB"),
        ("VGASNET_NODES", nodes),
    ]
}

/// Waits for a process, for a limited time, reading what it writes.
pub fn finish(mut child: Child, what: &str) -> Output {
    let deadline = Instant::now() + TIMEOUT;
    let id = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let reader = std::thread::spawn(move || {
        let error_reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(stream) = &mut stderr {
                std::io::Read::read_to_end(stream, &mut bytes).expect("standard error is readable");
            }
            bytes
        });
        let mut bytes = Vec::new();
        if let Some(stream) = &mut stdout {
            std::io::Read::read_to_end(stream, &mut bytes).expect("standard output is readable");
        }
        let result = (bytes, error_reader.join().expect("the reader does not panic"));
        // Nobody listens any more when the test has given up.
        let _ = sender.send(result);
    });
    match receiver.recv_timeout(deadline - Instant::now()) {
        Ok((stdout, stderr)) => {
            reader.join().expect("the reader does not panic");
            let status = child.wait().expect("the child is ours");
            Output { status, stdout, stderr }
        }
        Err(_) => {
            child.kill().expect("the child is ours");
            child.wait().expect("the child is ours");
            panic!("{what} (pid {id}) did not end within {TIMEOUT:?}");
        }
    }
}
