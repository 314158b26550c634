/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The differences between the release series of Open MPI in C: 5.0; see openmpi/v4_1/release.h. */
#ifndef IBEX_OPENMPI_RELEASE_H
#define IBEX_OPENMPI_RELEASE_H

#include "ompi/communicator/communicator.h"
#include "ompi/runtime/params.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/pmix/pmix-internal.h"

/* Symbols that other series lack; see v4_1/release.h. */
#pragma weak PMIx_Get
#pragma weak PMIx_Put
#pragma weak PMIx_Value_free
#pragma weak ompi_ftmpi_enabled
#pragma weak opal_convertor_set_position_nocheck
#pragma weak opal_pmix_convert_jobid
#pragma weak opal_pmix_convert_status

#define IBEX_MODEX_SCOPE PMIX_GLOBAL

/* Converts the result of a modex macro, a PMIx status, to an OPAL code. */
static inline int ibex_modex_code(int answer)
{
    return opal_pmix_convert_status(answer);
}

#define IBEX_SHARED_MEMORY_BTL "sm"

/* The smallest number of a communicator without a parent (MPI_Comm_create_from_group). */
#define IBEX_EXTENDED_CONTEXTS 0x800000

/* The communicator's number in its messages, the same for all members. For one without a parent: 23 bits
 * of a hash of its extended number. If two communicators of a process have the same bits, ibex refuses the second. */
static inline uint32_t ibex_context_of(const ompi_communicator_t *comm)
{
    if (OMPI_COMM_IS_GLOBAL_INDEX(comm))
        return comm->c_index;
    uint64_t number = comm->c_contextid.cid_base + comm->c_contextid.cid_sub.u64 * 0x9e3779b97f4a7c15;
    return IBEX_EXTENDED_CONTEXTS + (uint32_t) (number % IBEX_EXTENDED_CONTEXTS);
}

/* Sets the copy function of a convertor for host memory. */
static inline void ibex_convertor_copies_by(opal_convertor_t *convertor, memcpy_fct_t copy)
{
    convertor->cbmemcpy = copy;
}

/* Whether the job is started with fault tolerance, if this Open MPI is configured with it. */
#if OPAL_ENABLE_FT_MPI
#    define IBEX_FAULT_TOLERANT ompi_ftmpi_enabled
#else
#    define IBEX_FAULT_TOLERANT false
#endif

#endif
