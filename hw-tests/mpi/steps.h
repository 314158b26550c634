// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Two ranks of a host tell each other how far they have come, by memory that both share and without a message: steps_begin()
// once, then each say() of a rank is for one hear() of the other. From the main thread only.
#ifndef IBEX_HW_TESTS_STEPS_H
#define IBEX_HW_TESTS_STEPS_H

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

static struct {
    // How often each rank has said so.
    atomic_int *said;
    int heard;
} steps;

// By both ranks.
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
    // Both have opened it.
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    shm_unlink(name);
}

static inline void say(void) {
    atomic_fetch_add(&steps.said[check.rank], 1);
}

// Computes until the other rank has said so for the next time.
static inline void hear(void) {
    for (steps.heard++; atomic_load(&steps.said[!check.rank]) < steps.heard;)
        ;
}

#endif
