/* What messages, barriers and transfers cost through the headers between rank 0 and the last rank: the C side of
 * `vgas bench pair`. Medians of samples; pin the ranks to cores of their own for the first figures of RESULTS.md.
 *
 *   cc -O2 $(pkg-config --cflags gasnet-tcp-par) messages.c -o messages $(pkg-config --libs gasnet-tcp-par)
 *   ./messages 2                        (ranks share memory)
 *   VGASNET_NODES=2 ./messages 2        (tcp) */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <gasnet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SAMPLES = 21, REQUEST = 200, ANSWER, REQUEST_MEDIUM, ANSWER_MEDIUM, NOTE, MEDIUM = 4096, LARGE = 1 << 20 };

static volatile unsigned answers, notes;
static gasnet_node_t other;
static char *there, *buffer;

static void on_request(gasnet_token_t token) { gasnet_AMReplyShort0(token, ANSWER); }
static void on_answer(gasnet_token_t token) { (void)token, answers++; }
static void on_request_medium(gasnet_token_t token, void *bytes, size_t count) {
    gasnet_AMReplyMedium0(token, ANSWER_MEDIUM, bytes, count);
}
static void on_answer_medium(gasnet_token_t token, void *bytes, size_t count) { (void)token, (void)bytes, (void)count, answers++; }
static void on_note(gasnet_token_t token) { (void)token, notes++; }

static void round_trip(void) {
    const unsigned before = answers;
    gasnet_AMRequestShort0(other, REQUEST);
    while (answers == before) gasnet_AMPoll();
}
static void round_trip_medium(void) {
    const unsigned before = answers;
    gasnet_AMRequestMedium0(other, REQUEST_MEDIUM, buffer, MEDIUM);
    while (answers == before) gasnet_AMPoll();
}
static void note(void) { gasnet_AMRequestShort0(other, NOTE); }
static void put_word(void) { gasnet_put(other, there, buffer, 8); }
static void get_word(void) { gasnet_get(buffer, other, there, 8); }
static void put_large(void) { gasnet_put_bulk(other, there, buffer, LARGE); }
static void get_large(void) { gasnet_get_bulk(buffer, other, there, LARGE); }
static void barrier(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}
static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Prints the median of the nanoseconds that an operation takes. The other rank looks for messages meanwhile, unless it takes
 * part (`both`). `settle` ends what was only begun, outside of the time. */
static void figure(const char *name, void (*operation)(void), int times, int both, void (*settle)(void)) {
    double samples[SAMPLES];
    int sample, n;
    if (gasnet_mynode() == 0 || both) {
        for (sample = 0; sample < SAMPLES; sample++) {
            const double begun = now();
            for (n = 0; n < times; n++) operation();
            samples[sample] = (now() - begun) / times;
            if (settle != NULL) settle();
        }
        qsort(samples, SAMPLES, sizeof *samples, compare);
        if (gasnet_mynode() == 0)
            printf("%-28s %10.1f ns   (%.1f to %.1f)\n", name, samples[SAMPLES / 2], samples[0], samples[SAMPLES - 1]);
    }
    barrier();
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t handlers[] = {{REQUEST, (void (*)())on_request}, {ANSWER, (void (*)())on_answer},
        {REQUEST_MEDIUM, (void (*)())on_request_medium}, {ANSWER_MEDIUM, (void (*)())on_answer_medium},
        {NOTE, (void (*)())on_note}};
    gasnet_seginfo_t *segments;
    cpu_set_t cores;
    gasnet_init(&argc, &argv);
    gasnet_attach(handlers, sizeof handlers / sizeof *handlers, 2 * LARGE, 0);
    CPU_ZERO(&cores);
    CPU_SET(gasnet_mynode(), &cores);
    sched_setaffinity(0, sizeof cores, &cores); /* Without so many cores, as it is. */
    segments = calloc(gasnet_nodes(), sizeof *segments);
    buffer = calloc(1, LARGE);
    if (segments == NULL || buffer == NULL) gasnet_exit(1);
    gasnet_getSegmentInfo(segments, (int)gasnet_nodes());
    other = gasnet_nodes() - 1;
    there = segments[other].addr;
    barrier();
    figure("AM short round trip", round_trip, 2000, 0, NULL);
    figure("AM medium 4 KiB round trip", round_trip_medium, 2000, 0, NULL);
    /* The message that settles comes after all notes. */
    figure("AM flood, each", note, 2000, 0, round_trip);
    figure("put 8 B", put_word, 2000, 0, NULL);
    figure("get 8 B", get_word, 2000, 0, NULL);
    figure("put 1 MiB", put_large, 50, 0, NULL);
    figure("get 1 MiB", get_large, 50, 0, NULL);
    figure("barrier", barrier, 2000, 1, NULL);
    gasnet_exit(0);
    return 0;
}
