/* Small print of the specification, clause by clause, that is easily got wrong. Usage: clauses WHAT
 *   all           what must work
 *   nested, inside, unbegun, unnotified, notified: mistakes, which end the job with a line that says what is wrong */
#define _GNU_SOURCE 1 /* RUSAGE_THREAD */
#include "check.h"

#include <gasnet_coll.h>
#include <gasnet_vis.h>
#include <sys/resource.h>
#include <time.h>

static gasnet_node_t me, nodes, peer;
static gasnet_seginfo_t *segments;
static int volatile answers, addresses_seen, token_refused;

static char *at(gasnet_node_t node, size_t offset) { return (char *)segments[node].addr + offset; }
static void barrier(void) { CHECK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK); }

enum { MEDIUM = 210, LONG, ANSWER, COUNTED, LATE, FROM_SEGMENT, BACK_MEDIUM, BACK_LONG };
/* An address that nobody has, for what must not be looked at. */
#define NOWHERE ((void *)~(uintptr_t)0)

static void on_medium(gasnet_token_t token, void *buf, size_t nbytes) {
    CHECK(nbytes == 0);
    (void)buf;
    CHECK(gasnet_AMReplyMedium0(token, ANSWER, NOWHERE, 0) == GASNET_OK);
    /* Only one reply. */
    if (gasnet_AMReplyMedium0(token, ANSWER, NULL, 0) == GASNET_ERR_BAD_ARG) token_refused++;
}
static void on_long(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t is_null) {
    CHECK(nbytes == 0);
    if (is_null ? buf == NULL : buf == at(me, 40)) addresses_seen++;
    CHECK(gasnet_AMReplyLong0(token, ANSWER, NULL, 0, NULL) == GASNET_OK);
}
static void on_answer(gasnet_token_t token, void *buf, size_t nbytes) {
    (void)token;
    (void)buf;
    CHECK(nbytes == 0);
    answers++;
}
static void on_counted(gasnet_token_t token, gasnet_handlerarg_t a, gasnet_handlerarg_t b) {
    (void)token;
    CHECK(a == -1 && b == 0x7fffffff);
    answers++;
}
static void on_late(gasnet_token_t token) {
    (void)token;
    answers++;
}

/* Where no bytes are moved, addresses mean nothing; the node must exist. */
static void nothing(void) {
    gasnet_handle_t handles[7];
    gasnet_node_t node;
    for (node = 0; node < nodes; node++) {
        gasnet_put(node, NULL, NULL, 0);
        gasnet_put_bulk(node, NOWHERE, NULL, 0);
        gasnet_get(NULL, node, NULL, 0);
        gasnet_get_bulk(NULL, node, NOWHERE, 0);
        gasnet_memset(node, NULL, 7, 0);
        handles[0] = gasnet_put_nb(node, NULL, NULL, 0);
        handles[1] = gasnet_put_nb_bulk(node, NOWHERE, NOWHERE, 0);
        handles[2] = gasnet_get_nb(NULL, node, NULL, 0);
        handles[3] = gasnet_get_nb_bulk(NOWHERE, node, NOWHERE, 0);
        handles[4] = gasnet_memset_nb(node, NULL, 7, 0);
        handles[5] = GASNET_INVALID_HANDLE;
        gasnet_put_nbi(node, NULL, NULL, 0);
        gasnet_put_nbi_bulk(node, NOWHERE, NULL, 0);
        gasnet_get_nbi(NULL, node, NULL, 0);
        gasnet_get_nbi_bulk(NULL, node, NOWHERE, 0);
        gasnet_memset_nbi(node, NULL, 7, 0);
        gasnet_putv_bulk(node, 0, NULL, 0, NULL);
        gasnet_geti_bulk(0, NULL, 8, node, 0, NULL, 8);
        handles[6] = gasnet_putv_nb_bulk(node, 0, NULL, 0, NULL);
        gasnet_wait_syncnb_all(handles, 7);
        CHECK(handles[0] == GASNET_INVALID_HANDLE && handles[6] == GASNET_INVALID_HANDLE);
        gasnet_wait_syncnbi_all();
        answers = addresses_seen = 0;
        CHECK(gasnet_AMRequestMedium0(node, MEDIUM, NULL, 0) == GASNET_OK);
        CHECK(gasnet_AMRequestMedium0(node, MEDIUM, NOWHERE, 0) == GASNET_OK);
        CHECK(gasnet_AMRequestLong1(node, LONG, NULL, 0, NULL, 1) == GASNET_OK);
        CHECK(gasnet_AMRequestLongAsync1(node, LONG, NOWHERE, 0, at(node, 40), 0) == GASNET_OK);
        GASNET_BLOCKUNTIL(answers == 4);
    }
    barrier();
    /* Every request's handler was told the address, and could not reply twice. */
    CHECK(token_refused == 2 * (int)nodes);
}

