/* Every rank writes to its right neighbour's segment and sends it an active message. */
#include "check.h"

static int arrived;
static gasnet_handlerarg_t sum;
static gasnet_node_t sender;

static void on_hello(gasnet_token_t token, gasnet_handlerarg_t a, gasnet_handlerarg_t b) {
    CHECK(gasnet_AMGetMsgSource(token, &sender) == GASNET_OK);
    sum = a + b;
    CHECK(gasnet_AMReplyShort0(token, 202) == GASNET_OK);
}
static int answered;
static void on_answer(gasnet_token_t token) {
    (void)token;
    answered = 1;
    arrived = 1;
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{201, (void (*)())on_hello}, {202, (void (*)())on_answer}};
    gasnet_seginfo_t *segments;
    gasnet_node_t me, right, left;
    int64_t value;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(table, 2, 1 << 20, 0) == GASNET_OK);
    me = gasnet_mynode();
    right = (me + 1) % gasnet_nodes();
    left = (me + gasnet_nodes() - 1) % gasnet_nodes();
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    CHECK(segments[me].size == 1 << 20);
    value = (int64_t)me + 1;
    gasnet_put(right, segments[right].addr, &value, sizeof value);
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
    CHECK(*(int64_t *)segments[me].addr == (int64_t)left + 1);
    gasnet_get(&value, right, segments[right].addr, sizeof value);
    CHECK(value == (int64_t)me + 1);
    CHECK(gasnet_AMRequestShort2(right, 201, -5, (gasnet_handlerarg_t)me) == GASNET_OK);
    GASNET_BLOCKUNTIL(answered);
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
    CHECK(sender == left && sum == (gasnet_handlerarg_t)left - 5);
    free(segments);
    gasnet_exit(0);
    return 1;
}
