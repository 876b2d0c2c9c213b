//! Finds a program, and explains why one could not be started.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Bytes of a script in which Linux looks for its interpreter.
const SCRIPT_LINE_BYTES: u64 = 256;

/// Why the system did not start `program` from this folder.
pub(super) fn start_reason(program: &OsStr, directory: &Path, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => missing_part(program, directory).unwrap_or_else(|| "no such program".into()),
        ErrorKind::PermissionDenied => "it is not an executable file".into(),
        _ => format!("{error}{}", vgas_shm::error::advice(error)),
    }
}

/// The file that the system would start for this word, in this folder.
pub(crate) fn find(program: &OsStr, directory: &Path) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(directory.join(program)).filter(|it| it.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| directory.join(folder).join(program)).find(|it| it.is_file())
}

/// Returns the missing part of a program that itself exists: the system reports both as not found.
fn missing_part(program: &OsStr, directory: &Path) -> Option<String> {
    let mut start = Vec::new();
    // Opening a pipe would wait.
    let file = File::open(find(program, directory)?).ok()?;
    file.take(SCRIPT_LINE_BYTES).read_to_end(&mut start).ok()?;
    let Some(line) = start.strip_prefix(b"#!") else { return Some("its loader is missing".into()) };
    let line = String::from_utf8_lossy(line.split(|&byte| byte == b'\n').next()?);
    if line.ends_with('\r') {
        return Some(
            "its first line ends with a carriage return, as on Windows, which counts to the name of its interpreter; convert it \
             with dos2unix, or `sed -i 's/\\r$//'`"
                .into(),
        );
    }
    let interpreter = line.split_whitespace().next()?;
    Some(format!("its interpreter {interpreter} is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("script", "#! /no/such/shell -e\necho\n");
        write("empty-line", "#!\n");
        write("windows", "#!/bin/sh\r\necho\r\n");
        write("program", "\x7fELF");
        let not_found = io::Error::from(ErrorKind::NotFound);
        for (program, reason) in [
            ("./script", "its interpreter /no/such/shell is missing"),
            ("./program", "its loader is missing"),
            ("./empty-line", "no such program"),
            ("./no-such", "no such program"),
            ("no-such-program-anywhere", "no such program"),
            (".", "no such program"),
        ] {
            assert_eq!(start_reason(program.as_ref(), folder.path(), &not_found), reason, "{program}");
        }
        let reason = start_reason("./windows".as_ref(), folder.path(), &not_found);
        assert!(reason.starts_with("its first line ends with a carriage return"), "{reason}");
        let denied = io::Error::from(ErrorKind::PermissionDenied);
        assert_eq!(start_reason("x".as_ref(), folder.path(), &denied), "it is not an executable file");
    }
}
