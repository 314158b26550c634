/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Stands for an MPI that has one of the calls itself. */
int PMPI_T_event_get_num(int *num_events);

int PMPI_T_event_get_num(int *num_events)
{
    *num_events = 7777;
    return 0;
}
