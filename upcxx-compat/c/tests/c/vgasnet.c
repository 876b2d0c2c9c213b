/* The library's own interface. Arguments: kind (pinned, tiered, relaxed or configured), and for named segments the name and "write"
 * or "read". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vgasnet.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: failed: %s\n", __FILE__, __LINE__, (int)vgasnet_mynode(), #condition);    \
            vgasnet_exit(99);                                                                                          \
        }                                                                                                              \
    } while (0)

#define BYTES ((uintptr_t)4 << 20)

static int answered;
static char *own;

static void on_request(vgasnet_token_t token, void *bytes, size_t count, int32_t word) {
    vgasnet_node_t source;
    CHECK(vgasnet_source(token, &source) == VGASNET_OK && word == (int32_t)source);
    CHECK((char *)bytes == own + 4096 && count == 11 && memcmp(bytes, "ten letters", 11) == 0);
    CHECK(vgasnet_reply_short(token, 201, 0, NULL) == VGASNET_OK);
}
static void on_answer(vgasnet_token_t token) {
    (void)token;
    answered++;
}

static void barrier(void) {
    vgasnet_barrier_notify(0, VGASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(vgasnet_barrier_wait(0, VGASNET_BARRIERFLAG_ANONYMOUS) == VGASNET_OK);
}

/* Every word of the right neighbour's segment, by the kinds of puts in turn; read back, and by its owner's pointers. */
static void traffic(vgasnet_node_t right) {
    const vgasnet_node_t me = vgasnet_mynode();
    char *const there = (char *)vgasnet_segment_address(right);
    const uintptr_t words = BYTES / 8;
    uint64_t *const values = (uint64_t *)malloc(words * 8);
    uintptr_t i;
    for (i = 0; i < words; i++) values[i] = i * 8 + me;
    for (i = 0; i < words; i += 512) {
        if (i % 2048 == 0) vgasnet_put(right, there + i * 8, values + i, 4096);
        else if (i % 2048 == 512) vgasnet_wait_syncnb(vgasnet_put_nb(right, there + i * 8, values + i, 4096));
        else vgasnet_put_nbi(right, there + i * 8, values + i, 4096);
    }
    vgasnet_flush();
    vgasnet_put_val(right, there + 8, 77, 8);
    CHECK(vgasnet_get_val(right, there + 8, 8) == 77);
    values[1] = 77;
    barrier();
    {
        const uint64_t *const mine = (const uint64_t *)vgasnet_segment_address(me);
        const vgasnet_node_t left = (me + vgasnet_nodes() - 1) % vgasnet_nodes();
        for (i = 0; i < words; i++) CHECK(mine[i] == (i == 1 ? 77 : i * 8 + left));
    }
    CHECK(vgasnet_prefetch(right, there, BYTES) == VGASNET_OK);
    for (i = 0; i < words; i += 512) {
        uint64_t back[512];
        if (i % 1024) vgasnet_get(back, right, there + i * 8, 4096);
        else vgasnet_wait_syncnb(vgasnet_get_nb(back, right, there + i * 8, 4096));
        CHECK(memcmp(back, values + i, 4096) == 0);
    }
    barrier();
    vgasnet_memset(right, there, 0x5a, 10000);
    barrier();
    for (i = 0; i < 10000; i++) CHECK(own[i] == 0x5a);
    free(values);
}

