/* Vectors of many small pieces put into, and got from, segments that their owners use through pointers all the time, so that
 * the pages stay where they are. Argument: rounds. Rank 0 prints how many operations their homes did for each 100 pieces. */
#include "check.h"
#include <gasnet_vis.h>
#include <vgasnet.h>

enum { PIECES = 350, LENGTH = 100, GAP = 300 };

/* What homes have done in place, all together. */
static uint64_t served(void) {
    uint64_t values[256];
    size_t i;
    CHECK(vgasnet_statistics(values, 256) == VGASNET_OK);
    for (i = 0; i < vgasnet_statistics_count(); i++)
        if (strcmp(vgasnet_statistic_name(i), "in_place_served") == 0) return values[i];
    CHECK(!"there is such a counter");
    return 0;
}

int main(int argc, char **argv) {
    static gasnet_memvec_t there[PIECES], here[PIECES];
    static char bytes[PIECES * LENGTH];
    gasnet_seginfo_t segments[64];
    gasnet_node_t me, other;
    int round, rounds;
    size_t i;
    volatile char *mine;
    uint64_t before;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc > 1 && gasnet_nodes() <= 64);
    rounds = atoi(argv[1]);
    me = gasnet_mynode();
    other = (me + gasnet_nodes() / 2) % gasnet_nodes();
    CHECK(gasnet_attach(NULL, 0, 2 << 20, 0) == GASNET_OK);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    mine = (volatile char *)segments[me].addr;
    before = served();
    for (round = 0; round < rounds; round++) {
        /* The owner's stores, in bytes that nobody else writes. */
        for (i = 0; i < PIECES; i++) mine[i * GAP + LENGTH + 7] = (char)(round + i);
        gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
        for (i = 0; i < PIECES; i++) {
            there[i].addr = (char *)segments[other].addr + i * GAP;
            here[i].addr = bytes + i * LENGTH;
            there[i].len = here[i].len = LENGTH;
            memset(here[i].addr, (int)(round * 3 + me + i), LENGTH);
        }
        gasnet_putv_bulk(other, PIECES, there, PIECES, here);
        gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
        memset(bytes, 0, sizeof bytes);
        gasnet_getv_bulk(PIECES, here, other, PIECES, there);
        for (i = 0; i < PIECES; i++) {
            const char *found = bytes + i * LENGTH;
            const char expected = (char)(round * 3 + me + i);
            CHECK(found[0] == expected && found[LENGTH - 1] == expected);
            CHECK(mine[i * GAP + LENGTH + 7] == (char)(round + i));
        }
        gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    }
    before = served() - before;
    if (me == 0) printf("%d\n", (int)(before * 100 / ((uint64_t)rounds * PIECES * 2 * gasnet_nodes())));
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
    return 0;
}
