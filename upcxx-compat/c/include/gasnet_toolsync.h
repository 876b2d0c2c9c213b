/* Locks, condition variables and thread-specific data of the GASNet tools. Include gasnet_tools.h instead of this file.
 *
 * With GASNETT_THREAD_SAFE they are what their names say. Without it the process has one thread, and they are empty;
 * a lock that could not be had would be a deadlock, so the try forms succeed.
 */
#ifndef _GASNET_TOOLSYNC_H
#define _GASNET_TOOLSYNC_H

#if !defined(_IN_GASNET_TOOLS_H)
    #error "include gasnet_tools.h"
#endif

#include <errno.h>

#if GASNETT_THREAD_SAFE

#include <pthread.h>

/* ---- Mutexes and condition variables: not recursive; try returns 0 or EBUSY ---- */

typedef pthread_mutex_t gasnett_mutex_t;
#define GASNETT_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define gasnett_mutex_init(mutex) ((void)pthread_mutex_init((mutex), NULL))
#define gasnett_mutex_destroy(mutex) ((void)pthread_mutex_destroy(mutex))
#define gasnett_mutex_destroy_ignoreerr(mutex) pthread_mutex_destroy(mutex)
#define gasnett_mutex_lock(mutex) ((void)pthread_mutex_lock(mutex))
#define gasnett_mutex_trylock(mutex) pthread_mutex_trylock(mutex)
#define gasnett_mutex_unlock(mutex) ((void)pthread_mutex_unlock(mutex))

typedef pthread_cond_t gasnett_cond_t;
#define GASNETT_COND_INITIALIZER PTHREAD_COND_INITIALIZER
#define gasnett_cond_init(condition) ((void)pthread_cond_init((condition), NULL))
#define gasnett_cond_destroy(condition) ((void)pthread_cond_destroy(condition))
#define gasnett_cond_wait(condition, mutex) ((void)pthread_cond_wait((condition), (mutex)))
#define gasnett_cond_signal(condition) ((void)pthread_cond_signal(condition))
#define gasnett_cond_broadcast(condition) ((void)pthread_cond_broadcast(condition))

/* ---- Locks for many readers or one writer; try returns 0 or EBUSY ---- */

/* A pthread_rwlock_t, whose type strict C99 hides. The library checks that it fits. */
typedef struct {
    uint64_t _lock[8];
} gasnett_rwlock_t;
#define GASNETT_RWLOCK_INITIALIZER { { 0, 0, 0, 0, 0, 0, 0, 0 } }
GASNETT_BEGIN_EXTERNC
extern void gasnett_rwlock_init(gasnett_rwlock_t *_lock);
extern void gasnett_rwlock_destroy(gasnett_rwlock_t *_lock);
extern void gasnett_rwlock_rdlock(gasnett_rwlock_t *_lock);
extern void gasnett_rwlock_wrlock(gasnett_rwlock_t *_lock);
extern int gasnett_rwlock_tryrdlock(gasnett_rwlock_t *_lock);
extern int gasnett_rwlock_trywrlock(gasnett_rwlock_t *_lock);
extern void gasnett_rwlock_unlock(gasnett_rwlock_t *_lock);
GASNETT_END_EXTERNC

#define _GASNETT_THREAD_LOCAL __thread

#else /* one thread */

typedef char gasnett_mutex_t;
#define GASNETT_MUTEX_INITIALIZER 0
#define gasnett_mutex_init(mutex) ((void)(mutex))
#define gasnett_mutex_destroy(mutex) ((void)(mutex))
#define gasnett_mutex_destroy_ignoreerr(mutex) ((void)(mutex), 0)
#define gasnett_mutex_lock(mutex) ((void)(mutex))
#define gasnett_mutex_trylock(mutex) ((void)(mutex), 0)
#define gasnett_mutex_unlock(mutex) ((void)(mutex))

typedef char gasnett_cond_t;
#define GASNETT_COND_INITIALIZER 0
#define gasnett_cond_init(condition) ((void)(condition))
#define gasnett_cond_destroy(condition) ((void)(condition))
#define gasnett_cond_signal(condition) ((void)(condition))
#define gasnett_cond_broadcast(condition) ((void)(condition))
/* Nobody could ever signal. */
#define gasnett_cond_wait(condition, mutex) \
    ((void)(condition), (void)(mutex), gasnett_fatalerror("gasnett_cond_wait in a process without threads"))

