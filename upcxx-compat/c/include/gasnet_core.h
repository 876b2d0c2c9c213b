/* GASNet-1, core interface: the job, active messages, handler-safe locks (specification 1.8, chapter 2). */
/* Before this header's own guard: gasnet.h includes it where it belongs. */
#ifndef _GASNET_H
#include "gasnet.h"
#endif

#ifndef _GASNET_CORE_H
#define _GASNET_CORE_H

#include <stdarg.h>
#if GASNET_PAR || GASNET_PARSYNC
#include <pthread.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- Types and codes (1.6, 1.7) --- */

typedef uint32_t gasnet_node_t;
typedef uint8_t gasnet_handler_t;
typedef int32_t gasnet_handlerarg_t;
typedef void *gasnet_token_t;
typedef uintptr_t gasnet_register_value_t;
#define SIZEOF_GASNET_REGISTER_VALUE_T 8
#define SIZEOF_GASNET_NODE_T 4

/* A handler: its index (128 to 255; 0: any, filled in by gasnet_attach) and its function, of any of the types of 2.3.1. */
typedef struct {
    gasnet_handler_t index;
    void (*fnptr)();
} gasnet_handlerentry_t;

typedef struct {
    void *addr;
    uintptr_t size;
} gasnet_seginfo_t;

/* Where a node runs: `host` is its machine, `supernode` those with which it shares memory; what a member of the own
 * supernode has at address A is at A + offset here, modulo 2^64. */
typedef struct {
    gasnet_node_t host;
    gasnet_node_t supernode;
    uintptr_t offset;
} gasnet_nodeinfo_t;

#define GASNET_OK 0
#define GASNET_ERR_NOT_INIT 10001
#define GASNET_ERR_RESOURCE 10002
#define GASNET_ERR_BAD_ARG 10003
#define GASNET_ERR_NOT_READY 10004
#define GASNET_ERR_BARRIER_MISMATCH 10005

#define GASNET_SEGBASE_ANY ((void *)-1)
#define GASNET_SEGSIZE_EVERYTHING ((uintptr_t)-1)

/* The name of a code, "GASNET_ERR_BAD_ARG". */
VGASI_INLINE const char *gasnet_ErrorName(int code) {
    switch (code) {
    case GASNET_OK: return "GASNET_OK";
    case GASNET_ERR_NOT_INIT: return "GASNET_ERR_NOT_INIT";
    case GASNET_ERR_RESOURCE: return "GASNET_ERR_RESOURCE";
    case GASNET_ERR_BAD_ARG: return "GASNET_ERR_BAD_ARG";
    case GASNET_ERR_NOT_READY: return "GASNET_ERR_NOT_READY";
    case GASNET_ERR_BARRIER_MISMATCH: return "GASNET_ERR_BARRIER_MISMATCH";
    default: return "*unknown*";
    }
}

/* What a code means, as a sentence. */
VGASI_INLINE const char *gasnet_ErrorDesc(int code) {
    switch (code) {
    case GASNET_OK: return "No error";
    case GASNET_ERR_NOT_INIT: return "GASNet was used before it was initialised";
    case GASNET_ERR_RESOURCE: return "A resource was missing or could not be had";
    case GASNET_ERR_BAD_ARG: return "An argument is not allowed";
    case GASNET_ERR_NOT_READY: return "The operation is not complete yet";
    case GASNET_ERR_BARRIER_MISMATCH: return "The names given to a barrier do not match";
    default: return "no description available";
    }
}

/* --- The job (2.1, 2.2) --- */

/* Refers to an object of the library for this conduit and thread mode: another library cannot be linked. Data, since a compiler
 * that optimises would leave a function's reference out. */
extern const int VGASI_LINK_SYMBOL;
static const int *const vgasi_link_check __attribute__((__used__)) = &VGASI_LINK_SYMBOL;

/* Both arguments of gasnet_init may be null. */
#define GASNET_NULL_ARGV_OK 1

/* The most bytes of a segment, where the user has set no GASNET_MAX_SEGSIZE; 0 leaves it to the settings. A client may define
 * it, or set it before gasnet_init. */
extern uint64_t gasnet_max_segsize;

