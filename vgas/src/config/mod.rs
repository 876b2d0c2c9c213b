//! The configuration of a job: one table of settings ([`TABLE`]), read from a file, the environment and flags.
//!
//! * A setting `cache.size` is written `cache.size=4GiB` after `--set`, `VGAS_CACHE_SIZE=4GiB` in the environment, and
//!   `size = "4GiB"` under `[cache]` in a TOML file (`--config FILE` or `VGAS_CONFIG`).
//! * A flag wins over the environment, which wins over the file, which wins over the default.
//! * Unknown settings are refused, wherever they are written: a misspelt name must not silently do nothing.
//!
//! The launcher loads the configuration once ([`Config::load`]) and hands its effective values to every process of the
//! job as text ([`Settings::to_map`], [`Settings::from_map`]); no other process looks at files or variables.

pub mod document;
mod error;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod origin;
mod suggest;
mod table;
pub(crate) mod value;

pub use error::ConfigError;
pub use file::read_text;
pub use origin::Origin;
pub use table::*;
pub use value::{
    Auto, Cable, DeviceName, GIB, Hooks, Interface, KIB, MIB, Network, OrNone, PortRange, PowerOfTwo,
    ProviderNames, Rates, Size, TIB, Value,
};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Variables that begin with `VGAS_` and are not settings, and their meanings.
pub const OTHER_VARIABLES: &[(&str, &str)] = &[
    ("VGAS_CONFIG", "The configuration file to read when no `--config` is given."),
    (
        "VGAS_LOG",
        "What to log to standard error, such as `warn` (the default), `info` or `vgas_cache=debug`.",
    ),
    ("VGAS_HELPER", "Set for the helpers of a job whose ranks others have started; not for users."),
    ("VGAS_PMI_LINE", "Set by `vgas run` for ranks that are served PMI-1; not for users."),
    ("VGAS_CONTROL_FD", "Set by `vgas run` for the processes of a job; not for users."),
];

/// The fewest pages a cache may have: fewer could not hold what one operation and its neighbours need at once.
pub const CACHE_PAGES_MIN: u64 = 16;

/// The largest cache that `cache.size = auto` chooses: the pool of the paper's evaluation (vGASNet §IV.C).
const AUTO_CACHE_MAX: u64 = 16 * GIB;

/// Sources of values.
#[derive(Debug, Default)]
pub struct Sources {
    /// The file given by a flag; without one, `VGAS_CONFIG` names it.
    pub file: Option<PathBuf>,
    /// The environment: `std::env::vars_os().collect()`, or nothing.
    pub environment: Vec<(OsString, OsString)>,
    /// Values given by flags, in their order.
    pub flags: Vec<FlagValue>,
}

/// A value given by a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagValue {
    /// The flag as users write it, for messages: `--cache`.
    pub flag: String,
    /// The setting.
    pub name: String,
    /// Its value.
    pub text: String,
}

impl FlagValue {
    /// Parses the argument of `--set`: `cache.size=4GiB`.
    pub fn assignment(text: &str) -> Result<Self, ConfigError> {
        let flag = || "--set".to_owned();
        match text.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                Ok(Self { flag: flag(), name: name.trim().into(), text: value.trim().into() })
            }
            _ => Err(ConfigError::NotAnAssignment { text: text.into(), origin: Origin::Flag(flag()) }),
        }
    }
}

/// One effective value.
#[derive(Clone, Debug)]
pub struct EffectiveValue {
    /// Its row in the table.
    pub setting: &'static Setting,
    /// The value, in its usual form.
    pub text: String,
    /// Origin of the value.
    pub origin: Origin,
}

/// The effective values of all settings, with where each comes from.
#[derive(Clone, Debug)]
pub struct Config {
    values: Vec<EffectiveValue>,
    settings: Settings,
}

impl Config {
    /// The defaults.
    pub fn defaults() -> Self {
        Self::load(&Sources::default()).expect("the defaults are legal; a test loads them")
    }

