//! Atomic updates of words of segments, of whichever kind: `vgasnet_update_…`.

use crate::fatal::{fail, fatal};
use crate::job::{self, Raw as _};
use crate::segment;
use libc::{c_int, c_void};
use vgas::Kind;
use vgas_cache::client::SegmentUpdate;
use vgas_rma::Rank;
use vgas_shm::Update;

/// `vgasnet_update_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WordUpdate {
    rank: u32,
    change: c_int,
    destination: *mut c_void,
    operand: u64,
    expected: u64,
}

/// Returns the update of a word of this kind, or ends the job with a line that gives the fault.
pub(crate) fn of_word(change: c_int, word: c_int, operand: u64, expected: u64) -> Update {
    // The upper half of a word of four bytes is the sign's.
    let bits = |value: u64| if word < 2 { u64::from(value as u32) } else { value };
    let (operand, expected) = (bits(operand), bits(expected));
    let (first, second) = if change == 1 { (expected, operand) } else { (operand, 0) };
    let half = |value: u64| [value as u32, (value >> 32) as u32];
    let ([a, b], [c, d]) = (half(first), half(second));
    let kind = (0..256).contains(&change).then_some(change as u32 | (word as u32) << 8);
    kind.and_then(|kind| Update::decode([kind, a, b, c, d])).unwrap_or_else(|| {
        fatal(format_args!("there is no atomic update {change}: see vgasnet_change_t"));
    })
}

impl WordUpdate {
    /// Returns the update and its place, or ends the job with a line that gives the fault. `word`: the number
    /// of its kind ([`vgas_shm::WordKind`]).
    fn check(&self, word: c_int) -> SegmentUpdate {
        let update = of_word(self.change, word, self.operand, self.expected);
        let bytes = update.word.bytes();
        let offset = segment::checked_offset(self.rank, self.destination, bytes as usize);
        if !offset.is_multiple_of(u64::from(bytes)) {
            fatal(format_args!(
                "an atomic update of {bytes} bytes at {:p}, which is not a multiple of {bytes} in the segment of node {}",
                self.destination, self.rank
            ));
        }
        SegmentUpdate { of: Rank(self.rank).into(), offset, update }
    }
}

fn make(SegmentUpdate { of, offset, update }: SegmentUpdate) -> u64 {
    let runtime = &job::joined().runtime;
    let was = match segment::kind() {
        Kind::Tiered => runtime.client().update(of, offset, update).map_err(vgas::Error::from),
        Kind::Pinned => runtime.endpoint().update(of.owner, offset, update).map_err(vgas::Error::from),
    };
    was.unwrap_or_else(|error| fail(error))
}

/// `vgasnet_update_u32` and its like.
#[unsafe(no_mangle)]
pub extern "C" fn vgasi_update(
    rank: u32,
    destination: *mut c_void,
    word: c_int,
    change: c_int,
    operand: u64,
    expected: u64,
) -> u64 {
    make(WordUpdate { rank, change, destination, operand, expected }.check(word))
}

/// `vgasnet_update_many_u64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgasi_update_many(
    updates: *const WordUpdate,
    count: usize,
    word: c_int,
    were: *mut u64,
) {
    // SAFETY: rule 1: `count` updates.
    let updates =
        (0..count).map(|index| unsafe { updates.add(index).read() }.check(word)).collect::<Vec<_>>();
    let mut found = vec![0; count];
    match segment::kind() {
        Kind::Tiered => {
            if let Err(error) = job::joined().runtime.client().update_many(&updates, &mut found) {
                fail(vgas::Error::from(error));
            }
        }
        Kind::Pinned => found.iter_mut().zip(updates).for_each(|(found, update)| *found = make(update)),
    }
    if !were.is_null() {
        // SAFETY: rule 1: room for `count` values.
        (0..).zip(found).for_each(|(index, was)| unsafe { were.add(index).write(was) });
    }
}
