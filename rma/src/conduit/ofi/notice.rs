//! Parameters that two sides exchange before they can communicate, as
//! [`Notices`](crate::conduit::oneside::Notices):
//!
//! ```text
//! hello: version, length of all, offset of this part; of: token, provider, name of the endpoint
//!                                                        (the other side notes them, then answers with its own)
//! ready: I know you                                      (the other side may send)
//! ```
//!
//! A name may be longer than a notice, so a hello comes in parts. The *token* is the prefix of packets to its
//! sender: it travels over a connection that has proved the job's key, so a peer that has it has proved the
//! key, too.

#![forbid(unsafe_code)]

use super::packet::VERSION;
use crate::conduit::oneside::{self, words_of};

const HELLO: u8 = 1;
const READY: u8 = 2;

/// Most bytes of a hello; a notice has the first or more.
const HELLO_BYTES_MAX: usize = 1024;
const PART_BYTES_MAX: usize = 48;

/// A side's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) token: u64,
    pub(super) provider: String,
    pub(super) name: Vec<u8>,
}

impl Hello {
    /// The notices that it is told by.
    pub(super) fn parts(&self) -> Vec<Notice> {
        let mut bytes = self.token.to_le_bytes().to_vec();
        bytes.push(self.provider.len() as u8);
        bytes.extend_from_slice(self.provider.as_bytes());
        bytes.extend_from_slice(&self.name);
        let total = bytes.len() as u16;
        let part = |(index, part): (usize, &[u8])| Notice::Hello {
            total,
            at: (index * PART_BYTES_MAX) as u16,
            part: part.to_vec(),
        };
        bytes.chunks(PART_BYTES_MAX).enumerate().map(part).collect()
    }

    /// From all bytes of it; none when they are malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (token, rest) = bytes.split_first_chunk::<8>()?;
        let (&length, rest) = rest.split_first()?;
        let (provider, name) = rest.split_at_checked(length.into())?;
        let provider = std::str::from_utf8(provider).ok()?.to_owned();
        let printable = provider.bytes().all(|byte| byte.is_ascii_graphic());
        (printable && !name.is_empty()).then(|| Self {
            token: u64::from_le_bytes(*token),
            provider,
            name: name.to_vec(),
        })
    }
}

/// Notice of one side to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// A part of a [`Hello`] of `total` bytes.
    Hello { total: u16, at: u16, part: Vec<u8> },
    /// That it knows the other side.
    Ready,
}

impl Notice {
    /// Puts parts together, which come in order; true when all of it is there.
    ///
    /// # Errors
    /// That this is not the next part, in words.
    pub(super) fn join(so_far: &mut Vec<u8>, total: u16, at: u16, part: &[u8]) -> Result<bool, String> {
        let end = so_far.len() + part.len();
        if usize::from(at) != so_far.len() || end > usize::from(total) {
            return Err(format!(
                "{} bytes of a hello of {total} at {at}, after {}",
                part.len(),
                so_far.len()
            ));
        }
        so_far.extend_from_slice(part);
        Ok(end == usize::from(total))
    }
}

impl oneside::Notice for Notice {
    fn encode(&self) -> (u8, Vec<u32>) {
        match self {
            Self::Hello { total, at, part } => {
                let mut padded = part.clone();
                padded.resize(part.len().next_multiple_of(4), 0);
                let mut words = vec![VERSION, u32::from(*total) | u32::from(*at) << 16];
                words.extend(words_of(&padded));
                (HELLO, words)
            }
            Self::Ready => (READY, vec![VERSION]),
        }
    }

    fn decode(number: u8, words: &[u32]) -> Result<Self, String> {
        if words.first() != Some(&VERSION) {
            return Err(format!("version {:?} of the ofi conduit, this is {VERSION}", words.first()));
        }
        match (number, words) {
            (HELLO, &[_, lengths, ref words @ ..]) => {
                let (total, at) = (lengths as u16, (lengths >> 16) as u16);
                let mut part: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let rest = usize::from(total).checked_sub(at.into()).filter(|&rest| rest > 0);
                let bytes = rest.unwrap_or(0).min(PART_BYTES_MAX);
                let fits = part.len() == bytes.next_multiple_of(4);
                if rest.is_none() || usize::from(total) > HELLO_BYTES_MAX || !fits {
                    return Err(format!("{} bytes at {at} of a hello of {total}", part.len()));
                }
                part.truncate(bytes);
                Ok(Self::Hello { total, at, part })
            }
            (READY, [_]) => Ok(Self::Ready),
            _ => Err(format!("a notice {number} with the words {words:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conduit::oneside::Notice as _;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_told_is_heard(token: u64, provider in "[a-z;_]{0,20}", name in prop::collection::vec(any::<u8>(), 1..500)) {
            let hello = Hello { token, provider, name };
            let mut bytes = Vec::new();
            let parts = hello.parts();
            for (index, part) in parts.iter().enumerate() {
                let (number, words) = part.encode();
                prop_assert!(words.len() <= crate::message::ARGUMENTS_MAX);
                prop_assert!(Notice::decode(number, &words[..words.len() - 1]).is_err());
                prop_assert!(Notice::decode(3, &words).is_err());
                let Ok(Notice::Hello { total, at, part }) = Notice::decode(number, &words) else { panic!("{words:?}") };
                let joined = Notice::join(&mut bytes, total, at, &part);
                prop_assert_eq!(joined, Ok(index + 1 == parts.len()));
                prop_assert!(Notice::join(&mut bytes, total, at, &part).is_err(), "the same again");
            }
            prop_assert_eq!(Hello::decode(&bytes), Some(hello));
        }

        #[test]
        fn any_words_are_a_notice_or_refused(number: u8, words in prop::collection::vec(any::<u32>(), 0..17)) {
            if let Ok(notice) = Notice::decode(number, &words) {
                prop_assert_eq!(Notice::decode(number, &notice.encode().1), Ok(notice));
            }
        }
    }

    #[test]
    fn another_version_is_refused() {
        assert_eq!(Notice::decode(READY, &[VERSION]), Ok(Notice::Ready));
        assert!(Notice::decode(READY, &[VERSION + 1]).unwrap_err().contains("version"));
    }
}
