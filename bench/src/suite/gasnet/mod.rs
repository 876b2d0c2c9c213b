//! The C interface beside GASNet's own library: one program, `client.c`, is compiled against both installations and run in turn, on the
//! idle machine and beside processes that compute.

use super::job::Result;
use super::report::Report;
use crate::registry::{CannotRun, Options, Row};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const CLIENT: &str = include_str!("client.c");

/// Thread modes for which the program is compiled: threads are measured in the second only.
const MODES: [&str; 2] = ["seq", "par"];

/// A library under the program, and the settings of a run over it.
struct Library {
    /// The end of its rows' cases.
    name: &'static str,
    /// The folder of its programs.
    folder: &'static str,
    environment: &'static [(&'static str, &'static str)],
}

const PINNED: Library =
    Library { name: "C", folder: "vgas", environment: &[("VGAS_SEGMENT_KIND", "pinned")] };
const TIERED: Library = Library {
    name: "C, tiered",
    folder: "vgas",
    environment: &[
        ("VGAS_SEGMENT_KIND", "tiered"),
        ("VGAS_CACHE_SIZE", "64MiB"),
        ("VGAS_SEGMENT_TIERED_MAX", "64MiB"),
    ],
};
const GASNET: Library = Library { name: "GASNet", folder: "gasnet", environment: &[] };

/// Rows of so many samples; none if the options name no installation.
///
/// # Errors
/// [`CannotRun`] where no C compiler or `make` runs; installations that are none, and programs that fail.
pub(super) fn rows(options: &Options, samples: u32) -> Result<Vec<Row>> {
    let (gasnet, vgas) = (options.text("gasnet"), options.text("library"));
    if gasnet.is_empty() && vgas.is_empty() {
        return Ok(Vec::new());
    }
    let build = BuildFolder::new()?;
    let vgas = if vgas.is_empty() { beside_this_command()? } else { vgas.into() };
    build.compile(&vgas, PINNED.folder)?;
    let mut libraries = vec![PINNED, TIERED];
    if !gasnet.is_empty() {
        build.compile(Path::new(gasnet), GASNET.folder)?;
        libraries.push(GASNET);
    }
    let mut rows = Vec::new();
    for load in ["idle", "busy"] {
        let _busy = (load == "busy").then(Busy::start);
        let mut found: Vec<Times> = libraries.iter().map(|_| Times::default()).collect();
        for _ in 0..samples {
            for (library, found) in libraries.iter().zip(&mut found) {
                for (mode, ranks, part) in [
                    ("seq", 2, "pair"),
                    ("par", 2, "pair"),
                    ("seq", 2, "collectives"),
                    ("seq", 4, "collectives"),
                ] {
                    found.add(&build.run(library, mode, ranks, part)?)?;
                }
            }
        }
        rows.extend(told(&libraries, &found, load));
    }
    Ok(rows)
}

/// The rows of all libraries; with ratios, where GASNet is one of them.
fn told(libraries: &[Library], found: &[Times], load: &'static str) -> Vec<Row> {
    let base = libraries.iter().position(|library| library.name == GASNET.name);
    let mut rows = Vec::new();
    for (case, bytes) in found.iter().flat_map(|times| times.0.iter().map(|(key, _)| key)).fold(
        Vec::new(),
        |mut keys: Vec<&Key>, key| {
            if !keys.contains(&key) {
                keys.push(key);
            }
            keys
        },
    ) {
        let mut report =
            Report::new("rma").under("conduit", "smp").under("bytes", *bytes).under("load", load);
        let of = |at: usize| found[at].of(case, *bytes);
        let name = |at: usize| format!("{case}, {}", libraries[at].name);
        for at in 0..libraries.len() {
            let Some(samples) = of(at) else { continue };
            report.add(&name(at), "time of a call", "us", samples.to_vec());
            if let Some(base) = base.filter(|&base| base != at)
                && let Some(theirs) = of(base)
            {
                report.ratio((&name(at), samples), (&name(base), theirs));
            }
        }
        rows.extend(report.into_rows());
    }
    rows
}

/// A case and a number of bytes.
type Key = (String, u64);

/// Samples in microseconds, in the order in which the program tells cases.
#[derive(Default)]
struct Times(Vec<(Key, Vec<f64>)>);

impl Times {
    /// Adds what one run of the program has printed.
    fn add(&mut self, printed: &str) -> Result<()> {
        let before = self.0.iter().map(|(_, samples)| samples.len()).sum::<usize>();
        for line in printed.lines() {
            let fields: Vec<_> = line.split('|').collect();
            let [case, bytes, nanoseconds] = fields[..] else { continue };
            let (key, time) = ((case.to_owned(), bytes.parse()?), nanoseconds.parse::<f64>()? / 1e3);
            match self.0.iter_mut().find(|(known, _)| *known == key) {
                Some((_, samples)) => samples.push(time),
                None => self.0.push((key, vec![time])),
            }
        }
        let after = self.0.iter().map(|(_, samples)| samples.len()).sum::<usize>();
        if before == after { Err("a C program told nothing".into()) } else { Ok(()) }
    }

    fn of(&self, case: &str, bytes: u64) -> Option<&[f64]> {
        let found = self.0.iter().find(|((known, size), _)| known == case && *size == bytes);
        found.map(|(_, samples)| samples.as_slice())
    }
}

