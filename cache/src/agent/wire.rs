//! Coherence messages as they travel between agents: the protocol's words, and what the agent adds to them.

use crate::protocol::Message;

/// No frame.
pub const NO_FRAME: u32 = u32::MAX;

/// A coherence message with its page and a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coherence {
    /// The page, in the job's numbering.
    pub page: u64,
    /// The message.
    pub message: Message,
    /// A frame of the node that wants the page: where the answer's content goes. Copied by the home into what it
    /// forwards. Of a [`Message::Pull`], the home's own. Of a [`Message::Failed`], no frame but the number of a
    /// [`Failure`](crate::error::Failure).
    pub frame: u32,
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
        [self.page as u32, (self.page >> 32) as u32, kind, a, b, self.frame, self.origin as u32]
    }

    /// From arguments, in a job of `nodes` nodes; the page and the frame are still to be checked.
    pub fn decode(words: &[u32], nodes: u32) -> Option<Self> {
        let &[low, high, kind, a, b, frame, origin] = words else { return None };
        let origin = match origin {
            0 => Origin::Cache,
            1 => Origin::Nvm,
            2 => Origin::Zeros,
            _ => return None,
        };
        let message = Message::decode(&[kind, a, b], nodes)?;
        Some(Self { page: decode_page(&[low, high])?, message, frame, origin })
    }
}

/// A page number as arguments.
pub fn encode_page(page: u64) -> [u32; 2] {
    [page as u32, (page >> 32) as u32]
}

/// A page number from arguments.
pub fn decode_page(words: &[u32]) -> Option<u64> {
    let &[low, high] = words else { return None };
    Some(u64::from(low) | u64::from(high) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_wire_with_its_page_and_frame() {
        let sent =
            Coherence { page: 1 << 40 | 7, message: Message::GetShared, frame: 12, origin: Origin::Nvm };
        assert_eq!(Coherence::decode(&sent.encode(), 2), Some(sent));
        let mut words = sent.encode();
        words[6] = 3;
        assert_eq!(Coherence::decode(&words, 2), None);
        assert_eq!(Coherence::decode(&words[..6], 2), None);
    }
}
