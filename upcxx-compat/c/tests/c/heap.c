/* Rank 0 spoils its heap as the first argument says, by so many bytes as the second; then all ranks go on with puts, gets and
 * messages, which allocate in the library. */
#include "check.h"

static volatile int answers;

static void on_request(gasnet_token_t token, gasnet_handlerarg_t number) {
    gasnet_AMReplyShort1(token, 201, number);
}

static void on_reply(gasnet_token_t token, gasnet_handlerarg_t number) {
    (void)token;
    (void)number;
    answers++;
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{200, (void (*)())on_request}, {201, (void (*)())on_reply}};
    gasnet_seginfo_t segments[2];
    char bytes[3000] = {0}, *volatile spoilt;
    size_t reach, round, i;
    gasnet_node_t other;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc > 2 && gasnet_nodes() == 2);
    CHECK(gasnet_attach(table, 2, 1 << 20, 0) == GASNET_OK);
    CHECK(gasnet_getSegmentInfo(segments, 2) == GASNET_OK);
    other = gasnet_mynode() ^ 1;
    reach = strtoull(argv[2], NULL, 0);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (gasnet_mynode() == 0) {
        spoilt = (char *)malloc(64);
        if (strcmp(argv[1], "free") == 0) free(spoilt + reach);
        if (strcmp(argv[1], "ones") == 0) memset(spoilt - reach, 0xff, 2 * reach);
        if (strcmp(argv[1], "zeros") == 0) memset(spoilt - reach, 0, 2 * reach);
        if (strcmp(argv[1], "some") == 0)
            for (i = 0; i < 2 * reach; i += 1 + i % 23) spoilt[i - reach] = (char)(i * 31);
    }
    for (round = 0; round < 100; round++) {
        gasnet_handle_t handles[50];
        for (i = 0; i < 50; i++) {
            char *there = (char *)segments[other].addr + i * 4000;
            if (i % 2 == 0) handles[i] = gasnet_get_nb_bulk(bytes, other, there, 3000);
            else handles[i] = gasnet_put_nb(other, there, bytes, 1000 + i);
        }
        gasnet_wait_syncnb_all(handles, 50);
        CHECK(gasnet_AMRequestShort1(other, 200, (gasnet_handlerarg_t)round) == GASNET_OK);
        GASNET_BLOCKUNTIL(answers > (int)round);
    }
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
    return 0;
}
