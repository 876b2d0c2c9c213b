/* How runtimes of tasks are put on GASNet, in small: a thread polls, others compute; handlers queue what takes long for these;
 * buffers are written by long messages and given back by replies; who cannot put, as the memory is not in its segment, asks the
 * owner to; barriers are tried between other work; any thread may end the job. */
#include "check.h"
#include <gasnet_coll.h>
#include <gasnet_tools.h>
#include <gasnet_vis.h>
#include <pthread.h>

enum { TASK = 128, SIGNAL, FETCH, FETCHED, STORE, FILLED, FREED };
enum { THREADS = 2, ROUNDS = 12, SLOTS = 4, SLOT_BYTES = 20000, ROW = 24, ROWS = 50 };

/* At the beginning of every rank's segment. */
typedef struct {
    char out[SLOTS][SLOT_BYTES], in[SLOTS][SLOT_BYTES];
    int64_t fetched[THREADS + 1][1000], matrix[ROWS][ROW], counter[THREADS];
} heap_t;

typedef struct {
    volatile int left;
} done_t;

typedef struct task {
    struct task *next;
    gasnet_node_t from;
    uint64_t done, square;
} task_t;

static gasnet_seginfo_t *segments;
static heap_t *heap;
static volatile int is_over, is_free[SLOTS], filled;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static task_t *tasks;
static int sum_outside[64]; /* in no segment */

#define LOW(pointer) ((gasnet_handlerarg_t)((uint64_t)(uintptr_t)(pointer) << 32 >> 32))
#define HIGH(pointer) ((gasnet_handlerarg_t)((uint64_t)(uintptr_t)(pointer) >> 32))
#define POINTER(low, high) ((void *)(uintptr_t)((uint64_t)(uint32_t)(low) | (uint64_t)(uint32_t)(high) << 32))

static heap_t *heap_of(gasnet_node_t node) { return (heap_t *)segments[node].addr; }

static void on_task(gasnet_token_t token, void *bytes, size_t count) {
    task_t *const task = (task_t *)malloc(sizeof *task);
    CHECK(count == sizeof *task);
    memcpy(task, bytes, count);
    CHECK(gasnet_AMGetMsgSource(token, &task->from) == GASNET_OK);
    pthread_mutex_lock(&mutex);
    task->next = tasks;
    tasks = task;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}
static void on_signal(gasnet_token_t token, gasnet_handlerarg_t low, gasnet_handlerarg_t high) {
    (void)token;
    __sync_fetch_and_sub(&((done_t *)POINTER(low, high))->left, 1);
}
/* From the segment of who is asked, by a reply, into that of who asks. */
static void on_fetch(gasnet_token_t token, gasnet_handlerarg_t low, gasnet_handlerarg_t high, gasnet_handlerarg_t to_low,
                     gasnet_handlerarg_t to_high) {
    CHECK(gasnet_AMReplyLong2(token, FETCHED, heap->in[0], sizeof heap->fetched[0], POINTER(to_low, to_high), low, high) ==
          GASNET_OK);
}
static void on_fetched(gasnet_token_t token, void *bytes, size_t count, gasnet_handlerarg_t low, gasnet_handlerarg_t high) {
    (void)bytes;
    CHECK(count == sizeof heap->fetched[0]);
    on_signal(token, low, high);
}
/* Into memory that is in no segment. */
static void on_store(gasnet_token_t token, void *bytes, size_t count, gasnet_handlerarg_t low, gasnet_handlerarg_t high,
                     gasnet_handlerarg_t to_low, gasnet_handlerarg_t to_high) {
    memcpy(POINTER(to_low, to_high), bytes, count);
    CHECK(gasnet_AMReplyShort2(token, SIGNAL, low, high) == GASNET_OK);
}
static void on_filled(gasnet_token_t token, void *bytes, size_t count, gasnet_handlerarg_t slot, gasnet_handlerarg_t round,
                      gasnet_handlerarg_t a2, gasnet_handlerarg_t a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5,
                      gasnet_handlerarg_t a6, gasnet_handlerarg_t a7, gasnet_handlerarg_t a8, gasnet_handlerarg_t a9,
                      gasnet_handlerarg_t a10, gasnet_handlerarg_t a11, gasnet_handlerarg_t a12, gasnet_handlerarg_t a13,
                      gasnet_handlerarg_t a14, gasnet_handlerarg_t a15) {
    const char expected = (char)(round * 7 + slot);
    CHECK(a2 == 2 && a3 == 3 && a4 == 4 && a5 == 5 && a6 == 6 && a7 == 7 && a8 == 8 && a9 == 9 && a10 == 10);
    CHECK(a11 == 11 && a12 == 12 && a13 == 13 && a14 == 14 && a15 == -15);
    CHECK(bytes == (void *)heap->in[slot] && count == SLOT_BYTES - (size_t)round);
    CHECK(heap->in[slot][0] == expected && memcmp(heap->in[slot], heap->in[slot] + 1, count - 1) == 0);
    __sync_fetch_and_add(&filled, 1);
    CHECK(gasnet_AMReplyShort2(token, FREED, slot, round) == GASNET_OK);
}
static void on_freed(gasnet_token_t token, gasnet_handlerarg_t slot, gasnet_handlerarg_t round) {
    (void)token, (void)round;
    is_free[slot] = 1;
}

