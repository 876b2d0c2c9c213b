//! Origin of a value.

use std::fmt;
use std::path::PathBuf;

/// Origin of a value; later ones win over earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table.
    Default,
    /// A configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line in it, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag of the command, as it was written: `--cache`, `--set`.
    Flag(String),
    /// The process that started this one.
    Job,
}

impl Origin {
    /// Returns true if it wins over another one: flag over environment over file over default, and later over
    /// earlier.
    pub(super) fn wins_over(&self, other: &Self) -> bool {
        self.strength() >= other.strength()
    }

    fn strength(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File { .. } => 1,
            Self::Environment(_) => 2,
            Self::Flag(_) => 3,
            Self::Job => 4,
        }
    }

    /// One word: `default`, `file`, `environment`, `flag`, `job`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File { .. } => "file",
            Self::Environment(_) => "environment",
            Self::Flag(_) => "flag",
            Self::Job => "job",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "${name}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Job => write!(f, "the job"),
        }
    }
}
