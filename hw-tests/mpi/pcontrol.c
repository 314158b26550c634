// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Tells profiling libraries what to record (MPI_Pcontrol): the messages with tags 1 and 3 between two ranks, but not
// those with tag 2, nor the creation of the communicator used for tag 3. A send with tag 4 and a receive with tag 5
// begin while events are recorded, and end while they are not. The caller checks the trace.
#include "check.h"

enum { MESSAGES = 20, SHORT = 8, LONG = 1 << 20 };

static char sent[LONG], got[LONG];

static void exchange(MPI_Comm comm, int tag) {
    for (int i = 0; i < MESSAGES; i++) {
        int bytes = i % 2 ? LONG : SHORT;
        memset(sent, 16 * tag + i % 16, (size_t)bytes);
        MPI_OK(MPI_Sendrecv(sent, bytes, MPI_BYTE, !check.rank, tag, got, bytes, MPI_BYTE, !check.rank, tag, comm,
                            MPI_STATUS_IGNORE));
        check_int("the last byte", sent[bytes - 1], got[bytes - 1]);
    }
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    if (check.size != 2)
        check_refuse("this program needs two ranks (mpirun -n 2)\n");
    check_case("MPI_Pcontrol selects the recorded parts");
    exchange(MPI_COMM_WORLD, 1);
    MPI_Request request;
    if (check.rank == 0)
        MPI_OK(MPI_Isend(sent, LONG, MPI_BYTE, 1, 4, MPI_COMM_WORLD, &request));
    else
        MPI_OK(MPI_Irecv(sent, LONG, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &request));
    MPI_OK(MPI_Pcontrol(0));
    if (check.rank == 0)
        MPI_OK(MPI_Send(got, LONG, MPI_BYTE, 1, 5, MPI_COMM_WORLD));
    else
        MPI_OK(MPI_Recv(got, LONG, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    exchange(MPI_COMM_WORLD, 2);
    MPI_Comm comm = check_dup(MPI_COMM_WORLD);
    MPI_OK(MPI_Barrier(comm));
    MPI_OK(MPI_Pcontrol(1));
    exchange(comm, 3);
    MPI_OK(MPI_Pcontrol(2));
    MPI_OK(MPI_Comm_free(&comm));
    return check_finish();
}
