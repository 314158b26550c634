// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reads a performance variable of ibex, which has a value for each port or source: counter_open() after MPI_Init, and
// counter_close() before MPI_Finalize (the other order crashes in Open MPI 4.1). A variable that only grows counts from
// counter_open() on. Main thread only.
#pragma once

#include "check.h"

enum { COUNTER_VALUES = 256 };

struct counter {
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    int values;
};

static inline void counter_open(struct counter *counter, const char *name) {
    static const int classes[] = {MPI_T_PVAR_CLASS_COUNTER, MPI_T_PVAR_CLASS_LEVEL, MPI_T_PVAR_CLASS_SIZE};
    int index, code = MPI_T_ERR_INVALID_NAME;
    MPI_OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}));
    for (int i = 0; i < 3 && code != MPI_SUCCESS; i++)
        code = MPI_T_pvar_get_index(name, classes[i], &index);
    check_mpi(code, name, __FILE__, __LINE__);
    MPI_OK(MPI_T_pvar_session_create(&counter->session));
    MPI_OK(MPI_T_pvar_handle_alloc(counter->session, index, NULL, &counter->handle, &counter->values));
    check_true("room for a counter's values", counter->values <= COUNTER_VALUES);
}

static inline long long counted_of(const struct counter *counter, int place) {
    unsigned long long values[COUNTER_VALUES] = {0};
    MPI_OK(MPI_T_pvar_read(counter->session, counter->handle, values));
    return (long long)values[place];
}

// The sum of all values.
static inline long long counted(const struct counter *counter) {
    unsigned long long values[COUNTER_VALUES] = {0}, sum = 0;
    MPI_OK(MPI_T_pvar_read(counter->session, counter->handle, values));
    for (int place = 0; place < counter->values; place++)
        sum += values[place];
    return (long long)sum;
}

static inline void counter_close(struct counter *counter) {
    MPI_OK(MPI_T_pvar_handle_free(counter->session, &counter->handle));
    MPI_OK(MPI_T_pvar_session_free(&counter->session));
    MPI_OK(MPI_T_finalize());
}