/* The polling thread of such runtimes, as they have it; so is the barrier below. */
static void *poll(void *nothing) {
    while (!is_over) {
        CHECK(gasnet_AMPoll() == GASNET_OK);
        sched_yield();
    }
    return nothing;
}

/* Does what handlers have queued, and tells who has asked. */
static void *run_tasks(void *nothing) {
    for (;;) {
        task_t *task;
        int64_t square;
        pthread_mutex_lock(&mutex);
        while (tasks == NULL && !is_over) pthread_cond_wait(&changed, &mutex);
        task = tasks;
        if (task != NULL) tasks = task->next;
        pthread_mutex_unlock(&mutex);
        if (task == NULL) return nothing;
        gasnet_get(&square, task->from, (void *)(uintptr_t)task->square, sizeof square);
        square *= square;
        gasnet_put(task->from, (void *)(uintptr_t)task->square, &square, sizeof square);
        CHECK(gasnet_AMRequestShort2(task->from, SIGNAL, LOW(task->done), HIGH(task->done)) == GASNET_OK);
        free(task);
    }
}

static void run_elsewhere(gasnet_node_t node, int thread, int round) {
    done_t done = {1};
    task_t task;
    memset(&task, 0, sizeof task);
    heap->counter[thread] = round;
    task.done = (uintptr_t)&done, task.square = (uintptr_t)&heap->counter[thread];
    CHECK(gasnet_AMRequestMedium0(node, TASK, &task, sizeof task) == GASNET_OK);
    GASNET_BLOCKUNTIL(done.left == 0);
    CHECK(heap->counter[thread] == (int64_t)round * round);
}

/* A column of a matrix there and back, and its rows in a region; the threads have columns of their own. */
static void move_columns(gasnet_node_t node, int thread, int round) {
    const size_t mine = (size_t)gasnet_mynode() * THREADS + (size_t)thread;
    const size_t strides[] = {ROW * 8}, packed[] = {8}, counts[] = {8, ROWS};
    int64_t there[ROWS], back[ROWS], i;
    gasnet_handle_t handle;
    for (i = 0; i < ROWS; i++) there[i] = i * 1000 + round;
    gasnet_puts_bulk(node, &heap_of(node)->matrix[0][mine], strides, there, packed, counts, 1);
    gasnet_gets_bulk(back, packed, node, &heap_of(node)->matrix[0][mine], strides, counts, 1);
    CHECK(memcmp(there, back, sizeof there) == 0);
    gasnet_begin_nbi_accessregion();
    for (i = 0; i < ROWS; i++) gasnet_get_nbi(&back[i], node, &heap_of(node)->matrix[ROWS - 1 - i][mine], 8);
    handle = gasnet_end_nbi_accessregion();
    gasnet_wait_syncnb(handle);
    for (i = 0; i < ROWS; i++) CHECK(back[i] == there[ROWS - 1 - i]);
}

static void *compute(void *argument) {
    const int thread = (int)(intptr_t)argument;
    int round;
    for (round = 1; round <= ROUNDS; round++) {
        const gasnet_node_t node = (gasnet_mynode() + (gasnet_node_t)round) % gasnet_nodes();
        run_elsewhere(node, thread, round);
        move_columns(node, thread, round);
    }
    return NULL;
}

