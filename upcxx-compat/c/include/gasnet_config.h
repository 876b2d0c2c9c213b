/* How this installation of gasnet.h is configured: versions, conduit, thread mode, segment. What a client chooses
 * (-DGASNET_SEQ, -DGASNET_PARSYNC or -DGASNET_PAR; the conduit) is checked here and again when it is linked. */
#ifndef _GASNET_CONFIG_H
#define _GASNET_CONFIG_H

#include <stdint.h>

/* The major version of the GASNet specification, as clients test it, and the specification that is followed. */
#define GASNET_VERSION 1
#define GASNET_SPEC_VERSION_MAJOR 1
#define GASNET_SPEC_VERSION_MINOR 8
/* The GASNet release with the same interface. */
#define GASNET_RELEASE_VERSION_MAJOR 1
#define GASNET_RELEASE_VERSION_MINOR 32
#define GASNET_RELEASE_VERSION_PATCH 0

#define VGASI_STRING_OF(word) #word
#define VGASI_STRING(word) VGASI_STRING_OF(word)

/* --- Thread mode: exactly one. --- */
#if defined(GASNET_SEQ) + defined(GASNET_PARSYNC) + defined(GASNET_PAR) != 1
#error Define exactly one of GASNET_SEQ, GASNET_PARSYNC and GASNET_PAR (-DGASNET_SEQ)
#endif
/* Defined to 1, so that `#if GASNET_PAR` works also where the client has defined it to nothing. */
#if defined(GASNET_SEQ)
#undef GASNET_SEQ
#define GASNET_SEQ 1
#define VGASI_THREAD_MODE seq
#define VGASI_THREAD_MODE_STR "SEQ"
#elif defined(GASNET_PARSYNC)
#undef GASNET_PARSYNC
#define GASNET_PARSYNC 1
#define VGASI_THREAD_MODE parsync
#define VGASI_THREAD_MODE_STR "PARSYNC"
#else
#undef GASNET_PAR
#define GASNET_PAR 1
#define VGASI_THREAD_MODE par
#define VGASI_THREAD_MODE_STR "PAR"
#endif
#if GASNET_PARSYNC || GASNET_PAR
#define GASNETI_CLIENT_THREADS 1
#define _GASNET_THREADS 1
#define GASNETI_MAX_THREADS 256
#else
#define GASNETI_MAX_THREADS 1
#endif

/* --- Conduit: what the client says, or else that of the first <conduit>-conduit/ where headers are looked for, or else smp. --- */
#if defined(__has_include)
#if __has_include(<vgasi_conduit.h>)
#include <vgasi_conduit.h>
#endif
#endif
#include "vgasi_aliases.h"
#if defined(VGASI_CONDUIT)
/* An alias, which has said everything. */
#elif defined(GASNET_CONDUIT_SMP) + defined(GASNET_CONDUIT_TCP) + defined(GASNET_CONDUIT_IBV) > 1
#error Define only one of GASNET_CONDUIT_SMP, GASNET_CONDUIT_TCP and GASNET_CONDUIT_IBV
#elif defined(GASNET_CONDUIT_IBV)
#undef GASNET_CONDUIT_IBV
#define GASNET_CONDUIT_IBV 1
#define GASNET_CONDUIT_NAME IBV
#define VGASI_CONDUIT ibv
#define VGASI_CONDUIT_NUMBER 3
#elif defined(GASNET_CONDUIT_TCP)
#undef GASNET_CONDUIT_TCP
#define GASNET_CONDUIT_TCP 1
#define GASNET_CONDUIT_NAME TCP
#define VGASI_CONDUIT tcp
#define VGASI_CONDUIT_NUMBER 2
#else
#undef GASNET_CONDUIT_SMP
#define GASNET_CONDUIT_SMP 1
#define GASNET_CONDUIT_NAME SMP
#define VGASI_CONDUIT smp
#define VGASI_CONDUIT_NUMBER 1
#endif
#define GASNET_CONDUIT_NAME_STR VGASI_STRING(GASNET_CONDUIT_NAME)
/* Whose core and extended interface this is, and their versions; clients print them. */
#define GASNET_CORE_NAME GASNET_CONDUIT_NAME
#define GASNET_CORE_NAME_STR GASNET_CONDUIT_NAME_STR
#define GASNET_CORE_VERSION 1.0
#define GASNET_CORE_VERSION_STR VGASI_STRING(GASNET_CORE_VERSION)
#define GASNET_EXTENDED_NAME VGAS
#define GASNET_EXTENDED_NAME_STR VGASI_STRING(GASNET_EXTENDED_NAME)
#define GASNET_EXTENDED_VERSION 1.0
#define GASNET_EXTENDED_VERSION_STR VGASI_STRING(GASNET_EXTENDED_VERSION)

