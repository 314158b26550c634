// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Tens of thousands of communicators alive at once are made, work, and are freed. Rank 0 prints what it took of the
// processor to make and to free them, and to free 2000 of them beside the others and 2000 alone, for who compares.
//
// usage: many_communicators [--communicators N]     (default 20000 times IBEX_TEST_SCALE; stock ob1 has up to 65,000)
#include "check.h"
#include <time.h>

enum { SAMPLE = 2000 };

// Seconds of this process' processors.
static double spent(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void make(MPI_Comm *comms, int count) {
    for (int i = 0; i < count; i++)
        MPI_OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
}

// Frees so many, and returns what that took.
static double freed(MPI_Comm *comms, int count) {
    double before = spent();
    for (int i = 0; i < count; i++)
        MPI_OK(MPI_Comm_free(&comms[i]));
    return spent() - before;
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 1);
    int count = scaled(20000, 2 * SAMPLE);
    if (argc == 3 && !strcmp(argv[1], "--communicators"))
        count = atoi(argv[2]);
    if (count < 2 * SAMPLE) {
        if (check.rank == 0)
            fprintf(stderr, "usage: many_communicators [--communicators N], N at least %d\n", 2 * SAMPLE);
        MPI_Finalize();
        return CHECK_USAGE_EXIT;
    }

    check_case("%d communicators at once", count);
    MPI_Comm *comms = check_alloc((size_t)count * sizeof *comms);
    // In this order: what has had many places may keep them.
    make(comms, SAMPLE);
    double of_few = freed(comms, SAMPLE);
    double began = spent();
    make(comms, count);
    double made = spent();
    for (int i = 0; i < count; i += SAMPLE / 2) {
        int sent = i, got = -1, right = (check.rank + 1) % check.size, left = (check.rank + check.size - 1) % check.size;
        MPI_OK(MPI_Sendrecv(&sent, 1, MPI_INT, right, 0, &got, 1, MPI_INT, left, 0, comms[i], MPI_STATUS_IGNORE));
        check_int("message", i, got);
    }
    double began_to_free = spent();
    double of_many = freed(comms, SAMPLE);
    freed(comms + SAMPLE, count - SAMPLE);
    double ended = spent();
    if (check.rank == 0)
        printf("made in %.3f s, freed in %.3f s; %d of them in %.4f s, and alone in %.4f s\n", made - began,
               ended - began_to_free, SAMPLE, of_many, of_few);
    free(comms);
    check_end_case();
    return check_finish();
}
