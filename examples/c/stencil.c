/* A stencil on a segment that is larger than the cache: each rank owns a strip of a ring of numbers in its tiered segment and
 * computes on it through plain pointers; the neighbours' edges come by gets. Arguments: MiB a rank (16), steps (2).
 *
 *   $CC stencil.c -o stencil $(pkg-config --cflags --libs vgasnet) && VGAS_CACHE_SIZE=4MiB ./stencil 2 16 3
 *
 * Each step makes every number the sum of itself and its neighbours (in arithmetic modulo 2^64). As the first numbers are
 * all 1, all are 3 to the power of the steps, which is checked. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <vgasnet.h>

static void barrier(void) {
    vgasnet_barrier_notify(0, VGASNET_BARRIERFLAG_ANONYMOUS);
    if (vgasnet_barrier_wait(0, VGASNET_BARRIERFLAG_ANONYMOUS) != VGASNET_OK) vgasnet_exit(1);
}

int main(int argc, char **argv) {
    vgasnet_segment_t segment = {0, VGASNET_TIERED, NULL};
    vgasnet_node_t left, right;
    uint64_t *own, expected = 1;
    uintptr_t count, i;
    int steps, step;
    if (vgasnet_init(&argc, &argv) != VGASNET_OK) return 1;
    segment.bytes = (uintptr_t)(argc > 1 ? atol(argv[1]) : 16) << 20;
    steps = argc > 2 ? atoi(argv[2]) : 2;
    if (vgasnet_attach(&segment, NULL, 0) != VGASNET_OK) vgasnet_exit(1);
    left = (vgasnet_mynode() + vgasnet_nodes() - 1) % vgasnet_nodes();
    right = (vgasnet_mynode() + 1) % vgasnet_nodes();
    own = (uint64_t *)vgasnet_segment_address(vgasnet_mynode());
    count = segment.bytes / sizeof *own;
    for (i = 0; i < count; i++) own[i] = 1;
    barrier();
    for (step = 0; step < steps; step++) {
        uint64_t before, after, *const there = (uint64_t *)vgasnet_segment_address(left);
        vgasnet_get(&before, left, there + count - 1, sizeof before);
        vgasnet_get(&after, right, vgasnet_segment_address(right), sizeof after);
        /* Nobody writes before all have read their neighbours' edges. */
        barrier();
        for (i = 0; i < count; i++) {
            const uint64_t old = own[i];
            own[i] += before + (i + 1 < count ? own[i + 1] : after);
            before = old;
        }
        expected *= 3;
        barrier();
    }
    for (i = 0; i < count; i++) {
        if (own[i] != expected) {
            fprintf(stderr, "rank %d: number %lu is %llu instead of %llu\n", (int)vgasnet_mynode(), (unsigned long)i,
                    (unsigned long long)own[i], (unsigned long long)expected);
            vgasnet_exit(1);
        }
    }
    if (vgasnet_mynode() == 0)
        printf("%d steps over %lu MiB: every number is %llu\n", steps,
               (unsigned long)(segment.bytes >> 20) * vgasnet_nodes(), (unsigned long long)expected);
    barrier();
    vgasnet_exit(0);
    return 0;
}
