/* gasnett_rwlock_t is a pthread_rwlock_t behind a type of the same size that strict C99 can see. */
#include "tools.h"

#include <pthread.h>

_Static_assert(sizeof(pthread_rwlock_t) <= sizeof(gasnett_rwlock_t), "a pthread_rwlock_t fits");
_Static_assert(_Alignof(pthread_rwlock_t) <= _Alignof(gasnett_rwlock_t), "and is aligned");

static pthread_rwlock_t *inner(gasnett_rwlock_t *lock) {
    return (pthread_rwlock_t *)(void *)lock;
}

static void check(int error, const char *what) {
    if (error != 0) gasnett_fatalerror("%s: %s", what, strerror(error));
}

void gasnett_rwlock_init(gasnett_rwlock_t *lock) {
    check(pthread_rwlock_init(inner(lock), NULL), "gasnett_rwlock_init");
}

void gasnett_rwlock_destroy(gasnett_rwlock_t *lock) {
    check(pthread_rwlock_destroy(inner(lock)), "gasnett_rwlock_destroy");
}

void gasnett_rwlock_rdlock(gasnett_rwlock_t *lock) {
    check(pthread_rwlock_rdlock(inner(lock)), "gasnett_rwlock_rdlock");
}

void gasnett_rwlock_wrlock(gasnett_rwlock_t *lock) {
    check(pthread_rwlock_wrlock(inner(lock)), "gasnett_rwlock_wrlock");
}

int gasnett_rwlock_tryrdlock(gasnett_rwlock_t *lock) {
    return pthread_rwlock_tryrdlock(inner(lock));
}

int gasnett_rwlock_trywrlock(gasnett_rwlock_t *lock) {
    return pthread_rwlock_trywrlock(inner(lock));
}

void gasnett_rwlock_unlock(gasnett_rwlock_t *lock) {
    check(pthread_rwlock_unlock(inner(lock)), "gasnett_rwlock_unlock");
}
