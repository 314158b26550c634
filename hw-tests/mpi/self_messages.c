// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Messages of a rank to itself, contiguous or with gaps on either side, the receive posted first or late, at sizes
// around every protocol limit. With `--by self` btl/self carries all of them. With `--cut` some are too long for their
// receive, in each send mode. Not for ob1, which writes beyond a receive's end. Runs with 1 or more ranks.
//
// usage: self_messages [--by self] [--cut]
#include "counts.h"

static const int sizes[] = {0, 7, 1022, 1029, 4095, 12285, 20006, 100002, 1000006};
enum { KINDS = sizeof sizes / sizeof *sizes, BLOCK = 7, STRIDE = 16 };

static struct counter posted;

static size_t place(bool gaps, size_t index) { return gaps ? index / BLOCK * STRIDE + index % BLOCK : index; }

static void message(int size, bool gaps_out, bool gaps_in, bool late) {
    MPI_Request requests[2];
    size_t room = (size_t)size / BLOCK * STRIDE + STRIDE;
    unsigned char *out = check_alloc(room), *in = check_alloc(room);
    uint64_t seed = (uint64_t)size * 8 + (uint64_t)gaps_out * 4 + (uint64_t)gaps_in * 2 + late;
    MPI_Datatype blocks = check_vector(size / BLOCK, BLOCK, STRIDE, MPI_BYTE);
    for (int i = 0; i < size; i++)
        out[place(gaps_out, (size_t)i)] = pattern_byte(seed, (size_t)i);
    memset(in, 0xee, room);
    for (int step = 0; step < 2; step++)
        if ((step == 0) == late)
            MPI_OK(MPI_Isend(out, gaps_out ? 1 : size, gaps_out ? blocks : MPI_BYTE, check.rank, 3, MPI_COMM_WORLD,
                             &requests[0]));
        else
            MPI_OK(MPI_Irecv(in, gaps_in ? 1 : size, gaps_in ? blocks : MPI_BYTE, check.rank, 3, MPI_COMM_WORLD,
                             &requests[1]));
    MPI_OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < size; i++)
        if (in[place(gaps_in, (size_t)i)] != pattern_byte(seed, (size_t)i))
            check_fail("byte %d of %d bytes is wrong (gaps %d to %d, receive %s)", i, size, gaps_out, gaps_in,
                       late ? "late" : "first");
    MPI_OK(MPI_Type_free(&blocks));
    free(out);
    free(in);
}

static void begin_send(int mode, const void *out, int size, MPI_Request *request) {
    switch (mode) {
    case 0: MPI_OK(MPI_Isend(out, size, MPI_BYTE, check.rank, 4, MPI_COMM_WORLD, request)); break;
    case 1: MPI_OK(MPI_Issend(out, size, MPI_BYTE, check.rank, 4, MPI_COMM_WORLD, request)); break;
    default: MPI_OK(MPI_Ibsend(out, size, MPI_BYTE, check.rank, 4, MPI_COMM_WORLD, request));
    }
}

// Receives half of a message, from any source and tag, posted before the message or after a probe has seen it.
static void cut(int size, int mode, bool gaps, bool late) {
    int room = size / 2, done, probed, got;
    size_t span = (size_t)room / BLOCK * STRIDE + STRIDE;
    unsigned char *out = check_alloc((size_t)size), *in = check_alloc(span);
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Datatype blocks = check_vector(room / BLOCK, BLOCK, STRIDE, MPI_BYTE);
    room = gaps ? room / BLOCK * BLOCK : room;
    pattern_fill(out, (size_t)size, (uint64_t)size);
    memset(in, 0xee, span);
    for (int step = 0; step < 2; step++)
        if ((step == 0) == late) {
            begin_send(mode, out, size, &requests[0]);
            if (late) {
                MPI_OK(MPI_Iprobe(check.rank, MPI_ANY_TAG, MPI_COMM_WORLD, &probed, &status));
                MPI_OK(MPI_Get_count(&status, MPI_BYTE, &got));
                check_int("what a probe finds", 1, probed);
                check_int("what it says of the length", size, got);
                MPI_OK(MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE));
                if (mode == 1)
                    check_int("a synchronous send is done before its receive", 0, done);
            }
        } else {
            MPI_OK(MPI_Irecv(in, gaps ? 1 : room, gaps ? blocks : MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[1]));
        }
    check_error_class("the receive", MPI_ERR_TRUNCATE, MPI_Wait(&requests[1], &status));
    MPI_OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    check_int("source", check.rank, status.MPI_SOURCE);
    check_int("tag", 4, status.MPI_TAG);
    for (int i = 0; i < room; i++)
        if (in[place(gaps, (size_t)i)] != out[i])
            check_fail("byte %d of %d bytes is wrong (mode %d, gaps %d, receive %s)", i, room, mode, gaps, late ? "late" : "first");
    check_int("the byte beyond", 0xee, in[gaps ? span - STRIDE : (size_t)room]);
    MPI_OK(MPI_Type_free(&blocks));
    free(out);
    free(in);
}

static void cut_all(void) {
    int room = 4 << 20;
    void *attached = check_alloc((size_t)room);
    check_case("messages_of_a_rank_to_itself_that_are_too_long_for_their_receive_are_cut");
    MPI_OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_OK(MPI_Buffer_attach(attached, room));
    for (int kind = 1; kind < KINDS; kind++)
        for (int how = 0; how < 12; how++)
            cut(sizes[kind] < 2 * BLOCK ? 2 * BLOCK : sizes[kind], how / 4, how & 1, how & 2);
    MPI_OK(MPI_Buffer_detach(&attached, &room));
    free(attached);
}

int main(int argc, char **argv) {
    check_start(&argc, &argv, 1);
    const char *by = check_option(argc, argv, "--by");
    bool by_self = by && strcmp(by, "self") == 0, is_cut = check_flag(argc, argv, "--cut");
    check_no_more(argc);
    if (is_cut)
        cut_all();
    if (by_self)
        counter_open(&posted, "btl_ibex_posted");
    check_case("messages_of_a_rank_to_itself_arrive_with_gaps_and_without");
    // Between the two counts a rank sends only to itself.
    long long before = by_self ? counted(&posted) : 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (int how = 0; how < 8; how++)
            message(sizes[kind], how & 1, how & 2, how & 4);
    if (by_self) {
        check_int("requests that ibex posted", before, counted(&posted));
        counter_close(&posted);
    }
    return check_finish();
}