/* All ranks count in words of the first one's segment, and its owner in one of them by an instruction of its own. */
static void updates(void) {
    enum { ROUNDS = 50, MANY = 300 };
    const vgasnet_node_t me = vgasnet_mynode(), ranks = vgasnet_nodes();
    char *const there = (char *)vgasnet_segment_address(0) + 65536;
    vgasnet_update_t many[MANY];
    uint64_t were[MANY];
    int i;
    if (me == 0) memset(there, 0, 8192);
    barrier();
    for (i = 0; i < ROUNDS; i++) {
        const uint64_t was = vgasnet_update_u64(0, there, VGASNET_ADD, 1, 0);
        CHECK(was < (uint64_t)ROUNDS * ranks);
        vgasnet_update_i32(0, there + 8, VGASNET_ADD, -1, 0);
        vgasnet_update_u32(0, there + 12, VGASNET_OR, 1u << me, 0);
        vgasnet_update_i64(0, there + 16, VGASNET_MIN, -(int64_t)me, 0);
        vgasnet_update_u64(0, there + 24, VGASNET_MAX, me, 0);
        if (me == 0 && vgasnet_segment_kind() == VGASNET_TIERED)
            __atomic_fetch_add((uint64_t *)(there + 32), 1, __ATOMIC_SEQ_CST);
        else
            vgasnet_update_u64(0, there + 32, VGASNET_ADD, 1, 0);
    }
    while (vgasnet_update_u32(0, there + 40, VGASNET_COMPARE_SWAP, me + 1, me) != me) vgasnet_poll();
    for (i = 0; i < MANY; i++) {
        many[i].node = (vgasnet_node_t)i % ranks;
        many[i].dest = (char *)vgasnet_segment_address(many[i].node) + 131072 + 8 * (i / 2);
        many[i].change = VGASNET_ADD, many[i].operand = 1, many[i].expected = 0;
        vgasnet_put_val(many[i].node, many[i].dest, 0, 8);
    }
    barrier();
    vgasnet_update_many_u64(many, MANY, were);
    vgasnet_update_many_u64(many, MANY, NULL);
    for (i = 0; i < MANY; i++) CHECK(were[i] < 2 * 2 * ranks);
    barrier();
    CHECK(vgasnet_get_val(0, there, 8) == (uint64_t)ROUNDS * ranks);
    CHECK((int32_t)vgasnet_get_val(0, there + 8, 4) == -ROUNDS * (int32_t)ranks);
    CHECK(vgasnet_get_val(0, there + 12, 4) == (1u << ranks) - 1);
    CHECK((int64_t)vgasnet_get_val(0, there + 16, 8) == -(int64_t)(ranks - 1));
    CHECK(vgasnet_get_val(0, there + 24, 8) == ranks - 1);
    CHECK(vgasnet_get_val(0, there + 32, 8) == (uint64_t)ROUNDS * ranks);
    CHECK(vgasnet_get_val(0, there + 40, 4) == ranks);
    barrier();
}

/* What every rank brings to a barrier, all have afterwards. */
static void exchanges(void) {
    uint64_t mine[16], all[16 * 16];
    uint64_t i, round;
    for (round = 0; round < 10; round++) {
        for (i = 0; i < 16; i++) mine[i] = vgasnet_mynode() * 1000 + i + round;
        CHECK(vgasnet_barrier_exchange(mine, sizeof(mine), all) == VGASNET_OK);
        for (i = 0; i < 16 * vgasnet_nodes(); i++) CHECK(all[i] == i / 16 * 1000 + i % 16 + round);
    }
    CHECK(vgasnet_barrier_exchange(mine, 1025, all) == VGASNET_ERR_BAD_ARG);
}

/* All ranks move two words together under a lock of the first one's segment. */
static void locks(void) {
    char *const there = (char *)vgasnet_segment_address(0) + 262144;
    void *const lock = there;
    int i;
    if (vgasnet_segment_kind() == VGASNET_PINNED) {
        CHECK(vgasnet_lock(0, lock, VGASNET_WRITE) == VGASNET_ERR_BAD_ARG);
        return;
    }
    if (vgasnet_mynode() == 0) memset(there, 0, 16384);
    barrier();
    for (i = 0; i < 50; i++) {
        uint64_t sum;
        CHECK(vgasnet_lock(0, lock, VGASNET_WRITE) == VGASNET_OK);
        CHECK(vgasnet_try_lock(0, lock, VGASNET_READ) == VGASNET_ERR_NOT_READY);
        sum = vgasnet_get_val(0, there + 8192, 8);
        CHECK(vgasnet_get_val(0, there + 4096, 8) == sum);
        vgasnet_put_val(0, there + 8192, sum + 1, 8);
        vgasnet_put_val(0, there + 4096, sum + 1, 8);
        CHECK(vgasnet_unlock(0, lock, VGASNET_WRITE) == VGASNET_OK);
        CHECK(vgasnet_lock(0, lock, VGASNET_READ) == VGASNET_OK);
        CHECK(vgasnet_get_val(0, there + 8192, 8) == vgasnet_get_val(0, there + 4096, 8));
        CHECK(vgasnet_unlock(0, lock, VGASNET_READ) == VGASNET_OK);
    }
    barrier();
    CHECK(vgasnet_get_val(0, there + 8192, 8) == 50 * (uint64_t)vgasnet_nodes());
    CHECK(vgasnet_lock(0, lock, VGASNET_WRITE) == VGASNET_OK);
    CHECK(vgasnet_lock(0, lock, VGASNET_WRITE) == VGASNET_ERR_RESOURCE);
    CHECK(vgasnet_unlock(0, lock, VGASNET_WRITE) == VGASNET_OK);
    barrier();
}

