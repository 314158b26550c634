// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A callback of PERUSE that returns, at the tenth message from its peer, what the program is started with: unless that is MPI_SUCCESS
// the job ends there, and "went on" is not printed. 2 or more ranks.
#include "../mpi/check.h"
#include <peruse.h>

static int received, answer;

static int on_message(peruse_event_h handle, MPI_Aint id, peruse_comm_spec_t *spec, void *parameter) {
    (void)handle, (void)id, (void)parameter;
    if (spec->operation == PERUSE_RECV && spec->tag >= 0)
        received++;
    return received == 10 ? answer : MPI_SUCCESS;
}

int main(int argc, char **argv) {
    peruse_event_h handle;
    check_start(&argc, &argv, 2);
    check_case("a callback that returns %s", argc > 1 ? argv[1] : "nothing");
    answer = argc > 1 ? atoi(argv[1]) : MPI_SUCCESS;
    check_int("PERUSE_Init", PERUSE_SUCCESS, PERUSE_Init());
    if (check.rank == 1) {
        check_int("register", PERUSE_SUCCESS,
                  PERUSE_Event_comm_register(PERUSE_COMM_REQ_XFER_END, MPI_COMM_WORLD, on_message, NULL, &handle));
        check_int("activate", PERUSE_SUCCESS, PERUSE_Event_activate(handle));
    }
    for (int i = 0; i < 100; i++) {
        int number = i;
        MPI_OK(MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD));
        if (check.rank < 2)
            MPI_OK(MPI_Sendrecv_replace(&number, 1, MPI_INT, 1 - check.rank, 0, 1 - check.rank, 0, MPI_COMM_WORLD,
                                        MPI_STATUS_IGNORE));
    }
    if (check.rank == 1)
        check_int("release", PERUSE_SUCCESS, PERUSE_Event_release(&handle));
    printf("went on\n");
    check_end_case();
    return check_finish();
}
