/* Active message handlers whose arguments are pointers and sizes, of whatever width: each takes one argument where
 * pointers have 32 bits and two where they have 64. For clients that include it beside gasnet.h:
 *
 *   SHORT_HANDLER(name, n32, n64, args32, args64)   defines the handler that calls `name_inner` with args64
 *   SHORT_REQ(n32, n64, (node, index, PACK(p)))     sends it, each PACK being as many arguments as a pointer needs
 *   gasneti_handleridx(name)                        the name of its index, which the client defines
 *   gasneti_handler_tableentry_with_bits(name)      its entry in the table for gasnet_attach
 */
#ifndef _GASNET_HANDLER_H
#define _GASNET_HANDLER_H

#ifndef _GASNET_H
#include "gasnet.h"
#endif

/* `, gasnet_handlerarg_t a0, ...` and `, a0, ...`: so many arguments. */
#define ARGS0
#define ARGS1 ARGS0, gasnet_handlerarg_t a0
#define ARGS2 ARGS1, gasnet_handlerarg_t a1
#define ARGS3 ARGS2, gasnet_handlerarg_t a2
#define ARGS4 ARGS3, gasnet_handlerarg_t a3
#define ARGS5 ARGS4, gasnet_handlerarg_t a4
#define ARGS6 ARGS5, gasnet_handlerarg_t a5
#define ARGS7 ARGS6, gasnet_handlerarg_t a6
#define ARGS8 ARGS7, gasnet_handlerarg_t a7
#define ARGS9 ARGS8, gasnet_handlerarg_t a8
#define ARGS10 ARGS9, gasnet_handlerarg_t a9
#define ARGS11 ARGS10, gasnet_handlerarg_t a10
#define ARGS12 ARGS11, gasnet_handlerarg_t a11
#define ARGS13 ARGS12, gasnet_handlerarg_t a12
#define ARGS14 ARGS13, gasnet_handlerarg_t a13
#define ARGS15 ARGS14, gasnet_handlerarg_t a14
#define ARGS16 ARGS15, gasnet_handlerarg_t a15
#define ARGNAMES0
#define ARGNAMES1 ARGNAMES0, a0
#define ARGNAMES2 ARGNAMES1, a1
#define ARGNAMES3 ARGNAMES2, a2
#define ARGNAMES4 ARGNAMES3, a3
#define ARGNAMES5 ARGNAMES4, a4
#define ARGNAMES6 ARGNAMES5, a5
#define ARGNAMES7 ARGNAMES6, a6
#define ARGNAMES8 ARGNAMES7, a7
#define ARGNAMES9 ARGNAMES8, a8
#define ARGNAMES10 ARGNAMES9, a9
#define ARGNAMES11 ARGNAMES10, a10
#define ARGNAMES12 ARGNAMES11, a11
#define ARGNAMES13 ARGNAMES12, a12
#define ARGNAMES14 ARGNAMES13, a13
#define ARGNAMES15 ARGNAMES14, a14
#define ARGNAMES16 ARGNAMES15, a15

/* The halves of an integer or pointer as arguments, and what they make together. */
#define VGASI_HIGH_WORD(value) ((gasnet_handlerarg_t)(uint32_t)((uint64_t)(uintptr_t)(value) >> 32))
#define VGASI_LOW_WORD(value) ((gasnet_handlerarg_t)(uint32_t)(uintptr_t)(value))
#define PACK(pointer) VGASI_HIGH_WORD(pointer), VGASI_LOW_WORD(pointer)
#define UNPACK2(high, low) ((void *)(uintptr_t)(((uint64_t)(uint32_t)(high) << 32) | (uint32_t)(low)))

/* Requests and replies with as many arguments as this width needs; `args` in parentheses. */
#define SHORT_REQ(n32, n64, args) gasnet_AMRequestShort##n64 args
#define SHORT_REP(n32, n64, args) gasnet_AMReplyShort##n64 args
#define MEDIUM_REQ(n32, n64, args) gasnet_AMRequestMedium##n64 args
#define MEDIUM_REP(n32, n64, args) gasnet_AMReplyMedium##n64 args
#define LONG_REQ(n32, n64, args) gasnet_AMRequestLong##n64 args
#define LONG_REP(n32, n64, args) gasnet_AMReplyLong##n64 args
#define LONGASYNC_REQ(n32, n64, args) gasnet_AMRequestLongAsync##n64 args

/* Storage class of the handlers; a client may define it to `static` before. */
#ifndef GASNETI_HANDLER_SCOPE
#define GASNETI_HANDLER_SCOPE extern
#endif

/* Handlers: their declarations and definitions. A definition is followed by a semicolon, which the declaration at its
 * end takes. Those of medium and long messages are of one type. */
#define SHORT_HANDLER_NOBITS_DECL(name, count) GASNETI_HANDLER_SCOPE void name(gasnet_token_t token ARGS##count)
#define MEDIUM_HANDLER_NOBITS_DECL(name, count)                                                                        \
    GASNETI_HANDLER_SCOPE void name(gasnet_token_t token, void *addr, size_t nbytes ARGS##count)
#define SHORT_HANDLER_DECL(name, n32, n64) GASNETI_HANDLER_SCOPE void name##_64(gasnet_token_t token ARGS##n64)
#define MEDIUM_HANDLER_DECL(name, n32, n64)                                                                            \
    GASNETI_HANDLER_SCOPE void name##_64(gasnet_token_t token, void *addr, size_t nbytes ARGS##n64)
#define SHORT_HANDLER(name, n32, n64, args32, args64)                                                                  \
    GASNETI_HANDLER_SCOPE void name##_64(gasnet_token_t token ARGS##n64) { name##_inner args64; }                      \
    struct vgasi_handler_##name
#define MEDIUM_HANDLER(name, n32, n64, args32, args64)                                                                 \
    GASNETI_HANDLER_SCOPE void name##_64(gasnet_token_t token, void *addr, size_t nbytes ARGS##n64) {                  \
        name##_inner args64;                                                                                           \
    }                                                                                                                  \
    struct vgasi_handler_##name
#define LONG_HANDLER MEDIUM_HANDLER
#define LONG_HANDLER_DECL MEDIUM_HANDLER_DECL
#define LONG_HANDLER_NOBITS_DECL MEDIUM_HANDLER_NOBITS_DECL

/* Entries of the table for gasnet_attach. */
typedef void (*gasneti_handler_fn_t)();
#define gasneti_handleridx(name) _hidx_##name
#define gasneti_handler_tableentry_no_bits(name) {gasneti_handleridx(name), (gasneti_handler_fn_t)name}
#define gasneti_handler_tableentry_with_bits(name) {gasneti_handleridx(name), (gasneti_handler_fn_t)name##_64}

#endif