/* Segments of other pages come and go beside the first. */
static void further(void) {
    const vgasnet_node_t ranks = vgasnet_nodes(), me = vgasnet_mynode(), right = (me + 1) % ranks;
    vgasnet_segment_options_t options = {.page_bytes = 0}, wrong = {.page_bytes = 5000};
    vgasnet_segment_id_t small, large, gone;
    uint64_t word, round;
    char buffer[20000], found[20000];
    CHECK(vgasnet_segment_attach(4096, &wrong, &gone) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_attach(4096, NULL, NULL) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_detach(0) == VGASNET_ERR_BAD_ARG && vgasnet_segment_detach(77) == VGASNET_ERR_BAD_ARG);
    for (round = 0; round < 5; round++) {
        options.page_bytes = 4096;
        options.home_only = round % 2 != 0;
        CHECK(vgasnet_segment_attach(100000 + me, &options, &small) == VGASNET_OK);
        options.page_bytes = 16384;
        options.weight = 3;
        options.streamed = round % 2 == 0;
        CHECK(vgasnet_segment_attach(me == 0 ? 0 : 65536, &options, &large) == VGASNET_OK);
        CHECK(small != large && vgasnet_segment_part_bytes(small, right) == 100000 + right);
        CHECK(vgasnet_segment_part_bytes(large, 0) == 0 && vgasnet_segment_part_bytes(large, ranks) == 0);
        memset(buffer, (int)(me + round + 1), sizeof(buffer));
        vgasnet_segment_get(found, small, right, 3000, sizeof(found));
        for (word = 0; word < sizeof(found); word++) CHECK(found[word] == 0);
        barrier();
        vgasnet_segment_put(small, right, 3000, buffer, sizeof(buffer));
        vgasnet_segment_update_u64(small, 0, 80000, VGASNET_ADD, 1, 0);
        barrier();
        CHECK(vgasnet_segment_prefetch(small, me, 0, 100000) == VGASNET_OK);
        vgasnet_segment_get(found, small, me, 3000, sizeof(found));
        memset(buffer, (int)((me + ranks - 1) % ranks + round + 1), sizeof(buffer));
        CHECK(memcmp(found, buffer, sizeof(found)) == 0);
        vgasnet_segment_get(&word, small, 0, 80000, 8);
        CHECK(word == ranks);
        barrier();
        CHECK(vgasnet_segment_detach(small) == VGASNET_OK && vgasnet_segment_detach(large) == VGASNET_OK);
        CHECK(vgasnet_segment_part_bytes(small, me) == 0);
    }
    options.page_bytes = 8192;
    CHECK(vgasnet_segment_attach_own(50000, &options, &small) == VGASNET_OK);
    CHECK(vgasnet_segment_learn(1000, right) == VGASNET_ERR_BAD_ARG || ranks == 1);
    CHECK(vgasnet_segment_learn(small, ranks) == VGASNET_ERR_BAD_ARG);
    barrier();
    /* All have attached their first one, which has the same number. */
    CHECK(vgasnet_segment_learn(small, right) == VGASNET_OK);
    word = 4711 + me;
    vgasnet_segment_put(small, right, 40000, &word, 8);
    barrier();
    vgasnet_segment_get(&word, small, me, 40000, 8);
    CHECK(word == 4711 + (me + ranks - 1) % ranks);
    barrier();
    CHECK(vgasnet_segment_detach(small) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_detach_own(small) == VGASNET_OK && vgasnet_segment_detach_own(small) == VGASNET_ERR_BAD_ARG);
}

