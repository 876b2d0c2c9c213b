/* Kept for clients that include it: teams are in gasnet_coll.h. */
#ifndef _GASNET_COLL_TEAM_H
#define _GASNET_COLL_TEAM_H
#include "gasnet_coll.h"
#endif
