/* Checksums, zero bytes, aligned memory and fresh pages. */
#include "tools.h"

#include <sys/mman.h>

/* FNV-1a over words of eight bytes, the last one filled with zeros, and over the length. */
uint64_t gasnett_checksum(const void *bytes, int count) {
    uint64_t const prime = 0x100000001b3u;
    uint64_t sum = 0xcbf29ce484222325u;
    const unsigned char *at = bytes;
    for (int left = count; left > 0; left -= 8, at += 8) {
        uint64_t word = 0;
        memcpy(&word, at, left < 8 ? (size_t)left : 8);
        sum = (sum ^ word) * prime;
        sum ^= sum >> 29;
    }
    return (sum ^ (uint64_t)(count < 0 ? 0 : count)) * prime;
}

/* Bytes that are not zero get their top bit: adding 0x7f carries into it unless the low seven bits are zero. */
int gasnett_count0s_uint64_t(uint64_t number) {
    uint64_t const low = 0x7f7f7f7f7f7f7f7fu;
    return 8 - __builtin_popcountll((((number & low) + low) | number) & ~low);
}

int gasnett_count0s_uint32_t(uint32_t number) {
    return gasnett_count0s_uint64_t(number) - 4;
}

size_t gasnett_count0s(const void *source, size_t bytes) {
    const unsigned char *at = source;
    size_t zeros = 0;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        zeros += (size_t)gasnett_count0s_uint64_t(word);
    }
    for (; bytes > 0; bytes--, at++) zeros += *at == 0;
    return zeros;
}

size_t gasnett_count0s_copy(void *GASNETT_RESTRICT to, const void *GASNETT_RESTRICT from, size_t bytes) {
    if (bytes == 0) return 0;
    memcpy(to, from, bytes);
    return gasnett_count0s(to, bytes);
}

void *gasnett_malloc_aligned(size_t alignment, size_t bytes) {
    void *memory = NULL;
    int const error = posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes);
    if (error != 0) gasnett_fatalerror("no %zu bytes at a multiple of %zu: %s", bytes, alignment, strerror(error));
    return memory;
}

void gasnett_free_aligned(void *memory) {
    free(memory);
}

void *gasnett_mmap(uintptr_t bytes) {
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) gasnett_fatalerror("mmap of %zu bytes: %s", (size_t)bytes, strerror(errno));
    return pages;
}
