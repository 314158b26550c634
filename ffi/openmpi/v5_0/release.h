/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the C side of ibex takes differently from each release series of Open MPI: here for 5.0. See openmpi/v4_1/release.h. */
#ifndef IBEX_OPENMPI_RELEASE_H
#define IBEX_OPENMPI_RELEASE_H

#include "ompi/communicator/communicator.h"
#include "opal/mca/pmix/pmix-internal.h"

/* Who may fetch what is published. */
#define IBEX_MODEX_SCOPE PMIX_GLOBAL

/* The OPAL code of what a modex macro answers: a status of PMIx. */
static inline int ibex_modex_code(int answer)
{
    return opal_pmix_convert_status(answer);
}

/* The BTL of shared memory. */
#define IBEX_SHARED_MEMORY_BTL "sm"

/* Bytes of the longest header in a fragment of ob1's (mca_pml_ob1_hdr_t): a communicator's extended number and a get. */
#define IBEX_OB1_HEADER 80

/* The number by which this process knows a communicator. Others may know it by another, where they found it by its extended
 * number (MPI_Comm_create_from_group). */
static inline uint32_t ibex_context_of(const ompi_communicator_t *comm)
{
    return comm->c_index;
}

/* Rows of layout.c that not all series have. */
#define IBEX_LAYOUT_OF_RELEASE                                                                                          \
    FIELD(mca_btl_base_module_t, btl_accelerator_max_send_size),                                                        \
    TYPE(mca_btl_base_receive_descriptor_t), FIELD(mca_btl_base_receive_descriptor_t, endpoint),                        \
    FIELD(mca_btl_base_receive_descriptor_t, des_segments), FIELD(mca_btl_base_receive_descriptor_t, des_segment_count), \
    FIELD(mca_btl_base_receive_descriptor_t, tag), FIELD(mca_btl_base_receive_descriptor_t, cbdata),                    \
    FIELD(mca_pml_base_module_t, pml_revoke_comm), FIELD(mca_pml_base_module_t, pml_get_transports),                    \
    FIELD(ompi_communicator_t, c_contextid), FIELD(ompi_communicator_t, c_index),

#endif
