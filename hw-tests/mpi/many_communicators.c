// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Tens of thousands of communicators alive at once: what it costs to free one does not depend on how many others there
// are, as a transport must not look at those. Processor time is compared, which a busy machine does not change. Rank 0
// prints what all of it took, for who compares it with another transport.
//
// usage: many_communicators [--communicators N]     (default 20000 times IBEX_TEST_SCALE; stock ob1 has up to 65,000)
#include "check.h"
#include <time.h>

enum { SAMPLE = 2000, NOISE = 4 };

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

    check_case("freeing one of %d communicators costs what freeing one of %d does", count, SAMPLE);
    MPI_Comm *comms = check_alloc((size_t)count * sizeof *comms);
    // In this order: what has had many places may keep them.
    make(comms, SAMPLE);
    double of_few = freed(comms, SAMPLE);
    double began = spent();
    make(comms, count);
    double made = spent();
    double of_many = freed(comms, SAMPLE);
    freed(comms + SAMPLE, count - SAMPLE);
    double ended = spent();
    // That much is noise; who looks at 20,000 others for each takes far longer.
    if (of_many > NOISE * of_few + 0.02)
        check_fail("freeing %d: expected about %.4f s, got %.4f s", SAMPLE, of_few, of_many);
    if (check.rank == 0)
        printf("made in %.3f s, freed in %.3f s\n", made - began, ended - made);
    free(comms);
    check_end_case();
    return check_finish();
}