/* Null is a legal buffer of no bytes, also where the other side is in a segment, and is still null afterwards: a copy of it would
 * tell optimising compilers that it is not. Each of these is one function, as a runtime's send of an optional buffer is. */
#define KEEPS_NULL(name, pointer, operation)                                                                           \
    __attribute__((__noinline__)) static int name(gasnet_node_t node, void *place, pointer buffer, size_t nbytes) {    \
        operation;                                                                                                     \
        if (buffer == NULL) return 1;                                                                                  \
        return 0;                                                                                                      \
    }
KEEPS_NULL(null_put, const char *, gasnet_put(node, place, buffer, nbytes))
KEEPS_NULL(null_put_bulk, const char *, gasnet_put_bulk(node, place, buffer, nbytes))
KEEPS_NULL(null_put_nb, const char *, gasnet_wait_syncnb(gasnet_put_nb(node, place, buffer, nbytes)))
KEEPS_NULL(null_put_nb_bulk, const char *, gasnet_wait_syncnb(gasnet_put_nb_bulk(node, place, buffer, nbytes)))
KEEPS_NULL(null_put_nbi, const char *, gasnet_put_nbi(node, place, buffer, nbytes))
KEEPS_NULL(null_get, char *, gasnet_get(buffer, node, place, nbytes))
KEEPS_NULL(null_get_bulk, char *, gasnet_get_bulk(buffer, node, place, nbytes))
KEEPS_NULL(null_get_nb, char *, gasnet_wait_syncnb(gasnet_get_nb(buffer, node, place, nbytes)))
KEEPS_NULL(null_get_nbi, char *, gasnet_get_nbi_bulk(buffer, node, place, nbytes))
KEEPS_NULL(null_place, char *, (void)place; gasnet_memset(node, buffer, 7, nbytes))
static void nothing_from_null(void) {
    /* Compilers do not know these. */
    char *volatile null = NULL;
    volatile size_t zero = 0;
    gasnet_node_t node;
    for (node = 0; node < nodes; node++) {
        void *const place = at(node, 64);
        CHECK(null_put(node, place, null, zero) && null_put_bulk(node, place, null, zero));
        CHECK(null_put_nb(node, place, null, zero) && null_put_nb_bulk(node, place, null, zero));
        CHECK(null_put_nbi(node, place, null, zero) && null_place(node, place, null, zero));
        CHECK(null_get(node, place, null, zero) && null_get_bulk(node, place, null, zero));
        CHECK(null_get_nb(node, place, null, zero) && null_get_nbi(node, place, null, zero));
        gasnet_wait_syncnbi_all();
    }
}

