/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A tool as a library, compiled twice: as TOOL one, which also intercepts the allocation of registrations by the MPI_T_
 * name, and as TOOL two, which does not. Used by two_tools.c. */
#include "callbacks.h"
#include "two_tools.h"

#define JOINED(tool, name) tool##_##name
#define OF(tool, name) JOINED(tool, name)

static void on_free(MPI_T_event_registration, MPI_T_cb_safety, void *user) { ++*(atomic_int *) user; }

/* Number of its registrations that have ended. */
atomic_int OF(TOOL, ended);

/* Registers for every type, and frees everything again; returns the number of failed calls. */
int OF(TOOL, turn)(void)
{
    MPI_T_event_registration registrations[64];
    int types, bad = 0;
    if (MPI_T_event_get_num(&types) != MPI_SUCCESS || types > 64)
        return 1;
    for (int i = 0; i < types; ++i) {
        bad += MPI_T_event_handle_alloc(i, NULL, MPI_INFO_NULL, &registrations[i]) != MPI_SUCCESS;
        bad += MPI_T_event_register_callback(registrations[i], MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, NULL, on_event)
            != MPI_SUCCESS;
    }
    for (int i = 0; i < types; ++i)
        bad += MPI_T_event_handle_free(registrations[i], &OF(TOOL, ended), on_free) != MPI_SUCCESS;
    return bad;
}

#ifdef INTERCEPTS
atomic_int intercepted;

int MPI_T_event_handle_alloc(int event_index, void *obj_handle, MPI_Info info, MPI_T_event_registration *event_registration)
{
    ++intercepted;
    return PMPI_T_event_handle_alloc(event_index, obj_handle, info, event_registration);
}
#endif
