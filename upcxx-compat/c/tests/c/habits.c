/* What existing clients have grown used to beyond the letter of the specification, and what they forget to do. */
#ifdef __cplusplus
/* As runtimes in C++ do it. */
extern "C" {
#include "check.h"
#include <gasnet_handler.h>
#include <gasnet_tools.h>
}
#else
#include "check.h"
#include <gasnet_handler.h>
#include <gasnet_tools.h>
#endif

static volatile int done;

static void on_done(gasnet_token_t token) {
    (void)token;
    done = 1;
}

static void barrier(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}

/* A message to oneself, awaited by calls that only copy. */
static void put_until_done(const gasnet_seginfo_t *segments) {
    const gasnet_node_t right = (gasnet_mynode() + 1) % gasnet_nodes();
    int64_t value = 1;
    done = 0;
    CHECK(gasnet_AMRequestShort0(gasnet_mynode(), 200) == GASNET_OK);
    while (!done) gasnet_put(right, segments[right].addr, &value, sizeof value);
}

/* Threads tell each other apart by their thread data, and find the same in every scope. */
static gasnet_threadinfo_t thread_data(void) {
    gasnet_threadinfo_t first;
    {
        GASNET_BEGIN_FUNCTION();
        first = GASNET_GET_THREADINFO();
    }
    {
        GASNET_POST_THREADINFO(first);
        gasnet_threadinfo_t second = GASNET_GET_THREADINFO();
        CHECK(second == first);
    }
    CHECK(GASNET_GET_THREADINFO() == first);
    return first;
}

#if !GASNET_SEQ
static void *other_thread(void *main_thread) {
    CHECK((void *)thread_data() != main_thread);
    return NULL;
}
#endif

/* Pointers and sizes as arguments, by the macros for them. */
enum { gasneti_handleridx(add_request) = 201, gasneti_handleridx(add_reply) = 202, gasneti_handleridx(move) = 203 };
SHORT_HANDLER_DECL(add_request, 3, 5);
SHORT_HANDLER_DECL(add_reply, 2, 4);
MEDIUM_HANDLER_DECL(move, 1, 2);

static void add_request_inner(gasnet_token_t token, void *a, size_t b, int to) {
    CHECK(to == -7);
    CHECK(SHORT_REP(2, 4, (token, gasneti_handleridx(add_reply), PACK((char *)a + b), PACK(b))) == GASNET_OK);
}
SHORT_HANDLER(add_request, 3, 5, (token, UNPACK(a0), (size_t)UNPACK(a1), a2),
              (token, UNPACK2(a0, a1), (size_t)UNPACK2(a2, a3), a4));

static void *sum;
static void add_reply_inner(gasnet_token_t token, void *a, size_t b) {
    (void)token;
    sum = (void *)((uintptr_t)a + b);
    done = 1;
}
SHORT_HANDLER(add_reply, 2, 4, (token, UNPACK(a0), (size_t)UNPACK(a1)),
              (token, UNPACK2(a0, a1), (size_t)UNPACK2(a2, a3)));

static void move_inner(gasnet_token_t token, void *from, size_t nbytes, void *to) {
    memcpy(to, from, nbytes);
    CHECK(SHORT_REP(2, 4, (token, gasneti_handleridx(add_reply), PACK(to), PACK(nbytes))) == GASNET_OK);
}
MEDIUM_HANDLER(move, 1, 2, (token, addr, nbytes, UNPACK(a0)), (token, addr, nbytes, UNPACK2(a0, a1)));

static void send_pointers(const gasnet_seginfo_t *segments) {
    const gasnet_node_t right = (gasnet_mynode() + 1) % gasnet_nodes();
    char *const high = (char *)(uintptr_t)0xfedcba9876543210u;
    char *const there = (char *)segments[right].addr + 128;
    int64_t value = -(int64_t)gasnet_mynode() - 3, found = 0;
    done = 0;
    CHECK(SHORT_REQ(3, 5, (right, gasneti_handleridx(add_request), PACK(high), PACK((size_t)5 << 32), -7)) == GASNET_OK);
    GASNET_BLOCKUNTIL(done);
    CHECK((uintptr_t)sum == (uintptr_t)high + ((uintptr_t)10 << 32));
    done = 0;
    CHECK(MEDIUM_REQ(1, 2, (right, gasneti_handleridx(move), &value, sizeof value, PACK(there))) == GASNET_OK);
    GASNET_BLOCKUNTIL(done);
    CHECK((char *)sum == there + sizeof value);
    gasnet_get(&found, right, there, sizeof found);
    CHECK(found == value);
}

/* Values in memory, and the names that runtimes mention so that compilers do not call them unused. */
static gasnet_register_value_t value_at(const void *place, size_t nbytes) { GASNETT_VALUE_RETURN(place, nbytes); }
static void values(void) {
    unsigned char bytes[10];
    size_t count, i, evaluated = 0;
    for (count = 1; count <= 8; count++) {
        memset(bytes, 0xee, sizeof bytes);
        GASNETT_VALUE_ASSIGN(bytes + 1 + evaluated++ * 0, (gasnet_register_value_t)0x8877665544332211u, count);
        for (i = 0; i < count; i++) CHECK(bytes[1 + i] == 0x11 * (i + 1));
        CHECK(bytes[0] == 0xee && bytes[1 + count] == 0xee);
        CHECK(value_at(bytes + 1, count) == (0x8877665544332211u & (~(gasnet_register_value_t)0 >> (64 - 8 * count))));
    }
    CHECK(evaluated == 8 && (void *)_gasneti_threadkey_init != (void *)_gasnett_trace_printf_noop);
    CHECK(GASNETI_MAX_THREADS >= 1);
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {
        {200, (void (*)())on_done},
        gasneti_handler_tableentry_with_bits(add_request),
        gasneti_handler_tableentry_with_bits(add_reply),
        gasneti_handler_tableentry_with_bits(move),
    };
    gasnet_seginfo_t *segments;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(table, sizeof table / sizeof *table, GASNET_PAGESIZE, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    barrier();
    put_until_done(segments);
    barrier();
    send_pointers(segments);
    values();
#if GASNET_SEQ
    (void)thread_data();
#else
    {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, other_thread, (void *)thread_data()) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
#endif
    CHECK(strstr(GASNET_CONFIG_STRING, GASNET_CORE_NAME_STR "-" GASNET_CORE_VERSION_STR) != NULL);
    barrier();
    free(segments);
    gasnet_exit(0);
    return 1;
}