/* Memory of ranks comes and goes beside the first segment; ranks of a node reach it by pointers. */
static void further_pinned(void) {
    const vgasnet_node_t ranks = vgasnet_nodes(), me = vgasnet_mynode(), right = (me + 1) % ranks;
    vgasnet_segment_options_t options = {.pinned = 1}, wrong = {.pinned = 1, .page_bytes = 4096};
    vgasnet_segment_id_t segment, own;
    uint64_t word, round;
    uint64_t *here;
    CHECK(vgasnet_segment_attach(4096, &wrong, &segment) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_attach((uintptr_t)-1, &options, &segment) == VGASNET_ERR_BAD_ARG);
    for (round = 0; round < 5; round++) {
        CHECK(vgasnet_segment_attach(100000 + 8 * me, &options, &segment) == VGASNET_OK);
        CHECK(vgasnet_segment_part_bytes(segment, right) == 100000 + 8 * right);
        here = (uint64_t *)vgasnet_segment_pointer(segment, me, 80000);
        CHECK(here != NULL && *here == 0 && vgasnet_segment_pointer(segment, me, 100000 + 8 * me) == NULL);
        vgasnet_segment_get(&word, segment, right, 3000, 8);
        CHECK(word == 0);
        barrier();
        word = round << 32 | me;
        vgasnet_segment_put(segment, right, 3000, &word, 8);
        CHECK(vgasnet_segment_update_u64(segment, 0, 80000, VGASNET_ADD, 1, 0) < ranks);
        CHECK(vgasnet_segment_prefetch(segment, right, 0, 100000) == VGASNET_OK);
        barrier();
        vgasnet_segment_get(&word, segment, me, 3000, 8);
        CHECK(word == (round << 32 | (me + ranks - 1) % ranks) && (me != 0 || *here == ranks));
        CHECK(vgasnet_segment_detach(segment) == VGASNET_OK && vgasnet_segment_part_bytes(segment, me) == 0);
        CHECK(vgasnet_segment_pointer(segment, me, 0) == NULL && vgasnet_segment_pointer(0, me, 0) == NULL);
    }
    CHECK(vgasnet_segment_attach_own(50000, &options, &own) == VGASNET_OK);
    CHECK(vgasnet_segment_learn(own, ranks) == VGASNET_ERR_BAD_ARG);
    barrier();
    CHECK(vgasnet_segment_learn(own, right) == VGASNET_OK && vgasnet_segment_part_bytes(own, right) == 50000);
    word = 4711 + me;
    vgasnet_segment_put(own, right, 40000, &word, 8);
    barrier();
    CHECK(*(uint64_t *)vgasnet_segment_pointer(own, me, 40000) == 4711 + (me + ranks - 1) % ranks);
    barrier();
    CHECK(vgasnet_segment_detach(own) == VGASNET_ERR_BAD_ARG && vgasnet_segment_detach_own(own) == VGASNET_OK);
    barrier();
    CHECK(vgasnet_segment_learn(own, right) == VGASNET_ERR_BAD_ARG);
    barrier();
}

/* A further segment with a name is kept beside the first, at the same checkpoint. */
static void keeps(const char *name, int is_there) {
    vgasnet_segment_options_t options = {.page_bytes = 16384};
    vgasnet_segment_id_t segment, other;
    vgasnet_reopened_t first, found;
    uint64_t word = 0;
    char further[100];
    snprintf(further, sizeof(further), "%s-further", name);
    options.name = "no/name";
    CHECK(vgasnet_segment_attach(4096, &options, &segment) == VGASNET_ERR_BAD_ARG);
    options.name = further;
    CHECK(vgasnet_segment_attach_own(4096, &options, &segment) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_attach(100000, &options, &segment) == VGASNET_OK);
    CHECK(vgasnet_segment_attach(100000, &options, &other) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_reopened(segment, NULL) == VGASNET_ERR_BAD_ARG && vgasnet_reopened(&first) == VGASNET_OK);
    CHECK(vgasnet_segment_reopened(segment, &found) == VGASNET_OK && (found.checkpoint > 0) == is_there);
    CHECK(first.checkpoint == found.checkpoint);
    vgasnet_segment_get(&word, segment, vgasnet_mynode(), 90000, 8);
    CHECK(word == (is_there ? 815u + vgasnet_mynode() : 0));
    word = 815 + vgasnet_mynode();
    vgasnet_segment_put(segment, vgasnet_mynode(), 90000, &word, 8);
}

