/* Collective operations and teams of GASNet-1.
 *
 * Every node of a team calls the same collectives in the same order; any number of them may be in flight, on any number
 * of teams. A *team* is GASNET_TEAM_ALL or made by gasnet_coll_team_split; its nodes have positions in it (*ranks*). An
 * *image* is what takes part on its own: a node, or one of several threads of it in GASNET_TEAM_ALL, if
 * gasnet_coll_init says so; all images of a node call. In teams that were split, and with GASNET_COLL_NO_IMAGES, a node is one image.
 * Roots are images.
 *
 * Addresses are valid at the image that they belong to, in the segment or not:
 *
 *   GASNET_COLL_LOCAL     each caller gives its own; a list of the multi-address (M) forms has the images of this node
 *   GASNET_COLL_SINGLE    all callers give the same; a list has all images of the team
 *
 * In which moments others have done their part:
 *
 *   GASNET_COLL_IN_ALLSYNC   nothing is read or written before all nodes have called
 *   GASNET_COLL_IN_MYSYNC    nothing of a node is read or written before it has called
 *   GASNET_COLL_OUT_ALLSYNC  when it is complete anywhere, everything has been read and written everywhere
 *   GASNET_COLL_OUT_MYSYNC   when it is complete here, this node's memory has been read and written
 *
 * The NOSYNC forms promise less and are the same as MYSYNC here; so is giving none. Operations of the _nb forms go on
 * in gasnet_AMPoll and in everything that waits or synchronises; they are complete when their handle was synchronised, by
 * any thread of the node. Until then memory and lists must not change. Nodes that disagree on an operation end the job
 * with a message. Handlers must not call.
 */
#ifndef _GASNET_COLL_H
#define _GASNET_COLL_H

#include <gasnet.h>

#include "gasnet_basic.h"

GASNETT_BEGIN_EXTERNC

/* With other implementations, clients pass thread data on to gasnete_ functions by these. */
#ifndef GASNETE_THREAD_GET
    #define GASNETE_THREAD_FARG_ALONE void
    #define GASNETE_THREAD_FARG
    #define GASNETE_THREAD_GET_ALONE
    #define GASNETE_THREAD_GET
    #define GASNETE_THREAD_PASS_ALONE
    #define GASNETE_THREAD_PASS
#endif

/* ---- Flags ---- */

#define GASNET_COLL_IN_NOSYNC (1 << 0)
#define GASNET_COLL_IN_MYSYNC (1 << 1)
#define GASNET_COLL_IN_ALLSYNC (1 << 2)
#define GASNET_COLL_OUT_NOSYNC (1 << 3)
#define GASNET_COLL_OUT_MYSYNC (1 << 4)
#define GASNET_COLL_OUT_ALLSYNC (1 << 5)
#define GASNET_COLL_SYNC_FLAG_MASK 0x3F
#define GASNET_COLL_SINGLE (1 << 6)
#define GASNET_COLL_LOCAL (1 << 7)
/* The operation has no handle of its own: it belongs to that of this thread's next operation without the flag. */
#define GASNET_COLL_AGGREGATE (1 << 8)
/* Hints, which change nothing here. */
#define GASNET_COLL_FIXED_THREADS_PER_NODE (1 << 9)
#define GASNET_COLL_DST_IN_SEGMENT (1 << 10)
#define GASNET_COLL_SRC_IN_SEGMENT (1 << 11)
#define GASNET_COLL_REDUCE_OP_SUM (1 << 12)
#define GASNET_COLL_REDUCE_OP_MAX (1 << 13)
#define GASNET_COLL_REDUCE_OP_MIN (1 << 14)
#define GASNET_COLL_REDUCE_OP_CUSTOM (1 << 15)
/* A scan at an image includes that image's operands, or does not. */
#define GASNET_COLL_INCLUSIVE_SCAN (1 << 16)
#define GASNET_COLL_EXCLUSIVE_SCAN (1 << 17)
#define GASNET_COLL_DISABLE_AUTOTUNE (1 << 18)
#define GASNET_COLL_NO_IMAGES (1 << 19)

