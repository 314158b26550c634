/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An attribute of communicators whose copying is told with the communicator that it is copied to: in Open MPI 4.1, whose internal
 * copy functions are passed it. Included by plugin-abi/src/tool/communicator.c alone; openmpi/v5_0 has its counterpart. */
#ifndef IBEX_OPENMPI_ATTRIBUTE_H
#define IBEX_OPENMPI_ATTRIBUTE_H

#include "ompi/attribute/attribute.h"
#include "ompi/communicator/communicator.h"

/* The attribute's value for the new communicator; NULL: it has none. The communicator has no number yet. */
typedef void *ibex_copied_fn(void *value, MPI_Comm made);

static ibex_copied_fn *ibex_tell_copied;

static int ibex_attribute_copied(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag, MPI_Comm made)
{
    (void) comm, (void) key, (void) extra;
    *(void **) copy = ibex_tell_copied(value, made);
    *flag = *(void **) copy != NULL;
    return MPI_SUCCESS;
}

/* By one thread at a time. Returns an OMPI code. */
static int ibex_attribute_create(int *key, ibex_copied_fn *copied, MPI_Comm_delete_attr_function *deleted)
{
    ompi_attribute_fn_ptr_union_t copy = {.attr_communicator_copy_fn = ibex_attribute_copied};
    ompi_attribute_fn_ptr_union_t delete = {.attr_communicator_delete_fn = deleted};
    ibex_tell_copied = copied;
    return ompi_attr_create_keyval(COMM_ATTR, copy, delete, key, NULL, 0, NULL);
}

#endif
