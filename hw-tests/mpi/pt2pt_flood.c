// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Floods of unexpected messages: the receiver makes no MPI call while tens of thousands of eager messages are sent to
// it, then receives them, in order or from the last tag to the first, and checks order and contents. Floods of several
// ranks to one are in unexpected_memory.c, floods both ways in pt2pt_requests.c. Runs with 2 or more ranks.
#include "check.h"

enum { MAX_BYTES = 100000, WINDOW = 512, TAG_DONE = 30000 };

static unsigned char *buffers; // WINDOW slots of the sender

// Sends `count` numbered messages, at most WINDOW of them incomplete. Message i has size lengths[i % kinds].
static void flood(int to, int count, const int *lengths, int kinds, int tag_step) {
    static MPI_Request requests[WINDOW];
    for (int i = 0; i < WINDOW; i++)
        requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < count; i++) {
        unsigned char *from = buffers + (size_t)(i % WINDOW) * MAX_BYTES;
        int bytes = lengths[i % kinds];
        MPI_OK(MPI_Wait(&requests[i % WINDOW], MPI_STATUS_IGNORE));
        pattern_fill(from, (size_t)bytes, seed_of(check.rank, 0, i));
        MPI_OK(MPI_Isend(from, bytes, MPI_BYTE, to, i * tag_step, MPI_COMM_WORLD, &requests[i % WINDOW]));
    }
    MPI_OK(MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE));
}

static void drain(int from, int count, const int *lengths, int kinds, int tag_step, bool backwards) {
    static unsigned char to[MAX_BYTES + 8];
    for (int n = 0; n < count; n++) {
        int i = backwards ? count - 1 - n : n;
        MPI_Status status;
        MPI_OK(MPI_Recv(to, MAX_BYTES, MPI_BYTE, from, i * tag_step, MPI_COMM_WORLD, &status));
        check_status(&status, from, i * tag_step, lengths[i % kinds]);
        pattern_check("message", to, (size_t)lengths[i % kinds], seed_of(from, 0, i));
    }
}

static void silent_receiver(const char *what, int count, const int *lengths, int kinds, bool backwards) {
    int tag_step = backwards ? 1 : 0, last = check.size - 1;
    check_case("a_silent_receiver_loses_nothing_of_%s%s", what, backwards ? "_taken_backwards" : "");
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    if (check.rank == last)
        flood(0, count, lengths, kinds, tag_step);
    if (check.rank == 0) {
        check_sleep(0.3);
        drain(last, count, lengths, kinds, tag_step, backwards);
    }
}

// While a flood waits, other traffic of the same pair goes on: requests and answers on another tag.
static void traffic_beside_a_flood(int count) {
    static const int lengths[] = {100};
    check_case("requests_and_answers_go_on_beside_a_waiting_flood");
    MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
    if (check.rank == 1)
        flood(0, count, lengths, 1, 0);
    for (int i = 0; check.rank < 2 && i < scaled(200, 20); i++) {
        int bytes = i % 5 == 4 ? 60000 : 16, peer = 1 - check.rank;
        unsigned char *out = buffers, *in = buffers + MAX_BYTES;
        pattern_fill(out, (size_t)bytes, seed_of(check.rank, 0, 1000000 + i));
        MPI_OK(MPI_Sendrecv(out, bytes, MPI_BYTE, peer, TAG_DONE, in, bytes, MPI_BYTE, peer, TAG_DONE, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
        pattern_check("answer", in, (size_t)bytes, seed_of(peer, 0, 1000000 + i));
    }
    if (check.rank == 0)
        drain(1, count, lengths, 1, 0, false);
}

int main(int argc, char **argv) {
    static const int tiny[] = {8}, empty[] = {0}, small[] = {1, 64, 200, 513, 2000}, page[] = {4000};
    static const int mixed_lengths[] = {8, 70000, 500, 13000, 0, 100, MAX_BYTES};
    check_start(&argc, &argv, 2);
    buffers = check_alloc((size_t)WINDOW * MAX_BYTES);

    silent_receiver("tens_of_thousands_of_8_bytes", scaled(30000, 500), tiny, 1, false);
    silent_receiver("ten_thousand_empty_messages", scaled(10000, 500), empty, 1, false);
    silent_receiver("ten_thousand_small_messages", scaled(10000, 500), small, 5, false);
    silent_receiver("thousands_of_4000_bytes", scaled(3000, 100), page, 1, false);
    silent_receiver("a_thousand_messages", scaled(1000, 50), small, 5, true);
    silent_receiver("mixed_short_and_long_messages", scaled(400, 35), mixed_lengths, 7, false);
    silent_receiver("mixed_messages", scaled(200, 35), mixed_lengths, 7, true);
    traffic_beside_a_flood(scaled(3000, 100));
    return check_finish();
}