/* ---- Types ---- */

typedef uint32_t gasnet_image_t;
/* An operation in flight; null is one that is complete. */
typedef struct gasnet_coll_handle_t_ *gasnet_coll_handle_t;
#define GASNET_COLL_INVALID_HANDLE ((gasnet_coll_handle_t)0)

/* A team: null stands for all. */
struct gasnete_coll_team_t_;
typedef struct gasnete_coll_team_t_ *gasnete_coll_team_t;
typedef gasnete_coll_team_t gasnet_team_handle_t;
extern gasnet_team_handle_t gasnete_coll_team_all;
#define GASNET_TEAM_ALL gasnete_coll_team_all

/* Index of a function in the table given to gasnet_coll_init. */
typedef gasnet_handlerarg_t gasnet_coll_fn_handle_t;

/* Combines operands: results[i] = left_operands[0] + ... + left_operands[left_count - 1] + right_operands[0] + ... +
 * right_operands[i]. Reductions and scans here call it for one operand on each side, with the left one from the lower
 * images; it must be associative, and may but need not be commutative. The three do not overlap. `flags` are those of
 * its entry, `arg` is the func_arg of the call. */
typedef void (*gasnet_coll_reduce_fn_t)(void *results, size_t result_count, const void *left_operands,
                                        size_t left_count, const void *right_operands, size_t elem_size, int flags,
                                        int arg);
/* It may run in handlers; otherwise it runs in threads that poll, wait or synchronise. */
#define GASNET_COLL_AMSAFE (1 << 0)
/* It does not commute: operands are combined in the order of images, always. */
#define GASNET_COLL_NONCOMM (1 << 1)
typedef struct {
    gasnet_coll_reduce_fn_t fnptr;
    unsigned int flags;
} gasnet_coll_fn_entry_t;

/* ---- Initialisation ---- */

/* Called by each node, or by each image, before collectives. `images`: how many images each node has, equal everywhere;
 * NULL for one each, which is all that GASNET_SEQ has. `my_image`: which one the calling thread is. `fn_tbl`: functions
 * of reductions; copied, and as many of them everywhere. `init_flags` is 0. */
extern void gasnete_coll_init(const gasnet_image_t _images[], gasnet_image_t _my_image,
                              gasnet_coll_fn_entry_t _fn_tbl[], size_t _fn_count, int _init_flags);
#define gasnet_coll_init(images, my_image, fn_tbl, fn_count, init_flags) \
    gasnete_coll_init(images, my_image, fn_tbl, fn_count, init_flags)

/* What has been learned about which algorithm is fast, and how long operations took, written to a file: there is nothing to
 * write, and no file is made. */
#define gasnet_coll_dumpTuningState(filename, team) ((void)(filename), (void)(team))
#define gasnet_coll_dumpProfile(filename, team) ((void)(filename), (void)(team))

/* ---- Teams ---- */

/* Splits a team: one new team for each color, its nodes in the order of relrank. Collective over the parent; blocks.
 * Scratch space (a gasnet_seginfo_t), which other implementations need, may be NULL. */
extern gasnet_team_handle_t gasnete_coll_team_split(gasnete_coll_team_t _parent, gasnet_node_t _color,
                                                    gasnet_node_t _relrank, void *_scratch);
#define gasnet_coll_team_split(parent, color, relrank, scratch) gasnete_coll_team_split(parent, color, relrank, scratch)
/* Makes a team of the nodes of a list, of which this is the one at `_myrank`. Collective over these; does not block. */
extern gasnet_team_handle_t gasnete_coll_team_create(uint32_t _total_ranks, gasnet_node_t _myrank,
                                                     gasnet_node_t *_rel2act_map, gasnet_seginfo_t *_scratch_segs);
