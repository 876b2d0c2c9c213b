/* Long messages of the size that benchmarks send, to each rank in turn and to all at once; replies as large as they may be. */
#include "check.h"

enum { REQUEST = 200, REPLY = 201, BYTES = 4 << 20 };

static volatile int arrived, answered;
static gasnet_seginfo_t *segments;

static char byte_of(gasnet_node_t from, size_t at) { return (char)(from * 17 + at * 3 + at / 4093); }

/* Each sender has a place of its own for requests, and one for replies. */
static void *place(gasnet_node_t at, gasnet_node_t from, int is_reply) {
    return (char *)segments[at].addr + (size_t)(from + (is_reply ? gasnet_nodes() : 0)) * BYTES;
}

static void check(const char *bytes, gasnet_node_t from, size_t count) {
    size_t at;
    for (at = 0; at < count; at++) CHECK(bytes[at] == byte_of(from, at));
}

static void on_request(gasnet_token_t token, void *bytes, size_t nbytes) {
    gasnet_node_t from;
    size_t back = gasnet_AMMaxLongReply() < BYTES ? gasnet_AMMaxLongReply() : BYTES;
    CHECK(gasnet_AMGetMsgSource(token, &from) == GASNET_OK);
    CHECK(nbytes == BYTES && bytes == place(gasnet_mynode(), from, 0));
    check((char *)bytes, from, nbytes);
    arrived++;
    CHECK(gasnet_AMReplyLong0(token, REPLY, bytes, back, place(from, gasnet_mynode(), 1)) == GASNET_OK);
}

static void on_reply(gasnet_token_t token, void *bytes, size_t nbytes) {
    (void)token;
    check((char *)bytes, gasnet_mynode(), nbytes);
    answered++;
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{REQUEST, (void (*)())on_request}, {REPLY, (void (*)())on_reply}};
    char *bytes;
    size_t at;
    int round, expected = 0;
    gasnet_node_t node, nodes, me;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    nodes = gasnet_nodes();
    me = gasnet_mynode();
    CHECK(gasnet_attach(table, 2, 2 * (uintptr_t)nodes * BYTES, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(nodes, sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)nodes) == GASNET_OK);
    CHECK(gasnet_AMMaxLongRequest() >= BYTES);
    if (argc > 1) CHECK(gasnet_AMMaxLongReply() >= BYTES);
    bytes = (char *)malloc(BYTES);
    for (at = 0; at < BYTES; at++) bytes[at] = byte_of(me, at);
    for (round = 0; round < 3; round++) {
        gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
        CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
        for (node = 0; node < nodes; node++) {
            if (node == me) continue;
            CHECK(gasnet_AMRequestLong0(node, REQUEST, bytes, BYTES, place(node, me, 0)) == GASNET_OK);
        }
        expected += (int)nodes - 1;
        GASNET_BLOCKUNTIL(arrived == expected && answered == expected);
    }
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
    gasnet_exit(0);
    return 1;
}
