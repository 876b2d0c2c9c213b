/* A client that is a library, which a program loads while it runs: `client_main` is the client's main. Each rank puts its number
 * to the next, and the ranks have not been given what the daemons were. */
#include "check.h"

extern int client_main(int argc, char **argv);
int client_main(int argc, char **argv) {
    gasnet_node_t me, right;
    gasnet_seginfo_t *segments;
    const char *preload;
    uint64_t value, found;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) == GASNET_OK);
    me = gasnet_mynode();
    right = (me + 1) % gasnet_nodes();
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    value = me;
    CHECK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
    gasnet_put(right, segments[right].addr, &value, sizeof value);
    CHECK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
    gasnet_get(&found, me, segments[me].addr, sizeof found);
    CHECK((found + 1) % gasnet_nodes() == me);
    preload = getenv("LD_PRELOAD");
    printf("node %d of %d, preloaded: %s\n", (int)me, (int)gasnet_nodes(), preload == NULL ? "nothing" : preload);
    gasnet_exit(0);
    return 1;
}