/* Gives a team up, when its operations are complete. */
extern void gasnete_coll_team_free(gasnet_team_handle_t _team);
/* Number of nodes; the node at a position; the position of a node, which must be a member; that of this node. */
extern gasnet_node_t gasnete_coll_team_size(gasnete_coll_team_t _team);
extern gasnet_node_t gasnete_coll_team_rank2node(gasnete_coll_team_t _team, int _rank);
extern gasnet_node_t gasnete_coll_team_node2rank(gasnete_coll_team_t _team, gasnet_node_t _node);
extern gasnet_node_t gasnete_coll_team_myrank(gasnete_coll_team_t _team);
#define gasnet_coll_team_size(team) gasnete_coll_team_size(team)
#define gasnet_coll_team_rank2node(team, rank) gasnete_coll_team_rank2node(team, rank)
#define gasnet_coll_team_node2rank(team, node) gasnete_coll_team_node2rank(team, node)
#define gasnet_coll_team_myrank(team) gasnete_coll_team_myrank(team)

/* ---- Synchronisation: as for gasnet_handle_t. Handles in a table that were synchronised become invalid ---- */

extern int gasnete_coll_try_sync(gasnet_coll_handle_t _handle);
extern int gasnete_coll_try_sync_some(gasnet_coll_handle_t *_handles, size_t _count);
extern int gasnete_coll_try_sync_all(gasnet_coll_handle_t *_handles, size_t _count);
extern void gasnete_coll_wait_sync(gasnet_coll_handle_t _handle);
extern void gasnete_coll_wait_sync_some(gasnet_coll_handle_t *_handles, size_t _count);
extern void gasnete_coll_wait_sync_all(gasnet_coll_handle_t *_handles, size_t _count);
#define gasnet_coll_try_sync(handle) gasnete_coll_try_sync(handle)
#define gasnet_coll_try_sync_some(handles, count) gasnete_coll_try_sync_some(handles, count)
#define gasnet_coll_try_sync_all(handles, count) gasnete_coll_try_sync_all(handles, count)
#define gasnet_coll_wait_sync(handle) gasnete_coll_wait_sync(handle)
#define gasnet_coll_wait_sync_some(handles, count) gasnete_coll_wait_sync_some(handles, count)
#define gasnet_coll_wait_sync_all(handles, count) gasnete_coll_wait_sync_all(handles, count)

/* ---- Barriers of teams: as gasnet_barrier_notify and its likes, one thread of each node calling, or, with
 * GASNET_BARRIERFLAG_IMAGES, all images of each node ---- */

extern void gasnete_coll_barrier_notify(gasnete_coll_team_t _team, int _id, int _flags);
extern int gasnete_coll_barrier_try(gasnete_coll_team_t _team, int _id, int _flags);
extern int gasnete_coll_barrier_wait(gasnete_coll_team_t _team, int _id, int _flags);
extern int gasnete_coll_barrier(gasnete_coll_team_t _team, int _id, int _flags);
/* 0, and the name in *_id, if the last barrier had one. */
extern int gasnete_coll_barrier_result(gasnete_coll_team_t _team, int *_id);
#define gasnet_coll_barrier_notify(team, id, flags) gasnete_coll_barrier_notify(team, id, flags)
#define gasnet_coll_barrier_try(team, id, flags) gasnete_coll_barrier_try(team, id, flags)
#define gasnet_coll_barrier_wait(team, id, flags) gasnete_coll_barrier_wait(team, id, flags)
#define gasnet_coll_barrier(team, id, flags) gasnete_coll_barrier(team, id, flags)
#define gasnet_coll_barrier_result(team, id) gasnete_coll_barrier_result(team, id)
#define gasnete_coll_teambarrier_notify(team) gasnete_coll_barrier_notify(team, 0, GASNET_BARRIERFLAG_ANONYMOUS)
#define gasnete_coll_teambarrier_wait(team) ((void)gasnete_coll_barrier_wait(team, 0, GASNET_BARRIERFLAG_ANONYMOUS))

