/* A client that ends badly, or asks for what cannot be. Arguments: what happens, the rank that does it (-1: all), what the
 * others do meanwhile ("compute", "poll" or "barrier"). Status 3 is a good end; 99 a check that failed. */
#include "check.h"
#include <gasnet_vis.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#define STATUS 3

static int is(const char *text, const char *name) { return strcmp(text, name) == 0; }

static void on_message(gasnet_token_t token) { (void)token; }
static void on_exit_message(gasnet_token_t token) {
    (void)token;
    gasnet_exit(STATUS);
}
static void on_medium(gasnet_token_t token, void *bytes, size_t count) { (void)token, (void)bytes, (void)count; }

static void exit_in_atexit(void) { gasnet_exit(STATUS); }
static void exit_in_signal(int signal) {
    (void)signal;
    gasnet_exit(STATUS);
}
static void fail_in_signal(int signal) {
    const char byte = 0;
    (void)signal;
    gasnet_put(gasnet_nodes(), NULL, &byte, 1);
}
static void *exit_in_thread(void *nothing) {
    gasnet_exit(STATUS);
    return nothing;
}
static void *nothing_in_thread(void *nothing) { return nothing; }

static gasnet_seginfo_t *segments;

/* What a signal interrupts: all that takes locks, here and in the C library. */
static void work(void) {
    const gasnet_node_t right = (gasnet_mynode() + 1) % gasnet_nodes();
    char bytes[3000];
    memset(bytes, 1, sizeof bytes);
    for (;;) {
        void *const memory = malloc(1 + (size_t)rand() % 5000);
        gasnet_put(right, (char *)segments[right].addr + rand() % 60000, bytes, sizeof bytes);
        gasnet_get(bytes, right, (char *)segments[right].addr + rand() % 60000, sizeof bytes);
        CHECK(gasnet_AMRequestMedium0(right, 202, bytes, 100) == GASNET_OK);
        fprintf(stdout, "%p", memory);
        free(memory);
        gasnet_AMPoll();
    }
}

static void happen(const char *what) {
    const gasnet_node_t me = gasnet_mynode(), right = (me + 1) % gasnet_nodes();
    char *const there = (char *)segments[right].addr;
    char byte = 0;
    pthread_t thread;
    if (is(what, "exit")) gasnet_exit(STATUS);
    if (strncmp(what, "exit-", 5) == 0) gasnet_exit(atoi(what + 5));
    if (is(what, "echo")) {
        char bytes[10000];
        size_t count;
        while ((count = fread(bytes, 1, sizeof bytes, stdin)) > 0) fwrite(bytes, 1, count, stdout);
        gasnet_exit(STATUS);
    }
    if (is(what, "abort")) abort();
    if (is(what, "kill")) raise(SIGKILL);
    if (is(what, "crash")) *(volatile int *)8 = 1;
    if (is(what, "crash-in-segment-twice")) {
        /* The fault handler of the local view serves the first, and not the second. */
        ((volatile char *)segments[me].addr)[5000] = 1;
        *(volatile int *)8 = 1;
    }
    if (is(what, "overflow")) {
        /* No frame of this size fits on any stack. */
        volatile char *const low = (volatile char *)__builtin_frame_address(0) - ((size_t)64 << 20);
        *low = 1;
        happen(what);
    }
    if (is(what, "atexit")) {
        CHECK(atexit(exit_in_atexit) == 0);
        exit(0);
    }
    if (is(what, "handler")) {
        CHECK(gasnet_AMRequestShort0(me, 201) == GASNET_OK);
        for (;;) gasnet_AMPoll();
    }
    if (is(what, "thread")) {
        CHECK(pthread_create(&thread, NULL, exit_in_thread, NULL) == 0);
        pause();
    }
    if (is(what, "threads")) {
        int i;
        for (i = 0; i < 8; i++) CHECK(pthread_create(&thread, NULL, exit_in_thread, NULL) == 0);
        gasnet_exit(STATUS);
    }
    if (is(what, "signal") || is(what, "fail-in-signal")) {
        struct itimerval soon = {{0, 0}, {0, 0}};
        signal(SIGALRM, is(what, "signal") ? exit_in_signal : fail_in_signal);
        soon.it_value.tv_usec = 1000 + (suseconds_t)(getpid() % 50) * 1000;
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        work();
    }
    if (is(what, "put-outside")) gasnet_put(right, there + segments[right].size - 1, "ab", 2);
    if (is(what, "get-outside")) gasnet_get(&byte, right, there - 1, 1);
    if (strncmp(what, "section-", 8) == 0) {
        const size_t back = (size_t)-8, huge = SIZE_MAX / 2, far = segments[right].size - 8, near = 8;
        const size_t count[2] = {8, is(what, "section-huge") ? 4 : 2};
        const size_t *const stride = is(what, "section-back") ? &back : is(what, "section-huge") ? &huge : &far;
        char bytes[32] = {0};
        gasnet_puts_bulk(right, there + 8, stride, bytes, &near, count, 1);
    }
    if (is(what, "put-nowhere")) gasnet_put(gasnet_nodes(), there, &byte, 1);
    if (is(what, "ask-signal")) {
        raise(SIGUSR1);
        gasnet_exit(STATUS);
    }
}

