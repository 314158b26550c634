/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Communicators as PERUSE needs them: whether one is valid, who is in it, and word when it is duplicated or freed, by an
 * attribute of ibex's on it. Called by communicator.rs alone, which has the functions that are called back. Grade: setup, but
 * for ibex_tool_comm_of_context.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>

#include "ompi/communicator/communicator.h"

int ibex_tool_comm_is_valid(void *comm);
uint64_t ibex_tool_comm_number(void *comm);
int ibex_tool_comm_set_number(void *comm, uint64_t number, uint64_t (*on_duplicated)(uint64_t), void (*on_freed)(uint64_t));
void *ibex_tool_comm_of_context(uint64_t context);
int ibex_tool_comm_ranks(void *comm, int *of_world, int count);
int ibex_tool_world_size(void);
void *ibex_tool_byte(void);
void ibex_tool_abort(int code);

static int keyval = MPI_KEYVAL_INVALID;

/* Of communicator.rs: the number of the duplicate of a communicator, 0 for none; a communicator is gone. */
static uint64_t (*duplicated)(uint64_t);
static void (*freed)(uint64_t);

static int copied(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag)
{
    uint64_t number = duplicated((uint64_t) (uintptr_t) value);
    (void) comm, (void) key, (void) extra;
    *(void **) copy = (void *) (uintptr_t) number;
    *flag = number != 0;
    return MPI_SUCCESS;
}

static int deleted(MPI_Comm comm, int key, void *value, void *extra)
{
    (void) comm, (void) key, (void) extra;
    freed((uint64_t) (uintptr_t) value);
    return MPI_SUCCESS;
}

int ibex_tool_comm_is_valid(void *comm)
{
    return comm != NULL && !ompi_comm_invalid((ompi_communicator_t *) comm);
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

/* By one thread at a time. */
int ibex_tool_comm_set_number(void *comm, uint64_t number, uint64_t (*on_duplicated)(uint64_t), void (*on_freed)(uint64_t))
{
    duplicated = on_duplicated;
    freed = on_freed;
    if (keyval == MPI_KEYVAL_INVALID && PMPI_Comm_create_keyval(copied, deleted, &keyval, NULL) != MPI_SUCCESS)
        return 0;
    return PMPI_Comm_set_attr((MPI_Comm) comm, keyval, (void *) (uintptr_t) number) == MPI_SUCCESS;
}

/* The communicator whose messages carry this number. */
void *ibex_tool_comm_of_context(uint64_t context)
{
    return ompi_comm_lookup((uint32_t) context);
}

int ibex_tool_world_size(void)
{
    int size = 0;
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

/* For each rank of the job its rank in the communicator (the other side of it, if it has two), -1 for none. */
int ibex_tool_comm_ranks(void *comm, int *of_world, int count)
{
    int inter = 0, good = 0;
    MPI_Group group = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
    int *ranks = malloc((size_t) count * sizeof *ranks);
    PMPI_Comm_test_inter((MPI_Comm) comm, &inter);
    if (ranks != NULL && (inter ? PMPI_Comm_remote_group((MPI_Comm) comm, &group) : PMPI_Comm_group((MPI_Comm) comm, &group)) == MPI_SUCCESS
        && PMPI_Comm_group(MPI_COMM_WORLD, &world) == MPI_SUCCESS) {
        for (int rank = 0; rank < count; ++rank)
            ranks[rank] = rank;
        good = PMPI_Group_translate_ranks(world, count, ranks, group, of_world) == MPI_SUCCESS;
        for (int rank = 0; good && rank < count; ++rank)
            if (of_world[rank] == MPI_UNDEFINED)
                of_world[rank] = -1;
    }
    if (group != MPI_GROUP_NULL)
        PMPI_Group_free(&group);
    if (world != MPI_GROUP_NULL)
        PMPI_Group_free(&world);
    free(ranks);
    return good;
}

void *ibex_tool_byte(void)
{
    return MPI_BYTE;
}

void ibex_tool_abort(int code)
{
    PMPI_Abort(MPI_COMM_WORLD, code);
}
