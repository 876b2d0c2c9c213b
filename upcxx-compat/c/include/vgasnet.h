/* vgas for C: a global address space whose segments are DRAM, or files on NVMe behind a cooperative cache that may be far
 * larger than DRAM. The names are those of the vGASNet paper; the habits are GASNet's.
 *
 * *Ranks* are the processes of a job. Each attaches one *segment*, which all others put to and get from; an address in it
 * is the owner's own pointer, and the owner may use its segment through pointers like any memory.
 *
 * *Completion.* A blocking put returns when its bytes are visible to every later get anywhere, and to the owner's loads
 * that are ordered after it by a message or barrier; a blocking get when its bytes are here. The others are complete when
 * they have been synchronised. They go on by themselves, synchronised or not: at once when the rank polls or waits for
 * anything, and within a millisecond when it computes and calls nothing. Bytes of one aligned 8-byte word are never torn.
 *
 * *Threads.* Any thread may call anything; handles and implicit operations belong to the thread that started them. Barriers
 * are for one thread of a rank at a time.
 *
 * *Errors.* Functions that return int return VGASNET_OK or another code. Puts and gets that name no memory of another rank's
 * segment end the job with a message, as does the loss of a peer; to itself a rank may name all of its memory.
 *
 * *Handlers* run in threads that poll or wait, one at a time. They may reply once, use memory and pthread locks that are held
 * briefly, and call vgasnet_exit; nothing else here. */
#ifndef VGASNET_H
#define VGASNET_H

#include "vgasi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define VGASNET_VERSION_MAJOR 0
#define VGASNET_VERSION_MINOR 1

/* --- Codes --- */

#define VGASNET_OK 0
#define VGASNET_ERR_NOT_INIT 10001         /* before vgasnet_init, or done already */
#define VGASNET_ERR_RESOURCE 10002         /* the machine refuses; standard error says why */
#define VGASNET_ERR_BAD_ARG 10003          /* an argument that is not allowed; nothing has happened */
#define VGASNET_ERR_NOT_READY 10004        /* not complete yet */
#define VGASNET_ERR_BARRIER_MISMATCH 10005 /* the barrier has happened, its names did not match */

/* --- Types --- */

typedef uint32_t vgasnet_node_t;            /* a rank */
typedef vgasi_handle_t vgasnet_handle_t;    /* operations in flight */
typedef vgasi_value_t vgasnet_valget_handle_t;
typedef void *vgasnet_token_t;              /* a message that is being handled */
typedef struct vgasi_pin *vgasnet_pin_t;    /* a range that stays mapped */
#define VGASNET_INVALID_HANDLE ((vgasnet_handle_t)0) /* what is complete */

/* A handler: its index (128 to 255; 0: any, which is filled in) and its function: void (token, int32_t words...) for short
 * messages, void (token, void *bytes, size_t count, int32_t words...) for medium and long ones. */
typedef struct {
    uint8_t index;
    void (*function)();
} vgasnet_handlerentry_t;

typedef enum {
    VGASNET_CONFIGURED = 0, /* what the setting segment.kind says */
    VGASNET_PINNED = 1,     /* DRAM */
    VGASNET_TIERED = 2,     /* a file on NVMe, cached in the DRAM of all nodes; strict: a put is visible when it is complete */
    VGASNET_RELAXED = 3     /* the same, but ranks agree on its content at barriers only: smaller puts are combined here, and
                               visible to others, and by the owner's pointers, after the next vgasnet_barrier_notify */
} vgasnet_kind_t;

/* What to attach. All ranks give the same kind and name; sizes may differ. */
typedef struct {
    uintptr_t bytes;     /* a multiple of 4096; at most vgasnet_max_segment(kind) */
    vgasnet_kind_t kind;
    const char *name;    /* null, or a name that keeps a tiered segment after the job (see vgasnet_checkpoint) */
} vgasnet_segment_t;

/* --- The job --- */

/* Joins the job; collective, once. Started outside of a job, as `program N arguments`, it starts one of N ranks instead, and
 * does not return. Both pointers may be null. */
VGASI_INLINE int vgasnet_init(int *argc, char ***argv) { return vgasi_init(argc, argv, 2, 0); }