    /// Reads all sources, refuses what is unknown or wrong, and checks that the values fit together.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let mut values: Vec<_> = TABLE
            .iter()
            .map(|setting| EffectiveValue { setting, text: setting.default.into(), origin: Origin::Default })
            .collect();
        let mut named_file = sources.file.clone();
        let mut environment = Vec::new();
        for (name, text) in &sources.environment {
            let Some(name) = name.to_str().filter(|name| name.starts_with("VGAS_")) else { continue };
            let text = text.to_str().ok_or_else(|| ConfigError::NotText { name: name.into() })?;
            if name == "VGAS_CONFIG" {
                // Empty is how scripts unset a variable.
                if !text.is_empty() {
                    named_file.get_or_insert_with(|| text.into());
                }
            } else if !OTHER_VARIABLES.iter().any(|(other, _)| *other == name) {
                environment.push((variable(name)?, text, Origin::Environment(name.into())));
            }
        }
        if let Some(path) = &named_file {
            for entry in file::read(path)? {
                put(&mut values, find_or_suggest(&entry.name, &entry.origin)?, &entry.text, entry.origin)?;
            }
        }
        for (setting, text, origin) in environment {
            put(&mut values, setting, text, origin)?;
        }
        for FlagValue { flag, name, text } in &sources.flags {
            let origin = Origin::Flag(flag.clone());
            put(&mut values, find_or_suggest(name, &origin)?, text, origin)?;
        }
        Self::of(values)
    }

    /// Sets other defaults than usual for some settings: every source overrides them.
    ///
    /// # Errors
    /// As of [`load`](Self::load).
    pub fn with_defaults(mut self, defaults: &[FlagValue]) -> Result<Self, ConfigError> {
        for FlagValue { flag, name, text } in defaults {
            let origin = Origin::Flag(flag.clone());
            let setting = find_or_suggest(name, &origin)?;
            let is_default = |value: &EffectiveValue| value.origin == Origin::Default;
            if self.values.iter().any(|value| std::ptr::eq(value.setting, setting) && is_default(value)) {
                put(&mut self.values, setting, text, origin)?;
            }
        }
        Self::of(self.values)
    }

    fn of(values: Vec<EffectiveValue>) -> Result<Self, ConfigError> {
        let mut texts = values.iter().map(|value| value.text.clone());
        let settings = Settings::read(|setting| Ok(texts.next().unwrap_or_else(|| setting.default.into())))?;
        settings.check()?;
        Ok(Self { values, settings })
    }

    /// The values, typed.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The values as text, with where each comes from, in the order of the table.
    pub fn values(&self) -> &[EffectiveValue] {
        &self.values
    }
}

/// Puts a value in its place, unless a stronger source has given one.
fn put(
    values: &mut [EffectiveValue],
    setting: &'static Setting,
    text: &str,
    origin: Origin,
) -> Result<(), ConfigError> {
    let text = (setting.normalize)(setting, text)
        .map_err(|reason| ConfigError::refused(setting, text, origin.clone(), reason))?;
    let place = values.iter_mut().find(|value| std::ptr::eq(value.setting, setting));
    if let Some(place) = place.filter(|place| origin.wins_over(&place.origin)) {
        (place.text, place.origin) = (text, origin);
    }
    Ok(())
}

fn find_or_suggest(name: &str, origin: &Origin) -> Result<&'static Setting, ConfigError> {
    find(name).ok_or_else(|| {
        let nearest = || suggest::nearest(name, TABLE.iter().map(|setting| setting.name));
        let nearest = suggest::successor(name).or_else(nearest);
        ConfigError::UnknownSetting { name: name.into(), origin: origin.clone(), nearest }
    })
}

fn variable(name: &str) -> Result<&'static Setting, ConfigError> {
    TABLE.iter().find(|setting| setting.variable() == name).ok_or_else(|| {
        let mut names: Vec<String> = TABLE.iter().map(Setting::variable).collect();
        names.push("VGAS_CONFIG".into());
        names.push("VGAS_LOG".into());
        let nearest = suggest::nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
        ConfigError::UnknownVariable { name: name.into(), nearest }
    })
}

