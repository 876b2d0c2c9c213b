//! The conduits by name: their reach, their requirements on this machine, and their opening between nodes.
//!
//! This table is the only place where all of them are listed. Each row is a [`Provider`] that lies beside its conduit,
//! in `provider.rs`, and reads its own settings through [`Options`].

#![forbid(unsafe_code)]

use super::tcp::TcpSpec;
use super::{Conduit, ibv, ofi, smp, tcp};
use crate::error::{Result, RmaError};
use std::fmt;
use std::sync::Arc;

/// All conduits that a job may name, in the order in which they are shown to people.
pub static PROVIDERS: &[&Provider] = &[&smp::PROVIDER, &tcp::PROVIDER, &ibv::PROVIDER, &ofi::PROVIDER];

/// Default conduit between nodes: it works everywhere.
pub const DEFAULT: &str = tcp::NAME;

/// One conduit, as a job chooses it.
#[derive(Debug)]
pub struct Provider {
    /// Its name, as written after `--conduit`; [`Conduit::name`] is the same.
    pub name: &'static str,
    /// The nodes that it connects.
    pub reach: Reach,
    /// Its way of opening.
    pub(super) way: OpenMode,
    /// Tries whether this machine has what it needs.
    pub(super) probe: fn() -> Availability,
    /// The part of its opening that takes long, if there is one.
    pub(super) slow: Option<Slow>,
}

/// A part of the opening of a conduit that takes long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slow {
    /// Description for users who wait: the step, and its duration on an idle machine.
    pub(super) what: &'static str,
    /// Does it, once a process. It needs no settings.
    pub(super) begin: fn(),
}

/// Reach of a conduit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Virtual nodes of one machine.
    OneHost,
    /// Nodes of any machines.
    SeveralHosts,
}

/// Ways for a job's nodes to open a conduit.
#[derive(Clone, Copy, Debug)]
pub(super) enum OpenMode {
    /// All processes of the job share one domain, which carries it.
    Domain,
    /// Every process opens it, over a listener of its own.
    Opened(fn(TcpSpec, &dyn Options) -> Result<Arc<dyn Conduit>>),
}

/// A job's settings, for a conduit that reads its own. A setting without a value is left to the conduit
/// (`auto`). The empty options, which leave everything to it, are `()`.
pub trait Options {
    /// A word or a name.
    fn text(&self, name: &str) -> Option<String>;

    /// A count, or a number of bytes.
    fn number(&self, name: &str) -> Option<u64>;

    /// A switch.
    fn is_on(&self, name: &str) -> Option<bool>;
}

impl Options for () {
    fn text(&self, _name: &str) -> Option<String> {
        None
    }

    fn number(&self, _name: &str) -> Option<u64> {
        None
    }

    fn is_on(&self, _name: &str) -> Option<bool> {
        None
    }
}

/// A number of the options, in the type that the conduit has for it.
///
/// # Errors
/// [`RmaError::Usage`] when it does not fit, which the table of settings should not have let pass.
pub(super) fn number<T: TryFrom<u64>>(options: &dyn Options, name: &str) -> Result<Option<T>> {
    let fits = |number: u64| {
        T::try_from(number).map_err(|_| RmaError::Usage(format!("{name}={number} is out of range")))
    };
    options.number(name).map(fits).transpose()
}

/// Availability of a conduit on this machine. Each text is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It can be used.
    Available {
        /// The finding.
        detail: String,
    },
    /// In part, or slower than it could be.
    Limited {
        /// The finding.
        detail: String,
        /// Remedy for the missing part.
        remedy: String,
    },
    /// It cannot be used.
    Missing {
        /// The finding.
        detail: String,
        /// Remedy.
        remedy: String,
    },
}

impl Availability {
    pub(super) fn missing(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Missing { detail: detail.into(), remedy: remedy.into() }
    }
}

impl Provider {
    /// Returns true if all processes of a job with this conduit share one domain: nothing is opened between
    /// its nodes.
    pub fn is_domain(&self) -> bool {
        matches!(self.way, OpenMode::Domain)
    }

