//! Output of a job's processes for users.
//!
//! A job is many processes that share a terminal, a file or a pipe, and often fail together. So a line goes
//! there in one write, which the system does not mix with others'. The text contains names of files, words of
//! headers and of command lines: control characters in it are escaped, and no line is longer than a user
//! reads. And a reader that has gone away changes nothing about how the job ends: `eprintln!` would panic,
//! and the process end with 101 instead of its status. Clippy holds the product's code to this
//! (`print_stderr`, `print_stdout`).

use std::fmt::{self, Display, Write as _};
use std::io::{self, ErrorKind, Write};

/// Longest line in characters; of a longer one, beginning and end are shown.
const LINE_MAX: usize = 1000;

/// Longest quotation in characters.
const QUOTE_MAX: usize = 100;

/// Writes one line to standard error, as [`OneLine`]. A failed write is ignored: there is no other place to
/// report it.
pub fn line(text: impl Display) {
    self::text(format_args!("{}\n", OneLine(text)));
}

/// Writes text of several lines to standard error, in one write and as it is.
pub fn text(text: impl Display) {
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// Writes to standard output, in one write and as it is. A reader that has gone away (`| head`) is no failure.
///
/// # Errors
/// The system's error, such as of a full disk.
pub fn print(text: impl Display) -> io::Result<()> {
    print_bytes(text.to_string().as_bytes())
}

/// As [`print()`], for bytes.
///
/// # Errors
/// The system's error, such as of a full disk.
pub fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// A number of bytes for people: at most one decimal.
pub fn rounded(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(UNITS.len() as u32);
    let Some(unit) = power.checked_sub(1).map(|index| UNITS[index as usize]) else {
        return format!("{bytes} bytes");
    };
    let unit_bytes = 1u64 << (10 * power);
    if bytes.is_multiple_of(unit_bytes) {
        format!("{}{unit}", bytes / unit_bytes)
    } else {
        format!("{:.1}{unit}", bytes as f64 / unit_bytes as f64)
    }
}

/// Text as one line for people: control characters are shown as Rust writes them, and what is too long lacks its middle,
/// since the beginning says what went wrong and the end what to do.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<T>(pub T);

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shorten(&self.0.to_string(), LINE_MAX, f)
    }
}

/// A word from a file, a command line or a variable, to be quoted in a message: as [`OneLine`], but much shorter.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<T>(pub T);

impl<T: Display> Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shorten(&self.0.to_string(), QUOTE_MAX, f)
    }
}

/// Writes at most about `max` characters of a text: three quarters from its beginning, a quarter from its end.
fn shorten(text: &str, max: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let count = text.chars().count();
    if count <= max {
        return show(text, f);
    }
    let at = |index: usize| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    show(&text[..at(max * 3 / 4)], f)?;
    write!(f, "[… {} more characters …]", count - max)?;
    show(&text[at(count - max / 4)..], f)
}

fn show(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for character in text.chars() {
        if acts(character) {
            write!(f, "{}", character.escape_default())?;
        } else {
            f.write_char(character)?;
        }
    }
    Ok(())
}

/// Returns true if a terminal acts on the character instead of showing it: control characters, ends of lines,
/// and those that turn the direction of writing.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let shown = OneLine("a\x1b[31m\n\u{7}é\u{9b}\u{202e}b").to_string();
        assert_eq!(shown, r"a\u{1b}[31m\n\u{7}é\u{9b}\u{202e}b");
    }

    #[test]
    fn long_lines_keep_beginning_and_end() {
        let fits = "é".repeat(LINE_MAX);
        assert_eq!(OneLine(&fits).to_string(), fits);
        let shown = OneLine(format!("cannot {}; do this", "x".repeat(50_000))).to_string();
        assert!(shown.starts_with("cannot xxx") && shown.ends_with("x; do this"), "{shown}");
        assert!(
            shown.chars().count() < LINE_MAX + 50 && shown.contains("[… 49016 more characters …]"),
            "{shown}"
        );
        assert!(Quoted("y".repeat(101)).to_string().len() < 150);
    }

    #[test]
    fn bytes_for_people() {
        for (bytes, text) in [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1KiB"), (1 << 30, "1GiB")] {
            assert_eq!(rounded(bytes), text);
        }
        assert_eq!(rounded(24684096 * 1024), "23.5GiB");
        assert_eq!(rounded(u64::MAX), "16777216.0TiB");
    }
}
