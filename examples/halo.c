/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A grid that is shared out among the ranks in strips, and warmed from one edge: each step exchanges the edges with both
 * neighbours, computes, and every tenth step asks all ranks how far they are from the end. One rank has twice the work,
 * so that others wait for it: `ibex trace` and `ibex view` show who, and for how long.
 *
 *     mpicc -O2 -o halo examples/halo.c && ibex trace -o run -- mpirun -n 4 ./halo && ibex view run
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 4096, ROWS = 64, STEPS = 60, UP = 1, DOWN = 2 };

/* New values of all rows but the first and the last; returns the greatest change. */
static double relax(double (*to)[COLUMNS], double (*from)[COLUMNS], int rows)
{
    double greatest = 0;
    for (int row = 1; row <= rows; row++)
        for (int column = 1; column < COLUMNS - 1; column++) {
            to[row][column] = (from[row - 1][column] + from[row + 1][column] + from[row][column - 1] + from[row][column + 1]) / 4;
            greatest = fmax(greatest, fabs(to[row][column] - from[row][column]));
        }
    return greatest;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    int rows = rank == ranks / 2 ? 2 * ROWS : ROWS;

    double (*now)[COLUMNS] = calloc(rows + 2, sizeof *now), (*next)[COLUMNS] = calloc(rows + 2, sizeof *next);
    if (!now || !next)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int column = 0; rank == 0 && column < COLUMNS; column++)
        now[0][column] = next[0][column] = 100;

    double change = 0;
    for (int step = 1; step <= STEPS; step++) {
        MPI_Request requests[4];
        MPI_Irecv(now[0], COLUMNS, MPI_DOUBLE, above, DOWN, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(now[rows + 1], COLUMNS, MPI_DOUBLE, below, UP, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(now[1], COLUMNS, MPI_DOUBLE, above, UP, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(now[rows], COLUMNS, MPI_DOUBLE, below, DOWN, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        change = relax(next, now, rows);
        double (*swap)[COLUMNS] = now;
        now = next;
        next = swap;
        if (step % 10 == 0)
            MPI_Allreduce(MPI_IN_PLACE, &change, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("greatest change in the last step: %g\n", change);
    free(now);
    free(next);
    MPI_Finalize();
    return 0;
}
