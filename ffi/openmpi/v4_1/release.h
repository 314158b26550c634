/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The differences between the release series of Open MPI in C: 4.1. openmpi/v5_0 has the same names; the build puts the
 * installed series on the include path. The Rust side is src/openmpi/release. */
#ifndef IBEX_OPENMPI_RELEASE_H
#define IBEX_OPENMPI_RELEASE_H

#include "ompi/communicator/communicator.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/pmix/pmix.h"

/* Symbols that other series lack. With strong references the dynamic linker would not load the library there, and ibex
 * could not print why it declines (version.rs). */
#pragma weak opal_convertor_set_position_nocheck
#pragma weak opal_pmix
#pragma weak opal_value_t_class
#pragma weak ompi_group_get_proc_ptr_raw

#define IBEX_MODEX_SCOPE OPAL_PMIX_GLOBAL

/* Converts the result of a modex macro to an OPAL code. */
static inline int ibex_modex_code(int answer)
{
    return answer;
}

#define IBEX_SHARED_MEMORY_BTL "vader"

/* The smallest number of a communicator without a parent; 4.1 has no such communicators. */
#define IBEX_EXTENDED_CONTEXTS 0x800000

/* The communicator's number in its messages, the same for all members. */
static inline uint32_t ibex_context_of(const ompi_communicator_t *comm)
{
    return comm->c_contextid;
}

/* Sets the copy function of a convertor for host memory. Only an Open MPI with CUDA has one. */
static inline void ibex_convertor_copies_by(opal_convertor_t *convertor, memcpy_fct_t copy)
{
#if OPAL_CUDA_SUPPORT
    convertor->cbmemcpy = copy;
#else
    (void) convertor, (void) copy;
#endif
}

/* Whether the job is started with fault tolerance, which 4.1 does not have. */
#define IBEX_FAULT_TOLERANT false

#endif
