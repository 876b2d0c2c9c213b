/* The extended interface against a model: every put is checked, by a get of a random form and by its owner.
 *
 * Each thread of each rank owns a slice of every rank's segment, which it alone writes, so its model of the slice is exact.
 * Arguments: number of operations of a thread, seed, threads of a rank (1). */
#include "check.h"

#define SLICE 16384
#define HANDLES 16

static int threads = 1;
static __thread int thread;
static __thread uint64_t state;
static uint32_t next(uint32_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % limit;
}

static gasnet_seginfo_t *segments;
static __thread unsigned char **model; /* by rank: what my slice there holds */
static __thread unsigned char *buffers;

static unsigned char *mine(gasnet_node_t node) {
    return (unsigned char *)segments[node].addr + ((size_t)gasnet_mynode() * (size_t)threads + (size_t)thread) * SLICE;
}

static void fill(unsigned char *to, size_t length) {
    size_t i;
    for (i = 0; i < length; i++) to[i] = (unsigned char)next(256);
}

static void wait_some(gasnet_handle_t *handles, size_t count) {
    /* All ways to synchronise, none of which may leave or lose one. */
    size_t i, left = 0;
    switch (next(5)) {
    case 0: for (i = 0; i < count; i++) { gasnet_wait_syncnb(handles[i]); handles[i] = GASNET_INVALID_HANDLE; } break;
    case 1: gasnet_wait_syncnb_all(handles, count); break;
    case 2: while (gasnet_try_syncnb_all(handles, count) != GASNET_OK) {} break;
    case 3:
        do {
            gasnet_wait_syncnb_some(handles, count);
            for (left = 0, i = 0; i < count; i++) left += handles[i] != GASNET_INVALID_HANDLE;
        } while (left > 0);
        break;
    default:
        for (i = 0; i < count; i++) {
            while (gasnet_try_syncnb(handles[i]) == GASNET_ERR_NOT_READY) {}
            handles[i] = GASNET_INVALID_HANDLE;
        }
    }
    for (i = 0; i < count; i++) CHECK(handles[i] == GASNET_INVALID_HANDLE);
    CHECK(gasnet_try_syncnb_some(handles, count) == GASNET_OK);
}

static void puts_and_gets(gasnet_node_t node) {
    gasnet_handle_t handles[HANDLES];
    const int form = (int)next(9);
    const size_t count = 1 + next(HANDLES), piece = SLICE / HANDLES;
    size_t i, j;
    if (form == 7) gasnet_begin_nbi_accessregion();
    for (i = 0; i < count; i++) {
        /* Pieces of one round do not overlap: their order is not defined. */
        const size_t offset = i * piece + next((uint32_t)piece / 2), length = next((uint32_t)piece / 2 + 1);
        unsigned char *const from = buffers + i * piece, *const to = mine(node) + offset;
        handles[i] = GASNET_INVALID_HANDLE;
        fill(from, length);
        memcpy(model[node] + offset, from, length);
        switch (form) {
        case 0: gasnet_put(node, to, from, length); break;
        case 1: gasnet_put_bulk(node, to, from, length); break;
        case 2: handles[i] = gasnet_put_nb(node, to, from, length); memset(from, 0, length); break;
        case 3: handles[i] = gasnet_put_nb_bulk(node, to, from, length); break;
        case 4: gasnet_put_nbi(node, to, from, length); memset(from, 0, length); break;
        case 7:
        case 5: gasnet_put_nbi_bulk(node, to, from, length); break;
        case 6: {
            const int value = (int)next(256);
            memset(model[node] + offset, value, length);
            switch (next(3)) {
            case 0: gasnet_memset(node, to, value, length); break;
            case 1: handles[i] = gasnet_memset_nb(node, to, value, length); break;
            default: gasnet_memset_nbi(node, to, value, length);
            }
            break;
        }
        default: {
            const size_t bytes = 1 + next(8);
            gasnet_register_value_t value = 0;
            fill((unsigned char *)&value, 8);
            gasnet_put(node, to, from, length);
            for (j = 0; j < bytes; j++) model[node][offset + j] = (unsigned char)(value >> 8 * j);
            switch (next(3)) {
            case 0: gasnet_put_val(node, to, value, bytes); break;
            case 1: handles[i] = gasnet_put_nb_val(node, to, value, bytes); break;
            default: gasnet_put_nbi_val(node, to, value, bytes);
            }
            if (bytes < 8) value &= ((gasnet_register_value_t)1 << 8 * bytes) - 1;
            gasnet_wait_syncnb(handles[i]);
            handles[i] = GASNET_INVALID_HANDLE;
            gasnet_wait_syncnbi_puts();
            CHECK(gasnet_get_val(node, to, bytes) == value);
            CHECK(gasnet_wait_syncnb_valget(gasnet_get_nb_val(node, to, bytes)) == value);
        }
        }
    }
    if (form == 7) {
        handles[0] = gasnet_end_nbi_accessregion();
        gasnet_wait_syncnbi_all();
    }
    if (next(2)) gasnet_wait_syncnbi_puts();
    else while (gasnet_try_syncnbi_puts() != GASNET_OK) {}
    wait_some(handles, count);

    /* Back, in another form. */
    memset(buffers, 0xee, SLICE);
    for (i = 0; i < HANDLES; i++) {
        const size_t offset = i * piece;
        unsigned char *const to = buffers + offset;
        handles[i] = GASNET_INVALID_HANDLE;
        switch (form % 4) {
        case 0: gasnet_get(to, node, mine(node) + offset, piece); break;
        case 1: handles[i] = gasnet_get_nb_bulk(to, node, mine(node) + offset, piece); break;
        case 2: gasnet_get_nbi(to, node, mine(node) + offset, piece); break;
        default: gasnet_get_bulk(to, node, mine(node) + offset, piece); break;
        }
    }
    if (next(2)) gasnet_wait_syncnbi_gets();
    else while (gasnet_try_syncnbi_gets() != GASNET_OK) {}
    wait_some(handles, HANDLES);
    CHECK(memcmp(buffers, model[node], SLICE) == 0);
}

