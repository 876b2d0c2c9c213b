/* What was started goes on by itself: each kind of operation is started and then left alone, while its rank does what the
 * first argument says: `poll` in a loop, `block` until a message comes, or `compute` without any call. Whoever is to see the
 * bytes looks at its memory. The second argument is the size of the largest put. */
#include "check.h"
#include <gasnet_vis.h>
#include <unistd.h>

enum { TOLD = 200 };

/* Where things are in each segment: what this rank is told, what others get, what they put. */
#define ACK_AT 0
#define SOURCE_AT 4096
#define SOURCE_BYTES 300001
#define TARGET_AT (512 << 10)
#define PIECES 40
#define PIECE_BYTES 24
#define PIECE_STEP 1000

static gasnet_node_t partner;
static char *mine, *theirs;
static size_t largest;
static volatile int told;

static void on_told(gasnet_token_t token, gasnet_handlerarg_t round) {
    (void)token;
    told = round;
}

static void barrier(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}

static char byte_of(int round, size_t at) { return (char)(round * 31 + at * 7 + at / 251 + 1); }

static int has(const volatile char *bytes, int round, size_t first, size_t count) {
    size_t at;
    for (at = 0; at < count; at++)
        if (bytes[at] != byte_of(round, first + at)) return 0;
    return 1;
}

enum { PUT, PUT_COPIED, PUT_BULK, PUT_VALUE, SET, PUT_VECTOR, PUT_SECTION, PUT_REGION, PUT_MANY, PUT_LARGE, GET, GET_BULK,
       GET_REGION, GET_VECTOR, KINDS };

/* Whether the bytes of a put are in this rank's memory. */
static int has_come(int round) {
    const volatile char *const here = mine + TARGET_AT;
    size_t i;
    switch (round % KINDS) {
    case PUT:
    case PUT_VALUE: return has(here + 3, round, 0, 8);
    case PUT_COPIED: return has(here + 4000, round, 0, 5000);
    case PUT_BULK: return has(here + 5, round, 0, SOURCE_BYTES);
    case SET:
        for (i = 0; i < 20000; i++)
            if (here[7 + i] != (char)round) return 0;
        return 1;
    case PUT_VECTOR:
    case PUT_SECTION:
    case PUT_REGION:
        for (i = 0; i < PIECES; i++)
            if (!has(here + i * PIECE_STEP, round, i * PIECE_BYTES, PIECE_BYTES)) return 0;
        return 1;
    case PUT_MANY:
        for (i = 0; i < 500; i++)
            if (!has(here + i * 600, round, i * 8, 8)) return 0;
        return 1;
    case PUT_LARGE: return has(here + 9, round, 0, largest);
    }
    return 1;
}

/* Whether the bytes of a get are in its buffer. */
static int has_got(int round, const volatile char *buffer) {
    switch (round % KINDS) {
    case GET: return has(buffer, 0, 1, 8);
    case GET_BULK: return has(buffer, 0, 0, SOURCE_BYTES);
    case GET_REGION: return has(buffer, 0, 0, 64 * 100);
    }
    return 1;
}

/* Starts the operation of a round; what is to be synchronised besides the implicit ones. */
static gasnet_handle_t start(int round, char *buffer) {
    char *const there = theirs + TARGET_AT;
    gasnet_handle_t handle = GASNET_INVALID_HANDLE;
    static gasnet_memvec_t far[PIECES], near[PIECES];
    size_t i;
    if (round % KINDS < GET)
        for (i = 0; i < (round % KINDS == PUT_LARGE ? largest : SOURCE_BYTES); i++) buffer[i] = byte_of(round, i);
    for (i = 0; i < PIECES; i++) {
        far[i].addr = (round % KINDS == GET_VECTOR ? theirs + SOURCE_AT : there) + i * PIECE_STEP;
        near[i].addr = buffer + i * PIECE_BYTES;
        far[i].len = near[i].len = PIECE_BYTES;
    }
    switch (round % KINDS) {
    case PUT: gasnet_put_nbi(partner, there + 3, buffer, 8); break;
    case PUT_COPIED:
        handle = gasnet_put_nb(partner, there + 4000, buffer, 5000);
        memset(buffer, 0xee, 5000);
        break;
    case PUT_BULK: handle = gasnet_put_nb_bulk(partner, there + 5, buffer, SOURCE_BYTES); break;
    case PUT_VALUE: {
        gasnet_register_value_t value;
        memcpy(&value, buffer, sizeof value);
        gasnet_put_nbi_val(partner, there + 3, value, sizeof value);
        break;
    }
    case SET: gasnet_memset_nbi(partner, there + 7, round, 20000); break;
    case PUT_VECTOR: gasnet_putv_nbi_bulk(partner, PIECES, far, PIECES, near); break;
    case PUT_SECTION: {
        size_t to = PIECE_STEP, from = PIECE_BYTES, counts[] = {PIECE_BYTES, PIECES};
        handle = gasnet_puts_nb_bulk(partner, there, &to, buffer, &from, counts, 1);
        break;
    }
    case PUT_REGION:
        gasnet_begin_nbi_accessregion();
        for (i = 0; i < PIECES; i++) gasnet_put_nbi_bulk(partner, far[i].addr, near[i].addr, PIECE_BYTES);
        handle = gasnet_end_nbi_accessregion();
        break;
    case PUT_MANY:
        for (i = 0; i < 500; i++) gasnet_put_nbi(partner, there + i * 600, buffer + i * 8, 8);
        break;
    case PUT_LARGE: gasnet_put_nbi_bulk(partner, there + 9, buffer, largest); break;
    case GET: gasnet_get_nbi(buffer, partner, theirs + SOURCE_AT + 1, 8); break;
    case GET_BULK: handle = gasnet_get_nb_bulk(buffer, partner, theirs + SOURCE_AT, SOURCE_BYTES); break;
    case GET_REGION:
        gasnet_begin_nbi_accessregion();
        for (i = 0; i < 100; i++) gasnet_get_nbi_bulk(buffer + i * 64, partner, theirs + SOURCE_AT + i * 64, 64);
        handle = gasnet_end_nbi_accessregion();
        break;
    case GET_VECTOR: handle = gasnet_getv_nb_bulk(PIECES, near, partner, PIECES, far); break;
    }
    return handle;
}

