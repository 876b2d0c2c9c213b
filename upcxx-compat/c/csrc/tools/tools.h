/* What the sources of the tools share. */
#ifndef VGAS_TOOLS_H
#define VGAS_TOOLS_H

/* All of them are built once, for programs with threads; programs without use the same functions. */
#define GASNETT_THREAD_SAFE 1
#include <gasnet_tools.h>

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#endif
