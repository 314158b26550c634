/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An attribute of communicators whose copying is told with the communicator that it is copied to: in Open MPI 4.1, whose internal
 * copy functions are passed it. Included by plugin-abi/src/tool/communicator.c alone; openmpi/v5_0 has its counterpart. */
#ifndef IBEX_OPENMPI_ATTRIBUTE_H
#define IBEX_OPENMPI_ATTRIBUTE_H

#include "ompi/attribute/attribute.h"
#include "ompi/communicator/communicator.h"

/* The attribute's value for the new communicator; NULL: it has none. The communicator has no number yet. Of communicator.c. */
static void *ibex_copied(void *value, MPI_Comm made);

static int ibex_attribute_copied(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag, MPI_Comm made)
{
    (void) comm, (void) key, (void) extra;
    *(void **) copy = ibex_copied(value, made);
    *flag = *(void **) copy != NULL;
    return MPI_SUCCESS;
}

#endif
