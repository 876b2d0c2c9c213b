/* Times what runtimes of parallel languages ask of a library with the GASNet-1 interface: of any such library, so that two can be held
 * against each other. Prints lines `case|bytes|nanoseconds`.
 *
 * Usage: client pair          two ranks: payloads, array sections; in GASNET_PAR programs also threads
 *        client collectives   any number of ranks */
#include <gasnet.h>
#include <gasnet_coll.h>
#include <gasnet_vis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if GASNET_PAR
#include <pthread.h>
#endif

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "client: line %d does not hold: %s\n", __LINE__, #condition);      \
            gasnet_exit(1);                                                                    \
        }                                                                                      \
    } while (0)

enum { SEGMENT_BYTES = 4 << 20, HALF = SEGMENT_BYTES / 2, THREADS_MAX = 3 };
enum { PING = 200, PONG, PING_MEDIUM, PONG_MEDIUM, PING_LONG, PONG_LONG, FLOOD, FLOOD_END, END };

static gasnet_node_t me, nodes;
static gasnet_seginfo_t *segments;
static char *source;

static char *at(gasnet_node_t node, size_t offset) { return (char *)segments[node].addr + offset; }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void tell(const char *name, size_t bytes, double nanoseconds) {
    printf("%s|%zu|%.1f\n", name, bytes, nanoseconds);
    fflush(stdout);
}

static void barrier(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}

/* ---- Payloads ---- */

/* A cache line for each thread. */
static struct {
    int volatile count;
    char padding[124];
} pongs[THREADS_MAX];
static int volatile flood_ends, is_end;
static int arrived, expected;

static void on_ping(gasnet_token_t token, gasnet_handlerarg_t thread) {
    CHECK(gasnet_AMReplyShort1(token, PONG, thread) == GASNET_OK);
}
static void on_pong(gasnet_token_t token, gasnet_handlerarg_t thread) {
    (void)token;
    pongs[thread].count++;
}
static void on_ping_medium(gasnet_token_t token, void *bytes, size_t count) {
    CHECK(gasnet_AMReplyMedium0(token, PONG_MEDIUM, bytes, count) == GASNET_OK);
}
static void on_ping_long(gasnet_token_t token, void *bytes, size_t count) {
    gasnet_node_t from;
    CHECK(gasnet_AMGetMsgSource(token, &from) == GASNET_OK);
    CHECK(gasnet_AMReplyLong0(token, PONG_LONG, bytes, count, at(from, HALF)) == GASNET_OK);
}
static void on_bytes_back(gasnet_token_t token, void *bytes, size_t count) {
    (void)token, (void)bytes, (void)count;
    pongs[0].count++;
}
/* The last message of a flood is answered; messages of one rank are handled by one thread here. */
static void on_flood(gasnet_token_t token, void *bytes, size_t count, gasnet_handlerarg_t messages) {
    (void)bytes, (void)count;
    expected = messages;
    if (++arrived == expected) {
        arrived = 0;
        CHECK(gasnet_AMReplyShort0(token, FLOOD_END) == GASNET_OK);
    }
}
static void on_flood_end(gasnet_token_t token) {
    (void)token;
    flood_ends++;
}
static void on_end(gasnet_token_t token) {
    (void)token;
    is_end = 1;
}

typedef void (*Exchange)(gasnet_node_t peer, size_t bytes, int times);

static void shorts(gasnet_node_t peer, size_t bytes, int times) {
    (void)bytes;
    for (int i = 0; i < times; i++) {
        int const next = pongs[0].count + 1;
        CHECK(gasnet_AMRequestShort1(peer, PING, 0) == GASNET_OK);
        GASNET_BLOCKUNTIL(pongs[0].count == next);
    }
}
static void mediums(gasnet_node_t peer, size_t bytes, int times) {
    for (int i = 0; i < times; i++) {
        int const next = pongs[0].count + 1;
        CHECK(gasnet_AMRequestMedium0(peer, PING_MEDIUM, source, bytes) == GASNET_OK);
        GASNET_BLOCKUNTIL(pongs[0].count == next);
    }
}
static void longs(gasnet_node_t peer, size_t bytes, int times) {
    for (int i = 0; i < times; i++) {
        int const next = pongs[0].count + 1;
        CHECK(gasnet_AMRequestLong0(peer, PING_LONG, source, bytes, at(peer, 0)) == GASNET_OK);
        GASNET_BLOCKUNTIL(pongs[0].count == next);
    }
}
static void flood(gasnet_node_t peer, size_t bytes, int times) {
    int const next = flood_ends + 1;
    for (int i = 0; i < times; i++) CHECK(gasnet_AMRequestMedium1(peer, FLOOD, source, bytes, times) == GASNET_OK);
    GASNET_BLOCKUNTIL(flood_ends == next);
}

