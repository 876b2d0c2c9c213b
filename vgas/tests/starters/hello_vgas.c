/* What a start costs with vgas: join, attach, a barrier, leave. */
#include <gasnet.h>

int main(int argc, char **argv) {
    if (gasnet_init(&argc, &argv) != GASNET_OK || gasnet_attach(NULL, 0, 1 << 16, 0) != GASNET_OK) return 1;
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) != GASNET_OK) return 1;
    gasnet_exit(0);
}
