/* Puts and gets of cached pages of tiered segments, compiled into the client: what cache/src/pool/client.rs does in try_get
 * and try_put, word by word, without lock, system call, locked instruction or call of the library. Its structures are held
 * against the Rust definitions by tests/hits.rs; the reasoning is in cache/src/pool/mod.rs. Internal, as vgasi.h. */
#ifndef VGASI_HIT_H
#define VGASI_HIT_H

#ifndef VGASI_H
#include "vgasi.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A thread's hazard slot: the page it uses, plus one, while it does; and how many pages it has used. */
typedef struct {
    uint64_t hazard;
    uint64_t get_hits;
    uint64_t put_hits;
} vgasi_slot_t;

/* What a thread knows of its slot, and whose it is. */
typedef struct {
    uint64_t client;
    vgasi_slot_t *slot;
} vgasi_record_t;

/* The node's pool in this process. All zeros until segments are attached, and with pinned ones. */
typedef struct {
    uint64_t client;
    const uint64_t *entries;
    char *frames;
    uint32_t *stamps;
    const uint32_t *clock;
    uintptr_t local_base;
    uintptr_t local_bytes;
    uintptr_t page_mask;
    uintptr_t pool_bytes;
    uint32_t page_shift;
    uint32_t asymmetric;
} vgasi_pool_t;

extern vgasi_pool_t vgasi_pool;
extern const vgasi_record_t *vgasi_thread_record(void);

/* Of an entry: above these bits stand state and flags as one number. A page may be read with Shared to Modified, and
 * written with Modified; a larger number has a flag, and is left to the library. */
#define VGASI_STATE_SHIFT 32
#define VGASI_SHARED 1
#define VGASI_MODIFIED 4

/* A frame is called by where it begins, in units of 2 to this power bytes. */
#define VGASI_UNIT_SHIFT 12

#if defined(__GNUC__)

/* Asked for once for each thread and source file, out of line. */
static __thread const vgasi_record_t *vgasi_record __attribute__((__unused__));

/* Begins to use bytes of a page that this node has with at least the right `least`: their address, and in `*used` the slot
 * to be given to vgasi_leave after the copy. Null: nothing was begun, and the library is to be asked. `local` is the other
 * side of the copy, which must not lie in this rank's own tiered segment: a fault there could wait for this page. */
VGASI_INLINE char *vgasi_enter(uint32_t rank, const void *there, const void *local, size_t bytes, uint32_t least,
                               vgasi_slot_t **used) {
    const vgasi_window_t *window;
    const vgasi_record_t *record;
    vgasi_slot_t *slot;
    uintptr_t offset, in_page, page;
    uint64_t entry;
    uint32_t frame, now;
    uintptr_t begin;
    if (!VGASI_LIKELY(rank < vgasi_nodes)) return NULL;
    window = &vgasi_windows[rank];
    offset = (uintptr_t)there - window->base;
    in_page = offset & vgasi_pool.page_mask;
    /* No bytes are never inside. */
    if (!VGASI_LIKELY(offset < window->cached && bytes - 1 < window->cached - offset)) return NULL;
    if (!VGASI_LIKELY(bytes - 1 <= vgasi_pool.page_mask - in_page)) return NULL;
    if (!VGASI_LIKELY((uintptr_t)local - vgasi_pool.local_base >= vgasi_pool.local_bytes)) return NULL;
    record = vgasi_record;
    if (!VGASI_LIKELY(record != NULL && record->client == vgasi_pool.client)) return NULL;
    slot = record->slot;
    /* In use: a signal handler has interrupted this thread in the middle of a copy. */
    if (!VGASI_LIKELY(__atomic_load_n(&slot->hazard, __ATOMIC_RELAXED) == 0)) return NULL;
    page = window->first_page + (offset >> vgasi_pool.page_shift);
    __atomic_store_n(&slot->hazard, (uint64_t)page + 1, __ATOMIC_RELAXED);
    if (VGASI_LIKELY(vgasi_pool.asymmetric)) __atomic_signal_fence(__ATOMIC_SEQ_CST);
    else __atomic_thread_fence(__ATOMIC_SEQ_CST);
    entry = __atomic_load_n(&vgasi_pool.entries[page], __ATOMIC_ACQUIRE);
    frame = (uint32_t)entry;
    begin = ((uintptr_t)frame << VGASI_UNIT_SHIFT) + in_page;
    if (!VGASI_LIKELY((uint32_t)(entry >> VGASI_STATE_SHIFT) - least <= VGASI_MODIFIED - least &&
                      begin + bytes <= vgasi_pool.pool_bytes)) {
        __atomic_store_n(&slot->hazard, 0, __ATOMIC_RELEASE);
        return NULL;
    }
    /* Tells replacement, once a tick of its clock. */
    now = __atomic_load_n(vgasi_pool.clock, __ATOMIC_RELAXED);
    if (__atomic_load_n(&vgasi_pool.stamps[frame], __ATOMIC_RELAXED) != now)
        __atomic_store_n(&vgasi_pool.stamps[frame], now, __ATOMIC_RELAXED);
    *used = slot;
    return vgasi_pool.frames + begin;
}

