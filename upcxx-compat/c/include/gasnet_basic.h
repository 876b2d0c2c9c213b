/* What needs no library: annotations, branch prediction, preprocessor helpers, facts about this platform.
 *
 * Included by gasnet.h and by gasnet_tools.h. The GASNETT_ names are GASNet's public ones; the GASNETI_ spellings are
 * here because clients, GASNet's own test programs among them, have grown to use them.
 */
#ifndef _GASNET_BASIC_H
#define _GASNET_BASIC_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "portable_platform.h"

/* What GASNet's configure finds out, and its clients read. */
#ifndef HAVE_PTHREAD_H
    #define HAVE_PTHREAD_H 1
#endif
#ifndef HAVE_MMAP
    #define HAVE_MMAP 1
#endif

/* Preprocessor helpers */
#ifndef _STRINGIFY
    #define _STRINGIFY_HELPER(text) #text
    #define _STRINGIFY(text) _STRINGIFY_HELPER(text)
#endif
#ifndef _CONCAT
    #define _CONCAT_HELPER(left, right) left##right
    #define _CONCAT(left, right) _CONCAT_HELPER(left, right)
#endif

#ifdef __cplusplus
    #define GASNETT_BEGIN_EXTERNC extern "C" {
    #define GASNETT_END_EXTERNC }
    #define GASNETT_EXTERNC extern "C"
#else
    #define GASNETT_BEGIN_EXTERNC
    #define GASNETT_END_EXTERNC
    #define GASNETT_EXTERNC
#endif

/* Checks of programs that are compiled with GASNET_DEBUG, and checks always. */
#define gasneti_assert_always(condition) ((condition) ? (void)0 : abort())
#if defined(GASNET_DEBUG)
    #define gasneti_assert(condition) gasneti_assert_always(condition)
#else
    #define gasneti_assert(condition) ((void)0)
#endif

/* Branch prediction: if_pf and if_pt are `if` with the hint that the condition is mostly false or mostly true. */
#define GASNETT_PREDICT_TRUE(condition) __builtin_expect(!!(condition), 1)
#define GASNETT_PREDICT_FALSE(condition) __builtin_expect(!!(condition), 0)
#ifndef PREDICT_TRUE
    #define PREDICT_TRUE(condition) GASNETT_PREDICT_TRUE(condition)
    #define PREDICT_FALSE(condition) GASNETT_PREDICT_FALSE(condition)
#endif
#ifndef if_pf
    #define if_pf(condition) if (GASNETT_PREDICT_FALSE(condition))
    #define if_pt(condition) if (GASNETT_PREDICT_TRUE(condition))
#endif
#define gasnett_constant_p(expression) __builtin_constant_p(expression)

/* Annotations. The ...P(name) forms are pragmas with other compilers and nothing with these. */
#define GASNETT_INLINE(name) static __inline__ __attribute__((__unused__))
#define GASNETT_ALWAYS_INLINE(name) static __inline__ __attribute__((__unused__, __always_inline__))
#define GASNETT_PLEASE_INLINE(name) static __inline__ __attribute__((__unused__))
#define GASNETT_NEVER_INLINE(name, ...) __attribute__((__noinline__)) __VA_ARGS__
#define GASNETT_RESTRICT __restrict__
#define GASNETT_USED __attribute__((__used__))
#define GASNETT_UNUSED __attribute__((__unused__))
#define GASNETT_NORETURN __attribute__((__noreturn__))
#define GASNETT_NORETURNP(name)
#define GASNETT_MALLOC __attribute__((__malloc__))
#define GASNETT_MALLOCP(name)
#define GASNETT_PURE __attribute__((__pure__))
#define GASNETT_PUREP(name)
#define GASNETT_CONST __attribute__((__const__))
#define GASNETT_CONSTP(name)
#define GASNETT_HOT __attribute__((__hot__))
#define GASNETT_COLD __attribute__((__cold__))
#define GASNETT_DEPRECATED __attribute__((__deprecated__))
#define GASNETT_WARN_UNUSED_RESULT __attribute__((__warn_unused_result__))
#define GASNETT_TENTATIVE_EXTERN extern __attribute__((__weak__))
/* GASNETT_FORMAT_PRINTF(name, position of the format, position of its first argument, declarator) */
#define GASNETT_FORMAT_PRINTF(name, format, first, ...) \
    __attribute__((__format__(__printf__, format, first))) __VA_ARGS__
