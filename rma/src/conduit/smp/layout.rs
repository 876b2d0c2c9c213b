//! Layout of a domain's control mapping. Pure arithmetic over the domain's specification, equal in all its
//! processes; a fresh mapping is all zeros, and all zeros is the initial state of every part.
//!
//! ```text
//! mailbox of member 0, 1, …      sleeping word, bitmap of the producers that may have sent something
//! arrivals of member 0, 1, …     barrier words, side by side
//! words of member 0, 1, …        what else endpoints share: results of barriers, size of the attached segment
//! boards of member 0, 1, …       what it brings to barriers that carry something, two in turn
//! parts of member 0, 1, …        what it has of further pinned segments, two words each
//! team boards, by board          arrivals of the members, then for each member a ring of cells and an arena (`collective::board`)
//! hot lines, by pair             one line for each two members
//! rings, by (consumer, producer, direction)     a control line (head, want_room), then the slots
//! ```

use crate::address::RegionId;
use crate::error::{Result, RmaError};
use crate::message::Direction;

/// Bytes of a cache line, and of a slot of a ring.
pub const LINE_BYTES: usize = 64;

/// Default bytes of a ring. Four of the largest medium messages fit.
pub const RING_BYTES_DEFAULT: u64 = 256 << 10;

/// Smallest ring that still takes a message with a useful payload.
pub const RING_BYTES_MIN: u64 = 4 << 10;

/// Largest ring: the lengths in record headers have 32 bits.
pub const RING_BYTES_MAX: u64 = 1 << 30;

/// Most bytes that a rank brings to a barrier that carries something.
pub const CARRIED_BYTES_MAX: usize = 1024;

/// Boards for the collectives of teams whose members share the domain.
pub(crate) const BOARDS: usize = 1;

/// Bytes of a member's part of a team board.
pub(crate) const BOARD_PART_BYTES: usize = LINE_BYTES + (32 << 10) + (512 << 10);

/// Bytes of the control file of a domain with `members` members and rings of `ring_bytes` bytes.
pub fn control_bytes(members: usize, ring_bytes: u64) -> u64 {
    let layout = ControlLayout { members, ring_bytes: ring_bytes as usize };
    (layout.rings_offset() + members * members * 2 * layout.ring_stride()) as u64
}

/// Offsets in the control mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlLayout {
    members: usize,
    ring_bytes: usize,
}

/// Bytes of a member's arrival words. Those of several members share a line: one look sees all.
const ARRIVAL_BYTES: usize = 16;

/// Bytes that each member's endpoint shares with the others besides (see `endpoint::shared`).
const SHARED_BYTES: usize = 2 * LINE_BYTES;

/// Bytes of a board: two words, and a barrier's payload.
pub(crate) const BOARD_BYTES: usize = (16 + CARRIED_BYTES_MAX).next_multiple_of(LINE_BYTES);

/// Bytes of a member's entry for a part of a further segment: two words.
const PART_BYTES: usize = 16;

/// Bytes of all that a member says of such parts.
const PARTS_BYTES: usize = (RegionId::FURTHER_MAX as usize * PART_BYTES).next_multiple_of(LINE_BYTES);