typedef char gasnett_rwlock_t;
#define GASNETT_RWLOCK_INITIALIZER 0
#define gasnett_rwlock_init(lock) ((void)(lock))
#define gasnett_rwlock_destroy(lock) ((void)(lock))
#define gasnett_rwlock_rdlock(lock) ((void)(lock))
#define gasnett_rwlock_wrlock(lock) ((void)(lock))
#define gasnett_rwlock_tryrdlock(lock) ((void)(lock), 0)
#define gasnett_rwlock_trywrlock(lock) ((void)(lock), 0)
#define gasnett_rwlock_unlock(lock) ((void)(lock))

#define _GASNETT_THREAD_LOCAL

#endif

/* Checked by GASNet in its debug builds only, of which there is none here. */
#define gasnett_mutex_assertlocked(mutex) ((void)0)
#define gasnett_mutex_assertunlocked(mutex) ((void)0)
#define gasnett_rwlock_assertlocked(lock) ((void)0)
#define gasnett_rwlock_assertrdlocked(lock) ((void)0)
#define gasnett_rwlock_assertwrlocked(lock) ((void)0)
#define gasnett_rwlock_assertunlocked(lock) ((void)0)

/* ---- Spinlocks, for sections of a few instructions; they nap when the wait gets long ---- */

typedef gasnett_atomic_t gasnett_spinlock_t;
#define GASNETT_SPINLOCK_INITIALIZER gasnett_atomic_init(0)
GASNETT_INLINE(gasnett_spinlock_init) void gasnett_spinlock_init(gasnett_spinlock_t *_lock) {
    gasnett_atomic_set(_lock, 0, 0);
}
#define gasnett_spinlock_destroy(lock) ((void)(lock))
/* Returns 0 or EBUSY. */
GASNETT_INLINE(gasnett_spinlock_trylock) int gasnett_spinlock_trylock(gasnett_spinlock_t *_lock) {
    return gasnett_atomic_compare_and_swap(_lock, 0, 1, GASNETT_ATOMIC_ACQ_IF_TRUE) ? 0 : EBUSY;
}
GASNETT_INLINE(gasnett_spinlock_lock) void gasnett_spinlock_lock(gasnett_spinlock_t *_lock) {
    int _looks = 0;
    while (gasnett_spinlock_trylock(_lock) != 0) {
        while (gasnett_atomic_read(_lock, 0) != 0) {
            gasnett_spinloop_hint();
            if (++_looks % 1024 == 0) (void)gasnett_nsleep(20000);
        }
    }
}
GASNETT_INLINE(gasnett_spinlock_unlock) void gasnett_spinlock_unlock(gasnett_spinlock_t *_lock) {
    gasnett_atomic_set(_lock, 0, GASNETT_ATOMIC_REL);
}

/* ---- Thread-specific pointers ----
 *
 * GASNETT_THREADKEY_DEFINE(key); at global scope in one file, GASNETT_THREADKEY_DECLARE(key); in others. Each thread
 * begins with NULL. No initialisation is needed; the calls of those who do it nevertheless are accepted.
 */
#ifdef __cplusplus
    #define GASNETT_THREADKEY_DECLARE(key) extern "C" _GASNETT_THREAD_LOCAL void *key
    #define GASNETT_THREADKEY_DEFINE(key) extern "C" { _GASNETT_THREAD_LOCAL void *key = NULL; } \
        extern "C" _GASNETT_THREAD_LOCAL void *key
#else
    #define GASNETT_THREADKEY_DECLARE(key) extern _GASNETT_THREAD_LOCAL void *key
    #define GASNETT_THREADKEY_DEFINE(key) _GASNETT_THREAD_LOCAL void *key = NULL
#endif
#define GASNETI_THREADKEY_DECLARE(key) GASNETT_THREADKEY_DECLARE(key)
#define GASNETI_THREADKEY_DEFINE(key) GASNETT_THREADKEY_DEFINE(key)
#define gasnett_threadkey_init(key) ((void)(key))
#define gasnett_threadkey_get(key) (key)
#define gasnett_threadkey_set(key, pointer) ((void)((key) = (void *)(pointer)))
#define gasnett_threadkey_get_noinit(key) (key)
#define gasnett_threadkey_set_noinit(key, pointer) ((void)((key) = (void *)(pointer)))

#endif
