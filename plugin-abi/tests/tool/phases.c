/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* MPI counts calls of MPI_T_init_thread and MPI_T_finalize, and the calls of the events work between them, before and
 * inside MPI. A registration outlives the last MPI_T_finalize. Does not call MPI_T_finalize after MPI_Finalize, because
 * Open MPI 4.1 crashes there. */
#include <ibex_mpi_t.h>
#include "callbacks.h"
#include "expect.h"

static void is_initialized(int wanted)
{
    int count = -7, code = wanted ? MPI_SUCCESS : MPI_T_ERR_NOT_INITIALIZED;
    MPI_Count now = -7;
    EXPECT(code, MPI_T_event_get_num(&count));
    EXPECT(code, MPI_T_source_get_timestamp(0, &now));
    HOLDS((count == -7) == !wanted && (now == -7) == !wanted);
}

static void nested(void)
{
    int provided, freed = 0;
    MPI_T_event_registration kept;
    is_initialized(0);
    EXPECT(MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    EXPECT(MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided));
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &kept));
    EXPECT(MPI_SUCCESS, MPI_T_event_register_callback(kept, MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_INFO_NULL, NULL, on_event));
    EXPECT(MPI_SUCCESS, MPI_T_finalize());
    is_initialized(1);
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_set_info(kept, MPI_INFO_NULL));
    EXPECT(MPI_SUCCESS, MPI_T_finalize());
    is_initialized(0);
    EXPECT(MPI_T_ERR_NOT_INITIALIZED, MPI_T_finalize());
    EXPECT(MPI_T_ERR_NOT_INITIALIZED, MPI_T_event_handle_free(kept, &freed, count_free));
    HOLDS(freed == 0);
    EXPECT(MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    is_initialized(1);
    EXPECT(MPI_SUCCESS, MPI_T_event_handle_free(kept, &freed, count_free));
    HOLDS(freed == 1);
    EXPECT(MPI_T_ERR_INVALID_HANDLE, MPI_T_event_handle_free(kept, &freed, count_free));
    EXPECT(MPI_SUCCESS, MPI_T_finalize());
    is_initialized(0);
}

int main(int argc, char **argv)
{
    nested();
    MPI_Init(&argc, &argv);
    nested();
    EXPECT(MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &(int){0}));
    MPI_Finalize();
    is_initialized(1);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
