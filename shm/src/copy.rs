//! Copies between private memory and shared memory, and between two pieces of shared memory.
//!
//! A machine word that is aligned at an end is moved there by one load, or one store, and so is an aligned
//! half or quarter of one at the ends of a piece: none is ever torn (DESIGN: "bytes of one aligned 8-byte
//! word are never torn"). That holds for each end by itself, so that bytes that pass through a message, at
//! any alignment, arrive as whole as those copied at once.
//!
//! The C library's `memcpy` promises no such thing, and does not do it. It moves the end of a piece once more
//! if its length is no multiple of its unit; and above some 2 KiB it has the processor move bytes
//! (`rep movsb`), which goes by halves of words and less when the two ends lie differently in their cache
//! lines. (Measured, copying 4 KiB beside a writer: up to forty words in each copy came from two writes. The
//! same instruction moves 3 GB/s, not 60, if the destination lies a few bytes behind the source within their
//! system pages, as memory of an allocator does beside a page; this code moves 50.)

use std::ptr;

/// Bytes moved by one load and one store.
const WORD_BYTES: usize = 8;

/// Copies `bytes` bytes from `from` to `to`. If the two overlap, the result is unspecified: two mappings of
/// one file may overlap where no address shows it.
///
/// # Safety
/// Both ranges are valid for the access for as long as the call lasts. Other processes may write either of them
/// meanwhile (rule 4 of [this crate](crate)).
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for both ranges; unaligned word accesses are done as unaligned.
    unsafe {
        match bytes {
            // Not as `Word`: the compiler takes a volatile structure through the stack, which costs a small get a
            // third of its time.
            8 if (from.addr() | to.addr()).is_multiple_of(8) => {
                ptr::write_volatile(to.cast::<u64>(), ptr::read_volatile(from.cast::<u64>()));
            }
            8 => ptr::write_volatile(to.cast::<Word>(), ptr::read_volatile(from.cast::<Word>())),
            4 => ptr::write_volatile(to.cast::<Half>(), ptr::read_volatile(from.cast::<Half>())),
            1 => ptr::write_volatile(to, ptr::read_volatile(from)),
            0 => {}
            _ => copy_many(from, to, bytes),
        }
    }
}

/// Sets `bytes` bytes, as [`copy`] would from as many equal ones.
///
/// # Safety
/// As for the destination of [`copy`].
pub unsafe fn fill(to: *mut u8, value: u8, bytes: usize) {
    let word = u64::from_ne_bytes([value; WORD_BYTES]);
    let head = before_word(to).min(bytes);
    // SAFETY: the three pieces are those of the range that the caller vouches for; the words are aligned.
    unsafe {
        store_part(to, word, head);
        let (words, tail) = ((bytes - head) / WORD_BYTES, (bytes - head) % WORD_BYTES);
        let first = to.add(head).cast::<u64>();
        for at in 0..words {
            ptr::write_volatile(first.add(at), word);
        }
        store_part(first.add(words).cast(), word, tail);
    }
}

