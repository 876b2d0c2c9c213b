/* What the inline functions of vgasnet.h and gasnet.h share with the library. Internal: it changes with the library's
 * version, and clients use none of it. The functions are documented in upcxx-compat/c/src/. */
#ifndef VGASI_H
#define VGASI_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Inlined also where the client compiles without optimisation: a library call would cost more than the operation. */
#if defined(__GNUC__)
#define VGASI_INLINE static __inline__ __attribute__((__always_inline__, __unused__))
#define VGASI_LIKELY(condition) __builtin_expect(!!(condition), 1)
/* Whether the compiler knows that a length is none of a register. */
#define VGASI_IS_NO_WORD(bytes) \
    (__builtin_constant_p(bytes) && (bytes) != 8 && (bytes) != 4 && (bytes) != 2 && (bytes) != 1)
#define VGASI_NORETURN __attribute__((__noreturn__))
#else
#define VGASI_INLINE static inline
#define VGASI_LIKELY(condition) (condition)
#define VGASI_IS_NO_WORD(bytes) 0
#define VGASI_NORETURN
#endif

/* One rank's segment: `base` is its first address in its owner's process, by which everybody names it; `here` its first
 * address in this process, of which `reach` bytes may be loaded and stored (0: none). Of a tiered one, `cached` bytes may be
 * found in the node's pool (0: none), from the page of number `first_page` on: see vgasi_hit.h. At the first `words` offsets
 * begin 8 bytes that may be loaded and stored. */
typedef struct {
    uintptr_t base;
    char *here;
    uintptr_t reach;
    uintptr_t bytes;
    uintptr_t cached;
    uintptr_t first_page;
    uintptr_t words;
    uintptr_t unused;
} vgasi_window_t;

typedef struct vgasi_operation *vgasi_handle_t;
typedef struct vgasi_value *vgasi_value_t;

typedef struct {
    uint8_t index;
    void (*function)(void);
} vgasi_handler_entry_t;

typedef struct {
    void *addr;
    uintptr_t size;
} vgasi_segment_info_t;

extern vgasi_window_t *vgasi_windows;
extern uint32_t vgasi_mynode;
extern uint32_t vgasi_nodes;

extern int vgasi_init(int *argc, char ***argv, int conduit, uint64_t segment_max);
extern int vgasi_attach(void *table, int count, uintptr_t bytes);
extern void vgasi_exit(int status) VGASI_NORETURN;
extern char *vgasi_getenv(const char *name);
extern uintptr_t vgasi_max_local_segment(void);
extern uintptr_t vgasi_max_global_segment(void);
extern uintptr_t vgasi_max_segment(int kind);
extern int vgasi_attach_kind(void *table, int count, uintptr_t bytes, int kind, const char *name);
extern int vgasi_segment_kind(void);
extern int vgasi_pin(const void *address, uintptr_t bytes, void **pin);
extern void vgasi_unpin(void *pin);
extern int vgasi_prefetch(uint32_t rank, const void *address, uintptr_t bytes);
extern uint64_t vgasi_update(uint32_t rank, void *to, int word, int change, uint64_t operand, uint64_t expected);
extern void vgasi_update_many(const void *updates, size_t count, int word, uint64_t *were);
extern int vgasi_segment_attach(size_t bytes, const void *options, uint16_t *segment);
extern int vgasi_segment_detach(uint16_t segment);
extern int vgasi_segment_attach_own(size_t bytes, const void *options, uint16_t *segment);
extern int vgasi_segment_learn(uint16_t segment, uint32_t rank);
extern int vgasi_segment_local(uint16_t segment, uint32_t pages, void **part, void **base);
extern int vgasi_segment_local_of_mate(uint16_t segment, uint32_t rank, uint32_t pages, void **part, const void **base);
extern void vgasi_segment_close(void *part);
extern int vgasi_segment_detach_own(uint16_t segment);
extern uint64_t vgasi_segment_part_bytes(uint16_t segment, uint32_t rank);
extern void *vgasi_segment_pointer(uint16_t segment, uint32_t rank, uint64_t offset);
extern void vgasi_segment_put(uint16_t segment, uint32_t rank, uint64_t offset, const void *from, size_t bytes);
extern void vgasi_segment_get(void *to, uint16_t segment, uint32_t rank, uint64_t offset, size_t bytes);
extern int vgasi_segment_prefetch(uint16_t segment, uint32_t rank, uint64_t offset, uint64_t bytes);
extern uint64_t vgasi_segment_update(uint16_t segment, uint32_t rank, uint64_t offset, int change, uint64_t operand,
                                     uint64_t expected);
