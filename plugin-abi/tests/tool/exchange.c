/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An application without a tool: each of two ranks sends to the other. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, got = -1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Sendrecv(&rank, 1, MPI_INT, 1 - rank, 0, &got, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return got != 1 - rank;
}
