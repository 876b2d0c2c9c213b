/* Facts about this machine, and limits of this process. */
#include "tools.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

int gasnett_cpu_count(void) {
    long const count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 0;
}

void gasnett_set_affinity(int rank) {
    int const count = gasnett_cpu_count();
    if (count <= 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)((rank % count + count) % count), &set);
    /* Forbidden in some containers; the thread then runs where it may. */
    (void)sched_setaffinity(0, sizeof set, &set);
}

uint64_t gasnett_getPhysMemSz(int failure_is_fatal) {
    long const pages = sysconf(_SC_PHYS_PAGES);
    long const page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0) return (uint64_t)pages * (uint64_t)page_bytes;
    if (failure_is_fatal) gasnett_fatalerror("the size of this machine's memory cannot be known");
    return 0;
}

static char host_name[256];

static void read_host_name(void) {
    if (gethostname(host_name, sizeof host_name - 1) != 0) gasnett_fatalerror("gethostname: %s", strerror(errno));
}

const char *gasnett_gethostname(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_host_name);
    return host_name;
}

int gasnett_isLittleEndian(void) {
    uint16_t const number = 1;
    unsigned char first;
    memcpy(&first, &number, 1);
    return first == 1;
}

int gasnett_maximize_rlimit(int resource, const char *name) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0) gasnett_fatalerror("getrlimit(%s): %s", name, strerror(errno));
    if (limit.rlim_cur == limit.rlim_max) return 1;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(resource, &limit) == 0;
}

void gasnett_maximize_rlimits(void) {
    (void)gasnett_maximize_rlimit(RLIMIT_CPU, "RLIMIT_CPU");
    (void)gasnett_maximize_rlimit(RLIMIT_FSIZE, "RLIMIT_FSIZE");
    (void)gasnett_maximize_rlimit(RLIMIT_DATA, "RLIMIT_DATA");
    (void)gasnett_maximize_rlimit(RLIMIT_STACK, "RLIMIT_STACK");
    (void)gasnett_maximize_rlimit(RLIMIT_RSS, "RLIMIT_RSS");
    (void)gasnett_maximize_rlimit(RLIMIT_AS, "RLIMIT_AS");
    (void)gasnett_maximize_rlimit(RLIMIT_NOFILE, "RLIMIT_NOFILE");
}

/* Nothing in this library's configuration costs performance. */
const char *gasnett_performance_warning_str(void) {
    return "";
}