/* Both start and wait for what the other has started. */
static void wait_for_each_other(int round, int blocks, char *buffer) {
    const gasnet_handle_t handle = start(round, buffer);
    if (round % KINDS >= GET) {
        while (!has_got(round, buffer)) CHECK(gasnet_AMPoll() == GASNET_OK);
    } else {
        while (!has_come(round)) CHECK(gasnet_AMPoll() == GASNET_OK);
    }
    /* The answer comes when the other has seen what this rank has put. */
    CHECK(gasnet_AMRequestShort1(partner, TOLD, round) == GASNET_OK);
    if (blocks) GASNET_BLOCKUNTIL(told == round);
    else while (told != round) CHECK(gasnet_AMPoll() == GASNET_OK);
    gasnet_wait_syncnb(handle);
    gasnet_wait_syncnbi_all();
}

/* The first one starts and computes; the other tells it by a put into its memory that all has come. */
static void compute(int round, int computes, char *buffer) {
    static volatile uint64_t count;
    volatile int *const ack = (volatile int *)(mine + ACK_AT);
    gasnet_handle_t handle;
    if (!computes) {
        if (round % KINDS >= GET) return;
        while (!has_come(round)) CHECK(gasnet_AMPoll() == GASNET_OK);
        gasnet_put(partner, theirs + ACK_AT, &round, sizeof round);
        return;
    }
    handle = start(round, buffer);
    if (round % KINDS == GET_VECTOR) {
        /* Its bytes go to their places when it is synchronised, for which nothing has to come any more. */
        while (gasnet_try_syncnb_nopoll(handle) != GASNET_OK) count++;
        handle = GASNET_INVALID_HANDLE;
    } else if (round % KINDS >= GET) {
        while (!has_got(round, buffer)) count++;
    } else {
        while (*ack != round) count++;
    }
    gasnet_wait_syncnb(handle);
    gasnet_wait_syncnbi_all();
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{TOLD, (void (*)())on_told}};
    gasnet_seginfo_t *segments;
    const char *how;
    char *buffer;
    gasnet_node_t me, half;
    uintptr_t bytes;
    int round, rounds;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc == 4);
    how = argv[1];
    largest = (size_t)atol(argv[2]);
    rounds = atoi(argv[3]) * KINDS;
    bytes = (TARGET_AT + largest + (1 << 20)) / GASNET_PAGESIZE * GASNET_PAGESIZE;
    CHECK(gasnet_attach(table, 1, bytes, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    /* The other half of the ranks is on the other node, where there are two. */
    me = gasnet_mynode();
    half = gasnet_nodes() / 2;
    partner = (me + half) % gasnet_nodes();
    mine = (char *)segments[me].addr;
    theirs = (char *)segments[partner].addr;
    buffer = (char *)malloc(largest > SOURCE_BYTES ? largest : SOURCE_BYTES);
    CHECK(buffer != NULL);
    for (round = 0; round < SOURCE_BYTES; round++) mine[SOURCE_AT + round] = byte_of(0, (size_t)round);
    /* A job that hangs ends with the signal that says so. */
    alarm(100);
    for (round = KINDS; round < KINDS + rounds; round++) {
        barrier();
        memset(buffer, 0, SOURCE_BYTES);
        if (strcmp(how, "compute") != 0) wait_for_each_other(round, strcmp(how, "block") == 0, buffer);
        else compute(round, me < half, buffer);
        if (round % KINDS == GET_VECTOR && (strcmp(how, "compute") != 0 || me < half)) {
            size_t i;
            for (i = 0; i < PIECES; i++) CHECK(has(buffer + i * PIECE_BYTES, 0, i * PIECE_STEP, PIECE_BYTES));
        }
    }
    barrier();
    free(buffer);
    free(segments);
    gasnet_exit(0);
    return 1;
}
