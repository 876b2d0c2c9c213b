//! Runs: pieces of memory that are contiguous on both sides of a transfer, how lists of pieces become runs, and how a run is
//! copied.

use vgas_shm::copy;

/// Contiguous bytes at an address of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl Piece {
    const EMPTY: Self = Self { address: 0, bytes: 0 };

    #[inline(always)]
    fn skip(&mut self, bytes: usize) {
        self.address = self.address.wrapping_add(bytes);
        self.bytes -= bytes;
    }
}

/// Bytes that are contiguous at their destination and at their source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) to: usize,
    pub(crate) from: usize,
    pub(crate) bytes: usize,
}

impl Run {
    /// Returns true if bytes at these places continue the run on both sides.
    #[inline(always)]
    fn is_continued_by(&self, to: usize, from: usize) -> bool {
        self.to.wrapping_add(self.bytes) == to && self.from.wrapping_add(self.bytes) == from
    }
}

/// Walks two sequences of pieces together, none of them empty. Returns whether both have the same number of bytes; the runs up to the end of
/// the shorter one have been passed to `act`.
pub(crate) fn for_each_run(
    mut to: impl Iterator<Item = Piece>,
    mut from: impl Iterator<Item = Piece>,
    mut act: impl FnMut(Run),
) -> bool {
    let mut run = Run { to: 0, from: 0, bytes: 0 };
    let (mut rest_to, mut rest_from) = (Piece::EMPTY, Piece::EMPTY);
    let is_equal = loop {
        if rest_to.bytes == 0 {
            match to.next() {
                Some(piece) => rest_to = piece,
                None => break rest_from.bytes == 0 && from.next().is_none(),
            }
        }
        if rest_from.bytes == 0 {
            match from.next() {
                Some(piece) => rest_from = piece,
                None => break false,
            }
        }
        let bytes = rest_to.bytes.min(rest_from.bytes);
        if run.is_continued_by(rest_to.address, rest_from.address) {
            run.bytes += bytes;
        } else {
            if run.bytes > 0 {
                act(run);
            }
            run = Run { to: rest_to.address, from: rest_from.address, bytes };
        }
        rest_to.skip(bytes);
        rest_from.skip(bytes);
    };
    if run.bytes > 0 {
        act(run);
    }
    is_equal
}

/// Walks as many pairs of equally long pieces as there are at the beginning of two lists, in which `pair`
/// finds them by index, and returns their number. It returns none if the lists end, lengths differ, or a
/// piece is empty.
#[inline(always)]
pub(crate) fn for_each_pair(pair: impl Fn(usize) -> Option<Run>, mut act: impl FnMut(Run)) -> usize {
    let mut index = 0;
    let mut next = pair(0);
    while let Some(mut run) = next {
        index += 1;
        next = pair(index);
        while let Some(more) = next
            && run.is_continued_by(more.to, more.from)
        {
            run.bytes += more.bytes;
            index += 1;
            next = pair(index);
        }
        act(run);
    }
    index
}

/// Copies a run between two places of this process, which may overlap. Short runs of the usual lengths are single moves.
///
/// # Safety
/// Both sides are valid for `bytes` bytes; other processes may use them meanwhile (rule 5).
#[inline(always)]
pub(crate) unsafe fn copy_run(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: as the caller promised.
    unsafe {
        match bytes {
            8 => move_bytes::<8>(to, from),
            4 => move_bytes::<4>(to, from),
            16 => move_bytes::<16>(to, from),
            32 => move_bytes::<32>(to, from),
            64 => move_bytes::<64>(to, from),
            128 => move_bytes::<128>(to, from),
            2 => move_bytes::<2>(to, from),
            1 => move_bytes::<1>(to, from),
            _ => copy_long(to, from, bytes),
        }
    }
}

/// Copies `N` bytes: all are loaded before the first is stored.
///
/// # Safety
/// As [`copy_run`].
#[inline(always)]
pub(crate) unsafe fn move_bytes<const N: usize>(to: *mut u8, from: *const u8) {
    // SAFETY: as the caller promised; the accesses need no alignment.
    unsafe { to.cast::<[u8; N]>().write_unaligned(from.cast::<[u8; N]>().read_unaligned()) };
}

/// From here on copies of this project are faster than those of the C library, which are for the runs below.
const LONG_BYTES: usize = 4096;

