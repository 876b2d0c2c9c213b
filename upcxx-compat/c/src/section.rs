//! Strided sections of arrays, which both sides of a transfer step through alike.
//!
//! A section is reduced before any byte moves: dimensions of one step go, a dimension that continues what lies inside of it on
//! both sides becomes part of it. A section without gaps so is one run, and one with gaps in its first dimension only is one
//! loop.

use crate::runs::{Run, copy_long, copy_run, move_bytes};
use smallvec::SmallVec;

/// A dimension: a number of steps, with their bytes on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dimension {
    count: usize,
    to_stride: usize,
    from_stride: usize,
}

/// A section of an array at two places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    to: usize,
    from: usize,
    /// Length of each run.
    bytes: usize,
    /// The fastest first; each has at least two steps.
    dimensions: SmallVec<[Dimension; 4]>,
    to_extent: usize,
    from_extent: usize,
}

/// A section that ends beyond the highest address there can be, as one with a negative stride does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Section {
    /// A section of no bytes at two addresses.
    pub(crate) fn at(to: usize, from: usize) -> Self {
        Self { to, from, bytes: 0, dimensions: SmallVec::new(), to_extent: 0, from_extent: 0 }
    }

    /// Makes it a section of `counts[0]` bytes, `counts[1]` times at distances of `strides[0]`, and so on, and reduces it; `counts`
    /// is one longer than the strides. Returns whether it has any bytes. In place: to move a section costs as much as a short
    /// transfer.
    pub(crate) fn shape(
        &mut self,
        to_strides: &[usize],
        from_strides: &[usize],
        counts: &[usize],
    ) -> Result<bool, TooLarge> {
        let Some((&bytes, counts)) = counts.split_first() else { return Ok(false) };
        if bytes == 0 || counts.contains(&0) {
            return Ok(false);
        }
        self.bytes = bytes;
        for ((&count, &to_stride), &from_stride) in counts.iter().zip(to_strides).zip(from_strides) {
            self.add(Dimension { count, to_stride, from_stride })?;
        }
        self.join_runs()?;
        let (mut to_extent, mut from_extent) = (self.bytes, self.bytes);
        for dimension in &self.dimensions {
            let add =
                |extent: usize, stride: usize| extent.checked_add(stride.checked_mul(dimension.count - 1)?);
            to_extent = add(to_extent, dimension.to_stride).ok_or(TooLarge)?;
            from_extent = add(from_extent, dimension.from_stride).ok_or(TooLarge)?;
        }
        self.to.checked_add(to_extent).and(self.from.checked_add(from_extent)).ok_or(TooLarge)?;
        (self.to_extent, self.from_extent) = (to_extent, from_extent);
        Ok(true)
    }

    /// Adds the next dimension, joined with the last if its steps continue that one's.
    fn add(&mut self, dimension: Dimension) -> Result<(), TooLarge> {
        let Dimension { count, to_stride, from_stride } = dimension;
        if count == 1 {
            return Ok(());
        }
        let Some(last) = self.dimensions.last_mut() else {
            self.dimensions.push(dimension);
            return Ok(());
        };
        let is_next = last.to_stride.checked_mul(last.count) == Some(to_stride)
            && last.from_stride.checked_mul(last.count) == Some(from_stride);
        if is_next {
            last.count = last.count.checked_mul(count).ok_or(TooLarge)?;
        } else {
            self.dimensions.push(dimension);
        }
        Ok(())
    }

    /// Makes dimensions along which runs continue each other a part of the run. The order of the others does not change; which
    /// bytes go where does not depend on it.
    fn join_runs(&mut self) -> Result<(), TooLarge> {
        let touches =
            |bytes: usize| move |next: &Dimension| next.to_stride == bytes && next.from_stride == bytes;
        while let Some(at) = self.dimensions.iter().position(touches(self.bytes)) {
            let joined = self.dimensions.remove(at);
            self.bytes = self.bytes.checked_mul(joined.count).ok_or(TooLarge)?;
        }
        Ok(())
    }

    /// First address, and bytes from there to the end of the last run, at the destination.
    pub(crate) fn destination_range(&self) -> (usize, usize) {
        (self.to, self.to_extent)
    }

    /// The same at the source.
    pub(crate) fn source_range(&self) -> (usize, usize) {
        (self.from, self.from_extent)
    }

    /// Passes on all runs.
    pub(crate) fn for_each(&self, mut act: impl FnMut(Run)) {
        let bytes = self.bytes;
        nest(&self.dimensions, self.to, self.from, &mut |to, from, row: Dimension| {
            for step in 0..row.count {
                act(Run {
                    to: to.wrapping_add(step.wrapping_mul(row.to_stride)),
                    from: from.wrapping_add(step.wrapping_mul(row.from_stride)),
                    bytes,
                });
            }
        });
    }

    /// Copies all runs within this process. `to` and `from` are the section's first bytes as they are mapped here.
    ///
    /// # Safety
    /// Both sides are valid for their extents; other processes may use them meanwhile (rule 5).
    pub(crate) unsafe fn copy(&self, to: *mut u8, from: *const u8) {
        // SAFETY: passed on.
        unsafe {
            match self.bytes {
                _ if self.dimensions.is_empty() => copy_run(to, from, self.bytes),
                1 => self.copy_moves::<1>(to, from),
                2 => self.copy_moves::<2>(to, from),
                4 => self.copy_moves::<4>(to, from),
                8 => self.copy_moves::<8>(to, from),
                16 => self.copy_moves::<16>(to, from),
                32 => self.copy_moves::<32>(to, from),
                64 => self.copy_moves::<64>(to, from),
                128 => self.copy_moves::<128>(to, from),
                bytes => self.copy_rows(to, from, |to, from| copy_long(to, from, bytes)),
            }
        }
    }

    /// Copies runs of `N` bytes.
    ///
    /// # Safety
    /// As [`Section::copy`].
    unsafe fn copy_moves<const N: usize>(&self, to: *mut u8, from: *const u8) {
        // SAFETY: passed on.
        self.copy_rows(to, from, |to, from| unsafe { move_bytes::<N>(to, from) });
    }

    fn copy_rows(&self, to: *mut u8, from: *const u8, copy: impl Fn(*mut u8, *const u8)) {
        nest(&self.dimensions, 0, 0, &mut |to_offset, from_offset, row: Dimension| {
            let (mut to, mut from) = (to.wrapping_add(to_offset), from.wrapping_add(from_offset));
            for _ in 0..row.count {
                copy(to, from);
                to = to.wrapping_add(row.to_stride);
                from = from.wrapping_add(row.from_stride);
            }
        });
    }
}

