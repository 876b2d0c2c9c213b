/* What PGAS runtimes do with a segment: an allocator keeps its metadata in it, hands out pointers, others put into the objects
 * and read them by address, the owner computes in place and frees. In a segment larger than the cache. Arguments: rounds, seed,
 * bytes of a segment. */
#include "check.h"

enum { OBJECTS = 64, OBJECT_BYTES_MAX = 40000 };

static uint64_t state;
static size_t next(size_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % limit;
}

/* Blocks lie one after the other in the segment, each with its length and that of the block before: all of it metadata that
 * the owner changes by pointers, next to what others put. */
typedef struct {
    uint64_t bytes; /* with this head; the lowest bit says that it is in use */
    uint64_t before;
} head_t;
static char *heap, *heap_end, *cursor;

static head_t *after(head_t *block) { return (head_t *)((char *)block + (block->bytes & ~(uint64_t)1)); }
static int is_end(const head_t *block) { return (const char *)block >= heap_end; }

static void merge(head_t *block) {
    head_t *const right = after(block);
    if (!is_end(right) && !(right->bytes & 1)) block->bytes += right->bytes;
    if (!is_end(after(block))) after(block)->before = block->bytes;
}

/* Next fit: it walks over all of the segment in time. */
static void *allocate(size_t length) {
    const uint64_t bytes = (length + sizeof(head_t) + 15) / 16 * 16;
    int laps = 0;
    head_t *block = (head_t *)cursor;
    while (laps < 2) {
        if (is_end(block)) {
            block = (head_t *)heap;
            laps++;
            continue;
        }
        if (!(block->bytes & 1) && block->bytes >= bytes) {
            if (block->bytes - bytes > sizeof(head_t)) {
                head_t *const rest = (head_t *)((char *)block + bytes);
                rest->bytes = block->bytes - bytes;
                rest->before = bytes;
                if (!is_end(after(rest))) after(rest)->before = rest->bytes;
                block->bytes = bytes;
            }
            block->bytes |= 1;
            cursor = (char *)after(block);
            return block + 1;
        }
        block = after(block);
    }
    return NULL;
}

static void release(void *object) {
    head_t *block = (head_t *)object - 1;
    CHECK(block->bytes & 1);
    block->bytes &= ~(uint64_t)1;
    merge(block);
    if (block->before != 0) {
        head_t *const left = (head_t *)((char *)block - (block->before & ~(uint64_t)1));
        if (!(left->bytes & 1)) {
            merge(left);
            block = left;
        }
    }
    if (cursor > (char *)block && cursor < (char *)after(block)) cursor = (char *)block;
}

/* The heads lead from one end to the other, and back. */
static void check_heap(void) {
    head_t *block = (head_t *)heap;
    uint64_t before = 0;
    while (!is_end(block)) {
        CHECK(block->bytes >= sizeof *block && (block->before & ~(uint64_t)1) == before);
        before = block->bytes & ~(uint64_t)1;
        block = after(block);
    }
    CHECK((char *)block == heap_end);
}

static gasnet_seginfo_t *segments;
static unsigned char byte_of(uint64_t key, size_t at) { return (unsigned char)(key * 31 + at * 7 + at / 256); }

/* An object of the left neighbour, which this rank fills: where, how long, what with. */
typedef struct {
    uintptr_t address;
    size_t length;
    uint64_t key;
} order_t;
static order_t orders[OBJECTS];
static volatile int known;

static void on_order(gasnet_token_t token, void *order, size_t bytes, gasnet_handlerarg_t index) {
    CHECK(bytes == sizeof orders[0]);
    memcpy(&orders[index], order, bytes);
    CHECK(gasnet_AMReplyShort0(token, 201) == GASNET_OK);
}
static void on_known(gasnet_token_t token) {
    (void)token;
    known++;
}

int main(int argc, char **argv) {
    gasnet_handlerentry_t table[] = {{200, (void (*)())on_order}, {201, (void (*)())on_known}};
    gasnet_node_t me, right, left;
    struct {
        unsigned char *address;
        size_t length;
        uint64_t key;
    } objects[OBJECTS];
    unsigned char *const buffer = (unsigned char *)malloc(OBJECT_BYTES_MAX);
    int round, rounds, i;
    uintptr_t bytes;
    CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
    CHECK(argc > 3);
    me = gasnet_mynode();
    right = (me + 1) % gasnet_nodes();
    left = (me + gasnet_nodes() - 1) % gasnet_nodes();
    rounds = atoi(argv[1]);
    state = strtoull(argv[2], NULL, 0) * 1000003u + me;
    bytes = strtoull(argv[3], NULL, 0);
    CHECK(gasnet_attach(table, 2, bytes, 0) == GASNET_OK);
    segments = (gasnet_seginfo_t *)calloc(gasnet_nodes(), sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) == GASNET_OK);
    heap = cursor = (char *)segments[me].addr;
    heap_end = heap + bytes;
    ((head_t *)heap)->bytes = bytes;
    ((head_t *)heap)->before = 0;
    memset(objects, 0, sizeof objects);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    for (round = 0; round < rounds; round++) {
        order_t order;
        int asked = 0;
        /* Some objects go, others come; the right neighbour fills the new ones, by their addresses. */
        for (i = 0; i < OBJECTS; i++) {
            if (objects[i].address != NULL && next(2)) {
                release(objects[i].address);
                objects[i].address = NULL;
            }
            if (objects[i].address == NULL) {
                objects[i].length = 1 + next(OBJECT_BYTES_MAX);
                objects[i].key = next((size_t)1 << 31);
                objects[i].address = (unsigned char *)allocate(objects[i].length);
                CHECK(objects[i].address != NULL);
                order.address = (uintptr_t)objects[i].address;
                order.length = objects[i].length;
                order.key = objects[i].key;
                CHECK(gasnet_AMRequestMedium1(right, 200, &order, sizeof order, i) == GASNET_OK);
                asked++;
            }
        }
        GASNET_BLOCKUNTIL(known == asked);
        known = 0;
        gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
        for (i = 0; i < OBJECTS; i++) {
            size_t at;
            if (orders[i].length == 0) continue;
            for (at = 0; at < orders[i].length; at++) buffer[at] = byte_of(orders[i].key, at);
            gasnet_put(left, (void *)orders[i].address, buffer, orders[i].length);
            orders[i].length = 0;
        }
        gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
        /* The owner reads all of them in place, changes some, and its metadata is as it left it. */
        for (i = 0; i < OBJECTS; i++) {
            size_t at;
            for (at = 0; at < objects[i].length; at++) CHECK(objects[i].address[at] == byte_of(objects[i].key, at));
            if (next(3) == 0) {
                objects[i].key++;
                for (at = 0; at < objects[i].length; at++) objects[i].address[at] = byte_of(objects[i].key, at);
            }
        }
        check_heap();
        gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    }
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
    return 1;
}