#define GASNETT_FORMAT_PRINTF_FUNCPTR(name, format, first, ...) \
    __attribute__((__format__(__printf__, format, first))) __VA_ARGS__
#ifdef __cplusplus
    #define GASNETT_CURRENT_FUNCTION __PRETTY_FUNCTION__
#else
    #define GASNETT_CURRENT_FUNCTION __func__
#endif
/* Puts a text into the executable, for ident(1): at global scope, `name` unique. */
#define GASNETT_IDENT(name, text) static const char name[] GASNETT_USED = text

/* This platform. The page size is a literal, for use in #if. */
#ifndef GASNET_PAGESIZE
    #define GASNET_PAGESIZE 4096
#endif
#define GASNETT_PAGESIZE GASNET_PAGESIZE
#define GASNETT_PAGESHIFT 12
#if GASNETT_PAGESIZE != 4096
    #error "GASNETT_PAGESHIFT belongs to pages of 4096 bytes"
#endif
#if defined(__aarch64__)
    #define GASNETT_CACHE_LINE_BYTES 128
#else
    #define GASNETT_CACHE_LINE_BYTES 64
#endif
#if defined(__x86_64__)
    #define GASNETT_SYSTEM_TUPLE "x86_64-unknown-linux-gnu"
#elif defined(__aarch64__)
    #define GASNETT_SYSTEM_TUPLE "aarch64-unknown-linux-gnu"
#else
    #define GASNETT_SYSTEM_TUPLE "unknown-unknown-linux-gnu"
#endif
#define GASNETT_CONFIGURE_ARGS ""
#define GASNETT_PLATFORM_COMPILER_IDSTR PLATFORM_COMPILER_IDSTR
#define GASNETT_PLATFORM_COMPILER_FAMILYID PLATFORM_COMPILER_FAMILYID
#define GASNETT_PLATFORM_COMPILER_ID PLATFORM_COMPILER_ID
#define GASNETT_PLATFORM_COMPILER_VERSION PLATFORM_COMPILER_VERSION

/* The spellings with an I. */
#define GASNETI_BEGIN_EXTERNC GASNETT_BEGIN_EXTERNC
#define GASNETI_END_EXTERNC GASNETT_END_EXTERNC
#define GASNETI_EXTERNC GASNETT_EXTERNC
#define GASNETI_INLINE(name) GASNETT_INLINE(name)
#define GASNETI_ALWAYS_INLINE(name) GASNETT_ALWAYS_INLINE(name)
#define GASNETI_PLEASE_INLINE(name) GASNETT_PLEASE_INLINE(name)
#define GASNETI_NEVER_INLINE(name, ...) GASNETT_NEVER_INLINE(name, __VA_ARGS__)
#define GASNETI_RESTRICT GASNETT_RESTRICT
#define GASNETI_USED GASNETT_USED
#define GASNETI_UNUSED GASNETT_UNUSED
#define GASNETI_NORETURN GASNETT_NORETURN
#define GASNETI_NORETURNP(name) GASNETT_NORETURNP(name)
#define GASNETI_MALLOC GASNETT_MALLOC
#define GASNETI_PURE GASNETT_PURE
#define GASNETI_CONST GASNETT_CONST
#define GASNETI_WARN_UNUSED_RESULT GASNETT_WARN_UNUSED_RESULT
#define GASNETI_FORMAT_PRINTF(name, format, first, ...) GASNETT_FORMAT_PRINTF(name, format, first, __VA_ARGS__)
#define GASNETI_CURRENT_FUNCTION GASNETT_CURRENT_FUNCTION
#define GASNETI_IDENT(name, text) GASNETT_IDENT(name, text)
#define GASNETI_CACHE_LINE_BYTES GASNETT_CACHE_LINE_BYTES
#define GASNETI_PAGESIZE GASNETT_PAGESIZE
#define GASNETI_PAGESHIFT GASNETT_PAGESHIFT
#define GASNETI_POWEROFTWO(number) (((number) & ((number) - 1)) == 0)
#define GASNETI_ALIGNDOWN(number, unit) ((uintptr_t)(number) & ~((uintptr_t)(unit) - 1))
#define GASNETI_ALIGNUP(number, unit) GASNETI_ALIGNDOWN((uintptr_t)(number) + (uintptr_t)(unit) - 1, unit)

#endif
