/* A GASNet client that is an MPI program at the same time: `hybrid mpi|gasnet`, which of both begins (and ends last). Numbers agree, sums of
 * one travel between puts of the other. */
#include <gasnet.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); exit(1); } } while (0)

static void begin_gasnet(int *argc, char ***argv) {
    CHECK(gasnet_init(argc, argv) == GASNET_OK);
    CHECK(gasnet_attach(NULL, 0, 1 << 20, 0) == GASNET_OK);
}

static void barrier(void) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}

int main(int argc, char **argv) {
    int mpi_first = strcmp(argv[1], "mpi") == 0, rank, ranks, round;
    gasnet_seginfo_t *segments;
    gasnet_node_t right;
    if (mpi_first) CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    begin_gasnet(&argc, &argv);
    if (!mpi_first) CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK((int)gasnet_nodes() == ranks && (int)gasnet_mynode() == rank);
    segments = calloc(ranks, sizeof *segments);
    CHECK(gasnet_getSegmentInfo(segments, ranks) == GASNET_OK);
    right = (rank + 1) % ranks;
    for (round = 1; round <= 200; round++) {
        int64_t value = rank + round, sum = 0;
        gasnet_put(right, segments[right].addr, &value, sizeof value);
        barrier();
        CHECK(MPI_Allreduce(segments[rank].addr, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
        CHECK(sum == (int64_t)ranks * (ranks - 1) / 2 + (int64_t)ranks * round);
    }
    barrier();
    MPI_Finalize();
    printf("of %d: my left neighbour is rank %d\n", ranks, (rank + ranks - 1) % ranks);
    fflush(stdout);
    gasnet_exit(0);
}
