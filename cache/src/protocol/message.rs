//! The words the two machines say to each other. A message carries no page number, no page content and no frame:
//! the agent adds these. [`Message::carries_page`] tells which ones travel with the content of the page.

use vgas_rma::address::NodeId;

/// What an answer allows the requester to do with its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Right {
    /// Read; others may read too (S).
    Shared,
    /// Read and write; nobody else has a copy, and the copy is still equal to NVMe (E).
    Exclusive,
    /// Read and write; nobody else keeps a copy (M).
    Modified,
}

/// Who tells the home that the page has changed hands. Until then the home serves nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confirm {
    /// The requester, when it has everything: the supplier is on another node than the home, or other copies have
    /// to be invalidated.
    Requester,
    /// The supplier, when it has sent the page: it is the home's own node, and whatever the home sends afterwards
    /// stays behind the page on the same ordered channel. This saves a message between nodes.
    Supplier,
}

/// Why a request could not be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The home could not read the page: an I/O error, or a checksum that does not fit.
    Read,
    /// The home could not store the modified page, which its holder therefore keeps.
    Write,
}

/// One coherence message about one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    // Requester to home.
    /// "I want to read."
    GetShared {
        /// The requester has found NVMe to be faster than the DRAM of other nodes: read the page there even if these have it, unless
        /// it has changed.
        nvm: bool,
    },
    /// "I want to write."
    GetModified {
        /// The requester will overwrite all of the page: it wants the right, not the content.
        whole: bool,
        /// The requester had a readable copy when it asked. It may lose it before its turn comes.
        has_copy: bool,
    },
    /// "I want to give my copy up." The copy answers for the page until [`Message::EvictAck`].
    Evict {
        /// The copy may differ from NVMe, as far as the holder knows. An owner's copy always does.
        dirty: bool,
    },
    /// The page has changed hands (see [`Confirm`]).
    Done {
        /// The copies now differ from NVMe.
        dirty: bool,
    },
    /// Answer to [`Message::Pull`]; carries the page when `dirty`. The sender keeps its copy as S.
    PulledData {
        /// The copy differed from NVMe.
        dirty: bool,
    },

    // Home to holder.
    /// "Send the page to `requester`, who will read it; keep your copy."
    ForwardShared {
        /// Who gets the page.
        requester: NodeId,
        /// Who reports the end.
        confirm: Confirm,
    },
    /// "Send the page to `requester`, who will write it; forget your copy."
    ForwardModified {
        /// Who gets the page.
        requester: NodeId,
        /// How many [`Message::InvalidateAck`]s the requester has to wait for.
        acks: u32,
        /// Who reports the end.
        confirm: Confirm,
    },
    /// "Forget your copy, and tell `requester`."
    Invalidate {
        /// Who waits for the [`Message::InvalidateAck`].
        requester: NodeId,
    },
    /// "Send me the page if it differs from NVMe, and keep it as S."
    Pull,
    /// "The owner left: your copy, which differs from NVMe, is the one that answers now" (S becomes O).
    Own,
    /// "Yours is the last copy now; it equals NVMe." Only replacement cares: the copy stays S, and others may have one again
    /// before this comes.
    Last,
    /// "Your copy is not needed; the frame is yours again."
    EvictAck,
    /// "Your copy is the last one and could not be stored: keep it."
    EvictRefused,

    // Home or holder to requester.
    /// The page.
    Data {
        /// What the requester may do with it.
        right: Right,
        /// It differs from NVMe (always so with [`Right::Modified`]: it is about to).
        dirty: bool,
        /// How many [`Message::InvalidateAck`]s to wait for before writing.
        acks: u32,
        /// Send [`Message::Done`] to the home when complete.
        confirm: bool,
    },
    /// The right to write, without content: the requester's copy is current, or it overwrites the whole page.
    Grant {
        /// How many [`Message::InvalidateAck`]s to wait for before writing.
        acks: u32,
        /// Send [`Message::Done`] to the home when complete.
        confirm: bool,
        /// The requester's copy equals NVMe, and stays so until it is written.
        clean: bool,
    },
    /// "The page is served where it is: send small operations instead" (promises 7 and 9).
    InPlace,
    /// The request could not be served; nothing has changed.
    Failed {
        /// Why.
        reason: Reason,
    },

    // Holder to requester.
    /// "My copy is gone."
    InvalidateAck,
}

