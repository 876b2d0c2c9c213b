/* The GASNet tools call by call, without gasnet.h. Goal: every name does what GASNet documents for it, in a program
 * with threads (GASNETT_THREAD_SAFE) and in one without. Built as C99, C11 and C++17. Exits with 0 if all checks hold.
 */
#include <gasnet_tools.h>

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_INCLUDED_GASNET_H)
    #error "the tools must not need gasnet.h"
#endif
#if !(0x1 << GASNETT_PAGESHIFT == GASNETT_PAGESIZE) || (GASNETT_CACHE_LINE_BYTES & (GASNETT_CACHE_LINE_BYTES - 1))
    #error "page size and shift, and the cache line, are literals that fit"
#endif
#if PLATFORM_ARCH_32 || !PLATFORM_ARCH_64 || !PLATFORM_OS_LINUX
    #error "the platform is named"
#endif

static int errors = 0;
#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            errors++; \
        } \
    } while (0)

/* ---- Annotations: that they are accepted where GASNet's clients write them ---- */

GASNETT_BEGIN_EXTERNC
GASNETT_IDENT(tools_test_ident, "$ToolsTest: tools $");
GASNETT_INLINE(annotated_inline) int annotated_inline(int *GASNETT_RESTRICT number) { return *number; }
GASNETT_PLEASE_INLINE(annotated_please) int annotated_please(void) { return 2; }
GASNETT_ALWAYS_INLINE(annotated_always) int annotated_always(void) { return 3; }
int annotated_never(int number);
GASNETT_NEVER_INLINE(annotated_never, int annotated_never(int number)) { return number; }
int annotated_pure(int number) GASNETT_PURE;
GASNETT_PUREP(annotated_pure)
int annotated_pure(int number) { return number + 1; }
int annotated_const(int number) GASNETT_CONST GASNETT_WARN_UNUSED_RESULT;
int annotated_const(int number) { return number + 2; }
void *annotated_malloc(void) GASNETT_MALLOC;
void *annotated_malloc(void) { return malloc(1); }
void annotated_noreturn(void) GASNETT_NORETURN;
GASNETT_NORETURNP(annotated_noreturn)
void annotated_noreturn(void) { gasnett_fatalerror("not called"); }
void annotated_hot(void) GASNETT_HOT;
void annotated_hot(void) {}
void annotated_cold(void) GASNETT_COLD;
void annotated_cold(void) {}
static int annotated_unused(void) GASNETT_UNUSED;
static int annotated_unused(void) { return 0; }
GASNETT_FORMAT_PRINTF(annotated_printf, 2, 3, static int annotated_printf(char *to, const char *format, ...));
static int annotated_printf(char *to, const char *format, ...) {
    strcpy(to, format);
    return 1;
}
GASNETT_FORMAT_PRINTF_FUNCPTR(annotated_pointer, 2, 3, static int (*annotated_pointer)(char *to, const char *format, ...)) =
    annotated_printf;
GASNETT_END_EXTERNC

static void test_annotations(void) {
    int one = 1;
    char text[16];
    void *memory = annotated_malloc();
    CHECK(annotated_inline(&one) == 1 && annotated_please() == 2 && annotated_always() == 3 && annotated_never(4) == 4);
    CHECK(annotated_pure(4) == 5 && annotated_const(4) == 6 && memory != NULL);
    CHECK(annotated_pointer(text, "%d", 1) == 1);
    CHECK(strstr(GASNETT_CURRENT_FUNCTION, "test_annotations") != NULL);
    CHECK(gasnett_constant_p(7));
    if_pf (one == 2) errors++;
    if_pt (one == 1) one = 2;
    CHECK(one == 2 && PREDICT_TRUE(one) && !PREDICT_FALSE(one == 1));
    CHECK(strcmp(_STRINGIFY(PLATFORM_COMPILER_FAMILYNAME), "GNU") == 0 ||
                strcmp(_STRINGIFY(PLATFORM_COMPILER_FAMILYNAME), "CLANG") == 0);
    CHECK(strlen(PLATFORM_COMPILER_VERSION_STR) > 0 && strlen(GASNETT_SYSTEM_TUPLE) > 0);
    CHECK(PLATFORM_COMPILER_VERSION_GE(4, 0, 0) && PLATFORM_COMPILER_VERSION_LT(99, 0, 0));
    free(memory);
    annotated_hot();
    annotated_cold();
}