/* ---- The operations: what the functions below call ---- */

#define _VGASI_BROADCAST 0
#define _VGASI_SCATTER 1
#define _VGASI_GATHER 2
#define _VGASI_GATHER_ALL 3
#define _VGASI_EXCHANGE 4
extern gasnet_coll_handle_t vgasi_coll_move(int _operation, gasnet_team_handle_t _team, gasnet_image_t _root,
                                            void *_dst, int _dst_is_list, void *_src, int _src_is_list,
                                            size_t _nbytes, int _flags);
extern gasnet_coll_handle_t vgasi_coll_combine(int _is_scan, gasnet_team_handle_t _team, gasnet_image_t _root,
                                               void *_dst, int _dst_is_list, void *_src, int _src_is_list,
                                               size_t _elem_size, size_t _elem_count,
                                               gasnet_coll_fn_handle_t _func, int _func_arg, int _flags);

/* ---- broadcast: nbytes bytes at src of the root image go to dst of every image ---- */

VGASI_INLINE gasnet_coll_handle_t gasnet_coll_broadcast_nb(gasnet_team_handle_t _team, void *_dst,
                                                           gasnet_image_t _srcimage, void *_src, size_t _nbytes,
                                                           int _flags) {
    return vgasi_coll_move(_VGASI_BROADCAST, _team, _srcimage, _dst, 0, _src, 0, _nbytes, _flags);
}
VGASI_INLINE void gasnet_coll_broadcast(gasnet_team_handle_t _team, void *_dst, gasnet_image_t _srcimage, void *_src,
                                        size_t _nbytes, int _flags) {
    gasnete_coll_wait_sync(vgasi_coll_move(_VGASI_BROADCAST, _team, _srcimage, _dst, 0, _src, 0, _nbytes, _flags));
}
VGASI_INLINE gasnet_coll_handle_t gasnet_coll_broadcastM_nb(gasnet_team_handle_t _team, void *const _dstlist[],
                                                            gasnet_image_t _srcimage, void *_src, size_t _nbytes,
                                                            int _flags) {
    return vgasi_coll_move(_VGASI_BROADCAST, _team, _srcimage, (void *)(uintptr_t)_dstlist, 1, _src, 0, _nbytes,
                           _flags);
}
VGASI_INLINE void gasnet_coll_broadcastM(gasnet_team_handle_t _team, void *const _dstlist[], gasnet_image_t _srcimage,
                                         void *_src, size_t _nbytes, int _flags) {
    gasnete_coll_wait_sync(vgasi_coll_move(_VGASI_BROADCAST, _team, _srcimage, (void *)(uintptr_t)_dstlist, 1, _src, 0,
                                           _nbytes, _flags));
}

/* ---- scatter: src of the root image has a block of nbytes bytes for each image, which goes to its dst ---- */

VGASI_INLINE gasnet_coll_handle_t gasnet_coll_scatter_nb(gasnet_team_handle_t _team, void *_dst,
                                                         gasnet_image_t _srcimage, void *_src, size_t _nbytes,
                                                         int _flags) {
    return vgasi_coll_move(_VGASI_SCATTER, _team, _srcimage, _dst, 0, _src, 0, _nbytes, _flags);
}
VGASI_INLINE void gasnet_coll_scatter(gasnet_team_handle_t _team, void *_dst, gasnet_image_t _srcimage, void *_src,
                                      size_t _nbytes, int _flags) {
    gasnete_coll_wait_sync(vgasi_coll_move(_VGASI_SCATTER, _team, _srcimage, _dst, 0, _src, 0, _nbytes, _flags));
}
VGASI_INLINE gasnet_coll_handle_t gasnet_coll_scatterM_nb(gasnet_team_handle_t _team, void *const _dstlist[],
                                                          gasnet_image_t _srcimage, void *_src, size_t _nbytes,
                                                          int _flags) {
    return vgasi_coll_move(_VGASI_SCATTER, _team, _srcimage, (void *)(uintptr_t)_dstlist, 1, _src, 0, _nbytes, _flags);
}
VGASI_INLINE void gasnet_coll_scatterM(gasnet_team_handle_t _team, void *const _dstlist[], gasnet_image_t _srcimage,
                                       void *_src, size_t _nbytes, int _flags) {
    gasnete_coll_wait_sync(vgasi_coll_move(_VGASI_SCATTER, _team, _srcimage, (void *)(uintptr_t)_dstlist, 1, _src, 0,
                                           _nbytes, _flags));
}

