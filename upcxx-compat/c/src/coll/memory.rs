//! Bytes of the client, read and written while an operation is under way.

/// An address of the client's, of as many bytes as the operation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory(*mut u8);

// SAFETY: rule 1: the memory is valid for any thread of the process until the operation was synchronised.
unsafe impl Send for Memory {}
// SAFETY: as above; the address itself is never changed.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(address: *mut u8) -> Self {
        Self(address)
    }

    pub(super) fn address(self) -> *mut u8 {
        self.0
    }

    /// The memory so many bytes further on.
    pub(super) fn at(self, offset: usize) -> Self {
        Self(self.0.wrapping_add(offset))
    }

    /// A copy of the first bytes.
    pub(super) fn read(self, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        self.read_into(&mut copy);
        copy
    }

    pub(super) fn read_into(self, into: &mut [u8]) {
        if !into.is_empty() {
            // SAFETY: rules 1 and 5: the operation was begun and not yet synchronised.
            unsafe { std::ptr::copy_nonoverlapping(self.0, into.as_mut_ptr(), into.len()) };
        }
    }

    pub(super) fn write(self, bytes: &[u8]) {
        if !bytes.is_empty() {
            // SAFETY: as in `read_into`.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        }
    }

    /// Takes over bytes from elsewhere, which may overlap, as they do when a client gives the same place twice.
    pub(super) fn copy_from(self, from: Memory, bytes: usize) {
        if bytes > 0 && self != from {
            // SAFETY: as in `read_into`.
            unsafe { std::ptr::copy(from.0, self.0, bytes) };
        }
    }

    /// Whether so many bytes here and so many there have one in common.
    pub(super) fn overlaps(self, bytes: usize, other: Memory, other_bytes: usize) -> bool {
        let (here, there) = (self.0.addr(), other.0.addr());
        here < there.saturating_add(other_bytes) && there < here.saturating_add(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_do_not_overlap() {
        let mut place = [0u8; 8];
        let memory = Memory::new(place.as_mut_ptr());
        assert!(memory.overlaps(4, memory.at(3), 1));
        assert!(!memory.overlaps(4, memory.at(4), 4));
        assert!(!memory.at(4).overlaps(4, memory, 4));
        assert!(!memory.overlaps(0, memory, 4));
    }
}
