/* The GASNet tools: timers, memory barriers, atomics, locks, environment, backtraces and other things that portable
 * programs need, with or without communication.
 *
 *   with gasnet.h     include gasnet.h first; its thread mode holds
 *   without it        define GASNETT_THREAD_SAFE in programs with threads, GASNETT_LITE_MODE for timers and memory
 *                     barriers only; link libgasnet_tools-par or libgasnet_tools-seq
 *
 * Whatever begins with gasnett_ is public. Some of it are macros; none evaluates an argument twice.
 */
#ifndef _GASNET_TOOLS_H
#define _GASNET_TOOLS_H
#define _IN_GASNET_TOOLS_H
#define _INCLUDED_GASNET_TOOLS_H

#if !defined(_GASNET_H) && (defined(GASNET_SEQ) || defined(GASNET_PARSYNC) || defined(GASNET_PAR))
    #error "programs that use both GASNet and its tools include gasnet.h before gasnet_tools.h"
#endif

/* GASNETT_THREAD_SAFE becomes 1 in programs with threads and stays undefined otherwise. */
#if defined(GASNETT_LITE_MODE)
    #if defined(_GASNET_H)
        #error "GASNETT_LITE_MODE is for programs without gasnet.h"
    #endif
    #undef GASNETT_LITE_MODE
    #define GASNETT_LITE_MODE 1
    /* Barriers must hold whatever the program does with threads. */
    #undef GASNETT_THREAD_SAFE
    #define GASNETT_THREAD_SAFE 1
    #define GASNETT_THREAD_MODEL LITE
#elif defined(GASNETT_THREAD_SAFE) || defined(GASNET_PARSYNC) || defined(GASNET_PAR) || \
    (!defined(GASNET_SEQ) && (defined(_REENTRANT) || defined(_THREAD_SAFE) || defined(PTHREAD_MUTEX_INITIALIZER)))
    #undef GASNETT_THREAD_SAFE
    #define GASNETT_THREAD_SAFE 1
    #define GASNETT_THREAD_MODEL PAR
#else
    #undef GASNETT_THREAD_SAFE
    #define GASNETT_THREAD_MODEL SEQ
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* Clients count on finding it here, as with GASNet's own header. */
#include <unistd.h>

#include "gasnet_basic.h"
#include "gasnet_toolatomics.h"
#include "gasnet_toolhelp.h"
#if !GASNETT_LITE_MODE
    #include "gasnet_toolsync.h"
#endif

/* ---- Versions and configuration ---- */

#define GASNETT_SPEC_VERSION_MAJOR 1
#define GASNETT_SPEC_VERSION_MINOR 15
/* That of gasnet_config.h, which programs without gasnet.h cannot include. */
#define GASNETT_RELEASE_VERSION_MAJOR 1
#define GASNETT_RELEASE_VERSION_MINOR 32
#define GASNETT_RELEASE_VERSION_PATCH 0
#if defined(_GASNET_H) && (GASNETT_RELEASE_VERSION_MAJOR != GASNET_RELEASE_VERSION_MAJOR || \
                           GASNETT_RELEASE_VERSION_MINOR != GASNET_RELEASE_VERSION_MINOR || \
                           GASNETT_RELEASE_VERSION_PATCH != GASNET_RELEASE_VERSION_PATCH)
    #error "gasnet.h and gasnet_tools.h are of different releases"
#endif

/* Threads of one process that may use the library; clients size tables by it. */
#ifndef GASNETT_MAX_THREADS
    #ifdef GASNETI_MAX_THREADS
        #define GASNETT_MAX_THREADS GASNETI_MAX_THREADS
    #else
        #define GASNETT_MAX_THREADS 256
    #endif
#endif

#define GASNETT_DEBUG_CONFIG nodebug
#define GASNETT_PTR_CONFIG 64bit
#define _GASNETT_LITE_CONFIG_STRING \
    "RELEASE=" _STRINGIFY(GASNETT_RELEASE_VERSION_MAJOR) "." _STRINGIFY(GASNETT_RELEASE_VERSION_MINOR) "." \
    _STRINGIFY(GASNETT_RELEASE_VERSION_PATCH) ",SPEC=" _STRINGIFY(GASNETT_SPEC_VERSION_MAJOR) "." \
    _STRINGIFY(GASNETT_SPEC_VERSION_MINOR) ",PTR=" _STRINGIFY(GASNETT_PTR_CONFIG) "," \
    _STRINGIFY(GASNETT_DEBUG_CONFIG) "," _STRINGIFY(GASNETT_THREAD_MODEL) "," _STRINGIFY(GASNETT_TIMER_CONFIG) \
    "," _STRINGIFY(GASNETT_MEMBAR_CONFIG)