/* Most bytes of a segment of this kind here: what the settings allow, and of a file this rank's share of the free space. */
VGASI_INLINE uintptr_t vgasnet_max_segment(vgasnet_kind_t kind) { return vgasi_max_segment((int)kind); }

/* Registers handlers and creates this rank's segment; collective, once. When it returns all segments may be used; they read
 * as zeros, unless a named one is reopened. Codes: BAD_ARG, RESOURCE, NOT_INIT. */
VGASI_INLINE int vgasnet_attach(const vgasnet_segment_t *segment, vgasnet_handlerentry_t *handlers, int count) {
    if (segment == NULL) return VGASNET_ERR_BAD_ARG;
    return vgasi_attach_kind(handlers, count, segment->bytes, (int)segment->kind, segment->name);
}

/* Ends the job with this status: from any rank and thread, at any time, also from handlers. Ranks that do not follow within a
 * second are ended. */
VGASI_INLINE void vgasnet_exit(int status) VGASI_NORETURN;
VGASI_INLINE void vgasnet_exit(int status) { vgasi_exit(status); }

/* This rank, and how many there are. Never wait. */
VGASI_INLINE vgasnet_node_t vgasnet_mynode(void) { return vgasi_mynode; }
VGASI_INLINE vgasnet_node_t vgasnet_nodes(void) { return vgasi_nodes; }

/* The kind of the attached segments. */
VGASI_INLINE vgasnet_kind_t vgasnet_segment_kind(void) { return (vgasnet_kind_t)vgasi_segment_kind(); }

/* First address, as its owner sees it, and size of a rank's segment; null and 0 for a rank that does not exist. */
VGASI_INLINE void *vgasnet_segment_address(vgasnet_node_t node) {
    return node < vgasi_nodes ? (void *)vgasi_windows[node].base : NULL;
}
VGASI_INLINE uintptr_t vgasnet_segment_bytes(vgasnet_node_t node) {
    return node < vgasi_nodes ? vgasi_windows[node].bytes : 0;
}


/* --- Puts and gets --- */

/* Complete when they return. The memory given may lie in a segment; source and destination do not overlap. */
VGASI_INLINE void vgasnet_put(vgasnet_node_t node, void *dest, const void *src, size_t nbytes) {
    vgasi_put_now(node, dest, src, nbytes);
}
VGASI_INLINE void vgasnet_get(void *dest, vgasnet_node_t node, const void *src, size_t nbytes) {
    vgasi_get_now(dest, node, src, nbytes);
}
VGASI_INLINE void vgasnet_memset(vgasnet_node_t node, void *dest, int value, size_t nbytes) {
    char *const here = vgasi_reach(node, dest, nbytes);
    if (VGASI_LIKELY(here != NULL)) memset(here, value, nbytes);
    else vgasi_memset(node, dest, value, nbytes);
}

/* Start; complete when the handle has been waited for. The source of a put must stay as it is until then. */
VGASI_INLINE vgasnet_handle_t vgasnet_put_nb(vgasnet_node_t node, void *dest, const void *src, size_t nbytes) {
    return vgasi_start_put(node, dest, src, nbytes, 1);
}
VGASI_INLINE vgasnet_handle_t vgasnet_get_nb(void *dest, vgasnet_node_t node, const void *src, size_t nbytes) {
    return vgasi_start_get(dest, node, src, nbytes);
}

/* Wait for a handle, once; or make progress and say whether it is complete (OK, then it is used up) or NOT_READY. */
VGASI_INLINE void vgasnet_wait_syncnb(vgasnet_handle_t handle) {
    if (handle != VGASNET_INVALID_HANDLE) vgasi_wait(handle);
}
VGASI_INLINE int vgasnet_try_syncnb(vgasnet_handle_t handle) {
    return handle == VGASNET_INVALID_HANDLE ? VGASNET_OK : vgasi_try(handle);
}

/* Wait for all of an array; places of it become VGASNET_INVALID_HANDLE. */
VGASI_INLINE void vgasnet_wait_syncnb_all(vgasnet_handle_t *handles, size_t count) {
    vgasi_wait_all(handles, count);
}

