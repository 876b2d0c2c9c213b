/* The fixed-width integer types and their formats, under the name by which GASNet installs them. */
#ifndef _PORTABLE_INTTYPES_H
#define _PORTABLE_INTTYPES_H

#include <inttypes.h>
#include <stdint.h>

#endif