#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word(#[allow(dead_code, reason = "moved as a whole")] u64);
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Half(#[allow(dead_code, reason = "moved as a whole")] u32);

/// Bytes up to the first aligned word.
fn before_word(address: *const u8) -> usize {
    address.addr().wrapping_neg() % WORD_BYTES
}

/// # Safety
/// As [`copy`].
unsafe fn copy_many(from: *const u8, to: *mut u8, bytes: usize) {
    let head = before_word(to).min(bytes);
    if before_word(from) != before_word(to) {
        // SAFETY: passed on.
        return unsafe { copy_shifted(from, to, bytes) };
    }
    let (words, tail) = ((bytes - head) / WORD_BYTES, (bytes - head) % WORD_BYTES);
    let behind = head + words * WORD_BYTES;
    // SAFETY: three pieces of both ranges; the words are aligned at both ends.
    unsafe {
        store_part(to, load_part(from, head), head);
        copy_words(from.add(head).cast(), to.add(head).cast(), words);
        store_part(to.add(behind), load_part(from.add(behind), tail), tail);
    }
}

/// Copies where an aligned word of the one end lies across two of the other: each is loaded once, and each is stored once.
///
/// # Safety
/// As [`copy`].
unsafe fn copy_shifted(from: *const u8, to: *mut u8, bytes: usize) {
    // What has been loaded and not been stored, the first byte lowest, and how much that is.
    let first = before_word(from).min(bytes);
    // SAFETY: this and all that follows lies inside of the ranges: never more than `bytes` is loaded, nor stored.
    let mut held = u128::from(unsafe { load_part(from, first) });
    let (mut loaded, mut count) = (first, first);

    let head = before_word(to).min(bytes);
    if count < head {
        let next = (bytes - loaded).min(WORD_BYTES);
        // SAFETY: as above.
        held |= u128::from(unsafe { load_part(from.add(loaded), next) }) << (8 * count);
        (loaded, count) = (loaded + next, count + next);
    }
    // SAFETY: as above.
    unsafe { store_part(to, held as u64, head) };
    held >>= 8 * head;
    count -= head;

    // Both are at a word now, or nothing is left to load. What is held is between the two, and less than a word.
    let words = (bytes - loaded) / WORD_BYTES;
    let shift = 8 * count as u32;
    debug_assert!(count < WORD_BYTES && (count > 0 || words == 0));
    let mut carry = held as u64;
    // SAFETY: as above; aligned, as both are at a word if there is one.
    unsafe {
        let (from, to) = (from.add(loaded).cast::<u64>(), to.add(head).cast::<u64>());
        for at in 0..words {
            let word = u64::from_le(ptr::read_volatile(from.add(at)));
            ptr::write_volatile(to.add(at), (carry | word << shift).to_le());
            carry = word >> (64 - shift);
        }
    }
    loaded += words * WORD_BYTES;
    let stored = head + words * WORD_BYTES;

    let last = bytes - loaded;
    // SAFETY: as above.
    unsafe {
        held = u128::from(carry) | u128::from(load_part(from.add(loaded), last)) << shift;
        count += last;
        let whole = count.min(WORD_BYTES);
        store_part(to.add(stored), held as u64, whole);
        store_part(to.add(stored + whole), (held >> 64) as u64, count - whole);
    }
}

/// Returns the largest access that is aligned at an address, of at most `bytes` bytes: 8, 4, 2 or 1.
fn natural(address: *const u8, bytes: usize) -> usize {
    let aligned = 1 << (address.addr() | WORD_BYTES).trailing_zeros();
    aligned.min(1 << bytes.ilog2())
}

/// At most a word's bytes, the first of them lowest.
///
/// # Safety
/// As for the source of [`copy`]; `bytes` is at most 8.
#[inline]
unsafe fn load_part(from: *const u8, bytes: usize) -> u64 {
    let (mut value, mut at) = (0, 0);
    while at < bytes {
        // SAFETY: inside of the range; aligned, as `natural` says.
        unsafe {
            let here = from.add(at);
            let size = natural(here, bytes - at);
            let part = match size {
                8 => u64::from_le(ptr::read_volatile(here.cast::<u64>())),
                4 => u32::from_le(ptr::read_volatile(here.cast::<u32>())).into(),
                2 => u16::from_le(ptr::read_volatile(here.cast::<u16>())).into(),
                _ => ptr::read_volatile(here).into(),
            };
            value |= part << (8 * at);
            at += size;
        }
    }
    value
}

/// Stores at most a word's bytes, the lowest of them first.
///
/// # Safety
/// As for the destination of [`copy`]; `bytes` is at most 8.
#[inline]
unsafe fn store_part(to: *mut u8, value: u64, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        // SAFETY: inside of the range; aligned, as `natural` says.
        unsafe {
            let here = to.add(at);
            let size = natural(here, bytes - at);
            let part = value >> (8 * at);
            match size {
                8 => ptr::write_volatile(here.cast::<u64>(), part.to_le()),
                4 => ptr::write_volatile(here.cast::<u32>(), (part as u32).to_le()),
                2 => ptr::write_volatile(here.cast::<u16>(), (part as u16).to_le()),
                _ => ptr::write_volatile(here, part as u8),
            }
            at += size;
        }
    }
}

/// Copies words that are aligned at both ends.
///
/// # Safety
/// As [`copy`], of `words` words.
unsafe fn copy_words(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: passed on.
    let done = unsafe { copy_blocks(from, to, words) };
    for at in done..words {
        // SAFETY: inside of both ranges, and aligned.
        unsafe { ptr::write_volatile(to.add(at), ptr::read_volatile(from.add(at))) };
    }
}

/// Copies from the beginning as much as the processor's widest registers can move; returns the number of
/// words. Such an access is divided at the end of a cache line, or in the middle, if at all, neither of which
/// is inside of an aligned word.
///
/// # Safety
/// As [`copy_words`].
#[cfg(all(target_arch = "x86_64", not(any(miri, sanitized))))]
unsafe fn copy_blocks(from: *const u64, to: *mut u64, words: usize) -> usize {
    const BLOCK_WORDS: usize = 16;
    let blocks = words / BLOCK_WORDS;
    if blocks == 0 || !std::arch::is_x86_feature_detected!("avx") {
        return 0;
    }
    // In assembly, because the compiler may split, join and repeat what it knows as accesses to memory that nobody else uses.
    // SAFETY: `blocks` blocks lie inside of both ranges; the instructions were looked for.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovdqu ymm0, [{from}]",
            "vmovdqu ymm1, [{from} + 32]",
            "vmovdqu ymm2, [{from} + 64]",
            "vmovdqu ymm3, [{from} + 96]",
            "vmovdqu [{to}], ymm0",
            "vmovdqu [{to} + 32], ymm1",
            "vmovdqu [{to} + 64], ymm2",
            "vmovdqu [{to} + 96], ymm3",
            "add {from}, 128",
            "add {to}, 128",
            "dec {blocks}",
            "jnz 2b",
            "vzeroupper",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            blocks = inout(reg) blocks => _,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            // Of these the upper halves are gone, too.
            out("xmm4") _,
            out("xmm5") _,
            out("xmm6") _,
            out("xmm7") _,
            out("xmm8") _,
            out("xmm9") _,
            out("xmm10") _,
            out("xmm11") _,
            out("xmm12") _,
            out("xmm13") _,
            out("xmm14") _,
            out("xmm15") _,
            options(nostack),
        );
    }
    blocks * BLOCK_WORDS
}

