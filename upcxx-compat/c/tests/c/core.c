/* The core interface call by call: codes, limits, handlers of every category and count, locks, queries. */
#include "check.h"

#define FIRST_SHORT 130
#define FIRST_MEDIUM 150
#define FIRST_LONG 170
#define DONE 200

static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;
static volatile int handled, done;
static char *segment;
static int evaluations;

static int once(int value) {
    evaluations++;
    return value;
}

/* Argument i of a message of `count` is this; negative values must stay so. */
static gasnet_handlerarg_t word(int count, int i) { return (i % 2 ? -1 : 1) * (count * 1000 + i); }
static unsigned char byte(size_t i) { return (unsigned char)(i * 7 + 3); }

static void check_payload(const void *buf, size_t nbytes) {
    const unsigned char *bytes = (const unsigned char *)buf;
    size_t i;
    for (i = 0; i < nbytes; i++) CHECK(bytes[i] == byte(i));
}

static void count_one(void) {
    gasnet_hsl_lock(&lock);
    handled++;
    gasnet_hsl_unlock(&lock);
}

static void on_done(gasnet_token_t token) {
    (void)token;
    done++;
}

#define W(M, i) CHECK(a##i == word(M, i))
#define HANDLERS(M, params, checks)                                                                                    \
    static void on_short##M PARAMS params {                                                                            \
        gasnet_node_t source;                                                                                          \
        checks;                                                                                                        \
        CHECK(gasnet_AMGetMsgSource(token, &source) == GASNET_OK && source < gasnet_nodes());                          \
        count_one();                                                                                                   \
        CHECK(gasnet_AMReplyShort0(token, DONE) == GASNET_OK);                                                         \
    }                                                                                                                  \
    static void on_medium##M PAYLOAD params {                                                                          \
        checks;                                                                                                        \
        CHECK((uintptr_t)buf % 8 == 0);                                                                                \
        check_payload(buf, nbytes);                                                                                    \
        memset(buf, 0, nbytes); /* it is the handler's own */                                                          \
        count_one();                                                                                                   \
        CHECK(gasnet_AMReplyShort0(token, DONE) == GASNET_OK);                                                         \
    }                                                                                                                  \
    static void on_long##M PAYLOAD params {                                                                            \
        checks;                                                                                                        \
        CHECK((char *)buf == segment + 64);                                                                            \
        check_payload(buf, nbytes);                                                                                    \
        count_one();                                                                                                   \
        CHECK(gasnet_AMReplyShort0(token, DONE) == GASNET_OK);                                                         \
    }
#define PARAMS(...) (gasnet_token_t token __VA_ARGS__)
#define PAYLOAD(...) (gasnet_token_t token, void *buf, size_t nbytes __VA_ARGS__)
#define A(i) , gasnet_handlerarg_t a##i
HANDLERS(0, (), (void)0)
HANDLERS(1, (A(0)), W(1, 0))
HANDLERS(2, (A(0) A(1)), W(2, 0); W(2, 1))
HANDLERS(3, (A(0) A(1) A(2)), W(3, 0); W(3, 1); W(3, 2))
HANDLERS(8, (A(0) A(1) A(2) A(3) A(4) A(5) A(6) A(7)), W(8, 0); W(8, 1); W(8, 2); W(8, 3); W(8, 4); W(8, 5); W(8, 6);
         W(8, 7))
HANDLERS(15, (A(0) A(1) A(2) A(3) A(4) A(5) A(6) A(7) A(8) A(9) A(10) A(11) A(12) A(13) A(14)), W(15, 0); W(15, 1);
         W(15, 2); W(15, 3); W(15, 4); W(15, 5); W(15, 6); W(15, 7); W(15, 8); W(15, 9); W(15, 10); W(15, 11);
         W(15, 12); W(15, 13); W(15, 14))
HANDLERS(16, (A(0) A(1) A(2) A(3) A(4) A(5) A(6) A(7) A(8) A(9) A(10) A(11) A(12) A(13) A(14) A(15)), W(16, 0);
         W(16, 1); W(16, 2); W(16, 3); W(16, 4); W(16, 5); W(16, 6); W(16, 7); W(16, 8); W(16, 9); W(16, 10);
         W(16, 11); W(16, 12); W(16, 13); W(16, 14); W(16, 15))