impl ControlLayout {
    /// Checks a specification that came from another process.
    pub(crate) fn new(members: usize, ring_bytes: u64, control_bytes: u64) -> Result<Self> {
        let fault = |what: String| Err(RmaError::Protocol { peer: None, what });
        if !ring_bytes.is_power_of_two() || !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) {
            return fault(format!(
                "a ring of {ring_bytes} bytes; it must be a power of two from 4 KiB to 1 GiB"
            ));
        }
        let expected = self::control_bytes(members, ring_bytes);
        if control_bytes < expected {
            return fault(format!("the control file has {control_bytes} bytes, its layout needs {expected}"));
        }
        Ok(Self { members, ring_bytes: ring_bytes as usize })
    }

    /// 64-bit words of a mailbox's bitmap.
    pub(crate) fn bitmap_words(&self) -> usize {
        self.members.div_ceil(64)
    }

    fn mailbox_bytes(&self) -> usize {
        (8 + 8 * self.bitmap_words()).next_multiple_of(LINE_BYTES)
    }

    /// The sleeping word (`u32`) of a member; its bitmap follows 8 bytes later. They share a line because a sender
    /// reads both, and neither changes while a pair of members is busy talking.
    pub(crate) fn sleeping(&self, member: usize) -> usize {
        member * self.mailbox_bytes()
    }

    /// A word (`u64`) of the bitmap of a member.
    pub(crate) fn bitmap(&self, member: usize, word: usize) -> usize {
        self.sleeping(member) + 8 + 8 * word
    }

    fn arrivals_offset(&self) -> usize {
        self.members * self.mailbox_bytes()
    }

    /// The two words (`u64`) with which a member arrives at barriers.
    pub(crate) fn arrival(&self, member: usize) -> usize {
        self.arrivals_offset() + member * ARRIVAL_BYTES
    }

    fn shared_offset(&self) -> usize {
        self.arrivals_offset() + (self.members * ARRIVAL_BYTES).next_multiple_of(LINE_BYTES)
    }

    /// The words that a member's endpoint shares, `SHARED_BYTES` of them.
    pub(crate) fn shared(&self, member: usize) -> usize {
        self.shared_offset() + member * SHARED_BYTES
    }

    fn boards_offset(&self) -> usize {
        self.shared_offset() + self.members * SHARED_BYTES
    }

    /// One of the two boards of a member.
    pub(crate) fn board(&self, member: usize, which: usize) -> usize {
        self.boards_offset() + (2 * member + which) * BOARD_BYTES
    }

    fn parts_offset(&self) -> usize {
        self.boards_offset() + self.members * 2 * BOARD_BYTES
    }

    /// The two words (`u64`) of a member's part of a further segment; there are [`RegionId::FURTHER_MAX`].
    pub(crate) fn part(&self, member: usize, index: usize) -> [usize; 2] {
        let at = self.parts_offset() + member * PARTS_BYTES + index * PART_BYTES;
        [at, at + 8]
    }

    fn team_boards_offset(&self) -> usize {
        self.parts_offset() + self.members * PARTS_BYTES
    }

    fn team_arrivals_bytes(&self) -> usize {
        (self.members * 8).next_multiple_of(LINE_BYTES)
    }

    fn team_board_bytes(&self) -> usize {
        self.team_arrivals_bytes() + self.members * BOARD_PART_BYTES
    }

    /// The word (`u64`) with which a member enters the collectives of a board. Those of several members share a line.
    pub(crate) fn team_arrival(&self, board: usize, member: usize) -> usize {
        self.team_boards_offset() + board * self.team_board_bytes() + 8 * member
    }

    /// A member's part of a board, of [`BOARD_PART_BYTES`] bytes.
    pub(crate) fn team_part(&self, board: usize, member: usize) -> usize {
        self.team_arrival(board, 0) + self.team_arrivals_bytes() + member * BOARD_PART_BYTES
    }

    fn hotlines_offset(&self) -> usize {
        self.team_boards_offset() + BOARDS * self.team_board_bytes()
    }

    /// The hot line of two members.
    pub(crate) fn hotline(&self, one: usize, other: usize) -> usize {
        self.hotlines_offset() + (one.min(other) * self.members + one.max(other)) * LINE_BYTES
    }

    fn rings_offset(&self) -> usize {
        self.hotlines_offset() + self.members * self.members * LINE_BYTES
    }

    fn ring_stride(&self) -> usize {
        LINE_BYTES + self.ring_bytes
    }

    /// The control line of the ring that `producer` fills and `consumer` empties; its slots follow.
    pub(crate) fn ring(&self, consumer: usize, producer: usize, direction: Direction) -> usize {
        let index = (consumer * self.members + producer) * 2 + (direction == Direction::Reply) as usize;
        self.rings_offset() + index * self.ring_stride()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_fill_the_control_file() {
        for members in [1, 2, 3, 63, 64, 65] {
            let bytes = control_bytes(members, RING_BYTES_MIN);
            let layout = ControlLayout::new(members, RING_BYTES_MIN, bytes).unwrap();
            let mut parts = Vec::new();
            for member in 0..members {
                parts.push((layout.sleeping(member), 8 + 8 * layout.bitmap_words()));
                parts.push((layout.arrival(member), ARRIVAL_BYTES));
                parts.push((layout.shared(member), SHARED_BYTES));
                parts.extend([0, 1].map(|which| (layout.board(member, which), BOARD_BYTES)));
                for board in 0..BOARDS {
                    parts.push((layout.team_arrival(board, member), 8));
                    parts.push((layout.team_part(board, member), BOARD_PART_BYTES));
                }
                for part in [0, 1, usize::from(RegionId::FURTHER_MAX) - 1] {
                    parts.extend(layout.part(member, part).map(|word| (word, 8)));
                }
                for producer in 0..members {
                    assert_eq!(layout.hotline(member, producer), layout.hotline(producer, member));
                    if producer >= member {
                        parts.push((layout.hotline(member, producer), LINE_BYTES));
                    }
                    for direction in [Direction::Request, Direction::Reply] {
                        parts.push((layout.ring(member, producer, direction), layout.ring_stride()));
                    }
                }
            }
            parts.sort_unstable();
            for pair in parts.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
            }
            let last = parts.last().unwrap();
            assert_eq!((last.0 + last.1) as u64, bytes);
        }
    }

    #[test]
    fn a_specification_that_cannot_hold_is_refused() {
        let bytes = control_bytes(2, RING_BYTES_MIN);
        assert!(ControlLayout::new(2, RING_BYTES_MIN, bytes).is_ok());
        assert!(ControlLayout::new(2, RING_BYTES_MIN, bytes - 1).is_err());
        assert!(ControlLayout::new(2, RING_BYTES_MIN + 64, u64::MAX).is_err());
        assert!(ControlLayout::new(2, RING_BYTES_MIN / 2, u64::MAX).is_err());
    }
}