/* Arrays of handles: with none, of none, mixed; each operation in every form of synchronisation. */
static void handles(void) {
    gasnet_handle_t list[8], region;
    char byte = (char)me, got[8];
    size_t i;
    gasnet_wait_syncnb(GASNET_INVALID_HANDLE);
    CHECK(gasnet_try_syncnb(GASNET_INVALID_HANDLE) == GASNET_OK);
    gasnet_wait_syncnb_all(NULL, 0);
    gasnet_wait_syncnb_some(NULL, 0);
    CHECK(gasnet_try_syncnb_all(NULL, 0) == GASNET_OK && gasnet_try_syncnb_some(NULL, 0) == GASNET_OK);
    for (i = 0; i < 8; i++) list[i] = GASNET_INVALID_HANDLE;
    gasnet_wait_syncnb_all(list, 8);
    gasnet_wait_syncnb_some(list, 8);
    CHECK(gasnet_try_syncnb_all(list, 8) == GASNET_OK && gasnet_try_syncnb_some(list, 8) == GASNET_OK);
    for (i = 0; i < 8; i += 2) list[i] = gasnet_put_nb_bulk(peer, at(peer, 100 + i), &byte, 1);
    for (;;) {
        size_t left = 0;
        gasnet_wait_syncnb_some(list, 8);
        for (i = 0; i < 8; i++) left += list[i] != GASNET_INVALID_HANDLE;
        if (left == 0) break;
    }
    for (i = 0; i < 8; i += 2) list[i] = gasnet_get_nb(&got[i], peer, at(peer, 100 + i), 1);
    while (gasnet_try_syncnb_all(list, 8) == GASNET_ERR_NOT_READY) {}
    for (i = 0; i < 8; i += 2) CHECK(got[i] == byte && list[i] == GASNET_INVALID_HANDLE);

    /* Regions: empty, one after the other; their operations are not among the implicit ones. */
    gasnet_begin_nbi_accessregion();
    gasnet_wait_syncnb(gasnet_end_nbi_accessregion());
    gasnet_begin_nbi_accessregion();
    gasnet_put_nbi(peer, at(peer, 110), &byte, 1);
    gasnet_get_nbi(&got[0], me, at(me, 0), 1);
    gasnet_put_nbi_val(peer, at(peer, 111), (gasnet_register_value_t)me, 1);
    region = gasnet_end_nbi_accessregion();
    gasnet_wait_syncnbi_all();
    gasnet_wait_syncnb(region);
    CHECK((gasnet_node_t)gasnet_get_val(peer, at(peer, 110), 1) == (me & 0xff));
    CHECK((gasnet_node_t)gasnet_get_val(peer, at(peer, 111), 1) == (me & 0xff));
    CHECK(gasnet_try_syncnbi_all() == GASNET_OK && gasnet_try_syncnbi_puts() == GASNET_OK);

    /* Values: each width, the rest of the register zero. */
    for (i = 1; i <= sizeof(gasnet_register_value_t); i++) {
        gasnet_register_value_t const ones = ~(gasnet_register_value_t)0, mask = ones >> (8 * (sizeof ones - i));
        gasnet_valget_handle_t value;
        gasnet_put_val(peer, at(peer, 120), 0, sizeof ones);
        gasnet_wait_syncnb(gasnet_put_nb_val(peer, at(peer, 120), ones, i));
        CHECK(gasnet_get_val(peer, at(peer, 120), sizeof ones) == mask);
        value = gasnet_get_nb_val(peer, at(peer, 120), i);
        CHECK(gasnet_wait_syncnb_valget(value) == mask);
    }
    barrier();
}

/* Where everybody sends from, and gets to: each larger than the smallest cache, so that little of it is in memory. */
enum { SOURCES = 64 << 10, PLACES = 1600 << 10, AREA = 1400 << 10, PIECE = 400 };
static unsigned char letter(unsigned seed, size_t i) { return (unsigned char)(seed * 31 + i * 7 + (i >> 5)); }
static void spell(unsigned char *where, unsigned seed) {
    size_t i;
    for (i = 0; i < PIECE; i++) where[i] = letter(seed, i);
}
static void check_spelling(const void *where, size_t nbytes, unsigned seed) {
    size_t i;
    CHECK(nbytes == PIECE);
    for (i = 0; i < PIECE; i++) CHECK(((const unsigned char *)where)[i] == letter(seed, i));
}
static size_t spot(unsigned seed) { return (seed * 7919u) % (AREA / PIECE) * PIECE; }

