/* What existing clients have grown used to beyond the letter of the specification, and what they forget to do. */
#include "check.h"
#if !GASNET_SEQ
#include <pthread.h>
#endif

static volatile int done;

static void on_done(gasnet_token_t token) {
    (void)token;
    done = 1;
}

static void barrier(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}

/* A message to oneself, awaited by calls that only copy. */
static void put_until_done(const gasnet_seginfo_t *segments) {
    const gasnet_node_t right = (gasnet_mynode() + 1) % gasnet_nodes();
    int64_t value = 1;
    done = 0;
    CHECK(gasnet_AMRequestShort0(gasnet_mynode(), 200) == GASNET_OK);
    while (!done) gasnet_put(right, segments[right].addr, &value, sizeof value);
}

/* Threads tell each other apart by their thread data, and find the same in every scope. */
static gasnet_threadinfo_t thread_data(void) {
    gasnet_threadinfo_t first;
    {
        GASNET_BEGIN_FUNCTION();
        first = GASNET_GET_THREADINFO();
    }
    {
        GASNET_POST_THREADINFO(first);
        gasnet_threadinfo_t second = GASNET_GET_THREADINFO();
        CHECK(second == first);
    }
    CHECK(GASNET_GET_THREADINFO() == first);
    return first;
}

#if !GASNET_SEQ
static void *other_thread(void *main_thread) {
    CHECK((void *)thread_data() != main_thread);
    return NULL;
}
#endif

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{200, (void (*)())on_done}};
    gasnet_seginfo_t *segments;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(table, 1, GASNET_PAGESIZE, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    barrier();
    put_until_done(segments);
#if GASNET_SEQ
    (void)thread_data();
#else
    {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, other_thread, (void *)thread_data()) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
#endif
    CHECK(strstr(GASNET_CONFIG_STRING, GASNET_CORE_NAME_STR "-" GASNET_CORE_VERSION_STR) != NULL);
    barrier();
    free(segments);
    gasnet_exit(0);
    return 1;
}
