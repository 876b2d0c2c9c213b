/* Ends a job in the way that its first argument names; the second is the status, the third the rank that does it (-1:
 * all). The others do what the fourth argument says: "compute", "poll" or "barrier". */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static int status;

static void on_exit_message(gasnet_token_t token) {
    (void)token;
    gasnet_exit(status);
}

static void *exit_in_thread(void *nothing) {
    (void)nothing;
    gasnet_exit(status);
    return NULL;
}

static void exit_in_signal(int signal) {
    (void)signal;
    gasnet_exit(status);
}

/* The specification lets a client catch SIGQUIT to end in its own way when others have ended the job. */
static void on_quit(int signal) {
    static const char text[] = "caught SIGQUIT\n";
    (void)signal;
    if (write(1, text, sizeof text - 1) < 0) _exit(98);
    gasnet_exit(0);
}

static void leave(const char *how) {
    if (strcmp(how, "call") == 0) gasnet_exit(status);
    if (strcmp(how, "stdlib") == 0) exit(status);
    if (strcmp(how, "handler") == 0) {
        CHECK(gasnet_AMRequestShort0(gasnet_mynode(), 200) == GASNET_OK);
        for (;;) gasnet_AMPoll();
    }
    if (strcmp(how, "remote") == 0) {
        CHECK(gasnet_AMRequestShort0((gasnet_mynode() + 1) % gasnet_nodes(), 200) == GASNET_OK);
        for (;;) gasnet_AMPoll();
    }
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, exit_in_thread, NULL) == 0);
        for (;;) gasnet_AMPoll();
    }
    if (strcmp(how, "signal") == 0) {
        signal(SIGALRM, exit_in_signal);
        raise(SIGALRM);
    }
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{200, (void (*)())on_exit_message}};
    const char *how, *others;
    int who;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc > 4);
    how = argv[1];
    status = atoi(argv[2]);
    who = atoi(argv[3]);
    others = argv[4];
    if (strcmp(how, "unattached") == 0) gasnet_exit(status);
    CHECK(gasnet_attach(table, 1, GASNET_PAGESIZE, 0) == GASNET_OK);
    if (strcmp(others, "catch") == 0) signal(SIGQUIT, on_quit);
    printf("node %d printed this\n", (int)gasnet_mynode());
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (who < 0 || who == (int)gasnet_mynode()) {
        if (strcmp(how, "return") == 0) return status;
        leave(how);
    } else if (strcmp(others, "barrier") == 0) {
        gasnet_barrier(1, 0);
    } else if (strcmp(others, "poll") == 0) {
        for (;;) gasnet_AMPoll();
    }
    for (;;) pause();
}
