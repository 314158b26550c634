/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Callbacks for programs of this folder that check the results of calls: they do nothing, or count their calls. */
#ifndef IBEX_TESTS_CALLBACKS_H
#define IBEX_TESTS_CALLBACKS_H

#include <ibex_mpi_t.h>

static inline void on_event(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety,
                            void *user)
{
    (void) instance, (void) registration, (void) safety, (void) user;
}

static inline void on_dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety safety,
                              void *user)
{
    (void) count, (void) registration, (void) source, (void) safety, (void) user;
}

static inline void count_free(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *count)
{
    (void) registration, (void) safety;
    ++*(int *) count;
}

#endif
