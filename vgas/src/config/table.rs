//! The settings, all of them: a setting is added in this table, and nowhere else. Parsing, the names of
//! variables and file keys, help, docs/CONFIGURATION.md, the printed effective values and the typed
//! [`Settings`] come from it.
//!
//! A row is: the help text, field and type, the default as users would write it, the phase in which it matters, and
//! for sizes and counts the limits (first `=>` last, both allowed).

use super::error::ConfigError;
use super::origin::Origin;
use super::value::{
    Auto, Cable, CommandLine, DeviceName, Hooks, Interface, KIB, MIB, Network, OrNone, PortRange, PowerOfTwo,
    ProviderNames, Rates, Size, TIB, Value, choices,
};
use crate::address::Kind;
use std::path::PathBuf;

choices! {
    /// The transport between nodes. Within a node it is always shared memory.
    pub enum ConduitChoice {
        /// The suitable one: at present `tcp`, between machines and between virtual nodes.
        Auto = "auto",
        /// Shared memory: all (virtual) nodes are on this machine.
        Smp = "smp",
        /// TCP sockets, between machines or between virtual nodes of this one.
        Tcp = "tcp",
        /// RDMA over InfiniBand or RoCE, through libibverbs; with one node it is not used.
        Ibv = "ibv",
        /// Whatever network libfabric has a provider for, such as Slingshot, EFA or Omni-Path; with one node it is not used.
        Ofi = "ofi",
    }
}

choices! {
    /// The page to evict from a full cache.
    pub enum ReplacementChoice {
        /// Least recently used, where pages that no other node has count as used more recently: it takes a read of NVMe to get one back.
        LruByCost = "lru-by-cost",
        /// Least recently used, with a second chance in a FIFO for pages that are the only copy (vGASNet §III.F).
        LruSecondChance = "lru-second-chance",
        /// Least recently used.
        Lru = "lru",
        /// The page that came first.
        Fifo = "fifo",
    }
}

choices! {
    /// I/O interface for reading and writing pages.
    pub enum DeviceChoice {
        /// io_uring with direct I/O; `blocking` if the kernel or the file system refuses that.
        Auto = "auto",
        /// io_uring with direct I/O, or an error.
        Uring = "uring",
        /// Plain reads and writes by a few threads.
        Blocking = "blocking",
        /// No file at all: pages stay in memory. For measuring everything but the device.
        Memory = "memory",
    }
}

impl DeviceChoice {
    /// Returns true if processes of the job may set up an io_uring.
    pub(crate) fn may_use_uring(self) -> bool {
        matches!(self, Self::Auto | Self::Uring)
    }
}

choices! {
    /// Mechanism of plain loads and stores on a tiered segment (vGASNet §III.D).
    pub enum LocalMechanism {
        /// `userfaultfd` if it is allowed, `sigsegv` otherwise.
        Auto = "auto",
        /// userfaultfd in SIGBUS mode, served in the thread that faults. System calls on absent pages fail with EFAULT.
        Userfaultfd = "userfaultfd",
        /// userfaultfd that serves absent pages to system calls, too (`read` into the segment). It must be one that the
        /// kernel allows for its own faults; every fault takes two more wake-ups.
        SystemCalls = "system-calls",
        /// Absent pages are not accessible, and SIGSEGV is served in the thread that faults. System calls fail as above.
        Sigsegv = "sigsegv",
    }
}

choices! {
    /// Protocol by which externally started ranks find each other.
    pub enum PmiProtocol {
        /// As the surroundings offer: `pmix` before `pmi1`.
        Auto = "auto",
        /// PMIx, by the site's libpmix: `mpirun`, `srun --mpi=pmix`.
        Pmix = "pmix",
        /// The wire protocol of PMI-1: `mpiexec.hydra`, `srun --mpi=pmi2`.
        Pmi1 = "pmi1",
        /// Not at all: only `vgas run` makes jobs.
        None = "none",
    }
}

choices! {
    /// Hosts of the ranks if none are named.
    pub enum AllocationChoice {
        /// On the hosts that a batch system has given (Slurm, PBS, LSF); without one, here.
        Auto = "auto",
        /// Here.
        None = "none",
    }
}

choices! {
    /// Output of a job's counters.
    pub enum StatisticsChoice {
        /// Nothing.
        Off = "off",
        /// The sums.
        On = "on",
        /// Those of each rank and of each node's agent, then the sums.
        Each = "each",
    }
}

