/* GASNet-1, extended interface: puts and gets, their synchronisation, barriers (specification 1.8, chapter 3).
 *
 * *Addresses* are those of the segment's owner. A put or get between ranks that share memory, or of pages of a tiered segment
 * that this node has cached, is a check and a copy, made here and complete at once; the library is called for the rest. *Bulk* forms allow any alignment and, when they
 * do not block, demand that the source stays as it is until the operation is complete. What was started goes on by itself: at
 * once when the rank polls or waits for anything, and within a millisecond when it computes and calls nothing. Errors (an
 * address outside of another rank's segment, a rank that does not exist) end the job with a message; to itself a rank may
 * name all of its memory. Any thread may call anything in GASNET_PAR. */
#ifndef _GASNET_EXTENDED_H
#define _GASNET_EXTENDED_H

#ifndef _GASNET_H
#include "gasnet.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef vgasi_handle_t gasnet_handle_t;
/* What is complete, and what no operation stands for. */
#define GASNET_INVALID_HANDLE ((gasnet_handle_t)0)
typedef vgasi_value_t gasnet_valget_handle_t;

/* --- Blocking (3.1): complete when they return --- */

VGASI_INLINE void gasnet_put(gasnet_node_t node, void *dest, const void *src, size_t nbytes) {
    vgasi_put_now(node, dest, src, nbytes);
}
VGASI_INLINE void gasnet_get(void *dest, gasnet_node_t node, const void *src, size_t nbytes) {
    vgasi_get_now(dest, node, src, nbytes);
}
VGASI_INLINE void gasnet_put_bulk(gasnet_node_t node, void *dest, const void *src, size_t nbytes) {
    gasnet_put(node, dest, src, nbytes);
}
VGASI_INLINE void gasnet_get_bulk(void *dest, gasnet_node_t node, const void *src, size_t nbytes) {
    gasnet_get(dest, node, src, nbytes);
}
VGASI_INLINE void gasnet_memset(gasnet_node_t node, void *dest, int val, size_t nbytes) {
    char *const here = vgasi_reach(node, dest, nbytes);
    if (VGASI_LIKELY(here != NULL)) memset(here, val, nbytes);
    else vgasi_memset(node, dest, val, nbytes);
}

/* --- Explicit handles (3.2): complete when the handle was synchronised --- */

VGASI_INLINE gasnet_handle_t gasnet_put_nb(gasnet_node_t node, void *dest, const void *src, size_t nbytes) {
    return vgasi_start_put(node, dest, src, nbytes, 0);
}
VGASI_INLINE gasnet_handle_t gasnet_put_nb_bulk(gasnet_node_t node, void *dest, const void *src, size_t nbytes) {
    return vgasi_start_put(node, dest, src, nbytes, 1);
}
VGASI_INLINE gasnet_handle_t gasnet_get_nb(void *dest, gasnet_node_t node, const void *src, size_t nbytes) {
    return vgasi_start_get(dest, node, src, nbytes);
}
VGASI_INLINE gasnet_handle_t gasnet_get_nb_bulk(void *dest, gasnet_node_t node, const void *src, size_t nbytes) {
    return gasnet_get_nb(dest, node, src, nbytes);
}
VGASI_INLINE gasnet_handle_t gasnet_memset_nb(gasnet_node_t node, void *dest, int val, size_t nbytes) {
    char *const here = vgasi_reach(node, dest, nbytes);
    if (!VGASI_LIKELY(here != NULL)) return vgasi_memset_nb(node, dest, val, nbytes);
    memset(here, val, nbytes);
    return GASNET_INVALID_HANDLE;
}

/* A handle is synchronised once, by the thread that got it; arrays of handles may hold GASNET_INVALID_HANDLE, and hold
 * it for what has completed. The try forms make progress and return GASNET_OK or GASNET_ERR_NOT_READY. */