/* Joins the job; collective. In a process that no job has started, starts one of this program and does not return:
 * `./program N args` (conduit tcp), or as many ranks as GASNET_PSHM_NODES says (smp). Both pointers may be null. */
VGASI_INLINE int gasnet_init(int *argc, char ***argv) {
    return vgasi_init(argc, argv, VGASI_CONDUIT_NUMBER, gasnet_max_segsize);
}

/* Registers handlers and creates this rank's segment; collective, once. Codes: BAD_ARG for a table or size that is not
 * allowed, RESOURCE when there is no room, NOT_INIT. No handler runs before it returns: what others, who have attached
 * already, have sent runs at the next poll. `minheapoffset` means nothing here. */
VGASI_INLINE int gasnet_attach(gasnet_handlerentry_t *table, int numentries, uintptr_t segsize,
                               uintptr_t minheapoffset) {
    (void)minheapoffset;
    return vgasi_attach(table, numentries, segsize);
}

/* Called in gasnet_attach with address and size of the own segment, before others use it; to be set before. */
extern void (*gasnet_client_attach_hook)(void *, uintptr_t);

/* The most that this rank may attach; all of it may be, by all ranks at once. After gasnet_init. */
VGASI_INLINE uintptr_t gasnet_getMaxLocalSegmentSize(void) { return vgasi_max_local_segment(); }
/* The same on all ranks: what everybody may attach. */
VGASI_INLINE uintptr_t gasnet_getMaxGlobalSegmentSize(void) { return vgasi_max_global_segment(); }

/* Ends the job with this exit status; from any rank and thread, from handlers, and at any time. */
VGASI_INLINE void gasnet_exit(int exitcode) VGASI_NORETURN;
VGASI_INLINE void gasnet_exit(int exitcode) { vgasi_exit(exitcode); }

VGASI_INLINE gasnet_node_t gasnet_mynode(void) { return vgasi_mynode; }
VGASI_INLINE gasnet_node_t gasnet_nodes(void) { return vgasi_nodes; }

/* Address and size of every rank's segment, as its owner sees it. After gasnet_attach. */
VGASI_INLINE int gasnet_getSegmentInfo(gasnet_seginfo_t *seginfo_table, int numentries) {
    return vgasi_segment_info(seginfo_table, numentries);
}
/* Where every rank runs. */
VGASI_INLINE int gasnet_getNodeInfo(gasnet_nodeinfo_t *nodeinfo_table, int numentries) {
    return vgasi_node_info(nodeinfo_table, numentries);
}
/* The environment of whoever started the job. */
VGASI_INLINE char *gasnet_getenv(const char *name) { return vgasi_getenv(name); }
/* The name of this machine. */
extern const char *gasnett_gethostname(void);
#define gasneti_gethostname gasnett_gethostname

/* --- Waiting --- */

#define GASNET_WAIT_SPIN 0
#define GASNET_WAIT_BLOCK 1
#define GASNET_WAIT_SPINBLOCK 2
/* How this node's threads wait from now on: never sleeping (SPIN; they still let others run), sleeping at once (BLOCK), or
 * sleeping after about as long as it takes to be woken (SPINBLOCK, which is what they begin with). */
VGASI_INLINE int gasnet_set_waitmode(int wait_mode) { return vgasi_set_wait_mode(wait_mode); }

/* Runs handlers of messages that have arrived. */
VGASI_INLINE int gasnet_AMPoll(void) { return vgasi_poll(); }

/* Waits, running handlers, until `cond` holds, which handlers bring about. Sleeps when nothing arrives. */
#define GASNET_BLOCKUNTIL(cond)                                                                                        \
    do {                                                                                                               \
        while (!(cond)) {                                                                                              \
            const uint64_t vgasi_before = vgasi_deliveries();                                                          \
            if (cond) break;                                                                                           \
            vgasi_wait_for_delivery(vgasi_before);                                                                     \
        }                                                                                                              \
        __atomic_thread_fence(__ATOMIC_ACQUIRE);                                                                       \
    } while (0)

/* --- Threads --- */

/* GASNet finds its thread data by itself; the macros are there for clients that pass it on. All that a client may learn
 * from a value is whose it is: threads have different ones, and each of them always the same. */