/// Elsewhere, and where an access is looked at that assembly would hide, all words are moved one after the other.
///
/// # Safety
/// None.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, sanitized)))))]
unsafe fn copy_blocks(_from: *const u64, _to: *mut u64, _words: usize) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// Room around what is copied, which must stay as it was.
    const BESIDE: usize = 24;

    fn lengths() -> impl Iterator<Item = usize> {
        // Miri takes a minute for all.
        let (few, many) = if cfg!(miri) { (20, 129..130) } else { (300, 4095..4200) };
        (0..few).chain(many)
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|index| (index % 251) as u8).collect()
    }

    /// From everywhere in a word to everywhere in one, every byte arrives, and none beside.
    #[test]
    fn copies_exactly_the_bytes_it_is_given() {
        for bytes in lengths() {
            let source = self::bytes(bytes + BESIDE);
            for (skip, to) in (0..64).map(|both| (both / 8, both % 8)) {
                let mut found = vec![0xff; bytes + BESIDE];
                // SAFETY: both ranges lie inside, and nobody else uses them.
                unsafe { copy(source.as_ptr().add(skip), found.as_mut_ptr().add(to), bytes) };
                assert!(found[to..to + bytes] == source[skip..skip + bytes], "{bytes} from {skip} to {to}");
                let beside = found[..to].iter().chain(&found[to + bytes..]);
                assert!(beside.into_iter().all(|&byte| byte == 0xff), "beside {bytes} from {skip} to {to}");
            }
        }
    }

    #[test]
    fn fills_exactly_the_bytes_it_is_given() {
        for bytes in lengths() {
            for to in 0..8 {
                let mut found = vec![0xff; bytes + BESIDE];
                // SAFETY: the range lies inside, and nobody else uses it.
                unsafe { fill(found.as_mut_ptr().add(to), 7, bytes) };
                assert!(found[to..to + bytes].iter().all(|&byte| byte == 7), "{bytes} to {to}");
                let beside = found[..to].iter().chain(&found[to + bytes..]);
                assert!(beside.into_iter().all(|&byte| byte == 0xff), "beside {bytes} to {to}");
            }
        }
    }

    /// Memory that two threads use at once: words that are aligned as its first is.
    struct Contended(Vec<u64>);

    impl Contended {
        fn at(&self, offset: usize) -> *mut u8 {
            self.0.as_ptr().cast_mut().cast::<u8>().wrapping_add(offset)
        }
    }

    /// Each word of a concurrent read has come from one write, wherever the copies lie in private memory, as
    /// those of messages do.
    #[test]
    #[cfg_attr(miri, ignore = "races, which the words' owners may have and Miri refuses")]
    fn tears_no_word() {
        let rounds = [0x1111_1111_1111_1111u64, 0xeeee_eeee_eeee_eeee];
        // Around words that are copied twice by some, those which the processor is asked to copy, and what fills a cache.
        for words in [1, 2, 3, 5, 13, 100, 375, 512, 8000] {
            for (begin, end) in [(0, 0), (0, 4), (4, 0), (5, 3)] {
                let shared = Contended(vec![rounds[0]; words + 2]);
                let bytes = begin + words * 8 + end;
                let from = 8 - begin;
                let (begun, ended) = (Barrier::new(2), AtomicBool::new(false));
                let reads = (20_000_000 / (bytes + 400)).max(200);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let written = rounds.map(|round| vec![round; words + 4]);
                        for round in 0.. {
                            let source =
                                written[round % 2].as_ptr().cast::<u8>().wrapping_add(round / 2 % 11);
                            // SAFETY: inside of both; the readers copy, too.
                            unsafe {
                                match round % 8 {
                                    0 => fill(shared.at(from), 0x11, bytes),
                                    _ => copy(source, shared.at(from), bytes),
                                }
                            }
                            if round == 0 {
                                begun.wait();
                            }
                            if ended.load(Relaxed) {
                                break;
                            }
                        }
                    });
                    begun.wait();
                    let mut found = vec![0u8; bytes + 16];
                    let mut torn = 0;
                    for read in 0..reads {
                        let skip = read % 16;
                        // SAFETY: inside of both.
                        unsafe { copy(shared.at(from), found.as_mut_ptr().add(skip), bytes) };
                        let words = found[skip + begin..][..words * 8].chunks_exact(8);
                        torn += words.filter(|word| word.iter().any(|byte| *byte != word[0])).count();
                    }
                    ended.store(true, Relaxed);
                    assert_eq!(
                        torn, 0,
                        "torn words of {words} in {reads} copies, with {begin} and {end} beside"
                    );
                });
            }
        }
    }
}
