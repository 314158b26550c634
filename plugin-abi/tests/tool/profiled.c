/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A tool that intercepts a call by its own function with the MPI_T_ name, and calls ibex by the PMPI_T_ name. */
#include <ibex_mpi_t.h>
#include <stdio.h>

static int intercepted;

int MPI_T_event_get_num(int *num_events)
{
    ++intercepted;
    return PMPI_T_event_get_num(num_events);
}

int main(void)
{
    int provided, count = 0, code, sources = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    code = MPI_T_event_get_num(&count);
    if (code != MPI_SUCCESS || intercepted != 1 || count < 1)
        return 1;
    if (MPI_T_source_get_num(&sources) != MPI_SUCCESS || sources < 1)
        return 2;
    printf("intercepted\n");
    return 0;
}