/* Start without a handle; complete after vgasnet_wait_syncnbi_all, or vgasnet_flush for puts, by the same thread. The source of a
 * put must stay as it is until then. */
VGASI_INLINE void vgasnet_put_nbi(vgasnet_node_t node, void *dest, const void *src, size_t nbytes) {
    const vgasnet_handle_t handle = vgasnet_put_nb(node, dest, src, nbytes);
    if (handle != VGASNET_INVALID_HANDLE) vgasi_accumulate(handle, VGASI_PUTS);
}
VGASI_INLINE void vgasnet_get_nbi(void *dest, vgasnet_node_t node, const void *src, size_t nbytes) {
    const vgasnet_handle_t handle = vgasnet_get_nb(dest, node, src, nbytes);
    if (handle != VGASNET_INVALID_HANDLE) vgasi_accumulate(handle, VGASI_GETS);
}
VGASI_INLINE void vgasnet_wait_syncnbi_all(void) { vgasi_wait_implicit(VGASI_PUTS | VGASI_GETS); }

/* Waits until the implicit puts of this thread are visible everywhere. */
VGASI_INLINE void vgasnet_flush(void) { vgasi_wait_implicit(VGASI_PUTS); }

/* The low `nbytes` (1 to 8) bytes of a value, in the order of this machine. Complete when they return; extended with zeros. */
VGASI_INLINE void vgasnet_put_val(vgasnet_node_t node, void *dest, uint64_t value, size_t nbytes) {
    vgasnet_put(node, dest, VGASI_LOW_BYTES(value, nbytes), nbytes);
}
VGASI_INLINE uint64_t vgasnet_get_val(vgasnet_node_t node, const void *src, size_t nbytes) {
    uint64_t value = 0;
    vgasnet_get(VGASI_LOW_BYTES(value, nbytes), node, src, nbytes);
    return value;
}

/* --- Atomic updates --- */

/* What becomes of a word. Sums wrap around. */
typedef enum {
    VGASNET_ADD = 0,
    VGASNET_COMPARE_SWAP = 1, /* the operand, if the word is as expected */
    VGASNET_AND = 2,
    VGASNET_OR = 3,
    VGASNET_XOR = 4,
    VGASNET_MIN = 5,
    VGASNET_MAX = 6,
    VGASNET_SWAP = 7
} vgasnet_change_t;

/* Update a word of a segment atomically; return what it was. Every rank sees the change when they return; no rank need do anything
 * for it. The address is a multiple of the word's length in its segment; `expected` means something to VGASNET_COMPARE_SWAP alone.
 * Words of tiered segments are updated where their page is, by the processor: atomic with all other updates, with puts and gets of
 * the whole word, and with atomic instructions of the owner. Words of pinned segments are changed in no other way between two
 * barriers. */
VGASI_INLINE uint32_t vgasnet_update_u32(vgasnet_node_t node, void *dest, vgasnet_change_t change, uint32_t operand,
                                         uint32_t expected) {
    return (uint32_t)vgasi_update(node, dest, 0, (int)change, operand, expected);
}
VGASI_INLINE int32_t vgasnet_update_i32(vgasnet_node_t node, void *dest, vgasnet_change_t change, int32_t operand,
                                        int32_t expected) {
    return (int32_t)vgasi_update(node, dest, 1, (int)change, (uint32_t)operand, (uint32_t)expected);
}
VGASI_INLINE uint64_t vgasnet_update_u64(vgasnet_node_t node, void *dest, vgasnet_change_t change, uint64_t operand,
                                         uint64_t expected) {
    return vgasi_update(node, dest, 2, (int)change, operand, expected);
}
VGASI_INLINE int64_t vgasnet_update_i64(vgasnet_node_t node, void *dest, vgasnet_change_t change, int64_t operand,
                                        int64_t expected) {
    return (int64_t)vgasi_update(node, dest, 3, (int)change, (uint64_t)operand, (uint64_t)expected);
}

/* One of many updates. */
typedef struct {
    vgasnet_node_t node;
    vgasnet_change_t change;
    void *dest;
    uint64_t operand, expected;
} vgasnet_update_t;

