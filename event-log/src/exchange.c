/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Timestamped messages between ranks, with MPI's own calls (exchange.rs says which ranks, and why). */
#include <mpi.h>
#include <stdint.h>
#include <time.h>

enum {
    TAG = 1,
    /* An exchange of at most this many nanoseconds is good enough if time is short. */
    GOOD = 100000
};

/* The recorder's communicator, so that no message of the application matches. */
static MPI_Comm ours = MPI_COMM_NULL;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t) time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Makes the communicator, by all ranks. Returns 0 if it exists. */
int ibex_log_meet(void)
{
    if (PMPI_Comm_dup(MPI_COMM_WORLD, &ours) != MPI_SUCCESS)
        return 1;
    /* An error in here must not end the application. */
    return PMPI_Comm_set_errhandler(ours, MPI_ERRORS_RETURN) != MPI_SUCCESS;
}

/* Sends the numbers of each rank to all, in the order of the ranks. By all ranks. */
int ibex_log_share(const int64_t *mine, int count, int64_t *all)
{
    return PMPI_Allgather(mine, count, MPI_INT64_T, all, count, MPI_INT64_T, ours) != MPI_SUCCESS;
}

/* Sends the numbers of rank 0 to all. By all ranks. */
int ibex_log_tell(int64_t *numbers, int count)
{
    return PMPI_Bcast(numbers, count, MPI_INT64_T, 0, ours) != MPI_SUCCESS;
}

/* Answers a rank with the time of the clock, until that rank says that it was the last question. */
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

/* Asks a rank for the time of its clock, `rounds` times; stops after `most` ns if one exchange was good, else after
 * 20 times as long. `sample`: the fastest exchange's time of that clock, and of this one before and after. */
int ibex_log_ask(int rank, int rounds, int64_t most, int64_t sample[3])
{
    int64_t least = INT64_MAX, begin = 0;
    for (int64_t round = 0, is_last = 0; !is_last; ++round) {
        int64_t shown, before = now();
        /* The first answer may wait for another host's turn. Ranks that share a processor need many exchanges. */
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

/* Frees the communicator, by all ranks, at the end. */
void ibex_log_part(void)
{
    if (ours != MPI_COMM_NULL)
        PMPI_Comm_free(&ours);
}
