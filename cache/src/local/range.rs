//! The numbers of a range of addresses that is the same in every process of the job ([`Everywhere`](super::Everywhere)).

/// Addresses at which a range may begin: addresses that neither programs nor their libraries, heaps and stacks use on 64-bit Linux, with and
/// without randomised layout. Sanitizers use some.
pub const BASES: [usize; 4] = [0x1000_0000_0000, 0x2000_0000_0000, 0x3000_0000_0000, 0x0800_0000_0000];

/// Most bytes of such ranges: from the first of [`BASES`] to where programs are loaded.
pub const BYTES_MAX: u64 = 64 << 40;

/// Most such ranges of a process.
pub const RANGES_MAX: usize = 64;

/// The range of addresses of all ranks' parts of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address of rank 0's segment.
    pub base: usize,
    /// From the beginning of one rank's to that of the next one's; a multiple of the page size.
    pub stride: usize,
    /// Number of ranks.
    pub ranks: u32,
}

impl Range {
    /// Returns its length; none when that cannot be addressed.
    pub fn bytes(&self) -> Option<usize> {
        self.stride.checked_mul(self.ranks as usize).filter(|bytes| *bytes as u64 <= BYTES_MAX)
    }

    /// Returns the first address of a rank's segment.
    pub fn base_of(&self, rank: u32) -> usize {
        self.base + self.stride * rank as usize
    }

    /// Returns the rank whose segment an address would be in, and the offset; none outside of the range.
    pub fn locate(&self, address: usize) -> Option<(u32, u64)> {
        let offset = address.checked_sub(self.base)?;
        let rank = offset.checked_div(self.stride)?;
        (rank < self.ranks as usize).then_some((rank as u32, (offset % self.stride) as u64))
    }
}