/* What was asked for with `seed` is answered from this node's segment, by a medium or a long message. */
static void on_from_segment(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t seed) {
    unsigned const own = (unsigned)seed + 1;
    unsigned char *const source = (unsigned char *)at(me, SOURCES + spot(own) / 2);
    gasnet_node_t asker;
    check_spelling(buf, nbytes, (unsigned)seed);
    CHECK(gasnet_AMGetMsgSource(token, &asker) == GASNET_OK);
    spell(source, own);
    if (seed % 2) CHECK(gasnet_AMReplyMedium1(token, BACK_MEDIUM, source, PIECE, (gasnet_handlerarg_t)own) == GASNET_OK);
    else CHECK(gasnet_AMReplyLong1(token, BACK_LONG, source, PIECE, at(asker, PLACES + spot(own) / 2 + PIECE / 2),
                                   (gasnet_handlerarg_t)own) == GASNET_OK);
    /* The source of a reply is free again when the function has returned. */
    memset(source, 0xEE, PIECE);
}
static void on_back(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t seed) {
    (void)token;
    check_spelling(buf, nbytes, (unsigned)seed);
    answers++;
}

/* Messages from and to the own segment, wherever its pages are; sources are overwritten as soon as that is allowed. One node
 * asks at a time, since they use the same places. */
static void sources(void) {
    gasnet_node_t turn;
    for (turn = 0; turn < nodes; turn++) {
        unsigned round;
        for (round = 0; turn == me && round < 300; round++) {
            unsigned const seed = round * nodes + me;
            unsigned char *const source = (unsigned char *)at(me, SOURCES + AREA / 2 + spot(seed) / 2);
            void *const place = at(peer, PLACES + AREA / 2 + spot(seed) / 2);
            gasnet_handlerarg_t const word = (gasnet_handlerarg_t)seed;
            answers = 0;
            spell(source, seed);
            if (round % 3 == 0) {
                CHECK(gasnet_AMRequestMedium1(peer, FROM_SEGMENT, source, PIECE, word) == GASNET_OK);
            } else if (round % 3 == 1) {
                CHECK(gasnet_AMRequestLong1(peer, FROM_SEGMENT, source, PIECE, place, word) == GASNET_OK);
            } else {
                /* Free when the answer is here; this library says when it has returned. */
                CHECK(gasnet_AMRequestLongAsync1(peer, FROM_SEGMENT, source, PIECE, place, word) == GASNET_OK);
            }
            memset(source, 0xEE, PIECE);
            GASNET_BLOCKUNTIL(answers == 1);
        }
        barrier();
    }
}

