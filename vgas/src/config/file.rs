//! Reads a TOML configuration file into names, texts and lines. Knows no setting.
//!
//! A file named by the user is read with a limit and a deadline: a pipe without a writer and a device without
//! end must not keep a command from reporting the error.

use super::error::ConfigError;
use super::origin::Origin;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One `key = value` of a file.
pub(super) struct Entry {
    /// The keys joined by dots.
    pub name: String,
    pub text: String,
    pub origin: Origin,
}

/// The most bytes of such a file: it is read as a whole, and no real one is larger.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Timeout for the writer of a pipe: commands report errors within 5 seconds.
const PIPE_TIME_MAX: Duration = Duration::from_secs(2);

/// All entries of a file, in their order.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.into(), source };
    entries(path, &read_text(path).map_err(unreadable)?)
}

/// Reads a text file of the user's, such as a configuration or a list of hosts; even from a pipe (`<(…)`),
/// once.
///
/// # Errors
/// The system's error; and if it has more than 1 MiB, does not end within 2 seconds, or is no UTF-8.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    // A pipe without a writer would be waited for without a limit.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.union(rustix::fs::OFlags::NOCTTY).bits() as i32;
    let mut file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    let deadline = Instant::now() + PIPE_TIME_MAX;
    let mut bytes = Vec::new();
    wait_for_bytes(&file, deadline)?;
    loop {
        // One byte more than allowed tells too long from just so long.
        match Read::by_ref(&mut file).take(FILE_BYTES_MAX + 1 - bytes.len() as u64).read_to_end(&mut bytes) {
            Ok(_) if bytes.len() as u64 > FILE_BYTES_MAX => {
                return Err(Error::other("it has more than 1MiB"));
            }
            Ok(_) => break,
            // Earlier bytes are in `bytes`.
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for_bytes(&file, deadline)?,
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Waits until something can be read, or the end.
fn wait_for_bytes(file: &File, deadline: Instant) -> std::io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&time)) {
            Ok(0) => {
                let seconds = PIPE_TIME_MAX.as_secs();
                let what = format!("its end did not come within {seconds} s: nobody writes to it any more");
                return Err(Error::new(ErrorKind::TimedOut, what));
            }
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
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
            other => {
                let origin = Origin::File { path: path.into(), line: line_of(text, value.span().start) };
                let found = match other {
                    DeValue::Integer(_) => "an integer in another base",
                    DeValue::Float(_) => "a number with a fraction",
                    DeValue::Datetime(_) => "a date or a time",
                    _ => "an array",
                };
                return Err(ConfigError::WrongType { name, origin, found });
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
    use std::io::Write;
    use std::os::fd::AsRawFd;

    /// A file of the limit passes, one byte more does not; a file without end is not waited for.
    #[test]
    fn files_are_read_with_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        for (bytes, fits) in [(0, true), (FILE_BYTES_MAX, true), (FILE_BYTES_MAX + 1, false)] {
            std::fs::write(&path, vec![b'#'; bytes as usize]).unwrap();
            assert_eq!(read_text(&path).ok().map(|text| text.len() as u64), fits.then_some(bytes));
        }
        std::fs::write(&path, [0xff]).unwrap();
        for (path, why) in [(path.as_path(), "not UTF-8"), (Path::new("/dev/zero"), "more than 1MiB")] {
            let error = read_text(path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(read_text(Path::new("/dev/null")).unwrap(), "");
        assert!(read_text(folder.path()).is_err());
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_not_waited_for_without_one() {
        let (read, mut write) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", read.as_raw_fd());
        write.write_all(b"node1\n").unwrap();
        let error = read_text(Path::new(&path)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "its writer is still there: {error}");
        // More than a pipe holds.
        let writer = std::thread::spawn(move || write.write_all(&[b'x'; 300_000]));
        assert_eq!(read_text(Path::new(&path)).unwrap().len(), 300_000);
        writer.join().unwrap().unwrap();
    }

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
                Err(ConfigError::WrongType { origin, .. }) => {
                    assert_eq!(origin.to_string(), format!("f:{line}"), "{text}");
                }
                Err(other) => panic!("{text}: {other}"),
                Ok(_) => panic!("{text} was accepted"),
            }
        }
    }
}
