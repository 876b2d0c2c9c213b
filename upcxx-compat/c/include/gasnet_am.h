/* GASNet-1, active messages: requests and replies of 0 to 16 arguments (specification 1.8, 2.3.3 and 2.3.4).
 *
 * Each function copies or sends its payload before it returns: the source is reusable then, also after a LongAsync. They
 * return GASNET_OK, GASNET_ERR_BAD_ARG for a rank, handler, count, length or address that is not allowed, or
 * GASNET_ERR_NOT_INIT before gasnet_attach. Requests may run handlers while they wait for room; replies never wait.
 * Included by gasnet_core.h. */
#ifndef _GASNET_AM_H
#define _GASNET_AM_H

#define VGASI_LIST(...) __VA_ARGS__

/* The seven functions of `count` arguments. `params` declares them, in parentheses and with a leading comma; `words`
 * declares an array of them. */
#define VGASI_AM_FUNCTIONS(count, params, words)                                                                       \
    VGASI_INLINE int gasnet_AMRequestShort##count(gasnet_node_t dest, gasnet_handler_t handler                         \
         VGASI_LIST params) {                                                                                          \
        VGASI_LIST words;                                                                                              \
        return vgasi_request_short(dest, handler, count, words_);                                                      \
    }                                                                                                                  \
    VGASI_INLINE int gasnet_AMRequestMedium##count(gasnet_node_t dest, gasnet_handler_t handler                        \
        , const void *source_addr, size_t nbytes VGASI_LIST params) {                                                  \
        VGASI_LIST words;                                                                                              \
        return vgasi_request_medium(dest, handler, source_addr, nbytes, count, words_);                                \
    }                                                                                                                  \
    VGASI_INLINE int gasnet_AMRequestLong##count(gasnet_node_t dest, gasnet_handler_t handler                          \
        , const void *source_addr, size_t nbytes, void *dest_addr VGASI_LIST params) {                                 \
        VGASI_LIST words;                                                                                              \
        return vgasi_request_long(dest, handler, source_addr, nbytes, dest_addr, count, words_);                       \
    }                                                                                                                  \
    VGASI_INLINE int gasnet_AMRequestLongAsync##count(gasnet_node_t dest, gasnet_handler_t handler                     \
        , const void *source_addr, size_t nbytes, void *dest_addr VGASI_LIST params) {                                 \
        VGASI_LIST words;                                                                                              \
        return vgasi_request_long(dest, handler, source_addr, nbytes, dest_addr, count, words_);                       \
    }                                                                                                                  \
    VGASI_INLINE int gasnet_AMReplyShort##count(gasnet_token_t token, gasnet_handler_t handler                         \
         VGASI_LIST params) {                                                                                          \
        VGASI_LIST words;                                                                                              \
        return vgasi_reply_short(token, handler, count, words_);                                                       \
    }                                                                                                                  \
    VGASI_INLINE int gasnet_AMReplyMedium##count(gasnet_token_t token, gasnet_handler_t handler                        \
        , const void *source_addr, size_t nbytes VGASI_LIST params) {                                                  \
        VGASI_LIST words;                                                                                              \
        return vgasi_reply_medium(token, handler, source_addr, nbytes, count, words_);                                 \
    }                                                                                                                  \
    VGASI_INLINE int gasnet_AMReplyLong##count(gasnet_token_t token, gasnet_handler_t handler                          \
        , const void *source_addr, size_t nbytes, void *dest_addr VGASI_LIST params) {                                 \
        VGASI_LIST words;                                                                                              \
        return vgasi_reply_long(token, handler, source_addr, nbytes, dest_addr, count, words_);                        \
    }

VGASI_AM_FUNCTIONS(0, (), (const gasnet_handlerarg_t *const words_ = NULL))
VGASI_AM_FUNCTIONS(1, (, gasnet_handlerarg_t a0), (const gasnet_handlerarg_t words_[] = {a0}))
VGASI_AM_FUNCTIONS(2, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1), (const gasnet_handlerarg_t words_[] = {a0,
                   a1}))
