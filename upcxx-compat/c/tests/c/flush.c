/* Prints more at once than fits in the pipe that its output is, says its process on standard error, and exits. */
#define _GNU_SOURCE 1 /* F_SETPIPE_SZ */
#include "check.h"

#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char buffer[1 << 20];
    int i;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) == GASNET_OK);
    CHECK(fcntl(STDOUT_FILENO, F_SETPIPE_SZ, 4096) == 4096);
    CHECK(setvbuf(stdout, buffer, _IOFBF, sizeof buffer) == 0);
    for (i = 0; i < 10000; i++) printf("%d\n", i);
    fprintf(stderr, "%d\n", (int)getpid());
    gasnet_exit(0);
    return 1;
}
