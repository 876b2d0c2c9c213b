/* For the test programs: a check that names its place and ends the job when it fails. */
#ifndef CHECK_H
#define CHECK_H

#include <gasnet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: node %d: failed: %s\n", __FILE__, __LINE__, (int)gasnet_mynode(), #condition);     \
            fflush(stderr);                                                                                            \
            gasnet_exit(99);                                                                                           \
        }                                                                                                              \
    } while (0)

#endif
