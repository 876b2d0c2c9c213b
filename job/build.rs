//! The digest of the sources that processes of a job have in common: what they say to each other, and what lies in the memory that they
//! share, is as these say. A number that people raise is forgotten some day; then two builds would take each other's bytes for theirs.

use std::path::{Path, PathBuf};

/// The crates whose processes meet in a job. Those above are in one program each, or compare their types by themselves.
const CRATES: [&str; 6] = ["shm", "rma", "nvm", "cache", "job", "vgas"];

fn main() -> std::io::Result<()> {
    let workspace = Path::new("..");
    let mut files = Vec::new();
    for name in CRATES {
        let sources = workspace.join(name).join("src");
        // Alone, as from a registry, a crate has its version only.
        if sources.is_dir() {
            println!("cargo::rerun-if-changed={}", sources.display());
            collect(&sources, &mut files)?;
        }
    }
    files.sort();
    let mut digest = 0xcbf2_9ce4_8422_2325;
    add(&mut digest, env!("CARGO_PKG_VERSION").as_bytes());
    for file in files {
        add(&mut digest, file.as_os_str().as_encoded_bytes());
        add(&mut digest, &std::fs::read(&file)?);
    }
    println!("cargo::rustc-env=VGAS_SOURCES={digest}");
    Ok(())
}

/// The Rust files of a folder and those in it.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// FNV-1a, with the length, so that what ends one file cannot begin the next.
fn add(digest: &mut u64, bytes: &[u8]) {
    for byte in bytes.iter().copied().chain(bytes.len().to_le_bytes()) {
        *digest = (*digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
}