static void payload(const char *name, Exchange exchange, gasnet_node_t peer, size_t bytes) {
    int const times = bytes < 4096 ? 2000 : 500;
    double start;
    exchange(peer, bytes, times / 4);
    start = now();
    exchange(peer, bytes, times);
    tell(name, bytes, (now() - start) / times);
}

static void payloads(void) {
    static size_t const sizes[] = {0, 8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10};
    payload("short round trip", shorts, 1, 0);
    payload("short round trip to self", shorts, 0, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] <= gasnet_AMMaxMedium()) {
            payload("medium round trip", mediums, 1, sizes[i]);
            payload("medium flood", flood, 1, sizes[i]);
            payload("medium round trip to self", mediums, 0, sizes[i]);
        }
        if (sizes[i] <= gasnet_AMMaxLongReply()) {
            payload("long round trip", longs, 1, sizes[i]);
            payload("long round trip to self", longs, 0, sizes[i]);
        }
    }
}

/* ---- Array sections: 32 KiB of another rank, in runs of so many bytes, with gaps as long as the runs or without ---- */

enum { SECTION_BYTES = 32 << 10, RUNS_MAX = SECTION_BYTES / 8 };

static void sections(void) {
    static size_t const runs[] = {8, 64, 512, 4 << 10};
    static void *here[RUNS_MAX], *there[RUNS_MAX];
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        size_t const run = runs[i], count = SECTION_BYTES / run;
        int const times = count > 1000 ? 50 : 400;
        for (int has_gaps = 0; has_gaps < 2; has_gaps++) {
            size_t const strides[1] = {has_gaps ? 2 * run : run}, counts[2] = {run, count};
            for (int is_put = 0; is_put < 2; is_put++) {
                char name[80];
                double start = 0;
                snprintf(name, sizeof name, "strided %s with%s gaps", is_put ? "put" : "get", has_gaps ? "" : "out");
                for (int round = -times / 4; round < times; round++) {
                    if (round == 0) start = now();
                    if (is_put) gasnet_puts_bulk(1, at(1, 0), strides, source, strides, counts, 1);
                    else gasnet_gets_bulk(source, strides, 1, at(1, 0), strides, counts, 1);
                }
                tell(name, run, (now() - start) / times);
            }
        }
        for (size_t k = 0; k < count; k++) {
            here[k] = source + 2 * run * k;
            there[k] = at(1, 2 * run * k);
        }
        for (int is_put = 0; is_put < 2; is_put++) {
            double start = 0;
            for (int round = -times / 4; round < times; round++) {
                if (round == 0) start = now();
                if (is_put) gasnet_puti_bulk(1, count, there, run, count, here, run);
                else gasnet_geti_bulk(count, here, run, 1, count, there, run);
            }
            tell(is_put ? "indexed put with gaps" : "indexed get with gaps", run, (now() - start) / times);
        }
    }
}

/* ---- Threads of one rank that exchange short messages with another rank at once ---- */

#if GASNET_PAR
enum { EXCHANGES = 5000 };

static pthread_barrier_t together;

static void *exchanger(void *argument) {
    int const thread = (int)(size_t)argument;
    pthread_barrier_wait(&together);
    for (int i = 0; i < EXCHANGES; i++) {
        int const next = pongs[thread].count + 1;
        CHECK(gasnet_AMRequestShort1(1, PING, thread) == GASNET_OK);
        GASNET_BLOCKUNTIL(pongs[thread].count == next);
    }
    pthread_barrier_wait(&together);
    return NULL;
}

static void threads(void) {
    for (size_t count = 1; count <= THREADS_MAX; count++) {
        pthread_t others[THREADS_MAX];
        char name[80];
        double start;
        pthread_barrier_init(&together, NULL, (unsigned)count + 1);
        for (size_t i = 0; i < count; i++) CHECK(pthread_create(&others[i], NULL, exchanger, (void *)i) == 0);
        pthread_barrier_wait(&together);
        start = now();
        pthread_barrier_wait(&together);
        snprintf(name, sizeof name, "short round trip, threads of a rank: %d", (int)count);
        tell(name, 0, (now() - start) / EXCHANGES);
        for (size_t i = 0; i < count; i++) CHECK(pthread_join(others[i], NULL) == 0);
        pthread_barrier_destroy(&together);
    }
}
#endif

/* ---- Collectives of all ranks ---- */

enum { IN_FLIGHT = 500, BLOCK_BYTES_MAX = 32 << 10 };

