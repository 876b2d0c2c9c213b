/* Rank 1 ends the job, by `interrupt` or by `exit` with status 0, while the others wait for it in a barrier. All of them
 * catch SIGQUIT, if `catch` is said, and exit with 4. */
#include "check.h"
#include <signal.h>
#include <unistd.h>

static void on_quit(int signal) {
    (void)signal;
    gasnet_exit(4);
}

int main(int argc, char **argv) {
    /* Whoever started the tests in the background lets programs ignore it, and then so does the library. */
    CHECK(signal(SIGINT, SIG_DFL) != SIG_ERR);
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc == 3);
    CHECK(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) == GASNET_OK);
    if (strcmp(argv[2], "catch") == 0) CHECK(signal(SIGQUIT, on_quit) != SIG_ERR);
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
    if (gasnet_mynode() == 1 && strcmp(argv[1], "exit") == 0) gasnet_exit(0);
    if (gasnet_mynode() == 1) {
        kill(getpid(), SIGINT);
        for (;;) gasnet_AMPoll();
    }
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    (void)gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(!"a barrier was passed that rank 1 never reached");
    return 1;
}
