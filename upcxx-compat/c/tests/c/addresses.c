/* Every rank sends its left neighbour a pointer to a function and one to a variable, of its own, which are used there. */
#include "check.h"

static int answer;
static int (*volatile function)(int);
static int *volatile variable;

static int next(int number) { return number + 1; }

static void on_pointers(gasnet_token_t token, void *pointers, size_t nbytes) {
    (void)token;
    CHECK(nbytes == sizeof function + sizeof variable);
    memcpy((void *)&function, pointers, sizeof function);
    memcpy((void *)&variable, (char *)pointers + sizeof function, sizeof variable);
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{200, (void (*)())on_pointers}};
    int (*const mine)(int) = next;
    int *const my_answer = &answer;
    char pointers[sizeof mine + sizeof my_answer];
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(gasnet_attach(table, 1, GASNET_PAGESIZE, 0) == GASNET_OK);
    memcpy(pointers, &mine, sizeof mine);
    memcpy(pointers + sizeof mine, &my_answer, sizeof my_answer);
    CHECK(gasnet_AMRequestMedium0((gasnet_mynode() + gasnet_nodes() - 1) % gasnet_nodes(), 200, pointers,
                                  sizeof pointers) == GASNET_OK);
    GASNET_BLOCKUNTIL(variable);
    CHECK(function == next && variable == &answer);
    *variable = function(41);
    CHECK(answer == 42);
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
    gasnet_exit(0);
    return 1;
}
