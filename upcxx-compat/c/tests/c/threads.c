/* Threads that all request, poll, put, and wait; handlers that lock what the threads lock; threads that do so once more while
 * they end. Arguments: threads, rounds. */
#include "check.h"
#include <pthread.h>

static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;
static int counter, answered_total;
static gasnet_seginfo_t *segments;
static int threads, rounds;

static void on_add(gasnet_token_t token, gasnet_handlerarg_t low, gasnet_handlerarg_t high) {
    gasnet_hsl_lock(&lock);
    counter++;
    gasnet_hsl_unlock(&lock);
    CHECK(gasnet_AMReplyShort2(token, 201, low, high) == GASNET_OK);
}

static void on_added(gasnet_token_t token, gasnet_handlerarg_t low, gasnet_handlerarg_t high) {
    volatile int *const flag = (volatile int *)(((uintptr_t)(uint32_t)high << 32) | (uint32_t)low);
    (void)token;
    gasnet_hsl_lock(&lock);
    answered_total++;
    gasnet_hsl_unlock(&lock);
    __sync_fetch_and_add(flag, 1);
}

static void *work(void *argument) {
    const int thread = (int)(intptr_t)argument;
    volatile int answered = 0;
    int round, sent = 0;
    GASNET_BEGIN_FUNCTION();
    for (round = 0; round < rounds; round++) {
        const gasnet_node_t node = (gasnet_node_t)(gasnet_mynode() + (gasnet_node_t)round) % gasnet_nodes();
        const size_t slot = ((size_t)gasnet_mynode() * (size_t)threads + (size_t)thread) * sizeof(int64_t);
        int64_t *const there = (int64_t *)((char *)segments[node].addr + slot);
        int64_t value = (int64_t)round * 1000 + thread, back = -1;
        CHECK(gasnet_AMRequestShort2(node, 200, (gasnet_handlerarg_t)(uintptr_t)&answered,
                                     (gasnet_handlerarg_t)((uintptr_t)&answered >> 32)) == GASNET_OK);
        sent++;
        gasnet_put_nbi(node, there, &value, sizeof value);
        if (round % 3 == 0) gasnet_AMPoll();
        gasnet_wait_syncnbi_puts();
        gasnet_get(&back, node, there, sizeof back);
        CHECK(back == value);
        if (round % 4 == 0) GASNET_BLOCKUNTIL(answered == sent);
    }
    GASNET_BLOCKUNTIL(answered == sent);
    return NULL;
}

static void on_bytes(gasnet_token_t token, void *bytes, size_t count, gasnet_handlerarg_t low, gasnet_handlerarg_t high) {
    CHECK(count == 6 && memcmp(bytes, "bytes", 6) == 0);
    CHECK(gasnet_AMReplyMedium2(token, 203, bytes, count, low, high) == GASNET_OK);
}

static void on_bytes_back(gasnet_token_t token, void *bytes, size_t count, gasnet_handlerarg_t low,
                          gasnet_handlerarg_t high) {
    (void)token;
    CHECK(count == 6 && memcmp(bytes, "bytes", 6) == 0);
    __sync_fetch_and_add((volatile int *)(((uintptr_t)(uint32_t)high << 32) | (uint32_t)low), 1);
}

static pthread_key_t at_end;
static int ended;

/* Runs when the library has had to give up what it kept for the thread. */
static void end(void *argument) {
    const gasnet_node_t peer = (gasnet_mynode() + 1) % gasnet_nodes();
    int64_t *const there = (int64_t *)segments[peer].addr + 1024 + gasnet_mynode();
    int64_t value = 77, back = 0;
    volatile int answered = 0;
    gasnet_node_t me = gasnet_mynode(), i;
    gasnet_node_t *const all = (gasnet_node_t *)calloc(gasnet_nodes(), sizeof *all);
    CHECK(argument == &ended);
    CHECK(gasnet_AMRequestMedium2(peer, 202, "bytes", 6, (gasnet_handlerarg_t)(uintptr_t)&answered,
                                  (gasnet_handlerarg_t)((uintptr_t)&answered >> 32)) == GASNET_OK);
    GASNET_BLOCKUNTIL(answered == 1);
    gasnet_put_nbi(peer, there, &value, sizeof value);
    gasnet_wait_syncnbi_puts();
    gasnet_get(&back, peer, there, sizeof back);
    CHECK(back == value);
    gasnet_coll_gather_all(GASNET_TEAM_ALL, all, &me, sizeof me,
                           GASNET_COLL_LOCAL | GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC);
    for (i = 0; i < gasnet_nodes(); i++) CHECK(all[i] == i);
    free(all);
    ended = 1;
}

static void *work_to_the_end(void *argument) {
    CHECK(pthread_setspecific(at_end, &ended) == 0);
    return work(argument);
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{200, (void (*)())on_add},
                                     {201, (void (*)())on_added},
                                     {202, (void (*)())on_bytes},
                                     {203, (void (*)())on_bytes_back}};
    pthread_t *ids;
    int i;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc > 2);
    threads = atoi(argv[1]);
    rounds = atoi(argv[2]);
    CHECK(gasnet_attach(table, 4, 1 << 20, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    ids = (pthread_t *)calloc((size_t)threads, sizeof *ids);
    for (i = 0; i < threads; i++) CHECK(pthread_create(&ids[i], NULL, work, (void *)(intptr_t)i) == 0);
    for (i = 0; i < threads; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    GASNET_BLOCKUNTIL(counter >= threads * rounds);
    CHECK(answered_total == threads * rounds);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(counter == threads * rounds);
    gasnet_coll_init(NULL, 0, NULL, 0, 0);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(pthread_key_create(&at_end, end) == 0);
    CHECK(pthread_create(&ids[0], NULL, work_to_the_end, NULL) == 0 && pthread_join(ids[0], NULL) == 0);
    CHECK(ended);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
    return 1;
}
