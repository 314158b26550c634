// SPDX-License-Identifier: MIT OR Apache-2.0
// Needs Open MPI: it reads performance variables of ibex' components.
//
// Very many sends are outstanding to a receiver that does not receive: all arrive, in order, and each sender locks
// little memory for them. The receiver waits until the senders have begun all sends; it learns this by MPI_Lookup_name,
// which moves no message. Runs with 2 or more ranks; all send to rank 0.
#include "counts.h"
#include "told.h"

enum { MEDIUM = 2000, MOST_LOCKED = 64 << 20 };

static struct counter send_memory;
static int rounds;

static void send_all(int count, int bytes) {
    MPI_Request *requests = check_alloc((size_t)count * sizeof *requests);
    unsigned char *out = check_alloc((size_t)count * (size_t)bytes);
    for (int i = 0; i < count; i++)
        memcpy(out + (size_t)i * (size_t)bytes, &i, sizeof i);
    for (int i = 0; i < count; i++)
        MPI_OK(MPI_Isend(out + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &requests[i]));
    tell(rounds, check.rank);
    MPI_OK(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
    free(requests);
    free(out);
}

static void receive_all(int count, int bytes) {
    unsigned char *in = check_alloc((size_t)bytes);
    for (int sender = 1; sender < check.size; sender++)
        if (!is_told(rounds, sender))
            check_fail("rank %d did not begin its sends", sender);
    for (int sender = 1; sender < check.size; sender++)
        for (int i = 0; i < count; i++) {
            int number;
            MPI_OK(MPI_Recv(in, bytes, MPI_BYTE, sender, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            memcpy(&number, in, sizeof number);
            check_int("number of the message", i, number);
        }
    free(in);
}

static void all(int count, int bytes) {
    if (check.rank == 0)
        receive_all(count, bytes);
    else
        send_all(count, bytes);
    rounds++;
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    int few = scaled(4000, 500), many = 8 * few;
    counter_open(&send_memory, "btl_ibex_send_memory");

    check_case("%d_sends_outstanding_arrive_in_order", many);
    all(few, MEDIUM); // connects, and makes the allocations that happen once
    all(many, MEDIUM);

    check_case("memory_locked_for_outstanding_sends_is_bounded");
    all(scaled(300000, 1000), 8);
    long long locked = counted(&send_memory);
    if (locked <= 0 || locked > MOST_LOCKED)
        check_fail("%lld bytes are locked for sends, at most %d were expected", locked, MOST_LOCKED);
    counter_close(&send_memory);
    return check_finish();
}