/* A medium or long request that is answered by the same. */
#define ECHO_MEDIUM 201
#define ECHO_LONG 202
#define ECHOED 203
/* Where answers go: beyond what requests write, also to oneself. */
#define ECHO_AT (1 << 19)
static gasnet_seginfo_t *segments;

static void on_echo_medium(gasnet_token_t token, void *buf, size_t nbytes) {
    CHECK(gasnet_AMReplyMedium2(token, ECHOED, buf, nbytes, -7, 7) == GASNET_OK);
}
static void on_echo_long(gasnet_token_t token, void *buf, size_t nbytes) {
    gasnet_node_t source;
    CHECK(gasnet_AMGetMsgSource(token, &source) == GASNET_OK);
    CHECK(gasnet_AMReplyLong2(token, ECHOED, buf, nbytes, (char *)segments[source].addr + ECHO_AT, -7, 7) == GASNET_OK);
}
static void on_echoed(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t a, gasnet_handlerarg_t b) {
    CHECK(a == -7 && b == 7);
    check_payload(buf, nbytes);
    /* A reply is not replied to. */
    CHECK(gasnet_AMReplyShort0(token, DONE) != GASNET_OK);
    done++;
}
static gasnet_handler_t any_index;
static void on_any(gasnet_token_t token) { CHECK(gasnet_AMReplyShort0(token, DONE) == GASNET_OK); }

#define ENTRY(M)                                                                                                       \
    {FIRST_SHORT + M, (void (*)())on_short##M}, {FIRST_MEDIUM + M, (void (*)())on_medium##M}, {                        \
        FIRST_LONG + M, (void (*)())on_long##M                                                                         \
    }

static unsigned char *bytes;

static void barrier(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}