/* ---- gather: nbytes bytes at src of every image go to dst of the root image, in the order of images ---- */

VGASI_INLINE gasnet_coll_handle_t gasnet_coll_gather_nb(gasnet_team_handle_t _team, gasnet_image_t _dstimage,
                                                        void *_dst, void *_src, size_t _nbytes, int _flags) {
    return vgasi_coll_move(_VGASI_GATHER, _team, _dstimage, _dst, 0, _src, 0, _nbytes, _flags);
}
VGASI_INLINE void gasnet_coll_gather(gasnet_team_handle_t _team, gasnet_image_t _dstimage, void *_dst, void *_src,
                                     size_t _nbytes, int _flags) {
    gasnete_coll_wait_sync(vgasi_coll_move(_VGASI_GATHER, _team, _dstimage, _dst, 0, _src, 0, _nbytes, _flags));
}
VGASI_INLINE gasnet_coll_handle_t gasnet_coll_gatherM_nb(gasnet_team_handle_t _team, gasnet_image_t _dstimage,
                                                         void *_dst, void *const _srclist[], size_t _nbytes,
                                                         int _flags) {
    return vgasi_coll_move(_VGASI_GATHER, _team, _dstimage, _dst, 0, (void *)(uintptr_t)_srclist, 1, _nbytes, _flags);
}
VGASI_INLINE void gasnet_coll_gatherM(gasnet_team_handle_t _team, gasnet_image_t _dstimage, void *_dst,
                                      void *const _srclist[], size_t _nbytes, int _flags) {
    gasnete_coll_wait_sync(vgasi_coll_move(_VGASI_GATHER, _team, _dstimage, _dst, 0, (void *)(uintptr_t)_srclist, 1,
                                           _nbytes, _flags));
}

/* ---- gather_all: nbytes bytes at src of every image go to dst of every image, in the order of images ---- */

VGASI_INLINE gasnet_coll_handle_t gasnet_coll_gather_all_nb(gasnet_team_handle_t _team, void *_dst, void *_src,
                                                            size_t _nbytes, int _flags) {
    return vgasi_coll_move(_VGASI_GATHER_ALL, _team, 0, _dst, 0, _src, 0, _nbytes, _flags);
}
VGASI_INLINE void gasnet_coll_gather_all(gasnet_team_handle_t _team, void *_dst, void *_src, size_t _nbytes,
                                         int _flags) {
    gasnete_coll_wait_sync(vgasi_coll_move(_VGASI_GATHER_ALL, _team, 0, _dst, 0, _src, 0, _nbytes, _flags));
}
VGASI_INLINE gasnet_coll_handle_t gasnet_coll_gather_allM_nb(gasnet_team_handle_t _team, void *const _dstlist[],
                                                             void *const _srclist[], size_t _nbytes, int _flags) {
    return vgasi_coll_move(_VGASI_GATHER_ALL, _team, 0, (void *)(uintptr_t)_dstlist, 1, (void *)(uintptr_t)_srclist, 1,
                           _nbytes, _flags);
}
VGASI_INLINE void gasnet_coll_gather_allM(gasnet_team_handle_t _team, void *const _dstlist[], void *const _srclist[],
                                          size_t _nbytes, int _flags) {
    gasnete_coll_wait_sync(vgasi_coll_move(_VGASI_GATHER_ALL, _team, 0, (void *)(uintptr_t)_dstlist, 1,
                                           (void *)(uintptr_t)_srclist, 1, _nbytes, _flags));
}

