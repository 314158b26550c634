/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks for the programs of this folder: one line per wrong result, from any thread; `wrong` is their number. */
#ifndef IBEX_TESTS_EXPECT_H
#define IBEX_TESTS_EXPECT_H

#include <stdatomic.h>
#include <stdio.h>

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

#endif