#define W1(M) , word(M, 0)
#define W2(M) W1(M), word(M, 1)
#define W3(M) W2(M), word(M, 2)
#define W8(M) W3(M), word(M, 3), word(M, 4), word(M, 5), word(M, 6), word(M, 7)
#define W15(M) W8(M), word(M, 8), word(M, 9), word(M, 10), word(M, 11), word(M, 12), word(M, 13), word(M, 14)
#define W16(M) W15(M), word(M, 15)
#define NO_WORDS
/* All forms of a count, to one rank, with so many bytes. */
#define ALL_FORMS(M, words)                                                                                            \
    do {                                                                                                               \
        done = 0;                                                                                                      \
        CHECK(gasnet_AMRequestShort##M(to, FIRST_SHORT + M words) == GASNET_OK);                                       \
        CHECK(gasnet_AMRequestShort(to, FIRST_SHORT + M, M words) == GASNET_OK);                                       \
        CHECK(gasnet_AMRequestMedium##M(to, FIRST_MEDIUM + M, bytes, length words) == GASNET_OK);                      \
        CHECK(gasnet_AMRequestMedium(to, FIRST_MEDIUM + M, bytes, length, M words) == GASNET_OK);                      \
        GASNET_BLOCKUNTIL(done == 4);                                                                                  \
        CHECK(gasnet_AMRequestLong##M(to, FIRST_LONG + M, bytes, length, there words) == GASNET_OK);                   \
        GASNET_BLOCKUNTIL(done == 5);                                                                                  \
        CHECK(gasnet_AMRequestLongAsync##M(to, FIRST_LONG + M, bytes, length, there words) == GASNET_OK);              \
        CHECK(gasnet_AMRequestLong(to, FIRST_LONG + M, bytes, length, there, M words) == GASNET_OK);       \
        GASNET_BLOCKUNTIL(done == 7);                                                                                  \
    } while (0)

static void messages(gasnet_node_t to, size_t length) {
    void *const there = (char *)segments[to].addr + 64;
    ALL_FORMS(0, NO_WORDS);
    ALL_FORMS(1, W1(1));
    ALL_FORMS(2, W2(2));
    ALL_FORMS(3, W3(3));
    ALL_FORMS(8, W8(8));
    ALL_FORMS(15, W15(15));
    ALL_FORMS(16, W16(16));
}

static void echoes(gasnet_node_t to, size_t length) {
    if (length > gasnet_AMMaxLongReply()) length = gasnet_AMMaxLongReply();
    done = 0;
    CHECK(gasnet_AMRequestMedium0(to, ECHO_MEDIUM, bytes, length) == GASNET_OK);
    GASNET_BLOCKUNTIL(done == 1);
    CHECK(gasnet_AMRequestLong0(to, ECHO_LONG, bytes, length, (char *)segments[to].addr + 64) == GASNET_OK);
    GASNET_BLOCKUNTIL(done == 2);
}

static void bad_arguments(void) {
    const gasnet_node_t me = gasnet_mynode();
    char *const end = (char *)segments[me].addr + segments[me].size;
    int index;
    CHECK(gasnet_AMRequestShort0(gasnet_nodes(), DONE) == GASNET_ERR_BAD_ARG);
    /* Indices below 128 are not the client's, whatever this library does with them. */
    for (index = 0; index < 128; index++) {
        CHECK(gasnet_AMRequestShort0(me, (gasnet_handler_t)index) == GASNET_ERR_BAD_ARG);
        CHECK(gasnet_AMRequestMedium0(me, (gasnet_handler_t)index, bytes, 40) == GASNET_ERR_BAD_ARG);
        CHECK(gasnet_AMRequestLong0(me, (gasnet_handler_t)index, bytes, 1, segments[me].addr) == GASNET_ERR_BAD_ARG);
        CHECK(gasnet_AMRequestLong0(me, (gasnet_handler_t)index, NULL, 0, NULL) == GASNET_ERR_BAD_ARG);
    }
    CHECK(gasnet_AMRequestShort(me, DONE, 17) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestShort(me, DONE, -1) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestMedium0(me, ECHO_MEDIUM, bytes, gasnet_AMMaxMedium() + 1) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestLong0(me, ECHO_LONG, bytes, 1, end) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestLong0(me, ECHO_LONG, bytes, 2, end - 1) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestLong0(me, ECHO_LONG, bytes, 1, (char *)segments[me].addr - 1) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_getSegmentInfo(NULL, 1) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMGetMsgSource(NULL, NULL) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_set_waitmode(17) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_set_waitmode(GASNET_WAIT_BLOCK) == GASNET_OK);
    CHECK(gasnet_attach(NULL, 0, 0, 0) != GASNET_OK);
    CHECK(gasnet_init(NULL, NULL) != GASNET_OK);
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t bad[] = {{5, (void (*)())on_done}};
    gasnet_handlerentry_t twice[] = {{200, (void (*)())on_done}, {200, (void (*)())on_done}};
    gasnet_handlerentry_t table[] = {
        {0, (void (*)())on_any},           {DONE, (void (*)())on_done},
        {ECHO_MEDIUM, (void (*)())on_echo_medium}, {ECHO_LONG, (void (*)())on_echo_long},
        {ECHOED, (void (*)())on_echoed},   ENTRY(0),
        ENTRY(1),                          ENTRY(2),
        ENTRY(3),                          ENTRY(8),
        ENTRY(15),                         ENTRY(16)};
    const int entries = (int)(sizeof table / sizeof *table);
    gasnet_node_t me, to;
    gasnet_nodeinfo_t *nodes;
    gasnet_seginfo_t none;
    size_t size, i, most;
    CHECK(gasnet_attach(table, entries, GASNET_PAGESIZE, 0) == GASNET_ERR_NOT_INIT);
    CHECK(gasnet_AMPoll() == GASNET_ERR_NOT_INIT);
    CHECK(vgasi_medium_max() == 0 && gasnet_AMMaxLongRequest() == 0 && gasnet_AMMaxLongReply() == 0);
    /* Clients may keep their arguments to themselves. */
    if (argc > 1 && strcmp(argv[1], "null") == 0) CHECK(gasnet_init(NULL, NULL) == GASNET_OK);
    else CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    me = gasnet_mynode();
    CHECK(me < gasnet_nodes());
    CHECK(gasnet_getenv("HOME") != NULL && gasnet_getenv("no such variable") == NULL);
    CHECK(gasnet_getMaxLocalSegmentSize() >= gasnet_getMaxGlobalSegmentSize());
    CHECK(gasnet_getMaxGlobalSegmentSize() % GASNET_PAGESIZE == 0 && gasnet_getMaxGlobalSegmentSize() > 0);
    /* What needs handlers or segments says that there are none yet. */
    CHECK(gasnet_AMRequestShort0(me, DONE) == GASNET_ERR_NOT_INIT);
    CHECK(gasnet_AMRequestMedium0(me, ECHO_MEDIUM, bytes, 8) == GASNET_ERR_NOT_INIT);
    CHECK(gasnet_AMRequestLong0(me, ECHO_LONG, NULL, 0, NULL) == GASNET_ERR_NOT_INIT);
    CHECK(gasnet_getSegmentInfo(&none, 1) == GASNET_ERR_NOT_INIT);
    CHECK(gasnet_attach(bad, 1, GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(twice, 2, GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(table, entries, GASNET_PAGESIZE + 1, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(table, entries, gasnet_getMaxLocalSegmentSize() + GASNET_PAGESIZE, 0) != GASNET_OK);
    size = argc > 1 && strcmp(argv[1], "all") == 0 ? gasnet_getMaxLocalSegmentSize() : 1 << 20;
    CHECK(gasnet_attach(table, entries, size, GASNET_PAGESIZE) == GASNET_OK);
    any_index = table[0].index;
    CHECK(any_index >= 128);

    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    nodes = (gasnet_nodeinfo_t *)calloc(gasnet_nodes(), sizeof *nodes);
    CHECK(gasnet_getSegmentInfo(segments, once((int)gasnet_nodes())) == GASNET_OK && evaluations == 1);
    CHECK(gasnet_getNodeInfo(nodes, (int)gasnet_nodes()) == GASNET_OK);
    segment = (char *)segments[me].addr;
    for (i = 0; i < gasnet_nodes(); i++) {
        CHECK(segments[i].size == size && (uintptr_t)segments[i].addr % GASNET_PAGESIZE == 0);
        if (nodes[i].supernode == nodes[me].supernode) {
            /* Loads and stores reach it. */
            const uintptr_t *offset = &nodes[i].offset;
            ((char *)((uintptr_t)segments[i].addr + *offset))[me] = (char)(me + 1);
        } else {
            gasnet_put_val((gasnet_node_t)i, (char *)segments[i].addr + me, me + 1, 1);
        }
    }
    barrier();
    for (i = 0; i < gasnet_nodes(); i++) CHECK(segment[i] == (char)(i + 1));
    segment[size - 1] = 1;

    most = gasnet_AMMaxLongRequest() < gasnet_AMMaxLongReply() ? gasnet_AMMaxLongRequest() : gasnet_AMMaxLongReply();
    if (most > ECHO_AT) most = ECHO_AT;
    bytes = (unsigned char *)malloc(most > gasnet_AMMaxMedium() ? most : gasnet_AMMaxMedium() + 1);
    for (i = 0; i < most || i < gasnet_AMMaxMedium(); i++) bytes[i] = byte(i);
    CHECK(gasnet_AMMaxArgs() >= 16 && gasnet_AMMaxMedium() >= 512 && most >= 512);
    CHECK(gasnet_AMMaxMedium() == vgasi_medium_max());
    bad_arguments();
    barrier();
    for (to = 0; to < gasnet_nodes(); to++) {
        /* One sender at a time: they write to the same place. */
        gasnet_node_t turn;
        for (turn = 0; turn < gasnet_nodes(); turn++) {
            if (turn == me) {
                messages(to, 0);
                messages(to, 1);
                messages(to, 512);
                messages(to, gasnet_AMMaxMedium());
                echoes(to, 0);
                echoes(to, 13);
                echoes(to, gasnet_AMMaxMedium());
                done = 0;
                CHECK(gasnet_AMRequestLong0(to, ECHO_LONG, bytes, most - 256, (char *)segments[to].addr + 64) == GASNET_OK);
                GASNET_BLOCKUNTIL(done == 1);
                CHECK(gasnet_AMRequestShort0(to, any_index) == GASNET_OK);
                GASNET_BLOCKUNTIL(done == 2);
            }
            barrier();
        }
    }
    CHECK(handled == (int)gasnet_nodes() * 4 * 7 * 7);
    CHECK(strcmp(gasnet_ErrorName(GASNET_ERR_BAD_ARG), "GASNET_ERR_BAD_ARG") == 0);
    CHECK(gasnet_ErrorName(12) != NULL && gasnet_ErrorDesc(GASNET_OK) != NULL && gasnet_ErrorDesc(12) != NULL);
    gasnet_hold_interrupts();
    gasnet_resume_interrupts();
    CHECK(gasnet_hsl_trylock(&lock) == GASNET_OK);
#if !GASNET_SEQ
    CHECK(gasnet_hsl_trylock(&lock) == GASNET_ERR_NOT_READY);
#endif
    gasnet_hsl_unlock(&lock);
    gasnet_hsl_destroy(&lock);
    barrier();
    gasnet_exit(0);
    return 1;
}
