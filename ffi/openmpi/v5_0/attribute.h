/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An attribute of communicators whose copy function learns the new communicator, too. Open MPI 5.0 passes only the old
 * one, but the new one is already in its table of communicators, without a number (ompi_comm_set_nb). Included by
 * plugin-abi/src/tool/communicator.c only; openmpi/v4_1 has its counterpart. */
#ifndef IBEX_OPENMPI_ATTRIBUTE_H
#define IBEX_OPENMPI_ATTRIBUTE_H

#include "ompi/attribute/attribute.h"
#include "ompi/communicator/communicator.h"

/* Returns the attribute's value for the new communicator, which has no number yet; NULL: none. By communicator.c. */
static void *ibex_copied(void *value, MPI_Comm made);

/* Finds the copy of a communicator that is being made: it has the same group, no number, and not this attribute, which
 * earlier copies that wait for their number have. MPI forbids two threads to copy one communicator at once. */
static MPI_Comm ibex_being_made(const ompi_communicator_t *of, int key)
{
    for (int i = opal_pointer_array_get_size(&ompi_comm_f_to_c_table); i > 0; --i) {
        ompi_communicator_t *comm = opal_pointer_array_get_item(&ompi_comm_f_to_c_table, i - 1);
        void *value = NULL;
        int there = 0;
        if (comm == NULL || comm == of || (uintptr_t) comm == UINTPTR_MAX || comm->c_index != (uint32_t) MPI_UNDEFINED)
            continue;
        if (comm->c_local_group == of->c_local_group && comm->c_keyhash != NULL &&
            ompi_attr_get_c(comm->c_keyhash, key, &value, &there) == MPI_SUCCESS && !there)
            return comm;
    }
    return MPI_COMM_NULL;
}

static int ibex_attribute_copied(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag)
{
    MPI_Comm made = ibex_being_made(comm, key);
    (void) extra;
    *(void **) copy = made == MPI_COMM_NULL ? NULL : ibex_copied(value, made);
    *flag = *(void **) copy != NULL;
    return MPI_SUCCESS;
}

#endif
