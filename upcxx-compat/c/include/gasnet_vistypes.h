/* Lists of memory, and writing them as text. Include gasnet_vis.h instead of this file. */
#ifndef _GASNET_VISTYPES_H
#define _GASNET_VISTYPES_H

#include "gasnet_basic.h"

GASNETT_BEGIN_EXTERNC

/* So many bytes at an address. Without bytes the address means nothing. */
typedef struct {
    void *addr;
    size_t len;
} gasnet_memvec_t;

/* What a list covers: of bytes the least, the most and the sum of a piece, and the first and last address. */
typedef struct {
    size_t minsz;
    size_t maxsz;
    uintptr_t totalsz;
    void *minaddr;
    void *maxaddr;
} gasneti_memveclist_stats_t;
typedef struct {
    void *minaddr;
    void *maxaddr;
} gasneti_addrlist_stats_t;

/* For messages to people. Each text goes into a buffer of as many bytes as its _bufsz function says. `_node` is where
 * the remote list is. */
extern size_t gasnett_format_memveclist_bufsz(size_t _count);
extern gasneti_memveclist_stats_t gasnett_format_memveclist(char *_buffer, size_t _count, gasnet_memvec_t const *_list);
extern size_t gasnett_format_putvgetv_bufsz(size_t _dstcount, size_t _srccount);
extern size_t gasnett_format_putvgetv(char *_buffer, uint32_t _node, size_t _dstcount, gasnet_memvec_t const _dstlist[],
                                      size_t _srccount, gasnet_memvec_t const _srclist[]);
extern size_t gasnett_format_addrlist_bufsz(size_t _count);
extern gasneti_addrlist_stats_t gasnett_format_addrlist(char *_buffer, size_t _count, void *const *_list, size_t _len);
extern size_t gasnett_format_putigeti_bufsz(size_t _dstcount, size_t _srccount);
extern size_t gasnett_format_putigeti(char *_buffer, uint32_t _node, size_t _dstcount, void *const _dstlist[],
                                      size_t _dstlen, size_t _srccount, void *const _srclist[], size_t _srclen);
extern size_t gasnett_format_strides_bufsz(size_t _count);
extern void gasnett_format_strides(char *_buffer, size_t _count, const size_t *_list);
extern size_t gasnett_format_putsgets_bufsz(size_t _stridelevels);
/* `_stats` is not used and may be NULL. Returns the bytes of the transfer, as its likes above do. */
extern size_t gasnett_format_putsgets(char *_buffer, void *_stats, uint32_t _node, void *_dstaddr,
                                      const size_t _dststrides[], void *_srcaddr, const size_t _srcstrides[],
                                      const size_t _count[], size_t _stridelevels);

GASNETT_END_EXTERNC
#endif
