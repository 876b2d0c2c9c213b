//! The words that the endpoints of a domain share besides rings: barrier words and the sizes of attached segments.

use crate::conduit::smp::{ControlLayout, LINE_BYTES};
use crate::error::Result;
use crate::shm::{Domain, Word};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
pub(super) struct SharedWords(Arc<Vec<MemberWords>>);

impl SharedWords {
    pub(super) fn new(domain: Option<&Domain>) -> Result<Self> {
        let Some(domain) = domain else { return Ok(Self(Arc::default())) };
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
        Ok(Self(Arc::new(words.collect())))
    }

    pub(super) fn member(&self, index: usize) -> &MemberWords {
        &self.0[index]
    }
}
