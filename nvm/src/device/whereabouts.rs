//! Location of an open file for other processes of the node.

#![forbid(unsafe_code)]

/// Location of a segment's file, for other processes of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// The process that has it open, and its descriptor's number there.
    pub process: u32,
    /// See `process`.
    pub descriptor: u32,
    /// The file's device, to notice another file under the same number.
    pub device: u64,
    /// See `device`.
    pub inode: u64,
    /// Offset of the first page at either place.
    pub places: [u64; 2],
}

impl Whereabouts {
    /// Words of the encoding of the part common to all files of a volume.
    pub const VOLUME_WORDS: usize = 2;
    /// Words of the encoding of the rest.
    pub const FILE_WORDS: usize = 4;

    /// Process and device, as words of shared memory; the first is not 0.
    pub fn encode_volume(&self) -> [u64; Self::VOLUME_WORDS] {
        [IS_THERE | u64::from(self.process), self.device]
    }

    /// The rest, as words of shared memory; the first is not 0.
    pub fn encode_file(&self) -> [u64; Self::FILE_WORDS] {
        [IS_THERE | u64::from(self.descriptor), self.inode, self.places[0], self.places[1]]
    }

    /// From words; `None` when they are none.
    pub fn decode(volume: [u64; Self::VOLUME_WORDS], file: [u64; Self::FILE_WORDS]) -> Option<Self> {
        let ([process, device], [descriptor, inode, a, b]) = (volume, file);
        let number = |word: u64| (word & !u64::from(u32::MAX) == IS_THERE).then_some(word as u32);
        let (process, descriptor) = (number(process)?, number(descriptor)?);
        Some(Self { process, descriptor, device, inode, places: [a, b] })
    }
}

/// In the first word of an encoding.
const IS_THERE: u64 = 1 << 32;