/* Makes many updates, each atomic by itself, those of one word in this order. To tiered segments they travel together, one message
 * for each home. What the words were is written to `were`, unless that is null. */
VGASI_INLINE void vgasnet_update_many_u64(const vgasnet_update_t *updates, size_t count, uint64_t *were) {
    vgasi_update_many(updates, count, 2, were);
}

/* --- Locks --- */

/* Any eight bytes of a tiered segment, at a multiple of 8, are a lock, free while they are zeros, for one that writes or many that read.
 * Who has to wait stands in a fair queue at the lock's home and sleeps, serving messages. The thread that has a lock gives it back, in
 * the same way. Codes: BAD_ARG for another address; RESOURCE, with a line that says why, for a word that is no lock and where waiting
 * would never end, because ranks wait for each other in a circle: one of them is told. NOT_READY from the try: somebody has it.
 * Puts into relaxed segments travel, too, when a lock is given back. */
typedef enum { VGASNET_READ = 0, VGASNET_WRITE = 1 } vgasnet_lock_mode_t;
VGASI_INLINE int vgasnet_lock(vgasnet_node_t node, void *word, vgasnet_lock_mode_t mode) {
    return vgasi_lock(node, word, (int)mode, 1);
}
VGASI_INLINE int vgasnet_try_lock(vgasnet_node_t node, void *word, vgasnet_lock_mode_t mode) {
    return vgasi_lock(node, word, (int)mode, 0);
}
VGASI_INLINE int vgasnet_unlock(vgasnet_node_t node, void *word, vgasnet_lock_mode_t mode) {
    return vgasi_unlock(node, word, (int)mode);
}

/* --- Barriers --- */

/* Every rank notifies, then waits (or tries until it is over), with the same id and flags. Puts that were complete before a
 * notify are visible after the wait. Codes: BARRIER_MISMATCH, and NOT_READY from the try. */
#define VGASNET_BARRIERFLAG_ANONYMOUS 1 /* matches every id */
#define VGASNET_BARRIERFLAG_MISMATCH 2  /* reports a mismatch to every rank */
VGASI_INLINE void vgasnet_barrier_notify(int id, int flags) { vgasi_barrier_notify(id, flags); }
VGASI_INLINE int vgasnet_barrier_wait(int id, int flags) { return vgasi_barrier_wait(id, flags); }
VGASI_INLINE int vgasnet_barrier_try(int id, int flags) { return vgasi_barrier_try(id, flags); }

/* A barrier to which every rank brings `nbytes` bytes, the same number on all and at most 1024; `dest` gets those of all ranks, one
 * after the other. Codes: BAD_ARG for more, or others of others; BARRIER_MISMATCH when ranks are at another kind of barrier. */
VGASI_INLINE int vgasnet_barrier_exchange(const void *src, size_t nbytes, void *dest) {
    return vgasi_barrier_exchange(src, nbytes, dest);
}

/* --- Active messages --- */

/* Send a message with 0 to 16 words: runs the handler on that rank when it polls or waits. The source is reusable when they
 * return. Requests may run handlers here; not from handlers. Codes: BAD_ARG. */
VGASI_INLINE int vgasnet_request_short(vgasnet_node_t node, uint8_t handler, int count, const int32_t *words) {
    return vgasi_request_short(node, handler, count, words);
}
VGASI_INLINE int vgasnet_request_medium(vgasnet_node_t node, uint8_t handler, const void *src, size_t nbytes, int count,
                                        const int32_t *words) {
    return vgasi_request_medium(node, handler, src, nbytes, count, words);
}
VGASI_INLINE int vgasnet_request_long(vgasnet_node_t node, uint8_t handler, const void *src, size_t nbytes, void *dest,
                                      int count, const int32_t *words) {
    return vgasi_request_long(node, handler, src, nbytes, dest, count, words);
}

