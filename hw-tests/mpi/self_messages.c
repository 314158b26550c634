// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Messages of a rank to itself, contiguous or with gaps on either side, the receive posted first or late, at sizes around
// every protocol limit. With `--by self`, none of them may leave by ibex: btl/self is there for them. Runs with 1 or more
// ranks.
//
// usage: self_messages [--by self]
#include "counts.h"

static const int sizes[] = {0, 7, 1022, 1029, 4095, 12285, 20006, 100002, 1000006};
enum { KINDS = sizeof sizes / sizeof *sizes, BLOCK = 7, STRIDE = 16 };

static const char *const posted = "btl_ibex_posted";

static size_t place(bool gaps, size_t index) { return gaps ? index / BLOCK * STRIDE + index % BLOCK : index; }

static void message(int size, bool gaps_out, bool gaps_in, bool late) {
    MPI_Datatype blocks;
    MPI_Request requests[2];
    size_t room = (size_t)size / BLOCK * STRIDE + STRIDE;
    unsigned char *out = check_alloc(room), *in = check_alloc(room);
    uint64_t seed = (uint64_t)size * 8 + (uint64_t)gaps_out * 4 + (uint64_t)gaps_in * 2 + late;
    MPI_OK(MPI_Type_vector(size / BLOCK, BLOCK, STRIDE, MPI_BYTE, &blocks));
    MPI_OK(MPI_Type_commit(&blocks));
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
        if (in[place(gaps_in, (size_t)i)] != pattern_byte(seed, (size_t)i)) {
            check_fail("byte %d of %d bytes is wrong (gaps %d to %d, receive %s)", i, size, gaps_out, gaps_in,
                       late ? "late" : "first");
            break;
        }
    MPI_OK(MPI_Type_free(&blocks));
    free(out);
    free(in);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    check_attach(1);
    bool by_self = argc == 3 && strcmp(argv[1], "--by") == 0 && strcmp(argv[2], "self") == 0;
    if (argc != 1 && !by_self) {
        if (check.rank == 0)
            fprintf(stderr, "usage: self_messages [--by self]\n");
        MPI_Finalize();
        return CHECK_USAGE_EXIT;
    }
    if (by_self)
        counts_open(&posted, 1);
    // Nothing but messages to oneself is sent between the two counts.
    unsigned long long before = by_self ? count_of(posted) : 0;
    check_case("messages_to_oneself_arrive_with_gaps_and_without");
    for (int kind = 0; kind < KINDS; kind++)
        for (int how = 0; how < 8; how++)
            message(sizes[kind], how & 1, how & 2, how & 4);
    if (by_self)
        check_int("requests that ibex posted", (long long)before, (long long)count_of(posted));
    check_end_case();
    if (by_self)
        counts_close();
    return check_finish();
}
