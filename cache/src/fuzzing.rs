//! What fuzz targets run: the decoders of what agents and ranks send each other, on any bytes. They panic if a decoder does, or if
//! what it has made of the bytes is not what it is again after another journey. Part of no build but tests and fuzzing
//! (`fuzz/README.md`); no interface.

#![forbid(unsafe_code)]

use crate::agent::wire::{Coherence, Content, SEVERAL_MAX, decode_several, encode_pages};
use crate::error::Failure;
use crate::page::PageIndex;
use crate::pool::{PageSize, WaitId};
use crate::request::{InPlace, InPlaceAnswer, Named, Pieces, Request, WordUpdate};
use crate::service::{ServiceCounts, decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// What agents tell each other about pages: how many nodes the job has, how many words there are, the words, and the bytes that
/// came with them.
pub fn cache_coherence(bytes: &[u8]) {
    let &[nodes, count, ref rest @ ..] = bytes else { return };
    let nodes = u32::from(nodes).max(1);
    let (head, pages) = rest.split_at(rest.len().min(4 * usize::from(count)));
    let words = words(head);
    if let Some(found) = Coherence::decode(&words, nodes) {
        assert_eq!(Coherence::decode(&found.encode(), nodes), Some(found));
    }
    let size = PageSize::of_shift(12 + u32::from(count) % PageSize::COUNT as u32);
    if let Some(found) = Content::decode(&words, size, nodes) {
        assert_eq!(found.encode(size).as_ref().map(|said| &said[..]), Some(&words[..]));
        assert!(found.message.carries_page() && words[1] < 256, "{found:?}");
    }
    if let Some((message, found)) = decode_several(&words, pages, nodes) {
        assert!(!message.carries_page() && (1..=SEVERAL_MAX).contains(&found.len()));
        // Of failures that nobody knows, one is like the other.
        let again = encode_pages(&found);
        assert!(again == pages || found.iter().all(|(_, beside)| beside.frame().is_none()), "{found:?}");
        assert_eq!(decode_several(&message.encode(), &again, nodes), Some((message, found)));
    }
}

/// What ranks ask of their agent, with the answers: five bytes for the kind and a count, and the words or data.
pub fn cache_requests(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<5>() else { return };
    let &[kind, ref count @ ..] = head;
    let count = u32::from_le_bytes(*count);
    match kind {
        0 => request(&words(rest)),
        1 => in_place(&words(rest)),
        2 => named(rest),
        3 => pieces(rest, count),
        4 => updates(rest, count),
        5 => failure(count),
        _ => travels::<ServiceCounts>(rest),
    }
}

fn request(words: &[u32]) {
    if let Some(found) = Request::decode(words) {
        assert_eq!(Request::decode(&found.encode()), Some(found));
    }
}

fn in_place(words: &[u32]) {
    if let Some(found) = InPlace::decode(words) {
        assert_eq!(InPlace::decode(&found.encode()), Some(found));
    }
    if let Some((slot, answer)) = InPlaceAnswer::decode(words) {
        assert_eq!(answer.encode(slot)[..], *words);
    }
}

fn named(data: &[u8]) {
    if let Some(found) = Named::decode(data) {
        assert_eq!(Named::decode(&found.encode()), Some(found));
    }
}

const PAGE_BYTES: u32 = 4096;

fn pieces(data: &[u8], count: u32) {
    let Some(found) = Pieces::read(data, count, PAGE_BYTES.into()) else { return };
    let (mut list, mut bytes, mut number) = (Vec::new(), Vec::new(), 0);
    for (offset, piece) in found.each() {
        assert!(offset as usize + piece.len() <= PAGE_BYTES as usize);
        Pieces::announce(&mut list, offset, piece.len() as u32);
        bytes.extend_from_slice(piece);
        number += 1;
    }
    assert_eq!(number, count);
    assert_eq!([list, bytes].concat(), data);
}

fn updates(data: &[u8], count: u32) {
    let Some(found) = WordUpdate::read_list(data, count, |_| PAGE_BYTES) else { return };
    let mut again = Vec::new();
    for update in &found {
        assert!(update.offset + update.update.word.bytes() <= PAGE_BYTES);
        update.write(&mut again);
    }
    assert_eq!(again, data);
}

/// Any number is a failure, and can be said in words.
fn failure(code: u32) {
    let found = Failure::from_code(code);
    assert_eq!(Failure::from_code(found.code()), found);
    assert!(!found.to_string().is_empty());
}

/// What is decoded is the same when it was sent again.
fn travels<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Some(found) = decode::<T>(bytes) else { return };
    let again = encode(&found).expect("what was decoded");
    let found = decode::<T>(&again).expect("what was encoded");
    assert_eq!(encode(&found), Ok(again));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::wire::{Beside, Origin};
    use crate::error::FailureKind;
    use crate::partition::SegmentId;
    use crate::pool::FrameId;
    use crate::protocol::{Confirm, Message, Right};
    use vgas_nvm::CheckpointId;
    use vgas_rma::address::NodeId;
    use vgas_shm::Change;
    use vgas_testing::replay;

    const PAGE: PageIndex = PageIndex(1 << 40 | 7);

    fn coherence(words: &[u32], frames: &[u8]) -> Vec<u8> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        [&[8, words.len() as u8], bytes.as_slice(), frames].concat()
    }

    fn one(message: Message, origin: Origin) -> Vec<u8> {
        coherence(&Coherence { page: PAGE, message, beside: Beside::Nothing, origin }.encode(), &[])
    }

    #[test]
    fn any_words_are_a_coherence_message_or_refused() {
        let data = Message::Data { right: Right::Modified, dirty: true, acks: 3, confirm: true };
        let forward = Message::ForwardModified { requester: NodeId(5), acks: 2, confirm: Confirm::Supplier };
        let content = Content { frame: FrameId(12), message: data, origin: Origin::Nvm }
            .encode(PageSize::of_shift(12))
            .unwrap();
        replay(
            "cache_coherence",
            cache_coherence,
            &[
                ("get-modified", one(Message::GetModified { whole: true, has_copy: false }, Origin::Cache)),
                ("forward-modified", one(forward, Origin::Nvm)),
                ("data", one(data, Origin::Zeros)),
                ("content", coherence(&content, &[])),
                (
                    "several",
                    coherence(
                        &Message::GetShared { nvm: false }.encode(),
                        &encode_pages(&[PAGE, PageIndex(3)].map(|page| (page, Beside::Frame(FrameId(265))))),
                    ),
                ),
            ],
        );
    }

    fn asked(kind: u8, count: u32, data: &[u8]) -> Vec<u8> {
        [&[kind], &count.to_le_bytes()[..], data].concat()
    }

    fn said<const N: usize>(kind: u8, words: [u32; N]) -> Vec<u8> {
        asked(kind, 0, &words.map(u32::to_le_bytes).concat())
    }

    #[test]
    fn any_bytes_are_a_request_or_refused() {
        let checkpoint = Some(CheckpointId { generation: 7, identity: u64::MAX });
        let mut list = Vec::new();
        Pieces::announce(&mut list, 5, 2);
        Pieces::announce(&mut list, 4095, 1);
        list.extend_from_slice(b"abc");
        let mut updates = Vec::new();
        let word = |offset, update| WordUpdate { page: PAGE, offset, update };
        word(4088, Change::CompareSwap { expected: 1i64, desired: -1 }.into()).write(&mut updates);
        word(4092, Change::Min(-7i32).into()).write(&mut updates);
        let failure = Failure { node: Some(NodeId(3)), ..FailureKind::NoSpace.into() };
        let counts = ServiceCounts { calls: 300, ..ServiceCounts::default() };
        let answer = InPlaceAnswer::NotInPlace.encode(6);
        replay(
            "cache_requests",
            cache_requests,
            &[
                ("read", said(0, Request::Read { page: PAGE, count: 7, more: 0, wait: WaitId(3) }.encode())),
                (
                    "conclude",
                    said(
                        0,
                        Request::Conclude { segment: SegmentId(3), commit: true, wait: WaitId(3) }.encode(),
                    ),
                ),
                (
                    "get-in-place",
                    said(1, InPlace::Get { page: PAGE, offset: 1, bytes: 8, number: 2 }.encode()),
                ),
                ("answer", said(1, answer)),
                ("named", asked(2, 0, &Named { name: "data".into(), checkpoint, tells: true }.encode())),
                ("pieces", asked(3, 2, &list)),
                ("updates", asked(4, 2, &updates)),
                ("failure", asked(5, failure.code(), &[])),
                ("counts", asked(6, 0, &encode(&counts).unwrap())),
            ],
        );
    }
}
