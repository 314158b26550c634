// SPDX-License-Identifier: MIT OR Apache-2.0
// Shared by the benchmarks of this folder: checked MPI calls, memory and its contents, quantiles, and options. Header
// only, so that each program is compiled by itself: mpicc -O2 -o NAME NAME.c
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank; // in MPI_COMM_WORLD; the program sets it

static inline void bench_must(int code, const char *call, const char *file, int line) {
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "%s:%d: rank %d: %.100s: %s\n", file, line, rank, call, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MPI_OK(call) bench_must((call), #call, __FILE__, __LINE__)

// Allocates zeroed memory that starts at a page. At least 1 byte, also if `bytes` is 0.
static inline void *allocate(size_t bytes) {
    void *memory = NULL;
    bytes = bytes ? bytes : 1;
    if (posix_memalign(&memory, 4096, bytes) != 0) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", rank, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(memory, 0, bytes);
    return memory;
}

// A byte of a sender's data of this size.
static inline unsigned char expected_byte(int size, int sender, int i) {
    return (unsigned char)(((uint32_t)i * 2654435761u >> 13) + (uint32_t)(size * 3 + sender * 101));
}

static inline void fill(unsigned char *at, int bytes, int sender) {
    for (int i = 0; i < bytes; i++)
        at[i] = expected_byte(bytes, sender, i);
}

static inline void verify(const char *what, const unsigned char *at, int bytes, int sender) {
    for (int i = 0; i < bytes; i++)
        if (at[i] != expected_byte(bytes, sender, i)) {
            fprintf(stderr, "rank %d: %s of %d bytes, byte %d: expected 0x%02x, got 0x%02x\n", rank, what, bytes, i,
                    expected_byte(bytes, sender, i), at[i]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

static inline int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static inline double quantile(const double *sorted, int count, double at) {
    double place = at * (count - 1);
    int below = (int)place, above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
}

// Reads numbers from `least` to `most`, with K or M for 1024 or 1048576, and commas between them. False if the text is
// no such list, or longer than `room`.
static inline bool parse_numbers(const char *text, long least, long most, int *list, int room, int *count) {
    for (*count = 0; *count < room; text++) {
        char *end;
        long number = strtol(text, &end, 10), unit = *end == 'K' ? 1L << 10 : *end == 'M' ? 1L << 20 : 1;
        if (end == text || number < 0 || number > most / unit || number * unit < least)
            return false;
        list[(*count)++] = (int)(number * unit);
        text = unit > 1 ? end + 1 : end;
        if (*text != ',')
            return *text == '\0';
    }
    return false;
}

// Reads the time of a row, up to an hour. False if the text is no such time.
static inline bool parse_seconds(const char *text, double *seconds) {
    char *end;
    *seconds = strtod(text, &end);
    return *seconds > 0 && *seconds <= 3600 && !*end;
}
