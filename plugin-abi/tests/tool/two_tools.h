/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What two_tools.c calls of the two libraries made of tool_library.c. */
#include <ibex_mpi_t.h>
#include <stdatomic.h>

int one_turn(void);
int two_turn(void);
extern atomic_int one_ended, two_ended;
/* Of tool one: how often any of the process allocated a registration by its MPI_T_ name. */
extern atomic_int intercepted;
