// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Thousands of requests outstanding in every order of completion, and persistent requests of each send mode. Ranks form
// a ring, or all talk to all. Runs with 1 or more ranks.
#include "check.h"

enum { MAX_BYTES = 200000, TAG_READY = 900 };

// Every rank has `count` messages of `bytes` in flight to every rank, receives posted from the last tag to the first
// when `crossed`. Sends are posted first when `unexpected`.
static void outstanding(int count, int bytes, bool crossed, bool unexpected) {
    int total = count * check.size;
    size_t stride = (size_t)bytes + 8;
    MPI_Request *requests = check_alloc(2 * (size_t)total * sizeof *requests);
    unsigned char *sends = check_alloc((size_t)total * stride), *takes = check_alloc((size_t)total * stride);
    check_case("%d_bytes_times_thousands_outstanding_%s_%s", bytes, crossed ? "in_crossed_order" : "in_order",
               unexpected ? "unexpected" : "expected");
    memset(takes, 0xa5, (size_t)total * stride);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < total; i++) {
            int peer = i % check.size, number = i / check.size, tag = crossed ? count - 1 - number : number;
            if ((pass == 1) == unexpected) {
                MPI_OK(MPI_Irecv(takes + (size_t)(tag * check.size + peer) * stride, bytes, MPI_BYTE, peer, tag,
                                 MPI_COMM_WORLD, &requests[i]));
            } else {
                unsigned char *from = sends + (size_t)i * stride;
                pattern_fill(from, (size_t)bytes, seed_of(check.rank, peer, number));
                MPI_OK(MPI_Isend(from, bytes, MPI_BYTE, peer, number, MPI_COMM_WORLD, &requests[total + i]));
            }
        }
    MPI_OK(MPI_Waitall(2 * total, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < total; i++) {
        const unsigned char *to = takes + (size_t)i * stride;
        pattern_check("message", to, (size_t)bytes, seed_of(i % check.size, check.rank, i / check.size));
        check_int("byte behind the message", 0xa5, to[bytes]);
    }
    free(requests);
    free(sends);
    free(takes);
}

typedef int (*initializer)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void persistent(const char *name, initializer init, bool ready) {
    static const int lengths[] = {0, 8, 1000, 12289, 70000, MAX_BYTES};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    unsigned char *sends[LENGTHS], *takes[LENGTHS];
    MPI_Request requests[2 * LENGTHS];
    check_case("persistent_%s_started_many_times", name);
    for (int i = 0; i < LENGTHS; i++) {
        sends[i] = check_alloc((size_t)lengths[i]);
        takes[i] = check_alloc((size_t)lengths[i]);
        MPI_OK(MPI_Recv_init(takes[i], lengths[i], MPI_BYTE, left, i, MPI_COMM_WORLD, &requests[i]));
        MPI_OK(init(sends[i], lengths[i], MPI_BYTE, right, i, MPI_COMM_WORLD, &requests[LENGTHS + i]));
    }
    for (int round = 0; round < scaled(20, 3); round++) {
        for (int i = 0; i < LENGTHS; i++) {
            pattern_fill(sends[i], (size_t)lengths[i], seed_of(check.rank, round, i));
            memset(takes[i], 0, (size_t)lengths[i]);
        }
        bool late = !ready && round % 3 == 2;
        if (!late)
            MPI_OK(MPI_Startall(LENGTHS, requests));
        if (ready) // the right neighbour's receives are posted
            check_token(left, right, TAG_READY);
        for (int i = 0; i < LENGTHS; i++)
            MPI_OK(MPI_Start(&requests[LENGTHS + i]));
        if (late)
            MPI_OK(MPI_Startall(LENGTHS, requests));
        MPI_OK(MPI_Waitall(2 * LENGTHS, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < LENGTHS; i++) {
            check_true("persistent request lives on", requests[i] != MPI_REQUEST_NULL);
            pattern_check("message", takes[i], (size_t)lengths[i], seed_of(left, round, i));
        }
    }
    for (int i = 0; i < LENGTHS; i++) {
        MPI_OK(MPI_Request_free(&requests[i]));
        MPI_OK(MPI_Request_free(&requests[LENGTHS + i]));
        free(sends[i]);
        free(takes[i]);
    }
}

// A request freed while its transfer runs: the transfer ends all the same.
static void freed_requests(void) {
    enum { COUNT = 40, BYTES = 2000 };
    static unsigned char sends[COUNT][BYTES], takes[COUNT][BYTES];
    check_case("a_send_whose_request_is_freed_still_arrives");
    for (int i = 0; i < COUNT; i++) {
        MPI_Request sent;
        pattern_fill(sends[i], BYTES, seed_of(check.rank, 77, i));
        MPI_OK(MPI_Isend(sends[i], BYTES, MPI_BYTE, right, i, MPI_COMM_WORLD, &sent));
        MPI_OK(MPI_Request_free(&sent));
    }
    for (int i = COUNT - 1; i >= 0; i--) {
        MPI_OK(MPI_Recv(takes[i], BYTES, MPI_BYTE, left, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        pattern_check("message", takes[i], BYTES, seed_of(left, 77, i));
    }
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 1);
    int many = scaled(12000, 64) / (check.size * check.size) + 4;
    outstanding(many, 8, false, false);
    outstanding(many / 3, 8, true, true);
    outstanding(many / 3, 300, true, false);
    outstanding(many / 8, 4000, false, true);
    outstanding(many / 20, 20000, true, true);
    outstanding(many / 40, 100000, true, false);

    // MPI_Bsend_init is left out: Open MPI 4.1 sends wrong bytes from its second start on, over any transport.
    persistent("send", MPI_Send_init, false);
    persistent("ssend", MPI_Ssend_init, false);
    persistent("rsend", MPI_Rsend_init, true);
    freed_requests();
    return check_finish();
}