static void barrier(int id) {
    int code;
    gasnet_barrier_notify(id, 0);
    while ((code = gasnet_barrier_try(id, 0)) == GASNET_ERR_NOT_READY) sched_yield();
    CHECK(code == GASNET_OK);
}

static void *leave(void *nothing) {
    gasnet_exit(0);
    return nothing;
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {
        {TASK, (void (*)())on_task},       {SIGNAL, (void (*)())on_signal}, {FETCH, (void (*)())on_fetch},
        {FETCHED, (void (*)())on_fetched}, {STORE, (void (*)())on_store},   {FILLED, (void (*)())on_filled},
        {FREED, (void (*)())on_freed}};
    const uintptr_t bytes = (sizeof(heap_t) + GASNET_PAGESIZE - 1) / GASNET_PAGESIZE * GASNET_PAGESIZE;
    const int flags = GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC | GASNET_COLL_LOCAL;
    gasnet_node_t me, right, node;
    pthread_t poller, runner, workers[THREADS], last;
    int round, slot, i;
    size_t lengths[64], length;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(table, sizeof table / sizeof *table, bytes, 0) == GASNET_OK);
    CHECK(gasnet_set_waitmode(GASNET_WAIT_BLOCK) == GASNET_OK);
    me = gasnet_mynode(), right = (me + 1) % gasnet_nodes();
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    heap = heap_of(me);
    for (slot = 0; slot < SLOTS; slot++) is_free[slot] = 1;
    barrier('b');
    CHECK(pthread_create(&poller, NULL, poll, NULL) == 0 && pthread_create(&runner, NULL, run_tasks, NULL) == 0);
    for (i = 0; i < THREADS; i++) CHECK(pthread_create(&workers[i], NULL, compute, (void *)(intptr_t)i) == 0);
    for (round = 0; round < ROUNDS; round++) {
        for (slot = 0; slot < SLOTS; slot++) {
            while (!is_free[slot]) gasnet_AMPoll();
            is_free[slot] = 0;
            memset(heap->out[slot], round * 7 + slot, SLOT_BYTES);
            CHECK(gasnet_AMRequestLongAsync16(right, FILLED, heap->out[slot], SLOT_BYTES - (size_t)round,
                                              heap_of(right)->in[slot], slot, round, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
                                              14, -15) == GASNET_OK);
        }
    }
    GASNET_BLOCKUNTIL(filled == ROUNDS * SLOTS);
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(workers[i], NULL) == 0);
    barrier('m');
    {
        done_t done = {2};
        const int value = (int)me + 5;
        CHECK(gasnet_AMRequestShort4(right, FETCH, LOW(&done), HIGH(&done), LOW(heap->fetched[THREADS]),
                                     HIGH(heap->fetched[THREADS])) == GASNET_OK);
        CHECK(gasnet_AMRequestMedium4(right, STORE, &value, sizeof value, LOW(&done), HIGH(&done), LOW(&sum_outside[me]),
                                      HIGH(&sum_outside[me])) == GASNET_OK);
        GASNET_BLOCKUNTIL(done.left == 0);
        CHECK(memcmp(heap->fetched[THREADS], heap->fetched[THREADS] + 1, sizeof heap->fetched[0] - 8) == 0);
        CHECK(((char *)heap->fetched[THREADS])[0] == (char)((ROUNDS - 1) * 7));
    }
    /* What is on the stack, in collectives beside the polling. */
    length = me + 10;
    gasnet_coll_gather_all(GASNET_TEAM_ALL, lengths, &length, sizeof length, flags);
    for (node = 0; node < gasnet_nodes(); node++) {
        char text[80];
        CHECK(lengths[node] == node + 10);
        memset(text, node == me ? 'a' + (int)me : 0, sizeof text);
        gasnet_coll_broadcast(GASNET_TEAM_ALL, text, node, text, lengths[node], flags);
        CHECK(text[lengths[node] - 1] == 'a' + (int)node);
    }
    barrier('e');
    CHECK(sum_outside[(me + gasnet_nodes() - 1) % gasnet_nodes()] == (int)((me + gasnet_nodes() - 1) % gasnet_nodes()) + 5);
    barrier('e');
    pthread_mutex_lock(&mutex);
    is_over = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    CHECK(pthread_join(runner, NULL) == 0 && pthread_join(poller, NULL) == 0);
    barrier('e');
    CHECK(pthread_create(&last, NULL, leave, NULL) == 0);
    for (;;) gasnet_AMPoll();
}
