/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An attribute of communicators whose copy function learns the new communicator, too. Open MPI 4.1 passes it to
 * internal copy functions. Included by plugin-abi/src/tool/communicator.c only; openmpi/v5_0 has its counterpart. */
#ifndef IBEX_OPENMPI_ATTRIBUTE_H
#define IBEX_OPENMPI_ATTRIBUTE_H

#include "ompi/attribute/attribute.h"
#include "ompi/communicator/communicator.h"

/* Returns the attribute's value for the new communicator, which has no number yet; NULL: none. By communicator.c. */
static void *ibex_copied(void *value, MPI_Comm made);

static int ibex_attribute_copied(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag, MPI_Comm made)
{
    (void) comm, (void) key, (void) extra;
    *(void **) copy = ibex_copied(value, made);
    *flag = *(void **) copy != NULL;
    return MPI_SUCCESS;
}

#endif
