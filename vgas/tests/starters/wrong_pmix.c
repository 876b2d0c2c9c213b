/* A libpmix that answers wrong, as WRONG_PMIX says: it stops, fails, names no job, gives values of other types, none, or another's text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct process { char name[256]; uint32_t rank; };
struct value { uint16_t type; union { char *text; uint32_t number; uint64_t room[3]; } data; };

static int is(const char *how) {
    const char *wanted = getenv("WRONG_PMIX");
    return wanted && strcmp(wanted, how) == 0;
}

int PMIx_Init(struct process *me, void *info, size_t count) {
    (void)info; (void)count;
    if (is("stops")) pause();
    if (is("fails")) return -25;
    memset(me, 0, sizeof *me);
    if (!is("empty")) memset(me->name, 'x', sizeof me->name);
    me->rank = is("other") ? 1 : 7;
    return 0;
}

int PMIx_Get(const struct process *of, const char *key, const void *info, size_t count, struct value **to) {
    (void)of; (void)info; (void)count;
    if (is("null")) { *to = NULL; return 0; }
    *to = calloc(1, sizeof **to);
    if (is("type")) { (*to)->type = 255; return 0; }
    if (strcmp(key, "pmix.job.size") == 0) { (*to)->type = 14; (*to)->data.number = 2; return 0; }
    (*to)->type = 3;
    (*to)->data.text = is("other") ? strdup("not/what/rank 0 tells") : NULL;
    return 0;
}

int PMIx_Put(uint8_t scope, const char *key, struct value *value) { (void)scope; (void)key; (void)value; return 0; }
int PMIx_Commit(void) { return 0; }
int PMIx_Fence(const void *of, size_t count, const void *info, size_t infos) { (void)of; (void)count; (void)info; (void)infos; return 0; }
int PMIx_Finalize(const void *info, size_t count) { (void)info; (void)count; return 0; }
