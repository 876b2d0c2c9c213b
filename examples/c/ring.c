/* A ring of active messages: a token goes around all ranks as often as the first argument says (100), and each rank adds its
 * number to it. Prints the sum and the time of one hop.
 *
 *   $CC ring.c -o ring $(pkg-config --cflags --libs gasnet-smp-seq) && GASNET_PSHM_NODES=4 ./ring 1000 */
#include <gasnet.h>
#include <stdio.h>
#include <time.h>

#define PASS 128

static gasnet_handlerarg_t hops_left = -1, sum;
static int here;

/* A handler only notes what has come; it may not send on. */
static void on_pass(gasnet_token_t token, gasnet_handlerarg_t left, gasnet_handlerarg_t so_far) {
    (void)token;
    hops_left = left;
    sum = so_far;
    here = 1;
}

static void check(int code, const char *what) {
    if (code != GASNET_OK) {
        fprintf(stderr, "%s: %s\n", what, gasnet_ErrorDesc(code));
        gasnet_exit(1);
    }
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t handlers[] = {{PASS, (void (*)())on_pass}};
    gasnet_node_t me, next;
    struct timespec begin, end;
    int rounds, visits;
    check(gasnet_init(&argc, &argv), "gasnet_init");
    check(gasnet_attach(handlers, 1, GASNET_PAGESIZE, 0), "gasnet_attach");
    me = gasnet_mynode();
    next = (me + 1) % gasnet_nodes();
    rounds = argc > 1 ? atoi(argv[1]) : 100;
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (me == 0 && rounds > 0)
        check(gasnet_AMRequestShort2(next, PASS, rounds * (int)gasnet_nodes() - 1, 0), "request");
    for (visits = 0; visits < rounds; visits++) {
        GASNET_BLOCKUNTIL(here);
        here = 0;
        sum += (gasnet_handlerarg_t)me;
        if (hops_left > 0) check(gasnet_AMRequestShort2(next, PASS, hops_left - 1, sum), "request");
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (me == 0) {
        const int expected = rounds * (int)(gasnet_nodes() * (gasnet_nodes() - 1) / 2);
        const double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
        printf("sum %d, expected %d; %.2f us a hop\n", (int)sum, expected,
               ns / 1e3 / (rounds > 0 ? rounds * (double)gasnet_nodes() : 1));
        if (sum != expected) gasnet_exit(1);
    }
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
    return 0;
}