impl Settings {
    /// As text, for the processes of the job.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.texts().into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
    }

    /// From what [`Settings::to_map`] gave. A setting that is missing has its default; an unknown one is refused.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        for name in map.keys() {
            find_or_suggest(name, &Origin::Job)?;
        }
        let settings = Self::read(|setting| {
            Ok(map.get(setting.name).map_or(setting.default, String::as_str).to_owned())
        })?;
        settings.check()?;
        Ok(settings)
    }

    /// Holds the values against each other.
    fn check(&self) -> Result<(), ConfigError> {
        let page = self.cache.page.bytes();
        if let Auto::Is(size) = self.cache.size
            && size.bytes() / page < CACHE_PAGES_MIN
        {
            let least = Size::of_bytes(page * CACHE_PAGES_MIN);
            return Err(ConfigError::Conflict {
                problem: format!(
                    "a cache of {size} has room for {} pages of {}, fewer than {CACHE_PAGES_MIN}",
                    size.bytes() / page,
                    self.cache.page
                ),
                hint: format!("set cache.size to {least} or more, or cache.page to less"),
            });
        }
        if self.conduit == ConduitChoice::Smp && !self.hooks.is_empty() {
            return Err(ConfigError::Conflict {
                problem: format!(
                    "hooks = {} would do nothing: the conduit smp carries all in shared memory",
                    self.hooks.text()
                ),
                hint: "set conduit to tcp, ibv or ofi, or hooks to none".into(),
            });
        }
        let is_tcp = self.conduit.provider().name == vgas_rma::conduit::tcp::NAME;
        if !is_tcp && self.cluster.link != OrNone::None {
            return Err(ConfigError::Conflict {
                problem: format!(
                    "cluster.link = {} would do nothing: only what goes over TCP can be held back",
                    self.cluster.link.text()
                ),
                hint: "set conduit to tcp, or cluster.link to none".into(),
            });
        }
        if !is_tcp && self.cluster.netns {
            return Err(ConfigError::Conflict {
                problem: format!(
                    "cluster.netns = on with {}: only TCP crosses network namespaces",
                    self.conduit.text()
                ),
                hint: "set conduit to tcp, or cluster.netns to off".into(),
            });
        }
        Ok(())
    }
}

impl CacheSettings {
    /// Returns the bytes of a node's cache pool, a whole number of pages, at least [`CACHE_PAGES_MIN`].
    /// `memory_bytes` is the memory that the processes on this machine may use, `nodes_here` the number of
    /// (virtual) nodes that share it.
    ///
    /// # Panics
    /// When `nodes_here` is 0.
    pub fn size_bytes(&self, memory_bytes: u64, nodes_here: u32) -> u64 {
        let page = self.page.bytes();
        let wanted = match self.size {
            Auto::Is(size) => size.bytes(),
            Auto::Auto => (memory_bytes / 4 / u64::from(nodes_here)).min(AUTO_CACHE_MAX),
        };
        (wanted / page).max(CACHE_PAGES_MIN) * page
    }
}

impl ClusterSettings {
    /// Returns the first setting that only virtual nodes can have, and what it provides.
    pub(crate) fn of_virtual_nodes(&self) -> Option<(&'static str, &'static str)> {
        let asked = [
            (self.link != OrNone::None, "cluster.link (--link)", "links"),
            (self.netns, "cluster.netns (--netns)", "networks"),
            (self.memory != OrNone::None, "cluster.memory (--node-memory)", "memory"),
        ];
        asked.into_iter().find(|(is_asked, ..)| *is_asked).map(|(_, name, what)| (name, what))
    }
}

impl NvmSettings {
    /// The folder of this machine's segment files.
    pub fn directory_path(&self) -> PathBuf {
        match &self.directory {
            Auto::Is(path) => path.clone(),
            Auto::Auto => std::env::var_os("TMPDIR")
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
                .unwrap_or_else(|| Path::new("/var/tmp").to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