static void test_versions(void) {
    CHECK(GASNETT_SPEC_VERSION_MAJOR == 1 && GASNETT_SPEC_VERSION_MINOR >= 0);
    CHECK(GASNETT_RELEASE_VERSION_MAJOR > 0 && GASNETT_RELEASE_VERSION_MINOR >= 0 && GASNETT_RELEASE_VERSION_PATCH >= 0);
    CHECK(strstr(GASNETT_CONFIG_STRING, "PTR=64bit") != NULL);
#if GASNETT_THREAD_SAFE
    CHECK(strstr(GASNETT_CONFIG_STRING, ",PAR,") != NULL);
#else
    CHECK(strstr(GASNETT_CONFIG_STRING, ",SEQ,") != NULL);
#endif
}

/* ---- Time ---- */

static void test_time(void) {
    double const granularity = gasnett_tick_granularityus();
    double const overhead = gasnett_tick_overheadus();
    CHECK(granularity > 0 && overhead > 0 && granularity + 0.1 >= 0.5 * overhead);
    CHECK(gasnett_timer_granularityus() > 0 && gasnett_timer_overheadus() > 0);
    CHECK(GASNETT_TICK_MIN < GASNETT_TICK_MAX);
    gasnett_tick_t const start = gasnett_ticks_now();
    uint64_t const wall_start = gasnett_gettimeofday_us();
    CHECK(start > GASNETT_TICK_MIN && start < GASNETT_TICK_MAX);
    CHECK(gasnett_nsleep(30000000) == 0);
    gasnett_tick_t last = gasnett_ticks_now();
    while (gasnett_ticks_to_us(last - start) < 60000) {
        gasnett_tick_t const now = gasnett_ticks_now();
        CHECK(now >= last);
        last = now;
    }
    int64_t const by_ticks = (int64_t)gasnett_ticks_to_us(last - start);
    int64_t const by_wall = (int64_t)(gasnett_gettimeofday_us() - wall_start);
    CHECK(by_ticks - by_wall < 10000 && by_wall - by_ticks < 10000);
    CHECK(gasnett_ticks_to_ns(last - start) / 1000 == gasnett_ticks_to_us(last - start));
    (void)gasnett_sched_yield();
    gasnett_spinloop_hint();
}

/* ---- Atomics, by one thread ---- */

#define ALL_FLAGS \
    { GASNETT_ATOMIC_NONE, GASNETT_ATOMIC_RMB_PRE, GASNETT_ATOMIC_WMB_PRE, GASNETT_ATOMIC_MB_PRE, GASNETT_ATOMIC_RMB_POST, \
        GASNETT_ATOMIC_WMB_POST, GASNETT_ATOMIC_MB_POST, GASNETT_ATOMIC_RMB_POST_IF_TRUE, \
        GASNETT_ATOMIC_RMB_POST_IF_FALSE, GASNETT_ATOMIC_REL, GASNETT_ATOMIC_ACQ, GASNETT_ATOMIC_ACQ_IF_TRUE, \
        GASNETT_ATOMIC_ACQ_IF_FALSE, GASNETT_ATOMIC_MB_PRE | GASNETT_ATOMIC_MB_POST }

