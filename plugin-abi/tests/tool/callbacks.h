/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Callbacks for programs of this folder that check the results of calls: they do nothing, or count their calls. */
#pragma once

#include <ibex_mpi_t.h>

static inline void on_event(MPI_T_event_instance, MPI_T_event_registration, MPI_T_cb_safety, void *) {}

static inline void on_dropped(MPI_Count, MPI_T_event_registration, int, MPI_T_cb_safety, void *) {}

static inline void count_free(MPI_T_event_registration, MPI_T_cb_safety, void *count) { ++*(int *) count; }
