//! Reads a TOML configuration file into names, texts and lines. Knows no setting.

use super::error::ConfigError;
use super::origin::Origin;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One `key = value` of a file.
pub(super) struct Entry {
    /// The keys joined by dots.
    pub name: String,
    pub text: String,
    pub origin: Origin,
}

/// The most bytes a configuration file may have: it is read as a whole, and nobody writes a larger one.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// All entries of a file, in their order.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.into(), source };
    let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(unreadable(std::io::Error::other(format!("it has {bytes} bytes, more than 1MiB"))));
    }
    entries(path, &std::fs::read_to_string(path).map_err(unreadable)?)
}

/// All entries of a text; `path` is for messages.
pub(super) fn entries(path: &Path, text: &str) -> Result<Vec<Entry>, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| ConfigError::NotToml {
        path: path.into(),
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        reason: error.message().replace('\n', ", "),
    })?;
    let mut entries = Vec::new();
    collect(path, text, "", table.get_ref(), &mut entries)?;
    entries.sort_by_key(|(position, _)| *position);
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

fn collect(
    path: &Path,
    text: &str,
    prefix: &str,
    table: &DeTable<'_>,
    entries: &mut Vec<(usize, Entry)>,
) -> Result<(), ConfigError> {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        let value_text = match value.get_ref() {
            DeValue::Table(inner) => {
                collect(path, text, &format!("{name}."), inner, entries)?;
                continue;
            }
            DeValue::String(value) => value.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            // As written, so that `0x10` and `1_000` are refused or read by the setting's own rules.
            DeValue::Integer(value) if value.radix() == 10 => value.as_str().to_owned(),
            _ => {
                return Err(ConfigError::NotToml {
                    path: path.into(),
                    line: line_of(text, value.span().start),
                    reason: format!("`{name}` must be a string, a decimal integer or a boolean"),
                });
            }
        };
        let origin = Origin::File { path: path.into(), line: line_of(text, key_start(key)) };
        entries.push((key_start(key), Entry { name, text: value_text, origin }));
    }
    Ok(())
}

fn key_start<T>(key: &Spanned<T>) -> usize {
    key.span().start
}

fn line_of(text: &str, position: usize) -> usize {
    1 + text.bytes().take(position).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_and_dotted_keys_are_the_same_and_know_their_line() {
        let text = "conduit = 'tcp'\ncache.page = 65536\n\n[nvm]\nchecksums = false\n";
        let found = entries(Path::new("f"), text).unwrap();
        let found: Vec<_> =
            found.iter().map(|entry| format!("{} {}={}", entry.origin, entry.name, entry.text)).collect();
        assert_eq!(found, ["f:1 conduit=tcp", "f:2 cache.page=65536", "f:5 nvm.checksums=false"]);
    }

    #[test]
    fn what_is_no_value_is_refused_with_its_line() {
        for (text, line) in
            [("a = 1\nb = [1]", 2), ("a = 1.5", 1), ("\n\na = ", 3), ("a = 1\na = 2", 2), ("a = 0x10", 1)]
        {
            match entries(Path::new("f"), text) {
                Err(ConfigError::NotToml { line: found, .. }) => assert_eq!(found, line, "{text}"),
                Err(other) => panic!("{text}: {other}"),
                Ok(_) => panic!("{text} was accepted"),
            }
        }
    }
}
