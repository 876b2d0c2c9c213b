//! Checksums and zeros of pages in shared memory, by pieces that stay in the first-level cache.
//!
//! A page can be checked as a whole and by blocks of 4 KiB, and the one follows from the other: a CRC is linear, so that
//! the checksum of two pieces, one behind the other, is the first's pushed over the length of the second, plus the
//! second's. So the blocks of a page cost no second pass over it, and are good exactly if they join to the page's own
//! checksum, wherever they come from.

use std::cell::RefCell;
use std::sync::LazyLock;
use vgas_shm::Span;

/// Bytes moved at once between shared memory and the private buffer that the checksum is taken of: large enough for
/// the three parallel streams of the CRC instruction, small enough for the first-level cache.
const PIECE_BYTES: usize = BLOCK_BYTES;
/// Bytes of a part of a page that can be checked alone: the unit of every direct-I/O device.
pub const BLOCK_BYTES: usize = 4096;

/// CRC32C (Castagnoli) of private bytes.
pub fn of_bytes(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC32C of a page. Shared bytes are never a slice (another process may write them), so they pass through a small
/// private buffer.
pub fn of_span(span: &Span) -> u32 {
    let mut sum = 0;
    for_each_piece(span, |piece| sum = crc32c::crc32c_append(sum, piece));
    sum
}

/// CRC32C of each block of a span of whole blocks.
pub fn of_blocks(span: &Span) -> Box<[u32]> {
    let mut sums = Vec::with_capacity(span.bytes() / BLOCK_BYTES);
    for_each_piece(span, |piece| sums.push(crc32c::crc32c(piece)));
    sums.into()
}

/// CRC32C of whole blocks with these checksums, one behind the other.
pub fn of_joined(blocks: &[u32]) -> u32 {
    /// For each byte of a checksum: its value a block of zeros later.
    static PUSHED: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
        let bits: [u32; 32] = std::array::from_fn(|bit| crc32c::crc32c_combine(1 << bit, 0, BLOCK_BYTES));
        let of_byte = |place: usize, byte: usize| {
            let set = (0..8).filter(|bit| byte >> bit & 1 == 1);
            set.fold(0, |sum, bit| sum ^ bits[8 * place + bit])
        };
        std::array::from_fn(|place| std::array::from_fn(|byte| of_byte(place, byte)))
    });
    let tables = &*PUSHED;
    blocks.iter().fold(0, |sum: u32, block| {
        let bytes = sum.to_le_bytes().into_iter().zip(tables);
        bytes.fold(*block, |sum, (byte, table)| sum ^ table[usize::from(byte)])
    })
}

fn for_each_piece(span: &Span, mut take: impl FnMut(&[u8])) {
    thread_local! {
        // Kept, because filling it with zeros takes as long as copying the bytes.
        static PIECE: RefCell<[u8; PIECE_BYTES]> = const { RefCell::new([0; PIECE_BYTES]) };
    }
    PIECE.with_borrow_mut(|piece| {
        for (at, bytes) in pieces(span) {
            span.mapping().read(at, &mut piece[..bytes]);
            take(&piece[..bytes]);
        }
    });
}

/// [`of_span`] in a handler of a signal, which may have come in the middle of the other one, and whose stack is small.
pub fn of_span_in_handler(span: &Span) -> u32 {
    let mut piece = [0; 512];
    let mut sum = 0;
    for at in (0..span.bytes()).step_by(piece.len()) {
        let bytes = piece.len().min(span.bytes() - at);
        span.mapping().read(span.offset() + at, &mut piece[..bytes]);
        sum = crc32c::crc32c_append(sum, &piece[..bytes]);
    }
    sum
}

/// Fills a page with zeros.
pub fn fill_zero(span: &Span) {
    // Not on the stack, which may be a signal handler's.
    static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
    for (at, bytes) in pieces(span) {
        span.mapping().write(at, &ZEROS[..bytes]);
    }
}

fn pieces(span: &Span) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (start, end) = (span.offset(), span.offset() + span.bytes());
    (start..end).step_by(PIECE_BYTES).map(move |at| (at, PIECE_BYTES.min(end - at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_shm::Mapping;

    #[test]
    fn a_span_has_the_checksum_of_its_bytes_and_can_be_zeroed() {
        let mapping = Mapping::anonymous("checksum", 3 * 4096).unwrap();
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 31) as u8).collect();
        let span = mapping.span(7, bytes.len());
        span.write(&bytes);
        assert_eq!(of_span(&span), of_bytes(&bytes));
        fill_zero(&span);
        assert_eq!(of_span(&span), of_bytes(&vec![0; bytes.len()]));
    }

    #[test]
    fn blocks_join_to_the_checksum_of_the_page() {
        let mapping = Mapping::anonymous("checksum", 16 * BLOCK_BYTES as u64).unwrap();
        for blocks in [1, 2, 3, 16] {
            let bytes: Vec<u8> = (0..blocks * BLOCK_BYTES).map(|i| (i * 31 + i / 977) as u8).collect();
            let span = mapping.span(0, bytes.len());
            span.write(&bytes);
            let sums = of_blocks(&span);
            let expected: Vec<u32> = bytes.chunks(BLOCK_BYTES).map(of_bytes).collect();
            assert_eq!(&sums[..], expected);
            assert_eq!(of_joined(&sums), of_bytes(&bytes), "{blocks} blocks");
        }
        assert_eq!(of_joined(&[]), of_bytes(&[]));
    }
}
