/* What 8 bytes cost through the headers, against a plain array access behind a call: the C side of `vgas bench hit`, measured in
 * the same way. Tiered, pages are cached and their home is the last rank's node; pinned, the segment is shared memory.
 *
 *   cc -O2 $(pkg-config --cflags gasnet-tcp-par) hit.c -o hit $(pkg-config --libs gasnet-tcp-par)
 *   VGAS_SEGMENT_KIND=tiered VGASNET_NODES=2 ./hit 2        (tiered)
 *   ./hit 2                                                 (pinned) */
#include <gasnet.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SAMPLES = 51, TIMES = 100000, SEGMENT_BYTES = 8 << 20, WORDS = (64 << 10) / 8, WAYS = 4 };

static gasnet_seginfo_t *segments;
static gasnet_node_t home;
static uint64_t *array;

/* A step that is odd visits all words in a scattered order. */
static size_t place(size_t n) { return n * 1237 % WORDS; }

static __attribute__((__noinline__)) uint64_t array_read(const uint64_t *from, size_t index) { return from[index]; }
static __attribute__((__noinline__)) void array_write(uint64_t *to, size_t index, uint64_t value) { to[index] = value; }
static __attribute__((__noinline__)) uint64_t get(uint64_t *from) {
    uint64_t value;
    gasnet_get(&value, home, from, sizeof value);
    return value;
}
static __attribute__((__noinline__)) void put(uint64_t *to, uint64_t value) { gasnet_put(home, to, &value, sizeof value); }

/* Nanoseconds of processor time of one access in a way. */
static double sample(int way) {
    uint64_t *const there = (uint64_t *)segments[home].addr;
    struct timespec begun, ended;
    uint64_t sum = 0;
    size_t n;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    switch (way) {
    case 0: for (n = 0; n < TIMES; n++) sum += array_read(array, place(n)); break;
    case 1: for (n = 0; n < TIMES; n++) sum += get(there + place(n)); break;
    case 2: for (n = 0; n < TIMES; n++) array_write(array, place(n), 1); sum = TIMES; break;
    default: for (n = 0; n < TIMES; n++) put(there + place(n), 1); sum = TIMES;
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    if (sum != TIMES) gasnet_exit(1);
    return ((double)(ended.tv_sec - begun.tv_sec) * 1e9 + (double)(ended.tv_nsec - begun.tv_nsec)) / TIMES;
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    static const char *const names[WAYS] = {"array read, not inlined", "get", "array write, not inlined", "put"};
    static double samples[WAYS][SAMPLES];
    int i, way;
    size_t n;
    if (gasnet_init(&argc, &argv) != GASNET_OK || gasnet_attach(NULL, 0, SEGMENT_BYTES, 0) != GASNET_OK) return 1;
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    array = (uint64_t *)malloc(SEGMENT_BYTES);
    gasnet_getSegmentInfo(segments, (int)gasnet_nodes());
    home = gasnet_nodes() - 1;
    if (gasnet_mynode() == 0) {
        for (n = 0; n < SEGMENT_BYTES / 8; n++) array[n] = 1;
        gasnet_put_bulk(home, segments[home].addr, array, SEGMENT_BYTES);
        /* In turn, so that all of them see the same machine. */
        for (i = 0; i < SAMPLES; i++) {
            for (way = 0; way < WAYS; way++) samples[way][i] = sample(way);
        }
        for (way = 0; way < WAYS; way++) {
            qsort(samples[way], SAMPLES, sizeof(double), compare);
            printf("%-26s %6.2f ns (%.2f to %.2f)\n", names[way], samples[way][SAMPLES / 2], samples[way][0],
                   samples[way][SAMPLES - 1]);
        }
    }
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
    return 0;
}