/// Steps through all dimensions but the first, and passes on where each row of the first begins.
fn nest(dimensions: &[Dimension], to: usize, from: usize, row: &mut impl FnMut(usize, usize, Dimension)) {
    match dimensions {
        [] => row(to, from, Dimension { count: 1, to_stride: 0, from_stride: 0 }),
        [only] => row(to, from, *only),
        [inner @ .., outer] => {
            let (mut to, mut from) = (to, from);
            for _ in 0..outer.count {
                nest(inner, to, from, row);
                to = to.wrapping_add(outer.to_stride);
                from = from.wrapping_add(outer.from_stride);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: usize = 1 << 20;
    const FROM: usize = 1 << 30;

    /// Lists each byte's destination and source, by the definition of a section.
    fn by_definition(to: &[usize], from: &[usize], counts: &[usize]) -> Vec<(usize, usize)> {
        let mut bytes: Vec<_> = (0..counts[0]).map(|at| (TO + at, FROM + at)).collect();
        for level in 0..to.len() {
            let step = |step: usize| {
                let moved = move |&(a, b): &(usize, usize)| (a + step * to[level], b + step * from[level]);
                bytes.iter().map(moved).collect::<Vec<_>>()
            };
            bytes = (0..counts[level + 1]).flat_map(step).collect();
        }
        bytes.sort_unstable();
        bytes
    }

    fn shaped(
        (to, to_strides): (usize, &[usize]),
        (from, from_strides): (usize, &[usize]),
        counts: &[usize],
    ) -> Result<Option<Section>, TooLarge> {
        let mut section = Section::at(to, from);
        Ok(section.shape(to_strides, from_strides, counts)?.then_some(section))
    }

    fn reduced(to: &[usize], from: &[usize], counts: &[usize]) -> Option<Section> {
        shaped((TO, to), (FROM, from), counts).expect("small")
    }

    fn shape(to: &[usize], from: &[usize], counts: &[usize]) -> (usize, Vec<usize>) {
        let section = reduced(to, from, counts).expect("not empty");
        (section.bytes, section.dimensions.iter().map(|dimension| dimension.count).collect())
    }

    /// Goal: whatever a section is reduced to moves exactly the bytes that its definition says, and lies in its extents.
    #[test]
    fn reduction_keeps_the_bytes() {
        let strides = if cfg!(miri) { &[4, 9][..] } else { &[0, 2, 4, 8, 12, 24][..] };
        let pairs = || strides.iter().flat_map(|&a| strides.iter().map(move |&b| (a, b)));
        for (first, second) in pairs().flat_map(|a| pairs().map(move |b| (a, b))) {
            let (to, from) = ([first.0, second.0], [first.1, second.1]);
            for counts in [[4, 2, 3], [4, 1, 2], [4, 3, 1], [2, 2, 2], [4, 0, 2], [0, 2, 2], [8, 3, 2]] {
                let expected = by_definition(&to, &from, &counts);
                let mut found = Vec::new();
                if let Some(section) = reduced(&to, &from, &counts) {
                    section
                        .for_each(|run| found.extend((0..run.bytes).map(|at| (run.to + at, run.from + at))));
                    let ends = |of: fn(&(usize, usize)) -> usize| {
                        found.iter().map(of).max().map_or(0, |end| end + 1)
                    };
                    assert_eq!(section.destination_range(), (TO, ends(|byte| byte.0) - TO));
                    assert_eq!(section.source_range(), (FROM, ends(|byte| byte.1) - FROM));
                }
                found.sort_unstable();
                assert!(found == expected, "{to:?} {from:?} {counts:?}");
            }
        }
    }

    #[test]
    fn sections_without_gaps_are_one_run() {
        assert_eq!(shape(&[], &[], &[5]), (5, vec![]));
        assert_eq!(shape(&[8, 80, 240], &[8, 80, 240], &[8, 10, 3, 2]), (480, vec![]));
        // Any order of the dimensions, and dimensions of one step with any stride.
        assert_eq!(shape(&[80, 8, 7], &[80, 8, 5], &[8, 3, 10, 1]), (240, vec![]));
        // A gap on one side keeps the runs apart on both.
        assert_eq!(shape(&[8], &[9], &[8, 10]), (8, vec![10]));
        // One loop where the gaps are alike.
        assert_eq!(shape(&[10, 100], &[20, 200], &[8, 10, 3]), (8, vec![30]));
        assert_eq!(shape(&[10, 101], &[20, 200], &[8, 10, 3]), (8, vec![10, 3]));
        assert!(reduced(&[8], &[8], &[0, 3]).is_none() && reduced(&[8], &[8], &[8, 0]).is_none());
    }

    #[test]
    fn negative_and_huge_strides_are_refused() {
        let back = 8usize.wrapping_neg();
        for (to, from, counts) in [
            (vec![back], vec![8], vec![8, 2]),
            (vec![8], vec![back], vec![8, 2]),
            (vec![usize::MAX / 2], vec![8], vec![8, 4]),
            (vec![8, 1 << 63], vec![8, 1 << 63], vec![8, 2, 3]),
            (vec![usize::MAX - FROM], vec![8], vec![FROM, 2]),
        ] {
            assert_eq!(shaped((TO, &to), (FROM, &from), &counts), Err(TooLarge), "{to:?} {from:?}");
        }
        // A stride that is not stepped does not count.
        assert_eq!(shape(&[back], &[8], &[8, 1]), (8, vec![]));
        // A count that no memory has.
        assert_eq!(shaped((0, &[0]), (0, &[0]), &[8, usize::MAX]).map(|found| found.is_some()), Ok(true));
        assert_eq!(shaped((0, &[8]), (0, &[8]), &[8, usize::MAX]), Err(TooLarge));
        let (zeros, many) = ([0, 0], [1, 1 << 40, 1 << 40]);
        assert_eq!(shaped((0, &zeros), (0, &zeros), &many), Err(TooLarge));
    }

    /// Goal: copies of all lengths of runs in one to eight dimensions move the bytes that the runs name.
    #[test]
    fn copies_what_its_runs_name() {
        let lengths =
            if cfg!(miri) { &[8, 24][..] } else { &[1, 2, 3, 4, 7, 8, 16, 24, 32, 64, 128, 200][..] };
        for &bytes in lengths {
            for levels in 1..=8 {
                let (mut to, mut from, mut counts) = (Vec::new(), Vec::new(), vec![bytes]);
                let (mut to_stride, mut from_stride) = (bytes + 3, bytes + 8);
                for level in 0..levels {
                    to.push(to_stride);
                    from.push(from_stride);
                    counts.push(if level < 4 { 2 } else { 1 });
                    (to_stride, from_stride) = (to_stride * 2 + level, from_stride * 2);
                }
                let section = reduced(&to, &from, &counts).expect("not empty");
                let source: Vec<u8> = (0..section.from_extent).map(|at| (at % 251) as u8).collect();
                let mut expected = vec![0xff; section.to_extent];
                let mut found = expected.clone();
                section.for_each(|run| {
                    let (a, b) = (run.to - TO, run.from - FROM);
                    expected[a..a + run.bytes].copy_from_slice(&source[b..b + run.bytes]);
                });
                // SAFETY: both are as long as the extents.
                unsafe { section.copy(found.as_mut_ptr(), source.as_ptr()) };
                assert!(found == expected, "{levels} levels of {bytes} bytes");
            }
        }
    }
}
