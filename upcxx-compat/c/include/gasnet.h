/* GASNet-1 (specification 1.8) over vgas: segments of DRAM at the speed of shared memory, or segments on NVMe behind a
 * cooperative cache, chosen when the job is started. Existing clients compile unchanged; see docs/GASNET.md for every
 * name of the specification. */
#ifndef _GASNET_H
#define _GASNET_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "gasnet_config.h"
#include "vgasi.h"

#include "gasnet_core.h"
#include "gasnet_extended.h"
/* As in GASNet's own headers, in the form of <sys/param.h>. */
#ifndef MIN
#define MIN(a,b) (((a)<(b))?(a):(b))
#endif
#ifndef MAX
#define MAX(a,b) (((a)>(b))?(a):(b))
#endif

/* Clients count on having teams and collectives with gasnet.h alone. */
#include "gasnet_coll.h"

#endif
