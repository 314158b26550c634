// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reads performance variables of ibex by name: counts_open() once after MPI_Init, count_of() any number of times,
// counts_close() before MPI_Finalize (the other order crashes in Open MPI 4.1). If a variable only grows, count_of()
// returns its growth since counts_open(). Main thread only.
#ifndef IBEX_HW_TESTS_COUNTS_H
#define IBEX_HW_TESTS_COUNTS_H

#include "check.h"

enum { COUNTS_MOST = 8 };

static struct {
    MPI_T_pvar_session session;
    const char *names[COUNTS_MOST];
    MPI_T_pvar_handle handles[COUNTS_MOST];
    int opened;
} counts;

static inline void counts_open(const char *const *names, int number) {
    int provided, known;
    MPI_OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    MPI_OK(MPI_T_pvar_session_create(&counts.session));
    MPI_OK(MPI_T_pvar_get_num(&known));
    for (int i = 0; i < known; i++) {
        char name[256];
        int bytes = sizeof name, verbosity, class, bind, readonly, continuous, atomic, elements;
        MPI_Datatype type;
        MPI_T_enum enumeration;
        if (MPI_T_pvar_get_info(i, name, &bytes, &verbosity, &class, &type, &enumeration, NULL, NULL, &bind, &readonly,
                                &continuous, &atomic) != MPI_SUCCESS)
            continue;
        for (int n = 0; n < number; n++)
            if (strcmp(name, names[n]) == 0 && type == MPI_UNSIGNED_LONG_LONG && counts.opened < COUNTS_MOST) {
                counts.names[counts.opened] = names[n];
                MPI_OK(MPI_T_pvar_handle_alloc(counts.session, i, NULL, &counts.handles[counts.opened], &elements));
                if (!continuous)
                    MPI_OK(MPI_T_pvar_start(counts.session, counts.handles[counts.opened]));
                counts.opened++;
            }
    }
    check_int("performance variables found", number, counts.opened);
}

// The value of a variable, summed over all ports.
static inline unsigned long long count_of(const char *name) {
    for (int n = 0; n < counts.opened; n++)
        if (strcmp(counts.names[n], name) == 0) {
            unsigned long long value[16] = {0}, sum = 0;
            MPI_OK(MPI_T_pvar_read(counts.session, counts.handles[n], value));
            for (int i = 0; i < 16; i++)
                sum += value[i];
            return sum;
        }
    check_fail("%s: expected a performance variable, found none", name);
    return 0;
}

static inline void counts_close(void) {
    for (int n = 0; n < counts.opened; n++)
        MPI_OK(MPI_T_pvar_handle_free(counts.session, &counts.handles[n]));
    MPI_OK(MPI_T_pvar_session_free(&counts.session));
    MPI_OK(MPI_T_finalize());
}

#endif