/* Names that match, or do not, and what each rank is told. */
static void barriers(void) {
    const gasnet_node_t me = gasnet_mynode(), last = gasnet_nodes() - 1;
    const int alone = gasnet_nodes() == 1;
    int i, result;
    for (i = 0; i < 50; i++) {
        gasnet_barrier_notify(i, 0);
        CHECK(gasnet_barrier_wait(i, 0) == GASNET_OK);
        /* Anonymous ones match every name. */
        gasnet_barrier_notify(me == last ? 77 : i, me == last ? GASNET_BARRIERFLAG_ANONYMOUS : 0);
        CHECK(gasnet_barrier_wait(me == last ? 78 : i, me == last ? GASNET_BARRIERFLAG_ANONYMOUS : 0) == GASNET_OK);
        /* One rank has another name. */
        gasnet_barrier_notify(me == last ? 1000 : i, 0);
        while ((result = gasnet_barrier_try(me == last ? 1000 : i, 0)) == GASNET_ERR_NOT_READY) {}
        CHECK(result == (alone ? GASNET_OK : GASNET_ERR_BARRIER_MISMATCH));
        /* One rank reports a mismatch. */
        gasnet_barrier_notify(i, me == 0 ? GASNET_BARRIERFLAG_MISMATCH : 0);
        CHECK(gasnet_barrier_wait(i, me == 0 ? GASNET_BARRIERFLAG_MISMATCH : 0) == GASNET_ERR_BARRIER_MISMATCH);
        /* Wait says another name than notify: only this rank is told. None at all is no mismatch. */
        gasnet_barrier_notify(i, 0);
        CHECK(gasnet_barrier_wait(me == 0 ? i + 1 : i, 0) == (me == 0 ? GASNET_ERR_BARRIER_MISMATCH : GASNET_OK));
        gasnet_barrier_notify(i, 0);
        CHECK(gasnet_barrier_wait(i, me == 0 ? GASNET_BARRIERFLAG_ANONYMOUS : 0) == GASNET_OK);
        CHECK(gasnet_barrier(i, 0) == GASNET_OK);
    }
}

static int rounds;
static uint64_t seed;
#if !GASNET_SEQ
static pthread_barrier_t all_here;
#endif

/* Barriers are for one thread of a rank; the others wait for it. */
static void meet(void) {
#if !GASNET_SEQ
    pthread_barrier_wait(&all_here);
#endif
    if (thread == 0) gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
#if !GASNET_SEQ
    pthread_barrier_wait(&all_here);
#endif
}

static void *work(void *argument) {
    const gasnet_node_t me = gasnet_mynode();
    gasnet_node_t i;
    int round;
    thread = (int)(intptr_t)argument;
    state = seed * 1000003u + me * (unsigned)threads + (unsigned)thread;
    model = (unsigned char **)calloc(gasnet_nodes(), sizeof *model);
    buffers = (unsigned char *)malloc(SLICE);
    for (i = 0; i < gasnet_nodes(); i++) model[i] = (unsigned char *)calloc(1, SLICE);
    for (round = 0; round < rounds; round++) puts_and_gets((gasnet_node_t)next(gasnet_nodes()));
    meet();
    /* The owner sees by its pointers what the writers have written. */
    for (i = 0; i < gasnet_nodes(); i++) {
        gasnet_get(buffers, i, mine(i), SLICE);
        CHECK(memcmp(buffers, model[i], SLICE) == 0);
    }
    CHECK(memcmp(mine(me), model[me], SLICE) == 0);
    meet();
    return NULL;
}

int main(int argc, char **argv) {
    gasnet_handle_t none[3] = {GASNET_INVALID_HANDLE, GASNET_INVALID_HANDLE, GASNET_INVALID_HANDLE};
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc > 2);
    rounds = atoi(argv[1]);
    seed = strtoull(argv[2], NULL, 0);
    if (argc > 3) threads = atoi(argv[3]);
    CHECK(gasnet_attach(NULL, 0, (size_t)gasnet_nodes() * (size_t)threads * SLICE, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    CHECK(gasnet_try_syncnb(GASNET_INVALID_HANDLE) == GASNET_OK);
    CHECK(gasnet_try_syncnb_all(none, 3) == GASNET_OK && gasnet_try_syncnb_some(none, 3) == GASNET_OK);
    CHECK(gasnet_try_syncnb_all(NULL, 0) == GASNET_OK && gasnet_try_syncnb_some(NULL, 0) == GASNET_OK);
    gasnet_wait_syncnb_some(none, 3);
    CHECK(gasnet_try_syncnbi_all() == GASNET_OK);
    gasnet_begin_nbi_accessregion();
    gasnet_wait_syncnb(gasnet_end_nbi_accessregion());
    barriers();
#if GASNET_SEQ
    CHECK(threads == 1);
    work(NULL);
#else
    {
        pthread_t others[16];
        int i;
        CHECK(threads <= 16 && pthread_barrier_init(&all_here, NULL, (unsigned)threads) == 0);
        for (i = 1; i < threads; i++) CHECK(pthread_create(&others[i], NULL, work, (void *)(intptr_t)i) == 0);
        work(NULL);
        for (i = 1; i < threads; i++) CHECK(pthread_join(others[i], NULL) == 0);
    }
#endif
    gasnet_exit(0);
    return 1;
}