/* Answer the request that is being handled, once. They never wait. */
VGASI_INLINE int vgasnet_reply_short(vgasnet_token_t token, uint8_t handler, int count, const int32_t *words) {
    return vgasi_reply_short(token, handler, count, words);
}
VGASI_INLINE int vgasnet_reply_medium(vgasnet_token_t token, uint8_t handler, const void *src, size_t nbytes, int count,
                                      const int32_t *words) {
    return vgasi_reply_medium(token, handler, src, nbytes, count, words);
}
VGASI_INLINE int vgasnet_reply_long(vgasnet_token_t token, uint8_t handler, const void *src, size_t nbytes, void *dest,
                                    int count, const int32_t *words) {
    return vgasi_reply_long(token, handler, src, nbytes, dest, count, words);
}

/* Most bytes of a medium message, a long request and a long reply. */
VGASI_INLINE size_t vgasnet_max_medium(void) { return vgasi_medium_max(); }
VGASI_INLINE size_t vgasnet_max_long_request(void) { return vgasi_long_request_max(); }
VGASI_INLINE size_t vgasnet_max_long_reply(void) { return vgasi_long_reply_max(); }

/* Who sent the message that is being handled. */
VGASI_INLINE int vgasnet_source(vgasnet_token_t token, vgasnet_node_t *node) {
    return vgasi_message_source(token, node);
}

/* Runs the handlers of messages that have arrived. */
VGASI_INLINE int vgasnet_poll(void) { return vgasi_poll(); }

/* Waits, running handlers, until `condition` holds, which handlers bring about. */
#define VGASNET_BLOCKUNTIL(condition)                                                                                  \
    do {                                                                                                               \
        while (!(condition)) {                                                                                         \
            const uint64_t vgasi_before = vgasi_deliveries();                                                          \
            if (condition) break;                                                                                      \
            vgasi_wait_for_delivery(vgasi_before);                                                                     \
        }                                                                                                              \
    } while (0)

/* --- Tiered segments --- */

/* Keeps a range of this rank's own segment in memory, so that system calls may be given it and no access to it waits. Pins
 * count toward the setting local.mapped. Codes: BAD_ARG outside of the segment, RESOURCE when too much is pinned. On a pinned
 * segment there is nothing to do. */
VGASI_INLINE int vgasnet_pin(const void *address, uintptr_t nbytes, vgasnet_pin_t *pin) {
    void *opaque = NULL;
    const int code = vgasi_pin(address, nbytes, pin == NULL ? NULL : &opaque);
    if (code == VGASNET_OK) *pin = (vgasnet_pin_t)opaque;
    return code;
}

/* Gives a pinned range up, once. */
VGASI_INLINE void vgasnet_unpin(vgasnet_pin_t pin) { vgasi_unpin(pin); }

/* Asks for a range of any segment to be brought to this node when convenient. A hint: it returns at once. */
VGASI_INLINE int vgasnet_prefetch(vgasnet_node_t node, const void *address, uintptr_t nbytes) {
    return vgasi_prefetch(node, address, nbytes);
}

/* --- Further segments --- */

/* What a further segment is like. All zeros: tiered, with pages like those of the first, strict, with scans recognised. */
typedef struct {
    uint32_t page_bytes; /* a power of two from 4096 to 4 MiB, at most a sixteenth of a node's cache; 0: as cache.page says */
    int relaxed;         /* as VGASNET_RELAXED */
    int home_only;       /* other nodes have no copies: their puts and gets travel to the owner's node with their bytes */
    int in_place;        /* from the second node that puts to a page on, small puts and gets are served where it is */
    int no_read_ahead;   /* scans are not recognised */
    int streamed;        /* read once: its pages leave a full cache before others, as soon as they are more than an eighth of it */
    unsigned weight;     /* 1 to 255: how many times as long its pages are kept when others want room; 0 is 1 */
    const char *name;    /* keeps it after the job, as that of vgasnet_attach does the first; null: it is gone with the job */
    int pinned;          /* memory of each rank instead of pages, out of what its first segment has left of segment.pinned_max;
                          * nothing else may be said then */
    int one_address;     /* its parts are at the same addresses in all processes (vgasnet_segment_pointer); not for attach_own */
} vgasnet_segment_options_t;

/* The number of a further segment, the same on all ranks. */
typedef uint16_t vgasnet_segment_id_t;

