//! The way of a process to other nodes: the conduit that its job names, told what the settings say.

#![forbid(unsafe_code)]

use crate::config::{ConduitChoice, OrNone, Settings, Size, Value};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use vgas_job::Membership;
use vgas_rma::address::Peer;
use vgas_rma::conduit::Conduit;
use vgas_rma::conduit::factory::{self, Options, Provider};
use vgas_rma::conduit::hook::{Count, Delay, Stacked, Switch};
use vgas_rma::say;

impl ConduitChoice {
    /// The conduit that is meant.
    pub fn provider(self) -> &'static Provider {
        let name = if self == Self::Auto { factory::DEFAULT.into() } else { self.text() };
        factory::find(&name).expect("a test holds the choices against the conduits")
    }
}

/// Time that the end of a job waits for sent messages to arrive.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A process's conduits to other nodes, and their orderly end; none if one domain holds all processes.
pub(crate) struct Network {
    conduit: Option<Arc<dyn Conduit>>,
    /// Counts of the counting hooks.
    counts: Vec<Arc<Count>>,
    me: Peer,
}

impl Network {
    /// Opens what the membership names, with the hooks of the settings around it.
    pub fn open(membership: &mut Membership, settings: &Settings) -> Result<Self> {
        let me = membership.me();
        let Some(conduit) = membership.open_network(&Texts(settings.to_map()))? else {
            return Ok(Self { conduit: None, counts: Vec::new(), me });
        };
        let conduit = switched(conduit, membership, settings)?;
        let Stacked { conduit, counts } = settings.hooks.around(conduit, membership.layout(), me)?;
        Ok(Self { conduit: Some(conduit), counts, me })
    }

    /// For the endpoint.
    pub fn conduit(&self) -> Option<Arc<dyn Conduit>> {
        self.conduit.clone()
    }

    /// Ends the connections so that the other side does not take it for a loss, and tells what hooks have counted.
    pub fn close(&self) {
        if let Some(conduit) = &self.conduit {
            conduit.close(TIMEOUT);
        }
        for count in &self.counts {
            say::line(format_args!("{}: {}", self.me, count.total()));
        }
    }
}

/// Wraps the conduit in the switch of a virtual cluster, if the settings ask for one.
fn switched(
    conduit: Arc<dyn Conduit>,
    membership: &Membership,
    settings: &Settings,
) -> Result<Arc<dyn Conduit>> {
    let OrNone::Some(cable) = settings.cluster.link else { return Ok(conduit) };
    let (layout, me) = (membership.layout().clone(), membership.me());
    let switch = membership.domain.common().and_then(|common| Switch::new(cable, layout, me, common.clone()));
    let switch = switch.ok_or_else(|| {
        Error::Usage("cluster.link needs nodes that `vgas run` has started on this machine".into())
    })?;
    Ok(Arc::new(Delay::switched(conduit, switch)?))
}

/// The effective settings of a job by name. Their table has checked them.
struct Texts(BTreeMap<String, String>);

impl Options for Texts {
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|text| *text != "auto").cloned()
    }

    fn number(&self, name: &str) -> Option<u64> {
        // Counts are written as plain numbers, which are sizes, too.
        self.text(name).and_then(|text| Size::parse(&text).ok()).map(Size::bytes)
    }

    fn is_on(&self, name: &str) -> Option<bool> {
        self.text(name).and_then(|text| bool::parse(&text).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, FlagValue, Sources};
    use vgas_rma::conduit::ibv::IbvOptions;
    use vgas_rma::conduit::ofi::OfiOptions;

    fn texts(assignments: &[&str]) -> Texts {
        let flags = assignments.iter().map(|text| FlagValue::assignment(text).unwrap()).collect();
        let config = Config::load(&Sources { flags, ..Sources::default() }).unwrap();
        Texts(config.settings().to_map())
    }

    fn options(assignments: &[&str]) -> IbvOptions {
        IbvOptions::read(&texts(assignments)).unwrap()
    }

    /// Goal: the choices of users are the available conduits, and `auto`.
    #[test]
    fn every_conduit_can_be_chosen_and_every_choice_is_one() {
        let choices: Vec<_> = ConduitChoice::choices().iter().map(|(word, _)| *word).collect();
        let conduits = factory::PROVIDERS.iter().map(|provider| provider.name);
        assert_eq!(choices, ["auto"].into_iter().chain(conduits).collect::<Vec<_>>());
        for word in choices {
            let provider = ConduitChoice::parse(word).unwrap().provider();
            assert!(provider.name == word || word == "auto", "{word} is {provider}");
        }
    }

    /// Goal: the defaults of the table and those of the conduit are the same.
    #[test]
    fn defaults_agree() {
        assert_eq!(options(&[]), IbvOptions::default());
        assert_eq!(OfiOptions::read(&texts(&[])).unwrap(), OfiOptions::default());
    }

    /// Goal: every setting reaches its option, whatever its form. None of the values is the default.
    #[test]
    fn every_setting_arrives() {
        let read = options(&[
            "ibv.device=mlx5_1",
            "ibv.port=2",
            "ibv.gid=0",
            "ibv.network=10.9.0.0/24",
            "ibv.timeout=20",
            "ibv.retries=7",
            "ibv.service_level=3",
            "ibv.traffic_class=104",
            "ibv.atomics=off",
        ]);
        let wanted = IbvOptions {
            device: Some("mlx5_1".into()),
            port: Some(2),
            gid: Some(0),
            network: Some("10.9.0.0/24".parse().unwrap()),
            timeout: 20,
            retries: 7,
            service_level: Some(3),
            traffic_class: Some(104),
            atomics: false,
            ..IbvOptions::default()
        };
        assert_eq!(read, wanted);
        let ofi = OfiOptions::read(&texts(&["ofi.provider=tcp;ofi_rxm,shm"])).unwrap();
        assert_eq!(ofi.providers, ["tcp;ofi_rxm", "shm"]);
    }
}
