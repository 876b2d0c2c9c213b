/* Collectives against a model. Goal: any mix of them, many in flight at once, on several teams, by one or several threads a
 * node, with every choice of synchronisation and addressing, moves and combines exactly what it should. Method: all ranks
 * draw the same random operations; each block of bytes tells operation, sender and receiver, and all of a destination is
 * checked, with guards around it. Usage: coll SEED ROUNDS THREADS */
#include "check.h"

#include <gasnet_coll.h>
#include <gasnet_tools.h>

enum { BATCH = 6, IMAGES_MAX = 32, GUARD = 16, SMALL_MAX = 200, LARGE_MAX = 200000, ELEMENTS_MAX = 40 };
enum kind { BROADCAST, SCATTER, GATHER, GATHER_ALL, EXCHANGE, REDUCE, SCAN, KINDS };
enum addressing { LOCAL_ONE, LOCAL_LIST, SINGLE_LIST, ADDRESSINGS };

static int threads = 1, rounds = 30;
static unsigned long seed_given = 1;
static gasnet_node_t me, nodes;
static unsigned images;
static gasnet_seginfo_t *segments;
static size_t image_bytes; /* of the segment, for each local image */
static size_t place_bytes; /* for each source or destination of a batch */

/* ---- The same random numbers for everybody who begins with the same seed ---- */

struct random {
    uint64_t state;
};
static uint64_t next(struct random *random) {
    random->state ^= random->state << 13;
    random->state ^= random->state >> 7;
    random->state ^= random->state << 17;
    return random->state;
}
static unsigned pick(struct random *random, unsigned limit) { return (unsigned)(next(random) % limit); }

static unsigned char value(unsigned operation, unsigned from, unsigned to, size_t index) {
    uint64_t x = operation * 0x9E3779B97F4A7C15u + from * 0xD1B54A32D192ED03u + to * 0x8CB92BA72F3D8DD7u + index;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return (unsigned char)(x >> 40);
}

/* ---- Functions of reductions ---- */

static void add(void *results, size_t result_count, const void *left, size_t left_count, const void *right,
                size_t elem_size, int flags, int arg) {
    CHECK(result_count == left_count && elem_size == 8 && arg == 7 && (flags & GASNET_COLL_NONCOMM) == 0);
    for (size_t i = 0; i < result_count; i++) {
        ((uint64_t *)results)[i] = ((const uint64_t *)left)[i] + ((const uint64_t *)right)[i];
    }
}
/* x -> a * x + b, composed: associative, but it does not commute. */
struct affine {
    uint32_t a, b;
};
static void compose(void *results, size_t result_count, const void *left, size_t left_count, const void *right,
                    size_t elem_size, int flags, int arg) {
    CHECK(result_count >= 1 && left_count >= 1 && elem_size == sizeof(struct affine) && arg == -3);
    CHECK((flags & GASNET_COLL_NONCOMM) != 0 && (uintptr_t)results % 4 == 0 && results != right);
    for (size_t i = 0; i < result_count; i++) {
        struct affine const l = ((const struct affine *)left)[i], r = ((const struct affine *)right)[i];
        struct affine const both = {l.a * r.a, r.a * l.b + r.b};
        ((struct affine *)results)[i] = both;
    }
}

/* ---- Teams ---- */

struct team {
    gasnet_team_handle_t handle;
    unsigned size; /* images */
    unsigned mine; /* this thread's image */
    int is_all;
};
enum { TEAMS = 4 };
static gasnet_team_handle_t handles[TEAMS];

/* The node and the local image of an image of a team. */
static gasnet_node_t node_of(const struct team *team, unsigned image) {
    return team->is_all ? image / (unsigned)threads : gasnet_coll_team_rank2node(team->handle, (int)image);
}
static unsigned local_of(const struct team *team, unsigned image) { return team->is_all ? image % (unsigned)threads : 0; }

/* Where an image has its source (which = 0) or destination (1) of an operation of a batch. */
static unsigned char *place(const struct team *team, unsigned image, unsigned slot, int which) {
    size_t const offset = local_of(team, image) * image_bytes + (2 * slot + (unsigned)which) * place_bytes + GUARD;
    return (unsigned char *)segments[node_of(team, image)].addr + offset;
}

