//! Any text as settings. See [`crate::fuzzing`].

use super::{Config, ConfigError, FlagValue, Settings, Sources, file};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// Lines that are tried by themselves: each is a whole configuration.
const LINES_MAX: usize = 4;

/// A text as a configuration file, its first lines as flags, and all of them as variables of the environment
/// and as a launcher's settings for the processes of a job.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let flags = file::entries(Path::new("fuzzed"), text).map(|entries| {
        let flag =
            |entry: file::Entry| FlagValue { flag: "--set".into(), name: entry.name, text: entry.text };
        entries.into_iter().map(flag).collect()
    });
    said(flags.and_then(|flags| load(Sources { flags, ..Sources::default() })));
    let lines = || text.lines().filter_map(|line| line.split_once('='));
    for line in text.lines().take(LINES_MAX) {
        said(
            FlagValue::assignment(line)
                .and_then(|flag| load(Sources { flags: vec![flag], ..Sources::default() })),
        );
    }
    let environment = lines().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    // The reader of a variable that names a file follows it.
    let environment = environment.filter(|(name, _)| name != "VGAS_CONFIG").collect();
    said(load(Sources { environment, ..Sources::default() }));
    let map: BTreeMap<String, String> = lines().map(|(name, value)| (name.into(), value.into())).collect();
    said(Settings::from_map(&map).map(|settings| travels(&settings)));
}

fn load(sources: Sources) -> Result<(), ConfigError> {
    Config::load(&sources).map(|config| {
        config.values().iter().for_each(|value| assert!(!value.origin.to_string().is_empty()));
        travels(config.settings());
    })
}

/// The processes of a job get the same settings as the launcher has.
fn travels(settings: &Settings) {
    let map = settings.to_map();
    let again = Settings::from_map(&map).expect("what was accepted before");
    assert_eq!(again.to_map(), map);
}

/// An error is said in words.
fn said(result: Result<(), ConfigError>) {
    if let Err(error) = result {
        assert!(!error.to_string().is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_testing::replay;

    #[test]
    fn any_text_is_settings_or_refused() {
        let file = "conduit = 'tcp'\ncache.page = 65536\n\n[nvm]\nchecksums = false\n[tcp]\nport_range = \"4000-4010\"\n";
        let lines = Config::defaults().settings().to_map();
        let lines: String = lines.iter().map(|(name, text)| format!("{name}={text}\n")).collect();
        replay(
            "settings",
            settings,
            &[
                ("file", file.into()),
                ("lines", lines.into()),
                ("variables", b"VGAS_CACHE_SIZE=4GiB\nVGAS_NVM_DEVICE=memory\nHOME=/\n".to_vec()),
                ("misspelt", b"cach.size = '1GiB'\n[cache]\nsize = 1.5\n".to_vec()),
                ("too-small", b"cache.size=64KiB\ncache.page=4MiB\n".to_vec()),
                ("list", b"cache.size = [[[1, 2], {a.b = 3}], 2026-01-01]\n".to_vec()),
            ],
        );
    }
}
