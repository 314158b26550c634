/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Linked with ibex first and an MPI with the call second: the MPI answers. */
#include <ibex_mpi_t.h>

int main(void)
{
    int count = 0;
    return !(MPI_T_event_get_num(&count) == MPI_SUCCESS && count == 7777 && PMPI_T_event_get_num(&count) == MPI_SUCCESS);
}
