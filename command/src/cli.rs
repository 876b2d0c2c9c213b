//! The command line: names, flags, help. Their implementation is in [`crate::commands`].

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;
use vgas::launch::Allocation;

const EXAMPLES: &str = "\
Examples:
  vgas demo                                 multiply two matrices larger than the cache, and verify
  vgas run -n 4 --nodes 2 -- ./program      four ranks on two virtual nodes of this machine
  vgas gemm A.npy B.npy -o C.npy --verify   C = A·B on NumPy files of any size
  vgas info                                 what this machine offers";

/// A global address space larger than the cluster's memory.
#[derive(Debug, Parser)]
#[command(name = "vgas", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Run),
    #[command(hide = true)]
    Node(Node),
    #[command(hide = true)]
    Neighbour(Neighbour),
    Gemm(Gemm),
    Demo(Demo),
    Bench(Bench),
    Info(Info),
    Segments(Segments),
    Objects(Objects),
    Config(Config),
    Completions(Completions),
    Man(Man),
}

/// A number of ranks or nodes. Upper and lower bounds depend on the rest.
fn count(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "write a whole number from 1 on")
}

/// The number of a process.
fn process(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "write the number of a process")
}

/// Start a job: the same program on every rank.
///
/// The job ends with the status of the first rank that fails, or 0. Signals are forwarded to the ranks; a second Ctrl-C
/// ends the job at once. When a process of the job dies, all others are ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vgas run -n 2 -- ./program input.dat
  vgas run -n 8 --nodes 2 --cache 1GiB --label -- ./program
  vgas run -n 64 --hosts hosts.txt --config cluster.toml -- /shared/program
  salloc -N 4 vgas run -n 64 -- /shared/program      (also with PBS and LSF: see docs/STARTING.md)
  vgas run -n 4 --nodes 4 --netns --link 1gbit,50us --node-memory 1GiB -- ./program
  vgas run -n 2 --nodes 2 --set hooks=delay=50us,loss=0.1%,count -- ./program")]