static int evaluations;
static int once(int value) {
    evaluations++;
    return value;
}
#define ONCE(expression) ((void)once(0), (expression))
/* Arguments of what may be a macro are evaluated once. */
static void arguments(void) {
    gasnet_memvec_t here, there;
    void *to[1], *from[1];
    size_t counts[2] = {4, 1}, strides[1] = {4};
    gasnet_handle_t none = GASNET_INVALID_HANDLE;
    gasnet_coll_handle_t collective = GASNET_COLL_INVALID_HANDLE;
    char buffer[8] = {0}, *next = buffer;
    int rounds = 0;
    here.addr = from[0] = buffer;
    there.addr = to[0] = at(peer, 130);
    here.len = there.len = 4;
    gasnet_putv_bulk(ONCE(peer), ONCE(1), ONCE(&there), ONCE(1), ONCE(&here));
    gasnet_wait_syncnb(gasnet_getv_nb_bulk(ONCE(1), ONCE(&here), ONCE(peer), ONCE(1), ONCE(&there)));
    gasnet_puti_nbi_bulk(ONCE(peer), ONCE(1), ONCE(to), ONCE(4), ONCE(1), ONCE(from), ONCE(4));
    gasnet_gets_bulk(ONCE(buffer), ONCE(strides), ONCE(peer), ONCE(at(peer, 130)), ONCE(strides), ONCE(counts), ONCE(1));
    gasnet_wait_syncnbi_all();
    CHECK(evaluations == 5 + 5 + 7 + 7);
    gasnet_put(once((int)peer), ONCE(at(peer, 130)), next++, ONCE(1));
    gasnet_get(next++, once((int)peer), ONCE(at(peer, 130)), ONCE(1));
    gasnet_put_val(peer, at(peer, 130), (gasnet_register_value_t)once(3), 1);
    CHECK(next == buffer + 2 && evaluations == 24 + 3 + 3 + 1);
    CHECK(gasnet_try_syncnb_all(ONCE(&none), ONCE(1)) == GASNET_OK && gasnet_coll_try_sync(ONCE(collective)) == GASNET_OK);
    CHECK(evaluations == 31 + 3);
    answers = 0;
    barrier();
    CHECK(gasnet_AMRequestShort(peer, COUNTED, once(2), once(-1), once(0x7fffffff)) == GASNET_OK);
    CHECK(gasnet_AMRequestShort2(peer, COUNTED, once(-1), once(0x7fffffff)) == GASNET_OK);
    CHECK(evaluations == 34 + 5);
    /* A condition may have effects, be compound, and need not be an int; `break` belongs to the client's loop. */
    do {
        GASNET_BLOCKUNTIL((rounds++, answers == 2) && rounds > 0);
        break;
    } while (1);
    CHECK(rounds > 0);
    if (rounds > 0) GASNET_BLOCKUNTIL(next);
    else CHECK(0);
    barrier();
}

