// SPDX-License-Identifier: MIT OR Apache-2.0
//
// MPI_Finalize with requests pending: receives that nothing comes for, in communicators that are freed and in one that is not,
// freed requests among them; short and long sends that nobody receives; messages that nobody received; persistent requests that were
// never started. MPI calls most of that erroneous, and programs do it all the same: the job ends, and in time. Runs with 1
// or more ranks.
#include "check.h"

enum { SHORT = 100, LONG = 1 << 20 };

static char out[LONG], in[LONG];

int main(int argc, char **argv) {
    MPI_Request request;
    MPI_Comm freed, kept;
    check_start(&argc, &argv, 1);
    int peer = (check.rank + 1) % check.size;
    check_case("mpi_ends_though_requests_are_pending");
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &freed));
    MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &kept));
    MPI_Comm communicators[] = {MPI_COMM_WORLD, freed, kept};
    for (int i = 0; i < 3; i++) {
        MPI_OK(MPI_Irecv(in, SHORT, MPI_CHAR, MPI_ANY_SOURCE, 1, communicators[i], &request));
        MPI_OK(MPI_Irecv(in, SHORT, MPI_CHAR, peer, 2, communicators[i], &request));
        MPI_OK(MPI_Request_free(&request));
        MPI_OK(MPI_Isend(out, SHORT, MPI_CHAR, peer, 3, communicators[i], &request));
        MPI_OK(MPI_Isend(out, LONG, MPI_CHAR, peer, 4, communicators[i], &request));
        MPI_OK(MPI_Recv_init(in, SHORT, MPI_CHAR, peer, 5, communicators[i], &request));
        MPI_OK(MPI_Ssend_init(out, SHORT, MPI_CHAR, peer, 6, communicators[i], &request));
    }
    MPI_OK(MPI_Comm_free(&freed));
    check_end_case();
    return check_finish();
}
