/* What collectives and team barriers promise beyond moving bytes. Usage: collrules WHAT
 *   promises   synchronisation flags, progress in polls, in-place use, teams within teams
 *   barriers   names, mismatches, try, images, teams that overlap
 *   images     the barrier of all threads
 *   bytes, kinds, elements, function, nested, rank, split, vector, outside, twice: mistakes, which end the job
 *   killed     a rank is killed while others wait for collectives */
#include "check.h"

#include <signal.h>
#include <unistd.h>

#include <gasnet_coll.h>
#include <gasnet_tools.h>
#include <gasnet_vis.h>

static gasnet_node_t me, nodes;
static gasnet_seginfo_t *segments;

#define LOCAL_FLAGS (GASNET_COLL_LOCAL | GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC)

static int *at(gasnet_node_t node, size_t index) { return (int *)segments[node].addr + index; }

static int volatile completions;
static void on_completion(gasnet_token_t token) {
    (void)token;
    completions++;
}
static int volatile permitted;
static void on_permission(gasnet_token_t token) {
    (void)token;
    permitted = 1;
}

/* ---- Promises ---- */

static void promises(void) {
    gasnet_node_t const peer = (me + 1) % nodes;
    int value, seen;
    int const rounds = 200;
    CHECK(GASNET_TEAM_ALL != NULL && gasnet_coll_team_size(GASNET_TEAM_ALL) == nodes);
    CHECK(gasnet_coll_team_node2rank(GASNET_TEAM_ALL, me) == me && gasnet_coll_team_rank2node(GASNET_TEAM_ALL, 0) == 0);

    /* IN_ALLSYNC: what a peer puts into a source before it calls is what is sent. OUT_ALLSYNC: what was written at a peer is
     * there when the call returns here. The peer's source and destination are only touched from here. */
    for (int round = 0; round < rounds; round++) {
        int const flags = GASNET_COLL_LOCAL | GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC;
        gasnet_node_t const root = (gasnet_node_t)round % nodes;
        value = round * 1000 + (int)peer;
        gasnet_put(peer, at(peer, 0), &value, sizeof value);
        gasnet_coll_broadcast(GASNET_TEAM_ALL, at(me, 1), root, at(me, 0), sizeof(int), flags);
        gasnet_get(&seen, peer, at(peer, 1), sizeof seen);
        CHECK(seen == round * 1000 + (int)root);
        value = round * 1000 + (int)peer + 7;
        gasnet_put(peer, at(peer, 2), &value, sizeof value);
        gasnet_coll_gather_all(GASNET_TEAM_ALL, at(me, 10), at(me, 2), sizeof(int), flags);
        for (gasnet_node_t i = 0; i < nodes; i++) {
            gasnet_get(&seen, peer, at(peer, 10 + i), sizeof seen);
            CHECK(seen == round * 1000 + (int)i + 7);
        }
        /* Nobody writes the next round's values before all have looked. */
        CHECK(gasnet_coll_barrier(GASNET_TEAM_ALL, round, 0) == GASNET_OK);
    }

    /* The root of a broadcast waits for nobody: the others come only when it says that it is done. */
    if (me == 0) {
        value = 4711;
        gasnet_coll_broadcast(GASNET_TEAM_ALL, &seen, 0, &value, sizeof value, LOCAL_FLAGS);
        for (gasnet_node_t i = 0; i < nodes; i++) CHECK(gasnet_AMRequestShort0(i, 201) == GASNET_OK);
    }
    GASNET_BLOCKUNTIL(permitted);
    if (me != 0) gasnet_coll_broadcast(GASNET_TEAM_ALL, &seen, 0, NULL, sizeof value, LOCAL_FLAGS);
    CHECK(seen == 4711);

    /* Any number may be in flight, also where their bytes have no room at once, and be waited for in any order. */
    {
        enum { OPERATIONS = 300, WORDS = 512 };
        size_t const row = (size_t)WORDS * nodes;
        int *const from = (int *)malloc(OPERATIONS * row * sizeof(int));
        int *const to = (int *)malloc(OPERATIONS * row * sizeof(int));
        gasnet_coll_handle_t handles[OPERATIONS];
        for (size_t i = 0; i < OPERATIONS * row; i++) from[i] = (int)(i * nodes + me);
        for (int i = 0; i < OPERATIONS; i++) {
            int const in = i % 3 == 0 ? GASNET_COLL_IN_ALLSYNC : GASNET_COLL_IN_MYSYNC;
            int const flags = GASNET_COLL_LOCAL | in | GASNET_COLL_OUT_MYSYNC;
            handles[i] = gasnet_coll_exchange_nb(GASNET_TEAM_ALL, to + i * row, from + i * row, WORDS * sizeof(int), flags);
        }
        for (int i = OPERATIONS - 1; i >= 0; i--) gasnet_coll_wait_sync(handles[i]);
        for (size_t i = 0; i < OPERATIONS; i++)
            for (size_t node = 0; node < nodes; node++)
                for (size_t word = 0; word < WORDS; word++) {
                    size_t const there = i * row + me * WORDS + word;
                    CHECK(to[i * row + node * WORDS + word] == (int)(there * nodes + node));
                }
        free(from);
        free(to);
    }

    /* Long blocks in place, which are copied before they are overwritten; and operations of all lengths mixed, so that short ones are
     * done before long ones that began earlier. */
    {
        enum { WORDS = 1 << 17, MIXED = 60 };
        int *const words = (int *)malloc((size_t)WORDS * nodes * sizeof(int));
        int *const other = (int *)malloc((size_t)WORDS * nodes * sizeof(int));
        static gasnet_coll_handle_t mixed[MIXED];
        for (size_t i = 0; i < (size_t)WORDS * nodes; i++) words[i] = (int)(i / WORDS * 1000 + me);
        gasnet_coll_exchange(GASNET_TEAM_ALL, words, words, WORDS * sizeof(int), LOCAL_FLAGS);
        for (size_t i = 0; i < (size_t)WORDS * nodes; i++) CHECK(words[i] == (int)(me * 1000 + i / WORDS));
        for (int i = 0; i < MIXED; i++) {
            size_t const count = i % 4 == 0 ? WORDS : 40;
            if (i % 2 == 0) mixed[i] = gasnet_coll_gather_all_nb(GASNET_TEAM_ALL, other, words, count * sizeof(int), LOCAL_FLAGS);
            else mixed[i] = gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, other, (gasnet_image_t)i % nodes, words, count * sizeof(int), LOCAL_FLAGS);
        }
        /* A rank takes part also while it waits for something else. */
        if (me == 0) {
            gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
            CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
            gasnet_coll_wait_sync_all(mixed, MIXED);
        } else {
            gasnet_coll_wait_sync_all(mixed, MIXED);
            gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
            CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
        }
        free(words);
        free(other);
    }

    /* Progress: nodes in the middle of trees only poll until everybody else has the result. The data is larger than a
     * message. */
    {
        enum { COUNT = 100000 };
        int *const data = (int *)malloc(COUNT * sizeof(int)), *const all = (int *)malloc(COUNT * sizeof(int));
        gasnet_coll_handle_t broadcast, reduction;
        uint64_t mine = me + 1, sum = 0;
        for (int i = 0; i < COUNT; i++) data[i] = (int)me + i;
        broadcast = gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, all, nodes - 1, data, COUNT * sizeof(int), LOCAL_FLAGS);
        reduction = gasnet_coll_reduce_nb(GASNET_TEAM_ALL, nodes - 1, &sum, &mine, 0, 0, 8, 1, 0, 0, LOCAL_FLAGS);
        if (me == nodes - 1 || me == 0) {
            gasnet_coll_wait_sync(reduction);
            gasnet_coll_wait_sync(broadcast);
            for (gasnet_node_t i = 0; i < nodes; i++) CHECK(gasnet_AMRequestShort0(i, 202) == GASNET_OK);
        }
        GASNET_BLOCKUNTIL(completions == (nodes == 1 ? 1 : 2));
        if (me != nodes - 1 && me != 0) {
            while (gasnet_coll_try_sync(broadcast) != GASNET_OK) {}
            while (gasnet_coll_try_sync(reduction) != GASNET_OK) {}
        }
        for (int i = 0; i < COUNT; i++) CHECK(all[i] == (int)(nodes - 1) + i);
        if (me == nodes - 1) CHECK(sum == (uint64_t)nodes * (nodes + 1) / 2);
        free(data);
        free(all);
    }

    /* Reductions that are long enough for each rank to combine a part. */
    {
        enum { COUNT = 40000 };
        uint64_t *const mine = (uint64_t *)malloc(COUNT * sizeof *mine), *const sum = (uint64_t *)malloc(COUNT * sizeof *sum);
        for (uint64_t i = 0; i < COUNT; i++) mine[i] = i * nodes + me;
        for (gasnet_node_t root = 0; root < nodes; root++) {
            gasnet_coll_reduce(GASNET_TEAM_ALL, root, sum, mine, 0, 0, 8, COUNT, 0, 0, LOCAL_FLAGS);
            if (me == root)
                for (uint64_t i = 0; i < COUNT; i++) CHECK(sum[i] == i * nodes * nodes + (uint64_t)nodes * (nodes - 1) / 2);
        }
        free(mine);
        free(sum);
    }

    /* Elements that are longer than what goes over the board at once. */
    {
        enum { ELEMENT = 200000 };
        char *const mine = (char *)malloc(2 * ELEMENT), *const most = (char *)malloc(2 * ELEMENT);
        for (int i = 0; i < 2 * ELEMENT; i++) mine[i] = (char)(i % 100 + (int)me % 20);
        gasnet_coll_reduce(GASNET_TEAM_ALL, nodes - 1, most, mine, 0, 0, ELEMENT, 2, 2, 0, LOCAL_FLAGS);
        if (me == nodes - 1)
            for (int i = 0; i < 2 * ELEMENT; i++) CHECK(most[i] == (char)(i % 100 + (int)(nodes - 1) % 20));
        gasnet_coll_scan(GASNET_TEAM_ALL, most, 0, 0, mine, 0, 0, ELEMENT, 2, 2, 0, LOCAL_FLAGS);
        for (int i = 0; i < 2 * ELEMENT; i++) CHECK(most[i] == mine[i]);
        free(mine);
        free(most);
    }

    /* More bytes than the board holds: the root sleeps until the others, which come late, have told that they are through. Reductions
     * go through it the other way. */
    {
        enum { BYTES = 96 << 10, TIMES = 12, LATE_US = 30000 };
        uint64_t *const row = (uint64_t *)malloc(BYTES), *const sum = (uint64_t *)malloc(BYTES);
        gasnet_node_t const late = nodes - 1;
        for (size_t i = 0; i < BYTES / 8; i++) row[i] = me == 0 ? i : 0;
        if (me == late && late > 0) usleep(LATE_US);
        for (int i = 0; i < TIMES; i++) gasnet_coll_broadcast(GASNET_TEAM_ALL, me == 0 ? sum : row, 0, row, BYTES, LOCAL_FLAGS);
        for (size_t i = 0; i < BYTES / 8; i++) CHECK(row[i] == i);
        if (me == 0) usleep(LATE_US);
        for (int i = 0; i < TIMES; i++) gasnet_coll_reduce(GASNET_TEAM_ALL, 0, sum, row, 0, 0, 8, BYTES / 8, 0, 0, LOCAL_FLAGS);
        if (me == 0)
            for (size_t i = 0; i < BYTES / 8; i++) CHECK(sum[i] == i * nodes);
        free(row);
        free(sum);
    }

    /* As some runtimes call: in place, without flags, and with more in flight than anybody counts on. */
    {
        enum { MANY = 2000 };
        static gasnet_coll_handle_t handles[MANY];
        static int values[MANY];
        void *pointer = me == 0 ? (void *)&values : NULL;
        gasnet_coll_broadcast(gasnete_coll_team_all, &pointer, 0, &pointer, sizeof pointer, GASNET_COLL_DST_IN_SEGMENT);
        CHECK(pointer != NULL);
        for (int i = 0; i < MANY; i++) {
            values[i] = me == (gasnet_node_t)i % nodes ? i : -1;
            handles[i] = gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, &values[i], (gasnet_image_t)i % nodes, &values[i],
                                                  sizeof(int), LOCAL_FLAGS);
        }
        gasnet_coll_wait_sync_all(handles, MANY);
        for (int i = 0; i < MANY; i++) CHECK(values[i] == i && handles[i] == GASNET_COLL_INVALID_HANDLE);
        CHECK(gasnet_coll_try_sync(GASNET_COLL_INVALID_HANDLE) == GASNET_OK);
        CHECK(gasnet_coll_try_sync_all(handles, MANY) == GASNET_OK && gasnet_coll_try_sync_some(handles, MANY) == GASNET_OK);
        CHECK(gasnet_coll_try_sync_some(handles, 0) == GASNET_OK);
        gasnet_coll_wait_sync_some(handles, MANY);
        gasnet_coll_wait_sync_all(handles, 0);
    }

    /* Teams of teams, down to one node, each with its own collectives; made and given up often. */
    for (int round = 0; round < 10; round++) {
        gasnet_team_handle_t teams[8], team = GASNET_TEAM_ALL;
        int depth = 0;
        while (gasnet_coll_team_size(team) > 1) {
            gasnet_node_t const rank = gasnet_coll_team_node2rank(team, me), size = gasnet_coll_team_size(team);
            gasnet_node_t const half = (size + 1) / 2;
            CHECK(depth < 8);
            team = teams[depth++] = gasnete_coll_team_split(team, rank / half, rank % half, NULL GASNETE_THREAD_GET);
            CHECK(gasnet_coll_team_myrank(team) == rank % half);
            CHECK(gasnet_coll_team_size(team) == (rank < half ? half : size - half));
            value = (int)me;
            gasnet_coll_broadcast(team, &seen, 0, &value, sizeof value, LOCAL_FLAGS);
            CHECK(seen == (int)gasnet_coll_team_rank2node(team, 0));
        }
        while (depth-- > 0) gasnete_coll_team_free(teams[depth]);
    }
}

