// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Cases and checks of the programs of this folder. A program calls check_case("name"), checks, and so on, and then
// `return check_finish();`. A case prints one line, and each mismatch another. A call that has to succeed stands in
// OK(). Only the main thread calls these functions.
#pragma once

#include <rdma/fi_errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    char name[120];
    int wrong, passed, failed;
} check;

// Records a mismatch in the running case.
__attribute__((format(printf, 1, 2))) static inline void check_fail(const char *format, ...) {
    check.wrong++;
    va_list arguments;
    va_start(arguments, format);
    printf("not ok %s: ", check.name);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

static inline void check_int(const char *what, long long expected, long long got) {
    if (expected != got)
        check_fail("%s: expected %lld (%#llx), got %lld (%#llx)", what, expected, expected, got, got);
}

static inline void check_true(const char *what, bool holds) {
    if (!holds)
        check_fail("%s: expected true, got false", what);
}

static inline void check_pointer(const char *what, const void *expected, const void *got) {
    if (expected != got)
        check_fail("%s: expected %p, got %p", what, expected, got);
}

static inline void check_ok(long code, const char *call, int line) {
    if (code == 0)
        return;
    check_fail("line %d, %.100s: expected 0, got %ld (%s)", line, call, code, fi_strerror((int)-code));
    exit(1);
}
#define OK(call) check_ok((call), #call, __LINE__)

static inline void check_end_case(void) {
    if (!check.name[0])
        return;
    check.passed += check.wrong == 0;
    check.failed += check.wrong != 0;
    if (check.wrong == 0)
        printf("ok %s\n", check.name);
    check.wrong = 0;
}

__attribute__((format(printf, 1, 2))) static inline void check_case(const char *format, ...) {
    check_end_case();
    setvbuf(stdout, NULL, _IOLBF, 0);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check.name, sizeof check.name, format, arguments);
    va_end(arguments);
}

static inline int check_finish(void) {
    check_end_case();
    printf("%d passed, %d failed\n", check.passed, check.failed);
    return check.failed != 0;
}
