/* Puts and gets of cached pages never call the library: this program stands between the headers and it, and counts. Needs the
 * shared library, tiered segments, and a cache that holds them. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <vgasnet.h>

#define BYTES ((size_t)256 << 10)
#define ROUNDS 20000

/* Of this thread. */
static __thread unsigned long calls;

static void *original(const char *name) {
    void *const address = dlsym(RTLD_NEXT, name);
    CHECK(address != NULL);
    calls++;
    return address;
}
void vgasi_put(uint32_t rank, void *to, const void *from, size_t bytes) {
    void (*put)(uint32_t, void *, const void *, size_t);
    *(void **)&put = original("vgasi_put");
    put(rank, to, from, bytes);
}
void vgasi_get(void *to, uint32_t rank, const void *from, size_t bytes) {
    void (*get)(void *, uint32_t, const void *, size_t);
    *(void **)&get = original("vgasi_get");
    get(to, rank, from, bytes);
}
vgasi_handle_t vgasi_put_nb(uint32_t rank, void *to, const void *from, size_t bytes, int source_stays) {
    vgasi_handle_t (*put)(uint32_t, void *, const void *, size_t, int);
    *(void **)&put = original("vgasi_put_nb");
    return put(rank, to, from, bytes, source_stays);
}
vgasi_handle_t vgasi_get_nb(void *to, uint32_t rank, const void *from, size_t bytes) {
    vgasi_handle_t (*get)(void *, uint32_t, const void *, size_t);
    *(void **)&get = original("vgasi_get_nb");
    return get(to, rank, from, bytes);
}

static uint64_t state = 1;
static size_t next(size_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % limit;
}

static gasnet_node_t right;
static char *there, *model, *buffer;

static uint64_t counter(const char *name) {
    uint64_t values[256];
    size_t i;
    CHECK(vgasnet_statistics(values, 256) == VGASNET_OK);
    for (i = 0; i < vgasnet_statistics_count(); i++) {
        if (strcmp(vgasnet_statistic_name(i), name) == 0) return values[i];
    }
    CHECK(!"the counter exists");
    return 0;
}

static void barrier(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}

/* Random ones, within a page and over several. Returns the pages that were used. */
static size_t traffic(size_t page_bytes) {
    size_t pages = 0;
    int round;
    for (round = 0; round < ROUNDS; round++) {
        static const size_t lengths[] = {1, 2, 4, 8, 16, 100, 4096, 20000};
        const size_t most = lengths[next(8)], length = 1 + next(most), at = next(BYTES - length);
        const uint64_t value = next((size_t)1 << 30);
        size_t i;
        gasnet_handle_t handle = GASNET_INVALID_HANDLE;
        if (round % 4 < 2) {
            for (i = 0; i < length; i++) buffer[i] = (char)next(256);
            memcpy(model + at, buffer, length);
        }
        pages += (at + length - 1) / page_bytes - at / page_bytes + 1;
        switch (round % 8) {
        case 0: gasnet_put(right, there + at, buffer, length); break;
        case 1: handle = gasnet_put_nb_bulk(right, there + at, buffer, length); break;
        case 2: gasnet_get(buffer, right, there + at, length); break;
        case 3: handle = gasnet_get_nb(buffer, right, there + at, length); break;
        case 4: gasnet_put_nbi(right, there + at, buffer, length); memcpy(model + at, buffer, length); break;
        case 5: handle = gasnet_put_nb(right, there + at, buffer, length); memcpy(model + at, buffer, length); break;
        case 6: gasnet_get_nbi_bulk(buffer, right, there + at, length); break;
        default:
            /* A length that the compiler knows. */
            pages -= (at + length - 1) / page_bytes - at / page_bytes + 1;
            i = at / 8 * 8;
            gasnet_put_val(right, there + i, value, 8);
            memcpy(model + i, &value, 8);
            CHECK(gasnet_get_val(right, there + i, 8) == value);
            pages += 2;
            continue;
        }
        CHECK(handle == GASNET_INVALID_HANDLE);
        if (round % 4 >= 2 && round % 8 != 4 && round % 8 != 5) CHECK(memcmp(buffer, model + at, length) == 0);
    }
    return pages;
}

/* A thread that puts once more when its slot has been given back, which somebody else may have by then. */
static pthread_key_t last_words;
static void put_late(void *nothing) {
    (void)nothing;
    calls = 0;
    gasnet_put_val(right, there + 64, 99, 8);
    CHECK(gasnet_get_val(right, there + 64, 8) == 99);
    CHECK(calls == 2);
}
static void *thread(void *nothing) {
    gasnet_put_val(right, there + 64, 98, 8);
    CHECK(calls == 0);
    CHECK(pthread_setspecific(last_words, &state) == 0);
    return nothing;
}

int main(int argc, char **argv) {
    gasnet_seginfo_t *segments;
    uint64_t gets, puts;
    size_t page_bytes, pages;
    pthread_t other;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc > 1);
    page_bytes = (size_t)atoi(argv[1]);
    CHECK(gasnet_attach(NULL, 0, BYTES, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    right = (gasnet_mynode() + 1) % gasnet_nodes();
    there = (char *)segments[right].addr;
    model = (char *)calloc(1, BYTES);
    buffer = (char *)malloc(BYTES);
    CHECK(vgasnet_segment_kind() == VGASNET_TIERED);

    /* The first time somebody must be asked. */
    calls = 0;
    gasnet_put(right, there, model, BYTES);
    gasnet_get(buffer, right, there, BYTES);
    gasnet_wait_syncnbi_all();
    CHECK(calls > 0);
    barrier();
    gets = counter("get_hits");
    puts = counter("put_hits");
    barrier();
    calls = 0;
    pages = traffic(page_bytes);
    CHECK(calls == 0);
    barrier();
    gets = counter("get_hits") - gets;
    puts = counter("put_hits") - puts;
    /* Each rank has counted its own, all with the same numbers. */
    CHECK(gets + puts == pages * gasnet_nodes() && gets > 0 && puts > 0);

    /* Outside of what hits may do: bytes of the own segment as the other side, which bounce. */
    calls = 0;
    if (right != gasnet_mynode()) {
        char *const mine = (char *)segments[gasnet_mynode()].addr + BYTES - 16;
        barrier();
        memcpy(mine, "from the segment", 16);
        gasnet_put(right, there + 32, mine, 16);
        CHECK(calls == 1);
        gasnet_get(mine, right, there + 32, 16);
        CHECK(calls == 2 && memcmp(mine, "from the segment", 16) == 0);
        memcpy(model + 32, mine, 16);
    }
    CHECK(pthread_key_create(&last_words, put_late) == 0);
    CHECK(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
    model[64] = 99;
    memset(model + 65, 0, 7);
    gasnet_get(buffer, right, there, BYTES - 16);
    CHECK(memcmp(buffer, model, BYTES - 16) == 0);
    barrier();
    gasnet_exit(0);
    return 1;
}
