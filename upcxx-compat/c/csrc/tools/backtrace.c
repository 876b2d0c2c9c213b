/* Backtraces, and waiting for a debugger. */
#include "tools.h"

#include <stdio.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__GLIBC__)
    #include <execinfo.h>
#endif

/* A client's definition takes the place of this one. */
gasnett_backtrace_type_t gasnett_backtrace_user __attribute__((weak)) = {NULL, NULL, 0};

static char program_path[4096];

static int write_text(int descriptor, const char *text) {
    size_t const bytes = strlen(text);
    return write(descriptor, text, bytes) == (ssize_t)bytes ? 0 : 1;
}

static int backtrace_by_user(int descriptor) {
    return gasnett_backtrace_user.fnp == NULL ? 1 : gasnett_backtrace_user.fnp(descriptor);
}

static int backtrace_by_execinfo(int descriptor) {
#if defined(__GLIBC__)
    enum { FRAMES_MAX = 100 };
    void *frames[FRAMES_MAX];
    int const count = backtrace(frames, FRAMES_MAX);
    if (count <= 0) return 1;
    backtrace_symbols_fd(frames, count, descriptor);
    return 0;
#else
    (void)descriptor;
    return 1;
#endif
}

/* Lets gdb, if it is installed, look at all threads of this process. */
static int backtrace_by_gdb(int descriptor) {
    char process[32];
    snprintf(process, sizeof process, "%ld", (long)getpid());
    pid_t const child = fork();
    if (child < 0) return 1;
    if (child == 0) {
        if (dup2(descriptor, STDOUT_FILENO) < 0 || freopen("/dev/null", "r", stdin) == NULL) _exit(127);
        execlp("gdb", "gdb", "-nx", "-batch", "-ex", "thread apply all backtrace", "-p", process, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return 1;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}

static const struct {
    const char *name;
    int (*write)(int descriptor);
} ways[] = {{"USER", backtrace_by_user}, {"EXECINFO", backtrace_by_execinfo}, {"GDB", backtrace_by_gdb}};

int gasnett_print_backtrace(int descriptor) {
    const char *list = gasnett_getenv("GASNET_BACKTRACE_TYPE");
    if (list == NULL) list = "USER,EXECINFO,GDB";
    while (*list != '\0') {
        size_t const length = strcspn(list, ", ");
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            int const is_named = length == strlen(ways[i].name) && strncasecmp(list, ways[i].name, length) == 0;
            if (is_named && ways[i].write(descriptor) == 0) return 0;
        }
        list += length;
        list += strspn(list, ", ");
    }
    (void)write_text(descriptor, "no backtrace: none of the ways in GASNET_BACKTRACE_TYPE works here\n");
    return 1;
}

static int print_backtrace_ifenabled(int descriptor) {
    if (gasnett_getenv("GASNET_BACKTRACE") == NULL) return 1;
    if (!gasnett_getenv_yesno_withdefault("GASNET_BACKTRACE", 0)) return 1;
    return gasnett_print_backtrace(descriptor);
}

int (*gasnett_print_backtrace_ifenabled)(int descriptor) = print_backtrace_ifenabled;

void gasnett_backtrace_init(const char *program) {
    snprintf(program_path, sizeof program_path, "%s", program == NULL ? "" : program);
#if defined(__GLIBC__)
    /* The first call loads a library, which a signal handler must not do. */
    void *frame[1];
    (void)backtrace(frame, 1);
#endif
    (void)gasnett_getenv_yesno_withdefault("GASNET_BACKTRACE", 0);
    (void)gasnett_getenv_yesno_withdefault("GASNET_FREEZE_ON_ERROR", 0);
}

volatile int gasnet_frozen = 0;

void gasnett_freezeForDebuggerNow(volatile int *flag, const char *name) {
    enum { LOOKS_A_SECOND = 10 };
  *flag = 1;
    fprintf(stderr,
            "Process frozen for debugger: host=%s  pid=%ld  %s\n"
            "To unfreeze, attach a debugger and set '%s' to 0\n",
                    gasnett_gethostname(), (long)getpid(), program_path, name);
    fflush(stderr);
    while (*flag) (void)gasnett_nsleep(1000000000 / LOOKS_A_SECOND);
}

void gasnett_freezeForDebuggerErr(void) {
    if (gasnett_getenv("GASNET_FREEZE_ON_ERROR") == NULL) return;
    if (gasnett_getenv_yesno_withdefault("GASNET_FREEZE_ON_ERROR", 0)) {
        gasnett_freezeForDebuggerNow(&gasnet_frozen, "gasnet_frozen");
    }
}
