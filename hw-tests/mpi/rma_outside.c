// SPDX-License-Identifier: MIT OR Apache-2.0
//
// An atomic operation on memory of another rank that is in no window and not even mapped. It is erroneous: the job must
// end, and say why. Runs with 2 ranks, and --mca mpi_param_check 0, as libmpi refuses the displacement otherwise.
#include "check.h"

enum { NOWHERE = 4096 }; // below the lowest address that a process can map

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    static int64_t memory;
    MPI_Win window;
    MPI_OK(MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    MPI_Aint address;
    MPI_OK(MPI_Get_address(&memory, &address));
    MPI_OK(MPI_Bcast(&address, 1, MPI_AINT, 1, MPI_COMM_WORLD));
    check_case("an_atomic_outside_of_the_window_does_not_return");
    MPI_OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, window));
    if (check.rank == 0) {
        int64_t one = 1, was = 0;
        MPI_Fetch_and_op(&one, &was, MPI_INT64_T, 1, NOWHERE - address, MPI_SUM, window);
        MPI_Win_flush(1, window);
        check_fail("MPI_Win_flush: expected the end of the job, got %lld", (long long)was);
    }
    MPI_OK(MPI_Win_unlock_all(window));
    MPI_OK(MPI_Win_free(&window));
    return check_finish();
}
