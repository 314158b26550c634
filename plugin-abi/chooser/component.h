// SPDX-License-Identifier: MIT OR Apache-2.0
// The head of every component of Open MPI, in version 2.1 of the interface (4.1 and 5), for a component that has to fit
// each Open MPI, and so is compiled without its headers. layout.c compares it with them.

#ifndef IBEX_CHOOSER_COMPONENT_H
#define IBEX_CHOOSER_COMPONENT_H

#include <stdint.h>

struct component {
    int mca[3];
    char project_name[16];
    int project[3];
    char type_name[32];
    int type[3];
    char name[64];
    int version[3];
    int (*open)(void);
    int (*close)(void);
    int (*query)(void **, int *);
    int (*register_parameters)(void);
    int32_t flags;
    char reserved[28];
    // In a BTL and in a PML: capabilities, the function that returns modules, and one other function.
    char metadata[36];
    void *(*initialize)(int *);
    void *last;
    // Room for fields that another release adds.
    void *rest[8];
};

#endif