VGASI_AM_FUNCTIONS(3, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2), (const
                   gasnet_handlerarg_t words_[] = {a0, a1, a2}))
VGASI_AM_FUNCTIONS(4, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3), (const gasnet_handlerarg_t words_[] = {a0, a1, a2, a3}))
VGASI_AM_FUNCTIONS(5, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4), (const gasnet_handlerarg_t words_[] = {a0, a1, a2, a3, a4}))
VGASI_AM_FUNCTIONS(6, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5), (const gasnet_handlerarg_t words_[] = {a0, a1,
                   a2, a3, a4, a5}))
VGASI_AM_FUNCTIONS(7, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6), (const
                   gasnet_handlerarg_t words_[] = {a0, a1, a2, a3, a4, a5, a6}))
VGASI_AM_FUNCTIONS(8, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6, gasnet_handlerarg_t
                   a7), (const gasnet_handlerarg_t words_[] = {a0, a1, a2, a3, a4, a5, a6, a7}))
VGASI_AM_FUNCTIONS(9, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6, gasnet_handlerarg_t a7,
                   gasnet_handlerarg_t a8), (const gasnet_handlerarg_t words_[] = {a0, a1, a2, a3, a4, a5, a6, a7,
                   a8}))
VGASI_AM_FUNCTIONS(10, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6, gasnet_handlerarg_t a7,
                   gasnet_handlerarg_t a8, gasnet_handlerarg_t a9), (const gasnet_handlerarg_t words_[] = {a0, a1, a2,
                   a3, a4, a5, a6, a7, a8, a9}))
VGASI_AM_FUNCTIONS(11, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6, gasnet_handlerarg_t a7,
                   gasnet_handlerarg_t a8, gasnet_handlerarg_t a9, gasnet_handlerarg_t a10), (const
                   gasnet_handlerarg_t words_[] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10}))
VGASI_AM_FUNCTIONS(12, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6, gasnet_handlerarg_t a7,
                   gasnet_handlerarg_t a8, gasnet_handlerarg_t a9, gasnet_handlerarg_t a10, gasnet_handlerarg_t a11),
                   (const gasnet_handlerarg_t words_[] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11}))
VGASI_AM_FUNCTIONS(13, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6, gasnet_handlerarg_t a7,
                   gasnet_handlerarg_t a8, gasnet_handlerarg_t a9, gasnet_handlerarg_t a10, gasnet_handlerarg_t a11,
                   gasnet_handlerarg_t a12), (const gasnet_handlerarg_t words_[] = {a0, a1, a2, a3, a4, a5, a6, a7,
                   a8, a9, a10, a11, a12}))
VGASI_AM_FUNCTIONS(14, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6, gasnet_handlerarg_t a7,
                   gasnet_handlerarg_t a8, gasnet_handlerarg_t a9, gasnet_handlerarg_t a10, gasnet_handlerarg_t a11,
                   gasnet_handlerarg_t a12, gasnet_handlerarg_t a13), (const gasnet_handlerarg_t words_[] = {a0, a1,
                   a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13}))
VGASI_AM_FUNCTIONS(15, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6, gasnet_handlerarg_t a7,
                   gasnet_handlerarg_t a8, gasnet_handlerarg_t a9, gasnet_handlerarg_t a10, gasnet_handlerarg_t a11,
                   gasnet_handlerarg_t a12, gasnet_handlerarg_t a13, gasnet_handlerarg_t a14), (const
                   gasnet_handlerarg_t words_[] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14}))
VGASI_AM_FUNCTIONS(16, (, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2, gasnet_handlerarg_t
                   a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6, gasnet_handlerarg_t a7,
                   gasnet_handlerarg_t a8, gasnet_handlerarg_t a9, gasnet_handlerarg_t a10, gasnet_handlerarg_t a11,
                   gasnet_handlerarg_t a12, gasnet_handlerarg_t a13, gasnet_handlerarg_t a14, gasnet_handlerarg_t
                   a15), (const gasnet_handlerarg_t words_[] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12,
                   a13, a14, a15}))
#undef VGASI_AM_FUNCTIONS

