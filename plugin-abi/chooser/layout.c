// SPDX-License-Identifier: MIT OR Apache-2.0
// Compares component.h with the headers of an Open MPI: a difference is an error of its mpicc. Compiled by the test of
// xtask/src/build/chooser.rs, and never run.

#include "opal_config.h"
#include "ompi_config.h"

#include "ompi/mca/pml/pml.h"
#include "opal/constants.h"
#include "opal/mca/btl/btl.h"
#include "opal/mca/mca.h"

#include "component.h"
#include <stddef.h>

#define AT(field, theirs)                                                                                              \
    _Static_assert(offsetof(struct component, field) == offsetof(mca_base_component_t, theirs), #theirs " is elsewhere")

AT(mca, mca_major_version);
AT(project_name, mca_project_name);
AT(type_name, mca_type_name);
AT(name, mca_component_name);
AT(open, mca_open_component);
AT(register_parameters, mca_register_component_params);
AT(flags, mca_component_flags);
_Static_assert(offsetof(struct component, metadata) == sizeof(mca_base_component_t), "a component is longer");
_Static_assert(offsetof(struct component, initialize) == offsetof(mca_btl_base_component_t, btl_init), "btl_init");
_Static_assert(offsetof(struct component, initialize) == offsetof(mca_pml_base_component_t, pmlm_init), "pmlm_init");
_Static_assert(sizeof(struct component) >= sizeof(mca_btl_base_component_t), "a BTL is longer");
_Static_assert(sizeof(struct component) >= sizeof(mca_pml_base_component_t), "a PML is longer");
_Static_assert(MCA_BASE_VERSION_MAJOR == 2 && MCA_BASE_VERSION_MINOR == 1, "another version of the interface");
_Static_assert(OPAL_ERR_NOT_AVAILABLE == -16, "another answer that declines");