/* Attach a segment beside the first, of which this rank has so many bytes (0 for none), zeros at first; and give it up, with all that is
 * in it, when nobody uses it any more. Collective: all ranks in the same order, with the same options, which may be null; after
 * vgasnet_attach. Places in it are called by offsets. Codes: BAD_ARG, with a line that says why, for what cannot be, on all ranks
 * alike; RESOURCE when a device refuses. */
VGASI_INLINE int vgasnet_segment_attach(uintptr_t bytes, const vgasnet_segment_options_t *options,
                                        vgasnet_segment_id_t *segment) {
    return vgasi_segment_attach(bytes, options, segment);
}
VGASI_INLINE int vgasnet_segment_detach(vgasnet_segment_id_t segment) { return vgasi_segment_detach(segment); }

/* The same of this rank alone: its part is all of it. Not collective. Others can use it once they have learnt of it, by its number and
 * the rank, which the program tells them, and get errors when it is given up; of a pinned one, a rank of another node that uses it then
 * ends the job with a line that names it. */
VGASI_INLINE int vgasnet_segment_attach_own(uintptr_t bytes, const vgasnet_segment_options_t *options,
                                            vgasnet_segment_id_t *segment) {
    return vgasi_segment_attach_own(bytes, options, segment);
}
VGASI_INLINE int vgasnet_segment_learn(vgasnet_segment_id_t segment, vgasnet_node_t node) {
    return vgasi_segment_learn(segment, node);
}
VGASI_INLINE int vgasnet_segment_detach_own(vgasnet_segment_id_t segment) { return vgasi_segment_detach_own(segment); }

/* Bytes of a rank's part of it; 0 when it has none. */
VGASI_INLINE uint64_t vgasnet_segment_part_bytes(vgasnet_segment_id_t segment, vgasnet_node_t node) {
    return vgasi_segment_part_bytes(segment, node);
}

/* The address of a place in a pinned segment's part of this rank or of another of its node, good for loads and stores until the segment
 * is given up; null for a rank of another node, and outside of the part. Of a tiered segment at one address, the same in every process: a
 * name for the place, and memory for the owner and ranks of its node once they have opened the part (vgasnet_segment_local, its _of_mate);
 * null for other tiered segments. */
VGASI_INLINE void *vgasnet_segment_pointer(vgasnet_segment_id_t segment, vgasnet_node_t node, uint64_t offset) {
    return vgasi_segment_pointer(segment, node, offset);
}

/* A part of a tiered segment of this rank, or of another of its node, that is open to pointers. */
typedef struct vgasi_part *vgasnet_part_t;

/* Opens this rank's own part of a further tiered segment to be read and written through pointers from `base` on, as vgasnet_attach does
 * the first segment, until it is closed. At most `pages` of it are mapped at a time, 5 at the least; with what else is open, a quarter as
 * many as of the first segment (local.mapped). A segment that is detached is closed before. Codes: BAD_ARG, with a line that says why,
 * for null, the first segment, a part that is empty, not tiered or open already, and too few or too many pages; RESOURCE when the system
 * refuses. */
VGASI_INLINE int vgasnet_segment_local(vgasnet_segment_id_t segment, uint32_t pages, vgasnet_part_t *part, void **base) {
    void *opaque = NULL;
    const int code = vgasi_segment_local(segment, pages, part == NULL ? NULL : &opaque, base);
    if (code == VGASNET_OK) *part = (vgasnet_part_t)opaque;
    return code;
}

/* Opens the part of another rank of this rank's node to be read through pointers from `base` on, until it is closed; segment 0 is the
 * first. Nothing is copied: loads see what the owner and all others have stored and put, aligned words never torn. At most `pages` of it
 * are mapped at a time, 5 at the least; with what else is open, a quarter as many as of the first segment (local.mapped). A store ends
 * the job with a line that says so. System calls that are given such memory may fail with EFAULT, as on one's own segment that is not
 * pinned. A segment that is detached is closed before. Codes: BAD_ARG, with a line that says why, for null, this rank itself, a rank of
 * another node, a part that is empty, not tiered or open already, and too few or too many pages; RESOURCE when the system refuses. */
