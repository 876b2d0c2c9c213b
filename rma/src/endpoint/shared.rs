//! The words that the endpoints of a domain share besides rings: barrier words, the sizes of attached segments and the parts of
//! further ones; and the boards for what barriers carry.

use crate::conduit::smp::{CARRIED_BYTES_MAX, ControlLayout, LINE_BYTES};
use crate::domain::Domain;
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use vgas_shm::{Mapping, Word};

/// The words of one member. The last two groups have a cache line each.
pub(super) struct MemberWords {
    /// Arrival at a barrier, alternating by epoch. Written by the member, beside those of the others: a barrier of a few
    /// ranks moves one line.
    pub(super) arrived: [Word<AtomicU64>; 2],
    /// Result of a barrier over several domains, alternating by epoch. Written by the member that leads.
    pub(super) released: [Word<AtomicU64>; 2],
    /// Size of the attached pinned segment plus 1; 0 before it is attached. Written once by the member.
    pub(super) attached: Word<AtomicU64>,
}

/// The words of all members of a domain; none without a domain.
#[derive(Clone)]
pub(super) struct SharedWords(Arc<Vec<MemberWords>>, Option<(Arc<Mapping>, ControlLayout)>);

impl SharedWords {
    pub(super) fn new(domain: Option<&Domain>) -> Result<Self> {
        let Some(domain) = domain else { return Ok(Self(Arc::default(), None)) };
        let (spec, control) = (domain.spec(), domain.control());
        let members = spec.members.len();
        let layout = ControlLayout::new(members, spec.ring_bytes, control.bytes() as u64)?;
        let words = (0..members).map(|member| {
            let at = |line: usize, word: usize| {
                control.word_u64(layout.shared(member) + line * LINE_BYTES + 8 * word)
            };
            let arrived = [0, 8].map(|byte| control.word_u64(layout.arrival(member) + byte));
            MemberWords { arrived, released: [at(0, 0), at(0, 1)], attached: at(1, 0) }
        });
        Ok(Self(Arc::new(words.collect()), Some((control.clone(), layout))))
    }

    /// Writes what a member brings to the barrier of an epoch; its arrival publishes it.
    pub(super) fn write_board(&self, member: usize, epoch: u64, bytes: &[u8]) {
        if let Some((control, layout)) = &self.1 {
            let at = layout.board(member, (epoch & 1) as usize);
            control.write(at, &epoch.to_ne_bytes());
            control.write(at + 8, &(bytes.len() as u64).to_ne_bytes());
            control.write(at + 16, bytes);
        }
    }

    /// Returns the payload of a member at the barrier of an epoch, at which it has arrived.
    pub(super) fn read_board(&self, member: usize, epoch: u64) -> Vec<u8> {
        let Some((control, layout)) = &self.1 else { return Vec::new() };
        let at = layout.board(member, (epoch & 1) as usize);
        let number = |at| {
            let mut bytes = [0; 8];
            control.read(at, &mut bytes);
            u64::from_ne_bytes(bytes)
        };
        if number(at) != epoch {
            return Vec::new();
        }
        let mut bytes = vec![0; (number(at + 8) as usize).min(CARRIED_BYTES_MAX)];
        control.read(at + 16, &mut bytes);
        bytes
    }

    /// Returns a member's words of its part of a further segment: size plus 1, or 0 while it has none, and
    /// first byte in its region.
    pub(super) fn part(&self, member: usize, index: usize) -> Option<[&AtomicU64; 2]> {
        let (control, layout) = self.1.as_ref()?;
        Some(layout.part(member, index).map(|at| control.atomic_u64(at)))
    }

    pub(super) fn member(&self, index: usize) -> &MemberWords {
        &self.0[index]
    }
}
