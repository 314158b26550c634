// SPDX-License-Identifier: MIT OR Apache-2.0
//
// MPI_Init and MPI_Finalize with no traffic of the program between them: each rank reports for itself, rank 0 the
// count. To be run many times, because things that one run leaves behind disturb the next. Runs with 1 or more ranks.
//
// usage: init_finalize [--pending]
//   --pending  leaves requests, most of which MPI calls erroneous: receives without a message, some freed, in freed
//              communicators and in another; sends that nobody receives; persistent requests never started
#include "check.h"

enum { SHORT = 100, LONG = 1 << 20 };

static void leave_pending(void) {
    static char out[LONG], in[LONG];
    MPI_Request request;
    MPI_Comm freed = check_dup(MPI_COMM_WORLD), kept = check_dup(MPI_COMM_WORLD);
    MPI_Comm communicators[] = {MPI_COMM_WORLD, freed, kept};
    for (int i = 0; i < 3; i++) {
        MPI_OK(MPI_Irecv(in, SHORT, MPI_CHAR, MPI_ANY_SOURCE, 1, communicators[i], &request));
        MPI_OK(MPI_Irecv(in, SHORT, MPI_CHAR, right, 2, communicators[i], &request));
        MPI_OK(MPI_Request_free(&request));
        MPI_OK(MPI_Isend(out, SHORT, MPI_CHAR, right, 3, communicators[i], &request));
        MPI_OK(MPI_Isend(out, LONG, MPI_CHAR, right, 4, communicators[i], &request));
        MPI_OK(MPI_Recv_init(in, SHORT, MPI_CHAR, right, 5, communicators[i], &request));
        MPI_OK(MPI_Ssend_init(out, SHORT, MPI_CHAR, right, 6, communicators[i], &request));
    }
    MPI_OK(MPI_Comm_free(&freed));
}

int main(int argc, char **argv) {
    bool pending = check_flag(argc, argv, "--pending");
    int version, subversion, running = 0, finished = 0;
    check_start(&argc, &argv, 1);
    check_no_more(argc);
    check_case(pending ? "mpi_ends_though_requests_are_pending" : "mpi_starts_and_ends_without_traffic");
    MPI_Initialized(&running);
    MPI_Get_version(&version, &subversion);
    check_int("MPI runs", 1, running);
    check_true("MPI version is at least 3", version >= 3);
    check_true("rank is one of the ranks", check.rank >= 0 && check.rank < check.size);
    if (pending)
        leave_pending();
    MPI_Finalize();
    MPI_Finalized(&finished);
    check_int("MPI has ended", 1, finished);
    bool good = atomic_load(&check.wrong) == 0;
    if (good && check.rank == 0)
        printf("ok %s\n", check.name);
    if (check.rank == 0)
        printf("%d passed, %d failed\n", good, !good);
    return good ? 0 : 1;
}
