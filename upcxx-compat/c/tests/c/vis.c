/* Vector, indexed and strided puts and gets. Goal: after every operation, in each of its forms, exactly the bytes that the
 * specification says have changed. Method: each rank owns a slot in its neighbour's segment and a model of it; random
 * operations are done to both, and the whole slot is read back and compared after each. Usage: vis SEED ROUNDS */
#include "check.h"

#include <gasnet_tools.h>
#include <gasnet_vis.h>

enum { SLOT = 24 << 10, PIECES_MAX = 64, LEVELS_MAX = 8 };

static uint64_t state;
static unsigned long seed_given;
static gasnet_node_t me, peer;
static unsigned char *remote;        /* the slot at the peer, as its owner names it */
static unsigned char model[SLOT];    /* what it holds */
static unsigned char private_[SLOT]; /* local memory outside of the segment */
static unsigned char *local;         /* the local side: private or in this rank's own segment */
static unsigned char expected[SLOT]; /* what the local side of a get is to hold */

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}
/* A number from 0 to limit - 1. */
static size_t pick(size_t limit) { return (size_t)(next() % limit); }

#define CHECK_SEED(condition)                                                                                         \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: node %d: seed %lu: failed: %s\n", __FILE__, __LINE__, (int)me, seed_given, #condition); \
            gasnet_exit(99);                                                                                          \
        }                                                                                                             \
    } while (0)

static void fill(unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)next();
}

/* ---- Completion: each form in turn, so that all are synchronised in all ways ---- */

enum form { BLOCKING, WAIT, TRY, IMPLICIT, REGION, FORMS };

