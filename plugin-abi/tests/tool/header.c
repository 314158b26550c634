/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The header in C99, in C++, before and after mpi.h, and twice. Declares callbacks by their types, because the
 * standard's are function types. Compiled, not run. */
#ifdef MPI_H_FIRST
#include <mpi.h>
#endif
#include <ibex_mpi_t.h>
#include <mpi.h>
#include <ibex_mpi_t.h>

static MPI_T_event_cb_function on_event;
static MPI_T_event_dropped_cb_function *on_dropped;
static MPI_T_event_free_cb_function *on_free;

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user)
{
    MPI_Count time;
    (void) registration, (void) safety;
    (void) MPI_T_event_get_timestamp(instance, &time);
    *(MPI_Count *) user = time;
}

int main(void)
{
    int index = MPI_T_BIND_MPI_SESSION == MPI_T_BIND_MPI_INFO;
    MPI_Count time = 0;
    MPI_T_event_registration registration = MPI_T_EVENT_REGISTRATION_NULL;
    MPI_T_source_order order = MPI_T_SOURCE_ORDERED;
    (void) PMPI_T_event_get_index("ibex_xfer_end", &index);
    (void) MPI_T_source_get_info(0, NULL, NULL, NULL, NULL, &order, NULL, NULL, NULL);
    (void) MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &registration);
    (void) MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, &time, on_event);
    (void) MPI_T_event_set_dropped_handler(registration, on_dropped);
    return MPI_T_event_handle_free(registration, NULL, on_free) == MPI_T_ERR_NOT_SUPPORTED;
}
