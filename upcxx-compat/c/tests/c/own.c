/* Operations of a rank on itself. A put or get whose "remote" side is anywhere in its memory is a copy, as with GASNet. A message has been
 * handled, and so has the reply, when the request returns. */
#include "check.h"
#include <gasnet_vis.h>

static char global[40000];

static void check(const char *bytes, int value, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) CHECK(bytes[i] == (char)value);
}

/* Every form, on memory of any kind: `there` is the remote side, of 40000 bytes. */
static void forms(char *there, char *here) {
    const gasnet_node_t me = gasnet_mynode();
    gasnet_handle_t handle;
    gasnet_memvec_t far[3], near[3];
    void *far_list[2], *near_list[2];
    size_t far_step = 900, near_step = 100, counts[] = {100, 7}, i;
    const size_t sizes[] = {1, 8, 777, 40000};
    for (i = 0; i < 4; i++) {
        const size_t bytes = sizes[i];
        memset(here, 1, bytes);
        gasnet_put(me, there, here, bytes);
        check(there, 1, bytes);
        memset(here, 2, bytes);
        gasnet_put_bulk(me, there, here, bytes);
        check(there, 2, bytes);
        memset(here, 3, bytes);
        handle = gasnet_put_nb(me, there, here, bytes);
        gasnet_wait_syncnb(handle);
        check(there, 3, bytes);
        memset(here, 4, bytes);
        handle = gasnet_put_nb_bulk(me, there, here, bytes);
        gasnet_wait_syncnb(handle);
        check(there, 4, bytes);
        memset(here, 5, bytes);
        gasnet_put_nbi(me, there, here, bytes);
        gasnet_wait_syncnbi_all();
        check(there, 5, bytes);
        gasnet_memset(me, there, 6, bytes);
        check(there, 6, bytes);
        gasnet_wait_syncnb(gasnet_memset_nb(me, there, 7, bytes));
        check(there, 7, bytes);
        gasnet_memset_nbi(me, there, 8, bytes);
        gasnet_wait_syncnbi_puts();
        check(there, 8, bytes);
        gasnet_get(here, me, there, bytes);
        check(here, 8, bytes);
        memset(there, 9, bytes);
        gasnet_get_bulk(here, me, there, bytes);
        check(here, 9, bytes);
        memset(there, 10, bytes);
        gasnet_wait_syncnb(gasnet_get_nb(here, me, there, bytes));
        check(here, 10, bytes);
        memset(there, 11, bytes);
        gasnet_get_nbi_bulk(here, me, there, bytes);
        gasnet_wait_syncnbi_gets();
        check(here, 11, bytes);
    }
    gasnet_put_val(me, there, 0x0c0c0c0c, 4);
    check(there, 12, 4);
    gasnet_put_nbi_val(me, there, 0x0d0d, 2);
    gasnet_wait_syncnb(gasnet_put_nb_val(me, there + 2, 0x0d0d, 2));
    gasnet_wait_syncnbi_all();
    check(there, 13, 4);
    CHECK(gasnet_get_val(me, there, 4) == 0x0d0d0d0d);
    CHECK(gasnet_wait_syncnb_valget(gasnet_get_nb_val(me, there, 4)) == 0x0d0d0d0d);
    for (i = 0; i < 3; i++) {
        far[i].addr = there + i * 1000;
        near[i].addr = here + i * 500;
        far[i].len = near[i].len = 300;
    }
    for (i = 0; i < 2; i++) {
        far_list[i] = there + i * 2000;
        near_list[i] = here + i * 600;
    }
    memset(there, 0, 10000);
    memset(here, 14, 10000);
    gasnet_putv_bulk(me, 3, far, 3, near);
    check(there + 2000, 14, 300);
    check(there + 2300, 0, 700);
    memset(here, 15, 10000);
    gasnet_puti_bulk(me, 2, far_list, 60, 2, near_list, 60);
    check(there + 2000, 15, 60);
    memset(here, 16, 10000);
    gasnet_puts_bulk(me, there, &far_step, here, &near_step, counts, 1);
    check(there + 6 * far_step, 16, 100);
    memset(there, 17, 10000);
    gasnet_wait_syncnb(gasnet_getv_nb_bulk(3, near, me, 3, far));
    check(here + 1000, 17, 300);
    memset(there, 18, 10000);
    gasnet_geti_nbi_bulk(2, near_list, 60, me, 2, far_list, 60);
    gasnet_wait_syncnbi_all();
    check(here + 600, 18, 60);
    memset(there, 19, 10000);
    gasnet_gets_bulk(here, &near_step, me, there, &far_step, counts, 1);
    check(here + 600, 19, 100);
}