/* ---- One operation ---- */

struct operation {
    enum kind kind;
    enum addressing addressing;
    unsigned number, team, root, slot;
    size_t bytes; /* a block, or elements times their size */
    int in, out, flags, function, is_exclusive;
    gasnet_coll_handle_t handle;
    void *to_list[IMAGES_MAX], *from_list[IMAGES_MAX];
};

static void draw(struct operation *op, struct random *random, unsigned number, unsigned slot) {
    static int const ins[] = {GASNET_COLL_IN_NOSYNC, GASNET_COLL_IN_MYSYNC, GASNET_COLL_IN_ALLSYNC};
    static int const outs[] = {GASNET_COLL_OUT_NOSYNC, GASNET_COLL_OUT_MYSYNC, GASNET_COLL_OUT_ALLSYNC};
    op->kind = (enum kind)pick(random, KINDS);
    op->addressing = (enum addressing)pick(random, ADDRESSINGS);
    op->number = number;
    op->slot = slot;
    op->team = pick(random, TEAMS);
    op->root = pick(random, 1000);
    op->bytes = pick(random, 10) == 0 ? 0 : pick(random, 20) == 0 ? pick(random, LARGE_MAX) : pick(random, SMALL_MAX);
    op->in = ins[pick(random, 3)];
    op->out = outs[pick(random, 3)];
    op->function = (int)pick(random, 2);
    op->is_exclusive = (int)pick(random, 2);
    if (op->kind >= REDUCE) op->bytes = 8 * pick(random, ELEMENTS_MAX);
    /* Large blocks for each image would not fit. */
    else if (op->bytes > SMALL_MAX && op->kind != BROADCAST) op->bytes %= SMALL_MAX * 8;
}

static size_t blocks_from(const struct operation *op, const struct team *team, unsigned root) {
    if (op->kind == EXCHANGE) return team->size;
    if (op->kind == SCATTER) return team->mine == root ? team->size : 0;
    if (op->kind == BROADCAST) return team->mine == root ? 1 : 0;
    return 1;
}
static size_t blocks_to(const struct operation *op, const struct team *team, unsigned root) {
    if (op->kind == EXCHANGE || op->kind == GATHER_ALL) return team->size;
    if (op->kind == GATHER) return team->mine == root ? team->size : 0;
    if (op->kind == REDUCE) return team->mine == root ? 1 : 0;
    if (op->kind == SCAN && op->is_exclusive) return team->mine == 0 ? 0 : 1;
    return 1;
}

/* The receiver that a block of a source is for: everybody's block of a broadcast is the same. */
static unsigned receiver(const struct operation *op, unsigned block) {
    return op->kind == SCATTER || op->kind == EXCHANGE ? block : 0;
}

/* What a destination holds before. */
enum { FILL = 0xA5 };

static void prepare(const struct operation *op, const struct team *team) {
    unsigned const root = op->root % team->size;
    unsigned char *const from = place(team, team->mine, op->slot, 0), *const to = place(team, team->mine, op->slot, 1);
    size_t const blocks = blocks_from(op, team, root);
    memset(from - GUARD, FILL, blocks * op->bytes + 2 * GUARD);
    memset(to - GUARD, FILL, (op->kind == GATHER || op->kind == GATHER_ALL || op->kind == EXCHANGE ? team->size : 1) *
                                     op->bytes + 2 * GUARD);
    for (unsigned block = 0; block < blocks; block++) {
        for (size_t i = 0; i < op->bytes; i++) {
            from[block * op->bytes + i] = value(op->number, team->mine, receiver(op, block), i);
        }
    }
}

/* What images 0 to `last` give together, at an element. */
static uint64_t combined(const struct operation *op, unsigned last, size_t element) {
    uint64_t result = 0;
    for (unsigned image = 0; image <= last; image++) {
        uint64_t mine;
        unsigned char bytes[8];
        for (size_t i = 0; i < 8; i++) bytes[i] = value(op->number, image, 0, element * 8 + i);
        memcpy(&mine, bytes, 8);
        if (image == 0) result = mine;
        else if (op->function == 0) result += mine;
        else {
            struct affine l, r, both;
            memcpy(&l, &result, 8);
            memcpy(&r, &mine, 8);
            both.a = l.a * r.a;
            both.b = r.a * l.b + r.b;
            memcpy(&result, &both, 8);
        }
    }
    return result;
}