/// A message on the wire: kind, one node or count, flags and count.
pub type Words = [u32; 3];

fn flag(value: u32) -> Option<bool> {
    match value {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

impl Message {
    /// Whether the content of the page travels with the message.
    pub fn carries_page(self) -> bool {
        matches!(self, Message::Data { .. } | Message::PulledData { dirty: true })
    }

    /// The kind, for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Message::GetShared { .. } => "GetShared",
            Message::GetModified { .. } => "GetModified",
            Message::Evict { .. } => "Evict",
            Message::Done { .. } => "Done",
            Message::PulledData { .. } => "PulledData",
            Message::ForwardShared { .. } => "ForwardShared",
            Message::ForwardModified { .. } => "ForwardModified",
            Message::Invalidate { .. } => "Invalidate",
            Message::Pull => "Pull",
            Message::Own => "Own",
            Message::Last => "Last",
            Message::EvictAck => "EvictAck",
            Message::EvictRefused => "EvictRefused",
            Message::Data { .. } => "Data",
            Message::Grant { .. } => "Grant",
            Message::InPlace => "InPlace",
            Message::Failed { .. } => "Failed",
            Message::InvalidateAck => "InvalidateAck",
        }
    }

    /// Who is to be answered, where that is another than the home that says it: never the receiver.
    pub fn requester(self) -> Option<NodeId> {
        match self {
            Message::ForwardShared { requester, .. }
            | Message::ForwardModified { requester, .. }
            | Message::Invalidate { requester } => Some(requester),
            _ => None,
        }
    }

    /// Whether the message is for the home's directory; the others are for the receiver's line.
    pub fn is_for_home(self) -> bool {
        matches!(
            self,
            Message::GetShared { .. }
                | Message::GetModified { .. }
                | Message::Evict { .. }
                | Message::Done { .. }
                | Message::PulledData { .. }
        )
    }

    /// As words of an active message.
    pub fn encode(self) -> Words {
        let by = |confirm: Confirm| u32::from(confirm == Confirm::Supplier);
        match self {
            Message::GetShared { nvm } => [0, u32::from(nvm), 0],
            Message::GetModified { whole, has_copy } => [1, u32::from(whole), u32::from(has_copy)],
            Message::Evict { dirty } => [2, u32::from(dirty), 0],
            Message::Done { dirty } => [3, u32::from(dirty), 0],
            Message::PulledData { dirty } => [4, u32::from(dirty), 0],
            Message::ForwardShared { requester, confirm } => [5, requester.0, by(confirm)],
            Message::ForwardModified { requester, acks, confirm } => {
                [6, requester.0, by(confirm) | acks << 1]
            }
            Message::Invalidate { requester } => [7, requester.0, 0],
            Message::Pull => [8, 0, 0],
            Message::Own => [9, 0, 0],
            Message::EvictAck => [10, 0, 0],
            Message::EvictRefused => [11, 0, 0],
            Message::Data { right, dirty, acks, confirm } => {
                [12, right as u32, u32::from(dirty) | u32::from(confirm) << 1 | acks << 2]
            }
            Message::Grant { acks, confirm, clean } => [13, u32::from(clean), u32::from(confirm) | acks << 1],
            Message::InPlace => [14, 0, 0],
            Message::Failed { reason } => [15, reason as u32, 0],
            Message::InvalidateAck => [16, 0, 0],
            Message::Last => [17, 0, 0],
        }
    }

    /// From words that a peer sent in a job of `nodes` nodes; `None` when they are no message, or name a node that
    /// does not exist.
    pub fn decode(words: &[u32], nodes: u32) -> Option<Self> {
        let &[kind, a, b] = words else { return None };
        let node = || (a < nodes).then_some(NodeId(a));
        let count = |acks: u32| (acks < nodes).then_some(acks);
        let by = |bit: u32| if bit == 0 { Confirm::Requester } else { Confirm::Supplier };
        let message = match kind {
            0 => Message::GetShared { nvm: flag(a)? },
            1 => Message::GetModified { whole: flag(a)?, has_copy: flag(b)? },
            2 => Message::Evict { dirty: flag(a)? },
            3 => Message::Done { dirty: flag(a)? },
            4 => Message::PulledData { dirty: flag(a)? },
            5 => Message::ForwardShared { requester: node()?, confirm: by(u32::from(flag(b)?)) },
            6 => Message::ForwardModified { requester: node()?, acks: count(b >> 1)?, confirm: by(b & 1) },
            7 => Message::Invalidate { requester: node()? },
            8 => Message::Pull,
            9 => Message::Own,
            10 => Message::EvictAck,
            11 => Message::EvictRefused,
            12 => {
                let right = match a {
                    0 => Right::Shared,
                    1 => Right::Exclusive,
                    2 => Right::Modified,
                    _ => return None,
                };
                Message::Data { right, dirty: b & 1 == 1, acks: count(b >> 2)?, confirm: b & 2 == 2 }
            }
            13 => Message::Grant { acks: count(b >> 1)?, confirm: b & 1 == 1, clean: flag(a)? },
            14 => Message::InPlace,
            15 => Message::Failed { reason: if flag(a)? { Reason::Write } else { Reason::Read } },
            16 => Message::InvalidateAck,
            17 => Message::Last,
            _ => return None,
        };
        (message.encode() == [kind, a, b]).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NODES: u32 = 5;

    #[test]
    fn every_kind_survives_the_wire() {
        let requester = NodeId(3);
        let mut messages = vec![
            Message::Invalidate { requester },
            Message::Pull,
            Message::Own,
            Message::Last,
            Message::EvictAck,
            Message::EvictRefused,
            Message::InPlace,
            Message::Failed { reason: Reason::Read },
            Message::Failed { reason: Reason::Write },
            Message::InvalidateAck,
        ];
        for a in [false, true] {
            messages.extend([
                Message::GetShared { nvm: a },
                Message::Evict { dirty: a },
                Message::Done { dirty: a },
                Message::PulledData { dirty: a },
            ]);
            for confirm in [Confirm::Requester, Confirm::Supplier] {
                messages.push(Message::ForwardShared { requester, confirm });
                messages.push(Message::ForwardModified { requester, acks: 2, confirm });
            }
            for b in [false, true] {
                messages.push(Message::GetModified { whole: a, has_copy: b });
                messages.push(Message::Grant { acks: 4, confirm: a, clean: b });
                for right in [Right::Shared, Right::Exclusive, Right::Modified] {
                    messages.push(Message::Data { right, dirty: a, acks: 4, confirm: b });
                }
            }
        }
        for message in messages {
            assert_eq!(Message::decode(&message.encode(), NODES), Some(message));
        }
    }

    #[test]
    fn a_node_that_does_not_exist_is_no_message() {
        let message = Message::Invalidate { requester: NodeId(NODES) };
        assert_eq!(Message::decode(&message.encode(), NODES), None);
        assert_eq!(Message::decode(&message.encode(), NODES + 1), Some(message));
    }

    proptest! {
        /// Whatever decodes is what would have been sent: no two spellings of one message, and no panic.
        #[test]
        fn words_from_a_stranger_decode_to_themselves_or_nothing(
            kind in 0u32..20, a in prop_oneof![0u32..8, any::<u32>()], b in prop_oneof![0u32..64, any::<u32>()],
        ) {
            if let Some(message) = Message::decode(&[kind, a, b], NODES) {
                prop_assert_eq!(message.encode(), [kind, a, b]);
            }
        }
    }
}
