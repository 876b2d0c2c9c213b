/* Puts and gets of many pieces of memory in one operation: vectors, indexed lists, strided sections (GASNet-1's vector,
 * indexed and strided extension).
 *
 * Each exists as put and as get, in three forms:
 *
 *   gasnet_putv_bulk        complete when it returns
 *   gasnet_putv_nb_bulk     complete when its handle was synchronised, with any function for gasnet_handle_t
 *   gasnet_putv_nbi_bulk    complete when the thread's implicit puts (or gets), or its access region, were synchronised
 *
 * Until then the memory must not change; the lists may, when the call has returned. The bytes of the source, in the
 * order of its list, go to the destination, in the order of its list; both have the same number of bytes, their pieces may
 * differ. Pieces of the source may overlap each other, those of the destination must not. Nothing needs to be aligned.
 * Remote pieces lie in the segment of their node; local ones may lie anywhere. Lists of no pieces and pieces of no bytes
 * are allowed everywhere. Lists that disagree on their size, and remote pieces outside of the segment, end the job with a
 * message. Any thread may call, handlers must not.
 */
#ifndef _GASNET_VIS_H
#define _GASNET_VIS_H

#include <gasnet.h>

#include "gasnet_vistypes.h"

GASNETT_BEGIN_EXTERNC

/* How an operation completes: the argument that the library's functions begin with. */
#define _VGASI_BLOCKING 0
#define _VGASI_EXPLICIT 1
#define _VGASI_IMPLICIT 2

extern gasnet_handle_t vgasi_putv(int _completion, gasnet_node_t _dstnode, size_t _dstcount,
                                  gasnet_memvec_t const _dstlist[], size_t _srccount, gasnet_memvec_t const _srclist[]);
extern gasnet_handle_t vgasi_getv(int _completion, size_t _dstcount, gasnet_memvec_t const _dstlist[],
                                  gasnet_node_t _srcnode, size_t _srccount, gasnet_memvec_t const _srclist[]);
extern gasnet_handle_t vgasi_puti(int _completion, gasnet_node_t _dstnode, size_t _dstcount, void *const _dstlist[],
                                  size_t _dstlen, size_t _srccount, void *const _srclist[], size_t _srclen);
extern gasnet_handle_t vgasi_geti(int _completion, size_t _dstcount, void *const _dstlist[], size_t _dstlen,
                                  gasnet_node_t _srcnode, size_t _srccount, void *const _srclist[], size_t _srclen);
extern gasnet_handle_t vgasi_puts(int _completion, gasnet_node_t _dstnode, void *_dstaddr, const size_t _dststrides[],
                                  void *_srcaddr, const size_t _srcstrides[], const size_t _count[],
                                  size_t _stridelevels);
extern gasnet_handle_t vgasi_gets(int _completion, void *_dstaddr, const size_t _dststrides[], gasnet_node_t _srcnode,
                                  void *_srcaddr, const size_t _srcstrides[], const size_t _count[],
                                  size_t _stridelevels);

/* ---- Vectors: pieces of any size ---- */

#define gasnet_putv_bulk(dstnode, dstcount, dstlist, srccount, srclist) \
    ((void)vgasi_putv(_VGASI_BLOCKING, dstnode, dstcount, dstlist, srccount, srclist))
#define gasnet_putv_nb_bulk(dstnode, dstcount, dstlist, srccount, srclist) \
    vgasi_putv(_VGASI_EXPLICIT, dstnode, dstcount, dstlist, srccount, srclist)
#define gasnet_putv_nbi_bulk(dstnode, dstcount, dstlist, srccount, srclist) \
    ((void)vgasi_putv(_VGASI_IMPLICIT, dstnode, dstcount, dstlist, srccount, srclist))
#define gasnet_getv_bulk(dstcount, dstlist, srcnode, srccount, srclist) \
    ((void)vgasi_getv(_VGASI_BLOCKING, dstcount, dstlist, srcnode, srccount, srclist))
#define gasnet_getv_nb_bulk(dstcount, dstlist, srcnode, srccount, srclist) \
    vgasi_getv(_VGASI_EXPLICIT, dstcount, dstlist, srcnode, srccount, srclist)
