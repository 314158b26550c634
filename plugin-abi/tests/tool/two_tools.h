/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Functions and variables of the two libraries that two_tools.c uses. */
#include <ibex_mpi_t.h>
#include <stdatomic.h>

int one_turn(void);
int two_turn(void);
extern atomic_int one_ended, two_ended;
/* Number of registrations that the process has allocated by the MPI_T_ name, which tool one counts. */
extern atomic_int intercepted;
