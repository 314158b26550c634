/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Communicators for PERUSE: whether one is valid, its ranks, and calls when it is duplicated or freed, by an attribute
 * of ibex on it. Called only by communicator.rs, which has the functions that MPI calls back; Open MPI then holds no
 * lock of its own. Grade: setup. Threads: any. Tests: those of communicator.rs. */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#include "attribute.h"
#include "ompi/communicator/communicator.h"
#include "ompi/group/group.h"
#include "release.h"

static int keyval = MPI_KEYVAL_INVALID;

/* Functions of communicator.rs: `duplicated` returns the number of a communicator's duplicate, 0 for none. */
static uint64_t (*duplicated)(uint64_t, void *);
static void (*freed)(uint64_t);

static void *ibex_copied(void *value, MPI_Comm made)
{
    return (void *) (uintptr_t) duplicated((uint64_t) (uintptr_t) value, made);
}

static int deleted(MPI_Comm comm, int key, void *value, void *extra)
{
    (void) comm, (void) key, (void) extra;
    freed((uint64_t) (uintptr_t) value);
    return MPI_SUCCESS;
}

void *ibex_tool_comm_world(void)
{
    return MPI_COMM_WORLD;
}

/* Whether MPI has this communicator now. Only compares the pointer, because a freed one may point anywhere. */
bool ibex_tool_comm_is_valid(void *comm)
{
    int count = opal_pointer_array_get_size(&ompi_mpi_communicators);
    for (int i = 0; comm != NULL && i < count; ++i)
        if (opal_pointer_array_get_item(&ompi_mpi_communicators, i) == comm)
            return !ompi_comm_invalid((ompi_communicator_t *) comm);
    return 0;
}

/* The number that was set on a communicator, 0 for none. */
uint64_t ibex_tool_comm_number(void *comm)
{
    void *value = NULL;
    int there = 0;
    if (keyval == MPI_KEYVAL_INVALID || PMPI_Comm_get_attr((MPI_Comm) comm, keyval, &value, &there) != MPI_SUCCESS || !there)
        return 0;
    return (uint64_t) (uintptr_t) value;
}

/* Called by one thread at a time. */
int ibex_tool_comm_set_number(void *comm, uint64_t number, uint64_t (*on_duplicated)(uint64_t, void *), void (*on_freed)(uint64_t))
{
    ompi_attribute_fn_ptr_union_t copy = {.attr_communicator_copy_fn = ibex_attribute_copied};
    ompi_attribute_fn_ptr_union_t delete = {.attr_communicator_delete_fn = deleted};
    duplicated = on_duplicated;
    freed = on_freed;
    if (keyval == MPI_KEYVAL_INVALID && ompi_attr_create_keyval(COMM_ATTR, copy, delete, &keyval, NULL, 0, NULL) != OMPI_SUCCESS)
        return 0;
    return PMPI_Comm_set_attr((MPI_Comm) comm, keyval, (void *) (uintptr_t) number) == MPI_SUCCESS;
}

/* Writes `count` elements: for each rank of a job its rank in the communicator (in the remote group of an
 * intercommunicator), or -1 if it has none, or several in different jobs. Returns the highest rank of a job plus 1. */
uint32_t ibex_tool_comm_ranks(void *comm, int *of_job, uint32_t count)
{
    ompi_group_t *group = ((ompi_communicator_t *) comm)->c_remote_group;
    uint32_t most = 0;
    enum { NONE = -1, SEVERAL = -2 };
    for (uint32_t i = 0; i < count; ++i)
        of_job[i] = NONE;
    for (int rank = 0; rank < ompi_group_size(group); ++rank) {
        uint32_t in_job = ompi_group_get_proc_name(group, rank).vpid;
        most = in_job >= most ? in_job + 1 : most;
        if (in_job < count)
            of_job[in_job] = of_job[in_job] == NONE ? rank : SEVERAL;
    }
    for (uint32_t i = 0; i < count; ++i)
        if (of_job[i] == SEVERAL)
            of_job[i] = NONE;
    return most;
}

void *ibex_tool_byte(void)
{
    return MPI_BYTE;
}

void ibex_tool_abort(int code)
{
    PMPI_Abort(MPI_COMM_WORLD, code);
}