/* The forms that take the number of arguments: with `numargs` arguments, each an int, after it. */
VGASI_INLINE void vgasi_read_words(gasnet_handlerarg_t *words, int count, va_list list) {
    int index;
    for (index = 0; index < count; index++) words[index] = va_arg(list, gasnet_handlerarg_t);
}
static __inline__ __attribute__((__unused__)) int gasnet_AMRequestShort(gasnet_node_t dest, gasnet_handler_t handler,
    int numargs, ...) {
    gasnet_handlerarg_t words[16];
    va_list list;
    if (numargs < 0 || numargs > 16) return GASNET_ERR_BAD_ARG;
    va_start(list, numargs);
    vgasi_read_words(words, numargs, list);
    va_end(list);
    return vgasi_request_short(dest, handler, numargs, words);
}
static __inline__ __attribute__((__unused__)) int gasnet_AMRequestMedium(gasnet_node_t dest, gasnet_handler_t handler, const void *source_addr, size_t nbytes,
    int numargs, ...) {
    gasnet_handlerarg_t words[16];
    va_list list;
    if (numargs < 0 || numargs > 16) return GASNET_ERR_BAD_ARG;
    va_start(list, numargs);
    vgasi_read_words(words, numargs, list);
    va_end(list);
    return vgasi_request_medium(dest, handler, source_addr, nbytes, numargs, words);
}
static __inline__ __attribute__((__unused__)) int gasnet_AMRequestLong(gasnet_node_t dest, gasnet_handler_t handler, const void *source_addr, size_t nbytes, void *dest_addr,
    int numargs, ...) {
    gasnet_handlerarg_t words[16];
    va_list list;
    if (numargs < 0 || numargs > 16) return GASNET_ERR_BAD_ARG;
    va_start(list, numargs);
    vgasi_read_words(words, numargs, list);
    va_end(list);
    return vgasi_request_long(dest, handler, source_addr, nbytes, dest_addr, numargs, words);
}
static __inline__ __attribute__((__unused__)) int gasnet_AMRequestLongAsync(gasnet_node_t dest, gasnet_handler_t handler, const void *source_addr, size_t nbytes, void *dest_addr,
    int numargs, ...) {
    gasnet_handlerarg_t words[16];
    va_list list;
    if (numargs < 0 || numargs > 16) return GASNET_ERR_BAD_ARG;
    va_start(list, numargs);
    vgasi_read_words(words, numargs, list);
    va_end(list);
    return vgasi_request_long(dest, handler, source_addr, nbytes, dest_addr, numargs, words);
}
static __inline__ __attribute__((__unused__)) int gasnet_AMReplyShort(gasnet_token_t token, gasnet_handler_t handler,
    int numargs, ...) {
    gasnet_handlerarg_t words[16];
    va_list list;
    if (numargs < 0 || numargs > 16) return GASNET_ERR_BAD_ARG;
    va_start(list, numargs);
    vgasi_read_words(words, numargs, list);
    va_end(list);
    return vgasi_reply_short(token, handler, numargs, words);
}
static __inline__ __attribute__((__unused__)) int gasnet_AMReplyMedium(gasnet_token_t token, gasnet_handler_t handler, const void *source_addr, size_t nbytes,
    int numargs, ...) {
    gasnet_handlerarg_t words[16];
    va_list list;
    if (numargs < 0 || numargs > 16) return GASNET_ERR_BAD_ARG;
    va_start(list, numargs);
    vgasi_read_words(words, numargs, list);
    va_end(list);
    return vgasi_reply_medium(token, handler, source_addr, nbytes, numargs, words);
}
static __inline__ __attribute__((__unused__)) int gasnet_AMReplyLong(gasnet_token_t token, gasnet_handler_t handler, const void *source_addr, size_t nbytes, void *dest_addr,
    int numargs, ...) {
    gasnet_handlerarg_t words[16];
    va_list list;
    if (numargs < 0 || numargs > 16) return GASNET_ERR_BAD_ARG;
    va_start(list, numargs);
    vgasi_read_words(words, numargs, list);
    va_end(list);
    return vgasi_reply_long(token, handler, source_addr, nbytes, dest_addr, numargs, words);
}

#endif
