//! Errors of a configuration: one line with the place and the fault, one hint that says what to write.

use super::origin::Origin;
use super::table::Setting;
use std::io;
use std::path::PathBuf;

/// A refused configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No setting has this name.
    #[error("unknown setting `{name}` ({origin})")]
    UnknownSetting {
        /// As it was written.
        name: String,
        /// Its place.
        origin: Origin,
        /// The nearest name there is.
        nearest: Option<&'static str>,
    },
    /// A variable that begins like vgas's own but is not one of them: most likely misspelt.
    #[error("unknown environment variable `{name}`")]
    UnknownVariable {
        /// As it was written.
        name: String,
        /// The nearest variable there is.
        nearest: Option<String>,
    },
    /// A value that its setting does not take.
    #[error("`{} = {text}` ({origin}) is refused: it {reason}", .setting.name)]
    Refused {
        /// The setting.
        setting: &'static Setting,
        /// The value as it was written.
        text: String,
        /// Its place.
        origin: Origin,
        /// The fault.
        reason: String,
    },
    /// Values that are fine alone but not together.
    #[error("{problem}")]
    Conflict {
        /// The fault, with its reason.
        problem: String,
        /// The remedy.
        hint: String,
    },
    /// `--set` without a name and a value.
    #[error("`{text}` ({origin}) is not a setting and its value")]
    NotAnAssignment {
        /// As it was written.
        text: String,
        /// Its place.
        origin: Origin,
    },
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{}:{line} is not TOML: {reason}", .path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The parser's reason.
        reason: String,
    },
    /// A value in a file is of a type that no setting has.
    #[error("`{name}` ({origin}) is {found}, not a string, a decimal integer or a boolean")]
    WrongType {
        /// The setting, as it was written.
        name: String,
        /// Its place.
        origin: Origin,
        /// The type, with its article.
        found: &'static str,
    },
    /// A variable's value is not text.
    #[error("the environment variable `{name}` is not valid UTF-8")]
    NotText {
        /// The variable.
        name: String,
    },
}

impl ConfigError {
    pub(super) fn refused(setting: &'static Setting, text: &str, origin: Origin, reason: String) -> Self {
        Self::Refused { setting, text: text.into(), origin, reason }
    }

    /// Returns the remedy, if there is one.
    pub fn hint(&self) -> Option<String> {
        let all = "`vgas config` lists all settings";
        match self {
            Self::UnknownSetting { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{nearest}`? {all}"))
            }
            Self::UnknownVariable { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{nearest}`? {all}"))
            }
            Self::UnknownSetting { .. } => Some(all.into()),
            Self::UnknownVariable { name, .. } => Some(format!("unset {name}; {all}")),
            Self::Refused { setting, .. } => Some(format!("write {}", setting.forms())),
            Self::Conflict { hint, .. } => Some(hint.clone()),
            Self::WrongType { name, .. } => {
                let forms = super::table::find(name).map(Setting::forms);
                Some(forms.map_or_else(|| all.into(), |forms| format!("write {forms}")))
            }
            Self::NotAnAssignment { .. } => Some("write NAME=VALUE, such as cache.size=4GiB".into()),
            Self::Unreadable { .. } | Self::NotToml { .. } | Self::NotText { .. } => None,
        }
    }
}
