//! Options of the conduit.

use crate::conduit::factory::Options;
use crate::error::Result;

/// The choices of an [`OfiConduit`](super::OfiConduit).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfiOptions {
    /// Providers by name (`fi_info -l` lists them), of which the first available one is taken; none: one that
    /// drives a card.
    pub providers: Vec<String>,
    /// Faults of a simulated bad network.
    #[cfg(test)]
    pub(super) faults: Option<super::shim::Faults>,
}

impl OfiOptions {
    /// Reads the settings `ofi.*` of a job; the rest is as in the default.
    ///
    /// # Errors
    /// None today; a setting that is out of range will be one.
    pub fn read(options: &dyn Options) -> Result<Self> {
        let names = options.text("ofi.provider").unwrap_or_default();
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self {
            providers: names.map(str::to_owned).collect(),
            #[cfg(test)]
            faults: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: without settings, the options are the default; a list is taken apart.
    #[test]
    fn open_settings_are_the_default() {
        assert_eq!(OfiOptions::read(&()).unwrap(), OfiOptions::default());
        struct Named;
        impl Options for Named {
            fn text(&self, name: &str) -> Option<String> {
                (name == "ofi.provider").then(|| "tcp;ofi_rxm, shm".into())
            }
            fn number(&self, _name: &str) -> Option<u64> {
                None
            }
            fn is_on(&self, _name: &str) -> Option<bool> {
                None
            }
        }
        assert_eq!(OfiOptions::read(&Named).unwrap().providers, ["tcp;ofi_rxm", "shm"]);
    }
}
