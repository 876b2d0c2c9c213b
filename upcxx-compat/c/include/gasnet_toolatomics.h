/* Atomic operations and memory barriers of the GASNet tools. Include gasnet_tools.h instead of this file.
 *
 * Three families with the same operations:
 *
 *   gasnett_atomic_t     32 bits, values gasnett_atomic_val_t (unsigned) and gasnett_atomic_sval_t (signed)
 *   gasnett_atomic32_t   32 bits, values uint32_t
 *   gasnett_atomic64_t   64 bits, values uint64_t
 *
 * Numbers wrap around. Every operation but _init takes `flags`, the fences that its caller needs around it; without
 * flags it orders nothing. add and subtract return the new value, swap the old one; compare_and_swap and
 * decrement_and_test return whether they did (nonzero) or did not (0).
 *
 * The operations are atomic in every thread mode and towards signal handlers, so that gasnett_strongatomic_t (atomic
 * whatever the mode) is the same type.
 */
#ifndef _GASNET_TOOLATOMICS_H
#define _GASNET_TOOLATOMICS_H

#if !defined(_IN_GASNET_TOOLS_H)
    #error "include gasnet_tools.h"
#endif

/* ---- Memory barriers ---- */

/* Keeps the compiler from moving memory accesses across it; says nothing to the processor. */
#define gasnett_compiler_fence() __atomic_signal_fence(__ATOMIC_SEQ_CST)
/* All stores before it are visible everywhere before any load or store after it is issued. */
#define gasnett_local_wmb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
/* Loads after it see every store that had become visible before it. */
#define gasnett_local_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
/* Both. */
#define gasnett_local_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
/* The weak forms do nothing in a process without threads. */
#if GASNETT_THREAD_SAFE
    #define gasnett_weak_wmb() gasnett_local_wmb()
    #define gasnett_weak_rmb() gasnett_local_rmb()
    #define gasnett_weak_mb() gasnett_local_mb()
#else
    #define gasnett_weak_wmb() gasnett_compiler_fence()
    #define gasnett_weak_rmb() gasnett_compiler_fence()
    #define gasnett_weak_mb() gasnett_compiler_fence()
#endif
#define GASNETT_MEMBAR_CONFIG gccbuiltins

#if !GASNETT_LITE_MODE

/* ---- Fences around an operation, to be OR-ed together ---- */

#define GASNETT_ATOMIC_NONE 0
#define GASNETT_ATOMIC_RMB_PRE (1 << 0)
#define GASNETT_ATOMIC_WMB_PRE (1 << 1)
#define GASNETT_ATOMIC_MB_PRE (GASNETT_ATOMIC_RMB_PRE | GASNETT_ATOMIC_WMB_PRE)
/* After a compare_and_swap or a decrement_and_test that returns true, or false. */
#define GASNETT_ATOMIC_RMB_POST_IF_TRUE (1 << 2)
#define GASNETT_ATOMIC_RMB_POST_IF_FALSE (1 << 3)
#define GASNETT_ATOMIC_RMB_POST (GASNETT_ATOMIC_RMB_POST_IF_TRUE | GASNETT_ATOMIC_RMB_POST_IF_FALSE)
#define GASNETT_ATOMIC_WMB_POST (1 << 4)
#define GASNETT_ATOMIC_MB_POST (GASNETT_ATOMIC_RMB_POST | GASNETT_ATOMIC_WMB_POST)
#define GASNETT_ATOMIC_REL GASNETT_ATOMIC_WMB_PRE
#define GASNETT_ATOMIC_ACQ GASNETT_ATOMIC_RMB_POST
#define GASNETT_ATOMIC_ACQ_IF_TRUE GASNETT_ATOMIC_RMB_POST_IF_TRUE
#define GASNETT_ATOMIC_ACQ_IF_FALSE GASNETT_ATOMIC_RMB_POST_IF_FALSE

/* A read-modify-write on x86 is a full fence by itself; only the compiler needs to be told. */
#if defined(__x86_64__)
    #define _GASNETT_FENCE_OF_RMW() gasnett_compiler_fence()
#else
    #define _GASNETT_FENCE_OF_RMW() gasnett_local_mb()
#endif

/* The flags are literals nearly always, so that these conditions cost nothing. */
#define _GASNETT_BEFORE(flags, full) \
    do { \
        if ((flags) & GASNETT_ATOMIC_WMB_PRE) full(); \
        else if ((flags) & GASNETT_ATOMIC_RMB_PRE) gasnett_local_rmb(); \
    } while (0)
