//! Capabilities of this machine for vgas, and the reasons for missing ones: the output of `vgas info`.
//!
//! Every fact is found by trying the thing itself (a ring is set up, a block is written with direct I/O),
//! because kernels and containers promise more in their version numbers than they allow. Nothing is changed
//! and nothing is left behind. Capabilities that this version was built without are reported as such,
//! whatever hardware is present.

mod machine;
mod probe;

pub use machine::Machine;
pub(crate) use probe::is_in_memory;

use crate::config::Settings;
use serde::Serialize;
use std::fmt;

/// Availability of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Yes.
    Available,
    /// In part, or slower than it could be.
    Limited,
    /// No.
    Missing,
}

/// Subject of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Starters of jobs.
    Starters,
    /// Ways for messages.
    Conduits,
    /// Ways to the disk.
    Devices,
    /// Features of the kernel.
    Kernel,
    /// Cores, memory, limits.
    Machine,
}

/// One thing that this machine offers, or does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Its group.
    pub group: Group,
    /// Its name.
    pub name: &'static str,
    /// Its availability.
    pub state: State,
    /// The finding. One line.
    pub detail: String,
    /// Remedy, if it is not fully there. One line.
    pub remedy: Option<String>,
}

impl Fact {
    fn available(group: Group, name: &'static str, detail: impl Into<String>) -> Self {
        Self { group, name, state: State::Available, detail: detail.into(), remedy: None }
    }

    fn limited(
        group: Group,
        name: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { group, name, state: State::Limited, detail: detail.into(), remedy }
    }

    fn missing(
        group: Group,
        name: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { group, name, state: State::Missing, detail: detail.into(), remedy }
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of vgas.
    pub version: &'static str,
    /// The machine's name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The facts, group by group.
    pub facts: Vec<Fact>,
}

/// The ways for messages that this machine offers, under the names that the setting `conduit` takes.
pub fn conduits() -> Vec<Fact> {
    probe::conduits()
}

/// Surveys this machine with these settings (for example, the folder of the segment files).
pub fn survey(settings: &Settings) -> Report {
    let system = rustix::system::uname();
    let kernel = system.release().to_string_lossy().into_owned();
    let machine = Machine::find();
    let mut facts = probe::starters(settings);
    facts.extend(probe::conduits());
    facts.extend(probe::devices(settings));
    facts.extend(probe::kernel_features(&kernel));
    facts.extend(machine.facts(settings));
    Report {
        version: env!("CARGO_PKG_VERSION"),
        host: system.nodename().to_string_lossy().into_owned(),
        kernel,
        facts,
    }
}

impl fmt::Display for Report {
    /// One line a fact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "vgas {} on {}, Linux {}", self.version, self.host, self.kernel)?;
        let mut group = None;
        for fact in &self.facts {
            if group.replace(fact.group) != Some(fact.group) {
                writeln!(f, "\n{}", format!("{:?}", fact.group).to_lowercase())?;
            }
            let state = match fact.state {
                State::Available => "yes",
                State::Limited => "part",
                State::Missing => "no",
            };
            write!(f, "  {:<15} {state:<5} {}", fact.name, fact.detail)?;
            if let Some(remedy) = &fact.remedy {
                write!(f, "; to get it: {remedy}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_fact_is_one_line_and_what_is_missing_says_how_to_get_it() {
        let report = survey(Config::defaults().settings());
        for fact in &report.facts {
            assert!(!fact.detail.is_empty() && !fact.detail.contains('\n'), "{fact:?}");
            assert_eq!(fact.remedy.is_some(), fact.state != State::Available, "{fact:?}");
            assert!(
                fact.remedy.iter().all(|remedy| !remedy.is_empty() && !remedy.contains('\n')),
                "{fact:?}"
            );
        }
        let text = report.to_string();
        assert_eq!(text.lines().count(), 1 + 2 * 5 + report.facts.len(), "{text}");
    }

    #[test]
    fn what_every_linux_has_is_found_and_what_is_not_built_is_not_claimed() {
        let report = survey(Config::defaults().settings());
        let state = |name| report.facts.iter().find(|fact| fact.name == name).map(|fact| fact.state);
        assert_eq!(state("smp"), Some(State::Available));
        assert_eq!(state("tcp"), Some(State::Available));
        if !vgas_rma::conduit::ibv::devices().iter().any(|device| device.active) {
            assert_eq!(state("ibv"), Some(State::Missing));
        }
        let sockets = vgas_rma::conduit::ofi::available("tcp;ofi_rxm");
        assert!(sockets.is_ok() || state("ofi") != Some(State::Limited), "{sockets:?}");
        assert_eq!(state("fallback"), Some(State::Available));
    }
}
