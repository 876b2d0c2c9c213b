//! Runs the checks of fuzz targets in ordinary tests: over the committed corpus, over its prefixes, and over
//! mutations of a few bytes.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use std::fs;
use std::path::{Path, PathBuf};

/// Inputs that are made, for each target.
const CASES: u32 = 1500;

/// Every beginning of an input of at most so many bytes is tried.
const CUT_BYTES_MAX: usize = 512;

/// Places that are near the beginning of an input.
const NEAR: usize = 8;

/// The corpus of a target.
///
/// # Panics
/// When the crate does not lie in the repository.
fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a repository").join("fuzz/corpus").join(target)
}

/// Runs what a target checks. `seeds`, each with a name, come from the real encoders: they must be what the corpus has under these
/// names, and are written there if `VGAS_REWRITE` is set. Whatever else the corpus has, such as what once failed, runs as well.
///
/// # Panics
/// When the corpus is not up to date, or the check panics; then with the smallest input found for which it does. That belongs into
/// the corpus, with a name that says what it showed.
pub fn replay(target: &str, check: fn(&[u8]), seeds: &[(&str, Vec<u8>)]) {
    hold_seeds(&folder(target), seeds);
    let corpus = corpus(target);
    for (name, bytes) in &corpus {
        println!("{target}: {name}"); // shown if the check fails
        check(bytes);
        (0..bytes.len().min(CUT_BYTES_MAX)).for_each(|length| check(&bytes[..length]));
    }
    let inputs: Vec<Vec<u8>> = corpus.into_iter().map(|(_, bytes)| bytes).collect();
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&changed(inputs), |bytes| {
        check(&bytes);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{target}: {error}"));
}

/// Holds the files of the seeds against the seeds, or writes them.
fn hold_seeds(folder: &Path, seeds: &[(&str, Vec<u8>)]) {
    let rewrite = std::env::var_os("VGAS_REWRITE").is_some();
    for (name, bytes) in seeds {
        let path = folder.join(name);
        if rewrite {
            fs::create_dir_all(folder).expect("the folder can be made");
            fs::write(&path, bytes).expect("the seed can be written");
        }
        let found = fs::read(&path).unwrap_or_default();
        assert!(found == *bytes, "{} is out of date; VGAS_REWRITE=1 writes it again", path.display());
    }
}

/// All files of a target's corpus, by name.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder(target)).expect("the target has a corpus");
    let mut corpus: Vec<_> = files
        .map(|file| file.expect("it can be listed"))
        .map(|file| (file.file_name().to_string_lossy().into_owned(), fs::read(file.path()).expect("a file")))
        .collect();
    corpus.sort();
    corpus
}

/// Place in an input: anywhere, or near its beginning, where most numbers are that select what follows.
#[derive(Clone, Copy, Debug)]
struct At {
    near: bool,
    index: Index,
}

impl At {
    /// One of so many places.
    fn of(self, places: usize) -> usize {
        self.index.index(if self.near { places.min(NEAR) } else { places })
    }
}

/// Mutation of an input.
#[derive(Clone, Debug)]
enum Change {
    /// A byte becomes this one.
    Byte(At, u8),
    /// Four bytes become this number, at a multiple of four.
    Word(At, u32),
    /// The number there becomes a little more or less.
    Nudge(At, i8),
    /// Some bytes appear.
    Insert(At, Vec<u8>),
    /// Some disappear.
    Remove(At, usize),
    /// It ends early.
    Cut(At),
    /// It goes on with another one.
    Join(Index),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        match self {
            Change::Byte(at, byte) if !bytes.is_empty() => {
                let at = at.of(bytes.len());
                bytes[at] = *byte;
            }
            Change::Word(at, word) if bytes.len() >= 4 => {
                let at = at.of(bytes.len() / 4) * 4;
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            Change::Nudge(at, by) if bytes.len() >= 4 => {
                let at = at.of(bytes.len() / 4) * 4;
                let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
                let word = u32::from_le_bytes(word).wrapping_add_signed((*by).into());
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            Change::Byte(..) | Change::Word(..) | Change::Nudge(..) => {}
            Change::Insert(at, more) => {
                let at = at.of(bytes.len() + 1);
                bytes.splice(at..at, more.iter().copied());
            }
            Change::Remove(at, count) => {
                let at = at.of(bytes.len() + 1);
                bytes.drain(at..(at + count).min(bytes.len()));
            }
            Change::Cut(at) => bytes.truncate(at.of(bytes.len() + 1)),
            Change::Join(other) => bytes.extend_from_slice(&corpus[other.index(corpus.len())]),
        }
    }
}

/// Numbers near which things change.
fn word() -> impl Strategy<Value = u32> {
    let edges =
        prop::sample::select(vec![0, 1, 2, 255, 256, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX]);
    prop_oneof![edges, any::<u32>(), 0u32..64]
}

fn at() -> impl Strategy<Value = At> {
    any::<(bool, Index)>().prop_map(|(near, index)| At { near, index })
}

/// An input of the corpus after a few changes, or bytes that have nothing to do with it.
fn changed(corpus: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let change = prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (at(), 0u8..8).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (at(), any::<i8>()).prop_map(|(at, by)| Change::Nudge(at, by)),
        (at(), word()).prop_map(|(at, word)| Change::Word(at, word)),
        (at(), prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, more)| Change::Insert(at, more)),
        (at(), 1usize..20).prop_map(|(at, count)| Change::Remove(at, count)),
        at().prop_map(Change::Cut),
        any::<Index>().prop_map(Change::Join),
    ];
    let changes = prop::collection::vec(change, 0..6);
    let of_corpus = (any::<Index>(), changes).prop_map(move |(one, changes)| {
        let mut bytes = corpus[one.index(corpus.len())].clone();
        changes.iter().for_each(|change| change.apply(&mut bytes, &corpus));
        bytes
    });
    prop_oneof![9 => of_corpus, 1 => prop::collection::vec(any::<u8>(), 0..300)]
}
