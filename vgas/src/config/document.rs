//! The table, written for people: docs/CONFIGURATION.md and a file to start from.

use super::{GROUPS, OTHER_VARIABLES, Setting, TABLE};
use std::fmt::Write;

/// docs/CONFIGURATION.md. A test compares.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         Written by vgas from its table of settings (`vgas/src/config/table.rs`); do not edit by hand.\n\n\
         A setting is written `--set cache.size=4GiB` on a command line, `VGAS_CACHE_SIZE=4GiB` in the environment,\n\
         and `size = \"4GiB\"` under `[cache]` in a TOML file (`--config FILE`). A flag wins over the environment, the\n\
         environment over the file, the file over the default. Unknown names are refused. `vgas config` prints the\n\
         effective values and where each comes from; `vgas config --template` prints a file to start from.\n",
    );
    for (group, about) in groups() {
        match group {
            "" => page.push_str("\n## General\n"),
            _ => write!(page, "\n## {group}\n\n{about}\n").unwrap_or_default(),
        }
        for setting in of_group(group) {
            write_setting(&mut page, setting);
        }
    }
    page.push_str("\n## Other environment variables\n\n");
    for (name, about) in OTHER_VARIABLES {
        writeln!(page, "* `{name}`: {about}").unwrap_or_default();
    }
    page
}

fn write_setting(page: &mut String, setting: &Setting) {
    let choices: String =
        setting.choices().map(|(word, meaning)| format!("  * `{word}`: {meaning}\n")).collect();
    write!(
        page,
        "\n### `{}`\n\n{}\n\n* {}; default `{}`; variable `{}`\n* Write {}.\n{choices}* Read {}.\n",
        setting.name,
        setting.help(),
        setting.kind,
        setting.default,
        setting.variable(),
        setting.forms(),
        setting.phase.describe(),
    )
    .unwrap_or_default();
}

/// A configuration file with every setting at its default, each commented out and explained.
pub fn template() -> String {
    let mut file = String::from("# vgas configuration: remove the `#` before what you want to change.\n");
    for (group, about) in groups() {
        if !group.is_empty() {
            write!(file, "\n# {about}\n[{group}]\n").unwrap_or_default();
        }
        for setting in of_group(group) {
            let key = setting.name.rsplit('.').next().unwrap_or(setting.name);
            let help = setting.help();
            write!(file, "\n# {help}\n# Write {}.\n# {key} = \"{}\"\n", setting.forms(), setting.default)
                .unwrap_or_default();
        }
    }
    file
}

/// The groups in order, the settings without a group first.
fn groups() -> impl Iterator<Item = (&'static str, &'static str)> {
    std::iter::once(("", "")).chain(GROUPS.iter().map(|(group, about)| (*group, about.trim_start())))
}

fn of_group(group: &str) -> impl Iterator<Item = &'static Setting> {
    TABLE.iter().filter(move |setting| setting.name.split_once('.').map_or("", |(group, _)| group) == group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Sources};

    /// The page in the repository is the one this table writes. `UPDATE_DOCS=1 cargo test -p vgas config` rewrites it.
    #[test]
    fn the_page_in_the_repository_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/CONFIGURATION.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs")).unwrap();
            std::fs::write(path, markdown()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == markdown(),
            "docs/CONFIGURATION.md is out of date: run the tests with UPDATE_DOCS=1"
        );
    }

    /// Without the `#`, the template must be a legal file that changes nothing.
    #[test]
    fn the_template_is_a_file_of_defaults() {
        let uncommented: String = template()
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if rest.contains(" = \"") => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all.toml");
        std::fs::write(&path, uncommented).unwrap();
        let config = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
        assert_eq!(config.settings(), Config::defaults().settings());
        assert!(config.values().iter().all(|value| value.origin.kind() == "file"));
    }
}
