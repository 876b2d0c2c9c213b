/* A client that runs a job of another client while its own goes on. Arguments: the command, and what it is to write. Without
 * arguments, it tells its name. */
#include "check.h"

/* As clients say how large their segments become at most. */
uint64_t gasnet_max_segsize = 3 << 20;

int main(int argc, char **argv) {
    uintptr_t most;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    most = gasnet_getMaxLocalSegmentSize();
    CHECK(getenv("GASNET_MAX_SEGSIZE") != NULL || most == gasnet_max_segsize);
    CHECK(gasnet_attach(NULL, 0, most, 0) == GASNET_OK);
    if (argc == 1 && gasnet_mynode() == 0) printf("%s of %u with %" PRIuPTR "\n", argv[0], gasnet_nodes(), most);
    if (argc == 3 && gasnet_mynode() == gasnet_nodes() - 1) {
        char told[200] = "";
        FILE *const inner = popen(argv[1], "r");
        CHECK(inner != NULL && fread(told, 1, sizeof told - 1, inner) > 0);
        CHECK(pclose(inner) == 0 && strcmp(told, argv[2]) == 0);
    }
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
    return 1;
}
