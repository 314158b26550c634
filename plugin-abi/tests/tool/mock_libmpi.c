/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A mock of an MPI that has the events itself: each call answers a number of its own if it got the arguments that
 * handed_on.c passes, in their order, and 1 if not. It has nothing else of an MPI. */
#include <ibex_mpi_t.h>
#include <stdarg.h>
#include "handed_on.h"

static int called(int call, int arguments, ...)
{
    int as_passed = 1;
    va_list list;
    va_start(list, arguments);
    for (int i = 0; i < arguments; ++i)
        as_passed &= va_arg(list, long) == ARGUMENT(call, i);
    va_end(list);
    return as_passed ? ANSWER(call) : 1;
}

#define TAKE(n) (long) a##n
#define MOCK(call, name, parameters, count, ...)                                                      \
    int MPI_T_##name parameters                                                                       \
    {                                                                                                 \
        return called(call, count, __VA_ARGS__);                                                      \
    }                                                                                                 \
    int PMPI_T_##name parameters                                                                      \
    {                                                                                                 \
        return called(call, count, __VA_ARGS__);                                                      \
    }

MOCK(0, event_get_num, (int *a0), 1, TAKE(0))
MOCK(1, event_get_info,
     (int a0, char *a1, int *a2, int *a3, MPI_Datatype *a4, MPI_Aint *a5, int *a6, MPI_T_enum *a7, MPI_Info *a8, char *a9,
      int *a10, int *a11),
     12, TAKE(0), TAKE(1), TAKE(2), TAKE(3), TAKE(4), TAKE(5), TAKE(6), TAKE(7), TAKE(8), TAKE(9), TAKE(10), TAKE(11))
MOCK(2, event_get_index, (const char *a0, int *a1), 2, TAKE(0), TAKE(1))
MOCK(3, event_handle_alloc, (int a0, void *a1, MPI_Info a2, MPI_T_event_registration *a3), 4, TAKE(0), TAKE(1), TAKE(2), TAKE(3))
MOCK(4, event_handle_set_info, (MPI_T_event_registration a0, MPI_Info a1), 2, TAKE(0), TAKE(1))
MOCK(5, event_handle_get_info, (MPI_T_event_registration a0, MPI_Info *a1), 2, TAKE(0), TAKE(1))
MOCK(6, event_register_callback,
     (MPI_T_event_registration a0, MPI_T_cb_safety a1, MPI_Info a2, void *a3, MPI_T_event_cb_function a4), 5, TAKE(0), TAKE(1),
     TAKE(2), TAKE(3), TAKE(4))
MOCK(7, event_callback_set_info, (MPI_T_event_registration a0, MPI_T_cb_safety a1, MPI_Info a2), 3, TAKE(0), TAKE(1), TAKE(2))
MOCK(8, event_callback_get_info, (MPI_T_event_registration a0, MPI_T_cb_safety a1, MPI_Info *a2), 3, TAKE(0), TAKE(1), TAKE(2))
MOCK(9, event_handle_free, (MPI_T_event_registration a0, void *a1, MPI_T_event_free_cb_function a2), 3, TAKE(0), TAKE(1), TAKE(2))
MOCK(10, event_set_dropped_handler, (MPI_T_event_registration a0, MPI_T_event_dropped_cb_function a1), 2, TAKE(0), TAKE(1))
MOCK(11, event_read, (MPI_T_event_instance a0, int a1, void *a2), 3, TAKE(0), TAKE(1), TAKE(2))
MOCK(12, event_copy, (MPI_T_event_instance a0, void *a1), 2, TAKE(0), TAKE(1))
MOCK(13, event_get_timestamp, (MPI_T_event_instance a0, MPI_Count *a1), 2, TAKE(0), TAKE(1))
MOCK(14, event_get_source, (MPI_T_event_instance a0, int *a1), 2, TAKE(0), TAKE(1))
MOCK(15, source_get_num, (int *a0), 1, TAKE(0))
MOCK(16, source_get_info,
     (int a0, char *a1, int *a2, char *a3, int *a4, MPI_T_source_order *a5, MPI_Count *a6, MPI_Count *a7, MPI_Info *a8), 9,
     TAKE(0), TAKE(1), TAKE(2), TAKE(3), TAKE(4), TAKE(5), TAKE(6), TAKE(7), TAKE(8))
MOCK(17, source_get_timestamp, (int a0, MPI_Count *a1), 2, TAKE(0), TAKE(1))
MOCK(18, category_get_num_events, (int a0, int *a1), 2, TAKE(0), TAKE(1))
MOCK(19, category_get_events, (int a0, int a1, int *a2), 3, TAKE(0), TAKE(1), TAKE(2))