/* What is refused with a code leaves the job as it was. */
static void refusals(void) {
    enum { TOO_MANY = 129 };
    gasnet_handlerentry_t many[TOO_MANY], twice[] = {{200, (void (*)())on_message}, {200, (void (*)())on_message}};
    gasnet_handlerentry_t low[] = {{127, (void (*)())on_message}}, null[] = {{200, NULL}};
    const uintptr_t most = gasnet_getMaxLocalSegmentSize();
    int i;
    for (i = 0; i < TOO_MANY; i++) {
        many[i].index = 0;
        many[i].fnptr = (void (*)())on_message;
    }
    CHECK(gasnet_attach(many, TOO_MANY, GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(many, -1, GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(NULL, 1, GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(twice, 2, GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(low, 1, GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(null, 1, GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(NULL, 0, GASNET_PAGESIZE + 1, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(NULL, 0, 8, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(NULL, 0, most + GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(NULL, 0, (uintptr_t)0 - GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
}

static void refusals_attached(void) {
    const gasnet_node_t me = gasnet_mynode();
    char *const mine = (char *)segments[me].addr;
    char *const bytes = (char *)calloc(1, gasnet_AMMaxMedium() + 1);
    CHECK(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) == GASNET_ERR_NOT_INIT);
    CHECK(gasnet_AMRequestShort0(gasnet_nodes(), 200) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestShort0((gasnet_node_t)-1, 200) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestShort(me, 200, 17) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestMedium0(me, 202, bytes, gasnet_AMMaxMedium() + 1) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestMedium0(me, 202, bytes, gasnet_AMMaxMedium()) == GASNET_OK);
    CHECK(gasnet_AMRequestLong0(me, 202, bytes, gasnet_AMMaxLongRequest() + 1, mine) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestLong0(me, 202, bytes, 2, mine + segments[me].size - 1) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_AMRequestLong0(me, 202, bytes, 1, mine + segments[me].size - 1) == GASNET_OK);
    CHECK(gasnet_AMReplyShort0(NULL, 200) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_getSegmentInfo(NULL, 1) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_getSegmentInfo(segments, -1) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_getNodeInfo(NULL, 1) == GASNET_ERR_BAD_ARG);
    free(bytes);
}

static uintptr_t hooked;
static void on_attach(void *address, uintptr_t bytes) {
    CHECK(address != NULL);
    *(char *)address = 1;
    hooked = bytes;
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {
        {200, (void (*)())on_message}, {201, (void (*)())on_exit_message}, {202, (void (*)())on_medium}};
    const char *what, *others;
    uintptr_t bytes = (uintptr_t)64 << 10;
    int who, code;
    pthread_t thread;
    /* Nothing may be used yet. */
    CHECK(gasnet_AMPoll() == GASNET_ERR_NOT_INIT && gasnet_attach(NULL, 0, 0, 0) == GASNET_ERR_NOT_INIT);
    if (getenv("HOSTILE_BEFORE_INIT") != NULL) gasnet_exit(STATUS);
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc > 3);
    what = argv[1];
    who = atoi(argv[2]);
    others = argv[3];
    CHECK(gasnet_init(&argc, &argv) == GASNET_ERR_NOT_INIT);
    if (is(what, "unattached") && (who < 0 || who == (int)gasnet_mynode())) gasnet_exit(STATUS);
    if (is(what, "refusals")) refusals();
    if (is(what, "all")) bytes = gasnet_getMaxLocalSegmentSize();
    if (is(what, "uneven") && who == (int)gasnet_mynode()) {
        /* The others are in it, and stay there. */
        CHECK(gasnet_attach(table, 3, bytes + 1, 0) == GASNET_ERR_BAD_ARG);
        gasnet_exit(STATUS);
    }
    gasnet_client_attach_hook = on_attach;
    code = gasnet_attach(table, 3, bytes, 0);
    if (code == GASNET_ERR_RESOURCE) gasnet_exit(STATUS);
    CHECK(code == GASNET_OK && hooked == bytes);
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    CHECK(*(char *)segments[gasnet_mynode()].addr == 1);
    CHECK(pthread_create(&thread, NULL, nothing_in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    if (is(what, "refusals")) refusals_attached();
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (is(what, "refusals") || is(what, "all")) gasnet_exit(STATUS);
    if (who < 0 || who == (int)gasnet_mynode()) {
        if (is(what, "return")) return STATUS;
        happen(what);
        CHECK(!"it happened");
    }
    if (is(others, "barrier")) gasnet_barrier(1, 0);
    while (is(others, "poll")) gasnet_AMPoll();
    for (;;) pause();
}