static void verify(const struct operation *op, const struct team *team) {
    unsigned const root = op->root % team->size;
    const unsigned char *const to = place(team, team->mine, op->slot, 1);
    size_t const blocks = blocks_to(op, team, root);
    for (unsigned block = 0; block < blocks; block++) {
        for (size_t i = 0; i < op->bytes; i++) {
            unsigned char expected;
            if (op->kind >= REDUCE) {
                unsigned const last = op->kind == REDUCE ? team->size - 1 : team->mine - (op->is_exclusive ? 1 : 0);
                uint64_t const element = combined(op, last, i / 8);
                expected = ((const unsigned char *)&element)[i % 8];
                if (expected == to[i]) continue;
            } else if (op->kind == BROADCAST) expected = value(op->number, root, 0, i);
            else if (op->kind == SCATTER) expected = value(op->number, root, team->mine, i);
            else expected = value(op->number, block, op->kind == EXCHANGE ? team->mine : 0, i);
            if (to[block * op->bytes + i] != expected) {
                fprintf(stderr, "seed %lu: operation %u (kind %d, team %u, %zu bytes, root %u) at image %u: byte %zu of "
                        "block %u\n", seed_given, op->number, (int)op->kind, op->team, op->bytes, root, team->mine, i, block);
                gasnet_exit(99);
            }
        }
    }
    for (size_t i = 0; i < GUARD; i++) CHECK(to[-1 - (int)i] == FILL && to[blocks * op->bytes + i] == FILL);
}

