// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What every component of Open MPI begins with, in version 2.1 of its interface (Open MPI 4.1 and 5): for a component that
// must fit each Open MPI, and so is compiled with the headers of none. layout.c compares it with the headers that there are.

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
    // Of a BTL and of a PML: what it can do, how it is asked for modules, and one function more.
    char metadata[36];
    void *(*initialize)(int *);
    void *last;
    // Where another release has more.
    void *rest[8];
};

#endif
