//! Coherence messages as they travel between agents: the protocol's words, and what the agent adds to them.

use crate::error::Failure;
use crate::page::PageIndex;
use crate::pool::{FrameId, PageSize};
use crate::protocol::{Message, Right};

/// On the wire: no frame.
const NO_FRAME: u32 = u32::MAX;

/// What a message names beside its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// A frame of the node that wants the page: where the answer's content goes. Copied by the home into what it forwards. Of a
    /// [`Message::Pull`], the home's own.
    Frame(FrameId),
    /// Why the page cannot be had or stored: of a [`Message::Failed`] and a [`Message::EvictRefused`].
    Failure(Failure),
}

impl Beside {
    /// A frame, if there is one.
    pub fn of(frame: Option<FrameId>) -> Self {
        frame.map_or(Self::Nothing, Self::Frame)
    }

    /// The frame, if it is one.
    pub fn frame(self) -> Option<FrameId> {
        match self {
            Self::Frame(frame) => Some(frame),
            Self::Nothing | Self::Failure(_) => None,
        }
    }

    /// As a word.
    pub fn encode(self) -> u32 {
        match self {
            Self::Nothing => NO_FRAME,
            Self::Frame(frame) => frame.0,
            Self::Failure(failure) => failure.code(),
        }
    }

    /// From a word that came with this message; whether there is such a frame is still to be checked.
    pub fn decode(word: u32, message: Message) -> Self {
        match message {
            Message::Failed { .. } | Message::EvictRefused => Self::Failure(Failure::from_code(word)),
            _ if word == NO_FRAME => Self::Nothing,
            _ => Self::Frame(FrameId(word)),
        }
    }
}

/// Most pages that one message may name: with them it fits into a packet of most networks, and waits behind no page.
pub const SEVERAL_MAX: usize = 100;

/// A coherence message with its page and what it names beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coherence {
    /// The page, in the job's numbering.
    pub page: PageIndex,
    /// The message.
    pub message: Message,
    /// What it names.
    pub beside: Beside,
    /// For a message that carries the page: where its content comes from.
    pub origin: Origin,
}

/// Where the content of a page comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The DRAM of the sender.
    #[default]
    Cache,
    /// The sender's NVMe.
    Nvm,
    /// Nowhere: the page was never written, its zeros do not travel.
    Zeros,
}

impl Coherence {
    /// As arguments of an active message.
    pub fn encode(&self) -> [u32; 7] {
        let [kind, a, b] = self.message.encode();
        let [low, high] = encode_page(self.page);
        [low, high, kind, a, b, self.beside.encode(), self.origin as u32]
    }

    /// Without content.
    pub fn new(page: PageIndex, message: Message, beside: Beside) -> Self {
        Self { page, message, beside, origin: Origin::Cache }
    }

    /// Naming nothing beside its page.
    pub fn plain(page: PageIndex, message: Message) -> Self {
        Self::new(page, message, Beside::Nothing)
    }

    /// From arguments, in a job of `nodes` nodes; the page and the frame are still to be checked.
    pub fn decode(words: &[u32], nodes: u32) -> Option<Self> {
        let &[low, high, kind, a, b, beside, origin] = words else { return None };
        let origin = match origin {
            0 => Origin::Cache,
            1 => Origin::Nvm,
            2 => Origin::Zeros,
            _ => return None,
        };
        let message = Message::decode(&[kind, a, b], nodes)?;
        let beside = Beside::decode(beside, message);
        Some(Self { page: decode_page([low, high]), message, beside, origin })
    }
}

/// What comes with the content of a page, as two words: the receiver knows which page it waits for in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The receiver's frame.
    pub frame: FrameId,
    /// The message.
    pub message: Message,
    /// Where the content comes from.
    pub origin: Origin,
}

/// In the place of a [`Right`]: the message is a [`Message::PulledData`].
const PULLED: u32 = 3;

/// Bits of the second word, which stays below 256 so that it fits beside the frame's number where space is short (see
/// [`NOTE_HANDLER`](vgas_rma::message::NOTE_HANDLER)): the right in two, whether the page is dirty, whether the home is to
/// be told, whether it comes from NVMe, and the acknowledgements to wait for in three.
const DIRTY: u32 = 1 << 2;
const CONFIRM: u32 = 1 << 3;
const NVM: u32 = 1 << 4;
const ACKS: u32 = 5;
const ACKS_MAX: u32 = 7;