static void barriers(void) {
    int round;
    for (round = 0; round < 20; round++) {
        int outcome, tries = 0;
        gasnet_node_t const late = (gasnet_node_t)round % nodes;
        /* Not ready before the last has come, however often it is tried; then its outcome, once. */
        answers = 0;
        barrier();
        if (me != late) {
            gasnet_barrier_notify(round, 0);
            for (tries = 0; tries < 50; tries++) CHECK(gasnet_barrier_try(round, 0) == GASNET_ERR_NOT_READY);
            CHECK(gasnet_AMRequestShort0(late, LATE) == GASNET_OK);
        } else {
            GASNET_BLOCKUNTIL(answers == (int)nodes - 1);
            gasnet_barrier_notify(round, 0);
        }
        while ((outcome = gasnet_barrier_try(round, 0)) == GASNET_ERR_NOT_READY) {}
        CHECK(outcome == GASNET_OK);
        /* An anonymous wait for a barrier with a name; a name for one without is none's. */
        gasnet_barrier_notify(round, 0);
        CHECK(gasnet_barrier_wait(round + 1, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
        gasnet_barrier_notify(round, 0);
        CHECK(gasnet_barrier_wait(round + 1, 0) == GASNET_ERR_BARRIER_MISMATCH);
        gasnet_barrier_notify(5, GASNET_BARRIERFLAG_MISMATCH);
        CHECK(gasnet_barrier_wait(5, GASNET_BARRIERFLAG_MISMATCH) == GASNET_ERR_BARRIER_MISMATCH);
        barrier();
    }
}

static long sleeps(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_nvcsw;
}

/* Who spins never sleeps; who blocks does whenever the answer takes its time. */
static void waiting(void) {
    int round;
    int const rounds = 20;
    CHECK(gasnet_set_waitmode(-1) == GASNET_ERR_BAD_ARG && gasnet_set_waitmode(3) == GASNET_ERR_BAD_ARG);
    if (nodes == 1) return;
    for (round = 0; round < 3; round++) {
        static int const modes[3] = {GASNET_WAIT_SPIN, GASNET_WAIT_BLOCK, GASNET_WAIT_SPINBLOCK};
        long slept = 0;
        int turn;
        CHECK(gasnet_set_waitmode(modes[round]) == GASNET_OK);
        for (turn = 0; turn < rounds; turn++) {
            answers = 0;
            barrier();
            if (me == 0) {
                slept -= sleeps();
                GASNET_BLOCKUNTIL(answers == 1);
                slept += sleeps();
            } else if (me == 1) {
                /* Longer than anybody spins who will sleep; it is the subject. */
                struct timespec pause = {0, 5000000};
                nanosleep(&pause, NULL);
                CHECK(gasnet_AMRequestShort0(0, LATE) == GASNET_OK);
            }
        }
        if (me == 0) CHECK(modes[round] == GASNET_WAIT_SPIN ? slept == 0 : slept > 0);
    }
}

/* ---- Collectives ---- */

#define FLAGS (GASNET_COLL_LOCAL | GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC)

static void add(void *results, size_t count, const void *left, size_t left_count, const void *right, size_t elem_size,
                int flags, int arg) {
    size_t i;
    (void)flags;
    (void)arg;
    CHECK(left_count == count && elem_size == 8);
    for (i = 0; i < count; i++) ((uint64_t *)results)[i] = ((const uint64_t *)left)[i] + ((const uint64_t *)right)[i];
}

static long resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *const file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * (GASNET_PAGESIZE / 1024);
}

/* A node that calls late holds little of what the others have begun, however much that is; it gets all of it. Others' data
 * comes from memory and from the segment, and goes to both. */
static void late_caller(void) {
    enum { MANY = 24, BYTES = 1 << 20, SMALL = 3000 };
    static gasnet_coll_handle_t handles[2 * MANY + SMALL];
    gasnet_node_t const late = nodes - 1;
    unsigned char *const from = (unsigned char *)malloc(BYTES);
    unsigned char *const to = (unsigned char *)calloc(MANY, BYTES);
    static unsigned char small_from[SMALL][100], small_to[SMALL][100];
    size_t i, j;
    long before;
    CHECK(from != NULL && to != NULL);
    memset(to, 1, (size_t)MANY * BYTES);
    memset(at(me, 4096), 1, (size_t)2 * BYTES);
    for (i = 0; i < BYTES; i++) from[i] = (unsigned char)(i * 7 + me + i / 256);
    memset(small_from, (int)me + 1, sizeof small_from);
    answers = 0;
    barrier();
    before = resident_kib();
    if (me == late) GASNET_BLOCKUNTIL(answers == (int)nodes - 1);
    if (me == late && nodes > 1) {
        /* It has polled while they began; each of them may have credit for a quarter of a megabyte. */
        CHECK(resident_kib() - before < 8192);
    }
    for (i = 0; i < SMALL; i++) {
        handles[2 * MANY + i] = gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, small_to[i], (gasnet_image_t)(i % nodes),
                                                         small_from[i], 100, FLAGS);
    }
    for (i = 0; i < MANY; i++) {
        handles[2 * i] = gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, to + i * BYTES, 0, from, BYTES, FLAGS);
        handles[2 * i + 1] = gasnet_coll_gather_all_nb(GASNET_TEAM_ALL, at(me, 4096), from, BYTES / nodes, FLAGS);
    }
    if (me != late) {
        for (i = 0; i < 100; i++) CHECK(gasnet_AMPoll() == GASNET_OK);
        CHECK(gasnet_AMRequestShort0(late, LATE) == GASNET_OK);
    }
    gasnet_coll_wait_sync_all(handles, 2 * MANY + SMALL);
    for (i = 0; i < SMALL; i++) CHECK(small_to[i][0] == i % nodes + 1 && small_to[i][99] == i % nodes + 1);
    for (i = 0; i < MANY; i++) {
        for (j = 0; j < BYTES; j++) CHECK(to[i * BYTES + j] == (unsigned char)(j * 7 + j / 256));
    }
    for (i = 0; i < nodes; i++) {
        for (j = 0; j < BYTES / nodes; j++) {
            CHECK(((unsigned char *)at(me, 4096))[i * (BYTES / nodes) + j] == (unsigned char)(j * 7 + i + j / 256));
        }
    }
    barrier();
    free(from);
    free(to);
}

