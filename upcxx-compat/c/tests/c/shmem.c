/* How OpenSHMEM is put on GASNet, in small: a thread that polls all the time beside one that computes, a heap in the segment,
 * updates by medium messages under a lock, waits for what others put into one's own memory, and a barrier on the way out. */
#include "check.h"
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { UPDATE = 128, UPDATED, ROUNDS = 30, WORDS = 700 };

/* A message carries the addresses of who has sent it. */
typedef struct {
    int64_t *there;
    int64_t value, expected;
    int64_t *result;
    volatile int *done;
    int done_here, swaps;
} update_t;

static gasnet_seginfo_t *segments;
static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;
static volatile int is_over;
static pthread_t service;
static int barriers;

static void on_update(gasnet_token_t token, void *bytes, size_t count) {
    update_t *const update = (update_t *)bytes;
    int64_t *const old = (int64_t *)malloc(sizeof *old);
    gasnet_hsl_lock(&lock);
    memmove(old, update->there, sizeof *old);
    if (!update->swaps) *update->there += update->value;
    else if (*old == update->expected) memmove(update->there, &update->value, sizeof *old);
    update->value = *old;
    gasnet_hsl_unlock(&lock);
    free(old);
    CHECK(gasnet_AMReplyMedium0(token, UPDATED, bytes, count) == GASNET_OK);
}

static void on_updated(gasnet_token_t token, void *bytes, size_t count) {
    const update_t *const update = (const update_t *)bytes;
    (void)token, (void)count;
    gasnet_hsl_lock(&lock);
    *update->result = update->value;
    *update->done = 1;
    gasnet_hsl_unlock(&lock);
}

/* The progress thread of such runtimes, as they have it: it polls for ever, with a pause. */
static void *serve(void *nothing) {
    const struct timespec pause = {0, 1000};
    while (!is_over) {
        gasnet_AMPoll();
        nanosleep(&pause, NULL);
    }
    return nothing;
}

/* The same object in another rank's heap. */
static void *theirs(void *mine, gasnet_node_t node) {
    return (char *)segments[node].addr + ((char *)mine - (char *)segments[gasnet_mynode()].addr);
}

static void barrier_all(void) {
    gasnet_wait_syncnbi_puts();
    gasnet_barrier_notify(barriers, 0);
    CHECK(gasnet_barrier_wait(barriers, 0) == GASNET_OK);
    barriers++;
}

static int64_t update(int64_t *mine, gasnet_node_t node, int swaps, int64_t expected, int64_t value) {
    int64_t result = -1;
    update_t *const sent = (update_t *)calloc(1, sizeof *sent);
    sent->there = (int64_t *)theirs(mine, node);
    sent->value = value, sent->expected = expected, sent->swaps = swaps;
    sent->result = &result, sent->done = &sent->done_here;
    CHECK(gasnet_AMRequestMedium0(node, UPDATE, sent, sizeof *sent) == GASNET_OK);
    GASNET_BLOCKUNTIL(*(volatile int *)&sent->done_here);
    free(sent);
    return result;
}

/* Arguments as a library finds them that is not given them. */
static void start(gasnet_handlerentry_t *table, int count, uintptr_t bytes) {
    static char text[4096], *words[64], **list = words;
    FILE *const file = fopen("/proc/self/cmdline", "r");
    size_t at, length;
    int number = 0;
    CHECK(file != NULL);
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    for (at = 0; at < length && number < 63; at += strlen(text + at) + 1) words[number++] = text + at;
    CHECK(gasnet_init(&number, &list) == GASNET_OK);
    CHECK(gasnet_attach(table, count, bytes, 0) == GASNET_OK);
}

static void leave(void) {
    barrier_all();
    is_over = 1;
    CHECK(pthread_join(service, NULL) == 0);
}

int main(void) {
    gasnet_handlerentry_t table[] = {{UPDATE, (void (*)())on_update}, {UPDATED, (void (*)())on_updated}};
    gasnet_node_t me, nodes, left, right, node;
    /* In the heap, at the same place everywhere. */
    struct heap {
        int64_t sum, owner, tickets, flag[2], own[WORDS], from_left[WORDS];
        char pad[1 << 20];
        int64_t all[64];
    } *heap;
    int64_t round, i;
    start(table, 2, (uintptr_t)4 << 20);
    me = gasnet_mynode(), nodes = gasnet_nodes();
    left = (me + nodes - 1) % nodes, right = (me + 1) % nodes;
    CHECK(pthread_create(&service, NULL, serve, NULL) == 0);
    CHECK(gasnet_set_waitmode(GASNET_WAIT_SPINBLOCK) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(nodes, sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)nodes) == GASNET_OK);
    heap = (struct heap *)segments[me].addr;
    memset(heap, 0, sizeof *heap);
    heap->owner = -1;
    CHECK(atexit(leave) == 0);
    barrier_all();
    for (round = 1; round <= ROUNDS; round++) {
        /* Data, then the flag that says that it is there; the reader waits for the flag in its own memory. */
        for (i = 0; i < WORDS; i++) heap->own[i] = (int64_t)me << 32 | (round * i);
        gasnet_put_nbi_bulk(right, theirs(heap->from_left, right), heap->own, sizeof heap->own);
        gasnet_wait_syncnbi_puts();
        gasnet_put_nbi_val(right, theirs(&heap->flag[round % 2], right), (gasnet_register_value_t)round, 8);
        GASNET_BLOCKUNTIL(*(volatile int64_t *)&heap->flag[round % 2] >= round);
        for (i = 0; i < WORDS; i++) CHECK(heap->from_left[i] == ((int64_t)left << 32 | (round * i)));
        CHECK((int64_t)gasnet_get_val(left, theirs(&heap->own[3], left), 8) == ((int64_t)left << 32 | (round * 3)));
        (void)update(&heap->sum, (gasnet_node_t)round % nodes, 0, 0, round + me);
        /* A lock that is a word of rank 0, held around what is not atomic. */
        while (update(&heap->owner, 0, 1, -1, me) != -1) gasnet_AMPoll();
        i = (int64_t)gasnet_get_val(0, theirs(&heap->tickets, 0), 8);
        gasnet_put_val(0, theirs(&heap->tickets, 0), (gasnet_register_value_t)(i + 1), 8);
        CHECK(update(&heap->owner, 0, 1, me, -1) == me);
        barrier_all();
    }
    for (i = 0, node = 0; node < nodes; node++) {
        gasnet_put_nbi(node, theirs(&heap->all[me], node), &heap->sum, sizeof heap->sum);
        i += (int64_t)gasnet_get_val(node, theirs(&heap->sum, node), 8);
    }
    barrier_all();
    CHECK(i == (int64_t)nodes * (ROUNDS * (ROUNDS + 1) / 2) + (int64_t)ROUNDS * (nodes * (nodes - 1) / 2));
    for (node = 0; node < nodes; node++) i -= heap->all[node];
    CHECK(i == 0);
    if (me == 0) CHECK(heap->tickets == (int64_t)ROUNDS * nodes);
    /* Ends by what `leave` does. */
    return 0;
}