pub struct Run {
    /// Number of ranks, spread evenly over the nodes, or as a batch system has planned that many.
    #[arg(short = 'n', long, value_parser = count, allow_negative_numbers = true)]
    pub ranks: u32,
    #[command(flatten)]
    pub place: PlacementFlags,
    /// The program is the daemon of its nodes as well, because it brings services of its own (see the module `service` of the
    /// crate vgas). On other hosts it has the same path.
    #[arg(long)]
    pub own_nodes: bool,
    #[command(flatten)]
    pub config: ConfigFlags,
    /// The program of every rank, and its arguments.
    // A word with `-` before it is a mistyped flag of ours; everything behind it is its own.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Be the daemon of one node. Started by `vgas run` with a channel to it; not for users.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  (started by `vgas run`)")]
pub struct Node {}

/// Be a process that only counts. Started by `vgas bench --busy`; not for users.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  (started by `vgas bench --busy 2`)")]
pub struct Neighbour {
    /// The number of the process that starts it.
    pub parent: u32,
}

/// Placement of ranks.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Where it runs")]
pub struct PlacementFlags {
    /// Split the ranks over this many virtual nodes of this machine, each with its own cache.
    #[arg(long, value_name = "K", value_parser = count, allow_negative_numbers = true)]
    pub nodes: Option<u32>,
    /// One node on each host that this file names, one a line. They are reached by ssh.
    #[arg(long, value_name = "FILE", conflicts_with = "host")]
    pub hosts: Option<PathBuf>,
    /// One node on each of these hosts.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    pub host: Vec<String>,
    /// The hosts of a batch system's allocation, if none of these are given.
    #[arg(skip)]
    pub allocation: Option<Allocation>,
}

/// Settings. The short flags stand for the settings that are changed most often.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Settings (see `vgas config`)")]
pub struct ConfigFlags {
    /// Read settings from this TOML file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Change a setting, such as `nvm.directory=/scratch`. May be repeated. Those of the group `ablation` switch parts of vgas
    /// off, to measure what these bring.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub assignments: Vec<String>,
    /// Short for `--set conduit=…`: the transport between nodes (auto, smp, tcp, ibv, ofi).
    #[arg(long, value_name = "CONDUIT")]
    pub conduit: Option<String>,
    /// Short for `--set cache.size=…`: DRAM for cached pages, per node.
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<String>,
    /// Short for `--set cache.page=…`: the unit of caching, a power of two from 4KiB to 4MiB.
    #[arg(long, value_name = "SIZE")]
    pub page: Option<String>,
    /// Short for `--set cluster.link=…`: the link of each virtual node, such as `1gbit,50us`.
    #[arg(long, value_name = "RATE,DELAY")]
    pub link: Option<String>,
    /// Short for `--set cluster.nvm=…`: the NVMe drive of each virtual node, such as `200MiB,50k`.
    #[arg(long, value_name = "BYTES,OPERATIONS")]
    pub nvm: Option<String>,
    /// Short for `--set cluster.netns=on`: a network namespace for each virtual node.
    #[arg(long)]
    pub netns: bool,
    /// Short for `--set cluster.memory=…`: most memory of all processes of a virtual node.
    #[arg(long, value_name = "SIZE")]
    pub node_memory: Option<String>,
    /// Short for `--set run.label=on`: begin every line of output with its rank.
    #[arg(long)]
    pub label: bool,
    /// Short for `--set stats.print=on`: print the counters at the end.
    #[arg(long)]
    pub stats: bool,
}

/// Multiply two matrices in NumPy files that need not fit in memory: C = A·B.
///
/// A and B are two-dimensional, f64 or f32, in C or Fortran order. C appears only when it is complete.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vgas gemm A.npy B.npy -o C.npy
  vgas gemm A.npy B.npy -o C.npy -n 4 --nodes 2 --cache 512MiB --page 1MiB --verify")]
pub struct Gemm {
    /// The left matrix.
    pub a: PathBuf,
    /// The right matrix.
    pub b: PathBuf,
    /// File of the product.
    #[arg(short, long, value_name = "C.npy")]
    pub output: PathBuf,
    /// Number of ranks; default: one a node.
    #[arg(short = 'n', long, value_parser = count, allow_negative_numbers = true)]
    pub ranks: Option<u32>,
    /// Overwrite the output if it exists.
    #[arg(long)]
    pub force: bool,
    /// Write the product without a name into the folder that is the output, and throw it away: for `vgas demo`.
    #[arg(long, hide = true)]
    pub discard: bool,
    /// Check the product against the inputs by a random-vector (Freivalds) test.
    #[arg(long)]
    pub verify: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: PlacementFlags,
    #[command(flatten)]
    pub config: ConfigFlags,
}

/// Make two matrices several times larger than the cache, multiply them over two virtual nodes, and verify.
///
/// Needs no input and leaves nothing behind. On hosts, or in an allocation, each rank makes the matrices in its folder of data.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vgas demo
  vgas demo --order 8192 --cache 256MiB")]
pub struct Demo {
    /// Rows and columns of the matrices.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[arg(allow_negative_numbers = true)]
    pub order: u32,
    /// Number of ranks; default: one a node.
    #[arg(short = 'n', long, value_parser = count, allow_negative_numbers = true)]
    pub ranks: Option<u32>,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: PlacementFlags,
    #[command(flatten)]
    pub config: ConfigFlags,
}

/// Run one benchmark, or all of a report; compare two reports.
///
/// A row of the JSON has bench, case, params, metric, unit, value (the median), samples and machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vgas bench --list
  vgas bench all --out report                  about twenty minutes; then open report/index.html
  vgas bench all --out report --resume         goes on with a report that was stopped
  vgas bench all --out report --busy 2         idle, and beside two processes that compute
  vgas bench seq --json seq.json --plot seq.svg
  vgas bench hit -n 8 --nodes 2 --page 4KiB
  vgas bench gemm-files --memory 288MiB        beside NumPy, with less memory than the matrices
  vgas bench pair --repeat 5 --json new.json   five processes, for a comparison
  vgas bench compare old.json new.json         rows that became slower beyond the noise")]
pub struct Bench {
    /// Its name; `all`; or `compare`.
    #[arg(required_unless_present = "list")]
    pub name: Option<String>,
    /// For `compare`: two files of rows, or folders of reports, the older first.
    #[arg(value_name = "OLD NEW", num_args = 2)]
    pub files: Vec<PathBuf>,
    /// For `all`: the folder of the report: index.html, rows.json, and the pictures.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// For `all`: keep the rows that an earlier, stopped report left in the folder, and run only the rest.
    #[arg(long)]
    pub resume: bool,
    /// For `all`: only these.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// For `compare`: end with status 1 if something became slower, or a count rose.
    #[arg(long)]
    pub fail: bool,
    /// For `compare`: differences of at most this many percent are never called slower.
    #[arg(long, value_name = "PERCENT", default_value_t = 5)]
    pub margin: u32,
    /// List the benchmarks and their parameters.
    #[arg(long)]
    pub list: bool,
    /// Measure what takes minutes instead of less than one: larger sizes, more samples.
    #[arg(long)]
    pub full: bool,
    /// Change a parameter of the benchmark. May be repeated.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub parameters: Vec<String>,
    /// Write the rows as JSON to this file (`-`: standard output).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the rows, as SVG, into this file.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Take the benchmark's rows from this file, which `--json` has written, instead of measuring: to draw them again.
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,
    /// Measure in this many processes, one after the other; the JSON has a row for each, as `compare` needs
    /// them.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Measure beside this many spinning processes, started and ended with the benchmark.
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1024))]
    pub busy: u32,
    /// Measure in a control group whose memory is limited to this: caches of files, too. Needs the right to make one.
    #[arg(long, value_name = "SIZE", value_parser = crate::limit::size)]
    pub memory: Option<u64>,
    /// The control group to join, made by the starting process; not for users.
    #[arg(long, hide = true)]
    pub join: Option<PathBuf>,
    /// Number of ranks; default: the benchmark's own.
    #[arg(short = 'n', long, value_parser = count, allow_negative_numbers = true)]
    pub ranks: Option<u32>,
    #[command(flatten)]
    pub place: PlacementFlags,
    #[command(flatten)]
    pub config: ConfigFlags,
}

