//! Any bytes as what others say of objects. See [`crate::fuzzing`].

#![forbid(unsafe_code)]

use super::drops::any_message;
use super::group::{FoundGroup, given};
use super::report::any_report;
pub(crate) use super::rest::any_partition as at_rest;
pub(crate) use super::running::any_words as running;
use crate::fuzzing::travelled;
use crate::service::Answer;
use crate::tie::tied_to;
use crate::{Portable, Shareable, TBox};

/// The type read: two are tied to it.
#[derive(Portable, Shareable)]
struct Node {
    number: u64,
    next: Option<TBox<Node>>,
    leaf: Option<TBox<[u64; 3]>>,
}

/// Decodes a home's answer to a request for a number of [`Node`]s, with their tied objects, as the first byte
/// says. Checks that each object taken from it has as many bytes as its type, and was requested, or is tied
/// to one taken.
pub(crate) fn found(bytes: &[u8]) {
    let Some((&asked, rest)) = bytes.split_first() else { return };
    let Some((answer, _)) = travelled::<Answer>(rest) else { return };
    let sizes = vec![size_of::<Node>(); usize::from(asked)];
    let all = given(answer.clone(), sizes.iter().copied());
    assert!(all.len() == sizes.len() && all.iter().flatten().all(|one| one.len() == size_of::<Node>()));
    let Answer::Group { tied, .. } = &answer else {
        return assert!(FoundGroup::of(tied_to::<Node>(), answer, sizes.into_iter()).is_none());
    };
    let most = tied.len();
    let found = FoundGroup::of(tied_to::<Node>(), answer, sizes.into_iter()).expect("a group");
    let mut words = Vec::new();
    let first = found.first.iter().flatten().map(|bytes| (bytes.clone(), &bytes[..])).collect();
    found.follow(first, |parent, at, tied, word, bytes| {
        assert_eq!(parent[at..at + 8], word.bits().to_le_bytes(), "it is not tied to what it was shown with");
        assert_eq!(bytes.len(), tied.shape.bytes);
        assert!(!words.contains(&word), "{word:?} came twice");
        words.push(word);
        Some(bytes.to_vec())
    });
    assert!(words.len() <= most);
}

/// Decodes a rank's report.
pub(crate) fn report(bytes: &[u8]) {
    any_report(bytes);
}

/// Decodes a rank's drops.
pub(crate) fn dropped(bytes: &[u8]) {
    any_message(bytes);
    super::retired::any_message(bytes);
}

/// Seeds of these, for the target of answers.
#[cfg(test)]
pub(crate) fn answers() -> Vec<(&'static str, Vec<u8>)> {
    use crate::service::Bytes;
    let node = |next: u64, leaf: u64| -> Bytes {
        let mut words = [0u64; size_of::<Node>() / 8];
        words[std::mem::offset_of!(Node, number) / 8] = 7;
        words[std::mem::offset_of!(Node, next) / 8] = next;
        words[std::mem::offset_of!(Node, leaf) / 8] = leaf;
        Bytes(words.map(u64::to_le_bytes).concat())
    };
    let word = |at: u64| (1 << 48) + (1 << 30) + 64 * at;
    let asked = |count: u8, answer: &Answer| {
        [&[0, count][..], &postcard::to_allocvec(answer).expect("an answer")].concat()
    };
    let leaf = || Bytes(vec![5; 24]);
    let group = |tied| Answer::Group { first: vec![Some(node(word(1), word(2))), None], tied };
    let whole = group(vec![(word(2), leaf()), (word(1), node(word(3), 0)), (word(3), node(0, word(4)))]);
    let circle = group(vec![(word(1), node(word(1), word(1))), (word(1), leaf())]);
    // For the other type, for nothing, and unrequested.
    let odd = group(vec![(word(1), leaf()), (word(2), Bytes(Vec::new())), (0, leaf()), (word(9), leaf())]);
    let drops =
        super::drops::some_messages().into_iter().map(|(name, bytes)| (name, [&[7][..], &bytes].concat()));
    let mut seeds = vec![
        ("found-group", asked(2, &whole)),
        ("found-circle", asked(2, &circle)),
        ("found-odd", asked(2, &odd)),
        ("found-all", asked(2, &Answer::All(vec![Some(node(0, 0)), None]))),
        ("found-bytes", asked(1, &Answer::Bytes(node(0, 0)))),
        ("report", [&[4][..], &[1; 96], b"1 2 3 a type\n4 5\n\n-1 0 0 of\x1b none\n"].concat()),
        ("running", [&[6][..], &super::running::some_words()].concat()),
    ];
    seeds.extend(drops);
    seeds
}

/// Seeds of [`at_rest`].
#[cfg(test)]
pub(crate) fn partitions() -> Vec<(&'static str, Vec<u8>)> {
    [("named", true), ("without-names", false)]
        .map(|(name, has)| (name, super::rest::some_partition(has)))
        .to_vec()
}
