//! Checksums and zeros of pages in shared memory, by pieces that stay in the first-level cache.

use std::cell::RefCell;
use vgas_rma::shm::Span;

/// Bytes moved at once between shared memory and the private buffer that the checksum is taken of: large enough for
/// the three parallel streams of the CRC instruction, small enough for the first-level cache.
const PIECE_BYTES: usize = 4096;

/// CRC32C (Castagnoli) of private bytes.
pub fn of_bytes(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC32C of a page. Shared bytes are never a slice (another process may write them), so they pass through a small
/// private buffer.
pub fn of_span(span: &Span) -> u32 {
    thread_local! {
        // Kept, because filling it with zeros takes as long as copying the bytes.
        static PIECE: RefCell<[u8; PIECE_BYTES]> = const { RefCell::new([0; PIECE_BYTES]) };
    }
    PIECE.with_borrow_mut(|piece| {
        let mut sum = 0;
        for (at, bytes) in pieces(span) {
            span.mapping().read(at, &mut piece[..bytes]);
            sum = crc32c::crc32c_append(sum, &piece[..bytes]);
        }
        sum
    })
}

/// Fills a page with zeros.
pub fn fill_zero(span: &Span) {
    for (at, bytes) in pieces(span) {
        span.mapping().write(at, &[0; PIECE_BYTES][..bytes]);
    }
}

fn pieces(span: &Span) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (start, end) = (span.offset(), span.offset() + span.bytes());
    (start..end).step_by(PIECE_BYTES).map(move |at| (at, PIECE_BYTES.min(end - at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas_rma::shm::Mapping;

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
}
