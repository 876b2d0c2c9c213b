//! What a node counts, by name. Ranks and the agent each own a block of words in the table; a block has one writer
//! process, readers anywhere. Hits are counted apart, in each thread's slot, because counting must not cost.

/// A counter of a rank or of a node's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "each variant's meaning is its help text in `describe`")]
pub enum Counter {
    GetHits,
    PutHits,
    GetMisses,
    PutMisses,
    FromHome,
    FromPeer,
    FromNvm,
    WithoutData,
    Forwards,
    Invalidations,
    InPlaceServed,
    InPlaceEntered,
    InPlaceLeft,
    WriteBacks,
    EvictionsCommon,
    EvictionsLast,
    RequestMessages,
    ReplyMessages,
    DataMessages,
    InvalidationMessages,
    ControlBytes,
    DataBytes,
    NvmReads,
    NvmReadBytes,
    NvmPartReads,
    NvmWrites,
    NvmWriteBytes,
    ReadAheadPages,
    ReadAheadUsed,
    ReadAheadUnused,
    WholePagePuts,
    Faults,
    Pins,
    SlowPaths,
    CombinedPuts,
    CombinedRuns,
    ServiceCalls,
}

macro_rules! table {
    ($($counter:ident, $name:literal, $help:literal;)*) => {
        impl Counter {
            /// All of them, in the order of their words.
            pub const ALL: &'static [Counter] = &[$(Counter::$counter),*];
            /// How many there are.
            pub const COUNT: usize = Counter::ALL.len();

            /// The name in statistics and JSON.
            pub fn name(self) -> &'static str {
                match self { $(Counter::$counter => $name),* }
            }

            /// What it counts.
            pub fn describe(self) -> &'static str {
                match self { $(Counter::$counter => $help),* }
            }
        }
    };
}

table! {
    GetHits, "get_hits", "pages read from the node's pool without asking";
    PutHits, "put_hits", "pages written in the node's pool without asking";
    GetMisses, "get_misses", "pages that a read had to wait for";
    PutMisses, "put_misses", "pages that a write had to wait for";
    FromHome, "from_home", "misses answered from the home's DRAM";
    FromPeer, "from_peer", "misses answered from another node's DRAM (cooperative caching)";
    FromNvm, "from_nvm", "misses answered from NVMe";
    WithoutData, "without_data", "misses that needed no data: upgrades, whole-page puts, pages never written";
    Forwards, "forwards", "requests that the home handed on to a forwarder";
    Invalidations, "invalidations", "copies given up here because somebody else writes";
    InPlaceServed, "in_place_served", "small operations done here for others, in place";
    InPlaceEntered, "in_place_entered", "pages that began to be served in place";
    InPlaceLeft, "in_place_left", "pages that ceased to be served in place";
    WriteBacks, "write_backs", "dirty pages written to NVMe";
    EvictionsCommon, "evictions_common", "pages evicted of which others may have copies";
    EvictionsLast, "evictions_last", "last copies evicted, which are kept longer";
    RequestMessages, "request_messages", "messages that ask for a page";
    ReplyMessages, "reply_messages", "messages that answer without data";
    DataMessages, "data_messages", "messages that carry a page";
    InvalidationMessages, "invalidation_messages", "messages that invalidate, and their acknowledgements";
    ControlBytes, "control_bytes", "bytes of messages other than page data";
    DataBytes, "data_bytes", "bytes of page data sent";
    NvmReads, "nvm_reads", "pages read from NVMe";
    NvmReadBytes, "nvm_read_bytes", "bytes read from NVMe, in pages and parts of pages";
    NvmPartReads, "nvm_part_reads", "parts of pages read from NVMe, for gets that bring no page in";
    NvmWrites, "nvm_writes", "writes to NVMe";
    NvmWriteBytes, "nvm_write_bytes", "bytes written to NVMe";
    ReadAheadPages, "read_ahead_pages", "pages fetched before anybody asked";
    ReadAheadUsed, "read_ahead_used", "marks on such pages (one or two a window) that a reader came to";
    ReadAheadUnused, "read_ahead_unused", "marks on such pages that were evicted before a reader came";
    WholePagePuts, "whole_page_puts", "puts of whole pages, which read nothing";
    Faults, "faults", "page faults served for plain pointers";
    Pins, "pins", "pages pinned";
    SlowPaths, "slow_paths", "hits through the shared slot: more threads than hazard slots";
    CombinedPuts, "combined_puts", "puts into relaxed segments that waited here for the barrier";
    CombinedRuns, "combined_runs", "puts that travelled for them: runs of neighbouring bytes";
    ServiceCalls, "service_calls", "calls of libraries' services served here";
}

/// A copy of a block of counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterSnapshot {
    pub(super) values: [u64; Counter::COUNT],
}

impl Default for CounterSnapshot {
    fn default() -> Self {
        Self { values: [0; Counter::COUNT] }
    }
}

/// From the words of a block, in the order of [`Counter::ALL`]; those that are missing are 0.
impl FromIterator<u64> for CounterSnapshot {
    fn from_iter<I: IntoIterator<Item = u64>>(words: I) -> Self {
        let mut snapshot = Self::default();
        snapshot.values.iter_mut().zip(words).for_each(|(value, word)| *value = word);
        snapshot
    }
}

impl CounterSnapshot {
    /// One value.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }

    /// Names and values, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().map(|&counter| (counter, self.get(counter)))
    }

    /// Adds another block: ranks to a node, nodes to a job.
    pub fn add(&mut self, other: &CounterSnapshot) {
        for (sum, more) in self.values.iter_mut().zip(other.values) {
            *sum = sum.wrapping_add(more);
        }
    }

    /// What was counted since an earlier copy.
    pub fn since(&self, earlier: &CounterSnapshot) -> CounterSnapshot {
        let mut difference = self.clone();
        for (value, before) in difference.values.iter_mut().zip(earlier.values) {
            *value = value.wrapping_sub(before);
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_counter_once_in_order() {
        for (index, &counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(counter as usize, index);
            assert_eq!(Counter::ALL.iter().filter(|other| other.name() == counter.name()).count(), 1);
            assert!(!counter.describe().is_empty());
        }
        assert_eq!(Counter::ServiceCalls as usize, Counter::COUNT - 1, "the last variant is in the table");
    }
}