/// Copies a run of any length.
///
/// # Safety
/// As [`copy_run`].
#[inline(always)]
pub(crate) unsafe fn copy_long(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: as the caller promised.
    unsafe {
        if bytes >= LONG_BYTES && are_disjoint(to as usize, from as usize, bytes) {
            copy::copy(from, to, bytes);
        } else {
            std::ptr::copy(from, to, bytes);
        }
    }
}

/// Returns true if two ranges of a length share no byte.
#[inline(always)]
fn are_disjoint(one: usize, other: usize, bytes: usize) -> bool {
    other.wrapping_sub(one) >= bytes && one.wrapping_sub(other) >= bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(list: &[(usize, usize)]) -> impl Iterator<Item = Piece> {
        list.iter().map(|&(address, bytes)| Piece { address, bytes })
    }

    fn runs(to: &[(usize, usize)], from: &[(usize, usize)]) -> (Vec<(usize, usize, usize)>, bool) {
        let mut found = Vec::new();
        let act = |run: Run| found.push((run.to, run.from, run.bytes));
        let is_equal = for_each_run(pieces(to), pieces(from), act);
        (found, is_equal)
    }

    #[test]
    fn runs_are_as_long_as_both_sides_allow() {
        assert_eq!(runs(&[], &[]), (vec![], true));
        assert_eq!(runs(&[(100, 8)], &[(200, 8)]), (vec![(100, 200, 8)], true));
        assert_eq!(runs(&[(100, 6)], &[(200, 2), (300, 4)]), (vec![(100, 200, 2), (102, 300, 4)], true));
        assert_eq!(
            runs(&[(100, 3), (110, 3)], &[(200, 4), (300, 2)]),
            (vec![(100, 200, 3), (110, 203, 1), (111, 300, 2)], true)
        );
        // Bytes that continue on both sides are one run, wherever the lists cut them.
        assert_eq!(runs(&[(100, 1), (101, 5)], &[(200, 4), (204, 2)]), (vec![(100, 200, 6)], true));
        // Zero is an address as any other.
        assert_eq!(runs(&[(0, 4)], &[(0, 4)]), (vec![(0, 0, 4)], true));
    }

    #[test]
    fn sides_of_different_lengths_are_told() {
        assert!(!runs(&[(100, 8)], &[(200, 7)]).1);
        assert!(!runs(&[(100, 8)], &[(200, 9)]).1);
        assert!(!runs(&[(100, 8)], &[(200, 8), (300, 1)]).1);
        assert!(!runs(&[(100, 8), (300, 1)], &[(200, 8)]).1);
        assert!(!runs(&[], &[(200, 8)]).1);
        assert!(!runs(&[(100, 8)], &[]).1);
    }

    #[test]
    fn pairs_that_touch_on_both_sides_are_one_run() {
        let list = [(100, 300, 8), (108, 308, 8), (116, 400, 8), (124, 408, 4), (200, 412, 4)];
        let pair = |index: usize| list.get(index).map(|&(to, from, bytes)| Run { to, from, bytes });
        let mut found = Vec::new();
        assert_eq!(for_each_pair(pair, |run| found.push((run.to, run.from, run.bytes))), 5);
        assert_eq!(found, [(100, 300, 16), (116, 400, 12), (200, 412, 4)]);
        assert_eq!(for_each_pair(|index| pair(index).filter(|run| run.bytes == 8), |_| ()), 3);
        assert_eq!(for_each_pair(|_| None, |_| panic!("there is none")), 0);
    }

    /// Goal: a run of every length, also between overlapping places, leaves the bytes that a move of memory leaves.
    #[test]
    fn copies_as_a_move_of_memory_does() {
        let lengths = (0..if cfg!(miri) { 34 } else { 300 }).chain([4095, 4096, 5000]);
        for bytes in lengths {
            for (to, from) in [(0, 400), (400, 0), (3, 9), (9, 3), (8, 0), (0, 64), (64, 0), (5, 5)] {
                let mut memory: Vec<u8> = (0..6000).map(|at| (at % 251) as u8).collect();
                let mut expected = memory.clone();
                expected.copy_within(from..from + bytes, to);
                let base = memory.as_mut_ptr();
                // SAFETY: both ranges lie inside.
                unsafe { copy_run(base.add(to), base.add(from), bytes) };
                assert!(memory == expected, "{bytes} bytes from {from} to {to}");
            }
        }
    }
}
