/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Rank 0 gives rank 1 the same 10 MiB in two ways, by a message and by a put into rank 1's window, and gets them back.
 * `ibex trace` and the logger show the events of each. 2 ranks.
 *
 *     mpicc -O2 -o put_get examples/put_get.c
 *
 * The window is made of memory that the program has (MPI_Win_create). MPI_Win_allocate would let ranks of one host share
 * the window's memory, so that a put between them would be a copy by the processor, which no adapter sees.
 */
#include <mpi.h>
#include <string.h>

enum { BYTES = 10 << 20, TAG = 7, OWNER = 1 };

int main(int argc, char **argv)
{
    static char given[BYTES], owned[BYTES], got[BYTES];
    int rank, ranks;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    memset(given, 'x', BYTES);
    if (rank == 0)
        MPI_Send(given, BYTES, MPI_BYTE, OWNER, TAG, MPI_COMM_WORLD);
    else
        MPI_Recv(got, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);

    MPI_Win_create(owned, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, OWNER, 0, window);
        MPI_Put(given, BYTES, MPI_BYTE, OWNER, 0, BYTES, MPI_BYTE, window);
        MPI_Win_flush(OWNER, window);
        MPI_Get(got, BYTES, MPI_BYTE, OWNER, 0, BYTES, MPI_BYTE, window);
        MPI_Win_unlock(OWNER, window);
        if (memcmp(given, got, BYTES) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