static void add(void *results, size_t result_count, const void *left, size_t left_count, const void *right, size_t element_bytes,
                int flags, int argument) {
    (void)left_count, (void)element_bytes, (void)flags, (void)argument;
    for (size_t i = 0; i < result_count; i++)
        ((double *)results)[i] = ((const double *)left)[i] + ((const double *)right)[i];
}

enum { BROADCAST, SCATTER, GATHER, GATHER_ALL, EXCHANGE, REDUCE, KINDS };
static const char *const kinds[KINDS] = {"broadcast", "scatter", "gather", "gather_all", "exchange", "reduce"};

static gasnet_coll_handle_t begin(int kind, size_t bytes) {
    int const flags = GASNET_COLL_LOCAL | GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC | GASNET_COLL_SRC_IN_SEGMENT |
                      GASNET_COLL_DST_IN_SEGMENT;
    void *const from = at(me, 0), *const to = at(me, HALF);
    switch (kind) {
    case BROADCAST: return gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, to, 0, from, bytes, flags);
    case SCATTER: return gasnet_coll_scatter_nb(GASNET_TEAM_ALL, to, 0, from, bytes, flags);
    case GATHER: return gasnet_coll_gather_nb(GASNET_TEAM_ALL, 0, to, from, bytes, flags);
    case GATHER_ALL: return gasnet_coll_gather_all_nb(GASNET_TEAM_ALL, to, from, bytes, flags);
    case EXCHANGE: return gasnet_coll_exchange_nb(GASNET_TEAM_ALL, to, from, bytes, flags);
    default: return gasnet_coll_reduce_nb(GASNET_TEAM_ALL, 0, to, from, 0, 0, 8, bytes / 8, 0, 0, flags);
    }
}

static void collectives(void) {
    static size_t const sizes[] = {8, 1 << 10, BLOCK_BYTES_MAX};
    static gasnet_coll_handle_t handles[IN_FLIGHT];
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            char name[80];
            double start = 0;
            int const times = 200;
            for (int round = -times / 4; round < times; round++) {
                if (round == 0) {
                    barrier();
                    start = now();
                }
                gasnet_coll_wait_sync(begin(kind, sizes[i]));
            }
            barrier();
            snprintf(name, sizeof name, "%s by %d ranks", kinds[kind], (int)nodes);
            if (me == 0) tell(name, sizes[i], (now() - start) / times);
            barrier();
            start = now();
            for (int k = 0; k < IN_FLIGHT; k++) handles[k] = begin(kind, sizes[i]);
            gasnet_coll_wait_sync_all(handles, IN_FLIGHT);
            barrier();
            snprintf(name, sizeof name, "%s by %d ranks, %d in flight", kinds[kind], (int)nodes, IN_FLIGHT);
            if (me == 0) tell(name, sizes[i], (now() - start) / IN_FLIGHT);
        }
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {
        {PING, (void (*)())on_ping},
        {PONG, (void (*)())on_pong},
        {PING_MEDIUM, (void (*)())on_ping_medium},
        {PONG_MEDIUM, (void (*)())on_bytes_back},
        {PING_LONG, (void (*)())on_ping_long},
        {PONG_LONG, (void (*)())on_bytes_back},
        {FLOOD, (void (*)())on_flood},
        {FLOOD_END, (void (*)())on_flood_end},
        {END, (void (*)())on_end},
    };
    gasnet_coll_fn_entry_t functions[1];
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(table, sizeof table / sizeof *table, SEGMENT_BYTES, 0) == GASNET_OK);
    me = gasnet_mynode();
    nodes = gasnet_nodes();
    CHECK(argc == 2 && nodes >= 2 && nodes * BLOCK_BYTES_MAX <= HALF);
    segments = (gasnet_seginfo_t *)calloc(nodes, sizeof *segments);
    source = (char *)calloc(1, 2 * SECTION_BYTES + (64 << 10));
    CHECK(segments && source && gasnet_getSegmentInfo(segments, (int)nodes) == GASNET_OK);
    memset(segments[me].addr, 0, SEGMENT_BYTES);
    functions[0].fnptr = add;
    functions[0].flags = 0;
    gasnet_coll_init(NULL, 0, functions, 1, 0);
    barrier();
    if (strcmp(argv[1], "collectives") == 0) {
        collectives();
    } else if (me == 0) {
#if GASNET_PAR
        threads();
#else
        payloads();
        sections();
#endif
        CHECK(gasnet_AMRequestShort0(1, END) == GASNET_OK);
    } else {
        GASNET_BLOCKUNTIL(is_end);
    }
    barrier();
    gasnet_exit(0);
    return 0;
}