#define _GASNETT_AFTER(flags, reads, full) \
    do { \
        if ((flags) & GASNETT_ATOMIC_WMB_POST) full(); \
        else if ((flags) & (reads)) gasnett_local_rmb(); \
    } while (0)
#define _GASNETT_AFTER_TEST(flags, outcome) \
    _GASNETT_AFTER(flags, (outcome) ? GASNETT_ATOMIC_RMB_POST_IF_TRUE : GASNETT_ATOMIC_RMB_POST_IF_FALSE, \
                                  _GASNETT_FENCE_OF_RMW)

/* One family: `name` is the prefix of its functions, `value` the type of its numbers. The counter is in a struct so
 * that nobody reads or writes it without these functions. */
#define _GASNETT_ATOMIC_FAMILY(name, value) \
    typedef struct { \
        value _counter; \
    } name##_t; \
    GASNETT_INLINE(name##_read) value name##_read(name##_t const *_atomic, int _flags) { \
        value _result; \
        _GASNETT_BEFORE(_flags, gasnett_local_mb); \
        _result = __atomic_load_n(&_atomic->_counter, __ATOMIC_RELAXED); \
        _GASNETT_AFTER(_flags, GASNETT_ATOMIC_RMB_POST, gasnett_local_mb); \
        return _result; \
    } \
    GASNETT_INLINE(name##_set) void name##_set(name##_t *_atomic, value _new, int _flags) { \
        _GASNETT_BEFORE(_flags, gasnett_local_mb); \
        __atomic_store_n(&_atomic->_counter, _new, __ATOMIC_RELAXED); \
        _GASNETT_AFTER(_flags, GASNETT_ATOMIC_RMB_POST, gasnett_local_mb); \
    } \
    GASNETT_INLINE(name##_add) value name##_add(name##_t *_atomic, value _operand, int _flags) { \
        value _result; \
        _GASNETT_BEFORE(_flags, _GASNETT_FENCE_OF_RMW); \
        _result = __atomic_add_fetch(&_atomic->_counter, _operand, __ATOMIC_RELAXED); \
        _GASNETT_AFTER(_flags, GASNETT_ATOMIC_RMB_POST, _GASNETT_FENCE_OF_RMW); \
        return _result; \
    } \
    GASNETT_INLINE(name##_subtract) value name##_subtract(name##_t *_atomic, value _operand, int _flags) { \
        return name##_add(_atomic, (value)0 - _operand, _flags); \
    } \
    GASNETT_INLINE(name##_increment) void name##_increment(name##_t *_atomic, int _flags) { \
        (void)name##_add(_atomic, (value)1, _flags); \
    } \
    GASNETT_INLINE(name##_decrement) void name##_decrement(name##_t *_atomic, int _flags) { \
        (void)name##_add(_atomic, (value)0 - (value)1, _flags); \
    } \
    GASNETT_INLINE(name##_decrement_and_test) int name##_decrement_and_test(name##_t *_atomic, int _flags) { \
        int _is_zero; \
        _GASNETT_BEFORE(_flags, _GASNETT_FENCE_OF_RMW); \
        _is_zero = __atomic_sub_fetch(&_atomic->_counter, (value)1, __ATOMIC_RELAXED) == 0; \
        _GASNETT_AFTER_TEST(_flags, _is_zero); \
        return _is_zero; \
    } \
    GASNETT_INLINE(name##_compare_and_swap) \
    int name##_compare_and_swap(name##_t *_atomic, value _old, value _new, int _flags) { \
        int _swapped; \
        _GASNETT_BEFORE(_flags, _GASNETT_FENCE_OF_RMW); \
        _swapped = __atomic_compare_exchange_n(&_atomic->_counter, &_old, _new, 0, __ATOMIC_RELAXED,  \
                                               __ATOMIC_RELAXED); \
        _GASNETT_AFTER_TEST(_flags, _swapped); \
        return _swapped; \
    } \
    GASNETT_INLINE(name##_swap) value name##_swap(name##_t *_atomic, value _new, int _flags) { \
        value _old; \
        _GASNETT_BEFORE(_flags, _GASNETT_FENCE_OF_RMW); \
        _old = __atomic_exchange_n(&_atomic->_counter, _new, __ATOMIC_RELAXED); \
        _GASNETT_AFTER(_flags, GASNETT_ATOMIC_RMB_POST, _GASNETT_FENCE_OF_RMW); \
        return _old; \
    }