static void collectives(void) {
    gasnet_coll_fn_entry_t functions[1];
    gasnet_coll_handle_t handle;
    uint64_t mine[3], sums[3] = {0}, scanned[3] = {0};
    int i, got[5], values[5];
    functions[0].fnptr = add;
    functions[0].flags = 0;
    gasnet_coll_init(NULL, 0, functions, 1, 0);

    /* Aggregated operations belong to the handle of the one after them. */
    for (i = 0; i < 5; i++) {
        got[i] = -1;
        values[i] = (int)me * 10 + i;
    }
    for (i = 0; i < 4; i++) {
        (void)gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, &got[i], (gasnet_image_t)i % nodes, &values[i], sizeof(int),
                                       FLAGS | GASNET_COLL_AGGREGATE);
    }
    handle = gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, &got[4], 0, &values[4], sizeof(int), FLAGS);
    gasnet_coll_wait_sync(handle);
    for (i = 0; i < 4; i++) CHECK(got[i] == (i % (int)nodes) * 10 + i);
    CHECK(got[4] == 4);

    /* Block sizes and offsets are descriptions that change nothing. */
    for (i = 0; i < 3; i++) mine[i] = me + 1 + (uint64_t)i;
    gasnet_coll_reduce(GASNET_TEAM_ALL, 0, sums, mine, 3, 1, 8, 3, 0, 0, FLAGS);
    gasnet_coll_scan(GASNET_TEAM_ALL, scanned, 3, 1, mine, 3, 1, 8, 3, 0, 0, FLAGS | GASNET_COLL_INCLUSIVE_SCAN);
    for (i = 0; i < 3; i++) {
        uint64_t const all = (uint64_t)nodes * (nodes + 1) / 2 + nodes * (uint64_t)i;
        if (me == 0) CHECK(sums[i] == all);
        CHECK(scanned[i] == (uint64_t)(me + 1) * (me + 2) / 2 + (me + 1) * (uint64_t)i);
    }
    barrier();
    late_caller();
}

/* ---- Mistakes ---- */

static void mistake(const char *what) {
    if (strcmp(what, "nested") == 0) {
        gasnet_begin_nbi_accessregion();
        gasnet_begin_nbi_accessregion();
    } else if (strcmp(what, "inside") == 0) {
        gasnet_begin_nbi_accessregion();
        gasnet_wait_syncnbi_all();
    } else if (strcmp(what, "unbegun") == 0) {
        gasnet_wait_syncnb(gasnet_end_nbi_accessregion());
    } else if (strcmp(what, "unnotified") == 0) {
        (void)gasnet_barrier_wait(0, 0);
    } else if (strcmp(what, "notified") == 0) {
        gasnet_barrier_notify(0, 0);
        gasnet_barrier_notify(0, 0);
    } else {
        fprintf(stderr, "no such mistake: %s\n", what);
        gasnet_exit(98);
    }
    gasnet_exit(97);
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{MEDIUM, (void (*)())on_medium},
                                     {LONG, (void (*)())on_long},
                                     {ANSWER, (void (*)())on_answer},
                                     {COUNTED, (void (*)())on_counted},
                                     {LATE, (void (*)())on_late},
                                     {FROM_SEGMENT, (void (*)())on_from_segment},
                                     {BACK_MEDIUM, (void (*)())on_back},
                                     {BACK_LONG, (void (*)())on_back}};
    const char *what;
    CHECK(gasnet_set_waitmode(GASNET_WAIT_SPIN) == GASNET_ERR_NOT_INIT);
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(table, 8, 3 << 20, 0) == GASNET_OK);
    what = argc > 1 ? argv[1] : "all";
    me = gasnet_mynode();
    nodes = gasnet_nodes();
    peer = (me + 1) % nodes;
    segments = (gasnet_seginfo_t *)calloc(nodes, sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)nodes) == GASNET_OK);
    if (strcmp(what, "all") != 0) mistake(what);
    barrier();
    nothing();
    nothing_from_null();
    handles();
    sources();
    arguments();
    barriers();
    waiting();
    collectives();
    gasnet_exit(0);
    return 1;
}
