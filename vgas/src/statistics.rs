//! The counters of a job, for programs and for people.

use std::fmt;
use vgas_cache::pool::{Counter, CounterSnapshot};

/// What a rank, the agent of a node, or all of them together have counted.
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

    /// What was counted since an earlier reading.
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
