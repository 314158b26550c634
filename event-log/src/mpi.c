/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The parts of MPI's public headers that only a C compiler can read: names that are macros. Called by mpi.rs. */
#include <ibex_mpi_t.h>
#include <stddef.h>

int ibex_log_is_success(int code)
{
    return code == MPI_SUCCESS;
}

MPI_Info ibex_log_info_null(void)
{
    return MPI_INFO_NULL;
}

/* Kind of a datatype: 0 a signed number, 1 an unsigned one, -1 unknown. Its size goes to *size. */
int ibex_log_kind(MPI_Datatype datatype, int *size)
{
    const struct {
        MPI_Datatype datatype;
        int size, kind;
    } known[] = {
        {MPI_INT, sizeof(int), 0},
        {MPI_UNSIGNED, sizeof(unsigned), 1},
        {MPI_LONG, sizeof(long), 0},
        {MPI_UNSIGNED_LONG, sizeof(unsigned long), 1},
        {MPI_UNSIGNED_LONG_LONG, sizeof(unsigned long long), 1},
        {MPI_COUNT, sizeof(MPI_Count), 0},
    };
    for (unsigned i = 0; i < sizeof known / sizeof *known; ++i) {
        if (known[i].datatype == datatype) {
            *size = known[i].size;
            return known[i].kind;
        }
    }
    *size = 0;
    return -1;
}

/* This process's rank in MPI_COMM_WORLD; only while MPI is initialised. */
int ibex_log_rank(void)
{
    int rank = -1;
    return PMPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS ? rank : -1;
}

int ibex_log_ranks(void)
{
    int ranks = -1;
    return PMPI_Comm_size(MPI_COMM_WORLD, &ranks) == MPI_SUCCESS ? ranks : -1;
}

int ibex_log_is_spawned(void)
{
    MPI_Comm parent = MPI_COMM_NULL;
    return PMPI_Comm_get_parent(&parent) == MPI_SUCCESS && parent != MPI_COMM_NULL;
}

/* The calling thread's rings (rings.rs): the logger's and the recorder's. In this model the variable exists from the
 * thread's start, so no access allocates. Within a callback, which may run inside free, nothing may allocate. */
static __thread const void *mine[2] __attribute__((tls_model("initial-exec")));

const void **ibex_log_mine(void)
{
    return mine;
}
