/* Names of barriers, and what is said of them afterwards; barriers in which all threads take part. */
#include "check.h"
#if GASNET_PAR
#include <pthread.h>
#endif

enum { ANONYMOUS = GASNET_BARRIERFLAG_ANONYMOUS, MISMATCH = GASNET_BARRIERFLAG_MISMATCH };

/* As all ranks do it, or, with `team`, all members of the team of all. */
static int meet(int team, int notified, int notify_flags, int waited, int wait_flags) {
    int code;
    if (team) gasnet_coll_barrier_notify(GASNET_TEAM_ALL, notified, notify_flags);
    else gasnet_barrier_notify(notified, notify_flags);
    do {
        code = team ? gasnet_coll_barrier_try(GASNET_TEAM_ALL, waited, wait_flags) : gasnet_barrier_try(waited, wait_flags);
    } while (code == GASNET_ERR_NOT_READY);
    return code;
}

static int is_named(int team, int *id) {
    *id = -1;
    return (team ? gasnet_coll_barrier_result(GASNET_TEAM_ALL, id) : gasnet_barrier_result(id)) == 0;
}

static void names(int team) {
    const int last = gasnet_mynode() == gasnet_nodes() - 1;
    int id;
    /* Named, as all say. */
    CHECK(meet(team, 7, 0, 7, 0) == GASNET_OK);
    CHECK(is_named(team, &id) && id == 7);
    /* A wait that does not ask for the name. */
    CHECK(meet(team, 8, 0, 0, ANONYMOUS) == GASNET_OK);
    CHECK(is_named(team, &id) && id == 8);
    /* Anonymous everywhere: any name is right. */
    CHECK(meet(team, 1, ANONYMOUS, 2, 0) == GASNET_OK);
    CHECK(!is_named(team, &id));
    CHECK(meet(team, 1, GASNET_BARRIERFLAG_UNNAMED, 1, GASNET_BARRIERFLAG_UNNAMED) == GASNET_OK);
    CHECK(!is_named(team, &id));
    /* One names it; the others notice. */
    CHECK(meet(team, (int)0xcafef00d, last ? 0 : ANONYMOUS, (int)0xcafef00d, last ? 0 : ANONYMOUS) == GASNET_OK);
    CHECK(is_named(team, &id) && id == (int)0xcafef00d);
    CHECK(meet(team, 5, last ? 0 : ANONYMOUS, 5, 0) == GASNET_OK);
    /* Another name than it had. */
    CHECK(meet(team, 5, last ? 0 : ANONYMOUS, last ? 5 : 6, 0) == (last ? GASNET_OK : GASNET_ERR_BARRIER_MISMATCH));
    CHECK(meet(team, 0, 0, 1, 0) == GASNET_ERR_BARRIER_MISMATCH);
    /* Mismatches of one are mismatches of all. */
    CHECK(meet(team, 0, last ? MISMATCH : 0, 0, last ? MISMATCH : 0) == GASNET_ERR_BARRIER_MISMATCH);
    if (gasnet_nodes() > 1) CHECK(meet(team, last, 0, last, 0) == GASNET_ERR_BARRIER_MISMATCH);
    /* And nothing of it stays. */
    CHECK(meet(team, 9, 0, 9, 0) == GASNET_OK);
}

#if GASNET_PAR
enum { THREADS = 3, ROUNDS = 300 };
static volatile int round_of[THREADS];

/* Nobody leaves a barrier before all have come; thread 0 looks at the others after each. */
static void *image(void *number) {
    const int me = (int)(intptr_t)number, rank = (int)gasnet_mynode();
    gasnet_image_t *const images = (gasnet_image_t *)malloc(gasnet_nodes() * sizeof *images);
    int round, other;
    for (other = 0; other < (int)gasnet_nodes(); other++) images[other] = THREADS;
    gasnet_coll_init(images, (gasnet_image_t)(rank * THREADS + me), NULL, 0, 0);
    free(images);
    for (round = 1; round <= ROUNDS; round++) {
        const int odd = round % 7 == 0 && rank == 0 && me == 1;
        const int flags = GASNET_BARRIERFLAG_IMAGES | (round % 3 == 0 ? ANONYMOUS : 0);
        const int expected = round % 7 == 0 && round % 3 != 0 ? GASNET_ERR_BARRIER_MISMATCH : GASNET_OK;
        round_of[me] = round;
        gasnet_coll_barrier_notify(GASNET_TEAM_ALL, round + odd, flags);
        CHECK(gasnet_coll_barrier_wait(GASNET_TEAM_ALL, round + odd, flags) == expected);
        for (other = 0; other < THREADS; other++) CHECK(round_of[other] == round || round_of[other] == round + 1);
    }
    return NULL;
}

static void images(void) {
    pthread_t threads[THREADS];
    int number;
    for (number = 0; number < THREADS; number++) {
        CHECK(pthread_create(&threads[number], NULL, image, (void *)(intptr_t)number) == 0);
    }
    for (number = 0; number < THREADS; number++) CHECK(pthread_join(threads[number], NULL) == 0);
}
#endif

int main(int argc, char **argv) {
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) == GASNET_OK);
    names(0);
#if GASNET_PAR
    images();
#else
    gasnet_coll_init(NULL, 0, NULL, 0, 0);
#endif
    names(1);
    gasnet_barrier_notify(0, ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, ANONYMOUS) == GASNET_OK);
    gasnet_exit(0);
    return 1;
}
