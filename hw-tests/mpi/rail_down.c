// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Messages of every kind before and after a time in which a port goes down:
//
//   rail_down [--connect] [--short] [--until SECONDS] [--late SECONDS]
//
// With --connect the ranks exchange some first. Then each looks for messages, of which there are none, until so many
// seconds after MPI_Init, by which a rank has opened an adapter, however long that took; then all kinds are exchanged,
// several times, so that each way is met. --short leaves out those that are read by their receiver. Where a rank was not that far --late seconds after its start it prints "late": what was
// to happen meanwhile may have happened earlier. Runs with 2 or more ranks; each sends to and receives from its neighbours.
#include "check.h"

#include <time.h>

enum { ROUNDS = 6, LONGEST = 3 << 20 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static unsigned char *out, *in;
static int is_short;

static void exchange(int bytes, int round) {
    int right = (check.rank + 1) % check.size, left = (check.rank + check.size - 1) % check.size;
    pattern_fill(out, (size_t)bytes, (uint64_t)(round * 100 + check.rank));
    memset(in, 0, (size_t)bytes);
    MPI_OK(MPI_Sendrecv(out, bytes, MPI_BYTE, right, round, in, bytes, MPI_BYTE, left, round, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
    pattern_check("a message", in, (size_t)bytes, (uint64_t)(round * 100 + left));
}

// Every other 4 bytes: sent in fragments.
static void exchange_with_gaps(int count, int round) {
    int right = (check.rank + 1) % check.size, left = (check.rank + check.size - 1) % check.size;
    MPI_Datatype gapped;
    MPI_OK(MPI_Type_vector(count, 1, 2, MPI_INT, &gapped));
    MPI_OK(MPI_Type_commit(&gapped));
    int *from = (int *)out, *to = (int *)in;
    for (int i = 0; i < 2 * count; i++) {
        from[i] = i * 7 + check.rank + round;
        to[i] = -1;
    }
    MPI_OK(MPI_Sendrecv(from, 1, gapped, right, round, to, 1, gapped, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < 2 * count; i++) {
        int expected = i % 2 ? -1 : i * 7 + left + round;
        if (to[i] != expected) {
            check_fail("number %d of a message with gaps: expected %d, got %d", i, expected, to[i]);
            break;
        }
    }
    MPI_OK(MPI_Type_free(&gapped));
}

static void all_kinds(const char *name) {
    check_case("%s", name);
    for (int round = 0; round < ROUNDS; round++) {
        exchange(8, round);
        exchange(6000, round);
        if (!is_short) {
            exchange(100000, round);
            exchange(LONGEST, round);
        }
        exchange_with_gaps(50000, round);
    }
    check_end_case();
}

int main(int argc, char **argv) {
    double start = seconds(), until = 0, late = 1e9;
    int connect = 0;
    check_start(&argc, &argv, 2);
    double initialised = seconds();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--connect") == 0)
            connect = 1;
        else if (strcmp(argv[i], "--short") == 0)
            is_short = 1;
        else if (strcmp(argv[i], "--until") == 0 && i + 1 < argc)
            until = atof(argv[++i]);
        else if (strcmp(argv[i], "--late") == 0 && i + 1 < argc)
            late = atof(argv[++i]);
    }
    out = check_alloc(LONGEST);
    in = check_alloc(LONGEST);
    if (connect)
        all_kinds("messages_before");
    if (seconds() - start > late)
        printf("late\n");
    while (seconds() - initialised < until) {
        int there;
        MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, 999, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE));
    }
    all_kinds("messages_after");
    return check_finish();
}