/* Calls gasnet_coll_<name> in both forms. */
#define CALL(name, ...)                                                                                       \
    (is_blocking ? (gasnet_coll_##name(__VA_ARGS__), GASNET_COLL_INVALID_HANDLE) : gasnet_coll_##name##_nb(__VA_ARGS__))

static void begin(struct operation *op, const struct team *team, int is_blocking) {
    unsigned const root = op->root % team->size;
    int const is_single = op->addressing == SINGLE_LIST;
    int const flags = op->in | op->out | (is_single ? GASNET_COLL_SINGLE : GASNET_COLL_LOCAL) |
                      (op->is_exclusive ? GASNET_COLL_EXCLUSIVE_SCAN : GASNET_COLL_INCLUSIVE_SCAN) |
                      GASNET_COLL_SRC_IN_SEGMENT | GASNET_COLL_DST_IN_SEGMENT;
    unsigned const first = is_single ? 0 : team->is_all ? me * (unsigned)threads : team->mine;
    unsigned const count = is_single ? team->size : team->is_all ? (unsigned)threads : 1;
    int const arg = op->function == 0 ? 7 : -3;
    size_t const elements = op->bytes / 8;
    /* A caller that does not have the root's memory says nothing of it, unless all say the same. */
    int const knows_root = is_single || node_of(team, root) == me;
    void *const to = place(team, team->mine, op->slot, 1), *const from = place(team, team->mine, op->slot, 0);
    void *const root_to = knows_root ? place(team, root, op->slot, 1) : NULL;
    void *const root_from = knows_root ? place(team, root, op->slot, 0) : NULL;
    gasnet_team_handle_t const t = team->handle;
    for (unsigned i = 0; i < count; i++) {
        op->to_list[i] = place(team, first + i, op->slot, 1);
        op->from_list[i] = place(team, first + i, op->slot, 0);
    }
    if (op->addressing == LOCAL_ONE) {
        switch (op->kind) {
        case BROADCAST: op->handle = CALL(broadcast, t, to, root, team->mine == root ? from : NULL, op->bytes, flags); break;
        case SCATTER: op->handle = CALL(scatter, t, to, root, team->mine == root ? from : NULL, op->bytes, flags); break;
        case GATHER: op->handle = CALL(gather, t, root, team->mine == root ? to : NULL, from, op->bytes, flags); break;
        case GATHER_ALL: op->handle = CALL(gather_all, t, to, from, op->bytes, flags); break;
        case EXCHANGE: op->handle = CALL(exchange, t, to, from, op->bytes, flags); break;
        case REDUCE:
            op->handle = CALL(reduce, t, root, team->mine == root ? to : NULL, from, 0, 0, 8, elements, op->function, arg,
                              flags);
            break;
        default:
            op->handle = CALL(scan, t, to, 0, 0, from, 0, 0, 8, elements, op->function, arg, flags);
        }
    } else {
        switch (op->kind) {
        case BROADCAST: op->handle = CALL(broadcastM, t, op->to_list, root, root_from, op->bytes, flags); break;
        case SCATTER: op->handle = CALL(scatterM, t, op->to_list, root, root_from, op->bytes, flags); break;
        case GATHER: op->handle = CALL(gatherM, t, root, root_to, op->from_list, op->bytes, flags); break;
        case GATHER_ALL: op->handle = CALL(gather_allM, t, op->to_list, op->from_list, op->bytes, flags); break;
        case EXCHANGE: op->handle = CALL(exchangeM, t, op->to_list, op->from_list, op->bytes, flags); break;
        case REDUCE:
            op->handle = CALL(reduceM, t, root, root_to, op->from_list, 0, 0, 8, elements, op->function, arg, flags);
            break;
        default:
            op->handle = CALL(scanM, t, op->to_list, 0, 0, op->from_list, 0, 0, 8, elements, op->function, arg, flags);
        }
    }
}

/* ---- Threads of a node ---- */

#if GASNET_SEQ
static void meet_threads(void) {}
#else
static void meet_threads(void) {
    static gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER;
    static gasnett_cond_t all_here = GASNETT_COND_INITIALIZER;
    static int arrived = 0;
    int target;
    gasnett_mutex_lock(&mutex);
    target = (arrived / threads + 1) * threads;
    if (++arrived == target) gasnett_cond_broadcast(&all_here);
    while (arrived < target) gasnett_cond_wait(&all_here, &mutex);
    gasnett_mutex_unlock(&mutex);
}
#endif

static void meet_nodes(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}
static void meet(int thread) {
    meet_threads();
    if (thread == 0) meet_nodes();
    meet_threads();
}

static void synchronise(struct operation *ops, unsigned count, struct random *mine) {
    gasnet_coll_handle_t table[BATCH];
    for (unsigned i = 0; i < count; i++) table[i] = ops[i].handle;
    switch (pick(mine, 6)) {
    case 0:
        for (unsigned i = 0; i < count; i++) gasnet_coll_wait_sync(table[i]);
        break;
    case 1:
        for (unsigned i = count; i-- > 0;) {
            while (gasnet_coll_try_sync(table[i]) == GASNET_ERR_NOT_READY) {}
        }
        break;
    case 2: gasnet_coll_wait_sync_all(table, count); break;
    case 3:
        while (gasnet_coll_try_sync_all(table, count) == GASNET_ERR_NOT_READY) {}
        break;
    case 4:
        for (unsigned left = count; left > 0;) {
            gasnet_coll_wait_sync_some(table, count);
            left = 0;
            for (unsigned i = 0; i < count; i++) left += table[i] != GASNET_COLL_INVALID_HANDLE;
        }
        break;
    default:
        for (unsigned left = count; left > 0;) {
            (void)gasnet_coll_try_sync_some(table, count);
            left = 0;
            for (unsigned i = 0; i < count; i++) left += table[i] != GASNET_COLL_INVALID_HANDLE;
        }
    }
}

static void *work(void *argument) {
    int const thread = (int)(intptr_t)argument;
    unsigned const image = me * (unsigned)threads + (unsigned)thread;
    struct random shared = {seed_given * 0x2545F4914F6CDD1Du + 1}, mine = {seed_given + 77 * (image + 1)};
    struct team teams[TEAMS];
    static struct operation *batches;
    struct operation *ops;
    {
        /* On the stack, and gone after the call. */
        gasnet_coll_fn_entry_t table[2];
        gasnet_image_t counts[IMAGES_MAX];
        table[0].fnptr = add;
        table[0].flags = GASNET_COLL_AMSAFE;
        table[1].fnptr = compose;
        table[1].flags = GASNET_COLL_NONCOMM;
        for (unsigned i = 0; i < nodes; i++) counts[i] = (gasnet_image_t)threads;
        gasnet_coll_init(threads > 1 ? counts : NULL, image, table, 2, 0);
        memset(table, 0, sizeof table);
        memset(counts, 0, sizeof counts);
    }
    if (thread == 0) {
        gasnet_seginfo_t scratch = {NULL, 0};
        gasnet_node_t backwards[IMAGES_MAX];
        batches = (struct operation *)calloc((size_t)threads * BATCH, sizeof *batches);
        handles[0] = GASNET_TEAM_ALL;
        handles[1] = gasnet_coll_team_split(GASNET_TEAM_ALL, me % 2, me, &scratch);
        handles[2] = gasnet_coll_team_split(GASNET_TEAM_ALL, me / 2, nodes - me, NULL);
        for (unsigned i = 0; i < nodes; i++) backwards[i] = nodes - 1 - i;
        handles[3] = gasnete_coll_team_create(nodes, nodes - 1 - me, backwards, NULL);
    }
    meet(thread);
    ops = batches + thread * BATCH;
    for (unsigned i = 0; i < TEAMS; i++) {
        teams[i].handle = handles[i];
        teams[i].is_all = i == 0;
        teams[i].size = i == 0 ? images : gasnet_coll_team_size(handles[i]);
        teams[i].mine = i == 0 ? image : gasnet_coll_team_node2rank(handles[i], me);
        if (i != 0) CHECK(gasnet_coll_team_rank2node(handles[i], (int)teams[i].mine) == me);
    }
    for (int round = 0; round < rounds; round++) {
        unsigned const count = 1 + pick(&shared, BATCH);
        int const is_blocking = pick(&shared, 3) == 0;
        unsigned taken = 0;
        for (unsigned i = 0; i < count; i++) {
            draw(&ops[taken], &shared, (unsigned)round * BATCH + i, i);
            /* Split teams have one image a node. */
            if (ops[taken].team == 0 || thread == 0) taken++;
        }
        for (unsigned i = 0; i < taken; i++) prepare(&ops[i], &teams[ops[i].team]);
        /* The sources of those that may begin before their receivers have come must be there. */
        meet(thread);
        for (unsigned i = 0; i < taken; i++) begin(&ops[i], &teams[ops[i].team], is_blocking);
        if (pick(&mine, 3) == 0) (void)gasnet_AMPoll();
        if (!is_blocking) synchronise(ops, taken, &mine);
        meet(thread);
        for (unsigned i = 0; i < taken; i++) verify(&ops[i], &teams[ops[i].team]);
        meet(thread);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    if (argc > 1) seed_given = strtoul(argv[1], NULL, 10);
    if (argc > 2) rounds = atoi(argv[2]);
    if (argc > 3) threads = atoi(argv[3]);
    me = gasnet_mynode();
    nodes = gasnet_nodes();
    images = nodes * (unsigned)threads;
    CHECK(images <= IMAGES_MAX);
    place_bytes = LARGE_MAX + (size_t)SMALL_MAX * 8 * images + 2 * GUARD;
    place_bytes = (place_bytes + 15) / 16 * 16;
    image_bytes = 2 * BATCH * place_bytes;
    CHECK(gasnet_attach(NULL, 0, ((size_t)threads * image_bytes + 4095) / 4096 * 4096, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(nodes, sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)nodes) == GASNET_OK);
#if GASNET_SEQ
    CHECK(threads == 1);
    work(NULL);
#else
    {
        pthread_t others[IMAGES_MAX];
        for (intptr_t i = 1; i < threads; i++) CHECK(pthread_create(&others[i], NULL, work, (void *)i) == 0);
        work(NULL);
        for (int i = 1; i < threads; i++) CHECK(pthread_join(others[i], NULL) == 0);
    }
#endif
    for (unsigned i = 1; i < TEAMS; i++) gasnete_coll_team_free(handles[i]);
    meet_nodes();
    gasnet_exit(0);
    return 1;
}