typedef void *gasnet_threadinfo_t;
#if GASNET_SEQ
#define GASNET_GET_THREADINFO() ((gasnet_threadinfo_t)0)
#else
#define GASNET_GET_THREADINFO() ((gasnet_threadinfo_t)(uintptr_t)pthread_self())
#endif
#define GASNET_POST_THREADINFO(info)                                                                                   \
    const gasnet_threadinfo_t vgasi_posted __attribute__((__unused__)) = (info)
#define GASNET_BEGIN_FUNCTION() GASNET_POST_THREADINFO(GASNET_GET_THREADINFO())

/* Thread data needs no preparation; clients name the function, so that compilers do not call it unused. */
static __inline__ __attribute__((__unused__)) void _gasneti_threadkey_init(void *key) { (void)key; }

/* No handler ever interrupts a thread: no-interrupt sections hold without doing anything (2.4.1). */
VGASI_INLINE void gasnet_hold_interrupts(void) {}
VGASI_INLINE void gasnet_resume_interrupts(void) {}

/* --- Handler-safe locks (2.4.2) --- */

#if GASNET_SEQ
/* Handlers run inside calls of the only thread that may call, so nobody can be kept waiting. In every mode `lock` is what
 * gasnett_mutex_t is with the tools, for clients that wait on a condition variable with it. */
typedef struct {
    char lock;
} gasnet_hsl_t;
#define GASNET_HSL_INITIALIZER {0}
VGASI_INLINE void gasnet_hsl_init(gasnet_hsl_t *hsl) { hsl->lock = 0; }
VGASI_INLINE void gasnet_hsl_destroy(gasnet_hsl_t *hsl) { (void)hsl; }
VGASI_INLINE void gasnet_hsl_lock(gasnet_hsl_t *hsl) { (void)hsl; }
VGASI_INLINE void gasnet_hsl_unlock(gasnet_hsl_t *hsl) { (void)hsl; }
VGASI_INLINE int gasnet_hsl_trylock(gasnet_hsl_t *hsl) {
    (void)hsl;
    return GASNET_OK;
}
#else
typedef struct {
    pthread_mutex_t lock;
} gasnet_hsl_t;
#define GASNET_HSL_INITIALIZER {PTHREAD_MUTEX_INITIALIZER}
VGASI_INLINE void gasnet_hsl_init(gasnet_hsl_t *hsl) { pthread_mutex_init(&hsl->lock, NULL); }
VGASI_INLINE void gasnet_hsl_destroy(gasnet_hsl_t *hsl) { pthread_mutex_destroy(&hsl->lock); }
VGASI_INLINE void gasnet_hsl_lock(gasnet_hsl_t *hsl) { pthread_mutex_lock(&hsl->lock); }
VGASI_INLINE void gasnet_hsl_unlock(gasnet_hsl_t *hsl) { pthread_mutex_unlock(&hsl->lock); }
/* GASNET_OK: locked; GASNET_ERR_NOT_READY: somebody else has it. */
VGASI_INLINE int gasnet_hsl_trylock(gasnet_hsl_t *hsl) {
    return pthread_mutex_trylock(&hsl->lock) == 0 ? GASNET_OK : GASNET_ERR_NOT_READY;
}
#endif

/* --- Active messages (2.3): see gasnet_am.h --- */

/* Constant expressions, as in GASNet: clients size arrays with them. `vgasi_medium_max` agrees, unless the job runs over another
 * conduit whose messages are shorter. */
#define gasnet_AMMaxArgs() ((size_t)16)
#if GASNET_CONDUIT_IBV
#define gasnet_AMMaxMedium() ((size_t)8000)
#else
#define gasnet_AMMaxMedium() ((size_t)65000)
#endif
VGASI_INLINE size_t gasnet_AMMaxLongRequest(void) { return vgasi_long_request_max(); }
VGASI_INLINE size_t gasnet_AMMaxLongReply(void) { return vgasi_long_reply_max(); }

/* Who sent the message that is being handled. */
VGASI_INLINE int gasnet_AMGetMsgSource(gasnet_token_t token, gasnet_node_t *srcindex) {
    return vgasi_message_source(token, srcindex);
}

#include "gasnet_am.h"

#ifdef __cplusplus
}
#endif
#endif
