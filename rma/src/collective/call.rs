//! Identity of a collective call: its parameters that members must agree on, as they travel with the strings.

use crate::Peer;

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Nothing but that all have come.
    Barrier = 0,
    /// One gives all the same.
    Broadcast = 1,
    /// One gives each something else.
    Scatter = 2,
    /// All give one.
    Gather = 3,
    /// All give all the same.
    AllGather = 4,
    /// All give each something else.
    AllToAll = 5,
    /// All members' values, combined for one.
    Reduce = 6,
    /// All members' values, combined for all.
    AllReduce = 7,
    /// The values of this and earlier members, combined for each.
    Scan = 8,
    /// Teams of the members of a team.
    Split = 9,
    /// That all have come, and a value of each.
    BarrierWith = 10,
    /// The values of earlier members, without the receiver's own, combined for each.
    ExclusiveScan = 11,
    /// All give all the same, of lengths that differ.
    AllGatherV = 12,
}

const NAMES: [&str; 13] = [
    "a barrier",
    "a broadcast",
    "a scatter",
    "a gather",
    "an all-gather",
    "an all-to-all",
    "a reduction",
    "an all-reduce",
    "a scan",
    "a split",
    "a barrier with values",
    "an exclusive scan",
    "an all-gatherv",
];

/// A collective and its root, in the bits that a message has room for; of roots, the low 24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call(u32);

impl Call {
    /// Bits of a call in a message.
    pub(super) const BITS: u32 = 30;
    const KIND_BITS: u32 = 6;
    const NO_ROOT: u32 = (1 << (Self::BITS - Self::KIND_BITS)) - 1;

    /// A collective in which all members are equal.
    pub fn of_all(kind: Kind) -> Self {
        Self(kind as u32 | Self::NO_ROOT << Self::KIND_BITS)
    }

    /// A collective with a root, which is a member's position.
    pub fn with_root(kind: Kind, root: u32) -> Self {
        Self(kind as u32 | (root & Self::NO_ROOT) << Self::KIND_BITS)
    }

    pub(super) fn encode(self) -> u32 {
        self.0
    }

    /// Decodes a peer's word, which may be no valid call.
    pub(super) fn decode(word: u32) -> Self {
        Self(word & ((1 << Self::BITS) - 1))
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.0 & ((1 << Self::KIND_BITS) - 1);
        f.write_str(NAMES.get(kind as usize).unwrap_or(&"a collective that there is not"))?;
        match self.0 >> Self::KIND_BITS {
            Self::NO_ROOT => Ok(()),
            root => write!(f, " with root {root}"),
        }
    }
}

/// The calls of the members, for one operation of a rank.
#[derive(Debug, Default)]
pub(super) struct Calls {
    own: Option<Call>,
    /// Different ones only: with two of them, one is not this rank's.
    heard: Vec<(Peer, Call)>,
}

impl Calls {
    /// This rank begins. Some: a peer that has called something else.
    pub(super) fn begin(&mut self, call: Call) -> Option<(Peer, Call)> {
        self.own = Some(call);
        self.heard.iter().copied().find(|&(_, heard)| heard != call)
    }

    /// Notes a member's call. Some: this rank's call, which differs.
    pub(super) fn hear(&mut self, from: Peer, call: Call) -> Option<Call> {
        match self.own {
            Some(own) => (own != call).then_some(own),
            None => {
                if self.heard.len() < 2 && self.heard.iter().all(|&(_, heard)| heard != call) {
                    self.heard.push((from, call));
                }
                None
            }
        }
    }

    /// Returns this rank's call, once it has begun.
    pub(super) fn own(&self) -> Option<Call> {
        self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_says_what_it_is() {
        let scan = Call::of_all(Kind::Scan);
        assert_eq!(scan.to_string(), "a scan");
        assert_eq!(Call::with_root(Kind::Gather, 3).to_string(), "a gather with root 3");
        assert_eq!(Call::decode(scan.encode()), scan);
        assert!(scan.encode() < 1 << Call::BITS);
        assert!(Call::decode(u32::MAX).to_string().contains("there is not"));
    }

    /// Goal: whichever comes first, the member that calls something else is found.
    #[test]
    fn another_call_is_heard() {
        let (gather, scan) = (Call::with_root(Kind::Gather, 3), Call::of_all(Kind::Scan));
        let mut calls = Calls::default();
        assert_eq!(calls.begin(gather), None);
        assert_eq!(calls.hear(Peer(1), gather), None);
        assert_eq!(calls.hear(Peer(2), scan), Some(gather));
        for own in [gather, scan] {
            let mut calls = Calls::default();
            assert_eq!(calls.hear(Peer(1), gather), None);
            assert_eq!(calls.hear(Peer(1), gather), None);
            assert_eq!(calls.hear(Peer(2), scan), None);
            let other = if own == scan { (Peer(1), gather) } else { (Peer(2), scan) };
            assert_eq!(calls.begin(own), Some(other));
        }
    }
}
