/* Time: the monotonic clock behind ticks, the wall clock, sleeping. */
#include "tools.h"

#include <sched.h>
#include <time.h>

#define NANOSECONDS 1000000000u

static uint64_t read_clock(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) gasnett_fatalerror("clock_gettime: %s", strerror(errno));
    return (uint64_t)now.tv_sec * NANOSECONDS + (uint64_t)now.tv_nsec;
}

gasnett_tick_t gasnett_ticks_now(void) {
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t gasnett_gettimeofday_us(void) {
    return read_clock(CLOCK_REALTIME) / 1000;
}

/* The smallest difference between two readings that differ. */
double gasnett_tick_granularityus(void) {
    uint64_t smallest = ~(uint64_t)0;
    gasnett_tick_t last = gasnett_ticks_now();
    for (int steps = 0; steps < 1000;) {
        gasnett_tick_t const now = gasnett_ticks_now();
        if (now == last) continue;
        if (now - last < smallest) smallest = now - last;
        last = now;
        steps++;
    }
    return (double)smallest / 1000.0;
}

/* The mean of many readings in a row; the least of some tries, since the thread may lose its processor. */
double gasnett_tick_overheadus(void) {
    enum { TRIES = 10, READINGS = 1000 };
    uint64_t least = ~(uint64_t)0;
    for (int i = 0; i < TRIES; i++) {
        gasnett_tick_t const start = gasnett_ticks_now();
        gasnett_tick_t end = start;
        for (int reading = 0; reading < READINGS; reading++) end = gasnett_ticks_now();
        if (end - start < least) least = end - start;
    }
    return (double)least / 1000.0 / READINGS;
}

int gasnett_nsleep(uint64_t nanoseconds) {
    struct timespec left = {
        .tv_sec = (time_t)(nanoseconds / NANOSECONDS),
        .tv_nsec = (long)(nanoseconds % NANOSECONDS),
    };
    while (nanosleep(&left, &left) != 0) {
        if (errno != EINTR) return errno;
    }
    return 0;
}

int gasnett_sched_yield(void) {
    return sched_yield();
}
