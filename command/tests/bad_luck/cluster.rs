//! Virtual nodes with networks and memory of their own. Both need root.

use super::harness::{Job, Place, kill, until};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const NETWORKS: &str = "--nodes 2 --netns --link 1gbit,50us";

/// Whether the command may make these nodes here; otherwise says why not. The line has a status and words of its own.
fn may(place: &Place, flags: &str) -> bool {
    let ended = place.start(&format!("run -n 2 {flags} -- true")).end();
    if ended.code != 0 {
        ended.refused(1, &[]);
        eprintln!("skipped: {}", ended.stderr.trim());
    }
    ended.code == 0
}

/// The control groups of a job.
fn groups(launcher: i32) -> Vec<PathBuf> {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"].map(std::fs::read_dir);
    let entries = roots.into_iter().flatten().flatten().flatten();
    let is_its = |name: &str| name.starts_with(&format!("vgas-{launcher}-"));
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_its)).map(|entry| entry.path()).collect()
}

fn network_of(pid: i32) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap_or_default()
}

fn interfaces() -> BTreeSet<String> {
    let names = std::fs::read_dir("/sys/class/net").unwrap();
    names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect()
}

/// Goal: each node has a network namespace, the same for its daemon and ranks and nobody else's, over which the job does its work; this
/// machine's own network stays as it is.
#[test]
fn nodes_have_networks_of_their_own() {
    let place = Place::new();
    if !may(&place, NETWORKS) {
        return;
    }
    let before = interfaces();
    let job = place.start_ranks("rounds", 4, NETWORKS);
    let networks: Vec<PathBuf> = job.ranks().into_iter().map(network_of).collect();
    let of_daemons: BTreeSet<PathBuf> = job.daemons().into_iter().map(network_of).collect();
    let different: BTreeSet<&PathBuf> = networks.iter().collect();
    assert_eq!((networks.len(), different.len()), (4, 2), "{networks:?}");
    assert!(networks.iter().all(|network| of_daemons.contains(network)), "{networks:?} {of_daemons:?}");
    assert!(!of_daemons.contains(&network_of(job.launcher())));
    assert_eq!(interfaces(), before);
    std::fs::write(place.path("enough"), "").unwrap();
    let ended = job.end();
    assert_eq!(ended.code, 0, "{ended:?}");
}

/// Goal: a node that needs more memory than it may have ends the job with a line that names the node, while the other had enough. A limit
/// that the cache alone exceeds is refused before.
#[test]
fn a_node_without_memory_is_named() {
    let place = Place::new();
    if !may(&place, "--nodes 2 --node-memory 64MiB") {
        return;
    }
    let ended = place.ranks("grows", 2, "--nodes 2 --node-memory 64MiB").end();
    ended.refused(137, &["was killed by signal 9", "; node 1 had used up its memory"]);
    place.refused(
        "run -n 2 --nodes 2 --node-memory 64MiB --cache 128MiB -- true",
        2,
        &["2 caches of 128MiB", "into the 128MiB", "less than 64MiB"],
    );
}

/// Goal: where a job runs in a control group that others have made, as a batch system does, and uses up its memory, its last line names
/// the group and what to do.
#[test]
fn a_group_of_others_without_memory_is_named() {
    let place = Place::new();
    let name = format!("others-{}", std::process::id());
    let group = match vgas::launch::Group::create(&name, 96 << 20) {
        Ok(group) => group,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut command = place.shell(Path::new("sh"), "-c");
    let (members, run) = (group.path().join("cgroup.procs"), Place::line_of_ranks(2, "--nodes 2"));
    command.arg(format!("echo $$ > {} && exec {} {run}", members.display(), env!("CARGO_BIN_EXE_vgas")));
    command.env(super::rank::MODE, "grows");
    let ended = Job::of(command, place.path("nvm")).end();
    let named = format!("its control group, {}, had used up its memory", group.path().display());
    ended.refused(137, &["was killed by signal 9", &named, "--cache"]);
}

/// Goal: whoever of a job is killed, nothing of its networks and groups stays: a daemon whose launcher is gone removes its group; groups
/// whose daemon is gone, too, go when the next is made.
#[test]
fn networks_and_groups_end_with_their_job() {
    let place = Place::new();
    let flags = format!("{NETWORKS} --node-memory 1GiB");
    if !may(&place, &flags) {
        return;
    }
    for all in [false, true] {
        let mut job = place.start_ranks("rounds", 2, &flags);
        let launcher = job.launcher();
        assert_eq!(groups(launcher).len(), 2);
        job.mishap(|job| {
            let daemons = if all { job.daemons() } else { Vec::new() };
            kill(launcher, Signal::KILL);
            daemons.into_iter().for_each(|pid| kill(pid, Signal::KILL));
        });
        assert_eq!(job.end().code, 137);
        let is_gone = || {
            let next = place.start("run -n 1 --node-memory 1GiB -- true").end();
            (next.code == 0 && groups(launcher).is_empty()).then_some(())
        };
        if all {
            assert!(until(is_gone).is_some(), "{:?}", groups(launcher));
        } else {
            assert!(until(|| groups(launcher).is_empty().then_some(())).is_some(), "{:?}", groups(launcher));
        }
    }
    let mut job = place.start_ranks("rounds", 2, &flags);
    let launcher = job.launcher();
    job.interrupt_until_it_ends();
    job.end();
    assert!(groups(launcher).is_empty());
}

/// Goal: who asks for it where it cannot be is told why, in one line.
#[test]
fn networks_and_memory_where_they_cannot_be() {
    let place = Place::new();
    place.refused("run -n 2 --host a,b --netns -- true", 1, &["--netns", "virtual nodes"]);
    place.refused("run -n 2 --host a,b --node-memory 1GiB -- true", 1, &["--node-memory", "virtual nodes"]);
    place.refused("run -n 2 --nodes 2 --netns --conduit smp -- true", 2, &["smp", "set conduit to tcp"]);
    place.refused("run -n 2 --nodes 2 --node-memory 1MiB -- true", 2, &["less than 16MiB"]);
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can become a user without rights");
    }
    let as_nobody = |words: &str| {
        let command = format!("--reuid 65534 --clear-groups {} {words}", env!("CARGO_BIN_EXE_vgas"));
        Job::of(place.shell(Path::new("setpriv"), &command), place.path("nvm")).end()
    };
    let reaches = as_nobody("run -n 1 -- true");
    if reaches.code != 0 {
        return eprintln!("skipped: another user cannot run the command here: {}", reaches.stderr.trim());
    }
    as_nobody("run -n 2 --nodes 2 --netns -- true").refused(1, &["network namespaces", "they need root"]);
    as_nobody("run -n 2 --nodes 2 --node-memory 64MiB -- true").refused(1, &["a control group", "refuses"]);
}
