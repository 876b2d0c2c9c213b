/* A histogram that is spread over all ranks: each bin belongs to one rank, and is counted up by active messages, whose
 * handlers are atomic by a handler-safe lock. Arguments: samples a rank (100000), bins (1000).
 *
 *   $CC histogram.c -o histogram $(pkg-config --cflags --libs gasnet-tcp-par) && ./histogram 4 100000 */
#include <gasnet.h>
#include <stdint.h>
#include <stdio.h>

#define COUNT 128
#define COUNTED 129
#define IN_FLIGHT_MAX 256

static uint64_t *bins;
static gasnet_hsl_t bins_lock = GASNET_HSL_INITIALIZER;
static volatile int in_flight;
static gasnet_hsl_t flight_lock = GASNET_HSL_INITIALIZER;

static void on_count(gasnet_token_t token, gasnet_handlerarg_t bin) {
    gasnet_hsl_lock(&bins_lock);
    bins[bin]++;
    gasnet_hsl_unlock(&bins_lock);
    gasnet_AMReplyShort0(token, COUNTED);
}

static void on_counted(gasnet_token_t token) {
    (void)token;
    gasnet_hsl_lock(&flight_lock);
    in_flight--;
    gasnet_hsl_unlock(&flight_lock);
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t handlers[] = {{COUNT, (void (*)())on_count}, {COUNTED, (void (*)())on_counted}};
    gasnet_seginfo_t *segments;
    gasnet_node_t me, nodes, node;
    uint64_t total = 0, state;
    long samples, count, i;
    uintptr_t bytes;
    if (gasnet_init(&argc, &argv) != GASNET_OK) return 1;
    me = gasnet_mynode();
    nodes = gasnet_nodes();
    samples = argc > 1 ? atol(argv[1]) : 100000;
    count = argc > 2 ? atol(argv[2]) : 1000;
    /* Bin b is the (b / nodes)-th of rank b % nodes. */
    bytes = ((uintptr_t)count / nodes + 1) * sizeof *bins;
    bytes = (bytes + GASNET_PAGESIZE - 1) / GASNET_PAGESIZE * GASNET_PAGESIZE;
    if (gasnet_attach(handlers, 2, bytes, 0) != GASNET_OK) gasnet_exit(1);
    segments = (gasnet_seginfo_t *)malloc(nodes * sizeof *segments);
    gasnet_getSegmentInfo(segments, (int)nodes);
    bins = (uint64_t *)segments[me].addr;
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    state = me + 1;
    for (i = 0; i < samples; i++) {
        long bin;
        state = state * 6364136223846793005u + 1442695040888963407u;
        bin = (long)((state >> 33) % (uint64_t)count);
        GASNET_BLOCKUNTIL(in_flight < IN_FLIGHT_MAX);
        gasnet_hsl_lock(&flight_lock);
        in_flight++;
        gasnet_hsl_unlock(&flight_lock);
        gasnet_AMRequestShort1((gasnet_node_t)(bin % nodes), COUNT, (gasnet_handlerarg_t)(bin / nodes));
    }
    GASNET_BLOCKUNTIL(in_flight == 0);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (me == 0) {
        for (node = 0; node < nodes; node++) {
            for (i = 0; i * nodes + node < count; i++)
                total += gasnet_get_val(node, (uint64_t *)segments[node].addr + i, sizeof(uint64_t));
        }
        printf("%llu samples in %ld bins, expected %ld\n", (unsigned long long)total, count, samples * (long)nodes);
        if (total != (uint64_t)samples * nodes) gasnet_exit(1);
    }
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
    return 0;
}
