/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A grid that is shared out among the ranks in strips, and warmed from one edge: each step exchanges the edges with both
 * neighbours, computes, and every tenth step asks all ranks how far they are from the end. One rank has twice the work,
 * so that others wait for it: `ibex trace` and `ibex view` show who, and for how long.
 *
 *     mpicc -O2 -o halo examples/halo.c -lm && ibex trace -o run -- mpirun -n 4 ./halo && ibex view run
 *
 * Faults can be planted, each in one step of its own, to be found by `ibex explain run --waits`:
 *
 *     --late-sender RANK:MS    the rank begins to exchange so much later: who receives from it waits for a late sender
 *     --late-receiver RANK:MS  the rank has sent, and receives so much later: who sends to it waits for a late receiver
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLUMNS = 4096, ROWS = 64, STEPS = 60, UP = 1, DOWN = 2 };

/* After such a step all ranks are asked, so that a fault in it delays no later exchange. */
enum { EVERY = 10, STEP_OF_LATE_SENDER = 2 * EVERY, STEP_OF_LATE_RECEIVER = 4 * EVERY };

static struct fault {
    int rank, milliseconds;
} late_sender = {-1, 0}, late_receiver = {-1, 0};

/* As a program that computes. */
static void sleep_for(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    while (nanosleep(&time, &time) != 0)
        ;
}

static void receive_edges(double (*now)[COLUMNS], int rows, int above, int below, MPI_Request *requests)
{
    MPI_Irecv(now[0], COLUMNS, MPI_DOUBLE, above, DOWN, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(now[rows + 1], COLUMNS, MPI_DOUBLE, below, UP, MPI_COMM_WORLD, &requests[1]);
}

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

/* RANK:MS, or false. */
static int read_fault(const char *text, struct fault *fault)
{
    return text && sscanf(text, "%d:%d", &fault->rank, &fault->milliseconds) == 2 && fault->milliseconds > 0;
}

static void read_options(int argc, char **argv)
{
    for (int at = 1; at < argc; at += 2) {
        int is_sender = strcmp(argv[at], "--late-sender") == 0, is_receiver = strcmp(argv[at], "--late-receiver") == 0;
        if ((!is_sender && !is_receiver) || !read_fault(argv[at + 1], is_sender ? &late_sender : &late_receiver)) {
            fprintf(stderr, "usage: halo [--late-sender RANK:MS] [--late-receiver RANK:MS]\n");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    read_options(argc, argv);
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
        int receives_late = rank == late_receiver.rank && step == STEP_OF_LATE_RECEIVER;
        if (rank == late_sender.rank && step == STEP_OF_LATE_SENDER)
            sleep_for(late_sender.milliseconds);
        if (!receives_late)
            receive_edges(now, rows, above, below, requests);
        MPI_Isend(now[1], COLUMNS, MPI_DOUBLE, above, UP, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(now[rows], COLUMNS, MPI_DOUBLE, below, DOWN, MPI_COMM_WORLD, &requests[3]);
        if (receives_late) {
            sleep_for(late_receiver.milliseconds);
            receive_edges(now, rows, above, below, requests);
        }
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        change = relax(next, now, rows);
        double (*swap)[COLUMNS] = now;
        now = next;
        next = swap;
        if (step % EVERY == 0)
            MPI_Allreduce(MPI_IN_PLACE, &change, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("greatest change in the last step: %g\n", change);
    free(now);
    free(next);
    MPI_Finalize();
    return 0;
}
