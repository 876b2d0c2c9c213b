/* The object of lib/libgasnet-<conduit>-<mode>.a that says what the library is for (see VGASI_LINK_SYMBOL). Compiled once for
 * each conduit and thread mode. */
#include <gasnet.h>

const int VGASI_LINK_SYMBOL = 1;

/* In every program that is linked with it, for those who look with strings(1) or ident(1) (1.7). */
GASNETT_IDENT(vgasi_configuration, "$GASNetConfig: " GASNET_CONFIG_STRING " $");

/* A client's own definition takes its place. */
uint64_t gasnet_max_segsize __attribute__((__weak__)) = 0;