/* Ends the use. */
VGASI_INLINE void vgasi_leave(vgasi_slot_t *slot, uint64_t *counter) {
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->hazard, 0, __ATOMIC_RELEASE);
}

/* How many bytes from `there` on lie in its page. */
VGASI_INLINE size_t vgasi_left_in_page(uint32_t rank, const void *there) {
    return vgasi_pool.page_mask - (((uintptr_t)there - vgasi_windows[rank].base) & vgasi_pool.page_mask) + 1;
}

/* Out of line, page by page, in order, as far as all are hits: how many bytes were copied. */
#define VGASI_APART static __attribute__((__cold__, __noinline__, __unused__))
VGASI_APART size_t vgasi_put_pages(uint32_t rank, char *to, const char *from, size_t bytes) {
    size_t done = 0;
    if (rank >= vgasi_nodes || vgasi_windows[rank].cached == 0) return 0;
    if (vgasi_record == NULL) vgasi_record = vgasi_thread_record();
    while (done < bytes) {
        const size_t left = vgasi_left_in_page(rank, to + done);
        const size_t piece = left < bytes - done ? left : bytes - done;
        vgasi_slot_t *slot;
        char *const here = vgasi_enter(rank, to + done, from + done, piece, VGASI_MODIFIED, &slot);
        if (here == NULL) break;
        memcpy(here, from + done, piece);
        vgasi_leave(slot, &slot->put_hits);
        done += piece;
    }
    return done;
}
VGASI_APART size_t vgasi_get_pages(char *to, uint32_t rank, const char *from, size_t bytes) {
    size_t done = 0;
    if (rank >= vgasi_nodes || vgasi_windows[rank].cached == 0) return 0;
    if (vgasi_record == NULL) vgasi_record = vgasi_thread_record();
    while (done < bytes) {
        const size_t left = vgasi_left_in_page(rank, from + done);
        const size_t piece = left < bytes - done ? left : bytes - done;
        vgasi_slot_t *slot;
        const char *const here = vgasi_enter(rank, from + done, to + done, piece, VGASI_SHARED, &slot);
        if (here == NULL) break;
        memcpy(to + done, here, piece);
        vgasi_leave(slot, &slot->get_hits);
        done += piece;
    }
    return done;
}

/* A whole put or get within one page, if it is a hit; with the length of a register, a single move. Whether it was. */
VGASI_INLINE int vgasi_put_hit(uint32_t rank, void *to, const void *from, size_t bytes) {
    vgasi_slot_t *slot;
    char *const here = vgasi_enter(rank, to, from, bytes, VGASI_MODIFIED, &slot);
    if (!VGASI_LIKELY(here != NULL)) return 0;
    vgasi_move(here, from, bytes);
    vgasi_leave(slot, &slot->put_hits);
    return 1;
}
VGASI_INLINE int vgasi_get_hit(void *to, uint32_t rank, const void *from, size_t bytes) {
    vgasi_slot_t *slot;
    const char *const here = vgasi_enter(rank, from, to, bytes, VGASI_SHARED, &slot);
    if (!VGASI_LIKELY(here != NULL)) return 0;
    vgasi_move(to, here, bytes);
    vgasi_leave(slot, &slot->get_hits);
    return 1;
}

#else
/* Another compiler leaves all of it to the library. */
#define VGASI_APART static inline
#define vgasi_put_pages(rank, to, from, bytes) ((size_t)0)
#define vgasi_get_pages(to, rank, from, bytes) ((size_t)0)
#define vgasi_put_hit(rank, to, from, bytes) 0
#define vgasi_get_hit(to, rank, from, bytes) 0
#endif

#ifdef __cplusplus
}
#endif
#endif
