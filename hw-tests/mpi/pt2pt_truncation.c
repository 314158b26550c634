// SPDX-License-Identifier: MIT OR Apache-2.0
// Needs Open MPI: the status of a message that was cut has the whole message's length there.
//
// Receives that are too short for their message: they end with MPI_ERR_TRUNCATE and the message's length, write as much
// as they have room for and nothing beyond, and the messages that follow are whole. At sizes of every protocol, posted
// before and after the message comes, in one piece and with gaps. Runs with 2 or more ranks; the first two exchange.
#include "check.h"

enum { TAG = 3, FOLLOWING_TAG = 4, GAP = 2 };

static const int SIZES[] = {1, 8, 100, 1000, 12000, 13000, 33000, 100000, 3000000};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

static void send_message(int size, bool is_posted_first) {
    unsigned char *out = check_alloc((size_t)size);
    pattern_fill(out, (size_t)size, seed_of(0, 0, size));
    if (is_posted_first)
        MPI_OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Send(out, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
    MPI_OK(MPI_Send(out, size, MPI_BYTE, 1, FOLLOWING_TAG, MPI_COMM_WORLD));
    free(out);
}

static void check_bytes(const unsigned char *in, int size, int room, int stride) {
    for (int i = 0; i < room * stride; i++) {
        unsigned char expected = i % stride == 0 ? pattern_byte(seed_of(0, 0, size), (size_t)(i / stride)) : 0;
        if (in[i] != expected)
            check_fail("byte %d of %d: expected %d, got %d", i, size, expected, in[i]);
    }
    for (int i = room * stride; i < room * stride + CHECK_GUARD_BYTES; i++)
        check_int("a byte beyond the buffer", 0, in[i]);
}

static void receive_message(int size, int room, bool is_posted_first, MPI_Datatype type, int stride) {
    unsigned char *in = calloc((size_t)(size * stride) + CHECK_GUARD_BYTES, 1);
    MPI_Request request;
    MPI_Status status;
    if (is_posted_first) {
        MPI_OK(MPI_Irecv(in, room, type, 0, TAG, MPI_COMM_WORLD, &request));
        MPI_OK(MPI_Send(NULL, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD));
        check_error_class("the wait", MPI_ERR_TRUNCATE, MPI_Wait(&request, &status));
    } else {
        MPI_OK(MPI_Probe(0, TAG, MPI_COMM_WORLD, &status));
        check_error_class("the receive", MPI_ERR_TRUNCATE, MPI_Recv(in, room, type, 0, TAG, MPI_COMM_WORLD, &status));
    }
    int count = 0;
    MPI_OK(MPI_Get_count(&status, MPI_BYTE, &count));
    check_int("length", size, count);
    check_bytes(in, size, room, stride);
    memset(in, 0, (size_t)(size * stride));
    MPI_OK(MPI_Recv(in, size, type, 0, FOLLOWING_TAG, MPI_COMM_WORLD, &status));
    check_bytes(in, size, size, stride);
    free(in);
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 2);
    MPI_Datatype with_gaps = check_block(1, GAP);
    for (int gaps = 0; gaps < 2; gaps++)
        for (int posted_first = 0; posted_first < 2; posted_first++)
            for (int half = 0; half < 2; half++) {
                check_case("%s_of_a_message_%s_received_%s", half ? "half" : "nothing", gaps ? "with_gaps" : "in_one_piece",
                           posted_first ? "first" : "late");
                for (int i = 0; i < SIZE_COUNT; i++) {
                    if (check.rank == 0)
                        send_message(SIZES[i], posted_first);
                    else if (check.rank == 1)
                        receive_message(SIZES[i], half ? SIZES[i] / 2 : 0, posted_first, gaps ? with_gaps : MPI_BYTE,
                                        gaps ? GAP : 1);
                }
            }
    MPI_OK(MPI_Type_free(&with_gaps));
    return check_finish();
}
