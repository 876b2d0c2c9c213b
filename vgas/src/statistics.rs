//! The counters of a job, for programs and for people.

use crate::config::StatisticsChoice;
use crate::error::Result;
use crate::runtime::Runtime;
use std::fmt;
use vgas_cache::pool::{Counter, CounterSnapshot};
use vgas_rma::{Rank, say};

/// Counts of a rank, of a node's agent, or of all of them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    values: Vec<(Counter, u64)>,
}

impl Statistics {
    /// One of them.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values.iter().find(|(other, _)| *other == counter).map_or(0, |(_, value)| *value)
    }

    /// All of them, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        self.values.iter().copied()
    }

    /// Returns the counts since an earlier reading.
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        let values =
            self.values.iter().map(|&(counter, value)| (counter, value - earlier.get(counter).min(value)));
        Self { values: values.collect() }
    }
}

impl From<CounterSnapshot> for Statistics {
    fn from(snapshot: CounterSnapshot) -> Self {
        Self { values: snapshot.iter().collect() }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (counter, value) in self.iter().filter(|(_, value)| *value > 0) {
            writeln!(f, "{:<24} {value:>16}  {}", counter.name(), counter.describe())?;
        }
        Ok(())
    }
}

impl Runtime {
    /// Returns the counts of the whole job since its start. Collective.
    pub fn statistics(&self) -> Result<Statistics> {
        let mut sum = CounterSnapshot::default();
        for (rank, agent) in self.all_counters()? {
            sum.add(&rank);
            agent.iter().for_each(|agent| sum.add(agent));
        }
        Ok(sum.into())
    }

    /// Returns the counts of this rank since its start: hits, requests, and its own reads from its node's
    /// NVMe. Any thread may call it at any time.
    pub fn rank_statistics(&self) -> Statistics {
        self.client().counters().into()
    }

    /// Returns the counts of this node's agent since its start: answers to misses that needed it, messages,
    /// NVMe. Any thread may call it at any time.
    pub fn node_statistics(&self) -> Statistics {
        self.client().node_counters().into()
    }

    /// Gathers the counters of every rank, and, from the first rank of a node, of its agent. Collective.
    fn all_counters(&self) -> Result<Vec<(CounterSnapshot, Option<CounterSnapshot>)>> {
        let words = |counters: CounterSnapshot| counters.iter().map(|(_, value)| value).collect::<Vec<_>>();
        let mut own = words(self.client().counters());
        if self.layout().ranks_of(self.node()).start == self.rank().0 {
            own.extend(words(self.client().node_counters()));
        }
        let bytes: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
        let counters = |words: &[[u8; 8]]| {
            (words.len() == Counter::COUNT)
                .then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect::<CounterSnapshot>())
        };
        let all = self.internal_world().all_gatherv(&bytes)?.into_iter().map(|bytes| {
            let (words, _) = bytes.as_chunks::<8>();
            let (rank, agent) = words.split_at(words.len().min(Counter::COUNT));
            (counters(rank).unwrap_or_default(), counters(agent))
        });
        Ok(all.collect())
    }

    /// Prints the job's counters on rank 0 as the settings say. Collective.
    pub(crate) fn print_statistics(&self) -> Result<()> {
        if self.settings().stats.print == StatisticsChoice::Off {
            return Ok(());
        }
        let all = self.all_counters()?;
        if self.rank().0 != 0 {
            return Ok(());
        }
        let mut sum = CounterSnapshot::default();
        let mut text = String::new();
        let is_each = self.settings().stats.print == StatisticsChoice::Each;
        let mut count = |who: String, counters: &CounterSnapshot| {
            sum.add(counters);
            if is_each {
                text += &format!("{who}:\n{}", Statistics::from(counters.clone()));
            }
        };
        for (rank, (own, agent)) in (0..).map(Rank).zip(&all) {
            count(rank.to_string(), own);
            if let Some(agent) = agent {
                count(format!("the agent of {}", self.layout().node_of(rank)), agent);
            }
        }
        if is_each {
            text += "all:\n";
        }
        say::text(format_args!("{text}{}", Statistics::from(sum)));
        Ok(())
    }
}
