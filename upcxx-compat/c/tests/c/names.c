/* What runtimes such as UPC++ 0.1 use and the specification lacks. */
#ifdef __cplusplus
extern "C" {
#endif
#include "check.h"
#include <gasnet_tools.h>
#include <gasnet_coll.h>
#ifdef __cplusplus
}
#endif

enum { BYTES = 100000, HELLO = 200 };

static volatile int greetings;
static void on_hello(gasnet_token_t token) {
    (void)token;
    greetings++;
}

static void barrier(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}

/* A lock and a condition that are waited for together. */
static gasnet_hsl_t queue_lock = GASNET_HSL_INITIALIZER;
static gasnett_cond_t queue_filled = GASNETT_COND_INITIALIZER;
static int queued;
#if !GASNET_SEQ
static void *fill(void *nothing) {
    gasnet_hsl_lock(&queue_lock);
    queued = 1;
    gasnett_cond_signal(&queue_filled);
    gasnet_hsl_unlock(&queue_lock);
    return nothing;
}
#endif

static void locks(void) {
    gasnett_mutex_t *const lock = &queue_lock.lock;
#if !GASNET_SEQ
    pthread_t thread;
    gasnet_hsl_lock(&queue_lock);
    CHECK(pthread_create(&thread, NULL, fill, NULL) == 0);
    while (!queued) gasnett_cond_wait(&queue_filled, lock);
    gasnet_hsl_unlock(&queue_lock);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(queued);
#else
    (void)queued;
    gasnett_cond_signal(&queue_filled);
#endif
    gasnett_mutex_lock(lock);
    gasnett_mutex_unlock(lock);
    CHECK(gasnet_hsl_trylock(&queue_lock) == GASNET_OK);
    gasnet_hsl_unlock(&queue_lock);
}

/* Tests with nothing but the test: no handler runs, and what is tested ends all the same. */
static void without_polls(const gasnet_seginfo_t *segments) {
    const gasnet_node_t right = (gasnet_mynode() + 1) % gasnet_nodes();
    char *const bytes = (char *)malloc(BYTES), *const there = (char *)segments[right].addr;
    gasnet_handle_t handles[3], handle;
    int left = 3, before;
    memset(bytes, 1, BYTES);
    CHECK(gasnet_try_syncnb_nopoll(GASNET_INVALID_HANDLE) == GASNET_OK);
    barrier();
    CHECK(gasnet_AMRequestShort0(right, HELLO) == GASNET_OK);
    handle = gasnet_put_nb_bulk(right, there, bytes, BYTES);
    before = greetings;
    while (gasnet_try_syncnb_nopoll(handle) != GASNET_OK) continue;
    CHECK(greetings == before);
    GASNET_BLOCKUNTIL(greetings >= 1);
    handles[0] = gasnet_put_nb_bulk(right, there, bytes, 10);
    handles[1] = GASNET_INVALID_HANDLE;
    handles[2] = gasnet_put_nb_bulk(right, there + 50000, bytes, 40000);
    while (gasnet_try_syncnb_all_nopoll(handles, 3) != GASNET_OK) continue;
    CHECK(handles[0] == GASNET_INVALID_HANDLE && handles[2] == GASNET_INVALID_HANDLE);
    handles[0] = gasnet_put_nb_bulk(right, there, bytes, 10);
    handles[2] = gasnet_put_nb_bulk(right, there + 50000, bytes, 40000);
    while (left > 0) {
        while (gasnet_try_syncnb_some_nopoll(handles, 3) != GASNET_OK) continue;
        left = (handles[0] != GASNET_INVALID_HANDLE) + (handles[2] != GASNET_INVALID_HANDLE);
    }
    free(bytes);
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{HELLO, (void (*)())on_hello}};
    gasnet_seginfo_t *segments;
    char name[256];
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(table, 1, 1 << 20, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    /* Of <unistd.h>, which comes by way of the tools. */
    CHECK(gethostname(name, sizeof name) == 0 && getpid() > 0);
    CHECK(strcmp(gasneti_gethostname(), name) == 0);
    locks();
    barrier();
    without_polls(segments);
    barrier();
    gasnet_coll_init(NULL, 0, NULL, 0, 0);
    gasnet_coll_dumpTuningState(NULL, GASNET_TEAM_ALL);
    gasnet_coll_dumpProfile(NULL, GASNET_TEAM_ALL);
    barrier();
    free(segments);
    gasnet_exit(0);
    return 1;
}
