//! `vgas config`: the effective settings.

use crate::cli;
use crate::failure::Failure;
use crate::{job, output};
use serde::Serialize;
use vgas::config::{Config, document};

/// One setting, for machines.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'static str,
    value: &'a str,
    default: &'static str,
    /// `default`, `file`, `environment`, `flag`.
    source: &'static str,
    /// The file, variable or flag.
    origin: String,
    kind: &'static str,
    variable: String,
    read: &'static str,
    help: &'static str,
}

/// Prints the effective settings, or a file to start from.
pub fn config(flags: &cli::Config) -> Result<u8, Failure> {
    if flags.template {
        return output::print(&document::template());
    }
    let config = job::config(&flags.config)?;
    if flags.json { output::print_json(&entries(&config)) } else { output::print(&listing(&config)) }
}

/// A TOML file that gives these values, with where each comes from as a comment.
fn listing(config: &Config) -> String {
    let lines = config.values().iter().map(|value| {
        let assignment = format!("{} = {:?}", value.setting.name, value.text);
        format!("{assignment:<48} # {}\n", value.origin)
    });
    lines.collect()
}

fn entries(config: &Config) -> Vec<Entry<'_>> {
    let entries = config.values().iter().map(|value| Entry {
        name: value.setting.name,
        value: &value.text,
        default: value.setting.default,
        source: value.origin.kind(),
        origin: value.origin.to_string(),
        kind: value.setting.kind,
        variable: value.setting.variable(),
        read: value.setting.phase.describe(),
        help: value.setting.help(),
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas::config::Sources;

    /// The output can be given back with `--config` and means the same.
    #[test]
    fn the_listing_is_a_configuration_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effective.toml");
        std::fs::write(&path, listing(&Config::defaults())).unwrap();
        let again = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
        assert_eq!(again.settings(), Config::defaults().settings());
    }
}
