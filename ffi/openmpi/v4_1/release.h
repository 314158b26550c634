/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the C side of ibex takes differently from each release series of Open MPI: here for 4.1. openmpi/v5_0 has the
 * same names; the build puts the installed series on the include path. The Rust side is src/openmpi/release. */
#ifndef IBEX_OPENMPI_RELEASE_H
#define IBEX_OPENMPI_RELEASE_H

#include "ompi/communicator/communicator.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/pmix/pmix.h"

/* What another series lacks. With strong references the dynamic linker would refuse the library there, and ibex could
 * not say why it declines (version.rs). */
#pragma weak opal_convertor_set_position_nocheck
#pragma weak opal_pmix
#pragma weak opal_value_t_class
#pragma weak ompi_group_get_proc_ptr_raw

#define IBEX_MODEX_SCOPE OPAL_PMIX_GLOBAL

/* The OPAL code of what a modex macro answers. */
static inline int ibex_modex_code(int answer)
{
    return answer;
}

#define IBEX_SHARED_MEMORY_BTL "vader"

/* The first number of communicators without a parent, of which 4.1 has none. */
#define IBEX_EXTENDED_CONTEXTS 0x800000

/* The number that messages in a communicator carry: the same for all its members. */
static inline uint32_t ibex_context_of(const ompi_communicator_t *comm)
{
    return comm->c_contextid;
}

/* Has a convertor copy by `copy`: the data is the processor's. Only an Open MPI with CUDA asks. */
static inline void ibex_convertor_copies_by(opal_convertor_t *convertor, memcpy_fct_t copy)
{
#if OPAL_CUDA_SUPPORT
    convertor->cbmemcpy = copy;
#else
    (void) convertor, (void) copy;
#endif
}

/* Whether the job is started with fault tolerance, which 4.1 has not. */
#define IBEX_FAULT_TOLERANT false

#endif