/// Most threads of an agent.
const AGENT_THREADS_MAX: u64 = vgas_cache::pool::AGENT_THREADS_MAX as u64;

/// Time at which a setting is read, and the process that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// By the command that starts the job.
    Launch,
    /// By each node's daemon and its agent, when the job starts.
    Node,
    /// By each rank, when it attaches its segment.
    Attach,
    /// By the command that started the job, when it ends.
    End,
}

impl Phase {
    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Launch => "by the launcher, when the job starts",
            Self::Node => "by every node, when the job starts",
            Self::Attach => "by every rank, when it attaches its segment",
            Self::End => "when the job ends",
        }
    }
}

/// One row of the table, for code that treats all settings alike.
#[derive(Debug)]
pub struct Setting {
    /// Its name: file key, word after `--set`.
    pub name: &'static str,
    /// Its help text.
    pub(super) help: &'static str,
    /// Kind of its value, with the unit.
    pub kind: &'static str,
    /// Its default value.
    pub default: &'static str,
    /// Time at which it is read.
    pub phase: Phase,
    /// The least and the most it may be, both allowed.
    pub(super) limits: Option<(u64, u64)>,
    pub(super) limit_text: fn(u64) -> String,
    pub(super) forms: fn() -> String,
    pub(super) choices: fn() -> &'static [(&'static str, &'static str)],
    /// Reads a text and writes it in the usual form, or returns the fault.
    pub(super) normalize: fn(&Setting, &str) -> Result<String, String>,
}

/// Reads a value and holds it against the limits of its setting.
fn checked<T: Value>(setting: &Setting, text: &str) -> Result<T, String> {
    let value = T::parse(text)?;
    match (setting.limits, value.magnitude()) {
        (Some((least, _)), Some(is)) if is < least => Err(format!("is less than {}", T::limit_text(least))),
        (Some((_, most)), Some(is)) if is > most => Err(format!("is more than {}", T::limit_text(most))),
        _ => Ok(value),
    }
}

