/* Ranks of one node read each other's segments through pointers, the first and a further one.
 *
 *   mates [store]     with `store`, rank 1 stores through such a pointer: a line says so, and the job ends
 */
#include "check.h"
#include <string.h>
#include <vgasnet.h>

#define BYTES ((uintptr_t)256 * 1024)
#define PAGE ((uintptr_t)4096)
#define PAGES ((uint32_t)6)

static vgasnet_node_t me, ranks;

static void barrier(void) {
    vgasnet_barrier_notify(0, VGASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(vgasnet_barrier_wait(0, VGASNET_BARRIERFLAG_ANONYMOUS) == VGASNET_OK);
}

static uint64_t pattern(vgasnet_node_t of, uintptr_t page, uint64_t round) { return (uint64_t)of << 40 | page << 8 | round; }

static uint64_t word_at(const void *base, uintptr_t page) {
    return __atomic_load_n((const uint64_t *)((const char *)base + page * PAGE), __ATOMIC_ACQUIRE);
}

/* Reads all of a mate's part, which is more than may be mapped. */
static void read_all(const void *base, vgasnet_node_t mate, uint64_t round) {
    uintptr_t page;
    for (page = 0; page < BYTES / PAGE; page++) CHECK(word_at(base, page) == pattern(mate, page, round));
}

int main(int argc, char **argv) {
    vgasnet_segment_t segment = {BYTES, VGASNET_TIERED, NULL};
    vgasnet_segment_options_t options = {.page_bytes = 4096, .one_address = 1};
    vgasnet_segment_id_t further;
    vgasnet_part_t part = NULL, again = NULL;
    const void *base = NULL;
    void *mine = NULL;
    vgasnet_node_t mate;
    uintptr_t page;
    uint64_t round;
    char *own;
    CHECK(vgasnet_segment_local_of_mate(0, 0, PAGES, &part, &base) == VGASNET_ERR_NOT_INIT);
    CHECK(vgasnet_init(&argc, &argv) == VGASNET_OK);
    CHECK(vgasnet_attach(&segment, NULL, 0) == VGASNET_OK);
    me = vgasnet_mynode();
    ranks = vgasnet_nodes();
    own = (char *)vgasnet_segment_address(me);
    CHECK(vgasnet_segment_attach(BYTES, &options, &further) == VGASNET_OK);
    mate = me % 2 == 0 ? me + 1 : me - 1; /* ranks 0 and 1 share a node, and so do 2 and 3 */
    if (argc > 1 && strcmp(argv[1], "store") == 0) {
        CHECK(vgasnet_segment_local_of_mate(0, mate, PAGES, &part, &base) == VGASNET_OK && word_at(base, 3) == 0);
        barrier();
        if (me == 1) *(volatile uint64_t *)((uintptr_t)base + 3 * PAGE) = 1;
        barrier();
        vgasnet_exit(0);
    }
    CHECK(vgasnet_segment_local_of_mate(0, mate, PAGES, NULL, &base) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_local_of_mate(0, mate, PAGES, &part, NULL) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_local_of_mate(0, me, PAGES, &part, &base) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_local_of_mate(0, ranks, PAGES, &part, &base) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_local_of_mate(0, (me + 2) % ranks, PAGES, &part, &base) == VGASNET_ERR_BAD_ARG || ranks == 2);
    CHECK(vgasnet_segment_local_of_mate(0, mate, 1, &part, &base) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_local_of_mate(77, mate, PAGES, &part, &base) == VGASNET_ERR_BAD_ARG);
    CHECK(part == NULL && base == NULL);
    vgasnet_segment_close(NULL);
    CHECK(vgasnet_segment_local_of_mate(0, mate, PAGES, &part, &base) == VGASNET_OK && part != NULL);
    CHECK(vgasnet_segment_local_of_mate(0, mate, PAGES, &again, &base) == VGASNET_ERR_BAD_ARG && again == NULL);
    for (round = 1; round <= 5; round++) {
        for (page = 0; page < BYTES / PAGE; page++) {
            const uint64_t word = pattern(me, page, round);
            /* Half by pointers, half by puts of somebody else. */
            if (page % 2 == 0) __atomic_store_n((uint64_t *)(own + page * PAGE), word, __ATOMIC_RELEASE);
        }
        for (page = 1; page < BYTES / PAGE; page += 2) {
            const vgasnet_node_t next = (me + 1) % ranks;
            const uint64_t word = pattern(next, page, round);
            vgasnet_put(next, (char *)vgasnet_segment_address(next) + page * PAGE, &word, sizeof(word));
        }
        barrier();
        read_all(base, mate, round);
        barrier();
    }
    vgasnet_segment_close(part);
    for (page = 0; page < BYTES / PAGE; page++) {
        const uint64_t word = pattern(me, page, 9);
        vgasnet_segment_put(further, me, page * PAGE, &word, sizeof(word));
    }
    barrier();
    CHECK(vgasnet_segment_local_of_mate(further, mate, PAGES, &part, &base) == VGASNET_OK);
    CHECK(base == vgasnet_segment_pointer(further, mate, 0));
    read_all(base, mate, 9);
    vgasnet_segment_close(part);
    barrier();
    /* The owner's pointers, which all know alike. */
    CHECK(vgasnet_segment_local(further, PAGES, NULL, &mine) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_local(0, PAGES, &part, &mine) == VGASNET_ERR_BAD_ARG);
    CHECK(vgasnet_segment_local(further, PAGES, &part, &mine) == VGASNET_OK);
    CHECK(mine == vgasnet_segment_pointer(further, me, 0) && vgasnet_segment_pointer(further, me, BYTES) == NULL);
    CHECK(vgasnet_segment_pointer(0, me, 0) == NULL);
    __atomic_store_n((uint64_t *)((char *)mine + PAGE), 4711 + me, __ATOMIC_RELEASE);
    barrier();
    {
        const vgasnet_node_t next = (me + 1) % ranks;
        uint64_t word = 0;
        vgasnet_segment_get(&word, further, next, PAGE, sizeof(word));
        CHECK(word == 4711 + next);
    }
    barrier();
    vgasnet_segment_close(part);
    CHECK(vgasnet_segment_detach(further) == VGASNET_OK);
    barrier();
    vgasnet_exit(0);
    return 1;
}
