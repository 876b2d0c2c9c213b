/* The functions behind GASNet's core interface under the names that they have in its own libraries. Configure scripts look for
 * GASNet by linking one of them; the headers of vgas name none. Compiled once for each conduit and thread mode. */
#include <gasnet.h>

int gasnetc_init(int *argc, char ***argv) { return gasnet_init(argc, argv); }

int gasnetc_attach(gasnet_handlerentry_t *table, int numentries, uintptr_t segsize, uintptr_t minheapoffset) {
    return gasnet_attach(table, numentries, segsize, minheapoffset);
}

void gasnetc_exit(int exitcode) { gasnet_exit(exitcode); }

int gasnetc_AMPoll(void) { return gasnet_AMPoll(); }

int gasnetc_AMGetMsgSource(gasnet_token_t token, gasnet_node_t *source) { return gasnet_AMGetMsgSource(token, source); }

/* A function that ends in `numargs` arguments for the handler, over one that takes them as an array. The others are VGASI_LIST in
 * parentheses, with their types and without. */
#define SEND(name, over, params, values)                                                                               \
    int gasnetc_AM##name(VGASI_LIST params, int numargs, ...) {                                                        \
        gasnet_handlerarg_t words[16];                                                                                 \
        va_list list;                                                                                                  \
        if (numargs < 0 || numargs > 16) return GASNET_ERR_BAD_ARG;                                                    \
        va_start(list, numargs);                                                                                       \
        vgasi_read_words(words, numargs, list);                                                                        \
        va_end(list);                                                                                                  \
        return over(VGASI_LIST values, numargs, words);                                                                \
    }

SEND(RequestShortM, vgasi_request_short, (gasnet_node_t dest, gasnet_handler_t handler), (dest, handler))
SEND(RequestMediumM, vgasi_request_medium,
     (gasnet_node_t dest, gasnet_handler_t handler, void *source, size_t nbytes), (dest, handler, source, nbytes))
SEND(RequestLongM, vgasi_request_long,
     (gasnet_node_t dest, gasnet_handler_t handler, void *source, size_t nbytes, void *to),
     (dest, handler, source, nbytes, to))
SEND(RequestLongAsyncM, vgasi_request_long,
     (gasnet_node_t dest, gasnet_handler_t handler, void *source, size_t nbytes, void *to),
     (dest, handler, source, nbytes, to))
SEND(ReplyShortM, vgasi_reply_short, (gasnet_token_t token, gasnet_handler_t handler), (token, handler))
SEND(ReplyMediumM, vgasi_reply_medium, (gasnet_token_t token, gasnet_handler_t handler, void *source, size_t nbytes),
     (token, handler, source, nbytes))
SEND(ReplyLongM, vgasi_reply_long,
     (gasnet_token_t token, gasnet_handler_t handler, void *source, size_t nbytes, void *to),
     (token, handler, source, nbytes, to))