/* ---- exchange: src of every image has a block of nbytes bytes for each image; dst gets one from each ---- */

VGASI_INLINE gasnet_coll_handle_t gasnet_coll_exchange_nb(gasnet_team_handle_t _team, void *_dst, void *_src,
                                                          size_t _nbytes, int _flags) {
    return vgasi_coll_move(_VGASI_EXCHANGE, _team, 0, _dst, 0, _src, 0, _nbytes, _flags);
}
VGASI_INLINE void gasnet_coll_exchange(gasnet_team_handle_t _team, void *_dst, void *_src, size_t _nbytes, int _flags) {
    gasnete_coll_wait_sync(vgasi_coll_move(_VGASI_EXCHANGE, _team, 0, _dst, 0, _src, 0, _nbytes, _flags));
}
VGASI_INLINE gasnet_coll_handle_t gasnet_coll_exchangeM_nb(gasnet_team_handle_t _team, void *const _dstlist[],
                                                           void *const _srclist[], size_t _nbytes, int _flags) {
    return vgasi_coll_move(_VGASI_EXCHANGE, _team, 0, (void *)(uintptr_t)_dstlist, 1, (void *)(uintptr_t)_srclist, 1,
                           _nbytes, _flags);
}
VGASI_INLINE void gasnet_coll_exchangeM(gasnet_team_handle_t _team, void *const _dstlist[], void *const _srclist[],
                                        size_t _nbytes, int _flags) {
    gasnete_coll_wait_sync(vgasi_coll_move(_VGASI_EXCHANGE, _team, 0, (void *)(uintptr_t)_dstlist, 1,
                                           (void *)(uintptr_t)_srclist, 1, _nbytes, _flags));
}

/* ---- reduce: src of every image has elem_count elements; dst of the root image gets as many, each combined over all
 * images. Block sizes and offsets, which would say how a distributed array is laid out, mean nothing here, as in GASNet's
 * own implementation: an image's operands are the elements at its src, whatever they are ---- */

VGASI_INLINE gasnet_coll_handle_t gasnet_coll_reduce_nb(gasnet_team_handle_t _team, gasnet_image_t _dstimage,
                                                        void *_dst, void *_src, size_t _src_blksz, size_t _src_offset,
                                                        size_t _elem_size, size_t _elem_count,
                                                        gasnet_coll_fn_handle_t _func, int _func_arg, int _flags) {
    (void)_src_blksz;
    (void)_src_offset;
    return vgasi_coll_combine(0, _team, _dstimage, _dst, 0, _src, 0, _elem_size, _elem_count, _func, _func_arg, _flags);
}
VGASI_INLINE void gasnet_coll_reduce(gasnet_team_handle_t _team, gasnet_image_t _dstimage, void *_dst, void *_src,
                                     size_t _src_blksz, size_t _src_offset, size_t _elem_size, size_t _elem_count,
                                     gasnet_coll_fn_handle_t _func, int _func_arg, int _flags) {
    gasnete_coll_wait_sync(gasnet_coll_reduce_nb(_team, _dstimage, _dst, _src, _src_blksz, _src_offset, _elem_size,
                                                 _elem_count, _func, _func_arg, _flags));
}
VGASI_INLINE gasnet_coll_handle_t gasnet_coll_reduceM_nb(gasnet_team_handle_t _team, gasnet_image_t _dstimage,
                                                         void *_dst, void *const _srclist[], size_t _src_blksz,
                                                         size_t _src_offset, size_t _elem_size, size_t _elem_count,
                                                         gasnet_coll_fn_handle_t _func, int _func_arg, int _flags) {
    (void)_src_blksz;
    (void)_src_offset;
    return vgasi_coll_combine(0, _team, _dstimage, _dst, 0, (void *)(uintptr_t)_srclist, 1, _elem_size, _elem_count,
                              _func, _func_arg, _flags);
}
VGASI_INLINE void gasnet_coll_reduceM(gasnet_team_handle_t _team, gasnet_image_t _dstimage, void *_dst,
                                      void *const _srclist[], size_t _src_blksz, size_t _src_offset, size_t _elem_size,
                                      size_t _elem_count, gasnet_coll_fn_handle_t _func, int _func_arg, int _flags) {
    gasnete_coll_wait_sync(gasnet_coll_reduceM_nb(_team, _dstimage, _dst, _srclist, _src_blksz, _src_offset,
                                                  _elem_size, _elem_count, _func, _func_arg, _flags));
}