VGASI_INLINE int vgasnet_segment_local_of_mate(vgasnet_segment_id_t segment, vgasnet_node_t node, uint32_t pages,
                                               vgasnet_part_t *part, const void **base) {
    void *opaque = NULL;
    const int code = vgasi_segment_local_of_mate(segment, node, pages, part == NULL ? NULL : &opaque, base);
    if (code == VGASNET_OK) *part = (vgasnet_part_t)opaque;
    return code;
}

/* Closes it, once; nobody uses its pointers any more. Null is nothing. */
VGASI_INLINE void vgasnet_segment_close(vgasnet_part_t part) { vgasi_segment_close(part); }

/* Complete when they return. What is not in the segment ends the job with a line that says so. */
VGASI_INLINE void vgasnet_segment_put(vgasnet_segment_id_t segment, vgasnet_node_t node, uint64_t offset, const void *src,
                                      size_t nbytes) {
    vgasi_segment_put(segment, node, offset, src, nbytes);
}
VGASI_INLINE void vgasnet_segment_get(void *dest, vgasnet_segment_id_t segment, vgasnet_node_t node, uint64_t offset,
                                      size_t nbytes) {
    vgasi_segment_get(dest, segment, node, offset, nbytes);
}

/* As vgasnet_prefetch and vgasnet_update_u64. */
VGASI_INLINE int vgasnet_segment_prefetch(vgasnet_segment_id_t segment, vgasnet_node_t node, uint64_t offset,
                                          uint64_t nbytes) {
    return vgasi_segment_prefetch(segment, node, offset, nbytes);
}
VGASI_INLINE uint64_t vgasnet_segment_update_u64(vgasnet_segment_id_t segment, vgasnet_node_t node, uint64_t offset,
                                                 vgasnet_change_t change, uint64_t operand, uint64_t expected) {
    return vgasi_segment_update(segment, node, offset, (int)change, operand, expected);
}

/* Makes the named segments of all ranks durable; collective. What was put or stored before it is there when a later job attaches
 * the same names and sizes, also after a crash: one that comes before it returns leaves this checkpoint on all ranks, or the one
 * before on all ranks. Codes: BAD_ARG for segments that are pinned or have no name, of which nothing is
 * kept; RESOURCE when a device refuses. */
VGASI_INLINE int vgasnet_checkpoint(void) { return vgasi_checkpoint(); }

/* What the job has found of the named segments that it attached. */
typedef struct {
    uint64_t checkpoint; /* they were opened at this one, the newest that is whole on all ranks; 0: they are new */
    uint64_t newest;     /* the newest that any rank has found; later than the other where a job was ended in the middle of one */
    int is_read_only;    /* nothing can be written where the part of some rank is stored; a full disk takes puts while the cache does */
    int is_together;     /* it is of one checkpoint with all named segments that were attached before it, or younger than theirs */
} vgasnet_reopened_t;

/* The same on all ranks; not collective, never waits. All zeros for segments that are new, pinned or have no name. Codes:
 * BAD_ARG for null, NOT_INIT. */
VGASI_INLINE int vgasnet_reopened(vgasnet_reopened_t *found) {
    if (found == NULL) return VGASNET_ERR_BAD_ARG;
    return vgasi_reopened(0, &found->checkpoint, &found->newest, &found->is_read_only, &found->is_together);
}

/* The same of a further segment with a name. */
VGASI_INLINE int vgasnet_segment_reopened(vgasnet_segment_id_t segment, vgasnet_reopened_t *found) {
    if (found == NULL) return VGASNET_ERR_BAD_ARG;
    return vgasi_reopened(segment, &found->checkpoint, &found->newest, &found->is_read_only, &found->is_together);
}

/* The counters of the job, summed over all ranks and nodes; collective. Fills at most `count` values. */
VGASI_INLINE int vgasnet_statistics(uint64_t *values, size_t count) { return vgasi_statistics(values, count); }

/* How many counters there are, and the name of each; null beyond the last. */
VGASI_INLINE size_t vgasnet_statistics_count(void) { return vgasi_statistics_count(); }
VGASI_INLINE const char *vgasnet_statistic_name(size_t index) { return vgasi_statistic_name(index); }

#ifdef __cplusplus
}
#endif
#endif