extern int vgasi_lock(uint32_t rank, const void *word, int write, int waits);
extern int vgasi_unlock(uint32_t rank, const void *word, int write);
extern int vgasi_barrier_exchange(const void *from, size_t bytes, void *to);
extern int vgasi_checkpoint(void);
extern int vgasi_reopened(uint16_t segment, uint64_t *checkpoint, uint64_t *newest, int *is_read_only, int *is_together);
extern int vgasi_statistics(uint64_t *values, size_t count);
extern size_t vgasi_statistics_count(void);
extern const char *vgasi_statistic_name(size_t index);
extern int vgasi_segment_info(void *table, int count);
extern int vgasi_node_info(void *table, int count);

extern int vgasi_request_short(uint32_t rank, uint8_t handler, int count, const int32_t *words);
extern int vgasi_request_medium(uint32_t rank, uint8_t handler, const void *from, size_t bytes, int count,
                                const int32_t *words);
extern int vgasi_request_long(uint32_t rank, uint8_t handler, const void *from, size_t bytes, const void *to,
                              int count, const int32_t *words);
extern int vgasi_reply_short(void *token, uint8_t handler, int count, const int32_t *words);
extern int vgasi_reply_medium(void *token, uint8_t handler, const void *from, size_t bytes, int count,
                              const int32_t *words);
extern int vgasi_reply_long(void *token, uint8_t handler, const void *from, size_t bytes, const void *to, int count,
                            const int32_t *words);
extern int vgasi_message_source(void *token, uint32_t *rank);
extern size_t vgasi_medium_max(void);
extern size_t vgasi_long_request_max(void);
extern size_t vgasi_long_reply_max(void);
extern int vgasi_poll(void);
extern int vgasi_set_wait_mode(int mode);
extern uint64_t vgasi_deliveries(void);
extern void vgasi_wait_for_delivery(uint64_t before);

extern void vgasi_put(uint32_t rank, void *to, const void *from, size_t bytes);
extern void vgasi_get(void *to, uint32_t rank, const void *from, size_t bytes);
extern void vgasi_memset(uint32_t rank, void *to, int value, size_t bytes);
extern vgasi_handle_t vgasi_put_nb(uint32_t rank, void *to, const void *from, size_t bytes, int source_stays);
extern vgasi_handle_t vgasi_get_nb(void *to, uint32_t rank, const void *from, size_t bytes);
extern vgasi_handle_t vgasi_memset_nb(uint32_t rank, void *to, int value, size_t bytes);
extern vgasi_value_t vgasi_get_value_nb(uint32_t rank, const void *from, size_t bytes);
extern uint64_t vgasi_wait_value(vgasi_value_t value);

#define VGASI_PUTS 1
#define VGASI_GETS 2
extern void vgasi_wait(vgasi_handle_t handle);
extern int vgasi_try(vgasi_handle_t handle);
extern int vgasi_try_quietly(vgasi_handle_t handle);
extern void vgasi_wait_all(vgasi_handle_t *handles, size_t count);
extern void vgasi_wait_some(vgasi_handle_t *handles, size_t count);
extern int vgasi_try_all(vgasi_handle_t *handles, size_t count);
extern int vgasi_try_some(vgasi_handle_t *handles, size_t count);
extern int vgasi_try_all_quietly(vgasi_handle_t *handles, size_t count);
extern int vgasi_try_some_quietly(vgasi_handle_t *handles, size_t count);
extern void vgasi_accumulate(vgasi_handle_t handle, int kind);
extern void vgasi_wait_implicit(int kinds);
extern int vgasi_try_implicit(int kinds);
extern void vgasi_begin_region(void);
extern vgasi_handle_t vgasi_end_region(void);