#if GASNETT_LITE_MODE
    #define GASNETT_CONFIG_STRING _GASNETT_LITE_CONFIG_STRING
#else
    #define GASNETT_CONFIG_STRING \
        _GASNETT_LITE_CONFIG_STRING "," _STRINGIFY(GASNETT_ATOMIC_CONFIG) "," \
        _STRINGIFY(GASNETT_ATOMIC32_CONFIG) "," _STRINGIFY(GASNETT_ATOMIC64_CONFIG)
#endif

#if !GASNETT_LITE_MODE

/* ---- Assertions ---- */

#define gasnett_assert_always(condition) \
    (GASNETT_PREDICT_TRUE(condition) \
          ? (void)0 \
          : gasnett_fatalerror("Assertion failure at %s:%i: %s", __FILE__, __LINE__, #condition))
#define gasnett_assert(condition) ((void)0)

/* ---- Copies, for clients that tell aligned ones apart ---- */

#define GASNETT_FAST_ALIGNED_MEMCPY(to, from, bytes) memcpy((to), (from), (bytes))
#define GASNETT_FAST_UNALIGNED_MEMCPY(to, from, bytes) memcpy((to), (from), (bytes))

/* ---- Traces and statistics in GASNet's format: not kept, so that nothing is on and everything is nothing ---- */

#define GASNETT_TRACE_SETSOURCELINE(file, line) ((void)0)
#define GASNETT_TRACE_GETSOURCELINE(file, line) ((void)0)
#define GASNETT_TRACE_FREEZESOURCELINE() ((void)0)
#define GASNETT_TRACE_UNFREEZESOURCELINE() ((void)0)
#define GASNETT_TRACE_ENABLED 0
#define GASNETT_TRACE_GETMASK() ""
#define GASNETT_TRACE_SETMASK(mask) ((void)0)
#define GASNETT_TRACE_GET_TRACELOCAL() (0)
#define GASNETT_TRACE_SET_TRACELOCAL(local) ((void)0)
#define GASNETT_TRACE_PRINTF _gasnett_trace_printf_noop
#define GASNETT_TRACE_PRINTF_FORCE _gasnett_trace_printf_noop
#define GASNETT_STATS_INIT(callback) 0
#define GASNETT_STATS_GETMASK() ""
#define GASNETT_STATS_SETMASK(mask) ((void)0)
/* Clients name it, so that compilers do not call it unused. */
GASNETT_FORMAT_PRINTF(_gasnett_trace_printf_noop, 1, 2,
                      GASNETT_UNUSED static void _gasnett_trace_printf_noop(const char *_format, ...)) {
    (void)_format;
}

/* ---- Vectors, lists and strides as text: with gasnet_vis.h ---- */

#if defined(_GASNET_H)
    #include "gasnet_vis.h"

/* ---- Values: the low bytes of a register, as the value forms of put and get move them ---- */

GASNETT_INLINE(_gasnett_value_of) gasnet_register_value_t _gasnett_value_of(const void *_from, size_t _bytes) {
    gasnet_register_value_t _value = 0;
    memcpy(VGASI_LOW_BYTES(_value, _bytes), _from, _bytes);
    return _value;
}
/* Stores the low `bytes` bytes of a value. */
#define GASNETT_VALUE_ASSIGN(to, value, bytes)                                               \
    do {                                                                                     \
        gasnet_register_value_t _gasnett_value = (gasnet_register_value_t)(value);           \
        const size_t _gasnett_bytes = (bytes);                                               \
        memcpy((to), VGASI_LOW_BYTES(_gasnett_value, _gasnett_bytes), _gasnett_bytes);       \
    } while (0)
/* Returns from a function with so many bytes as a value. */
#define GASNETT_VALUE_RETURN(from, bytes) return _gasnett_value_of((from), (bytes))

/* ---- The tests of GASNet's own insides: there are none of these here, so that none is run and none fails ---- */

GASNETT_INLINE(gasnett_diagnostic_gethandlers) void gasnett_diagnostic_gethandlers(gasnet_handlerentry_t **_table,
                                                                                   int *_count) {
    *_table = NULL;
    *_count = 0;
}
/* Returns how many tests have failed. */
GASNETT_INLINE(gasnett_run_diagnostics) int gasnett_run_diagnostics(int _iterations, int _threads,
                                                                    const char *_sections,
                                                                    const gasnet_seginfo_t *_segments) {
    (void)_iterations;
    (void)_threads;
    (void)_sections;
    (void)_segments;
    return 0;
}
#endif

#endif /* !GASNETT_LITE_MODE */

#undef _IN_GASNET_TOOLS_H
#endif
