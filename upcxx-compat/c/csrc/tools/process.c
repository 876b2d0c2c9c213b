/* The end of this process, its signals and its streams. */
#include "tools.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* Set by the first fatal error; one on the way of another ends the process without further ado. */
static gasnett_atomic_t is_dying = gasnett_atomic_init(0);

void gasnett_fatalerror(const char *format, ...) {
    va_list arguments;
    flockfile(stderr);
    fputs("*** FATAL ERROR: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(stderr);
    funlockfile(stderr);
    if (gasnett_atomic_swap(&is_dying, 1, 0) == 0) {
        gasnett_freezeForDebuggerErr();
        (void)gasnett_print_backtrace_ifenabled(STDERR_FILENO);
    }
    /* A client's handler would run code that expects the process to go on. */
    signal(SIGABRT, SIG_DFL);
    abort();
}

void gasnett_killmyprocess(int exit_code) {
    _exit(exit_code);
}

char *gasnett_build_loc_str(const char *function, const char *file, int line) {
    char *text = NULL;
    if (function == NULL || *function == '\0') {
        if (asprintf(&text, "%s:%i", file, line) < 0) return NULL;
    } else if (asprintf(&text, "%s(%s:%i)", function, file, line) < 0) {
        return NULL;
    }
    return text;
}

gasnett_sighandlerfn_t gasnett_reghandler(int signal_number, gasnett_sighandlerfn_t handler) {
    struct sigaction wanted = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct sigaction before;
    sigemptyset(&wanted.sa_mask);
    if (sigaction(signal_number, &wanted, &before) != 0) {
        gasnett_fatalerror("no handler can be set for signal %i: %s", signal_number, strerror(errno));
    }
    return before.sa_handler;
}

const char *gasnett_signame_fromval(int signal_number) {
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {SIGABRT, "SIGABRT"}, {SIGALRM, "SIGALRM"}, {SIGBUS, "SIGBUS"},   {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},
        {SIGFPE, "SIGFPE"},   {SIGHUP, "SIGHUP"},   {SIGILL, "SIGILL"},   {SIGINT, "SIGINT"},   {SIGIO, "SIGIO"},
        {SIGKILL, "SIGKILL"}, {SIGPIPE, "SIGPIPE"}, {SIGPROF, "SIGPROF"}, {SIGPWR, "SIGPWR"},   {SIGQUIT, "SIGQUIT"},
        {SIGSEGV, "SIGSEGV"}, {SIGSTOP, "SIGSTOP"}, {SIGSYS, "SIGSYS"},   {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"},
        {SIGTSTP, "SIGTSTP"}, {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"}, {SIGURG, "SIGURG"},   {SIGUSR1, "SIGUSR1"},
        {SIGUSR2, "SIGUSR2"}, {SIGVTALRM, "SIGVTALRM"}, {SIGWINCH, "SIGWINCH"}, {SIGXCPU, "SIGXCPU"},
        {SIGXFSZ, "SIGXFSZ"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].number == signal_number) return names[i].name;
    }
    return NULL;
}

void gasnett_flush_streams(void) {
    fflush(NULL);
}

void gasnett_close_streams(void) {
    fflush(NULL);
    fclose(stdin);
    fclose(stdout);
    fclose(stderr);
}