extern void vgasi_barrier_notify(int id, int flags);
extern int vgasi_barrier_wait(int id, int flags);
extern int vgasi_barrier_try(int id, int flags);
extern int vgasi_barrier_result(int *id);

/* The first byte of a value's low bytes in memory. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define VGASI_LOW_BYTES(value, nbytes) ((char *)&(value) + (sizeof(value) - (nbytes)))
#else
#define VGASI_LOW_BYTES(value, nbytes) ((char *)&(value))
#endif

/* Copies. A length that a register has becomes a single move, also where the compiler does not know it: a call of memcpy
 * costs several times as much. */
VGASI_INLINE void vgasi_move(void *to, const void *from, size_t bytes) {
    switch (bytes) {
    case 8: memcpy(to, from, 8); return;
    case 4: memcpy(to, from, 4); return;
    case 2: memcpy(to, from, 2); return;
    case 1: memcpy(to, from, 1); return;
    default: memcpy(to, from, bytes); return;
    }
}

/* The address in this process of `bytes` bytes at the owner's address `there`; null when loads and stores do not reach
 * all of them, or when they lie outside of the segment: then the library is asked, which tells the two apart. Null for no
 * bytes, too: the other side may be null then, and compilers take what memcpy is given for an address that is not. */
VGASI_INLINE char *vgasi_reach(uint32_t rank, const void *there, size_t bytes) {
    const vgasi_window_t *window;
    uintptr_t offset, reach;
    if (!VGASI_LIKELY(rank < vgasi_nodes)) return NULL;
    window = &vgasi_windows[rank];
    offset = (uintptr_t)there - window->base;
    reach = window->reach;
    /* Without bytes, bytes - 1 is more than any. */
    if (!VGASI_LIKELY(offset < reach && bytes - 1 < reach - offset)) return NULL;
    return window->here + offset;
}

/* Puts and gets of a register's length that loads and stores reach: whether that is done. Not in the last few bytes of a
 * segment: one comparison is enough for all others. */
VGASI_INLINE int vgasi_put_word(uint32_t rank, void *to, const void *from, size_t bytes) {
    const vgasi_window_t *window;
    uintptr_t offset;
    if (VGASI_IS_NO_WORD(bytes) || !VGASI_LIKELY(rank < vgasi_nodes)) return 0;
    window = &vgasi_windows[rank];
    offset = (uintptr_t)to - window->base;
    if (!VGASI_LIKELY(offset < window->words)) return 0;
    switch (bytes) {
    case 8: memcpy(window->here + offset, from, 8); return 1;
    case 4: memcpy(window->here + offset, from, 4); return 1;
    case 2: memcpy(window->here + offset, from, 2); return 1;
    case 1: memcpy(window->here + offset, from, 1); return 1;
    default: return 0;
    }
}
VGASI_INLINE int vgasi_get_word(void *to, uint32_t rank, const void *from, size_t bytes) {
    const vgasi_window_t *window;
    uintptr_t offset;
    if (VGASI_IS_NO_WORD(bytes) || !VGASI_LIKELY(rank < vgasi_nodes)) return 0;
    window = &vgasi_windows[rank];
    offset = (uintptr_t)from - window->base;
    if (!VGASI_LIKELY(offset < window->words)) return 0;
    switch (bytes) {
    case 8: memcpy(to, window->here + offset, 8); return 1;
    case 4: memcpy(to, window->here + offset, 4); return 1;
    case 2: memcpy(to, window->here + offset, 2); return 1;
    case 1: memcpy(to, window->here + offset, 1); return 1;
    default: return 0;
    }
}

#ifdef __cplusplus
}
#endif

#include "vgasi_transfer.h"
#endif
