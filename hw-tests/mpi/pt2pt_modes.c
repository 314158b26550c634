// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Every send mode, blocking and not, with the receive posted before and after the message arrives, at every size around
// a change of protocol (inline, eager, fragment, rendezvous), at odd addresses, with guards. Ranks form a ring; one
// rank sends to itself. Runs with 1 or more ranks.
#include "check.h"

#include <sys/mman.h>

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

static uint64_t seed_of(int sender, int bytes, int round) {
    return ((uint64_t)sender << 40) ^ ((uint64_t)round << 32) ^ (uint64_t)bytes;
}

// Tells the left neighbour that this rank is ready, and waits until the right one is.
static void neighbours_ready(void) {
    MPI_OK(MPI_Sendrecv(NULL, 0, MPI_BYTE, left, TAG_READY, NULL, 0, MPI_BYTE, right, TAG_READY, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
}

// On return all that the left neighbour sent before its call has arrived: the token follows on the same communicator.
static void left_has_sent(void) {
    MPI_OK(MPI_Sendrecv(NULL, 0, MPI_BYTE, right, TAG_READY, NULL, 0, MPI_BYTE, left, TAG_READY, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
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
    pattern_fill(from, (size_t)bytes, seed_of(check.rank, bytes, round));
    if (!late) {
        MPI_OK(MPI_Irecv(to, bytes, MPI_BYTE, left, TAG_DATA, MPI_COMM_WORLD, &received));
        if (mode->ready)
            neighbours_ready();
    }
    if (mode->send == MPI_Bsend || mode->isend == MPI_Ibsend)
        make_room_for_buffered_send(bytes);
    if (mode->send)
        MPI_OK(mode->send(from, bytes, MPI_BYTE, right, TAG_DATA, MPI_COMM_WORLD));
    else
        MPI_OK(mode->isend(from, bytes, MPI_BYTE, right, TAG_DATA, MPI_COMM_WORLD, &sent));
    if (late) {
        left_has_sent();
        MPI_OK(MPI_Irecv(to, bytes, MPI_BYTE, left, TAG_DATA, MPI_COMM_WORLD, &received));
    }
    MPI_OK(MPI_Wait(&received, &status));
    MPI_OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
    check_status(&status, left, TAG_DATA, bytes);
    pattern_check("received", to, (size_t)bytes, seed_of(left, bytes, round));
    guarded_check("receive", to, (size_t)bytes);
    pattern_check("send buffer afterwards", from, (size_t)bytes, seed_of(check.rank, bytes, round));
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
            check_end_case();
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
        pattern_fill(send_arena, (size_t)some[i], seed_of(check.rank, some[i], 90));
        MPI_OK(MPI_Issend(send_arena, some[i], MPI_BYTE, right, TAG_DATA, MPI_COMM_WORLD, &sent));
        for (int k = 0; k < 20; k++) {
            left_has_sent();
            MPI_OK(MPI_Test(&sent, &done, MPI_STATUS_IGNORE));
            check_int("synchronous send complete without a receive", 0, done);
        }
        MPI_OK(MPI_Barrier(MPI_COMM_WORLD)); // no receive anywhere is posted before this
        MPI_OK(MPI_Recv(to, some[i], MPI_BYTE, left, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI_OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
        pattern_check("received", to, (size_t)some[i], seed_of(left, some[i], 90));
    }
    check_end_case();
}

static void exchanges(void) {
    check_case("sendrecv_at_every_size");
    for (int i = 0; i < size_count; i++) {
        int bytes = sizes[i], other = sizes[size_count - 1 - i]; // a different size each way
        int out = check.rank % 2 ? other : bytes, in = left % 2 ? other : bytes;
        unsigned char *to = guarded_ready(receive_arena, (size_t)in, (size_t)i);
        MPI_Status status;
        pattern_fill(send_arena, (size_t)out, seed_of(check.rank, out, 91));
        MPI_OK(MPI_Sendrecv(send_arena, out, MPI_BYTE, right, 1, to, in, MPI_BYTE, left, 1, MPI_COMM_WORLD, &status));
        check_status(&status, left, 1, in);
        pattern_check("received", to, (size_t)in, seed_of(left, in, 91));
        guarded_check("receive", to, (size_t)in);
    }
    check_end_case();

    check_case("sendrecv_replace_around_the_ring");
    for (int i = 0; i < size_count; i += 7) {
        unsigned char *both = guarded_ready(receive_arena, (size_t)sizes[i], 3);
        pattern_fill(both, (size_t)sizes[i], seed_of(check.rank, sizes[i], 92));
        MPI_OK(MPI_Sendrecv_replace(both, sizes[i], MPI_BYTE, right, 2, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        pattern_check("replaced", both, (size_t)sizes[i], seed_of(left, sizes[i], 92));
        guarded_check("replace", both, (size_t)sizes[i]);
    }
    check_end_case();

    check_case("nothing_moves_to_or_from_proc_null");
    unsigned char *to = guarded_ready(receive_arena, 100, 0);
    MPI_Status status;
    MPI_OK(MPI_Sendrecv(send_arena, 100, MPI_BYTE, MPI_PROC_NULL, 3, to, 100, MPI_BYTE, MPI_PROC_NULL, 3,
                        MPI_COMM_WORLD, &status));
    check_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    check_int("byte of the untouched buffer", 0x5a, to[50]);
    check_end_case();
}

// A short message into a longer receive: only its bytes may be written.
static void short_message_in_a_long_receive(void) {
    check_case("a_short_message_leaves_the_rest_of_a_long_receive_alone");
    for (int i = 0; i < size_count; i += 3) {
        int bytes = sizes[i], room = bytes + 200 < MAX_BYTES ? bytes + 200 : MAX_BYTES;
        unsigned char *to = guarded_ready(receive_arena, (size_t)bytes, (size_t)i);
        MPI_Request received;
        MPI_Status status;
        memset(to + bytes, 0xa5, (size_t)(room - bytes) + CHECK_GUARD_BYTES);
        pattern_fill(send_arena, (size_t)bytes, seed_of(check.rank, bytes, 93));
        MPI_OK(MPI_Irecv(to, room, MPI_BYTE, left, 4, MPI_COMM_WORLD, &received));
        MPI_OK(MPI_Send(send_arena, bytes, MPI_BYTE, right, 4, MPI_COMM_WORLD));
        MPI_OK(MPI_Wait(&received, &status));
        check_status(&status, left, 4, bytes);
        pattern_check("received", to, (size_t)bytes, seed_of(left, bytes, 93));
        guarded_check("receive", to, (size_t)bytes);
    }
    check_end_case();
}

// Memory mapped again at the same address has other pages: a cached registration of it would move the old pages' bytes.
static void memory_mapped_again(void) {
    check_case("buffers_unmapped_and_mapped_again_between_messages");
    size_t length = 1 << 20;
    void *send_at = NULL, *receive_at = NULL;
    for (int round = 0; round < scaled(12, 4); round++) {
        int fixed = round ? MAP_FIXED : 0, bytes = (int)length - 4096 * (round % 3) - round;
        int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | fixed;
        unsigned char *from = mmap(send_at, length, access, flags, -1, 0);
        unsigned char *to = mmap(receive_at, length, access, flags, -1, 0);
        if (from == MAP_FAILED || to == MAP_FAILED) {
            check_fail("mmap of %zu bytes: expected memory, got none", length);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        send_at = from, receive_at = to;
        pattern_fill(from, (size_t)bytes, seed_of(check.rank, bytes, round));
        MPI_OK(MPI_Sendrecv(from, bytes, MPI_BYTE, right, 5, to, bytes, MPI_BYTE, left, 5, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
        pattern_check("received", to, (size_t)bytes, seed_of(left, bytes, round));
        munmap(from, length);
        munmap(to, length);
    }
    check_end_case();
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
        exchanges();
        short_message_in_a_long_receive();
        memory_mapped_again();
    } while (check_again());

    MPI_OK(MPI_Buffer_detach(&buffered, &buffered_bytes));
    free(buffered);
    free(send_arena);
    free(receive_arena);
    return check_finish();
}
