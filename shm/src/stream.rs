//! Copies of large pieces that come from memory, not from a cache, and that another processor will read: pages on their way
//! from pool to pool.
//!
//! [`copy`](mod@crate::copy) goes through both pieces from end to end. Here several system pages are copied side by side,
//! because a processor fetches ahead within each of them by itself but in none across its end; and the stores pass by the caches,
//! so that the destination is not read first. (Measured with 1 MiB at a time out of 32 that another core has written: 1.5 to 2 times
//! the rate of `memcpy`, and reading the copy on another core afterwards takes as long as before. A piece that is in a cache is
//! copied more slowly than by `memcpy`.)

use super::copy::copy;

/// Bytes that the processor fetches ahead by itself: the smallest page.
const PAGE_BYTES: usize = 4096;

/// Pages copied side by side. (Two gave nine tenths of the rate, eight the same.)
#[cfg(target_arch = "x86_64")]
const PAGES: usize = 4;

/// Smallest copy that is worth it: below, the piece and its copy are likely to stay in the caches of their users.
pub const STREAM_BYTES_MIN: usize = 64 << 10;

/// Copies `bytes` bytes from `from` to `to`; the two do not overlap. As [`copy`], an aligned word is never torn; as after
/// [`copy`], a store with release order publishes the bytes.
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_streaming(from: *const u8, to: *mut u8, bytes: usize) {
    let aligned = to.addr().is_multiple_of(PAGE_BYTES) && from.addr().is_multiple_of(size_of::<u64>());
    let streamed = if bytes < STREAM_BYTES_MIN || !aligned {
        0
    } else {
        // SAFETY: as the caller promised; the destination is aligned.
        unsafe { stream(from, to, bytes) }
    };
    // SAFETY: as the caller promised; the rest lies inside of both pieces.
    unsafe { copy(from.add(streamed), to.add(streamed), bytes - streamed) }
}

/// Copies from the beginning as much as can be copied side by side; returns how much.
///
/// # Safety
/// As [`copy`]; `to` is a multiple of 16, `from` one of 8.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) -> usize {
    const LINE_BYTES: usize = 64;
    const BLOCK_BYTES: usize = PAGES * PAGE_BYTES;
    let blocks = bytes / BLOCK_BYTES;
    for block in 0..blocks {
        for line in 0..PAGE_BYTES / LINE_BYTES {
            for page in 0..PAGES {
                let at = block * BLOCK_BYTES + page * PAGE_BYTES + line * LINE_BYTES;
                // In one piece of assembly, because the compiler may split, join and repeat what it knows as accesses to
                // memory that nobody else uses. Its instructions are those of every processor of this architecture.
                // SAFETY: `at` and the line behind it lie inside of both pieces; the destination is aligned.
                unsafe {
                    std::arch::asm!(
                        "movdqu {a}, [{from}]",
                        "movdqu {b}, [{from} + 16]",
                        "movdqu {c}, [{from} + 32]",
                        "movdqu {d}, [{from} + 48]",
                        "movntdq [{to}], {a}",
                        "movntdq [{to} + 16], {b}",
                        "movntdq [{to} + 32], {c}",
                        "movntdq [{to} + 48], {d}",
                        from = in(reg) from.add(at),
                        to = in(reg) to.add(at),
                        a = out(xmm_reg) _,
                        b = out(xmm_reg) _,
                        c = out(xmm_reg) _,
                        d = out(xmm_reg) _,
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    }
    // Such stores are ordered by nothing else, in particular not by a store with release order.
    // SAFETY: a fence touches no memory.
    unsafe { std::arch::asm!("sfence", options(nostack, preserves_flags)) };
    blocks * BLOCK_BYTES
}

/// Elsewhere all of it is copied from end to end.
///
/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(_from: *const u8, _to: *mut u8, _bytes: usize) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mapping;

    /// Every byte arrives, and none beside, for lengths around what is copied side by side and sources of any alignment.
    #[test]
    fn streams_exactly_the_bytes_it_is_given() {
        const MOST: usize = 5 * STREAM_BYTES_MIN;
        let source: Vec<u8> = (0..MOST + 64).map(|index| (index % 251) as u8).collect();
        let copied = Mapping::anonymous("stream-test", (MOST + 2 * PAGE_BYTES) as u64).unwrap();
        let lengths = [0, 1, 4096, STREAM_BYTES_MIN - 1, STREAM_BYTES_MIN, STREAM_BYTES_MIN + 1];
        for bytes in lengths.into_iter().chain([STREAM_BYTES_MIN + 4 * 4096 - 1, 1 << 18, MOST - 7, MOST]) {
            // The last begins where no streaming is possible.
            for (skip, to) in [(0, PAGE_BYTES), (1, PAGE_BYTES), (8, PAGE_BYTES), (63, PAGE_BYTES), (0, 4000)]
            {
                copied.write(0, &vec![0xff; copied.bytes()]);
                // SAFETY: both ranges are inside, and nobody else uses them.
                unsafe { copy_streaming(source.as_ptr().add(skip), copied.base().add(to), bytes) };
                let mut found = vec![0; copied.bytes()];
                copied.read(0, &mut found);
                assert!(found[to..to + bytes] == source[skip..skip + bytes], "{bytes} from {skip} to {to}");
                let beside = found[..to].iter().chain(&found[to + bytes..]);
                assert!(beside.into_iter().all(|&byte| byte == 0xff), "beside {bytes} from {skip} to {to}");
            }
        }
    }
}