    /// Returns true if it connects nodes on several machines.
    pub fn reaches_hosts(&self) -> bool {
        self.reach == Reach::SeveralHosts
    }

    /// Tries whether this machine has what it needs. Changes nothing and leaves nothing behind.
    pub fn probe(&self) -> Availability {
        (self.probe)()
    }

    /// Returns the slow part of opening it, for users who wait; none if nothing is slow.
    pub fn slow(&self) -> Option<&'static str> {
        self.slow.map(|slow| slow.what)
    }

    /// Does some work, and beside it what takes long when this conduit is opened, which finds it done then. Returns when both have ended.
    pub fn prepare_beside<T>(&self, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            if let Some(slow) = self.slow {
                // Without a thread it is done when the conduit is opened.
                let _ =
                    std::thread::Builder::new().name("vgas-conduit".into()).spawn_scoped(scope, slow.begin);
            }
            work()
        })
    }

    /// Opens it in a process of a job, at the listener of `spec`.
    ///
    /// # Errors
    /// Those of the conduit; [`RmaError::Usage`] when nothing is to be opened ([`Provider::is_domain`]).
    pub fn open(&self, spec: TcpSpec, options: &dyn Options) -> Result<Arc<dyn Conduit>> {
        match self.way {
            OpenMode::Opened(open) => open(spec, options),
            OpenMode::Domain => {
                Err(RmaError::Usage(format!("the conduit {} is not opened between nodes", self.name)))
            }
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The conduit of this name.
///
/// # Errors
/// [`RmaError::Refused`] if there is none; it lists the existing ones.
pub fn find(name: &str) -> Result<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.name == name).copied().ok_or_else(|| {
        RmaError::Refused(format!("no conduit {name:?} between nodes; there are {}", names(|_| true, "and")))
    })
}

/// The names of the conduits that reach other hosts, for people: `tcp, ibv or ofi`.
pub fn names_that_reach_hosts() -> String {
    names(Provider::reaches_hosts, "or")
}

/// The names of some conduits, for people.
fn names(wanted: impl Fn(&Provider) -> bool, last: &str) -> String {
    let names: Vec<_> = PROVIDERS.iter().filter(|provider| wanted(provider)).map(|p| p.name).collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => (*only).into(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a name finds its conduit and no other; an unknown one is refused in one line that lists the
    /// existing ones.
    #[test]
    fn conduits_are_found_by_name() {
        for provider in PROVIDERS {
            assert!(std::ptr::eq(find(provider.name).unwrap(), *provider), "{provider} is listed twice");
        }
        let error = find("pigeon").unwrap_err().to_string();
        assert!(error.contains("there are smp, tcp, ibv and ofi") && !error.contains('\n'), "{error}");
        assert_eq!(names_that_reach_hosts(), "tcp, ibv or ofi");
        assert!(find(DEFAULT).unwrap().reaches_hosts());
    }

    /// Goal: a missing conduit has a remedy, on one line each.
    #[test]
    fn probes_answer_for_people() {
        for provider in PROVIDERS {
            let texts = match provider.probe() {
                Availability::Available { detail } => vec![detail],
                Availability::Limited { detail, remedy } | Availability::Missing { detail, remedy } => {
                    vec![detail, remedy]
                }
            };
            assert!(
                texts.iter().all(|text| !text.is_empty() && !text.contains('\n')),
                "{provider}: {texts:?}"
            );
        }
    }

    /// Goal: a number that a conduit's type cannot hold is an error that names the setting, and not a smaller number.
    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        struct Only(u64);
        impl Options for Only {
            fn text(&self, _name: &str) -> Option<String> {
                None
            }
            fn number(&self, _name: &str) -> Option<u64> {
                Some(self.0)
            }
            fn is_on(&self, _name: &str) -> Option<bool> {
                None
            }
        }
        assert_eq!(number::<u8>(&Only(255), "x.port").unwrap(), Some(255));
        let error = number::<u8>(&Only(256), "x.port").unwrap_err().to_string();
        assert!(error.contains("x.port=256"), "{error}");
        assert_eq!(number::<u8>(&(), "x.port").unwrap(), None);
    }
}