/* --- Segment. FAST: every access to a segment is as fast as any, whatever its size up to the maximum. LARGE is
 * accepted and is the same. EVERYTHING, where all of a process's memory is its segment, is refused: memory outside of a
 * segment has no file and no place in the cache. --- */
#if defined(GASNET_SEGMENT_EVERYTHING)
#error GASNET_SEGMENT_EVERYTHING is not supported: use GASNET_SEGMENT_FAST or GASNET_SEGMENT_LARGE
#elif defined(GASNET_SEGMENT_FAST) && defined(GASNET_SEGMENT_LARGE)
#error Define only one of GASNET_SEGMENT_FAST and GASNET_SEGMENT_LARGE
#elif defined(GASNET_SEGMENT_LARGE)
#undef GASNET_SEGMENT_LARGE
#define GASNET_SEGMENT_LARGE 1
#define VGASI_SEGMENT_STR "LARGE"
#else
#undef GASNET_SEGMENT_FAST
#define GASNET_SEGMENT_FAST 1
#define VGASI_SEGMENT_STR "FAST"
#endif

/* Segments begin where each process has room for them. */
#define GASNET_ALIGNED_SEGMENTS 0

/* Ranks of one node reach each other's pinned segments by loads and stores (gasnet_getNodeInfo tells which). */
#define GASNET_PSHM 1

/* The page of segments and their sizes; not the page of the cache. */
#define GASNET_PAGESIZE 4096

#define GASNET_MAXNODES 4096

#if defined(GASNET_DEBUG)
#undef GASNET_DEBUG
#define GASNET_DEBUG 1
#define VGASI_DEBUG_STR "debug"
#else
#ifndef GASNET_NDEBUG
#define GASNET_NDEBUG 1
#endif
#define VGASI_DEBUG_STR "nodebug"
#endif
/* Neither changes the library; both are what portable clients look at. */
#define VGASI_TRACE_STR "notrace,nostats"

#if UINTPTR_MAX > 0xffffffffu
#define PLATFORM_ARCH_64 1
#define VGASI_POINTER_STR "64bit"
#else
#error vgas needs 64-bit pointers
#endif

#define GASNET_RELEASE_VERSION_STR                                                                                     \
    VGASI_STRING(GASNET_RELEASE_VERSION_MAJOR)                                                                         \
    "." VGASI_STRING(GASNET_RELEASE_VERSION_MINOR) "." VGASI_STRING(GASNET_RELEASE_VERSION_PATCH)
#define GASNET_SPEC_VERSION_STR                                                                                        \
    VGASI_STRING(GASNET_SPEC_VERSION_MAJOR) "." VGASI_STRING(GASNET_SPEC_VERSION_MINOR)

#define GASNET_CONFIG_STRING                                                                                           \
    "RELEASE=" GASNET_RELEASE_VERSION_STR ",SPEC=" GASNET_SPEC_VERSION_STR ",CONDUIT=" GASNET_CONDUIT_NAME_STR         \
    "(" GASNET_CORE_NAME_STR "-" GASNET_CORE_VERSION_STR "/" GASNET_EXTENDED_NAME_STR "-" GASNET_EXTENDED_VERSION_STR  \
    "),THREADMODEL=" VGASI_THREAD_MODE_STR ",SEGMENT=" VGASI_SEGMENT_STR              \
    ",PTR=" VGASI_POINTER_STR ",noalign,pshm," VGASI_DEBUG_STR "," VGASI_TRACE_STR

/* The object that a library of this configuration defines, so that a client compiled for another is not linked. */
#define VGASI_JOIN3_OF(a, b, c) a##b##_##c
#define VGASI_JOIN3(a, b, c) VGASI_JOIN3_OF(a, b, c)
#define VGASI_LINK_SYMBOL VGASI_JOIN3(gasnet_link_configuration_, VGASI_CONDUIT, VGASI_THREAD_MODE)

#endif
