/* Puts and gets as both interfaces offer them: copied here where loads and stores reach the segment, or where its pages are
 * cached; what is left is the library's. Internal, as vgasi.h. */
#ifndef VGASI_TRANSFER_H
#define VGASI_TRANSFER_H

#include "vgasi_hit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where neither a mapped segment nor a hit within one page did all of it. Operations go over pages in order, so the library
 * is asked for the rest from the first page on that is no hit. */
VGASI_APART void vgasi_put_apart(uint32_t rank, char *to, const char *from, size_t bytes) {
    const size_t done = vgasi_put_pages(rank, to, from, bytes);
    if (done < bytes) vgasi_put(rank, to + done, from + done, bytes - done);
}
VGASI_APART void vgasi_get_apart(char *to, uint32_t rank, const char *from, size_t bytes) {
    const size_t done = vgasi_get_pages(to, rank, from, bytes);
    if (done < bytes) vgasi_get(to + done, rank, from + done, bytes - done);
}
VGASI_APART vgasi_handle_t vgasi_start_put_apart(uint32_t rank, char *to, const char *from, size_t bytes, int source_stays) {
    const size_t done = vgasi_put_pages(rank, to, from, bytes);
    return done < bytes ? vgasi_put_nb(rank, to + done, from + done, bytes - done, source_stays) : NULL;
}
VGASI_APART vgasi_handle_t vgasi_start_get_apart(char *to, uint32_t rank, const char *from, size_t bytes) {
    const size_t done = vgasi_get_pages(to, rank, from, bytes);
    return done < bytes ? vgasi_get_nb(to + done, rank, from + done, bytes - done) : NULL;
}

/* Complete when they return. Sizes of registers are single moves, which nobody sees half done. */
VGASI_INLINE void vgasi_put_now(uint32_t rank, void *to, const void *from, size_t bytes) {
    char *here;
    if (vgasi_put_word(rank, to, from, bytes)) return;
    here = vgasi_reach(rank, to, bytes);
    if (VGASI_LIKELY(here != NULL)) memcpy(here, from, bytes);
    else if (!vgasi_put_hit(rank, to, from, bytes)) vgasi_put_apart(rank, (char *)to, (const char *)from, bytes);
}
VGASI_INLINE void vgasi_get_now(void *to, uint32_t rank, const void *from, size_t bytes) {
    const char *here;
    if (vgasi_get_word(to, rank, from, bytes)) return;
    here = vgasi_reach(rank, from, bytes);
    if (VGASI_LIKELY(here != NULL)) memcpy(to, here, bytes);
    else if (!vgasi_get_hit(to, rank, from, bytes)) vgasi_get_apart((char *)to, rank, (const char *)from, bytes);
}

/* Complete when the handle has been waited for; null: now. The source of a put stays as it is until then if it says so, and
 * else only until this returns. */
VGASI_INLINE vgasi_handle_t vgasi_start_put(uint32_t rank, void *to, const void *from, size_t bytes, int source_stays) {
    char *here;
    if (vgasi_put_word(rank, to, from, bytes)) return NULL;
    here = vgasi_reach(rank, to, bytes);
    if (VGASI_LIKELY(here != NULL)) memcpy(here, from, bytes);
    else if (!vgasi_put_hit(rank, to, from, bytes))
        return vgasi_start_put_apart(rank, (char *)to, (const char *)from, bytes, source_stays);
    return NULL;
}
VGASI_INLINE vgasi_handle_t vgasi_start_get(void *to, uint32_t rank, const void *from, size_t bytes) {
    const char *here;
    if (vgasi_get_word(to, rank, from, bytes)) return NULL;
    here = vgasi_reach(rank, from, bytes);
    if (VGASI_LIKELY(here != NULL)) memcpy(to, here, bytes);
    else if (!vgasi_get_hit(to, rank, from, bytes))
        return vgasi_start_get_apart((char *)to, rank, (const char *)from, bytes);
    return NULL;
}

#ifdef __cplusplus
}
#endif
#endif
