//! Heaps on file systems that are full before the heap is.

use crate::scenarios::ensure;
use crate::{HEAP, NOTICED_WITHIN, Outcome, replicas, run_job};
use rustix::process::getpid;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;
use vgas::{Rank, Runtime};
use vgas_objects::{DBox, Objects, RunOptions, spawn_to, task};

pub const NAME: &str = "full_disk";

/// What this program is asked to be within the small file system: the launcher.
pub const LAUNCHER: &str = "full_disk_launcher";

/// Where ranks note that there have been some.
const NOTED: &str = "FULL_DISK_NOTED";

type Part = fn(Runtime, u64) -> Outcome;

const PARTS: &[(&str, Part)] = &[
    ("full_disk_own", |runtime, _| fill(runtime, Rank(0))),
    ("full_disk_other", |runtime, _| fill(runtime, Rank(1))),
];

pub fn part(name: &str) -> Option<Part> {
    PARTS.iter().find(|(other, _)| *other == name).map(|(_, part)| *part)
}

/// Goal: segment files take room as they are written, so that a file system may be full when objects are written back that nobody
/// touches any more. The job then ends within ten seconds, never by a signal without a word: a line says of which node the folder is full, and which
/// setting names another; nothing is left. Method: a file system of three megabytes in a mount namespace, and a rank that makes objects of twelve.
pub fn sequence(seed: u64) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    for (name, ranks, nodes) in [
        ("full_disk_own", 1, 1),
        ("full_disk_own", 2, 2),
        ("full_disk_other", 2, 1),
        ("full_disk_other", 2, 2),
    ] {
        let (disk, noted) = (tempfile::tempdir().map_err(text)?, tempfile::tempdir().map_err(text)?);
        let in_namespace = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["-rm", "sh", "-c", script]).arg(disk.path());
            command
        };
        let mount = "mount -t tmpfs -o size=3m none \"$0\"";
        if !in_namespace(mount).output().is_ok_and(|output| output.status.success()) {
            println!("skipped {NAME}: no file system may be mounted here (unshare -rm, mount -t tmpfs)");
            return Ok(());
        }
        let began = Instant::now();
        let ended = in_namespace(&format!("{mount} && exec \"$@\""))
            .arg(std::env::current_exe().map_err(text)?)
            .args([LAUNCHER, name, &seed.to_string(), &ranks.to_string(), &nodes.to_string()])
            .arg(disk.path())
            .env(NOTED, noted.path())
            .output()
            .map_err(text)?;
        let (took, said) = (began.elapsed(), String::from_utf8_lossy(&ended.stderr).into_owned());
        let title = format!("{name} ({ranks} ranks, {nodes} nodes)");
        let names_it = |line: &str| {
            ["the NVMe folder of ", "is full", "nvm.directory", "node "]
                .iter()
                .all(|word| line.contains(word))
        };
        if ended.status.success() || !said.lines().any(names_it) || took > NOTICED_WITHIN {
            return Err(format!(
                "{title} has ended with {} after {took:.1?}, and said: {said}",
                ended.status
            ));
        }
        if std::fs::read_dir(noted.path()).map_err(text)?.count() < ranks as usize {
            return Err(format!("{title}: not all ranks have begun: {said}"));
        }
        replicas::left_behind(noted.path())?;
        println!("        {title} in {took:.1?}: {}", said.lines().last().unwrap_or_default());
    }
    Ok(())
}

/// The launcher, within the namespace.
pub fn launch(arguments: &[String]) -> ExitCode {
    let [_, name, seed, ranks, nodes, folder] = arguments else { return ExitCode::from(2) };
    let number = |text: &String| text.parse::<u32>().unwrap_or(1);
    let more = [("nvm.directory", folder.clone())];
    match run_job(name, seed.parse().unwrap_or(1), number(ranks), number(nodes), &more) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Makes objects on a rank until its node's file system is full, and beyond.
fn fill(runtime: Runtime, of: Rank) -> Outcome {
    if let Some(folder) = std::env::var_os(NOTED) {
        std::fs::write(Path::new(&folder).join(format!("pid-{}", getpid().as_raw_nonzero())), "")?;
    }
    let objects = Objects::attach(&runtime, &HEAP)?;
    let made = objects.run(&RunOptions::default(), || -> Outcome {
        let make = task!(|_n: ()| -> u64 {
            let all: Vec<DBox<[u64; 512]>> = (0..3000).map(|number| DBox::new([number; 512])).collect();
            all.iter().map(|one| one[511]).sum()
        });
        let sum = spawn_to(of, make, ()).join()?;
        ensure(sum == (0..3000).sum::<u64>(), || format!("{sum} was read"))
    })?;
    made.unwrap_or(Ok(()))?;
    Ok(objects.finalize()?)
}