#define gasnet_getv_nbi_bulk(dstcount, dstlist, srcnode, srccount, srclist) \
    ((void)vgasi_getv(_VGASI_IMPLICIT, dstcount, dstlist, srcnode, srccount, srclist))

/* ---- Indexed: pieces of one size on each side; counts times sizes must be equal ---- */

#define gasnet_puti_bulk(dstnode, dstcount, dstlist, dstlen, srccount, srclist, srclen) \
    ((void)vgasi_puti(_VGASI_BLOCKING, dstnode, dstcount, dstlist, dstlen, srccount, srclist, srclen))
#define gasnet_puti_nb_bulk(dstnode, dstcount, dstlist, dstlen, srccount, srclist, srclen) \
    vgasi_puti(_VGASI_EXPLICIT, dstnode, dstcount, dstlist, dstlen, srccount, srclist, srclen)
#define gasnet_puti_nbi_bulk(dstnode, dstcount, dstlist, dstlen, srccount, srclist, srclen) \
    ((void)vgasi_puti(_VGASI_IMPLICIT, dstnode, dstcount, dstlist, dstlen, srccount, srclist, srclen))
#define gasnet_geti_bulk(dstcount, dstlist, dstlen, srcnode, srccount, srclist, srclen) \
    ((void)vgasi_geti(_VGASI_BLOCKING, dstcount, dstlist, dstlen, srcnode, srccount, srclist, srclen))
#define gasnet_geti_nb_bulk(dstcount, dstlist, dstlen, srcnode, srccount, srclist, srclen) \
    vgasi_geti(_VGASI_EXPLICIT, dstcount, dstlist, dstlen, srcnode, srccount, srclist, srclen)
#define gasnet_geti_nbi_bulk(dstcount, dstlist, dstlen, srcnode, srccount, srclist, srclen) \
    ((void)vgasi_geti(_VGASI_IMPLICIT, dstcount, dstlist, dstlen, srcnode, srccount, srclist, srclen))

/* ---- Strided: count[0] bytes, count[1] times at a distance of strides[0] bytes, all of it count[2] times at a
 * distance of strides[1], and so on up to count[stridelevels]. A count of 0 makes the section empty. Dimensions may come in
 * any order; strides are never negative. ---- */

#define gasnet_puts_bulk(dstnode, dstaddr, dststrides, srcaddr, srcstrides, count, stridelevels) \
    ((void)vgasi_puts(_VGASI_BLOCKING, dstnode, dstaddr, dststrides, srcaddr, srcstrides, count, stridelevels))
#define gasnet_puts_nb_bulk(dstnode, dstaddr, dststrides, srcaddr, srcstrides, count, stridelevels) \
    vgasi_puts(_VGASI_EXPLICIT, dstnode, dstaddr, dststrides, srcaddr, srcstrides, count, stridelevels)
#define gasnet_puts_nbi_bulk(dstnode, dstaddr, dststrides, srcaddr, srcstrides, count, stridelevels) \
    ((void)vgasi_puts(_VGASI_IMPLICIT, dstnode, dstaddr, dststrides, srcaddr, srcstrides, count, stridelevels))
#define gasnet_gets_bulk(dstaddr, dststrides, srcnode, srcaddr, srcstrides, count, stridelevels) \
    ((void)vgasi_gets(_VGASI_BLOCKING, dstaddr, dststrides, srcnode, srcaddr, srcstrides, count, stridelevels))
#define gasnet_gets_nb_bulk(dstaddr, dststrides, srcnode, srcaddr, srcstrides, count, stridelevels) \
    vgasi_gets(_VGASI_EXPLICIT, dstaddr, dststrides, srcnode, srcaddr, srcstrides, count, stridelevels)
#define gasnet_gets_nbi_bulk(dstaddr, dststrides, srcnode, srcaddr, srcstrides, count, stridelevels) \
    ((void)vgasi_gets(_VGASI_IMPLICIT, dstaddr, dststrides, srcnode, srcaddr, srcstrides, count, stridelevels))

GASNETT_END_EXTERNC
#endif