/* ---- scan: the same, with dst of every image combined over the images up to it; an exclusive one leaves dst of image
 * 0 as it is ---- */

VGASI_INLINE gasnet_coll_handle_t gasnet_coll_scan_nb(gasnet_team_handle_t _team, void *_dst, size_t _dst_blksz,
                                                      size_t _dst_offset, void *_src, size_t _src_blksz,
                                                      size_t _src_offset, size_t _elem_size, size_t _elem_count,
                                                      gasnet_coll_fn_handle_t _func, int _func_arg, int _flags) {
    (void)_dst_blksz;
    (void)_dst_offset;
    (void)_src_blksz;
    (void)_src_offset;
    return vgasi_coll_combine(1, _team, 0, _dst, 0, _src, 0, _elem_size, _elem_count, _func, _func_arg, _flags);
}
VGASI_INLINE void gasnet_coll_scan(gasnet_team_handle_t _team, void *_dst, size_t _dst_blksz, size_t _dst_offset,
                                   void *_src, size_t _src_blksz, size_t _src_offset, size_t _elem_size,
                                   size_t _elem_count, gasnet_coll_fn_handle_t _func, int _func_arg, int _flags) {
    gasnete_coll_wait_sync(gasnet_coll_scan_nb(_team, _dst, _dst_blksz, _dst_offset, _src, _src_blksz, _src_offset,
                                               _elem_size, _elem_count, _func, _func_arg, _flags));
}
VGASI_INLINE gasnet_coll_handle_t gasnet_coll_scanM_nb(gasnet_team_handle_t _team, void *const _dstlist[],
                                                       size_t _dst_blksz, size_t _dst_offset, void *const _srclist[],
                                                       size_t _src_blksz, size_t _src_offset, size_t _elem_size,
                                                       size_t _elem_count, gasnet_coll_fn_handle_t _func, int _func_arg,
                                                       int _flags) {
    (void)_dst_blksz;
    (void)_dst_offset;
    (void)_src_blksz;
    (void)_src_offset;
    return vgasi_coll_combine(1, _team, 0, (void *)(uintptr_t)_dstlist, 1, (void *)(uintptr_t)_srclist, 1, _elem_size,
                              _elem_count, _func, _func_arg, _flags);
}
VGASI_INLINE void gasnet_coll_scanM(gasnet_team_handle_t _team, void *const _dstlist[], size_t _dst_blksz,
                                    size_t _dst_offset, void *const _srclist[], size_t _src_blksz, size_t _src_offset,
                                    size_t _elem_size, size_t _elem_count, gasnet_coll_fn_handle_t _func, int _func_arg,
                                    int _flags) {
    gasnete_coll_wait_sync(gasnet_coll_scanM_nb(_team, _dstlist, _dst_blksz, _dst_offset, _srclist, _src_blksz,
                                                _src_offset, _elem_size, _elem_count, _func, _func_arg, _flags));
}

GASNETT_END_EXTERNC
#endif
