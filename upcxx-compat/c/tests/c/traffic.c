/* Random puts in all forms into segments larger than the cache, every one of them read again: before it is overwritten, or at
 * the end. Arguments: puts of each rank, seed, bytes of a segment.
 *
 * Blocks of every segment belong to the ranks in turn, so that ranks write into the same pages, but each knows what its own
 * blocks hold. Work goes on in a window for a while, so that there are hits between evictions. */
#include "check.h"

enum { BLOCK = 256, WINDOW_BLOCKS = 128, PUTS_IN_A_WINDOW = 256, IN_FLIGHT = 16 };

static uint64_t state;
static size_t next(size_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % limit;
}

static gasnet_seginfo_t *segments;
static unsigned char **model; /* by rank: its own blocks there, one after the other */
static gasnet_node_t me, nodes;

static char *place(gasnet_node_t node, size_t block) {
    return (char *)segments[node].addr + (block * nodes + me) * BLOCK;
}

/* What a place should hold: what was put there last. */
static void expect(gasnet_node_t node, size_t block, size_t at, size_t length) {
    unsigned char found[BLOCK];
    gasnet_get(found, node, place(node, block) + at, length);
    if (memcmp(found, model[node] + block * BLOCK + at, length) != 0) {
        fprintf(stderr, "node %d: a put to node %d was lost: block %zu, %zu bytes at %zu\n", (int)me, (int)node, block,
                length, at);
        gasnet_exit(98);
    }
}

int main(int argc, char **argv) {
    unsigned char sources[IN_FLIGHT][BLOCK];
    gasnet_handle_t handles[IN_FLIGHT];
    size_t puts, done, blocks, window = 0, i;
    gasnet_node_t node = 0;
    uintptr_t bytes;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc > 3);
    me = gasnet_mynode();
    nodes = gasnet_nodes();
    puts = strtoull(argv[1], NULL, 0);
    state = strtoull(argv[2], NULL, 0) * 1000003u + me;
    bytes = strtoull(argv[3], NULL, 0);
    CHECK(gasnet_attach(NULL, 0, bytes, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(nodes, sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)nodes) == GASNET_OK);
    blocks = bytes / BLOCK / nodes;
    CHECK(blocks > WINDOW_BLOCKS);
    model = (unsigned char **)calloc(nodes, sizeof *model);
    for (i = 0; i < nodes; i++) model[i] = (unsigned char *)calloc(blocks, BLOCK);
    for (i = 0; i < IN_FLIGHT; i++) handles[i] = GASNET_INVALID_HANDLE;
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    for (done = 0; done < puts; done++) {
        const size_t slot = done % IN_FLIGHT;
        size_t block, at, length;
        if (done % PUTS_IN_A_WINDOW == 0) {
            /* Puts in flight are read again only when they are complete. */
            gasnet_wait_syncnb_all(handles, IN_FLIGHT);
            gasnet_wait_syncnbi_puts();
            node = (gasnet_node_t)next(nodes);
            window = next(blocks - WINDOW_BLOCKS);
        }
        /* Each slot has its own blocks of the window: puts in flight do not overlap. */
        block = window + next(WINDOW_BLOCKS / IN_FLIGHT) * IN_FLIGHT + slot;
        at = next(BLOCK);
        length = 1 + next(BLOCK - at);
        if (next(4) == 0) {
            at = at / 8 * 8;
            length = 8;
        }
        if (slot == 0) gasnet_wait_syncnbi_puts();
        gasnet_wait_syncnb(handles[slot]);
        handles[slot] = GASNET_INVALID_HANDLE;
        expect(node, block, at, length);
        for (i = 0; i < length; i++) sources[slot][i] = (unsigned char)next(256);
        memcpy(model[node] + block * BLOCK + at, sources[slot], length);
        switch (next(4)) {
        case 0: gasnet_put(node, place(node, block) + at, sources[slot], length); break;
        case 1: handles[slot] = gasnet_put_nb_bulk(node, place(node, block) + at, sources[slot], length); break;
        case 2:
            handles[slot] = gasnet_put_nb(node, place(node, block) + at, sources[slot], length);
            memset(sources[slot], 0, length);
            break;
        default: gasnet_put_nbi_bulk(node, place(node, block) + at, sources[slot], length);
        }
    }
    gasnet_wait_syncnb_all(handles, IN_FLIGHT);
    gasnet_wait_syncnbi_puts();
    for (node = 0; node < nodes; node++) {
        for (i = 0; i < blocks; i++) expect(node, i, 0, BLOCK);
    }
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    /* Once more by the owner's pointers, for its own blocks. */
    for (i = 0; i < blocks; i++) CHECK(memcmp(place(me, i), model[me] + i * BLOCK, BLOCK) == 0);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (me == 0) printf("%zu puts, each read again\n", puts * nodes);
    gasnet_exit(0);
    return 1;
}
