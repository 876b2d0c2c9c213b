/* No handler runs before gasnet_attach has returned, however early the others send. */
#include "check.h"

enum { EARLY = 200, ANSWER = 201, REQUESTS = 40 };

static volatile int is_ready, early, answers;

static void on_early(gasnet_token_t token) {
    CHECK(is_ready);
    early++;
    CHECK(gasnet_AMReplyShort0(token, ANSWER) == GASNET_OK);
}

static void on_early_medium(gasnet_token_t token, void *bytes, size_t nbytes) {
    CHECK(nbytes == 100 && ((char *)bytes)[99] == 3);
    on_early(token);
}

static void on_answer(gasnet_token_t token) {
    (void)token;
    CHECK(is_ready);
    answers++;
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{EARLY, (void (*)())on_early},
                                     {EARLY + 2, (void (*)())on_early_medium},
                                     {ANSWER, (void (*)())on_answer}};
    gasnet_node_t node;
    int request, code;
    char bytes[100];
    memset(bytes, 3, sizeof bytes);
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    code = gasnet_attach(table, 3, GASNET_PAGESIZE, 0);
    is_ready = 1;
    CHECK(code == GASNET_OK);
    for (request = 0; request < REQUESTS; request++) {
        for (node = 0; node < gasnet_nodes(); node++) {
            if (request % 2) CHECK(gasnet_AMRequestShort0(node, EARLY) == GASNET_OK);
            else CHECK(gasnet_AMRequestMedium0(node, EARLY + 2, bytes, sizeof bytes) == GASNET_OK);
        }
    }
    GASNET_BLOCKUNTIL(early == REQUESTS * (int)gasnet_nodes() && answers == REQUESTS * (int)gasnet_nodes());
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
    gasnet_exit(0);
    return 1;
}
