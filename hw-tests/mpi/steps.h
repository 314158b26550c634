// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Steps by which two ranks of a host synchronise through shared memory, without messages. Both call steps_begin() once;
// then each say() of one rank ends one hear() of the other. Main thread only.
#pragma once

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

static struct {
    // Number of say() calls of each rank, in shared memory.
    atomic_int *said;
    int heard;
} steps;

// Maps the shared memory. Collective over both ranks.
static inline void steps_begin(void) {
    int number = getpid();
    char name[64];
    MPI_OK(MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD));
    snprintf(name, sizeof name, "/ibex-steps-%d", number);
    int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    void *memory = MAP_FAILED;
    if (file >= 0 && ftruncate(file, 2 * sizeof *steps.said) == 0)
        memory = mmap(NULL, 2 * sizeof *steps.said, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        check_fail("%s: expected memory that both ranks share, got %s", name, strerror(errno));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    close(file);
    steps.said = memory;
    // After the barrier both ranks have opened the file, so its name can go.
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    shm_unlink(name);
}

static inline void say(void) { atomic_fetch_add(&steps.said[check.rank], 1); }

// Spins until the other rank has called say() once more than this rank has called hear().
static inline void hear(void) {
    for (steps.heard++; atomic_load(&steps.said[!check.rank]) < steps.heard;)
        ;
}
