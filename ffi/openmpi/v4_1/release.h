/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the C side of ibex takes differently from each release series of Open MPI: here for 4.1. Its counterparts have the same
 * names (openmpi/v5_0); the build puts the directory of the installed series on the include path. The Rust side is
 * src/openmpi/release. Included by wrapper.h, behind the headers that all series have. */
#ifndef IBEX_OPENMPI_RELEASE_H
#define IBEX_OPENMPI_RELEASE_H

#include "ompi/communicator/communicator.h"
#include "opal/mca/pmix/pmix.h"

/* Who may fetch what is published. */
#define IBEX_MODEX_SCOPE OPAL_PMIX_GLOBAL

/* The OPAL code of what a modex macro answers. */
static inline int ibex_modex_code(int answer)
{
    return answer;
}

/* The BTL of shared memory. */
#define IBEX_SHARED_MEMORY_BTL "vader"

/* Bytes of the longest header in a fragment of ob1's (mca_pml_ob1_hdr_t). */
#define IBEX_OB1_HEADER 56

/* The number by which this process knows a communicator, which its messages carry. */
static inline uint32_t ibex_context_of(const ompi_communicator_t *comm)
{
    return comm->c_contextid;
}

/* Rows of layout.c that not all series have. */
#define IBEX_LAYOUT_OF_RELEASE                                                                                          \
    FIELD(mca_btl_base_module_t, btl_ft_event), FIELD(mca_btl_base_module_t, padding),                                  \
    FIELD(opal_proc_t, proc_hostname), FIELD(mca_pml_base_module_t, pml_ft_event),                                      \
    FIELD(ompi_communicator_t, c_contextid),

#endif
