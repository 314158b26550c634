// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Every send mode, blocking and not, with the receive posted before and after the message arrives, at every size around
// a change of protocol (inline, eager, fragment, rendezvous), at odd addresses, with guards. Ranks form a ring; one
// rank sends to itself. Runs with 1 or more ranks.
#include "check.h"

typedef int (*blocking_send)(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int (*started_send)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static const struct mode {
    const char *name;
    blocking_send send;
    started_send isend;
    bool ready; // the receive must be known to be posted
    bool late;  // the sender does not wait for the receive, so that may be posted late
} modes[] = {
    {"send", MPI_Send, NULL, false, false},    {"bsend", MPI_Bsend, NULL, false, true},
    {"ssend", MPI_Ssend, NULL, false, false},  {"rsend", MPI_Rsend, NULL, true, false},
    {"isend", NULL, MPI_Isend, false, true},   {"ibsend", NULL, MPI_Ibsend, false, true},
    {"issend", NULL, MPI_Issend, false, true}, {"irsend", NULL, MPI_Irsend, true, false},
};

enum { MAX_BYTES = 4 << 20, LARGE = 1 << 20, MAX_SIZES = 512, TAG_DATA = 7, TAG_READY = 8 };

static int sizes[MAX_SIZES], size_count;
static unsigned char *send_arena, *receive_arena;
static void *buffered; // attached memory for buffered sends
static int buffered_bytes = 2 * MAX_BYTES, buffered_used;

static int compare_ints(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// Every limit a transport may have, and the sizes that reach it once a header of Open MPI's ob1 (14 to 56 bytes) or of
// the transport is added.
static void list_sizes(void) {
    static const int limits[] = {64,   128,  192,   256,   512,   1024,  2048,  4096,
                                 8192, 12288, 16384, 32768, 65536, 131072, 262144};
    static const int deltas[] = {-57, -56, -55, -48, -40, -33, -32, -31, -15, -14, -13, -8, -1, 0, 1, 14};
    static const int singles[] = {0,  1,  2,  3,  4,       7,             8,             9,        15,
                                  16, 17, 31, 33, 1 << 20, (1 << 20) + 1, MAX_BYTES - 3, MAX_BYTES};
    for (size_t i = 0; i < sizeof singles / sizeof *singles; i++)
        sizes[size_count++] = singles[i];
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (size_t k = 0; k < sizeof deltas / sizeof *deltas; k++)
            if (limits[i] < 100000 || deltas[k] == -57 || deltas[k] >= -1)
                sizes[size_count++] = limits[i] + deltas[k];
    qsort(sizes, (size_t)size_count, sizeof *sizes, compare_ints);
    int kept = 0;
    for (int i = 0; i < size_count; i++)
        if (kept == 0 || sizes[kept - 1] != sizes[i])
            sizes[kept++] = sizes[i];
    size_count = kept;
}

// Buffered sends give their room back some time after they complete; a detach waits for that.
static void make_room_for_buffered_send(int bytes) {
    int taken = bytes + MPI_BSEND_OVERHEAD;
    if (buffered_used > 0 && buffered_used + taken > buffered_bytes) {
        MPI_OK(MPI_Buffer_detach(&buffered, &buffered_bytes));
        MPI_OK(MPI_Buffer_attach(buffered, buffered_bytes));
        buffered_used = 0;
    }
    buffered_used += taken;
}

static void one_message(const struct mode *mode, int bytes, bool late, int round) {
    unsigned char *from = send_arena + CHECK_GUARD_BYTES + (bytes + round) % 13;
    unsigned char *to = guarded_ready(receive_arena, (size_t)bytes, (size_t)(bytes * 3 + round) % 61);
    MPI_Request sent = MPI_REQUEST_NULL, received = MPI_REQUEST_NULL;
    MPI_Status status;
    pattern_fill(from, (size_t)bytes, seed_of(check.rank, round, bytes));
    if (!late) {
        MPI_OK(MPI_Irecv(to, bytes, MPI_BYTE, left, TAG_DATA, MPI_COMM_WORLD, &received));
        if (mode->ready)
            check_token(left, right, TAG_READY);
    }
    if (mode->send == MPI_Bsend || mode->isend == MPI_Ibsend)
        make_room_for_buffered_send(bytes);
    if (mode->send)
        MPI_OK(mode->send(from, bytes, MPI_BYTE, right, TAG_DATA, MPI_COMM_WORLD));
    else
        MPI_OK(mode->isend(from, bytes, MPI_BYTE, right, TAG_DATA, MPI_COMM_WORLD, &sent));
    if (late) {
        check_token(right, left, TAG_READY);
        MPI_OK(MPI_Irecv(to, bytes, MPI_BYTE, left, TAG_DATA, MPI_COMM_WORLD, &received));
    }
    MPI_OK(MPI_Wait(&received, &status));
    MPI_OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
    check_status(&status, left, TAG_DATA, bytes);
    pattern_check("received", to, (size_t)bytes, seed_of(left, round, bytes));
    guarded_check("receive", to, (size_t)bytes);
    pattern_check("send buffer afterwards", from, (size_t)bytes, seed_of(check.rank, round, bytes));
}

static void every_mode_at_every_size(void) {
    // With many ranks each mode has a third of the sizes, three modes have all; the largest sizes always take turns.
    int step = check.size > 4 ? 3 : 1;
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
        for (int late = 0; late <= (modes[m].late ? 1 : 0); late++) {
            check_case("%s_with_the_receive_posted_%s", modes[m].name, late ? "late" : "first");
            for (int i = (int)m % step; i < size_count; i += step)
                if (sizes[i] < LARGE || (i / step + (int)m) % 4 == 0)
                    one_message(&modes[m], sizes[i], late, (int)m);
        }
}

// A synchronous send must not complete before its receive is posted, whatever its size.
static void synchronous_send_waits_for_the_receive(void) {
    static const int some[] = {0, 8, 1024, 70000};
    check_case("issend_completes_only_after_the_receive_is_posted");
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        unsigned char *to = guarded_ready(receive_arena, (size_t)some[i], 5);
        MPI_Request sent;
        int done = 0;
        pattern_fill(send_arena, (size_t)some[i], seed_of(check.rank, 90, some[i]));
        MPI_OK(MPI_Issend(send_arena, some[i], MPI_BYTE, right, TAG_DATA, MPI_COMM_WORLD, &sent));
        for (int k = 0; k < 20; k++) {
            check_token(right, left, TAG_READY);
            MPI_OK(MPI_Test(&sent, &done, MPI_STATUS_IGNORE));
            check_int("synchronous send complete without a receive", 0, done);
        }
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD)); // no receive anywhere is posted before this
        MPI_OK(MPI_Recv(to, some[i], MPI_BYTE, left, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
        pattern_check("received", to, (size_t)some[i], seed_of(left, 90, some[i]));
    }
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 1);
    list_sizes();
    send_arena = check_alloc(guarded_bytes(MAX_BYTES));
    receive_arena = check_alloc(guarded_bytes(MAX_BYTES));
    buffered = check_alloc((size_t)buffered_bytes);
    MPI_OK(MPI_Buffer_attach(buffered, buffered_bytes));

    do {
        every_mode_at_every_size();
        synchronous_send_waits_for_the_receive();
    } while (check_again());

    MPI_OK(MPI_Buffer_detach(&buffered, &buffered_bytes));
    return check_finish();
}