#define TEST_FAMILY(name, value) \
    static void test_##name(void) { \
        static name##_t initialised = name##_init(10); \
        static const int flags[] = ALL_FLAGS; \
        size_t i; \
        value const all = (value)~(value)0; \
        CHECK(name##_read(&initialised, 0) == 10); \
        for (i = 0; i < sizeof flags / sizeof *flags; i++) { \
            name##_t atomic = name##_init(-1); \
            int const flag = flags[i]; \
            CHECK(name##_read(&atomic, flag) == all); \
            name##_increment(&atomic, flag); \
            CHECK(name##_read(&atomic, flag) == 0); \
            name##_decrement(&atomic, flag); \
            CHECK(name##_read(&atomic, flag) == all); \
            name##_set(&atomic, 7, flag); \
            CHECK(name##_add(&atomic, 5, flag) == 12 && name##_subtract(&atomic, 10, flag) == 2); \
            CHECK(!name##_decrement_and_test(&atomic, flag) && name##_decrement_and_test(&atomic, flag)); \
            CHECK(!name##_compare_and_swap(&atomic, 1, 9, flag) && name##_read(&atomic, flag) == 0); \
            CHECK(name##_compare_and_swap(&atomic, 0, 9, flag) && name##_read(&atomic, flag) == 9); \
            CHECK(name##_swap(&atomic, 11, flag) == 9 && name##_read(&atomic, flag) == 11); \
        } \
        for (i = 0; i < 8 * sizeof(value); i++) { \
            name##_t atomic = name##_init(0); \
            value const bit = (value)((value)1 << i); \
            name##_set(&atomic, bit, 0); \
            CHECK(name##_read(&atomic, 0) == bit); \
            CHECK(!name##_compare_and_swap(&atomic, 0, 1, 0) && name##_compare_and_swap(&atomic, bit, 0, 0)); \
        } \
    }
TEST_FAMILY(gasnett_atomic, gasnett_atomic_val_t)
TEST_FAMILY(gasnett_atomic32, uint32_t)
TEST_FAMILY(gasnett_atomic64, uint64_t)
TEST_FAMILY(gasnett_strongatomic, gasnett_atomic_val_t)
TEST_FAMILY(gasnett_strongatomic32, uint32_t)
TEST_FAMILY(gasnett_strongatomic64, uint64_t)

static void test_atomics(void) {
    gasnett_atomic_t atomic = gasnett_atomic_init(0);
    struct { char before; gasnett_atomic64_t atomic; } placed;
    test_gasnett_atomic();
    test_gasnett_atomic32();
    test_gasnett_atomic64();
    test_gasnett_strongatomic();
    test_gasnett_strongatomic32();
    test_gasnett_strongatomic64();
    CHECK(sizeof(gasnett_atomic32_t) == 4 && sizeof(gasnett_atomic64_t) == 8 && sizeof placed == 16);
    gasnett_atomic_set(&atomic, GASNETT_ATOMIC_MAX, 0);
    gasnett_atomic_increment(&atomic, 0);
    CHECK(gasnett_atomic_read(&atomic, 0) == 0);
    gasnett_atomic_decrement(&atomic, 0);
    CHECK(gasnett_atomic_signed(gasnett_atomic_read(&atomic, 0)) == -1);
    gasnett_atomic_set(&atomic, (gasnett_atomic_val_t)GASNETT_ATOMIC_SIGNED_MAX, 0);
    gasnett_atomic_increment(&atomic, 0);
    CHECK(gasnett_atomic_signed(gasnett_atomic_read(&atomic, 0)) == GASNETT_ATOMIC_SIGNED_MIN);
#if !GASNETT_HAVE_ATOMIC_CAS || !GASNETT_HAVE_ATOMIC_ADD_SUB || !GASNETT_HAVE_STRONGATOMIC_CAS
    #error "compare-and-swap, add and subtract are there"
#endif
    gasnett_local_mb();
    gasnett_local_wmb();
    gasnett_local_rmb();
    gasnett_weak_mb();
    gasnett_weak_wmb();
    gasnett_weak_rmb();
    gasnett_compiler_fence();
}

/* ---- Locks and thread keys ---- */

GASNETT_THREADKEY_DECLARE(key_one);
GASNETT_THREADKEY_DEFINE(key_one);
GASNETT_THREADKEY_DEFINE(key_two);

static gasnett_mutex_t static_mutex = GASNETT_MUTEX_INITIALIZER;
static gasnett_rwlock_t static_rwlock = GASNETT_RWLOCK_INITIALIZER;
static gasnett_cond_t static_cond GASNETT_UNUSED = GASNETT_COND_INITIALIZER;
static gasnett_spinlock_t spinlock = GASNETT_SPINLOCK_INITIALIZER;

static void test_keys(void *here) {
    CHECK(gasnett_threadkey_get(key_one) == NULL);
    gasnett_threadkey_set(key_one, here);
    CHECK(gasnett_threadkey_get(key_one) == here);
    gasnett_threadkey_init(key_two);
    CHECK(gasnett_threadkey_get_noinit(key_two) == NULL);
    gasnett_threadkey_set_noinit(key_two, here);
    gasnett_threadkey_init(key_two);
    CHECK(gasnett_threadkey_get_noinit(key_two) == here);
}

static void test_locks(void) {
    gasnett_mutex_t mutex;
    gasnett_cond_t cond;
    gasnett_rwlock_t rwlock;
    gasnett_mutex_init(&mutex);
    gasnett_mutex_lock(&mutex);
    gasnett_mutex_assertlocked(&mutex);
#if GASNETT_THREAD_SAFE
    CHECK(gasnett_mutex_trylock(&mutex) == EBUSY);
#endif
    gasnett_mutex_unlock(&mutex);
    gasnett_mutex_assertunlocked(&mutex);
    CHECK(gasnett_mutex_trylock(&mutex) == 0);
    gasnett_mutex_unlock(&mutex);
    gasnett_mutex_destroy(&mutex);
    CHECK(gasnett_mutex_destroy_ignoreerr(&static_mutex) == 0);
    gasnett_cond_init(&cond);
    gasnett_cond_signal(&cond);
    gasnett_cond_broadcast(&cond);
    gasnett_cond_destroy(&cond);
    gasnett_rwlock_init(&rwlock);
    gasnett_rwlock_rdlock(&rwlock);
    gasnett_rwlock_assertrdlocked(&rwlock);
    CHECK(gasnett_rwlock_tryrdlock(&rwlock) == 0);
#if GASNETT_THREAD_SAFE
    CHECK(gasnett_rwlock_trywrlock(&rwlock) == EBUSY);
#endif
    gasnett_rwlock_unlock(&rwlock);
    gasnett_rwlock_unlock(&rwlock);
    gasnett_rwlock_wrlock(&rwlock);
    gasnett_rwlock_assertwrlocked(&rwlock);
    gasnett_rwlock_assertlocked(&rwlock);
#if GASNETT_THREAD_SAFE
    CHECK(gasnett_rwlock_tryrdlock(&rwlock) == EBUSY);
#endif
    gasnett_rwlock_unlock(&rwlock);
    gasnett_rwlock_assertunlocked(&rwlock);
    gasnett_rwlock_destroy(&rwlock);
    CHECK(gasnett_rwlock_trywrlock(&static_rwlock) == 0);
    gasnett_rwlock_unlock(&static_rwlock);
    gasnett_spinlock_init(&spinlock);
    gasnett_spinlock_lock(&spinlock);
    CHECK(gasnett_spinlock_trylock(&spinlock) == EBUSY);
    gasnett_spinlock_unlock(&spinlock);
    CHECK(gasnett_spinlock_trylock(&spinlock) == 0);
    gasnett_spinlock_unlock(&spinlock);
    gasnett_spinlock_destroy(&spinlock);
}

#if GASNETT_THREAD_SAFE
/* ---- Atomics and locks by many threads ---- */

enum { THREADS = 4, ROUNDS = 20000 };
static gasnett_atomic_t counter = gasnett_atomic_init(0);
static gasnett_atomic64_t wins = gasnett_atomic64_init(0);
static gasnett_atomic32_t swapped = gasnett_atomic32_init(0);
static uint64_t plain, spun, written;
static int volatile published[THREADS], announced[THREADS];
static gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER;
static gasnett_cond_t all_here = GASNETT_COND_INITIALIZER;
static int arrived = 0;

static void meet(void) {
    gasnett_mutex_lock(&mutex);
    int const target = (arrived / THREADS + 1) * THREADS;
    if (++arrived == target) gasnett_cond_broadcast(&all_here);
    while (arrived < target) gasnett_cond_wait(&all_here, &mutex);
    gasnett_mutex_unlock(&mutex);
}

GASNETT_EXTERNC void *work(void *argument) {
    int const me = (int)(intptr_t)argument;
    int const partner = (me + 1) % THREADS;
    test_keys((void *)(intptr_t)(me + 1));
    meet();
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t seen;
        gasnett_atomic_increment(&counter, 0);
        (void)gasnett_atomic64_add(&wins, ((uint64_t)1 << 32) + 1, 0);
        do {
            seen = gasnett_atomic32_read(&swapped, 0);
        } while (!gasnett_atomic32_compare_and_swap(&swapped, seen, seen + 3, 0));
        gasnett_mutex_lock(&mutex);
        plain++;
        gasnett_mutex_unlock(&mutex);
        gasnett_spinlock_lock(&spinlock);
        spun++;
        gasnett_spinlock_unlock(&spinlock);
        gasnett_rwlock_wrlock(&static_rwlock);
        written++;
        gasnett_rwlock_unlock(&static_rwlock);
        published[me] = i;
        gasnett_local_wmb();
        announced[me] = i;
        {
            int const announcement = announced[partner];
            gasnett_local_rmb();
            if (published[partner] < announcement) gasnett_fatalerror("a write barrier did not order two stores");
        }
    }
    meet();
    return NULL;
}

static void test_threads(void) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(gasnett_atomic_read(&counter, 0) == (uint32_t)THREADS * ROUNDS);
    CHECK(gasnett_atomic64_read(&wins, 0) == (((uint64_t)1 << 32) + 1) * THREADS * ROUNDS);
    CHECK(gasnett_atomic32_read(&swapped, 0) == 3u * THREADS * ROUNDS);
    CHECK(plain == (uint64_t)THREADS * ROUNDS && spun == plain && written == plain);
}
#endif

/* ---- Numbers and environment ---- */

static void test_numbers(void) {
    char text[50];
    for (int i = 0; i < 62; i++) {
        int64_t const number = (int64_t)1 << i;
        CHECK(gasnett_parse_int(gasnett_format_number(number, text, sizeof text, 1), 1) == number);
        CHECK(gasnett_parse_int(gasnett_format_number(number, text, sizeof text, 0), 0) == number);
    }
    CHECK(gasnett_parse_int(gasnett_format_number(0, text, sizeof text, 1), 1) == 0);
    CHECK(strcmp(gasnett_format_number(3 << 20, text, sizeof text, 1), "3 MB") == 0);
    CHECK(strcmp(gasnett_format_number(-5, text, sizeof text, 0), "-5") == 0);
    CHECK(gasnett_parse_int(" 64 KB ", 1) == 65536 && gasnett_parse_int("64k", 1) == 65536);
    CHECK(gasnett_parse_int("64", 1024) == 65536 && gasnett_parse_int("64B", 1024) == 64);
    CHECK(gasnett_parse_int("1.5GB", 1) == (int64_t)3 << 29 && gasnett_parse_int(".5", 1024) == 512);
    CHECK(gasnett_parse_int("2MiB", 1) == 2 << 20 && gasnett_parse_int("0x10", 0) == 16 && gasnett_parse_int("-7", 0) == -7);
    CHECK(gasnett_parse_int("9007199254740993", 1) == INT64_C(9007199254740993));
}

static void test_environment(void) {
    gasnett_unsetenv("VGAS_TOOLS_TEST");
    CHECK(gasnett_getenv("VGAS_TOOLS_TEST") == NULL);
    CHECK(strcmp(gasnett_getenv_withdefault("VGAS_TOOLS_TEST", "word"), "word") == 0);
    CHECK(gasnett_getenv_withdefault("VGAS_TOOLS_TEST", NULL) == NULL);
    CHECK(gasnett_getenv_yesno_withdefault("VGAS_TOOLS_TEST", 1) && !gasnett_getenv_yesno_withdefault("VGAS_TOOLS_TEST", 0));
    CHECK(gasnett_getenv_int_withdefault("VGAS_TOOLS_TEST", 5, 0) == 5);
    CHECK(gasnett_getenv_dbl_withdefault("VGAS_TOOLS_TEST", 2.5) == 2.5);
    gasnett_setenv("VGAS_TOOLS_TEST", "Yes");
    CHECK(strcmp(gasnett_getenv_withdefault("VGAS_TOOLS_TEST", "word"), "Yes") == 0);
    CHECK(gasnett_getenv_yesno_withdefault("VGAS_TOOLS_TEST", 0) == 1);
    gasnett_setenv("VGAS_TOOLS_TEST", "0");
    CHECK(gasnett_getenv_yesno_withdefault("VGAS_TOOLS_TEST", 1) == 0);
    gasnett_setenv("VGAS_TOOLS_TEST", "2MB");
    CHECK(gasnett_getenv_int_withdefault("VGAS_TOOLS_TEST", 0, 1) == 2 << 20);
    gasnett_setenv("VGAS_TOOLS_TEST", "0.125");
    CHECK(gasnett_getenv_dbl_withdefault("VGAS_TOOLS_TEST", 0) == 0.125);
    gasnett_unsetenv("GASNET_VERBOSEENV");
    CHECK(!gasnett_verboseenv());
    gasnett_setenv("GASNET_VERBOSEENV", "1");
    CHECK(gasnett_verboseenv());
    gasnett_setenv("GASNET_VERBOSEENV", "0");
    CHECK(!gasnett_verboseenv());
    gasnett_envstr_display("KEY", "value", 0);
    gasnett_envint_display("KEY", 1, 1, 1);
    gasnett_envdbl_display("KEY", 1.5, 1);
}

/* ---- Memory and machine ---- */

static void test_memory(void) {
    char source[64], guarded[64];
    for (size_t i = 0; i < sizeof source; i++) source[i] = (char)(i % 3 == 0 ? 0 : i);
    for (size_t from = 0; from < 8; from++) {
        for (size_t to = 8; to < 16; to++) {
            for (size_t bytes = 0; bytes < 40; bytes++) {
                size_t zeros = 0;
                memset(guarded, 1, sizeof guarded);
                for (size_t i = 0; i < bytes; i++) zeros += source[from + i] == 0;
                CHECK(gasnett_count0s_copy(guarded + to, source + from, bytes) == zeros);
                CHECK(memcmp(guarded + to, source + from, bytes) == 0 && gasnett_count0s(guarded + to, bytes) == zeros);
                CHECK(guarded[to - 1] == 1 && guarded[to + bytes] == 1);
            }
        }
    }
    for (int i = 0; i < 64; i++) {
        CHECK(gasnett_count0s_uint64_t((uint64_t)1 << i) == 7 && gasnett_count0s_uintptr_t((uintptr_t)1 << i) == 7);
        CHECK(gasnett_count0s_uint32_t((uint32_t)1 << (i % 32)) == 3);
    }
    CHECK(gasnett_count0s_uint64_t(0) == 8 && gasnett_count0s_uint32_t(0) == 4 && gasnett_count0s_uint64_t(~(uint64_t)0) == 0);
    uint64_t const sum = gasnett_checksum(source, sizeof source);
    CHECK(sum == gasnett_checksum(source, sizeof source) && sum != gasnett_checksum(source, sizeof source - 1));
    for (size_t i = 0; i < sizeof source; i++) {
        source[i] ^= 1;
        CHECK(gasnett_checksum(source, sizeof source) != sum);
        source[i] ^= 1;
    }
    for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
        void *memory = gasnett_malloc_aligned(alignment, 100);
        CHECK((uintptr_t)memory % alignment == 0);
        memset(memory, 1, 100);
        gasnett_free_aligned(memory);
    }
    char *pages = (char *)gasnett_mmap(2 * GASNETT_PAGESIZE);
    CHECK((uintptr_t)pages % GASNETT_PAGESIZE == 0 && pages[0] == 0 && pages[2 * GASNETT_PAGESIZE - 1] == 0);
    GASNETT_FAST_ALIGNED_MEMCPY(pages, source, sizeof source);
    CHECK(memcmp(pages, source, sizeof source) == 0);
}

static int volatile signals_seen = 0;
GASNETT_EXTERNC void on_signal(int number) {
    (void)number;
    signals_seen++;
}

static int backtraces = 0;
GASNETT_EXTERNC int write_backtrace(int descriptor) {
    (void)descriptor;
    backtraces++;
    return 0;
}
GASNETT_BEGIN_EXTERNC
gasnett_backtrace_type_t gasnett_backtrace_user = {"USER", &write_backtrace, 1};
GASNETT_END_EXTERNC

static void test_machine(const char *program) {
    CHECK(gasnett_cpu_count() >= 1);
    CHECK(gasnett_getPhysMemSz(1) > 1 << 20);
    CHECK(strlen(gasnett_gethostname()) > 0);
    CHECK(gasnett_isLittleEndian() == 1);
    gasnett_maximize_rlimits();
    gasnett_set_affinity(0);
    gasnett_flush_streams();
    CHECK(strcmp(gasnett_performance_warning_str(), "") == 0);
    CHECK(gasnett_reghandler(SIGUSR1, on_signal) == SIG_DFL);
    raise(SIGUSR1);
    CHECK(signals_seen == 1 && gasnett_reghandler(SIGUSR1, SIG_IGN) == on_signal);
    CHECK(strcmp(gasnett_signame_fromval(SIGSEGV), "SIGSEGV") == 0 && gasnett_signame_fromval(12345) == NULL);
    char *here = gasnett_current_loc;
    CHECK(strstr(here, "tools.c") != NULL && strstr(here, "test_machine") != NULL);
    free(here);
    gasnett_unsetenv("GASNET_BACKTRACE");
    gasnett_setenv("GASNET_BACKTRACE_TYPE", "USER");
    gasnett_backtrace_init(program);
    CHECK(gasnett_print_backtrace_ifenabled(1) != 0 && backtraces == 0);
    CHECK(gasnett_print_backtrace(1) == 0 && backtraces == 1);
    gasnett_setenv("GASNET_BACKTRACE", "yes");
    CHECK(gasnett_print_backtrace_ifenabled(1) == 0 && backtraces == 2);
    gasnett_unsetenv("GASNET_FREEZE_ON_ERROR");
    gasnett_freezeForDebuggerErr();
    CHECK(gasnet_frozen == 0);
}

static void test_traces(void) {
    const char *file = "file";
    unsigned int line = 1;
    GASNETT_TRACE_GETSOURCELINE(&file, &line);
    GASNETT_TRACE_SETSOURCELINE(file, line);
    GASNETT_TRACE_FREEZESOURCELINE();
    GASNETT_TRACE_UNFREEZESOURCELINE();
    if (GASNETT_TRACE_ENABLED) GASNETT_TRACE_PRINTF("%s", file);
    GASNETT_TRACE_PRINTF_FORCE("%s %u", file, line);
    GASNETT_TRACE_SETMASK(GASNETT_TRACE_GETMASK());
    GASNETT_STATS_SETMASK(GASNETT_STATS_GETMASK());
    GASNETT_TRACE_SET_TRACELOCAL(GASNETT_TRACE_GET_TRACELOCAL());
    CHECK(GASNETT_STATS_INIT(NULL) == 0);
    gasnett_assert_always(line == 1);
}

int main(int count, char **words) {
    /* What must not return, each in a process of its own: the test looks at how it ends. */
    if (count > 1 && strcmp(words[1], "fatal") == 0) gasnett_fatalerror("%s number %d", "error", 7);
    if (count > 1 && strcmp(words[1], "kill") == 0) gasnett_killmyprocess(42);
    if (count > 1 && strcmp(words[1], "assert") == 0) gasnett_assert_always(count == 0);
    if (count > 1 && strcmp(words[1], "number") == 0) (void)gasnett_parse_int("12 parsecs", 1);
    if (count > 1 && strcmp(words[1], "huge") == 0) (void)gasnett_parse_int("9999999TB", 1);
    if (count > 1 && strcmp(words[1], "yesno") == 0) (void)gasnett_getenv_yesno_withdefault("VGAS_TOOLS_YESNO", 0);
    if (count > 1 && strcmp(words[1], "freeze") == 0) gasnett_freezeForDebuggerErr();
    if (count > 1 && strcmp(words[1], "verbose") == 0) {
        for (int i = 0; i < 2; i++) (void)gasnett_getenv_int_withdefault("VGAS_TOOLS_SIZE", 65536, 1);
        return 0;
    }
    test_annotations();
    test_versions();
    test_time();
    test_atomics();
    test_locks();
#if GASNETT_THREAD_SAFE
    test_threads();
#endif
    test_keys(&errors);
    test_numbers();
    test_environment();
    test_memory();
    test_machine(words[0]);
    test_traces();
    return errors == 0 ? 0 : 1;
}
