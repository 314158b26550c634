// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Messages of every kind before and after something that the caller does in the middle (check.h), such as taking a port
// down. After the middle the ranks exchange all kinds several times, so that each protocol is used. Runs with 2 or more
// ranks; each exchanges messages with its neighbours.
//
// usage: rail_down [--connect] [--short] [--events NUMBER | --traffic LEAST-MOST]
//   --connect  the ranks exchange messages before the middle
//   --short    no messages that the receiver reads
//   --events   in the middle ranks probe, without a message, until ibex has taken NUMBER port events, which they print
//   --traffic  in the middle ranks exchange messages of LEAST to MOST bytes (up to 2 MiB), many at once
#include "counts.h"

enum { ROUNDS = 6, LONGEST = 3 << 20, AT_ONCE = 8, LONGEST_OF_TRAFFIC = 2 << 20 };

static struct counter port_events;

static unsigned char *out, *in;
static bool is_short;

static void exchange(int bytes, int round) { check_ring(MPI_COMM_WORLD, round, out, in, bytes, round); }

// Every other 4 bytes: sent in fragments.
static void exchange_with_gaps(int count, int round) {
    MPI_Datatype gapped = check_vector(count, 1, 2, MPI_INT);
    int *from = (int *)out, *to = (int *)in;
    for (int i = 0; i < 2 * count; i++) {
        from[i] = i * 7 + check.rank + round;
        to[i] = -1;
    }
    MPI_OK(MPI_Sendrecv(from, 1, gapped, right, round, to, 1, gapped, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < 2 * count; i++) {
        int expected = i % 2 ? -1 : i * 7 + left + round;
        if (to[i] != expected)
            check_fail("number %d of a message with gaps: expected %d, got %d", i, expected, to[i]);
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
}

// No message is under way until the caller is done and ibex has noticed what it did.
static void idle(int events) {
    int taken = 0;
    while (!check_may_go_on() || taken < events) {
        check_progress();
        while (events > 0 && taken < counted(&port_events))
            printf("port events %d: rank %d\n", ++taken, check.rank);
    }
}

// AT_ONCE messages of each size to the right neighbour; each has the first bytes of the same buffer.
static void all_sizes_at_once(int least, int most) {
    unsigned char *received = check_alloc((size_t)AT_ONCE * (size_t)most);
    for (int bytes = least; bytes <= most; bytes *= 2) {
        MPI_Request requests[2 * AT_ONCE];
        pattern_fill(out, (size_t)bytes, (uint64_t)check.rank);
        for (int i = 0; i < AT_ONCE; i++) {
            unsigned char *to = received + (size_t)i * (size_t)bytes;
            MPI_OK(MPI_Irecv(to, bytes, MPI_BYTE, left, i, MPI_COMM_WORLD, &requests[i]));
        }
        for (int i = 0; i < AT_ONCE; i++)
            MPI_OK(MPI_Isend(out, bytes, MPI_BYTE, right, i, MPI_COMM_WORLD, &requests[AT_ONCE + i]));
        MPI_OK(MPI_Waitall(2 * AT_ONCE, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < AT_ONCE; i++)
            pattern_check("a message", received + (size_t)i * (size_t)bytes, (size_t)bytes, (uint64_t)left);
    }
    free(received);
}

static void traffic(int least, int most) {
    check_case("messages_under_way");
    all_sizes_at_once(least, most);
    check_in_the_middle();
    while (check_again())
        all_sizes_at_once(least, most);
}

int main(int argc, char **argv) {
    int least = 0, most = 0;
    check_start(&argc, &argv, 2);
    bool connects = check_flag(argc, argv, "--connect");
    is_short = check_flag(argc, argv, "--short");
    int events = check_number(argc, argv, "--events", 0, 1 << 20);
    const char *sizes = check_option(argc, argv, "--traffic");
    check.misread |= sizes && (sscanf(sizes, "%d-%d", &least, &most) != 2 || least <= 0 || most > LONGEST_OF_TRAFFIC);
    check_no_more(argc);
    out = check_alloc(LONGEST);
    in = check_alloc(LONGEST);
    if (events > 0)
        counter_open(&port_events, "btl_ibex_port_events");
    if (connects)
        all_kinds("messages_before");
    if (least > 0) {
        traffic(least, most);
    } else {
        check_in_the_middle();
        idle(events);
    }
    all_kinds("messages_after");
    if (events > 0)
        counter_close(&port_events);
    return check_finish();
}
