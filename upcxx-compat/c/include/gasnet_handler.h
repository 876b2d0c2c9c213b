/* Kept for clients that include it: the handler types are in gasnet_core.h. */
#ifndef _GASNET_HANDLER_H
#define _GASNET_HANDLER_H
#include "gasnet.h"
#endif