VGASI_INLINE void gasnet_wait_syncnb(gasnet_handle_t handle) {
    if (handle != GASNET_INVALID_HANDLE) vgasi_wait(handle);
}
VGASI_INLINE int gasnet_try_syncnb(gasnet_handle_t handle) {
    return handle == GASNET_INVALID_HANDLE ? GASNET_OK : vgasi_try(handle);
}
/* The same without running handlers, for clients that hold a lock that these need; also the two further down. */
VGASI_INLINE int gasnet_try_syncnb_nopoll(gasnet_handle_t handle) {
    return handle == GASNET_INVALID_HANDLE ? GASNET_OK : vgasi_try_quietly(handle);
}
/* All of them. */
VGASI_INLINE void gasnet_wait_syncnb_all(gasnet_handle_t *handles, size_t numhandles) {
    vgasi_wait_all(handles, numhandles);
}
VGASI_INLINE int gasnet_try_syncnb_all(gasnet_handle_t *handles, size_t numhandles) {
    return vgasi_try_all(handles, numhandles);
}
VGASI_INLINE int gasnet_try_syncnb_all_nopoll(gasnet_handle_t *handles, size_t numhandles) {
    return vgasi_try_all_quietly(handles, numhandles);
}
/* At least one of them. */
VGASI_INLINE void gasnet_wait_syncnb_some(gasnet_handle_t *handles, size_t numhandles) {
    vgasi_wait_some(handles, numhandles);
}
VGASI_INLINE int gasnet_try_syncnb_some(gasnet_handle_t *handles, size_t numhandles) {
    return vgasi_try_some(handles, numhandles);
}
VGASI_INLINE int gasnet_try_syncnb_some_nopoll(gasnet_handle_t *handles, size_t numhandles) {
    return vgasi_try_some_quietly(handles, numhandles);
}

/* --- Implicit handles (3.2): complete when this thread has synchronised its puts, gets, or all --- */

VGASI_INLINE void gasnet_put_nbi(gasnet_node_t node, void *dest, const void *src, size_t nbytes) {
    const gasnet_handle_t handle = gasnet_put_nb(node, dest, src, nbytes);
    if (handle != GASNET_INVALID_HANDLE) vgasi_accumulate(handle, VGASI_PUTS);
}
VGASI_INLINE void gasnet_put_nbi_bulk(gasnet_node_t node, void *dest, const void *src, size_t nbytes) {
    const gasnet_handle_t handle = gasnet_put_nb_bulk(node, dest, src, nbytes);
    if (handle != GASNET_INVALID_HANDLE) vgasi_accumulate(handle, VGASI_PUTS);
}
VGASI_INLINE void gasnet_get_nbi(void *dest, gasnet_node_t node, const void *src, size_t nbytes) {
    const gasnet_handle_t handle = gasnet_get_nb(dest, node, src, nbytes);
    if (handle != GASNET_INVALID_HANDLE) vgasi_accumulate(handle, VGASI_GETS);
}
VGASI_INLINE void gasnet_get_nbi_bulk(void *dest, gasnet_node_t node, const void *src, size_t nbytes) {
    gasnet_get_nbi(dest, node, src, nbytes);
}
VGASI_INLINE void gasnet_memset_nbi(gasnet_node_t node, void *dest, int val, size_t nbytes) {
    const gasnet_handle_t handle = gasnet_memset_nb(node, dest, val, nbytes);
    if (handle != GASNET_INVALID_HANDLE) vgasi_accumulate(handle, VGASI_PUTS);
}

VGASI_INLINE void gasnet_wait_syncnbi_puts(void) { vgasi_wait_implicit(VGASI_PUTS); }
VGASI_INLINE void gasnet_wait_syncnbi_gets(void) { vgasi_wait_implicit(VGASI_GETS); }
VGASI_INLINE void gasnet_wait_syncnbi_all(void) { vgasi_wait_implicit(VGASI_PUTS | VGASI_GETS); }
VGASI_INLINE int gasnet_try_syncnbi_puts(void) { return vgasi_try_implicit(VGASI_PUTS); }
VGASI_INLINE int gasnet_try_syncnbi_gets(void) { return vgasi_try_implicit(VGASI_GETS); }
VGASI_INLINE int gasnet_try_syncnbi_all(void) { return vgasi_try_implicit(VGASI_PUTS | VGASI_GETS); }