impl Content {
    /// As arguments of an active message, with a page of this size; none when it needs those of a [`Coherence`]. The frame is
    /// called by its place among those of the size: so the message is a note.
    pub fn encode(&self, size: PageSize) -> Option<[u32; 2]> {
        let origin = match self.origin {
            Origin::Cache => 0,
            Origin::Nvm => NVM,
            Origin::Zeros => return None,
        };
        let bit = |flag: bool, bit: u32| if flag { bit } else { 0 };
        let said = match self.message {
            Message::Data { right, dirty, acks, confirm } if acks <= ACKS_MAX => {
                right as u32 | bit(dirty, DIRTY) | bit(confirm, CONFIRM) | acks << ACKS
            }
            Message::PulledData { dirty: true } => PULLED | DIRTY,
            _ => return None,
        };
        size.begins_at(self.frame).then(|| [size.ordinal(self.frame), said | origin])
    }

    /// From arguments that came with a page of this size, in a job of `nodes` nodes; the frame is still to be checked.
    pub fn decode(words: &[u32], size: PageSize, nodes: u32) -> Option<Self> {
        let &[ordinal, said] = words else { return None };
        let frame = size.nth(ordinal);
        let (dirty, confirm, acks) = (said & DIRTY != 0, said & CONFIRM != 0, said >> ACKS);
        let data = |right| Message::Data { right, dirty, acks, confirm };
        let message = match said & PULLED {
            0 => data(Right::Shared),
            1 => data(Right::Exclusive),
            2 => data(Right::Modified),
            _ => Message::PulledData { dirty: true },
        };
        let origin = if said & NVM != 0 { Origin::Nvm } else { Origin::Cache };
        let content = Self { frame, message, origin };
        (acks < nodes && content.encode(size) == Some([ordinal, said])).then_some(content)
    }
}

/// The pages about which the same is said, with what is named beside each, as bytes.
pub fn encode_pages(pages: &[(PageIndex, Beside)]) -> Vec<u8> {
    let words = |&(page, beside): &(PageIndex, Beside)| {
        let [low, high] = encode_page(page);
        [low, high, beside.encode()].map(u32::to_le_bytes)
    };
    pages.iter().flat_map(words).flatten().collect()
}

/// What is said, by its arguments, and the pages it is about, in a job of `nodes` nodes; pages and frames are still to be checked.
/// None: no message, one with content, no pages or too many.
pub fn decode_several(
    words: &[u32],
    pages: &[u8],
    nodes: u32,
) -> Option<(Message, Vec<(PageIndex, Beside)>)> {
    let message = Message::decode(words, nodes)?;
    let (pages, rest) = pages.as_chunks::<12>();
    if message.carries_page() || !rest.is_empty() || !(1..=SEVERAL_MAX).contains(&pages.len()) {
        return None;
    }
    let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
    let decode = |bytes: &[u8; 12]| match bytes.as_chunks::<4>().0 {
        [low, high, beside] => {
            Some((decode_page([word(low), word(high)]), Beside::decode(word(beside), message)))
        }
        _ => None,
    };
    Some((message, pages.iter().map(decode).collect::<Option<_>>()?))
}

/// A page's number as arguments.
fn encode_page(page: PageIndex) -> [u32; 2] {
    [page.0 as u32, (page.0 >> 32) as u32]
}