/* A system call fills the segment, which it may only where pages stay. */
static void pins(void) {
    vgasnet_pin_t pin;
    int pipes[2];
    CHECK(vgasnet_pin(own, BYTES + 1, &pin) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_pin(own + 5000, 100, NULL) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_pin(own + 5000, 100, &pin) == VGASNET_OK);
    CHECK(pipe(pipes) == 0 && write(pipes[1], "through a pipe", 14) == 14);
    CHECK(read(pipes[0], own + 5000, 14) == 14);
    CHECK(memcmp(own + 5000, "through a pipe", 14) == 0);
    vgasnet_unpin(pin);
}

int main(int argc, char **argv) {
    vgasnet_handlerentry_t handlers[] = {{200, (void (*)())on_request}, {201, (void (*)())on_answer}};
    vgasnet_segment_t segment = {BYTES, VGASNET_CONFIGURED, NULL};
    vgasnet_node_t me, right;
    vgasnet_reopened_t found;
    uint64_t counters[256];
    size_t i, known = 0;
    int32_t word;
    CHECK(vgasnet_init(&argc, &argv) == VGASNET_OK);
    CHECK(argc > 1);
    if (strcmp(argv[1], "pinned") == 0) segment.kind = VGASNET_PINNED;
    if (strcmp(argv[1], "tiered") == 0) segment.kind = VGASNET_TIERED;
    if (strcmp(argv[1], "relaxed") == 0) segment.kind = VGASNET_RELAXED;
    if (argc > 3) segment.name = argv[2];
    CHECK(vgasnet_attach(NULL, NULL, 0) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_max_segment(segment.kind) >= BYTES);
    CHECK(vgasnet_attach(&segment, handlers, 2) == VGASNET_OK);
    CHECK(segment.kind == VGASNET_CONFIGURED || vgasnet_segment_kind() == segment.kind);
    me = vgasnet_mynode();
    right = (me + 1) % vgasnet_nodes();
    own = (char *)vgasnet_segment_address(me);
    CHECK(vgasnet_segment_bytes(right) == BYTES && vgasnet_segment_address(vgasnet_nodes()) == NULL);
    CHECK(vgasnet_reopened(NULL) == VGASNET_ERR_BAD_ARG && vgasnet_reopened(&found) == VGASNET_OK);
    CHECK(found.checkpoint == found.newest && !found.is_read_only);
    CHECK((found.checkpoint > 0) == (argc > 3 && strcmp(argv[3], "read") == 0));
    if (argc > 3 && strcmp(argv[3], "read") == 0) {
        CHECK(strcmp(own, "kept") == 0 && own[BYTES - 1] == (char)(me + 1));
        keeps(argv[2], 1);
        vgasnet_exit(0);
    }
    for (i = 0; i < BYTES; i += 4096) CHECK(own[i] == 0);
    barrier();
    traffic(right);
    updates();
    exchanges();
    locks();
    pins();
    further();
    further_pinned();
    barrier();
    word = (int32_t)me;
    CHECK(vgasnet_request_long(right, 200, "ten letters", 11, (char *)vgasnet_segment_address(right) + 4096, 1, &word) ==
          VGASNET_OK);
    VGASNET_BLOCKUNTIL(answered == 1);
    CHECK(vgasnet_statistics_count() <= 256 && vgasnet_statistics(counters, 256) == VGASNET_OK);
    for (i = 0; i < vgasnet_statistics_count(); i++) {
        CHECK(vgasnet_statistic_name(i) != NULL);
        if (strcmp(vgasnet_statistic_name(i), "put_misses") == 0) known = 1;
        if (strcmp(vgasnet_statistic_name(i), "put_misses") == 0 && vgasnet_segment_kind() == VGASNET_TIERED)
            CHECK(counters[i] > 0);
        if (strcmp(vgasnet_statistic_name(i), "combined_puts") == 0)
            CHECK((counters[i] > 0) == (vgasnet_segment_kind() == VGASNET_RELAXED));
    }
    CHECK(known && vgasnet_statistic_name(vgasnet_statistics_count()) == NULL);
    if (segment.name != NULL) {
        keeps(segment.name, 0);
        strcpy(own, "kept");
        own[BYTES - 1] = (char)(me + 1);
        CHECK(vgasnet_checkpoint() == VGASNET_OK);
    } else {
        /* Of what is pinned or has no name, nothing is kept. */
        CHECK(vgasnet_checkpoint() == VGASNET_ERR_BAD_ARG);
    }
    barrier();
    vgasnet_exit(0);
    return 1;
}