/* Implicit operations of this thread between the two belong to the returned handle instead. Regions do not nest. */
VGASI_INLINE void gasnet_begin_nbi_accessregion(void) { vgasi_begin_region(); }
VGASI_INLINE gasnet_handle_t gasnet_end_nbi_accessregion(void) { return vgasi_end_region(); }

/* --- Values (3.3): the low `nbytes` (1 to 8) bytes of a register --- */

VGASI_INLINE void gasnet_put_val(gasnet_node_t node, void *dest, gasnet_register_value_t value, size_t nbytes) {
    gasnet_put(node, dest, VGASI_LOW_BYTES(value, nbytes), nbytes);
}
VGASI_INLINE gasnet_handle_t gasnet_put_nb_val(gasnet_node_t node, void *dest, gasnet_register_value_t value,
                                               size_t nbytes) {
    return gasnet_put_nb(node, dest, VGASI_LOW_BYTES(value, nbytes), nbytes);
}
VGASI_INLINE void gasnet_put_nbi_val(gasnet_node_t node, void *dest, gasnet_register_value_t value, size_t nbytes) {
    gasnet_put_nbi(node, dest, VGASI_LOW_BYTES(value, nbytes), nbytes);
}
/* Extended with zeros. */
VGASI_INLINE gasnet_register_value_t gasnet_get_val(gasnet_node_t node, const void *src, size_t nbytes) {
    gasnet_register_value_t value = 0;
    gasnet_get(VGASI_LOW_BYTES(value, nbytes), node, src, nbytes);
    return value;
}
VGASI_INLINE gasnet_valget_handle_t gasnet_get_nb_val(gasnet_node_t node, const void *src, size_t nbytes) {
    return vgasi_get_value_nb(node, src, nbytes);
}
VGASI_INLINE gasnet_register_value_t gasnet_wait_syncnb_valget(gasnet_valget_handle_t handle) {
    return (gasnet_register_value_t)vgasi_wait_value(handle);
}

/* --- Barriers (3.4): notify, then wait or try until it is over, on every rank in the same order --- */

/* The id means nothing, and matches every id. */
#define GASNET_BARRIERFLAG_ANONYMOUS 1
/* Reports a mismatch to every rank. */
#define GASNET_BARRIERFLAG_MISMATCH 2
/* For barriers of teams (gasnet_coll.h): every image calls, instead of one thread of each rank. */
#define GASNET_BARRIERFLAG_IMAGES 4
/* Anonymous, and so is everybody: faster with other implementations. */
#define GASNET_BARRIERFLAG_UNNAMED (GASNET_BARRIERFLAG_ANONYMOUS | 8)

VGASI_INLINE void gasnet_barrier_notify(int id, int flags) { vgasi_barrier_notify(id, flags); }
/* GASNET_OK, or GASNET_ERR_BARRIER_MISMATCH: the ids of the ranks do not match, or they met under another than `id`, which
 * an anonymous wait does not ask. Either way all ranks have notified. */
VGASI_INLINE int gasnet_barrier_wait(int id, int flags) { return vgasi_barrier_wait(id, flags); }
/* The same, or GASNET_ERR_NOT_READY while ranks are missing. */
VGASI_INLINE int gasnet_barrier_try(int id, int flags) { return vgasi_barrier_try(id, flags); }
/* Of the last barrier that this rank has waited for: 0, and the id in *id, if any rank gave one. */
VGASI_INLINE int gasnet_barrier_result(int *id) { return vgasi_barrier_result(id); }
/* Both halves at once. */
VGASI_INLINE int gasnet_barrier(int id, int flags) {
    vgasi_barrier_notify(id, flags);
    return vgasi_barrier_wait(id, flags);
}

#ifdef __cplusplus
}
#endif
#endif
