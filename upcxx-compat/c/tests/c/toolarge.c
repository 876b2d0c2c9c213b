/* A client that attaches more than it may have, and leaves with what that returns. */
#include "check.h"

int main(int argc, char **argv) {
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(NULL, 0, gasnet_getMaxLocalSegmentSize() + GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    gasnet_exit(0);
    return 1;
}