/// Show this machine's conduits, devices and limits, and the reasons for missing ones.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vgas info\n  vgas info --json --set nvm.directory=/scratch")]
pub struct Info {
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigFlags,
}

/// List, show, copy and remove the segments that jobs have stored under a name, heaps of objects among them.
///
/// A segment is one file for each rank, on the machine of that rank, in `nvm.directory`: on a cluster, run this on each machine. Nothing
/// that a job has open is changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vgas segments list
  vgas segments list --set nvm.directory=/scratch --json
  vgas segments show store
  vgas segments copy store /backup            the same name, in another folder
  vgas segments copy store store-before       another name, in the same folder
  vgas segments remove store-before")]
pub struct Segments {
    #[command(subcommand)]
    pub action: SegmentsAction,
}

#[derive(Debug, Subcommand)]
pub enum SegmentsAction {
    /// List what is stored: ranks, sizes, checkpoints, and whether a job uses it.
    #[command(
        visible_alias = "ls",
        after_help = "Example:\n  vgas segments list --set nvm.directory=/scratch"
    )]
    List {
        #[command(flatten)]
        common: SegmentsFlags,
    },
    /// Show one segment: the file of each rank, its checkpoint, and which segments took part in that.
    #[command(after_help = "Example:\n  vgas segments show store --json")]
    Show {
        /// The name of the segment.
        name: String,
        #[command(flatten)]
        common: SegmentsFlags,
    },
    /// Copy a segment to another folder or to another name: all of its files that are here, or none.
    #[command(
        visible_alias = "cp",
        after_help = "\
Examples:
  vgas segments copy store /backup
  vgas segments copy store store-before
  vgas segments copy store /backup/store-before"
    )]
    Copy {
        /// The name of the segment.
        name: String,
        /// A folder, a new name, or a new name in another folder.
        #[arg(value_name = "FOLDER|NAME")]
        to: PathBuf,
        #[command(flatten)]
        common: SegmentsFlags,
    },
    /// Remove segments: all of their files that are here. Refused while a job uses one of them.
    #[command(visible_alias = "rm", after_help = "Example:\n  vgas segments remove store-before scratch-7")]
    Remove {
        /// Their names.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        common: SegmentsFlags,
    },
}

