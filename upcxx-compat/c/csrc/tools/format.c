/* Lists of memory as text. A buffer's size is that of the longest text there can be; nothing is written beyond it. */
#include "tools.h"

#include <gasnet_vistypes.h>
#include <stdio.h>

/* "[0x0123456789abcdef,18446744073709551615], " */
#define PIECE_BYTES 48u
/* The text around the pieces: numbers of at most 20 digits. */
#define FRAME_BYTES 160u

/* A buffer that is being filled. */
struct text {
    char *at;
    char *end;
};

GASNETT_FORMAT_PRINTF(append, 2, 3, static void append(struct text *text, const char *format, ...));
static void append(struct text *text, const char *format, ...) {
    size_t const room = (size_t)(text->end - text->at);
    va_list arguments;
    va_start(arguments, format);
    int const written = vsnprintf(text->at, room, format, arguments);
    va_end(arguments);
    if (written > 0) text->at += (size_t)written < room ? (size_t)written : room - 1;
}

static struct text begin(char *buffer, size_t bytes) {
  *buffer = '\0';
    return (struct text){buffer, buffer + bytes};
}

static void cover(void **first, void **last, void *address, size_t bytes) {
    char *const end = (char *)address + bytes - 1;
    if (bytes == 0) return;
    if (*first == NULL || (char *)address < (char *)*first) *first = address;
    if (*last == NULL || end > (char *)*last) *last = end;
}

size_t gasnett_format_memveclist_bufsz(size_t count) {
    return FRAME_BYTES + count * PIECE_BYTES;
}

static gasneti_memveclist_stats_t append_memveclist(struct text *text, size_t count, gasnet_memvec_t const *list) {
    gasneti_memveclist_stats_t stats = {count == 0 ? 0 : (size_t)-1, 0, 0, NULL, NULL};
    for (size_t i = 0; i < count; i++) {
        if (list[i].len < stats.minsz) stats.minsz = list[i].len;
        if (list[i].len > stats.maxsz) stats.maxsz = list[i].len;
        stats.totalsz += list[i].len;
        cover(&stats.minaddr, &stats.maxaddr, list[i].addr, list[i].len);
    }
    append(text, "%zu entries, totalsz=%zu, bounds=[%p..%p], list=[", count, (size_t)stats.totalsz, stats.minaddr,
           stats.maxaddr);
    for (size_t i = 0; i < count; i++) append(text, "%s[%p,%zu]", i == 0 ? "" : ", ", list[i].addr, list[i].len);
    append(text, "]");
    return stats;
}

gasneti_memveclist_stats_t gasnett_format_memveclist(char *buffer, size_t count, gasnet_memvec_t const *list) {
    struct text text = begin(buffer, gasnett_format_memveclist_bufsz(count));
    return append_memveclist(&text, count, list);
}

size_t gasnett_format_putvgetv_bufsz(size_t dstcount, size_t srccount) {
    return FRAME_BYTES + gasnett_format_memveclist_bufsz(dstcount) + gasnett_format_memveclist_bufsz(srccount);
}

size_t gasnett_format_putvgetv(char *buffer, uint32_t node, size_t dstcount, gasnet_memvec_t const dstlist[],
                               size_t srccount,
                               gasnet_memvec_t const srclist[]) {
    struct text text = begin(buffer, gasnett_format_putvgetv_bufsz(dstcount, srccount));
    append(&text, "(node=%" PRIu32 ") dst: ", node);
    gasneti_memveclist_stats_t const stats = append_memveclist(&text, dstcount, dstlist);
    append(&text, "; src: ");
    append_memveclist(&text, srccount, srclist);
    return stats.totalsz;
}

size_t gasnett_format_addrlist_bufsz(size_t count) {
    return FRAME_BYTES + count * PIECE_BYTES;
}

static gasneti_addrlist_stats_t append_addrlist(struct text *text, size_t count, void *const *list, size_t len) {
    gasneti_addrlist_stats_t stats = {NULL, NULL};
    for (size_t i = 0; i < count; i++) cover(&stats.minaddr, &stats.maxaddr, list[i], len);
    append(text, "%zu entries, totalsz=%zu, len=%zu, bounds=[%p..%p], list=[", count, count * len, len, stats.minaddr,
                  stats.maxaddr);
    for (size_t i = 0; i < count; i++) append(text, "%s%p", i == 0 ? "" : ", ", list[i]);
    append(text, "]");
    return stats;
}

gasneti_addrlist_stats_t gasnett_format_addrlist(char *buffer, size_t count, void *const *list, size_t len) {
    struct text text = begin(buffer, gasnett_format_addrlist_bufsz(count));
    return append_addrlist(&text, count, list, len);
}

size_t gasnett_format_putigeti_bufsz(size_t dstcount, size_t srccount) {
    return FRAME_BYTES + gasnett_format_addrlist_bufsz(dstcount) + gasnett_format_addrlist_bufsz(srccount);
}

size_t gasnett_format_putigeti(char *buffer, uint32_t node, size_t dstcount, void *const dstlist[], size_t dstlen,
                               size_t srccount, void *const srclist[], size_t srclen) {
    struct text text = begin(buffer, gasnett_format_putigeti_bufsz(dstcount, srccount));
    append(&text, "(node=%" PRIu32 ") dst: ", node);
    append_addrlist(&text, dstcount, dstlist, dstlen);
    append(&text, "; src: ");
    append_addrlist(&text, srccount, srclist, srclen);
    return dstcount * dstlen;
}

size_t gasnett_format_strides_bufsz(size_t count) {
    return FRAME_BYTES + count * PIECE_BYTES;
}

static void append_strides(struct text *text, size_t count, const size_t *list) {
    append(text, "[");
    for (size_t i = 0; i < count; i++) append(text, "%s%zu", i == 0 ? "" : ", ", list[i]);
    append(text, "]");
}

void gasnett_format_strides(char *buffer, size_t count, const size_t *list) {
    struct text text = begin(buffer, gasnett_format_strides_bufsz(count));
    append_strides(&text, count, list);
}

size_t gasnett_format_putsgets_bufsz(size_t stridelevels) {
    size_t const counts = gasnett_format_strides_bufsz(stridelevels + 1);
    return FRAME_BYTES + counts + 2 * gasnett_format_strides_bufsz(stridelevels);
}

size_t gasnett_format_putsgets(char *buffer, void *stats, uint32_t node, void *dstaddr, const size_t dststrides[],
                               void *srcaddr, const size_t srcstrides[], const size_t count[], size_t stridelevels) {
    struct text text = begin(buffer, gasnett_format_putsgets_bufsz(stridelevels));
    size_t bytes = 1;
    (void)stats;
    for (size_t i = 0; i <= stridelevels; i++) bytes *= count[i];
    append(&text, "(node=%" PRIu32 ") stridelevels=%zu, totalsz=%zu, count=", node, stridelevels, bytes);
    append_strides(&text, stridelevels + 1, count);
    append(&text, "; dst: %p, strides=", dstaddr);
    append_strides(&text, stridelevels, dststrides);
    append(&text, "; src: %p, strides=", srcaddr);
    append_strides(&text, stridelevels, srcstrides);
    return bytes;
}