/* ---- Barriers ---- */

static int threads = 1;

#if !GASNET_SEQ
static gasnett_atomic_t arrived = gasnett_atomic_init(0);
static void *image(void *argument) {
    unsigned const thread = (unsigned)(intptr_t)argument;
    gasnet_image_t counts[64];
    for (gasnet_node_t i = 0; i < nodes; i++) counts[i] = (gasnet_image_t)threads;
    gasnet_coll_init(counts, me * (unsigned)threads + thread, NULL, 0, 0);
    for (int round = 1; round <= 300; round++) {
        /* Nobody passes before all threads of this node have come. */
        gasnett_atomic_increment(&arrived, GASNETT_ATOMIC_REL);
        gasnet_coll_barrier_notify(GASNET_TEAM_ALL, round, GASNET_BARRIERFLAG_IMAGES);
        CHECK(gasnet_coll_barrier_wait(GASNET_TEAM_ALL, round, GASNET_BARRIERFLAG_IMAGES) == GASNET_OK);
        CHECK(gasnett_atomic_read(&arrived, GASNETT_ATOMIC_ACQ) >= (unsigned)(round * threads));
    }
    return NULL;
}
#endif

static void barriers(void) {
    gasnet_team_handle_t const parity = gasnet_coll_team_split(GASNET_TEAM_ALL, me % 2, me, NULL);
    int id = -1;
    for (int round = 0; round < 200; round++) {
        int outcome;
        gasnet_node_t const odd_one = (gasnet_node_t)round % nodes;
        /* The same name; no name; some with and some without. */
        CHECK(gasnet_coll_barrier(GASNET_TEAM_ALL, round, 0) == GASNET_OK);
        CHECK(gasnet_coll_barrier_result(GASNET_TEAM_ALL, &id) == 0 && id == round);
        CHECK(gasnet_coll_barrier(GASNET_TEAM_ALL, (int)me, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
        CHECK(gasnet_coll_barrier_result(GASNET_TEAM_ALL, &id) != 0);
        CHECK(gasnet_coll_barrier(GASNET_TEAM_ALL, 0, GASNET_BARRIERFLAG_UNNAMED) == GASNET_OK);
        CHECK(gasnet_coll_barrier(GASNET_TEAM_ALL, 5, me % 2 ? GASNET_BARRIERFLAG_ANONYMOUS : 0) == GASNET_OK);
        /* One has another name, or says that it does not match: everybody is told. */
        outcome = gasnet_coll_barrier(GASNET_TEAM_ALL, me == odd_one ? 1 : 2, 0);
        CHECK(outcome == (nodes == 1 ? GASNET_OK : GASNET_ERR_BARRIER_MISMATCH));
        outcome = gasnet_coll_barrier(GASNET_TEAM_ALL, 3, me == odd_one ? GASNET_BARRIERFLAG_MISMATCH : 0);
        CHECK(outcome == GASNET_ERR_BARRIER_MISMATCH);
        /* The name given to wait is another than that given to notify. */
        gasnet_coll_barrier_notify(GASNET_TEAM_ALL, 7, 0);
        CHECK(gasnet_coll_barrier_wait(GASNET_TEAM_ALL, 8, 0) == GASNET_ERR_BARRIER_MISMATCH);
        /* Two teams at once, and the barrier of all ranks between their halves. */
        gasnet_coll_barrier_notify(GASNET_TEAM_ALL, round, 0);
        gasnet_coll_barrier_notify(parity, (int)(me % 2), 0);
        gasnet_barrier_notify(round, 0);
        CHECK(gasnet_barrier_wait(round, 0) == GASNET_OK);
        while ((outcome = gasnet_coll_barrier_try(parity, (int)(me % 2), 0)) == GASNET_ERR_NOT_READY) {}
        CHECK(outcome == GASNET_OK);
        CHECK(gasnet_coll_barrier_wait(GASNET_TEAM_ALL, round, 0) == GASNET_OK);
        gasnete_coll_teambarrier_notify(parity);
        gasnete_coll_teambarrier_wait(parity);
    }
    /* A barrier holds: the last one's word is seen by all who pass. */
    for (int round = 1; round <= 50; round++) {
        gasnet_node_t const late = (gasnet_node_t)round % nodes;
        int seen;
        if (me == late) gasnet_put(0, at(0, 0), &round, sizeof round);
        CHECK(gasnet_coll_barrier(GASNET_TEAM_ALL, round, 0) == GASNET_OK);
        gasnet_get(&seen, 0, at(0, 0), sizeof seen);
        CHECK(seen == round);
        CHECK(gasnet_coll_barrier(GASNET_TEAM_ALL, round, 0) == GASNET_OK);
    }
}

/* ---- Mistakes, each of which ends the job ---- */

static void mistake(const char *what) {
    char buffer[64] = {0};
    void *list[1] = {buffer};
    gasnet_memvec_t vector[1] = {{buffer, 8}}, other[1] = {{segments[0].addr, 9}};
    if (strcmp(what, "bytes") == 0) {
        gasnet_coll_broadcast(GASNET_TEAM_ALL, buffer, 0, buffer, me == 0 ? 8 : 9, LOCAL_FLAGS | GASNET_COLL_OUT_ALLSYNC);
    } else if (strcmp(what, "kinds") == 0) {
        /* Neither waits for the other; both go on. */
        if (me == 0) gasnet_coll_broadcast(GASNET_TEAM_ALL, buffer, 0, buffer, 8, LOCAL_FLAGS);
        else gasnet_coll_gather(GASNET_TEAM_ALL, 0, buffer, buffer, 8, LOCAL_FLAGS);
        for (int i = 0; i < 100; i++) gasnet_coll_broadcast(GASNET_TEAM_ALL, buffer, 0, buffer, 8, LOCAL_FLAGS | GASNET_COLL_OUT_ALLSYNC);
    } else if (strcmp(what, "elements") == 0) {
        /* The same bytes, of elements on two sides of the longest piece. */
        size_t const bytes = 256 << 10, element = me == 0 ? bytes : 8;
        void *const row = calloc(1, bytes);
        gasnet_coll_reduce(GASNET_TEAM_ALL, 0, row, row, 0, 0, element, bytes / element, 0, 0, LOCAL_FLAGS | GASNET_COLL_OUT_ALLSYNC);
    } else if (strcmp(what, "nested") == 0) {
        uint64_t value = 0, sum;
        gasnet_coll_reduce(GASNET_TEAM_ALL, 0, &sum, &value, 0, 0, 8, 1, 1, 0, LOCAL_FLAGS);
    } else if (strcmp(what, "killed") == 0) {
        enum { BYTES = 1 << 20 };
        char *const row = (char *)calloc(nodes, BYTES), *const all = (char *)calloc(nodes, BYTES);
        for (int i = 0; i < 20; i++) (void)gasnet_coll_gather_all_nb(GASNET_TEAM_ALL, all, row, i % 2 ? BYTES : 100, LOCAL_FLAGS);
        if (me == 1) raise(SIGKILL);
        gasnet_coll_exchange(GASNET_TEAM_ALL, all, row, BYTES, LOCAL_FLAGS);
    } else if (strcmp(what, "function") == 0) {
        gasnet_coll_reduce(GASNET_TEAM_ALL, 0, buffer, buffer, 0, 0, 8, 1, 9, 0, LOCAL_FLAGS);
    } else if (strcmp(what, "rank") == 0) {
        gasnet_coll_broadcast(GASNET_TEAM_ALL, buffer, nodes, buffer, 8, LOCAL_FLAGS);
    } else if (strcmp(what, "split") == 0) {
        (void)gasnet_coll_team_node2rank(gasnet_coll_team_split(GASNET_TEAM_ALL, me, 0, NULL), (me + 1) % nodes);
    } else if (strcmp(what, "vector") == 0) {
        gasnet_putv_bulk(0, 1, other, 1, vector);
    } else if (strcmp(what, "outside") == 0) {
        gasnet_puti_bulk(0, 1, list, 8, 1, list, 8);
    } else if (strcmp(what, "twice") == 0) {
        gasnet_coll_barrier_notify(GASNET_TEAM_ALL, 0, 0);
        gasnet_coll_barrier_notify(GASNET_TEAM_ALL, 0, 0);
    } else {
        fprintf(stderr, "no such mistake: %s\n", what);
        gasnet_exit(98);
    }
    /* Some mistakes are seen by one node only; it ends the job while the others wait. */
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    (void)gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(97);
}

static void add(void *results, size_t count, const void *left, size_t left_count, const void *right, size_t elem_size,
                int flags, int arg) {
    CHECK(left_count == count && elem_size == 8 && flags == 0 && arg == 0);
    for (size_t i = 0; i < count; i++) ((uint64_t *)results)[i] = ((const uint64_t *)left)[i] + ((const uint64_t *)right)[i];
}

/* Of long elements, the largest bytes. */
static void largest(void *results, size_t count, const void *left, size_t left_count, const void *right, size_t elem_size,
                    int flags, int arg) {
    (void)left_count, (void)flags, (void)arg;
    for (size_t i = 0; i < count * elem_size; i++) {
        char const one = ((const char *)left)[i], other = ((const char *)right)[i];
        ((char *)results)[i] = one > other ? one : other;
    }
}

static void nested(void *results, size_t count, const void *left, size_t left_count, const void *right, size_t elem_size,
                   int flags, int arg) {
    gasnet_coll_broadcast(GASNET_TEAM_ALL, results, 0, results, 8, LOCAL_FLAGS);
    add(results, count, left, left_count, right, elem_size, flags, arg);
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{201, (void (*)())on_permission}, {202, (void (*)())on_completion}};
    gasnet_coll_fn_entry_t functions[3];
    const char *what;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(table, 2, 1 << 16, 0) == GASNET_OK);
    /* Clients keep the handle before they initialise collectives. */
    CHECK(GASNET_TEAM_ALL != NULL);
    what = argc > 1 ? argv[1] : "promises";
    if (argc > 2) threads = atoi(argv[2]);
    me = gasnet_mynode();
    nodes = gasnet_nodes();
    segments = (gasnet_seginfo_t *)calloc(nodes, sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)nodes) == GASNET_OK);
    functions[0].fnptr = add;
    functions[0].flags = 0;
    functions[1].fnptr = nested;
    functions[1].flags = 0;
    functions[2].fnptr = largest;
    functions[2].flags = 0;
    if (strcmp(what, "images") != 0) gasnet_coll_init(NULL, 0, functions, 3, 0);
    if (strcmp(what, "promises") == 0) promises();
    else if (strcmp(what, "barriers") == 0) barriers();
#if !GASNET_SEQ
    else if (strcmp(what, "images") == 0) {
        pthread_t others[16];
        for (intptr_t i = 1; i < threads; i++) CHECK(pthread_create(&others[i], NULL, image, (void *)i) == 0);
        image(NULL);
        for (int i = 1; i < threads; i++) CHECK(pthread_join(others[i], NULL) == 0);
    }
#endif
    else mistake(what);
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
    gasnet_exit(0);
    return 1;
}
