/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks for the programs of this folder: one line per wrong result, from any thread; `wrong` is their number. */
#pragma once

#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static atomic_int wrong;

#define EXPECT(code, call)                                                                            \
    do {                                                                                              \
        int got = (call);                                                                             \
        if (got != (code)) {                                                                          \
            printf("%s:%d: %s: %d, not %s\n", __FILE__, __LINE__, #call, got, #code);                 \
            ++wrong;                                                                                  \
        }                                                                                             \
    } while (0)

#define HOLDS(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                    \
            ++wrong;                                                                                  \
        }                                                                                             \
    } while (0)

/* Checks that a key of an info object has this value. */
static inline void has(MPI_Info info, const char *key, const char *wanted)
{
    char value[16] = "";
    int there = 0;
    MPI_Info_get(info, key, sizeof value - 1, value, &there);
    HOLDS(there && strcmp(value, wanted) == 0);
}