fn decode_page([low, high]: [u32; 2]) -> PageIndex {
    PageIndex(u64::from(low) | u64::from(high) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FailureKind;
    use crate::protocol::{Confirm, Reason};
    use proptest::prelude::*;
    use vgas_rma::address::NodeId;

    #[test]
    fn content_survives_the_wire_in_two_words() {
        let mut messages = vec![Message::PulledData { dirty: true }];
        for right in [Right::Shared, Right::Exclusive, Right::Modified] {
            for (dirty, confirm, acks) in [(false, true, 0), (true, false, 7), (true, true, 3)] {
                messages.push(Message::Data { right, dirty, acks, confirm });
            }
        }
        for message in messages {
            for origin in [Origin::Cache, Origin::Nvm] {
                for size in PageSize::all() {
                    let content = Content { frame: FrameId(1 << 30), message, origin };
                    let words = content.encode(size).unwrap();
                    // What a conduit takes for a note: the frame's offset in pages.
                    assert_eq!(u64::from(words[0]) * u64::from(size.bytes()), FrameId(1 << 30).offset());
                    assert!(words[1] < 256);
                    assert_eq!(Content::decode(&words, size, 8), Some(content));
                    assert_eq!(Content::decode(&words[..1], size, 8), None);
                    let beyond = [u32::MAX, words[1]];
                    assert_eq!(Content::decode(&beyond, size, 8).is_some(), size.index() == 0);
                }
            }
        }
        const SMALL: PageSize = PageSize::of_shift(12);
        let many = Message::Data { right: Right::Modified, dirty: true, acks: 8, confirm: true };
        let long = [
            (many, Origin::Cache),
            (Message::GetShared { nvm: false }, Origin::Cache),
            (Message::PulledData { dirty: true }, Origin::Zeros),
        ];
        for (message, origin) in long {
            assert_eq!(Content { frame: FrameId(1), message, origin }.encode(SMALL), None);
        }
        let some = Message::Data { right: Right::Modified, dirty: true, acks: 7, confirm: true };
        let words =
            Content { frame: FrameId(1), message: some, origin: Origin::Cache }.encode(SMALL).unwrap();
        assert_eq!(Content::decode(&words, SMALL, 7), None, "more acknowledgements than other nodes");
    }

    proptest! {
        #[test]
        fn content_of_a_stranger_decodes_to_itself_or_nothing(
            frame: u32, said in prop_oneof![0u32..512, any::<u32>()], size in 0..PageSize::COUNT as u32,
        ) {
            let size = PageSize::of_shift(12 + size);
            if let Some(content) = Content::decode(&[frame, said], size, 5) {
                prop_assert_eq!(content.encode(size), Some([frame, said]));
            }
        }
    }

    #[test]
    fn a_message_survives_the_wire_with_its_page_and_frame() {
        let sent = Coherence {
            page: PageIndex(1 << 40 | 7),
            message: Message::GetShared { nvm: false },
            beside: Beside::Frame(FrameId(12)),
            origin: Origin::Nvm,
        };
        assert_eq!(Coherence::decode(&sent.encode(), 2), Some(sent));
        let mut words = sent.encode();
        words[6] = 3;
        assert_eq!(Coherence::decode(&words, 2), None);
        assert_eq!(Coherence::decode(&words[..6], 2), None);
    }

    /// Goal: a failure is no frame, whatever its number, and a frame is no failure.
    #[test]
    fn what_stands_beside_a_page_is_one_thing() {
        let failures = [FailureKind::NoSpace, FailureKind::Corrupt].map(Failure::from);
        for failure in failures {
            for message in [Message::EvictRefused, Message::Failed { reason: Reason::Write }] {
                let sent = Coherence::new(PageIndex(7), message, Beside::Failure(failure));
                assert_eq!(Coherence::decode(&sent.encode(), 2), Some(sent));
                assert_eq!(sent.beside.frame(), None);
            }
        }
        for beside in [Beside::Nothing, Beside::of(None), Beside::of(Some(FrameId(3)))] {
            assert_eq!(Beside::decode(beside.encode(), Message::GetShared { nvm: false }), beside);
        }
    }

    #[test]
    fn what_needs_no_content_is_said_about_several_pages() {
        let forward = Message::ForwardShared { requester: NodeId(1), confirm: Confirm::Requester };
        let pages = [(1 << 40 | 7, 7), (3, 265)]
            .map(|(page, frame)| (PageIndex(page), Beside::Frame(FrameId(frame))));
        let bytes = encode_pages(&pages);
        for message in [Message::GetShared { nvm: false }, forward, Message::InvalidateAck] {
            assert_eq!(decode_several(&message.encode(), &bytes, 2), Some((message, pages.to_vec())));
        }
        let words = forward.encode();
        assert_eq!(decode_several(&Message::PulledData { dirty: true }.encode(), &bytes, 2), None);
        assert_eq!(decode_several(&words, &bytes, 1), None, "there is no node 1");
        assert_eq!(decode_several(&words[..2], &bytes, 2), None);
        assert_eq!(decode_several(&words, &bytes[..23], 2), None, "half a frame");
        let most = [0; 12 * (SEVERAL_MAX + 1)];
        assert!(decode_several(&words, &most[12..], 2).is_some());
        assert_eq!(decode_several(&words, &most, 2), None);
        assert_eq!(decode_several(&words, &[], 2), None, "about nothing");
    }
}
