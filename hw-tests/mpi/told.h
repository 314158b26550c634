// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Lets a rank tell another one something by a published name (MPI_Publish_name), which moves no message. Main thread.
#pragma once

#include "check.h"

enum { PATIENCE_SECONDS = 120 };

// Names the job, as others of the same runtime may run this program, and two numbers.
static inline void told_name(char name[128], int first, int second) {
    const char *job = getenv("PMIX_NAMESPACE");
    snprintf(name, 128, "ibex %s %d %d", job ? job : "", first, second);
}

static inline void tell(int first, int second) {
    char name[128];
    told_name(name, first, second);
    MPI_OK(MPI_Publish_name(name, MPI_INFO_NULL, "told"));
}

static inline bool is_told(int first, int second) {
    char name[128], value[MPI_MAX_PORT_NAME];
    told_name(name, first, second);
    for (int tries = 0; tries < PATIENCE_SECONDS * 100; tries++) {
        if (MPI_Lookup_name(name, MPI_INFO_NULL, value) == MPI_SUCCESS)
            return true;
        check_sleep(0.01);
    }
    return false;
}