/// The installation that this command is a part of.
fn beside_this_command() -> Result<PathBuf> {
    let command = std::env::current_exe()?;
    let prefix = command.parent().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
    match settings_of(&prefix, MODES[0]).exists() {
        true => Ok(prefix),
        false => Err(
            "no C library is installed beside this command; name its prefix with `--param library=PREFIX`, \
            as upcxx-compat/c/install.sh was given it"
                .into(),
        ),
    }
}

/// The file from which clients learn how to compile against an installation.
fn settings_of(prefix: &Path, mode: &str) -> PathBuf {
    prefix.join(format!("include/smp-conduit/smp-{mode}.mak"))
}

/// The folder of the programs, removed at the end.
struct BuildFolder(PathBuf);

impl Drop for BuildFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, folder = %self.0.display(), "cannot remove the folder of C programs");
        }
    }
}

impl BuildFolder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("vgas-bench-{}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        let folder = Self(path);
        std::fs::write(folder.0.join("client.c"), CLIENT)?;
        Ok(folder)
    }

    fn program(&self, library: &str, mode: &str) -> PathBuf {
        self.0.join(format!("{library}-{mode}"))
    }

    /// Compiles the program against an installation, in each mode.
    fn compile(&self, prefix: &Path, library: &str) -> Result<()> {
        for mode in MODES {
            let settings = settings_of(prefix, mode);
            let settings = settings.canonicalize().map_err(|error| {
                format!(
                    "{} is no installation of GASNet-1: {}: {error}",
                    prefix.display(),
                    settings.display()
                )
            })?;
            let program = self.program(library, mode);
            // For make, which reads spaces and dollars its own way.
            let [settings, program] = [&settings, &program].map(|path| path.display().to_string());
            if [&settings, &program].iter().any(|path| path.contains(|it: char| " \t\n$#:\\".contains(it))) {
                return Err(format!(
                    "`make` cannot name {settings} or {program}: use a folder without spaces"
                )
                .into());
            }
            let rules = format!(
                "include {settings}\n{program}: client.c\n\t$(GASNET_CC) $(GASNET_CPPFLAGS) $(GASNET_CFLAGS) -O2 -o $@ $< \
                 $(GASNET_LDFLAGS) $(GASNET_LIBS) -lm\n"
            );
            let rules_file = self.0.join("rules");
            std::fs::write(&rules_file, rules)?;
            let mut make = Command::new("make");
            make.current_dir(&self.0).args(["-s", "-f"]).arg(&rules_file).arg(&program).stdin(Stdio::null());
            let output = make.output().map_err(|error| CannotRun(format!("cannot run `make`: {error}")))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                let first = said.lines().find(|line| line.contains("error")).or_else(|| said.lines().next());
                let why = first.unwrap_or("the compiler does not say why");
                return Err(format!("cannot compile a program against {}: {why}", prefix.display()).into());
            }
        }
        Ok(())
    }

    /// Runs a part of the program to its end, and returns what it has printed.
    fn run(&self, library: &Library, mode: &str, ranks: u32, part: &str) -> Result<String> {
        let mut command = Command::new(self.program(library.folder, mode));
        command.arg(part).stdin(Stdio::null()).env("GASNET_PSHM_NODES", ranks.to_string());
        command.envs(library.environment.iter().copied());
        let output = command.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().next().unwrap_or("it does not say why");
            let name = library.name;
            return Err(format!("the C program of {name}, {part} on {ranks} ranks, failed: {why}").into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Threads that compute, one for each core, until this is dropped.
struct Busy(std::sync::Arc<AtomicBool>);

impl Busy {
    fn start() -> Self {
        let is_over = std::sync::Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(is_over)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a program prints becomes rows of each library, and ratios over GASNet, sample by sample.
    #[test]
    fn printed_lines_become_rows() {
        let [mut ours, mut theirs] = [Times::default(), Times::default()];
        for (a, b) in [(2000, 1000), (3000, 1000), (1000, 2000)] {
            ours.add(&format!("flood|8|{a}\nshort|0|7\n")).unwrap();
            theirs.add(&format!("some line\nflood|8|{b}\n")).unwrap();
        }
        assert!(ours.add("nothing\n").is_err());
        let rows = told(&[PINNED, GASNET], &[ours, theirs], "idle");
        let value = |case: &str| rows.iter().find(|row| row.case == case).map(|row| row.value);
        assert_eq!(value("flood, C"), Some(2.0));
        assert_eq!(value("flood, GASNet"), Some(1.0));
        assert_eq!(value("flood, C : flood, GASNet"), Some(2.0));
        assert_eq!(value("short, C"), Some(0.007));
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.params["load"] == "idle"));
    }

    /// Goal: a folder that is no installation is named, and nothing is left behind.
    #[test]
    fn other_folders_are_refused() {
        let empty = tempfile::tempdir().unwrap();
        let build = BuildFolder(empty.path().join("build"));
        std::fs::create_dir(&build.0).unwrap();
        let error = build.compile(empty.path(), "gasnet").unwrap_err().to_string();
        assert!(error.contains("is no installation of GASNet-1"), "{error}");
        let path = build.0.clone();
        drop(build);
        assert!(!path.exists());
    }
}