/// The value of one field, from the row that belongs to it.
fn field<T: Value>(
    row: Option<&'static Setting>,
    text: &mut impl FnMut(&'static Setting) -> Result<String, ConfigError>,
) -> Result<T, ConfigError> {
    let setting = row.expect("one row a field: both come from one macro");
    let text = text(setting)?;
    checked(setting, &text).map_err(|reason| ConfigError::refused(setting, &text, Origin::Job, reason))
}

/// Turns the rows into [`TABLE`], [`GROUPS`], [`Settings`] and one struct a group.
macro_rules! settings {
    (@row $name:expr, $type:ty, $default:literal, $phase:ident, [$($help:literal)+], [$($least:expr, $most:expr)?]) => {
        Setting {
            name: $name,
            help: concat!($($help),+),
            kind: <$type as Value>::KIND,
            default: $default,
            phase: Phase::$phase,
            limits: settings!(@limits $($least, $most)?),
            limit_text: <$type as Value>::limit_text,
            forms: <$type as Value>::forms,
            choices: <$type as Value>::choices,
            normalize: |setting, text| checked::<$type>(setting, text).map(|value| value.text()),
        }
    };
    (@limits) => { None };
    (@limits $least:expr, $most:expr) => { Some(($least, $most)) };
    (
        top { $(
            $(#[doc = $top_help:literal])+
            $top:ident: $top_type:ty = $top_default:literal, $top_phase:ident;
        )* }
        $(
            $(#[doc = $group_help:literal])+
            $group:ident: $Group:ident { $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = $default:literal, $phase:ident $(, $least:expr => $most:expr)?;
            )* }
        )*
    ) => {
        /// Every setting, in the order in which they are explained.
        pub static TABLE: &[Setting] = &[
            $( settings!(@row stringify!($top), $top_type, $top_default, $top_phase, [$($top_help)+], []), )*
            $( $( settings!(
                @row concat!(stringify!($group), ".", stringify!($field)),
                $type, $default, $phase, [$($help)+], [$($least, $most)?]
            ), )* )*
        ];

        /// The groups (the part of a name before the dot) and their subjects.
        pub static GROUPS: &[(&str, &str)] = &[ $( (stringify!($group), concat!($($group_help),+)), )* ];

        /// The effective settings of a job, typed, for the code.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $( $(#[doc = $top_help])+ pub $top: $top_type, )*
            $( $(#[doc = $group_help])+ pub $group: $Group, )*
        }

        $(
            $(#[doc = $group_help])+
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $Group { $( $(#[doc = $help])+ pub $field: $type, )* }
        )*

        impl Settings {
            /// Builds the typed settings; `text` gives the text of each row's value.
            pub(super) fn read(
                mut text: impl FnMut(&'static Setting) -> Result<String, ConfigError>,
            ) -> Result<Self, ConfigError> {
                // Both come from one macro: the fields take the rows in turn.
                let mut rows = TABLE.iter();
                Ok(Self {
                    $( $top: field::<$top_type>(rows.next(), &mut text)?, )*
                    $( $group: $Group { $( $field: field::<$type>(rows.next(), &mut text)?, )* }, )*
                })
            }

            /// Name and text of every value, in the order of the table.
            pub fn texts(&self) -> Vec<(&'static str, String)> {
                vec![
                    $( (stringify!($top), self.$top.text()), )*
                    $( $( (concat!(stringify!($group), ".", stringify!($field)), self.$group.$field.text()), )* )*
                ]
            }
        }
    };
}

settings! {
    top {
        /// The transport between nodes.
        conduit: ConduitChoice = "auto", Launch;
        /// Hooks on all traffic between nodes, applied in this order, as the program sees it; they show the
        /// cost of a slower network. `delay` and `rate` hold messages back, `jitter` adds a random delay
        /// (after `@`: the seed) and so reorders messages of different nodes, `loss` fails a share of sends,
        /// which are retried, `count` prints at the end what each process has sent and received, and `trace`
        /// logs each message at the level `trace`. Messages within a node are not affected, and so none with
        /// the conduit `smp`.
        hooks: Hooks = "none", Node;
    }

    /// The DRAM cache of a node, which all its ranks share.
    cache: CacheSettings {
        /// DRAM for cached pages, per node. `auto`: a quarter of the memory this process may use, divided by the
        /// nodes on this machine, at most 16GiB.
        size: Auto<Size> = "auto", Launch, 64 * KIB => 64 * TIB;
        /// The unit of caching and coherence. Large pages suit scans, small ones random access.
        page: PowerOfTwo = "64KiB", Launch, 4 * KIB => 4 * MIB;
        /// Allocate the memory of the whole cache before the ranks begin, instead of at the first use of each
        /// page: the start takes as long as the system needs to find and clear it, and nothing later waits
        /// for that. Memory that the system refuses is allocated at first use.
        prefault: bool = "off", Node;
    }

    /// The agent of each node, which serves its cache.
    agent: AgentSettings {
        /// Number of threads of a node's agent, each with its share of the pages. Use more than one only if
        /// other nodes request more pages than one thread can serve.
        threads: u32 = "1", Node, 1 => AGENT_THREADS_MAX;
    }

    /// Segment files on NVMe.
    nvm: NvmSettings {
        /// Folder of the segment files. `auto`: $TMPDIR, or /var/tmp where that is not set. Scratch files
        /// have no name there and vanish with the job.
        directory: Auto<PathBuf> = "auto", Node;
        /// I/O interface for reading and writing pages.
        device: DeviceChoice = "auto", Node;
        /// Most page operations at the device at once, per node.
        queue_depth: u32 = "64", Node, 1 => 4096;
    }

    /// The remotely accessible memory of a rank.
    segment: SegmentSettings {
        /// Default memory of a segment, unless the program says it: `tiered` is a file on NVMe behind the
        /// cache, and may exceed DRAM; `pinned` is DRAM only, without cache and files. `auto` is pinned in
        /// GASNet clients, whatever launcher started them, and tiered in other programs.
        kind: Auto<Kind> = "auto", Attach;
        /// The most that a rank's pinned segments may have, all together. Memory is used only when it is
        /// touched, except over `ibv`, where all of a segment is locked in memory when a peer first reaches
        /// it, or its owner first moves more than 512 bytes out of it or into it.
        pinned_max: Size = "1GiB", Launch, 0 => 64 * TIB;
        /// The largest tiered segment a rank may attach. Space is used only when it is written; each page
        /// costs 8 bytes of table on every node that touches it.
        tiered_max: Size = "256GiB", Launch, 0 => 64 * TIB;
        /// Attach named segments although they are of different checkpoints, because one of them was removed, or replaced by an
        /// older copy. `off` refuses that.
        mixed_checkpoints: bool = "off", Attach;
    }

    /// Shared memory between the processes of a machine.
    smp: SmpSettings {
        /// The ring of messages from one process to another.
        ring: PowerOfTwo = "256KiB", Launch, 256 * KIB => 64 * MIB;
    }

    /// TCP between nodes.
    tcp: TcpSettings {
        /// The ports to listen on, one a process. `auto`: any that is free.
        port_range: Auto<PortRange> = "auto", Node;
        /// Interface to listen on. `auto`: the loopback interface when the job has one machine, otherwise the
        /// address by which the machine reaches the launcher.
        interface: Auto<Interface> = "auto", Node;
    }

    /// RDMA between nodes, the conduit `ibv`. The `tcp` settings say where its connections are set up.
    ibv: IbvSettings {
        /// The RDMA device. `auto`: an active one, InfiniBand before Ethernet, the faster before the slower; nodes of one
        /// machine take turns among equal ones.
        device: Auto<DeviceName> = "auto", Node;
        /// The port of the device. `auto`: an active one.
        port: Auto<u32> = "auto", Node, 1 => 254;
        /// The address of the device, by GID index. `auto`: RoCE v2 over IPv4 if there is one; none on InfiniBand.
        gid: Auto<u32> = "auto", Node, 0 => 255;
        /// The network among whose addresses librdmacm connects the nodes: each node uses its own interface's address in it,
        /// which decides device, port and GID; nodes of one machine take turns among several. The same for all nodes of a
        /// job. `auto`: none; librdmacm is not used, and InfiniBand reaches one subnet.
        network: Auto<Network> = "auto", Node;
        /// Time that a packet may stay unacknowledged: 4.096 microseconds times 2 to this power.
        timeout: u32 = "14", Node, 8 => 31;
        /// Number of times it is sent again before its peer counts as lost. With 7, Soft-RoCE never gives up.
        retries: u32 = "3", Node, 0 => 7;
        /// The service level of every packet, by which switches keep kinds of traffic apart; on Ethernet its
        /// priority. `auto`: librdmacm's choice, or 0.
        service_level: Auto<u32> = "auto", Node, 0 => 15;
        /// The traffic class of every packet that has a global route; with RoCE v2 the type of service in its
        /// IP header, the upper six bits of which are the DSCP (104 is DSCP 26, which many lossless networks
        /// expect). `auto`: as above.
        traffic_class: Auto<u32> = "auto", Node, 0 => 255;
        /// Let the device update words of pinned segments atomically, if it can: the same for all nodes. A job whose devices
        /// differ in this needs `off`: the nodes' processors do it then.
        atomics: bool = "on", Node;
    }

    /// Networks through libfabric, the conduit `ofi`. The `tcp` settings say where its connections are set up.
    ofi: OfiSettings {
        /// The providers to use, as `fi_info -l` and `vgas info` name them; the first available one is taken:
        /// the same for all nodes. `auto`: one that drives a network card (`cxi`, `efa`, `opx`, `psm3` or
        /// `verbs`). Those over sockets (`tcp;ofi_rxm`, `net`) and shared memory (`shm`) are taken only when
        /// they are named.
        provider: Auto<ProviderNames> = "auto", Node;
    }

    /// Plain loads and stores on one's own tiered segment.
    local: LocalSettings {
        /// Mechanism by which such an access brings its page in.
        mechanism: LocalMechanism = "auto", Attach;
        /// Most bytes of its segment that a rank keeps mapped at a time. `auto`: half of the cache, divided
        /// by the ranks of the node, at most 16384 pages. More is never mapped.
        mapped: Auto<Size> = "auto", Launch, 4 * KIB => 64 * TIB;
    }

    /// Resources of virtual nodes, if they are less than the machine's: to see on one machine what a cluster
    /// would show.
    cluster: ClusterSettings {
        /// The link of each node to a switch: as many bits a second each way, and the delay from one node to another. Messages within
        /// a node do not pass it. Needs the conduit `tcp`, and nodes that are all virtual.
        link: OrNone<Cable> = "none", Launch;
        /// The NVMe drive of each node: bytes and operations a second. Pages are read by the agents alone
        /// then (`ablation.self_service` is off).
        nvm: OrNone<Rates> = "none", Node;
        /// Give each virtual node a network namespace of its own, with a cable to a switch. Then the kernel holds back what a `link` has to
        /// (tbf; its delay stays vgas's), and programs see a network of their own. Needs root, `ip` and `tc`; nothing of it has a name or stays.
        netns: bool = "off", Launch;
        /// Most memory of all processes of a virtual node: its cache, its ranks' allocations, and the
        /// system's cache of its files. A process beyond it is killed, and the job ends with a line that says
        /// so. Needs root and control groups.
        memory: OrNone<Size> = "none", Launch, 16 * MIB => 64 * TIB;
    }

    /// Starting jobs.
    run: RunSettings {
        /// Begin every line of output with the rank that wrote it.
        label: bool = "off", Launch;
        /// Let the job continue when a node is lost: its daemon, or a rank on it, is killed, or it becomes
        /// unreachable. One only, and not the first one if the ranks were started by another starter than
        /// `vgas run`. A program that `Objects::run` begins on the first rank ends with it. Needs
        /// `conduit = tcp` and segments that are home-only, as those of owned objects are.
        survive: bool = "off", Launch;
        /// Milliseconds within which every node must be ready, and every rank that another starter has
        /// started must have come; a job that takes longer does not start. After five seconds a line names
        /// the missing ones.
        start_timeout_ms: u32 = "60000", Launch, 100 => 600_000;
        /// Protocol by which a program started by another starter (`srun`, `mpirun`, `mpiexec.hydra`) finds
        /// the other ranks.
        pmi: PmiProtocol = "auto", Launch;
        /// Serve PMI-1 to the ranks that `vgas run` starts, so that MPICH programs among them are ranks of one MPI. Without it, each is an
        /// MPI of one rank.
        serve_pmi: bool = "on", Launch;
        /// Hosts on which `vgas run`, `vgas gemm` and `vgas demo` start ranks when neither hosts nor
        /// `--nodes` are given.
        allocation: AllocationChoice = "auto", Launch;
        /// Command that starts another on a node of an allocation of Slurm; the node and the command are
        /// appended.
        srun: CommandLine = "srun --overlap --mpi=none --cpu-bind=none --mem=0 --quiet --export=ALL", Launch;
        /// Command that starts another on a remote machine; the host and the command are appended.
        ssh: CommandLine = "ssh -T -o BatchMode=yes -o ConnectTimeout=4 -o ServerAliveInterval=5", Launch;
    }

    /// Counters.
    stats: StatsSettings {
        /// Print the job's counters when its ranks finalize. A job that ends by an exit, as those of C programs do, prints
        /// none: see `vgasnet_statistics`.
        print: StatisticsChoice = "off", End;
    }

    /// Features of vgas beyond the paper or a plain cache, each to be switched off. For measuring what it
    /// brings (configs/ablation.toml), not for tuning: results are the same, only slower, or without a guard.
    ablation: AblationSettings {
        /// Cooperative caching: a node that has a page answers for it, so that its home need not (vGASNet §III.B).
        cooperative: bool = "on", Node;
        /// A page that several nodes write in turn stays at home, and their puts and gets travel to it.
        in_place: bool = "on", Node;
        /// Fetch pages ahead of a scan.
        read_ahead: bool = "on", Node;
        /// Send messages about several pages together.
        batch: bool = "on", Node;
        /// A put that covers a whole page does not read the old page.
        whole_page_put: bool = "on", Node;
        /// A small get that misses a page of 256KiB or more, which no other node has in memory, reads only
        /// that part of it. A rank that misses the page again soon gets all of it.
        parts: bool = "on", Node;
        /// A rank that misses a page of its own node's NVMe without a copy on any node reads it by itself
        /// instead of asking the node's agent.
        self_service: bool = "on", Node;
        /// Read a page that other nodes have in memory from its home's NVMe nevertheless, if that was
        /// measured to be so much faster that it is worth the cost to the nodes that share the drive. Off: it
        /// never is.
        read_nearest: bool = "on", Node;
        /// The page to evict from a full cache.
        replacement: ReplacementChoice = "lru-by-cost", Node;
        /// Keep a checksum of every page and verify it on every read. Without them, damage on the device goes unnoticed.
        checksums: bool = "on", Node;
    }
}

impl Setting {
    /// Returns its help text, a sentence or two.
    pub fn help(&self) -> &'static str {
        self.help.trim_start()
    }

    /// The environment variable: `VGAS_CACHE_SIZE` for `cache.size`.
    pub fn variable(&self) -> String {
        format!("VGAS_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// The accepted forms, with the limits.
    pub fn forms(&self) -> String {
        let forms = (self.forms)();
        match self.limits {
            Some((least, most)) => {
                format!("{forms}; {} to {}", (self.limit_text)(least), (self.limit_text)(most))
            }
            None => forms,
        }
    }

    /// Returns the words to choose from and the meaning of each; empty if the value is not such a choice.
    pub fn choices(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        (self.choices)().iter().map(|(word, meaning)| (*word, meaning.trim_start()))
    }
}

/// The row of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|setting| setting.name == name)
}