typedef uint32_t gasnett_atomic_val_t;
typedef int32_t gasnett_atomic_sval_t;

_GASNETT_ATOMIC_FAMILY(gasnett_atomic, gasnett_atomic_val_t)
_GASNETT_ATOMIC_FAMILY(gasnett_atomic32, uint32_t)
_GASNETT_ATOMIC_FAMILY(gasnett_atomic64, uint64_t)

/* Static initialisers: gasnett_atomic_t counter = gasnett_atomic_init(0); */
#define gasnett_atomic_init(number) { (gasnett_atomic_val_t)(number) }
#define gasnett_atomic32_init(number) { (uint32_t)(number) }
#define gasnett_atomic64_init(number) { (uint64_t)(number) }

#define GASNETT_ATOMIC_MAX ((gasnett_atomic_val_t)0xFFFFFFFFU)
#define gasnett_atomic_signed(number) ((gasnett_atomic_sval_t)(number))
#define GASNETT_ATOMIC_SIGNED_MIN ((gasnett_atomic_sval_t)(-0x7FFFFFFF - 1))
#define GASNETT_ATOMIC_SIGNED_MAX ((gasnett_atomic_sval_t)0x7FFFFFFF)

#define GASNETT_HAVE_ATOMIC_CAS 1
#define GASNETT_HAVE_ATOMIC_SWAP 1
#define GASNETT_HAVE_ATOMIC_ADD_SUB 1
#define GASNETT_ATOMIC_CONFIG atomic32native
#define GASNETT_ATOMIC32_CONFIG atomic32native
#define GASNETT_ATOMIC64_CONFIG atomic64native

/* ---- The strong names ---- */

#define GASNETT_HAVE_STRONGATOMIC_CAS 1
#define GASNETT_HAVE_STRONGATOMIC_SWAP 1
#define GASNETT_HAVE_STRONGATOMIC_ADD_SUB 1
#define gasnett_strongatomic_t gasnett_atomic_t
#define gasnett_strongatomic_init(number) gasnett_atomic_init(number)
#define gasnett_strongatomic_read gasnett_atomic_read
#define gasnett_strongatomic_set gasnett_atomic_set
#define gasnett_strongatomic_increment gasnett_atomic_increment
#define gasnett_strongatomic_decrement gasnett_atomic_decrement
#define gasnett_strongatomic_decrement_and_test gasnett_atomic_decrement_and_test
#define gasnett_strongatomic_add gasnett_atomic_add
#define gasnett_strongatomic_subtract gasnett_atomic_subtract
#define gasnett_strongatomic_compare_and_swap gasnett_atomic_compare_and_swap
#define gasnett_strongatomic_swap gasnett_atomic_swap

#define gasnett_strongatomic32_t gasnett_atomic32_t
#define gasnett_strongatomic32_init(number) gasnett_atomic32_init(number)
#define gasnett_strongatomic32_read gasnett_atomic32_read
#define gasnett_strongatomic32_set gasnett_atomic32_set
#define gasnett_strongatomic32_increment gasnett_atomic32_increment
#define gasnett_strongatomic32_decrement gasnett_atomic32_decrement
#define gasnett_strongatomic32_decrement_and_test gasnett_atomic32_decrement_and_test
#define gasnett_strongatomic32_add gasnett_atomic32_add
#define gasnett_strongatomic32_subtract gasnett_atomic32_subtract
#define gasnett_strongatomic32_compare_and_swap gasnett_atomic32_compare_and_swap
#define gasnett_strongatomic32_swap gasnett_atomic32_swap

#define gasnett_strongatomic64_t gasnett_atomic64_t
#define gasnett_strongatomic64_init(number) gasnett_atomic64_init(number)
#define gasnett_strongatomic64_read gasnett_atomic64_read
#define gasnett_strongatomic64_set gasnett_atomic64_set
#define gasnett_strongatomic64_increment gasnett_atomic64_increment
#define gasnett_strongatomic64_decrement gasnett_atomic64_decrement
#define gasnett_strongatomic64_decrement_and_test gasnett_atomic64_decrement_and_test
#define gasnett_strongatomic64_add gasnett_atomic64_add
#define gasnett_strongatomic64_subtract gasnett_atomic64_subtract
#define gasnett_strongatomic64_compare_and_swap gasnett_atomic64_compare_and_swap
#define gasnett_strongatomic64_swap gasnett_atomic64_swap

#endif /* !GASNETT_LITE_MODE */
#endif
