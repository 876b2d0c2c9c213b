/* The only object of lib/libgasnet-<conduit>-<mode>.a: says what the library is for (see VGASI_LINK_SYMBOL). Compiled
 * once for each conduit and thread mode. */
#include <gasnet.h>

const int VGASI_LINK_SYMBOL = 1;