static void sync_handle(enum form form, gasnet_handle_t handle) {
    if (form == WAIT) gasnet_wait_syncnb(handle);
    else while (gasnet_try_syncnb(handle) == GASNET_ERR_NOT_READY) {}
}
static void begin_form(enum form form) {
    if (form == REGION) gasnet_begin_nbi_accessregion();
}
static void end_form(enum form form, int is_put) {
    if (form == REGION) gasnet_wait_syncnb(gasnet_end_nbi_accessregion());
    else if (form == IMPLICIT && is_put) gasnet_wait_syncnbi_puts();
    else if (form == IMPLICIT) gasnet_wait_syncnbi_gets();
}
/* Calls gasnet_<name><suffix>_bulk in the form. */
#define IN_FORM(form, is_put, name, ...)                                                                \
    do {                                                                                                \
        begin_form(form);                                                                               \
        if ((form) == BLOCKING) gasnet_##name##_bulk(__VA_ARGS__);                                      \
        else if ((form) <= TRY) sync_handle((form), gasnet_##name##_nb_bulk(__VA_ARGS__));              \
        else gasnet_##name##_nbi_bulk(__VA_ARGS__);                                                     \
        end_form((form), (is_put));                                                                     \
    } while (0)

/* ---- Lists ---- */

struct list {
    size_t count;
    size_t offset[PIECES_MAX];
    size_t bytes[PIECES_MAX];
};

/* Cuts `total` bytes into pieces, some of them empty, and gives them places; disjoint ones are also shuffled. */
static void make_list(struct list *list, size_t total, int is_disjoint) {
    size_t room = SLOT - total, place = 0;
    list->count = total == 0 ? pick(4) : 1 + pick(PIECES_MAX - 1);
    for (size_t i = 0; i < list->count; i++) {
        size_t const bytes = i + 1 == list->count ? total : pick(3) == 0 ? 0 : pick(total / 2 + 1);
        if (is_disjoint) {
            size_t const gap = pick(4) == 0 ? 0 : pick(room / (list->count - i) + 1);
            place += gap;
            room -= gap;
            list->offset[i] = place;
            place += bytes;
        } else {
            list->offset[i] = pick(SLOT - bytes + 1);
        }
        list->bytes[i] = bytes;
        total -= bytes;
    }
    for (size_t i = list->count; i > 1; i--) {
        size_t const j = pick(i);
        size_t const offset = list->offset[i - 1], bytes = list->bytes[i - 1];
        list->offset[i - 1] = list->offset[j];
        list->bytes[i - 1] = list->bytes[j];
        list->offset[j] = offset;
        list->bytes[j] = bytes;
    }
}

/* What a transfer does, byte by byte. */
static void apply_lists(unsigned char *to, const struct list *to_list, const unsigned char *from,
                        const struct list *from_list) {
    size_t i = 0, j = 0, in_i = 0, in_j = 0;
    for (;;) {
        while (i < to_list->count && in_i == to_list->bytes[i]) i++, in_i = 0;
        while (j < from_list->count && in_j == from_list->bytes[j]) j++, in_j = 0;
        if (i == to_list->count || j == from_list->count) break;
        to[to_list->offset[i] + in_i++] = from[from_list->offset[j] + in_j++];
    }
    CHECK_SEED(i == to_list->count && j == from_list->count);
}

static void to_vector(gasnet_memvec_t *vector, const struct list *list, unsigned char *base) {
    for (size_t i = 0; i < list->count; i++) {
        vector[i].len = list->bytes[i];
        /* Nobody may look at the address of a piece without bytes. */
        vector[i].addr = list->bytes[i] == 0 ? NULL : base + list->offset[i];
    }
}

static void vector_round(enum form form, int is_put) {
    struct list to_list, from_list;
    gasnet_memvec_t to[PIECES_MAX], from[PIECES_MAX];
    size_t const total = pick(8) == 0 ? 0 : pick(SLOT);
    make_list(&to_list, total, 1);
    make_list(&from_list, total, 0);
    to_vector(to, &to_list, is_put ? remote : local);
    to_vector(from, &from_list, is_put ? local : remote);
    if (is_put) {
        apply_lists(model, &to_list, local, &from_list);
        IN_FORM(form, 1, putv, peer, to_list.count, to, from_list.count, from);
    } else {
        apply_lists(expected, &to_list, model, &from_list);
        IN_FORM(form, 0, getv, to_list.count, to, peer, from_list.count, from);
    }
}

static void indexed_round(enum form form, int is_put) {
    size_t const unit = 1 + pick(16), m = 1 + pick(7), n = 1 + pick(7), times = pick(4);
    struct list to_list, from_list;
    void *to[PIECES_MAX], *from[PIECES_MAX];
    size_t const to_bytes = unit * m, from_bytes = unit * n;
    size_t const stride = to_bytes + pick(20);
    size_t const first = pick(100);
    to_list.count = n * times;
    from_list.count = m * times;
    for (size_t i = 0; i < to_list.count; i++) {
        /* Disjoint, backwards. */
        to_list.offset[i] = first + (to_list.count - 1 - i) * stride;
        to_list.bytes[i] = to_bytes;
        to[i] = (is_put ? remote : local) + to_list.offset[i];
    }
    for (size_t i = 0; i < from_list.count; i++) {
        from_list.offset[i] = pick(SLOT - from_bytes + 1);
        from_list.bytes[i] = from_bytes;
        from[i] = (is_put ? local : remote) + from_list.offset[i];
    }
    if (is_put) {
        apply_lists(model, &to_list, local, &from_list);
        IN_FORM(form, 1, puti, peer, to_list.count, to, to_bytes, from_list.count, from, from_bytes);
    } else {
        apply_lists(expected, &to_list, model, &from_list);
        IN_FORM(form, 0, geti, to_list.count, to, to_bytes, peer, from_list.count, from, from_bytes);
    }
}

static void apply_strided(unsigned char *to, const size_t *to_strides, const unsigned char *from,
                          const size_t *from_strides, const size_t *count, size_t levels) {
    if (levels == 0) {
        memmove(to, from, count[0]);
        return;
    }
    for (size_t i = 0; i < count[levels]; i++) {
        apply_strided(to + i * to_strides[levels - 1], to_strides, from + i * from_strides[levels - 1], from_strides,
                      count, levels - 1);
    }
}

/* Strides that keep a section's pieces apart, some of them without a gap. Returns the bytes from first to last. */
static size_t make_strides(size_t *strides, const size_t *count, size_t levels) {
    size_t extent = count[0];
    for (size_t level = 1; level <= levels; level++) {
        size_t const dense = level == 1 ? count[0] : strides[level - 2] * count[level - 1];
        strides[level - 1] = dense + (pick(2) == 0 ? 0 : pick(12));
        if (count[level] > 0) extent += (count[level] - 1) * strides[level - 1];
    }
    return extent;
}

static void swap(size_t *one, size_t *other) {
    size_t const was = *one;
    *one = *other;
    *other = was;
}

static void strided_round(enum form form, int is_put) {
    size_t const levels = pick(LEVELS_MAX + 1);
    size_t count[LEVELS_MAX + 1], to_strides[LEVELS_MAX], from_strides[LEVELS_MAX];
    size_t to_extent, from_extent, to_offset, from_offset;
    count[0] = pick(20) == 0 ? 0 : 1 + pick(40);
    for (size_t level = 1; level <= levels; level++) {
        count[level] = pick(20) == 0 ? 0 : 1 + pick(levels > 4 ? 2 : 4);
    }
    to_extent = make_strides(to_strides, count, levels);
    from_extent = make_strides(from_strides, count, levels);
    switch (pick(4)) {
    case 0: /* Alike on both sides, so that runs touch on both. */
        memcpy(from_strides, to_strides, sizeof from_strides);
        from_extent = to_extent;
        break;
    case 1: /* Pieces of the source overlap each other. */
        for (size_t level = 0; level < levels; level++) from_strides[level] = pick(from_strides[level] + 1);
        break;
    default: break;
    }
    /* The order of dimensions means nothing. */
    for (size_t level = levels; level > 1; level--) {
        size_t const other = 1 + pick(level);
        swap(&count[level], &count[other]);
        swap(&to_strides[level - 1], &to_strides[other - 1]);
        swap(&from_strides[level - 1], &from_strides[other - 1]);
    }
    CHECK_SEED(to_extent <= SLOT && from_extent <= SLOT);
    to_offset = pick(SLOT - to_extent + 1);
    from_offset = pick(SLOT - from_extent + 1);
    if (is_put) {
        apply_strided(model + to_offset, to_strides, local + from_offset, from_strides, count, levels);
        IN_FORM(form, 1, puts, peer, remote + to_offset, to_strides, local + from_offset, from_strides, count, levels);
    } else {
        apply_strided(expected + to_offset, to_strides, model + from_offset, from_strides, count, levels);
        IN_FORM(form, 0, gets, local + to_offset, to_strides, peer, remote + from_offset, from_strides, count, levels);
    }
}

/* ---- Corners, in each form ---- */

static void corners(enum form form) {
    gasnet_memvec_t none[1] = {{NULL, 0}};
    gasnet_memvec_t empty[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    void *nowhere[1] = {NULL};
    size_t const zero[2] = {0, 3}, nothing[2] = {4, 0}, some[1] = {9};
    size_t const stride[1] = {8};
    /* Nothing is moved by lists of nothing, which may be null, and by pieces of nothing. */
    IN_FORM(form, 1, putv, peer, 0, NULL, 0, NULL);
    IN_FORM(form, 0, getv, 0, NULL, peer, 0, NULL);
    IN_FORM(form, 1, putv, peer, 3, empty, 1, none);
    IN_FORM(form, 0, getv, 1, none, peer, 3, empty);
    IN_FORM(form, 1, putv, peer, 3, empty, 0, NULL);
    IN_FORM(form, 1, puti, peer, 0, NULL, 8, 0, NULL, 4);
    IN_FORM(form, 0, geti, 0, NULL, 8, peer, 0, NULL, 4);
    IN_FORM(form, 1, puti, peer, 1, nowhere, 0, 1, nowhere, 0);
    IN_FORM(form, 1, puts, peer, NULL, stride, NULL, stride, zero, 1);
    IN_FORM(form, 0, gets, NULL, stride, peer, NULL, stride, zero, 1);
    IN_FORM(form, 1, puts, peer, NULL, stride, NULL, stride, nothing, 1);
    /* No levels: the strides may be null. */
    apply_strided(model + 5, NULL, local + 7, NULL, some, 0);
    IN_FORM(form, 1, puts, peer, remote + 5, NULL, local + 7, NULL, some, 0);
    memcpy(expected + 11, model + 5, 9);
    IN_FORM(form, 0, gets, local + 11, NULL, peer, remote + 5, NULL, some, 0);
    /* One piece of one side is many of the other. */
    {
        gasnet_memvec_t one[1], many[40];
        one[0].addr = remote + 100;
        one[0].len = 40;
        for (size_t i = 0; i < 40; i++) {
            many[i].addr = local + 200 + 3 * i;
            many[i].len = 1;
            model[100 + i] = local[200 + 3 * i];
        }
        IN_FORM(form, 1, putv, peer, 1, one, 40, many);
        /* Many overlapping reads of the same bytes. */
        for (size_t i = 0; i < 40; i++) {
            many[i].addr = remote + 100;
            many[i].len = 2;
            memcpy(expected + 2 * i, model + 100, 2);
        }
        one[0].addr = local;
        one[0].len = 80;
        IN_FORM(form, 0, getv, 1, one, peer, 40, many);
    }
}

/* ---- Lists as text ---- */

static void texts(void) {
    gasnet_memvec_t list[2] = {{&list[0], 10}, {&list[1], 20}};
    void *addresses[2] = {&list[0], &list[1]};
    size_t const strides[2] = {16, 1000000}, count[3] = {8, 2, 3};
    char address[40];
    char *text = (char *)malloc(gasnett_format_putvgetv_bufsz(2, 2) + gasnett_format_putsgets_bufsz(2) +
                                gasnett_format_putigeti_bufsz(2, 2));
    gasneti_memveclist_stats_t stats = gasnett_format_memveclist(text, 2, list);
    CHECK(stats.minsz == 10 && stats.maxsz == 20 && stats.totalsz == 30 && stats.minaddr == (void *)&list[0]);
    CHECK(stats.maxaddr == (void *)((char *)&list[1] + 19));
    snprintf(address, sizeof address, "[%p,20]", (void *)&list[1]);
    CHECK(strstr(text, address) != NULL && strlen(text) < gasnett_format_memveclist_bufsz(2));
    CHECK(gasnett_format_putvgetv(text, 3, 2, list, 1, list) == 30 && strstr(text, "node=3") != NULL);
    CHECK(strlen(text) < gasnett_format_putvgetv_bufsz(2, 1));
    CHECK(gasnett_format_addrlist(text, 2, addresses, 8).minaddr == addresses[0]);
    CHECK(strlen(text) < gasnett_format_addrlist_bufsz(2));
    CHECK(gasnett_format_putigeti(text, 3, 2, addresses, 8, 2, addresses, 8) == 16);
    CHECK(strlen(text) < gasnett_format_putigeti_bufsz(2, 2));
    gasnett_format_strides(text, 2, strides);
    CHECK(strcmp(text, "[16, 1000000]") == 0);
    CHECK(gasnett_format_putsgets(text, NULL, 3, addresses[0], strides, addresses[1], strides, count, 2) == 48);
    CHECK(strstr(text, "[8, 2, 3]") != NULL && strlen(text) < gasnett_format_putsgets_bufsz(2));
    free(text);
}

static void compare(void) {
    static unsigned char seen[SLOT];
    gasnet_get_bulk(seen, peer, remote, SLOT);
    CHECK_SEED(memcmp(seen, model, SLOT) == 0);
    CHECK_SEED(memcmp(local, expected, SLOT) == 0);
}

static void barrier(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}

int main(int argc, char **argv) {
    gasnet_seginfo_t *segments;
    int rounds;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(NULL, 0, 2 * ((SLOT + 4095) / 4096) * 4096, 0) == GASNET_OK);
    seed_given = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    rounds = argc > 2 ? atoi(argv[2]) : 100;
    me = gasnet_mynode();
    peer = (me + 1) % gasnet_nodes();
    state = seed_given * 0x9E3779B97F4A7C15u + me + 1;
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    remote = (unsigned char *)segments[peer].addr;
    fill(model, SLOT);
    gasnet_put_bulk(peer, remote, model, SLOT);
    barrier();
    texts();
    for (int round = 0; round < rounds; round++) {
        enum form const form = (enum form)(round % FORMS);
        /* The upper half of this rank's own segment is nobody's slot. */
        local = pick(2) ? private_ : (unsigned char *)segments[me].addr + SLOT;
        fill(local, SLOT);
        memcpy(expected, local, SLOT);
        switch (pick(8)) {
        case 0: case 1: vector_round(form, (int)pick(2)); break;
        case 2: case 3: indexed_round(form, (int)pick(2)); break;
        case 4: case 5: case 6: strided_round(form, (int)pick(2)); break;
        default: corners(form); break;
        }
        compare();
    }
    barrier();
    free(segments);
    gasnet_exit(0);
    return 1;
}
