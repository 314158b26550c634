/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Timestamped messages between ranks, with MPI's own calls (exchange.rs says which ranks, and why). */
#include <mpi.h>
#include <stdint.h>
#include <time.h>

enum {
    TAG = 1,
    /* Nanoseconds that an exchange may take that is good enough where time is short. */
    GOOD = 100000
};

/* Of the recorder alone, so that nothing of the application's meets it. */
static MPI_Comm ours = MPI_COMM_NULL;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t) time.tv_sec * 1000000000 + time.tv_nsec;
}

/* By all ranks. 0: it is there. */
int ibex_log_meet(void)
{
    if (PMPI_Comm_dup(MPI_COMM_WORLD, &ours) != MPI_SUCCESS)
        return 1;
    /* What fails here must not end the application. */
    return PMPI_Comm_set_errhandler(ours, MPI_ERRORS_RETURN) != MPI_SUCCESS;
}

/* By all ranks: everyone's numbers go to all, in the order of the ranks. */
int ibex_log_share(const int64_t *mine, int count, int64_t *all)
{
    return PMPI_Allgather(mine, count, MPI_INT64_T, all, count, MPI_INT64_T, ours) != MPI_SUCCESS;
}

/* By all ranks: those of rank 0 go to all. */
int ibex_log_tell(int64_t *numbers, int count)
{
    return PMPI_Bcast(numbers, count, MPI_INT64_T, 0, ours) != MPI_SUCCESS;
}

/* Answers to the rank that asks, each time with what the clock shows, until that says that it was the last time. */
int ibex_log_answer(int rank)
{
    for (int64_t is_last = 0; !is_last;) {
        if (PMPI_Recv(&is_last, 1, MPI_INT64_T, rank, TAG, ours, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return 1;
        int64_t shown = now();
        if (PMPI_Send(&shown, 1, MPI_INT64_T, rank, TAG, ours) != MPI_SUCCESS)
            return 1;
    }
    return 0;
}

/* Asks a rank so many times what its clock shows, or as often as there is time for, nanoseconds, if one of them was good, or twenty times of that. sample: that, and the own clock before
 * and after, of the time that took least. */
int ibex_log_ask(int rank, int rounds, int64_t most, int64_t sample[3])
{
    int64_t least = INT64_MAX, begin = 0;
    for (int64_t round = 0, is_last = 0; !is_last; ++round) {
        int64_t shown, before = now();
        /* The first answer may come when the other is done elsewhere. Ranks that share a processor need many times for a good one. */
        is_last = round + 1 >= rounds || (round > 0 && before - begin > most && (least < GOOD || before - begin > 20 * most));
        if (PMPI_Send(&is_last, 1, MPI_INT64_T, rank, TAG, ours) != MPI_SUCCESS)
            return 1;
        if (PMPI_Recv(&shown, 1, MPI_INT64_T, rank, TAG, ours, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return 1;
        int64_t after = now();
        if (round == 0)
            begin = after;
        if (after - before < least) {
            least = after - before;
            sample[0] = shown, sample[1] = before, sample[2] = after;
        }
    }
    return 0;
}

/* By all ranks, at the end. */
void ibex_log_part(void)
{
    if (ours != MPI_COMM_NULL)
        PMPI_Comm_free(&ours);
}
