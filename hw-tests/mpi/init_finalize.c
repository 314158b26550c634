// SPDX-License-Identifier: MIT OR Apache-2.0
//
// MPI_Init and MPI_Finalize with no traffic of the program's own between them. No rank says anything to another one, so
// each reports for itself, and rank 0 for the count. Made to be run many times: what one run leaves behind shows in the
// next. Runs with 1 or more ranks.
//
// usage: init_finalize [--threads]     asks for MPI_THREAD_MULTIPLE
#include "check.h"

int main(int argc, char **argv) {
    int wanted = argc > 1 && strcmp(argv[1], "--threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    int provided = -1, version, subversion, running = 0, finished = 0;
    if (argc > 2 || (argc == 2 && wanted == MPI_THREAD_SINGLE)) {
        fprintf(stderr, "usage: init_finalize [--threads]\n");
        return CHECK_USAGE_EXIT;
    }
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    check_attach(1);
    check_case("mpi_starts_and_ends_without_traffic");
    MPI_Initialized(&running);
    MPI_Get_version(&version, &subversion);
    check_int("MPI runs", 1, running);
    check_true("MPI version is at least 3", version >= 3);
    check_true("rank is one of the ranks", check.rank >= 0 && check.rank < check.size);
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