/// Flags of all actions on segments.
#[derive(Clone, Debug, Default, Args)]
pub struct SegmentsFlags {
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigFlags,
}

/// Show the objects of a heap: numbers, sizes, names, and, in a running job, the ranks with copies.
///
/// For a named heap that is not in use, reads the files as its last checkpoint has left them, without reading
/// the objects. For running jobs, asks their ranks on this machine, which continue meanwhile.
/// `vgas run --stats` prints the final state of a job, and `Objects::report` returns it to programs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vgas objects vgas-tree-1000000
  vgas objects /scratch --json
  vgas objects --running             all jobs of this user on this machine
  vgas objects --running=4711        the job of which this is a rank, or its `vgas run`")]
pub struct Objects {
    /// The name of a heap in `nvm.directory`, or a folder, whose heaps are all shown.
    #[arg(value_name = "NAME|FOLDER", required_unless_present = "running")]
    pub what: Option<OsString>,
    /// Heaps of jobs that run on this machine; with a process, of the job that it is of, or has started.
    #[arg(long, value_name = "PID", num_args = 0..=1, require_equals = true, conflicts_with = "what", value_parser = process)]
    pub running: Option<Option<u32>>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigFlags,
}

/// Print the effective settings and where each comes from.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vgas config --config configs/laptop.toml --cache 1GiB
  vgas config --template > vgas.toml")]
pub struct Config {
    /// Print as JSON, with type, default and help.
    #[arg(long)]
    pub json: bool,
    /// Print a file to start from: every setting with its default, explained.
    #[arg(long, conflicts_with_all = ["json", "config", "assignments"])]
    pub template: bool,
    #[command(flatten)]
    pub config: ConfigFlags,
}

/// Print the completions of a shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  vgas completions bash > /etc/bash_completion.d/vgas")]
pub struct Completions {
    /// The shell.
    pub shell: Shell,
}

/// Print the manual page, or write one for each command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vgas man | man -l -\n  vgas man --directory /usr/local/share/man/man1")]
pub struct Man {
    /// Write the pages of all commands into this folder.
    #[arg(long, value_name = "FOLDER")]
    pub directory: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_is_explained_by_an_example() {
        for command in Cli::command().get_subcommands() {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("Example"), "{}", command.get_name());
            assert!(command.get_about().is_some(), "{}", command.get_name());
        }
    }

    /// Everything after the program belongs to the program, with and without `--`.
    #[test]
    fn flags_of_the_program_are_not_ours() {
        for words in [
            &["vgas", "run", "-n", "2", "--", "prog", "--label", "-n", "5"][..],
            &["vgas", "run", "-n", "2", "prog", "--label", "-n", "5"],
            &["vgas", "run", "-n", "2", "--cache=1GiB", "prog", "--label", "-n", "5"],
        ] {
            let Command::Run(run) = Cli::try_parse_from(words).unwrap().command else { panic!("not run") };
            assert_eq!((run.ranks, run.config.label), (2, false));
            assert_eq!(run.program, ["prog", "--label", "-n", "5"]);
        }
        for rest in [&["prog", "--", "-x"][..], &["prog", "--no-such", "-"], &["prog", "-n"]] {
            let words = [&["vgas", "run", "-n", "2"], rest].concat();
            let Command::Run(run) = Cli::try_parse_from(words).unwrap().command else { panic!("not run") };
            assert_eq!(run.program, rest);
        }
    }
}