enum { SHORT = 128, SHORT_BACK, MEDIUM, MEDIUM_BACK, LONG, LONG_BACK, MESSAGE_BYTES = 16384 };

static int answers;
static char *own;

static void on_short(gasnet_token_t token, gasnet_handlerarg_t a, gasnet_handlerarg_t b) {
    gasnet_node_t from;
    CHECK(gasnet_AMGetMsgSource(token, &from) == GASNET_OK && from == gasnet_mynode());
    CHECK(gasnet_AMReplyShort2(token, SHORT_BACK, a + 1, b + 1) == GASNET_OK);
    /* Also with its own rank a request has one reply. */
    CHECK(gasnet_AMReplyShort2(token, SHORT_BACK, a + 1, b + 1) != GASNET_OK);
}
static void on_short_back(gasnet_token_t token, gasnet_handlerarg_t a, gasnet_handlerarg_t b) {
    CHECK(a == 8 && b == 9);
    CHECK(gasnet_AMReplyShort2(token, SHORT_BACK, a, b) != GASNET_OK);
    answers++;
}
static void on_medium(gasnet_token_t token, void *payload, size_t bytes) {
    CHECK((uintptr_t)payload % 8 == 0);
    check((char *)payload, 1, bytes);
    memset(payload, 2, bytes);
    CHECK(gasnet_AMReplyMedium0(token, MEDIUM_BACK, payload, bytes) == GASNET_OK);
    check((char *)payload, 2, bytes);
}
static void on_medium_back(gasnet_token_t token, void *payload, size_t bytes) {
    (void)token;
    CHECK((uintptr_t)payload % 8 == 0);
    check((char *)payload, 2, bytes);
    memset(payload, 3, bytes);
    answers++;
}
static void on_long(gasnet_token_t token, void *payload, size_t bytes) {
    CHECK(payload == own + MESSAGE_BYTES);
    check((char *)payload, 4, bytes);
    /* The two overlap. */
    CHECK(gasnet_AMReplyLong0(token, LONG_BACK, payload, bytes, own + MESSAGE_BYTES - 8) == GASNET_OK);
}
static void on_long_back(gasnet_token_t token, void *payload, size_t bytes) {
    (void)token;
    CHECK(payload == own + MESSAGE_BYTES - 8);
    check((char *)payload, 4, bytes);
    answers++;
}

/* Payloads that lie at `from`; at `own` are three times as many bytes of the segment. */
static void messages(char *from) {
    const gasnet_node_t me = gasnet_mynode();
    const size_t sizes[] = {0, 1, 8, 777, 4096, MESSAGE_BYTES};
    size_t i;
    int round;
    for (round = 0; round < 100; round++) {
        const int before = answers;
        CHECK(gasnet_AMRequestShort2(me, SHORT, 7, 8) == GASNET_OK);
        CHECK(answers == before + 1);
    }
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int before = answers;
        memset(from, 1, MESSAGE_BYTES);
        CHECK(gasnet_AMRequestMedium0(me, MEDIUM, from, sizes[i]) == GASNET_OK);
        CHECK(answers == before + 1);
        check(from, 1, MESSAGE_BYTES);
        memset(own, 0, 3 * MESSAGE_BYTES);
        memset(from, 4, MESSAGE_BYTES);
        CHECK(gasnet_AMRequestLong0(me, LONG, from, sizes[i], own + MESSAGE_BYTES) == GASNET_OK);
        CHECK(answers == before + 2);
        check(own + MESSAGE_BYTES - 8, 4, sizes[i]);
    }
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {
        {SHORT, (void (*)())on_short},   {SHORT_BACK, (void (*)())on_short_back}, {MEDIUM, (void (*)())on_medium},
        {MEDIUM_BACK, (void (*)())on_medium_back}, {LONG, (void (*)())on_long},   {LONG_BACK, (void (*)())on_long_back},
    };
    char local[40000], *heap = (char *)malloc(40000), *other = (char *)malloc(40000), *segment;
    gasnet_seginfo_t *segments;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(table, 6, 32 * GASNET_PAGESIZE, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    segment = (char *)segments[gasnet_mynode()].addr;
    forms(global, heap);
    forms(local, heap);
    forms(heap, other);
    forms(heap, segment);
    forms(segment, heap);
    own = segment;
    messages(heap);
    messages(local);
    messages(segment + 3 * MESSAGE_BYTES);
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
    if (argc > 1) {
        /* Another rank's memory is its own. */
        gasnet_put((gasnet_mynode() + 1) % gasnet_nodes(), global, heap, 8);
        gasnet_exit(98);
    }
    gasnet_exit(0);
    return 1;
}
