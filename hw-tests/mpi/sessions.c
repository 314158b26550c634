// SPDX-License-Identifier: MIT OR Apache-2.0
//
// MPI sessions beside the world: communicators made from a group, which have another place in the table of each process,
// carry messages around every protocol limit, collectives and duplicates, and are made again by later sessions. Skipped
// where the MPI has no sessions (Open MPI 4.1). Runs with 1 or more ranks.
//
// usage: sessions
#include "check.h"

#ifdef MPI_SESSION_NULL
static void around_the_ring(MPI_Comm one, MPI_Comm other, int bytes) {
    int size, rank;
    MPI_Request requests[4];
    MPI_OK(MPI_Comm_size(one, &size));
    MPI_OK(MPI_Comm_rank(one, &rank));
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    size_t room = (size_t)bytes + 1;
    unsigned char *out = check_alloc(room), *first = check_alloc(room), *second = check_alloc(room);
    pattern_fill(out, (size_t)bytes, (uint64_t)rank);
    MPI_OK(MPI_Irecv(first, bytes, MPI_BYTE, previous, 5, one, &requests[0]));
    MPI_OK(MPI_Irecv(second, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, other, &requests[1]));
    MPI_OK(MPI_Isend(out, bytes, MPI_BYTE, next, 5, one, &requests[2]));
    MPI_OK(MPI_Issend(out, bytes, MPI_BYTE, next, 6, other, &requests[3]));
    MPI_OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    check_true("the message", pattern_mismatch(first, (size_t)bytes, (uint64_t)previous) == (size_t)bytes);
    check_true("the synchronous message", pattern_mismatch(second, (size_t)bytes, (uint64_t)previous) == (size_t)bytes);
    free(out);
    free(first);
    free(second);
}

static void a_session(int round) {
    static const int sizes[] = {0, 8, 4095, 12285, 100002, 1000006};
    MPI_Session session;
    MPI_Group world, self;
    MPI_Comm own = MPI_COMM_NULL, one, other, copy;
    MPI_OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    MPI_OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world));
    if ((check.rank + round) % 2 == 1) { // the next ones have another place here than elsewhere
        MPI_OK(MPI_Group_from_session_pset(session, "mpi://SELF", &self));
        MPI_OK(MPI_Comm_create_from_group(self, "own", MPI_INFO_NULL, MPI_ERRORS_RETURN, &own));
        MPI_OK(MPI_Group_free(&self));
    }
    MPI_OK(MPI_Comm_create_from_group(world, "one", MPI_INFO_NULL, MPI_ERRORS_RETURN, &one));
    MPI_OK(MPI_Comm_create_from_group(world, "other", MPI_INFO_NULL, MPI_ERRORS_RETURN, &other));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        around_the_ring(one, other, sizes[i]);
    MPI_OK(MPI_Comm_dup(one, &copy));
    around_the_ring(copy, one, 77);
    int sum = 0, term = check.rank + 1;
    MPI_OK(MPI_Allreduce(&term, &sum, 1, MPI_INT, MPI_SUM, copy));
    check_int("the sum over a duplicate", check.size * (check.size + 1) / 2, sum);
    MPI_OK(MPI_Comm_free(&copy));
    MPI_OK(MPI_Comm_free(&one));
    MPI_OK(MPI_Comm_free(&other));
    if (own != MPI_COMM_NULL)
        MPI_OK(MPI_Comm_free(&own));
    MPI_OK(MPI_Group_free(&world));
    MPI_OK(MPI_Session_finalize(&session));
}
#endif

int main(int argc, char **argv) {
    check_start(&argc, &argv, 1);
#ifdef MPI_SESSION_NULL
    check_case("communicators_without_a_parent_carry_messages");
    for (int round = 0; round < 3; round++)
        a_session(round);
    check_end_case();
#else
    check_skip("communicators_without_a_parent_carry_messages", "this MPI has no sessions");
#endif
    return check_finish();
}
